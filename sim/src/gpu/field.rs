//! Fields of what a GPU reads from memory, as NVIDIA's headers write them: `MW(high:low)`, bits from the first byte on.

/// Where a field is: its lowest bit, its bits, and by how many bits it was shifted to the right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    at: u32,
    bits: u32,
    shift: u32,
}

/// A field, as headers write it.
pub(super) const fn mw(high: u32, low: u32) -> Field {
    Field { at: low, bits: high - low + 1, shift: 0 }
}

impl Field {
    pub(super) const fn shifted(self, shift: u32) -> Self {
        Self { shift, ..self }
    }

    /// That of the element with a number, where they lie so many bits apart.
    pub(super) const fn of(self, number: u32, apart: u32) -> Self {
        Self { at: self.at + number * apart, ..self }
    }

    /// Its value; bits behind the last byte are zeros.
    pub(super) fn read(self, bytes: &[u8]) -> u64 {
        let mut all = 0_u128;
        for (place, byte) in bytes.iter().skip(self.at as usize / 8).take(16).enumerate() {
            all |= u128::from(*byte) << (8 * place);
        }
        let value = all >> (self.at % 8) & ((1 << self.bits) - 1);
        (value << self.shift) as u64
    }
}

/// The value of a number whose parts are in several fields.
pub(super) fn whole(parts: &[Field], bytes: &[u8]) -> u64 {
    parts.iter().fold(0, |all, part| all | part.read(bytes))
}

/// Bytes that have these fields: highest bit, lowest bit, value.
#[cfg(test)]
pub(super) fn with<const SIZE: usize>(fields: &[(u32, u32, u64)]) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    for (high, low, value) in fields {
        for bit in 0..=high - low {
            let at = (low + bit) as usize;
            bytes[at / 8] |= ((value >> bit & 1) as u8) << (at % 8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_across_bytes() {
        let bytes = [0x00, 0x21, 0x43, 0x65, 0x87];
        assert_eq!(mw(15, 8).read(&bytes), 0x21);
        assert_eq!(mw(27, 12).read(&bytes), 0x5432);
        assert_eq!(mw(27, 12).of(1, 4).read(&bytes), 0x6543);
        assert_eq!(mw(11, 8).shifted(4).read(&bytes), 0x10);
        assert_eq!(whole(&[mw(15, 12), mw(39, 36).shifted(4)], &bytes), 0x82);
        assert_eq!(mw(47, 36).read(&bytes), 8);
    }
}
