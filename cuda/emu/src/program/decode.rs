//! A parsed module into a [`Program`]: names become numbers, opcodes become operations.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{
    Address, BarrierKind, CODE_WINDOW, Callee, Function, Instruction, LOCAL_WINDOW, Linked,
    MatrixMultiply, Op, Order, PARAM_WINDOW, Program, Reg, Rmw, SHARED_WINDOW, Shuffle, Space,
    Special, Target, Unit, Vote, flow, link,
};
use crate::error::{LoadError, load_error};
use crate::lanes::{self, LaneFn, Opcode};
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
    let names: Vec<Names<'_>> = units
        .iter()
        .zip(&linked.scopes)
        .map(|(unit, scope)| {
            let functions = unit.module.functions.iter();
            let declared = functions.map(|function| function.name).collect();
            let files = unit.module.files.iter().map(|(number, path)| {
                program.files.push(Arc::from(*path));
                (*number, program.files.len() as u32)
            });
            Names { addresses, shared: &shared.offsets, scope, declared, files: files.collect() }
        })
        .collect();
    for (at, (unit, function)) in linked.functions.iter().enumerate() {
        let decoded = Decoder::new(&names[*unit], at, function).decode(function);
        let mut decoded = decoded.map_err(|error| error.in_unit(units[*unit].name))?;
        decoded.dynamic_start = shared.dynamic_start;
        decoded.unit = Some(units[*unit].name).filter(|name| !name.is_empty()).map(Arc::from);
        if function.entry {
            let end = shared.sizes.get(&at).copied().unwrap_or(0);
            decoded.shared_size = end.saturating_sub(shared.reserved);
            program.kernels.insert(function.name.to_owned(), at);
        }
        program.functions.push(decoded);
    }
    Ok(program)
}

/// What names outside of functions mean in one unit.
struct Names<'a> {
    addresses: &'a [u64],
    shared: &'a HashMap<Shared<'a>, u64>,
    scope: &'a HashMap<&'a str, Target>,
    declared: HashSet<&'a str>,
    /// The program's numbers of the unit's files.
    files: HashMap<u32, u32>,
}

/// A shared variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shared<'a> {
    /// By its number among the program's variables.
    Module(usize),
    /// Of a function, by its name there.
    Function(usize, &'a str),
}

/// Where shared memory starts that belongs to the system: for groups of several warps, by the header of
/// cooperative groups, which names it without optimisation wherever it is included.
const RESERVED_SHARED: &str = "%reserved_smem_offset_1";
const RESERVED_SHARED_BYTES: u64 = 1024;

/// Where shared variables lie: those of one kernel overlap those of others.
struct SharedLayout<'a> {
    offsets: HashMap<Shared<'a>, u64>,
    /// Where the static variables of each kernel end.
    sizes: HashMap<usize, u64>,
    /// Bytes before the first variable.
    reserved: u64,
    dynamic_start: u64,
    grain: u32,
}

impl<'a> SharedLayout<'a> {
    fn new(linked: &Linked<'_, 'a>) -> Self {
        let mut variables: Vec<(Shared<'a>, &ptx::Variable<'a>)> = Vec::new();
        for (at, (_, variable)) in linked.variables.iter().enumerate() {
            if variable.space == ptx::Space::Shared {
                variables.push((Shared::Module(at), variable));
            }
        }
        let mut mentions: Vec<HashSet<Target>> = Vec::new();
        let (mut grain, mut reserved) = (4, 0);
        for (at, (unit, function)) in linked.functions.iter().enumerate() {
            let mut names = HashSet::new();
            for statement in &function.body {
                match statement {
                    ptx::Statement::Variable(v) if v.space == ptx::Space::Shared => {
                        variables.push((Shared::Function(at, v.name), v));
                    }
                    ptx::Statement::Instruction(instruction) => {
                        instruction
                            .operands
                            .iter()
                            .for_each(|operand| mention(operand, &mut names));
                        grain = grain.min(shared_access(instruction.opcode));
                    }
                    _ => {}
                }
            }
            if names.contains(RESERVED_SHARED) {
                reserved = RESERVED_SHARED_BYTES;
            }
            let scope = &linked.scopes[*unit];
            mentions.push(names.into_iter().filter_map(|name| scope.get(name).copied()).collect());
        }
        let functions: Vec<_> = linked.functions.iter().map(|(_, function)| *function).collect();
        let reach: Vec<HashSet<usize>> =
            (0..functions.len()).map(|at| reachable(at, &functions, &mentions)).collect();
        let kernels: Vec<usize> = (0..functions.len()).filter(|at| functions[*at].entry).collect();
        let uses = |function: usize, variable: Shared<'_>| match variable {
            Shared::Module(at) => mentions[function].contains(&Target::Variable(at)),
            Shared::Function(owner, _) => owner == function,
        };
        let users = |variable: Shared<'_>| -> Vec<usize> {
            let reaches = |kernel: &usize| reach[*kernel].iter().any(|f| uses(*f, variable));
            kernels.iter().copied().filter(reaches).collect()
        };
        let sized: Vec<_> =
            variables.iter().filter(|(_, v)| v.linkage != ptx::Linkage::Extern).copied().collect();
        // What several kernels use comes first, then each kernel's own.
        let mut offsets = HashMap::new();
        let mut common = reserved;
        for (key, variable) in &sized {
            if users(*key).len() > 1 {
                let at = common.next_multiple_of_u64(variable.align);
                offsets.insert(*key, at);
                common = at + variable.size;
            }
        }
        let mut sizes = HashMap::new();
        for kernel in &kernels {
            let mut end = reserved;
            for (key, variable) in &sized {
                match &users(*key)[..] {
                    [only] if only == kernel => {
                        let at = common.max(end).next_multiple_of_u64(variable.align);
                        offsets.insert(*key, at);
                        end = at + variable.size;
                    }
                    several if several.contains(kernel) => {
                        end = end.max(offsets.get(key).map_or(0, |at| at + variable.size));
                    }
                    _ => {}
                }
            }
            sizes.insert(*kernel, end);
        }
        let dynamic_start = sizes.values().copied().max().unwrap_or(0).next_multiple_of_u64(16);
        for (key, _) in &variables {
            offsets.entry(*key).or_insert(dynamic_start);
        }
        Self { offsets, sizes, reserved, dynamic_start, grain }
    }
}

