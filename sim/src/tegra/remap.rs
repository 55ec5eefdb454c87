//! Memory put into sparse reservations, page by page: REMAP.
//!
//! G/os/linux/ioctl_as.c:331-400, os/linux/vm_remap.c, common/mm/vm_remap.c.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::args::{self, Args, as_bytes};
use super::nvmap::BufferId;
use super::space::{SpaceId, Target};
use super::{Errno, Kernel, PAGE, Result};
use crate::backing::Backing;
use crate::client::Client;
use crate::memory::Access;
use crate::tegra::abi::*;

/// No more is given to a driver at once: what it copies the operations to must be in one piece.
const MOST: u64 = (4 << 20) / size_of::<nvgpu_as_remap_op>() as u64;

const PAGE_SIZES: u32 = NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K
    | NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_64K
    | NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_128K;
const MAP_FLAGS: u32 =
    PAGE_SIZES | NVGPU_AS_REMAP_OP_FLAGS_CACHEABLE | NVGPU_AS_REMAP_OP_FLAGS_ACCESS_NO_WRITE;

/// What was put into the reservations of a space, by address. Nothing overlaps.
#[derive(Debug, Default)]
pub(super) struct Remaps {
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Debug, Clone)]
struct Piece {
    size: u64,
    buffer: BufferId,
    memory: Arc<Backing>,
    offset: u64,
    writable: bool,
}

/// Buffers that have one more reference, and those that have one less.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) taken: Vec<BufferId>,
    pub(super) released: Vec<BufferId>,
}

impl Piece {
    /// What is left of it behind some bytes.
    fn behind(&self, bytes: u64) -> Self {
        Self { size: self.size - bytes, offset: self.offset + bytes, ..self.clone() }
    }
}

impl Remaps {
    /// What is at an address, and how many bytes of it follow.
    pub(super) fn target(&self, at: u64) -> Option<(Target, u64)> {
        let (start, piece) = self.pieces.range(..=at).next_back()?;
        let rest = piece.behind((at - start).min(piece.size));
        let Piece { size, memory, offset, writable, .. } = rest;
        (size > 0).then_some((Target::Memory { memory, offset, writable }, size))
    }

    /// Each piece: where it begins, its size, its memory from an offset on, and whether it may be written.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, u64, &Arc<Backing>, u64, bool)> {
        self.pieces
            .iter()
            .map(|(at, piece)| (*at, piece.size, &piece.memory, piece.offset, piece.writable))
    }

    /// Where the next of them begins.
    pub(super) fn next(&self, at: u64) -> Option<u64> {
        self.pieces.range(at..).next().map(|(start, _)| *start)
    }

    /// Takes out what is in a range.
    pub(super) fn clear(&mut self, at: u64, size: u64) -> Change {
        let mut change = Change::default();
        let end = at + size;
        let before = self.pieces.range(..at).next_back().map(|(start, _)| *start);
        let inside = self.pieces.range(at..end).map(|(start, _)| *start);
        let all: Vec<u64> = before.into_iter().chain(inside).collect();
        for start in all {
            let Some(piece) = self.pieces.get(&start).cloned() else { continue };
            if start + piece.size <= at {
                continue;
            }
            self.pieces.remove(&start);
            change.released.push(piece.buffer);
            if start < at {
                self.put(start, Piece { size: at - start, ..piece.clone() }, &mut change);
            }
            if start + piece.size > end {
                self.put(end, piece.behind(end - start), &mut change);
            }
        }
        change
    }

    fn put(&mut self, at: u64, piece: Piece, change: &mut Change) {
        change.taken.push(piece.buffer);
        self.pieces.insert(at, piece);
    }

    /// The buffers of all of them.
    pub(super) fn into_buffers(self) -> impl Iterator<Item = BufferId> {
        self.pieces.into_values().map(|piece| piece.buffer)
    }
}

