//! A warp: 32 lanes in lockstep, a stack of calls, and in each call a stack of parted lanes.

use super::super::access::Private;
use super::super::block::State;
use super::super::grid::Grid;
use super::super::shared::{BARRIERS, Site};
use super::super::warp::{self, Core, Readiness, Stop, lanes_of};
use super::super::{Mistake, mistake, printf};
use super::paths::{Path, callers_of, site_of};
use crate::lanes::Lanes;
use crate::program::{BarrierKind, CODE_WINDOW, Callee, Instruction, Op, Program, Reg, Special};
use crate::report::{EventKind, FindingKind};

/// Deepest nesting of calls.
const MAX_DEPTH: usize = 256;

/// A warp while it runs.
pub(super) struct Warp<'a> {
    pub(super) program: &'a Program,
    pub(super) core: Core,
    pub(super) private: Private,
    pub(super) registers: Vec<Lanes>,
    /// The calls of the lanes that run.
    pub(super) frames: Vec<Frame>,
    /// Lanes that go on when those have ended or wait.
    pub(super) paths: Vec<Path>,
    pub(super) turns: Turns,
}

/// What lanes did that may wait for other lanes of the warp: turns of a loop.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Since the last turn they read what others write.
    pub(super) watches: bool,
    /// First instruction of the loop, turns in a row that read such, and a hash of the registers.
    first: u32,
    count: u32,
    registers: u64,
}

/// Turns of a loop after which lanes that change nothing of theirs, and any lanes, let others go on.
const IDLE_TURNS: u32 = 16;
const BUSY_TURNS: u32 = 256;

/// One call.
#[derive(Clone)]
pub(super) struct Frame {
    pub(super) function: usize,
    /// Where the registers, local memory and parameters of this call start. Each lane has its own, so
    /// that other lanes may have those of other calls at the same place.
    pub(super) registers: usize,
    pub(super) local: u64,
    pub(super) params: u64,
    pub(super) stack: Vec<Split>,
    /// Where the caller wants the results.
    results: Vec<(u64, u64)>,
}

/// Lanes that run together until they meet others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split {
    pub(super) pc: u32,
    pub(super) reconverge: u32,
    pub(super) mask: u32,
}

type StepResult = Result<Option<Stop>, Box<Mistake>>;

impl warp::Warp for Warp<'_> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn run(&mut self, state: &mut State<'_>, quantum: u32) -> Result<Stop, Box<Mistake>> {
        self.advance(state, quantum)
    }

    fn receive(&mut self, dst: Reg, value: &Lanes) {
        self.write(dst, value, self.active());
        for path in &self.paths {
            let (base, mask) = path.top();
            write_masked(&mut self.registers[base + dst as usize], value, mask);
        }
    }

    fn first_lane(&self) -> usize {
        (self.active().trailing_zeros() as usize).min(31)
    }

    fn site(&self) -> Site {
        site_of(&self.frames)
    }

    fn callers(&self) -> Vec<Site> {
        callers_of(&self.frames).collect()
    }
}

impl<'a> Warp<'a> {
    pub(super) fn new(
        program: &'a Program,
        kernel: usize,
        grid: &Grid<'_>,
        index: usize,
        threads: u32,
    ) -> Self {
        let mut warp = Self {
            program,
            core: Core::new(grid, index, threads),
            private: Private::default(),
            registers: Vec::new(),
            frames: Vec::new(),
            paths: Vec::new(),
            turns: Turns::default(),
        };
        warp.enter(kernel, warp.core.alive, Vec::new());
        if grid.launch.observe {
            let function = program.functions[kernel].name.as_str().into();
            let location = grid.code.location(Site { function: kernel as u32, pc: 0 });
            let mask = warp.core.alive;
            let kind = EventKind::Entry { function };
            warp.core.events.push(crate::report::Event { kind, mask, location });
        }
        warp
    }

    fn active(&self) -> u32 {
        let top = self.frames.last().and_then(|frame| frame.stack.last());
        top.map_or(self.core.alive, |split| split.mask)
    }

    /// Where the instruction is that runs or ran last.
    pub(super) fn site(&self) -> Site {
        site_of(&self.frames)
    }

