//! The driver's functions, by the names that libcuda exports.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use crate::abi::{arguments, bytes, copy, done, fill, find, get, images, put, put_if_wanted, text};
use crate::state::{
    Code, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Request, Result, SUCCESS,
    context, describe, state,
};

type Handle = *mut c_void;

/// 12.3, as the headers that clang 19 takes.
pub(crate) const VERSION: c_int = 12030;
pub(crate) const NAME: &std::ffi::CStr = c"nvabi emulator";
pub(crate) const TOTAL_MEMORY: usize = 16 << 30;

/// A function without effect on a device that does everything at once.
macro_rules! nothing {
    ($($name:ident($($arg:ident: $T:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $T),*) -> Code {
            $(let _ = $arg;)*
            SUCCESS
        }
    )*};
}

/// A function that the emulator cannot do.
macro_rules! unsupported {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Code {
            eprintln!("nvabi-emu: {} is not supported", stringify!($name));
            NOT_SUPPORTED
        }
    )*};
}

/// A function that answers with one value.
macro_rules! answers {
    ($($name:ident($out:ident: $T:ty $(, $arg:ident: $A:ty)*) = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($out: *mut $T $(, $arg: $A)*) -> Code {
            $(let _ = $arg;)*
            done(put($out, $value))
        }
    )*};
}

/// A function whose body is a `Result`.
macro_rules! calls {
    ($($name:ident($($arg:ident: $T:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $T),*) -> Code {
            fn body($($arg: $T),*) -> Result { $body }
            done(body($($arg),*))
        }
    )*};
}
pub(crate) use {answers, calls, nothing, unsupported};

nothing! {
    cuInit(flags: c_uint);
    cuCtxDestroy_v2(ctx: Handle);
    cuCtxPushCurrent_v2(ctx: Handle);
    cuCtxSetCurrent(ctx: Handle);
    cuCtxSetLimit(limit: c_uint, value: usize);
    cuCtxSetCacheConfig(config: c_uint);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint);
    cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int);
    cuFuncSetCacheConfig(function: Handle, config: c_uint);
    cuProfilerStart();
    cuProfilerStop();
}

unsupported! {
    cuStreamBeginCapture_v2;
    cuStreamEndCapture;
    cuGraphCreate;
    cuGraphAddKernelNode_v2;
    cuGraphInstantiateWithFlags;
    cuGraphLaunch;
    cuGraphExecDestroy;
    cuGraphDestroy;
    cuTexObjectCreate;
    cuTexObjectDestroy;
    cuSurfObjectCreate;
    cuArrayCreate_v2;
    cuArray3DCreate_v2;
    cuArrayDestroy;
    cuMemcpy3D_v2;
}

answers! {
    cuDriverGetVersion(out: c_int) = VERSION;
    cuDeviceGetCount(out: c_int) = 1;
    cuDeviceTotalMem_v2(out: usize, device: c_int) = TOTAL_MEMORY;
    cuCtxCreate_v2(out: Handle, flags: c_uint, device: c_int) = context();
    cuCtxGetCurrent(out: Handle) = context();
    cuCtxPopCurrent_v2(out: Handle) = context();
    cuCtxGetDevice(out: c_int) = 0;
    cuDevicePrimaryCtxRetain(out: Handle, device: c_int) = context();
    cuDeviceGetUuid(out: [u8; 16], device: c_int) = *b"nvabi emulator\0\0";
    cuDeviceGetUuid_v2(out: [u8; 16], device: c_int) = *b"nvabi emulator\0\0";
}

