//! Instructions that a warp runs as one: votes, shuffles, matches, reductions.

use super::super::block::State;
use super::super::warp::lanes_of;
use super::super::{Mistake, mistake};
use super::warp::Warp;
use crate::lanes::Lanes;
use crate::program::{Op, Reg, Shuffle, Vote};
use crate::report::FindingKind;

impl Warp<'_> {
    pub(super) fn warp_wide(
        &mut self,
        state: &mut State<'_>,
        op: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let members = match op {
            Op::ActiveMask { dst } => {
                self.write(*dst, &[mask.into(); 32], mask);
                return Ok(());
            }
            Op::MatrixMultiply(_) | Op::MatrixMove(_) | Op::RowMove(_) | Op::Transpose { .. } => {
                if mask == self.core.alive {
                    state.shared.meet(self.core.index);
                    return self.matrix(state, op, mask);
                }
                self.wait_for(self.core.alive & !mask, mask);
                return Ok(());
            }
            Op::Vote { mask: members, .. } => *members,
            Op::SyncWarp { mask: members }
            | Op::Shuffle { mask: members, .. }
            | Op::Match { mask: members, .. }
            | Op::Reduce { mask: members, .. }
            | Op::Elect { mask: members, .. } => Some(*members),
            _ => return Ok(()),
        };
        let named = members.map_or(0, |members| {
            lanes_of(mask).fold(0, |all, lane| all | self.register(members)[lane] as u32)
        });
        let absent = named & self.core.alive & !mask;
        if absent != 0 {
            self.wait_for(absent, mask);
            return Ok(());
        }
        if members.is_some() {
            state.shared.meet(self.core.index);
        }
        // Lanes that name different lanes are groups of their own.
        let mut rest = mask;
        while rest != 0 {
            let group = match members {
                Some(members) => self.group(members, rest, mask)?,
                None => mask,
            };
            self.for_group(op, group);
            rest &= !group;
        }
        Ok(())
    }

    /// The lanes that the first of `rest` names: it must be one of them, and all must name the same.
    fn group(&self, members: Reg, rest: u32, mask: u32) -> Result<u32, Box<Mistake>> {
        let names = self.register(members);
        let first = rest.trailing_zeros() as usize;
        let named = names[first] as u32;
        let group = named & mask;
        let others = lanes_of(group).any(|lane| names[lane] as u32 != named);
        if others || named >> first & 1 == 0 {
            let message = format!(
                "lane {first} names lanes {named:#010x}, but lanes {mask:#010x} of warp {} are at the \
                 instruction{}",
                self.core.index,
                if others { ", and some name others" } else { "" }
            );
            return mistake(FindingKind::BarrierDivergence, first, message);
        }
        Ok(group)
    }

    /// Runs an instruction for lanes that take part in it together.
    fn for_group(&mut self, op: &Op, group: u32) {
        match op {
            Op::Vote { kind, dst, pred, .. } => {
                let yes = self.truths(*pred, group);
                let value = match kind {
                    Vote::Ballot => yes,
                    Vote::All => u32::from(yes == group),
                    Vote::Any => u32::from(yes != 0),
                    Vote::Uniform => u32::from(yes == 0 || yes == group),
                };
                self.write(*dst, &[value.into(); 32], group);
            }
            Op::Shuffle { .. } => self.shuffle(op, group),
            Op::Match { .. } => self.find_equal(op, group),
            Op::Reduce { step, dst, src, .. } => {
                let values = *self.register(*src);
                let value = lanes_of(group).map(|lane| values[lane]).reduce(step).unwrap_or(0);
                self.write(*dst, &[value; 32], group);
            }
            Op::Elect { dst, pred, .. } => {
                let leader = group.trailing_zeros();
                let mut out = [0; 32];
                out[leader as usize & 31] = 1;
                self.write(*pred, &out, group);
                if let Some(dst) = dst {
                    self.write(*dst, &[leader.into(); 32], group);
                }
            }
            _ => {}
        }
    }

    fn find_equal(&mut self, op: &Op, group: u32) {
        let Op::Match { all, dst, pred, src, bits, .. } = op else { return };
        let keep = if *bits == 64 { u64::MAX } else { 0xffff_ffff };
        let values = self.register(*src).map(|value| value & keep);
        let mut out = [0; 32];
        for lane in lanes_of(group) {
            let same = lanes_of(group).filter(|other| values[*other] == values[lane]);
            out[lane] = same.map(|lane| 1u64 << lane).sum();
        }
        if *all {
            let agree = out[group.trailing_zeros() as usize & 31] == u64::from(group);
            out = [if agree { group.into() } else { 0 }; 32];
            if let Some(pred) = pred {
                self.write(*pred, &[agree.into(); 32], group);
            }
        }
        self.write(*dst, &out, group);
    }

    fn shuffle(&mut self, op: &Op, mask: u32) {
        let Op::Shuffle { kind, dst, pred, src, by, clamp, .. } = op else { return };
        let (values, by, clamp) =
            (*self.register(*src), *self.register(*by), *self.register(*clamp));
        let mut out: Lanes = values;
        let mut inside: Lanes = [0; 32];
        for lane in lanes_of(mask) {
            let (by, clamp) = ((by[lane] & 31) as u32, clamp[lane] as u32);
            let segment = clamp >> 8 & 31;
            let limit = lane as u32 & segment | clamp & 31 & !segment;
            let lowest = lane as u32 & segment;
            let lane_number = lane as u32;
            let (from, ok) = match kind {
                Shuffle::Up => (lane_number.wrapping_sub(by), lane_number >= by + limit),
                Shuffle::Down => (lane_number + by, lane_number + by <= limit),
                Shuffle::Butterfly => (lane_number ^ by, lane_number ^ by <= limit),
                Shuffle::Index => {
                    let from = lowest | by & !segment;
                    (from, from <= limit)
                }
            };
            let from = if ok { from } else { lane_number };
            inside[lane] = ok.into();
            out[lane] = values[from as usize & 31];
        }
        self.write(*dst, &out, mask);
        if let Some(pred) = pred {
            self.write(*pred, &inside, mask);
        }
    }
}
