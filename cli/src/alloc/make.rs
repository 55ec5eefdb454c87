//! `nvabi alloc make`: the memory of a plan, made and handed to a program.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nvabi_devmem::{Buffer, CapabilitySet, Identity, Layout, Usage};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::Serialize;

use super::args::AllocMake;
use super::plan::{Allocator, planned};
use crate::context::Context;

/// The variable that tells a program of the memory.
const VARIABLE: &str = "NVABI_BUFFER";

/// What the variable holds, as JSON: what the memory is. A variable has room for 128 KiB, and so for nothing else that
/// would serve.
#[derive(Serialize)]
struct Handed<'p> {
    usage: &'p Usage,
    set: &'p CapabilitySet,
    layout: &'p Layout,
    allocator: &'p Option<Allocator>,
    /// A file descriptor for each plane: as many numbers as planes.
    fds: Vec<i32>,
    /// Where each plane begins in the file of its descriptor.
    offsets: Vec<u64>,
    /// What tells the memory from other memory.
    identity: Identity,
}

/// The exit status is the program's; 1 when no memory serves.
pub(crate) fn make(context: &Context<'_>, args: &AllocMake) -> Result<u8, Report> {
    let (plan, buffer) = match planned(context, &args.plan)? {
        Some((plan, Some(buffer))) => (plan, buffer),
        Some((plan, None)) => {
            let (why, help) = match plan.layout {
                None => (
                    "only a driver elsewhere knows its layout",
                    "name the device that lays it out among the uses, or offer LINEAR as well",
                ),
                Some(_) => (
                    "no device of this machine is to use it",
                    "add a --use of a device here, such as cpu:cpu-read, to those of --offers",
                ),
            };
            let message = format!("the memory cannot be made here: {why}");
            return Err(Diagnostic::error("alloc-make", message).help(help).into());
        }
        None => return Ok(1),
    };
    if let Some(allocator) = &plan.allocator {
        context.status("Made", &allocator.to_string());
    }
    let refused = |message: String| Report::from(Diagnostic::error("alloc-make", message));
    let handed: Vec<(OwnedFd, u64)> = (0..buffer.description().layout.planes.len())
        .map(|plane| inherited(&buffer, plane))
        .collect::<Result<_, _>>()
        .map_err(|error| refused(format!("cannot hand the memory on: {error}")))?;
    let (fds, offsets): (Vec<OwnedFd>, Vec<u64>) = handed.into_iter().unzip();
    let numbers = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let handed = Handed {
        usage: &plan.usage,
        set: &plan.set,
        layout: &buffer.description().layout,
        allocator: &plan.allocator,
        fds: numbers,
        offsets,
        identity: buffer.identity(),
    };
    let handed = serde_json::to_string(&handed)
        .map_err(|error| refused(format!("cannot describe the memory: {error}")))?;
    let (program, rest) =
        args.program.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
    let program = program.cloned().unwrap_or_else(OsString::new);
    let status = Command::new(&program).args(rest).env(VARIABLE, handed).status();
    let status = status
        .map_err(|error| refused(format!("cannot run {}: {error}", program.to_string_lossy())))?;
    Ok(code(status))
}

/// A descriptor of a plane that a program which is started keeps, and where the plane begins.
fn inherited(buffer: &Buffer, plane: usize) -> Result<(OwnedFd, u64), String> {
    let (fd, plane) = buffer.export_plane(plane).map_err(|error| error.to_string())?;
    fcntl_setfd(&fd, FdFlags::empty()).map_err(|errno| errno.to_string())?;
    Ok((fd, plane.offset))
}

/// As a shell tells it: 128 and the signal of a program that was killed.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(2)
}
