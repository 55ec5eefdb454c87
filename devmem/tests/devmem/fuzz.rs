//! The corpus of the fuzz targets, and what is near to it.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks/devmem.rs"]
mod checks;

use crate::allocations::largest;
use crate::random::Random;

/// Runs a check over a corpus and over each file of it with bytes changed or cut off.
fn run(name: &str, check: fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let (mut files, mut good) = (0, 0);
    for entry in fs::read_dir(folder).expect("a corpus") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
        files += 1;
        good += usize::from(modest(&bytes, check));
        let mut random = Random::new(files);
        for _ in 0..64 {
            let mut near = bytes.clone();
            if let Some(at) = random.below(near.len() as u64 + 1).checked_sub(1) {
                near[at as usize] = random.of(&[0, 1, 0x7f, 0x80, 0xff]);
            }
            near.truncate(random.below(near.len() as u64 * 2 + 1) as usize);
            modest(&near, check);
        }
    }
    println!("{name}: {files} files, {good} of them good");
    assert!(files > 10 && good > 5, "{name}: {files} files, {good} of them good");
}

/// What is read is at most some ten times as large as what it is read from.
fn modest(bytes: &[u8], check: fn(&[u8]) -> bool) -> bool {
    let (good, largest) = largest(|| check(bytes));
    assert!(largest <= 1024 + 16 * bytes.len(), "{largest} bytes at once for {}", bytes.len());
    good
}

#[test]
fn corpus_of_v0() {
    run("v0", checks::v0);
}

#[test]
fn corpus_of_v1() {
    run("v1", checks::v1);
}

#[test]
fn corpus_of_offers() {
    nvabi_test::replay("offers", checks::offers);
}
