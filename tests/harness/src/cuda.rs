//! Where CUDA's headers and tools are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{Need, skip};

/// The beginning of a Python program, which loads a module that its first argument names and has `count(values)` then: a
/// launch of the module's kernel `histogram` for 256 bytes.
pub const HISTOGRAM: &str = include_str!("histogram.py");

/// The emulator's libraries, and the variables by which `nvabi` is told of them.
pub const EMULATOR: [(&str, &str); 3] = [
    ("NVABI_EMU", "libnvabi_cuda.so"),
    ("NVABI_EMU_RUNTIME", "libnvabi_cudart.so"),
    ("NVABI_EMU_RUNTIME_13", "libnvabi_cudart13.so"),
];

/// Where libraries of the workspace are, which lie beside the test: each with the variable that is to tell of it. Skips
/// the test where one is not built.
pub fn libraries(wanted: &[(&'static str, &str)]) -> Vec<(&'static str, PathBuf)> {
    let exe = env::current_exe().unwrap_or_default();
    let library = |(variable, name): &(&'static str, &str)| {
        let library = exe.with_file_name(name);
        if !library.is_file() {
            let why = format!("{} is built with the whole workspace alone", library.display());
            skip(Need::Workspace, why);
        }
        (*variable, library)
    };
    wanted.iter().map(library).collect()
}

/// The folder of CUDA that has some files, such as `bin/ptxas`: `CUDA_PATH`, or what `cuda/toolkit.sh` fetches
/// into the build folder, once for all tests. Skips the test where there is none.
pub fn cuda(files: &[&str]) -> PathBuf {
    let why = || {
        format!("no {} in CUDA_PATH, and cuda/toolkit.sh could not fetch it", files.join(" and "))
    };
    cuda_if_any(files).unwrap_or_else(|| skip(Need::Cuda, why()))
}

/// As [`cuda`], for tests that go on without it.
pub fn cuda_if_any(files: &[&str]) -> Option<PathBuf> {
    let has_all = |folder: &Path| files.iter().all(|file| folder.join(file).exists());
    let given = env::var_os("CUDA_PATH").map(PathBuf::from).filter(|folder| has_all(folder));
    static FETCHED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let fetched = || FETCHED.get_or_init(|| fetch("toolkit.sh", "cuda-toolkit")).clone();
    given.or_else(|| fetched().filter(|folder| has_all(folder)))
}

/// The folder of CUDA 13 with NVIDIA's own compiler, which `cuda/toolkit13.sh` fetches into the build folder, once for
/// all tests. Skips the test where there is none.
pub fn cuda_13() -> PathBuf {
    static FETCHED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let fetched = FETCHED.get_or_init(|| fetch("toolkit13.sh", "cuda-13")).clone();
    fetched.unwrap_or_else(|| skip(Need::Cuda, "cuda/toolkit13.sh could not fetch nvcc"))
}

/// The folder of programs that others wrote for CUDA, as Python's packages: `NVABI_CUDA_CLIENTS`, or what
/// `cuda/clients.sh` fetches into the build folder, once for all tests. Skips the test where there is none.
pub fn cuda_clients() -> PathBuf {
    static FETCHED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let given = env::var_os("NVABI_CUDA_CLIENTS").map(PathBuf::from);
    let fetched = || FETCHED.get_or_init(|| fetch("clients.sh", "cuda-clients")).clone();
    let why = "nothing in NVABI_CUDA_CLIENTS, and cuda/clients.sh could not fetch it";
    given.or_else(fetched).unwrap_or_else(|| skip(Need::Cuda, why))
}

/// The folder with `libnvrtc.so.12`, which is among [`cuda_clients`].
pub fn nvrtc() -> PathBuf {
    cuda_clients().join("nvidia/cuda_nvrtc/lib")
}

/// What a script of `cuda/` puts into a folder of the build folder.
fn fetch(script: &str, folder: &str) -> Option<PathBuf> {
    // target/PROFILE/deps/TEST
    let exe = env::current_exe().ok()?;
    let to = exe.ancestors().nth(3)?.join(folder);
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../cuda")).join(script);
    Command::new(script).arg(&to).output().ok()?.status.success().then_some(to)
}
