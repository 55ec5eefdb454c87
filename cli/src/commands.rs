//! Commands that answer from specs and lock alone.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap_complete::Shell;
use nvabi_pipeline::diagnostic::{Diagnostic, Report, nearest};
use nvabi_pipeline::known::display;
use nvabi_pipeline::lint as linting;
use nvabi_pipeline::lock;
use nvabi_pipeline::model::{self, Facts, Surface};
use nvabi_pipeline::spec::{Item, Spec};
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_reports::call::{self, CallInfo};
use nvabi_reports::ranges::{self, Abis, OneAt, RequestedName};
use nvabi_reports::{list, render};
use serde::Serialize;

use crate::Outcome;
use crate::args;
use crate::context::{Context, facts_of, spec_of, tag_or_newest};
use crate::ranges::histories;

pub(crate) fn lint(context: &Context<'_>, args: &args::Lint) -> Result<Outcome, Report> {
    let families = context.families()?;
    let specs = || families.iter().flat_map(|family| &family.specs);
    for driver in &args.drivers {
        if !specs().any(|spec| spec.driver == *driver) {
            let names: Vec<&str> = specs().map(|spec| spec.driver.as_str()).collect();
            let branch = driver.split('.').next().unwrap_or_default();
            let help = match names.contains(&branch) {
                true => format!("the spec of that tag is {branch}"),
                false => format!("there are specs for {}", names.join(", ")),
            };
            let message = format!("no spec for driver {driver}");
            return Err(Diagnostic::error("spec-no-driver", message).help(help).into());
        }
    }
    let mut findings = Report::default();
    let mut items = 0;
    for family in &families {
        let wanted = |spec: &&Spec| args.drivers.is_empty() || args.drivers.contains(&spec.driver);
        let wanted: Vec<&Spec> = family.specs.iter().filter(wanted).collect();
        if wanted.is_empty() {
            continue;
        }
        let (locked, edited) = lock::read(&family.lock)?;
        findings.diagnostics.extend(edited.diagnostics);
        for spec in wanted {
            items += spec.items.len();
            findings.diagnostics.extend(linting::lint(&locked, spec).diagnostics);
        }
    }
    if items == 0 {
        let message =
            format!("there is nothing to lint: the specs in {} name no calls", context.specs()?);
        return Err(Diagnostic::error("lint-no-items", message).into());
    }
    report(context, &findings, "lint", &format!("{items} items"))
}

/// Prints findings, and one summary line; the outcome says whether there were any.
pub(crate) fn report(
    context: &Context<'_>,
    findings: &Report,
    job: &str,
    what: &str,
) -> Result<Outcome, Report> {
    let count = findings.diagnostics.len();
    if context.json() {
        context.print_json(&findings.diagnostics)?;
    } else if count > 0 {
        context.find(findings)?;
    }
    match count {
        0 => context.status("Ok", &format!("{job}: {what}, nothing found")),
        _ => context.status("Found", &format!("{job}: {what}, {count} findings")),
    }
    Ok(if findings.has_errors() { Outcome::Different } else { Outcome::Same })
}

pub(crate) fn list(context: &Context<'_>, args: &args::List) -> Result<Outcome, Report> {
    let family = match &args.tag {
        Some(tag) => context.family_of(&[tag])?,
        None => context.family(None)?,
    };
    let tag = tag_or_newest(&family.lock, args.tag.as_ref())?;
    let facts = lock::read_facts(&family.lock, &tag)?;
    let spec = spec_of(&family.specs, &tag)?;
    let (listed, what) = match args.what {
        args::Listing::Ioctls => (list::ioctls(&facts, spec), "ioctls"),
        args::Listing::Commands => (list::calls(&facts, "command"), "commands"),
        args::Listing::Classes => (list::calls(&facts, "class"), "classes"),
    };
    match context.json() {
        true => context.print_json(&listed)?,
        false => context.print(&list::text(&listed))?,
    }
    context.status("Listed", &format!("{} of {}", list::summary(&listed, what), facts.tag));
    Ok(Outcome::Same)
}

pub(crate) fn show(context: &Context<'_>, args: &args::Show) -> Result<Outcome, Report> {
    let Shown { mut facts, names, calls, ranges, elsewhere, text } = shown(context, args)?;
    match context.json() {
        true => {
            facts.surfaces.values_mut().for_each(|surface| keep(surface, &names));
            facts.surfaces.retain(|_, surface| *surface != Surface::default());
            context.print_json(&Printed {
                facts: &facts,
                call_info: &calls,
                ranges: &ranges,
                at_other_tags: &elsewhere,
            })?;
        }
        false => context.print(&text)?,
    }
    context.status("Shown", &format!("as of {}", facts.tag));
    Ok(Outcome::Same)
}

