//! The simulated kernel: what the drivers know and do, as plain data.
//!
//! It knows its caller by [`Client`] alone and makes no system call but for the memory behind files
//! ([`Node`]). Rules are cited by the driver's file and line: `G` is `drivers/gpu/nvgpu` of r36.4, `M`
//! is `drivers/video/tegra/nvmap`.

mod args;
mod buddy;
mod channel;
mod client;
mod clock;
mod compute;
mod copy;
mod ctrl;
mod devfreq;
mod dispatch;
mod engine;
mod errno;
mod fence;
mod gpu;
mod host;
mod layouts;
mod nvmap;
mod remap;
mod space;
mod submit;
mod syncpoint;
mod tsg;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::log::Log;
use super::memory::{Access, Inode, Memory, Node, Signal};
use super::release::Release;
use channel::Channel;
pub(crate) use client::{Client, Descriptor, Work};
pub(crate) use ctrl::{USERMODE_SIZE, is_rung, take_token};
pub(crate) use devfreq::Attribute;
use devfreq::Devfreq;
pub use errno::Errno;
use layouts::Layouts;
pub(crate) use layouts::calls;
use nvmap::{BufferId, Nvmap};
use space::{Space, SpaceId};
use syncpoint::Points;
use tsg::Tsg;

/// The only page size: Orin under stock L4T offers no big pages.
const PAGE: u64 = 4096;

/// Channels and channel groups of the device.
const CHANNELS: u32 = 512;

type Result<T, E = Errno> = std::result::Result<T, E>;

/// An open file that a client has: what `struct file` is to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(u64);

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

/// An open file and the real file behind it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) node: Arc<Node>,
    /// What it was opened as, by a path.
    pub(crate) device: Option<Device>,
    /// Who has mapped the doorbell: one process at a time may.
    pub(crate) mapped_by: Option<u32>,
}

/// The device files that can be opened by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    Nvmap,
    Ctrl,
    Space,
    Channel,
    Tsg,
    Fences,
}

/// Everything that the drivers know.
#[derive(Debug)]
pub(crate) struct Kernel {
    layouts: Layouts,
    files: BTreeMap<FileId, OpenFile>,
    inodes: HashMap<Inode, FileId>,
    last_file: u64,
    last_ctrl: u64,
    nvmap: Nvmap,
    spaces: BTreeMap<SpaceId, Space>,
    last_space: u32,
    tsgs: BTreeMap<u32, Tsg>,
    share_tokens: Vec<tsg::ShareToken>,
    channels: BTreeMap<u32, Channel>,
    /// The next one is at the end.
    free_channels: Vec<u32>,
    /// The channel that ran last.
    last_run: u32,
    points: Points,
    clock: clock::Clock,
    clocks: ctrl::Clocks,
    pub(crate) devfreq: Devfreq,
    pub(crate) log: Log,
}

impl Kernel {
    /// A device that was never used, the drivers of a release, and bytes that the machine under it has.
    pub(crate) fn new(release: Release, log: Log, available: u64) -> Self {
        Self {
            layouts: Layouts::new(release),
            files: BTreeMap::new(),
            inodes: HashMap::new(),
            last_file: 0,
            last_ctrl: 0,
            nvmap: Nvmap::new(available),
            spaces: BTreeMap::new(),
            last_space: 0,
            tsgs: BTreeMap::new(),
            share_tokens: Vec::new(),
            channels: BTreeMap::new(),
            free_channels: (0..CHANNELS).collect(),
            last_run: 0,
            points: Points::new(),
            clock: clock::Clock::new(),
            clocks: ctrl::Clocks::default(),
            devfreq: Devfreq::new(),
            log,
        }
    }

    /// Opens a device file. The caller gives it to the client, or closes it again.
    pub(crate) fn open(&mut self, client: &dyn Client, device: Device) -> Result<FileId> {
        let file = match device {
            Device::Nvmap => self.open_nvmap(client),
            Device::Ctrl => self.open_ctrl(),
            Device::Space => self.open_space(),
            Device::Channel => self.open_channel(client.process(), -1),
            Device::Tsg => self.open_tsg(None),
            Device::Fences => self.add_file(File::Fences, Memory::new(0)?),
        }?;
        if let Some(open) = self.files.get_mut(&file) {
            open.device = Some(device);
        }
        Ok(file)
    }

    /// The file that an inode is, when it is one of ours.
    pub(crate) fn file_of(&self, inode: Inode) -> Option<FileId> {
        self.inodes.get(&inode).copied()
    }

    /// An open file.
    pub(crate) fn file(&self, id: FileId) -> Option<&OpenFile> {
        self.files.get(&id)
    }

