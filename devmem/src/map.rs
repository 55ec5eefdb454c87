//! Memory as the CPU sees it: mapped once, touched between two calls that keep caches in step.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::buffer::Buffer;
use super::error::{Error, ErrorKind, Result};
use super::uapi::{self, DmaBufSync};

impl Buffer {
    /// Maps all of it for the CPU.
    ///
    /// # Errors
    ///
    /// When its driver cannot be mapped, or no addresses are left.
    pub fn map(&self) -> Result<Mapping<'_>> {
        let length = usize::try_from(self.size()).ok().and_then(NonZeroUsize::new);
        let Some(length) = length else {
            return Err(Error::invalid(format!("cannot map {} bytes", self.size())));
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so nobody's memory is taken away.
        let start = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, self, 0) }
            .map_err(|errno| Error::io(ErrorKind::Call, "mmap of a buffer", errno.into()))?;
        Ok(Mapping { buffer: self, start: start.cast(), length: length.get() })
    }
}

/// A buffer's memory in the address space of this process, until this goes.
#[derive(Debug)]
pub struct Mapping<'b> {
    buffer: &'b Buffer,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is shared memory, which is only copied from and to; order is kept by those who share it.
unsafe impl Send for Mapping<'_> {}
// SAFETY: as above.
unsafe impl Sync for Mapping<'_> {}

impl Mapping<'_> {
    /// Begins to read: what devices wrote before is seen from here on. Waits for their fences.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn read(&self) -> Result<Access<'_>> {
        Access::begin(self, uapi::SYNC_READ)
    }

    /// Begins to write, and to read. What is written is seen by devices when the access has ended.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn write(&self) -> Result<Access<'_>> {
        Access::begin(self, uapi::SYNC_READ | uapi::SYNC_WRITE)
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a buffer has bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        // SAFETY: it was mapped like this, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.cast::<c_void>(), self.length) };
    }
}

/// The time in which the CPU touches memory: `DMA_BUF_IOCTL_SYNC` begins it and ends it.
#[derive(Debug)]
#[must_use = "an access that is dropped has ended"]
pub struct Access<'m> {
    mapping: &'m Mapping<'m>,
    /// What has begun and not ended; `None` where nothing must be told.
    open: Option<u64>,
    writes: bool,
}

impl<'m> Access<'m> {
    fn begin(mapping: &'m Mapping<'m>, flags: u64) -> Result<Self> {
        let told = tell(mapping.buffer.as_fd(), flags)?;
        let writes = flags & uapi::SYNC_WRITE != 0;
        Ok(Self { mapping, open: told.then_some(flags), writes })
    }

    /// Copies bytes out of the memory.
    ///
    /// # Errors
    ///
    /// When they are not all inside.
    pub fn load(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.place(at, bytes.len())?;
        // SAFETY: the bytes are inside the mapping, and `bytes` is memory of Rust's, which is
        // elsewhere. Devices may write meanwhile: then the copy has either's bytes.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes into the memory.
    ///
    /// # Errors
    ///
    /// When they do not all fit, and when the access is one to read.
    pub fn store(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        if !self.writes {
            return Err(Error::invalid("a buffer that is being read cannot be written"));
        }
        let to = self.place(at, bytes.len())?;
        // SAFETY: as in `load`.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Where the memory begins, for who copies on his own. It may change at any time, so that no
    /// reference can be made of it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.start.as_ptr()
    }

    /// Ends it, as dropping does, and tells what the kernel says.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn end(mut self) -> Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> Result<()> {
        match self.open.take() {
            Some(flags) => tell(self.mapping.buffer.as_fd(), flags | uapi::SYNC_END).map(drop),
            None => Ok(()),
        }
    }

    fn place(&self, at: usize, length: usize) -> Result<*mut u8> {
        let inside = at.checked_add(length).is_some_and(|end| end <= self.mapping.length);
        if !inside {
            let what = format!("{length} bytes at {at} are not in {}", self.mapping.length);
            return Err(Error::invalid(what));
        }
        // SAFETY: the offset is inside the mapping, or its end.
        Ok(unsafe { self.as_ptr().add(at) })
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        // Who wants to know calls `end`.
        let _ = self.finish();
    }
}

/// Makes the ioctl; `false` when the file is no dma-buf, whose memory is plain pages.
fn tell(fd: BorrowedFd<'_>, flags: u64) -> Result<bool> {
    loop {
        // SAFETY: other files than dma-bufs answer ENOTTY, and the record has no addresses.
        match unsafe { uapi::DMA_BUF_SYNC.call(fd, &mut DmaBufSync { flags }) } {
            Ok(_) => return Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOTTY) => return Ok(false),
                // Linux asks to try again where a wait was cut short.
                Some(libc::EAGAIN) => {}
                _ => return Err(refused("DMA_BUF_IOCTL_SYNC", error)),
            },
        }
    }
}

fn refused(call: &str, error: io::Error) -> Error {
    Error::io(ErrorKind::Call, call, error)
}
