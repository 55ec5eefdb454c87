//! Warps that run PTX: lanes that a branch parts meet again at its immediate post-dominator.

mod matrix;
mod memory;
mod paths;
mod recorder;
mod texture;
mod warp;
mod wide;

use super::grid::Grid;
use super::shared::Site;
use super::source::is_of_toolkit;
use super::warp::{Code, Warp};
use crate::lanes::Lanes;
use crate::program::{
    Callee, Function, Instruction, Op, Program, SharedVariable, innermost_loop, own_line,
};
use crate::report::SourceLocation;

/// A kernel in PTX.
pub(crate) struct PtxCode<'a> {
    pub(crate) program: &'a Program,
    /// Its number among the functions.
    pub(crate) kernel: usize,
}

impl PtxCode<'_> {
    fn kernel(&self) -> &Function {
        &self.program.functions[self.kernel]
    }

    fn function(&self, site: Site) -> &Function {
        &self.program.functions[site.function as usize]
    }

    fn location_of(&self, function: &Function, instruction: &Instruction) -> SourceLocation {
        let loc = instruction.loc;
        let number = (loc.file as usize).wrapping_sub(1);
        SourceLocation {
            file: self.program.files.get(number).filter(|_| loc.line != 0).cloned(),
            line: loc.line,
            column: loc.column,
            ptx_line: instruction.line,
            address: None,
            pc: None,
            unit: function.unit.clone(),
        }
    }
}

impl Code for PtxCode<'_> {
    fn name(&self) -> &str {
        &self.kernel().name
    }

    fn shared(&self, dynamic: u64) -> (u64, u32) {
        let size = match dynamic {
            0 => {
                self.shared_variables().last().map_or(self.program.shared_reserved, |last| last.end)
            }
            _ => self.kernel().dynamic_start + dynamic,
        };
        (size, self.program.shared_grain)
    }

    fn warp_bytes(&self) -> u64 {
        let kernel = self.kernel();
        let registers = u64::from(kernel.registers) * size_of::<Lanes>() as u64;
        registers + 32 * (kernel.local_size + kernel.param_size)
    }

    /// How deep calls nest is known when they have: a thread has so much for them, and the block more if others leave it.
    fn call_bytes(&self) -> u64 {
        const EACH: u64 = 64 << 10;
        let calls = |instruction: &Instruction| {
            let Op::Call { callee, .. } = &instruction.op else { return false };
            matches!(callee, Callee::Function(_) | Callee::Indirect(_))
        };
        if self.kernel().code.iter().any(calls) { 32 * EACH } else { 0 }
    }

    fn shared_variables(&self) -> &[SharedVariable] {
        &self.kernel().shared_variables
    }

    fn warp<'a>(&'a self, grid: &'a Grid<'a>, index: usize, threads: u32) -> Box<dyn Warp + 'a> {
        Box::new(warp::Warp::new(self.program, self.kernel, grid, index, threads))
    }

    fn location(&self, site: Site) -> SourceLocation {
        let function = self.function(site);
        let last = function.code.len() - 1;
        self.location_of(function, &function.code[(site.pc as usize).min(last)])
    }

    fn own_location(&self, site: Site) -> Option<SourceLocation> {
        let function = self.function(site);
        let is_own = |instruction: &Instruction| {
            let file = self.location_of(function, instruction).file;
            file.is_some_and(|file| !is_of_toolkit(&file))
        };
        let pc = (site.pc as usize).min(function.code.len() - 1);
        Some(self.location_of(function, own_line(&function.code, pc, is_own)?))
    }

    fn innermost_loop(&self, site: Site) -> Option<(Site, Site)> {
        let (first, last) = innermost_loop(&self.function(site).code, site.pc as usize)?;
        let at = |pc: usize| Site { pc: pc as u32, ..site };
        Some((at(first), at(last)))
    }
}
