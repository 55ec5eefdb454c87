//! Names the library by the version of its interface, which the header says: `libnvabi_alloc.so.1`.

use std::error::Error;
use std::path::Path;

const HEADER: &str = "../include/nvabi-alloc.h";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={HEADER}");
    let header = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(HEADER))?;
    let mut words = header.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let version = words.find_map(|words| match words.as_slice() {
        ["#define", "NVABI_ALLOC_VERSION", number] => number.parse::<u32>().ok(),
        _ => None,
    });
    let version = version.ok_or("nvabi-alloc.h has no NVABI_ALLOC_VERSION")?;
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvabi_alloc.so.{version}");
    Ok(())
}
