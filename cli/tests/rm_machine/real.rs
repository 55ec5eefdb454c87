//! NVIDIA's own nvidia-smi beside other programs on one machine. NVABI_REAL lists folders with versions of it, as
//! `tests/real/fetch.sh` prints them.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nvabi_test::{Need, skip};

use crate::lab::{Done, Lab, PASSED, Program, play};
use crate::shared::hold;

/// A version of NVIDIA's user space.
struct Real {
    version: String,
    folder: PathBuf,
}

/// All that NVABI_REAL names, by line or between colons.
fn versions() -> Vec<Real> {
    let named = std::env::var("NVABI_REAL").unwrap_or_default();
    let folders = named.split([':', '\n']).map(str::trim).filter(|folder| !folder.is_empty());
    let all: Vec<Real> = folders.map(Real::at).collect();
    if all.is_empty() {
        skip(Need::Real, "NVABI_REAL names no folder");
    }
    all
}

impl Real {
    fn at(folder: &str) -> Self {
        let folder = PathBuf::from(folder);
        let version = folder.file_name().unwrap().to_str().unwrap().to_owned();
        Self { version, folder }
    }

    fn smi(&self, lab: &Lab, args: &[&str]) -> Done {
        let mut command = lab.command(&["run", "lab", "--"]);
        command.arg(self.folder.join("bin/nvidia-smi")).args(args);
        command.env("LD_LIBRARY_PATH", self.folder.join("lib")).output().unwrap().into()
    }
}

#[test]
fn nvidia_smi_sees_what_others_have_and_set() {
    const TEST: &str = "rm_machine::real::nvidia_smi_sees_what_others_have_and_set";
    play("hold", hold);
    for real in versions() {
        let version = real.version.as_str();
        let lab = Lab::up(&["--gpu", "a100", "--tag", version]);
        let smi = |args: &[&str]| real.smi(&lab, args);
        let ask = |what: &str| smi(&[what, "--format=csv,noheader"]).out;
        assert_eq!(ask("--query-compute-apps=pid,used_memory"), "", "{version}");
        let (holder, line) =
            Program::begin(lab.client(TEST, "hold"), |line| line.starts_with("held"));
        let process = line.rsplit(' ').next().unwrap();
        let apps = ask("--query-compute-apps=pid,used_memory");
        assert_eq!(apps, format!("{process}, 64 MiB\n"), "{version}");
        assert_eq!(ask("--query-gpu=memory.used"), "64 MiB\n", "{version}");
        let all = smi(&["-q", "-d", "PIDS"]).out;
        assert!(all.contains(&format!(": {process}\n")), "{version}: {all}");
        assert_eq!(smi(&["-pm", "1"]).code, Some(0), "{version}");
        assert_eq!(ask("--query-gpu=persistence_mode"), "Enabled\n", "{version}");
        assert_eq!(holder.end().code, Some(PASSED));
        lab.programs(0);
        assert_eq!(ask("--query-compute-apps=pid,used_memory"), "", "{version}");
        assert_eq!(ask("--query-gpu=persistence_mode"), "Enabled\n", "{version}");
    }
}

/// A health check by NVML that waits while something happens: `tests/real/health.py`.
struct Check {
    program: Program,
    lab: Lab,
    what: String,
}

