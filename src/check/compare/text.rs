//! Pieces of messages that several checks share.

use super::super::message::{Message, Side};
use super::super::{Bit, Field, Layout, Type};
use super::types::{innermost, is_union};

/// How many missing fields or leaves a message lists at most.
pub(super) const LISTED: u32 = 8;

pub(super) const fn and_more(message: &mut Message, found: u32) {
    if found > LISTED {
        message.push("\nand ");
        message.number(found - LISTED);
        message.push(" more");
    }
}

/// Where a driver's field is storage of bit-fields, says which, on a line of its own.
pub(super) const fn bit_fields(message: &mut Message, field: &Field) {
    let Type::Bits(_, bits) = field.ty else { return };
    message.push("\n");
    message.quoted(field.name);
    message.push(" holds the driver's bit-fields ");
    let mut listed = 0;
    let mut at = 0;
    while at < bits.len() {
        let Bit { name, bit_offset, bit_width } = bits[at];
        at += 1;
        if name.is_empty() {
            continue;
        }
        listed += 1;
        if listed > LISTED {
            continue;
        }
        message.push(if listed == 1 { "" } else { ", " });
        message.quoted(name);
        message.push(if bit_width == 1 { " (bit " } else { " (bits " });
        message.number(bit_offset);
        if bit_width > 1 {
            message.push(" to ");
            message.number(bit_offset + bit_width - 1);
        }
        message.push(")");
    }
    if listed > LISTED {
        message.push(" and ");
        message.number(listed - LISTED);
        message.push(" more");
    }
}

/// The field that a user needs for the driver's, on a line of its own.
pub(super) const fn declare(message: &mut Message, field: &Field) {
    message.push("\nhelp: declare `");
    message.push(field.name);
    message.push(": ");
    message.ty(&field.ty, Side::Ours);
    message.push("` at offset ");
    message.number(field.offset);
}

/// `help: use …`, where the driver's type has a name in Rust.
pub(super) const fn wanted(message: &mut Message, ty: &Type) {
    message.push("\nhelp: use `");
    message.ty(ty, Side::Ours);
    match innermost(ty) {
        Type::Record(union) if is_union(union) => {
            message
                .push("` or a union that derives NvProxy for it; bytes need #[nvproxy(flatten)]");
        }
        Type::Record(_) => message.push("` or a struct that derives NvProxy for it"),
        Type::Char => message.push("` or the same with `i8`"),
        _ => message.push("`"),
    }
}

/// `u32 (4 bytes)`.
pub(super) const fn type_and_size(message: &mut Message, ty: &Type, side: Side) {
    if matches!((ty, side), (Type::Record(layout), Side::Ours) if is_union(layout)) {
        message.push("the union ");
    }
    message.ty(ty, side);
    message.push(" (");
    message.size(ty.size());
    message.push(")");
}

/// `Mine.status`, on a line of its own.
pub(super) const fn subject(message: &mut Message, own: &Layout, name: &str) {
    message.line();
    message.push(own.name);
    message.push(".");
    message.push(name);
}

pub(super) const fn driver_field(message: &mut Message, driver: &Layout, field: &Field) {
    message.push(driver.name);
    message.push(".");
    message.push(if field.name.is_empty() { "(unnamed)" } else { field.name });
}
