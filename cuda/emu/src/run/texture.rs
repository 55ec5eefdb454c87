//! Reads of textures, and reads, writes and reductions of surfaces: what one lane does, in PTX and machine code.

use super::access::{Target, update};
use super::block::State;
use super::warp::Warp;
use super::{Mistake, mistake};
use crate::report::{FindingKind, MemoryAccess};
use crate::texture::{Access, AccessKind, Image, Level, NoTexture, Outside, Place, Shape, Texture};

type Fallible<T> = Result<T, Box<Mistake>>;

/// What a lane gives for an access.
#[derive(Default)]
pub(super) struct Operands {
    pub(super) handle: u64,
    /// The layer, where there are any, then the coordinates.
    pub(super) at: [u32; 4],
    /// Texels beside them; of each the lowest bits count.
    pub(super) offset: [u32; 3],
    pub(super) level: Level,
    /// What texels are compared with.
    pub(super) depth: Option<f32>,
    /// What is written.
    pub(super) values: [u64; 4],
}

/// What was used last, by its handle: lanes often use the same.
#[derive(Default)]
pub(super) struct Recent {
    image: Option<(u64, Image)>,
    texture: Option<(u64, Texture)>,
}

impl Recent {
    /// What a lane reads.
    pub(super) fn access(
        &mut self,
        warp: &dyn Warp,
        state: &mut State<'_>,
        lane: usize,
        access: &Access,
        operands: &Operands,
    ) -> Fallible<[u64; 4]> {
        let Access { shape, kind } = *access;
        let (textures, handle) = (state.grid.textures, operands.handle);
        let mut image = || recent(&mut self.image, handle, lane, |handle| textures.image(handle));
        let mut texture =
            || recent(&mut self.texture, handle, lane, |handle| textures.texture(handle));
        let mut surface = |(width, parts), outside| {
            let size = width * parts as u64;
            surface_place(lane, &image()?, surface_at(shape, &operands.at), size, outside)
        };
        match kind {
            AccessKind::Query => {
                let image = image()?;
                let level = match operands.level {
                    Level::Exact(level) => level.max(0) as u32,
                    _ => 0,
                };
                let last = image.levels.saturating_sub(1);
                let [wide, high, deep] = image.level(level.min(last)).size.map(u64::from);
                Ok([wide, high, deep, image.levels.into()])
            }
            AccessKind::Sample { integers } => {
                let read = |address, width| read(state, lane, address, width);
                let place = place(access, operands, integers);
                Ok(texture()?.sample(shape, place, read)?.map(u64::from))
            }
            AccessKind::Gather { channel } => {
                let read = |address, width| read(state, lane, address, width);
                let place = place(access, operands, false);
                Ok(texture()?.gather(shape, channel, place, read)?.map(u64::from))
            }
            AccessKind::Load { width, parts, outside } => {
                let mut values = [0; 4];
                let Some(start) = surface((width, parts), outside)? else { return Ok(values) };
                for (part, value) in values.iter_mut().enumerate().take(parts) {
                    *value = read(state, lane, start.wrapping_add(part as u64 * width), width)?;
                }
                Ok(values)
            }
            AccessKind::Store { width, parts, outside } => {
                let start = surface((width, parts), outside)?;
                for (part, value) in operands.values.iter().enumerate().take(parts) {
                    let Some(address) = start.map(|start| start.wrapping_add(part as u64 * width))
                    else {
                        break;
                    };
                    let Some(place) = state.allocations.locate(address, width) else {
                        return nothing(state, lane, address, MemoryAccess::Write);
                    };
                    place.store(0, width, *value);
                    state.grid.memory.mark(address, width);
                }
                Ok([0; 4])
            }
            AccessKind::Reduce { width, step, outside } => {
                let Some(address) = surface((width, 1), outside)? else { return Ok([0; 4]) };
                let Some(place) = state.allocations.locate(address, width) else {
                    return nothing(state, lane, address, MemoryAccess::Atomic);
                };
                let change = |old| step(old, operands.values[0]);
                update(warp, state, lane, Target::Global(place), (address, width), true, change)?;
                Ok([0; 4])
            }
        }
    }
}

