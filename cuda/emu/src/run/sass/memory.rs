//! Loads, stores, atomics and copies.

use super::super::access::{
    Target, accessor, low, note, update, wait_for_turn, watch_read, watch_write,
};
use super::super::block::State;
use super::super::shared::{AccessProblem, Site};
use super::super::warp::lanes_of;
use super::super::{Mistake, mistake, read_word};
use super::warp::{Warp, ZEROS};
use crate::lanes::mbarrier;
use crate::memory::GlobalAddress;
use crate::program::{Rmw, Space, WINDOW_SHIFT};
use crate::report::{EventKind, FindingKind, MemoryAccess};
use crate::sass::{Address, BANK_BYTES, Op, Row, Source};

/// Bytes of the widest access of a warp.
const WIDEST: usize = 32 * 16;

impl Warp<'_> {
    /// The address that each lane accesses.
    fn addresses(&self, at: &Address) -> [u64; 32] {
        let base = at.base.map_or(&ZEROS, |base| self.row(base));
        let high = match at.base {
            Some(base) if at.wide => self.row(base.saturating_add(1)),
            _ => &ZEROS,
        };
        let narrow = matches!(at.space, Space::Shared | Space::Local);
        let uniform = match at.uniform {
            Some(number) if narrow => self.now.get(number).into(),
            Some(number) => self.now.get_wide(number),
            None => 0,
        };
        std::array::from_fn(|lane| {
            let base = u64::from(base[lane]) | u64::from(high[lane]) << 32;
            let scaled = base.wrapping_mul(at.scale.into()).wrapping_add(uniform);
            let address = scaled.wrapping_add_signed(at.offset);
            if narrow { u64::from(address as u32) } else { address }
        })
    }

    pub(super) fn load(
        &mut self,
        state: &mut State<'_>,
        load: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let Op::Load { at, to, width, parts, signed, strong, really } = load else {
            return Ok(());
        };
        let reading = mask & self.holds(*really);
        let size = width * u64::from(*parts);
        let addresses = self.addresses(at);
        if at.space == Space::Shared
            && *width == 4
            && !strong
            && reading == mask
            && self.words(state, &addresses, *to, size, mask)
        {
            return Ok(());
        }
        let is_plain = !strong && reading == mask;
        let bytes =
            is_plain.then(|| self.read_side_by_side(state, at.space, &addresses, size, mask));
        if let Some(bytes) = bytes.flatten() {
            let mut values = [ZEROS; 4];
            for (lane, bytes) in lanes_of(mask).zip(bytes.chunks(size as usize)) {
                for (values, part) in values.iter_mut().zip(bytes.chunks(*width as usize)) {
                    let value = read_word(part, *width);
                    values[lane] = if *signed { extend(value, *width) } else { value as u32 };
                }
            }
            self.write_parts(*to, *parts, &values, mask);
            return Ok(());
        }
        // Nothing says which parts of a vector the kernel uses.
        let used = if *parts == 1 { u64::MAX } else { 0 };
        let watched = state.grid.memory.shadow().is_some();
        let mut values = [ZEROS; 4];
        let mut checked = None;
        for lane in lanes_of(reading) {
            let target = self.private.locate(
                state,
                lane,
                at.space,
                (addresses[lane], size),
                MemoryAccess::Read,
            )?;
            if *strong {
                wait_for_turn(state, target);
            }
            // Lanes often read the same: once is enough.
            match target {
                Target::Shared(offset) if checked != Some(offset) => {
                    let problem = state.shared.read(accessor(self, lane, *strong), offset, size);
                    note(self, state, lane, offset, problem);
                    checked = Some(offset);
                }
                Target::Global(_) if watched => {
                    watch_read(self, state, lane, (addresses[lane], size), used, *strong);
                }
                _ => {}
            }
            for (part, values) in values.iter_mut().enumerate().take((*parts).into()) {
                let value = self.private.get(state, lane, target, part as u64 * width, *width);
                values[lane] = if *signed { extend(value, *width) } else { value as u32 };
            }
        }
        state.ordered |= *strong;
        self.write_parts(*to, *parts, &values, mask);
        Ok(())
    }

    fn write_parts(&mut self, to: u8, parts: u8, values: &[[u32; 32]; 4], mask: u32) {
        for (part, values) in values.iter().enumerate().take(parts.into()) {
            if to != crate::sass::ZERO {
                self.write(to.saturating_add(part as u8), values, mask);
            }
        }
    }

    /// Where lanes that follow each other access bytes that do, which is what most do: in memory that is no allocation
    /// each access is looked up anew. None where a detector is to see each lane.
    fn side_by_side<'a>(
        &self,
        state: &mut State<'a>,
        space: Space,
        addresses: &[u64; 32],
        size: u64,
        mask: u32,
    ) -> Option<GlobalAddress<'a>> {
        let memory = state.grid.memory;
        let is_global = matches!(space, Space::Global | Space::Generic);
        if !is_global || !memory.has_foreign() || memory.shadow().is_some() {
            return None;
        }
        let lane = mask.trailing_zeros();
        let lanes = mask.checked_shr(lane)?;
        if lanes & lanes.wrapping_add(1) != 0 {
            return None;
        }
        let lane = lane as usize;
        let first = *addresses.get(lane)?;
        let mut next = first;
        for lane in lanes_of(mask) {
            if addresses[lane] != next {
                return None;
            }
            next = next.wrapping_add(size);
        }
        match self.private.locate(state, lane, space, (first, size), MemoryAccess::Read).ok()? {
            Target::Global(_) => state.allocations.locate(first, next.checked_sub(first)?),
            _ => None,
        }
    }

    /// The bytes of all lanes, where they are side by side.
    fn read_side_by_side(
        &self,
        state: &mut State<'_>,
        space: Space,
        addresses: &[u64; 32],
        size: u64,
        mask: u32,
    ) -> Option<[u8; WIDEST]> {
        let place = self.side_by_side(state, space, addresses, size, mask)?;
        let mut bytes = [0; WIDEST];
        let length = size as usize * mask.count_ones() as usize;
        place.read_foreign(bytes.get_mut(..length)?).then_some(bytes)
    }

    /// Loads words of shared memory, if all are there and aligned: what most loads of kernels are.
    fn words(
        &mut self,
        state: &mut State<'_>,
        addresses: &[u64; 32],
        to: u8,
        size: u64,
        mask: u32,
    ) -> bool {
        let end = state.shared.size() as u64;
        let fits = |lane: usize| addresses[lane] % size == 0 && addresses[lane] + size <= end;
        if !lanes_of(mask).all(fits) {
            return false;
        }
        let mut checked = None;
        for lane in lanes_of(mask) {
            let offset = addresses[lane] as usize;
            // Lanes often read the same: once is enough.
            if checked != Some(offset) {
                let problem = state.shared.read(accessor(self, lane, false), offset, size);
                note(self, state, lane, offset, problem);
                checked = Some(offset);
            }
            if to == crate::sass::ZERO {
                continue;
            }
            for part in 0..size / 4 {
                let word = state.shared.word(offset + part as usize * 4);
                if let Some(row) = self.registers.get_mut(usize::from(to) + part as usize) {
                    row[lane] = word;
                }
            }
        }
        true
    }

    pub(super) fn store(
        &mut self,
        state: &mut State<'_>,
        store: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let Op::Store { at, from, width, parts, strong } = store else { return Ok(()) };
        let size = width * u64::from(*parts);
        let addresses = self.addresses(at);
        let mut values = [ZEROS; 4];
        for (part, values) in values.iter_mut().enumerate().take((*parts).into()) {
            if *from != crate::sass::ZERO {
                *values = *self.row(from.saturating_add(part as u8));
            }
        }
        let place = (!strong).then(|| self.side_by_side(state, at.space, &addresses, size, mask));
        if let Some(place) = place.flatten() {
            let mut bytes = [0; WIDEST];
            for (lane, bytes) in lanes_of(mask).zip(bytes.chunks_mut(size as usize)) {
                for (values, part) in values.iter().zip(bytes.chunks_mut(*width as usize)) {
                    part.copy_from_slice(&values[lane].to_le_bytes()[..part.len()]);
                }
            }
            if place.write_foreign(&bytes[..size as usize * mask.count_ones() as usize]) {
                return Ok(());
            }
        }
        let mut stored = 0u32;
        for lane in lanes_of(mask) {
            let target = self.private.locate(
                state,
                lane,
                at.space,
                (addresses[lane], size),
                MemoryAccess::Write,
            )?;
            if *strong {
                wait_for_turn(state, target);
            }
            if let Target::Shared(offset) = target {
                let mut problem = state.shared.write(accessor(self, lane, *strong), offset, size);
                if let Some(AccessProblem::Race { write: true, values: both, .. }) = &mut problem {
                    let words =
                        values.iter().take((*parts).into()).map(|row| row[lane].to_le_bytes());
                    let new = words.flat_map(|word| word.into_iter().take(*width as usize));
                    *both = Some((state.shared.bytes(offset, size).to_vec(), new.collect()));
                }
                note(self, state, lane, offset, problem);
                stored |= 1 << lane;
            } else if matches!(target, Target::Global(_)) {
                let new = (*parts == 1).then(|| values[0][lane].into());
                watch_write(self, state, lane, (addresses[lane], size), *strong, new);
            }
            for (part, values) in values.iter().enumerate().take((*parts).into()) {
                let value = u64::from(values[lane]);
                self.private.put(state, lane, target, part as u64 * width, *width, value);
            }
        }
        let value = u64::from(values[0][stored.trailing_zeros() as usize & 31]) & low(*width);
        self.observe(state, stored, EventKind::SharedStore { value });
        Ok(())
    }

    fn observe(&mut self, state: &State<'_>, mask: u32, kind: EventKind) {
        let site = Site { function: 0, pc: self.site };
        self.core.observe(state, site, mask, || kind);
    }

    /// The values of a register, or of two.
    pub(super) fn long(&self, number: u8, wide: bool) -> [u64; 32] {
        let (low, high) = (self.row(number), self.row(number.saturating_add(1)));
        std::array::from_fn(|lane| {
            u64::from(low[lane]) | if wide { u64::from(high[lane]) << 32 } else { 0 }
        })
    }

    pub(super) fn write_long(&mut self, number: u8, values: &[u64; 32], wide: bool, mask: u32) {
        self.write(number, &values.map(|value| value as u32), mask);
        if wide {
            self.write(number.saturating_add(1), &values.map(|value| (value >> 32) as u32), mask);
        }
    }

    pub(super) fn atomic(
        &mut self,
        state: &mut State<'_>,
        op: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let Op::Atomic { at, to, done, rmw, from, width, parts, commutes, test } = op else {
            return Ok(());
        };
        let wide = *width == 8;
        let addresses = self.addresses(at);
        let wanted = match rmw {
            Rmw::CompareSwap(number) => self.long(*number as u8, wide),
            _ => [0; 32],
        };
        let mut out = [[0; 32]; 4];
        let (mut changed, mut on_shared) = (0u32, false);
        // All of it, where there is no vector.
        let mut places = [None; 32];
        for lane in lanes_of(mask) {
            let (address, size) = (addresses[lane], width * u64::from(*parts));
            let target = self.private.locate(
                state,
                lane,
                at.space,
                (address, size),
                MemoryAccess::Atomic,
            )?;
            if to.is_some() || !commutes || state.grid.launch.observe {
                wait_for_turn(state, target);
            }
            on_shared |= matches!(target, Target::Shared(_));
            places[lane] = (*parts == 1).then_some(target);
        }
        for (part, out) in out.iter_mut().enumerate().take((*parts).into()) {
            let operands = match *from {
                crate::sass::ZERO => [0; 32],
                from => self.long(from.saturating_add(part as u8), wide),
            };
            for lane in lanes_of(mask) {
                let address = addresses[lane] + width * part as u64;
                let target = match places[lane] {
                    Some(target) => target,
                    None => self.private.locate(
                        state,
                        lane,
                        at.space,
                        (address, *width),
                        MemoryAccess::Atomic,
                    )?,
                };
                let in_global = matches!(target, Target::Global(_));
                let change = |old| rmw.change(old, operands[lane], wanted[lane], in_global);
                let used = to.is_some();
                out[lane] = update(self, state, lane, target, (address, *width), used, change)?;
                changed |= u32::from(out[lane] == wanted[lane]) << lane;
            }
        }
        let old = out[0][mask.trailing_zeros() as usize & 31];
        self.observe(state, mask, EventKind::Atomic { old, shared: on_shared });
        // Who takes nothing from it learns of nobody.
        state.ordered |= to.is_some() || *done != crate::sass::TRUE;
        if let Some(to) = to {
            if *test {
                let changed = std::array::from_fn(|lane| u64::from(changed >> lane & 1));
                self.write_long(*to, &changed, wide, mask);
            } else {
                for (part, out) in out.iter().enumerate().take((*parts).into()) {
                    self.write_long(to.saturating_add(part as u8), out, wide, mask);
                }
            }
        }
        self.write_predicate(*done, if *test { changed } else { mask }, mask);
        Ok(())
    }

    /// An arrival at a barrier in memory: copies that it waits for are complete.
    pub(super) fn arrive_in_memory(
        &mut self,
        state: &mut State<'_>,
        at: &Address,
        to: Option<u8>,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        const BYTES: u64 = 8;
        let addresses = self.addresses(at);
        let mut out = [0; 32];
        for lane in lanes_of(mask) {
            let target = self.private.locate(
                state,
                lane,
                at.space,
                (addresses[lane], BYTES),
                MemoryAccess::Atomic,
            )?;
            if let Target::Shared(offset) = target {
                let who = accessor(self, lane, true);
                let problem = state.shared.arrive_in_memory(who, offset, BYTES);
                note(self, state, lane, offset, problem);
            }
            out[lane] = self.private.get(state, lane, target, 0, BYTES);
            let new = mbarrier::arrive_in_halves(out[lane]);
            self.private.put(state, lane, target, 0, BYTES, new);
        }
        let old = out[mask.trailing_zeros() as usize & 31];
        self.observe(state, mask, EventKind::Atomic { old, shared: true });
        if let Some(to) = to {
            self.write_long(to, &out, true, mask);
        }
        Ok(())
    }

    pub(super) fn constant(&mut self, op: &Op, mask: u32) -> Result<(), Box<Mistake>> {
        let Op::Constant { target, bank, index, offset, width, signed } = op else {
            return Ok(());
        };
        let index = match index {
            Source::Uniform(number) => [self.now.get(*number); 32],
            Source::Register(number) => *self.row(*number),
            _ => ZEROS,
        };
        let bytes = self.code.banks.get(*bank).map_or(&[][..], Vec::as_slice);
        let (mut low, mut high) = (ZEROS, ZEROS);
        for lane in lanes_of(mask) {
            // Of a negative sum the offset is one of the upper half of a bank.
            let at = match i64::from(index[lane] as i32) + *offset {
                at @ ..0 => at + BANK_BYTES,
                at => at,
            };
            let range = usize::try_from(at).ok().map(|at| at..at + *width as usize);
            let Some(word) = range.and_then(|range| bytes.get(range)) else {
                let message = format!(
                    "{width} bytes at c[{bank:#x}][{at:#x}], which has {} bytes",
                    bytes.len()
                );
                return mistake(FindingKind::OutOfBounds, lane, message);
            };
            let value = read_word(word, *width);
            low[lane] = if *signed { extend(value, *width) } else { value as u32 };
            high[lane] = (value >> 32) as u32;
        }
        self.write_target(*target, &low, mask);
        if *width == 8 {
            self.write_target(Self::behind(*target), &high, mask);
        }
        Ok(())
    }

    pub(super) fn copy(
        &mut self,
        state: &mut State<'_>,
        op: &Op,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let Op::CopyAsync { to, from, size, really, fills } = op else { return Ok(()) };
        let (targets, sources) = (self.addresses(to), self.addresses(from));
        let really = self.holds(*really);
        for lane in lanes_of(mask) {
            let target = self.private.locate(
                state,
                lane,
                Space::Shared,
                (targets[lane], *size),
                MemoryAccess::Write,
            )?;
            let Target::Shared(offset) = target else { continue };
            let problem = state.shared.write(accessor(self, lane, false), offset, *size);
            note(self, state, lane, offset, problem);
            let skipped = if *fills { sources[lane] % size } else { 0 };
            let (source, copied) = match really >> lane & 1 {
                0 => (0, 0),
                _ => (sources[lane] - skipped, size - skipped),
            };
            // All of it is in one place; of a part, nothing says so.
            let whole = match copied == *size {
                true => Some(self.private.locate(
                    state,
                    lane,
                    from.space,
                    (source, *size),
                    MemoryAccess::Read,
                )?),
                false => None,
            };
            let step = if copied % 4 == 0 { 4 } else { 1 };
            for at in (0..*size).step_by(step as usize) {
                let value = match whole {
                    Some(whole) => self.private.get(state, lane, whole, at, step),
                    None if at < copied => {
                        let cell = self.private.locate(
                            state,
                            lane,
                            from.space,
                            (source + at, step),
                            MemoryAccess::Read,
                        )?;
                        self.private.get(state, lane, cell, 0, step)
                    }
                    None => 0,
                };
                self.private.put(state, lane, target, at, step, value);
            }
            if copied != 0 {
                watch_read(self, state, lane, (source, copied), u64::MAX, false);
            }
        }
        Ok(())
    }

    /// Matrices of 8 by 8 numbers of 16 bits: eight lanes each have the addresses of one's rows.
    pub(super) fn load_matrix(
        &mut self,
        state: &mut State<'_>,
        at: &Address,
        to: u8,
        count: u8,
        transposed: bool,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let addresses = self.addresses(at);
        let mut rows = [[0u16; 8]; 32];
        for lane in lanes_of(mask & lanes_of_rows(count)) {
            let target = self.private.locate(
                state,
                lane,
                Space::Shared,
                (addresses[lane], MATRIX_ROW),
                MemoryAccess::Read,
            )?;
            let Target::Shared(offset) = target else { continue };
            let problem = state.shared.read(accessor(self, lane, false), offset, MATRIX_ROW);
            note(self, state, lane, offset, problem);
            for (column, value) in rows[lane].iter_mut().enumerate() {
                *value = self.private.get(state, lane, target, 2 * column as u64, 2) as u16;
            }
        }
        for matrix in 0..usize::from(count) {
            let value: Row = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                let at = |row: usize, column: usize| match transposed {
                    true => u32::from(rows[8 * matrix + column][row]),
                    false => u32::from(rows[8 * matrix + row][column]),
                };
                at(row, column) | at(row, column + 1) << 16
            });
            self.write(to.saturating_add(matrix as u8), &value, mask);
        }
        Ok(())
    }

    /// Matrices from registers, the same way.
    pub(super) fn store_matrix(
        &mut self,
        state: &mut State<'_>,
        at: &Address,
        from: u8,
        count: u8,
        transposed: bool,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let addresses = self.addresses(at);
        for lane in lanes_of(mask & lanes_of_rows(count)) {
            let target = self.private.locate(
                state,
                lane,
                Space::Shared,
                (addresses[lane], MATRIX_ROW),
                MemoryAccess::Write,
            )?;
            let Target::Shared(offset) = target else { continue };
            let problem = state.shared.write(accessor(self, lane, false), offset, MATRIX_ROW);
            note(self, state, lane, offset, problem);
            let words = *self.row(from.saturating_add(lane as u8 / 8));
            for column in 0..8 {
                let (major, minor) = match transposed {
                    true => (column, lane % 8),
                    false => (lane % 8, column),
                };
                let value = words[major * 4 + minor / 2] >> (minor % 2 * 16) & 0xffff;
                self.private.put(state, lane, target, 2 * column as u64, 2, value.into());
            }
        }
        Ok(())
    }

    /// Whether a generic address is one of shared memory, or of global memory.
    pub(super) fn query(&mut self, outcome: u8, at: &Address, window: u64, mask: u32) {
        let windows = self.addresses(at).map(|address| address >> WINDOW_SHIFT << WINDOW_SHIFT);
        let holds = (0..32).fold(0, |mask, lane| mask | u32::from(windows[lane] == window) << lane);
        self.write_predicate(outcome, holds, mask);
    }
}

/// Bytes of a row of a matrix that is loaded or stored as one.
const MATRIX_ROW: u64 = 16;

/// The lanes that have addresses of rows of so many matrices: eight for each.
fn lanes_of_rows(count: u8) -> u32 {
    if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 }
}

/// Extends by the sign.
fn extend(value: u64, width: u64) -> u32 {
    match width {
        1 => value as i8 as u32,
        2 => value as i16 as u32,
        _ => value as u32,
    }
}
