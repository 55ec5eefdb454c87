//! Memory of nvmap: from a handle to a dma-buf that the CPU sees.

use std::ffi::{c_ulong, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::{Whence, lseek};

use super::call::{call, call_value, own};
use super::device::Device;
use super::error::{Error, ErrorKind, Result};
use super::release::Release;
use super::{r32, r36};
use crate::driver::Record as _;

/// Size of a page: the CPU's, and the GPU's small ones.
pub const PAGE: u64 = 4096;

/// From here on memory is aligned for one entry of the SMMU's big pages.
const LARGE: u64 = 8 << 20;

/// The heap of pages behind the SMMU (`NVMAP_HEAP_IOVMM`, include/linux/nvmap.h).
const HEAP_IOVMM: u32 = 1 << 30;

/// The GPU reads what the handle is of (`NVMAP_HANDLE_RO`, include/linux/nvmap.h).
const READ_ONLY: u32 = 1 << 9;

/// Who allocates, in the upper half of the flags; without one the driver warns in its log.
const TAG: u32 = 0x0900 << 16;

/// How the CPU sees memory (`NVMAP_HANDLE_*`, include/linux/nvmap.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// Writes are gathered, reads are slow: for what the CPU only writes.
    WriteCombine,
    /// Cached, and coherent with the GPU where that snoops (`INNER_CACHEABLE`): so it is on Orin.
    #[default]
    Inner,
    /// Cached in all levels (`CACHEABLE`); where the GPU does not snoop, `NVMAP_IOC_CACHE` keeps the
    /// two in step, which this module leaves to its caller.
    Cacheable,
    /// Not cached at all: each access goes out as it is written, and must be aligned.
    Uncached,
}

impl Cache {
    fn flags(self) -> u32 {
        match self {
            Self::Uncached => 0,
            Self::WriteCombine => 1,
            Self::Inner => 2,
            Self::Cacheable => 3,
        }
    }

    /// Whether the CPU has copies that the GPU must look at.
    pub(super) fn is_cached(self) -> bool {
        matches!(self, Self::Inner | Self::Cacheable)
    }
}

/// Whether the GPU may write memory that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// It reads.
    Read,
    /// It reads and writes.
    #[default]
    ReadWrite,
}

/// A piece of memory, as a dma-buf.
#[derive(Debug)]
pub struct Memory {
    dmabuf: OwnedFd,
    size: u64,
    cache: Cache,
}

impl Memory {
    /// Allocates zeroed memory; the size is rounded up to pages.
    ///
    /// # Errors
    ///
    /// When the size is 0 or too large, and what the kernel refuses.
    pub fn allocate(device: &Device, size: u64, cache: Cache) -> Result<Self> {
        let rounded = size.checked_next_multiple_of(PAGE).filter(|size| *size > 0);
        let Some(size) = rounded else {
            return Err(Error::invalid(format!("there is no memory of {size} bytes")));
        };
        let handle = Handle::create(device, size)?;
        handle.allocate(if size >= LARGE { 2 << 20 } else { PAGE as u32 }, cache)?;
        // The dma-buf holds the memory from here on; the handle is not needed any more.
        Ok(Self { dmabuf: handle.dmabuf()?, size, cache })
    }

    /// Takes the first `size` bytes, in whole pages, of a dma-buf that another driver made.
    ///
    /// # Errors
    ///
    /// When the size is 0 or larger than that of the dma-buf, and when it is a file that has none: what is
    /// mapped behind the end of a file stops the program that touches it.
    pub fn from_dmabuf(dmabuf: OwnedFd, size: u64, cache: Cache) -> Result<Self> {
        let end = size_of_file(dmabuf.as_fd())?;
        match end.checked_next_multiple_of(PAGE) {
            Some(pages) if size > 0 && size <= pages => Ok(Self { dmabuf, size, cache }),
            _ => Err(Error::invalid(format!("the dma-buf has {end} bytes, not {size}"))),
        }
    }

