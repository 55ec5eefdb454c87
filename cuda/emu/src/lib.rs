//! A GPU for machines without one: runs PTX as clang emits it for sm_80 and sm_90, and the machine code (SASS) that
//! ptxas makes for sm_80 to sm_90.
//!
//! ```text
//! PTX text ─► ptx (syntax) ─► program (typed operations, reconvergence points) ─┐
//! cubin ────────────────────► sass (plain operations) ──────────────────────────┤
//!                                     ┌─────────────────────────────────────────┘
//! Device: memory, modules ─► run: grid ─► block ─► warp ─► lanes (what an instruction computes)
//!                                              │
//!                                              └─► Report: findings, printf, events
//! ```
//!
//! A warp is 32 lanes in lockstep; lanes that a branch parts meet again at its immediate
//! post-dominator. The device's memory is this process's own, so that its addresses can be handed to
//! programs. Every access is checked, and shared memory has a shadow that finds reads of what nobody
//! wrote, and data races between warps.
//!
//! ```
//! use nvabi_emu::{Args, Device, Launch};
//!
//! let ptx = ".version 8.3\n.target sm_80\n.address_size 64\n
//!     .visible .entry twice(.param .u64 data) {
//!         .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!         ld.param.u64 %rd1, [data];
//!         mov.u32 %r1, %tid.x;
//!         mul.wide.u32 %rd2, %r1, 4;
//!         add.s64 %rd3, %rd1, %rd2;
//!         ld.global.u32 %r2, [%rd3];
//!         shl.b32 %r2, %r2, 1;
//!         st.global.u32 [%rd3], %r2;
//!         ret;
//!     }";
//! let mut device = Device::new();
//! let module = device.load(ptx)?;
//! let data = device.alloc(16)?;
//! device.write(data, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])?;
//! let launch = Launch { block: [4, 1, 1], ..Launch::default() };
//! let report = device.launch(&module, "twice", &launch, &Args::new().u64(data))?;
//! assert!(report.findings.is_empty());
//! let mut bytes = [0; 16];
//! device.read(data, &mut bytes)?;
//! assert_eq!(bytes, [2, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod clock;
mod device;
mod error;
mod lanes;
mod memory;
mod program;
mod ptx;
mod report;
mod run;
mod sass;
mod texture;
mod time;

pub use blocks::Blocks;
pub use device::{
    Args, Device, Launch, MAX_BLOCK_THREADS, MAX_LAUNCH_BYTES, MAX_LOCAL_BYTES, MAX_SHARED_BYTES,
    Module, Placed, RESERVED_SHARED_BYTES, Schedule,
};
pub use error::{DeviceError, LoadError};
pub use memory::{Foreign, Order, SharedRange};
pub use report::{
    Event, EventKind, Finding, FindingKind, MemoryAccess, Report, Severity, SourceLocation,
    WarpEvents,
};
pub use texture::{
    Addressing, ChannelSource, Comparison, Image, Layout, MipmapSampler, NoTexture, Rows, Sampler,
    Texel, TexelKind, Texture, Textures,
};
pub use time::Time;
