//! `nvabi ranges`: which tags have the same layout of a name, or the same ABI of many.

use std::fs;
use std::path::Path;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan};
use nvabi_pipeline::lock;
use nvabi_reports::ranges::{self, Abis, One, RequestedName, derives};

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family, read};

pub(crate) fn ranges(context: &Context<'_>, args: &args::Ranges) -> Result<Outcome, Report> {
    let Some(names) = names(context, args)? else {
        let mut family = context.family(args.nearest.as_ref())?;
        let request = ranges::request(&mut family.specs, None);
        let locked = lock::read_closure(&family.lock, &request.iter().collect::<Vec<_>>())?;
        return answer(context, args, &Abis::of_specs(&locked, &family.specs));
    };
    let families = match &args.nearest {
        Some(tag) => vec![context.family(Some(tag))?],
        None => context.families()?,
    };
    // Names are of one family; where none has them all, the first says what it misses.
    let mut missed = None;
    for family in families {
        // All of it: what a call takes that no spec names, the driver's own facts tell.
        let locked = read(&family.lock)?;
        let specs = ranges::with_driver_calls(&locked, &family.specs, &names);
        match Abis::of_names(&locked, &specs, &names) {
            Ok(abis) => return answer(context, args, &abis),
            Err(missing) => missed = missed.or(Some((family.name, missing))),
        }
    }
    let (family, missing) = missed.unwrap_or_default();
    Err(unknown(&context.family_named(&family)?, &missing)?)
}

fn answer(context: &Context<'_>, args: &args::Ranges, abis: &Abis<'_>) -> Result<Outcome, Report> {
    match (&args.nearest, &args.name) {
        (Some(tag), _) => nearest(context, abis, tag),
        (None, Some(_)) => each(context, &abis.each()),
        (None, None) => set(context, abis),
    }
}

/// The names asked for; `None` for every call of the specs.
fn names(context: &Context<'_>, args: &args::Ranges) -> Result<Option<Vec<RequestedName>>, Report> {
    if let Some(name) = &args.name {
        return Ok(Some(vec![RequestedName { name: name.clone(), place: None }]));
    }
    if let Some(file) = &args.items {
        return of_file(file).map(Some);
    }
    let Some(folder) = &args.krate else { return Ok(None) };
    let found = derives::of_crate(folder)?;
    let names = found.names.len();
    context.status("Found", &format!("{names} derives in {}", folder.display()));
    if found.foreign > 0 {
        let what = format!("{} derives that name another table with `crate`", found.foreign);
        context.status("Left out", &what);
    }
    for file in &found.macros {
        context.status(
            "Left out",
            &format!("derives inside macros in {file}: macros are not expanded"),
        );
    }
    Ok(Some(found.names))
}

/// One name a line; what stands behind a `#` is for people.
fn of_file(path: &Path) -> Result<Vec<RequestedName>, Report> {
    let text = fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Diagnostic::error("ranges-unreadable", message)
            .help("give a file with one name per line; `#` starts a comment")
    })?;
    let (mut names, mut at) = (Vec::new(), 0);
    for line in text.split_inclusive('\n') {
        let said = line.split('#').next().unwrap_or_default();
        let name = said.trim();
        let start = at + said.len() - said.trim_start().len();
        let span = start..start + name.len();
        if !name.is_empty() {
            let place =
                SourceSpan { path: path.display().to_string(), text: text.as_str().into(), span };
            names.push(RequestedName { name: name.to_owned(), place: Some(place) });
        }
        at += line.len();
    }
    match names.is_empty() {
        true => {
            let message = format!("{} contains no names", path.display());
            Err(Diagnostic::error("ranges-no-items", message)
                .help("write one name per line")
                .into())
        }
        false => Ok(names),
    }
}

/// A complaint takes the whole lock, for what may have been meant.
fn unknown(family: &Family, names: &[RequestedName]) -> Result<Report, Report> {
    let (locked, _) = lock::read(&family.lock)?;
    Ok(ranges::unknown(&locked, &family.specs, names))
}

fn nearest(
    context: &Context<'_>,
    abis: &Abis<'_>,
    tag: &nvabi_pipeline::tag::Tag,
) -> Result<Outcome, Report> {
    let found = abis.nearest(tag);
    match context.json() {
        true => context.print_json(&found)?,
        false => context.print(&found.text())?,
    }
    compared(context);
    Ok(if found.is_known() { Outcome::Same } else { Outcome::Different })
}

fn each(context: &Context<'_>, found: &[One]) -> Result<Outcome, Report> {
    for one in found {
        match context.json() {
            true => context.print_json(one)?,
            false => context.print(&ranges::one_text(one))?,
        }
        if let Some((before, after)) = first_change(one) {
            let what = format!("nvabi diff {before} {after} --only {}", one.name);
            context.status("See", &what);
        }
    }
    Ok(Outcome::Same)
}

/// The last tag of the first layout and the first tag of the next.
fn first_change(one: &One) -> Option<(&str, &str)> {
    let [first, second, ..] = one.layouts.as_slice() else { return None };
    Some((&first.spans.first()?.last, &second.spans.first()?.first))
}

fn set(context: &Context<'_>, abis: &Abis<'_>) -> Result<Outcome, Report> {
    let found = abis.set();
    match context.json() {
        true => context.print_json(&found)?,
        false => context.print(&ranges::set_text(&found))?,
    }
    let what = format!(
        "{} ABIs of {} names in {} ranges",
        found.abis.len(),
        found.names,
        found.ranges.len()
    );
    context.status("Found", &what);
    compared(context);
    Ok(Outcome::Same)
}

/// Tags of one range need not be the same in all that `diff` reports.
fn compared(context: &Context<'_>) {
    let what = "numbers and layouts; `nvabi diff` also compares the values of constants";
    context.status("Compared", what);
}
