//! A machine that is up, and programs that begin and end on it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::program::{self, Begin, Event, Program};
use super::{AnyMachine, Run, Shared, filter, not_supported, poller, serve};
use crate::log::RunId;
use crate::{Diagnostic, Outcome, Report};
use nvabi_supervise::{ENDING, Signals, check, receive_descriptor};

/// Who is told of diagnostics as they come.
pub(crate) type Live = Box<dyn FnMut(&Diagnostic) + Send>;

/// Runs a program and all that comes of it on a machine of its own.
pub(crate) fn run(
    command: &mut Command,
    machine: AnyMachine,
    pass_signals: bool,
    live: Option<fn(&Diagnostic)>,
) -> io::Result<Outcome> {
    // Before there are threads, which are not to get them.
    let signals = if pass_signals { Some(Signals::keep(&ENDING)?) } else { None };
    let host = Host::start(machine)?;
    let mask = signals.as_ref().map(Signals::before);
    let live = live.map(|tell| Box::new(tell) as Live);
    let mut running = host.begin(command, Begin { mask, is_apart: false }, live)?;
    let status = wait(&mut running, signals.as_ref())?;
    running.served()?;
    host.shared.release_all();
    let live_buffers = host.machine().live_buffers();
    let unmet_faults = host.machine().log().unmet_faults();
    let report = Report { live_buffers, unmet_faults, ..running.report() };
    Ok(Outcome { status, report })
}

/// Waits for a program, and until nobody serves it or its descendants any more. Signals are passed on: to the
/// program, and when it has ended, those that it left are ended.
fn wait(running: &mut Running, signals: Option<&Signals>) -> io::Result<ExitStatus> {
    let mut status = None;
    let file: Vec<BorrowedFd<'_>> = signals.iter().map(|signals| signals.as_fd()).collect();
    loop {
        match running.next(&file, None)? {
            Event::Ended(ended) => status = Some(ended),
            Event::Over => return status.ok_or_else(|| io::ErrorKind::NotFound.into()),
            Event::Readable(_) | Event::Late => {}
        }
        let Some(signal) = signals.and_then(Signals::next) else { continue };
        // A terminal tells both.
        let is_told = signal.is_of_kernel && signal.number == libc::SIGINT;
        match status {
            None if is_told => {}
            None => running.send(signal.number),
            Some(_) => running.end_all(),
        }
    }
}

/// A machine that is up. Programs begin on it one after another or side by side, and share what it has.
pub(crate) struct Host {
    pub(super) shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

impl Host {
    pub(crate) fn start(machine: AnyMachine) -> io::Result<Self> {
        let mut host = Self { shared: Arc::new(Shared::new(machine)?), helpers: Vec::new() };
        host.help("doorbells", poller::watch)?;
        host.help("releases", Shared::watch_releases)?;
        host.help("time", Shared::watch_time)?;
        Ok(host)
    }

    /// Begins a thread that goes on until the machine is over.
    fn help(&mut self, name: &str, body: fn(&Shared)) -> io::Result<()> {
        let shared = self.shared.clone();
        self.helpers.push(spawn(name, move || body(&shared))?);
        Ok(())
    }

    /// Begins a program. Diagnostics are told by a thread of their own: nobody waits for whom they are told.
    pub(crate) fn begin(
        &self,
        command: &mut Command,
        how: Begin,
        live: Option<Live>,
    ) -> io::Result<Running> {
        let (sender, receiver) = mpsc::channel::<Diagnostic>();
        let told = live.map(|mut tell| {
            spawn("diagnostics", move || receiver.iter().for_each(|diagnostic| tell(&diagnostic)))
        });
        let told = told.transpose()?;
        let (ours, theirs) = socket_pair()?;
        let (over, end) = socket_pair()?;
        let mut machine = self.shared.machine();
        let filter = filter::program(machine.watches_polls())?;
        let run = machine.log().begin(told.is_some().then_some(sender));
        drop(machine);
        let record = Record { shared: self.shared.clone(), run };
        let shared = self.shared.clone();
        let has_begun = Arc::new(AtomicBool::new(false));
        let begun = has_begun.clone();
        // It must be there before the child is: even one that cannot begin its program makes calls.
        let served = spawn("calls", move || {
            let served = attend(&ours, run, shared, begun);
            drop(end);
            served
        })?;
        let program = program::begin(command, filter, how, theirs.as_fd(), over);
        drop(theirs);
        has_begun.store(true, Ordering::Release);
        let program = program.map_err(|error| cannot_run(command, &explain(error)))?;
        Ok(Running { program, record, served: Some(served), told })
    }

