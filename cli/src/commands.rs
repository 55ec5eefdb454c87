//! The commands that read facts and compare them.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap_complete::Shell;
use nvabi_pipeline::diagnostic::{Diagnostic, Report, nearest};
use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::facts::{self, Cache, Options};
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::{self, Facts, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::sweep::{Progress, sweep};
use nvabi_pipeline::tag::{Tag, family};
use nvabi_pipeline::text_folder::TextFolder;
use nvabi_pipeline::{lint as linting, verify as verifying};
use nvabi_reports::{list, render};

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family, read, spec_of, tag_or_newest};

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
    let mut source = context.source()?;
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

pub(crate) fn lock(context: &Context<'_>, args: &args::Lock) -> Result<Outcome, Report> {
    let specs = context.writable_specs()?;
    let mut all = Vec::new();
    for family in families_of(context, args.driver.as_deref(), &args.tags)? {
        let (mut locked, tags) = to_lock(context, &family, args)?;
        read_into(context, &mut locked, &family.specs, &tags, "Locking")?;
        lock::write(&lock::folder(specs, &family.name), &locked)?;
        all.extend(tags);
    }
    if all.is_empty() {
        let message = "there is no tag to lock";
        return Err(Diagnostic::error("lock-no-tag", message)
            .help("name one: nvabi lock 550.163.01")
            .into());
    }
    if context.json() {
        context.print_json(&all.iter().map(Tag::as_str).collect::<Vec<_>>())?;
    }
    context.status("Locked", &told(&all));
    Ok(Outcome::Same)
}

/// The lock to add to, and what to add.
fn to_lock(
    context: &Context<'_>,
    family: &Family,
    args: &args::Lock,
) -> Result<(Lock, Vec<Tag>), Report> {
    if let Some(driver) = &args.driver {
        let listed = family.specs.iter().filter(|spec| spec.driver == *driver);
        let mut tags: Vec<Tag> = listed.flat_map(|spec| spec.tags.keys().cloned()).collect();
        if tags.is_empty() {
            tags = context.source()?.tags()?;
            tags.retain(|tag| tag.branch() == driver);
        }
        return Ok((existing(&family.lock)?, tags));
    }
    if args.tags.is_empty() {
        // Anew from the list of tags alone: this mends a lock that was edited or damaged.
        let tags = lock::read_tags(&family.lock)?.into_iter().map(|t| t.tag).collect();
        return Ok((Lock::default(), tags));
    }
    Ok((existing(&family.lock)?, of_family(family, &args.tags)))
}

fn of_family(family: &Family, tags: &[Tag]) -> Vec<Tag> {
    tags.iter().filter(|tag| tag.family() == family.name).cloned().collect()
}

/// The families of a driver, or of tags; all of them where neither is named.
fn families_of(
    context: &Context<'_>,
    driver: Option<&str>,
    tags: &[Tag],
) -> Result<Vec<Family>, Report> {
    let mut names: Vec<&str> = match driver {
        Some(driver) => vec![family(driver)],
        None => tags.iter().map(Tag::family).collect(),
    };
    if names.is_empty() {
        return context.families();
    }
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| context.family_named(name)).collect()
}

/// Reads tags from headers into a lock, with a progress bar.
pub(crate) fn read_into(
    context: &Context<'_>,
    locked: &mut Lock,
    specs: &[Spec],
    tags: &[Tag],
    doing: &'static str,
) -> Result<(), Report> {
    if tags.len() > 1 {
        keep_memory();
    }
    let bar = context.progress(tags.len());
    bar.set_message(doing);
    sweep(locked, &context.headers()?, specs, tags, |progress| match progress {
        Progress::Tag => bar.inc(1),
        Progress::Warnings(warnings) => bar.suspend(|| context.complain(warnings)),
    })?;
    bar.finish_and_clear();
    Ok(())
}

