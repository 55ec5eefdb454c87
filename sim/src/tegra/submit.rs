//! Work that is submitted by ioctl: the driver's own ring, and its commands around the client's.
//!
//! G/os/linux/ioctl_channel.c:862-950, common/fifo/submit.c, common/sync/channel_sync_syncpt.c.

use std::sync::Arc;

use super::args::Args;
use super::channel::{Channel, Ring};
use super::space::{REGISTER_LIMIT, SpaceId, Target};
use super::syncpoint::{POINT_SIZE, Points};
use super::{Errno, File, Kernel, Result};
use crate::backing::Backing;
use crate::client::Client;
use crate::gpu::ENTRY;
use crate::memory::Memory;
use crate::tegra::abi::*;
use nvabi::tegra::class::host::*;

/// Entries of the driver's own that a submission may need: a wait before, an increment behind.
const EXTRA_ENTRIES: u32 = 2;
/// Bytes of the driver's commands for one entry of the ring.
const SLOT: u64 = 64;

/// The driver's side of a ring of its own.
#[derive(Debug, Clone)]
pub(super) struct Submitter {
    entries: Arc<Backing>,
    commands: Arc<Backing>,
    commands_at: u64,
    point: u32,
    point_at: u64,
    /// What the syncpoint is when all that was submitted is done.
    threshold: u32,
}

/// What a call asks for.
struct Wanted {
    flags: u32,
    fence: nvgpu_fence,
}

impl Wanted {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn waits(&self) -> bool {
        self.has(NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_WAIT)
    }

    fn gets(&self) -> bool {
        self.has(NVGPU_SUBMIT_GPFIFO_FLAGS_FENCE_GET)
    }

    fn is_file(&self) -> bool {
        self.has(NVGPU_SUBMIT_GPFIFO_FLAGS_SYNC_FENCE)
    }
}

impl Kernel {
    /// The driver's own ring, with its commands and its syncpoint.
    pub(super) fn kernel_ring(&mut self, space: SpaceId, entries: u32) -> Result<Ring> {
        let point = self.points.allocate()?;
        let made = self.map_ring(space, entries, point);
        if made.is_err() {
            self.points.free(point);
        }
        let (address, submitter) = made?;
        Ok(Ring {
            submitter: Some(submitter),
            address,
            entries,
            gpfifo: None,
            userd: None,
            userd_memory: None,
        })
    }

    fn map_ring(&mut self, id: SpaceId, entries: u32, point: u32) -> Result<(u64, Submitter)> {
        let memory = |size| Memory::new(size).map(Backing::from).map(Arc::new);
        let ring = memory(u64::from(entries) * ENTRY)?;
        let commands = memory(u64::from(entries) * SLOT)?;
        let threshold = self.points.value(point).unwrap_or(0);
        let space = self.space_mut(id)?;
        space.map_points()?;
        let read_only = |memory: &Arc<Backing>| Target::Memory {
            memory: memory.clone(),
            offset: 0,
            writable: false,
        };
        let mut mapped = Vec::new();
        for (size, what) in [
            (u64::from(entries) * ENTRY, read_only(&ring)),
            (u64::from(entries) * SLOT, read_only(&commands)),
            (POINT_SIZE, Target::Point(point)),
        ] {
            match space.map_own(size, what) {
                Ok(at) => mapped.push(at),
                Err(errno) => {
                    mapped.into_iter().for_each(|at| space.unmap_own(at));
                    return Err(errno);
                }
            }
        }
        let (commands_at, point_at) = (mapped[1], mapped[2]);
        let submitter =
            Submitter { entries: ring, commands, commands_at, point, point_at, threshold };
        Ok((mapped[0], submitter))
    }

    /// What is left of a ring of the driver's own when its channel goes.
    pub(super) fn drop_submitter(&mut self, space: SpaceId, submitter: &Submitter) {
        submitter.finish(&mut self.points);
        self.points.free(submitter.point);
        if let Some(space) = self.spaces.get_mut(&space) {
            space.unmap_own(submitter.commands_at);
            space.unmap_own(submitter.point_at);
        }
    }

    pub(super) fn submit(
        &mut self,
        client: &dyn Client,
        chid: u32,
        args: &mut Args,
    ) -> Result<i64> {
        let mut call: nvgpu_submit_gpfifo_args = args.get();
        let wanted = Wanted { flags: call.flags, fence: call.fence };
        let is_alive = self.channels.get(&chid).is_some_and(|channel| !channel.is_dead);
        let gets_file = wanted.gets() && wanted.is_file();
        if is_alive && gets_file && !client.has_room() {
            return Err(Errno::EMFILE);
        }
        let (point, value) = self.put_work(client, chid, &call, &wanted)?;
        if wanted.gets() {
            call.fence = match gets_file {
                true => {
                    nvgpu_fence { id: self.fence_file(client, point, value)? as u32, ..call.fence }
                }
                false => nvgpu_fence { id: point, value },
            };
            args.put(&call);
        }
        Ok(0)
    }

