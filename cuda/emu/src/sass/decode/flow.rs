//! Branches, calls, and barriers.

use nvabi_sass::{Modifier, Op as Name, Value};

use super::{Decoded, Decoder, Kind, Op};
use crate::sass::{Arrival, LaneBits, LaneSet, Operand, Predicate, Source, Takers};

/// What is added to an address that is whole.
const NOWHERE: [Source; 2] = [Source::Register(super::ZERO), Source::Register(super::ZERO)];

impl Decoder<'_> {
    pub(super) fn flow(&self) -> Decoded<Op> {
        use Name::*;
        let when = || self.predicate(0);
        match self.instruction.op {
            BRA => self.branch(),
            BRX | BRXU => {
                let next = self.instruction.address as i64 + 16;
                let base = self.base().wrapping_add_signed(next);
                let base = base.wrapping_add(self.number(2)?);
                Ok(Op::Jump { base, to: self.long(1)?, when: when()?, takers: Takers::Each })
            }
            JMP => self.jump(),
            CALL | RET => self.call(),
            LEPC => {
                // Its own, where none is named.
                let own = self.instruction.address as i64;
                let named = if self.count() > 1 { self.address_of(1)? } else { own };
                let address = self.base().wrapping_add_signed(named);
                Ok(Op::CodeAddress { to: self.register(0)?, address })
            }
            EXIT => Ok(Op::Exit { when: when()? }),
            BSSY => Ok(Op::SetBarrier { barrier: self.barrier(1)? }),
            BSYNC => Ok(Op::SyncBarrier { barrier: self.barrier(1)?, when: when()? }),
            BREAK => Ok(Op::BreakBarrier { barrier: self.barrier(1)?, when: when()? }),
            BMOV => self.move_lanes(),
            YIELD | NANOSLEEP => Ok(Op::Yield),
            WARPSYNC => self.sync(),
            ENDCOLLECTIVE => Ok(Op::EndCollective),
            // There are no counters of events, and a launch begins when those before it have ended.
            NOP | PMTRIG | PREEXIT | ACQBULK => Ok(Op::Nop),
            BPT => Ok(Op::Trap { number: self.number(0)? }),
            BAR => self.block_barrier(),
            _ => Err("it is decoded, but not run".to_owned()),
        }
    }

    /// The address of the section's first instruction.
    fn base(&self) -> u64 {
        self.origin + self.first as u64 * 16
    }

    fn move_lanes(&self) -> Decoded<Op> {
        let (clear, quads) = (self.has(Modifier::CLEAR), self.has(Modifier::PQUAD));
        let get = |to| Ok(Op::GetLanes { to, from: self.lane_set(1)?, clear });
        let set = |from| Ok(Op::SetLanes { to: self.lane_set(0)?, from, quads });
        match (self.operand(0)?.value, self.operand(1)?.value) {
            (Value::Register(to), _) => get(LaneBits::Register(to)),
            (_, Value::Register(from)) => set(LaneBits::Register(from)),
            (Value::Barrier(to), Value::Barrier(from)) => Ok(Op::MoveBarrier { to, from }),
            (Value::Barrier(to), Value::Named(_)) => get(LaneBits::Barrier(to)),
            (_, Value::Barrier(from)) => set(LaneBits::Barrier(from)),
            _ => {
                let lanes = self.number(1)? as u32;
                Ok(Op::PutBarrier { barrier: self.barrier(0)?, lanes })
            }
        }
    }

    fn lane_set(&self, at: usize) -> Decoded<LaneSet> {
        match self.operand(at)?.value {
            Value::Barrier(number) => Ok(LaneSet::Barrier(number)),
            Value::Named(Modifier::MACTIVE) => Ok(LaneSet::Active),
            Value::Named(Modifier::MEXITED) => Ok(LaneSet::Exited),
            Value::Named(
                Modifier::THREAD_STATE_ENUM_0
                | Modifier::THREAD_STATE_ENUM_1
                | Modifier::THREAD_STATE_ENUM_2
                | Modifier::THREAD_STATE_ENUM_3
                | Modifier::THREAD_STATE_ENUM_4
                | Modifier::OPT_STACK,
            ) => Ok(LaneSet::Elsewhere),
            _ => Err(format!("operand {at} is no set of lanes that is kept here")),
        }
    }

    /// The 64 bits of a source.
    fn long(&self, at: usize) -> Decoded<[Source; 2]> {
        match self.value(self.operand(at)?, true)? {
            (low, Some(high)) => Ok([low, high]),
            _ => Err(format!("operand {at} has no 64 bits")),
        }
    }

    fn barrier(&self, at: usize) -> Decoded<u8> {
        match self.operand(at)?.value {
            Value::Barrier(number) => Ok(number),
            _ => Err(format!("operand {at} is no barrier")),
        }
    }

    fn address_of(&self, at: usize) -> Decoded<i64> {
        match self.operand(at)?.value {
            Value::Target(address) => Ok(address),
            _ => Err(format!("operand {at} is no address")),
        }
    }

    fn branch(&self) -> Decoded<Op> {
        let last = self.count() - 1;
        let target = self.place(self.address_of(last)?)?;
        let (diverged, converged) = (self.has(Modifier::DIV), self.has(Modifier::CONV));
        if !diverged && !converged {
            let when = match (self.predicate(0)?, last) {
                (when, 1) => when,
                // A uniform predicate stands behind that of the lanes.
                (Predicate::TRUE, _) => self.predicate(1)?,
                _ => return Err("a branch that depends on two predicates".to_owned()),
            };
            return Ok(Op::Branch { target, when, takers: self.takers()? });
        }
        let mask = match self.operand(1)?.value {
            Value::Uniform(number) => Some((number, self.operand(1)?.inverted)),
            _ => None,
        };
        Ok(Op::BranchDiverged { target, mask, diverged })
    }

    fn jump(&self) -> Decoded<Op> {
        if [Modifier::DIV, Modifier::CONV].iter().any(|word| self.has(*word)) {
            return Err("only lanes by themselves, or all of them, jump here".to_owned());
        }
        let (when, takers) = (self.predicate(0)?, self.takers()?);
        match self.number(1) {
            Ok(base) => Ok(Op::Jump { base, to: NOWHERE, when, takers }),
            Err(_) => Ok(Op::Jump { base: 0, to: self.long(1)?, when, takers }),
        }
    }

    fn takers(&self) -> Decoded<Takers> {
        match (self.has(Modifier::U), self.has(Modifier::ANY)) {
            (false, false) => Ok(Takers::Each),
            (true, false) => Ok(Takers::All),
            (true, true) => Ok(Takers::Any),
            (false, true) => Err("lanes by themselves go where one does".to_owned()),
        }
    }

    fn call(&self) -> Decoded<Op> {
        let when = self.predicate(0)?;
        if self.count() == 2 {
            if self.has(Modifier::REL) {
                let target = self.place(self.address_of(1)?)?;
                return Ok(Op::Branch { target, when, takers: Takers::Each });
            }
            return Ok(Op::Jump { base: self.number(1)?, to: NOWHERE, when, takers: Takers::Each });
        }
        let base = match self.operand(2)?.value {
            Value::Target(address) => self.base().wrapping_add_signed(address),
            _ => self.number(2)?,
        };
        Ok(Op::Jump { base, to: self.long(1)?, when, takers: Takers::Each })
    }

    fn sync(&self) -> Decoded<Op> {
        let collective = match self.has(Modifier::COLLECTIVE) {
            true => Some(self.place(self.address_of(self.count() - 1)?)?),
            false => None,
        };
        let all = self.has(Modifier::ALL);
        let mask = if all { None } else { Some(self.source(1, Kind::Integer)?) };
        Ok(Op::SyncWarp { mask, collective, exclusive: self.has(Modifier::EXCLUSIVE) })
    }

    fn block_barrier(&self) -> Decoded<Op> {
        let kind = match () {
            () if self.has(Modifier::ARV) => Arrival::Arrive,
            () if self.has(Modifier::POPC) => Arrival::Count,
            () if self.has(Modifier::RED) && self.has(Modifier::AND) => Arrival::All,
            () if self.has(Modifier::RED) && self.has(Modifier::OR) => Arrival::Any,
            () if self.has(Modifier::SYNC) => Arrival::Sync,
            () => return Err("this barrier is not run here".to_owned()),
        };
        let reduces = matches!(kind, Arrival::Count | Arrival::All | Arrival::Any);
        let id = self.source(0, Kind::Integer)?;
        let count = self.source(1, Kind::Integer)?;
        let is_register = |at| matches!(self.operand(at).map(|o| o.value), Ok(Value::Register(_)));
        Ok(Op::Barrier {
            kind,
            id,
            count: Some(count).filter(|count: &Operand| !count.is_nothing()),
            packed: is_register(0) && is_register(1),
            predicate: if reduces { self.predicate(2)? } else { Predicate::TRUE },
        })
    }
}

impl Operand {
    /// Whether it is the number 0.
    fn is_nothing(&self) -> bool {
        matches!(&self.low, crate::sass::Source::Immediate(row) if row[0] == 0)
    }
}
