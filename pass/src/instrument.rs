//! Puts calls of the recorder into a function.

use std::num::NonZeroU32;

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::builder::Builder;
use inkwell::context::ContextRef;
use inkwell::llvm_sys::prelude::LLVMValueRef;
use inkwell::module::Module;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{
    AsValueRef as _, BasicMetadataValueEnum, BasicValueEnum, CallSiteValue, FunctionValue,
    InstructionOpcode, InstructionValue, IntValue, PointerValue, StructValue,
};
use inkwell::{AddressSpace, IntPredicate};

use crate::Failure;
use crate::debug;
use crate::exits::exits;
use nvabi_trace::abi::r2::NVABI_TRACE_HAS_VALUE;

use crate::options::{Kind, Options};
use crate::paths::is_toolkit;
use crate::runtime::Runtime;
use crate::sites::Sites;
use crate::spots::{Old, Spot, Stored, spots};

/// Metadata of a branch and its record: the site.
pub(crate) const SITE: &str = "nvabi.site";

/// The calling convention of kernels.
const KERNEL: u32 = 71;

/// What a function has to have, so that a site in it can record.
#[derive(Clone, Copy)]
struct Warp<'ctx> {
    slot: IntValue<'ctx>,
    below: IntValue<'ctx>,
    end: IntValue<'ctx>,
    idle: IntValue<'ctx>,
    scale: IntValue<'ctx>,
    /// To be added to a site.
    unit: IntValue<'ctx>,
}

