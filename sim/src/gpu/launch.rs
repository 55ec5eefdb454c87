//! Launches of a channel: one kernel after the other, each with what it releases and what depends on it.

use std::collections::{BTreeMap, VecDeque};

use super::engine::{Bus, Fault, Outcome, Step};
use super::host::Reduction;
use super::kernel::{self, Running};
use super::qmd::{Action, Qmd, Release, ReleaseSize};
use super::texture::Pools;

/// Descriptions that may wait behind each other.
const MOST_WAITING: usize = 1 << 10;

/// What a launch takes from the object of a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object {
    /// Its compute class.
    pub(super) class: u32,
    pub(super) pools: Pools,
}

/// What is running, what comes next, and what waits for others.
#[derive(Debug, Default)]
pub(super) struct Launches {
    running: Option<(Qmd, Running)>,
    next: VecDeque<(Action, u64)>,
    /// By their addresses.
    held: BTreeMap<u64, Qmd>,
    has_gone_on: bool,
}

impl Launches {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some() || !self.next.is_empty()
    }

    /// Whether one has ended since this was asked for last.
    pub(super) fn has_gone_on(&mut self) -> bool {
        std::mem::take(&mut self.has_gone_on)
    }

    /// Forgets them; what runs is not waited for.
    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// Does something with a description.
    pub(super) fn start(
        &mut self,
        bus: &mut Bus<'_>,
        object: &Object,
        action: Action,
        at: u64,
    ) -> Outcome {
        self.next.push_back((action, at));
        self.go_on(bus, object)
    }

    /// Takes a step; an error ends them all.
    pub(super) fn go_on(&mut self, bus: &mut Bus<'_>, object: &Object) -> Outcome {
        let step = self.step(bus, object);
        if step.is_err() {
            self.stop();
        }
        step
    }

    fn step(&mut self, bus: &mut Bus<'_>, object: &Object) -> Outcome {
        if let Some((qmd, mut running)) = self.running.take() {
            let Some(ended) = running.ended() else {
                self.running = Some((qmd, running));
                return Ok(Step::Again);
            };
            self.has_gone_on = true;
            let ended = ended?;
            bus.notes.extend(ended.notes);
            // What the kernel asked for came before its end.
            self.next.extend(ended.messages.into_iter().filter_map(Action::of_message));
            self.finish(bus, &qmd)?;
        }
        let Some((action, at)) = self.next.pop_front() else { return Ok(Step::Done) };
        if let Some(qmd) = self.ready(bus, object.class, action, at)? {
            if !qmd.has_kernel {
                self.finish(bus, &qmd)?;
            } else if let Some(running) = kernel::start(bus, object, at, &qmd)? {
                self.running = Some((qmd, running));
            } else {
                // Again, as it is now.
                self.held.insert(at, qmd);
                self.next.push_front((Action::Schedule, at));
            }
        }
        Ok(if self.is_running() { Step::Again } else { Step::Done })
    }

    /// The description, where it waits for nothing more. Else it is held.
    fn ready(
        &mut self,
        bus: &Bus<'_>,
        class: u32,
        action: Action,
        at: u64,
    ) -> Outcome<Option<Qmd>> {
        let is_read_anew = matches!(action, Action::Load | Action::Launch | Action::Hold);
        let known = self.held.remove(&at).filter(|_| !is_read_anew);
        let is_known = known.is_some();
        let mut qmd = match known {
            Some(qmd) => qmd,
            None => Qmd::read(bus, class, at)?,
        };
        match action {
            Action::Load => {}
            Action::Hold => qmd.needs_schedule = true,
            Action::Launch | Action::Schedule => qmd.needs_schedule = false,
            Action::Decrement => qmd.waits_for = qmd.waits_for.saturating_sub(1),
            Action::Increment => qmd.waits_for = qmd.waits_for.saturating_add(1),
        }
        // One that has not come in the stream is looked at when somebody schedules it.
        let is_held = qmd.needs_schedule && (is_known || is_read_anew);
        if qmd.waits_for == 0 && !is_held {
            return Ok(Some(qmd));
        }
        self.held.insert(at, qmd);
        self.check()?;
        Ok(None)
    }

    /// What follows when a launch has ended.
    fn finish(&mut self, bus: &mut Bus<'_>, qmd: &Qmd) -> Outcome<()> {
        for each in &qmd.releases {
            release(bus, each)?;
        }
        self.next.extend(&qmd.dependents);
        self.check()
    }

    fn check(&self) -> Outcome<()> {
        if self.next.len().max(self.held.len()) > MOST_WAITING {
            let text = format!("more than {MOST_WAITING} launches that depend on each other");
            return Err(Fault::Unsupported(text));
        }
        Ok(())
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
