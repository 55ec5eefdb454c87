//! The library as programs see it: loaded by name, called through its C functions.

#![allow(clippy::unwrap_used)] // Functions beside tests count as none.

#[macro_use]
extern crate nvabi_test;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use nvabi_test::{Need, skip};

mod load;

test_main!();

/// A library that cargo built for this test.
fn library(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.join(name)
}

/// A folder with both libraries, by the names that programs ask for.
fn libraries() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (built, name) in LIBRARIES {
        std::os::unix::fs::symlink(library(built), folder.path().join(name)).unwrap();
    }
    folder
}

/// Compiles a C program beside the libraries; what it calls of the driver it need not declare.
fn compile(folder: &Path, text: &str) {
    std::fs::write(folder.join("program.c"), text).unwrap();
    let cc = Command::new("cc")
        .current_dir(folder)
        .args(["-w", "-std=gnu89", "-o", "program", "program.c", "-L.", "-Wl,--as-needed"])
        .args(["-l:libcuda.so.1", "-l:libcudart.so.12"])
        .status();
    assert!(cc.unwrap().success());
}

/// Runs it with a case, and with global memory watched or not: its status, and what it says.
fn run_case(folder: &Path, case: &str, global: &str) -> (Option<i32>, String) {
    let mut command = Command::new(folder.join("program"));
    command.arg(case).env("LD_LIBRARY_PATH", folder).env("NVABI_EMU_GLOBAL", global);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

const LIBRARIES: [(&str, &str); 3] = [
    ("libnvabi_cuda.so", "libcuda.so.1"),
    ("libnvabi_cudart.so", "libcudart.so.12"),
    ("libnvabi_cudart13.so", "libcudart.so.13"),
];

/// A function of one of the libraries, by its name.
fn function(name: &str) -> *mut c_void {
    let is_runtime = name.trim_start_matches('_').starts_with("cuda");
    // The driver's first: without a path the runtime finds the one that is loaded, or the one beside it.
    let (built, _) = LIBRARIES[usize::from(is_runtime)];
    load::function(built, name)
}

/// Calls a function with arguments that fit into registers; its code.
macro_rules! call {
    ($name:ident($($arg:expr),*)) => {{
        // SAFETY: integers and pointers of at most 8 bytes are passed as C passes them.
        let f: extern "C" fn($(call!(@word $arg)),*) -> u32 = unsafe { std::mem::transmute(function(stringify!($name))) };
        f($($arg as usize),*)
    }};
    (@word $arg:expr) => { usize };
}

const PTX: &str = ".version 8.3\n.target sm_80\n.address_size 64
.visible .const .align 4 .u32 step = 1;
.visible .entry add(.param .u64 data, .param .u32 by, .param .u8 small) {
    .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [by];
    ld.param.u8 %r6, [small];
    ld.const.u32 %r2, [step];
    mov.u32 %r3, %tid.x;
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r4, [%rd3];
    mad.lo.u32 %r5, %r1, %r2, %r4;
    add.u32 %r5, %r5, %r6;
    st.global.u32 [%rd3], %r5;
    ret;
}
.visible .entry wrong() { .reg .b64 %rd<2>; mov.u64 %rd1, 8; st.global.u64 [%rd1], %rd1; ret; }
";

/// A container with one image of PTX, packed or not.
fn fatbin(payload: &[u8], flags: u64, unpacked: usize) -> Vec<u8> {
    fatbin_of(1, payload, flags, unpacked)
}

/// The same of PTX, kind 1, or machine code, kind 2.
fn fatbin_of(kind: u8, payload: &[u8], flags: u64, unpacked: usize) -> Vec<u8> {
    let padded = payload.len().next_multiple_of(8);
    let mut image = Vec::new();
    image.extend([kind, 0, 1, 1, 64, 0, 0, 0]);
    image.extend((padded as u64).to_le_bytes());
    image.extend((if flags & 0xa000 == 0 { 0 } else { payload.len() as u32 }).to_le_bytes());
    image.extend([0; 8]);
    image.extend(80u32.to_le_bytes());
    image.extend([0; 8]);
    image.extend((flags | 0x11).to_le_bytes());
    image.extend([0; 8]);
    image.extend((unpacked as u64).to_le_bytes());
    image.extend(payload);
    image.resize(64 + padded, 0);
    let mut out = 0xba55_ed50u32.to_le_bytes().to_vec();
    out.extend([1, 0, 16, 0]);
    out.extend((image.len() as u64).to_le_bytes());
    out.extend(image);
    out
}

/// Calls share one device, and an error of a kernel is everybody's: one test after the other.
#[test]
fn the_driver_and_the_runtime_do_what_a_program_asks() {
    loads_launches_and_copies();
    takes_every_form_of_module();
    machine_code_runs_without_ptx();
    links_modules();
    refuses_what_is_wrong();
    arrays_hold_texels();
    graphs_run_what_they_hold();
    pools_count_what_is_used();
    the_runtime_goes_through_the_driver();
    what_is_unregistered_is_not_read();
    errors_of_kernels_stay();
}

#[test]
fn instructions_are_counted_by_launch() {
    let work = tempfile::tempdir().unwrap();
    let counts = work.path().join("counts");
    // In a process of its own, because the library reads the variable once.
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_driver_and_the_runtime_do_what_a_program_asks"])
        .env("NVABI_EMU_COUNTS", &counts)
        .output()
        .unwrap();
    assert!(run.status.success());
    let text = std::fs::read_to_string(&counts).unwrap();
    // One warp with four lanes, twice; one of the twelve instructions is run in two steps.
    let lines: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(lines, ["add 13 52"; 2], "{text}");
}

/// The test of all that a program asks runs machine code where it can be made.
#[test]
fn machine_code_is_made() {
    if assemble().is_none() {
        skip(Need::Cuda, "no ptxas in CUDA_PATH, and cuda/toolkit.sh could not fetch it");
    }
}

/// The same kernel as machine code, alone and in a fatbin without PTX.
fn machine_code_runs_without_ptx() {
    let Some(cubin) = assemble() else { return };
    let lz4 = lz4_flex::block::compress(&cubin);
    let plain = fatbin_of(2, &cubin, 0, cubin.len());
    let packed = fatbin_of(2, &lz4, 0x2000, cubin.len());
    assert_eq!(call!(cuInit(0)), 0);
    for image in [&cubin, &plain, &packed] {
        let (mut module, mut kernel, mut data) = (0usize, 0usize, 0usize);
        assert_eq!(call!(cuModuleLoadData(&raw mut module, image.as_ptr())), 0);
        assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"add".as_ptr())), 0);
        let (mut constant, mut size) = (0usize, 0usize);
        let (place, bytes) = (&raw mut constant, &raw mut size);
        assert_eq!(call!(cuModuleGetGlobal_v2(place, bytes, module, c"step".as_ptr())), 0);
        let three = 3u32;
        assert_eq!(call!(cuMemcpyHtoD_v2(constant, &raw const three, size)), 0);
        assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 16)), 0);
        let mut values = [10u32, 20, 30, 40];
        assert_eq!(call!(cuMemcpyHtoD_v2(data, values.as_ptr(), 16)), 0);
        let (mut by, mut small) = (7u32, 1u8);
        let mut params = [(&raw mut data).cast(), (&raw mut by).cast(), (&raw mut small).cast()];
        assert_eq!(launch(kernel, &mut params), 0);
        assert_eq!(call!(cuMemcpyDtoH_v2(values.as_mut_ptr(), data, 16)), 0);
        assert_eq!(values, [32, 42, 52, 62]);
        assert_eq!(call!(cuMemFree_v2(data)), 0);
        assert_eq!(call!(cuModuleUnload(module)), 0);
    }
}

/// `PTX` as ptxas assembles it for sm_86.
fn assemble() -> Option<Vec<u8>> {
    let cuda = nvabi_test::cuda_if_any(&["bin/ptxas"])?;
    let work = tempfile::tempdir().unwrap();
    let (source, cubin) = (work.path().join("add.ptx"), work.path().join("add.cubin"));
    std::fs::write(&source, PTX).unwrap();
    let mut ptxas = Command::new(cuda.join("bin/ptxas"));
    let status = ptxas.arg("-arch=sm_86").arg(&source).arg("-o").arg(&cubin).status().unwrap();
    assert!(status.success());
    Some(std::fs::read(cubin).unwrap())
}

fn launch(kernel: usize, params: &mut [*mut c_void]) -> u32 {
    call!(cuLaunchKernel(kernel, 1, 1, 1, 4, 1, 1, 0, 0, params.as_mut_ptr(), 0))
}

