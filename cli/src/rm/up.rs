//! `nvabi rm up`: a machine that stays until it is told to go down.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nvabi_sim::rm::Machine;
use nvabi_supervise::{Signals, check};

use super::connection::Status;
use super::folder::Folder;
use super::host::{ENDING, Host};
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
    // What it writes before it has a log.
    let mut errors = unnamed_file()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?)
        .spawn()?;
    match wait_until_up(&folder, &mut child)? {
        Ok(machine) if context.json() => {
            Ok(context.exit(context.print_json(&machine).map(|()| crate::Outcome::Same)))
        }
        Ok(machine) => {
            announce(context, &machine);
            Ok(ExitCode::SUCCESS)
        }
        Err(_) => {
            let mut text = String::new();
            errors.rewind()?;
            errors.read_to_string(&mut text)?;
            eprint!("{text}");
            Ok(ExitCode::from(2))
        }
    }
}

/// The machine when it is up, or how its process ended.
fn wait_until_up(folder: &Folder, child: &mut Child) -> io::Result<Result<Status, ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Err(status));
        }
        // Another process may have a machine of this name: then the child ends soon.
        match status::ask_if_up(folder) {
            Some(machine) if machine.pid == child.id() => return Ok(Ok(machine)),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn unnamed_file() -> io::Result<File> {
    // SAFETY: the name ends with a zero byte; the kernel has just made the descriptor, and returned it here alone.
    unsafe {
        let made = libc::memfd_create(c"nvabi-up".as_ptr(), libc::MFD_CLOEXEC);
        Ok(File::from_raw_fd(check(made)?))
    }
}

/// Says what there is now, and how to use it.
fn announce(context: &Context<'_>, machine: &Status) {
    let name = &machine.name;
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
    // No folder of the caller's is kept from being unmounted.
    std::env::set_current_dir("/")?;
    if args.detached {
        detach(folder)?;
    }
    let socket = folder.socket();
    let listener = UnixListener::bind(&socket)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))?;
    if args.foreground {
        announce(context, &host.status());
    }
    host.serve(&listener, signals)?;
    for fault in host.machine.unmet_faults() {
        context.status("Not met", &fault);
    }
    Ok(())
}

/// Leaves the terminal, and the caller's files for the log.
fn detach(folder: &Folder) -> io::Result<()> {
    let log = File::create(folder.log())?;
    // SAFETY: the calls take numbers alone, of descriptors that are open; what had the number 2 is not used by it.
    unsafe {
        check(libc::setsid())?;
        check(libc::dup2(log.as_raw_fd(), 2))?;
    }
    Ok(())
}