    /// Takes whole pages that this process has, as [`AddressSpace::import`](super::AddressSpace::import) says.
    pub(super) fn import(device: &Device, start: u64, size: u64, access: Access) -> Result<Self> {
        if size == 0 || start % PAGE != 0 || size % PAGE != 0 {
            return Err(Error::invalid(format!(
                "{size} bytes at {start:#x} cannot be imported: whole pages of {PAGE} bytes can"
            )));
        }
        let cache = Cache::Inner;
        let handle = Handle::import(device, start, size, access, cache)?;
        Ok(Self { dmabuf: handle.dmabuf()?, size, cache })
    }

    /// How the CPU sees it.
    pub fn cache(&self) -> Cache {
        self.cache
    }

    /// Its size, in whole pages.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The dma-buf, to hand to another driver.
    pub fn dmabuf(&self) -> BorrowedFd<'_> {
        self.dmabuf.as_fd()
    }

    /// Maps all of it for the CPU: at `wanted`, when nothing else is there.
    pub(super) fn map(&self, wanted: Option<u64>) -> Result<Mapping> {
        Mapping::new(self.dmabuf.as_fd(), self.size, wanted)
    }
}

/// The size of a dma-buf, which its file tells by seeking to the end (drivers/dma-buf/dma-buf.c,
/// `dma_buf_llseek`), and never changes.
fn size_of_file(fd: BorrowedFd<'_>) -> Result<u64> {
    let seek = |whence| {
        lseek(fd, 0, whence)
            .map_err(|errno| Error::io(ErrorKind::Call, "lseek of a dma-buf", errno.into()))
    };
    let end = seek(Whence::SeekEnd)?;
    seek(Whence::SeekSet)?;
    u64::try_from(end).map_err(|_| Error::invalid(format!("a dma-buf of {end} bytes")))
}

/// A handle of nvmap, freed when it goes.
struct Handle<'d> {
    device: &'d Device,
    id: u32,
}

impl<'d> Handle<'d> {
    fn create(device: &'d Device, size: u64) -> Result<Self> {
        let mut args = r36::nvmap_create_handle::zeroed();
        args.anon0.anon2.anon0.size64 = size;
        // SAFETY: `Device::nvmap` opened the node by nvmap's path, and the parameters have no address.
        unsafe { call::<r36::ioctl::NVMAP_IOC_CREATE_64>(device.nvmap(), &mut args) }?;
        // SAFETY: `args` was zeroed, so all of the union is initialised, and the member is an integer.
        let id = unsafe { args.anon0.anon2.anon0.handle64 };
        Ok(Self { device, id })
    }

    fn import(
        device: &'d Device,
        start: u64,
        size: u64,
        access: Access,
        cache: Cache,
    ) -> Result<Self> {
        let mut args = r36::nvmap_create_handle_from_va::zeroed();
        args.va = start;
        args.flags = TAG | cache.flags() | if access == Access::Read { READ_ONLY } else { 0 };
        // Which is taken where the one of 32 bits is 0.
        args.anon0.size64 = size;
        // SAFETY: `Device::nvmap` opened the node by nvmap's path. The driver reads and writes the parameters alone;
        // what it takes of the pages is for `AddressSpace::import` to promise.
        unsafe { call::<r36::ioctl::NVMAP_IOC_FROM_VA>(device.nvmap(), &mut args) }?;
        // SAFETY: `args` was zeroed, so all of the union is initialised, and the member is an integer.
        let id = unsafe { args.anon0.handle };
        Ok(Self { device, id })
    }

    fn allocate(&self, align: u32, cache: Cache) -> Result<()> {
        let (handle, flags) = (self.id, TAG | cache.flags());
        let nvmap = self.device.nvmap();
        if self.device.release() == Release::R36 {
            let mut args = r36::nvmap_alloc_handle {
                handle,
                heap_mask: HEAP_IOVMM,
                flags,
                align,
                numa_nid: 0,
            };
            // SAFETY: `Device::nvmap` opened the node by nvmap's path, and the parameters have no address.
            return unsafe { call::<r36::ioctl::NVMAP_IOC_ALLOC>(nvmap, &mut args) };
        }
        let mut args = r32::nvmap_alloc_handle { handle, heap_mask: HEAP_IOVMM, flags, align };
        // SAFETY: `Device::nvmap` opened the node by nvmap's path, and the parameters have no address.
        unsafe { call::<r32::ioctl::NVMAP_IOC_ALLOC>(nvmap, &mut args) }
    }

