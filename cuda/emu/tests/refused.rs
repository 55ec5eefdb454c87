//! Modules that cannot be loaded: what is wrong, and on which line. Whatever a text holds, loading and
//! running it ends.

#![allow(clippy::unwrap_used, clippy::panic)]

use nvabi_emu::{Args, Device, DeviceError, Launch};

#[path = "../../../fuzz/checks/ptx.rs"]
mod fuzz;

/// A kernel with this body, which starts at line 5.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.3\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {{ .reg .b32 %r<9>; \
         .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .b16 %rs<9>;\n{body}\nret; }}\n"
    )
}

#[test]
fn an_instruction_that_the_emulator_lacks_is_named_with_its_line() {
    for instruction in [
        "istypep.texref %p1, %rd1",
        "wgmma.fence.sync.aligned",
        "mbarrier.frobnicate.shared.b64 [%rd1], %r1",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1], [%r1], 16",
        "barrier.cluster.arrive",
        "vadd.s32.s32.s32 %r1, %r2, %r3",
        "atom.global.max.noftz.f16x2 %r1, [%rd1], %r2",
        "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2",
        "setp.eq.and.f16x2 %p1, %r1, %r2, %p2",
        "add.rz.f16x2 %r1, %r2, %r3",
        "max.relu.s32 %r1, %r2, %r3",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1}",
        "frobnicate.u32 %r1",
        "mul.rn.frob.f32 %f1, %f2, %f3",
    ] {
        let error =
            Device::new().load(&kernel(&format!("mov.u32 %r1, 0;\n{instruction};"))).unwrap_err();
        let opcode = instruction.split(' ').next().unwrap();
        assert_eq!(error.line, 6, "{error}");
        assert!(error.to_string().contains(&format!("`{opcode}`")), "{error}");
    }
}

#[test]
fn names_that_are_not_there_are_named_with_their_line() {
    for (body, what) in [
        ("bra $nowhere;", "there is no label `$nowhere`"),
        ("mov.u32 %r1, %r9;", "there is no `%r9`"),
        ("mov.u32 %q1, 1;", "there is no register `%q1`"),
        ("mov.u64 %rd1, variable;", "there is no `variable`"),
        ("call.uni f, ();", "there is no function `f`"),
        ("add.s32 %r1, %r2;", "`add.s32`"),
        ("ld.global.u32 %r1, %rd1;", "`ld` needs an address"),
        ("brx.idx %r1, list;", "there is no list of targets `list`"),
    ] {
        let error = Device::new().load(&kernel(body)).unwrap_err();
        assert_eq!(error.line, 5, "{error}");
        assert!(error.what.contains(what), "{error}");
    }
    let outside =
        ".extern .func g(.param .b32 a);\n.entry k() {\n{ .param .b32 a; call.uni g, (a); }\n}";
    assert!(
        Device::new()
            .load(outside)
            .unwrap_err()
            .what
            .contains("`g` is declared but defined nowhere")
    );
    let variable = "\n.extern .global .u32 v;";
    let error = Device::new().load(variable).unwrap_err();
    assert_eq!((error.line, error.what.as_str()), (2, "`v` is declared but defined nowhere"));
}

#[test]
fn launches_that_no_device_takes_are_refused() {
    let mut device = Device::new();
    let module = device.load(&kernel("")).unwrap();
    let mut refuse = |launch: Launch, args: Args| match device.launch(&module, "k", &launch, &args)
    {
        Err(DeviceError::Launch { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let args = || Args::new().u64(0);
    let with =
        |grid, block, shared_bytes| Launch { grid, block, shared_bytes, ..Launch::default() };
    assert_eq!(refuse(with([0, 1, 1], [1; 3], 0), args()), "the grid is empty");
    assert_eq!(refuse(with([1; 3], [1, 0, 1], 0), args()), "the block is empty");
    assert!(refuse(with([1; 3], [1024, 2, 1], 0), args()).contains("2048 threads"));
    assert!(refuse(with([1; 3], [1; 3], 1 << 20), args()).contains("shared memory"));
    assert!(refuse(with([u32::MAX; 3], [1; 3], 0), args()).contains("too large"));
    assert!(refuse(with([1; 3], [1; 3], 0), Args::new()).contains("parameters have 8 bytes"));
    assert_eq!(
        device.launch(&module, "q", &Launch::default(), &args()).unwrap_err(),
        DeviceError::NoKernel("q".to_owned())
    );
}

/// Cut off, with bytes changed, with lines gone or twice: an error or a module, never a panic; and what
/// loads runs to an end.
#[test]
fn damaged_modules_do_no_harm() {
    let mut random = 1u64;
    let mut next = |bound: usize| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % bound.max(1)
    };
    let (mut loaded, mut failed) = (0, 0);
    for name in ["classic", "control", "numbers", "warps", "memories", "mistakes"] {
        let path = format!("{}/../kernels/ptx/{name}.ptx", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for round in 0..40 {
            let mut lines: Vec<&str> = text.lines().collect();
            let at = next(lines.len());
            let damaged = match round % 4 {
                0 => text.chars().take(next(text.len())).collect(),
                1 => {
                    lines.remove(at);
                    lines.join("\n")
                }
                2 => {
                    let other = lines[next(lines.len())];
                    lines[at] = other;
                    lines.join("\n")
                }
                _ => {
                    let at = next(text.len());
                    let with = ["9", "%", ";", "-", "{", "[", "0x", "u64"][next(8)];
                    format!("{}{with}{}", &text[..at], &text[at + 1..])
                }
            };
            let mut device = Device::new();
            let Ok(module) = device.load(&damaged) else {
                failed += 1;
                continue;
            };
            loaded += 1;
            let data = device.alloc(1 << 16).unwrap();
            let kernels: Vec<String> = module.kernels().map(str::to_owned).collect();
            // What is left of a module may have none.
            let Some(kernel) = kernels.get(next(kernels.len())) else { continue };
            let args = (0..8).fold(Args::new(), |args, _| args.u64(data));
            let launch =
                Launch { block: [64, 1, 1], max_warp_instructions: 20_000, ..Launch::default() };
            let _ = device.launch(&module, kernel, &launch, &args);
        }
    }
    assert!(loaded > 20 && failed > 60, "{loaded} loaded, {failed} failed");
}

#[test]
fn what_fuzzing_found_of_modules_is_loaded_or_refused() {
    nvabi_test::replay("ptx", fuzz::ptx);
}
