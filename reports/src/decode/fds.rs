//! The file descriptors of a process, as the log lets us know them.
//!
//! The kernel gives out the lowest free number, so the number that an ioctl opens can be told from
//! the table, although strace does not show what an ioctl writes. Where a number comes back that is
//! not the lowest free one in the table, those below it are in use by something that the log does
//! not show, and are kept as gaps.

use super::catalog::NodeId;

/// Index of a file in the decoder's list.
pub(crate) type FileId = u32;

/// Numbers above this are no file descriptors that a kernel gives out (`fs.nr_open`).
const MAX: usize = 1 << 20;
/// Opens by ioctl that are remembered for being matched by their requests.
const REMEMBERED: usize = 1024;

/// How it is known what a file descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// The log shows its path, or the call that made it.
    Seen,
    /// Open since before the log.
    Inherited,
    /// An ioctl opened it, and this was the lowest free number.
    Predicted,
    /// So it was, and a request on it is one that such a node knows.
    Confirmed,
    /// A request on it is one of a node that an ioctl had opened.
    Matched,
    /// Nothing but its request speaks for it: the log begins after it was opened.
    Guessed,
    /// In use, by something that the log does not show.
    Gap,
}

/// What stands behind a file descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Which file.
    pub(crate) file: FileId,
    /// Which opening of it: the same for a number and its duplicates.
    pub(crate) object: u32,
    /// How that is known.
    pub(crate) how: How,
    /// Whether `execve` closes it.
    pub(crate) cloexec: bool,
}

/// An opening by an ioctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Opening {
    node: NodeId,
    file: FileId,
    object: u32,
    /// Whether a request was made on it.
    confirmed: bool,
}

/// File descriptors, of a process or of threads that share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Slot>>,
    /// No number below this is free.
    low: usize,
    openings: Vec<Opening>,
}

impl Table {
    /// The table of a process that the log does not show the start of.
    pub(crate) fn inherited(file: FileId) -> Self {
        let slot = Slot { file, object: 0, how: How::Inherited, cloexec: false };
        Self { slots: vec![Some(slot); 3], low: 3, openings: Vec::new() }
    }

    /// What a number stands for.
    pub(crate) fn get(&self, fd: i64) -> Option<Slot> {
        *self.slots.get(usize::try_from(fd).ok()?)?
    }

    /// Puts something behind a number that was asked for, as by `dup2`.
    pub(crate) fn put(&mut self, fd: i64, slot: Slot) {
        let Some(at) = usize::try_from(fd).ok().filter(|at| *at < MAX) else { return };
        if at >= self.slots.len() {
            self.slots.resize(at + 1, None);
        }
        self.slots[at] = Some(slot);
    }

    /// Puts something behind a number that the kernel chose: all below it are in use.
    pub(crate) fn give(&mut self, fd: i64, slot: Slot, unknown: FileId) {
        self.put(fd, slot);
        let gap = Slot { file: unknown, object: 0, how: How::Gap, cloexec: false };
        let end = usize::try_from(fd).unwrap_or(0).min(self.slots.len());
        for slot in self.slots.iter_mut().take(end).skip(self.low).filter(|slot| slot.is_none()) {
            *slot = Some(gap);
        }
        self.low = self.low.max(end);
    }

    /// The number that the kernel gives out next, if the table is right.
    pub(crate) fn lowest_free(&mut self) -> i64 {
        let rest = self.slots.iter().skip(self.low);
        self.low += rest.take_while(|slot| slot.is_some()).count();
        self.low as i64
    }

    /// An ioctl opened something.
    pub(crate) fn open(&mut self, node: Option<NodeId>, file: FileId, object: u32) {
        let fd = self.lowest_free();
        self.put(fd, Slot { file, object, how: How::Predicted, cloexec: true });
        if let Some(node) = node {
            if self.openings.len() == REMEMBERED {
                self.openings.remove(0);
            }
            self.openings.push(Opening { node, file, object, confirmed: false });
        }
    }

