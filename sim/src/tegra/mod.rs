//! A Jetson Orin: the state and the rules of L4T's drivers, as plain data.
//!
//! It does what L4T r36 does: the order of its checks, its errors, its addresses, its lifetimes. Other
//! releases have their own requests and layouts, and r36's rules but for a few. It executes copies,
//! fills, inline data and semaphores. Shaders it does not: a launch is decoded, reported and failed by
//! the error notifier.
//!
//! What differs: a pollfd stays readable until it is triggered again; under another debugger a child
//! made by `fork` inherits the mappings of dma-bufs and of the doorbell, and `NVMAP_IOC_FREE` of a
//! descriptor leaves `/dev/null` in its place; the graphics context takes about as many addresses of the
//! kernel window as the real one.
//!
//! Rules are cited by the driver's file and line: `G` is `drivers/gpu/nvgpu` of r36.4, `M` is
//! `drivers/video/tegra/nvmap`.

mod abi;
mod args;
mod buddy;
mod channel;
mod ctrl;
mod devfreq;
mod dispatch;
mod fence;
mod gpu;
mod layouts;
mod machine;
mod nvmap;
mod paths;
mod release;
mod remap;
mod run;
mod space;
mod submit;
mod syncpoint;
mod tsg;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::process::Command;
use std::sync::Arc;

use super::client::{Client, Descriptor};
use super::fault::Faults;
use super::files::{FileId, Files};
use super::gpu::Clock;
use super::limits;
use super::log::Log;
use super::machine::Device;
use super::memory::{Access, Memory, Node, Signal};
use super::supervisor;
use channel::Channel;
use devfreq::Devfreq;
use layouts::Layouts;
use nvmap::{BufferId, Nvmap};
use space::{Space, SpaceId};
use syncpoint::Points;
use tsg::Tsg;

pub use super::Outcome;
pub use super::fault::{Effect, Fault};
pub use super::log::{Count, Diagnostic, Leak};
pub use super::report::Report;
use nvabi_supervise::Errno;
pub use release::Release;

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
    /// Who is told of diagnostics as they come; the report has them too. It is called by a thread of its own.
    pub live: Option<fn(&Diagnostic)>,
}

/// Runs a program on the simulated kernel until it and all its descendants have ended.
///
/// # Errors
///
/// When the program cannot be started, or this system does not permit seccomp user notification:
/// [`io::ErrorKind::Unsupported`].
pub fn run(command: &mut Command, options: &Options) -> io::Result<Outcome> {
    let has_status = |fault: &&Fault| matches!(fault.effect, Effect::Refuse(_));
    if let Some(fault) = options.faults.iter().find(has_status) {
        let text =
            format!("`{fault}`: these drivers have no statuses of their own, but error numbers");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let names: Vec<&str> = Release::all().flat_map(layouts::calls).map(|(_, name)| name).collect();
    let faults = Faults::new(options.faults.clone(), &names)?;
    let kernel = Kernel::new(options.release, Log::new(faults), limits::memory());
    supervisor::run(command, Box::new(kernel), options.pass_signals, options.live)
}

/// Whether this machine permits what [`run`] needs; if not, why.
///
/// # Errors
///
/// The reason.
pub fn check_support() -> io::Result<()> {
    let outcome = run(&mut Command::new("/bin/true"), &Options::default())?;
    if outcome.status.success() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("/bin/true: {}", outcome.status)))
}

/// The only page size: Orin under stock L4T offers no big pages.
const PAGE: u64 = 4096;

/// Channels and channel groups of the device.
const CHANNELS: u32 = 512;

type Result<T, E = Errno> = std::result::Result<T, E>;

/// What an open file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum File {
    /// `/dev/nvmap`, of the process that opened it.
    Nvmap { process: u32 },
    /// `/dev/nvgpu/igpu0/ctrl`, by its device instance id.
    Ctrl(u64),
    /// An address space.
    Space(SpaceId),
    /// A channel group, and the ctrl file it was made with.
    Tsg { tsg: u32, ctrl: Option<u64> },
    /// A channel, by its number.
    Channel(u32),
    /// `/dev/host1x-fence`.
    Fences,
    /// A dma-buf.
    Buffer(BufferId),
    /// Events of a channel group.
    Event,
    /// A fence: readable when the syncpoint has reached the threshold.
    Fence { point: u32, threshold: u32 },
    /// Readable when a fence that was put to it is reached.
    PollFd,
}

