//! What lanes do together: votes, shuffles, matches, reductions; and the functions of the driver.

use super::super::block::State;
use super::super::warp::lanes_of;
use super::super::{Mistake, mistake, printf};
use super::warp::Warp;
use crate::lanes::matrix::turned;
use crate::program::{Shuffle, Vote};
use crate::report::FindingKind;
use crate::sass::{Builtin, Op, Operand, Predicate, Row, Takers, add_with_signs};

/// Where calls have their arguments, results and return address.
mod call {
    pub(super) const FIRST: u8 = 4;
    pub(super) const RETURN: u8 = 20;
}

impl Warp<'_> {
    pub(super) fn warp_wide(&mut self, op: &Op, mask: u32) {
        match op {
            Op::Vote { kind, target, outcome, predicate, uniform } => {
                let yes = self.holds(*predicate) & mask;
                let holds = match kind {
                    Vote::Ballot | Vote::Any => yes != 0,
                    Vote::All => yes == mask,
                    Vote::Uniform => yes == 0 || yes == mask,
                };
                self.write_target(*target, &[yes; 32], mask);
                let all = 0u32.wrapping_sub(u32::from(holds));
                match uniform {
                    true => self.now.set_predicate(*outcome, holds),
                    false => self.write_predicate(*outcome, all, mask),
                }
            }
            Op::Match { all, to, outcome, from, wide } => {
                self.find_equal(*all, *to, *outcome, *from, *wide, mask);
            }
            Op::Reduce { step, to, from } => {
                let values = self.row(*from);
                let values = lanes_of(mask).map(|lane| u64::from(values[lane]));
                let value = values.reduce(step).unwrap_or(0) as u32;
                self.now.set(*to, value);
            }
            Op::Shuffle { kind, to, outcome, from, by, clamp } => {
                self.shuffle(*kind, [*to, *outcome, *from], by, clamp, mask);
            }
            Op::Elect { outcome, target, among } => {
                let named = match among {
                    Ok(lanes) => self.value(lanes)[mask.trailing_zeros() as usize & 31],
                    Err(predicate) => self.holds(*predicate),
                };
                let leader = (named & mask).trailing_zeros() & 31;
                self.write_target(*target, &[leader; 32], mask);
                self.write_predicate(*outcome, 1 << leader & named, mask);
            }
            Op::Transpose { to, from } => {
                let values = *self.row(*from);
                self.write(*to, &turned(|lane| values[lane]), mask);
            }
            Op::MoveInQuads { to, from, lanes } => {
                let value = self.value(from);
                self.write(*to, &value, mask & lanes);
            }
            Op::AddWithSigns { to, from: [a, b], signs, add } => {
                let sum = add_with_signs(self.value(a), self.value(b), signs, *add);
                self.write(*to, &sum, mask);
            }
            Op::ToUniform { to, from, others, joins } => {
                let values = *self.row(*from);
                let value = values[mask.trailing_zeros() as usize & 31];
                self.now.set(*to, value);
                let differ = |lane: &usize| values[*lane] != value;
                let differing = lanes_of(mask).filter(differ).fold(0, |all, lane| all | 1 << lane);
                let (number, negated, uniform) = (*others, false, false);
                let before = match joins {
                    true => self.holds(Predicate { number, negated, uniform }),
                    false => 0,
                };
                self.write_predicate(*others, before | differing, mask);
            }
            Op::BarrierResult { to, outcome } => {
                let (value, holds) = (self.result, self.result != 0);
                self.write(*to, &[value; 32], mask);
                self.write_predicate(*outcome, 0u32.wrapping_sub(holds.into()), mask);
            }
            Op::PredicatesToRegister { target, uniform, from, mask: bits, shift } => {
                let (mut out, bits) = (self.value(from), self.value(bits));
                let (negated, uniform) = (false, *uniform);
                let lanes: [u32; 7] = std::array::from_fn(|number| {
                    self.holds(Predicate { number: number as u8, negated, uniform })
                });
                for (lane, value) in out.iter_mut().enumerate() {
                    let held = (0..7).fold(0, |all, at| all | (lanes[at] >> lane & 1) << at);
                    *value = *value & !(bits[lane] << shift) | (held & bits[lane]) << shift;
                }
                self.write_target(*target, &out, mask);
            }
            Op::RegisterToPredicates { from, mask: bits, shift } => {
                let (from, bits) = (self.value(from), self.value(bits));
                for number in 0..7u8 {
                    let set = |row: &Row, shift: u32| {
                        (0..32).fold(0u32, |all, lane| {
                            all | (row[lane] >> shift >> number & 1) << lane
                        })
                    };
                    let (value, named) = (set(&from, *shift), set(&bits, 0));
                    self.write_predicate(number, value, mask & named);
                }
            }
            _ => {}
        }
    }

    fn find_equal(&mut self, all: bool, to: u8, outcome: u8, from: u8, wide: bool, mask: u32) {
        let groups = Self::by_value(&self.long(from, wide), mask);
        let mut out = [0; 32];
        for (_, lanes) in &groups {
            lanes_of(*lanes).for_each(|lane| out[lane] = *lanes);
        }
        if all {
            let agree = groups.len() == 1;
            out = [if agree { mask } else { 0 }; 32];
            self.write_predicate(outcome, 0u32.wrapping_sub(agree.into()), mask);
        }
        self.write(to, &out, mask);
    }

    fn shuffle(
        &mut self,
        kind: Shuffle,
        [to, outcome, from]: [u8; 3],
        by: &Operand,
        clamp: &Operand,
        mask: u32,
    ) {
        let values = *self.row(from);
        let (by, clamp) = (self.value(by), self.value(clamp));
        let mut out = values;
        let mut inside = 0;
        for lane in lanes_of(mask) {
            let (by, clamp, here) = (by[lane] & 31, clamp[lane], lane as u32);
            let segment = clamp >> 8 & 31;
            let lowest = here & segment;
            let limit = lowest | clamp & 31 & !segment;
            let (source, ok) = match kind {
                Shuffle::Up => (here.wrapping_sub(by), here >= by + limit),
                Shuffle::Down => (here + by, here + by <= limit),
                Shuffle::Butterfly => (here ^ by, here ^ by <= limit),
                Shuffle::Index => {
                    let source = lowest | by & !segment;
                    (source, source <= limit)
                }
            };
            if ok {
                inside |= 1 << lane;
                out[lane] = values[source as usize & 31];
            }
        }
        self.write(to, &out, mask);
        self.write_predicate(outcome, inside, mask);
    }

    /// A function of the driver: its arguments are in registers from the fourth on.
    pub(super) fn builtin(
        &mut self,
        state: &mut State<'_>,
        builtin: Builtin,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let lane = mask.trailing_zeros() as usize & 31;
        // What goes wrong is the call's.
        let back = self.code.program.number(self.long(call::RETURN, true)[lane]);
        self.site = back.map_or(self.site, |back| back.saturating_sub(1) as u32);
        let argument = |at: u8| self.long(call::FIRST + at, true);
        let (first, second) = (argument(0), argument(2));
        match builtin {
            Builtin::Printf => {
                for lane in lanes_of(mask) {
                    let count = self.print(state, lane, first[lane], second[lane])?;
                    self.write(call::FIRST, &[count; 32], 1 << lane);
                }
            }
            Builtin::AssertFail => return self.assert_failed(state, mask),
            Builtin::Malloc => {
                for lane in lanes_of(mask) {
                    let address = state.grid.memory.alloc(first[lane]).unwrap_or(0);
                    self.write(call::FIRST, &[address as u32; 32], 1 << lane);
                    self.write(call::FIRST + 1, &[(address >> 32) as u32; 32], 1 << lane);
                }
            }
            Builtin::Free => {
                for lane in lanes_of(mask).filter(|lane| first[*lane] != 0) {
                    if let Err(error) = state.grid.memory.free(first[lane]) {
                        return mistake(FindingKind::OutOfBounds, lane, error.to_string());
                    }
                }
            }
        }
        let to = [call::RETURN, call::RETURN + 1].map(crate::sass::Source::Register);
        let when = crate::sass::Predicate::TRUE;
        let back = Op::Jump { base: 0, to, when, takers: Takers::Each };
        self.flow(&back, mask)
    }

    fn print(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        format: u64,
        values: u64,
    ) -> Result<u32, Box<Mistake>> {
        let private = &mut self.private;
        let format = private.string(state, lane, format)?;
        let text = printf::format(&format, |what, at| match what {
            printf::Argument::Value(size) => private
                .generic_load(state, lane, values.wrapping_add(at), size)
                .map(printf::ArgumentValue::Value),
            printf::Argument::Text => {
                let address = private.generic_load(state, lane, values.wrapping_add(at), 8)?;
                private.string(state, lane, address).map(printf::ArgumentValue::Text)
            }
        })?;
        state.output.extend_from_slice(&text.bytes);
        Ok(text.count as u32)
    }

    fn assert_failed(&mut self, state: &mut State<'_>, mask: u32) -> Result<(), Box<Mistake>> {
        let lane = mask.trailing_zeros() as usize & 31;
        let line = self.row(call::FIRST + 4)[lane];
        let [what, file, function] = [0, 2, 6].map(|at| self.long(call::FIRST + at, true)[lane]);
        let mut text = |address| {
            let bytes = self.private.string(state, lane, address)?;
            Ok::<String, Box<Mistake>>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (what, file, function) = (text(what)?, text(file)?, text(function)?);
        mistake(
            FindingKind::Assert,
            lane,
            format!("{file}:{line}: {function}: assertion `{what}` failed"),
        )
    }
}
