//! tinygrad's own device for NVIDIA's driver, unmodified, on simulated GPUs: with its own types and with those that
//! `nvabi emit` writes it makes the same calls with the same bytes, as `nvabi sniff` sees them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop where it stands"
)]

#[macro_use]
extern crate nvabi_test;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_test::{Need, skip};
use regex_lite::Regex;
use tempfile::TempDir;

test_main!();

/// The tags that tinygrad's modules were made of, and the number in a module's name.
const MODULES: [(&str, &str); 2] = [("570.86.16", "570"), ("580.105.08", "580")];

/// What `open.py` says of an RTX 3090.
const COPIED: &str = "copied: sm_86\n";

fn tinygrad() -> PathBuf {
    let folder = std::env::var_os("NVABI_TINYGRAD").filter(|folder| !folder.is_empty());
    let Some(folder) = folder else { skip(Need::Tinygrad, "NVABI_TINYGRAD names no folder") };
    if Command::new("python3").arg("--version").output().is_err() {
        skip(Need::Python, "python3 does not run");
    }
    folder.into()
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    let output =
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(args).output();
    let output = output.unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("does not permit") {
        skip(Need::Supervise, complaint.trim());
    }
    output
}

/// The same, of what must succeed.
fn nvabi(args: &[&str]) -> Output {
    let output = run(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}\n{complaint}", output.status);
    output
}

/// What tinygrad says, and the calls that it makes, without what differs from run to run: times, thread ids and
/// addresses of memory.
fn calls(tag: &str, folder: &Path, module: Option<(&Path, &str)>) -> (String, Vec<String>) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/open.py");
    let tinygrad = tinygrad();
    let out = folder.join("calls");
    let out = out.to_str().unwrap();
    let nvabi_path = env!("CARGO_BIN_EXE_nvabi");
    let mut args = vec!["rm", "sim", "--tag", tag, "--gpu", "rtx3090", "--", nvabi_path];
    args.extend(["sniff", "--full", "--out", out, "--", "python3", script]);
    args.extend([tinygrad.to_str().unwrap(), "1"]);
    if let Some((path, number)) = module {
        args.extend([path.to_str().unwrap(), number]);
    }
    let said = String::from_utf8_lossy(&run(&args).stdout).into_owned();
    let before = Regex::new(r"^\s*[0-9.]+ +[0-9]+ +").unwrap();
    let took = Regex::new(r" +[0-9.]+(µs|ms|s)( |$)").unwrap();
    let address = Regex::new(r"0x[57][0-9a-f]{11}\b").unwrap();
    let text = fs::read_to_string(out).unwrap();
    let line = |line: &str| {
        let line = before.replace(line, "");
        let line = took.replace(&line, " ");
        address.replace_all(&line, "ADDRESS").into_owned()
    };
    (said, text.lines().map(line).collect())
}

fn emitted(tag: &str, folder: &Path) -> PathBuf {
    let output = nvabi(&["emit", "--lang", "python", "--tag", tag, "--all"]);
    let path = folder.join("emitted.py");
    fs::write(&path, output.stdout).unwrap();
    path
}

#[test]
fn the_calls_are_the_same() {
    tinygrad();
    for (tag, number) in MODULES {
        let folder = TempDir::new().unwrap();
        let (said, own) = calls(tag, folder.path(), None);
        assert_eq!(said, COPIED, "{tag}");
        // Opening, memory, channels, mappings of each buffer: more than a first refusal would show.
        for call in
            ["UVM_MAP_EXTERNAL_ALLOCATION", "NV_ESC_RM_MAP_MEMORY_DMA", "AMPERE_CHANNEL_GPFIFO_A"]
        {
            assert!(own.iter().any(|line| line.contains(call)), "{tag}: no {call}\n{own:#?}");
        }
        let emitted = emitted(tag, folder.path());
        let (said, with_ours) = calls(tag, folder.path(), Some((&emitted, number)));
        assert_eq!(said, COPIED, "{tag}");
        for (at, (own, ours)) in own.iter().zip(&with_ours).enumerate() {
            assert_eq!(own, ours, "{tag}: call {at} of {}", with_ours.len());
        }
        assert_eq!(own.len(), with_ours.len(), "{tag}");
        println!("{tag}: {} calls are the same", own.len());
    }
}

