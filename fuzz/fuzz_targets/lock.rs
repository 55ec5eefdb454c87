#![no_main]

#[path = "../checks/facts.rs"]
#[allow(dead_code)]
mod checks;

// Threads for one file take longer than reading it.
libfuzzer_sys::fuzz_target!(
    init: nvabi_pipeline::parallel::set_threads(std::num::NonZero::<usize>::MIN),
    |bytes: &[u8]| {
        checks::lock(bytes);
    }
);
