//! Addresses as a kernel sees them, which runs while the driver does other things.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvabi_emu::{Foreign, MemoryAccess};

use super::engine::KernelSpace;

/// What is mapped where, that threads may look at.
pub(crate) trait Mappings: Debug + Send + Sync {
    type Bytes: Bytes;

    /// First address and end of what is mapped around an address.
    fn range(&self, address: u64) -> Option<(u64, u64)>;

    /// The memory at an address.
    fn at(&self, address: u64) -> Option<Found<Self::Bytes>>;

    /// Whether there is no memory, but a way to the scheduler of launches (the driver: SMSKED_MESSAGE, a SKED reflected
    /// range).
    fn is_reflected(&self, _address: u64) -> bool {
        false
    }
}

/// Memory at an address: from where on in it, and how many bytes.
pub(crate) struct Found<B> {
    pub(crate) bytes: B,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) is_writable: bool,
}

impl<B> Found<B> {
    /// Whether so many bytes may be accessed.
    fn permits(&self, length: u64, is_write: bool) -> bool {
        length <= self.length && (self.is_writable || !is_write)
    }
}

/// Memory that is mapped.
pub(crate) trait Bytes {
    /// Copies out; whether all of it was there.
    fn read(&self, offset: u64, into: &mut [u8]) -> bool;

    /// Copies in, words and double words at once.
    fn write(&self, offset: u64, from: &[u8]) -> bool;

    /// Stores aligned bytes where others are found, in one step; what was found. None where that cannot be.
    fn compare_exchange(&self, offset: u64, width: usize, old: u64, new: u64) -> Option<u64>;
}

/// Bytes of a message to the scheduler, and more of them than it takes of one kernel.
const MESSAGE: u64 = 8;
const MOST_MESSAGES: usize = 1 << 11;

/// Mappings as one kernel uses them.
#[derive(Debug)]
pub(crate) struct Seen<M> {
    mappings: M,
    /// The first access that could not be.
    refused: Mutex<Option<(u64, MemoryAccess)>>,
    /// What was stored into reflected pages, oldest first.
    messages: Mutex<Vec<u64>>,
}

impl<M: Mappings> Seen<M> {
    pub(crate) fn new(mappings: M) -> Self {
        Self { mappings, refused: Mutex::default(), messages: Mutex::default() }
    }

    fn refused(&self) -> MutexGuard<'_, Option<(u64, MemoryAccess)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn messages(&self) -> MutexGuard<'_, Vec<u64>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the scheduler takes what is stored where no memory is.
    fn takes(&self, address: u64, width: u64, value: u64) -> bool {
        let is_message = width == MESSAGE && self.mappings.is_reflected(address);
        if is_message {
            let mut messages = self.messages();
            if messages.len() < MOST_MESSAGES {
                messages.push(value);
            }
        }
        is_message
    }

    /// What came of an access. Where it cannot be it is refused, unless something else is done instead.
    fn access<T>(
        &self,
        (address, length): (u64, u64),
        wanted: MemoryAccess,
        access: impl FnOnce(&M::Bytes, u64) -> Option<T>,
        instead: impl FnOnce() -> bool,
    ) -> Option<T> {
        let found = self
            .mappings
            .at(address)
            .filter(|found| found.permits(length, wanted != MemoryAccess::Read));
        let done = found.and_then(|found| access(&found.bytes, found.offset));
        if done.is_none() && !instead() {
            self.refused().get_or_insert((address, wanted));
        }
        done
    }
}

impl<M: Mappings> Foreign for Seen<M> {
    fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.mappings.range(address)
    }

    fn load(&self, address: u64, width: u64) -> u64 {
        let mut bytes = [0; 8];
        let into = &mut bytes[..width as usize];
        let read = |of: &M::Bytes, at| of.read(at, into).then_some(());
        self.access((address, width), MemoryAccess::Read, read, || {
            self.mappings.is_reflected(address)
        });
        u64::from_le_bytes(bytes)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let length = bytes.len() as u64;
        let read = |of: &M::Bytes, at| of.read(at, bytes).then_some(());
        // The scheduler's words are read one by one.
        let instead = || self.mappings.is_reflected(address);
        self.access((address, length), MemoryAccess::Read, read, instead).is_some()
    }

    fn store(&self, address: u64, width: u64, value: u64) {
        let bytes = &value.to_le_bytes()[..width as usize];
        let write = |of: &M::Bytes, at| of.write(at, bytes).then_some(());
        self.access((address, width), MemoryAccess::Write, write, || {
            self.takes(address, width, value)
        });
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let found = self.mappings.at(address);
        let found = found.filter(|found| found.permits(bytes.len() as u64, true));
        found.is_some_and(|found| found.bytes.write(found.offset, bytes))
    }

    fn compare_exchange(&self, address: u64, width: u64, old: u64, new: u64) -> u64 {
        let exchange = |of: &M::Bytes, at| of.compare_exchange(at, width as usize, old, new);
        // The scheduler's word is free whenever somebody looks.
        let instead = || old == 0 && self.takes(address, width, new);
        self.access((address, width), MemoryAccess::Atomic, exchange, instead).unwrap_or(old)
    }
}

impl<M: Mappings> KernelSpace for Seen<M> {
    fn take_refused(&self) -> Option<(u64, MemoryAccess)> {
        self.refused().take()
    }

    fn take_messages(&self) -> Vec<u64> {
        std::mem::take(&mut self.messages())
    }
}
