//! The process of a machine that is up: it begins programs for who asks, and ends with them.
//!
//! A thread accepts connections, and each has a thread of its own. That of a program stays until nothing is left of
//! what the program began.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nvabi_reports::terminal;
use nvabi_sim::rm::{Event, Machine, Running};
use nvabi_supervise::{ENDING, Signals, check};

use super::connection::{self, Files, Kind, Program, Request, Status, ToInject};
use crate::sim::Ended;

/// How long programs may take to end before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// How often a machine looks whether it can still be reached.
const LOOK: Duration = Duration::from_secs(1);

/// How long a command may take to send what it asks for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a command may take to read what it is sent. It is less than a machine waits for its programs: a command
/// that is stopped does not keep its program's thread from ending.
const SEND_PATIENCE: Duration = Duration::from_secs(2);

/// A machine, and what is known of it outside of the simulator.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) tag: String,
    pub(super) version: String,
    pub(super) machine: Machine,
    begun: Instant,
    programs: Mutex<Programs>,
    changed: Condvar,
    /// Closed at one end, it ends the machine.
    ending: (UnixStream, UnixStream),
}

/// The programs on a machine.
#[derive(Default)]
struct Programs {
    all: BTreeMap<u64, Known>,
    is_ending: bool,
    /// Who asked for the end: closed with this process, the connection says that it has come.
    askers: Vec<UnixStream>,
}

/// What is known of a program.
struct Known {
    process: u32,
    command: String,
    begun: Instant,
    has_ended: bool,
    /// Closed at one end, it ends the program.
    ending: UnixStream,
}

impl Host {
    pub(super) fn new(
        name: String,
        tag: String,
        version: String,
        machine: Machine,
    ) -> io::Result<Self> {
        let (programs, changed) = (Mutex::default(), Condvar::new());
        let (begun, ending) = (Instant::now(), UnixStream::pair()?);
        Ok(Self { name, tag, version, machine, begun, programs, changed, ending })
    }

