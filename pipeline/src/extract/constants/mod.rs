//! Which macros are integers or bit ranges, and their values, by asking clang.
//!
//! Each candidate (`classify`) becomes an enumerator of its own in a second translation unit (`ask`). One that
//! clang refuses (it is no constant expression, or was undefined again) is dropped by the line of the
//! complaint. A candidate whose text, and the text of everything it uses, was evaluated before is
//! answered from the [`Cache`]. From tag to tag little changes, so the first unit already asks for
//! what the headers that are new define (`early`): mostly that leaves nothing for a second one.

mod ask;
mod cache;
mod classify;
mod early;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Request;
use super::clang::Clang;
use super::records::{Macro, Macros};
use crate::diagnostic::Report;
use crate::headers::Tree;
use crate::model::{BitRange, Constant, Surface};
use ask::{PER_UNIT, ask};
pub use cache::Cache;
use cache::place_key;
use classify::{Class, Shape, Table};
pub(super) use early::{EarlyQuestion, answers, questions};

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What a macro stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Integer(i128),
    Range(i64, i64),
}

/// Adds the constants and bit ranges among `macros` to the surface.
pub(super) fn evaluate(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    macros: &Macros<'_>,
    early: &FxHashMap<String, EarlyQuestion>,
    surface: &mut Surface,
    cache: &Cache,
) -> Result<(), Report> {
    let Candidates { mut known, open } = candidates(tree, request, macros, surface, cache);
    let macros = &macros.own;
    // Maps are made at once: putting one name after the other into its place takes twice the time.
    let mut constants: Vec<_> = std::mem::take(&mut surface.constants).into_iter().collect();
    let mut bit_ranges = Vec::new();
    known.extend(values(clang, tree, request, macros, &open, early, cache)?);
    cache.learn().keep_literals(request, macros, &open);
    // The maps sort too, but move whole constants about.
    for (i, value) in sorted_by_name(known, macros, request, cache) {
        let (name, source) = (macros[i].name.to_owned(), macros[i].source.clone());
        match value {
            Value::Integer(value) => constants.push((name, Constant { value, source })),
            Value::Range(high, low) => bit_ranges.push((name, BitRange { high, low, source })),
        }
    }
    surface.constants = constants.into_iter().collect();
    surface.bit_ranges = bit_ranges.into_iter().collect();
    Ok(())
}

/// Sorts by name. Most macros were sorted for an earlier unit, and numbers are compared faster.
fn sorted_by_name(
    mut values: Vec<(usize, Value)>,
    macros: &[Macro<'_>],
    request: &Request<'_>,
    cache: &Cache,
) -> Vec<(usize, Value)> {
    let name_ranks = cache.known().name_ranks.get(request.surface).cloned().unwrap_or_default();
    let name = |(i, _): &(usize, Value)| macros[*i].name;
    let (mut ranked, mut new) = (Vec::with_capacity(values.len()), Vec::new());
    for value in values.drain(..) {
        match name_ranks.get(&macros[value.0].place) {
            Some(rank) => ranked.push((*rank, value)),
            None => new.push(value),
        }
    }
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    new.sort_unstable_by_key(name);
    let mut rest = ranked.as_slice();
    let is_old = new.len() > ranked.len() / 8;
    for value in new {
        let before = rest.partition_point(|(_, ranked)| name(ranked) < name(&value));
        values.extend(rest[..before].iter().map(|(_, ranked)| *ranked));
        values.push(value);
        rest = &rest[before..];
    }
    values.extend(rest.iter().map(|(_, ranked)| *ranked));
    if is_old {
        let places = values.iter().zip(0..).map(|((i, _), rank)| (macros[*i].place, rank));
        let name_ranks = Arc::new(places.collect());
        cache.learn().name_ranks.insert(request.surface.to_owned(), name_ranks);
    }
    values
}

/// The macros that may be integers or ranges, by index.
struct Candidates {
    /// Those whose value was found for an earlier unit, which had them in the same place.
    known: Vec<(usize, Value)>,
    open: Vec<(usize, Class)>,
}

fn candidates(
    tree: &Tree,
    request: &Request<'_>,
    macros: &Macros<'_>,
    surface: &Surface,
    cache: &Cache,
) -> Candidates {
    let mut table = Table::new(tree, request, macros, surface);
    let mut candidates = Candidates { known: Vec::new(), open: Vec::new() };
    let known = cache.known();
    for (i, m) in macros.own.iter().enumerate() {
        if m.function_like || table.replaced[i] {
            continue;
        }
        let literal = known.literals.get(&place_key(table.seed, m.place));
        match literal.filter(|_| !table.undefined.contains(m.name)) {
            Some(value) => candidates.known.extend(value.map(|value| (i, value))),
            None => {
                let class = table.classify(i);
                if class.shape != Shape::Other {
                    candidates.open.push((i, class));
                }
            }
        }
    }
    candidates
}

/// The values of the candidates that have one: remembered ones and answers of the first unit, the rest from clang.
fn values(
    clang: &Clang,
    tree: &Tree,
    request: &Request<'_>,
    macros: &[Macro<'_>],
    candidates: &[(usize, Class)],
    early: &FxHashMap<String, EarlyQuestion>,
    cache: &Cache,
) -> Result<Vec<(usize, Value)>, Report> {
    let mut found: FxHashMap<u64, Option<Value>> = FxHashMap::default();
    let mut own: FxHashMap<usize, Option<Value>> = FxHashMap::default();
    let mut asked: Vec<(usize, Class)> = Vec::new();
    let known = cache.known();
    let mut uncacheable = BTreeMap::new();
    for (i, class) in candidates {
        // Macros of the same text have the same value: most of a driver's are `0x1`, `7:0` and
        // the like.
        let is_known = |key: &u64| known.values.contains_key(key) || found.contains_key(key);
        if class.key.as_ref().is_some_and(is_known) {
            continue;
        }
        let answer = early.get(macros[*i].name).and_then(|question| question.answer(class));
        match (class.key, answer) {
            (Some(key), Some(value)) => drop(found.insert(key, value)),
            (None, Some(value)) => drop(own.insert(*i, value)),
            (Some(key), None) => {
                found.insert(key, None);
                asked.push((*i, *class));
            }
            (None, None) => asked.push((*i, *class)),
        }
        if class.key.is_none() {
            uncacheable.insert(macros[*i].name.to_owned(), *class);
        }
    }
    drop(known);
    cache.learn().uncacheable.entry(request.surface.to_owned()).or_default().extend(uncacheable);
    for some in asked.chunks(PER_UNIT) {
        let questions: Vec<_> = some.iter().map(|(i, class)| (macros[*i].name, *class)).collect();
        for ((i, class), answer) in some.iter().zip(ask(clang, tree, request, &questions)?) {
            match class.key {
                Some(key) => found.insert(key, answer),
                None => own.insert(*i, answer),
            };
        }
    }
    cache.learn().values.extend(found);
    let known = cache.known();
    let value = |(i, class): &(usize, Class)| {
        let answer = match class.key {
            Some(key) => known.values.get(&key),
            None => own.get(i),
        };
        Some((*i, (*answer?)?))
    };
    Ok(candidates.iter().filter_map(value).collect())
}
