//! Enums, typedefs, constants and bit ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::swap;

use serde::Serialize;

use super::scope::Names;
use super::{Class, FieldChange, Layer, Merge, RecordChange, Sides, merge, pairs};
use nvabi_pipeline::model::{Alias, BitRange, Constant, Enum, Source, split_array};

/// An enum that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnumChange {
    /// Its name.
    pub name: String,
    /// What the change means.
    pub class: Class,
    /// Where the change is the same.
    pub surfaces: Vec<String>,
    /// On the first side; `None` where it is new.
    pub before: Option<EnumState>,
    /// On the second side; `None` where it is gone.
    pub after: Option<EnumState>,
    /// The enumerators that differ, by value; all where it is new or gone.
    pub enumerators: Vec<ValueChange>,
}

/// The outside of an enum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EnumState {
    /// Bytes.
    pub size: u64,
    /// Where it is defined.
    pub source: Source,
}

/// A name for a value that differs: an enumerator, a constant, a bit range, or a typedef.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    /// Its name on the second side, or on the first where it is gone.
    pub name: String,
    /// Its name on the first side, where only the name differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_before: Option<String>,
    /// What the change means.
    pub class: Class,
    /// Where the change is the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub surfaces: Vec<String>,
    /// On the first side; `None` where it is new.
    pub before: Option<ValueState>,
    /// On the second side; `None` where it is gone.
    pub after: Option<ValueState>,
    /// For a constant that is gone or has another value: what is named alike and has its value of the
    /// first side on the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_now: Option<String>,
    /// For a constant that is new or has another value: what is named alike and has its value of the
    /// second side on the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_was: Option<String>,
    /// Arrays whose length went from the one value to the other: `RECORD.field`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<String>,
}

/// A value as one side has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ValueState {
    /// Of an enumerator.
    Enumerator {
        /// The value.
        value: i128,
    },
    /// Of a constant.
    Constant {
        /// The value.
        value: i128,
        /// Where the macro is defined.
        source: Source,
    },
    /// Of a bit range.
    Bits {
        /// The highest bit, included.
        high: i64,
        /// The lowest bit.
        low: i64,
        /// Where the macro is defined.
        source: Source,
    },
    /// Of a typedef.
    Alias {
        /// What it stands for.
        #[serde(rename = "type")]
        ty: String,
        /// Bytes.
        size: u64,
        /// Where it is declared.
        source: Source,
    },
}

impl ValueState {
    /// Where it is declared.
    pub fn source(&self) -> Option<&Source> {
        match self {
            Self::Enumerator { .. } => None,
            Self::Constant { source, .. }
            | Self::Bits { source, .. }
            | Self::Alias { source, .. } => Some(source),
        }
    }

    /// Whether both say the same; where they are declared may differ.
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Enumerator { value: x }, Self::Enumerator { value: y })
            | (Self::Constant { value: x, .. }, Self::Constant { value: y, .. }) => x == y,
            (Self::Bits { high, low, .. }, Self::Bits { high: h, low: l, .. }) => {
                (high, low) == (h, l)
            }
            (Self::Alias { ty, size, .. }, Self::Alias { ty: t, size: s, .. }) => {
                (ty, size) == (t, s)
            }
            _ => false,
        }
    }
}

impl ValueChange {
    fn new(name: &str, before: Option<ValueState>, after: Option<ValueState>) -> Self {
        let mut change = Self {
            name: name.to_owned(),
            name_before: None,
            class: Class::Harmless,
            surfaces: Vec::new(),
            before,
            after,
            value_now: None,
            value_was: None,
            bounds: Vec::new(),
        };
        change.class = change.classify();
        change
    }

    pub(super) fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        swap(&mut reversed.before, &mut reversed.after);
        swap(&mut reversed.value_now, &mut reversed.value_was);
        if let Some(before) = &mut reversed.name_before {
            swap(before, &mut reversed.name);
        }
        reversed.class = reversed.classify();
        reversed
    }

    fn classify(&self) -> Class {
        match (&self.before, &self.after) {
            (None, _) => Class::Harmless,
            // Its value may name something else from now on.
            (Some(_), None) => Class::Meaning,
            // Whether it still means the same, a name cannot tell.
            (Some(_), Some(_)) if self.name_before.is_some() => Class::Meaning,
            (Some(ValueState::Constant { .. }), Some(_)) if self.bounds.is_empty() => {
                Class::Meaning
            }
            (Some(ValueState::Alias { size, .. }), Some(ValueState::Alias { size: other, .. }))
                if size == other =>
            {
                Class::Meaning
            }
            (Some(_), Some(_)) => Class::Break,
        }
    }
}

