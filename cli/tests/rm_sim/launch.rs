//! Launches: descriptions of each version, what they release and what depends on them, with programs of PTX text.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::channel::{BASE, EXCEPTION, FIXED, FROM, MMU_FAULT, READ_ONLY, Rig, SIZE, map_dma};
use crate::client::status::*;
use crate::client::*;
use crate::{diagnostics, simulate};

/// Where things are in a rig's memory: programs, constants, descriptions, and what is released.
const PROGRAM: u64 = 0x2_0000;
const CONSTANTS: u64 = 0x3_0000;
const QMD: u64 = 0x4_0000;
const NEXT_QMD: u64 = 0x4_1000;
const RELEASED: u64 = 0x5_0000;

/// GT200_DEBUGGER.
const DEBUGGER: u32 = 0x83de;

/// `data[i] = i * factor + data[i]`, over all threads, by one thread each.
const SCALE: &str = ".version 8.3\n.target sm_80\n.address_size 64\n
    .visible .entry scale(.param .u64 data, .param .u32 factor) {
        .reg .b32 %r<9>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [data];
        ld.param.u32 %r5, [factor];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %ntid.x;
        mov.u32 %r3, %tid.x;
        mad.lo.u32 %r4, %r1, %r2, %r3;
        mul.wide.u32 %rd2, %r4, 4;
        add.s64 %rd3, %rd1, %rd2;
        ld.global.u32 %r6, [%rd3];
        mad.lo.u32 %r7, %r4, %r5, %r6;
        st.global.u32 [%rd3], %r7;
        ret;
    }\0";

/// Counts down from `factor`, and stores what is left.
const LONG: &str = ".version 8.3\n.target sm_80\n.address_size 64\n
    .visible .entry long(.param .u64 data, .param .u32 factor) {
        .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [data];
        ld.param.u32 %r1, [factor];
    AGAIN:
        add.u32 %r1, %r1, -1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra AGAIN;
        st.global.u32 [%rd1], %r1;
        ret;
    }\0";

/// Adds to a word in one step.
const ADD: &str = ".version 8.3\n.target sm_80\n.address_size 64\n
    .visible .entry add(.param .u64 data, .param .u32 factor) {
        .reg .b32 %r<2>; .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [data];
        ld.param.u32 %r1, [factor];
        red.global.add.u32 [%rd1], %r1;
        ret;
    }\0";

/// Where the fields of a version are: highest and lowest bit (`clc7c0qmd.h`, `clcbc0qmd.h`, `clcec0qmd.h`).
struct Version {
    /// Its numbers, and that it launches a grid, or its group.
    major: [(u32, u32, u64); 3],
    grid: (u32, u32),
    threads: [(u32, u32); 3],
    /// And by how many bits it is shifted.
    program: (u32, u32, u32),
    bank: [(u32, u32, u32); 3],
    release: [(u32, u32); 3],
    dependent: [(u32, u32); 3],
    /// Where parameters begin in bank 0.
    parameters: u64,
}

const AMPERE: Version = Version {
    major: [(583, 580, 3), (579, 576, 0), (133, 128, 0x3f)],
    grid: (415, 384),
    threads: [(607, 592), (623, 608), (639, 624)],
    program: (1584, 1536, 0),
    bank: [(640, 640, 0), (1072, 1024, 0), (1087, 1075, 4)],
    release: [(823, 823), (807, 768), (895, 832)],
    dependent: [(512, 512), (515, 513), (511, 480)],
    parameters: 0x160,
};

const HOPPER: Version = Version {
    major: [(583, 580, 4), (579, 576, 0), (25, 23, 2)],
    grid: (1055, 1024),
    threads: [(1167, 1152), (1183, 1168), (1199, 1184)],
    program: (1272, 1216, 0),
    bank: [(416, 416, 0), (1586, 1536, 6), (1599, 1587, 4)],
    release: [(320, 320), (696, 640), (767, 704)],
    dependent: [(368, 368), (371, 369), (479, 448)],
    parameters: 0x210,
};

