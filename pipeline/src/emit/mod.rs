//! Facts to Rust: `#[repr(C)]` types, constants, calls, and the table that the derive checks with.
//!
//! The one module that knows Rust tokens. `crate::plan` decides what there is, `records` writes a layout,
//! `tables` what a program looks up; this file puts them into modules.

mod drivers;
mod records;
mod tables;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::diagnostic::Report;
use crate::lock::{Fact, Lock};
use crate::model::hex;
use crate::spec::{ItemKind, Spec};
use crate::tag;

use crate::plan::{self, Const, Def, Driver, Plan};

/// How to emit.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Path of the nvabi crate in the emitted code: `crate` in nvabi itself, else `::nvabi`.
    pub nvabi: &'a str,
    /// What the drivers have in common, see `Spec::family`: it names the module in nvabi that the
    /// code is emitted into.
    pub family: &'a str,
    /// Everything the lock has, not only what the specs name and what that needs.
    pub full: bool,
    /// Derive zerocopy's traits where the layout allows.
    pub zerocopy: bool,
    /// Every driver that could have been enabled; the derive names them.
    pub known: &'a [String],
}

impl Options<'_> {
    /// Whether the code is emitted into nvabi itself.
    fn in_nvabi(&self) -> bool {
        self.nvabi == "crate"
    }

    /// The module of nvabi that the code is emitted into.
    fn module(&self) -> String {
        match self.family {
            "" => "abi".to_owned(),
            family => format!("{family}::abi"),
        }
    }
}

/// The Rust source for the specs' drivers.
pub fn emit(lock: &Lock, specs: &[&Spec], options: Options<'_>) -> Result<String, Report> {
    let complete: Vec<Spec> = match options.full {
        true => specs.iter().map(|spec| crate::known::with_all_calls(lock, spec)).collect(),
        false => Vec::new(),
    };
    let complete: Vec<&Spec> = complete.iter().collect();
    let specs = if options.full { complete.as_slice() } else { specs };
    let mut plan = plan::plan(lock, specs, options.full)?;
    let groups = groups(&plan);
    for group in &groups {
        group.defs.iter().for_each(|id| plan.defs[*id].module = group.name.to_string());
    }
    let mut text = String::from("// Generated from abi-specs by nvabi. Do not edit.\n");
    let nvabi = options.nvabi;
    let mut values = Values::new();
    let _ = writeln!(text, "/// Definitions, each in the module of the tags that have it.");
    let _ = writeln!(text, "pub mod layouts {{");
    for group in &groups {
        let _ = writeln!(
            text,
            "/// {}\npub mod {} {{\n#[allow(unused_imports)]\nuse {nvabi} as nvabi;\n\
             #[allow(unused_imports)]\nuse nvabi::check::{{Field as F, Type as T}};",
            group.doc, group.name
        );
        for def in &group.defs {
            records::definition(&mut text, &plan, *def, options);
        }
        records::traits(&mut text, &plan, &group.defs);
        records::layouts(&mut text, &plan, &group.defs, options);
        constants(&mut text, &plan, &group.constants, &mut values);
        if !group.calls.is_empty() {
            let views = tables::views(&plan, &group.views, "nvabi", "super::super::TABLE");
            let _ = writeln!(text, "const VIEWS: nvabi::call::Views = {views};");
        }
        for (kind, calls) in &group.calls {
            let _ = writeln!(
                text,
                "/// {}\npub mod {} {{\n#[allow(unused_imports)]\nuse {nvabi} as nvabi;",
                section_doc(*kind),
                kind.section()
            );
            calls.iter().for_each(|call| tables::call(&mut text, &plan, *call));
            text.push_str("}\n");
        }
        text.push_str("}\n");
    }
    text.push_str("}\n");
    push_values(&mut text, &values, nvabi);
    tables::lists(&mut text, &plan, &groups, nvabi);
    drivers::drivers(&mut text, &plan, options);
    if !options.in_nvabi() {
        // The derive finds the module `check` beside the table.
        let _ = writeln!(text, "pub use {nvabi}::check;");
    }
    views(&mut text, &plan, &groups, nvabi);
    tables::abi(&mut text, &plan, options);
    tables::substitutes(&mut text, specs, nvabi);
    if options.in_nvabi() && options.family.is_empty() {
        tables::statuses(&mut text, &plan, specs, nvabi);
    }
    Ok(text)
}

/// Definitions, constants and calls that the same views have.
struct Group {
    name: String,
    doc: String,
    views: BTreeSet<usize>,
    defs: Vec<usize>,
    constants: Vec<usize>,
    calls: BTreeMap<ItemKind, Vec<usize>>,
}

