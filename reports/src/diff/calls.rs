//! Ioctls, commands and classes: their numbers, parameters and roles.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::swap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::roles::find_record;
use super::{Class, RecordChange, Scope, Side, Sides};
use nvabi_pipeline::known::{self, display};
use nvabi_pipeline::model::{Access, Call, Constant, Source};
use nvabi_pipeline::parallel;
use nvabi_pipeline::spec::{Item, ItemKind, Spec};

/// An ioctl, command or class that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallChange {
    /// The table it is in.
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
    /// Whether its parameters are the same types, whatever they are called.
    #[serde(skip)]
    same_params: bool,
    /// What the number that it has on the first side names on the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_now: Option<String>,
    /// What the number that it has on the second side names on the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_was: Option<String>,
    /// For one that is new or gone: another name of its number, which both sides have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias_of: Option<String>,
}

/// A call as one side has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallState {
    /// The number of the ioctl, command or class.
    pub number: i128,
    /// Parameter types.
    pub params: Vec<String>,
    /// Whether nothing tells what its parameters are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmapped: bool,
    /// Paths of the fields that hold file descriptors, as the spec says.
    pub fds: Vec<String>,
    /// Paths of the fields that hold pointers, as the spec says.
    pub pointers: Vec<String>,
    /// Whom the driver lets make it, where its tables say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Where the number is defined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

impl CallState {
    fn same_roles(&self, other: &Self) -> bool {
        let set = |paths: &[String]| -> BTreeSet<String> { paths.iter().cloned().collect() };
        let same =
            |these: &[String], others: &[String]| these == others || set(these) == set(others);
        same(&self.fds, &other.fds) && same(&self.pointers, &other.pointers)
    }

    /// Whether everybody who may make it here may there as well; what one side does not tell may be so.
    pub(super) fn access_within(&self, other: &Self) -> bool {
        let both = self.access.as_ref().zip(other.access.as_ref());
        both.is_none_or(|(this, other)| this.within(other))
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
            // it is reported at the one that had the number before.
            (None, _) => Class::Harmless,
            // The number goes on under the other name.
            (Some(_), None) if self.alias_of.is_some() => Class::Meaning,
            (Some(_), None) => Class::Break,
            (Some(before), Some(after)) if before.number != after.number => Class::Break,
            // Whether it still does the same, a name cannot tell.
            (Some(_), Some(_)) if self.name_before.is_some() => Class::Meaning,
            // What nobody knows may have been the same.
            (Some(before), Some(after)) if before.unmapped != after.unmapped => Class::Meaning,
            (Some(_), Some(_)) if !self.same_params => Class::Break,
            (Some(before), Some(after)) if !before.access_within(after) => Class::Break,
            (Some(before), Some(after)) if before.same_roles(after) => Class::Harmless,
            (Some(_), Some(_)) => Class::Meaning,
        }
    }
}

type Key = (ItemKind, String);
/// One side's calls, by table and name.
pub(super) type Calls = BTreeMap<Key, CallState>;

/// Every call that differs.
pub(super) fn compare(
    sides: &Sides<'_>,
    [from, to]: &[Calls; 2],
    records: &[RecordChange],
) -> Vec<CallChange> {
    let numbers = [Numbers::new(sides.from, from), Numbers::new(sides.to, to)];
    let params = Params::new(sides, records);
    let keys: BTreeSet<&Key> = from.keys().chain(to.keys()).collect();
    let mut changes: Vec<CallChange> = keys
        .into_iter()
        .filter_map(|key| change(key, [from.get(key), to.get(key)], &numbers, &params))
        .collect();
    join_renamed(&mut changes, &params);
    changes
}

/// The calls of both sides: those that the specs name, or all.
pub(super) fn in_scope(sides: &Sides<'_>, scope: Scope) -> [Calls; 2] {
    let both = [sides.from, sides.to];
    let of = |side: Side<'_>| match scope {
        Scope::Items => (named_by_spec(side), Calls::new()),
        Scope::All => (named_by_spec(side), driver_calls(side)),
    };
    let ((from, of_from), (to, of_to)) = parallel::both(|| of(sides.from), || of(sides.to));
    let mut named = [from, to];
    let mut unnamed = [Vec::new(), Vec::new()];
    for (side, of_driver) in [of_from, of_to].into_iter().enumerate() {
        let other = 1 - side;
        for (key, mut state) in of_driver {
            if named[side].contains_key(&key) {
                continue;
            }
            // What the spec of one branch says of a call holds for the other's, which does not name
            // it.
            if let Some(named) = named[other].get(&key) {
                (state.fds, state.pointers) = (named.fds.clone(), named.pointers.clone());
                let type_of = |name: &String| resolved(both[other], name);
                if named.params.iter().map(type_of).any(|name| state.params.contains(&name)) {
                    state.params.clone_from(&named.params);
                }
            }
            unnamed[side].push((key, state));
        }
    }
    for (calls, more) in named.iter_mut().zip(unnamed) {
        calls.extend(more);
    }
    named
}

