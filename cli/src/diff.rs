//! `nvabi diff`: what changed between two locked tags.

use std::collections::BTreeSet;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, nearest};
use nvabi_pipeline::lock;
use nvabi_pipeline::model::{self, Facts};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_reports::diff::{self, Advice, Diff, Scope, Side};
use nvabi_reports::list;
use serde::Serialize;

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family, both, facts_of, spec_of};

/// What `--json` prints: the changes, and what follows from them.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    diff: &'a Diff,
    advice: Vec<Advice>,
}

pub(crate) fn diff(context: &Context<'_>, args: &args::Diff) -> Result<Outcome, Report> {
    let family = context.family_of(&[&args.from, &args.to])?;
    if args.to.family() != family.name {
        let message = format!("{} and {} are of different drivers", args.from, args.to);
        return Err(Diagnostic::error("diff-families", message)
            .help("`nvabi diff` compares two tags of one family")
            .into());
    }
    let specs = &family.specs;
    let (from, to) = facts(args, &family)?;
    let from = Side { facts: &from, spec: spec_of(specs, &from.tag)? };
    let to = Side { facts: &to, spec: spec_of(specs, &to.tag)? };
    let found = match &args.only {
        Some(name) => diff::diff(from, to, Scope::All).only(&called(name, from, to)?),
        None if args.all => diff::diff(from, to, Scope::All),
        None => diff::diff(from, to, Scope::Items),
    };
    match (context.json(), args.markdown) {
        (true, _) => context.print_json(&Printed { diff: &found, advice: diff::advice(&found) })?,
        (false, true) => context.print(&diff::markdown(&found))?,
        (false, false) => context.print(&diff::text(&found))?,
    }
    if found.is_empty() {
        context.status("Same", &diff::summary(&found));
        return Ok(Outcome::Same);
    }
    context.status("Different", &diff::summary(&found));
    Ok(Outcome::Different)
}

/// What somebody asks for by name: "no difference" is no answer where there is nothing.
fn called<'a>(name: &str, from: Side<'a>, to: Side<'a>) -> Result<BTreeSet<&'a str>, Report> {
    let number = model::number(name);
    let of = |side: Side<'a>| match number {
        Some(number) => {
            let names = list::numbered(side.facts, side.spec, number);
            names.iter().flat_map(|name| side.called(name)).collect()
        }
        None => side.called(name),
    };
    let called: BTreeSet<&str> = of(from).union(&of(to)).copied().collect();
    if !called.is_empty() {
        return Ok(called);
    }
    let (a, b) = (&from.facts.tag, &to.facts.tag);
    let message = match number {
        Some(_) => format!("neither {a} nor {b} has a call with the number {name}"),
        None => format!("neither {a} nor {b} has anything named `{name}`"),
    };
    let unknown = Diagnostic::error("diff-unknown", message);
    Err(match nearest(name, from.names().chain(to.names())) {
        Some(near) => unknown.help(format!("did you mean `{near}`?")),
        None => unknown,
    }
    .into())
}

/// The facts of both tags: all of them, or what the items of their specs need. A name is looked for
/// among all.
fn facts(args: &args::Diff, family: &Family) -> Result<(Facts, Facts), Report> {
    let Family { specs, lock: folder, .. } = family;
    if !args.all && args.only.is_none() {
        return facts_of_items(folder, specs, &args.from, &args.to);
    }
    both(lock::read_facts(folder, &args.from), lock::read_facts(folder, &args.to))
}

/// Of the facts of both tags, what the items of their specs need.
pub(crate) fn facts_of_items(
    folder: &TextFolder,
    specs: &[Spec],
    from: &Tag,
    to: &Tag,
) -> Result<(Facts, Facts), Report> {
    let specs = &[spec_of(specs, from)?, spec_of(specs, to)?];
    let commands = diff::commands_beside(specs);
    let constants: Vec<&str> = commands.iter().map(String::as_str).collect();
    let part = lock::Part { specs, constants: &constants, lines: true };
    let locked = lock::read_part(folder, part)?;
    both(facts_of(&locked, from), facts_of(&locked, to))
}
