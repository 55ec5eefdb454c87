//! The simulated Tegra kernel against its rules, through real system calls.
//!
//! Each rule has a test named after it. The test runs itself again as a client under the simulator:
//! what stands in a rule's body is a program for an Orin.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    clippy::undocumented_unsafe_blocks
)]

#[macro_use]
extern crate nvabi_test;

mod address_space;
mod channel;
mod client;
mod ctrl;
mod dispatch;
#[allow(dead_code, reason = "tests of the x86 machine use the rest")]
mod faulting;
mod faults;
mod hostile;
mod lifetimes;
mod limits;
mod nvmap;
mod paths;
mod properties;
mod python;
mod releases;
mod tsg;
mod work;

use std::process::Command;

use nvabi_sim::tegra::{self as sim, Fault, Options, Report};
use nvabi_test::Need;

test_main!();

/// Says to a test that it is the client.
const CLIENT: &str = "NVABI_SIM_CLIENT";

/// What a client exits with whose body has run to its end.
const PASSED: i32 = 42;

/// Runs a test's body as a client under the simulator; returns the report.
pub(crate) fn simulate(name: &str, faults: &[&str], body: fn()) -> Report {
    simulate_on("r36.4", name, faults, body)
}

/// The same, on a release.
pub(crate) fn simulate_on(release: &str, name: &str, faults: &[&str], body: fn()) -> Report {
    if std::env::var_os(CLIENT).is_some() {
        body();
        // So that a client that ran no body is not taken for one that passed.
        std::process::exit(PASSED);
    }
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(CLIENT, "1");
    command.stdout(std::process::Stdio::null());
    let release = release.parse().expect("a release");
    let faults: Vec<Fault> = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
    match sim::run(&mut command, &Options { release, faults, ..Options::default() }) {
        Ok(outcome) => {
            assert_eq!(outcome.status.code(), Some(PASSED), "{}", outcome.report);
            assert_eq!(outcome.report.live_buffers, 0, "memory is left");
            outcome.report
        }
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            nvabi_test::skip(Need::Supervise, error)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Tests whose bodies run as clients.
#[macro_export]
macro_rules! rules {
    ($($name:ident $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::simulate(concat!(module_path!(), "::", stringify!($name)), &[], || $body);
            }
        )*
    };
}

/// Tests whose bodies run as clients and are reported.
#[macro_export]
macro_rules! reported {
    ($($name:ident $body:block gives $code:literal)*) => {
        $(
            #[test]
            fn $name() {
                let name = concat!(module_path!(), "::", stringify!($name));
                let report = $crate::simulate(name, &[], || $body);
                let found = report.diagnostics.iter().any(|d| d.code == $code);
                assert!(found, "no {} in {report}", $code);
            }
        )*
    };
}
