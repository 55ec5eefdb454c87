//! Notices when the last process lets go of a file.
//!
//! inotify says that somebody closed a file, and a lease then whether somebody else still has it. The
//! order of releases and calls is kept: a close is reported before it returns to the process, and what
//! was reported is handled before each call. That of releases and of writes to files of text is kept by the order of
//! the reports: who is killed behind a write releases its files after it.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::files::FileId;
use crate::machine::Machine;
use crate::memory::{Inode, Node};
use nvabi_supervise::check;

/// Who closed what.
#[derive(Debug)]
pub(super) struct Releases {
    events: OwnedFd,
    watched: Mutex<HashMap<i32, Watched>>,
    /// What somebody closed, and somebody still had when it was looked at.
    ///
    /// inotify reports a close before the kernel drops its count of openings: whoever reads it may look too early, and
    /// looks again before each call.
    suspects: Mutex<BTreeSet<FileId>>,
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// A file of the machine's, for when it is closed.
    File(Inode),
    /// A file of text, for when it is written.
    Text(Inode),
}

/// What somebody did, in the order in which it was done.
#[derive(Debug, Clone, Copy)]
enum Done {
    Closed(Inode),
    Wrote(Inode),
    /// More than was reported.
    Lost,
}

impl Releases {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the call takes a number; the kernel has just made the descriptor, and returned it here alone.
        let events = unsafe {
            let flags = libc::IN_NONBLOCK | libc::IN_CLOEXEC;
            OwnedFd::from_raw_fd(check(libc::inotify_init1(flags))?)
        };
        Ok(Self { events, watched: Mutex::default(), suspects: Mutex::default() })
    }

    /// Begins to look at a file.
    pub(super) fn watch(&self, node: &Node) -> io::Result<()> {
        let events = libc::IN_CLOSE_WRITE | libc::IN_CLOSE_NOWRITE;
        self.add(node.descriptor(), events, Watched::File(node.inode()))
    }

    /// Begins to look at a file of text, until nobody has it.
    pub(super) fn watch_text(&self, file: &OwnedFd, inode: Inode) -> io::Result<()> {
        self.add(file.as_raw_fd(), libc::IN_MODIFY, Watched::Text(inode))
    }

    fn add(&self, fd: i32, events: u32, what: Watched) -> io::Result<()> {
        let path = CString::new(format!("/proc/self/fd/{fd}"))?;
        let mut watched = self.watched();
        // SAFETY: the path ends with a zero byte and outlives the call; `self` keeps the descriptor open.
        let watch = check(unsafe {
            libc::inotify_add_watch(self.events.as_raw_fd(), path.as_ptr(), events)
        })?;
        watched.insert(watch, what);
        Ok(())
    }

    /// Waits until somebody closes something, at most some milliseconds.
    pub(super) fn wait(&self, milliseconds: i32) {
        let mut poll =
            libc::pollfd { fd: self.events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel reads and writes as many entries as it is told: the one that is here.
        unsafe { libc::poll(&mut poll, 1, milliseconds) };
    }

    /// Releases what nobody has any more, and says of each file of text that was written that it was, before what was
    /// released after that.
    pub(super) fn settle(
        &self,
        machine: &mut dyn Machine,
        mut wrote: impl FnMut(&mut dyn Machine, Inode),
    ) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        for done in self.read_events() {
            match done {
                Done::Closed(inode) => suspects.extend(machine.file_of(inode)),
                Done::Lost => suspects.extend(machine.files()),
                Done::Wrote(inode) => {
                    suspects.retain(|file| !self.settle_file(machine, *file));
                    wrote(machine, inode);
                }
            }
        }
        suspects.retain(|file| !self.settle_file(machine, *file));
    }

    /// What was done since this was asked last. What is done meanwhile is for the next time: there may be no end of it.
    fn read_events(&self) -> Vec<Done> {
        let mut all = Vec::new();
        let mut buffer = [0_u8; 4096];
        let mut left = rustix::io::ioctl_fionread(&self.events).unwrap_or(0);
        while left > 0 {
            // SAFETY: the kernel writes no more bytes than it is told, which is the length of the buffer.
            let length = unsafe {
                libc::read(self.events.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len())
            };
            match usize::try_from(length) {
                Ok(read @ 1..) => {
                    all.extend(self.done(&buffer[..read]));
                    left = left.saturating_sub(read as u64);
                }
                _ => break,
            }
        }
        all
    }

    /// Looks at every file.
    pub(super) fn settle_all(&self, machine: &mut dyn Machine) {
        for file in machine.files() {
            self.settle_file(machine, file);
        }
    }

    fn done(&self, events: &[u8]) -> Vec<Done> {
        let mut watched = self.watched();
        let mut all = Vec::new();
        // `struct inotify_event` is four words and a name, which is empty where a file is watched.
        for event in events.chunks_exact(16) {
            let word = |at: usize| {
                u32::from_ne_bytes([event[at], event[at + 1], event[at + 2], event[at + 3]])
            };
            let (watch, mask) = (word(0) as i32, word(4));
            if mask & libc::IN_Q_OVERFLOW != 0 {
                all.push(Done::Lost);
            }
            if mask & libc::IN_IGNORED != 0 {
                watched.remove(&watch);
                continue;
            }
            all.extend(watched.get(&watch).map(|what| match what {
                Watched::File(inode) => Done::Closed(*inode),
                Watched::Text(inode) => Done::Wrote(*inode),
            }));
        }
        all
    }

    /// `true`: nobody has the file any more.
    fn settle_file(&self, machine: &mut dyn Machine, file: FileId) -> bool {
        let Some(open) = machine.file(file) else { return true };
        if open.node.is_open() {
            return false;
        }
        let inode = open.node.inode();
        machine.release(file);
        let mut watched = self.watched();
        let is_it = |(_, other): &(&i32, &Watched)| **other == Watched::File(inode);
        let watch = watched.iter().find(is_it).map(|(watch, _)| *watch);
        if let Some(watch) = watch {
            watched.remove(&watch);
            // SAFETY: the call takes numbers alone, and `self` keeps the descriptor open.
            unsafe { libc::inotify_rm_watch(self.events.as_raw_fd(), watch) };
        }
        true
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Access;
    use crate::tegra::{Kernel, Release};

    /// inotify reports a close before the kernel counts one opening less: whoever looks in between sees the file
    /// open, and no other report follows. Here the last close is not reported at all, which comes to the same.
    #[test]
    fn a_file_found_open_too_early_is_checked_again() {
        let mut kernel = Kernel::new(Release::ours(), crate::log::Log::default(), 0);
        let file = kernel.open_tsg(None).unwrap();
        let node = Machine::file(&kernel, file).unwrap().node;
        let releases = Releases::new().unwrap();
        releases.watch(&node).unwrap();
        let (first, last) = (node.open(Access::Both).unwrap(), node.open(Access::Both).unwrap());

        drop(first);
        releases.settle(&mut kernel, |_, _| {});
        assert_eq!(kernel.files(), [file], "somebody still has it");

        let watch = *releases.watched().keys().next().unwrap();
        // SAFETY: the call takes numbers alone, and `releases` keeps the descriptor open.
        check(unsafe { libc::inotify_rm_watch(releases.events.as_raw_fd(), watch) }).unwrap();
        drop(last);
        releases.settle(&mut kernel, |_, _| {});
        assert_eq!(kernel.files(), [], "nobody has it any more");
    }
}
