//! What the tests over headers share.
#![allow(dead_code, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod at_hand;

pub use at_hand::clang;

use std::path::{Path, PathBuf};

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::model::{Facts, Field, Record, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::tag::Tag;
use nvabi_pipeline::verify::{Read, Reader};

/// The folder of our own headers: `1.1`, `1.2` and `specs`.
pub fn headers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/headers")
}

pub fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

/// The spec of our own headers.
pub fn spec() -> Spec {
    let mut specs = ok(Spec::load_folder(&headers().join("specs")));
    assert_eq!(specs.len(), 1);
    specs.remove(0)
}

/// What reading one tag of our own headers gives.
pub fn read(clang: &Clang, text: &str) -> Read {
    let mut source = Source::open(&headers()).unwrap();
    ok(Reader::new(clang, &mut source).read(&spec(), &tag(text)))
}

/// A lock of the two tags.
pub fn lock(clang: &Clang) -> Lock {
    let mut lock = Lock::default();
    for text in ["1.1", "1.2"] {
        let read = read(clang, text);
        lock.insert(&read.facts, read.headers);
    }
    lock
}

/// The value, or a panic that prints the report as a person would see it.
#[track_caller]
pub fn ok<T>(result: Result<T, Report>) -> T {
    result.unwrap_or_else(|report| panic!("{report}"))
}

/// The report, or a panic where there should have been one.
#[track_caller]
pub fn refused<T>(result: Result<T, impl Into<Report>>) -> Report {
    match result {
        Ok(_) => panic!("it was accepted"),
        Err(report) => report.into(),
    }
}

pub fn surface<'a>(facts: &'a Facts, name: &str) -> &'a Surface {
    facts.surfaces.get(name).unwrap_or_else(|| panic!("no surface {name}"))
}

#[track_caller]
pub fn record<'a>(surface: &'a Surface, name: &str) -> &'a Record {
    surface.records.get(name).unwrap_or_else(|| panic!("no record {name}"))
}

#[track_caller]
pub fn field<'a>(record: &'a Record, name: &str) -> &'a Field {
    record.fields.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no field {name}"))
}

/// Compares with the reviewed text in `snapshots/`.
#[track_caller]
pub fn snapshot(name: &str, text: &str) {
    snapshot_without(name, text, &[]);
}

/// As [`snapshot`], with what differs from run to run replaced: `(text, what stands for it)`.
#[track_caller]
pub fn snapshot_without(name: &str, text: &str, replaced: &[(&str, &str)]) {
    let mut text = text.to_owned();
    for (from, to) in replaced {
        text = text.replace(from, to);
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
