//! One mistake each, and what the checks say of it: kind, block, thread, line.

use nvabi_emu::{Args, Finding, FindingKind, Report};

use crate::gpu::{Gpu, gpus};

/// The line of a mistake, by the comment that marks it.
fn line_of(mark: &str) -> u32 {
    let source = include_str!("../../../kernels/mistakes.cu");
    source.lines().position(|line| line.contains(mark)).unwrap() as u32 + 1
}

/// Without machine code: there, lanes may be at a barrier by different instructions, and what a warp does together names
/// no lanes.
fn ptx_gpus() -> impl Iterator<Item = Gpu> {
    gpus("mistakes").filter(|gpu| !gpu.is_machine_code())
}

/// The only finding, which must be of this kind.
fn only<'a>(gpu: &Gpu, report: &'a Report, kind: FindingKind) -> &'a Finding {
    let [finding] = &report.findings[..] else { panic!("{}: {:#?}", gpu.name, report.findings) };
    assert_eq!(finding.kind, kind, "{}: {finding}", gpu.name);
    assert!(finding.location.file.is_some(), "{finding}");
    finding
}

#[test]
fn an_access_past_the_end() {
    for mut gpu in gpus("mistakes") {
        let data = gpu.up(&[0; 100]);
        let report = gpu.launch("past_the_end", [2], [64], Args::new().u64(data).i32(100));
        let finding = only(&gpu, &report, FindingKind::OutOfBounds);
        assert_eq!((finding.block, finding.thread), ([1, 0, 0], [36, 0, 0]));
        assert_eq!(finding.location.line, line_of("one too far"));
        assert!(finding.message.contains("400 bytes into an allocation of 400"), "{finding}");
        assert_eq!(report.fatal(), Some(finding));
    }
}

#[test]
fn an_access_far_from_any_allocation_is_said_to_be_far() {
    let messages = [
        (-1i64, ", 4 bytes before an allocation of 64"),
        (20, ", 80 bytes into an allocation of 64"),
        (1 << 40, "bytes from an allocation of "),
    ];
    for mut gpu in gpus("mistakes") {
        // On either side of what the program allocates now, whatever lies there already.
        let data = gpu.up(&[0; 16]);
        for (at, message) in messages {
            let report = gpu.launch("element", [1], [1], Args::new().u64(data).u64(at as u64));
            let finding = only(&gpu, &report, FindingKind::OutOfBounds);
            assert!(finding.message.contains(message), "{finding}");
        }
    }
}

#[test]
fn a_misaligned_access() {
    for mut gpu in gpus("mistakes") {
        let data = gpu.up(&[0; 100]);
        let report = gpu.launch("misaligned", [1], [32], Args::new().u64(data));
        let finding = only(&gpu, &report, FindingKind::Misaligned);
        assert_eq!(
            (finding.thread, finding.location.line),
            ([0, 0, 0], line_of("multiple of four"))
        );
    }
}

#[test]
fn a_null_pointer() {
    for mut gpu in gpus("mistakes") {
        let data = gpu.up(&[7]);
        let report = gpu.launch("null_pointer", [1], [32], Args::new().u64(data));
        let finding = only(&gpu, &report, FindingKind::OutOfBounds);
        assert_eq!((finding.thread, finding.location.line), ([5, 0, 0], line_of("// null")));
        assert!(finding.message.contains("a null pointer"), "{finding}");
    }
}

#[test]
fn an_access_beyond_shared_memory() {
    for mut gpu in gpus("mistakes") {
        let out = gpu.up(&[0; 32]);
        let report = gpu.launch("shared_overrun", [1], [32], Args::new().u64(out).i32(4));
        let finding = only(&gpu, &report, FindingKind::OutOfBounds);
        assert_eq!(
            (finding.thread, finding.location.line),
            ([28, 0, 0], line_of("beyond the array"))
        );
        // On Hopper the first 1024 bytes are the system's.
        let hopper = gpu.name.contains("sm_90");
        let bytes = if hopper { "which has 1152 bytes" } else { "which has 128 bytes" };
        assert!(finding.message.contains(bytes), "{finding}");
    }
}

