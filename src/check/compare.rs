//! Compares a user's struct with a driver's layout.
//!
//! Strict: every driver field has the user's field of that name at the same offset, with the same
//! size and kind, and nothing else is there but explicit padding. Flatten: both sides are seen as
//! their leaves (scalars and arrays of scalars), and every driver leaf must have a user's leaf of
//! the same kind at the same offset; names do not count. Of a union one variant's leaves are
//! enough; what other variants have beside them must then be bytes. A union of the user's stands
//! only for a union.

use super::find::likeness;
use super::message::{Message, Side};
use super::{Bit, Field, Kind, Layout, Type, same};

/// How many missing fields or leaves a message lists at most.
const LISTED: u32 = 8;

/// Nesting that a message can spell out; a deeper path is cut.
const DEPTH: usize = 12;

/// A user's struct beside the driver's.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The user's struct; its fields bear the names that the driver has for them.
    pub own: &'static Layout,
    /// The driver's, or `None` where the lookup failed, which is reported elsewhere.
    pub driver: Option<&'static Layout>,
    /// Whether leaves are compared instead of fields.
    pub flatten: bool,
}

/// Stops the compilation if a field of the user's struct disagrees with the driver. `name` is what
/// the user calls it.
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn assert_field(comparison: &Comparison, index: usize, name: &str) {
    if let Some(message) = field_message(comparison, index, name) {
        panic!("{}", message.as_str())
    }
}

/// Stops the compilation if the user's struct as a whole disagrees with the driver.
#[track_caller]
#[allow(clippy::panic, reason = "a panic in a constant is how a compile error is raised")]
pub const fn assert_struct(comparison: &Comparison) {
    if let Some(message) = struct_message(comparison) {
        panic!("{}", message.as_str())
    }
}

const fn field_message(comparison: &Comparison, index: usize, name: &str) -> Option<Message> {
    let Some(driver) = comparison.driver else { return None };
    let driver = aliased(driver);
    let own = comparison.own;
    let mut message = Message::new();
    if let Some(value) = value(driver) {
        value_field(&mut message, own, driver, value, index, name);
    } else if !kinds_agree(comparison, driver) {
        return None;
    } else if comparison.flatten {
        flat_field(&mut message, own, driver, index, name);
    } else {
        strict_field(&mut message, own, driver, index, name);
    }
    if message.is_empty() { None } else { Some(message) }
}

const fn struct_message(comparison: &Comparison) -> Option<Message> {
    let Some(driver) = comparison.driver else { return None };
    let driver = aliased(driver);
    let own = comparison.own;
    let mut message = Message::new();
    if let Some(value) = value(driver) {
        one_value(&mut message, own, driver, value);
        size(&mut message, comparison, driver);
        alignment(&mut message, own, driver);
    } else if !kinds_agree(comparison, driver) {
        kind(&mut message, own, driver);
    } else if comparison.flatten {
        missing_leaves(&mut message, own, driver);
        size(&mut message, comparison, driver);
        // Bytes for a union, or `packed`, align less: the bytes are right all the same. A larger
        // alignment is one that the driver's bytes need not have.
        if own.align > driver.align {
            alignment(&mut message, own, driver);
        }
    } else {
        missing_fields(&mut message, own, driver);
        size(&mut message, comparison, driver);
        alignment(&mut message, own, driver);
    }
    if message.is_empty() { None } else { Some(message) }
}

// The struct as a whole.

