//! Products of matrices: `mma`.

use super::super::{MatrixMultiply, Op, Reg};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    /// `mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32`, `T` being `f16` or `bf16`.
    pub(super) fn matrix_multiply(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let value = match &opcode.modifiers[..] {
            ["sync", "aligned", "m16n8k16", "row", "col", "f32", a, b, "f32"] if a == b => {
                lanes::short_value(a)
            }
            _ => None,
        };
        let [d, a, b, c] = &instruction.operands[..] else { return self.unsupported(instruction) };
        let Some(value) = value else { return self.unsupported(instruction) };
        let (a, b, c) = (self.sources(Some(a))?, self.sources(Some(b))?, self.sources(Some(c))?);
        let d = self.destinations(Some(d))?;
        let d: Vec<Reg> = d.into_iter().flatten().collect();
        match (d.try_into(), a.try_into(), b.try_into(), c.try_into()) {
            (Ok(d), Ok(a), Ok(b), Ok(c)) => {
                self.emit(Op::MatrixMultiply(Box::new(MatrixMultiply { value, d, a, b, c })));
                Ok(())
            }
            _ => self.unsupported(instruction),
        }
    }
}
