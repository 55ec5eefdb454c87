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
/// #     use check::{Abi, Driver, Field, Item, LayoutKind, Layout, Type};
/// #     static TOLL: Layout = Layout {
/// #         name: "TOLL_PARAMS", kind: LayoutKind::Struct, size: 8, align: 4, since: "100.1", source: "toll.h:1",
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
///   their own, and a union may be `[u8; N]` or one of its variants. Every scalar and array of scalars
///   of the driver must still have a field of the same kind and name at the same offset, and the sizes
///   must agree; see [below](#what-flatten-accepts).
/// * `flatten = "by_offset"`: the same, but of the names only those count that are given with
///   `name = "…"`. Two fields of one kind may then have changed places.
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
/// `_` may fill bytes that the driver leaves as padding.
///
/// A driver's alias of one value, such as NvHandle, is a struct of one field that is this value or
/// the integer it is made of: `Handle` or `u32`. The struct is then accepted where the alias is
/// wanted.
///
/// Bit-fields are one field for the bytes that they share, an integer or `[u8; N]`; a message about
/// it says which bit-fields are in there.
///
/// # What `flatten` accepts
///
/// * Names, wherever either side nests them: a field has the name of the driver's field that starts
///   there, or of the struct or union around it that starts there as well. A struct of yours inside
///   another needs no name: its fields have theirs. Elements of an array have the names of the first.
///   A field whose name starts with `_` is padding, and so must be the driver's bytes there.
/// * Of a union, one variant. The bytes that only other variants have must then be bytes, or
///   fields whose names start with `_`: a typed field would claim what is not known to be there,
///   and Rust need not copy what is padding to it. The padding in a nested struct may be such, so
///   it does not count; spell the variant out, or use `[u8; N]` for the whole union.
/// * A union of your own for a union of the driver's, but never for a struct.
/// * A smaller alignment than the driver's, as of a `packed` struct or of one that has bytes for a
///   union: every byte is where the driver has it. Where such a struct is a field, its place is
///   compared as that of any other. A larger alignment is refused, because the driver's bytes need
///   not have it.
#[proc_macro_derive(NvProxy, attributes(nvproxy))]
pub fn derive_nv_proxy(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    match attrs::read(&input) {
        Ok(target) => expand::expand(&target).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
