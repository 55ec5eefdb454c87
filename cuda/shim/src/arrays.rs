//! Arrays, textures and surfaces, of the driver and of the runtime.
//!
//! An array is an allocation of the device whose texels lie row by row, plane by plane; layers and the faces of
//! cubes are planes. The levels of a mipmap follow each other in one allocation, and each is an array as well.
#![allow(non_snake_case, clippy::too_many_arguments)]

use std::ffi::{c_int, c_uint, c_void};

use nvabi_emu::{
    Addressing, Image, Layout, MipmapSampler, Rows, Sampler, Texel, TexelKind, Texture,
};

use crate::abi::{In, Out, status_of};
use crate::driver::{calls, row_start, transfer, unchecked};
use crate::runtime::{answer, copy_kind, remembered, remembered_unchecked};
use crate::state::{Array, Code, INVALID_VALUE, NOT_SUPPORTED, Result, on_stream, state};

type Handle = *mut c_void;

/// `CUDA_ARRAY3D_LAYERED` and `…_CUBEMAP`, which are the runtime's, too.
const LAYERED: c_uint = 1;
const CUBE: c_uint = 4;

/// `cudaChannelFormatDesc`: bits of each channel, and what they are.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ChannelFormat(pub(crate) [c_int; 5]);

impl ChannelFormat {
    fn texel(self) -> Result<Texel> {
        let Self([x, y, z, w, kind]) = self;
        let kind = match kind {
            0 => TexelKind::Signed,
            1 => TexelKind::Unsigned,
            2 => TexelKind::Float,
            _ => return Err(NOT_SUPPORTED),
        };
        let channels = [x, y, z, w].iter().take_while(|bits| **bits != 0).count() as u32;
        let same = [x, y, z, w][..channels as usize].iter().all(|bits| *bits == x);
        let texel = Texel::new(kind, u32::try_from(x).unwrap_or(0), channels).filter(|_| same);
        texel.ok_or(INVALID_VALUE)
    }

    fn of(texel: Texel) -> Self {
        let kind = match texel.kind {
            TexelKind::Signed => 0,
            TexelKind::Unsigned => 1,
            TexelKind::Float => 2,
        };
        let bits = |channel: u32| if channel < texel.channels { texel.bits as c_int } else { 0 };
        Self([bits(0), bits(1), bits(2), bits(3), kind])
    }
}

/// The texel of a `CUarray_format` and a number of channels.
fn texel_of_format(format: c_uint, channels: c_uint) -> Result<Texel> {
    let (kind, bits) = match format {
        0x01 => (TexelKind::Unsigned, 8),
        0x02 => (TexelKind::Unsigned, 16),
        0x03 => (TexelKind::Unsigned, 32),
        0x08 => (TexelKind::Signed, 8),
        0x09 => (TexelKind::Signed, 16),
        0x0a => (TexelKind::Signed, 32),
        0x10 => (TexelKind::Float, 16),
        0x20 => (TexelKind::Float, 32),
        _ => return Err(NOT_SUPPORTED),
    };
    Texel::new(kind, bits, channels).ok_or(INVALID_VALUE)
}

fn format_of_texel(texel: Texel) -> c_uint {
    match (texel.kind, texel.bits) {
        (TexelKind::Float, 16) => 0x10,
        (TexelKind::Float, _) => 0x20,
        (kind, bits) => {
            let width = bits.trailing_zeros() - 2;
            if kind == TexelKind::Signed { width + 7 } else { width }
        }
    }
}

/// `cudaExtent`, and `cudaPos`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Extent([usize; 3]);