impl Merge for ValueChange {
    fn surfaces(&mut self) -> &mut Vec<String> {
        &mut self.surfaces
    }

    /// A header may be there twice, as `nvstatus.h` is.
    fn same(&self, other: &Self) -> bool {
        let alike = |x: &Option<ValueState>, y: &Option<ValueState>| match (x, y) {
            (Some(x), Some(y)) => x.same(y),
            (x, y) => x.is_none() && y.is_none(),
        };
        (&self.name, &self.name_before) == (&other.name, &other.name_before)
            && alike(&self.before, &other.before)
            && alike(&self.after, &other.after)
    }
}

impl EnumChange {
    pub(super) fn reversed(&self) -> Self {
        let mut reversed = Self {
            before: self.after.clone(),
            after: self.before.clone(),
            enumerators: self.enumerators.iter().map(ValueChange::reversed).collect(),
            ..self.clone()
        };
        reversed.finish();
        reversed
    }

    fn finish(&mut self) {
        let value = |change: &ValueChange| match change.after.as_ref().or(change.before.as_ref()) {
            Some(ValueState::Enumerator { value }) => *value,
            _ => 0,
        };
        self.enumerators.sort_by(|x, y| (value(x), &x.name).cmp(&(value(y), &y.name)));
        let worst = self.enumerators.iter().map(|e| e.class).min().unwrap_or(Class::Harmless);
        self.class = match (&self.before, &self.after) {
            (Some(before), Some(after)) if before.size != after.size => Class::Break,
            (Some(_), Some(_)) => worst,
            (None, _) => Class::Harmless,
            (Some(_), None) => Class::Meaning,
        };
    }
}

impl Merge for EnumChange {
    fn surfaces(&mut self) -> &mut Vec<String> {
        &mut self.surfaces
    }

    fn same(&self, other: &Self) -> bool {
        let surfaces = self.surfaces.clone();
        *self == Self { surfaces, ..other.clone() }
    }
}

/// Every enum in scope that differs.
pub(super) fn enums(sides: &Sides<'_>, names: &Names<'_>) -> Vec<EnumChange> {
    let mut found: BTreeMap<String, Vec<EnumChange>> = BTreeMap::new();
    for (surface, layers) in sides.layers() {
        for (name, pair) in pairs(layers, |s| &s.enums) {
            let variants = pair.iter().flatten().flat_map(|e| e.variants.keys());
            if let Some(change) = enumeration(name, pair).filter(|_| names.has_enum(name, variants))
            {
                merge(found.entry(name.to_owned()).or_default(), surface, change);
            }
        }
    }
    found.into_values().flatten().collect()
}

fn enumeration(name: &str, pair: [Option<&Enum>; 2]) -> Option<EnumChange> {
    let [before, after] = pair;
    if let (Some(x), Some(y)) = (before, after) {
        if (x.size, &x.variants) == (y.size, &y.variants) {
            return None;
        }
    }
    let state = |e: &Enum| EnumState { size: e.size, source: e.source.clone() };
    let mut change = EnumChange {
        name: name.to_owned(),
        class: Class::Harmless,
        surfaces: Vec::new(),
        before: before.map(state),
        after: after.map(state),
        enumerators: enumerators(pair),
    };
    change.finish();
    Some(change)
}

fn enumerators(pair: [Option<&Enum>; 2]) -> Vec<ValueChange> {
    let names: BTreeSet<&String> = pair.iter().flatten().flat_map(|e| e.variants.keys()).collect();
    let value = |side: usize, name: &str| pair[side].and_then(|e| e.variants.get(name)).copied();
    let mut changes = Vec::new();
    for name in names {
        let states = [0, 1].map(|side| value(side, name));
        let [before, after] = states.map(|v| v.map(|value| ValueState::Enumerator { value }));
        if before != after {
            changes.push(ValueChange::new(name, before, after));
        }
    }
    renamed(changes)
}

