//! Textures and surfaces as kernels name them: a handle has the number of a header, which says where an image is and
//! what its texels are, and that of a sampler, which says how it is read. Both lie in pools in the GPU's memory.
//! (`clc697tex.h` and `clcb97tex.h` of NVIDIA's open-gpu-doc; those of Ampere and Ada are the same.)

use std::sync::Arc;

use nvabi_emu::{
    Addressing, Blocks, ChannelSource, Comparison, FindingKind, Image, Layout, MipmapSampler,
    NoTexture, Rows, Sampler, Texel, TexelKind, Texture, Textures,
};

use super::engine::KernelSpace;
use super::field::{Field, mw, whole};

/// Bytes of a header, and of a sampler.
const SIZE: usize = 32;
type Words = [u8; SIZE];

/// In a handle, the number of the sampler is behind that of the header.
const HEADER_BITS: u32 = 20;

/// Headers or samplers, one behind the other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pool {
    pub(super) address: u64,
    /// The number of the last.
    pub(super) last: u32,
}

/// What the methods of a channel say of its textures.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pools {
    pub(super) headers: Pool,
    pub(super) samplers: Pool,
    /// SET_TEXTURE_HEADER_VERSION_MAJOR, of GPUs that know two: 0 and 1.
    pub(super) version: u32,
}

/// The textures and surfaces of a launch.
#[derive(Debug)]
pub(super) struct PoolTextures {
    pub(super) space: Arc<dyn KernelSpace>,
    pub(super) pools: Pools,
    /// Whether a sampler has the number of its header.
    pub(super) samplers_by_header: bool,
}

impl Textures for PoolTextures {
    fn image(&self, handle: u64) -> Result<Image, NoTexture> {
        Ok(self.header(handle as u32)?.image)
    }

    fn texture(&self, handle: u64) -> Result<Texture, NoTexture> {
        let handle = handle as u32;
        let header = self.header(handle)?;
        if header.is_line {
            let sampler = sampler_of_line(header.to_numbers);
            return Ok(Texture { image: header.image, sampler });
        }
        let Pools { headers, samplers, .. } = self.pools;
        let (number, pool) = match self.samplers_by_header {
            // libcuda gives samplers no last number then.
            true => (header_of(handle), Pool { last: headers.last, ..samplers }),
            false => (handle >> HEADER_BITS, samplers),
        };
        let words = self.read("sampler", pool, number)?;
        let sampler = sampler(&words, &header);
        let sampler = sampler.map_err(|why| bad(format!("texture sampler {number}: {why}")))?;
        Ok(Texture { image: header.image, sampler })
    }
}

impl PoolTextures {
    fn header(&self, handle: u32) -> Result<Header, NoTexture> {
        let number = header_of(handle);
        let words = self.read("header", self.pools.headers, number)?;
        let layout = match self.pools.version {
            0 => &FIRST,
            1 => &SECOND,
            other => {
                return Err(bad(format!("texture headers of version {other} are not simulated")));
            }
        };
        layout.header(&words).map_err(|why| bad(format!("texture header {number}: {why}")))
    }

    fn read(&self, what: &str, pool: Pool, number: u32) -> Result<Words, NoTexture> {
        if number > pool.last {
            return Err(bad(format!(
                "texture {what} {number}, of which the last is {}",
                pool.last
            )));
        }
        let at = pool.address.wrapping_add(u64::from(number) * SIZE as u64);
        let is_there = self.space.range(at).is_some_and(|(_, end)| end - at >= SIZE as u64);
        let mut words = [0; SIZE];
        if !is_there || !self.space.read(at, &mut words) {
            let message = format!("texture {what} {number} at {at:#x}, where nothing is mapped");
            return Err(NoTexture { kind: FindingKind::OutOfBounds, message });
        }
        Ok(words)
    }
}

fn header_of(handle: u32) -> u32 {
    handle & ((1 << HEADER_BITS) - 1)
}

fn bad(message: String) -> NoTexture {
    NoTexture { kind: FindingKind::Texture, message }
}