fn loads_launches_and_copies() {
    let (mut module, mut kernel) = (0usize, 0usize);
    let ptx = CString::new(PTX).unwrap();
    assert_eq!(call!(cuInit(0)), 0);
    assert_eq!(call!(cuModuleLoadData(&raw mut module, ptx.as_ptr())), 0);
    assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"add".as_ptr())), 0);
    let (mut owner, mut name) = (0usize, std::ptr::null::<c_char>());
    assert_eq!(call!(cuFuncGetModule(&raw mut owner, kernel)), 0);
    assert_eq!(call!(cuFuncGetName(&raw mut name, kernel)), 0);
    // SAFETY: the library handed out a string.
    assert_eq!((owner, unsafe { CStr::from_ptr(name) }), (module, c"add"));

    let (mut constant, mut size) = (0usize, 0usize);
    assert_eq!(
        call!(cuModuleGetGlobal_v2(&raw mut constant, &raw mut size, module, c"step".as_ptr())),
        0
    );
    assert_eq!(size, 4);
    let three = 3u32;
    assert_eq!(call!(cuMemcpyHtoD_v2(constant, &raw const three, 4)), 0);

    let mut data = 0usize;
    assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 16)), 0);
    let mut values = [10u32, 20, 30, 40];
    assert_eq!(call!(cuMemcpyHtoD_v2(data, values.as_ptr(), 16)), 0);
    let (mut by, mut small) = (7u32, 1u8);
    let mut params = [(&raw mut data).cast(), (&raw mut by).cast(), (&raw mut small).cast()];
    assert_eq!(launch(kernel, &mut params), 0);
    assert_eq!(call!(cuMemcpyDtoH_v2(values.as_mut_ptr(), data, 16)), 0);
    assert_eq!(values, [32, 42, 52, 62]);

    // The same arguments in one buffer.
    let mut buffer = (data as u64).to_le_bytes().to_vec();
    buffer.extend(by.to_le_bytes());
    buffer.push(small);
    let mut length = buffer.len();
    let mut extra: [*mut c_void; 5] = [
        std::ptr::without_provenance_mut(1),
        buffer.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        (&raw mut length).cast(),
        std::ptr::null_mut(),
    ];
    assert_eq!(call!(cuLaunchKernel(kernel, 1, 1, 1, 4, 1, 1, 0, 0, 0, extra.as_mut_ptr())), 0);
    assert_eq!(call!(cuMemcpyDtoH_v2(values.as_mut_ptr(), data, 16)), 0);
    assert_eq!(values, [54, 64, 74, 84]);

    assert_eq!(call!(cuMemsetD32_v2(data, 5, 4)), 0);
    assert_eq!(call!(cuMemcpyDtoH_v2(values.as_mut_ptr(), data, 16)), 0);
    assert_eq!(values, [5; 4]);
    assert_eq!(call!(cuMemFree_v2(data)), 0);
    assert_eq!(call!(cuModuleUnload(module)), 0);
}

/// A kernel that adds, between a fill and a copy: by nodes, then by capture of two streams.
fn graphs_run_what_they_hold() {
    let (mut module, mut kernel, mut data) = (0usize, 0usize, 0usize);
    let ptx = CString::new(PTX).unwrap();
    assert_eq!(call!(cuModuleLoadData(&raw mut module, ptx.as_ptr())), 0);
    assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"add".as_ptr())), 0);
    assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 16)), 0);
    let (mut by, mut small, mut out) = (7u32, 0u8, [0u32; 4]);
    let mut params: [*mut c_void; 3] =
        [(&raw mut data).cast(), (&raw mut by).cast(), (&raw mut small).cast()];
    // Function; grid, block and no shared memory as pairs of 32 bits; parameters; no extra ones.
    let one = 1usize | 1 << 32;
    let node_params = [kernel, one, 1 | 4 << 32, one, 0, params.as_mut_ptr() as usize, 0];
    // Where to, pitch, value and the size of an element, how many, rows.
    let fill = [data, 0, 5 | 4 << 32, 4, 1];

    let (mut graph, mut exec, mut nodes) = (0usize, 0usize, [0usize; 3]);
    assert_eq!(call!(cudaGraphCreate(&raw mut graph, 0)), 0);
    // The kernel first, and the fill that it comes after later.
    assert_eq!(
        call!(cuGraphAddKernelNode_v2(&raw mut nodes[0], graph, 0, 0, node_params.as_ptr())),
        0
    );
    assert_eq!(call!(cudaGraphAddMemsetNode(&raw mut nodes[1], graph, 0, 0, fill.as_ptr())), 0);
    assert_eq!(
        call!(cudaGraphAddDependencies(graph, &raw const nodes[1], &raw const nodes[0], 1)),
        0
    );
    let copy = call!(cudaGraphAddMemcpyNode1D(
        &raw mut nodes[2],
        graph,
        &raw const nodes[0],
        1,
        out.as_mut_ptr(),
        data,
        16,
        2
    ));
    assert_eq!(copy, 0);
    let (mut count, mut roots) = (0usize, [0usize; 2]);
    assert_eq!(call!(cudaGraphGetNodes(graph, 0, &raw mut count)), 0);
    assert_eq!(count, 3);
    count = 2;
    assert_eq!(call!(cudaGraphGetRootNodes(graph, roots.as_mut_ptr(), &raw mut count)), 0);
    assert_eq!((count, roots), (1, [nodes[1], 0]));
    assert_eq!(call!(cudaGraphInstantiate(&raw mut exec, graph, 0)), 0);
    // What was handed in is copied.
    by = 100;
    std::hint::black_box(&raw mut by);
    assert_eq!(call!(cudaGraphLaunch(exec, 0)), 0);
    assert_eq!(out, [12; 4]);
    // The constant that the kernel multiplies with is one.
    assert_eq!(call!(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], node_params.as_ptr())), 0);
    assert_eq!(call!(cudaGraphLaunch(exec, 0)), 0);
    assert_eq!(out, [105; 4]);
    assert_eq!(call!(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], node_params.as_ptr())), 1);
    // Nodes that come after each other cannot be run.
    assert_eq!(
        call!(cudaGraphAddDependencies(graph, &raw const nodes[2], &raw const nodes[1], 1)),
        0
    );
    assert_eq!(call!(cudaGraphInstantiate(&raw mut exec, graph, 0)), 1);
    assert_eq!(call!(cudaGraphDestroy(graph)), 0);

    let (mut first, mut second, mut event, mut capturing) = (0usize, 0usize, 0usize, 0u32);
    assert_eq!(call!(cudaStreamCreate(&raw mut first)), 0);
    assert_eq!(call!(cudaStreamCreate(&raw mut second)), 0);
    assert_eq!(call!(cudaEventCreate(&raw mut event)), 0);
    assert_eq!(call!(cudaStreamBeginCapture(first, 0)), 0);
    assert_eq!(call!(cuMemsetD32Async(data, 1, 4, first)), 0);
    assert_eq!(call!(cudaEventRecord(event, first)), 0);
    assert_eq!(call!(cudaStreamWaitEvent(second, event, 0)), 0);
    assert_eq!(call!(cudaStreamIsCapturing(second, &raw mut capturing)), 0);
    assert_eq!(capturing, 1);
    assert_eq!(
        call!(cuLaunchKernel(kernel, 1, 1, 1, 4, 1, 1, 0, second, params.as_mut_ptr(), 0)),
        0
    );
    assert_eq!(call!(cudaMemcpyAsync(out.as_mut_ptr(), data, 16, 2, second)), 0);
    assert_eq!(call!(cudaStreamSynchronize(first)), 900);
    assert_eq!(out, [105; 4], "nothing is done while streams are captured");
    assert_eq!(call!(cudaStreamEndCapture(first, &raw mut graph)), 0);
    assert_eq!(call!(cudaStreamEndCapture(first, &raw mut graph)), 905);
    assert_eq!(call!(cudaGraphInstantiate(&raw mut exec, graph, 0)), 0);
    assert_eq!(call!(cudaGraphLaunch(exec, first)), 0);
    assert_eq!(out, [101; 4]);
    let mut info = [0u64; 3];
    assert_eq!(call!(cudaGraphExecUpdate(exec, graph, info.as_mut_ptr())), 0);
    assert_eq!(call!(cudaGraphExecDestroy(exec)), 0);
    assert_eq!(call!(cudaGraphLaunch(exec, first)), 400);
    assert_eq!(call!(cuMemFree_v2(data)), 0);
    assert_eq!(call!(cuModuleUnload(module)), 0);
}

fn pools_count_what_is_used() {
    let (mut pool, mut stream, mut data, mut used) = (0usize, 0usize, 0usize, 0u64);
    assert_eq!(call!(cudaDeviceGetDefaultMemPool(&raw mut pool, 0)), 0);
    assert_eq!(call!(cudaStreamCreate(&raw mut stream)), 0);
    assert_eq!(call!(cudaMallocAsync(&raw mut data, 4096, stream)), 0);
    assert_eq!(call!(cudaMemPoolGetAttribute(pool, 7, &raw mut used)), 0);
    assert_eq!(used, 4096);
    assert_eq!(call!(cudaFreeAsync(data, stream)), 0);
    assert_eq!(call!(cudaMemPoolGetAttribute(pool, 7, &raw mut used)), 0);
    assert_eq!(used, 0);
    assert_eq!(call!(cudaMemPoolGetAttribute(pool, 8, &raw mut used)), 0);
    assert_eq!(used, 4096);
    // Pinned memory of the device, and of another one.
    let mut own = 0usize;
    assert_eq!(call!(cudaMemPoolCreate(&raw mut own, [1u32, 0, 1, 0].as_ptr())), 0);
    assert_eq!(call!(cudaMemPoolCreate(&raw mut own, [1u32, 0, 1, 5].as_ptr())), 101);
    assert_eq!(call!(cudaMallocFromPoolAsync(&raw mut data, 64, own, stream)), 0);
    assert_eq!(call!(cudaFreeAsync(data, stream)), 0);
    assert_eq!(call!(cudaMemPoolDestroy(own)), 0);
    assert_eq!(call!(cudaMemPoolDestroy(own)), 400);
    assert_eq!(call!(cudaMemPoolDestroy(pool)), 1);
}

