//! Ioctls of this module's objects: tried again when a signal came, and named in errors.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::error::{Error, ErrorKind, Result};
use crate::call::{Call, Ioctl};
use crate::ioctl;

/// Makes a typed ioctl, and fails as well when part of the answer could not be copied back: a driver
/// that returns nothing on purpose returns how much is left.
///
/// # Safety
///
/// As [`ioctl::ioctl`].
#[inline]
pub(super) unsafe fn call<C: Ioctl>(fd: BorrowedFd<'_>, params: &mut C::Params) -> Result<()> {
    loop {
        // SAFETY: the node and the addresses in `params` are the caller's promise, which holds for each try: a call
        // that a signal broke off has changed nothing.
        match unsafe { ioctl::ioctl::<C>(fd, params) } {
            Ok(0) => return Ok(()),
            Ok(left) => return Err(not_copied::<C>(left)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refused::<C>(error)),
        }
    }
}

/// Makes an ioctl that takes a value.
///
/// # Safety
///
/// As [`ioctl::ioctl_value`].
pub(super) unsafe fn call_value<C: Ioctl<Params = ()>>(
    fd: BorrowedFd<'_>,
    value: c_ulong,
) -> Result<()> {
    // SAFETY: the caller promises that the node takes the request with a number.
    unsafe { ioctl::ioctl_value::<C>(fd, value) }.map(|_| ()).map_err(refused::<C>)
}

#[cold]
fn not_copied<C: Call>(left: c_int) -> Error {
    let message =
        format!("{}: the driver could not copy back {left} bytes of its answer", C::INFO.name);
    Error::new(ErrorKind::CopyBack, message)
}

#[cold]
fn refused<C: Call>(error: io::Error) -> Error {
    Error::io(ErrorKind::Call, C::INFO.name, error)
}

/// Takes an fd that a call gave.
///
/// # Safety
///
/// The kernel has just made it for us.
pub(super) unsafe fn own(fd: RawFd, call: &'static str) -> Result<OwnedFd> {
    match fd {
        0.. => {
            // SAFETY: the caller promises that the kernel has just made it, so nobody else closes it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(Error::new(ErrorKind::Call, format!("{call} gave no fd, but {fd}"))),
    }
}
