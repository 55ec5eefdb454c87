//! What the command writes is the same with one thread and with several.
#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

#[path = "../../pipeline/tests/common/at_hand.rs"]
mod at_hand;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_pipeline::lock;

test_main!();

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Compares what one thread and three make of it.
#[track_caller]
fn both<T: PartialEq>(run: impl Fn(&str) -> T) {
    // The values are megabytes: they are not printed.
    assert!(run("1") == run("3"), "one thread and three differ");
}

fn nvabi(threads: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    let output =
        command.args(["--threads", threads]).args(args).current_dir(root()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {told}");
    output
}

/// Every file below a folder, by its path in there.
fn files(folder: &Path, within: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = within.join(path.file_name().unwrap());
        match path.is_dir() {
            true => found.extend(files(&path, &name)),
            false => drop(found.insert(name, fs::read(&path).unwrap())),
        }
    }
    found
}

/// What `write` leaves in an empty folder.
fn written(write: impl Fn(&Path)) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    files(folder.path(), Path::new(""))
}

/// Specs without their lock.
fn copy_specs(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

fn check_lock(specs: &Path, headers: &Path, tags: &[&str]) {
    at_hand::clang();
    both(|threads| {
        written(|folder| {
            copy_specs(specs, folder);
            let places = ["lock", "--specs", folder.to_str().unwrap(), "--headers"];
            let args = [&places[..], &[headers.to_str().unwrap()], tags].concat();
            nvabi(threads, &args);
        })
    });
}

#[test]
fn a_lock_of_our_headers() {
    let own = root().join("tests/headers");
    check_lock(&own.join("specs"), &own, &["1.1", "1.2"]);
}

#[test]
fn a_lock_of_the_drivers_headers() {
    let tags = ["550.40.07", "550.54.14", "550.90.07", "570.86.15"];
    check_lock(&root().join("abi-specs"), &at_hand::headers_of(&tags), &tags);
}

#[test]
fn a_diff() {
    both(|threads| nvabi(threads, &["diff", "550.40.07", "570.86.15", "--all"]).stdout);
}

#[test]
fn an_atlas() {
    // Of a few tags: the whole takes its time.
    let few = tempfile::tempdir().unwrap();
    copy_specs(&root().join("abi-specs"), few.path());
    let (mut locked, _) = lock::read(&root().join("abi-specs/lock")).unwrap();
    let tags: Vec<_> = locked.tags.iter().map(|locked| locked.tag.clone()).collect();
    for tag in tags.iter().filter(|tag| !tag.as_str().starts_with("550.4")) {
        locked.remove(tag);
    }
    lock::write(&few.path().join("lock"), &locked).unwrap();
    let specs = few.path().to_str().unwrap();
    both(|threads| {
        written(|folder| {
            nvabi(threads, &["atlas", "--specs", specs, "--out", folder.to_str().unwrap()]);
        })
    });
}
