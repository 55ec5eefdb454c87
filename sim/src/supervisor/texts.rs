//! Files of text that programs write: what was written is taken over before the next call that could tell.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::target::Target;
use super::{AnyMachine, Run, Shared};
use crate::client::Client as _;
use crate::machine::{self, Machine, Text};
use crate::memory::{self, Access, Inode};
use crate::{Errno, limits};
use nvabi_supervise::{AddFd, Notification, check};

/// Longest text that is taken from a writer: sysfs takes one page.
const TEXT_MAX: usize = 4096;

/// A file of text that somebody has opened to write it.
#[derive(Debug)]
pub(super) struct Writer {
    text: Text,
    /// Who has opened it.
    by: machine::Writer,
    file: OwnedFd,
    inode: Inode,
    /// What it said last, where what is written lies among that; else each write is taken out of it.
    before: Option<Vec<u8>>,
}

impl Writer {
    fn settle(&mut self, machine: &mut dyn Machine) {
        for written in self.take() {
            machine.write_text(self.text, &written, self.by);
        }
    }

    /// What was written since this was asked last.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let Some(before) = &mut self.before else { return lines(&take_out(&self.file)) };
        let mut now = bytes_of(&self.file, 0, TEXT_MAX);
        if !self.text.is_binary {
            let end = now.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            now.truncate(end);
        }
        if now == *before {
            return Vec::new();
        }
        before.clone_from(&now);
        vec![now]
    }
}

impl Run {
    /// A copy of what the file says. What is written to it counts when somebody looks next.
    pub(super) fn open_text(
        &self,
        target: &Target<'_>,
        n: &Notification,
        text: Text,
        flags: i32,
        how: AddFd,
    ) -> Result<i32, Errno> {
        let access = Access::of(flags);
        if access != Access::Read && !text.is_writable {
            return Err(Errno::EACCES);
        }
        let machine = self.machine();
        let is_cut = flags & libc::O_TRUNC != 0 || access == Access::Write;
        // What is written alone is a value: it does not lie among what was there.
        let is_empty = is_cut && text.is_writable && !text.is_binary;
        let before = if is_empty { Vec::new() } else { machine.bytes(text) };
        let file = text_file(&before)?;
        if limits::is_spare(&file) {
            return Err(Errno::EMFILE);
        }
        let given = reopen(&file, access).map_err(Errno::from)?;
        if access != Access::Read {
            let before = (text.is_binary || !before.is_empty()).then_some(before);
            let by = machine::Writer { process: target.process(), thread: n.thread };
            self.watch_writer(text, by, file, before)?;
        }
        drop(machine);
        self.listener.add_fd(n, given.as_fd(), how)
    }

    /// Takes over what was written, as what happens in this run.
    pub(super) fn settle_texts(&self) {
        // One that was killed has closed its file before its thread is gone.
        let are_held = self.writers_are_held.load(Ordering::Acquire);
        if are_held || !self.writers().is_empty() {
            self.shared.settle_texts(&mut self.machine());
        }
    }

    /// Whether a write of a thread has not returned yet, so that it makes no call.
    pub(super) fn is_held(&self, thread: u32) -> bool {
        self.settle_texts();
        self.writers_are_held.load(Ordering::Acquire)
            && self.machine().held_writers().contains(&thread)
    }
}

impl Shared {
    /// Begins to look at what is written to a file of text.
    fn watch_writer(
        &self,
        text: Text,
        by: machine::Writer,
        file: OwnedFd,
        before: Option<Vec<u8>>,
    ) -> io::Result<()> {
        let inode = Inode::of(&memory::stat(file.as_raw_fd())?);
        self.releases.watch_text(&file, inode)?;
        self.writers().push(Writer { text, by, file, inode, before });
        Ok(())
    }

    /// Takes over what was released and written, in the order in which it was.
    pub(super) fn settle(&self, machine: &mut dyn Machine) {
        let mut writers = self.writers();
        self.releases.settle(machine, |machine, inode| {
            let written = writers.iter_mut().filter(|writer| writer.inode == inode);
            written.for_each(|writer| writer.settle(machine));
        });
    }

    /// Takes over what was written to files of text, which may change the files that there are.
    pub(super) fn settle_texts(&self, machine: &mut AnyMachine) {
        self.settle(&mut **machine);
        // Who makes a call waits for the machine where there are writers: none goes before the paths are those after it.
        let mut writers = self.writers();
        // What is mapped is written without a report.
        settle_writers(&mut **machine, &mut writers);
        // Who was killed in a write makes no call by which that would be noticed.
        machine.forget_writers(&|thread| !Path::new(&format!("/proc/{thread}")).exists());
        self.writers_are_held.store(!machine.held_writers().is_empty(), Ordering::Release);
        self.renew_tree(machine);
    }
}

