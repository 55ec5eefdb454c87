//! Lanes of a warp that wait for each other at an instruction, having come there by different ways.
//!
//! Where lanes meet again is known from the code, but a return half-way leaves no place where all that
//! are left must come by. So lanes that an instruction misses are parted from those that stand there
//! and run on their own, as a path with calls of its own, until they come there, too, or end.

use super::super::block::State;
use super::super::shared::Site;
use super::super::warp::Stop;
use super::super::{Mistake, mistake};
use super::warp::{Frame, Warp};
use crate::program::{Function, Op, Program};
use crate::report::{FindingKind, Severity};

/// Lanes with calls of their own.
pub(super) struct Path {
    frames: Vec<Frame>,
    /// Waits at the last instruction, to run it again.
    waits: bool,
    /// The lanes that it waits for.
    awaited: u32,
    /// Those of them that have code ahead that comes after the instruction, too: they must not end.
    needed: u32,
}

impl Path {
    /// Lanes that can go on.
    fn running(frames: Vec<Frame>) -> Self {
        Self { frames, waits: false, awaited: 0, needed: 0 }
    }

    /// Where the registers are of the innermost call, and the lanes that are first to go on.
    pub(super) fn top(&self) -> (usize, u32) {
        self.frames.last().map_or((0, 0), |frame| (frame.registers, top_mask(frame)))
    }
}

/// The last instruction that lanes with these calls ran.
pub(super) fn site_of(frames: &[Frame]) -> Site {
    let Some(frame) = frames.last() else { return Site::default() };
    Site { function: frame.function as u32, pc: top_pc(frame).saturating_sub(1) }
}

/// Where the calls are that led there, from the innermost.
pub(super) fn callers_of(frames: &[Frame]) -> impl Iterator<Item = Site> {
    (1..frames.len()).rev().map(|depth| site_of(&frames[..depth]))
}

fn top_pc(frame: &Frame) -> u32 {
    frame.stack.last().map_or(0, |split| split.pc)
}

fn top_mask(frame: &Frame) -> u32 {
    frame.stack.last().map_or(0, |split| split.mask)
}

/// Whether two stand at the same instruction, called from the same places.
fn same_place(a: &[Frame], b: &[Frame]) -> bool {
    let place = |frame: &Frame| (frame.function, top_pc(frame));
    a.iter().map(place).eq(b.iter().map(place))
}

/// All lanes with these calls.
fn all_lanes(frames: &[Frame]) -> u32 {
    frames.iter().flat_map(|frame| &frame.stack).fold(0, |all, split| all | split.mask)
}

/// Takes lanes out, with calls of their own.
fn part(frames: &mut [Frame], mask: u32) -> Vec<Frame> {
    let mut parted = frames.to_vec();
    let keep = |frames: &mut [Frame], mask: u32| {
        frames.iter_mut().flat_map(|frame| &mut frame.stack).for_each(|split| split.mask &= mask);
    };
    keep(&mut parted, mask);
    keep(frames, !mask);
    parted
}

