//! From one format to the other, and several files to one.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::abi::r2 as abi;
use super::error::{Error, Problem};
use super::event::Event;
use super::file::{Found, Launch, Trace, Warp};
use super::records::V1Event;
use super::v1::{V1Header, V1Writer};
use super::v2::{SiteRow, V2Writer};

/// Told of warps that cannot be read, up to `u32::MAX` where nobody knows the last, and why not.
pub type Lost<'a> = dyn FnMut(RangeInclusive<u32>, Error) + 'a;

/// Writes a trace as nvtrace v2. Of one that is damaged, what can be read is written; the rest is lost
/// in what is written too, so that nobody takes it for whole.
///
/// # Errors
///
/// When gddbg v1 is broken, when there is something that v2 cannot say, and those of the writer.
pub fn to_v2<W: Write>(
    trace: &Trace,
    out: &mut V2Writer<W>,
    lost: &mut Lost<'_>,
) -> Result<(), Error> {
    Merge::new(out, lost).add(trace, None, Events::OfWarps)
}

/// Writes a trace as nvtrace v2 without its events: launches, warps, what these lost, and the sites. Who
/// keeps the events elsewhere puts both together by [`filled`].
///
/// # Errors
///
/// As [`to_v2`].
pub fn frame<W: Write>(
    trace: &Trace,
    out: &mut V2Writer<W>,
    lost: &mut Lost<'_>,
) -> Result<(), Error> {
    Merge::new(out, lost).add(trace, None, Events::Nowhere)
}

/// Writes a trace as nvtrace v2 of its [`frame`] and its events: all its launches, or one.
///
/// # Errors
///
/// As [`to_v2`], those of the source, and when it has an event of a site that the frame has not.
pub fn filled<W: Write>(
    frame: &Trace,
    launch: Option<usize>,
    events: &mut dyn EventSource,
    out: &mut V2Writer<W>,
    lost: &mut Lost<'_>,
) -> Result<(), Error> {
    Merge { launch, ..Merge::new(out, lost) }.add(frame, None, Events::Of(events))
}

/// Events that are kept apart from their [`frame`].
pub trait EventSource {
    /// The next event of a warp; `None` at its end. Warps are asked for in ascending order, launch by launch.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    fn next_of(&mut self, launch: usize, warp: u32) -> Result<Option<Event>, String>;
}

/// Where the events of warps come from.
enum Events<'a> {
    /// The warps themselves have them.
    OfWarps,
    /// There shall be none.
    Nowhere,
    Of(&'a mut dyn EventSource),
}

impl Events<'_> {
    /// Hands on those of a warp; says whether there are any that could not be read.
    fn each(
        &mut self,
        path: &Path,
        launch: usize,
        warp: &Warp<'_>,
        mut write: impl FnMut(&Event) -> Result<(), Error>,
    ) -> Result<Option<Error>, Error> {
        match self {
            Self::Nowhere => {}
            Self::OfWarps => {
                for event in warp.known_events() {
                    match event {
                        Ok(event) => write(&event)?,
                        Err(error) => return Ok(Some(error)),
                    }
                }
            }
            Self::Of(source) => {
                let failed = |why| Error::new(path, 0, Problem::Unwritable(why));
                while let Some(event) = source.next_of(launch, warp.number()).map_err(failed)? {
                    write(&event)?;
                }
            }
        }
        Ok(None)
    }
}

/// Writes traces into one as nvtrace v2: each becomes a session of its own, or several where it is one
/// of several already.
///
/// # Errors
///
/// As [`to_v2`].
pub fn merge<W: Write>(
    traces: &[Trace],
    out: &mut V2Writer<W>,
    lost: &mut Lost<'_>,
) -> Result<(), Error> {
    let mut merge = Merge::new(out, lost);
    let mut session = 0;
    for trace in traces {
        merge.add(trace, Some(session), Events::OfWarps)?;
        let last = trace.launches().iter().map(|launch| launch.session).max().unwrap_or(0);
        let next = last.checked_add(1).and_then(|sessions| sessions.checked_add(session));
        session = next.ok_or_else(|| too_many_sessions(trace.path()))?;
    }
    Ok(())
}

struct Merge<'a, 'b, W> {
    out: &'a mut V2Writer<W>,
    lost: &'a mut Lost<'b>,
    modules: u32,
    /// The only launch that is written.
    launch: Option<usize>,
}

impl<'a, 'b, W: Write> Merge<'a, 'b, W> {
    fn new(out: &'a mut V2Writer<W>, lost: &'a mut Lost<'b>) -> Self {
        Self { out, lost, modules: 0, launch: None }
    }

