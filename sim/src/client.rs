//! What the kernel may do with the process that calls it.

use std::ops::Range;
use std::time::Duration;

use crate::log::RunId;
use crate::memory::{Access, Inode, Node, Pages};
use nvabi_supervise::Errno;

/// The caller. Its memory is hostile: it may not be there, and changes between two reads.
pub(crate) trait Client {
    /// Its thread group.
    fn process(&self) -> u32;

    /// The run that it is of.
    fn run(&self) -> RunId;

    /// Copies from its memory; returns how many bytes were there.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;

    /// Copies to its memory; returns how many bytes could be written.
    fn write(&self, address: u64, from: &[u8]) -> usize;

    /// Its memory from an address on, for later; none where it may not itself read and write all of that.
    fn pages(&self, address: u64, length: u64) -> Option<Pages>;

    /// What one of its file descriptors is.
    fn descriptor(&self, fd: i32) -> Descriptor;

    /// Gives it a descriptor of a file, closed by `exec`.
    fn install(&self, node: &Node, access: Access) -> Result<i32, Errno>;

    /// Whether it may have another descriptor.
    fn has_room(&self) -> bool;

    /// Where a process has mapped a file of ours; none where it does not let that be seen.
    fn mappings_of(&self, process: u32, inode: Inode) -> Option<Vec<Range<u64>>>;

    /// Whether it has mapped anything at some addresses; none where it does not let that be seen.
    fn has_mapped(&self, addresses: Range<u64>) -> Option<bool>;

    /// Closes one of its descriptors before it gets its answer.
    fn close(&self, fd: i32);

    /// Whether it has `CAP_SYS_NICE`.
    fn may_reschedule(&self) -> bool;

    /// Lets it wait before it gets its answer.
    fn delay(&self, time: Duration);

    /// Lets others make calls while work is done, whose result is the answer.
    fn go_on(&self, work: Work);
}

/// What is left to do of a call, and needs nothing but its caller's memory.
pub(crate) type Work = Box<dyn FnOnce(&dyn Client) -> Result<i64, Errno> + Send>;

/// What a file descriptor of the caller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// No open file.
    Closed,
    /// A file, and how it was opened.
    Open(Inode, Access),
}
