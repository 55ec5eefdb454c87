//! What a machine may lack for the tests that read the driver's headers.
#![allow(dead_code, unreachable_pub)]

use std::env;
use std::path::PathBuf;

/// Where CI has everything, this is set: what is missing there fails.
pub const REQUIRE: &str = "NVABI_REQUIRE_HEADERS";

/// Says why a test is skipped, or fails.
#[track_caller]
pub fn skip(why: &str) {
    assert!(env::var_os(REQUIRE).is_none(), "{REQUIRE} is set, and {why}");
    println!("skipped: {why}");
}

/// The driver's headers, or nothing and a word about it.
#[track_caller]
pub fn headers() -> Option<PathBuf> {
    let named = env::var_os("NVABI_HEADERS").filter(|path| !path.is_empty());
    if named.is_none() {
        skip("NVABI_HEADERS names no driver headers");
    }
    named.map(PathBuf::from)
}
