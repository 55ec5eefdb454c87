//! The program: begun under the filter, ended with the simulator, and told of signals.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use seccompiler::BpfProgram;

use super::target::Threads;
use super::{filter, not_supported};
use crate::limits;
use nvabi_supervise::{check, open_process, send_descriptor};

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

/// Begins a program that sends its listener over a socket.
pub(super) fn begin(
    command: &mut Command,
    filter: BpfProgram,
    socket: BorrowedFd<'_>,
    signals: Option<&Signals>,
) -> io::Result<Child> {
    let limit = limits::raise()?;
    let mask = signals.map(|signals| signals.before);
    let socket = socket.as_raw_fd();
    // SAFETY: it returns a number and has no effect.
    let parent = unsafe { libc::getpid() };
    // SAFETY: between `fork` and `exec` the closure makes system calls alone, on memory that was made before:
    // it neither allocates nor takes a lock that another thread may have held. `socket` is open in the child
    // as it is here: the caller keeps it open until this returns.
    unsafe {
        command.pre_exec(move || {
            limits::set(&limit)?;
            if let Some(mask) = &mask {
                libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
            }
            end_with(parent)?;
            let listener = filter::install(&filter).map_err(|_| not_supported())?;
            send_descriptor(BorrowedFd::borrow_raw(socket), b'l', listener.as_fd())
        });
    }
    // This returns after `exec`.
    let _forking = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Ends this process when its parent does, which alone can answer its calls.
///
/// Between `fork` and `exec` this may be called.
fn end_with(parent: libc::pid_t) -> io::Result<()> {
    // SAFETY: both take numbers alone, and change no memory.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if libc::getppid() == parent { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Waits for a program, and until nobody serves it or its descendants any more. Signals are passed on:
/// to the program, and when it has ended, those that it left are ended.
pub(super) fn wait(
    child: &mut Child,
    over: &OwnedFd,
    signals: Option<&Signals>,
    threads: &Threads,
) -> io::Result<ExitStatus> {
    let status = wait_for_end(child, over, signals, threads);
    if let Ok(Some(status)) = status {
        return Ok(status);
    }
    // It is about to end, or nobody is there to answer its calls.
    child.kill()?;
    let ended = child.wait()?;
    status.map(|_| ended)
}

fn wait_for_end(
    child: &mut Child,
    over: &OwnedFd,
    signals: Option<&Signals>,
    threads: &Threads,
) -> io::Result<Option<ExitStatus>> {
    // Waiting for the program in the usual way would take the stops that `trace` waits for.
    let program = open_process(child.id())?;
    let mut status = None;
    loop {
        let program = if status.is_none() { program.as_raw_fd() } else { -1 };
        let [has_ended, is_over, is_signalled] =
            wait_for([program, over.as_raw_fd(), signals.map_or(-1, |s| s.fd.as_raw_fd())])?;
        if has_ended {
            status = Some(child.wait()?);
        }
        if is_over {
            return Ok(status);
        }
        match signals.filter(|_| is_signalled).and_then(Signals::next) {
            Some(signal) if status.is_none() => send(child.id(), signal),
            Some(_) => threads.processes().into_iter().for_each(|it| send(it, libc::SIGKILL)),
            None => {}
        }
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
