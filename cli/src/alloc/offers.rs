//! What devices offer, from files.

use std::fs;
use std::path::Path;

use nvabi_devmem::Offer;
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use serde::Deserialize;
use serde::de::Error as _;

/// A file holds one offer, a list of them, or a list with the version of the format.
enum File {
    One(Offer),
    Many(Vec<Offer>),
}

/// The version of the format, which `docs/devmem.md` describes.
const VERSION: u32 = 1;

/// A list with its version. Fields that are not known are errors, and named.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Versioned {
    version: u32,
    offers: Vec<Offer>,
}

/// The offers of a file.
pub(super) fn read(path: &Path) -> Result<Vec<Offer>, Report> {
    let text = fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Diagnostic::error("alloc-unreadable", message)
    })?;
    match parse(&text) {
        Ok(File::One(offer)) => Ok(vec![offer]),
        Ok(File::Many(offers)) => Ok(offers),
        Err(error) => {
            let message = format!("{} holds no offers: {error}", path.display());
            let help = r#"an offer is {"use": {"device": "gpu", "operation": "render"}, "sets": [{"constraints": [{"name": "pitch-alignment", "value": 64}], "capabilities": ["LINEAR"]}]}"#;
            Err(Diagnostic::error("alloc-offers", message).help(help).into())
        }
    }
}

/// By the first character, so that the error is about what was meant, with its line and column.
fn parse(text: &str) -> serde_json::Result<File> {
    match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map(File::Many),
        false if !has_version(text) => serde_json::from_str(text).map(File::One),
        false => match serde_json::from_str(text)? {
            Versioned { version: VERSION, offers } => Ok(File::Many(offers)),
            Versioned { version, .. } => Err(serde_json::Error::custom(format!(
                "version {version}, and this reads version {VERSION}"
            ))),
        },
    }
}

fn has_version(text: &str) -> bool {
    let object = serde_json::from_str::<serde_json::Value>(text);
    object.is_ok_and(|object| object.get("version").is_some())
}
