//! Textures and surfaces, as machine code names them.

use super::super::Mistake;
use super::super::block::State;
use super::super::texture::{Operands, Recent};
use super::super::warp::lanes_of;
use super::warp::{Warp, ZEROS};
use crate::sass::TextureOp;

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
        for (row, to) in read.iter().zip(op.to) {
            if let Some(to) = to {
                self.write(to, row, mask);
            }
        }
        self.write_predicate(op.missing, 0, mask);
        Ok(())
    }

    fn texture_operands(&self, op: &TextureOp, handle: u64, lane: usize) -> Operands {
        let mut operands = Operands { handle, ..Operands::default() };
        for (at, register) in operands.at.iter_mut().zip(&op.at) {
            *at = self.row(*register)[lane];
        }
        if let Some(offset) = op.offset {
            let all = self.row(offset.register)[lane];
            operands.offset = std::array::from_fn(|axis| all >> (offset.step * axis as u32));
        }
        for (value, [low, high]) in operands.values.iter_mut().zip(&op.from) {
            *value = u64::from(self.row(*low)[lane]) | u64::from(self.row(*high)[lane]) << 32;
        }
        operands
    }
}
