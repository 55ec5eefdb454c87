//! Checks control information: is a result read, or a register overwritten, before its scoreboard or the stall counts
//! allow it?
//!
//! The check follows the instructions in the order of their addresses, and forgets what it knows behind jumps and
//! unknown instructions. It assumes the least: a number of cycles that ptxas leaves somewhere is enough everywhere.

use std::collections::BTreeMap;
use std::fmt;

use crate::decode::{Address, ConstantBank, Guard, Instruction, Operand, Value};
use crate::{Modifier, Op, cycles};

/// A register of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Register {
    /// A register.
    General(u8),
    /// A uniform register.
    Uniform(u8),
    /// A predicate.
    Predicate(u8),
    /// A uniform predicate.
    UniformPredicate(u8),
}

/// What is wrong with an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The instruction that comes too early.
    pub address: u64,
    /// The register.
    pub register: Register,
    /// The instruction that it does not wait for.
    pub earlier: u64,
    /// In which way.
    pub hazard: Hazard,
}

/// The ways to be too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    /// It reads a result without waiting for its scoreboard.
    NoWait(u8),
    /// It writes a register whose result another instruction still has to write, without waiting for its scoreboard.
    Overtakes(u8),
    /// It writes a register that another instruction still has to read, without waiting for its scoreboard.
    Overwrites(u8),
    /// It reads a result too few cycles after the instruction that makes it.
    TooFewCycles {
        /// As many as there are.
        cycles: u64,
        /// As many as it takes.
        needed: u64,
    },
}

/// What a register waits for.
#[derive(Clone, Copy)]
enum Pending {
    Result { scoreboard: u8, from: u64, guard: Guard },
    Cycles { from: u64, start: u64, needed: u64 },
}

/// Checks the instructions of one function, in the order of their addresses.
pub fn check(instructions: &[Instruction]) -> Vec<Finding> {
    let mut state = State::default();
    let mut findings = Vec::new();
    let mut next = 0;
    for instruction in instructions {
        if instruction.address != next {
            state = State::default();
        }
        next = instruction.address.wrapping_add(16);
        state.step(instruction, &mut findings);
    }
    findings
}

/// Who reads a register, and the scoreboards that tell when it has read, and when it has written as well.
#[derive(Clone, Copy)]
struct Read {
    scoreboard: u8,
    written: Option<u8>,
    from: u64,
    guard: Guard,
}

#[derive(Default)]
struct State {
    cycle: u64,
    written: BTreeMap<Register, Pending>,
    /// What is still read.
    read: BTreeMap<Register, Read>,
}

impl State {
    fn step(&mut self, instruction: &Instruction, findings: &mut Vec<Finding>) {
        self.wait(instruction);
        let address = instruction.address;
        for (register, is_first) in reads(instruction) {
            let (earlier, hazard) = match self.written.get(&register) {
                // Under opposite guards only one of the two is executed.
                Some(Pending::Result { guard, .. }) if is_opposite(*guard, instruction.guard) => {
                    continue;
                }
                Some(Pending::Result { scoreboard, from, .. }) => {
                    (*from, Hazard::NoWait(*scoreboard))
                }
                Some(Pending::Cycles { from, start, needed })
                    if is_first && self.cycle - start < *needed =>
                {
                    (*from, Hazard::TooFewCycles { cycles: self.cycle - start, needed: *needed })
                }
                _ => continue,
            };
            findings.push(Finding { address, register, earlier, hazard });
            // The first that is too early is enough.
            self.written.remove(&register);
        }
        // Units do what they are given in its order: only what needs none overtakes them.
        let is_given = instruction.control.write_barrier.is_some();
        for register in writes(instruction).into_iter().filter(|_| !is_given) {
            let pending = match self.written.get(&register) {
                Some(Pending::Result { scoreboard, from, guard }) => {
                    Some((Hazard::Overtakes(*scoreboard), *from, *guard))
                }
                _ => None,
            };
            let read = self.read.remove(&register);
            let read =
                read.map(|read| (Hazard::Overwrites(read.scoreboard), read.from, read.guard));
            let early =
                pending.or(read).filter(|(.., guard)| !is_opposite(*guard, instruction.guard));
            if let Some((hazard, earlier, _)) = early {
                findings.push(Finding { address, register, earlier, hazard });
            }
        }
        self.note(instruction);
    }

    fn wait(&mut self, instruction: &Instruction) {
        let mut mask = instruction.control.wait_mask;
        if instruction.op == Op::DEPBAR {
            for operand in instruction.operands.iter() {
                match operand.value {
                    Value::Scoreboard(scoreboard) => mask |= 1 << scoreboard,
                    Value::Scoreboards(more) => mask |= more,
                    _ => {}
                }
            }
        }
        let waits = |scoreboard: u8| mask >> scoreboard & 1 == 1;
        self.written.retain(|_, pending| !matches!(pending, Pending::Result { scoreboard, .. } if waits(*scoreboard)));
        self.read.retain(|_, read| !waits(read.scoreboard) && !read.written.is_some_and(waits));
    }

