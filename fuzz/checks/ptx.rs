//! What holds for any text as PTX; the fuzz target and the test of its corpus share it.

use nvabi_emu::Device;

/// A module, or the line that is wrong. Says whether it is one.
pub(crate) fn ptx(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // What is declared is allocated: a text of some bytes may ask for gigabytes.
    if text.len() > 1 << 16 {
        return false;
    }
    let loaded = Device::new().load(text).map(drop);
    loaded.map_err(|error| assert!(!error.to_string().is_empty())).is_ok()
}