impl Check {
    fn begin(real: &Real, card: &str) -> Self {
        let lab = Lab::up(&["--tag", &real.version, "--gpu", "a100", "--gpu", card]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/real/health.py");
        let mut command = lab.command(&["run", "lab", "--", "python3"]);
        command.arg(script).env("LD_LIBRARY_PATH", real.folder.join("lib"));
        command.env("PYTHONPATH", real.folder.with_file_name("python"));
        let (program, _) = Program::begin(command, |line| line == "armed");
        Self { program, lab, what: format!("{} {card}", real.version) }
    }

    fn say(&mut self, word: &str) -> String {
        writeln!(self.program.child.stdin.as_mut().unwrap(), "{word}").unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.program.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn inject(&self, args: &[&str]) {
        let done = self.lab.rm(&[&["inject", "lab", "--gpu", "1"], args].concat());
        assert_eq!(done.code, Some(0), "{}: {args:?}: {}", self.what, done.told);
    }

    /// What the check that already waits is told.
    fn wait_for(&mut self, args: &[&str]) -> String {
        assert_eq!(self.say("wait"), "waiting", "{}", self.what);
        std::thread::sleep(Duration::from_millis(50));
        self.inject(args);
        self.line()
    }

    /// What NVML says of the second GPU; nothing happens to the first.
    fn look(&mut self) -> String {
        let seen = self.say("look");
        let (first, second) = seen.split_once("; ").unwrap();
        assert_eq!(first, "0 0 0 0 31 0x1", "{}", self.what);
        second.to_owned()
    }
}

/// What is injected into the second of two GPUs, as NVIDIA's device plugin would hear of it.
#[test]
fn a_health_check_hears_of_what_is_injected() {
    let versions = versions();
    if !versions[0].folder.with_file_name("python").join("pynvml.py").exists() {
        skip(Need::Real, "there is no pynvml.py")
    }
    // Each with its errors, if it has ECC, and the temperature from which on it slows down.
    let cards = [
        ("l4", "0 0 0 0", 87),
        ("rtx3090", "None None None None", 95),
        ("h100", "0 0 0 0", 89),
        ("a100", "0 0 0 0", 89),
    ];
    // Each version with a card and each card with a version.
    for at in 0..versions.len().max(cards.len()) {
        let real = &versions[at % versions.len()];
        let (card, errors, limit) = cards[at % cards.len()];
        let mut check = Check::begin(real, card);
        let what = check.what.clone();
        // NVML's types: Xid, single bit, double bit.
        assert_eq!(check.wait_for(&["xid", "31"]), "event 1 8 31", "{what}");
        let mut errors = errors;
        if errors == "0 0 0 0" {
            assert_eq!(check.wait_for(&["ecc"]), "event 1 1 0", "{what}");
            let uncorrected = ["ecc", "--uncorrected", "--count", "3"];
            assert_eq!(check.wait_for(&uncorrected), "event 1 2 0", "{what}");
            errors = "1 3 1 3";
        }
        assert_eq!(check.say("heat"), "False; False", "{what}");
        // Heat: the hardware slows down, because of heat; at rest, older versions show no reason.
        for (degrees, is_slow) in [(limit, true), (limit - 1, false)] {
            check.inject(&["temperature", &degrees.to_string()]);
            let seen = check.look();
            let (begin, reasons) = seen.rsplit_once(" 0x").unwrap();
            assert_eq!(begin, format!("{errors} {degrees}"), "{what}");
            let reasons = u32::from_str_radix(reasons, 16).unwrap();
            assert_eq!(reasons & !1, if is_slow { 0x48 } else { 0 }, "{what}");
        }
        assert_eq!(check.say("heat"), "False; True", "{what}");
        let asked = "--query-gpu=temperature.gpu,ecc.errors.corrected.volatile.total,\
             ecc.errors.uncorrected.aggregate.total";
        let table = real.smi(&check.lab, &[asked, "--format=csv,noheader", "-i", "1"]);
        let shown = match errors {
            "1 3 1 3" => "1, 3",
            _ => "[N/A], [N/A]",
        };
        assert_eq!(table.out, format!("{}, {shown}\n", limit - 1), "{what}: {}", table.told);

        if errors == "1 3 1 3" {
            // Counters since the driver was loaded are reset by themselves.
            assert_eq!(real.smi(&check.lab, &["-i", "1", "-p", "0"]).code, Some(0), "{what}");
            assert!(check.look().starts_with("0 0 1 3 "), "{what}");
        }

        assert_eq!(check.wait_for(&["lost"]), "event 1 8 79", "{what}");
        assert_eq!(check.look(), "GPU is lost", "{what}");
        let list = real.smi(&check.lab, &["-L"]);
        assert_eq!(list.code, Some(15), "{what}: {}", list.out);
        let told = "Unable to determine the device handle for gpu 0000:02:00.0: GPU is lost.";
        assert!(list.out.starts_with("GPU 0: NVIDIA A100"), "{what}: {}", list.out);
        assert!(list.out.contains(told), "{what}: {}", list.out);
        let Check { program, lab, .. } = check;
        assert_eq!(program.end().code, Some(0), "{what}");
        // Nobody has it open any more, and it cannot be started again.
        lab.programs(0);
        let list = real.smi(&lab, &["-L"]);
        assert_eq!((list.code, list.out.lines().count()), (Some(0), 1), "{what}: {}", list.out);
        assert!(!list.told.contains("not-simulated"), "{what}: {}", list.told);
    }
}

/// Errors of the memory in the chip: of the whole card, and of one instance of a divided one.
#[test]
fn errors_of_sms_are_shown_where_they_are() {
    const PLACES: [&str; 2] = [
        "--query-gpu=ecc.errors.uncorrected.volatile.sram",
        "--query-gpu=ecc.errors.corrected.aggregate.sram",
    ];
    for (at, real) in versions().iter().enumerate() {
        let (version, card) = (&real.version, ["h100", "a100"][at % 2]);
        let lab = Lab::up(&["--gpu", card, "--tag", version]);
        let inject = |args: &[&str]| {
            let done = lab.rm(&[&["inject", "lab", "ecc", "--sram"], args].concat());
            assert_eq!(done.code, Some(0), "{version}: {args:?}: {}", done.told);
        };
        let smi = |args: &[&str]| {
            let done = real.smi(&lab, args);
            assert_eq!(done.code, Some(0), "{version}: {args:?}: {}", done.told);
            done.out
        };
        let counted = || PLACES.map(|place| smi(&[place, "--format=csv,noheader"]));
        assert_eq!(counted(), ["0\n", "0\n"], "{version}");
        inject(&["--uncorrected", "--count", "3"]);
        inject(&["--count", "2"]);
        assert_eq!(counted(), ["3\n", "2\n"], "{version}");
        let told = smi(&["-q", "-d", "ecc"]);
        let counts = |name: &str| {
            let lines = told.lines().filter(|line| line.trim().starts_with(name));
            lines.filter_map(|line| line.rsplit(": ").next()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(counts("SRAM Correctable"), ["2", "2"], "{version}: {told}");
        // Since 535 it says of how they were found.
        let uncorrected = [counts("SRAM Uncorrectable  "), counts("SRAM Uncorrectable SEC-DED")];
        assert_eq!(uncorrected.concat(), ["3", "3"], "{version}: {told}");

        smi(&["-mig", "1"]);
        smi(&["mig", "-cgi", "9,14", "-C"]);
        // What each instance shows, in their order.
        let shown = || {
            let told = smi(&["-q"]);
            let devices = told.split("MIG Device").skip(1);
            let of_device = devices.map(|text| {
                let (_, count) = text.split_once("SRAM Uncorrectable").unwrap();
                count.lines().next().unwrap().trim_matches([' ', ':']).to_owned()
            });
            of_device.collect::<Vec<_>>()
        };
        assert_eq!(shown(), ["0", "0"], "{version}");
        inject(&["--uncorrected", "--count", "3", "--instance", "2"]);
        inject(&["--instance", "3"]);
        assert_eq!(shown(), ["1", "0"], "{version}: whether there was one");
        smi(&["-p", "0"]);
        assert_eq!(shown(), ["0", "0"], "{version}");
        inject(&["--uncorrected", "--instance", "3"]);
        assert_eq!(shown(), ["0", "1"], "{version}: the other's is forgotten");
        for (args, told) in [
            (&["--instance", "7"][..], "GPU 0 has no instance 7: it has 2, 3"),
            (&[], "GPU 0 is divided: name the instance whose SMs have the error, of 2, 3"),
        ] {
            let done = lab.rm(&[&["inject", "lab", "ecc", "--sram"], args].concat());
            assert_eq!(done.code, Some(2), "{version}: {}", done.told);
            assert!(done.told.contains(told), "{version}: {}", done.told);
        }
    }
}
