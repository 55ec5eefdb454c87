//! A report for a terminal: by site, the likeliest cause first.

use std::fmt::{self, Write};

use super::{by_group, words};
use crate::report::{Finding, Group, Report, Step, ranges};
use crate::sources::Sources;

/// Findings of a group that are told in full.
const EXAMPLES: usize = 3;
/// Warps that are listed by number.
const WARPS: usize = 32;
/// Notes that are printed.
const NOTES: usize = 20;
/// Lines of source before and after the one.
const AROUND: u32 = 2;

/// The report as text: the first `groups` groups.
pub fn text(report: &Report, sources: &Sources, groups: usize) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut out, report, sources, groups);
    words::clean(&out)
}

/// The answer in one line.
pub fn summary(report: &Report) -> String {
    words::summary(report)
}

fn write(out: &mut String, report: &Report, sources: &Sources, groups: usize) -> fmt::Result {
    writeln!(out, "A  {}\nB  {}", report.a, report.b)?;
    for launch in report.launches.iter().filter(|launch| launch.warps_divergent > 0) {
        let (differ, all) = (launch.warps_divergent, launch.warps);
        writeln!(out, "{}: {differ} of {all} warps differ", words::launch(launch))?;
    }
    let findings = by_group(report);
    for (rank, group) in report.groups.iter().take(groups).enumerate() {
        writeln!(out)?;
        let found = findings.get(&group.key()).map_or(&[][..], Vec::as_slice);
        write_group(out, report, sources, rank + 1, group, found)?;
    }
    if let Some(more) = report.groups.len().checked_sub(groups).filter(|more| *more > 0) {
        writeln!(out, "\n{more} more places, by --max-sites or --json")?;
    }
    if !report.notes.is_empty() {
        writeln!(out)?;
    }
    for note in report.notes.iter().take(NOTES) {
        writeln!(out, "note: {}", words::note(report, note))?;
    }
    if let Some(more) = report.notes.len().checked_sub(NOTES).filter(|more| *more > 0) {
        writeln!(out, "note: {more} more notes, by --json")?;
    }
    writeln!(out, "\n{}: {}", report.status.name(), words::summary(report))
}

fn write_group(
    out: &mut String,
    report: &Report,
    sources: &Sources,
    rank: usize,
    group: &Group,
    found: &[&Finding],
) -> fmt::Result {
    let place = words::place(report, group.site);
    let function = report.sources.get(&group.site).map(|source| source.function.as_str());
    let function = function.filter(|f| !f.is_empty()).map(|f| format!(" in {f}"));
    let title = words::title(group.kind);
    writeln!(out, "#{rank} {place}{}: {title}", function.unwrap_or_default())?;
    let findings = words::plural(group.findings, "finding");
    let warps = words::plural(group.warps, "warp");
    writeln!(out, "   {findings} in {warps}; first to differ in {}", group.first_in)?;
    write_source(out, report, sources, group.site)?;
    let warps: Vec<u32> = found.iter().filter(|f| f.first).map(|f| f.warp).collect();
    if warps.len() > 1 {
        let listed = ranges(warps.iter().copied().take(WARPS));
        let and_more = if group.first_in as usize > warps.len().min(WARPS) { ", …" } else { "" };
        writeln!(out, "   first in warps {listed}{and_more}")?;
    }
    for finding in found.iter().take(EXAMPLES) {
        write_finding(out, report, finding)?;
    }
    Ok(())
}

fn write_source(out: &mut String, report: &Report, sources: &Sources, site: u64) -> fmt::Result {
    let Some(source) = report.sources.get(&site) else { return Ok(()) };
    for (number, line) in sources.excerpt(&source.file, source.line, AROUND) {
        let mark = if number == source.line { '>' } else { ' ' };
        writeln!(out, " {mark} {number:>5} | {}", line.trim_end())?;
    }
    for call in &source.inlined_at {
        writeln!(out, "   inlined at {} in {}", words::line(call), call.function)?;
    }
    Ok(())
}

fn write_finding(out: &mut String, report: &Report, finding: &Finding) -> fmt::Result {
    let warp = words::warp(report.launches.get(finding.launch as usize), finding.warp);
    let Finding { index_a, index_b, .. } = finding;
    let sentence = words::sentence(report, finding);
    writeln!(out, "   {warp}, event {index_a} of A, {index_b} of B: {sentence}")?;
    if let Some(class) = finding.class {
        writeln!(out, "      {}", words::class(report, class))?;
    }
    for step in &finding.history {
        write_step(out, report, step)?;
    }
    if let (Some(a), Some(b)) = (finding.resync_a, finding.resync_b) {
        writeln!(out, "      the same again from event {a} of A, {b} of B")?;
    }
    Ok(())
}

fn write_step(out: &mut String, report: &Report, step: &Step) -> fmt::Result {
    write!(out, "      {:>8}  {}", step.index_a, words::event(report, &step.a))?;
    match step.b.value.filter(|_| step.a.value != step.b.value) {
        Some(value) => writeln!(out, " in A, {value} in B"),
        None => writeln!(out),
    }
}
