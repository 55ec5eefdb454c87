//! The x86 driver's resource manager and UVM, as far as programs enumerate GPUs and use memory and events.
//!
//! Every request, size and layout is that of the driver that [`Interface`] describes, found at run time by
//! the names of structs and fields: one build simulates any driver. The rules are those of 550.163.01, with
//! what differs in older drivers where it was found.
//!
//! Rules are cited by the driver's file and line in 550.163.01: `N` is `kernel-open/nvidia`, `A` is
//! `src/nvidia/arch/nvalloc/unix/src`, `R` is `src/nvidia/src/kernel/rmapi`, `S` is
//! `src/nvidia/src/libraries/resserv/src`.

mod accounts;
mod alloc;
mod capabilities;
mod channel;
mod control;
mod counters;
mod dma_buf;
mod energy;
mod events;
mod external;
mod failed;
mod flags;
mod frontend;
mod gpu;
mod handles;
mod inject;
mod interface;
mod load;
mod machine;
mod managed;
mod memory;
mod mig;
mod pages;
mod paths;
pub mod recorded;
mod residence;
mod server;
mod shared;
mod space;
mod tools;
mod uvm;
mod window;

use std::io;
use std::process::Command as Program;
use std::sync::Arc;

use super::fault::Faults;
use super::files::{FileId, Files};
use super::gpu::Clock;
use super::log::Log;
use super::profile::Profile;
use super::supervisor;
use super::topology::{Spots, Topology};
use channel::Channels;
use counters::Counters;
use dma_buf::DmaBuf;
use events::{OsEvent, Queue};
use gpu::Gpu;
use memory::{Buffer, MapContext};
use server::Server;
use shared::Shown;
use tools::Tracker;
use uvm::Uvm;

pub use super::{
    Count, Diagnostic, Effect, Errno, Event, Fault, GpuUse, Leak, Outcome, Report, Running, Status,
};
pub(crate) use control::is_answered_in_code;
pub use inject::{EccMemory, Injected, Injection};
pub use interface::{CONSTANTS, Class, Command, Field, Interface, Ioctl, Layout};
pub(crate) use interface::{FieldRange, offset_field};

/// The most GPUs that there can be.
pub const MAX_GPUS: u32 = 8;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which driver.
    pub interface: Arc<Interface>,
    /// What it calls itself, where that is not the version of its interface.
    pub version: Option<String>,
    /// The machine's GPUs, in the order of their minor numbers: one at least, [`MAX_GPUS`] at most.
    pub gpus: Vec<Arc<Profile>>,
    /// Where they are, in the same order; without one each is at a port of its own, near no node of memory.
    pub topology: Option<Topology>,
    /// Whether what is not simulated succeeds and changes nothing, which is told.
    pub is_lenient: bool,
    /// Whether the program of a launch may be PTX text, which no GPU takes.
    pub takes_ptx: bool,
    /// Calls that are to fail or to take long.
    pub faults: Vec<Fault>,
    /// Whether SIGHUP, SIGINT and SIGTERM are passed on to the program instead of ending this process,
    /// and what the program left ended by a second one. For processes that have no other threads.
    pub pass_signals: bool,
    /// Who is told of diagnostics as they come; the report has them too. It is called by a thread of its own.
    pub live: Option<fn(&Diagnostic)>,
}

/// Runs a program on the simulated driver until it and all its descendants have ended.
///
/// # Errors
///
/// When the program cannot be started, or a fault names no call, or this system does not permit seccomp
/// user notification: [`io::ErrorKind::Unsupported`].
pub fn run(command: &mut Program, options: &Options) -> io::Result<Outcome> {
    let driver = Box::new(driver(options)?);
    supervisor::run(command, driver, options.pass_signals, options.live)
}

/// A simulated machine that is up: programs begin and end on it, and share what it has. When it goes, it must have
/// none left.
pub struct Machine(supervisor::Host);

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

