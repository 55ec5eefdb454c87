//! Compiles kernels with NVRTC for the GPU of a Jetson, launches them by descriptions (QMD) without CUDA, and compares
//! what they compute.
//!
//! ```text
//! cargo run --release --features tegra --example tegra_compute            on an Orin
//! nvabi tegra sim -- target/release/examples/tegra_compute                anywhere
//! ```
//!
//! `NVRTC` names the library, where the loader does not find `libnvrtc.so.12`; it is in the package
//! `nvidia-cuda-nvrtc-cu12` of PyPI.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

use libloading::{Library, Symbol};
use nvabi::tegra::{
    AddressSpace, Buffer, Cache, Channel, ChannelOptions, ConstantBank, Device, Module, Push,
    Subcontext, Tsg,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SOURCE: &str = include_str!("tegra_compute.cu");
const PATIENCE: Duration = Duration::from_secs(60);
/// Where a shader sees shared and local memory: an [`AddressSpace`] keeps both free.
const WINDOWS: [u64; 2] = [0xfe_0000_0000, 0xfd_0000_0000];
/// Where a launch's description lies behind its bank of constants.
const DESCRIPTION: u64 = 4096;

pub(crate) fn main() -> Result<()> {
    let device = Device::open()?;
    let version = device.characteristics().sm_arch_sm_version;
    let architecture = format!("sm_{}", (version >> 8) * 10 + (version & 0xff));
    let nvrtc = std::env::var_os("NVRTC").unwrap_or_else(|| "libnvrtc.so.12".into());
    // SAFETY: NVRTC may be loaded and unloaded at any time.
    let nvrtc = unsafe { Library::new(nvrtc) }?;
    let cubin = compile(&nvrtc, SOURCE, &architecture)?;
    println!("{} bytes of machine code for {architecture}", cubin.len());
    let mut gpu = Gpu::new(&device, &cubin)?;
    add(&mut gpu)?;
    total(&mut gpu)?;
    product(&mut gpu)?;
    sort(&mut gpu)
}

/// What NVRTC makes of CUDA C for one architecture.
fn compile(nvrtc: &Library, source: &str, architecture: &str) -> Result<Vec<u8>> {
    type Program = *mut c_void;
    type Texts = *const *const c_char;
    type Create = unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        Texts,
        Texts,
    ) -> c_int;
    type Compile = unsafe extern "C" fn(Program, c_int, Texts) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
    let (source, option) = (CString::new(source)?, CString::new(format!("-arch={architecture}"))?);
    let mut program = null_mut();
    // SAFETY: the types are those of `nvrtc.h`, and texts and program live as long as the calls.
    unsafe {
        let create: Symbol<'_, Create> = nvrtc.get(b"nvrtcCreateProgram")?;
        check(
            "nvrtcCreateProgram",
            create(&mut program, source.as_ptr(), null(), 0, null(), null()),
        )?;
        let compile: Symbol<'_, Compile> = nvrtc.get(b"nvrtcCompileProgram")?;
        let status = compile(program, 1, &option.as_ptr());
        let result = if status == 0 {
            output(nvrtc, program, "nvrtcGetCUBIN")
        } else {
            let log = output(nvrtc, program, "nvrtcGetProgramLog")?;
            Err(CStr::from_bytes_until_nul(&log)?.to_string_lossy().into())
        };
        let destroy: Symbol<'_, Destroy> = nvrtc.get(b"nvrtcDestroyProgram")?;
        check("nvrtcDestroyProgram", destroy(&mut program))?;
        result
    }
}

/// What a function of NVRTC writes, as long as its relative with `Size` says.
///
/// # Safety
///
/// `program` is one of NVRTC's, and the functions are such.
unsafe fn output(nvrtc: &Library, program: *mut c_void, name: &str) -> Result<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the caller says that the types are right, and NVRTC writes as many bytes as it says.
    unsafe {
        let get_size: Symbol<'_, unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int> =
            nvrtc.get(format!("{name}Size").as_bytes())?;
        check(name, get_size(program, &mut size))?;
        let mut bytes = vec![0; size];
        let get: Symbol<'_, unsafe extern "C" fn(*mut c_void, *mut u8) -> c_int> =
            nvrtc.get(name.as_bytes())?;
        check(name, get(program, bytes.as_mut_ptr()))?;
        Ok(bytes)
    }
}

