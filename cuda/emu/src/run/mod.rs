//! Runs a kernel: a grid of blocks over the cores, the warps of a block in turn.
//!
//! The core is the same for all code: `grid`, `block`, `shared`, `access`, `texture`. It sees code and warps as the
//! traits of `warp`; `ptx` and `sass` are the two kinds of both.

mod access;
mod block;
mod grid;
mod printf;
mod ptx;
mod sass;
mod shared;
mod source;
mod texture;
mod turn;
mod warp;

pub(crate) use grid::{Grid, Room, most_bytes, product, run};
pub(crate) use ptx::PtxCode;
pub(crate) use sass::SassCode;
pub(crate) use turn::Turn;
pub(crate) use warp::Code;

use crate::report::{Finding, FindingKind, MemoryAccess};

/// A mistake that ends the launch; boxed because it is rare.
type Fault = Box<Finding>;

/// A mistake, before it is known where the thread stands.
#[derive(Debug)]
pub(crate) struct Mistake {
    kind: FindingKind,
    lane: usize,
    message: String,
    /// Where global memory could not be accessed, the address and what was wanted of it.
    refused: Option<(u64, MemoryAccess)>,
}

impl Mistake {
    fn new(kind: FindingKind, lane: usize, message: impl Into<String>) -> Self {
        Self { kind, lane, message: message.into(), refused: None }
    }

    /// The same, of an access to global memory.
    fn at(self, address: u64, access: MemoryAccess) -> Self {
        Self { refused: Some((address, access)), ..self }
    }
}

fn mistake<T>(
    kind: FindingKind,
    lane: usize,
    message: impl Into<String>,
) -> Result<T, Box<Mistake>> {
    Err(Box::new(Mistake::new(kind, lane, message)))
}

/// Reads 1, 2, 4 or 8 bytes from the start of a slice.
fn read_word(bytes: &[u8], width: u64) -> u64 {
    fn part<const N: usize>(bytes: &[u8]) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&bytes[..N]);
        out
    }
    match width {
        1 => u8::from_le_bytes(part(bytes)).into(),
        2 => u16::from_le_bytes(part(bytes)).into(),
        4 => u32::from_le_bytes(part(bytes)).into(),
        _ => u64::from_le_bytes(part(bytes)),
    }
}

/// Writes the low 1, 2, 4 or 8 bytes of a value to the start of a slice.
fn write_word(bytes: &mut [u8], width: u64, value: u64) {
    let word = value.to_le_bytes();
    match width {
        1 => bytes[..1].copy_from_slice(&word[..1]),
        2 => bytes[..2].copy_from_slice(&word[..2]),
        4 => bytes[..4].copy_from_slice(&word[..4]),
        _ => bytes[..8].copy_from_slice(&word),
    }
}
