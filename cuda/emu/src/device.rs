//! The device: its memory, its modules, and launches.

use std::collections::HashMap;
use std::fs::File;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use crate::error::{DeviceError, LoadError, load_error};
use crate::memory::{BlockAccess, Foreign, GlobalProblem, Memory, Order, Reach, SharedRange};
use crate::program::{self, CODE_WINDOW, Linked, Program, Target, Unit};
use crate::ptx::{self, Init, Linkage, Space};
use crate::report::{Finding, FindingKind, Report, Severity};
use crate::run::{self, Code, Grid, PtxCode, Room, SassCode, Turn};
use crate::sass;
use crate::texture::{Texture, Textures};
use crate::time::Time;

/// Cores of this machine: asked once, for it takes reading several files.
static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// Most threads of a block.
pub const MAX_BLOCK_THREADS: u32 = 1024;
/// Most bytes of shared memory of a block.
pub const MAX_SHARED_BYTES: u64 = 227 << 10;

/// Bytes of shared memory that are the system's, of each block, from sm_80 on.
pub const RESERVED_SHARED_BYTES: u64 = 1 << 10;
/// Most bytes of local memory of a thread.
pub const MAX_LOCAL_BYTES: u64 = 512 << 10;

/// Most bytes of this process that the blocks of a launch take at once: their local memory, shared memory with its
/// shadow, and registers.
pub const MAX_LAUNCH_BYTES: u64 = 4 << 30;

/// Bytes that CUDA's headers keep for each cooperative launch: their number, then a word that blocks count in.
const WORKSPACE_BYTES: u64 = 8;

/// In which order blocks and warps run.
///
/// Either is deterministic: the same launch gives the same memory, output and events, on any number of
/// threads, as long as blocks pass data to each other only by atomic or volatile accesses. For others,
/// run on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// Blocks by index; a warp runs until it waits, or has run for long.
    #[default]
    InOrder,
    /// Blocks in an order, and warps in turns of a few instructions, that this seed decides.
    Random(u64),
}

impl FromStr for Schedule {
    type Err = String;

    /// `in-order` or `random:SEED`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "in-order" {
            return Ok(Self::InOrder);
        }
        text.strip_prefix("random:")
            .and_then(|seed| seed.parse().ok())
            .map(Self::Random)
            .ok_or_else(|| format!("`{text}` is no schedule: `in-order` or `random:SEED`"))
    }
}

/// How to launch a kernel.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// In which order blocks and warps run.
    pub schedule: Schedule,
    /// Threads of this process that run blocks.
    pub threads: usize,
    /// Whether all blocks are there at once and may wait for each other; they share one thread then.
    pub cooperative: bool,
    /// Whether to report what each warp did.
    pub observe: bool,
    /// Of so many warps of the grid one is reported, by [`Launch::warp_number`].
    pub observe_every: u32,
    /// What each warp did that is kept, from the first on; of the others their number is.
    pub most_events: usize,
    /// Whether shared memory is watched for races and for reads of what nobody wrote.
    pub checks: bool,
    /// Whether lanes of a warp race on shared memory, too, where nothing that they do together is between two accesses;
    /// those of machine code never do.
    pub compare_lanes: bool,
    /// Instructions after which a block counts as endless, counted once per warp; of a cooperative grid,
    /// those of all its blocks.
    pub max_warp_instructions: u64,
    /// Which earlier launches and copies this one is behind, where memory is watched; without it, all of them.
    pub order: Option<Order>,
    /// Ends the launch when somebody sets it; what the report says then is not the whole.
    pub stop: Option<Arc<AtomicBool>>,
    /// What clock and timer count. Without it both count the instructions of the block, and come to the same each time.
    pub time: Option<Time>,
}

impl Default for Launch {
    /// One block of one thread, on all cores.
    fn default() -> Self {
        Self {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            schedule: Schedule::InOrder,
            threads: *CORES,
            cooperative: false,
            observe: false,
            observe_every: 1,
            most_events: usize::MAX,
            checks: true,
            compare_lanes: false,
            max_warp_instructions: 1 << 27,
            order: None,
            stop: None,
            time: None,
        }
    }
}

impl Launch {
    /// Warps of a block.
    #[must_use]
    pub fn warps_of_block(&self) -> u64 {
        run::product(self.block).div_ceil(32)
    }

