//! Warps that run machine code: lanes in groups, which part at branches and meet at convergence barriers.

mod compute;
mod flow;
mod matrix;
mod memory;
mod texture;
mod warp;
mod wide;

use super::grid::Grid;
use super::shared::Site;
use super::source::is_of_toolkit;
use super::warp::{Code, Warp};
use crate::device::{Launch, RESERVED_SHARED_BYTES};
use crate::program::{LOCAL_WINDOW, SHARED_WINDOW, SharedVariable};
use crate::report::SourceLocation;
use crate::sass::{BANKS, Kernel, Op, Program, RESERVED_SHARED, Row};

/// Places in bank 0, the same on all architectures up to Hopper.
mod bank0 {
    pub(super) const BLOCK: usize = 0x00;
    pub(super) const GRID: usize = 0x0c;
    pub(super) const SHARED_WINDOW: usize = 0x18;
    pub(super) const LOCAL_WINDOW: usize = 0x20;
    pub(super) const STACK: usize = 0x28;
    pub(super) const DYNAMIC_SHARED: usize = 0x2c;
    pub(super) const GRID_ID: usize = 0x30;
    pub(super) const MULTIPROCESSORS: usize = 0x10c;
    /// Bytes of shared memory that are the system's and count as the kernel's.
    pub(super) const SYSTEM_SHARED: usize = 0x114;
    /// %envreg0 up to Ada, and since.
    pub(super) const ENVIRONMENT: usize = 0x88;
    pub(super) const ENVIRONMENT_OF_HOPPER: usize = 0x40;
}

/// Bytes in which the size of a bank counts.
const BANK_UNIT: usize = 16;

/// A kernel in machine code, with the constants of a launch.
pub(crate) struct SassCode<'a> {
    pub(crate) program: &'a Program,
    pub(crate) name: &'a str,
    pub(crate) kernel: &'a Kernel,
    pub(crate) banks: [Vec<u8>; BANKS],
}

impl<'a> SassCode<'a> {
    /// `constants` is what bank 3 holds, `id` the number of the launch.
    pub(crate) fn new(
        program: &'a Program,
        name: &'a str,
        kernel: &'a Kernel,
        launch: &Launch,
        params: &[u8],
        constants: Vec<u8>,
        id: u64,
    ) -> Self {
        let mut banks: [Vec<u8>; BANKS] = Default::default();
        let first = kernel.first_parameter;
        let mut bank = vec![0; first.max(bank0::SYSTEM_SHARED + 4)];
        let mut put = |at: usize, bytes: &[u8]| bank[at..at + bytes.len()].copy_from_slice(bytes);
        for axis in 0..3 {
            put(bank0::BLOCK + 4 * axis, &launch.block[axis].to_le_bytes());
            put(bank0::GRID + 4 * axis, &launch.grid[axis].to_le_bytes());
        }
        put(bank0::SHARED_WINDOW, &SHARED_WINDOW.to_le_bytes());
        put(bank0::LOCAL_WINDOW, &LOCAL_WINDOW.to_le_bytes());
        put(bank0::STACK, &(kernel.local_size as u32).to_le_bytes());
        put(bank0::DYNAMIC_SHARED, &launch.shared_bytes.to_le_bytes());
        put(bank0::GRID_ID, &id.to_le_bytes());
        put(bank0::MULTIPROCESSORS, &1u32.to_le_bytes());
        if program.is_hopper {
            put(bank0::SYSTEM_SHARED, &(RESERVED_SHARED_BYTES as u32).to_le_bytes());
        }
        bank.truncate(first);
        let own = kernel.shared_bytes(launch.shared_bytes.into());
        let place = bank.get_mut(RESERVED_SHARED..RESERVED_SHARED + 4);
        if let Some(place) = place.filter(|_| program.asks_for_reserved) {
            place.copy_from_slice(&(own as u32).to_le_bytes());
        }
        bank.extend_from_slice(params);
        banks[0] = bank;
        banks[3] = constants;
        for (number, bytes) in &kernel.banks {
            banks[*number].clone_from(bytes);
        }
        // Words are read whole, and a bank is as large as the hardware counts.
        banks.iter_mut().for_each(|bank| bank.resize(bank.len().next_multiple_of(BANK_UNIT), 0));
        Self { program, name, kernel, banks }
    }

