//! Block-linear memory: the bytes of an image lie in gobs, and gobs in blocks. Their order is that of Fermi and all
//! since, as `FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D` of `drm_fourcc.h` tells it.

/// A gob is so many bytes wide and so many rows high.
const GOB_WIDTH: u64 = 64;
const GOB_HEIGHT: u64 = 8;
const GOB: u64 = GOB_WIDTH * GOB_HEIGHT;
/// So many bytes of a row follow each other in a gob.
const RUN: u64 = 16;

/// An image of blocks, which are as wide as a gob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Gobs that a block is high, and that it is deep, as powers of two.
    pub height_log: u32,
    /// See `height_log`.
    pub depth_log: u32,
    /// Bytes of a row.
    pub width: u64,
    /// Rows of a plane.
    pub height: u64,
}

impl Blocks {
    /// How far a byte of a row of a plane is from the first, and how many bytes of that row follow it there.
    #[must_use]
    pub fn place(&self, [x, y, z]: [u64; 3]) -> (u64, u64) {
        let rows = GOB_HEIGHT << self.height_log;
        let slice = GOB << self.height_log;
        let across = self.width.div_ceil(GOB_WIDTH);
        let down = self.height.div_ceil(rows);
        // A program may ask for any size: addresses that no space has are a fault when they are used.
        let row = (z >> self.depth_log).wrapping_mul(down).wrapping_add(y / rows);
        let block = row.wrapping_mul(across).wrapping_add(x / GOB_WIDTH);
        let block = block.wrapping_mul(slice << self.depth_log);
        let deep = z & ((1 << self.depth_log) - 1);
        let gob = deep * slice + y % rows / GOB_HEIGHT * GOB;
        (block.wrapping_add(gob).wrapping_add(in_gob(x % GOB_WIDTH, y % GOB_HEIGHT)), RUN - x % RUN)
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        GOB << (self.height_log + self.depth_log)
    }

    /// Bytes of so many planes, each block whole.
    #[must_use]
    pub fn bytes(&self, planes: u64) -> u64 {
        let across = self.width.div_ceil(GOB_WIDTH);
        let down = self.height.div_ceil(GOB_HEIGHT << self.height_log) << self.height_log;
        let deep = planes.div_ceil(1 << self.depth_log) << self.depth_log;
        across.wrapping_mul(down).wrapping_mul(deep).wrapping_mul(GOB)
    }

    /// How a level of a mipmap lies that has so many bytes in a row, rows and planes: its blocks are no larger than it
    /// needs.
    #[must_use]
    pub(crate) fn shrunk(&self, [width, height, planes]: [u64; 3]) -> Self {
        let log = |count: u64| count.max(1).next_power_of_two().trailing_zeros();
        let height_log = self.height_log.min(log(height.div_ceil(GOB_HEIGHT)));
        Self { height_log, depth_log: self.depth_log.min(log(planes)), width, height }
    }
}

/// Where a byte is in its gob.
fn in_gob(x: u64, y: u64) -> u64 {
    x / 32 * 256 + y / 2 * 64 + x % 32 / 16 * 32 + y % 2 * 16 + x % 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FLAT: Blocks = Blocks { height_log: 0, depth_log: 0, width: 128, height: 16 };

    #[test]
    fn bytes_have_the_places_of_a_gob() {
        for ((x, y), place) in [
            ((0, 0), 0),
            ((15, 0), 15),
            ((16, 0), 32),
            ((0, 1), 16),
            ((0, 2), 64),
            ((32, 0), 256),
            ((63, 7), 511),
            // The gob beside it, and those below.
            ((64, 0), 512),
            ((0, 8), 1024),
        ] {
            assert_eq!(FLAT.place([x, y, 0]).0, place, "{x} {y}");
        }
        let two_high = Blocks { height_log: 1, ..FLAT };
        assert_eq!(two_high.place([0, 8, 0]).0, 512);
        assert_eq!(two_high.place([64, 0, 0]).0, 1024);
    }

    #[test]
    fn no_size_is_too_large() {
        const MOST: u64 = u32::MAX as u64;
        for (height_log, depth_log) in [(0, 0), (5, 5)] {
            let blocks = Blocks { height_log, depth_log, width: MOST * 16, height: MOST };
            let (_, run) = blocks.place([MOST * 32, MOST * 2, MOST]);
            assert!((1..=RUN).contains(&run));
        }
    }

    #[test]
    fn each_byte_has_a_place_of_its_own() {
        for (height_log, depth_log, width, height, planes) in
            [(0, 0, 64, 8, 1), (1, 0, 100, 33, 2), (2, 1, 192, 64, 3), (4, 2, 65, 130, 5)]
        {
            let blocks = Blocks { height_log, depth_log, width, height };
            let mut places = BTreeSet::new();
            for (z, y, x) in (0..planes)
                .flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (z, y, x))))
            {
                let (at, run) = blocks.place([x, y, z]);
                assert!(places.insert(at), "{x} {y} {z}");
                assert!((1..=RUN).contains(&run));
            }
            let rows = GOB_HEIGHT << height_log;
            let slices = planes.div_ceil(1 << depth_log) << depth_log;
            let size = width.div_ceil(64) * 64 * height.div_ceil(rows) * rows * slices;
            assert!(places.last().is_some_and(|last| *last < size));
        }
    }
}
