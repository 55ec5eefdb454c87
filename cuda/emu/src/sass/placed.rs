//! Code that lies in memory, as a GPU finds it: only its entry is known, and what follows from there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nvabi_sass::{Arch, Value};

use super::decode::decode;
use super::load::shared_grain;
use super::{Instruction, Op, Predicate, Program, Section};
use crate::error::{LoadError, load_error};
use crate::memory::Memory;

/// Bytes of an instruction.
const SIZE: u64 = 16;
/// Bytes that are read at once.
const PAGE: u64 = 4096;
/// Most instructions that are looked at, and how far from the entry they may be. What is beyond is no code, to a jump.
const MOST: usize = 1 << 18;
const MOST_AWAY: u64 = MOST as u64 * SIZE;

/// Loads the code at an address, and all that it branches to or calls.
///
/// What a register leads to, as tables of branches and pointers of functions, is found where it lies behind other
/// code, as compilers place it.
pub(crate) fn load(arch: Arch, memory: &Memory, entry: u64) -> Result<Program, LoadError> {
    if entry % SIZE != 0 {
        return Err(load_error(0, format!("code at {entry:#x}, which is not aligned")));
    }
    let mut found = Found { arch, memory, entry, runs: BTreeMap::new(), left: MOST };
    let mut starts = BTreeSet::from([entry]);
    while let Some(start) = starts.pop_first() {
        if !found.has(start) && found.left > 0 {
            starts.extend(found.run(start));
        }
    }
    if !found.has(entry) {
        return Err(load_error(0, format!("no code of {arch} at {entry:#x}")));
    }
    Ok(found.program())
}

/// The words of instructions that follow each other.
type Run = Vec<u128>;

struct Found<'a> {
    arch: Arch,
    memory: &'a Memory,
    entry: u64,
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
            let Ok(instruction) = nvabi_sass::decode(self.arch, word, at) else { break };
            leads.extend(targets(&instruction).filter(|to| self.is_near(*to)));
            run.push(word);
            at += SIZE;
            read += SIZE as usize;
        }
        if !run.is_empty() {
            self.runs.insert(start, run);
        }
        leads
    }

    fn is_near(&self, address: u64) -> bool {
        address.abs_diff(self.entry) < MOST_AWAY
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
        let span = self.span();
        let count = ((span.end - span.start) / SIZE) as usize;
        let mut program = Program { origin: span.start, ..Program::default() };
        let nothing = || Instruction { op: Op::NoCode, guard: Predicate::TRUE };
        program.code.resize_with(count, nothing);
        for (start, run) in &self.runs {
            let first = ((start - span.start) / SIZE) as usize;
            for (number, word) in run.iter().enumerate() {
                let at = (first + number) as u64 * SIZE;
                // It has been decoded before.
                if let Ok(instruction) = nvabi_sass::decode(self.arch, *word, at) {
                    program.code[first + number] = decode(&instruction, span.start, 0, count);
                }
            }
        }
        program.shared_grain = shared_grain(&program.code);
        let (name, lines) = (format!("{:#x}", span.start).into(), BTreeMap::new());
        program.sections.push(Section { name, first: 0, count, lines });
        program
    }

    fn span(&self) -> Range<u64> {
        let first = self.runs.first_key_value().map_or(self.entry, |(start, _)| *start);
        let last = self.runs.last_key_value().map_or(self.entry, |(start, run)| end(*start, run));
        first..last
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
    /// The kernel of a launch of code in memory.
    pub(crate) fn placed_kernel(&self, placed: &crate::device::Placed) -> super::Kernel {
        super::Kernel {
            first: (placed.entry.saturating_sub(self.origin) / SIZE) as usize,
            shared_size: placed.shared_bytes,
            local_size: placed.local_bytes,
            registers: usize::from(super::ZERO),
            ..super::Kernel::default()
        }
    }
}