/// Reads the texel at (1, 1) as a number up to 1, and doubles that at byte 4 of row 1.
const TEXELS: &str = ".version 8.3\n.target sm_80\n.address_size 64
.visible .entry read(.param .u64 out, .param .u64 texture, .param .u64 surface) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<6>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [texture]; ld.param.u64 %rd3, [surface];
    mov.f32 %f1, 0f3F800000;
    tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd2, {%f1, %f1}];
    st.global.f32 [%rd1], %f2;
    mov.u32 %r1, 1; suld.b.2d.b8.trap {%r2}, [%rd3, {%r1, %r1}];
    shl.b32 %r2, %r2, 1; sust.b.2d.b8.trap [%rd3, {%r1, %r1}], {%r2};
    ret;
}
";

fn arrays_hold_texels() {
    let (mut module, mut kernel, mut array) = (0usize, 0usize, 0usize);
    let ptx = CString::new(TEXELS).unwrap();
    assert_eq!(call!(cuModuleLoadData(&raw mut module, ptx.as_ptr())), 0);
    assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"read".as_ptr())), 0);
    // One channel of 8 bits without a sign; 3 by 2 texels, from rows of 4 bytes.
    let format = [8i32, 0, 0, 0, 1];
    assert_eq!(call!(cudaMallocArray(&raw mut array, format.as_ptr(), 3, 2, 2)), 0);
    let rows = *b"\x01\x02\x03_\x04\x33\x06_";
    assert_eq!(call!(cudaMemcpy2DToArray(array, 0, 0, rows.as_ptr(), 4, 3, 2, 1)), 0);
    assert_eq!(
        call!(cudaMemcpy2DToArray(array, 1, 0, rows.as_ptr(), 4, 3, 2, 1)),
        1,
        "too far right"
    );
    let mut resource = [0u64; 8];
    resource[1] = array as u64;
    // Clamped, the nearest texel, as numbers, not normalised.
    let texture = [1i32, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (mut read, mut written) = (0usize, 0usize);
    assert_eq!(
        call!(cudaCreateTextureObject(&raw mut read, resource.as_ptr(), texture.as_ptr(), 0)),
        0
    );
    assert_eq!(call!(cudaCreateSurfaceObject(&raw mut written, resource.as_ptr())), 0);
    let mut out = 0usize;
    assert_eq!(call!(cuMemAlloc_v2(&raw mut out, 4)), 0);
    let mut params: [*mut c_void; 3] =
        [(&raw mut out).cast(), (&raw mut read).cast(), (&raw mut written).cast()];
    assert_eq!(call!(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, params.as_mut_ptr(), 0)), 0);
    let (mut number, mut copy) = (0f32, [0u8; 8]);
    assert_eq!(call!(cuMemcpyDtoH_v2(&raw mut number, out, 4)), 0);
    assert_eq!(call!(cudaMemcpy2DFromArray(copy.as_mut_ptr(), 4, array, 0, 0, 3, 2, 2)), 0);
    assert_eq!((number, copy), (0.2, *b"\x01\x02\x03\0\x04\x66\x06\0"));
    let mut described = [0usize; 3];
    assert_eq!(call!(cuArrayGetDescriptor_v2(described.as_mut_ptr(), array)), 0);
    assert_eq!(described, [3, 2, 1 | 1 << 32]);
    assert_eq!(call!(cudaDestroyTextureObject(read)), 0);
    assert_eq!(call!(cudaDestroyTextureObject(read)), 1);
    assert_eq!(call!(cudaFreeArray(array)), 0);
    assert_eq!(call!(cudaFreeArray(array)), 400);
    assert_eq!(call!(cuModuleUnload(module)), 0);
}

fn takes_every_form_of_module() {
    let text = [PTX.as_bytes(), b"\0"].concat();
    let lz4 = lz4_flex::block::compress(&text);
    let zstd = zstd::bulk::compress(&text, 1).unwrap();
    for (payload, flags) in [(&text, 0), (&lz4, 0x2000), (&zstd, 0x8000)] {
        let container = fatbin(payload, flags, text.len());
        let (mut module, mut kernel) = (0usize, 0usize);
        assert_eq!(call!(cuModuleLoadData(&raw mut module, container.as_ptr())), 0, "{flags:#x}");
        assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"add".as_ptr())), 0);
        assert_eq!(call!(cuModuleUnload(module)), 0);
    }
    // Damaged ones are refused.
    let mut module = 0usize;
    let whole = fatbin(&zstd, 0x8000, text.len());
    for at in (16..whole.len() - 8).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let code = call!(cuModuleLoadData(&raw mut module, damaged.as_ptr()));
        assert!(matches!(code, 0 | 209 | 218), "{code}");
    }
    let mut elf = [0u8; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    assert_eq!(call!(cuModuleLoadData(&raw mut module, elf.as_ptr())), 209);
    assert_eq!(call!(cuModuleLoadData(&raw mut module, c".entry k() { frob; }".as_ptr())), 218);
}

/// A kernel that writes 3, by a function of another module.
fn links_modules() {
    const HEAD: &str = ".version 8.3\n.target sm_80\n.address_size 64\n";
    let caller = format!(
        "{HEAD}.extern .func (.param .b32 r) three();\n.visible .entry write(.param .u64 out) {{\n\
         .reg .b64 %rd<2>; .reg .b32 %r<2>; {{ .param .b32 r; call.uni (r), three, (); ld.param.b32 %r1, [r]; }}\n\
         ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], %r1; ret; }}\n\0"
    );
    let called = format!(
        "{HEAD}.visible .func (.param .b32 r) three() {{ .reg .b32 %r<2>; mov.u32 %r1, 3; \
         st.param.b32 [r], %r1; ret; }}\n\0"
    );
    let run = |module: usize| {
        let (mut kernel, mut data, mut out) = (0usize, 0usize, 0u32);
        assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"write".as_ptr())), 0);
        assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 4)), 0);
        assert_eq!(launch(kernel, &mut [(&raw mut data).cast()]), 0);
        assert_eq!(call!(cuMemcpyDtoH_v2(&raw mut out, data, 4)), 0);
        assert_eq!(call!(cuMemFree_v2(data)), 0);
        assert_eq!(out, 3);
    };
    let mut module = 0usize;
    // By the driver's linker.
    let (mut linker, mut image, mut size) = (0usize, 0usize, 0usize);
    let add = |linker: usize, text: &str, name: &CStr| {
        call!(cuLinkAddData_v2(linker, 1, text.as_ptr(), text.len(), name.as_ptr(), 0, 0, 0))
    };
    assert_eq!(call!(cuLinkCreate_v2(0, 0, 0, &raw mut linker)), 0);
    assert_eq!(add(linker, &caller, c"caller"), 0);
    assert_eq!(add(linker, &called, c"called"), 0);
    assert_eq!(call!(cuLinkComplete(linker, &raw mut image, &raw mut size)), 0);
    assert_eq!(call!(cuModuleLoadData(&raw mut module, image)), 0);
    assert_eq!(call!(cuLinkDestroy(linker)), 0);
    assert_eq!(call!(cuLinkDestroy(linker)), 400);
    run(module);
    // By a fatbin of version 2, as a program of several units has it, and as a library.
    let units = [&caller, &called].map(|text| fatbin(text.as_bytes(), 0, text.len()));
    let address = |bytes: &Vec<u8>| bytes.as_ptr().expose_provenance();
    let list = [address(&units[0]), address(&units[1]), 0];
    let code = fatbin(b"", 0, 0);
    let wrapper = [2 << 32 | 0x4662_43b1, address(&code), list.as_ptr().expose_provenance()];
    let (mut library, mut kernel, mut function) = (0usize, 0usize, 0usize);
    assert_eq!(call!(cuLibraryLoadData(&raw mut library, wrapper.as_ptr(), 0, 0, 0, 0, 0, 0)), 0);
    assert_eq!(call!(cuLibraryGetKernel(&raw mut kernel, library, c"write".as_ptr())), 0);
    assert_eq!(call!(cuKernelGetFunction(&raw mut function, kernel)), 0);
    assert_eq!(call!(cuLibraryGetModule(&raw mut module, library)), 0);
    run(module);
    // What is missing is an error when it is linked.
    assert_eq!(call!(cuLinkCreate_v2(0, 0, 0, &raw mut linker)), 0);
    assert_eq!(add(linker, &caller, c"caller"), 0);
    assert_eq!(call!(cuLinkComplete(linker, &raw mut image, &raw mut size)), 218);
}