const BLACKWELL: Version = Version {
    major: [(471, 468, 5), (467, 464, 0), (153, 151, 2)],
    grid: (1279, 1248),
    threads: [(1103, 1088), (1119, 1104), (1127, 1120)],
    program: (1076, 1024, 4),
    bank: [(1856, 1856, 0), (1394, 1344, 6), (1407, 1395, 4)],
    release: [(288, 288), (536, 480), (607, 544)],
    dependent: [(336, 336), (339, 337), (415, 384)],
    parameters: 0x380,
};

/// A kernel that is launched.
struct Kernel {
    text: &'static str,
    blocks: u32,
    threads: u32,
    data: u64,
    factor: u32,
}

impl Version {
    /// That of the machine's GPU.
    fn here(rig: &Rig) -> &'static Self {
        match rig.compute_class() {
            0xcdc0.. => &BLACKWELL,
            0xcbc0.. => &HOPPER,
            _ => &AMPERE,
        }
    }

    /// Writes program, constants and description of a kernel, the description `nth` of its rig.
    fn describe(
        &self,
        rig: &mut Rig,
        nth: u64,
        kernel: &Kernel,
        more: &[((u32, u32), u64)],
    ) -> u64 {
        let (program, constants) = (PROGRAM + nth * 0x1000, CONSTANTS + nth * 0x1000);
        let text = kernel.text.as_bytes();
        rig.bytes[program as usize..][..text.len()].copy_from_slice(text);
        let at = (constants + self.parameters) as usize;
        rig.bytes[at..][..8].copy_from_slice(&kernel.data.to_le_bytes());
        rig.bytes[at + 8..][..4].copy_from_slice(&kernel.factor.to_le_bytes());
        let mut qmd = [0_u8; 384];
        for (high, low, value) in self.major {
            put(&mut qmd, (high, low), value);
        }
        put(&mut qmd, self.grid, kernel.blocks.into());
        // Height and depth follow in fields of 16 bits, with or without a gap.
        let [height, depth] =
            if self.grid.0 == 415 { [416, 448] } else { [self.grid.0 + 1, self.grid.0 + 33] };
        put(&mut qmd, (height + 15, height), 1);
        put(&mut qmd, (depth + 15, depth), 1);
        put(&mut qmd, self.threads[0], kernel.threads.into());
        put(&mut qmd, self.threads[1], 1);
        put(&mut qmd, self.threads[2], 1);
        put(&mut qmd, (self.program.0, self.program.1), (BASE + program) >> self.program.2);
        let values = [1, BASE + constants, self.parameters + 16];
        for ((high, low, shift), value) in self.bank.into_iter().zip(values) {
            put(&mut qmd, (high, low), value.div_ceil(1 << shift));
        }
        for (field, value) in more {
            put(&mut qmd, *field, *value);
        }
        let at = if nth == 0 { QMD } else { NEXT_QMD };
        rig.bytes[at as usize..][..qmd.len()].copy_from_slice(&qmd);
        BASE + at
    }

    fn releases(&self, at: u64, payload: u64) -> [((u32, u32), u64); 3] {
        let [is_enabled, address, value] = self.release;
        [(is_enabled, 1), (address, at), (value, payload)]
    }
}

fn put(qmd: &mut [u8; 384], (high, low): (u32, u32), value: u64) {
    for bit in 0..=high - low {
        let (byte, mask) = ((low + bit) as usize / 8, 1 << ((low + bit) % 8));
        qmd[byte] = qmd[byte] & !mask | if value >> bit & 1 == 1 { mask } else { 0 };
    }
}

fn words(rig: &Rig, at: u64, count: usize) -> Vec<u32> {
    (0..count).map(|word| rig.word(at + word as u64 * 4).load(Ordering::Acquire)).collect()
}

