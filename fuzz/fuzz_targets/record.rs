//! Any bytes as a record of `nvabi sniff`, as they are and with the checksums made right.
//! `cargo +nightly fuzz run record`.
#![no_main]

#[path = "../checks/calls.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::record(bytes);
    let mut sealed = bytes.to_vec();
    checks::seal(&mut sealed);
    if sealed != bytes {
        checks::record(&sealed);
    }
});
