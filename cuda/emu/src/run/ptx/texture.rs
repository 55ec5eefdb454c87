//! Textures and surfaces, as PTX names them.

use super::super::Mistake;
use super::super::block::State;
use super::super::texture::{Operands, Recent};
use super::super::warp::lanes_of;
use super::warp::Warp;
use crate::lanes::half_of;
use crate::program::{TexelForm, TextureOp};

impl Warp<'_> {
    pub(super) fn texture(
        &mut self,
        state: &mut State<'_>,
        op: &TextureOp,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let mut recent = Recent::default();
        for lane in lanes_of(mask) {
            let mut operands =
                Operands { handle: self.register(op.handle)[lane], ..Operands::default() };
            for (at, register) in operands.at.iter_mut().zip(&op.at) {
                *at = self.register(*register)[lane] as u32;
            }
            for (offset, register) in operands.offset.iter_mut().zip(&op.offset) {
                *offset = self.register(*register)[lane] as u32;
            }
            operands.level = op.level.level(|register| self.register(register)[lane] as u32);
            let float = |register| f32::from_bits(self.register(register)[lane] as u32);
            operands.depth = op.depth.map(float);
            let is_write = op.access.kind.is_write();
            for (value, register) in operands.values.iter_mut().zip(&op.registers) {
                *value = register.filter(|_| is_write).map_or(0, |from| self.register(from)[lane]);
            }
            let read = recent.access(&*self, state, lane, &op.access, &operands)?;
            if !is_write {
                self.put_texel(op, lane, &read);
            }
        }
        Ok(())
    }

    fn put_texel(&mut self, op: &TextureOp, lane: usize, values: &[u64]) {
        let base = self.frame().registers;
        let half = |word: u64| u64::from(half_of(f32::from_bits(word as u32)));
        for (at, register) in op.registers.iter().enumerate() {
            let word = |at: usize| values.get(at).copied();
            let value = match op.form {
                TexelForm::Words => word(at),
                TexelForm::Halves => word(at).map(half),
                TexelForm::Pairs => {
                    word(2 * at).map(|low| half(low) | word(2 * at + 1).map_or(0, half) << 16)
                }
            };
            if let (Some(register), Some(value)) = (register, value) {
                self.registers[base + *register as usize][lane] = value;
            }
        }
    }
}
