//! Control information: how long an instruction waits, and what for.

use crate::isa::bits;

/// Bits 105 to 121 of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Cycles until the next instruction of this warp.
    pub stall: u8,
    /// May the scheduler turn to another warp?
    pub yields: bool,
    /// The scoreboard that is released when the results are written.
    pub write_barrier: Option<u8>,
    /// The scoreboard that is released when the operands have been read.
    pub read_barrier: Option<u8>,
    /// Scoreboards that it waits for, one bit for each.
    pub wait_mask: u8,
}

impl Control {
    /// Of an instruction's bits.
    pub fn of(word: u128) -> Control {
        let barrier = |start| Some(bits(word, start, 3) as u8).filter(|&barrier| barrier != 7);
        Control {
            stall: bits(word, 105, 4) as u8,
            yields: bits(word, 109, 1) == 0,
            write_barrier: barrier(110),
            read_barrier: barrier(113),
            wait_mask: bits(word, 116, 6) as u8,
        }
    }
}
