//! Where lanes go: groups of them, which part at branches, and wait for each other at barriers.
//!
//! A group has uniform registers of its own, so that what one does never depends on when another runs.

use super::super::block::State;
use super::super::shared::{BARRIERS, Site};
use super::super::warp::{Stop, lanes_of};
use super::super::{Mistake, mistake};
use super::warp::{Warp, write_masked};
use crate::program::{BarrierKind, Reg};
use crate::report::{FindingKind, Severity};
use crate::sass::{Arrival, LaneBits, LaneSet, Op, Operand, Predicate, Source, TRUE, UNIFORM_ZERO};

/// Lanes that run together.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    pub(super) wait: Wait,
    pub(super) predicates: u8,
    uniform: Box<[u32; 64]>,
}

/// What a group waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wait {
    Nothing,
    /// The lanes that meet at this convergence barrier.
    Convergence(u8),
    /// These lanes.
    Lanes(u32),
    /// These lanes, to do the same once, and go on behind it.
    Together(u32),
    /// The block's barrier.
    Block {
        id: usize,
        kind: Arrival,
        threads: u32,
    },
}

impl Group {
    pub(super) fn new(pc: u32, mask: u32) -> Self {
        let predicates = 1 << TRUE;
        Self { pc, mask, wait: Wait::Nothing, predicates, uniform: Box::new([0; 64]) }
    }

    pub(super) fn get(&self, number: u8) -> u32 {
        self.uniform[usize::from(number & 63)]
    }

    /// 64 bits from a register and the one behind it.
    pub(super) fn get_wide(&self, number: u8) -> u64 {
        u64::from(self.get(number)) | u64::from(self.get((number + 1).min(UNIFORM_ZERO))) << 32
    }

    pub(super) fn set(&mut self, number: u8, value: u32) {
        if number < UNIFORM_ZERO {
            self.uniform[usize::from(number)] = value;
        }
    }

    pub(super) fn set_predicate(&mut self, number: u8, value: bool) {
        if number < TRUE {
            self.predicates = self.predicates & !(1 << number) | u8::from(value) << number;
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.pc == other.pc && self.predicates == other.predicates && self.uniform == other.uniform
    }
}

/// All lanes of the groups of four in which there is one of these.
fn of_quads(lanes: u32) -> u32 {
    let any = (lanes | lanes >> 1 | lanes >> 2 | lanes >> 3) & 0x1111_1111;
    any * 0xf
}

/// Takes lanes out of groups, into ones of their own.
fn move_lanes(from: &mut Vec<Group>, to: &mut Vec<Group>, lanes: u32) {
    let parts = from.iter().filter(|group| group.mask & lanes != 0);
    to.extend(parts.map(|group| Group { mask: group.mask & lanes, ..group.clone() }));
    from.iter_mut().for_each(|group| group.mask &= !lanes);
    from.retain(|group| group.mask != 0);
}

impl Warp<'_> {
    /// Lanes go to a place, and the others of the group to the next instruction.
    pub(super) fn branch(&mut self, target: u32, taken: u32) {
        let rest = self.now.mask & !taken;
        if taken == 0 {
            return;
        }
        if rest != 0 {
            self.groups.push(Group { mask: rest, ..self.now.clone() });
            self.now.mask = taken;
        }
        self.now.pc = target;
    }

    pub(super) fn branch_diverged(
        &mut self,
        target: u32,
        named: Option<(u8, bool)>,
        diverged: bool,
        mask: u32,
    ) {
        let named = named.map_or(u32::MAX, |(number, inverted)| {
            let value = self.now.get(number);
            if inverted { !value } else { value }
        });
        // Where the branch needs them together, all that are named must take it: compilers let those go elsewhere by
        // the guard whose masks are not the others'.
        let there = if diverged { self.now.mask } else { mask };
        let all_there = named & self.core.alive & !there == 0;
        if all_there != diverged {
            self.branch(target, mask);
        }
    }

    /// Lets another group run that can.
    pub(super) fn rotate(&mut self) {
        let next = self.groups.iter().position(|group| group.wait == Wait::Nothing);
        if let Some(next) = next {
            let group = self.groups.remove(next);
            let now = std::mem::replace(&mut self.now, group);
            self.groups.push(now);
        }
    }

