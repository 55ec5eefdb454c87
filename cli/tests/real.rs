//! NVIDIA's own programs, unmodified, on the simulated driver: nvidia-smi, NVML and libcuda.
//!
//! `tests/real/fetch.sh` gets them, and prints folders of versions; NVABI_REAL lists these. Every test holds for
//! each of them, whatever version it is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use nvabi_test::{Need, is_whole, skip};

test_main!();

/// Of the cards that every version here knows: Blackwell is known since 570.
const CARDS: [(&str, &str); 4] = [
    ("rtx3090", "NVIDIA GeForce RTX 3090"),
    ("a100", "NVIDIA A100-SXM4-80GB"),
    ("h100", "NVIDIA H100 80GB HBM3"),
    ("l4", "NVIDIA L4"),
];

/// These, and those that are A100 and H100 on a board with switches.
fn reviewed_cards() -> impl Iterator<Item = &'static str> {
    CARDS.into_iter().map(|(card, _)| card).chain(["hgx-a100", "hgx-h100"])
}

/// What nvidia-smi writes where a value could not be had.
const WRONG: [&str; 5] = ["ERR!", "Unknown Error", "Not Found", "Invalid Argument", "Insufficient"];

/// A version of NVIDIA's user space.
struct Real {
    version: String,
    folder: PathBuf,
}

/// What a program wrote, and what the simulator said of it.
struct Seen {
    code: Option<i32>,
    out: String,
    /// What it wrote to standard error, and the simulator too.
    told: String,
    diagnostics: Vec<(String, String)>,
}

/// All that NVABI_REAL names, by line or between colons.
fn versions() -> Vec<Real> {
    let named = std::env::var("NVABI_REAL").unwrap_or_default();
    let folders = named.split([':', '\n']).map(str::trim).filter(|folder| !folder.is_empty());
    let all: Vec<Real> = folders
        .map(|folder| {
            let folder = PathBuf::from(folder);
            let version = folder.file_name().unwrap().to_string_lossy().into_owned();
            for file in ["bin/nvidia-smi", "lib/libcuda.so.1"] {
                assert!(folder.join(file).exists(), "{} has no {file}", folder.display());
            }
            Real { version, folder }
        })
        .collect();
    if all.is_empty() {
        skip(Need::Real, "NVABI_REAL names no folder")
    }
    all
}

/// The same, for scripts that ask NVML.
fn versions_with_nvml() -> Vec<Real> {
    let versions = versions();
    let python = versions[0].folder.with_file_name("python");
    if !python.join("pynvml.py").exists() {
        skip(Need::Real, format!("there is no {}/pynvml.py", python.display()))
    }
    versions
}

/// Each version with a card and each card with a version, for tests whose every pair takes long: all pairs where all
/// is to be checked.
fn pairs<'a>(versions: &'a [Real], cards: &[&'a str]) -> Vec<(&'a Real, &'a str)> {
    if is_whole() {
        return versions
            .iter()
            .flat_map(|real| cards.iter().map(move |card| (real, *card)))
            .collect();
    }
    let count = if versions.is_empty() { 0 } else { versions.len().max(cards.len()) };
    (0..count).map(|at| (&versions[at % versions.len()], cards[at % cards.len()])).collect()
}

/// The same of those that libcuda takes.
fn cuda_pairs<'a>(versions: &'a [Real], cards: &[&'a str]) -> Vec<(&'a Real, &'a str)> {
    let mut all = pairs(versions, cards);
    all.retain(|(real, card)| !is_refused(real, card));
    all
}

impl Real {
    fn smi(&self) -> PathBuf {
        self.folder.join("bin/nvidia-smi")
    }

    /// Runs a program on a simulated machine with its libraries.
    fn run<A: AsRef<OsStr>>(&self, machine: &[&str], program: &Path, args: &[A]) -> Seen {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.args(["rm", "sim", "--tag", &self.version]).args(machine).arg("--report");
        command.arg(&report).arg("--").arg(program).args(args);
        command.env("LD_LIBRARY_PATH", self.folder.join("lib"));
        command.env("PYTHONPATH", self.folder.with_file_name("python"));
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        if told.contains("does not permit") {
            skip(Need::Supervise, told.trim())
        }
        let report = std::fs::read(&report).unwrap_or_else(|_| panic!("{}: {told}", self.version));
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let diagnostics = report["diagnostics"].as_array().cloned().unwrap_or_default();
        let diagnostics = diagnostics.iter().map(|it| (text(&it["code"]), text(&it["text"])));
        Seen {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            told: told.into_owned(),
            diagnostics: diagnostics.collect(),
        }
    }

    /// The same, of a script of Python's with one card: it ends well, says what is expected, and nothing is told.
    fn script<A: AsRef<OsStr>>(&self, card: &str, words: &[A], expected: &str) {
        self.script_on(&["--gpu", card], words, expected);
    }

    /// The same, on another machine.
    fn script_on<A: AsRef<OsStr>>(&self, machine: &[&str], words: &[A], expected: &str) {
        let seen = self.run(machine, Path::new("python3"), words);
        let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
        let what = format!("{} {machine:?} {words:?}: {}", self.version, seen.told);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{what}");
        assert_eq!(seen.diagnostics, [], "{what}");
    }

    /// The same, of nvidia-smi with one card: it must succeed, and say nothing wrong.
    fn ask(&self, card: &str, args: &[&str]) -> String {
        let seen = self.run(&["--gpu", card], &self.smi(), args);
        let what = format!("{} {card} nvidia-smi {}", self.version, args.join(" "));
        assert_eq!(seen.code, Some(0), "{what}: {}{:?}", seen.out, seen.diagnostics);
        for wrong in WRONG {
            let lines: Vec<&str> = seen.out.lines().filter(|line| line.contains(wrong)).collect();
            assert!(lines.is_empty(), "{what}: {lines:#?}");
        }
        let ours: Vec<_> = seen.diagnostics.iter().filter(|(code, _)| code == "profile").collect();
        assert!(ours.is_empty(), "{what}: {ours:?}");
        seen.out
    }
}

/// The values of `nvidia-smi -q` by the names of their sections.
fn values(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        above.retain(|(other, _)| *other < indent);
        match line.split_once(" : ").map(|(name, value)| (name.trim(), value.trim())) {
            Some((name, value)) => {
                let names = above.iter().skip(1).map(|(_, name)| *name).chain([name]);
                values.insert(names.collect::<Vec<_>>().join("/"), value.to_owned());
            }
            None => above.push((indent, line.trim())),
        }
    }
    values
}

#[test]
fn the_table_is_whole() {
    for real in versions() {
        for (card, name) in CARDS {
            let table = real.ask(card, &[]);
            // Older tables have no room for more of a name.
            let begin: String = name.chars().take(15).collect();
            assert!(table.contains(&begin), "{}: {table}", real.version);
            assert!(table.contains(&format!("Driver Version: {}", real.version)), "{table}");
            let list = real.ask(card, &["-L"]);
            assert!(list.starts_with(&format!("GPU 0: {name} (UUID: GPU-")), "{list}");
        }
    }
}

#[test]
fn every_value_is_had() {
    for real in versions() {
        for (card, name) in CARDS {
            let all = values(&real.ask(card, &["-q"]));
            assert!(all.len() > 100, "{} {card}: {} values", real.version, all.len());
            assert_eq!(all.get("Product Name").map(String::as_str), Some(name));
            // What every card has is there, whatever the version calls its other values. At rest there is nothing to do.
            let reasons = if all.contains_key("Clocks Event Reasons/Idle") {
                "Clocks Event Reasons/Idle"
            } else {
                "Clocks Throttle Reasons/Idle"
            };
            for (name, begin) in [
                ("GPU UUID", "GPU-"),
                ("VBIOS Version", "9"),
                ("PCI/Bus Id", "00000000:01:00.0"),
                ("PCI/GPU Link Info/PCIe Generation/Max", ""),
                ("Performance State", "P"),
                ("Compute Mode", "Default"),
                ("Temperature/GPU Current Temp", "3"),
                ("Clocks/Graphics", ""),
                ("Clocks/Memory", ""),
                ("Utilization/Gpu", "0 %"),
                (reasons, "Active"),
            ] {
                let value = all.get(name).map(String::as_str).unwrap_or("missing");
                let is_there = value != "missing" && value != "N/A" && value.starts_with(begin);
                assert!(is_there, "{} {card} {name}: {value}", real.version);
            }
            // A limit is a temperature, or its distance to the highest operating one.
            let limit = |name: &str, begin: &str| {
                all.get(name).is_some_and(|value| value.starts_with(begin) && value.ends_with(" C"))
            };
            let has_limit = limit("Temperature/GPU Shutdown Temp", "9")
                || limit("Temperature/GPU Shutdown T.Limit Temp", "-");
            assert!(has_limit, "{} {card}: no temperature to shut down at", real.version);
        }
    }
}

/// A line of tests/real/na.txt: a property that a card shows as N/A, and who says so.
struct NotAvailable<'a> {
    card: &'a str,
    source: &'a str,
    property: &'a str,
}

impl NotAvailable<'_> {
    fn fits(&self, card: &str, property: &str) -> bool {
        let is_named = match self.property.strip_suffix('*') {
            Some(begin) => property.starts_with(begin),
            None => property == self.property,
        };
        let is_meant = match self.card.strip_prefix('*') {
            Some(end) => card.ends_with(end),
            None => card == self.card,
        };
        is_named && is_meant
    }
}

fn not_available(text: &str) -> Vec<NotAvailable<'_>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = lines.map(|line| {
        let (card, rest) = line.split_once(' ').unwrap();
        let (source, property) = rest.trim_start().split_once(' ').unwrap();
        NotAvailable { card, source, property: property.trim_start() }
    });
    read.collect()
}

#[test]
fn what_is_not_available_is_reviewed() {
    let path = real_file("na.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let known = not_available(&text);
    let mut is_used = vec![false; known.len()];
    for real in versions() {
        for card in reviewed_cards() {
            let all = values(&real.ask(card, &["-q"]));
            for (property, _) in all.iter().filter(|(_, value)| *value == "N/A") {
                let mut is_known = false;
                for (line, is_used) in known.iter().zip(&mut is_used) {
                    if line.fits(card, property) {
                        (is_known, *is_used) = (true, true);
                    }
                }
                let version = &real.version;
                assert!(
                    is_known,
                    "{version} {card}: {property} is N/A: simulate it or add it to tests/real/na.txt"
                );
            }
        }
    }
    // What is simulated by now is no longer open.
    for (line, is_used) in known.iter().zip(is_used) {
        let is_solved = line.source == "open" && !is_used;
        assert!(
            !is_solved,
            "{} {} is N/A no more: remove it from tests/real/na.txt",
            line.card, line.property
        );
    }
}

#[test]
fn every_property_is_had() {
    for real in versions() {
        let help = real.run::<&str>(&[], &real.smi(), &["--help-query-gpu"]).out;
        let names: Vec<&str> = help.lines().filter_map(property).collect();
        assert!(names.len() > 100, "{}: {} properties", real.version, names.len());
        for (card, _) in CARDS {
            let ask = || {
                let query = format!("--query-gpu={}", names.join(","));
                let table = real.ask(card, &[&query, "--format=csv,noheader"]);
                let values: Vec<String> = table.trim_end().split(", ").map(str::to_owned).collect();
                assert_eq!(values.len(), names.len(), "{} {card}: {table}", real.version);
                values
            };
            // What is not answered is what was in the program's memory, and that is another in each run.
            for ((name, first), second) in names.iter().zip(ask()).zip(ask()) {
                let is_time = *name == "timestamp";
                assert!(is_time || first == second, "{card} {name}: {first}, {second}");
            }
        }
    }
}

/// A card whose values differ from those of this build's: each version finds them where it looks for them.
#[test]
fn fans_turn_as_fast_as_the_card_says() {
    let folder = tempfile::tempdir().unwrap();
    let card = folder.path().join("fans.toml");
    std::fs::write(&card, "extends = \"rtx3090\"\n[fan]\npercent = 37\n").unwrap();
    for real in versions() {
        let card = card.to_str().unwrap();
        let speed = real.ask(card, &["--query-gpu=fan.speed", "--format=csv,noheader"]);
        assert_eq!(speed, "37 %\n", "{}", real.version);
        let all = values(&real.ask(card, &["-q"]));
        assert_eq!(all.get("Fan Speed").map(String::as_str), Some("37 %"), "{}", real.version);
        let table = real.ask(card, &[]);
        assert!(table.contains("| 37% ") || table.contains("| 37%"), "{}: {table}", real.version);
    }
}

/// Programs set fans and move clocks where a card has that, and find its states and its sensor.
#[test]
fn cards_are_tuned() {
    for real in versions_with_nvml() {
        let script = real_file("tuned.py").into_os_string();
        for (card, words) in [
            ("rtx3090", ["0", "0", "2", "3", "5", "8"].as_slice()),
            ("a100", &["-", "0"]),
            ("h100", &["-", "0"]),
        ] {
            let words: Vec<_> =
                [script.clone()].into_iter().chain(words.iter().map(Into::into)).collect();
            real.script(card, &words, "devices: 1\n");
        }
    }
}

/// A property's name at the beginning of a line: `"clocks.gr" or "clocks.current.graphics"`.
fn property(line: &str) -> Option<&str> {
    let (name, _) = line.strip_prefix('"')?.split_once('"')?;
    let is_part = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_.".contains(letter)
    };
    (!name.is_empty() && name.chars().all(is_part)).then_some(name)
}

