//! The allocator of GPU virtual addresses: a buddy allocator whose every list order shows in the
//! addresses that it returns, so all of it is the driver's.
//!
//! It knows addresses and sizes alone. (`common/mm/allocators/buddy_allocator.c`, with one page size.)

use std::collections::BTreeMap;

use super::PAGE;

const PAGE_SHIFT: u32 = PAGE.trailing_zeros();
/// More orders than a window of 2^49 bytes has.
const ORDERS: usize = 64;

type Id = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Allocated,
    Split,
}

/// A block, and where it is in the tree of blocks and in the list of free ones of its order.
#[derive(Debug, Clone)]
struct Block {
    start: u64,
    order: u32,
    state: State,
    parent: Option<Id>,
    sibling: Option<Id>,
    next: Option<Id>,
    previous: Option<Id>,
}

/// The addresses of one window.
#[derive(Debug, Clone)]
pub(crate) struct Buddy {
    start: u64,
    end: u64,
    max_order: u32,
    blocks: Vec<Block>,
    unused: Vec<Id>,
    /// Heads of the lists of free blocks.
    free: [Option<Id>; ORDERS],
    allocated: BTreeMap<u64, Id>,
    /// Exact ranges, each made of blocks in the order in which they were taken.
    fixed: BTreeMap<u64, Vec<Id>>,
}

