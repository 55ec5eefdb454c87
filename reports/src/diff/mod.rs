//! What changed between two tags: plain data, and its text for people.
//!
//! A diff is a function of the facts of two tags and of what their specs say of the calls; it reads
//! no files. Every change has a [`Class`]: whether fields moved, meanings changed, or neither
//! matters to a shim. The place of a declaration is shown, and is never a change itself.
//!
//! Diffs are symmetric ([`Diff::reversed`]), compose, and a tag does not differ from itself.
//!
//! ```text
//! scope     which names take part: the items' closure, or all
//! roles     which fields hold fds, pointers and handles
//! records   structs and unions, field by field
//! values    enums, typedefs, constants, bit ranges
//! calls     ioctls, commands and classes: number, parameters, roles
//! advice    what follows for a shim
//! text, markdown, html
//! ```

mod advice;
mod calls;
mod html;
mod markdown;
mod records;
mod roles;
mod scope;
mod text;
mod values;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

pub use advice::{Advice, advice};
pub use calls::{CallChange, CallState, commands_beside};
pub use html::html;
pub(crate) use html::html_body;
pub use markdown::markdown;
pub use records::{
    FieldChange, FieldState, Holder, Instead, RecordChange, RecordState, TypeChange,
};
pub use roles::Role;
pub use text::{scope_text, summary, summary_of, text};
pub use values::{EnumChange, EnumState, ValueChange, ValueState};

use calls::Calls;
use nvabi_pipeline::model::{Facts, Surface, split_array};
use nvabi_pipeline::parallel;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;

/// One side of a diff.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The facts of the tag: all, or at least those in the closure of both sides' specs.
    pub facts: &'a Facts,
    /// The spec of the tag's branch.
    pub spec: &'a Spec,
}

impl<'a> Side<'a> {
    /// Every name that a change can have.
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        let of_spec = self.spec.items_at(&self.facts.tag).map(|item| item.name.as_str());
        self.facts.names().chain(of_spec)
    }

    /// The names of what is called `name`: a typedef is what it stands for, too.
    pub fn called(self, name: &str) -> BTreeSet<&'a str> {
        let mut called: BTreeSet<&str> = self.names().filter(|known| *known == name).collect();
        let aliases = self.facts.surfaces.values().filter_map(|s| s.aliases.get(name));
        called.extend(aliases.map(|alias| split_array(&alias.ty).0));
        called
    }
}

/// What takes part in a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The calls of both specs, the types they need, and the constants the specs name.
    Items,
    /// Everything that the facts hold.
    All,
}

/// What a change means to a shim; the worst comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Fields moved, appeared or disappeared, a number names another call, or fewer callers may make it.
    Break,
    /// Nothing moved, but names, values or roles changed.
    Meaning,
    /// Nothing that worked stops working.
    Harmless,
}

/// Everything that differs between two tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// The first tag.
    #[serde(serialize_with = "as_text")]
    pub from: Tag,
    /// The second tag.
    #[serde(serialize_with = "as_text")]
    pub to: Tag,
    /// Ioctls, commands and classes.
    pub calls: Vec<CallChange>,
    /// Structs and unions.
    pub records: Vec<RecordChange>,
    /// Enums.
    pub enums: Vec<EnumChange>,
    /// Typedefs.
    pub aliases: Vec<ValueChange>,
    /// Integer constants.
    pub constants: Vec<ValueChange>,
    /// Bit ranges.
    pub bit_ranges: Vec<ValueChange>,
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// What is different between two sides.
pub fn diff(from: Side<'_>, to: Side<'_>, scope: Scope) -> Diff {
    let sides = Sides { from, to };
    let in_scope = calls::in_scope(&sides, scope);
    between(&sides, scope, &in_scope)
}

/// What is different in some names, what they take and what they hold; and how much is elsewhere.
///
/// A type brings the calls that take it only where none of them is among the names: who names a call says which
/// of them is used.
pub fn diff_of(from: Side<'_>, to: Side<'_>, names: &BTreeSet<&str>) -> (Diff, Counts) {
    let sides = Sides { from, to };
    let in_scope = calls::in_scope(&sides, Scope::All);
    let everything = between(&sides, Scope::All, &in_scope);
    let all = Counts::of(&everything);
    let found = everything.only(names, &calls::concerned(&in_scope, names));
    let elsewhere = all.without(Counts::of(&found));
    (found, elsewhere)
}

