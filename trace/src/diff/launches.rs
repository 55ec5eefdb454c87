//! Which launch of A is compared with which of B.

use std::collections::HashMap;

use crate::file::{Launch, Trace};
use crate::report::Note;

/// Two launches that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) a: usize,
    pub(super) b: usize,
    /// Launches of the same kernel before it.
    pub(super) order: u32,
}

/// What makes launches the same: the process, the kernel, and how many launches of it came before.
type Key<'a> = (u32, &'a str, u32);

/// Pairs the launches, and notes those that have no other.
pub(super) fn matched(a: &Trace, b: &Trace) -> (Vec<Pair>, Vec<Note>) {
    let (keys_a, keys_b) = (keys(a.launches()), keys(b.launches()));
    let places: HashMap<Key<'_>, usize> = keys_b.iter().copied().zip(0..).collect();
    let (mut pairs, mut notes) = (Vec::new(), Vec::new());
    let mut taken = vec![false; keys_b.len()];
    for (at, key) in keys_a.iter().enumerate() {
        match places.get(key) {
            Some(other) => {
                pairs.push(Pair { a: at, b: *other, order: key.2 });
                taken[*other] = true;
            }
            None => notes.push(unmatched('a', key)),
        }
    }
    let left = keys_b.iter().zip(taken).filter(|(_, taken)| !taken);
    notes.extend(left.map(|(key, _)| unmatched('b', key)));
    (pairs, notes)
}

fn unmatched(trace: char, key: &Key<'_>) -> Note {
    Note::Unmatched { trace, kernel: key.1.to_owned(), order: key.2 }
}

fn keys(launches: &[Launch]) -> Vec<Key<'_>> {
    let mut before: HashMap<(u32, &str), u32> = HashMap::new();
    launches
        .iter()
        .map(|launch| {
            let count = before.entry((launch.session, &launch.kernel)).or_default();
            *count += 1;
            (launch.session, launch.kernel.as_str(), *count - 1)
        })
        .collect()
}

/// Why two launches of the same kernel cannot be compared.
pub(super) fn incompatible(a: &Launch, b: &Launch, other_grids: bool) -> Option<String> {
    let kernel = &a.kernel;
    let [a_every, b_every] = [a, b].map(|launch| launch.sample_every.max(1));
    if a_every != b_every {
        return Some(format!(
            "other warps of {kernel} were recorded: one of {a_every}, and one of {b_every}"
        ));
    }
    if other_grids {
        return None;
    }
    for (what, x, y) in [("grids", a.grid, b.grid), ("blocks", a.block, b.block)] {
        if x != y {
            return Some(format!(
                "{kernel} was launched with other {what}: {}, and {}; --allow-different-grids \
                 compares the warps that both have",
                dimensions(x),
                dimensions(y)
            ));
        }
    }
    (a.warps != b.warps).then(|| {
        format!(
            "{kernel} has {} warps, and {}; --allow-different-grids compares those that both have",
            a.warps, b.warps
        )
    })
}

fn dimensions([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}
