//! Types and offsets of both sides: what is the same, and what lies where.

use super::super::{Bit, Field, Layout, LayoutKind, Type, same};
use super::leaves::same_leaves;

/// How many fields start at an offset or before it. Both sides are by rising offset: ours because
/// `repr(C)` keeps the order, the driver's because C does.
pub(super) const fn up_to(layout: &Layout, offset: u32) -> usize {
    let (mut low, mut high) = (0, layout.fields.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if layout.fields[middle].offset <= offset {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A field that a byte belongs to.
pub(super) const fn field_at(layout: &'static Layout, at: u32) -> Option<&'static Field> {
    let mut index = up_to(layout, at);
    while index > 0 {
        index -= 1;
        let field = &layout.fields[index];
        if at - field.offset < field.ty.size() {
            return Some(field);
        }
        if !is_union(layout) && field.ty.size() > 0 {
            return None;
        }
    }
    None
}

pub(super) const fn is_union(layout: &Layout) -> bool {
    matches!(layout.kind, LayoutKind::Union)
}

/// The element of an array, of any number of dimensions, or the type itself.
pub(super) const fn innermost(ty: &Type) -> Type {
    match ty {
        Type::Array(element, _) => innermost(element),
        _ => *ty,
    }
}

pub(super) const fn is_record(ty: &Type) -> bool {
    matches!(innermost(ty), Type::Record(_))
}

/// What may stand for what.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    /// Leaves count, and bytes may stand for a union.
    pub(super) flatten: bool,
    /// The driver has a union here, so that a leaf may be in a union of the user's too.
    pub(super) in_union: bool,
}

impl Mode {
    pub(super) const STRICT: Self = Self { flatten: false, in_union: false };
    pub(super) const FLATTEN: Self = Self { flatten: true, in_union: false };

    /// The mode inside a driver's layout.
    pub(super) const fn inside(self, layout: &Layout) -> Self {
        Self { in_union: self.in_union || is_union(layout), ..self }
    }
}

/// Whether a user's type stands for a driver's. `flatten` lets an array of bytes stand for a union.
pub(super) const fn same_type(own: &Type, driver: &Type, mode: Mode) -> bool {
    match (own, driver) {
        (Type::Bits(storage, _), _) => same_type(storage, driver, mode),
        (_, Type::Bits(storage, _)) => same_type(own, storage, mode),
        (Type::Array(own, count), Type::Array(driver, wanted)) => {
            *count == *wanted && own.size() == driver.size() && same_type(own, driver, mode)
        }
        (Type::Array(byte, count), Type::Record(driver)) => {
            mode.flatten && is_union(driver) && is_byte(byte) && *count == driver.size
        }
        (Type::Record(own), Type::Record(driver)) if mode.flatten => same_leaves(own, driver, mode),
        (Type::Record(own), Type::Record(driver)) => same_layout(own, driver),
        _ => same_scalar(own, driver),
    }
}

pub(super) const fn is_byte(ty: &Type) -> bool {
    ty.size() == 1 && matches!(ty, Type::Int { .. } | Type::Char)
}

pub(super) const fn same_scalar(own: &Type, driver: &Type) -> bool {
    match (own, driver) {
        (Type::Int { size, signed }, Type::Int { size: wanted, signed: sign }) => {
            *size == *wanted && *signed == *sign
        }
        (Type::Float { size }, Type::Float { size: wanted }) => *size == *wanted,
        (Type::Int { size: 1, .. } | Type::Char, Type::Char) => true,
        (Type::Char, Type::Int { size: 1, .. }) => true,
        (Type::Int { size: 4, signed: false } | Type::Enum, Type::Enum) => true,
        (Type::Enum, Type::Int { size: 4, signed: false }) => true,
        (Type::Handle, Type::Handle) | (Type::P64, Type::P64) | (Type::Uuid, Type::Uuid) => true,
        _ => false,
    }
}

/// Whether two layouts are the same to a user's struct: all but where they come from.
pub const fn same_layout(a: &Layout, b: &Layout) -> bool {
    // The layout of a name is one per tag, so these two are the same one.
    if same(a.since, b.since) && same(a.source, b.source) && same(a.name, b.name) {
        return true;
    }
    if a.size != b.size
        || a.align != b.align
        || a.kind as u8 != b.kind as u8
        || a.fields.len() != b.fields.len()
    {
        return false;
    }
    let mut at = 0;
    while at < a.fields.len() {
        let (a, b) = (&a.fields[at], &b.fields[at]);
        if a.offset != b.offset || !same(a.name, b.name) || !equal(&a.ty, &b.ty) {
            return false;
        }
        at += 1;
    }
    true
}

pub(super) const fn equal(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Array(a, count), Type::Array(b, other)) => *count == *other && equal(a, b),
        (Type::Record(a), Type::Record(b)) => same_layout(a, b),
        (Type::Bits(a, bits), Type::Bits(b, others)) => equal(a, b) && same_bits(bits, others),
        (Type::Char, Type::Char) | (Type::Enum, Type::Enum) => true,
        (Type::Char | Type::Enum, _) | (_, Type::Char | Type::Enum) => false,
        _ => same_scalar(a, b),
    }
}

pub(super) const fn same_bits(a: &[Bit], b: &[Bit]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at].bit_offset != b[at].bit_offset
            || a[at].bit_width != b[at].bit_width
            || !same(a[at].name, b[at].name)
        {
            return false;
        }
        at += 1;
    }
    a.len() == b.len()
}
