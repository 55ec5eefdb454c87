//! What the supervisor simulates: the kernel of some machine, seen from outside.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::fault::Refusal;
use super::files::FileId;
use super::log::{Log, RunId};
use super::memory::{Inode, Memory, Node};
use super::rm::{Injected, Injection};
use nvabi_supervise::Errno;

/// Who writes to a file of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) process: u32,
    pub(crate) thread: u32,
}

/// A simulated kernel. It knows its caller by [`Client`] alone and makes no system call but for the
/// memory behind files.
pub(crate) trait Machine: Send {
    /// The files that it has by a path.
    fn entries(&self) -> Vec<Entry>;

    /// The paths of a folder that it has for itself, which programs fill.
    fn own_folder(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether these are others than when this was asked last.
    fn has_other_entries(&mut self) -> bool {
        false
    }

    /// Opens a device file. The caller gives it to the client, or releases it again.
    fn open(&mut self, client: &dyn Client, device: Device) -> Result<FileId, Errno>;

    /// The last release of an open file: what the kernel does when nobody has it open or mapped.
    fn release(&mut self, id: FileId);

    /// The file that an inode is, when it is one of ours.
    fn file_of(&self, inode: Inode) -> Option<FileId>;

    /// What is known of an open file.
    fn file(&self, id: FileId) -> Option<FileInfo>;

    /// All open files.
    fn files(&self) -> Vec<FileId>;

    /// The driver's name of an ioctl, or its number.
    fn call_name(&self, client: &dyn Client, id: FileId, request: u32, argument: u64) -> String;

    /// An ioctl on one of our files.
    fn ioctl(&mut self, client: &dyn Client, id: FileId, request: u32, argument: u64) -> Answer;

    /// What an ioctl answers that does nothing but fail as somebody asked for.
    fn refuse(
        &mut self,
        client: &dyn Client,
        id: FileId,
        request: u32,
        argument: u64,
        refusal: Refusal,
    ) -> Answer;

    /// What a mapping of a file shows, when its driver permits it.
    fn mmap(&mut self, client: &dyn Client, id: FileId, call: &MapCall) -> Result<Mapping, Errno>;

    /// Whether it wants to know of polls: each of them costs the client a stop.
    fn watches_polls(&self) -> bool {
        false
    }

    /// Whether a poll that begins now would change anything.
    fn awaits_poll(&self) -> bool {
        false
    }

    /// A client begins to poll a file.
    fn polled(&mut self, _id: FileId) {}

    /// What a file of text says.
    fn text(&self, text: Text) -> String;

    /// The same as bytes, of files that hold no text.
    fn bytes(&self, text: Text) -> Vec<u8> {
        self.text(text).into_bytes()
    }

    /// Takes over what a thread of a process has written to a file of text.
    fn write_text(&mut self, text: Text, written: &[u8], writer: Writer);

    /// Threads whose writes have not returned yet.
    fn held_writers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Holds no thread any longer that is gone.
    fn forget_writers(&mut self, _is_gone: &dyn Fn(u32) -> bool) {}

    /// What a process has besides its descriptors, by kind; `files` are those that these mean.
    fn held_by(&self, process: u32, files: &[FileId]) -> Vec<(&'static str, usize)>;

    /// Bytes of GPU memory that a run has.
    fn memory_of(&self, _run: RunId) -> u64 {
        0
    }

    /// The GPUs, and how much of their memory is taken.
    fn gpus(&self) -> Vec<GpuUse> {
        Vec::new()
    }

    /// Lets something happen to a GPU, by its index.
    fn inject(&mut self, _gpu: usize, _what: Injection) -> io::Result<Injected> {
        let text = "nothing can be injected into the GPU of a Jetson";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Buffers that anything still refers to.
    fn live_buffers(&self) -> usize {
        0
    }

    /// The record of the run.
    fn log(&mut self) -> &mut Log;

    /// Memory in which clients say that there is work, which no system call tells.
    fn doorbells(&self) -> Vec<Doorbell> {
        Vec::new()
    }

    /// Takes over what doorbells say; whether there was anything.
    fn answer_doorbells(&mut self, _doorbells: &[Doorbell]) -> bool {
        false
    }

    /// Whether a call may have left work for [`run`](Self::run). Who answers `true` without need keeps a thread awake.
    fn may_have_work(&self) -> bool {
        true
    }

    /// A turn of the work that clients have given: whether any of it was done, and whether any is left.
    fn run(&mut self) -> (bool, bool) {
        (false, false)
    }

    /// Time passes.
    fn tick(&mut self, _doorbells: &[Doorbell]) {}

    /// Writes anew what programs read without a call, where it is too old.
    fn refresh(&mut self) {}
}

/// A GPU of a machine, and how much of its memory is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUse {
    /// What it is called.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes of it that programs have.
    pub used: u64,
    /// Whether it has fallen off the bus.
    #[serde(default)]
    pub is_lost: bool,
    /// Whether the driver has let it go, by `unbind` or `remove`.
    #[serde(default)]
    pub is_unbound: bool,
}

/// A file that has a path.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Absolute.
    pub(crate) path: String,
    pub(crate) kind: EntryKind,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Device(Device),
    Text(Text),
    /// A folder of which all entries are simulated.
    Folder,
    /// A symbolic link to another simulated file, as `readlink` tells it.
    Link(Arc<str>),
}

impl EntryKind {
    /// As `stat` tells it.
    pub(crate) fn mode(&self) -> u32 {
        match self {
            Self::Device(_) => libc::S_IFCHR | 0o666,
            Self::Folder => libc::S_IFDIR | 0o755,
            Self::Link(_) => libc::S_IFLNK | 0o777,
            Self::Text(text) if text.is_writable => libc::S_IFREG | 0o644,
            Self::Text(_) => libc::S_IFREG | 0o444,
        }
    }
}

/// A device file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    /// What the machine knows it by.
    pub(crate) id: u32,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Device {
    pub(crate) fn number(self) -> libc::dev_t {
        libc::makedev(self.major, self.minor)
    }
}

/// A file of text, such as an attribute in sysfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text {
    /// What the machine knows it by.
    pub(crate) id: u32,
    pub(crate) is_writable: bool,
    /// Whether what is written replaces bytes of it, instead of being a value of its own.
    pub(crate) is_binary: bool,
}

