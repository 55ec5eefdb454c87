//! Launches of a channel: one kernel after the other, each with what it releases and what depends on it.

use std::collections::VecDeque;

use super::engine::{Bus, Fault, Outcome, Step};
use super::host::Reduction;
use super::kernel::{self, Running};
use super::qmd::{Qmd, Release, ReleaseSize};

/// Descriptions that may wait behind each other: a channel has fewer entries.
const MOST_WAITING: usize = 1 << 16;

/// What is running, and what comes next.
#[derive(Debug, Default)]
pub(super) struct Launches {
    running: Option<(Qmd, Running)>,
    waiting: VecDeque<u64>,
}

impl Launches {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    /// Forgets them; what runs is told to end.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Launches a description of a compute class.
    pub(super) fn start(&mut self, bus: &mut Bus<'_>, class: u32, at: u64) -> Outcome {
        self.waiting.push_back(at);
        self.go_on(bus, class)
    }

    /// Takes a step; an error ends them all.
    pub(super) fn go_on(&mut self, bus: &mut Bus<'_>, class: u32) -> Outcome {
        let step = self.step(bus, class);
        if step.is_err() {
            self.stop();
        }
        step
    }

    fn step(&mut self, bus: &mut Bus<'_>, class: u32) -> Outcome {
        if let Some((qmd, mut running)) = self.running.take() {
            let Some(ended) = running.ended() else {
                self.running = Some((qmd, running));
                return Ok(Step::Again);
            };
            bus.notes.extend(ended?);
            for each in &qmd.releases {
                release(bus, each)?;
            }
            self.waiting.extend(&qmd.dependents);
            if self.waiting.len() > MOST_WAITING {
                let text = format!("more than {MOST_WAITING} launches that depend on each other");
                return Err(Fault::Unsupported(text));
            }
        }
        let Some(at) = self.waiting.pop_front() else { return Ok(Step::Done) };
        let qmd = Qmd::read(bus, class, at)?;
        let running = kernel::start(bus, class, at, &qmd)?;
        self.running = Some((qmd, running));
        Ok(Step::Again)
    }
}

/// Writes what a launch releases.
fn release(bus: &mut Bus<'_>, release: &Release) -> Outcome<()> {
    let at = release.address;
    let is_wide = release.is_wide || release.size == ReleaseSize::TwoWords;
    let mut payload = release.payload;
    if let Some((operation, is_signed)) = release.reduction {
        let reduction = Reduction::of_compute(operation, is_wide, is_signed);
        payload = reduction.of_values(bus.payload(at, is_wide)?, payload)?;
    }
    match release.size {
        ReleaseSize::FourWords => bus.release_with_time(at, payload),
        _ => bus.release(at, payload, is_wide),
    }
}
