//! The emulator's libraries, and programs that run with libraries of nvabi's.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::{env, fs, io};

use object::{Object as _, ObjectSymbol as _};
use tempfile::TempDir;

/// A library of the emulator: the variable that names it, its file, and the names under which programs load it.
type Library = (&'static str, &'static str, &'static [&'static str]);

/// libcuda, and libcudart of CUDA 12.
const LIBRARIES: [Library; 2] = [
    ("NVABI_EMU", "libnvabi_cuda.so", &["libcuda.so.1", "libcuda.so"]),
    ("NVABI_EMU_RUNTIME", "libnvabi_cudart.so", &["libcudart.so.12", "libcudart.so"]),
];

/// Those that need not be there: libcudart of CUDA 13, cuBLAS and cuBLASLt of both.
const MORE: [Library; 5] = [
    ("NVABI_EMU_RUNTIME_13", "libnvabi_cudart13.so", &["libcudart.so.13"]),
    ("NVABI_EMU_CUBLAS", "libnvabi_cublas.so", &["libcublas.so.12", "libcublas.so"]),
    ("NVABI_EMU_CUBLAS_13", "libnvabi_cublas13.so", &["libcublas.so.13"]),
    ("NVABI_EMU_CUBLASLT", "libnvabi_cublaslt.so", &["libcublasLt.so.12", "libcublasLt.so"]),
    ("NVABI_EMU_CUBLASLT_13", "libnvabi_cublaslt13.so", &["libcublasLt.so.13"]),
];

/// The emulator under CUDA's names, in a folder that goes when this does.
pub(crate) fn cuda_libraries() -> io::Result<TempDir> {
    let scratch = scratch("emulator")?;
    let is_there = |&(variable, file, _): &Library| {
        env::var_os(variable).is_some() || beside(None, variable, file).is_ok()
    };
    let wanted = LIBRARIES.into_iter().chain(MORE.into_iter().filter(is_there));
    for (variable, file, names) in wanted {
        let library = beside(None, variable, file)?;
        for name in names {
            symlink(&library, scratch.path().join(name))?;
        }
    }
    Ok(scratch)
}

/// The shared library in whose place a program has CUDA's runtime in it, as nvcc links it unless told otherwise, if it
/// names its functions.
pub(crate) fn own_runtime(program: &OsStr) -> Option<&'static str> {
    let file = fs::read(found(program)?).ok()?;
    let file = object::File::parse(&*file).ok()?;
    let defined: HashSet<&str> = file
        .symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    if !defined.contains("cudaMalloc") {
        return None;
    }
    // It is there since CUDA 13. Those of 11 are taken for 12's, which has their functions.
    let is_13 = defined.contains("cudaLogsCurrent");
    Some(if is_13 { "libcudart.so.13" } else { "libcudart.so.12" })
}

/// The file of a program that is named as a shell names it.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A list of paths with one more at its front.
pub(crate) fn before(variable: &str, path: &Path) -> OsString {
    let mut list = path.as_os_str().to_owned();
    if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

/// A library that nvabi needs: as given, else where a variable says, else beside nvabi itself.
pub(crate) fn beside(given: Option<&Path>, variable: &str, name: &str) -> io::Result<PathBuf> {
    let named = given.map(PathBuf::from).or_else(|| env::var_os(variable).map(PathBuf::from));
    let path = match named {
        Some(path) => path,
        None => env::current_exe()?.with_file_name(name),
    };
    // The program may run elsewhere.
    std::path::absolute(&path).and_then(|path| match path.is_file() {
        true => Ok(path),
        false => {
            let message =
                format!("{} not found: build the workspace, or set {variable}", path.display());
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        }
    })
}

/// A folder that goes when this does.
pub(crate) fn scratch(what: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(&format!("nvabi-{what}-")).tempdir()
}

/// As a shell tells it: a signal is 128 and its number.
pub(crate) fn status_number(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(2)
}

pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(u8::try_from(status_number(status)).unwrap_or(2))
}

/// An error with the path that it is about.
pub(crate) fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
