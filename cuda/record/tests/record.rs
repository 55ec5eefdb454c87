//! What the recorder does to a program, and what it writes, with a simulated driver.
#![allow(clippy::expect_used, clippy::panic)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_trace::{Found, Trace};

struct Setting {
    folder: tempfile::TempDir,
    recorder: PathBuf,
}

impl Setting {
    /// Compiles the driver and the program.
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Self {
        let exe = env::current_exe().expect("the test's own path");
        let recorder = exe.parent().expect("target/PROFILE/deps").join("libnvabi_record.so");
        let folder = tempfile::tempdir().expect("a folder");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver");
        let cc = |source: &str, to: &str, flags: &[&str]| {
            let mut command = Command::new("cc");
            command.arg(sources.join(source)).arg("-o").arg(folder.path().join(to)).args(flags);
            let output = command.current_dir(&folder).output().expect("cc, which Rust links with");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let library = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        cc("driver.c", "libcuda.so.1", &[&library, options].concat());
        cc("program.c", "program", &["-L.", "-l:libcuda.so.1"]);
        Self { folder, recorder }
    }

    fn run(&self, set: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.folder.path().join("program"));
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("LD_PRELOAD", &self.recorder);
        command.env("NVABI_RECORD", self.file()).env("NVABI_RECORD_CAPACITY", "16");
        command.envs(set.iter().copied()).output().expect("the program runs")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("out.nvtrace")
    }
}

/// The program says and does what it does without a recorder.
fn unchanged(output: &Output) {
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, "status 0, out 5\nstatus 0, out 5\n");
    assert_eq!(output.status.code(), Some(3));
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn launches_are_written_with_their_sites() {
    let setting = Setting::new();
    // Written as they end, or all at the end of the program; a function, or the kernel of a library.
    for set in [&[][..], &[("SLOW", "1")][..], &[("LIBRARY", "1")][..]] {
        let _ = std::fs::remove_file(setting.file());
        let output = setting.run(set);
        unchanged(&output);
        let trace = Trace::open(setting.file()).expect("a trace");
        assert!(trace.closed() && trace.damage().is_empty());
        assert_eq!(trace.launches().len(), 2);
        let launch = &trace.launches()[1];
        assert_eq!((launch.kernel.as_str(), launch.order, launch.arch), ("run", 1, 86));
        assert_eq!((launch.grid, launch.block, launch.warps), ([1; 3], [64, 1, 1], 2));
        let hash = launch.module_hash;
        assert_eq!((hash[0], hash[1], hash[2], hash[31]), (0xca, 0xfe, 0, 0x42));
        let site = trace.site(1, 0).expect("a site");
        assert_eq!((site.key, site.file.as_str(), site.line), (42, "k.cu", 7));
        let mut warps = trace.warps(1).map(|found| match found {
            Found::Warp(warp) => warp,
            other => panic!("{other:?}"),
        });
        let first = warps.next().expect("a warp").events();
        let first: Vec<_> = first.map(|event| event.expect("an event")).collect();
        let first: Vec<_> =
            first.iter().map(|event| (event.direction, event.mask, event.ballot)).collect();
        assert_eq!(first, [(1, u32::MAX, Some(u32::MAX)), (1, u32::MAX, Some(0x11))]);
        let second = warps.next().expect("a warp");
        assert_eq!((second.len(), second.dropped()), (2 + 13, 6));
        assert!(
            stderr_text(&output).contains("run: 6 words of events did not fit; --capacity"),
            "{}",
            stderr_text(&output)
        );
    }
}