/// `cudaPitchedPtr`.
#[derive(Clone, Copy)]
#[repr(C)]
struct PitchedPointer {
    address: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Array3dDescriptor {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

/// An array, or a mipmap of so many levels, that is nowhere yet; and its bytes.
fn planned(texel: Texel, extent: [usize; 3], flags: c_uint, levels: u32) -> Result<(Array, u64)> {
    let [width, height, depth] = extent;
    let planes = match flags & (LAYERED | CUBE) {
        CUBE if depth != 6 => return Err(INVALID_VALUE),
        _ => depth.max(1),
    };
    let row = width.checked_mul(texel.bytes() as usize).ok_or(INVALID_VALUE)?;
    let plane = row.checked_mul(height.max(1)).ok_or(INVALID_VALUE)?;
    // No sum of levels overflows.
    plane.checked_mul(planes).filter(|bytes| (1..1 << 60).contains(bytes)).ok_or(INVALID_VALUE)?;
    let axis = |texels: usize| u32::try_from(texels.max(1)).map_err(|_| INVALID_VALUE);
    let size = [axis(width)?, axis(height)?, axis(planes)?];
    let rows = Rows { row_bytes: row as u64, plane_bytes: plane as u64 };
    let axes = match (height, depth) {
        (0, _) => 1,
        (_, 0) => 2,
        _ if flags & (LAYERED | CUBE) != 0 => 2,
        _ => 3,
    };
    let image = Image { address: 0, axes, size, layout: Layout::Rows(rows), texel, levels };
    let array = Array { image, rows, extent, flags, in_mipmap: false };
    Ok((array, image.level(levels).address))
}

/// Makes an array.
fn create(out: Out<Handle>, texel: Texel, extent: [usize; 3], flags: c_uint) -> Result {
    let (mut array, bytes) = planned(texel, extent, flags, 1)?;
    let mut state = state();
    array.image.address = state.alloc(bytes)?;
    out.put(state.array_create(array))
}

/// Makes a mipmap: levels beyond one texel are none.
fn create_mipmap(
    out: Out<Handle>,
    texel: Texel,
    extent: [usize; 3],
    flags: c_uint,
    levels: c_uint,
) -> Result {
    let (array, _) = planned(texel, extent, flags, 1)?;
    let Image { axes, size, .. } = array.image;
    let most = size[..axes].iter().fold(1, |most, texels| most.max(*texels)).ilog2() + 1;
    let (mut whole, bytes) = planned(texel, extent, flags, levels.clamp(1, most))?;
    let mut state = state();
    whole.image.address = state.alloc(bytes)?;
    let levels = (0..whole.image.levels).map(|level| level_of(&whole, level)).collect();
    out.put(state.mipmap_create(whole, levels))
}

/// A level of a mipmap, as an array.
fn level_of(whole: &Array, level: u32) -> Array {
    let image = Image { levels: 1, ..whole.image.level(level) };
    let rows = match image.layout {
        Layout::Rows(rows) => rows,
        _ => whole.rows,
    };
    // An axis that is not there stays so.
    let extent = std::array::from_fn(|axis| match whole.extent[axis] {
        0 => 0,
        _ => image.size[axis] as usize,
    });
    Array { image, rows, extent, in_mipmap: true, ..*whole }
}

fn destroy_mipmap(mipmap: Handle) -> Result {
    let mut state = state();
    let address = state.mipmap_destroy(mipmap)?;
    state.free(address)
}

fn destroy(array: Handle) -> Result {
    let mut state = state();
    if state.array(array)?.in_mipmap {
        return Err(INVALID_VALUE);
    }
    let array = state.array_destroy(array)?;
    state.free(array.image.address)
}

/// A block of bytes: where it starts, and how far it is to the next row and plane.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) row: usize,
    pub(crate) plane: usize,
    pub(crate) on_device: bool,
}

impl Block {
    /// Part of an array, from a byte, row and plane on, of this size.
    fn of_array(array: Handle, at: [usize; 3], size: [usize; 3]) -> Result<Self> {
        let Array { image, rows, .. } = state().array(array)?;
        let [row, plane] = [rows.row_bytes as usize, rows.plane_bytes as usize];
        let most = [row, image.size[1] as usize, image.size[2] as usize];
        let fits =
            |axis: usize| at[axis].checked_add(size[axis]).is_some_and(|end| end <= most[axis]);
        if !(0..3).all(fits) {
            return Err(INVALID_VALUE);
        }
        let offset = at[2] * plane + at[1] * row + at[0];
        Ok(Self { start: image.address + offset as u64, row, plane, on_device: true })
    }

