//! The emulator's own recorder, as variables ask for it.

#![allow(clippy::unwrap_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::path::Path;
use std::process::Command;

use nvabi_test::HISTOGRAM;
use nvabi_trace::{Found, Trace};

test_main!();

/// Behind [`HISTOGRAM`]: launches its kernel, forks, and launches it in both processes.
const PROGRAM: &str = r#"
import os
values = bytes(at % 7 for at in range(256))
count(values)
child = os.fork()
count(values)
if child:
    if os.waitpid(child, 0)[1]: sys.exit("the child")
    print(child, flush=True)
"#;

/// What the program prints to stdout and stderr with these variables.
fn run(folder: &Path, variables: &[(&str, &str)]) -> (String, String) {
    let library = std::env::current_exe().unwrap().with_file_name("libnvabi_cuda.so");
    let _ = std::os::unix::fs::symlink(library, folder.join("libcuda.so.1"));
    let ptx = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernels/ptx/classic.ptx");
    let mut command = Command::new("python3");
    command.args(["-c", &[HISTOGRAM, PROGRAM].concat(), ptx]).env("LD_LIBRARY_PATH", folder);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
    (out, error)
}

#[test]
fn a_recorder_without_a_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (_, error) = run(folder.path(), &[("NVABI_EMU_RECORD", "1")]);
    assert!(error.contains("NVABI_RECORD, the trace to write, is not set"), "{error}");
}

#[test]
fn a_trace_keeps_within_its_memory_and_a_forked_process_has_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("small.nvtrace");
    let (out, error) = run(
        folder.path(),
        &[
            ("NVABI_EMU_RECORD", "1"),
            ("NVABI_RECORD", trace.to_str().unwrap()),
            ("NVABI_RECORD_MEMORY", "1000"),
        ],
    );
    assert!(error.contains("histogram: ") && error.contains("did not fit; --memory"), "{error}");
    let beside = folder.path().join(format!("small.nvtrace.{}", out.trim()));
    for (path, launches) in [(trace, 2), (beside, 1)] {
        let trace = Trace::open(&path).unwrap();
        assert!(trace.closed() && trace.damage().is_empty(), "{path:?}");
        assert_eq!(trace.launches().len(), launches, "{path:?}");
        for (number, launch) in trace.launches().iter().enumerate() {
            assert_eq!(launch.order, number as u64);
            assert!(launch.sample_every > 1, "{launch:?}");
            let mut events = 0;
            for found in trace.warps(number) {
                let Found::Warp(warp) = found else { panic!("lost warps") };
                assert_eq!(warp.number() % launch.sample_every, 0);
                events += warp.events().count();
            }
            let most = 1000 / size_of::<nvabi_emu::Event>();
            assert!((1..=most).contains(&events), "{events} of {most}");
        }
    }
}
