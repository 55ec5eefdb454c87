//! What the commands share that run a program on a simulated machine: its report, its exit status.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use nvabi_sim::{Diagnostic, Outcome};
use serde::{Deserialize, Serialize};

use crate::args::SimulatedProgram;
use crate::context::Context;

/// How a program ended, and what was seen of it, as text.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// As `wait` has it.
    pub(crate) status: i32,
    /// The report as JSON.
    pub(crate) report: String,
    /// What is left to say when the diagnostics have been told.
    pub(crate) ending: String,
}

impl From<Outcome> for Ended {
    fn from(Outcome { status, report }: Outcome) -> Self {
        let ending = report.ending().to_string();
        Self { status: status.into_raw(), report: report.to_json(), ending }
    }
}

/// Runs the program on a machine of its own.
pub(crate) fn run(
    context: &Context<'_>,
    args: &SimulatedProgram,
    machine: impl FnOnce(&mut Command) -> io::Result<Outcome>,
) -> ExitCode {
    conclude(context, args, |program, rest| {
        machine(Command::new(program).args(rest)).map(Ended::from)
    })
}

/// Runs the program; the exit status is its own, 2 when it could not be run.
pub(crate) fn conclude(
    context: &Context<'_>,
    args: &SimulatedProgram,
    run: impl FnOnce(&OsString, &[OsString]) -> io::Result<Ended>,
) -> ExitCode {
    match report(context, args, run) {
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
    args: &SimulatedProgram,
    run: impl FnOnce(&OsString, &[OsString]) -> io::Result<Ended>,
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
    let Ended { status, report, ending } = run(program, rest)?;
    match &args.report {
        Some(path) => fs::write(path, report).map_err(|error| failed(path, error))?,
        None if context.json() => io::stderr().write_all(report.as_bytes())?,
        None => writeln!(io::stderr(), "{ending}")?,
    }
    Ok(ExitStatus::from_raw(status))
}

/// As a shell tells it: a signal is 128 and its number.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}
