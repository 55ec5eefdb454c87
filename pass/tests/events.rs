//! What instrumented kernels record when they run: in the emulator, against what follows from the
//! source.
#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::regions::{ATOMIC, BRANCH, ENTRY, EXIT, Event, Regions, STORE, words_of};
use common::{Site, plugin};
use nvabi_emu::{Args, Device, EventKind, Launch};

test_main!();

struct Recorded {
    sites: Vec<Site>,
    /// By the warp's number.
    warps: BTreeMap<u32, Vec<Event>>,
    /// Words that were asked for, fitting or not, by the warp's number.
    words: BTreeMap<u32, u32>,
    /// The kernel's own results.
    out: Vec<u32>,
    /// What warps executed.
    instructions: u64,
}

struct Run<'a> {
    kernel: &'a str,
    options: &'a str,
    flags: &'a [&'a str],
    grid: [u32; 3],
    block: [u32; 3],
    capacity: u32,
    sample: u32,
    n: u32,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self {
            kernel: "",
            options: "kinds=branch",
            flags: &["-O2", "-g"],
            grid: [1; 3],
            block: [32, 1, 1],
            capacity: 1024,
            sample: 1,
            n: 5,
        }
    }
}

impl Run<'_> {
    fn record(&self, plugin: &Path) -> Recorded {
        let source = Path::new(common::KERNELS).join("events.cu");
        let ptx = common::compile(plugin, &source, Some(self.options), self.flags);
        self.record_ptx(&ptx)
    }

    fn record_ptx(&self, ptx: &str) -> Recorded {
        self.record_linked(&[("alone", ptx)])
    }

    fn record_linked(&self, units: &[(&str, &str)]) -> Recorded {
        let mut device = Device::new();
        let module = device.link(units).unwrap_or_else(|error| panic!("{error}"));
        let blocks: u32 = self.grid.iter().product();
        let warps = blocks * self.block.iter().product::<u32>().div_ceil(32);
        let regions = Regions::new(&mut device, &module, warps, self.capacity, self.sample);
        let out = device.alloc(4096).expect("memory");
        device.write(out, &[0; 4096]).expect("memory");
        let launch = Launch { grid: self.grid, block: self.block, ..Launch::default() };
        let args = Args::new().u64(out).u32(self.n);
        let report = device.launch(&module, self.kernel, &launch, &args).expect("a launch");
        assert!(report.findings.is_empty(), "{:?}", report.findings);

        let bytes = |at: u64, size: usize| {
            let mut bytes = vec![0; size];
            device.read(at, &mut bytes).expect("memory");
            bytes
        };
        let read = |at: u64, words: usize| words_of(&bytes(at, words * 4));
        // Of one unit, or of those that ran, as they have put themselves into the list.
        let mut sites = Vec::new();
        if units.len() == 1 {
            let (at, size) = module.symbol("__nvabi_sites").expect("a site table");
            sites.push(common::sites(&bytes(at, size as usize)));
        } else {
            let (list, _) = module.symbol("__nvabi_units").expect("a list of units");
            let address = |words: &[u32]| u64::from(words[0]) | u64::from(words[1]) << 32;
            for place in 0..units.len() as u64 {
                let unit = read(address(&read(list + place * 8, 2)), 4);
                sites.push(common::sites(&bytes(address(&unit), unit[2] as usize)));
            }
        }
        let (mut recorded, mut words) = (BTreeMap::new(), BTreeMap::new());
        for (warp, asked, events) in regions.read(&device, &sites) {
            recorded.insert(warp, events);
            words.insert(warp, asked);
        }
        Recorded {
            sites: sites.concat(),
            warps: recorded,
            words,
            out: read(out, 1024),
            instructions: report.warp_instructions,
        }
    }
}

impl Recorded {
    /// Mask and who took it, of the branches of a function, in order.
    fn branches(&self, warp: u32, function: &str) -> Vec<(u32, u32)> {
        let of = |event: &&Event| {
            event.kind == BRANCH && self.sites[event.site as usize].function.starts_with(function)
        };
        self.warps[&warp].iter().filter(of).map(|event| (event.mask, event.taken)).collect()
    }