/// What `show --json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    facts: &'a Facts,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    call_info: &'a [CallInfo],
    ranges: &'a [OneAt],
    /// Calls that have the number, which was asked for, at other tags.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    at_other_tags: &'a [String],
}

/// What there is of a name, or of the calls that have it as their number.
struct Shown {
    facts: Facts,
    names: BTreeSet<String>,
    calls: Vec<CallInfo>,
    ranges: Vec<OneAt>,
    /// Calls that have the number at other tags alone.
    elsewhere: Vec<String>,
    text: String,
}

fn shown(context: &Context<'_>, args: &args::Show) -> Result<Shown, Report> {
    let number = model::number(&args.name);
    let found = context.search(args.tag.as_ref(), |folder, tag| {
        let names = match number {
            Some(number) => numbered(context, folder, tag, number)?,
            None => BTreeSet::from([args.name.clone()]),
        };
        let wanted = names.iter().map(String::as_str).collect();
        let family = context.family_with(tag.family(), &wanted)?;
        let spec = spec_of(&family.specs, tag)?.clone();
        let requested: Vec<RequestedName> =
            names.iter().map(|name| RequestedName { name: name.clone(), place: None }).collect();
        let (locked, specs) = histories(family, &requested)?;
        let facts = facts_of(&locked, tag)?;
        // Constants may have the value at other tags, and some are no calls.
        let names = match number {
            Some(number) => list::numbered(&facts, &spec, number),
            None => names,
        };
        let mut text = rendered(&facts, &names);
        let mut calls = Vec::new();
        // A type is no call.
        let is_type =
            |name: &&String| facts.surfaces.values().any(|s| s.records.contains_key(*name));
        for name in names.iter().filter(|name| !is_type(name)) {
            let (found, more) = called(&spec, &facts, name)?;
            text.push_str(&more);
            calls.extend(found);
        }
        if text.is_empty() {
            return Ok(None);
        }
        let (requested, others): (Vec<RequestedName>, Vec<RequestedName>) =
            requested.into_iter().partition(|asked| names.contains(&asked.name));
        let elsewhere = match Abis::of_names(&locked, &specs, &others) {
            Ok(abis) => abis.calls_named().map(str::to_owned).collect(),
            Err(_) => Vec::new(),
        };
        if let (Some(number), false) = (number, elsewhere.is_empty()) {
            let names = elsewhere.join(", ");
            text.push_str(&format!(
                "\nat other tags {number:#x} is {names}: `nvabi ranges {number:#x}` tells where\n"
            ));
        }
        let abis = Abis::of_names(&locked, &specs, &requested);
        let ranges = abis.map(|abis| abis.each_at(tag)).unwrap_or_default();
        ranges.iter().for_each(|one| text.push_str(&format!("\n{}", ranges::one_at_text(one))));
        Ok(Some(Shown { facts, names, calls, ranges, elsewhere, text }))
    })?;
    found.or_else(|(folder, tag)| Err(why_not(context, args, &folder, &tag)?.into()))
}

/// Why a tag has nothing to show: other tags have it, or another driver, or nobody.
fn why_not(
    context: &Context<'_>,
    args: &args::Show,
    folder: &TextFolder,
    tag: &Tag,
) -> Result<Diagnostic, Report> {
    let name = &args.name;
    let asked = match &args.tag {
        Some(tag) => vec![tag.family().to_owned()],
        None => context.family_names()?,
    };
    if is_elsewhere(context, args, &asked)? {
        let message = format!("{tag} has nothing named `{name}`, other tags have");
        let help = format!("`nvabi ranges {name}` tells which; give one of them with `--tag`");
        return Ok(Diagnostic::error("show-unknown", message).help(help));
    }
    for family in context.all_family_names()?.into_iter().filter(|family| !asked.contains(family)) {
        if is_elsewhere(context, args, std::slice::from_ref(&family))? {
            let family = args::family_name(&family);
            let message = format!("{tag} has nothing named `{name}`; the {family} driver has");
            let help = format!("`nvabi show {name} --family {family}` shows it");
            return Ok(Diagnostic::error("show-unknown", message).help(help));
        }
    }
    Ok(unknown(&lock::read_facts(folder, tag)?, name))
}

