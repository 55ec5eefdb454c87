//! `nvabi rm profile`: a card that is made of a recording answers as the recorded one did.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nvabi_test::{Need, skip};

use crate::client::Client;
use crate::{CLIENT, PASSED};

const NVABI: &str = env!("CARGO_BIN_EXE_nvabi");
const BASE: &str = include_str!("../../../sim/profiles/base.toml");
/// What the client asks: level, number, bytes and name of each command.
const QUESTIONS: &str = "NVABI_SIM_QUESTIONS";
/// What the rules of the simulator answer with values of the profile.
const OF_RULES: [&str; 4] = [
    "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2",
    "NV2080_CTRL_CMD_GPU_GET_NAME_STRING",
    "NV2080_CTRL_CMD_GPU_GET_ENGINES_V2",
    "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2",
];
/// Answers that may differ, and why.
const MAY_DIFFER: [(&str, &str); 4] = [
    ("NV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS", "an idle card's counters go on with time"),
    ("0x2080a081", "it has the time"),
    ("NV2080_CTRL_CMD_GPU_GET_OEM_BOARD_INFO", "the serial number is replaced"),
    ("0x2080a613", "energy counts up with time"),
];

/// What parameters begin with.
const FIRST: [[u32; 2]; 4] = [[0, 0], [8, 0], [0x16, 0], [0x100, 0]];

/// Every command that `base` answers in a driver.
fn questions(tag: &str) -> String {
    let listed = nvabi(&["list", "commands", "--tag", tag, "--json"]);
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words: BTreeSet<&str> = BASE
        .split(|letter| !is_part(letter))
        .chain(OF_RULES)
        .filter(|word| word.contains("_CTRL_"))
        .collect();
    let named = listed.iter().filter(|command| {
        command["same_as"].is_null()
            && command["name"].as_str().is_some_and(|name| words.contains(name))
    });
    let mut lines: Vec<String> = named
        .map(|command| {
            let (number, size) =
                (command["cmd"].as_u64().unwrap(), command["size"].as_u64().unwrap_or(0));
            format!("{number} {size} {}", command["name"].as_str().unwrap())
        })
        .collect();
    let known: BTreeSet<u64> =
        listed.iter().filter_map(|command| command["cmd"].as_u64()).collect();
    for line in BASE
        .lines()
        .filter_map(|line| line.trim_start_matches(['[', ' ']).strip_prefix("answers.0x"))
    {
        let number = u64::from_str_radix(line.trim_end_matches(']'), 16).unwrap();
        // The two sizes of parameters that an answer depends on, and one that has room for all others.
        for size in [6952, 6956, 0x700].iter().filter(|_| !known.contains(&number)) {
            lines.push(format!("{number} {size} {number:#x}"));
        }
    }
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

fn nvabi<A: AsRef<OsStr>>(args: &[A]) -> Output {
    Command::new(NVABI).args(args).output().unwrap()
}

/// Asks, and writes what it was answered.
fn ask() {
    let (client, device, subdevice) = Client::with_device();
    for line in std::env::var(QUESTIONS).unwrap().lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        let (command, size) = (number() as u32, number());
        let name = words.next().unwrap();
        let object = match command >> 16 {
            0x0000 => client.handle,
            0x0080 => device,
            0x2080 => subdevice,
            _ => continue,
        };
        // Lists have one entry, with each index; else the first number is a flag, a kind or a GPU.
        let is_list = name.ends_with("GET_INFO_V2");
        let first =
            if is_list { (0..0x40).map(|index| [1, index]).collect() } else { FIRST.to_vec() };
        for numbers in first {
            let mut params = vec![0; size];
            for (word, number) in params.chunks_exact_mut(4).zip(numbers) {
                word.copy_from_slice(&number.to_le_bytes());
            }
            let status = client.control_with(object, command, params.as_mut_ptr() as u64, size);
            // What a failed command left there is nobody's answer.
            let answer: String = match status {
                0 => params.iter().map(|byte| format!("{byte:02x}")).collect(),
                _ => String::new(),
            };
            println!("answer {name} {size} {numbers:x?} {status:#x} {answer}");
        }
    }
}

