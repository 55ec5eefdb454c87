//! What happens around a launch.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvabi_trace::abi::r2 as abi;
use nvabi_trace::recording::Recording;
use nvabi_trace::records::{self, Site, Sites};
use nvabi_trace::{Launch, SiteRow};
use zerocopy::{FromBytes as _, FromZeros as _};

use crate::driver::{Address, Driver, Failure, Handle, RELAXED, Read, SUCCESS, Status};
use crate::output::{Output, Region, written};

const SLACK: u64 = abi::NVABI_TRACE_SLACK as u64;
const UNITS: usize = abi::NVABI_TRACE_UNITS as usize;

/// Bytes of `nvabi_trace_buffer`.
const DESCRIPTOR: usize = 32;

/// What one launch may take: positions in it are 32 bits that count half words.
const MOST: u64 = 1 << 32;

/// Launches that wait to be written before the oldest is waited for.
const WAITING: usize = 64;

const BUFFER: &std::ffi::CStr = c"__nvabi_trace";
const SITES: &std::ffi::CStr = c"__nvabi_sites";
const HASH: &str = "__nvabi_module_hash";
const LIST: &std::ffi::CStr = c"__nvabi_units";

/// How many threads a launch has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

impl Shape {
    fn warps(self) -> u64 {
        let product = |sizes: [u32; 3]| sizes.iter().map(|size| u64::from(*size)).product::<u64>();
        product(self.grid) * product(self.block).div_ceil(32)
    }
}

/// What is known of a kernel that is instrumented.
#[derive(Clone)]
struct Kernel {
    name: String,
    module: usize,
    /// Of the code: of the kernel's unit, in an image that was linked of several.
    hash: [u8; 32],
}

/// A module with instrumented code in it.
struct Module {
    /// In the trace.
    number: u32,
    buffer: Address,
    /// What a site's number on the device is in the trace, by unit.
    bases: Vec<Option<u32>>,
    /// The list of units, in an image that was linked of several.
    units: Option<Address>,
    sites: u32,
    /// Sites, from the first one's index on, that the trace gets with the next launch.
    unwritten: Vec<(u32, Vec<SiteRow>)>,
    /// After the last launch that used the buffer.
    last: Option<Handle>,
}

/// A launch whose regions are still on the device.
struct Pending {
    context: Handle,
    launch: Launch,
    module: usize,
    regions: u64,
    memory: Memory,
    /// What the buffer's variable is set to. The copy may be under way until `done`: it is freed then, and
    /// stays allocated where nobody knows.
    descriptor: ManuallyDrop<Box<[u8]>>,
    done: Handle,
}

/// What a warp recorded.
struct Recorded {
    /// Words that fitted.
    words: Vec<u64>,
    /// Words that did not.
    lost: u64,
}

/// Device memory: warp headers, then regions.
#[derive(Clone, Copy)]
struct Memory {
    context: Handle,
    start: Address,
    size: u64,
    events: Address,
    stride: u64,
}

struct Recorder {
    driver: Driver,
    config: Recording,
    output: Option<Output>,
    kernels: HashMap<usize, Option<Kernel>>,
    library_kernels: HashSet<usize>,
    modules: HashMap<usize, Module>,
    written: u32,
    streams: HashMap<usize, u64>,
    order: u64,
    pending: VecDeque<Pending>,
    free: Vec<Memory>,
    copies: HashMap<usize, Handle>,
    printed: HashSet<String>,
    /// A kernel went wrong, and its memory can be read all the same.
    faulted: bool,
}

// SAFETY: what is not `Send` of itself are handles of CUDA, which are never dereferenced here. The driver takes
// them from any thread: contexts, modules and functions belong to the process ("the CUDA Driver API is thread
// safe", and a context is made current to the thread that uses it, as `fetch_launch` does).
unsafe impl Send for Recorder {}

enum State {
    New,
    Off,
    On(Box<Recorder>),
}

static STATE: Mutex<State> = Mutex::new(State::New);

fn state() -> MutexGuard<'static, State> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let State::New = *state {
        *state = match Recorder::new() {
            Ok(Some(recorder)) => State::On(Box::new(recorder)),
            Ok(None) => State::Off,
            Err(why) => {
                print_message(&why);
                State::Off
            }
        };
    }
    state
}

fn print_message(message: &str) {
    eprintln!("nvabi: {message}");
}

