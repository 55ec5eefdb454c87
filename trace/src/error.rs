//! What can be wrong with a trace.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A trace that cannot be read, written or compared. Says which file, and at which byte.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    offset: u64,
    problem: Problem,
}

/// What is wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The system says no.
    Io(io::Error),
    /// It is no trace at all.
    NotATrace,
    /// It is of a version that this library does not read.
    Version(u32),
    /// It has flags that this library does not know, and so may mean something else.
    Flags(u32),
    /// Something ends behind the end of the file.
    Truncated {
        /// What.
        what: &'static str,
        /// The bytes that it takes.
        needs: u64,
        /// The bytes that there are.
        has: u64,
    },
    /// The file became shorter after it was opened.
    CutShort {
        /// The bytes that it had.
        was: u64,
        /// The bytes that it has.
        is: u64,
    },
    /// A number that cannot be right, or that is more than a reader takes.
    Invalid {
        /// Which number.
        what: &'static str,
        /// The number.
        value: u64,
        /// The most that is right.
        limit: u64,
    },
    /// Bytes are not those that were written.
    Damaged(&'static str),
    /// It cannot be said in the format that is to be written.
    Unwritable(String),
    /// Two traces that cannot be compared.
    Incompatible(String),
    /// A list of sites that is not written as it should be.
    Map {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Error {
    pub(crate) fn new(path: &Path, offset: u64, problem: Problem) -> Self {
        Self { path: path.to_owned(), offset, problem }
    }

    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::new(path, 0, Problem::Io(error))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where in the file, in bytes from its start.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Io(_) if self.offset > 0 => {
                write!(f, "{path}: byte {}: {}", self.offset, self.problem)
            }
            Problem::Io(_) | Problem::Unwritable(_) | Problem::Incompatible(_) => {
                write!(f, "{path}: {}", self.problem)
            }
            Problem::Map { line, .. } => write!(f, "{path}:{line}: {}", self.problem),
            _ => write!(f, "{path}: byte {}: {}", self.offset, self.problem),
        }
    }
}

impl Problem {
    /// Whether the file could not be read: its content is not known, so it is not called damaged.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self, Self::Io(_) | Self::CutShort { .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotATrace => {
                f.write_str("not a trace: it starts neither as gddbg v1 nor as nvtrace v2")
            }
            Self::Version(version) => write!(f, "version {version} is not one that nvabi reads"),
            Self::Flags(flags) => write!(f, "unknown flags {flags:#x}"),
            Self::Truncated { what, needs, has } => {
                write!(f, "{what} takes {needs} bytes, but the file has {has} more")
            }
            Self::CutShort { was, is } => {
                write!(f, "the file was cut short while it was read: from {was} bytes to {is}")
            }
            Self::Invalid { what, value, limit } => {
                write!(f, "{what} is {value}, more than {limit}")
            }
            Self::Damaged(what) => write!(f, "{what}"),
            Self::Unwritable(why) | Self::Incompatible(why) => f.write_str(why),
            Self::Map { why, .. } => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            _ => None,
        }
    }
}