    fn add(
        &mut self,
        trace: &Trace,
        session: Option<u32>,
        mut events: Events<'_>,
    ) -> Result<(), Error> {
        let mut modules = BTreeMap::new();
        let only = self.launch;
        let chosen = |at: &usize| only.is_none_or(|launch| launch == *at);
        for (at, launch) in trace.launches().iter().enumerate().filter(|(at, _)| chosen(at)) {
            let failed = |error| unwritable(trace.path(), error);
            let sites = Indexes::of(trace, at)?;
            let known = trace.module(at).and_then(|module| modules.get(&module).copied());
            let module = known.unwrap_or(self.modules);
            if known.is_none() {
                // Before the events: a file that is cut off later names its sites all the same.
                self.out.sites(module, 0, &sites.rows, sites.v1).map_err(failed)?;
                self.modules += 1;
                modules.extend(trace.module(at).map(|number| (number, module)));
            }
            let session = launch.session.checked_add(session.unwrap_or(0));
            let session = session.ok_or_else(|| too_many_sessions(trace.path()))?;
            let launch = Launch { session, ..launch.clone() };
            self.out.launch(&launch, module).map_err(failed)?;
            let mut next = 0;
            for found in trace.warps(at) {
                let (first, last, error) = match found {
                    Found::Warp(warp) => {
                        next = warp.number().saturating_add(1);
                        match self.warp(trace, (at, &warp), &sites, &mut events)? {
                            Some(error) => (warp.number(), warp.number(), error),
                            None => continue,
                        }
                    }
                    Found::Lost { error, .. } if trace.version() == 1 => return Err(error),
                    // It may name the last warp that was read, as long as nobody knows better.
                    Found::Lost { first, last, error } => (first.max(next), last, error),
                };
                if first <= last {
                    self.out.lost(first, last).map_err(failed)?;
                    next = last.saturating_add(1);
                }
                (self.lost)(first..=last, error);
            }
            match launch.complete {
                true => self.out.end_launch().map_err(failed)?,
                false => self.out.abandon_launch().map_err(failed)?,
            }
        }
        Ok(())
    }

    /// Writes a warp, or, where it cannot be read to its end, as much of it as can, and says why not.
    fn warp(
        &mut self,
        trace: &Trace,
        (launch, warp): (usize, &Warp<'_>),
        sites: &Indexes,
        events: &mut Events<'_>,
    ) -> Result<Option<Error>, Error> {
        let failed = |error| unwritable(trace.path(), error);
        self.out.warp(warp.number()).map_err(failed)?;
        let unread = events.each(trace.path(), launch, warp, |event| {
            let Some(index) = sites.by_key.get(&event.site).copied() else {
                let changed = Problem::Damaged("an event is of no site of the table");
                return Err(Error::new(trace.path(), 0, changed));
            };
            // Zero stands for no value in v1.
            let value = event.value.filter(|value| !(sites.v1 && *value == 0));
            self.out.event(index, &Event { value, ..*event }).map_err(failed)
        })?;
        if unread.is_some() {
            return Ok(unread);
        }
        self.out.end_warp(warp.dropped()).map_err(failed)?;
        Ok(None)
    }
}

fn warp_of(found: Found<'_>) -> Result<Warp<'_>, Error> {
    match found {
        Found::Warp(warp) => Ok(warp),
        Found::Lost { error, .. } => Err(error),
    }
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => Error::new(path, 0, Problem::Unwritable(error.to_string())),
        _ => Error::io(path, error),
    }
}

fn too_many_sessions(path: &Path) -> Error {
    let why = "more sessions than a file can number".to_owned();
    Error::new(path, 0, Problem::Unwritable(why))
}

/// Which index each site has in a file.
struct Indexes {
    by_key: FxHashMap<u64, u32>,
    rows: Vec<SiteRow>,
    v1: bool,
}

impl Indexes {
    /// The table of a launch; one is made of its events where it has none, as in v1.
    fn of(trace: &Trace, launch: usize) -> Result<Self, Error> {
        let known = 0..trace.site_count(launch) as u32;
        let rows: Vec<SiteRow> =
            known.map(|index| trace.site(launch, index).unwrap_or_default()).collect();
        let mut by_key = FxHashMap::default();
        for (key, index) in trace.keys(launch).iter().zip(0..) {
            by_key.extend(key.map(|key| (key, index)));
        }
        let mut indexes = Self { by_key, rows, v1: trace.keys_of_v1(launch) };
        if trace.version() == 1 {
            for found in trace.warps(launch) {
                for event in warp_of(found)?.events() {
                    indexes.meet(&event?, trace.path())?;
                }
            }
        }
        Ok(indexes)
    }

