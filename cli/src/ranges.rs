//! `nvabi ranges`: which tags have the same layout of a name, or the same ABI of many.

use std::collections::BTreeSet;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::globs;
use nvabi_pipeline::known::display;
use nvabi_pipeline::lock::{self, ItemKind, Lock};
use nvabi_pipeline::model;
use nvabi_pipeline::spec::{self, Spec};
use nvabi_reports::ranges::{self, Abis, One, RequestedName};

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family};
use crate::names;

pub(crate) fn ranges(context: &Context<'_>, args: &args::Ranges) -> Result<Outcome, Report> {
    // Any other number lies before, between or behind known ones.
    if let Some((tag, help)) =
        args.nearest.as_ref().and_then(|tag| Some((tag, spec::jetsons(tag)?)))
    {
        let message = format!("no driver {tag} has open headers");
        return Err(Diagnostic::error("spec-no-driver", message).help(help).into());
    }
    let Some(names) = names(context, args)? else {
        let mut family = context.family(args.nearest.as_ref())?;
        let request = ranges::request(&mut family.specs, None);
        let locked = lock::read_closure(&family.lock, &request.iter().collect::<Vec<_>>())?;
        return answer(context, args, &Abis::of_specs(&locked, &family.specs));
    };
    let families = match &args.nearest {
        Some(tag) => vec![tag.family().to_owned()],
        None => context.family_names()?,
    };
    if let Some(number) = args.name.as_deref().and_then(model::number) {
        return numbered(context, args, &families, number);
    }
    // Names are of one family; where none has them all, the first says what it misses.
    let mut missed = None;
    for name in families {
        let meant = expanded(context, &name, &names)?;
        let wanted = meant.iter().map(|asked| asked.name.as_str()).collect();
        let (locked, specs) = histories(context.family_with(&name, &wanted)?, &meant)?;
        match Abis::of_names(&locked, &specs, &meant) {
            Ok(abis) => return answer(context, args, &abis),
            Err(missing) => missed = missed.or(Some((name, missing))),
        }
        // What fits a pattern here was meant here.
        if meant.iter().all(|asked| !asked.name.contains('*')) && meant != names {
            break;
        }
    }
    let (family, missing) = missed.unwrap_or_default();
    Err(unknown(&context.family_named(&family)?, &missing)?)
}

/// Patterns as the calls and types that fit them at any tag; one that nothing fits stays, to be complained of.
fn expanded(
    context: &Context<'_>,
    family: &str,
    names: &[RequestedName],
) -> Result<Vec<RequestedName>, Report> {
    let is_pattern = |asked: &&RequestedName| asked.name.contains('*');
    if !names.iter().any(|asked| is_pattern(&asked)) {
        return Ok(names.to_vec());
    }
    let family = context.family_named(family)?;
    let (locked, _) = lock::read(&family.lock)?;
    let items = locked.headers.values().flat_map(|header| header.items.keys());
    let calls_and_types = items.filter(|(kind, _)| *kind != ItemKind::Constant);
    let of_specs = family.specs.iter().flat_map(|spec| &spec.items).map(|item| item.name.as_str());
    let mut all: BTreeSet<&str> = calls_and_types.map(|(_, name)| name.as_str()).collect();
    all.extend(of_specs);
    all.extend(display::names(&locked));
    let fitting = |asked: &RequestedName| -> Vec<RequestedName> {
        let fitting = all.iter().filter(|name| globs::fits(&asked.name, name));
        fitting.map(|name| RequestedName { name: (*name).to_owned(), ..asked.clone() }).collect()
    };
    let mut found = Vec::new();
    for asked in names {
        match is_pattern(&asked).then(|| fitting(asked)).filter(|fitting| !fitting.is_empty()) {
            Some(fitting) => found.extend(fitting),
            None => found.push(asked.clone()),
        }
    }
    Ok(found)
}

/// The calls that have a number at any tag: it may name one here and another there.
fn numbered(
    context: &Context<'_>,
    args: &args::Ranges,
    families: &[String],
    number: u64,
) -> Result<Outcome, Report> {
    for name in families {
        let family = context.family_named(name)?;
        let mut names = lock::names_of_value(&family.lock, number.into())?;
        // Some commands have no constant in any header.
        let items = family.specs.iter().flat_map(|spec| &spec.items);
        let of_specs = items.filter(|item| item.number.map(u64::from) == Some(number));
        names.extend(of_specs.map(|item| item.name.clone()));
        let names: Vec<RequestedName> =
            names.into_iter().map(|name| RequestedName { name, place: None }).collect();
        let (locked, specs) = histories(family, &names)?;
        if let Ok(mut abis) = Abis::of_names(&locked, &specs, &names) {
            if abis.keep_calls() {
                return answer(context, args, &abis);
            }
        }
    }
    let message = format!("no locked tag has a call with the number {number:#x}");
    Err(Diagnostic::error("ranges-unknown", message)
        .help("give a command, a class, the number of an ioctl, or a name")
        .into())
}

/// What a family's lock has of some names at every tag, and the specs with the calls that have them: what a
/// call takes that no spec names, the driver's own facts tell.
pub(crate) fn histories(
    mut family: Family,
    names: &[RequestedName],
) -> Result<(Lock, Vec<Spec>), Report> {
    let request = ranges::request(&mut family.specs, Some(names));
    // A request is made of this one as well.
    let all: Vec<&str> =
        names.iter().map(|asked| asked.name.as_str()).chain(["NV_IOCTL_MAGIC"]).collect();
    let surfaces: &[&str] = match all.iter().any(|name| display::is_ioctl(name)) {
        true => &display::SURFACES,
        false => &[],
    };
    let specs: Vec<&Spec> = request.iter().collect();
    let locked =
        lock::read_names(&family.lock, lock::Names { names: &all, specs: &specs, surfaces })?;
    let specs = ranges::with_driver_calls(&locked, &family.specs, names);
    Ok((locked, specs))
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
    match (&args.items, &args.krate) {
        (Some(file), _) => names::of_file(file).map(Some),
        (None, Some(folder)) => names::of_crate(context, folder).map(Some),
        (None, None) => Ok(None),
    }
}

/// A complaint takes the whole lock, for what may have been meant.
pub(crate) fn unknown(family: &Family, names: &[RequestedName]) -> Result<Report, Report> {
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
    let what = "numbers and layouts; `nvabi diff` also compares the values of constants, and who may make a call";
    context.status("Compared", what);
}
