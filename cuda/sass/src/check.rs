//! Checks control information: is a result read before its scoreboard or the stall counts allow it?
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

#[derive(Default)]
struct State {
    cycle: u64,
    written: BTreeMap<Register, Pending>,
}

impl State {
    fn step(&mut self, instruction: &Instruction, findings: &mut Vec<Finding>) {
        self.wait(instruction);
        let address = instruction.address;
        for register in reads(instruction) {
            let (earlier, hazard) = match self.written.get(&register) {
                // Under opposite guards only one of the two is executed.
                Some(Pending::Result { guard, .. }) if is_opposite(*guard, instruction.guard) => {
                    continue;
                }
                Some(Pending::Result { scoreboard, from, .. }) => {
                    (*from, Hazard::NoWait(*scoreboard))
                }
                Some(Pending::Cycles { from, start, needed }) if self.cycle - start < *needed => {
                    (*from, Hazard::TooFewCycles { cycles: self.cycle - start, needed: *needed })
                }
                _ => continue,
            };
            findings.push(Finding { address, register, earlier, hazard });
            // The first that is too early is enough.
            self.written.remove(&register);
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
    }

    fn note(&mut self, instruction: &Instruction) {
        let from = instruction.address;
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
    for operand in instruction.operands.iter().filter(|operand| operand.written) {
        for index in 0..width(instruction) {
            push(&mut registers, operand, index);
        }
    }
    registers
}

/// Registers that an instruction surely reads. Of a group only the first: how many there are depends on more than
/// the text.
fn reads(instruction: &Instruction) -> Vec<Register> {
    let mut registers = Vec::new();
    let guard = instruction.guard;
    let guard_value = match guard.uniform {
        true => Register::UniformPredicate(guard.predicate),
        false => Register::Predicate(guard.predicate),
    };
    if guard.predicate != 7 {
        registers.push(guard_value);
    }
    let general = |address: &Address| match (address.uniform, address.register) {
        (true, 63) | (false, 255) => None,
        (true, number) => Some(Register::Uniform(number)),
        (false, number) => Some(Register::General(number)),
    };
    for operand in instruction.operands.iter().filter(|operand| !operand.written) {
        push(&mut registers, operand, 0);
        match operand.value {
            Value::Memory { descriptor, base, uniform, .. } => {
                registers.extend(base.as_ref().and_then(general));
                let uniforms =
                    [descriptor, uniform].into_iter().flatten().filter(|&number| number != 63);
                registers.extend(uniforms.map(Register::Uniform));
            }
            Value::Descriptor { register, .. } if register != 63 => {
                registers.extend((0..2).map(|next| Register::Uniform(register + next)));
            }
            Value::Constant { bank, index, .. } => {
                registers.extend(index.as_ref().and_then(general));
                match bank {
                    ConstantBank::Bindless(number) if number != 63 => {
                        registers.push(Register::Uniform(number))
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

/// Registers of a result: what is surely written.
fn width(instruction: &Instruction) -> u8 {
    let has = |modifier| instruction.modifiers.contains(&modifier);
    match instruction.op {
        Op::LD | Op::LDG | Op::LDS | Op::LDL if has(Modifier::_128) => 4,
        Op::LD | Op::LDG | Op::LDS | Op::LDL | Op::LDC | Op::ULDC if has(Modifier::_64) => 2,
        Op::IMAD | Op::UIMAD if has(Modifier::WIDE) => 2,
        Op::DADD | Op::DMUL | Op::DFMA => 2,
        _ => 1,
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
            Hazard::TooFewCycles { cycles, needed } => {
                write!(
                    f,
                    "reads {register} {cycles} cycles after {earlier:#06x}, expected at least {needed}"
                )
            }
        }
    }
}