/// What a header says.
#[derive(Debug, PartialEq)]
struct Header {
    image: Image,
    /// Whether integers become numbers up to 1.
    to_numbers: bool,
    is_normalized: bool,
    /// Whether it is a line of memory, outside of which reads give zero, whatever the sampler says.
    is_line: bool,
}

/// Where a version of headers has its fields.
struct HeaderLayout {
    /// HEADER_VERSION, and what it says of a line, of rows and of blocks.
    version: Field,
    line: u64,
    rows: u64,
    blocks: u64,
    /// COMPONENTS, of lines and of all others.
    line_components: Field,
    components: Field,
    /// DATA_TYPE of each channel, and what they are: integers may become numbers.
    data_types: [Field; 4],
    kinds: &'static [(u64, TexelKind, bool)],
    /// X_SOURCE to W_SOURCE.
    sources: [Field; 4],
    texture_type: Field,
    normalized: Field,
    line_address: &'static [Field],
    line_width: &'static [Field],
    rows_address: &'static [Field],
    pitch: &'static [Field],
    blocks_address: &'static [Field],
    height_log: Field,
    depth_log: Field,
    width: Field,
    height: &'static [Field],
    depth: &'static [Field],
    /// What is not simulated where it is not zero: of all, of rows and blocks, and of blocks.
    unknown: &'static [Unknown],
    unknown_of_planes: &'static [Unknown],
    unknown_of_blocks: &'static [Unknown],
    /// The number of the last level in memory.
    max_mip_level: Field,
}