fn refuses_what_is_wrong() {
    let mut data = 0usize;
    assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 0)), 1);
    assert_eq!(call!(cuMemAlloc_v2(0, 16)), 1);
    assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 16)), 0);
    assert_eq!(call!(cuMemcpyHtoD_v2(data, [0u8; 32].as_ptr(), 17)), 1);
    assert_eq!(call!(cuMemFree_v2(data + 1)), 1);
    assert_eq!(call!(cuMemFree_v2(data)), 0);
    assert_eq!(call!(cuMemFree_v2(data)), 1);
    assert_eq!(call!(cuMemcpyDtoH_v2([0u8; 4].as_mut_ptr(), data, 4)), 1);
    let host = [0u8; 64];
    assert_eq!(call!(cuMemHostRegister_v2(host.as_ptr(), 64, 0)), 0);
    assert_eq!(call!(cuMemHostRegister_v2(host.as_ptr(), 64, 0)), 712);
    assert_eq!(call!(cuMemHostUnregister(host.as_ptr())), 0);
    assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 16)), 0);
    assert_eq!(call!(cuMemHostRegister_v2(data, 16, 0)), 712);
    assert_eq!(call!(cuMemFree_v2(data)), 0);
    assert_eq!(call!(cuStreamSynchronize(0x1234)), 400);
    assert_eq!(call!(cuEventQuery(0)), 400);
    assert_eq!(call!(cuModuleUnload(0x1000_0000)), 400);
    let mut kernel = 0usize;
    assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, 0x5555, c"add".as_ptr())), 400);
    assert_eq!(call!(cudaSetDevice(1)), 101);
    assert_eq!(call!(cudaGetLastError()), 101);
    assert_eq!(call!(cudaGetLastError()), 0);
    assert_eq!(call!(cudaLaunchKernel(0x99, 1, 1, 1, 0, 0, 0)), 98);
    assert_eq!(call!(cudaPeekAtLastError()), 98);
    assert_eq!(call!(cudaGetLastError()), 98);
    // SAFETY: the function has this type, and the library's strings live as long as it does.
    let name = unsafe {
        let f: extern "C" fn(u32) -> *const c_char =
            std::mem::transmute(function("cudaGetErrorName"));
        CStr::from_ptr(f(700))
    };
    assert_eq!(name, c"cudaErrorIllegalAddress");
}

/// A program registers a container, launches by the address of a stand-in, and reaches a variable.
fn the_runtime_goes_through_the_driver() {
    let container = fatbin(PTX.as_bytes(), 0, 0).leak();
    let wrapper: &[u64; 3] = Box::leak(Box::new([
        0x4662_43b1 | 1 << 32,
        container.as_ptr().expose_provenance() as u64,
        0,
    ]));
    static KERNEL: u8 = 0;
    static STEP: u8 = 0;
    let (kernel, step) = (&raw const KERNEL, &raw const STEP);
    // SAFETY: the function has this type.
    let register: extern "C" fn(usize) -> usize =
        unsafe { std::mem::transmute(function("__cudaRegisterFatBinary")) };
    let handle = register(wrapper.as_ptr() as usize);
    call!(__cudaRegisterFunction(
        handle,
        kernel,
        c"add".as_ptr(),
        c"add".as_ptr(),
        0,
        0,
        0,
        0,
        0,
        0
    ));
    call!(__cudaRegisterVar(handle, step, c"step".as_ptr(), c"step".as_ptr(), 0, 4, 1, 0));
    let two = 2u32;
    assert_eq!(call!(cudaMemcpyToSymbol(step, &raw const two, 4, 0, 1)), 0);
    assert_eq!(call!(cudaMemcpyToSymbol(step, &raw const two, 4, 4, 1)), 1);
    let mut data = 0usize;
    assert_eq!(call!(cudaMalloc(&raw mut data, 16)), 0);
    let mut values = [1u32, 2, 3, 4];
    assert_eq!(call!(cudaMemcpy(data, values.as_ptr(), 16, 1)), 0);
    let (mut by, mut small) = (100u32, 0u8);
    let mut params: [*mut c_void; 3] =
        [(&raw mut data).cast(), (&raw mut by).cast(), (&raw mut small).cast()];
    // A dim3 is passed in two registers: x and y, then z.
    let (grid, block) = (1usize | 1 << 32, 4usize | 1 << 32);
    assert_eq!(call!(cudaLaunchKernel(kernel, grid, 1, block, 1, params.as_mut_ptr(), 0, 0)), 0);
    assert_eq!(call!(cudaDeviceSynchronize()), 0);
    assert_eq!(call!(cudaMemcpy(values.as_mut_ptr(), data, 16, 4)), 0);
    assert_eq!(values, [201, 202, 203, 204]);
}

/// A library that is unloaded unregisters its container, which is gone then.
fn what_is_unregistered_is_not_read() {
    let container = fatbin(PTX.as_bytes(), 0, 0);
    let wrapper = [0x4662_43b1 | 1 << 32, container.as_ptr().expose_provenance() as u64, 0];
    static KERNEL: u8 = 0;
    let kernel = &raw const KERNEL;
    // SAFETY: the function has this type; the wrapper is unregistered before it goes.
    let register: extern "C" fn(usize) -> usize =
        unsafe { std::mem::transmute(function("__cudaRegisterFatBinary")) };
    let handle = register(wrapper.as_ptr() as usize);
    let name = c"add".as_ptr();
    call!(__cudaRegisterFunction(handle, kernel, name, name, 0, 0, 0, 0, 0, 0));
    call!(__cudaUnregisterFatBinary(handle));
    let mut found = 0usize;
    assert_eq!(call!(cudaGetFuncBySymbol(&raw mut found, kernel)), 98);
    assert_eq!(call!(cudaGetLastError()), 98);
}

fn errors_of_kernels_stay() {
    let (mut module, mut kernel, mut data) = (0usize, 0usize, 0usize);
    let ptx = CString::new(PTX).unwrap();
    assert_eq!(call!(cuModuleLoadData(&raw mut module, ptx.as_ptr())), 0);
    assert_eq!(call!(cuModuleGetFunction(&raw mut kernel, module, c"wrong".as_ptr())), 0);
    // As on a GPU, the launch is well and what follows is not.
    assert_eq!(launch(kernel, &mut []), 0);
    assert_eq!(call!(cuCtxSynchronize()), 700);
    assert_eq!(call!(cuMemAlloc_v2(&raw mut data, 16)), 700);
    assert_eq!(call!(cudaGetLastError()), 700);
    assert_eq!(call!(cudaGetLastError()), 700);
    assert_eq!(call!(cudaDeviceReset()), 0);
    assert_eq!(call!(cudaMalloc(&raw mut data, 16)), 0);
}

/// Two processes, the second of which is the first's child: it starts the program anew, as CUDA asks for.
#[test]
fn processes_share_memory() {
    let folder = libraries();
    compile(folder.path(), include_str!("share_memory.c"));
    for global in ["0", "1"] {
        let (status, printed, said) = run_role(folder.path(), "share", global);
        let expected = "\
the same handles: 1
still there: 1 2 3 4
a child gives the same handle: 0
cuIpcGetMemHandle(&own, small): 1
cuIpcOpenMemHandle_v2(&small, handles.small, 0): 1
opened twice: 1, with 2 4
doubled by both: 8, beside: 1 3
twice what the other wrote: 18
cuMemFree_v2(large): 1
opened once more than closed: 7
cuIpcCloseMemHandle(large): 0
cuIpcCloseMemHandle(large): 1
cuIpcCloseMemHandle(small + 4): 1
cuIpcCloseMemHandle(small): 0
cuMemcpyDtoH_v2(&again, small, 4): 1
cuIpcOpenMemHandle_v2(&memory, handles.small, 1): 400
cuIpcOpenEventHandle(&event, handles.event): 400
cuIpcOpenMemHandle_v2(&memory, handles.large, 1): 0
";
        assert_eq!((status, sorted(&printed)), (Some(0), sorted(expected)), "{said}");
        for why in
            ["closed by cuIpcCloseMemHandle", "has freed the memory", "has destroyed the event"]
        {
            assert!(said.contains(why), "{why}: {said}");
        }
        assert!(!said.contains("kernel"), "{said}");
    }
}

/// Lines of two processes, which print some at the same time.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn what_is_not_shared_is_refused() {
    let folder = libraries();
    compile(folder.path(), include_str!("share_memory.c"));
    let (status, printed, said) = run_role(folder.path(), "refused", "0");
    let expected = "\
cuIpcGetMemHandle(&handle, memory): 1
cuIpcGetMemHandle(&handle, (Address)host): 1
cuIpcGetMemHandle(&handle, memory): 1
cuIpcGetMemHandle(&handle, 16): 1
cuEventCreate(&event, 4): 1
cuIpcGetEventHandle(&handle, event): 400
cuEventElapsedTime(&time, event, event): 400
cuIpcGetMemHandle(&handle, memory): 2
cuIpcOpenMemHandle_v2(&opened, handle, 1): 201
cuIpcOpenEventHandle(&other, handle): 400
cuIpcOpenMemHandle_v2(&opened, no_handle, 1): 400
cuIpcCloseMemHandle(memory): 1
cuIpcGetMemHandle(&handle, memory): 1
of a process that was killed: 5
still mine: 10
cuIpcOpenMemHandle_v2(&opened, handle, 1): 400
";
    assert_eq!((status, &*printed), (Some(0), expected), "{said}");
    for why in ["of a pool", "RLIMIT_NOFILE", "of this process", "has ended"] {
        assert!(said.contains(why), "{why}: {said}");
    }
}

