//! `nvabi add`, as a person runs it, on a copy of the lock.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

#[path = "../../pipeline/tests/common/at_hand.rs"]
mod at_hand;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_pipeline::lock;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_test::REQUIRE;

test_main!();

/// The first tags of a branch.
const TAGS: [&str; 3] = ["595.44.02", "595.44.03", "595.45.04"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

/// Every file below a folder with its text.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => pending.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_owned();
                    drop(found.insert(name, fs::read_to_string(&path).unwrap()));
                }
            }
        }
    }
    found
}

/// A copy of the tree that `add` works in, without some tags.
fn without(is_gone: impl Fn(&Tag) -> bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&root().join("abi-specs"), &folder.path().join("abi-specs"));
    let lock_folder = folder.path().join("abi-specs/lock");
    let (mut locked, report) = lock::read(&lock_folder).unwrap();
    assert!(report.diagnostics.is_empty());
    let tags: Vec<Tag> = locked.tags.iter().map(|locked| locked.tag.clone()).collect();
    for tag in tags.iter().filter(|tag| is_gone(tag)) {
        locked.remove(tag);
    }
    lock::write(&lock_folder, &locked).unwrap();
    folder
}

fn older() -> tempfile::TempDir {
    without(|tag| TAGS.contains(&tag.as_str()))
}

/// Branches from 595 on.
fn is_new(branch: &str) -> bool {
    branch.parse().is_ok_and(|branch: u32| branch >= 595)
}

fn add(folder: &Path, tag: &str) -> Output {
    add_with(folder, tag, &[])
}

fn add_with(folder: &Path, tag: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nvabi"))
        .args(["add", tag, "--no-snapshots"])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The job that has the headers lets no test pass by for want of them.
#[test]
fn ci_requires_the_headers() {
    let job = fs::read_to_string(root().join(".github/workflows/headers.yml")).unwrap();
    assert!(job.contains(&format!("{REQUIRE}: headers,all-headers,clang")), "{job}");
}

/// What stays in the tree when tags are taken out and added again: every byte.
#[test]
fn adding_again_gives_the_same_bytes() {
    at_hand::clang();
    at_hand::headers_of(&TAGS);
    let folder = older();
    let lock_folder = folder.path().join("abi-specs/lock");
    let whole = files(&root().join("abi-specs/lock"));
    assert_ne!(files(&lock_folder), whole);
    for tag in TAGS {
        let output = add(folder.path(), tag);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(
            String::from_utf8_lossy(&output.stdout).starts_with(&format!("# Add driver {tag}"))
        );
    }
    let output = add_with(folder.path(), TAGS[0], &["--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["tag"], &told["again"]), (&TAGS[0].into(), &true.into()));
    assert!(told["pull_request"].as_str().unwrap().starts_with("# Add driver"));
    let again = files(&lock_folder);
    let differ: Vec<_> =
        whole.iter().filter(|(path, text)| again.get(*path) != Some(text)).collect();
    assert!(differ.is_empty() && again.len() == whole.len(), "{:?}", differ.first());
}

/// A branch that no spec knows gets one, its feature and its re-export; what the parent's items do
/// not fit is for a person to decide, and the exit status says so.
#[test]
fn a_new_branch_gets_a_spec() {
    at_hand::clang();
    at_hand::headers_of(&TAGS);
    let folder = without(|tag| is_new(tag.branch()));
    let (specs, source) = (folder.path().join("abi-specs"), folder.path().join("src"));
    let names = Spec::load_family(&specs, "").unwrap();
    let new: Vec<String> =
        names.into_iter().map(|spec| spec.driver).filter(|driver| is_new(driver)).collect();
    for branch in &new {
        fs::remove_file(specs.join(format!("driver-{branch}.toml"))).unwrap();
    }
    fs::create_dir(&source).unwrap();
    for file in ["Cargo.toml", "src/lib.rs"] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let old = text.lines().filter(|line| !new.iter().any(|branch| line.contains(branch)));
        let old: String = old.map(|line| format!("{line}\n")).collect();
        fs::write(folder.path().join(file), old).unwrap();
    }
    let output = add(folder.path(), TAGS[0]);
    let (told, text) = (
        String::from_utf8_lossy(&output.stderr).into_owned(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(text.contains("## New branch") && text.contains("## To decide"), "{text}");
    let again = format!(
        "`snapshots/` is as it was before {0}. Settle it, then run `nvabi add {0}` again.",
        TAGS[0]
    );
    assert!(text.ends_with(&format!("{again}\n")), "{text}");
    let spec = fs::read_to_string(specs.join("driver-595.toml")).unwrap();
    assert!(spec.contains("driver = \"595\"\nparent = \"driver-590\"\n"), "{spec}");
    // A chip's header went with this branch.
    assert!(spec.contains("\nfault-gp100 = { removed = true }\n"), "{spec}");
    assert!(told.contains("surface fault-gp100: 595.44.02 has none of its headers"), "{told}");
    let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("\ndriver-595 = []\n"), "{manifest}");
    assert!(manifest.contains("\"driver-595\",\n"), "{manifest}");
    let library = fs::read_to_string(folder.path().join("src/lib.rs")).unwrap();
    assert!(library.contains("#[cfg(feature = \"driver-595\")]\npub use abi::r595;\n"));
}

#[test]
fn an_unknown_tag_changes_nothing() {
    at_hand::clang();
    nvabi_test::headers();
    let folder = older();
    let before = files(folder.path());
    // Of a branch that there is, and of one that there is not.
    for tag in ["595.99", "999.1"] {
        let output = add(folder.path(), tag);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(&format!("there is no tag {tag}")), "{told}");
        assert_eq!(files(folder.path()), before);
    }
}

/// A new branch whose folder has none of the headers, as the modules' sources alone, is no driver.
#[test]
fn a_folder_without_the_headers_changes_nothing() {
    at_hand::clang();
    let folder = older();
    fs::create_dir_all(folder.path().join("nvidia-999.1/common/inc")).unwrap();
    fs::write(folder.path().join("nvidia-999.1/common/inc/nv.h"), "").unwrap();
    let before = files(folder.path());
    let output = add_with(folder.path(), "999.1", &["--headers", "nvidia-999.1"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("999.1 has none of the headers that driver-"), "{told}");
    assert_eq!(files(folder.path()), before);
}
