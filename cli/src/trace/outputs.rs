//! The formats of a comparison's report, and where each is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::{Diagnostic, Report as Complaints};
use nvabi_pipeline::files;
use nvabi_trace::render;
use nvabi_trace::report::{Group, Report};
use nvabi_trace::sources::Sources;

use crate::context::Context;

/// Formats of a report. Without a `FILE`, or with `-`, it goes to stdout.
#[derive(Debug, clap::Args)]
pub(crate) struct Outputs {
    /// Write the findings as comma-separated values
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// Write SARIF 2.1.0, for annotations in code reviews
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    sarif: Option<PathBuf>,
    /// Write folded stacks, for flame graphs
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    folded: Option<PathBuf>,
    /// Write an HTML page that shows the findings by warp and time
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    html: Option<PathBuf>,
    /// Folder to search for source files; may be repeated
    #[arg(long = "source", value_name = "FOLDER", default_value = ".")]
    folders: Vec<PathBuf>,
    /// Number of sites to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    max_sites: usize,
}

/// Writes every form that was asked for; text where none goes to stdout.
pub(crate) fn write(
    context: &Context<'_>,
    report: &Report,
    outputs: &Outputs,
) -> Result<(), Complaints> {
    let sources = Sources::load(named(report), &outputs.folders);
    type Form<'a> = (&'a Option<PathBuf>, &'a dyn Fn() -> String);
    let forms: [Form<'_>; 4] = [
        (&outputs.csv, &|| render::csv(report)),
        (&outputs.sarif, &|| render::sarif(report)),
        (&outputs.folded, &|| render::folded(report)),
        (&outputs.html, &|| render::html(report, &sources)),
    ];
    let asked: Vec<(&Path, &dyn Fn() -> String)> =
        forms.into_iter().filter_map(|(target, form)| Some((target.as_deref()?, form))).collect();
    let to_stdout = asked.iter().filter(|(target, _)| is_stdout(target)).count();
    if to_stdout + usize::from(context.json()) > 1 {
        let help = "give a FILE to all formats but one";
        let message = "more than one report format would go to stdout";
        return Err(Diagnostic::error("trace-outputs", message).help(help).into());
    }
    for (target, form) in asked {
        write_form(context, target, &form())?;
    }
    match (context.json(), to_stdout) {
        (true, _) => context.print_json(report),
        (false, 0) => context.print(&render::text(report, &sources, outputs.max_sites)),
        (false, _) => Ok(()),
    }
}

fn is_stdout(target: &Path) -> bool {
    target == Path::new("-")
}

fn write_form(context: &Context<'_>, target: &Path, text: &str) -> Result<(), Complaints> {
    if is_stdout(target) {
        return context.print(text);
    }
    files::write(target, text).map_err(|error| {
        let message = format!("cannot write {}: {error}", target.display());
        Diagnostic::error("trace-unwritable", message)
    })?;
    context.status("Written", &target.display().to_string());
    Ok(())
}

/// The source files that a report names.
fn named(report: &Report) -> BTreeSet<&str> {
    let source = |group: &Group| report.sources.get(&group.site);
    report.groups.iter().filter_map(source).map(|source| source.file.as_str()).collect()
}
