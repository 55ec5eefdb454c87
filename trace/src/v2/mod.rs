//! nvtrace v2: several launches, their sites, and events in chunks that are checked and compressed one
//! by one. `docs/trace.md` has the format.

mod events;
mod read;
mod sites;
mod write;

pub(crate) use events::{Found, Mark, V2Cursor, V2Events, V2Warps};
pub(crate) use read::{OpenChunk, V2, V2Launch};
pub use sites::SiteRow;
pub(crate) use sites::SiteTable;
pub use write::V2Writer;

use super::abi::r2 as abi;

/// `NVABI_TRACE_MAGIC` and a zero byte.
const MAGIC: [u8; 8] = *b"NVTRACE\0";
/// `NVABI_TRACE_FOOTER_MAGIC` and a zero byte.
const FOOTER_MAGIC: [u8; 8] = *b"NVTREND\0";

/// Whether a file starts as one of v2 does.
pub(crate) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Kinds of chunks, as they stand in [`Chunk::kind`](super::records::Chunk::kind).
mod kind {
    use super::abi;

    pub(super) const SITES: u16 = abi::NVABI_TRACE_CHUNK_SITES as u16;
    pub(super) const LAUNCH: u16 = abi::NVABI_TRACE_CHUNK_LAUNCH as u16;
    pub(super) const EVENTS: u16 = abi::NVABI_TRACE_CHUNK_EVENTS as u16;
    pub(super) const END: u16 = abi::NVABI_TRACE_CHUNK_END as u16;
    pub(super) const INDEX: u16 = abi::NVABI_TRACE_CHUNK_INDEX as u16;
}

const STORED: u16 = abi::NVABI_TRACE_STORED as u16;
const ZSTD: u16 = abi::NVABI_TRACE_ZSTD as u16;

/// The checksum of a chunk's header: of what stands behind the checksum.
fn header_check(header: &[u8]) -> u32 {
    crc32fast::hash(header.get(8..).unwrap_or_default())
}

/// Bytes up to the next multiple of 8.
fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(8)
}
