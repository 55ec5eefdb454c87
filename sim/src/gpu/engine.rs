//! A channel's ring, its pushbuffers and their methods (`clc56f.h`).
//!
//! It goes on in turns, so that a long one neither holds up the others nor the calls of clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvabi_emu::{Foreign, MemoryAccess, Time};

use super::Clock;
use super::compute::Compute;
use super::copy::Copy;
use super::host::Host;
use crate::log::RunId;
use crate::memory::Memory;
use nvabi::tegra::class::host;

/// Bytes of an entry of a ring.
pub(crate) const ENTRY: u64 = 8;

/// Where userd says how far the GPU and the client have come.
const USERD_GET: u64 = 0x88;
const USERD_PUT: u64 = 0x8C;

/// For so long the channels run before others get at what they share.
const TURN: Duration = Duration::from_millis(2);
/// Methods between two looks at the time.
const METHODS: u32 = 32;

/// Subchannels of a channel.
const SUBCHANNELS: usize = 8;

/// Addresses that a channel works with, and what is there.
pub(crate) trait Space {
    /// Copies from an address on, as far as one thing reaches; how many bytes, or none where nothing is.
    fn read(&self, at: u64, into: &mut [u8]) -> Option<usize>;

    /// Copies to an address, as [`Self::read`] from it; words and double words at once, for clients that watch them.
    /// None as well where nothing may be written.
    fn write(&mut self, at: u64, from: &[u8]) -> Option<usize>;

    /// The same for a kernel, which runs while the channel's driver does other things. None where kernels do not run.
    fn for_kernels(&self) -> Option<Arc<dyn KernelSpace>>;
}

/// A space in which kernels work.
pub(crate) trait KernelSpace: Foreign {
    /// Where the first access was that could not be done, and what it was, since it was asked for last.
    fn take_refused(&self) -> Option<(u64, MemoryAccess)>;

    /// What was stored into reflected pages since it was asked for last.
    fn take_messages(&self) -> Vec<u64>;
}

/// How much of what is wanted is there.
pub(crate) fn shorter(there: u64, wanted: usize) -> usize {
    usize::try_from(there).map_or(wanted, |there| there.min(wanted))
}

