//! Blocks of a plain launch that wait for each other, as those may that a GPU runs at once: more of them than threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nvabi_emu::{Args, Device, DeviceError, FindingKind, Launch, MAX_LAUNCH_BYTES, Module, Report};
use nvabi_test::Need;

use super::sass;

/// Kernels of `(counter, out, wanted)`. All take a number; then `meet` waits for the counter, `chain` each for the block
/// behind it, and of `fails` the block 5 traps where the others wait. Of `two_fail` all blocks from 3 on trap at once;
/// 2 comes before them, in the order of turns, and takes long until it traps.
const TEXT: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry meet(.param .u64 counter, .param .u64 out, .param .u32 wanted) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [wanted];
  mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd2, %rd2, %rd3;
  mov.u32 %r3, %tid.x; setp.ne.u32 %p1, %r3, 0; @%p1 bra joined;
  atom.add.u32 %r4, [%rd1], 1; st.global.u32 [%rd2], %r4;
again: ld.volatile.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, %r1; @%p2 bra again;
joined: bar.sync 0;
  setp.ne.u32 %p1, %r3, 32; @%p1 bra done;
  ld.volatile.global.u32 %r6, [%rd1]; shl.b32 %r6, %r6, 16; ld.global.u32 %r4, [%rd2];
  add.u32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4;
done: ret;
}
.visible .entry chain(.param .u64 counter, .param .u64 out, .param .u32 wanted) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  ld.param.u64 %rd2, [out]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %rd3, %r2, 4; add.u64 %rd2, %rd2, %rd3;
  add.u32 %r4, %r2, 1; mov.u32 %r5, 1; setp.eq.u32 %p1, %r4, %r3; @%p1 bra last;
again: ld.volatile.global.u32 %r5, [%rd2+4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra again;
last: add.u32 %r5, %r5, 1; st.volatile.global.u32 [%rd2], %r5; ret;
}
.visible .entry fails(.param .u64 counter, .param .u64 out, .param .u32 wanted) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [counter]; ld.param.u32 %r1, [wanted];
  mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 5; @%p1 bra wrong;
  atom.add.u32 %r4, [%rd1], 1;
again: ld.volatile.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, %r1; @%p2 bra again;
  ret;
wrong: trap;
}
.visible .entry two_fail(.param .u64 counter, .param .u64 out, .param .u32 wanted) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [counter]; ld.param.u32 %r1, [wanted]; mov.u32 %r2, %ctaid.x;
  setp.gt.u32 %p1, %r2, 2; @%p1 bra wrong;
  atom.add.u32 %r4, [%rd1], 1;
  setp.eq.u32 %p1, %r2, 2; @%p1 bra late;
again: ld.volatile.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, %r1; @%p2 bra again;
  ret;
late: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 300000; @%p2 bra late;
wrong: trap;
}
";

/// What a launch says and leaves.
fn run(
    device: &mut Device,
    module: &Module,
    kernel: &str,
    launch: &Launch,
    wanted: u32,
) -> (Report, Vec<u32>) {
    let blocks = launch.grid[0] as usize;
    let (counter, out) = (device.alloc(4).unwrap(), device.alloc(4 * blocks as u64).unwrap());
    device.write(counter, &[0; 4]).unwrap();
    device.write(out, &vec![0; 4 * blocks]).unwrap();
    let args = Args::new().u64(counter).u64(out).u32(wanted);
    let report = device.launch(module, kernel, launch, &args).unwrap();
    let mut bytes = vec![0; 4 * blocks];
    device.read(out, &mut bytes).unwrap();
    let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let words = words.collect();
    [counter, out].into_iter().for_each(|address| device.free(address).unwrap());
    (report, words)
}

