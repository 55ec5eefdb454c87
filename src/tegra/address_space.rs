//! What the GPU sees: address spaces, and buffers in them.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::call::{call, own};
use super::device::Device;
use super::error::{Error, ErrorKind, Result};
use super::memory::{Access, Cache, Mapping, Memory, PAGE};
use super::push::SyncPoint;
use super::release::Release;
use super::{r32, r35, r36};
use crate::driver::Record as _;

/// Where an address space begins: the driver wants neither 0 nor less than a directory's entry.
const START: u64 = 0x20_0000;

/// What one entry of a page directory covers; bounds are multiples of it.
const DIRECTORY: u64 = 0x20_0000;

/// Room above the end for the driver's own: GPFIFOs, contexts, syncpoints.
const KERNEL: u64 = 4 << 30;

/// Some of the GPU's registers keep 40 bits of an address.
const ADDRESSABLE: u64 = 1 << 40;

/// The most fences of one sync file: more than there are syncpoints on Orin that a program can get.
const MOST_FENCES: usize = 64;

/// Where shaders see local and shared memory instead of what is mapped.
pub(super) const WINDOWS: [u64; 2] = [0xfd_0000_0000, 0xfe_0000_0000];
const WINDOW_SIZE: u64 = 1 << 30;

/// Addresses of the GPU. Copies are the same space; it goes with the last of them, and of what is
/// mapped or bound in it.
#[derive(Clone)]
pub struct AddressSpace(Arc<Inner>);

struct Inner {
    device: Device,
    fd: OwnedFd,
    range: Range<u64>,
}

impl AddressSpace {
    /// Makes an address space over all that the GPU can address, without the windows of shaders.
    ///
    /// It ends where the driver's own part, which lies behind it, still fits into 40 bits.
    ///
    /// # Errors
    ///
    /// What the kernel refuses.
    pub fn new(device: &Device) -> Result<Self> {
        if device.release() == Release::R32 {
            return Self::given(device);
        }
        let bits = u32::from(device.characteristics().gpu_va_bit_count).clamp(32, 40);
        Self::with_range(device, START..(ADDRESSABLE.min(1 << bits) - KERNEL))
    }

