//! The example of `nvabi trace` as its README has it: compile, record twice, compare.
#![cfg(feature = "cli")]

use std::env;
use std::path::Path;
use std::process::Command;

#[test]
fn the_answer_names_the_line_of_the_bug() {
    let exe = env::current_exe().expect("the test's own path");
    let libraries = exe.parent().expect("target/PROFILE/deps");
    let mut command =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/diverge/run.sh"));
    command.env("NVABI", env!("CARGO_BIN_EXE_nvabi"));
    for (variable, name) in [
        ("NVABI_PASS", "libnvabi_pass.so"),
        ("NVABI_RECORDER", "libnvabi_record.so"),
        ("NVABI_EMU", "libnvabi_cuda.so"),
    ] {
        let library = libraries.join(name);
        if !library.is_file() {
            println!("skipped: {name} is built with the whole workspace alone");
            return;
        }
        command.env(variable, library);
    }
    if env::var_os("CUDA_PATH").is_none() {
        let toolkit = libraries.ancestors().nth(2).expect("target").join("cuda-toolkit");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/toolkit.sh");
        let fetched = Command::new(script).arg(&toolkit).output();
        if !fetched.is_ok_and(|output| output.status.success()) {
            println!("skipped: no CUDA in CUDA_PATH, and cuda/toolkit.sh could not fetch it");
            return;
        }
        command.env("CUDA_PATH", toolkit);
    }
    let output = command.output().expect("the script runs");
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if out.contains("skipped:") || error.contains("skipped:") {
        println!("{out}{error}");
        return;
    }
    assert!(output.status.success(), "{out}{error}");
    assert!(out.contains("collide.cu:26:13 in walk"), "{out}");
    // What the program prints is what it prints without a recorder.
    assert!(
        out.contains("128 particles, 1667 steps") && out.contains("128 particles, 1709 steps"),
        "{out}"
    );
}
