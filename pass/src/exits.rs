//! Where a function is left.

use inkwell::basic_block::BasicBlock;
use inkwell::llvm_sys::core::LLVMSetSuccessor;
use inkwell::values::{AsValueRef as _, FunctionValue, InstructionOpcode, InstructionValue};

use crate::Failure;
use crate::prepare::successors;
use crate::spots::callee;

/// The instructions before which a function is over.
///
/// A kernel that has several ways out has them go through one block that does nothing but return. What is
/// recorded must not stand there: lanes that leave early would wait for the others before they do, and
/// these may wait for them at a barrier. So each way there gets its own.
pub(crate) fn exits(
    function: FunctionValue<'_>,
    kernel: bool,
) -> Result<Vec<InstructionValue<'_>>, Failure> {
    let mut exits = Vec::new();
    for block in function.get_basic_blocks() {
        let is_exit = |instruction: &InstructionValue<'_>| {
            instruction.get_opcode() == InstructionOpcode::Call
                && callee(*instruction) == "llvm.nvvm.exit"
        };
        exits.extend(block.get_instructions().filter(is_exit));
        let end = block.get_terminator();
        let Some(end) = end.filter(|end| end.get_opcode() == InstructionOpcode::Return) else {
            continue;
        };
        let ways = if kernel && only_returns(block) { ways_to(block, function) } else { vec![] };
        if ways.is_empty() {
            exits.push(end);
        }
        for way in ways {
            exits.push(own_way(way, block, end)?);
        }
    }
    Ok(exits)
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

/// The blocks from which control comes to one.
fn ways_to<'ctx>(block: BasicBlock<'ctx>, function: FunctionValue<'ctx>) -> Vec<BasicBlock<'ctx>> {
    let comes = |from: &BasicBlock<'ctx>| successors(*from).contains(&block);
    function.get_basic_block_iter().filter(comes).collect()
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