impl File {
    /// The node whose requests it takes, as the headers name it.
    pub(crate) fn node(self) -> Option<&'static str> {
        match self {
            Self::Nvmap { .. } => Some("nvmap"),
            Self::Ctrl(_) => Some("ctrl"),
            Self::Space(_) => Some("as"),
            Self::Tsg { .. } => Some("tsg"),
            Self::Channel(_) => Some("channel"),
            Self::Fences => Some("host1x-fence"),
            Self::Buffer(_) | Self::Event | Self::Fence { .. } | Self::PollFd => None,
        }
    }

    /// What a person calls it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Nvmap { .. } => "nvmap",
            Self::Ctrl(_) => "ctrl",
            Self::Space(_) => "address space",
            Self::Tsg { .. } => "channel group",
            Self::Channel(_) => "channel",
            Self::Fences => "host1x-fence",
            Self::Buffer(_) => "dma-buf",
            Self::Event => "event",
            Self::Fence { .. } => "fence",
            Self::PollFd => "pollfd",
        }
    }
}

/// Everything that the drivers know.
#[derive(Debug)]
pub(crate) struct Kernel {
    layouts: Layouts,
    /// The release's own requests and ours, by number.
    names: HashMap<u32, &'static str>,
    files: Files<File>,
    /// Who has mapped the doorbell of a ctrl file: one process at a time may.
    mapped_by: BTreeMap<FileId, u32>,
    last_ctrl: u64,
    nvmap: Nvmap,
    spaces: BTreeMap<SpaceId, Space>,
    last_space: u32,
    tsgs: BTreeMap<u32, Tsg>,
    share_tokens: Vec<tsg::ShareToken>,
    last_token: u64,
    channels: BTreeMap<u32, Channel>,
    /// The next one is at the end.
    free_channels: Vec<u32>,
    /// The channel that ran last.
    last_run: u32,
    points: Points,
    clock: Clock,
    clocks: ctrl::Clocks,
    pub(crate) devfreq: Devfreq,
    pub(crate) log: Log,
}

impl Kernel {
    /// A device that was never used, the drivers of a release, and bytes that the machine under it has.
    pub(crate) fn new(release: Release, log: Log, available: u64) -> Self {
        Self {
            layouts: Layouts::new(release),
            names: layouts::calls(Release::ours()).chain(layouts::calls(release)).collect(),
            files: Files::default(),
            mapped_by: BTreeMap::new(),
            last_ctrl: 0,
            nvmap: Nvmap::new(available),
            spaces: BTreeMap::new(),
            last_space: 0,
            tsgs: BTreeMap::new(),
            share_tokens: Vec::new(),
            last_token: 0,
            channels: BTreeMap::new(),
            free_channels: (0..CHANNELS).collect(),
            last_run: 0,
            points: Points::new(),
            clock: Clock::new(),
            clocks: ctrl::Clocks::default(),
            devfreq: Devfreq::new(),
            log,
        }
    }

    /// The driver's name of a request, or its number.
    fn name(&self, request: u32) -> String {
        match self.names.get(&request) {
            Some(name) => (*name).to_owned(),
            None => format!("{request:#010x}"),
        }
    }

    fn add_file(&mut self, file: File, memory: Memory) -> Result<FileId> {
        Ok(self.add_node(file, Arc::new(Node::Memory(memory))))
    }

    fn add_signal(&mut self, file: File) -> Result<FileId> {
        Ok(self.add_node(file, Arc::new(Node::Signal(Signal::new()?))))
    }

    fn add_node(&mut self, file: File, node: Arc<Node>) -> FileId {
        self.files.add(file, node)
    }

    /// Gives a new file to the caller; one that it cannot have goes away again.
    fn install(&mut self, client: &dyn Client, id: FileId) -> Result<i32> {
        let node = self.files.get(id).map(|open| open.node.clone()).ok_or(Errno::EBADF)?;
        let given = client.install(&node, Access::Both);
        if given.is_err() {
            self.close(id);
        }
        given
    }

    /// What a call fails with that reserves a descriptor before it does anything else.
    fn after_descriptor(client: &dyn Client, errno: Errno) -> Errno {
        if client.has_room() { errno } else { Errno::EMFILE }
    }

    /// The file that a descriptor of the caller means.
    fn descriptor(&self, client: &dyn Client, fd: i32) -> Option<File> {
        self.files.get(self.file_id(client, fd)?).map(|open| open.file)
    }

    fn file_id(&self, client: &dyn Client, fd: i32) -> Option<FileId> {
        match client.descriptor(fd) {
            Descriptor::Open(inode, _) => self.files.of(inode),
            Descriptor::Closed => None,
        }
    }

    /// The channel that a descriptor means.
    fn channel_of(&self, client: &dyn Client, fd: i32) -> Result<u32> {
        match self.descriptor(client, fd) {
            Some(File::Channel(channel)) => Ok(channel),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The dma-buf that a descriptor means, and how it was opened: `dma_buf_get`.
    fn dmabuf_of(&self, client: &dyn Client, fd: i32) -> Result<(BufferId, Access)> {
        let Descriptor::Open(inode, access) = client.descriptor(fd) else {
            return Err(Errno::EBADF);
        };
        let file = self.files.of(inode).and_then(|id| self.files.get(id));
        match file.map(|open| open.file) {
            Some(File::Buffer(buffer)) => Ok((buffer, access)),
            _ => Err(Errno::EINVAL),
        }
    }
}
