//! Which names a list of patterns such as `NV_ERR_*` takes in; fast over many names.

use std::collections::HashSet;

/// Bytes that tell at a glance what most names cannot match: enough for `NV2080_`.
const GLANCE: usize = 7;
/// Size of the table that a glance looks into.
const TABLE: usize = 4096;

/// Patterns, each as its literal parts between stars.
///
/// A driver has some 90,000 names and a spec wants a few thousand of them, and this runs in
/// unoptimised build scripts: a name is first looked up by its first bytes.
pub(crate) struct Globs<'p> {
    /// Those without a star: most are names of calls, and there are hundreds with one beginning.
    whole: HashSet<&'p str>,
    /// Which slots these begin in.
    starts: Vec<bool>,
    /// By the slot of the first literal.
    boxes: Vec<Vec<Vec<&'p str>>>,
    /// Those whose first literal is too short for a slot.
    short: Vec<Vec<&'p str>>,
}

impl<'p> Globs<'p> {
    /// `*` stands for any text; every other character for itself.
    pub(crate) fn new(patterns: impl Iterator<Item = &'p str>) -> Self {
        let (mut boxes, mut short) = (vec![Vec::new(); TABLE], Vec::new());
        let (mut whole, mut starts) = (HashSet::new(), vec![false; TABLE]);
        for pattern in patterns {
            if let (false, Some(slot)) = (pattern.contains('*'), slot(pattern)) {
                whole.insert(pattern);
                starts[slot] = true;
                continue;
            }
            let parts: Vec<&str> = pattern.split('*').collect();
            match slot(parts[0]) {
                Some(slot) => boxes[slot].push(parts),
                None => short.push(parts),
            }
        }
        Self { whole, starts, boxes, short }
    }

    /// Whether any pattern takes in the name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let boxed = slot(name).map_or(&[][..], |slot| &self.boxes[slot]);
        let slot_taken = slot(name).is_some_and(|slot| self.starts[slot]);
        slot_taken && self.whole.contains(name)
            || self.short.iter().chain(boxed).any(|parts| matches(parts, name))
    }

    /// Whether no pattern can take in any name that goes on from `start` with a `_`.
    pub(crate) fn rules_out(&self, start: &str) -> bool {
        let start = format!("{start}_");
        let taken = |slot: usize| self.starts[slot] || !self.boxes[slot].is_empty();
        let boxed = slot(&start).is_none_or(taken);
        !boxed && !self.short.iter().any(|parts| start.starts_with(parts[0]))
    }
}

/// Where the first bytes of a name fall in the table; `None` when it has too few.
fn slot(name: &str) -> Option<usize> {
    let first = name.as_bytes().get(..GLANCE)?;
    let mut slot = 0usize;
    for byte in first {
        slot = slot.wrapping_mul(31).wrapping_add(usize::from(*byte));
    }
    Some(slot % TABLE)
}

fn matches(parts: &[&str], name: &str) -> bool {
    let [first, rest @ ..] = parts else { return false };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let Some((last, middle)) = rest.split_last() else { return name.is_empty() };
    for part in middle {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_out_only_what_cannot_match() {
        let globs = Globs::new(["NV2080_CTRL_*", "UVM_*", "NV0080_X"].into_iter());
        assert!(globs.rules_out("NVC5B5") && globs.rules_out("NVC5B5_NOP"));
        // Too short to tell, shorter than a pattern, or longer than one.
        for start in ["NV", "NV2080", "NV2080_CTRL_CMD", "UVM", "UVM_TOOLS", "NV0080"] {
            assert!(!globs.rules_out(start), "{start}");
        }
    }

    #[test]
    fn takes_in_what_it_says() {
        let globs = Globs::new(["NV_ERR_*", "NV_OK", "*_DECODER", "NV1_*_SIZE", "X*"].into_iter());
        for name in ["NV_ERR_BUSY", "NV_OK", "NVA_DECODER", "NV1_A_SIZE", "X", "XY"] {
            assert!(globs.matches(name), "{name}");
        }
        for name in ["NV_OKAY", "NV_ER", "NV1_SIZES", "DECODERS", "N", "", "é"] {
            assert!(!globs.matches(name), "{name}");
        }
    }
}
