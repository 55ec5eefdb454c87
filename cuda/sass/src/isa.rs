//! The types of the table: what `isa.txt` becomes. It holds no instruction; the build script makes those.

use crate::{Modifier, Op};

/// One form of an instruction: the bits that identify it, and where the others go.
#[derive(Debug)]
pub(crate) struct Form {
    /// Its name.
    pub(crate) op: Op,
    /// Bits that must have one value: the opcode, the conditions, and every bit that no field names.
    pub(crate) mask: u128,
    pub(crate) value: u128,
    /// Architectures, one bit for each of [`crate::Arch::ALL`].
    pub(crate) archs: u16,
    /// Is the guard a uniform predicate?
    pub(crate) uniform_guard: bool,
    pub(crate) modifiers: &'static [Choice],
    pub(crate) operands: &'static [Field],
}

/// Bits of an instruction, lowest first, in up to three pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits(pub(crate) &'static [(u8, u8)]);

impl Bits {
    /// Their value.
    pub(crate) fn of(self, word: u128) -> u64 {
        let mut value = 0;
        let mut shift = 0;
        for &(start, length) in self.0 {
            value |= bits(word, start, length) << shift;
            shift += length;
        }
        value
    }

    /// Their value as two's complement.
    pub(crate) fn signed(self, word: u128) -> i64 {
        let length: u8 = self.0.iter().map(|part| part.1).sum();
        sign_extend(self.of(word), length)
    }
}

/// `length` bits of `word` from `start`.
pub(crate) fn bits(word: u128, start: u8, length: u8) -> u64 {
    (word >> start) as u64 & (u64::MAX >> (64 - length))
}

pub(crate) fn sign_extend(value: u64, length: u8) -> i64 {
    let unused = 64 - u32::from(length);
    (value << unused) as i64 >> unused
}

/// A field whose values have names.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) bits: Bits,
    pub(crate) values: &'static [Meaning],
}

/// What one value of a [`Choice`] means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning {
    /// The usual case, which has no name.
    Silent,
    /// Not an instruction.
    Illegal,
    Named(Modifier),
}

/// Where an operand is, and how it is written.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) source: Source,
    /// The bit that negates a number or complements a predicate.
    pub(crate) negate: Option<u8>,
    pub(crate) absolute: Option<u8>,
    pub(crate) invert: Option<u8>,
    /// The bit that keeps a register for the next instruction.
    pub(crate) reuse: Option<u8>,
    pub(crate) suffixes: &'static [Choice],
    pub(crate) hidden: Hidden,
    /// Is it written without a comma before it?
    pub(crate) joined: bool,
    /// Does the instruction write it?
    pub(crate) is_written: bool,
}

/// When an operand is left out of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    Never,
    /// Where it is RZ, URZ, PT or UPT.
    Default,
    /// Where it is this number.
    Number(u64),
    Always,
}

/// Where the value of an operand comes from.
#[derive(Debug)]
pub(crate) enum Source {
    Register(u8),
    Uniform(u8),
    Predicate(u8),
    UniformPredicate(u8),
    /// A predicate whose number is stored with its bits complemented.
    StoredInverted {
        start: u8,
        uniform: bool,
    },
    Barrier(u8),
    Scoreboard(u8),
    /// A register that the table names by number: one of [`Choice`]'s names.
    Named(Choice),
    /// A word that is always there.
    Word(&'static str),
    Signed(Bits),
    Unsigned(Bits),
    /// 32 bits at 32 as a number of some type.
    Float32,
    /// The upper half of a 64-bit float.
    Float64,
    /// Two 16-bit floats.
    Half2,
    /// Two bfloat16.
    BFloat2,
    /// A constant at a fixed place: bank at 54, offset at 40 in words, bit 91 for a bindless bank.
    Constant,
    /// A constant with an index: a bank or the uniform register that holds it.
    Indexed {
        bank: Bank,
        index: Option<Base>,
        offset: Bits,
    },
    Memory {
        descriptor: Option<Descriptor>,
        hide_descriptor: bool,
        base: Option<Base>,
        uniform: Option<u8>,
        offset: Bits,
    },
    /// An address relative to the next instruction, in units of 1 << scale.
    Target {
        bits: Bits,
        scale: u8,
    },
    /// A signed number in units of 1 << scale.
    Scaled {
        bits: Bits,
        scale: u8,
    },
    /// Scoreboards, one bit for each.
    Scoreboards(Bits),
    /// A descriptor in a uniform register, of a matrix of four warps or of memory.
    Descriptor {
        start: u8,
        group: bool,
    },
    /// Two bits for each of four lanes.
    Signs(Bits),
}

/// The uniform register that a memory descriptor begins in: that at `start`, or so many behind it.
#[derive(Debug)]
pub(crate) struct Descriptor {
    pub(crate) start: u8,
    pub(crate) behind: u8,
}

/// The bank of an indexed constant.
#[derive(Debug)]
pub(crate) enum Bank {
    Number(Bits),
    Bindless(u8),
}

/// The register that an address begins with.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) register: u8,
    pub(crate) uniform: bool,
    pub(crate) suffixes: &'static [Choice],
}
