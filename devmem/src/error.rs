//! What can go wrong with memory and devices, with the place where it did.

use std::fmt;
use std::io;

/// Why something did not work. It names the device, file or call.
#[derive(Debug)]
pub struct Error(Box<Inner>);

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A device or file could not be opened.
    Open,
    /// The kernel refused a call.
    Call,
    /// The device has no such operation.
    Unsupported,
    /// What was asked for cannot be.
    Invalid,
    /// Memory is not what its description says.
    Mismatch,
    /// Bytes are not what their format asks for.
    Format,
    /// A device was not finished in time.
    Timeout,
    /// A plugin could not be used, or did not keep to the interface.
    Plugin,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    what: String,
    source: Option<io::Error>,
}

/// What this module's functions give.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of a kind; `what` says what was tried, on what.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), source: None }))
    }

    /// The same with the error of the operating system behind it.
    pub fn io(kind: ErrorKind, what: impl Into<String>, source: io::Error) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), source: Some(source) }))
    }

    /// A system call that failed.
    pub(crate) fn call(call: &str, source: io::Error) -> Self {
        Self::io(ErrorKind::Call, call, source)
    }

    /// What was asked for cannot be.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    /// The device has no such operation.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, what)
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The error number of a call that the kernel refused.
    pub fn errno(&self) -> Option<i32> {
        self.0.source.as_ref()?.raw_os_error()
    }

    /// Whether it says nothing about the memory: the device is busy, something else ran out, or a
    /// signal came.
    pub(crate) fn is_passing(&self) -> bool {
        use nix::libc::{EACCES, EAGAIN, EBUSY, EINTR, EMFILE, ENFILE, ENOMEM, ENOSPC};
        let passing = [EBUSY, ENOMEM, ENOSPC, EMFILE, ENFILE, EAGAIN, EACCES, EINTR];
        self.errno().is_some_and(|errno| passing.contains(&errno))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}
