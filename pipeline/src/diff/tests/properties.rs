//! What holds for any tags, tried on those of the lock.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use crate::diff::{self, Diff, RecordChange, Scope, Side};
use crate::lock::{self, Lock};
use crate::model::{Facts, Record, Surface};
use crate::spec::Spec;

struct Locked {
    lock: Lock,
    specs: Vec<Spec>,
}

static LOCKED: LazyLock<Locked> = LazyLock::new(|| {
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
    let (lock, report) = lock::read(&specs.join("lock")).unwrap();
    assert_eq!(report.to_string(), "");
    Locked { lock, specs: Spec::load_family(&specs, "").unwrap() }
});

fn spec(facts: &Facts) -> &'static Spec {
    LOCKED.specs.iter().find(|spec| spec.driver == facts.tag.branch()).unwrap()
}

fn compare(from: &Facts, to: &Facts, scope: Scope) -> Diff {
    let (a, b) = (spec(from), spec(to));
    diff::diff(Side { facts: from, spec: a }, Side { facts: to, spec: b }, scope)
}

/// So many tags of the lock, the same in every run.
fn sample(count: usize, mut seed: u64) -> Vec<Facts> {
    let tags: Vec<_> = LOCKED.lock.tags.iter().map(|locked| locked.tag.clone()).collect();
    let mut next = || {
        // Knuth's generator; its high bits are good enough to choose tags with.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % tags.len()
    };
    (0..count).map(|_| LOCKED.lock.facts(&tags[next()]).unwrap()).collect()
}

#[test]
fn a_tag_does_not_differ_from_itself() {
    for facts in sample(2, 1) {
        for scope in [Scope::Items, Scope::All] {
            let found = compare(&facts, &facts, scope);
            assert!(found.is_empty() && found.records.is_empty(), "{}", facts.tag);
        }
    }
}

#[test]
fn a_diff_reversed_is_the_diff_of_the_reverse() {
    for pair in sample(6, 2).chunks_exact(2) {
        for scope in [Scope::Items, Scope::All] {
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
    for triple in sample(9, 3).chunks_exact(3) {
        let [a, b, c] = triple else { continue };
        let events = |from: &Facts, to: &Facts| events(&compare(from, to, Scope::All), from, to);
        let (whole, mut steps) = (events(a, c), events(a, b));
        steps.extend(events(b, c));
        let title = format!("{} {} {}", a.tag, b.tag, c.tag);
        for event in &steps {
            assert!(whole.contains(event) || undone(event, a, c), "{title}: {event:?}");
        }
        for event in whole.iter().filter(|event| !of_typedef(event, [a, b, c])) {
            assert!(steps.contains(event), "{title}: {event:?}");
        }
    }
}

fn events(found: &Diff, from: &Facts, to: &Facts) -> BTreeSet<Event> {
    let mut events = BTreeSet::new();
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

fn add_record(
    events: &mut BTreeSet<Event>,
    surface: &str,
    change: &RecordChange,
    sides: [&Facts; 2],
) {
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
            let fields = record(facts, surface, name).into_iter().flat_map(|r| &r.fields);
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

/// Where a name was a record and becomes a typedef, its changes are told of the other record.
fn of_typedef((surface, _, name, _): &Event, tags: [&Facts; 3]) -> bool {
    tags.iter().any(|facts| get(facts, surface, |s| s.aliases.get(name)).is_some())
}
