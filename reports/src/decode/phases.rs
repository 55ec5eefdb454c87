//! What a process did, in order, cut into phases.
//!
//! A phase begins with the first call of a stage: the table [`STAGES`] says which kinds of node, and
//! which calls, a stage begins with. A process has each stage once, and what comes later of an
//! earlier stage is part of the phase it happens in. The steady state is what follows the last call
//! that set something up: one that opened a node, or was the first of its kind on its file
//! descriptor. A loop counts as one step, so it is all setup or all steady state.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::fold::{Folded, Part, Symbol};

/// The title of what comes before any stage of the table.
const FIRST: &str = "Discovery";
/// The title of what comes behind the setup.
const LAST: &str = "Steady state";

/// A stage: its title, the nodes whose first opening or use begins it, and the calls that do.
struct Stage {
    title: &'static str,
    nodes: &'static [&'static str],
    calls: &'static [&'static str],
}

const STAGES: [Stage; 7] = [
    Stage { title: "GPU setup", nodes: &["nvidia"], calls: &[] },
    Stage { title: "Memory system setup", nodes: &["as", "host1x-fence"], calls: &[] },
    Stage { title: "Unified memory setup", nodes: &["nvidia-uvm"], calls: &[] },
    Stage {
        title: "Buffer allocation",
        nodes: &[],
        calls: &["NVMAP_IOC_CREATE", "NVMAP_IOC_CREATE_64"],
    },
    Stage { title: "TSG and channel setup", nodes: &["tsg", "channel"], calls: &[] },
    Stage { title: "Channel setup", nodes: &[], calls: &["UVM_REGISTER_CHANNEL"] },
    Stage { title: "Debugging and profiling", nodes: &["dbg", "prof"], calls: &[] },
];

/// More steps than these nobody reads.
const LONG: usize = 256;
/// Rounds of a loop are compared whole up to this length.
const ROUND: usize = 64;
/// As many kinds of rounds are distinguished.
const KINDS: usize = 24;
/// Firsts that are remembered: as many requests on file descriptors.
const FIRSTS: usize = 1 << 20;

/// The stage that a node begins.
pub(crate) fn stage_of_node(node: &str) -> Option<u8> {
    stage(|stage| stage.nodes.contains(&node))
}

/// The stage that a call begins.
pub(crate) fn stage_of_call(name: &str) -> Option<u8> {
    stage(|stage| stage.calls.contains(&name))
}

fn stage(begins: impl Fn(&Stage) -> bool) -> Option<u8> {
    STAGES.iter().zip(0..).find(|(stage, _)| begins(stage)).map(|(_, at)| at)
}

/// Something that a process did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Happened {
    /// What: an index of the caller's.
    pub(crate) symbol: Symbol,
    /// Where in the log.
    pub(crate) line: u64,
    /// The opening of the file that it was done on.
    pub(crate) object: u32,
    /// Whether it opened a node.
    pub(crate) opens: bool,
    /// The stage that it belongs to.
    pub(crate) stage: Option<u8>,
}

/// The phases of one process.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    begun: [bool; STAGES.len()],
    firsts: FxHashSet<(u32, Symbol)>,
    phases: Vec<Phase>,
}

#[derive(Debug)]
struct Phase {
    title: &'static str,
    first: u64,
    last: u64,
    /// The line of the last call that set something up.
    setup: u64,
    folded: Folded,
    rounds: Rounds,
    counts: Vec<(Symbol, u64)>,
    at: FxHashMap<Symbol, usize>,
}

/// What a report shows of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhaseSummary {
    pub(crate) title: &'static str,
    /// First line and last.
    pub(crate) lines: (u64, u64),
    pub(crate) calls: u64,
    pub(crate) steps: Vec<(Part, u64)>,
    pub(crate) how: PhaseForm,
}

/// How steps tell what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseForm {
    /// As it happened, with loops folded.
    Sequence,
    /// The rounds of a loop by kind, in the order of their first occurrence.
    Rounds,
    /// How often each call was made, in the order of their first occurrence.
    Counts,
}

