//! Branches, calls and ends: `bra`, `brx`, `call`, `ret`, `exit`, `trap`, `nanosleep`.

use super::super::{Callee, Op, Target, flow, link};
use super::{Binding, Decoder};
use crate::error::LoadError;
use crate::lanes::Opcode;
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn branch(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let Some(ptx::Operand::Name(label, 0)) = instruction.operands.first() else {
            return self.error("`bra` needs a label");
        };
        self.jumps.push((self.code.len(), 0, (self.scope(), label), self.line));
        self.emit(Op::Branch { target: 0, reconverge: flow::NEVER });
        Ok(())
    }

    pub(super) fn branch_indexed(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let index = self.src(operands.first())?;
        let labels = match operands.get(1) {
            Some(ptx::Operand::Name(name, 0)) => match self.find(name) {
                Some(Binding::Targets(labels)) => labels,
                _ => return self.error(format!("there is no list of targets `{name}`")),
            },
            _ => return self.error("`brx.idx` needs a list of targets"),
        };
        for (position, label) in labels.iter().enumerate() {
            self.jumps.push((self.code.len(), position, (self.scope(), label), self.line));
        }
        let targets = vec![0; labels.len()];
        self.emit(Op::BranchIndexed { index, targets, reconverge: flow::NEVER });
        Ok(())
    }

    /// `call (results), callee, (args), prototype;` with all but the callee optional.
    pub(super) fn call(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let mut rest = &instruction.operands[..];
        let mut results = Vec::new();
        if let Some((ptx::Operand::List(list), after)) = rest.split_first() {
            results = self.call_variables(list)?;
            rest = after;
        }
        let Some((ptx::Operand::Name(name, 0), after)) = rest.split_first() else {
            return self.error("`call` needs a function");
        };
        let args = match after.first() {
            Some(ptx::Operand::List(list)) => self.call_variables(list)?,
            _ => Vec::new(),
        };
        let callee = match (self.find(name), *name) {
            (Some(Binding::Register(reg)), _) => {
                self.read.insert(reg);
                Callee::Indirect(reg)
            }
            (_, "vprintf") => Callee::Printf,
            (_, "__assertfail") => Callee::AssertFail,
            (_, "malloc") => Callee::Malloc,
            (_, "free") => Callee::Free,
            _ => match self.names.scope.get(name) {
                Some(Target::Function(at)) => Callee::Function(*at),
                _ if self.names.declared.contains(name) => {
                    return Err(link::undefined(name, self.line));
                }
                _ => return self.error(format!("there is no function `{name}`")),
            },
        };
        self.emit(Op::Call { callee, args, results });
        Ok(())
    }

    fn call_variables(&self, list: &[ptx::Operand<'a>]) -> Result<Vec<(u64, u64)>, LoadError> {
        list.iter()
            .map(|operand| match operand {
                ptx::Operand::Name(name, 0) => match self.find(name) {
                    Some(Binding::Call(at, size)) => Ok((at, size)),
                    _ => self.error(format!("`{name}` is no `.param` variable")),
                },
                _ => self.error("a `.param` variable is expected"),
            })
            .collect()
    }

    pub(super) fn ret(
        &mut self,
        _instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        self.emit(Op::Return);
        Ok(())
    }

    pub(super) fn exit(
        &mut self,
        _instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        self.emit(Op::Exit);
        Ok(())
    }

    pub(super) fn trap(
        &mut self,
        _instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        self.emit(Op::Trap);
        Ok(())
    }

    /// `nanosleep`: other warps run.
    pub(super) fn sleep(
        &mut self,
        _instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        self.emit(Op::Yield);
        Ok(())
    }

    /// A hint: the emulator has no caches, and no registers to share.
    pub(super) fn hint(
        &mut self,
        _instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        self.emit(Op::Nop);
        Ok(())
    }
}
