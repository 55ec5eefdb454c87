//! A program: begun under the filter, ended with the simulator, and told of signals.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use seccompiler::BpfProgram;

use super::keeper::{self, Files};
use super::{filter, not_supported};
use crate::limits;
use nvabi_supervise::{check, send_descriptor};

/// Written to while a child has copies of this process's descriptors, which `exec` closes.
static FORKING: RwLock<()> = RwLock::new(());

/// Keeps other simulations of this process from forking while a file is opened for a client.
///
/// Their child would keep the file open until it calls `exec`, and the client's close of it would come to
/// nothing. Forks that are not the simulator's go by [`spawn`], or are not kept.
pub(super) fn hold_forks() -> RwLockReadGuard<'static, ()> {
    FORKING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a program that is not simulated, in a process that simulates others at the same time: without this, it may
/// have what they are just handed until it calls `exec`, so that the simulator sees their closes late.
///
/// # Errors
///
/// As [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _forking = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// How a program begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Begin {
    /// The signals that are kept from it, where they are not those that are kept from us.
    pub(crate) mask: Option<libc::sigset_t>,
    /// Whether it leads a session of its own, and with it a group of processes that signals are sent to.
    pub(crate) is_apart: bool,
}

/// What happens to a program first.
#[derive(Debug)]
pub enum Event {
    /// It has ended, and may have left processes. This comes once, and before all others of its kind.
    Ended(ExitStatus),
    /// All that came of it has ended.
    Over,
    /// One of the other files, by its place among them, can be read.
    Readable(usize),
    /// Nothing of this, until it was time.
    Late,
}

/// A program that was begun, and the keeper that ends with the simulator all that comes of it.
#[derive(Debug)]
pub(super) struct Program {
    keeper: Child,
    /// Closed, it tells the keeper that nothing is to go on.
    control: Option<UnixStream>,
    /// Closed when nobody is left to be served.
    over: OwnedFd,
    number: u32,
    is_apart: bool,
    status: Option<ExitStatus>,
}

/// Begins a program that sends its listener over a socket.
pub(super) fn begin(
    command: &mut Command,
    filter: BpfProgram,
    how: Begin,
    socket: BorrowedFd<'_>,
    over: OwnedFd,
) -> io::Result<Program> {
    let limit = limits::raise()?;
    let socket = socket.as_raw_fd();
    let (mut control, theirs) = UnixStream::pair()?;
    let (go, start) = UnixStream::pair()?;
    let files = Files { control: theirs.as_raw_fd(), go: go.as_raw_fd(), start: start.as_raw_fd() };
    // SAFETY: between `fork` and `exec` the closure makes system calls alone, on memory that was made before:
    // it neither allocates nor takes a lock that another thread may have held. `socket` and `files` are open in the
    // child as they are here: the caller keeps the one open, and this function the others, until this returns.
    unsafe {
        command.pre_exec(move || {
            limits::set(&limit)?;
            if let Some(mask) = &how.mask {
                libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
            }
            keeper::split(files)?;
            if how.is_apart {
                check(libc::setsid())?;
            }
            let listener = filter::install(&filter).map_err(named)?;
            send_descriptor(BorrowedFd::borrow_raw(socket), b'l', listener.as_fd())
        });
    }
    // This returns after `exec`.
    let keeper = spawn(command);
    drop((theirs, go, start));
    let mut number = [0; 4];
    let is_apart = how.is_apart;
    let mut program =
        Program { keeper: keeper?, control: None, over, number: 0, is_apart, status: None };
    control.read_exact(&mut number)?;
    program.number = u32::from_ne_bytes(number);
    program.control = Some(control);
    Ok(program)
}

impl Drop for Program {
    fn drop(&mut self) {
        self.control = None;
        self.continue_keeper();
        // It has ended everything before it ends.
        let _ = self.keeper.wait();
    }
}

