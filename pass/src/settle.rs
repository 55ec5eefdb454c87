//! What is left for the end of LLVM's optimisations, when functions are inlined and loops have their form.
//!
//! Until then the recorder's functions below are calls, of which LLVM knows what they depend on. A function into
//! which others were inlined has looked up its warp once for each of them: once is enough. And a recorded branch
//! takes its condition from the recorder: the code generator would compute it twice, once the other way round.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::module::{Linkage, Module};
use inkwell::values::{
    AsValueRef as _, BasicMetadataValueEnum, BasicValue as _, CallSiteValue, FunctionValue,
    InstructionOpcode, InstructionValue, IntValue,
};

use crate::{Failure, instrument, prepare, runtime, select};

/// Functions that are inlined here, and what they may do with memory: nothing that LLVM has to know of.
const LATE: [(&str, bool); 6] = [
    ("__nvabi_begin", false),
    ("__nvabi_slot", true),
    ("__nvabi_end", true),
    ("__nvabi_below", true),
    ("__nvabi_idle", true),
    ("__nvabi_branch", false),
];

/// Keeps calls of the recorder what they are until [`all`].
pub(crate) fn defer(module: &Module<'_>) {
    let context = module.get_context();
    let attribute =
        |name, value| context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value);
    let place = AttributeLoc::Function;
    for (name, pure) in LATE {
        let Some(function) = module.get_function(name) else { continue };
        function.remove_enum_attribute(place, Attribute::get_named_enum_kind_id("alwaysinline"));
        function.add_attribute(place, attribute("noinline", 0));
        function.add_attribute(place, attribute("nounwind", 0));
        // LLVM neither drops a function that another unit may bring in its own form nor looks into it.
        function.set_linkage(Linkage::WeakAny);
        if pure {
            function.add_attribute(place, attribute("willreturn", 0));
            function.add_attribute(place, attribute("memory", 0));
            function.remove_enum_attribute(place, Attribute::get_named_enum_kind_id("convergent"));
        } else {
            function.add_attribute(place, attribute("memory", runtime::OWN_MEMORY));
        }
    }
}

/// Settles a module of which calls were deferred; whether there was one.
pub(crate) fn all(module: &Module<'_>) -> Result<bool, Failure> {
    let late: Vec<_> = LATE.iter().filter_map(|(name, _)| module.get_function(name)).collect();
    let noinline = Attribute::get_named_enum_kind_id("noinline");
    let place = AttributeLoc::Function;
    if !late.iter().any(|function| function.get_enum_attribute(place, noinline).is_some()) {
        return Ok(false);
    }
    for function in select::defined(module).filter(|function| !late.contains(function)) {
        share_lookups(module, function)?;
        share_conditions(module, function);
    }
    let always = Attribute::get_named_enum_kind_id("alwaysinline");
    for function in &late {
        function.remove_enum_attribute(place, noinline);
        function.add_attribute(place, module.get_context().create_enum_attribute(always, 0));
        function.set_linkage(Linkage::Internal);
    }
    prepare::run(module, c"always-inline")?;
    for function in LATE.iter().filter_map(|(name, _)| module.get_function(name)) {
        if function.as_global_value().as_pointer_value().get_first_use().is_none() {
            // SAFETY: nothing uses it, and nobody here has it any more.
            unsafe { function.delete() };
        }
    }
    module.verify().map_err(|error| format!("the pass has a defect: {error}"))?;
    Ok(true)
}

fn calls<'ctx>(
    module: &Module<'ctx>,
    function: FunctionValue<'ctx>,
    name: &str,
) -> Vec<InstructionValue<'ctx>> {
    let Some(callee) = module.get_function(name) else { return Vec::new() };
    let called = |instruction: &InstructionValue<'ctx>| {
        instruction.get_opcode() == InstructionOpcode::Call
            && CallSiteValue::try_from(*instruction)
                .is_ok_and(|call| call.get_called_fn_value().is_some_and(|found| found == callee))
    };
    function.get_basic_block_iter().flat_map(BasicBlock::get_instructions).filter(called).collect()
}

/// Looks the warp up once, where the function begins.
fn share_lookups<'ctx>(
    module: &Module<'ctx>,
    function: FunctionValue<'ctx>,
) -> Result<(), Failure> {
    let of = |name| calls(module, function, name);
    let old = ["__nvabi_slot", "__nvabi_end", "__nvabi_below", "__nvabi_idle"].map(of);
    if old.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let builder = module.get_context().create_builder();
    let begin = of("__nvabi_begin").first().copied();
    let first = match begin {
        Some(begin) => begin.get_next_instruction(),
        None => instrument::raise_allocas(module.get_context(), function),
    };
    let Some(first) = first else { return Ok(()) };
    builder.position_before(&first);
    let call = |name: &str,
                arguments: &[BasicMetadataValueEnum<'ctx>]|
     -> Result<IntValue<'ctx>, Failure> {
        let callee = module.get_function(name).ok_or("the recorder is incomplete")?;
        instrument::call(&builder, callee, arguments)
    };
    let slot = match begin {
        Some(begin) => CallSiteValue::try_from(begin)
            .ok()
            .and_then(|call| call.try_as_basic_value().basic())
            .ok_or("the recorder returns nothing")?
            .into_int_value(),
        None => call("__nvabi_slot", &[])?,
    };
    let end = call("__nvabi_end", &[slot.into()])?;
    let below = call("__nvabi_below", &[end.into()])?;
    let idle = call("__nvabi_idle", &[])?;
    for (old, new) in old.iter().zip([slot, end, below, idle]) {
        let Some(new) = new.as_instruction() else { continue };
        for old in old {
            old.replace_all_uses_with(&new);
            old.erase_from_basic_block();
        }
    }
    for unused in [idle, below, end, slot] {
        let unused = unused
            .as_instruction()
            .filter(|one| Some(*one) != begin && one.get_first_use().is_none());
        if let Some(unused) = unused {
            unused.erase_from_basic_block();
        }
    }
    Ok(())
}

/// A branch takes the condition from its record.
fn share_conditions<'ctx>(module: &Module<'ctx>, function: FunctionValue<'ctx>) {
    for record in calls(module, function, "__nvabi_branch") {
        let end = record.get_parent().and_then(BasicBlock::get_terminator);
        let Some(end) = end.filter(|end| end.get_num_operands() == 3) else { continue };
        let value = |instruction: InstructionValue<'ctx>, at| {
            instruction.get_operand(at).and_then(|operand| operand.value())
        };
        let (Some(condition), Some(recorded)) = (value(end, 0), value(record, 5)) else { continue };
        let branches = end.get_opcode() == InstructionOpcode::Br;
        if branches && condition.as_value_ref() == recorded.as_value_ref() {
            if let Some(taken) = CallSiteValue::try_from(record)
                .ok()
                .and_then(|call| call.try_as_basic_value().basic())
            {
                end.set_operand(0, taken);
            }
        }
    }
}