#[test]
fn a_window_records_its_launches_alone() {
    let setting = Setting::new();
    let output = setting.run(&[("NVABI_RECORD_LAUNCHES", "1..")]);
    unchanged(&output);
    let trace = Trace::open(setting.file()).expect("a trace");
    assert_eq!(trace.launches().iter().map(|launch| launch.order).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_launch_that_is_not_recorded_waits_for_the_regions_of_one_that_is() {
    let setting = Setting::new();
    let set = [("SLOW", "1"), ("WAITS", "1"), ("NVABI_RECORD_LAUNCHES", "0..1")];
    let output = setting.run(&set);
    unchanged(&output);
    assert_eq!(stderr_text(&output).matches("waits").count(), 1, "{}", stderr_text(&output));
}

#[test]
fn a_kernel_goes_by_its_name_in_the_source_too() {
    let setting = Setting::new();
    for (glob, fits) in [("walk", true), ("_Z4walk*", true), ("wal?", true), ("alk", false)] {
        let output = setting.run(&[("NAME", "_Z4walkPiS_"), ("NVABI_RECORD_KERNELS", glob)]);
        unchanged(&output);
        assert_eq!(setting.file().exists(), fits, "{glob}");
        let _ = std::fs::remove_file(setting.file());
    }
}

#[test]
fn a_call_that_fails_is_named_and_the_program_goes_on() {
    let setting = Setting::new();
    for (call, message) in [
        ("cuMemAlloc_v2", "run: not recorded: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2)"),
        ("cuMemcpyHtoDAsync_v2", "run: not recorded: cuMemcpyHtoDAsync failed"),
        ("cuMemcpyDtoHAsync_v2", "a kernel is not recorded: cuMemcpyDtoHAsync failed"),
        ("cuFuncGetModule", "a kernel is not recorded: cuFuncGetModule failed"),
    ] {
        let output = setting.run(&[("FAIL", call)]);
        unchanged(&output);
        let stderr = stderr_text(&output);
        assert!(stderr.contains(&format!("nvabi: {message}")), "{stderr}");
        assert_eq!(stderr.matches("nvabi:").count(), 1, "said once: {stderr}");
    }
}

#[test]
fn a_kernel_that_went_wrong_is_told_from_a_call_that_failed() {
    let setting = Setting::new();
    let output = setting.run(&[("FAIL", "cuMemsetD8Async"), ("STATUS", "700")]);
    unchanged(&output);
    let stderr = stderr_text(&output);
    assert!(stderr.contains("run: not recorded: a kernel failed: CUDA_ERROR (700)"), "{stderr}");
}

#[test]
fn a_launch_that_faults_is_recorded_where_memory_survives() {
    // Of a GPU, what came before the fault is all.
    let setting = Setting::new();
    let output = setting.run(&[("FAULT", "2")]);
    let stderr = stderr_text(&output);
    assert!(stderr.contains("run: not recorded: a kernel failed: CUDA_ERROR (700)"), "{stderr}");
    assert_eq!(Trace::open(setting.file()).expect("a trace").launches().len(), 1);

    let setting = Setting::with(&["-DEMULATOR"]);
    let output = setting.run(&[("FAULT", "2")]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = stderr_text(&output);
    assert!(
        stderr.contains("run: recorded up to where a kernel failed: CUDA_ERROR (700)"),
        "{stderr}"
    );
    let trace = Trace::open(setting.file()).expect("a trace");
    // Regions are used again: nothing of the launch before it is taken for this one's.
    let events = |launch: usize| -> Vec<(u64, u64)> {
        let warps = trace.warps(launch).map(|found| match found {
            Found::Warp(warp) => (warp.len(), warp.dropped()),
            other => panic!("{other:?}"),
        });
        warps.collect()
    };
    assert_eq!(events(0), [(2, 0), (15, 6)]);
    // The warp that did not come to its end would have had more.
    assert_eq!(events(1), [(2, 0), (1, 1)]);
}

#[test]
fn the_program_sees_its_own_errors() {
    let setting = Setting::new();
    let output = setting.run(&[("FAIL", "cuLaunchKernel")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "status 2, out 0\nstatus 2, out 0\n");
    assert_eq!(stderr_text(&output), "");
}

#[test]
fn launches_into_graphs_are_refused() {
    let setting = Setting::new();
    let output = setting.run(&[("CAPTURING", "1")]);
    unchanged(&output);
    assert_eq!(
        stderr_text(&output),
        "nvabi: run: launched into a graph: graphs are not recorded\n"
    );
    assert!(!setting.file().exists());
}

#[test]
fn a_mistake_in_the_settings_is_said() {
    let setting = Setting::new();
    let output = setting.run(&[("NVABI_RECORD_LAUNCHES", "few")]);
    unchanged(&output);
    assert_eq!(stderr_text(&output), "nvabi: NVABI_RECORD_LAUNCHES=few: not a range FROM..TO\n");
}

#[test]
fn without_a_file_nothing_is_done() {
    let setting = Setting::new();
    let mut command = Command::new(setting.folder.path().join("program"));
    command.env("LD_LIBRARY_PATH", setting.folder.path()).env("LD_PRELOAD", &setting.recorder);
    let output = command.env("FAIL", "cuFuncGetModule").output().expect("the program runs");
    unchanged(&output);
    assert_eq!(stderr_text(&output), "");
}
