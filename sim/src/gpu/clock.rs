//! Time as the GPU counts it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nvabi_emu::Time;

/// A device has been up for a while: zero is no time that a client expects.
const UP_SINCE: u64 = 1_000_000_000;

/// The GPU's timer: nanoseconds.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// The GPU's timer.
    pub(crate) fn gpu(&self) -> u64 {
        UP_SINCE + self.start.elapsed().as_nanos() as u64
    }

    /// What kernels count that run so many cycles in a microsecond.
    pub(super) fn of_kernels(&self, megahertz: u64) -> Time {
        Time { start: self.start, timer: UP_SINCE, megahertz }
    }

    /// Nanoseconds since the epoch.
    pub(crate) fn unix() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
    }

    /// The counter of the processor, at 31.25 MHz as on Orin.
    pub(crate) fn counter(&self) -> u64 {
        self.gpu() / 32
    }
}