/// Runs this test's client on a machine with a card, with `around` before it; gives its answers.
fn answers(test: &str, tag: &str, gpu: &str, around: &[&OsStr], questions: &str) -> Vec<String> {
    let mut command = Command::new(NVABI);
    command.args(["rm", "sim", "--tag", tag, "--gpu", gpu, "--"]).args(around);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads", "1"]);
    command.env(CLIENT, "1").env("NVABI_SIM_TAG", tag).env(QUESTIONS, questions);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("does not permit") {
        skip(Need::Supervise, told.trim());
    }
    // Sniff has an exit status of its own.
    let expected = if around.is_empty() { PASSED } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{tag} {gpu}: {told}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| line.starts_with("answer ")).map(str::to_owned).collect()
}

/// Records a card and compares it with what is made of that.
fn round(test: &str, tag: &str, gpu: &str) {
    if std::env::var_os(CLIENT).is_some() {
        ask();
        std::process::exit(PASSED);
    }
    let folder = tempfile::tempdir().unwrap();
    let (record, made) = (folder.path().join("gpu.rec"), folder.path().join("made.toml"));
    let questions = questions(tag);
    let mut around = [NVABI, "sniff", "--method", "ptrace", "--record"].map(OsStr::new).to_vec();
    around.extend([record.as_os_str(), OsStr::new("--")]);
    let first = answers(test, tag, gpu, &around, &questions);
    let text = profile(&record, &made);
    let second = answers(test, tag, made.to_str().unwrap(), &[], &questions);
    assert!(first.len() > 300, "{tag} {gpu}: {} answers", first.len());
    for (a, b) in first.iter().zip(&second).filter(|(a, b)| a != b) {
        let name = a.split(' ').nth(1).unwrap();
        assert!(
            MAY_DIFFER.iter().any(|(known, _)| *known == name),
            "{tag} {gpu}:\n{a}\n{b}\n{text}"
        );
    }
    assert_eq!(first.len(), second.len());
    // What comes from one recording is one file.
    assert_eq!(profile(&record, &made), text);
}

/// Makes a profile that gives every answer, and fits its driver.
fn profile(record: &Path, made: &Path) -> String {
    let output = nvabi(&[OsStr::new("rm"), OsStr::new("profile"), record.as_os_str()]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let (_, counts) = told.lines().last().unwrap().split_once(": ").unwrap();
    let counts: Vec<&str> = counts.split(' ').collect();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(counts[0], counts[2], "{told}\n{text}");
    fs::write(made, &text).unwrap();
    text
}

macro_rules! rounds {
    ($($name:ident $tag:literal $gpu:literal)*) => {
        $(
            #[test]
            fn $name() {
                round(concat!("recorded::", stringify!($name)), $tag, $gpu);
            }
        )*
    };
}

rounds! {
    a_h100_of_535_is_the_same "535.43.02" "h100"
    an_a100_of_550_is_the_same "550.163.01" "a100"
    an_rtxpro6000_of_570_is_the_same "570.86.15" "rtxpro6000"
    an_l4_of_580_is_the_same "580.65.06" "l4"
    an_rtx3090_of_595_is_the_same "595.45.04" "rtx3090"
    an_rtxpro6000_of_595_is_the_same "595.45.04" "rtxpro6000"
}

#[test]
fn a_recording_without_a_gpu_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("none.rec");
    let sniffed = nvabi(&["sniff", "--record", record.to_str().unwrap(), "--", "true"]);
    if sniffed.status.code() != Some(0) {
        skip(Need::Supervise, String::from_utf8_lossy(&sniffed.stderr).trim());
    }
    let output = nvabi(&["rm", "profile", record.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{told}");
    assert!(told.contains("none.rec has no call of the x86 driver"), "{told}");
    assert!(
        told.contains("nvabi sniff --method ptrace --record gpu.rec -- nvidia-smi -q"),
        "{told}"
    );
}
