//! Where the bytes of a buffer really are: what a GPU reads and writes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::{Memory, Node, Pages};

/// The bytes of a buffer.
#[derive(Debug)]
pub(crate) enum Backing {
    /// A file of our own.
    Node(Arc<Node>),
    /// A part of a file that a process maps by its own address (`/dev/nvidia-uvm`).
    Part(Memory),
    /// A process, which told the driver of its pages.
    Pages(Pages),
}

impl From<Memory> for Backing {
    fn from(memory: Memory) -> Self {
        Self::Node(Arc::new(Node::Memory(memory)))
    }
}

impl Backing {
    /// The file behind it, which a process can map.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Node(node) => Some(node),
            Self::Part(_) | Self::Pages(_) => None,
        }
    }

    /// The memory, where it is in a file of our own.
    pub(crate) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Node(node) => node.memory(),
            Self::Part(part) => Some(part),
            Self::Pages(_) => None,
        }
    }

    /// Copies out; whether all of it was there.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        match self {
            Self::Pages(pages) => pages.read(offset, into),
            _ => self.memory().is_some_and(|memory| memory.read(offset, into)),
        }
    }

    /// Copies in, as [`Self::read`] copies out; words and double words at once.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> bool {
        match self {
            Self::Pages(pages) => pages.write(offset, from),
            _ => self.memory().is_some_and(|memory| memory.put(offset, from)),
        }
    }

    /// Stores aligned bytes, eight at most, where others are found; what was found. It is one step for kernels, and
    /// for programs as far as the memory is a file's.
    pub(crate) fn compare_exchange(
        &self,
        offset: u64,
        width: usize,
        old: u64,
        new: u64,
    ) -> Option<u64> {
        static ONE_STEP: Mutex<()> = Mutex::new(());
        if let Some(found) =
            self.memory().and_then(|memory| memory.compare_exchange(offset, width, old, new))
        {
            return Some(found);
        }
        let _step = ONE_STEP.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; 8];
        if !self.read(offset, bytes.get_mut(..width)?) {
            return None;
        }
        let found = u64::from_le_bytes(bytes);
        (found != old || self.write(offset, &new.to_le_bytes()[..width])).then_some(found)
    }
}
