//! Whose turn it is: blocks do one at a time, in their order, what others can see.
//!
//! A block has its turn until it ends. If it does a great deal in it, it may wait for a block behind it, as those that
//! a GPU runs at once may: from then on the blocks that fit on a GPU take turns, in an order that depends on nothing
//! but what they do.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use super::grid::product;
use crate::device::Launch;

/// How often a block does what others see, counted once a lane, until it may be waiting for another.
const PATIENCE: u64 = 1 << 16;

/// The same where blocks take turns.
const TURN: u64 = 1 << 10;

/// Blocks that may have begun behind the first that has not ended: what is remembered of each has a bound.
const AHEAD: usize = 1 << 16;

/// It is everybody's turn.
const ALL: usize = usize::MAX;

/// The turn of a launch.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The position of the block whose turn it is.
    holder: AtomicUsize,
    /// What it has done in its turn.
    done: AtomicU64,
    takes_turns: AtomicBool,
    /// All blocks have waited for each other for too long.
    is_stuck: AtomicBool,
    /// Nobody wants the launch any more.
    is_abandoned: AtomicBool,
    /// The first block in the order that made a fatal mistake, plus one; 0 is none.
    failed: AtomicUsize,
    /// Its turn has come: all others end.
    is_final: AtomicBool,
    blocks: Mutex<Blocks>,
    /// A block has ended that others are too far ahead of.
    has_room: Condvar,
    /// Blocks take turns, or no thread runs any more.
    wants_threads: Condvar,
}

#[derive(Debug)]
struct Blocks {
    count: usize,
    /// Those that run at once.
    together: usize,
    /// All before this one have ended, and which behind it.
    first: usize,
    ended: VecDeque<bool>,
    /// Those that take turns, from the one whose turn it is, and the first that is not among them yet.
    members: VecDeque<usize>,
    edge: usize,
    /// Turns since one of them ended.
    idle: u64,
    most_idle: u64,
    waiting: HashMap<usize, Thread>,
    /// Threads that run blocks, and those of them that are too far ahead.
    workers: usize,
    ahead: usize,
}

impl Blocks {
    fn has_ended(&self, position: usize) -> bool {
        position < self.first || self.ended.get(position - self.first) == Some(&true)
    }

    fn end(&mut self, position: usize) {
        let at = position.saturating_sub(self.first);
        if self.ended.len() <= at {
            self.ended.resize(at + 1, false);
        }
        self.ended[at] = true;
        while self.ended.front() == Some(&true) {
            self.ended.pop_front();
            self.first += 1;
        }
    }

    /// Members that have ended go when it is their turn, and others come for them: so the order does not depend on
    /// when they ended.
    fn settle(&mut self) -> usize {
        while let Some(member) = self.members.front().copied() {
            if !self.has_ended(member) {
                break;
            }
            self.members.pop_front();
            self.idle = 0;
            let lowest = self.members.iter().min().copied().unwrap_or(self.edge);
            while self.members.len() < self.together
                && self.edge < self.count.min(lowest.saturating_add(AHEAD))
            {
                self.members.push_back(self.edge);
                self.edge += 1;
            }
        }
        self.members.front().copied().unwrap_or(ALL)
    }

    fn wake(&mut self, position: usize) {
        match position {
            ALL => self.waiting.drain().for_each(|(_, thread)| thread.unpark()),
            position => {
                if let Some(thread) = self.waiting.remove(&position) {
                    thread.unpark();
                }
            }
        }
    }
}

impl Turn {
    /// Of a launch of which so many blocks run at once.
    pub(crate) fn new(launch: &Launch, together: usize) -> Self {
        Self::of(product(launch.grid) as usize, together, launch.max_warp_instructions)
    }

