//! Where the pages of managed memory are, and who is told of their moves (`uvm_va_block.c`, `uvm_migrate.c`).
//!
//! The process and all GPUs see one memory, and nothing is copied: a page is where the driver would have brought it.
//! A GPU that touches a page brings it, as it was asked to with `UVM_MIGRATE`. What the process touches is seen only
//! of pages that nobody has brought anywhere: those that have bytes the process has written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::memory::PAGE;
use super::tools::{Event, Tracker};
use crate::memory::Node;

/// Whose memory a page is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Processor {
    Cpu,
    Gpu(usize),
}

/// UvmEventMigrationCause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    User = 1,
    Coherence = 2,
    Prefetch = 3,
    Eviction = 4,
}

/// UvmEventMemoryAccessType.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read = 1,
    Write = 2,
    Atomic = 3,
}

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

    /// The addresses that have it.
    fn of(&self, of: T) -> Vec<(u64, u64)> {
        let own = self.0.iter().filter(|(_, (_, is))| *is == of);
        own.map(|(start, (stop, _))| (*start, *stop)).collect()
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
        if base >= end {
            return;
        }
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
    pages: Mutex<PageMap>,
    trackers: Mutex<Vec<Weak<Tracker>>>,
}

#[derive(Debug, Default)]
struct PageMap {
    places: Runs<Processor>,
    preferred: Runs<Processor>,
    /// GPUs that see pages wherever these are, and do not fault.
    accessed_by: BTreeMap<usize, Runs<()>>,
    /// Pages of others that GPUs have faulted on, and see since.
    remote: BTreeMap<usize, Runs<()>>,
    /// Pages that programs move together, by the number of their group.
    groups: Runs<u64>,
    /// GPUs that reach each other's memory, the lower number first.
    peers: BTreeSet<(usize, usize)>,
    batches: u32,
}

impl PageMap {
    /// Whether a GPU reaches what is there: its own memory, that of the process, and of its peers.
    fn is_seen(&self, there: Processor, gpu: usize) -> bool {
        match there {
            Processor::Cpu => true,
            Processor::Gpu(other) => {
                other == gpu || self.peers.contains(&(gpu.min(other), gpu.max(other)))
            }
        }
    }

    fn is_accessed_by(&self, page: u64, gpu: usize) -> bool {
        self.accessed_by.get(&gpu).is_some_and(|runs| runs.at(page).is_some())
    }

    /// Where a page goes that a GPU faults on (`block_select_processor_residency`).
    fn goal(&self, page: u64, from: Option<Processor>, gpu: usize) -> Processor {
        let own = Processor::Gpu(gpu);
        let preferred = self.preferred.at(page).filter(|there| self.is_seen(*there, gpu));
        match from {
            _ if preferred == Some(own) => own,
            Some(from) if self.is_accessed_by(page, gpu) && self.is_seen(from, gpu) => from,
            _ => preferred.unwrap_or(own),
        }
    }

    /// What somebody has advised about a page, as far as it matters to a GPU.
    fn advice(&self, page: u64, gpu: usize) -> (Option<Processor>, bool) {
        (self.preferred.at(page), self.is_accessed_by(page, gpu))
    }

    /// The pages that come along with one: those beside it of which nobody has advised anything else.
    fn together(&self, page: u64, gpu: usize, (base, end): (u64, u64)) -> (u64, u64) {
        let first = (page / TOGETHER * TOGETHER).max(base);
        let last = (page / TOGETHER + 1).saturating_mul(TOGETHER).min(end);
        let is_alike = |at: &u64| self.advice(*at, gpu) == self.advice(page, gpu);
        let steps = |count: u64| 1..=count / PAGE;
        let below = steps(page - first).map(|step| page - step * PAGE).take_while(is_alike).last();
        let above = steps(last - page - 1).map(|step| page + step * PAGE);
        let above = above.take_while(is_alike).last();
        (below.unwrap_or(page), (above.unwrap_or(page) + PAGE).min(end))
    }
}

/// How a GPU touches memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    pub(super) gpu: usize,
    pub(super) base: u64,
    pub(super) length: u64,
    pub(super) access: Access,
    /// By its shader cores, not by an engine that copies.
    pub(super) is_of_kernel: bool,
}

impl Residence {
    pub(super) fn new(file: Arc<Node>) -> Self {
        Self { file: Some(file), ..Self::default() }
    }

