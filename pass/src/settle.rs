//! What is left for the end of LLVM's optimisations, when functions are inlined and loops have their form.
//!
//! Until then the recorder's functions below are calls, of which LLVM knows what they depend on. A function into
//! which others were inlined has looked up its warp once for each of them: once is enough. And a recorded branch
//! takes its condition from the recorder: the code generator would compute it twice, once the other way round.

use inkwell::IntPredicate;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::llvm_sys::core::{LLVMGetSuccessor, LLVMSetSuccessor};
use inkwell::module::{Linkage, Module};
use inkwell::values::{
    AsValueRef as _, BasicMetadataValueEnum, BasicValue as _, BasicValueEnum, CallSiteValue,
    FunctionValue, InstructionOpcode, InstructionValue, IntValue,
};

use crate::{Failure, instrument, prepare, runtime, select};

/// Functions that are inlined here, and what they may do with memory: nothing that LLVM has to know of.
const LATE: [(&str, bool); 7] = [
    ("__nvabi_begin", false),
    ("__nvabi_slot", true),
    ("__nvabi_end", true),
    ("__nvabi_below", true),
    ("__nvabi_idle", true),
    ("__nvabi_scale", true),
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
        share_conditions(module, function)?;
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
    let old =
        ["__nvabi_slot", "__nvabi_end", "__nvabi_below", "__nvabi_idle", "__nvabi_scale"].map(of);
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
    let scale = call("__nvabi_scale", &[end.into()])?;
    for (old, new) in old.iter().zip([slot, end, below, idle, scale]) {
        let Some(new) = new.as_instruction() else { continue };
        for old in old {
            old.replace_all_uses_with(&new);
            old.erase_from_basic_block();
        }
    }
    for unused in [scale, idle, below, end, slot] {
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
fn share_conditions<'ctx>(
    module: &Module<'ctx>,
    function: FunctionValue<'ctx>,
) -> Result<(), Failure> {
    let builder = module.get_context().create_builder();
    let mark = |of: InstructionValue<'ctx>| {
        of.get_metadata(module.get_context().get_kind_id(instrument::SITE))
            .map(|mark| mark.as_value_ref())
    };
    for record in calls(module, function, "__nvabi_branch") {
        let block = record.get_parent();
        let end = block.and_then(BasicBlock::get_terminator);
        let end = end
            .filter(|end| end.get_opcode() == InstructionOpcode::Br && end.get_num_operands() == 3);
        let Some(end) = end else { continue };
        let (Some(condition), Some(recorded)) = (value(end, 0), value(record, CONDITION)) else {
            continue;
        };
        if condition != recorded {
            let marked = mark(end).is_some() && mark(end) == mark(record);
            let Some(count) = count_of(recorded, condition).filter(|_| marked) else { continue };
            builder.position_before(&record);
            let test = builder.build_int_compare(count.predicate, count.at, count.last, "")?;
            record.set_operand(CONDITION, test);
            if count.is_inverted {
                swap_successors(end);
            }
        }
        let taken =
            CallSiteValue::try_from(record).ok().and_then(|call| call.try_as_basic_value().basic());
        end.set_operand(0, taken.ok_or("the recorder returns nothing")?);
    }
    Ok(())
}

/// Of a record's arguments.
const CONDITION: u32 = 6;

fn value<'ctx>(instruction: InstructionValue<'ctx>, at: u32) -> Option<BasicValueEnum<'ctx>> {
    instruction.get_operand(at).and_then(|operand| operand.value())
}

/// The test by which a loop is left that counts up to a last number.
struct Count<'ctx> {
    predicate: IntPredicate,
    at: IntValue<'ctx>,
    last: IntValue<'ctx>,
    /// The branch has the opposite.
    is_inverted: bool,
}

/// Of numbers that are counted, LLVM puts a test for equality in the place of one for order, as it was recorded.
fn count_of<'ctx>(
    recorded: BasicValueEnum<'ctx>,
    condition: BasicValueEnum<'ctx>,
) -> Option<Count<'ctx>> {
    use IntPredicate::{EQ, NE, SGE, SLT, UGE, ULT};
    let (recorded, condition) =
        (recorded.as_instruction_value()?, condition.as_instruction_value()?);
    let predicate = match recorded.get_icmp_predicate()? {
        ULT | SLT => NE,
        UGE | SGE => EQ,
        _ => return None,
    };
    let found = condition.get_icmp_predicate().filter(|found| matches!(found, EQ | NE))?;
    let same = |at| value(recorded, at).filter(|number| value(condition, at) == Some(*number));
    let number = |at| match same(at) {
        Some(BasicValueEnum::IntValue(number)) => Some(number),
        _ => None,
    };
    Some(Count { predicate, at: number(0)?, last: number(1)?, is_inverted: found != predicate })
}

fn swap_successors(branch: InstructionValue<'_>) {
    let branch = branch.as_value_ref();
    // SAFETY: `branch` is a live branch of two ways.
    unsafe {
        let (first, second) = (LLVMGetSuccessor(branch, 0), LLVMGetSuccessor(branch, 1));
        LLVMSetSuccessor(branch, 0, second);
        LLVMSetSuccessor(branch, 1, first);
    }
}
