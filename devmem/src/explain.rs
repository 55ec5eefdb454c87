//! Why no memory serves every device, and the least that would have to change.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::capability::{Capability, CapabilitySet};
use super::constraint::{Conflict, ConstraintName};
use super::derive::{Derived, Failure, Search, derive_all, normal, pair};
use super::usage::Use;

/// The ways in which a device can do what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Which device, and what it does.
    #[serde(rename = "use")]
    pub of: Use,
    /// Its sets; none when it cannot.
    pub sets: Vec<CapabilitySet>,
}

impl AsRef<[CapabilitySet]> for Offer {
    fn as_ref(&self) -> &[CapabilitySet] {
        &self.sets
    }
}

/// A set of an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfferedSet {
    /// Which device, and what it does.
    #[serde(rename = "use")]
    pub of: Use,
    /// Which of its sets, from 0.
    pub set: usize,
}

/// Sets that cannot be used together, one of each device; or one that is of no use by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejection {
    /// The sets. All but the last go together.
    pub sets: Vec<OfferedSet>,
    /// What removed them.
    pub cause: Cause,
}

/// What removed a pair of sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum Cause {
    /// One device requires a capability that the other does not have.
    Required {
        /// Whose it is.
        by: Use,
        /// What is required.
        capability: Capability,
        /// Who does not have it.
        lacks: Use,
    },
    /// They have no capability in common.
    NothingShared {
        /// What the last set has.
        last: Vec<Capability>,
        /// What those before it have in common.
        others: Vec<Capability>,
    },
    /// Two constraints cannot both be kept.
    Conflict(Conflict),
    /// A constraint of the set allows nothing.
    Impossible {
        /// Which.
        constraint: ConstraintName,
    },
    /// The set has no capability.
    Empty,
    /// The device has no set at all.
    NoSets {
        /// Which device.
        of: Use,
    },
}

/// A change after which some memory serves every device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
#[non_exhaustive]
pub enum Relaxation {
    /// A device can do without what it requires.
    NotRequired {
        /// Which device.
        of: Use,
        /// What it would no longer require.
        capability: Capability,
    },
    /// A device keeps no longer to a constraint.
    Without {
        /// Which device.
        of: Use,
        /// What it would no longer ask for.
        constraint: ConstraintName,
    },
    /// A device takes memory that it does not offer to take.
    Accept {
        /// Which device.
        of: Use,
        /// What it would take.
        capability: Capability,
    },
    /// Devices do not do this with the memory.
    Drop {
        /// What is no longer done.
        of: Vec<Use>,
    },
}

/// Why no memory serves every device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The smallest group of uses that no memory serves.
    pub between: Vec<Use>,
    /// The shortest reasons of that group, the one that is nearest to success first.
    pub reasons: Vec<Rejection>,
    /// Single changes that each give memory, the smallest first. Each has been tried.
    pub relaxations: Vec<Relaxation>,
    /// Pairs of sets that failed, in the order of the offers: at most 16,384.
    pub rejections: Vec<Rejection>,
    /// Whether it is sure that no memory serves all: where the offers have more combinations than are looked at, some
    /// may all the same.
    pub ruled_out: bool,
    /// Whether all was looked at. Otherwise the group may not be the smallest, and there may be other reasons and
    /// changes.
    pub complete: bool,
}

/// An explanation lists no more failures than these.
const MOST_REJECTIONS: usize = 1 << 14;

/// What serves every offer, in the order of [`derive_all`], or why nothing does.
///
/// # Errors
///
/// When nothing does; also when there is no offer.
pub fn plan(offers: &[Offer]) -> Result<Derived, Box<Explanation>> {
    let derived = derive_all(offers);
    if derived.sets.is_empty() { Err(Box::new(explain(offers))) } else { Ok(derived) }
}

