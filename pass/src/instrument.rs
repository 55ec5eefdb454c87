//! Puts calls of the recorder into a function.

use inkwell::builder::Builder;
use inkwell::context::ContextRef;
use inkwell::llvm_sys::LLVMOpcode;
use inkwell::llvm_sys::core::{
    LLVMGetConstOpcode, LLVMGetInstructionOpcode, LLVMGetOperand, LLVMGetPointerAddressSpace,
    LLVMIsAAllocaInst, LLVMIsAArgument, LLVMIsAConstantExpr, LLVMIsAInstruction, LLVMTypeOf,
};
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::module::Module;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{
    AsValueRef as _, BasicMetadataValueEnum, BasicValueEnum, FunctionValue, InstructionOpcode,
    InstructionValue, IntValue, PointerValue,
};

use crate::Failure;
use crate::debug;
use crate::exits::exits;
use crate::options::{Kind, Options};
use crate::runtime::Runtime;
use crate::sites::Sites;

/// In an event: a value follows.
const HAS_VALUE: u32 = 0x2000_0000;

/// Address spaces of NVPTX.
const GENERIC: u32 = 0;
const SHARED: u32 = 3;

/// The calling convention of kernels.
const KERNEL: u32 = 71;

/// What a function has to have, so that a site in it can record.
#[derive(Clone, Copy)]
struct Warp<'ctx> {
    slot: IntValue<'ctx>,
    below: IntValue<'ctx>,
    end: IntValue<'ctx>,
    /// To be added to a site.
    unit: IntValue<'ctx>,
}

/// Something to record.
enum Spot<'ctx> {
    Branch(InstructionValue<'ctx>, IntValue<'ctx>),
    Store(InstructionValue<'ctx>, BasicValueEnum<'ctx>, Option<PointerValue<'ctx>>),
    Atomic(InstructionValue<'ctx>),
}

/// Records what the options want of one function.
pub(crate) fn function<'ctx>(
    module: &Module<'ctx>,
    runtime: &Runtime<'ctx>,
    options: &Options,
    sites: &mut Sites,
    function: FunctionValue<'ctx>,
) -> Result<(), Failure> {
    let kernel = is_kernel(module, function);
    let spots = spots(options, kernel, function);
    let exits = exits(function, kernel)?;
    let ends = options.has(Kind::Entry) || options.has(Kind::Exit);
    if spots.is_empty() && !kernel && !ends {
        return Ok(());
    }
    let Some(code) = Code::enter(module, runtime, function, kernel)? else { return Ok(()) };
    let name = function.get_name().to_string_lossy();
    if options.has(Kind::Entry) {
        let frames = debug::frame_of_function(function).into_iter().collect();
        code.mark(sites.add(Kind::Entry, &name, frames, 0)?)?;
    }
    for spot in spots {
        code.record(spot, &name, sites)?;
    }
    for exit in exits {
        code.builder.position_before(&exit);
        if options.has(Kind::Exit) {
            code.mark(sites.add(Kind::Exit, &name, code.frames(exit), 0)?)?;
        }
        if kernel {
            code.finish()?;
        }
    }
    Ok(())
}

/// Sets up the warps of a kernel that is not recorded itself: what it calls may be.
pub(crate) fn kernel<'ctx>(
    module: &Module<'ctx>,
    runtime: &Runtime<'ctx>,
    function: FunctionValue<'ctx>,
) -> Result<(), Failure> {
    let Some(code) = Code::enter(module, runtime, function, true)? else { return Ok(()) };
    for exit in exits(function, true)? {
        code.builder.position_before(&exit);
        code.finish()?;
    }
    Ok(())
}

/// Whether the host launches it.
pub(crate) fn is_kernel(module: &Module<'_>, function: FunctionValue<'_>) -> bool {
    let marked = |node: LLVMValueRef| match debug::operands(node)[..] {
        [object, what, ..] => {
            object == function.as_value_ref() && !what.is_null() && debug::string(what) == "kernel"
        }
        _ => false,
    };
    let annotations = || module.get_global_metadata("nvvm.annotations");
    function.get_call_conventions() == KERNEL
        || annotations().iter().any(|node| marked(node.as_value_ref()))
}

