//! What the warps of launches did, as a trace: `nvabi trace record --sass` asks for it by `NVABI_EMU_RECORD`.
//!
//! The recorder of instrumented kernels has the same variables for the rest, and writes the same format. A site is an
//! instruction here: its key is made of its function, its address and its line.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufWriter};

use nvabi_emu::{EventKind as Did, Launch, Report, SourceLocation};
use nvabi_trace::recording::{self, Recording};
use nvabi_trace::{Event, EventKind, SiteRow, V2Writer};

use crate::report::is_set;
use crate::state::{print_message, state};

/// Level of zstd: the writer is in the program's way.
const LEVEL: i32 = 1;

/// A trace that is being written.
pub(crate) struct Recorder {
    config: Recording,
    writer: Option<V2Writer<BufWriter<File>>>,
    /// Of each module.
    sites: HashMap<usize, Sites>,
    /// Launches of the process.
    order: u64,
    /// The process that writes: one that it forks begins a trace of its own.
    process: u32,
    /// Kernels of which events were dropped, and a message said so.
    overflown: HashSet<String>,
}

/// The sites of a module, by their keys.
struct Sites {
    module: u32,
    known: HashMap<u64, u32>,
    new: Vec<SiteRow>,
}

impl Recorder {
    pub(crate) fn from_environment() -> Option<Self> {
        if !is_set("NVABI_EMU_RECORD") {
            return None;
        }
        let config = match Recording::from_environment() {
            Ok(Some(config)) => config,
            Ok(None) => {
                print_message(
                    "NVABI_EMU_RECORD=1, but NVABI_RECORD, the trace to write, is not set: nothing is recorded",
                );
                return None;
            }
            Err(error) => {
                print_message(&format!("{error}: nothing is recorded"));
                return None;
            }
        };
        extern "C" fn finish() {
            if let Some(recorder) = &mut state().recorder {
                recorder.finish();
            }
        }
        // SAFETY: `finish` is a function of this library, which stays for as long as the program.
        if unsafe { libc::atexit(finish) } != 0 {
            print_message(
                "the C library takes no more functions for the end: the trace has no index",
            );
        }
        Some(Self {
            config,
            writer: None,
            sites: HashMap::new(),
            order: 0,
            process: std::process::id(),
            overflown: HashSet::new(),
        })
    }

    /// What the process before a fork has begun is for that one to write.
    fn leave_to_parent(&mut self) {
        let process = std::process::id();
        if self.process != process {
            // Not dropped: that would write what is in its buffer a second time.
            std::mem::forget(self.writer.take());
            self.sites.clear();
            (self.process, self.order) = (process, 0);
        }
    }

    /// Says of the next launch whether it is recorded, and makes it so.
    pub(crate) fn prepare(&mut self, kernel: &str, launch: &mut Launch) -> bool {
        self.leave_to_parent();
        let order = self.order;
        self.order += 1;
        let is_chosen =
            self.config.launches.contains(&order) && self.config.kernels.matches(kernel);
        if !is_chosen {
            return false;
        }
        let warps = launch.warps();
        let Some(fit) = self.config.fit(warps, size_of::<nvabi_emu::Event>() as u64) else {
            print_message(&format!(
                "{kernel}: {warps} warps are more than a trace has numbers for: the launch is not recorded"
            ));
            return false;
        };
        launch.observe = true;
        (launch.observe_every, launch.most_events) = (fit.sample, fit.events as usize);
        true
    }

    /// Writes what a launch of a kernel of a module did.
    pub(crate) fn write(&mut self, module: usize, kernel: &str, launch: &Launch, report: &Report) {
        let order = self.order - 1;
        if let Err(error) = self.try_to_write(module, kernel, launch, (order, report)) {
            let file = self.config.file.display();
            print_message(&format!("{file}: {error}; nothing more is recorded"));
            self.config.launches = 0..0;
        }
    }

