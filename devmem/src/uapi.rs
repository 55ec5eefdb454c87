//! The kernel's ioctls that this module makes: records and requests as in include/uapi/linux.
//!
//! The test below compares all of it with the kernel's own headers.

use std::ffi::c_int;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;
use zerocopy::FromZeros;

/// An ioctl that takes a record `T`.
pub(super) struct Request<T> {
    number: u32,
    params: PhantomData<fn(&mut T)>,
}

impl<T> Request<T> {
    const fn new(directions: u32, letter: u8, nr: u8) -> Self {
        Self::sized(directions, size_of::<T>(), letter, nr)
    }

    const fn sized(directions: u32, size: usize, letter: u8, nr: u8) -> Self {
        let number = directions << 30 | (size as u32) << 16 | (letter as u32) << 8 | nr as u32;
        Self { number, params: PhantomData }
    }

    /// `_IOW`: the kernel reads the record.
    const fn read(letter: u8, nr: u8) -> Self {
        Self::new(1, letter, nr)
    }

    /// `_IOR`: the kernel writes the record.
    const fn written(letter: u8, nr: u8) -> Self {
        Self::new(2, letter, nr)
    }

    /// `_IOWR`: both.
    const fn both(letter: u8, nr: u8) -> Self {
        Self::new(3, letter, nr)
    }