    /// Says where blocks of a cooperative launch meet: %envreg1 has the upper half, %envreg2 the lower one.
    pub(crate) fn meet_at(&mut self, workspace: u64) {
        let environment = match self.program.is_hopper {
            true => bank0::ENVIRONMENT_OF_HOPPER,
            false => bank0::ENVIRONMENT,
        };
        if let Some(place) = self.banks[0].get_mut(environment + 4..environment + 12) {
            place.copy_from_slice(&workspace.rotate_left(32).to_le_bytes());
        }
    }

    /// Code in memory, with the banks of a launch. The driver of a GPU says in bank 0 where shared and local memory
    /// are among all addresses: here it is where this emulator has them. Nothing there has its name.
    pub(crate) fn placed(
        program: &'a Program,
        name: &'a str,
        kernel: &'a Kernel,
        mut banks: [Vec<u8>; BANKS],
    ) -> Self {
        let mut put = |at: usize, value: u64| {
            if let Some(place) = banks[0].get_mut(at..at + 8) {
                place.copy_from_slice(&value.to_le_bytes());
            }
        };
        put(bank0::SHARED_WINDOW, SHARED_WINDOW);
        put(bank0::LOCAL_WINDOW, LOCAL_WINDOW);
        Self { program, name, kernel, banks }
    }
}

impl Kernel {
    /// Bytes of shared memory, with this much dynamic memory behind the static.
    fn shared_bytes(&self, dynamic: u64) -> u64 {
        const ALIGN: u64 = 16;
        match dynamic {
            0 => self.shared_size,
            _ => self.shared_size.next_multiple_of(ALIGN) + dynamic,
        }
    }
}

impl Code for SassCode<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn shared(&self, dynamic: u64) -> (u64, u32) {
        let own = self.kernel.shared_bytes(dynamic);
        let reserved = if self.program.asks_for_reserved { RESERVED_SHARED_BYTES } else { 0 };
        (own + reserved, self.program.shared_grain)
    }

    fn warp_bytes(&self) -> u64 {
        let local = self.kernel.local_size + self.kernel.local_top;
        self.kernel.registers as u64 * size_of::<Row>() as u64 + 32 * local
    }

    /// Calls use the local memory that the kernel has.
    fn call_bytes(&self) -> u64 {
        0
    }

    fn shared_variables(&self) -> &[SharedVariable] {
        &[]
    }

    fn warp<'a>(&'a self, grid: &'a Grid<'a>, index: usize, threads: u32) -> Box<dyn Warp + 'a> {
        Box::new(warp::Warp::new(self, grid, index, threads))
    }

    fn location(&self, site: Site) -> SourceLocation {
        let pc = site.pc as usize;
        let Some(section) = self.program.section(pc) else { return SourceLocation::default() };
        let address = (pc - section.first) as u64 * 16;
        let line = section.lines.range(..=address).next_back();
        SourceLocation {
            file: line.map(|(_, (file, _))| file.clone()),
            line: line.map_or(0, |(_, (_, line))| *line),
            address: Some(address),
            pc: self.program.placed.map(|_| section.address + address),
            unit: Some(section.name.clone()).filter(|name| **name != *self.name),
            ..SourceLocation::default()
        }
    }

    fn own_location(&self, site: Site) -> Option<SourceLocation> {
        let here = self.location(site);
        here.file.as_ref().is_some_and(|file| !is_of_toolkit(file)).then_some(here)
    }

    fn innermost_loop(&self, site: Site) -> Option<(Site, Site)> {
        let section = self.program.section(site.pc as usize)?;
        let code = &self.program.code[section.first..section.first + section.count];
        let at = |pc: usize| Site { function: 0, pc: pc as u32 };
        let loops = code.iter().enumerate().filter_map(|(number, instruction)| {
            let last = section.first + number;
            let Op::Branch { target, .. } = instruction.op else { return None };
            let first = target as usize;
            (first..=last).contains(&(site.pc as usize)).then_some((first, last))
        });
        let (first, last) = loops.min_by_key(|(first, last)| last - first)?;
        Some((at(first), at(last)))
    }
}