    /// Warps of the grid.
    #[must_use]
    pub fn warps(&self) -> u64 {
        run::product(self.grid).saturating_mul(self.warps_of_block())
    }

    /// The number of a warp of a block in the grid: block after block, x first.
    #[must_use]
    pub fn warp_number(&self, block: [u32; 3], warp: u32) -> u64 {
        let ([x, y, z], [wide, high, _]) = (block.map(u64::from), self.grid.map(u64::from));
        (x + wide * (y + high * z)) * self.warps_of_block() + u64::from(warp)
    }

    /// Most bytes of this process that its blocks take at once, with so many bytes of shared memory each and of local
    /// memory a thread, whatever the code.
    #[must_use]
    pub fn most_bytes(&self, shared: u64, local: u64) -> u64 {
        run::most_bytes(self, shared, local)
    }
}

/// Machine code that lies in the device's memory, and what its launch has besides grid and block: all that a GPU reads
/// from the description of a launch.
#[derive(Debug, Clone, Default)]
pub struct Placed {
    /// The number behind `sm_`.
    pub sm: u32,
    /// Address of its first instruction.
    pub entry: u64,
    /// Bytes of shared memory of a block, of which `Launch::shared_bytes` says nothing then.
    pub shared_bytes: u64,
    /// Bytes of local memory of a thread: from its first address on, and up to its last, 2²⁴ - 1.
    pub local_bytes: [u64; 2],
    /// Banks of constants, by their numbers. Bank 0 has the parameters.
    pub banks: Vec<(usize, Vec<u8>)>,
    /// What finds its textures and surfaces; without it they are those of [`Device::bind`].
    pub textures: Option<Arc<dyn Textures>>,
}

/// The arguments of a kernel, laid out as it expects them.
#[derive(Debug, Clone, Default)]
pub struct Args {
    bytes: Vec<u8>,
}

impl Args {
    /// No arguments yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an argument of any type, aligned to `align` bytes.
    #[must_use]
    pub fn bytes(mut self, value: &[u8], align: usize) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(align.max(1)), 0);
        self.bytes.extend_from_slice(value);
        self
    }

    /// Adds a pointer or an unsigned 64-bit argument.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes(), 8)
    }

    /// Adds an unsigned 32-bit argument.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// Adds a signed 32-bit argument.
    #[must_use]
    pub fn i32(self, value: i32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// Adds a `float` argument.
    #[must_use]
    pub fn f32(self, value: f32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// Adds a `double` argument.
    #[must_use]
    pub fn f64(self, value: f64) -> Self {
        self.bytes(&value.to_le_bytes(), 8)
    }
}

/// A module that a device has loaded.
#[derive(Debug)]
pub struct Module {
    code: Loaded,
    /// Address and size of each variable.
    symbols: HashMap<String, (u64, u64)>,
    /// Of all variables, those that share a name, too.
    variables: Vec<u64>,
}

/// The code of a module.
#[derive(Debug)]
enum Loaded {
    Ptx(Program),
    Sass(Box<sass::Program>),
}

/// What a launch needs to know of a kernel.
struct Needs {
    params: Vec<(u64, u64)>,
    /// Bytes of all parameters.
    bytes: u64,
    shared_size: u64,
    max_threads: Option<u64>,
}

impl Module {
    fn needs(&self, kernel: &str) -> Option<Needs> {
        match &self.code {
            Loaded::Ptx(program) => {
                let function = &program.functions[*program.kernels.get(kernel)?];
                Some(Needs {
                    params: function.params.clone(),
                    bytes: function.params.last().map_or(0, |(at, size)| at + size),
                    shared_size: function.shared_size,
                    max_threads: function.max_threads,
                })
            }
            Loaded::Sass(program) => {
                let kernel = program.kernels.get(kernel)?;
                Some(Needs {
                    params: kernel.params.clone(),
                    bytes: kernel.param_bytes,
                    shared_size: kernel.shared_size,
                    max_threads: kernel.max_threads,
                })
            }
        }
    }

    /// Address and size of a `__device__` or `__constant__` variable, by its name in the PTX.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<(u64, u64)> {
        self.symbols.get(name).copied()
    }

    /// The names of the kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        let names: Vec<&str> = match &self.code {
            Loaded::Ptx(program) => program.kernels.keys().map(String::as_str).collect(),
            Loaded::Sass(program) => program.kernels.keys().map(String::as_str).collect(),
        };
        names.into_iter()
    }

    /// Offset and size of each parameter of a kernel, in bytes.
    #[must_use]
    pub fn params(&self, kernel: &str) -> Option<Vec<(u64, u64)>> {
        Some(self.needs(kernel)?.params)
    }

    /// Bytes of static shared memory of a kernel.
    #[must_use]
    pub fn shared_size(&self, kernel: &str) -> Option<u64> {
        Some(self.needs(kernel)?.shared_size)
    }
}