/// The calls that concern some names: those among them, and those that take a type among them, where the names
/// have no call that takes it.
pub(super) fn concerned<'a>(
    [from, to]: &'a [Calls; 2],
    names: &BTreeSet<&'a str>,
) -> BTreeSet<&'a str> {
    let mut takers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((_, call), state) in from.iter().chain(to) {
        for taken in state.params.iter().filter(|taken| names.contains(taken.as_str())) {
            takers.entry(taken).or_default().insert(call);
        }
    }
    takers.retain(|_, takers| takers.is_disjoint(names));
    takers.into_values().flatten().chain(names.iter().copied()).collect()
}

/// When two lists of parameters are the same types.
struct Params<'a> {
    sides: [Side<'a>; 2],
    /// The records whose name alone differs: what they are called on the second side.
    renamed: BTreeMap<&'a str, &'a str>,
}

impl<'a> Params<'a> {
    fn new(sides: &Sides<'a>, records: &'a [RecordChange]) -> Self {
        let renamed = records.iter().filter_map(|r| Some((r.name_before.as_deref()?, &*r.name)));
        Self { sides: [sides.from, sides.to], renamed: renamed.collect() }
    }

    /// Whether they are the same on both sides, through typedefs.
    fn alike(&self, before: &CallState, after: &CallState) -> bool {
        each(before, after, |x, y| self.one_alike(x, y))
    }

    /// Whether they are alike, or were renamed with all their fields.
    fn same(&self, before: &CallState, after: &CallState) -> bool {
        each(before, after, |x, y| {
            let renamed = self.renamed.get(&*resolved(self.sides[0], x));
            self.one_alike(x, y) || renamed.is_some_and(|now| *now == resolved(self.sides[1], y))
        })
    }

    fn one_alike(&self, x: &str, y: &str) -> bool {
        if x == y {
            return true;
        }
        // A name may have become a typedef of the other, or ceased to be one.
        let on = |side: usize| resolved(self.sides[side], x) == resolved(self.sides[side], y);
        on(0) || on(1) || resolved(self.sides[0], x) == resolved(self.sides[1], y)
    }
}

fn each(before: &CallState, after: &CallState, alike: impl Fn(&str, &str) -> bool) -> bool {
    before.params.len() == after.params.len()
        && before.params.iter().zip(&after.params).all(|(x, y)| alike(x, y))
}

fn change(
    key: &Key,
    [before, after]: [Option<&CallState>; 2],
    numbers: &[Numbers; 2],
    params: &Params<'_>,
) -> Option<CallChange> {
    let alike = |(before, after): (&CallState, &CallState)| {
        (before.number, before.unmapped) == (after.number, after.unmapped)
            && before.same_roles(after)
            && before.access_within(after)
            && after.access_within(before)
            && params.alike(before, after)
    };
    if before.zip(after).is_some_and(alike) {
        return None;
    }
    let other = |at: usize, state: Option<&CallState>| {
        numbers[at].other_than(key, state?.number, &numbers[1 - at])
    };
    let alone = before.xor(after);
    let mut change = CallChange {
        kind: key.0,
        name: key.1.clone(),
        name_before: None,
        class: Class::Harmless,
        before: before.cloned(),
        after: after.cloned(),
        same_params: before.zip(after).is_some_and(|(before, after)| params.same(before, after)),
        number_now: other(1, before),
        number_was: other(0, after),
        alias_of: alone.and_then(|state| numbers[0].shared(key, state.number, &numbers[1])),
    };
    change.class = change.classify();
    Some(change)
}

/// The names of one side's calls, by number.
struct Numbers(BTreeMap<(ItemKind, i128), BTreeSet<String>>);

