//! Computations: sources are fetched, the function runs, and results go where they belong.

use super::warp::{Scratch, Warp, ZEROS};
use crate::lanes::Lanes;
use crate::sass::{Bits, Compute, Function, Halves, In, Operand, Out, Row, Source, TRUE};

impl Warp<'_> {
    /// 32 bits of a source.
    fn fetch<'r>(&'r self, source: &'r Source, bits: Bits, scratch: &'r mut Row) -> &'r Row {
        match source {
            Source::Register(number) if bits == Bits::SAME => return self.row(*number),
            Source::Immediate(row) if bits == Bits::SAME => return row,
            Source::Register(number) => *scratch = *self.row(*number),
            Source::Immediate(row) => *scratch = **row,
            Source::Uniform(number) => *scratch = [self.now.get(*number); 32],
            Source::Constant { bank, offset } => {
                *scratch = [self.constant_word(*bank, *offset); 32]
            }
        }
        for value in scratch.iter_mut() {
            *value = *value & bits.and ^ bits.xor;
        }
        scratch
    }

    /// The lower 32 bits of a source.
    fn fetch_low<'r>(&'r self, operand: &'r Operand, scratch: &'r mut Row) -> &'r Row {
        if operand.halves == Halves::Both && operand.shift == 0 {
            return self.fetch(&operand.low, operand.low_bits, scratch);
        }
        // Signs are those of the halves that are read.
        let mut raw = ZEROS;
        let raw = self.fetch(&operand.low, Bits::SAME, &mut raw);
        for (value, raw) in scratch.iter_mut().zip(raw) {
            let raw = raw >> operand.shift;
            let both = match operand.halves {
                Halves::Both => raw,
                Halves::Low => raw & 0xffff | raw << 16,
                Halves::High => raw & 0xffff_0000 | raw >> 16,
                Halves::Swapped => raw.rotate_left(16),
            };
            *value = both & operand.low_bits.and ^ operand.low_bits.xor;
        }
        scratch
    }

    /// The values of a source that is no more than 32 bits.
    pub(super) fn value(&self, operand: &Operand) -> Row {
        let mut scratch = ZEROS;
        *self.fetch_low(operand, &mut scratch)
    }

    /// A source as it stands.
    pub(super) fn word(&self, source: &Source) -> Row {
        let mut scratch = ZEROS;
        *self.fetch(source, Bits::SAME, &mut scratch)
    }

    /// A word of a bank; 0 where the bank ends before it.
    pub(super) fn constant_word(&self, bank: usize, offset: usize) -> u32 {
        let bytes = self.code.banks.get(bank).and_then(|bank| bank.get(offset..));
        let word = bytes.and_then(|bytes| bytes.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    pub(super) fn compute(&mut self, compute: &Compute, mask: u32) {
        let Some(mut scratch) = self.scratch.take() else { return };
        let Scratch { sources: [a, b, c, high_a, high_b, high_c], out } = &mut *scratch;
        let [from_a, from_b, from_c] = &compute.sources;
        let low = [self.fetch_low(from_a, a), self.fetch_low(from_b, b), self.fetch_low(from_c, c)];
        let high = [(from_a, high_a), (from_b, high_b), (from_c, high_c)].map(|(from, row)| {
            match &from.high {
                Some(source) => self.fetch(source, from.high_bits, row),
                None => &ZEROS,
            }
        });
        let p = compute.predicates.map(|predicate| self.holds(predicate));
        match compute.f {
            Function::Native(f) => {
                let [a, b, c] = low;
                f(&compute.modes, &In { a, b, c, high, p }, out);
            }
            Function::Lanes(f, count) => {
                let mut sources: [Lanes; 4] = [[0; 32]; 4];
                for (at, lanes) in sources.iter_mut().enumerate().take(count.min(3)) {
                    for (lane, value) in lanes.iter_mut().enumerate() {
                        *value = u64::from(low[at][lane]) | u64::from(high[at][lane]) << 32;
                    }
                }
                let mut result = [0; 32];
                f(&mut result, &sources.each_ref());
                for (lane, value) in result.iter().enumerate() {
                    out.d[lane] = *value as u32;
                    out.high[lane] = (value >> 32) as u32;
                }
            }
        }
        self.write_results(compute, out, mask);
        self.scratch = Some(scratch);
    }

    fn write_results(&mut self, compute: &Compute, out: &Out, mask: u32) {
        self.write_target(compute.target, &out.d, mask);
        if compute.wide {
            self.write_target(Self::behind(compute.target), &out.high, mask);
        }
        for (number, value) in compute.outcomes.into_iter().zip(out.p) {
            if number == TRUE {
                continue;
            }
            match compute.uniform {
                true => self.now.set_predicate(number, value >> mask.trailing_zeros() & 1 != 0),
                false => self.write_predicate(number, value, mask),
            }
        }
    }
}
