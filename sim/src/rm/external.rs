//! Ranges of a UVM address space: for memory of the resource manager's, and pools of semaphores
//! (`kernel-open/nvidia-uvm/uvm_map_external.c`, `uvm_va_space.c`, `uvm_user_channel.c`).

use std::sync::Arc;

use super::Driver;
use super::control::peers::Way;
use super::failed::Result;
use super::frontend::Caller;
use super::interface::Params;
use super::managed::is_range;
use super::memory::{Of, PAGE};
use super::residence::Residence;
use super::server::ObjectKind;
use super::space::{Held, Space};
use super::uvm::{self, Range, RangeKind};
use crate::Status;
use crate::files::FileId;

/// Pages of a GPU, in bytes (`uvm_mmu_page_size_supported`).
const PAGES: [u64; 4] = [4 << 10, 64 << 10, 2 << 20, 512 << 20];

/// Sparse mappings are of such pages (`uvm_api_range_invalid_64k`).
const SPARSE_PAGE: u64 = 64 << 10;

/// UvmGpuMappingTypeReadOnly.
const READ_ONLY: u64 = 3;

/// How a GPU may be asked to see external memory: fields of the attributes of a mapping, and what they may be
/// (uvm_types.h; there are no elements of 24 bits).
const MAPPING_TYPES: [(&str, &[u64]); 5] = [
    ("gpuMappingType", &[0, 1, 2, READ_ONLY]),
    ("gpuCachingType", &[0, 1, 2]),
    ("gpuFormatType", &[0, 1]),
    ("gpuElementBits", &[0, 1, 2, 4, 5, 6]),
    ("gpuCompressionType", &[0, 1]),
];

/// The base and the length of a call, which are of whole pages and some (`uvm_api_range_invalid_4k`).
fn range(args: &Params) -> Result<(u64, u64)> {
    let (base, length) = (args.get("base")?, args.get("length")?);
    is_range(base, length)?;
    Ok((base, length))
}

/// Shows a GPU the memory that a range has.
fn show_range(space: &Space, base: u64, range: &Range, residence: &Arc<Residence>) {
    if let Some(memory) = range.memory.as_ref().filter(|_| space.has(base, range.length)) {
        let held = match range.kind {
            RangeKind::Managed => Held::Managed(memory.clone(), residence.clone()),
            _ => Held::Kept(memory.clone()),
        };
        space.map(base, range.length, held, 0, true);
    }
}

/// The same, of all GPUs.
pub(super) fn map_range(uvm: &uvm::Space, base: u64, range: &Range) {
    uvm.spaces.values().for_each(|space| show_range(space, base, range, &uvm.residence));
}

impl Driver {
    /// UVM_REGISTER_GPU_VASPACE: what is mapped in the address space is from now on mapped in that of a GPU as well.
    pub(super) fn register_gpu_space(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let gpu = self.registered_gpu(caller, args, "gpuUuid")?;
        let ObjectKind::Space(space) = self.object_of_call(caller, args, "hVaSpace")? else {
            return Err(Status::INVALID_OBJECT_HANDLE.into());
        };
        if space.gpu != gpu {
            return Err(Status::INVALID_DEVICE.into());
        }
        let uvm = self.uvm_space(caller)?;
        if uvm.spaces.contains_key(&gpu) {
            return Err(Status::INVALID_DEVICE.into());
        }
        for (base, range) in &uvm.ranges {
            show_range(&space, *base, range, &uvm.residence);
        }
        uvm.spaces.insert(gpu, space);
        Ok(())
    }

    pub(super) fn unregister_gpu_space(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let gpu = self.registered_gpu(caller, args, "gpuUuid")?;
        match self.uvm_space(caller)?.leave(gpu) {
            true => Ok(()),
            false => Err(Status::INVALID_DEVICE.into()),
        }
    }

    /// UVM_CREATE_EXTERNAL_RANGE: `uvm_create_external_range`.
    pub(super) fn create_external(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = range(args)?;
        self.create_range(caller, base, Range { length, kind: RangeKind::External, memory: None })
    }