    fn of_pointer(pointer: (u64, bool), row: usize, height: usize, at: [usize; 3]) -> Result<Self> {
        let plane = row.checked_mul(height).ok_or(INVALID_VALUE)?;
        let start = row_start(row_start(pointer.0, at[2], plane)?, at[1], row)?;
        let start = start.checked_add(at[0] as u64).ok_or(INVALID_VALUE)?;
        Ok(Self { start, row, plane, on_device: pointer.1 })
    }

    fn row_start(self, plane: usize, row: usize) -> Result<u64> {
        row_start(row_start(self.start, plane, self.plane)?, row, self.row)
    }
}

/// Copies so many bytes of so many rows of so many planes.
///
/// # Safety
///
/// As CUDA documents the functions that copy rows: each row keeps the contract of [`transfer`].
pub(crate) unsafe fn copy_block(
    to: Block,
    from: Block,
    [width, height, depth]: [usize; 3],
) -> Result {
    for plane in 0..depth {
        for row in 0..height {
            let (to_row, from_row) = (to.row_start(plane, row)?, from.row_start(plane, row)?);
            // SAFETY: by this function's contract each row is valid as `transfer` wants it; this is one of them.
            unsafe { transfer(to_row, to.on_device, from_row, from.on_device, width)? };
        }
    }
    Ok(())
}

/// Copies bytes between an array, whose rows are taken as one, and memory.
///
/// # Safety
///
/// As CUDA documents `cudaMemcpyToArray`: `size` bytes at `memory` keep the contract of [`copy_kind`].
unsafe fn copy_line(
    array: (Handle, usize, usize),
    memory: u64,
    size: usize,
    kind: c_int,
    into_array: bool,
) -> Result {
    let (array, x, y) = array;
    let Array { image, rows, .. } = state().array(array)?;
    let all = (rows.plane_bytes * u64::from(image.size[2])) as usize;
    let offset = y.checked_mul(rows.row_bytes as usize).and_then(|row| row.checked_add(x));
    let offset = offset.filter(|at| at.checked_add(size).is_some_and(|end| end <= all));
    let address = image.address + offset.ok_or(INVALID_VALUE)? as u64;
    let (to, from) = if into_array { (address, memory) } else { (memory, address) };
    // SAFETY: the array's bytes are of the device; of the others the caller promises it.
    unsafe { copy_kind(to, from, size, kind) }
}

/// Copies rows between an array and memory.
///
/// # Safety
///
/// As CUDA documents `cudaMemcpy2DToArray`: each row in memory keeps the contract of [`transfer`].
unsafe fn copy_rows_of_array(
    array: (Handle, usize, usize),
    memory: (u64, usize),
    width: usize,
    height: usize,
    kind: c_int,
    into_array: bool,
) -> Result {
    let size = [width, height, 1];
    let array = Block::of_array(array.0, [array.1, array.2, 0], size)?;
    if width > memory.1 {
        return Err(INVALID_VALUE);
    }
    // Device to device is 3, and the direction that puts memory there.
    let on_device = kind == 3;
    let memory = Block::of_pointer((memory.0, on_device), memory.1, height, [0; 3])?;
    let (to, from) = if into_array { (array, memory) } else { (memory, array) };
    // SAFETY: the array's part is inside it; of the memory the caller promises it.
    unsafe { copy_block(to, from, size) }
}

/// `cudaMemcpy3DParms`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3dRuntime {
    from_array: Handle,
    from_at: Extent,
    from: PitchedPointer,
    to_array: Handle,
    to_at: Extent,
    to: PitchedPointer,
    extent: Extent,
    kind: c_int,
}

