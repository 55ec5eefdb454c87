//! Clients in another language, written as for an Orin.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use nvabi_sim::tegra::{self as sim, Options, Report};
use nvabi_test::{Need, skip};

#[test]
fn a_python_client_copies() {
    run("copy_client.py", &[]);
}

#[test]
fn a_python_client_launches_kernels_of_a_cubin() {
    let cuda = nvabi_test::cuda(&["bin/ptxas"]);
    let folder = tempfile::tempdir().unwrap();
    let (ptx, cubin) = (folder.path().join("classic.ptx"), folder.path().join("classic.cubin"));
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/kernels/ptx/classic.ptx");
    let text = std::fs::read_to_string(kernels).unwrap();
    std::fs::write(&ptx, text.replace(".target sm_80", ".target sm_87")).unwrap();
    let mut ptxas = Command::new(cuda.join("bin/ptxas"));
    ptxas.arg("-arch=sm_87").arg(&ptx).arg("-o").arg(&cubin).stderr(Stdio::piped());
    let output = nvabi_sim::spawn(&mut ptxas).unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = run("launch_client.py", &[cubin.as_os_str()]);
    let codes: Vec<_> = report.diagnostics.iter().map(|diagnostic| diagnostic.code).collect();
    assert_eq!(codes, ["window-too-high", "window-too-high", "kernel-error"], "{report}");
    let text = &report.diagnostics[2].text;
    assert!(text.contains("1 bytes at 0x12345000, where nothing is allocated"), "{text}");
}

/// Runs a client, which fails where something is not as it should be.
fn run(client: &str, args: &[&OsStr]) -> Report {
    let mut version = Command::new("python3");
    version.arg("--version").stdout(Stdio::null());
    let is_there = nvabi_sim::spawn(&mut version).and_then(|mut child| child.wait());
    if !is_there.is_ok_and(|status| status.success()) {
        skip(Need::Python, "python3 does not run");
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tegra").join(client);
    let mut command = Command::new("python3");
    command.arg(client).args(args).env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::null());
    match sim::run(&mut command, &Options::default()) {
        Ok(outcome) => {
            assert!(outcome.status.success(), "{}", outcome.report);
            outcome.report
        }
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            skip(Need::Supervise, error);
        }
        Err(error) => panic!("{error}"),
    }
}
