//! The tools that the tests run, where they are.
#![allow(dead_code)]

pub(crate) mod regions;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_test::{Need, skip};

pub(crate) const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels");
const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/include");

/// The plugin with a pass in it, which takes LLVM 19.
pub(crate) fn plugin() -> PathBuf {
    let exe = env::current_exe().expect("the test's own path");
    // Where cargo builds for tests; what lies one folder higher may be older.
    let folder = exe.parent().expect("target/PROFILE/deps");
    let plugin = folder.join("libnvabi_pass.so");
    let has_pass = fs::read(&plugin)
        .is_ok_and(|bytes| bytes.windows(20).any(|window| window == b"llvmGetPassPluginInf"));
    for tool in ["opt-19", "clang++-19"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skip(Need::Llvm, format!("{tool} does not run"));
        }
    }
    if !has_pass {
        skip(Need::Llvm, "the pass is not built");
    }
    plugin
}

/// CUDA as clang wants it, from CUDA_PATH or fetched.
pub(crate) fn toolkit() -> PathBuf {
    nvabi_test::cuda(&["include/cuda.h"])
}

/// Compiles device code with the pass and the options of it that are given; without options, without it.
pub(crate) fn clang(plugin: &Path, source: &Path, pass: Option<&str>, flags: &[&str]) -> Output {
    let mut command = Command::new("clang++-19");
    command.args([
        "-x",
        "cuda",
        "--cuda-device-only",
        "-nocudainc",
        "-nocudalib",
        "-Wno-unknown-cuda-version",
    ]);
    command.args(["-Xclang", "-target-feature", "-Xclang", "+ptx75"]);
    command.arg("-I").arg(INCLUDE).arg("-I").arg(KERNELS).args(["-S", "-o", "-"]);
    if !flags.iter().any(|flag| flag.starts_with("--cuda-gpu-arch")) {
        command.arg("--cuda-gpu-arch=sm_80");
    }
    if let Some(options) = pass {
        let mut flag = std::ffi::OsString::from("-fpass-plugin=");
        flag.push(plugin);
        command.arg(flag).env("NVABI_TRACE_PASS", options);
    }
    command.args(flags).arg(source).output().expect("clang runs")
}

/// As `clang`, for what has to compile.
pub(crate) fn compile(plugin: &Path, source: &Path, pass: Option<&str>, flags: &[&str]) -> String {
    let output = clang(plugin, source, pass, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("PTX is text")
}

/// A row of a site table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) key: u64,
    pub(crate) file: String,
    pub(crate) function: String,
    pub(crate) inlined: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) ordinal: u16,
    pub(crate) kind: u8,
    pub(crate) bytes: u8,
}

/// Reads the table that the pass embeds.
pub(crate) fn sites(table: &[u8]) -> Vec<Site> {
    let word = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().expect("four bytes"));
    let count = word(4) as usize;
    let strings = &table[16 + 32 * count..];
    assert_eq!(strings.len(), word(8) as usize, "the size of the strings");
    let text = |offset: u32| {
        let bytes = strings[offset as usize..].split(|byte| *byte == 0).next().expect("an end");
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    };
    (0..count)
        .map(|index| {
            let at = 16 + 32 * index;
            Site {
                key: u64::from(word(at)) | u64::from(word(at + 4)) << 32,
                file: text(word(at + 8)),
                function: text(word(at + 12)),
                inlined: text(word(at + 16)),
                line: word(at + 20),
                column: word(at + 24),
                ordinal: word(at + 28) as u16,
                kind: table[at + 30],
                bytes: table[at + 31],
            }
        })
        .collect()
}

/// The site table in PTX.
pub(crate) fn sites_of_ptx(ptx: &str) -> Vec<Site> {
    sites(&constant(ptx, "__nvabi_sites"))
}

/// What a variable in PTX is initialised with.
pub(crate) fn constant(ptx: &str, name: &str) -> Vec<u8> {
    let start = ptx.find(&format!("{name}[")).unwrap_or_else(|| panic!("no {name}"));
    let line = &ptx[start..start + ptx[start..].find(';').expect("its end")];
    let list = line.split('{').nth(1).expect("its bytes").trim_end_matches('}');
    let mut bytes: Vec<u8> =
        list.split(',').map(|byte| byte.trim().parse().expect("a byte")).collect();
    let size = line.split(['[', ']']).nth(1).expect("its size").parse().expect("a number");
    bytes.resize(size, 0);
    bytes
}