    fn programs(&self) -> MutexGuard<'_, Programs> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves who connects, until a signal or a command asks for the end, or `is_there` says that nobody can connect any
    /// more; then ends all programs.
    pub(super) fn serve(
        self: &Arc<Self>,
        listener: UnixListener,
        signals: &Signals,
        is_there: impl Fn() -> bool,
    ) -> io::Result<()> {
        let host = self.clone();
        // It accepts while programs end, too, and ends with this process.
        let accepts = move || loop {
            host.accept(&listener);
        };
        thread::Builder::new().name("accept".to_owned()).spawn(accepts)?;
        loop {
            match wait_until([signals.as_fd(), self.ending.1.as_fd()], LOOK)? {
                [true, _] if signals.next().is_some() => break,
                [_, true] => break,
                _ if !is_there() => {
                    self.end_programs();
                    let text = "its folder was removed, and nobody could reach it: it went down, and its programs with it";
                    return Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("machine `{}`: {text}", self.name),
                    ));
                }
                _ => {}
            }
        }
        self.end_programs();
        Ok(())
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        // Who has gone again need not be served; nor can be who comes when there are no descriptors left.
        let Ok((stream, _)) = listener.accept() else {
            return thread::sleep(Duration::from_millis(10));
        };
        let host = self.clone();
        let served = move || {
            if let Err(error) = host.attend(&stream) {
                // It may have gone.
                let _ = connection::send(&stream, Kind::Refused, error.to_string().as_bytes());
            }
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().name("connection".to_owned()).spawn(served);
    }

    fn attend(&self, stream: &UnixStream) -> io::Result<()> {
        if !is_ours(stream)? {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the machine is of another user",
            ));
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(SEND_PATIENCE))?;
        match connection::receive(stream)? {
            Some((Kind::Run, body)) => {
                let request = Request::from_bytes(&body)?;
                // Nothing is run for who has given up meanwhile.
                connection::send(stream, Kind::Taken, &[])?;
                let files = connection::receive_files(stream)?;
                self.run(stream, &request, files)
            }
            Some((Kind::Status, _)) => {
                let status = serde_json::to_vec(&self.status())?;
                connection::send(stream, Kind::Status, &status)
            }
            Some((Kind::Inject, body)) => {
                let ToInject { gpu, what } = serde_json::from_slice(&body)?;
                let injected = serde_json::to_vec(&self.machine.inject(gpu, what)?)?;
                connection::send(stream, Kind::Inject, &injected)
            }
            Some((Kind::Down, _)) => {
                self.programs().askers.push(stream.try_clone()?);
                self.ending.0.shutdown(std::net::Shutdown::Both)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn status(&self) -> Status {
        let programs = self.programs();
        let known = programs.all.iter().map(|(number, known)| {
            let usage = self.machine.usage(*number);
            Program {
                pid: known.process,
                command: known.command.clone(),
                seconds: known.begun.elapsed().as_secs(),
                gpu_memory: usage.memory,
                calls: usage.calls,
                diagnostics: usage.diagnostics,
                has_ended: known.has_ended,
            }
        });
        Status {
            name: self.name.clone(),
            pid: std::process::id(),
            tag: self.tag.clone(),
            version: self.version.clone(),
            seconds: self.begun.elapsed().as_secs(),
            gpus: self.machine.gpus(),
            programs: known.collect(),
            unmet_faults: self.machine.unmet_faults(),
        }
    }

    /// Runs a program for who asked, until nothing is left of what it began.
    fn run(&self, stream: &UnixStream, request: &Request, files: Files) -> io::Result<()> {
        if self.programs().is_ending {
            return Err(io::Error::other(format!("machine `{}` is going down", self.name)));
        }
        let told = stream.try_clone()?;
        let mut is_read = true;
        let live = move |diagnostic: &nvabi_sim::Diagnostic| {
            let text = diagnostic.to_string();
            // Where nobody reads it any more, or for too long, the report still has it.
            is_read = is_read && connection::send(&told, Kind::Diagnostic, text.as_bytes()).is_ok();
        };
        let mut running = self.machine.begin(&mut command(request, files)?, live)?;
        let ending = self.add(&running, request)?;
        // Who has gone is noticed as what is read of it ends.
        let _ = connection::send(stream, Kind::Begun, &[]);
        let followed = self.follow(&mut running, stream, &ending);
        let number = running.number();
        // Nothing is left when the machine hears of it.
        drop(running);
        self.programs().all.remove(&number);
        self.changed.notify_all();
        followed
    }

    /// From now on it is known; returns what is closed when it is to end.
    fn add(&self, running: &Running, request: &Request) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let known = Known {
            process: running.process(),
            command: shown(&request.command),
            begun: Instant::now(),
            has_ended: false,
            ending: theirs,
        };
        let mut programs = self.programs();
        if programs.is_ending {
            known.ending.shutdown(std::net::Shutdown::Both)?;
        }
        programs.all.insert(running.number(), known);
        Ok(ours)
    }

    /// Passes on what happens to a program, and to who asked for it.
    fn follow(
        &self,
        running: &mut Running,
        stream: &UnixStream,
        ending: &UnixStream,
    ) -> io::Result<()> {
        let (mut asker, mut ending) = (Some(stream), Some(ending));
        let mut time = None;
        loop {
            let ends = ending.map(UnixStream::as_fd);
            let asks = asker.map(UnixStream::as_fd);
            let files: Vec<BorrowedFd<'_>> = ends.into_iter().chain(asks).collect();
            match running.next(&files, time)? {
                Event::Ended(status) => {
                    let was_killed = status.signal() == Some(libc::SIGKILL);
                    if let Some(error) = was_killed.then(|| running.failure()).flatten() {
                        let text =
                            format!("the simulator failed, and the program was killed: {error}");
                        return Err(io::Error::new(error.kind(), text));
                    }
                    // Who is told may look at once.
                    if let Some(known) = self.programs().all.get_mut(&running.number()) {
                        known.has_ended = true;
                    }
                    let report = running.report();
                    let ended = Ended::from(nvabi_sim::Outcome { status, report });
                    if let Some(stream) = asker.take() {
                        tell_end(stream.try_clone()?, serde_json::to_vec(&ended)?)?;
                    }
                }
                Event::Over => return Ok(()),
                Event::Readable(0) if ending.is_some() => {
                    ending = None;
                    running.send_to_all(libc::SIGTERM);
                    time = Some(Instant::now() + GRACE);
                }
                Event::Readable(_) => match signal_of(stream) {
                    Some(signal) => running.send(signal),
                    // As when a terminal is closed.
                    None => {
                        asker = None;
                        running.send_to_all(libc::SIGHUP);
                        time = Some(Instant::now() + GRACE);
                    }
                },
                Event::Late => {
                    time = None;
                    running.end_all();
                }
            }
        }
    }

    fn end_programs(&self) {
        let mut programs = self.programs();
        programs.is_ending = true;
        for known in programs.all.values() {
            // It ends with this process in any case.
            let _ = known.ending.shutdown(std::net::Shutdown::Both);
        }
        let last = Instant::now() + 2 * GRACE;
        while !programs.all.is_empty() {
            let left = last.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(programs, left);
            programs = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Tells a command how its program ended. One that is stopped is told later, when it goes on: as long as the machine is
/// up, which does not wait for it.
fn tell_end(stream: UnixStream, body: Vec<u8>) -> io::Result<()> {
    stream.set_write_timeout(None)?;
    let (done, is_done) = mpsc::channel::<()>();
    let told = move || {
        // It may have gone.
        let _ = connection::send(&stream, Kind::Ended, &body);
        let _ = stream.shutdown(std::net::Shutdown::Both);
        drop(done);
    };
    thread::Builder::new().name("end".to_owned()).spawn(told)?;
    // Nothing is ever sent: this ends when the thread does.
    let _ = is_done.recv_timeout(SEND_PATIENCE);
    Ok(())
}

/// A command as it is shown: one line, of which a long one has only the beginning.
fn shown(words: &[OsString]) -> String {
    const MOST: usize = 200;
    // A letter has at most four bytes, and more letters than these are not shown.
    let begin = |word: &OsString| {
        let bytes = word.as_bytes();
        String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)]).into_owned()
    };
    let text = words.iter().take(MOST).map(begin).collect::<Vec<_>>().join(" ");
    let line = terminal::line(&text);
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.into_owned(),
    }
}

