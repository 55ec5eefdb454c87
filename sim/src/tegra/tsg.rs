//! Channel groups: what the scheduler switches between.

use std::collections::BTreeMap;

use super::args::Args;
use super::space::{SpaceId, Target};
use super::{CHANNELS, Errno, File, FileId, Kernel, Result};
use crate::client::Client;
use crate::memory::Memory;
use crate::tegra::abi::*;

/// Virtual engine ids of a group, and so its subcontexts.
pub(super) const VEIDS: u32 = 64;
/// `ram_rl_entry_tsg_length_max_v`.
const MAX_CHANNELS: usize = 128;
/// Microseconds.
const TIMESLICES: std::ops::RangeInclusive<u32> = 1000..=50_000;
const DEFAULT_TIMESLICE: u32 = 1024;
/// Ways of the L2 cache that a group may keep.
const MAX_WAYS: u32 = 16;

/// What the driver maps for the graphics engine with the first object of a subcontext. Sizes come
/// from the firmware of the device; these are about right and so are later addresses in the kernel
/// window.
const CONTEXT_BUFFERS: [u64; 8] = [
    0x0020_0000, // context image
    0x0000_1000, // patch buffer
    0x0008_0000, // circular buffer
    0x0008_0000, // page pool
    0x0100_0000, // attribute buffer
    0x0008_0000, // privileged access map
    0x0002_0000, // runtime vector table
    0x0002_0000, // trace buffer
];

/// A channel group.
#[derive(Debug)]
pub(super) struct Tsg {
    /// Its files and its channels.
    references: u32,
    pub(super) channels: Vec<u32>,
    runlist: Option<u32>,
    has_sync: bool,
    /// Bit n is VEID n + 1.
    async_veids: u64,
    /// Without a reference, as the driver does.
    veid_spaces: BTreeMap<u32, SpaceId>,
    /// The spaces of subcontexts that have channels.
    subcontexts: BTreeMap<u32, Option<SpaceId>>,
    /// What was mapped for the graphics engine, by subcontext.
    contexts: BTreeMap<u32, Vec<u64>>,
    pub(super) graphics_mode: u32,
    pub(super) compute_mode: u32,
    timeslice: u32,
    max_ways: u32,
    /// The ctrl files it may be shared from.
    ctrls: Vec<u64>,
}

/// The right to open a group from another ctrl file, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShareToken {
    token: u64,
    source: u64,
    target: u64,
    tsg: u32,
}

impl Tsg {
    fn new(ctrl: Option<u64>) -> Self {
        Self {
            references: 1,
            channels: Vec::new(),
            runlist: None,
            has_sync: false,
            async_veids: 0,
            veid_spaces: BTreeMap::new(),
            subcontexts: BTreeMap::new(),
            contexts: BTreeMap::new(),
            graphics_mode: 0,
            compute_mode: 0,
            timeslice: DEFAULT_TIMESLICE,
            max_ways: MAX_WAYS,
            ctrls: ctrl.into_iter().collect(),
        }
    }

    fn take_sync(&mut self) -> Result<u32> {
        if self.has_sync {
            return Err(Errno::ENOSPC);
        }
        self.has_sync = true;
        Ok(0)
    }

    fn take_async(&mut self) -> Result<u32> {
        let free = self.async_veids.trailing_ones();
        if free == VEIDS - 1 {
            return self.take_sync();
        }
        self.async_veids |= 1 << free;
        Ok(free + 1)
    }

    fn give_back(&mut self, veid: u32) {
        if veid == 0 && self.has_sync {
            self.has_sync = false;
            self.veid_spaces.remove(&0);
        } else if veid > 0 && self.async_veids >> (veid - 1) & 1 != 0 {
            self.async_veids &= !(1 << (veid - 1));
            self.veid_spaces.remove(&veid);
        }
    }
}

