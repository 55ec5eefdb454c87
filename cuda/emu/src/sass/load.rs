//! A cubin into a [`Program`]: variables get memory, addresses are filled in, instructions are decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvabi_sass::cubin::{Object, Relocation, Symbol, object};

use super::decode::decode;
use super::{
    BANKS, Builtin, CODE, Instruction, Kernel, Op, Predicate, Program, RESERVED_SHARED, Section,
    ZERO,
};
use crate::device::MAX_LOCAL_BYTES;
use crate::error::{LoadError, load_error};
use crate::memory::Memory;
use crate::program::{Rmw, Space};

/// Bytes of local memory that a thread has beyond what the cubin says, for calls that it does not know of.
const STACK: u64 = 1024;

/// Bytes of `__constant__` variables that a GPU has.
const MAX_CONSTANTS: u64 = 64 << 10;

/// Where parameters begin in bank 0 where the cubin does not say: up to Ada, and since.
const FIRST_PARAMETER: [usize; 2] = [0x160, 0x210];

/// Functions of the driver, by their names.
const BUILTINS: [(&str, Builtin); 4] = [
    ("vprintf", Builtin::Printf),
    ("__assertfail", Builtin::AssertFail),
    ("malloc", Builtin::Malloc),
    ("free", Builtin::Free),
];

/// Attributes in `.nv.info`.
mod attribute {
    pub(super) const PARAMETERS: u8 = 0x0a;
    pub(super) const FRAME: u8 = 0x11;
    pub(super) const LEAST_STACK: u8 = 0x12;
    pub(super) const MAX_THREADS: u8 = 0x05;
    pub(super) const PARAMETER: u8 = 0x17;
    pub(super) const MOST_STACK: u8 = 0x23;
}

/// Kinds of relocations.
mod kind {
    pub(super) const WORD: u32 = 1;
    pub(super) const LONG: u32 = 2;
    pub(super) const GLOBAL_WORD: u32 = 3;
    pub(super) const GLOBAL_LONG: u32 = 4;
    /// The lower and the upper 32 bits, in bits 32 to 63 of an instruction.
    pub(super) const LOW: u32 = 0x38;
    pub(super) const HIGH: u32 = 0x39;
    /// The target of a call, in units of four bytes: from bit 34, and with its lowest 8 bits at 16.
    pub(super) const CALL: u32 = 0x3a;
    pub(super) const SPLIT_CALL: u32 = 0x4b;
}

fn refuse<T>(what: impl Into<String>) -> Result<T, LoadError> {
    Err(load_error(0, what))
}

/// Loads a cubin. What it allocates is in `variables`, also where it fails.
pub(crate) fn load(
    file: &[u8],
    memory: &mut Memory,
    variables: &mut Vec<u64>,
) -> Result<Program, LoadError> {
    let object = object(file).map_err(|error| load_error(0, error.to_string()))?;
    let mut loader = Loader::new(object, memory)?;
    let loaded = loader.load();
    variables.append(&mut loader.program.variables.clone());
    loaded.map(|()| loader.program)
}

struct Loader<'a> {
    object: Object<'a>,
    memory: &'a mut Memory,
    program: Program,
    /// The bytes of each section, as they become.
    bytes: Vec<Vec<u8>>,
    /// First instruction of each section with code, by its index.
    code: BTreeMap<usize, usize>,
    /// Addresses of symbols, by number.
    addresses: BTreeMap<usize, u64>,
    builtins: usize,
}