fn between(sides: &Sides<'_>, scope: Scope, in_scope: &[Calls; 2]) -> Diff {
    let names = scope::Names::new(sides, scope, in_scope);
    let ((enums, aliases, bit_ranges), records) = parallel::both(
        || {
            let (enums, aliases) = (values::enums(sides, &names), values::aliases(sides, &names));
            (enums, aliases, values::bit_ranges(sides, &names))
        },
        || records::compare(sides, &names, in_scope),
    );
    let (constants, calls) = parallel::both(
        || values::constants(sides, &names, &records),
        || calls::compare(sides, in_scope, &records),
    );
    let (from, to) = (sides.from.facts.tag.clone(), sides.to.facts.tag.clone());
    let found = Diff { from, to, calls, records, enums, aliases, constants, bit_ranges };
    found.sorted()
}

/// What a diff of some names compared, and what it left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// How many names: without `of`, calls that the specs name at either tag.
    pub items: usize,
    /// What was asked for; `None` for what the specs name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Asked>,
    /// Those that neither tag has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Changes outside of them and what they need; `None` where nobody counted.
    pub elsewhere: Option<Counts>,
}

/// What somebody compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Asked {
    /// One name, or the number of a call.
    For(String),
    /// The names in a crate, a package or a file: its path.
    In(String),
}

/// How many changes there are of each class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// See [`Class::Break`].
    pub breaks: usize,
    /// See [`Class::Meaning`].
    pub meanings: usize,
    /// See [`Class::Harmless`].
    pub harmless: usize,
}

impl Counts {
    /// Of a diff.
    pub fn of(diff: &Diff) -> Self {
        let [breaks, meanings, harmless] =
            [Class::Break, Class::Meaning, Class::Harmless].map(|class| diff.count(class));
        Self { breaks, meanings, harmless }
    }

    /// Of a diff of everything, those that a diff of some of it has not.
    pub fn without(self, part: Self) -> Self {
        Self {
            breaks: self.breaks.saturating_sub(part.breaks),
            meanings: self.meanings.saturating_sub(part.meanings),
            harmless: self.harmless.saturating_sub(part.harmless),
        }
    }

    /// Of all classes.
    pub fn total(self) -> usize {
        self.breaks + self.meanings + self.harmless
    }
}

/// How many calls the specs of both sides name.
pub fn item_count(from: Side<'_>, to: Side<'_>) -> usize {
    let keys = |side: Side<'_>| -> BTreeSet<_> {
        let items = side.spec.items.iter().filter(|item| item.holds_at(&side.facts.tag));
        items.map(|item| (item.kind, item.name.clone())).collect()
    };
    keys(from).union(&keys(to)).count()
}

impl Diff {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.classes().next().is_none()
    }

    /// How many changes are of a class. A record that only changed with one that it holds is
    /// counted with that one.
    pub fn count(&self, class: Class) -> usize {
        self.classes().filter(|found| *found == class).count()
    }

    fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        let records = self.records.iter().filter(|r| r.carried_by.is_empty()).map(|r| r.class);
        let values = self.aliases.iter().chain(&self.constants).chain(&self.bit_ranges);
        (self.calls.iter().map(|c| c.class).chain(records))
            .chain(self.enums.iter().map(|e| e.class))
            .chain(values.map(|v| v.class))
    }

    /// The diff from the second tag to the first.
    pub fn reversed(&self) -> Diff {
        let values = |list: &[ValueChange]| list.iter().map(ValueChange::reversed).collect();
        let reversed = Diff {
            from: self.to.clone(),
            to: self.from.clone(),
            calls: self.calls.iter().map(CallChange::reversed).collect(),
            records: self.records.iter().map(RecordChange::reversed).collect(),
            enums: self.enums.iter().map(EnumChange::reversed).collect(),
            aliases: values(&self.aliases),
            constants: values(&self.constants),
            bit_ranges: values(&self.bit_ranges),
        };
        reversed.sorted()
    }

    /// Leaves what concerns some things, under any of their names (see [`Side::called`]): what has one, holds
    /// one, or is taken by one; and `calls`.
    fn only(mut self, names: &BTreeSet<&str>, calls: &BTreeSet<&str>) -> Diff {
        let is = |of: &str| names.contains(of);
        let is_any = |of: [Option<&String>; 2]| of.into_iter().flatten().any(|of| is(of));
        let inside = |of: &str| is(of) || of.match_indices("::").any(|(at, _)| is(&of[..at]));
        let concerned: BTreeSet<String> = (self.calls.iter())
            .filter(|call| is_any([Some(&call.name), call.name_before.as_ref()]))
            .flat_map(|call| call.before.iter().chain(&call.after))
            .flat_map(|state| state.params.iter().cloned())
            .collect();
        self.calls.retain(|call| {
            let mut names = [Some(&call.name), call.name_before.as_ref()].into_iter().flatten();
            names.any(|name| calls.contains(name.as_str()))
        });
        self.records.retain(|record| {
            let names = [Some(&record.name), record.name_before.as_ref()];
            names.into_iter().flatten().any(|of| inside(of) || concerned.contains(of))
                || record.held_by.iter().any(|h| is(&h.record) || concerned.contains(&h.record))
                || record.calls.iter().any(|call| is(call))
        });
        self.enums.retain(|e| inside(&e.name) || e.enumerators.iter().any(|v| is(&v.name)));
        for list in [&mut self.aliases, &mut self.constants, &mut self.bit_ranges] {
            list.retain(|value| is(&value.name));
        }
        self
    }

    fn sorted(mut self) -> Self {
        self.calls.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        self.records.sort_by(|a, b| (&a.name, &a.surfaces).cmp(&(&b.name, &b.surfaces)));
        self.enums.sort_by(|a, b| (&a.name, &a.surfaces).cmp(&(&b.name, &b.surfaces)));
        for list in [&mut self.aliases, &mut self.constants, &mut self.bit_ranges] {
            list.sort_by(|a, b| (&a.name, &a.surfaces).cmp(&(&b.name, &b.surfaces)));
        }
        self
    }
}