    fn create_range(&mut self, caller: Caller<'_>, base: u64, range: Range) -> Result {
        let end = base + range.length;
        self.forget_unmapped(caller.client, caller.file, base, end)?;
        let uvm = self.uvm_space(caller)?;
        if uvm.overlapping(base, end).next().is_some() {
            return Err(Status::UVM_ADDRESS_IN_USE.into());
        }
        uvm.add(base, range);
        Ok(())
    }

    /// UVM_ALLOC_SEMAPHORE_POOL: `uvm_api_alloc_semaphore_pool`. Memory that all GPUs see at the same addresses as the
    /// process, which maps it from the file.
    pub(super) fn alloc_semaphore_pool(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = range(args)?;
        let count = args.get("gpuAttributesCount")? as usize;
        if count > args.count("perGpuAttributes")? {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let memory = Some(Arc::new(self.buffer_of_file(caller.file, base, length)?));
        self.create_range(caller, base, Range { length, kind: RangeKind::Pool, memory })
    }

    /// UVM_ALLOC_DEVICE_P2P: `uvm_api_alloc_device_p2p`, of a kernel that has no pages for a GPU's memory
    /// (CONFIG_PCI_P2PDMA).
    pub(super) fn alloc_device_p2p(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length, offset) = (args.get("base")?, args.get("length")?, args.get("offset")?);
        if is_range(base.wrapping_add(offset), length).is_err() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        self.registered_gpu(caller, args, "gpuUuid")?;
        Err(Status::NOT_SUPPORTED.into())
    }

    /// UVM_VALIDATE_VA_RANGE: `uvm_api_validate_va_range`.
    pub(super) fn validate_range(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = (args.get("base")?, args.get("length")?);
        match self.range_at(caller.file, base, length) {
            Some(_) => Ok(()),
            None => Err(Status::INVALID_ADDRESS.into()),
        }
    }

    /// UVM_MAP_DYNAMIC_PARALLELISM_REGION: a page in which a GPU's kernels store what they launch
    /// (`uvm_map_sked_reflected_range`).
    pub(super) fn map_dynamic_region(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = range(args)?;
        let gpu = self.registered_gpu(caller, args, "gpuUuid")?;
        let space = self.uvm_space(caller)?.spaces.get(&gpu).ok_or(Status::INVALID_DEVICE)?.clone();
        if !space.has(base, length) {
            return Err(Status::OUT_OF_RANGE.into());
        }
        if !PAGES.contains(&length) || base % length != 0 {
            return Err(Status::INVALID_ADDRESS.into());
        }
        let range = Range { length, kind: RangeKind::Reflected, memory: None };
        self.create_range(caller, base, range)?;
        space.map(base, length, Held::Reflected, 0, true);
        Ok(())
    }

    fn range_at(&mut self, file: FileId, base: u64, length: u64) -> Option<&Range> {
        let range = self.space(file)?.ranges.get(&base);
        range.filter(|range| range.length == length)
    }

    /// `uvm_mmap`: whether a pool of semaphores is at the place in the file, which is the address for GPUs as well.
    pub(super) fn has_pool(&mut self, file: FileId, base: u64, length: u64) -> bool {
        self.range_at(file, base, length).is_some_and(|range| range.kind == RangeKind::Pool)
    }