impl Machine {
    /// A machine without programs. Signals and diagnostics are those of programs: of the options they are not used.
    ///
    /// # Errors
    ///
    /// When a fault names no call, or there are too many GPUs.
    pub fn start(options: &Options) -> io::Result<Self> {
        Ok(Self(supervisor::Host::start(Box::new(driver(options)?))?))
    }

    /// Begins a program in a session of its own. Diagnostics are told as they come, by a thread of their own.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub fn begin(
        &self,
        command: &mut Program,
        live: impl FnMut(&Diagnostic) + Send + 'static,
    ) -> io::Result<Running> {
        let how = supervisor::Begin { mask: None, is_apart: true };
        self.0.begin(command, how, Some(Box::new(live)))
    }

    /// Its GPUs.
    pub fn gpus(&self) -> Vec<GpuUse> {
        self.0.machine().gpus()
    }

    /// Lets something happen to one of its GPUs, by its index. Programs that wait for such an event get it.
    ///
    /// # Errors
    ///
    /// When there is no such GPU, or it is lost, or this cannot happen to it.
    pub fn inject(&self, gpu: usize, what: Injection) -> io::Result<Injected> {
        self.0.machine().inject(gpu, what)
    }

    /// What a running program has of it, by [`Running::number`].
    pub fn usage(&self, run: u64) -> Usage {
        let mut machine = self.0.machine();
        let memory = machine.memory_of(run);
        let Report { calls, diagnostics, repeated_diagnostics, .. } = machine.log().report(run);
        Usage {
            memory,
            calls: calls.values().map(|count| count.total).sum(),
            diagnostics: (diagnostics.len() + repeated_diagnostics) as u64,
        }
    }

    /// Removes the files that programs made for this machine alone, when none is left.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// Faults that were asked for, of calls that were not made so often.
    pub fn unmet_faults(&self) -> Vec<String> {
        self.0.machine().log().unmet_faults()
    }
}

/// What a program has and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of GPU memory.
    pub memory: u64,
    /// Calls to the simulated driver.
    pub calls: u64,
    /// Diagnostics that these led to.
    pub diagnostics: u64,
}