    fn of_kind(&self, warp: u32, kind: u8) -> Vec<Event> {
        self.warps[&warp].iter().filter(|event| event.kind == kind).cloned().collect()
    }
}

/// A branch's direction depends on how the compiler lays blocks out: the way that `lanes` went.
fn either(branches: &[(u32, u32)], expected: &[(u32, u32)]) -> bool {
    let flipped: Vec<_> = expected.iter().map(|(mask, taken)| (*mask, mask & !taken)).collect();
    branches == expected || branches == flipped
}

const LEVELS: [&str; 4] = ["-O0", "-O1", "-O2", "-O3"];

#[test]
fn a_divergent_loop_is_recorded_round_by_round_at_every_level() {
    let plugin = plugin();
    for level in LEVELS {
        // Rotated and peeled loops test in other places; without that, one test a round.
        let flags = [level, "-g", "-fno-unroll-loops", "-mllvm", "-unroll-runtime=false"];
        let run = Run { kernel: "divergent_loop", flags: &flags, ..Run::default() };
        let recorded = run.record(&plugin);
        let branches = recorded.branches(0, "divergent_loop");
        // Lane n tests n times that it goes on and once that it leaves; lane 0 is the first to go.
        let expected: Vec<_> =
            (0..32).map(|round| (u32::MAX << round, (u32::MAX << round) << 1)).collect();
        assert!(either(&branches, &expected), "{level}: {branches:x?}");
        assert_eq!(recorded.words[&0], 32 + 31, "a ballot where lanes disagree, {level}");
    }
}

/// The emulator runs what records a branch as one operation, by its text. Of another text it runs each instruction,
/// as a GPU does.
#[test]
fn a_record_of_one_operation_is_that_of_its_instructions() {
    let plugin = plugin();
    let runs = [
        Run { kernel: "divergent_loop", ..Run::default() },
        Run { kernel: "divergent_loop", block: [96, 1, 1], capacity: 40, ..Run::default() },
        Run { kernel: "uniform", grid: [3, 2, 1], block: [64, 1, 1], sample: 5, ..Run::default() },
        Run { kernel: "nested", ..Run::default() },
        Run { kernel: "switched", ..Run::default() },
    ];
    let source = Path::new(common::KERNELS).join("events.cu");
    let ptx = common::compile(&plugin, &source, Some("kinds=branch"), &["-O2", "-g"]);
    let other = ptx.replace(".reg .pred lowest, split;", ".reg .pred split, lowest;");
    for run in runs {
        let (one, many) = (run.record_ptx(&ptx), run.record_ptx(&other));
        let words: u32 = one.words.values().sum();
        assert!(words > 0 && one.words == many.words && one.warps == many.warps, "{}", run.kernel);
        assert_eq!(one.out, many.out, "{}", run.kernel);
        let events: usize = one.warps.values().map(Vec::len).sum();
        let fewer = many.instructions - one.instructions;
        assert!(fewer >= 15 * events as u64, "{}: {fewer} of {events} events", run.kernel);
    }
}

#[test]
fn where_lanes_agree_there_is_one_word() {
    let plugin = plugin();
    for (n, taken) in [(5, u32::MAX), (3, 0)] {
        let recorded = Run { kernel: "uniform", n, ..Run::default() }.record(&plugin);
        assert_eq!(recorded.words[&0], 1);
        assert_eq!(recorded.branches(0, "uniform"), [(u32::MAX, taken)], "n = {n}");
    }
}

#[test]
fn the_lowest_active_lane_records_where_lane_0_is_not_there() {
    let plugin = plugin();
    for level in LEVELS {
        let run = Run { kernel: "nested", flags: &[level, "-g"], ..Run::default() };
        let branches = run.record(&plugin).branches(0, "nested");
        let odd = 0xaaaa_aaaa;
        // From -O1 on, the outer condition may come together with the inner one.
        let inner = branches.iter().find(|(mask, _)| *mask == odd);
        assert!(matches!(inner, Some((_, 0xaaaa | 0xaaaa_0000))), "{level}: {branches:x?}");
    }
}

