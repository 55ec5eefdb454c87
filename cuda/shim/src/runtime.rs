//! The runtime's functions, by the names that libcudart exports, and those that clang's host code calls.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::{done, find, get, images, put, put_if_wanted, text};
use crate::driver::{
    self, Config, NAME, TOTAL_MEMORY, VERSION, alloc, alloc_host, answers, calls, device_attribute,
    nothing, register, set, transfer, unsupported,
};
use crate::state::{
    Code, INVALID_DEVICE, INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, INVALID_VALUE, NOT_SUPPORTED,
    Result, SUCCESS, describe, state,
};

type Handle = *mut c_void;

#[derive(Clone, Copy)]
#[repr(C)]
struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// A fatbin that the program registered; its module is loaded when it is first needed.
struct Binary {
    /// One, or those of the units that it was linked of.
    images: Vec<&'static [u8]>,
    module: Option<usize>,
}

/// What the program's start-up code registered.
#[derive(Default)]
struct Registry {
    binaries: Vec<Binary>,
    /// Binary and name in the PTX, by the address of the host's stand-in.
    kernels: HashMap<usize, (usize, CString)>,
    variables: HashMap<usize, (usize, CString)>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn module(&mut self, binary: usize) -> Result<Handle> {
        let binary = self.binaries.get_mut(binary).ok_or(INVALID_VALUE)?;
        if let Some(module) = binary.module {
            return Ok(std::ptr::without_provenance_mut(module));
        }
        let module = state().load(&binary.images)?;
        binary.module = Some(module.addr());
        Ok(module)
    }

    fn kernel(&mut self, stub: *const c_void) -> Result<Handle> {
        let (binary, name) =
            self.kernels.get(&stub.addr()).cloned().ok_or(INVALID_DEVICE_FUNCTION)?;
        let module = self.module(binary)?;
        state().function(module, &name).map_err(|_| INVALID_DEVICE_FUNCTION)
    }

    fn variable(&mut self, stub: *const c_void) -> Result<(u64, u64)> {
        let (binary, name) = self.variables.get(&stub.addr()).cloned().ok_or(INVALID_SYMBOL)?;
        let module = self.module(binary)?;
        let name = name.to_str().map_err(|_| INVALID_SYMBOL)?;
        state().symbol(module, name).map_err(|_| INVALID_SYMBOL)
    }
}

