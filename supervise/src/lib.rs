//! Stops, reads and answers the system calls of other processes.
//!
//! [`filter`](program) chooses which calls stop, so that all others cost nothing; a [`Listener`] reads the
//! calls that wait and answers them or lets the kernel make them. The simulators of `nvabi-sim` and the
//! command `nvabi sniff` are built on it. It needs Linux 5.19 or newer.

mod errno;
mod filter;
mod notify;

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

pub use errno::{Errno, check};
pub use filter::{load, program, unless, when};
pub use notify::{Give, Listener, Next, Notification};

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

/// The number of the process that a thread is of.
pub fn process_of(thread: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let process = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|process| process.trim().parse().ok());
    Ok(process.ok_or(io::ErrorKind::InvalidData)?)
}
