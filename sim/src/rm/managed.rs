//! Memory that UVM manages itself: a process and its GPUs see it at the same addresses (`kernel-open/nvidia-uvm/uvm.c`,
//! `uvm_policy.c`, `uvm_migrate.c`, `uvm_range_group.c`).
//!
//! It is one memory, wherever the driver would have moved its pages: where they are is kept (`residence`), and profilers
//! are told of it (`tools`).

use std::sync::Arc;

use super::Driver;
use super::external::map_range;
use super::failed::{Failed, Result};
use super::frontend::Caller;
use super::interface::Params;
use super::memory::PAGE;
use super::residence::Processor;
use super::uvm::{Range, RangeKind, Space};
use crate::client::Client;
use crate::files::FileId;
use crate::machine::{MapCall, Mapping};
use crate::{Errno, Status};

/// NV_PROCESSOR_UUID_CPU_DEFAULT.
pub(super) const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// UVM_MIGRATE_FLAG_ASYNC and _NO_GPU_VA_SPACE; the one between them is for the driver's own tests.
const ASYNC: u64 = 1;
const NO_GPU_SPACE: u64 = 4;

impl Driver {
    /// `uvm_mmap`: a process maps a pool of semaphores, or memory that is managed from then on.
    pub(super) fn map_uvm(
        &mut self,
        client: &dyn Client,
        file: FileId,
        call: &MapCall,
    ) -> Result<Mapping, Errno> {
        let uvm = self.space(file).ok_or(Errno::EBADFD)?;
        if !uvm.is_sharing() && uvm.process != client.process() {
            return Err(Errno::EOPNOTSUPP);
        }
        let (base, length) = (call.offset, call.length.checked_next_multiple_of(PAGE));
        let length = length.ok_or(Errno::ENOMEM)?;
        let end = base.checked_add(length).ok_or(Errno::EOVERFLOW)?;
        check_place(call, end, |addresses| client.has_mapped(addresses))?;
        if !is_shared(call) {
            return Err(Errno::EINVAL);
        }
        if !self.has_pool(file, base, length) {
            let made = self.create_managed(client, file, base, length);
            made.map_err(|failed| match failed {
                Failed::Errno(errno) => errno,
                // What is not simulated is told.
                failed => errno_of(self.status_of(client, failed)),
            })?;
        }
        if let Some(uvm) = self.space(file) {
            uvm.mappers.insert(client.process());
        }
        Ok(Mapping::Own)
    }