fn check(name: &str, status: c_int) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(format!("{name} returns {status}").into()) }
}

/// A channel with kernels that it can launch.
struct Gpu {
    space: AddressSpace,
    channel: Channel,
    module: Module,
    /// Bank 0 of a launch, and its description.
    launch: Buffer,
}

impl Gpu {
    fn new(device: &Device, cubin: &[u8]) -> Result<Self> {
        let space = AddressSpace::new(device)?;
        let subcontext = Subcontext::new(&Tsg::new(device)?, &space);
        let channel = Channel::new(&subcontext, &ChannelOptions::default())?;
        let module = Module::load(&space, cubin)?;
        let launch = space.allocate(2 * DESCRIPTION, Cache::Inner)?;
        Ok(Self { space, channel, module, launch })
    }

    /// Memory with these numbers in it.
    fn buffer(&self, numbers: &[[u8; 4]]) -> Result<Buffer> {
        let mut buffer = self.space.allocate(4 * numbers.len() as u64, Cache::Inner)?;
        buffer.write(0, numbers.as_flattened())?;
        Ok(buffer)
    }

    /// Runs a kernel to its end, whose parameters are buffers and a number.
    fn run(
        &mut self,
        name: &str,
        [grid, block]: [[u32; 3]; 2],
        buffers: &[&Buffer],
        count: usize,
    ) -> Result<()> {
        let kernel = self.module.kernel(name).ok_or_else(|| format!("no kernel `{name}`"))?;
        let mut parameters: Vec<u8> =
            buffers.iter().flat_map(|it| it.gpu_address().to_le_bytes()).collect();
        parameters.extend(u32::try_from(count)?.to_le_bytes());
        let bank = kernel.bank(grid, block, &parameters)?;
        self.launch.write(0, &bank)?;
        let mut launch = kernel.launch(grid, block);
        let (address, size) = (self.launch.gpu_address(), u32::try_from(bank.len())?);
        launch.constants[0] = Some(ConstantBank { address, size });
        self.launch.write(DESCRIPTION, &launch.qmd()?)?;

        // Local memory for each thread that can be there at once.
        let gpu = self.space.device().characteristics();
        let warps = 2 * u64::from(gpu.sm_arch_warp_count);
        let of_tpc = (warps * 32 * u64::from(kernel.local_size())).next_multiple_of(0x8000);
        let tpcs = u64::from(gpu.num_gpc * gpu.num_tpc_per_gpc);
        let local = self.space.allocate(of_tpc * tpcs, Cache::Inner)?;
        let mut push = Push::new();
        push.set_windows(WINDOWS[0], WINDOWS[1])
            .set_local_memory(local.gpu_address(), of_tpc)?
            .launch(self.launch.gpu_address() + DESCRIPTION)?;
        let ticket = self.channel.submit(&push)?;
        Ok(self.channel.wait(ticket, PATIENCE)?)
    }
}

/// Compares what is in memory with what should be.
fn compare(what: &str, found: &Buffer, expected: &[[u8; 4]]) -> Result<()> {
    let mut bytes = vec![[0; 4]; expected.len()];
    found.read(0, bytes.as_flattened_mut())?;
    match bytes.iter().zip(expected).position(|(a, b)| a != b) {
        None => println!("{what}: all {} are right", expected.len()),
        Some(at) => {
            let (found, expected) = (bytes[at], expected[at]);
            return Err(format!("{what}: {at} is {found:02x?}, not {expected:02x?}").into());
        }
    }
    Ok(())
}