impl<'a> Loader<'a> {
    fn new(object: Object<'a>, memory: &'a mut Memory) -> Result<Self, LoadError> {
        let bytes = object.sections.iter().map(|section| section.bytes.to_vec()).collect();
        let is_hopper = object.arch >= nvabi_sass::Arch::Sm90;
        let program = Program { is_hopper, ..Program::default() };
        let (code, addresses) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { object, memory, program, bytes, code, addresses, builtins: 0 })
    }

    fn load(&mut self) -> Result<(), LoadError> {
        self.place_code()?;
        self.place_variables()?;
        for relocation in std::mem::take(&mut self.object.relocations) {
            self.relocate(&relocation)?;
        }
        self.fill_variables()?;
        self.decode();
        self.program.shared_grain = shared_grain(&self.program.code);
        join_loops(&mut self.program.code);
        self.kernels()
    }

    /// Sections with code, one after the other, and behind them the functions of the driver.
    fn place_code(&mut self) -> Result<(), LoadError> {
        let mut first = 0;
        for section in &self.object.sections {
            let Some(name) = section.name.strip_prefix(".text.") else { continue };
            let count = section.bytes.len() / 16;
            let line = |line: &nvabi_sass::cubin::SourceLine| {
                (Arc::from(line.file.as_str()), u32::try_from(line.line).unwrap_or(0))
            };
            let lines = self.object.lines.get(&section.index);
            let lines = lines.into_iter().flatten().map(|(at, place)| (*at, line(place))).collect();
            self.code.insert(section.index, first);
            let address = CODE + first as u64 * 16;
            let name = name.into();
            self.program.sections.push(Section { name, address, first, count, lines });
            first += count;
        }
        if u32::try_from(first + BUILTINS.len()).is_err() {
            return refuse("the cubin has more code than a GPU");
        }
        self.builtins = first;
        let lines = BTreeMap::new();
        let name = "functions of the driver".into();
        let (address, count) = (CODE + first as u64 * 16, BUILTINS.len());
        self.program.sections.push(Section { name, address, first, count, lines });
        Ok(())
    }

    fn is_variable(&self, symbol: &Symbol) -> bool {
        let section = self.object.sections.get(symbol.section);
        symbol.size != 0 && section.is_some_and(|section| section.name.starts_with(".nv.global"))
    }

    fn allocate(&mut self, name: &str, size: u64) -> Result<u64, LoadError> {
        let address = self.memory.alloc(size);
        let address = address.map_err(|error| load_error(0, format!("`{name}`: {error}")))?;
        // What a variable does not start with is zero.
        self.memory.mark(address, size);
        self.program.variables.push(address);
        Ok(address)
    }

    fn place_variables(&mut self) -> Result<(), LoadError> {
        let constants = self.object.sections.iter().find(|section| section.name == ".nv.constant3");
        let constants = constants.map(|section| (section.index, section.size));
        if constants.is_some_and(|(_, size)| size > MAX_CONSTANTS) {
            return refuse(format!("more than {MAX_CONSTANTS} bytes of constants"));
        }
        if let Some((_, size)) = constants {
            self.program.constants = (self.allocate(".nv.constant3", size)?, size);
        }
        for number in 0..self.object.symbols.len() {
            let symbol = self.object.symbols[number].clone();
            let is_constant = constants.is_some_and(|(index, _)| index == symbol.section);
            let address = if self.is_variable(&symbol) {
                self.allocate(&symbol.name, symbol.size)?
            } else if is_constant {
                self.program.constants.0.wrapping_add(symbol.value)
            } else {
                continue;
            };
            self.addresses.insert(number, address);
            if symbol.size != 0 {
                self.program.symbols.insert(symbol.name, (address, symbol.size));
            }
        }
        Ok(())
    }

    /// The address that a symbol stands for.
    fn address(&self, number: usize) -> Result<u64, LoadError> {
        let Some(symbol) = self.object.symbols.get(number) else {
            return refuse(format!("there is no symbol {number}"));
        };
        if let Some(address) = self.addresses.get(&number) {
            return Ok(*address);
        }
        if symbol.section == 0 {
            let known = BUILTINS.iter().position(|(name, _)| *name == symbol.name);
            let Some(at) = known else {
                return refuse(format!("`{}` is not defined", symbol.name));
            };
            return Ok(CODE + (self.builtins + at) as u64 * 16);
        }
        if let Some(first) = self.code.get(&symbol.section) {
            return Ok((CODE + *first as u64 * 16).wrapping_add(symbol.value));
        }
        let section = self.object.sections.get(symbol.section);
        match section {
            Some(section) if section.name.starts_with(".nv.shared") => Ok(symbol.value),
            _ => refuse(format!("`{}` has no address", symbol.name)),
        }
    }

    fn relocate(&mut self, relocation: &Relocation) -> Result<(), LoadError> {
        let Some(section) = self.object.sections.get(relocation.section) else { return Ok(()) };
        let name = section.name.clone();
        let loaded = [".text.", ".nv.global", ".nv.constant"];
        if !loaded.iter().any(|prefix| name.starts_with(prefix)) {
            return Ok(());
        }
        let address = self.address(relocation.symbol)?;
        let address = address.wrapping_add_signed(relocation.addend.unwrap_or(0));
        let (at, width) = match relocation.kind {
            kind::WORD | kind::GLOBAL_WORD => (0, 4),
            kind::LONG | kind::GLOBAL_LONG => (0, 8),
            kind::LOW | kind::HIGH => (4, 4),
            kind::CALL | kind::SPLIT_CALL => (0, 16),
            other => {
                return refuse(format!("{name}: relocations of kind {other:#x} are not known"));
            }
        };
        let start = (relocation.offset as usize).saturating_add(at);
        let bytes = self.bytes.get_mut(relocation.section);
        let place = bytes.and_then(|bytes| bytes.get_mut(start..start.checked_add(width)?));
        let Some(place) = place else {
            return refuse(format!("{name}: the relocation at {start:#x} is beyond its end"));
        };
        let mut word = [0; 16];
        word[..width].copy_from_slice(place);
        let held = u128::from_le_bytes(word);
        let new = match relocation.kind {
            kind::HIGH => u128::from(address >> 32),
            kind::CALL => set(held, 34, 47, address >> 2),
            kind::SPLIT_CALL => set(set(held, 16, 8, address >> 2), 34, 47, address >> 10),
            _ if relocation.addend.is_none() => u128::from(address).wrapping_add(held),
            _ => u128::from(address),
        };
        place.copy_from_slice(&new.to_le_bytes()[..width]);
        Ok(())
    }

    /// Writes what variables start with.
    fn fill_variables(&mut self) -> Result<(), LoadError> {
        for (number, address) in &self.addresses {
            let symbol = &self.object.symbols[*number];
            let bytes = self.bytes.get(symbol.section).map_or(&[][..], Vec::as_slice);
            let start = usize::try_from(symbol.value).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(start..) else { continue };
            let size = rest.len().min(usize::try_from(symbol.size).unwrap_or(usize::MAX));
            let written = self.memory.write(*address, &rest[..size]);
            written.map_err(|error| load_error(0, format!("`{}`: {error}", symbol.name)))?;
        }
        let constants =
            self.object.sections.iter().position(|section| section.name == ".nv.constant3");
        if let Some(index) = constants {
            let bytes = &self.bytes[index];
            let size = bytes.len().min(self.program.constants.1 as usize);
            let written = self.memory.write(self.program.constants.0, &bytes[..size]);
            written.map_err(|error| load_error(0, format!(".nv.constant3: {error}")))?;
        }
        Ok(())
    }

    fn decode(&mut self) {
        for (index, first) in &self.code {
            let words = self.bytes[*index].chunks_exact(16).filter_map(|word| word.try_into().ok());
            let words: Vec<u128> = words.map(u128::from_le_bytes).collect();
            let count = words.len();
            for (at, word) in words.into_iter().enumerate() {
                let decoded = nvabi_sass::decode(self.object.arch, word, at as u64 * 16);
                self.program.asks_for_reserved |=
                    decoded.is_ok_and(|read| asks_for_reserved(&read));
                self.program.code.push(match decoded {
                    Ok(instruction) => decode(&instruction, CODE, *first, count),
                    Err(unknown) => Instruction::refused(&unknown),
                });
            }
        }
        self.program.code.extend(
            BUILTINS.map(|(_, builtin)| Instruction {
                op: Op::Builtin(builtin),
                guard: Predicate::TRUE,
            }),
        );
    }

    fn kernels(&mut self) -> Result<(), LoadError> {
        let registers = registers(&self.object, &self.bytes);
        for number in 0..self.object.symbols.len() {
            let symbol = &self.object.symbols[number];
            let Some(first) = self.code.get(&symbol.section).filter(|_| symbol.kernel) else {
                continue;
            };
            let name = symbol.name.clone();
            let at = usize::try_from(symbol.value / 16).unwrap_or(usize::MAX);
            let mut kernel = Kernel {
                first: first.saturating_add(at),
                first_parameter: FIRST_PARAMETER[usize::from(self.program.is_hopper)],
                local_size: STACK,
                registers,
                ..Kernel::default()
            };
            if kernel.first >= self.builtins {
                return refuse(format!("`{name}` has no code"));
            }
            self.attributes(number, &name, &mut kernel);
            self.banks(&name, &mut kernel)?;
            let shared = format!(".nv.shared.{name}");
            let shared = self.object.sections.iter().find(|section| section.name == shared);
            kernel.shared_size = shared.map_or(0, |section| section.size);
            self.program.kernels.insert(name, kernel);
        }
        Ok(())
    }

    fn attributes(&mut self, symbol: usize, name: &str, kernel: &mut Kernel) {
        let own = format!(".nv.info.{name}");
        for section in &self.object.sections {
            let is_own = section.name == own;
            if section.name != ".nv.info" && !is_own {
                continue;
            }
            for (attribute, value) in attributes(section.bytes) {
                let word = |at: usize| number(value, at, 4);
                let mine = is_own || word(0) == symbol as u64;
                match attribute {
                    attribute::PARAMETERS if is_own => {
                        kernel.first_parameter = number(value, 4, 2) as usize;
                        kernel.param_bytes = number(value, 6, 2);
                    }
                    attribute::PARAMETER if is_own => {
                        kernel.params.push((number(value, 6, 2), word(8) >> 18));
                    }
                    attribute::MAX_THREADS if is_own => {
                        let threads = word(0).saturating_mul(word(4).max(1));
                        kernel.max_threads = Some(threads.saturating_mul(word(8).max(1)));
                    }
                    attribute::FRAME | attribute::LEAST_STACK | attribute::MOST_STACK if mine => {
                        let size = word(4).min(MAX_LOCAL_BYTES).next_multiple_of(16);
                        kernel.local_size = kernel.local_size.max(size + STACK);
                    }
                    _ => {}
                }
            }
        }
        kernel.params.sort_unstable();
    }

    fn banks(&self, name: &str, kernel: &mut Kernel) -> Result<(), LoadError> {
        for section in &self.object.sections {
            let Some(rest) = section.name.strip_prefix(".nv.constant") else { continue };
            let (bank, of) = rest.split_once('.').unwrap_or((rest, ""));
            let Ok(bank) = bank.parse::<usize>() else { continue };
            if bank == 0 || bank == 3 || !(of.is_empty() || of == name) {
                continue;
            }
            if bank >= BANKS {
                return refuse(format!("{}: there is no bank {bank}", section.name));
            }
            kernel.banks.push((bank, self.bytes[section.index].clone()));
        }
        Ok(())
    }
}

