//! Displays of DRM: dumb buffers, and PRIME to export and to import. GPUs are of `gl` and `vulkan`: a render node
//! does not say what it samples.

mod commit;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use drm::buffer::{DrmFourcc, DrmModifier, Handle, PlanarBuffer};
use drm::control::{Device as _, FbCmd2Flags, framebuffer, plane};
use drm::{ClientCapability, Device as _, DriverCapability};
use nix::libc;

use super::{each, name_of, nodes, open};
use crate::convert::{self, FormatModifier, in_formats};
use crate::{
    Buffer, Capability, CapabilitySet, Description, Detail, Device, DeviceInfo, Driver, Error,
    ErrorKind, Fourcc, Hint, Image, Import, Layout, Listed, MODIFIER_INVALID, MODIFIER_LINEAR,
    Memory, Operation, Result, Shown, Usage, Use, transform,
};

const FOLDER: &str = "/dev/dri";

/// `DRM_PRIME_CAP_IMPORT` and `DRM_PRIME_CAP_EXPORT`.
const PRIME_IMPORT: u64 = 1;
const PRIME_EXPORT: u64 = 2;

/// Every card of DRM that shares memory: `drm:card0`.
pub(super) struct Drm;

impl Driver for Drm {
    fn name(&self) -> &str {
        "drm"
    }

    fn devices(&self) -> Result<Listed> {
        Ok(each(&nodes(FOLDER, "card")?, |node| Node::open(node)))
    }
}

/// An open node, and how often each of its GEM handles is in use: the kernel gives one handle for one
/// buffer, however often it is imported, and closes it at the first close.
struct Card {
    file: File,
    handles: Mutex<HashMap<Handle, usize>>,
    /// Held while the file is the display's master.
    master: Mutex<()>,
}

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
impl drm::Device for Card {}
impl drm::control::Device for Card {}

impl Card {
    /// Cards without displays are not asked for this capability, though some of them make buffers.
    fn makes_dumb_buffers(&self) -> bool {
        self.get_driver_capability(DriverCapability::DumbBuffer).map_or_else(
            |_| {
                let made = self.create_dumb_buffer((16, 16), DrmFourcc::Xrgb8888, 32);
                made.and_then(|made| self.destroy_dumb_buffer(made)).is_ok()
            },
            |makes| makes == 1,
        )
    }

    /// The transforms of a plane, as bits: its property `rotation`; where it has none, images as they are.
    fn transforms(&self, plane: plane::Handle) -> io::Result<u32> {
        for (property, _) in &self.get_properties(plane)? {
            if self.get_property(*property)?.name() == c"rotation" {
                let (mut bits, mut names) = (Vec::new(), Vec::new());
                let raw = u32::from(*property);
                drm_ffi::mode::get_property(self.as_fd(), raw, Some(&mut bits), Some(&mut names))?;
                // Its values are numbers of bits.
                let bits = bits.iter().filter(|bit| **bit < 32);
                return Ok(bits.fold(0, |all, bit| all | 1 << bit));
            }
        }
        Ok(transform::ROTATE_0)
    }

    /// What a plane shows: its property `IN_FORMATS`; where it has none, its formats in rows and as the driver keeps
    /// them to itself.
    fn formats(&self, plane: plane::Handle) -> io::Result<Vec<FormatModifier>> {
        for (property, value) in &self.get_properties(plane)? {
            if self.get_property(*property)?.name() == c"IN_FORMATS" {
                let blob = self.get_property_blob(*value)?;
                return in_formats::read(&blob).map_err(io::Error::other);
            }
        }
        let formats = self.get_plane(plane)?;
        let layouts = |format: &u32| {
            let format = Fourcc(*format);
            [MODIFIER_LINEAR, MODIFIER_INVALID].map(|modifier| FormatModifier { format, modifier })
        };
        Ok(formats.formats().iter().flat_map(layouts).collect())
    }

    fn take(self: &Arc<Self>, fd: BorrowedFd<'_>) -> io::Result<GemHandle> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = self.prime_fd_to_buffer(fd)?;
        *handles.entry(handle).or_default() += 1;
        Ok(GemHandle { card: self.clone(), handle })
    }
}

struct GemHandle {
    card: Arc<Card>,
    handle: Handle,
}

/// The files of memory that the card has taken.
struct Taken {
    files: Vec<GemHandle>,
    shown: Option<Shown>,
}