/// The device, and the kernels as PTX and as machine code.
fn modules() -> (Device, Vec<(&'static str, Module)>) {
    let mut device = Device::new();
    let mut out = vec![("PTX", device.load(TEXT).unwrap_or_else(|error| panic!("{error}")))];
    static CUBIN: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let assemble = |cuda: PathBuf| sass::assemble_one(&cuda, TEXT, 86, 3, "waiting sm_86");
    match CUBIN.get_or_init(|| sass::toolkit().map(assemble)) {
        Some(cubin) => out.push(("machine code", device.load_cubin(cubin).unwrap())),
        None => nvabi_test::skip(Need::Cuda, sass::NO_TOOLKIT),
    }
    (device, out)
}

fn launch(blocks: u32, threads: usize) -> Launch {
    Launch { grid: [blocks, 1, 1], block: [64, 1, 1], threads, ..Launch::default() }
}

#[test]
fn blocks_meet_without_a_cooperative_launch() {
    const BLOCKS: u32 = 70;
    let (mut device, modules) = modules();
    for (name, module) in &modules {
        for threads in [1, 5] {
            let launch = launch(BLOCKS, threads);
            let (report, out) = run(&mut device, module, "meet", &launch, BLOCKS);
            assert!(report.findings.is_empty(), "{name}, {threads}: {}", report.findings[0]);
            // Each took its number in the order of the blocks, whatever the threads, and saw all others.
            let wanted: Vec<u32> = (0..BLOCKS).map(|at| at + (BLOCKS << 16)).collect();
            assert_eq!(out, wanted, "{name}, {threads}");
        }
    }
}

#[test]
fn blocks_wait_for_those_behind_them() {
    let (mut device, modules) = modules();
    for (name, module) in &modules {
        let launch = Launch { block: [32, 1, 1], ..launch(40, 2) };
        let (report, out) = run(&mut device, module, "chain", &launch, 0);
        assert!(report.findings.is_empty(), "{name}: {}", report.findings[0]);
        assert_eq!(out, (0..40).map(|at| 41 - at).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn blocks_that_wait_in_vain_are_endless() {
    let (mut device, modules) = modules();
    let launch = Launch { max_warp_instructions: 300_000, ..launch(40, 2) };
    let (report, _) = run(&mut device, &modules[0].1, "meet", &launch, 41);
    let finding = report.fatal().unwrap();
    assert_eq!(finding.kind, FindingKind::Endless, "{finding}");
    assert!(finding.message.starts_with("the grid has run more than"), "{finding}");
}

#[test]
fn a_block_that_fails_ends_those_that_wait_for_it() {
    let (mut device, modules) = modules();
    for (name, module) in &modules {
        let (report, _) = run(&mut device, module, "fails", &launch(20, 2), 20 * 64);
        let finding = report.fatal().unwrap_or_else(|| panic!("{name}"));
        assert_eq!(
            (finding.kind, finding.block),
            (FindingKind::Trap, [5, 0, 0]),
            "{name}: {finding}"
        );
    }
}

#[test]
fn the_block_that_fails_is_the_first_in_the_order_of_turns() {
    let (mut device, modules) = modules();
    for (name, module) in &modules {
        for threads in [1, 2, 9] {
            let (report, _) = run(&mut device, module, "two_fail", &launch(12, threads), u32::MAX);
            let fatal: Vec<_> = report.findings.iter().filter(|finding| finding.fatal).collect();
            let found: Vec<_> = fatal.iter().map(|found| (found.kind, found.block)).collect();
            assert_eq!(found, [(FindingKind::Trap, [2, 0, 0])], "{name}, {threads}: {fatal:?}");
        }
    }
}

#[test]
fn a_grid_of_two_billion_blocks_ends_when_it_is_stopped() {
    let (mut device, modules) = modules();
    for (name, module) in &modules {
        let stop = Arc::new(AtomicBool::new(false));
        let launch = Launch { stop: Some(stop.clone()), ..launch(i32::MAX as u32, 2) };
        let counter = device.alloc(8).unwrap();
        device.write(counter, &[0; 8]).unwrap();
        let args = Args::new().u64(counter).u64(counter).u32(u32::MAX);
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                stop.store(true, Ordering::Relaxed);
            });
            device.launch(module, "meet", &launch, &args).unwrap();
        });
        let took = began.elapsed();
        assert!(
            (Duration::from_millis(300)..Duration::from_secs(20)).contains(&took),
            "{name}: {took:?}"
        );
    }
}

/// Two kernels of `(counter, out, wanted)`. Of `wide` each thread has half a MiB of local memory, and each block waits
/// for the others; `deep` calls itself `wanted` times, with 16 KiB each time.
const LARGE: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry wide(.param .u64 counter, .param .u64 out, .param .u32 wanted) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  .local .align 4 .b8 own[507904];
  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [wanted];
  mov.u32 %r2, %ctaid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd2, %rd2, %rd3;
  mov.u32 %r3, %tid.x; mul.lo.u32 %r6, %r3, 64; cvt.u64.u32 %rd4, %r6; mov.u64 %rd5, own; add.u64 %rd5, %rd5, %rd4;
  st.local.u32 [%rd5], %r2;
  setp.ne.u32 %p1, %r3, 0; @%p1 bra joined;
  atom.add.u32 %r4, [%rd1], 1;
again: ld.volatile.global.u32 %r5, [%rd1]; setp.lt.u32 %p2, %r5, %r1; @%p2 bra again;
  ld.local.u32 %r7, [%rd5]; add.u32 %r7, %r7, 1; st.global.u32 [%rd2], %r7;
joined: ret;
}
.func down(.param .b32 left) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;
  .local .align 4 .b8 own[16384];
  ld.param.u32 %r1, [left]; setp.eq.u32 %p1, %r1, 0; @%p1 bra done;
  mov.u64 %rd1, own; st.local.u32 [%rd1], %r1; sub.u32 %r2, %r1, 1;
  { .param .b32 to; st.param.b32 [to], %r2; call.uni down, (to); }
