//! The structs of `include/nvabi-alloc.h`, the interface for applications, as Rust has them.

use std::ffi::c_char;

use super::abi::{Pointer, RawDetail, RawImage, RawPlane};
use nvabi::NvProxy;

/// `NVABI_ALLOC_VERSION`.
pub const VERSION: u32 = super::abi::header::r1::NVABI_ALLOC_VERSION;

/// What one device does with memory.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_alloc_use", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawUse {
    /// The device's name.
    pub device: Pointer<*const c_char>,
    /// What it does.
    pub operation: u32,
    /// How many details.
    pub detail_count: u32,
    /// So many.
    pub details: Pointer<*const RawDetail>,
}

/// All that is to be done with memory.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_alloc_usage", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawUsage {
    /// The caller's size of this.
    pub struct_size: u32,
    /// How many uses.
    pub use_count: u32,
    /// How many details.
    pub detail_count: u32,
    /// Zero.
    pub reserved: u32,
    /// What every device must support.
    pub image: RawImage,
    /// So many.
    pub uses: Pointer<*const RawUse>,
    /// So many.
    pub details: Pointer<*const RawDetail>,
}

/// Memory that was made.
#[derive(NvProxy, Debug, Clone, Copy)]
#[nvproxy(name = "nvabi_alloc_buffer", crate = "crate::plugin::abi::header")]
#[repr(C)]
pub struct RawBuffer {
    /// The caller's size of this: no more is written.
    pub struct_size: u32,
    /// How many planes.
    pub plane_count: u32,
    /// DRM format modifier.
    pub modifier: u64,
    /// Bytes of all planes.
    pub size: u64,
    /// The planes.
    pub planes: [RawPlane; 4],
    /// A file descriptor for each; others are -1.
    pub fds: [i32; 4],
    /// The device that made it, up to a zero byte.
    pub allocator: [u8; 64],
}
