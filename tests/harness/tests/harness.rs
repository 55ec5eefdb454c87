//! The harness on itself: this program runs again with a test that lacks something.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::path::Path;
use std::process::{Command, Output};

use nvabi_test::{Case, Need, REQUIRE, skip};

test_main!(vec![Case::new("made::at_run_time", || ())]);

/// Set in the program that this one runs.
const INNER: &str = "NVABI_TEST_INNER";

fn lacks(need: Need) {
    if std::env::var_os(INNER).is_some() {
        skip(need, "there is no such thing");
    }
}

mod inner {
    use nvabi_test::Need;

    #[test]
    fn lacks_a_machine() {
        super::lacks(Need::Vm);
    }

    #[test]
    fn lacks_a_device() {
        super::lacks(Need::Device("vgem"));
    }

    #[test]
    fn lacks_nothing() {}
}

fn inner(arguments: &[&str], require: &str) -> (Output, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments).env(INNER, "1").env(REQUIRE, require).env("RUST_BACKTRACE", "0");
    let output = command.output().unwrap();
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    (output, text)
}

#[test]
fn what_is_lacking_is_counted_by_reason() {
    let (output, text) = inner(&["inner::"], "");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ignored (vm: there is no such thing)\n"), "{text}");
    assert!(text.contains("test result: ok. 1 passed; 0 failed; 2 ignored"), "{text}");
    assert!(text.contains("\nignored 1, vm: there is no such thing\n"), "{text}");
    assert!(text.contains("\nignored 1, device:vgem: there is no such thing\n"), "{text}");
}

#[test]
fn what_is_required_fails_and_says_how_to_get_it() {
    let (output, text) = inner(&["inner::"], "clang, vm");
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("NVABI_REQUIRE lists `vm`, but there is no such thing"), "{text}");
    assert!(text.contains("apt-get install qemu-system-x86"), "{text}");
    assert!(text.contains("1 passed; 1 failed; 1 ignored"), "{text}");
    let (output, text) = inner(&["inner::"], "device:vgem");
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("NVABI_REQUIRE lists `device:vgem`"), "{text}");
}

#[test]
fn a_word_that_nothing_needs_is_refused() {
    let (output, text) = inner(&["inner::lacks_nothing"], "headers,wm");
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("lists `wm`, which no test needs"), "{text}");
}

#[test]
fn one_test_runs_alone() {
    let (_, text) = inner(&["--exact", "inner::lacks_nothing", "--nocapture"], "");
    assert!(text.contains("1 passed; 0 failed; 0 ignored"), "{text}");
    let (_, text) = inner(&["--list"], "");
    for name in ["inner::lacks_nothing", "made::at_run_time", "one_test_runs_alone"] {
        assert!(text.contains(&format!("{name}: test\n")), "{text}");
    }
}

/// A test that prints such a word and returns would count as passed.
#[test]
fn no_test_says_in_a_way_of_its_own_that_it_did_not_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pending = vec![root];
    let mut seen = 0;
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                pending.push(path);
            } else if name.ends_with(".rs") {
                seen += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                for (at, line) in text.lines().enumerate() {
                    let is_word = line.contains(concat!("println!(\"", "skipped"));
                    let place = format!("{}:{}", path.display(), at + 1);
                    assert!(!is_word, "{place}: nvabi_test::skip shows what does not run");
                }
            }
        }
    }
    assert!(seen > 100, "{seen} files");
}
