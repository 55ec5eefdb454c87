//! The device's half of the recorder, linked into the module it is called from.

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::ContextRef;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::{Linkage, Module};
use inkwell::types::BasicTypeEnum;
use inkwell::values::{
    BasicValueEnum, CallSiteValue, FunctionValue, GlobalValue, InstructionOpcode,
};

use crate::Failure;
use crate::branch;
use crate::options::Options;
use crate::sites::Sites;

static BITCODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/recorder.bc"));

/// What the recorder finds in the module: the descriptor of the buffer, the site table, and the hash of
/// the code.
pub(crate) const BUFFER: &str = "__nvabi_trace";
const SITES: &str = "__nvabi_sites";
const HASH: &str = "__nvabi_module_hash";
const UNITS: &str = "__nvabi_units";

const UNIT_SITES: u32 = nvabi_trace::abi::r2::NVABI_TRACE_UNIT_SITES;

/// Of NVPTX.
const GLOBAL: u16 = 1;

/// `memory(inaccessiblemem: readwrite)`: what the recorder reads and writes is nothing of the program's.
pub(crate) const OWN_MEMORY: u64 = 0b1100;

/// What instrumented code calls.
pub(crate) struct Runtime<'ctx> {
    pub(crate) begin: FunctionValue<'ctx>,
    pub(crate) slot: FunctionValue<'ctx>,
    pub(crate) end: FunctionValue<'ctx>,
    pub(crate) below: FunctionValue<'ctx>,
    pub(crate) idle: FunctionValue<'ctx>,
    pub(crate) scale: FunctionValue<'ctx>,
    pub(crate) finish: FunctionValue<'ctx>,
    pub(crate) branch: FunctionValue<'ctx>,
    pub(crate) mark: FunctionValue<'ctx>,
    pub(crate) value: FunctionValue<'ctx>,
    pub(crate) maybe_shared: FunctionValue<'ctx>,
    pub(crate) copied: FunctionValue<'ctx>,
    pub(crate) filled: FunctionValue<'ctx>,
    pub(crate) unit_base: FunctionValue<'ctx>,
    /// Of a module that is linked with others; filled in by `embed`.
    pub(crate) unit: Option<GlobalValue<'ctx>>,
}

impl<'ctx> Runtime<'ctx> {
    /// Puts the site table and the hash where the recorder finds them.
    pub(crate) fn embed(
        &self,
        module: &Module<'ctx>,
        sites: &Sites,
        hash: &[u8; 32],
        kernels: &[FunctionValue<'ctx>],
    ) -> Result<(), Failure> {
        let context = module.get_context();
        let table = sites.bytes();
        let size = u32::try_from(table.len())?;
        let global = constant(module, SITES, &table);
        let Some(unit) = self.unit else {
            constant(module, HASH, hash);
            // Nothing but the unit refers to the list.
            if let Some(units) = module.get_global(UNITS) {
                units.set_linkage(Linkage::Internal);
            }
            return Ok(());
        };
        if sites.count() > UNIT_SITES {
            return Err(format!(
                "more than {UNIT_SITES} sites in a unit that is linked with others"
            )
            .into());
        }
        global.set_linkage(Linkage::Internal);
        // An image of several units has no hash; each kernel has its unit's.
        for kernel in kernels {
            let name = format!("{HASH}_{}", kernel.get_name().to_string_lossy());
            // As the kernel: of templates there may be one in each unit.
            constant(module, &name, hash).set_linkage(kernel.get_linkage());
        }
        let generic = context.ptr_type(AddressSpace::default());
        let fields: [BasicValueEnum<'_>; 3] = [
            global.as_pointer_value().const_address_space_cast(generic).into(),
            context.i32_type().const_int(u64::from(size), false).into(),
            context.i32_type().const_zero().into(),
        ];
        unit.set_initializer(&context.const_struct(&fields, false));
        Ok(())
    }
}

/// Bytes in the device's memory.
fn constant<'ctx>(module: &Module<'ctx>, name: &str, bytes: &[u8]) -> GlobalValue<'ctx> {
    let bytes = module.get_context().const_string(bytes, false);
    let global = module.add_global(bytes.get_type(), Some(AddressSpace::from(GLOBAL)), name);
    global.set_initializer(&bytes);
    global.set_constant(true);
    global.set_alignment(8);
    global
}

