//! Calls over all tags: as the specs have them, and beyond the specs as the driver has them.

use std::collections::BTreeMap;
use std::ops::Range;

use super::history::{Surface, at};
use nvabi_pipeline::known::{self, display};
use nvabi_pipeline::lock::{Fact, Lock};
use nvabi_pipeline::model::{CallParams, ParamSource};
use nvabi_pipeline::spec::{Direction, Item, ItemKind, Pointer, Spec};

/// A call and its states in tag order.
pub(super) struct Call<'a> {
    pub(super) kind: ItemKind,
    pub(super) name: &'a str,
    pub(super) states: Vec<State<'a>>,
}

/// What holds for some tags.
pub(super) struct State<'a> {
    pub(super) tags: Range<usize>,
    pub(super) number: Option<i128>,
    pub(super) params: Vec<&'a str>,
    /// From the spec; `None` where only the driver has the call.
    pub(super) roles: Option<Roles>,
    /// How the lock knows the parameters.
    pub(super) how: String,
}

/// What the spec says of the parameters, as text.
#[derive(PartialEq, Eq)]
pub(super) struct Roles {
    pub(super) fds: String,
    pub(super) pointers: String,
    pub(super) caps: String,
    pub(super) note: String,
}

impl State<'_> {
    /// Whether the driver has the call otherwise; capabilities and notes are not the driver's.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let roles = |one: &Self, two: &Self| match (&one.roles, &two.roles) {
            (Some(one), Some(two)) => (&one.fds, &one.pointers) != (&two.fds, &two.pointers),
            _ => false,
        };
        self.number != other.number || self.params != other.params || roles(self, other)
    }
}

type Found<'a> = BTreeMap<(ItemKind, &'a str), Vec<State<'a>>>;

/// Every call, by kind and name. At tags where the spec has the call, the spec is what counts.
pub(super) fn calls<'a>(
    lock: &'a Lock,
    specs: &'a [Spec],
    surfaces: &[Surface<'a>],
) -> Vec<Call<'a>> {
    let mut found = Found::new();
    for (tag, locked) in lock.tags.iter().enumerate() {
        let of_branch = |spec: &&Spec| spec.driver == locked.tag.branch();
        let Some(spec) = specs.iter().find(of_branch) else { continue };
        for item in spec.items.iter().filter(|item| item.holds_at(&locked.tag)) {
            let state = of_spec(item, tag, surfaces);
            add(found.entry((item.kind, item.name.as_str())).or_default(), state);
        }
    }
    for (name, spans) in surfaces.iter().flat_map(|surface| &surface.calls) {
        for span in spans {
            let Fact::Call(call) = span.fact else { continue };
            let states = found.entry((known::kind(call), name)).or_default();
            for tag in span.tags.clone() {
                if !is_in_spec(states, tag) {
                    add(states, of_lock(call, name, tag, surfaces));
                }
            }
        }
    }
    let ioctls = display::Ioctls::of_lock(lock);
    for tag in 0..lock.tags.len() {
        for ioctl in ioctls.at(tag, &|_| true) {
            let states = found.entry((ItemKind::Ioctl, ioctl.name)).or_default();
            if !is_in_spec(states, tag) {
                add(states, of_display(&ioctl, tag));
            }
        }
    }
    let calls = found.into_iter().map(|((kind, name), mut states)| {
        states.sort_by_key(|state| state.tags.start);
        Call { kind, name, states }
    });
    calls.filter(|call| !call.states.is_empty()).collect()
}

fn is_in_spec(states: &[State<'_>], tag: usize) -> bool {
    states.iter().any(|state| state.roles.is_some() && state.tags.contains(&tag))
}

/// Adds the state of one tag, or lets the one before go on.
fn add<'a>(states: &mut Vec<State<'a>>, state: State<'a>) {
    match states.last_mut() {
        Some(last)
            if last.tags.end == state.tags.start
                && last.number == state.number
                && last.params == state.params
                && last.roles == state.roles
                && last.how == state.how =>
        {
            last.tags.end = state.tags.end;
        }
        _ => states.push(state),
    }
}