impl Copy3dRuntime {
    /// Where it copies to and from, and how many bytes, rows and planes.
    pub(crate) fn blocks(self) -> Result<(Block, Block, [usize; 3])> {
        let texel = |array: Handle| -> Result<Option<usize>> {
            match array.is_null() {
                true => Ok(None),
                false => Ok(Some(state().array(array)?.image.texel.bytes() as usize)),
            }
        };
        // Where there is an array, the extent counts texels; positions in memory count bytes.
        let (from_texel, to_texel) = (texel(self.from_array)?, texel(self.to_array)?);
        let unit = from_texel.or(to_texel).unwrap_or(1);
        let [width, height, depth] = self.extent.0;
        let size = [width.checked_mul(unit).ok_or(INVALID_VALUE)?, height.max(1), depth.max(1)];
        let side = |array: Handle,
                    texel: Option<usize>,
                    Extent([x, y, z]): Extent,
                    pointer: PitchedPointer,
                    device| {
            match texel {
                Some(bytes) => {
                    Block::of_array(array, [x.checked_mul(bytes).ok_or(INVALID_VALUE)?, y, z], size)
                }
                None => Block::of_pointer(
                    (pointer.address, device),
                    pointer.pitch,
                    pointer.height,
                    [x, y, z],
                ),
            }
        };
        let (to_device, from_device) = (matches!(self.kind, 1 | 3), matches!(self.kind, 2 | 3));
        let to = side(self.to_array, to_texel, self.to_at, self.to, to_device)?;
        let from = side(self.from_array, from_texel, self.from_at, self.from, from_device)?;
        Ok((to, from, size))
    }
}

/// # Safety
///
/// As CUDA documents `cudaMemcpy3D`: what is not an array is memory that keeps the contract of [`transfer`].
unsafe fn copy_3d_runtime(copy: In<Copy3dRuntime>) -> Result {
    let (to, from, size) = copy.get()?.blocks()?;
    // SAFETY: parts of arrays are inside them; of memory the caller promises it.
    unsafe { copy_block(to, from, size) }
}

/// One side of `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Side3d {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: c_uint,
    host: u64,
    device: u64,
    array: Handle,
    _reserved: u64,
    pitch: usize,
    height: usize,
}

impl Side3d {
    fn block(self, size: [usize; 3]) -> Result<Block> {
        let at = [self.x, self.y, self.z];
        let pointer = match self.kind {
            1 => (self.host, false),
            2 => (self.device, true),
            3 => return Block::of_array(self.array, at, size),
            4 => (self.device, false),
            _ => return Err(INVALID_VALUE),
        };
        Block::of_pointer(pointer, self.pitch, self.height, at)
    }
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3dDriver {
    from: Side3d,
    to: Side3d,
    size: [usize; 3],
}

impl Copy3dDriver {
    /// Where it copies to and from, and how many bytes, rows and planes.
    pub(crate) fn blocks(self) -> Result<(Block, Block, [usize; 3])> {
        let Self { from, to, size } = self;
        Ok((to.block(size)?, from.block(size)?, size))
    }
}

/// # Safety
///
/// As CUDA documents `cuMemcpy3D`: what is not an array is memory that keeps the contract of [`transfer`].
unsafe fn copy_3d_driver(copy: In<Copy3dDriver>) -> Result {
    let (to, from, size) = copy.get()?.blocks()?;
    // SAFETY: parts of arrays are inside them; of memory the caller promises it.
    unsafe { copy_block(to, from, size) }
}

/// A side of `CUDA_MEMCPY2D` that is an array: the address of its first byte, and its pitch.
pub(crate) fn plane_of_array(array: u64, at: [usize; 2], size: [usize; 2]) -> Result<(u64, usize)> {
    let handle = std::ptr::without_provenance_mut(array as usize);
    let block = Block::of_array(handle, [at[0], at[1], 0], [size[0], size[1], 1])?;
    Ok((block.start, block.row))
}

/// `cudaResourceDesc` and `CUDA_RESOURCE_DESC`: a kind, and what that kind needs, as words.
#[derive(Clone, Copy)]
#[repr(C)]
struct Resource {
    kind: c_int,
    _pad: c_int,
    words: [u64; 7],
}

/// What the runtime's and the driver's descriptions of memory have at other places.
struct Linear {
    address: u64,
    texel: Texel,
    /// Bytes of a line; of a plane its width, height and pitch.
    rest: [u64; 3],
}

/// What a texture or surface shows.
struct Shown {
    image: Image,
    bytes: u64,
    /// Whether it is a line of memory, outside of which reads give zero.
    is_line: bool,
}

impl Resource {
    const ARRAY: c_int = 0;
    const MIPMAP: c_int = 1;
    const LINEAR: c_int = 2;
    const PLANE: c_int = 3;