    /// What the innermost call may access of the lanes' own memory.
    pub(super) fn set_bounds(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let function = &self.program.functions[frame.function];
        self.private.local_end = frame.local + function.local_size;
        self.private.params = (frame.params, function.param_size);
    }

    pub(super) fn frame(&self) -> &Frame {
        // A warp that runs an instruction has a call that it is in.
        &self.frames[self.frames.len() - 1]
    }

    pub(super) fn register(&self, reg: Reg) -> &Lanes {
        &self.registers[self.frame().registers + reg as usize]
    }

    /// The value of a register that ought to be the same in all lanes.
    pub(super) fn uniform(&self, reg: Reg, mask: u32) -> u64 {
        self.register(reg)[mask.trailing_zeros() as usize & 31]
    }

    /// Writes the lanes of a mask.
    pub(super) fn write(&mut self, reg: Reg, value: &Lanes, mask: u32) {
        let base = self.frame().registers;
        write_masked(&mut self.registers[base + reg as usize], value, mask);
    }

    /// The lanes of a mask in which a predicate holds.
    pub(super) fn truths(&self, pred: Reg, mask: u32) -> u32 {
        truths(self.register(pred), mask)
    }

    /// Where registers, local memory and parameters of a call begin.
    fn next_frame(&self) -> (usize, u64, u64) {
        self.frames.last().map_or((0, 0, 0), |frame| {
            let caller = &self.program.functions[frame.function];
            (
                frame.registers + caller.registers as usize,
                frame.local + caller.local_size,
                frame.params + caller.param_size,
            )
        })
    }

    /// Bytes that a call takes more than there are.
    fn growth(&self, function: usize) -> u64 {
        let (registers, local, params) = self.next_frame();
        let callee = &self.program.functions[function];
        let end = registers + callee.registers as usize;
        let registers = end.saturating_sub(self.registers.len()) * size_of::<Lanes>();
        registers as u64
            + self.private.local.growth(local + callee.local_size)
            + self.private.call_params.growth(params + callee.param_size)
    }

    fn enter(&mut self, function: usize, mask: u32, results: Vec<(u64, u64)>) {
        let (registers, local, params) = self.next_frame();
        let callee = &self.program.functions[function];
        let end = registers + callee.registers as usize;
        if self.registers.len() < end {
            self.registers.reserve_exact(end - self.registers.len());
            self.registers.resize(end, [0; 32]);
        }
        for register in &mut self.registers[registers..end] {
            write_masked(register, &[0; 32], mask);
        }
        for (reg, value) in &callee.constants {
            write_masked(&mut self.registers[registers + *reg as usize], &[*value; 32], mask);
        }
        self.private.local.grow(local + callee.local_size);
        self.private.call_params.grow(params + callee.param_size);
        let stack = vec![Split { pc: 0, reconverge: u32::MAX, mask }];
        self.frames.push(Frame { function, registers, local, params, stack, results });
        self.set_bounds();
    }

    /// Runs up to this many instructions.
    fn advance(&mut self, state: &mut State<'_>, quantum: u32) -> Result<Stop, Box<Mistake>> {
        let program = self.program;
        let mut left = quantum;
        while left > 0 {
            let Some(frame) = self.frames.last_mut() else {
                if self.paths.is_empty() {
                    self.core.readiness = Readiness::Ended;
                    return Ok(Stop::Ended);
                }
                if let Some(stop) = self.go_on_with_others(state)? {
                    return Ok(stop);
                }
                continue;
            };
            let Some(split) = frame.stack.last_mut() else {
                self.leave();
                continue;
            };
            if split.pc == split.reconverge || split.mask == 0 {
                frame.stack.pop();
                continue;
            }
            let instruction = &program.functions[frame.function].code[split.pc as usize];
            split.pc += 1;
            let active = split.mask;
            left -= 1;
            state.warp_instructions += 1;
            state.lane_instructions += u64::from(active.count_ones());
            let mask = match instruction.guard {
                Some((pred, negated)) => {
                    let truths = self.truths(pred, active);
                    if negated { active & !truths } else { truths }
                }
                None => active,
            };
            if let Op::Lanes { f, dst, src } = &instruction.op {
                let base = self.frame().registers;
                let registers = &mut self.registers[base..];
                let mut out = [0; 32];
                f(&mut out, &src.map(|reg| &registers[reg as usize]));
                write_masked(&mut registers[*dst as usize], &out, mask);
                continue;
            }
            if let Some(stop) = self.step(state, instruction, active, mask)? {
                return Ok(stop);
            }
        }
        Ok(Stop::Paused)
    }

