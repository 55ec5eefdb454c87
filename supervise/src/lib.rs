//! Stops, reads and answers the system calls of other processes.
//!
//! [`filter`](program) chooses which calls stop, so that all others cost nothing; a [`Listener`] reads the
//! calls that wait and answers them or lets the kernel make them. A [`Tracee`] is stopped by `ptrace` instead.
//! What both need is here once: memory of other processes, descriptors that are sent between processes, signals
//! that are read like a file, and a [watch](WriteWatch) of what is written without any call.
//! The simulators of `nvabi-sim` and the command `nvabi sniff` are built on it. It needs Linux 5.19 or newer.

mod errno;
mod filter;
mod memory;
mod notify;
mod rights;
mod signals;
mod tracee;
mod watch;

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

pub use errno::{Errno, check};
pub use filter::{load, program, unless, when};
pub use memory::{
    Pin, open_memory, read_memory, read_memory_at_once, write_memory, write_memory_at_once,
};
pub use notify::{AddFd, Listener, Next, Notification};
pub use rights::{peek_byte, receive_descriptor, send_descriptor};
pub use signals::{ENDING, Signal, Signals};
pub use tracee::{
    AT_CALL, CallStop, Registers, Resume, Tracee, Waited, wait_for_any, wait_for_end,
};
pub use watch::{USER_MODE_ONLY, WATCH_FLAGS, WriteWatch};

/// A path without `.` and `..`, as if no part of it were a symbolic link.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            other => out.push(other),
        }
    }
    out
}

/// A descriptor that becomes readable when a process ends, and whose number is of no other process later.
pub fn open_process(process: u32) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(process as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// The same open file that a descriptor of another process is, and not another opening of it. It needs the rights of a
/// debugger.
pub fn descriptor_of(process: u32, fd: i32) -> io::Result<OwnedFd> {
    Ok(pidfd_getfd(open_process(process)?.as_fd(), fd, PidfdGetfdFlags::empty())?)
}

/// The number of the process that a thread is of.
pub fn process_of(thread: u32) -> io::Result<u32> {
    number_of(thread, "Tgid:")
}

/// How many seccomp filters a thread is under.
pub fn filters_of(thread: u32) -> io::Result<u32> {
    number_of(thread, "Seccomp_filters:")
}

/// A number that the kernel tells of a thread.
fn number_of(thread: u32, name: &str) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let number = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|number| number.trim().parse().ok());
    Ok(number.ok_or(io::ErrorKind::InvalidData)?)
}
