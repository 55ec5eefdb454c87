//! What a device that watches its memory knows of it: which bytes were written, and which blocks of a launch
//! accessed them.
//!
//! Of two blocks of a launch neither comes first, unless they meet by atomic or volatile accesses and fences. A block
//! that has done none of these before an access cannot be behind any other: what it meets there of another block
//! races with it. What blocks do after that is not judged, so that nothing is reported that may be in order.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a cell.
const CELL: u64 = 4;

/// An access of a block, as a cell remembers it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockAccess {
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
    /// The first and the last block of a launch that read.
    reads: [BlockAccess; 2],
}

/// The cells of every allocation that is watched, by its first byte.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    allocations: Mutex<BTreeMap<u64, Vec<Cell>>>,
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
    fn allocations(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Cell>>> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches an allocation, of which nothing was written yet.
    pub(crate) fn add(&self, start: u64, size: u64) {
        self.allocations().insert(start, vec![Cell::default(); size.div_ceil(CELL) as usize]);
    }

    pub(crate) fn remove(&self, start: u64) {
        self.allocations().remove(&start);
    }

    /// Does something with each cell of a range, if it is watched.
    fn each(&self, address: u64, size: u64, mut f: impl FnMut(u64, &mut Cell, u8)) {
        let mut allocations = self.allocations();
        let Some((start, found)) = allocations.range_mut(..=address).next_back() else { return };
        for (index, bytes) in cells(address - start, size) {
            if let Some(cell) = found.get_mut(index) {
                f((index as u64 * CELL).saturating_sub(address - start), cell, bytes);
            }
        }
    }

    /// The host wrote, or another part of the device that is not checked.
    pub(crate) fn mark(&self, address: u64, size: u64) {
        self.each(address, size, |_, cell, bytes| cell.written |= bytes);
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
        self.each(address, size, |at, cell, bytes| {
            let first = (address % CELL) * u64::from(at == 0);
            let wanted = (used >> at << first) as u8 & bytes;
            if wanted & !cell.written != 0 {
                problem = Some(GlobalProblem::Uninitialised);
            }
            if !ordered && races(&cell.write, &access) {
                problem = problem.or(Some(GlobalProblem::Race { other: cell.write, write: true }));
            }
            if cell.reads[0].launch != access.launch {
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
        self.each(address, size, |_, cell, bytes| {
            cell.written |= bytes;
            let race = |other: BlockAccess, write| GlobalProblem::Race { other, write };
            if !ordered && races(&cell.write, &access) {
                problem = Some(race(cell.write, true));
            }
            for read in cell.reads {
                if !ordered && races(&read, &access) {
                    problem = problem.or(Some(race(read, false)));
                }
            }
            cell.write = access;
        });
        problem
    }
}

/// Whether two accesses are of different blocks of one launch, and not both atomic or volatile.
fn races(other: &BlockAccess, access: &BlockAccess) -> bool {
    other.block != 0
        && other.launch == access.launch
        && other.block != access.block
        && !(other.strong && access.strong)
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
}
