//! `nvabi emu`: findings, reports, suppressions and exit statuses, with a program of the driver's API.
#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

test_main!();

/// Loads the kernel `k` of the file that it is given, runs it, and ends with the status that it is given.
const PROGRAM: &str = include_str!("../../cuda/shim/tests/run_kernel.c");

struct Setting {
    folder: tempfile::TempDir,
    libraries: Vec<(&'static str, PathBuf)>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let libraries = nvabi_test::libraries(&nvabi_test::EMULATOR);
        std::fs::write(folder.path().join("program.c"), PROGRAM).unwrap();
        std::os::unix::fs::symlink(&libraries[0].1, folder.path().join("libcuda.so.1")).unwrap();
        let cc = Command::new("cc")
            .current_dir(&folder)
            .args(["-w", "-o", "program", "program.c", "-L.", "-l:libcuda.so.1"])
            .status();
        assert!(cc.unwrap().success());
        std::fs::remove_file(folder.path().join("libcuda.so.1")).unwrap();
        // Two warps store what they are, or the same; the first is wrong, the second undefined.
        for (name, value) in [("racing.ptx", "%warpid"), ("same.ptx", "7")] {
            let text = format!(
                ".version 8.3\n.target sm_80\n.address_size 64\n.file 1 \"a b/k.cu\"\n\
                 .visible .entry k() {{\n.reg .b32 %r<3>; .shared .align 4 .b8 x[4];\n\
                 mov.u32 %r1, {value};\n.loc 1 3 5\nst.shared.u32 [x], %r1; ret; }}\n"
            );
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder, libraries }
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        let mut nvabi = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        nvabi.current_dir(&self.folder).envs(self.libraries.iter().cloned());
        nvabi.arg("emu").args(options).arg("--").args(command).output().unwrap()
    }