/// `u64::next_multiple_of` for alignments, which are powers of two.
trait NextMultiple {
    fn next_multiple_of_u64(self, align: u64) -> u64;
}

impl NextMultiple for u64 {
    fn next_multiple_of_u64(self, align: u64) -> u64 {
        self.div_ceil(align.max(1)) * align.max(1)
    }
}

/// The names in an operand.
fn mention<'a>(operand: &ptx::Operand<'a>, out: &mut HashSet<&'a str>) {
    match operand {
        ptx::Operand::Name(name, _) | ptx::Operand::Not(name) => {
            out.insert(name);
        }
        ptx::Operand::Vector(list) | ptx::Operand::List(list) => {
            list.iter().for_each(|operand| mention(operand, out));
        }
        ptx::Operand::Address(base, _) => mention(base, out),
        ptx::Operand::Pair(a, b) => {
            mention(a, out);
            mention(b, out);
        }
        ptx::Operand::Immediate(_) => {}
    }
}

/// The smallest piece of shared memory that an instruction may touch.
fn shared_access(opcode: &str) -> u32 {
    let opcode = Opcode::new(opcode);
    let elsewhere = ["global", "local", "param", "const"].iter().any(|space| opcode.has(space));
    if !matches!(opcode.base, "ld" | "st" | "atom" | "red") || elsewhere {
        return 4;
    }
    lanes::type_bits(opcode.kind()).map_or(4, |bits| (bits / 8).clamp(1, 4))
}

