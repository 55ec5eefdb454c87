//! The ways in which several devices can share memory: every pair of sets, capabilities
//! intersected and constraints merged.
//!
//! Most pairs fail, so a failing pair costs no allocation: sets that can share nothing are told
//! apart by 64 bits, and what is compared is put into lists that are used again.

use std::borrow::Cow;
use std::sync::Arc;

use super::capability::{Capability, CapabilitySet};
use super::constraint::{Conflict, Constraint, merge_into};

/// Why two sets give none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The left set requires its capability of this index, and the right one lacks it.
    LeftLost(usize),
    /// The right set requires its capability of this index, and the left one lacks it.
    RightLost(usize),
    /// They have no capability in common.
    NothingShared,
    /// Two constraints cannot be merged.
    Conflict(Conflict),
}

/// The capabilities that both lists have, in the order of the left one; a capability is required
/// when it is in either list. Repetitions count once.
///
/// `None` when one that is required is not in both, or nothing is left.
pub fn intersect(left: &[Capability], right: &[Capability]) -> Option<Vec<Capability>> {
    let (left, right) = (folded(left), folded(right));
    let mut shared = Vec::with_capacity(left.len().min(right.len()));
    shared_into(&mut shared, &left, &right).ok()?;
    Some(shared.iter().map(|shared| shared.capability(&left)).collect())
}

/// Every pair of a left and a right set that gives one, left-major.
///
/// Capabilities are intersected, constraints merged; a pair that fails in either is left out.
pub fn derive(left: &[CapabilitySet], right: &[CapabilitySet]) -> Vec<CapabilitySet> {
    let mut derived = Vec::new();
    let right: Vec<Operand<'_>> = right.iter().map(Operand::new).collect();
    let mut pair = Pair::default();
    for left in left {
        let left = Operand::new(left);
        pair.last = None;
        for right in &right {
            if left.may_match(right) && pair.intersect(&left, right).is_ok() {
                derived.push(pair.result(&left));
            }
        }
    }
    derived
}

/// What serves every list, in an order of its own: whichever order the lists and their sets are
/// in, the result is the same. Equal sets are there once.
pub fn derive_all<L: AsRef<[CapabilitySet]>>(lists: &[L]) -> Vec<CapabilitySet> {
    let Some((first, rest)) = lists.split_first() else { return Vec::new() };
    let first = first.as_ref().iter().filter_map(normal).collect();
    rest.iter().fold(sorted(first), |derived, list| sorted(derive(&derived, list.as_ref())))
}

/// A set by itself: repetitions folded. `None` when its own constraints are in conflict, or it has
/// no capability.
pub(crate) fn normal(set: &CapabilitySet) -> Option<CapabilitySet> {
    let mut constraints = Vec::with_capacity(set.constraints.len());
    merge_into(&mut constraints, &set.constraints, &[]).ok()?;
    let capabilities = folded(&set.capabilities).into_owned();
    (!capabilities.is_empty()).then(|| CapabilitySet::new(constraints, capabilities))
}

/// Sets in their order, once each, and what is in them as well.
fn sorted(mut sets: Vec<CapabilitySet>) -> Vec<CapabilitySet> {
    for set in &mut sets {
        set.constraints.sort_unstable();
        if !set.capabilities.is_sorted() {
            let mut capabilities = set.capabilities.to_vec();
            capabilities.sort_unstable();
            set.capabilities = capabilities.into();
        }
    }
    sets.sort_unstable();
    sets.dedup();
    sets
}

/// Why a pair of sets gives none, or what it gives.
pub(crate) fn pair(left: &CapabilitySet, right: &CapabilitySet) -> Result<CapabilitySet, Failure> {
    let (left, right) = (Operand::new(left), Operand::new(right));
    let mut pair = Pair::default();
    pair.intersect(&left, &right)?;
    Ok(pair.result(&left))
}

/// A set, ready to be compared with many.
struct Operand<'a> {
    constraints: &'a [Constraint],
    /// The set's own list where nothing repeats in it.
    capabilities: Cow<'a, Arc<[Capability]>>,
    /// A bit for each capability, and for each that is required: what shares no bit is not equal.
    bits: u64,
    required: u64,
}

impl<'a> Operand<'a> {
    fn new(set: &'a CapabilitySet) -> Self {
        let capabilities = match folded(&set.capabilities) {
            Cow::Borrowed(_) => Cow::Borrowed(&set.capabilities),
            Cow::Owned(folded) => Cow::Owned(folded.into()),
        };
        let (mut bits, mut required) = (0, 0);
        for capability in capabilities.iter() {
            let bit = bit(capability);
            bits |= bit;
            required |= if capability.required { bit } else { 0 };
        }
        Self { constraints: &set.constraints, capabilities, bits, required }
    }

