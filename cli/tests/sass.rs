//! `nvabi sass` with the cubins that ptxas makes of our kernels.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

test_main!();

fn sass(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.arg("sass").args(args).arg(file).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The kernel `softmax` and others of our own, for sm_80.
fn cubin(folder: &Path) -> PathBuf {
    let ptxas = nvabi_test::cuda(&["bin/ptxas"]).join("bin/ptxas");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/kernels/ptx/classic.ptx");
    let made = folder.join("classic.cubin");
    let mut command = Command::new(ptxas);
    command.args(["-arch=sm_80", "-lineinfo"]).arg(source).arg("-o").arg(&made);
    assert!(command.status().unwrap().success());
    made
}

#[test]
fn a_function_is_printed_with_its_blocks_and_control_information() {
    let folder = tempfile::tempdir().unwrap();
    let cubin = cubin(folder.path());
    let output = sass(&["--function", "softmax"], &cubin);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(out.starts_with("softmax (sm_80)\n"), "{out}");
    assert!(out.contains("S2R ") && out.contains("EXIT") && out.contains(" write 0 "), "{out}");
    // A block that is jumped to has its address before it.
    let target = out.lines().find_map(|line| line.split_once("BRA 0x")).unwrap().1;
    let target = target.split_whitespace().next().unwrap();
    assert!(out.contains(&format!("\n{:0>4}:\n", target)), "{target} in {out}");
    assert!(text(&output.stderr).contains("functions: 1, unknown: 0"), "{}", text(&output.stderr));
    let json = sass(&["--json"], &cubin);
    let functions: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let functions = functions.as_array().unwrap();
    assert!(functions.len() > 5, "{} functions", functions.len());
    for function in functions {
        let instructions = function["instructions"].as_array().unwrap();
        assert!(instructions.len() > 8 && instructions.iter().all(|it| it["text"].is_string()));
    }
}

#[test]
fn ptx_and_lines_are_beside_the_code() {
    let folder = tempfile::tempdir().unwrap();
    let cubin = cubin(folder.path());
    let out = text(&sass(&["--function", "softmax"], &cubin).stdout);
    // The lines of -lineinfo.
    let place = out.lines().find_map(|line| line.trim().split_once("classic.cu:")).unwrap();
    assert!(place.1.parse::<u32>().unwrap() > 0, "{out}");
    let ptx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/kernels/ptx/classic.ptx");
    let both = folder.path().join("both.fatbin");
    let fatbinary = nvabi_test::cuda(&["bin/fatbinary-13"]).join("bin/fatbinary-13");
    let mut command = Command::new(fatbinary);
    command.arg(format!("--create={}", both.display())).arg("--compress=false");
    command.arg(format!("--image3=kind=ptx,sm=80,file={}", ptx.display()));
    command.arg(format!("--image3=kind=elf,sm=80,file={}", cubin.display()));
    assert!(command.status().unwrap().success());
    let out = text(&sass(&["--ptx", "--function", "softmax"], &both).stdout);
    let (head, code) = out.split_once("    0000  ").unwrap();
    assert!(head.starts_with("softmax (sm_80)\n  | .visible .entry softmax("), "{head}");
    assert!(head.contains("  | }") && head.matches(".entry").count() == 1, "{head}");
    assert!(!code.contains(".entry"), "{code}");
    // Behind a branch that may not be taken another block begins.
    let lines: Vec<&str> = code.lines().collect();
    let branch = lines.iter().position(|line| line.contains(" @") && line.contains("BRA")).unwrap();
    assert!(lines[branch + 1].ends_with(':'), "{} in {code}", lines[branch + 1]);
    let json = sass(&["--json", "--ptx", "--function", "softmax"], &both);
    let functions: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let ptx = functions[0]["ptx"].as_str().unwrap();
    assert!(ptx.contains("softmax") && ptx.ends_with('}'), "{ptx}");
    let json = sass(&["--json", "--function", "softmax"], &both);
    let functions: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(functions[0]["ptx"].is_null());
}

/// Code whose wait for a result is taken out is a finding; as ptxas made it there is none.
#[test]
fn a_wait_that_is_missing_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let cubin = cubin(folder.path());
    let clean = sass(&["--check"], &cubin);
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean.stdout));
    assert!(clean.stdout.is_empty() && text(&clean.stderr).contains("findings: 0"));
    let json = sass(&["--json", "--function", "softmax"], &cubin);
    let functions: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let instructions = functions[0]["instructions"].as_array().unwrap();
    let waits = |it: &&serde_json::Value| it["control"].as_str().unwrap().starts_with("wait 0");
    let word = instructions.iter().find(waits).unwrap()["word"].as_str().unwrap();
    let word = u128::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    // The mask of scoreboards that it waits for begins at bit 116.
    let without = (word & !(1 << 116)).to_le_bytes();
    let mut bytes = fs::read(&cubin).unwrap();
    let at = bytes.windows(16).position(|it| it == word.to_le_bytes()).unwrap();
    bytes[at..at + 16].copy_from_slice(&without);
    fs::write(&cubin, bytes).unwrap();
    let patched = sass(&["--check"], &cubin);
    let out = text(&patched.stdout);
    assert_eq!(patched.status.code(), Some(1), "{out}");
    assert!(out.contains("without a wait for scoreboard 0"), "{out}");
}

#[test]
fn what_is_no_code_is_an_error_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    fs::write(&file, "no code").unwrap();
    for (args, file) in [(&[][..], &file), (&["--check"], &folder.path().join("absent"))] {
        let output = sass(args, file);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{told}");
        assert!(told.contains(&file.display().to_string()), "{told}");
    }
    let cubin = cubin(folder.path());
    for args in [["--arch", "sm_90"], ["--function", "nosuch"]] {
        let output = sass(&args, &cubin);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("the file has code for sm_80"), "{told}");
    }
}
