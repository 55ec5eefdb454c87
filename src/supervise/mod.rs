//! What stands between programs and the kernel needs of it: which of their system calls stop, and what is
//! read of those that wait. The simulators use it, and the command `nvabi sniff`.

mod filter;
mod notify;

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

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
