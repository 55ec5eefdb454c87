//! Compares two traces: lockstep by site, and where the two part, a real alignment.
//!
//! ```text
//! launches   which launch goes with which
//! pairs      their warps side by side, in batches; threads take them from there
//! side       one warp of one trace; alike regions cost a comparison of memory
//! warp       lockstep, and what only one of the two has
//! loops      which of them are rounds that one of the two made more
//! align      where two sequences go on alike; knows only tokens
//! ```

mod align;
mod launches;
mod loops;
mod pairs;
mod side;
mod sites;
mod step;
mod warp;

use std::sync::{Mutex, PoisonError};
use std::thread;

use rustc_hash::FxHashMap;

use self::launches::{Pair, incompatible, matched};
use self::pairs::{Batch, Pairs};
use self::side::Side;
pub use self::sites::site_map;
use self::warp::{Divergence, Walk};
use super::classify::classify;
use super::collect::{About, Collector, FindingKey};
use super::error::{Error, Problem};
use super::file::{Launch, Trace, Warp};
use super::input::Pages;
use super::report::{self, Finding, Note, Report};

/// What a comparison looks at, and how much of it is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// Compare values too, not only the ways that warps went.
    pub values: bool,
    /// Steps before a finding that are kept with it; 1024 at most.
    pub history: usize,
    /// Findings that are kept; all are counted.
    pub limit: usize,
    /// Compare launches of other grids, by the warps that both have.
    pub allow_different_grids: bool,
    /// Keys that sites of A have in B.
    pub sites: FxHashMap<u64, u64>,
    /// Threads; without this, one for each processor, four at most.
    pub threads: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            values: false,
            history: 0,
            limit: 1000,
            allow_different_grids: false,
            sites: FxHashMap::default(),
            threads: None,
        }
    }
}

/// Threads that a comparison takes: each holds windows of both files, and memory is bounded.
const THREADS: usize = 4;

/// Compares two traces.
///
/// # Errors
///
/// When they cannot be compared, because they are of other launches or one of gddbg v1 is broken.
/// Damage in nvtrace v2 is noted in the report instead, and what can be read is compared.
pub fn diff(a: &Trace, b: &Trace, options: &Options) -> Result<Report, Error> {
    let (pairs, mut notes) = matched(a, b);
    if pairs.is_empty() && (!a.launches().is_empty() || !b.launches().is_empty()) {
        let name = |trace: &Trace| match trace.launches() {
            [] => "no launch".to_owned(),
            [only] => only.kernel.clone(),
            [first, ..] => format!("{} and others", first.kernel),
        };
        let why = format!("the traces have no launch in common: {}, and {}", name(a), name(b));
        return Err(Error::new(b.path(), 0, Problem::Incompatible(why)));
    }
    for pair in &pairs {
        let (x, y) = (launch(a, pair.a), launch(b, pair.b));
        if let Some(why) = incompatible(x, y, options.allow_different_grids) {
            return Err(Error::new(b.path(), 0, Problem::Incompatible(why)));
        }
    }
    for (name, trace) in [('a', a), ('b', b)] {
        notes.extend(trace.damage().iter().map(|error| damaged(name, error)));
    }
    let described = pairs.iter().map(|pair| described(a, b, pair)).collect();
    // Warps are counted as they are compared.
    let mut collector = Collector::new(options.limit, described).empty();
    notes.into_iter().for_each(|note| collector.note(note));
    for (at, pair) in pairs.iter().enumerate() {
        let words = options.sites.is_empty() && same_sites(a.keys(pair.a), b.keys(pair.b));
        let job = Job { a, b, pair: *pair, launch: at as u32, options, words };
        collector = job.run(collector)?;
    }
    let about = About {
        a: a.path().display().to_string(),
        b: b.path().display().to_string(),
        values_compared: options.values,
    };
    // A site is A's where A knows it.
    Ok(collector.finish(about, |site| {
        let of = |trace: &Trace, at| trace.source(at, site);
        pairs.iter().find_map(|pair| of(a, pair.a).or_else(|| of(b, pair.b)))
    }))
}

/// The launches of A and of B that belong together, by kernel and order.
pub fn matched_launches(a: &Trace, b: &Trace) -> Vec<(usize, usize)> {
    matched(a, b).0.into_iter().map(|pair| (pair.a, pair.b)).collect()
}

