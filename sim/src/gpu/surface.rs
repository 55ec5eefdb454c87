//! What a copy reads or writes: lines with a pitch, or blocks (`clc7b5.h`).

use nvabi_emu::Blocks;

use super::engine::{Bus, Outcome};

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
    /// Blocks, and where in them the copy begins: byte, line and layer.
    Blocks(Blocks, [u64; 3]),
}

impl Surface {
    /// The address of a byte of a line, and how many of that line follow it there.
    fn place(&self, line: u64, x: u64) -> (u64, u64) {
        match &self.layout {
            Layout::Pitch(pitch) => {
                (self.address.wrapping_add(line.wrapping_mul(*pitch)).wrapping_add(x), u64::MAX)
            }
            Layout::Blocks(blocks, [first, top, layer]) => {
                let (at, run) = blocks.place([first + x, top + line, *layer]);
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

    #[test]
    fn a_copy_begins_where_it_is_told_to() {
        let blocks = Blocks { height_log: 1, depth_log: 1, width: 128, height: 16 };
        let surface = |at| Surface { address: 0x1000, layout: Layout::Blocks(blocks, at) };
        let (at, run) = blocks.place([64 + 3, 8 + 2, 1]);
        assert_eq!(surface([64, 8, 1]).place(2, 3), (0x1000 + at, run));
        let rows = Surface { address: 0x1000, layout: Layout::Pitch(256) };
        assert_eq!(rows.place(2, 3), (0x1203, u64::MAX));
    }
}
