//! Programs compiled, recorded in the emulator and compared by `nvabi trace`, as a user does it.
#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use nvabi_test::{EMULATOR, HISTOGRAM, Need, libraries, skip};
use nvabi_trace::{EventKind, Found, Trace};

test_main!();

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The libraries that record what the compiler prepared.
const RECORDER: [(&str, &str); 2] =
    [("NVABI_PASS", "libnvabi_pass.so"), ("NVABI_RECORDER", "libnvabi_record.so")];

/// The variables that tell nvabi where they and the emulator's are, and where CUDA is.
fn variables() -> Vec<(&'static str, PathBuf)> {
    let mut variables = libraries(&[&RECORDER[..], &EMULATOR[..]].concat());
    variables.push(("CUDA_PATH", nvabi_test::cuda(&["include/cuda.h"])));
    variables
}

#[test]
fn the_answer_names_the_line_of_the_bug() {
    let variables = variables();
    let mut command = Command::new(Path::new(ROOT).join("examples/diverge/run.sh"));
    command.env("NVABI", env!("CARGO_BIN_EXE_nvabi")).envs(variables);
    let output = command.output().expect("the script runs");
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if let Some((_, why)) = out.split_once("skipped: ") {
        skip(Need::Llvm, why);
    }
    assert!(output.status.success(), "{out}{error}");
    assert!(out.contains("collide.cu:26:13 in walk"), "{out}");
    // What the program prints is what it prints without a recorder.
    assert!(
        out.contains("128 particles, 1667 steps") && out.contains("128 particles, 1709 steps"),
        "{out}"
    );
}

/// Behind [`HISTOGRAM`]: counts bytes of which the last argument is one more.
const PROGRAM: &str = r#"
count(bytes(int(sys.argv[2]) if at == 192 else at % 7 for at in range(256)))
cuda.cuCtxSynchronize()
found = (ctypes.c_uint32 * 256)()
cuda.cuMemcpyDtoH_v2(found, bins, ctypes.c_size_t(1024))
print(sum(found), found[int(sys.argv[2])])
"#;

/// A cubin that nothing has prepared is recorded: its stores, atomics and branches, by line; and two runs differ where
/// their data does.
#[test]
fn machine_code_is_recorded_as_it_is() {
    let variables = libraries(&EMULATOR);
    let cuda = nvabi_test::cuda(&["bin/ptxas"]);
    let folder = tempfile::tempdir().expect("a folder");
    let (script, cubin) = (folder.path().join("run.py"), folder.path().join("classic.cubin"));
    std::fs::write(&script, [HISTOGRAM, PROGRAM].concat()).expect("the script");
    let ptx = Path::new(ROOT).join("cuda/kernels/ptx/classic.ptx");
    let mut ptxas = Command::new(cuda.join("bin/ptxas"));
    ptxas.args(["-arch=sm_86", "-lineinfo"]).arg(ptx).arg("-o").arg(&cubin);
    assert!(ptxas.status().expect("ptxas").success());
    let record = |name: &str, value: &str, more: &[&str]| {
        let trace = folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.args(["trace", "record", "--sass"]).args(more).arg("-o").arg(&trace);
        command.arg("--").arg("python3").args([&script, &cubin]).arg(value).envs(variables.clone());
        let output = command.output().expect("nvabi");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        (trace, String::from_utf8_lossy(&output.stdout).into_owned(), error.into_owned())
    };
    let (good, out, _) = record("good.nvtrace", "3", &[]);
    assert_eq!(out, "256 37\n");
    let trace = Trace::open(&good).expect("a trace");
    assert!(trace.closed() && trace.damage().is_empty());
    let [launch] = trace.launches() else { panic!("{:?}", trace.launches()) };
    assert_eq!(
        (launch.kernel.as_str(), launch.grid, launch.block),
        ("histogram", [2, 1, 1], [64, 1, 1])
    );
    let mut kinds = std::collections::BTreeMap::new();
    let mut warps = Vec::new();
    for found in trace.warps(0) {
        let Found::Warp(warp) = found else { panic!("lost warps") };
        warps.push(warp.number());
        for event in warp.events() {
            let event = event.expect("an event");
            *kinds.entry(event.kind).or_insert(0) += 1;
            let source = trace.source(0, event.site).expect("its place");
            assert!(source.file.ends_with(".cu") || source.file.ends_with(".h"), "{source:?}");
        }
    }
    assert_eq!(warps, [0, 1, 2, 3]);
    for kind in [
        EventKind::BRANCH,
        EventKind::SHARED_STORE,
        EventKind::ATOMIC,
        EventKind::ENTRY,
        EventKind::EXIT,
    ] {
        assert!(kinds.contains_key(&kind), "{kinds:?}");
    }
    let differ = |a: &Path, b: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        let output =
            command.args(["trace", "diff", "--values"]).args([a, b]).output().expect("nvabi");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // The same again, and with one byte that is another: the atomic of a lowest lane that counts it finds another number.
    assert_eq!(differ(&good, &record("again.nvtrace", "3", &[]).0).0, Some(0));
    let (code, text) = differ(&good, &record("bad.nvtrace", "200", &[]).0);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("in histogram: other value"), "{text}");
    // One warp of two, a few words of each, and no launch at all.
    let (sampled, _, _) = record("sampled.nvtrace", "3", &["--sample", "2", "--capacity", "3"]);
    let sampled = Trace::open(&sampled).expect("a trace");
    let words = |event: nvabi_trace::Event| 1 + usize::from(event.value.is_some());
    let warps = sampled.warps(0).map(|found| match found {
        Found::Warp(warp) => {
            let words: usize = warp.events().map(|event| words(event.expect("an event"))).sum();
            (warp.number(), warp.dropped() > 0, (1..=3).contains(&words))
        }
        _ => panic!("lost warps"),
    });
    assert_eq!(warps.collect::<Vec<_>>(), [(0, true, true), (2, true, true)]);
    let (_, _, error) = record("none.nvtrace", "3", &["--kernels", "matmul"]);
    assert!(error.contains("nothing: no kernel that is recorded"), "{error}");
}