/// A program launches something: records it where it is instrumented.
pub(crate) fn launch(
    function: Handle,
    shape: Shape,
    stream: Handle,
    call: &dyn Fn() -> Status,
) -> Status {
    match &mut *state() {
        State::On(recorder) => recorder.launch(function, shape, stream, call),
        _ => call(),
    }
}

/// A program launches a graph: its kernels have no regions, and must not find another launch's.
pub(crate) fn graph(stream: Handle, call: &dyn Fn() -> Status) -> Status {
    match &mut *state() {
        State::On(recorder) => recorder.graph(stream, call),
        _ => call(),
    }
}

/// A program gets a kernel that is in no context yet.
pub(crate) fn library_kernel(kernel: Handle) {
    if let State::On(recorder) = &mut *state() {
        recorder.library_kernels.insert(kernel.addr());
    }
}

/// A module or a context goes: what was recorded with it has to be fetched before.
pub(crate) fn unload(call: &dyn Fn() -> Status) -> Status {
    if let State::On(recorder) = &mut *state() {
        recorder.outside_captures(Recorder::forget);
    }
    call()
}

/// The program ends.
extern "C" fn finish() {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let State::On(mut recorder) = std::mem::replace(&mut *state, State::Off) {
        recorder.outside_captures(|recorder| recorder.drain(true));
        if let Some(Err(error)) = recorder.output.take().map(Output::finish) {
            print_message(&format!("{}: {error}", recorder.config.file.display()));
        }
    }
}

impl Recorder {
    fn new() -> Result<Option<Self>, String> {
        let Some(config) = Recording::from_environment()? else { return Ok(None) };
        // SAFETY: `finish` has the type that atexit(3) asks for, does not unwind (it is `extern "C"`), and is in
        // a library that is preloaded, so that it is not unloaded before exit. What is registered last runs
        // first: the program came here through the driver, so that `finish` runs before the driver ends.
        unsafe { libc::atexit(finish) };
        Ok(Some(Self {
            driver: Driver::load(),
            config,
            output: None,
            kernels: HashMap::new(),
            library_kernels: HashSet::new(),
            modules: HashMap::new(),
            written: 0,
            streams: HashMap::new(),
            order: 0,
            pending: VecDeque::new(),
            free: Vec::new(),
            copies: HashMap::new(),
            printed: HashSet::new(),
            faulted: false,
        }))
    }

    /// Says something once.
    fn print_once(&mut self, message: String) {
        if self.printed.insert(message.clone()) {
            print_message(&message);
        }
    }

    fn launch(
        &mut self,
        function: Handle,
        shape: Shape,
        stream: Handle,
        call: &dyn Fn() -> Status,
    ) -> Status {
        let before = self.outside_captures(|recorder| recorder.before(function, shape, stream));
        let status = call();
        if let Some((kernel, pending)) = before {
            self.outside_captures(|recorder| {
                recorder.after(&kernel, pending, stream, status);
                recorder.drain(false);
            });
        }
        status
    }

