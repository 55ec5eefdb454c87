//! Managed memory that the program accesses without waiting for the kernels that use it, where global memory is
//! watched. While some work is not waited for, no page of it is accessible to the program: the first access of each
//! page ends in a signal, is compared with what kernels did there, and goes on.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::state;

const PAGE: u64 = 4096;

/// First byte and end of each allocation that may be closed to the program.
static CLOSED: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

/// What the program does on such a signal by itself.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Opens or closes pages around memory that begins a page and has its pages to itself.
fn protect(start: u64, end: u64, protection: c_int) {
    let size = end.next_multiple_of(PAGE) - start;
    // SAFETY: the range is an allocation in pages of its own, or some of its pages (`Device::alloc_apart`), and is
    // private and anonymous memory: no other memory changes. Nothing in this library accesses it while it is closed:
    // whoever holds the state has opened it.
    unsafe { libc::mprotect(pointer(start), size as usize, protection) };
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Closes allocations to the program until [`open`].
pub(crate) fn close(allocations: &[(u64, u64)]) {
    let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
    closed.clear();
    for (start, end) in allocations {
        protect(*start, *end, libc::PROT_NONE);
        closed.push((*start, *end));
    }
}

/// Opens all that is closed.
pub(crate) fn open() {
    let mut closed = CLOSED.lock().unwrap_or_else(PoisonError::into_inner);
    for (start, end) in closed.drain(..) {
        protect(start, end, libc::PROT_READ | libc::PROT_WRITE);
    }
}

/// From now on accesses of what is closed are told.
pub(crate) fn listen() {
    BEFORE.get_or_init(|| {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structs are sigaction(2)'s, all of whose fields may be zero; `on_signal` has the type that
        // SA_SIGINFO asks for, and lives as long as the library, which is not unloaded.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(libc::SIGSEGV, &action, before.as_mut_ptr());
            before.assume_init()
        }
    });
}

/// The signal comes from an instruction of the program, or of a library in its behalf, that accesses memory: it is in
/// none of this library's functions, so that these may be called.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid siginfo_t, which has an address for this signal.
    let address = unsafe { (*info).si_addr() }.addr() as u64;
    let around = |(start, end): &&(u64, u64)| (*start..*end).contains(&address);
    // Who holds the lock is this library, which does not access such memory: it is another thread, or no such signal.
    let closed = CLOSED.try_lock().ok().and_then(|closed| closed.iter().find(around).copied());
    match closed {
        Some((start, end)) => {
            // SAFETY: the system passes a valid ucontext_t.
            let writes = unsafe { writes(context) };
            let (first, last) = match state::accessed_by_program(start, address, writes) {
                true => (start, end),
                false => (address / PAGE * PAGE, address + 1),
            };
            protect(first, last, libc::PROT_READ | libc::PROT_WRITE);
        }
        // SAFETY: the arguments are those of this signal.
        None => unsafe { pass_on(signal, info, context) },
    }
}

/// Whether the access is a write, where the machine says so.
///
/// # Safety
///
/// `context` is the ucontext_t of a signal for an access of memory.
unsafe fn writes(context: *mut c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        const WRITE: i64 = 2;
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: this function's contract.
        unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        false
    }
}

/// Does what the program would do on the signal.
///
/// # Safety
///
/// The arguments are those of a signal handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Full = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type Short = extern "C" fn(c_int);
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        // The instruction runs again, and then the signal ends the program.
        // SAFETY: `before` came from sigaction(2).
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::sigaction(signal, before, std::ptr::null_mut());
        },
        // SAFETY: with SA_SIGINFO the program's handler has this type, else the other.
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            std::mem::transmute::<usize, Full>(handler)(signal, info, context);
        },
        // SAFETY: as above.
        handler => unsafe { std::mem::transmute::<usize, Short>(handler)(signal) },
    }
}
