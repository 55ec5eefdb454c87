//! How busy the parts of a GPU are, and who keeps them busy, as NVML and nvidia-smi show it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

/// What a share is told of: NVML speaks of samples of 1/6 s to 1 s.
const PERIOD: Duration = Duration::from_millis(200);
/// All of a period: shares are hundredths of a percent.
const WHOLE: u128 = 10_000;
/// How many periods are kept: no driver has room for more samples.
const KEPT: u64 = 100;

/// How long something was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) memory: Duration,
    pub(super) graphics: Duration,
}

impl Busy {
    /// A channel works with memory; those of graphics and compute keep that engine busy as well.
    pub(super) fn of(time: Duration, is_graphics: bool) -> Self {
        Self { memory: time, graphics: if is_graphics { time } else { Duration::ZERO } }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.memory += other.memory;
        self.graphics += other.graphics;
    }

    /// Its shares of some time, of memory and of graphics.
    pub(super) fn shares(self, of: Duration) -> Shares {
        let share =
            |busy: Duration| WHOLE.min(busy.as_nanos() * WHOLE / of.as_nanos().max(1)) as u32;
        Shares { memory: share(self.memory), graphics: share(self.graphics) }
    }
}

/// Hundredths of a percent of some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) memory: u32,
    pub(super) graphics: u32,
}

impl Shares {
    /// All of it.
    pub(super) const WHOLE: Self = Self { memory: WHOLE as u32, graphics: WHOLE as u32 };
}

/// What a program did, or nobody did, until some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// How long ago that is.
    pub(super) age: Duration,
    pub(super) process: Option<u32>,
    pub(super) shares: Shares,
}

/// How busy a GPU is.
#[derive(Debug)]
pub(super) struct Loads {
    /// Where the first period began: all are as long.
    since: Instant,
    /// What programs did in the periods in which any did something, by the numbers of both.
    periods: VecDeque<(u64, BTreeMap<u32, Busy>)>,
    /// How many of these are kept no longer.
    forgotten: u32,
}