/// Whether an instruction reads where the system's part of shared memory is.
fn asks_for_reserved(instruction: &nvabi_sass::Instruction) -> bool {
    let is_it = |value: nvabi_sass::Value| match value {
        nvabi_sass::Value::Constant {
            bank: nvabi_sass::ConstantBank::Number(0), offset, ..
        } => offset == RESERVED_SHARED as i64,
        // Without optimisation the place is in a register.
        nvabi_sass::Value::Unsigned(value) => value == RESERVED_SHARED as u64,
        _ => false,
    };
    let moves = matches!(instruction.op, nvabi_sass::Op::MOV | nvabi_sass::Op::LDC);
    let operands = instruction.operands.iter();
    operands.filter(|operand| moves || !is_number(operand)).any(|operand| is_it(operand.value))
}

fn is_number(operand: &nvabi_sass::Operand) -> bool {
    matches!(operand.value, nvabi_sass::Value::Unsigned(_))
}

/// As many bytes of shared memory as no instruction accesses in part.
pub(super) fn shared_grain(code: &[Instruction]) -> u32 {
    const WORD: u64 = 4;
    let widths = code.iter().filter_map(|instruction| match &instruction.op {
        Op::Load { at, width, .. } | Op::Store { at, width, .. } => {
            matches!(at.space, Space::Shared | Space::Generic).then_some(*width)
        }
        _ => None,
    });
    widths.min().unwrap_or(WORD).min(WORD) as u32
}