/// What nvidia-smi shows of an A100 after it was told to set what it can.
fn after_settings(real: &Real, card: &str) -> String {
    let smi = real.smi();
    let smi = smi.display();
    let script = format!(
        "{smi} -pm 1 && {smi} -c 3 && {smi} -am 1 && {smi} -e 0 && {smi} -pl 300 && {smi} -ac 1593,1410 && \
         {smi} -lgc 300,1200 && {smi} --format=csv,noheader --query-gpu=persistence_mode,compute_mode,\
         accounting.mode,ecc.mode.pending,ecc.mode.current,power.limit,clocks.applications.graphics,clocks.gr"
    );
    let seen = real.run(&["--gpu", card], Path::new("sh"), &["-c", &script]);
    assert_eq!(seen.code, Some(0), "{}: {} {:?}", real.version, seen.out, seen.diagnostics);
    seen.out.lines().last().unwrap_or_default().to_owned()
}

/// The same, of every A100.
const SET: &str =
    "Enabled, Exclusive_Process, Enabled, Disabled, Enabled, 300.00 W, 1410 MHz, 300 MHz";

#[test]
fn what_one_program_sets_the_next_one_sees() {
    for real in versions() {
        assert_eq!(after_settings(&real, "a100"), SET, "{}", real.version);
    }
}

/// Clocks that a card has not are not set.
#[test]
fn clocks_stay_in_the_range_of_the_card() {
    const SCRIPT: &str = "set -e; for range in 3000,3000 300,9999 100,150; do $0 -lgc $range >&2; \
                          $0 --query-gpu=clocks.gr --format=csv,noheader,nounits; done";
    for real in versions() {
        let smi = real.smi();
        let args = ["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str()];
        let seen = real.run(&["--gpu", "a100"], Path::new("sh"), &args);
        assert_eq!(
            (seen.code, seen.out.as_str()),
            (Some(0), "1410\n300\n210\n"),
            "{}",
            real.version
        );
    }
}

/// What one card has and another has not: clocks of the memory to lock, a temperature that fans hold, a slider.
#[test]
fn what_a_card_has_can_be_set() {
    const HOME: &str = "set -e; mem() { $0 --query-gpu=clocks.mem --format=csv,noheader,nounits; }; \
                        fans() { $0 -q -d TEMPERATURE | sed -n 's/ *GPU Target Temperature *: //p'; }; \
                        for range in 5000,5100 9000,20000 20000,30000 100,200 9751; do $0 -lmc $range >&2; mem; done; \
                        $0 -rmc >&2; mem; $0 -gtt 70 >&2; fans; $0 -r >&2; fans; \
                        $0 boost-slider -l | grep -o 'No supported devices'";
    const KEPT: &str = "5001\n9501\n9751\n405\n9751\n405\n70 C\n83 C\nNo supported devices\n";
    const SERVER: &str = "set -e; ask() { $0 boost-slider -l | grep -o 'vboost.*[0-9]' | tr -s ' '; }; ask; \
                          $0 boost-slider --vboost 3 >&2; ask; $0 -r >&2; ask; $0 -gtt 70 | grep -o 'not supported'; \
                          $0 -lmc 100,200 | grep -o 'not supported'; slice() { $0 compute-policy -l | grep -o \
                          'Timeslice.*[a-z]' | tr -s ' '; }; slice; $0 compute-policy --set-timeslice=2 >&2; slice";
    const SLID: &str = "vboost 4 0\nvboost 4 3\nvboost 4 0\nnot supported\nnot supported\n\
                        Timeslice Default\nTimeslice Medium\n";
    for real in versions() {
        for (card, script, expected) in [("rtx3090", HOME, KEPT), ("h100", SERVER, SLID)] {
            let smi = real.smi();
            let args = ["-c".as_ref(), script.as_ref(), smi.as_os_str()];
            let seen = real.run(&["--gpu", card], Path::new("sh"), &args);
            let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
            assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{what}");
            assert!(seen.diagnostics.is_empty(), "{what}");
        }
    }
}

/// A history of what a card drew, and counters of each lane of its bus.
#[test]
fn samples_and_lanes_are_had() {
    let versions = versions();
    for (real, card) in pairs(&versions, &CARDS.map(|(card, _)| card)) {
        let power = values(&real.ask(card, &["-q", "-d", "POWER"]));
        let of = |name: &str| power.get(&format!("Power Samples/{name}")).map(String::as_str);
        let is_draw = |name: &str| name.ends_with("Power Draw") && !name.contains("Memory");
        let mut draws = power.iter().filter(|(name, _)| is_draw(name));
        let draw = draws.find(|(_, value)| *value != "N/A").map(|(_, value)| value.as_str());
        let what = format!("{} {card}: {power:#?}", real.version);
        let told = (of("Number of Samples"), of("Duration"));
        assert_eq!(told, (Some("119"), Some("2.36 sec")), "{what}");
        assert_eq!([of("Max"), of("Min"), of("Avg")], [draw; 3], "{what}");
        let clocks = values(&real.ask(card, &["-q", "-d", "CLOCK"]));
        for (samples, clock) in [("SM Clock Samples", "SM"), ("Memory Clock Samples", "Memory")] {
            let of = |name: &str| clocks.get(&format!("{samples}/{name}")).map(String::as_str);
            let now = clocks.get(&format!("Clocks/{clock}")).map(String::as_str);
            let told = (of("Number of Samples"), of("Duration"), of("Max"), of("Min"), of("Avg"));
            assert_eq!(
                told,
                (Some("100"), Some("19.80 sec"), now, now, now),
                "{} {card}",
                real.version
            );
        }
        let has_lanes = real.run::<&str>(&[], &real.smi(), &["--help"]).out.contains(" pci ");
        if !has_lanes {
            continue;
        }
        let lanes = real.ask(card, &["pci", "-gErrCnt"]);
        let lanes: Vec<&str> = lanes.lines().filter(|line| line.contains("lane ")).collect();
        // Each has a number, however many the version shows.
        let is_had = !lanes.is_empty() && lanes.iter().all(|line| line.ends_with(": 0"));
        assert!(is_had, "{what} {lanes:?}");
        real.ask(card, &["pci", "-cErrCnt"]);
    }
}

/// The clocks of the memory that a card can have, with the highest and the lowest of graphics beside each: in steps of
/// 15 MHz beside the highest one; beside others the highest alone, for no more is simulated.
type Clocks = &'static [(u32, u32, u32)];
const SUPPORTED_CLOCKS: [(&str, Clocks); CARDS.len()] = [
    (
        "rtx3090",
        &[
            (9751, 2100, 210),
            (9501, 2100, 2100),
            (5001, 2100, 2100),
            (810, 2100, 2100),
            (405, 420, 420),
        ],
    ),
    ("a100", &[(1593, 1410, 210)]),
    ("h100", &[(2619, 1980, 345)]),
    ("l4", &[(6251, 2040, 210), (405, 645, 645)]),
];

/// The clocks that `nvidia-smi -ac` takes are those of public reports.
#[test]
fn supported_clocks_are_listed() {
    for real in versions() {
        for (card, expected) in SUPPORTED_CLOCKS {
            let text = real.ask(card, &["-q", "-d", "SUPPORTED_CLOCKS"]);
            let mut found: Vec<(u32, Vec<u32>)> = Vec::new();
            for line in text.lines() {
                let Some((name, clock)) = line.split_once(" : ") else { continue };
                let clock = clock.strip_suffix(" MHz").and_then(|clock| clock.parse().ok());
                match (name.trim(), clock, found.last_mut()) {
                    ("Memory", Some(clock), _) => found.push((clock, Vec::new())),
                    ("Graphics", Some(clock), Some((_, clocks))) => clocks.push(clock),
                    _ => {}
                }
            }
            let listed = expected.iter().map(|(memory, highest, lowest)| {
                (*memory, (*lowest..=*highest).rev().step_by(15).collect())
            });
            assert_eq!(found, listed.collect::<Vec<_>>(), "{} {card}", real.version);
        }
    }
}

/// A card that drains is no card for programs that begin: neither nvidia-smi nor libcuda has it. One that is removed is
/// off the bus until it is looked for.
#[test]
fn a_card_that_drains_is_left_alone() {
    const SCRIPT: &str = "set -e; drain() { $0 drain -p $1 $2 $3 >&2; }; \
                          seen() { $0 -L | grep -o 'GPU [0-9]: NVIDIA [A-Z0-9]*'; \
                          python3 $1 | grep -o 'NVIDIA [A-Z0-9]*' | sort; }; \
                          listed() { $0 -L | grep -o 'GPU [0-9]: NVIDIA [A-Z0-9]*'; \
                          (cd /sys/bus/pci/devices; echo *); }; \
                          drain $2 -m 1; seen $1; ! drain $2 -m 1; $0 drain -p $2 -q; drain $2 -m 0; seen $1; \
                          drain $2 -m 1; drain $2 -r; listed; ! $0 drain -p $2 -q; $0 drain -d >&2; listed";
    const SEEN: &str = "GPU 0: NVIDIA L4\nNVIDIA L4\n\
                        The current drain state of GPU 00000000:01:00.0 is: draining.\n\
                        GPU 0: NVIDIA A100\nGPU 1: NVIDIA L4\nNVIDIA A100\nNVIDIA L4\n\
                        GPU 0: NVIDIA L4\n0000:00:0c.0 0000:00:0d.0 0000:02:00.0\n\
                        Failed to query the GPU drain state.\nGPU 0: NVIDIA A100\nGPU 1: NVIDIA L4\n\
                        0000:00:0c.0 0000:00:0d.0 0000:01:00.0 0000:02:00.0\n";
    for real in versions() {
        let (smi, script) = (real.smi(), real_file("cuda.py"));
        let mut args = vec!["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str(), script.as_os_str()];
        args.push(OsStr::new("0000:01:00.0"));
        let seen = real.run(&["--gpu", "a100", "--gpu", "l4"], Path::new("sh"), &args);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), SEEN), "{what}");
    }
}

/// One with persistence is not removed, though nobody has it: nvidia-smi says so.
#[test]
fn a_card_that_persists_is_not_removed() {
    const SCRIPT: &str = "set -e; drain() { $0 drain -p 0000:01:00.0 $1 $2 >&2; }; \
                          $0 -i 0 -pm 1 >&2; drain -m 1; ! $0 drain -p 0000:01:00.0 -r; \
                          echo /sys/bus/pci/devices/0000:01*; drain -m 0; $0 -i 0 -pm 0 >&2; drain -m 1; drain -r; \
                          echo /sys/bus/pci/devices/0000:01*";
    const SEEN: &str = "Failed to remove the specified GPU.\n/sys/bus/pci/devices/0000:01:00.0\n\
                        /sys/bus/pci/devices/0000:01*\n";
    for real in versions() {
        let smi = real.smi();
        let args = ["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str()];
        let seen = real.run(&["--gpu", "a100"], Path::new("sh"), &args);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), SEEN), "{what}");
    }
}

/// A reset waits until nobody has the card open, as the driver's `unbind` does, and the card then drains no more.
#[test]
fn a_card_that_is_open_is_reset_later() {
    const SCRIPT: &str = "exec 3</dev/nvidia0; { $0 -r -i 0; touch $1; } 3<&- & \
                          tries=300; while [ -e $2/driver ] && [ ! -e $1 ]; do \
                          [ $((tries -= 1)) -gt 0 ] || { echo nobody unbinds it in 30 s; break; }; \
                          sleep 0.1; done; exec 3<&-; wait; \
                          $0 drain -p 0000:01:00.0 -q; $0 --query-gpu=index --format=csv,noheader";
    const SEEN: &str = "GPU 00000000:01:00.0 was successfully reset.\nAll done.\n\
                        The current drain state of GPU 00000000:01:00.0 is: not draining.\n0\n1\n";
    for real in versions() {
        let folder = tempfile::tempdir().unwrap();
        let (smi, ended) = (real.smi(), folder.path().join("ended"));
        let mut args = vec!["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str(), ended.as_os_str()];
        args.push(OsStr::new("/sys/bus/pci/devices/0000:01:00.0"));
        let seen = real.run(&["--gpu", "a100", "--gpus", "2"], Path::new("sh"), &args);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), SEEN), "{what}");
        let waits =
            |(code, text): &(String, String)| code == "in-use" && text.contains("`unbind` waits");
        assert!(seen.diagnostics.iter().any(waits), "{what}");
        assert!(!seen.diagnostics.iter().any(|(code, _)| code == "not-simulated"), "{what}");
    }
}

