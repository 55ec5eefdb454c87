//! `/dev/nvidia-uvm`: UVM (unified memory; `kernel-open/nvidia-uvm`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::failed::{Failed, Result};
use super::frontend::Caller;
use super::interface::Params;
use super::memory::Buffer;
use super::residence::Residence;
use super::server::ObjectKind;
use super::space::Space as AddressSpace;
use super::{Driver, NodeKind};
use crate::client::Client;
use crate::files::FileId;
use crate::machine::Answer;
use crate::{Errno, Status};

/// What a file of UVM has become.
#[derive(Debug, Default)]
pub(super) enum Uvm {
    /// Nothing yet.
    #[default]
    New,
    /// An address space.
    Space(Box<Space>),
    /// It keeps another file's address space to its process.
    Keeper,
}

/// An address space.
#[derive(Debug, Default)]
pub(super) struct Space {
    flags: u64,
    /// Whose it is.
    pub(super) process: u32,
    /// Processes that have mapped parts of it: several where none has it to itself.
    pub(super) mappers: BTreeSet<u32>,
    /// Whether a second file keeps it to its process.
    is_kept: bool,
    pub(super) gpus: BTreeSet<usize>,
    /// Of those that are divided, the instance that was registered, where it is meant by a number of its own.
    pub(super) instances: BTreeMap<usize, u32>,
    pub(super) groups: BTreeSet<u64>,
    last_group: u64,
    /// Where each GPU sees what is mapped.
    pub(super) spaces: BTreeMap<usize, Arc<AddressSpace>>,
    /// By where they begin.
    pub(super) ranges: BTreeMap<u64, Range>,
    /// Clients and their channels, and on which GPU each is.
    pub(super) channels: BTreeMap<(u32, u32), usize>,
    /// Where its managed memory is, and which GPUs reach each other's.
    pub(super) residence: Arc<Residence>,
    /// Ranges that were left when those were last forgotten that no process maps.
    pub(super) last_ranges: usize,
}

/// A range of an address space that is there for one thing.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) length: u64,
    pub(super) kind: RangeKind,
    /// Memory that all GPUs see; another range shows what it is told.
    pub(super) memory: Option<Arc<Buffer>>,
}

/// What a range is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeKind {
    /// Memory of the resource manager's.
    External,
    /// Semaphores.
    Pool,
    /// Memory of UVM's own.
    Managed,
    /// Where kernels of a GPU reach the scheduler of its launches.
    Reflected,
}

impl Space {
    /// Whether no process has it to itself.
    pub(super) fn is_sharing(&self) -> bool {
        self.flags & SHARING != 0
    }

    /// Two GPUs see nothing of each other's memory any more; whether they were peers: `disable_peers`.
    pub(super) fn part(&mut self, one: usize, other: usize) -> bool {
        let were_peers = self.residence.disconnect(one, other);
        for (gpu, owner) in [(one, other), (other, one)] {
            if let Some(space) = self.spaces.get(&gpu).filter(|_| were_peers) {
                space.unmap_kept_of(owner);
            }
        }
        were_peers
    }

    /// Ends what a GPU sees of it; whether it saw anything.
    pub(super) fn leave(&mut self, gpu: usize) -> bool {
        let Some(space) = self.spaces.remove(&gpu) else { return false };
        self.residence.unmap(gpu);
        for (base, range) in &self.ranges {
            space.unmap(*base, range.length);
        }
        self.channels.retain(|_, of| *of != gpu);
        true
    }
}

impl Drop for Space {
    /// What it mapped goes with it.
    fn drop(&mut self) {
        for (base, range) in &self.ranges {
            self.spaces.values().for_each(|space| space.unmap(*base, range.length));
        }
    }
}

/// UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE: no process has the address space to itself.
const SHARING: u64 = 2;