    fn dmabuf(&self) -> Result<OwnedFd> {
        let mut args = r36::nvmap_create_handle::zeroed();
        args.anon0.anon0.handle = self.id;
        // SAFETY: `Device::nvmap` opened the node by nvmap's path, and the parameters have no address.
        unsafe { call::<r36::ioctl::NVMAP_IOC_GET_FD>(self.device.nvmap(), &mut args) }?;
        // SAFETY: `args` was zeroed, so all of the union is initialised, and the member is an integer.
        let fd = unsafe { args.anon0.anon0.anon0.fd };
        // SAFETY: the call has succeeded, and GET_FD installs a new fd for each that does.
        above_standard(unsafe { own(fd, "NVMAP_IOC_GET_FD") }?)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // The kernel answers 0 whatever it is given.
        // SAFETY: `Device::nvmap` opened the node by nvmap's path; it takes the argument as the handle
        // (nvmap_ioctl.c, `nvmap_ioctl`, case `NVMAP_IOC_FREE`), not as an address.
        let _ = unsafe {
            call_value::<r36::ioctl::NVMAP_IOC_FREE>(self.device.nvmap(), c_ulong::from(self.id))
        };
    }
}

/// The driver takes fd 0 for none, which a program that closed its stdin can be given.
fn above_standard(fd: OwnedFd) -> Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    let moved = fcntl(&fd, FcntlArg::F_DUPFD_CLOEXEC(3))
        .map_err(|errno| Error::io(ErrorKind::Call, "F_DUPFD_CLOEXEC", errno.into()))?;
    // SAFETY: F_DUPFD_CLOEXEC gives a new fd, which nobody else has.
    unsafe { own(moved, "F_DUPFD_CLOEXEC") }
}

/// Memory that the CPU sees, until this goes.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<c_void>,
    size: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, so any thread may use and unmap it.
unsafe impl Send for Mapping {}
// SAFETY: `load`, `store`, `read` and `write` are volatile accesses of a word or a byte, and the CPU makes each
// whole. Who takes a pointer by `address` or `word` orders accesses by it, which is part of that `unsafe` code's proof.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `size` bytes of a file.
    pub(super) fn new(fd: BorrowedFd<'_>, size: u64, wanted: Option<u64>) -> Result<Self> {
        let length = usize::try_from(size).ok().and_then(NonZeroUsize::new);
        let Some(length) = length else {
            return Err(Error::invalid(format!("cannot map {size} bytes")));
        };
        let place = wanted.and_then(|at| NonZeroUsize::new(usize::try_from(at).ok()?));
        // Where something else is, any other address will do as well.
        if place.is_some() {
            if let Ok(mapping) = Self::map(fd, length, place) {
                return Ok(mapping);
            }
        }
        Self::map(fd, length, None)
    }

    fn map(fd: BorrowedFd<'_>, size: NonZeroUsize, at: Option<NonZeroUsize>) -> Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let fixed = at.map_or(MapFlags::empty(), |_| MapFlags::MAP_FIXED_NOREPLACE);
        // SAFETY: without an address the kernel chooses a free one, and with one MAP_FIXED_NOREPLACE fails
        // where something is: no memory of the program is replaced.
        let start = unsafe { mmap(at, size, protection, MapFlags::MAP_SHARED | fixed, fd, 0) }
            .map_err(|errno| Error::io(ErrorKind::Call, "mmap", errno.into()))?;
        Ok(Self { start, size: size.get() })
    }

    pub(super) fn address(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Copies bytes out. The GPU, other processes and other mappings may write them meanwhile, so every access is
    /// volatile: of eight bytes where place and count allow, else of one, which is always aligned.
    pub(super) fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(self.holds(at, bytes.len()), "{} bytes at {at} of {}", bytes.len(), self.size);
        let mut done = 0;
        while done < bytes.len() {
            // SAFETY: `holds` has compared place and count with the mapping, which stays mapped while `self` is
            // borrowed, and `done` is below the count.
            let from = unsafe { self.address().add(at + done) };
            if let Some(word) =
                bytes[done..].first_chunk_mut::<8>().filter(|_| from as usize % 8 == 0)
            {
                // SAFETY: the address is aligned, and eight bytes of the mapping follow it: `first_chunk_mut` has
                // found as many left to copy.
                *word = unsafe { from.cast::<u64>().read_volatile() }.to_ne_bytes();
                done += 8;
            } else {
                // SAFETY: a byte of the mapping, as said above.
                bytes[done] = unsafe { from.read_volatile() };
                done += 1;
            }
        }
    }

    /// Copies bytes in, as [`Self::read`] does out.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(self.holds(at, bytes.len()), "{} bytes at {at} of {}", bytes.len(), self.size);
        let mut done = 0;
        while done < bytes.len() {
            // SAFETY: `holds` has compared place and count with the mapping, which stays mapped while `self` is
            // borrowed, and `done` is below the count.
            let to = unsafe { self.address().add(at + done) };
            if let Some(word) = bytes[done..].first_chunk::<8>().filter(|_| to as usize % 8 == 0) {
                // SAFETY: the address is aligned, and eight bytes of the mapping follow it: `first_chunk` has
                // found as many left to copy.
                unsafe { to.cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
                done += 8;
            } else {
                // SAFETY: a byte of the mapping, as said above.
                unsafe { to.write_volatile(bytes[done]) };
                done += 1;
            }
        }
    }

    fn holds(&self, at: usize, count: usize) -> bool {
        at.checked_add(count).is_some_and(|end| end <= self.size)
    }

    /// The word at a byte offset.
    pub(super) fn word(&self, at: usize) -> *mut u32 {
        assert!(holds_word(self.size, at), "a word at {at} of {} bytes", self.size);
        // SAFETY: the mapping has `size` bytes, of which 4 lie at the offset.
        unsafe { self.address().add(at) }.cast()
    }

    pub(super) fn load(&self, at: usize) -> u32 {
        // SAFETY: `word` gives an aligned word of the mapping, which stays mapped while `self` is borrowed;
        // it is read in one access, since the GPU may write it at any time.
        unsafe { self.word(at).read_volatile() }
    }

    pub(super) fn store(&self, at: usize, value: u32) {
        // SAFETY: as in `load`: an aligned word of the mapping, written in one access, since the GPU may
        // read it at any time.
        unsafe { self.word(at).write_volatile(value) }
    }
}

