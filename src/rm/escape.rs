//! The ioctls that this module makes itself, with their parameters. Each is the same in all drivers of
//! the build, or the crate does not compile; the one that is not, `NV_ESC_RM_ALLOC`, is in `alloc`.

use std::os::fd::BorrowedFd;
use std::{io, ptr};

use crate::call::CallKind;
use crate::check::{Layout, Type};
use crate::ioctl::{self, Failure};
use crate::{Handle, NvProxy, NvStatus, P64};

/// What a call is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallName {
    /// The driver's name of its number.
    pub name: &'static str,
    /// Which table it is in.
    pub kind: CallKind,
    /// Its number.
    pub number: u32,
}

const fn escape(name: &'static str, number: u32) -> CallName {
    CallName { name, kind: CallKind::Frontend, number }
}

pub(super) const ALLOC: CallName = escape("NV_ESC_RM_ALLOC", 0x2b);
pub(super) const FREE: CallName = escape("NV_ESC_RM_FREE", 0x29);
pub(super) const DUP_OBJECT: CallName = escape("NV_ESC_RM_DUP_OBJECT", 0x34);
pub(super) const MAP_MEMORY: CallName = escape("NV_ESC_RM_MAP_MEMORY", 0x4e);
pub(super) const UNMAP_MEMORY: CallName = escape("NV_ESC_RM_UNMAP_MEMORY", 0x4f);
pub(super) const GET_EVENT_DATA: CallName = escape("NV_ESC_RM_GET_EVENT_DATA", 0x52);
pub(super) const CARD_INFO: CallName = escape("NV_ESC_CARD_INFO", 0xc8);
pub(super) const REGISTER_FD: CallName = escape("NV_ESC_REGISTER_FD", 0xc9);
pub(super) const ALLOC_OS_EVENT: CallName = escape("NV_ESC_ALLOC_OS_EVENT", 0xce);
pub(super) const FREE_OS_EVENT: CallName = escape("NV_ESC_FREE_OS_EVENT", 0xcf);
pub(super) const EXPORT_TO_DMABUF_FD: CallName = escape("NV_ESC_EXPORT_TO_DMABUF_FD", 0xd9);
pub(super) const CHECK_VERSION_STR: CallName = escape("NV_ESC_CHECK_VERSION_STR", 0xd2);

/// Makes one of them, again where a signal came before anything was done.
///
/// # Safety
///
/// `P` is what the call takes, and the addresses in it are those of memory that the driver may use.
pub(super) unsafe fn call<P>(fd: BorrowedFd<'_>, call: CallName, params: &mut P) -> io::Result<()> {
    // SAFETY: `params` has `size_of::<P>()` bytes and is borrowed for the call; that the call takes a `P` is the
    // caller's promise.
    unsafe { call_bytes(fd, call, ptr::from_mut(params).cast(), size_of::<P>()) }
}

/// Parameters whose form is known at run time only, with room for `N` bytes.
#[repr(C, align(8))]
pub(super) struct Bytes<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Bytes<N> {
    pub(super) fn zeroed() -> Self {
        Self([0; N])
    }

    pub(super) fn put(&mut self, at: usize, value: &[u8]) {
        self.0[at..at + value.len()].copy_from_slice(value);
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }
}

/// Where a field is whose elements, or which itself, has this size.
pub(super) fn place(layout: &Layout, name: &str, size: u32) -> Option<usize> {
    let field = layout.fields.iter().find(|field| field.name == name)?;
    let found = match &field.ty {
        Type::Array(element, _) => element.size(),
        ty => ty.size(),
    };
    (found == size).then_some(field.offset as usize)
}

