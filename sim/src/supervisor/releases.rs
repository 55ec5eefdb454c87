//! Notices when the last process lets go of a file.
//!
//! inotify says that somebody closed a file, and a lease then whether somebody else still has it. The
//! order of releases and calls is kept: a close is told before it returns to the process, and what
//! was told is looked at before each call.

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
    watched: Mutex<HashMap<i32, Inode>>,
}

impl Releases {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the call takes a number; the kernel has just made the descriptor, and returned it here alone.
        let events = unsafe {
            let flags = libc::IN_NONBLOCK | libc::IN_CLOEXEC;
            OwnedFd::from_raw_fd(check(libc::inotify_init1(flags))?)
        };
        Ok(Self { events, watched: Mutex::new(HashMap::new()) })
    }

    /// Begins to look at a file.
    pub(super) fn watch(&self, node: &Node) -> io::Result<()> {
        let path = CString::new(format!("/proc/self/fd/{}", node.descriptor()))?;
        let events = libc::IN_CLOSE_WRITE | libc::IN_CLOSE_NOWRITE;
        // SAFETY: the path ends with a zero byte and outlives the call; `self` keeps the descriptor open.
        let watch = check(unsafe {
            libc::inotify_add_watch(self.events.as_raw_fd(), path.as_ptr(), events)
        })?;
        self.watched().insert(watch, node.inode());
        Ok(())
    }

    /// Waits until somebody closes something, at most some milliseconds.
    pub(super) fn wait(&self, milliseconds: i32) {
        let mut poll =
            libc::pollfd { fd: self.events.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel reads and writes as many entries as it is told: the one that is here.
        unsafe { libc::poll(&mut poll, 1, milliseconds) };
    }

    /// Releases what nobody has any more.
    pub(super) fn settle(&self, machine: &mut dyn Machine) {
        let mut buffer = [0_u8; 4096];
        loop {
            // SAFETY: the kernel writes no more bytes than it is told, which is the length of the buffer.
            let length = unsafe {
                libc::read(self.events.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len())
            };
            let Ok(length) = usize::try_from(length) else { return };
            if length == 0 {
                return;
            }
            let (closed, overflowed) = self.closed(&buffer[..length], machine);
            for file in closed {
                self.settle_file(machine, file);
            }
            if overflowed {
                self.settle_all(machine);
            }
        }
    }

    /// Looks at every file.
    pub(super) fn settle_all(&self, machine: &mut dyn Machine) {
        for file in machine.files() {
            self.settle_file(machine, file);
        }
    }

    fn closed(&self, events: &[u8], machine: &dyn Machine) -> (BTreeSet<FileId>, bool) {
        let mut closed = BTreeSet::new();
        let mut overflowed = false;
        let mut watched = self.watched();
        // `struct inotify_event` is four words and a name, which is empty where a file is watched.
        for event in events.chunks_exact(16) {
            let word = |at: usize| {
                u32::from_ne_bytes([event[at], event[at + 1], event[at + 2], event[at + 3]])
            };
            let (watch, mask) = (word(0) as i32, word(4));
            overflowed |= mask & libc::IN_Q_OVERFLOW != 0;
            if mask & libc::IN_IGNORED != 0 {
                watched.remove(&watch);
            } else if let Some(inode) = watched.get(&watch) {
                closed.extend(machine.file_of(*inode));
            }
        }
        (closed, overflowed)
    }

    fn settle_file(&self, machine: &mut dyn Machine, file: FileId) {
        let Some(open) = machine.file(file) else { return };
        if open.node.is_open() {
            return;
        }
        let inode = open.node.inode();
        machine.release(file);
        let mut watched = self.watched();
        let watch = watched.iter().find(|(_, other)| **other == inode).map(|(watch, _)| *watch);
        if let Some(watch) = watch {
            watched.remove(&watch);
            // SAFETY: the call takes numbers alone, and `self` keeps the descriptor open.
            unsafe { libc::inotify_rm_watch(self.events.as_raw_fd(), watch) };
        }
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Inode>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
