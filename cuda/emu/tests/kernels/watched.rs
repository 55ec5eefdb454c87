//! What is checked where that is asked for, in machine code; `tests/global.rs` has the same for PTX, and more.

use std::sync::atomic::{AtomicU32, Ordering};

use nvabi_emu::{Args, Device, FindingKind, Launch, Severity};

use crate::sass;

/// Tests run at the same time: each assembles files of its own.
static FILES: AtomicU32 = AtomicU32::new(0);

/// Findings of `k(data)` on three blocks of one thread, on 64 bytes of which the first `written` are.
fn found(body: &str, written: usize) -> Vec<(FindingKind, Severity, u64)> {
    found_in(&Launch { grid: [3, 1, 1], ..Launch::default() }, body, written)
}

fn found_in(launch: &Launch, body: &str, written: usize) -> Vec<(FindingKind, Severity, u64)> {
    let Some(cuda) = sass::toolkit() else {
        nvabi_test::skip(nvabi_test::Need::Cuda, "no ptxas, and cuda/toolkit.sh could not fetch it")
    };
    let text = format!(
        ".version 8.3\n.target sm_80\n.address_size 64\n.visible .global .align 4 .u32 count;\n\
         .visible .entry k(.param .u64 data) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>;\n\
         .shared .align 16 .b8 copy[16]; .shared .align 4 .b8 words[128]; ld.param.u64 %rd1, [data]; mov.u32 %r1, %ctaid.x;\n\
         mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;\n{body}\nret; }}\n"
    );
    let [first, second] = [(80, 3), (90, 1)].map(|(arch, level)| {
        let name = format!("watched {} sm_{arch}", FILES.fetch_add(1, Ordering::Relaxed));
        let cubin = sass::assemble_one(&cuda, &text, arch, level, &name);
        let mut device = Device::new();
        device.watch_global();
        let module = device.load_cubin(&cubin).unwrap();
        let data = device.alloc(64).unwrap();
        device.write(data, &vec![1; written]).unwrap();
        let report = device.launch(&module, "k", launch, &Args::new().u64(data)).unwrap();
        report.findings.iter().map(|f| (f.kind, f.severity, f.count)).collect::<Vec<_>>()
    });
    assert_eq!(first, second, "{body}");
    first
}

#[test]
fn machine_code_reads_what_was_never_written() {
    let uninitialised = |count| [(FindingKind::UninitialisedGlobal, Severity::Error, count)];
    let read = "ld.global.u32 %r2, [%rd3]; st.global.u32 [%rd3+16], %r2;";
    assert_eq!(found(read, 12), []);
    assert_eq!(found(read, 8), uninitialised(1));
    let variable =
        "ld.global.u32 %r2, [count]; st.global.u32 [%rd3], %r2; ld.global.u32 %r3, [%rd3];";
    assert_eq!(found(variable, 0), []);
    assert_eq!(found("atom.global.add.u32 %r2, [%rd3], 1;", 8), uninitialised(1));
    let copy = "mov.u32 %r2, copy; cp.async.ca.shared.global [%r2], [%rd1], 16; cp.async.wait_all;\n\
                ld.shared.u32 %r3, [copy]; st.global.u32 [%rd3+32], %r3;";
    assert_eq!((found(copy, 16), found(copy, 12)), (vec![], uninitialised(3).to_vec()));
    // Nothing says here which parts of a vector are used.
    let wide = "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1]; xor.b32 %r2, %r2, %r3;\n\
                xor.b32 %r4, %r4, %r5; xor.b32 %r2, %r2, %r4; st.global.u32 [%rd3+32], %r2;";
    assert_eq!(found(wide, 8), []);
}

#[test]
fn blocks_race_in_machine_code() {
    let race = |severity, count| (FindingKind::Race, severity, count);
    assert_eq!(found("st.global.u32 [%rd1], %r1;", 4), [race(Severity::Error, 2)]);
    assert_eq!(
        found("mov.u32 %r2, 7; st.global.u32 [%rd1], %r2;", 4),
        [race(Severity::Undefined, 2)]
    );
    assert_eq!(found("red.global.add.u32 [%rd1], 1;", 4), []);
    let last = "st.global.u32 [%rd3], %r1; membar.gl; atom.global.inc.u32 %r2, [count], 2; membar.gl;\n\
                setp.eq.u32 %p1, %r2, 2; @!%p1 ret; ld.global.u32 %r3, [%rd1]; ld.global.u32 %r4, [%rd1+4];\n\
                add.u32 %r3, %r3, %r4; st.global.u32 [%rd1+12], %r3;";
    assert_eq!(found(last, 0), []);
    let alone = last
        .replace("membar.gl; atom.global.inc.u32 %r2, [count], 2; membar.gl;", "mov.u32 %r2, %r1;");
    // At each of the two loads.
    assert_eq!(found(&alone, 0), [race(Severity::Error, 1); 2]);
    // A volatile read may be behind what another block wrote.
    let waits = "st.global.u32 [%rd3], %r1; ld.volatile.global.u32 %r2, [count]; ld.global.u32 %r3, [%rd1];\n\
                 add.u32 %r2, %r2, %r3; st.global.u32 [%rd3+16], %r2;";
    assert_eq!(found(waits, 0), []);
}

#[test]
fn warps_race_in_machine_code() {
    let body = |between: &str| {
        format!(
            "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2;\n\
             st.global.u32 [%rd3], %r2; {between}\n\
             ld.global.u32 %r4, [%rd3+4]; add.u32 %r4, %r4, 1; st.global.u32 [%rd3+32], %r4;"
        )
    };
    let launch = Launch { block: [96, 1, 1], ..Launch::default() };
    let found = |between| found_in(&launch, &body(between), 64);
    assert_eq!(found("bar.sync 0;"), []);
    // The second and third warp write what the one before has read; one store is moved before the loads of others.
    let races = found("");
    assert!(
        !races.is_empty() && races.iter().all(|(kind, ..)| *kind == FindingKind::Race),
        "{races:?}"
    );
}

/// ptxas leaves out `__syncwarp` where lanes are together: they would race all the same.
#[test]
fn lanes_of_machine_code_are_not_compared() {
    let neighbours = "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, words; add.u32 %r4, %r3, %r2;\n\
                      st.shared.u32 [%r4], %r1; bar.warp.sync -1; xor.b32 %r5, %r2, 4; add.u32 %r5, %r5, %r3;\n\
                      ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3], %r6;";
    let launch = Launch { block: [32, 1, 1], compare_lanes: true, ..Launch::default() };
    assert_eq!(found_in(&launch, neighbours, 64), []);
}