    /// `limit` is how many instructions count as endless.
    fn of(count: usize, together: usize, limit: u64) -> Self {
        Self {
            holder: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            takes_turns: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            failed: AtomicUsize::new(0),
            is_final: AtomicBool::new(false),
            blocks: Mutex::new(Blocks {
                count,
                together: together.max(1),
                first: 0,
                ended: VecDeque::new(),
                members: VecDeque::new(),
                edge: 0,
                idle: 0,
                most_idle: limit / TURN + 1,
                waiting: HashMap::new(),
                workers: 0,
                ahead: 0,
            }),
            has_room: Condvar::new(),
            wants_threads: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every block do what it wants at once: something else orders them.
    pub(super) fn free(&self) {
        let mut blocks = self.lock();
        self.give(&mut blocks, ALL);
    }

    /// Waits until it is the turn of a block, which is about to do something that others see.
    pub(crate) fn wait(&self, position: usize) {
        loop {
            let holder = self.holder.load(Ordering::Acquire);
            if holder == ALL || holder != position && self.is_over(position) {
                return;
            }
            if holder != position {
                self.sleep(position);
                continue;
            }
            let most = if self.takes_turns.load(Ordering::Relaxed) { TURN } else { PATIENCE };
            if self.done.fetch_add(1, Ordering::Relaxed) < most || !self.pass(position) {
                return;
            }
        }
    }

    fn sleep(&self, position: usize) {
        let mut blocks = self.lock();
        let holder = self.holder.load(Ordering::Acquire);
        if holder != position && holder != ALL && !self.is_over(position) {
            blocks.waiting.insert(position, thread::current());
            drop(blocks);
            thread::park();
        }
    }

    /// Gives the turn to the next block; whether there is one.
    fn pass(&self, position: usize) -> bool {
        let mut blocks = self.lock();
        self.done.store(0, Ordering::Relaxed);
        if !self.takes_turns.swap(true, Ordering::AcqRel) {
            blocks.edge = blocks.count.min(position.saturating_add(blocks.together));
            blocks.members = (position..blocks.edge).collect();
            self.wants_threads.notify_all();
        }
        blocks.idle += 1;
        if blocks.idle > blocks.most_idle {
            self.is_stuck.store(true, Ordering::Release);
            return false;
        }
        blocks.members.rotate_left(1);
        let next = blocks.settle();
        if next == position {
            return false;
        }
        self.give(&mut blocks, next);
        true
    }

    fn give(&self, blocks: &mut Blocks, position: usize) {
        self.holder.store(position, Ordering::Release);
        blocks.wake(position);
    }

    pub(super) fn end(&self, position: usize) {
        let mut blocks = self.lock();
        blocks.end(position);
        if self.holder.load(Ordering::Acquire) == position {
            self.done.store(0, Ordering::Relaxed);
            let next = match self.takes_turns.load(Ordering::Acquire) {
                true => blocks.settle(),
                false => blocks.first,
            };
            self.give(&mut blocks, next);
        }
        if blocks.ahead != 0 {
            self.has_room.notify_all();
        }
    }

    /// Notes that a block has failed, when its turn comes: so it does not depend on threads which block fails first.
    /// Whether it is this one.
    ///
    /// One that fails before its first turn needs no other block before it to end, and none behind it has had a turn.
    pub(super) fn fail(&self, position: usize) -> bool {
        let earlier = |failed| (failed == 0 || position + 1 < failed).then_some(position + 1);
        if !self.is_final.load(Ordering::Acquire) {
            // An error means that an earlier block has failed already.
            let _ = self.failed.fetch_update(Ordering::AcqRel, Ordering::Acquire, earlier);
        }
        let may_go_on = || {
            let holder = self.holder.load(Ordering::Acquire);
            holder == position || holder == ALL || self.is_over(position)
        };
        while !may_go_on() {
            self.sleep(position);
        }
        if self.is_over(position) {
            return false;
        }
        self.is_final.store(true, Ordering::Release);
        // Others may wait for this one.
        self.lock().wake(ALL);
        true
    }

    /// Ends all blocks.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        self.lock().wake(ALL);
    }

    /// Whether a block need not go on, since an earlier one has failed, or one that it may wait for.
    pub(crate) fn is_over(&self, position: usize) -> bool {
        let failed = self.failed.load(Ordering::Acquire);
        self.is_abandoned.load(Ordering::Acquire)
            || failed != 0 && failed <= position
            || failed != position + 1 && self.is_final.load(Ordering::Acquire)
    }

    /// The first block that failed.
    pub(super) fn failed(&self) -> Option<usize> {
        self.failed.load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether all blocks wait for each other.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

    fn takes_turns(&self) -> bool {
        self.takes_turns.load(Ordering::Acquire)
    }

    /// Waits until a block may begin.
    pub(super) fn begin(&self, position: usize) {
        let mut blocks = self.lock();
        while position >= blocks.first.saturating_add(AHEAD) {
            blocks.ahead += 1;
            blocks = self.has_room.wait(blocks).unwrap_or_else(PoisonError::into_inner);
            blocks.ahead -= 1;
        }
    }

    /// Counts a thread that runs blocks, until this is dropped.
    pub(super) fn worker(&self) -> Worker<'_> {
        self.lock().workers += 1;
        Worker(self)
    }

    /// Waits until blocks take turns, and says how many may; None if all have ended before.
    pub(super) fn wanted(&self) -> Option<usize> {
        let mut blocks = self.lock();
        loop {
            if blocks.workers == 0 {
                return None;
            }
            if self.takes_turns() {
                return Some(blocks.together.min(blocks.count));
            }
            blocks = self.wants_threads.wait(blocks).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A thread that runs blocks.
pub(super) struct Worker<'a>(&'a Turn);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.0.wants_threads.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which blocks have their turns, if they end after so many.
    fn turns(ends: &[u64], together: usize, early: &[usize]) -> Vec<usize> {
        let turn = Turn::of(ends.len(), together, 1 << 27);
        let mut left = ends.to_vec();
        let mut out = Vec::new();
        for position in early {
            turn.end(*position);
        }
        loop {
            let holder = turn.holder.load(Ordering::Acquire);
            if holder >= ends.len() {
                return out;
            }
            out.push(holder);
            left[holder] -= 1;
            if left[holder] == 0 {
                turn.end(holder);
            } else {
                turn.pass(holder);
            }
        }
    }

    #[test]
    fn blocks_come_one_after_the_other_until_one_waits() {
        assert_eq!(turns(&[1, 1, 1], 2, &[]), [0, 1, 2]);
        assert_eq!(turns(&[1, 3, 1, 2], 2, &[]), [0, 1, 2, 1, 3, 1, 3]);
    }

    #[test]
    fn when_a_block_ended_changes_nothing() {
        // The third does nothing in its turn, whether it ends before it or in it.
        let seen = |turns: Vec<usize>| turns.into_iter().filter(|at| *at != 2).collect::<Vec<_>>();
        let ends = [3, 2, 1, 2, 2];
        assert_eq!(seen(turns(&ends, 3, &[2])), seen(turns(&ends, 3, &[])));
    }
}
