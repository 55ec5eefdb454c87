//! Textures and surfaces, as machine code names them.

use super::super::Mistake;
use super::super::block::State;
use super::super::texture::{Operands, Recent};
use super::super::warp::lanes_of;
use super::warp::{Warp, ZEROS};
use crate::lanes::half_of;
use crate::sass::{Row, TextureOp};
use crate::texture::{Level, LevelSource};

impl Warp<'_> {
    pub(super) fn texture(
        &mut self,
        state: &mut State<'_>,
        op: &TextureOp,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let handles = self.word(&op.handle);
        let mut read = [ZEROS; 4];
        let mut recent = Recent::default();
        for lane in lanes_of(mask) {
            let operands = self.texture_operands(op, handles[lane].into(), lane);
            let texel = recent.access(&*self, state, lane, &op.access, &operands)?;
            for (row, value) in read.iter_mut().zip(texel) {
                row[lane] = value as u32;
            }
        }
        self.write_texels(op, &read, mask);
        self.write_predicate(op.missing, 0, mask);
        Ok(())
    }

    fn write_texels(&mut self, op: &TextureOp, read: &[Row; 4], mask: u32) {
        let mut halves: Option<(u8, Row)> = None;
        for (row, to) in read.iter().zip(op.to) {
            let Some(to) = to else { continue };
            if !op.halves {
                self.write(to, row, mask);
                continue;
            }
            // The first of a register is its lower half, with nothing above it until there is a second.
            let row = row.map(|word| u32::from(half_of(f32::from_bits(word))));
            let whole = match halves {
                Some((other, low)) if other == to => {
                    std::array::from_fn(|lane| low[lane] | row[lane] << 16)
                }
                _ => row,
            };
            self.write(to, &whole, mask);
            halves = Some((to, whole));
        }
    }

    fn texture_operands(&self, op: &TextureOp, handle: u64, lane: usize) -> Operands {
        let mut operands = Operands { handle, ..Operands::default() };
        for (at, register) in operands.at.iter_mut().zip(&op.at) {
            *at = self.row(*register)[lane];
        }
        if op.access.shape.layered && !op.access.kind.is_surface() {
            // Offsets may be above it.
            operands.at[0] &= 0xffff;
        }
        if let Some(offset) = op.offset {
            let all = self.row(offset.register)[lane];
            operands.offset =
                std::array::from_fn(|axis| all >> (offset.first + offset.step * axis as u32));
        }
        let word = |register: u8| self.row(register)[lane];
        operands.level = match op.level {
            LevelSource::Neighbours { bias } => self.level_of_neighbours(op, bias, lane),
            ref other => other.level(word),
        };
        operands.depth = op.depth.map(|register| f32::from_bits(word(register)));
        for (value, [low, high]) in operands.values.iter_mut().zip(&op.from) {
            *value = u64::from(self.row(*low)[lane]) | u64::from(self.row(*high)[lane]) << 32;
        }
        operands
    }

    /// Four lanes are a square: one coordinate changes from the first to the second and to the third.
    fn level_of_neighbours(&self, op: &TextureOp, bias: Option<u8>, lane: usize) -> Level {
        let first = lane & !3;
        let float = |register: u8, lane: usize| f64::from(f32::from_bits(self.row(register)[lane]));
        let mut change = [[0.0; 3]; 2];
        let coordinates = &op.at[usize::from(op.access.shape.layered)..];
        for (axis, register) in coordinates.iter().enumerate().take(3) {
            let from = float(*register, first);
            change[0][axis] = float(*register, first + 1) - from;
            change[1][axis] = float(*register, first + 2) - from;
        }
        let bias = bias.map_or(0.0, |register| f32::from_bits(self.row(register)[lane]));
        Level::Gradients { change, bias }
    }
}
