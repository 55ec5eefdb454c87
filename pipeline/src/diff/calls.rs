//! Ioctls, commands and classes: their numbers, parameters and roles.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::swap;

use serde::{Serialize, Serializer};

use super::roles::find_record;
use super::{Class, RecordChange, Scope, Side, Sides};
use crate::model::Source;
use crate::spec::{Item, ItemKind};

/// An ioctl, command or class that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallChange {
    /// The table it is in.
    #[serde(serialize_with = "section")]
    pub kind: ItemKind,
    /// Its name on the second side, or on the first where it is gone.
    pub name: String,
    /// Its name on the first side, where number and parameters are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_before: Option<String>,
    /// What the change means.
    pub class: Class,
    /// On the first side; `None` where it is new.
    pub before: Option<CallState>,
    /// On the second side; `None` where it is gone.
    pub after: Option<CallState>,
    /// What the number that it has on the first side names on the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_now: Option<String>,
    /// What the number that it has on the second side names on the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_was: Option<String>,
}

/// A call as one side has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallState {
    /// The number of the ioctl, command or class.
    pub number: i128,
    /// Parameter types.
    pub params: Vec<String>,
    /// Paths of the fields that hold file descriptors, as the spec says.
    pub fds: Vec<String>,
    /// Paths of the fields that hold pointers, as the spec says.
    pub pointers: Vec<String>,
    /// Where the number is defined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

fn section<S: Serializer>(kind: &ItemKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.section())
}

impl CallState {
    fn same(&self, other: &Self) -> bool {
        self.number == other.number && self.same_params(other) && self.same_roles(other)
    }

    fn same_params(&self, other: &Self) -> bool {
        self.params == other.params
    }

    fn same_roles(&self, other: &Self) -> bool {
        (&self.fds, &self.pointers) == (&other.fds, &other.pointers)
    }
}

impl CallChange {
    pub(super) fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        swap(&mut reversed.before, &mut reversed.after);
        swap(&mut reversed.number_now, &mut reversed.number_was);
        if let Some(before) = &mut reversed.name_before {
            swap(before, &mut reversed.name);
        }
        reversed.class = reversed.classify();
        reversed
    }

    fn classify(&self) -> Class {
        match (&self.before, &self.after) {
            // A caller of the first side that still uses the number now asks for something else;
            // the one that had the number before tells of it.
            (None, _) => Class::Harmless,
            (Some(_), None) => Class::Break,
            (Some(before), Some(after)) if before.number != after.number => Class::Break,
            // Whether it still does the same, a name cannot tell.
            (Some(_), Some(_)) if self.name_before.is_some() => Class::Meaning,
            (Some(before), Some(after)) if !before.same_params(after) => Class::Break,
            (Some(_), Some(_)) => Class::Meaning,
        }
    }
}

type Key = (ItemKind, String);
type Calls = BTreeMap<Key, CallState>;

/// Every call in scope that differs.
pub(super) fn compare(
    sides: &Sides<'_>,
    scope: Scope,
    records: &[RecordChange],
) -> Vec<CallChange> {
    let both = [sides.from, sides.to].map(|side| (named_by_spec(side), commands(side)));
    let [(from, commands_from), (to, commands_to)] = both;
    // A number is looked up among all commands, also those that the specs do not name.
    let numbers = [Numbers::new(&from, &commands_from), Numbers::new(&to, &commands_to)];
    let (from, to) = match scope {
        Scope::Items => (from, to),
        Scope::All => (joined(from, commands_from), joined(to, commands_to)),
    };
    let keys: BTreeSet<&Key> = from.keys().chain(to.keys()).collect();
    let mut changes: Vec<CallChange> = keys
        .into_iter()
        .filter_map(|key| change(key, [from.get(key), to.get(key)], &numbers))
        .collect();
    join_renamed(&mut changes, records);
    changes
}

fn change(
    key: &Key,
    [before, after]: [Option<&CallState>; 2],
    numbers: &[Numbers; 2],
) -> Option<CallChange> {
    if before.zip(after).is_some_and(|(before, after)| before.same(after)) {
        return None;
    }
    let other = |at: usize, state: Option<&CallState>| {
        numbers[at].other_than(key, state?.number, &numbers[1 - at])
    };
    let mut change = CallChange {
        kind: key.0,
        name: key.1.clone(),
        name_before: None,
        class: Class::Harmless,
        before: before.cloned(),
        after: after.cloned(),
        number_now: other(1, before),
        number_was: other(0, after),
    };
    change.class = change.classify();
    Some(change)
}

/// The names of one side's calls, by number.
struct Numbers(BTreeMap<(ItemKind, i128), BTreeSet<String>>);

impl Numbers {
    fn new(named: &Calls, commands: &Calls) -> Self {
        let mut names: BTreeMap<(ItemKind, i128), BTreeSet<String>> = BTreeMap::new();
        for ((kind, name), state) in commands.iter().chain(named) {
            names.entry((*kind, state.number)).or_default().insert(name.clone());
        }
        Self(names)
    }