/// Joins an enumerator that is gone and a new one of the same value, where there is one of each.
fn renamed(changes: Vec<ValueChange>) -> Vec<ValueChange> {
    let of = |state: &Option<ValueState>| match state {
        Some(ValueState::Enumerator { value }) => Some(*value),
        _ => None,
    };
    let mut gone: BTreeMap<i128, Vec<&str>> = BTreeMap::new();
    let mut new: BTreeMap<i128, Vec<&str>> = BTreeMap::new();
    for change in &changes {
        match (of(&change.before), of(&change.after)) {
            (Some(value), None) => gone.entry(value).or_default().push(&change.name),
            (None, Some(value)) => new.entry(value).or_default().push(&change.name),
            _ => {}
        }
    }
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (value, before) in gone {
        if let ([before], Some([after])) = (&before[..], new.get(&value).map(Vec::as_slice)) {
            names.insert((*after).to_owned(), (*before).to_owned());
        }
    }
    let taken: BTreeSet<String> = names.values().cloned().collect();
    let kept = changes.into_iter().filter(|c| c.after.is_some() || !taken.contains(&c.name));
    let joined = kept.map(|mut change| {
        if let Some(before) = names.get(&change.name).filter(|_| change.before.is_none()) {
            change.before.clone_from(&change.after);
            change.name_before = Some(before.clone());
            change.class = change.classify();
        }
        change
    });
    joined.collect()
}

/// Every typedef in scope that differs.
pub(super) fn aliases(sides: &Sides<'_>, names: &Names<'_>) -> Vec<ValueChange> {
    let same = |x: &Alias, y: &Alias| (&x.ty, x.size) == (&y.ty, y.size);
    let state = |alias: &Alias| ValueState::Alias {
        ty: alias.ty.clone(),
        size: alias.size,
        source: alias.source.clone(),
    };
    let mut found = compare(sides, |s| &s.aliases, same, |name| names.has_type(name), state);
    // What a record is, is reported with the record, whatever the typedefs of it. Where only the typedef
    // comes or goes, nothing else reports it.
    found.retain(|change| {
        let layers = sides.layers();
        let of = |surface: &String| layers.get(surface.as_str());
        let mut both = change.surfaces.iter().filter_map(of);
        !both.any(|[from, to]| {
            let is_record = names_record(*from, &change.name) || names_record(*to, &change.name);
            is_record && !comes_or_goes_alone(*from, *to, &change.name)
        })
    });
    found
}

/// Whether one side has a typedef of a record that both sides have, and the other has nothing of that name.
fn comes_or_goes_alone(from: Layer<'_>, to: Layer<'_>, name: &str) -> bool {
    let has = |layer: Layer<'_>| {
        layer.get(|s| &s.aliases, name).is_some() || layer.get(|s| &s.records, name).is_some()
    };
    let (with, without) = match (has(from), has(to)) {
        (true, false) => (from, to),
        (false, true) => (to, from),
        _ => return false,
    };
    let alias = with.get(|s| &s.aliases, name);
    alias.is_some_and(|alias| names_record(without, split_array(&alias.ty).0))
}

fn names_record(layer: Layer<'_>, name: &str) -> bool {
    let alias = layer.get(|s| &s.aliases, name);
    let base = alias.map_or(name, |alias| split_array(&alias.ty).0);
    layer.get(|s| &s.records, base).is_some()
}

/// Every constant in scope that differs.
pub(super) fn constants(
    sides: &Sides<'_>,
    names: &Names<'_>,
    records: &[RecordChange],
) -> Vec<ValueChange> {
    let same = |x: &Constant, y: &Constant| x.value == y.value;
    let state = |constant: &Constant| ValueState::Constant {
        value: constant.value,
        source: constant.source.clone(),
    };
    let mut found = compare(sides, |s| &s.constants, same, |name| names.has_constant(name), state);
    let bounds = bounds(records);
    for change in &mut found {
        if let (
            Some(ValueState::Constant { value, source }),
            Some(ValueState::Constant { value: other, source: elsewhere }),
        ) = (&change.before, &change.after)
        {
            let keys = [source, elsewhere].map(|source| (&*source.path, *value, *other));
            let arrays: BTreeSet<&String> =
                keys.iter().filter_map(|key| bounds.get(key)).flatten().collect();
            change.bounds = arrays.into_iter().cloned().collect();
            change.class = change.classify();
        }
    }
    add_namesakes(&mut found);
    found
}