    /// Checks a submission and puts it into the ring; its syncpoint, and what that is then.
    fn put_work(
        &mut self,
        client: &dyn Client,
        chid: u32,
        call: &nvgpu_submit_gpfifo_args,
        wanted: &Wanted,
    ) -> Result<(u32, u32)> {
        let channel = self.channels.get(&chid).filter(|channel| !channel.is_dead);
        let channel = channel.ok_or(Errno::ETIMEDOUT)?;
        let ring = channel.ring.as_ref().ok_or(Errno::ENOMEM)?;
        let submitter = ring.submitter.as_ref().ok_or(Errno::EINVAL)?;
        let needed = call.num_entries.saturating_add(EXTRA_ENTRIES);
        if ring.entries - 1 < needed {
            return Err(Errno::ENOMEM);
        }
        if channel.is_deterministic
            && (wanted.gets() && wanted.is_file()
                || !wanted.has(NVGPU_SUBMIT_GPFIFO_FLAGS_SKIP_BUFFER_REFCOUNTING))
        {
            return Err(Errno::EINVAL);
        }
        if channel.engine.room(ring.entries) < needed {
            return Err(Errno::EAGAIN);
        }
        let wait = if wanted.waits() { Some(self.awaited(client, wanted)?) } else { None };
        let mut entries = vec![0; call.num_entries as usize * ENTRY as usize];
        if client.read(call.gpfifo, &mut entries) < entries.len() {
            return Err(Errno::EFAULT);
        }
        // On a deterministic channel nothing is tracked that nobody asked for.
        let is_tracked = !channel.is_deterministic || wanted.waits() || wanted.gets();
        let space = channel.space.ok_or(Errno::EINVAL)?;
        let (point, threshold) = (submitter.point, submitter.threshold);
        let points_at = self.space_mut(space)?.map_points()?;
        let channel = self.channels.get_mut(&chid).ok_or(Errno::ETIMEDOUT)?;
        if let Some((point, threshold)) = wait {
            let at = points_at + u64::from(point) * POINT_SIZE;
            let acquire = SEM_EXECUTE_ACQ_CIRC_GEQ | SEM_EXECUTE_ACQUIRE_SWITCH_TSG;
            channel.append_own(at, threshold, acquire);
        }
        entries.chunks_exact(ENTRY as usize).for_each(|entry| channel.append(entry));
        if !is_tracked {
            return Ok((point, threshold));
        }
        channel.append_increment();
        Ok((point, threshold.wrapping_add(1)))
    }

    /// The syncpoint that a submission waits for, and how far.
    fn awaited(&self, client: &dyn Client, wanted: &Wanted) -> Result<(u32, u32)> {
        if !wanted.is_file() {
            let nvgpu_fence { id, value } = wanted.fence;
            return self.points.value(id).map(|_| (id, value)).ok_or(Errno::EINVAL);
        }
        match self.descriptor(client, wanted.fence.id as i32) {
            Some(File::Fence { point, threshold }) => Ok((point, threshold)),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Submitter {
    /// Lets go whoever waits for what will not be done any more.
    pub(super) fn finish(&self, points: &mut Points) {
        points.raise_to(self.point, self.threshold);
    }
}

impl Channel {
    /// Puts an entry at the end of the driver's own ring.
    fn append(&mut self, entry: &[u8]) {
        let Some(ring) = self.ring.as_ref() else { return };
        let Some(submitter) = ring.submitter.as_ref() else { return };
        submitter.entries.write(u64::from(self.engine.end()) * ENTRY, entry);
        self.engine.advance(ring.entries);
    }

    /// The same with commands of the driver's: an operation on a semaphore.
    fn append_own(&mut self, at: u64, payload: u32, execute: u32) {
        let Some(submitter) = self.ring.as_ref().and_then(|ring| ring.submitter.as_ref()) else {
            return;
        };
        let words = [
            1 << 29 | 5 << 16 | SEM_ADDR_LO >> 2,
            at as u32,
            (at >> 32) as u32,
            payload,
            0,
            execute,
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let slot = u64::from(self.engine.end()) * SLOT;
        submitter.commands.write(slot, &bytes);
        // An entry has room for as many bits of an address, as registers have.
        let at = (submitter.commands_at + slot) & (REGISTER_LIMIT - 1);
        let entry = at | (words.len() as u64) << 42;
        self.append(&entry.to_le_bytes());
    }

    /// One more of the ring's syncpoint, when all before it is done.
    fn append_increment(&mut self) {
        let Some(ring) = self.ring.as_mut() else { return };
        let Some(submitter) = ring.submitter.as_mut() else { return };
        submitter.threshold = submitter.threshold.wrapping_add(1);
        let at = submitter.point_at;
        self.append_own(at, 0, SEM_EXECUTE_RELEASE | SEM_EXECUTE_RELEASE_WFI);
    }
}
