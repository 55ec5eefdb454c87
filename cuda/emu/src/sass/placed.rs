//! Code that lies in memory, as a GPU finds it: only its entry is known, and what follows from there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nvabi_sass::{Arch, ConstantBank, Value};

use super::decode::decode;
use super::load::{join_loops, shared_grain};
use super::{BANK_BYTES, Instruction, Op, Predicate, Program, Section};
use crate::error::{LoadError, load_error};
use crate::memory::Memory;

/// Bytes of an instruction.
const SIZE: u64 = 16;
/// Bytes that are read at once.
const PAGE: u64 = 4096;
/// Most instructions that are looked at, and how far they may be from the entry, or from where constants lead. What is
/// beyond is no code, to a jump.
const MOST: usize = 1 << 18;
const MOST_AWAY: u64 = MOST as u64 * SIZE;
const MOST_CENTRES: usize = 4;
/// The bank in which a linker leaves addresses.
const FUNCTIONS: usize = 4;

/// Loads the code at an address, and all that it branches to or calls, also by an address in its constants.
///
/// What a register leads to, as tables of branches and pointers of functions, is found where it lies behind other
/// code, as compilers place it, or when lanes come there.
pub(crate) fn load(
    arch: Arch,
    memory: &Memory,
    entry: u64,
    banks: &[Vec<u8>],
) -> Result<Program, LoadError> {
    if entry % SIZE != 0 {
        return Err(load_error(0, format!("code at {entry:#x}, which is not aligned")));
    }
    let mut found =
        Found { arch, memory, banks, centres: vec![entry], runs: BTreeMap::new(), left: MOST };
    found.follow(entry);
    if !found.has(entry) {
        return Err(load_error(0, format!("no code of {arch} at {entry:#x}")));
    }
    for function in found.functions() {
        if found.reach(function) {
            found.follow(function);
        }
    }
    Ok(found.program())
}

/// The words of instructions that follow each other.
type Run = Vec<u128>;

struct Found<'a> {
    arch: Arch,
    memory: &'a Memory,
    banks: &'a [Vec<u8>],
    /// The entry, and where constants lead that is far from there.
    centres: Vec<u64>,
    /// By their first addresses; none overlaps another.
    runs: BTreeMap<u64, Run>,
    /// How many words are still looked at.
    left: usize,
}

fn end(start: u64, run: &Run) -> u64 {
    start + run.len() as u64 * SIZE
}