/// Compares one warp of two traces; findings go to the collector, as those of launch `launch` of it.
///
/// # Errors
///
/// When events of nvtrace v2 are damaged.
pub fn diff_warp<'a>(
    a: Option<&Warp<'a>>,
    b: Option<&Warp<'a>>,
    launch: u32,
    options: &'a Options,
    collector: &mut Collector,
) -> Result<(), Error> {
    compare(a, b, launch, options, false, &mut Default::default(), collector)
}

/// What a thread has read of both files last.
type Read = [Pages; 2];

/// As [`diff_warp`]; `words` says that the same words of nvtrace v2 are the same events in both.
fn compare<'a>(
    a: Option<&Warp<'a>>,
    b: Option<&Warp<'a>>,
    launch: u32,
    options: &'a Options,
    words: bool,
    read: &mut Read,
    collector: &mut Collector,
) -> Result<(), Error> {
    let warp = a.or(b).map_or(0, Warp::number);
    let sites = Some(&options.sites).filter(|sites| !sites.is_empty());
    let [read_a, read_b] = std::mem::take(read);
    let (mut a, mut b) = (Side::new(a, sites, read_a), Side::new(b, None, read_b));
    let walked = Walk::new(&mut a, &mut b, options.values, words).run(|walk, found| {
        let Divergence { kind, site, index_a, .. } = found;
        let place = FindingKey { launch, warp, kind, site, index_a };
        let history = match collector.keeps(&place) {
            true => walk.history(options.history)?,
            false => Vec::new(),
        };
        collector.add(place, || finding(place, found, history));
        Ok(())
    });
    *read = [a.into_pages(), b.into_pages()];
    walked
}

fn finding(place: FindingKey, found: Divergence, history: Vec<report::Step>) -> Finding {
    let mut finding = Finding {
        lanes: found.lanes,
        count: found.count,
        resync_a: found.resync.map(|(a, _)| a),
        resync_b: found.resync.map(|(_, b)| b),
        event_a: found.event_a,
        event_b: found.event_b,
        class: found.class,
        history,
        ..Finding::at(place, found.index_b)
    };
    finding.class = finding.class.or_else(|| classify(&finding));
    finding
}

fn launch(trace: &Trace, at: usize) -> &Launch {
    static NONE: std::sync::OnceLock<Launch> = std::sync::OnceLock::new();
    trace.launches().get(at).unwrap_or_else(|| NONE.get_or_init(Launch::default))
}

fn damaged(trace: char, error: &Error) -> Note {
    Note::Damaged { trace, offset: error.offset(), what: error.problem().to_string() }
}

/// A launch as the report has it, and about how many events its longest warp has.
fn described(a: &Trace, b: &Trace, pair: &Pair) -> (report::Launch, u64) {
    let (x, y) = (launch(a, pair.a), launch(b, pair.b));
    let longest = |launch: &Launch| match (launch.words_per_warp, launch.events) {
        (0, Some(events)) => events.saturating_mul(2) / u64::from(launch.warps.max(1)),
        (0, None) => 4096,
        (words, _) if launch.events.is_none() => u64::from(words / 2),
        (words, _) => u64::from(words),
    };
    let described = report::Launch {
        kernel: x.kernel.clone(),
        order: pair.order,
        grid: x.grid,
        block: x.block,
        warps: u64::from(x.warps.max(y.warps)),
        warps_divergent: 0,
        events_a: 0,
        events_b: 0,
        map: None,
    };
    (described, longest(x).max(longest(y)))
}

/// Whether nothing can be said of two traces after an error in one of them. Damage of nvtrace v2 is noted,
/// and what can be read is compared.
fn ends(trace: &Trace, error: &Error) -> bool {
    trace.version() == 1 || error.problem().is_unread()
}

/// Two launches that are to be compared.
#[derive(Clone, Copy)]
struct Job<'a> {
    a: &'a Trace,
    b: &'a Trace,
    pair: Pair,
    launch: u32,
    options: &'a Options,
    /// Whether sites have the same indexes in both, so that the same words are the same events.
    words: bool,
}

fn same_sites(a: &[Option<u64>], b: &[Option<u64>]) -> bool {
    a == b && a.iter().all(Option::is_some)
}

/// What several threads share.
struct Work<'a> {
    pairs: Pairs<'a>,
    failed: Option<Error>,
}