fn bytes<T>(count: usize, number: impl Fn(usize) -> T, to_bytes: fn(T) -> [u8; 4]) -> Vec<[u8; 4]> {
    (0..count).map(|at| to_bytes(number(at))).collect()
}

/// A sum of vectors, whose end is within a block.
fn add(gpu: &mut Gpu) -> Result<()> {
    const COUNT: usize = 100_001;
    let (a, b) = (|at: usize| at as f32 / 3.0, |at: usize| 1.0 / (at + 1) as f32);
    let terms = [
        gpu.buffer(&bytes(COUNT, a, f32::to_le_bytes))?,
        gpu.buffer(&bytes(COUNT, b, f32::to_le_bytes))?,
    ];
    let sums = gpu.buffer(&[[0xff; 4]; COUNT])?;
    let sizes = [[COUNT.div_ceil(256) as u32, 1, 1], [256, 1, 1]];
    gpu.run("add", sizes, &[&terms[0], &terms[1], &sums], COUNT)?;
    compare("sums of vectors", &sums, &bytes(COUNT, |at| a(at) + b(at), f32::to_le_bytes))
}

/// A sum of numbers: of each block's, and then of the blocks'.
fn total(gpu: &mut Gpu) -> Result<()> {
    const COUNT: usize = 54_321;
    const BLOCKS: usize = 13;
    let number = |at: usize| (at as u32).wrapping_mul(2_654_435_761);
    let numbers = gpu.buffer(&bytes(COUNT, number, u32::to_le_bytes))?;
    let (totals, all) = (gpu.buffer(&[[0xff; 4]; BLOCKS])?, gpu.buffer(&[[0xff; 4]])?);
    gpu.run("total", [[BLOCKS as u32, 1, 1], [256, 1, 1]], &[&numbers, &totals], COUNT)?;
    gpu.run("total", [[1, 1, 1], [256, 1, 1]], &[&totals, &all], BLOCKS)?;
    let expected = (0..COUNT).map(number).fold(0, u32::wrapping_add);
    compare("sum in shared memory", &all, &[expected.to_le_bytes()])
}

/// A product of matrices whose size is no multiple of a tile's. Its numbers are such that sums are exact in any order.
fn product(gpu: &mut Gpu) -> Result<()> {
    const SIZE: usize = 75;
    let (a, b) = (|at: usize| (at % 13) as f32 - 6.0, |at: usize| (at % 11) as f32 / 4.0);
    let factors = [
        gpu.buffer(&bytes(SIZE * SIZE, a, f32::to_le_bytes))?,
        gpu.buffer(&bytes(SIZE * SIZE, b, f32::to_le_bytes))?,
    ];
    let product = gpu.buffer(&[[0xff; 4]; SIZE * SIZE])?;
    let tiles = SIZE.div_ceil(16) as u32;
    gpu.run(
        "product",
        [[tiles, tiles, 1], [16, 16, 1]],
        &[&factors[0], &factors[1], &product],
        SIZE,
    )?;
    let sum = |at: usize| {
        let (row, column) = (at / SIZE, at % SIZE);
        (0..SIZE).map(|k| a(row * SIZE + k) * b(k * SIZE + column)).sum()
    };
    compare("product of matrices", &product, &bytes(SIZE * SIZE, sum, f32::to_le_bytes))
}

/// Numbers in order, eight by eight.
fn sort(gpu: &mut Gpu) -> Result<()> {
    const COUNT: usize = 8 * 1000;
    let number = |at: usize| (at as u32).wrapping_mul(2_246_822_519) >> 7;
    let numbers = gpu.buffer(&bytes(COUNT, number, u32::to_le_bytes))?;
    gpu.run("sort", [[8, 1, 1], [128, 1, 1]], &[&numbers], COUNT)?;
    let mut expected: Vec<u32> = (0..COUNT).map(number).collect();
    expected.chunks_mut(8).for_each(<[u32]>::sort_unstable);
    compare("sorted in local memory", &numbers, &bytes(COUNT, |at| expected[at], u32::to_le_bytes))
}
