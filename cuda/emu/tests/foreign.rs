//! PTX in the forms that nvcc, NVRTC and other writers of PTX use and clang does not.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Args, Device, Finding, FindingKind, Launch, Report, Severity};

/// A kernel `k(out, in)` with this body.
fn kernel(declarations: &str, body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n{declarations}\n\
         .visible .entry k(.param .u64 out, .param .u64 in) {{ .reg .b32 %r<20>; .reg .b64 %rd<20>; \
         .reg .f32 %f<20>; .reg .f64 %fd<9>; .reg .pred %p<9>;\n\
         ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in]; mov.u32 %r1, %tid.x;\n{body}\nret; }}\n"
    )
}

/// What a launch leaves in `out`, given `in`.
fn run_with(text: &str, launch: &Launch, input: &[u32], results: usize) -> (Report, Vec<u32>) {
    let mut device = Device::new();
    let module = device.load(text).unwrap_or_else(|error| panic!("{error}"));
    let to = device.alloc(4 * results as u64).unwrap();
    let from = device.alloc(4 * input.len().max(1) as u64).unwrap();
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    device.write(from, &bytes).unwrap();
    let report = device.launch(&module, "k", launch, &Args::new().u64(to).u64(from)).unwrap();
    let mut bytes = vec![0; 4 * results];
    device.read(to, &mut bytes).unwrap();
    let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    (report, words.collect())
}

fn run(declarations: &str, body: &str, input: &[u32], results: usize) -> (Vec<Finding>, Vec<u32>) {
    let launch = Launch { max_warp_instructions: 1 << 22, ..Launch::default() };
    let (report, words) = run_with(&kernel(declarations, body), &launch, input, results);
    (report.findings, words)
}

/// nvcc counts a row from one before the first: the register is -4, and the offset brings it back.
#[test]
fn shared_addresses_of_32_bits_wrap() {
    let declarations = ".shared .align 16 .b8 rows[64];";
    let body = "mov.u32 %r2, rows; add.s32 %r3, %r2, -4; mov.u32 %r4, 7; st.shared.u32 [%r3+4], %r4;\n\
                ld.shared.u32 %r5, [%r3+4]; st.global.u32 [%rd1], %r5;\n\
                st.shared.u32 [%r3+8], %r4; red.shared.add.u32 [%r3+8], 5; ld.shared.u32 %r6, [%r2+4];\n\
                st.global.u32 [%rd1+4], %r6;";
    assert_eq!(run(declarations, body, &[], 2), (vec![], vec![7, 12]));
    // What wraps is still checked.
    let (findings, _) =
        run(declarations, "mov.u32 %r2, rows; ld.shared.u32 %r3, [%r2+-4];", &[], 1);
    assert_eq!(findings[0].kind, FindingKind::OutOfBounds);
    assert!(findings[0].message.contains("shared memory 0xfffffffc"), "{}", findings[0]);
}

/// Seven floats in two loads of 16 bytes, of whose last no byte beyond the allocation is used.
#[test]
fn bytes_that_a_pragma_marks_as_unused_are_not_read() {
    let load = |mask: &str, last: &str| {
        format!(
            "{mask} ld.global.nc.v4.f32 {{%f1, %f2, %f3, {last}}}, [%rd2+16]; add.f32 %f5, %f1, %f3;\n\
             st.global.f32 [%rd1], %f5; st.global.f32 [%rd1+4], {last};"
        )
    };
    let input: Vec<u32> = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0].map(f32::to_bits).to_vec();
    let (findings, out) = run("", &load(".pragma \"used_bytes_mask 4095\";", "%f4"), &input, 2);
    assert_eq!((findings, f32::from_bits(out[0])), (vec![], 12.0));
    let (findings, _) = run("", &load(".pragma \"used_bytes_mask 0xfff\";", "%f4"), &input, 2);
    assert_eq!(findings, []);
    // A mask that has the byte, and one that belongs to another load.
    for mask in [
        ".pragma \"used_bytes_mask 0x1fff\";",
        ".pragma \"used_bytes_mask 0xfff\"; ld.global.u32 %r9, [%rd2];",
        ".pragma \"nounroll\";",
    ] {
        let (findings, _) = run("", &load(mask, "%f4"), &input, 2);
        assert_eq!(findings.len(), 1, "{mask}");
    }
}

