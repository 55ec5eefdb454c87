//! Barriers in memory: threads of several warps that hand each other what they stored.

use nvabi_emu::{Args, Device, FindingKind, Launch, Module, Report, Schedule};

use super::sass;

const THREADS: u32 = 96;

/// Each thread stores, arrives, waits, and reads what a thread of another warp has stored, three times; of even rounds
/// the wait is by the token that the arrival gave, of odd ones by the phase's parity. The last thread leaves with the
/// second round, of which nobody hears later; the bytes of another are told by the first thread. `PAUSE` is the wait.
const TEXT: &str = "
.version 8.3
.target sm_90
.address_size 64
.visible .entry hand_over(.param .u64 out) {
  .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .pred %p<9>;
  .shared .align 4 .b8 cells[1152];
  .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, bar; mov.u32 %r3, cells;
  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra made;
  mbarrier.init.shared::cta.b64 [%r2], 96;
made: bar.sync 0;
  mov.u32 %r4, 0; mov.u32 %r5, 0;
round:
  mad.lo.u32 %r6, %r4, 96, %r1; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r3;
  mul.lo.u32 %r7, %r4, 1000; add.u32 %r7, %r7, %r1; st.shared.u32 [%r6], %r7;
  setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r1, 95; setp.eq.u32 %p4, %r4, 1; and.pred %p3, %p3, %p4;
  @%p3 bra leaves;
  @%p2 bra tells;
  mbarrier.arrive.shared.b64 %rd3, [bar];
  bra arrived;
leaves:
  mbarrier.arrive_drop.release.cta.shared::cta.b64 _, [%r2];
  ret;
tells:
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd3, [%r2], 64;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 64;
arrived:
  and.b32 %r8, %r4, 1; setp.eq.u32 %p5, %r8, 1; @%p5 bra odd;
even: PAUSE mbarrier.test_wait.shared.b64 %p6, [%r2], %rd3; @!%p6 bra even;
  bra over;
odd: PAUSE mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p6, [%r2], %r8, 1000; @!%p6 bra odd;
over:
  add.u32 %r9, %r1, 32; rem.u32 %r9, %r9, 95;
  mad.lo.u32 %r6, %r4, 96, %r9; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r3;
  ld.shared.u32 %r11, [%r6]; add.u32 %r5, %r5, %r11;
  add.u32 %r4, %r4, 1; setp.lt.u32 %p7, %r4, 3; @%p7 bra round;
  st.global.u32 [%rd1], %r5;
  ret;
}
";

/// One thread has `SIZE` bytes copied into shared memory, which tell the barrier; another warp waits for them, doubles
/// them, and the first thread has them copied back.
const COPIES: &str = "
.version 8.3
.target sm_90
.address_size 64
.visible .entry hand_over(.param .u64 out) {
  .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .pred %p<9>;
  .shared .align 16 .b8 cells[384];
  .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, bar; mov.u32 %r3, cells;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra made;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
made: bar.sync 0;
  @%p1 bra asked;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r2], SIZE;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], SIZE, [%r2];
asked:
  WAIT mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0; @!%p2 bra asked;
over:
  shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r3;
  ld.shared.u32 %r5, [%r4]; shl.b32 %r5, %r5, 1; st.shared.u32 [%r4], %r5;
  fence.proxy.async.shared::cta; bar.sync 0;
  @%p1 bra done;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], SIZE;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
done: ret;
}
";

#[test]
fn bulk_copies_tell_of_their_bytes() {
    let launch = Launch { block: [THREADS, 1, 1], ..Launch::default() };
    for schedule in [Schedule::InOrder, Schedule::Random(5)] {
        let launch = Launch { schedule, ..launch.clone() };
        let (report, words) = run(&COPIES.replace("SIZE", "384").replace("WAIT", ""), &launch);
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        assert_eq!(words, [u32::MAX << 1; THREADS as usize]);
    }
    // Without the wait, other warps read what was not copied for them.
    let (report, _) = run(&COPIES.replace("SIZE", "384").replace("WAIT", "bra over;"), &launch);
    let races = |finding: &nvabi_emu::Finding| finding.kind == FindingKind::Race;
    assert!(report.findings.iter().any(races));
    let (report, _) = run(&COPIES.replace("SIZE", "376").replace("WAIT", "bra over;"), &launch);
    let finding = &report.findings[0];
    assert_eq!(finding.kind, FindingKind::Misaligned, "{finding}");
    assert!(finding.to_string().contains("a bulk copy of 376 bytes"), "{finding}");
}

