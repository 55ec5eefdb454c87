//! Global memory: allocations at real addresses of this process.
//!
//! Blocks run on several threads and may race as on a GPU: `access` has the loads and stores that allow it.
//! What lies outside of an allocation is never touched. Addresses are the same in each run of a program
//! that allocates in the same order: they are asked for, one after the other, where nothing else is.
//!
//! A kernel may free what another thread is about to load. Memory that is freed therefore stays mapped until
//! [`Memory::unmap_freed`], which borrows the memory mutably: a [`GlobalAddress`] borrows it, so that none is
//! left by then.

mod access;
mod reserve;
mod shadow;
mod share;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use self::shadow::Order;
pub(crate) use self::shadow::{BlockAccess, GlobalProblem, Reach, Shadow};
pub use self::share::SharedRange;
use crate::error::DeviceError;

/// Between allocations, so that running over the end of one does not reach the next.
const GUARD: u64 = 256;
const ALIGN: u64 = 256;

/// Where the first chunk is asked for: above programs that are loaded low, and below 39 bits, which is
/// all that some machines have.
const FIRST: u64 = 1 << 36;

/// Bytes of a chunk that small allocations share, a multiple of any size of pages.
const CHUNK: u64 = 1 << 20;

/// Freed allocations that are remembered for messages.
const REMEMBERED: usize = 4096;

/// Memory that is not the emulator's own, such as that of a simulated GPU: its addresses say nothing about this
/// process. Blocks access it from several threads.
pub trait Foreign: std::fmt::Debug + Send + Sync {
    /// First address and end of what is mapped around an address.
    fn range(&self, address: u64) -> Option<(u64, u64)>;

    /// Reads 1, 2, 4 or 8 bytes of what [`Foreign::range`] gave; what is gone meanwhile reads as zeros.
    fn load(&self, address: u64, width: u64) -> u64;

    /// Reads bytes of what [`Foreign::range`] gave; whether they were there.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self.load(address.wrapping_add(at as u64), 1) as u8;
        }
        true
    }

    /// Writes the low bytes of a value, as [`Foreign::load`] reads them; what is gone meanwhile takes nothing.
    fn store(&self, address: u64, width: u64, value: u64);

    /// Writes bytes to what [`Foreign::range`] gave; whether they could be. Else they are stored one by one.
    fn write(&self, _address: u64, _bytes: &[u8]) -> bool {
        false
    }

    /// Stores `new` where `old` is found, in one step; the value found.
    fn compare_exchange(&self, address: u64, width: u64, old: u64, new: u64) -> u64;
}

/// The allocations of a device.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What was written and by whom, if that is watched.
    shadow: Option<Shadow>,
    table: RwLock<Table>,
    /// What else there is, beside the allocations.
    foreign: Option<Arc<dyn Foreign>>,
    /// Counts frees: what was looked up before one may be gone.
    generation: AtomicU64,
    /// Which of several devices allocates and runs kernels.
    current: Current,
}

/// One of several devices that share this memory.
#[derive(Debug, Clone, Copy)]
struct Current {
    device: u8,
    /// A bit for each device whose memory it reaches, its own included.
    reaches: u64,
}

impl Default for Current {
    fn default() -> Self {
        Self { device: 0, reaches: 1 }
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By first byte.
    allocations: BTreeMap<u64, Allocation>,
    /// By first byte.
    chunks: BTreeMap<u64, Chunk>,
    /// The chunk that small allocations are taken from, and the bytes taken: those of the device, and those that the
    /// program reaches as well.
    current: [Option<(u64, u64)>; 2],
    /// By first address.
    reservations: BTreeMap<u64, reserve::Reservation>,
    /// Without allocations, but mapped as long as an address in them may be in use.
    retired: Vec<Mapping>,
    /// First byte and size of the last allocations that were freed.
    freed: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Allocation {
    size: u64,
    /// None for memory that the program registered.
    chunk: Option<u64>,
    /// Which device's it is.
    device: u8,
    /// A bit for each device that reaches it, whatever else that device reaches.
    open_to: u64,
    access: Access,
}

/// Which devices reach an allocation beside those that it is open to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Its own, and those that reach all memory of that.
    Peers,
    /// Its own: it is in a pool.
    Own,
    /// None: the program mapped it.
    Listed,
}

impl Allocation {
    /// Whether kernels of a device reach it.
    fn is_open_to(&self, current: Current) -> bool {
        let reaches = match self.access {
            Access::Peers => current.reaches,
            Access::Own => 1 << current.device,
            Access::Listed => 0,
        };
        self.open_to >> current.device & 1 != 0 || reaches >> self.device & 1 != 0
    }
}

/// Memory that allocations are taken from.
#[derive(Debug)]
struct Chunk {
    mapping: Mapping,
    allocations: usize,
    owner: Owner,
}

/// Who may access a chunk at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Kernels alone.
    Device,
    /// The program, too.
    Host,
    /// Other processes: it lies in a file of theirs, or of this one for them.
    Other,
}

