//! Specs and lock that the command carries, those of a checkout and those of `--specs`: which one a
//! command reads, and where it writes.
#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::SystemTime;

use nvabi_pipeline::lock::{self, Fact};
use nvabi_test::{Need, skip};

test_main!();

/// The specs that the command was built from.
fn specs() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("abi-specs").canonicalize().unwrap()
}

/// A copy of the command where no checkout is, and an empty folder beside it.
struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        // By a program of its own: a child that another test starts meanwhile would have the copy open for writing,
        // and what somebody writes cannot be run.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_nvabi")).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        Self { folder }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("nvabi")
    }

    /// The empty folder.
    fn empty(&self) -> PathBuf {
        self.folder.path().join("empty")
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_in(&self.empty(), args)
    }

    fn run_in(&self, folder: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(self.program());
        command.current_dir(folder).env_remove("NVABI_HEADERS").args(args).output().unwrap()
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A checkout with Jetson's specs and lock, where one constant has another value.
fn edited_checkout() -> (tempfile::TempDir, String) {
    let checkout = tempfile::tempdir().unwrap();
    let folder = checkout.path().join("abi-specs");
    fs::create_dir(&folder).unwrap();
    for entry in fs::read_dir(specs()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("tegra") {
            fs::copy(&path, folder.join(name)).unwrap();
        }
    }
    let (mut locked, _) = lock::read(&lock::folder(&specs(), "tegra")).unwrap();
    let items = locked.headers.values_mut().flat_map(|header| &mut header.items);
    let at_all_tags = items.filter(|(_, history)| history.len() == 1);
    let (name, fact) = at_all_tags
        .filter_map(|((_, name), history)| Some((name, &mut history[0].value.as_mut()?.fact)))
        .find(|(_, fact)| matches!(***fact, Fact::Constant(_)))
        .unwrap();
    *fact = Arc::new(Fact::Constant(0xABCDEF));
    let name = name.clone();
    lock::write(&lock::folder(&folder, "tegra"), &locked).unwrap();
    (checkout, name)
}

/// Every file below a folder and when it was written.
fn files(folder: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.insert(entry.path(), entry.metadata().unwrap().modified().unwrap());
        }
    }
    found
}

/// What the command says without a checkout is what it says of the specs it was built from.
#[test]
fn a_copied_command_answers_without_a_checkout() {
    let installed = Installed::new();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let log = tests.join("decode/desktop.strace");
    let table = tests.join("coverage/table.json");
    let params = "00".repeat(32);
    let cases: &[(&[&str], i32)] = &[
        (&["show", "NVOS54_PARAMETERS"], 0),
        (&["show", "nvgpu_as_alloc_space_args", "--json"], 0),
        (&["show", "0x20801358", "--tag", "595.45.04"], 0),
        (&["list", "ioctls", "--tag", "tegra-r36.4"], 0),
        (&["list", "classes"], 0),
        (&["diff", "535.43.02", "535.43.08"], 1),
        (&["diff", "530.41.03", "535.43.02", "--only", "NVOS21_PARAMETERS"], 1),
        (&["ranges", "nvmap_create_handle"], 0),
        (&["ranges", "--family", "tegra", "--nearest", "tegra-r36.4.3"], 0),
        (&["coverage", table.to_str().unwrap()], 0),
        (&["decode", "struct", "NVOS54_PARAMETERS", &params], 0),
        (&["decode", "strace", log.to_str().unwrap()], 0),
        (&["lint", "tegra-r36"], 0),
    ];
    for (args, status) in cases {
        let answer = installed.run(args);
        assert_eq!(answer.status.code(), Some(*status), "{args:?}: {}", err(&answer));
        assert!(!err(&answer).contains("Using"), "{args:?}: {}", err(&answer));
        let mut with_specs = args.to_vec();
        let specs = specs();
        with_specs.extend(["--specs", specs.to_str().unwrap()]);
        let same = installed.run(&with_specs);
        let told = err(&same).contains(&format!("Using {}", specs.display()));
        assert_eq!(told, !args.contains(&"--json"), "{args:?}: {}", err(&same));
        assert!(out(&answer) == out(&same), "{args:?} says something else without a checkout");
    }
    assert!(out(&installed.run(cases[0].0)).starts_with("struct NVOS54_PARAMETERS {"));
}

#[test]
fn a_copied_command_writes_the_atlas() {
    let installed = Installed::new();
    let atlas = installed.run(&["atlas", "--family", "tegra", "--out", "atlas"]);
    assert_eq!(atlas.status.code(), Some(0), "{}", err(&atlas));
    assert!(installed.empty().join("atlas/index.html").is_file());
}

