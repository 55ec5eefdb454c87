//! Which functions are recorded.

use std::collections::HashMap;

use inkwell::llvm_sys::core::{
    LLVMGetAsString, LLVMGetInitializer, LLVMGetNumOperands, LLVMGetOperand,
    LLVMIsAConstantDataArray, LLVMIsAFunction, LLVMIsAGlobalVariable,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::module::Module;
use inkwell::values::{AsValueRef as _, FunctionValue};

use crate::debug;
use crate::options::Options;
use crate::paths;

/// Functions of CUDA's own libraries: what they do is not the program's control flow.
const FOREIGN: [&str; 4] = ["__nv_", "__nvabi_", "nvabi_trace_", "llvm."];

/// `NVABI_TRACE` and `NVABI_NO_TRACE` win over the globs.
pub(crate) fn functions<'ctx>(
    module: &Module<'ctx>,
    options: &Options,
) -> Vec<FunctionValue<'ctx>> {
    let annotated = annotations(module);
    let wanted = |function: &FunctionValue<'ctx>| {
        let mangled = function.get_name().to_string_lossy();
        match annotated.get(&function.as_value_ref()) {
            Some(wanted) => *wanted,
            None => options.wants(&[&mangled, &debug::demangled(&mangled)]),
        }
    };
    defined(module).filter(wanted).collect()
}

/// Functions of the program itself that have a body.
pub(crate) fn defined<'ctx>(module: &Module<'ctx>) -> impl Iterator<Item = FunctionValue<'ctx>> {
    module.get_functions().filter(|function| {
        let name = function.get_name().to_string_lossy();
        function.count_basic_blocks() > 0
            && !FOREIGN.iter().any(|prefix| name.starts_with(prefix))
            && !is_foreign(*function)
    })
}

/// Functions that come with CUDA or clang.
fn is_foreign(function: FunctionValue<'_>) -> bool {
    match function.get_subprogram() {
        Some(subprogram) => paths::is_toolkit(&debug::file_of_scope(subprogram.as_mut_ptr())),
        None => is_wrapper(function),
    }
}

/// Functions of the CUDA headers that a program calls as if they were instructions.
pub(crate) fn is_wrapper(function: FunctionValue<'_>) -> bool {
    match function.get_subprogram() {
        Some(subprogram) => paths::is_wrapper(&debug::file_of_scope(subprogram.as_mut_ptr())),
        None => {
            let name = function.get_name().to_string_lossy();
            let internal = name.strip_prefix("_ZL").unwrap_or_default();
            let plain = internal.trim_start_matches(|c: char| c.is_ascii_digit());
            plain.starts_with("atomic") || plain.starts_with("__")
        }
    }
}

/// What `__attribute__((annotate(…)))` says of functions.
fn annotations(module: &Module<'_>) -> HashMap<LLVMValueRef, bool> {
    let mut found = HashMap::new();
    let Some(list) = module.get_global("llvm.global.annotations") else { return found };
    // SAFETY: the list is a constant array of structs {object, text, file, line, arguments}; operands
    // are asked for below their number, and each is tested before it is taken for what it should be.
    unsafe {
        let list = LLVMGetInitializer(list.as_value_ref());
        if list.is_null() {
            return found;
        }
        for entry in 0..LLVMGetNumOperands(list).unsigned_abs() {
            let entry = LLVMGetOperand(list, entry);
            if entry.is_null() || LLVMGetNumOperands(entry) < 2 {
                continue;
            }
            let (object, text) = (LLVMGetOperand(entry, 0), LLVMGetOperand(entry, 1));
            let wanted = match annotation_text(text).as_deref() {
                Some(b"nvabi.trace") => true,
                Some(b"nvabi.no_trace") => false,
                _ => continue,
            };
            let object = debug::without_casts(object);
            if !LLVMIsAFunction(object).is_null() {
                found.insert(object, wanted);
            }
        }
    }
    found
}

fn annotation_text(text: LLVMValueRef) -> Option<Vec<u8>> {
    // SAFETY: each value is tested before it is taken for what it should be.
    unsafe {
        let text = debug::without_casts(text);
        if text.is_null() || LLVMIsAGlobalVariable(text).is_null() {
            return None;
        }
        let data = LLVMGetInitializer(text);
        if data.is_null() || LLVMIsAConstantDataArray(data).is_null() {
            return None;
        }
        let mut size = 0;
        let start = LLVMGetAsString(data, &mut size).cast::<u8>();
        let bytes = std::slice::from_raw_parts(start, size);
        Some(bytes.strip_suffix(b"\0").unwrap_or(bytes).to_vec())
    }
}
