//! A warp: its registers, its groups of lanes, and one instruction after the other.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::access::Private;
use super::super::block::State;
use super::super::grid::Grid;
use super::super::shared::Site;
use super::super::warp::{self, Core, Readiness, Stop, lanes_of};
use super::super::{Mistake, mistake};
use super::SassCode;
use super::flow::Group;
use crate::lanes::Lanes;
use crate::program::Reg;
use crate::report::{EventKind, FindingKind};
use crate::sass::{Instruction, Op, Out, Predicate, Row, Special, TRUE, Target};

/// What a register holds that is always zero.
pub(super) static ZEROS: Row = [0; 32];

/// Turns of a loop after which others go on.
const TURNS: u32 = 64;

/// A warp while it runs.
pub(super) struct Warp<'a> {
    pub(super) code: &'a SassCode<'a>,
    pub(super) core: Core,
    pub(super) private: Private,
    pub(super) registers: Vec<Row>,
    /// Lanes in which each predicate holds.
    pub(super) predicates: [u32; 8],
    /// The lanes that meet at each convergence barrier, as each lane knows them.
    pub(super) barriers: Box<[[u32; 32]; 16]>,
    /// The lanes that run, and the others.
    pub(super) now: Group,
    pub(super) groups: Vec<Group>,
    /// Those that count as ended, until a driver's function that the others called returns.
    pub(super) aside: Vec<Group>,
    /// Where lanes go on behind what they did together.
    pub(super) behind: [u32; 32],
    /// The instruction that runs or ran last.
    pub(super) site: u32,
    /// Of a reduction at the block's barrier: where a predicate holds, and the result.
    pub(super) truths: u32,
    pub(super) result: u32,
    pub(super) at_block_barrier: bool,
    pub(super) scratch: Option<Box<Scratch>>,
    /// Instructions that were found when lanes came to them.
    late: HashMap<u32, Arc<Instruction>>,
    turns: u32,
}

/// Sources that are not registers as they stand, and results.
pub(super) struct Scratch {
    pub(super) sources: [Row; 6],
    pub(super) out: Out,
}

impl warp::Warp for Warp<'_> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn run(&mut self, state: &mut State<'_>, quantum: u32) -> Result<Stop, Box<Mistake>> {
        self.pass_block_barrier();
        for _ in 0..quantum {
            if self.now.mask == 0 {
                if let Some(stop) = self.next_group(state)? {
                    return Ok(stop);
                }
            }
            if let Some(stop) = self.step(state)? {
                return Ok(stop);
            }
        }
        Ok(Stop::Paused)
    }

    fn receive(&mut self, _: Reg, value: &Lanes) {
        self.result = value[0] as u32;
    }

    fn first_lane(&self) -> usize {
        let mask = if self.now.mask == 0 { self.core.alive } else { self.now.mask };
        (mask.trailing_zeros() as usize).min(31)
    }

    fn site(&self) -> Site {
        Site { function: 0, pc: self.site }
    }

    fn callers(&self) -> Vec<Site> {
        Vec::new()
    }
}

impl<'a> Warp<'a> {
    pub(super) fn new(code: &'a SassCode<'a>, grid: &Grid<'_>, index: usize, threads: u32) -> Self {
        let core = Core::new(grid, index, threads);
        let mut private = Private::default();
        private.local.grow(code.kernel.local_size + code.kernel.local_top);
        private.local_end = code.kernel.local_size;
        private.local_top = code.kernel.local_top;
        let first = code.kernel.first as u32;
        let mut predicates = [0; 8];
        predicates[usize::from(TRUE)] = u32::MAX;
        let mut warp = Self {
            now: Group::new(first, core.alive),
            code,
            core,
            private,
            registers: vec![ZEROS; code.kernel.registers],
            predicates,
            barriers: Box::new([[0; 32]; 16]),
            groups: Vec::new(),
            aside: Vec::new(),
            behind: [0; 32],
            site: first,
            truths: 0,
            result: 0,
            at_block_barrier: false,
            scratch: Some(Box::new(Scratch { sources: [ZEROS; 6], out: Out::EMPTY })),
            late: HashMap::new(),
            turns: 0,
        };
        if grid.launch.observe {
            let location = grid.code.location(Site { function: 0, pc: first });
            let kind = EventKind::Entry { function: code.name.into() };
            let mask = warp.core.alive;
            warp.core.events.push(crate::report::Event { kind, mask, location });
        }
        warp
    }

    pub(super) fn row(&self, number: u8) -> &Row {
        self.registers.get(usize::from(number)).unwrap_or(&ZEROS)
    }

    pub(super) fn write(&mut self, number: u8, value: &Row, mask: u32) {
        if let Some(row) = self.registers.get_mut(usize::from(number)) {
            write_masked(row, value, mask);
        }
    }