impl Buddy {
    /// `[start, end)`, which is not empty; both are multiples of the page size.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        let pages = (end - start) >> PAGE_SHIFT;
        let mut buddy = Self {
            start,
            end,
            max_order: pages.checked_ilog2().unwrap_or(0),
            blocks: Vec::new(),
            unused: Vec::new(),
            free: [None; ORDERS],
            allocated: BTreeMap::new(),
            fixed: BTreeMap::new(),
        };
        let mut at = start;
        while at < end {
            let order = buddy.largest_order_in(end - at);
            let id = buddy.create(at, order, None);
            buddy.list(id);
            at += length(order);
        }
        buddy
    }

    /// First address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// End of the window.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// An address for `size` bytes: the head of the smallest list that has a block large enough,
    /// split down to its leftmost part.
    pub(crate) fn allocate(&mut self, size: u64) -> Option<u64> {
        let order = u64::BITS - (size.checked_sub(1)? >> PAGE_SHIFT).leading_zeros();
        let mut id = (order..=self.max_order).find_map(|order| self.free[order as usize])?;
        while self.blocks[id].order != order {
            id = self.split(id);
        }
        self.take(id);
        Some(self.blocks[id].start)
    }

    /// Exactly `[start, start + size)`, in blocks as large as fit; `None` when any of it is taken.
    pub(crate) fn allocate_fixed(&mut self, start: u64, size: u64) -> Option<u64> {
        let end = start.checked_add(size)?;
        if size == 0 || start % PAGE != 0 || start < self.start || self.end < end {
            return None;
        }
        if !self.looks_free(start, end) {
            return None;
        }
        let mut order = ((start - self.start) | size).trailing_zeros() - PAGE_SHIFT;
        let mut taken = Vec::new();
        let mut at = start;
        while at < end {
            let Some(id) = self.block_at(at, order) else {
                self.give_back(taken);
                return None;
            };
            self.take(id);
            taken.push(id);
            at += length(order);
            order = (at - self.start).trailing_zeros() - PAGE_SHIFT;
            if at < end && length(order) > end - at {
                order = self.largest_order_in(end - at);
            }
        }
        self.fixed.insert(start, taken);
        Some(start)
    }

    /// Frees what was allocated at an address; does nothing when nothing was.
    pub(crate) fn free(&mut self, start: u64) {
        if let Some(blocks) = self.fixed.remove(&start) {
            self.give_back(blocks);
        } else if let Some(&id) = self.allocated.get(&start) {
            self.put(id);
        }
    }

    /// The driver's own test, which misses a range inside one allocated block: that one fails later,
    /// for want of a block.
    fn looks_free(&self, start: u64, end: u64) -> bool {
        self.allocated.range(..end).all(|(&from, &id)| {
            let to = from + length(self.blocks[id].order);
            !((from > start && from < end) || (to > start && to < end))
        })
    }

    /// The largest block that fits in `size` bytes.
    fn largest_order_in(&self, size: u64) -> u32 {
        (size >> PAGE_SHIFT).checked_ilog2().unwrap_or(0).min(self.max_order)
    }

    /// The free block at an address, split off a larger one where it has to be.
    fn block_at(&mut self, start: u64, order: u32) -> Option<Id> {
        let mut id = (order..=self.max_order).find_map(|order| {
            let offset = (start - self.start) & !(length(order) - 1);
            self.free_block(order, self.start + offset)
        })?;
        while self.blocks[id].start != start || self.blocks[id].order != order {
            let left = self.split(id);
            id = match self.blocks[left].sibling {
                Some(right) if start >= self.blocks[right].start => right,
                _ => left,
            };
        }
        Some(id)
    }

    fn free_block(&self, order: u32, start: u64) -> Option<Id> {
        let mut at = self.free[order as usize];
        while let Some(id) = at {
            if self.blocks[id].start == start {
                return Some(id);
            }
            at = self.blocks[id].next;
        }
        None
    }

    /// Two halves in place of a free block, the right one at the head of the list; returns the left.
    fn split(&mut self, id: Id) -> Id {
        let Block { start, order, .. } = self.blocks[id];
        let order = order - 1;
        let left = self.create(start, order, Some(id));
        let right = self.create(start + length(order), order, Some(id));
        self.blocks[left].sibling = Some(right);
        self.blocks[right].sibling = Some(left);
        self.unlist(id);
        self.blocks[id].state = State::Split;
        self.list(left);
        self.list(right);
        left
    }

    fn take(&mut self, id: Id) {
        self.unlist(id);
        self.blocks[id].state = State::Allocated;
        self.allocated.insert(self.blocks[id].start, id);
    }

    fn give_back(&mut self, blocks: Vec<Id>) {
        for id in blocks.into_iter().rev() {
            self.put(id);
        }
    }

    /// Back to the head of its list, and merged for as long as the other half is free.
    fn put(&mut self, id: Id) {
        self.allocated.remove(&self.blocks[id].start);
        self.blocks[id].state = State::Free;
        self.list(id);
        let mut id = id;
        while let Block { sibling: Some(sibling), parent: Some(parent), .. } = self.blocks[id] {
            if self.blocks[sibling].state != State::Free {
                break;
            }
            self.unlist(id);
            self.unlist(sibling);
            self.unused.extend([id, sibling]);
            self.blocks[parent].state = State::Free;
            self.list(parent);
            id = parent;
        }
    }

    fn create(&mut self, start: u64, order: u32, parent: Option<Id>) -> Id {
        let block = Block {
            start,
            order,
            state: State::Free,
            parent,
            sibling: None,
            next: None,
            previous: None,
        };
        if let Some(id) = self.unused.pop() {
            self.blocks[id] = block;
            return id;
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    fn list(&mut self, id: Id) {
        let head = &mut self.free[self.blocks[id].order as usize];
        let next = head.replace(id);
        self.blocks[id].next = next;
        self.blocks[id].previous = None;
        if let Some(next) = next {
            self.blocks[next].previous = Some(id);
        }
    }

    fn unlist(&mut self, id: Id) {
        let Block { order, next, previous, .. } = self.blocks[id];
        match previous {
            Some(previous) => self.blocks[previous].next = next,
            None => self.free[order as usize] = next,
        }
        if let Some(next) = next {
            self.blocks[next].previous = previous;
        }
    }
}

fn length(order: u32) -> u64 {
    PAGE << order
}

#[cfg(test)]
mod tests {
    use super::Buddy;

    /// The window of the Orin trace.
    fn user() -> Buddy {
        Buddy::new(0x20_0000, 0xFF_FFE0_0000)
    }

    #[test]
    fn small_blocks_come_from_the_small_tail() {
        let mut buddy = user();
        assert_eq!(buddy.allocate(4096), Some(0xFF_FFA0_0000), "what the trace shows");
        assert_eq!(buddy.allocate(4096), Some(0xFF_FFA0_1000));
        assert_eq!(buddy.allocate(8192), Some(0xFF_FFA0_2000));
    }

    #[test]
    fn the_kernel_window_gives_the_syncpoint_its_address() {
        let mut buddy = Buddy::new(0xFF_FFE0_0000, 0x100_FFE0_0000);
        assert_eq!(buddy.allocate(8192), Some(0xFF_FFE0_0000), "gpfifo");
        assert_eq!(buddy.allocate(64 << 20), Some(0x100_03E0_0000), "all syncpoints");
        assert_eq!(buddy.allocate(0x1_0000), Some(0xFF_FFE1_0000), "what the trace shows");
    }

    #[test]
    fn a_large_block_comes_from_the_front_of_what_is_left() {
        let mut buddy = user();
        // All blocks smaller than 512 MiB are in use: the next is split off the one of 1 GiB, and
        // when that is gone off the one of 2 GiB, up to the shader windows.
        let mut seen = Vec::new();
        while let Some(at) = buddy.allocate(512 << 20) {
            seen.push(at);
        }
        assert!(seen.contains(&0xFE_0020_0000));
        assert_eq!(seen.len(), 2047);
    }

    #[test]
    fn fixed_ranges_are_exact() {
        let mut buddy = user();
        assert_eq!(buddy.allocate_fixed(0xFD_0000_0000, 1 << 30), Some(0xFD_0000_0000));
        assert_eq!(buddy.allocate_fixed(0xFD_0000_0000, 1 << 30), None, "taken");
        assert_eq!(buddy.allocate_fixed(0xFD_3FFF_F000, 8192), None, "overlaps");
        assert_eq!(buddy.allocate_fixed(0xFD_4000_0000, 4096), Some(0xFD_4000_0000));
        assert_eq!(buddy.allocate_fixed(0x1000, 4096), None, "outside");
        assert_eq!(buddy.allocate_fixed(0xFD_5000_0001, 4096), None, "unaligned");
        buddy.free(0xFD_0000_0000);
        assert_eq!(buddy.allocate_fixed(0xFD_0000_0000, 1 << 30), Some(0xFD_0000_0000));
    }

    #[test]
    fn all_comes_back_together() {
        let mut buddy = user();
        let before = format!("{:?}", buddy.free);
        let all: Vec<_> = (0..100).filter_map(|i| buddy.allocate(4096 << (i % 9))).collect();
        assert_eq!(all.len(), 100);
        assert_eq!(buddy.allocate_fixed(0x123_4000, 0x56_7000), Some(0x123_4000));
        buddy.free(0x123_4000);
        for at in all {
            buddy.free(at);
        }
        assert_eq!(buddy.allocated.len(), 0);
        let lists = buddy.free.iter().flatten().count();
        assert_eq!(lists, before.matches("Some").count());
    }
}
