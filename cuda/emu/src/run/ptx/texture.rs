//! Reads of textures, and reads and writes of surfaces.

use super::super::block::State;
use super::super::warp::lanes_of;
use super::super::{Mistake, mistake};
use super::warp::Warp;
use crate::program::{Outside, TextureAccess, TextureOp};
use crate::report::FindingKind;
use crate::texture::{Image, Texture};

type Fallible<T> = Result<T, Box<Mistake>>;

impl Warp<'_> {
    pub(super) fn texture(
        &mut self,
        state: &mut State<'_>,
        op: &TextureOp,
        mask: u32,
    ) -> Fallible<()> {
        let handles = *self.register(op.handle);
        let mut texture: Option<(u64, Texture)> = None;
        for lane in lanes_of(mask) {
            let handle = handles[lane];
            let used = match texture {
                Some((known, texture)) if known == handle => texture,
                _ => find(state, handle, lane)?,
            };
            texture = Some((handle, used));
            match op.access {
                TextureAccess::Query { axis } => {
                    self.put_texel(op, lane, &[used.image.size[axis].into()])
                }
                TextureAccess::Sample { integers } => {
                    let (layer, at) = self.coordinates(op, lane, integers);
                    let read = |address, width| read(state, lane, address, width);
                    let texel = used.sample(op.shape, layer, at, read)?;
                    self.put_texel(op, lane, &texel.map(u64::from));
                }
                TextureAccess::Gather { channel } => {
                    let (layer, at) = self.coordinates(op, lane, false);
                    let read = |address, width| read(state, lane, address, width);
                    let texels = used.gather(op.shape, (layer, channel), at, read)?;
                    self.put_texel(op, lane, &texels.map(u64::from));
                }
                TextureAccess::Load { width, outside } => {
                    let Some(start) =
                        self.surface_place(op, lane, &used.image, (width, outside))?
                    else {
                        self.put_texel(op, lane, &[0; 4]);
                        continue;
                    };
                    let mut values = [0; 4];
                    for (part, value) in values.iter_mut().enumerate().take(op.registers.len()) {
                        *value = read(state, lane, start + part as u64 * width, width)?;
                    }
                    self.put_texel(op, lane, &values);
                }
                TextureAccess::Store { width, outside } => {
                    let Some(start) =
                        self.surface_place(op, lane, &used.image, (width, outside))?
                    else {
                        continue;
                    };
                    for (part, register) in op.registers.iter().enumerate() {
                        let value = register.map_or(0, |register| self.register(register)[lane]);
                        let address = start + part as u64 * width;
                        match state.allocations.locate(address, width) {
                            Some(place) => {
                                place.store(0, width, value);
                                state.grid.memory.mark(address, width);
                            }
                            None => return gone(lane, address),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The layer and the coordinates of a lane.
    fn coordinates(&self, op: &TextureOp, lane: usize, integers: bool) -> (u32, [f64; 3]) {
        let mut parts = op.at.iter().map(|reg| self.register(*reg)[lane] as u32);
        let layer = if op.shape.layered { parts.next().unwrap_or(0) } else { 0 };
        let mut at = [0.0; 3];
        for (at, part) in at.iter_mut().zip(parts) {
            *at = if integers { (part as i32).into() } else { f32::from_bits(part).into() };
        }
        (layer, at)
    }

    /// Where a surface is accessed; None where nothing is read or written.
    fn surface_place(
        &self,
        op: &TextureOp,
        lane: usize,
        image: &Image,
        (width, outside): (u64, Outside),
    ) -> Fallible<Option<u64>> {
        let mut parts = op.at.iter().map(|reg| i64::from(self.register(*reg)[lane] as i32));
        let layer = if op.shape.layered { parts.next().unwrap_or(0) } else { 0 };
        let mut at = [0, 0, 0];
        for (at, part) in at.iter_mut().zip(parts) {
            *at = part;
        }
        if op.shape.layered {
            at[2] = layer;
        }
        let size = width * op.registers.len() as u64;
        let texel = image.texel.bytes();
        if at[0].rem_euclid(size.max(1) as i64) != 0 {
            let message =
                format!("{size} bytes at byte {} of a row of a surface are not aligned", at[0]);
            return mistake(FindingKind::Misaligned, lane, message);
        }
        let row = u64::from(image.size[0]) * texel;
        let most = [
            row.saturating_sub(size) as i64,
            i64::from(image.size[1]) - 1,
            i64::from(image.size[2]) - 1,
        ];
        let inside = at.iter().zip(most).all(|(at, most)| (0..=most).contains(at));
        match outside {
            Outside::Trap if !inside => {
                let [wide, high, deep] = image.size;
                let message = format!(
                    "{size} bytes of a surface at byte {}, row {}, plane {}: it has {wide} × {high} × {deep} texels \
                     of {texel} bytes",
                    at[0], at[1], at[2]
                );
                return mistake(FindingKind::OutOfBounds, lane, message);
            }
            Outside::Zero if !inside => return Ok(None),
            _ => {}
        }
        let [x, y, z] = std::array::from_fn(|axis| at[axis].clamp(0, most[axis].max(0)) as u64);
        Ok(Some(image.address + z * image.plane_bytes + y * image.row_bytes + x))
    }

    fn put_texel(&mut self, op: &TextureOp, lane: usize, values: &[u64]) {
        let base = self.frame().registers;
        for (register, value) in op.registers.iter().zip(values) {
            if let Some(register) = register {
                self.registers[base + *register as usize][lane] = *value;
            }
        }
    }
}

fn find(state: &State<'_>, handle: u64, lane: usize) -> Fallible<Texture> {
    match state.grid.textures.get(&handle) {
        Some(texture) => Ok(*texture),
        None => mistake(
            FindingKind::OutOfBounds,
            lane,
            format!("there is no texture or surface {handle:#x}, or no longer"),
        ),
    }
}

fn read(state: &mut State<'_>, lane: usize, address: u64, width: u64) -> Fallible<u64> {
    match state.allocations.locate(address, width) {
        Some(place) => Ok(place.load(0, width)),
        None => gone(lane, address),
    }
}

fn gone<T>(lane: usize, address: u64) -> Fallible<T> {
    let message =
        format!("the texel at {address:#x} of a texture or surface whose memory was freed");
    mistake(FindingKind::UseAfterFree, lane, message)
}
