//! Syncpoints: counters that the host unit keeps, and what waits for them.

use std::sync::Arc;

use super::{Errno, FileId, Result};
use crate::memory::Node;

/// How many there are.
pub(super) const POINTS: u32 = 1024;
/// Bytes of GPU addresses that each takes in the shim.
pub(super) const POINT_SIZE: u64 = 0x1_0000;
/// The first that a channel gets: those before belong to other engines.
const FIRST: u32 = 17;
/// What they start at on a machine that has been used.
const FIRST_VALUE: u32 = 30_000;
/// How far a channel's syncpoint jumps when the channel stops, to let go whoever waits for it
/// (`nvgpu_nvhost_syncpt_set_safe_state`).
const SAFE_JUMP: u32 = 1000;

/// A file that becomes readable when a syncpoint has come far enough.
#[derive(Debug)]
struct Waiter {
    file: FileId,
    node: Arc<Node>,
    point: u32,
    threshold: u32,
}

/// All syncpoints.
#[derive(Debug)]
pub(super) struct Points {
    values: Vec<u32>,
    used: Vec<bool>,
    waiters: Vec<Waiter>,
}

impl Points {
    pub(super) fn new() -> Self {
        let points = POINTS as usize;
        let used = (0..POINTS).map(|point| point < FIRST).collect();
        Self { values: vec![FIRST_VALUE; points], used, waiters: Vec::new() }
    }

    /// A point for a channel.
    pub(super) fn allocate(&mut self) -> Result<u32> {
        let free = self.used.iter().position(|used| !used).ok_or(Errno::ENOMEM)?;
        self.used[free] = true;
        Ok(free as u32)
    }

    /// Gives it back; its value stays.
    pub(super) fn free(&mut self, point: u32) {
        if let Some(used) = self.used.get_mut(point as usize) {
            *used = false;
        }
    }

    /// Its value; `None` when there is no such point.
    pub(super) fn value(&self, point: u32) -> Option<u32> {
        self.values.get(point as usize).copied()
    }

    /// One further.
    pub(super) fn increment(&mut self, point: u32) {
        self.advance(point, 1);
    }

    /// Far enough that nobody waits for it any more.
    pub(super) fn make_safe(&mut self, point: u32) {
        self.advance(point, SAFE_JUMP);
    }

    /// As far as a threshold, if it is not there yet.
    pub(super) fn raise_to(&mut self, point: u32, threshold: u32) {
        if let Some(value) = self.value(point).filter(|value| !has_reached(*value, threshold)) {
            self.advance(point, threshold.wrapping_sub(value));
        }
    }

    /// Raises a file once the point has reached the threshold, which may be now.
    pub(super) fn wait(&mut self, file: FileId, node: Arc<Node>, point: u32, threshold: u32) {
        self.waiters.push(Waiter { file, node, point, threshold });
        self.raise(point);
    }

    /// Nobody has the file any more.
    pub(super) fn forget(&mut self, file: FileId) {
        self.waiters.retain(|waiter| waiter.file != file);
    }

    /// Whether something waits for this file's sake.
    pub(super) fn is_awaited(&self, file: FileId) -> bool {
        self.waiters.iter().any(|waiter| waiter.file == file)
    }

    fn advance(&mut self, point: u32, by: u32) {
        if let Some(value) = self.values.get_mut(point as usize) {
            *value = value.wrapping_add(by);
            self.raise(point);
        }
    }

    fn raise(&mut self, point: u32) {
        let Some(value) = self.value(point) else { return };
        self.waiters.retain(|waiter| {
            let is_reached = waiter.point == point && has_reached(value, waiter.threshold);
            if let (true, Node::Signal(signal)) = (is_reached, &*waiter.node) {
                signal.raise();
            }
            !is_reached
        });
    }
}

/// Counters wrap around: a value is at the threshold or less than half the range behind it.
pub(super) fn has_reached(value: u32, threshold: u32) -> bool {
    value.wrapping_sub(threshold) & 0x8000_0000 == 0
}
