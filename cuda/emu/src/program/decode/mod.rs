//! A parsed module into a [`Program`]: names become numbers, opcodes become operations.
//!
//! `decoder_of` says which function decodes an opcode; there is a file for each family. What only computes a
//! register is not here: tables in `lanes` have it.

mod arithmetic;
mod atomics;
mod barriers;
mod compare;
mod control;
mod demand;
mod mbarrier;
mod memory;
mod moves;
mod operands;
mod recorder;
mod shared;
mod tensor;
mod texture;
mod warp;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use self::shared::{NextMultiple, Shared, SharedLayout};
use super::{Function, Instruction, Linked, Op, Program, Reg, Target, Unit, flow};
use crate::device::MAX_LOCAL_BYTES;
use crate::error::{LoadError, load_error};
use crate::lanes::Opcode;
use crate::ptx;

/// Decodes what was linked of `units`; `addresses` are those of its variables, by number, of which shared
/// ones have none.
pub(crate) fn decode(
    units: &[Unit<'_>],
    linked: &Linked<'_, '_>,
    addresses: &[u64],
) -> Result<Program, LoadError> {
    let shared = SharedLayout::new(linked);
    let mut program = Program {
        shared_grain: shared.grain,
        shared_reserved: shared.reserved,
        ..Program::default()
    };
    let widths: Vec<u64> = linked.variables.iter().map(|(_, variable)| variable.width).collect();
    let names: Vec<UnitNames<'_>> = units
        .iter()
        .zip(&linked.scopes)
        .map(|(unit, scope)| {
            let functions = unit.module.functions.iter();
            let declared = functions.map(|function| function.name).collect();
            let files = unit.module.files.iter().map(|(number, path)| {
                program.files.push(Arc::from(*path));
                (*number, program.files.len() as u32)
            });
            UnitNames {
                addresses,
                widths: &widths,
                shared: &shared.offsets,
                scope,
                declared,
                files: files.collect(),
            }
        })
        .collect();
    for (at, (unit, function)) in linked.functions.iter().enumerate() {
        let decoded = Decoder::new(&names[*unit], at, function).decode(function);
        let mut decoded = decoded.map_err(|error| error.in_unit(units[*unit].name))?;
        decoded.dynamic_start = shared.dynamic_start;
        decoded.unit = Some(units[*unit].name).filter(|name| !name.is_empty()).map(Arc::from);
        if function.entry {
            let own = shared.kernels.get(&at).cloned().unwrap_or_default();
            (decoded.shared_size, decoded.shared_variables) = (own.size, own.variables);
            program.kernels.insert(function.name.to_owned(), at);
        }
        program.functions.push(decoded);
    }
    Ok(program)
}

/// What names outside of functions mean in one unit.
struct UnitNames<'a> {
    addresses: &'a [u64],
    /// Bytes of an element of each variable.
    widths: &'a [u64],
    shared: &'a HashMap<Shared<'a>, u64>,
    scope: &'a HashMap<&'a str, Target>,
    declared: HashSet<&'a str>,
    /// The program's numbers of the unit's files.
    files: HashMap<u32, u32>,
}

/// What a name means inside a function.
#[derive(Clone)]
enum Binding<'a> {
    Register(Reg),
    /// First register and count.
    Registers(Reg, u32),
    Local(u64),
    /// Offset and size in the parameters of calls.
    Call(u64, u64),
    /// Offset in the parameters of the kernel.
    Kernel(u64),
    Shared(u64),
    Targets(Vec<&'a str>),
    Prototype,
}

/// A label as seen from a scope.
type ScopedLabel<'a> = (usize, &'a str);

