//! Pools of memory, of the driver and of the runtime: what is allocated from one counts as its use; nothing is kept
//! when it is freed.
#![allow(non_snake_case)]

use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::abi::{In, Out, status_of};
use crate::devices;
use crate::driver::{alloc_on, calls, unchecked};
use crate::runtime::{answer, both, remembered, remembered_unchecked};
use crate::shared_pools::{DESCRIPTOR, PoolFile, new_file};
use crate::state::{
    Code, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, POOL, Result, handle, number, state,
};

type Handle = *mut c_void;

/// One pool.
#[derive(Clone, Default)]
struct Pool {
    /// By the attribute's number: three switches, then the bytes that a GPU would keep.
    settings: [u64; 5],
    used: u64,
    most: u64,
    device: usize,
    /// A bit for each other device that may access it.
    open_to: u64,
    /// Where its memory lies, if processes share it.
    file: Option<Arc<PoolFile>>,
    /// Whether it is another process's.
    is_imported: bool,
}

impl Pool {
    fn of(device: usize) -> Self {
        Self { settings: [0, 1, 1, 1, 0], device, ..Self::default() }
    }
}

/// Where an allocation is in the file of its pool.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) file: Arc<PoolFile>,
    pub(crate) at: u64,
    /// The process whose memory it is, if that is another one.
    pub(crate) owner: Option<u32>,
    /// How often it was imported.
    pub(crate) imports: usize,
}

/// What was allocated of a pool.
struct Allocated {
    pool: usize,
    size: u64,
    part: Option<Part>,
}

/// Every pool; the first are the devices' own.
pub(crate) struct Pools {
    pools: Vec<Option<Pool>>,
    /// Of each device, the one that `cudaMallocAsync` takes from.
    current: Vec<usize>,
    /// By its first byte.
    allocated: HashMap<u64, Allocated>,
    /// What is another process's of that.
    imported: HashSet<u64>,
}

impl Default for Pools {
    fn default() -> Self {
        let devices = 0..devices::count();
        let pools = devices.clone().map(|device| Some(Pool::of(device))).collect();
        Self {
            pools,
            current: devices.collect(),
            allocated: HashMap::new(),
            imported: HashSet::new(),
        }
    }
}

impl Pools {
    fn pool(&mut self, pool: Handle) -> Result<&mut Pool> {
        let at = number(POOL, pool)?;
        self.pools.get_mut(at).and_then(Option::as_mut).ok_or(INVALID_HANDLE)
    }

    /// A pool that this process allocates from, and knows the use of.
    fn own_pool(&mut self, pool: Handle) -> Result<&mut Pool> {
        let pool = self.pool(pool)?;
        if pool.is_imported { Err(INVALID_VALUE) } else { Ok(pool) }
    }

    /// The file of a pool of this process, if it has one.
    pub(crate) fn own_file(&self, pool: usize) -> Result<Option<Arc<PoolFile>>> {
        self.file(pool, false)
    }

    /// The file of another process's pool; none of one of this process.
    pub(crate) fn imported_file(&self, pool: usize) -> Result<Option<Arc<PoolFile>>> {
        self.file(pool, true)
    }

    fn file(&self, pool: usize, of_imported: bool) -> Result<Option<Arc<PoolFile>>> {
        let pool = self.pools.get(pool).and_then(Option::as_ref).ok_or(INVALID_HANDLE)?;
        Ok(pool.file.clone().filter(|_| pool.is_imported == of_imported))
    }

    /// The pool of another process.
    pub(crate) fn import(&mut self, device: usize, file: Arc<PoolFile>) -> usize {
        self.pools.push(Some(Pool { file: Some(file), is_imported: true, ..Pool::of(device) }));
        self.pools.len() - 1
    }

    /// Where memory of this process is that others may import, and its size.
    pub(crate) fn own_part(&self, address: u64) -> Option<(&Part, u64)> {
        let Allocated { size, part, .. } = self.allocated.get(&address)?;
        part.as_ref().filter(|part| part.owner.is_none()).map(|part| (part, *size))
    }

    /// Where memory of a pool is that is imported already, once more now.
    pub(crate) fn import_again(&mut self, pool: usize, at: u64) -> Option<u64> {
        let mut imported = self.allocated.iter_mut().filter(|(_, of)| of.pool == pool);
        imported.find_map(|(address, of)| {
            let part = of.part.as_mut().filter(|part| part.at == at)?;
            part.imports += 1;
            Some(*address)
        })
    }

    /// Memory that its process freed while this one has it imported: its first byte here, and that process.
    pub(crate) fn freed(&self) -> impl Iterator<Item = (u64, u32)> {
        self.imported.iter().filter_map(|address| {
            let Allocated { size, part, .. } = self.allocated.get(address)?;
            let Part { file, at, owner, .. } = part.as_ref()?;
            owner.filter(|_| !file.has(*at, *size)).map(|process| (*address, process))
        })
    }

