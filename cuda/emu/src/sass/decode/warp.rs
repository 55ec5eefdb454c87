//! What lanes do together, special registers, and matrices.

use nvabi_sass::{Modifier, Op as Name, Value};

use super::{Decoded, Decoder, Kind, Op};
use crate::lanes::{
    self,
    matrix::{Combine, Element},
};
use crate::program::{Shuffle, Vote};
use crate::sass::{MatrixKind, MatrixMultiply, Special};
use crate::time::Counter;

impl Decoder<'_> {
    pub(super) fn warp(&self) -> Decoded<Op> {
        use Name::*;
        match self.instruction.op {
            S2R | S2UR | CS2R => Ok(Op::Special {
                special: self.special()?,
                target: self.target(0)?,
                wide: self.instruction.op == CS2R && !self.has(Modifier::_32),
            }),
            VOTE | VOTEU => self.vote(),
            MATCH => self.equal(),
            REDUX => self.reduce(),
            SHFL => self.shuffle(),
            R2UR => Ok(Op::ToUniform {
                to: self.uniform_register(1)?,
                from: self.register(2)?,
                others: self.outcome(0)?,
                joins: self.has(Modifier::OR),
            }),
            MOVM if self.has(Modifier::MT88) => {
                Ok(Op::Transpose { to: self.register(0)?, from: self.register(1)? })
            }
            ELECT => self.elect(),
            B2R => Ok(Op::BarrierResult { to: self.register(0)?, outcome: self.outcome(1)? }),
            _ => self.matrices(),
        }
    }

    fn special(&self) -> Decoded<Special> {
        use Modifier::*;
        let Value::Named(name) = self.operand(1)?.value else {
            return Err("its register is not known".to_owned());
        };
        Ok(match name {
            SR_TID => Special::PackedTid,
            SR_TID_X => Special::Tid(0),
            SR_TID_Y => Special::Tid(1),
            SR_TID_Z => Special::Tid(2),
            SR_CTAID_X => Special::Block(0),
            SR_CTAID_Y => Special::Block(1),
            SR_CTAID_Z => Special::Block(2),
            SR_LANEID => Special::Lane,
            SR_EQMASK => Special::Mask(|lane| 1 << lane),
            SR_LTMASK => Special::Mask(|lane| (1 << lane) - 1),
            SR_LEMASK => Special::Mask(|lane| u32::MAX >> (31 - lane)),
            SR_GTMASK => Special::Mask(|lane| !(u32::MAX >> (31 - lane))),
            SR_GEMASK => Special::Mask(|lane| u32::MAX << lane),
            SR_CLOCKLO | SR_CLOCK => Special::Time(Counter::Clock, 0),
            SR_CLOCKHI => Special::Time(Counter::Clock, 32),
            SR_GLOBALTIMERLO => Special::Time(Counter::Timer, 0),
            SR_GLOBALTIMERHI => Special::Time(Counter::Timer, 32),
            SR_VIRTID => Special::WarpPlace,
            SR_VIRTCFG => Special::WarpRoom,
            SR_SMEMSZ => Special::SharedSize,
            SR_SWINHI => Special::SharedWindow,
            SR_LWINHI => Special::LocalWindow,
            // One cluster, one multiprocessor; windows begin at 0 in their lower half, and local memory at its
            // own.
            SR_SWINLO | SR_LWINLO | SR_LMEMHIOFF | SR_CgaCtaId | SR_VIRTUALSMID | SRZ => {
                Special::Zero
            }
            other => return Err(format!("{other:?} is not read here")),
        })
    }

    fn vote(&self) -> Decoded<Op> {
        let kinds =
            [(Modifier::ALL, Vote::All), (Modifier::ANY, Vote::Any), (Modifier::EQ, Vote::Uniform)];
        Ok(Op::Vote {
            kind: self.choose(&kinds).ok_or("its kind is not known")?,
            target: self.target(0)?,
            outcome: self.outcome(1)?,
            predicate: self.predicate(2)?,
            uniform: self.instruction.op == Name::VOTEU,
        })
    }

    fn equal(&self) -> Decoded<Op> {
        let all = self.has(Modifier::ALL);
        let first = usize::from(all);
        Ok(Op::Match {
            all,
            to: self.register(first)?,
            outcome: if all { self.outcome(0)? } else { super::TRUE },
            from: self.register(first + 1)?,
            wide: self.has(Modifier::U64),
        })
    }

    fn reduce(&self) -> Decoded<Op> {
        let names = [
            (Modifier::OR, "or"),
            (Modifier::XOR, "xor"),
            (Modifier::SUM, "add"),
            (Modifier::MIN, "min"),
            (Modifier::MAX, "max"),
        ];
        let name = self.choose(&names).unwrap_or("and");
        let kind = if self.has(Modifier::S32) { "s32" } else { "u32" };
        let step = lanes::atomic(name, kind).ok_or("its operation is not known")?;
        Ok(Op::Reduce { step, to: self.uniform_register(0)?, from: self.register(1)? })
    }

    fn shuffle(&self) -> Decoded<Op> {
        let kinds = [
            (Modifier::IDX, Shuffle::Index),
            (Modifier::UP, Shuffle::Up),
            (Modifier::DOWN, Shuffle::Down),
            (Modifier::BFLY, Shuffle::Butterfly),
        ];
        Ok(Op::Shuffle {
            kind: self.choose(&kinds).ok_or("its kind is not known")?,
            outcome: self.outcome(0)?,
            to: self.register(1)?,
            from: self.register(2)?,
            by: self.source(3, Kind::Integer)?,
            clamp: self.source(4, Kind::Integer)?,
        })
    }

    fn matrices(&self) -> Decoded<Op> {
        use Modifier::*;
        if self.has(SP) {
            return Err("a matrix of which a part is left out".to_owned());
        }
        if self.instruction.op == Name::HMMA && self.count() > 4 {
            let when = self.predicate(4)?;
            if when.number != crate::sass::TRUE || when.negated {
                return Err("a product that depends on a predicate".to_owned());
            }
        }
        let kind = match self.instruction.op {
            Name::HMMA => {
                let k = self.choose(&[(_16816, 16), (_1688, 8), (_1684, 4)]);
                let k = k.ok_or("its shape is not known")?;
                if self.has(TF32) {
                    MatrixKind::Tf32 { k }
                } else {
                    let kind = if self.has(BF16) { "bf16" } else { "f16" };
                    let value = lanes::short_value(kind).ok_or("its type is not known")?;
                    MatrixKind::Halves { k, value, wide: self.has(F32) }
                }
            }
            Name::IMMA => self.integer_matrices()?,
            Name::BMMA => {
                let shapes = [(_88128, (8, 128)), (_168128, (16, 128)), (_168256, (16, 256))];
                let (rows, k) = self.choose(&shapes).ok_or("its shape is not known")?;
                let combine = if self.has(XOR) { Combine::Xor } else { Combine::And };
                let (elements, sum) = ([Element::B1; 2], Element::S32);
                MatrixKind::Any { rows, k, elements, sum, combine, saturate: false }
            }
            Name::DMMA if self.plain_rounding() => {
                let shapes = [
                    (_884, (8, 4)),
                    (_8x8x4, (8, 4)),
                    (_16x8x4, (16, 4)),
                    (_16x8x8, (16, 8)),
                    (_16x8x16, (16, 16)),
                ];
                let (rows, k) = self.choose(&shapes).ok_or("its shape is not known")?;
                let (elements, sum) = ([Element::F64; 2], Element::F64);
                MatrixKind::Any {
                    rows,
                    k,
                    elements,
                    sum,
                    combine: Combine::Multiply,
                    saturate: false,
                }
            }
            _ => return Err("this shape is not multiplied here".to_owned()),
        };
        let negated =
            (1..self.count()).any(|at| self.operand(at).is_ok_and(|operand| operand.negated));
        if negated {
            return Err("a matrix that is negated".to_owned());
        }
        let [d, a, b, c] =
            [self.register(0)?, self.register(1)?, self.register(2)?, self.register(3)?];
        Ok(Op::MatrixMultiply(Box::new(MatrixMultiply { kind, d, a, b, c })))
    }

    fn integer_matrices(&self) -> Decoded<MatrixKind> {
        use Modifier::*;
        let kind = |modifier: &Modifier| match modifier {
            U8 => Some(Element::U8),
            S8 => Some(Element::S8),
            U4 => Some(Element::U4),
            S4 => Some(Element::S4),
            _ => None,
        };
        let kinds: Vec<Element> = self.instruction.modifiers.iter().filter_map(kind).collect();
        let [a, b] = kinds[..] else { return Err("its types are not known".to_owned()) };
        let shapes = [
            (_8816, (8, 16)),
            (_8832, (8, 32)),
            (_16816, (16, 16)),
            (_16832, (16, 32)),
            (_16864, (16, 64)),
        ];
        let (rows, k) = self.choose(&shapes).ok_or("its shape is not known")?;
        let saturate = self.has(SAT);
        if a.bits() == 8 && b.bits() == 8 && k <= 32 && (rows, k) != (8, 32) {
            let signed = [a, b].map(|kind| kind == Element::S8);
            return Ok(MatrixKind::Bytes { rows, k, signed, saturate });
        }
        if a.bits() != 4 || b.bits() != 4 {
            return Err("this shape is not multiplied here".to_owned());
        }
        let combine = Combine::Multiply;
        Ok(MatrixKind::Any { rows, k, elements: [a, b], sum: Element::S32, combine, saturate })
    }

    /// The lane that is chosen among others.
    fn elect(&self) -> Decoded<Op> {
        let among = match self.operand(2)?.value {
            Value::Uniform(_) => Ok(self.source(2, Kind::Integer)?),
            _ => Err(self.predicate(2)?),
        };
        Ok(Op::Elect { outcome: self.outcome(0)?, target: self.target(1)?, among })
    }

    fn plain_rounding(&self) -> bool {
        ![Modifier::RM, Modifier::RP, Modifier::RZ].iter().any(|modifier| self.has(*modifier))
    }
}