/// A device: memory in this process's own address space, and the number of operations so far.
#[derive(Debug, Default)]
pub struct Device {
    memory: Memory,
    textures: HashMap<u64, Texture>,
    texture_count: u64,
    operations: u64,
}

impl Device {
    /// A device with nothing on it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A device whose kernels reach memory that is there already, beside what is allocated here.
    #[must_use]
    pub fn beside(foreign: Arc<dyn Foreign>) -> Self {
        Self { memory: Memory::beside(foreign), ..Self::default() }
    }

    /// Loads a module from its PTX text and initialises its variables.
    ///
    /// # Errors
    ///
    /// A syntax error, or an instruction that the emulator lacks, with its line.
    pub fn load(&mut self, text: &str) -> Result<Module, LoadError> {
        self.link(&[("", text)])
    }

    /// Loads a module from a cubin, machine code for sm_80 to sm_90, and initialises its variables. Instructions
    /// that are not run here end a launch that comes to them, and no other.
    ///
    /// # Errors
    ///
    /// A file that is no cubin for these architectures, or that needs what is not there.
    pub fn load_cubin(&mut self, file: &[u8]) -> Result<Module, LoadError> {
        let mut variables = Vec::new();
        let loaded = sass::load(file, &mut self.memory, &mut variables);
        if loaded.is_err() {
            self.free_all(&variables);
        }
        let program = loaded?;
        let symbols = program.symbols.iter().map(|(name, place)| (name.clone(), *place)).collect();
        Ok(Module { symbols, variables, code: Loaded::Sass(Box::new(program)) })
    }

    /// Loads a module from several PTX texts, each with a name for messages. What is `.visible` or `.weak`
    /// in one of them is found by the others' `.extern`.
    ///
    /// # Errors
    ///
    /// As [`Device::load`]; also a name that is defined twice or, where it is used, nowhere, or that two
    /// modules disagree about.
    pub fn link(&mut self, texts: &[(&str, &str)]) -> Result<Module, LoadError> {
        let mut units = Vec::new();
        for (name, text) in texts {
            let module = ptx::parse(text).map_err(|error| error.in_unit(name))?;
            units.push(Unit { name, module });
        }
        let linked = program::link(&units)?;
        let mut variables = Vec::new();
        let loaded = self.location(&units, &linked, &mut variables);
        if loaded.is_err() {
            self.free_all(&variables);
        }
        let program = loaded?;
        let mut symbols = HashMap::new();
        for ((_, variable), address) in linked.variables.iter().zip(&variables) {
            // What others see, before what one module keeps to itself.
            if variable.linkage != Linkage::Local || !symbols.contains_key(variable.name) {
                symbols.insert(variable.name.to_owned(), (*address, variable.size));
            }
        }
        symbols.retain(|_, (address, _)| *address != 0);
        Ok(Module { symbols, variables, code: Loaded::Ptx(program) })
    }