#[test]
fn a_switch_is_a_chain_of_compares() {
    let plugin = plugin();
    for level in LEVELS {
        let run = Run { kernel: "switched", flags: &[level, "-g"], ..Run::default() };
        let recorded = run.record(&plugin);
        let branches = recorded.branches(0, "switched");
        assert!(branches.len() >= 2, "{level}: {branches:x?}");
        let lines: Vec<_> =
            recorded.sites.iter().filter(|site| site.function == "switched").collect();
        assert!(lines.iter().all(|site| site.line > 0 && site.line == lines[0].line), "{lines:?}");
        // What lanes did tells the case of each: four groups of eight lanes.
        let mut ways: BTreeMap<Vec<(usize, bool)>, u32> = BTreeMap::new();
        for lane in 0..32_u32 {
            let way = branches.iter().enumerate().filter(|(_, (mask, _))| mask >> lane & 1 == 1);
            let way = way.map(|(at, (_, taken))| (at, taken >> lane & 1 == 1)).collect();
            *ways.entry(way).or_default() |= 1 << lane;
        }
        let mut groups: Vec<u32> = ways.into_values().collect();
        groups.sort_unstable();
        let expected = [0x1111_1111, 0x2222_2222, 0x4444_4444, 0x8888_8888];
        assert_eq!(groups, expected, "{level}: {branches:x?}");
    }
}

#[test]
fn stores_to_shared_memory_keep_64_bits() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run =
            Run { kernel: "shared_store", options: "kinds=store", flags: &flags, ..Run::default() };
        let recorded = run.record(&plugin);
        let stores = recorded.of_kind(0, STORE);
        assert_eq!(stores.len(), 1, "{level}: {stores:x?}");
        assert_eq!((stores[0].mask, stores[0].value), (u32::MAX, Some(0x1122_3344_5566_7788)));
        assert_eq!(recorded.sites[stores[0].site as usize].bytes, 8);
    }
}

#[test]
fn a_store_through_a_generic_pointer_is_of_the_lanes_that_store_to_shared_memory() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run = Run {
            kernel: "generic_store",
            options: "kinds=store",
            flags: &flags,
            ..Run::default()
        };
        let recorded = run.record(&plugin);
        let stores = recorded.of_kind(0, STORE);
        let stores: Vec<_> = stores.iter().map(|store| (store.mask, store.value)).collect();
        assert_eq!(stores, [(0xffff_ff00, Some(8))], "{level}");
    }
}

#[test]
fn atomics_record_what_was_there() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run =
            Run { kernel: "atomics", options: "kinds=atomic", flags: &flags, ..Run::default() };
        let recorded = run.record(&plugin);
        let atomics = recorded.of_kind(0, ATOMIC);
        let atomics: Vec<_> = atomics.iter().map(|atomic| (atomic.mask, atomic.value)).collect();
        assert_eq!(atomics, [(1, Some(0)), (1, Some(0x1_0000_0000))], "{level}");
    }
}

#[test]
fn copies_to_shared_memory_record_their_first_bytes() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run = Run { kernel: "copies", options: "kinds=store", flags: &flags, ..Run::default() };
        let recorded = run.record(&plugin);
        let seen: Vec<_> = recorded.warps[&0]
            .iter()
            .map(|event| {
                let site = &recorded.sites[event.site as usize];
                (site.function.as_str(), site.bytes, event.mask, event.value)
            })
            .collect();
        let expected = [
            ("copies", 12, u32::MAX, Some(0x7_0000_0008)),
            ("copies", 3, u32::MAX, Some(0x03_0201)),
            ("copies", 16, u32::MAX, Some(0xabab_abab_abab_abab)),
            // Five bytes, of the lowest lane that copies to shared memory.
            ("copy_somewhere", 0, 0xffff_ff00, Some(0x7_0000_0008)),
            // Three, but none in every fourth lane.
            ("fill_somewhere", 0, 0xeeee_eeee, Some(0x02_0202)),
        ];
        assert_eq!(seen, expected, "{level}");
    }
}

#[test]
fn assembly_records_what_it_tells() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run = Run {
            kernel: "assembly",
            options: "kinds=store,atomic",
            flags: &flags,
            ..Run::default()
        };
        let recorded = run.record(&plugin);
        let events = &recorded.warps[&0];
        let seen: Vec<_> =
            events.iter().map(|event| (event.kind, event.mask, event.value)).collect();
        let atomics = [Some(0), Some(5), None];
        let expected = [(STORE, u32::MAX, None)].into_iter();
        let expected = expected.chain(atomics.map(|old| (ATOMIC, 8, old)));
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{level}");
    }
}

