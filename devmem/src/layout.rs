//! Where the pixels of an image are in memory.

use std::fmt;

use super::capability::{Capability, CapabilitySet};
use super::constraint::{ConstraintName, multiple};
use super::format::{self, PlaneFormat};
use super::usage::{Fourcc, Image};
use serde::{Deserialize, Serialize};

/// One plane of a [`Layout`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plane {
    /// Where it starts in the memory.
    pub offset: u64,
    /// From one row to the next.
    pub pitch: u64,
    /// From its start to its end.
    pub size: u64,
}

/// Where the pixels of an image are in memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The DRM format modifier: 0 is linear, `DRM_FORMAT_MOD_INVALID` what only a driver knows.
    #[serde(with = "super::modifier")]
    pub modifier: u64,
    /// The planes, in the order of the format.
    pub planes: Vec<Plane>,
    /// Bytes that all of it takes.
    pub size: u64,
}

impl Layout {
    /// A layout that only a driver knows: who makes the memory lays the pixels out.
    pub fn open(modifier: u64) -> Self {
        Self { modifier, planes: Vec::new(), size: 0 }
    }

    /// Whether who makes the memory lays the pixels out.
    pub fn is_open(&self) -> bool {
        self.planes.is_empty() && self.size == 0
    }

    /// Whether it keeps to the constraints of a set, whoever laid the pixels out.
    ///
    /// # Errors
    ///
    /// The first that it does not keep to.
    pub(crate) fn keeps(&self, set: &CapabilitySet) -> Result<(), String> {
        let rules = Rules::of(set);
        for (index, Plane { offset, pitch, .. }) in self.planes.iter().enumerate() {
            let aligned = |value: u64, step: u64| value % step.max(1) == 0;
            if !aligned(*pitch, rules.pitch_alignment) || *pitch > rules.max_pitch {
                return Err(format!("rows of plane {index} are {pitch} bytes apart"));
            }
            if !aligned(*offset, rules.offset_alignment) {
                return Err(format!("plane {index} begins at {offset}"));
            }
        }
        match self.size > rules.max_size {
            true => Err(format!("{} bytes are more than {}", self.size, rules.max_size)),
            false => Ok(()),
        }
    }

    /// Whether each plane is inside of the memory that this says it takes.
    ///
    /// # Errors
    ///
    /// What is outside.
    pub(crate) fn inside(&self) -> Result<(), String> {
        for (index, Plane { offset, pitch, size }) in self.planes.iter().enumerate() {
            if offset.checked_add(*size).is_none_or(|end| end > self.size) {
                let of = self.size;
                return Err(format!("plane {index} has {size} bytes at {offset}, of {of}"));
            }
            if pitch > size {
                return Err(format!("rows of plane {index} are {pitch} bytes apart, of {size}"));
            }
        }
        Ok(())
    }

    /// Whether the pixels of an image have room where this says that they are, whoever wrote it: of tiles, all that
    /// the image touches. Of tiles and formats that are not known here the planes are looked at alone; one there must be.
    ///
    /// # Errors
    ///
    /// What has no room.
    pub(crate) fn holds(&self, image: &Image) -> Result<(), String> {
        self.inside()?;
        let Some(formats) = format::planes(image.format) else {
            return if self.planes.is_empty() { Err("no planes".to_owned()) } else { Ok(()) };
        };
        if self.planes.len() < formats.len() {
            let (has, format) = (self.planes.len(), image.format);
            return Err(format!("{has} planes, where {format} has {}", formats.len()));
        }
        let Some(tile) = Tile::of(self.modifier) else { return Ok(()) };
        for (index, (plane, format)) in self.planes.iter().zip(formats).enumerate() {
            // Of an odd image the last column and row have colour as well.
            let blocks = image.width.div_ceil(format.across).div_ceil(format.samples);
            let row = u64::from(blocks) * u64::from(format.bytes);
            let rows = u64::from(image.height.div_ceil(format.down));
            let needed = match tile {
                // The last row has no room to its right.
                LINEAR => {
                    let before = plane.pitch.checked_mul(rows.saturating_sub(1));
                    before.and_then(|before| before.checked_add(row))
                }
                _ => plane.pitch.checked_mul(rows.next_multiple_of(tile.height)),
            };
            let whole = plane.pitch % tile.width == 0 && plane.pitch >= row;
            if !whole || needed.is_none_or(|needed| needed > plane.size) {
                let Plane { pitch, size, .. } = plane;
                let what = format!("{rows} rows of {row} bytes, {pitch} apart");
                let tiles = match tile {
                    LINEAR => String::new(),
                    Tile { width, height } => format!(", in tiles of {width} x {height}"),
                };
                return Err(format!("plane {index} of {size} bytes has no room for {what}{tiles}"));
            }
        }
        Ok(())
    }
}

