//! Cameras and other sources of V4L2: their own memory exported, that of others imported.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::libc;
use zerocopy::FromZeros;

use super::{each, name_of, nodes, open};
use crate::uapi::{
    self, V4l2Buffer, V4l2Capability, V4l2ExportBuffer, V4l2Format, V4l2FormatPlanes, V4l2Plane,
    V4l2PlaneFormat, V4l2QueryControl, V4l2RequestBuffers,
};
use crate::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, DeviceInfo,
    Driver, Error, ErrorKind, Fourcc, Hint, Image, Import, Operation, Result, Transition, Usage,
    Use, Wait, format, transform,
};

const FOLDER: &str = "/dev";

/// Formats that V4L2 knows by another fourcc than DRM: DRM's, then V4L2's.
const RENAMED: [(&[u8; 4], &[u8; 4]); 4] =
    [(b"RG24", b"BGR3"), (b"BG24", b"RGB3"), (b"RG16", b"RGBP"), (b"R8  ", b"GREY")];

/// Every node that captures whole frames into one piece of memory: `v4l2:video0`, by either of V4L2's interfaces.
pub(super) struct V4l2;

impl Driver for V4l2 {
    fn name(&self) -> &str {
        "v4l2"
    }

    fn devices(&self) -> Result<Vec<Box<dyn Device>>> {
        let found = nodes(FOLDER, "video")?;
        each(&found, |node| Ok(Source::open(node)?.map(|node| Box::new(node) as Box<dyn Device>)))
    }
}

struct Source {
    info: DeviceInfo,
    /// The type of its buffers.
    kind: u32,
}

/// What is negotiated of an image: the same in the records of both interfaces.
#[derive(Clone, Copy)]
struct Negotiated {
    width: u32,
    height: u32,
    pixelformat: u32,
    bytesperline: u32,
    sizeimage: u32,
}

/// Whether a format is only tried.
#[derive(Clone, Copy, PartialEq)]
enum Negotiation {
    Try,
    Set,
}

impl Source {
    /// `None` for a node that does not capture.
    fn open(path: &Path) -> Result<Option<Self>> {
        let name = format!("v4l2:{}", name_of(path));
        let mut queue = Queue { file: open(path)?, name, kind: uapi::V4L2_VIDEO_CAPTURE };
        let mut known = V4l2Capability::new_zeroed();
        queue.call("VIDIOC_QUERYCAP", &uapi::V4L2_QUERYCAP, &mut known)?;
        let of_node = known.capabilities & uapi::V4L2_CAP_DEVICE_CAPS != 0;
        let can = if of_node { known.device_caps } else { known.capabilities };
        let by_planes = can & uapi::V4L2_CAP_VIDEO_CAPTURE_PLANES != 0;
        let captures = by_planes || can & uapi::V4L2_CAP_VIDEO_CAPTURE != 0;
        if !captures || can & uapi::V4L2_CAP_STREAMING == 0 {
            return Ok(None);
        }
        if by_planes {
            queue.kind = uapi::V4L2_VIDEO_CAPTURE_PLANES;
        }
        let info = DeviceInfo {
            name: queue.name,
            node: path.display().to_string(),
            operations: vec![Operation::Capture],
            allocates: true,
            imports: true,
        };
        Ok(Some(Self { info, kind: queue.kind }))
    }

    /// A queue of its own: the node's other users keep theirs.
    fn queue(&self) -> Result<Queue> {
        Ok(Queue { file: open(&self.info.node)?, name: self.info.name.clone(), kind: self.kind })
    }

    /// A queue that is set to the image, with one buffer.
    fn prepared(&self, description: &Description, memory: u32) -> Result<Prepared> {
        let queue = self.queue()?;
        let [plane] = description.layout.planes.as_slice() else {
            let what = format!("{} takes one plane of memory", queue.name);
            return Err(Error::unsupported(what));
        };
        let image = description.usage.image;
        let format = queue.format(Negotiation::Set, &image, plane.pitch)?;
        if u64::from(format.bytesperline) != plane.pitch {
            let what = format!(
                "{} has rows of {} bytes, not {}",
                queue.name, format.bytesperline, plane.pitch
            );
            return Err(Error::unsupported(what));
        }
        queue.request_buffers(memory, 1)?;
        Ok(Prepared { queue, memory, size: format.sizeimage })
    }
}

