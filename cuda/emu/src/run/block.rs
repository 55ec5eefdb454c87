//! A block: its warps in turn, its barriers, its shared memory.

use std::collections::HashMap;

use super::grid::{Grid, Random};
use super::shared::{Access, AccessProblem, BARRIERS, MAX_WARPS, Shared, Site};
use super::warp::{Readiness, Stop, Warp};
use super::{Fault, Mistake};
use crate::device::Schedule;
use crate::memory::{AllocationCache, BlockAccess, GlobalProblem};
use crate::program::{BarrierKind, SharedVariable};
use crate::report::{Finding, FindingKind, Severity, SourceLocation, WarpEvents};
use crate::time::Counter;

/// Instructions that a warp runs before another may.
const QUANTUM: u32 = 4096;

/// A block while it runs.
pub(super) struct Block<'a> {
    pub(super) state: State<'a>,
    warps: Vec<Box<dyn Warp + 'a>>,
    barriers: [Barrier; BARRIERS],
    random: Option<Random>,
    /// The warp that ran last.
    last: usize,
    /// The grid has run all instructions that it may.
    exhausted: bool,
    failed: bool,
}

/// What the warps of a block share.
pub(crate) struct State<'a> {
    pub(super) grid: &'a Grid<'a>,
    /// Index in the grid.
    pub(super) index: [u32; 3],
    /// SourceLocation in the order of blocks.
    pub(super) position: usize,
    pub(super) shared: Shared,
    pub(super) allocations: AllocationCache<'a>,
    pub(super) output: Vec<u8>,
    pub(super) warp_instructions: u64,
    pub(super) lane_instructions: u64,
    /// Bytes that calls may take yet.
    pub(super) call_bytes: u64,
    /// The block may be behind others: it has done what can order it.
    pub(super) ordered: bool,
    findings: Vec<Finding>,
    /// Numbers of findings by place in the source, and by instruction.
    known: HashMap<(FindingKind, SourceLocation), usize>,
    seen: HashMap<(FindingKind, Site), usize>,
}

/// A barrier that some warps have come to.
#[derive(Default)]
struct Barrier {
    arrived: u32,
    waiting: u32,
    threads: u32,
    /// Threads that must come; 0 is all of the block.
    wanted: u32,
    /// Of `bar.red`: threads whose predicate holds.
    truths: u32,
    results: Vec<(usize, BarrierKind)>,
}

/// What came of a block.
pub(super) struct Outcome {
    pub(super) findings: Vec<Finding>,
    pub(super) output: Vec<u8>,
    pub(super) events: Vec<WarpEvents>,
    pub(super) warp_instructions: u64,
    pub(super) lane_instructions: u64,
    pub(super) failed: bool,
}

impl Outcome {
    /// Another block failed before this one.
    pub(super) fn forget_failure(&mut self) {
        self.failed = false;
        self.findings.retain(|finding| !finding.fatal);
    }
}

