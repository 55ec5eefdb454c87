//! Execution: a channel's ring, its pushbuffers and their methods.
//!
//! Work starts with a doorbell and goes on in turns, so that a long one neither holds up the others
//! nor the calls of clients. (`clc56f.h` for rings and headers.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Kernel;
use super::args::Args;
use super::channel::ENTRY;
use super::clock::Clock;
use super::compute::Compute;
use super::copy::Copy;
use super::host::Host;
use super::space::{Space, Target};
use super::syncpoint::Points;
use crate::memory::Node;
use crate::tegra::abi::*;
use nvabi::tegra::class::{AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, host};

/// Where userd says how far the GPU and the client have come.
const USERD_GET: u64 = 0x88;
const USERD_PUT: u64 = 0x8C;

/// For so long the channels run before others get at what they share.
const TURN: Duration = Duration::from_millis(2);
/// Methods between two looks at the time.
const METHODS: u32 = 32;

/// Subchannels of a channel.
const SUBCHANNELS: usize = 8;

/// A client rings right behind its write of GP_PUT. What has stood there for longer without a doorbell
/// was not rung for.
const RINGING: Duration = Duration::from_millis(10);

/// How a channel runs.
#[derive(Debug, Default)]
pub(super) struct Engine {
    get: u32,
    put: u32,
    words: Vec<u32>,
    at: usize,
    header: Option<Header>,
    classes: [u32; SUBCHANNELS],
    host: Host,
    copy: Copy,
    compute: Compute,
}

/// A method header, and how much of its data is still to come.
#[derive(Debug, Clone, Copy)]
struct Header {
    method: u32,
    subchannel: usize,
    left: u32,
    step: Increment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Increment {
    Always,
    Once,
    Never,
}

/// How a step of a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It has done something.
    Done,
    /// It waits for a semaphore, or has more to copy: the same again later.
    Again,
}

/// Why a channel cannot go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing is there, or it may not be written.
    Memory { at: u64, is_write: bool },
    /// What a pushbuffer says makes no sense.
    Commands(String),
    /// It makes sense and this GPU does not play it.
    Unsupported(String),
}

pub(super) type Outcome<T = Step> = Result<T, Fault>;

/// What a running channel reaches.
pub(super) struct Bus<'a> {
    space: &'a Space,
    points: &'a mut Points,
    clock: &'a Clock,
    end: Instant,
    /// What a person should know.
    pub(super) notes: Vec<(&'static str, String)>,
    /// Windows that were given to the shaders.
    pub(super) windows: Vec<(u64, &'static str)>,
}

impl Bus<'_> {
    /// The GPU's timer.
    pub(super) fn time(&self) -> u64 {
        self.clock.gpu()
    }

    /// Whether it is the others' turn.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Copies from GPU addresses.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> Outcome<()> {
        let mut done = 0;
        while done < into.len() {
            let at = at.wrapping_add(done as u64);
            let fault = Fault::Memory { at, is_write: false };
            let Some((target, length)) = self.space.target(at) else { return Err(fault) };
            let length = part(length, into.len() - done);
            let part = &mut into[done..done + length];
            match target {
                Target::Memory { memory, offset, .. } => match &*memory {
                    Node::Memory(memory) if memory.read(offset, part) => {}
                    _ => return Err(fault),
                },
                Target::Point(point) | Target::Value(point) => {
                    let value = self.points.value(point).unwrap_or(0).to_le_bytes();
                    part.iter_mut().enumerate().for_each(|(i, byte)| *byte = value[i % 4]);
                }
                Target::Points | Target::Nothing => part.fill(0),
            }
            done += length;
        }
        Ok(())
    }

    /// Copies to GPU addresses. A write to a syncpoint increments it, whatever is written.
    pub(super) fn write(&mut self, at: u64, from: &[u8]) -> Outcome<()> {
        let mut done = 0;
        while done < from.len() {
            let at = at.wrapping_add(done as u64);
            let fault = Fault::Memory { at, is_write: true };
            let Some((target, length)) = self.space.target(at) else { return Err(fault) };
            let length = part(length, from.len() - done);
            let part = &from[done..done + length];
            match target {
                Target::Memory { memory, offset, writable: true } => {
                    if !store(&memory, offset, part) {
                        return Err(fault);
                    }
                }
                Target::Point(point) => self.points.increment(point),
                Target::Nothing => {}
                Target::Memory { .. } | Target::Value(_) | Target::Points => return Err(fault),
            }
            done += length;
        }
        Ok(())
    }

    /// One word.
    pub(super) fn load(&self, at: u64) -> Outcome<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Two words.
    pub(super) fn load64(&self, at: u64) -> Outcome<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A semaphore that says when it was released: payload, then time. The time comes first, for
    /// whoever sees the payload may look at it.
    pub(super) fn release_with_time(&mut self, at: u64, payload: u64) -> Outcome<()> {
        let time = self.time();
        self.write(at.wrapping_add(8), &time.to_le_bytes())?;
        self.write(at, &payload.to_le_bytes())
    }
}

