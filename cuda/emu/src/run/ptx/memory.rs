//! Loads, stores and atomics of a warp, in every state space.

use super::super::access::{
    Target, accessor, low, note, update, wait_for_turn, watch_read, watch_write,
};
use super::super::block::State;
use super::super::shared::{AccessProblem, Accessor};
use super::super::warp::lanes_of;
use super::super::{Mistake, mistake};
use super::warp::Warp;
use crate::program::{Address, Op, Order, Reg, Rmw, Space, WINDOW_SHIFT};
use crate::report::{EventKind, FindingKind, MemoryAccess, Severity};

/// Largest load of which the end may lie behind an allocation: compilers widen loads up to this.
const WIDEST: u64 = 16;

impl Warp<'_> {
    fn accessor(&self, lane: usize, strong: bool) -> Accessor {
        accessor(self, lane, strong)
    }

    fn note(&self, state: &mut State<'_>, lane: usize, at: usize, problem: Option<AccessProblem>) {
        note(self, state, lane, at, problem);
    }

    pub(super) fn load(
        &mut self,
        state: &mut State<'_>,
        load: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let Op::Load { at, dst, width, signed, order, used } = load else { return Ok(()) };
        let (width, signed, order) = (*width, *signed, *order);
        let size = width * dst.len() as u64;
        let base = *self.register(at.base);
        let registers = self.frame().registers;
        let watched = state.grid.memory.shadow().is_some();
        let mut checked = None;
        for lane in lanes_of(mask) {
            let address = effective(at, base[lane]);
            let located =
                self.private.locate(state, lane, at.space, (address, size), MemoryAccess::Read);
            let target = match located {
                Ok(target) => target,
                Err(mistake) => {
                    let words = self.over_the_end(state, lane, at.space, address, load, mistake)?;
                    for (dst, value) in dst.iter().zip(words) {
                        let Some(dst) = dst else { continue };
                        let value = if signed { extend(value, width) } else { value };
                        self.registers[registers + *dst as usize][lane] = value;
                    }
                    continue;
                }
            };
            if order.strong {
                wait_for_turn(state, target);
            }
            // Lanes often read the same: once is enough.
            match target {
                Target::Shared(offset) if checked != Some(offset) => {
                    let problem =
                        state.shared.read(self.accessor(lane, order.strong), offset, size);
                    self.note(state, lane, offset, problem);
                    checked = Some(offset);
                }
                Target::Global(_) if watched => {
                    watch_read(self, state, lane, (address, size), used.bytes, order.strong);
                }
                _ => {}
            }
            for (part, dst) in dst.iter().enumerate() {
                let Some(dst) = dst else { continue };
                let value = self.private.get(state, lane, target, part as u64 * width, width);
                let value = if signed { extend(value, width) } else { value };
                self.registers[registers + *dst as usize][lane] = value;
            }
        }
        if order.acquire {
            state.shared.fence(self.core.index);
        }
        state.ordered |= order.strong;
        self.turns.watches |= order.strong;
        Ok(())
    }

    /// The values of a load that begins inside an allocation and ends behind it. It is a mistake if the
    /// compiler says that bytes from there are used, and none if no code uses them; else it is noted.
    fn over_the_end(
        &self,
        state: &mut State<'_>,
        lane: usize,
        space: Space,
        address: u64,
        load: &Op,
        mistake: Box<Mistake>,
    ) -> Result<Vec<u64>, Box<Mistake>> {
        let Op::Load { dst, width, used, .. } = load else { return Err(mistake) };
        let size = width * dst.len() as u64;
        let global = matches!(space, Space::Global)
            || matches!(space, Space::Generic) && address >> WINDOW_SHIFT == 0;
        if !global || address % size != 0 || size > WIDEST {
            return Err(mistake);
        }
        let Some((start, end)) = state.grid.memory.find(address) else { return Err(mistake) };
        let inside = end - address;
        let Some(part) = state.allocations.locate(address, inside) else { return Err(mistake) };
        if used.bytes >> inside & low_bits(size - inside) != 0 {
            if used.declared {
                return Err(mistake);
            }
            let message = format!(
                "{size} bytes at {address:#x}, the last {} of them behind an allocation of {}: wrong if the \
                 kernel uses them, and no mistake if the compiler widened the load",
                size - inside,
                end - start
            );
            state.note(self, FindingKind::OutOfBounds, Severity::Note, lane, |_| message);
        }
        let byte = |at: u64| if at < inside { part.load(at, 1) } else { 0 };
        let word = |first: u64| (0..*width).fold(0, |all, at| all | byte(first + at) << (8 * at));
        Ok((0..dst.len() as u64).map(|part| word(part * width)).collect())
    }

    pub(super) fn store(
        &mut self,
        state: &mut State<'_>,
        at: &Address,
        src: &[Reg],
        width: u64,
        order: Order,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let size = width * src.len() as u64;
        let base = *self.register(at.base);
        if order.release {
            state.shared.fence(self.core.index);
        }
        let mut stored = 0u32;
        for lane in lanes_of(mask) {
            let address = effective(at, base[lane]);
            let target =
                self.private.locate(state, lane, at.space, (address, size), MemoryAccess::Write)?;
            if order.strong {
                wait_for_turn(state, target);
            }
            if let Target::Shared(offset) = target {
                let mut problem =
                    state.shared.write(self.accessor(lane, order.strong), offset, size);
                if let Some(AccessProblem::Race { write: true, values, .. }) = &mut problem {
                    let words = src.iter().map(|src| self.register(*src)[lane].to_le_bytes());
                    let new = words.flat_map(|word| word.into_iter().take(width as usize));
                    *values = Some((state.shared.bytes(offset, size).to_vec(), new.collect()));
                }
                self.note(state, lane, offset, problem);
                stored |= 1 << lane;
            } else if matches!(target, Target::Global(_)) {
                let new = (src.len() == 1).then(|| self.register(src[0])[lane]);
                watch_write(self, state, lane, (address, size), order.strong, new);
            }
            for (part, src) in src.iter().enumerate() {
                let value = self.register(*src)[lane];
                self.private.put(state, lane, target, part as u64 * width, width, value);
            }
        }
        self.observe(state, stored, |warp| EventKind::SharedStore {
            value: warp.uniform(src[0], stored) & low(width),
        });
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        state: &mut State<'_>,
        op: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let Op::Atomic { at, dst, rmw, src, width, order, commutes } = op else { return Ok(()) };
        let base = *self.register(at.base);
        if order.release {
            state.shared.fence(self.core.index);
        }
        let mut out = [0; 32];
        let mut on_shared = false;
        for lane in lanes_of(mask) {
            let address = effective(at, base[lane]);
            let target = self.private.locate(
                state,
                lane,
                at.space,
                (address, *width),
                MemoryAccess::Atomic,
            )?;
            if dst.is_some() || !commutes || state.grid.launch.observe {
                wait_for_turn(state, target);
            }
            let operand = self.register(*src)[lane];
            let wanted = match rmw {
                Rmw::CompareSwap(compare) => self.register(*compare)[lane] & low(*width),
                _ => 0,
            };
            let in_global = matches!(target, Target::Global(_));
            let change = |old| rmw.change(old, operand, wanted, in_global);
            on_shared |= matches!(target, Target::Shared(_));
            let used = dst.is_some();
            out[lane] = update(self, state, lane, target, (address, *width), used, change)?;
        }
        if order.acquire {
            state.shared.fence(self.core.index);
        }
        let old = out[mask.trailing_zeros() as usize & 31];
        self.observe(state, mask, |_| EventKind::Atomic { old, shared: on_shared });
        // Who takes nothing from it learns of nobody.
        state.ordered |= dst.is_some();
        if let Some(dst) = dst {
            self.turns.watches = true;
            self.write(*dst, &out, mask);
        }
        Ok(())
    }

    pub(super) fn copy_async(
        &mut self,
        state: &mut State<'_>,
        to: &Address,
        from: &Address,
        size: u64,
        source_size: Reg,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        for lane in lanes_of(mask) {
            let source = effective(from, self.register(from.base)[lane]);
            let target = effective(to, self.register(to.base)[lane]);
            let target = self.private.locate(
                state,
                lane,
                Space::Shared,
                (target, size),
                MemoryAccess::Write,
            )?;
            let wanted = self.register(source_size)[lane].min(size);
            let Target::Shared(offset) = target else { continue };
            let problem = state.shared.write(self.accessor(lane, false), offset, size);
            self.note(state, lane, offset, problem);
            for at in 0..size {
                let byte = if at < wanted {
                    let cell = self.private.locate(
                        state,
                        lane,
                        Space::Global,
                        (source + at, 1),
                        MemoryAccess::Read,
                    )?;
                    watch_read(self, state, lane, (source + at, 1), 1, false);
                    self.private.get(state, lane, cell, 0, 1)
                } else {
                    0
                };
                self.private.put(state, lane, target, at, 1, byte);
            }
        }
        Ok(())
    }

    /// Copies in pieces of 16 bytes, of which places and sizes must be multiples.
    pub(super) fn copy_bulk(
        &mut self,
        state: &mut State<'_>,
        to: &Address,
        from: &Address,
        size: Reg,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        const PIECE: u64 = 16;
        for lane in lanes_of(mask) {
            let source = effective(from, self.register(from.base)[lane]);
            let target = effective(to, self.register(to.base)[lane]);
            let size = self.register(size)[lane] & low(4);
            if (source | target | size) % PIECE != 0 {
                let message = format!(
                    "a bulk copy of {size} bytes from {source:#x} to {target:#x}: not all are multiples of {PIECE}"
                );
                return mistake(FindingKind::Misaligned, lane, message);
            }
            for at in (0..size).step_by(8) {
                let word = self.checked_load(state, lane, from.space, source + at, 8)?;
                self.checked_store(state, lane, to.space, target + at, 8, word)?;
            }
        }
        Ok(())
    }

    /// Reads up to 8 bytes of any space, as a load of its own.
    pub(super) fn checked_load(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        space: Space,
        address: u64,
        width: u64,
    ) -> Result<u64, Box<Mistake>> {
        let target =
            self.private.locate(state, lane, space, (address, width), MemoryAccess::Read)?;
        if let Target::Shared(offset) = target {
            let problem = state.shared.read(self.accessor(lane, false), offset, width);
            self.note(state, lane, offset, problem);
        } else if matches!(target, Target::Global(_)) {
            watch_read(self, state, lane, (address, width), u64::MAX, false);
        }
        Ok(self.private.get(state, lane, target, 0, width))
    }

    /// Writes up to 8 bytes of any space, as a store of its own.
    pub(super) fn checked_store(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        space: Space,
        address: u64,
        width: u64,
        value: u64,
    ) -> Result<(), Box<Mistake>> {
        let target =
            self.private.locate(state, lane, space, (address, width), MemoryAccess::Write)?;
        if let Target::Shared(offset) = target {
            let problem = state.shared.write(self.accessor(lane, false), offset, width);
            self.note(state, lane, offset, problem);
        } else if matches!(target, Target::Global(_)) {
            watch_write(self, state, lane, (address, width), false, Some(value));
        }
        self.private.put(state, lane, target, 0, width, value);
        Ok(())
    }
}

/// The address that a lane accesses. Those of shared and local memory have 32 bits, in which sums wrap.
pub(super) fn effective(at: &Address, base: u64) -> u64 {
    let narrow = matches!(at.space, Space::Shared | Space::Local) && base <= u32::MAX.into();
    if narrow {
        u64::from((base as u32).wrapping_add(at.offset as u32))
    } else {
        base.wrapping_add_signed(at.offset)
    }
}

fn low_bits(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Extends by the sign, except 32 bits, which fill their register.
fn extend(value: u64, width: u64) -> u64 {
    match width {
        1 => value as i8 as u64,
        2 => value as i16 as u64,
        _ => value,
    }
}