/// Another process may wait for an event and tell this one, which the emulator does not see: no race is reported then.
#[test]
fn an_event_of_two_processes_orders_streams() {
    let folder = libraries();
    compile(folder.path(), include_str!("share_memory.c"));
    let (status, printed, said) = run_role(folder.path(), "ordered", "1");
    assert_eq!((status, &*printed, &*said), (Some(0), "done\n", ""));
    let (status, printed, said) = run_role(folder.path(), "unordered", "1");
    assert_eq!((status, &*printed), (Some(0), "done\n"));
    assert!(said.contains("race") && said.contains("a fill of 40 bytes"), "{said}");
}

/// What is refused NVIDIA's libcuda 550.163.01 refuses as well.
#[test]
fn processes_share_pools() {
    let folder = libraries();
    compile(folder.path(), include_str!("share_pool.c"));
    for global in ["0", "1"] {
        let (status, printed, said) = run_role(folder.path(), "share", global);
        let expected = "\
kinds of handles: 1
kept of what is freed: 0
imported: 3 5 7, the same: 1
cuMemPoolImportPointer(&none, pool, &pointers[1]): 1
cuMemAllocFromPoolAsync(&none, 4, pool, 0): 1
cuDeviceSetMemPool(0, pool): 1
cuMemPoolGetAttribute(pool, 7, &used): 1
cuMemPoolTrimTo(pool, 0): 1
cuMemPoolExportToShareableHandle(&file, pool, DESCRIPTOR, 0): 1
cuMemPoolExportPointer(&of_later, first): 1
cuIpcGetMemHandle(&of_later, first): 1
access: 3
freed once of twice: 6
cuMemcpyDtoH_v2(&may, first, 4): 1
doubled: 6 10 14
cuMemPoolImportPointer(&second, other, &pointers[1]): 1
";
        assert_eq!((status, &*printed), (Some(0), expected), "{said}");
        assert!(said.contains("has freed the memory") && !said.contains("kernel"), "{said}");
    }
    let (status, printed, said) = run_role(folder.path(), "refused", "0");
    let codes: Vec<&str> = printed.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!((status, codes), (Some(0), vec!["1"; 12]), "{printed}{said}");
}

/// In a process that has it open, what it does with memory that the other one has freed.
#[test]
fn memory_that_another_process_freed_is_not_used() {
    let folder = libraries();
    compile(folder.path(), include_str!("share_pool.c"));
    let (status, printed, said) = run_role(folder.path(), "freed", "0");
    let expected = "\
cuMemcpyDtoH_v2(&value, pooled, 4): 1
cuMemcpy((Address)&value, memory + 4, 4): 1
cuMemsetD32_v2(memory, 1, 1): 1
cuCtxSynchronize(): 700
";
    assert_eq!((status, &*printed), (Some(0), expected), "{said}");
    assert_eq!(
        said.matches("has freed its memory, 1048576 bytes that this one has open").count(),
        2
    );
    for what in
        ["use after free: a copy of 4", "use after free: a fill of 4", "use after free: kernel"]
    {
        assert!(said.contains(what), "{what}: {said}");
    }
    let mut command = Command::new(folder.path().join("program"));
    command.arg("freed").env("LET_GO", "1").env("LD_LIBRARY_PATH", folder.path());
    let output = command.output().unwrap();
    let expected =
        "cuMemFree_v2(pooled): 0\ncuMemFree_v2(pooled): 1\ncuIpcCloseMemHandle(memory): 0\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

/// As NVIDIA's libcuda 550.163.01 does on two simulated A100, but for the other process, which is not simulated.
#[test]
fn memory_is_mapped_where_the_program_says() {
    let folder = libraries();
    compile(folder.path(), include_str!("map_memory.c"));
    let (said, printed) = run_program(folder.path(), "");
    let expected = "\
supported: 1, by 2097152
taken: 2097152
aligned: 1, over both: 5 5
twice(at + SIZE - 4): 0
twice(at + SIZE): 0
doubled: 10
access of the other: 0, device: 1, of the handle: 1
cuMemCreate(&other, SIZE / 2, &properties, 0): 1
cuMemCreate(&other, (size_t)1 << 60, &properties, 0): 2
cuMemExportToShareableHandle(&file, plain, 1, 0): 1
cuMemMap(at, SIZE, 0, memory, 0): 1
cuMemMap(at + 2 * SIZE, 2 * SIZE, 0, memory, 0): 801
cuMemUnmap(at, SIZE / 2): 1
cuMemUnmap(at, 0): 1
cuMemAddressFree(at, 4 * SIZE): 1
cuMemFree_v2(at): 1
cuMemSetAccess(at, 4 * SIZE, access, 1): 1
at two places: 9
of another process: 9
twice(at): 0
status: 0
doubled there: 18
released: 10
cuMemcpyDtoH_v2(words, at, 4): 1
without access: 700
";
    assert_eq!(printed, expected, "{said}");
    assert!(said.contains("which this one may not access"), "{said}");
}

#[test]
fn devices_have_contexts_memory_and_peers() {
    let folder = libraries();
    compile(folder.path(), include_str!("contexts.c"));
    let run = |devices: &str| {
        let mut command = Command::new(folder.path().join("program"));
        command.env("LD_LIBRARY_PATH", folder.path()).env("NVABI_EMU_DEVICES", devices);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (status, printed, said) = run("2");
    let expected = "\
cuDeviceGet(&device, 2): 101
devices: 2, alike: 0
addresses: `0000:01:00.0` 1, `00000000:1:0.0` 1, `01:00.0` 1, `1:0.0` 1, `0000:01:00` 1, `0:1:0` 1, \
`0:1F:0` 101, `01:00` 101, `01:00.1` 101, `01:01.0` 101, `0001:01:00.0` 101, `0:0:1:0.0` 101, `0:1:0.0.0` 101, \
`:1:0.0` 101, `0:+1:0` 101, `1:0.` 101, `one` 101, `` 101
device 0: memory of 0
device 1: memory of 1
pushed: 1 0 1, popped the one pushed: 1
cuCtxSetCurrent((void *)16): 201
access: 1
cuDeviceGetP2PAttribute(&value, 2, 1, 1): 101
cuCtxEnablePeerAccess(contexts[0], 0): 201
cuCtxDisablePeerAccess(contexts[1]): 705
cuCtxEnablePeerAccess(contexts[1], 0): 0
cuCtxEnablePeerAccess(contexts[1], 0): 704
cuCtxDisablePeerAccess(contexts[1]): 0
cuMemcpyPeer(memory[0], 0, memory[1], contexts[1], 4): 201
copied: 8 8
of the pool: 0 3
pooled: 14 of device 1
cuMemPoolSetAccess(pool, own, 1): 1
cuDeviceSetMemPool(0, pool): 101
cuIpcOpenMemHandle_v2(&memory, wrong, 1): 205
cuCtxDisablePeerAccess(contexts[1]): 705
opened by device 0: memory of 1, the same: 1
shared: 16, 0
cuCtxSynchronize(): 700
";
    assert_eq!((status, &*printed), (Some(0), expected), "{said}");
    assert!(said.contains("in memory of device 1, which this one may not access"), "{said}");
    for devices in ["0", "9", "two"] {
        let (_, printed, said) = run(devices);
        // There is no second one.
        assert!(printed.starts_with("cuDeviceGet(&device, 2): 101\nline "), "{printed}");
        assert!(said.contains("is no number from 1 to 8"), "{said}");
    }
}

/// `cuMemcpyPeer` is serialised with all work of the devices, and so is a copy between them that names no stream; in a
/// stream it is not.
#[test]
fn copies_between_devices_are_ordered() {
    for case in ["peer", "dtod"] {
        let (said, printed) = run_devices(case);
        assert_eq!((&*said, &*printed), ("", ""), "{case}");
    }
    let (said, _) = run_devices("async");
    assert_eq!(said.matches("race").count(), 3, "{said}");
}

/// The other device's work goes on, and races with what comes then.
#[test]
fn a_device_waits_for_its_own_streams() {
    let (said, _) = run_devices("wait");
    assert!(said.matches("race").count() == 1 && said.contains("0x1000000000"), "{said}");
}

#[test]
fn each_device_has_its_default_stream() {
    let (said, printed) = run_devices("defaults");
    assert_eq!((said.matches("race").count(), &*printed), (1, ""), "{said}");
    assert!(said.contains("a fill of 4 bytes at 0x1000000200"), "{said}");
}

#[test]
fn kernels_run_on_the_device_that_they_are_of() {
    let (said, printed) = run_devices("of");
    let expected = "\
cuLaunchKernel(kernels[0], 1, 1, 1, 1, 1, 1, 0, d.streams[1], arguments, 0): 400
cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, d.streams[1], arguments, 0): 0
cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0): 400
cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, d.streams[0], arguments, 0): 400
cuEventRecord(events[1], d.streams[0]): 400
cuEventRecord(events[1], 0): 400
cuEventRecord(events[1], d.streams[1]): 0
cuGraphLaunch(exec, d.streams[0]): 0
cuCtxSynchronize(): 0
doubled twice: 4
cuGraphExecKernelNodeSetParams_v2(exec, node, &params): 1
cuGraphKernelNodeSetParams_v2(node, &params): 0
cuGraphExecUpdate_v2(exec, graph, update): 910
why: 7
memory of a node: device 1
of a library: 0, a variable of device 1
of a library: 0, a variable of device 0
cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0): 0
a stream of device 1, and the default one of 0
cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0): 400
";
    assert_eq!(printed, expected, "{said}");
}