/// Stores words and double words at once, for clients that watch them.
fn store(memory: &Arc<Node>, offset: u64, bytes: &[u8]) -> bool {
    let Node::Memory(memory) = &**memory else { return false };
    let word = bytes.try_into().map(u32::from_ne_bytes);
    let double = bytes.try_into().map(u64::from_ne_bytes);
    word.is_ok_and(|word| memory.store(offset, word))
        || double.is_ok_and(|double| memory.store64(offset, double))
        || memory.write(offset, bytes)
}

fn part(there: u64, wanted: usize) -> usize {
    usize::try_from(there).map_or(wanted, |there| there.min(wanted))
}

impl Engine {
    /// Whether it has something to do.
    pub(super) fn is_busy(&self) -> bool {
        self.get != self.put || self.at < self.words.len()
    }

    /// Where the next entry goes of a ring that the driver fills.
    pub(super) fn end(&self) -> u32 {
        self.put
    }

    /// It is there.
    pub(super) fn advance(&mut self, entries: u32) {
        self.put = (self.put + 1) % entries;
    }

    /// How many fit: a ring that is full to the last looks empty.
    pub(super) fn room(&self, entries: u32) -> u32 {
        entries - 1 - (entries + self.put - self.get) % entries
    }

    /// Forgets what it was doing.
    pub(super) fn stop(&mut self) {
        self.put = self.get;
        self.words.clear();
        self.at = 0;
        self.header = None;
        self.copy.stop();
    }

    /// One turn: until there is nothing left, or nothing more goes, or it is the others' turn.
    fn turn(&mut self, bus: &mut Bus<'_>, ring: &Ring<'_>) -> Outcome<bool> {
        let mut moved = false;
        let mut methods = 0;
        loop {
            if methods == METHODS {
                if bus.is_over() {
                    break;
                }
                methods = 0;
            }
            methods += 1;
            if self.at == self.words.len() {
                if !self.fetch(bus, ring)? {
                    break;
                }
                moved = true;
                // It may be long.
                methods = METHODS;
                continue;
            }
            if self.step(bus)? == Step::Again {
                // A copy that goes on is progress.
                moved |= self.copy.is_running();
                break;
            }
            moved = true;
            if self.at == self.words.len() {
                self.finish(ring);
            }
        }
        Ok(moved)
    }

    /// The next pushbuffer.
    fn fetch(&mut self, bus: &Bus<'_>, ring: &Ring<'_>) -> Outcome<bool> {
        if self.get == self.put {
            return Ok(false);
        }
        let entry = bus.load64(ring.address + u64::from(self.get) * ENTRY)?;
        let length = (entry >> 42) as usize & 0x1f_ffff;
        self.words.clear();
        self.at = 0;
        self.header = None;
        if length == 0 {
            // A control entry: its opcode says no more than that there is nothing, or that it is
            // illegal.
            if entry >> 32 & 0xff == 1 {
                return Err(Fault::Commands("illegal gpfifo entry".to_owned()));
            }
            self.finish(ring);
            return Ok(true);
        }
        let mut bytes = vec![0; length * 4];
        bus.read(entry & 0xff_ffff_fffc, &mut bytes)?;
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.words = bytes.chunks_exact(4).map(word).collect();
        Ok(true)
    }