/// nvidia-persistenced keeps what nvidia-smi of its machine tells it, also over a reset, and ends without a trace.
#[test]
fn a_daemon_keeps_persistence() {
    const SCRIPT: &str = "soon() { n=0; until [ $1 $D ] || [ $((n+=1)) -gt 99999 ]; do :; done; }; \
                          ask() { $S --query-gpu=persistence_mode --format=csv,noheader; }; \
                          S=$0/bin/nvidia-smi; D=/run/nvidia-persistenced/socket; \
                          $0/bin/nvidia-persistenced --nvidia-cfg-path=$0/lib; soon -S; ask; $S -pm 0; ask; $S -pm 1; \
                          $S -r; ask; D=/run/nvidia-persistenced; \
                          kill $(cat /var$D/nvidia-persistenced.pid); soon '! -e'; ! ls $D && \
                          $0/bin/nvidia-persistenced --nvidia-cfg-path=$0/lib; D=$D/socket; soon -S; \
                          kill -9 $(cat /run/nvidia-persistenced/*.pid)";
    const SEEN: &str = "Enabled\nDisabled persistence mode for GPU 00000000:01:00.0.\nAll done.\nDisabled\n\
                        Enabled persistence mode for GPU 00000000:01:00.0.\nAll done.\n\
                        GPU 00000000:01:00.0 was successfully reset.\nAll done.\nEnabled\n";
    let mut versions = versions();
    versions.retain(|real| real.folder.join("bin/nvidia-persistenced").exists());
    if versions.is_empty() {
        skip(Need::Real, "NVABI_REAL names no folder with nvidia-persistenced")
    }
    for real in versions {
        let args = ["-c".as_ref(), SCRIPT.as_ref(), real.folder.as_os_str()];
        // Of this machine's own, if it has one. The last one of the simulated machine leaves its files there.
        let own =
            || std::fs::metadata("/run/nvidia-persistenced").ok().map(|it| it.modified().unwrap());
        let before = own();
        let seen = real.run(&["--gpu", "a100"], Path::new("sh"), &args);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.told);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), SEEN), "{what}");
        assert_eq!(own(), before, "{what}");
    }
}

/// Where only one program may compute, another gets no context until the first one has ended its own; where none may,
/// none does.
#[test]
fn compute_modes_are_kept() {
    let versions = versions();
    for (real, card) in cuda_pairs(&versions, &["a100", "rtx3090"]) {
        let script = real_file("exclusive.py");
        let mut args = vec![script.as_os_str()];
        args.extend(["3", "2"].map(OsStr::new));
        let seen = real.run(&["--gpu", card], Path::new("python3"), &args);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        // CUDA_ERROR_DEVICE_UNAVAILABLE.
        let expected = "3 0 46 0\n2 46 46 46\n";
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{what}");
    }
}

/// A program that computed is accounted, nvidia-smi is not; what is cleared is forgotten.
#[test]
fn programs_are_accounted() {
    const SCRIPT: &str = "set -e; ask() { $0 --query-accounted-apps=pid,max_memory_usage,time \
                          --format=csv,noheader,nounits; }; python3 $1 >&2; $0 -am 1 >&2; ask; python3 $1 >&2 & \
                          echo $!; wait $!; ask; $0 -caa >&2; ask; echo end";
    let versions = versions();
    for (real, card) in cuda_pairs(&versions, &["a100", "l4"]) {
        let (smi, script) = (real.smi(), real_file("exclusive.py"));
        let args = ["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str(), script.as_os_str()];
        let seen = real.run(&["--gpu", card], Path::new("sh"), &args);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        let lines: Vec<&str> = seen.out.lines().collect();
        assert_eq!((seen.code, lines.len(), lines.last()), (Some(0), 3, Some(&"end")), "{what}");
        let fields: Vec<&str> = lines[1].split(", ").collect();
        assert_eq!((fields.len(), fields[0]), (3, lines[0]), "{what}");
        // A context has some hundred MiB, and takes some time.
        let numbers: Vec<u64> = fields[1..].iter().map(|it| it.parse().unwrap()).collect();
        assert!(numbers[0] > 10 && numbers[1] > 0, "{what}");
    }
}

/// How cards reach each other: over NVLink where links are, over PCIe if they are cards for servers.
#[test]
fn paths_between_cards_are_those_of_their_links() {
    let alone = ["--gpu", "a100", "--gpu", "l4"];
    let homes = ["--gpu", "rtx3090", "--gpus", "2"];
    let bridge = [&homes[..], &["--topology", "linked-pair"]].concat();
    let board = ["--gpu", "hgx-a100", "--gpus", "2"];
    for real in versions() {
        for (machine, links, reads) in [
            // Chips of two kinds do not reach each other.
            (&alone[..], "NS", "NS"),
            (&homes, "NS", "CNS"),
            (&bridge, "OK", "OK"),
            (&board, "OK", "OK"),
        ] {
            for (kind, expected) in [("n", links), ("r", reads)] {
                let seen = real.run(machine, &real.smi(), &["topo", "-p2p", kind]);
                let what = format!("{} {machine:?} {kind}: {}", real.version, seen.out);
                let row = |name| seen.out.lines().find_map(|line| line.trim().strip_prefix(name));
                let row =
                    |name| row(name).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
                assert_eq!(
                    (row("GPU0"), row("GPU1")),
                    (vec!["X", expected], vec![expected, "X"]),
                    "{what}"
                );
            }
        }
    }
}

/// A program on an instance is shown once, with its instance, and is not another instance's.
#[test]
fn programs_are_shown_with_their_instances() {
    const SCRIPT: &str =
        "set -e; { $0 -mig 1; $0 -r; $0 mig -cgi 19,14,5 -C; } >&2; ! $0 -c 3 >&2; python3 $1";
    let versions = versions();
    for (real, card) in cuda_pairs(&versions, &["a100", "h100"]) {
        let (smi, script) = (real.smi(), real_file("parts.py"));
        let args = ["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str(), script.as_os_str()];
        let seen = real.run(&["--gpu", card], Path::new("sh"), &args);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        let expected = "whole [(1, 0, True)]\nfirst [(1, 0, True)]\nsecond []\n\
                        table [['0', '1', '0']]\nafter []\n";
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{what}");
    }
}

/// A card is divided, shown so, and made whole again. The numbers and places are those of NVIDIA's user guide of MIG.
#[test]
fn a_card_is_divided() {
    const SCRIPT: &str = "set -e; $0 -mig 1; $0 mig -lgipp; $0 mig -cgi 19,14,5 -C; $0 mig -lgi; $0 mig -lci; $0 -L; \
                          $0; $0 -q; ! $0 mig -dgi; ! $0 -mig 0; $0 mig -dci; $0 mig -dgi; $0 -mig 0; $0 -r; \
                          $0 --query-gpu=mig.mode.current --format=csv,noheader";
    let versions = versions();
    for (real, card) in pairs(&versions, &["a100", "h100"]) {
        let smi = real.smi();
        let args = ["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str()];
        let seen = real.run(&["--gpu", card], Path::new("sh"), &args);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!(seen.code, Some(0), "{what}");
        let ours = |code: &str| code == "not-simulated" || code == "profile";
        assert!(!seen.diagnostics.iter().any(|(code, _)| ours(code)), "{what}");
        // Without the frames of tables, which grow from version to version.
        let lines: Vec<String> = seen
            .out
            .lines()
            .map(|line| {
                let words = line.split(|letter: char| letter == '|' || letter.is_whitespace());
                words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
            })
            .collect();
        for expected in [
            "GPU 0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1",
            "GPU 0 Profile ID 14 Placements: {0,2,4}:2",
            "GPU 0 Profile ID 9 Placements: {0,4}:4",
            "0 MIG 1g.10gb 19 13 6:1",
            "0 MIG 2g.20gb 14 5 4:2",
            "0 MIG 4g.40gb 5 1 0:4",
            "0 1 MIG 4g.40gb 3 0 0:4",
            "MIG 4g.40gb Device 0: (UUID: MIG-6e766162-692d-7369-6d75-6c6174000101)",
            "MIG 1g.10gb Device 2: (UUID: MIG-6e766162-692d-7369-6d75-6c6174000d01)",
            "GPU Instance ID : 13",
            "Unable to destroy GPU instance ID 13 from GPU 0: In use by another client",
            "Unable to disable MIG Mode for GPU 00000000:01:00.0: In use by another client",
            "Successfully destroyed compute instance ID 0 from GPU 0 GPU instance ID 13",
            "Successfully destroyed GPU instance ID 5 from GPU 0",
            "GPU 00000000:01:00.0 was successfully reset.",
            // How busy it is is not told of a card that can be divided: NVML's documentation.
            "Gpu : N/A",
            "Memory : N/A",
            "Decoder : N/A",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {what}");
        }
        // The table's row of a part: its memory is the instance's, its SMs are those of four GPCs.
        let (memory, sms) = if card == "a100" { (40192, 56) } else { (40448, 64) };
        let row = format!("0 1 0 0 0MiB / {memory}MiB {sms} 0");
        assert!(lines.iter().any(|line| line.starts_with(&row)), "{row}: {what}");
        // Half of the window to it, but for what the driver has; since 580 most of that is the memory's for good.
        let window = |line: &String| line.starts_with("0MiB / 65535MiB");
        let is_static = real.version.as_str() >= "580";
        assert!(is_static || lines.iter().any(window), "a window of 65535MiB: {what}");
        assert_eq!(lines.last().map(String::as_str), Some("Disabled"), "{what}");
    }
}

/// libcuda has a GPU instance, and a compute instance that is a third of one, as a device: its memory, its SMs, copies,
/// and kernels that fill these SMs.
#[test]
fn libcuda_has_an_instance() {
    const SCRIPT: &str = "set -e; { $0 -mig 1; $0 mig -cgi 9,19; $0 mig -cci 0 -gi 2; $0 mig -cci 0 -gi 7; } >&2; \
                          for one in $($0 -L | grep -o 'MIG-[-0-9a-f]*'); do \
                          CUDA_VISIBLE_DEVICES=$one python3 $1; done";
    let versions = versions();
    for (real, card) in cuda_pairs(&versions, &["a100", "h100"]) {
        let (smi, script) = (real.smi(), real_file("instance.py"));
        let args = ["-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str(), script.as_os_str()];
        let seen = real.run(&["--gpu", card], Path::new("sh"), &args);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        let expected = match card {
            "a100" => {
                "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb 40192 14\nNVIDIA A100-SXM4-80GB MIG 1g.10gb 9728 14\n"
            }
            _ => {
                "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb 40448 16\nNVIDIA H100 80GB HBM3 MIG 1g.10gb 9984 16\n"
            }
        };
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{what}");
        let ours = |code: &str| code == "not-simulated" || code == "profile";
        assert!(!seen.diagnostics.iter().any(|(code, _)| ours(code)), "{what}");
    }
}

/// Cards on a board with NVSwitches reach each other by all of their links, those of H100 by a fabric.
#[test]
fn links_lead_to_switches() {
    let versions = versions();
    for (real, board) in pairs(&versions, &["hgx-a100", "hgx-h100"]) {
        let (links, rate) = if board == "hgx-a100" { (12, "25") } else { (18, "26.562") };
        let machine = ["--gpu", board, "--gpus", "8"];
        // The mode of bandwidth came with 535, and is of Hopper.
        let has_modes = board == "hgx-h100" && !real.version.starts_with("525.");
        let modes = "; $0 nvlink -sBwMode HALF; $0 nvlink -gBwMode; $0 nvlink -sLowPwrThres 200 -i 0; \
                     $0 nvlink -gLowPwrInfo -i 0";
        let modes = if has_modes { modes } else { "" };
        let script = "set -e; $0 nvlink -s; $0 topo -m; $0 nvlink -R -i 0; $0 nvlink -e -i 0; $0 nvlink -gt d -i 0; \
                      $0 nvlink -cBridge; $0 -q";
        let script = format!("{script}{modes}");
        let smi = real.smi();
        let args = ["-c".as_ref(), script.as_ref(), smi.as_os_str()];
        let seen = real.run(&machine, Path::new("sh"), &args);
        let what = format!("{} {board}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!(seen.code, Some(0), "{what}");
        assert!(!seen.diagnostics.iter().any(|(code, _)| code == "not-simulated"), "{what}");
        assert_eq!(seen.out.matches(&format!(": {rate} GB/s")).count(), 8 * links, "{what}");
        assert_eq!(seen.out.matches(&format!("NV{links}\t")).count(), 8 * 7, "{what}");
        assert_eq!(seen.out.matches("Remote Device 00000000:8").count(), links, "{what}");
        assert_eq!(seen.out.matches("Replay Errors: 0").count(), links, "{what}");
        assert_eq!(seen.out.matches("Data Tx: 0 KiB").count(), links, "{what}");
        assert_eq!(seen.out.contains("bandwidth mode: HALF"), has_modes, "{what}");
        let is_kept = seen.out.matches("Low Power Threshold: 200").count();
        assert_eq!(is_kept, if has_modes { links } else { 0 }, "{what}");
        // The first parts are those of all versions.
        let fabric: Vec<&str> = seen.out.split("\n    Fabric\n").skip(1).collect();
        assert_eq!(fabric.len(), 8, "{what}");
        let expected = if board == "hgx-h100" { ["Completed", "Success"] } else { ["N/A", "N/A"] };
        for lines in fabric {
            let told = lines.lines().take(2).filter_map(|line| line.split_once(" : "));
            assert_eq!(told.map(|(_, value)| value).collect::<Vec<_>>(), expected, "{what}");
        }
    }
}

/// The rows of `topo`: from each GPU to each other, then the CPUs and the node that are near.
fn matrix(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("GPU"));
    rows.map(|row| row.split_whitespace().skip(1).map(str::to_owned).collect()).collect()
}

/// Every path of PCIe, and every NVLink, is the one that the topology says.
#[test]
fn paths_are_those_of_the_topology() {
    let sockets = [
        "X PIX PXB PXB SYS SYS SYS SYS 0 0",
        "PIX X PXB PXB SYS SYS SYS SYS 0 0",
        "PXB PXB X PXB SYS SYS SYS SYS 0 0",
        "PXB PXB PXB X SYS SYS SYS SYS 0 0",
        "SYS SYS SYS SYS X PHB NODE NODE 1 1",
        "SYS SYS SYS SYS PHB X NODE NODE 1 1",
        "SYS SYS SYS SYS NODE NODE X NODE 1 1",
        "SYS SYS SYS SYS NODE NODE NODE X 1 1",
    ];
    for real in versions() {
        let ask = |topology: &str, card: &str, gpus: usize, args: &[&str]| {
            let count = gpus.to_string();
            let machine = ["--topology", topology, "--gpu", card, "--gpus", &count];
            let seen = real.run(&machine, &real.smi(), args);
            let what = format!("{} {topology} {}{:?}", real.version, seen.out, seen.diagnostics);
            assert_eq!(seen.code, Some(0), "{what}");
            let rows = matrix(&seen.out);
            assert_eq!(rows.len(), gpus, "{what}");
            (rows, what)
        };
        let (rows, what) = ask("dual-socket", "a100", 8, &["topo", "-m"]);
        // Where the real machine has not two CPUs, others are near.
        let told = if cpus() == 2 { 10 } else { 8 };
        for (row, expected) in rows.iter().zip(sockets) {
            let expected: Vec<&str> = expected.split(' ').take(told).collect();
            assert_eq!(row[..told], expected, "{what}");
        }
        assert_eq!((&rows[0][8], &rows[4][8]), (&rows[3][8], &rows[7][8]), "{what}");
        assert_ne!(rows[0][8], rows[4][8], "{what}");

        let (rows, what) = ask("linked-pair", "rtx3090", 2, &["topo", "-m"]);
        assert_eq!((rows[0][1].as_str(), rows[1][0].as_str()), ("NV4", "NV4"), "{what}");
        // Each link leads to that of the same number of the other card.
        let machine = ["--topology", "linked-pair", "--gpu", "rtx3090", "--gpus", "2"];
        let (smi, script) = (real.smi(), "$0 nvlink -s && $0 nvlink -R");
        let args = ["-c".as_ref(), script.as_ref(), smi.as_os_str()];
        let seen = real.run(&machine, Path::new("sh"), &args);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!(seen.out.matches(": 14.062 GB/s").count(), 8, "{what}");
        for (link, other) in (0..4).flat_map(|link| [(link, 1), (link, 2)]) {
            let line = format!("Link {link}: Remote Device 00000000:0{other}:00.0: Link {link}\n");
            assert_eq!(seen.out.matches(&line).count(), 1, "{line}: {what}");
        }

        let other = |text: &'static str| {
            move |(gpu, row): (usize, &Vec<String>)| {
                (0..8).all(|to| row[to] == if gpu == to { "X" } else { text })
            }
        };
        let (rows, what) = ask("dgx-a100", "a100", 8, &["topo", "-m"]);
        assert!(rows.iter().enumerate().all(other("NV12")), "{what}");
        // The paths of PCIe alone: pairs below switches, others at other nodes.
        let (rows, what) = ask("dgx-a100", "a100", 8, &["topo", "-mp"]);
        for (gpu, row) in rows.iter().enumerate() {
            assert_eq!(row[gpu ^ 1], "PXB", "{what}");
            assert_eq!(row.iter().take(8).filter(|path| *path == "SYS").count(), 6, "{what}");
        }
    }
}

/// The CPUs of the real machine.
fn cpus() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let last = online.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(0, |last| last + 1)
}

/// Public programs that read NVML show what there is, of the oldest and the newest version.
#[test]
fn public_programs_see_the_cards() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/exporter/scrape.py");
    let example = example.display();
    let script =
        format!("set -e; python3 -m gpustat --no-header; python3 -m nvitop -1; python3 {example}");
    let mut versions = versions();
    let newest = versions.len() - 1;
    versions.drain(1.min(newest)..newest);
    for real in versions {
        let tools = real.folder.with_file_name("tools");
        if !tools.join("nvitop_exporter").exists() {
            skip(Need::Real, "tests/real/fetch.sh got no gpustat and nvitop")
        }
        let script = format!("export PYTHONPATH='{}' TERM=dumb; {script}", tools.display());
        let machine = ["--gpu", "a100", "--gpu", "l4"];
        let seen = real.run(&machine, Path::new("sh"), &["-c", &script]);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!(seen.code, Some(0), "{what}");
        for expected in [
            "[0] NVIDIA A100-SXM4-80GB | 31",
            "[1] NVIDIA L4 ",
            "|     0 / 81920 MB |",
            "A100-SXM4-80GB       Off │ 00000000:01:00.0 Off │ Disabled           0 │",
            "0B / 80.00GiB",
            "gpu_power_limit_W{devicename=\"NVIDIA A100-SXM4-80GB\"",
            "gpu_temperature_C{devicename=\"NVIDIA L4\"",
        ] {
            assert!(seen.out.contains(expected), "{expected}: {what}");
        }
    }
}

/// The audit of one of the programs that `tests/real/programs.sh` runs; none where the version has no such program.
fn audited(real: &Real, program: &str) -> Option<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("audit");
    let script = real_file("programs.sh");
    let mut args: Vec<&OsStr> = ["sniff", "--audit", "--json", "--out"].map(OsStr::new).to_vec();
    args.extend([out.as_os_str(), "--".as_ref(), script.as_ref(), program.as_ref()]);
    args.push(real.folder.as_ref());
    let machine = ["--gpu", "a100", "--gpu", "l4"];
    let seen = real.run(&machine, Path::new(env!("CARGO_BIN_EXE_nvabi")), &args);
    let lines = std::fs::read_to_string(&out).unwrap_or_default();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = lines.iter().find(|line| line["call"] == "end");
    let code = end.and_then(|end| end["code"].as_i64());
    assert!(matches!(code, Some(0 | 77)), "{} {program}: {:?}", real.version, seen.diagnostics);
    lines.into_iter().find(|line| line["call"] == "audit" && code == Some(0))
}

