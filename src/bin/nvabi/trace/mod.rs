//! `nvabi trace`: traces of GPU kernels.

mod convert;
mod diff;
mod dump;
mod export;
mod info;
pub(crate) mod outputs;
mod tui;

use std::path::Path;

use nvabi::trace::{Error, Trace};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};

use crate::Outcome;
use crate::args;
use crate::context::Context;

pub(crate) fn trace(context: &Context<'_>, command: &args::Trace) -> Result<Outcome, Report> {
    match command {
        args::Trace::Info(args) => info::info(context, args),
        args::Trace::Dump(args) => dump::dump(context, args),
        args::Trace::Diff(args) => diff::diff(context, args),
        args::Trace::Convert(args) => convert::convert(context, args),
        args::Trace::Merge(args) => convert::merge(context, args),
        args::Trace::Export(args) => export::export(context, args),
        args::Trace::Tui(args) => tui::tui(args),
    }
}

fn open(path: &Path) -> Result<Trace, Report> {
    Trace::open(path).map_err(failed)
}

fn failed(error: Error) -> Report {
    Diagnostic::error("trace", error.to_string()).into()
}
