//! Every mistake has its message: one file a mistake in `ui/`, with the expected output beside it.
//! `TRYBUILD=overwrite` writes the outputs anew.

#[macro_use]
extern crate nvabi_test;

test_main!();

/// The text of a message is the compiler's in part, so one toolchain decides.
const PINNED: &str = "rustc 1.95.0 ";

#[test]
fn mistakes_do_not_compile() {
    pinned();
    let cases = trybuild::TestCases::new();
    cases.pass("tests/pass/*.rs");
    cases.compile_fail("tests/ui/*.rs");
}

fn pinned() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = match std::process::Command::new(rustc).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => error.to_string(),
    };
    if !version.starts_with(PINNED) {
        let why = format!("the messages are those of {PINNED}and this is {}", version.trim());
        nvabi_test::skip(nvabi_test::Need::Rust, why);
    }
}
