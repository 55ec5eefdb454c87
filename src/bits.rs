//! Bits within bytes: bit-fields of records and the driver's `high:low` ranges.

/// A range of bits of a 32-bit value, as the driver's headers write `high:low`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BitRange {
    /// The highest bit, included.
    pub high: u32,
    /// The lowest bit.
    pub low: u32,
}

impl BitRange {
    /// Bits `low` to `high`, both included. In class methods they may count on past 31, over the
    /// words of a larger structure.
    pub const fn new(high: u32, low: u32) -> Self {
        Self { high, low }
    }

    /// How many bits there are.
    pub const fn width(self) -> u32 {
        self.high.saturating_sub(self.low) + 1
    }

    /// The bits of a value; `None` when the range does not lie in 32 bits.
    pub const fn get(self, value: u32) -> Option<u32> {
        match self.mask() {
            Some(mask) => Some((value & mask) >> self.low),
            None => None,
        }
    }

    /// `value` with the bits replaced; `None` when they, or `bits`, do not fit.
    pub const fn set(self, value: u32, bits: u32) -> Option<u32> {
        match self.mask() {
            Some(mask) if bits <= mask >> self.low => Some((value & !mask) | (bits << self.low)),
            _ => None,
        }
    }

    /// Ones where the range is; `None` when it does not lie in 32 bits.
    pub const fn mask(self) -> Option<u32> {
        if self.high > 31 || self.low > self.high {
            return None;
        }
        Some((u32::MAX >> (31 - (self.high - self.low))) << self.low)
    }
}

/// `width` bits (64 at most) from bit `at` of little-endian `bytes` on; bits beyond are zero.
pub fn get(bytes: &[u8], at: usize, width: usize) -> u64 {
    (0..width.min(64)).fold(0, |value, i| {
        let bit = at + i;
        let byte = bytes.get(bit / 8).copied().unwrap_or(0);
        value | u64::from(byte >> (bit % 8) & 1) << i
    })
}

/// As [`get`], the highest bit being the sign.
pub fn get_signed(bytes: &[u8], at: usize, width: usize) -> i64 {
    let value = get(bytes, at, width);
    let unused = 64 - width.clamp(1, 64);
    (value << unused) as i64 >> unused
}

/// Writes the low `width` bits of `value` (64 at most) from bit `at` of `bytes` on.
pub fn set(bytes: &mut [u8], at: usize, width: usize, value: u64) {
    for i in 0..width.min(64) {
        let bit = at + i;
        if let Some(byte) = bytes.get_mut(bit / 8) {
            let mask = 1 << (bit % 8);
            *byte = if value >> i & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_inclusive() {
        let range = BitRange::new(7, 4);
        assert_eq!((range.width(), range.mask()), (4, Some(0xf0)));
        assert_eq!(range.get(0xabcd), Some(0xc));
        assert_eq!(range.set(0xabcd, 0x1), Some(0xab1d));
        assert_eq!(range.set(0, 0x10), None);
        assert_eq!(BitRange::new(31, 0).mask(), Some(u32::MAX));
        assert_eq!(BitRange::new(40, 33).get(1), None);
    }

    #[test]
    fn bit_fields_cross_bytes() {
        let mut bytes = [0; 3];
        set(&mut bytes, 5, 7, 0x55);
        assert_eq!(get(&bytes, 5, 7), 0x55);
        assert_eq!(bytes, [0xa0, 0x0a, 0]);
        set(&mut bytes, 5, 7, 0xfff);
        assert_eq!((get(&bytes, 5, 7), get_signed(&bytes, 5, 7)), (0x7f, -1));
    }
}
