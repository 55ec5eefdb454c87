//! What an address means: which memory it is in, and whether all that is accessed is there.

use super::block::State;
use super::shared::{AccessProblem, Accessor};
use super::warp::{PerLane, Warp};
use super::{Mistake, mistake, read_word, write_word};
use crate::memory::{BlockAccess, GlobalAddress, Reach, distance};
use crate::program::{LOCAL_BYTES, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, Space, WINDOW_SHIFT};
use crate::report::{FindingKind, MemoryAccess};

/// Bytes that may be accessed.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    Global(GlobalAddress<'a>),
    Shared(usize),
    Local(u64),
    Kernel(usize),
    Call(u64),
}

/// Bytes around an allocation that are likely to be meant for it.
const NEAR: u64 = 4096;

/// Longest string that `printf` takes.
const MAX_STRING: u64 = 1 << 16;

/// What threads have for themselves, and how much of it an instruction may access.
#[derive(Default)]
pub(super) struct Private {
    pub(super) local: PerLane,
    pub(super) call_params: PerLane,
    /// Bytes of local memory in use, from its first address on.
    pub(super) local_end: u64,
    /// And up to its last one, where drivers put stacks.
    pub(super) local_top: u64,
    /// Where the parameters of the innermost call start, and their bytes.
    pub(super) params: (u64, u64),
}

impl Private {
    /// Where bytes at an address of local memory are kept: the upper part behind the lower one.
    fn local_place(&self, address: u64, size: u64) -> Option<u64> {
        let end = address.checked_add(size)?;
        if end <= self.local_end {
            return Some(address);
        }
        let above = address.checked_sub(LOCAL_BYTES.saturating_sub(self.local_top))?;
        (end <= LOCAL_BYTES).then_some(self.local_end + above)
    }

    /// Finds out what an address means, and that all of `size` bytes are there and aligned.
    pub(super) fn locate<'a>(
        &self,
        state: &mut State<'a>,
        lane: usize,
        space: Space,
        (address, size): (u64, u64),
        access: MemoryAccess,
    ) -> Result<Target<'a>, Box<Mistake>> {
        let (space, offset) = match space {
            Space::Generic => match address >> WINDOW_SHIFT << WINDOW_SHIFT {
                SHARED_WINDOW => (Space::Shared, address - SHARED_WINDOW),
                LOCAL_WINDOW => (Space::Local, address - LOCAL_WINDOW),
                PARAM_WINDOW => (Space::Kernel, address - PARAM_WINDOW),
                _ => (Space::Global, address),
            },
            space => (space, address),
        };
        if address % size != 0 {
            let message = format!("{size} bytes at {} are not aligned", describe(space, offset));
            return mistake(FindingKind::Misaligned, lane, message);
        }
        let inside = |end: u64| offset.checked_add(size).is_some_and(|last| last <= end);
        let target = match space {
            Space::Global | Space::Generic => {
                state.allocations.locate(offset, size).map(Target::Global)
            }
            Space::Shared => state.shared.locate(offset, size).map(Target::Shared),
            Space::Local => self.local_place(offset, size).map(Target::Local),
            Space::Kernel => {
                inside(state.grid.params.len() as u64).then_some(Target::Kernel(offset as usize))
            }
            Space::Call => inside(self.params.1).then_some(Target::Call(self.params.0 + offset)),
        };
        match target {
            Some(target) => Ok(target),
            None => {
                let freed = match space {
                    Space::Global => state.grid.memory.freed(offset),
                    _ => None,
                };
                let (kind, nearby) = match freed {
                    Some((start, all)) => (
                        FindingKind::UseAfterFree,
                        format!(
                            ", {} bytes into an allocation of {all} that was freed",
                            offset - start
                        ),
                    ),
                    None => (FindingKind::OutOfBounds, near(state, space, offset)),
                };
                let message = format!("{size} bytes at {}{nearby}", describe(space, offset));
                let mistake = Mistake::new(kind, lane, message);
                Err(Box::new(match space {
                    Space::Global => mistake.at(offset, access),
                    _ => mistake,
                }))
            }
        }
    }

    pub(super) fn get(
        &mut self,
        state: &State<'_>,
        lane: usize,
        target: Target<'_>,
        at: u64,
        width: u64,
    ) -> u64 {
        match target {
            Target::Global(global) => global.load(at, width),
            Target::Shared(offset) => state.shared.load(offset + at as usize, width),
            Target::Local(offset) => read_word(self.local.slice(lane, offset + at, width), width),
            Target::Call(offset) => {
                read_word(self.call_params.slice(lane, offset + at, width), width)
            }
            Target::Kernel(offset) => read_word(&state.grid.params[offset + at as usize..], width),
        }
    }

    pub(super) fn put(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        target: Target<'_>,
        at: u64,
        width: u64,
        value: u64,
    ) {
        match target {
            Target::Global(global) => global.store(at, width, value),
            Target::Shared(offset) => state.shared.store(offset + at as usize, width, value),
            Target::Local(offset) => {
                write_word(self.local.slice(lane, offset + at, width), width, value);
            }
            Target::Call(offset) => {
                write_word(self.call_params.slice(lane, offset + at, width), width, value);
            }
            // Parameters of a kernel cannot be written: no instruction says so.
            Target::Kernel(_) => {}
        }
    }

    /// Reads through a generic address, unseen by the detectors.
    pub(super) fn generic_load(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        address: u64,
        size: u64,
    ) -> Result<u64, Box<Mistake>> {
        let target =
            self.locate(state, lane, Space::Generic, (address, size), MemoryAccess::Read)?;
        Ok(self.get(state, lane, target, 0, size))
    }

    /// A string that ends with a zero byte.
    pub(super) fn string(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        address: u64,
    ) -> Result<Vec<u8>, Box<Mistake>> {
        let mut out = Vec::new();
        for at in 0..MAX_STRING {
            match self.generic_load(state, lane, address.wrapping_add(at), 1)? {
                0 => break,
                byte => out.push(byte as u8),
            }
        }
        Ok(out)
    }
}