/// Without a pragma the code says whether a part is used: it goes nowhere, or it may go somewhere.
#[test]
fn a_wide_load_over_the_end_ends_nothing_where_its_last_part_is_not_used() {
    let input = [1, 2, 3, 4, 5, 6, 7];
    let unread = "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+16]; st.global.u32 [%rd1], %r4;";
    assert_eq!(run("", unread, &input, 1), (vec![], vec![7]));
    // Taken apart, and one half is dropped.
    let halves = "ld.global.v2.u64 {%rd3, %rd4}, [%rd2+16]; mov.b64 {%r2, %r3}, %rd4; mov.b64 {%r4, _}, %rd3;\n\
                  add.u32 %r2, %r2, %r4; st.global.u32 [%rd1], %r2;";
    assert_eq!(run("", halves, &input, 1), (vec![], vec![12]));
    // It depends on a comparison whether the last part is stored: told, with the result as on a GPU.
    let perhaps = "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+16]; setp.eq.u32 %p1, %r2, 99;\n\
                   selp.u32 %r6, %r5, %r4, %p1; st.global.u32 [%rd1], %r6;";
    let (findings, out) = run("", perhaps, &input, 1);
    assert_eq!(out, [7]);
    let [note] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(
        (note.kind, note.severity, note.fatal),
        (FindingKind::OutOfBounds, Severity::Note, false)
    );
    assert!(note.message.contains("the last 4 of them behind an allocation of 28"), "{note}");
    // Loads of 4 bytes, stores, and what is not aligned to 16 bytes around the end stay mistakes.
    for (body, end) in [
        ("ld.global.u32 %r2, [%rd2+28];", true),
        ("st.global.v4.u32 [%rd2+16], {%r1, %r1, %r1, %r1};", true),
        ("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+32];", true),
        ("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2+-16];", true),
    ] {
        let (findings, _) = run("", body, &input, 1);
        assert_eq!((findings.len(), findings[0].fatal), (1, end), "{body}");
    }
}

/// tinygrad names the first element of an array. ptxas counts in elements, as its PTX ISA does not say.
#[test]
fn an_element_of_a_variable_is_an_address() {
    let declarations =
        ".shared .align 16 .b8 temp[64];\n.global .align 4 .u32 table[3] = {5, 6, 7};";
    let body = "mov.u64 %rd3, temp[0]; mov.u64 %rd4, table[2]; mov.u64 %rd5, temp[4];\n\
                sub.u64 %rd5, %rd5, %rd3; ld.global.u32 %r3, [%rd4]; cvt.u32.u64 %r4, %rd5;\n\
                st.global.u32 [%rd1], %r3; st.global.u32 [%rd1+4], %r4;\n\
                ld.global.u32 %r5, table[1]; st.global.u32 [%rd1+8], %r5;";
    assert_eq!(run(declarations, body, &[], 3), (vec![], vec![7, 4, 6]));
}

/// `%envreg1` and `%envreg2` are the address of what `cooperative_groups` keeps its grid barrier in.
#[test]
fn a_grid_synchronises_by_the_word_behind_its_environment() {
    let body = "mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2; mov.b64 %rd3, {%r3, %r2};\n\
                mov.u32 %r4, %ctaid.x; mul.wide.u32 %rd4, %r4, 4; add.u64 %rd4, %rd1, %rd4;\n\
                atom.add.release.gpu.u32 %r5, [%rd3+4], 1;\n\
                wait: ld.acquire.gpu.u32 %r6, [%rd3+4]; mov.u32 %r7, %nctaid.x; setp.lt.u32 %p1, %r6, %r7;\n\
                @%p1 bra wait; st.global.u32 [%rd4], %r6;";
    let text = kernel("", body);
    let launch = Launch { grid: [5, 1, 1], cooperative: true, ..Launch::default() };
    for _ in 0..2 {
        let (report, out) = run_with(&text, &launch, &[], 5);
        assert_eq!((report.findings, out), (vec![], vec![5; 5]));
    }
    // Other launches have none: the header takes 0 for that.
    let none = "mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2; or.b32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;";
    assert_eq!(run("", none, &[], 1), (vec![], vec![0]));
}

#[test]
fn quotients_and_roots_of_doubles_are_rounded_in_every_direction() {
    let body = |op: &str| {
        let operands = if op.starts_with("div") { "%fd1, %fd2" } else { "%fd2" };
        format!(
            "mov.f64 %fd1, 0d3FF0000000000000; mov.f64 %fd2, 0d4008000000000000; {op} %fd3, {operands};\n\
             st.global.f64 [%rd1], %fd3;"
        )
    };
    let value = |op: &str| {
        let (findings, out) = run("", &body(op), &[], 2);
        assert_eq!(findings, []);
        f64::from_bits(u64::from(out[0]) | u64::from(out[1]) << 32)
    };
    for (op, nearest) in [("div", 1.0 / 3.0), ("rcp", 1.0 / 3.0), ("sqrt", 3f64.sqrt())] {
        let [down, up, zero, near] =
            ["rm", "rp", "rz", "rn"].map(|mode| value(&format!("{op}.{mode}.f64")));
        assert_eq!((down.next_up(), down, near), (up, zero, nearest), "{op}");
        assert!(near == down || near == up, "{op}");
    }
}

