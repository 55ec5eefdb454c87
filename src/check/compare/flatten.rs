//! Flatten: leaf by leaf, with the path to each that is wrong.

use super::super::message::{Message, Side};
use super::super::{Field, Layout, Type};
use super::leaves::{fits, leaf_at};
use super::text::{LISTED, and_more, bit_fields, type_and_size, wanted};
use super::types::{Mode, field_at, is_record, is_union, up_to};
use super::variants::{UncoveredBytes, any_variant};

/// Nesting that a message can spell out; a deeper path is cut.
pub(super) const DEPTH: usize = 12;

/// The part of a path that one step down takes.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) index: Option<u32>,
}

/// A walk over the driver's leaves which start in a range of bytes, collecting what the user's
/// struct lacks there.
pub(super) struct Walk<'a> {
    pub(super) own: &'static Layout,
    pub(super) driver: &'static Layout,
    /// The user's field that the range belongs to, or none for the gaps between fields.
    pub(super) name: Option<&'a str>,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) mode: Mode,
    pub(super) path: [Step; DEPTH],
    pub(super) depth: usize,
    pub(super) found: u32,
    pub(super) message: Message,
}

impl<'a> Walk<'a> {
    pub(super) const fn new(
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
    pub(super) const fn strict(&mut self, field: &'static Field) {
        self.mode = Mode::STRICT;
        self.field(self.driver, field, 0);
    }

    /// Walks over the fields of a driver's struct which have a byte in the range.
    pub(super) const fn layout(&mut self, layout: &'static Layout, base: u32) {
        // The field that holds the first byte of the range may start before it.
        let mut index = up_to(layout, self.from.saturating_sub(base)).saturating_sub(1);
        while index < layout.fields.len() && base + layout.fields[index].offset < self.to {
            self.field(layout, &layout.fields[index], base);
            index += 1;
        }
    }

    pub(super) const fn field(
        &mut self,
        layout: &'static Layout,
        field: &'static Field,
        base: u32,
    ) {
        self.enter(Step { name: field.name, index: None });
        self.ty(layout, &field.ty, base + field.offset);
        self.leave();
    }

    pub(super) const fn enter(&mut self, step: Step) {
        if self.depth < DEPTH {
            self.path[self.depth] = step;
        }
        self.depth += 1;
    }

    pub(super) const fn leave(&mut self) {
        self.depth -= 1;
    }

    pub(super) const fn ty(&mut self, holder: &'static Layout, ty: &Type, at: u32) {
        let outside = at >= self.to || at + ty.size() <= self.from;
        if outside || fits(self.own, at, ty, self.mode) {
            return;
        }
        match ty {
            Type::Record(layout) if !is_union(layout) => self.layout(layout, at),
            Type::Record(union) if self.mode.flatten => match any_variant(self.own, at, union) {
                Err(Some(bare)) => self.uncovered(holder, &bare),
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
    pub(super) const fn leaf(&mut self, holder: &'static Layout, ty: &Type, at: u32) {
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
    pub(super) const fn uncovered(&mut self, holder: &'static Layout, bare: &UncoveredBytes) {
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
                // The padding of a record is not part of its type.
                Some(field) if is_record(&field.ty) => "\nhelp: spell its fields out, with",
                Some(_) => "\nhelp: put",
            });
            self.message.push(" `[u8; ");
            self.message.number(bare.count);
            self.message.push("]` there, or use bytes for the whole union");
        }
    }

    pub(super) const fn variant(&mut self, variant: &Field) {
        self.message.quoted(if variant.name.is_empty() { "(unnamed)" } else { variant.name });
    }

    /// Starts a report with what the user's struct has at an offset, if that is this walk's to
    /// report and the list is not full.
    pub(super) const fn begin(&mut self, at: u32, nothing: &str) -> bool {
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

    pub(super) const fn help(&mut self, ty: &Type) {
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

    pub(super) const fn spell_path(&mut self) {
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

pub(super) const fn flat_field(
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

pub(super) const fn missing_leaves(
    message: &mut Message,
    own: &'static Layout,
    driver: &'static Layout,
) {
    let mut walk = Walk::new(own, driver, "", 0, u32::MAX);
    walk.name = None;
    walk.root();
    and_more(&mut walk.message, walk.found);
    *message = walk.message;
}

impl Walk<'_> {
    /// Walks over the whole of the driver's layout.
    pub(super) const fn root(&mut self) {
        if is_union(self.driver) {
            self.ty(self.driver, &Type::Record(self.driver), 0);
        } else {
            self.layout(self.driver, 0);
        }
    }
}
