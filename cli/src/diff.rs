//! `nvabi diff`: what changed between two locked tags.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, nearest};
use nvabi_pipeline::known::display;
use nvabi_pipeline::model::{self, Facts};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_pipeline::{files, globs, lock};
use nvabi_reports::diff::{self, Advice, Asked, Compared, Counts, Diff, Scope, Side};
use nvabi_reports::list;
use nvabi_reports::ranges::{Abis, RequestedName};
use serde::Serialize;

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family, spec_of};
use crate::{names, ranges};

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
    let requested = requested(context, args)?;
    // They are hundreds of thousands of pieces, and the command ends soon: nobody waits until each is given back.
    let facts = ManuallyDrop::new(facts(args, requested.as_ref(), &family)?);
    let [from, to] = &*facts;
    let from = Side { facts: from, spec: spec_of(specs, &from.tag)? };
    let to = Side { facts: to, spec: spec_of(specs, &to.tag)? };
    let (found, scope) = match (&requested, &args.only) {
        (Some(requested), _) => {
            let (found, scope) = of_names(context, &family, requested, from, to)?;
            (found, Some(scope))
        }
        (None, Some(name)) => {
            let called = called(&family, name, from, to)?;
            let (found, elsewhere) = diff::diff_of(from, to, &called);
            let (of, elsewhere) = (Some(Asked::For(name.clone())), Some(elsewhere));
            (found, Some(Compared { items: 1, of, absent: Vec::new(), elsewhere }))
        }
        (None, None) if args.all => (diff::diff(from, to, Scope::All), None),
        (None, None) => {
            let found = diff::diff(from, to, Scope::Items);
            let scope = compared(&family, from, to, &found)?;
            (found, Some(scope))
        }
    };
    let summary = match &scope {
        Some(scope) => diff::summary_of(&found, scope),
        None => diff::summary(&found),
    };
    print(context, args, &found, scope)?;
    let (verb, outcome) = match found.is_empty() {
        true => ("Same", Outcome::Same),
        false => ("Different", Outcome::Different),
    };
    context.status(verb, &summary);
    Ok(outcome)
}

fn print(
    context: &Context<'_>,
    args: &args::Diff,
    found: &Diff,
    scope: Option<Compared>,
) -> Result<(), Report> {
    if let Some(file) = &args.html {
        let page = diff::html(found, scope.as_ref());
        files::write(file, &page).map_err(|error| {
            let message = format!("cannot write {}: {error}", file.display());
            Diagnostic::error("diff-write", message)
        })?;
        context.status("Wrote", &file.display().to_string());
        return Ok(());
    }
    if context.json() {
        return context.print_json(&Printed { diff: found, advice: diff::advice(found), scope });
    }
    context.print(&if args.markdown { diff::markdown(found) } else { diff::text(found) })?;
    match &scope {
        // Behind a list it is a paragraph of its own.
        Some(scope) if found.is_empty() => context.print(&format!("{}\n", diff::scope_text(scope))),
        Some(scope) => context.print(&format!("\n{}\n", diff::scope_text(scope))),
        None => Ok(()),
    }
}

/// Names of somebody's own.
struct Requested {
    /// What they are of.
    of: String,
    names: Vec<RequestedName>,
    /// Whether some may be none of the driver's: a package has types of its own.
    foreign: bool,
}

fn requested(context: &Context<'_>, args: &args::Diff) -> Result<Option<Requested>, Report> {
    let (path, names) = match (&args.krate, &args.go, &args.items) {
        (Some(folder), ..) => (folder, names::of_crate(context, folder)?),
        (None, Some(folder), _) => (folder, names::of_go(folder)?),
        (None, None, Some(file)) => (file, names::of_file(file)?),
        (None, None, None) => return Ok(None),
    };
    let of = path.display().to_string();
    Ok(Some(Requested { of, names, foreign: args.go.is_some() }))
}

/// What concerns the names that somebody asked for.
fn of_names(
    context: &Context<'_>,
    family: &Family,
    requested: &Requested,
    from: Side<'_>,
    to: Side<'_>,
) -> Result<(Diff, Compared), Report> {
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let (mut present, mut absent) = (BTreeSet::new(), Vec::new());
    for asked in &requested.names {
        let name = asked.name.as_str();
        let called: BTreeSet<&str> = match name.contains('*') {
            true => from.names().chain(to.names()).filter(|n| globs::fits(name, n)).collect(),
            false => from.called(name).union(&to.called(name)).copied().collect(),
        };
        match (called.is_empty(), name.contains('*')) {
            (true, _) => absent.push(asked.clone()),
            (false, true) => present.extend(&called),
            (false, false) => _ = present.insert(name),
        }
        wanted.extend(called);
    }
    let absent = absent_names(context, family, requested, absent)?;
    if present.is_empty() && absent.is_empty() {
        let message = format!("{} names nothing of the driver's", requested.of);
        return Err(Diagnostic::error("diff-no-names", message).into());
    }
    let (found, elsewhere) = diff::diff_of(from, to, &wanted);
    let (items, of) = (present.len() + absent.len(), Some(Asked::In(requested.of.clone())));
    Ok((found, Compared { items, of, absent, elsewhere: Some(elsewhere) }))
}

