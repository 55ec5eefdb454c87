//! What holds for any bytes that devmem reads; the fuzz targets and the test of their corpus share it.

use nvabi_devmem::wire::{v0, v1};
use nvabi_devmem::{Fourcc, Image, Offer, plan, solve};

/// A set that was read can be written, and is read from that again. Says whether it was one.
pub(crate) fn v0(bytes: &[u8]) -> bool {
    let Ok(set) = v0::read(bytes) else { return false };
    let written = v0::write(&set).expect("what was read can be written");
    assert_eq!(written.len(), bytes.len());
    assert_eq!(v0::read(&written).as_ref(), Ok(&set));
    true
}

/// A message that was read has one way to be written: the bytes that it was read from. Says whether
/// it was one.
pub(crate) fn v1(bytes: &[u8]) -> bool {
    let mut bytes = bytes.to_vec();
    seal(&mut bytes);
    let Ok(message) = v1::read(&bytes) else { return false };
    assert_eq!(v1::write(&message).as_ref(), Ok(&bytes));
    true
}

/// Makes the head right, so that what is behind it is looked at: nobody guesses a checksum.
fn seal(bytes: &mut [u8]) {
    const HEAD: usize = 16;
    if let Some(length) = bytes.len().checked_sub(HEAD) {
        bytes[..8].copy_from_slice(b"nvdm\x01\0\0\0");
        bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes[..12]);
        sum.update(&bytes[HEAD..]);
        bytes[12..HEAD].copy_from_slice(&sum.finalize().to_le_bytes());
    }
}

/// Offers are planned with or explained, and what is said of them has no end only where they have none. Says whether
/// they are offers.
pub(crate) fn offers(bytes: &[u8]) -> bool {
    let Ok(offers) = serde_json::from_slice::<Vec<Offer>>(bytes) else { return false };
    let written = serde_json::to_vec(&offers).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<Vec<Offer>>(&written).ok().as_ref(), Some(&offers));
    match plan(&offers) {
        Ok(derived) => {
            let image = Image::new(64, 64, Fourcc::new(b"NV12"));
            for set in &derived.sets {
                // A layout, or the reason why there is none.
                let _ = solve(&image, set);
            }
        }
        Err(explanation) => {
            explanation.to_string();
        }
    }
    true
}
