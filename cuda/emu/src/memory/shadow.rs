//! What a device that watches its memory knows of it: which bytes were written, and which blocks of a launch
//! accessed them.
//!
//! Of two blocks of a launch neither comes first, unless they meet by atomic or volatile accesses and fences. A block
//! that has done none of these before an access cannot be behind any other: what it meets there of another block
//! races with it. What blocks do after that is not judged, so that nothing is reported that may be in order.
//!
//! Warps of a block meet at barriers, too: their vector clocks, which the block's shared memory keeps, order them.
//!
//! Operations (launches, and copies of the host's) run one after the other here, and on a GPU at the same time where
//! they are of different queues and nothing orders them: an [`Order`] says behind which an operation is.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Moment;

/// Bytes of a cell.
const CELL: u64 = 4;

/// Which earlier operations an operation on the device is behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// The queue that it is in. Those of one queue run one after the other.
    pub queue: usize,
    /// By queue: the last operation that is certainly done before, counted from one over all queues. What is missing is
    /// none.
    pub behind: Vec<u64>,
}

/// An access of a block, as a cell remembers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockAccess {
    /// The number of the operation, counted from one.
    pub(crate) launch: u64,
    /// The number of the block in its grid, counted from one; 0 is no access.
    pub(crate) block: u64,
    /// Function and position of the instruction.
    pub(crate) site: (u32, u32),
    /// The warp of the block, its lane, and the warp's own time.
    pub(crate) warp: u8,
    pub(crate) lane: u8,
    pub(crate) clock: u32,
    /// Atomic or volatile.
    pub(crate) strong: bool,
}

impl BlockAccess {
    fn moment(&self) -> Moment {
        Moment { warp: self.warp, lane: self.lane, clock: self.clock }
    }
}

/// Who accesses: the access, and what its warp knows of the times of the block's warps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach<'a> {
    pub(crate) access: BlockAccess,
    pub(crate) times: &'a [u32],
    /// The block may be behind others.
    pub(crate) ordered: bool,
    /// Whether lanes of a warp are compared with each other.
    pub(crate) lanes: bool,
}

impl Reach<'static> {
    /// An access of what has met nobody, and has no warps.
    pub(crate) fn alone(access: BlockAccess) -> Self {
        Self { access, times: &[], ordered: false, lanes: false }
    }
}

impl Reach<'_> {
    /// Whether an access of the same block may happen at the same time.
    fn is_beside(&self, other: &BlockAccess) -> bool {
        let known = self.times.get(usize::from(other.warp)).copied().unwrap_or(u32::MAX);
        self.access.moment().is_beside(other.moment(), known, self.lanes)
    }
}

/// What is wrong with an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GlobalProblem {
    Uninitialised,
    /// With an earlier access, which was a write or not.
    Race {
        other: BlockAccess,
        write: bool,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// A bit for each byte that was written.
    written: u8,
    write: BlockAccess,
    /// Who read first and last, of a launch and of those that may run beside it.
    reads: [BlockAccess; 2],
}

/// What is known of the allocations that are watched.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The cells of every allocation, by its first byte.
    allocations: BTreeMap<u64, Vec<Cell>>,
    operations: Operations,
}

/// Every operation so far, and behind which the one is that runs.
#[derive(Debug, Default)]
struct Operations {
    /// Queue and name of each, from number one on.
    all: Vec<(usize, Arc<str>)>,
    /// Each name once.
    names: HashSet<Arc<str>>,
    /// Without an order the operation is behind all others.
    order: Option<Order>,
}

impl Operations {
    fn begin(&mut self, name: &str, order: Option<Order>) {
        let name = self.names.get(name).cloned().unwrap_or_else(|| {
            let new: Arc<str> = name.into();
            self.names.insert(new.clone());
            new
        });
        self.all.push((order.as_ref().map_or(0, |order| order.queue), name));
        self.order = order;
    }