    /// What `number` names here, when it is not what `key` names, nor what it named on the other
    /// side as well.
    fn other_than(&self, key: &Key, number: i128, other: &Self) -> Option<String> {
        let names = self.0.get(&(key.0, number))?;
        let there = other.0.get(&(key.0, number));
        if names.contains(&key.1) {
            return None;
        }
        names.iter().find(|name| there.is_none_or(|there| !there.contains(*name))).cloned()
    }
}

/// Joins a call that is gone and a new one with its number, when their parameters are the same.
fn join_renamed(changes: &mut Vec<CallChange>, records: &[RecordChange]) {
    let renamed: BTreeMap<&str, &str> =
        records.iter().filter_map(|r| Some((r.name_before.as_deref()?, r.name.as_str()))).collect();
    let mut gone: BTreeMap<Key, CallState> = BTreeMap::new();
    for change in changes.iter() {
        if let (Some(before), None) = (&change.before, &change.after) {
            gone.insert((change.kind, change.name.clone()), before.clone());
        }
    }
    let mut taken: BTreeSet<Key> = BTreeSet::new();
    for change in changes.iter_mut().filter(|change| change.before.is_none()) {
        let (Some(after), Some(old)) = (&change.after, &change.number_was) else { continue };
        let key = (change.kind, old.clone());
        let Some(before) = gone.get(&key) else { continue };
        let carried_over = before.params.iter().map(String::as_str);
        let carried_over = carried_over.map(|name| renamed.get(name).copied().unwrap_or(name));
        let same = carried_over.eq(after.params.iter().map(String::as_str));
        if same && before.same_roles(after) && !taken.contains(&key) {
            change.before = Some(before.clone());
            change.name_before = Some(old.clone());
            (change.number_now, change.number_was) = (None, None);
            change.class = change.classify();
            taken.insert(key);
        }
    }
    changes.retain(|change| {
        change.after.is_some() || !taken.contains(&(change.kind, change.name.clone()))
    });
}

/// The calls that a side's spec names and its driver has.
fn named_by_spec(side: Side<'_>) -> Calls {
    let mut calls = Calls::new();
    for item in side.spec.items_at(&side.facts.tag) {
        if let Some((number, source)) = number(side, item) {
            let known = |name: &&crate::spec::Named| is_known(side, &name.name);
            let names = |list: &[crate::spec::Named]| list.iter().map(|n| n.name.clone()).collect();
            let state = CallState {
                number,
                params: item.params.iter().filter(known).map(|n| n.name.clone()).collect(),
                fds: names(&item.fds),
                pointers: item.pointers.iter().map(|p| p.field.name.clone()).collect(),
                source,
            };
            calls.insert((item.kind, item.name.clone()), state);
        }
    }
    calls
}

fn number(side: Side<'_>, item: &Item) -> Option<(i128, Option<Source>)> {
    let surfaces = || side.spec.surfaces.iter().filter_map(|s| side.facts.surfaces.get(&s.name));
    let constant = surfaces().find_map(|surface| surface.constants.get(&item.name));
    let of_enums = || {
        let enums = surfaces().flat_map(|surface| surface.enums.values());
        let mut found =
            enums.filter_map(|e| Some((*e.variants.get(&item.name)?, e.source.clone())));
        found.next()
    };
    let found = constant.map(|c| (c.value, c.source.clone())).or_else(of_enums);
    match found {
        Some((number, source)) => Some((number, Some(source))),
        None => item.number.map(|number| (i128::from(number), None)),
    }
}

fn is_known(side: Side<'_>, name: &str) -> bool {
    let mut surfaces = side.facts.surfaces.values();
    find_record(side.facts, side.spec, name).is_some()
        || surfaces.any(|s| s.aliases.contains_key(name) || s.enums.contains_key(name))
}

/// The control commands that no spec needs to name: the headers call them so, and their number
/// has their class in it.
fn commands(side: Side<'_>) -> Calls {
    let mut calls = Calls::new();
    for surface in side.facts.surfaces.values() {
        for (name, constant) in &surface.constants {
            if !is_command(name, constant.value) {
                continue;
            }
            let params = name.replacen("_CTRL_CMD_", "_CTRL_", 1) + "_PARAMS";
            let id = surface.constants.get(&format!("{params}_MESSAGE_ID"));
            let fits = id.is_some_and(|id| id.value == constant.value & 0xff);
            let known = fits && surface.records.contains_key(&params);
            let state = CallState {
                number: constant.value,
                params: if known { vec![params] } else { Vec::new() },
                fds: Vec::new(),
                pointers: Vec::new(),
                source: Some(constant.source.clone()),
            };
            calls.insert((ItemKind::Control, name.clone()), state);
        }
    }
    calls
}

/// Whether it is a control command: `NV2080_CTRL_CMD_…` is of class 0x2080, and its number says so.
pub(super) fn is_command(name: &str, number: i128) -> bool {
    let class = name.strip_prefix("NV").and_then(|rest| rest.split_at_checked(4));
    class.is_some_and(|(class, rest)| {
        let class = u32::from_str_radix(class, 16).ok();
        rest.starts_with("_CTRL_CMD_") && class.map(i128::from) == Some(number >> 16)
    })
}

/// What the spec says goes before what names alone say.
fn joined(mut named: Calls, commands: Calls) -> Calls {
    for (key, state) in commands {
        named.entry(key).or_insert(state);
    }
    named
}
