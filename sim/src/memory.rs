//! The files behind the simulated ones: what a client's file descriptors really are.
//!
//! A simulated file is a memory file of its own, so that the client's `mmap` is the real one and the
//! file's inode says which simulated file a descriptor means, however it came to the process. The
//! client never gets the descriptor made here but another opening of the same file; while nobody but
//! us has the file open a write lease on it is granted, and so the last release is noticed, memory
//! mappings included. Files that a client polls are pipes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use nvabi_supervise::check;

use super::limits;

/// What lists of mappings call our memory.
pub(crate) const NODE_NAME: &str = "memfd:nvabi-sim";

/// Which file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    /// Its number, which is told in more places than its device.
    pub(crate) fn number(self) -> u64 {
        self.number
    }

    /// Of what `stat` says.
    pub(crate) fn of(stat: &libc::stat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}

/// How an opening of a file may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Both,
}

impl Access {
    /// Of the flags of `open`.
    pub(crate) fn of(flags: i32) -> Self {
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY => Self::Read,
            libc::O_WRONLY => Self::Write,
            _ => Self::Both,
        }
    }

    fn flags(self) -> i32 {
        match self {
            Self::Read => libc::O_RDONLY,
            Self::Write => libc::O_WRONLY,
            Self::Both => libc::O_RDWR,
        }
    }
}

/// A file of ours that clients can have open.
#[derive(Debug)]
pub(crate) enum Node {
    /// Memory of a fixed size.
    Memory(Memory),
    /// Readable when something has happened.
    Signal(Signal),
}

impl Node {
    /// Its inode.
    pub(crate) fn inode(&self) -> Inode {
        match self {
            Self::Memory(memory) => memory.inode,
            Self::Signal(signal) => signal.inode,
        }
    }

    /// Another opening, for a client.
    pub(crate) fn open(&self, access: Access) -> io::Result<OwnedFd> {
        match self {
            Self::Memory(memory) => reopen(memory.file.as_raw_fd(), access.flags()),
            Self::Signal(signal) => signal.open(access),
        }
    }

    /// A descriptor of ours, for watching it.
    pub(crate) fn descriptor(&self) -> RawFd {
        match self {
            Self::Memory(memory) => memory.file.as_raw_fd(),
            Self::Signal(signal) => signal.write.as_raw_fd(),
        }
    }

    /// Whether a client has it open or mapped.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.is_open(),
            Self::Signal(signal) => signal.is_open(),
        }
    }
}

/// Shared memory that neither shrinks nor grows, whatever its other users try.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
    inode: Inode,
    size: u64,
    map: OnceLock<Option<Map>>,
}

