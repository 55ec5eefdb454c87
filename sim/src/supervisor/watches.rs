//! Tells at once of doorbells that are rung after a while: the page that a program writes is watched.
//!
//! A program that rings often is looked for often, and its writes are its own. Where nobody has rung for a while, the
//! first who does waits until we have seen that. It needs Linux 5.19, and that a program may call `userfaultfd`, which
//! containers may not permit: else doorbells are looked at as time goes by, and no more.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nvabi_supervise::{WATCH_FLAGS, WriteWatch, filters_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits;

/// Watches of all programs: each has a descriptor of ours.
const MOST: usize = 256;

/// What was mapped and is not watched yet.
pub(super) struct Watches {
    new: Mutex<Vec<WriteWatch>>,
    /// How many filters a program is under that has none of its own; none where it may not be made to ask for a watch.
    filters: Option<u32>,
}

impl Watches {
    pub(super) fn new() -> Self {
        let own = filters_of(std::process::id()).ok();
        Self {
            new: Mutex::default(),
            filters: own.filter(|own| *own == 0 || survives_asking()).map(|own| own + 1),
        }
    }

    /// Whether a thread may be made to ask for a watch: a filter of its own might end it for that.
    pub(super) fn may_be_asked_for(&self, thread: u32) -> bool {
        self.filters.is_some() && filters_of(thread).ok() == self.filters
    }

    /// Watches a mapping from the next look at the doorbells on, while there is room.
    pub(super) fn add(&self, file: OwnedFd, address: u64, length: u64) {
        let mut new = self.list();
        if new.len() < MOST && !limits::is_spare(&file) {
            new.extend(WriteWatch::new(file, address, length));
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<WriteWatch>> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a process under the filters that this one is under goes on when it asks for a watch.
fn survives_asking() -> bool {
    // SAFETY: the child makes two calls, which take numbers alone, and is gone; `status` is for the kernel to write.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::syscall(libc::SYS_userfaultfd, WATCH_FLAGS);
            libc::_exit(0);
        }
        let mut status = -1;
        child > 0 && libc::waitpid(child, &mut status, 0) == child && status == 0
    }
}

/// The watches of who looks at the doorbells.
#[derive(Default)]
pub(super) struct Watched {
    all: Vec<WriteWatch>,
    are_armed: bool,
}

impl Watched {
    /// Takes what was mapped since, in the place of what is mapped no more.
    pub(super) fn take(&mut self, watches: &Watches) {
        let new = std::mem::take(&mut *watches.list());
        if !new.is_empty() {
            self.are_armed = false;
            self.all.retain(|watch| watch.let_go().is_ok());
            self.all.extend(new);
            self.all.truncate(MOST);
        }
    }

    /// Sleeps until something is written, or for a time; whether something is.
    pub(super) fn sleep(&mut self, time: Duration) -> bool {
        if !self.are_armed {
            self.all.retain(|watch| watch.arm().is_ok());
            self.are_armed = true;
        }
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

    /// Lets all write. Who arms must do that before it does what may take long.
    pub(super) fn let_go(&mut self) {
        if std::mem::take(&mut self.are_armed) {
            self.all.retain(|watch| watch.let_go().is_ok());
        }
    }
}
