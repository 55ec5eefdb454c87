//! Shared memory of a block with a shadow that tells what was initialised and which accesses race.
//!
//! The detector is FastTrack's: each warp has a vector clock; a cell remembers the last write and the
//! reads since. Two accesses race if one is a write, not both are atomic or volatile, and the clocks do
//! not order them. Barriers order; a fence followed by an atomic access orders what comes after an
//! atomic access and a fence that read from it.

use std::collections::HashMap;

use super::{read_word, write_word};
use crate::clock::Moment;

/// Most warps of a block.
pub(super) const MAX_WARPS: usize = 32;

/// Barriers of a block.
pub(super) const BARRIERS: usize = 16;

pub(super) type Clock = [u32; MAX_WARPS];

fn join(into: &mut Clock, other: &Clock) {
    for (a, b) in into.iter_mut().zip(other) {
        *a = (*a).max(*b);
    }
}

/// Where an instruction is: function and position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub(super) function: u32,
    pub(super) pc: u32,
}

/// One access, as the shadow remembers it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Access {
    /// The warp's own time; 0 is no access.
    clock: u32,
    pub(super) site: Site,
    pub(super) warp: u8,
    pub(super) lane: u8,
    strong: bool,
}

/// Accessor accesses, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accessor {
    pub(super) warp: usize,
    pub(super) lane: usize,
    pub(super) site: Site,
    /// Atomic or volatile.
    pub(super) strong: bool,
}

/// Something wrong with an access.
#[derive(Debug, Clone)]
pub(super) enum AccessProblem {
    /// Between two variables.
    Outside,
    Uninitialised,
    /// With an earlier access, which was a write or not.
    Race {
        other: Access,
        write: bool,
        /// Of two writes: the bytes that are there, and those that take their place.
        values: Option<(Vec<u8>, Vec<u8>)>,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    write: Access,
    read: Access,
    /// Several warps have read: their clocks are in `readers`.
    many: bool,
    /// No variable's.
    outside: bool,
}

/// The state that orders one warp with others.
#[derive(Debug, Clone)]
struct WarpClocks {
    now: Clock,
    /// `now` at the last fence: what an atomic access publishes.
    fenced: Clock,
    /// What atomic accesses have read: known from the next fence on.
    pending: Clock,
}

/// The shared memory of one block.
#[derive(Debug)]
pub(super) struct Shared {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// Bytes of a cell are `1 << shift`.
    shift: u32,
    readers: Vec<Clock>,
    times: Vec<WarpClocks>,
    /// What those that came to each barrier had done.
    barriers: [Clock; BARRIERS],
    published: HashMap<usize, Clock>,
    /// Barriers in memory by their cells: what those that arrived had done, and who looks at one knows. Machine code
    /// looks by loads as any other.
    in_memory: HashMap<usize, Clock>,
    /// Whether lanes of a warp are compared with each other.
    pub(super) lanes: bool,
}

impl Shared {
    /// Most bytes that it takes: with all that the shadow may have to remember.
    pub(super) fn most_bytes(size: u64, grain: u32, checks: bool) -> u64 {
        const REMEMBERED: usize = size_of::<Cell>() + 2 * size_of::<Clock>() + 16;
        let cells = if checks { size.div_ceil(grain.into()) } else { 0 };
        size + cells * REMEMBERED as u64
    }

    /// Without `checks` there is no shadow, and nothing is found.
    pub(super) fn new(size: u64, grain: u32, warps: usize, checks: bool) -> Self {
        let shift = grain.ilog2();
        let mut times = vec![WarpClocks { now: [0; 32], fenced: [0; 32], pending: [0; 32] }; warps];
        for (warp, time) in times.iter_mut().enumerate() {
            time.now[warp] = 1;
        }
        Self {
            bytes: vec![0; size as usize],
            cells: vec![
                Cell::default();
                if checks { (size as usize).div_ceil(grain as usize) } else { 0 }
            ],
            shift,
            readers: Vec::new(),
            times,
            barriers: [[0; MAX_WARPS]; BARRIERS],
            published: HashMap::new(),
            in_memory: HashMap::new(),
            lanes: false,
        }
    }

    /// From here to there is no variable: whoever accesses that ran over the end of one.
    pub(super) fn leave_out(&mut self, start: u64, end: u64) {
        let grain = 1 << self.shift;
        let cells = start.div_ceil(grain) as usize..(end / grain) as usize;
        if let Some(cells) = self.cells.get_mut(cells) {
            cells.iter_mut().for_each(|cell| cell.outside = true);
        }
    }

    /// The offset as an index, if all of the range is inside.
    pub(super) fn locate(&self, offset: u64, size: u64) -> Option<usize> {
        let end = offset.checked_add(size)?;
        (end <= self.bytes.len() as u64).then_some(offset as usize)
    }

