//! Global memory: allocations at real addresses of this process.
//!
//! Blocks run on several threads and may race as on a GPU, so every access is a relaxed atomic one.
//! What lies outside of an allocation is never touched. Addresses are the same in each run of a program
//! that allocates in the same order: they are asked for, one after the other, where nothing else is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::DeviceError;

/// Between allocations, so that running over the end of one does not reach the next.
const GUARD: u64 = 256;
const ALIGN: u64 = 256;

/// Where the first chunk is asked for: above programs that are loaded low, and below 39 bits, which is
/// all that some machines have.
const FIRST: u64 = 1 << 36;

/// Bytes of a chunk that small allocations share, a multiple of any size of pages.
const CHUNK: u64 = 1 << 20;

/// The allocations of a device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    allocations: RwLock<BTreeMap<u64, Allocation>>,
    /// The chunk that small allocations are taken from, and the bytes taken.
    current: Mutex<Option<(Arc<Chunk>, u64)>>,
    /// Counts frees: what was looked up before one may be gone.
    generation: AtomicU64,
}

#[derive(Debug)]
struct Allocation {
    size: u64,
    /// None for memory that the program registered.
    _owned: Option<Arc<Chunk>>,
}

/// Zeroed memory of the system.
#[derive(Debug)]
struct Chunk {
    start: u64,
    size: u64,
}

impl Chunk {
    fn new(size: u64) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(FIRST);
        let hint = NEXT.fetch_add(size.next_multiple_of(CHUNK), Ordering::Relaxed);
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, which the system puts elsewhere if something is at that address.
        let bytes = unsafe { libc::mmap(pointer(hint), size as usize, access, kind, -1, 0) };
        let start = bytes.expose_provenance() as u64;
        (bytes != libc::MAP_FAILED).then_some(Self { start, size })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and no allocation in it is left.
        unsafe { libc::munmap(pointer(self.start), self.size as usize) };
    }
}

impl Memory {
    /// Zeroed memory.
    pub(crate) fn alloc(&self, size: u64) -> Result<u64, DeviceError> {
        let total = size
            .checked_add(GUARD)
            .filter(|total| *total < 1 << 46)
            .ok_or(DeviceError::OutOfMemory(size))?
            .next_multiple_of(ALIGN);
        let (chunk, offset) = self.take(total).ok_or(DeviceError::OutOfMemory(size))?;
        let start = chunk.start + offset;
        self.insert(start, Allocation { size: size.max(1), _owned: Some(chunk) });
        Ok(start)
    }

    /// Bytes that nothing had before, in a chunk.
    fn take(&self, total: u64) -> Option<(Arc<Chunk>, u64)> {
        if total > CHUNK / 4 {
            return Some((Arc::new(Chunk::new(total)?), 0));
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (chunk, taken) = match current.take() {
            Some((chunk, taken)) if total <= chunk.size - taken => (chunk, taken),
            _ => (Arc::new(Chunk::new(CHUNK)?), 0),
        };
        *current = Some((chunk.clone(), taken + total));
        Some((chunk, taken))
    }

    /// Makes memory of the host accessible to kernels, until [`Memory::free`].
    pub(crate) fn register(&self, address: u64, size: u64) {
        self.insert(address, Allocation { size, _owned: None });
    }

    fn insert(&self, start: u64, allocation: Allocation) {
        let mut allocations = self.allocations.write().unwrap_or_else(PoisonError::into_inner);
        allocations.insert(start, allocation);
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), DeviceError> {
        let mut allocations = self.allocations.write().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(1, Ordering::Relaxed);
        allocations.remove(&address).map(drop).ok_or(DeviceError::BadFree(address))
    }

    /// First byte and end of the allocation around an address.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, u64)> {
        let allocations = self.allocations.read().unwrap_or_else(PoisonError::into_inner);
        let (start, allocation) = allocations.range(..=address).next_back()?;
        let end = start + allocation.size;
        (address < end).then_some((*start, end))
    }

    /// Start and size of the allocation that is nearest to an address outside of all, for messages.
    pub(crate) fn nearest(&self, address: u64) -> Option<(u64, u64)> {
        let allocations = self.allocations.read().unwrap_or_else(PoisonError::into_inner);
        let below = allocations.range(..=address).next_back();
        let above = allocations.range(address..).next();
        let both = below.into_iter().chain(above).map(|(start, with)| (*start, with.size));
        both.min_by_key(|(start, size)| distance(address, *start, *size))
    }