/// What a card is to tinygrad, and how many a machine has: of those here, two L4 reach each other without links.
const CARDS: [(&str, &str, usize); 3] =
    [("rtx3090", "sm_86", 1), ("l4", "sm_89", 2), ("rtxpro6000", "sm_120", 1)];

/// GPUs of each kind that tinygrad knows, each with a driver that it has types for or a newer one.
#[test]
fn bytes_come_back_from_every_card() {
    let tinygrad = tinygrad();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/open.py");
    let tags = MODULES.map(|(tag, _)| tag).into_iter().chain(["595.45.04"]);
    for (tag, (card, arch, gpus)) in tags.zip(CARDS) {
        let folder = TempDir::new().unwrap();
        let report = folder.path().join("report.json");
        let report = report.to_str().unwrap();
        let count = gpus.to_string();
        let machine =
            ["rm", "sim", "--tag", tag, "--gpu", card, "--gpus", &count, "--report", report];
        let program = ["--", "python3", script, tinygrad.to_str().unwrap(), &count];
        let output = nvabi(&[&machine[..], &program].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        let all = vec![arch; gpus].join(" ");
        assert_eq!(said, format!("copied: {all}\n"), "{tag} {card}");
        let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        assert_eq!(report["diagnostics"], serde_json::json!([]), "{tag} {card}");
    }
}

/// NVIDIA's driver lets GeForce cards reach each other by links alone, and tinygrad says what it lacks.
#[test]
fn two_cards_without_links_are_refused() {
    let tinygrad = tinygrad();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/open.py");
    let machine = ["rm", "sim", "--tag", MODULES[0].0, "--gpu", "rtx3090", "--gpus", "2"];
    let program = ["--", "python3", script, tinygrad.to_str().unwrap(), "2"];
    let output = run(&[&machine[..], &program].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("have P2P enabled"), "{told}");
}

/// Kernels that NVRTC compiles to machine code come to the results of plain Python.
#[test]
fn kernels_compute() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/compute.py");
    for ((tag, _), (card, arch, _)) in MODULES.into_iter().zip(CARDS) {
        let (said, told) = computes(tag, card, script, &[]);
        assert_eq!(said, format!("{arch}: 19 of 19\n"), "{tag} {card}");
        assert_eq!(told, serde_json::json!([]), "{tag} {card}");
    }
}

/// Kernels that tinygrad writes as PTX come to the same results: the text is in its launches, as it is for its mock.
#[test]
fn kernels_compute_as_text() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/compute.py");
    let tags = MODULES.map(|(tag, _)| tag).into_iter().chain(["595.45.04"]);
    for (tag, (card, arch, _)) in tags.zip(CARDS) {
        let machine = ["--ptx", "--gpu", card];
        let (said, told) = computes_on(tag, &machine, "DEV=MOCK+NV:PTX", script, &[]);
        assert_eq!(said, format!("{arch}: 19 of 19\n"), "{tag} {card}");
        assert_eq!(told, serde_json::json!([]), "{tag} {card}");
    }
}

/// tinygrad asks the driver what went wrong, and says so.
#[test]
fn kernels_that_go_wrong_are_reported() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/faults.py");
    let of_mmu = |at: u64, access: &str| {
        format!("MMU fault: 0x{at:X} | NV_PFAULT_FAULT_TYPE_PDE | {access}\n")
    };
    let mistakes = ["write", "misaligned", "trap"];
    for ((tag, _), (card, _, _)) in MODULES.into_iter().zip(CARDS) {
        let mistakes = if tag == MODULES[0].0 { &mistakes[..] } else { &["read", "atomic"] };
        for mistake in mistakes {
            let (said, told) = computes(tag, card, script, &[mistake]);
            let what = format!("{tag} {card} {mistake}: {said} {told}");
            let (at, said) = said.split_once('\n').expect(&what);
            let at = u64::from_str_radix(at.trim_start_matches("0X"), 16).expect(&what);
            let xid = match *mistake {
                "misaligned" => {
                    let begin = "SM 0 fault: esr=0 warp_esr=0xf warp_pc=0x";
                    let pc = said.strip_prefix(begin).expect(&what).trim_end();
                    // Where the kernel's code is, no place of its own.
                    assert!(u64::from_str_radix(pc, 16).expect(&what) > 1 << 32, "{what}");
                    13
                }
                "trap" => {
                    assert_eq!(said, "SM 0 fault: esr=16 warp_esr=0x0 warp_pc=0x0\n", "{what}");
                    13
                }
                "atomic" => {
                    assert_eq!(said, of_mmu(at, "STRONG"), "{what}");
                    31
                }
                other => {
                    assert_eq!(said, of_mmu(at, &other.to_uppercase()), "{what}");
                    31
                }
            };
            let text = told[0]["text"].as_str().expect(&what);
            assert!(text.starts_with(&format!("Xid {xid} of GPU 0: channel")), "{what}");
            assert_eq!(told.as_array().map(Vec::len), Some(1), "{what}");
        }
    }
}

