//! What a driver's structs look like, as data, and the compile-time comparison of a user's struct
//! with it.
//!
//! The tables ([`Abi`] down to [`Field`]) are `static` data that generated code fills in; the
//! functions are `const fn`s that [`#[derive(NvProxy)]`](crate::NvProxy) calls from constants, so
//! that a struct which disagrees with the driver does not compile. This module knows no driver by
//! name, no tokens and no operating system; it needs `core` only.
//!
//! Another driver can use the same checks: a module with a re-export of this one and a
//! `pub static ABI: check::Abi` is all that `#[nvproxy(crate = "path::to::it")]` asks for. Emit
//! every [`Layout`] as a `static` of its own: the compiler then reads only those that are used.

mod compare;
mod find;
mod message;

pub use compare::{Comparison, How, agrees, assert_field, assert_struct, same_layout};
pub use find::{Query, QueryPart, assert_found, assert_tag, find};
pub use message::Message;

use crate::scalar::{Handle, P64, Uuid};

/// Everything one build knows of a driver's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abi {
    /// The drivers that are enabled in this build, in version order.
    pub drivers: &'static [Driver],
    /// Every driver that has a feature, such as `550`, enabled or not, in version order.
    pub known: &'static [&'static str],
}

/// One driver branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The branch, such as `550`.
    pub name: &'static str,
    /// The feature that enables it, such as `driver-550`.
    pub feature: &'static str,
    /// Its tags in version order.
    pub tags: &'static [&'static str],
    /// What it declares, sorted by name in byte order.
    pub items: &'static [Item],
}

/// A named struct, union or alias of one driver branch, over all tags of that branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The driver's name for it.
    pub name: &'static str,
    /// Its changes in version order: the index of the first tag, and the layout from there on, or
    /// `None` where the item is gone.
    pub events: &'static [(u16, Option<&'static Layout>)],
}

/// What a layout is the layout of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Fields one after the other.
    Struct,
    /// Fields over each other.
    Union,
    /// Another name of a type: one field with an empty name at offset 0 holds that type.
    Alias,
}

/// The size, alignment and fields that a name has from one tag on.
///
/// Two are equal where name, size, alignment and fields are. Where they come from is not compared: a struct that
/// stays as it is has another line in each branch.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Layout {
    /// The driver's name, or the user's for the layout of a user's own struct.
    pub name: &'static str,
    /// Struct, union or alias.
    pub kind: LayoutKind,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// The first tag of the branch with this layout; empty for a user's own struct.
    pub since: &'static str,
    /// Header and line at that tag, as `path:line`; empty for a user's own struct.
    pub source: &'static str,
    /// The fields, by rising offset. Padding is not a field.
    pub fields: &'static [Field],
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && same_layout(self, other)
    }
}

/// One field of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The driver's name for the field; empty for an unnamed member.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: u32,
    /// Type of the field.
    pub ty: Type,
}

/// The kinds of types that a driver's interface is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// An integer; C's `_Bool` is one of one byte without sign.
    Int {
        /// Size in bytes.
        size: u8,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A floating-point number.
    Float {
        /// Size in bytes.
        size: u8,
    },
    /// C's `char`: one byte, `u8` or `i8` in Rust.
    Char,
    /// An enumeration: 4 bytes, `u32` in Rust.
    Enum,
    /// `NvHandle`: [`Handle`] in Rust.
    Handle,
    /// `NvP64`: [`P64`] in Rust.
    P64,
    /// `NvProcessorUuid`: [`Uuid`] in Rust.
    Uuid,
    /// So many elements of one type.
    Array(&'static Type, u32),
    /// A struct, a union, or an alias of one.
    Record(&'static Layout),
    /// Bytes that bit-fields share: an integer or bytes, and what lies in them.
    Bits(&'static Type, &'static [Bit]),
}

/// A bit-field of the driver's, in the bytes of a [`Type::Bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bit {
    /// The driver's name for it.
    pub name: &'static str,
    /// Its lowest bit, counted from the lowest bit of the first byte.
    pub bit_offset: u32,
    /// Its width in bits.
    pub bit_width: u32,
}

impl Type {
    /// Size in bytes.
    pub const fn size(&self) -> u32 {
        match self {
            Type::Int { size, .. } | Type::Float { size } => *size as u32,
            Type::Char => 1,
            Type::Enum | Type::Handle => 4,
            Type::P64 => 8,
            Type::Uuid => 16,
            Type::Array(element, count) => element.size().saturating_mul(*count),
            Type::Record(layout) => layout.size,
            Type::Bits(storage, _) => storage.size(),
        }
    }
}

/// A type that can be a field of a struct which is checked against a driver.
///
/// It is implemented for the integers, floats, arrays, [`Handle`], [`P64`], [`Uuid`], every
/// generated type, and by `#[derive(NvProxy)]`, so that checked structs nest.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of the driver interface",
    label = "not a driver type",
    note = "use `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, `Handle` for NvHandle, `P64` for NvP64 and other pointers, `Uuid` for NvProcessorUuid, an array of these, or a struct that derives `NvProxy`",
    note = "NvBool and C's bool are `u8`: a driver may write any value to them; an enum is `u32`"
)]
pub trait FieldType {
    /// What the type is to the driver.
    const TYPE: Type;
}

