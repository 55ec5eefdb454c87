//! Why a call did not succeed.

use super::interface::Missing;
use crate::Errno;
use crate::Status;

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failed {
    /// The system call fails.
    Errno(Errno),
    /// The call's own status says it.
    Status(Status),
    /// The driver has the call, and we do not play it: its status, and what it is.
    NotSimulated(Status, String),
    /// The driver has not got the call: its status, and what was asked for.
    Unknown(Status, String),
    /// A value of a profile cannot be given: where it is, and why.
    Profile(String),
    /// The driver's struct lacks what the rules need.
    Missing(Missing),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Missing> for Failed {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

pub(super) type Result<T = (), E = Failed> = std::result::Result<T, E>;
