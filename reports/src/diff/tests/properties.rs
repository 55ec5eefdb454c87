//! What holds for any tags, tried on those of the lock.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use crate::diff::calls::{self, Calls};
use crate::diff::scope::Names;
use crate::diff::{self, Diff, RecordChange, Scope, Side, Sides};
use nvabi_pipeline::known::is_in_driver;
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::{Facts, Record, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;

struct Locked {
    /// What the items of all specs need, to compare in the default scope.
    items: Lock,
    all: Lock,
    specs: Vec<Spec>,
}

static LOCKED: LazyLock<Locked> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
    let specs = Spec::load_family(&folder, "").unwrap();
    let (all, report) = lock::read(&folder.join("lock")).unwrap();
    assert_eq!(report.to_string(), "");
    let every: Vec<&Spec> = specs.iter().collect();
    let commands = diff::commands_beside(&every);
    let constants: Vec<&str> = commands.iter().map(String::as_str).collect();
    let part = lock::Part { specs: &every, constants: &constants, lines: true };
    Locked { items: lock::read_part(&folder.join("lock"), part).unwrap(), all, specs }
});

fn lock(scope: Scope) -> &'static Lock {
    match scope {
        Scope::Items => &LOCKED.items,
        Scope::All => &LOCKED.all,
    }
}

fn side(facts: &Facts) -> Side<'_> {
    let spec = LOCKED.specs.iter().find(|spec| spec.driver == facts.tag.branch()).unwrap();
    Side { facts, spec }
}

fn sides<'f>(from: &'f Facts, to: &'f Facts) -> Sides<'f> {
    Sides { from: side(from), to: side(to) }
}

fn compare(from: &Facts, to: &Facts, scope: Scope) -> Diff {
    diff::diff(side(from), side(to), scope)
}

/// Tags of the lock by chance, one after the other: the same in every run, and others with `NVABI_SEED`.
struct Tags(u64);

