//! A queue of an open node: its formats, and memory in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::libc;
use zerocopy::FromZeros;

use super::Role;
use super::frames::{by_planes, is_one_behind_the_other, pixel_format, row_alignment};
use crate::buffer::page;
use crate::uapi::{
    self, V4l2Buffer, V4l2ExportBuffer, V4l2Format, V4l2FormatDescription, V4l2FormatPlanes,
    V4l2Plane, V4l2PlaneFormat, V4l2QueryControl, V4l2RequestBuffers,
};
use crate::{
    Buffer, Capability, CapabilitySet, Constraint, ConstraintName, Description, Error, ErrorKind,
    Fourcc, Hint, Image, Operation, Piece, Result, solve, transform,
};

/// More formats than this are not formats, but a driver that never ends.
const MOST_FORMATS: u32 = 1024;

/// The type of a queue's buffers: the driver writes those of capture and reads those of output.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(u32)]
pub(super) enum Kind {
    Capture = uapi::V4L2_VIDEO_CAPTURE,
    Output = uapi::V4L2_VIDEO_OUTPUT,
    CapturePlanes = uapi::V4L2_VIDEO_CAPTURE_PLANES,
    OutputPlanes = uapi::V4L2_VIDEO_OUTPUT_PLANES,
}

impl Kind {
    /// Whether buffers may have a file for each plane.
    pub(super) fn is_by_planes(self) -> bool {
        matches!(self, Self::CapturePlanes | Self::OutputPlanes)
    }

    /// Whether the driver reads.
    fn is_read(self) -> bool {
        matches!(self, Self::Output | Self::OutputPlanes)
    }
}

/// A format that a queue lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) pixelformat: u32,
    pub(super) compressed: bool,
}

/// What is negotiated of an image: the same in the records of both interfaces.
#[derive(Clone)]
pub(super) struct Negotiated {
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
pub(super) enum Negotiation {
    Try,
    Set,
}

/// An open node, and which of its queues is meant.
pub(super) struct Queue {
    pub(super) file: File,
    pub(super) name: String,
    pub(super) role: Role,
}

impl Queue {
    pub(super) fn call<T>(
        &self,
        name: &str,
        request: &uapi::Request<T>,
        params: &mut T,
    ) -> Result<()> {
        // SAFETY: a `Queue` is made of `/dev/video*` alone, whose requests are V4L2's; what they name memory by
        // here are descriptors and offsets, so that no record holds an address.
        let called = unsafe { request.call(self.file.as_fd(), params) };
        called.map(drop).map_err(|error| self.refused(name, error))
    }

