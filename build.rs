//! Specs and lock to `OUT_DIR/abi.rs`; the work is done by `nvabi-pipeline`.

use std::env;

fn main() {
    let enabled = env::vars().filter_map(|(name, _)| feature(&name));
    nvabi_pipeline::build::Build::new("abi-specs")
        .drivers(enabled)
        .nvabi("crate")
        .full(env::var_os("CARGO_FEATURE_FULL").is_some())
        .zerocopy(env::var_os("CARGO_FEATURE_ZEROCOPY").is_some())
        .run();
}

/// `CARGO_FEATURE_DRIVER_550` turns on the spec `driver-550`.
fn feature(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("CARGO_FEATURE_")?;
    name.starts_with("DRIVER_").then(|| name.to_lowercase().replace('_', "-"))
}