calls! {
    cuDeviceGet(out: *mut c_int, ordinal: c_int) {
        if ordinal != 0 { return Err(INVALID_DEVICE) }
        put(out, 0)
    }
    cuDeviceGetName(out: *mut c_char, length: c_int, device: c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        let name = NAME.to_bytes_with_nul();
        if out.is_null() || (length as usize) < name.len() { return Err(INVALID_VALUE) }
        copy(out.expose_provenance() as u64, name.as_ptr().expose_provenance() as u64, name.len());
        Ok(())
    }
    cuDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        put(out, device_attribute(attribute))
    }
    cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        put(major, device_attribute(75))?;
        put(minor, device_attribute(76))
    }
    cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        put(flags, 0)?;
        put(active, 1)
    }
    cuDevicePrimaryCtxReset_v2(device: c_int) {
        if device != 0 { return Err(INVALID_DEVICE) }
        state().reset();
        Ok(())
    }
    cuCtxGetApiVersion(ctx: Handle, out: *mut c_uint) {
        let _ = ctx;
        put(out, VERSION as c_uint)
    }
    cuCtxSynchronize() { state().check() }
    cuGetErrorName(code: Code, out: *mut *const c_char) { put(out, error_name(code, "CUDA_ERROR_")?) }
    cuGetErrorString(code: Code, out: *mut *const c_char) {
        put(out, describe(code.0).ok_or(INVALID_VALUE)?.1.as_ptr())
    }

    cuModuleLoadData(out: *mut Handle, data: *const c_void) { load(out, data) }
    cuModuleLoadFatBinary(out: *mut Handle, data: *const c_void) { load(out, data) }
    cuModuleLoadDataEx(out: *mut Handle, data: *const c_void, n: c_uint, keys: Handle, values: Handle) {
        let _ = (n, keys, values);
        load(out, data)
    }
    cuModuleLoad(out: *mut Handle, path: *const c_char) {
        let bytes = read_file(text(path)?)?;
        put(out, state().load(&[&bytes])?)
    }
    cuModuleUnload(module: Handle) { state().unload(module) }
    // A library is a module here, and a kernel of it a function: there is one context.
    cuLibraryLoadData(
        out: *mut Handle, data: *const c_void, keys: Handle, values: Handle, n: c_uint, more_keys: Handle,
        more_values: Handle, more: c_uint
    ) {
        let _ = (keys, values, n, more_keys, more_values, more);
        load(out, data)
    }
    cuLibraryUnload(library: Handle) { state().unload(library) }
    cuLibraryGetModule(out: *mut Handle, library: Handle) { put(out, library) }
    cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char) {
        put(out, state().function(library, text(name)?)?)
    }
    cuKernelGetFunction(out: *mut Handle, kernel: Handle) {
        state().module_of(kernel)?;
        put(out, kernel)
    }
    cuLibraryGetGlobal(out: *mut u64, size: *mut usize, library: Handle, name: *const c_char) {
        let name = text(name)?.to_str().map_err(|_| NOT_FOUND)?;
        let (address, bytes) = state().symbol(library, name)?;
        put_if_wanted(out, address);
        put_if_wanted(size, bytes as usize);
        Ok(())
    }
    cuLinkCreate_v2(n: c_uint, keys: Handle, values: Handle, out: *mut Handle) {
        let _ = (n, keys, values);
        put(out, state().linker_create())
    }
    cuLinkAddData_v2(
        linker: Handle, kind: c_int, data: *const c_void, size: usize, name: *const c_char,
        n: c_uint, keys: Handle, values: Handle
    ) {
        let _ = (kind, n, keys, values);
        let name = if name.is_null() { "a text without a name".into() } else { text(name)?.to_string_lossy() };
        state().linker_add(linker, &name, bytes(data, size)?)
    }
    cuLinkAddFile_v2(linker: Handle, kind: c_int, path: *const c_char, n: c_uint, keys: Handle, values: Handle) {
        let _ = (kind, n, keys, values);
        let path = text(path)?;
        let bytes = read_file(path)?;
        state().linker_add(linker, &path.to_string_lossy(), &bytes)
    }
    cuLinkComplete(linker: Handle, image: *mut *const c_void, size: *mut usize) {
        let (start, length) = state().linker_complete(linker)?;
        put(image, start)?;
        put_if_wanted(size, length);
        Ok(())
    }
    cuLinkDestroy(linker: Handle) { state().linker_destroy(linker) }
    cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char) {
        put(out, state().function(module, text(name)?)?)
    }
    cuModuleGetGlobal_v2(out: *mut u64, size: *mut usize, module: Handle, name: *const c_char) {
        let name = text(name)?.to_str().map_err(|_| NOT_FOUND)?;
        let (address, bytes) = state().symbol(module, name)?;
        put_if_wanted(out, address);
        put_if_wanted(size, bytes as usize);
        Ok(())
    }
    cuFuncGetModule(out: *mut Handle, function: Handle) { put(out, state().module_of(function)?) }
    cuFuncGetName(out: *mut *const c_char, function: Handle) { put(out, state().name_of(function)?) }
    cuFuncGetAttribute(out: *mut c_int, attribute: c_int, function: Handle) {
        let shared = state().shared_size(function)? as c_int;
        // Most threads of a block, static shared memory, registers, PTX and binary version, and the most
        // dynamic shared memory.
        put(out, match attribute { 0 => 1024, 1 => shared, 4 => 32, 5 | 6 => 80, 8 => 48 << 10, _ => 0 })
    }

    cuMemAlloc_v2(out: *mut u64, size: usize) { alloc(out, size) }
    cuMemAllocAsync(out: *mut u64, size: usize, stream: Handle) {
        state().stream(stream)?;
        alloc(out, size)
    }
    cuMemAllocManaged(out: *mut u64, size: usize, flags: c_uint) {
        let _ = flags;
        alloc(out, size)
    }
    cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint) {
        let _ = element;
        let row = width.next_multiple_of(512);
        put(pitch, row)?;
        alloc(out, row.checked_mul(height).ok_or(INVALID_VALUE)?)
    }
    cuMemFree_v2(address: u64) { if address == 0 { Ok(()) } else { state().free(address) } }
    cuMemFreeAsync(address: u64, stream: Handle) {
        state().stream(stream)?;
        state().free(address)
    }
    cuMemAllocHost_v2(out: *mut u64, size: usize) { alloc_host(out, size) }
    cuMemHostAlloc(out: *mut u64, size: usize, flags: c_uint) {
        let _ = flags;
        alloc_host(out, size)
    }
    cuMemFreeHost(address: u64) { state().free_host(address) }
    cuMemHostGetDevicePointer_v2(out: *mut u64, host: u64, flags: c_uint) {
        let _ = flags;
        put(out, host)
    }
    cuMemHostRegister_v2(host: u64, size: usize, flags: c_uint) {
        let _ = flags;
        register(host, size)
    }
    cuMemHostUnregister(host: u64) { Ok(state().device.free(host)?) }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let used: u64 = state().allocated.values().sum();
        put(free, TOTAL_MEMORY.saturating_sub(used as usize))?;
        put(total, TOTAL_MEMORY)
    }
    cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) {
        let (start, end) = state().device.allocation(address).ok_or(NOT_FOUND)?;
        put_if_wanted(base, start);
        put_if_wanted(size, (end - start) as usize);
        Ok(())
    }

    cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) { transfer(to, true, from, false, size) }
    cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) { transfer(to, false, from, true, size) }
    cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) { transfer(to, true, from, true, size) }
    cuMemcpy(to: u64, from: u64, size: usize) { transfer(to, false, from, false, size) }
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) {
        state().stream(stream)?;
        transfer(to, true, from, false, size)
    }
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: Handle) {
        state().stream(stream)?;
        transfer(to, false, from, true, size)
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) {
        state().stream(stream)?;
        transfer(to, true, from, true, size)
    }
    cuMemcpyAsync(to: u64, from: u64, size: usize, stream: Handle) {
        state().stream(stream)?;
        transfer(to, false, from, false, size)
    }
    cuMemcpy2D_v2(copy: *const Copy2d) { copy_plane(copy) }
    cuMemcpy2DUnaligned_v2(copy: *const Copy2d) { copy_plane(copy) }
    cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: Handle) {
        state().stream(stream)?;
        copy_plane(copy)
    }
    cuMemsetD8_v2(to: u64, value: u8, count: usize) { set(to, &[value], count) }
    cuMemsetD16_v2(to: u64, value: u16, count: usize) { set(to, &value.to_ne_bytes(), count) }
    cuMemsetD32_v2(to: u64, value: u32, count: usize) { set(to, &value.to_ne_bytes(), count) }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) {
        state().stream(stream)?;
        set(to, &[value], count)
    }
    cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) {
        state().stream(stream)?;
        set(to, &value.to_ne_bytes(), count)
    }
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) {
        state().stream(stream)?;
        set(to, &value.to_ne_bytes(), count)
    }

    cuStreamCreate(out: *mut Handle, flags: c_uint) {
        let _ = flags;
        put(out, state().stream_create())
    }
    cuStreamCreateWithPriority(out: *mut Handle, flags: c_uint, priority: c_int) {
        let _ = (flags, priority);
        put(out, state().stream_create())
    }
    cuStreamDestroy_v2(stream: Handle) { state().stream_destroy(stream) }
    cuStreamSynchronize(stream: Handle) { state().stream(stream) }
    cuStreamQuery(stream: Handle) { state().stream(stream) }
    cuStreamGetCtx(stream: Handle, out: *mut Handle) {
        state().stream(stream)?;
        put(out, context())
    }
    cuStreamIsCapturing(stream: Handle, out: *mut c_int) {
        state().stream(stream)?;
        put(out, 0)
    }
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        let _ = flags;
        state().stream(stream)?;
        state().event(event)
    }
    cuEventCreate(out: *mut Handle, flags: c_uint) {
        let _ = flags;
        put(out, state().event_create())
    }
    cuEventRecord(event: Handle, stream: Handle) {
        state().stream(stream)?;
        state().event_record(event)
    }
    cuEventQuery(event: Handle) { state().event(event) }
    cuEventSynchronize(event: Handle) { state().event(event) }
    cuEventDestroy_v2(event: Handle) { state().event_destroy(event) }
    cuEventElapsedTime(out: *mut f32, start: Handle, end: Handle) {
        put(out, state().elapsed(start, end)?)
    }
    cuLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(Handle)>, data: Handle) {
        state().stream(stream)?;
        function.ok_or(INVALID_VALUE)?(data);
        Ok(())
    }

    cuLaunchKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared_bytes: c_uint, stream: Handle, params: *mut Handle, extra: *mut Handle
    ) {
        let (grid, block) = ([gx, gy, gz], [bx, by, bz]);
        launch(function, Request { grid, block, shared_bytes, cooperative: false }, stream, params, extra)
    }
    cuLaunchCooperativeKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared_bytes: c_uint, stream: Handle, params: *mut Handle
    ) {
        let (grid, block) = ([gx, gy, gz], [bx, by, bz]);
        let request = Request { grid, block, shared_bytes, cooperative: true };
        launch(function, request, stream, params, std::ptr::null_mut())
    }
    cuLaunchKernelEx(config: *const Config, function: Handle, params: *mut Handle, extra: *mut Handle) {
        let config = get(config)?;
        let cooperative = config.is_cooperative()?;
        let Config { grid, block, shared_bytes, stream, .. } = config;
        launch(function, Request { grid, block, shared_bytes, cooperative }, stream, params, extra)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: *mut c_int, function: Handle, block_size: c_int, shared_bytes: usize
    ) {
        let _ = shared_bytes;
        state().shared_size(function)?;
        put(out, 2048 / block_size.max(1))
    }
    cuPointerGetAttribute(out: *mut c_void, attribute: c_int, address: u64) {
        let state = state();
        let (start, end) = state.device.allocation(address).ok_or(INVALID_VALUE)?;
        match attribute {
            1 => put(out.cast(), context()),
            2 => put(out.cast(), if state.pinned.contains_key(&start) { 1u32 } else { 2 }),
            3 | 4 => put(out.cast(), address),
            9 => put(out.cast(), 0),
            11 => put(out.cast(), start),
            12 => put(out.cast(), end - start),
            _ => Err(NOT_SUPPORTED),
        }
    }
    cuGetProcAddress_v2(
        name: *const c_char, out: *mut Handle, version: c_int, flags: u64, status: *mut c_int
    ) {
        let _ = (version, flags);
        let found = newest(text(name)?);
        put_if_wanted(status, if found.is_ok() { 0 } else { 1 });
        put(out, found?)
    }
    cuGetProcAddress(name: *const c_char, out: *mut Handle, version: c_int, flags: u64) {
        let _ = (version, flags);
        put(out, newest(text(name)?)?)
    }
}

