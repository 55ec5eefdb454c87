//! Ioctls of this module's objects: tried again when a signal came, and named in errors.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::error::{Error, ErrorKind, Result};
use crate::call::{Call, Ioctl};
use crate::ioctl;

/// Makes a typed ioctl.
///
/// # Safety
///
/// As [`ioctl::ioctl`].
#[inline]
pub(super) unsafe fn call<C: Ioctl>(fd: BorrowedFd<'_>, params: &mut C::Params) -> Result<c_int> {
    loop {
        // SAFETY: the caller's promise. A call that a signal broke off has changed nothing.
        match unsafe { ioctl::ioctl::<C>(fd, params) } {
            Ok(result) => return Ok(result),
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
    // SAFETY: the caller's promise.
    unsafe { ioctl::ioctl_value::<C>(fd, value) }.map(|_| ()).map_err(refused::<C>)
}

#[cold]
fn refused<C: Call>(error: io::Error) -> Error {
    Error::io(ErrorKind::Call, C::INFO.name, error)
}

/// What a driver returned that returns nothing on purpose.
pub(super) trait Outcome {
    /// Fails when part of the answer could not be copied back.
    fn complete(self) -> Result<()>;
}

impl Outcome for Result<c_int> {
    fn complete(self) -> Result<()> {
        match self? {
            0 => Ok(()),
            left => {
                let message = format!("the driver could not copy back {left} bytes of its answer");
                Err(Error::new(ErrorKind::CopyBack, message))
            }
        }
    }
}

/// Takes an fd that a call gave.
///
/// # Safety
///
/// The kernel has just made it for us.
pub(super) unsafe fn own(fd: RawFd, call: &'static str) -> Result<OwnedFd> {
    match fd {
        0.. => {
            // SAFETY: it is new and nobody else's, says the caller.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(Error::new(ErrorKind::Call, format!("{call} gave no fd, but {fd}"))),
    }
}
