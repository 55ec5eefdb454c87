//! What is checked where that is asked for: global memory, and the lanes of a warp.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Args, Device, FindingKind, Launch, Order, Report, Severity};

const UNINITIALISED: FindingKind = FindingKind::UninitialisedGlobal;

/// Runs `k(data)` on three blocks of one thread, on 64 bytes of which the first `written` are.
fn run(body: &str, written: usize, launches: usize) -> Vec<Report> {
    let launch = Launch { grid: [3, 1, 1], ..Launch::default() };
    run_as(&launch, body, written, launches)
}

fn run_as(launch: &Launch, body: &str, written: usize, launches: usize) -> Vec<Report> {
    let text = format!(
        ".version 8.3\n.target sm_80\n.address_size 64\n.global .align 4 .u32 count;\n\
         .visible .entry k(.param .u64 data) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;\n\
         ld.param.u64 %rd1, [data]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4;\n\
         add.u64 %rd3, %rd1, %rd2;\n{body}\nret; }}\n"
    );
    let mut device = Device::new();
    device.watch_global();
    let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
    let data = device.alloc(64).unwrap();
    device.write(data, &vec![1; written]).unwrap();
    let args = Args::new().u64(data);
    (0..launches).map(|_| device.launch(&module, "k", launch, &args).unwrap()).collect()
}

/// Kinds, severities and how often.
fn found(body: &str, written: usize) -> Vec<(FindingKind, Severity, u64)> {
    let report = &run(body, written, 1)[0];
    report.findings.iter().map(|f| (f.kind, f.severity, f.count)).collect()
}

#[test]
fn what_was_never_written_is_told() {
    let read = "ld.global.u32 %r2, [%rd3]; st.global.u32 [%rd3+16], %r2;";
    assert_eq!(found(read, 12), []);
    // The third block's word.
    assert_eq!(found(read, 8), [(UNINITIALISED, Severity::Error, 1)]);
    // What a kernel wrote, and variables, are written.
    assert_eq!(
        found(
            "st.global.u32 [%rd3], %r1; ld.global.u32 %r2, [%rd3]; ld.global.u32 %r3, [count];",
            0
        ),
        []
    );
    // Of four words two are used: the others need not be there.
    let wide = "setp.eq.u32 %p1, %r1, 0; @!%p1 ret; ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];\n\
                add.u32 %r2, %r2, %r3; st.global.u32 [%rd1+32], %r2;";
    assert_eq!(found(wide, 8), []);
    assert_eq!(
        found(&wide.replace("%r2, %r2, %r3", "%r2, %r2, %r5"), 8),
        [(UNINITIALISED, Severity::Error, 1)]
    );
}

#[test]
fn blocks_that_nothing_orders_race() {
    let race = |severity, count| vec![(FindingKind::Race, severity, count)];
    assert_eq!(found("st.global.u32 [%rd1], %r1;", 4), race(Severity::Error, 2));
    assert_eq!(
        found("mov.u32 %r2, 7; st.global.u32 [%rd1], %r2;", 4),
        race(Severity::Undefined, 2)
    );
    // Each reads its neighbour's word, which that one may have written.
    let neighbour = "st.global.u32 [%rd3+4], %r1; ld.global.u32 %r2, [%rd3];";
    assert_eq!(found(neighbour, 64), race(Severity::Error, 2));
    let report = &run(neighbour, 64, 1)[0];
    let message = &report.findings[0].message;
    assert!(
        message.contains("was written by block (0,0,0) at PTX line 8, with nothing that orders"),
        "{message}"
    );
    // An atomic of which nobody takes the old value puts its block behind no other.
    let (store, sum) = ("st.global.u32 [%rd1], %r1;", "red.global.add.u32 [count], 1;");
    assert_eq!(found(&format!("{sum} {store}"), 4), race(Severity::Error, 2));
    let next = "atom.global.add.u32 %r2, [count], 1; st.global.u32 [%rd1], %r2;";
    assert_eq!(found(next, 4), []);
    // Sums, and the next launch.
    assert_eq!(found("red.global.add.u32 [%rd1], 1;", 4), []);
    let reports = run("st.global.u32 [%rd3], %r1;", 0, 2);
    assert!(reports.iter().all(|report| report.findings.is_empty()));
}

/// Each block writes, and the one that comes last reads what all have written.
#[test]
fn blocks_that_meet_do_not_race() {
    let last = "st.global.u32 [%rd3], %r1; membar.gl; atom.global.inc.u32 %r2, [count], 2; membar.gl;\n\
                setp.eq.u32 %p1, %r2, 2; @!%p1 ret; ld.global.u32 %r3, [%rd1]; ld.global.u32 %r4, [%rd1+4];\n\
                add.u32 %r3, %r3, %r4; st.global.u32 [%rd1+12], %r3;";
    assert_eq!(found(last, 0), []);
    // Without the counter it is a race.
    let alone = last
        .replace("membar.gl; atom.global.inc.u32 %r2, [count], 2; membar.gl;", "mov.u32 %r2, %r1;");
    assert_eq!(found(&alone, 0), [(FindingKind::Race, Severity::Error, 2)]);
}

