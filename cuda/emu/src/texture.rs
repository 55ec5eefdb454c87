//! Textures and surfaces: where their texels are, and what a texture makes of coordinates. Pure but for the
//! function that reads texels.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Debug;

use crate::blocks::Blocks;
use crate::lanes::short_value;
use crate::report::FindingKind;

/// Texels in memory of the device: rows of planes, which are the depth, the layers or the faces of a cube.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Of the first texel.
    pub address: u64,
    /// Along how many axes it extends, 1 to 3: machine code gives a line two coordinates as well, of which the
    /// second means nothing.
    pub axes: usize,
    /// Texels along x, y and z.
    pub size: [u32; 3],
    /// How its rows and planes lie in memory.
    pub layout: Layout,
    /// What a texel is.
    pub texel: Texel,
    /// Levels of a mipmap, of which this is the first: each is half as large as the one before it, and follows it in
    /// memory.
    pub levels: u32,
}

/// How rows and planes lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One behind the other.
    Rows(Rows),
    /// In blocks, of which each takes part in several rows.
    Blocks(Blocks),
    /// Each plane in blocks by itself, with all its levels: layers, and the faces of cubes.
    Layers {
        /// How a plane lies.
        blocks: Blocks,
        /// Bytes from a plane to the next.
        layer_bytes: u64,
    },
}

/// Rows and planes that lie one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Bytes from a row to the next.
    pub row_bytes: u64,
    /// Bytes from a plane to the next.
    pub plane_bytes: u64,
}

/// What the channels of a texel are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TexelKind {
    /// Integers from 0.
    Unsigned,
    /// Integers with a sign.
    Signed,
    /// `float`, or `half` where a channel has 16 bits.
    Float,
}

/// A texel: one, two or four channels of 8, 16 or 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texel {
    /// What the channels are.
    pub kind: TexelKind,
    /// Bits of a channel.
    pub bits: u32,
    /// How many.
    pub channels: u32,
    /// What each of the four channels of a read is.
    pub sources: [ChannelSource; 4],
}

/// What a channel of a read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelSource {
    /// A channel of the texel, by its number; of those that it has not, zero.
    Channel(usize),
    /// These bits.
    Constant(u32),
}

impl Texel {
    /// A texel that GPUs have, each channel as what it is.
    #[must_use]
    pub fn new(kind: TexelKind, bits: u32, channels: u32) -> Option<Self> {
        let whole = matches!(bits, 8 | 16 | 32) && matches!(channels, 1 | 2 | 4);
        let sources = std::array::from_fn(ChannelSource::Channel);
        let is_known = whole && (kind != TexelKind::Float || bits != 8);
        is_known.then_some(Self { kind, bits, channels, sources })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.bits / 8 * self.channels)
    }

    /// An integer channel, extended to 32 bits.
    fn integer(self, raw: u64) -> u32 {
        let unused = 32 - self.bits;
        match self.kind {
            TexelKind::Signed => (((raw as u32) << unused) as i32 >> unused) as u32,
            _ => raw as u32,
        }
    }

    /// A channel as a number: of integers of 8 and 16 bits the share of the largest.
    fn number(self, raw: u64) -> f32 {
        let most = |bits: u32| (1u64 << bits) as f64 - 1.0;
        match (self.kind, self.bits) {
            (TexelKind::Float, 16) => {
                short_value("f16").map_or(f32::NAN, |value| value(raw as u16) as f32)
            }
            (_, 32) => f32::from_bits(raw as u32),
            (TexelKind::Signed, bits) => {
                let value = f64::from(self.integer(raw) as i32);
                (value / most(bits - 1)).max(-1.0) as f32
            }
            (_, bits) => (raw as f64 / most(bits)) as f32,
        }
    }
}

/// What a coordinate outside the image means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressing {
    /// The image repeats; for normalised coordinates alone, else as `Clamp`.
    Wrap,
    /// The nearest texel.
    Clamp,
    /// The image repeats, every other one mirrored; for normalised coordinates alone, else as `Clamp`.
    Mirror,
    /// The colour of the border.
    Border,
}

/// How a texture is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Along x, y and z.
    pub addressing: [Addressing; 3],
    /// Whether texels around a point are weighed, or the nearest one is taken.
    pub linear: bool,
    /// Whether integers of 8 and 16 bits become numbers up to 1.
    pub to_numbers: bool,
    /// Whether coordinates go from 0 to 1, or to the number of texels.
    pub normalized: bool,
    /// What is outside, with `Border`: the bits of the channels.
    pub border: [u32; 4],
    /// Which levels of a mipmap are read.
    pub mipmap: MipmapSampler,
    /// How a read that gives a depth compares it with texels.
    pub comparison: Option<Comparison>,
}

/// What must hold of a depth, beside a texel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// It is less.
    pub less: bool,
    /// It is equal.
    pub equal: bool,
    /// It is greater.
    pub greater: bool,
}