    fn get(&self, number: u64) -> Option<&(usize, Arc<str>)> {
        self.all.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Whether an earlier operation may be running still.
    fn is_beside(&self, number: u64) -> bool {
        let (Some(order), Some((queue, _))) = (&self.order, self.get(number)) else { return false };
        order.behind.get(*queue).is_none_or(|done| *done < number)
    }

    /// Whether nothing orders an earlier access and this one.
    fn is_apart(&self, other: &BlockAccess, reach: &Reach<'_>) -> bool {
        match other.launch == reach.access.launch {
            true => other.block != reach.access.block || reach.is_beside(other),
            false => self.is_beside(other.launch),
        }
    }

    /// Whether two accesses, of which one writes, race: nothing orders the two, and not both are atomic or volatile.
    fn races(&self, other: &BlockAccess, reach: &Reach<'_>) -> bool {
        let judged = other.block != 0 && !reach.ordered;
        judged && !(other.strong && reach.access.strong) && self.is_apart(other, reach)
    }
}

/// The bytes of a range that lie in each of its cells, as bits.
fn cells(start: u64, size: u64) -> impl Iterator<Item = (usize, u8)> {
    let end = start + size;
    (start / CELL..end.div_ceil(CELL)).map(move |cell| {
        let bytes = (0..CELL).filter(|byte| (start..end).contains(&(cell * CELL + byte)));
        (cell as usize, bytes.fold(0, |bits, byte| bits | 1 << byte))
    })
}

impl Shadow {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next operation begins.
    pub(crate) fn begin(&self, name: &str, order: Option<Order>) {
        self.known().operations.begin(name, order);
    }

    /// The name of an operation.
    pub(crate) fn name(&self, number: u64) -> String {
        let known = self.known();
        known.operations.get(number).map(|(_, name)| name.to_string()).unwrap_or_default()
    }

    /// Watches an allocation, of which nothing was written yet.
    pub(crate) fn add(&self, start: u64, size: u64) {
        let cells = vec![Cell::default(); size.div_ceil(CELL) as usize];
        self.known().allocations.insert(start, cells);
    }

    pub(crate) fn remove(&self, start: u64) {
        self.known().allocations.remove(&start);
    }

    /// Does something with each cell of a range, if it is watched.
    fn each(&self, address: u64, size: u64, mut f: impl FnMut(&Operations, u64, &mut Cell, u8)) {
        let Known { allocations, operations } = &mut *self.known();
        let Some((start, found)) = allocations.range_mut(..=address).next_back() else { return };
        for (index, bytes) in cells(address - start, size) {
            if let Some(cell) = found.get_mut(index) {
                let at = (index as u64 * CELL).saturating_sub(address - start);
                f(operations, at, cell, bytes);
            }
        }
    }

    /// The host wrote, or another part of the device that is not checked.
    pub(crate) fn mark(&self, address: u64, size: u64) {
        self.each(address, size, |_, _, cell, bytes| cell.written |= bytes);
    }

    /// A block reads; `used` has a bit for each byte that matters.
    pub(crate) fn read(
        &self,
        address: u64,
        size: u64,
        used: u64,
        reach: Reach<'_>,
    ) -> Option<GlobalProblem> {
        let mut problem = None;
        self.each(address, size, |operations, at, cell, bytes| {
            let first = (address % CELL) * u64::from(at == 0);
            // Of a copy, which is long, no byte has a bit.
            let used = used.checked_shr(at as u32).unwrap_or(0);
            let wanted = (used << first) as u8 & bytes;
            if wanted & !cell.written != 0 {
                problem = Some(GlobalProblem::Uninitialised);
            }
            if operations.races(&cell.write, &reach) {
                problem = problem.or(Some(GlobalProblem::Race { other: cell.write, write: true }));
            }
            // One that may be running still stays, for whoever writes next; so does a plain one that an atomic
            // one of its warp follows.
            let gives_way = |read: &BlockAccess| {
                !operations.is_apart(read, &reach) && (read.strong || !reach.access.strong)
            };
            match cell.reads.iter_mut().find(|read| read.block == 0 || gives_way(read)) {
                Some(read) => *read = reach.access,
                None => cell.reads[1] = reach.access,
            }
        });
        problem
    }

    /// A block writes.
    pub(crate) fn write(&self, address: u64, size: u64, reach: Reach<'_>) -> Option<GlobalProblem> {
        let mut problem = None;
        self.each(address, size, |operations, _, cell, bytes| {
            cell.written |= bytes;
            let race = |other: BlockAccess, write| GlobalProblem::Race { other, write };
            if operations.races(&cell.write, &reach) {
                problem = Some(race(cell.write, true));
            }
            for read in cell.reads {
                if operations.races(&read, &reach) {
                    problem = problem.or(Some(race(read, false)));
                }
            }
            cell.write = reach.access;
        });
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(block: u64, strong: bool) -> BlockAccess {
        BlockAccess { launch: 1, block, strong, ..BlockAccess::default() }
    }

    fn alone(access: BlockAccess) -> Reach<'static> {
        Reach::alone(access)
    }

