//! Which field of the driver's a user may have meant.

use super::super::find::likeness;
use super::super::{Field, Layout, Type, same};
use super::types::is_union;

/// The driver's field which the message about a user's unknown field offers, if it does.
pub(super) const fn offered(
    own: &'static Layout,
    driver: &'static Layout,
    field: &Field,
) -> Option<&'static str> {
    match (is_padding(field), overlap(driver, field)) {
        (true, None) => None,
        (true, Some(covered)) => Some(covered.name),
        (false, covered) => nearest(driver, own, field, covered),
    }
}

/// Whether a field's name says that it is padding.
pub(super) const fn is_padding(field: &Field) -> bool {
    matches!(field.name.as_bytes(), [b'_', ..])
}

/// The driver's field that is meant by a name it has not: the one at the same offset, else the
/// likest one.
pub(super) const fn nearest(
    driver: &'static Layout,
    own: &Layout,
    field: &Field,
    covered: Option<&'static Field>,
) -> Option<&'static str> {
    if let Some(storage) = storage_of(driver, field, covered) {
        return if has_name(own, storage.name) { None } else { Some(storage.name) };
    }
    if let Some(covered) = covered {
        let same_place = covered.offset == field.offset && !is_union(driver);
        if same_place && !covered.name.is_empty() && !has_name(own, covered.name) {
            return Some(covered.name);
        }
    }
    let mut best = None;
    let mut best_score = 0;
    let mut at = 0;
    while at < driver.fields.len() {
        let name = driver.fields[at].name;
        let score = likeness(name, field.name);
        if score > best_score && !has_name(own, name) {
            best_score = score;
            best = Some(name);
        }
        at += 1;
    }
    best
}

pub(super) const fn has_name(own: &Layout, name: &str) -> bool {
    let mut at = 0;
    while at < own.fields.len() {
        if same(own.fields[at].name, name) {
            return true;
        }
        at += 1;
    }
    false
}

/// The driver's storage of bit-fields that is meant by a field which the driver has not: the one
/// under it, or the one that holds a bit-field of that name.
pub(super) const fn storage_of(
    driver: &'static Layout,
    field: &Field,
    covered: Option<&'static Field>,
) -> Option<&'static Field> {
    if let Some(Field { ty: Type::Bits(..), .. }) = covered {
        return covered;
    }
    let mut at = 0;
    while at < driver.fields.len() {
        if let Type::Bits(_, bits) = driver.fields[at].ty {
            let mut bit = 0;
            while bit < bits.len() {
                if same(bits[bit].name, field.name) {
                    return Some(&driver.fields[at]);
                }
                bit += 1;
            }
        }
        at += 1;
    }
    None
}

/// The first driver field that has a byte in common with a user's field.
pub(super) const fn overlap(driver: &'static Layout, field: &Field) -> Option<&'static Field> {
    let mut at = 0;
    while at < driver.fields.len() {
        let other = &driver.fields[at];
        let before = other.offset + other.ty.size() <= field.offset;
        let after = other.offset >= field.offset + field.ty.size();
        if !before && !after {
            return Some(other);
        }
        at += 1;
    }
    None
}