impl Tags {
    fn new() -> Self {
        let seed = std::env::var("NVABI_SEED").map_or(1, |text| text.parse().unwrap());
        println!("NVABI_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> &'static Tag {
        // Knuth's generator; its high bits are good enough to choose tags with.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let tags = &LOCKED.all.tags;
        &tags[usize::try_from(self.0 >> 33).unwrap() % tags.len()].tag
    }

    fn facts(&mut self, count: usize, scope: Scope) -> Vec<Facts> {
        (0..count).map(|_| lock(scope).facts(self.next()).unwrap()).collect()
    }
}

/// How many tags to try in each scope: everything takes long to compare in a debug build.
const TRIED: [(Scope, usize); 2] = [(Scope::Items, 24), (Scope::All, 4)];

#[test]
fn a_tag_does_not_differ_from_itself() {
    let mut tags = Tags::new();
    for (scope, _) in TRIED {
        for facts in tags.facts(2, scope) {
            let found = compare(&facts, &facts, scope);
            assert!(found.is_empty() && found.records.is_empty(), "{}", facts.tag);
        }
    }
}

#[test]
fn a_diff_reversed_is_the_diff_of_the_reverse() {
    let mut tags = Tags::new();
    for (scope, count) in TRIED {
        for pair in tags.facts(count / 2, scope).windows(2) {
            let there = compare(&pair[0], &pair[1], scope);
            let back = compare(&pair[1], &pair[0], scope);
            let title = format!("{} {} {scope:?}", pair[0].tag, pair[1].tag);
            assert!(there.reversed() == back, "{title}");
            assert!(back.reversed() == there, "{title}");
            assert_eq!(there.is_empty(), back.is_empty(), "{title}");
        }
    }
}

/// What a change is about: the surface, the sort of item, its name, and what of it.
type Event = (String, &'static str, String, String);

/// From A to B and on to C nothing happens that does not happen from A to C, unless it is undone;
/// and nothing happens from A to C that happens on neither way.
#[test]
fn diffs_compose() {
    compose(TRIED[0]);
}

#[test]
fn diffs_of_everything_compose() {
    compose(TRIED[1]);
}

fn compose((scope, count): (Scope, usize)) {
    let facts = Tags::new().facts(count, scope);
    let events = |[from, to]: [&Facts; 2]| events(&compare(from, to, scope), from, to);
    let steps: Vec<_> = facts.windows(2).map(|pair| events([&pair[0], &pair[1]])).collect();
    for (triple, steps) in facts.windows(3).zip(steps.windows(2)) {
        let [a, b, c] = triple else { continue };
        composes([a, b, c], scope, &events([a, c]), steps);
    }
}

fn composes([a, b, c]: [&Facts; 3], scope: Scope, whole: &Events, steps: &[Events]) {
    let title = format!("{} {} {} {scope:?}", a.tag, b.tag, c.tag);
    let pairs = [[a, b], [b, c], [a, c]];
    let calls = pairs.map(|[from, to]| calls::in_scope(&sides(from, to), scope));
    let told = |at: usize| Reported::new(pairs[at], scope, &calls[at]);
    let [ab, bc, ac] = [0, 1, 2].map(told);
    let lost = |event: &&Event| !whole.contains(event) && !undone(event, a, c);
    let made = |event: &&Event| !steps.iter().any(|step| step.contains(event));
    let lost = steps.iter().flatten().filter(|event| ac.has(event)).filter(lost);
    let made = whole.iter().filter(|event| ab.has(event) && bc.has(event)).filter(made);
    let mut wrong = lost.chain(made).filter(|event| !of_typedef(event, [a, b, c]));
    assert_eq!(wrong.next(), None, "{title}");
}

/// What a diff between two tags reports: in the default scope, types and constants that only a third
/// tag's spec names are not compared. Calls are named wherever the driver has them.
struct Reported<'f> {
    facts: [&'f Facts; 2],
    names: Names<'f>,
}

impl<'f> Reported<'f> {
    fn new([from, to]: [&'f Facts; 2], scope: Scope, calls: &'f [Calls; 2]) -> Self {
        Self { facts: [from, to], names: Names::new(&sides(from, to), scope, calls) }
    }

    fn has(&self, (surface, kind, name, _): &Event) -> bool {
        match *kind {
            "call" => true,
            "constant" | "bits" => self.names.has_constant(name),
            "enum" => {
                let enums = self.facts.map(|facts| get(facts, surface, |s| s.enums.get(name)));
                let variants = enums.into_iter().flatten().flat_map(|e| e.variants.keys());
                self.names.has_enum(name, variants)
            }
            _ => self.names.has_type(name),
        }
    }
}

/// What the default scope reports of calls is reported too where everything is compared.
#[test]
fn the_default_scope_tells_of_no_other_calls() {
    let mut tags = Tags::new();
    let facts = tags.facts(3, Scope::All);
    for pair in facts.windows(2) {
        let calls = |scope| -> Vec<diff::CallChange> { compare(&pair[0], &pair[1], scope).calls };
        let all = calls(Scope::All);
        for call in calls(Scope::Items) {
            let told = all.iter().any(|other| (other.kind, &other.name) == (call.kind, &call.name));
            assert!(told, "{} {}: {}", pair[0].tag, pair[1].tag, call.name);
        }
    }
}

type Events = BTreeSet<Event>;

fn events(found: &Diff, from: &Facts, to: &Facts) -> Events {
    let mut events = Events::new();
    for record in &found.records {
        for surface in &record.surfaces {
            add_record(&mut events, surface, record, [from, to]);
        }
    }
    for call in &found.calls {
        let what = |state: &diff::CallState| (state.number, state.params.clone());
        let differs = call.before.as_ref().map(what) != call.after.as_ref().map(what);
        if differs || call.name_before.is_some() {
            for name in call.name_before.iter().chain([&call.name]) {
                events.insert((String::new(), "call", name.clone(), String::new()));
            }
        }
    }
    for e in &found.enums {
        for (surface, value) in
            e.surfaces.iter().flat_map(|s| e.enumerators.iter().map(move |v| (s, v)))
        {
            for name in value.name_before.iter().chain([&value.name]) {
                events.insert((surface.clone(), "enum", e.name.clone(), name.clone()));
            }
        }
    }
    for (kind, list) in
        [("alias", &found.aliases), ("constant", &found.constants), ("bits", &found.bit_ranges)]
    {
        for value in list {
            for surface in &value.surfaces {
                events.insert((surface.clone(), kind, value.name.clone(), String::new()));
            }
        }
    }
    events
}

fn add_record(events: &mut Events, surface: &str, change: &RecordChange, sides: [&Facts; 2]) {
    let mut add = |name: &str, of: &str| {
        events.insert((surface.to_owned(), "record", name.to_owned(), of.to_owned()));
    };
    let shape = |state: &diff::RecordState| (state.kind, state.size, state.align);
    if change.before.as_ref().map(shape) != change.after.as_ref().map(shape) {
        add(&change.name, "");
    }
    for field in &change.fields {
        for state in field.before.iter().chain(&field.after) {
            add(&change.name, &state.field.name);
        }
    }
    // A renamed one is one gone and one new.
    if let Some(before) = &change.name_before {
        for (facts, name) in sides.into_iter().zip([before, &change.name]) {
            add(name, "");
            let fields = record(facts, surface, name).into_iter().flat_map(|r| r.fields.iter());
            fields.for_each(|field| add(name, &field.name));
        }
    }
}

fn get<'f, T>(
    facts: &'f Facts,
    surface: &str,
    get: impl Fn(&'f Surface) -> Option<&'f T>,
) -> Option<&'f T> {
    let own = facts.surfaces.get(surface).and_then(&get);
    let base = surface.split('@').next().unwrap_or_default();
    own.or_else(|| facts.surfaces.get(base).and_then(&get))
}

fn record<'f>(facts: &'f Facts, surface: &str, name: &str) -> Option<&'f Record> {
    let alias = get(facts, surface, |s| s.aliases.get(name));
    let name = alias.map_or(name, |alias| alias.ty.as_str());
    get(facts, surface, |s| s.records.get(name))
}

