//! Calls that the lock knows and no spec names: numbers and parameters, and nothing of roles.

use std::collections::HashMap;

use crate::lock::{Fact, History, Lock, state_at};
use crate::model::{CALLS, Takes};
use crate::spec::{Item, ItemKind, Named, Spec, SpecPlace};

/// A spec with an item for each command and class that the lock has the parameters of and the spec
/// does not name. Those that are not mapped stay out: nobody knows what they take.
pub(super) fn with_all_calls(lock: &Lock, spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    // Where the spec names the sources of what calls take; without them there is nothing to add.
    let Some(from) = spec.surfaces.iter().find(|surface| !surface.calls.is_empty()) else {
        return spec;
    };
    let place = from.place.clone();
    let tags: Vec<usize> =
        (0..lock.tags.len()).filter(|i| lock.tags[*i].tag.branch() == spec.driver).collect();
    let mut added = Vec::new();
    {
        let stated = Stated::new(&spec);
        let headers = lock.headers.iter().filter(|((surface, _), _)| surface == CALLS);
        for ((_, name), history) in headers.flat_map(|(_, header)| &header.items) {
            for run in runs(lock, &tags, &stated, name, history) {
                added.push(item(lock, name, run, &place));
            }
        }
    }
    added.sort_by(|a, b| (a.kind, &a.name, &a.since).cmp(&(b.kind, &b.name, &b.since)));
    spec.items.extend(added);
    spec
}

/// The items that a spec has itself, by what they are of.
struct Stated<'s>(HashMap<(ItemKind, &'s str), Vec<&'s Item>>);

impl<'s> Stated<'s> {
    fn new(spec: &'s Spec) -> Self {
        let mut items: HashMap<_, Vec<&Item>> = HashMap::new();
        for item in &spec.items {
            items.entry((item.kind, item.name.as_str())).or_default().push(item);
        }
        Self(items)
    }

    fn has(&self, lock: &Lock, kind: ItemKind, name: &str, tag: usize) -> bool {
        let items = self.0.get(&(kind, name));
        items.is_some_and(|items| items.iter().any(|item| item.holds_at(&lock.tags[tag].tag)))
    }
}

/// Tags in a row at which a call takes the same.
struct Run<'l> {
    kind: ItemKind,
    params: Option<&'l str>,
    first: usize,
    last: usize,
}

fn runs<'l>(
    lock: &'l Lock,
    tags: &[usize],
    stated: &Stated<'_>,
    name: &str,
    history: &'l History,
) -> Vec<Run<'l>> {
    let mut runs: Vec<Run<'l>> = Vec::new();
    for tag in tags {
        let Some(takes) = state_at(history, *tag).and_then(|placed| takes(&placed.fact)) else {
            continue;
        };
        let kind = if takes.kind == "class" { ItemKind::Class } else { ItemKind::Control };
        if stated.has(lock, kind, name, *tag) {
            continue;
        }
        let params = takes.params.as_deref();
        match runs.last_mut() {
            Some(run) if run.last + 1 == *tag && (run.kind, run.params) == (kind, params) => {
                run.last = *tag;
            }
            _ => runs.push(Run { kind, params, first: *tag, last: *tag }),
        }
    }
    runs
}

fn takes(fact: &Fact) -> Option<&Takes> {
    match fact {
        Fact::Call(takes) if takes.is_mapped() => Some(takes),
        _ => None,
    }
}

fn item(lock: &Lock, name: &str, run: Run<'_>, place: &SpecPlace) -> Item {
    let Run { kind, params, first, last } = run;
    let tag = |i: usize| lock.tags.get(i).map(|locked| locked.tag.clone());
    let params = params.map(|name| Named { name: name.to_owned(), place: place.clone() });
    Item {
        since: tag(first),
        until: tag(last + 1),
        // Where nothing is taken there is nothing to say of it.
        roles_known: params.is_none(),
        parameterless: params.is_none(),
        params: params.into_iter().collect(),
        ..Item::new(kind, name.to_owned(), place.clone())
    }
}
