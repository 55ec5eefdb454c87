//! A client in another language, written as for an Orin.

use std::path::Path;
use std::process::{Command, Stdio};

use nvabi_sim::tegra::{self as sim, Options};
use nvabi_test::{Need, skip};

#[test]
fn a_python_client_copies() {
    let is_there = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        skip(Need::Python, "python3 does not run");
    }
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tegra/copy_client.py");
    let mut command = Command::new("python3");
    match sim::run(command.arg(client).stdout(Stdio::null()), &Options::default()) {
        Ok(outcome) => assert!(outcome.status.success(), "{}", outcome.report),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            skip(Need::Supervise, error);
        }
        Err(error) => panic!("{error}"),
    }
}