impl Numbers {
    /// Those in scope, and every command that is called as one: a number may come from, or go to,
    /// one that no spec names.
    fn new(side: Side<'_>, calls: &Calls) -> Self {
        let mut names: BTreeMap<(ItemKind, i128), BTreeSet<String>> = BTreeMap::new();
        for ((kind, name), state) in calls {
            names.entry((*kind, state.number)).or_default().insert(name.clone());
        }
        let constants = side.facts.surfaces.values().flat_map(|surface| &surface.constants);
        for (name, constant) in constants.filter(|(name, c)| is_command(name, c.value)) {
            let named = names.entry((ItemKind::Control, constant.value)).or_default();
            named.insert(name.clone());
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

    /// Another name than `key` that `number` has on both sides.
    fn shared(&self, key: &Key, number: i128, other: &Self) -> Option<String> {
        let (names, there) = (self.0.get(&(key.0, number))?, other.0.get(&(key.0, number))?);
        names.iter().find(|name| **name != key.1 && there.contains(*name)).cloned()
    }
}

/// Joins a call that is gone and a new one with its number, when their parameters are the same.
fn join_renamed(changes: &mut Vec<CallChange>, params: &Params<'_>) {
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
        if params.same(before, after) && before.same_roles(after) && !taken.contains(&key) {
            change.before = Some(before.clone());
            change.name_before = Some(old.clone());
            change.same_params = true;
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
    let told = |name: &str| side.facts.surfaces.values().find_map(|s| s.calls.get(name));
    for item in side.spec.items_at(&side.facts.tag) {
        if let Some((number, source)) = number(side, item) {
            let known = |name: &&nvabi_pipeline::spec::Named| is_known(side, &name.name);
            let names = |list: &[nvabi_pipeline::spec::Named]| {
                list.iter().map(|n| n.name.clone()).collect()
            };
            let state = CallState {
                number,
                params: item.params.iter().filter(known).map(|n| n.name.clone()).collect(),
                unmapped: false,
                fds: names(&item.fds),
                pointers: item.pointers.iter().map(|p| p.field.name.clone()).collect(),
                access: told(&item.name).and_then(|call| call.takes.access.clone()),
                source,
            };
            calls.insert((item.kind, item.name.clone()), state);
        }
    }
    calls
}

fn number(side: Side<'_>, item: &Item) -> Option<(i128, Option<Source>)> {
    match constant(side, &item.name) {
        Some((number, source)) => Some((number, Some(source))),
        None => item.number.map(|number| (i128::from(number), None)),
    }
}

/// The constant or enumerator of that name, in the first surface that has it.
fn constant(side: Side<'_>, name: &str) -> Option<(i128, Source)> {
    let surfaces = || side.spec.surfaces.iter().filter_map(|s| side.facts.surfaces.get(&s.name));
    let constant = surfaces().find_map(|surface| surface.constants.get(name));
    let of_enums = || {
        let enums = surfaces().flat_map(|surface| surface.enums.values());
        let mut found = enums.filter_map(|e| Some((*e.variants.get(name)?, e.source.clone())));
        found.next()
    };
    constant.map(|c| (c.value, c.source.clone())).or_else(of_enums)
}

fn is_known(side: Side<'_>, name: &str) -> bool {
    let mut surfaces = side.facts.surfaces.values();
    find_record(side.facts, side.spec, name).is_some()
        || surfaces.any(|s| s.aliases.contains_key(name) || s.enums.contains_key(name))
}

/// The calls that the driver's own sources tell of: see [`known`].
fn driver_calls(side: Side<'_>) -> Calls {
    let calls = side.facts.surfaces.values().flat_map(|surface| &surface.calls);
    // The first surface that has one says it. Thousands of calls ask.
    let surfaces = side.facts.surfaces.values().rev();
    let constants: FxHashMap<&String, &Constant> = surfaces.flat_map(|s| &s.constants).collect();
    let call = |(name, call): (&String, &Call)| {
        let takes = &call.takes;
        let constant = constants.get(name)?;
        let state = CallState {
            number: constant.value,
            params: takes.params.iter().map(|ty| resolved(side, ty)).collect(),
            unmapped: !takes.is_mapped(),
            fds: Vec::new(),
            pointers: Vec::new(),
            access: takes.access.clone(),
            source: Some(call.source.clone()),
        };
        Some(((known::kind(takes), name.clone()), state))
    };
    let calls = calls.filter(|(_, call)| known::is_in_driver(&call.takes)).filter_map(call);
    let display = display::ioctls(side.facts);
    calls.chain(display.iter().map(|ioctl| of_display(side, ioctl))).collect()
}

fn of_display(side: Side<'_>, ioctl: &display::Ioctl<'_>) -> (Key, CallState) {
    let state = CallState {
        number: ioctl.number,
        params: ioctl.params.into_iter().map(str::to_owned).collect(),
        unmapped: !ioctl.is_mapped(),
        fds: Vec::new(),
        pointers: Vec::new(),
        access: None,
        source: constant(side, ioctl.name).map(|(_, source)| source),
    };
    ((ItemKind::Ioctl, ioctl.name.to_owned()), state)
}

/// What a typedef stands for: another name for the same parameters is no change.
fn resolved(side: Side<'_>, ty: &str) -> String {
    let record = find_record(side.facts, side.spec, ty);
    record.map_or(ty, |(_, name, _)| name).to_owned()
}

/// Whether it is a control command: `NV2080_CTRL_CMD_…` is of class 0x2080, and its number says so.
fn is_command(name: &str, number: i128) -> bool {
    let class = name.strip_prefix("NV").and_then(|rest| rest.split_at_checked(4));
    class.is_some_and(|(class, rest)| {
        let class = u32::from_str_radix(class, 16).ok();
        rest.starts_with("_CTRL_CMD_") && class.map(i128::from) == Some(number >> 16)
    })
}

/// Patterns for the commands of the classes that specs name commands of: a number of theirs may come
/// from, or go to, one that no spec names.
pub fn commands_beside(specs: &[&Spec]) -> BTreeSet<String> {
    let controls = specs.iter().flat_map(|spec| &spec.items);
    let controls = controls.filter(|item| item.kind == ItemKind::Control);
    controls
        .filter_map(|item| Some(format!("{}_CTRL_CMD_*", item.name.split_once("_CTRL_CMD_")?.0)))
        .collect()
}
