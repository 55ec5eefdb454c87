//! Opens a file: finds its chunks, by the index or, where that is not whole, one after another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::events::V2Warps;
use super::sites::SiteTable;
use super::{FOOTER_MAGIC, STORED, ZSTD, header_check, kind, padded};
use crate::abi::r2 as abi;
use crate::error::{Error, Problem};
use crate::input::{Input, Window, record};
use crate::records::{Chunk, End, File, Footer, Index, Launch};

const CHUNK: u64 = size_of::<Chunk>() as u64;
const INDEX: usize = size_of::<Index>();
/// Bytes that are read at once when chunks are looked for or compared.
const READ: usize = 64 << 10;
const FOOTER: u64 = size_of::<Footer>() as u64;

thread_local! {
    /// The bytes of a chunk as they are stored.
    static COMPRESSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Bytes of two chunks that are compared.
    static ALIKE: RefCell<[Vec<u8>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// A file of v2.
#[derive(Debug)]
pub(crate) struct V2 {
    input: Input,
    chunks: Vec<Index>,
    modules: BTreeMap<u32, SiteTable>,
    launches: Vec<V2Launch>,
    damage: Vec<Error>,
    closed: bool,
}

/// A launch and where its events are.
#[derive(Debug)]
pub(crate) struct V2Launch {
    pub(crate) record: Launch,
    pub(crate) kernel: String,
    /// The number of its chunk; those of its events follow without a gap.
    pub(crate) number: u32,
    /// Its end and the number of that chunk; `None` when it was not written whole.
    pub(crate) end: Option<(u32, End)>,
    /// Its chunks of events, in their order.
    pub(crate) events: Vec<u32>,
}

impl V2 {
    pub(crate) fn open(input: Input) -> Result<Self, Error> {
        input.fits(0, "the header", size_of::<File>() as u64)?;
        let header = input.record::<File>(0)?;
        let header = header.ok_or_else(|| input.error(0, Problem::NotATrace))?;
        if header.version != abi::NVABI_TRACE_VERSION {
            return Err(input.error(8, Problem::Version(header.version)));
        }
        if header.size as usize != size_of::<File>() {
            let limit = size_of::<File>() as u64;
            let value = u64::from(header.size);
            let problem = Problem::Invalid { what: "the size of the header", value, limit };
            return Err(input.error(12, problem));
        }
        let mut file = Self {
            input,
            chunks: Vec::new(),
            modules: BTreeMap::new(),
            launches: Vec::new(),
            damage: Vec::new(),
            closed: false,
        };
        match file.indexed()? {
            Some(chunks) => (file.chunks, file.closed) = (chunks, true),
            None => file.scan()?,
        }
        file.gather()?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        self.input.path()
    }

    pub(crate) fn size(&self) -> u64 {
        self.input.len()
    }

    pub(crate) fn launches(&self) -> &[V2Launch] {
        &self.launches
    }

    pub(crate) fn modules(&self) -> &BTreeMap<u32, SiteTable> {
        &self.modules
    }

    /// What was found to be damaged when the file was opened.
    pub(crate) fn damage(&self) -> &[Error] {
        &self.damage
    }

    /// Whether the file was closed, and its index is whole.
    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn chunks(&self) -> &[Index] {
        &self.chunks
    }

    pub(crate) fn warps(&self, launch: usize) -> V2Warps<'_> {
        V2Warps::new(self, launch)
    }

    /// The warps of a launch from one on, or from one shortly before it.
    pub(crate) fn warps_from(&self, launch: usize, number: u32) -> V2Warps<'_> {
        V2Warps::from(self, launch, number)
    }

    pub(crate) fn error(&self, offset: u64, problem: Problem) -> Error {
        self.input.error(offset, problem)
    }

    /// The chunks by the index; `None` when any of it is not as it was written.
    fn indexed(&self) -> Result<Option<Vec<Index>>, Error> {
        let Some(end) = self.size().checked_sub(FOOTER) else { return Ok(None) };
        let Some(footer) = self.input.record::<Footer>(end)? else { return Ok(None) };
        let check = crc32fast::hash(footer.as_bytes().get(..12).unwrap_or_default());
        if footer.magic != FOOTER_MAGIC
            || footer.check != check
            || footer.chunks > abi::NVABI_TRACE_CHUNKS_MAX
        {
            return Ok(None);
        }
        let (mut chunks, mut at) = (Vec::new(), footer.index);
        while at < end {
            let header = self.header(at)?.filter(|header| header.kind == kind::INDEX);
            let Some(chunk) = header else { return Ok(None) };
            let bytes = match self.payload(&Index { offset: at, chunk }) {
                Ok(bytes) => bytes,
                Err(error) if error.problem().is_unread() => return Err(error),
                Err(_) => return Ok(None),
            };
            chunks.extend(bytes.chunks(INDEX).map_while(|entry| record::<Index>(entry, 0)));
            if chunks.len() > footer.chunks as usize {
                return Ok(None);
            }
            at += CHUNK + padded(u64::from(chunk.stored));
        }
        Ok((chunks.len() == footer.chunks as usize).then_some(chunks))
    }

    /// The header of a chunk, if one is there and lies in the file with its bytes.
    fn header(&self, at: u64) -> Result<Option<Chunk>, Error> {
        Ok(self.input.record::<Chunk>(at)?.filter(|header| self.is_whole(at, header)))
    }

    fn is_whole(&self, at: u64, header: &Chunk) -> bool {
        header.magic == abi::NVABI_TRACE_CHUNK_MAGIC
            && header.check == header_check(header.as_bytes())
            && CHUNK + u64::from(header.stored) <= self.input.left(at)
    }

    /// Finds the chunks one after another. What is damaged is passed over up to the next header.
    fn scan(&mut self) -> Result<(), Error> {
        let mut at = size_of::<File>() as u64;
        let (mut gap, mut window, end) = (None, Window::default(), self.size());
        while at + CHUNK <= end {
            // Within a gap each eighth byte is looked at.
            let most = if gap.is_some() { READ } else { CHUNK as usize };
            let bytes = window.get(&self.input, at, CHUNK as usize, most, end)?;
            let header = record::<Chunk>(bytes, 0).filter(|header| self.is_whole(at, header));
            let Some(header) = header else {
                gap = gap.or(Some(at));
                at += 8;
                continue;
            };
            if let Some(from) = gap.take() {
                self.lose(from, at);
            }
            if header.kind == kind::INDEX {
                // What was written last is damaged; that does not touch the chunks.
                gap = None;
                break;
            }
            if self.chunks.len() == abi::NVABI_TRACE_CHUNKS_MAX as usize {
                let (value, limit) = (self.chunks.len() as u64 + 1, self.chunks.len() as u64);
                let what = "the number of chunks";
                return Err(self.error(at, Problem::Invalid { what, value, limit }));
            }
            self.chunks.push(Index { offset: at, chunk: header });
            at += CHUNK + padded(u64::from(header.stored));
        }
        match gap {
            Some(from) => self.lose(from, end),
            None if at < end && self.header(at)?.is_none() => self.lose(at, end),
            None => {}
        }
        Ok(())
    }

    fn lose(&mut self, from: u64, to: u64) {
        let what = match to == self.size() {
            true => "the file was not closed: its last chunk is cut off",
            false => "damaged: no chunk begins here; the next whole one was taken",
        };
        self.damage.push(self.error(from, Problem::Damaged(what)));
    }

    /// The bytes of a chunk as they were before they were compressed.
    pub(crate) fn payload(&self, place: &Index) -> Result<Vec<u8>, Error> {
        let Index { offset, chunk } = place;
        let damaged = |what| self.error(*offset, Problem::Damaged(what));
        if self.header(*offset)? != Some(*chunk) {
            let what = "damaged: the header of the chunk is not what the index says";
            return Err(damaged(what));
        }
        let limit = u64::from(abi::NVABI_TRACE_CHUNK_MAX);
        for (what, value, at) in [
            ("the size of a chunk", u64::from(chunk.size), 28),
            ("the stored size of a chunk", u64::from(chunk.stored), 24),
        ] {
            if value > limit {
                return Err(self.error(*offset + at, Problem::Invalid { what, value, limit }));
            }
        }
        let start = *offset + CHUNK;
        let read = |stored: &mut [u8]| {
            self.input.read(start, stored)?;
            match crc32fast::hash(stored) == chunk.payload_check {
                true => Ok(()),
                false => {
                    Err(damaged("damaged: the bytes of the chunk do not match their checksum"))
                }
            }
        };
        let bytes = match chunk.codec {
            STORED => {
                let mut bytes = vec![0; chunk.stored as usize];
                read(&mut bytes)?;
                bytes
            }
            ZSTD => COMPRESSED.with_borrow_mut(|stored| {
                stored.resize(chunk.stored as usize, 0);
                read(stored)?;
                let bytes = zstd::bulk::decompress(stored, chunk.size as usize);
                bytes.map_err(|_| damaged("damaged: the chunk cannot be decompressed"))
            })?,
            _ => {
                let what = "the chunk is compressed in a way that nvabi does not know";
                return Err(damaged(what));
            }
        };
        match bytes.len() == chunk.size as usize {
            true => Ok(bytes),
            false => Err(damaged("damaged: the chunk has another size than it says")),
        }
    }

    /// As `payload`; where the chunk of another file is the same, its bytes serve for both.
    pub(super) fn payload_beside(
        &self,
        place: &Index,
        twin: Option<&OpenChunk<'_>>,
    ) -> Result<Shared, Error> {
        match twin {
            Some(twin) if self.is_stored_alike(place, twin)? => Ok(twin.bytes.clone()),
            _ => self.payload(place).map(Arc::new),
        }
    }

    fn is_stored_alike(&self, place: &Index, twin: &OpenChunk<'_>) -> Result<bool, Error> {
        let about = |chunk: &Chunk| (chunk.codec, chunk.stored, chunk.size, chunk.payload_check);
        if about(&place.chunk) != about(&twin.place.chunk)
            || self.header(place.offset)? != Some(place.chunk)
        {
            return Ok(false);
        }
        let (own, other) = (place.offset + CHUNK, twin.place.offset + CHUNK);
        let stored = u64::from(place.chunk.stored);
        ALIKE.with_borrow_mut(|[a, b]| {
            for from in (0..stored).step_by(READ) {
                let len = (stored - from).min(READ as u64) as usize;
                for (bytes, file, at) in [(&mut *a, self, own), (&mut *b, twin.file, other)] {
                    bytes.resize(len, 0);
                    file.input.read(at + from, bytes)?;
                }
                if a != b {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Sorts the chunks to modules and launches.
    fn gather(&mut self) -> Result<(), Error> {
        let mut by_number: BTreeMap<u32, usize> = BTreeMap::new();
        let mut site_bytes = 0;
        for at in 0..self.chunks.len() {
            let Some(place) = self.chunks.get(at).copied() else { break };
            let owner = place.chunk.owner;
            if self.header(place.offset)? != Some(place.chunk) {
                let what = "damaged: the header of the chunk is not what the index says";
                self.damage.push(self.error(place.offset, Problem::Damaged(what)));
            }
            match place.chunk.kind {
                kind::SITES => {
                    site_bytes += u64::from(place.chunk.size);
                    let limit = u64::from(abi::NVABI_TRACE_SITES_MAX);
                    if site_bytes > limit {
                        let (what, value) = ("the size of all site tables", site_bytes);
                        let problem = Problem::Invalid { what, value, limit };
                        return Err(self.error(place.offset, problem));
                    }
                    let added = self.payload(&place).and_then(|bytes| {
                        let table = self.modules.entry(owner).or_default();
                        table.add(bytes).map_err(|(_, what)| {
                            self.input.error(place.offset, Problem::Damaged(what))
                        })
                    });
                    self.damage.extend(added.err());
                }
                kind::LAUNCH => match self.launch(&place) {
                    Ok(launch) => {
                        by_number.insert(owner, self.launches.len());
                        self.launches.push(launch);
                    }
                    Err(error) => self.damage.push(error),
                },
                kind::EVENTS | kind::END => {
                    let end = match place.chunk.kind {
                        kind::END => Some(self.payload(&place)),
                        _ => None,
                    };
                    let launch = by_number.get(&owner).and_then(|at| self.launches.get_mut(*at));
                    match (launch, end) {
                        (Some(launch), None) => launch.events.push(at as u32),
                        (Some(launch), Some(Ok(bytes))) => {
                            launch.end = record(&bytes, 0).map(|end| (place.chunk.number, end));
                        }
                        (Some(_), Some(Err(error))) => self.damage.push(error),
                        (None, _) => {
                            let what = "damaged: events of a launch that is not there";
                            self.damage.push(self.error(place.offset, Problem::Damaged(what)));
                        }
                    }
                }
                _ => {
                    let what = "a chunk of a kind that nvabi does not know";
                    self.damage.push(self.error(place.offset, Problem::Damaged(what)));
                }
            }
        }
        Ok(())
    }

    fn launch(&self, place: &Index) -> Result<V2Launch, Error> {
        let bytes = self.payload(place)?;
        let damaged = |what| self.error(place.offset, Problem::Damaged(what));
        let record: Launch = record(&bytes, 0).ok_or_else(|| damaged("no record of a launch"))?;
        let name = bytes.get(size_of::<Launch>()..).unwrap_or_default();
        if name.len() != record.kernel as usize {
            return Err(damaged("the name of a kernel has another length than it says"));
        }
        let kernel = String::from_utf8_lossy(name).into_owned();
        Ok(V2Launch { record, kernel, number: place.chunk.number, end: None, events: Vec::new() })
    }
}

/// Bytes that several share.
pub(crate) type Shared = Arc<Vec<u8>>;

/// A chunk of another file that may be the same, with its bytes once decompressed.
#[derive(Debug)]
pub(crate) struct OpenChunk<'a> {
    pub(super) file: &'a V2,
    pub(super) place: Index,
    pub(super) bytes: Shared,
}
