//! What a warp did, one step at a time.

use std::fmt;

use serde::{Serialize, Serializer};

use super::abi::r2 as abi;

/// What an [`Event`] is about. In a file, a kind that is none of these is damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKind(pub u8);

impl EventKind {
    /// A conditional branch or a switch; the value is an operand of its condition.
    pub const BRANCH: Self = Self(abi::NVABI_TRACE_BRANCH as u8);
    /// A store to shared memory; the value is what was stored.
    pub const SHARED_STORE: Self = Self(abi::NVABI_TRACE_SHARED_STORE as u8);
    /// An atomic operation; the value is what was in memory before, in files of gddbg v1 its operand.
    pub const ATOMIC: Self = Self(abi::NVABI_TRACE_ATOMIC as u8);
    /// A function was entered.
    pub const ENTRY: Self = Self(abi::NVABI_TRACE_ENTRY as u8);
    /// A function was left.
    pub const EXIT: Self = Self(abi::NVABI_TRACE_EXIT as u8);

    /// Whether it is one of those above.
    pub fn is_known(self) -> bool {
        self <= Self::EXIT
    }

    /// The name as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::BRANCH => "branch",
            Self::SHARED_STORE => "shared-store",
            Self::ATOMIC => "atomic",
            Self::ENTRY => "entry",
            Self::EXIT => "exit",
            _ => "other",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Numbers of 64 bits in JSON are texts, as `0x1f`: the numbers of many readers have but 53 bits.
pub(super) fn hex<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{number:#x}"))
}

fn hex_if_any<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => hex(number, serializer),
        None => serializer.serialize_none(),
    }
}

/// One event of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Event {
    /// Where in the program: the key of the site, the same in every build of it.
    #[serde(serialize_with = "hex")]
    pub site: u64,
    /// What happened there.
    pub kind: EventKind,
    /// Of a branch, as the lowest active lane went: 1 when it was taken, the case of a switch.
    pub direction: u32,
    /// The lanes that were active, lane 0 in bit 0.
    pub mask: u32,
    /// Of a branch, the active lanes that took it, where the format records them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ballot: Option<u32>,
    /// The value of the event, where one was recorded.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "hex_if_any")]
    pub value: Option<u64>,
}