fn read_file(path: &std::ffi::CStr) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    // 301 is the error for a file that is not found.
    std::fs::read(std::ffi::OsStr::from_bytes(path.to_bytes())).map_err(|_| Code(301))
}

/// The function of a name, in the version that programs of today mean by it.
pub(crate) fn newest(name: &std::ffi::CStr) -> Result<Handle> {
    let second = CString::new([name.to_bytes(), b"_v2"].concat()).map_err(|_| NOT_FOUND)?;
    find(&second).or_else(|_| find(name))
}

/// The name of an error, with the prefix that the driver or the runtime gives it.
pub(crate) fn error_name(code: Code, prefix: &str) -> Result<*const c_char> {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};
    static NAMES: LazyLock<Mutex<HashMap<(u32, String), CString>>> = LazyLock::new(Mutex::default);
    let (name, _) = describe(code.0).ok_or(INVALID_VALUE)?;
    let full = match prefix {
        _ if code == SUCCESS && prefix.starts_with("CUDA") => "CUDA_SUCCESS".to_owned(),
        "cudaError" => camel(prefix, name),
        _ => format!("{prefix}{}", name.to_string_lossy()),
    };
    let full =
        if code == SUCCESS && prefix == "cudaError" { "cudaSuccess".to_owned() } else { full };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = names
        .entry((code.0, prefix.to_owned()))
        .or_insert_with(|| CString::new(full).unwrap_or_default());
    // The entries stay where they are: a string's text does not move with the table.
    Ok(entry.as_ptr())
}

