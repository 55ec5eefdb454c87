//! One set, as the C library writes it on x86-64.
//!
//! | bytes | |
//! |---|---|
//! | 4, 4 | how many constraints, how many capabilities |
//! | 16 each | constraints: name (4), padding (4), value (8) |
//! | 12 + 4 n each | capabilities: vendor (4), name (2), n (2), required (1), padding (3), payload |
//!
//! Padding is ignored when it is read and zero when it is written, as is the upper half of a value
//! that has 32 bits; any `required` but 0 is read as one and written as 1.

use super::{Reader, WireError, WriteError, put_set};
use crate::capability::CapabilitySet;

/// Writes a set.
///
/// # Errors
///
/// When a list, a payload or a value does not fit the format.
pub fn write(set: &CapabilitySet) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    put_set(&mut out, set)?;
    Ok(out)
}

/// Reads a set, which must be all of the bytes.
///
/// # Errors
///
/// When there are too few bytes, or too many.
pub fn read(bytes: &[u8]) -> Result<CapabilitySet, WireError> {
    let mut reader = Reader::new(bytes, false);
    let set = reader.set()?;
    reader.end()?;
    Ok(set)
}