impl Kernel {
    pub(super) fn remap(
        &mut self,
        client: &dyn Client,
        id: SpaceId,
        args: &mut Args,
    ) -> Result<i64> {
        let wanted: nvgpu_as_remap_args = args.get();
        if wanted.num_ops == 0 {
            return Ok(0);
        }
        if u64::from(wanted.num_ops) > MOST {
            return Err(Errno::ENOMEM);
        }
        let size = size_of::<nvgpu_as_remap_op>() as u64;
        let place = |index: usize| wanted.ops.wrapping_add(index as u64 * size);
        let mut ops = Vec::new();
        let limit = self.space_mut(id)?.limit();
        for index in 0..wanted.num_ops as usize {
            let op: nvgpu_as_remap_op = args::read(client, place(index))?;
            check(&op, limit).inspect_err(|_| none_done(args))?;
            ops.push(op);
        }
        self.put_all(client, id, &ops).inspect_err(|_| none_done(args))?;
        // The driver copies the last operation over all others: each keeps its kinds alone.
        let Some(last) = ops.last().copied() else { return Ok(0) };
        for (index, op) in ops.iter().enumerate() {
            let told = nvgpu_as_remap_op {
                compr_kind: op.compr_kind,
                incompr_kind: op.incompr_kind,
                ..last
            };
            if let Err(errno) = args::write(client, place(index), as_bytes(&told)) {
                args.update(|args: &mut nvgpu_as_remap_args| args.num_ops = index as u32);
                return Err(errno);
            }
        }
        Ok(0)
    }

    /// All operations or none.
    fn put_all(
        &mut self,
        client: &dyn Client,
        id: SpaceId,
        ops: &[nvgpu_as_remap_op],
    ) -> Result<()> {
        let (start, size) = self.space_mut(id)?.pool(&ops[0]).ok_or(Errno::EINVAL)?;
        let mut pieces = Vec::new();
        for op in ops {
            let (at, bytes) = (op.virt_offset_in_pages * PAGE, op.num_pages * PAGE);
            let piece = if op.mem_handle == 0 { None } else { Some(self.piece(client, op)?) };
            if at < start || at - start > size || bytes > size - (at - start) {
                return Err(Errno::EINVAL);
            }
            pieces.push((at, bytes, piece));
        }
        for (at, bytes, piece) in pieces {
            let remaps = &mut self.space_mut(id)?.remaps;
            let mut change = remaps.clear(at, bytes);
            if let Some(piece) = piece {
                remaps.put(at, piece, &mut change);
            }
            self.count(change);
        }
        Ok(())
    }

    fn piece(&self, client: &dyn Client, op: &nvgpu_as_remap_op) -> Result<Piece> {
        let fd = op.mem_handle as i32;
        let (buffer, access) = self.dmabuf_of(client, fd).map_err(|_| Errno::EINVAL)?;
        let writable = op.flags & NVGPU_AS_REMAP_OP_FLAGS_ACCESS_NO_WRITE == 0;
        if writable && access == Access::Read {
            return Err(Errno::EINVAL);
        }
        let memory = self.nvmap.pinned(buffer).map_err(|_| Errno::ENOMEM)?;
        let (offset, size) = (op.mem_offset_in_pages * PAGE, op.num_pages * PAGE);
        let there = self.nvmap.buffer(buffer)?.size;
        if size > there || offset > there - size {
            return Err(Errno::EINVAL);
        }
        Ok(Piece { size, buffer, memory, offset, writable })
    }

    /// Counts references: the new ones first, as a buffer goes with its last.
    pub(super) fn count(&mut self, change: Change) {
        change.taken.into_iter().for_each(|buffer| self.nvmap.get_gpu(buffer));
        change.released.into_iter().for_each(|buffer| self.nvmap.put_gpu(buffer));
    }
}

fn none_done(args: &mut Args) {
    args.update(|args: &mut nvgpu_as_remap_args| args.num_ops = 0);
}

/// What is looked at before anything else, in pages below a limit.
fn check(op: &nvgpu_as_remap_op, limit: u64) -> Result<()> {
    let bits = match op.flags & PAGE_SIZES {
        NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K => 12,
        NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_64K => 16,
        NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_128K => 17,
        _ => return Err(Errno::EINVAL),
    };
    let is_unmap = op.mem_handle == 0;
    let known = if is_unmap { PAGE_SIZES } else { MAP_FLAGS };
    let has_memory = op.compr_kind != -1 || op.incompr_kind != -1 || op.mem_offset_in_pages != 0;
    let most = limit >> bits;
    if op.flags & !known != 0
        || (is_unmap && has_memory)
        || op.num_pages == 0
        || op.num_pages > most
        || op.mem_offset_in_pages > most
        || op.virt_offset_in_pages > most
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}