struct Decoder<'n, 'a: 'n> {
    names: &'n UnitNames<'n>,
    function_index: usize,
    is_kernel: bool,
    scopes: Vec<(usize, HashMap<&'a str, Binding<'a>>)>,
    /// The parent of each scope.
    parents: Vec<usize>,
    labels: HashMap<ScopedLabel<'a>, u32>,
    /// Branches to set: instruction, position among its targets, label, line.
    jumps: Vec<(usize, usize, ScopedLabel<'a>, u32)>,
    code: Vec<Instruction>,
    registers: u32,
    /// Which of them are predicates.
    predicates: Vec<Range<Reg>>,
    constants: HashMap<u64, Reg>,
    read: HashSet<Reg>,
    carry: Option<Reg>,
    local_size: u64,
    param_size: u64,
    guard: Option<(Reg, bool)>,
    /// Bytes of an element of each variable of the function.
    widths: HashMap<&'a str, u64>,
    /// What a pragma says of the next instruction.
    used_bytes: Option<u64>,
    /// Instructions that take a part of a register.
    pieces: HashMap<usize, demand::Piece>,
    line: u32,
    loc: ptx::Loc,
}

/// Emits what an instruction does.
type DecodeFn<'n, 'a> =
    fn(&mut Decoder<'n, 'a>, &ptx::Instruction<'a>, &Opcode<'a>) -> Result<(), LoadError>;

/// What decodes an opcode, by its first word.
fn decoder_of<'n, 'a>(base: &str) -> DecodeFn<'n, 'a> {
    match base {
        // control.rs
        "bra" => Decoder::branch,
        "brx" => Decoder::branch_indexed,
        "call" => Decoder::call,
        "ret" => Decoder::ret,
        "exit" => Decoder::exit,
        "trap" | "brkpt" => Decoder::trap,
        "nanosleep" => Decoder::sleep,
        "prefetch" | "prefetchu" | "discard" | "applypriority" | "griddepcontrol"
        | "setmaxnreg" | "pmevent" => Decoder::hint,
        // memory.rs
        "ld" | "ldu" => Decoder::load,
        "st" => Decoder::store,
        "cp" => Decoder::copy_async,
        "membar" | "fence" => Decoder::fence,
        "cvta" => Decoder::convert_address,
        "isspacep" => Decoder::is_space,
        // atomics.rs
        "atom" | "red" => Decoder::atomic,
        // mbarrier.rs
        "mbarrier" => Decoder::memory_barrier,
        // barriers.rs
        "bar" | "barrier" => Decoder::barrier,
        // warp.rs
        "vote" => Decoder::vote,
        "activemask" => Decoder::active_mask,
        "shfl" => Decoder::shuffle,
        "match" => Decoder::find_equal,
        "redux" => Decoder::reduce,
        "elect" => Decoder::elect,
        // tensor.rs
        "mma" => Decoder::matrix_multiply,
        "wmma" => Decoder::warp_matrix,
        "ldmatrix" | "stmatrix" => Decoder::row_move,
        "movmatrix" => Decoder::transpose,
        // texture.rs
        "tex" | "tld4" => Decoder::texture,
        "suld" => Decoder::surface_load,
        "sust" => Decoder::surface_store,
        "sured" => Decoder::surface_reduce,
        "txq" | "suq" => Decoder::texture_query,
        // compare.rs
        "setp" => Decoder::set_predicate,
        "set" => Decoder::set,
        // moves.rs
        "mov" => Decoder::mov,
        // arithmetic.rs
        "add" | "addc" | "sub" | "subc" | "mad" | "madc" => Decoder::add_with_carry,
        _ => Decoder::computation,
    }
}