#[test]
fn an_error_of_a_kernel_is_its_devices() {
    let (said, printed) = run_devices("failed");
    let expected = "\
cuCtxSynchronize(): 719
cuMemAlloc_v2(&memory, 4): 719
cuMemGetInfo_v2(&free, &total): 719
cuStreamCreate(&made, 0): 719
cuEventCreate(&made, 0): 719
cuEventQuery(event): 719
cuEventDestroy_v2(event): 719
cuModuleLoadData(&made, PTX): 719
cuStreamQuery(d.streams[1]): 719
cuStreamDestroy_v2(d.streams[1]): 719
cuMemcpyDtoH_v2(&device, d.memory[1], 4): 719
cuMemFree_v2(d.memory[1]): 719
cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, d.streams[0], arguments, 0): 0
cuCtxSynchronize(): 0
cuMemAlloc_v2(&memory, 4): 0
cuDevicePrimaryCtxReset_v2(0): 0
cuMemAlloc_v2(&memory, 4): 719
cuDevicePrimaryCtxReset_v2(1): 0
cuMemAlloc_v2(&memory, 4): 0
";
    assert_eq!(printed, expected, "{said}");
}

/// As NVIDIA's libcuda 550.163.01 and its runtime do on three simulated A100, with shorter ids.
#[test]
fn the_devices_are_those_that_a_variable_leaves() {
    let folder = libraries();
    compile(folder.path(), include_str!("visible.c"));
    let run = |visible: Option<&str>| {
        let mut command = Command::new(folder.path().join("program"));
        command.env("LD_LIBRARY_PATH", folder.path()).env("NVABI_EMU_DEVICES", "3");
        match visible {
            Some(list) => command.env("CUDA_VISIBLE_DEVICES", list),
            None => command.env_remove("CUDA_VISIBLE_DEVICES"),
        };
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let those = |devices: &[usize]| {
        let names: String = devices.iter().map(|n| format!(" {n}={n:02x}6e76")).collect();
        format!("driver 0 0 0:{names}; runtime 0 {} 0 0 0 0\n", devices.len())
    };
    assert_eq!(run(None), (those(&[0, 1, 2]), String::new()));
    for (list, devices) in [
        ("1", &[1][..]),
        ("2,0", &[2, 0]),
        (" 2 , 0", &[2, 0]),
        ("+1", &[1]),
        ("01,", &[1]),
        ("0x1", &[0]),
        ("0;1", &[0]),
        // What is no device ends the list.
        ("0,1,9,2", &[0, 1]),
        ("0,-1,1", &[0]),
        ("0,x,1", &[0]),
        ("GPU-02,GPU-00", &[2, 0]),
        ("GPU-016E7661-62", &[1]),
        ("GPU-016e76616269", &[1]),
        ("GPU-01zz", &[1]),
        ("GPU-02,GPU-0,GPU-01", &[2]),
        // It is of numbers or of ids.
        ("0,GPU-01", &[0]),
        ("GPU-01,0", &[1]),
    ] {
        assert_eq!(run(Some(list)), (those(devices), String::new()), "{list}");
    }
    let none =
        |code| format!("driver {code} 3 3:; runtime {code} -1 {code} {code} {code} {code}\n");
    for list in
        ["", " ", "-1", "3", "none", ",1", "GPU-", "GPU-0", "GPU--01", "gpu-01", "MIG-GPU-01"]
    {
        let (printed, said) = run(Some(list));
        assert_eq!(printed, none(100), "{list}");
        assert!(said.contains("leaves none of 3 devices") && said.lines().count() == 1, "{said}");
    }
    for list in ["0,0", "1,0,1,2", "GPU-01,GPU-016e"] {
        let (printed, said) = run(Some(list));
        assert_eq!(printed, none(101), "{list}");
        assert!(said.contains("names a device twice") && said.lines().count() == 1, "{said}");
    }
}

/// Runs a case of contexts.c with two devices whose memory is watched: what it says, and what it prints.
fn run_devices(case: &str) -> (String, String) {
    let folder = libraries();
    compile(folder.path(), include_str!("contexts.c"));
    run_program(folder.path(), case)
}

/// The same of the program that is there.
fn run_program(folder: &Path, case: &str) -> (String, String) {
    let mut command = Command::new(folder.join("program"));
    command.args(case.split_whitespace()).env("LD_LIBRARY_PATH", folder);
    command.env("NVABI_EMU_DEVICES", "2").env("NVABI_EMU_GLOBAL", "1");
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stderr), text(output.stdout))
}