done: ret;
}
.visible .entry deep(.param .u64 counter, .param .u64 out, .param .u32 wanted) {
  .reg .b32 %r<9>;
  ld.param.u32 %r1, [wanted];
  { .param .b32 to; st.param.b32 [to], %r1; call.uni down, (to); }
  ret;
}
";

/// What each block takes of this process, at least: its local memory.
const WIDE: u64 = 1024 * 507_904;

#[test]
fn blocks_with_much_local_memory_wait_for_room() {
    let mut device = Device::new();
    let mut modules = vec![("PTX", device.load(LARGE).unwrap())];
    if let Some(cuda) = sass::toolkit() {
        let cubin = sass::assemble_one(&cuda, LARGE, 86, 3, "large sm_86");
        modules.push(("machine code", device.load_cubin(&cubin).unwrap()));
    }
    let most = MAX_LAUNCH_BYTES / WIDE;
    assert!((3..100).contains(&most), "a few blocks are to fit: {most}");
    let fit = most as u32 - 1;
    let launch = |blocks| Launch { block: [1024, 1, 1], ..launch(blocks, 2) };
    for (name, module) in &modules {
        let (report, out) = run(&mut device, module, "wide", &launch(12), fit);
        assert!(report.findings.is_empty(), "{name}: {}", report.findings[0]);
        assert_eq!(out, (1..=12).collect::<Vec<_>>(), "{name}");
        let all = Launch { cooperative: true, ..launch(264) };
        let args = Args::new().u64(0).u64(0).u32(0);
        match device.launch(module, "wide", &all, &args) {
            Err(DeviceError::Launch { what, .. }) => {
                assert!(what.starts_with("264 blocks that wait for each other"), "{name}: {what}");
                assert!(what.contains("bytes of local memory"), "{name}: {what}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // More of them than have room are never there at once.
    let few = Launch { max_warp_instructions: 1 << 20, ..launch(12) };
    let (report, _) = run(&mut device, &modules[0].1, "wide", &few, most as u32 + 1);
    let finding = report.fatal().unwrap();
    assert_eq!(finding.kind, FindingKind::Endless, "{finding}");
    let mut at_once = (fit..=most as u32).map(|blocks| format!("; {blocks} blocks ran at once"));
    assert!(at_once.any(|end| finding.message.ends_with(&end)), "{finding}");
}

#[test]
fn calls_of_many_blocks_share_the_memory_of_a_launch() {
    let mut device = Device::new();
    let module = device.load(LARGE).unwrap_or_else(|error| panic!("{error}"));
    let launch = |blocks| Launch { block: [32, 1, 1], ..launch(blocks, 2) };
    let (report, _) = run(&mut device, &module, "deep", &launch(1), 60);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    let (report, _) = run(&mut device, &module, "deep", &launch(600), 60);
    let finding = report.fatal().unwrap();
    assert_eq!((finding.kind, finding.block), (FindingKind::Trap, [0; 3]), "{finding}");
    assert!(finding.message.contains("calls take more memory than a block"), "{finding}");
}

/// Blocks of a cooperative launch count in the word that %envreg1 and %envreg2 lead to, as cooperative_groups' do.
const ENVIRONMENT: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry counted(.param .u64 out) {
  .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p;
  ld.param.u64 %d0, [out]; mov.u32 %r0, %envreg1; mov.u32 %r1, %envreg2; mov.b64 %d1, {%r1, %r0};
  mov.u32 %r2, %ctaid.x; mul.wide.u32 %d2, %r2, 4; add.u64 %d0, %d0, %d2;
  setp.eq.u64 %p, %d1, 0; @%p bra none;
  atom.add.release.gpu.u32 %r3, [%d1+4], 1; mov.u32 %r5, %nctaid.x;
wait:
  ld.acquire.gpu.u32 %r4, [%d1+4]; setp.lt.u32 %p, %r4, %r5; @%p bra wait;
  st.global.u32 [%d0], %r4;
none:
  ret;
}
";

#[test]
fn machine_code_has_the_environment_of_a_cooperative_launch() {
    let mut device = Device::new();
    let modules = sass::modules(&mut device, ENVIRONMENT, "counted");
    let out = device.alloc(5 * 4).unwrap();
    for (name, module) in &modules {
        // Others have none, and write nothing.
        for (cooperative, expected) in [(true, 5), (false, 0)] {
            device.write(out, &[0; 5 * 4]).unwrap();
            let launch = Launch { grid: [5, 1, 1], cooperative, ..Launch::default() };
            let args = Args::new().u64(out);
            let report = device.launch(module, "counted", &launch, &args).unwrap();
            assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
            let mut bytes = [0; 5 * 4];
            device.read(out, &mut bytes).unwrap();
            let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
            assert_eq!(words.collect::<Vec<_>>(), [expected; 5], "{name}");
        }
    }
}