/// One group per set of views, named by its first tag.
fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let mut groups: BTreeMap<BTreeSet<usize>, Group> = BTreeMap::new();
    let mut put = |views: &BTreeSet<usize>, add: &mut dyn FnMut(&mut Group)| {
        let group = groups.entry(views.clone()).or_insert_with(|| Group {
            name: String::new(),
            doc: String::new(),
            views: views.clone(),
            defs: Vec::new(),
            constants: Vec::new(),
            calls: BTreeMap::new(),
        });
        add(group);
    };
    for (id, def) in plan.defs.iter().enumerate() {
        put(&def.views, &mut |group| group.defs.push(id));
    }
    for (id, constant) in plan.constants.iter().enumerate() {
        put(&constant.views, &mut |group| group.constants.push(id));
    }
    for (id, call) in plan.calls.iter().enumerate() {
        put(&call.views, &mut |group| group.calls.entry(call.item.kind).or_default().push(id));
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    let mut taken = BTreeSet::new();
    for group in &mut groups {
        let spans = spans(plan, &group.views);
        let first = spans.first().map_or("none", |(first, _)| first);
        let mut name = format!("v{}", tag::ident(first));
        for (i, (first, until)) in spans.iter().enumerate() {
            if i > 0 {
                let _ = write!(name, "_and_{}", tag::ident(first));
            }
            if let Some(until) = until {
                let _ = write!(name, "_until_{}", tag::ident(until));
            }
        }
        debug_assert!(taken.insert(name.clone()));
        group.name = name;
        let runs: Vec<String> = spans
            .iter()
            .map(|(first, until)| match until {
                Some(until) => format!("from {first} until {until}"),
                None => format!("from {first} on"),
            })
            .collect();
        group.doc = runs.join(", ");
        sort(plan, group);
    }
    groups.sort_by_key(|group| group.views.first().copied());
    groups
}

/// By name: the same facts print as the same bytes, whatever the order they were found in.
fn sort(plan: &Plan<'_>, group: &mut Group) {
    group.defs.sort_by_key(|id| &plan.defs[*id].ident);
    group.constants.sort_by_key(|id| &plan.constants[*id].name);
    for calls in group.calls.values_mut() {
        calls.sort_by_key(|id| (plan.calls[*id].number, &plan.calls[*id].item.name));
    }
}

/// The stretches of tags, over all drivers in order, that have one of the views:
/// the first tag of each and the first tag after it.
fn spans<'p>(plan: &'p Plan<'_>, views: &BTreeSet<usize>) -> Vec<(&'p str, Option<&'p str>)> {
    let mut spans: Vec<(&str, Option<&str>)> = Vec::new();
    let mut inside = false;
    for (tag, view) in plan.drivers.iter().flat_map(|driver| &driver.tags) {
        match (inside, views.contains(view)) {
            (false, true) => spans.push((tag.as_str(), None)),
            (true, false) => {
                if let Some(last) = spans.last_mut() {
                    last.1 = Some(tag.as_str());
                }
            }
            _ => {}
        }
        inside = views.contains(view);
    }
    spans
}

/// One module per view, one name per tag, and one per driver for its newest tag.
fn views(text: &mut String, plan: &Plan<'_>, groups: &[Group], nvabi: &str) {
    for (id, view) in plan.views.iter().enumerate() {
        let (name, tag) = (view.module(), view.first.as_str());
        let _ = writeln!(text, "/// The driver's interface as of {tag}.\npub mod {name} {{");
        let members: Vec<&Group> = groups.iter().filter(|g| g.views.contains(&id)).collect();
        for group in members.iter().filter(|g| !(g.defs.is_empty() && g.constants.is_empty())) {
            let _ = writeln!(text, "    pub use super::layouts::{}::*;", group.name);
        }
        let _ = writeln!(text, "    pub use super::drivers::{name} as View;");
        for kind in ItemKind::ALL {
            let with = members.iter().filter(|group| group.calls.contains_key(&kind));
            let names: Vec<_> = with.map(|group| &group.name).collect();
            if !names.is_empty() {
                section(text, kind, &names, &name.to_uppercase(), nvabi);
            }
        }
        text.push_str("}\n");
    }
    for driver in &plan.drivers {
        aliases(text, plan, driver);
    }
}

/// The calls of one kind in the module of a view.
fn section(text: &mut String, kind: ItemKind, groups: &[&String], view: &str, nvabi: &str) {
    let name = kind.section();
    let _ = writeln!(text, "    /// {}\n    pub mod {name} {{", section_doc(kind));
    for group in groups {
        let _ = writeln!(text, "        pub use super::super::layouts::{group}::{name}::*;");
    }
    let _ = writeln!(
        text,
        "        /// Every call of this kind, in sorted parts.\n        \
         pub static ALL: &[&[&{nvabi}::call::Info]] = super::super::calls::{view}.{name};\n    }}"
    );
}