/// Notes what is wrong with an access to shared memory, if anything is.
pub(super) fn note(
    warp: &dyn Warp,
    state: &mut State<'_>,
    lane: usize,
    at: usize,
    problem: Option<AccessProblem>,
) {
    if let Some(problem) = problem {
        state.shared_problem(warp, lane, at, problem);
    }
}

pub(super) fn accessor(warp: &dyn Warp, lane: usize, strong: bool) -> Accessor {
    Accessor { warp: warp.core().index, lane, site: warp.site(), strong }
}

/// This block's access, as the shadow of global memory remembers it, and what is known of others.
fn reach<'s>(warp: &dyn Warp, state: &'s State<'_>, lane: usize, strong: bool) -> Reach<'s> {
    let [x, y, z] = state.index.map(u64::from);
    let [wide, high, _] = state.grid.launch.grid.map(u64::from);
    let (site, index) = (warp.site(), warp.core().index);
    let times = state.shared.times(index);
    let access = BlockAccess {
        launch: state.grid.id,
        block: 1 + x + wide * (y + high * z),
        site: (site.function, site.pc),
        warp: index as u8,
        lane: lane as u8,
        clock: times[index],
        strong,
    };
    Reach { access, times, ordered: state.ordered, lanes: state.shared.lanes }
}

/// Numbers that memory may have held: what comes out alike of all of them depends on none.
const OLD: [u64; 4] = [0, u64::MAX, 0x7fff_ffff_7fff_ffff, 0x8000_0000_8000_0000];