    /// UVM_MAP_EXTERNAL_ALLOCATION: `uvm_map_external_allocation`.
    pub(super) fn map_external(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = range(args)?;
        let count = args.get("gpuAttributesCount")? as usize;
        if count == 0 || count > args.count("perGpuAttributes")? {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        self.within_external(caller, base, length)?;
        let mut spaces: Vec<(Arc<Space>, bool)> = Vec::new();
        for at in 0..count {
            let field = |name: &str| format!("perGpuAttributes[{at}].{name}");
            for (name, valid) in MAPPING_TYPES {
                if !valid.contains(&args.get(&field(name))?) {
                    return Err(Status::INVALID_ARGUMENT.into());
                }
            }
            let gpu = self.registered_gpu(caller, args, &field("gpuUuid"))?;
            let uvm = self.uvm_space(caller)?;
            let space = uvm.spaces.get(&gpu).ok_or(Status::INVALID_DEVICE)?.clone();
            if !space.has(base, length) {
                return Err(Status::OUT_OF_RANGE.into());
            }
            spaces.push((space, args.get(&field("gpuMappingType"))? != READ_ONLY));
        }
        let offset = args.get("offset")?;
        let object = self.object_of_call(caller, args, "hMemory")?;
        let buffer = object.memory().ok_or(Status::INVALID_OBJECT_HANDLE)?;
        if offset % PAGE != 0 || offset.checked_add(length).is_none_or(|end| end > buffer.size) {
            return Err(Status::INVALID_OFFSET.into());
        }
        // `set_ext_gpu_map_location`: what another GPU has is seen by its peers.
        if buffer.of == Of::Video {
            let uvm = self.uvm_space(caller)?;
            let is_seen =
                |gpu: usize| gpu == buffer.gpu || uvm.residence.are_peers(gpu, buffer.gpu);
            if !spaces.iter().all(|(space, _)| is_seen(space.gpu)) {
                return Err(Status::INVALID_DEVICE.into());
            }
        }
        for (space, is_writable) in spaces {
            space.map(base, length, Held::Kept(buffer.clone()), offset, is_writable);
        }
        Ok(())
    }

    /// UVM_MAP_EXTERNAL_SPARSE: `uvm_map_external_sparse`. Nothing is behind the addresses, and that is no fault.
    pub(super) fn map_sparse(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = range(args)?;
        if (base | length) % SPARSE_PAGE != 0 {
            return Err(Status::INVALID_ADDRESS.into());
        }
        self.within_external(caller, base, length)?;
        let gpu = self.registered_gpu(caller, args, "gpuUuid")?;
        let space = self.uvm_space(caller)?.spaces.get(&gpu).ok_or(Status::INVALID_DEVICE)?;
        if !space.has(base, length) {
            return Err(Status::OUT_OF_RANGE.into());
        }
        space.map(base, length, Held::Sparse, 0, true);
        Ok(())
    }

    /// UVM_UNMAP_EXTERNAL: `uvm_unmap_external`.
    pub(super) fn unmap_external(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, length) = range(args)?;
        self.within_external(caller, base, length)?;
        let gpu = self.registered_gpu(caller, args, "gpuUuid")?;
        let uvm = self.uvm_space(caller)?;
        if let Some(space) = uvm.spaces.get(&gpu) {
            space.unmap(base, length);
        }
        Ok(())
    }

