//! Execution: doorbells start channels, which go on in turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Kernel;
use super::args::Args;
use super::devfreq::FREQUENCIES;
use super::space::{Space, Target};
use super::syncpoint::Points;
use crate::backing::Backing;
use crate::gpu::{self, Engine, EngineKind, Fault, KernelSpace, Ring, shorter};
use crate::memory::Node;
use crate::tegra::abi::*;
use nvabi::tegra::class::{AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B};

/// Its highest clock, at which kernels count.
const MEGAHERTZ: u64 = FREQUENCIES[FREQUENCIES.len() - 1] / 1_000_000;

/// What a class's methods are for.
fn engine_of(class: u32) -> Option<EngineKind> {
    /// KEPLER_INLINE_TO_MEMORY_B has the same way to load data as compute.
    const INLINE: u32 = 0xA140;
    Some(match class {
        AMPERE_DMA_COPY_B => EngineKind::Copy,
        AMPERE_COMPUTE_B | INLINE => EngineKind::Compute,
        _ => EngineKind::Other,
    })
}

/// The addresses of a space; some of them are syncpoints.
struct Addresses<'a> {
    space: &'a Space,
    points: &'a mut Points,
}

impl gpu::Space for Addresses<'_> {
    fn for_kernels(&self) -> Option<Arc<dyn KernelSpace>> {
        Some(Arc::new(gpu::Seen::new(self.space.memory())))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Option<usize> {
        let (target, length) = self.space.target(at)?;
        let length = shorter(length, into.len());
        let into = &mut into[..length];
        match target {
            Target::Memory { memory, offset, .. } => {
                return memory.read(offset, into).then_some(length);
            }
            Target::Point(point) | Target::Value(point) => {
                let value = self.points.value(point).unwrap_or(0).to_le_bytes();
                into.iter_mut().enumerate().for_each(|(i, byte)| *byte = value[i % 4]);
            }
            Target::Points | Target::Nothing => into.fill(0),
        }
        Some(length)
    }

    /// A write to a syncpoint increments it, whatever is written.
    fn write(&mut self, at: u64, from: &[u8]) -> Option<usize> {
        let (target, length) = self.space.target(at)?;
        let length = shorter(length, from.len());
        let from = &from[..length];
        match target {
            Target::Memory { memory, offset, writable: true } => {
                return memory.write(offset, from).then_some(length);
            }
            Target::Point(point) => self.points.increment(point),
            Target::Nothing => {}
            Target::Memory { .. } | Target::Value(_) | Target::Points => return None,
        }
        Some(length)
    }
}

impl Kernel {
    /// A doorbell: the channel of the token starts.
    pub(super) fn ring(&mut self, process: u32, token: u32) {
        let channel = self.channels.get_mut(&(token & 0xffff));
        match channel.filter(|channel| channel.runlist == token >> 16 && channel.ring.is_some()) {
            Some(channel) => channel.start(&mut self.log),
            None => {
                let text = format!("doorbell with token {token:#x}, which belongs to no channel");
                self.log.diagnose(process, "unknown-token", text);
            }
        }
    }

    /// After a doorbell: the word holds the last token alone, and clients may have rung for other
    /// channels before anybody looked. Those start as well whose GP_PUT has just moved.
    pub(super) fn ring_overwritten(&mut self) {
        for (chid, channel) in &mut self.channels {
            if channel.may_have_been_rung() {
                channel.start(&mut self.log);
                let text = format!(
                    "channel {chid} was started by the doorbell of another one: its own was not \
                     seen, and may have been overwritten"
                );
                self.log.diagnose(channel.process, "overwritten-doorbell", text);
            }
        }
    }

    /// The doorbell of a region that nobody has any more.
    pub(super) fn answer_last(&mut self, region: &Node, mapped_by: Option<u32>) {
        let Node::Memory(memory) = region else { return };
        if let Some(token) = gpu::take_token(memory) {
            self.ring(mapped_by.unwrap_or(0), token);
            self.ring_overwritten();
        }
    }

    /// Remembers where the GP_PUT of each channel stands that nobody has rung for, and since when.
    pub(super) fn watch_rings(&mut self) {
        for channel in self.channels.values_mut() {
            channel.watch_ring();
        }
    }

    /// A turn of the channels that have something to do.
    pub(super) fn run_channels(&mut self) -> (bool, bool) {
        let is_busy =
            |channel: &super::channel::Channel| channel.engine.is_busy() && channel.is_runnable();
        let busy = self.channels.iter().filter(|(_, channel)| is_busy(channel));
        let busy = busy.map(|(chid, _)| *chid).collect();
        let mut last = self.last_run;
        let ran = gpu::in_turn(&mut last, busy, |chid, end| self.run_channel(chid, end));
        self.last_run = last;
        ran
    }