fn a_kernel_computes_and_releases() {
    let mut rig = Rig::new();
    let version = Version::here(&rig);
    let (first, second) = (
        Kernel { text: SCALE, blocks: 5, threads: 64, data: BASE + FROM, factor: 3 },
        Kernel { text: SCALE, blocks: 2, threads: 160, data: BASE + FROM, factor: 4 },
    );
    // The second depends on the first, and both say when they have ended.
    let [is_enabled, action, pointer] = version.dependent;
    let next = version.describe(&mut rig, 1, &second, &version.releases(BASE + RELEASED + 16, 8));
    let mut more = version.releases(BASE + RELEASED, 7).to_vec();
    more.extend([(is_enabled, 1), (action, 1), (pointer, next >> 8)]);
    let at = version.describe(&mut rig, 0, &first, &more);
    rig.launch(at);
    assert!(rig.waits_for(|rig| rig.word(RELEASED + 16).load(Ordering::Acquire) == 8));
    let expected: Vec<u32> = (0..320).map(|at| at * 7).collect();
    assert_eq!(words(&rig, FROM, 320), expected);
    assert_eq!(words(&rig, FROM + 320 * 4, 1), [0]);
    let times: Vec<u32> = words(&rig, RELEASED, 8);
    let time = |at: usize| u64::from(times[at]) | u64::from(times[at + 1]) << 32;
    assert_eq!(times[0], 7);
    assert!(time(2) > 0 && time(6) >= time(2), "{times:?}");
    assert!(rig.works());
}

fn what_is_wrong_ends_the_channel() {
    let beyond = Kernel { text: SCALE, blocks: 1, threads: 1, data: BASE - 0x10_0000, factor: 3 };
    let odd = Kernel { text: SCALE, blocks: 1, threads: 1, data: BASE + FROM + 1, factor: 3 };
    let no_text = Kernel { text: "no program\0", ..beyond };
    for (kernel, error) in [(beyond, MMU_FAULT), (odd, EXCEPTION), (no_text, EXCEPTION)] {
        let mut rig = Rig::new();
        let version = Version::here(&rig);
        let at = version.describe(&mut rig, 0, &kernel, &version.releases(BASE + RELEASED, 7));
        rig.launch(at);
        assert_eq!(rig.error(), error);
        assert_eq!(words(&rig, RELEASED, 1), [0], "nothing is released");
    }
}

/// What a debugger is told of the channel: of the first core's warps, of the MMU, and what that refused.
struct Told {
    warp: u64,
    is_of_mmu: bool,
    refused: Vec<(u64, u64, u64)>,
}

/// A debugger of what the channel's kernels do.
fn debugger(rig: &Rig) -> Result<u32, u32> {
    let compute = rig.client.alloc(rig.channel, rig.compute_class(), None).unwrap();
    let mut params = debugger_params(compute);
    rig.client.alloc(rig.device, DEBUGGER, Some(&mut params))
}

fn debugger_params(object: u32) -> Struct {
    Struct::new("NV83DE_ALLOC_PARAMETERS").with("hClass3dObject", object.into())
}

fn told(rig: &Rig, debugger: u32) -> Told {
    let mut states = Struct::new("NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS")
        .with("hTargetChannel", rig.channel.into())
        .with("numSMsToRead", 100);
    let name = "NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES";
    assert_eq!(rig.client.control(debugger, name, &mut states), OK);
    let mut faults = Struct::new("NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS");
    let name = "NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO";
    assert_eq!(rig.client.control(debugger, name, &mut faults), OK);
    let of = |at: u64, field: &str| faults.get(&format!("mmuFaultInfoList[{at}].{field}"));
    let fault = |at| (of(at, "faultAddress"), of(at, "faultType"), of(at, "accessType"));
    let is_of_mmu = states.get("mmuFault.valid") == 1;
    let word = states.get("mmuFault.faultInfo");
    let refused: Vec<_> = (0..faults.get("count")).map(fault).collect();
    let valid: Vec<u64> =
        refused.iter().map(|(_, kind, access)| 1 << 31 | access << 16 | kind).collect();
    assert_eq!(is_of_mmu.then_some(word), valid.last().copied().filter(|_| is_of_mmu));
    Told { warp: states.get("smErrorStateArray[0].hwwWarpEsr"), is_of_mmu, refused }
}

