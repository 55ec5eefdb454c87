//! dma-bufs made of the pages of a memfd: `/dev/udmabuf`.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{found, number_in, open};
use crate::buffer::page;
use crate::uapi::{self, UDMABUF_LIST_LIMIT, UdmabufCreate, UdmabufCreateItem, UdmabufCreateList};
use crate::{
    Buffer, CapabilitySet, Description, Device, DeviceInfo, Driver, Error, ErrorKind, Image,
    Listed, Memory, Operation, Result,
};

const NODE: &str = "/dev/udmabuf";
const HUGE: u64 = 2 << 20;
const LIMIT: &str = "/sys/module/udmabuf/parameters/size_limit_mb";
/// What the kernel begins with.
const DEFAULT_LIMIT: u64 = 64;
const PROMISED_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages";
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// `udmabuf`, and `udmabuf:2M` where there are free pages of 2 MiB and the kernel makes dma-bufs of
/// them.
pub(super) struct Udmabuf;

impl Driver for Udmabuf {
    fn name(&self) -> &str {
        "udmabuf"
    }

    fn devices(&self) -> Result<Listed> {
        let Some(node) = found(open(NODE))? else { return Ok(Vec::new()) };
        let pages = Pages::new("udmabuf", node, page());
        let huge = Pages::new("udmabuf:2M", open(NODE)?, HUGE);
        let mut devices: Listed = vec![Ok(Box::new(pages))];
        let free = number_in(HUGE_PAGES).is_some_and(|free| free > 0);
        if free && shows_all_of_large_pages() && huge.make(HUGE).is_ok() {
            devices.push(Ok(Box::new(huge)));
        }
        Ok(devices)
    }
}

struct Pages {
    node: File,
    info: DeviceInfo,
    memory: Memory,
}

impl Pages {
    fn new(name: &str, node: File, page: u64) -> Self {
        let info = DeviceInfo {
            name: name.to_owned(),
            node: NODE.to_owned(),
            operations: Vec::new(),
            allocates: true,
            imports: false,
        };
        let max_size = most_scattered();
        Self { node, info, memory: Memory { page, contiguous: page, max_size, ..Memory::PAGES } }
    }

    fn make(&self, size: u64) -> Result<OwnedFd> {
        let page = self.memory.page;
        let size = size.max(1).checked_next_multiple_of(page);
        let size = size.filter(|size| i64::try_from(*size).is_ok());
        let size = size.ok_or_else(|| Error::invalid("a udmabuf cannot be as large"))?;
        let file = sealed(c"nvabi-udmabuf", size, page == HUGE)?;
        let mut params = UdmabufCreate {
            memfd: number_of(&file),
            flags: uapi::UDMABUF_CLOEXEC,
            offset: 0,
            size,
        };
        // SAFETY: the node was opened as `/dev/udmabuf`; the record holds numbers and no address.
        let made = unsafe { uapi::UDMABUF_CREATE.call(self.node.as_fd(), &mut params) };
        // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
        made.and_then(|fd| unsafe { uapi::own(fd) })
            .map_err(|error| Error::io(ErrorKind::Call, "UDMABUF_CREATE", error))
    }
}

impl Device for Pages {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, _image: &Image, _operation: Operation) -> Result<Vec<CapabilitySet>> {
        Ok(Vec::new())
    }

    /// Large pages are few, but cost an IOMMU and the CPU less.
    fn cost(&self, _set: &CapabilitySet) -> u64 {
        if self.memory.page == HUGE { 15 } else { 20 }
    }

    fn memory(&self) -> Option<Memory> {
        Some(self.memory)
    }

    fn request(&self, description: &Description) -> String {
        let size = description.layout.size;
        let size = size.checked_next_multiple_of(self.memory.page).unwrap_or(size);
        format!("UDMABUF_CREATE of {size} bytes of a sealed memfd, on {NODE}")
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        self.memory.serves(description)?;
        Buffer::new(self.make(description.layout.size)?, description.clone())
    }
}

/// Linux 6.11 to 6.14 makes dma-bufs of large pages, but maps the first 4 KiB of a page again and again
/// for drivers that touch the memory by the CPU (vmap), such as displays without DMA.
fn shows_all_of_large_pages() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