/// What the driver's Linux code knows (uvm.c: `uvm_ioctl`).
const KNOWN: [&str; 45] = [
    "UVM_INITIALIZE",
    "UVM_MM_INITIALIZE",
    "UVM_PAGEABLE_MEM_ACCESS",
    "UVM_CREATE_RANGE_GROUP",
    "UVM_DESTROY_RANGE_GROUP",
    "UVM_REGISTER_GPU",
    "UVM_UNREGISTER_GPU",
    "UVM_PAGEABLE_MEM_ACCESS_ON_GPU",
    "UVM_ENABLE_PEER_ACCESS",
    "UVM_DISABLE_PEER_ACCESS",
    "UVM_SET_RANGE_GROUP",
    "UVM_CREATE_EXTERNAL_RANGE",
    "UVM_MAP_EXTERNAL_ALLOCATION",
    "UVM_MAP_EXTERNAL_SPARSE",
    "UVM_FREE",
    "UVM_PREVENT_MIGRATION_RANGE_GROUPS",
    "UVM_ALLOW_MIGRATION_RANGE_GROUPS",
    "UVM_SET_PREFERRED_LOCATION",
    "UVM_UNSET_PREFERRED_LOCATION",
    "UVM_SET_ACCESSED_BY",
    "UVM_UNSET_ACCESSED_BY",
    "UVM_REGISTER_GPU_VASPACE",
    "UVM_UNREGISTER_GPU_VASPACE",
    "UVM_REGISTER_CHANNEL",
    "UVM_UNREGISTER_CHANNEL",
    "UVM_ENABLE_READ_DUPLICATION",
    "UVM_DISABLE_READ_DUPLICATION",
    "UVM_MIGRATE",
    "UVM_ENABLE_SYSTEM_WIDE_ATOMICS",
    "UVM_DISABLE_SYSTEM_WIDE_ATOMICS",
    "UVM_TOOLS_READ_PROCESS_MEMORY",
    "UVM_TOOLS_WRITE_PROCESS_MEMORY",
    "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE",
    "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2",
    "UVM_MAP_DYNAMIC_PARALLELISM_REGION",
    "UVM_UNMAP_EXTERNAL",
    "UVM_MIGRATE_RANGE_GROUP",
    "UVM_TOOLS_FLUSH_EVENTS",
    "UVM_ALLOC_SEMAPHORE_POOL",
    "UVM_CLEAN_UP_ZOMBIE_RESOURCES",
    "UVM_POPULATE_PAGEABLE",
    "UVM_VALIDATE_VA_RANGE",
    "UVM_ALLOC_DEVICE_P2P",
    "UVM_CLEAR_ALL_ACCESS_COUNTERS",
    "UVM_DISCARD",
];

impl Driver {
    /// uvm_api.h: `__UVM_ROUTE_CMD_STACK`: the status stands in the argument, and the call succeeds.
    pub(super) fn uvm(&mut self, caller: Caller<'_>, request: u32, argument: u64) -> Answer {
        let known = self.interface.ioctl(true, request).map(|call| call.name.clone());
        let Some(name) = known else {
            let failed = Failed::Unknown(Status::GENERIC, format!("uvm {request:#x}"));
            return self.answer(caller.client, failed);
        };
        if name == "UVM_DEINITIALIZE" {
            return Ok(0).into();
        }
        let (record, size) = self.uvm_record(&name);
        let is_tool = caller.node == NodeKind::UvmTools && name.starts_with("UVM_TOOLS_");
        if !is_tool && !KNOWN.contains(&name.as_str()) {
            // It is in the headers alone.
            let failed = Failed::Unknown(Status::GENERIC, name);
            return self.answer(caller.client, failed);
        }
        let mut args = match self.read(caller.client, &record, argument, size) {
            Ok(args) => args,
            Err(errno) => return Err(errno).into(),
        };
        let done = self.uvm_call(caller, &name, &mut args);
        let status = match done {
            Ok(()) => Status::OK,
            Err(failed) => self.status_of(caller.client, failed),
        };
        self.put_status(caller.client, argument, args, status)
    }

    /// The struct that an ioctl takes, and its bytes.
    fn uvm_record(&self, name: &str) -> (String, usize) {
        let record = format!("{name}_PARAMS");
        let size = self.interface.size(&record).unwrap_or(0);
        (record, size)
    }

    fn put_status(
        &self,
        client: &dyn Client,
        argument: u64,
        mut args: Params,
        status: Status,
    ) -> Answer {
        args.set_if_any("rmStatus", status.0);
        if client.write(argument, &args.bytes) < args.bytes.len() {
            return Err(Errno::EFAULT).into();
        }
        Answer { result: Ok(0), status: (!status.is_ok()).then(|| status.to_string()) }
    }

    /// What a call does that somebody asked to fail.
    pub(super) fn refuse_uvm(
        &mut self,
        client: &dyn Client,
        request: u32,
        argument: u64,
        status: Status,
    ) -> Answer {
        let name = self.interface.ioctl(true, request).map(|call| call.name.clone());
        let (record, size) = self.uvm_record(&name.unwrap_or_default());
        match self.read(client, &record, argument, size) {
            Ok(args) if size > 0 => self.put_status(client, argument, args, status),
            Ok(_) => Err(Errno::EINVAL).into(),
            Err(errno) => Err(errno).into(),
        }
    }

