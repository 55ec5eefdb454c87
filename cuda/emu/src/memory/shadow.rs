//! What a device that watches its memory knows of it: which bytes were written, and which blocks of a launch
//! accessed them.
//!
//! Of two blocks of a launch neither comes first, unless they meet by atomic or volatile accesses and fences. A block
//! that has done none of these before an access cannot be behind any other: what it meets there of another block
//! races with it. What blocks do after that is not judged, so that nothing is reported that may be in order.
//!
//! Operations (launches, and copies of the host's) run one after the other here, and on a GPU at the same time where
//! they are of different queues and nothing orders them: an [`Order`] says behind which an operation is.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Atomic or volatile.
    pub(crate) strong: bool,
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

    /// Whether two accesses, of which one writes, race: nothing orders the two, and not both are atomic or volatile.
    fn races(&self, other: &BlockAccess, access: &BlockAccess) -> bool {
        let apart = match other.launch == access.launch {
            true => other.block != access.block,
            false => self.is_beside(other.launch),
        };
        other.block != 0 && apart && !(other.strong && access.strong)
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

    /// A block reads; `used` has a bit for each byte that matters. `ordered`: it may be behind others.
    pub(crate) fn read(
        &self,
        address: u64,
        size: u64,
        used: u64,
        ordered: bool,
        access: BlockAccess,
    ) -> Option<GlobalProblem> {
        let mut problem = None;
        self.each(address, size, |operations, at, cell, bytes| {
            let first = (address % CELL) * u64::from(at == 0);
            let wanted = (used >> at << first) as u8 & bytes;
            if wanted & !cell.written != 0 {
                problem = Some(GlobalProblem::Uninitialised);
            }
            if !ordered && operations.races(&cell.write, &access) {
                problem = problem.or(Some(GlobalProblem::Race { other: cell.write, write: true }));
            }
            // One that may be running still stays, for whoever writes next.
            let first = cell.reads[0].launch;
            if first != access.launch && !operations.is_beside(first) {
                cell.reads = [access; 2];
            }
            cell.reads[1] = access;
        });
        problem
    }

    /// A block writes.
    pub(crate) fn write(
        &self,
        address: u64,
        size: u64,
        ordered: bool,
        access: BlockAccess,
    ) -> Option<GlobalProblem> {
        let mut problem = None;
        self.each(address, size, |operations, _, cell, bytes| {
            cell.written |= bytes;
            let race = |other: BlockAccess, write| GlobalProblem::Race { other, write };
            if !ordered && operations.races(&cell.write, &access) {
                problem = Some(race(cell.write, true));
            }
            for read in cell.reads {
                if !ordered && operations.races(&read, &access) {
                    problem = problem.or(Some(race(read, false)));
                }
            }
            cell.write = access;
        });
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(block: u64, strong: bool) -> BlockAccess {
        BlockAccess { launch: 1, block, site: (0, 0), strong }
    }

    #[test]
    fn bytes_count_as_written_one_by_one() {
        let shadow = Shadow::default();
        shadow.add(256, 10);
        let read = |at, size, used| shadow.read(at, size, used, true, of(1, false));
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
        shadow.write(0, 4, false, of(1, false));
        let is_race =
            |found: Option<GlobalProblem>| matches!(found, Some(GlobalProblem::Race { .. }));
        assert!(!is_race(shadow.read(0, 4, 15, false, of(1, false))), "of one block");
        assert!(is_race(shadow.read(0, 4, 15, false, of(2, false))));
        assert!(!is_race(shadow.read(0, 4, 15, true, of(2, false))), "behind a fence");
        assert!(is_race(shadow.write(0, 4, false, of(3, true))));
        shadow.write(4, 4, false, of(1, true));
        assert!(!is_race(shadow.write(4, 4, false, of(2, true))), "both are atomic");
        let later = BlockAccess { launch: 2, ..of(2, false) };
        assert!(!is_race(shadow.write(0, 4, false, later)), "of another launch");
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
            shadow.write(0, 4, false, access(1));
            shadow.begin("second", order(1, &[]));
            shadow.read(4, 4, 15, false, access(2));
            shadow.begin("third", last);
            let problem = match write {
                true => shadow.write(0, 8, false, access(3)),
                false => shadow.read(0, 8, 15, false, access(3)),
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
            shadow.read(0, 4, 0, false, access(number));
        }
        shadow.begin("write", Some(Order { queue: 1, behind: vec![0, 2] }));
        let found = shadow.write(0, 4, false, access(3));
        assert_eq!(found, Some(GlobalProblem::Race { other: access(1), write: false }));
    }
}
