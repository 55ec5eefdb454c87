//! Writes a file from its start to its end, without going back: what is written stays readable
//! whatever happens to the writer afterwards.

use std::io::{self, Write};

use zerocopy::IntoBytes;

use super::{FOOTER_MAGIC, MAGIC, STORED, SiteRow, ZSTD, header_check, kind, padded};
use crate::abi::r2 as abi;
use crate::event::{Event, EventKind};
use crate::file::Launch;
use crate::records::{self, Chunk, End, File, Footer, Index, Site, Sites, Warp};

/// Bytes of a chunk of events before it is compressed.
const CHUNK: usize = 256 << 10;
/// Entries of a chunk of sites: with their strings they stay below the limit of a chunk.
const SITES: usize = 8 << 10;

/// Writes a file of v2.
///
/// A launch is written from [`launch`](Self::launch) to [`end_launch`](Self::end_launch), its warps in
/// ascending order from [`warp`](Self::warp) to [`end_warp`](Self::end_warp). Sites may come before or
/// after the events that name them.
pub struct V2Writer<W> {
    out: W,
    offset: u64,
    index: Vec<Index>,
    /// Numbers of chunks that are left out, for what is lost.
    gaps: usize,
    /// None stores the chunks as they are.
    compressor: Option<zstd::bulk::Compressor<'static>>,
    launches: u32,
    chunk: Vec<u8>,
    warps: Option<(u32, u32)>,
    last: Option<u32>,
    /// Where the header of the open warp is in the chunk.
    warp: Option<usize>,
    end: End,
}

