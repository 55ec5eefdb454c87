//! What makes devices usable: a driver enumerates them, a device says what it can do and does it.

use std::fmt;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

use super::buffer::{Buffer, Description};
use super::capability::CapabilitySet;
use super::detail::Detail;
use super::drivers;
use super::error::{Error, Result};
use super::memory::Memory;
use super::usage::{Fourcc, Image, Operation, Usage, Use};

/// What finds the devices of one kind: built in, or a plugin.
pub trait Driver: Send + Sync {
    /// Its name, such as `dma-heap`.
    fn name(&self) -> &str;

    /// The devices that are there now, and why others cannot be asked: one that cannot hides no other. None is no
    /// error.
    ///
    /// # Errors
    ///
    /// When none of them can be asked, as a library is missing.
    fn devices(&self) -> Result<Listed>;
}

/// What a driver found: devices, and for each that cannot be asked the reason.
pub type Listed = Vec<Result<Box<dyn Device>>>;

/// What a device takes for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The format.
    pub format: Fourcc,
    /// The largest width, in pixels.
    pub max_width: u32,
    /// The largest height, in pixels.
    pub max_height: u32,
}

impl Hint {
    /// A format whose images may have any size.
    pub fn any_size(format: Fourcc) -> Self {
        Self { format, max_width: u32::MAX, max_height: u32::MAX }
    }
}

/// What is known about a device without asking it for an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its name, unlike that of any other on this machine: `dma-heap:system`.
    pub name: String,
    /// Its file, such as `/dev/dma_heap/system`; empty where it has none.
    pub node: String,
    /// What it can do with memory.
    pub operations: Vec<Operation>,
    /// Whether it makes memory.
    pub allocates: bool,
    /// Whether it takes memory that another made.
    pub imports: bool,
}

impl DeviceInfo {
    /// The number of its file, which no other device of this machine has; `None` where it has no file.
    pub fn number(&self) -> Option<u64> {
        let file = std::fs::metadata(&self.node).ok()?;
        Some(file.rdev()).filter(|number| *number != 0)
    }

    /// The number of whose its memory is: of all nodes of one GPU the same, the first of theirs; of others their own.
    pub fn owner(&self) -> Option<u64> {
        drivers::gpu(self).or_else(|| self.number())
    }

    /// Whether the memory of both is the same device's: they are one, or nodes of one GPU.
    pub(crate) fn is_of(&self, device: &Self) -> bool {
        let owner = self.owner();
        self.name == device.name || (owner.is_some() && owner == device.owner())
    }
}

/// One device that touches memory, or makes it.
pub trait Device: Send + Sync {
    /// What is known about it.
    fn info(&self) -> &DeviceInfo;

    /// The ways in which it can do this with the image; empty when it cannot.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    fn sets(&self, image: &Image, operation: Operation) -> Result<Vec<CapabilitySet>>;

    /// The same of all that is asked of one use. What the device does not know, it must not offer to do.
    ///
    /// # Errors
    ///
    /// As [`Self::sets`], and when a detail is not known.
    fn sets_for(&self, usage: &Usage, wanted: &Use) -> Result<Vec<CapabilitySet>> {
        match usage.details.iter().chain(&wanted.details).find(|detail| !detail.is_plain()) {
            None => self.sets(&usage.image, wanted.operation),
            Some(unknown) => Err(self.unknown(unknown)),
        }
    }

    /// The error of a detail that the device does not know.
    fn unknown(&self, detail: &Detail) -> Error {
        Error::unsupported(format!("{} does not know {detail}", self.info().name))
    }

    /// The formats that it takes for an operation, of those that are known here, and how large images of each may be.
    ///
    /// # Errors
    ///
    /// When it cannot be asked.
    fn hints(&self, operation: Operation) -> Result<Vec<Hint>> {
        let formats = drivers::formats(self, operation)?;
        Ok(formats.into_iter().map(Hint::any_size).collect())
    }

    /// The same for all that is asked of one use.
    ///
    /// # Errors
    ///
    /// As [`Self::hints`], and when a detail is not known.
    fn hints_for(&self, wanted: &Use) -> Result<Vec<Hint>> {
        let hints = self.hints(wanted.operation)?;
        if wanted.details.iter().all(Detail::is_plain) {
            return Ok(hints);
        }
        let mut kept = Vec::new();
        for hint in hints {
            let image = Image::new(drivers::SIDE, drivers::SIDE, hint.format);
            let usage = Usage::new(image, vec![wanted.clone()]);
            if !self.sets_for(&usage, wanted)?.is_empty() {
                kept.push(hint);
            }
        }
        Ok(kept)
    }