/// Lets both allocators, ours and libclang's, keep what they have: every tag needs as much as the one
/// before it, and taking pages back from the system costs a tenth of a sweep.
fn keep_memory() {
    /// mimalloc.h of versions 2 and 3; the crate has no name for it.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: it sets a number that mimalloc reads without further assumptions; -1 is "never".
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
    #[cfg(target_env = "gnu")]
    for (option, bytes) in [
        (libc::M_TRIM_THRESHOLD, i32::MAX),
        (libc::M_MMAP_THRESHOLD, 32 << 20),
        (libc::M_TOP_PAD, 64 << 20),
    ] {
        // SAFETY: `mallopt` takes numbers, and locks the allocator itself: it may be called at any time. glibc
        // refuses a limit that it cannot keep, and goes on without.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// The lock there is, or an empty one; one that was edited is not built upon.
pub(crate) fn existing(folder: &TextFolder) -> Result<Lock, Report> {
    match lock::exists(folder) {
        true => read(folder),
        false => Ok(Lock::default()),
    }
}

fn told(tags: &[Tag]) -> String {
    match tags {
        [only] => only.to_string(),
        _ => format!("{} tags", tags.len()),
    }
}

pub(crate) fn verify(context: &Context<'_>, args: &args::Verify) -> Result<Outcome, Report> {
    let mut findings = Report::default();
    let mut all = Vec::new();
    for family in families_of(context, None, &args.tags)? {
        let (locked, edited) = lock::read(&family.lock)?;
        findings.diagnostics.extend(edited.diagnostics);
        let tags = match args.tags.is_empty() {
            true => locked.tags.iter().map(|t| t.tag.clone()).collect(),
            false => of_family(&family, &args.tags),
        };
        if tags.is_empty() {
            continue;
        }
        let mut read = Lock::default();
        read_into(context, &mut read, &family.specs, &tags, "Verifying")?;
        findings.diagnostics.extend(verifying::compare_all(&locked, &read).diagnostics);
        all.extend(tags);
        // The process ends soon: taking two locks apart piece by piece takes as long as reading one.
        std::mem::forget((locked, read));
    }
    if all.is_empty() {
        let message = format!("there is nothing to verify: {} has no locked tag", context.specs()?);
        let help = "lock one with `nvabi lock TAG`, or name another folder with --specs";
        return Err(Diagnostic::error("verify-nothing", message).help(help).into());
    }
    report(context, &findings, "verify", &format!("{} against headers", told(&all)))
}

pub(crate) fn lint(context: &Context<'_>, args: &args::Lint) -> Result<Outcome, Report> {
    let families = context.families()?;
    let specs = || families.iter().flat_map(|family| &family.specs);
    for driver in &args.drivers {
        if !specs().any(|spec| spec.driver == *driver) {
            let names: Vec<&str> = specs().map(|spec| spec.driver.as_str()).collect();
            let help = format!("there are specs for {}", names.join(", "));
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
    report(context, &findings, "lint", &format!("{items} items"))
}

/// Prints findings, and one summary line; the outcome says whether there were any.
fn report(
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
    let Shown { mut facts, names, text } = shown(context, args)?;
    match context.json() {
        true => {
            facts.surfaces.values_mut().for_each(|surface| keep(surface, &names));
            facts.surfaces.retain(|_, surface| *surface != Surface::default());
            context.print_json(&facts)?;
        }
        false => context.print(&text)?,
    }
    context.status("Shown", &format!("as of {}", facts.tag));
    Ok(Outcome::Same)
}

/// What there is of a name, or of the calls that have it as their number.
struct Shown {
    facts: Facts,
    names: BTreeSet<String>,
    text: String,
}

fn shown(context: &Context<'_>, args: &args::Show) -> Result<Shown, Report> {
    let number = model::number(&args.name);
    let found = context.search(args.tag.as_ref(), |folder, tag| {
        let (facts, names) = match number {
            Some(number) => {
                let facts = lock::read_facts(folder, tag)?;
                let names = list::numbered(&facts, &context.spec(tag)?, number);
                (facts, names)
            }
            None => {
                let names = BTreeSet::from([args.name.clone()]);
                (lock::read_named(folder, tag, &names)?, names)
            }
        };
        let text = rendered(&facts, &names);
        Ok((!text.is_empty()).then_some(Shown { facts, names, text }))
    })?;
    match found {
        Ok(shown) => Ok(shown),
        Err((folder, tag)) => Err(unknown(&lock::read_facts(&folder, &tag)?, &args.name).into()),
    }
}

fn rendered(facts: &Facts, names: &BTreeSet<String>) -> String {
    let texts: Vec<String> = names.iter().map(|name| render::item(facts, name)).collect();
    texts.join("")
}

/// Leaves some names in a surface, the records that they are typedefs of, and enumerators in their
/// enums.
fn keep(surface: &mut Surface, names: &BTreeSet<String>) {
    let of_typedefs = names.iter().filter_map(|name| Some(&surface.aliases.get(name)?.ty));
    let records: BTreeSet<&String> = names.iter().chain(of_typedefs).collect();
    surface.records.retain(|name, _| records.contains(name));
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
    let diagnostic = Diagnostic::error("show-unknown", what);
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
