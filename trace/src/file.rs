//! A trace, of whichever format: launches, their warps, and what these did.

use std::path::Path;

use serde::{Serialize, Serializer};

use super::error::{Error, Problem};
use super::event::Event;
use super::input::{Input, Window};
use super::report::Source;
use super::v1::{self, V1, V1Events, V1Warps};
use super::v2::{self, OpenChunk, SiteRow, SiteTable, V2, V2Cursor, V2Events, V2Warps};

/// A trace in a file. What it holds is read when it is asked for.
#[derive(Debug)]
pub struct Trace {
    file: File,
    launches: Vec<Launch>,
}

/// Bytes of a warp of v1 that are read at once.
const READ: usize = 64 << 10;

#[derive(Debug)]
enum File {
    V1(V1),
    V2(V2),
}

/// One launch of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// The kernel.
    pub kernel: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Warps of the launch, recorded or not.
    pub warps: u32,
    /// Compute capability, 10 × major + minor; 0 where it is not known.
    pub arch: u32,
    /// SHA-256 of the module's code before it was instrumented; zeros where it is not known. In JSON as
    /// hexadecimal digits.
    #[serde(serialize_with = "hex")]
    pub module_hash: [u8; 32],
    /// The stream, as the process numbers them.
    pub stream: u64,
    /// Launches of the process before this one.
    pub order: u64,
    /// The process, in a file that several were merged into.
    pub session: u32,
    /// Room for a warp's events in words of 8 bytes; 0 where there was no limit.
    pub words_per_warp: u32,
    /// Of this many warps one is recorded; 0 is 1.
    pub sample_every: u32,
    /// Events in all, where the file says so.
    pub events: Option<u64>,
    /// Events that were not recorded because their warp was full, where the file says so.
    pub dropped: Option<u64>,
    /// Whether the launch was written to its end.
    pub complete: bool,
}

fn hex<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&bytes.map(|byte| format!("{byte:02x}")).concat())
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            kernel: String::new(),
            grid: [1; 3],
            block: [32, 1, 1],
            warps: 0,
            arch: 0,
            module_hash: [0; 32],
            stream: 0,
            order: 0,
            session: 0,
            words_per_warp: 0,
            sample_every: 1,
            events: None,
            dropped: None,
            complete: true,
        }
    }
}

/// What comes next in a launch.
#[derive(Debug)]
pub enum Found<'a> {
    /// A warp, with all that was recorded of it.
    Warp(Warp<'a>),
    /// Warps that cannot be read, or not wholly. What comes behind them can.
    Lost {
        /// The first.
        first: u32,
        /// The last, included; `u32::MAX` where nobody knows.
        last: u32,
        /// Why not.
        error: Error,
    },
}

/// One warp of a launch.
#[derive(Debug, Clone)]
pub struct Warp<'a>(pub(crate) Data<'a>);

