//! Compares a user's struct with a driver's layout.
//!
//! Strict: every driver field has the user's field of that name at the same offset, with the same
//! size and kind, and nothing else is there but explicit padding. Flatten: both sides are seen as
//! their leaves (scalars and arrays of scalars), and every driver leaf must have a user's leaf of
//! the same kind at the same offset; names do not count.

use super::find::likeness;
use super::message::{Message, Side};
use super::{Field, Kind, Layout, Type, same};

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
    let driver = match comparison.driver {
        Some(Layout { kind: Kind::Alias, .. }) | None => return None,
        Some(driver) => driver,
    };
    let mut message = Message::new();
    if comparison.flatten {
        flat_field(&mut message, comparison.own, driver, index, name);
    } else if is_union(comparison.own) == is_union(driver) {
        strict_field(&mut message, comparison.own, driver, index, name);
    }
    if message.is_empty() { None } else { Some(message) }
}

const fn struct_message(comparison: &Comparison) -> Option<Message> {
    let Some(driver) = comparison.driver else { return None };
    let own = comparison.own;
    let mut message = Message::new();
    match driver.kind {
        Kind::Alias => alias(&mut message, comparison, driver),
        _ if comparison.flatten => {
            missing_leaves(&mut message, own, driver);
            size(&mut message, comparison, driver);
        }
        _ if is_union(own) != is_union(driver) => kind(&mut message, own, driver),
        _ => {
            missing_fields(&mut message, own, driver);
            size(&mut message, comparison, driver);
            alignment(&mut message, own, driver);
        }
    }
    if message.is_empty() { None } else { Some(message) }
}

// The struct as a whole.

/// An alias says nothing of how its value is made up, so its size and alignment are all there is
/// to compare. An alias of a struct has leaves.
const fn alias(message: &mut Message, comparison: &Comparison, driver: &'static Layout) {
    let own = comparison.own;
    if let [Field { ty: Type::Record(_), .. }] = driver.fields {
        missing_leaves(message, own, driver);
    }
    size(message, comparison, driver);
    alignment(message, own, driver);
}

