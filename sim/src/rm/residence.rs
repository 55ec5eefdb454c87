//! Where the pages of managed memory are, and who is told of their moves (`uvm_va_block.c`, `uvm_migrate.c`).
//!
//! The process and all GPUs see one memory, and nothing is copied: a page is where the driver would have brought it.
//! A GPU that touches a page brings it, as it was asked to with `UVM_MIGRATE`. What the process touches is seen only
//! of pages that nobody has brought anywhere: those that have bytes the process has written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::memory::PAGE;
use super::tools::{Event, Tracker};
use crate::memory::Node;

/// Whose memory a page is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Cpu,
    Gpu(usize),
}

/// UvmEventMigrationCause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    User = 1,
    Coherence = 2,
}

/// The driver moves pages by blocks of these bytes at most (UVM_VA_BLOCK_SIZE).
const BLOCK: u64 = 2 << 20;
/// A page that a GPU faults on comes with its neighbours, as far as they are in as many bytes (UVM_PAGE_SIZE_64K).
const TOGETHER: u64 = 64 << 10;

/// What is so from one address to another; runs that touch and are the same are one.
#[derive(Debug)]
struct Runs<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy + PartialEq> Runs<T> {
    /// The runs that have some of the addresses, cut to those.
    fn within(&self, base: u64, end: u64) -> impl Iterator<Item = (u64, u64, T)> {
        let before = self.0.range(..base).next_back().into_iter();
        let all = before.chain(self.0.range(base..end.max(base)));
        let cut = all.map(move |(start, (stop, of))| (*start.max(&base), *stop.min(&end), *of));
        cut.filter(|(start, stop, _)| start < stop)
    }

    fn at(&self, address: u64) -> Option<T> {
        self.within(address, address + 1).next().map(|(.., of)| of)
    }

    /// Whether all of the addresses have it.
    fn is_all(&self, base: u64, end: u64, of: T) -> bool {
        self.within(base, end).next() == Some((base, end, of))
    }

    fn clear(&mut self, base: u64, end: u64) {
        let before = self.0.range(..base).next_back().filter(|(_, (stop, _))| *stop > base);
        let inside = self.0.range(base..end.max(base));
        let cut: Vec<u64> = before.into_iter().chain(inside).map(|(start, _)| *start).collect();
        for start in cut {
            let Some((stop, of)) = self.0.remove(&start) else { continue };
            if start < base {
                self.0.insert(start, (base, of));
            }
            if stop > end {
                self.0.insert(end, (stop, of));
            }
        }
    }

    fn set(&mut self, mut base: u64, mut end: u64, of: T) {
        self.clear(base, end);
        let before = self.0.range(..base).next_back();
        if let Some((start, _)) = before.filter(|(_, (stop, is))| *stop == base && *is == of) {
            base = *start;
        }
        if let Some((stop, _)) = self.0.get(&end).copied().filter(|(_, is)| *is == of) {
            self.0.remove(&end);
            end = stop;
        }
        self.0.insert(base, (end, of));
    }
}

/// The pages of an address space.
#[derive(Debug, Default)]
pub(super) struct Residence {
    /// The file in which the place of a page is its address.
    file: Option<Arc<Node>>,
    pages: Mutex<Pages>,
    trackers: Mutex<Vec<Weak<Tracker>>>,
}

#[derive(Debug, Default)]
struct Pages {
    places: Runs<Place>,
    preferred: Runs<Place>,
    /// GPUs that see pages wherever these are, and do not fault.
    accessed_by: BTreeMap<usize, Runs<()>>,
    batches: u32,
}

/// How a GPU touches memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    pub(super) gpu: usize,
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) is_write: bool,
    /// By its shader cores, not by an engine that copies.
    pub(super) is_of_kernel: bool,
}

