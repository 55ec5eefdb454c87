//! Structs and unions, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::swap;

use serde::Serialize;

use super::calls::Calls;
use super::roles::{Role, Roles, is_reserved};
use super::scope::Names;
use super::{Class, Layer, Merge, Sides, merge, pairs};
use nvabi_pipeline::model::{Field, Record, RecordKind, Source, split_array};

mod fields;
mod holders;
mod renames;

use holders::Holders;

/// A struct or union that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordChange {
    /// Its name on the second side, or on the first where it is gone.
    pub name: String,
    /// Its name on the first side, where it was renamed with all its fields as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_before: Option<String>,
    /// What the change means.
    pub class: Class,
    /// Where the change is the same: `rm`, `modeset`, `rm@aarch64-unknown-linux-gnu`.
    pub surfaces: Vec<String>,
    /// On the first side; `None` where it is new.
    pub before: Option<RecordState>,
    /// On the second side; `None` where it is gone.
    pub after: Option<RecordState>,
    /// The fields that differ, in the order of the second side; all where it is new or gone.
    pub fields: Vec<FieldChange>,
    /// Its own declaration is as it was, and these records that it holds are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carried_by: Vec<String>,
    /// The records that hold it by value, the nearest first.
    pub held_by: Vec<Holder>,
    /// The calls of the specs whose parameters it is part of.
    pub calls: Vec<String>,
}

/// The outside of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordState {
    /// Struct or union.
    pub kind: RecordKind,
    /// Bytes.
    pub size: u64,
    /// Bytes.
    pub align: u64,
    /// Where it is defined.
    pub source: Source,
}

/// A record that holds another by value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Holder {
    /// The record that holds it.
    pub record: String,
    /// The path of the member.
    pub path: String,
    /// The member's offset on the first side.
    pub before: Option<u64>,
    /// The member's offset on the second side.
    pub after: Option<u64>,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// What the change means.
    pub class: Class,
    /// On the first side; `None` where it is new.
    pub before: Option<FieldState>,
    /// On the second side; `None` where it is gone.
    pub after: Option<FieldState>,
    /// For one that is new or gone: what the other side has in its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<Instead>,
    /// What of its type differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retyped: Option<TypeChange>,
}

/// A field as one side has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldState {
    /// What the record says of it.
    #[serde(flatten)]
    pub field: Field,
    /// What a shim has to translate in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The pointer whose length it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_of: Option<String>,
}

/// What the other side has in the bytes of a field that it has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Instead {
    /// Nothing: it ends before.
    Beyond,
    /// Nothing, or bytes that are not used, and then its end.
    Across,
    /// Bytes between fields, or after the last.
    Padding,
    /// Fields whose names say that they are not used.
    Reserved(Vec<String>),
    /// Other fields.
    Fields(Vec<String>),
    /// Another member of the union, or none.
    Union,
}

/// What of a field's type differs, sizes aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TypeChange {
    /// How it is written; the bytes read the same.
    Spelling,
    /// How many elements an array of the same has.
    Length,
    /// How the bytes read: signed or not, an address or a number, other dimensions.
    Reading,
    /// What the bytes are made of.
    Layout,
}

impl FieldState {
    /// Whether its bytes are not used, by its name.
    pub fn is_reserved(&self) -> bool {
        is_reserved(&self.field.name)
    }

    /// Whether nothing of it differs that a caller could notice.
    fn same(&self, other: &Self) -> bool {
        self.field == other.field && self.role == other.role
    }
}

impl FieldChange {
    /// The name on the second side, or on the first where it is gone.
    pub fn name(&self) -> &str {
        self.after.as_ref().or(self.before.as_ref()).map_or("", |state| &state.field.name)
    }

    /// Whether it lies elsewhere and nothing else of it differs; by how much.
    pub fn only_moved(&self) -> Option<i128> {
        let (before, after) = (self.before.as_ref()?, self.after.as_ref()?);
        let mut there = before.clone();
        there.field.offset = after.field.offset;
        let moved = i128::from(after.field.offset) - i128::from(before.field.offset);
        (moved != 0 && there.same(after)).then_some(moved)
    }

    fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        swap(&mut reversed.before, &mut reversed.after);
        reversed.class = reversed.classify();
        reversed
    }

    fn classify(&self) -> Class {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => self.classify_both(before, after),
            (None, Some(only)) | (Some(only), None) => self.classify_one(only),
            (None, None) => Class::Harmless,
        }
    }

    fn classify_both(&self, before: &FieldState, after: &FieldState) -> Class {
        // What takes the bytes that a reserved field gives up is told of its own.
        if before.is_reserved() && after.is_reserved() {
            return Class::Harmless;
        }
        let place = |state: &FieldState| (state.field.offset, state.field.size, state.field.bits);
        if place(before) != place(after) || self.retyped == Some(TypeChange::Layout) {
            return Class::Break;
        }
        let read_otherwise = self.retyped == Some(TypeChange::Reading);
        match before.field.name != after.field.name || before.role != after.role || read_otherwise {
            true => Class::Meaning,
            false => Class::Harmless,
        }
    }

    fn classify_one(&self, only: &FieldState) -> Class {
        let gone = self.after.is_none();
        match &self.instead {
            Some(Instead::Beyond | Instead::Across | Instead::Fields(_)) => {
                match only.is_reserved() {
                    // The record's size reports it, or the fields that are in its place.
                    true => Class::Harmless,
                    false => Class::Break,
                }
            }
            Some(Instead::Padding | Instead::Reserved(_)) => match only.is_reserved() {
                true => Class::Harmless,
                false => Class::Meaning,
            },
            Some(Instead::Union) if gone || only.role.is_some() => Class::Meaning,
            Some(Instead::Union) | None => Class::Harmless,
        }
    }
}

impl RecordChange {
    /// Bytes on both sides, where both have it and they differ.
    pub fn resized(&self) -> Option<(u64, u64)> {
        let (before, after) = (self.before.as_ref()?.size, self.after.as_ref()?.size);
        (before != after).then_some((before, after))
    }

    pub(super) fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        swap(&mut reversed.before, &mut reversed.after);
        if let Some(before) = &mut reversed.name_before {
            swap(before, &mut reversed.name);
        }
        reversed.fields = self.fields.iter().map(FieldChange::reversed).collect();
        for holder in &mut reversed.held_by {
            swap(&mut holder.before, &mut holder.after);
        }
        reversed.finish();
        reversed
    }

    /// Whether a record is there on both sides and is the same but for its place in the header.
    fn is_nothing(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => {
                let shape = |state: &RecordState| (state.kind, state.size, state.align);
                self.name_before.is_none()
                    && self.fields.is_empty()
                    && shape(before) == shape(after)
            }
            (before, after) => before.is_none() && after.is_none(),
        }
    }

    /// Brings everything into the order, and gives it the class, that follow from the rest.
    fn finish(&mut self) {
        let place =
            |state: &FieldState| (state.field.offset, state.field.bits.map_or(0, |b| b.bit_offset));
        self.fields.sort_by(|x, y| {
            let key = |change: &FieldChange| {
                let state = change.after.as_ref().or(change.before.as_ref());
                (state.map(place), change.after.is_some(), change.name().to_owned())
            };
            key(x).cmp(&key(y))
        });
        self.class = self.classify();
    }

    fn classify(&self) -> Class {
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            return match self.after {
                Some(_) => Class::Harmless,
                None => Class::Break,
            };
        };
        let realigned = before.align != after.align && !self.held_by.is_empty();
        if (before.kind, before.size) != (after.kind, after.size) || realigned {
            return Class::Break;
        }
        self.fields.iter().map(|field| field.class).min().unwrap_or(Class::Harmless)
    }
}

impl Merge for RecordChange {
    fn surfaces(&mut self) -> &mut Vec<String> {
        &mut self.surfaces
    }

    fn same(&self, other: &Self) -> bool {
        let surfaces = self.surfaces.clone();
        *self == Self { surfaces, ..other.clone() }
    }
}

/// A record under the name that it is declared by.
#[derive(Clone, Copy)]
struct Declared<'a> {
    name: &'a str,
    record: &'a Record,
}

/// A record of one surface on both sides. Where a name is a typedef, it is what that stands for.
type Pair<'a> = [Option<Declared<'a>>; 2];

/// What a name stands for on each side.
fn resolved<'a>(layers: [Layer<'a>; 2], name: &'a str) -> Pair<'a> {
    layers.map(|layer| {
        let alias = layer.get(|s| &s.aliases, name);
        let name = alias.map_or(name, |alias| alias.ty.as_str());
        layer.get(|s| &s.records, name).map(|record| Declared { name, record })
    })
}

/// The records in scope, and the typedefs that stand for one record here and for another there.
fn records<'a>(layers: [Layer<'a>; 2], names: &Names<'_>) -> BTreeMap<&'a str, Pair<'a>> {
    let declared = |name, record: &'a Record| Declared { name, record };
    let of_records = pairs(layers, |s| &s.records).into_iter().map(|(name, pair)| match pair {
        [Some(x), Some(y)] => (name, [Some(declared(name, x)), Some(declared(name, y))]),
        _ => (name, resolved(layers, name)),
    });
    // A typedef that is new or gone, or follows its record, is no change of its own.
    let of_aliases = pairs(layers, |s| &s.aliases).into_iter().filter_map(|(name, pair)| {
        let [Some(x), Some(y)] = pair else { return None };
        let pair = (x.ty != y.ty).then(|| resolved(layers, name))?;
        pair.iter().all(Option::is_some).then_some((name, pair))
    });
    of_records.chain(of_aliases).filter(|(name, _)| names.has_type(name)).collect()
}

