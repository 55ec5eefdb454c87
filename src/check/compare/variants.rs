//! Unions that are given by one of their variants.

use super::super::{Field, Layout, Type};
use super::leaves::fits;
use super::suggest::is_padding;
use super::types::{Mode, innermost, is_byte, is_record, is_union, up_to};

/// Bytes that a user's struct lacks beside the variant which it gives a union by.
#[derive(Clone, Copy)]
pub(super) struct UncoveredBytes {
    /// The variant that the user's struct has.
    pub(super) given: &'static Field,
    /// One that has bytes where the given has none.
    pub(super) other: &'static Field,
    /// Where they start, counted from the start of the user's struct, and how many they are.
    pub(super) at: u32,
    pub(super) count: u32,
}

/// A union is satisfied by the leaves of one of its variants, if what the others have beside them
/// is bytes. Without any such variant there is nothing that is bare.
pub(super) const fn any_variant(
    own: &'static Layout,
    at: u32,
    union: &'static Layout,
) -> Result<(), Option<UncoveredBytes>> {
    let mode = Mode::FLATTEN.inside(union);
    let mut best: Option<UncoveredBytes> = None;
    let mut index = 0;
    while index < union.fields.len() {
        let given = &union.fields[index];
        // A variant without bytes is none to give the union by.
        if given.ty.size() > 0 && fits(own, at + given.offset, &given.ty, mode) {
            let Some(bare) = uncovered(own, at, union, given) else { return Ok(()) };
            match best {
                Some(best) if best.at >= bare.at => {}
                _ => best = Some(bare),
            }
        }
        index += 1;
    }
    Err(best)
}

/// The first bytes of a union that one variant leaves to others and the user's struct does not
/// hold as bytes.
pub(super) const fn uncovered(
    own: &'static Layout,
    at: u32,
    union: &'static Layout,
    given: &'static Field,
) -> Option<UncoveredBytes> {
    let mut from = 0;
    while from < union.size {
        let (is_given, end) = run_of_field(given, from);
        if is_given {
            from = end;
            continue;
        }
        let mut to = least(end, union.size);
        let mut other = None;
        let mut index = 0;
        while index < union.fields.len() && other.is_none() {
            let field = &union.fields[index];
            let (has, end) = run_of_field(field, from);
            to = least(to, end);
            if has {
                other = Some(field);
            }
            index += 1;
        }
        if let Some(other) = other {
            match spare(own, at + from) {
                Some(end) => to = least(to, end - at),
                None => {
                    return Some(UncoveredBytes { given, other, at: at + from, count: to - from });
                }
            }
        }
        from = to;
    }
    None
}

pub(super) const fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// Whether a byte is of a leaf or padding, and where what holds for it may end.
pub(super) const fn run(ty: &Type, at: u32) -> (bool, u32) {
    match ty {
        _ if at >= ty.size() => (false, u32::MAX),
        Type::Record(layout) => run_of_layout(layout, at),
        Type::Array(element, _) if is_record(element) => {
            let start = at / element.size() * element.size();
            let (has, end) = run(element, at - start);
            (has, start + end)
        }
        _ => (true, ty.size()),
    }
}

pub(super) const fn run_of_field(field: &Field, at: u32) -> (bool, u32) {
    if at < field.offset {
        return (false, field.offset);
    }
    let (has, end) = run(&field.ty, at - field.offset);
    (has, end.saturating_add(field.offset))
}

pub(super) const fn run_of_layout(layout: &Layout, at: u32) -> (bool, u32) {
    let mut until = layout.size;
    let mut index = if is_union(layout) { 0 } else { up_to(layout, at).saturating_sub(1) };
    while index < layout.fields.len() {
        let (has, end) = run_of_field(&layout.fields[index], at);
        if has {
            return (true, end);
        }
        until = least(until, end);
        if layout.fields[index].offset > at {
            break;
        }
        index += 1;
    }
    (false, until)
}

/// Where the bytes end that the user's struct holds at an offset without saying what they are: as
/// bytes, or in a field whose name says that it is padding.
pub(super) const fn spare(own: &'static Layout, at: u32) -> Option<u32> {
    let mut index = up_to(own, at);
    while index > 0 {
        index -= 1;
        let field = &own.fields[index];
        let inside = at - field.offset < field.ty.size();
        if inside && is_padding(field) && !is_record(&field.ty) {
            return Some(field.offset + field.ty.size());
        }
        if inside {
            if let Some(end) = spare_of(&field.ty, at - field.offset) {
                return Some(field.offset + end);
            }
        }
        if !is_union(own) && field.ty.size() > 0 {
            return None;
        }
    }
    None
}

pub(super) const fn spare_of(ty: &Type, at: u32) -> Option<u32> {
    match ty {
        Type::Record(layout) => spare(layout, at),
        Type::Array(element, _) if is_record(element) => {
            let start = at / element.size() * element.size();
            match spare_of(element, at - start) {
                Some(end) => Some(start + end),
                None => None,
            }
        }
        _ if is_byte(&innermost(ty)) => Some(ty.size()),
        _ => None,
    }
}
