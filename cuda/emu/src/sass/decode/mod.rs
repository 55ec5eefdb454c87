//! One instruction into an operation. `operation` says which function decodes which; there is a file for each family.

mod floats;
mod flow;
mod integers;
mod memory;
mod texture;
mod warp;

use nvabi_sass::{ConstantBank, Modifier, Op as Name, Value};

use super::{
    BANK_BYTES, BANKS, Bits, Compute, Function, Halves, Instruction, Modes, Native, Op, Operand,
    Predicate, Row, Source, TRUE, Target, ZERO, compute::integers as native,
};
use crate::lanes::{Opcode, lookup};

/// An operation, or why there is none.
type Decoded<T> = Result<T, String>;

/// An instruction of the section whose first instruction has this number.
pub(super) struct Decoder<'a> {
    instruction: &'a nvabi_sass::Instruction,
    origin: u64,
    first: usize,
    count: usize,
}

/// What the bits of a source mean, for its sign.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Integer,
    /// Of 64 bits.
    Long,
    Single,
    Double,
    /// Two numbers of 16 bits.
    Halves,
}

/// An instruction of a program that begins at an address, ready to run; one that is not supported says so when it
/// runs.
pub(super) fn decode(
    instruction: &nvabi_sass::Instruction,
    origin: u64,
    first: usize,
    count: usize,
) -> Instruction {
    let guard = instruction.guard;
    let guard =
        Predicate { number: guard.predicate, negated: guard.negated, uniform: guard.uniform };
    let decoder = Decoder { instruction, origin, first, count };
    let op = decoder
        .operation()
        .unwrap_or_else(|why| Op::Refused(format!("{instruction} is not supported: {why}").into()));
    Instruction { op, guard }
}

