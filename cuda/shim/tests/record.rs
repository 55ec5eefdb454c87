//! The emulator's own recorder, as variables ask for it.

#![allow(clippy::unwrap_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::path::Path;
use std::process::Command;

use nvabi_trace::{Found, Trace};

test_main!();

/// A program that launches a kernel of a module, forks, and launches it in both processes.
const PROGRAM: &str = r#"
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def made(kind, name, *args):
    value = kind()
    if getattr(cuda, name)(ctypes.byref(value), *args): sys.exit(name)
    return value
cuda.cuInit(0)
made(ctypes.c_void_p, "cuCtxCreate_v2", 0, 0)
module = made(ctypes.c_void_p, "cuModuleLoadData", open(sys.argv[1], "rb").read() + b"\0")
kernel = made(ctypes.c_void_p, "cuModuleGetFunction", module, b"histogram")
data, bins = made(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(256)), made(ctypes.c_uint64, "cuMemAlloc_v2", ctypes.c_size_t(1024))
cuda.cuMemcpyHtoD_v2(data, bytes(at % 7 for at in range(256)), ctypes.c_size_t(256))
cuda.cuMemsetD8_v2(bins, 0, ctypes.c_size_t(1024))
held = [data, bins, ctypes.c_int(256)]
args = (ctypes.c_void_p * 3)(*[ctypes.cast(ctypes.byref(arg), ctypes.c_void_p) for arg in held])
def launch():
    if cuda.cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, None, args, None): sys.exit("cuLaunchKernel")
launch()
child = os.fork()
launch()
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
    command.args(["-c", PROGRAM, ptx]).env("LD_LIBRARY_PATH", folder);
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