    /// Makes it, again when a signal came first.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    ///
    /// # Safety
    ///
    /// `fd` is of a driver that knows the request, and addresses in `params` are of memory that the
    /// driver may use as the request says.
    pub(super) unsafe fn call(&self, fd: BorrowedFd<'_>, params: &mut T) -> io::Result<c_int> {
        loop {
            // SAFETY: the request's number is made of the size of `T`, or of its head where a driver reads as
            // many items behind that as the head says: it reads and writes no more than `params`. That it knows
            // the request, and may use what addresses in `params` lead to, the caller promises.
            let result = unsafe { libc::ioctl(fd.as_raw_fd(), self.number as _, &raw mut *params) };
            if result >= 0 {
                return Ok(result);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Takes over a file descriptor that the kernel made.
///
/// # Errors
///
/// When it is negative.
///
/// # Safety
///
/// Nobody else owns it.
pub(super) unsafe fn own(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is not negative, and the caller promises that nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

// --- dma-buf ----------------------------------------------------------------------------------

/// `DMA_BUF_IOCTL_SYNC`.
pub(super) const DMA_BUF_SYNC: Request<DmaBufSync> = Request::read(b'b', 0);
/// `DMA_BUF_IOCTL_EXPORT_SYNC_FILE`, Linux 6.0.
pub(super) const DMA_BUF_EXPORT_SYNC_FILE: Request<DmaBufSyncFile> = Request::both(b'b', 2);
/// `DMA_BUF_IOCTL_IMPORT_SYNC_FILE`, Linux 6.0.
pub(super) const DMA_BUF_IMPORT_SYNC_FILE: Request<DmaBufSyncFile> = Request::read(b'b', 3);

/// `DMA_BUF_SYNC_READ`.
pub(super) const SYNC_READ: u64 = 1;
/// `DMA_BUF_SYNC_WRITE`.
pub(super) const SYNC_WRITE: u64 = 2;
/// `DMA_BUF_SYNC_END`.
pub(super) const SYNC_END: u64 = 4;

/// `struct dma_buf_sync`.
#[repr(C)]
pub(super) struct DmaBufSync {
    pub(super) flags: u64,
}

/// `struct dma_buf_export_sync_file`; the one for import is the same.
#[repr(C)]
pub(super) struct DmaBufSyncFile {
    pub(super) flags: u32,
    pub(super) fd: i32,
}

/// `SYNC_IOC_MERGE`.
pub(super) const SYNC_MERGE: Request<SyncMerge> = Request::both(b'>', 3);

/// `struct sync_merge_data`.
#[repr(C)]
pub(super) struct SyncMerge {
    pub(super) name: [u8; 32],
    pub(super) fd2: i32,
    pub(super) fence: i32,
    pub(super) flags: u32,
    pub(super) pad: u32,
}

/// `SYNC_IOC_FILE_INFO`.
pub(super) const SYNC_FILE_INFO: Request<SyncFileInfo> = Request::both(b'>', 4);

/// `struct sync_file_info`.
#[derive(Default)]
#[repr(C)]
pub(super) struct SyncFileInfo {
    pub(super) name: [u8; 32],
    pub(super) status: i32,
    pub(super) flags: u32,
    pub(super) num_fences: u32,
    pub(super) pad: u32,
    pub(super) sync_fence_info: u64,
}

// --- udmabuf ----------------------------------------------------------------------------------

/// `UDMABUF_CREATE`.
pub(super) const UDMABUF_CREATE: Request<UdmabufCreate> = Request::read(b'u', 0x42);
/// `UDMABUF_CREATE_LIST`, whose size leaves out the items.
pub(super) const UDMABUF_CREATE_LIST: Request<UdmabufCreateList> = Request::sized(1, 8, b'u', 0x43);

/// What the kernel takes in one list, unless it was told otherwise (`list_limit`).
pub(super) const UDMABUF_LIST_LIMIT: usize = 1024;

/// `UDMABUF_FLAGS_CLOEXEC`.
pub(super) const UDMABUF_CLOEXEC: u32 = 1;

/// `struct udmabuf_create`.
#[repr(C)]
pub(super) struct UdmabufCreate {
    pub(super) memfd: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// `struct udmabuf_create_list`, with room for its items.
#[repr(C)]
pub(super) struct UdmabufCreateList {
    pub(super) flags: u32,
    pub(super) count: u32,
    pub(super) list: [UdmabufCreateItem; UDMABUF_LIST_LIMIT],
}

/// `struct udmabuf_create_item`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UdmabufCreateItem {
    pub(super) memfd: u32,
    pub(super) pad: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
}

// --- dma-heap ---------------------------------------------------------------------------------

/// `DMA_HEAP_IOCTL_ALLOC`.
pub(super) const DMA_HEAP_ALLOC: Request<DmaHeapAllocation> = Request::both(b'H', 0);

/// `struct dma_heap_allocation_data`.
#[repr(C)]
pub(super) struct DmaHeapAllocation {
    pub(super) len: u64,
    pub(super) fd: u32,
    pub(super) fd_flags: u32,
    pub(super) heap_flags: u64,
}

// --- DRM --------------------------------------------------------------------------------------

/// `DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE`, with the record that it had first: the kernel takes either.
pub(super) const DRM_SYNCOBJ_FD_TO_HANDLE: Request<DrmSyncobjHandle> = Request::both(b'd', 0xc2);

/// `DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE`.
pub(super) const SYNCOBJ_SYNC_FILE: u32 = 1;

/// `struct drm_syncobj_handle` without the point that Linux 6.16 added.
#[repr(C)]
pub(super) struct DrmSyncobjHandle {
    pub(super) handle: u32,
    pub(super) flags: u32,
    pub(super) fd: i32,
    pub(super) pad: u32,
}

// --- V4L2 -------------------------------------------------------------------------------------

/// `VIDIOC_QUERYCAP`.
pub(super) const V4L2_QUERYCAP: Request<V4l2Capability> = Request::written(b'V', 0);
/// `VIDIOC_ENUM_FMT`.
pub(super) const V4L2_ENUM_FMT: Request<V4l2FormatDescription> = Request::both(b'V', 2);
/// `VIDIOC_S_FMT`.
pub(super) const V4L2_S_FMT: Request<V4l2Format> = Request::both(b'V', 5);
/// The same of a queue of memories by plane.
pub(super) const V4L2_S_FMT_PLANES: Request<V4l2FormatPlanes> = Request::both(b'V', 5);
/// `VIDIOC_TRY_FMT`.
pub(super) const V4L2_TRY_FMT_PLANES: Request<V4l2FormatPlanes> = Request::both(b'V', 64);
/// `VIDIOC_TRY_FMT`.
pub(super) const V4L2_TRY_FMT: Request<V4l2Format> = Request::both(b'V', 64);
/// `VIDIOC_REQBUFS`.
pub(super) const V4L2_REQBUFS: Request<V4l2RequestBuffers> = Request::both(b'V', 8);
/// `VIDIOC_QBUF`.
pub(super) const V4L2_QBUF: Request<V4l2Buffer> = Request::both(b'V', 15);
/// `VIDIOC_EXPBUF`.
pub(super) const V4L2_EXPBUF: Request<V4l2ExportBuffer> = Request::both(b'V', 16);

/// `VIDIOC_QUERYCTRL`.
pub(super) const V4L2_QUERYCTRL: Request<V4l2QueryControl> = Request::both(b'V', 36);

/// `V4L2_CID_HFLIP`, `V4L2_CID_VFLIP` and `V4L2_CID_ROTATE`.
pub(super) const V4L2_CID_HFLIP: u32 = 0x0098_0914;
pub(super) const V4L2_CID_VFLIP: u32 = 0x0098_0915;
pub(super) const V4L2_CID_ROTATE: u32 = 0x0098_0922;
/// `V4L2_CAP_VIDEO_CAPTURE`.
pub(super) const V4L2_CAP_VIDEO_CAPTURE: u32 = 1;
/// `V4L2_CAP_VIDEO_CAPTURE_MPLANE`.
pub(super) const V4L2_CAP_VIDEO_CAPTURE_PLANES: u32 = 0x1000;
/// `V4L2_CAP_VIDEO_M2M`: it reads from one queue and writes to another.
pub(super) const V4L2_CAP_VIDEO_M2M: u32 = 0x8000;
/// `V4L2_CAP_VIDEO_M2M_MPLANE`.
pub(super) const V4L2_CAP_VIDEO_M2M_PLANES: u32 = 0x4000;
/// `V4L2_CAP_STREAMING`.
pub(super) const V4L2_CAP_STREAMING: u32 = 0x0400_0000;
/// `V4L2_CAP_DEVICE_CAPS`: `device_caps` holds what this node can do.
pub(super) const V4L2_CAP_DEVICE_CAPS: u32 = 0x8000_0000;
/// `V4L2_BUF_TYPE_VIDEO_CAPTURE`.
pub(super) const V4L2_VIDEO_CAPTURE: u32 = 1;
/// `V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE`.
pub(super) const V4L2_VIDEO_CAPTURE_PLANES: u32 = 9;
/// `V4L2_BUF_TYPE_VIDEO_OUTPUT`.
pub(super) const V4L2_VIDEO_OUTPUT: u32 = 2;
/// `V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE`.
pub(super) const V4L2_VIDEO_OUTPUT_PLANES: u32 = 10;
/// `V4L2_FMT_FLAG_COMPRESSED`.
pub(super) const V4L2_FMT_COMPRESSED: u32 = 1;
/// `V4L2_MEMORY_MMAP`: the driver's own memory.
pub(super) const V4L2_MMAP: u32 = 1;
/// `V4L2_MEMORY_DMABUF`: memory of others.
pub(super) const V4L2_DMABUF: u32 = 4;
/// `V4L2_FIELD_NONE`: whole frames.
pub(super) const V4L2_FIELD_NONE: u32 = 1;

/// `struct v4l2_capability`.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2Capability {
    pub(super) driver: [u8; 16],
    pub(super) card: [u8; 32],
    pub(super) bus_info: [u8; 32],
    pub(super) version: u32,
    pub(super) capabilities: u32,
    pub(super) device_caps: u32,
    pub(super) reserved: [u32; 3],
}

/// `struct v4l2_fmtdesc`.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2FormatDescription {
    pub(super) index: u32,
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) description: [u8; 32],
    pub(super) pixelformat: u32,
    pub(super) mbus_code: u32,
    pub(super) reserved: [u32; 3],
}

/// `struct v4l2_format` with the member `pix` of its union.
#[repr(C, align(8))]
#[derive(FromZeros)]
pub(super) struct V4l2Format {
    pub(super) kind: u32,
    pub(super) pad: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixelformat: u32,
    pub(super) field: u32,
    pub(super) bytesperline: u32,
    pub(super) sizeimage: u32,
    pub(super) rest: [u32; 44],
}

/// `struct v4l2_format` with the member `pix_mp` of its union.
#[repr(C, align(8))]
#[derive(FromZeros)]
pub(super) struct V4l2FormatPlanes {
    pub(super) kind: u32,
    pub(super) pad: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) pixelformat: u32,
    pub(super) field: u32,
    pub(super) colorspace: u32,
    pub(super) planes: [V4l2PlaneFormat; 8],
    pub(super) num_planes: u8,
    pub(super) rest: [u8; 19],
}

/// `struct v4l2_plane_pix_format`.
#[repr(C)]
#[derive(Clone, Copy, FromZeros)]
pub(super) struct V4l2PlaneFormat {
    pub(super) sizeimage: u32,
    pub(super) bytesperline: u32,
    pub(super) reserved: [u16; 6],
}

/// `struct v4l2_plane`; `m` is its union, whose `fd` is the lower half.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2Plane {
    pub(super) bytesused: u32,
    pub(super) length: u32,
    pub(super) m: u64,
    pub(super) data_offset: u32,
    pub(super) reserved: [u32; 11],
}

