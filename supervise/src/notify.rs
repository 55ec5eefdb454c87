//! Notifications: system calls that wait for an answer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::{Errno, check};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: whoever waits runs on the processor of who wakes it.
const SYNC_WAKE_UP: u64 = 1;

/// What the kernel calls the file of a listener (`init_listener` in `kernel/seccomp.c`).
const LISTENER: &str = "anon_inode:seccomp notify";

/// A system call that waits.
#[derive(Debug, Clone, Copy)]
pub struct Notification {
    id: u64,
    /// The thread that made it.
    pub thread: u32,
    /// Its number.
    pub call: i64,
    /// Its arguments, as the registers had them.
    pub args: [u64; 6],
}

impl Notification {
    fn of(raw: &libc::seccomp_notif) -> Self {
        Self { id: raw.id, thread: raw.pid, call: raw.data.nr.into(), args: raw.data.args }
    }
}

/// What a look for calls has found.
#[derive(Debug)]
pub enum Next {
    /// A call that waits for its answer.
    Call(Notification),
    /// Nobody calls now.
    Nothing,
    /// No process is left.
    Over,
}

/// Where the calls of all processes under the filter are read from.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Reads from the descriptor that [`load`](crate::load) returned.
    ///
    /// # Errors
    ///
    /// `InvalidInput` where it is of any other file: a driver may take the requests for its own, and write
    /// to memory what it likes.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if link.as_os_str() != LISTENER {
            let what = format!("not a listener of seccomp but {}", link.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // Kernels before 6.6 do not have it; they are slower, and that is all.
        // SAFETY: the file is seccomp's, whose `SET_FLAGS` takes a number by value.
        unsafe {
            libc::ioctl(fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS as _, SYNC_WAKE_UP);
        }
        Ok(Self { fd })
    }

    /// The next call; waits for one, or says that there is none.
    pub fn next(&self, waits: bool) -> io::Result<Next> {
        loop {
            let mut poll =
                libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let timeout = if waits { -1 } else { 0 };
            // SAFETY: the kernel reads and writes as many entries as it is told: the one that is here.
            match check(unsafe { libc::poll(&mut poll, 1, timeout) }) {
                Ok(0) => return Ok(Next::Nothing),
                Ok(_) if poll.revents & libc::POLLIN == 0 => return Ok(Next::Over),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // SAFETY: the struct is of integers, so zeros are a value of it; the kernel refuses others.
            let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the file is seccomp's, as `new` has checked, and its request, whose number holds the
            // size of the struct, writes one such struct: `raw`.
            match check(unsafe {
                libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &mut raw)
            }) {
                Ok(_) => return Ok(Next::Call(Notification::of(&raw))),
                // The caller was killed, or its time was up, before we looked.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the real kernel make the call.
    pub fn pass(&self, notification: &Notification) {
        self.respond(notification, 0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    /// Answers a call. When the caller is gone nobody is answered, and that is fine.
    pub fn answer(&self, notification: &Notification, result: Result<i64, Errno>) {
        match result {
            Ok(value) => self.respond(notification, value, 0, 0),
            Err(errno) => self.respond(notification, 0, -errno.0, 0),
        }
    }

    fn respond(&self, notification: &Notification, val: i64, error: i32, flags: u32) {
        let response = libc::seccomp_notif_resp { id: notification.id, val, error, flags };
        // SAFETY: the file is seccomp's, and its request reads one such struct, which outlives the call.
        unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &response);
        }
    }

    /// Whether the caller still waits: what was read from its memory was its own.
    pub fn is_valid(&self, notification: &Notification) -> bool {
        // SAFETY: the file is seccomp's, and its request reads one `u64`, which outlives the call.
        unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _,
                &notification.id,
            ) == 0
        }
    }

    /// Adds a descriptor to those of the caller; by `how`, also as the answer, or in place of another.
    pub fn add_fd(
        &self,
        notification: &Notification,
        file: BorrowedFd<'_>,
        how: AddFd,
    ) -> Result<i32, Errno> {
        let (flags, newfd, newfd_flags) = match how {
            AddFd::New { cloexec } => (0, 0, cloexec),
            AddFd::Answer { cloexec } => (libc::SECCOMP_ADDFD_FLAG_SEND as u32, 0, cloexec),
            AddFd::Replace(fd) => (libc::SECCOMP_ADDFD_FLAG_SETFD as u32, fd as u32, false),
        };
        let newfd_flags = if newfd_flags { libc::O_CLOEXEC as u32 } else { 0 };
        let request = libc::seccomp_notif_addfd {
            id: notification.id,
            flags,
            srcfd: file.as_raw_fd() as u32,
            newfd,
            newfd_flags,
        };
        // SAFETY: the file is seccomp's, and its request reads one such struct, which outlives the call.
        let added = check(unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD as _, &request)
        })?;
        Ok(added)
    }
}

/// How a descriptor is added to those of a caller.
#[derive(Debug, Clone, Copy)]
pub enum AddFd {
    /// As a new one; the call still waits.
    New {
        /// Closed by `exec`.
        cloexec: bool,
    },
    /// As a new one, which is the answer to the call.
    Answer {
        /// Closed by `exec`.
        cloexec: bool,
    },
    /// In the place of this one of its descriptors.
    Replace(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_listeners_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = Listener::new(file.into()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "not a listener of seccomp but /dev/null");
    }
}
