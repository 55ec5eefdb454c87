//! The grid: blocks over threads, in an order that does not show.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::block::{Block, Outcome};
use super::shared::Shared;
use super::turn::{Turn, Worker};
use super::warp::Code;
use crate::device::{Launch, MAX_LAUNCH_BYTES, MAX_SHARED_BYTES, RESERVED_SHARED_BYTES, Schedule};
use crate::memory::Memory;
use crate::report::{FindingKind, Report, SourceLocation};
use crate::texture::Textures;

/// A launch, as its blocks see it.
pub(crate) struct Grid<'a> {
    pub(crate) code: &'a dyn Code,
    pub(crate) launch: &'a Launch,
    pub(crate) params: &'a [u8],
    pub(crate) memory: &'a Memory,
    pub(crate) textures: &'a dyn Textures,
    /// Address of what the blocks of a cooperative grid meet by; 0 for others.
    pub(crate) workspace: u64,
    /// Number of this launch on its device.
    pub(crate) id: u64,
    pub(crate) room: Room,
    pub(crate) turn: Turn,
}

impl Grid<'_> {
    /// Whether the block at a position of the order need not go on.
    pub(super) fn is_over(&self, position: usize) -> bool {
        self.turn.is_over(position) || self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.launch.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn block_count(&self) -> usize {
        product(self.launch.grid) as usize
    }

    /// The index of a block by its number.
    pub(crate) fn block_index(&self, number: usize) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(|n| n as usize);
        [number % x, number / x % y, number / x / y].map(|n| n as u32)
    }

    /// The order of the schedule. Grids with more blocks than memory should hold the order of have none but theirs.
    fn order(&self) -> Order {
        const MOST: usize = 1 << 22;
        let count = self.block_count();
        let Schedule::Random(seed) = self.launch.schedule else { return Order::Given(count) };
        if count > MOST {
            return Order::Given(count);
        }
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut random = Random::new(seed, self.id);
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u32 + 1) as usize);
        }
        Order::Shuffled(order)
    }
}

/// In which order blocks begin.
enum Order {
    /// By their numbers, so many.
    Given(usize),
    Shuffled(Vec<u32>),
}

impl Order {
    fn count(&self) -> usize {
        match self {
            Self::Given(count) => *count,
            Self::Shuffled(order) => order.len(),
        }
    }

    /// The number of the block at a position.
    fn number(&self, position: usize) -> Option<usize> {
        match self {
            Self::Given(count) => (position < *count).then_some(position),
            Self::Shuffled(order) => order.get(position).map(|number| *number as usize),
        }
    }
}

/// How many blocks of a launch there are at once, and what each may take of this process's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) blocks: usize,
    /// Bytes that the calls of a block may take, beside what it begins with.
    pub(super) call_bytes: u64,
}

impl Room {
    /// The launch alone decides, so that what blocks see is the same on any machine.
    pub(crate) fn of(launch: &Launch, code: &dyn Code) -> Result<Self, String> {
        let (shared, grain) = code.shared(launch.shared_bytes.into());
        let warps = launch.warps_of_block();
        let begins = warps * code.warp_bytes() + Shared::most_bytes(shared, grain, launch.checks);
        let bytes = begins + warps * code.call_bytes();
        // One always has room: what a thread may have is bounded.
        let fit = (MAX_LAUNCH_BYTES / bytes.max(1)).max(1);
        let mut blocks = at_once(launch, shared);
        if blocks > fit && launch.cooperative {
            return Err(format!(
                "{blocks} blocks that wait for each other, each with {bytes} bytes of local memory, shared memory and \
                 registers: at most {fit} have room in {MAX_LAUNCH_BYTES} bytes"
            ));
        }
        blocks = blocks.min(fit);
        let call_bytes = (MAX_LAUNCH_BYTES / blocks).saturating_sub(begins);
        Ok(Self { blocks: blocks as usize, call_bytes })
    }
}

pub(crate) fn product(of: [u32; 3]) -> u64 {
    of.iter().fold(1, |all: u64, n| all.saturating_mul((*n).into()))
}

/// As many blocks as a GPU runs at once: the largest has as many multiprocessors, with room for so many blocks, threads
/// and bytes of shared memory each. More than `MOST` threads are too many for a process; a cooperative launch has one.
fn at_once(launch: &Launch, shared: u64) -> u64 {
    const MULTIPROCESSORS: u64 = 132;
    const BLOCKS: u64 = 32;
    const THREADS: u64 = 2048;
    const MOST: u64 = 512;
    let count = product(launch.grid).max(1);
    if launch.cooperative {
        return count;
    }
    let room = MAX_SHARED_BYTES + RESERVED_SHARED_BYTES;
    let each = [THREADS / product(launch.block).max(1), room / shared.max(1)];
    let each = each.into_iter().fold(BLOCKS, u64::min);
    (MULTIPROCESSORS * each.max(1)).min(MOST).min(count)
}

