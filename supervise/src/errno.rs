//! Errors as the kernel numbers them; their names are nix's.

use std::fmt;
use std::str::FromStr;

/// Behind the last number.
const END: i32 = 134;

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = stringify!($name)] pub const $name: Errno = Errno(libc::$name);)*
        }
    };
}

errnos! {
    EPERM, ENOENT, EINTR, EIO, EBADF, EAGAIN, ENOMEM, EACCES, EFAULT, EBUSY, EEXIST, ENODEV,
    ENOTDIR, EISDIR, ENXIO, ERANGE, EINVAL, ENFILE, EMFILE, ENOTTY, ENOSPC, EPIPE, ENOSYS, ETIMEDOUT,
    EOPNOTSUPP, EADDRINUSE, EBADFD, EOVERFLOW, ELOOP, EXDEV, ENAMETOOLONG, ECONNREFUSED,
}

impl Errno {
    /// The kernel's own, which programs should not see and some drivers return.
    pub const ENOTSUPP: Errno = Errno(524);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match nix::errno::Errno::from_raw(self.0) {
            nix::errno::Errno::UnknownErrno => write!(f, "errno {}", self.0),
            known => write!(f, "{known:?}"),
        }
    }
}

impl FromStr for Errno {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = (1..END).map(Errno).find(|errno| errno.to_string() == text);
        named.ok_or_else(|| format!("unknown error number `{text}`"))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// The result of a C function, or the error in `errno` where it is negative.
///
/// # Errors
///
/// The error in `errno`.
pub fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