/// Both sides of a diff.
struct Sides<'a> {
    from: Side<'a>,
    to: Side<'a>,
}

impl<'a> Sides<'a> {
    /// Both sides' view of each surface, by name.
    fn layers(&self) -> BTreeMap<&'a str, [Layer<'a>; 2]> {
        let (from, to) = (self.from.facts, self.to.facts);
        let names = from.surfaces.keys().chain(to.surfaces.keys());
        names.map(|name| (name.as_str(), [Layer::of(from, name), Layer::of(to, name)])).collect()
    }
}

/// A surface as one machine sees it: what it has otherwise than the first machine, over what the
/// first has.
#[derive(Clone, Copy)]
struct Layer<'a> {
    own: Option<&'a Surface>,
    base: Option<&'a Surface>,
}

impl<'a> Layer<'a> {
    fn of(facts: &'a Facts, name: &str) -> Self {
        let base = name.split_once('@').map(|(base, _)| base);
        Self { own: facts.surfaces.get(name), base: base.and_then(|base| facts.surfaces.get(base)) }
    }

    fn get<T>(self, map: Map<T>, name: &str) -> Option<&'a T> {
        let own = self.own.and_then(|surface| map(surface).get(name));
        own.or_else(|| self.base.and_then(|surface| map(surface).get(name)))
    }
}

/// One of the maps of a surface.
type Map<T> = fn(&Surface) -> &BTreeMap<String, T>;

/// The items of one kind that a surface has on either side, by name.
fn pairs<'a, T>(layers: [Layer<'a>; 2], map: Map<T>) -> Vec<(&'a str, [Option<&'a T>; 2])> {
    let items = |layer: Layer<'a>| layer.own.into_iter().flat_map(map);
    let [mut from, mut to] = layers.map(|layer| items(layer).peekable());
    let mut found = Vec::new();
    loop {
        let order = match (from.peek(), to.peek()) {
            (Some((x, _)), Some((y, _))) => x.cmp(y),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return found,
        };
        let x = if order.is_le() { from.next() } else { None };
        let y = if order.is_ge() { to.next() } else { None };
        let Some((name, _)) = x.or(y) else { return found };
        // What a surface does not say otherwise is as on the first machine.
        let states = [
            x.map(|(_, item)| item).or_else(|| layers[0].get(map, name)),
            y.map(|(_, item)| item).or_else(|| layers[1].get(map, name)),
        ];
        found.push((name.as_str(), states));
    }
}

/// A change that is the same in several surfaces is told once.
trait Merge {
    fn surfaces(&mut self) -> &mut Vec<String>;
    /// Whether the same changed, in the same way.
    fn same(&self, other: &Self) -> bool;
}

/// Adds a change found in a surface to those of the same name.
fn merge<T: Merge>(found: &mut Vec<T>, surface: &str, mut change: T) {
    match found.iter_mut().find(|other| other.same(&change)) {
        Some(other) => other.surfaces().push(surface.to_owned()),
        None => {
            change.surfaces().push(surface.to_owned());
            found.push(change);
        }
    }
}

#[cfg(test)]
mod tests;
