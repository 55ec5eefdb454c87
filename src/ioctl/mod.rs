//! Typed ioctls: the call's type names the request and what it takes.
//!
//! These are the calls as they are made, without any object or driver around them: each compiles to
//! the instructions of the ioctl written by hand.

#[cfg(all(feature = "rm", any_driver))]
mod rm;

use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::call::{Ioctl, Request};

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
///
/// # Examples
///
/// A request for more bytes than there are parameters does not compile:
///
#[cfg_attr(feature = "tegra-r36", doc = "```compile_fail")]
#[cfg_attr(not(feature = "tegra-r36"), doc = "```ignore")]
/// # use std::os::fd::AsFd;
/// # use nvabi::call::{Call, Info, Ioctl, Views};
/// # use nvabi::tegra::r36::ioctl::NVMAP_IOC_FREE;
/// enum Eight {}
/// # // SAFETY: the call is not made.
/// # unsafe impl Call for Eight {
/// #     type Params = u32;
/// #     const VIEWS: Views = NVMAP_IOC_FREE::VIEWS;
/// #     const INFO: &'static Info = NVMAP_IOC_FREE::INFO;
/// # }
/// // SAFETY: none: the request has eight bytes, and `u32` four.
/// unsafe impl Ioctl for Eight {
///     const REQUEST: u32 = 0xc008_4601;
/// }
/// let mut params = 0;
/// // SAFETY: it is no fd of a driver.
/// _ = unsafe { nvabi::ioctl::ioctl::<Eight>(std::io::stdin().as_fd(), &mut params) };
/// ```
///
/// With as many it does:
///
#[cfg_attr(feature = "tegra-r36", doc = "```")]
#[cfg_attr(not(feature = "tegra-r36"), doc = "```ignore")]
/// # use std::os::fd::AsFd;
/// # use nvabi::call::{Call, Info, Ioctl, Views};
/// # use nvabi::tegra::r36::ioctl::NVMAP_IOC_FREE;
/// # enum Eight {}
/// # // SAFETY: the call is not made.
/// # unsafe impl Call for Eight {
/// #     type Params = u64;
/// #     const VIEWS: Views = NVMAP_IOC_FREE::VIEWS;
/// #     const INFO: &'static Info = NVMAP_IOC_FREE::INFO;
/// # }
/// # // SAFETY: the request has eight bytes, and so has `u64`.
/// # unsafe impl Ioctl for Eight {
/// #     const REQUEST: u32 = 0xc008_4601;
/// # }
/// # let mut params = 0;
/// # // SAFETY: it is no fd of a driver.
/// _ = unsafe { nvabi::ioctl::ioctl::<Eight>(std::io::stdin().as_fd(), &mut params) };
/// ```
#[inline]
pub unsafe fn ioctl<C: Ioctl>(fd: BorrowedFd<'_>, params: &mut C::Params) -> io::Result<c_int> {
    const {
        assert!(
            Request(C::REQUEST).size() as usize <= size_of::<C::Params>(),
            "the request is for more bytes than the parameters have"
        );
    }
    // SAFETY: the driver copies as many bytes as the request says, which `params` has by the assertion;
    // of a request that says none, `Call` promises that it takes no more than `C::Params`. The node and
    // the addresses in `params` are the caller's promise.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, params) };
    io_result(result)
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
    // SAFETY: the driver takes the argument as a number, as the caller promises, so none is used as an
    // address.
    io_result(unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, value) })
}

#[inline]
fn io_result(result: c_int) -> io::Result<c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