    fn behind(access: BlockAccess) -> Reach<'static> {
        Reach { ordered: true, ..alone(access) }
    }

    #[test]
    fn bytes_count_as_written_one_by_one() {
        let shadow = Shadow::default();
        shadow.add(256, 10);
        let read = |at, size, used| shadow.read(at, size, used, behind(of(1, false)));
        assert_eq!(read(256, 4, 15), Some(GlobalProblem::Uninitialised));
        shadow.mark(257, 6);
        assert_eq!(read(256, 4, 15), Some(GlobalProblem::Uninitialised));
        assert_eq!((read(256, 4, 14), read(257, 1, 1), read(260, 2, 3)), (None, None, None));
        assert_eq!(read(262, 2, 3), Some(GlobalProblem::Uninitialised));
        assert_eq!(read(262, 2, 1), None);
        assert_eq!(read(256, 8, 0x7e), None);
        shadow.remove(256);
        assert_eq!(read(256, 4, 15), None);
    }

    #[test]
    fn blocks_race_unless_they_may_have_met() {
        let shadow = Shadow::default();
        shadow.add(0, 8);
        shadow.write(0, 4, alone(of(1, false)));
        let is_race =
            |found: Option<GlobalProblem>| matches!(found, Some(GlobalProblem::Race { .. }));
        assert!(!is_race(shadow.read(0, 4, 15, alone(of(1, false)))), "of one block");
        assert!(is_race(shadow.read(0, 4, 15, alone(of(2, false)))));
        assert!(!is_race(shadow.read(0, 4, 15, behind(of(2, false)))), "behind a fence");
        assert!(is_race(shadow.write(0, 4, alone(of(3, true)))));
        shadow.write(4, 4, alone(of(1, true)));
        assert!(!is_race(shadow.write(4, 4, alone(of(2, true)))), "both are atomic");
        let later = BlockAccess { launch: 2, ..of(2, false) };
        assert!(!is_race(shadow.write(0, 4, alone(later))), "of another launch");
    }

    #[test]
    fn operations_race_that_nothing_orders() {
        let order = |queue, behind: &[u64]| Some(Order { queue, behind: behind.to_vec() });
        // What the third does, behind a write and a read in queues 0 and 1.
        let found = |last: Option<Order>, write| {
            let shadow = Shadow::default();
            shadow.add(0, 8);
            let access = |launch| BlockAccess { launch, ..of(1, false) };
            shadow.begin("first", order(0, &[]));
            shadow.write(0, 4, alone(access(1)));
            shadow.begin("second", order(1, &[]));
            shadow.read(4, 4, 15, alone(access(2)));
            shadow.begin("third", last);
            let problem = match write {
                true => shadow.write(0, 8, alone(access(3))),
                false => shadow.read(0, 8, 15, alone(access(3))),
            };
            match problem {
                Some(GlobalProblem::Race { other, .. }) => shadow.name(other.launch),
                _ => String::new(),
            }
        };
        assert_eq!((found(None, true), found(None, false)), (String::new(), String::new()));
        assert_eq!(found(order(2, &[]), true), "first");
        assert_eq!(found(order(2, &[1]), true), "second");
        assert_eq!(found(order(2, &[1, 2]), true), "");
        assert_eq!(found(order(2, &[1]), false), "", "two reads");
        assert_eq!(found(order(2, &[0, 2]), false), "first");
    }

    /// A read that is not behind another one is not forgotten over it.
    #[test]
    fn each_reader_that_may_be_running_counts() {
        let shadow = Shadow::default();
        shadow.add(0, 4);
        let access = |launch| BlockAccess { launch, ..of(1, false) };
        for (number, queue) in [(1, 0), (2, 1)] {
            shadow.begin("read", Some(Order { queue, behind: Vec::new() }));
            shadow.read(0, 4, 0, alone(access(number)));
        }
        shadow.begin("write", Some(Order { queue: 1, behind: vec![0, 2] }));
        let found = shadow.write(0, 4, alone(access(3)));
        assert_eq!(found, Some(GlobalProblem::Race { other: access(1), write: false }));
    }

