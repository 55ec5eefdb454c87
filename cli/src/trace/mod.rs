//! `nvabi trace`: traces of GPU kernels.

pub(crate) mod args;
mod cc;
mod convert;
mod diff;
mod dump;
#[cfg(feature = "parquet")]
mod export;
#[cfg(feature = "parquet")]
mod import;
mod info;
mod link;
mod outputs;
mod record;
#[cfg(feature = "tui")]
mod tui;

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_trace::{Error, Trace};

use crate::Outcome;
use crate::context::Context;
#[cfg(not(all(feature = "parquet", feature = "tui")))]
use crate::features;

pub(crate) fn trace(context: &Context<'_>, command: &args::Trace) -> ExitCode {
    let outcome = match command {
        args::Trace::Cc(args) => return cc::cc(context, args),
        args::Trace::Link(args) => return link::link(context, args),
        args::Trace::Record(args) => return record::record(context, args),
        args::Trace::Info(args) => info::info(context, args),
        args::Trace::Dump(args) => dump::dump(context, args),
        args::Trace::Diff(args) => diff::diff(context, args),
        args::Trace::Convert(args) => convert::convert(context, args),
        args::Trace::Merge(args) => convert::merge(context, args),
        #[cfg(feature = "parquet")]
        args::Trace::Export(args) => export::export(context, args),
        #[cfg(not(feature = "parquet"))]
        args::Trace::Export(_) => Err(features::missing("parquet")),
        #[cfg(feature = "tui")]
        args::Trace::Tui(args) => tui::tui(args),
        #[cfg(not(feature = "tui"))]
        args::Trace::Tui(_) => Err(features::missing("tui")),
    };
    context.exit(outcome)
}

/// Opens a trace: a file, or a folder that `export --by-launch` wrote.
fn open(path: &Path) -> Result<Trace, Report> {
    #[cfg(feature = "parquet")]
    if path.is_dir() {
        return import::open(path);
    }
    Trace::open(path)
        .map_err(|error| Diagnostic::error("trace-unreadable", error.to_string()).into())
}

fn failed(error: Error) -> Report {
    Diagnostic::error("trace", error.to_string()).into()
}

/// What of a trace cannot be read: it is warned of, and the rest is taken.
struct Losses<'a> {
    context: &'a Context<'a>,
    count: u64,
}

impl<'a> Losses<'a> {
    /// Warnings that are printed.
    const SHOWN: u64 = 100;

    /// Warns of what was damaged when the traces were opened.
    fn of(context: &'a Context<'a>, traces: &[Trace]) -> Self {
        let mut losses = Self { context, count: 0 };
        traces.iter().flat_map(Trace::damage).for_each(|error| losses.warn(error.to_string()));
        losses
    }

    fn warps(&mut self, warps: RangeInclusive<u32>, error: &Error) {
        let named = match (*warps.start(), *warps.end()) {
            (first, u32::MAX) => format!("warps from {first} on are"),
            (first, last) if first >= last => format!("warp {last} is"),
            (first, last) => format!("warps {first} to {last} are"),
        };
        self.warn(format!("{named} lost: {error}"));
    }

    fn warn(&mut self, message: String) {
        self.count += 1;
        if self.count <= Self::SHOWN {
            self.context.complain(&Diagnostic::warning("trace-lost", message).into());
        }
    }

    fn outcome(self) -> Outcome {
        if let Some(more) = self.count.checked_sub(Self::SHOWN).filter(|more| *more > 0) {
            let message = format!("{more} more places cannot be read");
            self.context.complain(&Diagnostic::warning("trace-lost", message).into());
        }
        if self.count == 0 { Outcome::Same } else { Outcome::Different }
    }
}
