//! Watches the doorbells, which no system call tells of, and lets the channels run.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Shared;
use crate::tegra::sim::kernel::{File, Kernel, is_rung, take_token};
use crate::tegra::sim::memory::{Memory, Node};

/// For so long after something happened the doorbells are looked at without pause.
const ALERT: Duration = Duration::from_micros(200);
/// Longest pause between two looks.
const REST: Duration = Duration::from_micros(500);
/// For no longer than this the timers stand still and the rings are not looked at.
const TICK: Duration = Duration::from_millis(1);
/// Pause when no doorbell is mapped.
const NAP: Duration = Duration::from_millis(20);

/// Until the run is over.
pub(super) fn watch(shared: &Shared) {
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
        if doorbells.iter().any(|doorbell| doorbell.is_rung()) || shared.has_work() {
            let mut kernel = shared.kernel();
            shared.releases.settle(&mut kernel);
            for doorbell in doorbells.iter() {
                if let Some(token) = doorbell.memory().and_then(take_token) {
                    kernel.ring(doorbell.process, token);
                    moved = true;
                }
            }
            if moved {
                kernel.ring_overwritten();
            }
            let (ran, has_work) = kernel.run();
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
        } else if last.elapsed() > ALERT {
            pause = (pause * 2).clamp(Duration::from_micros(20), REST);
            thread::sleep(pause);
        } else {
            thread::yield_now();
        }
    }
}

/// The mapped region of a ctrl file.
#[derive(Debug)]
pub(super) struct Doorbell {
    pub(super) region: Arc<Node>,
    pub(super) process: u32,
}

impl Doorbell {
    /// All that are mapped.
    pub(super) fn all(kernel: &Kernel) -> Vec<Self> {
        kernel
            .files()
            .filter(|(_, open)| matches!(open.file, File::Ctrl(_)))
            .filter_map(|(_, open)| {
                Some(Self { region: open.node.clone(), process: open.mapped_by? })
            })
            .collect()
    }

    pub(super) fn memory(&self) -> Option<&Memory> {
        match &*self.region {
            Node::Memory(memory) => Some(memory),
            Node::Signal(_) => None,
        }
    }

    fn is_rung(&self) -> bool {
        self.memory().is_some_and(is_rung)
    }
}
