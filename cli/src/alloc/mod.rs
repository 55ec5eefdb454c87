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
    let drivers = drivers();
    for problem in &drivers.problems {
        context.status("Skipped", &problem.to_string());
    }
    let found = enumerate(&drivers.drivers);
    for (driver, error) in &found.problems {
        context.status("Skipped", &format!("{driver}: {error}"));
    }
    found
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