/// Why an address is refused and what was wanted of it: NV_PFAULT_FAULT_TYPE, NV_PFAULT_ACCESS_TYPE.
fn debuggers_are_told() {
    const PDE: u64 = 0;
    const PTE: u64 = 2;
    const VA_LIMIT_VIOLATION: u64 = 3;
    const RO_VIOLATION: u64 = 6;
    let (read, write, atomic) = (0, 1, 2);
    let (before, behind, above) = (BASE - 0x10_0000, BASE + SIZE as u64, 1 << 56);
    let read_only = BASE + 0x100_0000;
    for (text, data, kind, access) in [
        (SCALE, before, PDE, read),
        (LONG, behind, PTE, write),
        (ADD, behind + 8, PTE, atomic),
        (SCALE, above, VA_LIMIT_VIOLATION, read),
        (SCALE, read_only, RO_VIOLATION, write),
        (ADD, read_only + 4, RO_VIOLATION, atomic),
    ] {
        let mut rig = Rig::new();
        let pair = [rig.window, rig.memory];
        let wish = [0, SIZE as u64, FIXED | READ_ONLY, read_only];
        assert_eq!(map_dma(&rig.client, rig.device, pair, wish), Ok(read_only));
        let debugger = debugger(&rig).unwrap();
        let first = told(&rig, debugger);
        assert!(!first.is_of_mmu && first.refused.is_empty());
        let kernel = Kernel { text, blocks: 1, threads: 1, data, factor: 3 };
        let at = Version::here(&rig).describe(&mut rig, 0, &kernel, &[]);
        rig.launch(at);
        assert_eq!(rig.error(), MMU_FAULT);
        let seen = told(&rig, debugger);
        assert!(seen.is_of_mmu && seen.warp == 0);
        // Of the address the page alone.
        assert_eq!(seen.refused, [(data & !0xfff, kind, access)]);
        let mut params = Struct::new("NV83DE_CTRL_DEBUG_CLEAR_ALL_SM_ERROR_STATES_PARAMS")
            .with("hTargetChannel", rig.channel.into());
        let name = "NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES";
        assert_eq!(rig.client.control(debugger, name, &mut params), OK);
        // The cores have forgotten it, and the list has it still.
        let cleared = told(&rig, debugger);
        assert!(!cleared.is_of_mmu);
        assert_eq!(cleared.refused, seen.refused);
    }
    warps_tell_of_their_own_errors();
    copies_are_none_of_theirs();
    debuggers_are_of_kernels();
}

fn warps_tell_of_their_own_errors() {
    const MISALIGNED: u64 = 15;
    let mut rig = Rig::new();
    let debugger = debugger(&rig).unwrap();
    let kernel = Kernel { text: SCALE, blocks: 1, threads: 1, data: BASE + FROM + 1, factor: 3 };
    let at = Version::here(&rig).describe(&mut rig, 0, &kernel, &[]);
    rig.launch(at);
    assert_eq!(rig.error(), EXCEPTION);
    let seen = told(&rig, debugger);
    assert_eq!((seen.warp, seen.is_of_mmu, seen.refused), (MISALIGNED, false, vec![]));
}

/// The same error of a copy is one of no core.
fn copies_are_none_of_theirs() {
    let mut rig = Rig::new();
    let debugger = debugger(&rig).unwrap();
    rig.copy(BASE - 0x1000, BASE + FROM, 16);
    assert_eq!(rig.error(), MMU_FAULT);
    let seen = told(&rig, debugger);
    assert!(seen.warp == 0 && !seen.is_of_mmu && seen.refused.is_empty());
}

