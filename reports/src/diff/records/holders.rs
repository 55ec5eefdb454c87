//! Who holds a record by value, and which calls carry it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Holder, Pair, RecordChange};
use crate::diff::calls::Calls;
use crate::diff::{Layer, Side, Sides};
use nvabi_pipeline::model::{Field, split_array};
use rustc_hash::{FxHashMap, FxHashSet};

/// Of one surface, on both sides.
pub(super) struct Holders<'a> {
    /// By record: who holds it directly, and in which field.
    direct: [FxHashMap<&'a str, Vec<(&'a str, &'a Field)>>; 2],
    /// By record: the calls that name it.
    calls: FxHashMap<&'a str, BTreeSet<&'a str>>,
}

/// A record that holds another: how deep, by which path, at which offset.
struct Found<'a> {
    depth: usize,
    record: &'a str,
    path: String,
    offset: u64,
}

impl<'a> Holders<'a> {
    pub(super) fn new(
        sides: &Sides<'a>,
        layers: [Layer<'a>; 2],
        all_calls: &'a [Calls; 2],
        records: &BTreeMap<&'a str, Pair<'a>>,
    ) -> Self {
        let mut direct = [FxHashMap::default(), FxHashMap::default()];
        for (side, by_record) in direct.iter_mut().enumerate() {
            for (name, pair) in records {
                // A typedef's record is met under its own name.
                let own = pair[side].filter(|declared| declared.name == *name);
                for field in own.iter().flat_map(|declared| declared.record.fields.iter()) {
                    let base = split_array(&field.canonical).0;
                    let held: &mut Vec<_> = by_record.entry(base).or_default();
                    held.push((*name, field));
                }
            }
        }
        let mut calls = FxHashMap::default();
        for (side, layer, of_side) in
            [(sides.from, layers[0], &all_calls[0]), (sides.to, layers[1], &all_calls[1])]
        {
            add_calls(side, layer, of_side, &mut calls);
        }
        Self { direct, calls }
    }

    /// Fills in who holds the record and which calls need it.
    pub(super) fn fill(&self, change: &mut RecordChange) {
        let names = [change.name_before.as_ref().unwrap_or(&change.name), &change.name];
        let mut found: BTreeMap<(usize, &str, String), [Option<u64>; 2]> = BTreeMap::new();
        for (side, name) in names.into_iter().enumerate() {
            for holder in self.above(side, name) {
                let key = (holder.depth, holder.record, holder.path);
                found.entry(key).or_default()[side] = Some(holder.offset);
            }
        }
        let owners = found.keys().map(|(_, record, _)| *record);
        let owners = owners.chain(names.map(String::as_str));
        let calls: BTreeSet<&str> =
            owners.filter_map(|owner| self.calls.get(owner)).flatten().copied().collect();
        let calls = calls.into_iter().map(str::to_owned).collect();
        let held_by = found.into_iter().map(|((_, record, path), [before, after])| Holder {
            record: record.to_owned(),
            path,
            before,
            after,
        });
        change.held_by = held_by.collect();
        change.calls = calls;
    }

    /// Everything that holds a record, each once, by the shortest path.
    fn above(&self, side: usize, name: &str) -> Vec<Found<'a>> {
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        let mut found: Vec<Found<'a>> = Vec::new();
        let mut pending = vec![(name.to_owned(), String::new(), 0)];
        for depth in 1.. {
            let mut next = Vec::new();
            for (inner, path, offset) in &pending {
                for (record, field) in self.direct[side].get(inner.as_str()).into_iter().flatten() {
                    if seen.insert(record) {
                        let path = join(&field.name, path);
                        let offset = field.offset + offset;
                        next.push(((*record).to_owned(), path.clone(), offset));
                        found.push(Found { depth, record, path, offset });
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            pending = next;
        }
        found
    }
}

fn join(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        ("", path) | (path, "") => path.to_owned(),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

/// The calls of one side, by the records that they take and that their pointers lead to.
fn add_calls<'a>(
    side: Side<'a>,
    layer: Layer<'a>,
    of_side: &'a Calls,
    calls: &mut FxHashMap<&'a str, BTreeSet<&'a str>>,
) {
    let taken = of_side.iter().flat_map(|((_, name), state)| {
        state.params.iter().map(move |ty| (ty.as_str(), name.as_str()))
    });
    let items = side.spec.items_at(&side.facts.tag);
    let pointed_to =
        items.flat_map(|item| item.pointees().map(|of| (of.name.as_str(), item.name.as_str())));
    for (ty, call) in taken.chain(pointed_to) {
        let ty = layer.get(|s| &s.aliases, ty).map_or(ty, |alias| alias.ty.as_str());
        calls.entry(ty).or_default().insert(call);
    }
}
