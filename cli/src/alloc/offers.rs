//! What devices offer, from files.

use std::fs;
use std::path::Path;

use nvabi_devmem::Offer;
use nvabi_pipeline::diagnostic::{Diagnostic, Report};

/// A file holds one offer, or a list of them.
enum File {
    One(Offer),
    Many(Vec<Offer>),
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
            let help = r#"an offer is {"use": {"device": "gpu", "operation": "render"}, "sets": [{"constraints": [{"name": "pitch-alignment", "value": 64}], "capabilities": [{"vendor": 0, "name": 0}]}]}"#;
            Err(Diagnostic::error("alloc-offers", message).help(help).into())
        }
    }
}

/// By the first character, so that the error is about what was meant, with its line and column.
fn parse(text: &str) -> serde_json::Result<File> {
    match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map(File::Many),
        false => serde_json::from_str(text).map(File::One),
    }
}
