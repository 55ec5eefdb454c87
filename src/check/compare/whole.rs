//! A struct as a whole: its kind, size and alignment, and the driver's fields that it lacks.

use super::super::message::{Message, Side};
use super::super::{Field, Layout, Type, same};
use super::strict::partner;
use super::suggest::{has_name, offered};
use super::text::{LISTED, and_more, bit_fields};
use super::types::{Mode, is_union, same_type, up_to};
use super::{Comparison, field_message};

pub(super) const fn kind(message: &mut Message, own: &Layout, driver: &Layout) {
    message.push(own.name);
    message.push(if is_union(own) { " is a union" } else { " is a struct" });
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(if is_union(driver) { " is a union" } else { " is a struct" });
    message.place(driver);
}

pub(super) const fn size(message: &mut Message, comparison: &Comparison, driver: &Layout) {
    let own = comparison.own;
    if own.size == driver.size {
        return;
    }
    // Where a field is wrong or missing, that is what to mend.
    let explained = !message.is_empty() || any_field_message(comparison);
    message.line();
    message.push(own.name);
    message.push(" is ");
    message.size(own.size);
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(" is ");
    message.number(driver.size);
    message.place(driver);
    if explained {
        return;
    }
    if own.size < driver.size {
        message.push("\nhelp: add `_pad: [u8; ");
        message.number(driver.size - own.size);
        message.push("]` where the driver has padding");
    } else {
        message.push("\nhelp: take ");
        message.size(own.size - driver.size);
        message.push(" away");
    }
}

pub(super) const fn any_field_message(comparison: &Comparison) -> bool {
    let mut at = 0;
    while at < comparison.own.fields.len() {
        if field_message(comparison, at, "").is_some() {
            return true;
        }
        at += 1;
    }
    false
}

pub(super) const fn alignment(message: &mut Message, own: &Layout, driver: &Layout) {
    if own.align == driver.align || own.size != driver.size {
        return;
    }
    message.line();
    message.push(own.name);
    message.push(" is aligned to ");
    message.size(own.align);
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(" to ");
    message.number(driver.align);
    message.place(driver);
    if own.align < driver.align && is_packed(own) {
        message.push("\nhelp: remove `packed`");
    } else if own.align < driver.align {
        message.push("\nhelp: add #[repr(C, align(");
        message.number(driver.align);
        message.push("))]");
    } else {
        message.push("\nhelp: take `align` away, or add #[repr(C, packed(");
        message.number(driver.align);
        message.push("))]");
    }
}

/// Whether some field would align a struct further than this one is: `packed` and `align` exclude each other.
const fn is_packed(own: &Layout) -> bool {
    let mut at = 0;
    while at < own.fields.len() {
        if natural_align(&own.fields[at].ty) > own.align {
            return true;
        }
        at += 1;
    }
    false
}

const fn natural_align(ty: &Type) -> u32 {
    match ty {
        Type::Array(element, _) => natural_align(element),
        Type::Record(layout) => layout.align,
        Type::Uuid => 1,
        _ => ty.size(),
    }
}

/// Driver fields that no field of the user's stands for. One that lies where the user's struct has
/// padding is found too, because it is looked up by name. One that a user's field is reported to
/// misname is not said to be missing as well.
pub(super) const fn missing_fields(
    message: &mut Message,
    own: &'static Layout,
    driver: &'static Layout,
) {
    let mut missing = 0;
    let mut at = 0;
    while at < driver.fields.len() {
        let field = &driver.fields[at];
        if !has_partner(own, field) && !is_misnamed(own, driver, field) {
            missing += 1;
            if missing <= LISTED {
                message.line();
                message.push(own.name);
                message.push(" lacks ");
                message.push(driver.name);
                message.push(".");
                message.push(field.name);
                message.push(": ");
                message.ty(&field.ty, Side::Driver);
                message.push(", ");
                message.size(field.ty.size());
                message.push(" at offset ");
                message.number(field.offset);
                message.place(driver);
                bit_fields(message, field);
            }
        }
        at += 1;
    }
    and_more(message, missing);
    if missing == 1 {
        message.push("\nhelp: add it, or give your field its name with #[nvproxy(name = \"…\")]");
    } else if missing > 1 {
        message.push(
            "\nhelp: add them, or give your fields their names with #[nvproxy(name = \"…\")]",
        );
    }
}

/// Whether a user's field stands for the driver's. Most do at the same offset, and comparing
/// numbers is cheap, so names are searched for only where that fails.
pub(super) const fn has_partner(own: &'static Layout, field: &Field) -> bool {
    let mut at = up_to(own, field.offset);
    while at > 0 && own.fields[at - 1].offset == field.offset {
        at -= 1;
        let candidate = &own.fields[at];
        let unnamed = field.name.is_empty() && same_type(&candidate.ty, &field.ty, Mode::STRICT);
        if unnamed || same(candidate.name, field.name) {
            return true;
        }
    }
    has_name(own, field.name)
}

/// Whether the message about some user's field offers this driver field.
pub(super) const fn is_misnamed(
    own: &'static Layout,
    driver: &'static Layout,
    field: &Field,
) -> bool {
    let mut at = 0;
    while at < own.fields.len() {
        let candidate = &own.fields[at];
        if partner(driver, candidate).is_none() {
            if let Some(offered) = offered(own, driver, candidate) {
                if same(offered, field.name) {
                    return true;
                }
            }
        }
        at += 1;
    }
    false
}
