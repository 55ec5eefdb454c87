#![no_main]

#[path = "../checks/devmem.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::offers(bytes);
});
