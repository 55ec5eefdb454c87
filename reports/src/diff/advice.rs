//! What a shim must do about a diff, as far as the facts tell.
//!
//! Two tags tell nothing of those between, before or after them: what is gone may come back. So all
//! that is said is said of one tag or the other.

use serde::Serialize;

use super::text::bytes;
use super::{
    CallChange, Class, Diff, EnumChange, FieldChange, FieldState, Instead, RecordChange, Role,
    TypeChange, ValueState,
};
use crate::words::listed;
use nvabi_pipeline::model::{Caller, hex};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The call or record it is about.
    pub subject: String,
    /// What to do.
    pub what: String,
}

/// What to do about every change of a call or record that is not harmless, and about enums whose values
/// are others. Constants speak for themselves.
pub fn advice(diff: &Diff) -> Vec<Advice> {
    let calls = diff.calls.iter().filter_map(|change| {
        Some(Advice { subject: change.name.clone(), what: call(change, diff)? })
    });
    let records = diff.records.iter().filter(|r| r.carried_by.is_empty()).filter_map(|change| {
        Some(Advice { subject: change.name.clone(), what: record(change, diff)? })
    });
    let enums = diff.enums.iter().filter_map(|change| {
        Some(Advice { subject: change.name.clone(), what: enumeration(change)? })
    });
    calls.chain(records).chain(enums).collect()
}

fn call(change: &CallChange, diff: &Diff) -> Option<String> {
    let (from, to) = (&diff.from, &diff.to);
    let (before, after) = match (&change.before, &change.after, change.class) {
        (_, _, Class::Harmless) | (None, ..) => return None,
        (Some(before), None, _) => {
            let number = hex(before.number);
            return Some(match (&change.alias_of, &change.number_now) {
                (Some(other), _) => format!("gone at {to}, where {number} goes on as {other}"),
                (None, Some(now)) => {
                    format!("gone at {to}, where {number} is {now}: tell them apart by version")
                }
                (None, None) => format!("gone at {to}: refuse {number} there"),
            });
        }
        (Some(before), Some(after), _) => (before, after),
    };
    let mut what = Vec::new();
    if let Some(before) = &change.name_before {
        what.push(format!("was {before} at {from}, see whether it means the same"));
    }
    if before.number != after.number {
        let taken = match &change.number_now {
            Some(now) => format!(", where {} is {now}", hex(before.number)),
            None => String::new(),
        };
        what.push(format!("send {} at {to}{taken}", hex(after.number)));
    }
    // Where nothing tells what it takes, nothing follows.
    if before.params != after.params && before.unmapped == after.unmapped {
        what.push(format!("takes {} at {to}", listed(after.params.iter().cloned())));
    }
    if let Some(access) = after.access.as_ref().filter(|_| !before.access_within(after)) {
        what.push(match access.caller {
            Caller::Nobody => {
                format!("at {to} the driver refuses it: none of its tables has it now")
            }
            _ => format!("at {to} the driver refuses it to all but {}", access.callers()),
        });
    }
    for (role, x, y) in
        [(Role::Fd, &before.fds, &after.fds), (Role::Pointer, &before.pointers, &after.pointers)]
    {
        let only = |a: &[String], b: &[String]| -> Vec<String> {
            a.iter().filter(|path| !b.contains(path)).cloned().collect()
        };
        for path in only(y, x) {
            what.push(format!("translate {path} at {to}: {} there", role.words()));
        }
        for path in only(x, y) {
            what.push(format!("leave {path} alone at {to}: it was {} at {from}", role.words()));
        }
    }
    joined(what)
}

fn joined(what: Vec<String>) -> Option<String> {
    (!what.is_empty()).then(|| what.join("; "))
}

fn record(change: &RecordChange, diff: &Diff) -> Option<String> {
    if change.class == Class::Harmless {
        return None;
    }
    // What takes one that is gone is told of its own: a call, or a record that held it.
    change.after.as_ref()?;
    let mut what = Vec::new();
    if change.class == Class::Break {
        what.push(regenerate(change, diff));
    }
    what.extend(fields(change, diff));
    joined(what)
}

fn enumeration(change: &EnumChange) -> Option<String> {
    let (Some(before), Some(after), Class::Break) = (&change.before, &change.after, change.class)
    else {
        return None;
    };
    let mut what = Vec::new();
    if before.size != after.size {
        what.push(format!("regenerate, {}, not {}", bytes(after.size), bytes(before.size)));
    }
    let others: Vec<String> = (change.enumerators.iter())
        .filter_map(|value| match (&value.before, &value.after) {
            (
                Some(ValueState::Enumerator { value: x }),
                Some(ValueState::Enumerator { value: y }),
            ) if x != y => Some(format!("{} is {} now, not {}", value.name, hex(*y), hex(*x))),
            _ => None,
        })
        .collect();
    if !others.is_empty() {
        what.push(format!("translate its values: {}", listed(others.into_iter())));
    }
    joined(what)
}

