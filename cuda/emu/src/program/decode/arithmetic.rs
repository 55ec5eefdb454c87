//! What computes a register: arithmetic, logic, shifts and conversions (`cvt`), which tables in `lanes` name,
//! and sums with a carry.

use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    /// An instruction that only computes a register.
    pub(super) fn computation(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let Some((f, count)) = lanes::lookup(opcode) else { return self.unsupported(instruction) };
        if instruction.operands.len() != count + 1 {
            return self.unsupported(instruction);
        }
        let mut src = Vec::new();
        for operand in &instruction.operands[1..] {
            src.push(self.src(Some(operand))?);
        }
        let dst = self.dst(instruction.operands.first())?;
        self.compute(f, dst, &src);
        Ok(())
    }

    /// `add`, `sub` and `mad`; `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc` and `madc` hand on a carry.
    pub(super) fn add_with_carry(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        if !opcode.has("cc") && !opcode.base.ends_with('c') {
            return self.computation(instruction, opcode);
        }
        let operands = &instruction.operands;
        let wide = match opcode.kind() {
            "u32" | "s32" | "b32" => false,
            "u64" | "s64" | "b64" => true,
            _ => return self.unsupported(instruction),
        };
        let carry = match self.carry {
            Some(carry) => carry,
            None => {
                let carry = self.register();
                *self.carry.insert(carry)
            }
        };
        let subtract = opcode.base.starts_with("sub");
        let (mut a, mut b) = (self.src(operands.get(1))?, self.src(operands.get(2))?);
        if opcode.base.starts_with("mad") {
            let half = if opcode.has("hi") { "hi" } else { "lo" };
            let multiply = self.lane_fn(&format!("mul.{half}.{}", opcode.kind()))?;
            let product = self.register();
            self.compute(multiply, product, &[a, b]);
            (a, b) = (product, self.src(operands.get(3))?);
        }
        let carry_in = if opcode.base.ends_with('c') { carry } else { self.constant(0) };
        let next = self.register();
        let (out, value) = lanes::carry(subtract, wide);
        self.compute(out, next, &[a, b, carry_in]);
        let dst = self.dst(operands.first())?;
        self.compute(value, dst, &[a, b, carry_in]);
        if opcode.has("cc") {
            let mov = self.lane_fn("mov.pred")?;
            self.compute(mov, carry, &[next]);
        }
        Ok(())
    }
}