/// The same for parameters of a length that is known at run time only.
///
/// # Safety
///
/// As [`call`], with `size` bytes at `params`.
pub(super) unsafe fn call_bytes(
    fd: BorrowedFd<'_>,
    call: CallName,
    params: *mut u8,
    size: usize,
) -> io::Result<()> {
    loop {
        // SAFETY: the caller promises that the driver reads and writes `size` bytes at `params` and may use the
        // addresses there.
        if unsafe { ioctl::escape(fd, call.number, params.cast(), size) } != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Makes one whose parameters hold a status.
///
/// # Safety
///
/// As [`call`].
pub(super) unsafe fn status_call<P>(
    fd: BorrowedFd<'_>,
    call: CallName,
    params: &mut P,
    status: impl FnOnce(&P) -> u32,
) -> Result<(), Failure> {
    // SAFETY: the same promise as this function asks of its caller.
    let result = unsafe { self::call(fd, call, params) };
    match result {
        Err(error) => Err(Failure::Errno(error.raw_os_error().unwrap_or_default())),
        Ok(()) => status_result(status(params)),
    }
}

/// What a status says.
pub(super) fn status_result(status: u32) -> Result<(), Failure> {
    match NvStatus(status) {
        NvStatus::OK => Ok(()),
        status => Err(Failure::Status(status)),
    }
}

/// What came of making an object, which is there after a warning too.
pub(super) fn made(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(Failure::Status(status)) if status.is_warning() => Ok(()),
        result => result,
    }
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NVOS00_PARAMETERS", crate = "crate")]
#[repr(C)]
pub(super) struct Free {
    #[nvproxy(name = "hRoot")]
    pub(super) client: Handle,
    #[nvproxy(name = "hObjectParent")]
    pub(super) parent: Handle,
    #[nvproxy(name = "hObjectOld")]
    pub(super) object: Handle,
    pub(super) status: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NVOS55_PARAMETERS", crate = "crate")]
#[repr(C)]
pub(super) struct DupObject {
    #[nvproxy(name = "hClient")]
    pub(super) client: Handle,
    #[nvproxy(name = "hParent")]
    pub(super) parent: Handle,
    #[nvproxy(name = "hObject")]
    pub(super) object: Handle,
    #[nvproxy(name = "hClientSrc")]
    pub(super) source_client: Handle,
    #[nvproxy(name = "hObjectSrc")]
    pub(super) source: Handle,
    pub(super) flags: u32,
    pub(super) status: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NVOS33_PARAMETERS", crate = "crate")]
#[repr(C)]
pub(super) struct MapMemoryParams {
    #[nvproxy(name = "hClient")]
    pub(super) client: Handle,
    #[nvproxy(name = "hDevice")]
    pub(super) device: Handle,
    #[nvproxy(name = "hMemory")]
    pub(super) memory: Handle,
    pub(super) _pad: [u8; 4],
    pub(super) offset: u64,
    pub(super) length: u64,
    #[nvproxy(name = "pLinearAddress")]
    pub(super) linear: P64,
    pub(super) status: u32,
    pub(super) flags: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "nv_ioctl_nvos33_parameters_with_fd", crate = "crate")]
#[repr(C)]
pub(super) struct MapMemory {
    pub(super) params: MapMemoryParams,
    pub(super) fd: i32,
    pub(super) _pad: [u8; 4],
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NVOS34_PARAMETERS", crate = "crate")]
#[repr(C)]
pub(super) struct UnmapMemory {
    #[nvproxy(name = "hClient")]
    pub(super) client: Handle,
    #[nvproxy(name = "hDevice")]
    pub(super) device: Handle,
    #[nvproxy(name = "hMemory")]
    pub(super) memory: Handle,
    pub(super) _pad: [u8; 4],
    #[nvproxy(name = "pLinearAddress")]
    pub(super) linear: P64,
    pub(super) status: u32,
    pub(super) flags: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NVOS41_PARAMETERS", crate = "crate")]
#[repr(C)]
pub(super) struct GetEventData {
    #[nvproxy(name = "pEvent")]
    pub(super) event: P64,
    #[nvproxy(name = "MoreEvents")]
    pub(super) more: u32,
    pub(super) status: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NvUnixEvent", crate = "crate")]
#[repr(C)]
pub(super) struct UnixEvent {
    #[nvproxy(name = "hObject")]
    pub(super) object: Handle,
    #[nvproxy(name = "NotifyIndex")]
    pub(super) notify_index: u32,
    pub(super) info32: u32,
    pub(super) info16: u16,
    pub(super) _pad: [u8; 2],
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "NV0005_ALLOC_PARAMETERS", crate = "crate")]
#[repr(C)]
pub(super) struct EventParams {
    #[nvproxy(name = "hParentClient")]
    pub(super) client: Handle,
    #[nvproxy(name = "hSrcResource")]
    pub(super) source: Handle,
    #[nvproxy(name = "hClass")]
    pub(super) class: u32,
    #[nvproxy(name = "notifyIndex")]
    pub(super) notify_index: u32,
    pub(super) data: P64,
}

/// `NV_ESC_ALLOC_OS_EVENT`.
#[derive(NvProxy, Default)]
#[nvproxy(name = "nv_ioctl_alloc_os_event_t", crate = "crate")]
#[repr(C)]
pub(super) struct AllocOsEvent {
    #[nvproxy(name = "hClient")]
    pub(super) client: Handle,
    #[nvproxy(name = "hDevice")]
    pub(super) device: Handle,
    pub(super) fd: u32,
    #[nvproxy(name = "Status")]
    pub(super) status: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "nv_ioctl_free_os_event_t", crate = "crate")]
#[repr(C)]
pub(super) struct FreeOsEvent {
    #[nvproxy(name = "hClient")]
    pub(super) client: Handle,
    #[nvproxy(name = "hDevice")]
    pub(super) device: Handle,
    pub(super) fd: u32,
    #[nvproxy(name = "Status")]
    pub(super) status: u32,
}

#[derive(NvProxy, Default)]
#[nvproxy(name = "nv_ioctl_register_fd_t", crate = "crate")]
#[repr(C)]
pub(super) struct RegisterFd {
    #[nvproxy(name = "ctl_fd")]
    pub(super) control: i32,
}

#[derive(NvProxy)]
#[nvproxy(name = "nv_ioctl_rm_api_version_t", crate = "crate")]
#[repr(C)]
pub(super) struct CheckVersion {
    pub(super) cmd: u32,
    pub(super) reply: u32,
    #[nvproxy(name = "versionString")]
    pub(super) version: [u8; 64],
}

#[derive(NvProxy, Default, Clone, Copy)]
#[nvproxy(name = "nv_pci_info_t", crate = "crate")]
#[repr(C)]
pub(super) struct PciInfo {
    pub(super) domain: u32,
    pub(super) bus: u8,
    pub(super) slot: u8,
    pub(super) function: u8,
    pub(super) _pad: [u8; 1],
    #[nvproxy(name = "vendor_id")]
    pub(super) vendor: u16,
    #[nvproxy(name = "device_id")]
    pub(super) device: u16,
}

#[derive(NvProxy, Default, Clone, Copy)]
#[nvproxy(name = "nv_ioctl_card_info_t", crate = "crate")]
#[repr(C)]
pub(super) struct CardInfo {
    pub(super) valid: u8,
    pub(super) _pad0: [u8; 3],
    #[nvproxy(name = "pci_info")]
    pub(super) pci: PciInfo,
    pub(super) gpu_id: u32,
    pub(super) interrupt_line: u16,
    pub(super) _pad1: [u8; 2],
    pub(super) reg_address: u64,
    pub(super) reg_size: u64,
    pub(super) fb_address: u64,
    pub(super) fb_size: u64,
    pub(super) minor_number: u32,
    pub(super) dev_name: [u8; 10],
    pub(super) _pad2: [u8; 2],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::AnyDriver;

    #[test]
    fn numbers_are_those_of_every_driver() {
        let calls = [
            ALLOC,
            FREE,
            DUP_OBJECT,
            MAP_MEMORY,
            UNMAP_MEMORY,
            GET_EVENT_DATA,
            CARD_INFO,
            REGISTER_FD,
            ALLOC_OS_EVENT,
            FREE_OS_EVENT,
            EXPORT_TO_DMABUF_FD,
            CHECK_VERSION_STR,
        ];
        for driver in AnyDriver::all() {
            for call in calls {
                let found = driver.frontend(call.number).map(|info| info.name);
                assert_eq!(found, Some(call.name), "{driver:?}");
            }
        }
    }

    #[test]
    fn an_object_is_made_in_spite_of_a_warning() {
        assert_eq!(made(status_result(0)), Ok(()));
        assert_eq!(made(status_result(0x1_0006)), Ok(()));
        let refused = Err(Failure::Status(NvStatus(0x51)));
        assert_eq!(made(status_result(0x51)), refused);
        let broken = Err(Failure::Errno(libc::EFAULT));
        assert_eq!(made(broken), broken);
    }
}