    /// Does what the program's captures of streams are not to notice.
    fn outside_captures<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let mode = self.driver.exchange_mode(RELAXED);
        let outcome = work(self);
        self.driver.exchange_mode(mode);
        outcome
    }

    /// Before a launch: what it gets, where it is to be recorded.
    fn before(
        &mut self,
        function: Handle,
        shape: Shape,
        stream: Handle,
    ) -> Option<(Kernel, Pending)> {
        let kernel = self.kernel(function)?;
        if self.driver.capturing(stream) {
            self.print_once(format!(
                "{}: launched into a graph: graphs are not recorded",
                kernel.name
            ));
            return None;
        }
        let order = self.order;
        self.order += 1;
        if !self.config.launches.contains(&order) || !self.chosen(&kernel.name) {
            self.wait_for_recorded_launch(&kernel, stream);
            return None;
        }
        match self.prepare(&kernel, shape, stream, order) {
            Ok(pending) => Some((kernel, pending)),
            Err(why) => {
                self.wait_for_recorded_launch(&kernel, stream);
                self.print_once(format!("{}: not recorded: {why}", kernel.name));
                None
            }
        }
    }

    fn chosen(&self, kernel: &str) -> bool {
        let glob = &self.config.kernels;
        glob.matches(kernel) || glob.matches(&source_name(kernel))
    }

    /// A launch that is not recorded must not find the regions of one that still is.
    fn wait_for_recorded_launch(&mut self, kernel: &Kernel, stream: Handle) {
        let last = self.modules.get(&kernel.module).and_then(|module| module.last);
        if let Some(Err(failure)) = last.map(|last| self.driver.wait(stream, last)) {
            self.print_once(failure.to_string());
        }
    }

    fn graph(&mut self, stream: Handle, call: &dyn Fn() -> Status) -> Status {
        let last: Vec<Handle> = self.modules.values().filter_map(|module| module.last).collect();
        if !self.modules.is_empty() {
            self.print_once("a graph was launched: graphs are not recorded".to_owned());
        }
        for event in last {
            if let Err(failure) = self.driver.wait(stream, event) {
                self.print_once(failure.to_string());
            }
        }
        call()
    }

    /// What is known of a kernel; None where it is not instrumented.
    fn kernel(&mut self, function: Handle) -> Option<Kernel> {
        let key = function.addr();
        if let Some(known) = self.kernels.get(&key) {
            return known.clone();
        }
        let known = self.look_up(function).unwrap_or_else(|failure| {
            self.print_once(format!("a kernel is not recorded: {failure}"));
            None
        });
        self.kernels.insert(key, known.clone());
        known
    }

    fn look_up(&mut self, launched: Handle) -> Result<Option<Kernel>, Failure> {
        let function = match self.library_kernels.contains(&launched.addr()) {
            true => self.driver.function(launched)?,
            false => launched,
        };
        let module = self.driver.module(function)?;
        let Some((buffer, _)) = self.driver.global(module, BUFFER)? else { return Ok(None) };
        let name = self.driver.name(function).unwrap_or_else(|_| "unnamed kernel".to_owned());
        let key = module.addr();
        if !self.modules.contains_key(&key) {
            let units = self.driver.global(module, LIST)?.map(|(address, _)| address);
            let number = self.written;
            self.written += 1;
            self.modules.insert(
                key,
                Module {
                    number,
                    buffer,
                    bases: vec![None; UNITS],
                    units,
                    sites: 0,
                    unwritten: Vec::new(),
                    last: None,
                },
            );
            if let Some((address, size)) = self.driver.global(module, SITES)? {
                let table = self.fetch(address, size)?;
                self.add_sites(key, 0, &table);
            }
        }
        let hash = self.hash(module, &name)?;
        Ok(Some(Kernel { name, module: key, hash }))
    }

    /// The hash of the code that a kernel belongs to; zeros where there is none.
    fn hash(&mut self, module: Handle, kernel: &str) -> Result<[u8; 32], Failure> {
        for name in [HASH.to_owned(), format!("{HASH}_{kernel}")] {
            let name = CString::new(name).unwrap_or_default();
            if let Some((address, size)) = self.driver.global(module, &name)? {
                return Ok(self.fetch(address, size)?.try_into().unwrap_or_default());
            }
        }
        Ok([0; 32])
    }

    /// Copies from the device.
    fn fetch(&mut self, from: Address, size: usize) -> Result<Vec<u8>, Failure> {
        let way = self.way()?;
        let read = self.driver.read(vec![(from, vec![0; size])], way)?;
        Ok(read.into_iter().flatten().collect())
    }

    /// How memory is read: in a stream of the recorder's own, as long as there are streams.
    fn way(&mut self) -> Result<Read, Failure> {
        match self.faulted {
            true => Ok(Read::AfterFault),
            false => self.own_stream().map(Read::Stream),
        }
    }

    fn own_stream(&mut self) -> Result<Handle, Failure> {
        let context = self.driver.current()?.addr();
        if let Some(stream) = self.copies.get(&context) {
            return Ok(*stream);
        }
        let stream = self.driver.stream()?;
        self.copies.insert(context, stream);
        Ok(stream)
    }

    /// Takes the site table of a unit of a module into the trace.
    fn add_sites(&mut self, module: usize, unit: usize, table: &[u8]) {
        let Some(rows) = rows(table) else {
            return self.print_once("a site table is damaged: sites have numbers alone".to_owned());
        };
        let Some(module) = self.modules.get_mut(&module) else { return };
        let first = module.sites;
        if let Some(base) = module.bases.get_mut(unit) {
            *base = Some(first);
        }
        module.sites += rows.len() as u32;
        module.unwritten.push((first, rows));
    }

    /// Writes to the trace, which begins with the first that there is to write.
    fn write(&mut self, write: impl FnOnce(&mut Output) -> std::io::Result<()>) {
        let outcome = match &mut self.output {
            Some(output) => write(output),
            None => Output::create(&self.config.file).and_then(|mut output| {
                let outcome = write(&mut output);
                self.output = Some(output);
                outcome
            }),
        };
        if let Err(error) = outcome {
            self.print_once(format!("{}: {error}", self.config.file.display()));
        }
    }

    /// Gives a launch its regions: what the kernel reads is in the stream before it.
    fn prepare(
        &mut self,
        kernel: &Kernel,
        shape: Shape,
        stream: Handle,
        order: u64,
    ) -> Result<Pending, Failure> {
        let context = self.driver.current()?;
        let warps = shape.warps();
        let (regions, sample, capacity) = self.fit(warps);
        let memory = self.memory(context, regions, u64::from(capacity) + SLACK)?;
        let head = regions * size_of::<records::Warp>() as u64;
        let mut descriptor = Vec::new();
        descriptor.extend(memory.start.to_le_bytes());
        descriptor.extend(memory.events.to_le_bytes());
        for word in [capacity, regions as u32, sample, 0] {
            descriptor.extend(word.to_le_bytes());
        }
        let descriptor = ManuallyDrop::new(descriptor.into_boxed_slice());
        let arch = self.driver.arch().unwrap_or(0);
        let module = self.modules.get(&kernel.module);
        let (buffer, last) = module.map(|module| (module.buffer, module.last)).unwrap_or_default();
        let done = self.driver.event()?;
        // Launches of one module share its variable: one after another, in whatever streams.
        if let Some(last) = last {
            self.driver.wait(stream, last)?;
        }
        self.driver.clear(memory.start, head as usize, stream)?;
        // SAFETY: nobody writes to the descriptor, and it is freed by `drain` alone, after `done`, which is
        // recorded behind the copy in the same stream.
        unsafe { self.driver.to_device(buffer, &descriptor, stream)? };
        let streams = self.streams.len() as u64;
        let launch = Launch {
            kernel: kernel.name.clone(),
            grid: shape.grid,
            block: shape.block,
            warps: u32::try_from(warps).unwrap_or(u32::MAX),
            arch,
            module_hash: kernel.hash,
            stream: *self.streams.entry(stream.addr()).or_insert(streams),
            order,
            words_per_warp: capacity,
            sample_every: sample,
            ..Launch::default()
        };
        let module = kernel.module;
        Ok(Pending { context, launch, module, regions, memory, descriptor, done })
    }

    /// Regions, sampling and capacity that a launch gets: less of the latter, then of the former, where
    /// the memory that is allowed does not hold all.
    fn fit(&self, warps: u64) -> (u64, u32, u32) {
        let allowed = self.config.memory.min(MOST);
        let header = size_of::<records::Warp>() as u64;
        let smallest = header + 8 * (16 + SLACK);
        let most = (allowed / smallest).max(1);
        let wanted = u64::from(self.config.sample);
        let sample = wanted.max(warps.div_ceil(most));
        let regions = warps.div_ceil(sample).max(1);
        let room = (allowed / regions).saturating_sub(header) / 8;
        let capacity = u64::from(self.config.capacity).min(room.saturating_sub(SLACK)).max(1);
        (regions, sample as u32, capacity as u32)
    }

    fn memory(&mut self, context: Handle, regions: u64, stride: u64) -> Result<Memory, Failure> {
        let head = (regions * size_of::<records::Warp>() as u64).next_multiple_of(16);
        let size = head + regions * stride * 8;
        let fits = |free: &Memory| free.context == context && free.size >= size;
        let free = self.free.iter().position(fits).map(|at| self.free.swap_remove(at));
        let memory = match free {
            Some(memory) => memory,
            None => {
                let start = self.driver.alloc(size as usize)?;
                Memory { context, start, size, events: 0, stride: 0 }
            }
        };
        Ok(Memory { events: memory.start + head, stride, ..memory })
    }

    /// After a launch: the variable points nowhere again, for what this library does not see.
    fn after(&mut self, kernel: &Kernel, pending: Pending, stream: Handle, status: Status) {
        let buffer = self.modules.get(&kernel.module).map_or(0, |module| module.buffer);
        let outcome = self.driver.clear(buffer, DESCRIPTOR, stream);
        match outcome.and_then(|()| self.driver.record(pending.done, stream)) {
            Ok(()) => {
                if let Some(module) = self.modules.get_mut(&kernel.module) {
                    module.last = Some(pending.done);
                }
                match status {
                    SUCCESS => self.pending.push_back(pending),
                    // Nothing ran.
                    _ => self.free.push(pending.memory),
                }
            }
            Err(failure) if status == SUCCESS => self.failed(&pending, &failure),
            Err(failure) => self.print_once(format!("{}: not recorded: {failure}", kernel.name)),
        }
    }

    /// A launch went wrong: what it did up to there is written where memory can still be read.
    fn failed(&mut self, pending: &Pending, failure: &Failure) {
        let kernel = &pending.launch.kernel;
        if !failure.is_fault() || !self.driver.reads_after_fault() {
            return self.print_once(format!("{kernel}: not recorded: {failure}"));
        }
        self.faulted = true;
        match self.fetch_regions(pending) {
            Ok(words) => {
                self.print_once(format!("{kernel}: recorded up to where {failure}"));
                self.write_launch(pending, &words);
            }
            Err(failure) => self.print_once(format!("{kernel}: not recorded: {failure}")),
        }
    }

    /// Writes the launches that are over, or all of them.
    fn drain(&mut self, all: bool) {
        while let Some(pending) = self.pending.pop_front() {
            let wait = all || self.pending.len() >= WAITING;
            match self.fetch_launch(&pending, wait) {
                Ok(Some(words)) => {
                    self.write_launch(&pending, &words);
                    self.clear(&pending, &words);
                    self.free.push(pending.memory);
                    self.release_event(&pending);
                    drop(ManuallyDrop::into_inner(pending.descriptor));
                }
                Ok(None) => return self.pending.push_front(pending),
                Err(failure) => self.failed(&pending, &failure),
            }
        }
    }

    /// What a warp wrote before a fault is told from zeros, so that nothing of an earlier launch may be there.
    fn clear(&mut self, pending: &Pending, recorded: &[Recorded]) {
        if !self.driver.reads_after_fault() {
            return;
        }
        let Memory { events, stride, .. } = pending.memory;
        for (Recorded { words, .. }, region) in recorded.iter().zip(0_u64..) {
            let start = events + region * stride * 8;
            let null = std::ptr::null_mut();
            if let Err(failure) = self.driver.clear(start, words.len() * 8, null) {
                return self.print_once(failure.to_string());
            }
        }
    }

    /// Nobody has to wait for a launch that is over.
    fn release_event(&mut self, pending: &Pending) {
        if let Some(module) = self.modules.get_mut(&pending.module) {
            module.last = module.last.filter(|last| *last != pending.done);
        }
        self.driver.drop_event(pending.done);
    }

    /// The words of a launch that is over, region by region; None where it is not.
    fn fetch_launch(
        &mut self,
        pending: &Pending,
        wait: bool,
    ) -> Result<Option<Vec<Recorded>>, Failure> {
        self.driver.push(pending.context)?;
        let words = self.fetch_here(pending, wait);
        self.driver.pop()?;
        words
    }

    fn fetch_here(
        &mut self,
        pending: &Pending,
        wait: bool,
    ) -> Result<Option<Vec<Recorded>>, Failure> {
        match wait {
            true => self.driver.finish(pending.done)?,
            false if !self.driver.is_done(pending.done)? => return Ok(None),
            false => {}
        }
        self.fetch_regions(pending).map(Some)
    }

    fn fetch_regions(&mut self, pending: &Pending) -> Result<Vec<Recorded>, Failure> {
        self.fetch_units(pending.module)?;
        let way = self.way()?;
        let Memory { events, stride, .. } = pending.memory;
        let headers = vec![records::Warp::new_zeroed(); pending.regions as usize];
        let headers = self.driver.read(vec![(pending.memory.start, headers)], way)?;
        let (mut lost, mut buffers) = (Vec::new(), Vec::new());
        for (header, region) in headers.iter().flatten().zip(0_u64..) {
            // The device says where the warp came to, in half words from the first region.
            let start = region * stride * 2;
            let asked = u64::from(header.words).saturating_sub(start) / 2;
            let room = u64::from(pending.launch.words_per_warp);
            let (mut fitted, mut beyond) = (asked.min(room), asked.saturating_sub(room));
            let address = events + region * stride * 8;
            if self.faulted {
                // A warp says how far it came at its end. Where it came to none, there would have been more.
                let words = self.driver.read(vec![(address, vec![0_u64; room as usize])], way)?;
                let written = words.first().map_or(0, |words| written(words)) as u64;
                beyond += u64::from(header.words == 0 || written > fitted);
                fitted = fitted.max(written);
            }
            lost.push(beyond);
            buffers.push((address, vec![0_u64; fitted as usize]));
        }
        let words = self.driver.read(buffers, way)?;
        let recorded = words.into_iter().zip(lost).map(|(words, lost)| Recorded { words, lost });
        Ok(recorded.collect())
    }

    /// The units of a linked image that ran for the first time.
    fn fetch_units(&mut self, module: usize) -> Result<(), Failure> {
        let Some(units) = self.modules.get(&module).and_then(|module| module.units) else {
            return Ok(());
        };
        let list = self.fetch(units, UNITS * 8)?;
        let address = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        for (unit, address) in list.chunks_exact(8).map(address).enumerate() {
            let known = self.modules.get(&module).and_then(|module| module.bases[unit]);
            if address == 0 || known.is_some() {
                continue;
            }
            let record = self.fetch(address, 16)?;
            let (table, size) = record.split_at(8);
            let table = u64::from_le_bytes(table.try_into().unwrap_or_default());
            let size = u32::from_le_bytes(size[..4].try_into().unwrap_or_default());
            let table = self.fetch(table, size as usize)?;
            self.add_sites(module, unit, &table);
        }
        Ok(())
    }

    fn write_launch(&mut self, pending: &Pending, recorded: &[Recorded]) {
        let Some(module) = self.modules.get_mut(&pending.module) else { return };
        let sites = std::mem::take(&mut module.unwritten);
        let (number, linked, bases) = (module.number, module.units.is_some(), module.bases.clone());
        let site = |site: u32| match linked {
            false => site,
            true => {
                let unit = (site / abi::NVABI_TRACE_UNIT_SITES) as usize;
                bases.get(unit).copied().flatten().unwrap_or(0) + site % abi::NVABI_TRACE_UNIT_SITES
            }
        };
        let sample = pending.launch.sample_every.max(1);
        let warps = recorded.iter().zip(0_u32..).map(|(Recorded { words, lost }, region)| Region {
            warp: region * sample,
            words,
            lost: *lost,
        });
        let lost: u64 = recorded.iter().map(|recorded| recorded.lost).sum();
        self.write(|output| {
            sites.iter().try_for_each(|(first, rows)| output.sites(number, *first, rows))?;
            output.launch(&pending.launch, number, site, warps)
        });
        if lost > 0 && !self.faulted {
            self.print_overflow(&pending.launch, lost);
        }
    }

    /// Once for each kernel.
    fn print_overflow(&mut self, launch: &Launch, lost: u64) {
        let Launch { kernel, words_per_warp, .. } = launch;
        if !self.printed.insert(format!("{kernel}: overflow")) {
            return;
        }
        let option = match *words_per_warp < self.config.capacity {
            true => "--memory",
            false => "--capacity",
        };
        print_message(&format!(
            "{kernel}: {lost} words of events did not fit; {option} gives each warp more than {words_per_warp}"
        ));
    }

    /// Writes all that was recorded and forgets what may no longer be there.
    fn forget(&mut self) {
        self.drain(true);
        for module in self.modules.values().filter_map(|module| module.last) {
            self.driver.drop_event(module);
        }
        for memory in std::mem::take(&mut self.free) {
            let freed = self.driver.push(memory.context).and_then(|()| {
                let freed = self.driver.free(memory.start);
                self.driver.pop().and(freed)
            });
            if let Err(failure) = freed {
                self.print_once(failure.to_string());
            }
        }
        self.kernels.clear();
        self.modules.clear();
        self.copies.clear();
        self.faulted = false;
    }
}

/// A kernel as the program's source names it, without its parameters, and where it is static without the
/// hash of its unit's path.
fn source_name(mangled: &str) -> String {
    let mangled = mangled.split("__intern__").next().unwrap_or(mangled);
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let symbol = cpp_demangle::Symbol::new(mangled).ok();
    let name = symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok());
    name.unwrap_or_else(|| mangled.to_owned())
}

/// Reads a site table as the pass embeds it.
fn rows(table: &[u8]) -> Option<Vec<SiteRow>> {
    let (head, rest) = Sites::read_from_prefix(table).ok()?;
    let count = head.count as usize;
    let (entries, strings) = <[Site]>::ref_from_prefix_with_elems(rest, count).ok()?;
    let text = |offset: u32| {
        let start = strings.get(offset as usize..)?;
        let end = start.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&start[..end]).into_owned())
    };
    entries
        .iter()
        .map(|site| {
            Some(SiteRow {
                key: site.key,
                file: text(site.file)?,
                function: text(site.function)?,
                inlined: text(site.inlined)?,
                line: site.line,
                column: site.column,
                ordinal: site.ordinal,
                kind: site.kind,
                bytes: site.bytes,
            })
        })
        .collect()
}