impl Device for Source {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// What the driver makes of the image when it is asked for it. Rows that are longer than they
    /// have to be show what they are aligned to.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if operation != Operation::Capture {
            return Ok(Vec::new());
        }
        let queue = self.queue()?;
        let Ok(tight) = queue.format(Negotiation::Try, image, 0) else { return Ok(Vec::new()) };
        let pitch = u64::from(tight.bytesperline);
        let mut constraints = Vec::new();
        let longer = u64::from(queue.format(Negotiation::Try, image, pitch + 1)?.bytesperline);
        if longer == pitch {
            // It has one answer.
            constraints.push(Constraint::new(ConstraintName::MAX_PITCH, pitch));
        }
        let alignment = 1 << longer.trailing_zeros().min(pitch.trailing_zeros());
        if alignment > 1 {
            constraints.push(Constraint::new(ConstraintName::PITCH_ALIGNMENT, alignment));
        }
        let rows = pitch * u64::from(image.height);
        if let Some(behind) = u64::from(tight.sizeimage).checked_sub(rows).filter(|more| *more > 0)
        {
            constraints.push(Constraint::new(ConstraintName::SIZE_PADDING, behind));
        }
        Ok(vec![CapabilitySet::new(constraints, vec![Capability::pitch_linear()])])
    }

    /// A camera mirrors and turns by controls of its own.
    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        if let Some(unknown) = usage.details.first() {
            return Err(self.unknown(unknown));
        }
        for detail in wanted.details.iter().filter(|detail| !detail.is_plain()) {
            let bits = detail.as_transform().ok_or_else(|| self.unknown(detail))?;
            if !self.queue()?.turns(bits)? {
                return Ok(Vec::new());
            }
        }
        self.sets(&usage.image, wanted.operation)
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        if !self.info.operations.contains(&operation) {
            return Ok(Vec::new());
        }
        let queue = self.queue()?;
        Ok(format::known().filter_map(|format| queue.largest(format)).collect())
    }

    fn cost(&self, _set: &CapabilitySet) -> u64 {
        40
    }

    fn request(&self, description: &Description) -> String {
        let (image, planes) = (&description.usage.image, &description.layout.planes);
        let pitch = planes.first().map_or(0, |plane| plane.pitch);
        format!(
            "VIDIOC_S_FMT {image} in rows of {pitch} bytes, VIDIOC_EXPBUF, on {}",
            self.info.node
        )
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        let prepared = self.prepared(description, uapi::V4L2_MMAP)?;
        // The dma-buf holds the memory when the queue is gone.
        Buffer::new(prepared.export()?, description.clone())
    }

    /// While the import is held, nobody else can capture.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let prepared = self.prepared(buffer.description(), uapi::V4L2_DMABUF)?;
        prepared.take(buffer)?;
        Ok(Box::new(prepared))
    }

    /// V4L2 puts no fences: a frame is finished when its buffer comes back.
    fn transition(&self, from: Operation, to: Operation) -> Transition {
        let between = Transition::between(from, to);
        let by_frame = from == Operation::Capture && between.wait == Wait::Fences;
        Transition { wait: if by_frame { Wait::Device } else { between.wait }, ..between }
    }
}

/// An open node.
struct Queue {
    file: File,
    name: String,
    /// The type of its buffers.
    kind: u32,
}

impl Queue {
    fn call<T>(&self, name: &str, request: &uapi::Request<T>, params: &mut T) -> Result<()> {
        // SAFETY: a `Queue` is made of `/dev/video*` alone, whose requests are V4L2's; what they name memory by
        // here are descriptors and offsets, so that no record holds an address.
        let called = unsafe { request.call(self.file.as_fd(), params) };
        called.map(drop).map_err(|error| self.refused(name, error))
    }