impl Comparison {
    /// A bit for each order in which it holds, as samplers have them: 0 never holds, and 7 always, of no numbers as well.
    pub fn of_bits(bits: u32) -> Self {
        let [less, equal, greater] = [1, 2, 4].map(|bit| bits & bit != 0);
        Self { less, equal, greater }
    }

    fn holds(self, depth: f32, texel: f32) -> bool {
        match depth.partial_cmp(&texel) {
            Some(Ordering::Less) => self.less,
            Some(Ordering::Equal) => self.equal,
            Some(Ordering::Greater) => self.greater,
            None => self.less && self.greater,
        }
    }
}

/// Which levels of a mipmap are read. By default the first alone.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MipmapSampler {
    /// Whether two levels are weighed, or the nearest one is taken.
    pub linear: bool,
    /// What is added to a level.
    pub bias: f32,
    /// The lowest and the highest level.
    pub clamp: [f32; 2],
}

/// An image with how to read it. A surface is one whose sampler nobody asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Texture {
    /// The texels.
    pub image: Image,
    /// How to read them.
    pub sampler: Sampler,
}

/// Finds the textures and surfaces that code names by handles. The blocks of a launch ask from several threads.
pub trait Textures: Debug + Send + Sync {
    /// The image of a surface, or of a texture whose size is asked for.
    ///
    /// # Errors
    ///
    /// The handle leads to none.
    fn image(&self, handle: u64) -> Result<Image, NoTexture>;

    /// A texture.
    ///
    /// # Errors
    ///
    /// The handle leads to none.
    fn texture(&self, handle: u64) -> Result<Texture, NoTexture>;
}

/// Why a handle leads to no texture or surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoTexture {
    /// What the kernel that used the handle did wrong.
    pub kind: FindingKind,
    /// The particulars.
    pub message: String,
}

/// Those that a device was told of.
impl Textures for HashMap<u64, Texture> {
    fn image(&self, handle: u64) -> Result<Image, NoTexture> {
        self.texture(handle).map(|texture| texture.image)
    }

    fn texture(&self, handle: u64) -> Result<Texture, NoTexture> {
        self.get(&handle).copied().ok_or_else(|| NoTexture {
            kind: FindingKind::OutOfBounds,
            message: format!("there is no texture or surface {handle:#x}, or no longer"),
        })
    }
}

/// Which axes coordinates have, and what chooses a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) axes: usize,
    pub(crate) layered: bool,
    pub(crate) cube: bool,
}

impl Shape {
    /// Numbers that say where: the layer, where there are any, then the coordinates.
    pub(crate) fn numbers(self) -> usize {
        self.axes + usize::from(self.layered)
    }
}

/// What is done with a texture or surface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) shape: Shape,
    pub(crate) kind: AccessKind,
}

/// One of the things that can be done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AccessKind {
    /// `integers`: coordinates are, not `f32`.
    Sample {
        integers: bool,
    },
    Gather {
        channel: usize,
    },
    /// How large a level is along each axis, and how many levels there are.
    Query,
    /// Of a surface, these many parts of so many bytes.
    Load {
        width: u64,
        parts: usize,
        outside: Outside,
    },
    Store {
        width: u64,
        parts: usize,
        outside: Outside,
    },
    /// An atomic operation without a result.
    Reduce {
        width: u64,
        step: fn(u64, u64) -> u64,
        outside: Outside,
    },
}

/// What an access outside of a surface does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outside {
    Trap,
    Clamp,
    Zero,
}

impl AccessKind {
    /// Bits of an offset in texels along an axis, the highest of which is its sign.
    pub(crate) fn offset_bits(self) -> u32 {
        if matches!(self, Self::Gather { .. }) { 6 } else { 4 }
    }

    /// Whether it is one of a surface.
    pub(crate) fn is_surface(self) -> bool {
        !matches!(self, Self::Sample { .. } | Self::Gather { .. } | Self::Query)
    }

    /// Whether it writes what it is given.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Store { .. } | Self::Reduce { .. })
    }
}

/// Where a lane reads: the layer, the coordinates, how many texels beside them, and the level; and the depth that texels
/// are compared with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) layer: u32,
    pub(crate) at: [f64; 3],
    pub(crate) offset: [i64; 3],
    pub(crate) level: Level,
    pub(crate) depth: Option<f32>,
}

/// Which level of a mipmap is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Level {
    /// This one, or the nearest that is there, whatever the sampler says.
    Exact(i32),
    /// What the sampler makes of a number.
    Number(f32),
    /// The level at which the coordinates change by one texel, when they change like this from a pixel to the next one
    /// in two directions; and what is added to it.
    Gradients { change: [[f64; 3]; 2], bias: f32 },
}

/// Registers that say which level is read.
#[derive(Debug)]
pub(crate) enum LevelSource<R> {
    /// None: it is this one.
    Known(Level),
    Exact(R),
    Number(R),
    /// Of the coordinates of the lanes beside it, and what is added.
    Neighbours {
        bias: Option<R>,
    },
    /// How each coordinate changes in two directions.
    Gradients(Vec<[R; 2]>),
}