fn debuggers_are_of_kernels() {
    let rig = Rig::new();
    let alloc =
        |mut params: Struct| rig.client.alloc(rig.device, DEBUGGER, Some(&mut params)).map(|_| ());
    assert_eq!(alloc(debugger_params(0x1234_5678)), Err(INVALID_OBJECT_PARENT));
    assert_eq!(alloc(debugger_params(rig.channel)), Err(INVALID_OBJECT));
    let compute = rig.client.alloc(rig.channel, rig.compute_class(), None).unwrap();
    let obsolete = debugger_params(compute).with("hDebuggerClient_Obsolete", 1);
    assert_eq!(alloc(obsolete), Err(INVALID_ARGUMENT));
    debuggers_go_with_their_object(&rig, compute);
    // Of another client of the same program.
    let compute = rig.client.alloc(rig.channel, rig.compute_class(), None).unwrap();
    let other = Client::with_device();
    let mut params = debugger_params(compute).with("hAppClient", rig.client.handle.into());
    let debugger = other.0.alloc(other.1, DEBUGGER, Some(&mut params));
    assert!(debugger.is_ok(), "{debugger:?}");
}

fn debuggers_go_with_their_object(rig: &Rig, compute: u32) {
    let debugger =
        rig.client.alloc(rig.device, DEBUGGER, Some(&mut debugger_params(compute))).unwrap();
    let mut faults = Struct::new("NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS");
    let mut ask =
        || rig.client.control(debugger, "NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO", &mut faults);
    assert_eq!(ask(), OK);
    assert_eq!(rig.client.free(compute), OK);
    assert_eq!(ask(), RESOURCE_LOST);
    // Another object with the same handle is another object.
    let again = rig.client.alloc_as(rig.channel, compute, rig.compute_class(), None);
    assert_eq!((again, ask()), (Ok(compute), RESOURCE_LOST));
    // A command that no debugger has, too.
    assert_eq!(rig.client.control_with(debugger, 0x83de_0000 | 0xffff, 0, 0), RESOURCE_LOST);
    assert_eq!(rig.client.free(compute), OK);
}

#[test]
fn debuggers_are_told_what_was_refused() {
    let name = "rm_sim::launch::debuggers_are_told_what_was_refused";
    simulate(name, "550.163.01", &["--ptx", "--gpu", "rtx3090"], debuggers_are_told);
}

/// A card starts any grid: this one leaves the memory after its first blocks.
fn what_is_large_ends_where_it_goes_wrong() {
    // Some thousand blocks are before the one that goes wrong: a debug build runs each in 70 µs.
    let data = BASE + SIZE as u64 - 0x4000;
    let kernel = Kernel { text: SCALE, blocks: 1 << 30, threads: 1, data, factor: 3 };
    let mut rig = Rig::new();
    let version = Version::here(&rig);
    let at = version.describe(&mut rig, 0, &kernel, &[]);
    rig.launch(at);
    assert_eq!(rig.error(), MMU_FAULT);
}

/// One whose channel is gone ends soon: a machine is not slowed down by it.
fn a_kernel_of_nobody_ends() {
    let start = Instant::now();
    for _ in 0..4 {
        let mut rig = Rig::new();
        let version = Version::here(&rig);
        let kernel =
            Kernel { text: LONG, blocks: 1 << 22, threads: 1, data: BASE + FROM, factor: 1 << 20 };
        let at = version.describe(&mut rig, 0, &kernel, &[]);
        rig.launch(at);
        // It has begun when the program ends its channel.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(rig.client.free(rig.channel), 0);
    }
    others_go_on_while_a_kernel_runs();
    assert!(start.elapsed().as_secs() < 60);
}

fn others_go_on_while_a_kernel_runs() {
    let mut rig = Rig::new();
    let mut other = Rig::new();
    let version = Version::here(&rig);
    let kernel = Kernel { text: LONG, blocks: 1, threads: 1, data: BASE + FROM, factor: 250_000 };
    rig.word(FROM).store(99, Ordering::Release);
    let at = version.describe(&mut rig, 0, &kernel, &version.releases(BASE + RELEASED, 7));
    let start = Instant::now();
    rig.launch(at);
    let mut rounds = 0;
    while rig.word(RELEASED).load(Ordering::Acquire) != 7 {
        assert!(other.works());
        Client::with_device();
        rounds += 1;
        assert!(start.elapsed().as_secs() < 60);
    }
    assert!(rounds > 3, "{rounds}");
    assert_eq!(words(&rig, FROM, 1), [0]);
}