    fn run_channel(&mut self, chid: u32, end: Instant) -> bool {
        let Some(channel) = self.channels.get_mut(&chid) else { return false };
        let (Some(ring), Some(space_id)) = (&channel.ring, channel.space) else { return false };
        let Some(space) = self.spaces.get(&space_id) else { return false };
        let userd = ring.userd_memory.as_deref().and_then(Backing::memory);
        let (address, entries) = (ring.address, ring.entries);
        let userd = userd.map(|memory| (memory, 0));
        let (engine_of, run) = (&engine_of, channel.run);
        let (takes_ptx, megahertz) = (false, MEGAHERTZ);
        let ring = Ring { address, entries, userd, engine_of, takes_ptx, megahertz, run };
        let mut addresses = Addresses { space, points: &mut self.points };
        let turn = channel.engine.turn(&mut addresses, &self.clock, end, &ring);
        let process = channel.process;
        for (code, text) in turn.notes {
            self.log.diagnose(process, code, format!("channel {chid}: {text}"));
        }
        for (at, name) in turn.windows {
            self.set_shader_window(process, space_id, at, name);
        }
        if let Some(fault) = turn.fault {
            self.report_fault(process, chid, &fault);
        }
        turn.moved
    }

    fn report_fault(&mut self, process: u32, chid: u32, fault: &Fault) {
        let error = match fault {
            _ if fault.is_of_address() => NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT,
            Fault::Commands(_) => NVGPU_CHANNEL_PBDMA_ERROR,
            Fault::Unsupported(_) => NVGPU_CHANNEL_GR_ERROR_SW_NOTIFY,
            Fault::Method(_) | Fault::Memory { .. } | Fault::Kernel { .. } => {
                NVGPU_CHANNEL_GR_EXCEPTION
            }
        };
        let (code, text) = fault.note();
        self.log.diagnose(process, code, format!("channel {chid}: {text}"));
        self.fail_channel(chid, error);
    }

    /// A channel fails, and with it its group: the notifiers say so, nothing runs any more, and
    /// waiters are let go.
    pub(super) fn fail_channel(&mut self, chid: u32, error: u32) {
        let tsg = self.channels.get(&chid).and_then(|channel| channel.tsg);
        let all = match tsg.and_then(|tsg| self.tsgs.get(&tsg)) {
            Some(tsg) => tsg.channels.clone(),
            None => vec![chid],
        };
        let time = self.clock.gpu();
        for chid in all {
            let Some(channel) = self.channels.get_mut(&chid) else { continue };
            channel.is_dead = true;
            channel.engine.stop();
            if let Some(notifier) = &channel.notifier {
                let mut notification: nvgpu_notification = Args::new(0).get();
                notification.time_stamp.nanoseconds = [time as u32, (time >> 32) as u32];
                notification.info32 = error;
                notification.status = 0xffff;
                notifier.write(&notification);
            }
            if let Some((point, _)) = channel.syncpoint {
                self.points.make_safe(point);
            }
            if let Some(submitter) = channel.ring.as_ref().and_then(|ring| ring.submitter.as_ref())
            {
                submitter.finish(&mut self.points);
            }
        }
    }
}

impl super::channel::Channel {
    fn is_runnable(&self) -> bool {
        !self.is_dead && self.is_enabled
    }

    /// How far the client says that it has filled the ring.
    fn put(&self) -> Option<u32> {
        let ring = self.ring.as_ref().filter(|ring| ring.submitter.is_none())?;
        Ring::put((ring.userd_memory.as_deref()?.memory()?, 0))
    }

    /// Takes over how far the client has filled the ring.
    fn start(&mut self, log: &mut crate::log::Log) {
        let ring = self.ring.as_ref().filter(|ring| ring.submitter.is_none());
        let Some(entries) = ring.filter(|_| !self.is_dead).map(|ring| ring.entries) else {
            return;
        };
        if let Err((code, text)) = self.engine.start(self.put(), entries) {
            log.diagnose(self.process, code, text);
        }
    }

    fn watch_ring(&mut self) {
        let put = self.put();
        self.unrung.watch(&self.engine, put);
    }

    fn may_have_been_rung(&self) -> bool {
        let Some(ring) = self.ring.as_ref().filter(|_| !self.is_dead) else { return false };
        self.put().is_some_and(|put| self.unrung.is_new(&self.engine, put, ring.entries))
    }
}

/// A client rings right behind its write of GP_PUT, and a busy system may keep it from that. What has stood there for
/// longer without a doorbell was not rung for.
const RINGING: Duration = Duration::from_millis(500);

/// A GP_PUT that nobody has rung for, and when it was first seen.
#[derive(Debug, Default)]
pub(super) struct Unrung(Option<(u32, Instant)>);

impl Unrung {
    /// Looks at what stands there.
    pub(super) fn watch(&mut self, engine: &Engine, put: Option<u32>) {
        let put = put.filter(|put| *put != engine.end());
        if self.0.map(|unrung| unrung.0) != put {
            self.0 = put.map(|put| (put, Instant::now()));
        }
    }

    /// Whether it has moved just now, so that a doorbell for it may have been overwritten by another one.
    pub(super) fn is_new(&self, engine: &Engine, put: u32, entries: u32) -> bool {
        let is_old = |(old, since): (u32, Instant)| old == put && since.elapsed() > RINGING;
        put != engine.end() && put < entries && !self.0.is_some_and(is_old)
    }
}