    /// One use of memory that was imported is over; whether another one goes on.
    pub(crate) fn is_imported_again(&mut self, address: u64) -> bool {
        let part = self.allocated.get_mut(&address).and_then(|of| of.part.as_mut());
        let Some(part) = part.filter(|part| part.imports > 1) else { return false };
        part.imports -= 1;
        true
    }

    /// The pool that a device allocates from, where none is named.
    pub(crate) fn current(&self, device: usize) -> usize {
        self.current[device]
    }

    /// The device of a pool, and a bit for each other one that may access it.
    pub(crate) fn reach(&self, pool: usize) -> Result<(usize, u64)> {
        let pool = self.pools.get(pool).and_then(Option::as_ref).ok_or(INVALID_HANDLE)?;
        Ok((pool.device, pool.open_to))
    }

    /// A device has its own pool alone, with nothing in it.
    pub(crate) fn reset(&mut self, device: usize) {
        for (at, slot) in self.pools.iter_mut().enumerate() {
            if at == device {
                *slot = Some(Pool::of(device));
            } else {
                slot.take_if(|pool| pool.device == device);
            }
        }
        self.current[device] = device;
    }

    /// Counts an allocation of a pool.
    pub(crate) fn count(&mut self, at: usize, address: u64, size: u64, part: Option<Part>) {
        if let Some(Some(pool)) = self.pools.get_mut(at) {
            pool.used += size;
            pool.most = pool.most.max(pool.used);
            if part.as_ref().is_some_and(|part| part.owner.is_some()) {
                self.imported.insert(address);
            }
            self.allocated.insert(address, Allocated { pool: at, size, part });
        }
    }

    /// What was allocated of a pool.
    fn inside(&self, pool: usize) -> impl Iterator<Item = u64> {
        self.allocated.iter().filter(move |(_, of)| of.pool == pool).map(|(address, _)| *address)
    }

    /// Whether a pool gave an allocation.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.allocated.contains_key(&address)
    }

    /// What was allocated is freed.
    pub(crate) fn forget(&mut self, address: u64) {
        let Some(Allocated { pool, size, part }) = self.allocated.remove(&address) else { return };
        self.imported.remove(&address);
        if let Some(Some(pool)) = self.pools.get_mut(pool) {
            pool.used -= size;
        }
        if let Some(Part { file, at, owner: None, .. }) = part {
            file.end(at, size);
        }
    }
}

/// `cudaMemPoolProps` and `CUmemPoolProps`: the kind of allocation, of handles, and where; what else there is is not used.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Properties {
    kind: c_int,
    pub(crate) handles: c_int,
    location: Location,
}

impl Properties {
    /// Of pinned memory of a device.
    pub(crate) fn of(device: usize, handles: c_int) -> Self {
        Self { kind: 1, handles, location: Location { kind: 1, id: device as c_int } }
    }

    /// The device where pinned memory is.
    pub(crate) fn device(&self) -> Result<usize> {
        if self.kind == 1 { self.location.device() } else { Err(INVALID_VALUE) }
    }
}

/// `cudaMemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// The device that it is.
    pub(crate) fn device(self) -> Result<usize> {
        if self.kind == 1 { devices::check(self.id) } else { Err(INVALID_VALUE) }
    }
}

/// An attribute of a pool. The first three are 32 bits wide.
fn attribute(pool: Handle, attribute: c_int, out: Out<c_void>) -> Result {
    let mut state = state();
    let pool = state.pools.own_pool(pool)?;
    let value = match attribute {
        1..=4 => pool.settings[attribute as usize],
        5 | 7 => pool.used,
        6 | 8 => pool.most,
        _ => return Err(INVALID_VALUE),
    };
    // SAFETY: CUDA documents the value as an `int` for 1 to 3, and 64 bits for the others.
    unsafe {
        match attribute {
            1..=3 => out.of::<c_int>().put(value as c_int),
            _ => out.of::<u64>().put(value),
        }
    }
}