    /// Allocates the variables of a program, decodes it, and writes what they start with.
    fn location(
        &mut self,
        units: &[Unit<'_>],
        linked: &Linked<'_, '_>,
        addresses: &mut Vec<u64>,
    ) -> Result<Program, LoadError> {
        for (unit, variable) in &linked.variables {
            // Shared variables are each block's.
            let address = match variable.space {
                Space::Shared => Ok(0),
                _ => self.memory.alloc(variable.size),
            };
            addresses.push(address.map_err(|error| {
                let what = format!("`{}`: {error}", variable.name);
                load_error(variable.line, what).in_unit(units[*unit].name)
            })?);
        }
        let program = program::decode(units, linked, addresses)?;
        for ((unit, variable), address) in linked.variables.iter().zip(&*addresses) {
            let value = |name: &str| match *linked.scopes[*unit].get(name)? {
                Target::Function(at) => Some(CODE_WINDOW + at as u64),
                Target::Variable(at) => addresses.get(at).copied().filter(|address| *address != 0),
            };
            let bytes =
                initial(variable, value).map_err(|error| error.in_unit(units[*unit].name))?;
            // The bytes are cut to the size that was allocated; shared variables have none.
            let _ = self.memory.write(*address, &bytes);
            self.memory.mark(*address, variable.size);
        }
        Ok(program)
    }

    fn free_all(&mut self, variables: &[u64]) {
        for address in variables.iter().filter(|address| **address != 0) {
            // Loading allocated them, and nothing else frees them.
            let _ = self.memory.free(*address);
        }
        self.memory.unmap_freed();
    }

    /// Frees the variables of a module.
    pub fn unload(&mut self, module: &Module) {
        self.free_all(&module.variables);
    }

    /// From now on this is one of several devices that share addresses, by its number up to 63: what is allocated is its
    /// own, and its kernels reach memory of the devices that have a bit, and what the program accesses as well.
    pub fn select(&mut self, device: u8, reaches: u64) {
        self.memory.select(device, reaches);
    }

    /// Which of the devices memory belongs to.
    #[must_use]
    pub fn owner(&self, address: u64) -> Option<u8> {
        self.memory.device_of(address).map(|(device, _)| device)
    }

    /// Lets kernels of the devices that have a bit, and of no others, reach an allocation, by its first byte: memory of a
    /// pool, which those of its own reach as well, or that of [`Device::map_at`].
    pub fn open_to(&mut self, address: u64, devices: u64) {
        self.memory.open_to(address, devices);
    }

    /// A bit for each device that [`Device::open_to`] let reach an allocation, by its first byte.
    #[must_use]
    pub fn opened_to(&self, address: u64) -> Option<u64> {
        self.memory.opened_to(address)
    }

    /// Allocates zeroed memory, aligned to 256 bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    pub fn alloc(&mut self, size: u64) -> Result<u64, DeviceError> {
        self.memory.alloc(size)
    }