    /// Makes an address space over a range of its own.
    ///
    /// # Errors
    ///
    /// When the range is empty, is no multiple of 2 MiB, or leaves the driver no room below 2^40;
    /// on r32, whose driver chooses; and what the kernel refuses.
    pub fn with_range(device: &Device, range: Range<u64>) -> Result<Self> {
        if device.release() == Release::R32 {
            let message = "the driver of r32 chooses the addresses of an address space";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let aligned = range.start % DIRECTORY == 0 && range.end % DIRECTORY == 0;
        if range.start == 0 || range.is_empty() || !aligned || range.end > ADDRESSABLE - KERNEL {
            return Err(Error::invalid(format!(
                "an address space from {:#x} to {:#x} cannot be: it takes multiples of 2 MiB, the \
                 first above 0, the last at most {:#x}",
                range.start,
                range.end,
                ADDRESSABLE - KERNEL
            )));
        }
        let mut args = r36::nvgpu_alloc_as_args::zeroed();
        args.flags = r36::NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA;
        (args.va_range_start, args.va_range_end) = (range.start, range.end);
        // SAFETY: the fd is of `Device::ctrl`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<r36::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS>(device.ctrl(), &mut args) }?;
        Self::opened(device, args.as_fd, |_| Ok(range))
    }

    /// Makes the address space that the driver of r32 gives, and asks what it is.
    fn given(device: &Device) -> Result<Self> {
        let mut args = r32::nvgpu_alloc_as_args::zeroed();
        // SAFETY: the fd is of `Device::ctrl`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<r32::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS>(device.ctrl(), &mut args) }?;
        Self::opened(device, args.as_fd, regions)
    }

    /// Takes an address space that the driver made, and keeps the windows of shaders out of it.
    fn opened(
        device: &Device,
        fd: RawFd,
        range: impl FnOnce(BorrowedFd<'_>) -> Result<Range<u64>>,
    ) -> Result<Self> {
        // SAFETY: the call has succeeded, and the driver installs a new fd for each that does.
        let fd = unsafe { own(fd, "NVGPU_GPU_IOCTL_ALLOC_AS") }?;
        let range = range(fd.as_fd())?;
        let space = Self(Arc::new(Inner { device: device.clone(), fd, range }));
        for part in windows_in(&space.range()) {
            space.reserve(part.start, part.end - part.start)?;
        }
        Ok(space)
    }

    /// The GPU that it is of.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The addresses that can be mapped.
    pub fn range(&self) -> Range<u64> {
        self.0.range.clone()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Keeps addresses from being handed out, until the space goes.
    ///
    /// # Errors
    ///
    /// When they are taken or outside, and what else the kernel refuses.
    pub fn reserve(&self, at: u64, size: u64) -> Result<()> {
        let pages = size.div_ceil(PAGE);
        let page_size = PAGE as u32;
        let flags = r36::NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET;
        if self.0.device.release() == Release::R32 {
            let mut args = r32::nvgpu_as_alloc_space_args::zeroed();
            args.pages = u32::try_from(pages)
                .map_err(|_| Error::invalid(format!("r32 cannot reserve {pages} pages at once")))?;
            (args.page_size, args.flags, args.o_a.offset) = (page_size, flags, at);
            // SAFETY: the fd is of `AddressSpace::fd`, so of the node that has this call; its parameters hold no address of
            // this process.
            return unsafe { call::<r32::ioctl::NVGPU_AS_IOCTL_ALLOC_SPACE>(self.fd(), &mut args) };
        }
        let mut args = r36::nvgpu_as_alloc_space_args::zeroed();
        (args.pages, args.page_size, args.flags, args.o_a.offset) = (pages, page_size, flags, at);
        // SAFETY: the fd is of `AddressSpace::fd`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<r36::ioctl::NVGPU_AS_IOCTL_ALLOC_SPACE>(self.fd(), &mut args) }
    }

    /// What a sync file waits for, as a channel of this space can: for [`Push::acquire_points`]. It may be
    /// of another channel, process or driver; one that waits for nothing more has none.
    ///
    /// [`Push::acquire_points`]: super::Push::acquire_points
    ///
    /// # Errors
    ///
    /// Before r36, whose fences are of another node; when the file is none of host1x, and what else the kernel
    /// refuses.
    pub fn sync_points(&self, fence: BorrowedFd<'_>) -> Result<Vec<SyncPoint>> {
        let Some(node) = self.0.device.fence() else {
            let message = "before r36 there is no node that tells what a sync file waits for";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        let extract = |found: &mut [r36::host1x_fence_extract_fence]| -> Result<u32> {
            let mut args = r36::host1x_fence_extract::zeroed();
            args.fence_fd = fence.as_raw_fd();
            args.num_fences = u32::try_from(found.len()).unwrap_or(u32::MAX);
            args.fences_ptr = found.as_mut_ptr() as u64;
            // SAFETY: the fd is of `Device::fence`, so of the node that has this call; the driver writes no more
            // elements than their number, which is that of the slice.
            unsafe { call::<r36::ioctl::HOST1X_IOCTL_FENCE_EXTRACT>(node, &mut args) }?;
            Ok(args.num_fences)
        };
        let mut found = [r36::host1x_fence_extract_fence::zeroed(); MOST_FENCES];
        let count = extract(&mut found)? as usize;
        if count > found.len() {
            let message =
                format!("a sync file of {count} fences: at most {MOST_FENCES} are waited for");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut args = r36::nvgpu_as_get_sync_ro_map_args::zeroed();
        // SAFETY: the fd is of `AddressSpace::fd`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<r36::ioctl::NVGPU_AS_IOCTL_GET_SYNC_RO_MAP>(self.fd(), &mut args) }?;
        let points = found[..count].iter().map(|fence| SyncPoint {
            id: fence.id,
            threshold: fence.threshold,
            gpu_address: args.base_gpuva + u64::from(fence.id) * u64::from(args.sync_size),
        });
        Ok(points.collect())
    }

    /// Allocates memory and maps it for the GPU and for the CPU, at one address where that is free.
    ///
    /// # Errors
    ///
    /// When there is no memory or no room, and what else the kernel refuses.
    pub fn allocate(&self, size: u64, cache: Cache) -> Result<Buffer> {
        self.map(Memory::allocate(&self.0.device, size, cache)?)
    }

    /// Maps memory for the GPU and for the CPU.
    ///
    /// # Errors
    ///
    /// When there is no room, and what else the kernel refuses.
    pub fn map(&self, memory: Memory) -> Result<Buffer> {
        self.map_with_kind(memory, PITCH)
    }

    /// The same for memory whose pages have a kind: 0 where rows follow each other; the generation of the GPU says
    /// which ones are block-linear.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    pub fn map_with_kind(&self, memory: Memory, kind: u8) -> Result<Buffer> {
        let gpu = GpuMapping::new(self, &memory, kind)?;
        let cpu = memory.map(Some(gpu.at))?;
        Ok(Buffer { cpu, gpu, memory })
    }

    /// Lets the GPU see memory that this process has: what either of them writes, the other one reads. Whole pages can
    /// be, of any mapping; with [`Access::ReadWrite`] of one that may be written.
    ///
    /// # Safety
    ///
    /// Until the result goes, work with addresses of it reads the memory and, with [`Access::ReadWrite`], writes it, as
    /// another thread would without locks: meanwhile nobody has a reference to what it writes, nor one by which is
    /// written what it reads. The memory stays mapped: pages that take its place are not the GPU's.
    ///
    /// # Errors
    ///
    /// When it is not of whole pages, and what else the kernel refuses: what is not all there, and what may not be
    /// written (EINVAL).
    pub unsafe fn import(&self, start: *mut u8, size: u64, access: Access) -> Result<Imported> {
        let memory = Memory::import(&self.0.device, start as u64, size, access)?;
        Ok(Imported { gpu: GpuMapping::new(self, &memory, PITCH)?, memory })
    }
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range();
        f.debug_tuple("AddressSpace").field(&format_args!("{start:#x}..{end:#x}")).finish()
    }
}

/// The parts of a range that shaders see through a window.
fn windows_in(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
    WINDOWS
        .iter()
        .map(|at| (*at).max(range.start)..(at + WINDOW_SIZE).min(range.end))
        .filter(|part| !part.is_empty())
}

/// The addresses of an address space, from the first region to the last.
fn regions(fd: BorrowedFd<'_>) -> Result<Range<u64>> {
    let mut found = [r32::nvgpu_as_va_region::zeroed(); 4];
    let mut args = r32::nvgpu_as_get_va_regions_args::zeroed();
    args.buf_addr = found.as_mut_ptr() as u64;
    args.buf_size = size_of_val(&found) as u32;
    // SAFETY: the driver writes no more than the size, which is that of the array.
    unsafe { call::<r32::ioctl::NVGPU_AS_IOCTL_GET_VA_REGIONS>(fd, &mut args) }?;
    let count = (args.buf_size as usize / size_of_val(&found[0])).min(found.len());
    let region = |region: &r32::nvgpu_as_va_region| {
        let size = region.pages.checked_mul(u64::from(region.page_size))?;
        Some(region.offset..region.offset.checked_add(size)?)
    };
    let regions = || found[..count].iter().filter_map(region);
    match (regions().map(|r| r.start).min(), regions().map(|r| r.end).max()) {
        (Some(start), Some(end)) if start < end => Ok(start..end),
        _ => Err(Error::invalid("the driver's address space has no addresses")),
    }
}

/// What a mapping must say: before r36 that its kinds are given outright, and whether the GPU is to
/// look into the CPU's caches (both bits are refused since).
fn map_flags(release: Release, cache: Cache) -> u32 {
    if release == Release::R36 {
        return 0;
    }
    let coherent = if cache.is_cached() { r35::NVGPU_AS_MAP_BUFFER_FLAGS_IO_COHERENT } else { 0 };
    r35::NVGPU_AS_MAP_BUFFER_FLAGS_DIRECT_KIND_CTRL | coherent
}

/// The kind of pages whose rows follow each other.
const PITCH: u8 = 0;

/// Memory that the GPU sees, until this goes.
#[derive(Debug)]
struct GpuMapping {
    space: AddressSpace,
    at: u64,
}

impl GpuMapping {
    fn new(space: &AddressSpace, memory: &Memory, kind: u8) -> Result<Self> {
        let mut args = r36::nvgpu_as_map_buffer_ex_args::zeroed();
        // No compression.
        (args.compr_kind, args.incompr_kind) = (-1, kind.into());
        args.flags = map_flags(space.0.device.release(), memory.cache());
        args.dmabuf_fd = memory.dmabuf().as_raw_fd() as u32;
        args.page_size = PAGE as u32;
        // SAFETY: the fd is of `AddressSpace::fd`, so of the node that has this call; its parameters hold no address of
        // this process.
        unsafe { call::<r36::ioctl::NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space.fd(), &mut args) }?;
        Ok(Self { space: space.clone(), at: args.offset })
    }
}

impl Drop for GpuMapping {
    fn drop(&mut self) {
        let mut args = r36::nvgpu_as_unmap_buffer_args { offset: self.at };
        // The kernel answers 0 whatever it is given.
        // SAFETY: the fd is of `AddressSpace::fd`, so of the node that has this call; its parameters hold no address of
        // this process.
        let _ =
            unsafe { call::<r36::ioctl::NVGPU_AS_IOCTL_UNMAP_BUFFER>(self.space.fd(), &mut args) };
    }
}

/// Memory that the GPU and the CPU see. The fields go in this order: the CPU's view, the GPU's, and
/// the memory last.
#[derive(Debug)]
pub struct Buffer {
    cpu: Mapping,
    gpu: GpuMapping,
    memory: Memory,
}

impl Buffer {
    /// Where the GPU sees it.
    pub fn gpu_address(&self) -> u64 {
        self.gpu.at
    }

    /// Where the CPU sees it; the same number as the GPU's, unless that was taken.
    pub fn cpu_address(&self) -> *mut u8 {
        self.cpu.address()
    }

    /// Its size, in whole pages.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Copies bytes into it.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let at = self.inside(at, bytes.len())?;
        self.cpu.write(at, bytes);
        Ok(())
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    ///
    /// When there are not so many.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let at = self.inside(at, bytes.len())?;
        self.cpu.read(at, bytes);
        Ok(())
    }

    pub(super) fn cpu(&self) -> &Mapping {
        &self.cpu
    }

    fn inside(&self, at: u64, count: usize) -> Result<usize> {
        let end = at.checked_add(count as u64).filter(|end| *end <= self.cpu.size() as u64);
        match (end, usize::try_from(at)) {
            (Some(_), Ok(at)) => Ok(at),
            _ => Err(Error::invalid(format!(
                "{count} bytes at {at} are not inside a buffer of {}",
                self.size()
            ))),
        }
    }
}

/// Memory of the process's own that the GPU sees, until this goes ([`AddressSpace::import`]).
#[derive(Debug)]
pub struct Imported {
    gpu: GpuMapping,
    memory: Memory,
}

impl Imported {
    /// Where the GPU sees it.
    pub fn gpu_address(&self) -> u64 {
        self.gpu.at
    }

    /// Its size, in whole pages.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Its memory, as a dma-buf.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_releases_want_flags_that_the_new_one_refuses() {
        assert_eq!(map_flags(Release::R36, Cache::Inner), 0);
        for release in [Release::R32, Release::R34, Release::R35_4] {
            assert_eq!(map_flags(release, Cache::Inner), 1 << 8 | 1 << 4);
            assert_eq!(map_flags(release, Cache::WriteCombine), 1 << 8);
        }
    }

    #[test]
    fn windows_are_cut_to_the_range() {
        let parts = |range| windows_in(&range).collect::<Vec<_>>();
        assert_eq!(parts(0x20_0000..0x20_0000_0000), []);
        let all = parts(0x20_0000..0xff_0000_0000);
        assert_eq!(all, [0xfd_0000_0000..0xfd_4000_0000, 0xfe_0000_0000..0xfe_4000_0000]);
        let some = parts(0xfd_1000_0000..0xfe_2000_0000);
        assert_eq!(some, [0xfd_1000_0000..0xfd_4000_0000, 0xfe_0000_0000..0xfe_2000_0000]);
    }
}