/// Runs the program as `run_case`, with what it prints.
fn run_role(folder: &Path, role: &str, global: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(folder.join("program"));
    command.arg(role).env("LD_LIBRARY_PATH", folder).env("NVABI_EMU_GLOBAL", global);
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The folder with CUDA's headers: `CUDA_PATH`, or what `cuda/toolkit.sh` fetches, as long as clang is
/// there to read them.
fn toolkit() -> PathBuf {
    if Command::new("clang++-19").arg("--version").output().is_err() {
        skip(Need::Llvm, "clang++-19 does not run");
    }
    nvabi_test::cuda(&["include/cuda.h"])
}

/// The samples, compiled by clang 19 with CUDA's headers.
#[test]
fn the_samples_run() {
    let cuda = toolkit();
    let work = libraries();
    let samples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../samples");
    for sample in ["vectorAdd", "matrixMul"] {
        let program = work.path().join(sample);
        let compiled = Command::new("clang++-19")
            .args(["-x", "cuda", "--cuda-gpu-arch=sm_80", "-O2"])
            .arg(format!("--cuda-path={}", cuda.display()))
            .arg(samples.join(format!("{sample}.cu")))
            .args(["-l:libcudart.so.12", "-o"])
            .arg(&program)
            .arg(format!("-L{}", cuda.join("lib64").display()))
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        for schedule in ["in-order", "random:42"] {
            let run = Command::new(&program)
                .env("LD_LIBRARY_PATH", work.path())
                .env("NVABI_EMU_SCHEDULE", schedule)
                .output()
                .unwrap();
            let (out, err) =
                (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
            assert!(run.status.success() && out.ends_with("passed\n"), "{sample}: {out}{err}");
            assert_eq!(err, "", "{sample}");
        }
    }
}

/// clang behind nvcc's options puts PTX into programs and no machine code, which a Makefile's flags ask for.
#[test]
fn the_compiler_for_makefiles_makes_ptx_alone() {
    let (cuda, work) = (toolkit(), libraries());
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = work.path().join("vectorAdd");
    let compiled = Command::new(here.join("nvcc.sh"))
        .args(["-m64", "-gencode", "arch=compute_70,code=sm_70", "-ewp", "-Xptxas", "-v", "-o"])
        .arg(&program)
        .arg(here.join("samples/vectorAdd.cu"))
        .env("CUDA_PATH", &cuda)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let bytes = std::fs::read(&program).unwrap();
    let elves = bytes.windows(4).filter(|bytes| *bytes == b"\x7fELF").count();
    assert_eq!(elves, 1, "the program itself");
    let run = Command::new(&program).env("LD_LIBRARY_PATH", work.path()).output().unwrap();
    assert!(run.stdout.ends_with(b"passed\n"), "{run:?}");
}

/// The functions that a library exports, with their versions, as binutils list them.
fn exported(library: &std::path::Path) -> Vec<(String, String)> {
    let output = Command::new("readelf").args(["-W", "--dyn-syms"]).arg(library).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let functions = rows.filter(|row| row.len() >= 8 && row[3] == "FUNC" && row[6] != "UND");
    let mut names: Vec<(String, String)> = functions
        .map(|row| row[7].split_once("@@").unwrap_or((row[7], "")))
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn each_library_has_its_own_name_and_versions() {
    for (built, name) in LIBRARIES {
        let path = library(built);
        let output = Command::new("readelf").args(["-W", "-d"]).arg(&path).output().unwrap();
        let dynamic = String::from_utf8(output.stdout).unwrap();
        assert!(dynamic.contains(&format!("soname: [{name}]")), "{dynamic}");
        let functions = exported(&path);
        let (own, other, version) = match name {
            "libcuda.so.1" => ("cuInit", "cudaMalloc", ""),
            _ => ("cudaMalloc", "cuInit", name),
        };
        assert!(functions.iter().any(|(name, found)| (&**name, &**found) == (own, version)));
        assert!(!functions.iter().any(|(name, _)| name == other), "{name} has {other}");
    }
}

/// The runtime has every function of CUDA's, whose names are compared with CUDA's own library; the driver's
/// are compared with what its header declares.
#[test]
fn every_function_of_cuda_is_there() {
    let cuda = toolkit();
    let names = |path: &std::path::Path| -> Vec<String> {
        exported(path).into_iter().map(|(name, _)| name).collect()
    };
    let runtime = names(&library("libnvabi_cudart.so"));
    let wanted = names(&cuda.join("lib64/libcudart.so.12"));
    assert!(wanted.len() > 400, "{}", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|name| !runtime.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let cuda_13 = nvabi_test::cuda_13();
    let runtime = names(&library("libnvabi_cudart13.so"));
    let wanted = names(&cuda_13.join("lib64/libcudart.so.13"));
    assert!(wanted.len() > 400, "{}", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|name| !runtime.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for cuda in [cuda, cuda_13] {
        every_function_of_the_driver_is_there(&cuda);
    }
}

/// Those that the header declares.
fn every_function_of_the_driver_is_there(cuda: &Path) {
    let driver: Vec<String> =
        exported(&library("libnvabi_cuda.so")).into_iter().map(|(name, _)| name).collect();
    let mut wanted = Vec::new();
    for flags in
        [&[][..], &["-D__CUDA_API_VERSION_INTERNAL"], &["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"]]
    {
        let output = Command::new("clang++-19")
            .args(["-x", "c", "-E", "-P"])
            .args(flags)
            .arg(cuda.join("include/cuda.h"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let words: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty())
            .collect();
        let declared =
            words.windows(2).filter(|two| two[0] == "CUresult" && two[1].starts_with("cu"));
        wanted.extend(declared.map(|two| two[1].to_owned()));
    }
    // Declared for the compiler alone: no libcuda has it.
    wanted.retain(|name| name != "cuGetProcAddress_v2_ptsz");
    assert!(wanted.len() > 1000, "{}", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|name| !driver.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A form with other arguments is for programs of its version and later ones: of each that the header knows since CUDA
/// 12.1 and that the emulator has, programs of the version before get another function.
#[test]
fn forms_of_functions_are_those_of_the_programs_version() {
    let header = nvabi_test::cuda_13().join("include/cudaTypedefs.h");
    let text = std::fs::read_to_string(header).unwrap();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut forms = BTreeMap::<&str, BTreeSet<usize>>::new();
    for word in words.filter_map(|word| word.strip_prefix("PFN_").filter(|w| !w.ends_with("ptsz")))
    {
        if let Some((name, version)) = word.rsplit_once("_v")
            && let Ok(version) = version.parse()
        {
            forms.entry(name).or_default().insert(version);
        }
    }
    let of_version = |name: &str, version: usize| {
        let (name, mut found, mut status) = (CString::new(name).unwrap(), 0_usize, 0_i32);
        let code = call!(cuGetProcAddress_v2(
            name.as_ptr(),
            &mut found as *mut usize,
            version,
            0,
            &mut status as *mut i32
        ));
        (code == 0).then_some(found)
    };
    let mut seen = 0;
    for (name, versions) in &forms {
        for version in versions.iter().skip(1).filter(|version| **version > 12000) {
            let Some(found) = of_version(name, *version) else { continue };
            assert_ne!(Some(found), of_version(name, version - 1), "{name} of {version}");
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen} forms");
}

/// A program that is bound when it starts, with what the emulator lacks in it: it runs, and a call says which.
#[test]
fn what_is_not_supported_is_named_when_it_is_called() {
    let work = libraries();
    let source = work.path().join("program.c");
    let text = "#include <stdio.h>\n\
        int cuTexRefCreate(void **reference);\n\
        int cudaGraphDebugDotPrint(void *graph, char *path, unsigned flags);\n\
        int cudaSignalExternalSemaphoresAsync_v2(void *a, void *b, unsigned c, void *d);\n\
        int cudaMalloc(void **at, unsigned long size);\n\
        int cudaMemset_ptds(void *at, int value, unsigned long size);\n\
        int main(int argc, char **argv) { void *p = 0; int a = cudaMalloc(&p, 64);\n\
        if (argc > 5) cudaSignalExternalSemaphoresAsync_v2(0, 0, 0, 0);\n\
        int set = cudaMemset_ptds(p, 7, 64);\n\
        int b = cuTexRefCreate(&p), c = cudaGraphDebugDotPrint(p, 0, 0); cudaGraphDebugDotPrint(p, 0, 0);\n\
        printf(\"%d %d %d %d\\n\", a, set, b, c); }\n";
    std::fs::write(&source, text).unwrap();
    let program = work.path().join("program");
    let compiled = Command::new("cc")
        .args(["-Wl,-z,now", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-L")
        .arg(work.path())
        .args(["-l:libcudart.so.12", "-l:libcuda.so.1"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).env("LD_LIBRARY_PATH", work.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stdout), "0 0 801 801\n");
    assert_eq!(
        String::from_utf8_lossy(&run.stderr),
        "nvabi-emu: cuTexRefCreate is not supported: it returns error 801\n\
         nvabi-emu: cudaGraphDebugDotPrint is not supported: it returns error 801\n"
    );
    // The runtime finds the driver beside it, and says so where there is none.
    std::fs::remove_file(work.path().join("libcudart.so.12")).unwrap();
    let copy = work.path().join("libcudart.so.12");
    std::fs::copy(library("libnvabi_cudart.so"), &copy).unwrap();
    let alone = tempfile::tempdir().unwrap();
    std::fs::copy(&copy, alone.path().join("libcudart.so.12")).unwrap();
    std::fs::write(
        &source,
        "int cudaDeviceReset(void); int main(void) { return cudaDeviceReset() != 801; }",
    )
    .unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .arg("-L")
        .arg(alone.path())
        .arg("-l:libcudart.so.12")
        .status();
    assert!(built.unwrap().success());
    let run = Command::new(&program).env("LD_LIBRARY_PATH", alone.path()).output().unwrap();
    let err = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success() && err.contains("libcuda.so.1 of the emulator is not beside"),
        "{err}"
    );
}

#[test]
fn limits_are_kept() {
    let mut value = 0usize;
    assert_eq!(call!(cuCtxGetLimit(&raw mut value, 2)), 0);
    assert_eq!(value, 8 << 20);
    assert_eq!(call!(cudaDeviceSetLimit(0, 4096)), 0);
    assert_eq!(call!(cuCtxGetLimit(&raw mut value, 0)), 0);
    assert_eq!(value, 4096);
    assert_eq!(call!(cuCtxGetLimit(&raw mut value, 99)), 215);
}

/// A program that runs a kernel, beside the libraries, and two kernels: of one two warps store different values.
fn racing() -> tempfile::TempDir {
    let work = libraries();
    compile(work.path(), include_str!("run_kernel.c"));
    for (name, value) in [("racing.ptx", "%warpid"), ("same.ptx", "7")] {
        let text = format!(
            ".version 8.3\n.target sm_80\n.address_size 64\n.file 1 \"k.cu\"\n.visible .entry k() {{\n\
             .reg .b32 %r<3>; .shared .align 4 .b8 x[4];\nmov.u32 %r1, {value};\n.loc 1 3 5\n\
             st.shared.u32 [x], %r1; ret; }}\n"
        );
        std::fs::write(work.path().join(name), text).unwrap();
    }
    work
}

#[test]
fn findings_go_where_the_variables_say_and_are_never_lost() {
    let work = racing();
    let run = |kernel: &str, set: &[(&str, &str)]| {
        let mut command = Command::new(work.path().join("program"));
        command.current_dir(work.path()).arg(kernel).env("LD_LIBRARY_PATH", work.path());
        let output = command.envs(set.iter().copied()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let told = |text: &str| text.contains("k.cu:3:5 (PTX line 9): race: kernel k, block (0,0,0)");
    assert!(told(&run("racing.ptx", &[]).1));
    // Before, the first two lost them.
    assert!(told(&run("racing.ptx", &[("NVABI_EMU_REPORT", "")]).1));
    for variable in ["NVABI_EMU_REPORT", "NVABI_EMU_FINDINGS"] {
        let (_, err) = run("racing.ptx", &[(variable, "no/such/folder/file")]);
        assert!(told(&err) && err.contains("no/such/folder/file: No such file"), "{err}");
    }
    let (code, err) =
        run("racing.ptx", &[("NVABI_EMU_REPORT", "lines"), ("NVABI_EMU_FINDINGS", "records")]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let read = |name: &str| std::fs::read_to_string(work.path().join(name)).unwrap();
    assert!(told(&read("lines")));
    let record = read("records");
    for part in [
        "\"kind\":\"race\"",
        "\"severity\":\"error\"",
        "\"file\":\"k.cu\",",
        "\"line\":3,",
        "\"thread\":[32,0,0]",
    ] {
        assert!(record.contains(part), "{part}: {record}");
    }
    // A status for scripts: only where something is wrong for sure.
    assert_eq!(run("racing.ptx", &[("NVABI_EMU_EXIT", "3")]).0, Some(3));
    assert_eq!(run("same.ptx", &[("NVABI_EMU_EXIT", "3")]).0, Some(0));
    assert!(run("same.ptx", &[("NVABI_EMU_EXIT", "0")]).1.contains("is no status"));
    assert!(
        run("same.ptx", &[("NVABI_EMU_LIMIT", "x")]).1.contains("is no number of instructions")
    );
    let (_, err) = run("same.ptx", &[("NVABI_EMU_LIMIT", "2")]);
    assert!(err.contains("endless") && err.contains("NVABI_EMU_LIMIT sets the limit"), "{err}");
}

/// A program that leaves two allocations behind, and whose kernel reads one that nobody wrote.
#[test]
fn leaks_and_global_memory_are_checked_where_that_is_asked_for() {
    let work = libraries();
    let text = "int cuInit(unsigned); int cuModuleLoadData(void **, const void *);\n\
        int cuModuleGetFunction(void **, void *, const char *);\n\
        int cuMemAlloc_v2(unsigned long *, unsigned long); int cuMemFree_v2(unsigned long);\n\
        int cuMemcpyHtoD_v2(unsigned long, const void *, unsigned long);\n\
        int cuMemAllocManaged(unsigned long *, unsigned long, unsigned);\n\
        int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,\n\
        void **, void **);\n\
        static const char ptx[] = \".version 8.3\\n.target sm_80\\n.address_size 64\\n\"\n\
        \".visible .entry k(.param .u64 from) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [from];\"\n\
        \"ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1; ret; }\";\n\
        int main(int argc, char **argv) {\n\
        void *module, *kernel; unsigned long first, second, managed, freed;\n\
        cuInit(0); cuModuleLoadData(&module, ptx); cuModuleGetFunction(&kernel, module, \"k\");\n\
        cuMemAlloc_v2(&first, 64); cuMemAlloc_v2(&second, 36); cuMemAlloc_v2(&freed, 1000); cuMemFree_v2(freed);\n\
        cuMemAllocManaged(&managed, 4, 1);\n\
        int word = 0; cuMemcpyHtoD_v2(second, &word, 4);\n\
        unsigned long all[] = { first, second, managed };\n\
        int i; for (i = 0; i < 3; i++) { void *args[] = { &all[i] };\n\
        if (cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, args, 0)) return 9; }\n\
        return cuMemFree_v2(managed); }\n";
    compile(work.path(), text);
    let run = |set: &[(&str, &str)]| {
        let mut command = Command::new(work.path().join("program"));
        command.env("LD_LIBRARY_PATH", work.path()).env("NVABI_EMU_EXIT", "3");
        let output = command.envs(set.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run(&[]), (Some(0), String::new()));
    let leak = "nvabi-emu: leak: 2 allocations are never freed: 100 bytes\n";
    assert_eq!(run(&[("NVABI_EMU_LEAKS", "1")]), (Some(3), leak.to_owned()));
    let (code, err) = run(&[("NVABI_EMU_GLOBAL", "1")]);
    assert!(
        err.contains("uninitialised global memory: kernel k") && err.lines().count() == 1,
        "{err}"
    );
    assert_eq!(code, Some(3));
}

/// Work of two streams on the same word, with something between or nothing.
#[test]
fn streams_race_that_nothing_orders() {
    let work = libraries();
    let text = "#include <stdlib.h>\n\
        typedef void *P; typedef unsigned long U;\n\
        static const char ptx[] = \".version 8.3\\n.target sm_80\\n.address_size 64\\n\"\n\
        \".visible .entry k(.param .u64 to) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [to];\"\n\
        \"ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; ret; }\";\n\
        int main(int argc, char **argv) {\n\
        P module, k, a, b, apart, event, graph, exec; U word; unsigned host = 0;\n\
        cuInit(0); cuModuleLoadData(&module, ptx); cuModuleGetFunction(&k, module, \"k\");\n\
        cuStreamCreate(&a, 0); cuStreamCreate(&b, 0); cuStreamCreate(&apart, 1); cuEventCreate(&event, 0);\n\
        cuMemAlloc_v2(&word, 4ul); cuMemsetD8_v2(word, 0, 4ul); cuCtxSynchronize();\n\
        P args[] = { &word };\n\
        #define ON(stream) if (cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, stream, args, (P)0)) return 9\n\
        switch (atoi(argv[1])) {\n\
        case 0: ON(a); ON(b); break;\n\
        case 1: ON(a); cuEventRecord(event, a); cuStreamWaitEvent(b, event, 0); ON(b); break;\n\
        case 2: ON(a); cuStreamSynchronize(a); ON(b); break;\n\
        case 3: ON(a); cuEventRecord(event, a); cuEventSynchronize(event); ON(b); break;\n\
        case 4: ON((P)0); ON(b); ON((P)0); ON(a); break;\n\
        case 5: ON((P)0); ON(apart); break;\n\
        case 6: ON(a); cuMemcpyDtoHAsync_v2(&host, word, 4ul, b); break;\n\
        case 7: ON(a); cuMemcpyDtoH_v2(&host, word, 4ul); ON(apart); break;\n\
        case 8: ON(apart); cuMemcpyDtoH_v2(&host, word, 4ul); break;\n\
        case 9: cuMemsetD8_v2(word, 1, 4ul); ON(apart); break;\n\
        case 10: ON(a); cuMemFreeAsync(word, b); break;\n\
        case 11: ON(a); cuCtxSynchronize(); ON(b); break;\n\
        case 12: cuStreamBeginCapture_v2(a, 0); ON(a); cuStreamEndCapture(a, &graph);\n\
        cuGraphInstantiateWithFlags(&exec, graph, 0ul); if (cuGraphLaunch(exec, a)) return 8; ON(b); break;\n\
        case 13: cuEventRecord(event, a); ON(a); cuStreamWaitEvent(b, event, 0); ON(b); break;\n\
        case 14: ON(a); ON(a); cuMemFree_v2(word); break;\n\
        }\n\
        return 0; }\n";
    compile(work.path(), text);
    let run = |case: &str, global: &str| {
        let (code, err) = run_case(work.path(), case, global);
        assert_eq!(code, Some(0), "{case}: {err}");
        err
    };
    for case in ["1", "2", "3", "4", "7", "11", "14"] {
        assert_eq!(run(case, "1"), "", "case {case}");
    }
    for (case, who, other) in [
        ("0", "kernel k, block", "kernel k"),
        ("5", "kernel k, block", "kernel k"),
        ("6", "a copy of 4 bytes", "kernel k"),
        ("8", "a copy of 4 bytes", "kernel k"),
        ("9", "kernel k, block", "a fill of 4 bytes"),
        ("10", "a free of 4 bytes", "kernel k"),
        ("12", "kernel k, block", "kernel k"),
        ("13", "kernel k, block", "kernel k"),
    ] {
        let err = run(case, "1");
        let told = format!("written by {other}");
        let all = ["race: ", who, &told, ", with nothing that orders the two"];
        assert!(all.iter().all(|part| err.contains(part)), "case {case}: {err}");
        assert_eq!(err.lines().count(), 1, "case {case}: {err}");
        assert_eq!(run(case, ""), "", "case {case}: nobody asked");
    }
}

/// A program that reads and writes managed memory with a kernel that works on it, waiting for it or not.
#[test]
fn managed_memory_is_waited_for() {
    let work = libraries();
    let text = "#include <stdlib.h>\n#include <signal.h>\n#include <unistd.h>\n\
        typedef void *P; typedef unsigned long U;\n\
        static const char ptx[] = \".version 8.3\\n.target sm_80\\n.address_size 64\\n\"\n\
        \".visible .entry k(.param .u64 to) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [to];\"\n\
        \"ld.global.u32 %r1, [%rd1+4]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1; ret; }\";\n\
        static void ends(int signal) { _exit(7); }\n\
        int main(int argc, char **argv) {\n\
        P module, k, a; volatile unsigned *word, *other; U n = 0; int which = atoi(argv[1]);\n\
        if (which == 7) signal(SIGSEGV, ends);\n\
        cuInit(0); cuModuleLoadData(&module, ptx); cuModuleGetFunction(&k, module, \"k\");\n\
        cuStreamCreate(&a, 1); cuMemAllocManaged(&word, 8192ul, 1); cuMemAllocManaged(&other, 12ul, 1);\n\
        word[1] = 41; other[2] = 1;\n\
        P args[] = { &word };\n\
        if (cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, a, args, (P)0)) return 9;\n\
        switch (which) {\n\
        case 0: break;\n\
        case 1: cuStreamSynchronize(a); break;\n\
        case 2: word[1] = 5; break;\n\
        case 3: n = word[1] + word[3] + word[1500] + other[2]; other[1] = 3; cuCtxSynchronize(); break;\n\
        case 4: if (other[2] != 1) return 5; break;\n\
        case 5: cuMemcpyDtoH_v2(&n, other, 4ul); break;\n\
        case 6: case 7: *(volatile int *)8 = 1; break;\n\
        }\n\
        return *word == 42 ? 0 : 6; }\n";
    compile(work.path(), text);
    let run = |case: &str, global: &str| run_case(work.path(), case, global);
    for (case, what) in [
        ("0", "the program reads managed memory at 0x"),
        // x86-64 says which it is.
        (
            "2",
            if cfg!(target_arch = "x86_64") {
                "the program writes managed memory at 0x"
            } else {
                ""
            },
        ),
        ("4", "the program reads managed memory at 0x"),
        // A copy of the default stream does not wait for this stream.
        ("5", "the program reads managed memory at 0x"),
    ] {
        let (code, err) = run(case, "1");
        assert_eq!((code, err.lines().count()), (Some(0), 1), "case {case}: {err}");
        assert!(err.contains("race: ") && err.contains(what), "case {case}: {err}");
        assert!(
            err.contains("by kernel k, with nothing that orders the two"),
            "case {case}: {err}"
        );
    }
    for case in ["1", "3"] {
        assert_eq!(run(case, "1"), (Some(0), String::new()), "case {case}");
    }
    assert_eq!(run("0", ""), (Some(0), String::new()), "nobody asked");
    // What the program does wrong itself is its own, with a handler or without.
    assert_eq!((run("6", "1").0, run("7", "1").0), (None, Some(7)));
}