/// Of a sum of floats in shared memory ptxas makes a loop: it loads the old value, and stores the sum (ATOMS.CAST) if
/// that is still there. The load is a part of the atomic operation.
pub(super) fn join_loops(code: &mut [Instruction]) {
    const LONGEST: usize = 16;
    for end in 0..code.len() {
        let Op::Atomic { at, rmw: Rmw::CompareSwap(expected), test: true, .. } = code[end].op
        else {
            continue;
        };
        let before = code[end.saturating_sub(LONGEST)..end].iter_mut().rev();
        let load = before.filter_map(|instruction| match &mut instruction.op {
            Op::Load { at: from, to, strong, .. } => {
                (u32::from(*to) == expected && from.space == at.space).then_some(strong)
            }
            _ => None,
        });
        load.take(1).for_each(|strong| *strong = true);
    }
}

fn set(word: u128, start: u32, length: u32, value: u64) -> u128 {
    let mask = ((1u128 << length) - 1) << start;
    word & !mask | u128::from(value) << start & mask
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let field = bytes.get(at..at + width).unwrap_or_default();
    field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The attributes of a section: their numbers and values.
fn attributes(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    /// The format whose value follows, as many bytes as the head says.
    const SIZED: u8 = 4;
    let mut out = Vec::new();
    while let [format, attribute, rest @ ..] = bytes {
        let Some((head, rest)) = rest.split_at_checked(2) else { break };
        let size = if *format == SIZED { number(head, 0, 2) as usize } else { 0 };
        let Some((value, rest)) = rest.split_at_checked(size) else { break };
        out.push((*attribute, if *format == SIZED { value } else { head }));
        bytes = rest;
    }
    out
}

/// As many registers as any instruction names, and those behind it that it may mean as well.
fn registers(object: &Object<'_>, bytes: &[Vec<u8>]) -> usize {
    /// The most registers that one operand stands for.
    const WIDEST: usize = 8;
    let code = object.sections.iter().filter(|section| section.name.starts_with(".text."));
    let words = code.flat_map(|section| bytes[section.index].chunks_exact(16));
    let mut most = 0;
    for word in words.filter_map(|word| word.try_into().ok()).map(u128::from_le_bytes) {
        let Ok(instruction) = nvabi_sass::decode(object.arch, word, 0) else { continue };
        for operand in instruction.operands.iter() {
            let number = match operand.value {
                nvabi_sass::Value::Register(number) => number,
                nvabi_sass::Value::Memory { base: Some(base), .. } => base.register,
                nvabi_sass::Value::Constant { index: Some(index), .. } if !index.uniform => {
                    index.register
                }
                _ => continue,
            };
            if number != ZERO {
                most = most.max(usize::from(number));
            }
        }
    }
    (most + WIDEST).min(usize::from(ZERO))
}