impl<'a> Block<'a> {
    pub(super) fn new(grid: &'a Grid<'a>, index: [u32; 3], position: usize) -> Self {
        let threads: u32 = grid.launch.block.iter().product();
        let warps = threads.div_ceil(32) as usize;
        let dynamic = u64::from(grid.launch.shared_bytes);
        let (size, grain) = grid.code.shared(dynamic);
        let random = match grid.launch.schedule {
            Schedule::InOrder => None,
            Schedule::Random(seed) => {
                Some(Random::new(seed, grid.id ^ (position as u64 + 1) << 20))
            }
        };
        let warp = |number: usize| {
            let mut warp = grid.code.warp(grid, number, threads);
            let every = u64::from(grid.launch.observe_every.max(1));
            if grid.launch.warp_number(index, number as u32) % every != 0 {
                let core = warp.core_mut();
                core.is_observed = false;
                core.events = Vec::new();
            }
            warp
        };
        let mut shared = Shared::new(size, grain, warps, grid.launch.checks);
        shared.lanes = grid.launch.compare_lanes;
        // Behind the last one is dynamic memory, or the end of all.
        let variables = grid.code.shared_variables();
        let starts = variables.iter().skip(1).map(|variable| variable.start);
        let starts = starts.chain((dynamic > 0).then(|| size - dynamic));
        for (variable, next) in variables.iter().zip(starts) {
            shared.leave_out(variable.end, next);
        }
        Self {
            state: State {
                grid,
                index,
                position,
                shared,
                allocations: AllocationCache::new(grid.memory),
                output: Vec::new(),
                warp_instructions: 0,
                lane_instructions: 0,
                call_bytes: grid.room.call_bytes,
                ordered: false,
                findings: Vec::new(),
                known: HashMap::new(),
                seen: HashMap::new(),
            },
            warps: (0..warps).map(warp).collect(),
            barriers: Default::default(),
            random,
            last: 0,
            exhausted: false,
            failed: false,
        }
    }

    /// Lets warps run this many times; whether the block has ended.
    pub(super) fn advance(&mut self, turns: u32) -> bool {
        for _ in 0..turns {
            if self.state.grid.is_over(self.state.position) {
                return true;
            }
            match self.turn() {
                Ok(false) => {}
                Ok(true) => return true,
                Err(fault) => {
                    self.state.findings.push(*fault);
                    self.failed = true;
                    return true;
                }
            }
        }
        false
    }

    /// Instructions that its warps ran.
    pub(super) fn steps(&self) -> u64 {
        self.state.warp_instructions
    }

    /// Ends it as endless if it is to run on.
    pub(super) fn exhaust(&mut self) {
        self.exhausted = true;
    }

    pub(super) fn finish(self) -> Outcome {
        let index = self.state.index;
        let events = self
            .warps
            .into_iter()
            .map(|mut warp| WarpEvents {
                block: index,
                warp: warp.core().index as u32,
                events: std::mem::take(&mut warp.core_mut().events),
                dropped: warp.core().dropped,
            })
            .filter(|warp| !warp.events.is_empty() || warp.dropped != 0);
        Outcome {
            events: events.collect(),
            findings: self.state.findings,
            output: self.state.output,
            warp_instructions: self.state.warp_instructions,
            lane_instructions: self.state.lane_instructions,
            failed: self.failed,
        }
    }

    /// Lets one warp run; whether all have ended.
    fn turn(&mut self) -> Result<bool, Fault> {
        let Some(at) = self.pick() else {
            return if self.warps.iter().all(|warp| warp.core().has_ended()) {
                Ok(true)
            } else {
                Err(self.deadlock())
            };
        };
        let quantum = match &mut self.random {
            Some(random) => 1 + random.below(32),
            None => QUANTUM,
        };
        let warp = &mut self.warps[at];
        let stop = warp
            .run(&mut self.state, quantum)
            .map_err(|mistake| Box::new(self.state.finding(warp.as_ref(), *mistake)))?;
        if self.exhausted
            || self.state.grid.turn.is_stuck()
            || self.state.warp_instructions > self.state.grid.launch.max_warp_instructions
        {
            return Err(Box::new(self.state.endless(warp.as_ref())));
        }
        match stop {
            Stop::Paused => {}
            // Leaving may be what a barrier waits for.
            Stop::Ended => {
                for id in 0..BARRIERS {
                    self.release(id);
                }
            }
            Stop::Barrier { id, kind, threads, truths } => {
                self.arrive(at, id, kind, threads, truths)
            }
        }
        Ok(false)
    }

    /// The next warp that can run: the same as long as it can, so that one is done before the next, or
    /// any one.
    fn pick(&mut self) -> Option<usize> {
        let count = self.warps.len();
        let start = match &mut self.random {
            Some(random) => random.below(count as u32) as usize,
            None => self.last,
        };
        let at = (0..count)
            .map(|step| (start + step) % count)
            .find(|at| self.warps[*at].core().is_ready())?;
        // After a whole quantum the others have their turn.
        self.last = (at + 1) % count;
        Some(at)
    }