impl Program {
    /// The program's process.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Sends a signal to the program, or to its group where that is its own; not when it has ended.
    pub(super) fn send(&self, signal: i32) {
        if self.status.is_none() {
            let number = self.number as libc::pid_t;
            send(if self.is_apart { -number } else { number }, signal);
        }
    }

    /// Sends a signal to the processes that the keeper has by itself: the program and what it left.
    pub(super) fn send_to_all(&self, signal: i32) {
        self.tell_keeper(signal);
    }

    /// Ends everything that came of the program.
    pub(super) fn end_all(&self) {
        self.tell_keeper(keeper::END_ALL);
    }

    fn tell_keeper(&self, signal: i32) {
        self.continue_keeper();
        // It may have ended: then there is nobody left.
        let _ = self.control.as_ref().map(|mut control| control.write(&[signal as u8]));
    }

    /// A client that had stopped the keeper would let us wait for ever.
    fn continue_keeper(&self) {
        // It was not waited for, so its number is its own.
        send(self.keeper.id() as libc::pid_t, libc::SIGCONT);
    }

    /// Waits for what comes first: for the program, or one of some files, until it is time.
    pub(super) fn next(
        &mut self,
        others: &[BorrowedFd<'_>],
        time: Option<Instant>,
    ) -> io::Result<Event> {
        loop {
            let control = self.control.as_ref().filter(|_| self.status.is_none());
            let own = [control.map_or(-1, AsRawFd::as_raw_fd), self.over.as_raw_fd()];
            let files = own.into_iter().chain(others.iter().map(AsRawFd::as_raw_fd));
            let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut polls: Vec<libc::pollfd> = files.map(entry).collect();
            let left = time.map(|time| time.saturating_duration_since(Instant::now()));
            if !wait_for(&mut polls, left)? {
                return Ok(Event::Late);
            }
            let mut ready = polls.iter().map(|poll| poll.revents != 0);
            let (is_told, is_over) = (ready.next(), ready.next());
            if is_told == Some(true) || is_over == Some(true) && self.status.is_none() {
                if is_told == Some(false) {
                    // It is about to end, or nobody is there to answer its calls.
                    self.end_all();
                }
                let status = self.read_status();
                self.status = Some(status);
                return Ok(Event::Ended(status));
            }
            if is_over == Some(true) {
                self.continue_keeper();
                return Ok(Event::Over);
            }
            if let Some(index) = ready.position(|is_ready| is_ready) {
                return Ok(Event::Readable(index));
            }
        }
    }

    /// How the program ended, as its keeper tells. One whose keeper was killed was killed with it.
    fn read_status(&mut self) -> ExitStatus {
        let mut status = [0; 4];
        let control = self.control.as_mut();
        let is_told = control.is_some_and(|control| control.read_exact(&mut status).is_ok());
        ExitStatus::from_raw(if is_told { i32::from_ne_bytes(status) } else { libc::SIGKILL })
    }
}

/// What a program says that cannot have its filter, as it can say no more than a number.
fn named(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        // A process has one listener at most (`has_duplicate_listener` in `kernel/seccomp.c`).
        Some(libc::EBUSY) => io::Error::from_raw_os_error(libc::EBUSY),
        _ => not_supported(),
    }
}

fn send(process: libc::pid_t, signal: i32) {
    // A process that has just ended is not there to get it.
    // SAFETY: it takes numbers alone. What a signal does to this process, should the number be its own, any
    // other process may do to it.
    unsafe { libc::kill(process, signal) };
}

/// Waits until something happens to one of some descriptors; whether it did in time.
fn wait_for(polls: &mut [libc::pollfd], time: Option<Duration>) -> io::Result<bool> {
    // A part of a millisecond is one.
    let time =
        time.map_or(-1, |time| time.as_millis().saturating_add(1).min(i32::MAX as u128) as i32);
    // SAFETY: the kernel reads and writes as many entries as it is told, which is as many as there are.
    match check(unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, time) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
        Ok(ready) => Ok(ready > 0),
    }
}
