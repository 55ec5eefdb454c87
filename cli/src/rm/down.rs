//! `nvabi rm down`: ends a machine.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use super::connection::{self, Kind};
use super::folder::{Folder, State};
use crate::args::RmDown;
use crate::context::Context;

/// How long a machine may take to go down. It gives its programs 5 seconds before they are killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long its process may take to end after that.
const LAST_MILLISECONDS: u32 = 2000;

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
    for _ in 0..LAST_MILLISECONDS {
        match folder.state()? {
            State::Missing => return Ok(()),
            State::Dead(lock) => {
                folder.remove(lock);
                return Ok(());
            }
            State::Up => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(stays("closed the connection and is still up"))
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
