//! What the clocks of a kernel count.

use std::time::Instant;

/// A counter that kernels read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Cycles of the multiprocessor.
    Clock,
    /// The GPU's nanoseconds.
    Timer,
}

/// Time that passes while a kernel runs, as a GPU counts it.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// A moment,
    pub start: Instant,
    /// and the nanoseconds that the GPU's timer had counted then.
    pub timer: u64,
    /// Cycles of a multiprocessor in a microsecond.
    pub megahertz: u64,
}

impl Time {
    /// What a counter says now.
    pub(crate) fn now(&self, counter: Counter) -> u64 {
        let nanoseconds = self.timer.wrapping_add(self.start.elapsed().as_nanos() as u64);
        match counter {
            Counter::Timer => nanoseconds,
            Counter::Clock => (u128::from(nanoseconds) * u128::from(self.megahertz) / 1000) as u64,
        }
    }
}
