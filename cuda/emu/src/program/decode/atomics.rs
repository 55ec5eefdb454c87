//! Atomic operations and reductions: `atom`, `red`.

use super::super::{Address, Op, Order, Rmw};
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
        let first = usize::from(has_dst);
        let at = self.address(opcode, operands.get(first))?;
        let mut sources = self.sources(operands.get(first + 1))?;
        let results = match has_dst {
            true => self.destinations(operands.first())?,
            false => vec![None; sources.len()],
        };
        let operation = opcode.modifiers.iter().find(|word| {
            matches!(
                **word,
                "add" | "min" | "max" | "and" | "or" | "xor" | "exch" | "inc" | "dec" | "cas"
            )
        });
        let Some(operation) = operation else { return self.unsupported(instruction) };
        let rmw = match lanes::atomic(operation, kind) {
            // Global memory takes subnormal numbers for zero, shared memory does not (PTX ISA, atom).
            Some(shared) if (*operation, kind) == ("add", "f32") => {
                let global = lanes::atomic("add.ftz", kind).unwrap_or(shared);
                Rmw::ByPlace { global, shared }
            }
            Some(step) => Rmw::Apply(step),
            None if *operation == "cas" => {
                let compare = self.src(operands.get(first + 1))?;
                sources = vec![self.src(operands.get(first + 2))?];
                Rmw::CompareSwap(compare)
            }
            None => return self.unsupported(instruction),
        };
        let width = self.width(opcode)?;
        let parts = [("v2", 2), ("v4", 4), ("v8", 8)];
        // Of numbers of 16 bits by themselves there are sums alone.
        let is_short = kind.contains("f16") && *operation != "add";
        if width < 2
            || is_short && sources.len() == 1
            || sources.len() != opcode.choose(&parts).unwrap_or(1)
            || results.len() != sources.len()
        {
            return self.unsupported(instruction);
        }
        let order = Order { strong: true, ..order(opcode) };
        let rounds = kind.starts_with('f') || kind.starts_with("bf");
        let ordered = matches!(*operation, "exch" | "inc" | "dec" | "cas");
        let commutes = !rounds && !ordered;
        // Of a vector, each part is changed by itself.
        for (part, (src, dst)) in sources.into_iter().zip(results).enumerate() {
            let at = Address { offset: at.offset + (part as u64 * width) as i64, ..at };
            self.emit(Op::Atomic { at, dst, rmw, src, width, order, commutes });
        }
        Ok(())
    }
}