/// The driver that options describe, when nobody has called it.
fn driver(options: &Options) -> io::Result<Driver> {
    let faults = Faults::new(options.faults.clone(), &names(&options.interface))?;
    let version = options.version.clone().unwrap_or_else(|| options.interface.tag.clone());
    if options.gpus.is_empty() || options.gpus.len() > MAX_GPUS as usize {
        let message = format!("a machine has 1 to {MAX_GPUS} GPUs, not {}", options.gpus.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let interface = Arc::clone(&options.interface);
    let spots = spots(options)?;
    let driver = Driver::new(interface, version, &options.gpus, spots, Log::new(faults));
    if let Some(message) = driver.wrong_links() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let Options { is_lenient, takes_ptx, .. } = *options;
    Ok(Driver { is_lenient, takes_ptx, ..driver })
}

/// Where the machine's GPUs are.
fn spots(options: &Options) -> io::Result<Spots> {
    let count = options.gpus.len();
    let Some(topology) = &options.topology else { return Ok(Spots::apart(count)) };
    let places = topology.places();
    if count > places as usize {
        let message = format!("the topology has places for {places} GPUs, the machine has {count}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(Spots::of(topology, count))
}

/// All that a call can be called: an ioctl's name, the command of a control, the class of an allocation.
fn names(interface: &Interface) -> Vec<&str> {
    let ioctls = interface.ioctls.iter().map(|call| call.name.as_str());
    let commands = interface.commands.iter().map(|call| call.name.as_str());
    ioctls.chain(commands).chain(interface.classes.iter().map(|it| it.name.as_str())).collect()
}

/// Everything that the driver knows.
#[derive(Debug)]
pub(crate) struct Driver {
    interface: Arc<Interface>,
    /// What it calls itself.
    told_version: String,
    /// The numbers of its interface's version, which its rules are those of.
    version: Vec<u32>,
    files: Files<NvFile>,
    gpus: Vec<Gpu>,
    /// Where they are, and the files that tell it.
    spots: Spots,
    server: Server,
    /// Bytes of a block of memory, as the first process told (NV_ESC_SYS_PARAMS).
    memory_block: u64,
    events: Vec<OsEvent>,
    /// The number of the event, or of what stands for one, that was made last.
    last_event: u64,
    last_buffer: u64,
    /// Bytes that memory was said to take so far.
    last_address: u64,
    /// Memory that shows what GPUs say.
    shown: Shown,
    counters: Counters,
    channels: Channels,
    /// Time as GPUs count it.
    clock: Clock,
    /// Whether what is not simulated succeeds.
    is_lenient: bool,
    /// Whether programs of launches may be PTX text.
    takes_ptx: bool,
    /// Whether there are other files than when somebody asked last.
    has_other_entries: bool,
    log: Log,
}

/// An open file of the driver.
#[derive(Debug)]
struct NvFile {
    node: NodeKind,
    /// The control file that it was registered with.
    control: Option<FileId>,
    /// GPUs that are kept awake by it.
    attached: Vec<usize>,
    /// What it shows when it is mapped.
    shown: Option<MapContext>,
    /// What it stands for.
    exported: Option<Exported>,
    /// What a file of this kind is of.
    dma_buf: Option<DmaBuf>,
    uvm: Uvm,
    /// Whom it tells what of UVM's memory.
    tracker: Option<Arc<Tracker>>,
    events: Queue,
}

impl NvFile {
    fn new(node: NodeKind) -> Self {
        Self {
            node,
            control: None,
            attached: Vec::new(),
            shown: None,
            exported: None,
            dma_buf: None,
            uvm: Uvm::default(),
            tracker: None,
            events: Queue::default(),
        }
    }
}

/// Memory that a file stands for, for whoever has that.
#[derive(Debug, Clone)]
struct Exported {
    memory: Vec<Option<Arc<Buffer>>>,
    /// The device that it is of.
    device: u32,
    /// What the exporter says of it.
    metadata: [u8; 64],
}

/// What was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeKind {
    Control,
    Gpu(usize),
    Uvm,
    UvmTools,
    /// What lets a program use an instance, by its number.
    Capability(u32),
    /// Memory of a GPU, for other devices.
    DmaBuf,
}

impl NodeKind {
    /// What a person calls it.
    fn kind(self) -> &'static str {
        match self {
            Self::Control => "nvidiactl",
            Self::Gpu(_) => "nvidia",
            Self::Uvm => "nvidia-uvm",
            Self::UvmTools => "nvidia-uvm-tools",
            Self::Capability(_) => "nvidia-cap",
            Self::DmaBuf => "dma-buf",
        }
    }
}

impl Driver {
    fn new(
        interface: Arc<Interface>,
        told_version: String,
        gpus: &[Arc<Profile>],
        spots: Spots,
        log: Log,
    ) -> Self {
        let gpus = (0..).zip(gpus).zip(&spots.gpus).map(|((minor, profile), spot)| {
            Gpu::new(minor, spot.clone(), profile.clone(), &interface)
        });
        let mut gpus: Vec<Gpu> = gpus.collect();
        // Where links lead is the machine's rather than the card's.
        for (gpu, peers) in gpus.iter_mut().zip(&spots.peers) {
            if let Some(switches) = spots.nvswitches {
                gpu.settle("links.switches", switches);
            }
            if !peers.is_empty() {
                gpu.settle("links.active", peers.len() as u32);
            }
        }
        Self {
            told_version,
            version: interface.version(),
            interface,
            files: Files::default(),
            gpus,
            spots,
            server: Server::default(),
            memory_block: 0,
            events: Vec::new(),
            last_event: 0,
            last_buffer: 0,
            last_address: 0,
            shown: Shown::default(),
            counters: Counters::default(),
            channels: Channels::default(),
            clock: Clock::new(),
            is_lenient: false,
            takes_ptx: false,
            has_other_entries: false,
            log,
        }
    }

    /// Whether the driver is at least this one.
    fn is_since(&self, version: &[u32]) -> bool {
        self.version.as_slice() >= version
    }
}
