//! Overruns into a neighbouring variable of shared memory.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Args, Device, FindingKind, Launch, Report, Severity};

/// Runs a body in one thread, with two arrays of 32 words, an odd one, and dynamic memory.
fn run(body: &str, shared_bytes: u32) -> (Report, u64) {
    let text = format!(
        ".version 8.3\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 more[];\n\
         .visible .entry k(.param .u64 out) {{ .reg .b32 %r<9>; .reg .b64 %rd<9>;\n\
         .shared .align 4 .b8 first[128]; .shared .align 1 .b8 odd[3]; .shared .align 4 .b8 second[128];\n\
         mov.u32 %r1, first; mov.u32 %r2, second; mov.u32 %r3, odd; mov.u32 %r4, more; mov.u32 %r5, 7;\n\
         ld.param.u64 %rd1, [out];\n{body}\nret; }}\n"
    );
    let mut device = Device::new();
    let module = device.load(&text).unwrap_or_else(|error| panic!("{error}"));
    let out = device.alloc(4).unwrap();
    let launch = Launch { shared_bytes, ..Launch::default() };
    let report = device.launch(&module, "k", &launch, &Args::new().u64(out)).unwrap();
    let mut word = [0; 4];
    device.read(out, &mut word).unwrap();
    (report, u32::from_le_bytes(word).into())
}

fn found(body: &str, shared_bytes: u32) -> Vec<(FindingKind, Severity, bool, String)> {
    let findings = run(body, shared_bytes).0.findings;
    findings.into_iter().map(|f| (f.kind, f.severity, f.fatal, f.message)).collect()
}

#[test]
fn running_over_the_end_of_an_array_is_told_and_does_not_reach_the_next() {
    // The last word of each, and the first of what is dynamic.
    let right = "st.shared.u32 [%r1+124], %r5; st.shared.u32 [%r2+124], %r5; st.shared.u8 [%r3+2], %r5;\n\
                 st.shared.u32 [%r4], %r5;";
    assert_eq!(found(right, 4), []);
    for (body, message) in [
        ("st.shared.u32 [%r1+128], %r5;", "128 bytes into `first`, which has 128"),
        ("ld.shared.u32 %r6, [%r1+200];", "200 bytes into `first`, which has 128"),
        ("st.shared.u8 [%r3+3], %r5;", "3 bytes into `odd`, which has 3"),
        ("atom.shared.add.u32 %r6, [%r2+128], 1;", "128 bytes into `second`, which has 128"),
        ("st.shared.u32 [%r2-4], %r5;", "bytes into `odd`, which has 3"),
    ] {
        let all = found(body, 16);
        let [(kind, severity, fatal, told)] = &all[..] else { panic!("{body}: {all:?}") };
        assert_eq!((*kind, *severity, *fatal), (FindingKind::OutOfBounds, Severity::Error, false));
        assert!(told.contains("is no variable's: ") && told.ends_with(message), "{told}");
    }
    // Behind the last one there is nothing without dynamic memory.
    assert!(found("st.shared.u32 [%r2+128], %r5;", 0)[0].2, "fatal");
    let spared = "st.shared.u32 [%r2], %r5; st.shared.u32 [%r1+128], 9; ld.shared.u32 %r6, [%r2];\n\
                  st.global.u32 [%rd1], %r6;";
    assert_eq!(run(spared, 0).1, 7);
}

/// What a program is told of its memory leaves out what lies between.
#[test]
fn sizes_are_those_of_the_variables() {
    let size = "mov.u32 %r6, %total_smem_size; st.global.u32 [%rd1], %r6;";
    let (close, dynamic) = (run(size, 0).1, run(size, 64).1);
    assert_eq!((close, dynamic > close), (128 + 4 + 128, true));
}

/// An atomic that leaves the same whatever was there, and tells nobody what was, is a store: it may be the first.
#[test]
fn an_exchange_without_a_result_reads_nothing() {
    let kinds = |body: &str| found(body, 0).into_iter().map(|(kind, ..)| kind).collect::<Vec<_>>();
    for body in ["atom.shared.exch.b32 %r6, [%r1], %r5;", "red.shared.and.b32 [%r1], 0;"] {
        assert_eq!(kinds(&format!("{body} ld.shared.u32 %r7, [%r1];")), [], "{body}");
    }
    for body in [
        "atom.shared.exch.b32 %r6, [%r1], %r5; st.global.u32 [%rd1], %r6;",
        "atom.shared.add.u32 %r6, [%r1], 1;",
        "red.shared.max.s32 [%r1], %r5;",
        "red.shared.min.u32 [%r1], %r5;",
    ] {
        assert_eq!(kinds(body), [FindingKind::UninitialisedShared], "{body}");
    }
}