/// Zeroed memory of the system.
#[derive(Debug)]
struct Mapping {
    start: u64,
    size: u64,
    /// Where it lies, if other processes may map it.
    file: Option<File>,
}

impl Mapping {
    /// Where so many bytes are asked for.
    fn hint(size: u64) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(FIRST);
        NEXT.fetch_add(size.next_multiple_of(CHUNK), Ordering::Relaxed)
    }

    fn new(size: u64) -> Option<Self> {
        let hint = Self::hint(size);
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: without MAP_FIXED the system takes the address as a hint and maps where nothing is
        // (mmap(2)), so that no memory in use changes.
        let bytes = unsafe { libc::mmap(pointer(hint).cast(), size as usize, access, kind, -1, 0) };
        let start = bytes.expose_provenance() as u64;
        (bytes != libc::MAP_FAILED).then_some(Self { start, size, file: None })
    }

    /// Gives the pages back to the system; they stay mapped and read as zeros, but for those that others share.
    fn discard(&self) {
        // SAFETY: the range is this mapping. If it is private and anonymous, its bytes become zeros
        // (madvise(2)); those of a file stay. Threads that still access them by `access` see stores of zeros by another thread.
        // A failure changes nothing: the pages are unmapped later.
        unsafe {
            libc::madvise(pointer(self.start).cast(), self.size as usize, libc::MADV_DONTNEED)
        };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this range and nothing else unmaps it. Mappings are dropped by
        // `Memory::unmap_freed` and with the `Memory`, both of which have it to themselves: no
        // `GlobalAddress`, which borrows it, is left.
        unsafe { libc::munmap(pointer(self.start).cast(), self.size as usize) };
    }
}

impl Table {
    /// Bytes that nothing had before: their chunk, and where they start in it.
    fn take(&mut self, total: u64, owner: Owner) -> Option<(u64, u64)> {
        if total > CHUNK / 4 {
            return Some((self.add_chunk(total, owner)?, 0));
        }
        let current = usize::from(owner == Owner::Host);
        let (chunk, taken) = match self.current[current] {
            Some((chunk, taken)) if total <= CHUNK - taken => (chunk, taken),
            last => {
                let chunk = self.add_chunk(CHUNK, owner)?;
                self.current[current] = Some((chunk, 0));
                if let Some((last, _)) = last {
                    self.retire_if_empty(last);
                }
                (chunk, 0)
            }
        };
        self.current[current] = Some((chunk, taken + total));
        Some((chunk, taken))
    }

    fn add_chunk(&mut self, size: u64, owner: Owner) -> Option<u64> {
        Some(self.insert_chunk(Mapping::new(size)?, owner))
    }

    fn insert_chunk(&mut self, mapping: Mapping, owner: Owner) -> u64 {
        let start = mapping.start;
        self.chunks.insert(start, Chunk { mapping, allocations: 0, owner });
        start
    }

    fn remove(&mut self, address: u64) -> Option<()> {
        let Allocation { size, chunk, .. } = self.allocations.remove(&address)?;
        if self.freed.len() == REMEMBERED {
            self.freed.pop_front();
        }
        self.freed.push_back((address, size));
        if let Some(start) = chunk {
            if let Some(chunk) = self.chunks.get_mut(&start) {
                chunk.allocations -= 1;
            }
            self.retire_if_empty(start);
        }
        Some(())
    }

