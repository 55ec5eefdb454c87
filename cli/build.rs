//! Packs specs and locks into `specs.pack` in `OUT_DIR`: the command carries them, so that it works
//! without the checkout that it was built from.

use std::path::Path;
use std::{env, fs, io};

use nvabi_pipeline::text_folder::{TextFolder, pack};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=abi-specs");
    let packed = pack(&TextFolder::from(Path::new("abi-specs")), is_read)?;
    let folder = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(Path::new(&folder).join("specs.pack"), packed)
}

/// A spec, or a file of a lock; what else lies there is nobody's business.
fn is_read(path: &str) -> bool {
    match path.split_once('/') {
        None => path.ends_with(".toml"),
        Some((folder, path)) => {
            folder.starts_with("lock") && (path == "tags" || path.ends_with(".lock"))
        }
    }
}
