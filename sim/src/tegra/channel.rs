//! Channels: streams of commands.

use std::sync::Arc;

use super::args::Args;
use super::gpu;
use super::nvmap::BufferId;
use super::run::Unrung;
use super::space::{REGISTER_LIMIT, SpaceId, Target};
use super::submit::Submitter;
use super::{Errno, File, FileId, Kernel, PAGE, Result};
use crate::backing::Backing;
use crate::client::Client;
use crate::gpu::{ENTRY, Engine};
use crate::log::RunId;
use crate::machine::Machine as _;
use crate::memory::Memory;
use crate::tegra::abi::*;

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    /// Who opened it.
    pub(super) process: u32,
    pub(super) run: RunId,
    pub(super) runlist: u32,
    pub(super) space: Option<SpaceId>,
    pub(super) tsg: Option<u32>,
    /// The subcontext it was last given.
    pub(super) subcontext: u32,
    /// The subcontext it is on.
    pub(super) member: u32,
    has_watchdog: bool,
    pub(super) is_deterministic: bool,
    /// It runs nothing: not in a group, or failed.
    pub(super) is_dead: bool,
    pub(super) is_enabled: bool,
    pub(super) ring: Option<Ring>,
    class: u32,
    pub(super) notifier: Option<Notifier>,
    /// Its id and its address.
    pub(super) syncpoint: Option<(u32, u64)>,
    pub(super) engine: Engine,
    pub(super) unrung: Unrung,
}

/// What SETUP_BIND gave a channel.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    /// The driver's side, where the client does not write the ring itself and ring the doorbell.
    pub(super) submitter: Option<Submitter>,
    pub(super) address: u64,
    pub(super) entries: u32,
    pub(super) gpfifo: Option<BufferId>,
    pub(super) userd: Option<BufferId>,
    pub(super) userd_memory: Option<Arc<Backing>>,
}

/// Where a channel says that it failed.
#[derive(Debug, Clone)]
pub(super) struct Notifier {
    buffer: BufferId,
    memory: Arc<Backing>,
    offset: u64,
}

impl Notifier {
    pub(super) fn write(&self, notification: &nvgpu_notification) {
        self.memory.write(self.offset, super::args::as_bytes(notification));
    }
}

impl Kernel {
    /// Opens a channel on a runlist, −1 for that of the graphics engine (G/os/linux/ioctl_channel.c:480).
    pub(super) fn open_channel(&mut self, client: &dyn Client, runlist: i32) -> Result<FileId> {
        let runlist = match runlist {
            -1 => gpu::GRAPHICS_RUNLIST,
            other => gpu::runlist(other).ok_or(Errno::EINVAL)?,
        };
        let memory = Memory::new(0)?;
        let chid = self.free_channels.pop().ok_or(Errno::ENOMEM)?;
        let channel = Channel {
            process: client.process(),
            run: client.run(),
            runlist,
            space: None,
            tsg: None,
            subcontext: 0,
            member: 0,
            has_watchdog: true,
            is_deterministic: false,
            is_dead: true,
            is_enabled: true,
            ring: None,
            class: 0,
            notifier: None,
            syncpoint: None,
            engine: Engine::default(),
            unrung: Unrung::default(),
        };
        self.channels.insert(chid, channel);
        self.add_file(File::Channel(chid), memory)
    }

    /// The argument is the runlist and becomes the descriptor.
    pub(super) fn open_channel_call(
        &mut self,
        client: &dyn Client,
        args: &mut Args,
    ) -> Result<i64> {
        let file = self
            .open_channel(client, args.word(0) as i32)
            .map_err(|errno| Self::after_descriptor(client, errno))?;
        let fd = self.install(client, file)?;
        args.put_word(0, fd as u32);
        Ok(0)
    }