impl Kernel {
    /// Opens a group; the lowest number that is free.
    pub(crate) fn open_tsg(&mut self, ctrl: Option<u64>) -> Result<FileId> {
        let memory = Memory::new(0)?;
        let free = (0..CHANNELS).find(|id| !self.tsgs.contains_key(id));
        let id = free.ok_or(Errno::ENOMEM)?;
        self.tsgs.insert(id, Tsg::new(ctrl));
        self.add_file(File::Tsg { tsg: id, ctrl }, memory)
    }

    /// G/os/linux/ioctl_ctrl.c:730-760, ioctl_tsg.c:679.
    pub(super) fn open_tsg_call(
        &mut self,
        client: &dyn Client,
        ctrl: u64,
        args: &mut Args,
    ) -> Result<i64> {
        let wanted: nvgpu_gpu_open_tsg_args = args.get();
        let (source, token) = (wanted.source_device_instance_id, wanted.share_token);
        let file = if wanted.flags & NVGPU_GPU_IOCTL_OPEN_TSG_FLAGS_SHARE != 0 {
            if source == 0 || token == 0 {
                return Err(Errno::EINVAL);
            }
            self.open_shared_tsg(source, ctrl, token)?
        } else {
            if source != 0 || token != 0 {
                return Err(Errno::EINVAL);
            }
            self.open_tsg(Some(ctrl))?
        };
        let fd = self.install(client, file)?;
        args.update(|args: &mut nvgpu_gpu_open_tsg_args| args.tsg_fd = fd as u32);
        Ok(0)
    }

    fn open_shared_tsg(&mut self, source: u64, target: u64, token: u64) -> Result<FileId> {
        let is_it = |t: &ShareToken| t.token == token && t.source == source && t.target == target;
        let index = self.share_tokens.iter().position(is_it).ok_or(Errno::EINVAL)?;
        let id = self.share_tokens[index].tsg;
        let memory = Memory::new(0)?;
        let tsg = self.tsgs.get_mut(&id).ok_or(Errno::EINVAL)?;
        self.share_tokens.remove(index);
        tsg.references += 1;
        tsg.ctrls.push(target);
        self.add_file(File::Tsg { tsg: id, ctrl: Some(target) }, memory)
    }

    pub(super) fn release_tsg_file(&mut self, id: u32, ctrl: Option<u64>) {
        if let (Some(tsg), Some(ctrl)) = (self.tsgs.get_mut(&id), ctrl) {
            if let Some(index) = tsg.ctrls.iter().position(|other| *other == ctrl) {
                tsg.ctrls.remove(index);
            }
            self.share_tokens.retain(|token| token.tsg != id || token.source != ctrl);
        }
        self.put_tsg(id);
    }

    fn put_tsg(&mut self, id: u32) {
        let Some(tsg) = self.tsgs.get_mut(&id) else { return };
        tsg.references -= 1;
        if tsg.references == 0 {
            self.tsgs.remove(&id);
            self.share_tokens.retain(|token| token.tsg != id);
        }
    }