    fn retire_if_empty(&mut self, start: u64) {
        let is_current = self.current.iter().flatten().any(|(chunk, _)| *chunk == start);
        let is_empty = self.chunks.get(&start).is_some_and(|chunk| chunk.allocations == 0);
        if is_current || !is_empty {
            return;
        }
        if let Some(chunk) = self.chunks.remove(&start) {
            chunk.mapping.discard();
            self.retired.push(chunk.mapping);
        }
    }

    /// First byte and end of the allocation around an address.
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.around(address).map(|(start, allocation)| (start, start + allocation.size))
    }

    /// The allocation around an address, and its first byte.
    fn around(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.allocations.range(..=address).next_back()?;
        (address < start + allocation.size).then_some((*start, allocation))
    }
}

impl Memory {
    /// Allocations beside memory that is there already.
    pub(crate) fn beside(foreign: Arc<dyn Foreign>) -> Self {
        Self { foreign: Some(foreign), ..Self::default() }
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Zeroed memory.
    pub(crate) fn alloc(&self, size: u64) -> Result<u64, DeviceError> {
        self.alloc_by(size, |memory, table, total| memory.take(table, total, Owner::Device))
    }

    /// The same, for what the program accesses as well.
    pub(crate) fn alloc_host(&self, size: u64) -> Result<u64, DeviceError> {
        self.alloc_by(size, |memory, table, total| memory.take(table, total, Owner::Host))
    }

    /// The same, in pages of its own.
    pub(crate) fn alloc_apart(&self, size: u64) -> Result<u64, DeviceError> {
        self.alloc_by(size, |_, table, total| Some((table.add_chunk(total, Owner::Host)?, 0)))
    }

    fn alloc_by(
        &self,
        size: u64,
        take: impl FnOnce(&Self, &mut Table, u64) -> Option<(u64, u64)>,
    ) -> Result<u64, DeviceError> {
        let total = size
            .checked_add(GUARD)
            .filter(|total| *total < 1 << 46)
            .ok_or(DeviceError::OutOfMemory(size))?
            .next_multiple_of(ALIGN);
        let mut table = self.table_mut();
        let place = take(self, &mut table, total).ok_or(DeviceError::OutOfMemory(size))?;
        Ok(self.enter(&mut table, place, size.max(1)))
    }

    /// Adds an allocation of the current device, at an offset in a chunk; its first byte.
    fn enter(&self, table: &mut Table, (chunk, offset): (u64, u64), size: u64) -> u64 {
        let start = chunk + offset;
        let mut open_to = 0;
        if let Some(chunk) = table.chunks.get_mut(&chunk) {
            chunk.allocations += 1;
            if chunk.owner == Owner::Host {
                open_to = u64::MAX;
            }
        }
        let Current { device, .. } = self.current;
        let allocation =
            Allocation { size, chunk: Some(chunk), device, open_to, access: Access::Peers };
        table.allocations.insert(start, allocation);
        if let Some(shadow) = &self.shadow {
            shadow.add(start, size);
        }
        start
    }

    /// Whether there is memory beside the allocations.
    pub(crate) fn has_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Bytes that nothing had before, and that are at no address of foreign memory.
    fn take(&self, table: &mut Table, total: u64, owner: Owner) -> Option<(u64, u64)> {
        const TRIES: usize = 16;
        for _ in 0..TRIES {
            let (chunk, offset) = table.take(total, owner)?;
            let (first, last) = (chunk + offset, chunk + offset + total - 1);
            let is_taken = |foreign: &Arc<dyn Foreign>| {
                foreign.range(first).is_some() || foreign.range(last).is_some()
            };
            if !self.foreign.as_ref().is_some_and(is_taken) {
                return Some((chunk, offset));
            }
        }
        None
    }

    /// Makes memory of the host accessible to kernels, until [`Memory::free`].
    ///
    /// # Safety
    ///
    /// As of [`crate::Device::register`].
    pub(crate) unsafe fn register(&self, address: u64, size: u64) {
        let Current { device, .. } = self.current;
        let allocation =
            Allocation { size, chunk: None, device, open_to: u64::MAX, access: Access::Peers };
        self.table_mut().allocations.insert(address, allocation);
    }

    /// Ends an allocation. Its bytes stay mapped until [`Memory::unmap_freed`].
    pub(crate) fn free(&self, address: u64) -> Result<(), DeviceError> {
        let mut table = self.table_mut();
        // Where the free happens before an access, the access sees the new number (coherence). Others
        // race with the free and may come before it.
        self.generation.fetch_add(1, Ordering::Relaxed);
        table.remove(address).ok_or(DeviceError::BadFree(address))?;
        if let Some(shadow) = &self.shadow {
            shadow.remove(address);
        }
        Ok(())
    }

    /// From now on allocations are watched.
    pub(crate) fn watch(&mut self) {
        self.shadow.get_or_insert_default();
    }

    /// What is known of them.
    pub(crate) fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    /// Something wrote that is not checked.
    pub(crate) fn mark(&self, address: u64, size: u64) {
        if let Some(shadow) = &self.shadow {
            shadow.mark(address, size);
        }
    }

    /// Unmaps what was freed.
    pub(crate) fn unmap_freed(&mut self) {
        self.table.get_mut().unwrap_or_else(PoisonError::into_inner).retired.clear();
    }

    /// First byte and end of the allocation around an address.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.look_up(address).map(|(start, end, _)| (start, end))
    }

