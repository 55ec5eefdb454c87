//! Channels: streams of commands that programs write to memory and that GPUs carry out
//! (`src/nvidia/src/kernel/gpu/fifo/kernel_channel.c`, `kernel_channel_group_api.c`, `kernel_ctxshare.c`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvabi_emu::MemoryAccess;

use super::Driver;
use super::alloc::NewObject;
use super::failed::{Failed, Result};
use super::interface::Params;
use super::load::{Busy, Loads, Sample, Shares};
use super::memory::{Buffer, Of};
use super::server::{Client, ObjectKind};
use super::space::{Seen, Space};
use crate::Status;
use crate::gpu::{self as engine, Engine, EngineKind, Fault, Interrupt, Ring, Trap};
use crate::log::{Log, RunId};
use crate::machine::Doorbell;

/// NV2080_ENGINE_TYPE_GRAPHICS, whose runlist is the first.
const GRAPHICS: u32 = 1;
/// The most channels of all GPUs: their numbers have eleven bits.
const MAX_CHANNELS: u32 = 1 << 11;

/// What of a channel its object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChannelId {
    pub(super) gpu: usize,
    pub(super) number: u32,
}

/// Channels that run together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) gpu: usize,
    space: Arc<Space>,
    /// NV2080_ENGINE_TYPE of what runs them.
    engine: u32,
}

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    all: BTreeMap<u32, Channel>,
    /// The one that ran last.
    last: u32,
    /// How busy they keep each GPU.
    loads: BTreeMap<usize, Loads>,
}

/// A channel.
#[derive(Debug)]
struct Channel {
    /// Its object, and that above it.
    client: u32,
    object: u32,
    parent: u32,
    process: u32,
    run: RunId,
    gpu: usize,
    /// Runlists are counted as the engines are.
    runlist: u32,
    space: Arc<Space>,
    /// What objects of its card can be made of.
    classes: Arc<[u32]>,
    ring: u64,
    entries: u32,
    /// Where the program says how far it has filled the ring.
    userd: (Arc<Buffer>, u64),
    /// Where the driver says what went wrong.
    notifier: Option<Arc<Buffer>>,
    engine: Engine,
    /// Whether it was scheduled.
    is_enabled: bool,
    is_dead: bool,
    /// Whether a kernel has stopped it, which is the program's to end.
    is_halted: bool,
    /// What shader cores keep of its kernel that went wrong.
    trap: Option<Trap>,
    /// What the MMU refused its kernels, which ends it: there is no second.
    refused: Option<Refused>,
    /// Up to when the kernel that runs has been counted as work.
    computing: Option<Instant>,
}

/// An access that the MMU refused, in its own numbers (`dev_fault.h`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    pub(super) address: u64,
    /// NV_PFAULT_FAULT_TYPE, NV_PFAULT_ACCESS_TYPE.
    pub(super) kind: u32,
    pub(super) access: u32,
}

impl Refused {
    fn new(space: &Space, address: u64, access: MemoryAccess) -> Self {
        let access = match access {
            MemoryAccess::Read => 0,
            MemoryAccess::Write => 1,
            MemoryAccess::Atomic => 2,
        };
        // The MMU tells pages.
        Self { address: address & !0xfff, kind: space.refusal(address), access }
    }

    /// The same as a register of older MMUs had it (NV_PFB_PRI_MMU_FAULT_INFO): the first core of the first cluster.
    pub(super) fn word(self) -> u32 {
        const VALID: u32 = 1 << 31;
        VALID | self.access << 16 | self.kind
    }
}

impl Channel {
    /// How far the program says that it has filled the ring.
    fn put(&self) -> Option<u32> {
        let (buffer, at) = &self.userd;
        Ring::put((buffer.memory()?, *at))
    }

    /// Ends it, and says why.
    fn end(&mut self, time: u64, xid: u32) {
        self.is_dead = true;
        self.engine.stop();
        if let Some(notifier) = &self.notifier {
            notify(notifier, time, xid);
        }
    }

    fn is_runnable(&self) -> bool {
        self.is_enabled && !self.is_dead && !self.is_halted
    }

    fn token(&self, number: u32) -> u32 {
        self.runlist << 16 | number
    }

