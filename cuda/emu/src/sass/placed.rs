//! Code that lies in memory, as a GPU finds it: only its entry is known, and what follows from there.

use std::collections::BTreeMap;
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
/// Most instructions that are looked at, and the bytes that they may be apart.
const MOST: usize = 1 << 20;
const MOST_SPAN: u64 = 64 << 20;

/// Loads the code at an address, and all that it branches to or calls.
///
/// What a register leads to, as tables of branches and pointers of functions, is found where it lies behind other
/// code, as compilers place it.
pub(crate) fn load(arch: Arch, memory: &Memory, entry: u64) -> Result<Program, LoadError> {
    let mut found = Found { arch, memory, runs: BTreeMap::new(), count: 0 };
    let mut starts = vec![entry];
    while let Some(start) = starts.pop() {
        if !found.has(start) {
            starts.append(&mut found.run(start)?);
        }
    }
    found.program(entry)
}

/// The words of instructions that follow each other.
type Run = Vec<u128>;

struct Found<'a> {
    arch: Arch,
    memory: &'a Memory,
    /// By their first addresses; none overlaps another.
    runs: BTreeMap<u64, Run>,
    count: usize,
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
    fn run(&mut self, start: u64) -> Result<Vec<u64>, LoadError> {
        if start % SIZE != 0 {
            return Err(load_error(0, format!("code at {start:#x}, which is not aligned")));
        }
        let next = self.runs.range(start..).next().map_or(u64::MAX, |(next, _)| *next);
        let (mut run, mut leads) = (Run::new(), Vec::new());
        let mut at = start;
        'pages: while at < next {
            let Some(bytes) = self.page(at) else { break };
            for word in bytes.chunks_exact(SIZE as usize) {
                let word = word.try_into().map_or(0, u128::from_le_bytes);
                // At its own address, so that what it says of others is an address, too.
                let Ok(instruction) = nvabi_sass::decode(self.arch, word, at) else { break 'pages };
                if at >= next {
                    break 'pages;
                }
                leads.extend(targets(&instruction));
                run.push(word);
                at += SIZE;
            }
            self.count += bytes.len() / SIZE as usize;
            if self.count > MOST {
                return Err(load_error(
                    0,
                    format!("more than {MOST} instructions from {start:#x} on"),
                ));
            }
        }
        if run.is_empty() {
            return Err(load_error(0, format!("no code of {} at {start:#x}", self.arch)));
        }
        self.runs.insert(start, run);
        leads.retain(|to| !self.has(*to) && self.page(*to).is_some());
        Ok(leads)
    }

    /// The bytes from an address on to the end of its page, as far as they are there.
    fn page(&self, at: u64) -> Option<Vec<u8>> {
        let (_, end) = self.memory.find(at)?;
        let size = (PAGE - at % PAGE).min(end - at);
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.memory.read(at, &mut bytes).ok()?;
        Some(bytes)
    }

    fn program(self, entry: u64) -> Result<Program, LoadError> {
        let span = self.span(entry);
        if span.end - span.start > MOST_SPAN {
            let what = format!("code from {:#x} to {:#x} is too far apart", span.start, span.end);
            return Err(load_error(0, what));
        }
        let count = ((span.end - span.start) / SIZE) as usize;
        let mut program = Program { origin: span.start, ..Program::default() };
        program.code.resize_with(count, || Instruction {
            op: Op::Refused("no code is here".into()),
            guard: Predicate::TRUE,
        });
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
        Ok(program)
    }

    fn span(&self, entry: u64) -> Range<u64> {
        let first = self.runs.first_key_value().map_or(entry, |(start, _)| *start);
        let last = self.runs.last_key_value().map_or(entry, |(start, run)| end(*start, run));
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