    /// As [`Device::alloc`], in pages of the system that hold nothing else.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    pub fn alloc_apart(&mut self, size: u64) -> Result<u64, DeviceError> {
        self.memory.alloc_apart(size)
    }

    /// As [`Device::alloc`], for memory that the program accesses without this device: it is never shared.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    pub fn alloc_host(&mut self, size: u64) -> Result<u64, DeviceError> {
        self.memory.alloc_host(size)
    }

    /// Lets other processes map the allocation of [`Device::alloc`] around an address, until it is freed: where it
    /// starts, and where they find it. It counts as written. Its bytes move, which nothing may write to meanwhile.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NotShared`] for other memory, [`DeviceError::NoFileLeft`], and [`DeviceError::OutOfMemory`] where
    /// the system refuses for another reason.
    pub fn share(&mut self, address: u64) -> Result<(u64, SharedRange), DeviceError> {
        self.memory.share(address)
    }

    /// Maps memory that other processes share, by its file: the address here, until [`Device::free`]. What they do with it
    /// is not known: what they may have written [`Device::mark_written`] takes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoFile`] for another file, and [`DeviceError::OutOfMemory`] where the system refuses.
    pub fn map(&mut self, file: &File, offset: u64, size: u64) -> Result<u64, DeviceError> {
        self.memory.map(file, offset, size)
    }

    /// Reserves addresses for [`Device::map_at`], from a multiple of `align` on, which is a power of two; the first one.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    pub fn reserve(&mut self, size: u64, align: u64) -> Result<u64, DeviceError> {
        self.memory.reserve(size, align)
    }

    /// Ends a reservation, by its first address and size, in which nothing is mapped.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadRange`] for what is no such reservation.
    pub fn unreserve(&mut self, address: u64, size: u64) -> Result<(), DeviceError> {
        self.memory.unreserve(address, size)
    }

    /// As [`Device::map`], at reserved addresses. Kernels of no device reach it until [`Device::open_to`] says so. What is
    /// mapped next to each other is one range for reading and writing here.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadRange`] where the addresses are not reserved or something is there, or where file, address and
    /// size are not of whole pages; else as [`Device::map`].
    pub fn map_at(
        &mut self,
        address: u64,
        file: &File,
        offset: u64,
        size: u64,
    ) -> Result<(), DeviceError> {
        self.memory.map_at(address, file, offset, size)
    }

    /// Takes back what [`Device::map_at`] mapped from an address on, which stays reserved.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadFree`] where nothing was mapped from there on.
    pub fn unmap_at(&mut self, address: u64) -> Result<(), DeviceError> {
        self.memory.unmap_at(address)
    }

    /// Makes memory of this process accessible to kernels, until [`Device::free`].
    ///
    /// # Safety
    ///
    /// Until the memory is freed here, or the device is dropped:
    /// - all `size` bytes are valid for reads and writes, with their provenance exposed;
    /// - no Rust reference to them is live while a function of the device runs, nor is passed to it;
    /// - while [`Device::launch`] runs, Rust code on other threads accesses them by atomics of one byte alone.
    ///   Code in other languages is bound by CUDA's rules for memory that a kernel is using.
    pub unsafe fn register(&mut self, address: u64, size: u64) {
        // SAFETY: this function's contract is that of `Memory::register`, word for word.
        unsafe { self.memory.register(address, size) };
    }

    /// Frees memory.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadFree`] if the address is not the start of an allocation.
    pub fn free(&mut self, address: u64) -> Result<(), DeviceError> {
        self.memory.free(address)?;
        self.memory.unmap_freed();
        Ok(())
    }

    /// Whether all of a range is inside one allocation, or in several that are mapped next to each other.
    #[must_use]
    pub fn contains(&self, address: u64, size: u64) -> bool {
        let end = self.memory.find(address).map(|(_, end)| end);
        let is_inside = |end: u64| size <= end - address;
        end.is_some_and(is_inside) || self.memory.end_of_run(address).is_some_and(is_inside)
    }

    /// Start and end of the allocation around an address.
    #[must_use]
    pub fn allocation(&self, address: u64) -> Option<(u64, u64)> {
        self.memory.find(address)
    }

    /// Writes memory.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadRange`] if the range is not inside one allocation.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(address, bytes)
    }

    /// Reads memory.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadRange`] if the range is not inside one allocation.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(address, bytes)
    }

    /// Watches global memory that is allocated from now on: what kernels read before anything was written there, and
    /// blocks of a launch that race. Kernels are several times slower then.
    pub fn watch_global(&mut self) {
        self.memory.watch();
    }

    /// Says that something other than a kernel or [`Device::write`] wrote memory.
    pub fn mark_written(&mut self, address: u64, size: u64) {
        self.memory.mark(address, size);
    }

    /// Whether [`Device::watch_global`] was called.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.memory.shadow().is_some()
    }

    /// Launches, and copies that [`Device::touch`] was told of, so far: the number of the last one, by which an
    /// [`Order`] names it.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Counts an operation; what it is called is asked for where memory is watched.
    fn begin(&mut self, order: Option<&Order>, name: impl FnOnce() -> String) {
        self.operations += 1;
        if let Some(shadow) = self.memory.shadow() {
            shadow.begin(&name(), order.cloned());
        }
    }

    /// Says that something other than a kernel reads or writes memory: ranges of address and size. A race with
    /// earlier launches and copies, if there is one. `name` is for messages.
    pub fn touch(
        &mut self,
        name: &str,
        order: Option<Order>,
        read: Option<(u64, u64)>,
        written: Option<(u64, u64)>,
    ) -> Option<Finding> {
        self.begin(order.as_ref(), || name.to_owned());
        let [read, written] = [read, written].map(|range| range.filter(|(_, size)| *size > 0));
        let shadow = self.memory.shadow()?;
        let access = BlockAccess { launch: self.operations, block: 1, ..BlockAccess::default() };
        let raced = |range: (u64, u64), problem| match problem {
            Some(GlobalProblem::Race { other, write }) => Some((range, other, write)),
            _ => None,
        };
        // Whether what is copied was ever written is for those who use it.
        let of_read = read
            .and_then(|range| raced(range, shadow.read(range.0, range.1, 0, Reach::alone(access))));
        let of_write = written
            .and_then(|range| raced(range, shadow.write(range.0, range.1, Reach::alone(access))));
        let ((address, _), other, write) = of_read.or(of_write)?;
        let what = if write { "written" } else { "read" };
        let other = shadow.name(other.launch);
        let message =
            format!("{name} at {address:#x}, {what} by {other}, with nothing that orders the two");
        Some(Finding::of_host(FindingKind::Race, Severity::Error, message))
    }

    /// Makes a texture or surface, and gives the handle by which kernels name it.
    pub fn bind(&mut self, texture: Texture) -> u64 {
        self.texture_count += 1;
        self.textures.insert(self.texture_count, texture);
        self.texture_count
    }

    /// Takes a texture or surface back; says whether there was one.
    pub fn unbind(&mut self, handle: u64) -> bool {
        self.textures.remove(&handle).is_some()
    }

    /// A texture or surface.
    #[must_use]
    pub fn texture(&self, handle: u64) -> Option<Texture> {
        self.textures.get(&handle).copied()
    }

    /// Runs a kernel to its end. Mistakes that the kernel makes are in the report, fatal ones too.
    ///
    /// # Errors
    ///
    /// The module has no such kernel, or the launch asks for more than a device has.
    pub fn launch(
        &mut self,
        module: &Module,
        kernel: &str,
        launch: &Launch,
        args: &Args,
    ) -> Result<Report, DeviceError> {
        let needs = module.needs(kernel).ok_or_else(|| DeviceError::NoKernel(kernel.to_owned()))?;
        let refuse = |what: String| DeviceError::Launch { kernel: kernel.to_owned(), what };
        check(launch, needs.max_threads, needs.shared_size).map_err(refuse)?;
        let size = needs.bytes;
        if (args.bytes.len() as u64) < size {
            let what =
                format!("its parameters have {size} bytes, the arguments {}", args.bytes.len());
            return Err(refuse(what));
        }
        let params = &args.bytes[..size as usize];
        self.begin(launch.order.as_ref(), || format!("kernel {kernel}"));
        let workspace = match launch.cooperative {
            true => self.memory.alloc(WORKSPACE_BYTES)?,
            false => 0,
        };
        self.memory.mark(workspace, WORKSPACE_BYTES);
        let report = self.run(module, kernel, launch, params, workspace);
        if launch.cooperative {
            self.memory.free(workspace)?;
        }
        self.memory.unmap_freed();
        report
    }

    fn run(
        &self,
        module: &Module,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        workspace: u64,
    ) -> Result<Report, DeviceError> {
        let (ptx, machine);
        let code: &dyn Code = match &module.code {
            Loaded::Ptx(program) => {
                ptx = PtxCode { program, kernel: program.kernels[kernel] };
                &ptx
            }
            Loaded::Sass(program) => {
                machine = self.machine_code(program, kernel, launch, params, workspace)?;
                &machine
            }
        };
        let refuse = |what: String| DeviceError::Launch { kernel: kernel.to_owned(), what };
        let room = Room::of(launch, code).map_err(refuse)?;
        // Machine code does not say where lanes meet that run together: ptxas drops `__syncwarp` there.
        let compare_lanes = launch.compare_lanes && matches!(module.code, Loaded::Ptx(_));
        let launch = &Launch { threads: self.threads(launch), compare_lanes, ..launch.clone() };
        let grid = Grid {
            code,
            launch,
            params,
            memory: &self.memory,
            textures: &self.textures,
            workspace,
            id: self.operations,
            room,
            turn: Turn::new(launch, room.blocks),
        };
        Ok(run::run(&grid))
    }
}

