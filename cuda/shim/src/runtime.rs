//! The runtime's functions, by the names that libcudart exports, and those that clang's host code calls.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::{Image, In, Out, Text, find, status_of};
use crate::arrays::ChannelFormat;
use crate::devices;
use crate::driver::{
    self, Config, HostFunction, NAME, TOTAL_MEMORY, VERSION, alloc, alloc_host, alloc_managed,
    alloc_on, answers, call_host_on, calls, device_attribute, free_on, nothing, record_on,
    register, row_start, set, set_on, set_rows_on, transfer, wait_on,
};
use crate::graphs::line;
use crate::pools::Location;
use crate::state::{
    Code, INVALID_DEVICE_FUNCTION, INVALID_SYMBOL, INVALID_VALUE, Result, SUCCESS, describe,
    on_stream, state,
};

type Handle = *mut c_void;

/// `cudaStreamCallback_t`. CUDA documents `cudaStreamAddCallback` to call it once, with its own data.
type StreamCallback = unsafe extern "C" fn(Handle, Code, Handle);

#[derive(Clone, Copy)]
#[repr(C)]
struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// A fatbin that the program registered; its module is loaded when it is first needed.
struct Binary {
    /// None once the program has unregistered it: then it may be gone. Until then it stays, and what is
    /// borrowed from it is borrowed from here, so that it is not in use when it goes.
    image: Option<Image<'static>>,
    /// Of each device.
    modules: [Option<usize>; devices::MOST],
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
        let device = devices::current();
        if let Some(module) = binary.modules[device] {
            return Ok(std::ptr::without_provenance_mut(module));
        }
        let image = binary.image.as_ref().ok_or(INVALID_DEVICE_FUNCTION)?;
        let module = state().load(&image.units()?)?;
        binary.modules[device] = Some(module.addr());
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

/// The kernel that a stub of the host stands for.
pub(crate) fn kernel_of_stub(stub: *const c_void) -> Result<Handle> {
    registry().kernel(stub)
}

/// Calls a function of the driver, as the program sees it: a preloaded library's comes first.
macro_rules! driver_call {
    ($name:expr, ($($T:ty),*), $($arg:expr),*) => {{
        type Function = unsafe extern "C" fn($($T),*) -> Code;
        // SAFETY: symbols of this name have the type that CUDA documents of it, which is `Function`: in
        // this library, and in one that a user preloads to be called in its place. The arguments are those
        // that the program passed to the runtime's function, which CUDA documents to take the same, or
        // numbers of this device.
        result(unsafe { std::mem::transmute::<*mut c_void, Function>(find($name)?)($($arg),*) })
    }};
}

thread_local! {
    static LAST_ERROR: Cell<Code> = const { Cell::new(SUCCESS) };
    static CONFIGURATIONS: RefCell<Vec<(Dim3, Dim3, usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// A call's answer, remembered for `cudaGetLastError`.
pub(crate) fn answer(result: Result) -> Code {
    let code = status_of(result);
    if code != SUCCESS {
        LAST_ERROR.set(code);
    }
    code
}

/// As `calls!`, with the error remembered.
macro_rules! remembered {
    ($($name:ident($($arg:ident: $T:ty),*) $body:block)*) => {$(
        #[unsafe(export_name = concat!("nvabi_", stringify!($name)))]
        unsafe extern "C" fn $name($($arg: $T),*) -> Code {
            fn body($($arg: $T),*) -> Result { $body }
            answer($crate::devices::check_any().and_then(|()| body($($arg),*)))
        }
    )*};
}

/// As `unchecked!`, with the error remembered.
macro_rules! remembered_unchecked {
    ($($name:ident($($arg:ident: $T:ty),*) $body:block)*) => {$(
        #[unsafe(export_name = concat!("nvabi_", stringify!($name)))]
        unsafe extern "C" fn $name($($arg: $T),*) -> Code {
            unsafe fn body($($arg: $T),*) -> Result {
                // SAFETY: each unsafe function that bodies call asks, under "Safety", for what CUDA's
                // documentation asks of the caller of the function of C; it gets that caller's parameters.
                unsafe { $body }
            }
            // SAFETY: the C program called by CUDA's documentation.
            answer($crate::devices::check_any().and_then(|()| unsafe { body($($arg),*) }))
        }
    )*};
}

/// Of the driver and of the runtime, with one body.
macro_rules! both {
    ($($driver:ident $runtime:ident($($arg:ident: $T:ty),*) $body:block)*) => {
        calls! { $($driver($($arg: $T),*) $body)* }
        remembered! { $($runtime($($arg: $T),*) $body)* }
    };
}

pub(crate) use {both, remembered, remembered_unchecked};

nothing! { prefix "nvabi_";
    cudaSetDeviceFlags(flags: c_uint);
    cudaDeviceSetCacheConfig(config: c_uint);
    cudaDeviceSetSharedMemConfig(config: c_uint);
    cudaFuncSetCacheConfig(function: Handle, config: c_uint);
    cudaFuncSetSharedMemConfig(function: Handle, config: c_uint);
    cudaFuncSetAttribute(function: Handle, attribute: c_uint, value: c_int);
    cudaMemPrefetchAsync(at: Handle, size: usize, device: c_int, stream: Handle);
    cudaMemPrefetchAsync_v2(at: Handle, size: usize, location: Location, flags: c_uint, stream: Handle);
    cudaMemAdvise(at: Handle, size: usize, advice: c_uint, device: c_int);
    cudaMemAdvise_v2(at: Handle, size: usize, advice: c_uint, location: Location);
    cudaCtxResetPersistingL2Cache();
    cudaStreamAttachMemAsync(stream: Handle, at: Handle, size: usize, flags: c_uint);
    cudaThreadSetCacheConfig(config: c_uint);
    cudaProfilerStart();
    cudaProfilerStop();
    cudaInitDevice(device: c_int, flags: c_uint, more: c_uint);
}

answers! { prefix "nvabi_";
    cudaRuntimeGetVersion(out: c_int) = VERSION_12;
    cudaRuntimeGetVersion_13(out: c_int) = VERSION;
    cudaDriverGetVersion(out: c_int) = VERSION;
}

calls! { prefix "nvabi_";
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
    cudaGetDeviceCount(out: Out<c_int>) {
        // A program that asks for no more than this has called the emulator, too: its report is begun.
        drop(state());
        out.put(devices::count() as c_int)
    }
    cudaGetDevice(out: Out<c_int>) { out.put(devices::current() as c_int) }
    cudaSetDevice(device: c_int) {
        devices::set_current(devices::check(device)?);
        Ok(())
    }
    cudaDeviceGetStreamPriorityRange(least: Out<c_int>, most: Out<c_int>) {
        least.put_if_wanted(0);
        most.put_if_wanted(0);
        Ok(())
    }
    cudaDeviceGetAttribute(out: Out<c_int>, attribute: c_int, device: c_int) {
        devices::check(device)?;
        out.put(device_attribute(attribute, device))
    }
    cudaGetDeviceProperties_v2(out: Out<[u8; 1032]>, device: c_int) {
        out.put(properties(devices::check(device)?, |(of_12, _)| Some(of_12)))
    }
    cudaGetDeviceProperties_13(out: Out<[u8; 1008]>, device: c_int) {
        out.put(properties(devices::check(device)?, |(_, of_13)| of_13))
    }
    cudaDeviceGetLimit(out: Out<usize>, limit: c_uint) { out.put(state().limit(limit)?) }
    cudaDeviceSetLimit(limit: c_uint, value: usize) { state().set_limit(limit, value) }
    cudaThreadGetLimit(out: Out<usize>, limit: c_uint) { out.put(state().limit(limit)?) }
    cudaThreadSetLimit(limit: c_uint, value: usize) { state().set_limit(limit, value) }
    cudaChooseDevice(out: Out<c_int>, properties: Handle) {
        let _ = properties;
        out.put(0)
    }
    cudaGetDeviceFlags(out: Out<c_uint>) { out.put(0) }
    cudaDeviceGetCacheConfig(out: Out<c_uint>) { out.put(0) }
    cudaDeviceGetSharedMemConfig(out: Out<c_uint>) { out.put(1) }
    cudaHostGetFlags(out: Out<c_uint>, host: u64) {
        let _ = state().pinned.get(&host).ok_or(INVALID_VALUE)?;
        out.put(0)
    }
    cudaThreadExit() { reset() }
    cudaStreamGetFlags(stream: Handle, out: Out<c_uint>) {
        state().stream(stream)?;
        out.put(0)
    }
    cudaStreamGetPriority(stream: Handle, out: Out<c_int>) {
        state().stream(stream)?;
        out.put(0)
    }
    cudaStreamGetId(stream: Handle, out: Out<u64>) {
        state().stream(stream)?;
        out.put(stream.addr() as u64)
    }
    cudaMemset2DAsync(to: u64, pitch: usize, value: c_int, width: usize, height: usize, stream: Handle) {
        set_rows_on(stream, (to, pitch), &[value as u8], width, height)
    }
    cudaDeviceSynchronize() { driver_call!(c"cuCtxSynchronize", (), ) }
    cudaThreadSynchronize() { driver_call!(c"cuCtxSynchronize", (), ) }
    cudaDeviceReset() { reset() }

    cudaMalloc(out: Out<u64>, size: usize) {
        // Nothing is a valid size here, not for the driver.
        if size == 0 { return out.put(0) }
        alloc(out, size)
    }
    cudaMallocAsync(out: Out<u64>, size: usize, stream: Handle) { alloc_on(stream, None, out, size) }
    cudaMallocManaged(out: Out<u64>, size: usize, flags: c_uint) {
        let _ = flags;
        alloc_managed(out, size)
    }
    cudaMallocPitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize) {
        let row = width.next_multiple_of(512);
        pitch.put(row)?;
        alloc(out, row.checked_mul(height).ok_or(INVALID_VALUE)?)
    }
    cudaMallocHost(out: Out<u64>, size: usize) { alloc_host(out, size) }
    cudaHostAlloc(out: Out<u64>, size: usize, flags: c_uint) {
        let _ = flags;
        alloc_host(out, size)
    }
    cudaFree(address: u64) { if address == 0 { state().check() } else { state().free(address) } }
    cudaFreeAsync(address: u64, stream: Handle) { free_on(stream, address) }
    cudaFreeHost(address: u64) { if address == 0 { Ok(()) } else { state().free_host(address) } }
    cudaHostUnregister(host: u64) { Ok(state().device.free(host)?) }
    cudaHostGetDevicePointer(out: Out<u64>, host: u64, flags: c_uint) {
        let _ = flags;
        out.put(host)
    }
    cudaMemGetInfo(free: Out<usize>, total: Out<usize>) {
        let used = state().used()?;
        free.put(TOTAL_MEMORY.saturating_sub(used as usize))?;
        total.put(TOTAL_MEMORY)
    }
    cudaPointerGetAttributes(out: Out<Pointer>, address: u64) {
        let state = state();
        let found = state.device.allocation(address);
        let kind = match found {
            None => 0,
            Some((start, _)) if state.pinned.contains_key(&start) => 1,
            Some(_) => 2,
        };
        let device = if kind == 0 { 0 } else { address };
        let ordinal = found.map_or(0, |(start, _)| state.owner(start)) as c_int;
        out.put(Pointer { kind, ordinal, device, host: if kind == 2 { 0 } else { address } })
    }
    cudaMemset(to: u64, value: c_int, size: usize) { set(to, &[value as u8], size) }
    cudaMemsetAsync(to: u64, value: c_int, size: usize, stream: Handle) {
        set_on(stream, to, &[value as u8], size)
    }
    cudaMemset2D(to: u64, pitch: usize, value: c_int, width: usize, height: usize) {
        (0..height).try_for_each(|row| set(row_start(to, row, pitch)?, &[value as u8], width))
    }
    cudaGetSymbolAddress(out: Out<u64>, symbol: *const c_void) { out.put(registry().variable(symbol)?.0) }
    cudaGetSymbolSize(out: Out<usize>, symbol: *const c_void) {
        out.put(registry().variable(symbol)?.1 as usize)
    }

    cudaStreamCreate(out: Out<Handle>) { out.put(state().stream_create(0)?) }
    cudaStreamCreateWithFlags(out: Out<Handle>, flags: c_uint) {
        out.put(state().stream_create(flags)?)
    }
    cudaStreamCreateWithPriority(out: Out<Handle>, flags: c_uint, priority: c_int) {
        let _ = priority;
        out.put(state().stream_create(flags)?)
    }
    cudaStreamDestroy(stream: Handle) { state().stream_destroy(stream) }
    cudaStreamSynchronize(stream: Handle) { driver_call!(c"cuStreamSynchronize", (Handle), stream) }
    cudaStreamQuery(stream: Handle) { state().wait_for_stream(stream) }
    cudaStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        let _ = flags;
        wait_on(stream, event)
    }
    cudaEventCreate(out: Out<Handle>) { out.put(state().event_create(0)?) }
    cudaEventCreateWithFlags(out: Out<Handle>, flags: c_uint) { out.put(state().event_create(flags)?) }
    cudaEventRecord(event: Handle, stream: Handle) { record_on(stream, event) }
    cudaEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        let _ = flags;
        record_on(stream, event)
    }
    cudaEventQuery(event: Handle) { state().wait_for_event(event) }
    cudaEventSynchronize(event: Handle) { state().wait_for_event(event) }
    cudaEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) { out.put(state().elapsed(start, end)?) }
    cudaEventElapsedTime_v2(out: Out<f32>, start: Handle, end: Handle) { out.put(state().elapsed(start, end)?) }
    cudaEventDestroy(event: Handle) { state().event_destroy(event) }

    cudaFuncGetAttributes(out: Out<[u64; 18]>, function: *const c_void) {
        let kernel = registry().kernel(function)?;
        // Bytes of shared, constant and local memory; then, as pairs of 32 bits, the most threads and the
        // registers, and the versions of PTX and binary.
        let mut attributes = [0u64; 18];
        attributes[0] = state().shared_size(kernel)?;
        attributes[3] = 1024 | 32 << 32;
        attributes[4] = 80 | 80 << 32;
        out.put(attributes)
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<c_int>, function: *const c_void, block_size: c_int, shared_bytes: usize
    ) {
        occupancy(out, function, block_size, shared_bytes)
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, function: *const c_void, block_size: c_int, shared_bytes: usize, flags: c_uint
    ) {
        let _ = flags;
        occupancy(out, function, block_size, shared_bytes)
    }
    // What nvcc 13 launches with is the stub itself, if there is a kernel behind it.
    __cudaGetKernel(out: Out<*const c_void>, stub: *const c_void) {
        registry().kernel(stub)?;
        out.put(stub)
    }
    cudaGetFuncBySymbol(out: Out<Handle>, function: *const c_void) { out.put(registry().kernel(function)?) }
    cudaGetDriverEntryPoint(name: Text, out: Out<Handle>, flags: u64, status: Out<c_int>) {
        let _ = flags;
        entry_point(name, out, VERSION_12, status)
    }
    cudaGetDriverEntryPoint_13(name: Text, out: Out<Handle>, flags: u64, status: Out<c_int>) {
        let _ = flags;
        entry_point(name, out, VERSION, status)
    }
    cudaGetDriverEntryPointByVersion(
        name: Text, out: Out<Handle>, version: c_int, flags: u64, status: Out<c_int>
    ) {
        let _ = flags;
        entry_point(name, out, version, status)
    }
}

