//! From 128 bits to an instruction: the first form of the table that accounts for every bit.

use std::fmt::{self, Display, Formatter};

use crate::isa::{
    Bank, Base, Bits, Choice, Descriptor, Field, Form, Meaning, Source, bits, sign_extend,
};
use crate::{
    Arch, Control, FORMS, FORMS_OF, List, MAX_MODIFIERS, MAX_OPERANDS, Modifier, NAMED, Op,
};

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    /// Its name.
    pub op: Op,
    /// The predicate that decides whether it is executed.
    pub guard: Guard,
    /// What is written behind the name, in that order.
    pub modifiers: List<Modifier, MAX_MODIFIERS>,
    /// Its operands, also those that the text leaves out.
    pub operands: List<Operand, MAX_OPERANDS>,
    /// How it is scheduled.
    pub control: Control,
    /// Where it is in its function, in bytes.
    pub address: u64,
    pub(crate) form: &'static Form,
}

/// An instruction that the table does not have, or one with a bit that no field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unknown {
    /// The lowest 12 bits.
    pub opcode: u16,
    /// All bits.
    pub word: u128,
    /// The name that belongs to the opcode; without one it is no instruction.
    pub name: Option<Op>,
}

impl Display for Unknown {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Unknown { opcode, word, name } = self;
        match name {
            Some(name) => {
                write!(f, "{} with an unknown encoding, {opcode:#05x} ({word:#034x})", name.text())
            }
            None => write!(f, "unknown instruction {opcode:#05x} ({word:#034x})"),
        }
    }
}

/// The predicate before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Its number; 7 is always true.
    pub predicate: u8,
    /// Executed where it is false?
    pub negated: bool,
    /// Is it a uniform predicate?
    pub uniform: bool,
}

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operand {
    /// What it is.
    pub value: Value,
    /// Is a number negated, or a predicate complemented?
    pub negated: bool,
    /// Is it without its sign?
    pub absolute: bool,
    /// Are its bits complemented?
    pub inverted: bool,
    /// Does its register stay in the reuse cache for the next instruction?
    pub reuse: bool,
    /// Does the instruction write it? Others are read.
    pub written: bool,
    /// What is written behind it.
    pub suffixes: List<Modifier, 2>,
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A register; 255 is RZ.
    Register(u8),
    /// A uniform register; 63 is URZ.
    Uniform(u8),
    /// A predicate; 7 is PT.
    Predicate(u8),
    /// A uniform predicate; 7 is UPT.
    UniformPredicate(u8),
    /// A convergence barrier.
    Barrier(u8),
    /// A scoreboard.
    Scoreboard(u8),
    /// A special register, or another thing with a name.
    Named(Modifier),
    /// A word that the form always has.
    Word(&'static str),
    /// A number with a sign.
    Signed(i64),
    /// A number without one.
    Unsigned(u64),
    /// The bits of a 32-bit float.
    Float32(u32),
    /// The upper 32 bits of a 64-bit float; the lower are 0.
    Float64(u32),
    /// Two 16-bit floats, the lower first.
    Half2([u16; 2]),
    /// Two bfloat16, the lower first.
    BFloat2([u16; 2]),
    /// `c[bank][index + offset]`.
    Constant {
        /// Its bank.
        bank: ConstantBank,
        /// The register that is added.
        index: Option<Address>,
        /// In bytes, modulo 64 KiB: as nvdisasm writes it, negative in the upper half of a bank.
        offset: i64,
    },
    /// `[base + uniform + offset]`.
    Memory {
        /// The uniform registers with a memory descriptor.
        descriptor: Option<u8>,
        /// The register that the address begins with.
        base: Option<Address>,
        /// The uniform register that is added.
        uniform: Option<u8>,
        /// In bytes.
        offset: i64,
    },
    /// Scoreboards, one bit for each.
    Scoreboards(u8),
    /// A descriptor, in this uniform register and those behind it.
    Descriptor {
        /// The first register.
        register: u8,
        /// Is it that of a matrix that four warps multiply?
        group: bool,
    },
    /// How each lane of four adds two numbers: two bits for each, of which the highest are the first lane's.
    Signs(u8),
    /// An address in the same function.
    Target(i64),
}

/// Where a constant is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConstantBank {
    /// By number.
    Number(u8),
    /// In the bank whose descriptor is in this uniform register.
    Bindless(u8),
}