    fn try_to_write(
        &mut self,
        module: usize,
        kernel: &str,
        launch: &Launch,
        (order, report): (u64, &Report),
    ) -> io::Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let file = BufWriter::new(recording::create(&self.config.file)?);
                none.insert(V2Writer::new(file, Some(LEVEL))?)
            }
        };
        let number = self.sites.len() as u32;
        let sites = self.sites.entry(module).or_insert_with(|| Sites::new(number));
        let capacity = launch.most_events as u32;
        // Sites come before the events at them.
        for did in report.events.iter().flat_map(|warp| &warp.events) {
            sites.event(kernel, did);
        }
        let first = (sites.known.len() - sites.new.len()) as u32;
        writer.sites(sites.module, first, &std::mem::take(&mut sites.new), false)?;
        let head = nvabi_trace::Launch {
            kernel: kernel.to_owned(),
            grid: launch.grid,
            block: launch.block,
            warps: launch.warps() as u32,
            order,
            words_per_warp: capacity,
            sample_every: launch.observe_every,
            ..nvabi_trace::Launch::default()
        };
        writer.launch(&head, sites.module)?;
        let mut lost = 0;
        for warp in &report.events {
            writer.warp(launch.warp_number(warp.block, warp.warp) as u32)?;
            let mut room = capacity as usize;
            let mut dropped = warp.dropped;
            for (site, event) in warp.events.iter().filter_map(|did| sites.event(kernel, did)) {
                let words = 1 + usize::from(event.value.is_some() || is_split(&event));
                if room >= words {
                    writer.event(site, &event)?;
                } else {
                    dropped += 1;
                }
                room = room.saturating_sub(words);
            }
            lost += dropped;
            writer.end_warp(dropped)?;
        }
        if lost > 0 && self.overflown.insert(kernel.to_owned()) {
            let option = if capacity < self.config.capacity { "--memory" } else { "--capacity" };
            print_message(&format!(
                "{kernel}: {lost} events did not fit; {option} gives each warp more than {capacity} words"
            ));
        }
        writer.end_launch()
    }

    fn finish(&mut self) {
        self.leave_to_parent();
        if let Some(Err(error)) = self.writer.take().map(V2Writer::finish) {
            print_message(&format!("{}: {error}", self.config.file.display()));
        }
    }
}

/// Whether lanes of a branch disagree.
fn is_split(event: &Event) -> bool {
    event.ballot.is_some_and(|taken| taken != 0 && taken != event.mask)
}

impl Sites {
    fn new(module: u32) -> Self {
        Self { module, known: HashMap::new(), new: Vec::new() }
    }

    /// The number of a site and what happened there; none for what the format does not have.
    fn event(&mut self, kernel: &str, did: &nvabi_emu::Event) -> Option<(u32, Event)> {
        let mask = did.mask;
        let lowest = mask & mask.wrapping_neg();
        let (kind, ballot, value) = match &did.kind {
            Did::Branch { taken } => (EventKind::BRANCH, Some(*taken), None),
            Did::SharedStore { value } => (EventKind::SHARED_STORE, None, Some(*value)),
            Did::Atomic { old, .. } => (EventKind::ATOMIC, None, Some(*old)),
            Did::Entry { .. } => (EventKind::ENTRY, None, None),
            Did::Exit { .. } => (EventKind::EXIT, None, None),
            _ => return None,
        };
        let direction = u32::from(ballot.is_some_and(|taken| taken & lowest != 0));
        let row = site(kernel, kind, &did.location);
        let (site, number) = (row.key, self.known.len() as u32);
        let number = *self.known.entry(site).or_insert_with(|| {
            self.new.push(row);
            number
        });
        Some((number, Event { site, kind, direction, mask, ballot, value }))
    }
}

fn site(kernel: &str, kind: EventKind, location: &SourceLocation) -> SiteRow {
    let function = location.unit.as_deref().unwrap_or(kernel).to_owned();
    let file = location.file.as_deref().unwrap_or_default().to_owned();
    let place = location.address.unwrap_or(location.ptx_line.into());
    // The same for the same code, whatever ran of it.
    let mut key = Fnv(0xcbf2_9ce4_8422_2325);
    key.write(function.as_bytes());
    key.write(file.as_bytes());
    for part in [u64::from(kind.0), location.line.into(), place] {
        key.write(&part.to_le_bytes());
    }
    SiteRow {
        key: key.finish(),
        file,
        function,
        inlined: String::new(),
        line: location.line,
        column: location.column,
        // Of instructions of one line, which it is, as far as numbers go; the key tells them apart.
        ordinal: u16::try_from(place / 16).unwrap_or(u16::MAX),
        kind: kind.0,
        bytes: 0,
    }
}

/// A hash that is the same in every build (FNV-1a).
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
