//! What holds for any text that people or programs write; the fuzz targets share it.

use nvabi_devmem::{Image, Offer, plan, solve};
use nvabi_emu::Device;
use nvabi_pipeline::lock;
use nvabi_pipeline::spec::Spec;

/// Offers are planned with or explained, and what is said of them has no end only where they have none.
pub(crate) fn offers(bytes: &[u8]) {
    let Ok(offers) = serde_json::from_slice::<Vec<Offer>>(bytes) else { return };
    let written = serde_json::to_vec(&offers).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<Vec<Offer>>(&written).ok().as_ref(), Some(&offers));
    match plan(&offers) {
        Ok(derived) => {
            let image = Image::new(64, 64, nvabi_devmem::Fourcc::new(b"NV12"));
            for set in &derived.sets {
                // A layout, or the reason why there is none.
                let _ = solve(&image, set);
            }
        }
        Err(explanation) => {
            explanation.to_string();
        }
    }
}

/// A spec: its mistakes are told with their places.
pub(crate) fn spec(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let file = ("driver-1".to_owned(), "driver-1.toml".to_owned(), text.to_owned());
    if let Err(report) = Spec::parse_all(&[file]) {
        report.to_string();
    }
}

/// The file of one header in a lock whose list of tags is right.
pub(crate) fn lock(bytes: &[u8]) {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    std::fs::create_dir(folder.path().join("devmem")).expect("a folder");
    let tags = include_str!("../../devmem/abi-specs/lock/tags");
    std::fs::write(folder.path().join("tags"), tags).expect("room");
    std::fs::write(folder.path().join("devmem/nvabi-devmem.h.lock"), bytes).expect("room");
    match lock::read(folder.path()) {
        Ok((_, edited)) => edited.to_string(),
        Err(damaged) => damaged.to_string(),
    };
}

/// PTX: a module, or the line that is wrong.
pub(crate) fn ptx(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // What is declared is allocated: a text of some bytes may ask for gigabytes.
    if text.len() > 1 << 16 {
        return;
    }
    let mut device = Device::new();
    if let Err(error) = device.load(text) {
        assert!(!error.to_string().is_empty());
    }
}
