//! `mov`, and its forms that take registers apart and put them together.

use super::Decoder;
use super::demand::Piece;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    /// `mov` of one register, of a vector into a register, or of a register into a vector.
    pub(super) fn mov(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        match (operands.first(), operands.get(1)) {
            (Some(ptx::Operand::Vector(_)), _) => self.unpack(opcode, operands),
            (_, Some(ptx::Operand::Vector(_))) => self.pack(opcode, operands),
            _ => self.computation(instruction, opcode),
        }
    }

    fn unpack(
        &mut self,
        opcode: &Opcode<'a>,
        operands: &[ptx::Operand<'a>],
    ) -> Result<(), LoadError> {
        let dst = self.destinations(operands.first())?;
        let src = self.src(operands.get(1))?;
        let bits = lanes::type_bits(opcode.kind()).unwrap_or(0) / dst.len().max(1) as u32;
        let (shift, narrow) = match bits {
            8 => ("shr.u64", "cvt.u8.u64"),
            16 => ("shr.u64", "cvt.u16.u64"),
            32 => ("shr.u64", "cvt.u32.u64"),
            _ => return self.error(format!("`mov.{}` of this many parts", opcode.kind())),
        };
        let (shift, narrow) = (self.lane_fn(shift)?, self.lane_fn(narrow)?);
        for (position, dst) in dst.into_iter().enumerate() {
            let Some(dst) = dst else { continue };
            let at = bits * position as u32;
            // One of its own for each, so that it is seen which parts are used.
            let (part, by) = (self.register(), self.constant(at.into()));
            self.pieces.insert(self.code.len(), Piece::Shifted(at));
            self.compute(shift, part, &[src, by]);
            self.pieces.insert(self.code.len(), Piece::Low(bits));
            self.compute(narrow, dst, &[part]);
        }
        Ok(())
    }

    fn pack(
        &mut self,
        opcode: &Opcode<'a>,
        operands: &[ptx::Operand<'a>],
    ) -> Result<(), LoadError> {
        let src = self.sources(operands.get(1))?;
        let bits = lanes::type_bits(opcode.kind()).unwrap_or(0) / src.len().max(1) as u32;
        if !matches!(bits, 8 | 16 | 32) {
            return self.error(format!("`mov.{}` of this many parts", opcode.kind()));
        }
        let insert = self.lane_fn("bfi.b64")?;
        let whole = self.register();
        let mov = self.lane_fn("mov.b64")?;
        let zero = self.constant(0);
        self.compute(mov, whole, &[zero]);
        for (position, src) in src.into_iter().enumerate() {
            let at = self.constant(u64::from(bits) * position as u64);
            let length = self.constant(bits.into());
            self.compute(insert, whole, &[src, whole, at, length]);
        }
        let dst = self.dst(operands.first())?;
        self.compute(mov, dst, &[whole]);
        Ok(())
    }
}
