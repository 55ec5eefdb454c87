//! Textures and surfaces: where their texels are, and what a texture makes of coordinates. Pure but for the
//! function that reads texels.

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
}

/// How rows and planes lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One behind the other.
    Rows(Rows),
    /// In blocks, of which each takes part in several rows.
    Blocks(Blocks),
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
    /// How large it is along each axis.
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

    /// Whether it writes what it is given.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Store { .. } | Self::Reduce { .. })
    }
}

/// Where a lane reads: the layer, the coordinates, and how many texels beside them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) layer: u32,
    pub(crate) at: [f64; 3],
    pub(crate) offset: [i64; 3],
}

/// The texels that one read takes along an axis: one, or two with the weight of the second.
type Taps = [(Option<u32>, f32); 2];

impl Texture {
    /// The four channels of the texture at coordinates, as bits of `f32` or as integers.
    pub(crate) fn sample<E>(
        &self,
        shape: Shape,
        Place { layer, at, offset }: Place,
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
            return Ok(self.in_order(self.channels(taps.map(|taps| taps[0].0), &mut read)?));
        }
        let mut sum = [0.0f32; 4];
        for (x, weight_x) in taps[0] {
            for (y, weight_y) in taps[1] {
                for (z, weight_z) in taps[2] {
                    let weight = weight_x * weight_y * weight_z;
                    if weight == 0.0 {
                        continue;
                    }
                    let channels = self.channels([x, y, z], &mut read)?;
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
        Place { layer, at, offset }: Place,
        mut read: impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u32; 4], E> {
        let plane = if shape.layered { layer.min(self.image.size[2].saturating_sub(1)) } else { 0 };
        let (x, y) = (self.around(0, at[0], offset[0]), self.around(1, at[1], offset[1]));
        let mut out = [0; 4];
        for (out, (x, y)) in
            out.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)].map(|(i, j)| (x[i].0, y[j].0)))
        {
            *out = self.in_order(self.channels([x, y, Some(plane)], &mut read)?)[channel];
        }
        Ok(out)
    }

    /// Whether reads give numbers of `f32`.
    fn is_number(&self) -> bool {
        let Texel { kind, bits, .. } = self.image.texel;
        kind == TexelKind::Float || self.sampler.to_numbers && bits < 32
    }

    /// The channels of a texel, or of the border: bits of `f32`, or integers.
    fn channels<E>(
        &self,
        at: [Option<u32>; 3],
        read: &mut impl FnMut(u64, u64) -> Result<u64, E>,
    ) -> Result<[u32; 4], E> {
        let [Some(x), Some(y), Some(z)] = at else { return Ok(self.sampler.border) };
        let (texel, is_number) = (self.image.texel, self.is_number());
        let value = |raw| if is_number { texel.number(raw).to_bits() } else { texel.integer(raw) };
        Ok(self.image.texel([x, y, z], read)?.map(value))
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
    /// The address of a byte of a row of a plane. The bytes of a texel follow each other, and so do those of an access
    /// of a surface, which has at most 16 and is aligned.
    pub(crate) fn address_of(&self, [x, y, z]: [u64; 3]) -> u64 {
        let behind = match self.layout {
            Layout::Rows(Rows { row_bytes, plane_bytes }) => {
                z.wrapping_mul(plane_bytes).wrapping_add(y.wrapping_mul(row_bytes)).wrapping_add(x)
            }
            Layout::Blocks(blocks) => blocks.place([x, y, z]).0,
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
fn cube_face([x, y, z]: [f64; 3]) -> (u32, [f64; 3]) {
    let [wide, high, deep] = [x.abs(), y.abs(), z.abs()];
    let (face, along, s, t) = if wide >= high && wide >= deep {
        if x >= 0.0 { (0, wide, -z, -y) } else { (1, wide, z, -y) }
    } else if high >= deep {
        if y >= 0.0 { (2, high, x, z) } else { (3, high, x, -z) }
    } else if z >= 0.0 {
        (4, deep, x, -y)
    } else {
        (5, deep, -x, -y)
    };
    (face, [(s / along + 1.0) / 2.0, (t / along + 1.0) / 2.0, 0.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAT: Shape = Shape { axes: 1, layered: false, cube: false };

    fn texture(kind: TexelKind, bits: u32, size: u32) -> Texture {
        let texel = Texel::new(kind, bits, 1).unwrap();
        let layout = Layout::Rows(Rows { row_bytes: 0, plane_bytes: 0 });
        let image = Image { address: 0, axes: 1, size: [size, 1, 1], layout, texel };
        let sampler = Sampler {
            addressing: [Addressing::Clamp; 3],
            linear: false,
            to_numbers: true,
            normalized: false,
            border: [9; 4],
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

    #[test]
    fn a_direction_meets_a_face_of_the_cube() {
        assert_eq!(cube_face([2.0, 0.0, 0.0]), (0, [0.5, 0.5, 0.0]));
        assert_eq!(cube_face([-1.0, -1.0, 0.5]), (1, [0.75, 1.0, 0.0]));
        assert_eq!(cube_face([0.0, -3.0, 0.0]).0, 3);
        assert_eq!(cube_face([0.0, 0.0, -1.0]).0, 5);
    }
}
