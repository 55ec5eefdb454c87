//! `NV_ESC_EXPORT_TO_DMABUF_FD` in whichever form a driver has it.
//!
//! 570.86.15 put a field before the lists, and 580.65.06 another one; so the fields are found by name in the driver's
//! own layout, as those of `NV_ESC_RM_ALLOC` are.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{io, ptr};

use super::client::NodeName;
use super::error::{Error, ErrorKind, Result};
use super::escape;
use super::object::Object;
use crate::check::Layout;
use crate::driver::{AnyDriver, Choice};

const PAGE: u64 = 4096;

/// Asks for a new dma-buf.
const NEW: u32 = u32::MAX;

/// As large as the largest form.
const LARGEST: usize = 2608;

/// Offsets of the fields; lists have one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Form {
    size: usize,
    fd: usize,
    client: usize,
    objects: usize,
    objects_now: usize,
    total_size: usize,
    handle: usize,
    length: usize,
    offset: usize,
    status: usize,
}

#[repr(C, align(8))]
struct Bytes([u8; LARGEST]);

impl Object {
    /// Makes a dma-buf of `size` bytes of this memory from `offset` on (`NV_ESC_EXPORT_TO_DMABUF_FD`), which other
    /// devices can import and the CPU cannot map. It keeps the memory when this object goes.
    ///
    /// `minor` is the GPU that the memory is of; only a GPU's own memory can be exported.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) where offset or size are no whole pages; and what the kernel or the resource
    /// manager says.
    pub fn export_dma_buf(&self, minor: u32, offset: u64, size: u64) -> Result<OwnedFd> {
        let call = escape::EXPORT_TO_DMABUF_FD;
        if size == 0 || (offset | size) % PAGE != 0 {
            let kind = ErrorKind::Invalid("offset and size must be whole pages");
            return Err(self.failed(call, kind));
        }
        let client = self.shared();
        let form = form(self.driver()).map_err(|kind| self.failed(call, kind))?;
        let node = client.open(NodeName::Gpu(minor))?;
        let mut bytes = form.written(self, offset, size);
        // SAFETY: `form.size` is the lock's size of the driver's parameters, for which `bytes` has room; there are
        // handles and numbers in them, no address.
        unsafe { escape::call_bytes(node.as_fd(), call, bytes.0.as_mut_ptr(), form.size) }
            .map_err(|error| client.failed(call, &error))?;
        escape::status_result(bytes.u32(form.status)).map_err(|refused| self.failed(call, refused))?;
        let fd = bytes.u32(form.fd) as i32;
        if fd < 0 {
            return Err(self.failed(call, ErrorKind::Invalid("the driver gave no descriptor")));
        }
        // SAFETY: the call has succeeded, and so made a descriptor that nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
