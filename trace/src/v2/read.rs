//! Opens a file: finds its chunks, by the index or, where that is not whole, one after another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::events::V2Warps;
use super::sites::SiteTable;
use super::{FOOTER_MAGIC, STORED, ZSTD, header_check, kind, padded};
use crate::abi::r2 as abi;
use crate::error::{Error, Problem};
use crate::map::{Map, fits, record};
use crate::records::{Chunk, End, File, Footer, Index, Launch};

const CHUNK: u64 = size_of::<Chunk>() as u64;
const INDEX: usize = size_of::<Index>();
/// Bytes after which memory is given back.
const RELEASE: u64 = 1 << 20;
const FOOTER: u64 = size_of::<Footer>() as u64;

/// A file of v2.
#[derive(Debug)]
pub(crate) struct V2 {
    path: PathBuf,
    map: Map,
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
    pub(crate) fn open(path: &Path, map: Map) -> Result<Self, Error> {
        fits(path, &map, 0, "the header", size_of::<File>() as u64)?;
        let header = record::<File>(&map, 0);
        let header = header.ok_or_else(|| Error::new(path, 0, Problem::NotATrace))?;
        if header.version != abi::NVABI_TRACE_VERSION {
            return Err(Error::new(path, 8, Problem::Version(header.version)));
        }
        if header.size as usize != size_of::<File>() {
            let limit = size_of::<File>() as u64;
            let value = u64::from(header.size);
            let problem = Problem::Invalid { what: "the size of the header", value, limit };
            return Err(Error::new(path, 12, problem));
        }
        let mut file = Self {
            path: path.to_owned(),
            map,
            chunks: Vec::new(),
            modules: BTreeMap::new(),
            launches: Vec::new(),
            damage: Vec::new(),
            closed: false,
        };
        match file.indexed() {
            Some(chunks) => (file.chunks, file.closed) = (chunks, true),
            None => file.scan()?,
        }
        file.gather()?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
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
        Error::new(&self.path, offset, problem)
    }

    /// The chunks by the index; `None` when any of it is not as it was written.
    fn indexed(&self) -> Option<Vec<Index>> {
        let end = (self.map.len() as u64).checked_sub(FOOTER)?;
        let footer: Footer = record(&self.map, end as usize)?;
        let check = crc32fast::hash(footer.as_bytes().get(..12)?);
        if footer.magic != FOOTER_MAGIC || footer.check != check {
            return None;
        }
        if footer.chunks > abi::NVABI_TRACE_CHUNKS_MAX {
            return None;
        }
        let (mut chunks, mut at) = (Vec::new(), footer.index);
        while at < end {
            let header = self.header(at)?;
            let wanted = kind::INDEX == header.kind;
            let bytes =
                self.payload(&Index { offset: at, chunk: header }).ok().filter(|_| wanted)?;
            chunks.extend(bytes.chunks(INDEX).map_while(|entry| record::<Index>(entry, 0)));
            if chunks.len() > footer.chunks as usize {
                return None;
            }
            at += CHUNK + padded(u64::from(header.stored));
        }
        (chunks.len() == footer.chunks as usize).then_some(chunks)
    }

    /// The header of a chunk, if one is there and lies in the file with its bytes.
    fn header(&self, at: u64) -> Option<Chunk> {
        let (at, left) = (usize::try_from(at).ok()?, (self.map.len() as u64).checked_sub(at)?);
        let header: Chunk = record(&self.map, at)?;
        let whole = header.magic == abi::NVABI_TRACE_CHUNK_MAGIC
            && header.check == header_check(header.as_bytes())
            && CHUNK + u64::from(header.stored) <= left;
        whole.then_some(header)
    }