impl Phases {
    /// Takes in the next thing.
    pub(crate) fn happened(&mut self, what: Happened) {
        let begins = what.stage.filter(|stage| {
            self.begun
                .get_mut(usize::from(*stage))
                .is_some_and(|begun| !std::mem::replace(begun, true))
        });
        let title = begins.and_then(|at| STAGES.get(usize::from(at))).map(|stage| stage.title);
        if title.is_some() || self.phases.is_empty() {
            self.phases.push(Phase::new(title.unwrap_or(FIRST), what.line));
        }
        let room = self.firsts.len() < FIRSTS;
        let first = room && self.firsts.insert((what.object, what.symbol));
        if let Some(phase) = self.phases.last_mut() {
            phase.push(what.symbol, what.line, what.opens || first);
        }
    }

    /// The phases, the last one cut where the steady state begins.
    pub(crate) fn summaries(&self) -> Vec<PhaseSummary> {
        let Some((last, before)) = self.phases.split_last() else { return Vec::new() };
        let mut summaries: Vec<PhaseSummary> = before.iter().map(|phase| phase.summary()).collect();
        let (setup, steady) = last.folded.parts(last.setup);
        if steady.is_empty() || setup.is_empty() || last.folded.is_full() {
            summaries.push(last.summary());
            return summaries;
        }
        let calls = |steps: &[(Part, u64)]| steps.iter().map(calls).sum::<u64>();
        let border = last.folded.line_after(last.setup).unwrap_or(last.last);
        let whole = |title, lines, steps: Vec<(Part, u64)>| PhaseSummary {
            title,
            lines,
            calls: calls(&steps),
            steps,
            how: PhaseForm::Sequence,
        };
        summaries.push(whole(last.title, (last.first, border.saturating_sub(1)), setup));
        summaries.push(whole(LAST, (border, last.last), steady));
        summaries
    }
}

/// How many calls a step stands for.
fn calls((part, times): &(Part, u64)) -> u64 {
    times
        * match part {
            Part::One(_) => 1,
            Part::Loop(body) => body.iter().map(calls).sum(),
        }
}

impl Phase {
    fn new(title: &'static str, line: u64) -> Self {
        Self {
            title,
            first: line,
            last: line,
            setup: line,
            folded: Folded::default(),
            rounds: Rounds::default(),
            counts: Vec::new(),
            at: FxHashMap::default(),
        }
    }

    fn push(&mut self, symbol: Symbol, line: u64, setup: bool) {
        self.folded.push(symbol, line);
        self.rounds.push(symbol);
        let at = *self.at.entry(symbol).or_insert(self.counts.len());
        match self.counts.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((symbol, 1)),
        }
        self.last = line;
        if setup {
            self.setup = line;
        }
    }

    /// The shortest way to say it: folded as it happened, its rounds, or how often each call was.
    fn summary(&self) -> PhaseSummary {
        let folded = self.folded.parts(u64::MAX).0;
        let counted = || self.counts.iter().map(|(symbol, n)| (Part::One(*symbol), *n)).collect();
        let (steps, how) = match self.rounds.parts() {
            Some(rounds) if 2 * leaves(&rounds) <= leaves(&folded) => (rounds, PhaseForm::Rounds),
            _ if !self.folded.is_full() && leaves(&folded) <= LONG => (folded, PhaseForm::Sequence),
            _ => (counted(), PhaseForm::Counts),
        };
        let calls = self.folded.len();
        PhaseSummary { title: self.title, lines: (self.first, self.last), calls, steps, how }
    }
}

/// How much there is to read.
fn leaves(steps: &[(Part, u64)]) -> usize {
    let of = |part: &Part| match part {
        Part::One(_) => 1,
        Part::Loop(body) => leaves(body),
    };
    steps.iter().map(|(part, _)| of(part)).sum()
}