impl<R: Copy> LevelSource<R> {
    /// The level of a lane, of the words of registers. Neighbours are told by who knows them.
    pub(crate) fn level(&self, word: impl Fn(R) -> u32) -> Level {
        let float = |register| f32::from_bits(word(register));
        match self {
            Self::Known(level) => *level,
            Self::Neighbours { .. } => Level::LEAST,
            Self::Exact(register) => Level::Exact(word(*register) as i32),
            Self::Number(register) => Level::Number(float(*register)),
            Self::Gradients(registers) => {
                let mut change = [[0.0; 3]; 2];
                for (axis, registers) in registers.iter().enumerate().take(3) {
                    let [right, down] = registers.map(|register| f64::from(float(register)));
                    (change[0][axis], change[1][axis]) = (right, down);
                }
                Level::Gradients { change, bias: 0.0 }
            }
        }
    }
}

impl Level {
    /// What an instruction without a level reads, as ptxas has it: less than any bias makes up for.
    pub(crate) const LEAST: Self = Self::Number(-32.0);
}

impl Default for Level {
    fn default() -> Self {
        Self::LEAST
    }
}

/// The texels that one read takes along an axis: one, or two with the weight of the second.
type Taps = [(Option<u32>, f32); 2];

impl Texture {
    /// The four channels of the texture at coordinates, as bits of `f32` or as integers.
    pub(crate) fn sample<E>(
        &self,
        shape: Shape,
        place: Place,
        mut read: impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u32; 4], E> {
        let (level, weight) = self.level(shape, place);
        let mut sample = |level| self.at_level(level).sample_image(shape, place, &mut read);
        let near = sample(level)?;
        if weight == 0.0 {
            return Ok(near);
        }
        let far = sample(level + 1)?;
        let weighed = |channel: usize| {
            let [near, far] = [near, far].map(|texel| f32::from_bits(texel[channel]));
            ((1.0 - weight) * near + weight * far).to_bits()
        };
        // What is no channel stays what it is.
        let sources = self.image.texel.sources;
        Ok(std::array::from_fn(|at| match sources[at] {
            ChannelSource::Channel(_) => weighed(at),
            ChannelSource::Constant(bits) => bits,
        }))
    }

    /// The level that is read, and the weight of the next one.
    fn level(&self, shape: Shape, place: Place) -> (u32, f32) {
        let last = self.image.levels.saturating_sub(1);
        let MipmapSampler { linear, bias, clamp: [least, most] } = self.sampler.mipmap;
        let level = match place.level {
            Level::Exact(level) => return ((level.max(0) as u32).min(last), 0.0),
            Level::Number(level) => level,
            Level::Gradients { change, bias } => bias + self.level_of(shape, place.at, change),
        };
        // No number is the least.
        let level = (level + bias).max(least).min(most).max(0.0).min(last as f32);
        if !(linear && self.is_number()) {
            return ((level + 0.5).floor() as u32, 0.0);
        }
        // GPUs have eight bits for it.
        let level = (level * 256.0).round_ties_even() / 256.0;
        (level as u32, level.fract())
    }

    /// The level of which a texel is as large as the longer of two changes of the coordinates.
    fn level_of(&self, shape: Shape, at: [f64; 3], change: [[f64; 3]; 2]) -> f32 {
        let length = |change: [f64; 3]| {
            let change = if shape.cube { change_on_face(at, change) } else { change };
            let axes = if shape.cube { 2 } else { shape.axes.min(self.image.axes) };
            let texels = (0..axes).map(|axis| self.texels(axis, change[axis]));
            texels.map(|texels| texels * texels).sum::<f64>().sqrt()
        };
        length(change[0]).max(length(change[1])).log2() as f32
    }

    fn at_level(&self, level: u32) -> Self {
        Self { image: self.image.level(level), ..*self }
    }

    /// The four channels of the first level.
    fn sample_image<E>(
        &self,
        shape: Shape,
        Place { layer, at, offset, depth, .. }: Place,
        mut read: impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u32; 4], E> {
        let (face, at) = if shape.cube { cube_face(at) } else { (0, at) };
        let axes = if shape.cube { 2 } else { shape.axes.min(self.image.axes) };
        let planes = self.image.size[2];
        let plane = match (shape.cube, shape.layered) {
            (true, true) => layer.min((planes / 6).saturating_sub(1)) * 6 + face,
            (true, false) => face,
            (false, _) => layer.min(planes.saturating_sub(1)),
        };
        let taps: [Taps; 3] = std::array::from_fn(|axis| match axis < axes {
            true => self.taps(axis, at[axis], offset[axis]),
            false if axis == 2 => [(Some(plane), 1.0), (None, 0.0)],
            false => [(Some(0), 1.0), (None, 0.0)],
        });
        if !self.is_number() {
            return Ok(self.in_order(self.channels(
                taps.map(|taps| taps[0].0),
                depth,
                &mut read,
            )?));
        }
        let mut sum = [0.0f32; 4];
        for (x, weight_x) in taps[0] {
            for (y, weight_y) in taps[1] {
                for (z, weight_z) in taps[2] {
                    let weight = weight_x * weight_y * weight_z;
                    if weight == 0.0 {
                        continue;
                    }
                    let channels = self.channels([x, y, z], depth, &mut read)?;
                    for (sum, value) in sum.iter_mut().zip(channels.map(f32::from_bits)) {
                        // One alone stays what it is, infinities and NaNs as well.
                        *sum = if weight == 1.0 { value } else { *sum + weight * value };
                    }
                }
            }
        }
        Ok(self.in_order(sum.map(f32::to_bits)))
    }

