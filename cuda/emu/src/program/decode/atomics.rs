//! Atomic operations and reductions: `atom`, `red`.

use super::super::{Op, Order, Rmw};
use super::Decoder;
use super::memory::order;
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn atomic(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let kind = opcode.kind();
        let operands = &instruction.operands;
        let has_dst = opcode.base == "atom";
        let dst = if has_dst { Some(self.dst(operands.first())?) } else { None };
        let first = usize::from(has_dst);
        let at = self.address(opcode, operands.get(first))?;
        let mut src = self.src(operands.get(first + 1))?;
        let vector = ["v2", "v4", "v8"].iter().any(|word| opcode.has(word));
        let operation = opcode.modifiers.iter().find(|word| {
            matches!(
                **word,
                "add" | "min" | "max" | "and" | "or" | "xor" | "exch" | "inc" | "dec" | "cas"
            )
        });
        let rmw = match operation {
            Some(&"cas") => {
                let compare = src;
                src = self.src(operands.get(first + 2))?;
                Rmw::CompareSwap(compare)
            }
            Some(operation) => match lanes::atomic(operation, kind) {
                Some(step) => Rmw::Apply(step),
                None => return self.unsupported(instruction),
            },
            None => return self.unsupported(instruction),
        };
        let width = self.width(opcode)?;
        if vector || width < 2 {
            return self.unsupported(instruction);
        }
        let order = Order { strong: true, ..order(opcode) };
        let commutes = !(kind.starts_with('f') || kind.starts_with("bf"))
            && operation.is_some_and(|word| !matches!(*word, "exch" | "inc" | "dec" | "cas"));
        self.emit(Op::Atomic { at, dst, rmw, src, width, order, commutes });
        Ok(())
    }
}