    /// Takes over how far the program has filled the ring.
    fn start(&mut self, number: u32, log: &mut Log) {
        if self.is_dead {
            return;
        }
        if let Err((code, text)) = self.engine.start(self.put(), self.entries) {
            log.diagnose(self.process, code, format!("channel {number}: {text}"));
        }
    }
}

/// NV2080_ENGINE_TYPE_COPY0.
const COPY: u32 = 9;

/// The NV2080_ENGINE_TYPE of what copies for a runlist: the first copy engine is that of graphics and compute channels.
fn copy_engine(runlist: u32) -> u32 {
    (runlist + GRAPHICS).max(COPY)
}

/// What an engine's own errors are called, by the runlist: ROBUST_CHANNEL_GR_EXCEPTION, and ROBUST_CHANNEL_CE_ERROR of
/// the engine where nothing but copies are made.
fn exception(runlist: u32) -> u32 {
    const GRAPHICS_EXCEPTION: u32 = 13;
    const COPY_ERRORS: [u32; 10] = [39, 40, 41, 70, 71, 72, 75, 76, 77, 85];
    let number = (runlist + GRAPHICS).checked_sub(COPY).map(|number| number as usize);
    number.map_or(GRAPHICS_EXCEPTION, |number| COPY_ERRORS[number.min(COPY_ERRORS.len() - 1)])
}

/// Whether the graphics engine takes the methods of a class: 3D, 2D, compute, and data that comes in the stream.
pub(super) fn is_of_graphics(class: u32) -> bool {
    [0x97, 0x2d, 0xc0, 0x40].contains(&(class & 0xff))
}

/// Which engine takes the methods of a class; none where the card has no such class.
fn engine_of(classes: &[u32], class: u32) -> Option<EngineKind> {
    /// Copies, compute, and data that comes in the stream, of every generation.
    const COPY: u32 = 0xb5;
    const COMPUTE: u32 = 0xc0;
    const INLINE: u32 = 0x40;
    let kind = match class & 0xff {
        COPY => EngineKind::Copy,
        COMPUTE | INLINE => EngineKind::Compute,
        _ => EngineKind::Other,
    };
    classes.contains(&class).then_some(kind)
}

/// Where a channel is: its card, the addresses that it works with, and who runs it.
struct Place {
    gpu: usize,
    space: Arc<Space>,
    engine: u32,
}

impl Client {
    /// Where the driver puts a new channel below an object.
    fn place_of_channel(&mut self, parent: u32, engine: u32, params: &Params) -> Result<Place> {
        let wanted = params.word("hVASpace")?;
        let mut place = match self.object(parent)?.kind.clone() {
            ObjectKind::Group(group) => {
                // It need not be said again (`kchannelConstruct_IMPL`).
                if engine != 0 && engine != group.engine {
                    return Err(Status::INVALID_ARGUMENT.into());
                }
                Place { gpu: group.gpu, space: group.space.clone(), engine: group.engine }
            }
            ObjectKind::Device(gpu) => Place { gpu, space: self.space(parent, wanted)?, engine },
            _ => return Err(Status::INVALID_OBJECT_PARENT.into()),
        };
        match params.word("hContextShare")? {
            0 if wanted != 0 => place.space = self.space(parent, wanted)?,
            0 => {}
            share => match &self.object(share)?.kind {
                ObjectKind::ContextShare(shared) => place.space = shared.clone(),
                _ => return Err(Status::INVALID_OBJECT_HANDLE.into()),
            },
        }
        Ok(place)
    }
}

impl Driver {
    /// An object of KEPLER_CHANNEL_GROUP_A.
    pub(super) fn group(
        &mut self,
        client: u32,
        device: u32,
        above: &ObjectKind,
        params: &Params,
    ) -> Result<ObjectKind> {
        let gpu = above.gpu().ok_or(Status::INVALID_OBJECT_PARENT)?;
        let space = self.server.find_mut(client)?.space(device, params.word("hVASpace")?)?;
        let engine = params.word("engineType")?;
        self.need_engine(gpu, engine)?;
        Ok(ObjectKind::Group(Arc::new(Group { gpu, space, engine })))
    }

