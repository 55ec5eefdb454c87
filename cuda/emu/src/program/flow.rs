//! Where the lanes that a branch parted meet again: its immediate post-dominator.

use super::{Instruction, Op};

/// No place: the lanes meet only at the end of the function.
pub(crate) const NEVER: u32 = u32::MAX;

/// Sets the reconvergence point of each branch.
pub(super) fn set_reconvergence(code: &mut [Instruction]) {
    let blocks = Blocks::new(code);
    let post = blocks.post_dominators();
    for (block, (_, end)) in blocks.ranges.iter().enumerate() {
        let Some(last) = code.get_mut(*end as usize - 1) else { continue };
        let at =
            post[block].and_then(|node| blocks.ranges.get(node)).map_or(NEVER, |(start, _)| *start);
        match &mut last.op {
            Op::Branch { reconverge, .. } | Op::BranchIndexed { reconverge, .. } => {
                *reconverge = at
            }
            _ => {}
        }
    }
}

/// An instruction near to one, in a file of the program's own: in its basic block the last before it, or
/// else the first behind it; or else the last of a block that leads there.
pub(crate) fn own_line(
    code: &[Instruction],
    pc: usize,
    is_own: impl Fn(&Instruction) -> bool,
) -> Option<&Instruction> {
    if code.get(pc).is_some_and(&is_own) {
        return code.get(pc);
    }
    let blocks = Blocks::new(code);
    let range = |block: usize| blocks.ranges[block].0 as usize..blocks.ranges[block].1 as usize;
    let block = (0..blocks.ranges.len()).find(|block| range(*block).contains(&pc))?;
    let (before, behind) = code[range(block)].split_at(pc - range(block).start);
    let leads = |other: &usize| blocks.successors[*other].contains(&block);
    let leading =
        (0..blocks.ranges.len()).filter(leads).flat_map(|other| code[range(other)].iter().rev());
    before.iter().rev().chain(behind).chain(leading).find(|instruction| is_own(instruction))
}

/// First and last instruction of the smallest loop around one.
pub(crate) fn innermost_loop(code: &[Instruction], pc: usize) -> Option<(usize, usize)> {
    let back = |(at, instruction): (usize, &Instruction)| {
        let before = targets(&instruction.op).iter().map(|target| *target as usize);
        before.filter(|target| (*target..=at).contains(&pc)).max().map(|target| (target, at))
    };
    code.iter().enumerate().filter_map(back).min_by_key(|(first, last)| last - first)
}

/// The basic blocks of a function and the edges between them; the number of blocks is the exit.
struct Blocks {
    ranges: Vec<(u32, u32)>,
    successors: Vec<Vec<usize>>,
}

impl Blocks {
    fn new(code: &[Instruction]) -> Self {
        let mut starts = vec![false; code.len() + 1];
        starts[0] = true;
        for (at, instruction) in code.iter().enumerate() {
            let targets = targets(&instruction.op);
            if ends_block(&instruction.op) {
                starts[at + 1] = true;
            }
            for target in targets {
                starts[*target as usize] = true;
            }
        }
        starts[code.len()] = false;
        let firsts: Vec<u32> =
            (0..code.len()).filter(|at| starts[*at]).map(|at| at as u32).collect();
        let mut block_of = vec![firsts.len(); code.len() + 1];
        let mut ranges = Vec::new();
        for (block, start) in firsts.iter().enumerate() {
            let end = firsts.get(block + 1).map_or(code.len() as u32, |next| *next);
            ranges.push((*start, end));
            block_of[*start as usize] = block;
        }
        let successors = ranges
            .iter()
            .map(|(_, end)| {
                let last = &code[*end as usize - 1];
                let mut out: Vec<usize> =
                    targets(&last.op).iter().map(|target| block_of[*target as usize]).collect();
                let leaves = matches!(last.op, Op::Return | Op::Exit | Op::Trap);
                if leaves {
                    out.push(ranges.len());
                }
                let jumps =
                    leaves || matches!(last.op, Op::Branch { .. } | Op::BranchIndexed { .. });
                if !jumps || last.guard.is_some() {
                    out.push(block_of[*end as usize]);
                }
                out
            })
            .collect();
        Self { ranges, successors }
    }

