//! Two files as a pair. Of an open warp it keeps a few places to read on from, however long it is.

use std::ops::Range;

use nvabi_trace::collect::{About, Collector};
use nvabi_trace::diff::matched_launches;
use nvabi_trace::report::{self, Source};
use nvabi_trace::{Event, Events, Options, Trace, Warp, diff_warp};

use super::pair::{Compared, Pair, Side, WarpId};

/// Places of a warp that are kept.
const PLACES: usize = 16;
/// Events between them, at first.
const APART: u64 = 1 << 12;

pub(crate) struct Traces<'a> {
    a: &'a Trace,
    b: &'a Trace,
    options: &'a Options,
    launches: Vec<Launch<'a>>,
    open: Option<(WarpId, Reader<'a>, Reader<'a>)>,
}

/// A launch that both have.
struct Launch<'a> {
    a: usize,
    b: usize,
    kernel: &'a str,
    /// Warps of the launches before it.
    first: usize,
    warps: usize,
    /// Of so many warps one is recorded.
    every: u32,
}

impl<'a> Traces<'a> {
    pub(crate) fn new(a: &'a Trace, b: &'a Trace, options: &'a Options) -> Self {
        let (mut launches, mut first) = (Vec::new(), 0);
        for (at_a, at_b) in matched_launches(a, b) {
            let (Some(one), Some(other)) = (a.launches().get(at_a), b.launches().get(at_b)) else {
                continue;
            };
            let every = one.sample_every.max(1);
            let warps = one.warps.min(other.warps).div_ceil(every) as usize;
            launches.push(Launch { a: at_a, b: at_b, kernel: &one.kernel, first, warps, every });
            first += warps;
        }
        Self { a, b, options, launches, open: None }
    }

    fn open(&mut self, id: WarpId) -> Option<&mut (WarpId, Reader<'a>, Reader<'a>)> {
        if self.open.as_ref().is_none_or(|(open, ..)| *open != id) {
            let launch = self.launches.get(id.launch as usize)?;
            let reader = |trace: &'a Trace, at| Reader::new(trace.warp(at, id.warp));
            self.open = Some((id, reader(self.a, launch.a), reader(self.b, launch.b)));
        }
        self.open.as_mut()
    }
}

impl Pair for Traces<'_> {
    fn warps(&self) -> usize {
        self.launches.last().map_or(0, |launch| launch.first + launch.warps)
    }

    fn warp(&self, number: usize) -> WarpId {
        let at = self.launches.partition_point(|launch| launch.first + launch.warps <= number);
        let launch = self.launches.get(at);
        let inner = launch.map_or(0, |launch| (number - launch.first) as u32 * launch.every);
        WarpId { launch: at as u32, warp: inner }
    }

    fn number(&self, WarpId { launch, warp }: WarpId) -> Option<usize> {
        let launch = self.launches.get(launch as usize)?;
        let inner = (warp / launch.every) as usize;
        (inner < launch.warps).then_some(launch.first + inner)
    }

    fn kernel(&self, launch: u32) -> &str {
        self.launches.get(launch as usize).map_or("", |launch| launch.kernel)
    }

    fn compare(&mut self, id: WarpId) -> Result<Compared, String> {
        let options = self.options;
        let launches = (0..=id.launch).map(|_| (unnamed(), 0)).collect();
        let Some((_, a, b)) = self.open(id) else { return Ok(Compared::default()) };
        let mut collector = Collector::new(options.limit, launches);
        diff_warp(a.warp.as_ref(), b.warp.as_ref(), id.launch, options, &mut collector)
            .map_err(|error| error.to_string())?;
        let report = collector.finish(About::default(), |_| None);
        Ok(Compared {
            events_a: a.len(),
            events_b: b.len(),
            findings: report.findings,
            total: report.total_findings,
        })
    }

    fn events(&mut self, side: Side, id: WarpId, range: Range<u64>) -> Result<Vec<Event>, String> {
        let sites = &self.options.sites;
        let Some((_, a, b)) = self.open(id) else { return Ok(Vec::new()) };
        if side == Side::B {
            return b.events(range);
        }
        let mut events = a.events(range)?;
        // A's sites are shown as B has them.
        for event in &mut events {
            event.site = sites.get(&event.site).copied().unwrap_or(event.site);
        }
        Ok(events)
    }

    fn source(&self, site: u64) -> Option<Source> {
        let (id, ..) = self.open.as_ref()?;
        let launch = self.launches.get(id.launch as usize)?;
        self.a.source(launch.a, site).or_else(|| self.b.source(launch.b, site))
    }
}

fn unnamed() -> report::Launch {
    report::Launch {
        kernel: String::new(),
        order: 0,
        grid: [1; 3],
        block: [1; 3],
        warps: 0,
        warps_divergent: 0,
        events_a: 0,
        events_b: 0,
        map: None,
    }
}

/// The events of a warp, from any of them on.
struct Reader<'a> {
    warp: Option<Warp<'a>>,
    /// Where reading can go on, by index.
    places: Vec<(u64, Events<'a>)>,
    apart: u64,
    /// Where the last read ended.
    last: Option<(u64, Events<'a>)>,
}

impl<'a> Reader<'a> {
    fn new(warp: Option<Warp<'a>>) -> Self {
        let places = warp.iter().map(|warp| (0, warp.events())).collect();
        Self { warp, places, apart: APART, last: None }
    }

    fn len(&self) -> u64 {
        self.warp.as_ref().map_or(0, Warp::len)
    }

    fn events(&mut self, range: Range<u64>) -> Result<Vec<Event>, String> {
        let Some((mut index, mut events)) = self.nearest(range.start) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        while index < range.end {
            if index % self.apart == 0 {
                self.keep(index, &events);
            }
            let Some(event) = events.next() else { break };
            let event = event.map_err(|error| error.to_string())?;
            if index >= range.start {
                found.push(event);
            }
            index += 1;
        }
        self.last = Some((index, events));
        Ok(found)
    }

    /// The last place at an event or before it.
    fn nearest(&self, index: u64) -> Option<(u64, Events<'a>)> {
        let places = self.places.iter().chain(&self.last);
        places.filter(|(at, _)| *at <= index).max_by_key(|(at, _)| *at).cloned()
    }

    /// Keeps a place; when there are too many, every other goes.
    fn keep(&mut self, index: u64, events: &Events<'a>) {
        if self.places.last().is_some_and(|(last, _)| *last >= index) {
            return;
        }
        self.places.push((index, events.clone()));
        if self.places.len() > PLACES {
            self.apart *= 2;
            let apart = self.apart;
            self.places.retain(|(at, _)| at % apart == 0);
        }
    }
}