    /// False when a look at the bits shows that the pair fails.
    fn may_match(&self, other: &Self) -> bool {
        let shared = self.bits & other.bits;
        shared != 0 && (self.required | other.required) & !shared == 0
    }
}

/// One of 64 bits, by what is compared.
fn bit(capability: &Capability) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let head = u64::from(capability.vendor) << 16 | u64::from(capability.name);
    let words = capability.payload.iter();
    let hash = words.fold(head.wrapping_mul(MIX), |hash, word| {
        (hash.rotate_left(23) ^ u64::from(*word)).wrapping_mul(MIX)
    });
    1 << (hash >> 58)
}

/// Repetitions as one, at the place of the first, required if any of them is.
fn folded(capabilities: &[Capability]) -> Cow<'_, [Capability]> {
    let repeated =
        |(at, capability): (usize, &Capability)| position(&capabilities[..at], 0, capability);
    if !capabilities.iter().enumerate().any(|each| repeated(each).is_some()) {
        return Cow::Borrowed(capabilities);
    }
    let mut folded: Vec<Capability> = Vec::with_capacity(capabilities.len());
    for capability in capabilities {
        match position(&folded, 0, capability) {
            Some(at) => folded[at].required |= capability.required,
            None => folded.push(capability.clone()),
        }
    }
    Cow::Owned(folded)
}

/// Where a list has a capability. It is looked for at `guess` first: lists are often alike.
fn position(list: &[Capability], guess: usize, wanted: &Capability) -> Option<usize> {
    match list.get(guess) {
        Some(there) if there.matches(wanted) => Some(guess),
        _ => list.iter().position(|there| there.matches(wanted)),
    }
}

/// A capability of the left list that the right one has too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    at: usize,
    required: bool,
}

impl Shared {
    fn capability(self, left: &[Capability]) -> Capability {
        Capability { required: self.required, ..left[self.at].clone() }
    }
}

/// Both lists are without repetitions.
fn shared_into(
    shared: &mut Vec<Shared>,
    left: &[Capability],
    right: &[Capability],
) -> Result<(), Failure> {
    shared.clear();
    for (at, capability) in left.iter().enumerate() {
        match position(right, at, capability) {
            Some(other) => {
                let required = capability.required || right[other].required;
                shared.push(Shared { at, required });
            }
            None if capability.required => return Err(Failure::LeftLost(at)),
            None => {}
        }
    }
    let lost =
        |(at, other): (usize, &Capability)| other.required && position(left, at, other).is_none();
    if let Some(at) = right.iter().enumerate().position(lost) {
        return Err(Failure::RightLost(at));
    }
    if shared.is_empty() { Err(Failure::NothingShared) } else { Ok(()) }
}

/// What a pair of sets has in common; its lists are used for one pair after the other.
#[derive(Default)]
struct Pair {
    shared: Vec<Shared>,
    constraints: Vec<Constraint>,
    /// The last result for the same left set: the next one is often the same.
    last: Option<(Vec<Shared>, Arc<[Capability]>)>,
}

impl Pair {
    fn intersect(&mut self, left: &Operand<'_>, right: &Operand<'_>) -> Result<(), Failure> {
        shared_into(&mut self.shared, &left.capabilities, &right.capabilities)?;
        let merged = merge_into(&mut self.constraints, left.constraints, right.constraints);
        merged.map_err(Failure::Conflict)
    }

    fn result(&mut self, left: &Operand<'_>) -> CapabilitySet {
        CapabilitySet {
            constraints: self.constraints.as_slice().to_vec(),
            capabilities: self.capabilities(&left.capabilities),
        }
    }

    fn capabilities(&mut self, left: &Arc<[Capability]>) -> Arc<[Capability]> {
        let same = |shared: &Shared| left[shared.at].required == shared.required;
        if self.shared.len() == left.len() && self.shared.iter().all(same) {
            return left.clone();
        }
        if let Some((shared, capabilities)) = &self.last {
            if *shared == self.shared {
                return capabilities.clone();
            }
        }
        let capabilities: Arc<[Capability]> =
            self.shared.iter().map(|shared| shared.capability(left)).collect();
        self.last = Some((self.shared.clone(), capabilities.clone()));
        capabilities
    }
}
