//! What the kernel may do with the process that calls it.

use std::ops::Range;
use std::time::Duration;

use crate::log::RunId;
use crate::memory::{Access, Inode, Node, Pages};
use nvabi_supervise::Errno;
pub(crate) use nvabi_supervise::Pin;

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

    /// Its memory from an address on, for later; none where not all of that is such as a driver takes.
    fn pages(&self, address: u64, length: u64, pin: Pin) -> Option<Pages>;

    /// What one of its file descriptors is.
    fn descriptor(&self, fd: i32) -> Descriptor;

    /// Gives it a descriptor of a file, closed by `exec`.
    fn install(&self, node: &Node, access: Access) -> Result<i32, Errno>;

    /// Whether it may have another descriptor.
    fn has_room(&self) -> bool;

    /// Where a process has mapped a file of ours; none where it does not let that be seen.
    fn mappings_of(&self, process: u32, inode: Inode) -> Option<Vec<Range<u64>>>;

    /// The first of its mappings that ends behind an address, which it need not have; none at all where it does not
    /// let that be seen.
    fn mapping_from(&self, address: u64) -> Option<Option<Mapped>>;

    /// Whether it has mapped anything at some addresses; none where it does not let that be seen.
    fn has_mapped(&self, addresses: Range<u64>) -> Option<bool> {
        let first = self.mapping_from(addresses.start)?;
        Some(first.is_some_and(|mapped| mapped.addresses.start < addresses.end))
    }

    /// Closes one of its descriptors before it gets its answer.
    fn close(&self, fd: i32);

    /// Whether it has `CAP_SYS_NICE`.
    fn may_reschedule(&self) -> bool;

    /// Lets it wait before it gets its answer.
    fn delay(&self, time: Duration);

    /// Lets others make calls while work is done, whose result is the answer.
    fn go_on(&self, work: Work);
}

/// A mapping of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) addresses: Range<u64>,
    pub(crate) is_writable: bool,
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