thread_local! {
    static LAST_ERROR: Cell<Code> = const { Cell::new(SUCCESS) };
    static CONFIGURATIONS: RefCell<Vec<(Dim3, Dim3, usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// A call's answer, remembered for `cudaGetLastError`.
fn answer(result: Result) -> Code {
    let code = done(result);
    if code != SUCCESS {
        LAST_ERROR.set(code);
    }
    code
}

/// As `calls!`, with the error remembered.
macro_rules! remembered {
    ($($name:ident($($arg:ident: $T:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $T),*) -> Code {
            fn body($($arg: $T),*) -> Result { $body }
            answer(body($($arg),*))
        }
    )*};
}

nothing! {
    cudaSetDeviceFlags(flags: c_uint);
    cudaDeviceSetCacheConfig(config: c_uint);
    cudaDeviceSetSharedMemConfig(config: c_uint);
    cudaDeviceSetLimit(limit: c_uint, value: usize);
    cudaFuncSetCacheConfig(function: Handle, config: c_uint);
    cudaFuncSetSharedMemConfig(function: Handle, config: c_uint);
    cudaFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int);
    cudaMemPrefetchAsync(at: Handle, size: usize, device: c_int, stream: Handle);
    cudaMemAdvise(at: Handle, size: usize, advice: c_uint, device: c_int);
    cudaProfilerStart();
    cudaProfilerStop();
    cudaInitDevice(device: c_int, flags: c_uint, more: c_uint);
}

unsupported! {
    cudaStreamBeginCapture;
    cudaStreamEndCapture;
    cudaGraphCreate;
    cudaGraphAddKernelNode;
    cudaGraphInstantiate;
    cudaGraphInstantiateWithFlags;
    cudaGraphLaunch;
    cudaGraphExecDestroy;
    cudaGraphDestroy;
    cudaCreateTextureObject;
    cudaDestroyTextureObject;
    cudaCreateSurfaceObject;
    cudaMallocArray;
    cudaMalloc3DArray;
    cudaFreeArray;
    cudaMemcpy2DToArray;
    cudaMalloc3D;
    cudaMemcpy3D;
    cudaIpcGetMemHandle;
}

answers! {
    cudaGetDevice(out: c_int) = 0;
    cudaGetDeviceCount(out: c_int) = 1;
    cudaRuntimeGetVersion(out: c_int) = VERSION;
    cudaDriverGetVersion(out: c_int) = VERSION;
    cudaDeviceGetLimit(out: usize, limit: c_uint) = 1 << 20;
    cudaDeviceCanAccessPeer(out: c_int, device: c_int, peer: c_int) = 0;
}

calls! {
    cudaGetLastError() {
        let code = LAST_ERROR.replace(SUCCESS);
        // The error of a kernel stays.
        state().check()?;
        if code == SUCCESS { Ok(()) } else { Err(code) }
    }
    cudaPeekAtLastError() {
        state().check()?;
        match LAST_ERROR.get() {
            SUCCESS => Ok(()),
            code => Err(code),
        }
    }
}

remembered! {
    cudaSetDevice(device: c_int) { if device == 0 { Ok(()) } else { Err(INVALID_DEVICE) } }
    cudaDeviceGetStreamPriorityRange(least: *mut c_int, most: *mut c_int) {
        put_if_wanted(least, 0);
        put_if_wanted(most, 0);
        Ok(())
    }
    cudaDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        put(out, device_attribute(attribute))
    }
    cudaGetDeviceProperties_v2(out: *mut [u8; PROPERTIES_SIZE], device: c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        put(out, properties())
    }
    cudaDeviceSynchronize() { synchronize(c"cuCtxSynchronize", None) }
    cudaThreadSynchronize() { synchronize(c"cuCtxSynchronize", None) }
    cudaDeviceReset() {
        let reset = find(c"cuDevicePrimaryCtxReset_v2")?;
        // SAFETY: the driver's function of this name has this type.
        let reset: extern "C" fn(c_int) -> Code = unsafe { std::mem::transmute(reset) };
        registry().binaries.iter_mut().for_each(|binary| binary.module = None);
        result(reset(0))
    }

    cudaMalloc(out: *mut u64, size: usize) {
        // Nothing is a valid size here, not for the driver.
        if size == 0 { return put(out, 0) }
        alloc(out, size)
    }
    cudaMallocAsync(out: *mut u64, size: usize, stream: Handle) {
        state().stream(stream)?;
        alloc(out, size)
    }
    cudaMallocManaged(out: *mut u64, size: usize, flags: c_uint) {
        let _ = flags;
        alloc(out, size)
    }
    cudaMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize) {
        let row = width.next_multiple_of(512);
        put(pitch, row)?;
        alloc(out, row.checked_mul(height).ok_or(INVALID_VALUE)?)
    }
    cudaMallocHost(out: *mut u64, size: usize) { alloc_host(out, size) }
    cudaHostAlloc(out: *mut u64, size: usize, flags: c_uint) {
        let _ = flags;
        alloc_host(out, size)
    }
    cudaFree(address: u64) { if address == 0 { state().check() } else { state().free(address) } }
    cudaFreeAsync(address: u64, stream: Handle) {
        state().stream(stream)?;
        state().free(address)
    }
    cudaFreeHost(address: u64) { if address == 0 { Ok(()) } else { state().free_host(address) } }
    cudaHostRegister(host: u64, size: usize, flags: c_uint) {
        let _ = flags;
        register(host, size)
    }
    cudaHostUnregister(host: u64) { Ok(state().device.free(host)?) }
    cudaHostGetDevicePointer(out: *mut u64, host: u64, flags: c_uint) {
        let _ = flags;
        put(out, host)
    }
    cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        let used: u64 = state().allocated.values().sum();
        put(free, TOTAL_MEMORY.saturating_sub(used as usize))?;
        put(total, TOTAL_MEMORY)
    }
    cudaPointerGetAttributes(out: *mut Pointer, address: u64) {
        let state = state();
        let found = state.device.allocation(address);
        let kind = match found {
            None => 0,
            Some((start, _)) if state.pinned.contains_key(&start) => 1,
            Some(_) => 2,
        };
        let device = if kind == 0 { 0 } else { address };
        put(out, Pointer { kind, ordinal: 0, device, host: if kind == 2 { 0 } else { address } })
    }

    cudaMemcpy(to: u64, from: u64, size: usize, kind: c_int) { copy_kind(to, from, size, kind) }
    cudaMemcpyAsync(to: u64, from: u64, size: usize, kind: c_int, stream: Handle) {
        state().stream(stream)?;
        copy_kind(to, from, size, kind)
    }
    cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, pitch: usize, width: usize, height: usize, kind: c_int) {
        copy_rows((to, to_pitch), (from, pitch), width, height, kind)
    }
    cudaMemcpy2DAsync(
        to: u64, to_pitch: usize, from: u64, pitch: usize, width: usize, height: usize, kind: c_int, stream: Handle
    ) {
        state().stream(stream)?;
        copy_rows((to, to_pitch), (from, pitch), width, height, kind)
    }
    cudaMemset(to: u64, value: c_int, size: usize) { set(to, &[value as u8], size) }
    cudaMemsetAsync(to: u64, value: c_int, size: usize, stream: Handle) {
        state().stream(stream)?;
        set(to, &[value as u8], size)
    }
    cudaMemset2D(to: u64, pitch: usize, value: c_int, width: usize, height: usize) {
        (0..height).try_for_each(|row| set(to + (row * pitch) as u64, &[value as u8], width))
    }
    cudaMemcpyToSymbol(symbol: *const c_void, from: u64, size: usize, offset: usize, kind: c_int) {
        to_symbol(symbol, from, size, offset, kind)
    }
    cudaMemcpyToSymbolAsync(
        symbol: *const c_void, from: u64, size: usize, offset: usize, kind: c_int, stream: Handle
    ) {
        state().stream(stream)?;
        to_symbol(symbol, from, size, offset, kind)
    }
    cudaMemcpyFromSymbol(to: u64, symbol: *const c_void, size: usize, offset: usize, kind: c_int) {
        from_symbol(to, symbol, size, offset, kind)
    }
    cudaMemcpyFromSymbolAsync(
        to: u64, symbol: *const c_void, size: usize, offset: usize, kind: c_int, stream: Handle
    ) {
        state().stream(stream)?;
        from_symbol(to, symbol, size, offset, kind)
    }
    cudaGetSymbolAddress(out: *mut u64, symbol: *const c_void) { put(out, registry().variable(symbol)?.0) }
    cudaGetSymbolSize(out: *mut usize, symbol: *const c_void) {
        put(out, registry().variable(symbol)?.1 as usize)
    }

    cudaStreamCreate(out: *mut Handle) { put(out, state().stream_create()) }
    cudaStreamCreateWithFlags(out: *mut Handle, flags: c_uint) {
        let _ = flags;
        put(out, state().stream_create())
    }
    cudaStreamCreateWithPriority(out: *mut Handle, flags: c_uint, priority: c_int) {
        let _ = (flags, priority);
        put(out, state().stream_create())
    }
    cudaStreamDestroy(stream: Handle) { state().stream_destroy(stream) }
    cudaStreamSynchronize(stream: Handle) { synchronize(c"cuStreamSynchronize", Some(stream)) }
    cudaStreamQuery(stream: Handle) { state().stream(stream) }
    cudaStreamIsCapturing(stream: Handle, out: *mut c_int) {
        state().stream(stream)?;
        put(out, 0)
    }
    cudaStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        let _ = flags;
        state().stream(stream)?;
        state().event(event)
    }
    cudaStreamAddCallback(
        stream: Handle, function: Option<extern "C" fn(Handle, Code, Handle)>, data: Handle, flags: c_uint
    ) {
        let _ = flags;
        state().stream(stream)?;
        function.ok_or(INVALID_VALUE)?(stream, SUCCESS, data);
        Ok(())
    }
    cudaLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(Handle)>, data: Handle) {
        state().stream(stream)?;
        function.ok_or(INVALID_VALUE)?(data);
        Ok(())
    }
    cudaEventCreate(out: *mut Handle) { put(out, state().event_create()) }
    cudaEventCreateWithFlags(out: *mut Handle, flags: c_uint) {
        let _ = flags;
        put(out, state().event_create())
    }
    cudaEventRecord(event: Handle, stream: Handle) {
        state().stream(stream)?;
        state().event_record(event)
    }
    cudaEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        let _ = flags;
        state().stream(stream)?;
        state().event_record(event)
    }
    cudaEventQuery(event: Handle) { state().event(event) }
    cudaEventSynchronize(event: Handle) { state().event(event) }
    cudaEventElapsedTime(out: *mut f32, start: Handle, end: Handle) { put(out, state().elapsed(start, end)?) }
    cudaEventDestroy(event: Handle) { state().event_destroy(event) }

    cudaFuncGetAttributes(out: *mut [u64; 18], function: *const c_void) {
        let kernel = registry().kernel(function)?;
        // Bytes of shared, constant and local memory; then, as pairs of 32 bits, the most threads and the
        // registers, and the versions of PTX and binary.
        let mut attributes = [0u64; 18];
        attributes[0] = state().shared_size(kernel)?;
        attributes[3] = 1024 | 32 << 32;
        attributes[4] = 80 | 80 << 32;
        put(out, attributes)
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        out: *mut c_int, function: *const c_void, block_size: c_int, shared_bytes: usize
    ) {
        occupancy(out, function, block_size, shared_bytes)
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: *mut c_int, function: *const c_void, block_size: c_int, shared_bytes: usize, flags: c_uint
    ) {
        let _ = flags;
        occupancy(out, function, block_size, shared_bytes)
    }
    cudaGetFuncBySymbol(out: *mut Handle, function: *const c_void) { put(out, registry().kernel(function)?) }
    cudaGetDriverEntryPoint(name: *const c_char, out: *mut Handle, flags: u64, status: *mut c_int) {
        let _ = flags;
        let found = driver::newest(text(name)?);
        put_if_wanted(status, if found.is_ok() { 0 } else { 1 });
        put(out, found?)
    }

    cudaLaunchKernel(
        function: *const c_void, grid: Dim3, block: Dim3, args: *mut Handle, shared_bytes: usize, stream: Handle
    ) {
        launch(c"cuLaunchKernel", function, grid, block, args, shared_bytes, stream)
    }
    cudaLaunchCooperativeKernel(
        function: *const c_void, grid: Dim3, block: Dim3, args: *mut Handle, shared_bytes: usize, stream: Handle
    ) {
        launch(c"cuLaunchCooperativeKernel", function, grid, block, args, shared_bytes, stream)
    }
    cudaLaunchKernelExC(config: *const RuntimeConfig, function: *const c_void, args: *mut Handle) {
        let config = get(config)?;
        let name = if config.driver().is_cooperative()? { c"cuLaunchCooperativeKernel" } else { c"cuLaunchKernel" };
        launch(name, function, config.grid, config.block, args, config.shared_bytes, config.stream)
    }
}