    fn arrive(&mut self, at: usize, id: usize, kind: BarrierKind, wanted: u32, truths: u32) {
        let barrier = &mut self.barriers[id];
        barrier.arrived |= 1 << at;
        barrier.threads += 32;
        barrier.wanted = wanted;
        barrier.truths += truths;
        self.state.shared.arrive(id, at);
        if !matches!(kind, BarrierKind::Arrive) {
            barrier.waiting |= 1 << at;
            barrier.results.push((at, kind));
            self.warps[at].core_mut().readiness = Readiness::Waiting(id);
        }
        self.release(id);
    }

    /// Lets the warps of a barrier go if all that it waits for have come.
    fn release(&mut self, id: usize) {
        let barrier = &self.barriers[id];
        if barrier.arrived == 0 {
            return;
        }
        let complete = match barrier.wanted {
            0 => (0..self.warps.len())
                .all(|at| barrier.arrived >> at & 1 != 0 || self.warps[at].core().has_ended()),
            wanted => barrier.threads >= wanted,
        };
        if !complete {
            return;
        }
        let barrier = std::mem::take(&mut self.barriers[id]);
        self.state.shared.leave(id, barrier.waiting);
        let alive: u32 =
            barrier.results.iter().map(|(at, _)| self.warps[*at].core().alive.count_ones()).sum();
        for (at, kind) in barrier.results {
            let (dst, value) = match kind {
                BarrierKind::Sync | BarrierKind::Arrive => (None, 0),
                BarrierKind::Count { dst, .. } => (Some(dst), barrier.truths),
                BarrierKind::All { dst, .. } => (Some(dst), u32::from(barrier.truths == alive)),
                BarrierKind::Any { dst, .. } => (Some(dst), u32::from(barrier.truths != 0)),
            };
            let warp = &mut self.warps[at];
            warp.core_mut().readiness = Readiness::Ready;
            if let Some(dst) = dst {
                warp.receive(dst, &[u64::from(value); 32]);
            }
        }
    }

    /// All warps wait, for what will not come.
    fn deadlock(&self) -> Fault {
        let waiting: Vec<String> = self
            .warps
            .iter()
            .filter_map(|warp| Some((warp, warp.core().waits_at()?)))
            .map(|(warp, id)| {
                format!(
                    "warp {} at barrier {id}, {}",
                    warp.core().index,
                    self.state.own_location(warp.site(), warp.callers())
                )
            })
            .collect();
        let wanted: Vec<String> = self
            .barriers
            .iter()
            .enumerate()
            .filter(|(_, barrier)| barrier.arrived != 0 && barrier.wanted != 0)
            .map(|(id, b)| format!("barrier {id} has {} of {} threads", b.threads, b.wanted))
            .collect();
        let message = format!("no warp can go on: {}", [waiting, wanted].concat().join("; "));
        let first = self.warps.iter().find(|warp| warp.core().waits_at().is_some());
        let first = first.unwrap_or(&self.warps[0]).as_ref();
        let lane = first.first_lane();
        Box::new(self.state.finding(first, Mistake::new(FindingKind::Deadlock, lane, message)))
    }
}