    fn note(&mut self, instruction: &Instruction) {
        let from = instruction.address;
        if let Some(scoreboard) = instruction.control.read_barrier {
            // Predicates and uniform registers are read when the instruction is given to its unit.
            let is_late = |register: &Register| matches!(register, Register::General(_));
            let (written, guard) = (instruction.control.write_barrier, instruction.guard);
            let read = Read { scoreboard, written, from, guard };
            let registers = reads(instruction).into_iter().map(|(register, _)| register);
            self.read.extend(registers.filter(is_late).map(|register| (register, read)));
        }
        for register in writes(instruction) {
            let pending = match (instruction.control.write_barrier, cycles(instruction.op)) {
                (Some(scoreboard), _) => {
                    Some(Pending::Result { scoreboard, from, guard: instruction.guard })
                }
                (None, Some((general, predicate))) => {
                    let is_predicate =
                        matches!(register, Register::Predicate(_) | Register::UniformPredicate(_));
                    let needed = u64::from(if is_predicate { predicate } else { general });
                    Some(Pending::Cycles { from, start: self.cycle, needed })
                }
                (None, None) => None,
            };
            match pending {
                Some(pending) => self.written.insert(register, pending),
                None => self.written.remove(&register),
            };
        }
        self.cycle += u64::from(instruction.control.stall).max(1);
        if is_jump(instruction) {
            *self = State::default();
        }
    }
}

fn is_opposite(one: Guard, other: Guard) -> bool {
    one.uniform == other.uniform && one.predicate == other.predicate && one.negated != other.negated
}

fn is_jump(instruction: &Instruction) -> bool {
    let always = instruction.guard.predicate == 7;
    match instruction.op {
        Op::CALL | Op::BRX | Op::RET | Op::WARPSYNC => true,
        Op::BRA | Op::EXIT => always,
        _ => false,
    }
}

/// Registers that an instruction writes, RZ and PT left out.
fn writes(instruction: &Instruction) -> Vec<Register> {
    let mut registers = Vec::new();
    for (at, operand) in
        instruction.operands.iter().enumerate().filter(|(_, operand)| operand.written)
    {
        (0..width(instruction, at)).for_each(|index| push(&mut registers, operand, index));
    }
    registers
}

