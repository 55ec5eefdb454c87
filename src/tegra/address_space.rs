//! What the GPU sees: address spaces, and buffers in them.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::call::{Outcome as _, call, own};
use super::device::Device;
use super::error::{Error, Result};
use super::memory::{Cache, Mapping, Memory, PAGE};
use super::release::Release;
use super::{r32, r36};
use crate::driver::Record as _;

/// Where an address space begins: the driver wants neither 0 nor less than a directory's entry.
const START: u64 = 0x20_0000;

/// What one entry of a page directory covers; bounds are multiples of it.
const DIRECTORY: u64 = 0x20_0000;

/// Room above the end for the driver's own: GPFIFOs, contexts, syncpoints.
const KERNEL: u64 = 4 << 30;

/// Some of the GPU's registers keep 40 bits of an address.
const ADDRESSABLE: u64 = 1 << 40;

/// Where shaders see local and shared memory instead of what is mapped.
const WINDOWS: [u64; 2] = [0xfd_0000_0000, 0xfe_0000_0000];
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
        let bits = u32::from(device.characteristics().gpu_va_bit_count).clamp(32, 40);
        Self::with_range(device, START..(ADDRESSABLE.min(1 << bits) - KERNEL))
    }

    /// Makes an address space over a range of its own.
    ///
    /// # Errors
    ///
    /// When the range is empty, is no multiple of 2 MiB, or leaves the driver no room below 2^40;
    /// and what the kernel refuses.
    pub fn with_range(device: &Device, range: Range<u64>) -> Result<Self> {
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
        let fd = allocate(device, &range)?;
        let space = Self(Arc::new(Inner { device: device.clone(), fd, range }));
        for window in WINDOWS {
            // What begins outside is not handed out in any case.
            if space.range().contains(&window) {
                space.reserve(window, WINDOW_SIZE.min(space.range().end - window))?;
            }
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
            // SAFETY: the node is an address space, and there are no addresses of ours.
            return unsafe { call::<r32::ioctl::NVGPU_AS_IOCTL_ALLOC_SPACE>(self.fd(), &mut args) }
                .complete();
        }
        let mut args = r36::nvgpu_as_alloc_space_args::zeroed();
        (args.pages, args.page_size, args.flags, args.o_a.offset) = (pages, page_size, flags, at);
        // SAFETY: the node is an address space, and there are no addresses of ours.
        unsafe { call::<r36::ioctl::NVGPU_AS_IOCTL_ALLOC_SPACE>(self.fd(), &mut args) }.complete()
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
        let gpu = GpuMapping::new(self, &memory)?;
        let cpu = memory.map(Some(gpu.at))?;
        Ok(Buffer { cpu, gpu, memory })
    }
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range();
        f.debug_tuple("AddressSpace").field(&format_args!("{start:#x}..{end:#x}")).finish()
    }
}

fn allocate(device: &Device, range: &Range<u64>) -> Result<OwnedFd> {
    let flags = r36::NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA;
    let fd = if device.release() == Release::R32 {
        let mut args = r32::nvgpu_alloc_as_args::zeroed();
        args.flags = flags;
        // SAFETY: the node is the control's, and there are no addresses of ours.
        unsafe { call::<r32::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS>(device.ctrl(), &mut args) }
            .complete()?;
        args.as_fd
    } else {
        let mut args = r36::nvgpu_alloc_as_args::zeroed();
        (args.flags, args.va_range_start, args.va_range_end) = (flags, range.start, range.end);
        // SAFETY: the node is the control's, and there are no addresses of ours.
        unsafe { call::<r36::ioctl::NVGPU_GPU_IOCTL_ALLOC_AS>(device.ctrl(), &mut args) }
            .complete()?;
        args.as_fd
    };
    // SAFETY: the driver has just made it.
    unsafe { own(fd, "NVGPU_GPU_IOCTL_ALLOC_AS") }
}

/// Memory that the GPU sees, until this goes.
#[derive(Debug)]
struct GpuMapping {
    space: AddressSpace,
    at: u64,
}

impl GpuMapping {
    fn new(space: &AddressSpace, memory: &Memory) -> Result<Self> {
        let mut args = r36::nvgpu_as_map_buffer_ex_args::zeroed();
        // No compression; pitch is kind 0.
        (args.compr_kind, args.incompr_kind) = (-1, 0);
        args.dmabuf_fd = memory.dmabuf().as_raw_fd() as u32;
        args.page_size = PAGE as u32;
        // SAFETY: the node is an address space, and there are no addresses of ours.
        unsafe { call::<r36::ioctl::NVGPU_AS_IOCTL_MAP_BUFFER_EX>(space.fd(), &mut args) }
            .complete()?;
        Ok(Self { space: space.clone(), at: args.offset })
    }
}

impl Drop for GpuMapping {
    fn drop(&mut self) {
        let mut args = r36::nvgpu_as_unmap_buffer_args { offset: self.at };
        // The kernel answers 0 whatever it is given.
        // SAFETY: the node is an address space, and there are no addresses of ours.
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
        // SAFETY: the place is inside, and the caller's bytes are elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.cpu.address().add(at), bytes.len());
        }
        Ok(())
    }

    /// Copies bytes out of it.
    ///
    /// # Errors
    ///
    /// When there are not so many.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let at = self.inside(at, bytes.len())?;
        // SAFETY: the place is inside, and the caller's bytes are elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.cpu.address().add(at),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
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
