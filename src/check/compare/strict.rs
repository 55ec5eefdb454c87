//! Strict: field by field, by name.

use super::super::message::{Message, Side};
use super::super::{Field, Layout, Type, same};
use super::flatten::Walk;
use super::suggest::{has_name, is_padding, nearest, overlap, storage_of};
use super::text::{bit_fields, declare, driver_field, subject, type_and_size, wanted};
use super::types::{Mode, is_record, is_union, same_type, up_to};

/// The driver's field that a user's field stands for: the one of its name. An unnamed member has
/// no name to compare, so it is the one at the same offset.
pub(super) const fn partner(driver: &'static Layout, own: &Field) -> Option<&'static Field> {
    let mut unnamed = None;
    let mut at = up_to(driver, own.offset);
    while at > 0 && driver.fields[at - 1].offset == own.offset {
        at -= 1;
        let field = &driver.fields[at];
        if same(field.name, own.name) {
            return Some(field);
        }
        if field.name.is_empty() && same_type(&own.ty, &field.ty, Mode::STRICT) {
            unnamed = Some(field);
        }
    }
    match named(driver, own.name) {
        Some(field) => Some(field),
        None => unnamed,
    }
}

pub(super) const fn named(driver: &'static Layout, name: &str) -> Option<&'static Field> {
    let mut at = 0;
    while at < driver.fields.len() {
        if same(driver.fields[at].name, name) {
            return Some(&driver.fields[at]);
        }
        at += 1;
    }
    None
}

pub(super) const fn strict_field(
    message: &mut Message,
    own: &'static Layout,
    driver: &'static Layout,
    index: usize,
    name: &str,
) {
    let field = &own.fields[index];
    let Some(partner) = partner(driver, field) else {
        return unknown_field(message, own, driver, field, name);
    };
    if field.offset != partner.offset && !follows(own, driver, index, partner) {
        moved(message, own, driver, field, partner, name);
    }
    if same_type(&field.ty, &partner.ty, Mode::STRICT) {
        return;
    }
    if is_record(&field.ty)
        && is_record(&partner.ty)
        && field.offset == partner.offset
        && field.ty.size() == partner.ty.size()
    {
        let end = field.offset + field.ty.size();
        let mut walk = Walk::new(own, driver, name, field.offset, end);
        walk.strict(partner);
        if !walk.message.is_empty() {
            message.line();
            message.push(walk.message.as_str());
            return;
        }
    }
    retyped(message, own, driver, field, partner, name);
}

/// Whether the shift of a field is only the shift that the field before it already reports: one
/// field of the wrong width moves all that follow, and that is one mistake.
pub(super) const fn follows(
    own: &'static Layout,
    driver: &'static Layout,
    index: usize,
    field: &Field,
) -> bool {
    if index == 0 || is_union(driver) {
        return false;
    }
    let before = &own.fields[index - 1];
    let Some(driver_before) = partner(driver, before) else { return false };
    let wrong = before.offset != driver_before.offset
        || !same_type(&before.ty, &driver_before.ty, Mode::STRICT);
    let own_gap = own.fields[index].offset as i64 - (before.offset + before.ty.size()) as i64;
    let driver_gap = field.offset as i64 - (driver_before.offset + driver_before.ty.size()) as i64;
    wrong && own_gap == driver_gap
}

pub(super) const fn unknown_field(
    message: &mut Message,
    own: &Layout,
    driver: &'static Layout,
    field: &Field,
    name: &str,
) {
    let covered = overlap(driver, field);
    match covered {
        None if is_padding(field) => return,
        Some(covered) if is_padding(field) => {
            return not_padding(message, own, driver, field, covered, name);
        }
        _ => subject(message, own, name),
    }
    message.push(" is at offset ");
    message.number(field.offset);
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(" has no field ");
    message.quoted(field.name);
    message.place(driver);
    let storage = storage_of(driver, field, covered);
    if let Some(storage) = storage {
        bit_fields(message, storage);
    }
    match (storage, nearest(driver, own, field, covered)) {
        (Some(storage), _) if has_name(own, storage.name) => {
            message.push("\nhelp: remove it: your ");
            message.quoted(storage.name);
            message.push(" holds all of them");
        }
        (Some(storage), _) => {
            declare(message, storage);
            message.push("; #[nvproxy(name = \"");
            message.push(storage.name);
            message.push("\")] keeps your own name");
        }
        (None, Some(nearest)) => {
            message.push("\nhelp: did you mean ");
            message.quoted(nearest);
            message.push("? say #[nvproxy(name = \"");
            message.push(nearest);
            message.push("\")] to keep your own name");
        }
        (None, None) => {
            message.push("\nhelp: remove it, or start its name with `_` if it is padding");
        }
    }
}

pub(super) const fn not_padding(
    message: &mut Message,
    own: &Layout,
    driver: &Layout,
    field: &Field,
    covered: &Field,
    name: &str,
) {
    subject(message, own, name);
    message.push(" is padding of ");
    message.size(field.ty.size());
    message.push(" at offset ");
    message.number(field.offset);
    message.push(", but the driver has ");
    driver_field(message, driver, covered);
    message.push(" of ");
    message.size(covered.ty.size());
    message.push(" at ");
    message.number(covered.offset);
    message.place(driver);
    bit_fields(message, covered);
    if matches!(covered.ty, Type::Bits(..)) {
        declare(message, covered);
    } else {
        message.push("\nhelp: make it the driver's field");
    }
}

pub(super) const fn moved(
    message: &mut Message,
    own: &Layout,
    driver: &'static Layout,
    field: &Field,
    partner: &Field,
    name: &str,
) {
    subject(message, own, name);
    message.push(" is at offset ");
    message.number(field.offset);
    message.push(", but the driver has ");
    driver_field(message, driver, partner);
    message.push(" at ");
    message.number(partner.offset);
    message.place(driver);
    if matches!(partner.ty, Type::Bits(..)) {
        bit_fields(message, partner);
        return declare(message, partner);
    }
    let instead = overlap(driver, field);
    match instead {
        Some(instead) if !same(instead.name, partner.name) && !instead.name.is_empty() => {
            message.push("\nhelp: the driver has ");
            message.quoted(instead.name);
            message.push(" at offset ");
            message.number(instead.offset);
        }
        _ if field.offset < partner.offset => {
            message.push("\nhelp: put ");
            message.size(partner.offset - field.offset);
            message.push(" before it");
        }
        _ => {
            message.push("\nhelp: take ");
            message.size(field.offset - partner.offset);
            message.push(" away before it");
        }
    }
}

pub(super) const fn retyped(
    message: &mut Message,
    own: &Layout,
    driver: &Layout,
    field: &Field,
    partner: &Field,
    name: &str,
) {
    subject(message, own, name);
    message.push(" is ");
    type_and_size(message, &field.ty, Side::Ours);
    message.push(", but the driver has ");
    driver_field(message, driver, partner);
    message.push(" as ");
    type_and_size(message, &partner.ty, Side::Driver);
    message.place(driver);
    if let (Type::Record(own), Type::Record(driver)) = (&field.ty, &partner.ty) {
        if own.size == driver.size {
            first_difference(message, own, driver);
        }
    }
    bit_fields(message, partner);
    if matches!(partner.ty, Type::Bits(..)) {
        return declare(message, partner);
    }
    wanted(message, &partner.ty);
}

/// Two layouts of one size: names the first field that is not the same in both.
pub(super) const fn first_difference(message: &mut Message, own: &Layout, driver: &'static Layout) {
    let mut at = 0;
    while at < own.fields.len() && at < driver.fields.len() {
        let (ours, theirs) = (&own.fields[at], &driver.fields[at]);
        if ours.offset != theirs.offset || !same(ours.name, theirs.name) {
            message.push("\nat offset ");
            message.number(ours.offset);
            message.push(" it has ");
            message.quoted(ours.name);
            message.push(", but the driver has ");
            driver_field(message, driver, theirs);
            message.push(" at ");
            message.number(theirs.offset);
            message.place(driver);
            return;
        }
        at += 1;
    }
}