remembered_unchecked! {
    cudaHostRegister(host: u64, size: usize, flags: c_uint) {
        let _ = flags;
        register(host, size)
    }

    cudaMemcpy(to: u64, from: u64, size: usize, kind: c_int) { copy_kind(to, from, size, kind) }
    cudaMemcpyAsync(to: u64, from: u64, size: usize, kind: c_int, stream: Handle) {
        copy_kind_on(stream, to, from, size, kind)
    }
    cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, pitch: usize, width: usize, height: usize, kind: c_int) {
        copy_rows((to, to_pitch), (from, pitch), width, height, kind)
    }
    cudaMemcpy2DAsync(
        to: u64, to_pitch: usize, from: u64, pitch: usize, width: usize, height: usize, kind: c_int, stream: Handle
    ) {
        state().stream(stream)?;
        on_stream(stream, || copy_rows((to, to_pitch), (from, pitch), width, height, kind))
    }
    cudaMemcpyToSymbol(symbol: *const c_void, from: u64, size: usize, offset: usize, kind: c_int) {
        to_symbol(symbol, from, size, offset, kind)
    }
    cudaMemcpyToSymbolAsync(
        symbol: *const c_void, from: u64, size: usize, offset: usize, kind: c_int, stream: Handle
    ) {
        let to = inside(symbol, offset, size)?;
        copy_kind_on(stream, to, from, size, kind)
    }
    cudaMemcpyFromSymbol(to: u64, symbol: *const c_void, size: usize, offset: usize, kind: c_int) {
        from_symbol(to, symbol, size, offset, kind)
    }
    cudaMemcpyFromSymbolAsync(
        to: u64, symbol: *const c_void, size: usize, offset: usize, kind: c_int, stream: Handle
    ) {
        let from = inside(symbol, offset, size)?;
        copy_kind_on(stream, to, from, size, kind)
    }
    cudaStreamAddCallback(
        stream: Handle, function: Option<StreamCallback>, data: Handle, flags: c_uint
    ) {
        let _ = flags;
        // It comes behind its stream's work, and may tell the rest of the program that it came.
        state().wait_for_stream(stream)?;
        function.ok_or(INVALID_VALUE)?(stream, SUCCESS, data);
        Ok(())
    }
    cudaLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: Handle) {
        call_host_on(stream, function, data)
    }

    cudaLaunchKernel(
        function: *const c_void, grid: Dim3, block: Dim3, args: *mut Handle, shared_bytes: usize, stream: Handle
    ) {
        launch(Launch { stub: function, grid, block, args, shared_bytes, stream, cooperative: false })
    }
    __cudaLaunchKernel(
        stub: *const c_void, grid: Dim3, block: Dim3, args: *mut Handle, shared_bytes: usize, stream: Handle
    ) {
        launch(Launch { stub, grid, block, args, shared_bytes, stream, cooperative: false })
    }
    cudaLaunchCooperativeKernel(
        function: *const c_void, grid: Dim3, block: Dim3, args: *mut Handle, shared_bytes: usize, stream: Handle
    ) {
        launch(Launch { stub: function, grid, block, args, shared_bytes, stream, cooperative: true })
    }
    cudaLaunchKernelExC(config: In<RuntimeConfig>, function: *const c_void, args: *mut Handle) {
        let config = config.get()?;
        let cooperative = config.driver().is_cooperative()?;
        let RuntimeConfig { grid, block, shared_bytes, stream, .. } = config;
        launch(Launch { stub: function, grid, block, args, shared_bytes, stream, cooperative })
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

#[unsafe(export_name = "nvabi_cudaCreateChannelDesc")]
extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> ChannelFormat {
    ChannelFormat([x, y, z, w, kind])
}

#[unsafe(export_name = "nvabi_cudaGetErrorName")]
extern "C" fn cudaGetErrorName(code: Code) -> *const c_char {
    driver::error_name(code, "cudaError").unwrap_or(c"unrecognized error code".as_ptr())
}

#[unsafe(export_name = "nvabi_cudaGetErrorString")]
extern "C" fn cudaGetErrorString(code: Code) -> *const c_char {
    describe(code.0).map_or(c"unrecognized error code".as_ptr(), |(_, text)| text.as_ptr())
}

#[unsafe(export_name = "nvabi___cudaRegisterFatBinary")]
unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: Image<'static>) -> *mut Handle {
    // `'static` is until `__cudaUnregisterFatBinary`: the start-up code that clang and nvcc emit registers
    // constants of the program or library, and unregisters them before that is unloaded.
    let mut registry = registry();
    registry.binaries.push(Binary { image: Some(wrapper), modules: [None; devices::MOST] });
    std::ptr::without_provenance_mut(registry.binaries.len() * 16)
}

