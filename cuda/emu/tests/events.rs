//! The events of warps against a count that knows nothing of warps: each lane runs on its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;

use nvabi_emu::{Args, Device, EventKind, Launch, Schedule, WarpEvents};

/// A loop with a branch inside, and an atomic and a shared store on one side.
const KERNEL: &str = ".version 8.3
.target sm_80
.address_size 64
.file 1 \"loop.cu\"
.visible .entry k(.param .u64 limits, .param .u64 sum)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
    .shared .align 4 .b8 s[256];
    .loc 1 10 1
    ld.param.u64 %rd1, [limits];
    ld.param.u64 %rd2, [sum];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u32 %r2, [%rd4];
    mov.u64 %rd5, s;
    add.s64 %rd6, %rd5, %rd3;
    mov.u32 %r3, 0;
$loop:
    .loc 1 11 5
    setp.ge.u32 %p1, %r3, %r2;
    @%p1 bra $end;
    .loc 1 12 9
    and.b32 %r4, %r3, 1;
    setp.eq.u32 %p2, %r4, 0;
    @%p2 bra $even;
    .loc 1 13 13
    st.shared.u32 [%rd6], %r3;
    bra.uni $next;
$even:
    .loc 1 15 13
    atom.global.add.u32 %r5, [%rd2], 1;
    add.u32 %r6, %r5, %r6;
$next:
    add.u32 %r3, %r3, 1;
    bra.uni $loop;
$end:
    .loc 1 18 1
    ret;
}
";

fn observed(limits: &[u32], launch: Launch) -> Vec<WarpEvents> {
    let mut device = Device::new();
    let module = device.load(KERNEL).unwrap();
    let (input, sum) = (device.alloc(4 * limits.len() as u64).unwrap(), device.alloc(4).unwrap());
    device.write(input, &limits.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let launch = Launch { block: [limits.len() as u32, 1, 1], observe: true, ..launch };
    let report = device.launch(&module, "k", &launch, &Args::new().u64(input).u64(sum)).unwrap();
    assert!(report.findings.is_empty());
    report.events
}

/// What happens in lane after lane: line, kind, round.
fn single(limit: u32) -> Vec<(u32, &'static str, u32)> {
    let mut out = vec![(10, "entry", 0)];
    for round in 0..limit {
        out.push((11, "stay", round));
        if round % 2 == 0 {
            out.extend([(12, "taken", round), (15, "atomic", round)]);
        } else {
            out.extend([(12, "stay", round), (13, "store", round)]);
        }
    }
    out.extend([(11, "taken", limit), (18, "exit", 0)]);
    out
}

#[test]
fn masks_are_those_of_lanes_that_run_alone() {
    let limits: Vec<u32> = (0..50).map(|lane| lane * 7 % 11).collect();
    for (schedule, threads) in [(Schedule::InOrder, 1), (Schedule::Random(7), 2)] {
        let warps = observed(&limits, Launch { schedule, threads, ..Launch::default() });
        assert_eq!(warps.len(), 2);
        for warp in &warps {
            let lanes: Vec<u32> =
                limits.iter().copied().skip(warp.warp as usize * 32).take(32).collect();
            // Which lanes do what: all that do the same in the same round do it together.
            let mut wanted: HashMap<(u32, &str), Vec<u32>> = HashMap::new();
            for (lane, limit) in lanes.iter().enumerate() {
                for (line, kind, round) in single(*limit) {
                    let rounds = wanted.entry((line, kind)).or_default();
                    rounds.resize(rounds.len().max(round as usize + 1), 0);
                    rounds[round as usize] |= 1 << lane;
                }
            }
            let mut got: HashMap<(u32, &str), Vec<u32>> = HashMap::new();
            for event in &warp.events {
                let line = event.location.line;
                let mut note = |kind, mask| got.entry((line, kind)).or_default().push(mask);
                match &event.kind {
                    EventKind::Branch { taken } => {
                        note("taken", *taken);
                        note("stay", event.mask & !taken);
                    }
                    EventKind::SharedStore { .. } => note("store", event.mask),
                    EventKind::Atomic { shared, .. } => {
                        assert!(!shared);
                        note("atomic", event.mask);
                    }
                    EventKind::Entry { function } => {
                        assert_eq!(&**function, "k");
                        note("entry", event.mask);
                    }
                    EventKind::Exit { .. } => note("exit", event.mask),
                    other => panic!("{other:?}"),
                }
            }
            for (key, masks) in &mut wanted {
                masks.retain(|mask| *mask != 0);
                let got = got.remove(key).unwrap_or_default();
                let got: Vec<u32> = got.into_iter().filter(|mask| *mask != 0).collect();
                assert_eq!(got, *masks, "warp {}, {key:?}", warp.warp);
            }
            assert!(got.values().flatten().all(|mask| *mask == 0), "{got:?}");
        }
    }
}

#[test]
fn one_warp_of_several_is_reported_with_so_many_events() {
    let limits: Vec<u32> = (0..64).map(|lane| lane * 5 % 13).collect();
    let run = |every, most_events| {
        let launch =
            Launch { grid: [4, 1, 1], observe_every: every, most_events, ..Launch::default() };
        observed(&limits, launch)
    };
    let all = run(1, usize::MAX);
    let number = |warp: &WarpEvents| warp.block[0] * 2 + warp.warp;
    assert_eq!(all.iter().map(number).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    // Also where all of a block are reported, and where none is.
    let some: Vec<_> = all.iter().filter(|warp| number(warp) % 3 == 0).cloned().collect();
    assert_eq!(run(3, usize::MAX), some);
    for (few, whole) in run(3, 4).iter().zip(&some) {
        assert_eq!(few.events, whole.events[..4]);
        assert_eq!(few.dropped, whole.events.len() as u64 - 4);
    }
}

#[test]
fn the_same_seed_gives_the_same_events_on_any_number_of_threads() {
    let limits: Vec<u32> = (0..64).map(|lane| lane * 5 % 13).collect();
    let run = |seed, threads| {
        let schedule = Schedule::Random(seed);
        observed(&limits, Launch { grid: [6, 1, 1], schedule, threads, ..Launch::default() })
    };
    let first = run(1, 1);
    assert_eq!(first, run(1, 3));
    // Another seed lets the atomics come in another order.
    assert_ne!(first, run(2, 1));
}