/// A struct that agrees with a driver's; `#[derive(NvProxy)]` implements it.
pub trait NvProxy: FieldType {
    /// The driver's name of the struct.
    const NAME: &'static str;
    /// The driver's layout which the struct was checked against.
    const LAYOUT: &'static Layout;
    /// The layout of the struct itself. Its fields bear the names that the driver has for them.
    const OWN: &'static Layout;
}

macro_rules! field_types {
    ($($rust:ty => $ty:expr;)*) => {
        $(impl FieldType for $rust {
            const TYPE: Type = $ty;
        })*
    };
}

field_types! {
    u8 => Type::Int { size: 1, signed: false };
    u16 => Type::Int { size: 2, signed: false };
    u32 => Type::Int { size: 4, signed: false };
    u64 => Type::Int { size: 8, signed: false };
    u128 => Type::Int { size: 16, signed: false };
    i8 => Type::Int { size: 1, signed: true };
    i16 => Type::Int { size: 2, signed: true };
    i32 => Type::Int { size: 4, signed: true };
    i64 => Type::Int { size: 8, signed: true };
    i128 => Type::Int { size: 16, signed: true };
    f32 => Type::Float { size: 4 };
    f64 => Type::Float { size: 8 };
    Handle => Type::Handle;
    P64 => Type::P64;
    Uuid => Type::Uuid;
}

impl<T: FieldType, const N: usize> FieldType for [T; N] {
    const TYPE: Type = Type::Array(const { &T::TYPE }, bytes(N));
}

/// Stops the build when what rustc made of an emitted type is not what its table says.
///
/// # Panics
///
/// In const evaluation, when size, alignment or any offset differs.
#[doc(hidden)]
#[allow(clippy::panic)]
pub const fn assert_layout(layout: &Layout, size: usize, align: usize, offsets: &[usize]) {
    assert!(layout.size as usize == size, "the emitted type has another size than the driver's");
    assert!(layout.align as usize == align, "the emitted type is aligned otherwise");
    assert!(layout.fields.len() == offsets.len(), "the emitted type has other fields");
    let mut i = 0;
    while i < offsets.len() {
        assert!(layout.fields[i].offset as usize == offsets[i], "an emitted field has moved");
        i += 1;
    }
}

/// The type of a field of the user's struct, which is called by its path and by how its type is written.
///
/// # Panics
///
/// In const evaluation, when a hand-written [`FieldType`] says another size than the type has:
/// what follows would be compared with something that is not there.
#[doc(hidden)]
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn type_of<T: FieldType>(field: &str, written: &str) -> Type {
    if T::TYPE.size() as usize != size_of::<T>() {
        panic!("{}", other_size(field, written, &T::TYPE, bytes(size_of::<T>())).as_str())
    }
    T::TYPE
}

/// The message about a type that has another size than what it stands for.
const fn other_size(field: &str, written: &str, ty: &Type, size: u32) -> Message {
    let mut message = Message::new();
    message.push("`");
    message.push(written);
    message.push("`, the type of `");
    message.push(field);
    message.push("`, is ");
    message.size(size);
    message.push(", but it stands for ");
    message.ty(ty, message::Side::Driver);
    message.push(" of ");
    message.size(ty.size());
    if let Type::Record(layout) = ty {
        if !layout.since.is_empty() {
            message.place(layout);
        }
    }
    message.push("\nhelp: correct `");
    message.push(written);
    message.push("` first: it derives NvProxy, or implements FieldType, and is wrong");
    message
}

/// The type of a derived struct. It has been checked where it was derived, so it stands for the
/// driver's own layout, names and all; or for its own where the lookup failed.
#[doc(hidden)]
pub const fn derived(driver: Option<&'static Layout>, own: &'static Layout) -> Type {
    match driver {
        Some(Layout { kind: LayoutKind::Alias, fields: [only], .. }) => only.ty,
        Some(driver) => Type::Record(driver),
        None => Type::Record(own),
    }
}

/// The driver's layout, or the struct's own where the lookup failed, which is reported elsewhere.
#[doc(hidden)]
pub const fn found_or(driver: Option<&'static Layout>, own: &'static Layout) -> &'static Layout {
    match driver {
        Some(layout) => layout,
        None => own,
    }
}

/// A size or offset as the tables hold it. No driver struct is near 4 GiB, so a larger one differs
/// from the driver's whatever is stored for it.
#[doc(hidden)]
pub const fn bytes(count: usize) -> u32 {
    if count > u32::MAX as usize { u32::MAX } else { count as u32 }
}

/// Whether two strings are equal: `==` is no `const fn` yet.
///
/// It compares backwards: the names of one driver begin alike.
const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut left = a.len();
    if left != b.len() {
        return false;
    }
    while left > 0 {
        left -= 1;
        if a[left] != b[left] {
            return false;
        }
    }
    true
}

/// Byte order of two strings.
const fn order(a: &str, b: &str) -> core::cmp::Ordering {
    use core::cmp::Ordering;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return if a[at] < b[at] { Ordering::Less } else { Ordering::Greater };
        }
        at += 1;
    }
    if a.len() == b.len() {
        Ordering::Equal
    } else if a.len() < b.len() {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}