/// `struct v4l2_queryctrl`.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2QueryControl {
    pub(super) id: u32,
    pub(super) kind: u32,
    pub(super) name: [u8; 32],
    pub(super) minimum: i32,
    pub(super) maximum: i32,
    pub(super) step: i32,
    pub(super) default_value: i32,
    pub(super) flags: u32,
    pub(super) reserved: [u32; 2],
}

/// `struct v4l2_requestbuffers`.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2RequestBuffers {
    pub(super) count: u32,
    pub(super) kind: u32,
    pub(super) memory: u32,
    pub(super) capabilities: u32,
    pub(super) reserved: u32,
}

/// `struct v4l2_buffer`; `m` is its union, whose `fd` is the lower half.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2Buffer {
    pub(super) index: u32,
    pub(super) kind: u32,
    pub(super) bytesused: u32,
    pub(super) flags: u32,
    pub(super) field: u32,
    pub(super) pad: u32,
    pub(super) timestamp: [i64; 2],
    pub(super) timecode: [u32; 4],
    pub(super) sequence: u32,
    pub(super) memory: u32,
    pub(super) m: u64,
    pub(super) length: u32,
    pub(super) reserved2: u32,
    pub(super) request_fd: i32,
    pub(super) tail: u32,
}

/// `struct v4l2_exportbuffer`.
#[repr(C)]
#[derive(FromZeros)]
pub(super) struct V4l2ExportBuffer {
    pub(super) kind: u32,
    pub(super) index: u32,
    pub(super) plane: u32,
    pub(super) flags: u32,
    pub(super) fd: i32,
    pub(super) reserved: [u32; 11],
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;
    use std::mem::offset_of;
    use std::process::{Command, Stdio};