/// Whether a mapping of so many bytes has an aligned word at an offset.
const fn holds_word(size: usize, at: usize) -> bool {
    at % 4 == 0 && size >= 4 && at <= size - 4
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` made it, at this address and of this size, and gave it to nobody else; who has a
        // pointer from `address` or `word` keeps the mapping as long.
        let _ = unsafe { munmap(self.start, self.size) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::CStr;

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn file(size: i64) -> OwnedFd {
        let name: &CStr = c"memory";
        let file = memfd_create(name, MFdFlags::MFD_CLOEXEC).unwrap();
        nix::unistd::ftruncate(&file, size).unwrap();
        file
    }

    #[test]
    fn a_dmabuf_is_as_large_as_its_file() {
        let taken = |real, size| Memory::from_dmabuf(file(real), size, Cache::Inner);
        let refused = |real, size| taken(real, size).unwrap_err().to_string();
        assert_eq!(taken(8192, 8192).unwrap().size(), 8192);
        assert_eq!(taken(8192, 4096).unwrap().size(), 4096);
        // The last page is there to its end.
        assert_eq!(taken(5000, 8192).unwrap().size(), 8192);
        assert_eq!(refused(8192, 8193), "the dma-buf has 8192 bytes, not 8193");
        assert_eq!(refused(0, 4096), "the dma-buf has 0 bytes, not 4096");
        assert_eq!(refused(4096, 0), "the dma-buf has 4096 bytes, not 0");
        let (end, _other) = nix::unistd::pipe().unwrap();
        let refused = Memory::from_dmabuf(end, 4096, Cache::Inner).unwrap_err();
        assert!(refused.to_string().starts_with("lseek of a dma-buf: "), "{refused}");
    }

    #[test]
    fn a_word_ends_inside() {
        assert!(holds_word(8, 4) && holds_word(4, 0));
        for (size, at) in [(6, 4), (8, 8), (8, 2), (0, 0), (3, 0), (4, usize::MAX - 3)] {
            assert!(!holds_word(size, at), "{size} {at}");
        }
    }
}