/// The reasons why nothing serves all of the offers. Where something does, there are none, and the
/// pairs that failed are there all the same.
pub fn explain(offers: &[Offer]) -> Explanation {
    let mut search = Search::of_many();
    let rejections = rejections(offers, &mut search);
    let all = derive_all(offers);
    search.complete &= all.complete;
    let group = if all.sets.is_empty() { smallest_group(offers, &mut search) } else { Vec::new() };
    let members: Vec<Offer> = group.iter().map(|at| offers[*at].clone()).collect();
    let mut reasons: Vec<Rejection> = Vec::new();
    for rejection in together(&members, &mut search) {
        if !reasons.iter().any(|known| known.cause == rejection.cause) {
            reasons.push(rejection);
        }
    }
    reasons.sort_by_key(|reason| reason.cause.distance());
    let relaxations = match members.is_empty() {
        true => Vec::new(),
        false => relaxations(offers, &group, &mut search),
    };
    Explanation {
        between: members.iter().map(|offer| offer.of.clone()).collect(),
        relaxations,
        reasons,
        rejections,
        // Of fewer than all it is known that nothing serves them.
        ruled_out: all.sets.is_empty() && (all.complete || group.len() < offers.len()),
        complete: search.complete,
    }
}

impl Cause {
    /// How far from success it is: a single value that is off is nearest.
    fn distance(&self) -> u32 {
        match self {
            Self::Conflict(_) => 0,
            Self::Required { .. } => 1,
            Self::NothingShared { .. } => 2,
            Self::Impossible { .. } => 3,
            Self::Empty => 4,
            Self::NoSets { .. } => 5,
        }
    }

    fn of(failure: Failure, before: &Partial<'_>, last: (&Use, &CapabilitySet)) -> Self {
        match failure {
            Failure::Conflict(conflict) => Self::Conflict(conflict),
            Failure::NothingShared => Self::NothingShared {
                last: last.1.capabilities.to_vec(),
                others: before.set.capabilities.to_vec(),
            },
            Failure::LeftLost(at) => {
                let capability = before.set.capabilities[at].clone();
                let by = before.find(|has| has.is_some_and(|known| known.required), &capability);
                Self::Required { by, capability, lacks: last.0.clone() }
            }
            Failure::RightLost(at) => {
                let capability = last.1.capabilities[at].clone();
                let lacks = before.find(|has| has.is_none(), &capability);
                Self::Required { by: last.0.clone(), capability, lacks }
            }
        }
    }
}

/// Sets of one device after the other that go together, and what they give.
struct Partial<'a> {
    from: Vec<(&'a Use, usize, CapabilitySet)>,
    set: CapabilitySet,
}

impl<'a> Partial<'a> {
    fn with(&self, of: &'a Use, at: usize, set: &CapabilitySet) -> Result<Self, Rejection> {
        let from = || self.from.iter().cloned().chain([(of, at, set.clone())]).collect();
        match pair(&self.set, set) {
            Ok(set) => Ok(Self { from: from(), set }),
            Err(failure) => {
                let cause = Cause::of(failure, self, (of, set));
                let sets = Self { from: from(), set: self.set.clone() }.places();
                Err(Rejection { sets, cause })
            }
        }
    }

    fn places(&self) -> Vec<OfferedSet> {
        let place = |(of, set, _): &(&Use, usize, _)| OfferedSet { of: (*of).clone(), set: *set };
        self.from.iter().map(place).collect()
    }

    /// The first device of which this holds for what its set has of a capability. One of them lacks
    /// or requires what all together lack or require.
    fn find(&self, holds: impl Fn(Option<&Capability>) -> bool, wanted: &Capability) -> Use {
        let has = |set: &CapabilitySet| {
            holds(set.capabilities.iter().find(|known| known.matches(wanted)))
        };
        let found = self.from.iter().find(|(.., set)| has(set)).unwrap_or(&self.from[0]);
        found.0.clone()
    }
}

