//! Cameras and other sources of V4L2: their own memory exported, that of others imported.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::libc;
use zerocopy::FromZeros;

use super::{each, name_of, nodes, open};
use crate::buffer::page;
use crate::format::PlaneFormat;
use crate::uapi::{
    self, V4l2Buffer, V4l2Capability, V4l2ExportBuffer, V4l2Format, V4l2FormatPlanes, V4l2Plane,
    V4l2PlaneFormat, V4l2QueryControl, V4l2RequestBuffers,
};
use crate::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Device, DeviceInfo,
    Driver, Error, ErrorKind, Fourcc, Hint, Image, Import, Layout, Operation, Piece, Result,
    Transition, Usage, Use, Wait, format, solve, transform,
};

const FOLDER: &str = "/dev";

/// Formats that V4L2 knows by another fourcc than DRM: DRM's, then V4L2's.
const RENAMED: [(&[u8; 4], &[u8; 4]); 4] =
    [(b"RG24", b"BGR3"), (b"BG24", b"RGB3"), (b"RG16", b"RGBP"), (b"R8  ", b"GREY")];

/// Formats whose planes are in a file each, which DRM does not tell from those in one: DRM's, then V4L2's.
const BY_PLANES: [(&[u8; 4], &[u8; 4]); 10] = [
    (b"NV12", b"NM12"),
    (b"NV21", b"NM21"),
    (b"NV16", b"NM16"),
    (b"NV61", b"NM61"),
    (b"YU12", b"YM12"),
    (b"YV12", b"YM21"),
    (b"YU16", b"YM16"),
    (b"YV16", b"YM61"),
    (b"YU24", b"YM24"),
    (b"YV24", b"YM42"),
];

/// Every node that captures whole frames: `v4l2:video0`, by either of V4L2's interfaces.
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
#[derive(Clone)]
struct Negotiated {
    width: u32,
    height: u32,
    pixelformat: u32,
    /// A file each.
    files: Vec<V4l2PlaneFormat>,
}

impl Negotiated {
    fn new(width: u32, height: u32, pixelformat: u32, pitches: &[u32]) -> Self {
        let file = |bytesperline: &u32| V4l2PlaneFormat {
            bytesperline: *bytesperline,
            ..FromZeros::new_zeroed()
        };
        Self { width, height, pixelformat, files: pitches.iter().map(file).collect() }
    }

    /// From one row of the first plane to the next.
    fn pitch(&self) -> u64 {
        self.files.first().map_or(0, |file| file.bytesperline.into())
    }
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
        let planes = &description.layout.planes;
        let image = description.usage.image;
        let fits = match description.files() {
            1 => is_one_behind_the_other(&image, &description.layout),
            files => files == planes.len() as u64,
        };
        if !fits {
            let what =
                format!("{} has its planes one behind the other, or in a file each", queue.name);
            return Err(Error::unsupported(what));
        }
        let files = usize::try_from(description.files()).unwrap_or(usize::MAX);
        let pitches: Vec<u64> = planes.iter().take(files).map(|plane| plane.pitch).collect();
        let format = queue.format(Negotiation::Set, &image, &pitches)?;
        for (file, plane) in format.files.iter().zip(planes) {
            if u64::from(file.bytesperline) != plane.pitch {
                let what = format!(
                    "{} has rows of {} bytes, not {}",
                    queue.name, file.bytesperline, plane.pitch
                );
                return Err(Error::unsupported(what));
            }
        }
        queue.request_buffers(memory, 1)?;
        let sizes = format.files.iter().map(|file| file.sizeimage).collect();
        Ok(Prepared { queue, memory, sizes })
    }
}