    /// Finds the chunks one after another. What is damaged is passed over up to the next header.
    fn scan(&mut self) -> Result<(), Error> {
        let mut at = size_of::<File>() as u64;
        let (mut gap, mut read) = (None, at);
        while at + CHUNK <= self.map.len() as u64 {
            let Some(header) = self.header(at) else {
                gap = gap.or(Some(at));
                at += 8;
                self.give_back(&mut read, at);
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
            self.give_back(&mut read, at);
            at += CHUNK + padded(u64::from(header.stored));
        }
        let end = self.map.len() as u64;
        match gap {
            Some(from) => self.lose(from, end),
            None if at < end && self.header(at).is_none() => self.lose(at, end),
            None => {}
        }
        Ok(())
    }

    /// Gives back, from time to time, the memory of headers that were read: each takes more than itself.
    fn give_back(&self, read: &mut u64, at: u64) {
        if at.abs_diff(*read) > RELEASE {
            self.map.release(at.min(*read) as usize..at.max(*read) as usize);
            *read = at;
        }
    }

    fn lose(&mut self, from: u64, to: u64) {
        let what = match to == self.map.len() as u64 {
            true => "the file was not closed: its last chunk is cut off",
            false => "damaged: no chunk begins here; the next whole one was taken",
        };
        self.damage.push(self.error(from, Problem::Damaged(what)));
    }

    /// The bytes of a chunk as they were before they were compressed.
    pub(crate) fn payload(&self, place: &Index) -> Result<Vec<u8>, Error> {
        let Index { offset, chunk } = place;
        let damaged = |what| Err(self.error(*offset, Problem::Damaged(what)));
        if self.header(*offset) != Some(*chunk) {
            return damaged("damaged: the header of the chunk is not what the index says");
        }
        let start = *offset as usize + CHUNK as usize;
        let stored = self.map.get(start..start + chunk.stored as usize).unwrap_or_default();
        if crc32fast::hash(stored) != chunk.payload_check {
            return damaged("damaged: the bytes of the chunk do not match their checksum");
        }
        let limit = u64::from(abi::NVABI_TRACE_CHUNK_MAX);
        if u64::from(chunk.size) > limit {
            let (what, value) = ("the size of a chunk", u64::from(chunk.size));
            return Err(self.error(*offset + 28, Problem::Invalid { what, value, limit }));
        }
        let bytes = match chunk.codec {
            STORED => stored.to_vec(),
            ZSTD => match zstd::bulk::decompress(stored, chunk.size as usize) {
                Ok(bytes) => bytes,
                Err(_) => return damaged("damaged: the chunk cannot be decompressed"),
            },
            _ => return damaged("the chunk is compressed in a way that nvabi does not know"),
        };
        let end = start + chunk.stored as usize;
        self.map.release(*offset as usize..end);
        match bytes.len() == chunk.size as usize {
            true => Ok(bytes),
            false => damaged("damaged: the chunk has another size than it says"),
        }
    }

    /// As `payload`; where the chunk of another file is the same, its bytes serve for both.
    pub(super) fn payload_beside(
        &self,
        place: &Index,
        twin: Option<&Twin<'_>>,
    ) -> Result<Shared, Error> {
        match twin.filter(|twin| self.is_stored_alike(place, twin)) {
            Some(twin) => Ok(twin.bytes.clone()),
            None => self.payload(place).map(Arc::new),
        }
    }

    fn is_stored_alike(&self, place: &Index, twin: &Twin<'_>) -> bool {
        let about = |chunk: &Chunk| (chunk.codec, chunk.stored, chunk.size, chunk.payload_check);
        if about(&place.chunk) != about(&twin.place.chunk)
            || self.header(place.offset) != Some(place.chunk)
        {
            return false;
        }
        let range = |place: &Index| {
            let start = place.offset as usize + CHUNK as usize;
            start..start + place.chunk.stored as usize
        };
        let (own, other) = (range(place), range(&twin.place));
        let alike = self.map.get(own.clone()) == twin.file.map.get(other.clone());
        self.map.release(own);
        twin.file.map.release(other);
        alike
    }

    /// Sorts the chunks to modules and launches.
    fn gather(&mut self) -> Result<(), Error> {
        let mut by_number: BTreeMap<u32, usize> = BTreeMap::new();
        let (mut site_bytes, mut read) = (0, 0);
        for at in 0..self.chunks.len() {
            let Some(place) = self.chunks.get(at).copied() else { break };
            let owner = place.chunk.owner;
            if self.header(place.offset) != Some(place.chunk) {
                let what = "damaged: the header of the chunk is not what the index says";
                self.damage.push(self.error(place.offset, Problem::Damaged(what)));
            } else {
                self.give_back(&mut read, place.offset);
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
                            Error::new(&self.path, place.offset, Problem::Damaged(what))
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
pub(crate) struct Twin<'a> {
    pub(super) file: &'a V2,
    pub(super) place: Index,
    pub(super) bytes: Shared,
}
