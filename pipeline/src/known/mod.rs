//! Which calls there are at a tag, and what they take: what a spec names, and beyond that what the driver
//! itself tells.
//!
//! Commands and classes are facts of the lock, from the driver's own tables (`crate::calls`); ioctls of
//! the display are known by their names ([`display`]). Of roles nothing of this tells.

pub mod display;

use std::collections::HashMap;

use crate::lock::{Fact, History, Lock, state_at};
use crate::model::{CALLS, CallKind, CallParams};
use crate::spec::{Item, ItemKind, Named, Spec, SpecPlace};

/// Whether the driver has it: a class that its resource list lacks is a name in a header.
pub fn is_in_driver(takes: &CallParams) -> bool {
    takes.is_mapped() || takes.kind != CallKind::Class
}

/// Which table a command or class is of.
pub fn kind(takes: &CallParams) -> ItemKind {
    match takes.kind {
        CallKind::Class => ItemKind::Class,
        CallKind::Command => ItemKind::Control,
    }
}

/// A spec with an item for each command and class that the lock has the parameters of and the spec
/// does not name. Those that are not mapped stay out: nobody knows what they take.
pub fn with_all_calls(lock: &Lock, spec: &Spec) -> Spec {
    with_calls(lock, spec, &|_, takes| takes.is_mapped())
}

/// A spec with an item for each call that the driver has, the spec does not name, and somebody wants.
pub fn with_driver_calls(lock: &Lock, spec: &Spec, wanted: &dyn Fn(&str) -> bool) -> Spec {
    let mut spec = with_calls(lock, spec, &|name, takes| wanted(name) && is_in_driver(takes));
    if !has_display_ioctl(lock, wanted) {
        return spec;
    }
    let Some(place) = spec.surfaces.first().map(|surface| surface.place.clone()) else {
        return spec;
    };
    let mut added: Vec<Item> = Vec::new();
    {
        let stated = Stated::new(&spec);
        let mut runs: HashMap<(&str, &str), Vec<Run<'_>>> = HashMap::new();
        let ioctls = display::Ioctls::of_lock(lock);
        for tag in tags_of(lock, &spec) {
            for ioctl in ioctls.at(tag, wanted) {
                if !stated.has(lock, ItemKind::Ioctl, ioctl.name, tag) {
                    let run = Run::new(ItemKind::Ioctl, ioctl.params, ioctl.is_mapped(), tag);
                    add(runs.entry((ioctl.surface, ioctl.name)).or_default(), run);
                }
            }
        }
        for ((surface, name), runs) in runs {
            let node = spec.surface_node(surface);
            let items = runs.into_iter().map(|run| item(lock, name, run, &place));
            added.extend(items.map(|item| Item { node: node.cloned(), ..item }));
        }
    }
    added.sort_by(|a, b| (&a.name, &a.since).cmp(&(&b.name, &b.since)));
    spec.items.extend(added);
    spec
}

/// Whether any tag has an ioctl of the display that is wanted: telling what they take is slow.
fn has_display_ioctl(lock: &Lock, wanted: &dyn Fn(&str) -> bool) -> bool {
    let is_wanted = |name: &str| display::is_ioctl(name) && wanted(name);
    let headers = lock.headers.iter().filter(|((of, _), _)| display::SURFACES.contains(&&**of));
    let mut items = headers.flat_map(|(_, header)| &header.items);
    items.any(|((_, name), history)| {
        let states = history.iter().filter_map(|state| state.value.as_ref());
        let variants = states.filter_map(|placed| match &*placed.fact {
            Fact::Enum { variants, .. } => Some(variants.keys()),
            _ => None,
        });
        is_wanted(name) || variants.flatten().any(|variant| is_wanted(variant))
    })
}

fn tags_of(lock: &Lock, spec: &Spec) -> Vec<usize> {
    (0..lock.tags.len()).filter(|i| lock.tags[*i].tag.branch() == spec.driver).collect()
}

type Wanted<'w> = dyn Fn(&str, &CallParams) -> bool + 'w;

fn with_calls(lock: &Lock, spec: &Spec, wanted: &Wanted<'_>) -> Spec {
    let mut spec = spec.clone();
    // Where the spec names the sources of what calls take; without them there is nothing to add.
    let Some(from) = spec.surfaces.iter().find(|surface| !surface.calls.is_empty()) else {
        return spec;
    };
    let place = from.place.clone();
    let tags = tags_of(lock, &spec);
    let mut added = Vec::new();
    {
        let stated = Stated::new(&spec);
        let headers = lock.headers.iter().filter(|((surface, _), _)| surface == CALLS);
        for ((_, name), history) in headers.flat_map(|(_, header)| &header.items) {
            for run in runs(lock, &tags, &stated, name, history, wanted) {
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
    /// Whether it is known what it takes.
    mapped: bool,
    first: usize,
    last: usize,
}

impl<'l> Run<'l> {
    fn new(kind: ItemKind, params: Option<&'l str>, mapped: bool, tag: usize) -> Self {
        Self { kind, params, mapped, first: tag, last: tag }
    }
}

/// Adds the run of one tag, or lets the one before go on.
fn add<'l>(runs: &mut Vec<Run<'l>>, new: Run<'l>) {
    let same = |run: &Run<'l>| {
        run.last + 1 == new.first
            && (run.kind, run.params, run.mapped) == (new.kind, new.params, new.mapped)
    };
    match runs.last_mut() {
        Some(run) if same(run) => run.last = new.last,
        _ => runs.push(new),
    }
}

fn runs<'l>(
    lock: &'l Lock,
    tags: &[usize],
    stated: &Stated<'_>,
    name: &str,
    history: &'l History,
    wanted: &Wanted<'_>,
) -> Vec<Run<'l>> {
    let mut runs = Vec::new();
    for tag in tags {
        let Some(Fact::Call(takes)) = state_at(history, *tag).map(|placed| &*placed.fact) else {
            continue;
        };
        let kind = kind(takes);
        if wanted(name, takes) && !stated.has(lock, kind, name, *tag) {
            let params = takes.params.as_deref().filter(|_| takes.is_mapped());
            add(&mut runs, Run::new(kind, params, takes.is_mapped(), *tag));
        }
    }
    runs
}

fn item(lock: &Lock, name: &str, run: Run<'_>, place: &SpecPlace) -> Item {
    let Run { kind, params, mapped, first, last } = run;
    let tag = |i: usize| lock.tags.get(i).map(|locked| locked.tag.clone());
    let params = params.map(|name| Named { name: name.to_owned(), place: place.clone() });
    Item {
        since: tag(first),
        until: tag(last + 1),
        // Where nothing is taken there is nothing to say of it.
        roles_known: mapped && params.is_none(),
        parameterless: mapped && params.is_none(),
        params: params.into_iter().collect(),
        ..Item::new(kind, name.to_owned(), place.clone())
    }
}
