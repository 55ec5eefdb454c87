//! The ways in which several devices can share memory: every pair of sets, capabilities
//! intersected and constraints merged.
//!
//! Most pairs fail, so a failing pair costs no allocation: sets that can share nothing are told
//! apart by 512 bits, and what is compared is put into lists that are used again.

use std::borrow::Cow;
use std::sync::Arc;

use super::capability::{Capability, CapabilitySet};
use super::constraint::{Conflict, Constraint, asks_no_more, by_demand, merge_into};

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

/// Up to so many pairs are compared as they are.
const FEW: usize = 16;

/// Every pair of a left and a right set that gives one, left-major.
///
/// Capabilities are intersected, constraints merged; a pair that fails in either is left out.
pub fn derive(left: &[CapabilitySet], right: &[CapabilitySet]) -> Vec<CapabilitySet> {
    let few = left.len().saturating_mul(right.len()) <= FEW;
    match few && left.iter().chain(right).all(is_plain) {
        true => derive_few(left, right),
        false => derive_many(left, right),
    }
}

/// Whether no capability of a set repeats.
#[inline]
fn is_plain(set: &CapabilitySet) -> bool {
    set.capabilities.len() < 2 || matches!(folded(&set.capabilities), Cow::Borrowed(_))
}

/// Preparing sets takes longer than comparing a few. No capability repeats in any of these.
fn derive_few(left: &[CapabilitySet], right: &[CapabilitySet]) -> Vec<CapabilitySet> {
    let mut derived = Vec::new();
    let mut pair = Pair::default();
    for left in left {
        for right in right {
            let (of_left, of_right) = (&left.capabilities, &right.capabilities);
            let same = !of_left.is_empty() && of_left == of_right;
            if !same && shared_into(&mut pair.shared, of_left, of_right).is_err() {
                continue;
            }
            if pair.merge(left, right).is_ok() {
                let capabilities = if same { of_left.clone() } else { pair.capabilities(of_left) };
                let constraints = std::mem::take(&mut pair.constraints);
                derived.push(CapabilitySet { constraints, capabilities });
            }
        }
    }
    derived
}

fn derive_many(left: &[CapabilitySet], right: &[CapabilitySet]) -> Vec<CapabilitySet> {
    let mut derived = Vec::new();
    let mut right: Vec<Operand<'_>> = right.iter().map(Operand::new).collect();
    let bits: Vec<Bits> = right.iter().map(Bits::of).collect();
    tell_alike(&mut right, &bits);
    let mut pair = Pair::default();
    for (at, set) in left.iter().enumerate() {
        let operand = Operand::new(set);
        let of_left = Bits::of(&operand);
        pair.done = None;
        for (right, bits) in right.iter().zip(&bits) {
            let may_match = pair.is_of(right) || of_left.may_match(bits);
            if may_match && pair.intersect(&operand, right).is_ok() {
                derived.push(pair.result(&operand));
            }
        }
        // Sets of one device are often alike: each gives as many as the first.
        if at == 0 {
            derived.reserve(derived.len() * (left.len() - 1));
        }
    }
    derived
}

/// So many sets go on from one list to the next: beyond them, sets of a machine's devices differ in ways
/// that nobody tells apart, and each list multiplies them.
const MOST_SETS: usize = 256;

/// So many pairs of sets are compared for one answer, which takes a fraction of a second.
const MOST_PAIRS: usize = 1 << 21;

/// What serves every list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The sets, in an order of their own.
    pub sets: Vec<CapabilitySet>,
    /// Whether these are all. Where the lists give more than can be looked at, each set here serves every list
    /// all the same, and there may be others; without any it is not known whether one exists.
    pub complete: bool,
}

/// What serves every list, in an order of its own: whichever order the lists and their sets are
/// in, the result is the same. Equal sets are there once. A set is left out where another one has the same
/// capabilities and asks for less, in each of its constraints.
///
/// At most 256 sets go on from one list to the next, those that ask for least of each list of capabilities first;
/// [`Derived::complete`] tells whether that was all.
pub fn derive_all<L: AsRef<[CapabilitySet]>>(lists: &[L]) -> Derived {
    Search::default().derive(lists)
}

/// How much may be looked at for one answer, and whether that was enough.
#[derive(Debug)]
pub(crate) struct Search {
    /// So many go on from one list to the next.
    pub(crate) sets: usize,
    /// So many pairs are still compared.
    pairs: usize,
    /// Whether nothing was left out so far.
    pub(crate) complete: bool,
}

impl Default for Search {
    fn default() -> Self {
        Self { sets: MOST_SETS, pairs: MOST_PAIRS, complete: true }
    }
}

impl Search {
    /// For an answer that takes many searches: what one may look at, all of them may.
    pub(crate) fn of_many() -> Self {
        Self { sets: MOST_SETS / 4, ..Self::default() }
    }