/// `cudaLaunchConfig_t`: as the driver's, with a wider size of shared memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct RuntimeConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
    attributes: *const driver::Attribute,
    count: c_uint,
}

impl RuntimeConfig {
    fn driver(&self) -> Config {
        let triple = |d: Dim3| [d.x, d.y, d.z];
        Config {
            grid: triple(self.grid),
            block: triple(self.block),
            shared_bytes: self.shared_bytes as c_uint,
            stream: self.stream,
            attributes: self.attributes,
            count: self.count,
        }
    }
}

/// `cudaPointerAttributes`.
#[repr(C)]
struct Pointer {
    kind: c_int,
    ordinal: c_int,
    device: u64,
    host: u64,
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: Code) -> *const c_char {
    driver::error_name(code, "cudaError").unwrap_or(c"unrecognized error code".as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: Code) -> *const c_char {
    describe(code.0).map_or(c"unrecognized error code".as_ptr(), |(_, text)| text.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut Handle {
    let mut registry = registry();
    // An image that cannot be read is an empty one: launches of its kernels tell.
    let images = images(wrapper).unwrap_or_else(|_| vec![&[][..]]);
    registry.binaries.push(Binary { images, module: None });
    std::ptr::without_provenance_mut(registry.binaries.len() * 16)
}

fn binary(handle: *mut Handle) -> usize {
    (handle.addr() / 16).wrapping_sub(1)
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_: *mut Handle) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaUnregisterFatBinary(_: *mut Handle) {}

#[unsafe(no_mangle)]
extern "C" fn __cudaInitModule(_: *mut Handle) -> c_char {
    1
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFunction(
    handle: *mut Handle,
    stub: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _tid: Handle,
    _bid: Handle,
    _block: Handle,
    _grid: Handle,
    _warp_size: *mut c_int,
) {
    if let Ok(name) = text(name) {
        registry().kernels.insert(stub.addr(), (binary(handle), name.to_owned()));
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterVar(
    handle: *mut Handle,
    stub: *const c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _external: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
    if let Ok(name) = text(name) {
        registry().variables.insert(stub.addr(), (binary(handle), name.to_owned()));
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
) -> c_uint {
    CONFIGURATIONS.with_borrow_mut(|stack| stack.push((grid, block, shared_bytes, stream.addr())));
    0
}

#[unsafe(no_mangle)]
extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared_bytes: *mut usize,
    stream: *mut usize,
) -> Code {
    let Some(top) = CONFIGURATIONS.with_borrow_mut(Vec::pop) else { return INVALID_VALUE };
    put_if_wanted(grid, top.0);
    put_if_wanted(block, top.1);
    put_if_wanted(shared_bytes, top.2);
    put_if_wanted(stream, top.3);
    SUCCESS
}

fn result(code: Code) -> Result {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// Launches through the driver's function, as the program sees it.
fn launch(
    name: &CStr,
    stub: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut Handle,
    shared_bytes: usize,
    stream: Handle,
) -> Result {
    type Launch = extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut Handle,
        *mut Handle,
    ) -> Code;
    state().check()?;
    let kernel = registry().kernel(stub)?;
    // SAFETY: the driver's function has this type; the cooperative one lacks the last parameter, which a
    // function of C does not see.
    let launch: Launch = unsafe { std::mem::transmute(find(name)?) };
    let shared = c_uint::try_from(shared_bytes).map_err(|_| INVALID_VALUE)?;
    let none = std::ptr::null_mut();
    result(launch(
        kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, args, none,
    ))
}

/// Waits through the driver's function, as the program sees it.
fn synchronize(name: &CStr, stream: Option<Handle>) -> Result {
    // SAFETY: both functions return a code, and one that takes no parameter does not see it.
    let wait: extern "C" fn(Handle) -> Code = unsafe { std::mem::transmute(find(name)?) };
    result(wait(stream.unwrap_or(std::ptr::null_mut())))
}

fn occupancy(
    out: *mut c_int,
    function: *const c_void,
    block_size: c_int,
    _shared: usize,
) -> Result {
    registry().kernel(function)?;
    put(out, 2048 / block_size.max(1))
}

/// Copies in a direction: 0 host to host, 1 to the device, 2 from it, 3 on it, 4 whichever it is.
fn copy_kind(to: u64, from: u64, size: usize, kind: c_int) -> Result {
    match kind {
        0 | 4 => transfer(to, false, from, false, size),
        1 => transfer(to, true, from, false, size),
        2 => transfer(to, false, from, true, size),
        3 => transfer(to, true, from, true, size),
        // 21 is the error for a direction that does not exist.
        _ => Err(Code(21)),
    }
}

fn copy_rows(
    to: (u64, usize),
    from: (u64, usize),
    width: usize,
    height: usize,
    kind: c_int,
) -> Result {
    if width > to.1 || width > from.1 {
        return Err(INVALID_VALUE);
    }
    (0..height).try_for_each(|row| {
        copy_kind(to.0 + (row * to.1) as u64, from.0 + (row * from.1) as u64, width, kind)
    })
}

/// The address of part of a variable.
fn inside(symbol: *const c_void, offset: usize, size: usize) -> Result<u64> {
    let (address, bytes) = registry().variable(symbol)?;
    let end = offset.checked_add(size).ok_or(INVALID_VALUE)?;
    if end as u64 > bytes {
        return Err(INVALID_VALUE);
    }
    Ok(address + offset as u64)
}

fn to_symbol(symbol: *const c_void, from: u64, size: usize, offset: usize, kind: c_int) -> Result {
    copy_kind(inside(symbol, offset, size)?, from, size, kind)
}

fn from_symbol(to: u64, symbol: *const c_void, size: usize, offset: usize, kind: c_int) -> Result {
    copy_kind(to, inside(symbol, offset, size)?, size, kind)
}

const PROPERTIES_SIZE: usize = 1032;

/// `cudaDeviceProp` of CUDA 12, by the offsets of its fields.
fn properties() -> [u8; PROPERTIES_SIZE] {
    let mut out = [0; PROPERTIES_SIZE];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, NAME.to_bytes());
    put(256, b"nvabi emulator");
    put(288, &TOTAL_MEMORY.to_ne_bytes());
    put(296, &(48usize << 10).to_ne_bytes());
    put(312, &(i32::MAX as usize).to_ne_bytes());
    put(352, &(64usize << 10).to_ne_bytes());
    put(640, &(227usize << 10).to_ne_bytes());
    put(696, &(227usize << 10).to_ne_bytes());
    let attributes = [
        (304, 12),
        (308, 10),
        (320, 1),
        (324, 2),
        (328, 3),
        (332, 4),
        (336, 5),
        (340, 6),
        (344, 7),
        (348, 13),
        (360, 75),
        (364, 76),
        (388, 16),
        (400, 19),
        (576, 31),
        (600, 40),
        (604, 41),
        (608, 36),
        (612, 37),
        (616, 38),
        (624, 39),
        (648, 82),
        (652, 83),
        (676, 89),
        (688, 95),
        (712, 106),
    ];
    for (at, attribute) in attributes {
        put(at, &device_attribute(attribute).to_ne_bytes());
    }
    out
}
