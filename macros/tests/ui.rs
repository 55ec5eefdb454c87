//! Every mistake has its message: one file a mistake in `ui/`, with the expected output beside it.
//! `TRYBUILD=overwrite` writes the outputs anew.

/// The text of a message is the compiler's in part, so one toolchain decides.
const PINNED: &str = "rustc 1.95.0 ";

#[test]
fn mistakes_do_not_compile() {
    if !pinned() {
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.pass("tests/pass/*.rs");
    cases.compile_fail("tests/ui/*.rs");
}

fn pinned() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = match std::process::Command::new(rustc).arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => error.to_string(),
    };
    let pinned = version.starts_with(PINNED);
    if !pinned {
        println!("skipped: the messages are those of {PINNED}and this is {}", version.trim());
    }
    pinned
}
