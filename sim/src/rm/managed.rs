//! Memory that UVM manages itself: a process and its GPUs see it at the same addresses (`kernel-open/nvidia-uvm/uvm.c`,
//! `uvm_policy.c`, `uvm_migrate.c`, `uvm_range_group.c`).
//!
//! It is one memory, wherever the driver would have moved its pages: advice is checked and changes nothing.

use std::sync::Arc;

use super::Driver;
use super::external::map_range;
use super::failed::Result;
use super::frontend::Caller;
use super::interface::Params;
use super::memory::PAGE;
use super::uvm::{Range, RangeKind, Space};
use crate::Status;
use crate::files::FileId;

/// NV_PROCESSOR_UUID_CPU_DEFAULT.
const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// UVM_MIGRATE_FLAG_ASYNC and _NO_GPU_VA_SPACE; the one between them is for the driver's own tests.
const ASYNC: u64 = 1;
const NO_GPU_SPACE: u64 = 4;

impl Driver {
    /// `uvm_mmap`: a process maps memory at the place in the file that is its own address.
    pub(super) fn create_managed(&mut self, file: FileId, base: u64, length: u64) -> Result {
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        let end = base.checked_add(length).ok_or(Status::INVALID_ADDRESS)?;
        let inside: Vec<u64> = uvm.overlapping(base, end).map(|(start, _)| start).collect();
        if inside.iter().any(|start| uvm.ranges[start].kind != RangeKind::Managed) {
            return Err(Status::UVM_ADDRESS_IN_USE.into());
        }
        // The process has put this mapping in the place of what it had there, or had unmapped that before.
        for start in inside {
            self.cut(file, start, base, end)?;
        }
        self.add_managed(file, base, length)
    }

    fn add_managed(&mut self, file: FileId, base: u64, length: u64) -> Result {
        let memory = Some(Arc::new(self.buffer_of_file(file, base, length)?));
        let range = Range { length, kind: RangeKind::Managed, memory };
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        map_range(uvm, base, &range);
        uvm.ranges.insert(base, range);
        Ok(())
    }

    /// Takes addresses out of a range, of which the rest stays; what was there is gone.
    fn cut(&mut self, file: FileId, start: u64, base: u64, end: u64) -> Result {
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        let Some(old) = uvm.ranges.remove(&start) else { return Ok(()) };
        for space in uvm.spaces.values() {
            space.unmap(start, old.length);
        }
        let old_end = start + old.length;
        let (first, last) = (start.max(base), old_end.min(end));
        if let Some(gone) = self.buffer_of_file(file, first, last - first)?.memory() {
            gone.clear();
        }
        for (from, to) in [(start, base), (end, old_end)] {
            if from < to {
                self.add_managed(file, from, to - from)?;
            }
        }
        Ok(())
    }

    /// Forgets managed memory at some addresses where its process maps nothing any more: nobody is told of `munmap`.
    pub(super) fn forget_unmapped(&mut self, caller: Caller<'_>, base: u64, end: u64) -> Result {
        let uvm = self.uvm_space(caller)?;
        let process = uvm.process;
        let managed = uvm.overlapping(base, end).filter(|(_, of)| of.kind == RangeKind::Managed);
        let managed: Vec<u64> = managed.map(|(start, _)| start).collect();
        let open = self.files.get(caller.file).filter(|_| !managed.is_empty());
        let Some(inode) = open.map(|open| open.node.inode()) else { return Ok(()) };
        let mapped = caller.client.mappings_of(process, inode);
        if mapped.iter().any(|mapping| mapping.start < end && base < mapping.end) {
            return Ok(());
        }
        managed.into_iter().try_for_each(|start| self.cut(caller.file, start, base, end))
    }

    /// UVM_SET_PREFERRED_LOCATION, UVM_SET_ACCESSED_BY and UVM_UNSET_ACCESSED_BY: advice about a processor.
    pub(super) fn advise(&mut self, caller: Caller<'_>, args: &Params, processor: &str) -> Result {
        self.within_managed(caller, args, "requestedBase")?;
        let is_cpu = args.bytes_of(processor)? == CPU;
        if !is_cpu {
            let gpu = self.registered_gpu(caller, args, processor)?;
            self.is_reachable(caller, gpu, args, "requestedBase")?;
        }
        if is_cpu && args.has("preferredCpuNumaNode") {
            is_node(args.get("preferredCpuNumaNode")?)?;
        }
        Ok(())
    }

