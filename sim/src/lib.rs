//! Simulated drivers: run an unmodified program on a machine that seems to have a GPU.
//!
//! ```text
//! program ── system call ──► seccomp filter ──► supervisor ──► machine
//!    ▲                                              │            │  plain data: the drivers' rules
//!    └── result, injected descriptor, memory ───────┴────────────┘
//!    └── doorbell in mapped memory ──► poller ──► the machine's engines
//! ```
//!
//! The program makes real system calls, in any language. A filter stops those that could be about a
//! file that the machine has; all others, and those that turn out not to be, go through to the real
//! kernel.
//!
//! One supervisor serves every machine: [`rm`] simulates the x86 driver's resource manager and UVM, of any
//! driver whose layouts the caller gives; `tegra` (feature `tegra`) simulates a Jetson Orin.

// What only a Jetson has is there without one.
#![cfg_attr(not(feature = "tegra"), allow(dead_code, unused_imports))]

mod backing;
mod client;
mod fault;
mod files;
mod gpu;
mod limits;
mod log;
mod machine;
pub(crate) mod memory;
mod patience;
pub mod profile;
mod report;
pub mod rm;
mod status;
mod supervisor;
#[cfg(feature = "tegra")]
pub mod tegra;
pub mod topology;

use std::process::ExitStatus;

pub use fault::{Effect, Fault};
pub use log::{Count, Diagnostic, Leak};
pub use machine::GpuUse;
pub use nvabi_supervise::Errno;
pub use report::Report;
pub use status::Status;
pub use supervisor::{Event, Running, spawn};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended.
    pub status: ExitStatus,
    /// What was seen of it and of the processes it made.
    pub report: Report,
}
