//! Aliases of one value, such as `NvHandle`: a user's struct stands for one with its one field.

use super::super::message::{Message, Side};
use super::super::{Field, Layout, LayoutKind, Type};
use super::text::{subject, type_and_size};
use super::types::{Mode, is_byte, is_union, same_type};

/// What an alias is another name of, where that is no record.
pub(super) const fn value(driver: &'static Layout) -> Option<&'static Type> {
    match driver {
        Layout { kind: LayoutKind::Alias, fields: [only], .. } => Some(&only.ty),
        _ => None,
    }
}

/// The one field of a struct that has any bytes, so that it lies at offset 0.
pub(super) const fn only_field(own: &'static Layout) -> Option<&'static Field> {
    let mut only = None;
    let mut at = 0;
    while at < own.fields.len() {
        if own.fields[at].ty.size() > 0 {
            if only.is_some() {
                return None;
            }
            only = Some(&own.fields[at]);
        }
        at += 1;
    }
    if is_union(own) { None } else { only }
}

/// Whether a user's type is the driver's value: of its kind, or what that is made of.
pub(super) const fn is_value(own: &Type, value: &Type) -> bool {
    if same_type(own, value, Mode::STRICT) {
        return true;
    }
    match (own, value) {
        (Type::Int { size: 4, signed: false }, Type::Handle) => true,
        (Type::Int { size: 8, signed: false }, Type::P64) => true,
        (Type::Array(byte, 16), Type::Uuid) => is_byte(byte),
        (Type::Array(own, count), Type::Array(value, wanted)) => {
            *count == *wanted && is_value(own, value)
        }
        (Type::Record(own), _) => match only_field(own) {
            Some(only) => is_value(&only.ty, value),
            None => false,
        },
        _ => false,
    }
}

pub(super) const fn value_field(
    message: &mut Message,
    own: &'static Layout,
    driver: &Layout,
    value: &Type,
    index: usize,
    name: &str,
) {
    let field = &own.fields[index];
    if only_field(own).is_none() || field.ty.size() == 0 || is_value(&field.ty, value) {
        return;
    }
    subject(message, own, name);
    message.push(" is ");
    type_and_size(message, &field.ty, Side::Ours);
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(" is one ");
    type_and_size(message, value, Side::Driver);
    message.place(driver);
    message.push("\nhelp: use ");
    value_in_rust(message, value);
}

pub(super) const fn one_value(
    message: &mut Message,
    own: &'static Layout,
    driver: &Layout,
    value: &Type,
) {
    if only_field(own).is_some() {
        return;
    }
    message.push(own.name);
    if is_union(own) {
        message.push(" is a union");
    } else {
        message.push(" has ");
        message.number(own.fields.len() as u32);
        message.push(if own.fields.len() == 1 { " field without bytes" } else { " fields" });
    }
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(" is one ");
    type_and_size(message, value, Side::Driver);
    message.place(driver);
    message.push("\nhelp: make it a struct of one field, ");
    value_in_rust(message, value);
}

/// The types that may stand for a value.
pub(super) const fn value_in_rust(message: &mut Message, value: &Type) {
    message.push("`");
    message.ty(value, Side::Ours);
    message.push(match value {
        Type::Handle => "` or `u32`",
        Type::P64 => "` or `u64`",
        Type::Uuid => "` or `[u8; 16]`",
        Type::Char => "` or `i8`",
        _ => "`",
    });
}