impl Warp<'_> {
    /// Lets lanes wait at the instruction that they have come to, and those that are absent run on. Once
    /// these are there or have ended, the instruction runs again.
    pub(super) fn wait_for(&mut self, absent: u32, mask: u32) {
        let needed = self.come_by(self.program, absent, mask);
        let ahead = part(&mut self.frames, absent);
        let frames = std::mem::replace(&mut self.frames, ahead);
        self.set_bounds();
        self.paths.push(Path { frames, waits: true, awaited: absent, needed });
    }

    /// The absent lanes whose way joins that of the lanes of a mask before they end.
    fn come_by(&self, program: &Program, absent: u32, mask: u32) -> u32 {
        let (mut rest, mut out) = (absent, 0);
        for (depth, frame) in self.frames.iter().enumerate().rev() {
            for split in frame.stack.iter().rev() {
                let joint = if split.mask & mask == 0 { split.reconverge } else { split.pc };
                if split.mask & rest != 0 && !self.only_returns(program, depth, joint) {
                    out |= split.mask & rest;
                }
                rest &= !split.mask;
            }
        }
        out
    }

    /// Whether a call and those around it do nothing from here on but return.
    fn only_returns(&self, program: &Program, depth: usize, pc: u32) -> bool {
        let code = |frame: &Frame| &program.functions[frame.function];
        let callers = self.frames[..depth].iter().map(|frame| (code(frame), top_pc(frame)));
        let this = (code(&self.frames[depth]), pc);
        callers.chain([this]).all(|(function, pc)| only_returns(function, pc))
    }

    /// Lets lanes go on that the running ones may wait for: those that wait to meet them, or that were put
    /// off. They need not meet again before an instruction that wants them together.
    pub(super) fn give_way(&mut self, state: &mut State<'_>) -> Result<(), Box<Mistake>> {
        let running = self.frames.last().map_or(0, top_mask);
        let others = all_lanes(&self.frames) & !running;
        if others != 0 {
            let ahead = part(&mut self.frames, others);
            self.paths.push(Path::running(ahead));
        } else if self.paths.iter().all(|path| path.awaited & self.core.alive != 0) {
            return Ok(());
        }
        let frames = std::mem::take(&mut self.frames);
        self.paths.push(Path::running(frames));
        // One of them can go on, so that there is no reason to stop.
        self.go_on_with_others(state).map(|_| ())
    }

    /// Takes up lanes that wait or were put off. Those that ran have ended or wait.
    pub(super) fn go_on_with_others(
        &mut self,
        state: &mut State<'_>,
    ) -> Result<Option<Stop>, Box<Mistake>> {
        let next = loop {
            match self.paths.iter().position(|path| path.awaited & self.core.alive == 0) {
                Some(at) => break at,
                None if self.join_two() || self.part_one() => {}
                None => return self.stand_still(state).map(Some),
            }
        };
        let path = self.paths.remove(next);
        self.frames = path.frames;
        self.set_bounds();
        if path.waits {
            self.note_ended(state, path.needed);
            if let Some(split) = self.frames.last_mut().and_then(|frame| frame.stack.last_mut()) {
                split.pc -= 1;
            }
        }
        Ok(None)
    }

    /// Makes one path of two that wait at the same place.
    fn join_two(&mut self) -> bool {
        let pairs = (0..self.paths.len()).flat_map(|at| (0..at).map(move |first| (first, at)));
        let same = |(first, second): &(usize, usize)| {
            same_place(&self.paths[*first].frames, &self.paths[*second].frames)
        };
        let Some((first, second)) = pairs.into_iter().find(same) else { return false };
        let Path { mut frames, awaited, needed, .. } = self.paths.remove(second);
        let path = &mut self.paths[first];
        let (here, come) = (path.top().1, frames.last().map_or(0, top_mask));
        let splits = path.frames.iter_mut().flat_map(|frame| &mut frame.stack);
        splits.filter(|split| split.mask & here != 0).for_each(|split| split.mask |= come);
        path.awaited = (path.awaited | awaited) & !(here | come);
        path.needed |= needed;
        // Others that wait below for these to meet them.
        part(&mut frames, come);
        self.paths.push(Path::running(frames));
        true
    }

    /// Lets lanes go ahead that only wait to meet lanes which wait at an instruction.
    fn part_one(&mut self) -> bool {
        let others = |path: &Path| all_lanes(&path.frames) & !path.top().1;
        let Some(path) = self.paths.iter_mut().find(|path| others(path) != 0) else { return false };
        let mask = others(path);
        let frames = part(&mut path.frames, mask);
        self.paths.push(Path::running(frames));
        true
    }

    /// No lane can go on, unless all wait at one barrier of a function that they called from different
    /// places.
    fn stand_still(&mut self, state: &mut State<'_>) -> Result<Stop, Box<Mistake>> {
        let Path { frames, awaited, needed, .. } = self.paths.remove(0);
        self.frames = frames;
        self.set_bounds();
        let (site, mask) = (self.site(), self.frames.last().map_or(0, top_mask));
        let op = &self.program.functions[site.function as usize].code[site.pc as usize].op;
        let elsewhere = self.paths.iter().map(|path| site_of(&path.frames)).find(|at| *at != site);
        match (op, elsewhere) {
            (Op::Barrier { kind, id, count }, None) => {
                let needed = self.paths.iter().fold(needed, |all, path| all | path.needed);
                self.note_ended(state, needed);
                for path in &mut self.paths {
                    *path = Path::running(std::mem::take(&mut path.frames));
                }
                self.barrier(*kind, *id, *count, mask)
            }
            _ => {
                let awaited = awaited & self.core.alive;
                let first = awaited.trailing_zeros() as usize;
                let where_ = self.paths.iter().find(|path| path.top().1 >> first & 1 != 0);
                let frames = where_.map_or(&self.frames, |path| &path.frames);
                let location = state.own_location(site_of(frames), callers_of(frames));
                let message = format!(
                    "lanes {mask:#010x} of warp {} wait for lanes {awaited:#010x}, but lane {first} waits \
                     at {location}",
                    self.core.index
                );
                mistake(FindingKind::BarrierDivergence, first, message)
            }
        }
    }

    /// Notes that lanes have ended which those that waited here expected.
    fn note_ended(&self, state: &mut State<'_>, needed: u32) {
        let gone = needed & !self.core.alive;
        if gone == 0 {
            return;
        }
        let here = self.frames.last().map_or(0, top_mask);
        let message =
            format!("lanes {gone:#010x} passed by where lanes {here:#010x} wait for them");
        let lane = gone.trailing_zeros() as usize;
        state.note(self, FindingKind::BarrierDivergence, Severity::Error, lane, |_| message);
    }
}

/// Whether code does nothing from here on but leave; so does what is behind the end.
fn only_returns(function: &Function, mut pc: u32) -> bool {
    for _ in 0..function.code.len() {
        let Some(next) = function.code.get(pc as usize) else { return true };
        pc += 1;
        match next.op {
            Op::Return | Op::Exit if next.guard.is_none() => return true,
            Op::Branch { target, .. } if next.guard.is_none() => pc = target,
            Op::Nop => {}
            _ => return false,
        }
    }
    false
}