    /// One channel of the four texels that linear filtering would weigh: counter-clockwise from the lower left.
    pub(crate) fn gather<E>(
        &self,
        shape: Shape,
        channel: usize,
        Place { layer, at, offset, depth, .. }: Place,
        mut read: impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u32; 4], E> {
        let plane = if shape.layered { layer.min(self.image.size[2].saturating_sub(1)) } else { 0 };
        let (x, y) = (self.around(0, at[0], offset[0]), self.around(1, at[1], offset[1]));
        let mut out = [0; 4];
        for (out, (x, y)) in
            out.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)].map(|(i, j)| (x[i].0, y[j].0)))
        {
            *out = self.in_order(self.channels([x, y, Some(plane)], depth, &mut read)?)[channel];
        }
        Ok(out)
    }

    /// Whether reads give numbers of `f32`.
    fn is_number(&self) -> bool {
        let Texel { kind, bits, .. } = self.image.texel;
        kind == TexelKind::Float || self.sampler.to_numbers && bits < 32
    }

    /// The channels of a texel, or of the border: bits of `f32`, or integers. Compared with a depth, each is 1 or 0.
    fn channels<E>(
        &self,
        at: [Option<u32>; 3],
        depth: Option<f32>,
        read: &mut impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u32; 4], E> {
        let (texel, is_number) = (self.image.texel, self.is_number());
        let value = |raw| if is_number { texel.number(raw).to_bits() } else { texel.integer(raw) };
        let channels = match at {
            [Some(x), Some(y), Some(z)] => self.image.texel([x, y, z], read)?.map(value),
            _ => self.sampler.border,
        };
        let (Some(comparison), Some(depth)) = (self.sampler.comparison, depth) else {
            return Ok(channels);
        };
        let holds = |channel| comparison.holds(depth, f32::from_bits(channel));
        Ok(channels.map(|channel| f32::from(u8::from(holds(channel))).to_bits()))
    }

    /// The channels of a read, of those of a texel.
    fn in_order(&self, channels: [u32; 4]) -> [u32; 4] {
        let there = &channels[..self.image.texel.channels as usize];
        self.image.texel.sources.map(|source| match source {
            ChannelSource::Channel(number) => there.get(number).copied().unwrap_or(0),
            ChannelSource::Constant(bits) => bits,
        })
    }

    fn taps(&self, axis: usize, coordinate: f64, offset: i64) -> Taps {
        if self.sampler.linear && self.is_number() {
            let both = self.around(axis, coordinate, offset);
            // Twice the same texel is that texel, without rounding.
            return if both[0].0 == both[1].0 { [(both[0].0, 1.0), (None, 0.0)] } else { both };
        }
        let index = (self.texels(axis, coordinate).floor() as i64).saturating_add(offset);
        [(self.index(axis, index), 1.0), (None, 0.0)]
    }

    /// A coordinate along an axis, in texels.
    fn texels(&self, axis: usize, coordinate: f64) -> f64 {
        let size = f64::from(self.image.size[axis]);
        if self.sampler.normalized { coordinate * size } else { coordinate }
    }

    /// The two texels around a coordinate.
    fn around(&self, axis: usize, coordinate: f64, offset: i64) -> Taps {
        let from = self.texels(axis, coordinate) - 0.5;
        let first = from.floor();
        // GPUs have eight bits for it.
        let weight = ((from - first) * 256.0).round_ties_even() / 256.0;
        let weight = if weight.is_nan() { 0.0 } else { weight as f32 };
        let index = (first as i64).saturating_add(offset);
        [
            (self.index(axis, index), 1.0 - weight),
            (self.index(axis, index.saturating_add(1)), weight),
        ]
    }

    /// The texel that an index stands for along an axis.
    fn index(&self, axis: usize, at: i64) -> Option<u32> {
        let size = i64::from(self.image.size[axis]).max(1);
        let at = match self.sampler.addressing[axis] {
            Addressing::Border if !(0..size).contains(&at) => return None,
            Addressing::Wrap if self.sampler.normalized => at.rem_euclid(size),
            Addressing::Mirror if self.sampler.normalized => {
                let at = at.rem_euclid(2 * size);
                at.min(2 * size - 1 - at)
            }
            _ => at.clamp(0, size - 1),
        };
        Some(at as u32)
    }
}

