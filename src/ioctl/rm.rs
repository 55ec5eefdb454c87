//! The three ways into the x86 driver: the frontend's ioctls, the commands that one of them
//! carries, and those of UVM.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{fmt, io, ptr};

use crate::call::{Accepts, Control, Frontend, Uvm};
use crate::{Handle, NvProxy, NvStatus, P64};

/// `NV_IOCTL_MAGIC`.
const MAGIC: u32 = b'F' as u32;
/// What the size's 14 bits in a request hold.
const LARGEST: usize = 0x3fff;
const NV_ESC_RM_CONTROL: u32 = 0x2a;
const NV_ESC_IOCTL_XFER_CMD: u32 = 0xd3;

/// Why a call came to nothing, where the parameters say so as well as the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The kernel's error number: the call has not reached the resource manager, or was not one of
    /// its calls.
    Errno(i32),
    /// What the resource manager says; never [`NvStatus::OK`].
    Status(NvStatus),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Errno(number) => io::Error::from_raw_os_error(*number).fmt(f),
            Failure::Status(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    #[inline]
    fn errno() -> Self {
        Failure::Errno(io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }
}

/// Makes an ioctl of `/dev/nvidiactl` or `/dev/nvidia*`. Parameters that are larger than a request can
/// say go by `NV_ESC_IOCTL_XFER_CMD`.
///
/// What the driver says in the parameters is not looked at.
///
/// # Errors
///
/// What the kernel says.
///
/// # Safety
///
/// - `fd` is of a node of a driver that has exactly this call ([`Call::VIEWS`](crate::call::Call)).
/// - Addresses in `params` are those of memory that the driver may read or write as `C` says.
#[inline]
pub unsafe fn frontend<C, P>(fd: BorrowedFd<'_>, params: &mut P) -> io::Result<()>
where
    C: Frontend + Accepts<P>,
{
    // SAFETY: the driver copies as many bytes as the request says (nv.c:2337 and 2378 of 550.90.07), which is the
    // size of `P`, and `Accepts` promises that the call takes one. Node and addresses are the caller's promise.
    io_result(unsafe { escape(fd, C::NR, ptr::from_mut(params).cast(), size_of::<P>()) })
}

/// Makes an ioctl whose parameters are an array ([`Info::array`](crate::call::Info)): its length goes
/// by the size of the request.
///
/// # Errors
///
/// What the kernel says.
///
/// # Safety
///
/// As [`frontend`].
#[inline]
pub unsafe fn frontend_array<C, P>(fd: BorrowedFd<'_>, params: &mut [P]) -> io::Result<()>
where
    C: Frontend + Accepts<P>,
{
    const { assert!(C::INFO.array, "this ioctl takes one struct: `frontend` makes it") };
    // SAFETY: the request says the size of the whole slice, and the driver copies that many bytes (nv.c:2337 and
    // 2378 of 550.90.07); that the call takes an array is asserted. The rest is the caller's promise.
    io_result(unsafe { escape(fd, C::NR, params.as_mut_ptr().cast(), size_of_val(params)) })
}

/// Makes an ioctl of `/dev/nvidia-uvm`.
///
/// What the driver says in the parameters (`rmStatus`) is not looked at.
///
/// # Errors
///
/// What the kernel says.
///
/// # Safety
///
/// As [`frontend`], for a UVM device.
#[inline]
pub unsafe fn uvm<C, P>(fd: BorrowedFd<'_>, params: &mut P) -> io::Result<()>
where
    C: Uvm + Accepts<P>,
{
    // SAFETY: the driver copies its own struct of the request (uvm_api.h:50 and 63 of 550.90.07), which `Accepts`
    // promises to be `P`. Node and addresses are the caller's promise.
    io_result(unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, ptr::from_mut(params)) })
}

/// `NV_ESC_RM_CONTROL`: the same in every driver.
#[derive(NvProxy)]
#[nvproxy(name = "NVOS54_PARAMETERS", crate = "crate")]
#[repr(C)]
struct ControlCall {
    #[nvproxy(name = "hClient")]
    client: Handle,
    #[nvproxy(name = "hObject")]
    object: Handle,
    cmd: u32,
    flags: u32,
    params: P64,
    #[nvproxy(name = "paramsSize")]
    params_size: u32,
    status: u32,
}

/// Gives an object a command (`NV_ESC_RM_CONTROL`).
///
/// # Errors
///
/// What the kernel, or the resource manager, says.
///
/// # Safety
///
/// - `fd` is of `/dev/nvidiactl`, of a driver that has exactly this call.
/// - Addresses in `params` are those of memory that the driver may read or write as `C` says.
#[inline]
pub unsafe fn control<C: Control>(
    fd: BorrowedFd<'_>,
    client: Handle,
    object: Handle,
    params: &mut C::Params,
) -> Result<(), Failure> {
    let mut call = ControlCall {
        client,
        object,
        cmd: C::CMD,
        flags: 0,
        params: address(params),
        params_size: size_of::<C::Params>() as u32,
        status: 0,
    };
    let request = request(NV_ESC_RM_CONTROL, size_of::<ControlCall>());
    // SAFETY: the derive checks `ControlCall` against every driver of the build. The driver reads and writes
    // `params_size` bytes at `params`, which is the size of what is borrowed there; that the command takes
    // it is `Call`'s promise, and node and addresses in it are the caller's.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, ptr::from_mut(&mut call)) };
    if result == -1 {
        return Err(Failure::errno());
    }
    match call.status {
        0 => Ok(()),
        status => Err(Failure::Status(NvStatus(status))),
    }
}

/// Where parameters are; none are nowhere.
#[inline]
pub(crate) fn address<P>(params: &mut P) -> P64 {
    if size_of::<P>() == 0 { P64::NULL } else { P64(ptr::from_mut(params) as u64) }
}

/// Another ioctl's number and parameters.
#[derive(NvProxy)]
#[nvproxy(name = "nv_ioctl_xfer_t", crate = "crate")]
#[repr(C)]
struct Transfer {
    cmd: u32,
    size: u32,
    ptr: P64,
}

/// An ioctl of the frontend, by its number.
///
/// # Safety
///
/// The driver behind `fd` reads and writes `size` bytes there.
#[inline(always)]
pub(crate) unsafe fn escape(
    fd: BorrowedFd<'_>,
    nr: u32,
    params: *mut c_void,
    size: usize,
) -> c_int {
    if size <= LARGEST {
        // SAFETY: the caller promises that the driver may read and write `size` bytes there, and the request says
        // `size`.
        return unsafe { libc::ioctl(fd.as_raw_fd(), request(nr, size) as _, params) };
    }
    // A size that is no u32 is one that the driver refuses as well.
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let mut transfer = Transfer { cmd: nr, size, ptr: P64(params as u64) };
    let request = request(NV_ESC_IOCTL_XFER_CMD, size_of::<Transfer>());
    // SAFETY: the driver takes number, size and address from `transfer` (nv.c:2350 to 2359 of 550.90.07), which the
    // derive checks; the caller promises `size` bytes at the address.
    unsafe { libc::ioctl(fd.as_raw_fd(), request as _, ptr::from_mut(&mut transfer)) }
}

/// `_IOWR('F', nr, size)`.
#[inline]
const fn request(nr: u32, size: usize) -> u32 {
    3 << 30 | (size as u32) << 16 | MAGIC << 8 | nr
}

#[inline]
fn io_result(result: c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_packed_as_linux_does() {
        // What strace shows of a CUDA program.
        assert_eq!(request(NV_ESC_RM_CONTROL, size_of::<ControlCall>()), 0xc020_462a);
        assert_eq!(request(0x2b, 48), 0xc030_462b);
        assert_eq!(request(NV_ESC_IOCTL_XFER_CMD, size_of::<Transfer>()), 0xc010_46d3);
    }

    #[test]
    fn numbers_are_those_of_every_driver() {
        for driver in crate::driver::AnyDriver::all() {
            let name = |nr| driver.frontend(nr).map(|info| info.name);
            assert_eq!(name(NV_ESC_RM_CONTROL), Some("NV_ESC_RM_CONTROL"), "{driver:?}");
            assert_eq!(name(NV_ESC_IOCTL_XFER_CMD), Some("NV_ESC_IOCTL_XFER_CMD"), "{driver:?}");
        }
    }
}
