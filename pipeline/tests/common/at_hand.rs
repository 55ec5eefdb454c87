//! What tests read, or are skipped for the lack of.
#![allow(dead_code, unreachable_pub, clippy::panic)]

use std::path::PathBuf;

use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::tag::Tag;
use nvabi_test::{Need, skip};

/// libclang.
#[track_caller]
pub fn clang() -> Clang {
    Clang::load().unwrap_or_else(|why| skip(Need::Clang, format!("no libclang: {}", why.message)))
}

/// Headers of the driver that have all of these tags.
#[track_caller]
pub fn headers_of(tags: &[&str]) -> PathBuf {
    let (path, there) = tags_of_headers();
    match tags.iter().find(|tag| !there.iter().any(|there| there.as_str() == **tag)) {
        Some(tag) => skip(Need::AllHeaders, format!("NVABI_HEADERS has no headers of {tag}")),
        None => path,
    }
}

/// Headers of the driver, and those of their tags that a lock has, in version order.
#[track_caller]
pub fn locked_headers(locked: &[Tag]) -> (PathBuf, Vec<Tag>) {
    let (path, mut there) = tags_of_headers();
    there.retain(|tag| locked.contains(tag));
    if there.is_empty() {
        skip(Need::Headers, "NVABI_HEADERS has no headers of a tag that the lock has");
    }
    (path, there)
}

fn tags_of_headers() -> (PathBuf, Vec<Tag>) {
    let path = nvabi_test::headers();
    let there = Source::open(&path).and_then(|source| source.tags());
    (path, there.unwrap_or_else(|why| panic!("NVABI_HEADERS: {why}")))
}
