//! Where the shared variables of a program are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::{Linked, SharedVariable, Target};
use crate::device::RESERVED_SHARED_BYTES;
use crate::lanes::{self, Opcode};
use crate::ptx;

/// A shared variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shared<'a> {
    /// By its number among the program's variables.
    Module(usize),
    /// Of a function, by its name there.
    Function(usize, &'a str),
}

/// Where shared memory starts that belongs to the system: for groups of several warps, by the header of
/// cooperative groups, which names it without optimisation wherever it is included.
pub(super) const RESERVED_SHARED: &str = "%reserved_smem_offset_1";

/// Bytes between variables, so that running over the end of one does not reach the next.
const RED_ZONE: u64 = 128;

/// Where shared variables lie: those of one kernel overlap those of others.
pub(super) struct SharedLayout<'a> {
    pub(super) offsets: HashMap<Shared<'a>, u64>,
    pub(super) kernels: HashMap<usize, KernelShared>,
    /// Bytes before the first variable.
    pub(super) reserved: u64,
    pub(super) dynamic_start: u64,
    pub(super) grain: u32,
}

/// The static variables of a kernel.
#[derive(Debug, Clone, Default)]
pub(super) struct KernelShared {
    /// Their bytes without what is between them here, as a program is told.
    pub(super) size: u64,
    pub(super) variables: Vec<SharedVariable>,
}

impl<'a> SharedLayout<'a> {
    pub(super) fn new(linked: &Linked<'_, 'a>) -> Self {
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
        let sized = variables.iter().filter(|(_, v)| v.linkage != ptx::Linkage::Extern);
        let sized: Vec<_> = sized.map(|(key, v)| (*key, *v, users(*key))).collect();
        let (_, close) = place(&sized, &kernels, reserved, 0);
        let (mut offsets, ends) = place(&sized, &kernels, reserved, RED_ZONE);
        let last = ends.values().copied().max().unwrap_or(0);
        let gap = if last > reserved { RED_ZONE } else { 0 };
        let dynamic_start = (last + gap).next_multiple_of_u64(16);
        let of_kernel = |kernel: &usize| {
            let own = sized.iter().filter(|(_, _, users)| users.contains(kernel));
            let own = own.map(|(key, variable, _)| {
                let start = offsets.get(key).copied().unwrap_or(0);
                let name = Arc::from(variable.name);
                SharedVariable { name, start, end: start + variable.size }
            });
            let mut variables: Vec<_> = own.collect();
            variables.sort_by_key(|variable| variable.start);
            let size = close.get(kernel).map_or(0, |end| end.saturating_sub(reserved));
            (*kernel, KernelShared { size, variables })
        };
        let kernels = kernels.iter().map(of_kernel).collect();
        for (key, _) in &variables {
            offsets.entry(*key).or_insert(dynamic_start);
        }
        Self { offsets, kernels, reserved, dynamic_start, grain }
    }
}

/// Where each variable starts, with a gap behind each, and where those of each kernel end.
fn place<'a>(
    variables: &[(Shared<'a>, &ptx::Variable<'a>, Vec<usize>)],
    kernels: &[usize],
    reserved: u64,
    gap: u64,
) -> (HashMap<Shared<'a>, u64>, HashMap<usize, u64>) {
    let behind = |end: u64, align: u64| {
        (if end > reserved { end + gap } else { end }).next_multiple_of_u64(align)
    };
    // What several kernels use comes first, then each kernel's own.
    let mut offsets = HashMap::new();
    let mut common = reserved;
    for (key, variable, users) in variables {
        if users.len() > 1 {
            let at = behind(common, variable.align);
            offsets.insert(*key, at);
            common = at + variable.size;
        }
    }
    let mut ends = HashMap::new();
    for kernel in kernels {
        let mut end = reserved;
        for (key, variable, users) in variables {
            match &users[..] {
                [only] if only == kernel => {
                    let at = behind(common.max(end), variable.align);
                    offsets.insert(*key, at);
                    end = at + variable.size;
                }
                several if several.contains(kernel) => {
                    end = end.max(offsets.get(key).map_or(0, |at| at + variable.size));
                }
                _ => {}
            }
        }
        ends.insert(*kernel, end);
    }
    (offsets, ends)
}

/// `u64::next_multiple_of` for alignments, which are powers of two.
pub(super) trait NextMultiple {
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
        ptx::Operand::Name(name, _) | ptx::Operand::Not(name) | ptx::Operand::Element(name, _) => {
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