#[test]
fn a_copied_command_simulates_both_machines() {
    let installed = Installed::new();
    let program = installed.program();
    let program = program.to_str().unwrap();
    let machines: [(&[&str], &str); 2] = [
        (
            &[
                "rm",
                "sim",
                "--tag",
                "535.183.01",
                "--",
                "sh",
                "-c",
                "cat /proc/driver/nvidia/version",
            ],
            "535.183.01",
        ),
        (&["tegra", "sim", "--", program, "tegra", "probe"], "GPFIFO class"),
    ];
    for (args, shown) in machines {
        let run = installed.run(args);
        if run.status.code() == Some(2) && err(&run).contains("seccomp") {
            skip(Need::Supervise, err(&run));
        }
        assert_eq!(run.status.code(), Some(0), "{args:?}: {}", err(&run));
        assert!(out(&run).contains(shown), "{args:?}: {}", out(&run));
    }
}

#[test]
fn nothing_is_written_where_no_checkout_is() {
    let installed = Installed::new();
    let before = files(&specs());
    for args in
        [&["lock"][..], &["lock", "550.163.01"], &["lock", "--driver", "550"], &["add", "599.1"]]
    {
        let refused = installed.run(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", err(&refused));
        assert!(err(&refused).contains("error[specs-embedded]"), "{args:?}: {}", err(&refused));
        assert!(err(&refused).contains("name the folder of the specs with --specs"));
        assert_eq!(out(&refused), "");
    }
    assert!(files(&installed.empty()).is_empty());
    assert!(
        files(&specs()) == before,
        "the checkout that the command was built from was written to"
    );
}

#[test]
fn a_checkout_and_given_specs_go_first() {
    let installed = Installed::new();
    let (checkout, name) = edited_checkout();
    let (folder, deep) = (checkout.path().join("abi-specs"), checkout.path().join("a/b"));
    fs::create_dir_all(&deep).unwrap();
    let show = ["show", &name, "--tag", "tegra-r36.4"];
    let edited = |output: &Output| {
        assert_eq!(output.status.code(), Some(0), "{}", err(output));
        out(output).starts_with(&format!("#define {name} 0xabcdef "))
    };
    assert!(!edited(&installed.run(&show)));
    // In it, below it, and from anywhere.
    let here = installed.run_in(checkout.path(), &show);
    assert!(edited(&here) && err(&here).contains("Using abi-specs\n"), "{}", err(&here));
    let below = installed.run_in(&deep, &show);
    assert!(edited(&below), "{}", out(&below));
    let path = folder.canonicalize().unwrap();
    assert!(err(&below).contains(&format!("Using {}", path.display())), "{}", err(&below));
    let given = [&show[..], &["--specs", folder.to_str().unwrap()]].concat();
    assert!(edited(&installed.run(&given)));
    // What is given goes before what one stands in.
    let specs = specs();
    let others = [&given[..4], &["--specs", specs.to_str().unwrap()]].concat();
    assert!(!edited(&installed.run_in(checkout.path(), &others)));
    // A folder of that name without specs makes no checkout.
    fs::create_dir(installed.empty().join("abi-specs")).unwrap();
    let other = installed.run(&show);
    assert!(!edited(&other) && !err(&other).contains("Using"), "{}", err(&other));
}

#[test]
fn nothing_to_check_is_an_error() {
    let installed = Installed::new();
    let none = installed.empty();
    let none = none.to_str().unwrap();
    let empty_lock = tempfile::tempdir().unwrap();
    fs::write(empty_lock.path().join("tegra-r99.toml"), "driver = \"tegra-r99\"\n").unwrap();
    lock::write(&lock::folder(empty_lock.path(), "tegra"), &lock::Lock::default()).unwrap();
    let empty_lock = empty_lock.path().to_str().unwrap();
    for (args, told) in [
        (&["verify", "--specs", none][..], "there is no spec"),
        (&["lint", "--specs", none], "there is no spec"),
        (&["verify", "--family", "none"], "no drivers are called `none`"),
        (&["lint", "--family", "none"], "no drivers are called `none`"),
        (&["verify", "--specs", empty_lock, "--headers", none], "there is nothing to verify"),
    ] {
        let refused = installed.run(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", err(&refused));
        assert!(err(&refused).contains(told), "{args:?}: {}", err(&refused));
        assert!(!err(&refused).contains("Ok"), "{args:?}: {}", err(&refused));
    }
}
