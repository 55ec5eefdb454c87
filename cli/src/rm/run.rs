//! `nvabi rm run`: a program on a machine that is up.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use nvabi_supervise::Signals;

use super::connection::{self, Kind, Request};
use super::folder::Folder;
use super::host::wait_for;
use crate::args::RmRun;
use crate::context::Context;
use crate::sim::{self, Ended};

/// Signals that are the program's rather than ours.
const PASSED: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

pub(crate) fn run(context: &Context<'_>, args: &RmRun) -> ExitCode {
    sim::conclude(context, &args.program, |program, rest| {
        // Before the program is there: one that comes meanwhile is passed on as well.
        let signals = Signals::keep(&PASSED)?;
        let folder = Folder::of(&args.name)?;
        let stream = folder.connect()?;
        ask(&stream, program, rest)?;
        follow(context, &stream, &signals).and_then(|ended| {
            ended.ok_or_else(|| {
                let text = format!("machine `{}` went down, and the program with it", args.name);
                io::Error::new(io::ErrorKind::ConnectionAborted, text)
            })
        })
    })
}

fn ask(stream: &UnixStream, program: &OsString, rest: &[OsString]) -> io::Result<()> {
    // SAFETY: both calls change a number of this process that no other thread uses.
    let umask = unsafe {
        let umask = libc::umask(0o77);
        libc::umask(umask);
        umask
    };
    let command = [std::slice::from_ref(program), rest].concat();
    let environment = std::env::vars_os().collect();
    let request = Request { umask, command, environment };
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let folder: File = OpenOptions::new().read(true).custom_flags(flags).open(".")?;
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let files = [folder.as_fd(), input.as_fd(), output.as_fd(), errors.as_fd()];
    let sent = connection::send(stream, Kind::Run, &request.to_bytes())
        .and_then(|()| connection::send_files(stream, files));
    match sent {
        // It says why it has closed the connection, unless it was killed.
        Err(error) if is_cut(&error) => Ok(()),
        sent => sent,
    }
}

/// Until the program has ended; none when the machine has.
fn follow(
    context: &Context<'_>,
    stream: &UnixStream,
    signals: &Signals,
) -> io::Result<Option<Ended>> {
    loop {
        let [is_told, is_signalled] = wait_for([stream.as_fd(), signals.as_fd()])?;
        if let Some(signal) = signals.next().filter(|_| is_signalled) {
            pass(stream, signal.number);
        }
        if !is_told {
            continue;
        }
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        match connection::receive(stream) {
            Ok(Some((Kind::Diagnostic, body))) if !context.json() => {
                // Where nobody reads it any more the report still has it.
                let _ = writeln!(io::stderr(), "{}", text(&body));
            }
            Ok(Some((Kind::Ended, body))) => return Ok(Some(serde_json::from_slice(&body)?)),
            Ok(Some((Kind::Refused, body))) => return Err(io::Error::other(text(&body))),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            // In the middle of a message, or before it read all that was sent.
            Err(error) if is_cut(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Whether the machine's end of the connection has gone.
fn is_cut(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&error.kind())
}

/// Passes a signal on. A machine that has ended is seen by its connection.
fn pass(mut stream: &UnixStream, signal: i32) {
    // The program has no terminal that would stop it with us, and its group no parent that SIGTSTP is heeded for.
    let is_stop = signal == libc::SIGTSTP;
    let told = if is_stop { libc::SIGSTOP } else { signal };
    let _ = stream.write_all(&[told as u8]);
    if is_stop {
        // SAFETY: it takes a number, and stops this process until it is told to go on.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}
