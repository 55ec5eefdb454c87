//! The three driver scalars that carry more meaning than their width: a handle, a user pointer and
//! a UUID. They are types of their own so that a struct which puts a plain integer where the driver
//! has a handle does not pass the checks. This module knows nothing of drivers or layouts.

use core::fmt;

#[cfg(feature = "zerocopy")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The name of an object in a client's resource tree, 4 bytes.
#[doc(alias = "NvHandle")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "zerocopy", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(transparent)]
pub struct Handle(pub u32);

/// A pointer of the calling process, always 8 bytes wide.
#[doc(alias = "NvP64")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "zerocopy", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(transparent)]
pub struct P64(pub u64);

/// The UUID of a processor: 16 bytes, written as they lie in memory.
#[doc(alias = "NvProcessorUuid")]
#[doc(alias = "NvUuid")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "zerocopy", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(transparent)]
pub struct Uuid(pub [u8; 16]);

impl From<u32> for Handle {
    fn from(value: u32) -> Self {
        Self(value)
    }
}

impl From<Handle> for u32 {
    fn from(handle: Handle) -> Self {
        handle.0
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl P64 {
    /// The pointer that points nowhere.
    pub const NULL: Self = Self(0);

    /// Whether the pointer points nowhere.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl From<u64> for P64 {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl From<P64> for u64 {
    fn from(pointer: P64) -> Self {
        pointer.0
    }
}

impl fmt::Display for P64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl From<[u8; 16]> for Uuid {
    fn from(value: [u8; 16]) -> Self {
        Self(value)
    }
}

impl From<Uuid> for [u8; 16] {
    fn from(uuid: Uuid) -> Self {
        uuid.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_prints_in_five_groups() {
        let uuid = Uuid::from(core::array::from_fn(|at| at as u8 * 0x11));
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn numbers_print_in_hexadecimal() {
        assert_eq!(Handle(0xc1d0_0001).to_string(), "0xc1d00001");
        assert_eq!(P64::from(0x7fff_0000).to_string(), "0x7fff0000");
        assert!(P64::NULL.is_null());
    }
}
