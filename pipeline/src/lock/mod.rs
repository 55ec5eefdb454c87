//! The lock: facts of many tags, as text, written by machine and reviewed by people.
//!
//! One file per surface and header, at the header's own path. An item is written once with its
//! first layout; each later change is an event under it, named by the tag that made it. A tag that
//! changes nothing adds one line to the list of tags and touches nothing else.
//!
//! [`Lock`] is the plain data; `text` is the format; `folder` reads and writes files; `at_tag` reads one
//! tag alone.

mod at_tag;
mod folder;
mod text;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use at_tag::{no_tag, read_changed, read_facts, read_facts_with, read_numbers};
pub use folder::{
    Names, Part, exists, families, folder, folder_name, names_of_value, read, read_at,
    read_closure, read_names, read_part, read_part_at, read_tags, write,
};

use crate::model::{
    Alias, BitRange, Call, CallParams, Constant, Enum, Facts, Field, Record, RecordKind, Source,
    Surface,
};
use crate::tag::Tag;

/// Every locked fact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    /// In version order.
    pub tags: Vec<LockedTag>,
    /// By surface, then by the header's path.
    pub headers: BTreeMap<(String, String), Header>,
}

/// A tag and the identity of the headers its facts were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedTag {
    /// The driver version.
    pub tag: Tag,
    /// Digest over the paths and contents of every header read: equal digests, equal facts.
    pub headers: String,
}

/// What one header declares, over all tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// By kind and name.
    pub items: BTreeMap<(ItemKind, String), History>,
}

/// What sort of thing an item is; the same name may be one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKind {
    /// A struct or union.
    Record,
    /// A named enum.
    Enum,
    /// A typedef.
    Alias,
    /// What a call takes.
    Call,
    /// An integer constant or a bit range.
    Constant,
}

/// The states of one item in tag order: each holds from its tag until the next begins.
pub type History = Vec<State>;

/// What holds from a tag on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Index into [`Lock::tags`].
    pub from: usize,
    /// `None` where the item is gone.
    pub value: Option<Placed>,
}

/// A fact and its line in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The fact.
    pub fact: Arc<Fact>,
    /// Line in the header at that tag.
    pub line: u32,
}

/// A fact without its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The layout of a struct or union.
    Record {
        /// Struct or union.
        kind: RecordKind,
        /// Bytes.
        size: u64,
        /// Bytes.
        align: u64,
        /// In the order of the declaration.
        fields: Arc<[Field]>,
    },
    /// A named enum.
    Enum {
        /// Bytes.
        size: u64,
        /// By name.
        variants: BTreeMap<String, i128>,
    },
    /// A typedef.
    Alias {
        /// What it stands for.
        ty: String,
        /// Bytes.
        size: u64,
    },
    /// What a call takes.
    Call(CallParams),
    /// An integer constant.
    Constant(i128),
    /// Bits `high:low`.
    BitRange(i64, i64),
}

/// The state that holds at a tag.
pub fn state_at(history: &[State], tag: usize) -> Option<&Placed> {
    let after = history.partition_point(|state| state.from <= tag);
    history.get(after.checked_sub(1)?)?.value.as_ref()
}

impl Lock {
    /// Index of a tag.
    pub fn tag_index(&self, tag: &Tag) -> Option<usize> {
        self.tags.binary_search_by(|t| t.tag.cmp(tag)).ok()
    }

    /// The facts of one locked tag.
    pub fn facts(&self, tag: &Tag) -> Option<Facts> {
        let at = self.tag_index(tag)?;
        let mut surfaces: BTreeMap<String, Surface> = BTreeMap::new();
        for ((surface, path), header) in &self.headers {
            let path: Arc<str> = path.as_str().into();
            let surface = surfaces.entry(surface.clone()).or_default();
            for ((_, name), history) in &header.items {
                if let Some(placed) = state_at(history, at) {
                    let source = Source { path: path.clone(), line: placed.line };
                    add(surface, name, &placed.fact, source);
                }
            }
        }
        surfaces.retain(|_, surface| *surface != Surface::default());
        Some(Facts { tag: tag.clone(), surfaces })
    }

