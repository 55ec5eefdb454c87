//! A kernel: its code is read from the GPU's memory, and it runs in the emulator on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use nvabi_emu::{
    Args, Device, Finding, FindingKind, Launch, MAX_LAUNCH_BYTES, MAX_LOCAL_BYTES, MemoryAccess,
    Placed, RESERVED_SHARED_BYTES, Report, Severity, Textures,
};

use super::engine::{Bus, Fault, KernelSpace, Note, Outcome, Trap};
use super::launch::Object;
use super::qmd::{Qmd, architecture, architecture_name};
use super::texture::PoolTextures;
use crate::limits::Places;
use crate::log::RunId;

/// Largest program of text.
const MOST_TEXT: usize = 16 << 20;
const PAGE: usize = 4096;

/// Where the parameters begin in bank 0: of Ampere and Ada, from HOPPER_COMPUTE_A on, and from BLACKWELL_COMPUTE_A on.
const PARAMETERS: [(u32, usize); 3] = [(0, 0x160), (0xcbc0, 0x210), (0xcdc0, 0x380)];

/// The architectures whose code is executed.
const EXECUTED: [u32; 4] = [80, 86, 89, 90];

/// So long a launch is waited for at once: most kernels are short.
const SHORT: Duration = Duration::from_micros(500);

/// More multiprocessors than any GPU has, and what each has room for.
const MULTIPROCESSORS: u64 = 256;
const MOST_AT_ONCE: u64 = 32;
const MOST_THREADS: u64 = 2048;
const MOST_SHARED: u64 = 228 << 10;

/// Kernels that a run has at once: each has threads, and memory for its blocks. Those of other runs do not wait for
/// them.
pub(super) static RUNNING: LazyLock<Places<RunId>> = LazyLock::new(|| Places::new(32));

/// The MiB that they may take together: one is the most that a launch takes, so that others go on beside it.
static MEMORY: LazyLock<Places<RunId>> =
    LazyLock::new(|| Places::new((2 * MAX_LAUNCH_BYTES / MIB) as usize));
const MIB: u64 = 1 << 20;

/// What came of a kernel.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) notes: Vec<Note>,
    /// What it asked of the scheduler of launches, oldest first: that is done when it has ended, and not beside it.
    pub(super) messages: Vec<u64>,
}

/// A kernel on its thread.
#[derive(Debug)]
pub(super) struct Running {
    outcome: Receiver<Outcome<Ended>>,
    stop: Arc<AtomicBool>,
    /// Until then it is waited for at once.
    patience: Instant,
}

/// Nobody waits for it any more: it ends soon.
impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Running {
    /// What came of it, when it has ended. It is waited for asleep: a thread that yields comes back late where other
    /// programs work.
    pub(super) fn ended(&mut self) -> Option<Outcome<Ended>> {
        let wait = self.patience.saturating_duration_since(Instant::now());
        match self.outcome.recv_timeout(wait) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let why = "the emulator failed while a kernel ran";
                Some(Err(Fault::Unsupported(why.to_owned())))
            }
        }
    }
}