impl Import for Taken {
    /// The handle of the first.
    fn handle(&self) -> u64 {
        self.files.first().map_or(0, |gem| u64::from(u32::from(gem.handle)))
    }

    fn shown(&self) -> Option<Shown> {
        self.shown
    }
}

impl Drop for GemHandle {
    fn drop(&mut self) {
        let mut handles = self.card.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = handles.get_mut(&self.handle) else { return };
        *count -= 1;
        if *count == 0 {
            handles.remove(&self.handle);
            // Nobody is there to hear of it.
            let _ = self.card.close_buffer(self.handle);
        }
    }
}

struct Node {
    card: Arc<Card>,
    info: DeviceInfo,
    /// Whose implicit layouts it knows, where that is a GPU.
    owner: Option<u64>,
}

impl Node {
    /// `None` for a node that shares no memory.
    fn open(path: &Path) -> Result<Option<Self>> {
        let card = Card { file: open(path)?, handles: Mutex::default(), master: Mutex::default() };
        // Who opens a card first becomes its master, which is the display server's to be.
        let _ = card.release_master_lock();
        let prime = card.get_driver_capability(DriverCapability::Prime).unwrap_or(0);
        if prime == 0 {
            return Ok(None);
        }
        let name = name_of(path);
        let allocates = prime & PRIME_EXPORT != 0 && card.makes_dumb_buffers();
        let shows = card.resource_handles().is_ok_and(|found| !found.crtcs().is_empty());
        let operations = if shows { vec![Operation::Scanout] } else { Vec::new() };
        let info = DeviceInfo {
            name: format!("drm:{name}"),
            node: path.display().to_string(),
            operations,
            allocates,
            imports: prime & PRIME_IMPORT != 0,
        };
        let owner = super::gpu(&info);
        Ok(Some(Self { card: Arc::new(card), info, owner }))
    }

    /// What a plane of the display that turns images like this takes.
    fn scanout_sets(&self, image: &Image, turned: u32) -> Result<Vec<CapabilitySet>> {
        let resources = self.card.resource_handles().map_err(|error| self.unasked(error))?;
        let fits = resources.supported_fb_width().contains(&image.width)
            && resources.supported_fb_height().contains(&image.height);
        match fits {
            true => {
                let owner = self.owner.unwrap_or_default();
                Ok(convert::sets(&self.shown(turned)?, image.format, owner, &[]))
            }
            false => Ok(Vec::new()),
        }
    }

    /// What the planes show that turn images like this.
    fn shown(&self, turned: u32) -> Result<Vec<FormatModifier>> {
        // Without this only overlays are shown.
        let _ = self.card.set_client_capability(ClientCapability::UniversalPlanes, true);
        let mut pairs = Vec::new();
        for plane in self.card.plane_handles().map_err(|error| self.unasked(error))? {
            // Planes that show images as they are need not say so.
            let can = match turned {
                transform::ROTATE_0 => turned,
                _ => self.card.transforms(plane).map_err(|error| self.unasked(error))?,
            };
            if turned & !can == 0 {
                pairs.extend(self.card.formats(plane).map_err(|error| self.unasked(error))?);
            }
        }
        pairs.sort();
        pairs.dedup();
        // What is implicit, nobody can know but a GPU with the same driver.
        if self.owner.is_none() {
            pairs.retain(|pair| pair.modifier != MODIFIER_INVALID);
        }
        Ok(pairs)
    }

    /// The error of a use whose details the display does not know.
    fn unknown_of(&self, wanted: &Use) -> Error {
        let unknown = wanted.details.iter().rfind(|detail| !detail.is_plain());
        unknown.map_or_else(|| Error::unsupported(wanted.to_string()), |it| self.unknown(it))
    }

    fn unasked(&self, error: io::Error) -> Error {
        self.refused("cannot be asked for its planes", error)
    }