    /// `kchangrpapiConstruct_IMPL`: a card has the engine that is asked for.
    fn need_engine(&self, gpu: usize, engine: u32) -> Result {
        match self.engine_numbers(gpu).contains(&engine) {
            true => Ok(()),
            false => Err(Status::INVALID_ARGUMENT.into()),
        }
    }

    /// An object of FERMI_CONTEXT_SHARE_A: what channels of a group have together, as their addresses.
    pub(super) fn context_share(
        &mut self,
        client: u32,
        above: &ObjectKind,
        params: &mut Params,
    ) -> Result<ObjectKind> {
        let ObjectKind::Group(group) = above else {
            return Err(Status::INVALID_OBJECT_PARENT.into());
        };
        let space = match params.word("hVASpace")? {
            0 => group.space.clone(),
            handle => self.server.find_mut(client)?.space(0, handle)?,
        };
        params.set("subctxId", 0_u32)?;
        Ok(ObjectKind::ContextShare(space))
    }

    /// An object of a class such as AMPERE_CHANNEL_GPFIFO_A: `kchannelConstruct_IMPL`.
    pub(super) fn channel(
        &mut self,
        class: u32,
        place: NewObject,
        own: u32,
        params: &mut Params,
    ) -> Result<ObjectKind> {
        let NewObject { client: handle, parent, .. } = place;
        // What is no engine at all is not looked at.
        let last = self.interface.constant("NV2080_ENGINE_TYPE_LAST").unwrap_or(u32::MAX);
        let wanted = Some(params.word("engineType")?).filter(|engine| *engine < last);
        let client = self.server.find_mut(handle)?;
        let (process, run) = (client.process, client.run);
        let Place { gpu, space, engine } =
            client.place_of_channel(parent, wanted.unwrap_or(0), params)?;
        self.need_engine(gpu, engine)?;
        let client = self.server.find_mut(handle)?;
        let notifier = match params.word("hObjectError")? {
            0 => None,
            handle => Some(client.memory(handle)?.clone()),
        };
        let userd = match params.word("hUserdMemory[0]")? {
            0 => {
                let what = "a channel without memory for its USERD".to_owned();
                return Err(Failed::NotSimulated(Status::NOT_SUPPORTED, what));
            }
            handle => (client.memory(handle)?.clone(), params.get("userdOffset[0]")?),
        };
        let entries = params.word("gpFifoEntries")?;
        if entries == 0 {
            return Err(Status::INVALID_ARGUMENT.into());
        }
        let number = (0..MAX_CHANNELS).find(|number| !self.channels.all.contains_key(number));
        let number = number.ok_or_else(|| {
            let what = format!("more than {MAX_CHANNELS} channels of all GPUs");
            Failed::NotSimulated(Status::INSUFFICIENT_RESOURCES, what)
        })?;
        let channel = Channel {
            client: handle,
            object: own,
            parent,
            process,
            run,
            gpu,
            runlist: engine.saturating_sub(GRAPHICS),
            space,
            classes: self.class_numbers(gpu).into(),
            ring: params.get("gpFifoOffset")?,
            entries,
            userd,
            notifier,
            engine: Engine::of_class(class),
            is_enabled: false,
            is_dead: false,
            is_halted: false,
            trap: None,
            refused: None,
            computing: None,
        };
        self.channels.all.insert(number, channel);
        params.set("cid", number)?;
        Ok(ObjectKind::Channel(ChannelId { gpu, number }))
    }

    /// Forgets channels whose objects are gone.
    pub(super) fn drop_channels(&mut self) {
        let is_gone = |(number, channel): (&u32, &Channel)| {
            let object = self.server.object(channel.client, channel.object);
            let own = ObjectKind::Channel(ChannelId { gpu: channel.gpu, number: *number });
            object.is_none_or(|object| object.kind != own).then_some(*number)
        };
        let gone: Vec<u32> = self.channels.all.iter().filter_map(is_gone).collect();
        for number in gone {
            self.channels.all.remove(&number);
        }
    }