impl<'a> Job<'a> {
    fn run(&self, mut collector: Collector) -> Result<Collector, Error> {
        let (x, y) = (launch(self.a, self.pair.a), launch(self.b, self.pair.b));
        let other_grid = (x.grid, x.block, x.warps) != (y.grid, y.block, y.warps);
        if other_grid {
            let (warps_a, warps_b) = (u64::from(x.warps), u64::from(y.warps));
            collector.note(Note::OtherGrid { launch: self.launch, warps_a, warps_b });
        }
        let (warps_a, warps_b) = (self.a.warps(self.pair.a), self.b.warps(self.pair.b));
        let pairs = Pairs::new(warps_a, warps_b, other_grid);
        let work = Mutex::new(Work { pairs, failed: None });
        let processors =
            thread::available_parallelism().map_or(1, |count| count.get().min(THREADS));
        let threads = self.options.threads.unwrap_or(processors).max(1);
        let empty = collector.empty();
        let parts: Vec<Collector> = thread::scope(|scope| {
            let started: Vec<_> = (1..threads)
                .map(|_| {
                    let part = empty.clone();
                    scope.spawn(|| self.work(&work, part))
                })
                .collect();
            let own = self.work(&work, empty.clone());
            let others = started.into_iter().filter_map(|thread| thread.join().ok());
            std::iter::once(own).chain(others).collect()
        });
        parts.into_iter().for_each(|part| collector.absorb(part));
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        match work.failed {
            Some(error) => Err(error),
            None => Ok(collector),
        }
    }

    /// Takes batches until there are no more.
    fn work(&self, work: &Mutex<Work<'a>>, mut collector: Collector) -> Collector {
        let mut read = Read::default();
        loop {
            let mut shared = work.lock().unwrap_or_else(PoisonError::into_inner);
            if shared.failed.is_some() {
                return collector;
            }
            let Some(mut batch) = shared.pairs.batch() else { return collector };
            for (is_a, error) in std::mem::take(&mut batch.problems) {
                let trace = if is_a { self.a } else { self.b };
                if ends(trace, &error) {
                    shared.failed = Some(error);
                    return collector;
                }
                collector.note(damaged(if is_a { 'a' } else { 'b' }, &error));
            }
            drop(shared);
            if let Err(error) = self.batch(&batch, &mut read, &mut collector) {
                work.lock().unwrap_or_else(PoisonError::into_inner).failed = Some(error);
                return collector;
            }
        }
    }

    fn batch(
        &self,
        batch: &Batch<'a>,
        read: &mut Read,
        collector: &mut Collector,
    ) -> Result<(), Error> {
        collector.count_events(self.launch, batch.events.0, batch.events.1);
        // A warp alone is compared piece by piece anyway.
        let tries = self.options.sites.is_empty() && batch.pairs.len() > 1;
        let same = tries && self.same_bytes(batch, read)?;
        for (a, b) in &batch.pairs {
            let number = a.as_ref().or(b.as_ref()).map_or(0, Warp::number);
            collector.count_warp(self.launch);
            let dropped = |warp: &Option<Warp<'_>>| warp.as_ref().map_or(0, Warp::dropped);
            let (lost_a, lost_b) = (dropped(a), dropped(b));
            if lost_a > 0 || lost_b > 0 {
                collector.overflow(self.launch, number, lost_a, lost_b);
            }
            if !same {
                let (a, b) = (a.as_ref(), b.as_ref());
                let (launch, options) = (self.launch, self.options);
                if let Err(error) = compare(a, b, launch, options, self.words, read, collector) {
                    let is_a = error.path() == self.a.path();
                    if ends(if is_a { self.a } else { self.b }, &error) {
                        return Err(error);
                    }
                    collector.note(damaged(if is_a { 'a' } else { 'b' }, &error));
                }
            }
        }
        Ok(())
    }

    /// Whether a whole batch is the same in both files, and no event of it is of an unknown kind.
    fn same_bytes(&self, batch: &Batch<'a>, read: &mut Read) -> Result<bool, Error> {
        let (Some((a, b)), Some(x), Some(y)) = (batch.ranges(), self.a.v1(), self.b.v1()) else {
            return Ok(false);
        };
        let len = a.end - a.start;
        // In longer batches most is room that warps did not use.
        if b.end - b.start != len || len > 4 << 20 {
            return Ok(false);
        }
        let [read_a, read_b] = read;
        let mut at = 0;
        while at < len {
            let left = (len - at) as usize;
            let bytes_a = read_a.get(x.input(), a.start + at)?;
            let bytes_b = read_b.get(y.input(), b.start + at)?;
            let part = bytes_a.len().min(bytes_b.len()).min(left);
            if bytes_a[..part] != bytes_b[..part]
                || batch.has_unknown_kinds(a.start + at, &bytes_a[..part])
            {
                return Ok(false);
            }
            at += part as u64;
        }
        Ok(true)
    }
}