impl Device {
    /// Runs machine code that lies in memory to its end, as [`Device::launch`] runs a kernel of a module.
    ///
    /// # Errors
    ///
    /// There is no code of such an architecture, a bank that there is not, or the launch asks for more than a device
    /// has.
    pub fn launch_placed(
        &mut self,
        placed: &Placed,
        launch: &Launch,
    ) -> Result<Report, DeviceError> {
        let kernel_name = || format!("code at {:#x}", placed.entry);
        let refuse = |what: String| DeviceError::Launch { kernel: kernel_name(), what };
        let arch = nvabi_sass::Arch::from_number(placed.sm)
            .ok_or_else(|| refuse(format!("machine code of sm_{} is not known", placed.sm)))?;
        // What a description says has the system's part as well.
        check(launch, None, placed.shared_bytes.saturating_sub(RESERVED_SHARED_BYTES))
            .map_err(refuse)?;
        let mut banks: [Vec<u8>; sass::BANKS] = Default::default();
        for (number, bytes) in &placed.banks {
            let bank = banks.get_mut(*number);
            bank.ok_or_else(|| refuse(format!("there is no bank {number}")))?.clone_from(bytes);
        }
        let program = sass::load_placed(arch, &self.memory, placed.entry, &banks);
        let program = program.map_err(|error| refuse(error.what))?;
        let kernel = program.placed_kernel(placed);
        self.begin(launch.order.as_ref(), kernel_name);
        let threads = self.threads(launch);
        let launch = Launch { shared_bytes: 0, threads, compare_lanes: false, ..launch.clone() };
        let name = format!("of sm_{}", placed.sm);
        let code = SassCode::placed(&program, &name, &kernel, banks);
        let room = Room::of(&launch, &code).map_err(refuse)?;
        let grid = Grid {
            code: &code,
            launch: &launch,
            params: &[],
            memory: &self.memory,
            textures: placed.textures.as_deref().unwrap_or(&self.textures),
            workspace: 0,
            id: self.operations,
            room,
            turn: Turn::new(&launch, room.blocks),
        };
        let report = run::run(&grid);
        self.memory.unmap_freed();
        Ok(report)
    }