/// Every call of NVIDIA's programs is as the lock has it: number, sizes, direction, handles and descriptors.
/// `tests/real/seen.py` writes the same results into docs/seen.md.
#[test]
fn every_call_is_as_the_lock_has_it() {
    // Each version has made two to four times as many calls.
    let least = [
        ("nvidia-smi", 400),
        ("nvidia-smi-mig", 700),
        ("nvml", 100),
        ("libcuda", 5000),
        ("opencl", 1000),
        ("gpustat", 30),
        ("nvitop", 30),
        ("nvtop", 80),
    ];
    println!(
        "version program ioctls escapes uvm commands classes disagreements unknown suspicions"
    );
    for real in versions() {
        for (program, least) in least {
            let Some(audit) = audited(&real, program) else { continue };
            let what = format!("{} {program}", real.version);
            let findings = audit["findings"].as_array().unwrap();
            let of = |gravity: &str| -> Vec<_> {
                findings.iter().filter(|finding| finding["gravity"] == gravity).collect()
            };
            let seen = |names: &str| audit["seen"][names].as_array().unwrap().len();
            let (calls, wrong) = (audit["calls"].as_u64().unwrap(), of("disagreement"));
            let names = ["escapes", "uvm", "commands", "classes"].map(seen).map(|n| n.to_string());
            let names = names.join(" ");
            let (unknown, suspicions) = (of("unknown").len(), of("suspicion").len());
            println!("{what} {calls} {names} {} {unknown} {suspicions}", wrong.len());
            assert!(wrong.is_empty(), "{what}: {wrong:#?}");
            assert!(calls >= least, "{what}: {calls} calls: {audit:#}");
        }
    }
}

#[test]
fn a_machine_can_be_mixed() {
    for real in versions() {
        let machine = ["--gpu", "a100", "--gpu", "l4", "--gpus", "2"];
        let seen = real.run(
            &machine,
            &real.smi(),
            &["--query-gpu=name,pci.bus_id", "--format=csv,noheader"],
        );
        let expected = "NVIDIA A100-SXM4-80GB, 00000000:01:00.0\nNVIDIA A100-SXM4-80GB, 00000000:02:00.0\n\
                        NVIDIA L4, 00000000:03:00.0\nNVIDIA L4, 00000000:04:00.0\n";
        assert_eq!(seen.out, expected, "{}: {:?}", real.version, seen.diagnostics);
    }
}

/// What a card is to a CUDA program: SMs, threads of one, capability, bits of the memory's bus, bytes of L2; from
/// NVIDIA's white papers and data sheets.
const DEVICES: [(&str, [u64; 6]); 4] = [
    ("rtx3090", [82, 1536, 8, 6, 384, 6 << 20]),
    ("a100", [108, 2048, 8, 0, 5120, 40 << 20]),
    ("h100", [132, 2048, 9, 0, 5120, 50 << 20]),
    ("l4", [58, 1536, 8, 9, 192, 48 << 20]),
];

/// libcuda's cuInit of this version refuses the simulated H100, and does not say why.
fn is_refused(real: &Real, card: &str) -> bool {
    ["h100", "hgx-h100"].contains(&card) && real.version.starts_with("525.")
}

#[test]
fn libcuda_knows_the_devices() {
    let script = real_file("cuda.py");
    for real in versions() {
        for (card, numbers) in DEVICES.iter().filter(|(card, _)| !is_refused(&real, card)) {
            let machine = ["--gpu", card, "--gpus", "2"];
            let seen = real.run(&machine, Path::new("python3"), &[&script]);
            let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
            assert_eq!((seen.code, &seen.diagnostics[..]), (Some(0), &[][..]), "{what}");
            let devices: Vec<serde_json::Value> = serde_json::from_str(&seen.out).unwrap();
            assert_eq!(devices.len(), 2, "{what}");
            for (at, device) in devices.iter().enumerate() {
                let name = CARDS.iter().find(|(other, _)| other == card).unwrap().1;
                assert_eq!(device["name"], name, "{what}");
                assert_eq!(device["pci"], format!("0000:{:02x}:00.0", at + 1), "{what}");
                let fields = [
                    "multiprocessors",
                    "threads_per_multiprocessor",
                    "major",
                    "minor",
                    "memory_bus_width",
                    "l2_size",
                ];
                let told = fields.map(|field| device[field].as_u64().unwrap());
                assert_eq!(&told, numbers, "{what}");
            }
            assert_ne!(devices[0]["uuid"], devices[1]["uuid"], "{what}");
        }
    }
}

/// A line of tests/real/attributes.txt: which branches of libcuda it holds for, and the values of each card.
struct Attribute<'a> {
    number: u32,
    branches: &'a str,
    values: [&'a str; CARDS.len()],
}

impl<'a> Attribute<'a> {
    fn parse(line: &'a str) -> Self {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [number, branches, values @ .., source, _name] = &words[..] else {
            panic!("no attribute: {line}")
        };
        let sources = ["guide", "sheet", "query", "machine", "library", "made-up"];
        assert!(sources.contains(source), "no source: {line}");
        let values =
            values.try_into().unwrap_or_else(|_| panic!("not a value for each card: {line}"));
        Self { number: number.parse().unwrap(), branches, values }
    }

    /// `*`, `-535`, `535` or `535-`.
    fn holds_for(&self, branch: u32) -> bool {
        let number = |text: &str| text.parse::<u32>().unwrap();
        match (self.branches.strip_prefix('-'), self.branches.strip_suffix('-')) {
            _ if self.branches == "*" => true,
            (Some(last), _) => branch <= number(last),
            (_, Some(first)) => branch >= number(first),
            _ => branch == number(self.branches),
        }
    }
}

#[test]
fn libcuda_tells_every_attribute() {
    let text = std::fs::read_to_string(real_file("attributes.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let table: Vec<Attribute<'_>> = lines.map(Attribute::parse).collect();
    for real in versions() {
        let branch = real.version.split('.').next().unwrap().parse().unwrap();
        // Those that are on a board with switches are no other cards.
        let mut cards: Vec<(usize, &str)> =
            CARDS.map(|(card, _)| card).into_iter().enumerate().collect();
        cards.extend([(1, "hgx-a100"), (2, "hgx-h100")]);
        cards.retain(|(_, card)| !is_refused(&real, card));
        for (at, card) in cards {
            let script = real_file("attributes.py");
            let seen = real.run(&["--gpu", card], Path::new("python3"), &[&script]);
            let what = format!("{} {card}", real.version);
            assert_eq!(
                (seen.code, &seen.diagnostics[..]),
                (Some(0), &[][..]),
                "{what}: {}",
                seen.out
            );
            let told = seen.out.lines().map(|line| line.split_once(' ').unwrap());
            for (number, value) in told {
                let known = table.iter().filter(|it| it.holds_for(branch));
                let known: Vec<_> = known.filter(|it| it.number.to_string() == number).collect();
                // CUDA_ERROR_INVALID_VALUE: this version has no such attribute.
                let expected = match &known[..] {
                    [] => "E1",
                    [one] => one.values[at],
                    _ => panic!("{what}: several lines are about {number}"),
                };
                assert_eq!(value, expected, "{what}: attribute {number}");
            }
        }
    }
}

/// A file of tests/real.
fn real_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/real").join(name)
}

/// Our kernels, as PTX.
fn ptx() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/kernels/ptx")
}