    fn uvm_call(&mut self, caller: Caller<'_>, name: &str, args: &mut Params) -> Result {
        match name {
            "UVM_INITIALIZE" => return self.uvm_initialize(caller, args),
            "UVM_MM_INITIALIZE" => return self.uvm_keep(caller, args),
            _ if caller.node == NodeKind::UvmTools => return self.tools_call(caller, name, args),
            _ => {}
        }
        let space = self.uvm_space(caller)?;
        match name {
            // No GPU here reads a process's own pages.
            "UVM_PAGEABLE_MEM_ACCESS" => Ok(args.set("pageableMemAccess", 0_u32)?),
            "UVM_CREATE_RANGE_GROUP" => {
                space.last_group += 1;
                space.groups.insert(space.last_group);
                Ok(args.set("rangeGroupId", space.last_group)?)
            }
            "UVM_DESTROY_RANGE_GROUP" => {
                let group = args.get("rangeGroupId")?;
                if !space.groups.remove(&group) {
                    return Err(Status::OBJECT_NOT_FOUND.into());
                }
                space.residence.ungroup(group);
                Ok(())
            }
            "UVM_REGISTER_GPU" => self.uvm_register(caller, args),
            "UVM_UNREGISTER_GPU" => self.uvm_unregister(caller, args),
            "UVM_REGISTER_GPU_VASPACE" => self.register_gpu_space(caller, args),
            "UVM_UNREGISTER_GPU_VASPACE" => self.unregister_gpu_space(caller, args),
            "UVM_CREATE_EXTERNAL_RANGE" => self.create_external(caller, args),
            "UVM_MAP_EXTERNAL_ALLOCATION" => self.map_external(caller, args),
            "UVM_MAP_EXTERNAL_SPARSE" => self.map_sparse(caller, args),
            "UVM_UNMAP_EXTERNAL" => self.unmap_external(caller, args),
            "UVM_FREE" => self.free_external(caller, args),
            "UVM_VALIDATE_VA_RANGE" => self.validate_range(caller, args),
            "UVM_MAP_DYNAMIC_PARALLELISM_REGION" => self.map_dynamic_region(caller, args),
            "UVM_ALLOC_SEMAPHORE_POOL" => self.alloc_semaphore_pool(caller, args),
            "UVM_REGISTER_CHANNEL" => self.register_channel(caller, args),
            "UVM_UNREGISTER_CHANNEL" => self.unregister_channel(caller, args),
            "UVM_SET_PREFERRED_LOCATION" => self.prefer(caller, args),
            "UVM_UNSET_PREFERRED_LOCATION" => self.unprefer(caller, args),
            "UVM_SET_ACCESSED_BY" => self.access_by(caller, args, true),
            "UVM_UNSET_ACCESSED_BY" => self.access_by(caller, args, false),
            "UVM_ENABLE_READ_DUPLICATION" | "UVM_DISABLE_READ_DUPLICATION" => {
                self.within_managed(caller, args, "requestedBase").map(drop)
            }
            "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE" | "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_V2" => {
                self.processor_uuids(caller, name, args)
            }
            "UVM_TOOLS_READ_PROCESS_MEMORY" => self.process_memory(caller, args, false),
            "UVM_TOOLS_WRITE_PROCESS_MEMORY" => self.process_memory(caller, args, true),
            // What happens is told at once.
            "UVM_TOOLS_FLUSH_EVENTS" => Ok(()),
            "UVM_MIGRATE" => self.migrate(caller, args),
            "UVM_MIGRATE_RANGE_GROUP" => self.migrate_group(caller, args),
            "UVM_SET_RANGE_GROUP" => self.set_range_group(caller, args),
            "UVM_PREVENT_MIGRATION_RANGE_GROUPS" | "UVM_ALLOW_MIGRATION_RANGE_GROUPS" => {
                self.set_migration(caller, args)
            }
            "UVM_DISCARD" => self.discard(caller, args),
            // They count from zero: no page moves by them (`uvm_perf_access_counter_migration_enable`).
            "UVM_CLEAR_ALL_ACCESS_COUNTERS" => Ok(()),
            "UVM_ALLOC_DEVICE_P2P" => self.alloc_device_p2p(caller, args),
            "UVM_ENABLE_PEER_ACCESS" => self.set_peer_access(caller, args, true),
            "UVM_DISABLE_PEER_ACCESS" => self.set_peer_access(caller, args, false),
            _ => Err(Failed::NotSimulated(Status::NOT_SUPPORTED, name.to_owned())),
        }
    }

    pub(super) fn space(&mut self, id: FileId) -> Option<&mut Space> {
        match &mut self.files.get_mut(id)?.file.uvm {
            Uvm::Space(space) => Some(space),
            _ => None,
        }
    }