fn spots<'ctx>(options: &Options, kernel: bool, function: FunctionValue<'ctx>) -> Vec<Spot<'ctx>> {
    let mut spots = Vec::new();
    for block in function.get_basic_block_iter() {
        for instruction in block.get_instructions() {
            let spot = match instruction.get_opcode() {
                InstructionOpcode::Br if options.has(Kind::Branch) => branch(instruction),
                InstructionOpcode::Store if options.has(Kind::SharedStore) => {
                    store(kernel, instruction)
                }
                InstructionOpcode::AtomicRMW | InstructionOpcode::AtomicCmpXchg
                    if options.has(Kind::Atomic) =>
                {
                    Some(Spot::Atomic(instruction))
                }
                InstructionOpcode::Call if options.has(Kind::Atomic) => callee(instruction)
                    .starts_with("llvm.nvvm.atomic.")
                    .then_some(Spot::Atomic(instruction)),
                _ => None,
            };
            spots.extend(spot);
        }
    }
    spots
}

fn branch(instruction: InstructionValue<'_>) -> Option<Spot<'_>> {
    if instruction.get_num_operands() != 3 {
        return None;
    }
    let condition = instruction.get_operand(0)?.value()?.into_int_value();
    (!condition.is_const()).then_some(Spot::Branch(instruction, condition))
}

fn store(kernel: bool, instruction: InstructionValue<'_>) -> Option<Spot<'_>> {
    let value = instruction.get_operand(0)?.value()?;
    let pointer = instruction.get_operand(1)?.value()?.into_pointer_value();
    match is_shared(kernel, pointer.as_value_ref()) {
        Some(true) => Some(Spot::Store(instruction, value, None)),
        Some(false) => None,
        None => Some(Spot::Store(instruction, value, Some(pointer))),
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

pub(crate) fn callee(call: InstructionValue<'_>) -> String {
    let last = call.get_num_operands().saturating_sub(1);
    let callee = call.get_operand(last).and_then(|operand| operand.value());
    match callee {
        Some(BasicValueEnum::PointerValue(callee)) => {
            callee.get_name().to_string_lossy().into_owned()
        }
        _ => String::new(),
    }
}

/// Allocas first: inlining splits the block where the recorder is called, and an alloca behind the
/// first block would be one of variable size. What comes back is what follows them.
fn raise_allocas<'ctx>(
    context: ContextRef<'ctx>,
    function: FunctionValue<'ctx>,
) -> Option<InstructionValue<'ctx>> {
    let is_alloca =
        |instruction: &InstructionValue<'_>| instruction.get_opcode() == InstructionOpcode::Alloca;
    let entry = function.get_first_basic_block()?;
    let first = entry.get_instructions().find(|instruction| !is_alloca(instruction))?;
    let late: Vec<_> = entry.get_instructions().skip_while(is_alloca).filter(is_alloca).collect();
    let builder = context.create_builder();
    for alloca in late {
        let fixed = alloca.get_operand(0).and_then(|operand| operand.value());
        if matches!(fixed, Some(BasicValueEnum::IntValue(size)) if size.is_const()) {
            alloca.remove_from_basic_block();
            builder.position_before(&first);
            builder.insert_instruction(&alloca, None);
        }
    }
    Some(first)
}

/// A function being instrumented.
struct Code<'a, 'ctx> {
    context: ContextRef<'ctx>,
    builder: Builder<'ctx>,
    runtime: &'a Runtime<'ctx>,
    warp: Warp<'ctx>,
}

impl<'a, 'ctx> Code<'a, 'ctx> {
    /// Looks up where the warp records, or sets it up where a launch begins.
    fn enter(
        module: &Module<'ctx>,
        runtime: &'a Runtime<'ctx>,
        function: FunctionValue<'ctx>,
        kernel: bool,
    ) -> Result<Option<Self>, Failure> {
        let context = module.get_context();
        let Some(first) = raise_allocas(context, function) else { return Ok(None) };
        let builder = context.create_builder();
        builder.position_before(&first);
        let start = if kernel { runtime.begin } else { runtime.slot };
        let slot = call(&builder, start, &[])?;
        let end = call(&builder, runtime.end, &[slot.into()])?;
        let below = call(&builder, runtime.below, &[end.into()])?;
        let unit = match runtime.unit {
            Some(unit) => {
                let generic = context.ptr_type(inkwell::AddressSpace::default());
                let unit = unit.as_pointer_value().const_address_space_cast(generic);
                call(&builder, runtime.unit_base, &[unit.into()])?
            }
            None => context.i32_type().const_zero(),
        };
        Ok(Some(Self { context, builder, runtime, warp: Warp { slot, below, end, unit } }))
    }

    fn frames(&self, instruction: InstructionValue<'ctx>) -> Vec<debug::Frame> {
        debug::frames(self.context.raw(), instruction)
    }

    fn record(&self, spot: Spot<'ctx>, name: &str, sites: &mut Sites) -> Result<(), Failure> {
        match spot {
            Spot::Branch(branch, condition) => {
                self.builder.position_before(&branch);
                let site = sites.add(Kind::Branch, name, self.frames(branch), 0)?;
                self.call(self.runtime.branch, site, &[condition.into()])
            }
            Spot::Store(store, value, pointer) => {
                self.builder.position_before(&store);
                let (value, bytes) = self.bits(value)?;
                let site = sites.add(Kind::SharedStore, name, self.frames(store), bytes)?;
                match pointer {
                    None => self.call(self.runtime.value, site | HAS_VALUE, &[value.into()]),
                    Some(pointer) => self.call(
                        self.runtime.maybe_shared,
                        site | HAS_VALUE,
                        &[value.into(), pointer.into()],
                    ),
                }
            }
            Spot::Atomic(atomic) => {
                let Some(next) = atomic.get_next_instruction() else { return Ok(()) };
                self.builder.position_before(&next);
                let (old, bytes) = self.bits(self.old(atomic)?)?;
                let site = sites.add(Kind::Atomic, name, self.frames(atomic), bytes)?;
                self.call(self.runtime.value, site | HAS_VALUE, &[old.into()])
            }
        }
    }

    /// What was in memory before an atomic.
    fn old(&self, atomic: InstructionValue<'ctx>) -> Result<BasicValueEnum<'ctx>, Failure> {
        let result = match atomic.get_opcode() {
            InstructionOpcode::AtomicCmpXchg => {
                // SAFETY: its value is a struct of what was there and whether it was exchanged.
                let pair = unsafe { inkwell::values::StructValue::new(atomic.as_value_ref()) };
                self.builder.build_extract_value(pair, 0, "old")?
            }
            // SAFETY: the value of an atomic instruction or intrinsic is a basic one.
            _ => unsafe { BasicValueEnum::new(atomic.as_value_ref()) },
        };
        Ok(result)
    }

    /// The bits of a value, and how many bytes they are; the first eight of what is longer.
    fn bits(&self, value: BasicValueEnum<'ctx>) -> Result<(IntValue<'ctx>, u8), Failure> {
        let long = self.context.i64_type();
        let Some(width) = width(value.get_type()) else { return Ok((long.const_zero(), 0)) };
        let whole = match value {
            BasicValueEnum::IntValue(value) => value,
            BasicValueEnum::PointerValue(value) => {
                self.builder.build_ptr_to_int(value, long, "")?
            }
            value => {
                let bits = std::num::NonZeroU32::new(width).ok_or("a value of no bits")?;
                let kind = self.context.custom_width_int_type(bits)?;
                self.builder.build_bit_cast(value, kind, "")?.into_int_value()
            }
        };
        let bits = self.builder.build_int_cast_sign_flag(whole, long, false, "")?;
        Ok((bits, u8::try_from(width.div_ceil(8)).unwrap_or(u8::MAX)))
    }

    fn mark(&self, site: u32) -> Result<(), Failure> {
        self.call(self.runtime.mark, site, &[])
    }

    fn finish(&self) -> Result<(), Failure> {
        let Warp { slot, below, .. } = self.warp;
        self.builder.build_call(self.runtime.finish, &[slot.into(), below.into()], "")?;
        Ok(())
    }

    fn call(
        &self,
        function: FunctionValue<'ctx>,
        site: u32,
        more: &[BasicMetadataValueEnum<'ctx>],
    ) -> Result<(), Failure> {
        let Warp { slot, below, end, unit } = self.warp;
        let site = self.context.i32_type().const_int(u64::from(site), false);
        let site = self.builder.build_int_add(unit, site, "")?;
        let mut arguments = vec![slot.into(), below.into(), end.into(), site.into()];
        arguments.extend(more);
        self.builder.build_call(function, &arguments, "")?;
        Ok(())
    }
}

fn call<'ctx>(
    builder: &Builder<'ctx>,
    function: FunctionValue<'ctx>,
    arguments: &[BasicMetadataValueEnum<'ctx>],
) -> Result<IntValue<'ctx>, Failure> {
    let value = builder.build_call(function, arguments, "")?.try_as_basic_value().basic();
    Ok(value.ok_or("the recorder returns nothing")?.into_int_value())
}

/// Bits of a type; nothing of one that is made of others.
fn width(kind: BasicTypeEnum<'_>) -> Option<u32> {
    match kind {
        BasicTypeEnum::IntType(kind) => Some(kind.get_bit_width()),
        BasicTypeEnum::FloatType(kind) => Some(kind.get_bit_width()),
        BasicTypeEnum::PointerType(_) => Some(64),
        BasicTypeEnum::VectorType(kind) => Some(width(kind.get_element_type())? * kind.get_size()),
        _ => None,
    }
}