/// Why an image has no layout.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// How the pixels of this format lie is not known here.
    UnknownFormat(Fourcc),
    /// The set has no capability that is a layout, or one that only its vendor can lay out.
    UnknownModifier(Option<Capability>),
    /// The image has no pixels.
    Empty,
    /// The width or height is no multiple of what the format subsamples by or packs together.
    Uneven(Image),
    /// Rows of this plane need more bytes than the largest pitch.
    Pitch {
        /// Which plane, from 0.
        plane: usize,
        /// Bytes from one row to the next.
        needed: u64,
        /// The largest pitch that every device takes.
        max: u64,
    },
    /// All of it is larger than the largest size.
    Size {
        /// Bytes that it takes.
        needed: u64,
        /// The largest size that every device takes.
        max: u64,
    },
    /// Some number of it does not fit 64 bits.
    Overflow,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFormat(format) => write!(f, "the memory layout of {format} is unknown"),
            Self::UnknownModifier(Some(capability)) => {
                write!(f, "how {capability} lays out pixels, only its driver knows")
            }
            Self::UnknownModifier(None) => f.write_str("the set names no layout"),
            Self::Empty => f.write_str("the image has no pixels"),
            Self::Uneven(image) => {
                write!(f, "{} stores pixels in groups that {image} does not fill", image.format)
            }
            Self::Pitch { plane, needed, max } => {
                write!(f, "plane {plane} needs a pitch of {needed} bytes, over max-pitch {max}")
            }
            Self::Size { needed, max } => {
                write!(f, "the image needs {needed} bytes, over max-size {max}")
            }
            Self::Overflow => f.write_str("the size does not fit 64 bits"),
        }
    }
}

impl std::error::Error for LayoutError {}

/// Bytes across and rows down of the unit in which a modifier stores pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    width: u64,
    height: u64,
}

const LINEAR: Tile = Tile { width: 1, height: 1 };

/// Vendors of modifiers, in the upper 8 bits (`drm_fourcc.h`).
const INTEL: u64 = 1;
const NVIDIA: u64 = 3;

impl Tile {
    /// The tile of a modifier; `None` when only its driver knows.
    fn of(modifier: u64) -> Option<Self> {
        let (vendor, value) = (modifier >> 56, modifier & 0x00ff_ffff_ffff_ffff);
        let tile = |width, height| Some(Self { width, height });
        match (vendor, value) {
            (0, 0) => Some(LINEAR),
            // X-tiled; Y-tiled; tile 4: 4 KiB each.
            (INTEL, 1) => tile(512, 8),
            (INTEL, 2 | 9) => tile(128, 32),
            // Tegra 2 to 4: tiles of 16 x 16 bytes.
            (NVIDIA, 1) => tile(16, 16),
            (NVIDIA, _) if value & !0x7f_f00f == 0x10 => Self::block_linear(value),
            _ => None,
        }
    }

    /// Blocks of GOBs one below the other, each 64 bytes wide. Bits 0 to 3: log2 of the GOBs in a
    /// block; 20 and 21: generation of the GOB, 4 rows high in the second (G80), 8 in the others.
    /// Compression (bits 23 to 25) takes memory that is not in the image.
    fn block_linear(value: u64) -> Option<Self> {
        let (gobs, generation) = (value & 0xf, value >> 20 & 3);
        let rows = if generation == 1 { 4 } else { 8 };
        (gobs <= 5 && generation <= 2).then(|| Self { width: 64, height: rows << gobs })
    }

    fn size(self) -> u64 {
        self.width * self.height
    }
}

/// Lays out an image as a set asks for: the first of its capabilities that can be laid out decides.
///
/// Planes follow each other. Each row takes its pixels and the row padding, rounded up to the pitch
/// alignment and whole tiles; each plane takes whole tiles and starts at a multiple of the offset
/// alignment.
///
/// # Errors
///
/// When the format or the layout is not known here, or the constraints leave no room.
pub fn solve(image: &Image, set: &CapabilitySet) -> Result<Layout, LayoutError> {
    let planes = format::planes(image.format).ok_or(LayoutError::UnknownFormat(image.format))?;
    if image.width == 0 || image.height == 0 {
        return Err(LayoutError::Empty);
    }
    let nothing = || LayoutError::UnknownModifier(set.capabilities.first().cloned());
    let modifier = set.modifier().ok_or_else(nothing)?;
    let unknown = || LayoutError::UnknownModifier(Some(Capability::modifier(modifier)));
    let tile = Tile::of(modifier).ok_or_else(unknown)?;
    let rules = Rules::of(set);
    let mut end = 0;
    let mut laid = Vec::with_capacity(planes.len());
    for (index, format) in planes.iter().enumerate() {
        let plane = rules.plane(image, format, tile, index, end)?;
        end = plane.offset.checked_add(plane.size).ok_or(LayoutError::Overflow)?;
        laid.push(plane);
    }
    Ok(Layout { modifier, planes: laid, size: rules.size(end)? })
}

