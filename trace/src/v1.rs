//! gddbg v1: one launch, its warps one after another, events of 16 bytes.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use zerocopy::{FromBytes, IntoBytes};

use super::abi::r2 as abi;
use super::error::{Error, Problem};
use super::event::{Event, EventKind};
use super::input::{Input, Window};
use super::records::{V1Event, V1File, V1Warp};

/// Bytes of an event.
pub(crate) const EVENT: usize = size_of::<V1Event>();
pub(crate) const WARP: usize = size_of::<V1Warp>();
const HEADER: usize = size_of::<V1File>();
/// Bytes that are read at once to find warps: as many as make it cheap where these are small.
const HEADERS: usize = 4 << 10;
// Events and what comes before them lie at multiples of their size, so that no page ends within one.
const _: () = assert!(HEADER % EVENT == 0 && WARP % EVENT == 0);
/// `NVABI_TRACE_V1_MAGIC`, filled up with zeros.
pub(crate) const MAGIC: [u8; 12] = *b"GDDBGGPU\0\0\0\0";

/// Whether a file starts as one of v1 does.
pub(crate) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A file of v1.
#[derive(Debug)]
pub(crate) struct V1 {
    input: Input,
    header: V1File,
}

impl V1 {
    pub(crate) fn open(input: Input) -> Result<Self, Error> {
        input.fits(0, "the header", HEADER as u64)?;
        let error = |offset, problem| Err(input.error(offset, problem));
        let Some(header) = input.record::<V1File>(0)? else { return error(0, Problem::NotATrace) };
        if header.version != abi::NVABI_TRACE_V1_VERSION {
            return error(12, Problem::Version(header.version));
        }
        if header.flags & !(abi::NVABI_TRACE_V1_FIXED) != 0 {
            return error(16, Problem::Flags(header.flags));
        }
        Ok(Self { input, header })
    }

    pub(crate) fn path(&self) -> &Path {
        self.input.path()
    }

    pub(crate) fn size(&self) -> u64 {
        self.input.len()
    }

    pub(crate) fn input(&self) -> &Input {
        &self.input
    }

    pub(crate) fn header(&self) -> &V1File {
        &self.header
    }

    pub(crate) fn kernel(&self) -> String {
        let name = &self.header.kernel;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }

    pub(crate) fn warps(&self) -> V1Warps<'_> {
        V1Warps { file: self, next: 0, at: HEADER as u64, window: Window::default() }
    }

    fn fixed(&self) -> bool {
        self.header.flags & abi::NVABI_TRACE_V1_FIXED != 0
    }
}

/// The warps of a file, in order.
#[derive(Debug, Clone)]
pub(crate) struct V1Warps<'a> {
    file: &'a V1,
    next: u32,
    at: u64,
    /// The headers of the next warps, where they are small.
    window: Window,
}

/// One warp: where its events are.
#[derive(Debug, Clone)]
pub(crate) struct V1Events<'a> {
    pub(crate) file: &'a V1,
    pub(crate) number: u32,
    /// The bytes of its events in the file.
    pub(crate) range: Range<u64>,
    pub(crate) dropped: u64,
}

impl<'a> Iterator for V1Warps<'a> {
    type Item = Result<V1Events<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let file = self.file;
        if self.next == file.header.warps {
            return self.rest().map(Err);
        }
        let read = self.read();
        if read.is_err() {
            // What follows cannot be found: the way there is broken.
            self.stop();
        }
        Some(read)
    }
}

impl<'a> V1Warps<'a> {
    /// The number of the next warp.
    pub(crate) fn number(&self) -> u32 {
        self.next
    }

    fn stop(&mut self) {
        self.next = self.file.header.warps;
        self.at = self.file.size();
    }

    fn read(&mut self) -> Result<V1Events<'a>, Error> {
        let file = self.file;
        let (input, at) = (&file.input, self.at);
        input.fits(at, "a warp's header", WARP as u64)?;
        let bytes = self.window.get(input, at, WARP, HEADERS, input.len())?;
        let Ok((warp, _)) = V1Warp::read_from_prefix(bytes) else {
            return Err(input.error(at, Problem::Damaged("no header of a warp")));
        };
        let capacity = file.header.events_per_warp;
        if warp.events > capacity && (file.fixed() || capacity > 0) {
            let (value, limit) = (u64::from(warp.events), u64::from(capacity));
            let problem = Problem::Invalid { what: "the number of a warp's events", value, limit };
            return Err(input.error(at + 8, problem));
        }
        let taken = if file.fixed() { capacity } else { warp.events };
        let size = u64::from(taken) * EVENT as u64;
        let start = at + WARP as u64;
        input.fits(start, "the events of a warp", size)?;
        let came = warp.total.max(warp.write_index);
        let events = V1Events {
            file,
            number: self.next,
            range: start..start + u64::from(warp.events) * EVENT as u64,
            dropped: u64::from(warp.dropped.max(came.saturating_sub(warp.events))),
        };
        self.at = start + size;
        self.next += 1;
        Ok(events)
    }

    /// Complains once about what is behind the last warp.
    fn rest(&mut self) -> Option<Error> {
        let (at, len) = (self.at, self.file.size());
        self.at = len;
        (at < len).then(|| {
            let problem = Problem::Damaged("there are bytes behind the last warp");
            self.file.input.error(at, problem)
        })
    }
}