impl Image {
    /// A level of a mipmap, as an image of its own that has the levels behind it.
    #[must_use]
    pub fn level(self, level: u32) -> Self {
        (0..level).fold(self, |image, _| image.half())
    }

    /// The next level: half as large along each axis. Planes that are no axis are as many.
    fn half(self) -> Self {
        let half = |axis: usize| match axis < self.axes {
            true => (self.size[axis] / 2).max(1),
            false => self.size[axis],
        };
        let size: [u32; 3] = std::array::from_fn(half);
        let [row, high, deep] =
            [u64::from(size[0]) * self.texel.bytes(), size[1].into(), size[2].into()];
        let (bytes, layout) = match self.layout {
            Layout::Rows(Rows { plane_bytes, .. }) => {
                let rows = Rows { row_bytes: row, plane_bytes: row.wrapping_mul(high) };
                (plane_bytes.wrapping_mul(self.size[2].into()), Layout::Rows(rows))
            }
            Layout::Blocks(blocks) => (
                blocks.bytes(self.size[2].into()),
                Layout::Blocks(blocks.shrunk([row, high, deep])),
            ),
            Layout::Layers { blocks, layer_bytes } => {
                let next = blocks.shrunk([row, high, 1]);
                (blocks.bytes(1), Layout::Layers { blocks: next, layer_bytes })
            }
        };
        let levels = self.levels.saturating_sub(1);
        Self { address: self.address.wrapping_add(bytes), size, layout, levels, ..self }
    }

    /// The address of a byte of a row of a plane. The bytes of a texel follow each other, and so do those of an access
    /// of a surface, which has at most 16 and is aligned.
    pub(crate) fn address_of(&self, [x, y, z]: [u64; 3]) -> u64 {
        let behind = match self.layout {
            Layout::Rows(Rows { row_bytes, plane_bytes }) => {
                z.wrapping_mul(plane_bytes).wrapping_add(y.wrapping_mul(row_bytes)).wrapping_add(x)
            }
            Layout::Blocks(blocks) => blocks.place([x, y, z]).0,
            Layout::Layers { blocks, layer_bytes } => {
                z.wrapping_mul(layer_bytes).wrapping_add(blocks.place([x, y, 0]).0)
            }
        };
        self.address.wrapping_add(behind)
    }

    /// The channels of a texel.
    fn texel<E>(
        &self,
        at: [u32; 3],
        read: &mut impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u64; 4], E> {
        let [x, y, z] = at.map(u64::from);
        let start = self.address_of([x * self.texel.bytes(), y, z]);
        let width = u64::from(self.texel.bits / 8);
        let mut out = [0; 4];
        for (channel, out) in out.iter_mut().enumerate().take(self.texel.channels as usize) {
            *out = read(start.wrapping_add(channel as u64 * width), width)?;
        }
        Ok(out)
    }
}

/// The face of a cube that a direction meets, and where on it.
fn cube_face(direction: [f64; 3]) -> (u32, [f64; 3]) {
    let (face, along, s, t) = cube_axes(direction, direction);
    (face, [(s / along + 1.0) / 2.0, (t / along + 1.0) / 2.0, 0.0])
}

/// How the place on a face changes where a direction does.
fn change_on_face(direction: [f64; 3], change: [f64; 3]) -> [f64; 3] {
    let (_, along, s, t) = cube_axes(direction, direction);
    let (_, more, ds, dt) = cube_axes(direction, change);
    let change = |value: f64, change: f64| (along * change - value * more) / (2.0 * along * along);
    [change(s, ds), change(t, dt), 0.0]
}

