//! The names that stand before CUDA's: a program's launches come here first.
//!
//! A program that is linked with libcuda calls these at once. The runtime opens libcuda itself and asks
//! for its functions by name, so `dlsym` and `cuGetProcAddress` answer with these too.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver::{Handle, SUCCESS, Status};
use crate::recorder::{self, Shape};

/// Of `cuGetProcAddress`: functions whose default stream is the thread's.
const PER_THREAD: u64 = 2;

/// CUDA's library, or null where none is loaded and none can be.
pub(crate) fn library() -> *mut c_void {
    // SAFETY: the name is a string with a zero byte. The library's constructors run if the program has not
    // loaded it yet: they are those of CUDA's driver, or of what the user put in its place, as in the program.
    unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) }
}

/// The C library's own `dlsym`.
///
/// # Safety
///
/// As dlsym(3): `library` is null, a handle that `dlopen` gave and that is still open, or RTLD_DEFAULT or
/// RTLD_NEXT; `name` is a string that ends with a zero byte.
pub(crate) unsafe fn real(library: *mut c_void, name: *const c_char) -> *mut c_void {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = REAL.load(Ordering::Relaxed);
    if found.is_null() {
        for version in [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"] {
            // SAFETY: both are C strings by their type; RTLD_NEXT is always valid (dlvsym(3)).
            found = unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
            if !found.is_null() {
                break;
            }
        }
        REAL.store(found, Ordering::Relaxed);
    }
    if found.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: `found` is `dlsym` of the C library, by name and by a version under which glibc has it on
    // x86-64 or AArch64, so it has this type. What it asks for, the caller promises.
    unsafe { mem::transmute::<*mut c_void, Dlsym>(found)(library, name) }
}

unsafe extern "C" {
    fn dlvsym(library: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// What to answer with where a program asks for `name` and CUDA has `found`.
fn hook_for(name: &CStr, found: *mut c_void) -> *mut c_void {
    match hook(name) {
        Some((here, real)) if !found.is_null() => {
            if here != found {
                real.store(found, Ordering::Relaxed);
            }
            here
        }
        _ => found,
    }
}

/// # Safety
///
/// That of the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the program called dlsym(3) with these, whose contract is that of `real`.
    let found = unsafe { real(library, name) };
    if name.is_null() {
        return found;
    }
    // SAFETY: not null, so that by dlsym(3) it is a string, which stays during the call.
    hook_for(unsafe { CStr::from_ptr(name) }, found)
}

/// The real function behind a hook.
fn real_function(hook: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = hook.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `library` is null or a handle that `dlopen` gave and nobody closes; `name` is a C string.
    let found = unsafe { real(library(), name.as_ptr()) };
    hook.store(found, Ordering::Relaxed);
    found
}

/// What a program gets that calls CUDA where there is none.
const NOT_INITIALIZED: Status = 3;

/// Defines functions of CUDA's names. Each hands a closure that calls the real one to its body.
macro_rules! hooks {
    ($($symbol:ident $text:literal ($($argument:ident: $kind:ty),*) $body:expr;)*) => {
        /// The functions behind the hooks, once they are known.
        #[allow(non_upper_case_globals)]
        mod real_functions {
            use super::*;
            $(pub(super) static $symbol: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());)*
        }

        $(
            /// # Safety
            ///
            /// That of CUDA's function of this name; the program keeps it.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            unsafe extern "C" fn $symbol($($argument: $kind),*) -> Status {
                type Real = unsafe extern "C" fn($($kind),*) -> Status;
                let real = real_function(&real_functions::$symbol, $text);
                if real.is_null() {
                    return NOT_INITIALIZED;
                }
                // SAFETY: `real` is CUDA's function of this name, whose type in the Driver API is `Real`, and not
                // null. It gets the parameters of the program's own call, which keeps CUDA's contract. `call`
                // is called once, before this function returns, so that they are still what they were.
                let call = || unsafe { mem::transmute::<*mut c_void, Real>(real)($($argument),*) };
                let body: &dyn Fn(&dyn Fn() -> Status) -> Status = &$body;
                body(&call)
            }
        )*

        fn hook(name: &CStr) -> Option<(*mut c_void, &'static AtomicPtr<c_void>)> {
            $(if name == $text {
                return Some(($symbol as *mut c_void, &real_functions::$symbol));
            })*
            None
        }
    };
}

/// `CUlaunchConfig`.
#[repr(C)]
struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Handle,
    attributes: *const c_void,
    count: c_uint,
}

type Arguments = *mut *mut c_void;