/// A register of an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Address {
    /// Its number; 255 is RZ, and 63 of a uniform one URZ.
    pub register: u8,
    /// Is it a uniform register?
    pub uniform: bool,
    /// Its width or scale.
    pub suffixes: List<Modifier, 2>,
}

/// Decodes the instruction at `address` of its function.
pub fn decode(arch: Arch, word: u128, address: u64) -> Result<Instruction, Unknown> {
    let opcode = (word & 0xfff) as u16;
    let (first, last) = FORMS_OF[usize::from(opcode)];
    let forms = &FORMS[usize::from(first)..usize::from(last)];
    let mut forms = forms.iter().filter(|form| form.archs & arch.bit() != 0);
    forms
        .clone()
        .filter(|form| word & form.mask & !REUSE == form.value)
        .find_map(|form| instruction(form, word, address))
        .ok_or_else(|| {
            let name = forms.next().map(|form| form.op).or_else(|| name(arch, opcode));
            Unknown { opcode, word, name }
        })
}

/// The name of an opcode that has no form.
fn name(arch: Arch, opcode: u16) -> Option<Op> {
    let first = NAMED.partition_point(|(known, ..)| *known < opcode);
    let all = NAMED[first..].iter().take_while(|(known, ..)| *known == opcode);
    let mut mine = all.filter(|(_, archs, _)| archs & arch.bit() != 0);
    mine.next().map(|(.., name)| *name)
}

/// What unused places of a list hold.
const FILLER: Modifier = Modifier::X;

/// The reuse bits are control information: they may be set where there is no register.
const REUSE: u128 = 0xf << 122;

fn instruction(form: &'static Form, word: u128, address: u64) -> Option<Instruction> {
    let mut modifiers = List::new(FILLER);
    for choice in form.modifiers {
        choose(choice, word, &mut modifiers)?;
    }
    let mut operands = List::new(Operand::of(Value::Unsigned(0)));
    for field in form.operands {
        operands.push(operand(field, word, address)?);
    }
    let guard = bits(word, 12, 4) as u8;
    let guard =
        Guard { predicate: guard & 7, negated: guard & 8 != 0, uniform: form.uniform_guard };
    Some(Instruction {
        op: form.op,
        guard,
        modifiers,
        operands,
        control: Control::of(word),
        address,
        form,
    })
}

/// Adds the name of the field's value; none where it is no instruction.
fn choose<const N: usize>(
    choice: &Choice,
    word: u128,
    names: &mut List<Modifier, N>,
) -> Option<()> {
    match choice.values.get(choice.bits.of(word) as usize)? {
        Meaning::Silent => {}
        Meaning::Illegal => return None,
        Meaning::Named(name) => names.push(*name),
    }
    Some(())
}

impl Operand {
    fn of(value: Value) -> Operand {
        Operand {
            value,
            negated: false,
            absolute: false,
            inverted: false,
            reuse: false,
            written: false,
            suffixes: List::new(FILLER),
        }
    }
}

