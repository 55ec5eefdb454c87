//! What the driver and the runtime work on: one device, and handles for what is on it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nvabi_emu::{
    Args, Device, DeviceError, Finding, FindingKind, Image, Launch, Module, Report, Rows, Schedule,
    Severity,
};

use crate::clocks::{self, Clocks};
use crate::devices::{self, MOST, Peers};
use crate::fatbin;
use crate::graphs::{Graphs, Work};
use crate::ipc::{Ipc, Thing};
use crate::link::{self, Unit};
use crate::managed;
use crate::mapped::Mapped;
use crate::pools::Pools;
use crate::record::Recorder;
use crate::report::{Reporter, append, is_set, variable};

/// A CUDA error: its number is the same in the driver and in the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

pub(crate) const SUCCESS: Code = Code(0);
pub(crate) const INVALID_VALUE: Code = Code(1);
pub(crate) const OUT_OF_MEMORY: Code = Code(2);
pub(crate) const NOT_INITIALIZED: Code = Code(3);
pub(crate) const INVALID_CONFIGURATION: Code = Code(9);
pub(crate) const INVALID_SYMBOL: Code = Code(13);
pub(crate) const INVALID_DEVICE_FUNCTION: Code = Code(98);
pub(crate) const NO_DEVICE: Code = Code(100);
pub(crate) const INVALID_DEVICE: Code = Code(101);
pub(crate) const INVALID_CONTEXT: Code = Code(201);
pub(crate) const MAP_FAILED: Code = Code(205);
const UNSUPPORTED_LIMIT: Code = Code(215);
const NO_BINARY: Code = Code(209);
const INVALID_PTX: Code = Code(218);
pub(crate) const INVALID_HANDLE: Code = Code(400);
pub(crate) const NOT_FOUND: Code = Code(500);
const ILLEGAL_ADDRESS: Code = Code(700);
const TIMEOUT: Code = Code(702);
const ASSERT: Code = Code(710);
pub(crate) const ALREADY_ENABLED: Code = Code(704);
pub(crate) const NOT_ENABLED: Code = Code(705);
pub(crate) const ALREADY_REGISTERED: Code = Code(712);
const MISALIGNED: Code = Code(716);
const LAUNCH_FAILED: Code = Code(719);
pub(crate) const NOT_SUPPORTED: Code = Code(801);
pub(crate) const CAPTURE_UNSUPPORTED: Code = Code(900);
pub(crate) const NOT_CAPTURING: Code = Code(905);
pub(crate) const UPDATE_FAILED: Code = Code(910);

/// Name and description of an error.
pub(crate) fn describe(code: u32) -> Option<(&'static std::ffi::CStr, &'static std::ffi::CStr)> {
    Some(match Code(code) {
        SUCCESS => (c"SUCCESS", c"no error"),
        INVALID_VALUE => (c"INVALID_VALUE", c"invalid argument"),
        OUT_OF_MEMORY => (c"OUT_OF_MEMORY", c"out of memory"),
        INVALID_CONFIGURATION => (c"INVALID_CONFIGURATION", c"invalid configuration of a launch"),
        INVALID_SYMBOL => (c"INVALID_SYMBOL", c"invalid device symbol"),
        INVALID_DEVICE_FUNCTION => (c"INVALID_DEVICE_FUNCTION", c"invalid device function"),
        NOT_INITIALIZED => (c"NOT_INITIALIZED", c"initialization error"),
        NO_DEVICE => (c"NO_DEVICE", c"no CUDA-capable device is detected"),
        INVALID_DEVICE => (c"INVALID_DEVICE", c"invalid device ordinal"),
        INVALID_CONTEXT => (c"INVALID_CONTEXT", c"invalid device context"),
        MAP_FAILED => (c"MAP_FAILED", c"memory of another process cannot be mapped"),
        UNSUPPORTED_LIMIT => (c"UNSUPPORTED_LIMIT", c"there is no such limit"),
        NO_BINARY => (c"NO_BINARY_FOR_GPU", c"no PTX for the emulator"),
        INVALID_PTX => (c"INVALID_PTX", c"PTX that the emulator does not take"),
        INVALID_HANDLE => (c"INVALID_HANDLE", c"invalid resource handle"),
        NOT_FOUND => (c"NOT_FOUND", c"named symbol not found"),
        ILLEGAL_ADDRESS => (c"ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        TIMEOUT => (c"LAUNCH_TIMEOUT", c"a launch does not end"),
        ASSERT => (c"ASSERT", c"an assertion of a kernel failed"),
        ALREADY_REGISTERED => {
            (c"HOST_MEMORY_ALREADY_REGISTERED", c"memory of the host is registered already")
        }
        ALREADY_ENABLED => (c"PEER_ACCESS_ALREADY_ENABLED", c"the peer is accessed already"),
        NOT_ENABLED => (c"PEER_ACCESS_NOT_ENABLED", c"the peer is not accessed"),
        MISALIGNED => (c"MISALIGNED_ADDRESS", c"misaligned address"),
        LAUNCH_FAILED => (c"LAUNCH_FAILED", c"a launch failed"),
        NOT_SUPPORTED => (c"NOT_SUPPORTED", c"the emulator does not support this"),
        CAPTURE_UNSUPPORTED => {
            (c"STREAM_CAPTURE_UNSUPPORTED", c"not permitted while the stream is captured")
        }
        NOT_CAPTURING => (c"STREAM_CAPTURE_UNMATCHED", c"the stream is not captured"),
        UPDATE_FAILED => (c"GRAPH_EXEC_UPDATE_FAILURE", c"the graph has other nodes"),
        _ => return None,
    })
}

impl From<DeviceError> for Code {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::NoKernel(_) => NOT_FOUND,
            DeviceError::Launch { .. } => INVALID_CONFIGURATION,
            DeviceError::OutOfMemory(_) | DeviceError::NoFileLeft => OUT_OF_MEMORY,
            _ => INVALID_VALUE,
        }
    }
}

