//! When devices are finished with memory: the fences of a dma-buf.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::buffer::{Buffer, Piece};
use super::driver::{Transition, Wait};
use super::error::{Error, ErrorKind, Result};
use super::uapi::{self, DmaBufSyncFile, SyncFileInfo, SyncMerge};

/// What is to be done with memory, and so whom it must wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// To read it: writers must be finished.
    Read,
    /// To write it: readers and writers must be.
    Write,
}

impl Intent {
    fn flags(self) -> u32 {
        (match self {
            Self::Read => uapi::SYNC_READ,
            Self::Write => uapi::SYNC_WRITE,
        }) as u32
    }

    fn events(self) -> PollFlags {
        match self {
            Self::Read => PollFlags::POLLIN,
            Self::Write => PollFlags::POLLOUT,
        }
    }
}

impl Buffer {
    /// Waits until the devices that put fences on the memory are finished; a memfd has none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`], and what the kernel says.
    pub fn wait(&self, intent: Intent, patience: Duration) -> Result<()> {
        // None is as good as for ever.
        let end = Instant::now().checked_add(patience);
        self.pieces().iter().try_for_each(|piece| {
            let left = end.map_or(patience, |end| end.saturating_duration_since(Instant::now()));
            wait(piece.as_fd(), intent.events(), left, "the fences of a buffer")
        })
    }

    /// What the memory must wait for now, as a sync file: to hand to a device that waits for fences
    /// explicitly. Needs Linux 6.0.
    ///
    /// # Errors
    ///
    /// When the memory is no dma-buf, and what the kernel says.
    pub fn export_fence(&self, intent: Intent) -> Result<OwnedFd> {
        let mut fences = self.pieces().iter().map(|piece| piece.export_fence(intent));
        let none = || Error::invalid("a buffer without memory");
        let first = fences.next().ok_or_else(none)??;
        fences.try_fold(first, |one, other| merged(one.as_fd(), other?.as_fd()))
    }

    /// Puts a fence on the memory, so that others wait for it: what a device with explicit fences
    /// gave for its work. Needs Linux 6.0.
    ///
    /// # Errors
    ///
    /// When the memory is no dma-buf or the file no sync file, and what the kernel says.
    pub fn import_fence(&self, intent: Intent, fence: BorrowedFd<'_>) -> Result<()> {
        self.pieces().iter().try_for_each(|piece| piece.import_fence(intent, fence))
    }
}

impl Piece {
    fn export_fence(&self, intent: Intent) -> Result<OwnedFd> {
        let mut params = DmaBufSyncFile { flags: intent.flags(), fd: -1 };
        // SAFETY: the record holds numbers and no address. A file that is no dma-buf rejects the request, or has
        // one of this number, which copies no more than the size in it: this record's.
        unsafe { uapi::DMA_BUF_EXPORT_SYNC_FILE.call(self.as_fd(), &mut params) }
            // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
            .and_then(|_| unsafe { uapi::own(params.fd) })
            .map_err(|error| Error::call("DMA_BUF_IOCTL_EXPORT_SYNC_FILE", error))
    }

    fn import_fence(&self, intent: Intent, fence: BorrowedFd<'_>) -> Result<()> {
        let mut params = DmaBufSyncFile { flags: intent.flags(), fd: fence.as_raw_fd() };
        // SAFETY: the record holds numbers and no address. A file that is no dma-buf rejects the request, or has
        // one of this number, which copies no more than the size in it: this record's. `fence` is open until it
        // returns, and the kernel takes a reference of its own.
        unsafe { uapi::DMA_BUF_IMPORT_SYNC_FILE.call(self.as_fd(), &mut params) }
            .map(drop)
            .map_err(|error| Error::call("DMA_BUF_IOCTL_IMPORT_SYNC_FILE", error))
    }
}