/// Contexts, copies, streams and events come back right on each card.
#[test]
fn libcuda_copies() {
    let versions = versions();
    on_each_pair(&versions, &[real_file("copies.py")], |_| "devices: 1\n".to_owned());
    // And on those that are on a board with switches.
    for (real, card) in cuda_pairs(&versions, &["hgx-a100", "hgx-h100"]) {
        real.script(card, &[real_file("copies.py")], "devices: 1\n");
    }
}

/// Random copies and fills of threads, in several streams, leave memory as a model of it has it.
#[test]
fn libcuda_does_what_a_model_does() {
    let script = real_file("model.py");
    for (real, card) in cuda_pairs(&versions(), &["l4", "h100"]) {
        // The same each time, but where all is checked: then what it was is told if it goes wrong.
        let seed = if is_whole() { std::process::id() } else { 1 }.to_string();
        let words = [script.as_os_str(), seed.as_ref(), "150".as_ref(), "3".as_ref()];
        real.script(card, &words, "devices: 1\n");
    }
}

/// From one device to another one, in contexts of each: over PCIe, over links, and by way of the host. A device's kernels
/// read and write what another one has, by contexts, and by memory and pools that it gives to them.
#[test]
fn libcuda_copies_between_devices() {
    let versions = versions();
    let alone = CARDS.iter().map(|(card, _)| ["--gpu", *card, "--gpus", "2"].to_vec());
    let linked = [
        ["--gpu", "hgx-a100", "--gpus", "8", "--topology", "dgx-a100"],
        ["--gpu", "a100", "--gpus", "2", "--topology", "linked-pair"],
        ["--gpu", "rtx3090", "--gpus", "2", "--topology", "linked-pair"],
    ];
    let machines: Vec<_> = alone
        .chain([["--gpu", "hgx-h100", "--gpus", "2"].to_vec()])
        .chain(linked.map(|machine| machine.to_vec()))
        .collect();
    for (at, machine) in machines.iter().enumerate() {
        let real = &versions[at % versions.len()];
        if is_refused(real, machine[1]) {
            continue;
        }
        // `topo -p2p r` says the same: GeForce cards do not reach each other without a bridge.
        let topology = real.run(machine, &real.smi(), &["topo", "-p2p", "r"]);
        let row = topology.out.lines().find(|line| line.trim().starts_with("GPU1"));
        let reaches = row.is_some_and(|row| row.split_whitespace().any(|word| word == "OK"));
        let is_geforce = machine[1] == "rtx3090" && machine.len() == 4;
        assert_eq!(reaches, !is_geforce, "{machine:?}: {}", topology.out);
        // CUDA_ERROR_INVALID_DEVICE, _PEER_ACCESS_UNSUPPORTED.
        let given = if reaches { "mapped: 0 pool: 0\n" } else { "mapped: 101 pool: 217\n" };
        let peers = format!("peers: {}\n", u8::from(reaches));
        for (part, expected) in [("peers", peers.as_str()), ("given", given)] {
            let script = real_file("copies.py");
            let words = [script.as_os_str(), part.as_ref(), "0".as_ref(), "1".as_ref()];
            let seen = real.run(machine, Path::new("python3"), &words);
            let what = format!("{} {machine:?}: {} {:?}", real.version, seen.out, seen.told);
            assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected), "{what}");
            assert!(seen.diagnostics.is_empty(), "{what}");
        }
    }
}

/// Contexts that dump when their user asks for it have the pipe by which it does.
#[test]
fn contexts_dump_for_their_user() {
    let (versions, script) = (versions(), real_file("copies.py"));
    let folder = tempfile::tempdir().unwrap();
    for (real, card) in cuda_pairs(&versions, &["a100", "h100"]) {
        let pipe = folder.path().join(format!("{}-{card}", real.version));
        let pipe = format!("CUDA_COREDUMP_PIPE={}", pipe.display());
        let wish = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1";
        let words = [wish.as_ref(), pipe.as_ref(), "python3".as_ref(), script.as_os_str()];
        let words = [&words[..], &["dumps".as_ref(), "0".as_ref()]].concat();
        let seen = real.run(&["--gpu", card], Path::new("env"), &words);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.told);
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), "dumps: 32 True\n"), "{what}");
        assert!(seen.diagnostics.is_empty(), "{what}");
    }
}

/// Who did not ask for access faults: CUDA_ERROR_ILLEGAL_ADDRESS.
#[test]
fn kernels_do_not_reach_devices_that_are_no_peers() {
    let versions = versions();
    for (real, card) in cuda_pairs(&versions, &["a100"]) {
        let script = real_file("copies.py");
        let words = [script.as_os_str(), OsStr::new("strangers"), OsStr::new("0"), OsStr::new("1")];
        let seen = real.run(&["--gpu", card, "--gpus", "2"], Path::new("python3"), &words);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!(seen.out, "strangers: 700\n", "{what}");
    }
}

/// Kernels that libcuda compiles, and its own, come to the results that are computed beside them.
#[test]
fn libcuda_launches() {
    on_each_pair(&versions(), &[real_file("kernels.py"), ptx()], |_| "devices: 1\n".to_owned());
}

/// A loop in a graph goes on by launches of the device's own until a kernel of it goes wrong, the fifth time.
#[test]
fn graphs_loop_by_launches_of_the_device() {
    let mut versions = versions();
    // Graphs have conditions since CUDA 12.3.
    versions.retain(|real| real.version.split('.').next().is_some_and(|it| it >= "545"));
    if versions.is_empty() {
        skip(Need::Real, "no version is of CUDA 12.3 or newer")
    }
    let (script, ptx) = (real_file("kernels.py"), ptx());
    // Those of Hopper do not run yet.
    let cards = CARDS.map(|(card, _)| card).into_iter().filter(|card| *card != "h100");
    for (real, card) in cuda_pairs(&versions, &cards.collect::<Vec<_>>()) {
        let args = [script.as_os_str(), ptx.as_os_str(), OsStr::new("endless")];
        let seen = real.run(&["--gpu", card], Path::new("python3"), &args);
        let what = format!("{} {card}: {:?}", real.version, seen.diagnostics);
        assert_eq!(seen.out, "endless 700 [5, 0]\n", "{what}");
        let [(code, told)] = &seen.diagnostics[..] else { panic!("{what}") };
        assert!(code == "kernel-error" && told.starts_with("Xid 31 "), "{what}");
    }
}

/// Grids that meet, and parts of blocks, by CUDA's own header.
#[test]
fn libcuda_launches_cooperative_groups() {
    on_compiled("groups", &["groups"], |mode, seen| {
        assert_eq!((seen.out.as_str(), &seen.diagnostics[..]), ("groups\n", &[][..]), "{mode}");
    });
}

/// Functions that libcuda gives to kernels are its own machine code: what is printed, allocated and asserted.
#[test]
fn libcuda_gives_functions_to_kernels() {
    on_compiled("functions", &["functions", "asserted"], |mode, seen| {
        let mut lines: Vec<&str> = seen.out.lines().collect();
        lines.sort_unstable();
        if mode == "functions" {
            assert_eq!(seen.diagnostics, []);
            // Once as PTX, and once as machine code.
            let mut expected: Vec<String> = (0..80).chain(0..80).filter_map(printed).collect();
            expected.push("functions".to_owned());
            expected.sort_unstable();
            assert_eq!(lines, expected);
            return;
        }
        // A GPU's libcuda says 710 of it. What its code for traps tells it, which is not run, is not public.
        assert_eq!(lines.pop(), Some("asserted 719"), "{}", seen.out);
        assert_eq!(lines.len(), 24, "{}", seen.out);
        for (line, thread) in lines.iter().zip(40..) {
            let end = format!("thread: [{thread},0,0] Assertion `threadIdx.x < limit` failed.");
            assert!(line.ends_with(&end), "{line}");
        }
        let [(code, text), (reset, xid)] = &seen.diagnostics[..] else {
            panic!("{:?}", seen.diagnostics)
        };
        assert!(
            code == "kernel-error" && text.ends_with("assertion: an assertion failed"),
            "{text}"
        );
        assert_eq!((reset.as_str(), xid.starts_with("Xid 43 ")), ("channel-reset", true), "{xid}");
    });
}

/// What a thread of `printed` prints.
fn printed(at: i64) -> Option<String> {
    match at % 3 {
        0 => Some(format!("{at}: {:.2} more {}", at as f64 * 1.5, -(1_i64 << 40) - at)),
        1 => Some(format!("{at}: {}%", char::from(b'a' + (at % 26) as u8))),
        _ => None,
    }
}

/// Kernels of tests/real/NAME.cu, as PTX of NVIDIA's compiler, which libcuda compiles for the device, and as machine code
/// of its assembler.
fn on_compiled(name: &str, modes: &[&str], check: impl Fn(&str, &Seen)) {
    let compiler = nvabi_test::cuda_13().join("bin/nvcc");
    let Some(cuda) = nvabi_test::cuda_if_any(&["bin/ptxas"]) else {
        skip(Need::Cuda, "no ptxas, and cuda/toolkit.sh could not fetch it")
    };
    let folder = tempfile::tempdir().unwrap();
    let file = |kind: &str| folder.path().join(name).with_extension(kind);
    let (ptx, cubin) = (file("ptx"), file("cubin"));
    let mut nvcc = Command::new(compiler);
    nvcc.args(["-ptx", "-arch=compute_80", "-o"]).arg(&ptx).arg(real_file(&format!("{name}.cu")));
    succeed(&mut nvcc);
    // It says a version that older drivers do not know, and uses nothing of it.
    let text = std::fs::read_to_string(&ptx).unwrap().replacen(".version 9.0", ".version 7.8", 1);
    std::fs::write(&ptx, text).unwrap();
    let (versions, script) = (versions(), real_file("kernels.py"));
    for (real, card) in cuda_pairs(&versions, &CARDS.map(|(card, _)| card)) {
        let arch = match card {
            "a100" => "80",
            "rtx3090" => "86",
            "l4" => "89",
            _ => "90",
        };
        let mut ptxas = Command::new(cuda.join("bin/ptxas"));
        succeed(ptxas.arg(format!("-arch=sm_{arch}")).arg(&ptx).arg("-o").arg(&cubin));
        for mode in modes {
            let args = [script.as_os_str(), folder.path().as_os_str(), OsStr::new(mode)];
            let seen = real.run(&["--gpu", card], Path::new("python3"), &args);
            println!("{} {card} {mode}", real.version);
            assert_eq!(seen.code, Some(0), "{} {:?}", seen.out, seen.diagnostics);
            check(mode, &seen);
        }
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What kernels read from textures, and what they leave in surfaces, is the same with the emulator's own libcuda, whose
/// arrays lie in rows.
#[test]
fn libcuda_reads_textures() {
    let (versions, script) = (versions(), real_file("textures.py"));
    let expected = emulated(&script);
    assert!(expected.lines().count() > 700, "{} lines", expected.lines().count());
    for (real, card) in cuda_pairs(&versions, &CARDS.map(|(card, _)| card)) {
        let seen = real.run(&["--gpu", card], Path::new("python3"), &[&script]);
        let what = format!("{} {card}", real.version);
        for (found, expected) in seen.out.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "{what}");
        }
        let end = seen.out.get(expected.len().min(seen.out.len())..);
        assert_eq!((seen.code, end), (Some(0), Some("")), "{what}: {:?}", seen.diagnostics);
        assert_eq!(seen.out.len(), expected.len(), "{what}");
        assert!(seen.diagnostics.is_empty(), "{what}: {:?}", seen.diagnostics);
    }
}