/// Registers that an instruction surely reads, and whether each is the first of its group: the others may be read
/// some cycles later.
fn reads(instruction: &Instruction) -> Vec<(Register, bool)> {
    let mut registers = Vec::new();
    let guard = instruction.guard;
    let guard_value = match guard.uniform {
        true => Register::UniformPredicate(guard.predicate),
        false => Register::Predicate(guard.predicate),
    };
    if guard.predicate != 7 {
        registers.push((guard_value, true));
    }
    let general = |address: &Address| {
        let last = u8::from(address.suffixes.contains(&Modifier::_64));
        let register = move |next: u8| match (address.uniform, address.register) {
            (true, 63) | (false, 255) => None,
            (true, number) => Some((Register::Uniform(number.saturating_add(next)), next == 0)),
            (false, number) => Some((Register::General(number.saturating_add(next)), next == 0)),
        };
        (0..=last).filter_map(register).collect::<Vec<_>>()
    };
    for (at, operand) in
        instruction.operands.iter().enumerate().filter(|(_, operand)| !operand.written)
    {
        let mut group = Vec::new();
        (0..width(instruction, at)).for_each(|index| push(&mut group, operand, index));
        registers.extend(group.into_iter().enumerate().map(|(at, register)| (register, at == 0)));
        match operand.value {
            Value::Memory { descriptor, base, uniform, .. } => {
                registers.extend(base.as_ref().map(general).unwrap_or_default());
                let uniforms =
                    [descriptor, uniform].into_iter().flatten().filter(|&number| number != 63);
                registers.extend(uniforms.map(|number| (Register::Uniform(number), true)));
            }
            Value::Descriptor { register, .. } if register != 63 => {
                registers
                    .extend((0..2).map(|next| (Register::Uniform(register + next), next == 0)));
            }
            Value::Constant { bank, index, .. } => {
                registers.extend(index.as_ref().map(general).unwrap_or_default());
                match bank {
                    ConstantBank::Bindless(number) if number != 63 => {
                        registers.push((Register::Uniform(number), true))
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    registers
}

/// Adds the register of an operand, or one of those behind it.
fn push(registers: &mut Vec<Register>, operand: &Operand, index: u8) {
    let register = match operand.value {
        Value::Register(number) if number != 255 => Register::General(number.saturating_add(index)),
        Value::Uniform(number) if number != 63 => Register::Uniform(number.saturating_add(index)),
        Value::Predicate(number) if number != 7 && index == 0 => Register::Predicate(number),
        Value::UniformPredicate(number) if number != 7 && index == 0 => {
            Register::UniformPredicate(number)
        }
        _ => return,
    };
    registers.push(register);
}

/// Registers of an operand: what is surely read or written.
fn width(instruction: &Instruction, at: usize) -> u8 {
    use Modifier::*;
    let has = |modifier| instruction.modifiers.contains(&modifier);
    let any = |modifiers: &[Modifier]| modifiers.iter().any(|modifier| has(*modifier));
    let is_target = at == 0;
    match instruction.op {
        Op::LD | Op::LDG | Op::LDS | Op::LDL | Op::ST | Op::STG | Op::STS | Op::STL
            if has(_128) =>
        {
            4
        }
        Op::LD | Op::LDG | Op::LDS | Op::LDL | Op::LDC | Op::ULDC if has(_64) => 2,
        Op::ST | Op::STG | Op::STS | Op::STL if has(_64) => 2,
        Op::ATOM | Op::ATOMG | Op::ATOMS | Op::RED | Op::REDG if any(&[_64, S64, F64_RN]) => 2,
        Op::LDSM | Op::STSM if has(_4) => 4,
        Op::LDSM | Op::STSM if has(_2) => 2,
        // The upper half of what is added is read later than the rest.
        Op::IMAD | Op::UIMAD if has(WIDE) && is_target => 2,
        Op::DADD | Op::DMUL | Op::DFMA | Op::DSETP => 2,
        Op::FRND if has(F64) => 2,
        Op::CS2R if !has(_32) => 2,
        Op::I2F if is_target && has(F64) || !is_target && any(&[U64, S64]) => 2,
        Op::F2I if is_target && any(&[U64, S64]) || !is_target && has(F64) => 2,
        Op::F2F => {
            let is_double = |modifier: &&Modifier| matches!(modifier, F16 | BF16 | F32 | F64);
            // The first is that of the result.
            let kind = instruction.modifiers.iter().filter(is_double).nth(usize::from(!is_target));
            if kind == Some(&F64) { 2 } else { 1 }
        }
        Op::HMMA | Op::IMMA | Op::BMMA | Op::DMMA => matrix_registers(instruction)[at.min(3)],
        _ => 1,
    }
}

/// Registers of the result of a product of matrices, of its factors, and of what is added.
fn matrix_registers(instruction: &Instruction) -> [u8; 4] {
    use Modifier::*;
    let has = |modifier| instruction.modifiers.contains(&modifier);
    let few = has(U4) || has(S4);
    let sum = if has(F32) { 4 } else { 2 };
    match instruction.op {
        Op::HMMA if has(TF32) && has(_1688) => [4, 4, 2, 4],
        Op::HMMA if has(_1684) => [4, 2, 1, 4],
        Op::HMMA if has(_16816) => [sum, 4, 2, sum],
        Op::HMMA if has(_1688) => [sum, 2, 1, sum],
        Op::DMMA if has(_16x8x4) => [8, 4, 2, 8],
        Op::DMMA if has(_16x8x8) => [8, 8, 4, 8],
        Op::DMMA if has(_16x8x16) => [8, 16, 8, 8],
        Op::DMMA => [4, 2, 2, 4],
        Op::IMMA | Op::BMMA if has(_8816) || has(_8832) || has(_88128) => [2, 1, 1, 2],
        Op::IMMA | Op::BMMA if has(_16816) || has(_16832) && few || has(_168128) => [4, 2, 1, 4],
        Op::IMMA | Op::BMMA if has(_16832) || has(_16864) || has(_168256) => [4, 4, 2, 4],
        _ => [1; 4],
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Register::General(number) => write!(f, "R{number}"),
            Register::Uniform(number) => write!(f, "UR{number}"),
            Register::Predicate(number) => write!(f, "P{number}"),
            Register::UniformPredicate(number) => write!(f, "UP{number}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { address, register, earlier, hazard } = self;
        write!(f, "{address:#06x}: ")?;
        match hazard {
            Hazard::NoWait(scoreboard) => {
                write!(
                    f,
                    "reads {register} of {earlier:#06x} without a wait for scoreboard {scoreboard}"
                )
            }
            Hazard::Overtakes(scoreboard) => {
                write!(
                    f,
                    "writes {register}, which {earlier:#06x} still has to write, without a wait for scoreboard \
                     {scoreboard}"
                )
            }
            Hazard::Overwrites(scoreboard) => {
                write!(
                    f,
                    "writes {register}, which {earlier:#06x} still has to read, without a wait for scoreboard \
                     {scoreboard}"
                )
            }
            Hazard::TooFewCycles { cycles, needed } => {
                write!(
                    f,
                    "reads {register} {cycles} cycles after {earlier:#06x}, expected at least {needed}"
                )
            }
        }
    }
}
