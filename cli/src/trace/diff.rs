//! `nvabi trace diff`: where two runs part.

use std::path::Path;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_trace::report::Status;
use nvabi_trace::{Options, diff as compare, site_map};
use rustc_hash::FxHashMap;

use super::args::TraceDiff;
use super::{failed, open, outputs};
use crate::Outcome;
use crate::context::Context;

pub(crate) fn diff(context: &Context<'_>, args: &TraceDiff) -> Result<Outcome, Report> {
    let options = Options {
        values: args.values,
        history: args.history,
        limit: args.limit,
        allow_different_grids: args.allow_different_grids,
        sites: sites(args.map.as_deref())?,
        threads: context.threads(),
    };
    let (a, b) = (open(&args.a)?, open(&args.b)?);
    let mut report = compare(&a, &b, &options).map_err(failed)?;
    // A folder is read by way of a file.
    report.a = args.a.display().to_string();
    report.b = args.b.display().to_string();
    outputs::write(context, &report, &args.outputs)?;
    match report.status {
        Status::Identical => Ok(Outcome::Same),
        Status::Different => Ok(Outcome::Different),
        Status::Incomparable => {
            let message = "events were lost, and what is left is the same: nobody knows whether the \
                           runs are";
            let help = match report.overflowed {
                0 => "`nvabi trace info` names the damaged parts of a file",
                _ => "record again with more room for each warp, or fewer warps",
            };
            Err(Diagnostic::error("trace-incomparable", message).help(help).into())
        }
    }
}

/// The keys that sites of A have in B.
pub(super) fn sites(map: Option<&Path>) -> Result<FxHashMap<u64, u64>, Report> {
    match map {
        Some(path) => site_map(path, &text(path)?).map_err(failed),
        None => Ok(FxHashMap::default()),
    }
}

fn text(path: &Path) -> Result<String, Report> {
    std::fs::read_to_string(path).map_err(|error| {
        Diagnostic::error("trace-map", format!("cannot read {}: {error}", path.display())).into()
    })
}