    use super::*;

    /// `NAME VALUE` of everything above, as this module has it and as C expressions.
    fn facts() -> Vec<(&'static str, u64)> {
        macro_rules! facts {
            ($($request:ident: $c:literal,)* ; $($constant:ident = $value:literal,)* ;
             $($record:ident: $name:literal { $($field:ident $member:literal,)* })*) => {
                vec![
                    $(($c, u64::from($request.number)),)*
                    $(($value, u64::from($constant)),)*
                    // The room for its items is ours.
                    ("offsetof(struct udmabuf_create_list, flags)",
                        offset_of!(UdmabufCreateList, flags) as u64),
                    ("offsetof(struct udmabuf_create_list, count)",
                        offset_of!(UdmabufCreateList, count) as u64),
                    ("offsetof(struct udmabuf_create_list, list)",
                        offset_of!(UdmabufCreateList, list) as u64),
                    $((concat!("sizeof(struct ", $name, ")"), size_of::<$record>() as u64),
                      $((concat!("offsetof(struct ", $name, ", ", $member, ")"),
                         offset_of!($record, $field) as u64),)*)*
                ]
            };
        }
        facts! {
            DMA_BUF_SYNC: "DMA_BUF_IOCTL_SYNC",
            DMA_BUF_EXPORT_SYNC_FILE: "DMA_BUF_IOCTL_EXPORT_SYNC_FILE",
            DMA_BUF_IMPORT_SYNC_FILE: "DMA_BUF_IOCTL_IMPORT_SYNC_FILE",
            UDMABUF_CREATE: "UDMABUF_CREATE",
            UDMABUF_CREATE_LIST: "UDMABUF_CREATE_LIST",
            DMA_HEAP_ALLOC: "DMA_HEAP_IOCTL_ALLOC",
            V4L2_QUERYCAP: "VIDIOC_QUERYCAP",
            V4L2_ENUM_FMT: "VIDIOC_ENUM_FMT",
            V4L2_S_FMT: "VIDIOC_S_FMT",
            V4L2_TRY_FMT: "VIDIOC_TRY_FMT",
            V4L2_S_FMT_PLANES: "VIDIOC_S_FMT",
            V4L2_TRY_FMT_PLANES: "VIDIOC_TRY_FMT",
            V4L2_REQBUFS: "VIDIOC_REQBUFS",
            V4L2_QUERYCTRL: "VIDIOC_QUERYCTRL",
            V4L2_QBUF: "VIDIOC_QBUF",
            SYNC_MERGE: "SYNC_IOC_MERGE",
            SYNC_FILE_INFO: "SYNC_IOC_FILE_INFO",
            V4L2_EXPBUF: "VIDIOC_EXPBUF",
            ;
            SYNC_READ = "DMA_BUF_SYNC_READ",
            SYNC_WRITE = "DMA_BUF_SYNC_WRITE",
            SYNC_END = "DMA_BUF_SYNC_END",
            UDMABUF_CLOEXEC = "UDMABUF_FLAGS_CLOEXEC",
            V4L2_CID_HFLIP = "V4L2_CID_HFLIP",
            V4L2_CID_VFLIP = "V4L2_CID_VFLIP",
            V4L2_CID_ROTATE = "V4L2_CID_ROTATE",
            V4L2_CAP_VIDEO_CAPTURE = "V4L2_CAP_VIDEO_CAPTURE",
            V4L2_CAP_VIDEO_CAPTURE_PLANES = "V4L2_CAP_VIDEO_CAPTURE_MPLANE",
            V4L2_CAP_VIDEO_M2M = "V4L2_CAP_VIDEO_M2M",
            V4L2_CAP_VIDEO_M2M_PLANES = "V4L2_CAP_VIDEO_M2M_MPLANE",
            V4L2_CAP_STREAMING = "V4L2_CAP_STREAMING",
            V4L2_CAP_DEVICE_CAPS = "V4L2_CAP_DEVICE_CAPS",
            V4L2_VIDEO_CAPTURE = "V4L2_BUF_TYPE_VIDEO_CAPTURE",
            V4L2_VIDEO_CAPTURE_PLANES = "V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE",
            V4L2_VIDEO_OUTPUT = "V4L2_BUF_TYPE_VIDEO_OUTPUT",
            V4L2_VIDEO_OUTPUT_PLANES = "V4L2_BUF_TYPE_VIDEO_OUTPUT_MPLANE",
            V4L2_FMT_COMPRESSED = "V4L2_FMT_FLAG_COMPRESSED",
            V4L2_MMAP = "V4L2_MEMORY_MMAP",
            V4L2_DMABUF = "V4L2_MEMORY_DMABUF",
            V4L2_FIELD_NONE = "V4L2_FIELD_NONE",
            ;
            DmaBufSync: "dma_buf_sync" { flags "flags", }
            DmaBufSyncFile: "dma_buf_export_sync_file" { flags "flags", fd "fd", }
            DmaBufSyncFile: "dma_buf_import_sync_file" { flags "flags", fd "fd", }
            SyncMerge: "sync_merge_data" {
                name "name", fd2 "fd2", fence "fence", flags "flags", pad "pad",
            }
            SyncFileInfo: "sync_file_info" {
                name "name", status "status", flags "flags", num_fences "num_fences", pad "pad",
                sync_fence_info "sync_fence_info",
            }
            UdmabufCreate: "udmabuf_create" {
                memfd "memfd", flags "flags", offset "offset", size "size",
            }
            UdmabufCreateItem: "udmabuf_create_item" {
                memfd "memfd", pad "__pad", offset "offset", size "size",
            }
            DmaHeapAllocation: "dma_heap_allocation_data" {
                len "len", fd "fd", fd_flags "fd_flags", heap_flags "heap_flags",
            }
            V4l2Capability: "v4l2_capability" {
                driver "driver", card "card", bus_info "bus_info", version "version",
                capabilities "capabilities", device_caps "device_caps", reserved "reserved",
            }
            V4l2FormatDescription: "v4l2_fmtdesc" {
                index "index", kind "type", flags "flags", description "description",
                pixelformat "pixelformat", mbus_code "mbus_code", reserved "reserved",
            }
            V4l2Format: "v4l2_format" {
                kind "type", width "fmt.pix.width", height "fmt.pix.height",
                pixelformat "fmt.pix.pixelformat", field "fmt.pix.field",
                bytesperline "fmt.pix.bytesperline", sizeimage "fmt.pix.sizeimage",
                rest "fmt.pix.colorspace",
            }
            V4l2FormatPlanes: "v4l2_format" {
                kind "type", width "fmt.pix_mp.width", height "fmt.pix_mp.height",
                pixelformat "fmt.pix_mp.pixelformat", field "fmt.pix_mp.field",
                colorspace "fmt.pix_mp.colorspace", planes "fmt.pix_mp.plane_fmt",
                num_planes "fmt.pix_mp.num_planes", rest "fmt.pix_mp.flags",
            }
            V4l2PlaneFormat: "v4l2_plane_pix_format" {
                sizeimage "sizeimage", bytesperline "bytesperline", reserved "reserved",
            }
            V4l2Plane: "v4l2_plane" {
                bytesused "bytesused", length "length", m "m", m "m.fd", data_offset "data_offset",
                reserved "reserved",
            }
            V4l2QueryControl: "v4l2_queryctrl" {
                id "id", kind "type", name "name", minimum "minimum", maximum "maximum", step "step",
                default_value "default_value", flags "flags", reserved "reserved",
            }
            V4l2RequestBuffers: "v4l2_requestbuffers" {
                count "count", kind "type", memory "memory", capabilities "capabilities",
            }
            V4l2Buffer: "v4l2_buffer" {
                index "index", kind "type", bytesused "bytesused", flags "flags", field "field",
                timestamp "timestamp", timecode "timecode", sequence "sequence", memory "memory",
                m "m", m "m.fd", length "length", reserved2 "reserved2", request_fd "request_fd",
            }
            V4l2ExportBuffer: "v4l2_exportbuffer" {
                kind "type", index "index", plane "plane", flags "flags", fd "fd",
                reserved "reserved",
            }
        }
    }

    #[test]
    fn records_and_requests_are_those_of_the_kernels_headers() {
        let mut source = String::from("#include <stddef.h>\n");
        for header in [
            "linux/dma-buf.h",
            "linux/sync_file.h",
            "linux/udmabuf.h",
            "linux/dma-heap.h",
            "linux/videodev2.h",
        ] {
            writeln!(source, "#include <{header}>").unwrap();
        }
        for (expression, value) in facts() {
            let wrong = format!("{expression} is not {value}");
            writeln!(source, "_Static_assert(({expression}) == {value}u, {wrong:?});").unwrap();
        }
        let started = Command::new("cc")
            .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut compiler = started.expect("cc, which Rust links with");
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        let output = compiler.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
