//! The choice between drivers at run time: a table of all tags, a trait that every view implements,
//! and the way from the one to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Options, ident, path};
use crate::lock::Fact;
use crate::model::RecordKind;
use crate::plan::types as ctypes;
use crate::plan::{Def, DefId, Param, Plan};

/// Definitions of one name, by view.
type ByView = BTreeMap<usize, DefId>;

/// The associated types of the trait, by their Rust names.
struct Types<'p> {
    /// One definition that all views have.
    shared: BTreeMap<&'p str, DefId>,
    /// Different from view to view, or not in all.
    others: BTreeMap<&'p str, ByView>,
}

pub(super) fn drivers(text: &mut String, plan: &Plan<'_>, options: Options<'_>) {
    let nvabi = options.nvabi;
    let types = types(plan);
    let _ = writeln!(
        text,
        "/// The drivers of this build as types, so that code is written once for all of them.\n\
         pub mod drivers {{\n#[allow(unused_imports)]\nuse {nvabi} as nvabi;"
    );
    traits(text, plan, &types);
    records(text, plan);
    for view in 0..plan.views.len() {
        self::view(text, plan, &types, view);
    }
    dispatch(text, plan, &types);
    text.push_str("}\n");
    table(text, plan, options);
    if options.in_nvabi() {
        with_driver(text, plan, options);
    }
}

/// What the specs name themselves: the parameters, and what they point to.
fn types<'p>(plan: &'p Plan<'_>) -> Types<'p> {
    let (mut shared, mut others) = (BTreeMap::new(), BTreeMap::new());
    let named = plan.defs.iter().enumerate();
    for (id, def) in named.filter(|(id, def)| def.named && record(plan, *id).is_some()) {
        if def.views.len() == plan.views.len() {
            shared.insert(def.ident.as_str(), id);
        } else {
            let by_view: &mut ByView = others.entry(def.ident.as_str()).or_default();
            by_view.extend(def.views.iter().map(|view| (*view, id)));
        }
    }
    Types { shared, others }
}

/// The record that a definition is, or is a typedef of.
fn record(plan: &Plan<'_>, id: DefId) -> Option<DefId> {
    let Def { name, fact, uses, .. } = &plan.defs[id];
    match &**fact {
        Fact::Record { .. } => (!ctypes::is_uuid(name)).then_some(id),
        Fact::Alias { ty, .. } => record(plan, *uses.get(ty)?),
        _ => None,
    }
}

/// The trait in two parts: what no view has otherwise is said once, in the second.
fn traits(text: &mut String, plan: &Plan<'_>, types: &Types<'_>) {
    text.push_str(
        "/// A driver's interface: what the tags of one branch that agree in everything have in common.\n\
         ///\n\
         /// Its types are the parameters of its calls. One that this driver has not, while another of\n\
         /// this build has it, is [`Absent`](nvabi::driver::Absent).\n\
         pub trait Driver: Shared + ::core::marker::Sized + 'static {\n\
         /// The tags, in order.\n\
         const TAGS: &'static [&'static str];\n\
         /// The branch, such as `550`.\n\
         const BRANCH: &'static str;\n\
         /// What is known of the calls.\n\
         const CALLS: &'static nvabi::driver::Calls;\n",
    );
    let bound = |ids: &[DefId]| match ids
        .iter()
        .filter_map(|id| record(plan, *id))
        .all(|id| is_plain(plan, id))
    {
        true => "PlainRecord",
        false => "Record",
    };
    for (name, by_view) in &types.others {
        let ids: Vec<DefId> = by_view.values().copied().collect();
        let _ = writeln!(text, "type {}: nvabi::driver::{};", ident(name), bound(&ids));
    }
    text.push_str(
        "}\n/// The part of [`Driver`] that is the same for all drivers of this build.\n\
         pub trait Shared {\n",
    );
    for (name, id) in &types.shared {
        let _ = writeln!(text, "type {}: nvabi::driver::{};", ident(name), bound(&[*id]));
    }
    text.push_str(
        "}\n/// Something to be done for a driver that is known at run time only.\n\
         pub trait Visitor {\n\
         /// What comes of it.\n\
         type Output;\n\
         /// Does it for the driver `D`.\n\
         fn visit<D: Driver>(self) -> Self::Output;\n}\n",
    );
}

/// Says once for every record of the trait, and for the parameters of all other calls, that it is one.
fn records(text: &mut String, plan: &Plan<'_>) {
    let named = (0..plan.defs.len()).filter(|id| plan.defs[*id].named);
    let params = plan.calls.iter().flat_map(|call| &call.params).filter_map(|(_, param)| {
        let Param::Def(id) = param else { return None };
        Some(*id)
    });
    let records: BTreeSet<DefId> = named.chain(params).filter_map(|id| record(plan, id)).collect();
    // The macros stand in the emitted code, not in nvabi: a crate that forbids unsafe code cannot have
    // them make a record of any type.
    text.push_str(
        "macro_rules! parameters {\n($($name:path),* $(,)?) => {$(\n\
         // SAFETY: an emitted record is made of integers, and of bytes where C has padding, as a\n\
         // constant beside each compares with `LAYOUT`.\n\
         unsafe impl nvabi::driver::Record for $name {\n\
         const LAYOUT: &'static nvabi::check::Layout = <$name>::LAYOUT;\n}\n)*};\n}\n\
         macro_rules! plain {\n($($name:path),* $(,)?) => {$(\n\
         // SAFETY: in its layout every member of a union is as large as the union.\n\
         unsafe impl nvabi::driver::PlainRecord for $name {}\n)*};\n}\n",
    );
    let plain = records.iter().copied().filter(|id| is_plain(plan, *id));
    for (list, ids) in
        [("parameters", records.iter().copied().collect()), ("plain", plain.collect::<Vec<_>>())]
    {
        let _ = write!(text, "{list}!(");
        for id in ids {
            let _ = write!(text, "super::layouts::{}, ", path(plan, id));
        }
        text.push_str(");\n");
    }
}

