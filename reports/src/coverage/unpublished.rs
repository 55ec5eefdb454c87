//! Versions of a table that the lock has not: what is known of them from the tags around them.
//!
//! Upstream does not publish every driver that NVIDIA releases. A row that fits the tag before such a version
//! and the tag after it fits the version most likely; one that fits neither, or one of them alone, changes
//! thereabouts, and nobody can tell where from the outside.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Findings, Known, Row, Table, VersionCoverage};
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::{ItemKind, Spec};
use nvabi_pipeline::tag::Tag;

/// The tags of the lock around a version, and how many rows of the version fit them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// The last tag before it.
    pub below: Option<String>,
    /// The first tag after it.
    pub above: Option<String>,
    /// Rows of the version.
    pub rows: usize,
    /// Those that fit each tag there is.
    pub fit: usize,
}

/// A tag beside a version, with what the lock has of it.
struct Neighbour<'a> {
    facts: Facts,
    spec: Option<&'a Spec>,
}

impl<'a> Neighbour<'a> {
    fn of(lock: &Lock, specs: &'a [Spec], tag: &Tag) -> Option<Self> {
        let spec = specs.iter().find(|spec| spec.driver == tag.branch());
        Some(Self { facts: lock.facts(tag)?, spec })
    }

    fn known(&self) -> Known<'_> {
        Known { spec: self.spec, facts: &self.facts }
    }

    fn name(&self) -> String {
        self.facts.tag.to_string()
    }

    /// How a row is otherwise there, if it is.
    fn misfit(&self, table: &Table, kind: ItemKind, row: &Row) -> Option<String> {
        let known = self.known();
        if known.lacks(kind, row) {
            return Some(format!("{} has none", self.name()));
        }
        let gaps = known.gaps(table, kind, row);
        // What follows the first is often its consequence.
        let first = gaps.first()?;
        let more = match gaps.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(format!("differs from {}: {first}{more}", self.name()))
    }
}

impl Findings {
    /// Compares the rows of a version with the tags around it; `None` where there are none.
    pub(super) fn bounds(
        &mut self,
        lock: &Lock,
        specs: &[Spec],
        table: &Table,
        tag: &Tag,
        lineage: &BTreeSet<&str>,
    ) -> Option<Bounds> {
        let tags = || lock.tags.iter().map(|locked| &locked.tag);
        let neighbour = |tag: Option<&Tag>| tag.and_then(|tag| Neighbour::of(lock, specs, tag));
        let below = neighbour(tags().filter(|other| *other < tag).max());
        let above = neighbour(tags().filter(|other| *other > tag).min());
        let sides: Vec<&Neighbour<'_>> = below.iter().chain(&above).collect();
        if sides.is_empty() {
            return None;
        }
        let (mut count, mut fit) = (0, 0);
        for (kind, rows) in table.rows() {
            for row in rows.iter().filter(|row| row.holds(lineage)) {
                count += 1;
                let misfits: Vec<Option<String>> =
                    sides.iter().map(|side| side.misfit(table, kind, row)).collect();
                if misfits.iter().all(Option::is_none) {
                    fit += 1;
                    continue;
                }
                let told = sides.iter().zip(misfits).map(|(side, misfit)| {
                    misfit.unwrap_or_else(|| format!("fits {}", side.name()))
                });
                let what = told.collect::<Vec<_>>().join("; ");
                let key = (Some(kind), row.name.clone(), what);
                self.unpublished.entry(key).or_default().push(tag.to_string());
            }
        }
        let name = |side: &Option<Neighbour<'_>>| side.as_ref().map(Neighbour::name);
        Some(Bounds { below: name(&below), above: name(&above), rows: count, fit })
    }
}

impl VersionCoverage {
    /// What is known of a version that the lock has not.
    pub(super) fn unlocked(&self) -> String {
        let Some(Bounds { below, above, rows, fit }) = &self.bounds else {
            return "not in the lock".to_owned();
        };
        let tags = match (below, above) {
            (Some(below), Some(above)) => format!("both {below} and {above}"),
            (Some(below), None) => format!("{below}, the last tag before it"),
            (None, Some(above)) => format!("{above}, the first tag after it"),
            (None, None) => return "not in the lock".to_owned(),
        };
        format!("not in the lock; {fit} of {rows} rows fit {tags}")
    }
}