fn all() {
    a_kernel_computes_and_releases();
    what_is_wrong_ends_the_channel();
}

/// With what the report says of it.
fn runs_on(name: &str, gpu: &str, tag: &str) {
    let report = simulate(name, tag, &["--ptx", "--gpu", gpu], all);
    let told = diagnostics(&report);
    let codes: Vec<&str> = told.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(codes, ["kernel-error", "kernel-error", "not-executed"], "{told:?}");
    assert!(
        told[0].1.contains("kernel scale, PTX line") && told[0].1.contains("out of bounds"),
        "{told:?}"
    );
    assert!(told[1].1.contains("misaligned"), "{told:?}");
    let why = if gpu == "rtxpro6000" { "sm_120 is not executed" } else { "no code of sm_" };
    assert!(told[2].1.contains(why), "{told:?}");
}

/// Bits 25:23 of Hopper's descriptions say what is launched.
fn a_queue_is_launched() {
    let mut rig = Rig::new();
    let kernel = Kernel { text: SCALE, blocks: 1, threads: 1, data: BASE + FROM, factor: 3 };
    let at = Version::here(&rig).describe(&mut rig, 0, &kernel, &[((25, 23), 3)]);
    rig.launch(at);
    assert_eq!(rig.error(), EXCEPTION);
}

#[test]
fn what_is_not_executed_is_told_with_its_code() {
    let name = "rm_sim::launch::what_is_not_executed_is_told_with_its_code";
    let report = simulate(name, "570.86.15", &["--gpu", "h100"], a_queue_is_launched);
    let [(code, text)] = &diagnostics(&report)[..] else { panic!("{report}") };
    assert_eq!(code, "not-executed");
    let (launch, program) = (BASE + QMD, BASE + PROGRAM);
    let what =
        format!("compute launch at {launch:#x}, sm_90 code at {program:#x}: a launch of type 3");
    assert!(text.contains(&what), "{text}");
}

#[test]
fn kernels_run_on_ampere() {
    runs_on("rm_sim::launch::kernels_run_on_ampere", "rtx3090", "550.163.01");
}

#[test]
fn kernels_run_on_hopper() {
    runs_on("rm_sim::launch::kernels_run_on_hopper", "h100", "570.86.15");
}

#[test]
fn kernels_run_on_blackwell() {
    runs_on("rm_sim::launch::kernels_run_on_blackwell", "rtxpro6000", "595.45.04");
}

#[test]
fn a_long_kernel_holds_up_nobody() {
    let name = "rm_sim::launch::a_long_kernel_holds_up_nobody";
    simulate(name, "550.163.01", &["--ptx"], a_kernel_of_nobody_ends);
}

#[test]
fn large_grids_end_where_they_go_wrong() {
    let name = "rm_sim::launch::large_grids_end_where_they_go_wrong";
    let report = simulate(name, "550.163.01", &["--ptx"], what_is_large_ends_where_it_goes_wrong);
    let told = diagnostics(&report);
    assert!(told[0].1.contains("Xid 31"), "{told:?}");
}

#[test]
fn text_is_refused_unless_it_is_asked_for() {
    let name = "rm_sim::launch::text_is_refused_unless_it_is_asked_for";
    let report = simulate(name, "550.163.01", &[], || {
        let mut rig = Rig::new();
        let version = Version::here(&rig);
        let kernel = Kernel { text: SCALE, blocks: 1, threads: 1, data: BASE + FROM, factor: 3 };
        let at = version.describe(&mut rig, 0, &kernel, &[]);
        rig.launch(at);
        assert_eq!(rig.error(), EXCEPTION);
    });
    let told = diagnostics(&report);
    assert!(told[0].1.contains("no code of sm_86 at"), "{told:?}");
}
