//! From names, specs and a lock to the tags that have the same of them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range as Indices;

use super::shapes::{Ids, Shapes};
use super::{
    ABSENT, CallersAt, Layout, One, OneAt, Part, Range, RequestedName, Set, SetAbi, Span, is_type,
    label, labels, runs,
};
use nvabi_pipeline::lock::{Fact, Lock, state_at};
use nvabi_pipeline::model::{Access, hex};
use nvabi_pipeline::spec::{Item, ItemKind, Spec, Surface};
use nvabi_pipeline::tag::Tag;

use crate::callers::{Callers, Run};

/// The ABI of some names at every tag of a lock.
pub struct Abis<'a> {
    pub(super) lock: &'a Lock,
    specs: &'a [Spec],
    shapes: Shapes<'a>,
    callers: Callers<'a>,
    /// For each tag of the lock, the index of its spec.
    spec_of: Vec<Option<usize>>,
    /// Orders of surfaces, as specs have them, each with the tags of these specs.
    orders: Vec<(Vec<&'a str>, Vec<usize>)>,
    pub(super) names: Vec<Row<'a>>,
    /// What `row` found.
    rows: HashMap<(NameKind, String), Ids>,
}

/// The ABI of one name.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    kind: NameKind,
    /// One for each tag.
    pub(super) ids: Vec<u32>,
}

/// What a name is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum NameKind {
    Call(ItemKind),
    Type,
    Constant,
}

impl NameKind {
    fn word(self) -> &'static str {
        match self {
            Self::Call(kind) => kind.section(),
            Self::Type => "type",
            Self::Constant => "constant",
        }
    }
}

impl<'a> Abis<'a> {
    /// Every call of the specs.
    pub fn of_specs(lock: &'a Lock, specs: &'a [Spec]) -> Self {
        let mut abis = Self::empty(lock, specs);
        abis.names = abis.calls(&|_| true);
        abis
    }

    /// The names asked for, each once; `Err` with those that nothing is known of.
    ///
    /// A name is a call before it is a type, and a type before it is a constant. The calls are those of
    /// `specs`: see [`super::with_driver_calls`].
    pub fn of_names(
        lock: &'a Lock,
        specs: &'a [Spec],
        names: &'a [RequestedName],
    ) -> Result<Self, Vec<RequestedName>> {
        let mut abis = Self::empty(lock, specs);
        let mut wanted: BTreeMap<&str, &RequestedName> = BTreeMap::new();
        for asked in names {
            wanted.entry(&asked.name).or_insert(asked);
        }
        let calls = abis.calls(&|name| wanted.contains_key(name));
        wanted.retain(|name, _| calls.iter().all(|row| row.name != *name));
        abis.names = calls;
        let mut unknown = Vec::new();
        for (name, asked) in wanted {
            match abis.declared(name) {
                Some(row) => abis.names.push(row),
                None => unknown.push(asked.clone()),
            }
        }
        if unknown.is_empty() { Ok(abis) } else { Err(unknown) }
    }

    /// Leaves the calls; false where there are none.
    pub fn keep_calls(&mut self) -> bool {
        self.names.retain(|row| matches!(row.kind, NameKind::Call(_)));
        !self.names.is_empty()
    }

    /// The names of calls among them.
    pub fn calls_named(&self) -> impl Iterator<Item = &str> {
        let calls = self.names.iter().filter(|row| matches!(row.kind, NameKind::Call(_)));
        calls.map(|row| row.name)
    }

    fn empty(lock: &'a Lock, specs: &'a [Spec]) -> Self {
        let index = |branch: &str| specs.iter().position(|spec| spec.driver == branch);
        let spec_of: Vec<Option<usize>> =
            lock.tags.iter().map(|locked| index(locked.tag.branch())).collect();
        let mut orders: Vec<(Vec<&str>, Vec<usize>)> = Vec::new();
        for (tag, spec) in spec_of.iter().enumerate() {
            let Some(spec) = spec.map(|index| &specs[index]) else { continue };
            let surfaces: Vec<&str> = spec.surfaces.iter().map(|s| s.name.as_str()).collect();
            match orders.iter_mut().find(|(order, _)| *order == surfaces) {
                Some((_, tags)) => tags.push(tag),
                None => orders.push((surfaces, vec![tag])),
            }
        }
        let (shapes, names, rows) = (Shapes::new(lock), Vec::new(), HashMap::new());
        let callers = Callers::new(lock);
        Self { lock, specs, shapes, callers, spec_of, orders, names, rows }
    }