    /// What a warp knows of the times of all.
    pub(super) fn times(&self, warp: usize) -> &Clock {
        &self.times[warp].now
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn load(&self, at: usize, width: u64) -> u64 {
        read_word(&self.bytes[at..], width)
    }

    /// Four bytes; 0 where they are not there.
    pub(super) fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    pub(super) fn store(&mut self, at: usize, width: u64, value: u64) {
        write_word(&mut self.bytes[at..], width, value);
    }

    fn cells(&self, at: usize, size: u64) -> std::ops::Range<usize> {
        at >> self.shift..((at + size as usize - 1) >> self.shift) + 1
    }

    /// Notes a read of `size` bytes, and says what is wrong with it.
    pub(super) fn read(&mut self, who: Accessor, at: usize, size: u64) -> Option<AccessProblem> {
        if self.cells.is_empty() {
            return None;
        }
        let mut problem = None;
        for index in self.cells(at, size) {
            match self.in_memory.get(&index) {
                Some(known) => join(&mut self.times[who.warp].now, known),
                None => problem = problem.or(self.read_cell(who, index)),
            }
        }
        problem
    }

    /// Notes an arrival at a barrier in memory, and says what is wrong with it. Nothing races with it.
    pub(super) fn arrive_in_memory(
        &mut self,
        who: Accessor,
        at: usize,
        size: u64,
    ) -> Option<AccessProblem> {
        if self.cells.is_empty() {
            return None;
        }
        let mut problem = None;
        let cells = self.cells(at, size);
        let time = &mut self.times[who.warp];
        for index in cells {
            problem = problem.or(match self.cells[index] {
                Cell { outside: true, .. } => Some(AccessProblem::Outside),
                cell if cell.write.clock == 0 => Some(AccessProblem::Uninitialised),
                _ => None,
            });
            join(self.in_memory.entry(index).or_insert([0; MAX_WARPS]), &time.now);
        }
        time.now[who.warp] += 1;
        problem
    }

    fn read_cell(&mut self, who: Accessor, index: usize) -> Option<AccessProblem> {
        let count = self.cells.len();
        let time = &mut self.times[who.warp];
        let cell = &mut self.cells[index];
        if cell.outside {
            return Some(AccessProblem::Outside);
        }
        let mut problem = None;
        if cell.write.clock == 0 {
            problem = Some(AccessProblem::Uninitialised);
        } else if conflicts(&cell.write, who, &time.now, self.lanes) {
            problem = Some(AccessProblem::Race { other: cell.write, write: true, values: None });
        }
        let access = access(who, &time.now);
        if cell.many && self.readers[index][who.warp] == access.clock && !who.strong {
            return problem;
        }
        let same = usize::from(cell.read.warp) == who.warp;
        if !cell.many
            && (cell.read.clock == 0 || same || !conflicts(&cell.read, who, &time.now, self.lanes))
        {
            cell.read = access;
        } else if !who.strong {
            if self.readers.is_empty() {
                self.readers = vec![[0; MAX_WARPS]; count];
            }
            let readers = &mut self.readers[index];
            if !cell.many {
                *readers = [0; MAX_WARPS];
                if !cell.read.strong {
                    readers[usize::from(cell.read.warp)] = cell.read.clock;
                }
                cell.many = true;
            }
            readers[who.warp] = access.clock;
            cell.read = access;
        }
        if let Some(published) = self.published.get(&index).filter(|_| who.strong) {
            join(&mut time.pending, published);
        }
        problem
    }

    /// Notes a write of `size` bytes, and says what is wrong with it.
    pub(super) fn write(&mut self, who: Accessor, at: usize, size: u64) -> Option<AccessProblem> {
        if self.cells.is_empty() {
            return None;
        }
        let mut problem = None;
        for index in self.cells(at, size) {
            self.in_memory.remove(&index);
            problem = problem.or(self.write_cell(who, index));
        }
        problem
    }

    /// The bytes that a store is about to replace.
    pub(super) fn bytes(&self, at: usize, size: u64) -> &[u8] {
        &self.bytes[at..at + size as usize]
    }

    fn write_cell(&mut self, who: Accessor, index: usize) -> Option<AccessProblem> {
        let time = &self.times[who.warp];
        let cell = &mut self.cells[index];
        if cell.outside {
            return Some(AccessProblem::Outside);
        }
        let mut problem = None;
        if cell.write.clock != 0 && conflicts(&cell.write, who, &time.now, self.lanes) {
            problem = Some(AccessProblem::Race { other: cell.write, write: true, values: None });
        } else if cell.many {
            let readers = &self.readers[index];
            let unordered =
                (0..MAX_WARPS).find(|warp| *warp != who.warp && readers[*warp] > time.now[*warp]);
            if let Some(warp) = unordered {
                // Of those before the last reader only the time is known: most likely they stood where
                // it stood.
                let last = usize::from(cell.read.warp) == warp;
                let lane = if last { cell.read.lane } else { 0 };
                let other = Access { warp: warp as u8, lane, ..cell.read };
                problem = Some(AccessProblem::Race { other, write: false, values: None });
            }
        } else if cell.read.clock != 0 && conflicts(&cell.read, who, &time.now, self.lanes) {
            problem = Some(AccessProblem::Race { other: cell.read, write: false, values: None });
        }
        cell.write = access(who, &time.now);
        cell.read = Access::default();
        cell.many = false;
        if who.strong {
            let fenced = time.fenced;
            join(self.published.entry(index).or_insert([0; MAX_WARPS]), &fenced);
        }
        problem
    }

    /// `membar`, `fence`, and the release or acquire of an atomic access.
    pub(super) fn fence(&mut self, warp: usize) {
        let time = &mut self.times[warp];
        let pending = time.pending;
        join(&mut time.now, &pending);
        time.fenced = time.now;
        time.now[warp] += 1;
    }

    /// Lanes of a warp meet.
    pub(super) fn meet(&mut self, warp: usize) {
        self.times[warp].now[warp] += 1;
    }

    /// A warp comes to a barrier: what it did until now is known to those that the barrier lets go.
    pub(super) fn arrive(&mut self, barrier: usize, warp: usize) {
        let time = &mut self.times[warp];
        join(&mut self.barriers[barrier], &time.now);
        time.now[warp] += 1;
    }

    /// The barrier lets these warps go.
    pub(super) fn leave(&mut self, barrier: usize, waiting: u32) {
        let known = std::mem::replace(&mut self.barriers[barrier], [0; MAX_WARPS]);
        for (warp, time) in self.times.iter_mut().enumerate() {
            if waiting >> warp & 1 != 0 {
                join(&mut time.now, &known);
                time.fenced = time.now;
            }
        }
    }
}

fn access(who: Accessor, now: &Clock) -> Access {
    Access {
        clock: now[who.warp],
        site: who.site,
        warp: who.warp as u8,
        lane: who.lane as u8,
        strong: who.strong,
    }
}

/// Whether nothing orders an earlier access and this one, and not both are atomic or volatile.
fn conflicts(earlier: &Access, who: Accessor, now: &Clock, lanes: bool) -> bool {
    let own = Moment { warp: who.warp as u8, lane: who.lane as u8, clock: now[who.warp] };
    let other = Moment { warp: earlier.warp, lane: earlier.lane, clock: earlier.clock };
    let known = now[usize::from(earlier.warp)];
    own.is_beside(other, known, lanes) && !(earlier.strong && who.strong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(warp: usize) -> Accessor {
        Accessor { warp, lane: 0, site: Site::default(), strong: false }
    }

    fn strong(warp: usize) -> Accessor {
        Accessor { strong: true, ..who(warp) }
    }

    fn barrier(shared: &mut Shared, mask: u32) {
        for warp in (0..32).filter(|warp| mask >> warp & 1 != 0) {
            shared.arrive(0, warp);
        }
        shared.leave(0, mask);
    }

    fn races(problem: Option<AccessProblem>) -> bool {
        matches!(problem, Some(AccessProblem::Race { .. }))
    }

    #[test]
    fn a_barrier_orders_and_its_absence_does_not() {
        let mut shared = Shared::new(64, 4, 2, true);
        assert!(shared.write(who(0), 0, 4).is_none());
        assert!(races(shared.read(who(1), 0, 4)));
        let mut shared = Shared::new(64, 4, 2, true);
        assert!(shared.write(who(0), 0, 4).is_none());
        barrier(&mut shared, 3);
        assert!(shared.read(who(1), 0, 4).is_none());
        assert!(shared.read(who(0), 0, 4).is_none());
        assert!(races(shared.write(who(0), 0, 4)), "the other warp has read since");
    }

    #[test]
    fn every_reader_counts_not_only_the_last() {
        let mut shared = Shared::new(64, 4, 3, true);
        shared.write(who(0), 0, 4);
        barrier(&mut shared, 7);
        for warp in 0..3 {
            assert!(shared.read(who(warp), 0, 4).is_none());
        }
        barrier(&mut shared, 0b101);
        assert!(races(shared.write(who(2), 0, 4)), "warp 1 has not met warp 2");
    }

    #[test]
    fn atomics_do_not_race_with_each_other_but_with_plain_accesses() {
        let mut shared = Shared::new(64, 4, 2, true);
        assert!(shared.write(strong(0), 0, 4).is_none());
        assert!(shared.write(strong(1), 0, 4).is_none());
        assert!(races(shared.write(who(0), 0, 4)));
    }

    #[test]
    fn a_flag_orders_only_with_fences_on_both_sides() {
        for (release, acquire) in [(true, true), (false, true), (true, false)] {
            let mut shared = Shared::new(64, 4, 2, true);
            shared.write(who(0), 0, 4);
            if release {
                shared.fence(0);
            }
            shared.write(strong(0), 8, 4);
            shared.read(strong(1), 8, 4);
            if acquire {
                shared.fence(1);
            }
            assert_eq!(races(shared.read(who(1), 0, 4)), !(release && acquire));
        }
    }

    #[test]
    fn bytes_of_one_word_are_apart_where_the_grain_says_so() {
        let mut shared = Shared::new(8, 1, 2, true);
        assert!(shared.write(who(0), 0, 1).is_none());
        assert!(shared.write(who(1), 1, 1).is_none());
        assert!(matches!(shared.read(who(1), 2, 1), Some(AccessProblem::Uninitialised)));
        assert!(shared.locate(7, 1).is_some());
        assert!(shared.locate(7, 2).is_none());
        assert!(shared.locate(u64::MAX, 2).is_none());
    }
}
