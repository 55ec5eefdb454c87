//! Addresses that programs get.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use nvabi_emu::Device;

/// Set in the runs that the test starts.
const INNER: &str = "NVABI_EMU_TEST_INNER";

#[test]
fn addresses_are_the_same_in_each_run() {
    if std::env::var_os(INNER).is_some() {
        let mut device = Device::new();
        for size in [4, 1 << 10, 1 << 20, 1 << 30, 100] {
            println!("address {:#x}", device.alloc(size).unwrap());
        }
        return;
    }
    let run = || -> Vec<String> {
        let name = "addresses_are_the_same_in_each_run";
        let mut inner = Command::new(std::env::current_exe().unwrap());
        let output = inner.args(["--exact", name, "--nocapture"]).env(INNER, "1").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter_map(|line| Some(line.split_once("address 0x")?.1.to_owned())).collect()
    };
    let first = run();
    assert_eq!(first.len(), 5);
    assert_eq!(first, run());
}
