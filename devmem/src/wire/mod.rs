//! Sets and descriptions as bytes, for other processes and for the C library.
//!
//! Both formats are little-endian. Any byte string gives a value or an error; counts are compared
//! with the bytes that are there before anything is allocated for them.

pub mod v0;
pub mod v1;

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::capability::{Capability, CapabilitySet};
use super::constraint::Constraint;

/// Bytes that are not what the format asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    /// Where, in bytes from the start.
    pub offset: usize,
    /// What is there, or is not.
    pub what: String,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset)
    }
}

impl std::error::Error for WireError {}

/// The head of a set.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSet {
    constraints: U32,
    capabilities: U32,
}

/// One constraint.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawConstraint {
    name: U32,
    _pad: [u8; 4],
    value: U64,
}

/// The head of a capability; its payload follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCapability {
    vendor: U32,
    name: U16,
    words: U16,
    required: u8,
    _pad: [u8; 3],
}

/// Bytes that are read from the front.
struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
    /// Padding that is not zero is an error.
    strict: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], strict: bool) -> Self {
        Self { all: bytes, rest: bytes, strict }
    }

    fn offset(&self) -> usize {
        self.all.len() - self.rest.len()
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, WireError> {
        Err(WireError { offset: self.offset(), what: what.into() })
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], WireError> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => {
                let left = self.rest.len();
                self.error(format!("{what} takes {count} bytes, but {left} are left"))
            }
        }
    }

    fn read<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        what: &str,
    ) -> Result<&'a T, WireError> {
        let bytes = self.take(size_of::<T>(), what)?;
        T::ref_from_bytes(bytes).or_else(|_| self.error(format!("{what} cannot be read")))
    }

    /// So many things of at least `each` bytes must still be there.
    fn count(&self, count: u32, each: usize, what: &str) -> Result<usize, WireError> {
        let left = self.rest.len();
        match usize::try_from(count) {
            Ok(count) if count.checked_mul(each).is_some_and(|all| all <= left) => Ok(count),
            _ => self.error(format!("{count} {what} do not fit into the {left} bytes left")),
        }
    }

    /// An error at `offset`, when what is wrong there matters.
    fn demand(&self, holds: bool, offset: usize, what: &str) -> Result<(), WireError> {
        match holds || !self.strict {
            true => Ok(()),
            false => Err(WireError { offset, what: what.to_owned() }),
        }
    }

    fn set(&mut self) -> Result<CapabilitySet, WireError> {
        let head: &RawSet = self.read("the head of a set")?;
        let count = head.constraints.get();
        let count = self.count(count, size_of::<RawConstraint>(), "constraints")?;
        let constraints: Vec<_> =
            (0..count).map(|_| self.constraint()).collect::<Result<_, _>>()?;
        let count = head.capabilities.get();
        let count = self.count(count, size_of::<RawCapability>(), "capabilities")?;
        let capabilities: Vec<_> =
            (0..count).map(|_| self.capability()).collect::<Result<_, _>>()?;
        Ok(CapabilitySet::new(constraints, capabilities))
    }

    fn constraint(&mut self) -> Result<Constraint, WireError> {
        let offset = self.offset();
        let raw: &RawConstraint = self.read("a constraint")?;
        let constraint = Constraint::from_raw(raw.name.get(), raw.value.get());
        self.demand(raw._pad == [0; 4], offset + 4, "padding that is not zero")?;
        let whole = constraint.value == raw.value.get();
        self.demand(whole, offset + 8, "a value of 32 bits that has more")?;
        Ok(constraint)
    }

    fn capability(&mut self) -> Result<Capability, WireError> {
        let offset = self.offset();
        let raw: &RawCapability = self.read("a capability")?;
        self.demand(raw.required <= 1, offset + 8, "neither required nor not")?;
        self.demand(raw._pad == [0; 3], offset + 9, "padding that is not zero")?;
        let words = self.take(usize::from(raw.words.get()) * 4, "a capability's payload")?;
        let word = |word: &[u8]| word.try_into().map_or(0, u32::from_le_bytes);
        Ok(Capability {
            vendor: raw.vendor.get(),
            name: raw.name.get(),
            required: raw.required != 0,
            payload: words.chunks_exact(4).map(word).collect(),
        })
    }

    fn end(&self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            left => self.error(format!("{left} bytes are left over")),
        }
    }
}

/// Why a value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// The payload of the capability of this index has more words than the format can count.
    Payload(usize),
    /// A list or text is longer than the format can count; which one.
    TooLong(&'static str),
    /// The value of the constraint of this index does not fit its 32 bits.
    Wide(usize),
    /// A device has a name that nobody would take; why.
    Name(String),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload(at) => write!(f, "the payload of capability {at} is over 65535 words"),
            Self::TooLong(what) => write!(f, "{what} cannot be counted by the format"),
            Self::Wide(at) => write!(f, "the value of constraint {at} does not fit 32 bits"),
            Self::Name(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for WriteError {}

fn counted<N: TryFrom<usize>>(len: usize, what: &'static str) -> Result<N, WriteError> {
    N::try_from(len).map_err(|_| WriteError::TooLong(what))
}

fn put_set(out: &mut Vec<u8>, set: &CapabilitySet) -> Result<(), WriteError> {
    let head = RawSet {
        constraints: U32::new(counted(set.constraints.len(), "the list of constraints")?),
        capabilities: U32::new(counted(set.capabilities.len(), "the list of capabilities")?),
    };
    out.extend_from_slice(head.as_bytes());
    put_constraints(out, &set.constraints)?;
    put_capabilities(out, &set.capabilities)
}

fn put_constraints(out: &mut Vec<u8>, constraints: &[Constraint]) -> Result<(), WriteError> {
    for (at, Constraint { name, value }) in constraints.iter().enumerate() {
        if Constraint::from_raw(name.0, *value).value != *value {
            return Err(WriteError::Wide(at));
        }
        let raw = RawConstraint { name: U32::new(name.0), _pad: [0; 4], value: U64::new(*value) };
        out.extend_from_slice(raw.as_bytes());
    }
    Ok(())
}

fn put_capabilities(out: &mut Vec<u8>, capabilities: &[Capability]) -> Result<(), WriteError> {
    for (at, capability) in capabilities.iter().enumerate() {
        let words = u16::try_from(capability.payload.len()).map_err(|_| WriteError::Payload(at))?;
        let raw = RawCapability {
            vendor: U32::new(capability.vendor),
            name: U16::new(capability.name),
            words: U16::new(words),
            required: u8::from(capability.required),
            _pad: [0; 3],
        };
        out.extend_from_slice(raw.as_bytes());
        capability.payload.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
    Ok(())
}
