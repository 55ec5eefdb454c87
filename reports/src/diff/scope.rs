//! Which names take part in a diff.

use rustc_hash::FxHashSet;

use super::calls::Calls;
use super::{Scope, Side, Sides};
use nvabi_pipeline::globs::Globs;
use nvabi_pipeline::model::split_array;

/// The names in scope.
pub(super) struct Names<'a> {
    /// Types; `None` for all.
    types: Option<FxHashSet<&'a str>>,
    /// Constants and bit ranges.
    constants: Globs<'a>,
    /// Constants that are told with a call: its number.
    numbers: FxHashSet<&'a str>,
}

impl<'a> Names<'a> {
    pub(super) fn new(sides: &Sides<'a>, scope: Scope, calls: &'a [Calls; 2]) -> Self {
        let both = [sides.from, sides.to];
        let patterns = both.into_iter().flat_map(|side| &side.spec.constants);
        let mut numbers: FxHashSet<&str> =
            both.into_iter().flat_map(items).map(|item| item.name.as_str()).collect();
        numbers.extend(calls.iter().flat_map(|calls| calls.keys()).map(|(_, name)| name.as_str()));
        let types = match scope {
            Scope::All => None,
            Scope::Items => {
                let mut seen = FxHashSet::default();
                both.into_iter().for_each(|side| closure(side, &mut seen));
                Some(seen)
            }
        };
        Self { types, constants: Globs::new(patterns.map(|named| named.name.as_str())), numbers }
    }

    pub(super) fn has_type(&self, name: &str) -> bool {
        self.types.as_ref().is_none_or(|types| types.contains(name))
    }

    /// An enum is also in scope for an enumerator that a spec names.
    pub(super) fn has_enum<'n>(
        &self,
        name: &str,
        mut variants: impl Iterator<Item = &'n String>,
    ) -> bool {
        self.has_type(name) || variants.any(|variant| self.constants.matches(variant))
    }

    pub(super) fn has_constant(&self, name: &str) -> bool {
        match self.types {
            None => !self.numbers.contains(name),
            Some(_) => !self.numbers.contains(name) && self.constants.matches(name),
        }
    }
}

fn items(side: Side<'_>) -> impl Iterator<Item = &nvabi_pipeline::spec::Item> {
    side.spec.items_at(&side.facts.tag)
}

/// The types that a side's spec names.
pub(super) fn roots(side: Side<'_>) -> impl Iterator<Item = &str> {
    let of_items = items(side).flat_map(|item| item.params.iter().chain(item.pointees()));
    of_items.chain(&side.spec.extra_types).map(|named| named.name.as_str())
}

/// Adds the types that a side's items need: what they name, and what those are made of.
fn closure<'a>(side: Side<'a>, seen: &mut FxHashSet<&'a str>) {
    // What the other side's closure has must be walked here as well: its fields may differ.
    let mut done: FxHashSet<&str> = FxHashSet::default();
    let mut pending: Vec<&str> = seen.iter().copied().chain(roots(side)).collect();
    while let Some(name) = pending.pop() {
        if !done.insert(name) {
            continue;
        }
        for surface in side.facts.surfaces.values() {
            if let Some(record) = surface.records.get(name) {
                for field in record.fields.iter() {
                    pending.push(split_array(&field.canonical).0);
                    pending.push(declared_base(&field.ty));
                }
            }
            if let Some(alias) = surface.aliases.get(name) {
                pending.push(split_array(&alias.ty).0);
            }
        }
    }
    seen.extend(done);
}

/// A declared type without its array dimensions.
pub(super) fn declared_base(ty: &str) -> &str {
    split_array(ty).0
}