#[derive(Debug, Clone)]
pub(crate) enum Data<'a> {
    V1(V1Events<'a>),
    V2(V2Events<'a>),
}

impl Trace {
    /// Opens a trace of gddbg v1 or nvtrace v2.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is neither; the error names the byte. Damage to chunks of v2 is no
    /// error here: see [`damage`](Self::damage) and [`Found::Lost`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let input = Input::open(path)?;
        let mut start = [0; v1::MAGIC.len()];
        let len = start.len().min(input.len() as usize);
        input.read(0, &mut start[..len])?;
        let file = if v1::is(&start) {
            File::V1(V1::open(input)?)
        } else if v2::is(&start) {
            File::V2(V2::open(input)?)
        } else {
            return Err(Error::new(path, 0, Problem::NotATrace));
        };
        let launches = match &file {
            File::V1(file) => vec![launch_v1(file)],
            File::V2(file) => file.launches().iter().map(launch_v2).collect(),
        };
        Ok(Self { file, launches })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match &self.file {
            File::V1(file) => file.path(),
            File::V2(file) => file.path(),
        }
    }

    /// The version of its format: 1 is gddbg v1, 2 is nvtrace v2.
    pub fn version(&self) -> u32 {
        match self.file {
            File::V1(_) => 1,
            File::V2(_) => 2,
        }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        match &self.file {
            File::V1(file) => file.size(),
            File::V2(file) => file.size(),
        }
    }

    /// Whether the file was closed after it was written. One of v1 is not told apart.
    pub fn closed(&self) -> bool {
        match &self.file {
            File::V1(_) => true,
            File::V2(file) => file.closed(),
        }
    }

    /// What was found to be damaged when the file was opened.
    pub fn damage(&self) -> &[Error] {
        match &self.file {
            File::V1(_) => &[],
            File::V2(file) => file.damage(),
        }
    }

    /// The launches, in the order in which they were written.
    pub fn launches(&self) -> &[Launch] {
        &self.launches
    }

    /// The warps of a launch, in ascending order.
    pub fn warps(&self, launch: usize) -> Warps<'_> {
        match &self.file {
            File::V1(file) if launch == 0 => Warps(Inner::V1(file.warps())),
            File::V1(_) => Warps(Inner::None),
            File::V2(file) => Warps(Inner::V2(file.warps(launch))),
        }
    }

    /// A warp of a launch; nothing when it was not recorded or cannot be read.
    pub fn warp(&self, launch: usize, number: u32) -> Option<Warp<'_>> {
        let warps = match &self.file {
            File::V1(_) => self.warps(launch),
            File::V2(file) => Warps(Inner::V2(file.warps_from(launch, number))),
        };
        let mut warps = warps.filter_map(|found| match found {
            Found::Warp(warp) => Some(warp),
            Found::Lost { .. } => None,
        });
        warps.find(|warp| warp.number() >= number).filter(|warp| warp.number() == number)
    }

    /// The line of a site, where the trace knows it.
    pub fn source(&self, launch: usize, site: u64) -> Option<Source> {
        self.sites(launch)?.source(site)
    }

    /// How many sites the table of a launch has; 0 in v1.
    pub fn site_count(&self, launch: usize) -> usize {
        self.sites(launch).map_or(0, SiteTable::len)
    }

    /// A row of the site table of a launch.
    pub fn site(&self, launch: usize, index: u32) -> Option<SiteRow> {
        self.sites(launch)?.row(index)
    }

    pub(crate) fn v1(&self) -> Option<&V1> {
        match &self.file {
            File::V1(file) => Some(file),
            File::V2(_) => None,
        }
    }

    fn sites(&self, launch: usize) -> Option<&SiteTable> {
        let File::V2(file) = &self.file else { return None };
        file.modules().get(&file.launches().get(launch)?.record.module)
    }

    /// The number of the module of a launch; none in v1.
    pub(crate) fn module(&self, launch: usize) -> Option<u32> {
        let File::V2(file) = &self.file else { return None };
        Some(file.launches().get(launch)?.record.module)
    }

    /// The keys of the sites of a launch by index, where there is a table.
    pub(crate) fn keys(&self, launch: usize) -> &[Option<u64>] {
        self.sites(launch).map_or(&[], SiteTable::keys)
    }

    /// Whether the keys are the 32-bit numbers of v1.
    pub(crate) fn keys_of_v1(&self, launch: usize) -> bool {
        self.version() == 1 || self.sites(launch).is_some_and(SiteTable::is_v1)
    }
}

fn launch_v1(file: &V1) -> Launch {
    let header = file.header();
    Launch {
        kernel: file.kernel(),
        grid: header.grid,
        block: header.block,
        warps: header.warps,
        // An event of v1 is as large as two words.
        words_per_warp: header.events_per_warp.saturating_mul(2),
        ..Launch::default()
    }
}

fn launch_v2(launch: &v2::V2Launch) -> Launch {
    let record = &launch.record;
    Launch {
        kernel: launch.kernel.clone(),
        grid: record.grid,
        block: record.block,
        warps: record.warps,
        arch: record.arch,
        module_hash: record.module_hash,
        stream: record.stream,
        order: record.order,
        session: record.session,
        words_per_warp: record.words_per_warp,
        sample_every: record.sample_every,
        events: launch.end.map(|(_, end)| end.events),
        dropped: launch.end.map(|(_, end)| end.dropped),
        complete: launch.end.is_some(),
    }
}

/// The warps of a launch, in ascending order.
pub struct Warps<'a>(Inner<'a>);

enum Inner<'a> {
    V1(V1Warps<'a>),
    V2(V2Warps<'a>),
    None,
}

impl<'a> Warps<'a> {
    /// What is being read, for the warps of a trace that goes along with this one.
    pub(crate) fn open_chunk(&self) -> Option<OpenChunk<'a>> {
        match &self.0 {
            Inner::V2(warps) => warps.open_chunk(),
            Inner::V1(_) | Inner::None => None,
        }
    }

    /// The next, of which what is the same as in another trace is taken from there.
    pub(crate) fn next_beside(&mut self, twin: Option<OpenChunk<'a>>) -> Option<Found<'a>> {
        match &mut self.0 {
            Inner::V1(warps) => {
                let first = warps.number();
                Some(match warps.next()? {
                    Ok(warp) => Found::Warp(Warp(Data::V1(warp))),
                    Err(error) => Found::Lost { first, last: u32::MAX, error },
                })
            }
            Inner::V2(warps) => Some(match warps.next_beside(twin)? {
                v2::Found::Warp(warp) => Found::Warp(Warp(Data::V2(warp))),
                v2::Found::Lost { first, last, error } => Found::Lost { first, last, error },
            }),
            Inner::None => None,
        }
    }
}

impl<'a> Iterator for Warps<'a> {
    type Item = Found<'a>;

    fn next(&mut self) -> Option<Found<'a>> {
        self.next_beside(None)
    }
}