    /// Immediate post-dominators, by Cooper, Harvey and Kennedy's iteration over the reversed graph.
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let exit = self.ranges.len();
        let mut predecessors = vec![Vec::new(); exit + 1];
        for (block, successors) in self.successors.iter().enumerate() {
            for successor in successors {
                predecessors[*successor].push(block);
            }
        }
        let order = postorder(exit, &predecessors);
        let mut rank = vec![usize::MAX; exit + 1];
        for (position, block) in order.iter().enumerate() {
            rank[*block] = position;
        }
        let mut post: Vec<Option<usize>> = vec![None; exit + 1];
        post[exit] = Some(exit);
        let mut changed = true;
        while changed {
            changed = false;
            for block in order.iter().rev().filter(|block| **block != exit) {
                let mut meet = None;
                for successor in self.successors[*block].iter().filter(|s| post[**s].is_some()) {
                    meet = Some(
                        meet.map_or(*successor, |other| common(*successor, other, &post, &rank)),
                    );
                }
                if post[*block] != meet {
                    post[*block] = meet;
                    changed = true;
                }
            }
        }
        post
    }
}

/// The nearest node that both reach upwards.
fn common(mut a: usize, mut b: usize, post: &[Option<usize>], rank: &[usize]) -> usize {
    while a != b {
        if rank[a] < rank[b] {
            a = post[a].unwrap_or(b);
        } else {
            b = post[b].unwrap_or(a);
        }
    }
    a
}

/// Depth-first postorder from `root`.
fn postorder(root: usize, edges: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; edges.len()];
    let mut out = Vec::new();
    let mut stack = vec![(root, 0)];
    seen[root] = true;
    while let Some((node, edge)) = stack.pop() {
        match edges[node].get(edge) {
            Some(next) => {
                stack.push((node, edge + 1));
                if !seen[*next] {
                    seen[*next] = true;
                    stack.push((*next, 0));
                }
            }
            None => out.push(node),
        }
    }
    out
}

fn targets(op: &Op) -> &[u32] {
    match op {
        Op::Branch { target, .. } => std::slice::from_ref(target),
        Op::BranchIndexed { targets, .. } => targets,
        _ => &[],
    }
}

fn ends_block(op: &Op) -> bool {
    matches!(op, Op::Branch { .. } | Op::BranchIndexed { .. } | Op::Return | Op::Exit | Op::Trap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::Loc;

    fn code(ops: Vec<(Op, bool)>) -> Vec<Instruction> {
        ops.into_iter()
            .map(|(op, guarded)| Instruction {
                op,
                guard: guarded.then_some((0, false)),
                line: 0,
                loc: Loc::default(),
            })
            .collect()
    }

    fn branch(target: u32) -> Op {
        Op::Branch { target, reconverge: 0 }
    }

    fn points(mut code: Vec<Instruction>) -> Vec<u32> {
        set_reconvergence(&mut code);
        let point = |i: &Instruction| match i.op {
            Op::Branch { reconverge, .. } | Op::BranchIndexed { reconverge, .. } => {
                Some(reconverge)
            }
            _ => None,
        };
        code.iter().filter_map(point).collect()
    }

    #[test]
    fn a_diamond_meets_below_both_sides() {
        let diamond = code(vec![
            (branch(3), true),
            (Op::Nop, false),
            (branch(4), false),
            (Op::Nop, false),
            (Op::Return, false),
        ]);
        assert_eq!(points(diamond), [4, 4]);
    }

    #[test]
    fn a_loop_meets_behind_it() {
        let looped = code(vec![(Op::Nop, false), (branch(0), true), (Op::Return, false)]);
        assert_eq!(points(looped), [2]);
    }

    #[test]
    fn sides_that_both_leave_never_meet() {
        let leaving = code(vec![(branch(2), true), (Op::Exit, false), (Op::Return, false)]);
        assert_eq!(points(leaving), [NEVER]);
    }

    #[test]
    fn a_loop_without_end_does_not_hang_the_analysis() {
        let endless = code(vec![
            (branch(2), true),
            (Op::Return, false),
            (Op::Nop, false),
            (branch(2), false),
        ]);
        assert_eq!(points(endless)[1], NEVER);
    }

    #[test]
    fn a_switch_meets_below_its_cases() {
        let cases = Op::BranchIndexed { index: 0, targets: vec![1, 3], reconverge: 0 };
        let switch = code(vec![
            (cases, false),
            (Op::Nop, false),
            (branch(4), false),
            (Op::Nop, false),
            (Op::Return, false),
        ]);
        assert_eq!(points(switch), [4, 4]);
    }
}