    /// A pushbuffer is done: the client may use its entry again.
    fn finish(&mut self, ring: &Ring<'_>) {
        self.get = (self.get + 1) % ring.entries;
        if let Some(userd) = ring.userd {
            userd.store(USERD_GET, self.get);
        }
    }

    /// One word of a pushbuffer.
    fn step(&mut self, bus: &mut Bus<'_>) -> Outcome {
        let word = self.words[self.at];
        let Some(mut header) = self.header else {
            return self.begin(bus, word);
        };
        if self.call(bus, header.subchannel, header.method, word)? == Step::Again {
            return Ok(Step::Again);
        }
        self.at += 1;
        header.left -= 1;
        match header.step {
            Increment::Always => header.method += 4,
            Increment::Once => {
                header.method += 4;
                header.step = Increment::Never;
            }
            Increment::Never => {}
        }
        self.header = (header.left > 0).then_some(header);
        Ok(Step::Done)
    }

    fn begin(&mut self, bus: &mut Bus<'_>, word: u32) -> Outcome {
        let method = (word & 0xfff) << 2;
        let subchannel = (word >> 13 & 7) as usize;
        let count = word >> 16 & 0x1fff;
        let step = match word >> 29 {
            1 => Increment::Always,
            3 => Increment::Never,
            5 => Increment::Once,
            4 => {
                if self.call(bus, subchannel, method, count)? == Step::Again {
                    return Ok(Step::Again);
                }
                self.at += 1;
                return Ok(Step::Done);
            }
            7 => {
                self.at = self.words.len();
                return Ok(Step::Done);
            }
            // No operation, or something about the GPUs of a group: there is one.
            0 if word == 0 || word >> 16 & 3 != 0 => {
                self.at += 1;
                return Ok(Step::Done);
            }
            _ => return Err(Fault::Commands(format!("illegal method header {word:#010x}"))),
        };
        self.at += 1;
        self.header = (count > 0).then_some(Header { method, subchannel, left: count, step });
        Ok(Step::Done)
    }

    /// One method, to whoever it belongs to.
    fn call(&mut self, bus: &mut Bus<'_>, subchannel: usize, method: u32, data: u32) -> Outcome {
        if method == host::SET_OBJECT {
            self.classes[subchannel] = data & 0xffff;
            return Ok(Step::Done);
        }
        if method < 0x100 {
            return self.host.call(bus, method, data);
        }
        match self.classes[subchannel] {
            AMPERE_DMA_COPY_B => self.copy.call(bus, method, data),
            AMPERE_COMPUTE_B | 0xA140 => self.compute.call(bus, method, data),
            0 => Err(Fault::Commands(format!(
                "method {method:#06x} on subchannel {subchannel}, which has no object"
            ))),
            class => {
                let text = format!(
                    "method {method:#06x} of class {class:#06x} is not simulated and was ignored"
                );
                bus.notes.push(("unknown-method", text));
                Ok(Step::Done)
            }
        }
    }
}

