//! A call as it was caught: plain data, before anybody knows its name.

use std::sync::Arc;

/// A system call on a file of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds from the start of the program to the call.
    pub time: u64,
    /// Who made it.
    pub process: u32,
    /// Which of its threads.
    pub thread: u32,
    /// What was asked for.
    pub what: What,
    /// What the kernel returned: an error as its negative number; none where that is not known.
    pub result: Option<i64>,
    /// Nanoseconds until it returned; none where that is not known.
    pub duration: Option<u64>,
}

impl Event {
    /// The file that it is about.
    pub fn file(&self) -> &File {
        match &self.what {
            What::Open { file, .. } | What::Close { file, .. } | What::Map { file, .. } => file,
            What::Ioctl(ioctl) => &ioctl.file,
        }
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A path was opened.
    Open {
        /// Its path as the program wrote it.
        file: File,
        /// `O_RDWR` and the like.
        flags: u64,
    },
    /// A file descriptor was closed.
    Close {
        /// Its number.
        fd: i32,
        /// What it stood for.
        file: File,
    },
    /// A file was mapped.
    Map {
        /// Its descriptor.
        fd: i32,
        /// What that stood for.
        file: File,
        /// Bytes.
        length: u64,
        /// Where in the file.
        offset: u64,
    },
    /// An ioctl.
    Ioctl(Ioctl),
}

/// An ioctl, with the memory that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ioctl {
    /// The file descriptor.
    pub fd: i32,
    /// What that stood for.
    pub file: File,
    /// The whole request.
    pub request: u32,
    /// The third argument.
    pub argument: u64,
    /// Memory of the caller, the argument's first.
    pub pieces: Vec<Piece>,
    /// What the file descriptors in that memory stand for.
    pub fds: Vec<(i32, File)>,
    /// The numbers in that memory that are addresses which the caller can read, but for those of the pieces.
    pub addresses: Vec<u64>,
}

/// Memory of a caller, before and after a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub address: u64,
    /// How many bytes the call has there; limits and unreadable pages leave fewer.
    pub length: u64,
    /// The bytes when the call was made.
    pub before: Vec<u8>,
    /// The bytes when it returned; none where they are not known.
    pub after: Option<Vec<u8>>,
}

/// What a file descriptor stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct File {
    /// Its path, or what the kernel calls it.
    pub path: Arc<str>,
    /// The node, by its name in the specs; empty where it is none.
    pub node: Arc<str>,
    /// How the node is known.
    pub how: How,
}

/// How the node behind a file descriptor is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// By the path that the kernel gives for it.
    Path,
    /// By the path that it was opened by.
    Open,
    /// An ioctl returned it.
    Ioctl,
    /// By a request that only one node knows.
    Request,
    /// By the number of the device: its path is another.
    Device,
}

impl How {
    /// Every way; a record has the index.
    pub const ALL: [Self; 5] = [Self::Path, Self::Open, Self::Ioctl, Self::Request, Self::Device];

    /// `path`, `open`, `ioctl`, `request` or `device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Open => "open",
            Self::Ioctl => "ioctl",
            Self::Request => "request",
            Self::Device => "device",
        }
    }
}
