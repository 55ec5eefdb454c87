//! dma-bufs from the kernel's heaps: `/dev/dma_heap/*`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::libc;

use super::{each, name_of, nodes, open};
use crate::constraint::{coherency, placement};
use crate::uapi::{self, DmaHeapAllocation};
use crate::{
    Buffer, CapabilitySet, Description, Device, DeviceInfo, Driver, Error, ErrorKind, Image,
    Listed, Memory, Operation, Result,
};

const FOLDER: &str = "/dev/dma_heap";

/// Every heap that is found, as `dma-heap:NAME`.
pub(super) struct DmaHeap;

impl Driver for DmaHeap {
    fn name(&self) -> &str {
        "dma-heap"
    }

    fn devices(&self) -> Result<Listed> {
        Ok(each(&nodes(FOLDER, "")?, |node| Heap::open(node).map(Some)))
    }
}

struct Heap {
    node: File,
    info: DeviceInfo,
    memory: Memory,
}

impl Heap {
    fn open(path: &Path) -> Result<Self> {
        let name = name_of(path);
        let info = DeviceInfo {
            name: format!("dma-heap:{name}"),
            node: path.display().to_string(),
            operations: Vec::new(),
            allocates: true,
            imports: false,
        };
        Ok(Self { node: open(path)?, info, memory: memory(&name) })
    }

    fn make(&self, size: u64) -> Result<OwnedFd> {
        let fd_flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
        let mut params = DmaHeapAllocation { len: size.max(1), fd: 0, fd_flags, heap_flags: 0 };
        // SAFETY: the node was opened below `/dev/dma_heap`, where each file is a heap; the record holds numbers
        // and no address.
        unsafe { uapi::DMA_HEAP_ALLOC.call(self.node.as_fd(), &mut params) }
            // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
            .and_then(|_| unsafe { uapi::own(params.fd as i32) })
            .map_err(|error| {
                let what = format!("DMA_HEAP_IOCTL_ALLOC of {size} bytes on {}", self.info.node);
                Error::io(ErrorKind::Call, what, error)
            })
    }
}

impl Device for Heap {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, _image: &Image, _operation: Operation) -> Result<Vec<CapabilitySet>> {
        Ok(Vec::new())
    }

    /// What was set apart is scarce: it is left to those who need it.
    fn cost(&self, _set: &CapabilitySet) -> u64 {
        if self.memory.placement == placement::SYSTEM { 10 } else { 100 }
    }

    fn memory(&self) -> Option<Memory> {
        Some(self.memory)
    }

    fn request(&self, description: &Description) -> String {
        format!("DMA_HEAP_IOCTL_ALLOC of {} bytes on {}", description.layout.size, self.info.node)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        self.memory.serves(description)?;
        Buffer::new(self.make(description.layout.size)?, description.clone())
    }
}

/// What a heap's memory is like, which its name alone tells: `system` takes pages from anywhere, and
/// all others are ranges that were set apart, by CMA (`reserved`, `linux,cma`, …) or for good.
fn memory(name: &str) -> Memory {
    let coherency = if name.contains("uncached") { coherency::UNCACHED } else { coherency::CACHED };
    if name.starts_with("system") {
        return Memory { coherency, ..Memory::PAGES };
    }
    let is_cma = name == "reserved" || name.contains("cma");
    let placement = if is_cma { placement::CONTIGUOUS } else { placement::CARVEOUT };
    Memory { placement, coherency, contiguous: u64::MAX, ..Memory::PAGES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_heaps_tell_what_their_memory_is_like() {
        let kinds = ["system", "system-uncached", "reserved", "linux,cma", "vpr"].map(|name| {
            let memory = memory(name);
            (memory.placement, memory.coherency, memory.contiguous)
        });
        assert_eq!(
            kinds,
            [
                (placement::SYSTEM, coherency::CACHED, 4096),
                (placement::SYSTEM, coherency::UNCACHED, 4096),
                (placement::CONTIGUOUS, coherency::CACHED, u64::MAX),
                (placement::CONTIGUOUS, coherency::CACHED, u64::MAX),
                (placement::CARVEOUT, coherency::CACHED, u64::MAX),
            ]
        );
    }
}
