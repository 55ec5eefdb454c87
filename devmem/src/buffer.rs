//! Memory that was allocated: a file descriptor, and what is known about it.

use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use super::capability::CapabilitySet;
use super::error::{Error, ErrorKind, Result};
use super::layout::Layout;
use super::usage::Usage;

/// What is known about memory: all that a second process needs besides the file descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// What is to be done with it.
    pub usage: Usage,
    /// What it is like; `layout` keeps to its constraints.
    pub set: CapabilitySet,
    /// Where the pixels are.
    pub layout: Layout,
    /// What else its users tell each other, by name.
    #[serde(default)]
    pub metadata: Vec<(String, Vec<u8>)>,
}

/// What tells one piece of memory from another on this machine: device and inode of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
}

impl Identity {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Allocated memory: a dma-buf, or the file of a memfd.
#[derive(Debug)]
pub struct Buffer {
    fd: OwnedFd,
    size: u64,
    identity: Identity,
    description: Description,
}

impl Buffer {
    /// Takes a file descriptor that was received or exported, when it is what the description says.
    ///
    /// # Errors
    ///
    /// When the file is smaller than the layout, a plane is outside of it, or the file cannot be asked.
    pub fn new(fd: OwnedFd, description: Description) -> Result<Self> {
        let file = File::from(fd);
        let unreadable = |error| Error::io(ErrorKind::Call, "fstat of a buffer", error);
        let metadata = file.metadata().map_err(unreadable)?;
        let identity = Identity::of(&metadata);
        let size = size(&file, metadata.size())?;
        description.layout.inside().map_err(|what| Error::new(ErrorKind::Mismatch, what))?;
        if size < description.layout.size {
            let wanted = description.layout.size;
            let what = format!("the buffer has {size} bytes, but its layout takes {wanted}");
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        Ok(Self { fd: file.into(), size, identity, description })
    }

    /// The same, when it is also the memory that is expected.
    ///
    /// # Errors
    ///
    /// As [`Self::new`], and when it is other memory.
    pub fn identified(fd: OwnedFd, description: Description, identity: Identity) -> Result<Self> {
        let buffer = Self::new(fd, description)?;
        if buffer.identity != identity {
            let what = format!("the buffer is {:?}, not {identity:?}", buffer.identity);
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        Ok(buffer)
    }

    /// Its size in bytes, which may be more than its layout takes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What tells it from others.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// What is known about it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// A file descriptor of its own, to hand to others.
    ///
    /// # Errors
    ///
    /// When there are no more file descriptors.
    pub fn export(&self) -> Result<OwnedFd> {
        let full = |error| Error::io(ErrorKind::Call, "dup of a buffer", error);
        self.fd.try_clone().map_err(full)
    }
}

impl AsFd for Buffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The bytes of a dma-buf or a memfd.
pub(crate) fn size_of(fd: &OwnedFd) -> Result<u64> {
    let file = fd.try_clone().map(File::from);
    let file = file.map_err(|error| Error::call("dup of a buffer", error))?;
    size(&file, 0)
}

/// A dma-buf tells its size to lseek; older kernels show 0 in fstat.
fn size(file: &File, shown: u64) -> Result<u64> {
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    match file.seek(SeekFrom::End(0)) {
        Ok(size) => {
            let rewound = file.seek(SeekFrom::Start(0));
            rewound.map_err(|error| Error::io(ErrorKind::Call, "lseek of a buffer", error))?;
            Ok(size)
        }
        Err(_) if shown > 0 => Ok(shown),
        Err(error) => Err(Error::io(ErrorKind::Call, "lseek of a buffer", error)),
    }
}
