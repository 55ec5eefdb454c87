//! What the kernels' tests run on: a device whose kernels record, beside the same code that does not.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use nvabi_emu::{Args, Device, EventKind, Finding, Launch, Module, Report, Schedule};

use crate::common::regions::{ATOMIC, BRANCH, Event, Regions, STORE};
use crate::common::{self, Site};

#[allow(dead_code)]
#[path = "../../../cuda/emu/tests/kernels/bare.rs"]
mod bare;
pub(crate) use bare::{Plain, close, floats, ints, noise};

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/kernels");

/// Words that a warp has room for.
const CAPACITY: u32 = 1 << 15;

/// Kernels whose events are others than those of the code as it was, for a reason.
const NOT_COMPARED: [(&str, &str); 4] = [
    ("dispatch", "the pass makes compares of a switch in another way than LLVM"),
    ("sparse", "as dispatch"),
    ("atomics64", "how often lanes try again depends on when other warps have their turn"),
    ("grid_barrier", "how often lanes look depends on when other blocks come"),
];

/// Kernels whose stores to shared memory are structs, each so many stores in PTX, the first bytes last.
const STRUCTS: [(&str, usize); 1] = [("nbody", 2)];

/// A device with a module that records, and how launches run.
pub(crate) struct Gpu {
    bare: bare::Gpu,
    sites: Vec<Vec<Site>>,
    /// The code as it was, where events are compared with it.
    plain: Option<Module>,
    /// What the test put on the device.
    memory: Vec<(u64, usize)>,
}