/// Whether any locked tag of some families has what is asked for.
fn is_elsewhere(
    context: &Context<'_>,
    args: &args::Show,
    families: &[String],
) -> Result<bool, Report> {
    for family in families {
        let names: BTreeSet<String> = match model::number(&args.name) {
            Some(number) => {
                let family = context.family_named(family)?;
                let items = family.specs.iter().flat_map(|spec| &spec.items);
                let of_specs = items.filter(|item| item.number.map(u64::from) == Some(number));
                of_specs.map(|item| item.name.clone()).collect()
            }
            None => BTreeSet::from([args.name.clone()]),
        };
        if names.is_empty() {
            continue;
        }
        let wanted = names.iter().map(String::as_str).collect();
        let requested = names.iter().map(|name| RequestedName { name: name.clone(), place: None });
        let requested: Vec<RequestedName> = requested.collect();
        let (locked, specs) = histories(context.family_with(family, &wanted)?, &requested)?;
        if Abis::of_names(&locked, &specs, &requested).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The calls of a tag that have a number.
fn numbered(
    context: &Context<'_>,
    folder: &TextFolder,
    tag: &Tag,
    number: u64,
) -> Result<BTreeSet<String>, Report> {
    let spec = context.spec(tag)?;
    // The request of an escape is made of a constant and a size, and other ioctls have small numbers.
    let is_made = number <= 0xffff || number >> 8 & 0xff == u64::from(b'F');
    if is_made {
        let facts = lock::read_numbers(folder, tag, &spec, &display::SURFACES)?;
        return Ok(list::numbered(&facts, &spec, number));
    }
    // The others are values of constants, or the spec's own.
    let names = lock::names_of_value(folder, number.into())?;
    let of_spec = |item: &&Item| item.number.map(u64::from) == Some(number);
    let of_spec = spec.items_at(tag).filter(of_spec).map(|item| item.name.clone());
    Ok(names.into_iter().chain(of_spec).collect())
}

/// What is known of the calls of a name, as data and as text with the layouts of their parameters.
fn called(spec: &Spec, facts: &Facts, name: &str) -> Result<(Vec<CallInfo>, String), Report> {
    let Some(spec) = call::narrowed(spec, facts, name) else { return Ok(Default::default()) };
    let calls = call::calls(&spec, facts)?;
    let mut text = String::new();
    for found in &calls {
        text.push_str(&call::text(found));
        for params in found.forms.iter().filter_map(|form| form.params.as_deref()) {
            text.push_str(&render::item(facts, params));
        }
    }
    Ok((calls, text))
}

fn rendered(facts: &Facts, names: &BTreeSet<String>) -> String {
    let texts: Vec<String> = names.iter().map(|name| render::item(facts, name)).collect();
    texts.join("")
}

/// Leaves some names in a surface, the records that they are typedefs of and those inside, and enumerators in
/// their enums.
fn keep(surface: &mut Surface, names: &BTreeSet<String>) {
    let of_typedefs = names.iter().filter_map(|name| Some(&surface.aliases.get(name)?.ty));
    let records: BTreeSet<&String> = names.iter().chain(of_typedefs).collect();
    let outer = |name: &str| name.split_once("::").map_or(name, |(outer, _)| outer).to_owned();
    surface.records.retain(|name, _| records.contains(name) || records.contains(&outer(name)));
    surface.aliases.retain(|name, _| names.contains(name));
    surface.enums.retain(|name, found| {
        if !names.contains(name) {
            found.variants.retain(|variant, _| names.contains(variant));
        }
        !found.variants.is_empty()
    });
    surface.constants.retain(|name, _| names.contains(name));
    surface.bit_ranges.retain(|name, _| names.contains(name));
    surface.calls.retain(|name, _| names.contains(name));
}

fn unknown(facts: &Facts, name: &str) -> Diagnostic {
    let what = match model::number(name) {
        Some(_) => format!("{} has no call with the number {name}", facts.tag),
        None => format!("{} has nothing named `{name}`", facts.tag),
    };
    let mut diagnostic = Diagnostic::error("show-unknown", what);
    let is_identifier = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if model::number(name).is_none() && !name.is_empty() && name.chars().all(is_identifier) {
        let note = "a macro whose value is a pointer, a text or a fraction is not recorded";
        diagnostic = diagnostic.note(note);
    }
    match nearest(name, facts.names()) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic,
    }
}

pub(crate) fn completions(shell: Shell) -> Result<Outcome, Report> {
    let mut command = args::Args::command();
    clap_complete::generate(shell, &mut command, "nvabi", &mut std::io::stdout());
    Ok(Outcome::Same)
}