/// Rounds of a loop whose rounds differ: each begins with the phase's first call.
#[derive(Debug, Default)]
struct Rounds {
    head: Option<Symbol>,
    round: Vec<Symbol>,
    kinds: Vec<(Vec<Symbol>, u64)>,
    known: FxHashMap<Vec<Symbol>, usize>,
    given_up: bool,
}

impl Rounds {
    fn push(&mut self, symbol: Symbol) {
        if self.given_up {
            return;
        }
        if *self.head.get_or_insert(symbol) == symbol {
            self.end();
        }
        self.round.push(symbol);
        self.given_up = self.round.len() > ROUND || self.kinds.len() > KINDS;
    }

    fn end(&mut self) {
        if self.round.is_empty() {
            return;
        }
        match self.known.get(&self.round) {
            Some(at) => self.kinds[*at].1 += 1,
            None => {
                self.known.insert(self.round.clone(), self.kinds.len());
                self.kinds.push((self.round.clone(), 1));
            }
        }
        self.round.clear();
    }

    fn parts(&self) -> Option<Vec<(Part, u64)>> {
        if self.given_up {
            return None;
        }
        let last = (!self.round.is_empty()).then(|| (self.round.clone(), 1));
        let mut all = self.kinds.clone();
        match (last, self.known.get(&self.round)) {
            (Some(_), Some(at)) => all[*at].1 += 1,
            (Some(last), None) => all.push(last),
            (None, _) => {}
        }
        let part = |(round, times): (Vec<Symbol>, u64)| {
            let mut folded = Folded::default();
            round.iter().for_each(|symbol| folded.push(*symbol, 0));
            (Part::Loop(folded.parts(u64::MAX).0), times)
        };
        Some(all.into_iter().map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(events: &[(Symbol, Option<u8>, u32)]) -> Vec<PhaseSummary> {
        let mut phases = Phases::default();
        for ((symbol, stage, object), line) in events.iter().zip(1..) {
            let (symbol, stage, object) = (*symbol, *stage, *object);
            phases.happened(Happened { symbol, line, object, opens: false, stage });
        }
        phases.summaries()
    }

    #[test]
    fn a_stage_begins_once() {
        let stage = stage_of_node("as");
        let summaries =
            phases(&[(1, None, 0), (2, stage, 0), (1, None, 0), (2, stage, 0), (3, None, 1)]);
        let titles: Vec<_> =
            summaries.iter().map(|phase| (phase.title, phase.lines, phase.calls)).collect();
        assert_eq!(titles, [("Discovery", (1, 1), 1), ("Memory system setup", (2, 5), 4)]);
    }

    #[test]
    fn what_only_repeats_behind_the_setup_is_the_steady_state() {
        let summaries =
            phases(&[(1, None, 0), (2, None, 0), (9, None, 0), (2, None, 0), (2, None, 0)]);
        let titles: Vec<_> =
            summaries.iter().map(|phase| (phase.title, phase.lines, phase.calls)).collect();
        assert_eq!(titles, [("Discovery", (1, 3), 3), ("Steady state", (4, 5), 2)]);
        // The same calls on another file set that up.
        let summaries =
            phases(&[(1, None, 0), (2, None, 0), (9, None, 0), (2, None, 1), (2, None, 2)]);
        assert_eq!(summaries.len(), 1);
    }

    #[test]
    fn rounds_that_differ_are_counted_by_kind() {
        let mut phase = Phase::new("loop", 0);
        let (long, short) = ([1, 2, 3, 4], [1, 2, 4]);
        for round in 0..200u32 {
            // Where the long ones stand has no period.
            let body: &[Symbol] =
                if round.wrapping_mul(2_654_435_761) >> 30 == 0 { &short } else { &long };
            body.iter().for_each(|symbol| phase.push(*symbol, 0, false));
        }
        let phase = phase.summary();
        assert_eq!((phase.steps.len(), phase.how), (2, PhaseForm::Rounds), "{phase:?}");
        assert_eq!(phase.steps.iter().map(calls).sum::<u64>(), phase.calls);
    }
}