/// Whether A and C say the same where something changed and changed back.
fn undone((surface, kind, name, of): &Event, a: &Facts, c: &Facts) -> bool {
    match *kind {
        "record" => {
            let [x, y] = [a, c].map(|facts| record(facts, surface, name));
            match of.as_str() {
                "" => {
                    let shape = |r: Option<&Record>| r.map(|r| (r.kind, r.size, r.align));
                    shape(x) == shape(y)
                }
                of => {
                    let field = |r: Option<&'_ Record>| {
                        r.and_then(|r| r.fields.iter().find(|f| f.name == *of).cloned())
                    };
                    field(x) == field(y)
                }
            }
        }
        "enum" => {
            let [x, y] = [a, c].map(|facts| {
                get(facts, surface, |s| s.enums.get(name)).and_then(|e| e.variants.get(of))
            });
            x == y
        }
        "call" => {
            let [x, y] = [a, c].map(|facts| {
                let surfaces = || facts.surfaces.values();
                // A class that the resource list lacks is none, whether or not a header names it.
                let mut calls = surfaces().filter_map(|s| s.calls.get(name));
                if calls.any(|call| !is_in_driver(&call.takes)) {
                    return (None, None);
                }
                let number = surfaces().find_map(|s| Some(s.constants.get(name)?.value));
                let takes = surfaces().find_map(|s| s.calls.get(name)?.takes.params.as_deref());
                // Under another name they are the same.
                let alias = takes.and_then(|ty| get(facts, "rm", |s| s.aliases.get(ty)));
                (number, alias.map(|alias| alias.ty.as_str()).or(takes))
            });
            x == y
        }
        "alias" => {
            let [x, y] = [a, c].map(|facts| get(facts, surface, |s| s.aliases.get(name)));
            x.map(|x| (&x.ty, x.size)) == y.map(|y| (&y.ty, y.size))
        }
        "constant" => {
            let [x, y] = [a, c].map(|facts| get(facts, surface, |s| s.constants.get(name)));
            x.map(|x| x.value) == y.map(|y| y.value)
        }
        _ => {
            let [x, y] = [a, c].map(|facts| get(facts, surface, |s| s.bit_ranges.get(name)));
            x.map(|x| (x.high, x.low)) == y.map(|y| (y.high, y.low))
        }
    }
}

/// Where a name was a record and becomes a typedef, its changes are told of the other record; and what a
/// call takes is the same where one of its names stands for the other.
fn of_typedef((surface, kind, name, _): &Event, tags: [&Facts; 3]) -> bool {
    let is_typedef = |surface: &str, name: &str| {
        tags.iter().any(|facts| get(facts, surface, |s| s.aliases.get(name)).is_some())
    };
    match *kind {
        "call" => tags.iter().any(|facts| {
            let items = side(facts).spec.items_at(&facts.tag).filter(|item| item.name == *name);
            let of_spec = items.flat_map(|item| &item.params).map(|named| named.name.as_str());
            let calls = facts.surfaces.values().filter_map(|surface| surface.calls.get(name));
            let mut params = of_spec.chain(calls.filter_map(|call| call.takes.params.as_deref()));
            params.any(|params| facts.surfaces.keys().any(|surface| is_typedef(surface, params)))
        }),
        _ => is_typedef(surface, name),
    }
}