    /// G/common/fifo/channel.c:971-1106.
    pub(super) fn release_channel(&mut self, chid: u32) {
        // A client may close right behind its doorbell: then nobody has seen that one yet.
        let doorbells = self.doorbells();
        self.answer_doorbells(&doorbells);
        if let Some(notifier) = self.channels.get_mut(&chid).and_then(|c| c.notifier.take()) {
            self.nvmap.put_gpu(notifier.buffer);
        }
        self.unbind(chid, true);
        let Some(channel) = self.channels.remove(&chid) else { return };
        if let Some(space) = channel.space {
            self.drop_ring(space, channel.ring);
            if let Some((point, at)) = channel.syncpoint {
                self.points.make_safe(point);
                if let Some(space) = self.spaces.get_mut(&space) {
                    space.unmap_own(at);
                }
                self.points.free(point);
            }
            self.put_space(space);
        }
        self.free_channels.push(chid);
    }

    fn drop_ring(&mut self, space: SpaceId, ring: Option<Ring>) {
        let Some(ring) = ring else { return };
        if let Some(space) = self.spaces.get_mut(&space) {
            space.unmap_own(ring.address);
        }
        for buffer in [ring.gpfifo, ring.userd].into_iter().flatten() {
            self.nvmap.put_gpu(buffer);
        }
        if let Some(submitter) = &ring.submitter {
            self.drop_submitter(space, submitter);
        }
    }

