#![no_main]

#[path = "../checks/calls.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::strace(bytes);
});
