//! What tells one version of a module's code from another.

use inkwell::llvm_sys::core::LLVMSetMetadata;
use inkwell::llvm_sys::debuginfo::LLVMStripModuleDebugInfo;
use inkwell::module::Module;
use inkwell::values::AsValueRef as _;
use sha2::{Digest as _, Sha256};

use crate::paths::without_unit;

/// Ends the lines of annotations, which name the file and the line. In texts of the program quotes are
/// escaped.
const ANNOTATION: &[u8] = br#"section "llvm.metadata""#;

/// SHA-256 of a module's text, without what only says where the source lies: neither the folder nor
/// comments change it, nor what is recorded, as long as it is taken before anything is instrumented.
pub(crate) fn of(module: &Module<'_>) -> [u8; 32] {
    let bare = module.clone();
    // SAFETY: `bare` is a module that nothing else knows of.
    unsafe { LLVMStripModuleDebugInfo(bare.as_mut_ptr()) };
    strip_places_of_assembly(&bare);
    bare.set_name("");
    bare.set_source_file_name("");
    let text = without_unit(&bare.print_to_string().to_string_lossy());
    let lines = text.as_bytes().split(|byte| *byte == b'\n');
    let mut hash = Sha256::new();
    for line in lines.filter(|line| !line.ends_with(ANNOTATION)) {
        hash.update(line);
        hash.update("\n");
    }
    hash.finalize().into()
}

/// Takes off where in the source's text assembly stands, which is no debug information.
fn strip_places_of_assembly(module: &Module<'_>) {
    let place = module.get_context().get_kind_id("srcloc");
    let blocks = module.get_functions().flat_map(|function| function.get_basic_block_iter());
    for instruction in blocks.flat_map(|block| block.get_instructions()) {
        // SAFETY: the instruction is the module's; null takes metadata of the kind away.
        unsafe { LLVMSetMetadata(instruction.as_value_ref(), place, std::ptr::null_mut()) };
    }
}