    /// Takes in the facts of a tag, replacing those it may have had.
    pub fn insert(&mut self, facts: &Facts, headers: String) {
        self.remove(&facts.tag);
        let (at, last) = self.insert_tag(&facts.tag, headers);
        let mut new = by_header(facts);
        for (surface, path) in new.keys() {
            self.headers.entry(((*surface).to_owned(), (*path).to_owned())).or_default();
        }
        for ((surface, path), header) in &mut self.headers {
            let found = new.remove(&(surface.as_str(), path.as_str())).unwrap_or_default();
            header.insert(found, at, last);
        }
    }

    /// Takes in the facts of a tag as `insert` does. That is quick where the tag comes behind all
    /// others and `before`, which the lock has, is what it says of the last: then what both tags
    /// have alike is not looked at.
    pub fn insert_after(&mut self, before: &Facts, facts: &Facts, headers: String) {
        let has_headers_of = |last: &LockedTag| {
            let at = self.tag_index(&before.tag);
            at.is_some_and(|at| self.tags[at].headers == last.headers) && last.tag < facts.tag
        };
        if !self.tags.last().is_some_and(has_headers_of) {
            return self.insert(facts, headers);
        }
        let (at, _) = self.insert_tag(&facts.tag, headers);
        let nothing = Surface::default();
        let names = before.surfaces.keys().chain(facts.surfaces.keys());
        for surface in names.collect::<BTreeSet<_>>() {
            let before = before.surfaces.get(surface).unwrap_or(&nothing);
            let now = facts.surfaces.get(surface).unwrap_or(&nothing);
            let (gone, come) = changes(before, now);
            let gone = gone.into_iter().map(|found| (found, None));
            let come = come.into_iter().map(|found| (found, Some(found.1.placed())));
            // What goes first may be the same item: what comes has the last word then.
            for ((name, item), value) in gone.chain(come) {
                let header = (surface.clone(), item.source().path.to_string());
                let items = &mut self.headers.entry(header).or_default().items;
                let history = items.entry((item.kind(), name.to_owned())).or_default();
                history.retain(|state| state.from != at);
                history.push(State { from: at, value });
                normalise(history);
            }
        }
    }

    /// Takes in a tag whose headers are those of `other`, which the lock has.
    ///
    /// False when it has no such tag.
    pub fn insert_same(&mut self, tag: &Tag, other: &Tag) -> bool {
        if tag != other {
            self.remove(tag);
        }
        let Some(other) = self.tag_index(other) else { return false };
        if self.tags[other].tag == *tag {
            return true;
        }
        let headers = self.tags[other].headers.clone();
        let (at, last) = self.insert_tag(tag, headers);
        let other = if at <= other { other + 1 } else { other };
        // What held before `at` goes on holding, and that is what is wanted mostly.
        if last && other + 1 == at {
            return true;
        }
        for header in self.headers.values_mut() {
            for history in header.items.values_mut() {
                // The history does not know yet of the tag that was put in.
                let before = if other > at { other - 1 } else { other };
                let value = state_at(history, before).cloned();
                insert_state(history, at, last, value);
            }
        }
        true
    }

    /// Makes room in the list of tags: the index, and whether it is the last.
    fn insert_tag(&mut self, tag: &Tag, headers: String) -> (usize, bool) {
        let at = self.tags.partition_point(|t| t.tag < *tag);
        let last = at == self.tags.len();
        self.tags.insert(at, LockedTag { tag: tag.clone(), headers });
        (at, last)
    }

    /// Forgets a tag and all that only it had.
    pub fn remove(&mut self, tag: &Tag) {
        let Some(at) = self.tag_index(tag) else { return };
        self.tags.remove(at);
        for header in self.headers.values_mut() {
            for history in header.items.values_mut() {
                remove_state(history, at, self.tags.len());
            }
            header.items.retain(|_, history| !history.is_empty());
        }
        self.headers.retain(|_, header| !header.items.is_empty());
    }
}