impl State<'_> {
    /// What a counter says: where nothing counts time, what depends on nothing but what has run.
    pub(super) fn count(&self, counter: Counter) -> u64 {
        self.grid.launch.time.map_or(self.warp_instructions, |time| time.now(counter))
    }

    /// Where an instruction is, for people: in the program's own text, its callers' if need be.
    pub(super) fn own_location(
        &self,
        site: Site,
        callers: impl IntoIterator<Item = Site>,
    ) -> SourceLocation {
        let here = self.grid.code.location(site);
        let own =
            std::iter::once(site).chain(callers).find_map(|site| self.grid.code.own_location(site));
        match own {
            Some(own) => SourceLocation {
                ptx_line: here.ptx_line,
                address: here.address,
                pc: here.pc,
                unit: here.unit,
                ..own
            },
            None => here,
        }
    }

    fn thread(&self, warp: usize, lane: usize) -> [u32; 3] {
        let [x, y, _] = self.grid.launch.block;
        let linear = (warp * 32 + lane) as u32;
        [linear % x, linear / x % y, linear / x / y]
    }

    fn finding(&self, warp: &dyn Warp, mistake: Mistake) -> Finding {
        Finding {
            kind: mistake.kind,
            severity: Severity::Error,
            fatal: true,
            kernel: self.grid.code.name().to_owned(),
            block: self.index,
            thread: self.thread(warp.core().index, mistake.lane),
            location: self.own_location(warp.site(), warp.callers()),
            message: mistake.message,
            refused: mistake.refused,
            count: 1,
        }
    }

    /// The launch has run as many instructions as it may, and this warp ran the last.
    fn endless(&self, warp: &dyn Warp) -> Finding {
        let limit = self.grid.launch.max_warp_instructions;
        let together = self.grid.launch.cooperative || self.grid.turn.is_stuck();
        let who = if together { "the grid" } else { "the block" };
        let at_once = if self.grid.turn.is_stuck() {
            format!("; {} blocks ran at once", self.grid.room.blocks)
        } else {
            String::new()
        };
        let place = |site| self.own_location(site, std::iter::empty());
        let looped = std::iter::once(warp.site()).chain(warp.callers()).find_map(|site| {
            let (first, last) = self.grid.code.innermost_loop(site)?;
            Some(format!("in the loop from {} to {}", place(first), place(last)))
        });
        let message = format!(
            "{who} has run more than its limit of {limit} instructions of warps; warp {} is {}{at_once}",
            warp.core().index,
            looped.unwrap_or_else(|| "in no loop".to_owned())
        );
        let mistake = Mistake::new(FindingKind::Endless, warp.first_lane(), message);
        self.finding(warp, mistake)
    }

    /// Notes what is wrong with an access to shared memory, which does not end the launch.
    pub(super) fn shared_problem(
        &mut self,
        warp: &dyn Warp,
        lane: usize,
        offset: usize,
        problem: AccessProblem,
    ) {
        let (kind, severity) = match &problem {
            AccessProblem::Outside => (FindingKind::OutOfBounds, Severity::Error),
            AccessProblem::Uninitialised => (FindingKind::UninitialisedShared, Severity::Error),
            AccessProblem::Race { values: Some((old, new)), .. } if old == new => {
                (FindingKind::Race, Severity::Undefined)
            }
            AccessProblem::Race { .. } => (FindingKind::Race, Severity::Error),
        };
        self.note(warp, kind, severity, lane, |state| match &problem {
            AccessProblem::Outside => state.outside(offset as u64),
            AccessProblem::Uninitialised => {
                format!("shared memory at {offset:#x} was never written")
            }
            AccessProblem::Race { other, write, values } => {
                state.race(offset, other, *write, values.as_ref())
            }
        });
    }

    /// Notes what is wrong with an access to global memory. `values`: of a write, the bytes before and after it.
    pub(super) fn global_problem(
        &mut self,
        warp: &dyn Warp,
        lane: usize,
        address: u64,
        problem: GlobalProblem,
        values: Option<(u64, u64)>,
    ) {
        let (kind, severity) = match problem {
            GlobalProblem::Uninitialised => (FindingKind::UninitialisedGlobal, Severity::Error),
            GlobalProblem::Race { write: true, .. }
                if values.is_some_and(|(old, new)| old == new) =>
            {
                (FindingKind::Race, Severity::Undefined)
            }
            GlobalProblem::Race { .. } => (FindingKind::Race, Severity::Error),
        };
        self.note(warp, kind, severity, lane, |state| match problem {
            GlobalProblem::Uninitialised => {
                format!("global memory at {address:#x} was never written")
            }
            GlobalProblem::Race { other, write } => {
                let what = if write { "written" } else { "read" };
                let values = match values.filter(|_| write) {
                    Some((old, new)) if old == new => format!("; both store {new:#x}"),
                    Some((old, new)) => format!("; that stored {old:#x}, this {new:#x}"),
                    None => String::new(),
                };
                let who = state.who(&other);
                format!(
                    "global memory at {address:#x} was {what} by {who}, with nothing that orders the two{values}"
                )
            }
        });
    }

    /// Who made an access that this block's races with: a thread of the block, another block, or another operation.
    fn who(&self, other: &BlockAccess) -> String {
        if other.launch == self.grid.id {
            let [x, y, z] = self.grid.block_index(other.block as usize - 1);
            let who = if [x, y, z] == self.index {
                let [x, y, z] = self.thread(other.warp.into(), other.lane.into());
                format!("thread ({x},{y},{z}) of warp {}", other.warp)
            } else {
                format!("block ({x},{y},{z})")
            };
            let site = Site { function: other.site.0, pc: other.site.1 };
            return format!("{who} at {}", self.own_location(site, std::iter::empty()));
        }
        let name = self.grid.memory.shadow().map(|shadow| shadow.name(other.launch));
        format!("{} in another stream", name.unwrap_or_default())
    }

    /// Notes a mistake that does not end the launch, or counts it if it was seen at the same place.
    pub(super) fn note(
        &mut self,
        warp: &dyn Warp,
        kind: FindingKind,
        severity: Severity,
        lane: usize,
        message: impl FnOnce(&Self) -> String,
    ) {
        let site = (kind, warp.site());
        if let Some(at) = self.seen.get(&site) {
            let known = &mut self.findings[*at];
            if severity <= known.severity {
                known.count += 1;
                return;
            }
        }
        let mistake = Mistake::new(kind, lane, message(self));
        let finding = Finding { fatal: false, severity, ..self.finding(warp, mistake) };
        let at =
            *self.known.entry((kind, finding.location.in_source())).or_insert(self.findings.len());
        self.seen.insert(site, at);
        match self.findings.get_mut(at) {
            Some(known) => known.absorb(finding),
            None => self.findings.push(finding),
        }
    }

    /// Which variable an address between two is behind.
    fn outside(&self, offset: u64) -> String {
        let before = self.grid.code.shared_variables().iter().rfind(|other| other.start <= offset);
        match before {
            Some(SharedVariable { name, start, end }) => format!(
                "shared memory at {offset:#x} is no variable's: {} bytes into `{name}`, which has {}",
                offset - start,
                end - start
            ),
            None => format!("shared memory at {offset:#x} is no variable's"),
        }
    }

    fn race(
        &self,
        offset: usize,
        other: &Access,
        write: bool,
        values: Option<&(Vec<u8>, Vec<u8>)>,
    ) -> String {
        let [x, y, z] = self.thread(other.warp.into(), other.lane.into());
        let what = if write { "written" } else { "read" };
        let values = match values {
            Some((old, new)) if old == new => format!("; both store {}", hexadecimal(old)),
            Some((old, new)) => {
                format!("; that stored {}, this {}", hexadecimal(old), hexadecimal(new))
            }
            None => String::new(),
        };
        format!(
            "shared memory at {offset:#x} was {what} by thread ({x},{y},{z}) of warp {} at {}, with nothing \
             that orders the two{values}",
            other.warp,
            self.own_location(other.site, std::iter::empty())
        )
    }
}

/// The number that bytes are, from the lowest.
fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().rev().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

const _: () = assert!(MAX_WARPS == 32, "masks of warps have 32 bits");
