//! Watches the doorbells, which are rung without a system call, and lets the channels run.

use std::hint;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use super::Shared;
use super::watches::Watched;
use crate::machine::Doorbell;

/// A pause between two looks lasts this part of the time for which nothing has happened: a program waits for little
/// longer than it waited itself, and an idle one costs next to nothing. Who rings after a pause that is long is
/// seen at once, where that can be.
const PART: u32 = 50;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(10);
/// For no longer than this, or than a pause, the timers stand still and the rings are not looked at.
const TICK: Duration = Duration::from_millis(1);
/// From this pause on it sleeps until somebody rings: who waits for that waits no longer than for the next look.
const LONG: Duration = Duration::from_micros(50);
/// For no longer than this who was let go takes to ring.
const RINGING: Duration = Duration::from_micros(30);
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
            pause = (last.elapsed() / PART).clamp(SHORTEST, LONGEST);
            // Before each look at what waits for memory all are let go: that must be worth it.
            let long = if shared.has_work() { TICK } else { LONG };
            if pause < long {
                thread::sleep(pause);
            } else if watched.sleep(pause) {
                last = Instant::now();
                while !is_rung(&doorbells) && last.elapsed() < RINGING {
                    hint::spin_loop();
                }
            }
        }
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
