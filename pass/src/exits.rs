//! Where a function is left.

use inkwell::basic_block::BasicBlock;
use inkwell::llvm_sys::core::LLVMSetSuccessor;
use inkwell::values::{AsValueRef as _, FunctionValue, InstructionOpcode, InstructionValue};

use crate::Failure;
use crate::prepare::successors;
use crate::spots::{assembly, callee};

/// Where a function is left.
#[derive(Clone, Copy)]
pub(crate) struct Exit<'ctx> {
    /// Before this it is over.
    pub(crate) at: InstructionValue<'ctx>,
    /// For the thread, too, wherever it was called.
    pub(crate) of_thread: bool,
}

/// The places where a function is left.
///
/// A kernel that has several ways out has them go through one block that does nothing but return. What is
/// recorded must not stand there: lanes that leave early would wait for the others before they do, and
/// these may wait for them at a barrier. So each way there gets its own.
pub(crate) fn exits(function: FunctionValue<'_>, kernel: bool) -> Result<Vec<Exit<'_>>, Failure> {
    let mut exits: Vec<_> = thread_exits(function).map(|at| Exit { at, of_thread: true }).collect();
    let mut add = |at| exits.push(Exit { at, of_thread: kernel });
    for block in function.get_basic_blocks() {
        let end = block.get_terminator();
        let Some(end) = end.filter(|end| end.get_opcode() == InstructionOpcode::Return) else {
            continue;
        };
        let ways = if kernel && only_returns(block) { ways_to(block, function) } else { vec![] };
        if ways.is_empty() {
            add(end);
        }
        for way in ways {
            add(own_way(way, block, end)?);
        }
    }
    Ok(exits)
}

/// What ends a thread in the middle of a function.
fn thread_exits<'ctx>(
    function: FunctionValue<'ctx>,
) -> impl Iterator<Item = InstructionValue<'ctx>> {
    let is_exit = |instruction: &InstructionValue<'ctx>| {
        instruction.get_opcode() == InstructionOpcode::Call
            && match assembly(*instruction) {
                Some(assembly) => assembly.statements().iter().any(|it| it.opcode == "exit"),
                None => callee(*instruction) == "llvm.nvvm.exit",
            }
    };
    function.get_basic_block_iter().flat_map(|block| block.get_instructions()).filter(is_exit)
}

fn only_returns(block: BasicBlock<'_>) -> bool {
    block.get_instructions().all(|instruction| match instruction.get_opcode() {
        InstructionOpcode::Return => true,
        InstructionOpcode::Call => {
            let name = callee(instruction);
            name.starts_with("llvm.dbg.") || name.starts_with("llvm.lifetime.end")
        }
        _ => false,
    })
}

/// The blocks from which control comes to one; none where the address of a label brings it there, which
/// must stay the block's.
fn ways_to<'ctx>(block: BasicBlock<'ctx>, function: FunctionValue<'ctx>) -> Vec<BasicBlock<'ctx>> {
    let comes = |from: &BasicBlock<'ctx>| successors(*from).contains(&block);
    let ways: Vec<_> = function.get_basic_block_iter().filter(comes).collect();
    let is_plain = |way: &BasicBlock<'ctx>| {
        let end = way.get_terminator().map(|end| end.get_opcode());
        matches!(end, Some(InstructionOpcode::Br | InstructionOpcode::Switch))
    };
    if ways.iter().all(is_plain) { ways } else { Vec::new() }
}

/// The jump from one block to the one that returns; where it is one way of several, in a block of its own.
fn own_way<'ctx>(
    from: BasicBlock<'ctx>,
    to: BasicBlock<'ctx>,
    end: InstructionValue<'ctx>,
) -> Result<InstructionValue<'ctx>, Failure> {
    let jump = from.get_terminator().ok_or("a block without an end")?;
    let targets = successors(from);
    if targets.len() == 1 {
        if jump.get_debug_location().is_none() {
            jump.set_debug_location(end.get_debug_location());
        }
        return Ok(jump);
    }
    let context = to.get_context();
    let between = context.prepend_basic_block(to, "leave");
    let builder = context.create_builder();
    builder.position_at_end(between);
    let way = builder.build_unconditional_branch(to)?;
    way.set_debug_location(jump.get_debug_location().or(end.get_debug_location()));
    for (index, target) in (0..).zip(targets) {
        if target == to {
            // SAFETY: `jump` is a terminator that has this successor.
            unsafe { LLVMSetSuccessor(jump.as_value_ref(), index, between.as_mut_ptr()) };
        }
    }
    Ok(way)
}