    /// UVM_FREE: `uvm_free`. A range goes whole; since 590 its length is not asked for.
    pub(super) fn free_external(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let base = args.get("base")?;
        let uvm = self.uvm_space(caller)?;
        let known = uvm.ranges.get(&base).filter(|range| range.kind != RangeKind::Managed);
        let known = known.ok_or(Status::INVALID_ADDRESS)?.length;
        if args.has("length") && args.get("length")? != known {
            return Err(Status::INVALID_ADDRESS.into());
        }
        let is_pool = uvm.ranges.get(&base).is_some_and(|range| range.kind == RangeKind::Pool);
        let mapped = match is_pool {
            true => self.mappings_of_file(caller.client, caller.file),
            false => Some(Vec::new()),
        };
        let mut mapped = mapped.ok_or(Status::BUSY_RETRY)?;
        mapped.retain(|mapping| mapping.start < base + known && base < mapping.end);
        // The process must have unmapped it before.
        if !mapped.is_empty() {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let freed = self.uvm_space(caller)?.remove(base).and_then(|range| range.memory);
        if let Some(pool) = freed {
            pool.clear();
        }
        Ok(())
    }

    /// UVM_REGISTER_CHANNEL: `uvm_register_channel`. What the driver would map for it at the given addresses is
    /// nothing that a simulated GPU needs.
    pub(super) fn register_channel(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let gpu = self.registered_gpu(caller, args, "gpuUuid")?;
        match self.object_of_call(caller, args, "hChannel")? {
            ObjectKind::Channel(channel) if channel.gpu == gpu => {}
            _ => return Err(Status::INVALID_OBJECT_HANDLE.into()),
        }
        let key = (args.word("hClient")?, args.word("hChannel")?);
        let uvm = self.uvm_space(caller)?;
        if !uvm.spaces.contains_key(&gpu) {
            return Err(Status::INVALID_DEVICE.into());
        }
        match uvm.channels.insert(key, gpu) {
            None => Ok(()),
            Some(_) => Err(Status::INVALID_CHANNEL.into()),
        }
    }

    pub(super) fn unregister_channel(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let key = (args.word("hClient")?, args.word("hChannel")?);
        let uvm = self.uvm_space(caller)?;
        match uvm.channels.remove(&key) {
            Some(_) => Ok(()),
            None => Err(Status::INVALID_CHANNEL.into()),
        }
    }

    /// Of GPUs that a space has, those with links between them are peers (`register_gpu_peers`).
    pub(super) fn register_peers(&mut self, caller: Caller<'_>, gpu: usize) -> Result {
        let others: Vec<usize> = self.uvm_space(caller)?.gpus.iter().copied().collect();
        for other in others.into_iter().filter(|other| *other != gpu) {
            if self.way(&[gpu, other]) == Way::Links {
                self.uvm_space(caller)?.residence.connect(gpu, other);
            }
        }
        Ok(())
    }

    /// UVM_ENABLE_PEER_ACCESS: `uvm_api_enable_peer_access`, of those that reach each other over PCIe. The driver refuses
    /// others (INVALID_DEVICE: `uvm_gpu_retain_pcie_peer_access`), and libcuda ends with any status but OK; here it asks of
    /// GPUs with links too. Why it does is not known: it takes them for linked (native atomics, the better rank).
    pub(super) fn set_peer_access(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        is_wanted: bool,
    ) -> Result {
        let first = self.registered_gpu(caller, args, "gpuUuidA")?;
        let second = self.registered_gpu(caller, args, "gpuUuidB")?;
        if first == second {
            return Err(Status::INVALID_DEVICE.into());
        }
        match self.way(&[first, second]) {
            Way::Links => return Ok(()),
            Way::None(_) if is_wanted => return Err(Status::NOT_SUPPORTED.into()),
            Way::Bus | Way::None(_) => {}
        }
        let uvm = self.uvm_space(caller)?;
        let has_changed = match is_wanted {
            true => uvm.residence.connect(first, second),
            false => uvm.part(first, second),
        };
        if has_changed { Ok(()) } else { Err(Status::INVALID_DEVICE.into()) }
    }

    /// Whether one external range has all of some addresses.
    fn within_external(&mut self, caller: Caller<'_>, base: u64, length: u64) -> Result {
        let uvm = self.uvm_space(caller)?;
        let below =
            uvm.ranges.range(..=base).next_back().filter(|(_, of)| of.kind == RangeKind::External);
        let is_inside = below.is_some_and(|(start, of)| start + of.length >= base + length);
        if is_inside { Ok(()) } else { Err(Status::INVALID_ADDRESS.into()) }
    }

    /// The GPU that a call names, which the address space must have registered.
    pub(super) fn registered_gpu(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        field: &str,
    ) -> Result<usize> {
        let uuid = args.bytes_of(field)?;
        let uvm = self.uvm_space(caller)?;
        let named = uvm.gpus.iter().map(|gpu| (*gpu, uvm.instances.get(gpu).copied()));
        let named: Vec<_> = named.collect();
        let is_meant = |(gpu, instance): &(usize, Option<u32>)| match instance {
            Some(number) => self.uuid_of(*gpu, *number, None) == uuid,
            None => self.gpus[*gpu].uuid() == uuid,
        };
        let found = named.into_iter().find(is_meant);
        found.map(|(gpu, _)| gpu).ok_or_else(|| Status::INVALID_DEVICE.into())
    }

    /// An object that a call names, of a client that is the caller's by a file of the resource manager's.
    pub(super) fn object_of_call(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        field: &str,
    ) -> Result<ObjectKind> {
        let control = self.descriptor(caller.client, args.word("rmCtrlFd")? as i32);
        let control = control.ok_or(Status::INVALID_ARGUMENT)?;
        let client = self.server.client(args.word("hClient")?, control)?;
        Ok(client.object(args.word(field)?)?.kind.clone())
    }
}
