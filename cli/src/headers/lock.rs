//! `nvabi lock` and `nvabi verify`: facts of headers into the lock, or beside it.

use std::collections::BTreeSet;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::tag::{Tag, family};
use nvabi_pipeline::verify as verifying;

use super::{existing, read_into, source};
use crate::Outcome;
use crate::args;
use crate::commands::report;
use crate::context::{Context, Family, spec_of};

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
    context.status("Locked", &tags_text(&all));
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
            tags = source(context)?.tags()?;
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

pub(crate) fn verify(context: &Context<'_>, args: &args::Verify) -> Result<Outcome, Report> {
    let mut findings = Report::default();
    let mut all = Vec::new();
    let mut families = families_of(context, None, &args.tags)?;
    if args.tags.is_empty() && !context.has_family() {
        leave_out_absent(context, &mut families)?;
    }
    for family in families {
        let (locked, edited) = lock::read(&family.lock)?;
        findings.diagnostics.extend(edited.diagnostics);
        all_are_locked(&locked, &of_family(&family, &args.tags))?;
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
    report(context, &findings, "verify", &format!("{} against headers", tags_text(&all)))
}

/// Complains of tags that the lock lacks, before headers are looked for.
fn all_are_locked(locked: &Lock, tags: &[Tag]) -> Result<(), Report> {
    let mut report = Report::default();
    for tag in tags.iter().filter(|tag| locked.tag_index(tag).is_none()) {
        let complaint = lock::no_tag(&locked.tags, tag);
        let is_spelled = locked.tags.iter().any(|locked| locked.tag.is_release_of(tag));
        report.push(match is_spelled {
            true => complaint,
            false => complaint.note(format!("`nvabi add {tag}` adds it")),
        });
    }
    report.into_result(()).map(|((), _)| ())
}

/// Nobody named a tag or a family: those whose headers are not at hand are left out, before the work begins.
fn leave_out_absent(context: &Context<'_>, families: &mut Vec<Family>) -> Result<(), Report> {
    let source = source(context)?;
    let (present, absent): (Vec<Family>, Vec<Family>) =
        families.drain(..).partition(|family| has_headers(&source, family));
    // Where there are none at all, the complaint of the first family says what is missing.
    if present.is_empty() {
        *families = absent;
        return Ok(());
    }
    for family in absent {
        let tag = family.specs.iter().flat_map(|spec| spec.tags.keys()).max();
        let fetch = match tag {
            Some(tag) => format!("`nvabi headers fetch {tag}`"),
            None => "`nvabi headers fetch TAG`".to_owned(),
        };
        let name = if family.name.is_empty() { "the x86 driver" } else { &family.name };
        context.status("Left out", &format!("{name}: no headers at hand; {fetch} gets them"));
    }
    *families = present;
    Ok(())
}

/// Whether some tag of a family has headers.
fn has_headers(source: &Source, family: &Family) -> bool {
    let Ok(locked) = lock::read_tags(&family.lock) else { return true };
    locked.iter().rev().any(|locked| {
        let Ok(spec) = spec_of(&family.specs, &locked.tag) else { return false };
        spec.surfaces.iter().take(1).any(|surface| {
            let reference = spec.reference(surface, &locked.tag);
            reference.is_ok_and(|reference| source.list(reference, &[]).is_ok())
        })
    })
}

/// Each once, in order.
fn of_family(family: &Family, tags: &[Tag]) -> Vec<Tag> {
    let tags: BTreeSet<&Tag> = tags.iter().filter(|tag| tag.family() == family.name).collect();
    tags.into_iter().cloned().collect()
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

fn tags_text(tags: &[Tag]) -> String {
    match tags {
        [only] => only.to_string(),
        _ => format!("{} tags", tags.len()),
    }
}