/// What a script that compiles kernels by NVRTC prints, and the simulated machine's diagnostics.
fn computes(tag: &str, card: &str, script: &str, args: &[&str]) -> (String, serde_json::Value) {
    let (_, nvrtc) = (tinygrad(), nvabi_test::nvrtc());
    let libraries = format!("LD_LIBRARY_PATH={}", nvrtc.display());
    computes_on(tag, &["--gpu", card], &libraries, script, args)
}

/// The same on a machine, of a script with a variable.
fn computes_on(
    tag: &str,
    machine: &[&str],
    variable: &str,
    script: &str,
    args: &[&str],
) -> (String, serde_json::Value) {
    let tinygrad = tinygrad();
    let folder = TempDir::new().unwrap();
    let report = folder.path().join("report.json");
    let report = report.to_str().unwrap();
    let machine = [&["rm", "sim", "--tag", tag, "--report", report], machine, &["--"]].concat();
    // What tinygrad has compiled before is of no use here.
    let program = ["env", variable, "CACHELEVEL=0", "python3", script];
    let program = [&program[..], &[tinygrad.to_str().unwrap()], args].concat();
    let output = nvabi(&[&machine[..], &program].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    (said, report["diagnostics"].clone())
}

/// What tinygrad passes is as the lock has it.
#[test]
fn the_calls_are_as_the_lock_has_them() {
    let tinygrad = tinygrad();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad/open.py");
    let folder = TempDir::new().unwrap();
    let record = folder.path().join("record");
    let (record, nvabi_path) = (record.to_str().unwrap(), env!("CARGO_BIN_EXE_nvabi"));
    for (tag, _) in MODULES {
        let machine = ["rm", "sim", "--tag", tag, "--gpu", "rtx3090", "--"];
        let sniff = [nvabi_path, "sniff", "--record", record, "--", "python3", script];
        nvabi(&[&machine[..], &sniff, &[tinygrad.to_str().unwrap(), "1"]].concat());
        let mut command = Command::new(nvabi_path);
        let output =
            command.args(["decode", "sniff", "--audit", "--json", record]).output().unwrap();
        let audit = String::from_utf8(output.stdout).unwrap();
        let audit: serde_json::Value = serde_json::from_str(audit.lines().next().unwrap()).unwrap();
        assert!(audit["calls"].as_u64() >= Some(100), "{tag}: {audit:#}");
        assert_eq!(audit["findings"], serde_json::json!([]), "{tag}");
    }
}

/// A module whose mapping has two fields of one width in each other's place: the simulated driver refuses it, and the
/// comparison sees it.
#[test]
fn a_moved_field_is_seen() {
    tinygrad();
    let (tag, number) = MODULES[0];
    let folder = TempDir::new().unwrap();
    let path = emitted(tag, folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let right = "        ('hClient', ctypes.c_uint32),\n        ('hDevice', ctypes.c_uint32),\n        ('hDma', ";
    let wrong = "        ('hDevice', ctypes.c_uint32),\n        ('hClient', ctypes.c_uint32),\n        ('hDma', ";
    assert!(text.contains(right), "NVOS46_PARAMETERS is written otherwise");
    fs::write(&path, text.replace(right, wrong)).unwrap();
    let (_, own) = calls(tag, folder.path(), None);
    let (said, moved) = calls(tag, folder.path(), Some((&path, number)));
    assert_eq!(said, "", "the driver takes a client for a device");
    let differ = own.iter().zip(&moved).find(|(own, moved)| own != moved);
    let (_, call) = differ.expect("a call that differs");
    assert!(call.contains("NV_ESC_RM_MAP_MEMORY_DMA") && call.contains("= NV_ERR_"), "{call}");
}