/// What a handle leads to, which is asked for where it is another one than before.
fn recent<T: Copy>(
    last: &mut Option<(u64, T)>,
    handle: u64,
    lane: usize,
    find: impl FnOnce(u64) -> Result<T, NoTexture>,
) -> Fallible<T> {
    if let Some((_, found)) = last.filter(|(known, _)| *known == handle) {
        return Ok(found);
    }
    match find(handle) {
        Ok(found) => {
            *last = Some((handle, found));
            Ok(found)
        }
        Err(NoTexture { kind, message }) => mistake(kind, lane, message),
    }
}

/// Where a texture is read.
fn place(access: &Access, operands: &Operands, integers: bool) -> Place {
    let shape = access.shape;
    let mut parts = operands.at[..shape.numbers().min(4)].iter().copied();
    let layer = if shape.layered { parts.next().unwrap_or(0) } else { 0 };
    let mut at = [0.0; 3];
    for (at, part) in at.iter_mut().zip(parts) {
        *at = if integers { (part as i32).into() } else { f32::from_bits(part).into() };
    }
    let unused = 32 - access.kind.offset_bits();
    let offset = operands.offset.map(|raw| i64::from((raw << unused) as i32 >> unused));
    Place { layer, at, offset, level: operands.level, depth: operands.depth }
}

/// The byte in a row, the row and the plane that are accessed.
fn surface_at(shape: Shape, at: &[u32; 4]) -> [i64; 3] {
    let mut parts = at[..shape.numbers().min(4)].iter().map(|part| i64::from(*part as i32));
    let layer = if shape.layered { parts.next() } else { None };
    let mut out = [0; 3];
    for (out, part) in out.iter_mut().zip(parts) {
        *out = part;
    }
    out[2] = layer.unwrap_or(out[2]);
    out
}

/// Where a surface is accessed; None where nothing is read or written.
fn surface_place(
    lane: usize,
    image: &Image,
    at: [i64; 3],
    size: u64,
    outside: Outside,
) -> Fallible<Option<u64>> {
    let texel = image.texel.bytes();
    if at[0].rem_euclid(size.max(1) as i64) != 0 {
        let message =
            format!("{size} bytes at byte {} of a row of a surface are not aligned", at[0]);
        return mistake(FindingKind::Misaligned, lane, message);
    }
    let row = u64::from(image.size[0]) * texel;
    let most = [
        // Less than 0 where a row is narrower than the access.
        row as i64 - size as i64,
        i64::from(image.size[1]) - 1,
        i64::from(image.size[2]) - 1,
    ];
    let inside = at.iter().zip(most).all(|(at, most)| (0..=most).contains(at));
    if !inside && outside == Outside::Zero {
        return Ok(None);
    }
    // Of a row that is too narrow no byte is the nearest.
    if !inside && (outside == Outside::Trap || most[0] < 0) {
        let [wide, high, deep] = image.size;
        let message = format!(
            "{size} bytes of a surface at byte {}, row {}, plane {}: it has {wide} × {high} × {deep} texels of {texel} \
             bytes",
            at[0], at[1], at[2]
        );
        return mistake(FindingKind::OutOfBounds, lane, message);
    }
    let at = std::array::from_fn(|axis| at[axis].clamp(0, most[axis].max(0)) as u64);
    Ok(Some(image.address_of(at)))
}

fn read(state: &mut State<'_>, lane: usize, address: u64, width: u64) -> Fallible<u64> {
    match state.allocations.locate(address, width) {
        Some(place) => Ok(place.load(0, width)),
        None => nothing(state, lane, address, MemoryAccess::Read),
    }
}

fn nothing<T>(state: &State<'_>, lane: usize, address: u64, access: MemoryAccess) -> Fallible<T> {
    let (kind, why) = match state.grid.memory.freed(address) {
        Some(_) => (FindingKind::UseAfterFree, "whose memory was freed"),
        None => (FindingKind::OutOfBounds, "where there is no memory"),
    };
    let message = format!("the texel at {address:#x} of a texture or surface, {why}");
    Err(Box::new(Mistake::new(kind, lane, message).at(address, access)))
}