    /// From now on a device allocates and runs kernels, which reach memory of the devices that have a bit.
    pub(crate) fn select(&mut self, device: u8, reaches: u64) {
        self.current = Current { device: device % 64, reaches };
    }

    /// The device whose memory is at an address, and whether the current one reaches it.
    pub(crate) fn device_of(&self, address: u64) -> Option<(u8, bool)> {
        let table = self.table();
        let (_, allocation) = table.around(address)?;
        Some((allocation.device, allocation.is_open_to(self.current)))
    }

    /// Lets devices that have a bit, and no others, reach an allocation, by its first byte; beside its own where the
    /// program has not mapped it itself.
    pub(crate) fn open_to(&mut self, address: u64, devices: u64) {
        if let Some(allocation) = self.table_mut().allocations.get_mut(&address) {
            allocation.open_to = devices;
            if allocation.access == Access::Peers {
                allocation.access = Access::Own;
            }
        }
    }

    pub(crate) fn opened_to(&self, address: u64) -> Option<u64> {
        self.table().allocations.get(&address).map(|allocation| allocation.open_to)
    }

    /// Where the allocations end that follow each other from an address on: those that the program maps may.
    pub(crate) fn end_of_run(&self, address: u64) -> Option<u64> {
        let table = self.table();
        let (start, allocation) = table.around(address)?;
        let mut end = start + allocation.size;
        while let Some(next) = table.allocations.get(&end) {
            end += next.size;
        }
        Some(end)
    }

