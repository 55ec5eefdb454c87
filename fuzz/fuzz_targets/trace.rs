//! Any bytes as a trace, as they are and with the checksums made right: read, and compared with
//! themselves. `cargo +nightly fuzz run trace`.
#![no_main]

#[path = "../checks/trace.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::compared(bytes);
    let mut sealed = bytes.to_vec();
    checks::seal(&mut sealed);
    if sealed != bytes {
        checks::compared(&sealed);
    }
});