    /// All open files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (FileId, &OpenFile)> {
        self.files.iter().map(|(id, file)| (*id, file))
    }

    /// Says who has mapped the doorbell of a ctrl file.
    pub(crate) fn set_mapped_by(&mut self, id: FileId, process: Option<u32>) {
        if let Some(file) = self.files.get_mut(&id) {
            file.mapped_by = process;
        }
    }

    /// The last release of an open file: what the kernel does when nobody has it open or mapped.
    pub(crate) fn release(&mut self, id: FileId) {
        let Some(open) = self.files.remove(&id) else { return };
        self.inodes.remove(&open.node.inode());
        match open.file {
            File::Nvmap { process } => self.release_nvmap(process),
            File::Ctrl(ctrl) => {
                self.answer_last(&open);
                self.clocks.forget(ctrl);
            }
            File::Fences | File::Event | File::PollFd => {}
            File::Space(space) => self.put_space(space),
            File::Tsg { tsg, ctrl } => self.release_tsg_file(tsg, ctrl),
            File::Channel(channel) => self.release_channel(channel),
            File::Buffer(buffer) => self.release_dmabuf(buffer),
            File::Fence { .. } => {}
        }
        self.points.forget(id);
    }

    fn add_file(&mut self, file: File, memory: Memory) -> Result<FileId> {
        Ok(self.add_node(file, Arc::new(Node::Memory(memory))))
    }

    fn add_signal(&mut self, file: File) -> Result<FileId> {
        Ok(self.add_node(file, Arc::new(Node::Signal(Signal::new()?))))
    }

    fn add_node(&mut self, file: File, node: Arc<Node>) -> FileId {
        self.last_file += 1;
        let id = FileId(self.last_file);
        self.inodes.insert(node.inode(), id);
        self.files.insert(id, OpenFile { file, node, device: None, mapped_by: None });
        id
    }

    /// Gives a new file to the caller; one that it cannot have goes away again.
    fn install(&mut self, client: &dyn Client, id: FileId) -> Result<i32> {
        let node = self.files.get(&id).map(|open| open.node.clone()).ok_or(Errno::EBADF)?;
        let given = client.install(&node, Access::Both);
        if given.is_err() {
            self.release(id);
        }
        given
    }

    /// What a call fails with that reserves a descriptor before it does anything else.
    fn after_descriptor(client: &dyn Client, errno: Errno) -> Errno {
        if client.has_room() { errno } else { Errno::EMFILE }
    }

    /// The file that a descriptor of the caller means.
    fn descriptor(&self, client: &dyn Client, fd: i32) -> Option<File> {
        self.files.get(&self.file_id(client, fd)?).map(|open| open.file)
    }

    fn file_id(&self, client: &dyn Client, fd: i32) -> Option<FileId> {
        match client.descriptor(fd) {
            Descriptor::Open(inode, _) => self.file_of(inode),
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
        let file = self.file_of(inode).and_then(|id| self.files.get(&id));
        match file.map(|open| open.file) {
            Some(File::Buffer(buffer)) => Ok((buffer, access)),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// What a process has, for the report at its end.
impl Kernel {
    /// Buffers that an address space has mapped.
    pub(crate) fn mappings_of(&self, file: File) -> usize {
        match file {
            File::Space(space) => self.spaces.get(&space).map_or(0, Space::mapped),
            _ => 0,
        }
    }

    /// Handles of nvmap.
    pub(crate) fn handles_of(&self, process: u32) -> usize {
        self.nvmap.handles_of(process)
    }

    /// Buffers that anything still refers to.
    pub(crate) fn live_buffers(&self) -> usize {
        self.nvmap.live()
    }

    /// Bytes of an open file, as its driver tells.
    pub(crate) fn size_of(&self, file: File) -> u64 {
        match file {
            File::Buffer(buffer) => self.nvmap.buffer(buffer).map_or(0, |buffer| buffer.size),
            _ => 0,
        }
    }

    /// Whether a file may be mapped with this length and offset, as its driver sees it.
    pub(crate) fn check_mmap(&self, id: FileId, length: u64, offset: u64) -> Result<()> {
        let open = self.files.get(&id).ok_or(Errno::EBADF)?;
        match open.file {
            File::Nvmap { .. } => Err(Errno::EPERM),
            // G/os/linux/ioctl_ctrl.c:2833.
            File::Ctrl(_) if open.mapped_by.is_some() => Err(Errno::EBUSY),
            File::Ctrl(_) if length > USERMODE_SIZE || offset != 0 => Err(Errno::EINVAL),
            File::Ctrl(_) => Ok(()),
            File::Buffer(buffer) => {
                let size = self.nvmap.buffer(buffer)?.size;
                if offset.checked_add(space::page_align(length)).is_none_or(|end| end > size) {
                    return Err(Errno::EINVAL);
                }
                if self.nvmap.is_mappable(buffer) { Ok(()) } else { Err(Errno::EPERM) }
            }
            _ => Err(Errno::ENODEV),
        }
    }
}