fn run(text: &str, launch: &Launch) -> (Report, Vec<u32>) {
    let mut device = Device::new();
    let module = device.load(text).unwrap_or_else(|error| panic!("{error}"));
    launched(&mut device, &module, launch)
}

fn launched(device: &mut Device, module: &Module, launch: &Launch) -> (Report, Vec<u32>) {
    let out = device.alloc(4 * u64::from(THREADS)).unwrap();
    device.write(out, &[0xff; 4 * THREADS as usize]).unwrap();
    let report = device.launch(module, "hand_over", launch, &Args::new().u64(out)).unwrap();
    let mut bytes = [0; 4 * THREADS as usize];
    device.read(out, &mut bytes).unwrap();
    let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    (report, words.collect())
}

#[test]
fn what_was_stored_before_an_arrival_is_there_after_the_wait() {
    let launch = Launch { block: [THREADS, 1, 1], ..Launch::default() };
    for schedule in [Schedule::InOrder, Schedule::Random(1), Schedule::Random(2)] {
        let launch = Launch { schedule, ..launch.clone() };
        let (report, words) = run(&TEXT.replace("PAUSE", ""), &launch);
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        for (thread, word) in words.into_iter().enumerate().take(95) {
            assert_eq!(word, 3000 + 3 * ((thread as u32 + 32) % 95), "thread {thread}");
        }
    }
}

/// A wait that does not wait: the same accesses race.
#[test]
fn who_does_not_wait_races() {
    let launch = Launch { block: [THREADS, 1, 1], ..Launch::default() };
    let (report, _) = run(&TEXT.replace("PAUSE", "bra over;"), &launch);
    assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Race));
}

/// Up to Ada, machine code looks at a barrier by a plain load: a round of stores, arrivals and waits by the token.
const TOKENS: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry hand_over(.param .u64 out) {
  .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .pred %p<9>;
  .shared .align 4 .b8 cells[384];
  .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, bar; mov.u32 %r3, cells;
  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
  setp.ne.u32 %p1, %r1, 0; @%p1 bra made;
  mbarrier.init.shared.b64 [%r2], 96;
made: bar.sync 0;
  mov.u32 %r4, 0; mov.u32 %r5, 0;
round:
  shl.b32 %r6, %r1, 2; add.u32 %r6, %r6, %r3;
  mul.lo.u32 %r7, %r4, 1000; add.u32 %r7, %r7, %r1; st.shared.u32 [%r6], %r7;
  mbarrier.arrive.shared.b64 %rd3, [%r2];
written: PAUSE mbarrier.test_wait.shared.b64 %p2, [%r2], %rd3; @!%p2 bra written;
over:
  add.u32 %r9, %r1, 32; rem.u32 %r9, %r9, 96; shl.b32 %r9, %r9, 2; add.u32 %r9, %r9, %r3;
  ld.shared.u32 %r11, [%r9]; add.u32 %r5, %r5, %r11;
  mbarrier.arrive.shared.b64 %rd3, [%r2];
read: mbarrier.test_wait.shared.b64 %p2, [%r2], %rd3; @!%p2 bra read;
  add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 3; @%p3 bra round;
  st.global.u32 [%rd1], %r5;
  ret;
}
";

#[test]
fn plain_loads_look_at_barriers() {
    let cuda = sass::needed();
    let run = |pause: &str, arch, schedule| {
        let text = TOKENS.replace("PAUSE", pause);
        let name = format!("tokens{} sm_{arch}", pause.len());
        let mut device = Device::new();
        let cubin = sass::assemble_one(&cuda, &text, arch, 3, &name);
        let module = device.load_cubin(&cubin).unwrap();
        let launch = Launch { block: [THREADS, 1, 1], schedule, ..Launch::default() };
        launched(&mut device, &module, &launch)
    };
    for arch in [80, 86, 89] {
        for schedule in [Schedule::InOrder, Schedule::Random(1), Schedule::Random(2)] {
            let (report, words) = run("", arch, schedule);
            assert!(report.findings.is_empty(), "sm_{arch}: {}", report.findings[0]);
            for (thread, word) in (0..).zip(words) {
                assert_eq!(
                    word,
                    3000 + 3 * ((thread + 32) % THREADS),
                    "sm_{arch}, thread {thread}"
                );
            }
        }
        let (report, _) = run("bra over;", arch, Schedule::InOrder);
        let race = |finding: &nvabi_emu::Finding| finding.kind == FindingKind::Race;
        assert!(report.findings.iter().any(race), "sm_{arch}");
    }
}
