//! Typed ioctls: the call's type names the request and what it takes.
//!
//! These are the calls as they are made, without any object or driver around them: each compiles to
//! the instructions of the ioctl written by hand.

#[cfg(all(feature = "rm", any_driver))]
mod rm;

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::call::Ioctl;

#[cfg(all(feature = "rm", any_driver))]
pub use rm::{Failure, control, frontend, frontend_array, uvm};
#[cfg(all(feature = "rm", any_driver))]
pub(crate) use rm::{address, escape};

/// Makes an ioctl that takes a record, or nothing, and gives what the kernel returned.
///
/// A positive result of a driver that returns none on purpose is the number of bytes that it could
/// not copy back.
///
/// # Errors
///
/// What the kernel says.
///
/// # Safety
///
/// - `fd` is of a node that knows the request as `C`: nodes share letters and numbers.
/// - Addresses in `params` are those of memory that the driver may read or write as `C` says.
#[inline]
pub unsafe fn ioctl<C: Ioctl>(fd: BorrowedFd<'_>, params: &mut C::Params) -> io::Result<c_int> {
    // SAFETY: the request says how long the parameters are, which is what `C::Params` is long
    // (`nvabi lint` compares the two); the rest is the caller's promise.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, params) };
    told(result)
}

/// Makes an ioctl whose argument is a value instead of an address.
///
/// # Errors
///
/// What the kernel says.
///
/// # Safety
///
/// `fd` is of a node that knows the request as `C`, which takes no address.
#[inline]
pub unsafe fn ioctl_value<C: Ioctl<Params = ()>>(
    fd: BorrowedFd<'_>,
    value: c_ulong,
) -> io::Result<c_int> {
    // SAFETY: the driver takes the argument as a number, says the caller.
    told(unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, value) })
}

#[inline]
fn told(result: c_int) -> io::Result<c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