/// A sync file that is finished when both are.
fn merged(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<OwnedFd> {
    let mut params =
        SyncMerge { name: *MERGED, fd2: other.as_raw_fd(), fence: -1, flags: 0, pad: 0 };
    // SAFETY: the record holds a name, numbers and no address. Both are sync files, which the kernel has just made.
    unsafe { uapi::SYNC_MERGE.call(one, &mut params) }
        // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
        .and_then(|_| unsafe { uapi::own(params.fence) })
        .map_err(|error| Error::call("SYNC_IOC_MERGE", error))
}

/// What a merged sync file is called.
const MERGED: &[u8; 32] = b"nvabi-devmem\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

impl Transition {
    /// Waits as this transition asks for, where waiting is all that must be done: caches are kept in
    /// step by [`Access`](super::Access), and a device that puts no fences says itself when it is
    /// finished.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`], and what the kernel says.
    pub fn perform(self, buffer: &Buffer, intent: Intent, patience: Duration) -> Result<()> {
        match self.wait {
            Wait::Fences => buffer.wait(intent, patience),
            Wait::Nothing | Wait::Device => Ok(()),
        }
    }
}

/// Waits for a sync file, such as [`Buffer::export_fence`] gives.
///
/// # Errors
///
/// [`ErrorKind::Timeout`], what is no sync file (`ENOTTY`: many other files are ready at any time, as if they were
/// finished), and what the kernel says.
pub fn wait_fence(fence: BorrowedFd<'_>, patience: Duration) -> Result<()> {
    let mut info = SyncFileInfo::default();
    // SAFETY: the record holds numbers, and no address as it asks for no fences. A file that is no sync file rejects
    // the request, or has one of this number, which copies no more than the size in it: this record's.
    unsafe { uapi::SYNC_FILE_INFO.call(fence, &mut info) }
        .map_err(|error| Error::call("SYNC_IOC_FILE_INFO of a fence", error))?;
    wait(fence, PollFlags::POLLIN, patience, "a fence")
}

fn wait(fd: BorrowedFd<'_>, events: PollFlags, patience: Duration, what: &str) -> Result<()> {
    let end = Instant::now().checked_add(patience);
    loop {
        let left = end.map_or(patience, |end| end.saturating_duration_since(Instant::now()));
        // Rounded up, so that the last round does not spin.
        let left = left.as_millis() + u128::from(left.subsec_nanos() % 1_000_000 > 0);
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut polled = [PollFd::new(fd, events)];
        match poll(&mut polled, left) {
            Ok(0) if end.is_some_and(|end| Instant::now() >= end) => {
                let what = format!("waited {patience:?} for {what}");
                return Err(Error::new(ErrorKind::Timeout, what));
            }
            Ok(0) | Err(Errno::EINTR) => {}
            // Nothing to wait for says so at once.
            Ok(_) => match polled[0].revents() {
                Some(found) if found.intersects(events) => return Ok(()),
                found => {
                    let what = format!("cannot wait for {what}: poll gives {found:?}");
                    return Err(Error::new(ErrorKind::Call, what));
                }
            },
            Err(errno) => return Err(Error::call("poll of a fence", errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn patience_may_be_without_end() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        wait(file.as_fd(), PollFlags::POLLIN, Duration::MAX, "a file").unwrap();
        let short = wait(file.as_fd(), PollFlags::empty(), Duration::from_millis(1), "nothing");
        assert_eq!(short.unwrap_err().kind(), ErrorKind::Timeout);
    }

    #[test]
    fn what_is_no_fence_is_not_finished() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        for other in [&reader, &file] {
            let refused = wait_fence(other.as_fd(), Duration::ZERO).unwrap_err();
            assert_eq!(refused.errno(), Some(nix::libc::ENOTTY), "{refused}");
        }
        drop(writer);
        let hung_up = wait(reader.as_fd(), PollFlags::POLLIN, Duration::MAX, "a pipe").unwrap_err();
        assert_eq!(
            hung_up.to_string(),
            "cannot wait for a pipe: poll gives Some(PollFlags(POLLHUP))"
        );
    }
}