/// Every set that is of no use by itself, and every pair of two offers that fails.
fn rejections(offers: &[Offer], search: &mut Search) -> Vec<Rejection> {
    let mut rejections: Vec<Rejection> = offers.iter().flat_map(alone).collect();
    for (at, offer) in offers.iter().enumerate() {
        let partials = partials(offer);
        for other in &offers[at + 1..] {
            join(&mut rejections, &partials, other, search);
        }
    }
    rejections
}

/// What fails when the offers are taken one after the other.
fn together(offers: &[Offer], search: &mut Search) -> Vec<Rejection> {
    let mut rejections: Vec<Rejection> = offers.iter().flat_map(alone).collect();
    let Some((first, rest)) = offers.split_first() else { return rejections };
    let mut before = partials(first);
    for offer in rest {
        before = join(&mut rejections, &before, offer, search);
    }
    rejections
}

/// The sets that are of use by themselves, with their numbers.
fn usable(offer: &Offer) -> impl Iterator<Item = (usize, CapabilitySet)> {
    let sets = offer.sets.iter().enumerate();
    sets.filter_map(|(at, set)| Some((at, normal(set)?)))
}

fn partials(offer: &Offer) -> Vec<Partial<'_>> {
    let partial = |(at, set): (usize, CapabilitySet)| Partial {
        from: vec![(&offer.of, at, set.clone())],
        set,
    };
    usable(offer).map(partial).collect()
}

/// What goes together, each result once; what does not is added to the rejections.
fn join<'a>(
    rejections: &mut Vec<Rejection>,
    before: &[Partial<'a>],
    next: &'a Offer,
    search: &mut Search,
) -> Vec<Partial<'a>> {
    let mut joined: Vec<Partial<'a>> = Vec::new();
    let next: Vec<(&'a Use, usize, CapabilitySet)> =
        usable(next).map(|(at, set)| (&next.of, at, set)).collect();
    for left in before {
        for (of, at, set) in &next {
            if rejections.len() >= MOST_REJECTIONS || !search.takes(1) {
                search.complete = false;
                return joined;
            }
            match left.with(of, *at, set) {
                Ok(partial) if joined.iter().any(|known| known.set == partial.set) => {}
                Ok(_) if joined.len() >= search.sets => search.complete = false,
                Ok(partial) => joined.push(partial),
                Err(rejection) => rejections.push(rejection),
            }
        }
    }
    joined
}

/// Why sets of an offer are of no use whatever the others are.
fn alone(offer: &Offer) -> Vec<Rejection> {
    if offer.sets.is_empty() {
        return vec![Rejection { sets: Vec::new(), cause: Cause::NoSets { of: offer.of.clone() } }];
    }
    let useless = |(set, has): (usize, &CapabilitySet)| {
        let cause = match super::merge(&has.constraints, &[]) {
            Err(conflict) => Cause::Conflict(conflict),
            Ok(merged) => match merged.iter().find(|constraint| constraint.is_impossible()) {
                Some(constraint) => Cause::Impossible { constraint: constraint.name },
                None if has.capabilities.is_empty() => Cause::Empty,
                None => return None,
            },
        };
        Some(Rejection { sets: vec![OfferedSet { of: offer.of.clone(), set }], cause })
    };
    offer.sets.iter().enumerate().filter_map(useless).collect()
}

/// The indices of a smallest group of offers that nothing serves; no smaller group is inside it.
fn smallest_group(offers: &[Offer], search: &mut Search) -> Vec<usize> {
    // A group of which not all was looked at may have memory.
    let mut fails = |group: &[usize]| {
        let lists: Vec<&Offer> = group.iter().map(|at| &offers[*at]).collect();
        let derived = search.derive(&lists);
        derived.sets.is_empty() && derived.complete
    };
    let all = 0..offers.len();
    if let Some(one) = all.clone().find(|one| fails(&[*one])) {
        return vec![one];
    }
    let two = all.clone().flat_map(|one| (0..one).map(move |other| [other, one]));
    if let Some(two) = two.into_iter().find(|two| fails(two)) {
        return two.to_vec();
    }
    // Leave out whoever is not needed for it to fail.
    let mut group: Vec<usize> = all.clone().collect();
    for at in all {
        let without: Vec<usize> = group.iter().copied().filter(|member| *member != at).collect();
        if fails(&without) {
            group = without;
        }
    }
    group
}

