//! Loads, stores, copies and fences, and generic addresses: `ld`, `ldu`, `st`, `cp.async`, `membar`, `fence`,
//! `cvta`, `isspacep`.

use super::super::{
    Address, LOCAL_WINDOW, Op, Order, PARAM_WINDOW, Reg, SHARED_WINDOW, Space, UsedBytes,
    WINDOW_SHIFT,
};
use super::{Binding, Decoder};
use crate::error::LoadError;
use crate::lanes::{self, Opcode};
use crate::ptx;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn load(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let at = self.address(opcode, operands.get(1))?;
        let dst = self.destinations(operands.first())?;
        let (width, signed) = (self.width(opcode)?, opcode.kind().starts_with('s'));
        // What the code does with them is seen when all of it is there.
        let used = match self.used_bytes {
            Some(bytes) => UsedBytes { bytes, declared: true },
            None => UsedBytes { bytes: u64::MAX, declared: false },
        };
        self.emit(Op::Load { at, dst, width, signed, order: order(opcode), used });
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let at = self.address(opcode, operands.first())?;
        let src = self.sources(operands.get(1))?;
        let width = self.width(opcode)?;
        self.emit(Op::Store { at, src, width, order: order(opcode) });
        Ok(())
    }

    pub(super) fn copy_async(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        if !opcode.has("async") {
            return self.unsupported(instruction);
        }
        if opcode.has("mbarrier") && opcode.has("arrive") && !opcode.has("bulk") {
            return self.arrive_with_copies(instruction, opcode);
        }
        let operands = &instruction.operands;
        let waits = ["commit_group", "wait_group", "wait_all"].iter().any(|word| opcode.has(word));
        if opcode.has("bulk") && !waits {
            return self.copy_bulk(instruction, opcode);
        }
        if waits {
            // The copies are done when they are asked for.
            self.emit(Op::Nop);
            return Ok(());
        }
        let size = match operands.get(2) {
            Some(ptx::Operand::Immediate(size @ (4 | 8 | 16))) => *size,
            _ => return self.unsupported(instruction),
        };
        let mut to = self.address(&Opcode::new("st.shared"), operands.first())?;
        let mut from = self.address(&Opcode::new("ld.global"), operands.get(1))?;
        (to.space, from.space) = (Space::Shared, Space::Global);
        // Behind the size, that of the source or whether it is ignored, then what caches are told.
        let given = operands.get(3).filter(|_| operands.len() > 4 || !opcode.has("L2::cache_hint"));
        let source_size = match given {
            Some(operand) => {
                let given = self.src(Some(operand))?;
                match self.predicates.iter().any(|range| range.contains(&given)) {
                    true => self.unless(given, size)?,
                    false => given,
                }
            }
            None => self.constant(size),
        };
        self.emit(Op::CopyAsync { to, from, size, source_size });
        Ok(())
    }

    /// A number, or 0 where a predicate holds.
    fn unless(&mut self, predicate: Reg, value: u64) -> Result<Reg, LoadError> {
        let (select, out) = (self.lane_fn("selp.b64")?, self.register());
        let (value, zero) = (self.constant(value), self.constant(0));
        self.compute(select, out, &[zero, value, predicate]);
        Ok(out)
    }

    /// `cp.async.bulk` without tensors: done when it is asked for, so that its bytes are told at once.
    fn copy_bulk(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        if opcode.has("prefetch") && !opcode.has("tensor") {
            self.emit(Op::Nop);
            return Ok(());
        }
        // Other words ask for other operands.
        let known =
            ["async", "bulk", "bulk_group", "mbarrier::complete_tx::bytes", "L2::cache_hint"];
        let is_known = |word: &&str| known.contains(word) || bulk_space(word).is_some();
        let spaces: Vec<Space> =
            opcode.modifiers.iter().filter_map(|word| bulk_space(word)).collect();
        let [to_space, from_space] = spaces[..] else { return self.unsupported(instruction) };
        if !opcode.modifiers.iter().all(is_known)
            || (to_space, from_space) == (Space::Global, Space::Global)
        {
            return self.unsupported(instruction);
        }
        let operands = &instruction.operands;
        let mut to = self.address(opcode, operands.first())?;
        let mut from = self.address(opcode, operands.get(1))?;
        (to.space, from.space) = (to_space, from_space);
        let size = self.src(operands.get(2))?;
        self.emit(Op::CopyBulk { to, from, size });
        if opcode.has("mbarrier::complete_tx::bytes") {
            self.complete_bytes(operands.get(3), size)?;
        }
        Ok(())
    }

    pub(super) fn fence(
        &mut self,
        _instruction: &ptx::Instruction<'a>,
        _opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        self.emit(Op::Fence);
        Ok(())
    }

    pub(super) fn convert_address(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let window = match state_space(opcode) {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Kernel => PARAM_WINDOW,
            _ => 0,
        };
        let by = if opcode.has("to") { window.wrapping_neg() } else { window };
        let add = self.lane_fn("add.u64")?;
        let by = self.constant(by);
        let (src, dst) = (self.src(operands.get(1))?, self.dst(operands.first())?);
        self.compute(add, dst, &[src, by]);
        Ok(())
    }

    pub(super) fn is_space(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let window = match opcode.modifiers.first() {
            Some(&("shared" | "shared::cta")) => SHARED_WINDOW,
            Some(&"local") => LOCAL_WINDOW,
            Some(&"global") => 0,
            _ => return self.unsupported(instruction),
        };
        let (shift, equal) =
            (self.lane_fn("shr.u64")?, lanes::comparison(&Opcode::new("setp.eq.u64")));
        let (Some(equal), top) = (equal, self.register()) else {
            return self.unsupported(instruction);
        };
        let (src, dst) =
            (self.src(instruction.operands.get(1))?, self.dst(instruction.operands.first())?);
        let by = self.constant(WINDOW_SHIFT.into());
        let window = self.constant(window >> WINDOW_SHIFT);
        self.compute(shift, top, &[src, by]);
        self.compute(equal, dst, &[top, window]);
        Ok(())
    }

    pub(super) fn address(
        &mut self,
        opcode: &Opcode<'a>,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<Address, LoadError> {
        if let Some(ptx::Operand::Element(name, index)) = operand {
            let base = self.element(name, *index)?;
            return Ok(Address { space: state_space(opcode), base, offset: 0 });
        }
        let Some(ptx::Operand::Address(base, offset)) = operand else {
            return self.error(format!("`{}` needs an address", opcode.base));
        };
        let mut space = state_space(opcode);
        // A register goes to parameters of the function that it is in.
        let of_call = !self.is_kernel
            || matches!(&**base, ptx::Operand::Name(name, _)
                if matches!(self.find(name), Some(Binding::Call(..))));
        if matches!(space, Space::Kernel) && of_call {
            space = Space::Call;
        }
        let base = self.src(Some(base))?;
        Ok(Address { space, base, offset: *offset })
    }

    pub(super) fn width(&self, opcode: &Opcode<'a>) -> Result<u64, LoadError> {
        match lanes::type_bits(opcode.kind()) {
            Some(bits @ 8..) => Ok(u64::from(bits / 8)),
            _ => self.error(format!("`{}` has no type that memory holds", opcode.base)),
        }
    }
}

/// What `.volatile`, `.relaxed`, `.acquire` … say.
pub(super) fn order(opcode: &Opcode<'_>) -> Order {
    let has = |word| opcode.has(word);
    Order {
        strong: has("volatile")
            || has("relaxed")
            || has("acquire")
            || has("release")
            || has("mmio"),
        acquire: has("acquire") || has("acq_rel"),
        release: has("release") || has("acq_rel"),
    }
}

/// Source or destination of a bulk copy. A cluster is one block.
fn bulk_space(word: &str) -> Option<Space> {
    match word {
        "global" => Some(Space::Global),
        "shared::cta" | "shared::cluster" => Some(Space::Shared),
        _ => None,
    }
}

/// The state space that an opcode names. Parameters are those of the kernel here.
fn state_space(opcode: &Opcode<'_>) -> Space {
    let spaces = [
        ("global", Space::Global),
        ("const", Space::Global),
        ("shared", Space::Shared),
        ("shared::cta", Space::Shared),
        ("local", Space::Local),
        ("param", Space::Kernel),
        ("param::entry", Space::Kernel),
        ("param::func", Space::Kernel),
    ];
    opcode.choose(&spaces).unwrap_or(Space::Generic)
}
