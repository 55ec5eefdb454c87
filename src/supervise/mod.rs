//! What stands between programs and the kernel needs of it: which of their system calls stop, and what is
//! read of those that wait. The simulators use it, and the command `nvabi sniff`.

mod filter;
mod notify;

use std::{fs, io};

pub use filter::{load, program, unless, when};
pub use notify::{Give, Listener, Next, Notification};

/// The number of the process that a thread is of.
pub fn process_of(thread: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let process = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|process| process.trim().parse().ok());
    Ok(process.ok_or(io::ErrorKind::InvalidData)?)
}
