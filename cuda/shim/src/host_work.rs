//! What the stand-in for cuBLAS does with memory of the device, which no call of this library sees. It may last long, and
//! beside kernels and copies; while memory moves, it may not be.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

struct Work {
    running: usize,
    is_moving: bool,
}

static WORK: Mutex<Work> = Mutex::new(Work { running: 0, is_moving: false });
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Work> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(is_so: impl Fn(&Work) -> bool) -> MutexGuard<'static, Work> {
    CHANGED.wait_while(lock(), |work| is_so(work)).unwrap_or_else(PoisonError::into_inner)
}

/// A call of cuBLAS begins; none begins another one.
#[unsafe(no_mangle)]
extern "C" fn nvabi_emu_work_begins() {
    wait_while(|work| work.is_moving).running += 1;
}

#[unsafe(no_mangle)]
extern "C" fn nvabi_emu_work_ends() {
    lock().running -= 1;
    CHANGED.notify_all();
}

/// Moves memory when no work runs. Whoever calls this does not hold the state, which work asks for.
pub(crate) fn without<T>(moved: impl FnOnce() -> T) -> T {
    wait_while(|work| work.is_moving).is_moving = true;
    drop(wait_while(|work| work.running > 0));
    let done = moved();
    lock().is_moving = false;
    CHANGED.notify_all();
    done
}