/// PTX of a module, compiled once for all tests.
fn ptx(module: &'static str, options: Option<&'static str>, level: &'static str) -> String {
    type Key = (&'static str, Option<&'static str>, &'static str);
    static COMPILED: OnceLock<Mutex<HashMap<Key, String>>> = OnceLock::new();
    let plugin = common::plugin();
    let mut compiled = COMPILED.get_or_init(Mutex::default).lock().unwrap();
    let text = compiled.entry((module, options, level)).or_insert_with(|| {
        let source = Path::new(KERNELS).join(format!("{module}.cu"));
        let flags = [level, "-g", "-std=c++17", "-Xclang", "-target-feature", "-Xclang", "+ptx83"];
        common::compile(&plugin, &source, options, &flags)
    });
    text.clone()
}

/// As the compiler wrote it, compared event by event; optimised, with all kinds and in another order.
pub(crate) fn gpus(module: &'static str) -> impl Iterator<Item = Gpu> {
    let variants = [
        ("-O0", "kinds=branch,store,atomic", Schedule::InOrder, 1),
        ("-O2", "kinds=all", Schedule::Random(1), 2),
    ];
    variants.into_iter().map(move |(level, options, schedule, threads)| {
        let recorded = ptx(module, Some(options), level);
        let mut device = Device::new();
        let name = format!("{module} {level} {options}");
        let mut load =
            |ptx: &str| device.load(ptx).unwrap_or_else(|error| panic!("{name}: {error}"));
        let loaded = load(&recorded);
        let plain = (level == "-O0").then(|| ptx(module, None, level));
        let plain = plain.map(|ptx| load(&ptx));
        let launch = Launch { schedule, threads, ..Launch::default() };
        let sites = vec![common::sites_of_ptx(&recorded)];
        let bare = bare::Gpu::new(device, loaded, launch, name);
        Gpu { bare, sites, plain, memory: Vec::new() }
    })
}

impl Deref for Gpu {
    type Target = bare::Gpu;
    fn deref(&self) -> &bare::Gpu {
        &self.bare
    }
}

impl DerefMut for Gpu {
    fn deref_mut(&mut self) -> &mut bare::Gpu {
        &mut self.bare
    }
}

impl Gpu {
    pub(crate) fn up<T: Plain>(&mut self, values: &[T]) -> u64 {
        let address = self.bare.up(values);
        self.memory.push((address, size_of_val(values)));
        address
    }

    /// Launches, and expects that nothing is wrong with the kernel nor with what it recorded.
    pub(crate) fn run<const G: usize, const B: usize>(
        &mut self,
        kernel: &str,
        grid: [u32; G],
        block: [u32; B],
        args: Args,
    ) -> Report {
        let launch = self.sized(grid, block);
        let wanted = self.observed(kernel, &launch, &args);

        let per_block = launch.block.iter().product::<u32>().div_ceil(32);
        let warps = launch.grid.iter().product::<u32>() * per_block;
        let bare::Gpu { device, module, .. } = &mut self.bare;
        let regions = Regions::new(device, module, warps, CAPACITY, 1);
        let report = device.launch(module, kernel, &launch, &args).unwrap();
        let findings: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
        assert!(findings.is_empty(), "{} {kernel}: {findings:#?}", self.name);
        let recorded = regions.read(&self.device, &self.sites);
        regions.free(&mut self.device);
        if let Some(wanted) = &wanted {
            assert_eq!(recorded.len(), wanted.len(), "{} {kernel}", self.name);
        }
        for (number, (warp, asked, events)) in recorded.iter().enumerate() {
            assert_eq!(*warp as usize, number, "{} {kernel}", self.name);
            assert!(*asked <= CAPACITY, "{} {kernel}: {asked} words", self.name);
            if let Some(wanted) = &wanted {
                let got: Vec<Seen> = events.iter().map(|event| self.seen(event)).collect();
                let alike = got.iter().zip(&wanted[number]).take_while(|(a, b)| a == b).count();
                assert!(
                    got == wanted[number],
                    "{} {kernel} warp {number}: event {alike} of {} is {:x?}, of {} it was {:x?}",
                    self.name,
                    got.len(),
                    got.get(alike),
                    wanted[number].len(),
                    wanted[number].get(alike)
                );
            }
        }
        report
    }

    /// What the code as it was does, warp by warp; afterwards the device is as before.
    fn observed(&mut self, kernel: &str, launch: &Launch, args: &Args) -> Option<Vec<Vec<Seen>>> {
        if NOT_COMPARED.iter().any(|(name, _)| *name == kernel) {
            return None;
        }
        let plain = self.plain.as_ref()?;
        let before: Vec<Vec<u8>> =
            self.memory.iter().map(|(address, size)| self.down(*address, *size)).collect();
        let launch = Launch { observe: true, ..launch.clone() };
        let report = self.bare.device.launch(plain, kernel, &launch, args).unwrap();
        for ((address, _), bytes) in self.memory.iter().zip(before) {
            self.bare.device.write(*address, &bytes).unwrap();
        }
        let parts = STRUCTS.iter().find(|(name, _)| *name == kernel).map_or(1, |(_, parts)| *parts);
        let of_warp = |warp: &nvabi_emu::WarpEvents| {
            let mut stores = 0;
            let mut counts = |event: &nvabi_emu::Event| {
                let is_store = matches!(event.kind, EventKind::SharedStore { .. });
                stores += usize::from(is_store);
                !is_store || stores % parts == 0
            };
            warp.events
                .iter()
                .filter(|event| counts(event))
                .filter_map(|event| {
                    let (kind, taken, value) = match event.kind {
                        EventKind::Branch { taken } => (BRANCH, taken, None),
                        EventKind::SharedStore { value } => (STORE, 0, Some(value)),
                        EventKind::Atomic { old, .. } => (ATOMIC, 0, Some(old)),
                        _ => return None,
                    };
                    Some(Seen::new(kind, event.location.line, event.mask, taken, value))
                })
                .collect()
        };
        Some(report.events.iter().map(of_warp).collect())
    }

    fn seen(&self, event: &Event) -> Seen {
        let line = self.sites[0][event.site as usize].line;
        Seen::new(event.kind, line, event.mask, event.taken, event.value)
    }
}

/// An event by what does not depend on how the compiler lays blocks out.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: u8,
    line: u32,
    mask: u32,
    /// The lanes that went one way, and those that went the other.
    ways: [u32; 2],
    value: Option<u64>,
}

impl Seen {
    fn new(kind: u8, line: u32, mask: u32, taken: u32, value: Option<u64>) -> Self {
        let mut ways = [taken & mask, mask & !taken];
        ways.sort_unstable();
        Self { kind, line, mask, ways: if kind == BRANCH { ways } else { [0; 2] }, value }
    }
}