/// Every record in scope that differs.
pub(super) fn compare(
    sides: &Sides<'_>,
    names: &Names<'_>,
    calls: &[Calls; 2],
) -> Vec<RecordChange> {
    let roles = [Roles::new(sides.from), Roles::new(sides.to)];
    let mut found: BTreeMap<String, Vec<RecordChange>> = BTreeMap::new();
    for (surface, layers) in sides.layers() {
        let records = records(layers, names);
        let comparer = Comparer { layers, roles: &roles, records: &records };
        let changes = comparer.changes();
        if changes.is_empty() {
            continue;
        }
        let holders = Holders::new(sides, layers, calls, &records);
        for mut change in changes {
            holders.fill(&mut change);
            change.finish();
            merge(found.entry(change.name.clone()).or_default(), surface, change);
        }
    }
    found.into_values().flatten().collect()
}

struct Comparer<'c, 'a> {
    layers: [Layer<'a>; 2],
    roles: &'c [Roles<'a>; 2],
    records: &'c BTreeMap<&'a str, Pair<'a>>,
}

impl<'a> Comparer<'_, 'a> {
    fn changes(&self) -> Vec<RecordChange> {
        let renamed = renames::find(self.records);
        let gone: BTreeSet<&str> = renamed.values().copied().collect();
        let mut changes = Vec::new();
        for (name, pair) in self.records {
            if gone.contains(name) || self.equal(pair) {
                continue;
            }
            let change = match renamed.get(name) {
                Some(before) => self.renamed(before, name),
                None => self.record(name, *pair),
            };
            changes.extend(change.filter(|change| !change.is_nothing()));
        }
        changes
    }

    /// A quick look: the same layout, and no role differs.
    fn equal(&self, pair: &Pair<'a>) -> bool {
        let [Some(before), Some(after)] = pair else { return false };
        let role = |side: usize, owner: &str, field: &Field| self.roles[side].of(owner, field);
        before.record.same_layout(after.record)
            && before
                .record
                .fields
                .iter()
                .all(|field| role(0, before.name, field) == role(1, after.name, field))
    }

    fn renamed(&self, before: &str, after: &str) -> Option<RecordChange> {
        let pair = [self.records.get(before)?[0], self.records.get(after)?[1]];
        let mut change = empty(after, pair);
        change.name_before = Some(before.to_owned());
        Some(change)
    }

    fn record(&self, name: &str, pair: Pair<'a>) -> Option<RecordChange> {
        let mut change = empty(name, pair);
        change.fields = match pair {
            [Some(before), Some(after)] => {
                change.carried_by = self.carriers(before.record, after.record);
                self.fields(before, after)
            }
            [None, Some(only)] => self.all_fields(1, only),
            [Some(only), None] => self.all_fields(0, only),
            [None, None] => return None,
        };
        Some(change)
    }

    /// The records held by value whose change is why this one's layout differs, when its own
    /// declaration does not.
    fn carriers(&self, before: &Record, after: &Record) -> Vec<String> {
        let same = before.kind == after.kind
            && before.fields.len() == after.fields.len()
            && before.fields.iter().zip(after.fields.iter()).all(|(x, y)| declared_alike(x, y));
        if !same {
            return Vec::new();
        }
        let bases: BTreeSet<&str> =
            after.fields.iter().map(|field| split_array(&field.canonical).0).collect();
        let shape = |record: &Record| (record.size, record.align);
        let differs = |base: &&str| {
            let [x, y] = self.layers.map(|layer| layer.get(|s| &s.records, base));
            x.zip(y).is_some_and(|(x, y)| shape(x) != shape(y))
        };
        bases.into_iter().filter(differs).map(str::to_owned).collect()
    }
}

fn declared_alike(x: &Field, y: &Field) -> bool {
    (&x.name, &x.ty, &x.canonical) == (&y.name, &y.ty, &y.canonical)
        && x.bits.map(|bits| bits.bit_width) == y.bits.map(|bits| bits.bit_width)
}

fn empty(name: &str, [before, after]: Pair<'_>) -> RecordChange {
    let state = |Declared { record, .. }: Declared<'_>| RecordState {
        kind: record.kind,
        size: record.size,
        align: record.align,
        source: record.source.clone(),
    };
    RecordChange {
        name: name.to_owned(),
        name_before: None,
        class: Class::Harmless,
        surfaces: Vec::new(),
        before: before.map(state),
        after: after.map(state),
        fields: Vec::new(),
        carried_by: Vec::new(),
        held_by: Vec::new(),
        calls: Vec::new(),
    }
}
