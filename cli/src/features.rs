//! Commands that need a feature of this crate that the build may not have.

#![cfg(not(all(
    feature = "devmem",
    feature = "headers",
    feature = "parquet",
    feature = "sass",
    feature = "trace",
    feature = "tui"
)))]

use nvabi_pipeline::diagnostic::{Diagnostic, Report};

/// The error of a command whose feature is off.
pub(crate) fn missing(feature: &str) -> Report {
    let message =
        format!("this command needs the feature `{feature}`, which this build does not have");
    Diagnostic::error("feature-missing", message)
        .help(format!(
            "install it with `--features {feature}`; in a checkout, `cargo nvabi-all` has every feature"
        ))
        .into()
}
