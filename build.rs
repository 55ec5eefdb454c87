//! Specs and locks to `abi.rs` and `tegra.rs` in `OUT_DIR`; the work is done by `nvabi-pipeline`.

use std::env;

use nvabi_pipeline::build::Build;

fn main() {
    // What calls the driver needs a driver's types.
    println!("cargo::rustc-check-cfg=cfg(any_driver)");
    if env::vars().any(|(name, _)| name.starts_with("CARGO_FEATURE_DRIVER_")) {
        println!("cargo::rustc-cfg=any_driver");
    }
    emit(Build::new("abi-specs"), "DRIVER_");
    emit(Build::new("abi-specs").family("tegra").output("tegra.rs"), "TEGRA_R");
}

/// Emits the specs whose features begin so: `CARGO_FEATURE_DRIVER_550` turns on `driver-550`.
fn emit(build: Build, kind: &str) {
    let enabled = env::vars().filter_map(|(name, _)| {
        let name = name.strip_prefix("CARGO_FEATURE_")?;
        name.starts_with(kind).then(|| name.to_lowercase().replace('_', "-"))
    });
    build
        .drivers(enabled)
        .nvabi("crate")
        .full(env::var_os("CARGO_FEATURE_FULL").is_some())
        .zerocopy(env::var_os("CARGO_FEATURE_ZEROCOPY").is_some())
        .run();
}