/// Starts the kernel of a description; none while too many others of its run do.
pub(super) fn start(
    bus: &Bus<'_>,
    object: &Object,
    at: u64,
    qmd: &Qmd,
) -> Outcome<Option<Running>> {
    let (name, program) = (architecture_name(object.class), qmd.program);
    let what =
        format!("compute launch at {at:#x} is not executed: {name} code at {program:#x}, {qmd}");
    let refused = |why: &str| Fault::Unsupported(format!("{what}: {why}"));
    let space = bus.for_kernels().ok_or_else(|| refused("this GPU runs no kernels"))?;
    let blocks = qmd.grid.iter().fold(1, |all: u64, count| all.saturating_mul((*count).into()));
    let local = qmd.local.map(u64::from).iter().sum();
    if local > MAX_LOCAL_BYTES {
        return Err(refused(&format!("{local} bytes of local memory: at most {MAX_LOCAL_BYTES}")));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (grid, block) = (qmd.grid, qmd.block);
    let cooperative = qmd.is_cooperative;
    if cooperative && blocks > room(qmd) {
        let most = room(qmd);
        return Err(refused(&format!("{blocks} blocks that wait for each other: at most {most}")));
    }
    let (time, until) = (Some(bus.time_of_kernels()), Some(stop.clone()));
    let launch = Launch { grid, block, cooperative, time, stop: until, ..Launch::default() };
    let text = if bus.takes_ptx() { text(bus, qmd.program)? } else { None };
    let bytes = launch.most_bytes(qmd.shared.into(), local);
    let mebibytes = bytes.div_ceil(MIB) as usize;
    let Some(place) = RUNNING.take(bus.run(), 1) else { return Ok(None) };
    let Some(memory) = MEMORY.take(bus.run(), mebibytes) else { return Ok(None) };
    let places = [place, memory];
    let run: Run = match text {
        Some(text) => {
            let (parameters, shared) = (parameters(bus, object.class, qmd)?, u64::from(qmd.shared));
            Box::new(move || run_text(&space, &text, parameters, launch, shared))
        }
        None => {
            let placed = placed(bus, object, qmd, &space, &refused)?;
            let what = what.clone();
            Box::new(move || run_placed(&space, &placed, &launch, &what))
        }
    };
    let (sender, outcome) = mpsc::sync_channel(1);
    let run = move || {
        let ended = run();
        // Who hears of its end starts the next one.
        drop(places);
        // Nobody hears of it who waits no more.
        drop(sender.send(ended));
    };
    let thread = std::thread::Builder::new().name("kernel".to_owned()).spawn(run);
    thread.map_err(|error| refused(&format!("no thread for it: {error}")))?;
    Ok(Some(Running { outcome, stop, patience: Instant::now() + SHORT }))
}

/// Blocks of a launch that are on a GPU at once.
fn room(qmd: &Qmd) -> u64 {
    let threads: u64 = qmd.block.iter().map(|count| u64::from(*count)).product();
    let fit = [MOST_THREADS / threads.max(1), MOST_SHARED / u64::from(qmd.shared).max(1)];
    MULTIPROCESSORS * fit.into_iter().fold(MOST_AT_ONCE, u64::min)
}

type Run = Box<dyn FnOnce() -> Outcome<Ended> + Send>;

/// The machine code of a launch, the constants that it was given, and its textures.
fn placed(
    bus: &Bus<'_>,
    object: &Object,
    qmd: &Qmd,
    space: &Arc<dyn KernelSpace>,
    refused: &dyn Fn(&str) -> Fault,
) -> Outcome<Placed> {
    let class = object.class;
    let why = || refused(&format!("{} is not executed", architecture_name(class)));
    let sm = architecture(class).filter(|sm| EXECUTED.contains(sm)).ok_or_else(why)?;
    let mut banks = Vec::new();
    for bank in &qmd.constants {
        let mut bytes = vec![0; bank.bytes as usize];
        bus.read(bank.address, &mut bytes)?;
        banks.push((bank.number, bytes));
    }
    let (shared_bytes, local_bytes) = (qmd.shared.into(), qmd.local.map(u64::from));
    let textures = PoolTextures {
        space: space.clone(),
        pools: object.pools,
        samplers_by_header: qmd.samplers_by_header,
    };
    let textures: Option<Arc<dyn Textures>> = Some(Arc::new(textures));
    Ok(Placed { sm, entry: qmd.program, shared_bytes, local_bytes, banks, textures })
}

/// The text that begins at an address and ends with a zero byte.
fn text(bus: &Bus<'_>, address: u64) -> Outcome<Option<String>> {
    let mut bytes = Vec::new();
    while bytes.len() < MOST_TEXT {
        let at = address.wrapping_add(bytes.len() as u64);
        let mut page = vec![0; PAGE - at as usize % PAGE];
        bus.read(at, &mut page)?;
        let end = page.iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&page[..end.unwrap_or(page.len())]);
        if end.is_some() {
            let text = String::from_utf8(bytes).ok();
            return Ok(text.filter(|text| text.contains(".version")));
        }
    }
    Ok(None)
}

/// The parameters, which are in bank 0 behind what the driver tells the kernel.
fn parameters(bus: &Bus<'_>, class: u32, qmd: &Qmd) -> Outcome<Vec<u8>> {
    let before = PARAMETERS.iter().rev().find(|(first, _)| class >= *first);
    let before = before.map_or(0, |(_, bytes)| *bytes);
    let Some(bank) = qmd.constants.iter().find(|bank| bank.number == 0) else {
        return Ok(Vec::new());
    };
    let mut bytes = vec![0; (bank.bytes as usize).saturating_sub(before)];
    bus.read(bank.address.wrapping_add(before as u64), &mut bytes)?;
    Ok(bytes)
}