/// Whether every byte of a record is initialised in every value: a union in it that is made of a member which is
/// smaller leaves the rest as it was.
fn is_plain(plan: &Plan<'_>, id: DefId) -> bool {
    let Def { fact, uses, .. } = &plan.defs[id];
    let covers = match &**fact {
        Fact::Record { kind: RecordKind::Union, size, fields, .. } => {
            fields.iter().all(|field| field.size == *size && field.bits.is_none())
        }
        _ => true,
    };
    covers && uses.values().all(|id| is_plain(plan, *id))
}

/// The type that stands for a view.
fn view(text: &mut String, plan: &Plan<'_>, types: &Types<'_>, view: usize) {
    let name = plan.views[view].module();
    let (branch, tags) = plan.tags(view);
    let versions = match tags.as_slice() {
        [only] => (*only).to_owned(),
        [first, .., last] => format!("{} tags from {first} to {last}", tags.len()),
        [] => String::new(),
    };
    let _ = writeln!(
        text,
        "/// The interface of {versions}.\npub enum {name} {{}}\nimpl Driver for {name} {{\n\
         const TAGS: &'static [&'static str] = &{tags:?};\n\
         const BRANCH: &'static str = {branch:?};\n\
         const CALLS: &'static nvabi::driver::Calls = &super::calls::{};",
        name.to_uppercase()
    );
    for (name, by_view) in &types.others {
        let _ = match by_view.get(&view) {
            Some(id) => {
                writeln!(text, "type {} = super::layouts::{};", ident(name), path(plan, *id))
            }
            None => writeln!(text, "type {} = nvabi::driver::Absent;", ident(name)),
        };
    }
    text.push_str("}\n");
}

/// From the number of a view to its type.
fn dispatch(text: &mut String, plan: &Plan<'_>, types: &Types<'_>) {
    text.push_str("impl<D: Driver> Shared for D {\n");
    for (name, id) in &types.shared {
        let _ = writeln!(text, "type {} = super::layouts::{};", ident(name), path(plan, *id));
    }
    text.push_str("}\n");
    let Some((last, views)) = plan.views.split_last() else { return };
    text.push_str(
        "/// Does something for a driver that is known at run time only: one of this table's, not of\n\
         /// another crate's.\n\
         pub fn visit<V: Visitor>(driver: &nvabi::driver::AnyDriver, visitor: V) -> V::Output {\n\
         match driver.view() {\n",
    );
    for (number, view) in views.iter().enumerate() {
        let _ = writeln!(text, "{number} => visitor.visit::<{}>(),", view.module());
    }
    let _ = writeln!(text, "_ => visitor.visit::<{}>(),\n}}\n}}", last.module());
}

/// Every tag, in order.
fn table(text: &mut String, plan: &Plan<'_>, options: Options<'_>) {
    let nvabi = options.nvabi;
    let _ = writeln!(
        text,
        "/// Tells the drivers below from those of another crate.\n\
         pub static TABLE: {nvabi}::driver::Table = {nvabi}::driver::Table::new();\n\
         /// Every driver of this build, to choose from at run time.\n\
         pub static DRIVERS: {nvabi}::driver::Drivers = {{\n\
         #[allow(unused_imports)] use {nvabi}::driver::AnyDriver as A;\n\
         {nvabi}::driver::Drivers::new(&ABI, &["
    );
    for (number, driver) in plan.drivers.iter().enumerate() {
        for (index, (_, view)) in driver.tags.iter().enumerate() {
            let calls = plan.views[*view].module().to_uppercase();
            let _ =
                writeln!(text, "A::new(&ABI, &TABLE, {number}, {index}, {view}, &calls::{calls}),");
        }
    }
    text.push_str("])\n};\n");
}

/// The same as `visit` with a piece of code for the visitor, which then sees the fields of the
/// driver's types.
fn with_driver(text: &mut String, plan: &Plan<'_>, options: Options<'_>) {
    let Some((last, views)) = plan.views.split_last() else { return };
    let module = options.module();
    let name = match options.family {
        "" => "with_driver".to_owned(),
        family => format!("with_{family}"),
    };
    let _ = writeln!(
        text,
        "/// Runs code for a driver that is known at run time only, with the module of that driver.\n\
         ///\n\
         /// `{name}!(driver, abi => expression)`: the expression is compiled once for every\n\
         /// interface of this build, with `abi` as the name of its module in\n\
         /// [`{module}`](crate::{module}), so all of them must have what it names.\n\
         #[macro_export]\nmacro_rules! {name} {{\n\
         ($driver:expr, $abi:ident => $code:expr) => {{\n\
         match $crate::driver::AnyDriver::view($driver) {{",
    );
    let arms = (views.iter().enumerate().map(|(number, view)| (number.to_string(), view)))
        .chain([("_".to_owned(), last)]);
    for (pattern, view) in arms {
        let _ = writeln!(
            text,
            "{pattern} => {{ #[allow(unused_imports)] use $crate::{module}::{} as $abi; $code }}",
            view.module()
        );
    }
    text.push_str("}\n};\n}\n");
}
