//! Surfaces of several chips, whose headers have one name with several values.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::fs;
use std::path::Path;

use common::{clang, ok, refused, surface, tag};
use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::sweep::sweep;
use nvabi_pipeline::verify::Reader;

test_main!();

const OLD: &str = r#"
driver = "1"
targets = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]

[surface.fault-one]
headers = ["one/fault.h"]
suffix = "ONE"

[surface.fault-two]
headers = ["two/fault.h"]
suffix = "TWO"
"#;

const NEW: &str = r#"
driver = "2"
parent = "driver-1"

[surface]
fault-one = { removed = true }
"#;

fn parse(texts: &[(&str, &str)]) -> Result<Vec<Spec>, Report> {
    let files = texts
        .iter()
        .map(|(name, text)| ((*name).to_owned(), format!("specs/{name}.toml"), (*text).to_owned()));
    Spec::parse_all(&files.collect::<Vec<_>>())
}

fn header(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Two tags of each driver; the second driver has no headers of the first chip. On the second target a value differs.
fn drivers() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fault = |ce: u32| {
        format!(
            "#define NVT_FAULT_ID_CE {ce}\n#define NVT_FAULT_TYPE 4:0\n\
             #ifdef __aarch64__\n#define NVT_FAULT_PAGES 16\n#else\n#define NVT_FAULT_PAGES 1\n#endif\n"
        )
    };
    for tag in ["1.1", "1.2"] {
        header(folder.path(), &format!("{tag}/one/fault.h"), &fault(7));
    }
    for tag in ["1.1", "1.2", "2.1"] {
        header(folder.path(), &format!("{tag}/two/fault.h"), &fault(9));
    }
    folder
}

#[test]
fn names_end_in_the_chip() {
    let clang = clang();
    let folder = drivers();
    let specs = ok(parse(&[("driver-1", OLD), ("driver-2", NEW)]));
    let mut source = Source::open(folder.path()).unwrap();
    let mut reader = Reader::new(&clang, &mut source);
    let read = ok(reader.read(&specs[0], &tag("1.1")));
    for (chip, suffix, value) in [("one", "ONE", 7), ("two", "TWO", 9)] {
        let found = surface(&read.facts, &format!("fault-{chip}"));
        assert_eq!(found.constants[&format!("NVT_FAULT_ID_CE_{suffix}")].value, value);
        assert!(!found.constants.contains_key("NVT_FAULT_ID_CE"), "{:?}", found.constants);
        assert_eq!(found.bit_ranges[&format!("NVT_FAULT_TYPE_{suffix}")].high, 4);
        // What another target has otherwise has the same names.
        let other = surface(&read.facts, &format!("fault-{chip}@aarch64-unknown-linux-gnu"));
        assert_eq!(other.constants[&format!("NVT_FAULT_PAGES_{suffix}")].value, 16);
    }
    let read = ok(reader.read(&specs[1], &tag("2.1")));
    let names: Vec<&str> = read.facts.surfaces.keys().map(String::as_str).collect();
    assert_eq!(names, ["fault-two", "fault-two@aarch64-unknown-linux-gnu"]);
}

/// What is taken from the lock of a tag for the next one has the same names as what is read.
#[test]
fn a_tag_is_the_same_beside_another() {
    let clang = clang();
    let folder = drivers();
    let specs = ok(parse(&[("driver-1", OLD)]));
    let mut source = Source::open(folder.path()).unwrap();
    let mut reader = Reader::new(&clang, &mut source);
    let mut alone = Lock::default();
    for text in ["1.1", "1.2"] {
        let read = ok(reader.read(&specs[0], &tag(text)));
        alone.insert(&read.facts, read.headers);
    }
    let mut beside = alone.clone();
    beside.remove(&tag("1.2"));
    ok(sweep(&mut beside, folder.path(), &specs, &[tag("1.2")], |_| {}));
    assert_eq!(beside, alone);
}

#[test]
fn only_what_a_parent_has_is_removed() {
    let report =
        refused(parse(&[("driver-1", OLD), ("driver-2", &NEW.replace("fault-one", "fault-six"))]));
    let text = report.to_string();
    assert!(text.contains("surface `fault-six` is removed, but no parent has it"), "{text}");
    assert!(text.contains("specs/driver-2.toml:6:"), "{text}");
}