    fn read(&self, name: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn findings_end_in_a_status_and_a_summary() {
    let setting = Setting::new();
    let output = setting.run(&[], &["./program", "racing.ptx", "0"]);
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"done\n".to_vec()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("a b/k.cu:3:5 (PTX line 9): race: kernel k, block (0,0,0)"), "{text}");
    let last = text.lines().last().unwrap();
    assert_eq!(last.trim(), "Emulated ./program: in-order, 1 errors, 0 undefined, 0 notes");
    // The same value stored by all is told and passes, unless that is asked for.
    let output = setting.run(&[], &["./program", "same.ptx", "0"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("race (undefined)"));
    let output = setting.run(&["--fail-on", "undefined"], &["./program", "same.ptx", "0"]);
    assert_eq!(output.status.code(), Some(1));
    // Without findings the status is the program's; with them it is 1.
    assert_eq!(setting.run(&[], &["./program", "same.ptx", "5"]).status.code(), Some(5));
    assert_eq!(setting.run(&[], &["./program", "racing.ptx", "5"]).status.code(), Some(1));
}

/// What a program is linked with it gets under that name, with the version of its symbols.
#[test]
fn cublas_of_each_cuda_is_replaced() {
    const LIBRARIES: [(&str, &str, &str, &str); 4] = [
        ("NVABI_EMU_CUBLAS", "libnvabi_cublas.so", "libcublas.so.12", "cublasCreate_v2"),
        ("NVABI_EMU_CUBLAS_13", "libnvabi_cublas13.so", "libcublas.so.13", "cublasCreate_v2"),
        ("NVABI_EMU_CUBLASLT", "libnvabi_cublaslt.so", "libcublasLt.so.12", "cublasLtCreate"),
        ("NVABI_EMU_CUBLASLT_13", "libnvabi_cublaslt13.so", "libcublasLt.so.13", "cublasLtCreate"),
    ];
    let mut setting = Setting::new();
    setting
        .libraries
        .extend(nvabi_test::libraries(&LIBRARIES.map(|(variable, file, ..)| (variable, file))));
    let library = |wanted: &str| {
        let found = setting.libraries.iter().find(|(variable, _)| *variable == wanted);
        found.map(|(_, path)| path.clone()).unwrap()
    };
    for (variable, _, name, function) in LIBRARIES {
        let source = format!(
            "#include <stdio.h>\nint cuInit(unsigned), {function}(void **);\n\
             int main() {{ void *a = 0; int status = cuInit(0); printf(\"%d %d\\n\", status, {function}(&a)); }}\n"
        );
        std::fs::write(setting.folder.path().join("blas.c"), source).unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(&setting.folder).args(["-o", "blas", "blas.c"]);
        assert!(cc.args([library("NVABI_EMU"), library(variable)]).status().unwrap().success());
        let program = std::fs::read(setting.folder.path().join("blas")).unwrap();
        // The file that it needs, and the version of the function, have one name.
        let names = program
            .windows(name.len() + 1)
            .filter(|at| at.strip_suffix(&[0]) == Some(name.as_bytes()));
        assert_ne!(names.count(), 0, "{name}");
        let output = setting.run(&[], &["./blas"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0\n", "{name}: {}", err(&output));
        assert!(!err(&output).contains("no version information"), "{}", err(&output));
    }
}

#[test]
fn a_run_that_checked_nothing_is_an_error() {
    let setting = Setting::new();
    for (command, what) in [
        (&["true"][..], "never called the emulator's libcuda"),
        (&["./nothere"], "./nothere: No such file"),
        // It ends before it calls the library.
        (&["./program", "nothere.ptx", "0"], "never called the emulator's libcuda"),
    ] {
        let output = setting.run(&[], command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(err(&output).contains(what), "{}", err(&output));
    }
    let output = setting.run(&["--schedule", "sideways"], &["true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("expected in-order or random:SEED"), "{}", err(&output));
}

/// A runtime that is part of the program and that cannot do without a GPU; its functions are hidden, as NVIDIA's are.
const OWN_RUNTIME: &str = "\
#include <stdio.h>
#define OWN __attribute__((visibility(\"hidden\"), noinline, aligned(16)))
OWN int cudaMalloc(void **to, unsigned long bytes) { return 35; }
OWN int cudaMemset(void *to, int value, unsigned long bytes) { return 35; }
OWN int cudaRuntimeGetVersion(int *version) { *version = 1; return 35; }
int main(void) {
    unsigned char *data = 0;
    int version = 0, codes[3] = {cudaMalloc((void **)&data, 8), cudaMemset(data, 7, 8), cudaRuntimeGetVersion(&version)};
    printf(\"%d %d %d %d\\n\", codes[0], codes[1], codes[2], version / 1000);
}
";

/// nvcc's default: the runtime's functions become those of the emulator, if the program says where they are. A function
/// that is there since then is what tells CUDA 13 from 12.
#[test]
fn a_runtime_in_the_program_is_replaced() {
    let setting = Setting::new();
    let of_13 = "OWN int cudaLogsCurrent(void *out, unsigned flags) { return 35; }\n";
    let (head, rest) = OWN_RUNTIME.split_at(OWN_RUNTIME.find("int main").unwrap());
    std::fs::write(setting.folder.path().join("own12.c"), OWN_RUNTIME).unwrap();
    std::fs::write(setting.folder.path().join("own13.c"), [head, of_13, rest].concat()).unwrap();
    for (source, strip, status, printed) in [
        ("own12.c", None, 0, "0 0 0 12\n"),
        ("own13.c", None, 0, "0 0 0 13\n"),
        ("own12.c", Some("-s"), 2, "35 35 35 0\n"),
    ] {
        let mut cc = Command::new("cc");
        cc.current_dir(&setting.folder).args(["-w", "-O0", "-o", "own", source]).args(strip);
        assert!(cc.status().unwrap().success());
        let output = setting.run(&[], &["./own"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), printed, "{}", err(&output));
        assert_eq!(output.status.code(), Some(status), "{}", err(&output));
    }
}

/// Of NVIDIA's own compiler: with the runtime in the program, with the shared one, and as machine code alone, which is
/// what separate compilation ends in.
#[test]
fn programs_of_nvcc_run() {
    let (setting, cuda) = (Setting::new(), nvabi_test::cuda_13());
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/samples");
    for (sample, options) in [
        ("matrixMul", &["-arch=sm_90"][..]),
        ("matrixMul", &["-cudart=shared", "-arch=sm_80"]),
        ("matrixMul", &["-rdc=true", "-arch=sm_80"]),
        ("asyncCopies", &["-gencode=arch=compute_80,code=compute_80"]),
        ("asyncCopies", &["-gencode=arch=compute_90,code=compute_90"]),
    ] {
        let source = format!("{samples}/{sample}.cu");
        let mut nvcc = Command::new(cuda.join("bin/nvcc"));
        nvcc.current_dir(&setting.folder).args(options).args([&*source, "-o", "sample"]);
        let compiled = nvcc.output().unwrap();
        assert!(compiled.status.success(), "{options:?}: {}", err(&compiled));
        let output = setting.run(&["--schedules", "2"], &["./sample"]);
        assert!(output.stdout.ends_with(b"passed\n"), "{options:?}: {}", err(&output));
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", err(&output));
    }
}

/// A program that starts itself anew, which has the launcher's settings as well: with the runtime in it and as a library.
#[test]
fn processes_of_nvcc_share_memory() {
    let (setting, cuda) = (Setting::new(), nvabi_test::cuda_13());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/shim/tests/share_memory.cu");
    for cudart in ["-cudart=static", "-cudart=shared"] {
        let mut nvcc = Command::new(cuda.join("bin/nvcc"));
        nvcc.current_dir(&setting.folder).args(["-arch=sm_80", cudart, source, "-o", "share"]);
        let compiled = nvcc.output().unwrap();
        assert!(compiled.status.success(), "{cudart}: {}", err(&compiled));
        let output = setting.run(&["--global"], &["./share"]);
        let printed = String::from_utf8_lossy(&output.stdout);
        let expected = "own: 201\nclosed again: 1\nsupported: 1 1, sum: 21000, status: 0\n";
        assert_eq!(printed, expected, "{cudart}: {}", err(&output));
        assert_eq!(output.status.code(), Some(0), "{cudart}: {}", err(&output));
    }
}

#[test]
fn devices_reach_each_others_memory() {
    let (setting, cuda) = (Setting::new(), nvabi_test::cuda_13());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/shim/tests/peers.cu");
    let mut nvcc = Command::new(cuda.join("bin/nvcc"));
    nvcc.current_dir(&setting.folder).args(["-arch=sm_80", source, "-o", "peers"]);
    let compiled = nvcc.output().unwrap();
    assert!(compiled.status.success(), "{}", err(&compiled));
    let output = setting.run(&["--devices", "2", "--global"], &["./peers"]);
    let expected = "\
of 2: device 0, memory of 0, bus 0
of 2: device 1, memory of 1, bus 1
a thread begins with 0
can access: 0 1 1
cudaDeviceCanAccessPeer(can, 0, 2): 101
cudaSetDevice(2): 101
cudaDeviceEnablePeerAccess(0, 0): 101
cudaDeviceEnablePeerAccess(2, 0): 101
cudaDeviceEnablePeerAccess(1, 1): 1
cudaDeviceDisablePeerAccess(1): 705
cudaDeviceEnablePeerAccess(1, 0): 0
cudaDeviceEnablePeerAccess(1, 0): 704
cudaDeviceDisablePeerAccess(1): 0
cudaMemcpyPeer(memory[1], 2, memory[0], 0, sizeof value): 101
sums: 2 3 4 5
stream of another device: 400
cudaEventRecord(events[0], streams[1]): 400
used: 16, and after a reset: 0
cudaMemcpy(value, memory[1], sizeof value, cudaMemcpyDeviceToHost): 1
sums: 2 3 4 5
";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", err(&output));
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let output = setting.run(&["--devices", "2"], &["./peers", "refused"]);
    assert!(output.stdout.ends_with(b"cudaDeviceSynchronize(): 700\n"), "{}", err(&output));
    let wanted = "in memory of device 0, which this one may not access";
    assert!(err(&output).contains(wanted), "{}", err(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// Of machine code alone, which calls what the driver has.
const SAYS: &str = "\
#include <cassert>
#include <cstdio>
__global__ void say(int n) {
    printf(\"thread %d of %s\\n\", threadIdx.x, \"two\");
    assert(threadIdx.x < n);
}
int main() {
    say<<<1, 2>>>(2);
    printf(\"%d\\n\", cudaDeviceSynchronize());
    say<<<1, 2>>>(1);
    printf(\"%d\\n\", cudaDeviceSynchronize());
}
";

#[test]
fn machine_code_of_nvcc_says_and_asserts() {
    let (setting, cuda) = (Setting::new(), nvabi_test::cuda_13());
    std::fs::write(setting.folder.path().join("says.cu"), SAYS).unwrap();
    for arch in [
        &["-rdc=true", "-arch=sm_80"][..],
        &["-gencode=arch=compute_80,code=sm_80"],
        &["-gencode=arch=compute_90,code=sm_90"],
    ] {
        let mut nvcc = Command::new(cuda.join("bin/nvcc"));
        nvcc.current_dir(&setting.folder).args(arch).args(["-lineinfo", "says.cu", "-o", "says"]);
        let compiled = nvcc.output().unwrap();
        assert!(compiled.status.success(), "{}", err(&compiled));
        let output = setting.run(&[], &["./says"]);
        let said = String::from_utf8_lossy(&output.stdout);
        let both = "thread 0 of two\nthread 1 of two\n";
        assert_eq!(said, format!("{both}0\n{both}710\n"), "{arch:?}: {}", err(&output));
        assert_eq!(output.status.code(), Some(1), "{arch:?}: {}", err(&output));
        assert!(err(&output).contains("says.cu:5"), "{arch:?}: {}", err(&output));
    }
}

#[test]
fn reports_have_what_every_schedule_found() {
    let setting = Setting::new();
    let options =
        ["--schedules", "3", "--findings", "f.json", "--sarif", "f.sarif", "--junit", "f.xml"];
    let output = setting.run(&options, &["./program", "racing.ptx", "0"]);
    // What the program prints is that of one run.
    assert_eq!((output.status.code(), output.stdout), (Some(1), b"done\n".to_vec()));
    let json: serde_json::Value = serde_json::from_str(&setting.read("f.json")).unwrap();
    let schedules = ["in-order", "random:1", "random:2"];
    assert_eq!(json["findings"][0]["schedules"], serde_json::json!(schedules));
    assert_eq!(json["findings"].as_array().unwrap().len(), 1);
    assert_eq!(json["findings"][0]["count"], 3);
    assert_eq!(json["runs"][2], serde_json::json!({ "schedule": "random:2", "status": 0 }));
    let sarif: serde_json::Value = serde_json::from_str(&setting.read("f.sarif")).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!((&result["level"], &result["ruleId"]), (&"error".into(), &"race".into()));
    assert_eq!(place["artifactLocation"]["uri"], "a%20b/k.cu");
    assert_eq!(place["region"]["startLine"], 3);
    let junit = setting.read("f.xml");
    assert!(junit.contains("<testsuites tests=\"3\" failures=\"3\">"), "{junit}");
    assert!(junit.contains("name=\"random:2\">"), "{junit}");
    // Its tests fail where the command does.
    for (fail_on, failures) in [("error", "0"), ("undefined", "1")] {
        let options = ["--fail-on", fail_on, "--junit", "f.xml"];
        setting.run(&options, &["./program", "same.ptx", "0"]);
        let junit = setting.read("f.xml");
        assert!(junit.contains(&format!("tests=\"1\" failures=\"{failures}\"")), "{junit}");
        assert!(junit.contains("race (undefined): kernel k"), "{junit}");
    }
    let output = setting.run(&["--junit", "no/such/f.xml"], &["./program", "racing.ptx", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("no/such/f.xml: No such file"), "{}", err(&output));
}

#[test]
fn suppressions_cover_what_is_known_and_are_told_when_they_do_not() {
    let setting = Setting::new();
    let racing = ["./program", "racing.ptx", "0"];
    let output = setting.run(&["--write-suppressions", "known"], &racing);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(setting.read("known").lines().last(), Some("race\tk\ta b/k.cu:3"));
    let known = ["--suppressions", "known", "--junit", "f.xml"];
    let output = setting.run(&known, &racing);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("0 errors, 0 undefined, 0 notes, 1 suppressed"));
    assert!(setting.read("f.xml").contains("failures=\"0\""));
    for (line, covers) in [
        ("race\tk\t*\n", true),
        ("*\tk*\ta*/k.cu:3\n", true),
        ("race\tk\ta b/k.cu:4\n", false),
        ("deadlock\tk\t*\n", false),
        ("race\tother\t*\n", false),
    ] {
        std::fs::write(setting.folder.path().join("known"), line).unwrap();
        let output = setting.run(&["--suppressions", "known"], &racing);
        assert_eq!(output.status.code(), Some(i32::from(!covers)), "{line}");
        let unused = err(&output).contains("known:1: this suppression covers nothing");
        assert_eq!(unused, !covers, "{line}");
    }
    std::fs::write(setting.folder.path().join("known"), "# known\n\nrace k\n").unwrap();
    let output = setting.run(&["--suppressions", "known"], &racing);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("known:3: expected kind, kernel and place"), "{}", err(&output));
}