    /// Looks at the doorbells before objects go. A program may free a channel, or end, right behind its doorbell: who
    /// looks at that later finds a token of nobody.
    pub(super) fn take_last_doorbells(&mut self) {
        if self.has_channels() {
            let doorbells = self.all_doorbells();
            self.take_doorbells(&doorbells);
        }
    }

    /// Schedules a channel, or all of a group: `kchannelCtrlCmdGpFifoSchedule_IMPL`.
    pub(super) fn schedule(&mut self, client: u32, object: u32, is_enabled: bool) {
        for channel in self.channels.all.values_mut() {
            let is_meant = channel.object == object || channel.parent == object;
            if channel.client == client && is_meant {
                channel.is_enabled = is_enabled;
            }
        }
    }

    /// NV2080_ENGINE_TYPE of what carries out the methods of a class for a channel.
    pub(super) fn engine_type(&self, channel: ChannelId, class: u32) -> Result<u32> {
        let found = self.channels.all.get(&channel.number).ok_or(Status::INVALID_OBJECT)?;
        let is_copy = engine_of(&found.classes, class) == Some(EngineKind::Copy);
        Ok(if is_copy { copy_engine(found.runlist) } else { found.runlist + GRAPHICS })
    }

    /// What a program writes to the doorbell.
    pub(super) fn work_submit_token(&self, channel: ChannelId) -> Result<u32> {
        let found = self.channels.all.get(&channel.number).ok_or(Status::INVALID_OBJECT)?;
        Ok(found.token(channel.number))
    }

    /// What shader cores keep of the channel's kernel that went wrong, and what the MMU refused it.
    pub(super) fn trap(&self, channel: ChannelId) -> (Option<Trap>, Option<Refused>) {
        let found = self.channels.all.get(&channel.number);
        found.map_or((None, None), |channel| (channel.trap, channel.refused))
    }

    /// Shader cores forget it.
    pub(super) fn clear_trap(&mut self, channel: ChannelId) {
        self.together(channel.number, |channel| channel.trap = None);
    }

    /// The registers that programs have for doorbells.
    pub(super) fn all_doorbells(&self) -> Vec<Doorbell> {
        let of = |process: u32, buffer: &Arc<Buffer>| {
            let region = buffer.node().filter(|_| buffer.of == Of::Registers)?.clone();
            Some(Doorbell { region, process, is_rung: engine::is_rung })
        };
        let objects = self.server.objects_with_process();
        let of = objects.filter_map(|(process, object)| match &object.kind {
            ObjectKind::Memory(buffer) => of(process, buffer),
            _ => None,
        });
        of.collect()
    }

    /// Starts the channels that doorbells name; whether there were any.
    pub(super) fn take_doorbells(&mut self, doorbells: &[Doorbell]) -> bool {
        let mut is_rung = false;
        for doorbell in doorbells {
            if let Some(token) = doorbell.memory().and_then(engine::take_token) {
                self.ring(doorbell.process, token);
                is_rung = true;
            }
        }
        if is_rung {
            self.ring_overwritten();
        }
        is_rung
    }

    fn ring(&mut self, process: u32, token: u32) {
        let number = token & 0xffff;
        let found = self.channels.all.get_mut(&number);
        match found.filter(|channel| channel.token(number) == token) {
            Some(channel) => channel.start(number, &mut self.log),
            None => {
                let text = format!("doorbell with token {token:#x}, which belongs to no channel");
                self.log.diagnose(process, "unknown-token", text);
            }
        }
    }

    /// The doorbell holds the last token alone, and programs may have rung for other channels before anybody looked:
    /// those start as well whose GP_PUT has moved. A program rings right behind that.
    fn ring_overwritten(&mut self) {
        for (number, channel) in &mut self.channels.all {
            if channel.put().is_some_and(|put| put != channel.engine.end()) {
                channel.start(*number, &mut self.log);
            }
        }
    }

    pub(super) fn has_channels(&self) -> bool {
        !self.channels.all.is_empty()
    }

    /// A turn of the channels that have something to do.
    pub(super) fn run_channels(&mut self) -> (bool, bool) {
        let is_busy = |channel: &Channel| channel.engine.is_busy() && channel.is_runnable();
        let busy = self.channels.all.iter().filter(|(_, channel)| is_busy(channel));
        let busy = busy.map(|(number, _)| *number).collect();
        let mut last = self.channels.last;
        let ran = engine::in_turn(&mut last, busy, |number, end| self.run_channel(number, end));
        self.channels.last = last;
        ran
    }

