//! The grid: blocks over threads, in an order that does not show.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::block::{Block, Outcome};
use super::warp::Code;
use crate::device::{Launch, Schedule};
use crate::memory::Memory;
use crate::report::Report;
use crate::texture::Texture;

/// A launch, as its blocks see it.
pub(crate) struct Grid<'a> {
    pub(crate) code: &'a dyn Code,
    pub(crate) launch: &'a Launch,
    pub(crate) params: &'a [u8],
    pub(crate) memory: &'a Memory,
    /// Textures and surfaces, by their handles.
    pub(crate) textures: &'a HashMap<u64, Texture>,
    /// Address of what the blocks of a cooperative grid meet by; 0 for others.
    pub(crate) workspace: u64,
    /// Number of this launch on its device.
    pub(crate) id: u64,
    pub(crate) turn: Turn,
}

impl Grid<'_> {
    /// Whether the block at a position of the order need not go on.
    pub(super) fn is_over(&self, position: usize) -> bool {
        let is_stopped = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
        self.turn.is_over(position) || self.launch.stop.as_ref().is_some_and(is_stopped)
    }

    fn block_count(&self) -> usize {
        self.launch.grid.iter().map(|n| *n as usize).product()
    }

    /// The index of a block by its number.
    pub(crate) fn block_index(&self, number: usize) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(|n| n as usize);
        [number % x, number / x % y, number / x / y].map(|n| n as u32)
    }

    /// Block numbers in the order of the schedule.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.block_count() as u32).collect();
        if let Schedule::Random(seed) = self.launch.schedule {
            let mut random = Random::new(seed, self.id);
            for last in (1..order.len()).rev() {
                order.swap(last, random.below(last as u32 + 1) as usize);
            }
        }
        order
    }
}

/// Lets blocks do one at a time, in their order, what others can see.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// All blocks before this one have ended.
    first: AtomicUsize,
    ended: Mutex<Vec<bool>>,
    changed: Condvar,
    /// The first block in the order that made a fatal mistake, plus one; 0 is none.
    failed: AtomicUsize,
}

impl Turn {
    /// Waits until every block before this one has ended.
    pub(crate) fn wait(&self, position: usize) {
        if self.first.load(Ordering::Acquire) >= position {
            return;
        }
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while self.first.load(Ordering::Acquire) < position {
            ended = self.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, position: usize) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() <= position {
            ended.resize(position + 1, false);
        }
        ended[position] = true;
        let mut first = self.first.load(Ordering::Relaxed);
        while ended.get(first) == Some(&true) {
            first += 1;
        }
        self.first.store(first, Ordering::Release);
        self.changed.notify_all();
    }

    fn fail(&self, position: usize) {
        let earlier = |failed| (failed == 0 || position + 1 < failed).then_some(position + 1);
        // An error means that an earlier block has failed already.
        let _ = self.failed.fetch_update(Ordering::AcqRel, Ordering::Acquire, earlier);
    }

    /// Whether an earlier block has failed, so that this one need not go on.
    pub(crate) fn is_over(&self, position: usize) -> bool {
        let failed = self.failed.load(Ordering::Acquire);
        failed != 0 && failed <= position
    }
}

/// Ends a block's turn, also where the emulator itself fails: others wait for it.
struct End<'a> {
    turn: &'a Turn,
    position: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.turn.fail(self.position);
        }
        self.turn.end(self.position);
    }
}

/// A small generator (SplitMix64): the same numbers on every machine.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// Runs all blocks.
pub(crate) fn run(grid: &Grid<'_>) -> Report {
    let order = grid.order();
    let outcomes =
        if grid.launch.cooperative { together(grid, &order) } else { apart(grid, &order) };
    merge(grid, outcomes)
}

/// Each block to its end, several at a time.
fn apart(grid: &Grid<'_>, order: &[u32]) -> Vec<(usize, Outcome)> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(number) = order.get(position) else { return };
            let _end = End { turn: &grid.turn, position };
            if !grid.is_over(position) {
                let mut block = Block::new(grid, grid.block_index(*number as usize), position);
                while !block.advance(u32::MAX) {}
                let outcome = block.finish();
                if outcome.failed {
                    grid.turn.fail(position);
                }
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((position, outcome));
            }
        }
    };
    let threads = grid.launch.threads.max(1).min(order.len());
    if threads == 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// All blocks in turn, because they wait for each other.
fn together(grid: &Grid<'_>, order: &[u32]) -> Vec<(usize, Outcome)> {
    grid.turn.first.store(usize::MAX, Ordering::Release);
    let mut running: Vec<(usize, Block<'_>)> = order
        .iter()
        .enumerate()
        .map(|(position, number)| {
            (position, Block::new(grid, grid.block_index(*number as usize), position))
        })
        .collect();
    let (mut outcomes, mut steps) = (Vec::new(), 0);
    while !running.is_empty() {
        let mut still = Vec::new();
        for (position, mut block) in running {
            let before = block.steps();
            let ended = block.advance(1);
            steps += block.steps() - before;
            if steps > grid.launch.max_warp_instructions {
                block.exhaust();
            }
            if !ended {
                still.push((position, block));
                continue;
            }
            let outcome = block.finish();
            let failed = outcome.failed;
            outcomes.push((position, outcome));
            if failed {
                return outcomes;
            }
        }
        running = still;
    }
    outcomes
}

/// The blocks' outcomes in their order, up to the first that failed.
fn merge(grid: &Grid<'_>, mut outcomes: Vec<(usize, Outcome)>) -> Report {
    outcomes.sort_by_key(|(position, _)| *position);
    let mut report = Report::default();
    let mut known: HashMap<_, usize> = HashMap::new();
    for (position, outcome) in outcomes {
        if grid.turn.is_over(position) {
            break;
        }
        report.warp_instructions += outcome.warp_instructions;
        report.lane_instructions += outcome.lane_instructions;
        report.output.extend_from_slice(&outcome.output);
        report.events.extend(outcome.events);
        for finding in outcome.findings {
            // The same mistake in many blocks is one finding.
            let key = (finding.kind, finding.fatal, finding.location.in_source());
            match known.get(&key) {
                Some(at) => report.findings[*at].absorb(finding),
                None => {
                    known.insert(key, report.findings.len());
                    report.findings.push(finding);
                }
            }
        }
    }
    report.events.sort_by_key(|warp| {
        let [x, y, z] = warp.block;
        ([z, y, x], warp.warp)
    });
    report.findings.sort_by_key(|finding| finding.fatal);
    report
}
