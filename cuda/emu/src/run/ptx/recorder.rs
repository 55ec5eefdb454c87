//! The record of a branch, which is one operation here: see `program/decode/recorder.rs`.
//!
//! It does what its instructions would, but for the places where lanes that do not record count: nobody reads those.
//! And it is none of the program's: it orders nothing, and lanes that run in circles do not wait for it.

use super::super::Mistake;
use super::super::access::{update, watch_write};
use super::super::block::State;
use super::super::warp::lanes_of;
use super::warp::Warp;
use crate::program::{RecordBranch, Space};
use crate::report::MemoryAccess;

/// What of an event's first word says that a word with lanes follows, and that the branch is taken: as the cursor
/// counts, and by itself.
const TAKEN: u32 = 0x0800_0000;
/// Half words of an event where all lanes go one way.
const SHORT: u32 = 2;

impl Warp<'_> {
    pub(super) fn record_branch(
        &mut self,
        state: &mut State<'_>,
        op: &RecordBranch,
        mask: u32,
    ) -> Result<(), Box<Mistake>> {
        let condition = *self.register(op.condition);
        self.write(op.taken, &condition, mask);
        let below = self.register(op.below);
        let Some(lane) = lanes_of(mask).find(|lane| mask & below[*lane] as u32 == 0) else {
            return Ok(());
        };
        let is_taken = condition[lane] & 1 != 0;
        let taken = self.truths(op.condition, mask);
        let way = if is_taken { taken } else { mask & !taken };
        let of = |reg| self.register(reg)[lane];
        let (slot, end, site) = (of(op.slot) & 0xffff_ffff, of(op.end) as u32, of(op.site) as u32);
        let (events, scale) = (of(op.events), of(op.scale) as u32);
        let is_split = way != mask;
        let count = if is_split { scale } else { SHORT };
        let cursor =
            self.private.locate(state, lane, Space::Shared, (slot, 4), MemoryAccess::Atomic)?;
        let counted = |old: u64| u64::from((old as u32).wrapping_add(count));
        let at = update(self, state, lane, cursor, (slot, 4), true, counted)? as u32;
        let word = count.wrapping_mul(TAKEN).wrapping_add(site);
        let word = word.wrapping_add(if is_taken { TAKEN } else { 0 });
        let to = events.wrapping_add(u64::from(at.min(end)) * u64::from(scale));
        self.record_words(state, lane, to, &[word, mask])?;
        if is_split {
            self.record_words(state, lane, to.wrapping_add(8), &[way])?;
        }
        Ok(())
    }

    fn record_words(
        &mut self,
        state: &mut State<'_>,
        lane: usize,
        to: u64,
        words: &[u32],
    ) -> Result<(), Box<Mistake>> {
        let size = size_of_val(words) as u64;
        let target =
            self.private.locate(state, lane, Space::Global, (to, size), MemoryAccess::Write)?;
        // Warps whose room is used up write to one place.
        watch_write(self, state, lane, (to, size), true, None);
        for (at, word) in words.iter().enumerate() {
            self.private.put(state, lane, target, 4 * at as u64, 4, (*word).into());
        }
        Ok(())
    }
}