/// `cudaErrorIllegalAddress` from `ILLEGAL_ADDRESS`.
fn camel(prefix: &str, name: &std::ffi::CStr) -> String {
    let mut out = prefix.to_owned();
    for word in name.to_string_lossy().split('_') {
        let (first, rest) = word.split_at(1.min(word.len()));
        out.push_str(first);
        out.push_str(&rest.to_ascii_lowercase());
    }
    out
}

/// What `cuDeviceGetAttribute` and `cudaDeviceGetAttribute` tell: a GPU of compute capability 8.0, or
/// 9.0 for what it may hold, with one multiprocessor.
pub(crate) fn device_attribute(attribute: c_int) -> c_int {
    match attribute {
        1..=3 => 1024,                    // threads of a block, and along x and y
        4 => 64,                          // along z
        5 => c_int::MAX,                  // blocks along x
        6 | 7 => 65535,                   // along y and z
        8 => 48 << 10,                    // shared memory of a block
        9 => 64 << 10,                    // constant memory
        10 => 32,                         // lanes of a warp
        11 => c_int::MAX,                 // pitch
        12 | 82 => 65536,                 // registers
        13 | 36 => 1_000_000,             // clocks, in kHz
        16 => 1,                          // multiprocessors
        15 | 19 | 31 | 41 | 83 | 89 => 1, // overlap, mapped host, concurrent, unified, managed
        37 => 256,                        // bus
        38 => 1 << 20,                    // L2
        39 => 2048,                       // threads of a multiprocessor
        40 => 1,                          // copy engines
        75 => 9,                          // compute capability
        81 | 97 => 227 << 10, // shared memory of a multiprocessor, and at most of a block
        95 => 1,              // cooperative launches
        106 => 32,            // blocks of a multiprocessor
        _ => 0,
    }
}