impl Decoder<'_> {
    fn operation(&self) -> Decoded<Op> {
        use Name::*;
        match self.instruction.op {
            MOV | UMOV | IADD3 | UIADD3 | IMAD | UIMAD | ISETP | UISETP | LEA | ULEA | LOP3
            | ULOP3 | SHF | USHF | SEL | USEL | PRMT | UPRMT | IABS | IMNMX | SGXT | USGXT
            | BMSK | UBMSK | POPC | UPOPC | FLO | UFLO | BREV | UBREV | IDP | P2R | UP2UR | R2P
            | PLOP3 | UPLOP3 | I2IP | VIADD | VIMNMX | VIMNMX3 | VIADDMNMX | I2I | VABSDIFF
            | VABSDIFF4 => self.integers(),
            FADD | FSWZADD | FMUL | FFMA | FMNMX | FSEL | FSETP | FSET | FCHK | MUFU | DADD
            | DMUL | DFMA | DSETP | I2F | F2I | F2F | F2IP | FRND | I2FP | F2FP | HADD2 | HMUL2
            | HFMA2 | HSET2 | HSETP2 | HMNMX2 => self.floats(),
            S2R | S2UR | CS2R | VOTE | VOTEU | MATCH | REDUX | SHFL | R2UR | B2R | HMMA | IMMA
            | DMMA | BMMA | MOVM | ELECT => self.warp(),
            LDC | ULDC | LD | LDG | ST | STG | LDL | STL | LDS | STS | LDSM | STSM | RED | REDG
            | ATOM | ATOMG | ATOMS | ARRIVES | QSPC | LDGSTS | LDGDEPBAR | DEPBAR | CCTL
            | CCTLL | MEMBAR | FENCE | ERRBAR | CGAERRBAR => self.memory(),
            TEX | TLD | TLD4 | TXD | TXQ | SULD | SUST | SURED => self.texture(),
            BRA | BRX | BRXU | JMP | CALL | RET | EXIT | BSSY | BSYNC | BREAK | YIELD
            | WARPSYNC | BMOV | ENDCOLLECTIVE | NOP | NANOSLEEP | BPT | BAR | LEPC | PMTRIG
            | PREEXIT | ACQBULK => self.flow(),
            _ => Err("it is decoded, but not run".to_owned()),
        }
    }

    fn has(&self, modifier: Modifier) -> bool {
        self.instruction.modifiers.contains(&modifier)
    }

    /// The meaning of the first of these modifiers that the instruction has.
    fn choose<T: Copy>(&self, meanings: &[(Modifier, T)]) -> Option<T> {
        meanings.iter().find(|(modifier, _)| self.has(*modifier)).map(|(_, meaning)| *meaning)
    }

    fn operand(&self, at: usize) -> Decoded<&nvabi_sass::Operand> {
        self.instruction.operands.get(at).ok_or_else(|| format!("it has no operand {at}"))
    }

    fn count(&self) -> usize {
        self.instruction.operands.len()
    }

    /// The number of a register.
    fn register(&self, at: usize) -> Decoded<u8> {
        match self.operand(at)?.value {
            Value::Register(number) => Ok(number),
            _ => Err(format!("operand {at} is no register")),
        }
    }

    fn uniform_register(&self, at: usize) -> Decoded<u8> {
        match self.operand(at)?.value {
            Value::Uniform(number) => Ok(number),
            _ => Err(format!("operand {at} is no uniform register")),
        }
    }

    fn number(&self, at: usize) -> Decoded<u64> {
        match self.operand(at)?.value {
            Value::Unsigned(value) => Ok(value),
            Value::Signed(value) => Ok(value as u64),
            _ => Err(format!("operand {at} is no number")),
        }
    }

    fn target(&self, at: usize) -> Decoded<Target> {
        match self.operand(at)?.value {
            Value::Register(ZERO) => Ok(Target::None),
            Value::Register(number) => Ok(Target::Register(number)),
            Value::Uniform(super::UNIFORM_ZERO) => Ok(Target::None),
            Value::Uniform(number) => Ok(Target::Uniform(number)),
            _ => Err(format!("operand {at} is no register")),
        }
    }

    /// The number of a predicate that is written.
    fn outcome(&self, at: usize) -> Decoded<u8> {
        match self.operand(at)?.value {
            Value::Predicate(number) | Value::UniformPredicate(number) => Ok(number),
            _ => Err(format!("operand {at} is no predicate")),
        }
    }

    fn predicate(&self, at: usize) -> Decoded<Predicate> {
        let operand = self.operand(at)?;
        let (number, uniform) = match operand.value {
            Value::Predicate(number) => (number, false),
            Value::UniformPredicate(number) => (number, true),
            _ => return Err(format!("operand {at} is no predicate")),
        };
        Ok(Predicate { number, negated: operand.negated, uniform })
    }

    /// Whether a source is negated, as an integer.
    fn is_negated(&self, at: usize) -> Decoded<bool> {
        Ok(self.operand(at)?.negated)
    }

    /// A source. Of a negated integer it is the complement: the one that is missing is the function's to add.
    fn source(&self, at: usize, kind: Kind) -> Decoded<Operand> {
        let operand = self.operand(at)?;
        let (low, high) = self.value(operand, matches!(kind, Kind::Long | Kind::Double))?;
        let (mut low_bits, mut high_bits) = (Bits::SAME, Bits::SAME);
        let signs: u32 = match kind {
            Kind::Halves => 0x8000_8000,
            _ => 0x8000_0000,
        };
        let top = if kind == Kind::Double { &mut high_bits } else { &mut low_bits };
        match kind {
            Kind::Integer | Kind::Long => {
                if operand.negated || operand.inverted {
                    low_bits.xor = u32::MAX;
                    high_bits.xor = u32::MAX;
                }
            }
            _ => {
                if operand.absolute {
                    top.and = !signs;
                }
                if operand.negated {
                    top.xor = signs;
                }
            }
        }
        let has = |suffix| operand.suffixes.contains(&suffix);
        let halves = match () {
            () if has(Modifier::H0_H0) => Halves::Low,
            () if has(Modifier::H1_H1) => Halves::High,
            () if has(Modifier::H0_NH1) => Halves::Swapped,
            () => Halves::Both,
        };
        if has(Modifier::H0_NH1) {
            low_bits.xor ^= 0x8000;
        }
        let bytes = [(Modifier::B1, 8), (Modifier::B2, 16), (Modifier::B3, 24), (Modifier::H1, 16)];
        let shift = bytes.iter().find(|(suffix, _)| has(*suffix)).map_or(0, |(_, shift)| *shift);
        Ok(Operand { low, high, low_bits, high_bits, halves, shift })
    }

    fn value(
        &self,
        operand: &nvabi_sass::Operand,
        wide: bool,
    ) -> Decoded<(Source, Option<Source>)> {
        let both = |low: u32, high: u32| (immediate(low), wide.then(|| immediate(high)));
        Ok(match operand.value {
            Value::Register(number) => {
                let next = if number == ZERO { ZERO } else { number + 1 };
                (Source::Register(number), wide.then_some(Source::Register(next)))
            }
            Value::Uniform(number) => {
                let next = (number + 1).min(super::UNIFORM_ZERO);
                (Source::Uniform(number), wide.then_some(Source::Uniform(next)))
            }
            Value::Signed(value) => both(value as u32, (value >> 32) as u32),
            Value::Unsigned(value) => both(value as u32, (value >> 32) as u32),
            Value::Float32(bits) => both(bits, 0),
            Value::Float64(bits) => both(0, bits),
            Value::Half2([low, high]) | Value::BFloat2([low, high]) => {
                both(u32::from(low) | u32::from(high) << 16, 0)
            }
            Value::Constant { bank: ConstantBank::Number(bank), index: None, offset } => {
                let bank = usize::from(bank);
                if bank >= BANKS {
                    return Err(format!("there is no bank {bank}"));
                }
                let offset = offset.rem_euclid(BANK_BYTES) as usize;
                let at = |offset| Source::Constant { bank, offset };
                (at(offset), wide.then(|| at(offset + 4)))
            }
            _ => return Err("an operand of a kind that is not read here".to_owned()),
        })
    }

    /// A computation of a register from the operands at these places.
    fn compute(&self, f: Native, to: usize, from: &[usize], kind: Kind) -> Decoded<Compute> {
        let mut compute = Compute {
            f: Function::Native(f),
            modes: Modes::default(),
            sources: [Operand::zero(), Operand::zero(), Operand::zero()],
            predicates: [Predicate::FALSE; 3],
            target: self.target(to)?,
            wide: false,
            outcomes: [TRUE; 2],
            uniform: self.instruction.guard.uniform,
        };
        for (source, at) in compute.sources.iter_mut().zip(from) {
            *source = self.source(*at, kind)?;
        }
        if kind == Kind::Integer {
            for (negated, at) in compute.modes.negated.iter_mut().zip(from) {
                *negated = self.is_negated(*at)?;
            }
        }
        Ok(compute)
    }

    /// The same by a function that PTX has as well.
    fn shared(&self, text: &str, to: usize, from: &[usize], kind: Kind) -> Decoded<Compute> {
        let (f, count) = function(text)?;
        let mut compute = self.compute(native::copy, to, from, kind)?;
        compute.f = Function::Lanes(f, count);
        compute.wide = kind == Kind::Double;
        Ok(compute)
    }

    /// The number of the instruction at an address of the same section.
    fn place(&self, address: i64) -> Decoded<u32> {
        let number = usize::try_from(address).ok().map(|address| address / 16);
        match number {
            Some(number) if address % 16 == 0 && number < self.count => {
                Ok((self.first + number) as u32)
            }
            _ => Err(format!("{address:#x} is outside of its section")),
        }
    }
}

/// A function of PTX.
fn function(text: &str) -> Decoded<(crate::lanes::LaneFn, usize)> {
    lookup(&Opcode::new(text)).ok_or_else(|| format!("there is no `{text}`"))
}

pub(super) fn immediate(value: u32) -> Source {
    Source::Immediate(Box::new([value; 32] as Row))
}

impl Operand {
    fn plain(low: Source) -> Self {
        let same = Bits::SAME;
        Self { low, high: None, low_bits: same, high_bits: same, halves: Halves::Both, shift: 0 }
    }

    fn zero() -> Self {
        Self::plain(Source::Register(ZERO))
    }
}

impl From<Compute> for Op {
    fn from(compute: Compute) -> Self {
        Self::Compute(Box::new(compute))
    }
}