/// Memory that is certainly in one piece, to find out who insists on that: one large page. It is for
/// an import alone, which goes wrong on no kernel. `None` where no such page is free.
///
/// # Errors
///
/// When something ran out.
pub(crate) fn one_piece(description: &Description) -> Result<Option<Buffer>> {
    // Some of those that are free may be promised to others.
    let is_free = number_in(HUGE_PAGES) > number_in(PROMISED_PAGES);
    let Some(node) = found(open(NODE))?.filter(|_| is_free && description.layout.size <= HUGE)
    else {
        return Ok(None);
    };
    match Pages::new("udmabuf:2M", node, HUGE).make(HUGE) {
        Ok(page) => Buffer::new(page, description.clone()).map(Some),
        Err(error) if error.is_passing() => Err(error),
        // Kernels before 6.11 make no dma-bufs of such.
        Err(_) => Ok(None),
    }
}

/// The most bytes that a udmabuf may have.
pub(crate) fn most_scattered() -> u64 {
    number_in(LIMIT).unwrap_or(DEFAULT_LIMIT).saturating_mul(1 << 20)
}

/// Memory that is in no case in one piece, to find out who insists on that: the same page again and
/// again. `None` when all is in one page.
///
/// # Errors
///
/// What the kernel says.
pub(crate) fn scattered(description: &Description) -> Result<Option<Buffer>> {
    let page = page();
    let size = description.layout.size.max(1).checked_next_multiple_of(page);
    let Some(size) = size.filter(|size| *size > page) else { return Ok(None) };
    let node = open(NODE)?;
    // As few pages as the list allows, at least twice.
    let piece =
        size.div_ceil(UDMABUF_LIST_LIMIT as u64).next_multiple_of(page).min(size / 2 / page * page);
    let piece = piece.max(page);
    let file = sealed(c"nvabi-scattered", piece, false)?;
    let item = UdmabufCreateItem { memfd: number_of(&file), pad: 0, offset: 0, size: piece };
    let mut params = UdmabufCreateList {
        flags: uapi::UDMABUF_CLOEXEC,
        count: size.div_ceil(piece) as u32,
        list: [item; UDMABUF_LIST_LIMIT],
    };
    // SAFETY: the node was opened as `/dev/udmabuf`, which reads `count` items behind the record's head: `size`
    // by `piece`, which is at least a part of `size` that the list has room for.
    let made = unsafe { uapi::UDMABUF_CREATE_LIST.call(node.as_fd(), &mut params) };
    // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
    let made = made.and_then(|fd| unsafe { uapi::own(fd) });
    let made = made.map_err(|error| Error::io(ErrorKind::Call, "UDMABUF_CREATE_LIST", error))?;
    Buffer::new(made, description.clone()).map(Some)
}

/// A memfd of so many bytes that cannot shrink any more, as udmabuf asks for.
fn sealed(name: &CStr, size: u64, huge: bool) -> Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let flags = if huge { flags | MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB } else { flags };
    let refused = |call: &'static str| {
        move |errno: nix::Error| {
            Error::io(ErrorKind::Call, format!("{call} of {size} bytes"), errno.into())
        }
    };
    let file = memfd_create(name, flags).map_err(refused("memfd_create"))?;
    nix::unistd::ftruncate(&file, size as i64).map_err(refused("ftruncate"))?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).map_err(refused("F_ADD_SEALS"))?;
    Ok(file)
}

fn number_of(file: &OwnedFd) -> u32 {
    file.as_raw_fd() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capability, Fourcc, Usage, solve};

    #[test]
    fn no_size_is_too_large_to_be_refused() {
        let image = Image::new(64, 64, Fourcc::new(b"XR24"));
        let set = CapabilitySet::new(vec![], vec![Capability::pitch_linear()]);
        let mut layout = solve(&image, &set).unwrap();
        for size in [0, 1, page(), u64::MAX, u64::MAX - page()] {
            layout.size = size;
            let usage = Usage::new(image, Vec::new());
            let (set, layout) = (set.clone(), layout.clone());
            let asked = Description { usage, set, layout, metadata: Vec::new() };
            // More than the kernel makes is its to refuse, where there is a udmabuf.
            let made = scattered(&asked);
            assert!(made.is_err() || made.unwrap().is_none(), "{size}");
        }
    }
}