    /// No program is left, and none comes: what they made on the machine goes.
    pub(crate) fn clear(&self) {
        self.shared.own.remove();
    }

    /// The machine itself, with what was written to its files and without what nobody has open any more.
    pub(crate) fn machine(&self) -> MutexGuard<'_, AnyMachine> {
        let mut machine = self.shared.machine();
        self.shared.settle_texts(&mut machine);
        machine
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.stop();
        // A thread that is about a call of one who was killed may have the machine until this process ends.
        self.clear();
        for thread in self.helpers.drain(..) {
            // A thread of ours that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// The record of a run, until it is over.
struct Record {
    shared: Arc<Shared>,
    run: RunId,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.shared.machine().log().end(self.run);
    }
}

/// A program that was begun on a machine. When this goes, all that came of the program is ended.
pub struct Running {
    // Goes first: what it still does is recorded.
    program: Program,
    record: Record,
    served: Option<JoinHandle<io::Result<()>>>,
    told: Option<JoinHandle<()>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Running {
    /// The program's process.
    pub fn process(&self) -> u32 {
        self.program.number()
    }

    /// Its number among all that were begun on the machine.
    pub fn number(&self) -> u64 {
        self.record.run
    }

    /// Waits for what comes first: for the program, or one of some files, until it is time.
    ///
    /// # Errors
    ///
    /// When the kernel cannot wait.
    pub fn next(&mut self, others: &[BorrowedFd<'_>], time: Option<Instant>) -> io::Result<Event> {
        let event = self.program.next(others, time)?;
        // That is how the filter ends a process whose calls it has no numbers of.
        if matches!(&event, Event::Ended(status) if status.signal() == Some(libc::SIGSYS)) {
            let text =
                "a system call of another architecture: 32-bit and x32 programs are not simulated";
            let mut machine = self.record.shared.machine();
            machine.log().switch(self.record.run);
            machine.log().diagnose(self.process(), "other-architecture", text.to_owned());
        }
        Ok(event)
    }

    /// Sends a signal to the program, or to its group where it leads one; not when it has ended.
    pub fn send(&self, signal: i32) {
        self.program.send(signal);
    }

    /// Sends a signal to the program and to what it left, and lets those go on that were stopped.
    pub fn send_to_all(&self, signal: i32) {
        self.program.send_to_all(signal);
    }

    /// Ends everything that came of the program.
    pub fn end_all(&self) {
        self.program.end_all();
    }

    /// What was recorded so far. What comes later is not told any more when it comes.
    pub fn report(&mut self) -> Report {
        self.record.shared.machine().log().hush(self.record.run);
        if let Some(told) = self.told.take() {
            // One that panicked has said so.
            let _ = told.join();
        }
        self.record.shared.machine().log().report(self.record.run)
    }

    /// Whether all calls were served, when nobody is left to make any.
    fn served(&mut self) -> io::Result<()> {
        self.served.take().map_or(Ok(()), joined)
    }

    /// Why the simulator has ended the program, where it could not go on: for who is told that it was killed.
    pub fn failure(&mut self) -> Option<io::Error> {
        /// Milliseconds that the thread may need to end, whose end has killed the program.
        const PATIENCE: u32 = 20;
        for _ in 0..PATIENCE {
            if self.served.as_ref()?.is_finished() {
                return self.served().err();
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

/// What came of a thread that serves calls. One that panicked has said so.
fn joined(served: JoinHandle<io::Result<()>>) -> io::Result<()> {
    let panicked = |_| Err(io::Error::other("the simulator panicked: this is a bug of nvabi"));
    served.join().unwrap_or_else(panicked)
}

/// Serves a child that sends its listener, until nobody is left to be served.
fn attend(
    socket: &OwnedFd,
    run: RunId,
    shared: Arc<Shared>,
    has_begun: Arc<AtomicBool>,
) -> io::Result<()> {
    let listener = receive_descriptor(socket.as_fd())?.1;
    serve(&Arc::new(Run::new(run, listener, shared, has_begun)?))
}

fn cannot_run(command: &Command, error: &io::Error) -> io::Error {
    let program = command.get_program().to_string_lossy();
    io::Error::new(error.kind(), format!("cannot run {program}: {error}"))
}

fn explain(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EBUSY) {
        let text = "this process is already under a supervisor with user notification, such as another simulator: \
                    simulators cannot run inside each other";
        return io::Error::new(io::ErrorKind::Unsupported, text);
    }
    if error.raw_os_error() != not_supported().raw_os_error() {
        return error;
    }
    let text = "this system does not permit seccomp filters with user notification; in a container its seccomp profile \
                must allow them";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for the two descriptors that the kernel writes, and makes for this process.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