fn unit_fields(context: ContextRef<'_>) -> [BasicTypeEnum<'_>; 3] {
    let generic = context.ptr_type(AddressSpace::default());
    [generic.into(), context.i32_type().into(), context.i32_type().into()]
}

/// Whether a module went through here already.
pub(crate) fn is_linked(module: &Module<'_>) -> bool {
    module.get_global(BUFFER).is_some()
}

pub(crate) fn link<'ctx>(
    module: &Module<'ctx>,
    options: &Options,
) -> Result<Runtime<'ctx>, Failure> {
    let context = module.get_context();
    let bitcode = MemoryBuffer::create_from_memory_range_copy(BITCODE, "recorder");
    let recorder = parse(&bitcode, context)?;
    recorder.set_triple(&module.get_triple());
    recorder.set_data_layout(&module.get_data_layout());
    let names: Vec<_> = recorder
        .get_functions()
        .filter(|function| function.count_basic_blocks() > 0)
        .map(|function| function.get_name().to_string_lossy().into_owned())
        .map(|name| (module.get_function(&name).is_some(), name))
        .collect();
    module.link_in_module(recorder).map_err(|error| error.to_string())?;
    for (called, name) in &names {
        if let Some(function) = module.get_function(name) {
            adapt(context, function, *called, options);
        }
    }
    if let Some(shared) = module.get_global("__nvabi_shared") {
        shared.set_linkage(if options.rdc { Linkage::WeakAny } else { Linkage::Internal });
    }
    let units = module.get_global(UNITS).ok_or("no list of units in the recorder")?;
    if options.rdc {
        units.set_linkage(Linkage::WeakAny);
        if let Some(buffer) = module.get_global(BUFFER) {
            buffer.set_linkage(Linkage::WeakAny);
        }
    }
    let unit = options.rdc.then(|| {
        let kind = context.struct_type(&unit_fields(context), false);
        let unit = module.add_global(kind, Some(AddressSpace::from(GLOBAL)), "__nvabi_unit_here");
        unit.set_linkage(Linkage::Internal);
        unit
    });
    let function =
        |name| module.get_function(name).ok_or_else(|| format!("no {name} in the recorder"));
    Ok(Runtime {
        begin: function("__nvabi_begin")?,
        slot: function("__nvabi_slot")?,
        end: function("__nvabi_end")?,
        below: function("__nvabi_below")?,
        idle: function("__nvabi_idle")?,
        scale: function("__nvabi_scale")?,
        finish: function("__nvabi_finish")?,
        branch: branch::define(module)?,
        mark: function("__nvabi_mark")?,
        value: function("__nvabi_value")?,
        maybe_shared: function("__nvabi_maybe_shared")?,
        copied: function("__nvabi_copied")?,
        filled: function("__nvabi_filled")?,
        unit_base: function("__nvabi_unit")?,
        unit,
    })
}

fn parse<'ctx>(
    bitcode: &MemoryBuffer<'_>,
    context: ContextRef<'ctx>,
) -> Result<Module<'ctx>, Failure> {
    Module::parse_bitcode_from_buffer(bitcode, context).map_err(|error| error.to_string().into())
}

/// Takes from a function what ties it to the machine and the unit it was compiled for.
/// `called` says that the program itself calls it.
fn adapt(context: ContextRef<'_>, function: FunctionValue<'_>, called: bool, options: &Options) {
    for attribute in ["target-cpu", "target-features"] {
        function.remove_string_attribute(AttributeLoc::Function, attribute);
    }
    match (called, options.rdc) {
        (false, _) => function.set_linkage(Linkage::Internal),
        (true, true) => function.set_linkage(Linkage::WeakODR),
        (true, false) => {}
    }
    let memory = Attribute::get_named_enum_kind_id("memory");
    let memory = context.create_enum_attribute(memory, OWN_MEMORY);
    let calls = function.get_basic_block_iter().flat_map(|block| block.get_instructions());
    for instruction in calls.filter(|call| call.get_opcode() == InstructionOpcode::Call) {
        let Ok(call) = CallSiteValue::try_from(instruction) else { continue };
        let text = instruction.to_string();
        if text.contains("asm sideeffect") && !text.contains("~{memory}") {
            call.add_attribute(AttributeLoc::Function, memory);
        }
    }
}
