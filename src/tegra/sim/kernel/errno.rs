//! Errors as the kernel numbers them.

use std::fmt;
use std::str::FromStr;

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = stringify!($name)] pub const $name: Errno = Errno(libc::$name);)*
        }

        /// Those that have a name here.
        const NAMES: &[(&str, Errno)] = &[$((stringify!($name), Errno::$name)),*];
    };
}

errnos! {
    EPERM, ENOENT, EINTR, EIO, EBADF, EAGAIN, ENOMEM, EACCES, EFAULT, EBUSY, EEXIST, ENODEV,
    ENOTDIR, EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, ENOSPC, EPIPE, ENOSYS, ETIMEDOUT,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, errno)| errno == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl FromStr for Errno {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, errno)) => Ok(*errno),
            None => Err(format!("unknown error number `{text}`")),
        }
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