    pub(super) fn write_target(&mut self, target: Target, value: &Row, mask: u32) {
        match target {
            Target::None => {}
            Target::Register(number) => self.write(number, value, mask),
            Target::Uniform(number) => {
                self.now.set(number, value[mask.trailing_zeros() as usize & 31]);
            }
        }
    }

    /// The register behind one, as a target.
    pub(super) fn behind(target: Target) -> Target {
        match target {
            Target::None => Target::None,
            Target::Register(number) => Target::Register(number.saturating_add(1)),
            Target::Uniform(number) => Target::Uniform(number + 1),
        }
    }

    /// The lanes in which a predicate holds.
    pub(super) fn holds(&self, predicate: Predicate) -> u32 {
        let number = usize::from(predicate.number & 7);
        let value = match predicate.uniform {
            true => 0u32.wrapping_sub(u32::from(self.now.predicates >> number & 1)),
            false => self.predicates[number],
        };
        if predicate.negated { !value } else { value }
    }

    pub(super) fn write_predicate(&mut self, number: u8, value: u32, mask: u32) {
        if number != TRUE {
            let old = &mut self.predicates[usize::from(number & 7)];
            *old = *old & !mask | value & mask;
        }
    }

    fn step(&mut self, state: &mut State<'_>) -> Result<Option<Stop>, Box<Mistake>> {
        let pc = self.now.pc;
        let active = self.now.mask;
        let first = active.trailing_zeros() as usize;
        let Some(instruction) = self.code.program.code.get(pc as usize) else {
            return mistake(FindingKind::Trap, first, "a jump to where no code is");
        };
        let late;
        let instruction = match instruction.op {
            Op::NoCode => {
                late = self.found_late(state, pc)?;
                &*late
            }
            _ => instruction,
        };
        self.now.pc += 1;
        self.site = pc;
        state.warp_instructions += 1;
        state.lane_instructions += u64::from(active.count_ones());
        let mask = active & self.holds(instruction.guard);
        if let Op::Compute(compute) = &instruction.op {
            if mask != 0 {
                self.compute(compute, mask);
            }
            return Ok(None);
        }
        match &instruction.op {
            Op::Branch { target, when, takers } => {
                let taken = takers.among(active, mask & self.holds(*when));
                let is_conditional =
                    [instruction.guard, *when].iter().any(|it| *it != Predicate::TRUE);
                if is_conditional {
                    self.core.observe(state, Site { function: 0, pc }, active, || {
                        EventKind::Branch { taken }
                    });
                }
                self.branch(*target, taken);
                self.turn(pc, *target);
            }
            Op::BranchDiverged { target, mask: named, diverged } => {
                self.branch_diverged(*target, *named, *diverged, mask);
            }
            _ if mask == 0 => {}
            Op::Barrier { kind, id, count, packed, predicate } => {
                let (id, count) = (id, count.as_ref());
                return self.block_barrier(*kind, id, count, *packed, *predicate, mask);
            }
            Op::Yield => {
                self.rotate();
                return Ok(Some(Stop::Paused));
            }
            Op::NoCode => {}
            Op::Refused(why) => {
                return mistake(FindingKind::Unsupported, first, &**why);
            }
            Op::Trap { number: 1 } => {
                return mistake(FindingKind::Trap, first, "the kernel executed `trap`");
            }
            Op::Trap { number: 3 } => {
                return mistake(FindingKind::Assert, first, "an assertion failed");
            }
            Op::Trap { number } => {
                let message = format!("the kernel executed BPT.TRAP {number:#x}");
                return mistake(FindingKind::Trap, first, message);
            }
            Op::Fence => {
                state.ordered = true;
                state.shared.fence(self.core.index);
            }
            Op::Nop => {}
            Op::Special { special, target, wide } => {
                let (value, high) = match *special {
                    // Both halves are of one moment.
                    Special::Time(counter, from) => {
                        let now = state.count(counter) >> from;
                        ([now as u32; 32], [(now >> 32) as u32; 32])
                    }
                    special => (self.special(state, special), ZEROS),
                };
                self.write_target(*target, &value, mask);
                if *wide {
                    self.write_target(Self::behind(*target), &high, mask);
                }
            }
            Op::CodeAddress { to, address } => {
                let to = Target::Register(*to);
                self.write_target(to, &[*address as u32; 32], mask);
                self.write_target(Self::behind(to), &[(address >> 32) as u32; 32], mask);
            }
            Op::Exit { when } => self.exit(state, mask & self.holds(*when)),
            Op::Load { .. } => self.load(state, &instruction.op, mask)?,
            Op::Store { .. } => self.store(state, &instruction.op, mask)?,
            Op::Atomic { .. } => self.atomic(state, &instruction.op, mask)?,
            Op::Arrive { at, to } => self.arrive_in_memory(state, at, *to, mask)?,
            Op::Constant { .. } => self.constant(&instruction.op, mask)?,
            Op::CopyAsync { .. } => self.copy(state, &instruction.op, mask)?,
            Op::LoadMatrix { at, to, count, transposed } => {
                self.load_matrix(state, at, *to, *count, *transposed, mask)?;
            }
            Op::StoreMatrix { at, from, count, transposed } => {
                self.store_matrix(state, at, *from, *count, *transposed, mask)?;
            }
            Op::QuerySpace { outcome, at, window } => self.query(*outcome, at, *window, mask),
            Op::MatrixMultiply(multiply) => self.multiply(multiply, mask)?,
            Op::Texture(texture) => self.texture(state, texture, mask)?,
            Op::Builtin(builtin) => self.builtin(state, *builtin, mask)?,
            flow @ (Op::Jump { .. }
            | Op::SetBarrier { .. }
            | Op::SyncBarrier { .. }
            | Op::BreakBarrier { .. }
            | Op::PutBarrier { .. }
            | Op::MoveBarrier { .. }
            | Op::GetLanes { .. }
            | Op::SetLanes { .. }
            | Op::SyncWarp { .. }
            | Op::EndCollective) => self.flow(flow, mask)?,
            wide => self.warp_wide(wide, mask),
        }
        Ok(None)
    }

