//! The argument of an ioctl: bytes of the caller's, seen as the driver's structs.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::layouts::Move;
use super::{Errno, Result};
use crate::client::Client;
use crate::tegra::abi::{PlainRecord, Record};

/// No ioctl of these nodes has a larger argument.
const MAX: usize = 264;

/// The driver's copy of the argument: as long as the request says, zeros behind that.
#[derive(Debug)]
pub(crate) struct Args {
    bytes: [u8; MAX],
    size: usize,
    /// As it came, where it lies otherwise in the release that is simulated.
    theirs: Option<Theirs>,
}

#[derive(Debug)]
struct Theirs {
    bytes: [u8; MAX],
    moves: Arc<[Move]>,
}

impl Args {
    /// A copy that nothing was read into yet.
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: [0; MAX], size: size.min(MAX), theirs: None }
    }

    /// Reads it from the caller's memory; whether all of it was there.
    pub(crate) fn read(&mut self, client: &dyn Client, address: u64) -> bool {
        client.read(address, &mut self.bytes[..self.size]) == self.size
    }

    /// Brings it from the layout of the release to that of the rules.
    pub(super) fn enter(&mut self, moves: Option<Arc<[Move]>>) {
        let Some(moves) = moves else { return };
        let bytes = std::mem::replace(&mut self.bytes, [0; MAX]);
        for part in moves.iter() {
            let from = &bytes[part.theirs..part.theirs + part.length];
            self.bytes[part.ours..part.ours + part.length].copy_from_slice(from);
        }
        self.theirs = Some(Theirs { bytes, moves });
    }

    /// Writes it to the caller's memory; returns how many bytes could not be written.
    pub(crate) fn uncopied(&self, client: &dyn Client, address: u64) -> i64 {
        let Some(Theirs { bytes, moves }) = &self.theirs else {
            return uncopied(client, address, &self.bytes[..self.size]);
        };
        let mut bytes = *bytes;
        for part in moves.iter() {
            let from = &self.bytes[part.ours..part.ours + part.length];
            bytes[part.theirs..part.theirs + part.length].copy_from_slice(from);
        }
        uncopied(client, address, &bytes[..self.size])
    }

    /// Writes it to the caller's memory.
    pub(crate) fn write(&self, client: &dyn Client, address: u64) -> Result<()> {
        if self.uncopied(client, address) != 0 { Err(Errno::EFAULT) } else { Ok(()) }
    }

    /// As a struct of the driver.
    pub(crate) fn get<T: Record>(&self) -> T {
        from_bytes(&self.bytes)
    }

    /// Stores a struct of the driver.
    pub(crate) fn put<T: PlainRecord>(&mut self, value: &T) {
        let bytes = value.bytes();
        let length = bytes.len().min(MAX);
        self.bytes[..length].copy_from_slice(&bytes[..length]);
    }

    /// Changes a struct of the driver in place.
    pub(crate) fn update<T: PlainRecord>(&mut self, change: impl FnOnce(&mut T)) {
        let mut value = self.get();
        change(&mut value);
        self.put(&value);
    }

    /// One word, of an argument that the driver declares as an integer or as a union of them.
    pub(crate) fn word(&self, index: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[index * 4..index * 4 + 4]);
        u32::from_le_bytes(word)
    }

    /// Stores one word.
    pub(crate) fn put_word(&mut self, index: usize, value: u32) {
        self.bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Stores two words.
    pub(crate) fn put_double(&mut self, index: usize, value: u64) {
        self.put_word(index, value as u32);
        self.put_word(index + 1, (value >> 32) as u32);
    }

    /// Two words.
    pub(crate) fn double(&self, index: usize) -> u64 {
        u64::from(self.word(index)) | u64::from(self.word(index + 1)) << 32
    }
}

/// The bytes of a struct.
pub(crate) fn as_bytes<T: PlainRecord>(value: &T) -> &[u8] {
    value.bytes()
}

/// A struct of bytes; those that are missing are zero.
pub(crate) fn from_bytes<T: Record>(bytes: &[u8]) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let length = bytes.len().min(size_of::<T>());
    // SAFETY: no more bytes than both have; whatever bytes a record holds are a value of it.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), length);
        value.assume_init()
    }
}

/// A struct in the caller's memory.
pub(crate) fn read<T: Record>(client: &dyn Client, address: u64) -> Result<T> {
    let mut bytes = vec![0; size_of::<T>()];
    if client.read(address, &mut bytes) < bytes.len() {
        return Err(Errno::EFAULT);
    }
    Ok(from_bytes(&bytes))
}

/// Writes to the caller's memory; returns how many bytes could not be written.
pub(crate) fn uncopied(client: &dyn Client, address: u64, bytes: &[u8]) -> i64 {
    (bytes.len() - client.write(address, bytes)) as i64
}

/// Writes to the caller's memory.
pub(crate) fn write(client: &dyn Client, address: u64, bytes: &[u8]) -> Result<()> {
    if uncopied(client, address, bytes) != 0 { Err(Errno::EFAULT) } else { Ok(()) }
}
