//! Memory of objects in the address space of the program.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::client::NodeName;
use super::error::{Error, ErrorKind, Result};
use super::escape;
use super::object::{Node, Object};
use crate::P64;

const PAGE: u64 = 4096;

/// What the CPU may do with a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read and write it.
    ReadWrite,
    /// Read it.
    ReadOnly,
}

/// Memory of an object that the CPU sees. It keeps the object and its device.
pub struct Mapping {
    address: NonNull<u8>,
    length: usize,
    linear: P64,
    flags: u32,
    memory: Arc<Node>,
    device: Arc<Node>,
}

// SAFETY: it is an address and the handles to give it back; what is done with the memory is up to those
// who use the pointer.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address alone, and nothing in it changes before it is dropped.
unsafe impl Sync for Mapping {}

impl Object {
    /// Lets the CPU see `length` bytes of this memory from `offset` on (`NV_ESC_RM_MAP_MEMORY`, `mmap`).
    ///
    /// `device` is the device or subdevice that the memory is of, or the client where it is of none;
    /// `node` is that of the GPU for memory in its BARs, [`NodeName::Control`] for system memory.
    /// Each mapping has an fd of its own: the driver ties one mapping to an fd.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) where offset or length are no whole pages; and what the kernel or
    /// the resource manager says.
    pub fn map_memory(
        &self,
        device: &Object,
        node: NodeName,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<Mapping> {
        if length == 0 || (offset | length) % PAGE != 0 {
            let kind = ErrorKind::Invalid("offset and length must be whole pages");
            return Err(self.failed(escape::MAP_MEMORY, kind));
        }
        let client = self.shared();
        let fd = client.open(node)?;
        if let NodeName::Gpu(_) = node {
            client.register_fd(fd.as_fd())?;
        }
        let (flags, protection) = match access {
            Access::ReadWrite => (0, libc::PROT_READ | libc::PROT_WRITE),
            Access::ReadOnly => (1, libc::PROT_READ),
        };
        let mut asked = escape::MapMemory {
            params: escape::MapMemoryParams {
                client: client.handle,
                device: device.handle(),
                memory: self.handle(),
                offset,
                length,
                flags,
                ..escape::MapMemoryParams::default()
            },
            fd: fd.as_raw_fd(),
            ..escape::MapMemory::default()
        };
        // SAFETY: the driver ties the mapping to the fd; there are no addresses in the parameters.
        unsafe {
            escape::status_call(client.fd.as_fd(), escape::MAP_MEMORY, &mut asked, |p| {
                p.params.status
            })
        }
        .map_err(|failure| self.failed(escape::MAP_MEMORY, failure))?;
        let mut mapping = Mapping {
            address: NonNull::dangling(),
            length: 0,
            linear: asked.params.linear,
            flags,
            memory: self.0.clone(),
            device: device.0.clone(),
        };
        // SAFETY: the kernel chooses where; nothing of the program is there.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length as usize,
                protection,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast::<u8>()) {
            Some(at) if address != libc::MAP_FAILED => {
                (mapping.address, mapping.length) = (at, length as usize);
                Ok(mapping)
            }
            _ => {
                let kind = ErrorKind::System("mmap", io::Error::last_os_error());
                Err(Error::new(kind).object(self.name()).driver_is(self.driver()))
            }
        }
    }
}

impl Mapping {
    /// Where it is. A GPU may write it at any time: what is there is read and written as memory that
    /// others change.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// How long it is, in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: it was mapped so, and nobody has a pointer to it that may be used now.
            unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
        }
        let client = &self.memory.client;
        let mut params = escape::UnmapMemory {
            client: client.handle,
            device: self.device.name.handle,
            memory: self.memory.name.handle,
            linear: self.linear,
            flags: self.flags,
            ..escape::UnmapMemory::default()
        };
        // SAFETY: the address is compared and not followed. Nobody is left to tell what comes of it.
        _ = unsafe {
            escape::status_call(client.fd.as_fd(), escape::UNMAP_MEMORY, &mut params, |p| p.status)
        };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("memory", &self.memory.name)
            .field("address", &self.address)
            .field("length", &self.length)
            .finish()
    }
}