    pub(super) fn tsg_ioctl(
        &mut self,
        client: &dyn Client,
        id: u32,
        request: u32,
        args: &mut Args,
    ) -> Result<i64> {
        match request {
            NVGPU_TSG_IOCTL_BIND_CHANNEL::REQUEST => {
                let channel = self.channel_of(client, args.word(0) as i32)?;
                self.bind_tsg(id, channel)
            }
            NVGPU_TSG_IOCTL_BIND_CHANNEL_EX::REQUEST => self.bind_tsg_ex(client, id, args),
            NVGPU_TSG_IOCTL_UNBIND_CHANNEL::REQUEST => self.unbind_call(client, id, args),
            NVGPU_IOCTL_TSG_ENABLE::REQUEST => self.enable_tsg(id, true),
            NVGPU_IOCTL_TSG_DISABLE::REQUEST => self.enable_tsg(id, false),
            NVGPU_IOCTL_TSG_PREEMPT::REQUEST => Ok(0),
            NVGPU_IOCTL_TSG_EVENT_ID_CTRL::REQUEST => self.event_fd(client, args),
            NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE::REQUEST => {
                let level = args.get::<nvgpu_runlist_interleave_args>().level;
                if level > 2 { Err(Errno::EINVAL) } else { Ok(0) }
            }
            NVGPU_IOCTL_TSG_SET_TIMESLICE::REQUEST => {
                let timeslice = args.get::<nvgpu_timeslice_args>().timeslice_us;
                if !TIMESLICES.contains(&timeslice) {
                    return Err(Errno::EINVAL);
                }
                self.tsg_mut(id)?.timeslice = timeslice;
                Ok(0)
            }
            NVGPU_IOCTL_TSG_GET_TIMESLICE::REQUEST => {
                let timeslice_us = self.tsg_mut(id)?.timeslice;
                args.update(|args: &mut nvgpu_timeslice_args| args.timeslice_us = timeslice_us);
                Ok(0)
            }
            NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST::REQUEST => {
                let ways = args.get::<nvgpu_tsg_l2_max_ways_evict_last_args>().max_ways;
                if ways > MAX_WAYS {
                    return Err(Errno::EINVAL);
                }
                self.tsg_mut(id)?.max_ways = ways;
                Ok(0)
            }
            NVGPU_TSG_IOCTL_GET_L2_MAX_WAYS_EVICT_LAST::REQUEST => {
                let ways = self.tsg_mut(id)?.max_ways;
                args.update(|args: &mut nvgpu_tsg_l2_max_ways_evict_last_args| {
                    args.max_ways = ways
                });
                Ok(0)
            }
            NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION::REQUEST => {
                let flag = args.get::<nvgpu_tsg_set_l2_sector_promotion_args>().promotion_flag;
                if [1, 2, 4].contains(&flag) { Ok(0) } else { Err(Errno::EINVAL) }
            }
            NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT::REQUEST => self.create_subcontext(client, id, args),
            NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT::REQUEST => {
                let veid = args.get::<nvgpu_tsg_delete_subcontext_args>().veid;
                let tsg = self.tsg_mut(id)?;
                if veid >= VEIDS || tsg.subcontexts.contains_key(&veid) {
                    return Err(Errno::EINVAL);
                }
                tsg.give_back(veid);
                Ok(0)
            }
            NVGPU_TSG_IOCTL_GET_SHARE_TOKEN::REQUEST => self.share_token(id, args),
            NVGPU_TSG_IOCTL_REVOKE_SHARE_TOKEN::REQUEST => self.revoke_token(id, args),
            NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE::REQUEST
            | NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN::REQUEST => {
                self.not_simulated(client, request)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn tsg_mut(&mut self, id: u32) -> Result<&mut Tsg> {
        self.tsgs.get_mut(&id).ok_or(Errno::EINVAL)
    }

    /// G/os/linux/ioctl_tsg.c:1030-1066, common/fifo/tsg.c:230-330.
    fn create_subcontext(&mut self, client: &dyn Client, id: u32, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_tsg_create_subcontext_args = args.get();
        let is_sync = match wanted.r#type {
            NVGPU_TSG_SUBCONTEXT_TYPE_SYNC => true,
            NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC => false,
            _ => return Err(Errno::EINVAL),
        };
        let Some(File::Space(space)) = self.descriptor(client, wanted.as_fd) else {
            return Err(Errno::EINVAL);
        };
        let tsg = self.tsg_mut(id)?;
        let veid = if is_sync { tsg.take_sync() } else { tsg.take_async() }?;
        tsg.veid_spaces.entry(veid).or_insert(space);
        wanted.veid = veid;
        args.put(&wanted);
        Ok(0)
    }

    /// G/os/linux/ioctl_tsg.c:108-170. The subcontext stays on the channel even when binding fails.
    fn bind_tsg_ex(&mut self, client: &dyn Client, id: u32, args: &Args) -> Result<i64> {
        let wanted: nvgpu_tsg_bind_channel_ex_args = args.get();
        let chid = self.channel_of(client, wanted.channel_fd)?;
        let channel = self.channels.get_mut(&chid).ok_or(Errno::EINVAL)?;
        if wanted.subcontext_id >= VEIDS {
            return Err(Errno::EINVAL);
        }
        channel.subcontext = wanted.subcontext_id;
        self.bind_tsg(id, chid)
    }

    /// G/common/fifo/tsg.c:370-510.
    fn bind_tsg(&mut self, id: u32, chid: u32) -> Result<i64> {
        let spaces = &self.spaces;
        let channel = self.channels.get_mut(&chid).ok_or(Errno::EINVAL)?;
        let tsg = self.tsgs.get_mut(&id).ok_or(Errno::EINVAL)?;
        let veid = channel.subcontext;
        // Before r36 a subcontext is whatever its first channel says.
        let is_created = self.layouts.branch >= 36;
        if is_created && veid == 0 && !tsg.veid_spaces.contains_key(&0) {
            tsg.take_sync()?;
            if let Some(space) = channel.space {
                tsg.veid_spaces.insert(0, space);
            }
        }
        let expected = tsg.veid_spaces.get(&veid).copied();
        if is_created && expected != channel.space {
            if expected.is_some_and(|space| !spaces.contains_key(&space)) {
                let text = format!("subcontext {veid}: its VA space was closed");
                self.log.diagnose(channel.process, "stale-subcontext", text);
            }
            return Err(Errno::EINVAL);
        }
        if channel.tsg.is_some()
            || tsg.channels.len() == MAX_CHANNELS
            || tsg.runlist.is_some_and(|runlist| runlist != channel.runlist)
        {
            return Err(Errno::EINVAL);
        }
        tsg.runlist = Some(channel.runlist);
        let space = tsg.subcontexts.entry(veid).or_insert(channel.space);
        if *space != channel.space {
            return Err(Errno::EINVAL);
        }
        if channel.space.is_none() {
            let text = format!("channel {chid} joins a TSG without a VA space");
            self.log.diagnose(channel.process, "no-address-space", text);
        }
        tsg.channels.push(chid);
        tsg.references += 1;
        channel.tsg = Some(id);
        channel.member = veid;
        channel.is_dead = false;
        Ok(0)
    }

    fn unbind_call(&mut self, client: &dyn Client, id: u32, args: &Args) -> Result<i64> {
        let chid = self.channel_of(client, args.word(0) as i32)?;
        let channel = self.channels.get_mut(&chid).ok_or(Errno::EINVAL)?;
        if channel.tsg != Some(id) {
            return Err(Errno::EINVAL);
        }
        let has_siblings = self.tsgs.get(&id).is_some_and(|tsg| tsg.channels.len() > 1);
        if has_siblings && !channel.is_dead && channel.engine.is_busy() {
            return Err(Errno::EAGAIN);
        }
        self.unbind(chid, false);
        Ok(0)
    }

    /// Takes a channel out of its group. What waits for its syncpoint is let go. When the channel is
    /// closed, its subcontext goes with its last channel (G/common/fifo/tsg_subctx.c:129).
    pub(super) fn unbind(&mut self, chid: u32, is_close: bool) {
        let Some(channel) = self.channels.get_mut(&chid) else { return };
        let Some(id) = channel.tsg.take() else { return };
        channel.is_dead = true;
        channel.engine.stop();
        let (member, veid, space) = (channel.member, channel.subcontext, channel.space);
        if let Some((point, _)) = channel.syncpoint {
            self.points.make_safe(point);
        }
        if let Some(submitter) = channel.ring.as_ref().and_then(|ring| ring.submitter.as_ref()) {
            submitter.finish(&mut self.points);
        }
        let channels = &self.channels;
        if let Some(tsg) = self.tsgs.get_mut(&id) {
            tsg.channels.retain(|other| *other != chid);
            let on_it = |other: &u32| channels.get(other).is_some_and(|c| c.member == member);
            if !tsg.channels.iter().any(on_it) {
                tsg.subcontexts.remove(&member);
                if is_close {
                    // By the id that the channel was last given, even if it is not the one it is on.
                    tsg.give_back(veid);
                }
                let context = tsg.contexts.remove(&member).unwrap_or_default();
                if let Some(space) = space.and_then(|space| self.spaces.get_mut(&space)) {
                    context.into_iter().for_each(|at| space.unmap_own(at));
                }
            }
        }
        self.put_tsg(id);
    }

    /// The graphics context of a channel's subcontext, when it has none yet.
    pub(super) fn add_context(&mut self, id: u32, veid: u32, space: SpaceId) -> Result<()> {
        let tsg = self.tsgs.get_mut(&id).ok_or(Errno::EINVAL)?;
        if tsg.compute_mode == 0 {
            tsg.graphics_mode = NVGPU_GRAPHICS_PREEMPTION_MODE_WFI;
            tsg.compute_mode = NVGPU_COMPUTE_PREEMPTION_MODE_WFI;
        }
        if tsg.contexts.contains_key(&veid) {
            return Ok(());
        }
        let space = self.spaces.get_mut(&space).ok_or(Errno::EINVAL)?;
        let mut mapped = Vec::new();
        for size in CONTEXT_BUFFERS {
            match space.map_own(size, Target::Nothing) {
                Ok(at) => mapped.push(at),
                Err(errno) => {
                    mapped.into_iter().for_each(|at| space.unmap_own(at));
                    return Err(errno);
                }
            }
        }
        tsg.contexts.insert(veid, mapped);
        Ok(())
    }

    fn enable_tsg(&mut self, id: u32, enabled: bool) -> Result<i64> {
        let tsg = self.tsgs.get(&id).ok_or(Errno::EINVAL)?;
        for chid in &tsg.channels {
            if let Some(channel) = self.channels.get_mut(chid) {
                channel.is_enabled = enabled;
            }
        }
        Ok(0)
    }

    /// G/os/linux/ioctl_tsg.c:425-450.
    fn event_fd(&mut self, client: &dyn Client, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_event_id_ctrl_args = args.get();
        if wanted.event_id >= NVGPU_IOCTL_CHANNEL_EVENT_ID_MAX
            || wanted.cmd != NVGPU_IOCTL_CHANNEL_EVENT_ID_CMD_ENABLE
        {
            return Err(Errno::EINVAL);
        }
        let file = self.add_signal(File::Event)?;
        wanted.event_fd = self.install(client, file)?;
        args.put(&wanted);
        Ok(0)
    }

    /// G/os/linux/ioctl_tsg.c:540-600.
    fn share_token(&mut self, id: u32, args: &mut Args) -> Result<i64> {
        let mut wanted: nvgpu_tsg_get_share_token_args = args.get();
        let (source, target) = (wanted.source_device_instance_id, wanted.target_device_instance_id);
        let last_ctrl = self.last_ctrl;
        let tsg = self.tsg_mut(id)?;
        if source == 0 || target == 0 || !tsg.ctrls.contains(&source) || target > last_ctrl {
            return Err(Errno::EINVAL);
        }
        let count = self.share_tokens.iter().filter(|token| token.tsg == id).count();
        if count as u32 == VEIDS {
            return Err(Errno::ENOSPC);
        }
        self.last_token += 1;
        wanted.share_token = self.last_token;
        let token = wanted.share_token;
        self.share_tokens.push(ShareToken { token, source, target, tsg: id });
        args.put(&wanted);
        Ok(0)
    }

    fn revoke_token(&mut self, id: u32, args: &Args) -> Result<i64> {
        let wanted: nvgpu_tsg_revoke_share_token_args = args.get();
        let token = ShareToken {
            token: wanted.share_token,
            source: wanted.source_device_instance_id,
            target: wanted.target_device_instance_id,
            tsg: id,
        };
        if token.source == 0 || token.target == 0 || token.token == 0 {
            return Err(Errno::EINVAL);
        }
        let index = self.share_tokens.iter().position(|other| *other == token);
        self.share_tokens.remove(index.ok_or(Errno::EINVAL)?);
        Ok(0)
    }
}
