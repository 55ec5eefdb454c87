//! GPUs as EGL and GBM know them: EGL says which modifiers a GPU samples and draws, GBM makes such memory.
//!
//! Both libraries are loaded when devices are asked for and there are render nodes. A node by itself says nothing
//! of what it samples, so that without these libraries nothing is offered for it.

mod egl;
mod gbm;
mod gles;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{each, name_of, nodes, open};
use crate::buffer::Piece;
use crate::convert::{self, FormatModifier};
use crate::{
    Buffer, Capability, CapabilitySet, Description, Device, DeviceInfo, Driver, Error, Image,
    Import, Layout, Listed, MODIFIER_INVALID, Memory, Operation, Plane, Result, Use,
};
use egl::{Display, Egl, Picture};
use gbm::{Gbm, Made};

/// Every render node that EGL shows: `gl:renderD128`.
pub(super) struct Gl;

impl Driver for Gl {
    fn name(&self) -> &str {
        "gl"
    }

    fn devices(&self) -> Result<Listed> {
        let found = nodes("/dev/dri", "renderD")?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let (gbm, egl) = (Arc::new(Gbm::load()?), Arc::new(Egl::load()?));
        Ok(each(&found, |node| Gpu::open(node, &gbm, &egl).map(Some)))
    }
}

struct Gpu {
    info: DeviceInfo,
    /// Whose implicit layouts it knows.
    owner: u64,
    /// GBM's devices are of one thread at a time.
    node: Arc<Mutex<Node>>,
}

/// What is closed in this order: EGL uses GBM's device, which uses the file.
struct Node {
    display: Display,
    device: gbm::Device,
}

impl Node {
    fn draws(&self, picture: &Picture, buffer: &Buffer) -> Result<()> {
        let Description { usage, layout, .. } = buffer.description();
        let listed = self.display.modifiers(usage.image.format)?;
        let listed = listed.iter().filter(|known| known.modifier != MODIFIER_INVALID);
        match listed.clone().find(|known| known.modifier == layout.modifier) {
            Some(known) if known.draws => Ok(()),
            Some(_) => Err(Error::unsupported(format!(
                "EGL lists {} with {} to be sampled alone",
                usage.image.format,
                Capability::modifier(layout.modifier)
            ))),
            None => self.display.draw(picture),
        }
    }
}

impl Gpu {
    fn open(path: &Path, gbm: &Arc<Gbm>, egl: &Arc<Egl>) -> Result<Self> {
        let device = gbm::Device::new(gbm.clone(), open(path)?)?;
        let display = Display::new(egl.clone(), &device)?;
        let info = DeviceInfo {
            name: format!("gl:{}", name_of(path)),
            node: path.display().to_string(),
            operations: vec![Operation::Texture, Operation::Render],
            allocates: true,
            imports: true,
        };
        let owner = info.owner().unwrap_or_default();
        Ok(Self { info, owner, node: Arc::new(Mutex::new(Node { display, device })) })
    }

    fn node(&self) -> std::sync::MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The modifiers that EGL lists for the format. Some can only be sampled, not drawn.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>> {
        if !matches!(operation, Operation::Texture | Operation::Render) {
            return Ok(Vec::new());
        }
        let node = self.node();
        let listed = node.display.modifiers(image.format)?;
        let mut does = Vec::new();
        for known in listed {
            // Of layouts that EGL does not list it does not say whether they can be drawn.
            let draws = match (operation, known.modifier) {
                (Operation::Texture, _) => true,
                (_, MODIFIER_INVALID) => node.device.draws(image.format)?,
                _ => known.draws,
            };
            if draws {
                does.push(known);
            }
        }
        let pairs: Vec<FormatModifier> = does
            .iter()
            .map(|known| FormatModifier { format: image.format, modifier: known.modifier })
            .collect();
        Ok(convert::sets(&pairs, image.format, self.owner, &[]))
    }

    fn cost(&self, set: &CapabilitySet) -> u64 {
        35 + super::hidden(set)
    }

    fn chooses_layouts(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<Memory> {
        self.info.allocates.then_some(Memory::UNKNOWN)
    }

    fn allocate(&self, description: &Description) -> Result<Buffer> {
        Memory::UNKNOWN.serves_of(Some(&self.info), description)?;
        let own = Capability::implicit(self.owner);
        let is_own = description.set.capabilities.iter().any(|known| known.matches(&own));
        if description.layout.modifier == MODIFIER_INVALID && !is_own {
            let what = format!("{} does not know the layout: it is of another GPU", self.info.name);
            return Err(Error::unsupported(what));
        }
        let node = self.node();
        let made = node.device.make(description)?;
        laid_out(&made, description)
    }

    fn request(&self, description: &Description) -> String {
        let (image, node) = (&description.usage.image, &self.info.node);
        match description.layout.modifier {
            MODIFIER_INVALID => format!("gbm_bo_create {image}, on {node}"),
            modifier => {
                let modifier = Capability::modifier(modifier);
                format!("gbm_bo_create_with_modifiers2 {image} as {modifier}, on {node}")
            }
        }
    }

    /// Makes an `EGLImage` of the memory as it is described. What is to be drawn is what EGL lists for that; where it
    /// does not say, a framebuffer is made of the image.
    fn import(&self, buffer: &Buffer) -> Result<Box<dyn Import>> {
        let node = self.node();
        node.display.fits(&buffer.description().usage.image)?;
        let picture = node.display.import(buffer)?;
        let mut uses = buffer.description().usage.uses.iter();
        let draws = |of: &Use| of.device == self.info.name && of.operation == Operation::Render;
        if uses.any(draws) {
            if let Err(refused) = node.draws(&picture, buffer) {
                node.display.forget(picture);
                return Err(refused);
            }
        }
        Ok(Box::new(Taken { picture: Some(picture), node: self.node.clone() }))
    }
}

/// An image of EGL's, which goes while nobody else uses the node.
struct Taken {
    picture: Option<Picture>,
    node: Arc<Mutex<Node>>,
}

impl Import for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(picture) = self.picture.take() {
            node.display.forget(picture);
        }
    }
}

/// The memory of a buffer of GBM's and where its planes are, whose sizes GBM does not say: each ends where the next one
/// in its file begins, or the file ends.
fn laid_out(made: &Made, description: &Description) -> Result<Buffer> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut starts = Vec::new();
    for (fd, start) in made.planes()? {
        let piece = Piece::behind(&pieces, fd)?;
        let known = pieces.iter().position(|known| known.is_same(&piece));
        starts.push((known.unwrap_or(pieces.len()), start));
        if known.is_none() {
            pieces.push(piece);
        }
    }
    let end = |(file, begin): (usize, u64)| {
        let later = starts.iter().filter(|(other, start)| *other == file && start.offset > begin);
        let later = later.map(|(_, start)| pieces[file].start().saturating_add(start.offset)).min();
        later.unwrap_or_else(|| pieces[file].end())
    };
    let plane = |(file, start): &(usize, gbm::Start)| {
        let offset = pieces[*file].start().saturating_add(start.offset);
        let size = end((*file, start.offset)).saturating_sub(offset);
        Plane { offset, pitch: start.pitch, size }
    };
    let planes = starts.iter().map(plane).collect();
    // What was made as the driver sees fit may be of another modifier at another time.
    let modifier = match description.layout.modifier {
        MODIFIER_INVALID => MODIFIER_INVALID,
        asked => made.modifier().unwrap_or(asked),
    };
    let size = pieces.last().map_or(0, Piece::end);
    let layout = Layout { modifier, planes, size };
    Buffer::of_pieces(pieces, Description { layout, ..description.clone() })
}
