//! Flatten: whether the user's fields have the driver's names, wherever either side nests them.
//!
//! Leaves are compared by kind and offset, so two of one kind could change places unseen. A leaf's name is that
//! of the driver's field that starts there: the leaf, or a record or union around it that starts there as well.
//! A user's struct inside another has no name of its own in the driver, unless one is given for it.

use super::super::message::Message;
use super::super::{Field, Layout, Type, same};
use super::How;
use super::text::{driver_field, subject};
use super::types::{innermost, is_byte, is_record, is_union, same_layout};

/// What the driver has at an offset, and whether that has a name.
#[derive(Clone, Copy)]
struct Place {
    at: u32,
    want: &'static str,
    /// The leaf that the byte is of; the first one, in a union.
    leaf: Option<Leaf>,
    in_union: bool,
    named: bool,
}

/// A field of the driver's that is no record, and the record that has it.
#[derive(Clone, Copy)]
struct Leaf {
    holder: &'static Layout,
    field: Field,
}

impl Place {
    const fn of(driver: &'static Layout, at: u32, want: &'static str) -> Self {
        let mut place = Self { at, want, leaf: None, in_union: false, named: false };
        place.layout(driver, 0);
        place
    }

    const fn layout(&mut self, layout: &'static Layout, base: u32) {
        self.in_union = self.in_union || is_union(layout);
        let mut index = 0;
        while index < layout.fields.len() {
            let field = &layout.fields[index];
            let start = base + field.offset;
            if start <= self.at && self.at - start < field.ty.size() {
                self.named = self.named || (start == self.at && same(field.name, self.want));
                self.ty(layout, field, &field.ty, start);
            }
            index += 1;
        }
    }

    const fn ty(&mut self, holder: &'static Layout, field: &Field, ty: &Type, start: u32) {
        match ty {
            Type::Record(layout) => self.layout(layout, start),
            Type::Array(element, _) if is_record(element) => {
                let size = element.size();
                self.ty(holder, field, element, start + (self.at - start) / size * size);
            }
            _ if self.leaf.is_none() => self.leaf = Some(Leaf { holder, field: *field }),
            _ => {}
        }
    }
}

/// Compares the names of one of the user's fields, and of what is in it, with the driver's.
pub(super) const fn names(
    message: &mut Message,
    own: &'static Layout,
    driver: &'static Layout,
    how: &How,
    index: usize,
    name: &str,
) {
    let How::Flatten { explicit, by_offset } = *how else { return };
    let field = &own.fields[index];
    let mut check = Check { own, driver, name, by_offset, found: Message::new() };
    let is_explicit = explicit[index];
    if is_explicit || !(by_offset || is_record(&field.ty)) {
        check.leaf(field, field.offset, "");
    }
    if !by_offset && is_record(&field.ty) && check.found.is_empty() {
        check.inside(&field.ty, field.offset);
    }
    *message = check.found;
}

struct Check<'a> {
    own: &'static Layout,
    driver: &'static Layout,
    /// What the user calls the field.
    name: &'a str,
    by_offset: bool,
    found: Message,
}

impl Check<'_> {
    /// The leaves of a record, or of an array of records.
    const fn inside(&mut self, ty: &Type, at: u32) {
        match ty {
            Type::Record(layout) if !has_record(self.driver, 0, at, layout) => {
                let mut index = 0;
                while index < layout.fields.len() && self.found.is_empty() {
                    let field = &layout.fields[index];
                    if is_record(&field.ty) {
                        self.inside(&field.ty, at + field.offset);
                    } else {
                        self.leaf(field, at + field.offset, field.name);
                    }
                    index += 1;
                }
            }
            Type::Array(element, count) => {
                let mut index = 0;
                while index < *count && self.found.is_empty() {
                    self.inside(element, at + index * element.size());
                    index += 1;
                }
            }
            _ => {}
        }
    }

    /// One name at one offset; `inner` is what the message names inside the field.
    const fn leaf(&mut self, field: &Field, at: u32, inner: &str) {
        let want = field.name;
        let is_bytes = is_byte(&innermost(&field.ty));
        let place = Place::of(self.driver, at, want);
        let padding = matches!(want.as_bytes(), [b'_', ..]);
        match place.leaf {
            _ if place.named => {}
            // In a union it is what another variant has there, or bytes that nobody has looked into.
            Some(_) if padding && place.in_union => {}
            Some(_) if place.in_union && is_bytes && offset_of(self.driver, want).is_none() => {}
            None if padding => {}
            Some(leaf) if padding => {
                self.begin(inner);
                self.found.push(" says by its name that it is padding, but at offset ");
                self.found.number(at);
                self.there(&leaf);
                self.found.push("\nhelp: start no field with `_` that the driver reads");
                self.or_meant(&leaf);
            }
            Some(leaf) => {
                self.begin(inner);
                self.found.push(" is at offset ");
                self.found.number(at);
                self.found.push(", but there");
                self.there(&leaf);
                match offset_of(self.driver, want) {
                    Some(offset) => {
                        self.found.push("\nhelp: the driver has ");
                        self.found.quoted(want);
                        self.found.push(" at offset ");
                        self.found.number(offset);
                    }
                    None => {
                        self.found.push("\nhelp: it has no ");
                        self.found.quoted(want);
                        self.or_meant(&leaf);
                    }
                }
            }
            None => {
                self.begin(inner);
                self.found.push(" is at offset ");
                self.found.number(at);
                self.found.push(", but there the driver's ");
                self.found.push(self.driver.name);
                self.found.push(" has padding");
                self.found.place(self.driver);
                self.found.push("\nhelp: remove it, or start its name with `_`");
            }
        }
    }

    const fn begin(&mut self, inner: &str) {
        subject(&mut self.found, self.own, self.name);
        if !inner.is_empty() {
            self.found.push(".");
            self.found.push(inner);
        }
    }

    const fn there(&mut self, leaf: &Leaf) {
        self.found.push(" the driver has ");
        driver_field(&mut self.found, leaf.holder, &leaf.field);
        self.found.place(leaf.holder);
    }

    const fn or_meant(&mut self, leaf: &Leaf) {
        self.found.push("; say #[nvproxy(name = \"");
        self.found.push(leaf.field.name);
        self.found.push("\")] if that is meant");
        if !self.by_offset {
            self.found
                .push(", or `flatten = \"by_offset\"` to compare no names but those you give");
        }
    }
}

/// Whether the driver has a record at an offset that is the user's as well, names and all.
const fn has_record(driver: &'static Layout, base: u32, at: u32, record: &'static Layout) -> bool {
    if base == at && same_layout(driver, record) {
        return true;
    }
    let mut index = 0;
    while index < driver.fields.len() {
        let field = &driver.fields[index];
        let start = base + field.offset;
        if start <= at && at - start < field.ty.size() {
            if let Type::Record(inner) = innermost(&field.ty) {
                let before = match (at - start).checked_div(inner.size) {
                    Some(index) => index * inner.size,
                    None => 0,
                };
                let start = start + before;
                if has_record(inner, start, at, record) {
                    return true;
                }
            }
        }
        index += 1;
    }
    false
}

/// Where the driver has a name, however deep; the first one.
const fn offset_of(driver: &'static Layout, want: &str) -> Option<u32> {
    let mut index = 0;
    while index < driver.fields.len() {
        let field = &driver.fields[index];
        if same(field.name, want) {
            return Some(field.offset);
        }
        if let Type::Record(inner) = innermost(&field.ty) {
            if let Some(offset) = offset_of(inner, want) {
                return Some(field.offset + offset);
            }
        }
        index += 1;
    }
    None
}
