//! The driver's functions, by the names that libcuda exports.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use crate::abi::{Image, In, Out, Text, arguments, bytes, copy, find, status_of};
use crate::arrays::plane_of_array;
use crate::graphs::{Work, line};
use crate::pools::Location;
use crate::state::{
    ALREADY_REGISTERED, Code, INVALID_VALUE, NOT_FOUND, NOT_INITIALIZED, NOT_SUPPORTED, Request,
    Result, SUCCESS, context, context_of, describe, on_stream, print_message, state,
};
use crate::unsupported;
use crate::{clocks, devices};

type Handle = *mut c_void;

/// `CUhostFn`, which is `cudaHostFn_t`.
pub(crate) type HostFunction = unsafe extern "C" fn(Handle);

/// The newest whose programs it knows.
pub(crate) const VERSION: c_int = 13000;
pub(crate) const NAME: &CStr = c"nvabi emulator";
pub(crate) const TOTAL_MEMORY: usize = 16 << 30;

/// A function without effect on a device that does everything at once.
macro_rules! nothing {
    (prefix $prefix:literal; $($name:ident($($arg:ident: $T:ty),*);)*) => {$(
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        extern "C" fn $name($($arg: $T),*) -> Code {
            $(let _ = $arg;)*
            SUCCESS
        }
    )*};
    ($($rest:tt)*) => { $crate::driver::nothing! { prefix ""; $($rest)* } };
}

/// A function that answers with one value. It is unsafe to call as those of `calls!`.
macro_rules! answers {
    (prefix $prefix:literal; $($name:ident($out:ident: $T:ty $(, $arg:ident: $A:ty)*) = $value:expr;)*) => {$(
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name($out: Out<$T> $(, $arg: $A)*) -> Code {
            $(let _ = $arg;)*
            status_of($out.put($value))
        }
    )*};
    ($($rest:tt)*) => { $crate::driver::answers! { prefix ""; $($rest)* } };
}

/// A function whose body is a `Result`.
///
/// It is unsafe to call: its parameters must keep the invariants of their types (see `abi`), as CUDA's
/// documentation of the function asks of the C program. The body is safe, given that.
macro_rules! calls {
    (prefix $prefix:literal; $($name:ident($($arg:ident: $T:ty),*) $body:block)*) => {$(
        #[unsafe(export_name = concat!($prefix, stringify!($name)))]
        unsafe extern "C" fn $name($($arg: $T),*) -> Code {
            fn body($($arg: $T),*) -> Result { $body }
            status_of(body($($arg),*))
        }
    )*};
    ($($rest:tt)*) => { $crate::driver::calls! { prefix ""; $($rest)* } };
}

/// As `calls!`, for parameters whose meaning no type of their own says: sizes that belong to addresses, and
/// arrays whose length another parameter has. The body hands them on to a function that is unsafe for just
/// that reason.
macro_rules! unchecked {
    ($($name:ident($($arg:ident: $T:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $T),*) -> Code {
            unsafe fn body($($arg: $T),*) -> Result {
                // SAFETY: each unsafe function that bodies call asks, under "Safety", for what CUDA's
                // documentation asks of the caller of the function of C; it gets that caller's parameters.
                unsafe { $body }
            }
            // SAFETY: the C program called by CUDA's documentation.
            status_of(unsafe { body($($arg),*) })
        }
    )*};
}
pub(crate) use {answers, calls, nothing, unchecked};

nothing! {
    cuCtxSetCacheConfig(config: c_uint);
    cuCtxSetFlags(flags: c_uint);
    cuCtxSetSharedMemConfig(config: c_uint);
    cuCtxResetPersistingL2Cache();
    cuDevicePrimaryCtxRelease(device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuDevicePrimaryCtxSetFlags(device: c_int, flags: c_uint);
    cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint);
    cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int);
    cuFuncSetCacheConfig(function: Handle, config: c_uint);
    cuFuncSetSharedMemConfig(function: Handle, config: c_uint);
    cuKernelSetAttribute(attribute: c_int, value: c_int, kernel: Handle, device: c_int);
    cuKernelSetCacheConfig(kernel: Handle, config: c_uint, device: c_int);
    cuFuncLoad(function: Handle);
    cuMemAdvise(address: u64, size: usize, advice: c_uint, device: c_int);
    cuMemAdvise_v2(address: u64, size: usize, advice: c_uint, location: Location);
    cuMemPrefetchAsync(address: u64, size: usize, device: c_int, stream: Handle);
    cuMemPrefetchAsync_v2(address: u64, size: usize, location: Location, flags: c_uint, stream: Handle);
    cuStreamAttachMemAsync(stream: Handle, address: u64, size: usize, flags: c_uint);
    cuProfilerStart();
    cuProfilerStop();
}

answers! {
    cuDriverGetVersion(out: c_int) = VERSION;
    cuDeviceTotalMem_v2(out: usize, device: c_int) = TOTAL_MEMORY;
    cuCtxGetCurrent(out: Handle) = context();
    cuCtxGetFlags(out: c_uint) = 0;
    cuCtxGetCacheConfig(out: c_uint) = 0;
    cuCtxGetSharedMemConfig(out: c_uint) = 1;
    cuModuleGetLoadingMode(out: c_int) = 1;
    cuFuncIsLoaded(out: c_int, function: Handle) = 1;
}