    pub(super) fn flow(&mut self, op: &Op, mask: u32) -> Result<(), Box<Mistake>> {
        match op {
            Op::Jump { base, to, when, takers } => {
                let taken = takers.among(self.now.mask, mask & self.holds(*when));
                self.jump(*base, to, taken)
            }
            Op::SetBarrier { barrier } => {
                for lane in lanes_of(mask) {
                    self.barriers[usize::from(barrier & 15)][lane] = mask;
                }
                Ok(())
            }
            Op::SyncBarrier { barrier, when } => {
                self.wait(mask & self.holds(*when), Wait::Convergence(barrier & 15));
                Ok(())
            }
            Op::BreakBarrier { barrier, when } => {
                let leaving = mask & self.holds(*when);
                for lanes in self.barriers[usize::from(barrier & 15)].iter_mut() {
                    *lanes &= !leaving;
                }
                Ok(())
            }
            Op::PutBarrier { barrier, lanes } => {
                for lane in lanes_of(mask) {
                    self.barriers[usize::from(barrier & 15)][lane] = *lanes;
                }
                Ok(())
            }
            Op::MoveBarrier { to, from } => {
                for lane in lanes_of(mask) {
                    let lanes = &mut self.barriers[usize::from(from & 15)][lane];
                    let lanes = std::mem::take(lanes);
                    self.barriers[usize::from(to & 15)][lane] = lanes;
                }
                Ok(())
            }
            Op::GetLanes { to, from, clear } => {
                self.get_lanes(*to, *from, *clear, mask);
                Ok(())
            }
            Op::SetLanes { to, from, quads } => self.set_lanes(*to, *from, *quads, mask),
            Op::SyncWarp { mask: named, collective, exclusive } => {
                self.sync(named.as_ref(), *collective, *exclusive, mask);
                Ok(())
            }
            Op::EndCollective => {
                self.part_behind(mask);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn get_lanes(&mut self, to: LaneBits, from: LaneSet, clear: bool, mask: u32) {
        let value = match from {
            LaneSet::Barrier(barrier) => self.barriers[usize::from(barrier & 15)],
            LaneSet::Active => [self.now.mask; 32],
            LaneSet::Exited => [!self.core.alive; 32],
            // The groups keep it.
            LaneSet::Elsewhere => [0; 32],
        };
        match to {
            LaneBits::Register(to) => self.write(to, &value, mask),
            LaneBits::Barrier(to) => {
                write_masked(&mut self.barriers[usize::from(to & 15)], &value, mask);
            }
        }
        if let LaneSet::Barrier(barrier) = from {
            if clear {
                write_masked(&mut self.barriers[usize::from(barrier & 15)], &[0; 32], mask);
            }
        }
    }

    /// Lanes that have ended do not come back, and those that are elsewhere do not leave what they do there. A driver's
    /// function says of them that they have ended, and at its end what was true before.
    fn set_lanes(
        &mut self,
        to: LaneSet,
        from: LaneBits,
        quads: bool,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let value = match from {
            LaneBits::Register(from) => *self.row(from),
            LaneBits::Barrier(from) => self.barriers[usize::from(from & 15)],
        };
        let value = value.map(|lanes| if quads { of_quads(lanes) } else { lanes });
        let lane = mask.trailing_zeros() as usize & 31;
        match to {
            LaneSet::Barrier(barrier) => {
                write_masked(&mut self.barriers[usize::from(barrier & 15)], &value, mask);
                Ok(())
            }
            LaneSet::Active if value[lane] & self.core.alive == self.now.mask => Ok(()),
            LaneSet::Exited if value[lane] & self.now.mask == 0 => {
                self.set_aside(value[lane]);
                Ok(())
            }
            LaneSet::Elsewhere if self.core.alive == self.now.mask => Ok(()),
            _ => {
                let (lanes, now) = (value[lane], self.now.mask);
                let message = format!("lanes {lanes:#010x} are to run where {now:#010x} do");
                mistake(FindingKind::Unsupported, lane, message)
            }
        }
    }

    /// Lanes count as ended, and of those that did so before only these do.
    fn set_aside(&mut self, lanes: u32) {
        let alive = self.core.alive;
        self.groups.iter_mut().for_each(|group| group.mask &= alive);
        let back: u32 = self.aside.iter().fold(0, |all, group| all | group.mask & !lanes);
        move_lanes(&mut self.groups, &mut self.aside, lanes);
        move_lanes(&mut self.aside, &mut self.groups, back);
        self.core.alive = alive & !lanes | back;
    }

    /// Lanes wait, and the others of the group go on.
    fn wait(&mut self, mask: u32, wait: Wait) {
        let rest = self.now.mask & !mask;
        if mask == 0 {
            return;
        }
        self.groups.push(Group { mask, wait, ..self.now.clone() });
        self.now.mask = rest;
    }

    fn sync(
        &mut self,
        named: Option<&Operand>,
        collective: Option<u32>,
        exclusive: bool,
        mask: u32,
    ) {
        let together = self.now.mask;
        let values = named.map_or([u32::MAX; 32], |named| self.value(named));
        for (value, lanes) in Self::by_value(&values.map(u64::from), mask) {
            let value = value as u32;
            if let Some(behind) = collective {
                lanes_of(lanes).for_each(|lane| self.behind[lane] = behind);
            } else if value & self.core.alive & !lanes == 0 && (!exclusive || lanes == together) {
                continue;
            }
            let wait = match collective {
                Some(_) => Wait::Together(value),
                None => Wait::Lanes(value),
            };
            self.wait(lanes, wait);
        }
    }

    /// Lanes that did something together go on where each wants to.
    fn part_behind(&mut self, mask: u32) {
        let behind = self.behind.map(u64::from);
        for (pc, lanes) in Self::by_value(&behind, mask) {
            if lanes == self.now.mask {
                self.now.pc = pc as u32;
            } else {
                self.groups.push(Group { pc: pc as u32, mask: lanes, ..self.now.clone() });
                self.now.mask &= !lanes;
            }
        }
    }

    /// Lanes jump to addresses that each has.
    fn jump(&mut self, base: u64, to: &[Source; 2], mask: u32) -> Result<(), Box<Mistake>> {
        let [low, high] = [self.word(&to[0]), self.word(&to[1])];
        let to: [u64; 32] = std::array::from_fn(|lane| {
            base.wrapping_add(u64::from(low[lane]) | u64::from(high[lane]) << 32)
        });
        for (address, lanes) in Self::by_value(&to, mask) {
            let Some(number) = self.code.program.number(address) else {
                let lane = lanes.trailing_zeros() as usize;
                let message = format!("a jump to {address:#x}, where no code is");
                return mistake(FindingKind::Trap, lane, message);
            };
            if lanes == self.now.mask {
                self.now.pc = number as u32;
            } else {
                let group = Group { pc: number as u32, mask: lanes, ..self.now.clone() };
                self.groups.push(group);
                self.now.mask &= !lanes;
            }
        }
        Ok(())
    }

    /// Takes up lanes that can go on. Those that ran have ended or wait.
    pub(super) fn next_group(
        &mut self,
        state: &mut State<'_>,
    ) -> Result<Option<Stop>, Box<Mistake>> {
        let alive = self.core.alive;
        self.groups.iter_mut().for_each(|group| group.mask &= alive);
        self.groups.retain(|group| group.mask != 0);
        if self.groups.is_empty() {
            return Ok(Some(self.end()));
        }
        loop {
            let ready = self.groups.iter().rposition(|group| group.wait == Wait::Nothing);
            if let Some(at) = ready {
                self.now = self.groups.remove(at);
                self.join();
                return Ok(None);
            }
            if !self.release() && !self.give_up_meeting() {
                return self.all_wait(state).map(Some);
            }
        }
    }

    /// Lanes at the same instruction run together.
    fn join(&mut self) {
        let now = &mut self.now;
        self.groups.retain(|group| {
            let same = group.wait == Wait::Nothing && group.is_like(now);
            if same {
                now.mask |= group.mask;
            }
            !same
        });
    }

    /// The lanes that a group waits for.
    fn awaited(&self, group: &Group) -> Option<u32> {
        match group.wait {
            Wait::Convergence(barrier) => {
                let first = group.mask.trailing_zeros() as usize & 31;
                Some(self.barriers[usize::from(barrier)][first])
            }
            Wait::Lanes(lanes) | Wait::Together(lanes) => Some(lanes),
            Wait::Nothing | Wait::Block { .. } => None,
        }
    }

    /// Lets lanes go of which all that they wait for have come.
    fn release(&mut self) -> bool {
        for at in 0..self.groups.len() {
            let group = &self.groups[at];
            let Some(awaited) = self.awaited(group) else { continue };
            let needed = awaited & self.core.alive | group.mask;
            let wait = group.wait;
            // A function that saved a barrier uses it for other lanes, while some still wait at the saved one.
            let come = self.groups.iter().filter(|group| {
                group.wait == wait
                    && group.mask & !needed == 0
                    && self.awaited(group) == Some(awaited)
            });
            let come = come.fold(0, |all, group| all | group.mask);
            if needed & !come == 0 {
                self.let_go(wait, come);
                return true;
            }
        }
        false
    }

    /// Lanes that wait to meet others go on without them where nothing else can happen: those wait for these
    /// elsewhere. To meet is never needed to be right.
    fn give_up_meeting(&mut self) -> bool {
        let meets = |group: &Group| matches!(group.wait, Wait::Convergence(_));
        let some = self.groups.iter_mut().find(|group| meets(group));
        some.map(|group| group.wait = Wait::Nothing).is_some()
    }

    fn let_go(&mut self, wait: Wait, lanes: u32) {
        let together = matches!(wait, Wait::Together(_));
        let mut joined: Vec<Group> = Vec::new();
        self.groups.retain_mut(|group| {
            if group.wait != wait || group.mask & !lanes != 0 {
                return true;
            }
            group.wait = Wait::Nothing;
            // What is uniform is the same in all that meet.
            match joined.iter_mut().find(|other| together || other.pc == group.pc) {
                Some(other) => other.mask |= group.mask,
                None => joined.push(group.clone()),
            }
            false
        });
        self.groups.append(&mut joined);
    }

    /// All lanes wait: at the block's barrier, or for what will not come.
    fn all_wait(&mut self, state: &mut State<'_>) -> Result<Stop, Box<Mistake>> {
        let mut waits = self.groups.iter().map(|group| group.wait);
        let first = waits.next().unwrap_or(Wait::Nothing);
        let same = waits.all(|wait| wait == first);
        if let (Wait::Block { id, kind, threads }, true) = (first, same) {
            self.note_apart(state);
            return Ok(self.arrive(id, kind, threads));
        }
        let group = &self.groups[0];
        self.site = group.pc.saturating_sub(1);
        let others = self.core.alive & !group.mask;
        let lane = group.mask.trailing_zeros() as usize & 31;
        let message = format!(
            "lanes {:#010x} of warp {} wait for lanes {others:#010x}, which wait elsewhere",
            group.mask, self.core.index
        );
        mistake(FindingKind::BarrierDivergence, lane, message)
    }

    /// Notes that lanes of one warp are at different places that wait for the block.
    fn note_apart(&mut self, state: &mut State<'_>) {
        let (mask, pc) = (self.groups[0].mask, self.groups[0].pc);
        let Some(other) = self.groups.iter().find(|group| group.pc != pc) else { return };
        let place = state.own_location(Site { function: 0, pc: other.pc.saturating_sub(1) }, []);
        let message = format!(
            "lanes {mask:#010x} of warp {} wait for the block here, lanes {:#010x} at {place}",
            self.core.index, other.mask
        );
        self.site = pc.saturating_sub(1);
        let lane = mask.trailing_zeros() as usize & 31;
        let (kind, severity) = (FindingKind::BarrierDivergence, Severity::Error);
        state.note(self, kind, severity, lane, |_| message);
    }

    pub(super) fn block_barrier(
        &mut self,
        kind: Arrival,
        id: &Operand,
        count: Option<&Operand>,
        packed: bool,
        predicate: Predicate,
        mask: u32,
    ) -> Result<Option<Stop>, Box<Mistake>> {
        let lane = mask.trailing_zeros() as usize & 31;
        let id = self.value(id)[lane];
        let threads = count.map_or(0, |count| self.value(count)[lane]);
        let (id, threads) = if packed { (id & 15, threads >> 16 & 0xfff) } else { (id, threads) };
        if id as usize >= BARRIERS || threads % 32 != 0 {
            let message = format!(
                "barrier {id} for {threads} threads: there are {BARRIERS}, for whole warps"
            );
            return mistake(FindingKind::BarrierDivergence, lane, message);
        }
        let truths = self.holds(predicate) & mask;
        self.truths = self.truths & !mask | truths;
        let id = id as usize;
        self.wait(mask, Wait::Block { id, kind, threads });
        if mask == self.core.alive {
            return Ok(Some(self.arrive(id, kind, threads)));
        }
        Ok(None)
    }

    fn arrive(&mut self, id: usize, kind: Arrival, threads: u32) -> Stop {
        const NOWHERE: Reg = 0;
        let (dst, pred) = (NOWHERE, NOWHERE);
        let kind = match kind {
            Arrival::Sync => BarrierKind::Sync,
            Arrival::Arrive => BarrierKind::Arrive,
            Arrival::Count => BarrierKind::Count { dst, pred },
            Arrival::All => BarrierKind::All { dst, pred },
            Arrival::Any => BarrierKind::Any { dst, pred },
        };
        self.at_block_barrier = true;
        let truths = (self.truths & self.core.alive).count_ones();
        Stop::Barrier { id, kind, threads, truths }
    }

    /// Goes on behind the block's barrier.
    pub(super) fn pass_block_barrier(&mut self) {
        if !std::mem::take(&mut self.at_block_barrier) {
            return;
        }
        let waits: Vec<(Wait, u32)> = self
            .groups
            .iter()
            .filter(|group| matches!(group.wait, Wait::Block { .. }))
            .map(|group| (group.wait, group.mask))
            .collect();
        let all = waits.iter().fold(0, |all, (_, mask)| all | mask);
        if let Some((wait, _)) = waits.first() {
            self.let_go(*wait, all);
        }
    }
}