/// Takes over what was written to files of text.
fn settle_writers(machine: &mut dyn Machine, writers: &mut Vec<Writer>) {
    writers.retain_mut(|writer| {
        // Whoever closes it has written before.
        let is_open = is_open(&writer.file);
        writer.settle(machine);
        is_open
    });
}

/// What a file of text says now, from an offset on. Its writers can make it as long as they like.
fn bytes_of(file: &OwnedFd, start: i64, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    // SAFETY: the kernel writes no more bytes than it is told, which is the length of the vector, and `file`
    // keeps the descriptor open meanwhile.
    let length =
        unsafe { libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), start) };
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    bytes
}

/// Takes what was written out of a file, so that the same can be written again. Writers go on where they are: what lies
/// before them is a hole from then on.
fn take_out(file: &OwnedFd) -> Vec<u8> {
    /// So that nobody who writes faster than this reads is waited for.
    const MOST: usize = 1 << 20;
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let mut all = Vec::new();
    while all.len() < MOST {
        // SAFETY: the call takes numbers alone, and `file` keeps the descriptor open meanwhile.
        let start = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_DATA) };
        if start < 0 {
            break;
        }
        // A page of which a part was taken out begins with zeros.
        let bytes = bytes_of(file, start, 2 * TEXT_MAX);
        let Some(first) = bytes.iter().position(|byte| *byte != 0) else { break };
        all.extend_from_slice(&bytes[first..]);
        // SAFETY: as above. What is written meanwhile lies behind the hole.
        unsafe { libc::fallocate(file.as_raw_fd(), how, 0, start + bytes.len() as i64) };
    }
    all
}

/// The writes in what was written, each of which is a line: what was taken out before is zeros.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lines = bytes.split(|byte| [0, b'\n'].contains(byte));
    lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Whether somebody else has the file open.
fn is_open(file: &OwnedFd) -> bool {
    // SAFETY: both calls take numbers alone, and `file` keeps the descriptor open meanwhile.
    unsafe {
        let is_alone = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) == 0;
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        !is_alone
    }
}

fn text_file(text: &[u8]) -> io::Result<OwnedFd> {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends with a zero byte; the kernel has just made the descriptor, and returned it here
    // alone.
    let mut file = unsafe {
        fs::File::from_raw_fd(check(libc::memfd_create(c"nvabi-text".as_ptr(), libc::MFD_CLOEXEC))?)
    };
    file.write_all(text)?;
    // The first descriptor of a memory file is not counted among its openings.
    reopen(&file.into(), Access::Both)
}

fn reopen(file: &OwnedFd, access: Access) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let (read, write) = (access != Access::Write, access != Access::Read);
    Ok(fs::OpenOptions::new().read(read).write(write).open(path)?.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::machine::EntryKind;
    use crate::tegra::{Kernel, Release};

    /// A machine on which somebody has written what is no frequency, and was killed: it makes no more calls.
    fn machine_with_last_words() -> Shared {
        let kernel = Kernel::new(Release::ours(), crate::log::Log::default(), 0);
        let text = kernel.entries().into_iter().find_map(|entry| match entry.kind {
            EntryKind::Text(text) if text.is_writable => Some(text),
            _ => None,
        });
        let shared = Shared::new(Box::new(kernel)).unwrap();
        let file = text_file(b"").unwrap();
        let mut writer = fs::File::from(reopen(&file, Access::Write).unwrap());
        let by = machine::Writer { process: 0, thread: 0 };
        shared.watch_writer(text.unwrap(), by, file, None).unwrap();
        writer.write_all(b"nonsense").unwrap();
        shared
    }

    fn is_heard(shared: &Shared) -> bool {
        shared.machine().log().report(0).diagnostics.iter().any(|it| it.code == "bad-frequency")
    }

    #[test]
    fn what_was_written_last_counts_at_the_end() {
        let shared = machine_with_last_words();
        assert!(!is_heard(&shared));
        shared.release_all();
        assert!(is_heard(&shared) && shared.writers().is_empty());
    }

    #[test]
    fn what_was_written_last_counts_while_nobody_calls() {
        let shared = machine_with_last_words();
        std::thread::scope(|scope| {
            scope.spawn(|| shared.watch_releases());
            let end = Instant::now() + Duration::from_secs(20);
            while !is_heard(&shared) && Instant::now() < end {
                std::thread::yield_now();
            }
            shared.stop();
        });
        assert!(is_heard(&shared));
    }
}