    /// Any instruction but a computation.
    fn step(
        &mut self,
        state: &mut State<'_>,
        instruction: &Instruction,
        active: u32,
        mask: u32,
    ) -> StepResult {
        match &instruction.op {
            Op::Branch { target, reconverge } => {
                if instruction.guard.is_some() {
                    self.observe(state, active, |_| EventKind::Branch { taken: mask });
                }
                let back = *target as usize <= self.site().pc as usize;
                self.part(*reconverge, &[(*target, mask)], active & !mask);
                if back && mask != 0 && mask != self.core.alive && self.is_waiting(*target) {
                    self.give_way(state)?;
                }
                return Ok(None);
            }
            Op::BranchIndexed { index, targets, reconverge } => {
                self.branch_indexed(state, *index, targets, *reconverge, active, mask)?;
                return Ok(None);
            }
            _ if mask == 0 => return Ok(None),
            Op::Barrier { kind, id, count } => {
                if mask != self.core.alive {
                    self.wait_for(self.core.alive & !mask, mask);
                    return Ok(None);
                }
                return self.barrier(*kind, *id, *count, mask).map(Some);
            }
            Op::Return => self.depart(state, mask),
            Op::Exit => self.exit(state, mask),
            Op::Trap => {
                return mistake(
                    FindingKind::Trap,
                    mask.trailing_zeros() as usize,
                    "the kernel executed `trap`",
                );
            }
            Op::Call { callee, args, results } => self.call(state, *callee, args, results, mask)?,
            Op::Special { special, dst } => {
                let value = self.special(state, *special);
                self.write(*dst, &value, mask);
            }
            Op::Local { offset, dst } => {
                let value = self.frame().local + offset;
                self.write(*dst, &[value; 32], mask);
            }
            Op::Fence => {
                state.ordered = true;
                state.shared.fence(self.core.index);
            }
            Op::Yield => {
                self.give_way(state)?;
                return Ok(Some(Stop::Paused));
            }
            Op::Nop | Op::Lanes { .. } => {}
            load @ Op::Load { .. } => self.load(state, load, mask)?,
            Op::Store { at, src, width, order } => {
                self.store(state, at, src, *width, *order, mask)?
            }
            Op::Atomic { .. } => self.atomic(state, &instruction.op, mask)?,
            Op::CopyBulk { to, from, size } => self.copy_bulk(state, to, from, *size, mask)?,
            Op::CopyAsync { to, from, size, source_size } => {
                self.copy_async(state, to, from, *size, *source_size, mask)?;
            }
            Op::RecordBranch(op) => self.record_branch(state, op, mask)?,
            Op::Texture(texture) => self.texture(state, texture, mask)?,
            wide => self.warp_wide(state, wide, mask)?,
        }
        Ok(None)
    }

    /// Whether lanes that begin another turn of a loop may do so until other lanes have done something.
    fn is_waiting(&mut self, first: u32) -> bool {
        if !std::mem::take(&mut self.turns.watches) {
            return false;
        }
        if self.turns.first != first {
            self.turns = Turns { first, ..Turns::default() };
        }
        self.turns.count += 1;
        if self.turns.count < IDLE_TURNS {
            return false;
        }
        let registers = self.hash_registers();
        let idle = std::mem::replace(&mut self.turns.registers, registers) == registers;
        let waits = idle || self.turns.count >= BUSY_TURNS;
        if waits {
            self.turns = Turns::default();
        }
        waits
    }

    /// A number that differs where registers of the lanes that run differ.
    fn hash_registers(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let (mask, mut hasher) = (self.active(), DefaultHasher::new());
        for register in &self.registers[self.frame().registers..] {
            lanes_of(mask).for_each(|lane| register[lane].hash(&mut hasher));
        }
        hasher.finish()
    }

