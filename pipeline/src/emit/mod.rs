//! Facts to Rust: `#[repr(C)]` types, constants, calls, and the table that the derive checks with.
//!
//! The one module that knows Rust tokens. `plan` decides what there is, `records` writes a layout,
//! `tables` what a program looks up; this file puts them into modules.

mod plan;
mod records;
mod tables;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

use crate::diagnostic::{Diagnostic, Report};
use crate::lock::{Fact, Lock};
use crate::spec::{ItemKind, Spec};

use plan::{Const, Plan};

/// How to emit.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// Path of the nvabi crate in the emitted code: `crate` in nvabi itself, else `::nvabi`.
    pub nvabi: &'a str,
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
}

/// The Rust source for the specs' drivers.
pub fn emit(lock: &Lock, specs: &[&Spec], options: Options<'_>) -> Result<String, Report> {
    let plan = plan::plan(lock, specs, options.full)?;
    let groups = groups(&plan);
    let mut text = String::from("// Generated from abi-specs by nvabi. Do not edit.\n");
    let nvabi: TokenStream = syn::parse_str(options.nvabi).map_err(internal)?;
    let _ = writeln!(text, "/// Definitions, each in the module of the tags that have it.");
    let _ = writeln!(text, "pub mod layouts {{");
    for group in &groups {
        let uses = quote! {
            #[allow(unused_imports)]
            use #nvabi as nvabi;
            #[allow(unused_imports)]
            use nvabi::check::{Field as F, Type as T};
        };
        let _ = writeln!(text, "/// {}\npub mod {} {{", group.doc, group.name);
        text.push_str(&pretty(uses)?);
        let defs =
            (group.defs.iter()).map(|def| records::definition(&plan, *def, &groups, options));
        text.push_str(&pretty(quote! { #(#defs)* })?);
        text.push_str(&pretty(records::traits(&plan, &group.defs))?);
        records::layouts(&mut text, &plan, &group.defs, &groups, options);
        for constant in &group.constants {
            push_constant(&mut text, &plan.constants[*constant]);
        }
        for (kind, calls) in &group.calls {
            let _ = writeln!(text, "/// {}\npub mod {} {{", section_doc(*kind), kind.section());
            text.push_str("#[allow(unused_imports)]\n");
            text.push_str(&pretty(quote! { use #nvabi as nvabi; })?);
            calls.iter().for_each(|call| tables::call(&mut text, &plan, *call, &groups));
            text.push_str("}\n");
        }
        text.push_str("}\n");
    }
    text.push_str("}\n");
    tables::lists(&mut text, &plan, &groups, options.nvabi);
    if !options.in_nvabi() {
        // The derive finds the module `check` beside the table.
        text.push_str(&pretty(quote! { pub use #nvabi::check; })?);
    }
    text.push_str(&pretty(views(&plan, &groups, &nvabi))?);
    tables::abi(&mut text, &plan, &groups, options);
    Ok(text)
}

fn internal(error: syn::Error) -> Report {
    Diagnostic::error("emit-internal", format!("the emitted code does not parse: {error}"))
        .help("this is a defect of nvabi: please report it with the spec and the tag")
        .into()
}

fn pretty(tokens: TokenStream) -> Result<String, Report> {
    Ok(prettyplease::unparse(&syn::parse2(tokens).map_err(internal)?))
}

/// Definitions, constants and calls that the same views have.
struct Group {
    name: Ident,
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
            name: format_ident!("unnamed"),
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
        let mut name = format!("v{}", first.replace(['.', '-'], "_"));
        for (i, (first, until)) in spans.iter().enumerate() {
            if i > 0 {
                let _ = write!(name, "_and_{}", first.replace(['.', '-'], "_"));
            }
            if let Some(until) = until {
                let _ = write!(name, "_until_{}", until.replace(['.', '-'], "_"));
            }
        }
        debug_assert!(taken.insert(name.clone()));
        group.name = Ident::new(&name, Span::call_site());
        let told: Vec<String> = spans
            .iter()
            .map(|(first, until)| match until {
                Some(until) => format!("from {first} until {until}"),
                None => format!("from {first} on"),
            })
            .collect();
        group.doc = told.join(", ");
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
fn views(plan: &Plan<'_>, groups: &[Group], nvabi: &TokenStream) -> TokenStream {
    let modules = plan.views.iter().enumerate().map(|(id, view)| {
        let name = format_ident!("v{}", view.first.ident());
        let tag = view.first.as_str();
        let doc = format!("The driver's interface as of {tag}.");
        let members: Vec<&Group> = groups.iter().filter(|g| g.views.contains(&id)).collect();
        let names = members.iter().filter(|g| !(g.defs.is_empty() && g.constants.is_empty()));
        let names = names.map(|group| &group.name);
        let sections = ItemKind::ALL.iter().filter_map(|kind| {
            let with = members.iter().filter(|group| group.calls.contains_key(kind));
            let names: Vec<_> = with.map(|group| &group.name).collect();
            let section = format_ident!("{}", kind.section());
            let (doc, list) = (section_doc(*kind), tables::list_name(*kind));
            (!names.is_empty()).then(|| {
                quote! {
                    #[doc = #doc]
                    pub mod #section {
                        #(pub use super::super::layouts::#names::#section::*;)*
                        /// Every call of this kind, in sorted parts.
                        pub static ALL: &[&[&#nvabi::call::Info]] =
                            &[#(super::super::calls::#names::#list),*];
                    }
                }
            })
        });
        quote! {
            #[doc = #doc]
            pub mod #name {
                #(pub use super::layouts::#names::*;)*
                #(#sections)*
            }
        }
    });
    let aliases = plan.drivers.iter().flat_map(|driver| {
        let aliases = driver.tags.iter().filter_map(|(tag, view)| {
            let target = &plan.views[*view].first;
            let (name, target) =
                (format_ident!("v{}", tag.ident()), format_ident!("v{}", target.ident()));
            let doc = format!("The driver's interface as of {tag}.");
            (name != target).then(|| quote! { #[doc = #doc] pub use #target as #name; })
        });
        let newest = driver.tags.last().map(|(tag, _)| {
            let name = format_ident!("r{}", driver.name.replace(['.', '-'], "_"));
            let target = format_ident!("v{}", tag.ident());
            let doc = format!("The interface of the newest locked tag of {}: {tag}.", driver.name);
            quote! { #[doc = #doc] pub use #target as #name; }
        });
        aliases.chain(newest).collect::<Vec<_>>()
    });
    quote! { #(#modules)* #(#aliases)* }
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

/// A constant is one line; there are too many of them to go through a pretty-printer.
fn push_constant(text: &mut String, constant: &Const) {
    let Const { name, fact, place, documented, .. } = constant;
    // Those that only `full` brings are ten times as many: their comments would cost more to
    // compile than the constants, and `nvabi show` tells the same.
    if *documented {
        let _ = writeln!(text, "/// {} ({})", place.source, place.since);
    }
    match fact {
        Fact::Constant(value) => {
            let (ty, value) = integer(*value);
            let _ = writeln!(text, "pub const {name}: {ty} = {value};");
        }
        Fact::BitRange(high, low) => {
            let _ = writeln!(
                text,
                "pub const {name}: nvabi::BitRange = nvabi::BitRange {{ high: {high}, low: {low} }};"
            );
        }
        _ => {}
    }
}

/// The Rust type and text of a C integer: `u32` where it fits, else what does.
fn integer(value: i128) -> (&'static str, String) {
    let text = if value < 10 { value.to_string() } else { format!("{value:#x}") };
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
fn ident(name: &str) -> Ident {
    if let "self" | "Self" | "super" | "crate" | "_" = name {
        return format_ident!("{name}_");
    }
    match KEYWORDS.binary_search(&name) {
        Ok(_) => Ident::new_raw(name, Span::call_site()),
        Err(_) => Ident::new(name, Span::call_site()),
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

/// The path of a definition from inside a group's module.
fn path(plan: &Plan<'_>, def: usize, groups: &[Group]) -> TokenStream {
    let group = groups.iter().find(|group| group.views == plan.defs[def].views);
    let name = ident(&plan.defs[def].ident);
    match group.map(|group| &group.name) {
        Some(group) => quote!(super::#group::#name),
        None => quote!(#name),
    }
}