calls! {
    cuInit(flags: c_uint) {
        let _ = flags;
        // A program that goes no further has called the emulator, too: its report is begun.
        drop(state());
        devices::check_any()
    }
    cuDeviceGet(out: Out<c_int>, ordinal: c_int) {
        initialised()?;
        out.put(devices::check(ordinal)? as c_int)
    }
    cuDeviceGetAttribute(out: Out<c_int>, attribute: c_int, device: c_int) {
        devices::check(device)?;
        out.put(device_attribute(attribute, device))
    }
    cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        devices::check(device)?;
        major.put(device_attribute(75, device))?;
        minor.put(device_attribute(76, device))
    }
    cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        devices::check(device)?;
        flags.put(0)?;
        active.put(1)
    }
    cuDevicePrimaryCtxReset_v2(device: c_int) {
        let device = devices::check(device)?;
        state().reset(device);
        Ok(())
    }
    cuCtxGetApiVersion(ctx: Handle, out: Out<c_uint>) {
        let _ = ctx;
        out.put(VERSION as c_uint)
    }
    cuDeviceGetCount(out: Out<c_int>) {
        initialised()?;
        out.put(devices::count() as c_int)
    }
    cuDeviceGetUuid(out: Out<[u8; 16]>, device: c_int) { out.put(devices::uuid(devices::check(device)?)) }
    cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: c_int) { out.put(devices::uuid(devices::check(device)?)) }
    cuDevicePrimaryCtxRetain(out: Out<Handle>, device: c_int) { out.put(context_of(devices::check(device)?)) }
    cuCtxCreate_v2(out: Out<Handle>, flags: c_uint, device: c_int) {
        let _ = flags;
        create_context(out, device)
    }
    cuCtxDestroy(ctx: Handle) { destroy_context(ctx) }
    cuCtxDestroy_v2(ctx: Handle) { destroy_context(ctx) }
    cuCtxGetDevice(out: Out<c_int>) { out.put(devices::current() as c_int) }
    cuCtxSetCurrent(ctx: Handle) {
        // Null ends the use of a context; there is always one here.
        devices::of_context(ctx)?.into_iter().for_each(devices::set_current);
        Ok(())
    }
    cuCtxPushCurrent(ctx: Handle) { push_context(ctx) }
    cuCtxPushCurrent_v2(ctx: Handle) { push_context(ctx) }
    // Where it goes may be null.
    cuCtxPopCurrent(out: Out<Handle>) {
        out.put_if_wanted(context_of(devices::pop()));
        Ok(())
    }
    cuCtxPopCurrent_v2(out: Out<Handle>) {
        out.put_if_wanted(context_of(devices::pop()));
        Ok(())
    }
    cuCtxSynchronize() { state().wait_for_device(devices::current()) }
    cuStreamGetCtx_v2(stream: Handle, out: Out<Handle>, green: Out<Handle>) {
        let device = state().device_of(stream)?;
        green.put_if_wanted(std::ptr::null_mut());
        out.put(context_of(device))
    }
    cuCtxSynchronize_v2(ctx: Handle) {
        // As below: anything may be there.
        let device = devices::of_context(ctx).ok().flatten().unwrap_or(devices::current());
        state().wait_for_device(device)
    }
    cuCtxGetDevice_v2(out: Out<c_int>, ctx: Handle) {
        // numba calls this form with the arguments of the other, so that anything may be there.
        let device = devices::of_context(ctx).ok().flatten().unwrap_or(devices::current());
        out.put(device as c_int)
    }
    cuCtxCreate_v3(out: Out<Handle>, affinities: Handle, count: c_int, flags: c_uint, device: c_int) {
        let _ = flags;
        // Parts of a GPU are not told apart.
        if !affinities.is_null() || count != 0 { return Err(NOT_SUPPORTED) }
        create_context(out, device)
    }
    cuCtxCreate_v4(out: Out<Handle>, params: In<CreateParams>, flags: c_uint, device: c_int) {
        let _ = flags;
        // Neither parts of a GPU nor graphics.
        if params.get_if_given()?.is_some_and(|params| !params.is_plain()) { return Err(NOT_SUPPORTED) }
        create_context(out, device)
    }
    cuCtxGetLimit(out: Out<usize>, limit: c_uint) { out.put(state().limit(limit)?) }
    cuCtxSetLimit(limit: c_uint, value: usize) { state().set_limit(limit, value) }
    cuCtxGetId(ctx: Handle, out: Out<u64>) {
        out.put(devices::of_context(ctx)?.unwrap_or(devices::current()) as u64 + 1)
    }
    cuCtxGetStreamPriorityRange(least: Out<c_int>, most: Out<c_int>) {
        least.put_if_wanted(0);
        most.put_if_wanted(0);
        Ok(())
    }
    cuDevicePrimaryCtxReset(device: c_int) {
        let device = devices::check(device)?;
        state().reset(device);
        Ok(())
    }
    cuGetExportTable(table: Out<Handle>, id: Handle) {
        let _ = (table, id);
        private_table();
        Err(NOT_SUPPORTED)
    }
    cuKernelGetAttribute(out: Out<c_int>, attribute: c_int, kernel: Handle, device: c_int) {
        let _ = device;
        out.put(function_attribute(attribute, kernel)?)
    }
    cuKernelGetName(out: Out<*const c_char>, kernel: Handle) { out.put(state().name_of(kernel)?) }
    cuMemHostGetFlags(out: Out<c_uint>, host: u64) {
        let _ = state().pinned.get(&host).ok_or(INVALID_VALUE)?;
        out.put(0)
    }
    cuStreamGetFlags(stream: Handle, out: Out<c_uint>) {
        state().stream(stream)?;
        out.put(0)
    }
    cuStreamGetPriority(stream: Handle, out: Out<c_int>) {
        state().stream(stream)?;
        out.put(0)
    }
    cuStreamGetId(stream: Handle, out: Out<u64>) {
        state().stream(stream)?;
        out.put(stream.addr() as u64)
    }
    cuStreamDestroy(stream: Handle) { state().stream_destroy(stream) }
    cuEventDestroy(event: Handle) { state().event_destroy(event) }
    cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        let _ = flags;
        record_on(stream, event)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<c_int>, function: Handle, block_size: c_int, shared_bytes: usize, flags: c_uint
    ) {
        let _ = (shared_bytes, flags);
        state().shared_size(function)?;
        out.put(2048 / block_size.max(1))
    }
    cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: Handle, size: Handle, shared_bytes: usize,
        limit: c_int
    ) {
        let _ = (size, shared_bytes);
        state().shared_size(function)?;
        grid.put(2)?;
        block.put(if limit > 0 { limit.min(1024) } else { 1024 })
    }
    cuGetErrorName(code: Code, out: Out<*const c_char>) { out.put(error_name(code, "CUDA_ERROR_")?) }
    cuGetErrorString(code: Code, out: Out<*const c_char>) {
        out.put(describe(code.0).ok_or(INVALID_VALUE)?.1.as_ptr())
    }

    cuModuleLoadData(out: Out<Handle>, data: Image) { load(out, data) }
    cuModuleLoadFatBinary(out: Out<Handle>, data: Image) { load(out, data) }
    cuModuleLoadDataEx(out: Out<Handle>, data: Image, n: c_uint, keys: Handle, values: Handle) {
        let _ = (n, keys, values);
        load(out, data)
    }
    cuModuleLoad(out: Out<Handle>, path: Text) {
        let bytes = read_file(path.get()?)?;
        out.put(state().load(&[&bytes])?)
    }
    cuModuleUnload(module: Handle) { state().unload(module) }
    // A library is a module here, and a kernel of it a function: those of the device that loaded it.
    cuLibraryLoadData(
        out: Out<Handle>, data: Image, keys: Handle, values: Handle, n: c_uint, more_keys: Handle,
        more_values: Handle, more: c_uint
    ) {
        let _ = (keys, values, n, more_keys, more_values, more);
        out.put(state().load_library(&data.units()?)?)
    }
    cuLibraryUnload(library: Handle) { state().unload_library(library) }
    cuLibraryGetModule(out: Out<Handle>, library: Handle) {
        out.put(state().module_on(library, devices::current())?)
    }
    cuLibraryGetKernel(out: Out<Handle>, library: Handle, name: Text) {
        out.put(state().function(library, name.get()?)?)
    }
    cuKernelGetFunction(out: Out<Handle>, kernel: Handle) {
        out.put(state().kernel_on(kernel, devices::current())?)
    }
    cuLibraryGetGlobal(out: Out<u64>, size: Out<usize>, library: Handle, name: Text) {
        let name = name.get()?.to_str().map_err(|_| NOT_FOUND)?;
        let mut state = state();
        let module = state.module_on(library, devices::current())?;
        let (address, bytes) = state.symbol(module, name)?;
        out.put_if_wanted(address);
        size.put_if_wanted(bytes as usize);
        Ok(())
    }
    cuLinkCreate_v2(n: c_uint, keys: Handle, values: Handle, out: Out<Handle>) {
        let _ = (n, keys, values);
        out.put(state().linker_create())
    }
    cuLinkAddFile_v2(linker: Handle, kind: c_int, path: Text, n: c_uint, keys: Handle, values: Handle) {
        let _ = (kind, n, keys, values);
        let path = path.get()?;
        let bytes = read_file(path)?;
        state().linker_add(linker, &path.to_string_lossy(), &bytes)
    }
    cuLinkComplete(linker: Handle, image: Out<*const c_void>, size: Out<usize>) {
        let (start, length) = state().linker_complete(linker)?;
        image.put(start)?;
        size.put_if_wanted(length);
        Ok(())
    }
    cuLinkDestroy(linker: Handle) { state().linker_destroy(linker) }
    cuModuleGetFunction(out: Out<Handle>, module: Handle, name: Text) {
        out.put(state().function(module, name.get()?)?)
    }
    cuModuleGetGlobal_v2(out: Out<u64>, size: Out<usize>, module: Handle, name: Text) {
        let name = name.get()?.to_str().map_err(|_| NOT_FOUND)?;
        let (address, bytes) = state().symbol(module, name)?;
        out.put_if_wanted(address);
        size.put_if_wanted(bytes as usize);
        Ok(())
    }
    cuFuncGetModule(out: Out<Handle>, function: Handle) { out.put(state().module_of(function)?) }
    cuFuncGetName(out: Out<*const c_char>, function: Handle) { out.put(state().name_of(function)?) }
    cuFuncGetAttribute(out: Out<c_int>, attribute: c_int, function: Handle) {
        out.put(function_attribute(attribute, function)?)
    }

    cuMemAlloc_v2(out: Out<u64>, size: usize) { alloc(out, size) }
    cuMemAllocAsync(out: Out<u64>, size: usize, stream: Handle) { alloc_on(stream, None, out, size) }
    cuMemAllocManaged(out: Out<u64>, size: usize, flags: c_uint) {
        let _ = flags;
        alloc_managed(out, size)
    }
    cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: c_uint) {
        let _ = element;
        let row = width.next_multiple_of(512);
        pitch.put(row)?;
        alloc(out, row.checked_mul(height).ok_or(INVALID_VALUE)?)
    }
    cuMemFree_v2(address: u64) { if address == 0 { Ok(()) } else { state().free(address) } }
    cuMemFreeAsync(address: u64, stream: Handle) { free_on(stream, address) }
    cuMemAllocHost_v2(out: Out<u64>, size: usize) { alloc_host(out, size) }
    cuMemHostAlloc(out: Out<u64>, size: usize, flags: c_uint) {
        let _ = flags;
        alloc_host(out, size)
    }
    cuMemFreeHost(address: u64) { state().free_host(address) }
    cuMemHostGetDevicePointer_v2(out: Out<u64>, host: u64, flags: c_uint) {
        let _ = flags;
        out.put(host)
    }
    cuMemHostUnregister(host: u64) { Ok(state().device.free(host)?) }
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let used = state().used()?;
        free.put(TOTAL_MEMORY.saturating_sub(used as usize))?;
        total.put(TOTAL_MEMORY)
    }
    cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        let (start, end) = state().device.allocation(address).ok_or(NOT_FOUND)?;
        base.put_if_wanted(start);
        size.put_if_wanted((end - start) as usize);
        Ok(())
    }
    cuMemsetD8_v2(to: u64, value: u8, count: usize) { set(to, &[value], count) }
    cuMemsetD16_v2(to: u64, value: u16, count: usize) { set(to, &value.to_ne_bytes(), count) }
    cuMemsetD32_v2(to: u64, value: u32, count: usize) { set(to, &value.to_ne_bytes(), count) }
    cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) { set_on(stream, to, &[value], count) }
    cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) { set_on(stream, to, &value.to_ne_bytes(), count) }
    cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) { set_on(stream, to, &value.to_ne_bytes(), count) }

    cuStreamCreate(out: Out<Handle>, flags: c_uint) {
        out.put(state().stream_create(flags)?)
    }
    cuStreamCreateWithPriority(out: Out<Handle>, flags: c_uint, priority: c_int) {
        let _ = priority;
        out.put(state().stream_create(flags)?)
    }
    cuStreamDestroy_v2(stream: Handle) { state().stream_destroy(stream) }
    cuStreamSynchronize(stream: Handle) { state().wait_for_stream(stream) }
    cuStreamQuery(stream: Handle) { state().wait_for_stream(stream) }
    cuStreamGetCtx(stream: Handle, out: Out<Handle>) {
        state().stream(stream)?;
        let device = state().device_of(stream)?;
        out.put(context_of(device))
    }
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint) {
        let _ = flags;
        wait_on(stream, event)
    }
    cuEventCreate(out: Out<Handle>, flags: c_uint) { out.put(state().event_create(flags)?) }
    cuEventRecord(event: Handle, stream: Handle) { record_on(stream, event) }
    cuEventQuery(event: Handle) { state().wait_for_event(event) }
    cuEventSynchronize(event: Handle) { state().wait_for_event(event) }
    cuEventDestroy_v2(event: Handle) { state().event_destroy(event) }
    cuEventElapsedTime(out: Out<f32>, start: Handle, end: Handle) {
        out.put(state().elapsed(start, end)?)
    }
    cuEventElapsedTime_v2(out: Out<f32>, start: Handle, end: Handle) {
        out.put(state().elapsed(start, end)?)
    }
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<c_int>, function: Handle, block_size: c_int, shared_bytes: usize
    ) {
        let _ = shared_bytes;
        state().shared_size(function)?;
        out.put(2048 / block_size.max(1))
    }
    cuGetProcAddress_v2(
        name: Text, out: Out<Handle>, version: c_int, flags: u64, status: Out<c_int>
    ) {
        let _ = flags;
        let found = of_version(name.get()?, version);
        status.put_if_wanted(if found.is_ok() { 0 } else { 1 });
        out.put(found?)
    }
    cuGetProcAddress(name: Text, out: Out<Handle>, version: c_int, flags: u64) {
        let _ = flags;
        out.put(of_version(name.get()?, version)?)
    }
}