    fn found_late(&mut self, state: &State<'_>, pc: u32) -> Result<Arc<Instruction>, Box<Mistake>> {
        if let Some(known) = self.late.get(&pc) {
            return Ok(known.clone());
        }
        match self.code.program.found_late(state.grid.memory, pc as usize) {
            Ok(found) => Ok(self.late.entry(pc).or_insert(Arc::new(found)).clone()),
            Err(what) => {
                self.site = pc;
                mistake(FindingKind::Unsupported, warp::Warp::first_lane(self), what)
            }
        }
    }

    /// Lets others go on that a loop may wait for.
    fn turn(&mut self, pc: u32, target: u32) {
        if target <= pc && !self.groups.is_empty() {
            self.turns += 1;
            if self.turns >= TURNS {
                self.turns = 0;
                self.rotate();
            }
        }
    }

    fn exit(&mut self, state: &State<'_>, mask: u32) {
        let site = Site { function: 0, pc: self.site };
        let name = self.code.name;
        self.core.observe(state, site, mask, || EventKind::Exit { function: name.into() });
        self.core.alive &= !mask;
        self.now.mask &= !mask;
    }

    fn special(&self, state: &State<'_>, special: Special) -> Row {
        use crate::program::{LOCAL_WINDOW, MAX_WARPS, SHARED_WINDOW};
        let splat = |value: u64| [value as u32; 32];
        match special {
            Special::Tid(axis) => self.core.tid[axis].map(|value| value as u32),
            Special::PackedTid => {
                let [x, y, z] = &self.core.tid;
                std::array::from_fn(|lane| (x[lane] | y[lane] << 16 | z[lane] << 26) as u32)
            }
            Special::Block(axis) => splat(state.index[axis].into()),
            Special::Time(counter, from) => splat(state.count(counter) >> from),
            Special::Lane => std::array::from_fn(|lane| lane as u32),
            Special::Mask(f) => std::array::from_fn(|lane| f(lane as u32)),
            Special::SharedWindow => splat(SHARED_WINDOW >> 32),
            Special::LocalWindow => splat(LOCAL_WINDOW >> 32),
            Special::WarpPlace => splat((self.core.index as u64) << 8),
            Special::WarpRoom => splat(MAX_WARPS),
            Special::SharedSize => {
                splat(self.code.kernel.shared_bytes(state.grid.launch.shared_bytes.into()))
            }
            Special::Zero => ZEROS,
        }
    }

    /// The lanes of a mask that have the same value, one group after the other.
    pub(super) fn by_value(values: &[u64; 32], mask: u32) -> Vec<(u64, u32)> {
        let mut out: Vec<(u64, u32)> = Vec::new();
        for lane in lanes_of(mask) {
            match out.iter_mut().find(|(value, _)| *value == values[lane]) {
                Some((_, lanes)) => *lanes |= 1 << lane,
                None => out.push((values[lane], 1 << lane)),
            }
        }
        out
    }

    pub(super) fn end(&mut self) -> Stop {
        self.core.readiness = Readiness::Ended;
        Stop::Ended
    }
}

pub(super) fn write_masked(to: &mut Row, value: &Row, mask: u32) {
    if mask == u32::MAX {
        *to = *value;
        return;
    }
    for lane in 0..32 {
        let keep = (mask >> lane & 1).wrapping_sub(1);
        to[lane] = to[lane] & keep | value[lane] & !keep;
    }
}