/// Changes of the group that help, from small to large.
fn relaxations(offers: &[Offer], group: &[usize], search: &mut Search) -> Vec<Relaxation> {
    let sets: usize = offers.iter().map(|offer| offer.sets.len()).sum();
    let mut helps = |change: &Relaxation| {
        search.takes(sets * PAIRS_A_COPY) && !search.derive(&change.applied(offers)).sets.is_empty()
    };
    // There is less to look at without one: these are found where there is too much for the others.
    let drop = |at: &usize| Relaxation::Drop { of: vec![offers[*at].of.clone()] };
    let drops: Vec<Relaxation> = group.iter().map(drop).filter(&mut helps).collect();
    let mut relaxations = candidates(offers, group);
    relaxations.retain(helps);
    relaxations.extend(drops);
    if relaxations.is_empty() {
        relaxations.extend(drop_many(offers, search));
    }
    relaxations
}

/// A set that is copied and put in order takes as long as comparing so many pairs.
const PAIRS_A_COPY: usize = 16;

fn candidates(offers: &[Offer], group: &[usize]) -> Vec<Relaxation> {
    let members = || group.iter().map(|at| &offers[*at]);
    let (mut candidates, mut known) = (Vec::new(), HashSet::new());
    let mut add = |change: Relaxation| {
        if known.insert(change.clone()) {
            candidates.push(change);
        }
    };
    for offer in members() {
        for constraint in offer.sets.iter().flat_map(|set| &set.constraints) {
            add(Relaxation::Without { of: offer.of.clone(), constraint: constraint.name });
        }
    }
    for offer in members() {
        for capability in offer.sets.iter().flat_map(|set| set.capabilities.iter()) {
            if capability.required {
                let capability = Capability { required: false, ..capability.clone() };
                add(Relaxation::NotRequired { of: offer.of.clone(), capability });
            }
        }
    }
    // What all devices can take as a rule, before what only some know. A device that cannot do this at
    // all takes nothing.
    let able = || members().filter(|offer| !offer.sets.is_empty());
    for offer in able() {
        add(Relaxation::Accept { of: offer.of.clone(), capability: Capability::pitch_linear() });
    }
    for offer in able() {
        let others = members().filter(|other| other.of != offer.of);
        for capability in
            others.flat_map(|other| &other.sets).flat_map(|set| set.capabilities.iter())
        {
            let capability = Capability { required: false, ..capability.clone() };
            add(Relaxation::Accept { of: offer.of.clone(), capability });
        }
    }
    candidates
}

/// The uses to drop when dropping one does not help: whoever fails with those that are kept, where
/// those that are asked for first are kept first.
fn drop_many(offers: &[Offer], search: &mut Search) -> Option<Relaxation> {
    let mut kept: Vec<&Offer> = Vec::new();
    let mut dropped = Vec::new();
    for offer in offers {
        if search.is_spent() {
            return None;
        }
        kept.push(offer);
        if search.derive(&kept).sets.is_empty() {
            kept.pop();
            dropped.push(offer.of.clone());
        }
    }
    (!kept.is_empty()).then_some(Relaxation::Drop { of: dropped })
}

