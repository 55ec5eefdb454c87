//! Finds what there is to record in a function.

use std::ffi::c_char;
use std::slice;

use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMGetCalledValue, LLVMGetConstOpcode, LLVMGetInlineAsmAsmString,
    LLVMGetInlineAsmConstraintString, LLVMGetInstructionOpcode, LLVMGetOperand,
    LLVMGetPointerAddressSpace, LLVMIsAAllocaInst, LLVMIsAArgument, LLVMIsAConstantExpr,
    LLVMIsAInlineAsm, LLVMIsAInstruction, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::values::{
    AsValueRef as _, BasicValueEnum, FunctionValue, InstructionOpcode, InstructionValue, IntValue,
    PointerValue,
};

use crate::asm::{self, Assembly, Statement};
use crate::options::{Kind, Options};

/// Address spaces of NVPTX.
const GENERIC: u32 = 0;
const SHARED: u32 = 3;

/// Something to record.
pub(crate) enum Spot<'ctx> {
    Branch(InstructionValue<'ctx>, IntValue<'ctx>),
    /// With the pointer where only that tells at run time whether it goes to shared memory.
    Store(InstructionValue<'ctx>, Stored<'ctx>, Option<PointerValue<'ctx>>),
    Atomic(InstructionValue<'ctx>, Old),
}

/// What a store puts into memory.
pub(crate) enum Stored<'ctx> {
    Value(BasicValueEnum<'ctx>),
    /// So many bytes from elsewhere.
    Copy(PointerValue<'ctx>, IntValue<'ctx>),
    /// One byte, so many times.
    Fill(IntValue<'ctx>, IntValue<'ctx>),
    /// What assembly stores is its own affair.
    Unknown,
}

/// Where an atomic has what was in memory before.
#[derive(Clone, Copy)]
pub(crate) enum Old {
    Result,
    Element(u32),
    Nowhere,
}

pub(crate) fn spots<'ctx>(
    options: &Options,
    kernel: bool,
    function: FunctionValue<'ctx>,
) -> Vec<Spot<'ctx>> {
    let wanted = |spot: &Spot<'_>| {
        options.has(match spot {
            Spot::Branch(..) => Kind::Branch,
            Spot::Store(..) => Kind::SharedStore,
            Spot::Atomic(..) => Kind::Atomic,
        })
    };
    function
        .get_basic_block_iter()
        .flat_map(|block| block.get_instructions())
        .filter_map(|instruction| spot(kernel, instruction))
        .filter(wanted)
        .collect()
}

fn spot(kernel: bool, instruction: InstructionValue<'_>) -> Option<Spot<'_>> {
    match instruction.get_opcode() {
        InstructionOpcode::Br => branch(instruction),
        InstructionOpcode::Store => {
            let value = Stored::Value(operand(instruction, 0)?);
            store(kernel, instruction, value, operand(instruction, 1)?.into_pointer_value())
        }
        InstructionOpcode::AtomicRMW => Some(Spot::Atomic(instruction, Old::Result)),
        // Its value is a struct of what was there and whether it was exchanged.
        InstructionOpcode::AtomicCmpXchg => Some(Spot::Atomic(instruction, Old::Element(0))),
        InstructionOpcode::Call => match assembly(instruction) {
            Some(assembly) => assembled(instruction, &assembly),
            None => called(kernel, instruction),
        },
        _ => None,
    }
}

fn branch(instruction: InstructionValue<'_>) -> Option<Spot<'_>> {
    if instruction.get_num_operands() != 3 {
        return None;
    }
    let condition = operand(instruction, 0)?.into_int_value();
    (!condition.is_const()).then_some(Spot::Branch(instruction, condition))
}

fn store<'ctx>(
    kernel: bool,
    instruction: InstructionValue<'ctx>,
    stored: Stored<'ctx>,
    pointer: PointerValue<'ctx>,
) -> Option<Spot<'ctx>> {
    match is_shared(kernel, pointer.as_value_ref()) {
        Some(true) => Some(Spot::Store(instruction, stored, None)),
        Some(false) => None,
        None => Some(Spot::Store(instruction, stored, Some(pointer))),
    }
}

