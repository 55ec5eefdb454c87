//! Memory that a program maps at addresses which it reserves (`cuMemCreate`, `cuMemMap` and their like).
//!
//! What is created is a file without a name, of which the mappings are parts. Its handle for other processes is the file,
//! so that it stays as long as anybody has it.
#![allow(non_snake_case)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::abi::{In, Out, status_of};
use crate::devices;
use crate::driver::{calls, unchecked};
use crate::ipc::refused;
use crate::pools::{Access, Location, Properties, opened};
use crate::shared_pools::{DESCRIPTOR, borrowed, exported, growing, word};
use crate::state::{
    Code, INVALID_VALUE, MAPPED, NOT_SUPPORTED, OUT_OF_MEMORY, Result, State, handle, number, state,
};

type Handle = *mut c_void;

/// What sizes and addresses are multiples of, which a GPU's are, too.
const GRANULARITY: u64 = 2 << 20;

/// The first bytes of the file of created memory; then its size, and the number of its device.
const MAGIC: u64 = u64::from_ne_bytes(*b"nvabicre");

/// Where the memory is in its file: a multiple of any size of pages.
const START: u64 = 1 << 16;

/// More than there are addresses for.
const MOST: u64 = 1 << 46;

/// Created memory.
struct Created {
    file: File,
    size: u64,
    device: usize,
    /// `CUmemAllocationHandleType`.
    handles: c_int,
}

impl Created {
    fn new(device: usize, size: u64, handles: c_int) -> io::Result<Self> {
        let file = growing(c"nvabi-mapped")?;
        file.set_len(size.checked_add(START).ok_or(io::ErrorKind::InvalidInput)?)?;
        let number = devices::physical(device) as u64;
        let words = [MAGIC, size, number].map(u64::to_ne_bytes);
        file.write_all_at(words.as_flattened(), 0)?;
        Ok(Self { file, size, device, handles })
    }

    /// Another process's.
    fn of(descriptor: RawFd) -> Option<Self> {
        let file = borrowed(descriptor)?;
        let (magic, size) = (word(&file, 0)?, word(&file, 8)?);
        let device = devices::seen_as(word(&file, 16)?);
        (magic == MAGIC && size < MOST).then_some(Self { file, size, device, handles: DESCRIPTOR })
    }
}

/// What a program created, and what of it is mapped.
#[derive(Default)]
pub(crate) struct Mapped {
    /// With how many handles there are.
    created: Vec<Option<(Arc<Created>, usize)>>,
    /// By its first byte: what is mapped there.
    parts: BTreeMap<u64, (Arc<Created>, u64)>,
}

impl Mapped {
    /// Whether memory is mapped from an address on.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.parts.contains_key(&address)
    }

    /// Bytes that are created of a device.
    pub(crate) fn used(&self, device: usize) -> u64 {
        let with_handles = self.created.iter().flatten().map(|(created, _)| created);
        let all = with_handles.chain(self.parts.values().map(|(created, _)| created));
        let own = all.filter(|created| created.device == device);
        let sizes: HashMap<_, u64> = own.map(|own| (Arc::as_ptr(own), own.size)).collect();
        sizes.values().sum()
    }

    fn add(&mut self, created: Arc<Created>) -> u64 {
        self.created.push(Some((created, 1)));
        handle(MAPPED, self.created.len() - 1).addr() as u64
    }

    fn slot(&mut self, memory: u64) -> Result<&mut Option<(Arc<Created>, usize)>> {
        let at = number(MAPPED, std::ptr::without_provenance_mut(memory as usize));
        self.created.get_mut(at.map_err(|_| INVALID_VALUE)?).ok_or(INVALID_VALUE)
    }

    fn created(&mut self, memory: u64) -> Result<Arc<Created>> {
        self.slot(memory)?.as_ref().map(|(created, _)| created.clone()).ok_or(INVALID_VALUE)
    }

    fn release(&mut self, memory: u64) -> Result {
        let slot = self.slot(memory)?;
        let (_, handles) = slot.as_mut().ok_or(INVALID_VALUE)?;
        *handles -= 1;
        if *handles == 0 {
            *slot = None;
        }
        Ok(())
    }

    /// One more handle of what is mapped around an address.
    fn retain(&mut self, address: u64) -> Result<u64> {
        let (start, (created, size)) =
            self.parts.range(..=address).next_back().ok_or(INVALID_VALUE)?;
        if address - start >= *size {
            return Err(INVALID_VALUE);
        }
        let created = created.clone();
        let is_it = |slot: &Option<(Arc<Created>, usize)>| {
            slot.as_ref().is_some_and(|(own, _)| Arc::ptr_eq(own, &created))
        };
        let Some(at) = self.created.iter().position(is_it) else { return Ok(self.add(created)) };
        if let Some((_, handles)) = &mut self.created[at] {
            *handles += 1;
        }
        Ok(handle(MAPPED, at).addr() as u64)
    }

    /// The first bytes of all that is mapped in a range, which is whole mappings without a gap.
    fn inside(&self, address: u64, size: u64) -> Result<Vec<u64>> {
        let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
        let (mut at, mut found) = (address, Vec::new());
        while at < end {
            let (_, size) = self.parts.get(&at).ok_or(INVALID_VALUE)?;
            found.push(at);
            at += size;
        }
        if at == end && size != 0 { Ok(found) } else { Err(INVALID_VALUE) }
    }
}

