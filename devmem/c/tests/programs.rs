//! The examples in C, compiled against the installed library as an application is.

#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nvabi_test::{Need, skip};

test_main!();

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Beside the tests, where cargo puts it.
fn library() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "nvabi-devmem-c"])
        .current_dir(root())
        .status()
        .expect("cargo");
    assert!(built.success());
    let test = std::env::current_exe().expect("a path");
    test.ancestors().nth(2).expect("the target folder").join("libnvabi_alloc.so")
}

fn done(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn runs(example: &str, expected: &str) {
    for tool in ["cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skip(Need::Gcc, format!("there is no {tool}"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    done(Command::new(root().join("install.sh")).arg(folder.path()).arg(library()));
    let flags = done(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "nvabi-alloc"])
            .env("PKG_CONFIG_PATH", folder.path().join("lib/pkgconfig")),
    );
    let flags = String::from_utf8(flags.stdout).expect("UTF-8");
    let program = folder.path().join("program");
    let strict = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let source = root().join("examples").join(example);
    // The library is named behind what uses it.
    done(
        Command::new("cc")
            .args(strict)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace()),
    );
    let output = done(
        Command::new(&program)
            .env("LD_LIBRARY_PATH", folder.path().join("lib"))
            .env("NVABI_DEVMEM_PLUGINS", "/nowhere"),
    );
    // Who makes it is the machine's business.
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let said: Vec<&str> =
        said.lines().map(|line| line.split(" by ").next().unwrap_or_default()).collect();
    assert_eq!(said.join("\n"), expected);
}

#[test]
fn a_compositor_allocates() {
    let refused = "-95: none of the wanted modifiers serves all";
    runs("compositor.c", &format!("640x480, modifier 0, 1 plane, stride 2560\n{refused}"));
}

#[test]
fn a_pipeline_negotiates() {
    runs(
        "pipeline.c",
        "NV12: both\n\
         1 modifier, the first is 0\n\
         118784 bytes in 2 planes\n\
         118784 bytes in 2 planes\n\
         118784 bytes in 2 planes\n\
         -22: there is no device nobody\n\
         -22: buffer is null\n\
         -95: cpu does not know rotate-90\n\
         as it is: 1\n\
         -22: 1 words of a detail at 0x0\n\
         -19: there is no such device",
    );
}