/// What is to be executed.
fn command(request: &Request, files: Files) -> io::Result<Command> {
    let Some((program, args)) = request.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let [folder, input, output, errors] = files;
    let mut command = Command::new(program);
    command.args(args).env_clear();
    // What is no name could not be handed on.
    let is_name = |name: &[u8]| !name.is_empty() && !name.contains(&b'=');
    let pairs = request.environment.iter().filter(|(name, _)| is_name(name.as_bytes()));
    command.envs(pairs.map(|(name, value)| (name, value)));
    command.stdin(input).stdout(output).stderr(errors);
    let umask = request.umask;
    // SAFETY: the closure makes system calls alone; the folder stays open for as long as the closure is there.
    unsafe {
        command.pre_exec(move || prepare(&folder, umask));
    }
    Ok(command)
}

/// Makes this process what the asker is, between `fork` and `exec`.
fn prepare(folder: &OwnedFd, umask: u32) -> io::Result<()> {
    // SAFETY: the calls take numbers alone, of which the descriptor is open, and a local set, of which zeros are a
    // value; no handler of ours is run.
    unsafe {
        check(libc::fchdir(folder.as_raw_fd()))?;
        libc::umask(umask as libc::mode_t);
        // What this process keeps for itself, or was told to ignore, is not so for its programs.
        for signal in ENDING.into_iter().chain([libc::SIGQUIT, libc::SIGPIPE]) {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    Ok(())
}

/// A signal that the asker passes on; none when it has gone.
fn signal_of(mut stream: &UnixStream) -> Option<i32> {
    let mut byte = [0];
    let is_there = stream.read(&mut byte).is_ok_and(|read| read == 1);
    is_there.then_some(i32::from(byte[0]))
}

/// Whether who connected is of the user that this process is of, or root.
fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(peer.is_root() || peer == rustix::process::geteuid())
}

/// Waits until one of some files can be read; which of them can.
pub(super) fn wait_for<const N: usize>(files: [BorrowedFd<'_>; N]) -> io::Result<[bool; N]> {
    poll(files, -1)
}

/// The same for no longer than a time: then none can.
pub(super) fn wait_until<const N: usize>(
    files: [BorrowedFd<'_>; N],
    time: Duration,
) -> io::Result<[bool; N]> {
    poll(files, i32::try_from(time.as_millis()).unwrap_or(i32::MAX))
}

fn poll<const N: usize>(files: [BorrowedFd<'_>; N], milliseconds: i32) -> io::Result<[bool; N]> {
    let entry = |file: BorrowedFd<'_>| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls = files.map(entry);
    // SAFETY: the kernel reads and writes as many entries as it is told, which is as many as there are.
    match check(unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, milliseconds) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(polls.map(|poll| poll.revents != 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_stopped_is_told_the_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let body = vec![b' '; 4 << 20];
        tell_end(ours, body.clone()).unwrap();
        assert_eq!(connection::receive(&theirs).unwrap(), Some((Kind::Ended, body)));
    }

    #[test]
    fn a_command_is_shown_as_one_short_line() {
        let shown = |words: &[&str]| shown(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(shown(&["sh", "-c", "a\nb\u{1b}[2J"]), "sh -c a\\nb\\u{1b}[2J");
        let long = shown(&["a", &"ö".repeat(1 << 20)]);
        assert_eq!(long, format!("a {}…", "ö".repeat(198)));
        assert_eq!(shown(&vec!["x"; 1 << 16]).chars().count(), 201);
    }
}