/// Most bytes that the blocks of a launch take at once, whatever code with so much shared and local memory they run.
pub(crate) fn most_bytes(launch: &Launch, shared: u64, local: u64) -> u64 {
    const REGISTERS: u64 = 256 * size_of::<crate::lanes::Lanes>() as u64;
    let warps = launch.warps_of_block();
    let each = warps.saturating_mul(REGISTERS + 32 * local);
    let each = each.saturating_add(Shared::most_bytes(shared, 1, launch.checks));
    each.saturating_mul(at_once(launch, shared)).min(MAX_LAUNCH_BYTES)
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
    let merged = Mutex::new(Merged::default());
    if grid.launch.cooperative {
        in_turns(grid, &order, &merged);
    } else {
        apart(grid, &order, &merged);
    }
    merged.into_inner().unwrap_or_else(PoisonError::into_inner).finish(grid)
}

/// Each block to its end, several at a time; as many as there is room for where they wait for each other.
fn apart(grid: &Grid<'_>, order: &Order, merged: &Mutex<Merged>) {
    let next = AtomicUsize::new(0);
    let work = &|_worker: Worker<'_>| {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(number) = order.number(position) else { return };
            grid.turn.begin(position);
            let _end = End { turn: &grid.turn, position };
            // Those behind it are over as well.
            if grid.is_over(position) {
                return;
            }
            let mut block = Block::new(grid, grid.block_index(number), position);
            while !block.advance(u32::MAX) {}
            let mut outcome = block.finish();
            if outcome.failed && !grid.turn.fail(position) {
                outcome.forget_failure();
            }
            if grid.is_stopped() {
                grid.turn.abandon();
            }
            let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
            merged.add(position, outcome);
        }
    };
    let threads = grid.launch.threads.clamp(1, grid.room.blocks);
    if order.count() == 1 {
        return work(grid.turn.worker());
    }
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let worker = grid.turn.worker();
            scope.spawn(move || work(worker));
        }
        for _ in threads..grid.turn.wanted().unwrap_or(0) {
            let worker = grid.turn.worker();
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || work(worker));
            if spawned.is_err() {
                // Those that have a thread go on as they can.
                return grid.turn.free();
            }
        }
    });
}

/// All blocks in turn, because they wait for each other.
fn in_turns(grid: &Grid<'_>, order: &Order, merged: &Mutex<Merged>) {
    grid.turn.free();
    let blocks = (0..order.count()).filter_map(|position| {
        let index = grid.block_index(order.number(position)?);
        Some((position, Block::new(grid, index, position)))
    });
    let mut running: Vec<(usize, Block<'_>)> = blocks.collect();
    let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
    let mut steps = 0;
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
            merged.add(position, outcome);
            if failed {
                return;
            }
        }
        running = still;
    }
}

/// The blocks' outcomes in their order, as far as they are known.
#[derive(Default)]
struct Merged {
    report: Report,
    /// Positions of findings by what they are and where.
    known: HashMap<(FindingKind, bool, SourceLocation), usize>,
    /// The first that is missing, and those behind it.
    next: usize,
    behind: BTreeMap<usize, Outcome>,
    failed: bool,
}

impl Merged {
    fn add(&mut self, position: usize, outcome: Outcome) {
        self.behind.insert(position, outcome);
        while let Some(outcome) = self.behind.remove(&self.next) {
            self.next += 1;
            self.absorb(outcome);
        }
    }

    /// Up to the first that failed.
    fn absorb(&mut self, outcome: Outcome) {
        if self.failed {
            return;
        }
        self.failed = outcome.failed;
        self.report.warp_instructions += outcome.warp_instructions;
        self.report.lane_instructions += outcome.lane_instructions;
        self.report.output.extend_from_slice(&outcome.output);
        self.report.events.extend(outcome.events);
        for finding in outcome.findings {
            // The same mistake in many blocks is one finding.
            let key = (finding.kind, finding.fatal, finding.location.in_source());
            match self.known.get(&key) {
                Some(at) => self.report.findings[*at].absorb(finding),
                None => {
                    self.known.insert(key, self.report.findings.len());
                    self.report.findings.push(finding);
                }
            }
        }
    }

    fn finish(mut self, grid: &Grid<'_>) -> Report {
        // Behind blocks that another's failure ended.
        for (position, outcome) in std::mem::take(&mut self.behind) {
            if grid.turn.failed().is_none_or(|failed| position <= failed) {
                self.absorb(outcome);
            }
        }
        self.report.events.sort_by_key(|warp| {
            let [x, y, z] = warp.block;
            ([z, y, x], warp.warp)
        });
        self.report.findings.sort_by_key(|finding| finding.fatal);
        self.report
    }
}