/// Records what the options want of one function, and lets its warps say how far they came where their
/// threads end.
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
    let leaves = kernel || exits.iter().any(|exit| exit.of_thread);
    if spots.is_empty() && !leaves && !ends {
        return Ok(());
    }
    let Some(code) = Code::enter(module, runtime, function, kernel)? else { return Ok(()) };
    let name = function.get_name().to_string_lossy();
    if options.has(Kind::Entry) {
        let frames = debug::frame_of_function(function).into_iter().collect();
        code.mark(sites.add(Kind::Entry, &name, frames, 0)?, None)?;
    }
    for spot in spots {
        code.record(spot, &name, sites)?;
    }
    for exit in exits {
        code.builder.position_before(&exit.at);
        if options.has(Kind::Exit) {
            code.mark(sites.add(Kind::Exit, &name, code.frames(exit.at), 0)?, None)?;
        }
        if exit.of_thread {
            code.finish()?;
        }
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

/// Allocas first: inlining splits the block where the recorder is called, and an alloca behind the
/// first block would be one of variable size. What comes back is what follows them.
pub(crate) fn raise_allocas<'ctx>(
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
        let idle = call(&builder, runtime.idle, &[])?;
        let scale = call(&builder, runtime.scale, &[end.into()])?;
        let unit = match runtime.unit {
            Some(unit) => {
                let generic = context.ptr_type(AddressSpace::default());
                let unit = unit.as_pointer_value().const_address_space_cast(generic);
                call(&builder, runtime.unit_base, &[unit.into()])?
            }
            None => context.i32_type().const_zero(),
        };
        Ok(Some(Self {
            context,
            builder,
            runtime,
            warp: Warp { slot, below, end, idle, scale, unit },
        }))
    }

    fn frames(&self, instruction: InstructionValue<'ctx>) -> Vec<debug::Frame> {
        debug::frames(self.context.raw(), instruction)
    }

    fn record(&self, spot: Spot<'ctx>, name: &str, sites: &mut Sites) -> Result<(), Failure> {
        let (Spot::Branch(at, _) | Spot::Store(at, ..) | Spot::Atomic(at, _)) = spot;
        let frames = self.frames(at);
        // What was inlined from CUDA's headers is not the program's, but for what atomics do to memory.
        let inlined = frames.first().is_some_and(|frame| is_toolkit(&frame.path));
        if inlined && !matches!(spot, Spot::Atomic(..)) {
            return Ok(());
        }
        match spot {
            Spot::Branch(branch, condition) => {
                self.builder.position_before(&branch);
                let site = sites.add(Kind::Branch, name, frames, 0)?;
                self.branch(branch, site, condition)
            }
            Spot::Store(store, stored, pointer) => {
                self.builder.position_before(&store);
                let pointer =
                    pointer.map(|pointer| self.where_stored(&stored, pointer)).transpose()?;
                let (value, bytes) = self.stored(store, stored)?;
                let site = sites.add(Kind::SharedStore, name, frames, bytes)?;
                match (value, pointer) {
                    (value, None) => self.mark(site, value),
                    // Nothing is stored.
                    (None, Some(_)) => Ok(()),
                    (Some(value), Some(pointer)) => self.call(
                        self.runtime.maybe_shared,
                        site | NVABI_TRACE_HAS_VALUE,
                        &[value.into(), pointer.into()],
                    ),
                }
            }
            Spot::Atomic(atomic, old) => {
                let Some(next) = atomic.get_next_instruction() else { return Ok(()) };
                self.builder.position_before(&next);
                let (value, bytes) = match self.old(atomic, old)? {
                    Some(old) => self.bits(old)?,
                    None => (None, 0),
                };
                let site = sites.add(Kind::Atomic, name, frames, bytes)?;
                self.mark(site, value)
            }
        }
    }

    /// What was in memory before an atomic.
    fn old(
        &self,
        atomic: InstructionValue<'ctx>,
        old: Old,
    ) -> Result<Option<BasicValueEnum<'ctx>>, Failure> {
        let value = atomic.as_value_ref();
        Ok(match old {
            Old::Nowhere => None,
            // SAFETY: its value is a basic one.
            Old::Result => Some(unsafe { BasicValueEnum::new(value) }),
            Old::Element(index) => {
                // SAFETY: its value is a struct that has this element.
                let results = unsafe { StructValue::new(value) };
                Some(self.builder.build_extract_value(results, index, "old")?)
            }
        })
    }

    /// The bits of what is stored, and how many bytes the store has, or 0.
    fn stored(
        &self,
        store: InstructionValue<'ctx>,
        stored: Stored<'ctx>,
    ) -> Result<(Option<IntValue<'ctx>>, u8), Failure> {
        let long = self.context.i64_type();
        let cast = |value| self.builder.build_int_cast_sign_flag(value, long, false, "");
        let (function, from, length) = match stored {
            Stored::Value(value) => return self.bits(value),
            Stored::Unknown => return Ok((None, 0)),
            Stored::Fill(byte, length) => (self.runtime.filled, cast(byte)?.into(), length),
            Stored::Copy(from, length) => match length.get_zero_extended_constant() {
                Some(bytes) => return self.copied(store, from, bytes),
                None => (self.runtime.copied, self.generic(from)?.into(), length),
            },
        };
        let bytes = length.get_zero_extended_constant().map_or(0, size);
        let value = call(&self.builder, function, &[from, cast(length)?.into()])?;
        Ok((Some(value), bytes))
    }

    /// The first bytes of what a copy of known length takes from elsewhere.
    fn copied(
        &self,
        copy: InstructionValue<'ctx>,
        from: PointerValue<'ctx>,
        bytes: u64,
    ) -> Result<(Option<IntValue<'ctx>>, u8), Failure> {
        let bits = NonZeroU32::new(8 * u32::from(size(bytes.min(8)))).ok_or("a copy of nothing")?;
        let kind = self.context.custom_width_int_type(bits)?;
        let first = self.builder.build_load(kind, from, "")?;
        let load = first.into_int_value().as_instruction().ok_or("a load that is none")?;
        load.set_alignment(alignment_of_source(copy))?;
        let (value, _) = self.bits(first)?;
        Ok((value, size(bytes)))
    }

    /// Where a store goes: nowhere in lanes that store no bytes.
    fn where_stored(
        &self,
        stored: &Stored<'ctx>,
        pointer: PointerValue<'ctx>,
    ) -> Result<PointerValue<'ctx>, Failure> {
        let (Stored::Copy(_, length) | Stored::Fill(_, length)) = stored else {
            return Ok(pointer);
        };
        let none = length.get_type().const_zero();
        let any = self.builder.build_int_compare(IntPredicate::NE, *length, none, "")?;
        let pointer = self.generic(pointer)?;
        let chosen =
            self.builder.build_select(any, pointer, pointer.get_type().const_null(), "")?;
        Ok(chosen.into_pointer_value())
    }

    fn generic(&self, pointer: PointerValue<'ctx>) -> Result<PointerValue<'ctx>, Failure> {
        let generic = self.context.ptr_type(AddressSpace::default());
        Ok(self.builder.build_address_space_cast(pointer, generic, "")?)
    }

    /// The bits of a value, and how many bytes they are; the first eight of what is longer. Of structs and
    /// arrays the first element's, without a length.
    fn bits(&self, value: BasicValueEnum<'ctx>) -> Result<(Option<IntValue<'ctx>>, u8), Failure> {
        let long = self.context.i64_type();
        let width = width(value.get_type()).unwrap_or(0);
        let whole = match value {
            BasicValueEnum::IntValue(value) => value,
            BasicValueEnum::PointerValue(value) => {
                self.builder.build_ptr_to_int(value, long, "")?
            }
            BasicValueEnum::StructValue(_) | BasicValueEnum::ArrayValue(_) => {
                let first = match value {
                    BasicValueEnum::StructValue(all) => {
                        self.builder.build_extract_value(all, 0, "")
                    }
                    all => self.builder.build_extract_value(all.into_array_value(), 0, ""),
                };
                // There may be none.
                return first.map_or(Ok((None, 0)), |first| Ok((self.bits(first)?.0, 0)));
            }
            BasicValueEnum::VectorValue(all)
                if all.get_type().get_element_type().is_pointer_type() =>
            {
                let first = self.context.i32_type().const_zero();
                let first = self.builder.build_extract_element(all, first, "")?;
                return Ok((self.bits(first)?.0, size(width.div_ceil(8).into())));
            }
            value => {
                let bits = NonZeroU32::new(width).ok_or("a value of no bits")?;
                let kind = self.context.custom_width_int_type(bits)?;
                self.builder.build_bit_cast(value, kind, "")?.into_int_value()
            }
        };
        let bits = self.builder.build_int_cast_sign_flag(whole, long, false, "")?;
        Ok((Some(bits), size(width.div_ceil(8).into())))
    }

    /// An event, with a value where there is one.
    fn mark(&self, site: u32, value: Option<IntValue<'ctx>>) -> Result<(), Failure> {
        match value {
            None => self.call(self.runtime.mark, site, &[]),
            Some(value) => {
                self.call(self.runtime.value, site | NVABI_TRACE_HAS_VALUE, &[value.into()])
            }
        }
    }

    fn finish(&self) -> Result<(), Failure> {
        let Warp { slot, below, .. } = self.warp;
        self.builder.build_call(self.runtime.finish, &[slot.into(), below.into()], "")?;
        Ok(())
    }

    /// Records a branch. Both are marked as of one site, for [`crate::settle`].
    fn branch(
        &self,
        branch: InstructionValue<'ctx>,
        site: u32,
        condition: IntValue<'ctx>,
    ) -> Result<(), Failure> {
        let Warp { slot, below, end, idle, scale, .. } = self.warp;
        let number = self.numbered(site)?;
        let arguments = [slot, below, end, idle, scale, number, condition].map(Into::into);
        let record = call(&self.builder, self.runtime.branch, &arguments)?;
        let mark = self.context.i32_type().const_int(u64::from(site), false);
        let mark = self.context.metadata_node(&[mark.into()]);
        for marked in [Some(branch), record.as_instruction()].into_iter().flatten() {
            marked.set_metadata(mark, self.context.get_kind_id(SITE))?;
        }
        Ok(())
    }

    /// A site as events have it.
    fn numbered(&self, site: u32) -> Result<IntValue<'ctx>, Failure> {
        let site = self.context.i32_type().const_int(u64::from(site), false);
        Ok(self.builder.build_int_add(self.warp.unit, site, "")?)
    }

    fn call(
        &self,
        function: FunctionValue<'ctx>,
        site: u32,
        more: &[BasicMetadataValueEnum<'ctx>],
    ) -> Result<(), Failure> {
        let Warp { slot, below, end, .. } = self.warp;
        let site = self.numbered(site)?;
        let mut arguments = vec![slot.into(), below.into(), end.into(), site.into()];
        arguments.extend(more);
        self.builder.build_call(function, &arguments, "")?;
        Ok(())
    }
}

pub(crate) fn call<'ctx>(
    builder: &Builder<'ctx>,
    function: FunctionValue<'ctx>,
    arguments: &[BasicMetadataValueEnum<'ctx>],
) -> Result<IntValue<'ctx>, Failure> {
    let value = builder.build_call(function, arguments, "")?.try_as_basic_value().basic();
    Ok(value.ok_or("the recorder returns nothing")?.into_int_value())
}

/// Bytes as a site has them.
fn size(bytes: u64) -> u8 {
    u8::try_from(bytes).unwrap_or(u8::MAX)
}

/// What the compiler promises of the address that a copy reads.
fn alignment_of_source(copy: InstructionValue<'_>) -> u32 {
    let align = Attribute::get_named_enum_kind_id("align");
    let source = AttributeLoc::Param(1);
    let attribute = CallSiteValue::try_from(copy)
        .ok()
        .and_then(|call| call.get_enum_attribute(source, align))
        .map(|attribute| attribute.get_enum_value());
    attribute.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(1)
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