/// Finds for each constant that gave its value away what has it now, and the other way round.
fn add_namesakes(changes: &mut [ValueChange]) {
    let mut names: [BTreeMap<i128, Vec<String>>; 2] = Default::default();
    for change in changes.iter() {
        for (names, value) in names.iter_mut().zip(telling(change)) {
            if let Some(value) = value {
                names.entry(value).or_default().push(change.name.clone());
            }
        }
    }
    let [before, after] = names;
    for change in changes {
        let [was, is] = telling(change);
        let find = |value: Option<i128>, names: &BTreeMap<i128, Vec<String>>| {
            namesake(&change.name, names.get(&value?)?)
        };
        (change.value_now, change.value_was) = (find(was, &after), find(is, &before));
    }
}

/// The values that it has on both sides, but for those that tell nothing: every family of flags has a
/// zero, and the length of an array names nothing.
fn telling(change: &ValueChange) -> [Option<i128>; 2] {
    [&change.before, &change.after].map(|state| match state {
        Some(ValueState::Constant { value, .. }) if *value != 0 && change.bounds.is_empty() => {
            Some(*value)
        }
        _ => None,
    })
}

/// The one name that shares most words at its start, and about half of them at least.
fn namesake(name: &str, others: &[String]) -> Option<String> {
    let words = |name: &str| name.split('_').count();
    let shared =
        |other: &str| name.split('_').zip(other.split('_')).take_while(|(x, y)| x == y).count();
    let most = others.iter().map(|other| shared(other)).max()?;
    let mut best = others.iter().filter(|other| shared(other) == most);
    let only = best.next().filter(|_| best.next().is_none())?;
    let half = words(name).min(words(only)) / 2;
    (most >= half.max(2)).then(|| only.clone())
}

/// Arrays that became longer or shorter: by the header, and both lengths.
fn bounds(records: &[RecordChange]) -> BTreeMap<(&str, i128, i128), Vec<String>> {
    let mut found: BTreeMap<(&str, i128, i128), Vec<String>> = BTreeMap::new();
    for record in records {
        for (field, lengths) in record.fields.iter().filter_map(|f| Some((f, lengths(f)?))) {
            for state in record.before.iter().chain(&record.after) {
                for (before, after) in &lengths {
                    let key = (&*state.source.path, i128::from(*before), i128::from(*after));
                    let name = format!("{}.{}", record.name, field.name());
                    found.entry(key).or_default().push(name);
                }
            }
        }
    }
    found
}

/// The lengths that differ, where a field is an array of the same on both sides.
fn lengths(field: &FieldChange) -> Option<Vec<(u64, u64)>> {
    let (before, was) = split_array(&field.before.as_ref()?.field.canonical);
    let (after, now) = split_array(&field.after.as_ref()?.field.canonical);
    let same = before == after && was.len() == now.len();
    same.then(|| was.into_iter().zip(now).filter(|(x, y)| x != y).collect())
}

/// Every bit range in scope that differs.
pub(super) fn bit_ranges(sides: &Sides<'_>, names: &Names<'_>) -> Vec<ValueChange> {
    let same = |x: &BitRange, y: &BitRange| (x.high, x.low) == (y.high, y.low);
    let state = |range: &BitRange| ValueState::Bits {
        high: range.high,
        low: range.low,
        source: range.source.clone(),
    };
    compare(sides, |s| &s.bit_ranges, same, |name| names.has_constant(name), state)
}

fn compare<T>(
    sides: &Sides<'_>,
    map: super::Map<T>,
    same: impl Fn(&T, &T) -> bool,
    wanted: impl Fn(&str) -> bool,
    state: impl Fn(&T) -> ValueState,
) -> Vec<ValueChange> {
    let mut found: BTreeMap<String, Vec<ValueChange>> = BTreeMap::new();
    for (surface, layers) in sides.layers() {
        for (name, pair) in pairs(layers, map) {
            let same = match pair {
                [Some(before), Some(after)] => same(before, after),
                [before, after] => before.is_none() && after.is_none(),
            };
            if !same && wanted(name) {
                let [before, after] = pair.map(|value| value.map(&state));
                let change = ValueChange::new(name, before, after);
                merge(found.entry(name.to_owned()).or_default(), surface, change);
            }
        }
    }
    found.into_values().flatten().collect()
}
