//! Records that are gone and come back under another name.

use std::collections::BTreeMap;

use super::{Declared, Pair};
use nvabi_pipeline::model::Bits;

/// Fewer fields than this say too little: many small structs look alike.
const TELLING: usize = 3;

/// The renamed records: the name before by the name after.
pub(super) fn find<'a>(records: &BTreeMap<&'a str, Pair<'a>>) -> BTreeMap<&'a str, &'a str> {
    let mut gone: BTreeMap<Signature, Vec<&'a str>> = BTreeMap::new();
    for (name, pair) in records {
        if let [Some(gone_one), None] = pair {
            gone.entry(signature(*gone_one)).or_default().push(name);
        }
    }
    let mut candidates = Vec::new();
    for (name, pair) in records {
        let [None, Some(new)] = pair else { continue };
        for before in gone.get(&signature(*new)).into_iter().flatten() {
            let (common, longest) = (common(before, name), before.len().max(name.len()));
            if new.record.fields.len() >= TELLING && common > 0 || common * 5 >= longest * 3 {
                let [first, second] = if before < name { [before, name] } else { [name, before] };
                candidates.push((longest - common, *first, *second, *before, *name));
            }
        }
    }
    // The closest names first; the order does not depend on which side came first.
    candidates.sort_unstable();
    let mut renamed: BTreeMap<&str, &str> = BTreeMap::new();
    for (_, _, _, before, after) in candidates {
        if !renamed.contains_key(after) && !renamed.values().any(|taken| *taken == before) {
            renamed.insert(after, before);
        }
    }
    renamed
}

type Signature = (&'static str, u64, u64, Vec<(String, String, u64, u64, Option<(u64, u64)>)>);

/// A layout in which the record's own name does not show.
fn signature(Declared { name, record }: Declared<'_>) -> Signature {
    let inner = format!("{name}::");
    let bits = |bits: Bits| (bits.bit_offset, bits.bit_width);
    let fields = record.fields.iter().map(|field| {
        let canonical = field.canonical.replace(&inner, "::");
        (field.name.clone(), canonical, field.offset, field.size, field.bits.map(bits))
    });
    (record.kind.keyword(), record.size, record.align, fields.collect())
}

/// How many bytes two names share at both ends.
fn common(a: &str, b: &str) -> usize {
    let start = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a.as_bytes()[start..], &b.as_bytes()[start..]);
    start + a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count()
}