    /// Tries or sets a format; 0 asks for the shortest rows that the driver has.
    fn format(&self, how: Negotiation, image: &Image, pitch: u64) -> Result<Negotiated> {
        let pixelformat = pixel_format(image.format);
        let bytesperline = u32::try_from(pitch)
            .map_err(|_| Error::invalid(format!("rows of {pitch} bytes are too long")))?;
        let Image { width, height, .. } = *image;
        let asked = Negotiated { width, height, pixelformat, bytesperline, sizeimage: 0 };
        let format = self.negotiate(how, asked)?;
        // What it cannot do, a driver replaces by what it can.
        let is_it = format.pixelformat == pixelformat
            && (format.width, format.height) == (image.width, image.height);
        if is_it {
            return Ok(format);
        }
        Err(Error::unsupported(format!("{} does not capture {image}", self.name)))
    }

    fn negotiate(&self, how: Negotiation, asked: Negotiated) -> Result<Negotiated> {
        if self.kind == uapi::V4L2_VIDEO_CAPTURE_PLANES {
            return self.negotiate_planes(how, asked);
        }
        let mut format = V4l2Format {
            kind: self.kind,
            width: asked.width,
            height: asked.height,
            pixelformat: asked.pixelformat,
            field: uapi::V4L2_FIELD_NONE,
            bytesperline: asked.bytesperline,
            ..V4l2Format::new_zeroed()
        };
        match how {
            Negotiation::Try => self.call("VIDIOC_TRY_FMT", &uapi::V4L2_TRY_FMT, &mut format)?,
            Negotiation::Set => self.call("VIDIOC_S_FMT", &uapi::V4L2_S_FMT, &mut format)?,
        }
        let V4l2Format { width, height, pixelformat, bytesperline, sizeimage, .. } = format;
        Ok(Negotiated { width, height, pixelformat, bytesperline, sizeimage })
    }

    /// The same of a queue whose buffers may have a memory for each plane. Formats of DRM are in one.
    fn negotiate_planes(&self, how: Negotiation, asked: Negotiated) -> Result<Negotiated> {
        let mut format = V4l2FormatPlanes {
            kind: self.kind,
            width: asked.width,
            height: asked.height,
            pixelformat: asked.pixelformat,
            field: uapi::V4L2_FIELD_NONE,
            num_planes: 1,
            ..V4l2FormatPlanes::new_zeroed()
        };
        format.planes[0].bytesperline = asked.bytesperline;
        match how {
            Negotiation::Try => {
                self.call("VIDIOC_TRY_FMT", &uapi::V4L2_TRY_FMT_PLANES, &mut format)?;
            }
            Negotiation::Set => self.call("VIDIOC_S_FMT", &uapi::V4L2_S_FMT_PLANES, &mut format)?,
        }
        let V4l2FormatPlanes { width, height, pixelformat, planes, num_planes, .. } = format;
        if num_planes != 1 {
            let format = Fourcc(pixelformat);
            let what = format!("{} has {num_planes} memories for {format}", self.name);
            return Err(Error::unsupported(what));
        }
        let V4l2PlaneFormat { sizeimage, bytesperline, .. } = planes[0];
        Ok(Negotiated { width, height, pixelformat, bytesperline, sizeimage })
    }

    /// The largest image of a format.
    fn largest(&self, format: Fourcc) -> Option<Hint> {
        let (side, pixelformat) = (u32::from(u16::MAX), pixel_format(format));
        let asked =
            Negotiated { width: side, height: side, pixelformat, bytesperline: 0, sizeimage: 0 };
        let found = self.negotiate(Negotiation::Try, asked).ok()?;
        let (max_width, max_height) = (found.width, found.height);
        (found.pixelformat == pixelformat).then_some(Hint { format, max_width, max_height })
    }

