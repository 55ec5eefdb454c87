//! Repairs what clang 19's own headers get wrong.
//!
//! `__reduce_add_sync(mask, value)` and its like call the instruction `redux.sync`, which takes the value
//! first, with the mask first (`__clang_cuda_intrinsics.h`). Every integer `cg::reduce` is wrong by that. The
//! plugin is loaded into LLVM 19 alone; headers that have the order right are left as they are.

use std::collections::BTreeSet;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMGetCalledValue, LLVMGetInstructionOpcode, LLVMGetOperand, LLVMGetParam, LLVMIsACallInst,
    LLVMIsAInstruction, LLVMSetOperand,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::module::Module;
use inkwell::values::{AsValueRef as _, FunctionValue};

use crate::debug;

/// Puts value and mask of reductions into their places; the names of the functions where they were not.
pub(crate) fn reductions(module: &Module<'_>) -> BTreeSet<String> {
    let mut repaired = BTreeSet::new();
    for function in module.get_functions().filter(|function| function.count_params() == 2) {
        let mangled = function.get_name().to_string_lossy();
        let name = debug::demangled(&mangled);
        let name = name.split('(').next().unwrap_or_default();
        if name.starts_with("__reduce_") && name.ends_with("_sync") && swap(module, function) {
            repaired.insert(name.to_owned());
        }
    }
    repaired
}

fn swap(module: &Module<'_>, function: FunctionValue<'_>) -> bool {
    let is_reduction = |called: LLVMValueRef| {
        let intrinsics = module.get_functions().filter(|function| {
            function.get_name().to_bytes().starts_with(b"llvm.nvvm.redux.sync.")
        });
        intrinsics.into_iter().any(|intrinsic| intrinsic.as_value_ref() == called)
    };
    let instructions: Vec<LLVMValueRef> = function
        .get_basic_block_iter()
        .flat_map(|block| block.get_instructions())
        .map(|instruction| instruction.as_value_ref())
        .collect();
    let mut swapped = false;
    for call in instructions.iter().copied() {
        // SAFETY: `call` is a live instruction of the module; it is asked for a callee only if it is a call,
        // and for two operands only if it calls an intrinsic of two parameters. Both have the same type.
        unsafe {
            if LLVMIsACallInst(call).is_null() || !is_reduction(LLVMGetCalledValue(call)) {
                continue;
            }
            let (first, second) = (LLVMGetOperand(call, 0), LLVMGetOperand(call, 1));
            let of = |value| parameter(function, &instructions, value);
            if (of(first), of(second)) == (Some(0), Some(1)) {
                LLVMSetOperand(call, 0, second);
                LLVMSetOperand(call, 1, first);
                swapped = true;
            }
        }
    }
    swapped
}

/// Which parameter a value is: itself, or loaded from where it was stored, as without optimisation.
fn parameter(
    function: FunctionValue<'_>,
    instructions: &[LLVMValueRef],
    value: LLVMValueRef,
) -> Option<u32> {
    // SAFETY: all are live values of the module; a load has one operand, a store two, and parameters are asked
    // for below their number.
    unsafe {
        let is = |instruction: LLVMValueRef, opcode: LLVMOpcode| {
            !LLVMIsAInstruction(instruction).is_null()
                && LLVMGetInstructionOpcode(instruction) == opcode
        };
        let origin = if is(value, LLVMOpcode::LLVMLoad) {
            let place = LLVMGetOperand(value, 0);
            let stores = instructions.iter().copied().filter(|i| is(*i, LLVMOpcode::LLVMStore));
            let mut here = stores.filter(|store| LLVMGetOperand(*store, 1) == place);
            match (here.next(), here.next()) {
                (Some(only), None) => LLVMGetOperand(only, 0),
                _ => return None,
            }
        } else {
            value
        };
        (0..function.count_params()).find(|at| LLVMGetParam(function.as_value_ref(), *at) == origin)
    }
}