    pub(super) fn observe(
        &mut self,
        state: &State<'_>,
        mask: u32,
        kind: impl FnOnce(&Self) -> EventKind,
    ) {
        if state.grid.launch.observe && mask != 0 {
            let (kind, site) = (kind(self), self.site());
            self.core.observe(state, site, mask, || kind);
        }
    }

    /// Sends lanes to targets, and the rest to the next instruction; they meet at `reconverge`.
    fn part(&mut self, reconverge: u32, targets: &[(u32, u32)], rest: u32) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(split) = frame.stack.last_mut() else { return };
        let next = split.pc;
        let parts = targets.iter().copied().chain([(next, rest)]).filter(|(_, mask)| *mask != 0);
        if let [(pc, _)] = parts.clone().collect::<Vec<_>>()[..] {
            split.pc = pc;
            return;
        }
        if split.reconverge == reconverge {
            // Those that meet there are waited for already.
            frame.stack.pop();
        } else {
            split.pc = reconverge;
            if reconverge == u32::MAX {
                frame.stack.pop();
            }
        }
        // The first target runs first.
        let from = frame.stack.len();
        frame.stack.extend(parts.map(|(pc, mask)| Split { pc, reconverge, mask }));
        frame.stack[from..].reverse();
    }

    fn branch_indexed(
        &mut self,
        state: &State<'_>,
        index: Reg,
        targets: &[u32],
        reconverge: u32,
        active: u32,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        self.observe(state, mask, |_| EventKind::Switch);
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for lane in lanes_of(mask) {
            let value = self.register(index)[lane];
            let Some(target) = targets.get(value as usize) else {
                let message = format!("the jump table has {} entries, not {value}", targets.len());
                return mistake(FindingKind::Trap, lane, message);
            };
            match parts.iter_mut().find(|(pc, _)| pc == target) {
                Some((_, mask)) => *mask |= 1 << lane,
                None => parts.push((*target, 1 << lane)),
            }
        }
        self.part(reconverge, &parts, active & !mask);
        Ok(())
    }

    /// Lanes return from the current call.
    fn depart(&mut self, state: &State<'_>, mask: u32) {
        let name = self.program.functions[self.frame().function].name.as_str();
        self.observe(state, mask, |_| EventKind::Exit { function: name.into() });
        let kernel = self.frames.len() == 1;
        if let Some(frame) = self.frames.last_mut() {
            frame.stack.iter_mut().for_each(|split| split.mask &= !mask);
        }
        if kernel {
            self.core.alive &= !mask;
        }
    }

    fn exit(&mut self, state: &State<'_>, mask: u32) {
        let name = self.program.functions[self.frame().function].name.as_str();
        self.observe(state, mask, |_| EventKind::Exit { function: name.into() });
        self.core.alive &= !mask;
        for split in self.frames.iter_mut().flat_map(|frame| &mut frame.stack) {
            split.mask &= !mask;
        }
    }

    /// All lanes of a call have returned.
    fn leave(&mut self) {
        let program = self.program;
        let Some(frame) = self.frames.pop() else { return };
        self.set_bounds();
        let Some(caller) = self.frames.last() else { return };
        let from = &program.functions[frame.function].results;
        for (to, from) in frame.results.iter().zip(from) {
            let size = to.1.min(from.1);
            // Lanes that did not call have nothing in these bytes that anyone reads.
            for lane in lanes_of(caller.stack.last().map_or(0, |split| split.mask)) {
                let bytes =
                    self.private.call_params.slice(lane, frame.params + from.0, size).to_vec();
                self.private
                    .call_params
                    .slice(lane, caller.params + to.0, size)
                    .copy_from_slice(&bytes);
            }
        }
    }

    fn call(
        &mut self,
        state: &mut State<'_>,
        callee: Callee,
        args: &[(u64, u64)],
        results: &[(u64, u64)],
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        match callee {
            Callee::Function(function) => self.call_function(state, function, args, results, mask),
            Callee::Indirect(reg) => {
                // One function after the other: this instruction runs again for the lanes that are left.
                let address = self.uniform(reg, mask);
                let same: u32 = lanes_of(mask)
                    .filter(|lane| self.register(reg)[*lane] == address)
                    .map(|lane| 1 << lane)
                    .sum();
                let function = address.wrapping_sub(CODE_WINDOW) as usize;
                if function >= self.program.functions.len() {
                    let lane = mask.trailing_zeros() as usize;
                    return mistake(
                        FindingKind::Trap,
                        lane,
                        format!("call of {address:#x}, which is no function"),
                    );
                }
                if same != mask {
                    self.split_call(same, mask & !same);
                }
                self.call_function(state, function, args, results, same)
            }
            Callee::Printf => self.print(state, args, results, mask),
            Callee::AssertFail => self.assert_failed(state, args, mask),
            Callee::Malloc => {
                for lane in lanes_of(mask) {
                    let size = self.argument(lane, args, 0);
                    let address = state.grid.memory.alloc(size).unwrap_or(0);
                    self.set_result(lane, results, address);
                }
                Ok(())
            }
            Callee::Free => {
                for lane in lanes_of(mask) {
                    let address = self.argument(lane, args, 0);
                    if address == 0 {
                        continue;
                    }
                    if let Err(error) = state.grid.memory.free(address) {
                        return mistake(FindingKind::OutOfBounds, lane, error.to_string());
                    }
                }
                Ok(())
            }
        }
    }

    /// Lets some lanes run this call before the others come to it again.
    fn split_call(&mut self, now: u32, later: u32) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(Split { pc, .. }) = frame.stack.last().copied() else { return };
        frame.stack.extend([
            Split { pc: pc - 1, reconverge: pc, mask: later },
            Split { pc, reconverge: pc, mask: now },
        ]);
    }

    fn call_function(
        &mut self,
        state: &mut State<'_>,
        function: usize,
        args: &[(u64, u64)],
        results: &[(u64, u64)],
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        if self.frames.len() >= MAX_DEPTH {
            let lane = mask.trailing_zeros() as usize;
            return mistake(
                FindingKind::Trap,
                lane,
                format!("calls are nested deeper than {MAX_DEPTH}"),
            );
        }
        let more = self.growth(function);
        if more > state.call_bytes {
            let lane = mask.trailing_zeros() as usize;
            let what = "calls take more memory than a block of this launch has for them";
            let message = format!("{what}: {more} bytes, of {} that are left", state.call_bytes);
            return mistake(FindingKind::Trap, lane, message);
        }
        state.call_bytes -= more;
        let from = self.frame().params;
        self.enter(function, mask, results.to_vec());
        let to = self.frame().params;
        let params = &self.program.functions[function].params;
        for (arg, param) in args.iter().zip(params) {
            let size = arg.1.min(param.1);
            for lane in lanes_of(mask) {
                let bytes = self.private.call_params.slice(lane, from + arg.0, size).to_vec();
                self.private.call_params.slice(lane, to + param.0, size).copy_from_slice(&bytes);
            }
        }
        if state.grid.launch.observe {
            let function = self.program.functions[function].name.as_str().into();
            self.observe(state, mask, |_| EventKind::Entry { function });
        }
        Ok(())
    }

    /// The value of an argument of a call, of up to 8 bytes.
    fn argument(&mut self, lane: usize, args: &[(u64, u64)], number: usize) -> u64 {
        let Some((at, size)) = args.get(number) else { return 0 };
        let mut word = [0; 8];
        let size = (*size).min(8);
        let at = self.frame().params + at;
        word[..size as usize].copy_from_slice(self.private.call_params.slice(lane, at, size));
        u64::from_le_bytes(word)
    }

    fn set_result(&mut self, lane: usize, results: &[(u64, u64)], value: u64) {
        let Some((at, size)) = results.first() else { return };
        let size = (*size).min(8);
        let at = self.frame().params + at;
        let bytes = value.to_le_bytes();
        self.private.call_params.slice(lane, at, size).copy_from_slice(&bytes[..size as usize]);
    }

    fn print(
        &mut self,
        state: &mut State<'_>,
        args: &[(u64, u64)],
        results: &[(u64, u64)],
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        for lane in lanes_of(mask) {
            let (format, values) = (self.argument(lane, args, 0), self.argument(lane, args, 1));
            let format = self.private.string(state, lane, format)?;
            let text = printf::format(&format, |what, at| match what {
                printf::Argument::Value(size) => self
                    .private
                    .generic_load(state, lane, values + at, size)
                    .map(printf::ArgumentValue::Value),
                printf::Argument::Text => {
                    let address = self.private.generic_load(state, lane, values + at, 8)?;
                    self.private.string(state, lane, address).map(printf::ArgumentValue::Text)
                }
            })?;
            state.output.extend_from_slice(&text.bytes);
            self.set_result(lane, results, text.count);
        }
        Ok(())
    }

    fn assert_failed(
        &mut self,
        state: &mut State<'_>,
        args: &[(u64, u64)],
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let lane = mask.trailing_zeros() as usize;
        let mut text = |number| {
            let address = self.argument(lane, args, number);
            self.private
                .string(state, lane, address)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let (what, file, function) = (text(0)?, text(1)?, text(3)?);
        let line = self.argument(lane, args, 2);
        mistake(
            FindingKind::Assert,
            lane,
            format!("{file}:{line}: {function}: assertion `{what}` failed"),
        )
    }

    /// All lanes of the warp have come to a barrier: these, and those of other paths.
    pub(super) fn barrier(
        &self,
        kind: BarrierKind,
        id: Reg,
        count: Option<Reg>,
        mask: u32,
    ) -> Result<Stop, Box<Mistake>> {
        let lane = mask.trailing_zeros() as usize;
        let id = self.uniform(id, mask) as usize;
        let threads = count.map_or(0, |count| self.uniform(count, mask) as u32);
        if id >= BARRIERS || threads % 32 != 0 {
            let message = format!(
                "barrier {id} for {threads} threads: there are {BARRIERS}, for whole warps"
            );
            return mistake(FindingKind::BarrierDivergence, lane, message);
        }
        let truths = match kind {
            BarrierKind::Count { pred, .. }
            | BarrierKind::All { pred, .. }
            | BarrierKind::Any { pred, .. } => {
                let others = self.paths.iter().map(Path::top).map(|(base, mask)| {
                    truths(&self.registers[base + pred as usize], mask).count_ones()
                });
                self.truths(pred, mask).count_ones() + others.sum::<u32>()
            }
            _ => 0,
        };
        Ok(Stop::Barrier { id, kind, threads, truths })
    }

    fn special(&self, state: &State<'_>, special: Special) -> Lanes {
        let launch = state.grid.launch;
        let splat = |value: u64| [value; 32];
        let each = |f: &dyn Fn(u32) -> u64| {
            let mut out = [0; 32];
            out.iter_mut().enumerate().for_each(|(lane, slot)| *slot = f(lane as u32));
            out
        };
        match special {
            Special::Tid(axis) => self.core.tid[axis],
            Special::BlockDim(axis) => splat(launch.block[axis].into()),
            Special::BlockIdx(axis) => splat(state.index[axis].into()),
            Special::GridDim(axis) => splat(launch.grid[axis].into()),
            Special::LaneId => each(&|lane| lane.into()),
            Special::WarpId => splat(self.core.index as u64),
            Special::LaneMask(f) => each(&|lane| f(lane).into()),
            Special::Time(counter, from) => splat(state.count(counter) >> from),
            Special::DynamicShared => splat(launch.shared_bytes.into()),
            Special::TotalShared => {
                let kernel = &self.program.functions[self.frames[0].function];
                splat(kernel.shared_bytes(launch.shared_bytes.into()))
            }
            Special::GridId => splat(state.grid.id),
            Special::Workspace(from) => splat(state.grid.workspace >> from & 0xffff_ffff),
        }
    }
}

/// The lanes of a mask in which a predicate holds.
fn truths(pred: &Lanes, mask: u32) -> u32 {
    let mut out = 0;
    for (lane, value) in pred.iter().enumerate() {
        out |= ((value & 1) as u32) << lane;
    }
    out & mask
}

fn write_masked(to: &mut Lanes, value: &Lanes, mask: u32) {
    if mask == u32::MAX {
        *to = *value;
        return;
    }
    for lane in 0..32 {
        let keep = u64::from(mask >> lane & 1).wrapping_sub(1);
        to[lane] = to[lane] & keep | value[lane] & !keep;
    }
}