unchecked! {
    cuDeviceGetName(out: Out<c_char>, length: c_int, device: c_int) {
        devices::check(device)?;
        out.put_text(NAME, usize::try_from(length).unwrap_or(0))
    }
    cuPointerGetAttribute(out: Out<c_void>, attribute: c_int, address: u64) {
        let state = state();
        let (start, end) = state.device.allocation(address).ok_or(INVALID_VALUE)?;
        match attribute {
            1 => out.of().put(context_of(state.owner(start))),
            2 => out.of().put(if state.pinned.contains_key(&start) { 1u32 } else { 2 }),
            3 | 4 => out.of().put(address),
            9 => out.of().put(state.owner(start) as u32),
            11 => out.of().put(start),
            12 => out.of().put(end - start),
            _ => Err(NOT_SUPPORTED),
        }
    }
    cuLinkAddData_v2(
        linker: Handle, kind: c_int, data: *const c_void, size: usize, name: Text,
        n: c_uint, keys: Handle, values: Handle
    ) {
        let _ = (kind, n, keys, values);
        let name = name.get().map_or("a text without a name".into(), CStr::to_string_lossy);
        state().linker_add(linker, &name, bytes(data, size)?)
    }
    cuMemHostRegister_v2(host: u64, size: usize, flags: c_uint) {
        let _ = flags;
        register(host, size)
    }

    cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) { transfer(to, true, from, false, size) }
    cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) { transfer(to, false, from, true, size) }
    cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) { transfer(to, true, from, true, size) }
    cuMemcpy(to: u64, from: u64, size: usize) { transfer(to, false, from, false, size) }
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) {
        transfer_on(stream, (to, true), (from, false), size)
    }
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: Handle) {
        transfer_on(stream, (to, false), (from, true), size)
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: Handle) {
        transfer_on(stream, (to, true), (from, true), size)
    }
    cuMemcpyAsync(to: u64, from: u64, size: usize, stream: Handle) {
        transfer_on(stream, (to, false), (from, false), size)
    }
    cuMemcpy2D_v2(copy: In<Copy2d>) { copy_plane(copy) }
    cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) { copy_plane(copy) }
    cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Handle) {
        state().stream(stream)?;
        on_stream(stream, || copy_plane(copy))
    }
    cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: Handle) {
        call_host_on(stream, function, data)
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
    cuLaunchKernelEx(config: In<Config>, function: Handle, params: *mut Handle, extra: *mut Handle) {
        let config = config.get()?;
        let cooperative = config.is_cooperative()?;
        let Config { grid, block, shared_bytes, stream, .. } = config;
        launch(function, Request { grid, block, shared_bytes, cooperative }, stream, params, extra)
    }
}

