//! `nvabi alloc`: what has to do with device memory.

pub(crate) mod args;
mod devices;
mod explain;
mod formats;
mod make;
mod offers;
mod plan;

use std::process::ExitCode;

use nvabi_devmem::drivers::{Found, enumerate};
use nvabi_devmem::plugin::drivers;

use crate::context::Context;

pub(crate) fn alloc(context: &Context<'_>, command: &args::Alloc) -> ExitCode {
    let outcome = match command {
        args::Alloc::Devices => devices::devices(context),
        args::Alloc::Formats(args) => formats::formats(context, args),
        args::Alloc::Plan(args) => plan::alloc_plan(context, args),
        args::Alloc::Offers(args) => offers::offers(context, args),
        args::Alloc::Explain(args) => explain::explain(context, args),
        args::Alloc::Make(args) => match make::make(context, args) {
            Ok(status) => return ExitCode::from(status),
            Err(report) => Err(report),
        },
    };
    context.exit(outcome)
}

/// The devices of this machine; what cannot be asked is told as a status.
fn found(context: &Context<'_>) -> Found {
    let (found, problems) = found_quietly();
    tell_skipped(context, &problems);
    found
}

/// The devices of this machine, and what cannot be asked.
fn found_quietly() -> (Found, Vec<String>) {
    let drivers = drivers();
    let found = enumerate(&drivers.drivers);
    let of_plugins = drivers.problems.iter().map(ToString::to_string);
    let of_drivers = found.problems.iter().map(|(driver, error)| format!("{driver}: {error}"));
    let problems = of_plugins.chain(of_drivers).collect();
    (found, problems)
}

fn tell_skipped(context: &Context<'_>, problems: &[String]) {
    for problem in problems {
        context.status("Skipped", problem);
    }
}

/// Says when there were more combinations than are looked at.
fn tell_whether_all(context: &Context<'_>, complete: bool) {
    if !complete {
        context.status(
            "Stopped",
            "the offers have more combinations than are looked at; there may be other sets",
        );
    }
}