#[test]
fn warps_whose_threads_end_inside_of_functions_keep_their_events() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let options = "kinds=branch;functions=!leave_quietly";
        let run = Run { kernel: "ended", options, flags: &flags, ..Run::default() };
        let recorded = run.record(&plugin);
        let left = recorded.branches(0, "leave");
        assert!(either(&left, &[(u32::MAX, 0xffe0_0000)]), "{level}: {left:x?}");
        let rest = recorded.branches(0, "ended");
        assert!(either(&rest, &[(0x1f_ffff, 0xa_aaaa)]), "{level}: {rest:x?}");
    }
}

#[test]
fn functions_record_that_they_are_entered_and_left() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run = Run {
            kernel: "early_exit",
            options: "kinds=entry,exit",
            flags: &flags,
            ..Run::default()
        };
        let recorded = run.record(&plugin);
        assert_eq!(
            recorded.of_kind(0, ENTRY).iter().map(|event| event.mask).collect::<Vec<_>>(),
            [u32::MAX]
        );
        // Together or one after another, every lane leaves once.
        let left = recorded.of_kind(0, EXIT);
        let lanes = left.iter().fold(0, |lanes, event| {
            assert_eq!(lanes & event.mask, 0, "{level}: a lane leaves twice: {left:x?}");
            lanes | event.mask
        });
        assert_eq!(lanes, u32::MAX, "{level}: {left:x?}");
    }
}

#[test]
fn a_called_function_finds_the_cursor_of_its_warp() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let run = Run {
            kernel: "calls",
            flags: &flags,
            block: [64, 1, 1],
            grid: [2, 1, 1],
            ..Run::default()
        };
        let recorded = run.record(&plugin);
        assert_eq!(recorded.warps.len(), 4);
        for warp in [0, 2] {
            let branches = recorded.branches(warp, "callee");
            assert!(either(&branches, &[(u32::MAX, u32::MAX << 6)]), "{level}: {branches:x?}");
        }
        for warp in [1, 3] {
            let branches = recorded.branches(warp, "callee");
            assert!(either(&branches, &[(u32::MAX, u32::MAX)]), "{level}: {branches:x?}");
        }
    }
}

#[test]
fn an_inlined_function_names_the_calls_it_is_inlined_at() {
    let plugin = plugin();
    let recorded = Run { kernel: "inlines", ..Run::default() }.record(&plugin);
    let of: Vec<_> =
        recorded.sites.iter().filter(|site| site.function.starts_with("inlined")).collect();
    assert_eq!(of.len(), 2, "{of:?}");
    assert!(of[0].inlined.ends_with(":inlines") && of[1].inlined.ends_with(":inlines"), "{of:?}");
    assert_ne!(of[0].inlined, of[1].inlined);
    assert_ne!(of[0].key, of[1].key);
    assert_eq!(of[0].line, of[1].line);
    let branches = recorded.branches(0, "inlined");
    assert_eq!(branches.len(), 2, "{branches:x?}");
    assert!(
        either(&branches, &[(u32::MAX, u32::MAX << 8), (u32::MAX, u32::MAX << 7)]),
        "{branches:x?}"
    );
}

#[test]
fn recording_can_be_paused() {
    let plugin = plugin();
    for level in LEVELS {
        let flags = [level, "-g"];
        let recorded = Run { kernel: "paused", flags: &flags, ..Run::default() }.record(&plugin);
        let branches = recorded.branches(0, "paused");
        assert_eq!(branches.len(), 2, "{level}: {branches:x?}");
        assert_eq!(recorded.words[&0], 2, "{level}");
    }
}

#[test]
fn what_does_not_fit_is_counted_and_overwrites_nothing() {
    let plugin = plugin();
    let grid = [4, 1, 1];
    let all = Run { kernel: "divergent_loop", grid, ..Run::default() }.record(&plugin);
    let few =
        Run { kernel: "divergent_loop", grid, capacity: 10, ..Run::default() }.record(&plugin);
    for warp in 0..4 {
        assert_eq!(few.words[&warp], all.words[&warp], "what was asked for is counted");
        assert_eq!(few.warps[&warp], all.warps[&warp][..few.warps[&warp].len()]);
        assert_eq!(few.warps[&warp].len(), 5, "ten words are five events with a ballot");
    }
}