/// Whether a pointer goes to shared memory, where that can be told.
fn is_shared(kernel: bool, mut pointer: LLVMValueRef) -> Option<bool> {
    // SAFETY: `pointer` is a pointer; the first operand of what is looked through is one too.
    unsafe {
        loop {
            match LLVMGetPointerAddressSpace(LLVMTypeOf(pointer)) {
                GENERIC => {}
                space => return Some(space == SHARED),
            }
            let opcode = if !LLVMIsAConstantExpr(pointer).is_null() {
                LLVMGetConstOpcode(pointer)
            } else if !LLVMIsAInstruction(pointer).is_null() {
                LLVMGetInstructionOpcode(pointer)
            } else {
                // A kernel's pointers are the host's; a variable without a space is not shared.
                let argument = !LLVMIsAArgument(pointer).is_null();
                return if argument && !kernel { None } else { Some(false) };
            };
            match opcode {
                LLVMOpcode::LLVMGetElementPtr
                | LLVMOpcode::LLVMBitCast
                | LLVMOpcode::LLVMAddrSpaceCast => pointer = LLVMGetOperand(pointer, 0),
                _ if !LLVMIsAAllocaInst(pointer).is_null() => return Some(false),
                _ => return None,
            }
        }
    }
}

/// A call of LLVM's own functions that stand for instructions.
fn called(kernel: bool, call: InstructionValue<'_>) -> Option<Spot<'_>> {
    let name = callee(call);
    if name.starts_with("llvm.nvvm.atomic.") {
        return Some(Spot::Atomic(call, Old::Result));
    }
    let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let (copy, fill) = (is(&["llvm.memcpy.", "llvm.memmove."]), is(&["llvm.memset."]));
    if !copy && !fill {
        return None;
    }
    let length = operand(call, 2)?.into_int_value();
    if length.get_zero_extended_constant() == Some(0) {
        return None;
    }
    let stored = match operand(call, 1)? {
        BasicValueEnum::PointerValue(from) => Stored::Copy(from, length),
        byte => Stored::Fill(byte.into_int_value(), length),
    };
    let pointer = operand(call, 0)?.into_pointer_value();
    let spot = store(kernel, call, stored, pointer)?;
    Some(match spot {
        // Lanes may store nothing, which shows at run time, too.
        Spot::Store(call, stored, None) if !length.is_const() => {
            Spot::Store(call, stored, Some(pointer))
        }
        spot => spot,
    })
}

/// The first atomic or store to shared memory in assembly, as CUDA's headers have for numbers of 16 bits.
fn assembled<'ctx>(call: InstructionValue<'ctx>, assembly: &Assembly) -> Option<Spot<'ctx>> {
    assembly.statements().iter().find_map(|Statement { opcode, operands }| {
        let mut parts = opcode.split('.');
        match parts.next()? {
            "atom" => {
                let result = asm::first_operand(operands).and_then(|at| assembly.result(at));
                let old = match result {
                    None => Old::Nowhere,
                    Some((_, 1)) => Old::Result,
                    Some((element, _)) => Old::Element(element),
                };
                Some(Spot::Atomic(call, old))
            }
            "red" => Some(Spot::Atomic(call, Old::Nowhere)),
            "st" if parts.any(|part| part.split("::").next() == Some("shared")) => {
                Some(Spot::Store(call, Stored::Unknown, None))
            }
            _ => None,
        }
    })
}

/// A call's assembly, where it is that.
pub(crate) fn assembly(call: InstructionValue<'_>) -> Option<Assembly> {
    // SAFETY: `call` is a call, and what it calls is asked for assembly only where it is that.
    unsafe {
        let called = LLVMGetCalledValue(call.as_value_ref());
        (!LLVMIsAInlineAsm(called).is_null()).then(|| Assembly {
            text: text(called, LLVMGetInlineAsmAsmString),
            constraints: text(called, LLVMGetInlineAsmConstraintString),
        })
    }
}

/// # Safety
///
/// `asm` is inline assembly, and `get` gives one of its texts with the length.
unsafe fn text(
    asm: LLVMValueRef,
    get: unsafe extern "C" fn(LLVMValueRef, *mut usize) -> *const c_char,
) -> String {
    let mut size = 0;
    // SAFETY: `asm` is inline assembly, of which `get` gives a text and writes its length: this function's contract.
    // The text is the assembly's own, and stays while it is copied.
    unsafe {
        let start = get(asm, &raw mut size);
        if start.is_null() {
            return String::new();
        }
        String::from_utf8_lossy(slice::from_raw_parts(start.cast(), size)).into_owned()
    }
}

/// The name of the function called, where it has one.
pub(crate) fn callee(call: InstructionValue<'_>) -> String {
    match operand(call, call.get_num_operands().saturating_sub(1)) {
        Some(BasicValueEnum::PointerValue(callee)) => {
            callee.get_name().to_string_lossy().into_owned()
        }
        _ => String::new(),
    }
}

fn operand(instruction: InstructionValue<'_>, index: u32) -> Option<BasicValueEnum<'_>> {
    instruction.get_operand(index)?.value()
}