    fn look_up(&self, address: u64) -> Option<Recent<'_>> {
        self.look_up_if(address, |_| true)
    }

    /// What kernels of the current device reach.
    fn reach(&self, address: u64) -> Option<Recent<'_>> {
        self.look_up_if(address, |allocation| allocation.is_open_to(self.current))
    }

    fn look_up_if(&self, address: u64, wanted: impl Fn(&Allocation) -> bool) -> Option<Recent<'_>> {
        if let Some((start, allocation)) = self.table().around(address) {
            return wanted(allocation).then_some((start, start + allocation.size, None));
        }
        let foreign = self.foreign.as_deref()?;
        let (start, end) = foreign.range(address)?;
        Some((start, end, Some(foreign)))
    }

    /// Start and size of the last freed allocation around an address, where nothing is mapped since.
    pub(crate) fn freed(&self, address: u64) -> Option<(u64, u64)> {
        let around = |(start, size): &&(u64, u64)| (*start..start + size).contains(&address);
        let table = self.table();
        if table.around(address).is_some() {
            return None;
        }
        table.freed.iter().rev().find(around).copied()
    }

    /// Start and size of the allocation that is nearest to an address outside of all, for messages.
    pub(crate) fn nearest(&self, address: u64) -> Option<(u64, u64)> {
        let table = self.table();
        let below = table.allocations.range(..=address).next_back();
        let above = table.allocations.range(address..).next();
        let both = below.into_iter().chain(above).map(|(start, with)| (*start, with.size));
        both.min_by_key(|(start, size)| distance(address, *start, *size))
    }

    /// Whose all of a range is, if not the emulator's.
    fn check(&self, address: u64, size: u64) -> Result<Option<&dyn Foreign>, DeviceError> {
        match self.look_up(address).filter(|(_, end, _)| size <= end - address) {
            Some((_, _, foreign)) => Ok(foreign),
            None if size == 0 => Ok(None),
            None if self.end_of_run(address).is_some_and(|end| size <= end - address) => Ok(None),
            None => Err(DeviceError::BadRange { address, size }),
        }
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if let Some(foreign) = self.check(address, bytes.len() as u64)? {
            for (at, byte) in bytes.iter().enumerate() {
                foreign.store(address + at as u64, 1, (*byte).into());
            }
            return Ok(());
        }
        // SAFETY: `check` found the range inside one allocation. One of ours is mapped, with its provenance
        // exposed by `Mapping::new`; one that was registered is valid and exposed by the promise of
        // `Device::register`, which also excludes that `bytes` is part of it. `self` is borrowed mutably, so
        // that no `GlobalAddress` accesses the range at the same time.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(address), bytes.len()) };
        self.mark(address, bytes.len() as u64);
        Ok(())
    }

    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        if let Some(foreign) = self.check(address, bytes.len() as u64)? {
            let size = bytes.len() as u64;
            let is_there = foreign.read(address, bytes);
            return is_there.then_some(()).ok_or(DeviceError::BadRange { address, size });
        }
        // Held to the end, so that nothing of the range is freed before it is read.
        let table = self.table();
        let size = bytes.len() as u64;
        if size != 0 && table.find(address).is_none_or(|(_, end)| size > end - address) {
            return Err(DeviceError::BadRange { address, size });
        }
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let width = if at % 8 == 0 && rest.len() >= 8 { 8 } else { 1 };
            let (head, tail) = rest.split_at_mut(width);
            // SAFETY: `at` and the bytes behind it are inside one allocation, as above, which is valid as in
            // `write`. Kernels may access it at the same time, by the same functions.
            let word = unsafe { access::load(pointer(at), width as u64) };
            head.copy_from_slice(&word.to_le_bytes()[..width]);
            (at, rest) = (at + width as u64, tail);
        }
        Ok(())
    }
}

/// Bytes between an address and an allocation.
pub(crate) fn distance(address: u64, start: u64, size: u64) -> u64 {
    start.saturating_sub(address).max(address.saturating_sub(start + size))
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Looks up allocations for one block, remembering the last ones.
#[derive(Debug)]
pub(crate) struct AllocationCache<'a> {
    memory: &'a Memory,
    recent: [Recent<'a>; 4],
    next: usize,
    generation: u64,
}

/// An allocation that was looked up: first byte, end, and whose it is if not the emulator's.
type Recent<'a> = (u64, u64, Option<&'a dyn Foreign>);

/// Global memory that may be accessed: [`AllocationCache::locate`] found it inside an allocation.
///
/// It borrows the [`Memory`], which keeps it mapped even when the allocation is freed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GlobalAddress<'a> {
    address: u64,
    /// Bytes from there on that are inside.
    size: u64,
    foreign: Option<&'a dyn Foreign>,
}

impl<'a> AllocationCache<'a> {
    pub(crate) fn new(memory: &'a Memory) -> Self {
        let generation = memory.generation.load(Ordering::Relaxed);
        Self { memory, recent: [(0, 0, None); 4], next: 0, generation }
    }

    /// Whether all of a range is inside one allocation.
    #[inline]
    pub(crate) fn locate(&mut self, address: u64, size: u64) -> Option<GlobalAddress<'a>> {
        let generation = self.memory.generation.load(Ordering::Relaxed);
        if generation != self.generation {
            *self = Self::new(self.memory);
        }
        for (start, end, foreign) in self.recent {
            if address >= start && address < end && size <= end - address {
                return Some(GlobalAddress { address, size, foreign });
            }
        }
        let (start, end, foreign) = self.memory.reach(address)?;
        self.recent[self.next] = (start, end, foreign);
        self.next = (self.next + 1) % self.recent.len();
        (size <= end - address).then_some(GlobalAddress { address, size, foreign })
    }
}