#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Map {}
// SAFETY: it is only accessed by atomics and by copies that tolerate concurrent writers.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Memory::map` and nothing keeps a pointer into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Memory {
    /// `size` bytes of zeros, which cost nothing until they are written.
    pub(crate) fn new(size: u64) -> io::Result<Self> {
        let length = i64::try_from(size).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: the name is a C string.
        let made = unsafe {
            owned(libc::memfd_create(
                c"nvabi-sim".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            ))
        }?;
        // SAFETY: plain calls on a descriptor that we own.
        unsafe {
            check(libc::ftruncate(made.as_raw_fd(), length))?;
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            check(libc::fcntl(made.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
        }
        // The first descriptor of a memory file is not counted among its openings, which leases need.
        let file = reopen(made.as_raw_fd(), libc::O_RDWR)?;
        if limits::is_spare(&file) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let inode = Inode::of(&stat(file.as_raw_fd())?);
        Ok(Self { file, inode, size, map: OnceLock::new() })
    }

    fn is_open(&self) -> bool {
        let fd = self.file.as_raw_fd();
        // SAFETY: plain calls on a descriptor that we own.
        unsafe {
            if libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) != 0 {
                return true;
            }
            libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK);
        }
        false
    }

    /// Copies out; what is past the end is left alone. Returns whether all of it was inside.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, into.len()) else { return into.is_empty() };
        // SAFETY: `at` checked the range, and clients that write at the same time make bytes
        // unpredictable and nothing else.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies in, as [`Self::read`] copies out.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(to) = self.at(offset, from.len()) else { return from.is_empty() };
        // SAFETY: as for `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        true
    }

    /// The aligned word at an offset.
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU32> {
        let at = self.at(offset, 4)?.cast::<AtomicU32>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: the range is mapped for as long as `self` lives, and aligned.
        Some(unsafe { at.as_ref() })
    }

    /// The aligned double word at an offset.
    pub(crate) fn double(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8)?.cast::<AtomicU64>();
        if !at.is_aligned() {
            return None;
        }
        // SAFETY: as for `word`.
        Some(unsafe { at.as_ref() })
    }

    /// The aligned word at an offset, read.
    pub(crate) fn load(&self, offset: u64) -> Option<u32> {
        Some(self.word(offset)?.load(Ordering::Acquire))
    }

    fn at(&self, offset: u64, length: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(length as u64)?;
        if end > self.size || length == 0 {
            return None;
        }
        let map = self.map.get_or_init(|| self.map()).as_ref()?;
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: the mapping is `size` bytes long.
        Some(unsafe { map.start.add(offset) })
    }

    fn map(&self) -> Option<Map> {
        let length = usize::try_from(self.size).ok()?;
        // SAFETY: a new mapping of a file that cannot shrink.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                self.file.as_raw_fd(),
                0,
            )
        };
        (start != libc::MAP_FAILED)
            .then(|| NonNull::new(start.cast()).map(|start| Map { start, length }))
            .flatten()
    }
}

/// A pipe of which the client has the only end that is read.
#[derive(Debug)]
pub(crate) struct Signal {
    /// Until a client gets it.
    read: Mutex<Option<OwnedFd>>,
    write: OwnedFd,
    inode: Inode,
}

impl Signal {
    /// Nothing has happened yet.
    pub(crate) fn new() -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: `ends` has room for both descriptors, which are ours afterwards.
        let (read, write) = unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK))?;
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        if limits::is_spare(&write) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let inode = Inode::of(&stat(read.as_raw_fd())?);
        Ok(Self { read: Mutex::new(Some(read)), write, inode })
    }

    /// Makes it readable.
    pub(crate) fn raise(&self) {
        // SAFETY: one byte from a live buffer; a full pipe is readable already.
        unsafe { libc::write(self.write.as_raw_fd(), [1_u8].as_ptr().cast(), 1) };
    }

    /// Makes it unreadable.
    pub(crate) fn lower(&self) {
        let Ok(read) = reopen(self.write.as_raw_fd(), libc::O_RDONLY | libc::O_NONBLOCK) else {
            return;
        };
        let mut bytes = [0_u8; 64];
        // SAFETY: a live buffer of that length.
        while unsafe { libc::read(read.as_raw_fd(), bytes.as_mut_ptr().cast(), 64) } > 0 {}
    }

    /// Only the first time: the client has all other openings from that one.
    fn open(&self, access: Access) -> io::Result<OwnedFd> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read.take().ok_or_else(|| io::Error::from_raw_os_error(libc::EBUSY))?;
        match access {
            Access::Read => Ok(read),
            _ => reopen(read.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK),
        }
    }

    fn is_open(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.write.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry, and no wait.
        unsafe { libc::poll(&mut poll, 1, 0) };
        poll.revents & libc::POLLERR == 0
    }
}

/// Another opening of an open file, with a description of its own.
fn reopen(fd: RawFd, flags: i32) -> io::Result<OwnedFd> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}"))?;
    // SAFETY: the path is a C string.
    unsafe { owned(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC)) }
}

/// What the kernel says of an open file.
pub(crate) fn stat(fd: RawFd) -> io::Result<libc::stat> {
    // SAFETY: zeros are a value of it, and `fstat` writes no more than it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd, &mut stat))?;
        Ok(stat)
    }
}

/// The descriptor that a call returned.
///
/// # Safety
///
/// When it is not negative, nobody else owns it.
unsafe fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: the caller says so.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
