//! Comparisons: `setp`, `set`.

use super::super::Reg;
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::{self, LaneFn, Opcode};
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn set_predicate(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let Some(f) = lanes::comparison(opcode) else { return self.unsupported(instruction) };
        let (a, b) = (self.src(operands.get(1))?, self.src(operands.get(2))?);
        let combine = opcode.modifiers.iter().find(|word| matches!(**word, "and" | "or" | "xor"));
        let (dst, second) = self.dst_pair(operands.first())?;
        if opcode.kind().ends_with("x2") {
            if combine.is_some() {
                return self.unsupported(instruction);
            }
            let [low, high] = self.compare_both(f, a, b)?;
            let mov = self.lane_fn("mov.pred")?;
            self.compute(mov, dst, &[low]);
            if let Some(second) = second {
                self.compute(mov, second, &[high]);
            }
            return Ok(());
        }
        if combine.is_none() && second.is_none() {
            self.compute(f, dst, &[a, b]);
            return Ok(());
        }
        let c = if combine.is_some() { Some(self.src(operands.get(3))?) } else { None };
        let (truth, falsehood) = (self.register(), self.register());
        let not = self.lane_fn("not.pred")?;
        self.compute(f, truth, &[a, b]);
        self.compute(not, falsehood, &[truth]);
        let combine = self.lane_fn(combine.map_or("and", |word| word))?;
        // Both read before either is written: a destination may be the third operand.
        let c = c.unwrap_or_else(|| self.constant(1));
        self.compute(combine, truth, &[truth, c]);
        self.compute(combine, falsehood, &[falsehood, c]);
        let mov = self.lane_fn("mov.pred")?;
        self.compute(mov, dst, &[truth]);
        if let Some(second) = second {
            self.compute(mov, second, &[falsehood]);
        }
        Ok(())
    }

    /// What a comparison says of the two numbers in a register, the lower first.
    fn compare_both(&mut self, f: LaneFn, a: Reg, b: Reg) -> Result<[Reg; 2], LoadError> {
        let truths @ [low, high] = [self.register(), self.register()];
        let (shift, by) = (self.lane_fn("shr.u32")?, self.constant(16));
        let (upper_a, upper_b) = (self.register(), self.register());
        self.compute(shift, upper_a, &[a, by]);
        self.compute(shift, upper_b, &[b, by]);
        self.compute(f, low, &[a, b]);
        self.compute(f, high, &[upper_a, upper_b]);
        Ok(truths)
    }

    pub(super) fn set(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let combined = opcode.modifiers.iter().any(|word| matches!(*word, "and" | "or" | "xor"));
        let Some(f) = lanes::comparison(opcode).filter(|_| !combined) else {
            return self.unsupported(instruction);
        };
        let (a, b) =
            (self.src(instruction.operands.get(1))?, self.src(instruction.operands.get(2))?);
        let both = opcode.kind().ends_with("x2");
        let one = match opcode.types().next() {
            Some("u32" | "s32") if both => 0xffff,
            Some("f32") => 1f32.to_bits(),
            Some("f16" | "f16x2") => 0x3c00,
            Some("bf16" | "bf16x2") => 0x3f80,
            Some("u16" | "s16") => 0xffff,
            _ => u32::MAX,
        };
        let select = self.lane_fn("selp.b32")?;
        let dst = self.dst(instruction.operands.first())?;
        let zero = self.constant(0);
        if both {
            let [low, high] = self.compare_both(f, a, b)?;
            let (below, above) = (self.constant(one.into()), self.constant(u64::from(one) << 16));
            self.compute(select, low, &[below, zero, low]);
            self.compute(select, high, &[above, zero, high]);
            let or = self.lane_fn("or.b32")?;
            self.compute(or, dst, &[low, high]);
            return Ok(());
        }
        let (truth, one) = (self.register(), self.constant(one.into()));
        self.compute(f, truth, &[a, b]);
        self.compute(select, dst, &[one, zero, truth]);
        Ok(())
    }
}
