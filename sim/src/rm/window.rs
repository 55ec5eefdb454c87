//! The window of a GPU (BAR1): addresses by which processes see its memory, and which mappings share
//! (`kbusMapFbAperture_GM107`, `dmaAllocMapping_GM107`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pages::{BIG, HUGE};
use crate::Status;

/// In a window of no more bytes no page is larger than a big one (`kbusDetermineBar1Force64KBMapping`).
const SMALL_WINDOW: u64 = 256 << 20;

/// Which of its addresses are taken: from where to where.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Behind the last that programs may have: the driver has the rest.
    end: u64,
    taken: Mutex<BTreeMap<u64, u64>>,
}

/// Addresses that a mapping has as long as it is there.
#[derive(Debug)]
pub(super) struct Part {
    window: Arc<Window>,
    base: u64,
    /// Where in it the first byte is that was asked for.
    pub(super) first: u64,
}

/// Bytes that nobody has, and the most of them that are in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) all: u64,
    pub(super) largest: u64,
}

impl Window {
    /// Of so many bytes, the last of which the driver has for itself.
    pub(super) fn new(size: u64, own: u64) -> Arc<Self> {
        let end = size.saturating_sub(own);
        let taken = (end < size).then_some((end, size));
        Arc::new(Self { size, end, taken: Mutex::new(taken.into_iter().collect()) })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Behind the last of its addresses that programs may have.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// What is left where all of a card's memory is in it for good, if that fits with what the driver needs besides
    /// (`kbusIsStaticBar1Supported_TU102`).
    pub(super) fn beside(&self, memory: u64) -> Option<u64> {
        const NEEDED: u64 = 16 << 20;
        let left = self.size.checked_sub(memory.checked_next_multiple_of(HUGE)?)?;
        (left >= NEEDED).then_some(left)
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses within some for bytes of memory that has pages of a size.
    pub(super) fn take(
        self: &Arc<Self>,
        within: &Range<u64>,
        (offset, length): (u64, u64),
        page: u64,
    ) -> Result<Part, Status> {
        let page = if self.size > SMALL_WINDOW { page } else { page.min(BIG) };
        let (before, whole) = (offset % page, page.max(BIG));
        let bytes = before.checked_add(length).and_then(|it| it.checked_next_multiple_of(whole));
        let bytes = bytes.filter(|bytes| *bytes <= within.end - within.start);
        let bytes = bytes.ok_or(Status::INVALID_ARGUMENT)?;
        let mut taken = self.taken();
        let base = holes(&taken, within).into_iter().find_map(|hole| {
            let base = hole.start.checked_next_multiple_of(whole)?;
            (base.checked_add(bytes)? <= hole.end).then_some(base)
        });
        let base = base.ok_or(Status::NO_MEMORY)?;
        taken.insert(base, base + bytes);
        Ok(Part { window: self.clone(), base, first: base + before })
    }

    pub(super) fn free(&self, within: &Range<u64>) -> Free {
        let taken = self.taken();
        let sizes = holes(&taken, within).into_iter().map(|hole| hole.end - hole.start);
        sizes.fold(Free { all: 0, largest: 0 }, |free, size| Free {
            all: free.all + size,
            largest: free.largest.max(size),
        })
    }
}

/// What nobody has of some addresses.
fn holes(taken: &BTreeMap<u64, u64>, within: &Range<u64>) -> Vec<Range<u64>> {
    let mut at = within.start;
    let mut all = Vec::new();
    for (base, end) in taken.range(..within.end).filter(|(_, end)| **end > within.start) {
        all.push(at..*base);
        at = *end;
    }
    all.push(at..within.end);
    all.retain(|hole| hole.start < hole.end);
    all
}

impl Drop for Part {
    fn drop(&mut self) {
        self.window.taken().remove(&self.base);
    }
}

#[cfg(test)]
mod tests {
    use super::{BIG, Free, HUGE, Status, Window};

    #[test]
    fn mappings_share_it() {
        let window = Window::new(1 << 30, 0);
        let all = 0..window.size();
        let free = |all: u64, largest: u64| Free { all, largest };
        let one = window.take(&all, (0x1234, 0x1000), 4096).unwrap();
        // Of a small page, which is in a large one.
        assert_eq!((one.base, one.first), (0, 0x234));
        let two = window.take(&all, (3, HUGE), HUGE).unwrap();
        // What begins within a page and ends in the next one has both.
        assert_eq!((two.base, two.first), (HUGE, HUGE + 3));
        assert_eq!(window.take(&all, (0, 1), 4096).unwrap().base, BIG);
        let rest = (1 << 30) - 3 * HUGE;
        assert_eq!(window.free(&all), free(rest + HUGE - BIG, rest));
        assert_eq!(window.take(&all, (0, rest + 1), 4096).err(), Some(Status::NO_MEMORY));
        assert_eq!(window.take(&all, (1, 1 << 30), 4096).err(), Some(Status::INVALID_ARGUMENT));
        // A hole is for what fits.
        drop(two);
        assert_eq!(window.free(&all), free((1 << 30) - BIG, (1 << 30) - BIG));
        drop(one);
        assert_eq!(window.free(&all), free(1 << 30, 1 << 30));
    }

    #[test]
    fn parts_of_it_are_for_themselves() {
        let window = Window::new(1 << 30, 0);
        let half = 1 << 29..1 << 30;
        let one = window.take(&half, (0, 1 << 28), HUGE).unwrap();
        assert_eq!(one.base, 1 << 29);
        assert_eq!(window.free(&half), Free { all: 1 << 28, largest: 1 << 28 });
        assert_eq!(window.free(&(0..1 << 29)), Free { all: 1 << 29, largest: 1 << 29 });
        assert_eq!(window.take(&half, (0, (1 << 28) + 1), HUGE).err(), Some(Status::NO_MEMORY));
    }

    #[test]
    fn a_small_one_has_no_larger_pages_than_big_ones() {
        let window = Window::new(256 << 20, 0);
        let all = 0..window.size();
        let parts: Vec<_> = (0..2).map(|_| window.take(&all, (0, 1), HUGE).unwrap()).collect();
        assert_eq!(parts[1].base, BIG);
    }
}
