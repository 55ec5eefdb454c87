//! Operands: registers by name, constants, addresses of variables, special registers.

use super::super::{CODE_WINDOW, MAX_WARPS, Op, Reg, Special, Target};
use super::shared::{RESERVED_SHARED, Shared};
use super::{Binding, Decoder};
use crate::error::LoadError;
use crate::lanes::{self, LaneFn, Opcode};
use crate::ptx;
use crate::time::Counter;

impl<'a> Decoder<'_, 'a> {
    pub(super) fn find(&self, name: &str) -> Option<Binding<'a>> {
        for (_, scope) in self.scopes.iter().rev() {
            if let Some(binding) = scope.get(name) {
                return Some(binding.clone());
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let Some(Binding::Registers(first, count)) = scope.get(prefix) else { continue };
            match name[prefix.len()..].parse::<u32>() {
                Ok(number) if number < *count => return Some(Binding::Register(first + number)),
                _ => {}
            }
        }
        None
    }

    pub(super) fn write_register(&self, name: &str) -> Result<Reg, LoadError> {
        match self.find(name) {
            Some(Binding::Register(reg)) => Ok(reg),
            _ => self.error(format!("there is no register `{name}`")),
        }
    }

    pub(super) fn read_register(&mut self, name: &str) -> Result<Reg, LoadError> {
        let reg = self.write_register(name)?;
        self.read.insert(reg);
        Ok(reg)
    }

    pub(super) fn dst(&mut self, operand: Option<&ptx::Operand<'a>>) -> Result<Reg, LoadError> {
        match operand {
            Some(ptx::Operand::Name("_", 0)) => Ok(self.register()),
            Some(ptx::Operand::Name(name, 0)) => self.write_register(name),
            _ => self.error("a register is expected as the destination"),
        }
    }

    /// A destination that may come with a predicate: `d|p`.
    pub(super) fn dst_pair(
        &mut self,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<(Reg, Option<Reg>), LoadError> {
        match operand {
            Some(ptx::Operand::Pair(a, b)) => {
                let (first, second) = (self.dst(Some(a))?, self.dst(Some(b))?);
                Ok((first, Some(second)))
            }
            other => Ok((self.dst(other)?, None)),
        }
    }

    pub(super) fn src(&mut self, operand: Option<&ptx::Operand<'a>>) -> Result<Reg, LoadError> {
        match operand {
            Some(ptx::Operand::Immediate(value)) => Ok(self.constant(*value)),
            Some(ptx::Operand::Name(name, offset)) => self.named(name, *offset),
            Some(ptx::Operand::Element(name, index)) => self.element(name, *index),
            Some(ptx::Operand::Not(name)) => {
                let (from, to) = (self.read_register(name)?, self.register());
                let f = self.lane_fn("not.pred")?;
                self.compute(f, to, &[from]);
                Ok(to)
            }
            Some(_) => self.error("a register or number is expected"),
            None => self.error("an operand is missing"),
        }
    }

    /// The address of an element of an array.
    pub(super) fn element(&mut self, name: &str, index: u64) -> Result<Reg, LoadError> {
        let of_module = || match *self.names.scope.get(name)? {
            Target::Variable(at) => self.names.widths.get(at),
            Target::Function(_) => None,
        };
        match self.widths.get(name).or_else(of_module) {
            Some(width) => self.named(name, index.wrapping_mul(*width) as i64),
            None => self.error(format!("`{name}[{index}]`: there is no array `{name}`")),
        }
    }

    fn named(&mut self, name: &str, offset: i64) -> Result<Reg, LoadError> {
        let plus = |base: u64| base.wrapping_add_signed(offset);
        match self.find(name) {
            Some(Binding::Register(reg)) if offset == 0 => {
                self.read.insert(reg);
                return Ok(reg);
            }
            Some(Binding::Local(at)) => {
                let dst = self.register();
                self.always(Op::Local { offset: plus(at), dst });
                return Ok(dst);
            }
            Some(Binding::Shared(at) | Binding::Kernel(at) | Binding::Call(at, _)) => {
                return Ok(self.constant(plus(at)));
            }
            Some(_) => return self.error(format!("`{name}` is no value")),
            None => {}
        }
        if let Some(special) = special(name) {
            let dst = self.register();
            self.always(Op::Special { special, dst });
            return Ok(dst);
        }
        let linked = || match *self.names.scope.get(name)? {
            Target::Function(at) => Some(CODE_WINDOW + at as u64),
            Target::Variable(at) => {
                let shared = self.names.shared.get(&Shared::Module(at));
                shared.or(self.names.addresses.get(at)).copied()
            }
        };
        match constant(name).or_else(linked) {
            Some(value) => Ok(self.constant(plus(value))),
            None => self.error(format!("there is no `{name}`")),
        }
    }

    pub(super) fn destinations(
        &mut self,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<Vec<Option<Reg>>, LoadError> {
        let one = |this: &mut Self, operand: &ptx::Operand<'a>| match operand {
            ptx::Operand::Name("_", 0) => Ok(None),
            other => this.dst(Some(other)).map(Some),
        };
        match operand {
            Some(ptx::Operand::Vector(list)) => list.iter().map(|item| one(self, item)).collect(),
            Some(other) => Ok(vec![one(self, other)?]),
            None => self.error("an operand is missing"),
        }
    }

    pub(super) fn sources(
        &mut self,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<Vec<Reg>, LoadError> {
        match operand {
            Some(ptx::Operand::Vector(list)) => {
                list.iter().map(|item| self.src(Some(item))).collect()
            }
            other => Ok(vec![self.src(other)?]),
        }
    }

    pub(super) fn lane_fn(&self, opcode: &str) -> Result<LaneFn, LoadError> {
        match lanes::lookup(&Opcode::new(opcode)) {
            Some((f, _)) => Ok(f),
            None => self.error(format!("`{opcode}` is not supported")),
        }
    }

    pub(super) fn compute(&mut self, f: LaneFn, dst: Reg, sources: &[Reg]) {
        // Sources that the function does not read are any register.
        let mut src = [dst; 4];
        src[..sources.len()].copy_from_slice(sources);
        self.emit(Op::Lanes { f, dst, src });
    }
}

/// The special register of a name.
fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let special = match name.rsplit_once('.') {
        Some(("%tid", suffix)) => Special::Tid(axis(suffix)?),
        Some(("%ntid", suffix)) => Special::BlockDim(axis(suffix)?),
        Some(("%ctaid", suffix)) => Special::BlockIdx(axis(suffix)?),
        Some(("%nctaid", suffix)) => Special::GridDim(axis(suffix)?),
        Some(_) => return None,
        None => match name {
            "%laneid" => Special::LaneId,
            "%warpid" => Special::WarpId,
            "%lanemask_eq" => Special::LaneMask(|lane| 1 << lane),
            "%lanemask_lt" => Special::LaneMask(|lane| (1 << lane) - 1),
            "%lanemask_le" => Special::LaneMask(|lane| (1 << lane) | ((1 << lane) - 1)),
            "%lanemask_gt" => Special::LaneMask(|lane| !((1 << lane) | ((1 << lane) - 1))),
            "%lanemask_ge" => Special::LaneMask(|lane| !((1 << lane) - 1)),
            "%clock" | "%clock64" => Special::Time(Counter::Clock, 0),
            "%clock_hi" => Special::Time(Counter::Clock, 32),
            "%globaltimer" | "%globaltimer_lo" => Special::Time(Counter::Timer, 0),
            "%globaltimer_hi" => Special::Time(Counter::Timer, 32),
            "%dynamic_smem_size" => Special::DynamicShared,
            "%total_smem_size" => Special::TotalShared,
            "%gridid" => Special::GridId,
            "%envreg1" => Special::Workspace(32),
            "%envreg2" => Special::Workspace(0),
            _ => return None,
        },
    };
    Some(special)
}

/// Names of constants.
fn constant(name: &str) -> Option<u64> {
    match name {
        "WARP_SZ" => Some(32),
        // The one multiprocessor that there is.
        "%smid" | RESERVED_SHARED => Some(0),
        "%nsmid" => Some(1),
        "%nwarpid" => Some(MAX_WARPS),
        _ => None,
    }
}