impl Residence {
    pub(super) fn new(file: Arc<Node>) -> Self {
        Self { file: Some(file), ..Self::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells somebody what happens, as long as he is there.
    pub(super) fn follow(&self, tracker: &Arc<Tracker>) {
        let mut trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
        trackers.retain(|tracker| tracker.strong_count() > 0);
        trackers.push(Arc::downgrade(tracker));
    }

    fn tell(&self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        // Nobody is written to while others wait for the list.
        let trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for tracker in trackers.iter().filter_map(Weak::upgrade) {
            events.iter().for_each(|event| tracker.tell(event));
        }
    }

    /// Forgets what was at some addresses.
    pub(super) fn forget(&self, base: u64, end: u64) {
        let mut pages = self.pages();
        pages.places.clear(base, end);
        pages.preferred.clear(base, end);
        pages.accessed_by.values_mut().for_each(|runs| runs.clear(base, end));
    }

    /// UVM_SET_PREFERRED_LOCATION, or none any more.
    pub(super) fn prefer(&self, base: u64, end: u64, place: Option<Place>) {
        let mut pages = self.pages();
        match place {
            Some(place) => pages.preferred.set(base, end, place),
            None => pages.preferred.clear(base, end),
        }
    }

    /// UVM_SET_ACCESSED_BY and UVM_UNSET_ACCESSED_BY.
    pub(super) fn access_by(&self, base: u64, end: u64, gpu: usize, is_set: bool) {
        let mut pages = self.pages();
        let runs = pages.accessed_by.entry(gpu).or_default();
        match is_set {
            true => runs.set(base, end, ()),
            false => runs.clear(base, end),
        }
    }

    /// Brings pages to a place; those that are nowhere begin there.
    pub(super) fn bring(&self, base: u64, end: u64, to: Place) {
        let events = self.moved(&mut self.pages(), base, end, to, Cause::User);
        self.tell(&events);
    }

    /// What is told of pages that are brought to a place.
    fn moved(&self, pages: &mut Pages, base: u64, end: u64, to: Place, cause: Cause) -> Vec<Event> {
        let mut moves = Vec::new();
        for (start, stop, from) in self.places(pages, base, end).filter(|(.., from)| *from != to) {
            let mut at = start;
            while at < stop {
                let next = (at / BLOCK + 1).saturating_mul(BLOCK).min(stop);
                moves.push(Event::Migration { from, to, address: at, bytes: next - at, cause });
                at = next;
            }
        }
        pages.places.set(base, end, to);
        moves
    }

    /// Where pages are, in the order of their addresses; those that are nowhere are left out.
    fn places(
        &self,
        pages: &Pages,
        base: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64, Place)> + use<> {
        let known: Vec<_> = pages.places.within(base, end).collect();
        let starts = known.iter().map(|(start, ..)| *start).chain([end]);
        let ends = [base].into_iter().chain(known.iter().map(|(_, stop, _)| *stop));
        let gaps = ends.zip(starts).filter(|(start, stop)| start < stop);
        let memory = self.file.as_ref().and_then(|file| file.memory());
        let of_process = gaps.flat_map(|(start, stop)| {
            memory.map_or(Vec::new(), |memory| memory.written(start, stop))
        });
        let of_process = of_process.map(|(start, stop)| (start, stop, Place::Cpu));
        let mut all: Vec<_> = of_process.collect();
        all.extend(known);
        all.sort_unstable();
        all.into_iter()
    }

    /// A GPU reads or writes some of the memory that is managed from `base` to `end`.
    pub(super) fn touch(&self, touch: Touch, (base, end): (u64, u64)) {
        let to = Place::Gpu(touch.gpu);
        let first = touch.base / PAGE * PAGE;
        let Some(last) = touch.base.checked_add(touch.length) else { return };
        let last = last.next_multiple_of(PAGE).min(end);
        let mut pages = self.pages();
        if first >= last || pages.places.is_all(first, last, to) {
            return;
        }
        let mut events = Vec::new();
        let mut at = first;
        while at < last {
            let next = at + PAGE;
            if self.faults(&pages, at, touch.gpu) {
                let Touch { gpu, is_write, is_of_kernel, .. } = touch;
                let batch = pages.batches;
                events.push(Event::Fault { gpu, address: at, is_write, is_of_kernel, batch });
                let start = (at / TOGETHER * TOGETHER).max(base);
                let stop = (start / TOGETHER + 1).saturating_mul(TOGETHER).min(end);
                events.extend(self.moved(&mut pages, start, stop, to, Cause::Coherence));
                events.push(Event::Replay { gpu, is_of_kernel, batch });
                pages.batches = batch.wrapping_add(1);
            }
            at = next;
        }
        drop(pages);
        self.tell(&events);
    }

    /// Whether a GPU faults on a page: it is elsewhere, is not to stay there, and the GPU does not see it from there.
    fn faults(&self, pages: &Pages, page: u64, gpu: usize) -> bool {
        let own = Place::Gpu(gpu);
        if pages.places.at(page) == Some(own) {
            return false;
        }
        let Some((.., place)) = self.places(pages, page, page + PAGE).next() else { return true };
        let sees = pages.accessed_by.get(&gpu).is_some_and(|runs| runs.at(page).is_some());
        !sees && pages.preferred.at(page).is_none_or(|preferred| preferred != place || place == own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_and_joined() {
        let mut runs = Runs::default();
        runs.set(10, 20, 'a');
        runs.set(20, 30, 'a');
        assert_eq!(runs.within(0, 99).collect::<Vec<_>>(), [(10, 30, 'a')]);
        runs.set(15, 25, 'b');
        let all = [(10, 15, 'a'), (15, 25, 'b'), (25, 30, 'a')];
        assert_eq!(runs.within(0, 99).collect::<Vec<_>>(), all);
        assert_eq!(runs.within(12, 16).collect::<Vec<_>>(), [(12, 15, 'a'), (15, 16, 'b')]);
        assert!(runs.is_all(16, 25, 'b') && !runs.is_all(14, 25, 'b') && !runs.is_all(16, 26, 'b'));
        runs.clear(12, 28);
        assert_eq!(runs.within(0, 99).collect::<Vec<_>>(), [(10, 12, 'a'), (28, 30, 'a')]);
        assert_eq!((runs.at(11), runs.at(12), runs.at(29)), (Some('a'), None, Some('a')));
        runs.set(12, 28, 'a');
        assert_eq!(runs.within(0, 99).collect::<Vec<_>>(), [(10, 30, 'a')]);
    }

    fn told(residence: &Residence, at: u64, gpu: usize) -> Vec<Event> {
        let to = Place::Gpu(gpu);
        residence.moved(&mut residence.pages(), at, at + PAGE, to, Cause::User)
    }

    #[test]
    fn a_page_that_is_preferred_elsewhere_or_seen_from_afar_stays() {
        let residence = Residence::default();
        let (base, end) = (BLOCK, 2 * BLOCK);
        let touch = |gpu, at| {
            let touch = Touch { gpu, base: at, length: 4, is_write: true, is_of_kernel: true };
            residence.touch(touch, (base, end));
            residence.pages().places.at(at)
        };
        residence.bring(base, end, Place::Cpu);
        assert_eq!(touch(0, base), Some(Place::Gpu(0)));
        // Its neighbours came along, and others did not.
        assert_eq!(residence.pages().places.at(base + TOGETHER - 1), Some(Place::Gpu(0)));
        assert_eq!(residence.pages().places.at(base + TOGETHER), Some(Place::Cpu));
        residence.prefer(base + TOGETHER, end, Some(Place::Cpu));
        assert_eq!(touch(0, base + TOGETHER), Some(Place::Cpu));
        residence.prefer(base + TOGETHER, end, None);
        residence.access_by(base, end, 1, true);
        assert_eq!(touch(1, base + TOGETHER), Some(Place::Cpu));
        residence.access_by(base, end, 1, false);
        assert_eq!(touch(1, base + TOGETHER), Some(Place::Gpu(1)));
        // One that is preferred where it is not goes to who touches it.
        residence.prefer(base, end, Some(Place::Cpu));
        assert_eq!(touch(1, base), Some(Place::Gpu(1)));
        residence.forget(base, end);
        assert_eq!(told(&residence, base, 0), []);
    }

    #[test]
    fn moves_are_told_by_blocks() {
        let residence = Residence::default();
        let moves = |base, end, to| {
            let mut pages = residence.pages();
            let events = residence.moved(&mut pages, base, end, to, Cause::User);
            let of = |event: &Event| match event {
                Event::Migration { address, bytes, from, .. } => (*address, *bytes, *from),
                other => panic!("{other:?}"),
            };
            events.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(moves(BLOCK, 3 * BLOCK, Place::Cpu), [], "they were nowhere");
        assert_eq!(
            moves(BLOCK + PAGE, 2 * BLOCK + PAGE, Place::Gpu(0)),
            [(BLOCK + PAGE, BLOCK - PAGE, Place::Cpu), (2 * BLOCK, PAGE, Place::Cpu)]
        );
        assert_eq!(
            moves(BLOCK, 2 * BLOCK, Place::Gpu(1)),
            [(BLOCK, PAGE, Place::Cpu), (BLOCK + PAGE, BLOCK - PAGE, Place::Gpu(0))]
        );
        assert_eq!(moves(BLOCK, 2 * BLOCK, Place::Gpu(1)), []);
    }
}