/// What a script of Python's writes with the emulator's libcuda.
fn emulated(script: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.envs(nvabi_test::libraries(&nvabi_test::EMULATOR));
    let output = command.args(["emu", "--", "python3"]).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Handles that lead nowhere, and what is not simulated, end the context and are named.
#[test]
fn textures_that_are_not_there_are_told() {
    let script = real_file("textures.py");
    // CUDA_ERROR_LAUNCH_FAILED, _ILLEGAL_ADDRESS.
    let mistakes = [
        ("empty", "tex_2d 719", 13, "it is empty"),
        ("srgb", "tex_2d 719", 13, "S_R_G_B_CONVERSION 1 is not simulated"),
        ("freed", "tex_2d 700", 31, "of a texture or surface, where there is no memory"),
        ("outside", "suld_2d_trap 700", 13, "at byte 256, row 7, plane 0: it has 64 × 64 × 1"),
    ];
    let versions = versions();
    let pairs = cuda_pairs(&versions, &CARDS.map(|(card, _)| card));
    for ((mistake, out, xid, text), (real, card)) in mistakes.iter().zip(pairs.iter().cycle()) {
        let args = [script.as_os_str(), OsStr::new(mistake)];
        let seen = real.run(&["--gpu", card], Path::new("python3"), &args);
        let what = format!("{} {card} {mistake}: {:?}", real.version, seen.diagnostics);
        assert_eq!(seen.out, format!("{out}\n"), "{what}");
        let [(code, told)] = &seen.diagnostics[..] else { panic!("{what}") };
        assert_eq!(code, "kernel-error");
        assert!(told.starts_with(&format!("Xid {xid} of GPU 0: channel")), "{what}");
        assert!(told.contains(text) && told.contains("SASS 0x"), "{what}");
    }
}

/// OpenCL has the platform and each card; buffers are copied, and a kernel is compiled and runs.
#[test]
fn opencl_copies_and_launches() {
    let versions = with_file(versions(), "lib/libnvidia-opencl.so.1");
    on_each_pair(&versions, &[real_file("opencl.py")], |name| format!("NVIDIA CUDA\n{name}\n"));
}

/// By OpenCL's loader, clinfo lists the platform and each card, and asks for every property of it.
#[test]
fn clinfo_lists_platform_and_devices() {
    const SCRIPT: &str = "export LD_LIBRARY_PATH=$0:$LD_LIBRARY_PATH OCL_ICD_VENDORS=libnvidia-opencl.so.1; \
                          $0/clinfo -l && $0/clinfo --raw | grep -w -e CL_DEVICE_NAME -e CL_DEVICE_MAX_COMPUTE_UNITS";
    let versions = with_file(versions(), "lib/libnvidia-opencl.so.1");
    let folder = versions[0].folder.with_file_name("clinfo");
    if !folder.join("clinfo").exists() {
        skip(Need::Real, format!("there is no {}", folder.display()))
    }
    let cards = [("a100", 108), ("rtx3090", 82), ("l4", 58), ("h100", 132)];
    for (real, card) in cuda_pairs(&versions, &cards.map(|(card, _)| card)) {
        let args = ["-c".as_ref(), SCRIPT.as_ref(), folder.as_os_str()];
        let seen = real.run(&["--gpu", card, "--gpus", "2"], Path::new("sh"), &args);
        let what = format!("{} {card}: {}{:?}", real.version, seen.out, seen.diagnostics);
        let (name, units) = (name_of(card), cards.iter().find(|(known, _)| *known == card));
        let list =
            format!("Platform #0: NVIDIA CUDA\n +-- Device #0: {name}\n `-- Device #1: {name}\n");
        let rest = seen.out.strip_prefix(&list).unwrap_or_else(|| panic!("{what}"));
        let values: Vec<&str> =
            rest.lines().filter_map(|line| line.rsplit_once("  ")).map(|it| it.1.trim()).collect();
        let units = units.map_or(String::new(), |(_, units)| units.to_string());
        assert_eq!(values, [name, &units, name, &units], "{what}");
        assert!(seen.code == Some(0) && seen.diagnostics.is_empty(), "{what}");
    }
}

/// CuPy finds a card of the newest version, and its arrays come back; it compiles no kernel here.
#[test]
fn cupy_copies() {
    let real = versions().into_iter().max_by(|one, other| one.version.cmp(&other.version)).unwrap();
    let cupy = real.folder.with_file_name("cupy");
    if !cupy.join("cupy").exists() {
        skip(Need::Real, format!("there is no {}", cupy.display()))
    }
    // -P: the folder of the script has a `cuda` of ours.
    let (path, script) = (cupy.display(), real_file("arrays.py"));
    let script = format!("PYTHONPATH='{path}' exec python3 -P '{}'", script.display());
    let seen = real.run(&["--gpu", "a100"], Path::new("sh"), &["-c", &script]);
    let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
    let expected = "devices: 1\nNVIDIA A100-SXM4-80GB sm_80\n";
    assert_eq!(
        (seen.code, seen.out.as_str(), !seen.diagnostics.is_empty()),
        (Some(0), expected, false),
        "{what}"
    );
}

/// PyTorch computes and learns on every card what it does on the host.
#[test]
fn pytorch_computes_as_on_the_host() {
    // It is made for CUDA 12.4.
    let version = |real: &Real| real.version.split('.').next().unwrap().parse::<u32>().unwrap();
    let Some(real) = versions().into_iter().filter(|real| version(real) >= 550).min_by_key(version)
    else {
        skip(Need::Real, "NVABI_REAL names no version from 550 on")
    };
    let Some(torch) = std::env::var_os("NVABI_TORCH") else {
        skip(Need::Torch, "NVABI_TORCH names no folder")
    };
    let torch = PathBuf::from(torch);
    assert!(torch.join("torch/version.py").exists(), "{} has no torch", torch.display());
    let script = real_file("pytorch.py");
    let script = format!("PYTHONPATH='{}' exec python3 -P '{}'", torch.display(), script.display());
    for (card, name) in CARDS {
        let seen = real.run(&["--gpu", card], Path::new("sh"), &["-c", &script]);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        let expected = format!("{name}\n45 tried, 0 wrong\n");
        assert_eq!((seen.code, seen.out.as_str()), (Some(0), expected.as_str()), "{what}");
        // What the checks say of kernels in NVIDIA's libraries is no error.
        let is_finding = |(code, _): &(String, String)| code == "kernel-finding";
        assert!(seen.diagnostics.iter().all(is_finding), "{what}");
    }
}

/// NVIDIA's library for profilers has the registers, the instrumented kernels and UVM's events that it asks for: it
/// records a kernel, copies, and each page that a GPU faults on.
#[test]
fn cupti_records_kernels_copies_and_moves() {
    let versions = versions();
    let cupti = versions[0].folder.with_file_name("cupti").join("lib/libcupti.so.12");
    if !cupti.exists() {
        skip(Need::Real, format!("there is no {}", cupti.display()))
    }
    let script = real_file("profile.py");
    for (real, card) in cuda_pairs(&versions, &["rtx3090", "h100"]) {
        let seen = real.run(&["--gpu", card], Path::new("python3"), &[&script, &cupti]);
        let what = format!("{} {card}: {} {:?}", real.version, seen.out, seen.diagnostics);
        let expected = "counted\nto the GPU: 1048576, to the host: 1048576, all inside: True\nfaults: 16\n\
                        kernels: 1, copies: 1, memsets: 1\n";
        assert_eq!(
            (seen.code, seen.out.as_str(), !seen.diagnostics.is_empty()),
            (Some(0), expected, false),
            "{what}"
        );
    }
}

/// A program that is killed in the middle of a copy gives all back, and the next one copies.
#[test]
fn a_killed_program_gives_its_memory_back() {
    let versions = versions_with_nvml();
    on_each_pair(&versions, &[real_file("killed.py")], |_| "devices: 1\n".to_owned());
}

/// One that ends, or is killed, while its own pages are copied is no error of the GPU.
#[test]
fn programs_may_end_in_a_copy_of_their_pages() {
    let mut versions = versions_with_nvml();
    versions.truncate(1);
    let script = real_file("killed.py");
    versions[0].script("a100", &[script.as_os_str(), OsStr::new("die")], "devices: 1\n");
}

/// Programs copy at one time, each its own bytes, while another one of them is killed in the middle of a copy.
#[test]
fn programs_copy_beside_one_that_is_killed() {
    let versions = versions_with_nvml();
    for (real, card) in cuda_pairs(&versions, &["l4", "h100"]) {
        real.script(card, &[real_file("together.py")], "devices: 1\n");
    }
}

/// Cards have their places on a board of eight, and some more memory without ECC.
#[test]
fn cards_have_modes_and_places() {
    for real in versions_with_nvml() {
        for (card, words) in [
            ("a100", &["1", "1", "81920", "81920"][..]),
            ("h100", &["1", "1", "81559", "81559"]),
            ("l4", &["0", "1", "23034", "24570"]),
            ("rtx3090", &["0", "0", "24576"]),
        ] {
            let script = real_file("modes.py").into_os_string();
            let words: Vec<_> = [script].into_iter().chain(words.iter().map(Into::into)).collect();
            real.script_on(&["--gpu", card, "--gpus", "8"], &words, "devices: 8\n");
        }
    }
}

/// A GPU is busy while programs launch kernels or copy, and with their work.
#[test]
fn programs_keep_a_gpu_busy() {
    let versions = versions_with_nvml();
    for (real, card) in cuda_pairs(&versions, &["l4", "rtx3090", "a100", "h100"]) {
        real.script(card, &[real_file("busy.py"), ptx()], "devices: 1\n");
    }
}

/// NVML's metrics of performance are those of what a program keeps busy, and nvidia-smi shows them.
#[test]
fn metrics_of_performance_are_had() {
    let versions = versions_with_nvml();
    for real in cuda_pairs(&versions, &["h100"]).into_iter().map(|(real, _)| real) {
        let script = [real_file("gpm.py"), "python3".into(), real_file("kernels.py"), ptx()];
        real.script("h100", &script, "devices: 1\n");
        // Rows have no values where there is one sample, or where nvidia-smi came late to the second one.
        let table = real.ask("h100", &["dmon", "--gpm-metrics", "1,2,10", "-c", "6"]);
        let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        assert!(rows.any(|row| row.ends_with(&["0", "0", "0"])), "{}: {table}", real.version);
        assert!(real.ask("h100", &["gpm", "-g"]).contains("DISABLED"), "{}", real.version);
    }
}

/// The daemon that lets programs share a card starts, answers and quits.
#[test]
fn mps_answers() {
    const SCRIPT: &str = "export CUDA_MPS_PIPE_DIRECTORY=$1 CUDA_MPS_LOG_DIRECTORY=$1; $0 -d; \
                          echo get_server_list | $0 && echo get_default_active_thread_percentage | $0 && \
                          echo quit | $0 && ! echo get_server_list | $0 && \
                          grep -q 'Cmd:get_server_list' $1/control.log && grep -o 'Exit with status.*' $1/control.log";
    for real in with_file(versions(), "bin/nvidia-cuda-mps-control") {
        let folder = tempfile::tempdir().unwrap();
        let control = real.folder.join("bin/nvidia-cuda-mps-control");
        let words = [OsStr::new("-c"), SCRIPT.as_ref(), control.as_ref(), folder.path().as_ref()];
        let seen = real.run(&["--gpu", "a100"], Path::new("sh"), &words);
        // No program has asked for a server: the list is empty.
        let told = (seen.code, seen.out.as_str());
        assert_eq!(told, (Some(0), "100.0\nExit with status 0\n"), "{}", real.version);
        assert!(seen.diagnostics.is_empty(), "{}: {:?}", real.version, seen.diagnostics);
    }
}

/// The versions that have a file: the archive has not every package of each.
fn with_file(mut versions: Vec<Real>, file: &str) -> Vec<Real> {
    versions.retain(|real| real.folder.join(file).exists());
    if versions.is_empty() {
        skip(Need::Real, format!("no version has {file}"))
    }
    versions
}

/// What a card is called.
fn name_of(card: &str) -> &str {
    CARDS.iter().find(|(known, _)| *known == card).map_or(card, |(_, name)| name)
}

/// Runs a script of Python's on machines with one device: it ends well, says what is expected of a card of that name,
/// and nothing is told.
fn on_each_pair(versions: &[Real], script: &[PathBuf], expected: impl Fn(&str) -> String) {
    for (real, card) in cuda_pairs(versions, &CARDS.map(|(card, _)| card)) {
        real.script(card, script, &expected(name_of(card)));
    }
}

/// A kernel that goes wrong ends its context at once, with its Xid and its place.
#[test]
fn kernels_that_go_wrong_are_told() {
    let (script, ptx) = (real_file("kernels.py"), ptx());
    // CUDA_ERROR_ILLEGAL_ADDRESS, _MISALIGNED_ADDRESS, _LAUNCH_FAILED.
    let mistakes = [
        ("null_pointer", 700, 31, "out of bounds: 4 bytes at 0x0, a null pointer"),
        ("misaligned", 716, 13, "misaligned: 4 bytes at"),
        ("trapped", 719, 13, "trap: the kernel executed `trap`"),
    ];
    for real in versions() {
        for (mistake, error, xid, text) in mistakes {
            let args = [script.as_os_str(), ptx.as_os_str(), OsStr::new(mistake)];
            let seen = real.run(&["--gpu", "l4"], Path::new("python3"), &args);
            assert_eq!(seen.out, format!("{mistake} {error}\n"), "{:?}", seen.diagnostics);
            let [(code, told)] = &seen.diagnostics[..] else { panic!("{:?}", seen.diagnostics) };
            assert_eq!(code, "kernel-error");
            assert!(told.starts_with(&format!("Xid {xid} of GPU 0: channel")), "{told}");
            assert!(told.contains(text) && told.contains("SASS 0x"), "{told}");
        }
    }
}

#[test]
fn nvml_answers_every_function() {
    let versions = versions_with_nvml();
    let script = real_file("nvml.py");
    let text = std::fs::read_to_string(real_file("nvml.txt")).unwrap();
    let table = statuses(&text);
    for real in versions {
        for card in reviewed_cards() {
            let seen = real.run(&["--gpu", card], Path::new("python3"), &[&script]);
            let what = format!("{} {card}", real.version);
            assert_eq!(seen.code, Some(0), "{what}: ends with {:?}", seen.out.lines().last());
            let unknown = seen.diagnostics.iter().filter(|(code, _)| code == "value-not-known");
            assert_eq!(unknown.collect::<Vec<_>>(), [] as [&(String, String); 0], "{what}");
            let wrong = wrong_statuses(&table, &real.version, card, &seen.out);
            assert!(wrong.is_empty(), "{what}, tests/real/nvml.txt:\n{}", wrong.join("\n"));
            let answered = seen.out.lines().filter(|row| !row.contains("\tARGUMENTS\t")).count();
            assert!(answered >= 300, "{what}: {answered} functions were called");
        }
    }
}

/// Every function about instances answers where there are some, but for streams of metrics, which are not simulated.
#[test]
fn nvml_answers_of_instances() {
    let script = real_file("instances.py");
    for real in versions() {
        let seen = real.run(&["--gpu", "h100"], Path::new("python3"), &[&script]);
        let what = format!("{}: {} {:?}", real.version, seen.out, seen.diagnostics);
        assert_eq!(seen.code, Some(0), "{what}");
        let rows: Vec<Vec<&str>> =
            seen.out.lines().map(|line| line.split('\t').collect()).collect();
        assert!(rows.len() > 30, "{what}");
        for row in &rows {
            let is_metrics = row[0] == "nvmlGpmMigSampleGet";
            let expected = if is_metrics { "NOT_SUPPORTED" } else { "SUCCESS" };
            assert_eq!(row[1], expected, "{}: {what}", row[0]);
        }
        // A quarter has two GPCs of 16 SMs, so that another of one slice fits beside the first.
        for row in [
            ["nvmlDeviceGetGpuInstanceProfileInfo", "SUCCESS", "[14, 0, 2, 3, 32]"],
            ["nvmlGpuInstanceGetComputeInstanceProfileInfo", "SUCCESS", "[0, 1, 2, 16]"],
            ["nvmlGpuInstanceGetComputeInstancePossiblePlacements", "SUCCESS", "[2]"],
            ["nvmlDeviceGetGpuInstanceId", "SUCCESS", "[5]"],
            ["nvmlDeviceGetAttributes_v2", "SUCCESS", "[16]"],
        ] {
            assert!(rows.iter().any(|own| own == &row), "{row:?}: {what}");
        }
    }
}

/// What tests/real/nvml.txt says of a function: its status by `BRANCH.CARD`, `BRANCH`, `CARD`, or nothing.
type Statuses<'a> = BTreeMap<&'a str, &'a str>;

/// The rows of tests/real/nvml.txt.
fn statuses(text: &str) -> BTreeMap<&str, Statuses<'_>> {
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = rows.map(|row| {
        let mut words = row.split_whitespace();
        let (function, why) = (words.next().unwrap(), words.next().unwrap());
        let all: Statuses<'_> =
            words.map(|word| word.split_once('=').unwrap_or(("", word))).collect();
        assert!(all.contains_key(""), "{row}: there is no status of all cards");
        let is_well = all.values().all(|status| *status == "SUCCESS");
        assert_eq!(is_well, why == "-", "{row}: the second word is not why");
        (function, all)
    });
    read.collect()
}