    /// How busy a GPU is.
    pub(super) fn shares(&self, gpu: usize) -> Shares {
        let loads = self.channels.loads.get(&gpu);
        loads.map(|it| it.shares(Instant::now())).unwrap_or_default()
    }

    /// Who kept a GPU busy, in so many samples; where nothing ever ran nobody did.
    pub(super) fn samples(&self, gpu: usize, count: usize) -> Vec<Sample> {
        let now = Instant::now();
        let loads = self.channels.loads.get(&gpu);
        loads.map_or_else(|| Loads::new(now).samples(count, now), |it| it.samples(count, now))
    }

    /// How long ago a GPU was busy.
    pub(super) fn busy_ages(&self, gpu: usize) -> Vec<Range<Duration>> {
        let loads = self.channels.loads.get(&gpu);
        loads.map(|it| it.busy_ages(Instant::now())).unwrap_or_default()
    }

    /// For how long a GPU was busy.
    pub(super) fn busy_time(&self, gpu: usize, now: Instant) -> Duration {
        self.channels.loads.get(&gpu).map(|it| it.busy_time(now)).unwrap_or_default()
    }

    fn run_channel(&mut self, number: u32, end: Instant) -> bool {
        let Some(channel) = self.channels.all.get_mut(&number) else { return false };
        let (userd, at) = &channel.userd;
        let ring = Ring {
            address: channel.ring,
            entries: channel.entries,
            userd: userd.memory().map(|memory| (memory, *at)),
            engine_of: &|class| engine_of(&channel.classes, class),
            takes_ptx: self.takes_ptx,
            megahertz: self.gpus.get(channel.gpu).map_or(0, |gpu| gpu.facts().megahertz),
            run: channel.run,
        };
        let mut seen = Seen(&channel.space);
        let began = Instant::now();
        let turn = channel.engine.turn(&mut seen, &self.clock, end, &ring);
        let now = Instant::now();
        let busy = match channel.computing.take() {
            Some(since) => Busy::of(now - since, true),
            None if turn.moved => Busy::of(now - began, channel.runlist == 0),
            None => Busy::default(),
        };
        let loads = self.channels.loads.entry(channel.gpu);
        loads.or_insert_with(|| Loads::new(began)).worked(channel.process, busy, now);
        if let Some(gpu) = self.gpus.get_mut(channel.gpu) {
            gpu.accounts.worked(channel.process, busy);
            let [read, written] = channel.space.take_traffic();
            gpu.traffic.read += read;
            gpu.traffic.written += written;
        }
        channel.computing = channel.engine.is_computing().then_some(now);
        for (code, text) in turn.notes {
            self.log.diagnose(channel.process, code, format!("channel {number}: {text}"));
        }
        let (gpu, runlist) = (channel.gpu, channel.runlist);
        for interrupt in turn.interrupts {
            self.interrupt(gpu, runlist, interrupt);
        }
        if let Some(fault) = turn.fault {
            self.fail(number, &fault);
        }
        turn.moved
    }

    /// Tells those that listen to the engine which raised this for a channel of a runlist, and those that listen to the
    /// host where a subdevice has it armed (`engineNonStallIntrNotify`, R/intr.c: `intrServiceNonStallList`).
    fn interrupt(&mut self, gpu: usize, runlist: u32, interrupt: Interrupt) {
        let is_copy = interrupt == Interrupt::Copy || interrupt == Interrupt::Host && runlist > 0;
        let name = match is_copy {
            true => format!("CE{}", copy_engine(runlist) - COPY),
            false => "GRAPHICS".to_owned(),
        };
        let (engine, host) = (self.notifier(&name), self.notifier("FIFO_EVENT_MTHD"));
        let host = host.filter(|host| self.is_armed(gpu, *host));
        for index in [engine, host].into_iter().flatten() {
            self.notify_of_engine(gpu, index, 0);
        }
    }

