//! What a GPU has drawn since its machine is up, by the time in which it was busy and what its profile says that it
//! draws then and at rest; and how long it was too hot.

use std::time::{Duration, Instant};

use super::Driver;
use super::load::Shares;

/// What a counter shows in mJ is counted in mW for so many nanoseconds.
const MILLIJOULE: u128 = 1_000_000_000;

/// A counter, as it was read at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meter {
    at: Instant,
    /// How long the GPU had been busy.
    busy: Duration,
    drawn: u128,
    hot: Duration,
}

/// What counts until a counter is read again.
#[derive(Debug, Clone, Copy)]
struct Rates {
    /// In mW.
    rest: u32,
    busy: u32,
    is_hot: bool,
}

impl Meter {
    pub(super) fn new(at: Instant) -> Self {
        Self { at, busy: Duration::ZERO, drawn: 0, hot: Duration::ZERO }
    }

    /// The same later, when the GPU had been busy for so long.
    fn later(self, at: Instant, busy: Duration, rates: Rates) -> Self {
        let time = at.saturating_duration_since(self.at);
        let worked = busy.saturating_sub(self.busy).min(time);
        let drew = |power: u32, time: Duration| u128::from(power) * time.as_nanos();
        let drawn = self.drawn + drew(rates.busy, worked) + drew(rates.rest, time - worked);
        let hot = if rates.is_hot { self.hot + time } else { self.hot };
        Self { at, busy, drawn, hot }
    }
}

impl Driver {
    /// What a GPU draws in mW when it is so busy.
    pub(super) fn power(&self, gpu: usize, shares: Shares) -> u32 {
        let power = self.number_at(gpu, "power.now", Some(shares));
        power.and_then(|power| u32::try_from(power).ok()).unwrap_or(0)
    }

    fn meter(&self, gpu: usize) -> Option<Meter> {
        let now = Instant::now();
        let [rest, busy] = [Shares::default(), Shares::WHOLE].map(|it| self.power(gpu, it));
        // No work makes a card as hot as that.
        let is_hot = self.number_at(gpu, "thermal.is_too_hot", Some(Shares::default()));
        let rates = Rates { rest, busy, is_hot: is_hot.is_some_and(|is_hot| is_hot != 0) };
        Some(self.gpus.get(gpu)?.meter.later(now, self.busy_time(gpu, now), rates))
    }

    /// Counts until now, before what counts changes.
    pub(super) fn read_meter(&mut self, gpu: usize) {
        if let (Some(meter), Some(own)) = (self.meter(gpu), self.gpus.get_mut(gpu)) {
            own.meter = meter;
        }
    }

    /// What a GPU has drawn, in mJ.
    pub(super) fn energy(&self, gpu: usize) -> u64 {
        self.meter(gpu).map_or(0, |meter| (meter.drawn / MILLIJOULE) as u64)
    }

    /// For how long it was too hot, in ns.
    pub(super) fn heat_time(&self, gpu: usize) -> u64 {
        self.meter(gpu).map_or(0, |meter| meter.hot.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fault::Faults;
    use crate::log::Log;
    use crate::profile::{Datum, Profile};
    use crate::rm::inject::Injection;
    use crate::rm::interface::Interface;
    use crate::topology::Spots;

    fn driver(card: &str) -> Driver {
        let profile = Profile::load(card).unwrap_or_else(|_| unreachable!());
        let (interface, log) = (Arc::new(Interface::default()), Log::new(Faults::default()));
        let gpus = [Arc::new(profile)];
        Driver::new(interface, "550.163.01".to_owned(), &gpus, Spots::apart(1), log)
    }

    #[test]
    fn a_card_that_is_too_hot_is_slow() {
        let mut driver = driver("a100");
        let clock =
            |driver: &Driver| driver.number_at(0, "clocks.graphics.now", Some(Shares::WHOLE));
        let mut seen = Vec::new();
        for degrees in [88, 89, 31] {
            let temperature = ("state.temperature".to_owned(), Datum::Number(degrees));
            driver.change(0, vec![temperature]);
            seen.push((clock(&driver), driver.heat_time(0) > 0));
        }
        // The last time it was hot is counted when that ends.
        assert_eq!(seen[0], (Some(1410), false));
        assert_eq!((seen[1].0, seen[2]), (Some(705), (Some(1410), true)));
    }

    #[test]
    fn a_busy_card_keeps_the_temperature_it_was_given() {
        let mut driver = driver("a100");
        let temperature = |driver: &Driver| driver.number_at(0, "thermal.now", Some(Shares::WHOLE));
        assert_eq!(temperature(&driver), Some(58));
        for degrees in [45, 31, 88] {
            assert!(driver.happen(0, Injection::Temperature(degrees)).is_ok());
            assert_eq!(temperature(&driver), Some(degrees.into()));
        }
    }

    #[test]
    fn work_and_heat_are_counted_by_their_time() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let shown = |meter: Meter| meter.drawn / MILLIJOULE;
        let rates = Rates { rest: 20_000, busy: 300_000, is_hot: false };
        let first = Meter::new(start).later(start + seconds(10), seconds(4), rates);
        assert_eq!(shown(first), 6 * 20_000 + 4 * 300_000);
        // What it draws from then on does not change what it drew.
        let rates = Rates { busy: 100_000, is_hot: true, ..rates };
        let second = first.later(start + seconds(12), seconds(5), rates);
        assert_eq!(shown(second), shown(first) + 20_000 + 100_000);
        // No more work than time.
        let rates = Rates { is_hot: false, ..rates };
        let third = second.later(start + seconds(13), seconds(90), rates);
        assert_eq!(shown(third), shown(second) + 100_000);
        assert_eq!([first, second, third].map(|it| it.hot), [0, 2, 2].map(seconds));
        assert_eq!(shown(third.later(start, seconds(90), rates)), shown(third));
    }
}
