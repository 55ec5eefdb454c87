//! The order of what warps of a block do: each has a time of its own and knows a time of each other (vector clocks).

/// When a lane of a warp did something, by its warp's own time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) warp: u8,
    pub(crate) lane: u8,
    pub(crate) clock: u32,
}

impl Moment {
    /// Whether nothing orders an earlier moment and this one, at which the warp knows this time of the earlier one's.
    /// With `lanes` those of one warp count as well, where nothing that the warp does together was between the two.
    #[inline]
    pub(crate) fn is_beside(self, earlier: Self, known: u32, lanes: bool) -> bool {
        if earlier.warp == self.warp {
            return lanes && earlier.lane != self.lane && earlier.clock == known;
        }
        earlier.clock > known
    }
}
