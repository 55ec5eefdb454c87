//! How busy the parts of a GPU are, as NVML and nvidia-smi show it.

use std::time::{Duration, Instant};

/// What a share is told of: NVML speaks of samples of 1/6 s to 1 s.
const PERIOD: Duration = Duration::from_millis(200);
/// All of a period: shares are hundredths of a percent.
const WHOLE: u128 = 10_000;

/// How much of the last whole period something was done.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Where the period that is counted began.
    since: Instant,
    busy: Duration,
    /// The share of the period before it.
    last: u32,
}

impl Load {
    fn new(since: Instant) -> Self {
        Self { since, busy: Duration::ZERO, last: 0 }
    }

    /// As it is at a time: periods that are over are counted no more.
    fn at(self, now: Instant) -> Self {
        let passed = now.saturating_duration_since(self.since);
        if passed < PERIOD {
            return self;
        }
        let share = WHOLE.min(self.busy.as_nanos() * WHOLE / PERIOD.as_nanos());
        let last = if passed < 2 * PERIOD { share as u32 } else { 0 };
        let over = Duration::from_nanos((passed.as_nanos() % PERIOD.as_nanos()) as u64);
        Self { since: now.checked_sub(over).unwrap_or(now), busy: Duration::ZERO, last }
    }
}

/// How busy a GPU is.
#[derive(Debug)]
pub(super) struct Loads {
    memory: Load,
    graphics: Load,
}

impl Loads {
    pub(super) fn new(since: Instant) -> Self {
        Self { memory: Load::new(since), graphics: Load::new(since) }
    }

    /// A channel worked until now; those of graphics and compute keep that engine busy as well.
    pub(super) fn worked(&mut self, began: Instant, now: Instant, is_graphics: bool) {
        let of_graphics = is_graphics.then_some(&mut self.graphics);
        for load in [&mut self.memory].into_iter().chain(of_graphics) {
            *load = load.at(now);
            load.busy += now.saturating_duration_since(began);
        }
    }

    /// The share of the time that memory was used.
    pub(super) fn memory(&self, now: Instant) -> u32 {
        self.memory.at(now).last
    }

    /// The share of the time that the engine of graphics and compute worked.
    pub(super) fn graphics(&self, now: Instant) -> u32 {
        self.graphics.at(now).last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_last_whole_period() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut loads = Loads::new(start);
        loads.worked(after(10), after(60), false);
        loads.worked(after(100), after(120), true);
        assert_eq!((loads.memory(after(199)), loads.graphics(after(199))), (0, 0));
        assert_eq!((loads.memory(after(200)), loads.graphics(after(399))), (3500, 1000));
        loads.worked(after(250), after(250), true);
        assert_eq!((loads.memory(after(390)), loads.graphics(after(390))), (3500, 1000));
        assert_eq!((loads.memory(after(400)), loads.graphics(after(900))), (0, 0));
        // A turn that began before its period counts as no more than all of it.
        loads.worked(after(500), after(1010), false);
        assert_eq!(loads.memory(after(1200)), 10_000);
    }
}
