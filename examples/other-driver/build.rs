//! The DRM headers of this machine to `OUT_DIR/drm.rs`.

use std::env;
use std::path::{Path, PathBuf};

use nvabi_pipeline::build::Build;

/// Where distributions install them: the kernel's own, libdrm's copy, and those for cross-compiling.
/// Any will do: they are the same for every 64-bit machine.
const USUAL: [&str; 4] = [
    "/usr/include/drm",
    "/usr/include/libdrm",
    "/usr/x86_64-linux-gnu/include/drm",
    "/usr/aarch64-linux-gnu/include/drm",
];

fn main() {
    println!("cargo::rerun-if-env-changed=DRM_HEADERS");
    match headers() {
        Some(folder) => Build::new("abi-specs").headers(folder, "1.4").output("drm.rs").run(),
        None => {
            eprintln!("error: no folder with drm.h among {}", USUAL.join(", "));
            eprintln!(
                "  = help: install linux-libc-dev, kernel-headers or libdrm-dev, or set DRM_HEADERS"
            );
            std::process::exit(1);
        }
    }
}

/// The folder that `DRM_HEADERS` names, or the first usual one that holds `drm.h`.
fn headers() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("DRM_HEADERS").filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    USUAL.iter().map(Path::new).find(|folder| folder.join("drm.h").is_file()).map(Path::to_owned)
}
