//! Which names a list of patterns such as `NV_ERR_*` takes in; fast over many names.

use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes of a name that are looked up in the table: enough for `NV2080_CTRL_GPU_`.
const GLANCE: usize = 16;
/// Size of the table; where two starts share a slot, more is compared than need be.
const TABLE: usize = 1 << 14;

/// Patterns, each as its literal parts between stars.
///
/// A driver has some 90,000 names and a spec wants a few thousand of them, and this runs in
/// unoptimised build scripts: most names differ in their first few bytes.
pub struct Globs<'p> {
    /// Those without a star: most are names of calls, and there are hundreds with one beginning.
    whole: FxHashSet<&'p str>,
    /// The others, by the slot of their first literal.
    boxes: FxHashMap<usize, Vec<Vec<&'p str>>>,
    /// What is known of the names that start in one way, by slot.
    starts: Vec<Start>,
}

#[derive(Clone, Copy, Default)]
struct Start {
    /// Some pattern starts so too.
    begun: bool,
    /// There is a box.
    boxed: bool,
}

impl<'p> Globs<'p> {
    /// `*` stands for any text; every other character for itself.
    pub fn new(patterns: impl Iterator<Item = &'p str>) -> Self {
        let (mut whole, mut boxes) = (FxHashSet::default(), FxHashMap::<_, Vec<_>>::default());
        let mut starts = vec![Start::default(); TABLE];
        for pattern in patterns {
            let parts: Vec<&str> = pattern.split('*').collect();
            slots(parts[0]).for_each(|slot| starts[slot].begun = true);
            if parts.len() == 1 {
                whole.insert(pattern);
                continue;
            }
            let last = slots(parts[0]).last().unwrap_or_default();
            starts[last].boxed = true;
            let boxed = boxes.entry(last).or_default();
            // Two specs have most of their patterns in common.
            if !boxed.contains(&parts) {
                boxed.push(parts);
            }
        }
        Self { whole, boxes, starts }
    }

    /// Whether any pattern takes in the name.
    pub fn matches(&self, name: &str) -> bool {
        // In one go: this is asked of every name there is.
        for slot in slots(name) {
            let Start { begun, boxed } = self.starts[slot];
            if !begun {
                return false;
            }
            let of_slot = || self.boxes.get(&slot).into_iter().flatten();
            if boxed && of_slot().any(|parts| matches(parts, name)) {
                return true;
            }
        }
        self.whole.contains(name)
    }

    /// Whether no pattern can take in any name that goes on from `start` with a `_`.
    pub fn rules_out(&self, start: &str) -> bool {
        let start = format!("{start}_");
        !self.has_begun(&start) && self.boxes_of(&start).next().is_none()
    }

    /// Whether the first bytes of a name are also those of a pattern.
    fn has_begun(&self, name: &str) -> bool {
        slots(name).all(|slot| self.starts[slot].begun)
    }

    /// The slots of the boxes whose patterns may take in the name.
    fn boxes_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let begun = slots(name).take_while(|slot| self.starts[*slot].begun);
        begun.filter(|slot| self.starts[*slot].boxed)
    }
}

/// Where each start of a name falls in the table: the empty one, that of one byte, and so on.
fn slots(name: &str) -> impl Iterator<Item = usize> {
    let next = |slot: &mut usize, byte: &u8| {
        *slot = (*slot * 31 + usize::from(*byte)) % TABLE;
        Some(*slot)
    };
    let first = name.as_bytes().iter().take(GLANCE);
    std::iter::once(0).chain(first.scan(0, next))
}

/// Whether one pattern takes in a name.
pub fn fits(pattern: &str, name: &str) -> bool {
    matches(&pattern.split('*').collect::<Vec<_>>(), name)
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
        for start in ["NVC5B5", "NVC5B5_NOP", "NV", "N"] {
            assert!(globs.rules_out(start), "{start}");
        }
        // Shorter than a pattern, or longer than one.
        for start in ["NV2080", "NV2080_CTRL_CMD", "UVM", "UVM_TOOLS", "NV0080"] {
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
