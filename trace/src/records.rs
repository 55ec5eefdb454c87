//! The records of the files, as Rust has them: each is compared with `include/nvabi_trace.h`, field
//! by field, while this compiles. Bytes become records and back through zerocopy alone.
#![allow(missing_docs, reason = "the header says what the fields mean")]

use nvabi::NvProxy;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// At the start of a file of version 2.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_file", crate = "crate::abi")]
#[repr(C)]
pub struct File {
    pub magic: [u8; 8],
    pub version: u32,
    pub size: u32,
}

/// Before each chunk.
#[derive(
    NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq,
)]
#[nvproxy(name = "nvabi_trace_chunk", crate = "crate::abi")]
#[repr(C)]
pub struct Chunk {
    pub magic: u32,
    pub check: u32,
    pub payload_check: u32,
    pub kind: u16,
    pub codec: u16,
    pub number: u32,
    pub owner: u32,
    pub stored: u32,
    pub size: u32,
    pub first_warp: u32,
    pub last_warp: u32,
}

/// A part of a module's site table.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_sites", crate = "crate::abi")]
#[repr(C)]
pub struct Sites {
    pub first: u32,
    pub count: u32,
    pub strings: u32,
    pub flags: u32,
}

/// A place in the program that records events.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_site", crate = "crate::abi")]
#[repr(C)]
pub struct Site {
    pub key: u64,
    pub file: u32,
    pub function: u32,
    pub inlined: u32,
    pub line: u32,
    pub column: u32,
    pub ordinal: u16,
    pub kind: u8,
    pub bytes: u8,
}

/// A launch.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_launch", crate = "crate::abi")]
#[repr(C)]
pub struct Launch {
    pub module_hash: [u8; 32],
    pub stream: u64,
    pub order: u64,
    pub session: u32,
    pub module: u32,
    pub arch: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub warps: u32,
    pub words_per_warp: u32,
    pub sample_every: u32,
    pub reserved: u32,
    pub kernel: u32,
}

/// Before the words of one warp.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_warp", crate = "crate::abi")]
#[repr(C)]
pub struct Warp {
    pub warp: u32,
    pub words: u32,
    pub events: u32,
    pub dropped: u32,
}

/// The first word of an event.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_event", crate = "crate::abi")]
#[repr(C)]
pub struct Word {
    pub site: u32,
    pub mask: u32,
}

/// Follows a branch where the active lanes disagree.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_ballot", crate = "crate::abi")]
#[repr(C)]
pub struct Ballot {
    pub taken: u32,
    pub way: u32,
}

/// The end of a launch.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_end", crate = "crate::abi")]
#[repr(C)]
pub struct End {
    pub events: u64,
    pub dropped: u64,
    pub warps: u32,
    pub flags: u32,
}

/// Where a chunk is.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_index", crate = "crate::abi", flatten)]
#[repr(C)]
pub struct Index {
    pub offset: u64,
    pub chunk: Chunk,
}

/// The last bytes of a file that was closed.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_footer", crate = "crate::abi")]
#[repr(C)]
pub struct Footer {
    pub index: u64,
    pub chunks: u32,
    pub check: u32,
    pub magic: [u8; 8],
}

/// At the start of a file of gddbg v1.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_v1_file", crate = "crate::abi")]
#[repr(C)]
pub struct V1File {
    pub magic: [u8; 12],
    pub version: u32,
    pub flags: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub warps: u32,
    pub events_per_warp: u32,
    pub reserved: [u32; 3],
    pub kernel: [u8; 64],
}

/// Before the events of a warp in gddbg v1.
#[derive(NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug)]
#[nvproxy(name = "nvabi_trace_v1_warp", crate = "crate::abi")]
#[repr(C)]
pub struct V1Warp {
    pub write_index: u32,
    pub dropped: u32,
    pub events: u32,
    pub total: u32,
}

/// An event of gddbg v1.
#[derive(
    NvProxy, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq,
)]
#[nvproxy(name = "nvabi_trace_v1_event", crate = "crate::abi")]
#[repr(C)]
pub struct V1Event {
    pub site: u32,
    pub kind: u8,
    pub direction: u8,
    pub reserved: u16,
    pub mask: u32,
    pub value: u32,
}
