//! `nvabi diff`: what changed between two locked tags.

use std::collections::BTreeSet;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, nearest};
use nvabi_pipeline::lock;
use nvabi_pipeline::model::{self, Facts};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_reports::diff::{self, Advice, Compared, Counts, Diff, Scope, Side};
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
    /// Where not everything was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Compared>,
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
    let scope = match args.all || args.only.is_some() {
        true => None,
        false => Some(compared(&family, from, to, &found)?),
    };
    let scope_text = scope.as_ref().map(diff::scope_text);
    match (context.json(), args.markdown) {
        (true, _) => {
            let advice = diff::advice(&found);
            context.print_json(&Printed { diff: &found, advice, scope })?;
        }
        (false, markdown) => {
            let text = if markdown { diff::markdown(&found) } else { diff::text(&found) };
            context.print(&text)?;
            if let Some(scope) = &scope_text {
                context.print(&format!("{scope}\n"))?;
            }
        }
    }
    let (verb, outcome) = match found.is_empty() {
        true => ("Same", Outcome::Same),
        false => ("Different", Outcome::Different),
    };
    context.status(verb, &diff::summary(&found));
    Ok(outcome)
}

/// What the specs' items leave out. It is counted where nothing was found: "no difference" would mislead
/// then, and otherwise counting would take most of the time.
fn compared(
    family: &Family,
    from: Side<'_>,
    to: Side<'_>,
    found: &Diff,
) -> Result<Compared, Report> {
    let items = diff::item_count(from, to);
    if !found.is_empty() {
        return Ok(Compared { items, elsewhere: None });
    }
    let tags = [&from.facts.tag, &to.facts.tag];
    let locked = lock::read_tags(&family.lock)?;
    let headers = tags.map(|tag| locked.iter().find(|l| l.tag == *tag).map(|l| &l.headers));
    if headers[0] == headers[1] {
        return Ok(Compared { items, elsewhere: Some(Counts::default()) });
    }
    let [a, b] = tags.map(|tag| lock::read_facts(&family.lock, tag));
    let (all_from, all_to) = both(a, b)?;
    let everything =
        diff::diff(Side { facts: &all_from, ..from }, Side { facts: &all_to, ..to }, Scope::All);
    Ok(Compared { items, elsewhere: Some(Counts::elsewhere(&everything, found)) })
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