/// The record that an alias names, or the layout itself.
const fn aliased(driver: &'static Layout) -> &'static Layout {
    match driver {
        Layout { kind: Kind::Alias, fields: [Field { ty: Type::Record(record), .. }], .. } => {
            aliased(record)
        }
        _ => driver,
    }
}

/// Whether a struct may be given for what the driver has. Flattened, a struct may stand for a
/// union, which is one of its variants; a union never stands for a struct, whose fields it would
/// lay over each other.
const fn kinds_agree(comparison: &Comparison, driver: &Layout) -> bool {
    match (is_union(comparison.own), is_union(driver)) {
        (true, false) => false,
        (false, true) => comparison.flatten,
        _ => true,
    }
}

const fn kind(message: &mut Message, own: &Layout, driver: &Layout) {
    message.push(own.name);
    message.push(if is_union(own) { " is a union" } else { " is a struct" });
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(if is_union(driver) { " is a union" } else { " is a struct" });
    message.place(driver);
}

// Aliases of one value, such as NvHandle.

/// What an alias is another name of, where that is no record.
const fn value(driver: &'static Layout) -> Option<&'static Type> {
    match driver {
        Layout { kind: Kind::Alias, fields: [only], .. } => Some(&only.ty),
        _ => None,
    }
}

/// The one field of a struct that has any bytes, so that it lies at offset 0.
const fn only_field(own: &'static Layout) -> Option<&'static Field> {
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
const fn is_value(own: &Type, value: &Type) -> bool {
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

const fn value_field(
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

const fn one_value(message: &mut Message, own: &'static Layout, driver: &Layout, value: &Type) {
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
const fn value_in_rust(message: &mut Message, value: &Type) {
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

const fn size(message: &mut Message, comparison: &Comparison, driver: &Layout) {
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

const fn any_field_message(comparison: &Comparison) -> bool {
    let mut at = 0;
    while at < comparison.own.fields.len() {
        if field_message(comparison, at, "").is_some() {
            return true;
        }
        at += 1;
    }
    false
}

const fn alignment(message: &mut Message, own: &Layout, driver: &Layout) {
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
    if own.align < driver.align {
        message.push("\nhelp: add #[repr(C, align(");
        message.number(driver.align);
        message.push("))]");
    } else {
        message.push("\nhelp: take `align` away, or add #[repr(C, packed(");
        message.number(driver.align);
        message.push("))]");
    }
}

/// Driver fields that no field of the user's stands for. One that lies where the user's struct has
/// padding is found too, because it is looked up by name. One that a user's field is reported to
/// misname is not said to be missing as well.
const fn missing_fields(message: &mut Message, own: &'static Layout, driver: &'static Layout) {
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

const fn and_more(message: &mut Message, found: u32) {
    if found > LISTED {
        message.push("\nand ");
        message.number(found - LISTED);
        message.push(" more");
    }
}

/// Whether a user's field stands for the driver's. Most do at the same offset, and comparing
/// numbers is cheap, so names are searched for only where that fails.
const fn has_partner(own: &'static Layout, field: &Field) -> bool {
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
const fn is_misnamed(own: &'static Layout, driver: &'static Layout, field: &Field) -> bool {
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

// Strict: field by field.

/// The driver's field that a user's field stands for: the one of its name. An unnamed member has
/// no name to compare, so it is the one at the same offset.
const fn partner(driver: &'static Layout, own: &Field) -> Option<&'static Field> {
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

const fn named(driver: &'static Layout, name: &str) -> Option<&'static Field> {
    let mut at = 0;
    while at < driver.fields.len() {
        if same(driver.fields[at].name, name) {
            return Some(&driver.fields[at]);
        }
        at += 1;
    }
    None
}

const fn strict_field(
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
const fn follows(
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

/// The driver's field which the message about a user's unknown field offers, if it does.
const fn offered(
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
const fn is_padding(field: &Field) -> bool {
    matches!(field.name.as_bytes(), [b'_', ..])
}

const fn unknown_field(
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

const fn not_padding(
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

/// The driver's field that is meant by a name it has not: the one at the same offset, else the
/// likest one.
const fn nearest(
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

const fn has_name(own: &Layout, name: &str) -> bool {
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
const fn storage_of(
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

/// Where a driver's field is storage of bit-fields, says which, on a line of its own.
const fn bit_fields(message: &mut Message, field: &Field) {
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
const fn declare(message: &mut Message, field: &Field) {
    message.push("\nhelp: declare `");
    message.push(field.name);
    message.push(": ");
    message.ty(&field.ty, Side::Ours);
    message.push("` at offset ");
    message.number(field.offset);
}

/// The first driver field that has a byte in common with a user's field.
const fn overlap(driver: &'static Layout, field: &Field) -> Option<&'static Field> {
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

const fn moved(
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

const fn retyped(
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
const fn first_difference(message: &mut Message, own: &Layout, driver: &'static Layout) {
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

/// `help: use …`, where the driver's type has a name in Rust.
const fn wanted(message: &mut Message, ty: &Type) {
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
const fn type_and_size(message: &mut Message, ty: &Type, side: Side) {
    if matches!((ty, side), (Type::Record(layout), Side::Ours) if is_union(layout)) {
        message.push("the union ");
    }
    message.ty(ty, side);
    message.push(" (");
    message.size(ty.size());
    message.push(")");
}

/// `Mine.status`, on a line of its own.
const fn subject(message: &mut Message, own: &Layout, name: &str) {
    message.line();
    message.push(own.name);
    message.push(".");
    message.push(name);
}

const fn driver_field(message: &mut Message, driver: &Layout, field: &Field) {
    message.push(driver.name);
    message.push(".");
    message.push(if field.name.is_empty() { "(unnamed)" } else { field.name });
}

// Offsets.

/// How many fields start at an offset or before it. Both sides are by rising offset: ours because
/// `repr(C)` keeps the order, the driver's because C does.
const fn up_to(layout: &Layout, offset: u32) -> usize {
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
const fn field_at(layout: &'static Layout, at: u32) -> Option<&'static Field> {
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

// Types.

const fn is_union(layout: &Layout) -> bool {
    matches!(layout.kind, Kind::Union)
}

/// The element of an array, of any number of dimensions, or the type itself.
const fn innermost(ty: &Type) -> Type {
    match ty {
        Type::Array(element, _) => innermost(element),
        _ => *ty,
    }
}

const fn is_record(ty: &Type) -> bool {
    matches!(innermost(ty), Type::Record(_))
}

/// What may stand for what.
#[derive(Clone, Copy)]
struct Mode {
    /// Leaves count, and bytes may stand for a union.
    flatten: bool,
    /// The driver has a union here, so that a leaf may be in a union of the user's too.
    in_union: bool,
}

impl Mode {
    const STRICT: Self = Self { flatten: false, in_union: false };
    const FLATTEN: Self = Self { flatten: true, in_union: false };

    /// The mode inside a driver's layout.
    const fn inside(self, layout: &Layout) -> Self {
        Self { in_union: self.in_union || is_union(layout), ..self }
    }
}

/// Whether a user's type stands for a driver's. `flatten` lets an array of bytes stand for a union.
const fn same_type(own: &Type, driver: &Type, mode: Mode) -> bool {
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

const fn is_byte(ty: &Type) -> bool {
    ty.size() == 1 && matches!(ty, Type::Int { .. } | Type::Char)
}

const fn same_scalar(own: &Type, driver: &Type) -> bool {
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

/// Whether every leaf of the driver's record has its like in the user's.
const fn same_leaves(own: &'static Layout, driver: &'static Layout, mode: Mode) -> bool {
    same_layout(own, driver)
        || own.size == driver.size && fields_fit(own, 0, driver, mode.inside(driver))
}

const fn fields_fit(own: &'static Layout, at: u32, driver: &'static Layout, mode: Mode) -> bool {
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
const fn fits(own: &'static Layout, at: u32, driver: &Type, mode: Mode) -> bool {
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
const fn has(own: &'static Layout, at: u32, driver: &Type, mode: Mode) -> bool {
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

const fn type_has(own: &Type, at: u32, driver: &Type, mode: Mode) -> bool {
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
const fn leaf_at(own: &'static Layout, at: u32) -> Option<Type> {
    match field_at(own, at) {
        Some(field) => leaf_of(&field.ty, at - field.offset),
        None => None,
    }
}

const fn leaf_of(own: &Type, at: u32) -> Option<Type> {
    match own {
        Type::Record(layout) if !is_union(layout) => leaf_at(layout, at),
        Type::Array(element @ (Type::Array(..) | Type::Record(_)), _) => {
            leaf_of(element, at % element.size())
        }
        _ if at == 0 => Some(*own),
        _ => None,
    }
}

// Unions that are given by one of their variants.

/// Bytes that a user's struct lacks beside the variant which it gives a union by.
#[derive(Clone, Copy)]
struct Bare {
    /// The variant that the user's struct has.
    given: &'static Field,
    /// One that has bytes where the given has none.
    other: &'static Field,
    /// Where they start, counted from the start of the user's struct, and how many they are.
    at: u32,
    count: u32,
}

/// A union is satisfied by the leaves of one of its variants, if what the others have beside them
/// is bytes. Without any such variant there is nothing that is bare.
const fn any_variant(
    own: &'static Layout,
    at: u32,
    union: &'static Layout,
) -> Result<(), Option<Bare>> {
    let mode = Mode::FLATTEN.inside(union);
    let mut best: Option<Bare> = None;
    let mut index = 0;
    while index < union.fields.len() {
        let given = &union.fields[index];
        // A variant without bytes is none to give the union by.
        if given.ty.size() > 0 && fits(own, at + given.offset, &given.ty, mode) {
            let Some(bare) = bare(own, at, union, given) else { return Ok(()) };
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
const fn bare(
    own: &'static Layout,
    at: u32,
    union: &'static Layout,
    given: &'static Field,
) -> Option<Bare> {
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
                None => return Some(Bare { given, other, at: at + from, count: to - from }),
            }
        }
        from = to;
    }
    None
}

const fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

/// Whether a byte is of a leaf or padding, and where what holds for it may end.
const fn run(ty: &Type, at: u32) -> (bool, u32) {
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

const fn run_of_field(field: &Field, at: u32) -> (bool, u32) {
    if at < field.offset {
        return (false, field.offset);
    }
    let (has, end) = run(&field.ty, at - field.offset);
    (has, end.saturating_add(field.offset))
}

const fn run_of_layout(layout: &Layout, at: u32) -> (bool, u32) {
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
const fn spare(own: &'static Layout, at: u32) -> Option<u32> {
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

const fn spare_of(ty: &Type, at: u32) -> Option<u32> {
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

const fn equal(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Array(a, count), Type::Array(b, other)) => *count == *other && equal(a, b),
        (Type::Record(a), Type::Record(b)) => same_layout(a, b),
        (Type::Bits(a, bits), Type::Bits(b, others)) => equal(a, b) && same_bits(bits, others),
        (Type::Char, Type::Char) | (Type::Enum, Type::Enum) => true,
        (Type::Char | Type::Enum, _) | (_, Type::Char | Type::Enum) => false,
        _ => same_scalar(a, b),
    }
}

const fn same_bits(a: &[Bit], b: &[Bit]) -> bool {
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

// Flatten: leaf by leaf.

/// The part of a path that one step down takes.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    index: Option<u32>,
}

/// A walk over the driver's leaves which start in a range of bytes, collecting what the user's
/// struct lacks there.
struct Walk<'a> {
    own: &'static Layout,
    driver: &'static Layout,
    /// The user's field that the range belongs to, or none for the gaps between fields.
    name: Option<&'a str>,
    from: u32,
    to: u32,
    mode: Mode,
    path: [Step; DEPTH],
    depth: usize,
    found: u32,
    message: Message,
}

impl<'a> Walk<'a> {
    const fn new(
        own: &'static Layout,
        driver: &'static Layout,
        name: &'a str,
        from: u32,
        to: u32,
    ) -> Self {
        Self {
            own,
            driver,
            name: Some(name),
            from,
            to,
            mode: Mode::FLATTEN,
            path: [Step { name: "", index: None }; DEPTH],
            depth: 0,
            found: 0,
            message: Message::new(),
        }
    }

    /// A strict walk over one driver field.
    const fn strict(&mut self, field: &'static Field) {
        self.mode = Mode::STRICT;
        self.field(self.driver, field, 0);
    }

    /// Walks over the fields of a driver's struct which have a byte in the range.
    const fn layout(&mut self, layout: &'static Layout, base: u32) {
        // The field that holds the first byte of the range may start before it.
        let mut index = up_to(layout, self.from.saturating_sub(base)).saturating_sub(1);
        while index < layout.fields.len() && base + layout.fields[index].offset < self.to {
            self.field(layout, &layout.fields[index], base);
            index += 1;
        }
    }

    const fn field(&mut self, layout: &'static Layout, field: &'static Field, base: u32) {
        self.enter(Step { name: field.name, index: None });
        self.ty(layout, &field.ty, base + field.offset);
        self.leave();
    }

    const fn enter(&mut self, step: Step) {
        if self.depth < DEPTH {
            self.path[self.depth] = step;
        }
        self.depth += 1;
    }

    const fn leave(&mut self) {
        self.depth -= 1;
    }

    const fn ty(&mut self, holder: &'static Layout, ty: &Type, at: u32) {
        let outside = at >= self.to || at + ty.size() <= self.from;
        if outside || fits(self.own, at, ty, self.mode) {
            return;
        }
        match ty {
            Type::Record(layout) if !is_union(layout) => self.layout(layout, at),
            Type::Record(union) if self.mode.flatten => match any_variant(self.own, at, union) {
                Err(Some(bare)) => self.bare(holder, &bare),
                _ => self.leaf(holder, ty, at),
            },
            Type::Array(element, count) if is_record(element) => {
                let mut index = 0;
                while index < *count {
                    self.enter(Step { name: "", index: Some(index) });
                    self.ty(holder, element, at + index * element.size());
                    self.leave();
                    index += 1;
                }
            }
            _ => self.leaf(holder, ty, at),
        }
    }

    /// Reports a leaf that does not fit, if it starts in the range: else it is another's to report.
    const fn leaf(&mut self, holder: &'static Layout, ty: &Type, at: u32) {
        if !self.begin(at, "no field that starts") {
            return;
        }
        self.message.push(", but the driver has ");
        self.spell_path();
        self.message.push(" there as ");
        type_and_size(&mut self.message, ty, Side::Driver);
        self.message.place(holder);
        if let Type::Bits(..) = ty {
            let name = if self.depth <= DEPTH { self.path[self.depth - 1].name } else { "" };
            bit_fields(&mut self.message, &Field { name, offset: at, ty: *ty });
        }
        if self.found == 1 {
            self.help(ty);
        }
    }

    /// Reports the bytes of a union that the variant which is given leaves to others.
    const fn bare(&mut self, holder: &'static Layout, bare: &Bare) {
        if !self.begin(bare.at, "no bytes of its own") {
            return;
        }
        self.message.push(", but there the driver's ");
        self.spell_path();
        self.message.push(" has ");
        self.message.size(bare.count);
        self.message.push(" of ");
        self.variant(bare.other);
        self.message.push(" and none of ");
        self.variant(bare.given);
        self.message.place(holder);
        if self.found == 1 {
            self.message.push(match field_at(self.own, bare.at) {
                None => "\nhelp: add",
                // The padding of a record is nothing that its type tells of.
                Some(field) if is_record(&field.ty) => "\nhelp: spell its fields out, with",
                Some(_) => "\nhelp: put",
            });
            self.message.push(" `[u8; ");
            self.message.number(bare.count);
            self.message.push("]` there, or use bytes for the whole union");
        }
    }

    const fn variant(&mut self, variant: &Field) {
        self.message.quoted(if variant.name.is_empty() { "(unnamed)" } else { variant.name });
    }

    /// Starts a report with what the user's struct has at an offset, if that is this walk's to
    /// report and the list is not full.
    const fn begin(&mut self, at: u32, nothing: &str) -> bool {
        let mine = match self.name {
            Some(_) => at >= self.from && at < self.to,
            None => field_at(self.own, at).is_none(),
        };
        if !mine {
            return false;
        }
        self.found += 1;
        if self.found > LISTED {
            return false;
        }
        self.message.line();
        self.message.push(self.own.name);
        match self.name {
            Some(name) => {
                self.message.push(".");
                self.message.push(name);
                self.message.push(" has ");
                match leaf_at(self.own, at) {
                    Some(own) => type_and_size(&mut self.message, &own, Side::Ours),
                    None => self.message.push(nothing),
                }
            }
            None => self.message.push(" has no field"),
        }
        self.message.push(" at offset ");
        self.message.number(at);
        true
    }

    const fn help(&mut self, ty: &Type) {
        match ty {
            Type::Record(union) if self.mode.flatten => {
                self.message.push("\nhelp: use `[u8; ");
                self.message.number(union.size);
                self.message.push("]`, the fields of one variant, or a union that derives NvProxy");
            }
            _ if self.name.is_none() => {
                self.message.push("\nhelp: add a field of type `");
                self.message.ty(ty, Side::Ours);
                self.message.push("`");
            }
            _ => wanted(&mut self.message, ty),
        }
    }

    const fn spell_path(&mut self) {
        self.message.push(self.driver.name);
        let mut at = 0;
        while at < self.depth && at < DEPTH {
            let step = self.path[at];
            match step.index {
                Some(index) => {
                    self.message.push("[");
                    self.message.number(index);
                    self.message.push("]");
                }
                None => {
                    self.message.push(".");
                    self.message.push(if step.name.is_empty() { "(unnamed)" } else { step.name });
                }
            }
            at += 1;
        }
    }
}

const fn flat_field(
    message: &mut Message,
    own: &'static Layout,
    driver: &'static Layout,
    index: usize,
    name: &str,
) {
    let field = &own.fields[index];
    // In a union every member covers the driver's bytes; what none of them has is reported once,
    // at the first.
    if is_union(own) && index > 0 {
        return;
    }
    let end = if is_union(own) { own.size } else { field.offset + field.ty.size() };
    let mut walk = Walk::new(own, driver, name, field.offset, end);
    walk.root();
    and_more(&mut walk.message, walk.found);
    *message = walk.message;
}

const fn missing_leaves(message: &mut Message, own: &'static Layout, driver: &'static Layout) {
    let mut walk = Walk::new(own, driver, "", 0, u32::MAX);
    walk.name = None;
    walk.root();
    and_more(&mut walk.message, walk.found);
    *message = walk.message;
}

impl Walk<'_> {
    /// Walks over the whole of the driver's layout.
    const fn root(&mut self) {
        if is_union(self.driver) {
            self.ty(self.driver, &Type::Record(self.driver), 0);
        } else {
            self.layout(self.driver, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U8: Type = Type::Int { size: 1, signed: false };
    const U32: Type = Type::Int { size: 4, signed: false };
    const U64: Type = Type::Int { size: 8, signed: false };

    const fn field(name: &'static str, offset: u32, ty: Type) -> Field {
        Field { name, offset, ty }
    }

    fn layout(name: &'static str, size: u32, fields: &[Field]) -> &'static Layout {
        let fields = fields.to_vec().leak();
        let (since, source) = (name, "a.h:1");
        Box::leak(Box::new(Layout {
            name,
            kind: Kind::Struct,
            size,
            align: 4,
            since,
            source,
            fields,
        }))
    }

    fn union(name: &'static str, size: u32, fields: &[Field]) -> &'static Layout {
        Box::leak(Box::new(Layout { kind: Kind::Union, ..*layout(name, size, fields) }))
    }

    /// All that is said about a struct, a line each, without the help.
    fn complaints(own: &'static Layout, driver: &'static Layout, flatten: bool) -> Vec<String> {
        let comparison = Comparison { own, driver: Some(driver), flatten };
        let names = own.fields.iter().map(|field| field.name).enumerate();
        let fields = names.filter_map(|(at, name)| field_message(&comparison, at, name));
        fields
            .chain(struct_message(&comparison))
            .flat_map(|message| message.as_str().lines().map(str::to_owned).collect::<Vec<_>>())
            .filter(|line| !line.starts_with("help: "))
            .collect()
    }

    #[test]
    fn a_wrong_width_is_one_complaint_and_not_one_for_each_field_it_pushes() {
        let driver = layout("D", 12, &[field("a", 0, U32), field("b", 4, U32), field("c", 8, U32)]);
        let own = layout("M", 20, &[field("a", 0, U64), field("b", 8, U32), field("c", 12, U32)]);
        assert_eq!(
            complaints(own, driver, false),
            [
                "M.a is u64 (8 bytes), but the driver has D.a as u32 (4 bytes) (D, a.h:1)",
                "M is 20 bytes, but the driver's D is 12 (D, a.h:1)",
            ]
        );
    }

    #[test]
    fn two_mistakes_are_two_complaints() {
        let driver = layout("D", 12, &[field("a", 0, U32), field("b", 4, U32), field("c", 8, U32)]);
        let own = layout("M", 20, &[field("a", 0, U64), field("b", 8, U32), field("c", 16, U32)]);
        let complaints = complaints(own, driver, false);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert_eq!(complaints[1], "M.c is at offset 16, but the driver has D.c at 8 (D, a.h:1)");
    }

    #[test]
    fn a_misnamed_field_is_not_missing_as_well() {
        let driver = layout("D", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        let own = layout("M", 8, &[field("a", 0, U32), field("z", 4, U32)]);
        assert_eq!(
            complaints(own, driver, false),
            ["M.z is at offset 4, but the driver's D has no field `z` (D, a.h:1)"]
        );
    }

    #[test]
    fn a_field_in_padding_is_missing() {
        let driver = layout("D", 8, &[field("a", 0, U32), field("b", 4, U8)]);
        let own = layout("M", 8, &[field("a", 0, U32)]);
        assert_eq!(
            complaints(own, driver, false),
            ["M lacks D.b: u8, 1 byte at offset 4 (D, a.h:1)"]
        );
        assert_eq!(
            complaints(own, driver, true),
            ["M has no field at offset 4, but the driver has D.b there as u8 (1 byte) (D, a.h:1)"]
        );
    }

    #[test]
    fn a_leaf_across_two_fields_belongs_to_the_one_it_starts_in() {
        let driver = layout("D", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        let own = layout("M", 8, &[field("a", 0, U64)]);
        let found = complaints(own, driver, true);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("M.a has no field that starts at offset 4"), "{found:?}");
    }

    #[test]
    fn a_union_is_bytes_or_one_variant_only_when_flattened() {
        let data = union("U", 8, &[field("wide", 0, U64), field("narrow", 0, U32)]);
        let driver = layout("D", 8, &[field("data", 0, Type::Record(data))]);
        let bytes: &'static Type = Box::leak(Box::new(U8));
        let own = layout("M", 8, &[field("data", 0, Type::Array(bytes, 8))]);
        assert_eq!(complaints(own, driver, true), [""; 0]);
        assert_eq!(complaints(own, driver, false).len(), 1);
        let narrow = layout("M", 8, &[field("x", 0, U32), field("y", 4, U32)]);
        assert_eq!(
            complaints(narrow, driver, true),
            [
                "M.y has u32 (4 bytes) at offset 4, but there the driver's D.data has 4 bytes of `wide` and none of `narrow` (D, a.h:1)"
            ]
        );
        let bytes = layout("M", 8, &[field("x", 0, U32), field("y", 4, Type::Array(bytes, 4))]);
        assert_eq!(complaints(bytes, driver, true), [""; 0]);
        let short = layout("M", 8, &[field("data", 0, Type::Array(&U8, 7))]);
        assert_eq!(complaints(short, driver, true).len(), 1);
    }

    #[test]
    fn an_array_of_structs_names_the_element_that_differs() {
        let element = layout("E", 8, &[field("x", 0, U32), field("y", 4, U32)]);
        let element: &'static Type = Box::leak(Box::new(Type::Record(element)));
        let driver = layout("D", 16, &[field("list", 0, Type::Array(element, 2))]);
        let fields = [field("a", 0, U32), field("b", 4, U32), field("c", 8, U32)];
        let good = layout("M", 16, &[&fields[..], &[field("d", 12, U32)]].concat());
        assert_eq!(complaints(good, driver, true), [""; 0]);
        let bad = layout("M", 16, &[&fields[..], &[field("d", 12, Type::Handle)]].concat());
        assert_eq!(
            complaints(bad, driver, true),
            [
                "M.d has Handle (4 bytes) at offset 12, but the driver has D.list[1].y there as u32 (4 bytes) (E, a.h:1)"
            ]
        );
    }

    #[test]
    fn each_byte_that_only_other_variants_have_must_be_spare() {
        let pair = layout("P", 8, &[field("tag", 0, U8), field("value", 4, U32)]);
        let fields = [field("pair", 0, Type::Record(pair)), field("late", 8, U64)];
        let data = union("U", 24, &fields);
        let driver = layout("D", 28, &[field("data", 0, Type::Record(data)), field("n", 24, U32)]);
        let own = |fields: &[Field]| layout("M", 28, &[fields, &[field("n", 24, U32)]].concat());
        let given = [field("tag", 0, U8), field("value", 4, U32)];
        let with = |rest: &[Field]| complaints(own(&[&given, rest].concat()), driver, true);
        // Bytes 1 to 3 and 16 to 23 are padding in every variant, so that anything may be there.
        assert_eq!(with(&[field("rest", 8, Type::Array(&U8, 8))]), [""; 0]);
        assert_eq!(with(&[field("rest", 8, Type::Array(&U8, 8)), field("x", 16, U64)]), [""; 0]);
        assert_eq!(with(&[field("_rest", 8, U64)]), [""; 0]);
        assert_eq!(with(&[field("a", 8, U8), field("b", 9, Type::Array(&U8, 15))]), [""; 0]);
        assert_eq!(
            with(&[field("rest", 8, Type::Array(&U8, 5))]),
            [
                "M has no field at offset 13, but there the driver's D.data has 3 bytes of `late` and none of `pair` (D, a.h:1)"
            ]
        );
        assert_eq!(
            with(&[field("rest", 8, Type::Array(&U8, 4)), field("more", 12, U32)]),
            [
                "M.more has u32 (4 bytes) at offset 12, but there the driver's D.data has 4 bytes of `late` and none of `pair` (D, a.h:1)"
            ]
        );
    }

    #[test]
    fn a_variant_without_bytes_is_none() {
        let none: &'static Type = Box::leak(Box::new(U8));
        let fields = [field("tail", 0, Type::Array(none, 0)), field("wide", 0, U64)];
        let data = union("U", 8, &fields);
        let driver = layout("D", 8, &[field("data", 0, Type::Record(data))]);
        let own = layout("M", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        assert_eq!(
            complaints(own, driver, true),
            [
                "M.a has u32 (4 bytes) at offset 0, but the driver has D.data there as U (8 bytes) (D, a.h:1)"
            ]
        );
    }

    #[test]
    fn a_union_of_the_users_stands_for_a_union_alone() {
        let words = union("W", 8, &[field("wide", 0, U64), field("narrow", 0, U32)]);
        let own = layout("M", 8, &[field("u", 0, Type::Record(words))]);
        let flat = layout("D", 8, &[field("wide", 0, U64)]);
        let found = complaints(own, flat, true);
        assert_eq!(
            found,
            [
                "M.u has the union W (8 bytes) at offset 0, but the driver has D.wide there as u64 (8 bytes) (D, a.h:1)"
            ]
        );
        let inner = layout("I", 8, &[field("wide", 0, U64)]);
        let nested = layout("D", 8, &[field("inner", 0, Type::Record(inner))]);
        assert_eq!(complaints(own, nested, true).len(), 1);
        let other = union("V", 8, &[field("wide", 0, U64)]);
        let driver = layout("D", 8, &[field("data", 0, Type::Record(other))]);
        assert_eq!(complaints(own, driver, true), [""; 0]);
    }

    #[test]
    fn an_alias_is_one_value_of_its_kind() {
        let alias = |ty: Type| -> &'static Layout {
            let fields = [field("", 0, ty)].to_vec().leak();
            Box::leak(Box::new(Layout {
                kind: Kind::Alias,
                fields,
                ..*layout("A", ty.size(), &[])
            }))
        };
        let own = |ty: Type| layout("M", ty.size(), &[field("value", 0, ty)]);
        let bytes = Type::Array(&U8, 16);
        let handles = Type::Array(&Type::Handle, 2);
        for (ty, value) in [
            (U32, Type::Handle),
            (Type::Handle, Type::Handle),
            (U64, Type::P64),
            (bytes, Type::Uuid),
            (U32, Type::Enum),
            (U8, Type::Char),
            (Type::Array(&U32, 2), handles),
            (Type::Record(own(Type::Handle)), Type::Handle),
        ] {
            assert_eq!(complaints(own(ty), alias(value), false), [""; 0], "{ty:?} for {value:?}");
        }
        for (ty, value) in [
            (Type::Float { size: 4 }, Type::Handle),
            (Type::Array(&U8, 4), Type::Handle),
            (Type::Handle, U32),
            (Type::Handle, Type::Enum),
            (U64, handles),
            (Type::Record(layout("R", 8, &[field("a", 0, U32), field("b", 4, U32)])), Type::P64),
            (Type::Record(union("R", 4, &[field("a", 0, U32)])), Type::Handle),
        ] {
            assert_eq!(complaints(own(ty), alias(value), false).len(), 1, "{ty:?} for {value:?}");
        }
        let record = layout("R", 8, &[field("a", 0, U32), field("b", 4, U32)]);
        let own = layout("M", 8, &[field("a", 0, U32), field("b", 4, Type::Float { size: 4 })]);
        assert_eq!(complaints(record, alias(Type::Record(record)), false), [""; 0]);
        assert_eq!(
            complaints(own, alias(Type::Record(record)), false),
            ["M.b is f32 (4 bytes), but the driver has R.b as u32 (4 bytes) (R, a.h:1)"]
        );
    }

    #[test]
    fn where_a_bit_field_lies_is_part_of_a_layout() {
        let one = |bit_offset, bit_width| {
            let bits = vec![Bit { name: "on", bit_offset, bit_width }].leak();
            layout("A", 4, &[field("bits0", 0, Type::Bits(&U32, bits))])
        };
        let copy = |layout: &Layout| Layout { since: "other", ..*layout };
        assert!(same_layout(one(0, 1), &copy(one(0, 1))));
        assert!(!same_layout(one(0, 1), &copy(one(1, 1))));
        assert!(!same_layout(one(0, 1), &copy(one(0, 2))));
        let own = layout("M", 4, &[field("bits0", 0, U32)]);
        assert_eq!(complaints(own, one(0, 1), false), [""; 0]);
        assert_eq!(complaints(own, one(0, 1), true), [""; 0]);
    }

    #[test]
    fn the_name_of_a_field_is_part_of_a_layout() {
        let one = layout("A", 4, &[field("status", 0, U32)]);
        let other = layout("B", 4, &[field("paramsSize", 0, U32)]);
        assert!(!same_layout(one, other));
        assert!(same_layout(one, layout("B", 4, &[field("status", 0, U32)])));
    }
}
