//! `nvabi coverage`: whether specs and lock have everything that another project supports, and take its
//! fields for the same.

use std::fs;
use std::path::Path;

use nvabi_pipeline::diagnostic::{Diagnostic, Report, SourceSpan};
use nvabi_pipeline::lock;
use nvabi_reports::coverage::{self, Count, Table};
use nvabi_reports::ranges;

use crate::Outcome;
use crate::args;
use crate::context::{Context, Family};
use crate::names;

pub(crate) fn coverage(context: &Context<'_>, args: &args::Coverage) -> Result<Outcome, Report> {
    let table = match args.table.is_dir() {
        true => names::checkout(&args.table)?,
        false => read(&args.table)?,
    };
    let Family { mut specs, lock: folder, .. } = context.family(None)?;
    let names = [table.names(), table.other_names()].concat();
    let request = ranges::request(&mut specs, Some(&names));
    let locked = lock::read_closure(&folder, &request.iter().collect::<Vec<_>>())?;
    let found = coverage::check(&locked, &specs, &table)?;
    let report = found.report();
    match context.json() {
        true => context.print_json(&found)?,
        false => {
            context.print(&found.text())?;
            if !report.diagnostics.is_empty() {
                context.print("\n")?;
                context.find(&report)?;
            }
        }
    }
    let versions = found.versions.iter().filter(|version| version.locked).count();
    let what = format!(
        "{} of {} rows in {versions} versions; the driver lacks {}, gaps {}, roles that differ {} \
         and disputed {}",
        found.total(|count| count.covered),
        found.total(|count| count.rows),
        found.total(|count| count.lacking),
        found.total(Count::gaps),
        found.roles.len(),
        found.disputed.len(),
    );
    context.status("Covered", &what);
    let unlocked = found.versions.len() - versions;
    if unlocked > 0 {
        let rows = found.versions.iter().filter_map(|version| version.bounds.as_ref());
        let (fit, all) = rows.fold((0, 0), |(fit, all), of| (fit + of.fit, all + of.rows));
        let versions = if unlocked == 1 { "version" } else { "versions" };
        let what = format!(
            "{unlocked} {versions} that the lock has not: {fit} of {all} rows fit the tags around them"
        );
        context.status("Bounded", &what);
    }
    if !found.untyped.is_empty() {
        let what =
            format!("{} rows by name and number only: they have no types", found.untyped.len());
        context.status("Compared", &what);
    }
    if !found.nameless.is_empty() {
        /// More are no help to a person.
        const NAMED: usize = 4;
        let names: Vec<&str> = found.nameless.iter().take(NAMED).map(String::as_str).collect();
        let more = match found.nameless.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more, which --json names"),
        };
        let names = names.join(", ");
        let what = format!("what no driver of the lock has under its name: {names}{more}");
        context.status("Left out", &what);
    }
    Ok(if report.diagnostics.is_empty() { Outcome::Same } else { Outcome::Different })
}

fn read(path: &Path) -> Result<Table, Report> {
    let help = "give a table such as nvproxy-coverage.json, or a checkout of gVisor";
    let text = fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Diagnostic::error("coverage-unreadable", message).help(help)
    })?;
    serde_json::from_str(&text).map_err(|error| {
        let at = offset(&text, error.line(), error.column());
        let place = SourceSpan {
            path: path.display().to_string(),
            text: text.as_str().into(),
            span: at..at + 1,
        };
        // The place stands beside it.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Diagnostic::error("coverage-table", message).at(place).help(help).into()
    })
}

/// The byte of a line and a column, both counted from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}