impl State {
    fn map_created(&mut self, address: u64, size: u64, offset: u64, memory: u64) -> Result {
        self.check()?;
        let created = self.mapped.created(memory)?;
        // That is how libcuda says that it is too long.
        if offset.checked_add(size).is_none_or(|end| end > created.size) {
            return Err(NOT_SUPPORTED);
        }
        self.select(created.device);
        let mapped = self.device.map_at(address, &created.file, START + offset, size);
        self.select(devices::current());
        mapped?;
        // Another mapping of it, or another process, may have written it.
        self.device.mark_written(address, size);
        self.mapped.parts.insert(address, (created, size));
        Ok(())
    }

    fn unmap_created(&mut self, address: u64, size: u64) -> Result {
        let inside = self.mapped.inside(address, size)?;
        // As a free: it waits for all that may use it.
        self.wait_for_all()?;
        for start in inside {
            self.mapped.parts.remove(&start);
            self.device.unmap_at(start)?;
        }
        Ok(())
    }

    fn open_mapped(&mut self, address: u64, size: u64, change: impl Fn(u64) -> u64) -> Result {
        self.check()?;
        for start in self.mapped.inside(address, size)? {
            let open_to = change(self.device.opened_to(start).unwrap_or(0));
            self.device.open_to(start, open_to);
        }
        Ok(())
    }
}

/// Lets devices access what is mapped in a range. None is told reading alone.
///
/// # Safety
///
/// That of [`opened`].
unsafe fn set_access(address: u64, size: usize, list: *const Access, count: usize) -> Result {
    // What the list gives and takes does not depend on what there was: it is as with none, and with all.
    // SAFETY: this function's contract.
    let (given, kept) = unsafe {
        (opened((devices::MOST, 0), list, count)?, opened((devices::MOST, u64::MAX), list, count)?)
    };
    state().open_mapped(address, size as u64, |before| before & kept | given)
}

calls! {
    cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, option: c_uint) {
        let _ = option;
        properties.get()?.device()?;
        out.put(GRANULARITY as usize)
    }
    cuMemCreate(out: Out<u64>, size: usize, properties: In<Properties>, flags: u64) {
        let properties = properties.get()?;
        let (device, handles, size) = (properties.device()?, properties.handles, size as u64);
        let is_whole = size != 0 && size % GRANULARITY == 0;
        if !is_whole || !matches!(handles, 0 | DESCRIPTOR) || flags != 0 { return Err(INVALID_VALUE) }
        if size >= MOST { return Err(OUT_OF_MEMORY) }
        let mut state = state();
        state.check()?;
        let created = Created::new(device, size, handles);
        let created = created.map_err(|error| refused("cuMemCreate", &error))?;
        out.put(state.mapped.add(Arc::new(created)))
    }
    cuMemRelease(memory: u64) { state().mapped.release(memory) }
    cuMemGetAllocationPropertiesFromHandle(out: Out<AllProperties>, memory: u64) {
        let created = state().mapped.created(memory)?;
        out.put(AllProperties { properties: Properties::of(created.device, created.handles), _rest: [0; 2] })
    }
    cuMemRetainAllocationHandle(out: Out<u64>, address: u64) { out.put(state().mapped.retain(address)?) }
    cuMemExportToShareableHandle(out: Out<c_int>, memory: u64, kind: c_int, flags: u64) {
        let created = state().mapped.created(memory)?;
        if (kind, flags) != (DESCRIPTOR, 0) || created.handles != DESCRIPTOR { return Err(INVALID_VALUE) }
        let file = exported(&created.file);
        out.put(file.map_err(|error| refused("cuMemExportToShareableHandle", &error))?)
    }
    cuMemImportFromShareableHandle(out: Out<u64>, descriptor: Handle, kind: c_int) {
        let descriptor = RawFd::try_from(descriptor.addr()).map_err(|_| INVALID_VALUE)?;
        if kind != DESCRIPTOR { return Err(INVALID_VALUE) }
        let created = Created::of(descriptor).ok_or(INVALID_VALUE)?;
        out.put(state().mapped.add(Arc::new(created)))
    }
    cuMemAddressReserve(out: Out<u64>, size: usize, align: usize, address: u64, flags: u64) {
        // Where it is to be is a hint.
        let _ = address;
        let (size, align) = (size as u64, align as u64);
        let is_whole = size != 0 && size % GRANULARITY == 0;
        if !is_whole || align != 0 && !align.is_power_of_two() || flags != 0 { return Err(INVALID_VALUE) }
        out.put(state().device.reserve(size, align.max(GRANULARITY))?)
    }
    cuMemAddressFree(address: u64, size: usize) { Ok(state().device.unreserve(address, size as u64)?) }
    cuMemMap(address: u64, size: usize, offset: usize, memory: u64, flags: u64) {
        let (size, offset) = (size as u64, offset as u64);
        let is_whole = [address, size, offset].iter().all(|number| number % GRANULARITY == 0);
        if !is_whole || flags != 0 { return Err(INVALID_VALUE) }
        state().map_created(address, size, offset, memory)
    }
    cuMemUnmap(address: u64, size: usize) { state().unmap_created(address, size as u64) }
    cuMemGetAccess(out: Out<u64>, location: In<Location>, address: u64) {
        let device = location.get()?.device()?;
        let state = state();
        let (start, _) = state.device.allocation(address).ok_or(INVALID_VALUE)?;
        if !state.mapped.has(start) { return Err(INVALID_VALUE) }
        let open_to = state.device.opened_to(start).unwrap_or(0);
        // 3 is reading and writing.
        out.put(if open_to >> device & 1 != 0 { 3 } else { 0 })
    }
}

unchecked! {
    cuMemSetAccess(address: u64, size: usize, list: *const Access, count: usize) {
        set_access(address, size, list, count)
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
struct AllProperties {
    properties: Properties,
    _rest: [u64; 2],
}