fn operand(field: &Field, word: u128, address: u64) -> Option<Operand> {
    let is_set = |bit: Option<u8>| bit.is_some_and(|bit| word >> bit & 1 != 0);
    let value = match &field.source {
        Source::Register(start) => Value::Register(bits(word, *start, 8) as u8),
        Source::Uniform(start) => Value::Uniform(bits(word, *start, 6) as u8),
        Source::Predicate(start) => Value::Predicate(bits(word, *start, 3) as u8),
        Source::StoredInverted { start, uniform } => {
            let number = bits(word, *start, 3) as u8 ^ 7;
            if *uniform { Value::UniformPredicate(number) } else { Value::Predicate(number) }
        }
        Source::UniformPredicate(start) => Value::UniformPredicate(bits(word, *start, 3) as u8),
        Source::Barrier(start) => Value::Barrier(bits(word, *start, 4) as u8),
        Source::Scoreboard(start) => {
            Value::Scoreboard(Some(bits(word, *start, 3) as u8).filter(|&number| number < 6)?)
        }
        Source::Named(choice) => match choice.values.get(choice.bits.of(word) as usize)? {
            Meaning::Named(name) => Value::Named(*name),
            _ => return None,
        },
        Source::Word(text) => Value::Word(text),
        Source::Signed(bits) => Value::Signed(bits.signed(word)),
        Source::Unsigned(bits) => Value::Unsigned(bits.of(word)),
        Source::Float32 => Value::Float32(bits(word, 32, 32) as u32),
        Source::Float64 => Value::Float64(bits(word, 32, 32) as u32),
        Source::Half2 => Value::Half2([bits(word, 32, 16) as u16, bits(word, 48, 16) as u16]),
        Source::BFloat2 => Value::BFloat2([bits(word, 32, 16) as u16, bits(word, 48, 16) as u16]),
        Source::Constant => Value::Constant {
            bank: ConstantBank::Number(bits(word, 54, 5) as u8),
            index: None,
            offset: sign_extend(bits(word, 40, 14), 14) << 2,
        },
        Source::Indexed { bank, index, offset } => Value::Constant {
            bank: match bank {
                Bank::Number(bits) => ConstantBank::Number(bits.of(word) as u8),
                Bank::Bindless(start) => ConstantBank::Bindless(bits(word, *start, 6) as u8),
            },
            index: base(index, word)?,
            offset: offset_of(*offset, word),
        },
        Source::Memory { descriptor, base: first, uniform, offset, .. } => Value::Memory {
            descriptor: descriptor.as_ref().map(|it| descriptor_of(it, word)),
            base: base(first, word)?,
            uniform: uniform.map(|start| bits(word, start, 6) as u8),
            // Without a register it is an address, not a distance.
            offset: match first {
                Some(first) if uniform.is_none() && bits(word, first.register, 8) == 255 => {
                    offset.of(word) as i64
                }
                _ => offset_of(*offset, word),
            },
        },
        Source::Scaled { bits, scale } => Value::Signed(bits.signed(word) << scale),
        Source::Descriptor { start, group } => {
            Value::Descriptor { register: bits(word, *start, 6) as u8, group: *group }
        }
        Source::Signs(bits) => Value::Signs(bits.of(word) as u8),
        Source::Scoreboards(bits) => Value::Scoreboards(bits.of(word) as u8),
        Source::Target { bits, scale } => {
            let next = (address as i64).wrapping_add(16);
            Value::Target(next.wrapping_add(bits.signed(word) << scale))
        }
    };
    let mut suffixes = List::new(FILLER);
    for choice in field.suffixes {
        choose(choice, word, &mut suffixes)?;
    }
    Some(Operand {
        value,
        negated: is_set(field.negate),
        absolute: is_set(field.absolute),
        inverted: is_set(field.invert),
        reuse: is_set(field.reuse),
        written: field.is_written,
        suffixes,
    })
}

fn base(base: &Option<Base>, word: u128) -> Option<Option<Address>> {
    let Some(base) = base else { return Some(None) };
    let mut suffixes = List::new(FILLER);
    for choice in base.suffixes {
        choose(choice, word, &mut suffixes)?;
    }
    let length = if base.uniform { 6 } else { 8 };
    let register = bits(word, base.register, length) as u8;
    Some(Some(Address { register, uniform: base.uniform, suffixes }))
}

/// Behind the last register there is none.
fn descriptor_of(descriptor: &Descriptor, word: u128) -> u8 {
    (bits(word, descriptor.start, 6) as u8 + descriptor.behind).min(63)
}

fn offset_of(offset: Bits, word: u128) -> i64 {
    if offset.0.is_empty() { 0 } else { offset.signed(word) }
}