    /// Two warps of a block: `times` is what the second knows of the first's time, and its own.
    #[test]
    fn warps_of_a_block_race_unless_a_barrier_was_between() {
        let at = |warp: u8, clock, lane| BlockAccess { warp, clock, lane, ..of(1, false) };
        fn of_warp(access: BlockAccess, times: &[u32]) -> Reach<'_> {
            Reach { times, ..alone(access) }
        }
        let found = |first_writes: bool, second_writes: bool, knows: &[u32]| {
            let shadow = Shadow::default();
            shadow.add(0, 4);
            shadow.mark(0, 4);
            let first = of_warp(at(0, 3, 0), &[3, 0]);
            let second = of_warp(at(1, 1, 0), knows);
            let access = |reach, write| match write {
                true => shadow.write(0, 4, reach),
                false => shadow.read(0, 4, 15, reach),
            };
            access(first, first_writes);
            access(second, second_writes).is_some()
        };
        assert!(
            found(true, true, &[2, 1])
                && found(true, false, &[2, 1])
                && found(false, true, &[2, 1])
        );
        assert!(!found(false, false, &[2, 1]), "both read");
        assert!(!found(true, true, &[3, 1]) && !found(false, true, &[3, 1]), "behind a barrier");
        // Of one warp, where lanes are compared.
        let shadow = Shadow::default();
        shadow.add(0, 4);
        let lane = |lane, lanes| Reach { lanes, ..of_warp(at(0, 3, lane), &[3]) };
        assert_eq!(shadow.write(0, 4, lane(0, false)), None);
        assert_eq!(shadow.write(0, 4, lane(1, false)), None);
        assert!(shadow.write(0, 4, lane(2, true)).is_some());
        assert_eq!(shadow.write(0, 4, Reach { times: &[4], ..lane(5, true) }), None, "they met");
    }

    #[test]
    fn a_read_may_be_long() {
        let shadow = Shadow::default();
        shadow.add(0, 400);
        assert_eq!(shadow.read(2, 398, 0, alone(of(1, false))), None);
        assert!(
            shadow.write(396, 4, alone(of(2, false))).is_some(),
            "its last bytes are remembered"
        );
    }

    /// Neither is a reader of another warp forgotten over the next read of the first, nor a plain read over an atomic one.
    #[test]
    fn readers_that_are_in_no_order_stay() {
        let at = |warp: u8, strong| BlockAccess { warp, clock: 1, ..of(1, strong) };
        let found = |reads: &[BlockAccess], write: BlockAccess| {
            let shadow = Shadow::default();
            shadow.add(0, 4);
            shadow.mark(0, 4);
            for access in reads {
                shadow.read(0, 4, 15, Reach { times: &[0, 0], ..alone(*access) });
            }
            shadow.write(0, 4, Reach { times: &[0, 0], ..alone(write) }).is_some()
        };
        assert!(found(&[at(0, false), at(1, false), at(0, false)], at(0, false)));
        assert!(found(&[at(0, false), at(0, true)], at(1, true)));
        assert!(!found(&[at(0, false), at(0, false)], at(0, false)), "its own");
        assert!(!found(&[at(0, true), at(1, true)], at(1, true)), "all are atomic");
    }

    /// A reader behind another one takes its place: who writes behind it is behind both.
    #[test]
    fn the_last_of_readers_that_are_in_order_counts() {
        let shadow = Shadow::default();
        shadow.add(0, 4);
        shadow.mark(0, 4);
        let at = |warp: u8, clock| BlockAccess { warp, clock, ..of(1, false) };
        for (access, times) in [(at(0, 1), [1, 0, 0]), (at(1, 2), [1, 2, 0]), (at(2, 1), [1, 0, 1])]
        {
            shadow.read(0, 4, 15, Reach { times: &times, ..alone(access) });
        }
        // The third, the last to read, writes, and knows the first alone.
        let found = shadow.write(0, 4, Reach { times: &[1, 0, 1], ..alone(at(2, 1)) });
        assert_eq!(found, Some(GlobalProblem::Race { other: at(1, 2), write: false }));
    }
}
