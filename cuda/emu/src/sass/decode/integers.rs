//! Integers, logic, shifts, moves and predicates.

use nvabi_sass::{Modifier, Op as Name, Value};

use super::{Decoded, Decoder, Kind, Op, native};
use crate::sass::compute::{Combine, Compare};
use crate::sass::{Compute, Native, Operand, Predicate, Source, ZERO};

impl Decoder<'_> {
    pub(super) fn integers(&self) -> Decoded<Op> {
        use Name::*;
        let signed = !self.has(Modifier::U32);
        match self.instruction.op {
            MOV if self.number(2)? != 0xf => Ok(Op::MoveInQuads {
                to: self.register(0)?,
                from: self.source(1, Kind::Integer)?,
                lanes: self.number(2)? as u32 * 0x1111_1111,
            }),
            MOV | UMOV => Ok(self.integer(native::copy, 0, &[1])?.into()),
            IABS => Ok(self.integer(native::absolute, 0, &[1])?.into()),
            BREV | UBREV => Ok(self.integer(native::reverse, 0, &[1])?.into()),
            POPC | UPOPC => Ok(self.integer(native::count_ones, 0, &[1])?.into()),
            VIADD if !self.has(Modifier::_16x2) => {
                Ok(self.integer(native::add, 0, &[1, 2])?.into())
            }
            IADD3 | UIADD3 => self.add(),
            IMAD | UIMAD => self.multiply(signed),
            ISETP | UISETP => self.compare_integers(signed),
            LEA | ULEA => self.shift_add(),
            LOP3 | ULOP3 => {
                let mut compute = self.integer(native::logic, 1, &[2, 3, 4])?;
                compute.modes.number = self.number(5)? as u8;
                compute.modes.wrap = self.has(Modifier::PAND);
                compute.predicates[0] = self.predicate(6)?;
                compute.outcomes[0] = self.outcome(0)?;
                Ok(compute.into())
            }
            SHF | USHF => self.shift(),
            SEL | USEL => self.with_predicate(native::select, &[1, 2], 3),
            IMNMX => {
                let mut compute = self.integer(native::least_or_most, 0, &[1, 2])?;
                compute.modes.signed = signed;
                compute.predicates[0] = self.predicate(3)?;
                Ok(compute.into())
            }
            VIMNMX | VIADDMNMX | VIMNMX3 => self.least_or_most(),
            PRMT | UPRMT => {
                let mut compute = self.integer(native::permute, 0, &[1, 2, 3])?;
                let modes: [Modifier; 6] = [
                    Modifier::F4E,
                    Modifier::B4E,
                    Modifier::RC8,
                    Modifier::ECL,
                    Modifier::ECR,
                    Modifier::RC16,
                ];
                let mode = modes.iter().position(|mode| self.has(*mode));
                compute.modes.number = mode.map_or(0, |mode| mode as u8 + 1);
                Ok(compute.into())
            }
            SGXT | USGXT => {
                let mut compute = self.integer(native::extend, 0, &[1, 2])?;
                compute.modes.signed = signed;
                compute.modes.wrap = self.has(Modifier::W);
                Ok(compute.into())
            }
            BMSK | UBMSK => {
                let mut compute = self.integer(native::bits, 0, &[1, 2])?;
                compute.modes.wrap = self.has(Modifier::W);
                Ok(compute.into())
            }
            FLO | UFLO => {
                let mut compute = self.integer(native::find_leading, 0, &[2])?;
                compute.modes.signed = signed;
                compute.modes.high = self.has(Modifier::SH);
                compute.outcomes[0] = self.outcome(1)?;
                Ok(compute.into())
            }
            VABSDIFF if self.outcome(1)? == super::TRUE => {
                let mut compute = self.integer(native::distance, 0, &[2, 3, 4])?;
                compute.modes.signed = signed;
                Ok(compute.into())
            }
            VABSDIFF4 if self.outcome(1)? == super::TRUE => {
                let kind = if self.has(Modifier::U8) { "u32" } else { "s32" };
                let add = if self.has(Modifier::ACC) { ".add" } else { "" };
                let text = format!("vabsdiff4.{kind}.{kind}.{kind}{add}");
                Ok(self.shared(&text, 0, &[2, 3, 4], Kind::Integer)?.into())
            }
            I2IP => {
                let kinds = [
                    (Modifier::U8, "u8.s32.b32"),
                    (Modifier::S8, "s8.s32.b32"),
                    (Modifier::U16, "u16.s32"),
                    (Modifier::S16, "s16.s32"),
                ];
                let kind = self.choose(&kinds).ok_or("its type is not known")?;
                let text = format!("cvt.pack.sat.{kind}");
                Ok(self.shared(&text, 0, &[1, 2, 3], Kind::Integer)?.into())
            }
            IDP if self.has(Modifier::_2A) => self.dot_of_two(),
            IDP => self.dot(),
            I2I => self.clamp(),
            PLOP3 | UPLOP3 => self.predicate_logic(),
            P2R | UP2UR => Ok(Op::PredicatesToRegister {
                target: self.target(0)?,
                uniform: self.instruction.op == UP2UR,
                from: self.source(2, Kind::Integer)?,
                mask: self.source(3, Kind::Integer)?,
                shift: self.byte(),
            }),
            R2P => {
                let from = self.source(1, Kind::Integer)?;
                let shift = from.shift;
                let from = Operand { shift: 0, ..from };
                Ok(Op::RegisterToPredicates { from, mask: self.source(2, Kind::Integer)?, shift })
            }
            _ => Err("it is decoded, but not run".to_owned()),
        }
    }

    fn integer(&self, f: Native, to: usize, from: &[usize]) -> Decoded<Compute> {
        self.compute(f, to, from, Kind::Integer)
    }

    fn with_predicate(&self, f: Native, from: &[usize], predicate: usize) -> Decoded<Op> {
        let mut compute = self.integer(f, 0, from)?;
        compute.predicates[0] = self.predicate(predicate)?;
        Ok(compute.into())
    }

    /// The byte that modifiers name, in bits.
    fn byte(&self) -> u32 {
        self.choose(&[(Modifier::B1, 8), (Modifier::B2, 16), (Modifier::B3, 24)]).unwrap_or(0)
    }

    fn add(&self) -> Decoded<Op> {
        let outcomes = [self.outcome(1)?, self.outcome(2)?];
        let extended = self.has(Modifier::X);
        if self.has(Modifier::_64) {
            let is_plain = !extended && outcomes == [super::TRUE; 2];
            let is_of_two = self.source(5, Kind::Integer)?.is_zero();
            if !is_plain || !is_of_two || self.is_negated(3)? || self.is_negated(4)? {
                return Err("of 64 bits two are added, without a carry".to_owned());
            }
            let mut compute = self.shared("add.u64", 0, &[3, 4], Kind::Long)?;
            compute.wide = true;
            return Ok(compute.into());
        }
        let carries = extended || outcomes != [super::TRUE; 2];
        let f = if carries { native::add_carry } else { native::add };
        let mut compute = self.integer(f, 0, &[3, 4, 5])?;
        compute.outcomes = outcomes;
        compute.modes.extended = extended;
        compute.predicates = [self.predicate(6)?, self.predicate(7)?, Predicate::FALSE];
        Ok(compute.into())
    }

    fn multiply(&self, signed: bool) -> Decoded<Op> {
        let high = self.has(Modifier::HI);
        let extended = self.has(Modifier::X);
        if !high && !self.has(Modifier::WIDE) {
            let is_zero = |at| Ok::<bool, String>(self.source(at, Kind::Integer)?.is_zero());
            if !extended && (is_zero(1)? || is_zero(2)?) && !self.is_negated(3)? {
                return Ok(self.integer(native::copy, 0, &[3])?.into());
            }
            let f = if extended { native::multiply_add_carry } else { native::multiply_add };
            let mut compute = self.integer(f, 0, &[1, 2, 3])?;
            compute.predicates[0] = self.predicate(4)?;
            return Ok(compute.into());
        }
        let mut compute = self.integer(native::multiply_wide, 0, &[2, 3, 4])?;
        compute.sources[2] = self.source(4, Kind::Long)?;
        compute.modes.signed = signed;
        compute.modes.high = high;
        compute.modes.extended = extended;
        compute.wide = !high;
        compute.outcomes[0] = self.outcome(1)?;
        compute.predicates[0] = self.predicate(5)?;
        Ok(compute.into())
    }

    fn compare_integers(&self, signed: bool) -> Decoded<Op> {
        let mut compute = self.comparison(native::compare, &[2, 3], Kind::Integer)?;
        compute.modes.signed = signed;
        compute.modes.extended = self.has(Modifier::EX);
        compute.predicates = [self.predicate(4)?, self.predicate(5)?, Predicate::FALSE];
        Ok(compute.into())
    }

    /// A computation of two predicates.
    pub(super) fn comparison(&self, f: Native, from: &[usize], kind: Kind) -> Decoded<Compute> {
        let mut compute = self.predicates_only(f, from, kind)?;
        compute.outcomes = [self.outcome(0)?, self.outcome(1)?];
        compute.modes.compare = self.relation();
        compute.modes.combine = self.combination();
        Ok(compute)
    }

    /// A computation without a register.
    pub(super) fn predicates_only(
        &self,
        f: Native,
        from: &[usize],
        kind: Kind,
    ) -> Decoded<Compute> {
        let mut compute = Compute {
            f: crate::sass::Function::Native(f),
            modes: Default::default(),
            sources: [Operand::zero(), Operand::zero(), Operand::zero()],
            predicates: [Predicate::FALSE; 3],
            target: crate::sass::Target::None,
            wide: false,
            outcomes: [super::TRUE; 2],
            uniform: self.instruction.guard.uniform,
        };
        for (source, at) in compute.sources.iter_mut().zip(from) {
            *source = self.source(*at, kind)?;
        }
        Ok(compute)
    }

    pub(super) fn combination(&self) -> Combine {
        let names = [(Modifier::OR, Combine::Or), (Modifier::XOR, Combine::Xor)];
        self.choose(&names).unwrap_or(Combine::And)
    }

    /// What holds for less, equal, greater, unordered.
    pub(super) fn relation(&self) -> Compare {
        use Modifier::*;
        const RELATIONS: [(Modifier, [u8; 4]); 16] = [
            (F, [0, 0, 0, 0]),
            (LT, [1, 0, 0, 0]),
            (EQ, [0, 1, 0, 0]),
            (LE, [1, 1, 0, 0]),
            (GT, [0, 0, 1, 0]),
            (NE, [1, 0, 1, 0]),
            (GE, [0, 1, 1, 0]),
            (NUM, [1, 1, 1, 0]),
            (NAN, [0, 0, 0, 1]),
            (LTU, [1, 0, 0, 1]),
            (EQU, [0, 1, 0, 1]),
            (LEU, [1, 1, 0, 1]),
            (GTU, [0, 0, 1, 1]),
            (NEU, [1, 0, 1, 1]),
            (GEU, [0, 1, 1, 1]),
            (T, [1, 1, 1, 1]),
        ];
        let [less, equal, greater, unordered] =
            self.choose(&RELATIONS).unwrap_or([0; 4]).map(|holds| holds != 0);
        Compare { less, equal, greater, unordered }
    }

    fn shift_add(&self) -> Decoded<Op> {
        let mut compute = self.integer(native::shift_add, 0, &[2, 3, 4])?;
        // The sign applies to what was shifted.
        compute.modes.left = compute.sources[0].low_bits.xor != 0;
        compute.sources[0].low_bits = super::Bits::SAME;
        compute.modes.number = self.number(5)? as u8;
        compute.modes.high = self.has(Modifier::HI);
        compute.modes.wide = self.has(Modifier::SX32);
        compute.modes.extended = self.has(Modifier::X);
        compute.outcomes[0] = self.outcome(1)?;
        compute.predicates[0] = self.predicate(6)?;
        Ok(compute.into())
    }

    fn shift(&self) -> Decoded<Op> {
        let mut compute = self.integer(native::shift, 0, &[1, 2, 3])?;
        compute.modes.left = self.has(Modifier::L);
        compute.modes.wrap = self.has(Modifier::W);
        compute.modes.high = self.has(Modifier::HI);
        compute.modes.signed = self.has(Modifier::S32) || self.has(Modifier::S64);
        compute.modes.wide = self.has(Modifier::U64) || self.has(Modifier::S64);
        Ok(compute.into())
    }

    fn least_or_most(&self) -> Decoded<Op> {
        if self.has(Modifier::U16x2) || self.has(Modifier::S16x2) {
            return Err("pairs of 16 bits are not compared here".to_owned());
        }
        let adds = self.instruction.op == Name::VIADDMNMX;
        if self.instruction.op == Name::VIMNMX3 {
            let mut compute = self.integer(native::least_or_most_of_three, 0, &[1, 2, 3])?;
            compute.modes.signed = !self.has(Modifier::U32);
            compute.modes.saturate = self.has(Modifier::RELU);
            compute.predicates[0] = self.predicate(4)?;
            return Ok(compute.into());
        }
        let mut compute = self.integer(native::add_least_or_most, 0, &[1, 2])?;
        if adds {
            compute.sources[2] = self.source(3, Kind::Integer)?;
        } else {
            compute.sources.swap(1, 2);
        }
        compute.modes.signed = !self.has(Modifier::U32);
        compute.modes.saturate = self.has(Modifier::RELU);
        compute.predicates[0] = self.predicate(if adds { 4 } else { 3 })?;
        Ok(compute.into())
    }

    fn dot_of_two(&self) -> Decoded<Op> {
        if self.is_negated(3)? {
            return Err("a summand that is negated".to_owned());
        }
        let sign = |unsigned| if self.has(unsigned) { "u32" } else { "s32" };
        let part = if self.has(Modifier::HI) { "hi" } else { "lo" };
        let text = format!("dp2a.{part}.{}.{}", sign(Modifier::U16), sign(Modifier::U8));
        Ok(self.shared(&text, 0, &[1, 2, 3], Kind::Integer)?.into())
    }

    fn dot(&self) -> Decoded<Op> {
        let mut compute = self.integer(native::dot, 0, &[1, 2, 3])?;
        let kinds: Vec<bool> = (self.instruction.modifiers.iter())
            .filter_map(|modifier| match modifier {
                Modifier::U8 => Some(false),
                Modifier::S8 => Some(true),
                _ => None,
            })
            .collect();
        let [a, b] = kinds[..] else { return Err("its types are not known".to_owned()) };
        compute.modes.signed = a;
        compute.modes.wide = b;
        Ok(compute.into())
    }

    fn clamp(&self) -> Decoded<Op> {
        let mut compute = self.integer(native::clamp, 0, &[1])?;
        let kinds = [
            (Modifier::U8, (false, 8)),
            (Modifier::S8, (true, 8)),
            (Modifier::U16, (false, 16)),
            (Modifier::S16, (true, 16)),
        ];
        let kind = self.choose(&kinds).ok_or("its type is not known")?;
        (compute.modes.signed, compute.modes.number) = kind;
        Ok(compute.into())
    }

    fn predicate_logic(&self) -> Decoded<Op> {
        let of_signs = matches!(self.operand(2)?.value, Value::Register(_));
        let mut compute = match of_signs {
            true => self.predicates_only(native::sign_logic, &[2, 3, 4], Kind::Integer)?,
            false => self.predicates_only(native::predicate_logic, &[], Kind::Integer)?,
        };
        compute.outcomes = [self.outcome(0)?, self.outcome(1)?];
        if !of_signs {
            compute.predicates = [self.predicate(2)?, self.predicate(3)?, self.predicate(4)?];
        }
        compute.modes.number = self.number(5)? as u8;
        compute.modes.other = self.number(6)? as u8;
        Ok(compute.into())
    }
}

impl Operand {
    pub(super) fn is_zero(&self) -> bool {
        matches!(self.low, Source::Register(ZERO) | Source::Uniform(crate::sass::UNIFORM_ZERO))
            && self.low_bits == super::Bits::SAME
    }
}