/// The ring of a channel while it runs.
struct Ring<'a> {
    address: u64,
    entries: u32,
    userd: Option<&'a crate::memory::Memory>,
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
        if let Some(token) = super::ctrl::take_token(memory) {
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

    /// A turn of the channels that have something to do, beginning behind the one that was last.
    /// Whether any of them has done something, and whether any still has to.
    pub(super) fn run_channels(&mut self) -> (bool, bool) {
        let is_busy =
            |channel: &super::channel::Channel| channel.engine.is_busy() && channel.is_runnable();
        let busy = self.channels.iter().filter(|(_, channel)| is_busy(channel));
        let mut busy: Vec<u32> = busy.map(|(chid, _)| *chid).collect();
        let first = busy.partition_point(|chid| *chid <= self.last_run);
        busy.rotate_left(first);
        let end = Instant::now() + TURN;
        let mut moved = false;
        for chid in &busy {
            moved |= self.run_channel(*chid, end);
            self.last_run = *chid;
            if Instant::now() >= end {
                return (true, true);
            }
        }
        (moved, !busy.is_empty())
    }

    fn run_channel(&mut self, chid: u32, end: Instant) -> bool {
        let Some(channel) = self.channels.get_mut(&chid) else { return false };
        let (Some(ring), Some(space_id)) = (channel.ring.clone(), channel.space) else {
            return false;
        };
        let process = channel.process;
        let Some(space) = self.spaces.get(&space_id) else { return false };
        let mut engine = std::mem::take(&mut channel.engine);
        let mut bus = Bus {
            space,
            points: &mut self.points,
            clock: &self.clock,
            end,
            notes: Vec::new(),
            windows: Vec::new(),
        };
        let userd = match ring.userd_memory.as_deref() {
            Some(Node::Memory(memory)) => Some(memory),
            _ => None,
        };
        let ring = Ring { address: ring.address, entries: ring.entries, userd };
        let outcome = engine.turn(&mut bus, &ring);
        let (notes, windows) = (bus.notes, bus.windows);
        if let Some(channel) = self.channels.get_mut(&chid) {
            channel.engine = engine;
        }
        for (code, text) in notes {
            self.log.diagnose(process, code, format!("channel {chid}: {text}"));
        }
        for (at, name) in windows {
            self.set_shader_window(process, space_id, at, name);
        }
        match outcome {
            Ok(moved) => moved,
            Err(fault) => {
                self.report_fault(process, chid, &fault);
                true
            }
        }
    }

    fn report_fault(&mut self, process: u32, chid: u32, fault: &Fault) {
        let (code, error, text) = match fault {
            Fault::Memory { at, is_write } => {
                let verb = if *is_write { "write" } else { "read" };
                let text = format!("cannot {verb} {at:#x}");
                ("mmu-fault", NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT, text)
            }
            Fault::Commands(text) => ("bad-commands", NVGPU_CHANNEL_PBDMA_ERROR, text.clone()),
            Fault::Unsupported(text) => {
                ("not-executed", NVGPU_CHANNEL_GR_ERROR_SW_NOTIFY, text.clone())
            }
        };
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
        match ring.userd_memory.as_deref()? {
            Node::Memory(userd) => userd.load(USERD_PUT),
            Node::Signal(_) => None,
        }
    }

    /// Takes over how far the client has filled the ring.
    fn start(&mut self, log: &mut crate::log::Log) {
        let Some(ring) = self.ring.as_ref().filter(|ring| ring.submitter.is_none()) else {
            return;
        };
        let entries = ring.entries;
        match self.put() {
            _ if self.is_dead => {}
            Some(put) if put < entries => self.engine.put = put,
            Some(put) => {
                let text = format!("GP_PUT {put} is outside the GPFIFO of {entries} entries");
                log.diagnose(self.process, "bad-put", text);
            }
            None => {
                log.diagnose(self.process, "userd-too-small", "userd has no GP_PUT".to_owned());
            }
        }
    }

    fn watch_ring(&mut self) {
        let put = self.put().filter(|put| *put != self.engine.put);
        if self.unrung.map(|unrung| unrung.0) != put {
            self.unrung = put.map(|put| (put, Instant::now()));
        }
    }

    fn may_have_been_rung(&self) -> bool {
        let Some(ring) = self.ring.as_ref().filter(|_| !self.is_dead) else { return false };
        let Some(put) = self.put() else { return false };
        let is_old = |(old, since): (u32, Instant)| old == put && since.elapsed() > RINGING;
        put != self.engine.put && put < ring.entries && !self.unrung.is_some_and(is_old)
    }
}
