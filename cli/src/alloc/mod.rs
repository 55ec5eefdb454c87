//! `nvabi alloc`: what has to do with device memory.

pub(crate) mod devices;
pub(crate) mod explain;
mod offers;
pub(crate) mod plan;

use nvabi_devmem::drivers::{Found, enumerate};
use nvabi_devmem::plugin::drivers;

use crate::context::Context;

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