/// A field that must be zero, by its name.
type Unknown = (&'static str, Field);

const FIRST: HeaderLayout = HeaderLayout {
    version: mw(87, 85),
    line: 0,
    rows: 2,
    blocks: 3,
    line_components: mw(6, 0),
    components: mw(6, 0),
    data_types: [mw(9, 7), mw(12, 10), mw(15, 13), mw(18, 16)],
    kinds: &[
        (1, TexelKind::Signed, true),
        (2, TexelKind::Unsigned, true),
        (3, TexelKind::Signed, false),
        (4, TexelKind::Unsigned, false),
        (7, TexelKind::Float, true),
    ],
    sources: [mw(21, 19), mw(24, 22), mw(27, 25), mw(30, 28)],
    texture_type: mw(154, 151),
    normalized: mw(191, 191),
    line_address: &[mw(63, 32), mw(80, 64).shifted(32)],
    line_width: &[mw(143, 128), mw(111, 96).shifted(16)],
    rows_address: &[mw(63, 37).shifted(5), mw(80, 64).shifted(32)],
    pitch: &[mw(111, 96).shifted(5), mw(145, 145).shifted(21)],
    blocks_address: &[mw(63, 41).shifted(9), mw(80, 64).shifted(32)],
    height_log: mw(101, 99),
    depth_log: mw(104, 102),
    width: mw(144, 128),
    height: &[mw(175, 160), mw(146, 146).shifted(16)],
    depth: &[mw(189, 176), mw(145, 145).shifted(14)],
    unknown: &[("PACK_COMPONENTS", mw(31, 31)), ("S_R_G_B_CONVERSION", mw(150, 150))],
    unknown_of_planes: &[("MULTI_SAMPLE_COUNT", mw(235, 232)), ("MIN_LOD_CLAMP", mw(247, 236))],
    max_mip_level: mw(127, 124),
    unknown_of_blocks: &[
        ("GOB_DEPTH_OFFSET", mw(38, 37)),
        ("GOBS_PER_BLOCK_WIDTH", mw(98, 96)),
        ("TILE_WIDTH_IN_GOBS", mw(108, 106)),
        ("GOB3D", mw(109, 109)),
    ],
};

const SECOND: HeaderLayout = HeaderLayout {
    version: mw(127, 124),
    line: 5,
    rows: 2,
    blocks: 3,
    line_components: mw(117, 112),
    components: mw(118, 112),
    data_types: [mw(111, 108); 4],
    kinds: &[
        (0, TexelKind::Unsigned, true),
        (1, TexelKind::Signed, true),
        (2, TexelKind::Float, true),
        (6, TexelKind::Unsigned, false),
        (7, TexelKind::Signed, false),
    ],
    sources: [mw(98, 96), mw(101, 99), mw(104, 102), mw(107, 105)],
    texture_type: mw(153, 150),
    normalized: mw(145, 145),
    line_address: &[mw(63, 0)],
    line_width: &[mw(95, 64)],
    rows_address: &[mw(56, 5).shifted(5)],
    pitch: &[mw(80, 64).shifted(5)],
    blocks_address: &[mw(56, 9).shifted(9)],
    height_log: mw(69, 67),
    depth_log: mw(72, 70),
    width: mw(144, 128),
    height: &[mw(176, 160)],
    depth: &[mw(191, 177)],
    unknown: &[],
    unknown_of_planes: &[
        ("PACK_COMPONENTS", mw(119, 119)),
        ("S_R_G_B_CONVERSION", mw(149, 149)),
        ("MULTI_SAMPLE_COUNT", mw(235, 232)),
        ("MIN_LOD_CLAMP", mw(247, 236)),
    ],
    max_mip_level: mw(95, 92),
    unknown_of_blocks: &[
        ("GOB_DEPTH_OFFSET", mw(8, 4)),
        ("GOBS_PER_BLOCK_WIDTH", mw(66, 64)),
        ("TILE_WIDTH_IN_GOBS", mw(76, 74)),
        ("GOB3D", mw(77, 77)),
    ],
};

/// Levels that are read, of all versions: RES_VIEW_MIN_MIP_LEVEL and RES_VIEW_MAX_MIP_LEVEL.
///
/// libcuda writes a texture's bias into MIP_LOD_BIAS of the header as well as of the sampler, and CUDA documents that it
/// is added once: that of the sampler is taken.
const FIRST_LEVEL: Field = mw(227, 224);
const LAST_LEVEL: Field = mw(231, 228);

/// Bits and number of the channels of a texel (COMPONENTS_SIZES).
const COMPONENTS: [(u64, u32, u32); 9] = [
    (0x01, 32, 4),
    (0x03, 16, 4),
    (0x04, 32, 2),
    (0x08, 8, 4),
    (0x0c, 16, 2),
    (0x0f, 32, 1),
    (0x18, 8, 2),
    (0x1b, 16, 1),
    (0x1d, 8, 1),
];

/// Most gobs of a block in a direction, as a power of two: THIRTYTWO_GOBS.
const LARGEST_BLOCK: u64 = 5;

impl HeaderLayout {
    fn header(&self, words: &Words) -> Result<Header, String> {
        if words.iter().all(|byte| *byte == 0) {
            return Err("it is empty".to_owned());
        }
        check(self.unknown, words)?;
        let version = self.version.read(words);
        if version == self.line {
            return self.of_line(words);
        }
        let (texel, to_numbers) = self.texel(self.components, words)?;
        check(self.unknown_of_planes, words)?;
        let number = |parts: &[Field]| whole(parts, words) as u32 + 1;
        let size = [self.width.read(words) as u32 + 1, number(self.height), number(self.depth)];
        let Shape { axes, size, has_layers } = shape(self.texture_type.read(words), size)?;
        let width = u64::from(size[0]) * texel.bytes();
        let (address, layout) = match version {
            version if version == self.rows => (self.rows_address, self.rows(size, width, words)?),
            version if version == self.blocks => {
                (self.blocks_address, self.blocks(size, width, words)?)
            }
            other => return Err(format!("HEADER_VERSION {other} is not simulated")),
        };
        let address = whole(address, words);
        let levels = self.max_mip_level.read(words) as u32 + 1;
        let mut image = Image { address, axes, size, layout, texel, levels };
        if let (true, Layout::Blocks(blocks)) = (has_layers, layout) {
            image.layout = layers(blocks, &image)?;
        }
        let image = seen(image, words)?;
        let is_normalized = self.normalized.read(words) != 0;
        Ok(Header { image, to_numbers, is_normalized, is_line: false })
    }

    fn of_line(&self, words: &Words) -> Result<Header, String> {
        let (texel, to_numbers) = self.texel(self.line_components, words)?;
        let last = whole(self.line_width, words);
        let count = u32::try_from(last + 1).map_err(|_| format!("a line of {last} texels"))?;
        let row_bytes = u64::from(count) * texel.bytes();
        let layout = Layout::Rows(Rows { row_bytes, plane_bytes: row_bytes });
        let address = whole(self.line_address, words);
        let image = Image { address, axes: 1, size: [count, 1, 1], layout, texel, levels: 1 };
        Ok(Header { image, to_numbers, is_normalized: false, is_line: true })
    }

    /// What a texel is, and whether its integers become numbers.
    fn texel(&self, components: Field, words: &Words) -> Result<(Texel, bool), String> {
        let code = components.read(words);
        let known = COMPONENTS.iter().find(|(known, ..)| *known == code);
        let (_, bits, channels) =
            *known.ok_or_else(|| format!("COMPONENTS {code:#x} is not simulated"))?;
        let types = self.data_types.map(|field| field.read(words));
        let [first, ..] = types;
        if types[..channels as usize].iter().any(|other| *other != first) {
            return Err(format!("DATA_TYPE of channels that differ ({types:?}) is not simulated"));
        }
        let known = self.kinds.iter().find(|(known, ..)| *known == first);
        let texel = known.and_then(|(_, kind, to_numbers)| {
            let is_whole = *to_numbers && *kind != TexelKind::Float && bits == 32;
            let texel = Texel::new(*kind, bits, channels).filter(|_| !is_whole)?;
            Some((texel, *to_numbers))
        });
        let unknown = || format!("DATA_TYPE {first} of channels of {bits} bits is not simulated");
        let (mut texel, to_numbers) = texel.ok_or_else(unknown)?;
        for (source, field) in texel.sources.iter_mut().zip(self.sources) {
            *source = match field.read(words) {
                0 => ChannelSource::Constant(0),
                channel @ 2..=5 => ChannelSource::Channel(channel as usize - 2),
                6 => ChannelSource::Constant(1),
                7 => ChannelSource::Constant(1.0_f32.to_bits()),
                other => return Err(format!("SOURCE {other} of a channel is not simulated")),
            };
        }
        Ok((texel, to_numbers))
    }

    fn rows(&self, size: [u32; 3], width: u64, words: &Words) -> Result<Layout, String> {
        let row_bytes = whole(self.pitch, words);
        if size[2] > 1 {
            return Err(format!("{} planes of rows with a pitch are not simulated", size[2]));
        }
        let last = self.max_mip_level.read(words);
        if last != 0 {
            return Err(format!("MAX_MIP_LEVEL {last} of rows is not simulated"));
        }
        if row_bytes < width {
            return Err(format!("a row has {width} bytes, and the pitch is {row_bytes}"));
        }
        let plane_bytes = row_bytes * u64::from(size[1]);
        Ok(Layout::Rows(Rows { row_bytes, plane_bytes }))
    }

    fn blocks(&self, size: [u32; 3], width: u64, words: &Words) -> Result<Layout, String> {
        check(self.unknown_of_blocks, words)?;
        let logs = [self.height_log, self.depth_log].map(|field| field.read(words));
        if let Some(log) = logs.into_iter().find(|log| *log > LARGEST_BLOCK) {
            return Err(format!("a block of 2^{log} gobs"));
        }
        let [height_log, depth_log] = logs.map(|log| log as u32);
        Ok(Layout::Blocks(Blocks { height_log, depth_log, width, height: size[1].into() }))
    }
}

/// Whether none of these fields says anything.
fn check(unknown: &[Unknown], words: &Words) -> Result<(), String> {
    let mut set = unknown.iter().map(|(name, field)| (name, field.read(words)));
    match set.find(|(_, value)| *value != 0) {
        Some((name, value)) => Err(format!("{name} {value} is not simulated")),
        None => Ok(()),
    }
}

/// Planes that hold all their levels, each aligned to a block of the first level.
fn layers(blocks: Blocks, image: &Image) -> Result<Layout, String> {
    let layout = Layout::Layers { blocks, layer_bytes: 0 };
    let end = Image { layout, ..*image }.level(image.levels).address;
    let bytes = end.wrapping_sub(image.address).checked_next_multiple_of(blocks.block_bytes());
    let layer_bytes = bytes.ok_or("a layer is larger than the address space")?;
    Ok(Layout::Layers { blocks, layer_bytes })
}

/// The levels of an image that a header shows.
fn seen(image: Image, words: &Words) -> Result<Image, String> {
    let [first, last] = [FIRST_LEVEL, LAST_LEVEL].map(|field| field.read(words) as u32);
    let last = last.min(image.levels - 1);
    if first > last {
        return Err(format!("it shows levels from {first} to {last}"));
    }
    Ok(Image { levels: last - first + 1, ..image.level(first) })
}

/// The axes of an image, its texels along them and its planes, and whether these are layers or faces.
struct Shape {
    axes: usize,
    size: [u32; 3],
    has_layers: bool,
}

/// What TEXTURE_TYPE says of width, height and depth.
fn shape(texture_type: u64, [wide, high, deep]: [u32; 3]) -> Result<Shape, String> {
    let (axes, size, has_layers) = match texture_type {
        0 => (1, [wide, 1, 1], false),
        1 | 7 => (2, [wide, high, 1], false),
        2 => (3, [wide, high, deep], false),
        3 => (2, [wide, high, 6], true),
        4 => (1, [wide, 1, deep], true),
        5 => (2, [wide, high, deep], true),
        8 => (2, [wide, high, deep * 6], true),
        other => return Err(format!("TEXTURE_TYPE {other} is not simulated")),
    };
    Ok(Shape { axes, size, has_layers })
}

/// Fields of a sampler (TEXSAMP0 to 7).
const ADDRESS: [Field; 3] = [mw(2, 0), mw(5, 3), mw(8, 6)];
const FORCED_INVALID: Field = mw(31, 31);
const DEPTH_COMPARE: Field = mw(9, 9);
const DEPTH_COMPARE_FUNC: Field = mw(12, 10);
const MAG_FILTER: Field = mw(34, 32);
const MIN_FILTER: Field = mw(37, 36);
const MIP_FILTER: Field = mw(39, 38);
const REDUCTION_FILTER: Field = mw(43, 42);
const MIP_LOD_BIAS: Field = mw(56, 44);
const LOD_CLAMP: [Field; 2] = [mw(75, 64), mw(87, 76)];
const FORCE_UNNORMALIZED_COORDS: Field = mw(57, 57);
const BORDER_COLOR: [Field; 4] = [mw(159, 128), mw(191, 160), mw(223, 192), mw(255, 224)];

/// How a sampler reads what a header says.
fn sampler(words: &Words, header: &Header) -> Result<Sampler, String> {
    let value = |field: Field| field.read(words);
    if words.iter().all(|byte| *byte == 0) {
        return Err("it is empty".to_owned());
    }
    if value(FORCED_INVALID) != 0 {
        return Err("FORCED_INVALID".to_owned());
    }
    if value(REDUCTION_FILTER) != 0 {
        return Err(format!("REDUCTION_FILTER {} is not simulated", value(REDUCTION_FILTER)));
    }
    let linear = match value(MAG_FILTER) {
        1 => false,
        2 => true,
        other => return Err(format!("MAG_FILTER {other} is not simulated")),
    };
    let mut addressing = [Addressing::Clamp; 3];
    for (addressing, mode) in addressing.iter_mut().zip(ADDRESS.map(value)) {
        *addressing = match mode {
            0 => Addressing::Wrap,
            1 => Addressing::Mirror,
            2 => Addressing::Clamp,
            3 => Addressing::Border,
            other => return Err(format!("ADDRESS mode {other} is not simulated")),
        };
    }
    let mipmap = mipmap(words, header, linear)?;
    Ok(Sampler {
        addressing,
        linear,
        to_numbers: header.to_numbers,
        normalized: header.is_normalized && value(FORCE_UNNORMALIZED_COORDS) == 0,
        border: BORDER_COLOR.map(|field| value(field) as u32),
        mipmap,
        // ZC_NEVER to ZC_ALWAYS have a bit for each order.
        comparison: (value(DEPTH_COMPARE) != 0)
            .then(|| Comparison::of_bits(value(DEPTH_COMPARE_FUNC) as u32)),
    })
}

/// How a sampler chooses among levels, where there are several.
fn mipmap(words: &Words, header: &Header, linear: bool) -> Result<MipmapSampler, String> {
    if header.image.levels == 1 {
        return Ok(MipmapSampler::default());
    }
    // Numbers of levels have eight bits behind the point.
    let bias = MIP_LOD_BIAS.read(words) as i64;
    let bias = if bias < 1 << 12 { bias } else { bias - (1 << 13) } as f32 / 256.0;
    let clamp = LOD_CLAMP.map(|field| field.read(words) as f32 / 256.0);
    // One filter for all levels: that of small ones is as well that of large ones. 3 is MIN_ANISO.
    let small = MIN_FILTER.read(words);
    if linear != matches!(small, 2 | 3) {
        return Err(format!("MIN_FILTER {small} beside another MAG_FILTER is not simulated"));
    }
    match MIP_FILTER.read(words) {
        1 => Ok(MipmapSampler::default()),
        filter @ (2 | 3) => Ok(MipmapSampler { linear: filter == 3, bias, clamp }),
        other => Err(format!("MIP_FILTER {other} is not simulated")),
    }
}

/// How a line of memory is read, whatever its sampler says: what is outside is zero.
fn sampler_of_line(to_numbers: bool) -> Sampler {
    Sampler {
        addressing: [Addressing::Border; 3],
        linear: false,
        to_numbers,
        normalized: false,
        border: [0; 4],
        mipmap: MipmapSampler::default(),
        comparison: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::with;
    use super::*;

    /// Fields of a header of the first version: blocks, two dimensions, four bytes as numbers.
    const BLOCKS: [(u32, u32, u64); 14] = [
        (6, 0, 0x08),
        (9, 7, 2),
        (12, 10, 2),
        (15, 13, 2),
        (18, 16, 2),
        (21, 19, 4),
        (24, 22, 3),
        (27, 25, 2),
        (30, 28, 7),
        (63, 41, 0x4321_0000 >> 9),
        (80, 64, 0x7),
        (87, 85, 3),
        (101, 99, 2),
        (144, 128, 99),
    ];
    const OF_PLANE: [(u32, u32, u64); 3] = [(154, 151, 1), (175, 160, 49), (191, 191, 1)];

    fn first(more: &[(u32, u32, u64)]) -> Result<Header, String> {
        FIRST.header(&with(&[&BLOCKS[..], &OF_PLANE[..], more].concat()))
    }

    fn bytes_in_order(sources: [ChannelSource; 4]) -> Texel {
        Texel { sources, ..Texel::new(TexelKind::Unsigned, 8, 4).unwrap() }
    }

    #[test]
    fn headers_of_both_versions_say_the_same() {
        use ChannelSource::*;
        let blocks = Blocks { height_log: 2, depth_log: 0, width: 400, height: 50 };
        let image = Image {
            address: 0x7_4321_0000,
            axes: 2,
            size: [100, 50, 1],
            layout: Layout::Blocks(blocks),
            texel: bytes_in_order([
                Channel(2),
                Channel(1),
                Channel(0),
                Constant(1.0_f32.to_bits()),
            ]),
            levels: 1,
        };
        let header = Header { image, to_numbers: true, is_normalized: true, is_line: false };
        assert_eq!(first(&[]).as_ref(), Ok(&header));
        let second = [
            (31, 9, 0x4321_0000 >> 9),
            (56, 32, 7),
            (69, 67, 2),
            (98, 96, 4),
            (101, 99, 3),
            (104, 102, 2),
            (107, 105, 7),
            (118, 112, 8),
            (127, 124, 3),
            (144, 128, 99),
            (145, 145, 1),
            (153, 150, 1),
            (176, 160, 49),
        ];
        assert_eq!(SECOND.header(&with(&second)), Ok(header));
    }

    #[test]
    fn planes_are_the_depth_layers_or_faces() {
        // Nine in the lower part of the number, one in its highest bit.
        let deep = [(189, 176, 8), (145, 145, 1), (146, 146, 1)];
        for (texture_type, axes, size) in [
            (0, 1, [100, 1, 1]),
            (2, 3, [100, 0x10032, 0x4009]),
            (3, 2, [100, 0x10032, 6]),
            (4, 1, [100, 1, 0x4009]),
            (5, 2, [100, 0x10032, 0x4009]),
            (7, 2, [100, 0x10032, 1]),
            (8, 2, [100, 0x10032, 6 * 0x4009]),
        ] {
            let plane = [(154, 151, texture_type), (175, 160, 49)];
            let words = with(&[&BLOCKS[..], &plane, &deep].concat());
            let image = FIRST.header(&words).unwrap().image;
            assert_eq!((image.axes, image.size), (axes, size), "{texture_type}");
        }
    }

    #[test]
    fn rows_have_a_pitch_and_lines_have_none() {
        let rows = [
            (6, 0, 0x0f),
            (9, 7, 7),
            (21, 19, 2),
            (63, 37, 0x20),
            (80, 64, 1),
            (87, 85, 2),
            (111, 96, 0x10),
            (144, 128, 99),
            (154, 151, 7),
            (175, 160, 49),
        ];
        let image = FIRST.header(&with(&rows)).unwrap().image;
        let layout = Layout::Rows(Rows { row_bytes: 0x200, plane_bytes: 0x200 * 50 });
        assert_eq!((image.address, image.layout, image.axes), (0x1_0000_0400, layout, 2));
        let line = [
            (6, 0, 0x1b),
            (9, 7, 3),
            (63, 32, 0x1000),
            (80, 64, 2),
            (143, 128, 0x1234),
            (111, 96, 1),
            (154, 151, 6),
        ];
        let header = FIRST.header(&with(&line)).unwrap();
        let found = (header.image.address, header.image.size[0], header.is_line);
        assert_eq!(found, (0x2_0000_1000, 0x1_1235, true));
        assert_eq!((header.image.texel.kind, header.to_numbers), (TexelKind::Signed, false));
        let second = [(63, 0, 0x2_0000_1000), (95, 64, 9), (117, 112, 0x1b), (111, 108, 2)];
        let second = [&second[..], &[(127, 124, 5)]].concat();
        let header = SECOND.header(&with(&second)).unwrap();
        assert_eq!((header.image.address, header.image.size[0]), (0x2_0000_1000, 10));
        assert_eq!(header.image.texel.kind, TexelKind::Float);
    }

    #[test]
    fn what_a_header_says_that_is_not_simulated_is_named() {
        let wrong = |fields: &[(u32, u32, u64)]| FIRST.header(&with(fields)).unwrap_err();
        assert_eq!(wrong(&[]), "it is empty");
        let pitch = [(6, 0, 0x0f), (9, 7, 7), (87, 85, 2), (144, 128, 99), (154, 151, 1)];
        assert_eq!(wrong(&pitch), "a row has 400 bytes, and the pitch is 0");
        for (field, expected) in [
            ((6, 0, 0x20), "COMPONENTS 0x28 is not simulated"),
            ((12, 10, 4), "DATA_TYPE of channels that differ ([2, 6, 2, 2]) is not simulated"),
            ((87, 85, 4), "HEADER_VERSION 7 is not simulated"),
            ((98, 96, 1), "GOBS_PER_BLOCK_WIDTH 1 is not simulated"),
            ((101, 99, 5), "a block of 2^7 gobs"),
            ((227, 224, 3), "it shows levels from 3 to 0"),
            ((150, 150, 1), "S_R_G_B_CONVERSION 1 is not simulated"),
            ((154, 151, 8), "TEXTURE_TYPE 9 is not simulated"),
            ((235, 232, 1), "MULTI_SAMPLE_COUNT 1 is not simulated"),
        ] {
            assert_eq!(first(&[field]).unwrap_err(), expected);
        }
        let whole = [(6, 0, 0x0f), (9, 7, 2), (87, 85, 3), (154, 151, 1)];
        assert_eq!(wrong(&whole), "DATA_TYPE 2 of channels of 32 bits is not simulated");
    }

    #[test]
    fn headers_show_levels() {
        let image = first(&[(127, 124, 3), (231, 228, 9)]).unwrap().image;
        assert_eq!((image.levels, image.size), (4, [100, 50, 1]));
        let part = first(&[(127, 124, 6), (227, 224, 2), (231, 228, 4)]).unwrap().image;
        // Seven gobs across and two blocks of four gobs down; four, and one block.
        let behind = (7 * 2 * 4 + 4 * 4) * 512;
        assert_eq!((part.address - image.address, part.levels), (behind, 3));
        assert_eq!(part.size, [25, 12, 1]);
        // Layers have all their levels, as many whole blocks of the first.
        let layers = [(127, 124, 1), (231, 228, 1), (154, 151, 4), (189, 176, 2)];
        let image = first(&layers).unwrap().image;
        let Layout::Layers { layer_bytes, .. } = image.layout else { panic!("{image:?}") };
        assert_eq!((image.size, layer_bytes), ([100, 50, 3], (7 * 2 * 4 + 4 * 4) * 512));
        let odd = [&layers[..], &[(127, 124, 2)]].concat();
        let Layout::Layers { layer_bytes, .. } = first(&odd).unwrap().image.layout else {
            panic!()
        };
        // Two more levels, of two gobs across and down and of one: it ends with a whole block of four.
        assert_eq!(layer_bytes, (7 * 2 * 4 + 4 * 4 + 2 * 2 + 4) * 512);
    }

    #[test]
    fn samplers_choose_levels() {
        let header = first(&[(127, 124, 3), (231, 228, 3)]).unwrap();
        let words = [
            (34, 32, 2),
            (37, 36, 2),
            (39, 38, 3),
            (56, 44, 0x1fff & -320_i64 as u64),
            (75, 64, 0x180),
            (87, 76, 0x240),
        ];
        let mipmap = |more: &[(u32, u32, u64)]| {
            sampler(&with(&[&words[..], more].concat()), &header).map(|sampler| sampler.mipmap)
        };
        let expected = MipmapSampler { linear: true, bias: -1.25, clamp: [1.5, 2.25] };
        assert_eq!(mipmap(&[]), Ok(expected));
        assert_eq!(
            sampler(&with(&[(34, 32, 1), (37, 36, 1), (39, 38, 1)]), &header).unwrap().mipmap,
            MipmapSampler::default()
        );
        let different = sampler(&with(&[(34, 32, 2), (37, 36, 1), (39, 38, 2)]), &header);
        assert_eq!(
            different.unwrap_err(),
            "MIN_FILTER 1 beside another MAG_FILTER is not simulated"
        );
        let none = sampler(&with(&[(34, 32, 2), (37, 36, 2)]), &header);
        assert_eq!(none.unwrap_err(), "MIP_FILTER 0 is not simulated");
    }

    #[test]
    fn samplers_are_read_with_their_header() {
        let header = first(&[]).unwrap();
        let words = [
            (2, 0, 1),
            (5, 3, 2),
            (8, 6, 3),
            (34, 32, 2),
            (37, 36, 2),
            (159, 128, 0x3f80_0000),
            (255, 224, 7),
        ];
        let found = sampler(&with(&words), &header).unwrap();
        let expected = Sampler {
            addressing: [Addressing::Mirror, Addressing::Clamp, Addressing::Border],
            linear: true,
            to_numbers: true,
            normalized: true,
            border: [0x3f80_0000, 0, 0, 7],
            mipmap: MipmapSampler::default(),
            comparison: None,
        };
        assert_eq!(found, expected);
        let forced = [&words[..], &[(57, 57, 1)]].concat();
        assert!(!sampler(&with(&forced), &header).unwrap().normalized);
        let compares = [&words[..], &[(9, 9, 1), (12, 10, 6)]].concat();
        let at_least = Comparison { less: false, equal: true, greater: true };
        assert_eq!(sampler(&with(&compares), &header).unwrap().comparison, Some(at_least));
        for (field, expected) in [
            ((31, 31, 1), "FORCED_INVALID"),
            ((34, 32, 1), "MAG_FILTER 3 is not simulated"),
            ((43, 42, 2), "REDUCTION_FILTER 2 is not simulated"),
            ((2, 0, 4), "ADDRESS mode 5 is not simulated"),
        ] {
            let words = [&words[..], &[field]].concat();
            assert_eq!(sampler(&with(&words), &header).unwrap_err(), expected);
        }
    }
}