/// The names of a driver's tags, and of its newest.
fn aliases(text: &mut String, plan: &Plan<'_>, driver: &Driver) {
    for (tag, view) in &driver.tags {
        let (name, target) = (format!("v{}", tag.ident()), plan.views[*view].module());
        if name != target {
            let _ = writeln!(
                text,
                "/// The driver's interface as of {tag}.\npub use {target} as {name};"
            );
        }
    }
    if let Some((tag, _)) = driver.tags.last() {
        let _ = writeln!(
            text,
            "/// The interface of the newest locked tag of {}: {tag}.\npub use v{} as r{};",
            driver.name,
            tag.ident(),
            tag::ident(&driver.name)
        );
    }
}

fn section_doc(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Frontend => "Ioctls of `/dev/nvidiactl` and `/dev/nvidia*`.",
        ItemKind::Uvm => "Ioctls of `/dev/nvidia-uvm`.",
        ItemKind::Control => "Commands of `NV_ESC_RM_CONTROL`.",
        ItemKind::Class => "Classes of `NV_ESC_RM_ALLOC`.",
        ItemKind::Ioctl => "Ioctls, by request.",
    }
}

/// Values of constants: by a name made of type and value, both of them as source.
type Values = BTreeMap<String, (&'static str, String)>;

/// The constants of a group.
///
/// Those that the spec names are items with a comment. Those that only `full` brings are twenty
/// times as many with few different values: each is another name of its value, which rustc takes in
/// a third of the time of an item. `nvabi show` tells where they come from.
fn constants(text: &mut String, plan: &Plan<'_>, constants: &[usize], values: &mut Values) {
    let mut names = String::new();
    for Const { name, fact, place, documented, .. } in
        constants.iter().map(|id| &plan.constants[*id])
    {
        let Some((ty, value)) = value(fact) else { continue };
        if *documented {
            let _ = writeln!(text, "/// {} ({})", place.source, place.since);
            let _ = writeln!(text, "pub const {name}: {ty} = {value};");
        } else {
            let key = value_name(fact);
            let _ = writeln!(names, "{key} as {name},");
            values.entry(key).or_insert((ty, value));
        }
    }
    if !names.is_empty() {
        let _ = writeln!(text, "pub use super::super::values::{{\n{names}}};");
    }
}

/// The values that constants are names of.
fn push_values(text: &mut String, values: &Values, nvabi: &str) {
    if values.is_empty() {
        return;
    }
    let _ = writeln!(text, "mod values {{\n#[allow(unused_imports)]\nuse {nvabi} as nvabi;");
    for (name, (ty, value)) in values {
        let _ = writeln!(text, "pub const {name}: {ty} = {value};");
    }
    text.push_str("}\n");
}

/// The Rust type and text of a constant's value.
fn value(fact: &Fact) -> Option<(&'static str, String)> {
    match fact {
        Fact::Constant(value) => Some(integer(*value)),
        Fact::BitRange(high, low) => {
            Some(("nvabi::BitRange", format!("nvabi::BitRange {{ high: {high}, low: {low} }}")))
        }
        _ => None,
    }
}

fn value_name(fact: &Fact) -> String {
    match fact {
        Fact::BitRange(high, low) => format!("BITS_{high}_{low}").replace('-', "MINUS"),
        Fact::Constant(value) if *value < 0 => format!("MINUS_{}", value.unsigned_abs()),
        Fact::Constant(value) => format!("VALUE_{value:X}"),
        _ => String::new(),
    }
}

/// The Rust type and text of a C integer: `u32` where it fits, else what does.
fn integer(value: i128) -> (&'static str, String) {
    let text = hex(value);
    let ty = if u32::try_from(value).is_ok() {
        "u32"
    } else if i32::try_from(value).is_ok() {
        "i32"
    } else if u64::try_from(value).is_ok() {
        "u64"
    } else {
        "i64"
    };
    (ty, text)
}

/// A name as an identifier: keywords become raw ones.
pub fn ident(name: &str) -> String {
    if let "self" | "Self" | "super" | "crate" | "_" = name {
        return format!("{name}_");
    }
    match KEYWORDS.binary_search(&name) {
        Ok(_) => format!("r#{name}"),
        Err(_) => name.to_owned(),
    }
}

/// Words that are no identifiers in Rust and may be names in C, sorted.
const KEYWORDS: [&str; 46] = [
    "abstract", "as", "async", "await", "become", "box", "const", "do", "dyn", "else", "enum",
    "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct",
    "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where",
    "while", "yield",
];

/// The path of a definition below `layouts`.
fn path(plan: &Plan<'_>, def: usize) -> String {
    let Def { module, ident: name, .. } = &plan.defs[def];
    format!("{module}::{}", ident(name))
}