impl V1Events<'_> {
    /// How many events were recorded.
    pub(crate) fn events(&self) -> u64 {
        (self.range.end - self.range.start) / EVENT as u64
    }

    /// Where in the file an event is; none behind the last.
    #[inline]
    pub(crate) fn place(&self, index: u64) -> Option<u64> {
        (index < self.events()).then(|| self.range.start + index * EVENT as u64)
    }
}

/// How many whole events in bytes come before the first of a kind that there is not.
pub(crate) fn known_events(bytes: &[u8]) -> usize {
    const KIND: usize = std::mem::offset_of!(V1Event, kind);
    let kinds = || bytes.chunks_exact(EVENT).map(|event| event[KIND]);
    // The largest of all is found faster than the first that is too large.
    match EventKind(kinds().fold(0, u8::max)).is_known() {
        true => bytes.len() / EVENT,
        false => kinds().take_while(|kind| EventKind(*kind).is_known()).count(),
    }
}

/// The event in the 16 bytes that are at an offset of a file.
#[inline]
pub(crate) fn event(input: &Input, at: u64, bytes: &[u8]) -> Result<Option<Event>, Error> {
    let Ok((event, _)) = V1Event::ref_from_prefix(bytes) else { return Ok(None) };
    if !EventKind(event.kind).is_known() {
        let (value, limit) = (event.kind.into(), EventKind::EXIT.0.into());
        let problem = Problem::Invalid { what: "the kind of an event", value, limit };
        return Err(input.error(at + std::mem::offset_of!(V1Event, kind) as u64, problem));
    }
    Ok(Some(Event {
        site: u64::from(event.site),
        kind: EventKind(event.kind),
        direction: u32::from(event.direction),
        mask: event.mask,
        ballot: None,
        value: Some(u64::from(event.value)),
    }))
}

/// What the header of a file says.
#[derive(Debug, Clone)]
pub struct V1Header {
    /// The kernel; 64 bytes of it are kept.
    pub kernel: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Warps that will be written.
    pub warps: u32,
    /// The most events of a warp.
    pub events_per_warp: u32,
    /// Whether each warp takes room for `events_per_warp` events.
    pub fixed: bool,
}

/// Writes a file of v1, warp after warp.
#[derive(Debug)]
pub struct V1Writer<W> {
    out: W,
    room: u32,
    fixed: bool,
    /// Warps and events of the open warp that the header has promised.
    warps: u32,
    events: u32,
    unused: u32,
}

impl<W: Write> V1Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(mut out: W, header: &V1Header) -> io::Result<Self> {
        let mut kernel = [0; 64];
        for (to, from) in kernel.iter_mut().zip(header.kernel.bytes()) {
            *to = from;
        }
        let record = V1File {
            magic: MAGIC,
            version: abi::NVABI_TRACE_V1_VERSION,
            flags: if header.fixed { abi::NVABI_TRACE_V1_FIXED } else { 0 },
            grid: header.grid,
            block: header.block,
            warps: header.warps,
            events_per_warp: header.events_per_warp,
            reserved: [0; 3],
            kernel,
        };
        out.write_all(record.as_bytes())?;
        let (room, fixed, warps) = (header.events_per_warp, header.fixed, header.warps);
        Ok(Self { out, room, fixed, warps, events: 0, unused: 0 })
    }

    /// Writes the next warp; `dropped` events came when it was full.
    ///
    /// # Errors
    ///
    /// As [`begin_warp`](Self::begin_warp) and [`event`](Self::event).
    pub fn warp(&mut self, events: &[V1Event], dropped: u32) -> io::Result<()> {
        self.begin_warp(u32::try_from(events.len()).unwrap_or(u32::MAX), dropped)?;
        self.out.write_all(events.as_bytes())?;
        self.events = 0;
        Ok(())
    }

    /// Begins the next warp, of which `events` events follow.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when there are more events or warps than the header says, or fewer events than
    /// the warp before has promised; those of the writer.
    pub fn begin_warp(&mut self, events: u32, dropped: u32) -> io::Result<()> {
        self.end_warp()?;
        if events > self.room {
            return Err(invalid(format!("{events} events in a warp that takes {}", self.room)));
        }
        let Some(warps) = self.warps.checked_sub(1) else {
            return Err(invalid("more warps than the header says".to_owned()));
        };
        self.warps = warps;
        let total = events.saturating_add(dropped);
        let header = V1Warp { write_index: total, dropped, events, total };
        self.events = events;
        self.unused = if self.fixed { self.room - events } else { 0 };
        self.out.write_all(header.as_bytes())
    }

    /// Writes an event of the open warp.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when it is one more than was promised; those of the writer.
    pub fn event(&mut self, event: &V1Event) -> io::Result<()> {
        let Some(events) = self.events.checked_sub(1) else {
            return Err(invalid("more events than the warp's header says".to_owned()));
        };
        self.events = events;
        self.out.write_all(event.as_bytes())
    }

    fn end_warp(&mut self) -> io::Result<()> {
        if self.events > 0 {
            return Err(invalid(format!("{} events of the warp are missing", self.events)));
        }
        let unused = u64::from(std::mem::take(&mut self.unused)) * EVENT as u64;
        io::copy(&mut io::Read::take(io::repeat(0), unused), &mut self.out)?;
        Ok(())
    }

    /// Hands the writer back.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when warps or events are missing; those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_warp()?;
        if self.warps > 0 {
            return Err(invalid(format!("{} warps are missing", self.warps)));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
