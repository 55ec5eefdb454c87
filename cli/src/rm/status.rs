//! `nvabi rm status`: the machines that are up, and the programs on them.

use std::io;
use std::process::ExitCode;

use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use nvabi_sim::GpuUse;
use serde::Serialize;

use super::connection::{self, Kind, Program, Status};
use super::folder::{self, Folder, State};
use crate::Outcome;
use crate::args::RmStatus;
use crate::context::Context;

pub(crate) fn status(context: &Context<'_>, args: &RmStatus) -> ExitCode {
    let found = find(context, args.name.as_deref());
    let found = found.map_err(|error| Diagnostic::error("rm-status", error.to_string()).into());
    context.exit(found.and_then(|(machines, outcome)| {
        show(context, &machines)?;
        Ok(outcome)
    }))
}

/// A machine that is up.
#[derive(Serialize)]
#[serde(untagged)]
enum FoundMachine {
    Answering(Status),
    /// Its process is there, and does not answer.
    Silent {
        name: String,
        is_silent: bool,
    },
}

/// The machines that are up. Those that are dead are told and removed.
fn find(context: &Context<'_>, name: Option<&str>) -> io::Result<(Vec<FoundMachine>, Outcome)> {
    let folders = match name {
        Some(name) => vec![Folder::of(name)?],
        None => Folder::all()?,
    };
    let (mut machines, mut outcome) = (Vec::new(), Outcome::Same);
    for folder in folders {
        match folder.state()? {
            State::Missing if name.is_some() => return Err(folder.missing()),
            State::Missing => {}
            State::Dead(lock) => {
                context.status("Found", &folder.death());
                folder.remove(lock);
                outcome = Outcome::Different;
            }
            State::Up => match ask(&folder) {
                Ok(machine) => machines.push(FoundMachine::Answering(machine)),
                // It died, or went down, just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    context.status("Found", &error.to_string());
                    outcome = Outcome::Different;
                }
                Err(error) => {
                    context.status("Silent", &error.to_string());
                    machines
                        .push(FoundMachine::Silent { name: folder.name.clone(), is_silent: true });
                    outcome = Outcome::Different;
                }
            },
        }
    }
    Ok((machines, outcome))
}

/// Asks a machine.
pub(super) fn ask(folder: &Folder) -> io::Result<Status> {
    Ok(serde_json::from_slice(&connection::ask(folder, Kind::Status, &[])?)?)
}

fn show(context: &Context<'_>, machines: &[FoundMachine]) -> Result<(), Report> {
    if context.json() {
        return context.print_json(&machines);
    }
    if machines.is_empty() {
        if let Some(why) = folder::displacement() {
            context.status("Note", &why);
        }
        return context.print("no machine is up\n");
    }
    let text = |found: &FoundMachine| match found {
        FoundMachine::Answering(status) => machine(status),
        FoundMachine::Silent { name, .. } => format!("{name}: up, and does not answer\n"),
    };
    context.print(&machines.iter().map(text).collect::<String>())
}

fn machine(machine: &Status) -> String {
    let Status { name, pid, version, seconds, gpus, programs, unmet_faults, .. } = machine;
    let driver = format!("driver {version}, {}", self::gpus(machine));
    let mut text = format!("{name}: {driver}; up {}, process {pid}\n", time(*seconds));
    let is_told = |gpu: &GpuUse| gpu.used > 0 || gpu.is_lost || gpu.is_unbound;
    for (index, gpu) in gpus.iter().enumerate().filter(|(_, gpu)| is_told(gpu)) {
        let (used, all) = (bytes(gpu.used), bytes(gpu.memory));
        let lost = if gpu.is_lost { "lost; " } else { "" };
        let unbound = if gpu.is_unbound { "unbound; " } else { "" };
        text += &format!("  GPU {index} {}: {lost}{unbound}{used} of {all} in use\n", gpu.name);
    }
    for fault in unmet_faults {
        text += &format!("  not met: {fault}\n");
    }
    if !programs.is_empty() {
        text += &row(["process", "time", "GPU memory", "calls", "diagnostics"], "program");
    }
    for Program { pid, command, seconds, gpu_memory, calls, diagnostics, has_ended } in programs {
        let (pid, calls, diagnostics) =
            (pid.to_string(), calls.to_string(), diagnostics.to_string());
        let (time, memory) = (time(*seconds), bytes(*gpu_memory));
        let left = if *has_ended { " (has ended and left processes)" } else { "" };
        text += &row([&pid, &time, &memory, &calls, &diagnostics], &format!("{command}{left}"));
    }
    text
}

fn row(cells: [&str; 5], last: &str) -> String {
    let [a, b, c, d, e] = cells;
    format!("{a:>9} {b:>8} {c:>11} {d:>9} {e:>12}  {last}\n")
}

/// The GPUs of a machine, those of one kind together.
pub(super) fn gpus(machine: &Status) -> String {
    let mut kinds: Vec<(usize, &str)> = Vec::new();
    for gpu in &machine.gpus {
        match kinds.iter_mut().find(|(_, name)| *name == gpu.name) {
            Some((count, _)) => *count += 1,
            None => kinds.push((1, &gpu.name)),
        }
    }
    let kinds = kinds.iter().map(|(count, name)| format!("{count} × {name}"));
    kinds.collect::<Vec<_>>().join(", ")
}

fn time(seconds: u64) -> String {
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// In the units of nvidia-smi.
fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        1..0x10_0000 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes >> 20),
    }
}
