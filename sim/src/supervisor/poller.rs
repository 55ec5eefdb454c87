//! Watches the doorbells, which are rung without a system call, and lets the channels run.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use super::Shared;
use crate::machine::Doorbell;

/// A pause between two looks lasts this part of the time for which nothing has happened: a program waits for little
/// longer than it waited itself, and an idle one costs next to nothing.
const PART: u32 = 25;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(10);
/// For no longer than this, or than a pause, the timers stand still and the rings are not looked at.
const TICK: Duration = Duration::from_millis(1);
/// Pause when no doorbell is mapped.
const NAP: Duration = Duration::from_millis(20);

/// Until the machine is over. It sleeps between two looks and does not yield: where other programs work, one that yields
/// goes on after a slice of theirs, which is some milliseconds.
pub(super) fn watch(shared: &Shared) {
    // Else the shortest pause lasts for three times as long. Without it all works, later.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let mut last = Instant::now();
    let mut ticked = last;
    let mut pause = Duration::ZERO;
    while !shared.is_over() {
        let doorbells = shared.doorbells();
        // Work goes on when the region goes that it was begun by.
        if doorbells.is_empty() && !shared.has_work() {
            shared.wait_for_doorbell(NAP);
            continue;
        }
        let mut moved = false;
        shared.let_others();
        if doorbells.iter().any(Doorbell::is_rung) || shared.has_work() {
            let mut machine = shared.machine();
            shared.settle(&mut **machine);
            moved = machine.answer_doorbells(&doorbells);
            let (ran, has_work) = machine.run();
            moved |= ran;
            shared.set_work(has_work);
        }
        if pause > Duration::ZERO || ticked.elapsed() > TICK {
            shared.tick(&doorbells);
            ticked = Instant::now();
        }
        if moved {
            last = Instant::now();
            pause = Duration::ZERO;
        } else {
            pause = (last.elapsed() / PART).clamp(SHORTEST, LONGEST);
            thread::sleep(pause);
        }
    }
}
