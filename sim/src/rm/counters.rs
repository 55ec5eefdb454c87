//! Counters of a GPU's performance, which programs map: NV_COUNTER_COLLECTION_UNIT
//! (`src/nvidia/src/kernel/gpu/ccu/kernel_ccu.c`). Firmware fills them, so no header says which is where: that is what
//! NVML of 535.274.02 and 550.163.01 makes of each one of them, both the same (`nvmlGpmMetricsGet`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::Driver;
use super::load::Busy;
use super::memory::{Buffer, Of};
use super::server::ObjectKind;
use crate::memory::Memory;

pub(super) const CLASS: &str = "NV_COUNTER_COLLECTION_UNIT";
/// The upper half of the numbers of its commands.
pub(super) const COMMANDS: u32 = 0xcbca;

/// CCU_GPU_SHARED_BUFFER_SIZE_MAX: a time, the counters, the same time, and which instance they are of.
pub(super) const BYTES: u64 = BLOCK + 17;
/// CCU_PER_GPU_COUNTER_Q_SIZE.
pub(super) const BLOCK: u64 = 0x4000;
const HEAD: u64 = 0;
const TAIL: u64 = 8 + BLOCK;
const INSTANCE: u64 = TAIL + 8;
/// CCU_MIG_INVALID_SWIZZID.
const NO_INSTANCE: u8 = 0xff;
/// A time at one end alone, while counters change: programs read again.
const IN_PROGRESS: u64 = u64::MAX;

/// Clocks that passed: of shader cores, and of the engines. Both are told in nanoseconds, for all is a part of them.
const CLOCKS: [u64; 2] = [0, 80];
/// Clocks in which shader cores worked, and the first engine of graphics.
const WORKED: [u64; 2] = [2, 736];
/// What was read of the memory; what was written is the next but one, and NVML adds both.
const MOVED: u64 = 66;
/// How far that counts in a thousand clocks of the memory that is busy all the time: NVML divides by it.
const MOVED_IN_1000_CLOCKS: u128 = 5905;

/// What went over the bus: what the GPU read of the system's memory, and what it wrote there.
const READ: u64 = 130;
const WRITTEN: u64 = 132;
/// How far these count in 64 KiB: NVML takes one in a ns for 500,000 MiB in a second.
const COUNTED_IN_64_KIB: u128 = 125;

/// What the counters of one GPU were when they were written, and after how much time and work.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    time: u64,
    done: Busy,
    /// Never more than the time in which it was done.
    told: Busy,
}

/// All counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    written: BTreeMap<usize, Written>,
    /// GPUs whose stream a program has enabled. No source says whether firmware waits for that; here it does not.
    streams: BTreeSet<usize>,
}

impl Counters {
    pub(super) fn streams(&self, gpu: usize) -> bool {
        self.streams.contains(&gpu)
    }

    pub(super) fn set_stream(&mut self, gpu: usize, is_on: bool) {
        match is_on {
            true => self.streams.insert(gpu),
            false => self.streams.remove(&gpu),
        };
    }
}

impl Written {
    /// The same later, when all that was ever done is so much.
    fn later(self, time: u64, done: Busy) -> Self {
        let most = Duration::from_nanos(time.saturating_sub(self.time));
        let new = |now: Duration, before: Duration| now.saturating_sub(before).min(most);
        let mut told = self.told;
        told.add(Busy {
            memory: new(done.memory, self.done.memory),
            graphics: new(done.graphics, self.done.graphics),
        });
        Self { time, done, told }
    }
}

/// Whether it is memory that shows counters.
pub(super) fn is_of_counters(object: &ObjectKind) -> bool {
    matches!(object, ObjectKind::Memory(buffer) if buffer.of == Of::Counters)
}

impl Driver {
    /// Writes what a GPU has done until now.
    pub(super) fn write_counters(&mut self, buffer: &Buffer) {
        let Some(gpu) = self.gpus.get(buffer.gpu) else { return };
        let (time, done) = (self.clock.gpu(), gpu.accounts.done());
        let bytes = [(READ, gpu.traffic.read), (WRITTEN, gpu.traffic.written)];
        let megahertz = self.number_of(buffer.gpu, "clocks.memory.max").unwrap_or(0);
        let written = self.counters.written.entry(buffer.gpu).or_default();
        *written = written.later(time, done);
        if let Some(memory) = buffer.memory() {
            write(memory, *written, u128::try_from(megahertz).unwrap_or(0), bytes);
        }
    }
}

/// Writes counters so that nobody takes those of two times for those of one.
fn write(memory: &Memory, written: Written, megahertz: u128, bytes: [(u64, u64); 2]) {
    let put = |at: u64, value: u64| memory.put(at, &value.to_le_bytes());
    let counter = |number: u64, value: u64| put(8 + number * 8, value);
    put(HEAD, IN_PROGRESS);
    fence(Ordering::SeqCst);
    let moved = written.told.memory.as_nanos() * megahertz * MOVED_IN_1000_CLOCKS / 1_000_000;
    CLOCKS.iter().for_each(|number| _ = counter(*number, written.time));
    let worked = written.told.graphics.as_nanos() as u64;
    WORKED.iter().for_each(|number| _ = counter(*number, worked));
    counter(MOVED, moved as u64);
    for (number, bytes) in bytes {
        counter(number, ((u128::from(bytes) * COUNTED_IN_64_KIB) >> 16) as u64);
    }
    memory.put(INSTANCE, &[NO_INSTANCE]);
    put(TAIL, written.time);
    fence(Ordering::SeqCst);
    put(HEAD, written.time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_work_is_told_than_there_was_time() {
        let busy = |memory, graphics| Busy {
            memory: Duration::from_nanos(memory),
            graphics: Duration::from_nanos(graphics),
        };
        let first = Written::default().later(1000, busy(200, 900));
        assert_eq!(first.told, busy(200, 900));
        let second = first.later(1100, busy(250, 1900));
        assert_eq!(second.told, busy(250, 1000));
        // What was too much is not told later, and a card that was reset begins again.
        assert_eq!(second.later(1500, busy(250, 1900)).told, busy(250, 1000));
        assert_eq!(second.later(1500, busy(0, 0)).later(1600, busy(0, 50)).told, busy(250, 1050));
    }
}