    fn meet(&mut self, event: &Event, path: &Path) -> Result<(), Error> {
        let next = self.rows.len();
        let Entry::Vacant(entry) = self.by_key.entry(event.site) else { return Ok(()) };
        let limit = abi::NVABI_TRACE_SITES_MAX as usize / size_of::<super::records::Site>();
        if next == limit {
            let why = format!("more than {limit} sites");
            return Err(Error::new(path, 0, Problem::Unwritable(why)));
        }
        entry.insert(next as u32);
        self.rows.push(SiteRow { key: event.site, kind: event.kind.0, ..SiteRow::default() });
        Ok(())
    }
}

/// Warps of a launch that v1 writes although nothing was recorded of them: 256 MiB of headers.
const UNRECORDED: u64 = 1 << 24;

/// Writes a launch as gddbg v1. What v1 cannot say (64-bit values, the lanes of a branch, cases of a
/// switch, 64-bit keys of sites) is an error, unless it may be `lossy`: then values and keys are cut
/// or folded to 32 bits. A warp that is lost has no events, and lost one: v1 cannot say more.
///
/// # Errors
///
/// When gddbg v1 or an event is broken, when something cannot be said, and those of the writer.
pub fn to_v1<W: Write>(
    trace: &Trace,
    launch: usize,
    lossy: bool,
    out: W,
    lost: &mut Lost<'_>,
) -> Result<W, Error> {
    let path = trace.path();
    let failed = |error| unwritable(path, error);
    let Some(about) = trace.launches().get(launch) else {
        let why = format!("there is no launch {launch}; it has {}", trace.launches().len());
        return Err(Error::new(path, 0, Problem::Unwritable(why)));
    };
    // The header says how many warps there are and how large one is.
    let (mut warps, mut longest, mut recorded) = (about.warps, 0, 0);
    for found in trace.warps(launch) {
        let warp = match found {
            Found::Warp(warp) => warp,
            Found::Lost { error, .. } if trace.version() == 1 => return Err(error),
            Found::Lost { .. } => continue,
        };
        recorded += 1;
        warps = warps.max(warp.number().saturating_add(1));
        longest = longest.max(u32::try_from(warp.len()).unwrap_or(u32::MAX));
    }
    let unrecorded = u64::from(warps) - recorded;
    if unrecorded > UNRECORDED {
        let why = format!("{unrecorded} warps were not recorded: gddbg v1 has a header for each");
        return Err(Error::new(path, 0, Problem::Unwritable(why)));
    }
    let header = V1Header {
        kernel: about.kernel.clone(),
        grid: about.grid,
        block: about.block,
        warps,
        events_per_warp: longest.max(about.words_per_warp / 2),
        fixed: false,
    };
    let mut out = V1Writer::new(out, &header).map_err(failed)?;
    let mut next = 0;
    let mut keys = Keys { folded: FxHashMap::default(), lossy };
    for found in trace.warps(launch) {
        let warp = match found {
            Found::Warp(warp) => warp,
            Found::Lost { first, last, error } => {
                let end = last.saturating_add(1).min(warps);
                for number in next..end {
                    let recorded = number % about.sample_every.max(1) == 0;
                    let dropped = u32::from(recorded && number >= first);
                    out.begin_warp(0, dropped).map_err(failed)?;
                }
                lost(first.max(next)..=last, error);
                next = next.max(end);
                continue;
            }
        };
        // Warps that were not recorded are empty in v1.
        for _ in next..warp.number() {
            out.begin_warp(0, 0).map_err(failed)?;
        }
        next = warp.number() + 1;
        let (len, dropped) = (clamped(warp.len()), clamped(warp.dropped()));
        out.begin_warp(len, dropped).map_err(failed)?;
        for event in warp.known_events() {
            let event = keys.event(&event?).map_err(|why| {
                Error::new(path, 0, Problem::Unwritable(format!("{why}; --lossy writes it cut")))
            })?;
            out.event(&event).map_err(failed)?;
        }
    }
    for _ in next..warps {
        out.begin_warp(0, 0).map_err(failed)?;
    }
    out.finish().map_err(failed)
}

fn clamped(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Keys of sites in 32 bits.
struct Keys {
    folded: FxHashMap<u32, u64>,
    lossy: bool,
}

impl Keys {
    fn event(&mut self, event: &Event) -> Result<V1Event, String> {
        let Event { site, kind, direction, mask, ballot, value } = *event;
        let folded = site as u32 ^ (site >> 32) as u32;
        let other = *self.folded.entry(folded).or_insert(site);
        let value = value.unwrap_or(0);
        let uniform = ballot.is_none_or(|ballot| ballot == 0 || ballot == mask);
        if !self.lossy {
            if other != site {
                return Err(format!("sites {site:#x} and {other:#x} are one in 32 bits"));
            }
            if value > u64::from(u32::MAX) {
                return Err(format!("value {value:#x} has more than 32 bits"));
            }
            if direction > u32::from(u8::MAX) {
                return Err(format!("case {direction} of a switch has more than 8 bits"));
            }
            if !uniform {
                return Err(format!("the lanes of the branch at site {site:#x} disagree"));
            }
        }
        Ok(V1Event {
            site: folded,
            kind: kind.0,
            direction: direction as u8,
            reserved: 0,
            mask,
            value: value as u32,
        })
    }
}
