//! `nvabi extract`: the facts of one tag, from its headers.

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::facts::{self, Cache, Options};
use nvabi_pipeline::model::Facts;

use super::source;
use crate::Outcome;
use crate::args;
use crate::context::{Context, spec_of};

pub(crate) fn extract(context: &Context<'_>, args: &args::Extract) -> Result<Outcome, Report> {
    let specs = context.family(Some(&args.tag))?.specs;
    let mut spec = spec_of(&specs, &args.tag)?.clone();
    if let Some(wanted) = &args.surface {
        let names: Vec<String> = spec.surfaces.iter().map(|s| s.name.clone()).collect();
        spec.surfaces.retain(|surface| surface.name == *wanted);
        if spec.surfaces.is_empty() {
            let message = format!("driver {} has no surface `{wanted}`", spec.driver);
            let help = format!("it has {}", names.join(", "));
            return Err(Diagnostic::error("spec-no-surface", message).help(help).into());
        }
    }
    if args.no_constants {
        // What calls take hangs on their numbers.
        spec.surfaces.iter_mut().for_each(|surface| surface.calls.clear());
    }
    let mut source = source(context)?;
    let clang = Clang::load()?;
    let units = facts::units(&mut source, &spec, &args.tag)?;
    let first = spec.targets.first().map_or("", String::as_str);
    let target = args.target.as_deref().unwrap_or(first);
    let options = Options { target, constants: !args.no_constants };
    let (facts, warnings) =
        facts::extract_units(&clang, &units, &args.tag, options, &Cache::default())?;
    context.complain(&warnings);
    match context.json() {
        true => context.print_json(&facts)?,
        false => context.print(&summary(&facts))?,
    }
    context.status("Extracted", &format!("{} for {target}", args.tag));
    Ok(Outcome::Same)
}

fn summary(facts: &Facts) -> String {
    let mut text = format!(
        "{:<10}{:>9}{:>7}{:>10}{:>11}{:>12}\n",
        "surface", "records", "enums", "typedefs", "constants", "bit ranges"
    );
    for (name, surface) in facts.surfaces.iter().filter(|(_, s)| s.calls.is_empty()) {
        text.push_str(&format!(
            "{name:<10}{:>9}{:>7}{:>10}{:>11}{:>12}\n",
            surface.records.len(),
            surface.enums.len(),
            surface.aliases.len(),
            surface.constants.len(),
            surface.bit_ranges.len()
        ));
    }
    for surface in facts.surfaces.values().filter(|surface| !surface.calls.is_empty()) {
        let count = |kind: &str| {
            surface.calls.values().filter(|call| call.takes.kind.word() == kind).count()
        };
        let (commands, classes) = (count("command"), count("class"));
        text.push_str(&format!("calls: {commands} commands, {classes} classes\n"));
    }
    text
}
