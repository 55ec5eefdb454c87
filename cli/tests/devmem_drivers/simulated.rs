//! A test of this program that runs on a simulated machine.

use std::process::Command;

use nvabi_test::{Need, skip};

/// Says to a test that it is on the machine.
pub(crate) const INSIDE: &str = "NVABI_TEST_SIMULATED";

/// Runs a test there, to its end and without a diagnostic.
pub(crate) fn simulated(machine: &[&str], test: &str, variables: &[(&str, &str)]) {
    let output = Command::new(env!("CARGO_BIN_EXE_nvabi"))
        .args(machine)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .envs(variables.iter().copied())
        .output();
    // In a virtual machine it is not where it was built.
    let Ok(output) = output else { skip(Need::Workspace, "the command is not there") };
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.is_empty() && ["seccomp", "does not permit"].iter().any(|it| complaint.contains(it)) {
        skip(Need::Supervise, complaint.trim());
    }
    assert!(output.status.success(), "{machine:?}: {said}{complaint}");
    assert!(said.contains("the client is done"), "{machine:?}: {said}{complaint}");
    assert!(complaint.contains("0 diagnostics"), "{machine:?}: {complaint}");
}
