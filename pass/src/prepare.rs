//! Brings a module into the form in which it is instrumented.

use std::collections::HashSet;
use std::ffi::CStr;
use std::ptr;

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::llvm_sys::core::{LLVMGetNumSuccessors, LLVMGetSuccessor};
use inkwell::llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use inkwell::llvm_sys::transforms::pass_builder::{
    LLVMCreatePassBuilderOptions, LLVMDisposePassBuilderOptions, LLVMRunPasses,
};
use inkwell::module::Module;
use inkwell::values::{AsValueRef as _, FunctionValue, InstructionOpcode};

use crate::Failure;
use crate::select;

/// Inlines the functions of CUDA's headers that stand for instructions, so that an atomic is where the
/// program calls it.
pub(crate) fn inline_wrappers(module: &Module<'_>) -> Result<(), Failure> {
    let kind = Attribute::get_named_enum_kind_id;
    let always = module.get_context().create_enum_attribute(kind("alwaysinline"), 0);
    for function in module.get_functions() {
        if function.count_basic_blocks() > 0 && select::is_wrapper(function) {
            for name in ["noinline", "optnone"] {
                function.remove_enum_attribute(AttributeLoc::Function, kind(name));
            }
            function.add_attribute(AttributeLoc::Function, always);
        }
    }
    run(module, c"always-inline")
}

/// Makes compare chains of switches. LLVM gives the chain's branches no place in the source, so they
/// get the switch's.
pub(crate) fn lower_switches(
    module: &Module<'_>,
    selected: &[FunctionValue<'_>],
) -> Result<(), Failure> {
    let mut switches = Vec::new();
    let mut known = HashSet::new();
    for block in selected.iter().flat_map(|function| function.get_basic_block_iter()) {
        known.insert(block);
        let switch =
            block.get_terminator().filter(|end| end.get_opcode() == InstructionOpcode::Switch);
        switches.extend(switch.map(|switch| (block, switch.get_debug_location())));
    }
    if switches.is_empty() {
        return Ok(());
    }
    // LLVM passes over functions that are not to be optimised, as all are at -O0.
    let context = module.get_context();
    let kind = Attribute::get_named_enum_kind_id("optnone");
    let place = AttributeLoc::Function;
    let plain =
        selected.iter().filter(|function| function.get_enum_attribute(place, kind).is_some());
    let plain: Vec<_> = plain.copied().collect();
    plain.iter().for_each(|function| function.remove_enum_attribute(place, kind));
    run(module, c"lower-switch")?;
    let attribute = context.create_enum_attribute(kind, 0);
    plain.iter().for_each(|function| function.add_attribute(place, attribute));
    for (block, place) in switches {
        let mut chain = vec![block];
        while let Some(block) = chain.pop() {
            if let Some(end) = block.get_terminator() {
                end.set_debug_location(place);
            }
            chain.extend(successors(block).into_iter().filter(|next| known.insert(*next)));
        }
    }
    Ok(())
}

pub(crate) fn successors(block: BasicBlock<'_>) -> Vec<BasicBlock<'_>> {
    let Some(end) = block.get_terminator() else { return Vec::new() };
    let end = end.as_value_ref();
    // SAFETY: `end` is a terminator, and it is asked for as many successors as it has.
    unsafe {
        let count = LLVMGetNumSuccessors(end);
        (0..count).filter_map(|index| BasicBlock::new(LLVMGetSuccessor(end, index))).collect()
    }
}

pub(crate) fn run(module: &Module<'_>, passes: &CStr) -> Result<(), Failure> {
    // SAFETY: the module is valid, passes may run without a target machine, and message and options
    // are given back as they were made.
    unsafe {
        let options = LLVMCreatePassBuilderOptions();
        let error = LLVMRunPasses(module.as_mut_ptr(), passes.as_ptr(), ptr::null_mut(), options);
        LLVMDisposePassBuilderOptions(options);
        if error.is_null() {
            return Ok(());
        }
        let message = LLVMGetErrorMessage(error);
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeErrorMessage(message);
        Err(format!("{}: {text}", passes.to_string_lossy()).into())
    }
}