    /// Whether it has a control for each bit of a transform.
    fn turns(&self, bits: u32) -> Result<bool> {
        let turned =
            match bits & (transform::ROTATE_90 | transform::ROTATE_180 | transform::ROTATE_270) {
                0 => None,
                transform::ROTATE_90 => Some(90),
                transform::ROTATE_180 => Some(180),
                _ => Some(270),
            };
        let mirrored = |bit: u32| (bits & bit != 0).then_some(1);
        let asked = [
            (uapi::V4L2_CID_ROTATE, turned),
            (uapi::V4L2_CID_HFLIP, mirrored(transform::REFLECT_X)),
            (uapi::V4L2_CID_VFLIP, mirrored(transform::REFLECT_Y)),
        ];
        for (id, value) in asked {
            let Some(value) = value else { continue };
            let mut control = V4l2QueryControl { id, ..V4l2QueryControl::new_zeroed() };
            match self.call("VIDIOC_QUERYCTRL", &uapi::V4L2_QUERYCTRL, &mut control) {
                Ok(()) if (control.minimum..=control.maximum).contains(&value) => {}
                Ok(()) => return Ok(false),
                // The driver has no such control.
                Err(error) if matches!(error.errno(), Some(libc::EINVAL | libc::ENOTTY)) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn request_buffers(&self, memory: u32, count: u32) -> Result<()> {
        let kind = self.kind;
        let mut params = V4l2RequestBuffers { count, kind, memory, capabilities: 0, reserved: 0 };
        self.call("VIDIOC_REQBUFS", &uapi::V4L2_REQBUFS, &mut params)
    }

    fn refused(&self, call: &str, error: io::Error) -> Error {
        Error::io(ErrorKind::Call, format!("{call} on {}", self.name), error)
    }
}

/// A queue with one buffer, which it lets go of when this goes.
struct Prepared {
    queue: Queue,
    memory: u32,
    size: u32,
}

impl Prepared {
    fn export(&self) -> Result<OwnedFd> {
        let mut params = V4l2ExportBuffer {
            kind: self.queue.kind,
            flags: (libc::O_CLOEXEC | libc::O_RDWR) as u32,
            fd: -1,
            ..V4l2ExportBuffer::new_zeroed()
        };
        self.queue.call("VIDIOC_EXPBUF", &uapi::V4L2_EXPBUF, &mut params)?;
        // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
        unsafe { uapi::own(params.fd) }.map_err(|error| self.queue.refused("VIDIOC_EXPBUF", error))
    }

    /// Queues the memory, at which the driver maps it: before it streams, nothing is captured.
    fn take(&self, buffer: &Buffer) -> Result<()> {
        if buffer.size() < u64::from(self.size) {
            let what = format!(
                "{} writes {} bytes, but the buffer has {}",
                self.queue.name,
                self.size,
                buffer.size()
            );
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let mut params = V4l2Buffer {
            kind: self.queue.kind,
            memory: uapi::V4L2_DMABUF,
            m: buffer.as_fd().as_raw_fd() as u64,
            // The driver takes the file's own size.
            length: 0,
            ..V4l2Buffer::new_zeroed()
        };
        let mut plane = V4l2Plane { m: params.m, ..V4l2Plane::new_zeroed() };
        if self.queue.kind == uapi::V4L2_VIDEO_CAPTURE_PLANES {
            (params.m, params.length) = ((&raw mut plane).expose_provenance() as u64, 1);
        }
        // SAFETY: a `Queue` is made of `/dev/video*` alone, whose requests are V4L2's. The address is of one plane, as
        // the length says, which lives through the call.
        let called = unsafe { uapi::V4L2_QBUF.call(self.queue.file.as_fd(), &mut params) };
        called.map(drop).map_err(|error| self.queue.refused("VIDIOC_QBUF", error))
    }
}

impl Import for Prepared {}

impl Drop for Prepared {
    fn drop(&mut self) {
        // Closing the file does it as well; nobody is there to hear why not.
        let _ = self.queue.request_buffers(self.memory, 0);
    }
}

fn pixel_format(fourcc: Fourcc) -> u32 {
    let renamed = RENAMED.iter().find(|(drm, _)| Fourcc::new(drm) == fourcc);
    renamed.map_or(fourcc.0, |(_, v4l2)| u32::from_le_bytes(**v4l2))
}