    /// How many threads run the blocks: what is known of memory is looked up under a lock, and is the same each time
    /// on one.
    fn threads(&self, launch: &Launch) -> usize {
        if self.memory.shadow().is_some() { 1 } else { launch.threads }
    }

    /// A kernel in machine code, with the constants of this launch.
    fn machine_code<'a>(
        &self,
        program: &'a sass::Program,
        kernel: &str,
        launch: &Launch,
        params: &[u8],
        workspace: u64,
    ) -> Result<SassCode<'a>, DeviceError> {
        let missing = || DeviceError::NoKernel(kernel.to_owned());
        let (name, kernel) = program.kernels.get_key_value(kernel).ok_or_else(missing)?;
        let (address, size) = program.constants;
        let mut constants = vec![0; size as usize];
        self.memory.read(address, &mut constants)?;
        let id = self.operations;
        let mut code = SassCode::new(program, name, kernel, launch, params, constants, id);
        code.meet_at(workspace);
        Ok(code)
    }
}

/// What is wrong with the size of a launch.
fn check(launch: &Launch, max_threads: Option<u64>, shared: u64) -> Result<(), String> {
    let threads = launch.block.iter().map(|n| u64::from(*n)).product::<u64>();
    let blocks = launch.grid.iter().try_fold(1u64, |all, n| all.checked_mul((*n).into()));
    let shared = shared + u64::from(launch.shared_bytes);
    let most = max_threads.unwrap_or(u64::MAX).min(MAX_BLOCK_THREADS.into());
    match blocks {
        Some(0) => Err("the grid is empty".to_owned()),
        Some(1..=0xffff_ffff) if threads == 0 => Err("the block is empty".to_owned()),
        Some(1..=0xffff_ffff) if threads > most => {
            Err(format!("{threads} threads in a block, of at most {most}"))
        }
        Some(1..=0xffff_ffff) if shared > MAX_SHARED_BYTES => {
            Err(format!("{shared} bytes of shared memory, of at most {MAX_SHARED_BYTES}"))
        }
        Some(1..=0xffff_ffff) => Ok(()),
        _ => Err(format!("the grid {:?} is too large", launch.grid)),
    }
}

/// The bytes that a variable starts with.
fn initial(
    variable: &ptx::Variable<'_>,
    address: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::new();
    for init in &variable.init {
        let value = match init {
            Init::Value(value) => *value,
            Init::Symbol { name, offset } => match address(name) {
                Some(address) => address.wrapping_add_signed(*offset),
                None => return Err(load_error(variable.line, format!("there is no `{name}`"))),
            },
        };
        bytes.extend_from_slice(&value.to_le_bytes()[..variable.width.min(8) as usize]);
    }
    bytes.truncate(variable.size as usize);
    Ok(bytes)
}
