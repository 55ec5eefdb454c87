//! The derive macro of nvabi.
//!
//! It reads the struct's tokens and writes constants that call `nvabi::check`; it knows no driver
//! and depends on no other member of the workspace. `attrs` reads `#[nvproxy(…)]` and `#[repr(…)]`,
//! `expand` writes the code.

#![forbid(unsafe_code)]

mod attrs;
mod expand;

use proc_macro::TokenStream;

/// Checks a struct against the driver's struct of a name, at compile time.
///
/// ```
/// # extern crate abi as nvabi;
/// # mod toll {
/// #     pub use nvabi::check;
/// #     use check::{Abi, Driver, Field, Item, Kind, Layout, Type};
/// #     static TOLL: Layout = Layout {
/// #         name: "TOLL_PARAMS", kind: Kind::Struct, size: 8, align: 4, since: "100.1", source: "toll.h:1",
/// #         fields: &[
/// #             Field { name: "hClient", offset: 0, ty: Type::Handle },
/// #             Field { name: "status", offset: 4, ty: Type::Int { size: 4, signed: false } },
/// #         ],
/// #     };
/// #     pub static ABI: Abi = Abi {
/// #         drivers: &[Driver {
/// #             name: "100", feature: "driver-100", tags: &["100.1"],
/// #             items: &[Item { name: "TOLL_PARAMS", events: &[(0, Some(&TOLL))] }],
/// #         }],
/// #         known: &["100"],
/// #     };
/// # }
/// use nvabi::{Handle, NvProxy};
///
/// // `crate` names the table of this example; without it the table is nvabi's own.
/// #[derive(NvProxy)]
/// #[nvproxy(name = "TOLL_PARAMS", driver = "100", crate = "crate::toll")]
/// #[repr(C)]
/// pub struct Toll {
///     #[nvproxy(name = "hClient")]
///     pub client: Handle,
///     pub status: u32,
/// }
/// # fn main() {}
/// ```
///
/// A struct that disagrees does not compile, and the message says where, with both numbers. The
/// struct then implements `nvabi::check::NvProxy`, and may itself be a field of a checked struct.
///
/// # On the struct
///
/// * `name = "…"`: the driver's name of the struct, union or alias; left out, the struct's own.
/// * `driver = "550"`: the branch. It may be left out when all enabled drivers agree on the layout.
/// * `since = "550.90.07"`: a tag. The struct is checked against the layout that holds there.
///   It is needed where the layout changes within the branch.
/// * `flatten`: compare leaf by leaf. Nested structs may be spelled out or moved into a struct of
///   their own, a union may be `[u8; N]` or one of its variants, extra fields may fill padding and
///   names do not count. Every scalar and array of scalars of the driver must still have a field of
///   the same kind at the same offset, and the sizes must agree.
/// * `crate = "path"`: a module that has `check` (nvabi's) and `ABI` (a table of drivers). It is
///   `::nvabi` by default: name it when you renamed the crate or check against another driver.
///
/// # On a field
///
/// * `name = "…"`: the driver's name of the field; left out, the field's own.
///
/// # What must agree
///
/// Without `flatten`: the fields by name, their offsets, sizes and kinds, and the size and
/// alignment of the whole. NvHandle is `Handle`, NvP64 is `P64`, NvProcessorUuid is `Uuid`, an
/// enum is `u32`, a `char` is `u8` or `i8`, and an integer has its sign. A field that starts with
/// `_` may fill bytes that the driver leaves as padding. A driver's alias, such as NvHandle, is
/// compared by size and alignment, and the struct is then accepted where the alias is wanted.
#[proc_macro_derive(NvProxy, attributes(nvproxy))]
pub fn derive_nv_proxy(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    match attrs::read(&input) {
        Ok(target) => expand::expand(&target).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
