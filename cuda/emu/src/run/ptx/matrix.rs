//! Matrices in the registers of a warp: products, and moves between them and memory.

use super::super::block::State;
use super::super::{Mistake, mistake};
use super::warp::Warp;
use crate::lanes::Lanes;
use crate::lanes::matrix::{multiply, turned};
use crate::program::{Address, MatrixMove, MatrixMultiply, MatrixRegisters, Op, RowMove};
use crate::report::FindingKind;

impl Warp<'_> {
    /// Any of these needs all lanes of the warp.
    pub(super) fn matrix(
        &mut self,
        state: &mut State<'_>,
        op: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        if mask != u32::MAX {
            let lane = mask.trailing_ones() as usize;
            let message = format!("lanes {mask:#010x} alone came to an instruction on matrices");
            return mistake(FindingKind::BarrierDivergence, lane, message);
        }
        match op {
            Op::MatrixMultiply(op) => self.multiply(op),
            Op::MatrixMove(op) => self.move_matrix(state, op)?,
            Op::RowMove(op) => self.move_rows(state, op)?,
            Op::Transpose { dst, src } => {
                let values = *self.register(*src);
                let out = turned(|lane| values[lane] as u32).map(u64::from);
                self.write(*dst, &out, u32::MAX);
            }
            _ => {}
        }
        Ok(())
    }

    fn elements(&self, matrix: &MatrixRegisters) -> Vec<u64> {
        let read = |register: usize, lane: usize| self.register(matrix.registers[register])[lane];
        matrix.fragment.gather(matrix.registers.len(), read)
    }

    fn put_elements(&mut self, matrix: &MatrixRegisters, elements: &[u64]) {
        let count = matrix.registers.len();
        for (number, register) in matrix.registers.iter().enumerate() {
            let lanes: Lanes =
                std::array::from_fn(|lane| matrix.fragment.word(elements, count, number, lane));
            self.write(*register, &lanes, u32::MAX);
        }
    }

    fn multiply(&mut self, op: &MatrixMultiply) {
        let [a, b, c] = [&op.a, &op.b, &op.c].map(|matrix| self.elements(matrix));
        let fragments = [&op.a, &op.b, &op.c, &op.d].map(|matrix| &matrix.fragment);
        let out = multiply(fragments, [&a, &b, &c], op.combine, op.saturate);
        self.put_elements(&op.d, &out);
    }

    /// The address of an element, and the bit where it begins, for those of less than a byte.
    fn element_address(
        &self,
        op: &MatrixMove,
        lane: usize,
        (row, column): (usize, usize),
    ) -> (u64, u32) {
        let base = self.address_in(&op.at, lane);
        let stride = self.register(op.stride)[lane] as u32;
        let (far, near) = if op.row_major { (row, column) } else { (column, row) };
        let bits = op.matrix.fragment.element.bits();
        let at = (u64::from(stride) * far as u64 + near as u64) * u64::from(bits);
        (base.wrapping_add(at / 8), (at % 8) as u32)
    }

    fn address_in(&self, at: &Address, lane: usize) -> u64 {
        super::memory::effective(at, self.register(at.base)[lane])
    }

    fn move_matrix(&mut self, state: &mut State<'_>, op: &MatrixMove) -> Result<(), Box<Mistake>> {
        let matrix = &op.matrix;
        let (fragment, count) = (matrix.fragment, matrix.registers.len());
        let (each, bits) = (fragment.element.per_register(), fragment.element.bits());
        let width = u64::from(bits.max(8) / 8);
        let keep = u64::MAX >> (64 - bits);
        let mut elements = if op.store {
            self.elements(matrix)
        } else {
            vec![0; fragment.rows * fragment.columns]
        };
        for lane in 0..32 {
            for number in 0..count * each {
                let (row, column) = fragment.place(lane, count * each, number);
                let (address, shift) = self.element_address(op, lane, (row, column));
                let element = &mut elements[row * fragment.columns + column];
                if op.store {
                    self.checked_store(state, lane, op.at.space, address, width, *element)?;
                } else {
                    let word = self.checked_load(state, lane, op.at.space, address, width)?;
                    *element = word >> shift & keep;
                }
            }
        }
        if !op.store {
            self.put_elements(matrix, &elements);
        }
        Ok(())
    }

    /// Matrices of 8 rows of 16 bytes, whose addresses eight lanes each have.
    fn move_rows(&mut self, state: &mut State<'_>, op: &RowMove) -> Result<(), Box<Mistake>> {
        for (matrix, register) in op.registers.iter().enumerate() {
            let mut words = *self.register(*register);
            for row in 0..8 {
                let source = matrix * 8 + row;
                let start = self.address_in(&op.at, source);
                if start % 16 != 0 {
                    let message =
                        format!("a row of a matrix at {start:#x} is not aligned to 16 bytes");
                    return mistake(FindingKind::Misaligned, source, message);
                }
                for column in 0..8 {
                    // The lane that has the element, and in which half of its register.
                    let (major, minor) = if op.transposed { (column, row) } else { (row, column) };
                    let (lane, shift) = (major * 4 + minor / 2, minor as u32 % 2 * 16);
                    let address = start + 2 * column as u64;
                    if op.store {
                        let value = words[lane] >> shift & 0xffff;
                        self.checked_store(state, source, op.at.space, address, 2, value)?;
                    } else {
                        let value = self.checked_load(state, source, op.at.space, address, 2)?;
                        words[lane] = words[lane] & !(0xffff << shift) | value << shift;
                    }
                }
            }
            if !op.store {
                self.write(*register, &words, u32::MAX);
            }
        }
        Ok(())
    }
}
