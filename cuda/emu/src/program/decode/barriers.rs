//! Barriers of a block and of a warp: `bar`, `barrier`, `bar.warp.sync`.

use super::super::{BarrierKind, Op};
use super::Decoder;
use crate::error::LoadError;
use crate::lanes::Opcode;
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn barrier(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        if opcode.base == "bar" && opcode.has("warp") {
            let mask = self.src(operands.first())?;
            self.emit(Op::SyncWarp { mask });
            return Ok(());
        }
        if opcode.has("cluster") {
            return self.unsupported(instruction);
        }
        let red = opcode.has("red");
        let first = usize::from(red);
        let id = self.src(operands.get(first))?;
        let has_count = operands.len() > first + 1 + usize::from(red);
        let count = if has_count { Some(self.src(operands.get(first + 1))?) } else { None };
        let kind = if red {
            let pred = self.src(operands.last())?;
            let dst = self.dst(operands.first())?;
            let kinds = [
                ("popc", BarrierKind::Count { dst, pred }),
                ("and", BarrierKind::All { dst, pred }),
            ];
            opcode.choose(&kinds).unwrap_or(BarrierKind::Any { dst, pred })
        } else if opcode.has("arrive") {
            BarrierKind::Arrive
        } else {
            BarrierKind::Sync
        };
        self.emit(Op::Barrier { kind, id, count });
        Ok(())
    }
}