impl<'n, 'a: 'n> Decoder<'n, 'a> {
    fn new(names: &'n UnitNames<'n>, function_index: usize, function: &ptx::Function<'a>) -> Self {
        Self {
            names,
            function_index,
            is_kernel: function.entry,
            scopes: vec![(0, HashMap::new())],
            parents: vec![0],
            labels: HashMap::new(),
            jumps: Vec::new(),
            code: Vec::new(),
            registers: 0,
            predicates: Vec::new(),
            constants: HashMap::new(),
            read: HashSet::new(),
            carry: None,
            local_size: 0,
            param_size: 0,
            guard: None,
            widths: HashMap::new(),
            used_bytes: None,
            pieces: HashMap::new(),
            line: function.line,
            loc: ptx::Loc::default(),
        }
    }

    fn decode(mut self, function: &ptx::Function<'a>) -> Result<Function, LoadError> {
        let (params, results) = self.declare_parameters(function);
        let mut rest = &function.body[..];
        while let [statement, others @ ..] = rest {
            if let Some(site) = recorder::site(rest) {
                self.record_branch(&site)?;
                rest = &rest[site.length..];
                continue;
            }
            self.statement(statement)?;
            rest = others;
        }
        // Falling off the end returns.
        self.guard = None;
        self.emit(Op::Return);
        self.resolve_jumps()?;
        self.forget_unread_atomics();
        demand::set_used_bytes(&mut self.code, self.registers, &self.pieces);
        flow::set_reconvergence(&mut self.code);
        Ok(Function {
            name: function.name.to_owned(),
            code: self.code,
            registers: self.registers,
            constants: self.constants.into_iter().map(|(value, reg)| (reg, value)).collect(),
            local_size: self.local_size.next_multiple_of_u64(16),
            param_size: self.param_size.next_multiple_of_u64(16),
            params,
            results,
            max_threads: function.max_threads,
            ..Function::default()
        })
    }

    #[allow(clippy::type_complexity)]
    fn declare_parameters(
        &mut self,
        function: &ptx::Function<'a>,
    ) -> (Vec<(u64, u64)>, Vec<(u64, u64)>) {
        let mut params = Vec::new();
        let mut offset = 0;
        for param in &function.params {
            if function.entry {
                let at = u64::next_multiple_of_u64(offset, param.align);
                self.bind(param.name, Binding::Kernel(at));
                params.push((at, param.size));
                offset = at + param.size;
            } else {
                params.push(self.call_variable(param));
            }
        }
        let results = function.results.iter().map(|result| self.call_variable(result)).collect();
        (params, results)
    }

    fn call_variable(&mut self, variable: &ptx::Variable<'a>) -> (u64, u64) {
        let at = self.param_size.next_multiple_of_u64(variable.align.max(8));
        self.param_size = at + variable.size;
        self.bind(variable.name, Binding::Call(at, variable.size));
        (at, variable.size)
    }

    fn bind(&mut self, name: &'a str, binding: Binding<'a>) {
        if let Some((_, scope)) = self.scopes.last_mut() {
            scope.insert(name, binding);
        }
    }

    fn scope(&self) -> usize {
        self.scopes.last().map_or(0, |(id, _)| *id)
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, LoadError> {
        Err(load_error(self.line, what))
    }

    fn emit(&mut self, op: Op) {
        let (guard, line, loc) = (self.guard, self.line, self.loc);
        self.code.push(Instruction { op, guard, line, loc });
    }

    /// Emits what an operand needs whether or not the instruction itself is to run.
    fn always(&mut self, op: Op) {
        let guard = self.guard.take();
        self.emit(op);
        self.guard = guard;
    }

    /// The register that holds a constant.
    fn constant(&mut self, value: u64) -> Reg {
        if let Some(reg) = self.constants.get(&value) {
            return *reg;
        }
        let reg = self.register();
        self.constants.insert(value, reg);
        reg
    }

    fn register(&mut self) -> Reg {
        self.registers += 1;
        self.registers - 1
    }

    /// What follows is of an instruction.
    fn locate(&mut self, instruction: &ptx::Instruction<'a>) {
        self.line = instruction.line;
        // Line 0 is code that stands for no line: it belongs to what came before.
        if instruction.loc.line != 0 {
            let file = self.names.files.get(&instruction.loc.file);
            self.loc = ptx::Loc { file: file.copied().unwrap_or(0), ..instruction.loc };
        }
    }

    fn statement(&mut self, statement: &ptx::Statement<'a>) -> Result<(), LoadError> {
        match statement {
            ptx::Statement::Registers { name, count, predicates } => {
                let first = self.registers;
                self.registers += count.unwrap_or(1);
                if *predicates {
                    self.predicates.push(first..self.registers);
                }
                if self.registers > 1 << 20 {
                    return self.error(format!("`{name}`: too many registers"));
                }
                self.bind(
                    name,
                    count.map_or(Binding::Register(first), |n| Binding::Registers(first, n)),
                );
            }
            ptx::Statement::Variable(variable) => self.variable(variable)?,
            ptx::Statement::Label(name) => {
                let key = (self.scope(), *name);
                self.labels.insert(key, self.code.len() as u32);
            }
            ptx::Statement::Targets { name, labels } => {
                self.bind(name, Binding::Targets(labels.clone()));
            }
            ptx::Statement::UsedBytes(mask) => self.used_bytes = Some(*mask),
            ptx::Statement::Prototype { name } => self.bind(name, Binding::Prototype),
            ptx::Statement::Open => {
                self.parents.push(self.scope());
                self.scopes.push((self.parents.len() - 1, HashMap::new()));
            }
            ptx::Statement::Close => {
                self.scopes.pop();
            }
            ptx::Statement::Instruction(instruction) => {
                self.locate(instruction);
                self.guard = match instruction.guard {
                    Some((name, negated)) => Some((self.read_register(name)?, negated)),
                    None => None,
                };
                let opcode = Opcode::new(instruction.opcode);
                decoder_of(opcode.base)(self, instruction, &opcode)?;
                self.used_bytes = None;
            }
        }
        Ok(())
    }

    fn variable(&mut self, variable: &ptx::Variable<'a>) -> Result<(), LoadError> {
        self.widths.insert(variable.name, variable.width);
        match variable.space {
            ptx::Space::Local => {
                let at = self.local_size.next_multiple_of_u64(variable.align);
                self.local_size = at.saturating_add(variable.size);
                if self.local_size > MAX_LOCAL_BYTES {
                    let what =
                        format!("more than {MAX_LOCAL_BYTES} bytes of local memory of a thread");
                    return Err(load_error(variable.line, what));
                }
                self.bind(variable.name, Binding::Local(at));
            }
            ptx::Space::Param => {
                self.call_variable(variable);
            }
            ptx::Space::Shared => {
                let key = Shared::Function(self.function_index, variable.name);
                let at = self.names.shared.get(&key).copied().unwrap_or(0);
                self.bind(variable.name, Binding::Shared(at));
            }
            ptx::Space::Global | ptx::Space::Const => {
                return Err(load_error(variable.line, "a global variable inside a function"));
            }
        }
        Ok(())
    }

    fn resolve_jumps(&mut self) -> Result<(), LoadError> {
        for (at, position, (mut scope, name), line) in std::mem::take(&mut self.jumps) {
            let target = loop {
                if let Some(target) = self.labels.get(&(scope, name)) {
                    break *target;
                }
                if scope == 0 {
                    return Err(load_error(line, format!("there is no label `{name}`")));
                }
                scope = self.parents[scope];
            };
            match &mut self.code[at].op {
                Op::Branch { target: slot, .. } => *slot = target,
                Op::BranchIndexed { targets, .. } => targets[position] = target,
                _ => {}
            }
        }
        Ok(())
    }

    /// An atomic whose result nobody reads is a reduction: it need not wait for its turn.
    fn forget_unread_atomics(&mut self) {
        for instruction in &mut self.code {
            if let Op::Atomic { dst, .. } = &mut instruction.op {
                *dst = dst.filter(|reg| self.read.contains(reg));
            }
        }
    }

    fn unsupported<T>(&self, instruction: &ptx::Instruction<'a>) -> Result<T, LoadError> {
        self.error(format!("the emulator lacks `{}`", instruction.opcode))
    }
}