impl<'a> Warp<'a> {
    /// Its number in the launch: block × warps of a block + warp of the block.
    pub fn number(&self) -> u32 {
        match &self.0 {
            Data::V1(warp) => warp.number,
            Data::V2(warp) => warp.number,
        }
    }

    /// Events that were recorded.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Data::V1(warp) => warp.events(),
            Data::V2(warp) => warp.events,
        }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events that came when the warp was full.
    pub fn dropped(&self) -> u64 {
        match &self.0 {
            Data::V1(warp) => warp.dropped,
            Data::V2(warp) => warp.dropped,
        }
    }

    /// What it did.
    pub fn events(&self) -> Events<'a> {
        Events { cursor: self.cursor(), failed: false }
    }

    /// What it did, up to an event whose site a damaged table does not name.
    pub(crate) fn known_events(&self) -> Events<'a> {
        Events { cursor: self.known(), failed: false }
    }

    /// As [`known_events`](Self::known_events).
    pub(crate) fn known(&self) -> Cursor<'a> {
        match &self.0 {
            Data::V1(_) => self.cursor(),
            Data::V2(warp) => Cursor::V2(warp.cursor().only_known()),
        }
    }

    fn cursor(&self) -> Cursor<'a> {
        match &self.0 {
            Data::V1(warp) => {
                Cursor::V1 { warp: warp.clone(), index: 0, window: Window::default() }
            }
            Data::V2(warp) => Cursor::V2(warp.cursor()),
        }
    }
}

/// A place in the events of a warp. A copy of it is cheap, and goes on from there.
#[derive(Clone)]
pub(crate) enum Cursor<'a> {
    V1 { warp: V1Events<'a>, index: u64, window: Window },
    V2(V2Cursor<'a>),
}

impl Cursor<'_> {
    pub(crate) fn next(&mut self) -> Result<Option<Event>, Error> {
        match self {
            Self::V1 { warp, index, window } => {
                let Some(at) = warp.place(*index) else { return Ok(None) };
                let input = warp.file.input();
                let bytes = window.get(input, at, v1::EVENT, READ, warp.range.end)?;
                *index += 1;
                v1::event(input, at, bytes)
            }
            Self::V2(cursor) => cursor.next(),
        }
    }
}

/// The events of a warp, in order. Ends at the first error.
#[derive(Clone)]
pub struct Events<'a> {
    cursor: Cursor<'a>,
    failed: bool,
}

impl Iterator for Events<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.cursor.next().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::v2::V2Writer;

    /// Some warps fill chunks alone, others share them; every third is recorded.
    fn trace(path: &Path) {
        let file = std::fs::File::create(path).unwrap();
        let mut out = V2Writer::new(file, Some(1)).unwrap();
        out.sites(0, 0, &[SiteRow::default()], false).unwrap();
        for kernel in ["one", "two"] {
            let launch = Launch { kernel: kernel.to_owned(), warps: 300, ..Launch::default() };
            out.launch(&launch, 0).unwrap();
            for warp in (0..300).step_by(3) {
                out.warp(warp).unwrap();
                for index in 0..if warp % 30 == 0 { 60_000 } else { 10 } {
                    let event = Event {
                        site: 0,
                        kind: EventKind::BRANCH,
                        direction: index & 1,
                        mask: warp,
                        ballot: None,
                        value: None,
                    };
                    out.event(0, &event).unwrap();
                }
                out.end_warp(0).unwrap();
            }
            out.end_launch().unwrap();
        }
        out.finish().unwrap();
    }

    #[test]
    fn a_warp_is_found_as_it_is_met() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.trace");
        trace(&path);
        let trace = Trace::open(&path).unwrap();
        for launch in 0..2 {
            for number in 0..=300 {
                let found = trace.warp(launch, number);
                let there = number % 3 == 0 && number < 300;
                assert_eq!(found.is_some(), there, "{number}");
                let Some(found) = found else { continue };
                let events: Result<Vec<Event>, Error> = found.events().collect();
                let events = events.unwrap();
                assert_eq!(events.len(), if number % 30 == 0 { 60_000 } else { 10 });
                assert!(events.iter().all(|event| event.mask == number), "{number}");
            }
        }
        assert!(trace.warp(2, 0).is_none());
    }
}