/// The names that some other tag has; complains of those that no tag of any driver has, unless they may be
/// somebody's own.
fn absent_names(
    context: &Context<'_>,
    family: &Family,
    requested: &Requested,
    absent: Vec<RequestedName>,
) -> Result<Vec<String>, Report> {
    let missing = missing(context, &family.name, &absent)?;
    let is_missing = |asked: &RequestedName| missing.iter().any(|other| other.name == asked.name);
    let known: BTreeSet<&str> =
        absent.iter().filter(|asked| !is_missing(asked)).map(|asked| asked.name.as_str()).collect();
    let known = known.into_iter().map(str::to_owned).collect();
    let mut unknown = if requested.foreign { Vec::new() } else { missing };
    // A crate may derive the structs of several drivers.
    for name in context.family_names()?.iter().filter(|name| **name != family.name) {
        unknown = self::missing(context, name, &unknown)?;
    }
    match unknown.is_empty() {
        true => Ok(known),
        false => Err(ranges::unknown(&context.family_named(&family.name)?, &unknown)?),
    }
}

/// Those that no tag of a family has.
fn missing(
    context: &Context<'_>,
    family: &str,
    names: &[RequestedName],
) -> Result<Vec<RequestedName>, Report> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = names.iter().map(|asked| asked.name.as_str()).collect();
    let (locked, specs) = ranges::histories(context.family_with(family, &wanted)?, names)?;
    Ok(Abis::of_names(&locked, &specs, names).err().unwrap_or_default())
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
        return Ok(Compared { items, of: None, absent: Vec::new(), elsewhere: None });
    }
    let tags = [&from.facts.tag, &to.facts.tag];
    let locked = lock::read_tags(&family.lock)?;
    let headers = tags.map(|tag| locked.iter().find(|l| l.tag == *tag).map(|l| &l.headers));
    if headers[0] == headers[1] {
        return Ok(Compared {
            items,
            of: None,
            absent: Vec::new(),
            elsewhere: Some(Counts::default()),
        });
    }
    let [all_from, all_to] = changed(&family.lock, [from.spec, to.spec], tags, &[])?;
    let everything =
        diff::diff(Side { facts: &all_from, ..from }, Side { facts: &all_to, ..to }, Scope::All);
    let elsewhere = Some(Counts::of(&everything).without(Counts::of(found)));
    Ok(Compared { items, of: None, absent: Vec::new(), elsewhere })
}

/// What somebody asks for by name: "no difference" is no answer where there is nothing.
fn called<'a>(
    family: &Family,
    name: &str,
    from: Side<'a>,
    to: Side<'a>,
) -> Result<BTreeSet<&'a str>, Report> {
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
    // Another name may be meant, also one of a constant that stays.
    let facts = [lock::read_facts(&family.lock, a)?, lock::read_facts(&family.lock, b)?];
    let constants = facts.iter().flat_map(Facts::names);
    Err(match nearest(name, from.names().chain(to.names()).chain(constants)) {
        Some(near) => unknown.help(format!("did you mean `{near}`?")),
        None => unknown,
    }
    .into())
}

/// The facts of both tags: all that differ, or what the items of their specs need. A name is looked for
/// among all.
fn facts(
    args: &args::Diff,
    requested: Option<&Requested>,
    family: &Family,
) -> Result<[Facts; 2], Report> {
    let Family { specs, lock: folder, .. } = family;
    let tags = [&args.from, &args.to];
    if !args.all && args.only.is_none() && requested.is_none() {
        return facts_of_items(folder, specs, tags);
    }
    let specs = [spec_of(specs, tags[0])?, spec_of(specs, tags[1])?];
    let requested = requested.iter().flat_map(|requested| &requested.names);
    let names = requested.map(|asked| asked.name.as_str()).chain(args.only.as_deref());
    changed(folder, specs, tags, &names.collect::<Vec<_>>())
}

/// What a diff of everything needs: most of a driver is constants, and most of those stay.
fn changed(
    folder: &TextFolder,
    specs: [&Spec; 2],
    tags: [&Tag; 2],
    names: &[&str],
) -> Result<[Facts; 2], Report> {
    // What calls are known by, whether they change or not.
    let items = specs.iter().flat_map(|spec| &spec.items).map(|item| item.name.as_str());
    let patterns: Vec<&str> =
        items.chain(["NV_IOCTL_MAGIC"]).chain(names.iter().copied()).collect();
    lock::read_changed(folder, &patterns, &display::SURFACES, tags)
}

/// Of the facts of both tags, what the items of their specs need.
pub(crate) fn facts_of_items(
    folder: &TextFolder,
    specs: &[Spec],
    tags: [&Tag; 2],
) -> Result<[Facts; 2], Report> {
    let specs = &[spec_of(specs, tags[0])?, spec_of(specs, tags[1])?];
    let commands = diff::commands_beside(specs);
    let constants: Vec<&str> = commands.iter().map(String::as_str).collect();
    let part = lock::Part { specs, constants: &constants, lines: true };
    lock::read_part_at(folder, part, tags)
}
