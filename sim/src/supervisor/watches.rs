//! Tells at once of doorbells that are rung after a while: the page that a program writes is watched.
//!
//! A program that rings often is looked for often, and its writes are its own. Where nobody has rung for a while, the
//! first who does waits until we have seen that. It needs Linux 5.19, and that a program may call `userfaultfd`, which
//! containers may not permit: else doorbells are looked at as time goes by, and no more.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nvabi_supervise::WriteWatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};

/// Watches of all programs: each has a descriptor of ours.
const MOST: usize = 256;

/// What was mapped and is not watched yet.
pub(super) struct Watches {
    new: Mutex<Vec<WriteWatch>>,
    /// An argument of `userfaultfd` that the kernel does not look at, and no program knows: with it we make the call
    /// for a program.
    secret: u64,
}

impl Watches {
    pub(super) fn new() -> io::Result<Self> {
        let mut secret = [0; 8];
        getrandom(&mut secret, GetRandomFlags::empty())?;
        Ok(Self { new: Mutex::default(), secret: u64::from_ne_bytes(secret) })
    }

    pub(super) fn secret(&self) -> u64 {
        self.secret
    }

    /// From the next look at the doorbells on.
    pub(super) fn add(&self, watch: WriteWatch) {
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push(watch);
    }

    fn take(&self) -> Vec<WriteWatch> {
        std::mem::take(&mut *self.new.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The watches of who looks at the doorbells.
#[derive(Default)]
pub(super) struct Watched {
    all: Vec<WriteWatch>,
    are_armed: bool,
}

impl Watched {
    /// Sleeps until something is written, or for a time; whether something is.
    pub(super) fn sleep(&mut self, watches: &Watches, time: Duration) -> bool {
        self.arm(watches.take());
        if self.all.is_empty() {
            thread::sleep(time);
            return false;
        }
        let mut files: Vec<PollFd<'_>> = (self.all.iter())
            .map(|watch| PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN))
            .collect();
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        // An interrupted sleep is a short one.
        let is_written = poll(&mut files, Some(&time)).is_ok_and(|count| count > 0);
        if is_written {
            self.let_go();
        }
        is_written
    }

    /// Arms what is not armed yet, and forgets what is mapped no more.
    fn arm(&mut self, new: Vec<WriteWatch>) {
        let arm = |watch: &WriteWatch| match watch.arm() {
            // The process is about to have a child.
            Err(error) => error.raw_os_error() == Some(libc::EAGAIN),
            Ok(()) => true,
        };
        if !self.are_armed {
            self.all.retain(arm);
        }
        self.are_armed = true;
        let room = MOST.saturating_sub(self.all.len());
        self.all.extend(new.into_iter().take(room).filter(arm));
    }

    /// Lets all write. Who arms must do that before it does what may take long.
    pub(super) fn let_go(&mut self) {
        if std::mem::take(&mut self.are_armed) {
            self.all.retain(|watch| watch.let_go().is_ok());
        }
    }
}
