//! What a copy reads or writes: lines with a pitch, or blocks (`clc7b5.h`; the order of bytes in a block is that of
//! Fermi and all since, as the `FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D` of `drm_fourcc.h` tells it).

use super::engine::{Bus, Outcome};

/// A gob is so many bytes wide and so many lines high.
const GOB_WIDTH: u64 = 64;
const GOB_HEIGHT: u64 = 8;
const GOB: u64 = GOB_WIDTH * GOB_HEIGHT;
/// So many bytes of a line follow each other in a gob.
const RUN: u64 = 16;

/// One side of a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surface {
    pub(super) address: u64,
    pub(super) layout: Layout,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    /// Bytes from one line to the next.
    Pitch(u64),
    Blocks(Blocks),
}

/// A surface of blocks, which are as wide as a gob, and where a copy begins in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    /// Gobs that a block is high, and that it is deep, as powers of two.
    pub(super) height_log: u32,
    pub(super) depth_log: u32,
    /// Bytes of a line.
    pub(super) width: u64,
    /// Lines of a layer.
    pub(super) height: u64,
    pub(super) layer: u64,
    /// Bytes, and lines.
    pub(super) x: u64,
    pub(super) y: u64,
}

impl Blocks {
    /// Where a byte of a line is, and how many of that line follow it there.
    fn place(&self, line: u64, x: u64) -> (u64, u64) {
        let (x, y, z) = (self.x + x, self.y + line, self.layer);
        let lines = GOB_HEIGHT << self.height_log;
        let slice = GOB << self.height_log;
        let across = self.width.div_ceil(GOB_WIDTH);
        let down = self.height.div_ceil(lines);
        // A program may ask for any size: addresses that no space has are a fault when they are used.
        let row = (z >> self.depth_log).wrapping_mul(down).wrapping_add(y / lines);
        let block = row.wrapping_mul(across).wrapping_add(x / GOB_WIDTH);
        let block = block.wrapping_mul(slice << self.depth_log);
        let deep = z & ((1 << self.depth_log) - 1);
        let gob = deep * slice + y % lines / GOB_HEIGHT * GOB;
        (block.wrapping_add(gob).wrapping_add(in_gob(x % GOB_WIDTH, y % GOB_HEIGHT)), RUN - x % RUN)
    }
}

/// Where a byte is in its gob.
fn in_gob(x: u64, y: u64) -> u64 {
    x / 32 * 256 + y / 2 * 64 + x % 32 / 16 * 32 + y % 2 * 16 + x % 16
}

impl Surface {
    /// The address of a byte of a line, and how many of that line follow it there.
    fn place(&self, line: u64, x: u64) -> (u64, u64) {
        match &self.layout {
            Layout::Pitch(pitch) => {
                (self.address.wrapping_add(line.wrapping_mul(*pitch)).wrapping_add(x), u64::MAX)
            }
            Layout::Blocks(blocks) => {
                let (at, run) = blocks.place(line, x);
                (self.address.wrapping_add(at), run)
            }
        }
    }

    pub(super) fn read(&self, bus: &Bus<'_>, line: u64, x: u64, into: &mut [u8]) -> Outcome<()> {
        let mut done = 0;
        while done < into.len() {
            let (at, run) = self.place(line, x + done as u64);
            let end =
                into.len().min(done.saturating_add(usize::try_from(run).unwrap_or(usize::MAX)));
            bus.read(at, &mut into[done..end])?;
            done = end;
        }
        Ok(())
    }

    pub(super) fn write(&self, bus: &mut Bus<'_>, line: u64, x: u64, from: &[u8]) -> Outcome<()> {
        let mut done = 0;
        while done < from.len() {
            let (at, run) = self.place(line, x + done as u64);
            let end =
                from.len().min(done.saturating_add(usize::try_from(run).unwrap_or(usize::MAX)));
            bus.write(at, &from[done..end])?;
            done = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FLAT: Blocks =
        Blocks { height_log: 0, depth_log: 0, width: 128, height: 16, layer: 0, x: 0, y: 0 };

    #[test]
    fn bytes_have_the_places_of_a_gob() {
        for ((x, line), place) in [
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
            assert_eq!(FLAT.place(line, x).0, place, "{x} {line}");
        }
        let two_high = Blocks { height_log: 1, ..FLAT };
        assert_eq!(two_high.place(8, 0).0, 512);
        assert_eq!(two_high.place(0, 64).0, 1024);
        let moved = Blocks { x: 64, y: 8, ..FLAT };
        assert_eq!(moved.place(0, 0), FLAT.place(8, 64));
    }

    #[test]
    fn no_size_is_too_large() {
        const MOST: u64 = u32::MAX as u64;
        for (height_log, depth_log) in [(0, 0), (5, 5)] {
            let (width, height, layer, x, y) = (MOST * 16, MOST, MOST, MOST * 16, MOST);
            let blocks = Blocks { height_log, depth_log, width, height, layer, x, y };
            let (_, run) = blocks.place(MOST, MOST * 16);
            assert!((1..=RUN).contains(&run));
        }
    }

    #[test]
    fn each_byte_has_a_place_of_its_own() {
        for (height_log, depth_log, width, height, layers) in
            [(0, 0, 64, 8, 1), (1, 0, 100, 33, 2), (2, 1, 192, 64, 3), (4, 2, 65, 130, 5)]
        {
            let mut places = BTreeSet::new();
            for layer in 0..layers {
                let blocks = Blocks { height_log, depth_log, width, height, layer, x: 0, y: 0 };
                for line in 0..height {
                    for x in 0..width {
                        let (at, run) = blocks.place(line, x);
                        assert!(places.insert(at), "{x} {line} {layer}");
                        assert!((1..=RUN).contains(&run));
                    }
                }
            }
            let lines = GOB_HEIGHT << height_log;
            let slices = layers.div_ceil(1 << depth_log) << depth_log;
            let size = width.div_ceil(64) * 64 * height.div_ceil(lines) * lines * slices;
            assert!(places.last().is_some_and(|last| *last < size));
        }
    }
}
