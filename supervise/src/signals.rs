//! Signals that are read like a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::check;

/// Signals by which people and systems ask a process to end.
pub const ENDING: [i32; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// What the kernel itself sends, as of a terminal's keys (`si_code`).
const SI_KERNEL: i32 = 0x80;

/// Signals that are kept from this thread, and from those that it makes, until this goes.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// Whether no process sent it: a terminal tells all processes that are in front.
    pub is_of_kernel: bool,
}

impl Signals {
    /// Keeps some signals from now on; not those that are ignored, as `nohup` has SIGHUP ignored.
    pub fn keep(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: both sets are local, and zeros are a value of a `sigset_t`, which is of integers; the kernel
        // has just made the descriptor, and returned it here alone.
        unsafe {
            let (mut set, mut before) = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for number in numbers.iter().filter(|number| !is_ignored(**number)) {
                libc::sigaddset(&mut set, *number);
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            let fd = OwnedFd::from_raw_fd(check(libc::signalfd(-1, &set, flags))?);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Ok(Self { fd, before })
        }
    }

    /// The signals that were kept from this thread before.
    pub fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// One that has come.
    pub fn next(&self) -> Option<Signal> {
        // SAFETY: the struct is of integers, so zeros are a value of it; the kernel writes no more bytes than
        // it is told, which is the size of the struct.
        let told = unsafe {
            let mut told: libc::signalfd_siginfo = std::mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let read = libc::read(self.fd.as_raw_fd(), (&raw mut told).cast(), size);
            (read == size as isize).then_some(told)?
        };
        let is_of_kernel = told.ssi_code == SI_KERNEL;
        Some(Signal { number: told.ssi_signo as i32, is_of_kernel })
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: the struct is of integers and a number for a function, of which zeros are a value; no action is given,
    // and the kernel writes one: the local one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let is_known = libc::sigaction(signal, std::ptr::null(), &mut action) == 0;
        is_known && action.sa_sigaction == libc::SIG_IGN
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came last has nobody left to be told, and is not to end us either.
        while self.next().is_some() {}
        // SAFETY: `before` is what `pthread_sigmask` wrote in `keep`, and nothing is written.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}