    /// What memory of this kind costs it, to compare with other sets and devices: 0 is the best.
    fn cost(&self, _set: &CapabilitySet) -> u64 {
        0
    }

    /// Makes memory that is as described.
    ///
    /// # Errors
    ///
    /// When it makes none, or none such; with what the kernel said.
    fn allocate(&self, _description: &Description) -> Result<Buffer> {
        Err(Error::unsupported(format!("{} makes no memory", self.info().name)))
    }

    /// The same of memory in [several files](super::ConstraintName::FILES): one for each plane, which a device that
    /// makes memory in one file makes one after the other.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    fn allocate_files(&self, description: &Description) -> Result<Buffer> {
        let made = description.made_by_planes(|one| self.allocate(one).map(Some))?;
        made.ok_or_else(|| Error::unsupported(format!("{} makes no memory", self.info().name)))
    }

    /// Whether [`Self::allocate`] may lay pixels out otherwise than it is asked to, as the set allows, and takes
    /// descriptions whose layout is [open](super::Layout::open): the memory says where they are.
    fn chooses_layouts(&self) -> bool {
        false
    }

    /// What [`Self::allocate`] asks the kernel or a library for, in a line for people: call, file, numbers.
    fn request(&self, description: &Description) -> String {
        format!("{} bytes of {}", description.layout.size, self.info().name)
    }

    /// The same of [`Self::allocate_files`].
    fn request_files(&self, description: &Description) -> String {
        let planes = description.layout.planes.iter();
        let each = planes.filter_map(|plane| description.of_plane(plane).ok());
        let mut each: Vec<String> = each.map(|one| self.request(&one)).collect();
        let files = each.len();
        each.dedup();
        match each.as_slice() {
            [one] if files > 1 => format!("{files} times {one}"),
            each => each.join("; "),
        }
    }

    /// Takes memory that another made, until the import is dropped.
    ///
    /// # Errors
    ///
    /// When it takes none, or not this; with what the kernel said.
    fn import(&self, _buffer: &Buffer) -> Result<Box<dyn Import>> {
        Err(Error::unsupported(format!("{} cannot import memory", self.info().name)))
    }

    /// What the memory that it makes is like: [`Memory::UNKNOWN`] where only trials tell. `None` when it makes none, or
    /// answers for each memory by [`Self::allocate`].
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// What must be done between two operations, of which this device does one at least.
    fn transition(&self, from: Operation, to: Operation) -> Transition {
        Transition::between(from, to)
    }
}

impl fmt::Debug for dyn Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(self.info()).finish()
    }
}

/// Memory that a device has taken; dropped, the device lets go of it.
pub trait Import: Send {
    /// What the device calls it, such as a GEM handle; 0 where it has no name.
    fn handle(&self) -> u64 {
        0
    }

    /// How far it proves that a display shows the memory; `None` of what is no display, or was not to be shown.
    fn shown(&self) -> Option<Shown> {
        None
    }
}

/// What proves that a display shows memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Shown {
    /// It was made a framebuffer: drivers may refuse it yet when it is to be shown.
    Framebuffer,
    /// A commit that shows it was tested.
    Commit,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Framebuffer => "framebuffer",
            Self::Commit => "commit",
        })
    }
}

/// What must be done to memory between two operations, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transition {
    /// How to wait until the first is finished.
    pub wait: Wait,
    /// Write back what the CPU's caches hold.
    pub write_back: bool,
    /// Drop what the CPU's caches hold.
    pub invalidate: bool,
}

/// What says that an operation is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Wait {
    /// Nothing has to.
    #[default]
    Nothing = 0,
    /// The fences of the dma-buf: [`Buffer::wait`], or [`Buffer::export_fence`] for a device that
    /// waits for a sync file.
    Fences = 1,
    /// The device's own interface, such as `VIDIOC_DQBUF`: it puts no fences.
    Device = 2,
}

impl Transition {
    /// What is needed where nothing is known of the devices: all that could be.
    pub fn between(from: Operation, to: Operation) -> Self {
        Self {
            // The CPU is finished when its call returns.
            wait: if !from.is_cpu() && (from.writes() || to.writes()) {
                Wait::Fences
            } else {
                Wait::Nothing
            },
            write_back: from.is_cpu() && from.writes() && !to.is_cpu(),
            invalidate: !from.is_cpu() && from.writes() && to.is_cpu(),
        }
    }
}