/// The first thread of each of three warps writes its word and reads the next warp's.
#[test]
fn warps_of_a_block_race_that_do_not_meet() {
    let found = |between: &str, compare_lanes: bool, each: &str| {
        let body = format!(
            "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;\n\
             and.b32 %r3, %r1, 31; setp.eq.u32 %p1, %r3, 0; {each} st.global.u32 [%rd3], %r1; {between}\n\
             @%p1 ld.global.u32 %r4, [%rd3+4]; add.u32 %r4, %r4, 1;"
        );
        let launch = Launch { block: [96, 1, 1], compare_lanes, ..Launch::default() };
        let report = run_as(&launch, &body, 64, 1).remove(0);
        let found = report.findings.iter().map(|f| (f.kind, f.severity, f.count));
        let message = report.findings.first().map(|finding| finding.message.clone());
        (found.collect::<Vec<_>>(), message.unwrap_or_default())
    };
    let (races, message) = found("", false, "@%p1");
    assert_eq!(races, [(FindingKind::Race, Severity::Error, 2)]);
    assert!(message.contains("was read by thread (0,0,0) of warp 0 at PTX line"), "{message}");
    assert_eq!(found("bar.sync 0;", false, "@%p1").0, []);
    // A warp by itself is none of it, unless lanes are compared.
    assert_eq!(found("bar.sync 0;", false, "").0, []);
    assert_eq!(found("bar.sync 0;", true, "").0, [(FindingKind::Race, Severity::Error, 93)]);
    // Those that may have met through memory are not judged.
    assert_eq!(found("membar.cta;", false, "@%p1").0, []);
}

/// Each lane writes its word and reads its neighbour's, with something between or nothing.
#[test]
fn lanes_race_that_do_not_meet() {
    let found = |between: &str, compare_lanes: bool| {
        let text = format!(
            ".version 8.3\n.target sm_80\n.address_size 64\n.shared .align 4 .b8 words[128];\n\
             .visible .entry k() {{ .reg .b32 %r<9>; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, words;\n\
             add.u32 %r4, %r3, %r2; st.shared.u32 [%r4], %r1; {between}\n\
             xor.b32 %r5, %r2, 4; add.u32 %r5, %r5, %r3; ld.shared.u32 %r6, [%r5]; ret; }}\n"
        );
        let mut device = Device::new();
        let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
        let launch = Launch { block: [32, 1, 1], compare_lanes, ..Launch::default() };
        let report = device.launch(&module, "k", &launch, &Args::new()).unwrap();
        report.findings.iter().map(|f| (f.kind, f.count)).collect::<Vec<_>>()
    };
    assert_eq!(found("", false), []);
    assert_eq!(found("", true), [(FindingKind::Race, 32)]);
    assert_eq!(found("bar.warp.sync -1;", true), []);
    assert_eq!(found("bar.sync 0;", true), []);
    assert_eq!(found("shfl.sync.idx.b32 %r7, %r1, 0, 31, -1;", true), []);
    assert_eq!(found("activemask.b32 %r7;", true), [(FindingKind::Race, 32)]);
}

/// Two launches in queues, and a copy behind them: which of the second and third race.
#[test]
fn launches_and_copies_race_that_nothing_orders() {
    let text = ".version 8.3\n.target sm_80\n.address_size 64\n\
        .visible .entry k(.param .u64 data, .param .u32 value) { .reg .b32 %r<3>; .reg .b64 %rd<3>;\n\
        ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [value]; st.global.u32 [%rd1], %r1; ret; }\n";
    let found = |orders: [Option<Order>; 3], value: u32| {
        let mut device = Device::new();
        device.watch_global();
        let module = device.load(text).unwrap();
        let data = device.alloc(64).unwrap();
        let [first, second, third] = orders;
        let mut launch = |order, value| {
            let (launch, args) =
                (Launch { order, ..Launch::default() }, Args::new().u64(data).u32(value));
            device.launch(&module, "k", &launch, &args).unwrap().findings
        };
        assert_eq!(launch(first, 1), []);
        let mut findings = launch(second, value);
        findings.extend(device.touch("a copy of 64 bytes", third, Some((data, 64)), None));
        findings.iter().map(|f| (f.kind, f.severity, f.message.clone())).collect::<Vec<_>>()
    };
    let order = |queue, behind: &[u64]| Some(Order { queue, behind: behind.to_vec() });
    assert_eq!(found([None, None, None], 2), []);
    assert_eq!(found([order(0, &[]), order(1, &[1]), order(0, &[1, 2])], 2), []);
    let of_both = found([order(0, &[]), order(1, &[]), order(0, &[1])], 2);
    let [launch, copy] = &of_both[..] else { panic!("{of_both:?}") };
    assert_eq!((launch.0, launch.1), (FindingKind::Race, Severity::Error));
    assert!(
        launch.2.contains(
            "was written by kernel k in another stream, with nothing that orders the two; \
                           that stored 0x1, this 0x2"
        ),
        "{launch:?}"
    );
    assert!(copy.2.starts_with("a copy of 64 bytes at 0x"), "{copy:?}");
    assert!(
        copy.2.ends_with(", written by kernel k, with nothing that orders the two"),
        "{copy:?}"
    );
    // Both store the same.
    let same = found([order(0, &[]), order(1, &[]), None], 1);
    assert_eq!(same[0].1, Severity::Undefined);
}