pub(crate) type Result<T = ()> = std::result::Result<T, Code>;

/// Handles are numbers that look like pointers, so that wrong ones are noticed.
pub(crate) fn handle(kind: usize, number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut((kind << 28) + (number + 1) * 16)
}

pub(crate) fn number(kind: usize, handle: *mut c_void) -> Result<usize> {
    let offset = handle.addr().checked_sub(kind << 28).ok_or(INVALID_HANDLE)?;
    if offset == 0 || offset % 16 != 0 || offset >= 1 << 28 {
        return Err(INVALID_HANDLE);
    }
    Ok(offset / 16 - 1)
}

const MODULE: usize = 1;
const FUNCTION: usize = 2;
const STREAM: usize = 3;
const EVENT: usize = 4;
const CONTEXT: usize = 5;
const LINKER: usize = 6;
const ARRAY: usize = 7;
pub(crate) const GRAPH: usize = 8;
pub(crate) const NODE: usize = 9;
pub(crate) const EXEC: usize = 10;
pub(crate) const POOL: usize = 11;
const MIPMAP: usize = 12;
pub(crate) const MAPPED: usize = 13;

const STREAM_NON_BLOCKING: u32 = 1;
const EVENT_DISABLE_TIMING: u32 = 2;
const EVENT_INTERPROCESS: u32 = 4;

/// The number of a stream in the clocks.
fn stream_number(stream: *mut c_void) -> Result<usize> {
    match stream.addr() {
        0 | 1 => Ok(clocks::legacy()),
        2 => Ok(clocks::per_thread()),
        _ => Ok(number(STREAM, stream)? + clocks::FIRST),
    }
}

/// Does the work of a stream.
pub(crate) fn on_stream<T>(stream: *mut c_void, work: impl FnOnce() -> Result<T>) -> Result<T> {
    clocks::on(stream_number(stream)?, work)
}

/// The context that this thread uses: each device has one.
pub(crate) fn context() -> *mut c_void {
    context_of(devices::current())
}

pub(crate) fn context_of(device: usize) -> *mut c_void {
    handle(CONTEXT, device)
}

/// A launch, as the driver's function takes it.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) cooperative: bool,
}

/// What `cuLinkCreate` makes.
#[derive(Default)]
struct Linker {
    units: Vec<Unit>,
    image: Vec<u8>,
}

/// An array of texels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array {
    pub(crate) image: Image,
    /// How its rows lie.
    pub(crate) rows: Rows,
    /// As the program gave it: zero where it has no such axis.
    pub(crate) extent: [usize; 3],
    pub(crate) flags: u32,
    /// Whether it is a level of a mipmap, which alone has the memory.
    pub(crate) in_mipmap: bool,
}

/// An event, and when it was recorded last.
#[derive(Debug, Clone, Copy)]
struct Event {
    recorded: Option<Instant>,
    flags: u32,
    /// Whether it is another process's.
    is_of_other: bool,
    device: usize,
}

/// Memory of another process that is gone.
struct FreedByOther {
    size: u64,
    process: u32,
    device: usize,
}

/// What `cuLibraryLoadData` loads: a module on each device that uses it, the first of which has the library's number.
struct Library {
    images: Vec<Vec<u8>>,
    modules: [Option<usize>; MOST],
}

/// A mipmap, and the numbers of the arrays that are its levels.
#[derive(Debug)]
struct Mipmap {
    whole: Array,
    levels: std::ops::Range<usize>,
}

/// Everything.
pub(crate) struct State {
    pub(crate) device: Device,
    pub(crate) peers: Peers,
    /// Each with its device.
    modules: Vec<Option<(usize, Module)>>,
    functions: Vec<(usize, std::ffi::CString)>,
    libraries: HashMap<usize, Library>,
    /// The device of each.
    streams: Vec<Option<usize>>,
    events: Vec<Option<Event>>,
    linkers: Vec<Option<Linker>>,
    arrays: Vec<Option<Array>>,
    mipmaps: Vec<Option<Mipmap>>,
    pub(crate) graphs: Graphs,
    pub(crate) pools: Pools,
    pub(crate) ipc: Ipc,
    pub(crate) mapped: Mapped,
    clocks: Clocks,
    /// First byte and end of managed memory whose accesses by the program are watched.
    managed: Vec<(u64, u64)>,
    /// Sizes of memory of the host that was allocated here.
    pub(crate) pinned: HashMap<u64, u64>,
    /// Sizes of memory of the device, for what is in use.
    pub(crate) allocated: HashMap<u64, u64>,
    /// By its first byte: memory of other processes that these freed while it is open here.
    freed_by_others: HashMap<u64, FreedByOther>,
    /// By device: the error of a kernel, which every later call returns that has to do with the device.
    sticky: [Option<Code>; MOST],
    /// `CUlimit`s, by their number: nothing is as large or as small because of them.
    limits: [usize; 7],
    launch: Launch,
    pub(crate) reporter: Reporter,
    counts: Option<PathBuf>,
    pub(crate) recorder: Option<Recorder>,
    /// Where a fatbin has both PTX and machine code.
    prefers_machine_code: bool,
}