/// The fields of `CUlaunchConfig`, which are those of the runtime's, too.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const Attribute,
    pub(crate) count: c_uint,
}

/// One attribute of a launch: its number, and a value of 64 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Attribute {
    id: c_int,
    _pad: c_int,
    value: [c_int; 16],
}

impl Config {
    /// Whether an attribute asks for a cooperative launch, which is number 2.
    pub(crate) fn is_cooperative(&self) -> Result<bool> {
        for at in 0..self.count as usize {
            // SAFETY: the caller says that there are `count` attributes.
            let attribute = get(unsafe { self.attributes.add(at) })?;
            if attribute.id == 2 && attribute.value[0] != 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Copy2d {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    /// 1 host, 2 device, 3 array, 4 either.
    kind: c_uint,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

impl Side {
    /// The first byte, and whether it must be on the device.
    fn start(&self) -> Result<(u64, bool)> {
        let (base, device) = match self.kind {
            1 => (self.host, false),
            2 => (self.device, true),
            4 => (self.device, false),
            _ => return Err(NOT_SUPPORTED),
        };
        Ok((base + (self.y * self.pitch + self.x) as u64, device))
    }
}

fn copy_plane(request: *const Copy2d) -> Result {
    let request = get(request)?;
    let ((from, from_device), (to, to_device)) = (request.from.start()?, request.to.start()?);
    for row in 0..request.height {
        let (from, to) =
            (from + (row * request.from.pitch) as u64, to + (row * request.to.pitch) as u64);
        transfer(to, to_device, from, from_device, request.width)?;
    }
    Ok(())
}

fn load(out: *mut Handle, data: *const c_void) -> Result {
    put(out, state().load(&images(data)?)?)
}

pub(crate) fn alloc(out: *mut u64, size: usize) -> Result {
    if size == 0 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    put(out, state().alloc(size as u64)?)
}

pub(crate) fn alloc_host(out: *mut u64, size: usize) -> Result {
    if size == 0 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    put(out, state().alloc_host(size as u64)?)
}

pub(crate) fn register(host: u64, size: usize) -> Result {
    if host == 0 || size == 0 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller keeps the memory until it unregisters it.
    unsafe { state().device.register(host, size as u64) };
    Ok(())
}

/// Copies, where each side may have to be on the device.
pub(crate) fn transfer(
    to: u64,
    to_device: bool,
    from: u64,
    from_device: bool,
    size: usize,
) -> Result {
    let state = state();
    state.check()?;
    if to_device {
        state.inside(to, size as u64)?;
    }
    if from_device {
        state.inside(from, size as u64)?;
    }
    if size != 0 && (to == 0 || from == 0) {
        return Err(INVALID_VALUE);
    }
    copy(to, from, size);
    Ok(())
}

pub(crate) fn set(to: u64, pattern: &[u8], count: usize) -> Result {
    let size = count.checked_mul(pattern.len()).ok_or(INVALID_VALUE)?;
    state().inside(to, size as u64)?;
    fill(to, pattern, count);
    Ok(())
}

fn launch(
    function: Handle,
    request: Request,
    stream: Handle,
    params: *mut Handle,
    extra: *mut Handle,
) -> Result {
    let mut state = state();
    state.stream(stream)?;
    let args = arguments(&state.params(function)?, params, extra)?;
    state.launch(function, &request, &args)
}