/// What NVML answers otherwise than the table says. Of a branch that the table does not know, a function may answer
/// what it answers anywhere, and a new function whatever NVML's documentation has for what a machine lacks.
fn wrong_statuses(
    table: &BTreeMap<&str, Statuses<'_>>,
    version: &str,
    card: &str,
    out: &str,
) -> Vec<String> {
    const BRANCHES: [&str; 4] = ["525", "535", "550", "555"];
    const DOCUMENTED: [&str; 6] =
        ["SUCCESS", "NOT_SUPPORTED", "INVALID_ARGUMENT", "NOT_FOUND", "TIMEOUT", "NO_PERMISSION"];
    let branch = version.split('.').next().unwrap_or_default();
    let is_known = BRANCHES.contains(&branch);
    let wrong = |row: &str| {
        let mut columns = row.split('\t');
        let (function, status) = (columns.next()?, columns.next().unwrap_or("nothing: it ended"));
        let Some(all) = table.get(function) else {
            let is_fine = !is_known && DOCUMENTED.contains(&status);
            return (!is_fine)
                .then(|| format!("{function}: {status}, and the table has no row of it"));
        };
        let model = card.strip_prefix("hgx-").unwrap_or(card);
        let keys = [&format!("{branch}.{model}"), branch, card, model, ""];
        let expected = keys.iter().find_map(|key| all.get(key))?;
        let is_fine = status == *expected || !is_known && all.values().any(|it| *it == status);
        (!is_fine).then(|| format!("{function}: {status}, the table has {expected}"))
    };
    out.lines().filter_map(wrong).collect()
}

/// Statuses that NVML's documentation does not list, of functions that it describes: all are the library's own answer to
/// what it was called with, before it asks the driver, but for the last two.
const UNDOCUMENTED: [&str; 6] = [
    "nvmlDeviceGetGridLicensableFeatures_v4 NOT_SUPPORTED",
    "nvmlGpmMigSampleGet INVALID_ARGUMENT",
    "nvmlVgpuInstanceClearAccountingPids NOT_FOUND",
    "nvmlVgpuTypeGetMaxInstances NOT_SUPPORTED",
    // The card has none, as its siblings say.
    "nvmlDeviceGetRowRemapperHistogram NOT_SUPPORTED",
    // It has no stream.
    "nvmlGpmSampleGet NOT_SUPPORTED",
];

/// The statuses that a comment of NVML's header lists for each function. Functions of which it lists none, such as
/// older forms, are left out.
fn documented(header: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found = BTreeMap::new();
    for part in header.split("/**").skip(1) {
        let Some((comment, code)) = part.split_once("*/") else { continue };
        let code = code.trim_start();
        let function = code.strip_prefix("nvmlReturn_t DECLDIR ").and_then(|it| it.split_once('('));
        let listed: BTreeSet<&str> = (comment.split("NVML_").skip(1))
            .filter_map(|word| word.split(|c: char| !c.is_ascii_uppercase() && c != '_').next())
            .filter_map(
                |word| if word == "SUCCESS" { Some(word) } else { word.strip_prefix("ERROR_") },
            )
            .collect();
        if let (Some((name, _)), false) = (function, listed.is_empty()) {
            found.insert(name, listed);
        }
    }
    found
}

/// Each status of each card is one that NVML's documentation has for the function.
#[test]
fn statuses_are_documented() {
    let header = versions()[0].folder.with_file_name("nvml").join("nvml.h");
    let Ok(header) = std::fs::read_to_string(&header) else {
        skip(Need::Real, format!("there is no {}", header.display()))
    };
    let documented = documented(&header);
    let text = std::fs::read_to_string(real_file("nvml.txt")).unwrap();
    let (mut checked, mut undocumented) = (0, BTreeSet::new());
    for (function, all) in statuses(&text) {
        let Some(listed) = documented.get(function) else { continue };
        checked += 1;
        // `ARGUMENTS` was not called.
        let called =
            all.values().filter(|status| **status != "ARGUMENTS" && !listed.contains(*status));
        undocumented.extend(called.map(|status| format!("{function} {status}")));
    }
    assert!(checked > 300, "{checked}");
    assert_eq!(undocumented, UNDOCUMENTED.map(str::to_owned).into());
}

#[test]
fn other_statuses_are_found() {
    let table =
        statuses("a - SUCCESS\nb card NOT_SUPPORTED l4=SUCCESS 535=TIMEOUT 525.l4=NOT_FOUND");
    let wrong = |version, card, out| wrong_statuses(&table, version, card, out).len();
    assert_eq!(wrong("550.1", "l4", "a\tSUCCESS\t\nb\tSUCCESS\t1"), 0);
    assert_eq!(wrong("550.1", "l4", "a\tNOT_SUPPORTED\t\nb\tNOT_SUPPORTED\t"), 2);
    assert_eq!(wrong("550.1", "h100", "b\tNOT_SUPPORTED\t"), 0);
    assert_eq!(wrong("550.1", "h100", "b\tSUCCESS\t"), 1);
    assert_eq!(wrong("525.1", "l4", "b\tNOT_FOUND\t"), 0);
    assert_eq!(wrong("525.1", "l4", "b\tSUCCESS\t"), 1);
    assert_eq!(wrong("535.1", "l4", "b\tTIMEOUT\t"), 0);
    assert_eq!(wrong("535.1", "h100", "b\tNOT_SUPPORTED\t"), 1);
    // New functions, and those that end the program.
    assert_eq!(wrong("550.1", "l4", "c\tSUCCESS\t\na"), 2);
    // Branches that the table does not know.
    assert_eq!(wrong("570.1", "h100", "b\tSUCCESS\t\nc\tNOT_SUPPORTED\t"), 0);
    assert_eq!(wrong("570.1", "h100", "b\tUNKNOWN\t\nc\tUNKNOWN\t\na\tNOT_SUPPORTED\t"), 3);
}

