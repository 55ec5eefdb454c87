//! Which bytes of a load the code may use. Compilers widen loads: of the last bytes nothing may depend.

use std::collections::HashMap;

use super::super::{BarrierKind, Callee, Instruction, Op, Reg, Rmw};

/// A part of a register that an instruction takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece {
    /// From this bit on.
    Shifted(u32),
    /// So many bits.
    Low(u32),
}

impl Piece {
    /// The bits of the source that these of the result need.
    fn source(self, bits: u64) -> u64 {
        match self {
            Self::Shifted(by) => bits.checked_shl(by).unwrap_or(0),
            Self::Low(64..) => bits,
            Self::Low(count) => bits & ((1 << count) - 1),
        }
    }
}

/// Notes with each load which of its bytes may be used, unless a pragma has said so.
pub(super) fn set_used_bytes(
    code: &mut [Instruction],
    registers: u32,
    pieces: &HashMap<usize, Piece>,
) {
    let is_wide = |i: &Instruction| matches!(&i.op, Op::Load { dst, width, .. } if dst.len() > 1 || *width > 1);
    if !code.iter().any(is_wide) {
        return;
    }
    let needed = needed_bits(code, registers, pieces);
    for instruction in code {
        let Op::Load { dst, width, used, .. } = &mut instruction.op else { continue };
        if used.declared {
            continue;
        }
        used.bytes = 0;
        for (part, dst) in dst.iter().enumerate() {
            let bits = dst.map_or(0, |dst| needed[dst as usize]);
            for byte in (0..*width).filter(|byte| bits >> (8 * byte) & 0xff != 0) {
                used.bytes |= 1 << (part as u64 * *width + byte);
            }
        }
    }
}

/// The bits of each register that anything depends on which is more than a register.
fn needed_bits(code: &[Instruction], registers: u32, pieces: &HashMap<usize, Piece>) -> Vec<u64> {
    let mut needed = vec![0; registers as usize];
    for instruction in code {
        if let Some((guard, _)) = instruction.guard {
            needed[guard as usize] = u64::MAX;
        }
        effects(&instruction.op, |reg| needed[reg as usize] = u64::MAX);
    }
    let mut changed = true;
    while changed {
        changed = false;
        // Backwards, because most values are computed before they are used.
        for (at, instruction) in code.iter().enumerate().rev() {
            let Op::Lanes { dst, src, .. } = &instruction.op else { continue };
            let bits = match (needed[*dst as usize], pieces.get(&at)) {
                (0, _) => continue,
                (bits, Some(piece)) => piece.source(bits),
                _ => u64::MAX,
            };
            // Of a piece the second source is a constant.
            for reg in src {
                let slot = &mut needed[*reg as usize];
                changed |= *slot | bits != *slot;
                *slot |= bits;
            }
        }
    }
    needed
}

/// The registers that an operation reads which does more than compute a register lane by lane.
fn effects(op: &Op, mut read: impl FnMut(Reg)) {
    match op {
        Op::Lanes { .. }
        | Op::Special { .. }
        | Op::Local { .. }
        | Op::Fence
        | Op::Branch { .. }
        | Op::Return
        | Op::Exit
        | Op::Trap
        | Op::ActiveMask { .. }
        | Op::Yield
        | Op::Nop => {}
        Op::Load { at, .. } => read(at.base),
        Op::Store { at, src, .. } => {
            read(at.base);
            src.iter().copied().for_each(read);
        }
        Op::Atomic { at, rmw, src, .. } => {
            read(at.base);
            read(*src);
            if let Rmw::CompareSwap(compare) = rmw {
                read(*compare);
            }
        }
        Op::CopyBulk { to, from, size: source_size }
        | Op::CopyAsync { to, from, source_size, .. } => {
            [to.base, from.base, *source_size].into_iter().for_each(read);
        }
        Op::BranchIndexed { index, .. } => read(*index),
        Op::Call { callee, .. } => {
            if let Callee::Indirect(reg) = callee {
                read(*reg);
            }
        }
        Op::Barrier { kind, id, count } => {
            read(*id);
            count.iter().copied().for_each(&mut read);
            match kind {
                BarrierKind::Count { pred, .. }
                | BarrierKind::All { pred, .. }
                | BarrierKind::Any { pred, .. } => read(*pred),
                BarrierKind::Sync | BarrierKind::Arrive => {}
            }
        }
        Op::SyncWarp { mask } | Op::Elect { mask, .. } => read(*mask),
        Op::Vote { pred, mask, .. } => {
            read(*pred);
            mask.iter().copied().for_each(read);
        }
        Op::Shuffle { src, by, clamp, mask, .. } => {
            [*src, *by, *clamp, *mask].into_iter().for_each(read);
        }
        Op::RecordBranch(op) => {
            let taken = [op.slot, op.below, op.end, op.site, op.condition, op.events, op.scale];
            taken.into_iter().for_each(read);
        }
        Op::Match { src, mask, .. } | Op::Reduce { src, mask, .. } => {
            read(*src);
            read(*mask);
        }
        Op::Texture(texture) => {
            read(texture.handle);
            texture.at.iter().chain(&texture.offset).copied().for_each(&mut read);
            if texture.access.kind.is_write() {
                texture.registers.iter().flatten().copied().for_each(read);
            }
        }
        Op::MatrixMultiply(multiply) => {
            let sources = [&multiply.a, &multiply.b, &multiply.c];
            sources.iter().flat_map(|matrix| &matrix.registers).copied().for_each(read);
        }
        Op::MatrixMove(op) => {
            read(op.at.base);
            read(op.stride);
            op.matrix.registers.iter().copied().for_each(read);
        }
        Op::Transpose { src, .. } => read(*src),
        Op::RowMove(op) => {
            read(op.at.base);
            op.registers.iter().copied().for_each(read);
        }
    }
}
