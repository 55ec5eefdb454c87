//! Watches the doorbells, which are rung without a system call, and lets the channels run.

use std::hint;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity, set_current_timer_slack};

use super::Shared;
use super::watches::Watched;
use crate::machine::Doorbell;

/// A pause between two looks lasts this part of the time for which nothing has happened: a program waits for little
/// longer than it waited itself, and an idle one costs next to nothing.
const PART: u32 = 50;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(10);
/// For so long after something happened, no pause is long.
const LIVELY: Duration = Duration::from_millis(10);
/// For no longer than this, or than a pause, the timers stand still and the rings are not looked at.
const TICK: Duration = Duration::from_millis(1);
/// From this pause on it sleeps until somebody rings, where that can be: to be woken and to let who rings go on takes
/// longer than to wait for the next look.
const LONG: Duration = Duration::from_micros(50);
/// For no longer than this who was let go takes to ring, on a processor of its own.
const RINGING: Duration = Duration::from_micros(50);
/// Pause when no doorbell is mapped.
const NAP: Duration = Duration::from_millis(20);

/// Until the machine is over. It sleeps between two looks and does not yield: where other programs work, one that yields
/// goes on after a slice of theirs, which is some milliseconds.
pub(super) fn watch(shared: &Shared) {
    be_prompt();
    let mut last = Instant::now();
    let mut ticked = last;
    let mut pause = Duration::ZERO;
    let mut watched = Watched::default();
    let mut doorbells = shared.doorbells();
    while !shared.is_over() {
        let before = std::mem::replace(&mut doorbells, shared.doorbells());
        if !Arc::ptr_eq(&before, &doorbells) {
            // Whoever came with a new one begins soon.
            last = Instant::now();
        }
        watched.take(&shared.watches);
        // Work goes on when the region goes that it was begun by.
        if doorbells.is_empty() && !shared.has_work() {
            watched.let_go();
            shared.wait_for_doorbell(NAP);
            continue;
        }
        let mut moved = false;
        if shared.is_awaited() {
            watched.let_go();
            shared.let_others();
        }
        if is_rung(&doorbells) || shared.has_work() {
            watched.let_go();
            let mut machine = shared.machine();
            shared.settle(&mut **machine);
            moved = machine.answer_doorbells(&doorbells);
            let (ran, has_work) = machine.run();
            moved |= ran;
            shared.set_work(has_work);
        }
        if pause > Duration::ZERO || ticked.elapsed() > TICK {
            if !shared.tick_at_once(&doorbells) {
                watched.let_go();
                shared.tick(&doorbells);
            }
            ticked = Instant::now();
        }
        if moved {
            last = Instant::now();
            pause = Duration::ZERO;
        } else {
            pause = pause_after(last.elapsed());
            // Before each look at what waits for memory all are let go: that must be worth it.
            let long = if shared.has_work() { TICK } else { LONG };
            if pause <= long {
                thread::sleep(pause);
            } else if watched.sleep(pause) {
                last = Instant::now();
                await_ring(&doorbells);
            }
        }
    }
}

fn pause_after(idle: Duration) -> Duration {
    let longest = if idle < LIVELY { LONG } else { LONGEST };
    (idle / PART).clamp(SHORTEST, longest)
}

/// Of who was let go just now. The kernel may wake it on this thread's processor, where it rings after this thread, and
/// this thread goes on after a slice of it, which is milliseconds: so this one leaves, or sleeps where there is no other.
fn await_ring(doorbells: &[Doorbell]) {
    // Who has not run does not wait long to be let in again.
    let is_alone = sched_getaffinity(None).is_ok_and(|all| all.count() == 1);
    if is_alone {
        thread::sleep(LONG);
    } else if !is_rung_soon(doorbells) {
        leave_processor();
        is_rung_soon(doorbells);
    }
}

fn is_rung_soon(doorbells: &[Doorbell]) -> bool {
    let began = Instant::now();
    while began.elapsed() < RINGING {
        if is_rung(doorbells) {
            return true;
        }
        hint::spin_loop();
    }
    false
}

/// Goes on where this thread may run besides, if that is anywhere.
fn leave_processor() {
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(sched_getcpu());
    if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
        // It stays where it is, and goes later where it likes.
        let _ = sched_setaffinity(None, &all);
    }
}

/// Has this thread woken when it is time. Without it all works, later.
fn be_prompt() {
    /// Nanoseconds of a processor at once: the least.
    const SLICE: u64 = 100_000;
    // Else the shortest pause lasts for three times as long.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    // From Linux 6.12 on who wants little at once is let in where others work, and does not wait for slices of theirs.
    // SAFETY: the kernel writes one of its struct, of which zeros are one, reads it again, and takes its size for what
    // there is of it. What changes is when this thread runs.
    unsafe {
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        let size = size_of::<libc::sched_attr>();
        if libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) == 0 {
            attributes.sched_runtime = SLICE;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
        }
    }
}

fn is_rung(doorbells: &[Doorbell]) -> bool {
    doorbells.iter().any(Doorbell::is_rung)
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn a_lively_time_has_no_long_pause() {
        let after = |milliseconds| pause_after(Duration::from_millis(milliseconds));
        assert_eq!(after(0), SHORTEST);
        assert_eq!(after(2), Duration::from_micros(40));
        assert_eq!(after(9), LONG);
        assert_eq!(after(10), Duration::from_micros(200));
        assert_eq!(after(60_000), LONGEST);
    }

    #[test]
    fn it_leaves_its_processor_and_may_run_where_it_might() {
        let all = sched_getaffinity(None).unwrap();
        if all.count() > 1 {
            let moved = (0..10).filter(|_| {
                let here = sched_getcpu();
                leave_processor();
                sched_getcpu() != here
            });
            // Others may move it too.
            assert!(moved.count() > 5);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), all);
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).unwrap();
        leave_processor();
        assert_eq!(sched_getaffinity(None).unwrap(), here);
    }
}
