//! `NV_ESC_EXPORT_TO_DMABUF_FD` in whichever form a driver has it.
//!
//! 570.86.15 put a field before the lists; so the fields are found by name in the driver's
//! own layout, as those of `NV_ESC_RM_ALLOC` are.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use super::client::NodeName;
use super::error::{ErrorKind, Result};
use super::escape::{self, Bytes};
use super::object::Object;
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
        escape::status_result(bytes.u32(form.status))
            .map_err(|refused| self.failed(call, refused))?;
        let fd = bytes.u32(form.fd) as i32;
        if fd < 0 {
            return Err(self.failed(call, ErrorKind::Invalid("the driver gave no descriptor")));
        }
        // SAFETY: the call has succeeded, and so made a descriptor that nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// That of all drivers which the machine's can be.
fn form(choice: &Choice) -> std::result::Result<Form, ErrorKind> {
    let own = Form::of(choice.driver());
    let same = choice.other().is_none_or(|other| Form::of(other) == own);
    own.filter(|_| same).ok_or(ErrorKind::NotInDriver)
}

impl Form {
    fn of(driver: &AnyDriver) -> Option<Self> {
        let layout = driver.layout("nv_ioctl_export_to_dma_buf_fd_t")?;
        let at = |name: &str, size: u32| escape::place(layout, name, size);
        let form = Self {
            size: layout.size as usize,
            fd: at("fd", 4)?,
            client: at("hClient", 4)?,
            objects: at("totalObjects", 4)?,
            objects_now: at("numObjects", 4)?,
            total_size: at("totalSize", 8)?,
            handle: at("handles", 4)?,
            offset: at("offsets", 8)?,
            length: at("sizes", 8)?,
            status: at("status", 4)?,
        };
        (form.size <= LARGEST).then_some(form)
    }

    fn written(&self, memory: &Object, offset: u64, size: u64) -> Bytes<LARGEST> {
        let mut bytes = Bytes::zeroed();
        let mut put = |at: usize, value: &[u8]| bytes.put(at, value);
        put(self.fd, &NEW.to_ne_bytes());
        put(self.client, &memory.client().0.to_ne_bytes());
        put(self.objects, &1_u32.to_ne_bytes());
        put(self.objects_now, &1_u32.to_ne_bytes());
        put(self.total_size, &size.to_ne_bytes());
        put(self.handle, &memory.handle().0.to_ne_bytes());
        put(self.offset, &offset.to_ne_bytes());
        put(self.length, &size.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_has_one_of_two_forms() {
        for driver in AnyDriver::all() {
            let form = Form::of(driver);
            let places = form.map(|form| (form.size, form.handle, form.length, form.status));
            let forms = [(2600, 32, 1568, 2592), (2608, 36, 1576, 2600)];
            assert!(places.is_some_and(|places| forms.contains(&places)), "{driver:?}: {places:?}");
        }
    }
}