#[test]
fn sampled_warps_alone_record() {
    let plugin = plugin();
    let run =
        Run { kernel: "uniform", grid: [3, 2, 1], block: [64, 1, 1], sample: 5, ..Run::default() };
    let recorded = run.record(&plugin);
    assert_eq!(recorded.warps.keys().copied().collect::<Vec<_>>(), [0, 5, 10]);
    for warp in [0, 5, 10] {
        assert_eq!(recorded.words[&warp], 1);
    }
}

#[test]
fn warps_of_blocks_with_three_dimensions_and_a_rest_have_their_own_regions() {
    let plugin = plugin();
    let run = Run { kernel: "uniform", grid: [2, 2, 2], block: [3, 5, 5], ..Run::default() };
    let recorded = run.record(&plugin);
    assert_eq!(recorded.warps.keys().copied().collect::<Vec<_>>(), (0..24).collect::<Vec<_>>());
    for (warp, events) in &recorded.warps {
        let lanes = if warp % 3 == 2 { 11 } else { 32 };
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].mask, u32::MAX >> (32 - lanes), "warp {warp}");
    }
}

const CALLER: &str = "#include \"cuda.h\"
extern __device__ u32 halvings(u32);
extern \"C\" __global__ void caller(u32 *out, u32 n) {
    if (lane() < n * 4) out[lane()] = halvings(lane());
}
";
const CALLED: &str = "#include \"cuda.h\"
__device__ u32 halvings(u32 x) {
    u32 rounds = 0;
    while (x) {
        x /= 2;
        rounds++;
    }
    return rounds;
}
";

#[test]
fn units_that_are_linked_record_into_one_buffer() {
    let plugin = plugin();
    let folder = tempfile::tempdir().expect("a folder");
    let source = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let (a, b) = (source("a.cu", CALLER), source("b.cu", CALLED));
    for level in LEVELS {
        // The second time nothing of the kernel's own unit is recorded: it still has to set up the warps.
        for functions in ["*", "halvings*"] {
            let options = format!("kinds=branch;rdc;functions={functions}");
            let ptx = |source: &Path| {
                common::compile(&plugin, source, Some(&options), &[level, "-g", "-fgpu-rdc"])
            };
            let (a, b) = (ptx(&a), ptx(&b));
            let run = Run { kernel: "caller", ..Run::default() };
            let recorded = run.record_linked(&[("a", &a), ("b", &b)]);
            for lane in 0..20_u32 {
                assert_eq!(recorded.out[lane as usize], 32 - lane.leading_zeros(), "{level}");
            }
            let own = recorded.branches(0, "caller").len();
            assert_eq!(own, usize::from(functions == "*"), "{level}");
            let files: Vec<_> = recorded.sites.iter().map(|site| site.file.as_str()).collect();
            assert_eq!(files.contains(&"a.cu"), functions == "*", "{level}: {files:?}");
            // Lanes that have bits left, round by round, among the 20 that call.
            let left = |round: u32| (0..20).filter(|n| n >> round != 0).map(|n| 1_u32 << n).sum();
            let left: Vec<u32> = (0..5).map(left).collect();
            let branches = recorded.branches(0, "halvings");
            let masks: Vec<_> = branches.iter().map(|(mask, _)| *mask).collect();
            match level {
                "-O0" => assert_eq!(masks, [&[0xf_ffff], &left[..]].concat(), "{level}"),
                // Rotated: the first test is of all, and each round tests what is left of it.
                _ => assert!(masks.starts_with(&[0xf_ffff]) && masks.contains(&left[4]), "{level}"),
            }
        }
    }
}