    /// Whether work that takes as long as comparing so many pairs may still be done; then it is. Where it may not,
    /// nothing may any more.
    pub(crate) fn takes(&mut self, pairs: usize) -> bool {
        let left = self.pairs.checked_sub(pairs);
        self.pairs = left.unwrap_or(0);
        self.complete &= left.is_some();
        left.is_some()
    }

    /// Whether no pair may be compared any more.
    pub(crate) fn is_spent(&self) -> bool {
        self.pairs == 0
    }

    /// As [`derive_all`]. What is left out shows in the result and here.
    pub(crate) fn derive<L: AsRef<[CapabilitySet]>>(&mut self, lists: &[L]) -> Derived {
        let before = std::mem::replace(&mut self.complete, true);
        let sets = self.of_all(lists);
        let complete = self.complete;
        self.complete &= before;
        Derived { sets, complete }
    }

    fn of_all<L: AsRef<[CapabilitySet]>>(&mut self, lists: &[L]) -> Vec<CapabilitySet> {
        let normal = |list: &L| sorted(list.as_ref().iter().filter_map(normal).collect());
        let mut lists: Vec<Vec<CapabilitySet>> = lists.iter().map(normal).collect();
        // Few sets first; and in one order, as what is left out depends on it.
        lists.sort_unstable_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        let mut lists = lists.into_iter();
        let Some(first) = lists.next() else { return Vec::new() };
        let first = self.some_of(first);
        lists.fold(first, |derived, mut list| {
            let affordable = self.pairs / derived.len().max(1);
            if !self.takes(derived.len() * list.len()) {
                list.truncate(affordable);
            }
            self.some_of(sorted(derive(&derived, &list)))
        })
    }

    /// No more sets than may go on.
    fn some_of(&mut self, sets: Vec<CapabilitySet>) -> Vec<CapabilitySet> {
        let (mut kept, complete) = least_demanding(sets, self.sets);
        self.complete &= complete;
        kept.sort_unstable();
        kept
    }
}

/// Sets without those that ask for more than another one, and whether these are all: there are `most` at most, of
/// each list of capabilities as many as of any other while there are some.
fn least_demanding(mut sets: Vec<CapabilitySet>, most: usize) -> (Vec<CapabilitySet>, bool) {
    // A set that asks for less is before all that ask for more.
    sets.sort_unstable_by(|one, other| {
        let of_capabilities = one.capabilities.cmp(&other.capabilities);
        of_capabilities.then_with(|| by_demand(&one.constraints, &other.constraints))
    });
    let mut complete = true;
    let mut ranked: Vec<(usize, CapabilitySet)> = Vec::new();
    // Where those with the same capabilities begin.
    let mut alike = 0;
    for set in sets {
        if ranked.last().is_some_and(|(_, known)| known.capabilities != set.capabilities) {
            alike = ranked.len();
        }
        let rank = ranked.len() - alike;
        if rank >= most && !complete {
            continue;
        }
        let asks_less = |(_, known): &(usize, CapabilitySet)| {
            asks_no_more(&known.constraints, &set.constraints)
        };
        if !ranked[alike..].iter().any(asks_less) {
            match rank < most {
                true => ranked.push((rank, set)),
                false => complete = false,
            }
        }
    }
    if ranked.len() > most {
        complete = false;
        // Stable: among equals, the order of the sets.
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.truncate(most);
    }
    (ranked.into_iter().map(|(_, set)| set).collect(), complete)
}

/// A set by itself: repetitions folded. `None` when its own constraints are in conflict, one of them
/// allows nothing, or it has no capability.
pub(crate) fn normal(set: &CapabilitySet) -> Option<CapabilitySet> {
    let mut constraints = Vec::with_capacity(set.constraints.len());
    merge_into(&mut constraints, &set.constraints, &[]).ok()?;
    if constraints.iter().any(|constraint| constraint.is_impossible()) {
        return None;
    }
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

/// A set to compare with others.
struct Operand<'a> {
    set: &'a CapabilitySet,
    /// The capabilities, where some repeat in the set's own list.
    folded: Option<Arc<[Capability]>>,
    /// Operands of the same list with the same number have the same capabilities.
    alike: Option<usize>,
}

impl<'a> Operand<'a> {
    fn new(set: &'a CapabilitySet) -> Self {
        let folded = match folded(&set.capabilities) {
            Cow::Borrowed(_) => None,
            Cow::Owned(folded) => Some(folded.into()),
        };
        Self { set, folded, alike: None }
    }

    fn capabilities(&self) -> &Arc<[Capability]> {
        self.folded.as_ref().unwrap_or(&self.set.capabilities)
    }
}

/// A bit for each capability of a set, and for each that is required: what shares no bit is not equal.
/// There are so many that two sets of eight capabilities seldom share one by chance.
#[derive(Clone, Copy, PartialEq)]
struct Bits {
    all: [u64; 8],
    required: [u64; 8],
}

