//! Where code comes from: what the debug information says, as plain data.

use std::ffi::c_char;
use std::path::{Path, PathBuf};
use std::slice;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMGetConstOpcode, LLVMGetMDNodeNumOperands, LLVMGetMDNodeOperands, LLVMGetMDString,
    LLVMGetOperand, LLVMIsAConstantExpr, LLVMMetadataAsValue, LLVMValueAsMetadata,
};
use inkwell::llvm_sys::debuginfo::{
    LLVMDIFileGetDirectory, LLVMDIFileGetFilename, LLVMDILocationGetColumn,
    LLVMDILocationGetInlinedAt, LLVMDILocationGetLine, LLVMDILocationGetScope, LLVMDIScopeGetFile,
    LLVMDISubprogramGetLine, LLVMGetMetadataKind, LLVMMetadataKind,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMMetadataRef, LLVMValueRef};
use inkwell::values::{FunctionValue, InstructionValue};

use crate::paths::normal;

/// A place in the source, and the function it stands in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Absolute where the debug information is; without `.` and `..`.
    pub(crate) path: PathBuf,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Mangled, where it has such a name.
    pub(crate) function: String,
}

/// The place of an instruction and of the calls it was inlined through, innermost first.
pub(crate) fn frames(context: LLVMContextRef, instruction: InstructionValue<'_>) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut location = instruction.get_debug_location().map(|location| location.as_mut_ptr());
    while let Some(at) = location {
        // SAFETY: a location has a scope, and what it was inlined at is a location or null.
        unsafe {
            let scope = LLVMDILocationGetScope(at);
            frames.push(Frame {
                path: file_of_scope(scope),
                line: LLVMDILocationGetLine(at),
                column: LLVMDILocationGetColumn(at),
                function: function_of_scope(context, scope),
            });
            let outer = LLVMDILocationGetInlinedAt(at);
            location = (!outer.is_null()).then_some(outer);
        }
    }
    frames
}

/// Where a function begins.
pub(crate) fn frame_of_function(function: FunctionValue<'_>) -> Option<Frame> {
    let subprogram = function.get_subprogram()?.as_mut_ptr();
    // SAFETY: `subprogram` is one.
    let line = unsafe { LLVMDISubprogramGetLine(subprogram) };
    let path = file_of_scope(subprogram);
    let function = function.get_name().to_string_lossy().into_owned();
    Some(Frame { path, line, column: 0, function })
}

/// The file of a scope, such as a function.
pub(crate) fn file_of_scope(scope: LLVMMetadataRef) -> PathBuf {
    // SAFETY: scopes have a file or null; the text belongs to the context.
    unsafe {
        let file = LLVMDIScopeGetFile(scope);
        if file.is_null() {
            return PathBuf::new();
        }
        let mut size = 0;
        let directory = LLVMDIFileGetDirectory(file, &mut size);
        let directory = text(directory, size);
        let name = LLVMDIFileGetFilename(file, &mut size);
        let name = text(name, size);
        normal(&Path::new(&directory).join(name))
    }
}

/// `_Z6reducePf` as `reduce`; a name that is not mangled stays.
pub(crate) fn demangled(name: &str) -> String {
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    cpp_demangle::Symbol::new(name)
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
}

/// The function a scope lies in.
fn function_of_scope(context: LLVMContextRef, mut scope: LLVMMetadataRef) -> String {
    // A block's parent is its second operand; a function's names are its third and fourth.
    loop {
        // SAFETY: `scope` is metadata; its kind is asked for before its operands.
        let kind = unsafe { LLVMGetMetadataKind(scope) };
        match kind {
            LLVMMetadataKind::LLVMDISubprogramMetadataKind => break,
            LLVMMetadataKind::LLVMDILexicalBlockMetadataKind
            | LLVMMetadataKind::LLVMDILexicalBlockFileMetadataKind => {
                match operand(context, scope, 1) {
                    // SAFETY: the parent of a block is metadata.
                    Some(parent) => scope = unsafe { LLVMValueAsMetadata(parent) },
                    None => return String::new(),
                }
            }
            _ => return String::new(),
        }
    }
    let name = |index| operand(context, scope, index).map(string).filter(|name| !name.is_empty());
    name(3).or_else(|| name(2)).unwrap_or_default()
}

fn operand(context: LLVMContextRef, node: LLVMMetadataRef, index: usize) -> Option<LLVMValueRef> {
    // SAFETY: `node` is a node of this context.
    let node = unsafe { LLVMMetadataAsValue(context, node) };
    operands(node).get(index).copied().filter(|operand| !operand.is_null())
}

/// The operands of a metadata node; null where there is none.
pub(crate) fn operands(node: LLVMValueRef) -> Vec<LLVMValueRef> {
    // SAFETY: `node` is a node, and the list has room for all of its operands.
    unsafe {
        let mut operands = vec![std::ptr::null_mut(); LLVMGetMDNodeNumOperands(node) as usize];
        LLVMGetMDNodeOperands(node, operands.as_mut_ptr());
        operands
    }
}

/// The text of a metadata string.
pub(crate) fn string(value: LLVMValueRef) -> String {
    let mut size = 0;
    // SAFETY: null comes back where the value is no string.
    unsafe {
        let start = LLVMGetMDString(value, &mut size);
        text(start, size)
    }
}

/// # Safety
///
/// `start` is null or `size` bytes.
unsafe fn text(start: *const c_char, size: u32) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: it is not null, so it points to `size` bytes, by this function's contract; they are LLVM's, which
    // does not change a name while the copy below is made.
    let bytes = unsafe { slice::from_raw_parts(start.cast::<u8>(), size as usize) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a constant is a cast of.
pub(crate) fn without_casts(mut value: LLVMValueRef) -> LLVMValueRef {
    // SAFETY: `value` is a value; a cast has one operand.
    unsafe {
        while !value.is_null() && !LLVMIsAConstantExpr(value).is_null() {
            match LLVMGetConstOpcode(value) {
                LLVMOpcode::LLVMBitCast | LLVMOpcode::LLVMAddrSpaceCast => {
                    value = LLVMGetOperand(value, 0);
                }
                _ => break,
            }
        }
    }
    value
}