fn run_text(
    space: &Arc<dyn KernelSpace>,
    text: &str,
    parameters: Vec<u8>,
    launch: Launch,
    shared: u64,
) -> Outcome<Ended> {
    let mut device = Device::beside(space.clone());
    let bad = |text: String| Fault::Unsupported(format!("PTX program: {text}"));
    let module = device.load(text).map_err(|error| bad(error.to_string()))?;
    let mut names = module.kernels();
    let (Some(name), None) = (names.next(), names.next()) else {
        return Err(bad("it has not one kernel".to_owned()));
    };
    let own = module.shared_size(name).unwrap_or(0) + RESERVED_SHARED_BYTES;
    let launch = Launch { shared_bytes: shared.saturating_sub(own) as u32, ..launch };
    let args = Args::new().bytes(&parameters, 1);
    let report = device.launch(&module, name, &launch, &args);
    told(space, &report.map_err(|error| bad(error.to_string()))?)
}

fn run_placed(
    space: &Arc<dyn KernelSpace>,
    placed: &Placed,
    launch: &Launch,
    what: &str,
) -> Outcome<Ended> {
    let report = Device::beside(space.clone()).launch_placed(placed, launch);
    told(space, &report.map_err(|error| Fault::Unsupported(format!("{what}: {error}")))?)
}

/// What a report says of a kernel: an error, or what a person should know.
fn told(space: &Arc<dyn KernelSpace>, report: &Report) -> Outcome<Ended> {
    if let Some((at, access)) = space.take_refused() {
        let verb = match access {
            MemoryAccess::Read => "read",
            MemoryAccess::Write => "write",
            MemoryAccess::Atomic => "change",
        };
        let (trap, text) = (Trap::Address { at, access }, format!("cannot {verb} {at:#x}"));
        return Err(Fault::Kernel { trap, text });
    }
    let say = |finding: &Finding| {
        let (kernel, kind, location) = (&finding.kernel, finding.kind, &finding.location);
        format!("kernel {kernel}, {location}: {kind}: {}", finding.message)
    };
    if let Some(finding) = report.findings.iter().find(|finding| finding.fatal) {
        return Err(Fault::Kernel { trap: trap(finding), text: say(finding) });
    }
    let mut notes: Vec<Note> = Vec::new();
    for (finding, others) in by_kind(report) {
        let text = match others {
            0 => say(finding),
            _ => format!("{}; and at {others} more places", say(finding)),
        };
        notes.push(("kernel-finding", text));
    }
    if !report.output.is_empty() {
        notes.push(("kernel-output", String::from_utf8_lossy(&report.output).into_owned()));
    }
    Ok(Ended { notes, messages: space.take_messages() })
}

/// What is worth a word: the first finding of each kind, and how many others there are.
fn by_kind(report: &Report) -> Vec<(&Finding, usize)> {
    let mut kinds: Vec<(&Finding, usize)> = Vec::new();
    for finding in report.findings.iter().filter(|finding| finding.severity > Severity::Note) {
        match kinds.iter_mut().find(|(first, _)| first.kind == finding.kind) {
            Some((_, others)) => *others += 1,
            None => kinds.push((finding, 0)),
        }
    }
    kinds
}

/// How a shader core sees it. The numbers of warps' errors are public in nouveau's `gf100_mp_warp_error`.
fn trap(finding: &Finding) -> Trap {
    const OOR_ADDR: u32 = 14;
    const MISALIGNED_ADDR: u32 = 15;
    let warp = |error| Trap::Warp { error, pc: finding.location.pc.unwrap_or(0) };
    if let Some((at, access)) = finding.refused {
        return Trap::Address { at, access };
    }
    match finding.kind {
        FindingKind::OutOfBounds => warp(OOR_ADDR),
        FindingKind::Misaligned => warp(MISALIGNED_ADDR),
        FindingKind::Trap => Trap::Breakpoint,
        FindingKind::Assert => Trap::Assertion,
        _ => Trap::Nothing,
    }
}