/// Lanes of one warp take a lock one after the other: who has it leaves the loop, the others stay in it.
const LOCK: &str = "take: atom.cas.b32 %r3, [%rd2], 0, 1; setp.ne.s32 %p1, %r3, 0; @%p1 bra take;\n\
     ld.volatile.global.u32 %r4, [%rd1]; add.u32 %r4, %r4, 1; st.volatile.global.u32 [%rd1], %r4;\n\
     membar.gl; atom.exch.b32 %r5, [%rd2], 0;";

#[test]
fn lanes_that_wait_for_lanes_of_their_warp_go_on() {
    let counting = format!(
        "mov.u32 %r9, 0;\n{}",
        LOCK.replace("@%p1 bra take", "add.u32 %r9, %r9, 1; @%p1 bra take")
    );
    let sleeping = LOCK.replace("@%p1 bra take", "@%p1 nanosleep.u32 100; @%p1 bra take");
    for (name, body) in [("plain", LOCK), ("counting", &counting), ("sleeping", &sleeping)] {
        for threads in [32, 96] {
            let launch = Launch { block: [threads, 1, 1], ..Launch::default() };
            let (report, out) = run_with(&kernel("", body), &launch, &[0], 1);
            assert_eq!((report.findings, out), (vec![], vec![threads]), "{name}");
        }
    }
    // The even lanes wait for what the odd ones write, on either side of a branch.
    for (first, second) in [("wait", "write"), ("write", "wait")] {
        let body = format!(
            "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra {first};\n\
             bra {second};\n\
             wait: ld.volatile.global.u32 %r3, [%rd1]; setp.eq.u32 %p2, %r3, 0; @%p2 bra wait; bra met;\n\
             write: mov.u32 %r4, 1; st.volatile.global.u32 [%rd1], %r4; bra met;\n\
             met: bar.sync 0; red.global.add.u32 [%rd1], 1;"
        );
        let launch = Launch { block: [32, 1, 1], ..Launch::default() };
        let (report, out) = run_with(&kernel("", &body), &launch, &[0], 1);
        assert_eq!((report.findings, out), (vec![], vec![33]), "{first}");
    }
}

#[test]
fn an_endless_loop_is_named() {
    let text = ".version 8.4\n.target sm_90\n.address_size 64\n.file 1 \"wait.cu\"\n\
        .visible .entry k(.param .u64 out, .param .u64 in) {\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n\
        .loc 1 3 1\nld.param.u64 %rd1, [out];\nouter:\n.loc 1 7 5\nld.volatile.global.u32 %r1, [%rd1];\n\
        .loc 1 8 9\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra outer;\nret;\n}\n";
    let launch = Launch { max_warp_instructions: 10_000, ..Launch::default() };
    let (report, _) = run_with(text, &launch, &[], 1);
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((finding.kind, finding.fatal), (FindingKind::Endless, true));
    assert!(finding.message.contains("in the loop from wait.cu:7:5"), "{finding}");
    assert!(finding.message.contains("to wait.cu:8:9"), "{finding}");
    assert!(finding.message.contains("limit of 10000"), "{finding}");
    // All blocks of a cooperative grid count together: they share one thread.
    let many = Launch { grid: [8, 1, 1], cooperative: true, ..launch };
    let (report, _) = run_with(text, &many, &[], 1);
    assert!(report.warp_instructions < 20_000, "{}", report.warp_instructions);
    assert_eq!(report.findings[0].kind, FindingKind::Endless);
}

/// Two warps that store the same do no harm; the report of those that do not has both values.
#[test]
fn races_say_both_values_and_how_bad_they_are() {
    let declarations = ".shared .align 16 .b8 flag[16];";
    let launch = Launch { block: [96, 1, 1], ..Launch::default() };
    let store = |value: &str| {
        let body = format!("mov.u32 %r2, %warpid; {value} st.shared.u32 [flag+4], %r3;");
        let (report, _) = run_with(&kernel(declarations, &body), &launch, &[], 1);
        let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
        finding.clone()
    };
    let same = store("mov.u32 %r3, 5;");
    assert_eq!(
        (same.kind, same.severity, same.fatal),
        (FindingKind::Race, Severity::Undefined, false)
    );
    assert!(same.message.ends_with("; both store 0x00000005"), "{same}");
    assert!(same.to_string().contains(": race (undefined): kernel k"), "{same}");
    // The first two warps agree, the third does not: the worst is told, and all are counted.
    let other = store("shr.u32 %r3, %r2, 1; add.u32 %r3, %r3, 6;");
    assert_eq!((other.severity, other.count), (Severity::Error, same.count));
    assert!(other.message.ends_with("; that stored 0x00000006, this 0x00000007"), "{other}");
}