/// Changes what a lane has located in one step; the value before. `used` says whether anybody takes that.
pub(super) fn update(
    warp: &dyn Warp,
    state: &mut State<'_>,
    lane: usize,
    target: Target<'_>,
    (address, width): (u64, u64),
    used: bool,
    change: impl Fn(u64) -> u64,
) -> Result<u64, Box<Mistake>> {
    match target {
        Target::Global(global) => {
            watch_read(warp, state, lane, (address, width), u64::MAX, true);
            watch_write(warp, state, lane, (address, width), true, None);
            Ok(global.update(width, change))
        }
        Target::Shared(offset) => {
            let who = accessor(warp, lane, true);
            let old = state.shared.load(offset, width);
            let new = change(old);
            let low = low(width);
            // An exchange of which nobody takes the result is a store, which may be the first.
            let reads = used || OLD.iter().any(|old| change(old & low) & low != new & low);
            let read = if reads { state.shared.read(who, offset, width) } else { None };
            let write = state.shared.write(who, offset, width);
            note(warp, state, lane, offset, read.or(write));
            state.shared.store(offset, width, new);
            Ok(old)
        }
        _ => {
            let what = "an atomic operation on private memory";
            mistake(FindingKind::OutOfBounds, lane, what)
        }
    }
}

/// Notes a read of global memory where that is watched; `used` has a bit for each byte that matters.
pub(super) fn watch_read(
    warp: &dyn Warp,
    state: &mut State<'_>,
    lane: usize,
    (address, size): (u64, u64),
    used: u64,
    strong: bool,
) {
    let Some(shadow) = state.grid.memory.shadow() else { return };
    if let Some(problem) = shadow.read(address, size, used, reach(warp, state, lane, strong)) {
        state.global_problem(warp, lane, address, problem, None);
    }
}

/// Notes a write of global memory where that is watched, before it happens.
pub(super) fn watch_write(
    warp: &dyn Warp,
    state: &mut State<'_>,
    lane: usize,
    (address, size): (u64, u64),
    strong: bool,
    new: Option<u64>,
) {
    let Some(shadow) = state.grid.memory.shadow() else { return };
    if let Some(problem) = shadow.write(address, size, reach(warp, state, lane, strong)) {
        let old = state.allocations.locate(address, size).filter(|_| size <= 8);
        let values = old.map(|place| place.load(0, size)).zip(new.map(|new| new & low(size)));
        state.global_problem(warp, lane, address, problem, values);
    }
}

/// What others may be watching happens in the order of the blocks.
pub(super) fn wait_for_turn(state: &State<'_>, target: Target<'_>) {
    if matches!(target, Target::Global(_)) {
        state.grid.turn.wait(state.position);
    }
}

/// The low bits of a value of so many bytes.
pub(super) fn low(width: u64) -> u64 {
    if width >= 8 { u64::MAX } else { (1 << (8 * width)) - 1 }
}

fn describe(space: Space, offset: u64) -> String {
    match space {
        Space::Global | Space::Generic => format!("{offset:#x}"),
        Space::Shared => format!("shared memory {offset:#x}"),
        Space::Local => format!("local memory {offset:#x}"),
        Space::Kernel | Space::Call => format!("parameter byte {offset:#x}"),
    }
}

/// What lies nearby, to tell how far off an address is.
fn near(state: &State<'_>, space: Space, offset: u64) -> String {
    if let (Space::Global, Some((device, false))) = (space, state.grid.memory.device_of(offset)) {
        return format!(", in memory of device {device}, which this one may not access");
    }
    match space {
        Space::Shared => format!(", which has {} bytes", state.shared.size()),
        Space::Global if offset < 4096 => ", a null pointer".to_owned(),
        Space::Global => match state.grid.memory.nearest(offset) {
            Some((start, size)) => {
                let away = distance(offset, start, size);
                if away > size.max(NEAR) {
                    format!(", where nothing is: {away} bytes from an allocation of {size}")
                } else if offset < start {
                    format!(", {away} bytes before an allocation of {size}")
                } else {
                    format!(", {} bytes into an allocation of {size}", offset - start)
                }
            }
            None => ", where nothing is allocated".to_owned(),
        },
        _ => String::new(),
    }
}