hooks! {
    cuLaunchKernel c"cuLaunchKernel" (
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, arguments: Arguments, extra: Arguments
    ) |call| recorder::launch(function, Shape { grid: [gx, gy, gz], block: [bx, by, bz] }, stream, call);
    cuLaunchKernel_ptsz c"cuLaunchKernel_ptsz" (
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, arguments: Arguments, extra: Arguments
    ) |call| recorder::launch(function, Shape { grid: [gx, gy, gz], block: [bx, by, bz] }, per_thread(stream), call);
    cuLaunchCooperativeKernel c"cuLaunchCooperativeKernel" (
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, arguments: Arguments
    ) |call| recorder::launch(function, Shape { grid: [gx, gy, gz], block: [bx, by, bz] }, stream, call);
    cuLaunchCooperativeKernel_ptsz c"cuLaunchCooperativeKernel_ptsz" (
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint, stream: Handle, arguments: Arguments
    ) |call| recorder::launch(function, Shape { grid: [gx, gy, gz], block: [bx, by, bz] }, per_thread(stream), call);
    cuLaunchKernelEx c"cuLaunchKernelEx" (
        config: *const LaunchConfig, function: Handle, arguments: Arguments, extra: Arguments
    ) |call|
        // SAFETY: the program passes what CUDA's manual asks of this call, and the call has not been made yet.
        unsafe { launch_ex(config, function, false, call) };
    cuLaunchKernelEx_ptsz c"cuLaunchKernelEx_ptsz" (
        config: *const LaunchConfig, function: Handle, arguments: Arguments, extra: Arguments
    ) |call|
        // SAFETY: the program passes what CUDA's manual asks of this call, and the call has not been made yet.
        unsafe { launch_ex(config, function, true, call) };
    cuGraphLaunch c"cuGraphLaunch" (graph: Handle, stream: Handle)
        |call| recorder::graph(stream, call);
    cuGraphLaunch_ptsz c"cuGraphLaunch_ptsz" (graph: Handle, stream: Handle)
        |call| recorder::graph(per_thread(stream), call);
    cuLibraryGetKernel c"cuLibraryGetKernel" (kernel: *mut Handle, library: Handle, name: *const c_char)
        |call|
        // SAFETY: the program passes what CUDA's manual asks of this call, and the call has not been made yet.
        unsafe { library_kernel(kernel, call) };
    cuModuleUnload c"cuModuleUnload" (module: Handle) |call| recorder::unload(call);
    cuLibraryUnload c"cuLibraryUnload" (library: Handle) |call| recorder::unload(call);
    cuCtxDestroy_v2 c"cuCtxDestroy_v2" (context: Handle) |call| recorder::unload(call);
    cuDevicePrimaryCtxReset_v2 c"cuDevicePrimaryCtxReset_v2" (device: c_int) |call| recorder::unload(call);
    cuDevicePrimaryCtxRelease_v2 c"cuDevicePrimaryCtxRelease_v2" (device: c_int) |call| recorder::unload(call);
    cuGetProcAddress c"cuGetProcAddress" (
        name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64
    ) |call|
        // SAFETY: the program passes what CUDA's manual asks of this call, and the call has not been made yet.
        unsafe { answer(name, function, version, flags, call) };
    cuGetProcAddress_v2 c"cuGetProcAddress_v2" (
        name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, found: *mut c_uint
    ) |call|
        // SAFETY: the program passes what CUDA's manual asks of this call, and the call has not been made yet.
        unsafe { answer(name, function, version, flags, call) };
}

/// A kernel of a library is launched as a function is, but the driver asks for neither in the place of the
/// other.
///
/// # Safety
///
/// `kernel` is that of a call to cuLibraryGetKernel, which `call` makes.
unsafe fn library_kernel(kernel: *const Handle, call: &dyn Fn() -> Status) -> Status {
    let status = call();
    if status == SUCCESS && !kernel.is_null() {
        // SAFETY: the program passed it for "Returned kernel" of cuLibraryGetKernel. It is not null and the call
        // succeeded, so that CUDA wrote a handle there.
        recorder::library_kernel(unsafe { kernel.read() });
    }
    status
}

/// The default stream of a thread, by its own number.
fn per_thread(stream: Handle) -> Handle {
    match stream.is_null() {
        true => ptr::without_provenance_mut(2),
        false => stream,
    }
}

/// # Safety
///
/// `config` is that of a call to cuLaunchKernelEx, which `call` makes.
unsafe fn launch_ex(
    config: *const LaunchConfig,
    function: Handle,
    own_default: bool,
    call: &dyn Fn() -> Status,
) -> Status {
    if config.is_null() {
        return call();
    }
    // SAFETY: not null, and the program passed it for "Config to launch", a CUlaunchConfig, which
    // `LaunchConfig` has the fields of (CUDA's Driver API). It is copied, since CUDA reads it afterwards.
    let LaunchConfig { grid, block, stream, .. } = unsafe { config.read() };
    let stream = if own_default { per_thread(stream) } else { stream };
    recorder::launch(function, Shape { grid, block }, stream, call)
}

/// The runtime asks for everything here, by names without versions.
///
/// # Safety
///
/// `name` and `function` are those of a call to cuGetProcAddress, which `call` makes.
unsafe fn answer(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    call: &dyn Fn() -> Status,
) -> Status {
    let status = call();
    if status != SUCCESS || name.is_null() || function.is_null() {
        return status;
    }
    // SAFETY: not null, and the program passed it for "the base name of the driver API function", a C string,
    // which stays during the call.
    let name = unsafe { CStr::from_ptr(name) };
    let suffix = match name.to_bytes() {
        b"cuGetProcAddress" if version >= 12000 => "_v2",
        b"cuCtxDestroy" | b"cuDevicePrimaryCtxReset" | b"cuDevicePrimaryCtxRelease" => "_v2",
        _ if flags & PER_THREAD != 0 => "_ptsz",
        _ => "",
    };
    let full = CString::new([name.to_bytes(), suffix.as_bytes()].concat()).unwrap_or_default();
    let full = if hook(&full).is_some() { &full } else { name };
    // SAFETY: not null, and the program passed it for "Location to return the function pointer"; the call
    // succeeded, so that CUDA wrote a pointer there, which may be written over until this call returns.
    unsafe { function.write(hook_for(full, function.read())) };
    status
}