impl Header {
    /// Takes in what a tag declares: `found` is sorted as the items are.
    fn insert(&mut self, found: Vec<Found<'_>>, at: usize, last: bool) {
        let mut found = found.into_iter().peekable();
        let mut new = Vec::new();
        for ((kind, name), history) in &mut self.items {
            let here = loop {
                match found.peek().map(|f| (f.1.kind(), f.0).cmp(&(*kind, name))) {
                    Some(Ordering::Less) => new.extend(found.next()),
                    Some(Ordering::Equal) => break found.next(),
                    _ => break None,
                }
            };
            // Most of a driver stays as it is from one tag to the next.
            let now = history.last().and_then(|state| state.value.as_ref());
            let same = match (&here, now) {
                (Some((_, item)), Some(placed)) => item.is(placed),
                (None, None) => true,
                _ => false,
            };
            if !(last && same) {
                insert_state(history, at, last, here.map(|(_, item)| item.placed()));
            }
        }
        new.extend(found);
        for (name, item) in new {
            let mut history = History::new();
            insert_state(&mut history, at, last, Some(item.placed()));
            self.items.insert((item.kind(), name.to_owned()), history);
        }
    }
}

/// Puts `value` at index `at`; what held at later tags goes on holding there.
fn insert_state(history: &mut History, at: usize, last: bool, value: Option<Placed>) {
    let next = state_at(history, at).cloned();
    for state in history.iter_mut().filter(|state| state.from >= at) {
        state.from += 1;
    }
    let place = history.partition_point(|state| state.from < at);
    history.insert(place, State { from: at, value });
    let taken = history.get(place + 1).is_some_and(|state| state.from == at + 1);
    if !last && !taken {
        history.insert(place + 1, State { from: at + 1, value: next });
    }
    normalise(history);
}

fn remove_state(history: &mut History, at: usize, count: usize) {
    let next = state_at(history, at + 1).cloned();
    history.retain(|state| state.from != at && state.from != at + 1);
    for state in history.iter_mut().filter(|state| state.from > at) {
        state.from -= 1;
    }
    if at < count {
        let place = history.partition_point(|state| state.from < at);
        history.insert(place, State { from: at, value: next });
    }
    normalise(history);
}

/// Drops states that say again what holds already.
fn normalise(history: &mut History) {
    history.dedup_by(|later, earlier| later.value == earlier.value);
    if history.first().is_some_and(|state| state.value.is_none()) {
        history.remove(0);
    }
}

