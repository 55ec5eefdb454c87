//! The lock against the driver's headers, as far as there are any.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

#[path = "../../pipeline/tests/common/at_hand.rs"]
mod at_hand;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use nvabi_pipeline::lock::{self, Fact};
use nvabi_pipeline::tag::Tag;

test_main!();

/// What is altered: the parameters of every control command, which no driver lacks.
const RECORD: &str = "NVOS54_PARAMETERS";

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs")
}

/// The oldest and the newest tag that there are headers of: `nvabi verify` reads all where asked to.
fn subjects() -> (PathBuf, Vec<Tag>) {
    at_hand::clang();
    let locked = lock::read_tags(&specs().join("lock")).unwrap();
    let locked: Vec<Tag> = locked.into_iter().map(|locked| locked.tag).collect();
    let (headers, mut there) = at_hand::locked_headers(&locked);
    there.drain(1..there.len().max(2) - 1);
    (headers, there)
}

fn verify(specs: &Path, headers: &Path, tags: &[Tag]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.arg("verify").arg("--specs").arg(specs).arg("--headers").arg(headers);
    command.args(tags.iter().map(Tag::as_str)).output().unwrap()
}

#[test]
fn the_lock_is_what_the_headers_say() {
    let (headers, tags) = subjects();
    let output = verify(&specs(), &headers, &tags);
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{tags:?}: {text}");
}

/// One offset of one record is wrong, under checksums that are right.
#[test]
fn a_lock_that_lies_is_found_out() {
    let (headers, tags) = subjects();
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(specs()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let (mut locked, report) = lock::read(&specs().join("lock")).unwrap();
    assert!(report.diagnostics.is_empty(), "{report}");
    let mut altered = 0;
    let items = locked.headers.values_mut().flat_map(|header| header.items.iter_mut());
    for (_, history) in items.filter(|((_, name), _)| name == RECORD) {
        for placed in history.iter_mut().filter_map(|state| state.value.as_mut()) {
            if let Fact::Record { fields, .. } = Arc::make_mut(&mut placed.fact) {
                Arc::make_mut(fields)[0].offset += 4;
                altered += 1;
            }
        }
    }
    assert!(altered > 0, "the lock has no {RECORD}");
    lock::write(&folder.path().join("lock"), &locked).unwrap();
    let output = verify(folder.path(), &headers, &tags[..1]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(RECORD) && text.contains("offset is 4 in the lock, but 0"), "{text}");
}
