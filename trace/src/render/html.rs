//! A report as one page that needs nothing else: style, script and pictures are in it.

use std::fmt::{self, Write};

use super::{by_group, words};
use crate::report::{Finding, Group, Launch, Map, Report};
use crate::sources::Sources;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");
/// Groups that are shown.
const GROUPS: usize = 200;
/// Findings of a group that are shown.
const EXAMPLES: usize = 5;
/// Shades of a picture.
const LEVELS: u32 = 5;
/// Lines of source before and after the one.
const AROUND: u32 = 4;

/// The page.
pub fn html(report: &Report, sources: &Sources) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = page(&mut out, report, sources);
    out
}

fn page(out: &mut String, report: &Report, sources: &Sources) -> fmt::Result {
    let (a, b, status) = (escaped(&report.a), escaped(&report.b), report.status.name());
    writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<title>{status}: {a} and {b}</title>\n<style>\n{STYLE}</style>\n<main>")?;
    writeln!(out, "<h1><b class=\"{status}\">{status}</b></h1>")?;
    writeln!(out, "<p>A <code>{a}</code><br>B <code>{b}</code></p>")?;
    numbers(out, report)?;
    if !report.notes.is_empty() {
        let notes = report.notes.iter().map(|note| words::note(report, note));
        let items = notes.map(|note| format!("<li>{}</li>\n", escaped(&note))).collect::<String>();
        writeln!(out, "<h2>Notes</h2>\n<ul class=\"notes\">\n{items}</ul>")?;
    }
    for launch in report.launches.iter().filter(|launch| launch.warps_divergent > 0) {
        write_launch(out, launch)?;
    }
    if !report.groups.is_empty() {
        writeln!(out, "<h2>Where they part</h2>")?;
    }
    let findings = by_group(report);
    for (rank, group) in report.groups.iter().take(GROUPS).enumerate() {
        let found = findings.get(&group.key()).map_or(&[][..], Vec::as_slice);
        write_group(out, report, sources, rank + 1, group, found)?;
    }
    if let Some(more) = report.groups.len().checked_sub(GROUPS).filter(|more| *more > 0) {
        writeln!(out, "<p>{more} more places are not shown.</p>")?;
    }
    writeln!(out, "</main>\n<script>\n{SCRIPT}</script>\n</html>")
}

fn numbers(out: &mut String, report: &Report) -> fmt::Result {
    let values = if report.values_compared { "compared" } else { "not compared" };
    let numbers = [
        (report.warps_compared.to_string(), "warps compared"),
        (report.warps_divergent.to_string(), "warps differ"),
        (report.total_findings.to_string(), "findings"),
        (report.overflowed.to_string(), "warps lost events"),
        (values.to_owned(), "values"),
    ];
    writeln!(out, "<ul class=\"numbers\">")?;
    for (number, what) in numbers {
        writeln!(out, "<li><b>{number}</b>{what}</li>")?;
    }
    writeln!(out, "</ul>")
}

fn write_launch(out: &mut String, launch: &Launch) -> fmt::Result {
    writeln!(out, "<h2>{}</h2>", escaped(&words::launch(launch)))?;
    let Launch { warps, warps_divergent, events_a, events_b, .. } = launch;
    writeln!(out, "<p>{warps_divergent} of {warps} warps differ; ")?;
    writeln!(out, "{events_a} events in A, {events_b} in B.</p>")?;
    match &launch.map {
        Some(map) => picture(out, launch, map),
        None => Ok(()),
    }
}

/// Warps downwards, time to the right; the stronger, the more findings.
fn picture(out: &mut String, launch: &Launch, map: &Map) -> fmt::Result {
    let Map { warps_per_row, events_per_column, rows, columns, .. } = map;
    let (last, events) = (launch.warps.saturating_sub(1), events_per_column * *columns as u64);
    let each = format!("data-warps=\"{warps_per_row}\" data-events=\"{events_per_column}\"");
    writeln!(out, "<figure class=\"map\" {each} data-last=\"{last}\">")?;
    writeln!(out, "<span class=\"y\">warp 0</span>")?;
    let label = "Findings by warp, downwards, and event of A, to the right";
    write!(out, "<svg viewBox=\"0 0 {columns} {rows}\" preserveAspectRatio=\"none\" ")?;
    writeln!(out, "style=\"height:{}px\" role=\"img\" aria-label=\"{label}\">", height(*rows))?;
    for level in 1..=LEVELS {
        let runs = runs(map, level);
        if !runs.is_empty() {
            writeln!(out, "<path class=\"l{level}\" d=\"{runs}\"/>")?;
        }
    }
    writeln!(out, "</svg>\n<span class=\"y\">warp {last}</span>")?;
    writeln!(out, "<span class=\"x\"><i>event 0</i><output></output><i>{events}</i></span>")?;
    let (per_row, per_column) =
        (words::plural(*warps_per_row, "warp"), words::plural(*events_per_column, "event"));
    writeln!(
        out,
        "<figcaption>A cell is {per_row} × {per_column}; the stronger, the more findings."
    )?;
    writeln!(out, "</figcaption>\n</figure>")
}