    /// UVM_MIGRATE: `uvm_api_migrate`.
    pub(super) fn migrate(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (length, flags) = (args.get("length")?, args.get("flags")?);
        let (semaphore, payload) = (args.get("semaphoreAddress")?, args.word("semaphorePayload")?);
        let is_async = flags & ASYNC != 0;
        // Without a length there is the semaphore alone.
        let is_empty = length == 0 && is_async && semaphore != 0;
        if !is_empty {
            is_range(args.get("base")?, length)?;
        }
        if flags & !(ASYNC | NO_GPU_SPACE) != 0
            || !is_async && semaphore != 0
            || semaphore == 0 && payload != 0
        {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let release = match semaphore {
            0 => None,
            at => Some(self.uvm_space(caller)?.semaphore(at).ok_or(Status::INVALID_ADDRESS)?),
        };
        match args.bytes_of("destinationUuid")? == CPU {
            true if args.has("cpuNumaNode") => is_node(args.get("cpuNumaNode")?)?,
            true => {}
            false => {
                let gpu = self.registered_gpu(caller, args, "destinationUuid")?;
                let has_space = self.uvm_space(caller)?.spaces.contains_key(&gpu);
                if !has_space && flags & NO_GPU_SPACE == 0 {
                    return Err(Status::INVALID_DEVICE.into());
                }
                self.is_reachable(caller, gpu, args, "base")?;
            }
        }
        if !is_empty {
            self.within_managed(caller, args, "base")?;
        }
        if let Some((pool, at)) = release {
            pool.write(at, &payload.to_le_bytes());
        }
        Ok(())
    }

    /// UVM_SET_RANGE_GROUP: `uvm_api_set_range_group`.
    pub(super) fn set_range_group(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        /// UVM_RANGE_GROUP_ID_NONE.
        const NONE: u64 = 0;
        is_range(args.get("requestedBase")?, args.get("length")?)?;
        let group = args.get("rangeGroupId")?;
        if group != NONE && !self.uvm_space(caller)?.groups.contains(&group) {
            return Err(Status::OBJECT_NOT_FOUND.into());
        }
        self.within_managed(caller, args, "requestedBase")
    }

    /// UVM_PREVENT_MIGRATION_RANGE_GROUPS and UVM_ALLOW_MIGRATION_RANGE_GROUPS: `uvm_range_groups_set_migration_policy`.
    pub(super) fn set_migration(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let count = args.get("numGroupIds")?;
        if count == 0 || count > args.count("rangeGroupIds")? as u64 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        for at in 0..count {
            let group = args.get(&format!("rangeGroupIds[{at}]"))?;
            if !self.uvm_space(caller)?.groups.contains(&group) {
                return Err(Status::OBJECT_NOT_FOUND.into());
            }
        }
        Ok(())
    }

    /// Whether all of some addresses are managed (`uvm_api_range_type_check`).
    pub(super) fn within_managed(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        base: &str,
    ) -> Result {
        let (base, length) = (args.get(base)?, args.get("length")?);
        let end = is_range(base, length)?;
        let uvm = self.uvm_space(caller)?;
        let mut at = base;
        for (start, range) in uvm.overlapping(base, end) {
            if start > at || range.kind != RangeKind::Managed {
                break;
            }
            at = start + range.length;
        }
        if at >= end { Ok(()) } else { Err(Status::INVALID_ADDRESS.into()) }
    }

    /// `uvm_gpu_can_address`.
    fn is_reachable(
        &mut self,
        caller: Caller<'_>,
        gpu: usize,
        args: &Params,
        base: &str,
    ) -> Result {
        let (base, length) = (args.get(base)?, args.get("length")?);
        let space = self.uvm_space(caller)?.spaces.get(&gpu);
        match space.is_none_or(|space| space.has(base, length)) {
            true => Ok(()),
            false => Err(Status::OUT_OF_RANGE.into()),
        }
    }
}

impl Space {
    /// The ranges that have some of the addresses, in their order.
    pub(super) fn overlapping(&self, base: u64, end: u64) -> impl Iterator<Item = (u64, &Range)> {
        let first = self.ranges.range(..=base).next_back();
        let first = first.filter(|(start, range)| *start + range.length > base);
        let first = first.map_or(base, |(start, _)| *start);
        self.ranges.range(first..end.max(first)).map(|(start, range)| (*start, range))
    }

    /// The memory of a semaphore in a pool, and where in that it is.
    fn semaphore(&self, at: u64) -> Option<(Arc<super::memory::Buffer>, u64)> {
        let (start, range) = self.ranges.range(..=at).next_back()?;
        let is_there = range.kind == RangeKind::Pool && at - start < range.length && at % 4 == 0;
        Some((range.memory.clone().filter(|_| is_there)?, at - start))
    }
}

/// `uvm_api_range_invalid`: whole pages, and some; where they end.
fn is_range(base: u64, length: u64) -> Result<u64> {
    let is_whole = base % PAGE == 0 && length % PAGE == 0 && base != 0 && length != 0;
    let end = base.checked_add(length).filter(|_| is_whole);
    end.ok_or_else(|| Status::INVALID_ADDRESS.into())
}

/// There is one node of memory, or the program has no wish (-1).
fn is_node(node: u64) -> Result {
    match [0, -1].contains(&(node as u32 as i32)) {
        true => Ok(()),
        false => Err(Status::INVALID_ARGUMENT.into()),
    }
}