/// The face of a cube that a direction meets, and the parts of a vector along that face's normal and its two axes.
fn cube_axes([x, y, z]: [f64; 3], [a, b, c]: [f64; 3]) -> (u32, f64, f64, f64) {
    let [wide, high, deep] = [x.abs(), y.abs(), z.abs()];
    if wide >= high && wide >= deep {
        if x >= 0.0 { (0, a, -c, -b) } else { (1, -a, c, -b) }
    } else if high >= deep {
        if y >= 0.0 { (2, b, a, c) } else { (3, -b, a, -c) }
    } else if z >= 0.0 {
        (4, c, a, -b)
    } else {
        (5, -c, -a, -b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAT: Shape = Shape { axes: 1, layered: false, cube: false };

    fn texture(kind: TexelKind, bits: u32, size: u32) -> Texture {
        let texel = Texel::new(kind, bits, 1).unwrap();
        let layout = Layout::Rows(Rows { row_bytes: 0, plane_bytes: 0 });
        let image = Image { address: 0, axes: 1, size: [size, 1, 1], layout, texel, levels: 1 };
        let sampler = Sampler {
            addressing: [Addressing::Clamp; 3],
            linear: false,
            to_numbers: true,
            normalized: false,
            border: [9; 4],
            mipmap: MipmapSampler::default(),
            comparison: None,
        };
        Texture { image, sampler }
    }

    fn sample(texture: &Texture, bytes: &[u8], x: f64) -> u32 {
        let read = |at: u64, width: u64| -> Result<u64, ()> {
            let bytes = bytes.get(at as usize..(at + width) as usize).ok_or(())?;
            Ok(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
        };
        texture.sample(FLAT, Place { at: [x, 0.0, 0.0], ..Place::default() }, read).unwrap()[0]
    }

    #[test]
    fn channels_become_numbers_or_stay_integers() {
        let mut bytes = texture(TexelKind::Unsigned, 8, 2);
        assert_eq!(f32::from_bits(sample(&bytes, &[0, 255], 1.0)), 1.0);
        bytes.sampler.to_numbers = false;
        assert_eq!(sample(&bytes, &[0, 255], 1.0), 255);
        let mut signed = texture(TexelKind::Signed, 16, 1);
        assert_eq!(f32::from_bits(sample(&signed, &[0, 0x80], 0.0)), -1.0);
        signed.sampler.to_numbers = false;
        assert_eq!(sample(&signed, &[0, 0x80], 0.0), 0xffff_8000);
        assert_eq!(f32::from_bits(sample(&texture(TexelKind::Float, 16, 1), &[0, 0x3c], 0.0)), 1.0);
        assert_eq!(Texel::new(TexelKind::Float, 8, 1), None);
    }

    #[test]
    fn neighbours_are_weighed_in_steps_of_a_256th() {
        let mut line = texture(TexelKind::Float, 32, 2);
        line.sampler.linear = true;
        let bytes = [0f32, 256.0].map(f32::to_le_bytes).concat();
        let at = |x: f64| f32::from_bits(sample(&line, &bytes, x));
        assert_eq!([at(0.5), at(1.0), at(1.5), at(0.7501)], [0.0, 128.0, 256.0, 64.0]);
        // Before the first texel's middle there is the same one twice.
        assert_eq!([at(-5.0), at(9.0)], [0.0, 256.0]);
        let bytes = [0f32, 0.1].map(f32::to_le_bytes).concat();
        let steps: Vec<f32> = (0..64).map(|step| 1.5 + step as f32 / 256.0).collect();
        let ends = steps.iter().map(|x| f32::from_bits(sample(&line, &bytes, f64::from(*x))));
        assert!(ends.into_iter().all(|value| value == 0.1));
    }

    #[test]
    fn texels_are_compared_with_a_depth_before_they_are_weighed() {
        let mut line = texture(TexelKind::Float, 32, 4);
        line.sampler.border = [f32::NAN.to_bits(); 4];
        line.sampler.addressing = [Addressing::Border; 3];
        let texels = [1.0_f32, 2.0, 3.0, f32::NAN];
        let read = |at: u64, _| -> Result<u64, ()> { Ok(texels[at as usize / 4].to_bits().into()) };
        let at = |line: &Texture, x, depth| {
            let place = Place { at: [x, 0.0, 0.0], depth, ..Place::default() };
            f32::from_bits(line.sample(FLAT, place, read).unwrap()[0])
        };
        // Never, less, equal, less or equal, greater, not equal, greater or equal, always: of 2 with 1, 2, 3 and none.
        for (bits, expected) in [
            (0, [0.0, 0.0, 0.0, 0.0, 0.0]),
            (1, [0.0, 0.0, 1.0, 0.0, 0.0]),
            (2, [0.0, 1.0, 0.0, 0.0, 0.0]),
            (3, [0.0, 1.0, 1.0, 0.0, 0.0]),
            (4, [1.0, 0.0, 0.0, 0.0, 0.0]),
            (5, [1.0, 0.0, 1.0, 1.0, 1.0]),
            (6, [1.0, 1.0, 0.0, 0.0, 0.0]),
            (7, [1.0; 5]),
        ] {
            line.sampler.comparison = Some(Comparison::of_bits(bits));
            let found = [0.0, 1.0, 2.0, 3.0, 4.0].map(|x| at(&line, x, Some(2.0)));
            assert_eq!(found, expected, "{bits}");
        }
        line.sampler.linear = true;
        line.sampler.comparison = Some(Comparison { less: true, equal: false, greater: false });
        assert_eq!(at(&line, 2.25, Some(2.0)), 0.75);
        // Without a depth, or a comparison, they are what they are.
        assert_eq!(at(&line, 2.25, None), 2.75);
        line.sampler.comparison = None;
        assert_eq!(at(&line, 2.25, Some(2.0)), 2.75);
    }

    #[test]
    fn what_is_outside_is_repeated_mirrored_or_the_border() {
        let bytes = [10u8, 20, 30];
        let at = |addressing, x: f64| {
            let mut line = texture(TexelKind::Unsigned, 8, 3);
            line.sampler.addressing = [addressing; 3];
            line.sampler.to_numbers = false;
            line.sampler.normalized = true;
            sample(&line, &bytes, x)
        };
        let three = |addressing| [-0.1, 1.1, 1.5].map(|x| at(addressing, x));
        assert_eq!(three(Addressing::Clamp), [10, 30, 30]);
        assert_eq!(three(Addressing::Wrap), [30, 10, 20]);
        assert_eq!(three(Addressing::Mirror), [10, 30, 20]);
        assert_eq!(three(Addressing::Border), [9; 3]);
    }

    #[test]
    fn integers_are_gathered_and_have_a_border_of_bits() {
        let bytes = [10u8, 20, 30, 40];
        let mut plane = texture(TexelKind::Unsigned, 8, 2);
        plane.image.axes = 2;
        plane.image.size = [2, 2, 1];
        plane.image.layout = Layout::Rows(Rows { row_bytes: 2, plane_bytes: 4 });
        plane.sampler.to_numbers = false;
        plane.sampler.addressing = [Addressing::Border; 3];
        plane.sampler.border = [u32::MAX; 4];
        let read = |at: u64, _| -> Result<u64, ()> { Ok(bytes[at as usize].into()) };
        let shape = Shape { axes: 2, layered: false, cube: false };
        let gather = |x, y, channel| {
            let place = Place { at: [x, y, 0.0], ..Place::default() };
            plane.gather(shape, channel, place, read).unwrap()
        };
        assert_eq!(gather(1.0, 1.0, 0), [30, 40, 20, 10]);
        assert_eq!(gather(2.0, 2.0, 0), [u32::MAX, u32::MAX, u32::MAX, 40]);
        // A channel that the texels have not is zero, of the border as well.
        assert_eq!(gather(2.0, 2.0, 1), [0; 4]);
    }

    #[test]
    fn channels_come_from_where_the_texel_says() {
        let mut line = texture(TexelKind::Unsigned, 8, 1);
        let one = ChannelSource::Constant(1.0_f32.to_bits());
        line.image.texel.sources = [one, ChannelSource::Channel(0), one, ChannelSource::Channel(1)];
        let read = |_, _| -> Result<u64, ()> { Ok(255) };
        let found = line.sample(FLAT, Place::default(), read).unwrap().map(f32::from_bits);
        assert_eq!(found, [1.0, 1.0, 1.0, 0.0]);
        line.sampler.border = [0.5_f32.to_bits(); 4];
        line.sampler.addressing = [Addressing::Border; 3];
        let place = Place { at: [-1.0, 0.0, 0.0], ..Place::default() };
        let found = line.sample(FLAT, place, read).unwrap().map(f32::from_bits);
        assert_eq!(found, [1.0, 0.5, 1.0, 0.0]);
    }

    #[test]
    fn blocks_are_read_where_their_bytes_lie() {
        let mut plane = texture(TexelKind::Unsigned, 32, 16);
        plane.image.axes = 3;
        plane.image.size = [16, 16, 2];
        let blocks = Blocks { height_log: 1, depth_log: 1, width: 64, height: 16 };
        plane.image.layout = Layout::Blocks(blocks);
        let shape = Shape { axes: 3, layered: false, cube: false };
        let read = |at: u64, _| -> Result<u64, u64> { Err(at) };
        let place = Place { at: [9.0, 10.0, 1.0], ..Place::default() };
        // The second gob of the second slice, its right half, the third row.
        assert_eq!(plane.sample(shape, place, read), Err(1024 + 512 + 256 + 64 + 4));
    }

    /// A line of 8, 4, 2 and 1 texels, each of which is its number in memory.
    fn mipmap(linear: bool) -> Texture {
        let mut line = texture(TexelKind::Float, 32, 8);
        line.image.layout = Layout::Rows(Rows { row_bytes: 32, plane_bytes: 32 });
        line.image.levels = 4;
        line.sampler.mipmap = MipmapSampler { linear, bias: 0.0, clamp: [0.0, 9.0] };
        line
    }

    fn at_level(line: &Texture, x: f64, level: Level) -> f32 {
        let read = |at: u64, _| -> Result<u64, ()> { Ok(((at / 4) as f32).to_bits().into()) };
        let place = Place { at: [x, 0.0, 0.0], level, ..Place::default() };
        f32::from_bits(line.sample(FLAT, place, read).unwrap()[0])
    }

    #[test]
    fn the_nearest_level_is_read_or_two_are_weighed() {
        let (point, linear) = (mipmap(false), mipmap(true));
        let numbers = [-3.0, 0.25, 0.5, 1.75, 3.0, 9.0, f32::NAN];
        let read = |line: &Texture| numbers.map(|level| at_level(line, 0.0, Level::Number(level)));
        // The levels begin at 0, 8, 12 and 14.
        assert_eq!(read(&point), [0.0, 0.0, 8.0, 12.0, 14.0, 14.0, 0.0]);
        assert_eq!(read(&linear), [0.0, 2.0, 4.0, 11.0, 14.0, 14.0, 0.0]);
        let exact = [-1, 1, 2, 7].map(|level| at_level(&linear, 1.0, Level::Exact(level)));
        assert_eq!(exact, [1.0, 9.0, 13.0, 14.0]);
        // Integers are not weighed.
        let mut words = linear;
        words.image.texel.kind = TexelKind::Unsigned;
        words.sampler.to_numbers = false;
        let place = Place { level: Level::Number(0.75), ..Place::default() };
        let read = |at: u64, _| -> Result<u64, ()> { Ok(at / 4) };
        assert_eq!(words.sample(FLAT, place, read).unwrap()[0], 8);
    }

    #[test]
    fn a_sampler_moves_and_bounds_levels() {
        let mut line = mipmap(false);
        line.sampler.mipmap = MipmapSampler { linear: false, bias: 1.25, clamp: [1.5, 2.25] };
        let read = [0.0, 0.75, 3.0].map(|level| at_level(&line, 0.0, Level::Number(level)));
        assert_eq!(read, [12.0, 12.0, 12.0]);
        line.sampler.mipmap.clamp = [0.0, 1.0];
        assert_eq!(at_level(&line, 0.0, Level::Number(3.0)), 8.0);
        // It does not say which level integers mean.
        assert_eq!(at_level(&line, 0.0, Level::Exact(3)), 14.0);
    }

    #[test]
    fn gradients_are_levels_by_the_longer_change_in_texels() {
        let line = mipmap(true);
        let level = |right: f64, down: f64| {
            let change = [[right, 0.0, 0.0], [down, 0.0, 0.0]];
            at_level(&line, 0.0, Level::Gradients { change, bias: 0.0 })
        };
        assert_eq!([level(0.0, 0.0), level(1.0, 0.5), level(2.0, -1.0)], [0.0, 0.0, 8.0]);
        assert_eq!(level(0.5, -4.0), 12.0);
        let change = [[2.0, 0.0, 0.0]; 2];
        assert_eq!(at_level(&line, 0.0, Level::Gradients { change, bias: 0.5 }), 10.0);
        let mut plane = line;
        plane.image.axes = 2;
        plane.image.size = [8, 8, 1];
        let shape = Shape { axes: 2, layered: false, cube: false };
        let change = [[3.0, 4.0, 0.0], [1.0, 1.0, 0.0]];
        assert_eq!(plane.level_of(shape, [0.0; 3], change), 5.0_f32.log2());
        plane.sampler.normalized = true;
        let cube = Shape { axes: 3, layered: false, cube: true };
        // On the face of +x, along y: half of the face for a whole unit.
        let change = [[0.0, 1.0, 0.0], [0.0; 3]];
        assert_eq!(plane.level_of(cube, [1.0, 0.0, 0.0], change), 2.0);
        assert_eq!(plane.level_of(cube, [-2.0, 0.0, 0.0], change), 1.0);
    }

    #[test]
    fn levels_follow_each_other_in_blocks_no_larger_than_they_need() {
        let mut image = texture(TexelKind::Float, 32, 64).image;
        let blocks = Blocks { height_log: 2, depth_log: 0, width: 256, height: 40 };
        (image.axes, image.size, image.levels) = (2, [64, 40, 3], 7);
        image.layout = Layout::Blocks(blocks);
        let levels: Vec<Image> = (0..4).map(|level| image.level(level)).collect();
        let size = |image: &Image| (image.size, image.levels);
        let sizes = [([64, 40, 3], 7), ([32, 20, 3], 6), ([16, 10, 3], 5), ([8, 5, 3], 4)];
        assert_eq!(levels.iter().map(size).collect::<Vec<_>>(), sizes);
        image.layout = Layout::Layers { blocks, layer_bytes: 0x10000 };
        let levels: Vec<Image> = (0..4).map(|level| image.level(level)).collect();
        // Four blocks of four gobs in two rows; two of them; one of two gobs.
        let (first, second, third) = (4 * 4 * 2 * 512, 2 * 4 * 512, 2 * 512);
        let addresses: Vec<u64> = levels.iter().map(|image| image.address).collect();
        assert_eq!(addresses, [0, first, first + second, first + second + third]);
        let Layout::Layers { blocks, layer_bytes } = levels[3].layout else { panic!("no layers") };
        assert_eq!((blocks.height_log, blocks.width, blocks.height), (0, 32, 5));
        assert_eq!(levels[3].address_of([4, 1, 2]), levels[3].address + 2 * layer_bytes + 16 + 4);
        // A volume is halved along all its axes.
        (image.axes, image.size) = (3, [4, 4, 8]);
        let blocks = Blocks { height_log: 0, depth_log: 3, width: 16, height: 4 };
        image.layout = Layout::Blocks(blocks);
        assert_eq!(image.level(1).address, 8 * 512);
        assert_eq!((image.level(2).address, image.level(2).size), (12 * 512, [1, 1, 2]));
    }

    #[test]
    fn a_direction_meets_a_face_of_the_cube() {
        assert_eq!(cube_face([2.0, 0.0, 0.0]), (0, [0.5, 0.5, 0.0]));
        assert_eq!(cube_face([-1.0, -1.0, 0.5]), (1, [0.75, 1.0, 0.0]));
        assert_eq!(cube_face([0.0, -3.0, 0.0]).0, 3);
        assert_eq!(cube_face([0.0, 0.0, -1.0]).0, 5);
    }
}
