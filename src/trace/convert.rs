//! From one format to the other, and several files to one.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use super::abi::r2 as abi;
use super::error::{Error, Problem};
use super::event::Event;
use super::file::{Found, Launch, Trace, Warp};
use super::records::V1Event;
use super::v1::{V1Header, V1Writer};
use super::v2::{SiteRow, V2Writer};

/// Writes a trace as nvtrace v2.
///
/// # Errors
///
/// When warps cannot be read, when there is something that v2 cannot say, and those of the writer.
pub fn to_v2<W: Write>(trace: &Trace, out: &mut V2Writer<W>) -> Result<(), Error> {
    Merge::new(out).add(trace, None)
}

/// Writes traces into one as nvtrace v2: each becomes a session of its own, or several where it is one
/// of several already.
///
/// # Errors
///
/// As [`to_v2`].
pub fn merge<W: Write>(traces: &[Trace], out: &mut V2Writer<W>) -> Result<(), Error> {
    let mut merge = Merge::new(out);
    let mut session = 0;
    for trace in traces {
        merge.add(trace, Some(session))?;
        let last = trace.launches().iter().map(|launch| launch.session).max().unwrap_or(0);
        session += last + 1;
    }
    Ok(())
}

struct Merge<'a, W> {
    out: &'a mut V2Writer<W>,
    modules: u32,
}

impl<'a, W: Write> Merge<'a, W> {
    fn new(out: &'a mut V2Writer<W>) -> Self {
        Self { out, modules: 0 }
    }

    fn add(&mut self, trace: &Trace, session: Option<u32>) -> Result<(), Error> {
        let mut modules = BTreeMap::new();
        for (at, launch) in trace.launches().iter().enumerate() {
            let known = trace.module(at).and_then(|module| modules.get(&module).copied());
            let module = known.unwrap_or(self.modules);
            let launch =
                Launch { session: launch.session + session.unwrap_or(0), ..launch.clone() };
            self.out.launch(&launch, module).map_err(|error| unwritable(trace.path(), error))?;
            // The indexes of a table that is known stay; those of v1 are made as sites come.
            let mut sites = Indexes::of(trace, at);
            for found in trace.warps(at) {
                self.warp(trace, &warp_of(found)?, &mut sites)?;
            }
            self.out.end_launch().map_err(|error| unwritable(trace.path(), error))?;
            if known.is_none() {
                self.modules += 1;
                let rows = sites.rows(trace, at);
                let written = self.out.sites(module, 0, &rows, sites.v1);
                written.map_err(|error| unwritable(trace.path(), error))?;
                modules.extend(trace.module(at).map(|number| (number, module)));
            }
        }
        Ok(())
    }

    fn warp(&mut self, trace: &Trace, warp: &Warp<'_>, sites: &mut Indexes) -> Result<(), Error> {
        let failed = |error| unwritable(trace.path(), error);
        self.out.warp(warp.number()).map_err(failed)?;
        for event in warp.events() {
            let event = event?;
            let index = sites.index(&event).map_err(failed)?;
            // Zero stands for no value in v1.
            let value = event.value.filter(|value| !(sites.v1 && *value == 0));
            self.out.event(index, &Event { value, ..event }).map_err(failed)?;
        }
        self.out.end_warp(warp.dropped()).map_err(failed)
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

/// Which index each site has in a file.
struct Indexes {
    by_key: FxHashMap<u64, u32>,
    /// Sites of v1 in the order of their indexes, with what is recorded there.
    found: Vec<(u64, u8)>,
    v1: bool,
}

impl Indexes {
    fn of(trace: &Trace, launch: usize) -> Self {
        let mut by_key = FxHashMap::default();
        for (key, index) in trace.keys(launch).iter().zip(0..) {
            by_key.extend(key.map(|key| (key, index)));
        }
        Self { by_key, found: Vec::new(), v1: trace.keys_of_v1(launch) }
    }

    fn index(&mut self, event: &Event) -> io::Result<u32> {
        if let Some(index) = self.by_key.get(&event.site) {
            return Ok(*index);
        }
        let limit = abi::NVABI_TRACE_SITES_MAX as usize / size_of::<super::records::Site>();
        if self.found.len() == limit {
            let why = format!("more than {limit} sites");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let index = self.found.len() as u32;
        self.by_key.insert(event.site, index);
        self.found.push((event.site, event.kind.0));
        Ok(index)
    }

    fn rows(&self, trace: &Trace, launch: usize) -> Vec<SiteRow> {
        let known = 0..trace.site_count(launch) as u32;
        let known = known.map(|index| trace.site(launch, index).unwrap_or_default());
        let found = self.found.iter().map(|(key, kind)| SiteRow {
            key: *key,
            kind: *kind,
            ..SiteRow::default()
        });
        known.chain(found).collect()
    }
}

/// Writes a launch as gddbg v1. What v1 cannot say (64-bit values, the lanes of a branch, cases of a
/// switch, 64-bit keys of sites) is an error, unless it may be `lossy`: then values and keys are cut
/// or folded to 32 bits.
///
/// # Errors
///
/// When warps cannot be read, when something cannot be said, and those of the writer.
pub fn to_v1<W: Write>(trace: &Trace, launch: usize, lossy: bool, out: W) -> Result<W, Error> {
    let path = trace.path();
    let failed = |error| unwritable(path, error);
    let Some(about) = trace.launches().get(launch) else {
        let why = format!("there is no launch {launch}; it has {}", trace.launches().len());
        return Err(Error::new(path, 0, Problem::Unwritable(why)));
    };
    // The header says how many warps there are and how large one is.
    let (mut warps, mut longest) = (about.warps, 0);
    for found in trace.warps(launch) {
        let warp = warp_of(found)?;
        warps = warps.max(warp.number().saturating_add(1));
        longest = longest.max(u32::try_from(warp.len()).unwrap_or(u32::MAX));
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
        let warp = warp_of(found)?;
        // Warps that were not recorded are empty in v1.
        for _ in next..warp.number() {
            out.begin_warp(0, 0).map_err(failed)?;
        }
        next = warp.number() + 1;
        let (len, dropped) = (clamped(warp.len()), clamped(warp.dropped()));
        out.begin_warp(len, dropped).map_err(failed)?;
        for event in warp.events() {
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