    /// Whether the display takes the memory as a framebuffer, and shows it where that can be asked: turned in each of
    /// these ways. The framebuffer is gone again afterwards.
    fn try_framebuffer(
        &self,
        buffer: &Buffer,
        taken: &[GemHandle],
        turns: &[Option<u32>],
    ) -> Result<Shown> {
        let image = &buffer.description().usage.image;
        let framebuffer = Framebuffer::new(buffer, taken)?;
        let explicit = framebuffer.modifier.is_some()
            && self.card.get_driver_capability(DriverCapability::AddFB2Modifiers).unwrap_or(0) == 1;
        let is_tiled = framebuffer.modifier.is_some_and(|it| it != DrmModifier::Linear);
        let (framebuffer, flags) = match explicit {
            true => (framebuffer, FbCmd2Flags::MODIFIERS),
            // It would be taken for rows.
            false if is_tiled => {
                let modifier = Capability::modifier(buffer.description().layout.modifier);
                let what =
                    format!("{} shows no {modifier}: it is told no modifiers", self.info.name);
                return Err(Error::unsupported(what));
            }
            false => (Framebuffer { modifier: None, ..framebuffer }, FbCmd2Flags::empty()),
        };
        let added = self.card.add_planar_framebuffer(&framebuffer, flags);
        let added =
            added.map_err(|error| self.refused(&format!("takes no framebuffer {image}"), error))?;
        let shown = turns.iter().map(|turned| match turned {
            Some(turned) => self.test(added, image, *turned),
            None => Ok(Shown::Framebuffer),
        });
        let shown: Result<Vec<Shown>> = shown.collect();
        let removed = self.card.destroy_framebuffer(added);
        let shown = shown?;
        removed.map_err(|error| self.refused("keeps a framebuffer", error))?;
        let all = shown.iter().all(|shown| *shown == Shown::Commit);
        Ok(if all { Shown::Commit } else { Shown::Framebuffer })
    }

    /// How far it is proved that the display shows an image that is turned like this.
    fn test(&self, added: framebuffer::Handle, image: &Image, turned: u32) -> Result<Shown> {
        match commit::is_shown(&self.card, added, image, turned) {
            None => Ok(Shown::Framebuffer),
            Some(Ok(())) => Ok(Shown::Commit),
            Some(Err(error)) => {
                let what = format!("does not show {image} with {}", Detail::transform(turned));
                Err(self.refused(&what, error))
            }
        }
    }

    fn make(&self, layout: &Layout) -> Result<OwnedFd> {
        let Some(size) = dumb_size(layout) else {
            return Err(Error::invalid(format!("no dumb buffer has {} bytes", layout.size)));
        };
        let card = &self.card;
        let dumb = card.create_dumb_buffer(size, DrmFourcc::Xrgb8888, 32);
        let dumb = dumb.map_err(|error| self.refused("makes no dumb buffer", error))?;
        let flags = (libc::O_CLOEXEC | libc::O_RDWR) as u32;
        let exported = card.buffer_to_prime_fd(drm::buffer::Buffer::handle(&dumb), flags);
        // The dma-buf holds the memory from here on.
        let _ = card.destroy_dumb_buffer(dumb);
        exported.map_err(|error| self.refused("exports no dumb buffer", error))
    }

    fn refused(&self, what: &str, error: io::Error) -> Error {
        Error::io(ErrorKind::Call, format!("{} {what}", self.info.name), error)
    }
}

impl Device for Node {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        match operation {
            Operation::Scanout if self.info.operations.contains(&operation) => {
                self.scanout_sets(image, transform::ROTATE_0)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        if let Some(unknown) = usage.details.iter().find(|detail| !detail.is_plain()) {
            return Err(self.unknown(unknown));
        }
        let turned = turned(wanted).ok_or_else(|| self.unknown_of(wanted))?;
        match wanted.operation {
            Operation::Scanout if self.info.operations.contains(&Operation::Scanout) => {
                self.scanout_sets(&usage.image, turned)
            }
            _ if turned == transform::ROTATE_0 => self.sets(&usage.image, wanted.operation),
            _ => Err(self.unknown_of(wanted)),
        }
    }

    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        if operation != Operation::Scanout || !self.info.operations.contains(&operation) {
            return Ok(Vec::new());
        }
        let resources = self.card.resource_handles().map_err(|error| self.unasked(error))?;
        let end = |end: Bound<&u32>| match end {
            Bound::Included(most) => *most,
            Bound::Excluded(end) => end.saturating_sub(1),
            Bound::Unbounded => u32::MAX,
        };
        let max_width = end(resources.supported_fb_width().end_bound());
        let max_height = end(resources.supported_fb_height().end_bound());
        let mut formats: Vec<Fourcc> =
            self.shown(transform::ROTATE_0)?.iter().map(|pair| pair.format).collect();
        formats.dedup();
        Ok(formats.into_iter().map(|format| Hint { format, max_width, max_height }).collect())
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        30 + super::hidden(set)
    }