/// What nvidia-smi and NVML write of a card, by their names.
type Written = [(&'static str, String); 2];

/// A line of tests/real/differ.txt: the program, and what its line begins with.
fn may_differ(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = lines.map(|line| {
        let (program, rest) = line.split_once(' ').unwrap();
        let (begin, _why) = rest.trim_start().split_once("  ").unwrap();
        (program, begin)
    });
    read.collect()
}

impl Real {
    /// Both programs, one after the other; with `around` before them.
    fn both(&self, card: &str, around: &[&OsStr]) -> (Written, String) {
        let folder = tempfile::tempdir().unwrap();
        let script = real_file("nvml.py");
        let script = format!(
            "{} -q > {at}/smi; python3 {} > {at}/nvml",
            self.smi().display(),
            script.display(),
            at = folder.path().display()
        );
        let mut words: Vec<&OsStr> = around.to_vec();
        words.extend(["sh", "-c", &script].map(OsStr::new));
        let seen = self.run(&["--gpu", card], Path::new(words[0]), &words[1..]);
        let what = format!("{} {card}: {:?}", self.version, seen.diagnostics);
        assert_eq!(seen.code, Some(0), "{what}");
        let read = |name| (name, std::fs::read_to_string(folder.path().join(name)).unwrap());
        (["smi", "nvml"].map(read), what)
    }

    /// Records a card, makes a profile of that, and gives what programs write of both.
    fn recorded(&self, card: &str) -> [Written; 2] {
        let folder = tempfile::tempdir().unwrap();
        let (record, made) = (folder.path().join("gpu.rec"), folder.path().join("made.toml"));
        let nvabi = env!("CARGO_BIN_EXE_nvabi");
        let mut around =
            [nvabi, "sniff", "--method", "ptrace", "--record"].map(OsStr::new).to_vec();
        around.extend([record.as_os_str(), OsStr::new("--")]);
        let (first, what) = self.both(card, &around);
        let output = Command::new(nvabi).args(["rm", "profile"]).arg(&record).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{what}: {told}");
        let (_, count) = told.lines().last().unwrap().split_once(": ").unwrap();
        let numbers: Vec<&str> = count.split(' ').collect();
        assert_eq!(numbers[0], numbers[2], "{what}: {told}");
        std::fs::write(&made, &output.stdout).unwrap();
        let made = made.to_str().unwrap();
        let check = Command::new(nvabi)
            .args(["rm", "check", made, "--tag", &self.version])
            .output()
            .unwrap();
        assert_eq!(
            check.status.code(),
            Some(0),
            "{what}: {}",
            String::from_utf8_lossy(&check.stderr)
        );
        // Settings are settings, not what was seen of them.
        if card == "a100" {
            assert_eq!(after_settings(self, made), SET, "{what}");
        }
        [first, self.both(made, &[]).0]
    }
}

/// `nvabi rm profile` of a recording is the card that was recorded, as far as programs show it.
#[test]
fn a_recorded_card_is_the_same_card() {
    let versions = versions_with_nvml();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/real");
    let text = std::fs::read_to_string(folder.join("differ.txt")).unwrap();
    let known = may_differ(&text);
    let mut is_used = vec![false; known.len()];
    let other = folder.join("other.toml");
    let cards: Vec<&str> = CARDS.map(|(card, _)| card).into_iter().chain(other.to_str()).collect();
    for (real, card) in pairs(&versions, &cards) {
        let [first, second] = real.recorded(card);
        for ((program, first), (_, second)) in first.iter().zip(&second) {
            let what = format!("{} {card} {program}", real.version);
            assert_eq!(first.lines().count(), second.lines().count(), "{what}:\n{first}\n{second}");
            for (a, b) in first.lines().zip(second.lines()).filter(|(a, b)| a != b) {
                let fits =
                    |(of, begin): &(&str, &str)| of == program && a.trim_start().starts_with(begin);
                let at = known.iter().position(fits);
                let at = at
                    .unwrap_or_else(|| panic!("{what}: `{a}` is `{b}`: see tests/real/differ.txt"));
                is_used[at] = true;
            }
        }
    }
    for ((program, begin), is_used) in known.iter().zip(is_used) {
        assert!(is_used, "{program} {begin} differs no more: remove it from tests/real/differ.txt");
    }
}

/// A card of which CUDA was recorded has what CUDA asks for, with drivers of other branches too.
#[test]
fn a_card_is_recorded_with_cuda() {
    let versions = versions_with_nvml();
    for (real, card) in cuda_pairs(&versions, &CARDS.map(|(card, _)| card)) {
        let folder = tempfile::tempdir().unwrap();
        let [record, made] = ["gpu.rec", "made.toml"].map(|name| folder.path().join(name));
        let (nvabi, cuda) = (env!("CARGO_BIN_EXE_nvabi"), real_file("cuda.py"));
        let script = format!(
            "{nvabi} sniff --method ptrace --record {} -- sh -c '{} -q >&2; exec python3 {}'",
            record.display(),
            real.smi().display(),
            cuda.display()
        );
        let first = real.run(&["--gpu", card], Path::new("sh"), &["-c", &script]);
        let what = format!("{} {card}: {} {:?}", real.version, first.out, first.diagnostics);
        assert!(first.code == Some(0) && first.out.contains("multiprocessors"), "{what}");
        let output = Command::new(nvabi).args(["rm", "profile"]).arg(&record).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{what}: {told}");
        std::fs::write(&made, &output.stdout).unwrap();
        let machine = ["--gpu", made.to_str().unwrap()];
        let second = real.run(&machine, Path::new("python3"), &[&cuda]);
        assert_eq!((second.code, &second.out), (Some(0), &first.out), "{what}: {}", second.told);
        for other in &versions {
            let list = other.run(&machine, &other.smi(), &["-L"]);
            assert_eq!(list.code, Some(0), "{what}: {}: {}", other.version, list.told);
        }
    }
}

/// `nvidia-smi -q` without the instances, the time, the bytes that go over the bus, and what a profile replaces.
fn whole_card(text: &str) -> Vec<&str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut is_instance = false;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.retain(|line| {
        is_instance = line.trim() == "MIG Device" || is_instance && indent(line) > 4;
        let others = ["Timestamp", "Serial Number", "Tx Throughput", "Rx Throughput"];
        let is_other = others.iter().any(|it| line.trim().starts_with(it));
        !is_instance && !is_other
    });
    lines
}

/// The answers of a divided card's instances are not the card's.
#[test]
fn a_divided_card_is_recorded_whole() {
    for real in &versions() {
        let folder = tempfile::tempdir().unwrap();
        let [record, made] = ["gpu.rec", "made.toml"].map(|name| folder.path().join(name));
        let (nvabi, smi) = (env!("CARGO_BIN_EXE_nvabi"), real.smi().display().to_string());
        let script = format!(
            "set -e; {{ {smi} -mig 1; {smi} mig -cgi 9,14 -C; }} >&2; \
             {nvabi} sniff --method ptrace --record {} -- {smi} -q",
            record.display()
        );
        let first = real.run(&["--gpu", "h100"], Path::new("sh"), &["-c", &script]);
        let what = format!("{}: {:?}", real.version, first.diagnostics);
        assert_eq!(first.code, Some(0), "{what}");
        assert_eq!(first.out.matches("MIG Device").count(), 2, "{what}: {}", first.out);
        let output = Command::new(nvabi).args(["rm", "profile"]).arg(&record).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{what}: {told}");
        assert!(told.contains("Note the GPU was divided: instances 2, 3 and "), "{what}: {told}");
        std::fs::write(&made, &output.stdout).unwrap();
        let second = real.run(&["--gpu", made.to_str().unwrap()], &real.smi(), &["-q"]);
        assert_eq!(second.code, Some(0), "{what}: {:?}", second.diagnostics);
        assert_eq!(whole_card(&first.out), whole_card(&second.out), "{what}");
    }
}

/// What a recording does not have, or has twice, is told.
#[test]
fn a_recording_of_several_cards_needs_a_choice() {
    let versions = versions();
    // What is told is our own: it does not differ with each version.
    for real in [&versions[0], &versions[versions.len() - 1]] {
        let folder = tempfile::tempdir().unwrap();
        let record = |args: &str, name: &str| {
            let path = folder.path().join(name);
            let command = format!(
                "{} sniff --method ptrace --record {} -- {} {args}",
                env!("CARGO_BIN_EXE_nvabi"),
                path.display(),
                real.smi().display()
            );
            let machine = ["--gpu", "a100", "--gpu", "l4"];
            let seen = real.run(&machine, Path::new("sh"), &["-c", &command]);
            assert_eq!(seen.code, Some(0), "{} {args}: {:?}", real.version, seen.diagnostics);
            path
        };
        let profile = |path: &Path, more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
            let output = command.args(["rm", "profile"]).arg(path).args(more).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        let what = &real.version;
        let both = record("-q", "both.rec");
        let (code, text, told) = profile(&both, &[]);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{what}: {told}");
        let all = "0 0000:01:00.0 NVIDIA A100-SXM4-80GB, 1 0000:02:00.0 NVIDIA L4";
        assert!(told.contains(&format!("several GPUs that differ: {all}")), "{what}: {told}");
        for (choice, name) in [
            ("0", "A100-SXM4-80GB"),
            ("1", "L4"),
            ("02:00.0", "L4"),
            ("0000:01:00.0", "A100-SXM4-80GB"),
        ] {
            let (code, text, told) = profile(&both, &["--gpu", choice]);
            assert_eq!(code, Some(0), "{what} {choice}: {told}");
            assert!(
                text.contains(&format!("\nname = \"NVIDIA {name}\"\n")),
                "{what} {choice}: {text}"
            );
            // Neither serial number, nor an identity, nor where it was.
            for part in ["1320322", "6e766162", "0000:0"] {
                assert!(!text.contains(part), "{what} {choice}: {part}\n{text}");
            }
        }
        let (code, _, told) = profile(&both, &["--gpu", "2"]);
        assert_eq!(code, Some(2));
        assert!(told.contains(&format!("there is no GPU 2: {all}")), "{what}: {told}");
        let (code, text, told) = profile(&record("-L", "list.rec"), &["--gpu", "0"]);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{what}: {told}");
        assert!(told.contains("memory.size: NV2080_CTRL_CMD_FB_GET_INFO_V2"), "{what}: {told}");
        assert!(told.contains("nvabi sniff --method ptrace --record"), "{what}: {told}");
    }
}

/// A program that asks the driver for its version as it is forked, and after it has opened the device again.
const FORKED: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def version(fd):
    text = ctypes.create_string_buffer(b"2\0\0\0", 72)
    done = libc.ioctl(fd, ctypes.c_ulong(0xc04846d2), text)
    return ctypes.get_errno() if done else 0
fd = libc.open(b"/dev/nvidiactl", 2)
assert version(fd) == 0
if os.fork() == 0:
    before = version(fd)
    own = libc.open(b"/dev/nvidiactl", 2)
    assert version(own) == 0 and version(fd) == 22
    print(f"child: {before}, opens its own", flush=True)
    os._exit(0)
assert os.wait()[1] == 0 and version(fd) == 0
"#;

/// A simulated machine with one program that makes the calls of others: the example of a proxy.
struct Proxied<'a> {
    real: &'a Real,
    /// For messages.
    what: String,
    name: String,
    folder: tempfile::TempDir,
    proxy: PathBuf,
    device: Child,
}

impl<'a> Proxied<'a> {
    fn begin(real: &'a Real, card: &str, examples: &Path) -> Self {
        let (folder, what) = (tempfile::tempdir().unwrap(), format!("{} {card}", real.version));
        let name = format!("proxy-{}", std::process::id());
        let up = ["up", &name, "--tag", &real.version, "--gpu", card];
        let up = rm(real, folder.path(), &up.map(OsStr::new)).output().unwrap();
        let told = String::from_utf8_lossy(&up.stderr);
        if told.contains("does not permit") {
            skip(Need::Supervise, told.trim())
        }
        assert!(up.status.success(), "{what}: {told}");
        let at = |name: &str| folder.path().join(name).into_os_string();
        let (proxy, socket, report) = (examples.join("proxy"), at("socket"), at("device"));
        let log = std::fs::File::create(at("log")).unwrap();
        let words = [OsStr::new("run"), OsStr::new(&name), OsStr::new("--report"), &report];
        let mut device = rm(real, folder.path(), &words)
            .args([OsStr::new("--"), proxy.as_ref(), OsStr::new("devices"), &socket])
            .arg(&real.version)
            .stderr(log)
            .spawn()
            .unwrap();
        let began = Instant::now();
        while !Path::new(&socket).exists() {
            let is_gone = device.try_wait().unwrap().is_some();
            assert!(
                !is_gone && began.elapsed() < Duration::from_secs(60),
                "{what}: nobody listens"
            );
            thread::sleep(Duration::from_millis(10));
        }
        Self { real, what, name, folder, proxy, device }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program whose calls are carried, and the report of its own calls under a name.
    fn run(&self, report: &str, words: &[&OsStr]) -> Output {
        let (report, socket) = (self.at(report), self.at("socket"));
        let own = [OsStr::new("run"), OsStr::new(&self.name), OsStr::new("--report")];
        rm(self.real, self.folder.path(), &own)
            .args([report.as_os_str(), OsStr::new("--"), self.proxy.as_ref()])
            .args([OsStr::new("run"), socket.as_ref()])
            .args(words)
            .output()
            .unwrap()
    }

    /// Ends the machine, when all of its GPU's memory is back; what who makes the calls has said.
    fn end(&mut self) -> String {
        let rm = |words: &[&str]| {
            let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
            rm(self.real, self.folder.path(), &words)
        };
        let began = Instant::now();
        loop {
            // Who makes the calls ends when nobody has them made any more.
            let status = rm(&["status", &self.name, "--json"]).output().unwrap();
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
            let used = status[0]["gpus"][0]["used"].as_u64();
            if used == Some(0) {
                break;
            }
            let is_late = began.elapsed() > Duration::from_secs(30);
            assert!(!is_late, "{}: {used:?} bytes stay", self.what);
            thread::sleep(Duration::from_millis(10));
        }
        assert!(rm(&["down", &self.name]).status().unwrap().success(), "{}", self.what);
        self.device.wait().unwrap();
        std::fs::read_to_string(self.at("log")).unwrap()
    }
}

/// The command on machines of a folder, with a version's libraries.
fn rm(real: &Real, folder: &Path, words: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.arg("rm").args(words).env("XDG_RUNTIME_DIR", folder);
    command.env("LD_LIBRARY_PATH", real.folder.join("lib"));
    command
}

/// libcuda's calls are carried by the example of a proxy: who makes them is another process, on the same machine.
#[test]
fn libcuda_copies_through_a_proxy() {
    let versions = versions();
    let examples = proxy();
    for (real, card) in cuda_pairs(&versions, &["rtx3090", "h100"]) {
        let mut proxied = Proxied::begin(real, card, &examples);
        let what = proxied.what.clone();
        let python = OsStr::new("python3");
        let done = proxied.run("front", &[python, real_file("copies.py").as_ref()]);
        let forked = proxied.run("forked", &[python, OsStr::new("-c"), OsStr::new(FORKED)]);
        let said = String::from_utf8_lossy(&forked.stdout);
        assert_eq!(said, "child: 22, opens its own\n", "{what}: {forked:?}");
        let told = String::from_utf8_lossy(&forked.stderr);
        assert!(told.contains("opened before this process was forked"), "{what}: {told}");
        let log = proxied.end();
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(String::from_utf8_lossy(&done.stdout), "devices: 1\n", "{what}: {told}{log}");
        // Nothing but mappings of what the other process opened.
        let [front, device] = ["front", "device"].map(|name| calls(&proxied.at(name)));
        assert_eq!(front.keys().collect::<Vec<_>>(), ["mmap"], "{what}");
        assert!(device.len() > 80, "{what}: {device:?}");
        assert!(!log.contains("refused") && !told.contains("refused"), "{what}: {told}{log}");
    }
}

/// A card is divided, its instances are listed and used, and it is made whole again, all by programs whose calls are
/// carried: they say what they say without the proxy.
#[test]
fn instances_are_used_through_a_proxy() {
    const SCRIPT: &str = "set -e; $0 -mig 1; $0 mig -lgip; $0 mig -cgi 19,14,5 -C; $0 mig -lgi; $0 mig -lci; $0 -L; \
                          for one in $($0 -L | grep -o 'MIG-[-0-9a-f]*'); do CUDA_VISIBLE_DEVICES=$one python3 $1; \
                          done; $0 mig -dci; $0 mig -dgi; $0 -mig 0";
    let mut versions = versions();
    versions.retain(|real| ["535.", "550."].iter().any(|branch| real.version.starts_with(branch)));
    if versions.is_empty() {
        skip(Need::Real, "NVABI_REAL names neither 535 nor 550")
    }
    let examples = proxy();
    for (real, card) in pairs(&versions, &["a100", "h100"]) {
        let (smi, script) = (real.smi(), real_file("instance.py"));
        let words =
            ["sh".as_ref(), "-c".as_ref(), SCRIPT.as_ref(), smi.as_os_str(), script.as_ref()];
        let direct = real.run(&["--gpu", card], Path::new("sh"), &words[1..]);
        let mut proxied = Proxied::begin(real, card, &examples);
        let done = proxied.run("front", &words);
        let (log, what) = (proxied.end(), &proxied.what);
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(String::from_utf8_lossy(&done.stdout), direct.out, "{what}: {told}{log}");
        assert_eq!((direct.code, done.status.code()), (Some(0), Some(0)), "{what}: {told}{log}");
        assert_eq!(direct.out.matches("NVIDIA ").count(), 4, "{what}: {}", direct.out);
        let front = calls(&proxied.at("front"));
        assert_eq!(front.keys().collect::<Vec<_>>(), ["mmap"], "{what}");
        assert!(!log.contains("refused") && !told.contains("refused"), "{what}: {told}{log}");
    }
}

/// How many calls of each name a report counts.
fn calls(report: &Path) -> BTreeMap<String, u64> {
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let calls = report["calls"].as_object().unwrap();
    calls.iter().map(|(name, it)| (name.clone(), it["total"].as_u64().unwrap())).collect()
}

/// The folder of the examples: the proxy and what it loads into a program.
fn proxy() -> PathBuf {
    let built = Command::new(env!("CARGO"))
        // As the tests are built, so that it is built already: of one package, what it needs has other features.
        .args(["build", "--quiet", "--locked", "--profile", "test", "--workspace"])
        .args(["--features", "nvabi-cli/all"])
        .args(["--example", "proxy", "--example", "proxy_preload"])
        .status()
        .unwrap();
    assert!(built.success());
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples")
}
