//! What the core asks of a warp, whatever kind of code it runs.

use super::Mistake;
use super::block::State;
use super::grid::Grid;
use super::shared::Site;
use crate::lanes::Lanes;
use crate::program::{BarrierKind, Reg, SharedVariable};
use crate::report::{Event, EventKind, SourceLocation};

/// The code of a kernel, as the core sees it: PTX or machine code.
pub(crate) trait Code: Sync {
    /// The kernel's name.
    fn name(&self) -> &str;

    /// Bytes of shared memory of a block with this much dynamic memory, and of a cell of its shadow.
    fn shared(&self, dynamic: u64) -> (u64, u32);

    /// Bytes of this process that a warp takes when it begins.
    fn warp_bytes(&self) -> u64;

    /// Those that its calls are expected to take beside them.
    fn call_bytes(&self) -> u64;

    /// The variables in static shared memory, by where they are, if that is known. Between them is nothing.
    fn shared_variables(&self) -> &[SharedVariable];

    /// A warp of a block of so many threads.
    fn warp<'a>(&'a self, grid: &'a Grid<'a>, index: usize, threads: u32) -> Box<dyn Warp + 'a>;

    /// Where an instruction is.
    fn location(&self, site: Site) -> SourceLocation;

    /// The same in the program's own text: what functions of CUDA's and clang's headers do is done by the
    /// line beside them. None if there is no such line.
    fn own_location(&self, site: Site) -> Option<SourceLocation>;

    /// First and last instruction of the smallest loop around one.
    fn innermost_loop(&self, site: Site) -> Option<(Site, Site)>;
}

/// A warp while it runs.
pub(crate) trait Warp {
    fn core(&self) -> &Core;

    fn core_mut(&mut self) -> &mut Core;

    /// Runs up to this many instructions.
    fn run(&mut self, state: &mut State<'_>, quantum: u32) -> Result<Stop, Box<Mistake>>;

    /// Takes the result of a reduction at the barrier where it waits.
    fn receive(&mut self, dst: Reg, value: &Lanes);

    fn first_lane(&self) -> usize;

    /// Where the instruction is that runs or ran last.
    fn site(&self) -> Site;

    /// Where the calls are that led there, from the innermost.
    fn callers(&self) -> Vec<Site>;
}

/// What every warp has.
pub(crate) struct Core {
    pub(super) index: usize,
    /// Lanes that exist and have not exited.
    pub(super) alive: u32,
    pub(super) readiness: Readiness,
    /// Whether what it does is reported.
    pub(super) is_observed: bool,
    pub(super) events: Vec<Event>,
    /// Events for which there was no room.
    pub(super) dropped: u64,
    pub(super) tid: [Lanes; 3],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Readiness {
    Ready,
    /// At a barrier.
    Waiting(usize),
    Ended,
}

/// Why a warp stopped running.
pub(crate) enum Stop {
    Paused,
    Ended,
    /// It came to a barrier; `threads` is how many must, 0 for all.
    Barrier {
        id: usize,
        kind: BarrierKind,
        threads: u32,
        truths: u32,
    },
}

impl Core {
    pub(super) fn new(grid: &Grid<'_>, index: usize, threads: u32) -> Self {
        let [x, y, _] = grid.launch.block;
        let count = threads - index as u32 * 32;
        let linear = |lane: usize| (index * 32 + lane) as u32;
        let tid = [
            std::array::from_fn(|lane| (linear(lane) % x).into()),
            std::array::from_fn(|lane| (linear(lane) / x % y).into()),
            std::array::from_fn(|lane| (linear(lane) / x / y).into()),
        ];
        Self {
            index,
            alive: if count >= 32 { u32::MAX } else { (1 << count) - 1 },
            readiness: Readiness::Ready,
            is_observed: grid.launch.observe,
            events: Vec::new(),
            dropped: 0,
            tid,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    pub(super) fn has_ended(&self) -> bool {
        self.readiness == Readiness::Ended
    }

    /// The barrier it waits at.
    pub(super) fn waits_at(&self) -> Option<usize> {
        match self.readiness {
            Readiness::Waiting(id) => Some(id),
            _ => None,
        }
    }

    /// Notes what lanes did, if the launch asked for it.
    pub(super) fn observe(
        &mut self,
        state: &State<'_>,
        site: Site,
        mask: u32,
        kind: impl FnOnce() -> EventKind,
    ) {
        if !self.is_observed || mask == 0 {
            return;
        }
        if self.events.len() < state.grid.launch.most_events {
            let location = state.grid.code.location(site);
            self.events.push(Event { kind: kind(), mask, location });
        } else {
            self.dropped += 1;
        }
    }
}

/// Bytes that each lane has for itself.
#[derive(Debug, Default)]
pub(super) struct PerLane {
    stride: usize,
    bytes: Vec<u8>,
}

impl PerLane {
    /// The bytes in each lane when there is room for so many.
    fn stride_for(&self, size: u64) -> usize {
        let size = size as usize;
        match self.stride {
            stride if size <= stride => stride,
            // Calls add a little each: what there is is not to be copied for each of them.
            stride => size.max(stride + stride / 4),
        }
    }

    /// Bytes that room for so many in each lane takes more than there are.
    pub(super) fn growth(&self, size: u64) -> u64 {
        (self.stride_for(size) - self.stride) as u64 * 32
    }

    /// Makes room for this many bytes in each lane.
    pub(super) fn grow(&mut self, size: u64) {
        let stride = self.stride_for(size);
        if stride == self.stride {
            return;
        }
        let mut bytes = vec![0; stride * 32];
        if self.stride != 0 {
            for (new, old) in bytes.chunks_mut(stride).zip(self.bytes.chunks(self.stride)) {
                new[..old.len()].copy_from_slice(old);
            }
        }
        *self = Self { stride, bytes };
    }

    pub(super) fn slice(&mut self, lane: usize, at: u64, size: u64) -> &mut [u8] {
        let start = lane * self.stride + at as usize;
        &mut self.bytes[start..start + size as usize]
    }
}

/// The lanes of a mask.
pub(super) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}