impl Found<'_> {
    fn has(&self, address: u64) -> bool {
        let before = self.runs.range(..=address).next_back();
        before.is_some_and(|(start, run)| address < end(*start, run))
    }

    /// Decodes what lies behind an address, and where that leads.
    fn follow(&mut self, start: u64) {
        let mut starts = BTreeSet::from([start]);
        while let Some(start) = starts.pop_first() {
            if !self.has(start) && self.left > 0 {
                starts.extend(self.run(start));
            }
        }
    }

    /// Decodes what lies behind an address until there is no more code; where that leads.
    fn run(&mut self, start: u64) -> Vec<u64> {
        let next = self.runs.range(start..).next().map_or(u64::MAX, |(next, _)| *next);
        let (mut run, mut leads) = (Run::new(), Vec::new());
        let (mut at, mut page, mut read) = (start, Vec::new(), 0);
        while at < next && self.is_near(at) && self.left > 0 {
            if read == page.len() {
                (page, read) = (self.page(at), 0);
            }
            let Some(word) = page[read..].first_chunk() else { break };
            self.left -= 1;
            let word = u128::from_le_bytes(*word);
            // At its own address, so that what it says of others is an address, too.
            match nvabi_sass::decode(self.arch, word, at) {
                Ok(instruction) => {
                    leads.extend(targets(&instruction).filter(|to| self.is_near(*to)));
                    leads.extend(self.far_target(&instruction).filter(|to| self.reach(*to)));
                }
                // It is refused when it runs; what is behind it is code all the same.
                Err(unknown) if unknown.name.is_some() || is_passed_over(word) => {}
                Err(_) => break,
            }
            run.push(word);
            at += SIZE;
            read += SIZE as usize;
        }
        if !run.is_empty() {
            self.runs.insert(start, run);
        }
        leads
    }

    /// Where a jump or a call leads to by an address of its own, or by one that the launch has in its constants.
    fn far_target(&self, instruction: &nvabi_sass::Instruction) -> Option<u64> {
        if !matches!(instruction.op, nvabi_sass::Op::JMP | nvabi_sass::Op::CALL) {
            return None;
        }
        let target = instruction.operands.iter().find_map(|operand| match operand.value {
            Value::Constant { bank: ConstantBank::Number(bank), index: None, offset } => {
                self.constant(bank.into(), offset)
            }
            Value::Signed(address) => u64::try_from(address).ok(),
            Value::Unsigned(address) => Some(address),
            _ => None,
        });
        target.filter(|to| *to != 0 && to % SIZE == 0)
    }

    /// Addresses that a driver put into the constants of functions which a kernel calls without naming them.
    fn functions(&self) -> Vec<u64> {
        let words = self.banks.get(FUNCTIONS).map_or(&[][..], Vec::as_slice).chunks_exact(8);
        let words =
            words.filter_map(|word| word.first_chunk()).map(|word| u64::from_le_bytes(*word));
        words.filter(|to| *to != 0 && to % SIZE == 0).collect()
    }

    fn constant(&self, bank: usize, offset: i64) -> Option<u64> {
        let bytes = self.banks.get(bank)?.get(offset.rem_euclid(BANK_BYTES) as usize..)?;
        bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn is_near(&self, address: u64) -> bool {
        self.centres.iter().any(|centre| address.abs_diff(*centre) < MOST_AWAY)
    }

    /// Whether code at an address is looked at from now on.
    fn reach(&mut self, address: u64) -> bool {
        if !self.is_near(address) && self.centres.len() < MOST_CENTRES {
            self.centres.push(address);
        }
        self.is_near(address)
    }

    /// The bytes from an address on to the end of its page, as far as they are there.
    fn page(&self, at: u64) -> Vec<u8> {
        let Some((_, end)) = self.memory.find(at) else { return Vec::new() };
        let mut bytes = vec![0; (PAGE - at % PAGE).min(end - at) as usize];
        match self.memory.read(at, &mut bytes) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    fn program(self) -> Program {
        let mut program = Program { placed: Some(self.arch), ..Program::default() };
        for island in self.islands() {
            self.add(&mut program, island);
        }
        program.shared_grain = shared_grain(&program.code);
        join_loops(&mut program.code);
        program
    }

    /// From where to where there is code, with no wide gap in it.
    fn islands(&self) -> Vec<Range<u64>> {
        let mut islands: Vec<Range<u64>> = Vec::new();
        for (start, run) in &self.runs {
            let end = end(*start, run);
            match islands.last_mut() {
                Some(last) if start - last.end < MOST_AWAY => last.end = end,
                _ => islands.push(*start..end),
            }
        }
        islands
    }

    fn add(&self, program: &mut Program, island: Range<u64>) {
        let address = island.start;
        let (first, count) = (program.code.len(), ((island.end - address) / SIZE) as usize);
        let nothing = || Instruction { op: Op::NoCode, guard: Predicate::TRUE };
        program.code.resize_with(first + count, nothing);
        // Where number 0 would be, if there were no other code.
        let origin = address.wrapping_sub(first as u64 * SIZE);
        for (start, run) in self.runs.range(island) {
            for (number, word) in (((start - address) / SIZE) as usize..).zip(run) {
                if let Ok(instruction) =
                    read(self.arch, *word, number, origin, first..first + count)
                {
                    program.code[first + number] = instruction;
                }
            }
        }
        let (name, lines) = (format!("{address:#x}").into(), BTreeMap::new());
        program.sections.push(Section { name, address, first, count, lines });
    }
}

/// An opcode that NVIDIA's disassembler prints nothing for, and nothing public describes. The driver's own `malloc` and
/// `free` have pairs of it, and come to the right results where it does nothing.
fn is_passed_over(word: u128) -> bool {
    word & 0xfff == 0x951
}

/// What a word of a section is, of which its number is given, or why it is no instruction.
fn read(
    arch: Arch,
    word: u128,
    number: usize,
    origin: u64,
    section: Range<usize>,
) -> Result<Instruction, String> {
    match nvabi_sass::decode(arch, word, number as u64 * SIZE) {
        Ok(instruction) => Ok(decode(&instruction, origin, section.start, section.len())),
        Err(unknown) if unknown.name.is_some() => Ok(Instruction::refused(&unknown)),
        Err(_) if is_passed_over(word) => Ok(Instruction { op: Op::Nop, guard: Predicate::TRUE }),
        Err(_) => Err(format!("no code is here, but {word:#034x}")),
    }
}

/// Where an instruction leads to by an address of its own.
fn targets(instruction: &nvabi_sass::Instruction) -> impl Iterator<Item = u64> {
    instruction.operands.iter().filter_map(|operand| match operand.value {
        Value::Target(address) => u64::try_from(address).ok().filter(|to| to % SIZE == 0),
        _ => None,
    })
}

impl Program {
    /// Code between what was found, to which only a register led; otherwise what is there.
    pub(crate) fn found_late(&self, memory: &Memory, pc: usize) -> Result<Instruction, String> {
        let nothing = || "no code is here".to_owned();
        let (arch, section) = self.placed.zip(self.section(pc)).ok_or_else(nothing)?;
        let number = pc - section.first;
        let mut word = [0; SIZE as usize];
        let address = section.address + number as u64 * SIZE;
        memory.read(address, &mut word).map_err(|_| nothing())?;
        let origin = section.address.wrapping_sub(section.first as u64 * SIZE);
        let section = section.first..section.first + section.count;
        read(arch, u128::from_le_bytes(word), number, origin, section)
    }

    /// The kernel of a launch of code in memory.
    pub(crate) fn placed_kernel(&self, placed: &crate::device::Placed) -> super::Kernel {
        super::Kernel {
            first: self.number(placed.entry).unwrap_or_default(),
            shared_size: placed.shared_bytes,
            local_size: placed.local_bytes[0],
            local_top: placed.local_bytes[1],
            registers: usize::from(super::ZERO),
            ..super::Kernel::default()
        }
    }
}