    /// The address space that the file of a call is.
    pub(super) fn uvm_space(&mut self, caller: Caller<'_>) -> Result<&mut Space> {
        self.space(caller.file).ok_or_else(|| Status::ILLEGAL_ACTION.into())
    }

    /// uvm.c: `uvm_api_initialize`.
    fn uvm_initialize(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let mask = self.interface.constant("UVM_INIT_FLAGS_MASK").map_or(3, u64::from);
        let flags = args.get("flags")?;
        let open = self.files.get_mut(caller.file).ok_or(Errno::EBADF)?;
        match &open.file.uvm {
            Uvm::New if flags & !mask != 0 => Err(Status::INVALID_ARGUMENT.into()),
            Uvm::New => {
                let mut space = Space::default();
                (space.flags, space.process) = (flags, caller.client.process());
                space.residence = Arc::new(Residence::new(open.node.clone()));
                open.file.uvm = Uvm::Space(Box::new(space));
                Ok(())
            }
            Uvm::Space(space) if space.flags == flags => Ok(()),
            Uvm::Space(_) | Uvm::Keeper => Err(Status::INVALID_ARGUMENT.into()),
        }
    }

    /// uvm.c: `uvm_api_mm_initialize`.
    fn uvm_keep(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let other = self.descriptor(caller.client, args.word("uvmFd")? as i32);
        let other = other.ok_or(Status::INVALID_ARGUMENT)?;
        let space = self.space(other).ok_or(Status::INVALID_ARGUMENT)?;
        if space.is_sharing() {
            return Err(Status::WARN_NOTHING_TO_DO.into());
        }
        let is_kept = space.is_kept;
        let open = self.files.get_mut(caller.file).ok_or(Errno::EBADF)?;
        if !matches!(open.file.uvm, Uvm::New) {
            return Err(Status::IN_USE.into());
        }
        if is_kept {
            return Err(Status::INVALID_STATE.into());
        }
        open.file.uvm = Uvm::Keeper;
        if let Some(space) = self.space(other) {
            space.is_kept = true;
        }
        Ok(())
    }

    /// uvm_va_space.c: `uvm_va_space_register_gpu`. It keeps the GPU awake.
    fn uvm_register(&mut self, caller: Caller<'_>, args: &mut Params) -> Result {
        let gpu = self.gpu_of_uuid(args, "gpu_uuid")?.ok_or(Status::GPU_UUID_NOT_FOUND)?;
        self.need_gpu(Some(gpu))?;
        // N/nv_uvm_interface.c: `nvUvmInterfaceRegisterGpu`.
        if self.refusal(gpu).is_some() {
            return Err(Status::GENERIC.into());
        }
        let instance = self.registered_instance(caller, args, gpu)?;
        if !self.uvm_space(caller)?.gpus.insert(gpu) {
            return Err(Status::INVALID_DEVICE.into());
        }
        // From these on the instance is meant by a number of its own, before by that of the GPU.
        let is_by_own = [550, 40, 53];
        if let Some(number) = instance.filter(|_| self.is_since(&is_by_own)) {
            self.uvm_space(caller)?.instances.insert(gpu, number);
            args.put("gpu_uuid", &self.uuid_of(gpu, number, None))?;
        }
        self.register_peers(caller, gpu)?;
        self.gpus[gpu].take();
        args.set_if_any("numaEnabled", 0_u32);
        args.set_if_any("numaNodeId", u32::MAX);
        Ok(())
    }

    /// The instance of a GPU that a program registers, by its subscription: one of a GPU that is divided.
    fn registered_instance(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        gpu: usize,
    ) -> Result<Option<u32>> {
        if !self.is_mig_enabled(gpu) || !args.has("hSmcPartRef") {
            return Ok(None);
        }
        match self.object_of_call(caller, args, "hSmcPartRef")? {
            ObjectKind::GpuInstance { gpu: of, number } if of == gpu => Ok(Some(number)),
            _ => Err(Status::INVALID_OBJECT_HANDLE.into()),
        }
    }

    fn uvm_unregister(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let gpu = self.registered_gpu(caller, args, "gpu_uuid")?;
        let space = self.uvm_space(caller)?;
        space.gpus.remove(&gpu);
        for other in space.gpus.clone() {
            space.part(gpu, other);
        }
        space.instances.remove(&gpu);
        space.leave(gpu);
        space.residence.leave(gpu);
        self.gpus[gpu].let_go();
        // Somebody may wait for that.
        self.remove_idle();
        Ok(())
    }

    fn gpu_of_uuid(&self, args: &Params, field: &str) -> Result<Option<usize>> {
        let uuid = args.bytes_of(field)?;
        Ok(self.gpus.iter().position(|gpu| gpu.uuid() == uuid))
    }
}