impl<W: Write> V2Writer<W> {
    /// Writes the header. Chunks are compressed at a level of zstd, or stored as they are.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(mut out: W, level: Option<i32>) -> io::Result<Self> {
        let size = size_of::<File>();
        let header = File { magic: MAGIC, version: abi::NVABI_TRACE_VERSION, size: size as u32 };
        out.write_all(header.as_bytes())?;
        out.flush()?;
        Ok(Self {
            out,
            offset: size as u64,
            index: Vec::new(),
            gaps: 0,
            compressor: level.map(zstd::bulk::Compressor::new).transpose()?,
            launches: 0,
            chunk: Vec::with_capacity(CHUNK),
            warps: None,
            last: None,
            warp: None,
            end: End { events: 0, dropped: 0, warps: 0, flags: 0 },
        })
    }

    /// Writes sites of a module, the first of which has the index `first`; `v1` says that their keys
    /// are those of gddbg v1.
    ///
    /// # Errors
    ///
    /// Those of the writer; `InvalidInput` for more sites than events can name.
    pub fn sites(&mut self, module: u32, first: u32, rows: &[SiteRow], v1: bool) -> io::Result<()> {
        let limit = abi::NVABI_TRACE_SITES_MAX as usize / size_of::<Site>();
        if first as usize + rows.len() > limit {
            return Err(invalid(format!("more than {limit} sites")));
        }
        let mut first = first;
        for rows in rows.chunks(SITES) {
            let mut strings = Strings::default();
            let entries: Vec<Site> = rows.iter().map(|row| strings.site(row)).collect();
            let head = Sites {
                first,
                count: rows.len() as u32,
                strings: strings.bytes.len() as u32,
                flags: if v1 { abi::NVABI_TRACE_SITES_V1 } else { 0 },
            };
            let mut payload = head.as_bytes().to_vec();
            payload.extend_from_slice(entries.as_bytes());
            payload.extend_from_slice(&strings.bytes);
            self.write(kind::SITES, module, &payload, (0, 0))?;
            first += rows.len() as u32;
        }
        Ok(())
    }

    /// Begins a launch, whose events name the sites of the module `module`. Says its number.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn launch(&mut self, launch: &Launch, module: u32) -> io::Result<u32> {
        let number = self.launches;
        let record = records::Launch {
            module_hash: launch.module_hash,
            stream: launch.stream,
            order: launch.order,
            session: launch.session,
            module,
            arch: launch.arch,
            grid: launch.grid,
            block: launch.block,
            warps: launch.warps,
            words_per_warp: launch.words_per_warp,
            sample_every: launch.sample_every,
            reserved: 0,
            kernel: launch.kernel.len() as u32,
        };
        let mut payload = record.as_bytes().to_vec();
        payload.extend_from_slice(launch.kernel.as_bytes());
        self.write(kind::LAUNCH, number, &payload, (0, 0))?;
        self.launches += 1;
        self.last = None;
        self.end = End { events: 0, dropped: 0, warps: 0, flags: 0 };
        Ok(number)
    }

    /// Begins a warp.
    ///
    /// # Errors
    ///
    /// Those of the writer; `InvalidInput` when the warp is not behind the one before.
    pub fn warp(&mut self, number: u32) -> io::Result<()> {
        if self.last.is_some_and(|last| number <= last) {
            return Err(invalid(format!("warp {number} is not behind the one before")));
        }
        if self.chunk.len() + size_of::<Warp>() + WORDS > CHUNK {
            self.flush()?;
        }
        self.last = Some(number);
        self.end.warps += 1;
        self.part(number);
        Ok(())
    }

    fn part(&mut self, number: u32) {
        self.warp = Some(self.chunk.len());
        let first = self.warps.map_or(number, |(first, _)| first);
        self.warps = Some((first, number));
        let header = Warp { warp: number, words: 0, events: 0, dropped: 0 };
        self.chunk.extend_from_slice(header.as_bytes());
    }

    /// Writes an event of the open warp, as the words that a kernel records.
    ///
    /// # Errors
    ///
    /// Those of the writer; `InvalidInput` without an open warp, or for words that are no event.
    pub fn words(&mut self, words: &[u64]) -> io::Result<()> {
        if words.is_empty() || words.len() > abi::NVABI_TRACE_EVENT_WORDS as usize {
            return Err(invalid(format!("{} words are no event", words.len())));
        }
        if self.chunk.len() + WORDS > CHUNK {
            if let Some((_, number)) = self.warps.filter(|_| self.warp.is_some()) {
                self.flush()?;
                self.part(number);
            }
        }
        let (count, Some(at)) = (words.len() as u32, self.warp) else {
            return Err(invalid("an event without a warp".to_owned()));
        };
        for word in words {
            self.chunk.extend_from_slice(&word.to_le_bytes());
        }
        self.patch(at, |warp| {
            warp.words += count;
            warp.events += 1;
        });
        self.end.events += 1;
        Ok(())
    }

    /// Writes an event of the open warp; `site` is the index of its site.
    ///
    /// # Errors
    ///
    /// As [`words`](Self::words); `InvalidInput` for a kind or a site that a word cannot hold.
    pub fn event(&mut self, site: u32, event: &Event) -> io::Result<()> {
        let Event { kind, direction, mask, ballot, value, .. } = *event;
        if site > abi::NVABI_TRACE_SITE {
            return Err(invalid(format!("site {site} is more than an event can name")));
        }
        if !kind.is_known() {
            return Err(invalid(format!("an event of kind {} has no place in v2", kind.0)));
        }
        let taken = direction & 1 == 1;
        let same = kind == EventKind::BRANCH && ballot == Some(if taken { mask } else { 0 });
        let mut first = site | u32::from(kind.0) << abi::NVABI_TRACE_KIND_SHIFT;
        let (mut words, mut count) = ([0_u64; 3], 1);
        if taken {
            first |= abi::NVABI_TRACE_TAKEN;
        }
        if direction > 1 || ballot.is_some_and(|_| !same) {
            first |= abi::NVABI_TRACE_HAS_BALLOT;
            words[count] = u64::from(ballot.unwrap_or(if taken { mask } else { 0 }))
                | u64::from(direction) << 32;
            count += 1;
        }
        if let Some(value) = value {
            first |= abi::NVABI_TRACE_HAS_VALUE;
            words[count] = value;
            count += 1;
        }
        words[0] = u64::from(first) | u64::from(mask) << 32;
        self.words(&words[..count])
    }

    /// Ends the open warp; `dropped` events came when its region was full.
    ///
    /// # Errors
    ///
    /// `InvalidInput` without an open warp.
    pub fn end_warp(&mut self, dropped: u64) -> io::Result<()> {
        let Some(at) = self.warp.take() else {
            return Err(invalid("the end of a warp that did not begin".to_owned()));
        };
        self.patch(at, |warp| warp.dropped = u32::try_from(dropped).unwrap_or(u32::MAX));
        self.end.dropped += dropped;
        Ok(())
    }

    /// Leaves out the warps from `first` to `last`, which are lost, so that whoever reads the file is told
    /// so; `u32::MAX` is to the end of the launch. Of `first` some events may have been written: they are
    /// lost too.
    ///
    /// # Errors
    ///
    /// Those of the writer; `InvalidInput` when the first is neither the open warp nor behind the one
    /// before, or the last is before the first.
    pub fn lost(&mut self, first: u32, last: u32) -> io::Result<()> {
        if last < first || (self.warp.is_some() && self.last != Some(first)) {
            return Err(invalid(format!("warps {first} to {last} are not next")));
        }
        if self.warp.is_none() {
            self.warp(first)?;
        }
        self.warp = None;
        self.flush()?;
        // A gap in the numbers is lost chunks: what is on both sides of it names the warps.
        self.gaps += 1;
        self.last = Some(last);
        if last != u32::MAX {
            self.part(last);
            self.warp = None;
        }
        Ok(())
    }

    fn patch(&mut self, at: usize, change: impl FnOnce(&mut Warp)) {
        let bytes = self.chunk.get_mut(at..at + size_of::<Warp>());
        if let Some(Ok(warp)) = bytes.map(<Warp as zerocopy::FromBytes>::mut_from_bytes) {
            change(warp);
        }
    }

    /// Writes the events that wait for their chunk to be full.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(warps) = self.warps {
            let mut chunk = std::mem::take(&mut self.chunk);
            self.write(kind::EVENTS, self.launches.saturating_sub(1), &chunk, warps)?;
            chunk.clear();
            self.chunk = chunk;
            self.warps = None;
        }
        Ok(())
    }

    /// Ends the launch: from here on, all of it can be read.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn end_launch(&mut self) -> io::Result<()> {
        self.flush()?;
        let end = self.end;
        self.write(kind::END, self.launches.saturating_sub(1), end.as_bytes(), (0, 0))?;
        self.out.flush()
    }

    /// Leaves the launch without its end: readers take it for one that was not written whole.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn abandon_launch(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Writes the index, and hands the writer back.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        let (index, at) = (std::mem::take(&mut self.index), self.offset);
        for (number, entries) in index.chunks(CHUNK / size_of::<Index>()).enumerate() {
            let number = index.len() + self.gaps + number;
            self.put(kind::INDEX, 0, entries.as_bytes(), (0, 0), number as u32)?;
        }
        let mut footer =
            Footer { index: at, chunks: index.len() as u32, check: 0, magic: FOOTER_MAGIC };
        footer.check = crc32fast::hash(footer.as_bytes().get(..12).unwrap_or_default());
        self.out.write_all(footer.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write(&mut self, kind: u16, owner: u32, bytes: &[u8], warps: (u32, u32)) -> io::Result<()> {
        let (offset, number) = (self.offset, self.index.len());
        if number == abi::NVABI_TRACE_CHUNKS_MAX as usize {
            return Err(invalid(format!("more than {number} chunks")));
        }
        let chunk = self.put(kind, owner, bytes, warps, (number + self.gaps) as u32)?;
        self.index.push(Index { offset, chunk });
        Ok(())
    }

    fn put(
        &mut self,
        kind: u16,
        owner: u32,
        bytes: &[u8],
        (first_warp, last_warp): (u32, u32),
        number: u32,
    ) -> io::Result<Chunk> {
        if bytes.len() > abi::NVABI_TRACE_CHUNK_MAX as usize {
            return Err(invalid(format!("{} bytes are too many for a chunk", bytes.len())));
        }
        let packed = match &mut self.compressor {
            Some(compressor) => Some(compressor.compress(bytes)?).filter(|p| p.len() < bytes.len()),
            None => None,
        };
        let (codec, stored) = match &packed {
            Some(packed) => (ZSTD, packed.as_slice()),
            None => (STORED, bytes),
        };
        let mut chunk = Chunk {
            magic: abi::NVABI_TRACE_CHUNK_MAGIC,
            check: 0,
            payload_check: crc32fast::hash(stored),
            kind,
            codec,
            number,
            owner,
            stored: stored.len() as u32,
            size: bytes.len() as u32,
            first_warp,
            last_warp,
        };
        chunk.check = header_check(chunk.as_bytes());
        let filled = padded(stored.len() as u64) as usize - stored.len();
        self.out.write_all(chunk.as_bytes())?;
        self.out.write_all(stored)?;
        self.out.write_all(&[0; 8][..filled])?;
        self.offset += (size_of::<Chunk>() + stored.len() + filled) as u64;
        Ok(chunk)
    }
}

/// Bytes of the largest event.
const WORDS: usize = abi::NVABI_TRACE_EVENT_WORDS as usize * 8;

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Strings of a site table, each once.
struct Strings {
    bytes: Vec<u8>,
    known: rustc_hash::FxHashMap<String, u32>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { bytes: vec![0], known: [(String::new(), 0)].into_iter().collect() }
    }
}

impl Strings {
    fn offset(&mut self, text: &str) -> u32 {
        if let Some(offset) = self.known.get(text) {
            return *offset;
        }
        let offset = self.bytes.len() as u32;
        // A zero byte ends a string: what stands behind one is not kept.
        self.bytes.extend(text.bytes().take_while(|byte| *byte != 0));
        self.bytes.push(0);
        self.known.insert(text.to_owned(), offset);
        offset
    }

    fn site(&mut self, row: &SiteRow) -> Site {
        Site {
            key: row.key,
            file: self.offset(&row.file),
            function: self.offset(&row.function),
            inlined: self.offset(&row.inlined),
            line: row.line,
            column: row.column,
            ordinal: row.ordinal,
            kind: row.kind,
            bytes: row.bytes,
        }
    }
}