#[test]
fn shared_memory_that_nobody_wrote() {
    for mut gpu in gpus("mistakes") {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("never_written", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::UninitialisedShared);
        assert_eq!((finding.thread, finding.location.line), ([32, 0, 0], line_of("half of it")));
        assert_eq!((finding.count, report.fatal()), (32, None));
    }
}

#[test]
fn a_barrier_that_part_of_a_warp_comes_to() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("parted_barrier", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::BarrierDivergence);
        assert_eq!(finding.thread[0] % 32, 7);
        assert_eq!(finding.location.line, line_of("seven lanes"));
        assert!(finding.message.contains("lanes 0x0000007f of warp"), "{finding}");
    }
}

#[test]
fn lanes_that_pass_a_barrier_by() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("left_out_of_barrier", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::BarrierDivergence);
        assert_eq!(finding.location.line, line_of("only seven"));
        assert!(finding.message.contains("lanes 0xffffff80 passed by"), "{finding}");
        // On a GPU this works, mostly: those that ended are not waited for.
        assert_eq!((report.fatal(), gpu.down::<i32>(out, 64)), (None, vec![1; 64]));
    }
}

#[test]
fn lanes_at_two_barriers() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("two_barriers", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::BarrierDivergence);
        let (odd, even) = (line_of("the odd ones"), line_of("the odd ones") + 2);
        let (here, there) = if finding.thread[0] & 1 == 0 { (odd, even) } else { (even, odd) };
        assert_eq!(finding.location.line, here, "{finding}");
        assert!(finding.message.contains(&format!("mistakes.cu:{there}:")), "{finding}");
        assert_eq!(report.fatal(), Some(finding));
    }
}

#[test]
fn lanes_that_pass_a_call_with_a_barrier_by() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("left_out_of_call", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::BarrierDivergence);
        assert_eq!(finding.location.line, line_of("in a function"));
        assert!(finding.message.contains("lanes 0xffffff80 passed by"), "{finding}");
        assert_eq!(report.fatal(), None);
    }
}

#[test]
fn lanes_at_a_barrier_while_others_name_them() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("barrier_or_shuffle", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::BarrierDivergence);
        // The one that waits, or the one that it waits for.
        let barrier = format!("mistakes.cu:{}:", line_of("in a function"));
        assert!(finding.to_string().contains(&barrier), "{finding}");
        assert_eq!(report.fatal(), Some(finding));
    }
}

#[test]
fn a_barrier_in_many_copies_is_one_place() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("leaves_a_loop", [2], [64], Args::new().u64(out));
        assert!(report.findings.len() <= 1, "{}: {:#?}", gpu.name, report.findings);
        if let Some(finding) = report.findings.first() {
            assert_eq!(finding.kind, FindingKind::BarrierDivergence);
            assert_eq!(finding.location.line, line_of("in each round"));
            assert_eq!((finding.count, report.fatal()), (16, None), "{}", gpu.name);
        }
    }
}

#[test]
fn a_race_for_want_of_a_barrier() {
    for mut gpu in gpus("mistakes") {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("no_barrier", [1], [64], Args::new().u64(out));
        // Which warp comes first is the schedule's choice: the second sees the race, the first reads
        // what nobody has written yet.
        let kinds: Vec<FindingKind> = report.findings.iter().map(|f| f.kind).collect();
        assert!(kinds.contains(&FindingKind::Race), "{}: {:#?}", gpu.name, report.findings);
        let race = report.findings.iter().find(|f| f.kind == FindingKind::Race).unwrap();
        assert!(race.message.contains("mistakes.cu:"), "{race}");
        assert_eq!(report.fatal(), None);
    }
}

