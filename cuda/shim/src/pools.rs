//! Pools of memory, of the driver and of the runtime: what is allocated from one counts as its use; nothing is kept
//! when it is freed.
#![allow(non_snake_case)]

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};

use crate::abi::{In, Out, status_of};
use crate::driver::{alloc_on, calls};
use crate::runtime::{answer, both, remembered, remembered_unchecked};
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
}

/// Every pool; the first is the device's own.
pub(crate) struct Pools {
    pools: Vec<Option<Pool>>,
    /// The one that `cudaMallocAsync` takes from.
    current: usize,
    /// Pool and size of what is allocated.
    allocated: HashMap<u64, (usize, u64)>,
}

impl Default for Pools {
    fn default() -> Self {
        let own = Pool { settings: [0, 1, 1, 1, 0], ..Pool::default() };
        Self { pools: vec![Some(own)], current: 0, allocated: HashMap::new() }
    }
}

impl Pools {
    fn pool(&mut self, pool: Handle) -> Result<&mut Pool> {
        let at = number(POOL, pool)?;
        self.pools.get_mut(at).and_then(Option::as_mut).ok_or(INVALID_HANDLE)
    }

    /// Counts an allocation; of the current pool, where none is named.
    pub(crate) fn count(&mut self, pool: Option<usize>, address: u64, size: u64) {
        let at = pool.unwrap_or(self.current);
        if let Some(Some(pool)) = self.pools.get_mut(at) {
            pool.used += size;
            pool.most = pool.most.max(pool.used);
            self.allocated.insert(address, (at, size));
        }
    }

    /// Whether a pool gave an allocation.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.allocated.contains_key(&address)
    }

    /// What was allocated is freed.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Some((at, size)) = self.allocated.remove(&address) {
            if let Some(Some(pool)) = self.pools.get_mut(at) {
                pool.used -= size;
            }
        }
    }
}

/// `cudaMemPoolProps` and `CUmemPoolProps`: the kind of allocation, of handles, and where.
#[derive(Clone, Copy)]
#[repr(C)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
}

/// `cudaMemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

/// An attribute of a pool. The first three are 32 bits wide.
fn attribute(pool: Handle, attribute: c_int, out: Out<c_void>) -> Result {
    let mut state = state();
    let pool = state.pools.pool(pool)?;
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
    let pool = state.pools.pool(pool)?;
    match (attribute, value) {
        (1..=4, value) => pool.settings[attribute as usize] = value,
        (6 | 8, 0) => pool.most = pool.used,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn current(out: Out<Handle>, device: c_int, own: bool) -> Result {
    if device != 0 {
        return Err(INVALID_DEVICE);
    }
    let at = if own { 0 } else { state().pools.current };
    out.put(handle(POOL, at))
}

both! {
    cuDeviceGetDefaultMemPool cudaDeviceGetDefaultMemPool(out: Out<Handle>, device: c_int) {
        current(out, device, true)
    }
    cuDeviceGetMemPool cudaDeviceGetMemPool(out: Out<Handle>, device: c_int) { current(out, device, false) }
    cuDeviceSetMemPool cudaDeviceSetMemPool(device: c_int, pool: Handle) {
        if device != 0 { return Err(INVALID_DEVICE) }
        let mut state = state();
        state.pools.pool(pool)?;
        state.pools.current = number(POOL, pool)?;
        Ok(())
    }
    cuMemPoolCreate cudaMemPoolCreate(out: Out<Handle>, properties: In<Properties>) {
        let properties = properties.get()?;
        // Pinned memory of device 0, with no handle for other processes.
        if (properties.kind, properties.location.kind) != (1, 1) { return Err(INVALID_VALUE) }
        if properties.location.id != 0 { return Err(INVALID_DEVICE) }
        if properties.handles != 0 { return Err(crate::state::NOT_SUPPORTED) }
        let mut state = state();
        state.pools.pools.push(Some(Pool { settings: [0, 1, 1, 1, 0], ..Pool::default() }));
        out.put(handle(POOL, state.pools.pools.len() - 1))
    }
    cuMemPoolDestroy cudaMemPoolDestroy(pool: Handle) {
        let mut state = state();
        state.pools.pool(pool)?;
        let at = number(POOL, pool)?;
        // The device's own stays.
        if at == 0 { return Err(INVALID_VALUE) }
        state.pools.pools[at] = None;
        if state.pools.current == at { state.pools.current = 0 }
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
        state().pools.pool(pool).map(|_| ())
    }
    cuMemPoolSetAccess cudaMemPoolSetAccess(pool: Handle, list: *const c_void, count: usize) {
        let _ = (list, count);
        state().pools.pool(pool).map(|_| ())
    }
    cuMemPoolGetAccess cudaMemPoolGetAccess(out: Out<c_int>, pool: Handle, location: In<Location>) {
        state().pools.pool(pool)?;
        let Location { kind, id } = location.get()?;
        // 3 is reading and writing, which the one device may.
        out.put(if (kind, id) == (1, 0) { 3 } else { 0 })
    }
    cuMemAllocFromPoolAsync cudaMallocFromPoolAsync(out: Out<u64>, size: usize, pool: Handle, stream: Handle) {
        state().pools.pool(pool)?;
        alloc_on(stream, Some(number(POOL, pool)?), out, size)
    }
}

remembered_unchecked! {
    cudaMemcpyPeer(to: u64, to_device: c_int, from: u64, from_device: c_int, size: usize) {
        if (to_device, from_device) != (0, 0) { return Err(INVALID_DEVICE) }
        crate::driver::transfer(to, true, from, true, size)
    }
    cudaMemcpyPeerAsync(to: u64, to_device: c_int, from: u64, from_device: c_int, size: usize, stream: Handle) {
        if (to_device, from_device) != (0, 0) { return Err(INVALID_DEVICE) }
        crate::driver::transfer_on(stream, (to, true), (from, true), size)
    }
}

remembered! {
    // There is no other device to reach.
    cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        let _ = (peer, flags);
        Err(INVALID_DEVICE)
    }
    cudaDeviceDisablePeerAccess(peer: c_int) {
        let _ = peer;
        Err(INVALID_DEVICE)
    }
}