/// The layout of an image, or an open one where only the driver of its modifier knows.
///
/// # Errors
///
/// As [`solve`].
pub fn layout_of(image: &Image, set: &CapabilitySet) -> Result<Layout, LayoutError> {
    solve(image, set).or_else(|error| match &error {
        LayoutError::UnknownModifier(Some(capability)) => match capability.as_modifier() {
            Some(modifier) => Ok(Layout::open(modifier)),
            None => Err(error),
        },
        _ => Err(error),
    })
}

impl CapabilitySet {
    /// The modifier that images of this set have: of those that it names the first that can be laid out here, else the
    /// first; `None` where it names none.
    pub fn modifier(&self) -> Option<u64> {
        let modifiers = || self.capabilities.iter().filter_map(Capability::as_modifier);
        let known = modifiers().find(|modifier| Tile::of(*modifier).is_some());
        known.or_else(|| modifiers().next())
    }
}

/// The constraints of a set that say where pixels are.
struct Rules {
    pitch_alignment: u64,
    max_pitch: u64,
    row_padding: u64,
    row_alignment: u64,
    offset_alignment: u64,
    size_alignment: Option<u64>,
    size_padding: u64,
    max_size: u64,
}

impl Rules {
    fn of(set: &CapabilitySet) -> Self {
        let value = |name, without| set.constraint(name).unwrap_or(without);
        let sizes = (value(ConstraintName::SIZE_ALIGNMENT, 1), value(ConstraintName::PAGE_SIZE, 1));
        Self {
            pitch_alignment: value(ConstraintName::PITCH_ALIGNMENT, 1),
            max_pitch: value(ConstraintName::MAX_PITCH, u64::MAX),
            row_padding: value(ConstraintName::ROW_PADDING, 0),
            row_alignment: value(ConstraintName::ROW_ALIGNMENT, 1),
            offset_alignment: value(ConstraintName::OFFSET_ALIGNMENT, 1),
            size_alignment: multiple(sizes.0, sizes.1, 64),
            size_padding: value(ConstraintName::SIZE_PADDING, 0),
            max_size: value(ConstraintName::MAX_SIZE, u64::MAX),
        }
    }

    fn plane(
        &self,
        image: &Image,
        format: &PlaneFormat,
        tile: Tile,
        index: usize,
        end: u64,
    ) -> Result<Plane, LayoutError> {
        let (across, down) = (format.across, format.down);
        if image.width % across != 0 || image.height % down != 0 {
            return Err(LayoutError::Uneven(*image));
        }
        let blocks = u64::from(image.width / across).div_ceil(u64::from(format.samples));
        let row = blocks * u64::from(format.bytes);
        let row = row.checked_add(self.row_padding).ok_or(LayoutError::Overflow)?;
        let pitch = rounded(row, both(self.pitch_alignment, tile.width)?)?;
        if pitch > self.max_pitch {
            return Err(LayoutError::Pitch { plane: index, needed: pitch, max: self.max_pitch });
        }
        let rows = rounded((image.height / down).into(), both(self.row_alignment, tile.height)?)?;
        let offset = rounded(end, both(self.offset_alignment, tile.size())?)?;
        let size = pitch.checked_mul(rows).ok_or(LayoutError::Overflow)?;
        Ok(Plane { offset, pitch, size })
    }

    fn size(&self, end: u64) -> Result<u64, LayoutError> {
        let padded = end.checked_add(self.size_padding).ok_or(LayoutError::Overflow)?;
        let needed = rounded(padded, self.size_alignment.ok_or(LayoutError::Overflow)?)?;
        match needed > self.max_size {
            true => Err(LayoutError::Size { needed, max: self.max_size }),
            false => Ok(needed),
        }
    }
}

fn both(a: u64, b: u64) -> Result<u64, LayoutError> {
    multiple(a, b, 64).ok_or(LayoutError::Overflow)
}

/// The next multiple; of 0, any number is one.
fn rounded(value: u64, step: u64) -> Result<u64, LayoutError> {
    value.checked_next_multiple_of(step.max(1)).ok_or(LayoutError::Overflow)
}
