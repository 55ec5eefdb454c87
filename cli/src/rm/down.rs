//! `nvabi rm down`: ends a machine.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, pidfd_open};

use super::connection::{self, Kind};
use super::folder::{Folder, State};
use super::host::wait_until;
use crate::args::RmDown;
use crate::context::Context;

/// How long a machine may take to go down. It gives its programs 5 seconds before they are killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long its folder, and then its process, may take to go after that.
const LAST: Duration = Duration::from_secs(2);

pub(crate) fn down(context: &Context<'_>, args: &RmDown) -> ExitCode {
    match end(&args.name) {
        Ok(()) => {
            context.status("Down", &args.name);
            ExitCode::SUCCESS
        }
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

fn end(name: &str) -> io::Result<()> {
    let folder = Folder::of(name)?;
    let stream = folder.connect()?;
    let process = rustix::net::sockopt::socket_peercred(&stream)?.pid;
    // None where it is in another namespace of processes, or has ended.
    let end = pidfd_open(process, PidfdFlags::empty()).ok();
    stream.set_read_timeout(Some(PATIENCE))?;
    ask(&stream).map_err(|error| connection::in_words(error, name, PATIENCE))?;
    let stays = |why: &str| {
        let advice = format!("its process is {process}, and `kill -KILL {process}` ends it");
        io::Error::other(format!("machine `{name}` {why}: {advice}"))
    };
    // It is closed when the machine's process has ended all programs.
    loop {
        match connection::receive(&stream) {
            Ok(None) => break,
            Ok(Some((Kind::Refused, body))) => {
                return Err(io::Error::other(String::from_utf8_lossy(&body)));
            }
            Ok(Some(_)) => {}
            // It was killed before it read all.
            Err(error) if is_closed(&error) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(stays(&format!("is not down after {} s", PATIENCE.as_secs())));
            }
            Err(error) => return Err(connection::in_words(error, name, PATIENCE)),
        }
    }
    // The folder goes right after, or before.
    let last = Instant::now() + LAST;
    while let State::Up = take_away(&folder)? {
        if Instant::now() > last {
            return Err(stays("closed the connection and is still up"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // Until then the process has files of the folder open.
    let has_ended = |end: OwnedFd| wait_until([end.as_fd()], LAST).map(|[has_ended]| has_ended);
    match end.map_or(Ok(true), has_ended)? {
        true => Ok(()),
        false => Err(stays("is down and has not ended")),
    }
}

/// What is left of a machine, whose folder is removed where its process has ended without.
fn take_away(folder: &Folder) -> io::Result<State> {
    match folder.state()? {
        State::Dead(lock) => {
            folder.remove(lock);
            Ok(State::Missing)
        }
        state => Ok(state),
    }
}

/// Asks a machine to go down. Where it closes the connection it is going, since somebody else was first.
fn ask(stream: &UnixStream) -> io::Result<()> {
    match connection::send(stream, Kind::Down, &[]) {
        Err(error) if is_closed(&error) => Ok(()),
        done => done,
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_going_down_needs_not_be_asked() -> io::Result<()> {
        let (own, machine) = UnixStream::pair()?;
        drop(machine);
        assert!(ask(&own).is_ok());
        assert!(matches!(connection::receive(&own), Ok(None)));
        Ok(())
    }
}