    fn handle(&self) -> Handle {
        std::ptr::without_provenance_mut(self.words[0] as usize)
    }

    fn shown(&self, linear: impl FnOnce(&[u64; 7]) -> Result<Linear>) -> Result<Shown> {
        let axis = |texels: u64| u32::try_from(texels).map_err(|_| INVALID_VALUE);
        match self.kind {
            Self::ARRAY => {
                let image = state().array(self.handle())?.image;
                Ok(Shown { image, bytes: bytes_of(&image), is_line: false })
            }
            Self::MIPMAP => {
                let image = state().mipmap(self.handle())?.image;
                Ok(Shown { image, bytes: bytes_of(&image), is_line: false })
            }
            Self::LINEAR => {
                let Linear { address, texel, rest: [bytes, ..] } = linear(&self.words)?;
                let size = [axis(bytes / texel.bytes())?, 1, 1];
                let rows = Rows { row_bytes: bytes, plane_bytes: bytes };
                let layout = Layout::Rows(rows);
                let image = Image { address, axes: 1, size, layout, texel, levels: 1 };
                Ok(Shown { image, bytes, is_line: true })
            }
            Self::PLANE => {
                let Linear { address, texel, rest: [width, height, pitch] } = linear(&self.words)?;
                let size = [axis(width)?, axis(height)?, 1];
                let plane_bytes = pitch.checked_mul(height).ok_or(INVALID_VALUE)?;
                let rows = Rows { row_bytes: pitch, plane_bytes };
                let layout = Layout::Rows(rows);
                let image = Image { address, axes: 2, size, layout, texel, levels: 1 };
                Ok(Shown { image, bytes: plane_bytes, is_line: false })
            }
            _ => Err(NOT_SUPPORTED),
        }
    }

    fn of_runtime(&self) -> Result<Shown> {
        self.shown(|words| {
            let half = |at: usize| (words[at / 2] >> (at % 2 * 32)) as c_int;
            let format = ChannelFormat(std::array::from_fn(|at| half(2 + at)));
            Ok(Linear {
                address: words[0],
                texel: format.texel()?,
                rest: [words[4], words[5], words[6]],
            })
        })
    }