/// The functions that a call of one may run.
fn reachable(
    from: usize,
    functions: &[&ptx::Function<'_>],
    mentions: &[HashSet<Target>],
) -> HashSet<usize> {
    let mut seen = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        let indirect =
            functions[at].body.iter().any(|s| matches!(s, ptx::Statement::Prototype { .. }));
        for (next, function) in functions.iter().enumerate() {
            let named = mentions[at].contains(&Target::Function(next));
            let called = named || indirect && !function.entry;
            if called && seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen
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
type Label<'a> = (usize, &'a str);

struct Decoder<'n, 'a> {
    names: &'n Names<'n>,
    function_index: usize,
    is_kernel: bool,
    scopes: Vec<(usize, HashMap<&'a str, Binding<'a>>)>,
    /// The parent of each scope.
    parents: Vec<usize>,
    labels: HashMap<Label<'a>, u32>,
    /// Branches to set: instruction, position among its targets, label, line.
    jumps: Vec<(usize, usize, Label<'a>, u32)>,
    code: Vec<Instruction>,
    registers: u32,
    constants: HashMap<u64, Reg>,
    read: HashSet<Reg>,
    carry: Option<Reg>,
    local_size: u64,
    param_size: u64,
    guard: Option<(Reg, bool)>,
    line: u32,
    loc: ptx::Loc,
}

impl<'n, 'a: 'n> Decoder<'n, 'a> {
    fn new(names: &'n Names<'n>, function_index: usize, function: &ptx::Function<'a>) -> Self {
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
            constants: HashMap::new(),
            read: HashSet::new(),
            carry: None,
            local_size: 0,
            param_size: 0,
            guard: None,
            line: function.line,
            loc: ptx::Loc::default(),
        }
    }

    fn decode(mut self, function: &ptx::Function<'a>) -> Result<Function, LoadError> {
        let (params, results) = self.declare_parameters(function);
        for statement in &function.body {
            self.statement(statement)?;
        }
        // Falling off the end returns.
        self.guard = None;
        self.emit(Op::Return);
        self.resolve_jumps()?;
        self.forget_unread_atomics();
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

    fn statement(&mut self, statement: &ptx::Statement<'a>) -> Result<(), LoadError> {
        match statement {
            ptx::Statement::Registers { name, count } => {
                let first = self.registers;
                self.registers += count.unwrap_or(1);
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
            ptx::Statement::Prototype { name } => self.bind(name, Binding::Prototype),
            ptx::Statement::Open => {
                self.parents.push(self.scope());
                self.scopes.push((self.parents.len() - 1, HashMap::new()));
            }
            ptx::Statement::Close => {
                self.scopes.pop();
            }
            ptx::Statement::Instruction(instruction) => {
                self.line = instruction.line;
                // Line 0 is code that stands for no line: it belongs to what came before.
                if instruction.loc.line != 0 {
                    let file = self.names.files.get(&instruction.loc.file);
                    self.loc = ptx::Loc { file: file.copied().unwrap_or(0), ..instruction.loc };
                }
                self.guard = match instruction.guard {
                    Some((name, negated)) => Some((self.read_register(name)?, negated)),
                    None => None,
                };
                self.instruction(instruction)?;
            }
        }
        Ok(())
    }

    fn variable(&mut self, variable: &ptx::Variable<'a>) -> Result<(), LoadError> {
        match variable.space {
            ptx::Space::Local => {
                let at = self.local_size.next_multiple_of_u64(variable.align);
                self.local_size = at + variable.size;
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

    fn find(&self, name: &str) -> Option<Binding<'a>> {
        for (_, scope) in self.scopes.iter().rev() {
            if let Some(binding) = scope.get(name) {
                return Some(binding.clone());
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let Some(Binding::Registers(first, count)) = scope.get(prefix) else { continue };
            match name[prefix.len()..].parse::<u32>() {
                Ok(number) if number < *count => return Some(Binding::Register(first + number)),
                _ => {}
            }
        }
        None
    }

    fn write_register(&self, name: &str) -> Result<Reg, LoadError> {
        match self.find(name) {
            Some(Binding::Register(reg)) => Ok(reg),
            _ => self.error(format!("there is no register `{name}`")),
        }
    }

    fn read_register(&mut self, name: &str) -> Result<Reg, LoadError> {
        let reg = self.write_register(name)?;
        self.read.insert(reg);
        Ok(reg)
    }

    fn dst(&mut self, operand: Option<&ptx::Operand<'a>>) -> Result<Reg, LoadError> {
        match operand {
            Some(ptx::Operand::Name("_", 0)) => Ok(self.register()),
            Some(ptx::Operand::Name(name, 0)) => self.write_register(name),
            _ => self.error("a register is expected as the destination"),
        }
    }

    /// A destination that may come with a predicate: `d|p`.
    fn dst_pair(
        &mut self,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<(Reg, Option<Reg>), LoadError> {
        match operand {
            Some(ptx::Operand::Pair(a, b)) => {
                let (first, second) = (self.dst(Some(a))?, self.dst(Some(b))?);
                Ok((first, Some(second)))
            }
            other => Ok((self.dst(other)?, None)),
        }
    }

    fn src(&mut self, operand: Option<&ptx::Operand<'a>>) -> Result<Reg, LoadError> {
        match operand {
            Some(ptx::Operand::Immediate(value)) => Ok(self.constant(*value)),
            Some(ptx::Operand::Name(name, offset)) => self.named(name, *offset),
            Some(ptx::Operand::Not(name)) => {
                let (from, to) = (self.read_register(name)?, self.register());
                let f = self.lane_fn("not.pred")?;
                self.compute(f, to, &[from]);
                Ok(to)
            }
            Some(_) => self.error("a register or number is expected"),
            None => self.error("an operand is missing"),
        }
    }

    fn named(&mut self, name: &str, offset: i64) -> Result<Reg, LoadError> {
        let plus = |base: u64| base.wrapping_add_signed(offset);
        match self.find(name) {
            Some(Binding::Register(reg)) if offset == 0 => {
                self.read.insert(reg);
                return Ok(reg);
            }
            Some(Binding::Local(at)) => {
                let dst = self.register();
                self.always(Op::Local { offset: plus(at), dst });
                return Ok(dst);
            }
            Some(Binding::Shared(at) | Binding::Kernel(at) | Binding::Call(at, _)) => {
                return Ok(self.constant(plus(at)));
            }
            Some(_) => return self.error(format!("`{name}` is no value")),
            None => {}
        }
        if let Some(special) = special(name) {
            let dst = self.register();
            self.always(Op::Special { special, dst });
            return Ok(dst);
        }
        let linked = || match *self.names.scope.get(name)? {
            Target::Function(at) => Some(CODE_WINDOW + at as u64),
            Target::Variable(at) => {
                let shared = self.names.shared.get(&Shared::Module(at));
                shared.or(self.names.addresses.get(at)).copied()
            }
        };
        match constant(name).or_else(linked) {
            Some(value) => Ok(self.constant(plus(value))),
            None => self.error(format!("there is no `{name}`")),
        }
    }

    fn lane_fn(&self, opcode: &str) -> Result<LaneFn, LoadError> {
        match lanes::lookup(&Opcode::new(opcode)) {
            Some((f, _)) => Ok(f),
            None => self.error(format!("`{opcode}` is not supported")),
        }
    }

    fn compute(&mut self, f: LaneFn, dst: Reg, sources: &[Reg]) {
        // Sources that the function does not read are any register.
        let mut src = [dst; 4];
        src[..sources.len()].copy_from_slice(sources);
        self.emit(Op::Lanes { f, dst, src });
    }

    fn address(
        &mut self,
        opcode: &Opcode<'a>,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<Address, LoadError> {
        let Some(ptx::Operand::Address(base, offset)) = operand else {
            return self.error(format!("`{}` needs an address", opcode.base));
        };
        let mut space = match () {
            () if opcode.has("global") || opcode.has("const") => Space::Global,
            () if opcode
                .modifiers
                .iter()
                .any(|word| *word == "shared" || *word == "shared::cta") =>
            {
                Space::Shared
            }
            () if opcode.has("local") => Space::Local,
            () if opcode.modifiers.iter().any(|word| word.starts_with("param")) => Space::Kernel,
            () => Space::Generic,
        };
        // A register goes to parameters of the function that it is in.
        let of_call = !self.is_kernel
            || matches!(&**base, ptx::Operand::Name(name, _)
                if matches!(self.find(name), Some(Binding::Call(..))));
        if matches!(space, Space::Kernel) && of_call {
            space = Space::Call;
        }
        let base = self.src(Some(base))?;
        Ok(Address { space, base, offset: *offset })
    }

    fn unsupported<T>(&self, instruction: &ptx::Instruction<'a>) -> Result<T, LoadError> {
        self.error(format!("the emulator lacks `{}`", instruction.opcode))
    }

    fn instruction(&mut self, instruction: &ptx::Instruction<'a>) -> Result<(), LoadError> {
        let opcode = Opcode::new(instruction.opcode);
        let operands = &instruction.operands;
        let arg = |at: usize| operands.get(at);
        match opcode.base {
            "bra" => self.branch(arg(0))?,
            "brx" => self.branch_indexed(operands)?,
            "call" => self.call(operands)?,
            "ret" => self.emit(Op::Return),
            "exit" => self.emit(Op::Exit),
            "trap" | "brkpt" => self.emit(Op::Trap),
            "ld" | "ldu" => {
                let at = self.address(&opcode, arg(1))?;
                let dst = self.destinations(arg(0))?;
                let (width, signed) = (self.width(&opcode)?, opcode.kind().starts_with('s'));
                self.emit(Op::Load { at, dst, width, signed, order: order(&opcode) });
            }
            "st" => {
                let at = self.address(&opcode, arg(0))?;
                let src = self.sources(arg(1))?;
                let width = self.width(&opcode)?;
                self.emit(Op::Store { at, src, width, order: order(&opcode) });
            }
            "atom" | "red" => self.atomic(instruction, &opcode)?,
            "setp" => self.set_predicate(instruction, &opcode)?,
            "set" => self.set(instruction, &opcode)?,
            "mov" if matches!(arg(0), Some(ptx::Operand::Vector(_))) => {
                self.unpack(&opcode, operands)?
            }
            "mov" if matches!(arg(1), Some(ptx::Operand::Vector(_))) => {
                self.pack(&opcode, operands)?
            }
            "cvta" => self.convert_address(&opcode, operands)?,
            "isspacep" => self.is_space(instruction, &opcode)?,
            "add" | "addc" | "sub" | "subc" | "mad" | "madc"
                if opcode.has("cc") || opcode.base.ends_with('c') =>
            {
                self.carrying(instruction, &opcode)?;
            }
            "bar" if opcode.has("warp") => {
                let mask = self.src(arg(0))?;
                self.emit(Op::SyncWarp { mask });
            }
            "bar" | "barrier" => self.barrier(instruction, &opcode)?,
            "membar" | "fence" => self.emit(Op::Fence),
            "vote" => self.vote(instruction, &opcode)?,
            "activemask" => {
                let dst = self.dst(arg(0))?;
                self.emit(Op::ActiveMask { dst });
            }
            "shfl" => self.shuffle(instruction, &opcode)?,
            "match" => {
                let (dst, pred) = self.dst_pair(arg(0))?;
                let bits = lanes::type_bits(opcode.kind()).unwrap_or(32);
                let (src, mask) = (self.src(arg(1))?, self.src(arg(2))?);
                self.emit(Op::Match { all: opcode.has("all"), dst, pred, src, bits, mask });
            }
            "mma" => self.matrix_multiply(instruction, &opcode)?,
            "redux" => {
                let operation = *opcode.modifiers.get(1).unwrap_or(&"");
                let Some(step) =
                    lanes::atomic(operation, opcode.kind()).filter(|_| !opcode.has("f32"))
                else {
                    return self.unsupported(instruction);
                };
                let (dst, src, mask) = (self.dst(arg(0))?, self.src(arg(1))?, self.src(arg(2))?);
                self.emit(Op::Reduce { step, dst, src, mask });
            }
            "elect" => {
                let (first, second) = self.dst_pair(arg(0))?;
                let mask = self.src(arg(1))?;
                let (dst, pred) = second.map_or((None, first), |pred| (Some(first), pred));
                self.emit(Op::Elect { dst, pred, mask });
            }
            "cp" if opcode.has("async") => self.copy_async(instruction, &opcode)?,
            "nanosleep" => self.emit(Op::Yield),
            "prefetch" | "prefetchu" | "discard" | "applypriority" | "griddepcontrol"
            | "setmaxnreg" | "pmevent" => self.emit(Op::Nop),
            _ => self.computation(instruction, &opcode)?,
        }
        Ok(())
    }

    /// An instruction that only computes a register.
    fn computation(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let Some((f, count)) = lanes::lookup(opcode) else { return self.unsupported(instruction) };
        if instruction.operands.len() != count + 1 {
            return self.unsupported(instruction);
        }
        let mut src = Vec::new();
        for operand in &instruction.operands[1..] {
            src.push(self.src(Some(operand))?);
        }
        let dst = self.dst(instruction.operands.first())?;
        self.compute(f, dst, &src);
        Ok(())
    }

    fn width(&self, opcode: &Opcode<'a>) -> Result<u64, LoadError> {
        match lanes::type_bits(opcode.kind()) {
            Some(bits @ 8..) => Ok(u64::from(bits / 8)),
            _ => self.error(format!("`{}` has no type that memory holds", opcode.base)),
        }
    }

    fn destinations(
        &mut self,
        operand: Option<&ptx::Operand<'a>>,
    ) -> Result<Vec<Option<Reg>>, LoadError> {
        let one = |this: &mut Self, operand: &ptx::Operand<'a>| match operand {
            ptx::Operand::Name("_", 0) => Ok(None),
            other => this.dst(Some(other)).map(Some),
        };
        match operand {
            Some(ptx::Operand::Vector(list)) => list.iter().map(|item| one(self, item)).collect(),
            Some(other) => Ok(vec![one(self, other)?]),
            None => self.error("an operand is missing"),
        }
    }

    fn sources(&mut self, operand: Option<&ptx::Operand<'a>>) -> Result<Vec<Reg>, LoadError> {
        match operand {
            Some(ptx::Operand::Vector(list)) => {
                list.iter().map(|item| self.src(Some(item))).collect()
            }
            other => Ok(vec![self.src(other)?]),
        }
    }

    fn branch(&mut self, target: Option<&ptx::Operand<'a>>) -> Result<(), LoadError> {
        let Some(ptx::Operand::Name(label, 0)) = target else {
            return self.error("`bra` needs a label");
        };
        self.jumps.push((self.code.len(), 0, (self.scope(), label), self.line));
        self.emit(Op::Branch { target: 0, reconverge: flow::NEVER });
        Ok(())
    }

    fn branch_indexed(&mut self, operands: &[ptx::Operand<'a>]) -> Result<(), LoadError> {
        let index = self.src(operands.first())?;
        let labels = match operands.get(1) {
            Some(ptx::Operand::Name(name, 0)) => match self.find(name) {
                Some(Binding::Targets(labels)) => labels,
                _ => return self.error(format!("there is no list of targets `{name}`")),
            },
            _ => return self.error("`brx.idx` needs a list of targets"),
        };
        for (position, label) in labels.iter().enumerate() {
            self.jumps.push((self.code.len(), position, (self.scope(), label), self.line));
        }
        let targets = vec![0; labels.len()];
        self.emit(Op::BranchIndexed { index, targets, reconverge: flow::NEVER });
        Ok(())
    }

    /// `call (results), callee, (args), prototype;` with all but the callee optional.
    fn call(&mut self, operands: &[ptx::Operand<'a>]) -> Result<(), LoadError> {
        let mut rest = operands;
        let mut results = Vec::new();
        if let Some((ptx::Operand::List(list), after)) = rest.split_first() {
            results = self.call_variables(list)?;
            rest = after;
        }
        let Some((ptx::Operand::Name(name, 0), after)) = rest.split_first() else {
            return self.error("`call` needs a function");
        };
        let args = match after.first() {
            Some(ptx::Operand::List(list)) => self.call_variables(list)?,
            _ => Vec::new(),
        };
        let callee = match (self.find(name), *name) {
            (Some(Binding::Register(reg)), _) => {
                self.read.insert(reg);
                Callee::Indirect(reg)
            }
            (_, "vprintf") => Callee::Printf,
            (_, "__assertfail") => Callee::AssertFail,
            (_, "malloc") => Callee::Malloc,
            (_, "free") => Callee::Free,
            _ => match self.names.scope.get(name) {
                Some(Target::Function(at)) => Callee::Function(*at),
                _ if self.names.declared.contains(name) => {
                    return Err(link::undefined(name, self.line));
                }
                _ => return self.error(format!("there is no function `{name}`")),
            },
        };
        self.emit(Op::Call { callee, args, results });
        Ok(())
    }

    fn call_variables(&self, list: &[ptx::Operand<'a>]) -> Result<Vec<(u64, u64)>, LoadError> {
        list.iter()
            .map(|operand| match operand {
                ptx::Operand::Name(name, 0) => match self.find(name) {
                    Some(Binding::Call(at, size)) => Ok((at, size)),
                    _ => self.error(format!("`{name}` is no `.param` variable")),
                },
                _ => self.error("a `.param` variable is expected"),
            })
            .collect()
    }

    fn atomic(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let kind = opcode.kind();
        let operands = &instruction.operands;
        let has_dst = opcode.base == "atom";
        let dst = if has_dst { Some(self.dst(operands.first())?) } else { None };
        let first = usize::from(has_dst);
        let at = self.address(opcode, operands.get(first))?;
        let mut src = self.src(operands.get(first + 1))?;
        let vector = ["v2", "v4", "v8"].iter().any(|word| opcode.has(word));
        let operation = opcode.modifiers.iter().find(|word| {
            matches!(
                **word,
                "add" | "min" | "max" | "and" | "or" | "xor" | "exch" | "inc" | "dec" | "cas"
            )
        });
        let rmw = match operation {
            Some(&"cas") => {
                let compare = src;
                src = self.src(operands.get(first + 2))?;
                Rmw::CompareSwap(compare)
            }
            Some(operation) => match lanes::atomic(operation, kind) {
                Some(step) => Rmw::Apply(step),
                None => return self.unsupported(instruction),
            },
            None => return self.unsupported(instruction),
        };
        let width = self.width(opcode)?;
        if vector || width < 2 {
            return self.unsupported(instruction);
        }
        let order = Order { strong: true, ..order(opcode) };
        let commutes = !(kind.starts_with('f') || kind.starts_with("bf"))
            && operation.is_some_and(|word| !matches!(*word, "exch" | "inc" | "dec" | "cas"));
        self.emit(Op::Atomic { at, dst, rmw, src, width, order, commutes });
        Ok(())
    }

    fn set_predicate(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let Some(f) = lanes::comparison(opcode) else { return self.unsupported(instruction) };
        let (a, b) = (self.src(operands.get(1))?, self.src(operands.get(2))?);
        let combine = opcode.modifiers.iter().find(|word| matches!(**word, "and" | "or" | "xor"));
        let (dst, second) = self.dst_pair(operands.first())?;
        if opcode.kind().ends_with("x2") {
            if combine.is_some() {
                return self.unsupported(instruction);
            }
            let [low, high] = self.compare_both(f, a, b)?;
            let mov = self.lane_fn("mov.pred")?;
            self.compute(mov, dst, &[low]);
            if let Some(second) = second {
                self.compute(mov, second, &[high]);
            }
            return Ok(());
        }
        if combine.is_none() && second.is_none() {
            self.compute(f, dst, &[a, b]);
            return Ok(());
        }
        let c = if combine.is_some() { Some(self.src(operands.get(3))?) } else { None };
        let (truth, falsehood) = (self.register(), self.register());
        let not = self.lane_fn("not.pred")?;
        self.compute(f, truth, &[a, b]);
        self.compute(not, falsehood, &[truth]);
        let combine = self.lane_fn(combine.map_or("and", |word| word))?;
        // Both read before either is written: a destination may be the third operand.
        let c = c.unwrap_or_else(|| self.constant(1));
        self.compute(combine, truth, &[truth, c]);
        self.compute(combine, falsehood, &[falsehood, c]);
        let mov = self.lane_fn("mov.pred")?;
        self.compute(mov, dst, &[truth]);
        if let Some(second) = second {
            self.compute(mov, second, &[falsehood]);
        }
        Ok(())
    }

    /// What a comparison says of the two numbers in a register, the lower first.
    fn compare_both(&mut self, f: LaneFn, a: Reg, b: Reg) -> Result<[Reg; 2], LoadError> {
        let truths @ [low, high] = [self.register(), self.register()];
        let (shift, by) = (self.lane_fn("shr.u32")?, self.constant(16));
        let (upper_a, upper_b) = (self.register(), self.register());
        self.compute(shift, upper_a, &[a, by]);
        self.compute(shift, upper_b, &[b, by]);
        self.compute(f, low, &[a, b]);
        self.compute(f, high, &[upper_a, upper_b]);
        Ok(truths)
    }

    fn set(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let combined = opcode.modifiers.iter().any(|word| matches!(*word, "and" | "or" | "xor"));
        let Some(f) = lanes::comparison(opcode).filter(|_| !combined) else {
            return self.unsupported(instruction);
        };
        let (a, b) =
            (self.src(instruction.operands.get(1))?, self.src(instruction.operands.get(2))?);
        let both = opcode.kind().ends_with("x2");
        let one = match opcode.types().next() {
            Some("u32" | "s32") if both => 0xffff,
            Some("f32") => 1f32.to_bits(),
            Some("f16" | "f16x2") => 0x3c00,
            Some("bf16" | "bf16x2") => 0x3f80,
            Some("u16" | "s16") => 0xffff,
            _ => u32::MAX,
        };
        let select = self.lane_fn("selp.b32")?;
        let dst = self.dst(instruction.operands.first())?;
        let zero = self.constant(0);
        if both {
            let [low, high] = self.compare_both(f, a, b)?;
            let (below, above) = (self.constant(one.into()), self.constant(u64::from(one) << 16));
            self.compute(select, low, &[below, zero, low]);
            self.compute(select, high, &[above, zero, high]);
            let or = self.lane_fn("or.b32")?;
            self.compute(or, dst, &[low, high]);
            return Ok(());
        }
        let (truth, one) = (self.register(), self.constant(one.into()));
        self.compute(f, truth, &[a, b]);
        self.compute(select, dst, &[one, zero, truth]);
        Ok(())
    }

    fn unpack(
        &mut self,
        opcode: &Opcode<'a>,
        operands: &[ptx::Operand<'a>],
    ) -> Result<(), LoadError> {
        let dst = self.destinations(operands.first())?;
        let src = self.src(operands.get(1))?;
        let bits = lanes::type_bits(opcode.kind()).unwrap_or(0) / dst.len().max(1) as u32;
        let (shift, narrow) = match bits {
            8 => ("shr.u64", "cvt.u8.u64"),
            16 => ("shr.u64", "cvt.u16.u64"),
            32 => ("shr.u64", "cvt.u32.u64"),
            _ => return self.error(format!("`mov.{}` of this many parts", opcode.kind())),
        };
        let (shift, narrow) = (self.lane_fn(shift)?, self.lane_fn(narrow)?);
        let part = self.register();
        for (position, dst) in dst.into_iter().enumerate() {
            let Some(dst) = dst else { continue };
            let by = self.constant(u64::from(bits) * position as u64);
            self.compute(shift, part, &[src, by]);
            self.compute(narrow, dst, &[part]);
        }
        Ok(())
    }

    fn pack(
        &mut self,
        opcode: &Opcode<'a>,
        operands: &[ptx::Operand<'a>],
    ) -> Result<(), LoadError> {
        let src = self.sources(operands.get(1))?;
        let bits = lanes::type_bits(opcode.kind()).unwrap_or(0) / src.len().max(1) as u32;
        if !matches!(bits, 8 | 16 | 32) {
            return self.error(format!("`mov.{}` of this many parts", opcode.kind()));
        }
        let insert = self.lane_fn("bfi.b64")?;
        let whole = self.register();
        let mov = self.lane_fn("mov.b64")?;
        let zero = self.constant(0);
        self.compute(mov, whole, &[zero]);
        for (position, src) in src.into_iter().enumerate() {
            let at = self.constant(u64::from(bits) * position as u64);
            let length = self.constant(bits.into());
            self.compute(insert, whole, &[src, whole, at, length]);
        }
        let dst = self.dst(operands.first())?;
        self.compute(mov, dst, &[whole]);
        Ok(())
    }

    fn convert_address(
        &mut self,
        opcode: &Opcode<'a>,
        operands: &[ptx::Operand<'a>],
    ) -> Result<(), LoadError> {
        let window = match () {
            () if opcode.has("shared") || opcode.has("shared::cta") => SHARED_WINDOW,
            () if opcode.has("local") => LOCAL_WINDOW,
            () if opcode.modifiers.iter().any(|word| word.starts_with("param")) => PARAM_WINDOW,
            () => 0,
        };
        let by = if opcode.has("to") { window.wrapping_neg() } else { window };
        let add = self.lane_fn("add.u64")?;
        let by = self.constant(by);
        let (src, dst) = (self.src(operands.get(1))?, self.dst(operands.first())?);
        self.compute(add, dst, &[src, by]);
        Ok(())
    }

    fn is_space(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let window = match opcode.modifiers.first() {
            Some(&("shared" | "shared::cta")) => SHARED_WINDOW,
            Some(&"local") => LOCAL_WINDOW,
            Some(&"global") => 0,
            _ => return self.unsupported(instruction),
        };
        let (shift, equal) =
            (self.lane_fn("shr.u64")?, lanes::comparison(&Opcode::new("setp.eq.u64")));
        let (Some(equal), top) = (equal, self.register()) else {
            return self.unsupported(instruction);
        };
        let (src, dst) =
            (self.src(instruction.operands.get(1))?, self.dst(instruction.operands.first())?);
        let by = self.constant(super::WINDOW_SHIFT.into());
        let window = self.constant(window >> super::WINDOW_SHIFT);
        self.compute(shift, top, &[src, by]);
        self.compute(equal, dst, &[top, window]);
        Ok(())
    }

    /// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`: they hand on a carry.
    fn carrying(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let wide = match opcode.kind() {
            "u32" | "s32" | "b32" => false,
            "u64" | "s64" | "b64" => true,
            _ => return self.unsupported(instruction),
        };
        let carry = match self.carry {
            Some(carry) => carry,
            None => {
                let carry = self.register();
                *self.carry.insert(carry)
            }
        };
        let subtract = opcode.base.starts_with("sub");
        let (mut a, mut b) = (self.src(operands.get(1))?, self.src(operands.get(2))?);
        if opcode.base.starts_with("mad") {
            let half = if opcode.has("hi") { "hi" } else { "lo" };
            let multiply = self.lane_fn(&format!("mul.{half}.{}", opcode.kind()))?;
            let product = self.register();
            self.compute(multiply, product, &[a, b]);
            (a, b) = (product, self.src(operands.get(3))?);
        }
        let carry_in = if opcode.base.ends_with('c') { carry } else { self.constant(0) };
        let next = self.register();
        let (out, value) = lanes::carry(subtract, wide);
        self.compute(out, next, &[a, b, carry_in]);
        let dst = self.dst(operands.first())?;
        self.compute(value, dst, &[a, b, carry_in]);
        if opcode.has("cc") {
            let mov = self.lane_fn("mov.pred")?;
            self.compute(mov, carry, &[next]);
        }
        Ok(())
    }

    fn barrier(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        if opcode.has("cluster") {
            return self.unsupported(instruction);
        }
        let red = opcode.has("red");
        let first = usize::from(red);
        let id = self.src(operands.get(first))?;
        let has_count = operands.len() > first + 1 + usize::from(red);
        let count = if has_count { Some(self.src(operands.get(first + 1))?) } else { None };
        let kind = if red {
            let pred = self.src(operands.last())?;
            let dst = self.dst(operands.first())?;
            match () {
                () if opcode.has("popc") => BarrierKind::Count { dst, pred },
                () if opcode.has("and") => BarrierKind::All { dst, pred },
                () => BarrierKind::Any { dst, pred },
            }
        } else if opcode.has("arrive") {
            BarrierKind::Arrive
        } else {
            BarrierKind::Sync
        };
        self.emit(Op::Barrier { kind, id, count });
        Ok(())
    }

    fn vote(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let kind = match () {
            () if opcode.has("ballot") => Vote::Ballot,
            () if opcode.has("all") => Vote::All,
            () if opcode.has("any") => Vote::Any,
            () if opcode.has("uni") => Vote::Uniform,
            () => return self.unsupported(instruction),
        };
        let pred = self.src(operands.get(1))?;
        let mask = if opcode.has("sync") { Some(self.src(operands.get(2))?) } else { None };
        let dst = self.dst(operands.first())?;
        self.emit(Op::Vote { kind, dst, pred, mask });
        Ok(())
    }

    fn shuffle(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let kind = match () {
            () if opcode.has("up") => Shuffle::Up,
            () if opcode.has("down") => Shuffle::Down,
            () if opcode.has("bfly") => Shuffle::Butterfly,
            () if opcode.has("idx") => Shuffle::Index,
            () => return self.unsupported(instruction),
        };
        let (src, by, clamp) =
            (self.src(operands.get(1))?, self.src(operands.get(2))?, self.src(operands.get(3))?);
        let mask = if opcode.has("sync") {
            self.src(operands.get(4))?
        } else {
            self.constant(0xffff_ffff)
        };
        let (dst, pred) = self.dst_pair(operands.first())?;
        self.emit(Op::Shuffle { kind, dst, pred, src, by, clamp, mask });
        Ok(())
    }

    /// `mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32`, `T` being `f16` or `bf16`.
    fn matrix_multiply(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let value = match &opcode.modifiers[..] {
            ["sync", "aligned", "m16n8k16", "row", "col", "f32", a, b, "f32"] if a == b => {
                lanes::short_value(a)
            }
            _ => None,
        };
        let [d, a, b, c] = &instruction.operands[..] else { return self.unsupported(instruction) };
        let Some(value) = value else { return self.unsupported(instruction) };
        let (a, b, c) = (self.sources(Some(a))?, self.sources(Some(b))?, self.sources(Some(c))?);
        let d = self.destinations(Some(d))?;
        let d: Vec<Reg> = d.into_iter().flatten().collect();
        match (d.try_into(), a.try_into(), b.try_into(), c.try_into()) {
            (Ok(d), Ok(a), Ok(b), Ok(c)) => {
                self.emit(Op::MatrixMultiply(Box::new(MatrixMultiply { value, d, a, b, c })));
                Ok(())
            }
            _ => self.unsupported(instruction),
        }
    }

    fn copy_async(
        &mut self,
        instruction: &ptx::Instruction<'a>,
        opcode: &Opcode<'a>,
    ) -> Result<(), LoadError> {
        let operands = &instruction.operands;
        let waits = ["commit_group", "wait_group", "wait_all"].iter().any(|word| opcode.has(word));
        if waits && !opcode.has("bulk") {
            // The copies are done when they are asked for.
            self.emit(Op::Nop);
            return Ok(());
        }
        let size = match operands.get(2) {
            Some(ptx::Operand::Immediate(size @ (4 | 8 | 16))) if !opcode.has("bulk") => *size,
            _ => return self.unsupported(instruction),
        };
        let mut to = self.address(&Opcode::new("st.shared"), operands.first())?;
        let mut from = self.address(&Opcode::new("ld.global"), operands.get(1))?;
        (to.space, from.space) = (Space::Shared, Space::Global);
        let source_size = match operands.get(3) {
            Some(operand) => self.src(Some(operand))?,
            None => self.constant(size),
        };
        self.emit(Op::CopyAsync { to, from, size, source_size });
        Ok(())
    }
}

/// What `.volatile`, `.relaxed`, `.acquire` … say.
fn order(opcode: &Opcode<'_>) -> Order {
    let has = |word| opcode.has(word);
    Order {
        strong: has("volatile")
            || has("relaxed")
            || has("acquire")
            || has("release")
            || has("mmio"),
        acquire: has("acquire") || has("acq_rel"),
        release: has("release") || has("acq_rel"),
    }
}

/// The special register of a name.
fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let special = match name.rsplit_once('.') {
        Some(("%tid", suffix)) => Special::Tid(axis(suffix)?),
        Some(("%ntid", suffix)) => Special::BlockDim(axis(suffix)?),
        Some(("%ctaid", suffix)) => Special::BlockIdx(axis(suffix)?),
        Some(("%nctaid", suffix)) => Special::GridDim(axis(suffix)?),
        Some(_) => return None,
        None => match name {
            "%laneid" => Special::LaneId,
            "%warpid" => Special::WarpId,
            "%nwarpid" => Special::WarpCount,
            "%lanemask_eq" => Special::LaneMask(|lane| 1 << lane),
            "%lanemask_lt" => Special::LaneMask(|lane| (1 << lane) - 1),
            "%lanemask_le" => Special::LaneMask(|lane| (1 << lane) | ((1 << lane) - 1)),
            "%lanemask_gt" => Special::LaneMask(|lane| !((1 << lane) | ((1 << lane) - 1))),
            "%lanemask_ge" => Special::LaneMask(|lane| !((1 << lane) - 1)),
            "%clock" | "%clock64" | "%clock_hi" | "%globaltimer" | "%globaltimer_lo" => {
                Special::Clock
            }
            "%dynamic_smem_size" => Special::DynamicShared,
            "%total_smem_size" => Special::TotalShared,
            "%gridid" => Special::GridId,
            _ => return None,
        },
    };
    Some(special)
}

/// Names of constants.
fn constant(name: &str) -> Option<u64> {
    match name {
        "WARP_SZ" => Some(32),
        // The one multiprocessor that there is.
        "%smid" | RESERVED_SHARED => Some(0),
        "%nsmid" => Some(1),
        _ => None,
    }
}
