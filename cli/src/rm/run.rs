//! `nvabi rm run`: a program on a machine that is up.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nvabi_supervise::Signals;

use super::connection::{self, Kind, PATIENCE, Request};
use super::folder::Folder;
use super::host::{wait_for, wait_until};
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

/// How long a machine may take to say of a program that gets a signal that it has begun: it may have done much already.
const UNTIL_BEGUN: Duration = Duration::from_secs(1);

/// Signals that end this command as long as there is no program to pass them to.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

pub(crate) fn run(context: &Context<'_>, args: &RmRun) -> ExitCode {
    sim::conclude(context, &args.program, |program, rest| {
        let folder = Folder::of(&args.name)?;
        let ended = ask(&folder, program, rest)
            .and_then(|(stream, signals)| follow(context, &stream, signals));
        ended.map_err(|error| match is_cut(&error) {
            true => {
                let text = format!("machine `{}` went down, and the program with it", args.name);
                io::Error::new(io::ErrorKind::ConnectionAborted, text)
            }
            false => error,
        })
    })
}

/// Asks a machine to run a program. From when it has heard of it, signals are kept, for the program.
fn ask(
    folder: &Folder,
    program: &OsString,
    rest: &[OsString],
) -> io::Result<(UnixStream, Signals)> {
    let stream = folder.connect()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let sent = connection::send(&stream, Kind::Run, &request(program, rest).to_bytes());
    let answer = or_closed(sent).and_then(|()| next(&stream));
    match answer.map_err(|error| connection::if_late(error, &folder.name, PATIENCE))? {
        (Kind::Taken, _) => {}
        (kind, _) => return Err(connection::invalid(&format!("an answer of kind {kind:?}"))),
    }
    // What is told from now on takes as long as the program does.
    stream.set_read_timeout(None)?;
    let signals = Signals::keep(&PASSED)?;
    send_files(&stream)?;
    Ok((stream, signals))
}

fn request(program: &OsString, rest: &[OsString]) -> Request {
    // SAFETY: both calls change a number of this process that no other thread uses.
    let umask = unsafe {
        let umask = libc::umask(0o77);
        libc::umask(umask);
        umask
    };
    let command = [std::slice::from_ref(program), rest].concat();
    Request { umask, command, environment: std::env::vars_os().collect() }
}

/// Sends what the program has open.
fn send_files(stream: &UnixStream) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let folder: File = OpenOptions::new().read(true).custom_flags(flags).open(".")?;
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let files = [folder.as_fd(), input.as_fd(), output.as_fd(), errors.as_fd()];
    or_closed(connection::send_files(stream, files))
}

/// A machine that closes the connection says why before that, unless it was killed.
fn or_closed(sent: io::Result<()>) -> io::Result<()> {
    sent.or_else(|error| if is_cut(&error) { Ok(()) } else { Err(error) })
}

/// What the machine says next.
fn next(stream: &UnixStream) -> io::Result<(Kind, Vec<u8>)> {
    match connection::receive(stream)? {
        Some((Kind::Refused, body)) => Err(io::Error::other(text(&body))),
        told => told.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
    }
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

/// Until the program has ended.
fn follow(context: &Context<'_>, stream: &UnixStream, signals: Signals) -> io::Result<Ended> {
    let mut has_begun = false;
    // A signal that is to end us, and when.
    let mut last: Option<(i32, Instant)> = None;
    loop {
        let files = [stream.as_fd(), signals.as_fd()];
        let [is_told, is_signalled] = match last {
            Some((signal, time)) if Instant::now() >= time => return Err(end_by(signal, signals)),
            Some((_, time)) => wait_until(files, time.saturating_duration_since(Instant::now()))?,
            None => wait_for(files)?,
        };
        if let Some(signal) = signals.next().filter(|_| is_signalled) {
            pass(stream, signal.number);
            if !has_begun && ENDING.contains(&signal.number) {
                last.get_or_insert((signal.number, Instant::now() + UNTIL_BEGUN));
            }
        }
        if !is_told {
            continue;
        }
        match next(stream)? {
            (Kind::Begun, _) => (has_begun, last) = (true, None),
            (Kind::Diagnostic, body) if !context.json() => {
                // Where nobody reads it any more the report still has it.
                let _ = writeln!(io::stderr(), "{}", text(&body));
            }
            (Kind::Ended, body) => return Ok(serde_json::from_slice(&body)?),
            _ => {}
        }
    }
}

/// Ends this process, as a signal does that is not kept.
fn end_by(signal: i32, signals: Signals) -> io::Error {
    drop(signals);
    // SAFETY: it takes a number, and no handler of ours is run.
    unsafe { libc::raise(signal) };
    // Who started us keeps the signal from us.
    io::Error::new(io::ErrorKind::Interrupted, "ended by a signal before the program began")
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
