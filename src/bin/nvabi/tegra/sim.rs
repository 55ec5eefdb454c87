//! `nvabi tegra sim`: a program on the simulated kernel.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitCode, ExitStatus};

use nvabi::tegra::sim::{self, Options, Outcome};

use crate::args::TegraSim;
use crate::context::Context;

/// Runs the program; the exit status is its own, 2 when it could not be run.
pub(crate) fn sim(context: &Context<'_>, args: &TegraSim) -> ExitCode {
    match run(context, args) {
        Ok(status) => exit_code(status),
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

fn run(context: &Context<'_>, args: &TegraSim) -> io::Result<ExitStatus> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let options =
        Options { release: args.release, faults: args.faults.clone(), pass_signals: true };
    let Outcome { status, report } = sim::run(process::Command::new(program).args(rest), &options)?;
    match &args.report {
        Some(path) => fs::write(path, report.to_json())?,
        None if context.json() => io::stderr().write_all(report.to_json().as_bytes())?,
        None => writeln!(io::stderr(), "{report}")?,
    }
    Ok(status)
}

/// As a shell tells it: a signal is 128 and its number.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(2);
    ExitCode::from(u8::try_from(code).unwrap_or(2))
}