impl Relaxation {
    /// The offers as they would be.
    pub fn applied(&self, offers: &[Offer]) -> Vec<Offer> {
        let mut changed = offers.to_vec();
        match self {
            Self::Drop { of } => changed.retain(|offer| !of.contains(&offer.of)),
            Self::Without { of, constraint } => {
                for set in sets_of(&mut changed, of) {
                    set.constraints.retain(|known| known.name != *constraint);
                }
            }
            Self::NotRequired { of, capability } => {
                for set in sets_of(&mut changed, of) {
                    let optional = |known: &Capability| Capability {
                        required: known.required && !known.matches(capability),
                        ..known.clone()
                    };
                    set.capabilities = set.capabilities.iter().map(optional).collect();
                }
            }
            Self::Accept { of, capability } => {
                for offer in changed.iter_mut().filter(|offer| offer.of == *of) {
                    let constraints = offer.sets.first().map(|set| set.constraints.clone());
                    let set =
                        CapabilitySet::new(constraints.unwrap_or_default(), [capability.clone()]);
                    offer.sets.push(set);
                }
            }
        }
        changed
    }
}

fn sets_of<'a>(
    offers: &'a mut [Offer],
    of: &'a Use,
) -> impl Iterator<Item = &'a mut CapabilitySet> {
    offers.iter_mut().filter(move |offer| offer.of == *of).flat_map(|offer| &mut offer.sets)
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required { by, capability, lacks } => {
                write!(f, "{by} needs {capability}, which {lacks} does not have")
            }
            Self::NothingShared { last, others } => {
                write!(f, "no capability in common: {} and {}", listed(others), listed(last))
            }
            Self::Conflict(conflict) => write!(f, "{conflict}"),
            Self::Impossible { constraint } => write!(f, "{constraint} 0 allows nothing"),
            Self::Empty => f.write_str("no capability at all"),
            Self::NoSets { of } => {
                write!(f, "{} cannot {} such an image", of.device, of.what())
            }
        }
    }
}

impl fmt::Display for OfferedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (set {})", self.of, self.set)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sets.as_slice() {
            [] => write!(f, "{}", self.cause),
            sets => {
                let sets: Vec<String> = sets.iter().map(OfferedSet::to_string).collect();
                write!(f, "{}: {}", sets.join(" and "), self.cause)
            }
        }
    }
}

/// Capabilities of one set.
fn listed(capabilities: &[Capability]) -> String {
    let shown: Vec<String> = capabilities.iter().map(Capability::to_string).collect();
    shown.join(" + ")
}

impl fmt::Display for Relaxation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRequired { of, capability } => {
                write!(f, "do without {capability} on {}, for {}", of.device, of.operation)
            }
            Self::Without { of, constraint } => {
                write!(f, "lift {constraint} on {}, for {}", of.device, of.operation)
            }
            Self::Accept { of, capability } => {
                write!(f, "accept {capability} on {}, for {}", of.device, of.operation)
            }
            Self::Drop { of } => {
                let uses: Vec<String> =
                    of.iter().map(|of| format!("{} on {}", of.operation, of.device)).collect();
                write!(f, "drop {}", uses.join(" and "))
            }
        }
    }
}

/// The nearest reason in a line, what else is in the way, and the nearest change of each kind.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.reasons.split_first() else {
            return f.write_str("no conflict\n");
        };
        let between: Vec<String> = self.between.iter().map(Use::to_string).collect();
        let found = if self.ruled_out { "no memory serves" } else { "found no memory that serves" };
        writeln!(f, "{found} {}: {}", between.join(" and "), first.cause)?;
        if !self.ruled_out {
            writeln!(f, "  note: the offers have more combinations than are looked at")?;
        } else if !self.complete {
            writeln!(
                f,
                "  note: not every reason and change was looked for: there are too many combinations"
            )?;
        }
        for reason in rest {
            writeln!(f, "  also {reason}")?;
        }
        let mut shown: Vec<std::mem::Discriminant<Relaxation>> = Vec::new();
        for relaxation in &self.relaxations {
            let kind = std::mem::discriminant(relaxation);
            if !shown.contains(&kind) {
                shown.push(kind);
                writeln!(f, "  help: {relaxation}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Explanation {}