    fn pages(&self) -> MutexGuard<'_, PageMap> {
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
        let PageMap { places, preferred, groups, accessed_by, remote, .. } = &mut *pages;
        places.clear(base, end);
        preferred.clear(base, end);
        groups.clear(base, end);
        accessed_by.values_mut().chain(remote.values_mut()).for_each(|runs| runs.clear(base, end));
    }

    /// UVM_SET_PREFERRED_LOCATION, or none any more.
    pub(super) fn prefer(&self, base: u64, end: u64, place: Option<Processor>) {
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

    /// UVM_SET_RANGE_GROUP, or none any more.
    pub(super) fn group(&self, base: u64, end: u64, group: Option<u64>) {
        let mut pages = self.pages();
        match group {
            Some(group) => pages.groups.set(base, end, group),
            None => pages.groups.clear(base, end),
        }
    }

    /// The pages of a group, in the order of their addresses.
    pub(super) fn of_group(&self, group: u64) -> Vec<(u64, u64)> {
        self.pages().groups.of(group)
    }

    /// UVM_DESTROY_RANGE_GROUP.
    pub(super) fn ungroup(&self, group: u64) {
        for (base, end) in self.of_group(group) {
            self.group(base, end, None);
        }
    }

    /// UVM_ENABLE_PEER_ACCESS; whether that is new.
    pub(super) fn connect(&self, one: usize, other: usize) -> bool {
        self.pages().peers.insert((one.min(other), one.max(other)))
    }

    pub(super) fn are_peers(&self, one: usize, other: usize) -> bool {
        self.pages().peers.contains(&(one.min(other), one.max(other)))
    }

    /// UVM_DISABLE_PEER_ACCESS; whether they were peers. What each saw of the other it sees no more.
    pub(super) fn disconnect(&self, one: usize, other: usize) -> bool {
        let mut pages = self.pages();
        let were_peers = pages.peers.remove(&(one.min(other), one.max(other)));
        for (gpu, owner) in [(one, other), (other, one)] {
            for (start, stop) in pages.places.of(Processor::Gpu(owner)) {
                if let Some(runs) = pages.remote.get_mut(&gpu).filter(|_| were_peers) {
                    runs.clear(start, stop);
                }
            }
        }
        were_peers
    }

    /// A GPU has no addresses any more: it sees nothing of others.
    pub(super) fn unmap(&self, gpu: usize) {
        self.pages().remote.remove(&gpu);
    }

    /// A GPU is unregistered, which has no peers any more: its pages go to the process, and nothing is advised about it.
    pub(super) fn leave(&self, gpu: usize) {
        let own = Processor::Gpu(gpu);
        let mut pages = self.pages();
        let mut events = Vec::new();
        for (start, stop) in pages.places.of(own) {
            events.extend(self.moved(&mut pages, start, stop, Processor::Cpu, Cause::Eviction));
        }
        for (start, stop) in pages.preferred.of(own) {
            pages.preferred.clear(start, stop);
        }
        pages.accessed_by.remove(&gpu);
        pages.remote.remove(&gpu);
        drop(pages);
        self.tell(&events);
    }

    /// Brings pages to a place; those that are nowhere begin there.
    pub(super) fn bring(&self, base: u64, end: u64, to: Processor) {
        let events = self.moved(&mut self.pages(), base, end, to, Cause::User);
        self.tell(&events);
    }

    /// What is told of pages that are brought to a place.
    fn moved(
        &self,
        pages: &mut PageMap,
        base: u64,
        end: u64,
        to: Processor,
        cause: Cause,
    ) -> Vec<Event> {
        let elsewhere = self.places(pages, base, end).filter(|(.., from)| *from != to);
        let moves = elsewhere.map(|(address, stop, from)| Event::Migration {
            from,
            to,
            address,
            bytes: stop - address,
            cause,
        });
        let moves: Vec<Event> = moves.collect();
        pages.places.set(base, end, to);
        // Who saw it where it was does not see it where it is.
        pages.remote.values_mut().for_each(|runs| runs.clear(base, end));
        moves
    }

    /// Where pages are, in the order of their addresses; those that are nowhere are left out.
    fn places(
        &self,
        pages: &PageMap,
        base: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, u64, Processor)> + use<> {
        let known: Vec<_> = pages.places.within(base, end).collect();
        let starts = known.iter().map(|(start, ..)| *start).chain([end]);
        let ends = [base].into_iter().chain(known.iter().map(|(_, stop, _)| *stop));
        let gaps = ends.zip(starts).filter(|(start, stop)| start < stop);
        let memory = self.file.as_ref().and_then(|file| file.memory());
        let of_process = gaps.flat_map(|(start, stop)| {
            memory.map_or(Vec::new(), |memory| memory.written(start, stop))
        });
        let of_process = of_process.map(|(start, stop)| (start, stop, Processor::Cpu));
        let mut all: Vec<_> = of_process.collect();
        all.extend(known);
        all.sort_unstable();
        all.into_iter()
    }

    /// A GPU reads or writes some of the memory that is managed from `base` to `end`.
    pub(super) fn touch(&self, touch: Touch, range: (u64, u64)) {
        let own = Processor::Gpu(touch.gpu);
        let first = touch.base / PAGE * PAGE;
        let Some(last) = touch.base.checked_add(touch.length) else { return };
        let last = last.checked_next_multiple_of(PAGE).map_or(range.1, |last| last.min(range.1));
        let mut pages = self.pages();
        if first >= last || pages.places.is_all(first, last, own) {
            return;
        }
        let mut events = Vec::new();
        for page in (first..last).step_by(PAGE as usize) {
            if !pages.places.is_all(page, page + PAGE, own) {
                events.extend(self.fault(&mut pages, page, touch, range));
            }
        }
        drop(pages);
        self.tell(&events);
    }

    /// A GPU touches a page that it has not itself: what is told, where it does not see it from afar already.
    fn fault(&self, pages: &mut PageMap, page: u64, touch: Touch, range: (u64, u64)) -> Vec<Event> {
        let Touch { gpu, access, is_of_kernel, .. } = touch;
        let is_remote = pages.remote.get(&gpu).is_some_and(|runs| runs.at(page).is_some());
        if is_remote {
            return Vec::new();
        }
        let from = self.places(pages, page, page + PAGE).next().map(|(.., from)| from);
        let is_seen = from.is_some_and(|from| pages.is_seen(from, gpu));
        if is_seen && pages.is_accessed_by(page, gpu) {
            return Vec::new();
        }
        let batch = pages.batches;
        pages.batches = batch.wrapping_add(1);
        let mut events = vec![Event::Fault { gpu, address: page, access, is_of_kernel, batch }];
        let to = pages.goal(page, from, gpu);
        if to == Processor::Gpu(gpu) {
            let (start, stop) = pages.together(page, gpu, range);
            events.extend(self.moved(pages, start, page, to, Cause::Prefetch));
            events.extend(self.moved(pages, page, page + PAGE, to, Cause::Coherence));
            events.extend(self.moved(pages, page + PAGE, stop, to, Cause::Prefetch));
        } else {
            events.extend(self.moved(pages, page, page + PAGE, to, Cause::Coherence));
            pages.remote.entry(gpu).or_default().set(page, page + PAGE, ());
        }
        events.push(Event::Replay { gpu, is_of_kernel, batch });
        events
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

    const BLOCK: u64 = 2 << 20;
    const RANGE: (u64, u64) = (BLOCK, 2 * BLOCK);

    fn touch(residence: &Residence, gpu: usize, at: u64) -> Option<Processor> {
        let access = Access::Write;
        residence.touch(Touch { gpu, base: at, length: 4, access, is_of_kernel: true }, RANGE);
        residence.pages().places.at(at)
    }

    #[test]
    fn a_page_comes_with_its_neighbours_that_are_advised_alike() {
        let residence = Residence::default();
        let (base, end) = RANGE;
        let place = |at| residence.pages().places.at(at);
        residence.bring(base, end, Processor::Cpu);
        residence.prefer(base + 3 * PAGE, base + 4 * PAGE, Some(Processor::Cpu));
        assert_eq!(touch(&residence, 0, base + PAGE), Some(Processor::Gpu(0)));
        assert_eq!(place(base), Some(Processor::Gpu(0)));
        assert_eq!(place(base + 2 * PAGE), Some(Processor::Gpu(0)));
        assert_eq!(place(base + 3 * PAGE), Some(Processor::Cpu));
        assert_eq!(place(base + 4 * PAGE), Some(Processor::Cpu));
        assert_eq!(touch(&residence, 0, base + 5 * PAGE), Some(Processor::Gpu(0)));
        assert_eq!(place(base + 4 * PAGE), Some(Processor::Gpu(0)));
        assert_eq!(place(base + TOGETHER - PAGE), Some(Processor::Gpu(0)));
        assert_eq!(place(base + TOGETHER), Some(Processor::Cpu));
    }

    /// As `block_select_processor_residency` has it.
    #[test]
    fn where_a_page_goes_is_the_drivers_choice() {
        let (gpu, other) = (Processor::Gpu(0), Processor::Gpu(1));
        let after = |from, preferred: Option<Processor>, is_accessed, are_peers: bool| {
            let residence = Residence::default();
            let (base, end) = RANGE;
            if let Some(from) = from {
                residence.bring(base, end, from);
            }
            residence.prefer(base, end, preferred);
            residence.access_by(base, end, 0, is_accessed);
            if are_peers {
                residence.connect(0, 1);
            }
            touch(&residence, 0, base)
        };
        for (from, preferred, is_accessed, are_peers, to) in [
            (Some(Processor::Cpu), None, false, false, gpu),
            (None, None, false, false, gpu),
            (None, Some(Processor::Cpu), false, false, Processor::Cpu),
            (None, Some(other), false, false, gpu),
            (None, Some(other), false, true, other),
            (Some(Processor::Cpu), Some(Processor::Cpu), false, false, Processor::Cpu),
            (Some(Processor::Cpu), None, true, false, Processor::Cpu),
            (Some(other), None, true, false, gpu),
            (Some(other), None, true, true, other),
            (Some(other), Some(Processor::Cpu), false, true, Processor::Cpu),
            (Some(Processor::Cpu), Some(gpu), false, false, gpu),
        ] {
            let case = format!("{from:?} {preferred:?} {is_accessed} {are_peers}");
            assert_eq!(after(from, preferred, is_accessed, are_peers), Some(to), "{case}");
        }
    }

    #[test]
    fn pages_leave_their_group() {
        let residence = Residence::default();
        let (base, end) = RANGE;
        residence.group(base, end, Some(1));
        residence.group(base, base + PAGE, None);
        residence.group(end - PAGE, end, Some(2));
        residence.forget(base + 4 * PAGE, base + 5 * PAGE);
        let left = [(base + PAGE, base + 4 * PAGE), (base + 5 * PAGE, end - PAGE)];
        assert_eq!(residence.of_group(1), left);
        residence.ungroup(1);
        assert_eq!(
            (residence.of_group(1), residence.of_group(2)),
            (vec![], vec![(end - PAGE, end)])
        );
    }

    #[test]
    fn who_is_gone_leaves_its_pages_to_the_process() {
        let residence = Residence::default();
        let (base, end) = RANGE;
        residence.bring(base, end, Processor::Gpu(1));
        residence.prefer(base, end, Some(Processor::Gpu(1)));
        residence.access_by(base, end, 1, true);
        residence.leave(1);
        assert_eq!(residence.pages().places.at(base), Some(Processor::Cpu));
        assert_eq!(touch(&residence, 1, base), Some(Processor::Gpu(1)), "nothing is advised");
    }

    #[test]
    fn what_is_seen_from_afar_faults_once() {
        let residence = Residence::default();
        let (base, end) = RANGE;
        residence.bring(base, end, Processor::Cpu);
        residence.prefer(base, end, Some(Processor::Cpu));
        let faults = |at| {
            let touch =
                Touch { gpu: 0, base: at, length: 4, access: Access::Read, is_of_kernel: true };
            residence.fault(&mut residence.pages(), at, touch, RANGE).len()
        };
        assert_eq!((faults(base), faults(base), faults(base + PAGE)), (2, 0, 2));
        // It was moved in between.
        residence.bring(base, end, Processor::Gpu(1));
        residence.bring(base, end, Processor::Cpu);
        assert_eq!(faults(base), 2);
    }

    #[test]
    fn pages_that_are_nowhere_begin_where_they_are_brought() {
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
        assert_eq!(moves(BLOCK, 3 * BLOCK, Processor::Cpu), [], "they were nowhere");
        let some = (BLOCK + PAGE, BLOCK, Processor::Cpu);
        assert_eq!(moves(BLOCK + PAGE, 2 * BLOCK + PAGE, Processor::Gpu(0)), [some]);
        assert_eq!(
            moves(BLOCK, 2 * BLOCK, Processor::Gpu(1)),
            [(BLOCK, PAGE, Processor::Cpu), (BLOCK + PAGE, BLOCK - PAGE, Processor::Gpu(0))]
        );
        assert_eq!(moves(BLOCK, 2 * BLOCK, Processor::Gpu(1)), []);
    }
}
