//! The records' lock against their header.

use std::path::Path;

use nvabi_pipeline::build::Build;

/// The emitted code without its comments: they name lines of the header.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect()
}

#[test]
fn the_lock_is_what_the_header_says() {
    if let Err(error) = nvabi_pipeline::extract::Clang::load() {
        nvabi_test::skip(nvabi_test::Need::Clang, format!("no libclang: {error}"));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = Build::new(root.join("abi-specs")).verify(false);
    let locked = build.generate().unwrap();
    let live = build.headers(root, "2.0").generate().unwrap();
    assert!(code(&locked).contains("nvabi_trace_chunk"));
    assert_eq!(
        code(&locked),
        code(&live),
        "lock it anew: ln -s $PWD/trace DIR/2.0 && nvabi lock 2.0 --specs trace/abi-specs --headers DIR"
    );
}
