//! Products of matrices, of which each lane has parts.

use super::super::{Mistake, mistake};
use super::warp::{Warp, ZEROS};
use crate::lanes::{
    self,
    matrix::{Fragment, Layout, Role},
};
use crate::report::FindingKind;
use crate::sass::{MatrixKind, MatrixMultiply, Row};

impl Warp<'_> {
    pub(super) fn multiply(&mut self, op: &MatrixMultiply, mask: u32) -> Result<(), Box<Mistake>> {
        if mask != u32::MAX {
            let lane = mask.trailing_ones() as usize;
            let message = format!("lanes {mask:#010x} alone came to a product of matrices");
            return mistake(FindingKind::BarrierDivergence, lane & 31, message);
        }
        let rows = |first: u8| -> [Row; 8] {
            std::array::from_fn(|at| match first {
                crate::sass::ZERO => ZEROS,
                _ => *self.row(first.saturating_add(at as u8)),
            })
        };
        let (a, b, c) = (rows(op.a), rows(op.b), rows(op.c));
        let out = match op.kind {
            MatrixKind::Halves { k, value, wide } => halves(&a, &b, &c, k, value, wide),
            MatrixKind::Tf32 { k } => tf32(&a, &b, &c, k),
            MatrixKind::Bytes { rows, k, signed, saturate } => {
                bytes(&a, &b, &c, rows, k, signed, saturate)
            }
            MatrixKind::Any { rows, k, elements: [a, b], sum, combine, saturate } => {
                let fragment = |element, rows, columns, role| {
                    let layout = Layout::Prescribed(role);
                    Fragment { element, rows, columns, layout }
                };
                let a = fragment(a, rows, k, Role::A(rows));
                let b = fragment(b, k, 8, Role::B);
                let sum = fragment(sum, rows, 8, Role::C);
                let [left, right, start] = [(&a, op.a), (&b, op.b), (&sum, op.c)]
                    .map(|(of, first)| self.elements(of, first));
                let parts = [&left[..], &right, &start];
                let out = lanes::matrix::multiply([&a, &b, &sum, &sum], parts, combine, saturate);
                self.put_elements(&sum, op.d, &out);
                return Ok(());
            }
        };
        for (at, row) in out.iter().enumerate() {
            self.write(op.d.saturating_add(at as u8), row, mask);
        }
        Ok(())
    }

    /// The elements of a matrix that begins in this register, row by row.
    fn elements(&self, of: &Fragment, first: u8) -> Vec<u64> {
        let wide = of.element.bits() == 64;
        let rows: Vec<[u64; 32]> = (0..registers(of))
            .map(|at| match first {
                crate::sass::ZERO => [0; 32],
                _ => self.long(first.saturating_add((at << u8::from(wide)) as u8), wide),
            })
            .collect();
        of.gather(rows.len(), |register, lane| rows[register][lane])
    }

    fn put_elements(&mut self, of: &Fragment, first: u8, elements: &[u64]) {
        let (wide, count) = (of.element.bits() == 64, registers(of));
        for at in 0..count {
            let words: [u64; 32] = std::array::from_fn(|lane| of.word(elements, count, at, lane));
            self.write_long(
                first.saturating_add((at << u8::from(wide)) as u8),
                &words,
                wide,
                u32::MAX,
            );
        }
    }
}

/// How many registers of a lane a matrix takes, of 32 bits or one element.
fn registers(of: &Fragment) -> usize {
    of.rows * of.columns / 32 / of.element.per_register()
}

/// Row and column of the numbers of 32 bits that a lane has of the result.
fn in_c(lane: usize, n: usize) -> (usize, usize) {
    (lane / 4 + n / 2 * 8, lane % 4 * 2 + n % 2)
}

fn single(value: f64) -> u32 {
    let value = value as f32;
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

/// Products are summed as doubles and rounded once.
fn halves(
    a: &[Row],
    b: &[Row],
    c: &[Row],
    k: usize,
    value: fn(u16) -> f64,
    wide: bool,
) -> Vec<Row> {
    let number = |row: &Row, lane: usize, n: usize| value((row[lane] >> (n % 2 * 16)) as u16);
    let (mut left, mut right) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    for lane in 0..32 {
        for n in 0..k / 2 {
            let (row, column) = (lane / 4 + n / 2 % 2 * 8, lane % 4 * 2 + n % 2 + n / 4 * 8);
            left[row][column] = number(&a[n / 2], lane, n);
        }
        for n in 0..k / 4 {
            let (row, column) = (lane % 4 * 2 + n % 2 + n / 2 * 8, lane / 4);
            right[row][column] = number(&b[n / 2], lane, n);
        }
    }
    let sum = |row: usize, column: usize, start: f64| {
        (0..k).fold(start, |sum, at| sum + left[row][at] * right[at][column])
    };
    let mut out = vec![ZEROS; if wide { 4 } else { 2 }];
    for lane in 0..32 {
        for n in 0..4 {
            let (row, column) = in_c(lane, n);
            if wide {
                let start = f32::from_bits(c[n][lane]);
                out[n][lane] = single(sum(row, column, start.into()));
            } else {
                let start = number(&c[n / 2], lane, n);
                let bits = crate::lanes::short::to_half(sum(row, column, start));
                out[n / 2][lane] |= u32::from(bits) << (n % 2 * 16);
            }
        }
    }
    out
}

/// Floats whose lowest 13 bits do not count.
fn tf32(a: &[Row], b: &[Row], c: &[Row], k: usize) -> Vec<Row> {
    let number = |bits: u32| f64::from(f32::from_bits(bits & !0x1fff));
    let mut out = vec![ZEROS; 4];
    for lane in 0..32 {
        for n in 0..4 {
            let (row, column) = in_c(lane, n);
            let start = f64::from(f32::from_bits(c[n][lane]));
            let sum = (0..k).fold(start, |sum, at| {
                let left = a[row / 8 + at / 4 * 2][row % 8 * 4 + at % 4];
                let right = b[at / 4][column * 4 + at % 4];
                sum + number(left) * number(right)
            });
            out[n][lane] = single(sum);
        }
    }
    out
}

fn bytes(
    a: &[Row],
    b: &[Row],
    c: &[Row],
    rows: usize,
    k: usize,
    signed: [bool; 2],
    saturate: bool,
) -> Vec<Row> {
    let byte = |word: u32, at: usize, signed: bool| {
        let byte = (word >> (at % 4 * 8)) as u8;
        if signed { i64::from(byte as i8) } else { i64::from(byte) }
    };
    let mut out = vec![ZEROS; rows / 4];
    // Of two rows of lanes, the upper eight come first, then the next sixteen columns.
    let steps = rows / 8;
    for lane in 0..32 {
        for n in 0..rows / 4 {
            let (row, column) = in_c(lane, n);
            let start = i64::from(c[n][lane] as i32);
            let sum = (0..k).fold(start, |sum, at| {
                let left = a[row / 8 + at / 16 * steps][row % 8 * 4 + at % 16 / 4];
                let right = b[at / 16][column * 4 + at % 16 / 4];
                sum + byte(left, at, signed[0]) * byte(right, at, signed[1])
            });
            out[n][lane] = match saturate {
                true => sum.clamp(i32::MIN.into(), i32::MAX.into()) as u32,
                false => sum as u32,
            };
        }
    }
    out
}
