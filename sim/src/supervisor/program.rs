//! The program: begun under the filter, ended with the simulator, and told of signals.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use seccompiler::BpfProgram;

use super::keeper::{self, Files};
use super::{filter, not_supported};
use crate::limits;
use nvabi_supervise::{check, send_descriptor};

/// Signals by which people and systems ask us to end.
const ENDING: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// Written to while a child has copies of this process's descriptors, which `exec` closes.
static FORKING: RwLock<()> = RwLock::new(());

/// Keeps other simulations of this process from forking while a file is opened for a client.
///
/// Their child would keep the file open until it calls `exec`, and the client's close of it would come to
/// nothing. Forks that are not the simulator's are not kept.
pub(super) fn hold_forks() -> RwLockReadGuard<'static, ()> {
    FORKING.read().unwrap_or_else(PoisonError::into_inner)
}

/// A program that was begun, and the keeper that ends with the simulator all that comes of it.
#[derive(Debug)]
pub(super) struct Program {
    keeper: Child,
    /// Closed, it tells the keeper that nothing is to go on.
    control: Option<UnixStream>,
    number: u32,
}

/// Begins a program that sends its listener over a socket.
pub(super) fn begin(
    command: &mut Command,
    filter: BpfProgram,
    socket: BorrowedFd<'_>,
    signals: Option<&Signals>,
) -> io::Result<Program> {
    let limit = limits::raise()?;
    let mask = signals.map(|signals| signals.before);
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
            if let Some(mask) = &mask {
                libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
            }
            keeper::split(files)?;
            let listener = filter::install(&filter).map_err(named)?;
            send_descriptor(BorrowedFd::borrow_raw(socket), b'l', listener.as_fd())
        });
    }
    // This returns after `exec`.
    let forking = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    let keeper = command.spawn();
    drop((forking, theirs, go, start));
    let mut number = [0; 4];
    let mut program = Program { keeper: keeper?, control: None, number: 0 };
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

    /// A client that had stopped the keeper would let us wait for ever.
    fn continue_keeper(&self) {
        // It was not waited for, so its number is its own.
        send(self.keeper.id(), libc::SIGCONT);
    }

    /// Waits for the program, and until nobody serves it or its descendants any more. Signals are passed on: to the
    /// program, and when it has ended, those that it left are ended.
    pub(super) fn wait(
        mut self,
        over: &OwnedFd,
        signals: Option<&Signals>,
    ) -> io::Result<ExitStatus> {
        let mut control = self.control.take().ok_or(io::ErrorKind::NotConnected)?;
        let mut status = None;
        loop {
            let told = if status.is_none() { control.as_raw_fd() } else { -1 };
            let [is_told, is_over, is_signalled] =
                wait_for([told, over.as_raw_fd(), signals.map_or(-1, |s| s.fd.as_raw_fd())])?;
            if is_told {
                status = Some(read_status(&mut control));
            }
            if is_over {
                break;
            }
            match signals.filter(|_| is_signalled).and_then(Signals::next) {
                Some(signal) if status.is_none() => send(self.number, signal),
                // It may have ended: then there is nobody left.
                Some(_) => {
                    self.continue_keeper();
                    let _ = control.write(&[keeper::END_ALL]);
                }
                None => {}
            }
        }
        self.continue_keeper();
        if let Some(status) = status {
            return Ok(status);
        }
        // It is about to end, or nobody is there to answer its calls.
        let _ = control.write(&[keeper::END_ALL]);
        Ok(read_status(&mut control))
    }
}

/// How the program ended, as its keeper tells. One whose keeper was killed was killed with it.
fn read_status(control: &mut UnixStream) -> ExitStatus {
    let mut status = [0; 4];
    let is_told = control.read_exact(&mut status).is_ok();
    ExitStatus::from_raw(if is_told { i32::from_ne_bytes(status) } else { libc::SIGKILL })
}

/// What a program says that cannot have its filter, as it can say no more than a number.
fn named(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        // A process has one listener at most (`has_duplicate_listener` in `kernel/seccomp.c`).
        Some(libc::EBUSY) => io::Error::from_raw_os_error(libc::EBUSY),
        _ => not_supported(),
    }
}

fn send(process: u32, signal: i32) {
    // A process that has just ended is not there to get it.
    // SAFETY: it takes numbers alone. What a signal does to this process, should the number be its own, any
    // other process may do to it.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}

/// Waits until something happens to one of some descriptors; says to which.
fn wait_for(fds: [RawFd; 3]) -> io::Result<[bool; 3]> {
    let mut polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: the kernel reads and writes as many entries as it is told, which is as many as there are.
    match check(unsafe { libc::poll(polls.as_mut_ptr(), 3, -1) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(polls.map(|poll| poll.revents != 0)),
    }
}

/// The signals that ask us to end, kept from this thread and from those that it makes.
#[derive(Debug)]
pub(super) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    pub(super) fn keep() -> io::Result<Self> {
        // SAFETY: both sets are local, and zeros are a value of a `sigset_t`, which is of integers; the kernel
        // has just made the descriptor, and returned it here alone.
        unsafe {
            let (mut ending, mut before) = std::mem::zeroed();
            libc::sigemptyset(&mut ending);
            for signal in ENDING {
                libc::sigaddset(&mut ending, signal);
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = OwnedFd::from_raw_fd(check(libc::signalfd(-1, &ending, flags))?);
            libc::pthread_sigmask(libc::SIG_BLOCK, &ending, &mut before);
            Ok(Self { fd, before })
        }
    }

    /// One that has come, and did not come to the program as well: a terminal tells both.
    fn next(&self) -> Option<i32> {
        let told = self.read()?;
        let is_of_terminal = told.ssi_code == SI_KERNEL && told.ssi_signo == libc::SIGINT as u32;
        (!is_of_terminal).then_some(told.ssi_signo as i32)
    }

    fn read(&self) -> Option<libc::signalfd_siginfo> {
        // SAFETY: the struct is of integers, so zeros are a value of it; the kernel writes no more bytes than
        // it is told, which is the size of the struct.
        unsafe {
            let mut told: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let read = libc::read(self.fd.as_raw_fd(), (&raw mut told).cast(), size);
            (read == size as isize).then_some(told)
        }
    }
}

/// What sends signals is not a process.
const SI_KERNEL: i32 = 0x80;

impl Drop for Signals {
    fn drop(&mut self) {
        // What came after all had ended has nobody left to end, us neither.
        while self.read().is_some() {}
        // SAFETY: `before` is what `pthread_sigmask` wrote in `keep`, and nothing is written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}
