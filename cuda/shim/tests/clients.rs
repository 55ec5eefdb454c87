//! Programs that others wrote, which `cuda/clients.sh` fetches, on the emulator.

#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

use std::path::Path;
use std::process::{Command, Output};

test_main!();

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Runs a script of `cuda/clients` with the emulator's libraries.
fn run(script: &str, set: &[(&str, &str)]) -> Output {
    let clients = nvabi_test::cuda_clients();
    let cuda = nvabi_test::cuda(&["include/cuda.h"]);
    let folder = tempfile::tempdir().unwrap();
    let built = std::env::current_exe().unwrap();
    for (name, library) in [
        ("libcuda.so.1", "libnvabi_cuda.so"),
        ("libcuda.so", "libnvabi_cuda.so"),
        ("libcudart.so.12", "libnvabi_cudart.so"),
    ] {
        let library = built.with_file_name(library);
        std::os::unix::fs::symlink(library, folder.path().join(name)).unwrap();
    }
    let libraries = [folder.path().to_path_buf(), cuda.join("nvvm/lib64"), nvabi_test::nvrtc()];
    Command::new("python3")
        .arg(Path::new(ROOT).join("clients").join(script))
        .env("PYTHONPATH", &clients)
        .env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap())
        .env("CUDA_HOME", &cuda)
        .env("CUDA_PATH", &cuda)
        .env("NUMBA_CUDA_DRIVER", folder.path().join("libcuda.so.1"))
        // What tinygrad has compiled before is of no use here.
        .env("CACHELEVEL", "0")
        .envs(set.iter().copied())
        .output()
        .unwrap()
}

fn succeeds(script: &str, set: &[(&str, &str)], last: &str) -> String {
    let output = run(script, set);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.trim_end().ends_with(last), "{script}: {out}{err}");
    err.into_owned()
}

#[test]
fn numba_computes() {
    succeeds("numba_kernels.py", &[], "numba: all right");
}

/// As PTX, and as machine code of the ptxas that it has with it.
#[test]
fn triton_computes() {
    let cache = tempfile::tempdir().unwrap();
    let set = [("TRITON_CACHE_DIR", cache.path().to_str().unwrap())];
    let err = succeeds("triton_kernels.py", &set, "triton 3.5.1: 12 launches");
    assert!(!err.contains("nvabi-emu"), "{err}");
}

#[test]
fn tinygrad_computes_by_nvrtc_and_by_its_own_ptx() {
    for set in [&[("CUDA", "1")][..], &[("CUDA", "1"), ("PTX", "1")]] {
        let err = succeeds("tinygrad_ops.py", set, "tinygrad: 14 operations");
        // Loads that NVRTC widens beyond the end are no findings.
        assert!(!err.contains("out of bounds"), "{err}");
    }
}