    /// Forgets a number.
    pub(crate) fn close(&mut self, fd: i64) {
        let Ok(at) = usize::try_from(fd) else { return };
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = None;
            self.low = self.low.min(at);
        }
    }

    /// Forgets numbers, both ends included, or marks them for `execve` to close.
    pub(crate) fn close_range(&mut self, first: i64, last: i64, later: bool) {
        let first = usize::try_from(first).unwrap_or(0).min(self.slots.len());
        let end = usize::try_from(last).map_or(self.slots.len(), |last| last.saturating_add(1));
        let end = end.clamp(first, self.slots.len());
        for slot in &mut self.slots[first..end] {
            match slot {
                Some(slot) if later => slot.cloexec = true,
                _ => *slot = None,
            }
        }
        if !later {
            self.low = self.low.min(first);
        }
    }

    /// What `execve` leaves open.
    pub(crate) fn exec(&mut self) {
        for slot in &mut self.slots {
            *slot = slot.filter(|slot| !slot.cloexec);
        }
        self.openings.clear();
        self.low = 0;
    }

    /// Sets whether `execve` closes a number.
    pub(crate) fn set_cloexec(&mut self, fd: i64, cloexec: bool) {
        let slot = usize::try_from(fd).ok().and_then(|at| self.slots.get_mut(at));
        if let Some(Some(slot)) = slot {
            slot.cloexec = cloexec;
        }
    }

    /// A request that its node knows was made on a predicted number.
    pub(crate) fn confirm(&mut self, fd: i64, slot: Slot) {
        self.put(fd, Slot { how: How::Confirmed, ..slot });
        self.confirm_opening(slot.object);
    }

    fn confirm_opening(&mut self, object: u32) {
        if let Some(open) = self.openings.iter_mut().find(|open| open.object == object) {
            open.confirmed = true;
        }
    }

    /// The opening by an ioctl that a number must come from, as its node knows the request: the
    /// latest that nothing was asked of yet, else, where `reused`, the latest of all.
    pub(crate) fn matching(
        &mut self,
        fd: i64,
        reused: bool,
        knows: impl Fn(NodeId) -> bool,
    ) -> Option<Slot> {
        let fresh = |open: &&Opening| !open.confirmed && knows(open.node);
        let known = |open: &&Opening| reused && knows(open.node);
        let latest = self.openings.iter().rev();
        let open = *latest.clone().find(fresh).or_else(|| latest.clone().find(known))?;
        // The number it was thought to have is something else's.
        for slot in self.slots.iter_mut().flatten() {
            if slot.object == open.object && slot.how == How::Predicted {
                *slot = Slot { object: 0, how: How::Gap, ..*slot };
            }
        }
        self.confirm_opening(open.object);
        let slot = Slot { file: open.file, object: open.object, how: How::Matched, cloexec: true };
        self.put(fd, slot);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: FileId = 9;

    fn seen(file: FileId) -> Slot {
        Slot { file, object: file, how: How::Seen, cloexec: false }
    }

    #[test]
    fn the_lowest_free_number_is_next() {
        let mut table = Table::inherited(0);
        table.give(3, seen(1), UNKNOWN);
        table.give(4, seen(2), UNKNOWN);
        table.close(3);
        assert_eq!(table.lowest_free(), 3);
        table.open(Some(7), 5, 50);
        assert_eq!((table.get(3).unwrap().file, table.lowest_free()), (5, 5));
        assert_eq!(table.get(3).unwrap().how, How::Predicted);
    }

    #[test]
    fn what_the_log_does_not_show_leaves_gaps() {
        let mut table = Table::inherited(0);
        table.give(6, seen(1), UNKNOWN);
        assert_eq!(table.get(4).unwrap().how, How::Gap);
        assert_eq!(table.lowest_free(), 7);
        // dup2 to a high number tells nothing of those below.
        table.put(20, seen(2));
        assert_eq!((table.lowest_free(), table.get(12)), (7, None));
    }

    #[test]
    fn ranges_close() {
        let mut table = Table::inherited(0);
        (3..9).for_each(|fd| table.give(fd, seen(1), UNKNOWN));
        table.close_range(5, 6, false);
        assert_eq!((table.get(4).is_some(), table.get(5), table.get(6)), (true, None, None));
        table.close_range(7, i64::from(u32::MAX), true);
        table.exec();
        assert_eq!((table.get(4).is_some(), table.get(7), table.lowest_free()), (true, None, 5));
        table.close_range(-4, -9, false);
    }

    #[test]
    fn a_wrong_prediction_is_put_right_by_the_request() {
        let mut table = Table::inherited(0);
        table.open(None, 5, 50); // thought to open, but did not
        table.open(Some(7), 6, 60); // so this has 3, not 4
        let slot = table.matching(3, false, |node| node == 7).unwrap();
        assert_eq!((slot.file, slot.how), (6, How::Matched));
        assert_eq!(table.get(4).unwrap().how, How::Gap);
        // It was asked for once; only where numbers are reused unseen may it be again.
        assert!(table.matching(8, false, |node| node == 7).is_none());
        assert!(table.matching(8, true, |node| node == 7).is_some());
    }

    #[test]
    fn absurd_numbers_take_no_memory() {
        let mut table = Table::inherited(0);
        table.put(4_000_000_000, seen(1));
        table.give(i64::MAX, seen(1), UNKNOWN);
        table.close(-1);
        assert_eq!(table.get(i64::MIN), None);
        assert!(table.slots.len() < 10);
    }
}
