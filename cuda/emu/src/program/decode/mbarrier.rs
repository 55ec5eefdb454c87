//! Barriers in memory: `mbarrier`, `cp.async.mbarrier`. Their operations are loads, stores and atomics of 64 bits.

use super::super::{Address, Op, Order, Reg, Rmw, Space, UsedBytes};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{Opcode, mbarrier};
use crate::ptx;

/// Bytes of a barrier.
const WIDTH: u64 = 8;

const RELEASE: Order = Order { strong: true, acquire: false, release: true };

impl<'a> Decoder<'_, 'a> {
    pub(super) fn memory_barrier(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let is_relaxed = opcode.has("relaxed");
        match opcode.modifiers.first() {
            Some(&"init") => {
                let at = self.place_of_barrier(opcode, operands.first())?;
                let (count, state) = (self.src(operands.get(1))?, self.register());
                self.compute(mbarrier::INIT, state, &[count]);
                self.put_barrier(at, state);
            }
            Some(&"inval") => {
                let at = self.place_of_barrier(opcode, operands.first())?;
                let nothing = self.constant(0);
                self.put_barrier(at, nothing);
            }
            Some(word @ (&"expect_tx" | &"complete_tx")) => {
                let at = self.place_of_barrier(opcode, operands.first())?;
                let bytes = self.src(operands.get(1))?;
                let expects = *word == "expect_tx";
                let step = if expects { mbarrier::expect } else { mbarrier::complete };
                let order = Order { strong: true, ..Order::default() };
                self.step(at, None, step, bytes, order);
            }
            Some(word @ (&"arrive" | &"arrive_drop")) => {
                let at = self.place_of_barrier(opcode, operands.get(1))?;
                let token = self.dst(operands.first())?;
                let by = match operands.get(2) {
                    Some(count) => self.src(Some(count))?,
                    None => self.constant(1),
                };
                let step = match (*word == "arrive", opcode.has("expect_tx")) {
                    (true, false) => mbarrier::arrive,
                    (true, true) => mbarrier::arrive_expecting,
                    (false, false) => mbarrier::drop,
                    (false, true) => mbarrier::drop_expecting,
                };
                let order = Order { release: !is_relaxed, ..RELEASE };
                self.step(at, Some(token), step, by, order);
            }
            Some(&"test_wait" | &"try_wait") => {
                let at = self.place_of_barrier(opcode, operands.get(1))?;
                let (phase, is_over) = (self.src(operands.get(2))?, self.dst(operands.first())?);
                let state = self.register();
                // It may wait; that it was not over yet is an answer as well.
                self.emit(Op::Load {
                    at,
                    dst: vec![Some(state)],
                    width: WIDTH,
                    signed: false,
                    order: Order { strong: true, acquire: !is_relaxed, release: false },
                    used: UsedBytes { bytes: u64::MAX, declared: true },
                });
                let by_parity = opcode.has("parity");
                let test = if by_parity { mbarrier::PARITY_IS_OVER } else { mbarrier::IS_OVER };
                self.compute(test, is_over, &[state, phase]);
            }
            Some(&"pending_count") => {
                let (token, count) = (self.src(operands.get(1))?, self.dst(operands.first())?);
                self.compute(mbarrier::PENDING, count, &[token]);
            }
            _ => return self.unsupported(instruction),
        }
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: copies are done when they are asked for, so that it arrives at once. Without
    /// `.noinc` the arrival is one that nobody waited for.
    pub(super) fn arrive_with_copies(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let at = self.place_of_barrier(opcode, instruction.operands.first())?;
        let count = self.constant(u64::from(opcode.has("noinc")));
        self.step(at, None, mbarrier::arrive, count, RELEASE);
        Ok(())
    }

    /// Tells a barrier of bytes that a copy brought.
    pub(super) fn complete_bytes(
        &mut self,
        barrier: Option<&ptx::Operand<'a>>,
        bytes: Reg,
    ) -> Result<(), LoadError> {
        let at = self.address(&Opcode::new("mbarrier.shared"), barrier)?;
        self.step(at, None, mbarrier::complete, bytes, RELEASE);
        Ok(())
    }

    /// Stores a barrier, as any store of the program.
    fn put_barrier(&mut self, at: Address, state: Reg) {
        self.emit(Op::Store { at, src: vec![state], width: WIDTH, order: Order::default() });
    }

    fn step(
        &mut self,
        at: Address,
        dst: Option<Reg>,
        step: fn(u64, u64) -> u64,
        src: Reg,
        order: Order,
    ) {
        let rmw = Rmw::Apply(step);
        self.emit(Op::Atomic { at, dst, rmw, src, width: WIDTH, order, commutes: true });
    }

    /// Where the barrier is. There are no clusters of several blocks: their shared memory is the block's.
    fn place_of_barrier(
        &mut self,
        opcode: &Opcode<'a>,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<Address, LoadError> {
        let at = self.address(opcode, operand)?;
        let is_shared = opcode.modifiers.iter().any(|word| word.starts_with("shared"));
        Ok(Address { space: if is_shared { Space::Shared } else { at.space }, ..at })
    }
}