fn binary(handle: *mut Handle) -> usize {
    (handle.addr() / 16).wrapping_sub(1)
}

#[unsafe(export_name = "nvabi___cudaRegisterFatBinaryEnd")]
extern "C" fn __cudaRegisterFatBinaryEnd(_: *mut Handle) {}

#[unsafe(export_name = "nvabi___cudaUnregisterFatBinary")]
extern "C" fn __cudaUnregisterFatBinary(handle: *mut Handle) {
    if let Some(binary) = registry().binaries.get_mut(binary(handle)) {
        binary.image = None;
    }
}

#[unsafe(export_name = "nvabi___cudaInitModule")]
extern "C" fn __cudaInitModule(_: *mut Handle) -> c_char {
    1
}

#[unsafe(export_name = "nvabi___cudaRegisterFunction")]
unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut Handle,
    stub: *const c_void,
    _device_function: *mut c_char,
    name: Text,
    _thread_limit: c_int,
    _tid: Handle,
    _bid: Handle,
    _block: Handle,
    _grid: Handle,
    _warp_size: *mut c_int,
) {
    if let Ok(name) = name.get() {
        registry().kernels.insert(stub.addr(), (binary(handle), name.to_owned()));
    }
}

#[unsafe(export_name = "nvabi___cudaRegisterVar")]
unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut Handle,
    stub: *const c_void,
    _device_address: *mut c_char,
    name: Text,
    _external: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
    if let Ok(name) = name.get() {
        registry().variables.insert(stub.addr(), (binary(handle), name.to_owned()));
    }
}