fn regenerate(change: &RecordChange, diff: &Diff) -> String {
    let carried: Vec<String> = (diff.records.iter())
        .filter(|other| !other.carried_by.is_empty())
        .filter(|other| change.held_by.iter().any(|holder| holder.record == other.name))
        .map(|other| other.name.clone())
        .collect();
    let size = match change.resized() {
        Some((before, after)) => format!(", {}, not {before}", bytes(after)),
        None => ", the size stays".into(),
    };
    match carried.is_empty() {
        true => format!("regenerate{size}"),
        false => format!("regenerate{size}; with it {}", listed(carried.into_iter())),
    }
}

fn fields(change: &RecordChange, diff: &Diff) -> Vec<String> {
    let (mut moved, mut new, mut unset, mut gone) = (vec![], vec![], vec![], vec![]);
    let mut what = Vec::new();
    for field in change.fields.iter().filter(|field| field.class != Class::Harmless) {
        let name = field.name().to_owned();
        match (&field.before, &field.after, &field.instead) {
            (None, Some(_), Some(Instead::Padding | Instead::Reserved(_))) => {
                unset.push(described(field));
            }
            (None, Some(_), _) => new.push(described(field)),
            (Some(_), None, _) => gone.push(name),
            (Some(x), Some(y), _) if x.is_reserved() && !y.is_reserved() => {
                unset.push(described(field));
            }
            (Some(x), Some(y), _) if x.field.name != y.field.name => {
                what.push(format!(
                    "{} is {} now, see whether it means the same",
                    x.field.name, y.field.name
                ));
            }
            (Some(x), Some(y), _) => {
                if place(x) != place(y) {
                    moved.push(name.clone());
                }
                what.extend(remade(field, x, y));
            }
            (None, None, _) => {}
        }
        what.extend(role(field));
    }
    let mut told = Vec::new();
    let mut list = |names: Vec<String>, one: &str, many: &str| {
        let verb = if names.len() == 1 { one } else { many };
        if !names.is_empty() {
            told.push(format!("{} {verb}", listed(names.into_iter())));
        }
    };
    list(moved, "moved", "moved");
    list(gone, "is gone", "are gone");
    let unaware = format!("and callers built for {} do not set", diff.from);
    list(new, &format!("is new {unaware} it"), &format!("are new {unaware} them"));
    let zero = format!("is new in bytes that callers built for {} leave as they are", diff.from);
    let zeros = zero.replacen("is", "are", 1);
    list(unset, &format!("{zero}: zero it for them"), &format!("{zeros}: zero them for them"));
    told.extend(what);
    told
}

/// The first bit, from the record's start.
fn place(state: &FieldState) -> u64 {
    state.field.offset * 8 + state.field.bits.map_or(0, |bits| bits.bit_offset)
}

/// What it is now, where its bytes are more, fewer, or something else.
fn remade(field: &FieldChange, x: &FieldState, y: &FieldState) -> Option<String> {
    let width = |state: &FieldState| match state.field.bits {
        Some(bits) => format!("{} bits", bits.bit_width),
        None => bytes(state.field.size),
    };
    if width(x) == width(y)
        && matches!(field.retyped, None | Some(TypeChange::Spelling | TypeChange::Length))
    {
        return None;
    }
    // A struct that grew is called as before.
    let pairs = [
        (y.field.ty.clone(), x.field.ty.clone()),
        (y.field.canonical.clone(), x.field.canonical.clone()),
        (width(y), width(x)),
    ];
    let name = field.name();
    Some(match pairs.iter().find(|(now, before)| now != before) {
        Some((now, before)) => format!("{name} is {now} now, not {before}"),
        None => format!("{name} is made of something else"),
    })
}

fn described(field: &FieldChange) -> String {
    let length = field.after.as_ref().and_then(|state| state.length_of.as_ref());
    match length {
        Some(pointer) => format!("{} (the length of {pointer})", field.name()),
        None => field.name().to_owned(),
    }
}

/// What to translate that was not translated before, or the other way round.
fn role(field: &FieldChange) -> Option<String> {
    let role = |state: &Option<FieldState>| {
        state.as_ref().and_then(|s| s.role).filter(|role| *role != Role::Handle)
    };
    let (before, after) = (role(&field.before), role(&field.after));
    match (before, after) {
        (before, Some(after)) if before != Some(after) => {
            Some(format!("translate {}, {}", field.name(), after.words()))
        }
        (Some(before), None) if field.after.is_some() => {
            Some(format!("{} is no longer {}", field.name(), before.words()))
        }
        _ => None,
    }
}
