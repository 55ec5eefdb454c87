//! A simulated Tegra kernel: runs an unmodified program as if it were on a Jetson Orin.
//!
//! ```text
//! program ── system call ──► seccomp filter ──► supervisor ──► kernel
//!    ▲                                              │            │  plain data: the drivers' rules
//!    └── result, injected descriptor, memory ───────┴────────────┘
//!    └── doorbell in mapped memory ──► poller ──► engine: rings, pushbuffers, copies, semaphores
//! ```
//!
//! The program makes real system calls, in any language. A filter stops those that could be about
//! `/dev/nvmap`, `/dev/nvgpu/igpu0/*`, `/dev/host1x-fence` and `/sys/class/devfreq/17000000.gpu`; all
//! others, and those that turn out not to be, go through to the real kernel.
//!
//! [`run`] is the whole interface. The simulated kernel does what L4T r36 does: the order of its
//! checks, its errors, its addresses, its lifetimes. Other releases have their own requests and
//! layouts, and r36's rules but for a few. It executes copies, fills, inline data and
//! semaphores. Shaders it does not: a launch is decoded, reported and failed by the error notifier.
//!
//! What differs: a pollfd stays readable until it is triggered again; under another debugger a child
//! made by `fork` inherits the mappings of dma-bufs and of the doorbell, and `NVMAP_IOC_FREE` of a
//! descriptor leaves `/dev/null` in its place; the graphics context takes about as many addresses of the
//! kernel window as the real one.

mod abi;
mod fault;
mod kernel;
mod limits;
mod log;
mod memory;
mod release;
mod report;
mod supervisor;

use std::io;
use std::process::{Command, ExitStatus};

pub use fault::{Effect, Fault};
pub use kernel::Errno;
pub use log::{Count, Diagnostic, Leak};
pub use release::Release;
pub use report::Report;

/// What to simulate.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whose drivers.
    pub release: Release,
    /// Calls that are to fail or to take long.
    pub faults: Vec<Fault>,
    /// Whether SIGHUP, SIGINT and SIGTERM are passed on to the program instead of ending this process,
    /// and what the program left ended by a second one. For processes that have no other threads.
    pub pass_signals: bool,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// How the program ended.
    pub status: ExitStatus,
    /// What was seen of it and of the processes it made.
    pub report: Report,
}

/// Runs a program on the simulated kernel until it and all its descendants have ended.
///
/// # Errors
///
/// When the program cannot be started, or this machine does not permit seccomp user notification:
/// [`io::ErrorKind::Unsupported`].
pub fn run(command: &mut Command, options: &Options) -> io::Result<Outcome> {
    supervisor::run(command, options)
}

/// Whether this machine permits what [`run`] needs; if not, why.
///
/// # Errors
///
/// The reason.
pub fn check_support() -> io::Result<()> {
    supervisor::check_support()
}