/// A context of a device, which all share, becomes the current one.
fn create_context(out: Out<Handle>, device: c_int) -> Result {
    devices::push(devices::check(device)?);
    out.put(context())
}

fn push_context(ctx: Handle) -> Result {
    devices::push(devices::of_context(ctx)?.unwrap_or(devices::current()));
    Ok(())
}

/// Of the current one, what was used before is used again.
fn destroy_context(ctx: Handle) -> Result {
    if devices::of_context(ctx)? == Some(devices::current()) {
        devices::pop();
    }
    Ok(())
}

/// Whether `cuInit` has found a device.
fn initialised() -> Result {
    devices::check_any().map_err(|_| NOT_INITIALIZED)
}

fn read_file(path: &CStr) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    // 301 is the error for a file that is not found.
    std::fs::read(std::ffi::OsStr::from_bytes(path.to_bytes())).map_err(|_| Code(301))
}

/// `CUctxCreateParams`.
#[derive(Clone, Copy)]
#[repr(C)]
struct CreateParams {
    affinities: Handle,
    affinity_count: c_int,
    graphics: Handle,
}

impl CreateParams {
    fn is_plain(&self) -> bool {
        self.affinities.is_null() && self.affinity_count == 0 && self.graphics.is_null()
    }
}

/// Functions whose forms take other arguments: the version of CUDA from which on a program that names the function means
/// the form (`cudaTypedefs.h`), oldest first.
const FORMS: [(&CStr, c_int, &CStr); 17] = [
    (c"cuCtxCreate", 3020, c"cuCtxCreate_v2"),
    (c"cuCtxCreate", 11040, c"cuCtxCreate_v3"),
    (c"cuCtxCreate", 12050, c"cuCtxCreate_v4"),
    (c"cuCtxGetDevice", 13000, c"cuCtxGetDevice_v2"),
    (c"cuCtxSynchronize", 13000, c"cuCtxSynchronize_v2"),
    (c"cuEventElapsedTime", 12080, c"cuEventElapsedTime_v2"),
    (c"cuGetProcAddress", 12000, c"cuGetProcAddress_v2"),
    (c"cuGraphAddDependencies", 12030, c"cuGraphAddDependencies_v2"),
    (c"cuGraphAddNode", 12030, c"cuGraphAddNode_v2"),
    (c"cuGraphExecUpdate", 12000, c"cuGraphExecUpdate_v2"),
    (c"cuGraphNodeGetDependencies", 12030, c"cuGraphNodeGetDependencies_v2"),
    (c"cuGraphRemoveDependencies", 12030, c"cuGraphRemoveDependencies_v2"),
    (c"cuMemAdvise", 12020, c"cuMemAdvise_v2"),
    (c"cuMemPrefetchAsync", 12020, c"cuMemPrefetchAsync_v2"),
    (c"cuStreamGetCaptureInfo", 11030, c"cuStreamGetCaptureInfo_v2"),
    (c"cuStreamGetCaptureInfo", 12030, c"cuStreamGetCaptureInfo_v3"),
    (c"cuStreamGetCtx", 12050, c"cuStreamGetCtx_v2"),
];

