//! What the lanes of a warp do together: `vote`, `activemask`, `shfl`, `match`, `redux`, `elect`.

use super::super::{Op, Shuffle, Vote};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;

const VOTES: &[(&str, Vote)] =
    &[("ballot", Vote::Ballot), ("all", Vote::All), ("any", Vote::Any), ("uni", Vote::Uniform)];

const SHUFFLES: &[(&str, Shuffle)] = &[
    ("up", Shuffle::Up),
    ("down", Shuffle::Down),
    ("bfly", Shuffle::Butterfly),
    ("idx", Shuffle::Index),
];

impl<'a> Decoder<'_, 'a> {
    pub(super) fn vote(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let Some(kind) = opcode.choose(VOTES) else { return self.unsupported(instruction) };
        let pred = self.src(operands.get(1))?;
        let mask = if opcode.has("sync") { Some(self.src(operands.get(2))?) } else { None };
        let dst = self.dst(operands.first())?;
        self.emit(Op::Vote { kind, dst, pred, mask });
        Ok(())
    }

    pub(super) fn active_mask(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let dst = self.dst(instruction.operands.first())?;
        self.emit(Op::ActiveMask { dst });
        Ok(())
    }

    pub(super) fn shuffle(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let Some(kind) = opcode.choose(SHUFFLES) else { return self.unsupported(instruction) };
        let (src, by, clamp) =
            (self.src(operands.get(1))?, self.src(operands.get(2))?, self.src(operands.get(3))?);
        let mask = if opcode.has("sync") {
            self.src(operands.get(4))?
        } else {
            self.constant(0xffff_ffff)
        };
        let (dst, pred) = self.dst_pair(operands.first())?;
        self.emit(Op::Shuffle { kind, dst, pred, src, by, clamp, mask });
        Ok(())
    }

    pub(super) fn find_equal(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let (dst, pred) = self.dst_pair(operands.first())?;
        let bits = lanes::type_bits(opcode.kind()).unwrap_or(32);
        let (src, mask) = (self.src(operands.get(1))?, self.src(operands.get(2))?);
        self.emit(Op::Match { all: opcode.has("all"), dst, pred, src, bits, mask });
        Ok(())
    }

    pub(super) fn reduce(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let operation = *opcode.modifiers.get(1).unwrap_or(&"");
        let step = lanes::atomic(operation, opcode.kind()).filter(|_| !opcode.has("f32"));
        let Some(step) = step else { return self.unsupported(instruction) };
        let dst = self.dst(operands.first())?;
        let (src, mask) = (self.src(operands.get(1))?, self.src(operands.get(2))?);
        self.emit(Op::Reduce { step, dst, src, mask });
        Ok(())
    }

    pub(super) fn elect(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let (first, second) = self.dst_pair(operands.first())?;
        let mask = self.src(operands.get(1))?;
        let (dst, pred) = second.map_or((None, first), |pred| (Some(first), pred));
        self.emit(Op::Elect { dst, pred, mask });
        Ok(())
    }
}
