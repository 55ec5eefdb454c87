//! Whether a user's struct has the driver's leaves, however deep either side nests them.

use super::super::{Layout, Type};
use super::types::{Mode, field_at, is_record, is_union, same_layout, same_type, up_to};
use super::variants::any_variant;

/// Whether every leaf of the driver's record has its like in the user's.
pub(super) const fn same_leaves(own: &'static Layout, driver: &'static Layout, mode: Mode) -> bool {
    same_layout(own, driver)
        || own.size == driver.size && fields_fit(own, 0, driver, mode.inside(driver))
}

pub(super) const fn fields_fit(
    own: &'static Layout,
    at: u32,
    driver: &'static Layout,
    mode: Mode,
) -> bool {
    let mut index = 0;
    while index < driver.fields.len() {
        let field = &driver.fields[index];
        if !fits(own, at + field.offset, &field.ty, mode) {
            return false;
        }
        index += 1;
    }
    true
}

/// Whether the user's struct has at an offset what the driver has there.
pub(super) const fn fits(own: &'static Layout, at: u32, driver: &Type, mode: Mode) -> bool {
    let mode = match driver {
        Type::Record(layout) => mode.inside(layout),
        _ => mode,
    };
    // A flexible array at the end holds no byte that could be misread.
    if driver.size() == 0 || has(own, at, driver, mode) {
        return true;
    }
    match driver {
        Type::Record(layout) if is_union(layout) => {
            mode.flatten && matches!(any_variant(own, at, layout), Ok(()))
        }
        Type::Record(layout) => fields_fit(own, at, layout, mode),
        Type::Array(element, count) if is_record(element) => {
            let mut index = 0;
            while index < *count {
                if !fits(own, at + index * element.size(), element, mode) {
                    return false;
                }
                index += 1;
            }
            true
        }
        _ => false,
    }
}

/// Whether some field of the user's, however deep, starts at the offset and is of the type.
pub(super) const fn has(own: &'static Layout, at: u32, driver: &Type, mode: Mode) -> bool {
    if is_union(own) && !mode.in_union {
        return false;
    }
    let mut index = up_to(own, at);
    while index > 0 {
        index -= 1;
        let field = &own.fields[index];
        let inside = at - field.offset < field.ty.size();
        if inside && type_has(&field.ty, at - field.offset, driver, mode) {
            return true;
        }
        // Only in a union, or beside a field without size, can an earlier one cover the byte too.
        if !is_union(own) && field.ty.size() > 0 {
            return false;
        }
    }
    false
}

pub(super) const fn type_has(own: &Type, at: u32, driver: &Type, mode: Mode) -> bool {
    if at == 0 && own.size() == driver.size() && same_type(own, driver, mode) {
        return true;
    }
    match own {
        Type::Record(layout) => has(layout, at, driver, mode),
        // An array of scalars is one leaf: its elements are not the driver's fields.
        Type::Array(Type::Array(..) | Type::Record(_), 0) => false,
        Type::Array(element @ (Type::Array(..) | Type::Record(_)), _) => {
            type_has(element, at % element.size(), driver, mode)
        }
        _ => false,
    }
}

/// The user's leaf at an offset, for a message. What is in a union lies over something else, so
/// the union is named.
pub(super) const fn leaf_at(own: &'static Layout, at: u32) -> Option<Type> {
    match field_at(own, at) {
        Some(field) => leaf_of(&field.ty, at - field.offset),
        None => None,
    }
}

pub(super) const fn leaf_of(own: &Type, at: u32) -> Option<Type> {
    match own {
        Type::Record(layout) if !is_union(layout) => leaf_at(layout, at),
        Type::Array(element @ (Type::Array(..) | Type::Record(_)), _) => {
            leaf_of(element, at % element.size())
        }
        _ if at == 0 => Some(*own),
        _ => None,
    }
}