const fn kind(message: &mut Message, own: &Layout, driver: &Layout) {
    message.push(own.name);
    message.push(if is_union(own) { " is a union" } else { " is a struct" });
    message.push(", but the driver's ");
    message.push(driver.name);
    message.push(if is_union(driver) { " is a union" } else { " is a struct" });
    message.place(driver);
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
        let unnamed = field.name.is_empty() && same_type(&candidate.ty, &field.ty, false);
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
        if field.name.is_empty() && same_type(&own.ty, &field.ty, false) {
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
    if same_type(&field.ty, &partner.ty, false) {
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
    let wrong =
        before.offset != driver_before.offset || !same_type(&before.ty, &driver_before.ty, false);
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
    match nearest(driver, own, field, covered) {
        Some(nearest) => {
            message.push("\nhelp: did you mean ");
            message.quoted(nearest);
            message.push("? say #[nvproxy(name = \"");
            message.push(nearest);
            message.push("\")] to keep your own name");
        }
        None => message.push("\nhelp: remove it, or start its name with `_` if it is padding"),
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
    message.push("\nhelp: make it the driver's field");
}

/// The driver's field that is meant by a name it has not: the one at the same offset, else the
/// likest one.
const fn nearest(
    driver: &'static Layout,
    own: &Layout,
    field: &Field,
    covered: Option<&'static Field>,
) -> Option<&'static str> {
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

/// Whether a user's type stands for a driver's. `flatten` lets an array of bytes stand for a union.
const fn same_type(own: &Type, driver: &Type, flatten: bool) -> bool {
    match (own, driver) {
        (Type::Array(own, count), Type::Array(driver, wanted)) => {
            *count == *wanted && own.size() == driver.size() && same_type(own, driver, flatten)
        }
        (Type::Array(byte, count), Type::Record(driver)) => {
            flatten && is_union(driver) && is_byte(byte) && *count == driver.size
        }
        (Type::Record(own), Type::Record(driver)) if flatten => same_leaves(own, driver),
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
const fn same_leaves(own: &'static Layout, driver: &'static Layout) -> bool {
    own.size == driver.size
        && (is_union(own) || !is_union(driver))
        && fields_fit(own, 0, driver, true)
}

const fn fields_fit(own: &'static Layout, at: u32, driver: &Layout, flatten: bool) -> bool {
    let mut index = 0;
    while index < driver.fields.len() {
        let field = &driver.fields[index];
        if !fits(own, at + field.offset, &field.ty, flatten) {
            return false;
        }
        index += 1;
    }
    true
}

/// Whether the user's struct has at an offset what the driver has there.
const fn fits(own: &'static Layout, at: u32, driver: &Type, flatten: bool) -> bool {
    // A flexible array at the end holds no byte that could be misread.
    if driver.size() == 0 || has(own, at, driver, flatten) {
        return true;
    }
    match driver {
        Type::Record(layout) if is_union(layout) => flatten && any_variant(own, at, layout),
        Type::Record(layout) => fields_fit(own, at, layout, flatten),
        Type::Array(element, count) if is_record(element) => {
            let mut index = 0;
            while index < *count {
                if !fits(own, at + index * element.size(), element, flatten) {
                    return false;
                }
                index += 1;
            }
            true
        }
        _ => false,
    }
}

/// A union is satisfied by the leaves of one of its variants.
const fn any_variant(own: &'static Layout, at: u32, union: &Layout) -> bool {
    let mut index = 0;
    while index < union.fields.len() {
        let variant = &union.fields[index];
        if fits(own, at + variant.offset, &variant.ty, true) {
            return true;
        }
        index += 1;
    }
    false
}

/// Whether some field of the user's, however deep, starts at the offset and is of the type.
const fn has(own: &'static Layout, at: u32, driver: &Type, flatten: bool) -> bool {
    let mut index = up_to(own, at);
    while index > 0 {
        index -= 1;
        let field = &own.fields[index];
        let inside = at - field.offset < field.ty.size();
        if inside && type_has(&field.ty, at - field.offset, driver, flatten) {
            return true;
        }
        // Only in a union, or beside a field without size, can an earlier one cover the byte too.
        if !is_union(own) && field.ty.size() > 0 {
            return false;
        }
    }
    false
}

const fn type_has(own: &Type, at: u32, driver: &Type, flatten: bool) -> bool {
    if at == 0 && own.size() == driver.size() && same_type(own, driver, flatten) {
        return true;
    }
    match own {
        Type::Record(layout) => has(layout, at, driver, flatten),
        // An array of scalars is one leaf: its elements are not the driver's fields.
        Type::Array(Type::Array(..) | Type::Record(_), 0) => false,
        Type::Array(element @ (Type::Array(..) | Type::Record(_)), _) => {
            type_has(element, at % element.size(), driver, flatten)
        }
        _ => false,
    }
}

/// The user's leaf at an offset, for a message.
const fn leaf_at(own: &'static Layout, at: u32) -> Option<Type> {
    match field_at(own, at) {
        Some(field) => leaf_of(&field.ty, at - field.offset),
        None => None,
    }
}

const fn leaf_of(own: &Type, at: u32) -> Option<Type> {
    match own {
        Type::Record(layout) => leaf_at(layout, at),
        Type::Array(element @ (Type::Array(..) | Type::Record(_)), _) => {
            leaf_of(element, at % element.size())
        }
        _ if at == 0 => Some(*own),
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
        (Type::Char, Type::Char) | (Type::Enum, Type::Enum) => true,
        (Type::Char | Type::Enum, _) | (_, Type::Char | Type::Enum) => false,
        _ => same_scalar(a, b),
    }
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
    flatten: bool,
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
            flatten: true,
            path: [Step { name: "", index: None }; DEPTH],
            depth: 0,
            found: 0,
            message: Message::new(),
        }
    }

    /// A strict walk over one driver field.
    const fn strict(&mut self, field: &'static Field) {
        self.flatten = false;
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
        if outside || fits(self.own, at, ty, self.flatten) {
            return;
        }
        match ty {
            Type::Record(layout) if !is_union(layout) => self.layout(layout, at),
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
        let mine = match self.name {
            Some(_) => at >= self.from && at < self.to,
            None => field_at(self.own, at).is_none(),
        };
        if !mine {
            return;
        }
        self.found += 1;
        if self.found > LISTED {
            return;
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
                    None => self.message.push("no field that starts"),
                }
            }
            None => self.message.push(" has no field"),
        }
        self.message.push(" at offset ");
        self.message.number(at);
        self.message.push(", but the driver has ");
        self.spell_path();
        self.message.push(" there as ");
        type_and_size(&mut self.message, ty, Side::Driver);
        self.message.place(holder);
        if self.found == 1 {
            self.help(ty);
        }
    }

    const fn help(&mut self, ty: &Type) {
        match ty {
            Type::Record(union) if self.flatten => {
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
            if !fits(self.own, 0, &Type::Record(self.driver), self.flatten) {
                self.leaf(self.driver, &Type::Record(self.driver), 0);
            }
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
        assert_eq!(complaints(narrow, driver, true), [""; 0]);
        let short = layout("M", 8, &[field("data", 0, Type::Array(bytes, 7))]);
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
    fn the_name_of_a_field_is_part_of_a_layout() {
        let one = layout("A", 4, &[field("status", 0, U32)]);
        let other = layout("B", 4, &[field("paramsSize", 0, U32)]);
        assert!(!same_layout(one, other));
        assert!(same_layout(one, layout("B", 4, &[field("status", 0, U32)])));
    }
}