    pub(super) fn channel_ioctl(
        &mut self,
        client: &dyn Client,
        chid: u32,
        request: u32,
        args: &mut Args,
    ) -> Result<i64> {
        match request {
            NVGPU_IOCTL_CHANNEL_OPEN::REQUEST => self.open_channel_call(client, args),
            NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD::REQUEST
            | NVGPU_IOCTL_CHANNEL_SET_TIMEOUT::REQUEST
            | NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX::REQUEST
            | NVGPU_IOCTL_CHANNEL_PREEMPT::REQUEST => Ok(0),
            NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT::REQUEST => {
                args.put_word(0, self.channel_mut(chid)?.is_dead.into());
                Ok(0)
            }
            NVGPU_IOCTL_CHANNEL_ENABLE::REQUEST => {
                self.channel_mut(chid)?.is_enabled = true;
                Ok(0)
            }
            NVGPU_IOCTL_CHANNEL_DISABLE::REQUEST => {
                self.channel_mut(chid)?.is_enabled = false;
                Ok(0)
            }
            NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST::REQUEST if !client.may_reschedule() => {
                Err(Errno::EPERM)
            }
            NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST::REQUEST => Ok(0),
            NVGPU_IOCTL_CHANNEL_FORCE_RESET::REQUEST => {
                self.fail_channel(chid, NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR);
                Ok(0)
            }
            NVGPU_IOCTL_CHANNEL_WDT::REQUEST => self.set_watchdog(chid, args),
            NVGPU_IOCTL_CHANNEL_SETUP_BIND::REQUEST => self.setup_bind(client, chid, args),
            NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX::REQUEST => {
                let wanted: nvgpu_alloc_gpfifo_ex_args = args.get();
                let setup = nvgpu_channel_setup_bind_args {
                    num_gpfifo_entries: wanted.num_entries,
                    flags: wanted.flags,
                    ..Args::new(0).get()
                };
                self.setup(client, chid, &setup).map(|_| 0)
            }
            NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT::REQUEST => {
                self.user_syncpoint(client, chid, args)
            }
            NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX::REQUEST => self.alloc_object(client, chid, args),
            NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER::REQUEST => {
                self.set_notifier(client, chid, args)
            }
            NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE::REQUEST => self.set_preemption(chid, args),
            // There is no boost on Orin.
            NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX::REQUEST => Err(Errno::EINVAL),
            NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO::REQUEST => self.submit(client, chid, args),
            NVGPU_IOCTL_CHANNEL_WAIT::REQUEST | NVGPU_IOCTL_CHANNEL_ZCULL_BIND::REQUEST => {
                self.not_simulated(client, request)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn channel_mut(&mut self, chid: u32) -> Result<&mut Channel> {
        self.channels.get_mut(&chid).ok_or(Errno::ETIMEDOUT)
    }

    /// G/os/linux/ioctl_channel.c:303-340.
    fn set_watchdog(&mut self, chid: u32, args: &Args) -> Result<i64> {
        let wanted: nvgpu_channel_wdt_args = args.get();
        let both = NVGPU_IOCTL_CHANNEL_DISABLE_WDT | NVGPU_IOCTL_CHANNEL_ENABLE_WDT;
        let status = wanted.wdt_status & both;
        let channel = self.channel_mut(chid)?;
        if channel.is_deterministic && status != NVGPU_IOCTL_CHANNEL_DISABLE_WDT {
            return Err(Errno::EINVAL);
        }
        channel.has_watchdog = match status {
            NVGPU_IOCTL_CHANNEL_DISABLE_WDT => false,
            NVGPU_IOCTL_CHANNEL_ENABLE_WDT => true,
            _ => return Err(Errno::EINVAL),
        };
        Ok(0)
    }

    fn setup_bind(&mut self, client: &dyn Client, chid: u32, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_channel_setup_bind_args = args.get();
        let token = self.setup(client, chid, &wanted)?;
        wanted.work_submit_token = token;
        wanted.gpfifo_gpu_va = 0;
        wanted.userd_gpu_va = 0;
        wanted.usermode_mmio_gpu_va = 0;
        args.put(&wanted);
        Ok(0)
    }

    /// G/os/linux/ioctl_channel.c:1288-1350, then common/fifo/channel.c:1447-1620.
    fn setup(
        &mut self,
        client: &dyn Client,
        chid: u32,
        wanted: &nvgpu_channel_setup_bind_args,
    ) -> Result<u32> {
        let has = |flag| wanted.flags & flag != 0;
        let is_usermode = has(NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT);
        let is_deterministic = has(NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC);
        let entries = wanted.num_gpfifo_entries;
        if entries < if is_usermode { 2 } else { 4 }
            || !entries.is_power_of_two()
            || u64::from(entries) > u64::from(u32::MAX) / ENTRY
        {
            return Err(Errno::EINVAL);
        }
        let channel = self.channel_mut(chid)?;
        let space = channel.space.ok_or(Errno::EINVAL)?;
        let tsg = channel.tsg.ok_or(Errno::EINVAL)?;
        if channel.ring.is_some() {
            return Err(Errno::EEXIST);
        }
        if (is_deterministic && channel.has_watchdog)
            || (is_usermode && !is_deterministic)
            || has(NVGPU_CHANNEL_SETUP_BIND_FLAGS_VPR_ENABLED)
        {
            return Err(Errno::EINVAL);
        }
        let runlist = channel.runlist;
        let ring = if is_usermode {
            self.usermode_ring(client, space, wanted)?
        } else {
            self.kernel_ring(space, entries)?
        };
        self.warn_if_too_high(client.process(), space, "SETUP_BIND");
        self.warn_of_high_ring(client.process(), &ring);
        let channel = self.channel_mut(chid)?;
        channel.is_deterministic = is_deterministic;
        channel.ring = Some(ring);
        debug_assert!(channel.tsg == Some(tsg));
        // G/hal/fifo/usermode_tu104.c:58.
        Ok(chid | runlist << 16)
    }

    /// G/os/linux/linux-channel.c:505-575.
    fn usermode_ring(
        &mut self,
        client: &dyn Client,
        space: SpaceId,
        wanted: &nvgpu_channel_setup_bind_args,
    ) -> Result<Ring> {
        if wanted.gpfifo_dmabuf_fd == 0
            || wanted.userd_dmabuf_fd == 0
            || wanted.gpfifo_dmabuf_offset != 0
            || wanted.userd_dmabuf_offset != 0
        {
            return Err(Errno::EINVAL);
        }
        let (gpfifo, _) = self.dmabuf_of(client, wanted.gpfifo_dmabuf_fd)?;
        let memory = self.nvmap.pinned(gpfifo)?;
        let size = self.nvmap.buffer(gpfifo)?.size;
        if size < PAGE.max(u64::from(wanted.num_gpfifo_entries) * ENTRY) {
            return Err(Errno::EINVAL);
        }
        let target = Target::Memory { memory, offset: 0, writable: false };
        let address = self.space_mut(space)?.map_own(size, target)?;
        let userd = self
            .dmabuf_of(client, wanted.userd_dmabuf_fd)
            .and_then(|(userd, _)| Ok((userd, self.nvmap.pinned(userd)?)))
            .and_then(|(userd, memory)| match memory.memory() {
                Some(_) => Ok((userd, memory)),
                // It is looked at all the time.
                None => Err(self.not_possible(client, "USERD in the program's own pages")),
            });
        let (userd, userd_memory) = match userd {
            Ok(userd) => userd,
            Err(errno) => {
                self.space_mut(space)?.unmap_own(address);
                return Err(errno);
            }
        };
        self.nvmap.get_gpu(gpfifo);
        self.nvmap.get_gpu(userd);
        Ok(Ring {
            submitter: None,
            address,
            entries: wanted.num_gpfifo_entries,
            gpfifo: Some(gpfifo),
            userd: Some(userd),
            userd_memory: Some(userd_memory),
        })
    }

    /// The driver warns of every context there and can run into an assertion.
    fn warn_if_too_high(&mut self, process: u32, space: SpaceId, call: &str) {
        if let Some(space) = self.spaces.get(&space).filter(|space| space.is_too_high()) {
            let text = format!(
                "{call}: the address space ends at {:#x}, above 0xff00000000: the driver's window \
                 behind it does not fit in 40 bits",
                space.end()
            );
            self.log.diagnose(process, "window-too-high", text);
        }
    }

    /// The driver maps it where its own window has room, and nothing looks whether the engine reaches it.
    fn warn_of_high_ring(&mut self, process: u32, ring: &Ring) {
        let buffer = ring.gpfifo.and_then(|gpfifo| self.nvmap.buffer(gpfifo).ok());
        let size = buffer.map_or(u64::from(ring.entries) * ENTRY, |buffer| buffer.size);
        let end = ring.address.saturating_add(size);
        if end > REGISTER_LIMIT {
            let text = format!(
                "SETUP_BIND: the GPFIFO of {} KiB is mapped from {:#x} to {end:#x}, and the engine fetches entries \
                 below 2^40 alone: a machine froze so; end the address space at 0xff00000000 or below",
                size >> 10,
                ring.address,
            );
            self.log.diagnose(process, "gpfifo-too-high", text);
        }
    }

    /// G/os/linux/ioctl_channel.c:1124-1175.
    fn user_syncpoint(&mut self, client: &dyn Client, chid: u32, args: &mut Args) -> Result<i64> {
        let channel = self.channels.get(&chid).ok_or(Errno::ETIMEDOUT)?;
        let (point, at) = match (channel.syncpoint, channel.space) {
            (Some(syncpoint), _) => syncpoint,
            (None, Some(space)) => self.add_syncpoint(chid, space)?,
            (None, None) => {
                let text = "GET_USER_SYNCPOINT on a channel without an address space: the driver \
                            does not look, and faults"
                    .to_owned();
                self.log.diagnose(client.process(), "syncpoint-without-space", text);
                return Err(Errno::EINVAL);
            }
        };
        args.put(&nvgpu_get_user_syncpoint_args {
            gpu_va: at,
            syncpoint_id: point,
            syncpoint_max: self.points.value(point).unwrap_or(0),
        });
        Ok(0)
    }

    fn add_syncpoint(&mut self, chid: u32, space: SpaceId) -> Result<(u32, u64)> {
        let point = self.points.allocate()?;
        let mapped = self.spaces.get_mut(&space).ok_or(Errno::ENOMEM).and_then(|space| {
            space.map_points()?;
            space.map_own(super::syncpoint::POINT_SIZE, Target::Point(point))
        });
        match mapped {
            Ok(at) => {
                self.channel_mut(chid)?.syncpoint = Some((point, at));
                Ok((point, at))
            }
            Err(_) => {
                self.points.free(point);
                Err(Errno::ENOMEM)
            }
        }
    }

    /// G/os/linux/ioctl_channel.c:1236-1285, common/gr/gr_setup.c:125-230.
    fn alloc_object(&mut self, client: &dyn Client, chid: u32, args: &Args) -> Result<i64> {
        let class = args.get::<nvgpu_alloc_obj_ctx_args>().class_num;
        let channel = self.channel_mut(chid)?;
        let tsg = channel.tsg.ok_or(Errno::EINVAL)?;
        let space = channel.space.ok_or(Errno::EINVAL)?;
        if !gpu::is_class(class) {
            return Err(Errno::EINVAL);
        }
        channel.class = class;
        let veid = channel.member;
        self.add_context(tsg, veid, space)?;
        self.warn_if_too_high(client.process(), space, "ALLOC_OBJ_CTX");
        Ok(0)
    }

    /// G/os/linux/ioctl_channel.c:356-415: the old notifier goes before the new one is looked at.
    fn set_notifier(&mut self, client: &dyn Client, chid: u32, args: &Args) -> Result<i64> {
        let wanted: nvgpu_set_error_notifier = args.get();
        if wanted.mem == 0 {
            return Err(Errno::EINVAL);
        }
        let buffer = self.dmabuf_of(client, wanted.mem as i32);
        if let Some(old) = self.channel_mut(chid)?.notifier.take() {
            self.nvmap.put_gpu(old.buffer);
        }
        let (buffer, access) = buffer.map_err(|_| Errno::EINVAL)?;
        let size = size_of::<nvgpu_notification>() as u64;
        let end = wanted.offset.checked_add(size).ok_or(Errno::EINVAL)?;
        if end > self.nvmap.buffer(buffer)?.size {
            return Err(Errno::EINVAL);
        }
        // What the CPU cannot map, or only read, has no address for the driver.
        if !self.nvmap.is_mappable(buffer) || access == crate::memory::Access::Read {
            return Err(Errno::ENOMEM);
        }
        let memory = self.nvmap.pinned(buffer)?;
        let notifier = Notifier { buffer, memory, offset: wanted.offset };
        notifier.write(&Args::new(0).get());
        self.nvmap.get_gpu(buffer);
        self.channel_mut(chid)?.notifier = Some(notifier);
        Ok(0)
    }

    /// G/common/gr/gr_setup.c:342-440, common/gr/ctx.c:520-590.
    fn set_preemption(&mut self, chid: u32, args: &Args) -> Result<i64> {
        let wanted: nvgpu_preemption_mode_args = args.get();
        let channel = self.channel_mut(chid)?;
        if channel.class == 0 {
            return Err(Errno::EINVAL);
        }
        let tsg = channel.tsg.ok_or(Errno::EINVAL)?;
        let tsg = self.tsgs.get_mut(&tsg).ok_or(Errno::EINVAL)?;
        let changed = |wanted: u32, now: u32| if wanted == now { 0 } else { wanted };
        let graphics = changed(wanted.graphics_preempt_mode, tsg.graphics_mode);
        let compute = changed(wanted.compute_preempt_mode, tsg.compute_mode);
        let is_refused = |wanted: u32, now: u32, supported: u32| {
            wanted != 0 && (wanted & supported == 0 || wanted < now)
        };
        if is_refused(graphics, tsg.graphics_mode, gpu::GRAPHICS_MODES)
            || is_refused(compute, tsg.compute_mode, gpu::COMPUTE_MODES)
            || (graphics == NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP
                && compute == NVGPU_COMPUTE_PREEMPTION_MODE_CILP)
        {
            return Err(Errno::EINVAL);
        }
        if graphics != 0 {
            tsg.graphics_mode = graphics;
        }
        if compute != 0 {
            tsg.compute_mode = compute;
        }
        Ok(0)
    }

    /// SET_DETERMINISTIC_OPTS on one channel.
    pub(super) fn is_deterministic(&self, chid: u32) -> bool {
        self.channels.get(&chid).is_some_and(|channel| channel.is_deterministic)
    }
}
