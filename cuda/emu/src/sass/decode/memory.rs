//! Loads, stores, atomics, copies and constants.

use nvabi_sass::{ConstantBank, Modifier, Op as Name, Value};

use super::{BANKS, Decoded, Decoder, Op, TRUE, ZERO};
use crate::lanes;
use crate::program::{LOCAL_WINDOW, Rmw, SHARED_WINDOW, Space};
use crate::sass::{Address, Predicate, Source};

/// Bytes of one part, parts, and whether it is extended by its sign.
pub(super) struct Size {
    pub(super) width: u64,
    pub(super) parts: u8,
    pub(super) signed: bool,
}

impl Decoder<'_> {
    pub(super) fn memory(&self) -> Decoded<Op> {
        use Name::*;
        match self.instruction.op {
            LDC | ULDC => self.constant(),
            LD => self.load(0, 1, Space::Generic),
            LDG => self.load(1, 2, Space::Global),
            LDL => self.load(0, 1, Space::Local),
            LDS => self.load(0, 1, Space::Shared),
            ST => self.store(Space::Generic),
            STG => self.store(Space::Global),
            STL => self.store(Space::Local),
            STS => self.store(Space::Shared),
            RED | REDG => self.atomic(Space::Generic, None, 0),
            ATOM => self.atomic(Space::Generic, Some(1), 2),
            ATOMG => self.atomic(Space::Global, Some(1), 2),
            ATOMS if self.has(Modifier::ARRIVE) => self.arrive(Some(self.register(0)?), 1),
            ATOMS => self.atomic(Space::Shared, Some(0), 1),
            ARRIVES => self.arrive(None, 0),
            LDSM => self.matrix(),
            STSM => self.store_matrix(),
            LDGSTS => self.copy(),
            QSPC => self.query(),
            MEMBAR | FENCE => Ok(Op::Fence),
            // Loads and copies are complete when the next instruction runs, and there are no caches.
            LDGDEPBAR | DEPBAR | CCTL | CCTLL | ERRBAR | CGAERRBAR => Ok(Op::Nop),
            _ => Err("it is decoded, but not run".to_owned()),
        }
    }

    pub(super) fn size(&self) -> Size {
        let size = |width, parts, signed| Size { width, parts, signed };
        match () {
            () if self.has(Modifier::U8) => size(1, 1, false),
            () if self.has(Modifier::S8) => size(1, 1, true),
            () if self.has(Modifier::U16) => size(2, 1, false),
            () if self.has(Modifier::S16) => size(2, 1, true),
            () if self.has(Modifier::_64) => size(4, 2, false),
            () if self.has(Modifier::_128) => size(4, 4, false),
            () => size(4, 1, false),
        }
    }

    /// Whether others may watch what is accessed.
    fn is_strong(&self) -> bool {
        let name = |modifier: &Modifier| format!("{modifier:?}");
        let modifiers = self.instruction.modifiers.iter().map(name);
        modifiers.into_iter().any(|name| name.starts_with("STRONG") || name.starts_with("MMIO"))
    }

    fn address(&self, at: usize, space: Space) -> Decoded<Address> {
        let Value::Memory { base, uniform, offset, .. } = self.operand(at)?.value else {
            return Err(format!("operand {at} is no address"));
        };
        let has = |suffix| base.is_some_and(|base| base.suffixes.contains(&suffix));
        let is_short = matches!(space, Space::Shared | Space::Local) || has(Modifier::U32);
        let scales = [(Modifier::X4, 4), (Modifier::X8, 8), (Modifier::X16, 16)];
        let scale = scales.into_iter().find(|(suffix, _)| has(*suffix)).map_or(1, |(_, by)| by);
        Ok(Address {
            space,
            base: base.map(|base| base.register).filter(|register| *register != ZERO),
            wide: !is_short && (has(Modifier::_64) || self.has(Modifier::E)),
            scale,
            uniform: uniform.filter(|register| *register != crate::sass::UNIFORM_ZERO),
            offset,
        })
    }

    fn query(&self) -> Decoded<Op> {
        if self.register(1)? != ZERO {
            return Err("only its predicate is computed here".to_owned());
        }
        let windows = [(Modifier::G, 0), (Modifier::S, SHARED_WINDOW), (Modifier::L, LOCAL_WINDOW)];
        Ok(Op::QuerySpace {
            outcome: self.outcome(0)?,
            at: self.address(2, Space::Generic)?,
            window: self.choose(&windows).ok_or("shared memory of other blocks is not there")?,
        })
    }

    fn constant(&self) -> Decoded<Op> {
        let Value::Constant { bank: ConstantBank::Number(bank), index, offset } =
            self.operand(1)?.value
        else {
            return Err("constants are read by number of their bank".to_owned());
        };
        let modes = [Modifier::IL, Modifier::IS, Modifier::ISL];
        if let Some(mode) = modes.into_iter().find(|mode| self.has(*mode)) {
            return Err(format!("{mode:?} is not read here"));
        }
        if usize::from(bank) >= BANKS {
            return Err(format!("there is no bank {bank}"));
        }
        let Size { width, parts, signed } = self.size();
        Ok(Op::Constant {
            target: self.target(0)?,
            bank: bank.into(),
            index: match index {
                Some(index) if index.uniform => Source::Uniform(index.register),
                index => Source::Register(index.map_or(ZERO, |index| index.register)),
            },
            offset,
            width: width * u64::from(parts),
            signed,
        })
    }

    fn load(&self, to: usize, at: usize, space: Space) -> Decoded<Op> {
        if to > 0 && self.outcome(0)? != TRUE {
            return Err("a load that says in a predicate how it went".to_owned());
        }
        let Size { width, parts, signed } = self.size();
        Ok(Op::Load {
            at: self.address(at, space)?,
            to: self.register(to)?,
            width,
            parts,
            signed,
            strong: self.is_strong(),
            // Most forms have none.
            really: self.predicate(at + 1).unwrap_or(Predicate::TRUE),
        })
    }

    fn store(&self, space: Space) -> Decoded<Op> {
        let Size { width, parts, .. } = self.size();
        Ok(Op::Store {
            at: self.address(0, space)?,
            from: self.register(1)?,
            width,
            parts,
            strong: self.is_strong(),
        })
    }

    fn atomic(&self, space: Space, to: Option<usize>, at: usize) -> Decoded<Op> {
        use Modifier::*;
        // The type of a part, how many there are, and whether subnormal numbers are zero.
        let kinds = [
            (_64, ("u64", 1, false)),
            (S64, ("s64", 1, false)),
            (S32, ("s32", 1, false)),
            (F32_FTZ_RN, ("f32", 1, true)),
            (F32x2_FTZ_RN, ("f32", 2, true)),
            (F32x4_FTZ_RN, ("f32", 4, true)),
            (F32_RN, ("f32", 1, false)),
            (F32x2_RN, ("f32", 2, false)),
            (F32x4_RN, ("f32", 4, false)),
            (F64_RN, ("f64", 1, false)),
            (F16x2_RN, ("f16x2", 1, false)),
            (F16x4_RN, ("f16x2", 2, false)),
            (F16x8_RN, ("f16x2", 4, false)),
            (BF16x2_RN, ("bf16x2", 1, false)),
            (BF16x4_RN, ("bf16x2", 2, false)),
            (BF16x8_RN, ("bf16x2", 4, false)),
        ];
        if self.has(_128) {
            return Err("only up to 64 bits are changed at once here".to_owned());
        }
        let (kind, parts, flushes) = self.choose(&kinds).unwrap_or(("u32", 1, false));
        let operations = [
            (ADD, "add"),
            (MIN, "min"),
            (MAX, "max"),
            (INC, "inc"),
            (DEC, "dec"),
            (AND, "and"),
            (OR, "or"),
            (XOR, "xor"),
            (EXCH, "exch"),
        ];
        let to = to.map(|to| self.register(to)).transpose()?.filter(|to| *to != ZERO);
        let at_operand = at;
        let at = self.address(at, space)?;
        let done = if to.is_some() { self.outcome(0).unwrap_or(TRUE) } else { TRUE };
        let width = if kind.ends_with("64") { 8 } else { 4 };
        if self.has(CAS) || self.has(CAST) {
            let compare = self.register(at_operand + 1)?;
            return Ok(Op::Atomic {
                at,
                to,
                done,
                rmw: Rmw::CompareSwap(compare.into()),
                from: self.register(at_operand + 2)?,
                width,
                parts,
                commutes: false,
                test: self.has(CAST),
            });
        }
        if self.has(POPC_INC_32) {
            let rmw = Rmw::Apply(|old, _| u64::from((old as u32).wrapping_add(1)));
            let (from, commutes, test) = (ZERO, true, false);
            return Ok(Op::Atomic { at, to, done, rmw, from, width, parts, commutes, test });
        }
        let operation = self.choose(&operations).ok_or("its operation is not known")?;
        let name = if flushes { format!("{operation}.ftz") } else { operation.to_owned() };
        let step = lanes::atomic(&name, kind)
            .ok_or_else(|| format!("there is no {operation} of {kind} in memory"))?;
        let rounds = kind.contains('f');
        Ok(Op::Atomic {
            at,
            to,
            done,
            rmw: Rmw::Apply(step),
            from: self.register(at_operand + 1)?,
            width,
            parts,
            commutes: !rounds && !matches!(operation, "exch" | "inc" | "dec"),
            test: false,
        })
    }

    /// An arrival at a barrier in memory; copies that it waits for are complete.
    fn arrive(&self, to: Option<u8>, at: usize) -> Decoded<Op> {
        if self.has(Modifier::TRANSCNT) || !self.has(Modifier::_64) {
            return Err("barriers of transactions are not there".to_owned());
        }
        let to = to.filter(|to| *to != ZERO);
        Ok(Op::Arrive { at: self.address(at, Space::Shared)?, to })
    }

    fn matrix_count(&self) -> u8 {
        self.choose(&[(Modifier::_2, 2), (Modifier::_4, 4)]).unwrap_or(1)
    }

    fn store_matrix(&self) -> Decoded<Op> {
        Ok(Op::StoreMatrix {
            at: self.address(0, Space::Shared)?,
            from: self.register(1)?,
            count: self.matrix_count(),
            transposed: self.has(Modifier::MT88),
        })
    }

    fn matrix(&self) -> Decoded<Op> {
        if self.has(Modifier::M816) || self.has(Modifier::M832) {
            return Err("only matrices of 8 by 8 are loaded here".to_owned());
        }
        Ok(Op::LoadMatrix {
            at: self.address(1, Space::Shared)?,
            to: self.register(0)?,
            count: self.matrix_count(),
            transposed: self.has(Modifier::MT88),
        })
    }

    fn copy(&self) -> Decoded<Op> {
        let size = self.choose(&[(Modifier::_64, 8), (Modifier::_128, 16)]).unwrap_or(4);
        Ok(Op::CopyAsync {
            to: self.address(0, Space::Shared)?,
            from: self.address(1, Space::Global)?,
            size,
            really: self.predicate(2)?,
            fills: self.has(Modifier::ZFILL),
        })
    }
}
