//! The other tests of this program, in a virtual machine that has the devices.
//!
//! It takes the kernel that `cli/tests/devmem_vm/kernel.sh` put into the target folder, or the one in
//! `NVABI_DEVMEM_KERNEL`; and the GPUs of Mesa that `mesa.sh` put there, or those in `NVABI_DEVMEM_MESA`.

use std::path::{Path, PathBuf};
use std::process::Command;

use nvabi_test::{Need, REQUIRE, skip};

/// Set inside of the machine.
const INSIDE: &str = "NVABI_TEST_VM";

/// A folder of the target folder, or the one that a variable names.
fn folder(variable: &str, name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os(variable) {
        return folder.into();
    }
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(name)
}

/// Whether the machine's virtio GPU can draw, or what is missing.
fn virgl() -> Result<(), String> {
    let says = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    says("xvfb-run", &["--help"])?;
    let qemu = "qemu-system-x86_64";
    for (kind, wanted) in [("-display", "gtk"), ("-device", "virtio-gpu-gl-pci")] {
        if !says(qemu, &[kind, "help"])?.contains(wanted) {
            return Err(format!("{qemu} has no {kind} {wanted}"));
        }
    }
    Ok(())
}

/// What it draws is tested in the machine; without it these tests are missing there, and this one says why.
#[test]
fn the_gpu_of_a_virtual_machine_draws() {
    if std::env::var_os(INSIDE).is_none() {
        virgl().unwrap_or_else(|missing| skip(Need::Virgl, missing));
    }
}

#[test]
fn in_a_virtual_machine() {
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let kernel = folder("NVABI_DEVMEM_KERNEL", "devmem-kernel");
    let mesa = folder("NVABI_DEVMEM_MESA", "devmem-mesa");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devmem_vm/run.sh");
    let mut run = Command::new(&script);
    run.arg(&kernel).arg(std::env::current_exe().unwrap());
    run.args(["--test-threads=1", "--color=never"]).env(INSIDE, "1").env("RUST_BACKTRACE", "0");
    run.env("VM_FILES", format!("nvabi={}", env!("CARGO_BIN_EXE_nvabi")));
    // What the kernel was built with must be there.
    let provides = std::fs::read_to_string(kernel.join("provides")).unwrap_or_default();
    let is_told = !kernel.join("vmlinuz").exists() || !provides.trim().is_empty();
    assert!(is_told, "{} does not say which devices the kernel provides", kernel.display());
    let mut required: Vec<String> =
        provides.split_whitespace().map(|name| format!("device:{name}")).collect();
    if mesa.is_dir() {
        run.env("VM_ROOT", &mesa);
        required.extend(["device:lavapipe".to_owned(), "device:llvmpipe".to_owned()]);
        if virgl().is_ok() {
            run.env("VM_VIRGL", "1");
            required.push("device:virgl".to_owned());
        }
    }
    run.env(REQUIRE, required.join(","));
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        skip(Need::Vm, complaint.trim_start_matches("skipped: "));
    }
    for line in said.lines() {
        println!("in the virtual machine: {line}");
    }
    assert!(output.status.success(), "{}: {complaint}", output.status);
    let ended = said.lines().find(|line| line.starts_with("test result: ok. "));
    assert!(ended.is_some_and(|line| !line.contains(" ok. 0 passed")), "no test has run");
}