#[test]
fn annotations_win_over_globs() {
    let plugin = plugin();
    let names = |options: &str| {
        let run = Run { kernel: "annotated", options, flags: &["-O0", "-g"], ..Run::default() };
        let recorded = run.record(&plugin);
        let mut names: Vec<_> = recorded.sites.iter().map(|site| site.function.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let all = names("kinds=branch");
    assert!(all.contains(&"wanted".to_owned()), "{all:?}");
    assert!(!all.contains(&"unwanted".to_owned()), "{all:?}");
    assert_eq!(names("kinds=branch;functions=unwanted,nothing"), ["wanted"]);
    let without = names("kinds=branch;functions=!call*");
    assert!(!without.contains(&"callee".to_owned()), "{without:?}");
    assert!(without.contains(&"nested".to_owned()), "{without:?}");
}

/// What the emulator sees of code that nothing was put into: branches, shared stores and atomics of a warp,
/// by line, with their lanes and the value of the lowest.
fn observed(ptx: &str, kernel: &str) -> Vec<(u8, u32, u32, Option<u64>)> {
    let mut device = Device::new();
    let module = device.load(ptx).unwrap_or_else(|error| panic!("{error}"));
    let out = device.alloc(4096).expect("memory");
    let launch = Launch { block: [32, 1, 1], observe: true, ..Launch::default() };
    let args = Args::new().u64(out).u32(5);
    let report = device.launch(&module, kernel, &launch, &args).expect("a launch");
    let seen = |event: &nvabi_emu::Event| {
        let (kind, value) = match event.kind {
            EventKind::Branch { .. } => (BRANCH, None),
            EventKind::SharedStore { value } => (STORE, Some(value)),
            EventKind::Atomic { old, .. } => (ATOMIC, Some(old)),
            _ => return None,
        };
        Some((kind, event.location.line, event.mask, value))
    };
    report.events[0].events.iter().filter_map(seen).collect()
}

#[test]
fn events_are_those_of_the_code_as_it_was() {
    let plugin = plugin();
    let source = Path::new(common::KERNELS).join("events.cu");
    let flags = ["-O0", "-g"];
    let plain = common::compile(&plugin, &source, None, &flags);
    let mut compared = 0;
    for kernel in KERNELS_OF_EVENTS {
        // LLVM's own chain of compares is another; what is paused or left out is not recorded; a copy is
        // several stores in PTX; and the value of assembly's store is not known.
        if ["switched", "paused", "annotated", "copies", "assembly"].contains(&kernel) {
            continue;
        }
        let run =
            Run { kernel, options: "kinds=branch,store,atomic", flags: &flags, ..Run::default() };
        let recorded = run.record(&plugin);
        let recorded: Vec<_> = recorded.warps[&0]
            .iter()
            .map(|event| {
                let line = recorded.sites[event.site as usize].line;
                (event.kind, line, event.mask, event.value)
            })
            .collect();
        assert_eq!(recorded, observed(&plain, kernel), "{kernel}");
        compared += recorded.len();
    }
    assert!(compared > 50, "{compared} events");
}

const KERNELS_OF_EVENTS: [&str; 17] = [
    "divergent_loop",
    "uniform",
    "nested",
    "switched",
    "shared_store",
    "generic_store",
    "atomics",
    "calls",
    "inlines",
    "early_exit",
    "paused",
    "annotated",
    "phis",
    "copies",
    "assembly",
    "ended",
    "jumps",
];

#[test]
fn results_stay_what_they_are() {
    let plugin = plugin();
    let source = Path::new(common::KERNELS).join("events.cu");
    for level in LEVELS {
        let plain = common::compile(&plugin, &source, None, &[level]);
        let traced = common::compile(&plugin, &source, Some("kinds=all"), &[level]);
        for kernel in KERNELS_OF_EVENTS {
            let mut device = Device::new();
            let module = device.load(&plain).unwrap_or_else(|error| panic!("{error}"));
            let out = device.alloc(4096).expect("memory");
            device.write(out, &[0; 4096]).expect("memory");
            let launch = Launch { block: [32, 1, 1], ..Launch::default() };
            let args = Args::new().u64(out).u32(5);
            device.launch(&module, kernel, &launch, &args).expect("a launch");
            let mut bytes = [0; 4096];
            device.read(out, &mut bytes).expect("memory");
            let words = words_of(&bytes);
            let recorded = Run { kernel, ..Run::default() }.record_ptx(&traced);
            assert!(recorded.out == words, "{kernel} {level}");
            assert!(words.iter().any(|word| *word != 0) || kernel == "divergent_loop", "{kernel}");
        }
    }
}