impl Bits {
    fn of(operand: &Operand<'_>) -> Self {
        let mut bits = Self { all: [0; 8], required: [0; 8] };
        for capability in operand.capabilities().iter() {
            let (word, bit) = bit(capability);
            bits.all[word] |= bit;
            bits.required[word] |= if capability.required { bit } else { 0 };
        }
        bits
    }

    /// False when a look shows that the pair fails.
    fn may_match(&self, other: &Self) -> bool {
        let (mut any, mut lost) = (0, 0);
        for word in 0..self.all.len() {
            let shared = self.all[word] & other.all[word];
            any |= shared;
            lost |= (self.required[word] | other.required[word]) & !shared;
        }
        any != 0 && lost == 0
    }
}

/// Numbers operands by their capabilities: sets of one device often differ in constraints alone. Those
/// without bits are not numbered.
fn tell_alike(operands: &mut [Operand<'_>], bits: &[Bits]) {
    for at in 0..bits.len() {
        let same = |known: &usize| {
            let (known, operand) = (*known, &operands[at]);
            operands[known].alike == Some(known)
                && bits[known] == bits[at]
                && operands[known].capabilities() == operand.capabilities()
        };
        // Of those that are alike, the first bears its own index.
        let first = (0..at).find(same).unwrap_or(at);
        operands[at].alike = Some(first);
    }
}

/// One of 512 bits, by what is compared: its word, and the bit in that.
fn bit(capability: &Capability) -> (usize, u64) {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let head = u64::from(capability.vendor) << 16 | u64::from(capability.name);
    let words = capability.payload.iter();
    let hash = words.fold(head.wrapping_mul(MIX), |hash, word| {
        (hash.rotate_left(23) ^ u64::from(*word)).wrapping_mul(MIX)
    });
    ((hash >> 61) as usize, 1 << (hash >> 55 & 63))
}

/// Repetitions as one, at the place of the first, required if any of them is.
fn folded(capabilities: &[Capability]) -> Cow<'_, [Capability]> {
    let repeated =
        |(at, capability): (usize, &Capability)| position(&capabilities[..at], 0, capability);
    let few = capabilities.len() < 2;
    if few || !capabilities.iter().enumerate().any(|each| repeated(each).is_some()) {
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
        Some(_) if list.len() == 1 => None,
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
    /// What came of the last right operand that was compared with the same left one.
    done: Option<Done>,
}

struct Done {
    alike: Option<usize>,
    compared: Result<(), Failure>,
    capabilities: Option<Arc<[Capability]>>,
}

impl Pair {
    fn intersect(&mut self, left: &Operand<'_>, right: &Operand<'_>) -> Result<(), Failure> {
        self.compare(left, right)?;
        self.merge(left.set, right.set).map_err(Failure::Conflict)
    }

    fn merge(&mut self, left: &CapabilitySet, right: &CapabilitySet) -> Result<(), Conflict> {
        let needed = left.constraints.len();
        if self.constraints.capacity() < needed {
            self.constraints = Vec::with_capacity(needed.max(4));
        }
        merge_into(&mut self.constraints, &left.constraints, &right.constraints)
    }

    /// Whether an operand with the same capabilities was compared last.
    fn is_of(&self, right: &Operand<'_>) -> bool {
        let same = |done: &Done| done.alike.is_some() && done.alike == right.alike;
        self.done.as_ref().is_some_and(same)
    }

    fn compare(&mut self, left: &Operand<'_>, right: &Operand<'_>) -> Result<(), Failure> {
        match &self.done {
            Some(done) if self.is_of(right) => done.compared,
            _ => {
                let (of_left, of_right) = (left.capabilities(), right.capabilities());
                let same = !of_left.is_empty() && of_left == of_right;
                let compared = match same {
                    true => Ok(()),
                    false => shared_into(&mut self.shared, of_left, of_right),
                };
                let capabilities = same.then(|| of_left.clone());
                self.done = Some(Done { alike: right.alike, compared, capabilities });
                compared
            }
        }
    }

    fn result(&mut self, left: &Operand<'_>) -> CapabilitySet {
        let known = self.done.as_ref().and_then(|done| done.capabilities.clone());
        let capabilities = known.unwrap_or_else(|| {
            let made = self.capabilities(left.capabilities());
            // Kept for who comes next, where somebody may be alike.
            if let Some(done) = self.done.as_mut().filter(|done| done.alike.is_some()) {
                done.capabilities = Some(made.clone());
            }
            made
        });
        // The list was made for this pair, or for one that failed.
        CapabilitySet { constraints: std::mem::take(&mut self.constraints), capabilities }
    }

    /// The left set's own list where all of it is shared as it is.
    fn capabilities(&self, left: &Arc<[Capability]>) -> Arc<[Capability]> {
        let same = |shared: &Shared| left[shared.at].required == shared.required;
        match self.shared.len() == left.len() && self.shared.iter().all(same) {
            true => left.clone(),
            false => self.shared.iter().map(|shared| shared.capability(left)).collect(),
        }
    }
}
