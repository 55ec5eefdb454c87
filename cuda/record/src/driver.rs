//! CUDA's driver interface: what the recorder calls of it, and errors that name the call.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::mem;
use std::ptr;

use zerocopy::{FromBytes, IntoBytes};

use crate::hooks;

pub(crate) type Status = c_uint;
pub(crate) type Address = u64;
/// A context, module, function, stream or event.
///
/// Invariant of the crate: each was given by the driver or is a parameter of the program's own call to the
/// driver, or it is one of the numbers that CUDA defines (0, CU_STREAM_PER_THREAD); and it is not used after
/// the call that ends it: `recorder::unload` forgets those of a module or context before that goes, and
/// `Driver::drop_event` is the last use of an event.
pub(crate) type Handle = *mut c_void;

pub(crate) const SUCCESS: Status = 0;
const NOT_FOUND: Status = 500;
pub(crate) const NOT_READY: Status = 600;

const NON_BLOCKING: c_uint = 1;
const DISABLE_TIMING: c_uint = 2;
/// Of captures of streams into graphs: what the thread calls has nothing to do with them.
pub(crate) const RELAXED: c_uint = 2;
const COMPUTE_MAJOR: c_int = 75;
const COMPUTE_MINOR: c_int = 76;

/// Statuses of kernels that went wrong: every call that comes after gets them. Illegal addresses, time that
/// ran out, assertions, stacks, instructions, alignment, spaces, program counters, and all else.
const FAULTS: [Status; 9] = [700, 702, 710, 714, 715, 716, 717, 718, 719];

/// A call of the driver that failed, or that it does not have.
#[derive(Debug)]
pub(crate) struct Failure {
    call: &'static str,
    status: Option<Status>,
    name: String,
}

impl Failure {
    /// Whether it is a kernel's, and that of every call after it.
    pub(crate) fn is_fault(&self) -> bool {
        self.status.is_some_and(|status| FAULTS.contains(&status))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            None => write!(f, "the driver has no {}", self.call),
            // What the driver was asked for met it, but did not do it.
            Some(status) if FAULTS.contains(&status) => {
                write!(f, "a kernel failed: {} ({status})", self.name)
            }
            Some(status) => write!(f, "{} failed: {} ({status})", self.call, self.name),
        }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Declares calls: each is looked up once, and is None where the driver does not have it.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// Calls of the driver.
        pub(crate) struct Driver {
            $($name: Option<unsafe extern "C" fn($($argument),*) -> Status>,)*
        }

        impl Driver {
            /// Looks up what the loaded driver has.
            pub(crate) fn load() -> Self {
                let library = hooks::library();
                Self {
                    // SAFETY: each symbol's type is that of the function of this name in CUDA's Driver API,
                    // from 11.0 on: names with `_v2` were made so that the type of a name never changes. Null is
                    // None (`Option` of a function pointer). `real` gets a string with a zero byte at its end.
                    $($name: unsafe {
                        mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($argument),*) -> Status>>(
                            hooks::real(library, concat!($symbol, "\0").as_ptr().cast()),
                        )
                    },)*
                }
            }
        }
    };
}

calls! {
    get_error_name = "cuGetErrorName" (Status, *mut *const c_char);
    capture_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
    current = "cuCtxGetCurrent" (*mut Handle);
    push = "cuCtxPushCurrent_v2" (Handle);
    pop = "cuCtxPopCurrent_v2" (*mut Handle);
    device = "cuCtxGetDevice" (*mut c_int);
    attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    function_module = "cuFuncGetModule" (*mut Handle, Handle);
    function_name = "cuFuncGetName" (*mut *const c_char, Handle);
    kernel_function = "cuKernelGetFunction" (*mut Handle, Handle);
    global = "cuModuleGetGlobal_v2" (*mut Address, *mut usize, Handle, *const c_char);
    alloc = "cuMemAlloc_v2" (*mut Address, usize);
    free = "cuMemFree_v2" (Address);
    set = "cuMemsetD8Async" (Address, u8, usize, Handle);
    to_device = "cuMemcpyHtoDAsync_v2" (Address, *const c_void, usize, Handle);
    to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, Address, usize, Handle);
    stream_create = "cuStreamCreate" (*mut Handle, c_uint);
    stream_wait = "cuStreamWaitEvent" (Handle, Handle, c_uint);
    stream_synchronize = "cuStreamSynchronize" (Handle);
    stream_capturing = "cuStreamIsCapturing" (Handle, *mut c_uint);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_record = "cuEventRecord" (Handle, Handle);
    event_query = "cuEventQuery" (Handle);
    event_synchronize = "cuEventSynchronize" (Handle);
    event_destroy = "cuEventDestroy_v2" (Handle);
    /// Of the emulator alone: its memory can be read after a fault.
    read_after_fault = "nvabi_emu_read" (*mut c_void, Address, usize);
}