/// Sets an attribute; of the marks of most use, only to begin anew.
fn set_attribute(pool: Handle, attribute: c_int, value: *const c_void) -> Result {
    // SAFETY: as in `attribute`.
    let value = unsafe {
        match attribute {
            1..=3 => u64::from(crate::abi::get(value.cast::<c_uint>())?),
            _ => crate::abi::get(value.cast::<u64>())?,
        }
    };
    let mut state = state();
    let pool = state.pools.own_pool(pool)?;
    match (attribute, value) {
        (1..=4, value) => pool.settings[attribute as usize] = value,
        (6 | 8, 0) => pool.most = pool.used,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// `cudaMemAccessDesc`: what a device may do, nothing, read, or read and write.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Access {
    location: Location,
    may: c_int,
}

/// A bit for each device that may access memory of a device, where those that have one may and a list changes that. None
/// is told reading alone.
///
/// # Safety
///
/// As CUDA documents `cudaMemPoolSetAccess`: `list` has `count` entries.
pub(crate) unsafe fn opened(
    (device, mut open_to): (usize, u64),
    list: *const Access,
    count: usize,
) -> Result<u64> {
    for at in 0..count {
        // SAFETY: this function's contract.
        let Access { location, may } = unsafe { crate::abi::get(list.wrapping_add(at))? };
        let of = location.device()?;
        match may {
            // Its own stays.
            0 if of == device => return Err(INVALID_VALUE),
            0 => open_to &= !(1 << of),
            1 | 3 => open_to |= 1 << of,
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(open_to)
}

/// Lets devices access what is in a pool, now and later.
///
/// # Safety
///
/// That of [`opened`].
unsafe fn set_access(pool: Handle, list: *const Access, count: usize) -> Result {
    let mut state = state();
    let number = number(POOL, pool)?;
    let Pool { device, open_to, .. } = *state.pools.pool(pool)?;
    // SAFETY: this function's contract.
    let open_to = unsafe { opened((device, open_to), list, count)? };
    state.pools.pool(pool)?.open_to = open_to;
    let inside: Vec<u64> = state.pools.inside(number).collect();
    inside.into_iter().for_each(|address| state.device.open_to(address, open_to));
    Ok(())
}

fn current(out: Out<Handle>, device: c_int, own: bool) -> Result {
    let device = devices::check(device)?;
    let at = if own { device } else { state().pools.current(device) };
    out.put(handle(POOL, at))
}

both! {
    cuDeviceGetDefaultMemPool cudaDeviceGetDefaultMemPool(out: Out<Handle>, device: c_int) {
        current(out, device, true)
    }
    cuDeviceGetMemPool cudaDeviceGetMemPool(out: Out<Handle>, device: c_int) { current(out, device, false) }
    cuDeviceSetMemPool cudaDeviceSetMemPool(device: c_int, pool: Handle) {
        let device = devices::check(device)?;
        let mut state = state();
        if state.pools.own_pool(pool)?.device != device { return Err(INVALID_DEVICE) }
        state.pools.current[device] = number(POOL, pool)?;
        Ok(())
    }
    cuMemPoolCreate cudaMemPoolCreate(out: Out<Handle>, properties: In<Properties>) {
        let properties = properties.get()?;
        let device = properties.device()?;
        let file = match properties.handles {
            0 => None,
            DESCRIPTOR => Some(new_file(device)?),
            _ => return Err(INVALID_VALUE),
        };
        let mut state = state();
        state.pools.pools.push(Some(Pool { file, ..Pool::of(device) }));
        out.put(handle(POOL, state.pools.pools.len() - 1))
    }
    cuMemPoolDestroy cudaMemPoolDestroy(pool: Handle) {
        let mut state = state();
        let device = state.pools.pool(pool)?.device;
        let at = number(POOL, pool)?;
        // The devices' own stay.
        if at < devices::count() { return Err(INVALID_VALUE) }
        state.pools.pools[at] = None;
        if state.pools.current[device] == at { state.pools.current[device] = device }
        Ok(())
    }
    cuMemPoolGetAttribute cudaMemPoolGetAttribute(pool: Handle, number: c_int, out: Out<c_void>) {
        attribute(pool, number, out)
    }
    cuMemPoolSetAttribute cudaMemPoolSetAttribute(pool: Handle, number: c_int, value: *const c_void) {
        set_attribute(pool, number, value)
    }
    cuMemPoolTrimTo cudaMemPoolTrimTo(pool: Handle, keep: usize) {
        let _ = keep;
        state().pools.own_pool(pool).map(|_| ())
    }
    cuMemPoolGetAccess cudaMemPoolGetAccess(out: Out<c_int>, pool: Handle, location: In<Location>) {
        let mut state = state();
        let Pool { device, open_to, .. } = *state.pools.pool(pool)?;
        let of = location.get()?.device()?;
        // 3 is reading and writing.
        let may = open_to >> of & 1 != 0 || of == device;
        out.put(if may { 3 } else { 0 })
    }
    cuMemAllocFromPoolAsync cudaMallocFromPoolAsync(out: Out<u64>, size: usize, pool: Handle, stream: Handle) {
        state().pools.own_pool(pool)?;
        alloc_on(stream, Some(number(POOL, pool)?), out, size)
    }
}

unchecked! {
    cuMemPoolSetAccess(pool: Handle, list: *const Access, count: usize) { set_access(pool, list, count) }
}

remembered_unchecked! {
    cudaMemPoolSetAccess(pool: Handle, list: *const Access, count: usize) { set_access(pool, list, count) }
}