/// The function that programs of a version of CUDA mean by a name. Those that the emulator cannot do are not found, so
/// that a program that asks first can do without them.
pub(crate) fn of_version(name: &CStr, version: c_int) -> Result<Handle> {
    let able = |name: &CStr| match unsupported::NAMES.contains(&name) {
        true => Err(NOT_FOUND),
        false => find(name),
    };
    let mut forms = FORMS.iter().filter(|(of, ..)| *of == name);
    if forms.clone().next().is_some() {
        let form = forms.rfind(|(_, since, _)| version >= *since);
        return able(form.map_or(name, |(_, _, form)| form));
    }
    // Of the others the second form has wider numbers alone, and all programs of today mean it.
    let second = CString::new([name.to_bytes(), b"_v2"].concat()).map_err(|_| NOT_FOUND)?;
    able(&second).or_else(|_| able(name))
}

fn function_attribute(attribute: c_int, function: Handle) -> Result<c_int> {
    let shared = state().shared_size(function)? as c_int;
    // Most threads of a block, static shared memory, registers, PTX and binary version, and the most
    // dynamic shared memory.
    Ok(match attribute {
        0 => 1024,
        1 => shared,
        4 => 32,
        5 | 6 => 80,
        8 => 48 << 10,
        _ => 0,
    })
}