/// A code and what a person should know.
pub(crate) type Note = (&'static str, String);

/// How a channel runs.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    get: u32,
    put: u32,
    words: Vec<u32>,
    at: usize,
    header: Option<Header>,
    /// Bits 56:40 of where pushbuffers are, on Hopper and newer.
    base: u64,
    masks: Masks,
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

/// Which GPUs of a group methods are for: this one is the first. What is in use, and what is stored for later.
#[derive(Debug, Clone, Copy)]
struct Masks {
    used: u32,
    stored: u32,
}

impl Default for Masks {
    fn default() -> Self {
        Self { used: Self::ALL, stored: Self::ALL }
    }
}

impl Masks {
    const ALL: u32 = 0xfff;

    /// SET_SUB_DEV_MASK, STORE_SUB_DEV_MASK, USE_SUB_DEV_MASK; whether it is one of them.
    fn take(&mut self, word: u32) -> bool {
        let mask = word >> 4 & Self::ALL;
        match word >> 16 {
            1 => self.used = mask,
            2 => self.stored = mask,
            3 => self.used = self.stored,
            _ => return false,
        }
        true
    }

    fn are_for_this(&self) -> bool {
        self.used & 1 != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Increment {
    Always,
    Once,
    Never,
}

/// Which engine takes the methods of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Copy,
    Compute,
    /// One that is not simulated: what is asked of it would never come.
    Other,
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
pub(crate) enum Fault {
    /// Nothing is there, or it may not be written.
    Memory { at: u64, is_write: bool },
    /// What a pushbuffer says makes no sense.
    Commands(String),
    /// An engine's class has no such method.
    Method(String),
    /// It makes sense and this GPU does not play it.
    Unsupported(String),
    /// A kernel went wrong.
    Kernel { trap: Trap, text: String },
}

/// What shader cores keep of a kernel that went wrong, for debuggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trap {
    /// Nothing is at an address, or it may not be written: the MMU keeps it.
    Address { at: u64, access: MemoryAccess },
    /// A warp's error, by its number in the register of the core, and where the warp was.
    Warp { error: u32, pc: u64 },
    /// A breakpoint, as `trap` is one.
    Breakpoint,
    /// One of a failed assertion, which is the program's to end.
    Assertion,
    /// Nothing that hardware would see.
    Nothing,
}

impl Fault {
    /// What is kept of it for debuggers, which is asked for of kernels alone.
    pub(crate) fn trap(&self) -> Option<Trap> {
        match self {
            Self::Kernel { trap, .. } => Some(*trap),
            _ => None,
        }
    }

    /// Whether the MMU tells of it.
    pub(crate) fn is_of_address(&self) -> bool {
        matches!(self, Self::Memory { .. } | Self::Kernel { trap: Trap::Address { .. }, .. })
    }

    /// What a report calls it, and why it is.
    pub(crate) fn note(&self) -> Note {
        match self {
            Self::Memory { at, is_write } => {
                let verb = if *is_write { "write" } else { "read" };
                ("mmu-fault", format!("cannot {verb} {at:#x}"))
            }
            Self::Commands(text) => ("bad-commands", text.clone()),
            Self::Method(text) => ("bad-method", text.clone()),
            Self::Unsupported(text) => ("not-executed", text.clone()),
            Self::Kernel { text, .. } => ("kernel-error", text.clone()),
        }
    }
}

pub(super) type Outcome<T = Step> = Result<T, Fault>;

/// What an engine raises and goes on: programs wait for it that do not look at memory all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Interrupt {
    Host,
    Graphics,
    Copy,
}

/// What a running channel reaches.
pub(super) struct Bus<'a> {
    space: &'a mut dyn Space,
    clock: &'a Clock,
    /// Until then it is this channel's turn.
    end: Instant,
    takes_ptx: bool,
    megahertz: u64,
    run: RunId,
    pub(super) notes: Vec<Note>,
    /// Windows that were given to the shaders.
    pub(super) windows: Vec<(u64, &'static str)>,
    pub(super) interrupts: BTreeSet<Interrupt>,
}

/// What a channel did in its turn.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Whether that was anything.
    pub(crate) moved: bool,
    /// Why it cannot go on.
    pub(crate) fault: Option<Fault>,
    pub(crate) notes: Vec<Note>,
    /// Windows that were given to the shaders.
    pub(crate) windows: Vec<(u64, &'static str)>,
    pub(crate) interrupts: BTreeSet<Interrupt>,
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

    /// Whether a kernel's program may be text.
    pub(super) fn takes_ptx(&self) -> bool {
        self.takes_ptx
    }

    /// What clock and timer of a kernel count.
    pub(super) fn time_of_kernels(&self) -> Time {
        self.clock.of_kernels(self.megahertz)
    }

    /// The run whose kernels are started.
    pub(super) fn run(&self) -> RunId {
        self.run
    }

    /// The addresses for a kernel.
    pub(super) fn for_kernels(&self) -> Option<Arc<dyn KernelSpace>> {
        self.space.for_kernels()
    }

    /// Copies from GPU addresses.
    pub(super) fn read(&self, mut at: u64, mut into: &mut [u8]) -> Outcome<()> {
        while !into.is_empty() {
            let read = self.space.read(at, into).filter(|read| *read > 0);
            let read = read.ok_or(Fault::Memory { at, is_write: false })?;
            (at, into) = (at.wrapping_add(read as u64), &mut into[read..]);
        }
        Ok(())
    }

    /// Copies to GPU addresses.
    pub(super) fn write(&mut self, mut at: u64, mut from: &[u8]) -> Outcome<()> {
        while !from.is_empty() {
            let written = self.space.write(at, from).filter(|written| *written > 0);
            let written = written.ok_or(Fault::Memory { at, is_write: true })?;
            (at, from) = (at.wrapping_add(written as u64), &from[written..]);
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

    /// The payload of a semaphore, of one word or two.
    pub(super) fn payload(&self, at: u64, is_wide: bool) -> Outcome<u64> {
        if is_wide { self.load64(at) } else { Ok(self.load(at)?.into()) }
    }

    /// Releases a semaphore of one word or two.
    pub(super) fn release(&mut self, at: u64, payload: u64, is_wide: bool) -> Outcome<()> {
        let length = if is_wide { 8 } else { 4 };
        self.write(at, &payload.to_le_bytes()[..length])
    }

    /// A semaphore that says when it was released: payload, then time. The time comes first, for
    /// whoever sees the payload may look at it.
    pub(super) fn release_with_time(&mut self, at: u64, payload: u64) -> Outcome<()> {
        let time = self.time();
        self.write(at.wrapping_add(8), &time.to_le_bytes())?;
        self.write(at, &payload.to_le_bytes())
    }
}

/// The ring of a channel while it runs.
pub(crate) struct Ring<'a> {
    pub(crate) address: u64,
    pub(crate) entries: u32,
    /// Memory of the client's, and where in it userd begins.
    pub(crate) userd: Option<(&'a Memory, u64)>,
    /// Which engine takes the methods of a class; none where a channel has no such class.
    pub(crate) engine_of: &'a dyn Fn(u32) -> Option<EngineKind>,
    /// Whether a kernel's program may be PTX text, as no GPU takes it.
    pub(crate) takes_ptx: bool,
    /// Cycles of its multiprocessors in a microsecond.
    pub(crate) megahertz: u64,
    /// Whose kernels they are.
    pub(crate) run: RunId,
}

/// A turn of the channels that have something to do, beginning behind the one that was last. Whether any of them has
/// done something, and whether any still has to.
pub(crate) fn in_turn(
    last: &mut u32,
    mut busy: Vec<u32>,
    mut run: impl FnMut(u32, Instant) -> bool,
) -> (bool, bool) {
    let first = busy.partition_point(|channel| *channel <= *last);
    busy.rotate_left(first);
    let end = Instant::now() + TURN;
    let mut moved = false;
    for channel in &busy {
        moved |= run(*channel, end);
        *last = *channel;
        if Instant::now() >= end {
            return (true, true);
        }
    }
    (moved, !busy.is_empty())
}

impl Ring<'_> {
    /// How far the client says that it has filled the ring.
    pub(crate) fn put((userd, at): (&Memory, u64)) -> Option<u32> {
        userd.load(at.checked_add(USERD_PUT)?)
    }
}

impl Engine {
    /// That of a channel of a class; by default it is Ampere's.
    pub(crate) fn of_class(class: u32) -> Self {
        Self { host: Host::of_class(class), ..Self::default() }
    }

    /// Whether it has something to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.get != self.put || self.at < self.words.len()
    }

    /// Whether a kernel runs, which takes no turns.
    pub(crate) fn is_computing(&self) -> bool {
        self.compute.is_running()
    }

    /// Where the next entry goes of a ring that the driver fills.
    pub(crate) fn end(&self) -> u32 {
        self.put
    }

    /// It is there.
    pub(crate) fn advance(&mut self, entries: u32) {
        self.put = (self.put + 1) % entries;
    }

    /// How many fit: a ring that is full to the last looks empty.
    pub(crate) fn room(&self, entries: u32) -> u32 {
        entries - 1 - (entries + self.put - self.get) % entries
    }

    /// Takes over how far the client has filled a ring of so many entries, where it says so.
    pub(crate) fn start(&mut self, put: Option<u32>, entries: u32) -> Result<(), Note> {
        match put {
            Some(put) if put < entries => {
                self.put = put;
                Ok(())
            }
            Some(put) => {
                let text = format!("GP_PUT {put} is outside the GPFIFO of {entries} entries");
                Err(("bad-put", text))
            }
            None => Err(("userd-too-small", "userd has no GP_PUT".to_owned())),
        }
    }

    /// Forgets what it was doing.
    pub(crate) fn stop(&mut self) {
        self.put = self.get;
        self.forget_words();
        self.copy.stop();
        self.compute.stop();
    }

    /// A pushbuffer may have been of 8 MiB, and there are many channels.
    fn forget_words(&mut self) {
        self.words = Vec::new();
        self.at = 0;
        self.header = None;
    }

    /// One turn: until there is nothing left, or nothing more goes, or at `end` it is the others' turn.
    pub(crate) fn turn(
        &mut self,
        space: &mut dyn Space,
        clock: &Clock,
        end: Instant,
        ring: &Ring<'_>,
    ) -> Turn {
        let (takes_ptx, megahertz, run) = (ring.takes_ptx, ring.megahertz, ring.run);
        let (notes, windows, interrupts) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut bus =
            Bus { space, clock, end, takes_ptx, megahertz, run, notes, windows, interrupts };
        let (moved, fault) = match self.go_on(&mut bus, ring) {
            Ok(moved) => (moved, None),
            Err(fault) => (true, Some(fault)),
        };
        let Bus { notes, windows, interrupts, .. } = bus;
        Turn { moved, fault, notes, windows, interrupts }
    }

    fn go_on(&mut self, bus: &mut Bus<'_>, ring: &Ring<'_>) -> Outcome<bool> {
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
            if self.step(bus, ring)? == Step::Again {
                // A copy that goes on is progress, and a kernel that has ended before another.
                moved |= self.copy.is_running() || self.compute.has_gone_on();
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
        let entry = bus.load64(ring.address.wrapping_add(u64::from(self.get) * ENTRY))?;
        let length = (entry >> 42) as usize & 0x1f_ffff;
        if length == 0 {
            self.control(entry)?;
            self.finish(ring);
            return Ok(true);
        }
        let mut bytes = vec![0; length * 4];
        bus.read(self.base | entry & 0xff_ffff_fffc, &mut bytes)?;
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.words = bytes.chunks_exact(4).map(word).collect();
        Ok(true)
    }

    /// An entry that is no pushbuffer.
    fn control(&mut self, entry: u64) -> Outcome<()> {
        /// NVC86F_GP_ENTRY1_OPCODE: _GP_CRC and _PB_CRC check what nobody looks at here.
        const NOP: u64 = 0;
        const GP_CRC: u64 = 2;
        const PB_CRC: u64 = 3;
        const SET_PB_SEGMENT_EXTENDED_BASE: u64 = 4;
        match entry >> 32 & 0xff {
            NOP | GP_CRC | PB_CRC => {}
            SET_PB_SEGMENT_EXTENDED_BASE if self.host.is_wide() => {
                self.base = (entry >> 8 & 0x1_ffff) << 40;
            }
            opcode => {
                return Err(Fault::Commands(format!("illegal gpfifo entry of opcode {opcode}")));
            }
        }
        Ok(())
    }

    /// A pushbuffer is done: the client may use its entry again.
    fn finish(&mut self, ring: &Ring<'_>) {
        self.forget_words();
        self.get = (self.get + 1) % ring.entries;
        if let Some((userd, at)) = ring.userd {
            userd.store(at + USERD_GET, self.get);
        }
    }

    /// One word of a pushbuffer.
    fn step(&mut self, bus: &mut Bus<'_>, ring: &Ring<'_>) -> Outcome {
        let word = self.words[self.at];
        let Some(mut header) = self.header else {
            return self.begin(bus, ring, word);
        };
        if self.call(bus, ring, header.subchannel, header.method, word)? == Step::Again {
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

    fn begin(&mut self, bus: &mut Bus<'_>, ring: &Ring<'_>, word: u32) -> Outcome {
        /// NVC56F_DMA_SEC_OP; those of group 0 and 2 have the older fields of addresses and counts.
        const GROUP_0: u32 = 0;
        const INCREMENTING: u32 = 1;
        const GROUP_2: u32 = 2;
        const NON_INCREMENTING: u32 = 3;
        const IMMEDIATE: u32 = 4;
        const ONE_INCREMENT: u32 = 5;
        const END_SEGMENT: u32 = 7;
        let subchannel = (word >> 13 & 7) as usize;
        let (method, count) = ((word & 0xfff) << 2, word >> 16 & 0x1fff);
        let (old_method, old_count) = (word & 0x1ffc, word >> 18 & 0x7ff);
        let is_method = word >> 16 & 3 == 0;
        let (method, left, step) = match word >> 29 {
            INCREMENTING => (method, count, Increment::Always),
            NON_INCREMENTING => (method, count, Increment::Never),
            ONE_INCREMENT => (method, count, Increment::Once),
            GROUP_0 if is_method => (old_method, old_count, Increment::Always),
            GROUP_2 if is_method => (old_method, old_count, Increment::Never),
            GROUP_0 if self.masks.take(word) => (0, 0, Increment::Never),
            IMMEDIATE => {
                if self.call(bus, ring, subchannel, method, count)? == Step::Again {
                    return Ok(Step::Again);
                }
                (0, 0, Increment::Never)
            }
            END_SEGMENT => {
                self.at = self.words.len();
                return Ok(Step::Done);
            }
            _ => return Err(Fault::Commands(format!("illegal method header {word:#010x}"))),
        };
        self.at += 1;
        self.header = (left > 0).then_some(Header { method, subchannel, left, step });
        Ok(Step::Done)
    }

    /// One method, to whoever it belongs to.
    fn call(
        &mut self,
        bus: &mut Bus<'_>,
        ring: &Ring<'_>,
        subchannel: usize,
        method: u32,
        data: u32,
    ) -> Outcome {
        if !self.masks.are_for_this() {
            return Ok(Step::Done);
        }
        if method == host::SET_OBJECT {
            return self.set_object(ring, subchannel, data);
        }
        if method < 0x100 {
            return self.host.call(bus, method, data);
        }
        let class = self.classes[subchannel];
        if class == 0 {
            return Err(Fault::Commands(format!(
                "method {method:#06x} on subchannel {subchannel}, which has no object"
            )));
        }
        match (ring.engine_of)(class) {
            Some(EngineKind::Copy) => self.copy.call(bus, class, method, data),
            Some(EngineKind::Compute) => self.compute.call(bus, class, method, data),
            None => Err(Fault::Commands(format!(
                "method {method:#06x} of class {class:#06x}, which the channel has no object of"
            ))),
            Some(EngineKind::Other) => Err(Fault::Unsupported(format!(
                "method {method:#06x} of class {class:#06x}: that engine is not simulated"
            ))),
        }
    }

    /// An engine takes classes that the card has, and the driver those of software.
    fn set_object(&mut self, ring: &Ring<'_>, subchannel: usize, data: u32) -> Outcome {
        /// NVC56F_SET_OBJECT_ENGINE_SW.
        const SOFTWARE: u32 = 0x1f;
        let class = data & 0xffff;
        if class != 0 && data >> 16 & 0x1f != SOFTWARE && (ring.engine_of)(class).is_none() {
            return Err(Fault::Method(format!("the card has no class {class:#06x}")));
        }
        self.classes[subchannel] = class;
        Ok(Step::Done)
    }
}
