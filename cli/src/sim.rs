//! What `nvabi tegra sim` and `nvabi rm sim` share: the program, its report, its exit status.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use nvabi_sim::{Diagnostic, Outcome};

use crate::args::Simulated;
use crate::context::Context;

/// Runs the program on a machine; the exit status is its own, 2 when it could not be run.
pub(crate) fn run(
    context: &Context<'_>,
    args: &Simulated,
    machine: impl FnOnce(&mut Command) -> io::Result<Outcome>,
) -> ExitCode {
    match report(context, args, machine) {
        Ok(status) => exit_code(status),
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

/// Prints diagnostics as they come, except where stderr is to hold JSON alone.
pub(crate) fn live(context: &Context<'_>) -> Option<fn(&Diagnostic)> {
    (!context.json()).then_some(|diagnostic| {
        // Where nobody reads it any more the report still has it.
        let _ = writeln!(io::stderr(), "{diagnostic}");
    })
}

fn report(
    context: &Context<'_>,
    args: &Simulated,
    machine: impl FnOnce(&mut Command) -> io::Result<Outcome>,
) -> io::Result<ExitStatus> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let failed = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &args.report {
        // Before the program runs, not after hours of it.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder
            .map_or(Ok(()), |folder| fs::metadata(folder).map(drop))
            .map_err(|e| failed(path, e))?;
    }
    let Outcome { status, report } = machine(Command::new(program).args(rest))?;
    match &args.report {
        Some(path) => fs::write(path, report.to_json()).map_err(|error| failed(path, error))?,
        None if context.json() => io::stderr().write_all(report.to_json().as_bytes())?,
        None => writeln!(io::stderr(), "{}", report.ending())?,
    }
    Ok(status)
}

/// As a shell tells it: a signal is 128 and its number.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}