/// What is known of an open file.
#[derive(Debug, Clone)]
pub(crate) struct FileInfo {
    /// The real file behind it.
    pub(crate) node: Arc<Node>,
    /// What it was opened as, by a path.
    pub(crate) device: Option<Device>,
    /// What a person calls it.
    pub(crate) kind: &'static str,
    /// Bytes, as its driver tells.
    pub(crate) size: u64,
}

/// What an ioctl answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<i64, Errno>,
    /// What the driver says in the argument, when that is no success.
    pub(crate) status: Option<String>,
}

impl From<Result<i64, Errno>> for Answer {
    fn from(result: Result<i64, Errno>) -> Self {
        Self { result, status: None }
    }
}

impl Answer {
    /// What it failed with.
    pub(crate) fn failure(&self) -> Option<String> {
        let errno = self.result.err().map(|errno| errno.to_string());
        errno.or_else(|| self.status.clone())
    }
}

/// A client's `mmap` of one of our files, which the real kernel makes when the driver has permitted it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapCall {
    pub(crate) address: u64,
    /// Some.
    pub(crate) length: u64,
    pub(crate) protection: i32,
    pub(crate) flags: i32,
    pub(crate) offset: u64,
}

/// What a mapping shows.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// The file itself.
    Own,
    /// The file itself, with a doorbell in it.
    Doorbell,
    /// Another one, from an offset on.
    Other { node: Arc<Node>, offset: u64, has_doorbell: bool },
}

/// A mapped region with a word in it that clients write when there is work.
#[derive(Debug, Clone)]
pub(crate) struct Doorbell {
    pub(crate) region: Arc<Node>,
    pub(crate) process: u32,
    /// Whether the word says so.
    pub(crate) is_rung: fn(&Memory) -> bool,
}

impl Doorbell {
    pub(crate) fn memory(&self) -> Option<&Memory> {
        self.region.memory()
    }

    pub(crate) fn is_rung(&self) -> bool {
        self.memory().is_some_and(self.is_rung)
    }
}
