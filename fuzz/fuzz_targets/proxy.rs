//! Any bytes as a request, and as the number of a call. `cargo +nightly fuzz run proxy`.
#![no_main]

use nvabi::driver::AnyDriver;

#[path = "../proxy.rs"]
mod proxy;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(driver) = AnyDriver::all().last() else { return };
    proxy::request(driver, bytes);
    if let [kind, low, high, seed, ..] = *bytes {
        let number = u16::from_le_bytes([low, high]);
        proxy::call(driver, kind.into(), number.into(), seed.into());
    }
});