fn height(rows: usize) -> usize {
    (rows * 12).clamp(24, 512)
}

/// The cells of a shade, those in a row joined, as the data of a path.
fn runs(map: &Map, level: u32) -> String {
    let most = map.counts.iter().copied().max().unwrap_or_default();
    let mut data = String::new();
    for (row, counts) in map.counts.chunks(map.columns.max(1)).enumerate() {
        let mut column = 0;
        for run in counts.chunk_by(|one, next| shade(*one, most) == shade(*next, most)) {
            if run.first().is_some_and(|count| shade(*count, most) == level) {
                data += &format!("M{column} {row}h{}v1h-{}z", run.len(), run.len());
            }
            column += run.len();
        }
    }
    data
}

/// From 1 to the most, by the logarithm; 0 where nothing differs.
fn shade(count: u32, most: u32) -> u32 {
    if count == 0 {
        return 0;
    }
    let (count, most) = (count.ilog2() + 1, most.ilog2() + 1);
    (count * LEVELS / most).max(1)
}

fn write_group(
    out: &mut String,
    report: &Report,
    sources: &Sources,
    rank: usize,
    group: &Group,
    found: &[&Finding],
) -> fmt::Result {
    let place = escaped(&words::place(report, group.site));
    let Group { findings, warps, first_in, kind, .. } = *group;
    let (findings, warps) = (words::plural(findings, "finding"), words::plural(warps, "warp"));
    writeln!(out, "<section id=\"g{rank}\">")?;
    writeln!(out, "<h3>{rank}. <code>{place}</code> {}</h3>", words::title(kind))?;
    writeln!(out, "<p>{findings} in {warps}; first to differ in {first_in}.</p>")?;
    write_source(out, report, sources, group.site)?;
    writeln!(out, "<ul>")?;
    for finding in found.iter().take(EXAMPLES) {
        write_finding(out, report, finding)?;
    }
    writeln!(out, "</ul>\n</section>")
}

fn write_source(out: &mut String, report: &Report, sources: &Sources, site: u64) -> fmt::Result {
    let Some(source) = report.sources.get(&site) else { return Ok(()) };
    let lines = sources.excerpt(&source.file, source.line, AROUND);
    if lines.is_empty() {
        return Ok(());
    }
    write!(out, "<pre>")?;
    for (number, line) in lines {
        let line = format!("{number:>5}  {}", escaped(line));
        match number == source.line {
            true => writeln!(out, "<mark>{line}</mark>")?,
            false => writeln!(out, "{line}")?,
        }
    }
    writeln!(out, "</pre>")
}

fn write_finding(out: &mut String, report: &Report, finding: &Finding) -> fmt::Result {
    let warp = words::warp(report.launches.get(finding.launch as usize), finding.warp);
    let Finding { index_a, index_b, .. } = finding;
    let sentence = escaped(&words::sentence(report, finding));
    write!(out, "<li>{warp}, event {index_a} of A, {index_b} of B: {sentence}")?;
    if let Some(class) = finding.class {
        write!(out, "<br><em>{}</em>", escaped(&words::class(report, class)))?;
    }
    if !finding.history.is_empty() {
        write!(out, "<details><summary>before it</summary><pre>")?;
        for step in &finding.history {
            let event = words::event(report, &step.a);
            let other = step.b.value.filter(|_| step.a.value != step.b.value);
            let other = other.map(|value| format!(" in A, {value} in B")).unwrap_or_default();
            writeln!(out, "{:>8}  {}{other}", step.index_a, escaped(&event))?;
        }
        write!(out, "</pre></details>")?;
    }
    writeln!(out, "</li>")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(character),
            control if control.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            other => out.push(other),
        }
    }
    out
}