    /// An error of a channel ends it and those of its group; the notifiers say so (nverror.h). A method or class that is
    /// not there is EXCEPTION: to the engine they are interrupts of their own (nvgpu: `illegal_method`, `illegal_class`)
    /// beside `class_error`, which ROBUST_CHANNEL_GR_CLASS_ERROR (69) is named for. In logs that comes with a method of the
    /// class and an ErrorCode for its data (of 0xcbc0 LINE_COUNT ffffffff, 4: nouveau's INVALID_VALUE). The open driver
    /// itself gives neither number: GSP does.
    fn fail(&mut self, number: u32, fault: &Fault) {
        /// ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT, _PBDMA_ERROR.
        const MMU_FAULT: u32 = 31;
        const PBDMA: u32 = 32;
        let trap = fault.trap();
        let (code, text) = fault.note();
        let Some(failed) = self.channels.all.get(&number) else { return };
        let xid = match fault {
            _ if fault.is_of_address() => MMU_FAULT,
            Fault::Commands(_) => PBDMA,
            _ => exception(failed.runlist),
        };
        let refused = match trap {
            Some(Trap::Address { at, access }) => Some(Refused::new(&failed.space, at, access)),
            _ => None,
        };
        let (client, gpu) = (failed.client, failed.gpu);
        let (process, object) = (failed.process, failed.object);
        // Those of a group are one context to shader cores.
        self.together(number, |channel| (channel.trap, channel.refused) = (trap, refused));
        if trap == Some(Trap::Assertion) && self.tell_of_assertion(client, object) {
            self.log.diagnose(process, code, format!("channel {number}: {text}"));
            self.together(number, |channel| channel.is_halted = true);
            return;
        }
        let text = format!("Xid {xid} of GPU {gpu}: channel {number}: {text}");
        self.log.diagnose(process, code, text);
        self.end_together(number, xid);
    }

    /// A program ends its channel (NV906F_CTRL_CMD_RESET_CHANNEL), and with it those of its group.
    pub(super) fn reset_channel(&mut self, id: ChannelId) {
        /// ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR.
        const RESET: u32 = 43;
        let Some(channel) = self.channels.all.get(&id.number) else { return };
        if !channel.is_dead {
            let text = format!(
                "Xid {RESET} of GPU {}: channel {}: its program ends it",
                id.gpu, id.number
            );
            self.log.diagnose(channel.process, "channel-reset", text);
            self.end_together(id.number, RESET);
        }
    }

    /// Ends a channel and those of its group; the notifiers say so.
    fn end_together(&mut self, number: u32, xid: u32) {
        let time = self.clock.gpu();
        self.together(number, |channel| channel.end(time, xid));
        if let Some(gpu) = self.channels.all.get(&number).map(|channel| channel.gpu) {
            self.report_xid(gpu, xid);
        }
    }

    /// Does something with a channel and those of its group.
    fn together(&mut self, number: u32, what: impl Fn(&mut Channel)) {
        let Some(named) = self.channels.all.get(&number) else { return };
        let (client, parent) = (named.client, named.parent);
        let is_group = matches!(
            self.server.object(client, parent).map(|object| &object.kind),
            Some(ObjectKind::Group(_))
        );
        for (other, channel) in &mut self.channels.all {
            let is_together = is_group && (channel.client, channel.parent) == (client, parent);
            if *other == number || is_together {
                what(channel);
            }
        }
    }

    /// The same, of all channels of a GPU.
    pub(super) fn end_channels_of(&mut self, gpu: usize, xid: u32) {
        let time = self.clock.gpu();
        for channel in self.channels.all.values_mut().filter(|channel| channel.gpu == gpu) {
            channel.end(time, xid);
        }
    }
}

/// Writes a NvNotification: when, and what went wrong.
fn notify(memory: &Buffer, time: u64, xid: u32) {
    /// What the driver leaves in `status` (`notifyFillNotifierMemory`).
    const DONE: u16 = 0xffff;
    memory.write(0, &time.to_le_bytes());
    memory.write(8, &xid.to_le_bytes());
    memory.write(12, &0_u16.to_le_bytes());
    memory.write(14, &DONE.to_le_bytes());
}