/// How memory of the device is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Read {
    /// By a stream, which is waited for.
    Stream(Handle),
    /// At once, although a kernel went wrong.
    AfterFault,
}

/// Calls the driver and makes an error of what it says.
macro_rules! call {
    ($driver:expr, $name:ident, $symbol:literal $(, $argument:expr)*) => {
        match $driver.$name {
            None => Err(Failure { call: $symbol, status: None, name: String::new() }),
            // SAFETY: the function has this type (`Driver::load`). Handles keep their type's invariant,
            // and addresses of the device are checked by the driver. Pointers to results are made of `&mut` in the
            // call itself; names are of a `CStr`; the two copies are methods that own the memory they pass, or
            // are unsafe to call.
            Some(function) => $driver.check($symbol, unsafe { function($($argument),*) }),
        }
    };
}

impl Driver {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut name = ptr::null();
        let named = self.get_error_name.is_some_and(|function| {
            // SAFETY: it writes a pointer to `name`, which is a variable of that type.
            unsafe { function(status, &mut name) == SUCCESS }
        });
        let name = match named && !name.is_null() {
            // SAFETY: "address of a NULL-terminated string" in CUDA's documentation of cuGetErrorName, a
            // constant of the driver, which is loaded until the process ends; copied at once.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => "unknown error".to_owned(),
        };
        Err(Failure { call, status: Some(status), name })
    }

    /// Says how calls of this thread get on with captures that are under way, and what was said before. A
    /// call that allocates would end the program's capture otherwise.
    pub(crate) fn exchange_mode(&self, mut mode: c_uint) -> c_uint {
        // Drivers before CUDA 10.1 have no such modes.
        let _ = call!(self, capture_mode, "cuThreadExchangeStreamCaptureMode", &mut mode);
        mode
    }

    pub(crate) fn current(&self) -> Result<Handle> {
        let mut context = ptr::null_mut();
        call!(self, current, "cuCtxGetCurrent", &mut context)?;
        Ok(context)
    }

    pub(crate) fn push(&self, context: Handle) -> Result<()> {
        call!(self, push, "cuCtxPushCurrent", context)
    }

    pub(crate) fn pop(&self) -> Result<()> {
        let mut context = ptr::null_mut();
        call!(self, pop, "cuCtxPopCurrent", &mut context)
    }

    /// 10 × major + minor of the current device.
    pub(crate) fn arch(&self) -> Result<u32> {
        let (mut device, mut major, mut minor) = (0, 0, 0);
        call!(self, device, "cuCtxGetDevice", &mut device)?;
        call!(self, attribute, "cuDeviceGetAttribute", &mut major, COMPUTE_MAJOR, device)?;
        call!(self, attribute, "cuDeviceGetAttribute", &mut minor, COMPUTE_MINOR, device)?;
        Ok(u32::try_from(major * 10 + minor).unwrap_or(0))
    }

    /// The module of a function.
    pub(crate) fn module(&self, function: Handle) -> Result<Handle> {
        let mut module = ptr::null_mut();
        call!(self, function_module, "cuFuncGetModule", &mut module, function)?;
        Ok(module)
    }

    /// What a kernel of a library is in the current context.
    pub(crate) fn function(&self, kernel: Handle) -> Result<Handle> {
        let mut function = ptr::null_mut();
        call!(self, kernel_function, "cuKernelGetFunction", &mut function, kernel)?;
        Ok(function)
    }

    pub(crate) fn name(&self, function: Handle) -> Result<String> {
        let mut name = ptr::null();
        call!(self, function_name, "cuFuncGetName", &mut name, function)?;
        // SAFETY: the call succeeded, so `name` is "a null-terminated string" in CUDA's documentation of
        // cuFuncGetName. It belongs to the module, which the program is launching a kernel of, so that it
        // is loaded; copied at once.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Where a variable of a module is, and its size; None where it has none of that name.
    pub(crate) fn global(&self, module: Handle, name: &CStr) -> Result<Option<(Address, usize)>> {
        let (mut address, mut size) = (0, 0);
        let found = call!(
            self,
            global,
            "cuModuleGetGlobal",
            &mut address,
            &mut size,
            module,
            name.as_ptr()
        );
        match found {
            Ok(()) => Ok(Some((address, size))),
            Err(Failure { status: Some(NOT_FOUND), .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn alloc(&self, size: usize) -> Result<Address> {
        let mut address = 0;
        call!(self, alloc, "cuMemAlloc", &mut address, size)?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: Address) -> Result<()> {
        call!(self, free, "cuMemFree", address)
    }

    pub(crate) fn clear(&self, address: Address, size: usize, stream: Handle) -> Result<()> {
        call!(self, set, "cuMemsetD8Async", address, 0, size, stream)
    }

    /// Copies to the device when the stream comes there.
    ///
    /// # Safety
    ///
    /// Until then `from` must stay where it is, and unchanged: the copy may read it at any time.
    pub(crate) unsafe fn to_device(&self, to: Address, from: &[u8], stream: Handle) -> Result<()> {
        call!(self, to_device, "cuMemcpyHtoDAsync", to, from.as_ptr().cast(), from.len(), stream)
    }

    /// Whether memory can be read after a fault.
    pub(crate) fn reads_after_fault(&self) -> bool {
        self.read_after_fault.is_some()
    }

    /// Fills buffers from the device, and waits until they are full.
    pub(crate) fn read<T: FromBytes + IntoBytes>(
        &self,
        mut buffers: Vec<(Address, Vec<T>)>,
        way: Read,
    ) -> Result<Vec<Vec<T>>> {
        let mut outcome = Ok(());
        for (from, to) in &mut buffers {
            let to = to.as_mut_slice().as_mut_bytes();
            if outcome.is_ok() && !to.is_empty() {
                let (start, size) = (to.as_mut_ptr().cast(), to.len());
                outcome = match way {
                    Read::Stream(stream) => {
                        call!(self, to_host, "cuMemcpyDtoHAsync", start, *from, size, stream)
                    }
                    Read::AfterFault => {
                        call!(self, read_after_fault, "nvabi_emu_read", start, *from, size)
                    }
                };
            }
        }
        // A copy may write until the stream has passed it: where nobody knows, the buffers stay allocated.
        if let Read::Stream(stream) = way {
            if let Err(failure) = self.synchronize(stream) {
                mem::forget(buffers);
                return outcome.and(Err(failure));
            }
        }
        outcome.map(|()| buffers.into_iter().map(|(_, buffer)| buffer).collect())
    }

    /// A stream that waits for no other.
    pub(crate) fn stream(&self) -> Result<Handle> {
        let mut stream = ptr::null_mut();
        call!(self, stream_create, "cuStreamCreate", &mut stream, NON_BLOCKING)?;
        Ok(stream)
    }

    pub(crate) fn wait(&self, stream: Handle, event: Handle) -> Result<()> {
        call!(self, stream_wait, "cuStreamWaitEvent", stream, event, 0)
    }

    pub(crate) fn synchronize(&self, stream: Handle) -> Result<()> {
        call!(self, stream_synchronize, "cuStreamSynchronize", stream)
    }

    /// Whether what is launched goes into a graph.
    pub(crate) fn capturing(&self, stream: Handle) -> bool {
        let mut state = 0;
        call!(self, stream_capturing, "cuStreamIsCapturing", stream, &mut state).is_ok()
            && state != 0
    }

    pub(crate) fn event(&self) -> Result<Handle> {
        let mut event = ptr::null_mut();
        call!(self, event_create, "cuEventCreate", &mut event, DISABLE_TIMING)?;
        Ok(event)
    }

    pub(crate) fn record(&self, event: Handle, stream: Handle) -> Result<()> {
        call!(self, event_record, "cuEventRecord", event, stream)
    }

    /// Whether all before the event is done.
    pub(crate) fn is_done(&self, event: Handle) -> Result<bool> {
        match call!(self, event_query, "cuEventQuery", event) {
            Ok(()) => Ok(true),
            Err(Failure { status: Some(NOT_READY), .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn finish(&self, event: Handle) -> Result<()> {
        call!(self, event_synchronize, "cuEventSynchronize", event)
    }

    pub(crate) fn drop_event(&self, event: Handle) {
        // Nothing depends on it.
        let _ = call!(self, event_destroy, "cuEventDestroy", event);
    }
}
