//! Handles, and what is remembered with them; the status that calls return.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// `cublasStatus_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Status(pub(crate) c_int);

pub(crate) const SUCCESS: Status = Status(0);
pub(crate) const NOT_INITIALIZED: Status = Status(1);
pub(crate) const INVALID_VALUE: Status = Status(7);
pub(crate) const EXECUTION_FAILED: Status = Status(13);
pub(crate) const NOT_SUPPORTED: Status = Status(15);

pub(crate) type Result<T = ()> = std::result::Result<T, Status>;

/// What a program sets, and asks for again.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) stream: usize,
    pub(crate) pointer_mode: c_int,
    pub(crate) atomics_mode: c_int,
    pub(crate) math_mode: c_int,
}

#[derive(Default)]
struct Contexts {
    made: usize,
    alive: HashMap<usize, Context>,
}

static CONTEXTS: LazyLock<Mutex<Contexts>> = LazyLock::new(Mutex::default);

fn contexts() -> MutexGuard<'static, Contexts> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle that looks like a pointer.
pub(crate) fn create() -> *mut c_void {
    let mut contexts = contexts();
    contexts.made += 1;
    let handle = contexts.made * 16;
    contexts.alive.insert(handle, Context::default());
    std::ptr::without_provenance_mut(handle)
}

pub(crate) fn destroy(handle: *mut c_void) -> Result {
    contexts().alive.remove(&handle.addr()).map(|_| ()).ok_or(NOT_INITIALIZED)
}

/// Does something with what a handle remembers.
pub(crate) fn with<T>(handle: *mut c_void, f: impl FnOnce(&mut Context) -> T) -> Result<T> {
    contexts().alive.get_mut(&handle.addr()).map(f).ok_or(NOT_INITIALIZED)
}

/// Says something to whoever runs the program.
pub(crate) fn print_message(text: &str) {
    eprintln!("nvabi-emu: {text}");
}