/// An item of the model where it lies.
#[derive(Clone, Copy)]
enum Item<'f> {
    Record(&'f Record),
    Enum(&'f Enum),
    Alias(&'f Alias),
    Call(&'f Call),
    Constant(&'f Constant),
    BitRange(&'f BitRange),
}

impl<'f> Item<'f> {
    fn kind(self) -> ItemKind {
        match self {
            Item::Record(_) => ItemKind::Record,
            Item::Enum(_) => ItemKind::Enum,
            Item::Alias(_) => ItemKind::Alias,
            Item::Call(_) => ItemKind::Call,
            Item::Constant(_) | Item::BitRange(_) => ItemKind::Constant,
        }
    }

    fn source(self) -> &'f Source {
        match self {
            Item::Record(r) => &r.source,
            Item::Enum(e) => &e.source,
            Item::Alias(a) => &a.source,
            Item::Call(c) => &c.source,
            Item::Constant(c) => &c.source,
            Item::BitRange(b) => &b.source,
        }
    }

    fn fact(self) -> Fact {
        match self {
            Item::Record(r) => {
                let (kind, size, align, fields) = (r.kind, r.size, r.align, r.fields.clone());
                Fact::Record { kind, size, align, fields }
            }
            Item::Enum(e) => Fact::Enum { size: e.size, variants: e.variants.clone() },
            Item::Alias(a) => Fact::Alias { ty: a.ty.clone(), size: a.size },
            Item::Call(c) => Fact::Call(c.takes.clone()),
            Item::Constant(c) => Fact::Constant(c.value),
            Item::BitRange(b) => Fact::BitRange(b.high, b.low),
        }
    }

    /// Whether the lock says the same.
    fn is(self, placed: &Placed) -> bool {
        self.source().line == placed.line
            && match (self, &*placed.fact) {
                (Item::Record(r), Fact::Record { kind, size, align, fields }) => {
                    (r.kind, r.size, r.align) == (*kind, *size, *align) && r.fields == *fields
                }
                (Item::Enum(e), Fact::Enum { size, variants }) => {
                    e.size == *size && e.variants == *variants
                }
                (Item::Alias(a), Fact::Alias { ty, size }) => a.ty == *ty && a.size == *size,
                (Item::Call(c), Fact::Call(takes)) => c.takes == *takes,
                (Item::Constant(c), Fact::Constant(value)) => c.value == *value,
                (Item::BitRange(b), Fact::BitRange(high, low)) => (b.high, b.low) == (*high, *low),
                _ => false,
            }
    }

    fn placed(self) -> Placed {
        Placed { fact: Arc::new(self.fact()), line: self.source().line }
    }
}

/// An item with its name.
type Found<'f> = (&'f str, Item<'f>);

/// The facts of a tag, sorted into the headers that declare them; in a header, by kind and name.
fn by_header(facts: &Facts) -> HashMap<(&str, &str), Vec<Found<'_>>> {
    let mut headers: HashMap<(&str, &str), Vec<Found<'_>>> = HashMap::new();
    for (name, surface) in &facts.surfaces {
        // A surface's items share the paths they point to, and comparing those is quick.
        let mut by_path: HashMap<*const u8, (&str, Vec<Found<'_>>)> = HashMap::new();
        for (name, item) in found(surface) {
            let path = &item.source().path;
            let of_path = by_path.entry(path.as_ptr());
            of_path.or_insert_with(|| (path, Vec::new())).1.push((name, item));
        }
        for (path, found) in by_path.into_values() {
            headers.entry((name, path)).or_default().extend(found);
        }
    }
    // A bit range may stand between the constants.
    headers.values_mut().for_each(|found| found.sort_by_key(|(name, item)| (item.kind(), *name)));
    headers
}

fn found(surface: &Surface) -> impl Iterator<Item = Found<'_>> {
    let Surface { records, aliases, enums, constants, bit_ranges, calls } = surface;
    (records.iter().map(|(name, r)| (name, Item::Record(r))))
        .chain(enums.iter().map(|(name, e)| (name, Item::Enum(e))))
        .chain(aliases.iter().map(|(name, a)| (name, Item::Alias(a))))
        .chain(calls.iter().map(|(name, c)| (name, Item::Call(c))))
        .chain(constants.iter().map(|(name, c)| (name, Item::Constant(c))))
        .chain(bit_ranges.iter().map(|(name, b)| (name, Item::BitRange(b))))
        .map(|(name, item)| (name.as_str(), item))
}

/// What two tags do not have alike: the items of the first, and those of the second.
fn changes<'f>(before: &'f Surface, now: &'f Surface) -> (Vec<Found<'f>>, Vec<Found<'f>>) {
    let mut changes = (Vec::new(), Vec::new());
    let found = &mut changes;
    unlike(&before.records, &now.records, Item::Record, found);
    unlike(&before.enums, &now.enums, Item::Enum, found);
    unlike(&before.aliases, &now.aliases, Item::Alias, found);
    unlike(&before.calls, &now.calls, Item::Call, found);
    unlike(&before.constants, &now.constants, Item::Constant, found);
    unlike(&before.bit_ranges, &now.bit_ranges, Item::BitRange, found);
    changes
}

fn unlike<'f, T: PartialEq>(
    before: &'f BTreeMap<String, T>,
    now: &'f BTreeMap<String, T>,
    item: fn(&'f T) -> Item<'f>,
    (gone, come): &mut (Vec<Found<'f>>, Vec<Found<'f>>),
) {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    loop {
        let order = match (before.peek(), now.peek()) {
            (Some(a), Some(b)) => a.0.cmp(b.0),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let a = if order.is_le() { before.next() } else { None };
        let b = if order.is_ge() { now.next() } else { None };
        if a.map(|a| a.1) != b.map(|b| b.1) {
            gone.extend(a.map(|(name, value)| (name.as_str(), item(value))));
            come.extend(b.map(|(name, value)| (name.as_str(), item(value))));
        }
    }
}

/// Adds a fact to a surface of the model.
pub fn add(surface: &mut Surface, name: &str, fact: &Fact, source: Source) {
    let name = name.to_owned();
    match fact {
        Fact::Record { kind, size, align, fields } => {
            let (kind, size, align, fields) = (*kind, *size, *align, fields.clone());
            surface.records.insert(name, Record { kind, size, align, source, fields });
        }
        Fact::Enum { size, variants } => {
            let (size, variants) = (*size, variants.clone());
            surface.enums.insert(name, Enum { size, source, variants });
        }
        Fact::Alias { ty, size } => {
            surface.aliases.insert(name, Alias { ty: ty.clone(), size: *size, source });
        }
        Fact::Call(takes) => {
            surface.calls.insert(name, Call { takes: takes.clone(), source });
        }
        Fact::Constant(value) => {
            surface.constants.insert(name, Constant { value: *value, source });
        }
        Fact::BitRange(high, low) => {
            surface.bit_ranges.insert(name, BitRange { high: *high, low: *low, source });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::{Access, CallKind, Caller, Embedded, ParamSource};

    fn facts(tag: &str, constants: &[(&str, i128, u32)]) -> Facts {
        let mut surface = Surface::default();
        for (name, value, line) in constants {
            let source = Source { path: "a.h".into(), line: *line };
            add(&mut surface, name, &Fact::Constant(*value), source);
        }
        let surfaces = BTreeMap::from([("rm".to_owned(), surface)]);
        Facts { tag: tag.parse().unwrap(), surfaces }
    }

    /// Same facts whatever the order in which the tags came.
    #[test]
    fn order_of_insertion_does_not_matter() {
        let all = [
            facts("1.1", &[("A", 1, 1), ("B", 2, 2)]),
            facts("1.2", &[("A", 1, 1), ("C", 9, 2), ("B", 2, 3)]),
            facts("1.3", &[("A", 1, 1), ("B", 3, 2)]),
            facts("1.4", &[("A", 1, 1), ("B", 2, 2)]),
        ];
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];
        let locks = orders.map(|order| {
            let mut lock = Lock::default();
            for i in order {
                lock.insert(&all[i], format!("{i}"));
            }
            lock
        });
        // One after the other, with what the tag before had.
        let mut after = Lock::default();
        after.insert(&all[0], "0".to_owned());
        for i in 1..all.len() {
            after.insert_after(&all[i - 1], &all[i], format!("{i}"));
        }
        assert_eq!(after, locks[0]);
        for lock in &locks {
            assert_eq!(*lock, locks[0]);
            for facts in &all {
                assert_eq!(lock.facts(&facts.tag).as_ref(), Some(facts));
            }
        }
    }

    /// Taking in what changed alone gives the same lock: items that come, go, come back, move to
    /// another header and become something else.
    #[test]
    fn what_stays_need_not_be_looked_at() {
        let of = |tag: &str, items: &[(&str, &str, Fact, u32)]| {
            let mut facts = facts(tag, &[]);
            for (path, name, fact, line) in items {
                let source = Source { path: (*path).into(), line: *line };
                add(facts.surfaces.entry("rm".to_owned()).or_default(), name, fact, source);
            }
            facts
        };
        let alias = |ty: &str| Fact::Alias { ty: ty.to_owned(), size: 4 };
        let all = [
            of("1.1", &[("a.h", "A", Fact::Constant(1), 1), ("a.h", "B", Fact::Constant(2), 2)]),
            of("1.2", &[("b.h", "A", Fact::Constant(1), 1), ("a.h", "B", Fact::BitRange(2, 0), 2)]),
            of("1.3", &[("b.h", "A", Fact::Constant(1), 9), ("a.h", "A", alias("int"), 3)]),
            of("1.4", &[]),
            of("1.5", &[("a.h", "A", alias("long"), 3), ("a.h", "B", Fact::Constant(2), 2)]),
            of("1.7", &[("a.h", "A", Fact::Constant(1), 1), ("a.h", "B", Fact::Constant(2), 2)]),
        ];
        let digest = |facts: &Facts| facts.tag.to_string();
        let (mut whole, mut after) = (Lock::default(), Lock::default());
        for (i, facts) in all.iter().enumerate() {
            whole.insert(facts, digest(facts));
            after.insert_after(&all[i.saturating_sub(1)], facts, digest(facts));
            assert_eq!(after, whole, "{}", facts.tag);
        }
        // Those that are not the last, or do not come behind it, are no help and do no harm.
        for (before, tag) in [(0, "1.8"), (5, "1.6"), (4, "1.9")] {
            let facts = of(tag, &[("a.h", "C", Fact::Constant(5), 1)]);
            whole.insert(&facts, digest(&facts));
            after.insert_after(&all[before], &facts, digest(&facts));
            assert_eq!(after, whole, "{tag}");
        }
    }

    /// A tag with another's headers is the same whether its facts are given or not.
    #[test]
    fn same_headers_need_no_facts() {
        let all = [
            facts("1.1", &[("A", 1, 1), ("B", 2, 2)]),
            facts("1.3", &[("A", 1, 1), ("C", 9, 2)]),
            facts("1.5", &[("B", 3, 2)]),
        ];
        for (tag, same) in [
            ("1.2", 0),
            ("1.2", 1),
            ("1.4", 0),
            ("1.4", 2),
            ("1.6", 2),
            ("1.6", 0),
            ("1.0", 1),
            ("1.3", 0),
        ] {
            let (mut copied, mut inserted) = (Lock::default(), Lock::default());
            for facts in &all {
                copied.insert(facts, facts.tag.to_string());
                inserted.insert(facts, facts.tag.to_string());
            }
            let tag: Tag = tag.parse().unwrap();
            assert!(copied.insert_same(&tag, &all[same].tag));
            let facts = Facts { tag, surfaces: all[same].surfaces.clone() };
            inserted.insert(&facts, all[same].tag.to_string());
            assert_eq!(copied, inserted, "{} as {}", facts.tag, all[same].tag);
        }
        assert!(!Lock::default().insert_same(&all[0].tag, &all[1].tag));
    }

    /// All that the driver's tables say of a call is written, read back, and compared.
    #[test]
    fn what_is_said_of_a_call() {
        let rights = vec!["DEBUG".to_owned(), "NICE".to_owned()];
        let pointer = Embedded {
            field: "list".to_owned(),
            count: "count".to_owned(),
            unit: "4".to_owned(),
            direction: "in".to_owned(),
        };
        let whole = CallParams {
            optional: true,
            checked: true,
            differs: Some("none".to_owned()),
            same_as: Some("NVT_OTHER".to_owned()),
            access: Some(Access { caller: Caller::Root, rights, test_only: true }),
            pointers: vec![pointer],
            ..CallParams::new(CallKind::Command, ParamSource::Table, Some("NVT_P".to_owned()))
        };
        let of = |takes: &CallParams| {
            let mut facts = facts("1.1", &[]);
            let source = Source { path: "a.h".into(), line: 7 };
            let calls = facts.surfaces.entry(crate::model::CALLS.to_owned()).or_default();
            add(calls, "NVT_CALL", &Fact::Call(takes.clone()), source);
            facts
        };
        let lock = |takes: &CallParams| {
            let mut lock = Lock::default();
            lock.insert(&of(takes), "1".to_owned());
            lock
        };
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &lock(&whole)).unwrap();
        assert_eq!(read(folder.path()).unwrap().0, lock(&whole));

        let alike = |other: &CallParams| crate::compare::facts(&of(&whole), &of(other)).is_empty();
        assert!(alike(&whole));
        let said = |alter: fn(&mut CallParams)| {
            let mut other = whole.clone();
            alter(&mut other);
            other
        };
        for other in [
            said(|it| it.params = None),
            said(|it| it.optional = false),
            said(|it| it.checked = false),
            said(|it| it.differs = None),
            said(|it| it.same_as = None),
            said(|it| it.access = None),
            said(|it| it.access.as_mut().unwrap().caller = Caller::User),
            said(|it| drop(it.access.as_mut().unwrap().rights.pop())),
            said(|it| it.access.as_mut().unwrap().test_only = false),
            said(|it| it.pointers.clear()),
        ] {
            assert!(!alike(&other), "{other:?}");
        }

        let file = folder.path().join("calls/a.h.lock");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(" for:root+DEBUG+NICE+test "), "{text}");
        std::fs::write(&file, text.replace("for:root", "for:noone")).unwrap();
        let complaint = read(folder.path()).unwrap_err().to_string();
        assert!(
            complaint.contains("`noone+DEBUG+NICE+test` does not begin with a caller"),
            "{complaint}"
        );
    }

    #[test]
    fn removing_undoes_inserting() {
        let mut lock = Lock::default();
        lock.insert(&facts("1.1", &[("A", 1, 1)]), String::new());
        lock.insert(&facts("1.3", &[("A", 3, 1)]), String::new());
        let before = lock.clone();
        for tag in ["1.0", "1.2", "1.4"] {
            lock.insert(&facts(tag, &[("A", 7, 9), ("B", 1, 1)]), String::new());
            lock.remove(&tag.parse().unwrap());
            assert_eq!(lock, before, "{tag}");
        }
    }
}