    fn memory(&self) -> Option<Memory> {
        self.info.allocates.then_some(Memory::UNKNOWN)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        if !self.info.allocates {
            return Err(Error::unsupported(format!("{} makes no memory", self.info.name)));
        }
        Memory::UNKNOWN.serves_of(Some(&self.info), description)?;
        Buffer::new(self.make(&description.layout)?, description.clone())
    }

    fn request(&self, description: &Description) -> String {
        let (width, height) = dumb_size(&description.layout).unwrap_or_default();
        format!("DRM_IOCTL_MODE_CREATE_DUMB {width}x{height}, 32 bits, on {}", self.info.node)
    }

    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let description = buffer.description();
        let taken = buffer.pieces().iter().map(|piece| self.card.take(piece.as_fd()));
        let taken: Vec<_> = taken
            .collect::<io::Result<_>>()
            .map_err(|error| self.refused("takes no such memory", error))?;
        let uses = description.usage.uses.iter();
        let turns: Vec<Option<u32>> = uses
            .filter(|each| each.device == self.info.name && each.operation == Operation::Scanout)
            .map(turned)
            .collect();
        let shown = (!turns.is_empty()).then(|| self.try_framebuffer(buffer, &taken, &turns));
        let shown = shown.transpose()?;
        Ok(Box::new(Taken { files: taken, shown }))
    }
}

/// How a use turns the image; `None` where it asks for something else besides, which no commit says.
fn turned(wanted: &Use) -> Option<u32> {
    let details: Vec<&Detail> = wanted.details.iter().filter(|each| !each.is_plain()).collect();
    match details.as_slice() {
        [] => Some(transform::ROTATE_0),
        [detail] => detail.as_transform(),
        _ => None,
    }
}

/// A dumb buffer with the rows of the layout; what it holds is the layout's business.
fn dumb_size(layout: &Layout) -> Option<(u32, u32)> {
    let pitch = layout.planes.first().map_or(layout.size, |plane| plane.pitch).max(4);
    let (width, height) = (pitch.div_ceil(4), layout.size.div_ceil(pitch).max(1));
    Some((u32::try_from(width).ok()?, u32::try_from(height).ok()?))
}

/// An image in memory that the card has taken.
struct Framebuffer {
    size: (u32, u32),
    format: DrmFourcc,
    modifier: Option<DrmModifier>,
    pitches: [u32; 4],
    offsets: [u32; 4],
    handles: [Option<Handle>; 4],
}

impl Framebuffer {
    fn new(buffer: &Buffer, taken: &[GemHandle]) -> Result<Self> {
        let description = buffer.description();
        let Image { width, height, format: Fourcc(format) } = description.usage.image;
        let layout = &description.layout;
        let format = DrmFourcc::try_from(format)
            .map_err(|_| Error::unsupported(format!("no framebuffer has {}", Fourcc(format))))?;
        let modifier = Some(layout.modifier).filter(|modifier| *modifier != MODIFIER_INVALID);
        let mut made = Self {
            size: (width, height),
            format,
            modifier: modifier.map(DrmModifier::from),
            pitches: [0; 4],
            offsets: [0; 4],
            handles: [None; 4],
        };
        if layout.planes.len() > made.handles.len() {
            return Err(Error::invalid("a framebuffer has four planes at most"));
        }
        let planes = (0..layout.planes.len()).filter_map(|index| buffer.plane(index));
        for (index, (piece, plane)) in planes.enumerate() {
            let number = |value: u64| {
                let wide = format!("{value} bytes are too many for a framebuffer");
                u32::try_from(value).map_err(|_| Error::invalid(wide))
            };
            made.pitches[index] = number(plane.pitch)?;
            made.offsets[index] = number(plane.offset)?;
            let at = buffer.pieces().iter().position(|other| other.start() == piece.start());
            made.handles[index] = at.and_then(|at| taken.get(at)).map(|gem| gem.handle);
        }
        Ok(made)
    }
}

impl PlanarBuffer for Framebuffer {
    fn size(&self) -> (u32, u32) {
        self.size
    }
    fn format(&self) -> DrmFourcc {
        self.format
    }
    fn modifier(&self) -> Option<DrmModifier> {
        self.modifier
    }
    fn pitches(&self) -> [u32; 4] {
        self.pitches
    }
    fn handles(&self) -> [Option<Handle>; 4] {
        self.handles
    }
    fn offsets(&self) -> [u32; 4] {
        self.offsets
    }
}