impl Device for Source {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// What the driver makes of the image when it is asked for it, in one file and in one for each plane.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if operation != Operation::Capture {
            return Ok(Vec::new());
        }
        let queue = self.queue()?;
        let planes = format::planes(image.format).map_or(1, <[_]>::len);
        let mut ways = vec![1];
        if self.kind == uapi::V4L2_VIDEO_CAPTURE_PLANES && by_planes(image.format).is_some() {
            ways.push(planes);
        }
        let mut sets = Vec::new();
        for files in ways {
            // What is refused here it does not capture so.
            let Ok(tight) = queue.format(Negotiation::Try, image, &vec![0; files]) else {
                continue;
            };
            let constraints = queue.constraints(image, &tight)?;
            sets.push(CapabilitySet::new(constraints, vec![Capability::pitch_linear()]));
        }
        Ok(sets)
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
        Buffer::new(prepared.export(0)?, description.clone())
    }

    fn allocate_files(&self, description: &Description) -> Result<Buffer> {
        let prepared = self.prepared(description, uapi::V4L2_MMAP)?;
        let files = (0..).zip(&prepared.sizes).map(|(plane, _)| prepared.export(plane));
        Buffer::by_planes(files.collect::<Result<_>>()?, description.clone())
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

    /// Tries or sets a format with a file for each pitch; 0 asks for the shortest rows that the driver has.
    fn format(&self, how: Negotiation, image: &Image, pitches: &[u64]) -> Result<Negotiated> {
        let unknown = || Error::unsupported(format!("{} does not capture {image}", self.name));
        let pixelformat = match pitches.len() {
            1 => pixel_format(image.format),
            _ => by_planes(image.format).ok_or_else(unknown)?,
        };
        let narrow = |pitch: &u64| {
            let wide = || Error::invalid(format!("rows of {pitch} bytes are too long"));
            u32::try_from(*pitch).map_err(|_| wide())
        };
        let pitches: Vec<u32> = pitches.iter().map(narrow).collect::<Result<_>>()?;
        let Image { width, height, .. } = *image;
        let format = self.negotiate(how, Negotiated::new(width, height, pixelformat, &pitches))?;
        // What it cannot do, a driver replaces by what it can.
        let is_it = format.pixelformat == pixelformat
            && format.files.len() == pitches.len()
            && (format.width, format.height) == (image.width, image.height);
        if is_it { Ok(format) } else { Err(unknown()) }
    }

    /// What memory must be like for a format with the shortest rows. Rows that are longer than they have to be show
    /// what they are aligned to.
    fn constraints(&self, image: &Image, tight: &Negotiated) -> Result<Vec<Constraint>> {
        let pitch = tight.pitch();
        let mut constraints = Vec::new();
        let mut wider = vec![0; tight.files.len()];
        wider[0] = pitch + 1;
        let longer = self.format(Negotiation::Try, image, &wider)?.pitch();
        if longer == pitch {
            // It has one answer.
            constraints.push(Constraint::new(ConstraintName::MAX_PITCH, pitch));
        }
        // Compressed formats have no rows, and drivers say 0.
        let alignment =
            1_u64.checked_shl(longer.trailing_zeros().min(pitch.trailing_zeros())).unwrap_or(1);
        if alignment > 1 {
            constraints.push(Constraint::new(ConstraintName::PITCH_ALIGNMENT, alignment));
        }
        if tight.files.len() > 1 {
            // Each file begins with a page.
            let files = tight.files.len() as u64;
            constraints.push(Constraint::new(ConstraintName::OFFSET_ALIGNMENT, page()));
            constraints.push(Constraint::new(ConstraintName::FILES, files));
            return Ok(constraints);
        }
        let rows =
            solve(image, &CapabilitySet::new(constraints.clone(), [Capability::pitch_linear()]));
        let rows = rows.map_or(pitch * u64::from(image.height), |layout| layout.size);
        let size = tight.files.first().map_or(0, |file| u64::from(file.sizeimage));
        if let Some(behind) = size.checked_sub(rows).filter(|more| *more > 0) {
            constraints.push(Constraint::new(ConstraintName::SIZE_PADDING, behind));
        }
        Ok(constraints)
    }

    fn negotiate(&self, how: Negotiation, asked: Negotiated) -> Result<Negotiated> {
        if self.kind == uapi::V4L2_VIDEO_CAPTURE_PLANES {
            return self.negotiate_planes(how, &asked);
        }
        let mut format = V4l2Format {
            kind: self.kind,
            width: asked.width,
            height: asked.height,
            pixelformat: asked.pixelformat,
            field: uapi::V4L2_FIELD_NONE,
            bytesperline: asked.files.first().map_or(0, |file| file.bytesperline),
            ..V4l2Format::new_zeroed()
        };
        match how {
            Negotiation::Try => self.call("VIDIOC_TRY_FMT", &uapi::V4L2_TRY_FMT, &mut format)?,
            Negotiation::Set => self.call("VIDIOC_S_FMT", &uapi::V4L2_S_FMT, &mut format)?,
        }
        let V4l2Format { width, height, pixelformat, bytesperline, sizeimage, .. } = format;
        let mut got = Negotiated::new(width, height, pixelformat, &[bytesperline]);
        got.files[0].sizeimage = sizeimage;
        Ok(got)
    }

    /// The same of a queue whose buffers may have a file for each plane.
    fn negotiate_planes(&self, how: Negotiation, asked: &Negotiated) -> Result<Negotiated> {
        let mut format = V4l2FormatPlanes {
            kind: self.kind,
            width: asked.width,
            height: asked.height,
            pixelformat: asked.pixelformat,
            field: uapi::V4L2_FIELD_NONE,
            num_planes: asked.files.len() as u8,
            ..V4l2FormatPlanes::new_zeroed()
        };
        // There are no more planes than a format of DRM has.
        format.planes.iter_mut().zip(&asked.files).for_each(|(to, file)| *to = *file);
        match how {
            Negotiation::Try => {
                self.call("VIDIOC_TRY_FMT", &uapi::V4L2_TRY_FMT_PLANES, &mut format)?;
            }
            Negotiation::Set => self.call("VIDIOC_S_FMT", &uapi::V4L2_S_FMT_PLANES, &mut format)?,
        }
        let V4l2FormatPlanes { width, height, pixelformat, planes, num_planes, .. } = format;
        let files = planes.into_iter().take(num_planes.into()).collect();
        Ok(Negotiated { width, height, pixelformat, files })
    }

    /// The largest image of a format.
    fn largest(&self, format: Fourcc) -> Option<Hint> {
        let (side, pixelformat) = (u32::from(u16::MAX), pixel_format(format));
        let asked = Negotiated::new(side, side, pixelformat, &[0]);
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
    /// What the driver writes to each file.
    sizes: Vec<u32>,
}

impl Prepared {
    fn export(&self, plane: u32) -> Result<OwnedFd> {
        let mut params = V4l2ExportBuffer {
            kind: self.queue.kind,
            plane,
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
        if buffer.pieces().len() != self.sizes.len() {
            let (takes, has) = (self.sizes.len(), buffer.pieces().len());
            let what = format!("{} takes memory in {takes} files, not in {has}", self.queue.name);
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        for (piece, size) in buffer.pieces().iter().zip(&self.sizes) {
            if piece.size() < u64::from(*size) {
                let (name, has) = (&self.queue.name, piece.size());
                let what = format!("{name} writes {size} bytes, but the buffer has {has}");
                return Err(Error::new(ErrorKind::Mismatch, what));
            }
        }
        // The driver takes the files' own sizes.
        let plane = |piece: &Piece| V4l2Plane {
            m: piece.as_fd().as_raw_fd() as u64,
            ..V4l2Plane::new_zeroed()
        };
        let mut planes: Vec<V4l2Plane> = buffer.pieces().iter().map(plane).collect();
        let mut params = V4l2Buffer {
            kind: self.queue.kind,
            memory: uapi::V4L2_DMABUF,
            m: planes.first().map_or(0, |plane| plane.m),
            length: 0,
            ..V4l2Buffer::new_zeroed()
        };
        if self.queue.kind == uapi::V4L2_VIDEO_CAPTURE_PLANES {
            params.m = planes.as_mut_ptr().expose_provenance() as u64;
            params.length = planes.len() as u32;
        }
        // SAFETY: a `Queue` is made of `/dev/video*` alone, whose requests are V4L2's. The address is of as many
        // planes as the length says, which live through the call.
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

/// Whether planes in one file are where V4L2 has them: each begins where the one before ends, and its rows are as much
/// shorter than the first one's as it has fewer samples.
fn is_one_behind_the_other(image: &Image, layout: &Layout) -> bool {
    let Some(formats) = format::planes(image.format) else { return layout.planes.len() == 1 };
    let Some((first, of_first)) = layout.planes.first().zip(formats.first()) else { return false };
    // Bytes of a row of so many pixels that every plane has whole samples.
    let weight = |of: &PlaneFormat, other: &PlaneFormat| {
        u64::from(of.bytes) * u64::from(other.samples) * u64::from(other.across)
    };
    let mut end = 0;
    layout.planes.iter().zip(formats).all(|(plane, of)| {
        let is_next = plane.offset == end;
        end = plane.offset.saturating_add(plane.size);
        let pitches = (
            plane.pitch.checked_mul(weight(of_first, of)),
            first.pitch.checked_mul(weight(of, of_first)),
        );
        is_next && pitches.0.is_some() && pitches.0 == pitches.1
    })
}

/// V4L2's format with a file for each plane.
fn by_planes(fourcc: Fourcc) -> Option<u32> {
    let found = BY_PLANES.iter().find(|(drm, _)| Fourcc::new(drm) == fourcc);
    found.map(|(_, v4l2)| u32::from_le_bytes(**v4l2))
}

fn pixel_format(fourcc: Fourcc) -> u32 {
    let renamed = RENAMED.iter().find(|(drm, _)| Fourcc::new(drm) == fourcc);
    renamed.map_or(fourcc.0, |(_, v4l2)| u32::from_le_bytes(**v4l2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_v4l2s(format: &[u8; 4], constraint: (ConstraintName, u64)) -> bool {
        let image = Image::new(640, 480, Fourcc::new(format));
        let asked = Constraint::new(constraint.0, constraint.1);
        let set = CapabilitySet::new([asked], [Capability::pitch_linear()]);
        is_one_behind_the_other(&image, &solve(&image, &set).unwrap())
    }

    #[test]
    fn planes_in_one_file_have_one_place() {
        let tight = (ConstraintName::PITCH_ALIGNMENT, 1);
        for format in [b"XR24", b"NV12", b"NV16", b"YU12", b"YU24", b"YUYV"] {
            assert!(is_v4l2s(format, tight), "{}", Fourcc::new(format));
        }
        // Rows of 768 bytes, and of 384: half as many. Of 640 and 384: not.
        assert!(is_v4l2s(b"YU12", (ConstraintName::PITCH_ALIGNMENT, 192)));
        assert!(!is_v4l2s(b"YU12", (ConstraintName::PITCH_ALIGNMENT, 128)));
        // 640 * 480 bytes are whole pages, and a quarter of them not.
        assert!(is_v4l2s(b"NV12", (ConstraintName::OFFSET_ALIGNMENT, 4096)));
        assert!(!is_v4l2s(b"YU12", (ConstraintName::OFFSET_ALIGNMENT, 8192)));
    }

    #[test]
    fn formats_with_a_file_for_each_plane_have_several() {
        for (drm, v4l2) in BY_PLANES {
            let drm = Fourcc::new(drm);
            assert!(format::planes(drm).is_some_and(|planes| planes.len() > 1), "{drm}");
            assert_eq!(by_planes(drm), Some(u32::from_le_bytes(*v4l2)));
        }
        assert_eq!(by_planes(Fourcc::new(b"XR24")), None);
    }
}