    /// The calls of the specs whose names are wanted, by kind and name.
    fn calls(&mut self, wanted: &dyn Fn(&str) -> bool) -> Vec<Row<'a>> {
        let specs = self.specs;
        let mut rows: HashMap<(ItemKind, &'a str), Vec<u32>> = HashMap::new();
        for (index, spec) in specs.iter().enumerate() {
            let tags: Vec<usize> =
                (0..self.spec_of.len()).filter(|tag| self.spec_of[*tag] == Some(index)).collect();
            for item in spec.items.iter().filter(|item| wanted(&item.name)) {
                let row = rows.entry((item.kind, &item.name));
                let row = row.or_insert_with(|| vec![ABSENT; self.lock.tags.len()]);
                self.call(item, &tags, row);
            }
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        let row = |((kind, name), ids)| Row { name, kind: NameKind::Call(kind), ids };
        rows.into_iter().map(row).collect()
    }

    /// Fills in the tags that an item holds for.
    fn call(&mut self, item: &Item, tags: &[usize], row: &mut [u32]) {
        let number = match item.number {
            Some(number) => {
                let id = self.shapes.number(format!("= {number}"));
                vec![id; row.len()].into()
            }
            None => self.row(NameKind::Constant, &item.name),
        };
        let rows_of = |this: &mut Self, names: &mut dyn Iterator<Item = &str>| -> Vec<Ids> {
            names.map(|name| this.row(NameKind::Type, name)).collect()
        };
        let params = rows_of(self, &mut item.params.iter().map(|named| named.name.as_str()));
        let pointees = rows_of(self, &mut pointees(item));
        let mut last: Option<(Vec<u32>, Vec<u32>, u32, u32)> = None;
        for tag in tags.iter().copied() {
            if number[tag] == ABSENT || !item.holds_at(&self.lock.tags[tag].tag) {
                continue;
            }
            let (now, there) = (sorted_at(&params, tag), sorted_at(&pointees, tag));
            row[tag] = match &last {
                Some((params, pointees, n, id))
                    if (params, pointees, *n) == (&now, &there, number[tag]) =>
                {
                    *id
                }
                _ => self.shapes.number(format!("call {} {now:?} {there:?}", number[tag])),
            };
            last = Some((now, there, number[tag], row[tag]));
        }
    }

    /// A name that is no call.
    fn declared(&mut self, name: &'a str) -> Option<Row<'a>> {
        let kind = match self.shapes.declared(name).iter().any(|found| is_type(found.kind)) {
            true => NameKind::Type,
            false => NameKind::Constant,
        };
        let ids = self.row(kind, name).to_vec();
        ids.iter().any(|id| *id != ABSENT).then_some(Row { name, kind, ids })
    }

    /// The ABI of a type or a constant at each tag: that of the first surface that has it, in the
    /// order of the tag's spec.
    fn row(&mut self, kind: NameKind, name: &str) -> Ids {
        let key = (kind, name.to_owned());
        if let Some(known) = self.rows.get(&key) {
            return known.clone();
        }
        let mut row = vec![ABSENT; self.lock.tags.len()];
        for (surfaces, tags) in &self.orders {
            for surface in surfaces {
                let found = match kind {
                    NameKind::Constant => self.shapes.constant_ids(surface, name),
                    _ => self.shapes.type_ids(surface, name),
                };
                let Some(ids) = found else { continue };
                for tag in tags.iter().copied().filter(|tag| ids[*tag] != ABSENT) {
                    if row[tag] == ABSENT {
                        row[tag] = ids[tag];
                    }
                }
            }
        }
        let row: Ids = row.into();
        self.rows.insert(key, row.clone());
        row
    }

    /// Each name, with the tags that share each of its layouts.
    pub fn each(&self) -> Vec<One> {
        self.names.iter().map(|row| self.one(row)).collect()
    }

    /// Each name as it is at a tag, with the tags that share each of its layouts.
    pub fn each_at(&self, tag: &Tag) -> Vec<OneAt> {
        let Some(at) = self.lock.tag_index(tag) else { return Vec::new() };
        let one_at = |row: &Row<'a>| {
            let tags = runs(&row.ids).map(|(_, tags)| tags).find(|tags| tags.contains(&at));
            let tags = tags.filter(|_| row.ids[at] != ABSENT);
            let until = tags.as_ref().map(|tags| tags.end).filter(|end| *end < row.ids.len());
            OneAt {
                one: self.one(row),
                since: tags.map(|tags| self.tag(tags.start)),
                until: until.map(|end| self.tag(end)),
            }
        };
        self.names.iter().map(one_at).collect()
    }

    fn one(&self, row: &Row<'a>) -> One {
        let labels = labels(&row.ids);
        let mut layouts: Vec<Layout> = Vec::new();
        let mut absent = Vec::new();
        for (id, tags) in runs(&row.ids) {
            let span = self.span(&tags);
            let Some(label) = labels.get(&id) else {
                absent.push(span);
                continue;
            };
            let at = layouts.iter().position(|l| l.label == *label).unwrap_or_else(|| {
                let (label, parts) = (label.clone(), self.parts(row, tags.start));
                layouts.push(Layout { label, parts, spans: Vec::new(), tags: Vec::new() });
                layouts.len() - 1
            });
            layouts[at].spans.push(span);
            layouts[at].tags.extend(tags.map(|tag| self.tag(tag)));
        }
        let callers = self.callers(row);
        One { name: row.name.to_owned(), kind: row.kind.word(), layouts, callers, absent }
    }

    /// Whom the driver lets make a call, tag by tag of those that have it.
    fn callers(&self, row: &Row<'a>) -> Vec<CallersAt> {
        if !matches!(row.kind, NameKind::Call(ItemKind::Control | ItemKind::Class)) {
            return Vec::new();
        }
        let has = |tag: &usize| row.ids[*tag] != ABSENT;
        let runs = self.callers.runs(row.name, (0..row.ids.len()).filter(has));
        let callers = |(access, runs): (Option<&Access>, Vec<Run>)| {
            let spans = runs.iter().map(|(first, last)| self.span(&(*first..last + 1)));
            Some(CallersAt { access: access?.clone(), spans: spans.collect() })
        };
        runs.into_iter().filter_map(callers).collect()
    }

    /// Everything at once: the ranges of tags where no name differs.
    pub fn set(&self) -> Set {
        let ids = self.set_ids();
        let labels = labels(&ids);
        let mut set = Set { names: self.names.len(), ranges: Vec::new(), abis: Vec::new() };
        for (id, tags) in runs(&ids) {
            let label = labels.get(&id).cloned().unwrap_or_else(|| label(0));
            let changed = match tags.start.checked_sub(1) {
                Some(before) => self.differing(before, tags.start),
                None => Vec::new(),
            };
            let span = self.span(&tags);
            set.ranges.push(Range { label: label.clone(), span, changed });
            let at = set.abis.iter().position(|abi| abi.label == label).unwrap_or_else(|| {
                set.abis.push(SetAbi { label, tags: Vec::new() });
                set.abis.len() - 1
            });
            set.abis[at].tags.extend(tags.map(|tag| self.tag(tag)));
        }
        set
    }

    /// A number for the ABI of all names at each tag.
    pub(super) fn set_ids(&self) -> Vec<u32> {
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        let all = 0..self.lock.tags.len();
        all.map(|tag| {
            let column: Vec<u32> = self.names.iter().map(|row| row.ids[tag]).collect();
            let next = known.len() as u32 + ABSENT + 1;
            *known.entry(column).or_insert(next)
        })
        .collect()
    }

    /// The names whose ABI differs between two tags.
    pub(super) fn differing(&self, a: usize, b: usize) -> Vec<String> {
        let differs = |row: &&Row<'_>| row.ids[a] != row.ids[b];
        self.names.iter().filter(differs).map(|row| row.name.to_owned()).collect()
    }

    pub(super) fn tag(&self, index: usize) -> String {
        self.lock.tags[index].tag.to_string()
    }

    pub(super) fn span(&self, tags: &Indices<usize>) -> Span {
        let (first, last) = (self.tag(tags.start), self.tag(tags.end - 1));
        Span { first, last, count: tags.len() }
    }

    /// What a name is made of at a tag.
    fn parts(&self, row: &Row<'_>, tag: usize) -> Vec<Part> {
        match row.kind {
            NameKind::Call(kind) => self.call_parts(row.name, kind, tag),
            kind => self.part(kind, row.name, tag).into_iter().collect(),
        }
    }

    fn call_parts(&self, name: &str, kind: ItemKind, tag: usize) -> Vec<Part> {
        let Some(spec) = self.spec_of[tag].map(|index| &self.specs[index]) else {
            return Vec::new();
        };
        let mut items = spec.items_at(&self.lock.tags[tag].tag);
        let Some(item) = items.find(|item| item.name == name && item.kind == kind) else {
            return Vec::new();
        };
        let mut parts: Vec<Part> = match item.number {
            Some(number) => vec![Part::new(name, Some(hex(number.into())))],
            None => self.part(NameKind::Constant, name, tag).into_iter().collect(),
        };
        for name in item.params.iter().map(|named| named.name.as_str()).chain(pointees(item)) {
            if parts.iter().skip(1).all(|part| part.name != name) {
                parts.extend(self.part(NameKind::Type, name, tag));
            }
        }
        if item.params.is_empty() && !item.parameterless {
            parts.push(Part::new("parameters", Some("unknown".to_owned())));
        }
        parts
    }

    /// A type or a constant as the lock has it at a tag.
    fn part(&self, kind: NameKind, name: &str, tag: usize) -> Option<Part> {
        let spec = &self.specs[self.spec_of[tag]?];
        let in_surface = |surface: &Surface| {
            let here = self.shapes.declared(name).iter().rev().filter(|found| {
                found.surface == surface.name && is_type(found.kind) == (kind == NameKind::Type)
            });
            let mut here = here.filter_map(|found| Some((found, state_at(found.history, tag)?)));
            here.next()
        };
        let (found, placed) = spec.surfaces.iter().find_map(in_surface)?;
        let mut part = Part::new(name, None);
        part.source = Some(format!("{}:{}", found.path, placed.line));
        match &*placed.fact {
            Fact::Record { size, align, .. } => {
                (part.size, part.align) = (Some(*size), Some(*align));
            }
            Fact::Enum { variants, .. } if kind == NameKind::Constant => {
                part.value = Some(hex(*variants.get(name)?));
            }
            Fact::Enum { size, .. } | Fact::Alias { size, .. } => part.size = Some(*size),
            Fact::Call(_) => {}
            Fact::Constant(value) => part.value = Some(hex(*value)),
            Fact::BitRange(high, low) => part.value = Some(format!("{high}:{low}")),
        }
        Some(part)
    }
}

impl Part {
    fn new(name: &str, value: Option<String>) -> Self {
        Self { name: name.to_owned(), value, size: None, align: None, source: None }
    }
}

/// What the pointers of a call lead to.
fn pointees(item: &Item) -> impl Iterator<Item = &str> {
    item.pointees().map(|of| of.name.as_str())
}

/// Numbers at a tag, so that the order in which a spec says them does not matter.
fn sorted_at(rows: &[Ids], tag: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = rows.iter().map(|ids| ids[tag]).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