    /// The place of managed memory in its file is its address.
    fn create_managed(
        &mut self,
        client: &dyn Client,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result {
        self.forget_long_unmapped(client, file)?;
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        let end = base + length;
        if uvm.overlapping(base, end).any(|(_, range)| range.kind != RangeKind::Managed) {
            return Err(Status::UVM_ADDRESS_IN_USE.into());
        }
        // The process puts this mapping in the place of what it has there, or had unmapped that before.
        self.cut(file, base, end)?;
        let range = self.managed(file, base, length)?;
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        uvm.add(base, range);
        Ok(())
    }

    fn managed(&mut self, file: FileId, base: u64, length: u64) -> Result<Range> {
        let memory = Some(Arc::new(self.buffer_of_file(file, base, length)?));
        Ok(Range { length, kind: RangeKind::Managed, memory })
    }

    /// Takes addresses out of the managed ranges that have them, of which the rest stays; what was there is gone.
    fn cut(&mut self, file: FileId, base: u64, end: u64) -> Result {
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        let managed = uvm.overlapping(base, end).filter(|(_, of)| of.kind == RangeKind::Managed);
        let managed = managed.map(|(start, of)| (start, start + of.length));
        for (start, stop) in managed.collect::<Vec<_>>() {
            let mut rest = Vec::new();
            for (from, to) in [(start, base), (end, stop)] {
                if from < to {
                    rest.push((from, self.managed(file, from, to - from)?));
                }
            }
            let (first, last) = (start.max(base), stop.min(end));
            let gone = self.buffer_of_file(file, first, last - first)?;
            let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
            uvm.remove(start);
            uvm.residence.forget(first, last);
            rest.into_iter().for_each(|(from, range)| uvm.add(from, range));
            gone.clear();
        }
        Ok(())
    }

    /// Forgets managed memory at some addresses where no process maps it any more: nobody is told of `munmap`. What
    /// cannot be seen is kept.
    pub(super) fn forget_unmapped(
        &mut self,
        client: &dyn Client,
        file: FileId,
        base: u64,
        end: u64,
    ) -> Result {
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        let managed = uvm.overlapping(base, end).filter(|(_, of)| of.kind == RangeKind::Managed);
        let managed = managed.map(|(start, of)| (start, of.length));
        let managed: Vec<(u64, u64)> = managed.collect();
        if managed.is_empty() {
            return Ok(());
        }
        let Some(mapped) = self.mappings_of_file(client, file) else { return Ok(()) };
        for (start, length) in managed {
            for (from, to) in gaps(start.max(base), (start + length).min(end), &mapped) {
                self.cut(file, from, to)?;
            }
        }
        Ok(())
    }

    /// The same at all addresses, whenever there are twice as many ranges as were left the last time.
    fn forget_long_unmapped(&mut self, client: &dyn Client, file: FileId) -> Result {
        /// So few are not worth it.
        const FEW: usize = 64;
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        if uvm.ranges.len() < uvm.last_ranges.max(FEW) * 2 {
            return Ok(());
        }
        self.forget_unmapped(client, file, 0, u64::MAX)?;
        let uvm = self.space(file).ok_or(Status::ILLEGAL_ACTION)?;
        uvm.last_ranges = uvm.ranges.len();
        Ok(())
    }

    /// Where processes have mapped the file of an address space, in the order of the addresses; none where that cannot
    /// be seen. A process that is forked has none of them.
    pub(super) fn mappings_of_file(
        &mut self,
        client: &dyn Client,
        file: FileId,
    ) -> Option<Vec<std::ops::Range<u64>>> {
        let Some(inode) = self.files.get(file).map(|open| open.node.inode()) else {
            return Some(Vec::new());
        };
        let Some(uvm) = self.space(file) else { return Some(Vec::new()) };
        let of_each = uvm.mappers.iter().map(|process| client.mappings_of(*process, inode));
        let mut all = of_each.collect::<Option<Vec<_>>>()?.concat();
        all.sort_unstable_by_key(|range| range.start);
        Some(all)
    }

    /// UVM_DISCARD: what pages hold is of no use any more, and may stay (`uvm_api_discard`).
    pub(super) fn discard(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        /// UVM_DISCARD_FLAGS_UNMAP.
        const UNMAP: u64 = 1;
        if ![0, UNMAP].contains(&args.get("flags")?) {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        self.within_managed(caller, args, "base").map(drop)
    }

    /// UVM_SET_PREFERRED_LOCATION.
    pub(super) fn prefer(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, end) = self.within_managed(caller, args, "requestedBase")?;
        let place = self.processor(caller, args, "preferredLocation")?;
        if place == Processor::Cpu && args.has("preferredCpuNumaNode") {
            is_node(args.get("preferredCpuNumaNode")?)?;
        }
        self.uvm_space(caller)?.residence.prefer(base, end, Some(place));
        Ok(())
    }

    /// UVM_UNSET_PREFERRED_LOCATION.
    pub(super) fn unprefer(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let (base, end) = self.within_managed(caller, args, "requestedBase")?;
        self.uvm_space(caller)?.residence.prefer(base, end, None);
        Ok(())
    }

    /// UVM_SET_ACCESSED_BY and UVM_UNSET_ACCESSED_BY. The CPU sees all that there is.
    pub(super) fn access_by(&mut self, caller: Caller<'_>, args: &Params, is_set: bool) -> Result {
        let (base, end) = self.within_managed(caller, args, "requestedBase")?;
        if let Processor::Gpu(gpu) = self.processor(caller, args, "accessedByUuid")? {
            self.uvm_space(caller)?.residence.access_by(base, end, gpu, is_set);
        }
        Ok(())
    }

    /// The processor that advice is about: one that can have the memory.
    fn processor(&mut self, caller: Caller<'_>, args: &Params, field: &str) -> Result<Processor> {
        if args.bytes_of(field)? == CPU {
            return Ok(Processor::Cpu);
        }
        let gpu = self.registered_gpu(caller, args, field)?;
        self.is_reachable(caller, gpu, args, "requestedBase")?;
        Ok(Processor::Gpu(gpu))
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
        let to = self.destination(caller, args, flags & NO_GPU_SPACE == 0)?;
        match to {
            Processor::Cpu if args.has("cpuNumaNode") => is_node(args.get("cpuNumaNode")?)?,
            Processor::Cpu => {}
            Processor::Gpu(gpu) => self.is_reachable(caller, gpu, args, "base")?,
        }
        if !is_empty {
            let (base, end) = self.within_managed(caller, args, "base")?;
            self.uvm_space(caller)?.residence.bring(base, end, to);
        }
        if let Some((pool, at)) = release {
            pool.write(at, &payload.to_le_bytes());
        }
        Ok(())
    }

    /// UVM_MIGRATE_RANGE_GROUP: `uvm_api_migrate_range_group`.
    pub(super) fn migrate_group(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        let to = self.destination(caller, args, true)?;
        let group = args.get("rangeGroupId")?;
        let uvm = self.uvm_space(caller)?;
        if !uvm.groups.contains(&group) {
            return Err(Status::OBJECT_NOT_FOUND.into());
        }
        for (base, end) in uvm.residence.of_group(group) {
            if let Processor::Gpu(gpu) = to {
                self.reaches(caller, gpu, base, end - base)?;
            }
            self.uvm_space(caller)?.residence.bring(base, end, to);
        }
        Ok(())
    }

    /// Where pages are to go; a GPU may have to see the address space.
    fn destination(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        must_see: bool,
    ) -> Result<Processor> {
        if args.bytes_of("destinationUuid")? == CPU {
            return Ok(Processor::Cpu);
        }
        let gpu = self.registered_gpu(caller, args, "destinationUuid")?;
        if must_see && !self.uvm_space(caller)?.spaces.contains_key(&gpu) {
            return Err(Status::INVALID_DEVICE.into());
        }
        Ok(Processor::Gpu(gpu))
    }

    /// UVM_SET_RANGE_GROUP: `uvm_api_set_range_group`.
    pub(super) fn set_range_group(&mut self, caller: Caller<'_>, args: &Params) -> Result {
        /// UVM_RANGE_GROUP_ID_NONE.
        const NONE: u64 = 0;
        is_range(args.get("requestedBase")?, args.get("length")?)?;
        let group = Some(args.get("rangeGroupId")?).filter(|group| *group != NONE);
        let uvm = self.uvm_space(caller)?;
        if group.is_some_and(|group| !uvm.groups.contains(&group)) {
            return Err(Status::OBJECT_NOT_FOUND.into());
        }
        let (base, end) = self.within_managed(caller, args, "requestedBase")?;
        self.uvm_space(caller)?.residence.group(base, end, group);
        Ok(())
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

    /// Addresses that are all managed (`uvm_api_range_type_check`): the first, and the end.
    pub(super) fn within_managed(
        &mut self,
        caller: Caller<'_>,
        args: &Params,
        base: &str,
    ) -> Result<(u64, u64)> {
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
        if at >= end { Ok((base, end)) } else { Err(Status::INVALID_ADDRESS.into()) }
    }

    /// `uvm_gpu_can_address`.
    fn is_reachable(
        &mut self,
        caller: Caller<'_>,
        gpu: usize,
        args: &Params,
        base: &str,
    ) -> Result {
        self.reaches(caller, gpu, args.get(base)?, args.get("length")?)
    }

    fn reaches(&mut self, caller: Caller<'_>, gpu: usize, base: u64, length: u64) -> Result {
        let space = self.uvm_space(caller)?.spaces.get(&gpu);
        match length == 0 || space.is_none_or(|space| space.has(base, length)) {
            true => Ok(()),
            false => Err(Status::OUT_OF_RANGE.into()),
        }
    }
}

impl Space {
    /// Adds a range, and shows its memory to the GPUs.
    pub(super) fn add(&mut self, base: u64, range: Range) {
        map_range(self, base, &range);
        self.ranges.insert(base, range);
    }

    /// Removes a range, and what GPUs see there.
    pub(super) fn remove(&mut self, base: u64) -> Option<Range> {
        let range = self.ranges.remove(&base)?;
        self.spaces.values().for_each(|space| space.unmap(base, range.length));
        Some(range)
    }

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

/// Whether the kernel will map at the place in the file: only that is the address for GPUs as well.
fn check_place(
    call: &MapCall,
    end: u64,
    has_mapped: impl Fn(std::ops::Range<u64>) -> Option<bool>,
) -> Result<(), Errno> {
    let is_exclusive = call.flags & libc::MAP_FIXED_NOREPLACE == libc::MAP_FIXED_NOREPLACE;
    let is_fixed = is_exclusive || call.flags & libc::MAP_FIXED != 0;
    if call.address != call.offset {
        return Err(Errno::EINVAL);
    }
    // Without a flag the address is a wish, and it is another one that the kernel finds.
    let must_be_free = is_exclusive || !is_fixed;
    if must_be_free && has_mapped(call.offset..end).ok_or(Errno::EAGAIN)? {
        return Err(if is_exclusive { Errno::EEXIST } else { Errno::EINVAL });
    }
    Ok(())
}

/// The process must be able to read and write what the GPUs see.
fn is_shared(call: &MapCall) -> bool {
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let kind = call.flags & libc::MAP_TYPE;
    call.protection & both == both && [libc::MAP_SHARED, libc::MAP_SHARED_VALIDATE].contains(&kind)
}

/// `nv_status_to_errno`.
fn errno_of(status: Status) -> Errno {
    match status {
        Status::NO_MEMORY => Errno::ENOMEM,
        Status::INVALID_ADDRESS => Errno::EFAULT,
        Status::UVM_ADDRESS_IN_USE => Errno::EADDRINUSE,
        _ => Errno::EINVAL,
    }
}

/// The addresses of a range at which nothing is mapped; the mappings are in their order.
fn gaps(base: u64, end: u64, mapped: &[std::ops::Range<u64>]) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = base;
    for mapping in mapped {
        if mapping.start >= end {
            break;
        }
        if mapping.start > at {
            gaps.push((at, mapping.start));
        }
        at = at.max(mapping.end);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// `uvm_api_range_invalid`: whole pages, and some; where they end.
pub(super) fn is_range(base: u64, length: u64) -> Result<u64> {
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

#[cfg(test)]
mod tests {
    use super::{check_place, gaps};
    use crate::Errno;
    use crate::machine::MapCall;

    #[test]
    fn what_cannot_be_seen_is_not_taken_as_free() {
        let at =
            |flags| MapCall { address: 4096, length: 4096, protection: 3, flags, offset: 4096 };
        let check = |flags, seen| check_place(&at(flags), 8192, move |_| seen);
        for flags in [0, libc::MAP_FIXED_NOREPLACE] {
            assert_eq!(check(flags, Some(false)), Ok(()));
            assert_eq!(check(flags, None), Err(Errno::EAGAIN));
        }
        assert_eq!(check(libc::MAP_FIXED_NOREPLACE, Some(true)), Err(Errno::EEXIST));
        assert_eq!(check(0, Some(true)), Err(Errno::EINVAL));
        assert_eq!(check(libc::MAP_FIXED, None), Ok(()), "it replaces what is there");
    }

    #[test]
    fn what_is_not_mapped_is_found() {
        for (base, end, mapped, expected) in [
            (10, 20, vec![], vec![(10, 20)]),
            (10, 20, vec![5..15, 15..25], vec![]),
            (10, 20, vec![0..10, 20..30], vec![(10, 20)]),
            (10, 20, vec![8..12, 14..16, 19..22], vec![(12, 14), (16, 19)]),
            (10, 20, vec![12..14, 14..14], vec![(10, 12), (14, 20)]),
        ] {
            assert_eq!(gaps(base, end, &mapped), expected, "{base} {end} {mapped:?}");
        }
    }
}
