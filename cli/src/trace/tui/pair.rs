//! Two traces as the screen needs them: the events of one warp, a window at a time.

use std::ops::Range;

use nvabi_trace::Event;
use nvabi_trace::report::{Finding, Source};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    A,
    B,
}

/// A warp that both traces have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WarpId {
    /// The launch, an index into those that both have.
    pub(crate) launch: u32,
    pub(crate) warp: u32,
}

/// A warp of both traces.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Compared {
    pub(crate) events_a: u64,
    pub(crate) events_b: u64,
    /// Where they part, in order; as many as there is room for.
    pub(crate) findings: Vec<Finding>,
    /// All there are.
    pub(crate) total: u64,
}

/// What the screen asks of two traces. Errors are sentences.
pub(crate) trait Pair {
    /// How many warps both have.
    fn warps(&self) -> usize;
    /// The warp of a number below that.
    fn warp(&self, number: usize) -> WarpId;
    /// The number of a warp.
    fn number(&self, warp: WarpId) -> Option<usize>;
    /// The kernel of a launch.
    fn kernel(&self, launch: u32) -> &str;
    /// Compares a warp.
    fn compare(&mut self, warp: WarpId) -> Result<Compared, String>;
    /// Events of a warp; fewer where it ends.
    fn events(&mut self, side: Side, warp: WarpId, range: Range<u64>)
    -> Result<Vec<Event>, String>;
    /// The line of a site of the warp that was compared last.
    fn source(&self, site: u64) -> Option<Source>;
}