    fn of_driver(&self) -> Result<Shown> {
        self.shown(|words| {
            let texel = texel_of_format(words[1] as c_uint, (words[1] >> 32) as c_uint)?;
            Ok(Linear { address: words[0], texel, rest: [words[2], words[3], words[4]] })
        })
    }
}

/// Bytes of an image with all its levels.
fn bytes_of(image: &Image) -> u64 {
    image.level(image.levels).address - image.address
}

fn addressing(modes: [c_int; 3]) -> Result<[Addressing; 3]> {
    let mut out = [Addressing::Clamp; 3];
    for (out, mode) in out.iter_mut().zip(modes) {
        *out = match mode {
            0 => Addressing::Wrap,
            1 => Addressing::Clamp,
            2 => Addressing::Mirror,
            3 => Addressing::Border,
            _ => return Err(INVALID_VALUE),
        };
    }
    Ok(out)
}

/// What both descriptions of a texture say of mipmaps.
#[derive(Clone, Copy)]
#[repr(C)]
struct Levels {
    _anisotropy: c_uint,
    filter: c_int,
    bias: f32,
    clamp: [f32; 2],
}

impl Levels {
    fn sampler(self) -> MipmapSampler {
        MipmapSampler { linear: self.filter == 1, bias: self.bias, clamp: self.clamp }
    }
}

/// `cudaTextureDesc`, up to what is about mipmaps.
#[derive(Clone, Copy)]
#[repr(C)]
struct TextureRuntime {
    addressing: [c_int; 3],
    filter: c_int,
    read_mode: c_int,
    srgb: c_int,
    border: [f32; 4],
    normalized: c_int,
    levels: Levels,
}

impl TextureRuntime {
    fn sampler(&self) -> Result<Sampler> {
        if self.srgb != 0 {
            return Err(NOT_SUPPORTED);
        }
        Ok(Sampler {
            addressing: addressing(self.addressing)?,
            linear: self.filter == 1,
            to_numbers: self.read_mode == 1,
            normalized: self.normalized != 0,
            border: self.border.map(f32::to_bits),
            mipmap: self.levels.sampler(),
            comparison: None,
        })
    }
}

/// `CUDA_TEXTURE_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
struct TextureDriver {
    addressing: [c_int; 3],
    filter: c_int,
    flags: c_uint,
    levels: Levels,
    border: [f32; 4],
}

impl TextureDriver {
    fn sampler(&self) -> Result<Sampler> {
        const AS_INTEGERS: c_uint = 1;
        const NORMALIZED: c_uint = 2;
        const SRGB: c_uint = 0x10;
        if self.flags & SRGB != 0 {
            return Err(NOT_SUPPORTED);
        }
        Ok(Sampler {
            addressing: addressing(self.addressing)?,
            linear: self.filter == 1,
            to_numbers: self.flags & AS_INTEGERS == 0,
            normalized: self.flags & NORMALIZED != 0,
            border: self.border.map(f32::to_bits),
            mipmap: self.levels.sampler(),
            comparison: None,
        })
    }
}

fn bind_texture(shown: Shown, mut sampler: Sampler) -> Result<u64> {
    let texel = shown.image.texel;
    let integers = texel.kind != TexelKind::Float && !(sampler.to_numbers && texel.bits < 32);
    if sampler.linear && integers {
        return Err(INVALID_VALUE);
    }
    if shown.is_line {
        sampler = Sampler { addressing: [Addressing::Border; 3], border: [0; 4], ..sampler };
    }
    bind(shown, sampler)
}

fn bind_surface(shown: Shown) -> Result<u64> {
    let sampler = Sampler {
        addressing: [Addressing::Clamp; 3],
        linear: false,
        to_numbers: false,
        normalized: false,
        border: [0; 4],
        mipmap: MipmapSampler::default(),
        comparison: None,
    };
    if shown.is_line { Err(INVALID_VALUE) } else { bind(shown, sampler) }
}

fn bind(Shown { image, bytes, .. }: Shown, sampler: Sampler) -> Result<u64> {
    let mut state = state();
    state.inside(image.address, bytes)?;
    Ok(state.device.bind(Texture { image, sampler }))
}

fn unbind(handle: u64) -> Result {
    if state().device.unbind(handle) { Ok(()) } else { Err(INVALID_VALUE) }
}

calls! {
    cuArrayCreate_v2(out: Out<Handle>, descriptor: In<ArrayDescriptor>) {
        let d = descriptor.get()?;
        create(out, texel_of_format(d.format, d.channels)?, [d.width, d.height, 0], 0)
    }
    cuArray3DCreate_v2(out: Out<Handle>, descriptor: In<Array3dDescriptor>) {
        let d = descriptor.get()?;
        create(out, texel_of_format(d.format, d.channels)?, [d.width, d.height, d.depth], d.flags)
    }
    cuArrayDestroy(array: Handle) { destroy(array) }
    cuMipmappedArrayCreate(out: Out<Handle>, descriptor: In<Array3dDescriptor>, levels: c_uint) {
        let d = descriptor.get()?;
        let texel = texel_of_format(d.format, d.channels)?;
        create_mipmap(out, texel, [d.width, d.height, d.depth], d.flags, levels)
    }
    cuMipmappedArrayGetLevel(out: Out<Handle>, mipmap: Handle, level: c_uint) {
        out.put(state().mipmap_level(mipmap, level)?)
    }
    cuMipmappedArrayDestroy(mipmap: Handle) { destroy_mipmap(mipmap) }
    cuArrayGetDescriptor_v2(out: Out<ArrayDescriptor>, array: Handle) {
        let Array { image, extent: [width, height, _], .. } = state().array(array)?;
        let (format, channels) = (format_of_texel(image.texel), image.texel.channels);
        out.put(ArrayDescriptor { width, height, format, channels })
    }
    cuArray3DGetDescriptor_v2(out: Out<Array3dDescriptor>, array: Handle) {
        let Array { image, extent: [width, height, depth], flags, .. } = state().array(array)?;
        let (format, channels) = (format_of_texel(image.texel), image.texel.channels);
        out.put(Array3dDescriptor { width, height, depth, format, channels, flags })
    }
    cuTexObjectCreate(out: Out<u64>, resource: In<Resource>, texture: In<TextureDriver>, view: Handle) {
        if !view.is_null() { return Err(NOT_SUPPORTED) }
        out.put(bind_texture(resource.get()?.of_driver()?, texture.get()?.sampler()?)?)
    }
    cuTexObjectDestroy(handle: u64) { unbind(handle) }
    cuSurfObjectCreate(out: Out<u64>, resource: In<Resource>) {
        out.put(bind_surface(resource.get()?.of_driver()?)?)
    }
    cuSurfObjectDestroy(handle: u64) { unbind(handle) }
}

unchecked! {
    cuMemcpy3D_v2(copy: In<Copy3dDriver>) { copy_3d_driver(copy) }
    cuMemcpy3DAsync_v2(copy: In<Copy3dDriver>, stream: Handle) {
        state().stream(stream)?;
        on_stream(stream, || copy_3d_driver(copy))
    }
    cuMemcpyHtoA_v2(array: Handle, offset: usize, from: u64, size: usize) {
        copy_line((array, offset, 0), from, size, 1, true)
    }
    cuMemcpyAtoH_v2(to: u64, array: Handle, offset: usize, size: usize) {
        copy_line((array, offset, 0), to, size, 2, false)
    }
    cuMemcpyDtoA_v2(array: Handle, offset: usize, from: u64, size: usize) {
        copy_line((array, offset, 0), from, size, 3, true)
    }
    cuMemcpyAtoD_v2(to: u64, array: Handle, offset: usize, size: usize) {
        copy_line((array, offset, 0), to, size, 3, false)
    }
}

remembered! {
    cudaMallocArray(
        out: Out<Handle>, format: In<ChannelFormat>, width: usize, height: usize, flags: c_uint
    ) {
        create(out, format.get()?.texel()?, [width, height, 0], flags)
    }
    cudaMalloc3DArray(out: Out<Handle>, format: In<ChannelFormat>, extent: Extent, flags: c_uint) {
        create(out, format.get()?.texel()?, extent.0, flags)
    }
    cudaMallocMipmappedArray(
        out: Out<Handle>, format: In<ChannelFormat>, extent: Extent, levels: c_uint, flags: c_uint
    ) {
        create_mipmap(out, format.get()?.texel()?, extent.0, flags, levels)
    }
    cudaGetMipmappedArrayLevel(out: Out<Handle>, mipmap: Handle, level: c_uint) {
        out.put(state().mipmap_level(mipmap, level)?)
    }
    cudaFreeMipmappedArray(mipmap: Handle) {
        if mipmap.is_null() { Ok(()) } else { destroy_mipmap(mipmap) }
    }
    cudaFreeArray(array: Handle) { if array.is_null() { Ok(()) } else { destroy(array) } }
    cudaGetChannelDesc(out: Out<ChannelFormat>, array: Handle) {
        out.put(ChannelFormat::of(state().array(array)?.image.texel))
    }
    cudaArrayGetInfo(
        format: Out<ChannelFormat>, extent: Out<Extent>, flags: Out<c_uint>, array: Handle
    ) {
        let array = state().array(array)?;
        format.put_if_wanted(ChannelFormat::of(array.image.texel));
        extent.put_if_wanted(Extent(array.extent));
        flags.put_if_wanted(array.flags);
        Ok(())
    }
    cudaMalloc3D(out: Out<PitchedPointer>, extent: Extent) {
        let Extent([width, height, depth]) = extent;
        let pitch = width.next_multiple_of(512);
        let bytes = pitch.checked_mul(height).and_then(|plane| plane.checked_mul(depth));
        let address = state().alloc(bytes.ok_or(INVALID_VALUE)? as u64)?;
        out.put(PitchedPointer { address, pitch, width, height })
    }
    cudaMemset3D(to: PitchedPointer, value: c_int, extent: Extent) {
        let Extent([width, height, depth]) = extent;
        let all = Block::of_pointer((to.address, true), to.pitch, to.height, [0; 3])?;
        (0..depth).try_for_each(|plane| {
            (0..height).try_for_each(|row| {
                crate::driver::set(all.row_start(plane, row)?, &[value as u8], width)
            })
        })
    }
    cudaCreateTextureObject(
        out: Out<u64>, resource: In<Resource>, texture: In<TextureRuntime>, view: Handle
    ) {
        if !view.is_null() { return Err(NOT_SUPPORTED) }
        out.put(bind_texture(resource.get()?.of_runtime()?, texture.get()?.sampler()?)?)
    }
    cudaDestroyTextureObject(handle: u64) { unbind(handle) }
    cudaCreateSurfaceObject(out: Out<u64>, resource: In<Resource>) {
        out.put(bind_surface(resource.get()?.of_runtime()?)?)
    }
    cudaDestroySurfaceObject(handle: u64) { unbind(handle) }
}

remembered_unchecked! {
    cudaMemcpy3D(copy: In<Copy3dRuntime>) { copy_3d_runtime(copy) }
    cudaMemcpy3DAsync(copy: In<Copy3dRuntime>, stream: Handle) {
        state().stream(stream)?;
        on_stream(stream, || copy_3d_runtime(copy))
    }
    cudaMemcpyToArray(array: Handle, x: usize, y: usize, from: u64, size: usize, kind: c_int) {
        copy_line((array, x, y), from, size, kind, true)
    }
    cudaMemcpyFromArray(to: u64, array: Handle, x: usize, y: usize, size: usize, kind: c_int) {
        copy_line((array, x, y), to, size, kind, false)
    }
    cudaMemcpy2DToArray(
        array: Handle, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: c_int
    ) {
        copy_rows_of_array((array, x, y), (from, pitch), width, height, kind, true)
    }
    cudaMemcpy2DToArrayAsync(
        array: Handle, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, kind: c_int,
        stream: Handle
    ) {
        state().stream(stream)?;
        on_stream(stream, || copy_rows_of_array((array, x, y), (from, pitch), width, height, kind, true))
    }
    cudaMemcpy2DFromArray(
        to: u64, pitch: usize, array: Handle, x: usize, y: usize, width: usize, height: usize, kind: c_int
    ) {
        copy_rows_of_array((array, x, y), (to, pitch), width, height, kind, false)
    }
    cudaMemcpy2DFromArrayAsync(
        to: u64, pitch: usize, array: Handle, x: usize, y: usize, width: usize, height: usize, kind: c_int,
        stream: Handle
    ) {
        state().stream(stream)?;
        on_stream(stream, || copy_rows_of_array((array, x, y), (to, pitch), width, height, kind, false))
    }
    cudaMemcpy2DArrayToArray(
        to: Handle, to_x: usize, to_y: usize, from: Handle, x: usize, y: usize, width: usize, height: usize,
        kind: c_int
    ) {
        let _ = kind;
        let size = [width, height, 1];
        let (to, from) = (Block::of_array(to, [to_x, to_y, 0], size)?, Block::of_array(from, [x, y, 0], size)?);
        copy_block(to, from, size)
    }
}