#[test]
fn a_race_between_rounds_of_a_loop() {
    for mut gpu in gpus("mistakes") {
        let (input, out) = (gpu.up(&[1; 256]), gpu.up(&[0; 64]));
        let report = gpu.launch(
            "missing_barrier_in_loop",
            [1],
            [64],
            Args::new().u64(input).u64(out).i32(4),
        );
        // The write is too early for the reads before it, and those after it for the write.
        assert!(
            report.findings.iter().all(|f| f.kind == FindingKind::Race),
            "{:#?}",
            report.findings
        );
        let early = |f: &&Finding| f.location.line == line_of("while others still read");
        let race = report.findings.iter().find(early).unwrap();
        assert!(race.message.contains("was read by thread"), "{race}");
        // One round has no race.
        let report = gpu.launch(
            "missing_barrier_in_loop",
            [1],
            [64],
            Args::new().u64(input).u64(out).i32(1),
        );
        assert!(report.findings.is_empty());
    }
}

#[test]
fn warps_that_wait_for_each_other() {
    for mut gpu in gpus("mistakes") {
        let out = gpu.up(&[0; 64]);
        let report = gpu.launch("waits_forever", [1], [64], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::Deadlock);
        assert!(finding.message.contains("warp 0 at barrier 1"), "{finding}");
        assert!(finding.message.contains("barrier 2 has 32 of 64 threads"), "{finding}");
    }
}

#[test]
fn a_kernel_that_never_ends() {
    for mut gpu in gpus("mistakes") {
        gpu.launch.max_warp_instructions = 10_000;
        let flag = gpu.up(&[0]);
        let report = gpu.launch("never_ends", [2], [64], Args::new().u64(flag));
        only(&gpu, &report, FindingKind::Endless);
    }
}

#[test]
fn a_trap() {
    for mut gpu in gpus("mistakes") {
        let input = gpu.up(&[0, 1, 2, 3, 3, 4]);
        let report = gpu.launch("trapped", [1], [6], Args::new().u64(input));
        let finding = only(&gpu, &report, FindingKind::Trap);
        assert_eq!((finding.thread, finding.location.line), ([3, 0, 0], line_of("fourth thread")));
    }
}

#[test]
fn a_shuffle_with_an_absent_lane() {
    for mut gpu in ptx_gpus() {
        let out = gpu.up(&[0; 32]);
        let report = gpu.launch("absent_lane", [1], [32], Args::new().u64(out));
        let finding = only(&gpu, &report, FindingKind::BarrierDivergence);
        assert_eq!(finding.thread, [3, 0, 0]);
    }
}

#[test]
fn a_failed_assertion() {
    for mut gpu in gpus("mistakes") {
        let input = gpu.up(&[0, 1, -1, 3]);
        let report = gpu.launch("asserted", [1], [4], Args::new().u64(input));
        let finding = only(&gpu, &report, FindingKind::Assert);
        assert_eq!(finding.thread, [2, 0, 0]);
        assert_eq!(finding.message, "mistakes.cu:86: asserted: assertion `in[i] >= 0` failed");
    }
}

#[test]
fn printf_prints_in_the_order_of_blocks() {
    let wanted = "thread 0 of prints:  0.00 4294967296\n\
                  thread 1 of prints:  0.50 8589934592\n\
                  thread 2 of prints:  1.00 17179869184\n";
    for mut gpu in gpus("mistakes") {
        let report = gpu.run("prints", [2], [32], Args::new().i32(3));
        assert_eq!(String::from_utf8(report.output).unwrap(), wanted.repeat(2), "{}", gpu.name);
    }
}

#[test]
fn a_finding_tells_everything_in_one_line() {
    let mut gpu = gpus("mistakes").next().unwrap();
    let data = gpu.up(&[0; 4]);
    let report = gpu.launch("past_the_end", [1], [64], Args::new().u64(data).i32(4));
    let text = report.findings[0].to_string();
    let line = line_of("one too far");
    assert!(text.starts_with(&format!("./mistakes.cu:{line}:")), "{text}");
    assert!(text.contains(
        "out of bounds: kernel past_the_end, block (0,0,0), thread (4,0,0): 4 bytes at 0x"
    ));
}