/// What a GPU starts with: bytes of a stack, of printf's buffer and of malloc's heap, depth and count of
/// launches by kernels, bytes that the L2 cache fetches at once, and of it those that persist.
const LIMITS: [usize; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

/// The state, for as long as this lives. Managed memory is closed to the program by its end, where that is asked for.
pub(crate) struct Held(MutexGuard<'static, State>);

pub(crate) fn state() -> Held {
    let mut held = lock();
    if !held.managed.is_empty() {
        managed::open();
    }
    held.select(devices::current());
    Held(held)
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Held {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.managed.is_empty() && self.clocks.is_busy() {
            managed::close(&self.managed);
        }
    }
}

/// Compares an access of the program's to managed memory with what kernels do there; whether the whole allocation, which
/// starts at `start`, is not to be watched any more.
pub(crate) fn accessed_by_program(start: u64, address: u64, writes: bool) -> bool {
    let mut state = lock();
    let order = Some(state.clocks.order_of_host());
    let range = Some((address, 1));
    let found = match writes {
        true => state.device.touch("the program writes managed memory", order, None, range),
        false => state.device.touch("the program reads managed memory", order, range, None),
    };
    let number = state.device.operations();
    state.clocks.done_by_host(number);
    let Some(found) = found else { return false };
    state.reporter.report(&[found]);
    state.unwatch(start);
    true
}

/// Says something to whoever runs the program.
pub(crate) fn print_message(text: &str) {
    // There is nobody to tell that stderr is closed.
    let _ = writeln!(std::io::stderr(), "nvabi-emu: {text}");
}

/// The code of an image.
fn code(image: &[u8], prefers_machine_code: bool) -> Result<fatbin::Code> {
    if image.starts_with(&fatbin::CONTAINER.to_le_bytes()) {
        return fatbin::code(image, prefers_machine_code).map_err(|error| {
            print_message(&error);
            NO_BINARY
        });
    }
    if image.starts_with(b"\x7fELF") {
        return Ok(fatbin::Code::Cubin(image.to_vec()));
    }
    let end = image.iter().position(|byte| *byte == 0).unwrap_or(image.len());
    Ok(fatbin::Code::Ptx(String::from_utf8_lossy(&image[..end]).into_owned()))
}

/// The PTX of an image that is linked to others.
fn text(image: &[u8]) -> Result<String> {
    match code(image, false)? {
        fatbin::Code::Ptx(text) => Ok(text),
        fatbin::Code::Cubin(_) => {
            print_message("what is linked to other modules must be PTX: this is machine code");
            Err(NO_BINARY)
        }
    }
}

fn prefers_machine_code() -> bool {
    match variable("NVABI_EMU_CODE").as_deref() {
        None | Some("ptx") => false,
        Some("sass") => true,
        Some(other) => {
            print_message(&format!("NVABI_EMU_CODE: `{other}` is neither `ptx` nor `sass`"));
            false
        }
    }
}

impl State {
    fn new() -> Self {
        let mut launch = Launch::default();
        if let Some(text) = variable("NVABI_EMU_SCHEDULE") {
            match text.parse::<Schedule>() {
                Ok(schedule) => launch.schedule = schedule,
                Err(error) => print_message(&format!("NVABI_EMU_SCHEDULE: {error}")),
            }
        }
        if let Some(text) = variable("NVABI_EMU_THREADS") {
            match text.parse() {
                Ok(threads @ 1..) => launch.threads = threads,
                _ => print_message(&format!("NVABI_EMU_THREADS: `{text}` is no number of threads")),
            }
        }
        if let Some(text) = variable("NVABI_EMU_LIMIT") {
            match text.parse() {
                Ok(limit @ 1..) => launch.max_warp_instructions = limit,
                _ => print_message(&format!(
                    "NVABI_EMU_LIMIT: `{text}` is no number of instructions"
                )),
            }
        }
        launch.compare_lanes = is_set("NVABI_EMU_LANES");
        let mut device = Device::new();
        if is_set("NVABI_EMU_GLOBAL") {
            device.watch_global();
        }
        Self {
            device,
            peers: Peers::default(),
            modules: Vec::new(),
            functions: Vec::new(),
            libraries: HashMap::new(),
            streams: Vec::new(),
            events: Vec::new(),
            linkers: Vec::new(),
            arrays: Vec::new(),
            mipmaps: Vec::new(),
            graphs: Graphs::default(),
            pools: Pools::default(),
            ipc: Ipc::default(),
            mapped: Mapped::default(),
            clocks: Clocks::default(),
            managed: Vec::new(),
            pinned: HashMap::new(),
            allocated: HashMap::new(),
            freed_by_others: HashMap::new(),
            sticky: [None; MOST],
            limits: LIMITS,
            launch,
            reporter: Reporter::from_environment(),
            counts: variable("NVABI_EMU_COUNTS").map(Into::into),
            recorder: Recorder::from_environment(),
            prefers_machine_code: prefers_machine_code(),
        }
    }

    /// From now on a device allocates and runs kernels.
    pub(crate) fn select(&mut self, device: usize) {
        self.device.select(device as u8, self.peers.reached_by(device));
    }

    /// Which device's memory is around an address.
    pub(crate) fn owner(&self, address: u64) -> usize {
        let of_freed = || self.freed_by_others.get(&address).map(|freed| freed.device);
        self.device.owner(address).map(usize::from).or_else(of_freed).unwrap_or(0)
    }

    /// Bytes that are allocated of the current device.
    pub(crate) fn used(&self) -> Result<u64> {
        self.check()?;
        let current = devices::current();
        let own = self.allocated.iter().filter(|(address, _)| self.owner(**address) == current);
        Ok(own.map(|(_, size)| size).sum::<u64>() + self.mapped.used(current))
    }

    pub(crate) fn limit(&self, limit: u32) -> Result<usize> {
        self.limits.get(limit as usize).copied().ok_or(UNSUPPORTED_LIMIT)
    }

    pub(crate) fn set_limit(&mut self, limit: u32, value: usize) -> Result {
        *self.limits.get_mut(limit as usize).ok_or(UNSUPPORTED_LIMIT)? = value;
        Ok(())
    }

    /// The error that a kernel left on the current device.
    pub(crate) fn check(&self) -> Result {
        self.check_of(devices::current())
    }

    /// The same, on a device.
    fn check_of(&self, device: usize) -> Result {
        devices::check_any()?;
        self.sticky[device].map_or(Ok(()), Err)
    }

    /// The same, on the current device and on the one that has the memory around an address.
    pub(crate) fn check_memory(&self, address: u64) -> Result {
        self.check()?;
        self.device.owner(address).map_or(Ok(()), |device| self.check_of(device.into()))
    }

    /// Whether a kernel left an error on any device.
    pub(crate) fn has_failed(&self) -> bool {
        self.sticky.iter().any(Option::is_some)
    }

    /// Allocations that were not freed, and their bytes.
    pub(crate) fn leaks(&self) -> (usize, u64) {
        (self.allocated.len(), self.allocated.values().sum())
    }

    /// Ends the context of a device: all that it has is gone.
    pub(crate) fn reset(&mut self, device: usize) {
        for slot in &mut self.modules {
            let module = slot.take_if(|(of, _)| *of == device);
            module.iter().for_each(|(_, module)| self.device.unload(module));
        }
        self.libraries.values_mut().for_each(|library| library.modules[device] = None);
        let is_own = |state: &Self, address: u64| state.owner(address) == device;
        let of_arrays = |state: &Self, array: &Array| is_own(state, array.image.address);
        let mut arrays = std::mem::take(&mut self.arrays);
        arrays.iter_mut().for_each(|array| _ = array.take_if(|array| of_arrays(self, array)));
        self.arrays = arrays;
        let mut mipmaps = std::mem::take(&mut self.mipmaps);
        mipmaps
            .iter_mut()
            .for_each(|mipmap| _ = mipmap.take_if(|mipmap| of_arrays(self, &mipmap.whole)));
        self.mipmaps = mipmaps;
        let allocated = self.allocated.keys().chain(self.ipc.opened()).copied();
        let own: Vec<u64> = allocated.filter(|address| is_own(self, *address)).collect();
        own.into_iter().for_each(|address| self.forget(address));
        self.streams.iter_mut().for_each(|stream| _ = stream.take_if(|of| *of == device));
        for number in 0..self.events.len() {
            if self.events[number].take_if(|event| event.device == device).is_some() {
                self.ipc.end(Thing::Event(number));
            }
        }
        self.graphs.forget(device);
        self.pools.reset(device);
        self.peers.forget(device);
        self.clocks.wait_for_device(device);
        self.sticky[device] = None;
    }

    /// Memory is gone, whoever had it.
    fn forget(&mut self, address: u64) {
        self.allocated.remove(&address);
        self.pools.forget(address);
        self.ipc.end(Thing::Memory(address));
        self.ipc.close(address);
        self.unwatch(address);
        // Allocated or opened here, and not freed or closed since.
        let _ = self.free_mapped(address);
    }

    /// Ends an allocation, which another process may have ended before.
    pub(crate) fn free_mapped(&mut self, address: u64) -> Result {
        match self.freed_by_others.remove(&address) {
            Some(_) => Ok(()),
            None => Ok(self.device.free(address)?),
        }
    }

    /// Ends memory that other processes freed while this one has it open: a kernel that uses it does so after the free.
    fn notice_frees(&mut self) {
        let freed: Vec<_> = self.ipc.freed().chain(self.pools.freed()).collect();
        for (address, process) in freed {
            let Some((start, end)) = self.device.allocation(address) else { continue };
            let device = self.owner(address);
            // It was found.
            let _ = self.device.free(address);
            print_message(&format!(
                "process {process} has freed its memory, {} bytes that this one has open at {address:#x}",
                end - start
            ));
            let freed = FreedByOther { size: end - start, process, device };
            self.freed_by_others.insert(start, freed);
        }
    }

    /// Refuses what is done with memory that another process has freed, which is a finding.
    pub(crate) fn refuse_freed(&mut self, name: &str, address: u64, size: u64) -> Result {
        self.notice_frees();
        let is_inside = |(start, freed): &(&u64, &FreedByOther)| {
            (**start..**start + freed.size).contains(&address)
        };
        let Some((_, freed)) = self.freed_by_others.iter().find(is_inside) else { return Ok(()) };
        let message = format!(
            "{name} of {size} bytes at {address:#x}, which process {} has freed",
            freed.process
        );
        let found = Finding::of_host(FindingKind::UseAfterFree, Severity::Error, message);
        self.reporter.report(&[found]);
        Err(INVALID_VALUE)
    }

    /// Loads a module, or links several to one: PTX text, containers, cubins, or what a linker made.
    pub(crate) fn load(&mut self, images: &[&[u8]]) -> Result<*mut c_void> {
        self.check()?;
        if let [image] = images {
            if link::units(image).is_none() {
                if let fatbin::Code::Cubin(cubin) = code(image, self.prefers_machine_code)? {
                    return self.load_cubin(&cubin);
                }
            }
        }
        let mut units = Vec::new();
        for (number, image) in images.iter().enumerate() {
            match link::units(image) {
                Some(linked) => units.extend(linked?),
                None => {
                    units.push(Unit { name: format!("unit {}", number + 1), text: text(image)? })
                }
            }
        }
        if let [only] = &mut units[..] {
            only.name.clear();
        }
        let module = self.link(&units)?;
        Ok(self.add_module(module))
    }

    /// The same for whichever device comes to use it.
    pub(crate) fn load_library(&mut self, images: &[&[u8]]) -> Result<*mut c_void> {
        let library = self.load(images)?;
        let images = images.iter().map(|image| image.to_vec()).collect();
        let mut modules = [None; MOST];
        modules[devices::current()] = Some(number(MODULE, library)?);
        self.libraries.insert(number(MODULE, library)?, Library { images, modules });
        Ok(library)
    }

    /// The module of a library on a device; other modules are of one alone.
    pub(crate) fn module_on(&mut self, module: *mut c_void, device: usize) -> Result<*mut c_void> {
        let first = number(MODULE, module)?;
        let Some(library) = self.libraries.get(&first) else { return Ok(module) };
        if let Some(known) = library.modules[device] {
            return Ok(handle(MODULE, known));
        }
        let images = library.images.clone();
        devices::push(device);
        self.select(device);
        let loaded = self.load(&images.iter().map(Vec::as_slice).collect::<Vec<_>>());
        devices::pop();
        self.select(devices::current());
        let loaded = loaded?;
        if let Some(library) = self.libraries.get_mut(&first) {
            library.modules[device] = Some(number(MODULE, loaded)?);
        }
        Ok(loaded)
    }

    /// A library's kernel on a device, where it is loaded anew after a reset; others are of one device alone.
    pub(crate) fn kernel_on(&mut self, kernel: *mut c_void, device: usize) -> Result<*mut c_void> {
        let (module, name) = self.kernel(kernel)?;
        let (of_kernel, name) = (handle(MODULE, module), name.to_owned());
        let module = self.module_on(of_kernel, device)?;
        if module == of_kernel { Ok(kernel) } else { self.function(module, &name) }
    }

    fn add_module(&mut self, module: Module) -> *mut c_void {
        self.modules.push(Some((devices::current(), module)));
        handle(MODULE, self.modules.len() - 1)
    }

    fn load_cubin(&mut self, cubin: &[u8]) -> Result<*mut c_void> {
        let module = self.device.load_cubin(cubin).map_err(|error| {
            print_message(&format!("the cubin cannot be loaded: {error}"));
            NO_BINARY
        })?;
        Ok(self.add_module(module))
    }

    fn link(&mut self, units: &[Unit]) -> Result<Module> {
        let texts: Vec<_> =
            units.iter().map(|unit| (unit.name.as_str(), unit.text.as_str())).collect();
        self.device.link(&texts).map_err(|error| {
            print_message(&error.to_string());
            INVALID_PTX
        })
    }

    pub(crate) fn linker_create(&mut self) -> *mut c_void {
        self.linkers.push(Some(Linker::default()));
        handle(LINKER, self.linkers.len() - 1)
    }

    fn linker(&mut self, linker: *mut c_void) -> Result<&mut Linker> {
        let slot = self.linkers.get_mut(number(LINKER, linker)?);
        slot.and_then(Option::as_mut).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn linker_add(&mut self, linker: *mut c_void, name: &str, image: &[u8]) -> Result {
        let unit = Unit { name: name.to_owned(), text: text(image)? };
        self.linker(linker)?.units.push(unit);
        Ok(())
    }

    /// The linked image, which lives as long as the linker.
    pub(crate) fn linker_complete(
        &mut self,
        linker: *mut c_void,
    ) -> Result<(*const c_void, usize)> {
        let units = std::mem::take(&mut self.linker(linker)?.units);
        let module = self.link(&units)?;
        self.device.unload(&module);
        let linker = self.linker(linker)?;
        linker.image = link::image(&units);
        Ok((linker.image.as_ptr().cast(), linker.image.len()))
    }

    pub(crate) fn linker_destroy(&mut self, linker: *mut c_void) -> Result {
        self.linker(linker)?;
        let slot = self.linkers.get_mut(number(LINKER, linker)?).ok_or(INVALID_HANDLE)?;
        *slot = None;
        Ok(())
    }

    fn module(&self, module: usize) -> Result<&Module> {
        let slot = self.modules.get(module).and_then(Option::as_ref);
        slot.map(|(_, module)| module).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn unload(&mut self, module: *mut c_void) -> Result {
        let slot = self.modules.get_mut(number(MODULE, module)?).ok_or(INVALID_HANDLE)?;
        let (_, module) = slot.take().ok_or(INVALID_HANDLE)?;
        self.device.unload(&module);
        Ok(())
    }

    pub(crate) fn unload_library(&mut self, library: *mut c_void) -> Result {
        let of = self.libraries.remove(&number(MODULE, library)?).ok_or(INVALID_HANDLE)?;
        of.modules.iter().flatten().try_for_each(|module| self.unload(handle(MODULE, *module)))
    }

    pub(crate) fn symbol(&self, module: *mut c_void, name: &str) -> Result<(u64, u64)> {
        self.module(number(MODULE, module)?)?.symbol(name).ok_or(NOT_FOUND)
    }

    /// The handle of a kernel: the same each time.
    pub(crate) fn function(
        &mut self,
        module: *mut c_void,
        name: &std::ffi::CStr,
    ) -> Result<*mut c_void> {
        let module = number(MODULE, module)?;
        let text = name.to_str().map_err(|_| NOT_FOUND)?;
        self.module(module)?.params(text).ok_or(NOT_FOUND)?;
        let known = self.functions.iter().position(|(m, n)| *m == module && n.as_c_str() == name);
        let at = known.unwrap_or_else(|| {
            self.functions.push((module, name.to_owned()));
            self.functions.len() - 1
        });
        Ok(handle(FUNCTION, at))
    }

    fn kernel(&self, function: *mut c_void) -> Result<(usize, &std::ffi::CStr)> {
        let (module, name) =
            self.functions.get(number(FUNCTION, function)?).ok_or(INVALID_HANDLE)?;
        Ok((*module, name))
    }

    /// The device that a kernel is of: whose module has it.
    pub(crate) fn device_of_kernel(&self, function: *mut c_void) -> Result<usize> {
        let (module, _) = self.kernel(function)?;
        let slot = self.modules.get(module).and_then(Option::as_ref);
        slot.map(|(device, _)| *device).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn module_of(&self, function: *mut c_void) -> Result<*mut c_void> {
        Ok(handle(MODULE, self.kernel(function)?.0))
    }

    /// The name of a kernel. Functions are never forgotten, so it can be handed out.
    pub(crate) fn name_of(&self, function: *mut c_void) -> Result<*const std::ffi::c_char> {
        Ok(self.kernel(function)?.1.as_ptr())
    }

    pub(crate) fn shared_size(&self, function: *mut c_void) -> Result<u64> {
        let (module, name) = self.kernel(function)?;
        let name = name.to_str().map_err(|_| NOT_FOUND)?;
        self.module(module)?.shared_size(name).ok_or(INVALID_HANDLE)
    }

    /// Offset and size of each parameter of a kernel.
    pub(crate) fn params(&self, function: *mut c_void) -> Result<Vec<(u64, u64)>> {
        let (module, name) = self.kernel(function)?;
        let name = name.to_str().map_err(|_| NOT_FOUND)?;
        Ok(self.module(module)?.params(name).ok_or(INVALID_HANDLE)?.to_vec())
    }

    /// Runs a kernel on the device that it is of.
    pub(crate) fn launch(
        &mut self,
        function: *mut c_void,
        request: &Request,
        args: &[u8],
    ) -> Result {
        let device = self.device_of_kernel(function)?;
        self.check_of(device)?;
        self.notice_frees();
        self.select(device);
        let launched = self.launch_on(device, function, request, args);
        self.select(devices::current());
        launched
    }

    /// What a kernel does wrong is the error of the calls after this one, as with a GPU.
    fn launch_on(
        &mut self,
        device: usize,
        function: *mut c_void,
        request: &Request,
        args: &[u8],
    ) -> Result {
        let (module, name) = self.kernel(function)?;
        let name = name.to_str().map_err(|_| NOT_FOUND)?.to_owned();
        let mut launch = Launch {
            grid: request.grid,
            block: request.block,
            shared_bytes: request.shared_bytes,
            cooperative: request.cooperative,
            ..self.launch.clone()
        };
        let Some((_, loaded)) = self.modules.get(module).and_then(Option::as_ref) else {
            return Err(INVALID_HANDLE);
        };
        let recorder = match &mut self.recorder {
            Some(recorder) => recorder.prepare(&name, &mut launch).then_some(recorder),
            None => None,
        };
        let args = Args::new().bytes(args, 1);
        if self.device.is_watching() {
            launch.order = Some(self.clocks.order(clocks::current_or_default()));
        }
        let report = self.device.launch(loaded, &name, &launch, &args).map_err(|error| {
            print_message(&error.to_string());
            Code::from(error)
        })?;
        if let Some(order) = launch.order.take() {
            self.clocks.submitted(order, self.device.operations());
        }
        if let Some(recorder) = recorder {
            recorder.write(module, &name, &launch, &report);
        }
        print(&report.output);
        self.reporter.report(&report.findings);
        if let Some(path) = &self.counts {
            let Report { warp_instructions, lane_instructions, .. } = report;
            append(path, &format!("{name} {warp_instructions} {lane_instructions}\n"));
        }
        self.sticky[device] = report.fatal().map(|finding| match finding.kind {
            FindingKind::OutOfBounds | FindingKind::UseAfterFree => ILLEGAL_ADDRESS,
            FindingKind::Misaligned => MISALIGNED,
            FindingKind::Assert => ASSERT,
            FindingKind::Deadlock | FindingKind::Endless => TIMEOUT,
            _ => LAUNCH_FAILED,
        });
        Ok(())
    }

    pub(crate) fn alloc(&mut self, size: u64) -> Result<u64> {
        self.alloc_by(size, Device::alloc)
    }

    /// The same, on a device.
    pub(crate) fn alloc_of(&mut self, device: usize, size: u64) -> Result<u64> {
        self.select(device);
        let address = self.alloc(size);
        self.select(devices::current());
        address
    }

    fn alloc_by(
        &mut self,
        size: u64,
        alloc: impl FnOnce(&mut Device, u64) -> std::result::Result<u64, DeviceError>,
    ) -> Result<u64> {
        self.check()?;
        let address = alloc(&mut self.device, size)?;
        self.allocated.insert(address, size);
        Ok(address)
    }

    /// Memory that the program accesses, too, without a call: all of it counts as written.
    pub(crate) fn alloc_managed(&mut self, size: u64) -> Result<u64> {
        if !self.device.is_watching() {
            return self.alloc_by(size, Device::alloc_host);
        }
        let address = self.alloc_by(size, Device::alloc_apart)?;
        self.device.mark_written(address, size);
        self.managed.push((address, address + size));
        managed::listen();
        Ok(address)
    }

    /// What the program does with managed memory around an address is not watched any more.
    pub(crate) fn unwatch(&mut self, address: u64) {
        self.managed.retain(|(start, end)| !(*start..*end).contains(&address));
    }

    pub(crate) fn free(&mut self, address: u64) -> Result {
        self.check_memory(address)?;
        if self.ipc.has_opened(address) {
            print_message(&format!(
                "{address:#x} is another process's: closed by cuIpcCloseMemHandle"
            ));
        }
        if self.pools.is_imported_again(address) {
            return Ok(());
        }
        self.allocated.remove(&address).ok_or(INVALID_VALUE)?;
        self.pools.forget(address);
        self.ipc.end(Thing::Memory(address));
        self.unwatch(address);
        // One that names no stream waits for all.
        match clocks::current() {
            Some(_) => {
                let allocation = self.device.allocation(address);
                self.touch("a free", None, allocation.map(|(start, end)| (start, end - start)));
            }
            None => self.clocks.wait_for_all(),
        }
        self.free_mapped(address)
    }

    /// A copy, a fill or a free comes after the work of its stream; what it reads and writes, each by its first byte and
    /// size, is reported where it races with that of another stream.
    pub(crate) fn touch(
        &mut self,
        name: &str,
        read: Option<(u64, u64)>,
        written: Option<(u64, u64)>,
    ) {
        if !self.device.is_watching() {
            return;
        }
        let order = self.clocks.order(clocks::current_or_default());
        let bytes = written.or(read).map_or(0, |(_, size)| size);
        let name = format!("{name} of {bytes} bytes");
        let found = self.device.touch(&name, Some(order.clone()), read, written);
        self.clocks.submitted(order, self.device.operations());
        self.reporter.report(found.as_slice());
    }

    /// Whether memory is the device's, and not the host's.
    pub(crate) fn is_of_device(&self, address: u64) -> bool {
        let allocation = self.device.allocation(address);
        allocation.is_some_and(|(start, _)| {
            let is_own = self.allocated.contains_key(&start) && !self.pinned.contains_key(&start);
            is_own || self.ipc.has_opened(start) || self.mapped.has(start)
        })
    }

    /// The two devices whose work a copy between them is in turn with, as it is where it names no stream; else none.
    pub(crate) fn devices_between(&self, to: u64, from: u64) -> Vec<usize> {
        let devices = vec![self.owner(to), self.owner(from)];
        let are_two = devices[0] != devices[1] && self.is_of_device(to) && self.is_of_device(from);
        if clocks::current().is_none() && are_two { devices } else { Vec::new() }
    }

    /// The host waits for what has named no stream, or for the stream whose work is done.
    pub(crate) fn wait_for_current(&mut self) {
        self.clocks.wait_for_stream(clocks::current_or_default());
    }

    /// The host waits for a device.
    pub(crate) fn wait_for_device(&mut self, device: usize) -> Result {
        self.clocks.wait_for_device(device);
        self.check_of(device)
    }

    /// The host waits for everything.
    pub(crate) fn wait_for_all(&mut self) -> Result {
        self.clocks.wait_for_all();
        self.check()
    }

    /// What names no stream comes behind all that some devices were given.
    pub(crate) fn default_waits(&mut self, devices: &[usize]) {
        self.clocks.default_waits(devices);
    }

    /// All that some devices are given from now on comes behind what named no stream.
    pub(crate) fn wait_for_default(&mut self, devices: &[usize]) {
        self.clocks.wait_for_default(devices);
    }

    /// The host waits for a stream, or learns that it has done everything.
    pub(crate) fn wait_for_stream(&mut self, stream: *mut c_void) -> Result {
        self.stream(stream)?;
        self.clocks.wait_for_stream(stream_number(stream)?);
        Ok(())
    }

    /// A stream waits for an event.
    pub(crate) fn stream_waits(&mut self, stream: *mut c_void, event: *mut c_void) -> Result {
        self.clocks.stream_waits(stream_number(stream)?, number(EVENT, event)?);
        Ok(())
    }

    /// Memory of the host, which kernels reach, too.
    pub(crate) fn alloc_host(&mut self, size: u64) -> Result<u64> {
        let address = self.alloc_by(size, Device::alloc_host)?;
        self.device.mark_written(address, size);
        self.pinned.insert(address, size);
        Ok(address)
    }

    pub(crate) fn free_host(&mut self, address: u64) -> Result {
        self.pinned.remove(&address).ok_or(INVALID_VALUE)?;
        self.free(address)
    }

    /// Whether memory of the device is where a call says it is.
    pub(crate) fn inside(&self, address: u64, size: u64) -> Result {
        self.check_memory(address)?;
        if size == 0 || self.device.contains(address, size) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    pub(crate) fn stream_create(&mut self, flags: u32) -> Result<*mut c_void> {
        self.check()?;
        self.streams.push(Some(devices::current()));
        let stream = handle(STREAM, self.streams.len() - 1);
        self.clocks.create(stream_number(stream)?, flags & STREAM_NON_BLOCKING != 0);
        Ok(stream)
    }

    /// A stream that does things: one that is captured does none.
    pub(crate) fn stream(&self, stream: *mut c_void) -> Result {
        self.known_stream(stream)?;
        if self.graphs.is_capturing(stream) { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Whether a stream is captured, and what it would do added to the graph.
    pub(crate) fn captures(
        &mut self,
        stream: *mut c_void,
        work: impl FnOnce() -> Work,
    ) -> Result<bool> {
        self.known_stream(stream)?;
        Ok(self.graphs.captured(stream, work))
    }

    /// A stream, which may be one of the default ones.
    pub(crate) fn known_stream(&self, stream: *mut c_void) -> Result {
        self.check_of(self.device_of(stream)?)
    }

    /// The device that a stream is of; the default ones are of each.
    pub(crate) fn device_of(&self, stream: *mut c_void) -> Result<usize> {
        if stream.addr() <= 2 {
            return Ok(devices::current());
        }
        self.streams.get(number(STREAM, stream)?).copied().flatten().ok_or(INVALID_HANDLE)
    }

    /// Whether a stream runs a kernel: one of its own device.
    pub(crate) fn takes_kernel(&self, stream: *mut c_void, function: *mut c_void) -> Result {
        match self.device_of(stream)? == self.device_of_kernel(function)? {
            true => Ok(()),
            false => Err(INVALID_HANDLE),
        }
    }

    /// Whether an event may be recorded by a stream: those of one device are.
    pub(crate) fn takes_event(&mut self, stream: *mut c_void, event: *mut c_void) -> Result {
        let device = self.device_of(stream)?;
        if self.event_slot(event)?.device == device { Ok(()) } else { Err(INVALID_HANDLE) }
    }

    pub(crate) fn stream_destroy(&mut self, stream: *mut c_void) -> Result {
        self.known_stream(stream)?;
        let slot = self.streams.get_mut(number(STREAM, stream)?);
        slot.and_then(Option::take).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn array_create(&mut self, array: Array) -> *mut c_void {
        self.arrays.push(Some(array));
        handle(ARRAY, self.arrays.len() - 1)
    }

    pub(crate) fn array(&self, array: *mut c_void) -> Result<Array> {
        let slot = self.arrays.get(number(ARRAY, array)?);
        slot.copied().flatten().ok_or(INVALID_HANDLE)
    }

    pub(crate) fn array_destroy(&mut self, array: *mut c_void) -> Result<Array> {
        let slot = self.arrays.get_mut(number(ARRAY, array)?);
        slot.and_then(Option::take).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn mipmap_create(&mut self, whole: Array, levels: Vec<Array>) -> *mut c_void {
        let first = self.arrays.len();
        self.arrays.extend(levels.into_iter().map(Some));
        let levels = first..self.arrays.len();
        self.mipmaps.push(Some(Mipmap { whole, levels }));
        handle(MIPMAP, self.mipmaps.len() - 1)
    }

    fn mipmap_slot(&self, mipmap: *mut c_void) -> Result<&Mipmap> {
        let slot = self.mipmaps.get(number(MIPMAP, mipmap)?);
        slot.and_then(Option::as_ref).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn mipmap(&self, mipmap: *mut c_void) -> Result<Array> {
        Ok(self.mipmap_slot(mipmap)?.whole)
    }

    pub(crate) fn mipmap_level(&self, mipmap: *mut c_void, level: u32) -> Result<*mut c_void> {
        let number = self.mipmap_slot(mipmap)?.levels.clone().nth(level as usize);
        number.map(|number| handle(ARRAY, number)).ok_or(INVALID_VALUE)
    }

    /// Its levels are gone with it; where its memory is.
    pub(crate) fn mipmap_destroy(&mut self, mipmap: *mut c_void) -> Result<u64> {
        let slot = self.mipmaps.get_mut(number(MIPMAP, mipmap)?);
        let Mipmap { whole, levels } = slot.and_then(Option::take).ok_or(INVALID_HANDLE)?;
        self.arrays[levels].fill(None);
        Ok(whole.image.address)
    }

    pub(crate) fn event_create(&mut self, flags: u32) -> Result<*mut c_void> {
        self.check()?;
        if flags & EVENT_INTERPROCESS != 0 && flags & EVENT_DISABLE_TIMING == 0 {
            return Err(INVALID_VALUE);
        }
        Ok(self.add_event(flags, false))
    }

    /// One that another process may record and wait for, too.
    pub(crate) fn event_of_other_process(&mut self) -> *mut c_void {
        let flags = EVENT_INTERPROCESS | EVENT_DISABLE_TIMING;
        self.add_event(flags, true)
    }

    fn add_event(&mut self, flags: u32, is_of_other: bool) -> *mut c_void {
        let device = devices::current();
        self.events.push(Some(Event { recorded: None, flags, is_of_other, device }));
        handle(EVENT, self.events.len() - 1)
    }

    /// The number of an event of this process's that others may open.
    pub(crate) fn event_between_processes(&mut self, event: *mut c_void) -> Result<usize> {
        self.event(event)?;
        let Event { flags, is_of_other, .. } = *self.event_slot(event)?;
        if flags & EVENT_INTERPROCESS == 0 || is_of_other {
            return Err(INVALID_HANDLE);
        }
        number(EVENT, event)
    }

    fn event_slot(&mut self, event: *mut c_void) -> Result<&mut Event> {
        let slot = self.events.get_mut(number(EVENT, event)?);
        slot.and_then(Option::as_mut).ok_or(INVALID_HANDLE)
    }

    /// Records an event, as the stream does whose work is done.
    pub(crate) fn event_record(&mut self, event: *mut c_void) -> Result {
        self.event(event)?;
        let slot = self.event_slot(event)?;
        slot.recorded = Some(Instant::now());
        let is_of_other = slot.is_of_other;
        let number = number(EVENT, event)?;
        self.clocks.record(number, clocks::current_or_default());
        // Another process may wait for it, and tell this one: what comes from now on may come behind it.
        if is_of_other || self.ipc.has_given_event(number) {
            self.wait_for_current();
        }
        Ok(())
    }

    /// The host waits for an event, or learns that it came.
    pub(crate) fn wait_for_event(&mut self, event: *mut c_void) -> Result {
        self.event(event)?;
        self.clocks.wait_for_event(number(EVENT, event)?);
        Ok(())
    }

    pub(crate) fn event(&mut self, event: *mut c_void) -> Result {
        let device = self.event_slot(event)?.device;
        self.check_of(device)
    }

    pub(crate) fn event_destroy(&mut self, event: *mut c_void) -> Result {
        self.event(event)?;
        let number = number(EVENT, event)?;
        let slot = self.events.get_mut(number).ok_or(INVALID_HANDLE)?;
        *slot = None;
        self.ipc.end(Thing::Event(number));
        Ok(())
    }

    /// When an event was recorded, if it keeps that.
    fn time_of(&mut self, event: *mut c_void) -> Result<Instant> {
        let Event { recorded, flags, .. } = *self.event_slot(event)?;
        let has_time = flags & EVENT_DISABLE_TIMING == 0;
        recorded.filter(|_| has_time).ok_or(INVALID_HANDLE)
    }

    /// Milliseconds between two events.
    pub(crate) fn elapsed(&mut self, start: *mut c_void, end: *mut c_void) -> Result<f32> {
        if self.event_slot(start)?.device != self.event_slot(end)?.device {
            return Err(INVALID_HANDLE);
        }
        let start = self.time_of(start)?;
        self.wait_for_event(end)?;
        let end = self.time_of(end)?;
        Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3)
    }
}

/// Writes to C's stdout, so that it is in order with what the program prints.
fn print(bytes: &[u8]) {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    if !bytes.is_empty() {
        // SAFETY: `stdout` is glibc's and musl's own object, of this name and type, and set before any code of
        // the program runs; fwrite(3) reads `1 * bytes.len()` bytes, which the slice has.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stdout) };
    }
}