#[unsafe(export_name = "nvabi___cudaPushCallConfiguration")]
extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
) -> c_uint {
    CONFIGURATIONS.with_borrow_mut(|stack| stack.push((grid, block, shared_bytes, stream.addr())));
    0
}

#[unsafe(export_name = "nvabi___cudaPopCallConfiguration")]
unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: Out<Dim3>,
    block: Out<Dim3>,
    shared_bytes: Out<usize>,
    stream: Out<usize>,
) -> Code {
    let Some(top) = CONFIGURATIONS.with_borrow_mut(Vec::pop) else { return INVALID_VALUE };
    grid.put_if_wanted(top.0);
    block.put_if_wanted(top.1);
    shared_bytes.put_if_wanted(top.2);
    stream.put_if_wanted(top.3);
    SUCCESS
}

/// Ends what the current device has.
fn reset() -> Result {
    let device = devices::current();
    registry().binaries.iter_mut().for_each(|binary| binary.modules[device] = None);
    driver_call!(c"cuDevicePrimaryCtxReset_v2", (c_int), device as c_int)
}

fn result(code: Code) -> Result {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// A launch, as the runtime's functions take it.
struct Launch {
    stub: *const c_void,
    grid: Dim3,
    block: Dim3,
    args: *mut Handle,
    shared_bytes: usize,
    stream: Handle,
    cooperative: bool,
}

/// Launches through the driver's function, as the program sees it.
///
/// # Safety
///
/// As CUDA documents `cudaLaunchKernel`: "if the kernel has N parameters the args should point to array of N
/// pointers", each to an argument.
unsafe fn launch(launch: Launch) -> Result {
    let Launch { stub, grid: g, block: b, args, stream, .. } = launch;
    state().check()?;
    let kernel = registry().kernel(stub)?;
    let shared = c_uint::try_from(launch.shared_bytes).map_err(|_| INVALID_VALUE)?;
    let none = std::ptr::null_mut();
    // `args` is `kernelParams` of the driver's function, with the same contract, which the caller keeps.
    if launch.cooperative {
        driver_call!(
            c"cuLaunchCooperativeKernel",
            (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle),
            kernel,
            g.x,
            g.y,
            g.z,
            b.x,
            b.y,
            b.z,
            shared,
            stream,
            args
        )
    } else {
        driver_call!(
            c"cuLaunchKernel",
            (
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
                *mut Handle
            ),
            kernel,
            g.x,
            g.y,
            g.z,
            b.x,
            b.y,
            b.z,
            shared,
            stream,
            args,
            none
        )
    }
}

fn occupancy(
    out: Out<c_int>,
    function: *const c_void,
    block_size: c_int,
    _shared: usize,
) -> Result {
    registry().kernel(function)?;
    out.put(2048 / block_size.max(1))
}

/// Copies in a direction: 0 host to host, 1 to the device, 2 from it, 3 on it, 4 whichever it is.
///
/// # Safety
///
/// That of [`transfer`], for the sides that the direction does not put on the device.
pub(crate) unsafe fn copy_kind(to: u64, from: u64, size: usize, kind: c_int) -> Result {
    let (to_device, from_device) = match kind {
        0 | 4 => (false, false),
        1 => (true, false),
        2 => (false, true),
        3 => (true, true),
        // 21 is the error for a direction that does not exist.
        _ => return Err(Code(21)),
    };
    // SAFETY: `size` bytes at both addresses are valid on the sides that the direction names, by this
    // function's contract; the match above has turned it into these sides.
    unsafe { transfer(to, to_device, from, from_device, size) }
}

/// Copies in a direction, as a stream does.
///
/// # Safety
///
/// That of [`copy_kind`], until the stream, or each launch of the graph that it is captured to, has done it.
unsafe fn copy_kind_on(stream: Handle, to: u64, from: u64, size: usize, kind: c_int) -> Result {
    if state().captures(stream, || line(to, from, size, kind))? {
        return Ok(());
    }
    // SAFETY: this function's contract.
    on_stream(stream, || unsafe { copy_kind(to, from, size, kind) })
}

/// # Safety
///
/// As CUDA documents `cudaMemcpy2D`: each of `height` rows of `width` bytes keeps the contract of
/// [`copy_kind`].
unsafe fn copy_rows(
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
        let (to, from) = (row_start(to.0, row, to.1)?, row_start(from.0, row, from.1)?);
        // SAFETY: by this function's contract each row is valid as `copy_kind` wants it; this is one of them.
        unsafe { copy_kind(to, from, width, kind) }
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

/// # Safety
///
/// As CUDA documents `cudaMemcpyToSymbol`: `size` bytes at `from` keep the contract of [`copy_kind`].
unsafe fn to_symbol(
    symbol: *const c_void,
    from: u64,
    size: usize,
    offset: usize,
    kind: c_int,
) -> Result {
    let to = inside(symbol, offset, size)?;
    // SAFETY: `to` is inside a variable of the device; of `from` the caller promises it.
    unsafe { copy_kind(to, from, size, kind) }
}

/// # Safety
///
/// As CUDA documents `cudaMemcpyFromSymbol`: `size` bytes at `to` keep the contract of [`copy_kind`].
unsafe fn from_symbol(
    to: u64,
    symbol: *const c_void,
    size: usize,
    offset: usize,
    kind: c_int,
) -> Result {
    let from = inside(symbol, offset, size)?;
    // SAFETY: `from` is inside a variable of the device; of `to` the caller promises it.
    unsafe { copy_kind(to, from, size, kind) }
}

/// What the runtime of CUDA 12 says of itself: 12.3, as the headers that clang 19 takes. It stands for 12.3 to 12.9, and
/// gives functions of the driver as programs of 12.3 mean them; newer ones ask by version.
const VERSION_12: c_int = 12030;

/// A function of the driver, in the form of a version of CUDA.
fn entry_point(name: Text, out: Out<Handle>, version: c_int, status: Out<c_int>) -> Result {
    let found = driver::of_version(name.get()?, version);
    status.put_if_wanted(if found.is_ok() { 0 } else { 1 });
    out.put(found?)
}

/// What of `cudaDeviceProp` is a size: where it stands in the structure of CUDA 12, which 13 has it in too, and there.
const SIZES: [(usize, (usize, Option<usize>)); 6] = [
    (TOTAL_MEMORY, (288, Some(288))),
    (48 << 10, (296, Some(296))),
    (i32::MAX as usize, (312, Some(312))),
    (64 << 10, (352, Some(352))),
    (227 << 10, (640, Some(624))),
    (227 << 10, (696, Some(672))),
];

/// What is an attribute of the device: its number, and where it stands. CUDA 13 took some away.
const ATTRIBUTES: [(c_int, (usize, Option<usize>)); 30] = [
    (12, (304, Some(304))),
    (10, (308, Some(308))),
    (1, (320, Some(320))),
    (2, (324, Some(324))),
    (3, (328, Some(328))),
    (4, (332, Some(332))),
    (5, (336, Some(336))),
    (6, (340, Some(340))),
    (7, (344, Some(344))),
    (13, (348, None)),
    (75, (360, Some(360))),
    (76, (364, Some(364))),
    (16, (388, Some(384))),
    (19, (400, Some(392))),
    (31, (576, Some(560))),
    (40, (600, Some(584))),
    (41, (604, Some(588))),
    (33, (584, Some(568))),
    (36, (608, None)),
    (37, (612, Some(592))),
    (38, (616, Some(596))),
    (39, (624, Some(604))),
    (82, (648, Some(632))),
    (83, (652, Some(636))),
    (89, (676, Some(656))),
    (95, (688, Some(668))),
    (106, (712, Some(688))),
    (115, (744, Some(720))),
    (119, (760, Some(736))),
    (125, (768, Some(744))),
];

/// `cudaDeviceProp`, with the fields at the places that `place` takes.
fn properties<const SIZE: usize>(
    device: usize,
    place: impl Fn((usize, Option<usize>)) -> Option<usize>,
) -> [u8; SIZE] {
    let mut out = [0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, NAME.to_bytes());
    put(256, &devices::uuid(device));
    for (size, places) in SIZES {
        place(places).into_iter().for_each(|at| put(at, &size.to_ne_bytes()));
    }
    for (attribute, places) in ATTRIBUTES {
        let value = device_attribute(attribute, device as c_int).to_ne_bytes();
        place(places).into_iter().for_each(|at| put(at, &value));
    }
    out
}