/// Says, once, what a program lacks that asks for private tables of the driver: CUDA's static runtime does, and
/// so do libraries that can do without.
fn private_table() {
    static TOLD: std::sync::Once = std::sync::Once::new();
    TOLD.call_once(|| {
        print_message(
            "the program asks for private tables of NVIDIA's driver (cuGetExportTable), which are not there. If it \
             has CUDA's static runtime in it, `nvabi emu -- PROGRAM` replaces that as long as the program is not \
             stripped; else link the shared one (nvcc -cudart shared, clang -lcudart)",
        );
    });
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
fn camel(prefix: &str, name: &CStr) -> String {
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
pub(crate) fn device_attribute(attribute: c_int, device: c_int) -> c_int {
    // A program that asks for no more than this has called the emulator, too: its report is begun.
    drop(state());
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
        33 => devices::physical(usize::try_from(device).unwrap_or(0)) as c_int, // its bus
        37 => 256,                        // bits of memory's bus
        38 => 1 << 20,                    // L2
        39 => 2048,                       // threads of a multiprocessor
        40 => 1,                          // copy engines
        75 => 9,                          // compute capability
        81 | 97 => 227 << 10, // shared memory of a multiprocessor, and at most of a block
        95 | 115 | 125 => 1,  // cooperative launches, pools of memory, events of two processes
        102 | 103 | 119 => 1, // memory is mapped, and exported as files, as pools are
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
    ///
    /// # Safety
    ///
    /// As CUDA documents `CUlaunchConfig`: `attributes` is null, or a "list of attributes; nullable if
    /// numAttrs == 0" with `count` entries.
    pub(crate) unsafe fn is_cooperative(&self) -> Result<bool> {
        if self.count != 0 && self.attributes.is_null() {
            return Err(INVALID_VALUE);
        }
        Ok((0..self.count as usize).any(|at| {
            // SAFETY: the list is not null, so that the caller promises `count` entries, and `at` is one.
            let attribute = unsafe { self.attributes.add(at).read_unaligned() };
            attribute.id == 2 && attribute.value[0] != 0
        }))
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
    /// The first byte, from there to the next row, and whether it must be on the device.
    fn start(&self, width: usize, height: usize) -> Result<(u64, usize, bool)> {
        let (base, device) = match self.kind {
            1 => (self.host, false),
            2 => (self.device, true),
            3 => {
                let at = [self.x, self.y];
                let (start, pitch) = plane_of_array(self.array, at, [width, height])?;
                return Ok((start, pitch, true));
            }
            4 => (self.device, false),
            _ => return Err(INVALID_VALUE),
        };
        let offset = self.y.checked_mul(self.pitch).and_then(|row| row.checked_add(self.x));
        let start = offset.and_then(|offset| base.checked_add(offset as u64));
        Ok((start.ok_or(INVALID_VALUE)?, self.pitch, device))
    }
}

/// Copies rows.
///
/// # Safety
///
/// As CUDA documents `cuMemcpy2D`: each of the `Height` rows of `WidthInBytes` bytes, `srcPitch` and
/// `dstPitch` apart, keeps the contract of [`transfer`].
unsafe fn copy_plane(request: In<Copy2d>) -> Result {
    let request = request.get()?;
    let Copy2d { from, to, width, height } = request;
    let (from, from_pitch, from_device) = from.start(width, height)?;
    let (to, to_pitch, to_device) = to.start(width, height)?;
    for row in 0..height {
        let (from, to) = (row_start(from, row, from_pitch)?, row_start(to, row, to_pitch)?);
        // SAFETY: by this function's contract each row is valid as `transfer` wants it; this is one of them.
        unsafe { transfer(to, to_device, from, from_device, width)? };
    }
    Ok(())
}

/// The address of a row.
pub(crate) fn row_start(start: u64, row: usize, pitch: usize) -> Result<u64> {
    let offset = row.checked_mul(pitch).ok_or(INVALID_VALUE)?;
    start.checked_add(offset as u64).ok_or(INVALID_VALUE)
}

/// Runs a function of the program, as its stream would.
///
/// # Safety
///
/// As CUDA documents `cuLaunchHostFunc`: the function, if there is one, may be called with the data, from
/// any thread, once.
pub(crate) unsafe fn call_host(function: Option<HostFunction>, data: Handle) -> Result {
    let function = function.ok_or(INVALID_VALUE)?;
    // The function comes behind its stream's work, and may tell the rest of the program that it came.
    state().wait_for_current();
    // SAFETY: the program gave the function for being called once with this data, from any thread: this
    // function's contract.
    unsafe { function(data) };
    Ok(())
}

fn load(out: Out<Handle>, data: Image) -> Result {
    out.put(state().load(&data.units()?)?)
}

pub(crate) fn alloc(out: Out<u64>, size: usize) -> Result {
    if size == 0 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    out.put(state().alloc(size as u64)?)
}

pub(crate) fn alloc_managed(out: Out<u64>, size: usize) -> Result {
    if size == 0 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    out.put(state().alloc_managed(size as u64)?)
}

pub(crate) fn alloc_host(out: Out<u64>, size: usize) -> Result {
    if size == 0 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    out.put(state().alloc_host(size as u64)?)
}

/// Of the stand-in for cuBLAS: it accesses memory of the device, and may write it.
#[unsafe(no_mangle)]
extern "C" fn nvabi_emu_written(address: u64, size: u64) {
    let mut state = state();
    state.unwatch(address);
    state.device.mark_written(address, size);
}

/// Of the recorder: reads memory of the device whatever error a kernel left.
///
/// # Safety
///
/// `size` bytes may be written at `to`.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvabi_emu_read(to: u64, from: u64, size: usize) -> Code {
    let state = state();
    if !state.device.contains(from, size as u64) {
        return INVALID_VALUE;
    }
    // SAFETY: what is read was found inside one allocation, and stays there while `state` is held; the caller
    // promises the other side. Neither is memory of Rust's, as in `transfer`.
    unsafe { copy(to, from, size) };
    SUCCESS
}

/// Makes memory of the host accessible to kernels.
///
/// # Safety
///
/// As CUDA documents `cuMemHostRegister`: `size` bytes at `host` are memory of the program, which it keeps
/// until it calls `cuMemHostUnregister`.
pub(crate) unsafe fn register(host: u64, size: usize) -> Result {
    if host == 0 || size == 0 {
        return Err(INVALID_VALUE);
    }
    let end = host.checked_add(size as u64).ok_or(INVALID_VALUE)?;
    let mut state = state();
    // Memory of the device is not the program's to keep, and freeing one of two allocations must not free
    // the other's.
    if [host, end - 1].iter().any(|address| state.device.allocation(*address).is_some()) {
        return Err(ALREADY_REGISTERED);
    }
    // SAFETY: the caller promises memory that is valid until `Device::free`, which is what
    // `cuMemHostUnregister` calls. It is memory of a C program: no Rust code has references to it.
    unsafe { state.device.register(host, size as u64) };
    Ok(())
}

/// Copies, where each side may have to be on the device.
///
/// # Safety
///
/// As CUDA documents `cuMemcpy` and `cudaMemcpy` ("memory areas may not overlap" is not asked for here): a
/// side that need not be on the device is, if it is not, memory of the program, of which `size` bytes may
/// be read at `from` or written at `to` until the call returns.
pub(crate) unsafe fn transfer(
    to: u64,
    to_device: bool,
    from: u64,
    from_device: bool,
    size: usize,
) -> Result {
    // Held to the end, so that no other thread frees memory of the device before it is copied.
    let mut state = state();
    state.check()?;
    if size == 0 {
        return Ok(());
    }
    state.refuse_freed("a copy", to, size as u64)?;
    state.refuse_freed("a copy", from, size as u64)?;
    if to_device {
        state.inside(to, size as u64)?;
    }
    if from_device {
        state.inside(from, size as u64)?;
    }
    if to == 0 || from == 0 {
        return Err(INVALID_VALUE);
    }
    let devices = state.devices_between(to, from);
    state.default_waits(&devices);
    // SAFETY: a side that must be on the device was found inside one allocation, and stays there while
    // `state` is held. Of the other side the caller promises it. Neither is memory of Rust's: the device's
    // is its own mapping, and launches, which access it, hold `state`, too.
    unsafe { copy(to, from, size) };
    state.touch("a copy", Some((from, size as u64)), Some((to, size as u64)));
    state.wait_for_default(&devices);
    // A copy inside of the device is not waited for, nor one that a stream does.
    if clocks::current().is_none() && !(state.is_of_device(to) && state.is_of_device(from)) {
        state.wait_for_current();
    }
    Ok(())
}

/// Fills memory of the device with a pattern of 1, 2 or 4 bytes.
pub(crate) fn set(to: u64, pattern: &[u8], count: usize) -> Result {
    let size = count.checked_mul(pattern.len()).ok_or(INVALID_VALUE)?;
    let mut state = state();
    state.refuse_freed("a fill", to, size as u64)?;
    state.inside(to, size as u64)?;
    state.touch("a fill", None, Some((to, size as u64)));
    let piece = pattern.repeat(count.min(1 << 16));
    for at in (0..size).step_by(piece.len().max(1)) {
        state.device.write(to + at as u64, &piece[..piece.len().min(size - at)])?;
    }
    Ok(())
}

/// Allocates, as a stream does: from a pool, or the current one.
pub(crate) fn alloc_on(stream: Handle, pool: Option<usize>, out: Out<u64>, size: usize) -> Result {
    if size == 0 || out.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut state = state();
    // The address is known at once, so that the memory is, too.
    state.captures(stream, || Work::Alloc)?;
    let of_stream = state.device_of(stream)?;
    let pool = pool.unwrap_or_else(|| state.pools.current(of_stream));
    let (device, open_to) = state.pools.reach(pool)?;
    let size = size as u64;
    let address = match state.pools.own_file(pool)? {
        Some(file) => state.alloc_in(pool, file, size)?,
        None => {
            let address = state.alloc_of(device, size)?;
            state.pools.count(pool, address, size, None);
            address
        }
    };
    state.device.open_to(address, open_to);
    out.put(address)
}

/// Frees, as a stream does; what a graph frees stays, as its launches need it again.
pub(crate) fn free_on(stream: Handle, address: u64) -> Result {
    let mut state = state();
    if state.captures(stream, || Work::Free)? {
        return Ok(());
    }
    on_stream(stream, || state.free(address))
}

/// Fills, as a stream does.
pub(crate) fn set_on(stream: Handle, to: u64, pattern: &[u8], count: usize) -> Result {
    set_rows_on(stream, (to, 0), pattern, count, 1)
}

/// Fills rows, as a stream does.
pub(crate) fn set_rows_on(
    stream: Handle,
    (to, pitch): (u64, usize),
    pattern: &[u8],
    width: usize,
    height: usize,
) -> Result {
    let work = || Work::Set { to, pitch, pattern: pattern.to_vec(), width, height };
    if state().captures(stream, work)? {
        return Ok(());
    }
    on_stream(stream, || {
        (0..height).try_for_each(|row| set(row_start(to, row, pitch)?, pattern, width))
    })
}

/// Records an event on a stream.
pub(crate) fn record_on(stream: Handle, event: Handle) -> Result {
    let mut state = state();
    state.known_stream(stream)?;
    state.event(event)?;
    state.takes_event(stream, event)?;
    if state.graphs.record(event, stream) {
        return Ok(());
    }
    on_stream(stream, || state.event_record(event))
}

/// Lets a stream wait for an event.
pub(crate) fn wait_on(stream: Handle, event: Handle) -> Result {
    let mut state = state();
    state.known_stream(stream)?;
    state.event(event)?;
    state.graphs.wait(stream, event);
    state.stream_waits(stream, event)
}

/// Calls a function of the program, as a stream does.
///
/// # Safety
///
/// That of [`call_host`], for as often as a graph is launched where the stream is captured.
pub(crate) unsafe fn call_host_on(
    stream: Handle,
    function: Option<HostFunction>,
    data: Handle,
) -> Result {
    let function = function.ok_or(INVALID_VALUE)?;
    if state().captures(stream, || Work::Host { function, data })? {
        return Ok(());
    }
    // SAFETY: this function's contract.
    on_stream(stream, || unsafe { call_host(Some(function), data) })
}

/// Copies, as a stream does.
///
/// # Safety
///
/// That of [`transfer`], until the stream, or each launch of the graph that it is captured to, has done it.
pub(crate) unsafe fn transfer_on(
    stream: Handle,
    (to, to_device): (u64, bool),
    (from, from_device): (u64, bool),
    size: usize,
) -> Result {
    let kind = c_int::from(to_device) + 2 * c_int::from(from_device);
    if state().captures(stream, || line(to, from, size, kind))? {
        return Ok(());
    }
    // SAFETY: this function's contract.
    on_stream(stream, || unsafe { transfer(to, to_device, from, from_device, size) })
}

/// Runs a kernel.
///
/// # Safety
///
/// As CUDA documents `cuLaunchKernel`: `params` and `extra` keep the contract of [`arguments`] for the
/// parameters of the kernel.
unsafe fn launch(
    function: Handle,
    request: Request,
    stream: Handle,
    params: *mut Handle,
    extra: *mut Handle,
) -> Result {
    let mut state = state();
    state.known_stream(stream)?;
    let device = state.device_of(stream)?;
    let function = state.kernel_on(function, device)?;
    state.takes_kernel(stream, function)?;
    // SAFETY: `params` and `extra` hold this function's contract, and the sizes are those of that kernel's
    // parameters.
    let args = unsafe { arguments(&state.params(function)?, params, extra)? };
    let work = || Work::Kernel { function, device, request: request.clone(), args: args.clone() };
    if state.captures(stream, work)? {
        return Ok(());
    }
    on_stream(stream, || state.launch(function, &request, &args))
}
