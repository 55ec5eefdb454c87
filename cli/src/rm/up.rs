//! `nvabi rm up`: a machine that stays until it is told to go down.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use nvabi_sim::rm::Machine;
use nvabi_supervise::{ENDING, Signals};

use super::connection::Status;
use super::folder::{self, Folder};
use super::host::Host;
use super::{sim, status};
use crate::args::RmUp;
use crate::context::Context;

pub(crate) fn up(context: &Context<'_>, args: &RmUp) -> ExitCode {
    close_on_exec();
    let done = match args.foreground || args.detached {
        true => stay(context, args),
        false => leave(context, args),
    };
    done.unwrap_or_else(|error| {
        context.status("Failed", &error.to_string());
        ExitCode::from(2)
    })
}

/// Keeps files that whoever started us has open, and said nothing of, from the machine's process and its programs:
/// a pipe among them would never end.
fn close_on_exec() {
    // Kernels that have what the simulator needs have this; should it fail, programs have files that they do not know.
    // SAFETY: the call takes numbers alone, and changes nothing for as long as this process is what it is.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Starts the machine's process, away from this terminal, and waits until it is up.
fn leave(context: &Context<'_>, args: &RmUp) -> io::Result<ExitCode> {
    let folder = Folder::of(&args.name)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(detached(std::env::args_os().skip(1).collect()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // It closes its end when it is up, or has ended.
    let mut words = Vec::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_end(&mut words)?;
    }
    eprint!("{}", String::from_utf8_lossy(&words));
    match status::ask(&folder) {
        // Another process may have a machine of this name: then the child has said so.
        Ok(machine) if machine.pid == child.id() => tell(context, &machine),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        _ => ended(&mut child, &words),
    }
}

fn tell(context: &Context<'_>, machine: &Status) -> io::Result<ExitCode> {
    if context.json() {
        return Ok(context.exit(context.print_json(machine).map(|()| crate::Outcome::Same)));
    }
    announce(context, machine);
    Ok(ExitCode::SUCCESS)
}

/// The arguments of this command for the machine's process: what comes after `--` is no option.
fn detached(mut args: Vec<OsString>) -> Vec<OsString> {
    let rm = args.iter().position(|arg| arg == "rm").unwrap_or(0);
    let up = args[rm..].iter().position(|arg| arg == "up").map_or(args.len(), |up| rm + up + 1);
    args.insert(up, "--detached".into());
    args
}

/// How the machine's process ended, where it has not said so itself.
fn ended(child: &mut Child, words: &[u8]) -> io::Result<ExitCode> {
    let status = child.wait()?;
    match words.is_empty() {
        true => Err(io::Error::other(format!("the machine's process ended: {status}"))),
        false => Ok(ExitCode::from(2)),
    }
}

/// Says what there is now, and how to use it.
fn announce(context: &Context<'_>, machine: &Status) {
    let name = &machine.name;
    if let Some(why) = folder::displacement() {
        context.status("Note", &why);
    }
    context.status("Up", &format!("{name}: driver {}, {}", machine.version, status::gpus(machine)));
    context.status("Use", &format!("nvabi rm run {name} -- PROGRAM; nvabi rm down {name}"));
}

/// Is the machine's process, until it goes down.
fn stay(context: &Context<'_>, args: &RmUp) -> io::Result<ExitCode> {
    // Before there are threads, which are not to get them.
    let signals = Signals::keep(&ENDING)?;
    let options = match sim::options(context, &args.machine) {
        Ok(options) => options,
        Err(report) => {
            context.complain(&report);
            return Ok(ExitCode::from(2));
        }
    };
    let folder = Folder::of(&args.name)?;
    let lock = folder.make()?;
    let served = serve(context, args, &options, &folder, &signals);
    folder.remove(lock);
    served.map(|()| ExitCode::SUCCESS)
}

fn serve(
    context: &Context<'_>,
    args: &RmUp,
    options: &nvabi_sim::rm::Options,
    folder: &Folder,
    signals: &Signals,
) -> io::Result<()> {
    let machine = Machine::start(options)?;
    let tag = options.interface.tag.clone();
    let version = options.version.clone().unwrap_or_else(|| tag.clone());
    let host = Arc::new(Host::new(args.name.clone(), tag, version, machine)?);
    let socket = folder.socket();
    let listener = UnixListener::bind(&socket).map_err(|error| cannot_bind(&socket, &error))?;
    // No folder of the caller's is kept from being unmounted.
    std::env::set_current_dir("/")?;
    if args.detached {
        detach(folder)?;
    }
    if args.foreground {
        announce(context, &host.status());
    }
    let is_there = folder.is_same();
    let served = host.serve(listener, signals, is_there);
    // Threads that accept have the machine until this process ends.
    host.machine.clear();
    served?;
    for fault in host.machine.unmet_faults() {
        context.status("Not met", &fault);
    }
    Ok(())
}

fn cannot_bind(socket: &Path, error: &io::Error) -> io::Error {
    /// Bytes that the path of a socket has at most (`sun_path` of `unix(7)`, without the zero that ends it).
    const MOST: usize = 107;
    let length = socket.as_os_str().len();
    let advice = match length > MOST {
        true => format!(
            "; it has {length} bytes, expected at most {MOST}: set XDG_RUNTIME_DIR to a shorter path"
        ),
        false => String::new(),
    };
    let text = format!("cannot listen at {}: {error}{advice}", socket.display());
    io::Error::new(error.kind(), text)
}

/// Leaves the terminal, and the caller's files for the log: that tells who started us that the machine is up.
fn detach(folder: &Folder) -> io::Result<()> {
    let log = File::create(folder.log())?;
    rustix::process::setsid()?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_of_the_machines_process_is_one_of_up() {
        let with = |line: &str| {
            let args = detached(line.split(' ').map(OsString::from).collect());
            args.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(with("rm up lab"), "rm up --detached lab");
        assert_eq!(
            with("--json rm up --gpu a100 -- up"),
            "--json rm up --detached --gpu a100 -- up"
        );
    }
}