fn of_spec<'a>(item: &'a Item, tag: usize, surfaces: &[Surface<'_>]) -> State<'a> {
    let join = |words: Vec<&str>| words.join(", ");
    State {
        tags: tag..tag + 1,
        number: number(&item.name, tag, surfaces).or(item.number.map(i128::from)),
        params: item.params.iter().map(|p| p.name.as_str()).collect(),
        how: String::new(),
        roles: Some(Roles {
            fds: join(item.fds.iter().map(|fd| fd.name.as_str()).collect()),
            pointers: item.pointers.iter().map(pointer).collect::<Vec<_>>().join("; "),
            caps: join(item.caps.iter().map(String::as_str).collect()),
            note: item.note.clone().unwrap_or_default(),
        }),
    }
}

fn of_lock<'a>(
    call: &'a CallParams,
    name: &str,
    tag: usize,
    surfaces: &[Surface<'_>],
) -> State<'a> {
    State {
        tags: tag..tag + 1,
        number: number(name, tag, surfaces),
        params: call.params.as_deref().into_iter().collect(),
        roles: None,
        how: how(call),
    }
}

fn of_display<'a>(ioctl: &display::Ioctl<'a>, tag: usize) -> State<'a> {
    let how = match (ioctl.params, ioctl.is_mapped()) {
        (Some(_), _) => NAMED,
        (None, true) => "its request says that there are none",
        (None, false) => UNKNOWN,
    };
    State {
        tags: tag..tag + 1,
        number: Some(ioctl.number),
        params: ioctl.params.into_iter().collect(),
        roles: None,
        how: how.to_owned(),
    }
}

const NAMED: &str = "a type has the name of the call";
const UNKNOWN: &str = "parameters unknown";

/// For a person: where the parameters are known from, and what else is.
fn how(call: &CallParams) -> String {
    let how = match call.how {
        ParamSource::Finn => "the header names the struct",
        ParamSource::Table => "from the driver's table of methods",
        ParamSource::Name => NAMED,
        ParamSource::Null => "the driver looks at no parameters",
        ParamSource::List => "from the driver's list of classes",
        ParamSource::NoEvidence => UNKNOWN,
        ParamSource::NoType => "the type is in no header",
        ParamSource::NoConstant => "the number is no constant of the headers",
        ParamSource::NoResource => "not in the driver's list of classes",
    };
    let mut words = vec![how.to_owned()];
    if call.checked {
        words.push("a second source agrees".to_owned());
    }
    words.extend(call.differs.as_ref().map(|ty| format!("a second source says {ty}")));
    if call.optional {
        words.push("may be left out".to_owned());
    }
    words.extend(call.same_as.as_ref().map(|name| format!("another name of {name}")));
    words.join("; ")
}

/// The constant or enumerator of that name, in the first surface that has it.
fn number(name: &str, tag: usize, surfaces: &[Surface<'_>]) -> Option<i128> {
    let constant = |surface: &Surface<'_>| match at(surface.constants.get(name)?, tag)?.fact {
        Fact::Constant(value) => Some(*value),
        _ => None,
    };
    let enumerator = |surface: &Surface<'_>| {
        surface.enums.values().find_map(|spans| match at(spans, tag)?.fact {
            Fact::Enum { variants, .. } => variants.get(name).copied(),
            _ => None,
        })
    };
    (surfaces.iter().find_map(constant)).or_else(|| surfaces.iter().find_map(enumerator))
}

/// `params: paramsSize bytes, in and out`.
fn pointer(pointer: &Pointer) -> String {
    let mut text = pointer.field.name.clone();
    let mut words = Vec::new();
    match (&pointer.len, &pointer.of) {
        (Some(len), Some(of)) => words.push(format!("{len} × {}", of.name)),
        (Some(len), None) => words.push(format!("{len} bytes")),
        (None, Some(of)) => words.push(of.name.clone()),
        (None, None) => {}
    }
    words.extend(pointer.dir.map(|dir| {
        let dir = match dir {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::InOut => "in and out",
        };
        dir.to_owned()
    }));
    if pointer.opaque {
        words.push("not followed".to_owned());
    }
    if !words.is_empty() {
        text.push_str(": ");
        text.push_str(&words.join(", "));
    }
    text
}
