//! The simulated x86 driver against its rules, through real system calls.
//!
//! The rules are programs. All of them run as clients of `nvabi rm sim`, once for each of several drivers,
//! by changing one flag: the same binary finds the layouts of the driver that the machine says it has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    clippy::undocumented_unsafe_blocks
)]

#[macro_use]
extern crate nvabi_test;

mod alloc;
mod channel;
mod client;
mod control;
mod dma_buf;
mod doorbell;
mod event;
mod frontend;
mod launch;
mod limits;
mod mapping;
mod methods;
mod mig;
mod names;
mod pages;
mod paths;
mod peers;
mod profile;
mod ranges;
mod reach;
mod rebind;
mod recorded;
mod report;
mod space;
mod uvm;

use std::path::PathBuf;
use std::process::Command;

use nvabi::driver::AnyDriver;

test_main!();

/// Says to a test that it is the client.
const CLIENT: &str = "NVABI_SIM_CLIENT";

/// What a client exits with whose body has run to its end.
const PASSED: i32 = 42;

/// Runs a test's body as a client of a driver, with more arguments of the simulator; returns its report.
pub(crate) fn simulate(name: &str, tag: &str, args: &[&str], body: fn()) -> serde_json::Value {
    if std::env::var_os(CLIENT).is_some() {
        body();
        // So that a client that ran no body is not taken for one that passed.
        std::process::exit(PASSED);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let report: PathBuf = folder.path().join("report.json");
    let name = name.split_once("::").map_or(name, |(_, name)| name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.args(["rm", "sim", "--tag", tag, "--report"]).arg(&report).args(args).arg("--");
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(CLIENT, "1");
    command.env("NVABI_SIM_TAG", tag);
    let output = command.output().expect("nvabi runs");
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("does not permit") {
        nvabi_test::skip(nvabi_test::Need::Supervise, told.trim());
    }
    assert_eq!(output.status.code(), Some(PASSED), "{tag}: {told}");
    let report = std::fs::read_to_string(report).expect("a report");
    serde_json::from_str(&report).expect("JSON")
}

/// The codes of the diagnostics in a report, and their texts.
pub(crate) fn diagnostics(report: &serde_json::Value) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all = report["diagnostics"].as_array().cloned().unwrap_or_default();
    all.iter().map(|it| (text(&it["code"]), text(&it["text"]))).collect()
}

/// Every rule in a process of its own, so that none sees what another left.
fn run_all() {
    let tag = std::env::var("NVABI_SIM_TAG").expect("a tag");
    assert_eq!(client::driver().tag(), tag, "the driver that the machine says it has");
    let all = [
        alloc::RULES,
        channel::RULES,
        control::RULES,
        dma_buf::RULES,
        doorbell::RULES,
        event::RULES,
        frontend::RULES,
        limits::RULES,
        mapping::RULES,
        methods::RULES,
        names::RULES,
        pages::RULES,
        paths::RULES,
        ranges::RULES,
        reach::RULES,
        rebind::RULES,
        space::RULES,
        uvm::RULES,
    ];
    let failed: Vec<&str> =
        all.concat().iter().filter(|(_, rule)| !passes_in_child(rule)).map(|it| it.0).collect();
    assert!(failed.is_empty(), "{tag}: {}", failed.join(", "));
}

/// Seconds that a program has: one that waits for ever fails.
const MOST_SECONDS: u32 = 120;

/// Whether a program ends well in a process of its own.
pub(crate) fn passes_in_child(rule: &dyn Fn()) -> bool {
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(MOST_SECONDS);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(rule));
                libc::_exit(if done.is_ok() { PASSED } else { 1 })
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM {
                    eprintln!("it has not ended in {MOST_SECONDS} s");
                }
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == PASSED
            }
        }
    }
}

/// The rules hold for a driver.
macro_rules! drivers {
    ($($name:ident $tag:literal)*) => {
        $(
            #[test]
            fn $name() {
                simulate(concat!(module_path!(), "::", stringify!($name)), $tag, &[], run_all);
            }
        )*
    };
}

drivers! {
    rules_hold_for_535 "535.43.02"
    rules_hold_for_550 "550.163.01"
    rules_hold_for_570 "570.86.15"
    rules_hold_for_595 "595.45.04"
}

/// And for the newest of every other branch of this build.
#[test]
fn rules_hold_for_every_branch() {
    let all = AnyDriver::all();
    let is_newest = |(at, driver): &(usize, &AnyDriver)| {
        all.get(at + 1).is_none_or(|next| next.branch() != driver.branch())
    };
    let newest = all.iter().enumerate().filter(is_newest).map(|(_, driver)| driver.tag());
    let tested = ["535.", "550.", "570.", "595."];
    for tag in newest.filter(|tag| !tested.iter().any(|branch| tag.starts_with(branch))) {
        simulate("rm_sim::rules_hold_for_every_branch", tag, &[], run_all);
    }
}