/// How many steps it takes from a number to 1.
fn steps(mut n: u32) -> u32 {
    let mut taken = 0;
    while n != 1 {
        n = if n % 2 == 1 { 3 * n + 1 } else { n / 2 };
        taken += 1;
    }
    taken
}

/// A folder in which `nvabi trace` compiles and records.
struct Workshop {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Workshop {
    fn new() -> Self {
        let variables = variables();
        if Command::new("clang++-19").arg("--version").output().is_err() {
            skip(Need::Llvm, "clang++-19 does not run");
        }
        Self { folder: tempfile::tempdir().expect("a folder"), variables }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it printed, to stdout and to stderr.
    fn nvabi(&self, arguments: &[&str]) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.current_dir(&self.folder).envs(self.variables.iter().cloned());
        let output = command.arg("trace").args(arguments).output().expect("nvabi runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {error}");
        (out, error)
    }
}

fn source(name: &str) -> String {
    format!("{ROOT}/cli/tests/linked/{name}.cu")
}

#[test]
fn a_launch_that_faults_is_recorded_up_to_there() {
    let workshop = Workshop::new();
    workshop.nvabi(&["cc", "-O1", &source("fault"), "-o", "fault"]);
    let (out, error) =
        workshop.nvabi(&["record", "--emulate", "-o", "fault.nvtrace", "--", "./fault"]);
    assert_eq!(out, "cudaErrorIllegalAddress\n");
    assert!(error.contains("recorded up to where a kernel failed"), "{error}");
    let trace = Trace::open(workshop.path("fault.nvtrace")).expect("a trace");
    let warps = trace.warps(0).map(|found| match found {
        Found::Warp(warp) => (warp.len(), warp.dropped()),
        other => panic!("{other:?}"),
    });
    // Three rounds, five, and up to the test before the mistake.
    assert_eq!(warps.collect::<Vec<_>>(), [(4, 0), (6, 0), (8, 1)]);
}

#[test]
fn units_that_are_linked_are_recorded_with_the_sites_of_each() {
    let workshop = Workshop::new();
    // One unit is compiled by itself, the other where the program is linked.
    workshop.nvabi(&["cc", "-fgpu-rdc", "-O0", "-c", &source("steps"), "-o", "steps.o"]);
    let archive = Command::new("ar")
        .current_dir(&workshop.folder)
        .args(["rc", "libsteps.a", "steps.o"])
        .output();
    assert!(archive.is_ok_and(|output| output.status.success()));
    for unit in [&["steps.o"][..], &["libsteps.a"], &["-L.", "-lsteps"]] {
        let link = ["cc", "-fgpu-rdc", "-O0", &source("walk"), "-o", "walk"];
        workshop.nvabi(&[&link, unit].concat());
        let (printed, _) =
            workshop.nvabi(&["record", "--emulate", "-o", "walk.nvtrace", "--", "./walk"]);
        both_units_are_recorded(&printed, &workshop.path("walk.nvtrace"));
    }
}

/// Of what `walk` printed and recorded.
fn both_units_are_recorded(printed: &str, trace: &Path) {
    let total: u32 = (1..=40).map(steps).sum();
    assert_eq!(printed, format!("{total} steps, 40 calls\n"));

    let trace = Trace::open(trace).expect("a trace");
    let [launch] = trace.launches() else { panic!("{:?}", trace.launches()) };
    assert_ne!(launch.module_hash, [0; 32]);
    let rows: Vec<_> =
        (0..trace.site_count(0)).map(|at| trace.site(0, at as u32).expect("a site")).collect();
    let line_of = |file: &str, text: &str| {
        let source =
            std::fs::read_to_string(format!("{ROOT}/cli/tests/linked/{file}")).expect("it");
        1 + source.lines().position(|line| line.contains(text)).expect("the line") as u32
    };
    let masks = |warp: u32, file: &str, text: &str| -> Vec<u32> {
        let line = line_of(file, text);
        let here = |key: u64| rows.iter().any(|s| s.key == key && s.file == file && s.line == line);
        let Some(Found::Warp(warp)) = trace.warps(0).nth(warp as usize) else { panic!("{warp}") };
        let events = warp.events().map(|event| event.expect("an event"));
        events.filter(|e| e.kind == EventKind::BRANCH && here(e.site)).map(|e| e.mask).collect()
    };
    for warp in 0..2 {
        let lanes = |wanted: &dyn Fn(u32) -> bool| -> u32 {
            let numbers = (0..32).map(|lane| (lane, warp * 32 + lane + 1));
            numbers.filter(|(_, n)| *n <= 40 && wanted(*n)).map(|(lane, _)| 1 << lane).sum()
        };
        assert_eq!(masks(warp, "walk.cu", "if (i < count)"), [u32::MAX]);
        // Round by round, those that are still on their way.
        let wanted: Vec<u32> =
            (0..).map(|round| lanes(&|n| steps(n) >= round)).take_while(|m| *m != 0).collect();
        assert_eq!(masks(warp, "steps.cu", "while (n != 1)"), wanted, "warp {warp}");
    }
}