    fn check(&self, address: u64, size: u64) -> Result<(), DeviceError> {
        let inside = self.find(address).is_some_and(|(_, end)| size <= end - address);
        if inside || size == 0 { Ok(()) } else { Err(DeviceError::BadRange { address, size }) }
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(address, bytes.len() as u64)?;
        // SAFETY: the range is inside one allocation, whose provenance is exposed; `bytes` is borrowed
        // and so not part of it, unless the program handed in its own memory, which `copy` allows.
        unsafe { std::ptr::copy(bytes.as_ptr(), pointer(address), bytes.len()) };
        Ok(())
    }

    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.check(address, bytes.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy(pointer(address), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

/// Bytes between an address and an allocation.
pub(crate) fn distance(address: u64, start: u64, size: u64) -> u64 {
    start.saturating_sub(address).max(address.saturating_sub(start + size))
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Looks up allocations for one block, remembering the last ones.
#[derive(Debug, Default)]
pub(crate) struct View {
    recent: [(u64, u64); 4],
    next: usize,
    generation: u64,
}

/// Global memory that may be accessed: proof of a successful [`View::locate`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell(u64);

impl View {
    /// Whether all of a range is inside one allocation.
    pub(crate) fn locate(&mut self, memory: &Memory, address: u64, size: u64) -> Option<Cell> {
        let generation = memory.generation.load(Ordering::Relaxed);
        if generation != self.generation {
            *self = Self { generation, ..Self::default() };
        }
        for (start, end) in self.recent {
            if address >= start && address < end && size <= end - address {
                return Some(Cell(address));
            }
        }
        let (start, end) = memory.find(address)?;
        self.recent[self.next] = (start, end);
        self.next = (self.next + 1) % self.recent.len();
        (size <= end - address).then_some(Cell(address))
    }
}

impl Cell {
    pub(crate) fn offset(self, by: u64) -> Self {
        Self(self.0 + by)
    }

    /// Reads 1, 2, 4 or 8 aligned bytes.
    pub(crate) fn load(self, width: u64) -> u64 {
        // SAFETY: `locate` found the bytes inside an allocation, and its caller checked that they are
        // aligned; a block does not run on after an error of either.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(pointer(self.0)).load(Ordering::Relaxed).into(),
                2 => AtomicU16::from_ptr(pointer(self.0)).load(Ordering::Relaxed).into(),
                4 => AtomicU32::from_ptr(pointer(self.0)).load(Ordering::Relaxed).into(),
                _ => AtomicU64::from_ptr(pointer(self.0)).load(Ordering::Relaxed),
            }
        }
    }

    pub(crate) fn store(self, width: u64, value: u64) {
        // SAFETY: as in `load`.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(pointer(self.0)).store(value as u8, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(pointer(self.0)).store(value as u16, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(pointer(self.0)).store(value as u32, Ordering::Relaxed),
                _ => AtomicU64::from_ptr(pointer(self.0)).store(value, Ordering::Relaxed),
            }
        }
    }

    /// Replaces 2, 4 or 8 bytes by what a function makes of them; the old value.
    pub(crate) fn update(self, width: u64, f: impl Fn(u64) -> u64) -> u64 {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: as in `load`.
        let result = unsafe {
            if width == 2 {
                AtomicU16::from_ptr(pointer(self.0))
                    .fetch_update(order.0, order.1, |old| Some(f(old.into()) as u16))
                    .map(u64::from)
                    .map_err(u64::from)
            } else if width == 4 {
                AtomicU32::from_ptr(pointer(self.0))
                    .fetch_update(order.0, order.1, |old| Some(f(old.into()) as u32))
                    .map(u64::from)
                    .map_err(u64::from)
            } else {
                AtomicU64::from_ptr(pointer(self.0))
                    .fetch_update(order.0, order.1, |old| Some(f(old)))
            }
        };
        result.unwrap_or_else(|old| old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_leave_an_allocation_are_refused() {
        let memory = Memory::default();
        let address = memory.alloc(16).unwrap();
        let mut bytes = [1; 16];
        memory.read(address, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 16]);
        memory.write(address + 12, &[7; 4]).unwrap();
        assert_eq!(
            memory.write(address + 13, &[7; 4]),
            Err(DeviceError::BadRange { address: address + 13, size: 4 })
        );
        assert!(memory.read(address + 16, &mut [0]).is_err());
        let mut view = View::default();
        assert_eq!(view.locate(&memory, address + 12, 4).unwrap().load(4), 0x0707_0707);
        assert!(view.locate(&memory, address + 13, 4).is_none());
        memory.free(address).unwrap();
        assert!(view.locate(&memory, address, 4).is_none());
        assert_eq!(memory.free(address), Err(DeviceError::BadFree(address)));
    }

    #[test]
    fn freed_memory_is_not_handed_out_again() {
        let memory = Memory::default();
        for size in [1, 1000, CHUNK / 4, CHUNK, 3 * CHUNK + 1] {
            let first = memory.alloc(size).unwrap();
            memory.write(first, &[7]).unwrap();
            memory.free(first).unwrap();
            let second = memory.alloc(size).unwrap();
            let mut byte = [1];
            memory.read(second, &mut byte).unwrap();
            assert_eq!((byte, first % ALIGN, second % ALIGN), ([0], 0, 0), "{size}");
            assert_ne!(first, second);
        }
    }

    #[test]
    fn sizes_that_cannot_be_had_are_refused() {
        let memory = Memory::default();
        assert_eq!(memory.alloc(u64::MAX), Err(DeviceError::OutOfMemory(u64::MAX)));
    }
}