    /// The formats that a queue of the node lists.
    pub(super) fn formats(&self, kind: Kind) -> Result<Vec<Format>> {
        let mut formats = Vec::new();
        for index in 0..MOST_FORMATS {
            let mut listed = V4l2FormatDescription {
                index,
                kind: kind as u32,
                ..V4l2FormatDescription::new_zeroed()
            };
            match self.call("VIDIOC_ENUM_FMT", &uapi::V4L2_ENUM_FMT, &mut listed) {
                Ok(()) => formats.push(Format {
                    pixelformat: listed.pixelformat,
                    compressed: listed.flags & uapi::V4L2_FMT_COMPRESSED != 0,
                }),
                Err(error) if error.errno() == Some(libc::EINVAL) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(formats)
    }

    /// Tries or sets a format with a file for each pitch; 0 asks for the shortest rows that the driver has.
    pub(super) fn format(
        &self,
        how: Negotiation,
        image: &Image,
        pitches: &[u64],
    ) -> Result<Negotiated> {
        let (name, operation) = (&self.name, self.role.operation);
        let unknown = || Error::unsupported(format!("{name} does not {operation} {image}"));
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
        let format = self.negotiate(how, &Negotiated::new(width, height, pixelformat, &pitches))?;
        // What it cannot do, a driver replaces by what it can. A codec's frames are whole blocks, of which the image is
        // the upper left; of others, a frame of another size is another image.
        let size_fits = match self.role.operation {
            Operation::Encode | Operation::Decode => {
                format.width >= width
                    && row_alignment(image, format.height, pitches.len()).is_some()
            }
            _ => (format.width, format.height) == (width, height),
        };
        let is_it =
            format.pixelformat == pixelformat && format.files.len() == pitches.len() && size_fits;
        if is_it { Ok(format) } else { Err(unknown()) }
    }

    /// What memory must be like for a format with the shortest rows. Rows that are longer than they have to be show
    /// what they are aligned to.
    pub(super) fn constraints(&self, image: &Image, tight: &Negotiated) -> Result<Vec<Constraint>> {
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
        let rows = row_alignment(image, tight.height, tight.files.len()).unwrap_or(1);
        if rows > 1 {
            constraints.push(Constraint::new(ConstraintName::ROW_ALIGNMENT, rows.into()));
        }
        if tight.files.len() > 1 {
            // Each file begins with a page.
            let files = tight.files.len() as u64;
            constraints.push(Constraint::new(ConstraintName::OFFSET_ALIGNMENT, page()));
            constraints.push(Constraint::new(ConstraintName::FILES, files));
        }
        let behind = self.behind(image, tight, &constraints);
        if behind > 0 {
            constraints.push(Constraint::new(ConstraintName::SIZE_PADDING, behind));
        }
        Ok(constraints)
    }

    /// Bytes that the driver writes behind the pixels of the memory, or of the file that has the most.
    fn behind(&self, image: &Image, tight: &Negotiated, constraints: &[Constraint]) -> u64 {
        let set = CapabilitySet::new(constraints, [Capability::pitch_linear()]);
        let layout = solve(image, &set).ok();
        let all = || tight.pitch() * u64::from(image.height);
        let pixels = |file: usize| match (&layout, tight.files.len()) {
            (Some(layout), 1) => layout.size,
            (Some(layout), _) => layout.planes.get(file).map_or(0, |plane| plane.size),
            (None, _) => all(),
        };
        let sizes = tight.files.iter().map(|file| u64::from(file.sizeimage)).enumerate();
        sizes.map(|(file, size)| size.saturating_sub(pixels(file))).max().unwrap_or(0)
    }

    fn negotiate(&self, how: Negotiation, asked: &Negotiated) -> Result<Negotiated> {
        if let Some((kind, pixelformat)) = self.role.coded {
            let coded = Negotiated::new(asked.width, asked.height, pixelformat, &[0]);
            self.ask(Negotiation::Set, kind, &coded)?;
        }
        self.ask(how, self.role.kind, asked)
    }

    fn ask(&self, how: Negotiation, kind: Kind, asked: &Negotiated) -> Result<Negotiated> {
        if kind.is_by_planes() {
            return self.ask_planes(how, kind, asked);
        }
        let mut format = V4l2Format {
            kind: kind as u32,
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
    fn ask_planes(&self, how: Negotiation, kind: Kind, asked: &Negotiated) -> Result<Negotiated> {
        let mut format = V4l2FormatPlanes {
            kind: kind as u32,
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
    pub(super) fn largest(&self, format: Fourcc) -> Option<Hint> {
        let (side, pixelformat) = (u32::from(u16::MAX), pixel_format(format));
        let asked = Negotiated::new(side, side, pixelformat, &[0]);
        let found = self.negotiate(Negotiation::Try, &asked).ok()?;
        let (max_width, max_height) = (found.width, found.height);
        (found.pixelformat == pixelformat).then_some(Hint { format, max_width, max_height })
    }

    /// Whether it has a control for each bit of a transform.
    pub(super) fn turns(&self, bits: u32) -> Result<bool> {
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

    /// Sets the queue to the image, with one buffer.
    pub(super) fn prepare(self, description: &Description, memory: u32) -> Result<Prepared> {
        let planes = &description.layout.planes;
        let image = description.usage.image;
        let files = match description.files() {
            1 => 1,
            files if files == planes.len() as u64 => planes.len(),
            _ => return Err(self.misplaced()),
        };
        let pitches: Vec<u64> = planes.iter().take(files).map(|plane| plane.pitch).collect();
        let format = self.format(Negotiation::Set, &image, &pitches)?;
        for (file, plane) in format.files.iter().zip(planes) {
            if u64::from(file.bytesperline) != plane.pitch {
                let what = format!(
                    "{} has rows of {} bytes, not {}",
                    self.name, file.bytesperline, plane.pitch
                );
                return Err(Error::unsupported(what));
            }
        }
        if files == 1 && !is_one_behind_the_other(&image, &description.layout, format.height) {
            return Err(self.misplaced());
        }
        self.request_buffers(memory, 1)?;
        let sizes = format.files.iter().map(|file| file.sizeimage).collect();
        Ok(Prepared { queue: self, memory, sizes })
    }

    fn misplaced(&self) -> Error {
        let what = "has its planes one behind the other, or in a file each";
        Error::unsupported(format!("{} {what}", self.name))
    }

    fn request_buffers(&self, memory: u32, count: u32) -> Result<()> {
        let kind = self.role.kind as u32;
        let mut params = V4l2RequestBuffers { count, kind, memory, capabilities: 0, reserved: 0 };
        self.call("VIDIOC_REQBUFS", &uapi::V4L2_REQBUFS, &mut params)
    }

    fn refused(&self, call: &str, error: io::Error) -> Error {
        Error::io(ErrorKind::Call, format!("{call} on {}", self.name), error)
    }
}

/// A queue with one buffer, which it lets go of when this goes.
pub(super) struct Prepared {
    queue: Queue,
    memory: u32,
    /// What the driver writes to each file.
    sizes: Vec<u32>,
}

impl Prepared {
    /// A file of the driver's own memory.
    pub(super) fn export(&self, plane: u32) -> Result<OwnedFd> {
        let mut params = V4l2ExportBuffer {
            kind: self.queue.role.kind as u32,
            plane,
            flags: (libc::O_CLOEXEC | libc::O_RDWR) as u32,
            fd: -1,
            ..V4l2ExportBuffer::new_zeroed()
        };
        self.queue.call("VIDIOC_EXPBUF", &uapi::V4L2_EXPBUF, &mut params)?;
        // SAFETY: the request has succeeded, and so made a descriptor for this process that nobody else knows.
        unsafe { uapi::own(params.fd) }.map_err(|error| self.queue.refused("VIDIOC_EXPBUF", error))
    }

    /// All of them.
    pub(super) fn export_all(&self) -> Result<Vec<OwnedFd>> {
        (0..).zip(&self.sizes).map(|(plane, _)| self.export(plane)).collect()
    }

    /// Queues the memory, at which the driver maps it: before it streams, nothing is done with it.
    pub(super) fn take(&self, buffer: &Buffer) -> Result<()> {
        if buffer.pieces().len() != self.sizes.len() {
            let (takes, has) = (self.sizes.len(), buffer.pieces().len());
            let what = format!("{} takes memory in {takes} files, not in {has}", self.queue.name);
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        for (piece, size) in buffer.pieces().iter().zip(&self.sizes) {
            if piece.size() < u64::from(*size) {
                let (name, has) = (&self.queue.name, piece.size());
                let what = format!("{name} takes {size} bytes, but the buffer has {has}");
                return Err(Error::new(ErrorKind::Mismatch, what));
            }
        }
        let kind = self.queue.role.kind;
        // Of what it reads, a driver is told how much is a frame. Else it takes the files' own sizes.
        let plane = |(piece, size): (&Piece, &u32)| {
            let length = u32::try_from(piece.size()).unwrap_or(u32::MAX);
            let (bytesused, length) = if kind.is_read() { (*size, length) } else { (0, 0) };
            let m = piece.as_fd().as_raw_fd() as u64;
            V4l2Plane { bytesused, length, m, ..V4l2Plane::new_zeroed() }
        };
        let mut planes: Vec<V4l2Plane> =
            buffer.pieces().iter().zip(&self.sizes).map(plane).collect();
        let Some(first) = planes.first() else { return Ok(()) };
        let mut params = V4l2Buffer {
            kind: kind as u32,
            memory: uapi::V4L2_DMABUF,
            bytesused: first.bytesused,
            m: first.m,
            length: first.length,
            ..V4l2Buffer::new_zeroed()
        };
        if kind.is_by_planes() {
            params.m = planes.as_mut_ptr().expose_provenance() as u64;
            params.length = planes.len() as u32;
        }
        // SAFETY: a `Queue` is made of `/dev/video*` alone, whose requests are V4L2's. The address is of as many
        // planes as the length says, which live through the call.
        let called = unsafe { uapi::V4L2_QBUF.call(self.queue.file.as_fd(), &mut params) };
        called.map(drop).map_err(|error| self.queue.refused("VIDIOC_QBUF", error))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // Closing the file does it as well; nobody is there to hear why not.
        let _ = self.queue.request_buffers(self.memory, 0);
    }
}