impl GlobalAddress<'_> {
    /// Where a part of what was located begins.
    #[inline]
    fn part(self, at: u64, width: u64) -> u64 {
        assert!(at + width <= self.size, "{width} bytes at {at} of {}", self.size);
        self.address + at
    }

    /// Reads 1, 2, 4 or 8 bytes, `at` bytes behind the address.
    #[inline]
    pub(crate) fn load(self, at: u64, width: u64) -> u64 {
        let at = self.part(at, width);
        if let Some(foreign) = self.foreign {
            return foreign.load(at, width);
        }
        // SAFETY: `locate` found `size` bytes inside an allocation, and `part` checks that it stays inside
        // those. They are mapped for as long as `self` lives: freed memory is unmapped with `Memory` borrowed
        // mutably. Registered memory is valid by the promise of `Device::register`. While a launch runs, the
        // process accesses both by `access` alone: `write` needs `&mut Memory`, and the rest of the process
        // is bound by that promise.
        unsafe { access::load(pointer(at), width) }
    }

    /// Writes the low 1, 2, 4 or 8 bytes of a value, `at` bytes behind the address.
    #[inline]
    pub(crate) fn store(self, at: u64, width: u64, value: u64) {
        let at = self.part(at, width);
        if let Some(foreign) = self.foreign {
            return foreign.store(at, width, value);
        }
        // SAFETY: the argument of `load`; mappings are writable, and so is registered memory by promise.
        unsafe { access::store(pointer(at), width, value) }
    }

    /// Reads all that was located, where it is no allocation; whether that was done.
    pub(crate) fn read_foreign(self, bytes: &mut [u8]) -> bool {
        let at = self.part(0, bytes.len() as u64);
        self.foreign.is_some_and(|foreign| foreign.read(at, bytes))
    }

    /// Writes all that was located, where it is no allocation; whether that was done.
    pub(crate) fn write_foreign(self, bytes: &[u8]) -> bool {
        let at = self.part(0, bytes.len() as u64);
        self.foreign.is_some_and(|foreign| foreign.write(at, bytes))
    }

    /// Replaces 2, 4 or 8 bytes by what a function makes of them; the old value.
    pub(crate) fn update(self, width: u64, f: impl Fn(u64) -> u64) -> u64 {
        let keep = u64::MAX >> (64 - 8 * width);
        let mut old = self.load(0, width);
        loop {
            let found = self.compare_exchange(width, old, f(old) & keep);
            if found == old {
                return old;
            }
            old = found;
        }
    }

    fn compare_exchange(self, width: u64, old: u64, new: u64) -> u64 {
        let at = self.part(0, width);
        if let Some(foreign) = self.foreign {
            return foreign.compare_exchange(at, width, old, new);
        }
        // SAFETY: the argument of `store`.
        unsafe { access::compare_exchange(pointer(at), width, old, new) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_leave_an_allocation_are_refused() {
        let mut memory = Memory::default();
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
        let mut cache = AllocationCache::new(&memory);
        assert_eq!(cache.locate(address + 12, 4).unwrap().load(0, 4), 0x0707_0707);
        assert!(cache.locate(address + 13, 4).is_none());
        memory.free(address).unwrap();
        assert!(cache.locate(address, 4).is_none());
        assert_eq!(memory.freed(address + 15), Some((address, 16)));
        assert_eq!(memory.freed(address + 16), None);
        assert_eq!(memory.free(address), Err(DeviceError::BadFree(address)));
    }

    /// Kernels of a device reach its own memory, that of devices with a bit, and what is open to it.
    #[test]
    fn devices_reach_what_they_may() {
        let mut memory = Memory::default();
        memory.select(1, 0b10);
        let (own, host) = (memory.alloc(8).unwrap(), memory.alloc_host(8).unwrap());
        let reached = |memory: &Memory| {
            [own, host].map(|at| AllocationCache::new(memory).locate(at, 8).is_some())
        };
        assert_eq!((reached(&memory), memory.device_of(own)), ([true; 2], Some((1, true))));
        memory.select(0, 0b01);
        assert_eq!((reached(&memory), memory.device_of(own)), ([false, true], Some((1, false))));
        memory.write(own, &[1; 8]).unwrap();
        memory.select(0, 0b11);
        assert_eq!(reached(&memory), [true; 2]);
        memory.select(2, 0b100);
        memory.open_to(own, 0b100);
        assert_eq!(reached(&memory), [true; 2]);
        // What is opened by itself is open to nobody else.
        memory.select(3, 0b1010);
        assert_eq!(reached(&memory), [false, true]);
        memory.select(1, 0b10);
        assert_eq!(reached(&memory), [true; 2]);
    }

    #[test]
    fn freed_memory_is_not_handed_out_again() {
        let mut memory = Memory::default();
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

    /// Before, the free unmapped what had just been located.
    #[test]
    fn what_was_located_stays_mapped_when_it_is_freed() {
        let mut memory = Memory::default();
        for size in [16, CHUNK] {
            let address = memory.alloc(size).unwrap();
            let located = AllocationCache::new(&memory).locate(address, 8).unwrap();
            located.store(0, 8, 7);
            memory.free(address).unwrap();
            // Another chunk becomes the current one, and the first is retired.
            for _ in 0..5 {
                let other = memory.alloc(CHUNK / 4 - GUARD).unwrap();
                memory.free(other).unwrap();
            }
            assert_eq!(located.load(0, 8), 0, "the pages are given back, not the addresses");
            located.store(0, 8, 7);
            memory.unmap_freed();
            assert!(memory.table().retired.is_empty());
        }
    }

    #[test]
    fn threads_may_access_what_another_frees() {
        for _ in 0..20 {
            let memory = Memory::default();
            let kept = memory.alloc(8).unwrap();
            let doomed: Vec<u64> = (0..64).map(|_| memory.alloc(CHUNK).unwrap()).collect();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        let mut cache = AllocationCache::new(&memory);
                        for address in &doomed {
                            for at in (0..512).step_by(4) {
                                let Some(found) = cache.locate(address + at, 4) else { break };
                                found.store(0, 4, found.load(0, 4) + 1);
                                let kept = cache.locate(kept, 8).unwrap();
                                kept.update(8, |old| old + 1);
                            }
                        }
                    });
                }
                scope.spawn(|| doomed.iter().for_each(|address| memory.free(*address).unwrap()));
            });
            let mut cache = AllocationCache::new(&memory);
            assert!(doomed.iter().all(|address| cache.locate(*address, 1).is_none()));
        }
    }

    /// Accesses of several widths to the same 8 bytes: none is lost, and none tears.
    #[test]
    fn widths_may_be_mixed() {
        const ROUNDS: u64 = 20_000;
        let memory = Memory::default();
        let word = memory.alloc(8).unwrap();
        let at = |address, width| AllocationCache::new(&memory).locate(address, width).unwrap();
        std::thread::scope(|scope| {
            let count = |offset, width| {
                move || {
                    (0..ROUNDS).for_each(|_| _ = at(word + offset, width).update(width, |n| n + 1))
                }
            };
            scope.spawn(count(0, 4));
            scope.spawn(count(0, 4));
            scope.spawn(count(4, 2));
            scope.spawn(move || (0..=ROUNDS).for_each(|n| at(word + 6, 1).store(0, 1, n)));
            scope.spawn(move || (0..ROUNDS).for_each(|n| at(word + 7, 1).store(0, 1, n | 1)));
            scope.spawn(move || {
                let mut last = 0;
                for _ in 0..ROUNDS {
                    let low = at(word, 8).load(0, 8) & 0xffff_ffff;
                    // Bytewise accesses may tear.
                    assert!(low >= last || cfg!(feature = "portable"), "{low} after {last}");
                    last = low;
                }
            });
        });
        let high = u64::from(ROUNDS as u8) << 48 | u64::from((ROUNDS - 1) as u8 | 1) << 56;
        assert_eq!(at(word, 8).load(0, 8), high | (ROUNDS & 0xffff) << 32 | (2 * ROUNDS));
    }
}
