//! The recorder's function for a branch. It is made here because C++ has no predicates as operands.

use std::mem::offset_of;

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::ContextRef;
use inkwell::module::{Linkage, Module};
use inkwell::values::{BasicValue as _, BasicValueEnum, FunctionValue, IntValue};

use crate::Failure;
use crate::runtime::{BUFFER, OWN_MEMORY};
use nvabi_trace::abi::r2::{NVABI_TRACE_HAS_BALLOT, nvabi_trace_buffer};

const TEXT: &str = include_str!("../../cuda/emu/src/program/decode/recorder.ptx");
const CONSTRAINTS: &str = "=&b,r,r,r,r,ri,b,l,r";

/// Makes `i1 __nvabi_branch(i32 slot, i32 below, i32 end, i32 idle, i32 scale, i32 site, i1 condition)`, which returns
/// the condition.
pub(crate) fn define<'ctx>(module: &Module<'ctx>) -> Result<FunctionValue<'ctx>, Failure> {
    let context = module.get_context();
    let (word, long, truth) = (context.i32_type(), context.i64_type(), context.bool_type());
    let kind = truth.fn_type(&[[word.into(); 6].as_slice(), &[truth.into()]].concat(), false);
    let function = module.add_function("__nvabi_branch", kind, Some(Linkage::Internal));
    for name in ["alwaysinline", "convergent", "nounwind"] {
        function.add_attribute(AttributeLoc::Function, attribute(context, name, 0));
    }
    let builder = context.create_builder();
    builder.position_at_end(context.append_basic_block(function, ""));
    let parameters: Vec<IntValue<'_>> =
        function.get_param_iter().map(BasicValueEnum::into_int_value).collect();
    let [slot, below, end, idle, scale, site, condition] = parameters[..] else {
        return Err("a branch has seven parameters".into());
    };
    let less = word.const_int(NVABI_TRACE_HAS_BALLOT.into(), false);
    let site = builder.build_int_sub(site, less, "")?;
    let buffer = module.get_global(BUFFER).ok_or("no buffer in the recorder")?;
    let offset = word.const_int(offset_of!(nvabi_trace_buffer, events) as u64, false);
    // SAFETY: it is the offset of a member of the buffer.
    let events = unsafe { buffer.as_pointer_value().const_gep(context.i8_type(), &[offset]) };
    let events = builder.build_load(long, events, "")?;
    if let Some(load) = events.as_instruction_value() {
        let invariant = context.get_kind_id("invariant.load");
        load.set_metadata(context.metadata_node(&[]), invariant)?;
    }
    let code: String =
        TEXT.lines().filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join("\n\t");
    let operands =
        [[word.into(); 5].as_slice(), &[truth.into(), long.into(), word.into()]].concat();
    let kind = truth.fn_type(&operands, false);
    let code =
        context.create_inline_asm(kind, code, CONSTRAINTS.to_owned(), true, false, None, false);
    let [slot, below, end, idle, site, condition, scale] =
        [slot, below, end, idle, site, condition, scale].map(Into::into);
    let arguments = [slot, below, end, idle, site, condition, events.into(), scale];
    let call = builder.build_indirect_call(kind, code, &arguments, "")?;
    for (name, value) in [("convergent", 0), ("nounwind", 0), ("memory", OWN_MEMORY)] {
        call.add_attribute(AttributeLoc::Function, attribute(context, name, value));
    }
    let taken = call.try_as_basic_value().basic().ok_or("the recorder returns nothing")?;
    builder.build_return(Some(&taken))?;
    Ok(function)
}

fn attribute(context: ContextRef<'_>, name: &str, value: u64) -> Attribute {
    context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value)
}
