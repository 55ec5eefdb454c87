//! How often `derive` allocates, and how much readers do.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use nvabi_devmem::{Capability, CapabilitySet, Constraint, ConstraintName, derive};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// What a call gives, and the largest piece of memory that it asked for, in bytes.
pub(crate) fn largest<T>(call: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.set(0);
    (call(), LARGEST.get())
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller of this method upholds what `GlobalAlloc` asks, which is what `System` asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
        // SAFETY: the caller of this method upholds what `GlobalAlloc` asks, which is what `System` asks.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller of this method upholds what `GlobalAlloc` asks, which is what `System` asks.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The sets that come out, and how often memory was allocated for them.
fn counted(left: &[CapabilitySet], right: &[CapabilitySet]) -> (usize, usize) {
    let before = COUNT.get();
    let derived = derive(left, right);
    (derived.len(), COUNT.get() - before)
}

/// Sets that have the capabilities `tag` and one of their own each, which none shares.
fn sets(tag: u32, own: u32, count: u32, pitch: u64, required: bool) -> Vec<CapabilitySet> {
    let set = |at| {
        let mut first = Capability::new(4318, 1, vec![tag, tag]);
        first.required = required;
        let constraint = Constraint::new(ConstraintName(pitch as u32), u64::from(own));
        CapabilitySet::new([constraint], [first, Capability::new(4318, 2, vec![own, at])])
    };
    (0..count).map(set).collect()
}

/// There are 1024 and 4096 pairs; the lists that are used for one after the other are made once.
fn rejects_without_allocating(left: impl Fn(u32) -> Vec<CapabilitySet>, right: &[CapabilitySet]) {
    let (none, few) = counted(&left(16), right);
    let (still_none, many) = counted(&left(64), right);
    assert_eq!((none, still_none), (0, 0));
    assert!(few < 8 && many < 8, "{few} and {many} allocations");
}

#[test]
fn a_pair_that_shares_nothing_costs_no_allocation() {
    rejects_without_allocating(|count| sets(1, 1, count, 9, false), &sets(2, 2, 64, 9, false));
}

#[test]
fn a_pair_that_loses_what_it_requires_costs_no_allocation() {
    let right: Vec<CapabilitySet> = sets(1, 2, 64, 9, false)
        .into_iter()
        .map(|set| {
            CapabilitySet::new(
                set.constraints,
                [set.capabilities[0].clone(), Capability::pitch_linear().required()],
            )
        })
        .collect();
    rejects_without_allocating(|count| sets(1, 1, count, 9, false), &right);
}

#[test]
fn a_pair_whose_constraints_conflict_costs_no_allocation() {
    // The name is not known, and the values differ.
    rejects_without_allocating(|count| sets(1, 1, count, 9, false), &sets(1, 2, 64, 9, false));
}

#[test]
fn the_counter_counts() {
    let (derived, allocations) = counted(&sets(1, 1, 8, 9, false), &sets(1, 1, 8, 9, false));
    assert!(derived == 64 && allocations >= 64, "{derived} sets, {allocations} allocations");
}