impl Loads {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, periods: VecDeque::new(), forgotten: 0 }
    }

    fn period(&self, now: Instant) -> u64 {
        (now.saturating_duration_since(self.since).as_nanos() / PERIOD.as_nanos()) as u64
    }

    /// What a program did until now.
    pub(super) fn worked(&mut self, process: u32, busy: Busy, now: Instant) {
        if busy == Busy::default() {
            return;
        }
        let period = self.period(now);
        if self.periods.back().is_none_or(|(last, _)| *last < period) {
            let before = self.periods.len();
            self.periods.retain(|(number, _)| number + KEPT >= period);
            self.forgotten += (before - self.periods.len()) as u32;
            self.periods.push_back((period, BTreeMap::new()));
        }
        if let Some((_, works)) = self.periods.back_mut() {
            works.entry(process).or_default().add(busy);
        }
    }

    /// What programs did in a period.
    fn works(&self, period: u64) -> Option<&BTreeMap<u32, Busy>> {
        let found = self.periods.iter().find(|(number, _)| *number == period);
        found.map(|(_, works)| works)
    }

    /// The shares of the last whole period.
    pub(super) fn shares(&self, now: Instant) -> Shares {
        let last = self.period(now).checked_sub(1).and_then(|last| self.works(last));
        let mut all = Busy::default();
        last.into_iter().flat_map(BTreeMap::values).for_each(|busy| all.add(*busy));
        all.shares(PERIOD)
    }

    /// How long ago a GPU was busy: the times in which it is told to be so, which are whole periods, one late.
    pub(super) fn busy_ages(&self, now: Instant) -> Vec<Range<Duration>> {
        const NEXT: Duration = Duration::from_nanos(1);
        let ages = |number: &u64| {
            let begin = self.since + PERIOD * (*number as u32 + 1);
            let began = now.checked_duration_since(begin)?;
            let ended = now.checked_duration_since(begin + PERIOD);
            Some(ended.map_or(Duration::ZERO, |ended| ended + NEXT)..began + NEXT)
        };
        self.periods.iter().filter_map(|(number, _)| ages(number)).collect()
    }

    /// For how long a GPU was told to be busy until now.
    pub(super) fn busy_time(&self, now: Instant) -> Duration {
        let told = |(number, _): &(u64, _)| {
            let begin = self.since + PERIOD * (*number as u32 + 1);
            now.saturating_duration_since(begin).min(PERIOD)
        };
        PERIOD * self.forgotten + self.periods.iter().map(told).sum::<Duration>()
    }

    /// The last so many samples, the newest last. A sample is of one program: those of one period are told as if they
    /// had worked one after the other, as long as each other.
    pub(super) fn samples(&self, count: usize, now: Instant) -> Vec<Sample> {
        let period = self.period(now);
        let into = now.saturating_duration_since(self.since + PERIOD * period as u32);
        let mut samples = VecDeque::with_capacity(count);
        for back in 0..count as u32 {
            let works = period.checked_sub(u64::from(back) + 1).and_then(|at| self.works(at));
            let age = into + PERIOD * back;
            let none = (None, Busy::default());
            let works = works.into_iter().flatten().map(|(process, busy)| (Some(*process), *busy));
            let mut works: Vec<_> = works.collect();
            if works.is_empty() {
                works.push(none);
            }
            let part = PERIOD / works.len() as u32;
            for (at, (process, busy)) in works.into_iter().rev().enumerate() {
                let age = age + part * at as u32;
                samples.push_front(Sample { age, process, shares: busy.shares(part) });
            }
            if samples.len() >= count {
                break;
            }
        }
        samples.drain(..samples.len() - count.min(samples.len()));
        samples.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_share_is_that_of_the_last_whole_period() {
        let start = Instant::now();
        let mut loads = Loads::new(start);
        let shares = |loads: &Loads, at| {
            let Shares { memory, graphics } = loads.shares(start + ms(at));
            (memory, graphics)
        };
        loads.worked(1, Busy::of(ms(50), false), start + ms(60));
        loads.worked(2, Busy::of(ms(20), true), start + ms(120));
        assert_eq!(shares(&loads, 199), (0, 0));
        assert_eq!((shares(&loads, 200), shares(&loads, 399)), ((3500, 1000), (3500, 1000)));
        loads.worked(1, Busy::of(ms(0), true), start + ms(250));
        assert_eq!(shares(&loads, 390), (3500, 1000));
        assert_eq!((shares(&loads, 400), shares(&loads, 900)), ((0, 0), (0, 0)));
        // It is told to be busy from 200 ms to 400 ms.
        let busy =
            |at, age| loads.busy_ages(start + ms(at)).iter().any(|ages| ages.contains(&ms(age)));
        assert!(!busy(199, 0) && busy(200, 0) && !busy(200, 1) && busy(399, 0) && !busy(400, 0));
        assert!(!busy(900, 500) && busy(900, 501) && busy(900, 700) && !busy(900, 701));
        let time = |at| loads.busy_time(start + ms(at));
        assert_eq!([199, 230, 400, 900].map(time), [0, 30, 200, 200].map(ms));
        // A turn that began before its period counts as no more than all of it.
        loads.worked(1, Busy::of(ms(510), false), start + ms(1010));
        assert_eq!(shares(&loads, 1200), (10_000, 0));
    }

    #[test]
    fn a_sample_is_of_one_program() {
        let start = Instant::now();
        let mut loads = Loads::new(start);
        loads.worked(7, Busy::of(ms(50), true), start + ms(250));
        loads.worked(9, Busy::of(ms(80), false), start + ms(300));
        loads.worked(9, Busy::of(ms(200), true), start + ms(599));
        let sample = |age, process, memory, graphics| Sample {
            age: ms(age),
            process,
            shares: Shares { memory, graphics },
        };
        let expected = [
            sample(410, None, 0, 0),
            sample(310, Some(7), 5000, 5000),
            sample(210, Some(9), 8000, 0),
            sample(10, Some(9), 10_000, 10_000),
        ];
        let now = start + ms(610);
        assert_eq!(loads.samples(4, now), expected);
        assert_eq!(loads.samples(2, now), expected[2..]);
        // Before anything was done there is nothing; what is long ago is forgotten.
        let none = loads.samples(72, now);
        assert_eq!((none.len(), none[0].process), (72, None));
        loads.worked(7, Busy::of(ms(1), true), start + PERIOD * 200);
        assert_eq!(loads.periods.len(), 1);
        // But not that it was busy.
        assert_eq!(loads.busy_time(start + PERIOD * 202), PERIOD * 3);
    }
}
