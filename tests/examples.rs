//! The crates in `examples/` build and run, and a changed one does not: the message says where.
//!
//! They are built as a stranger builds them, by cargo, without the network, in a target folder that they share
//! with `tests/packages.rs` and `tests/readers`, or in the workspace's own.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may stop where it stands")]

#[macro_use]
extern crate nvabi_test;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_test::{Need, skip};

test_main!();

/// What cargo, or what it ran, outcome.
struct Outcome {
    success: bool,
    stdout: String,
    stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        Self {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("examples")
}

fn target() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("outside")
}

/// Runs cargo in a crate. The lock file of an example is committed: it must fit, and it must not change here.
fn cargo(folder: &Path, args: &[&str], env: &[(&str, &Path)]) -> Outcome {
    cargo_unlocked(folder, &[args, &["--locked"]].concat(), env)
}

fn cargo_unlocked(folder: &Path, args: &[&str], env: &[(&str, &Path)]) -> Outcome {
    cargo_to(&target(), folder, args, env)
}

fn cargo_to(target: &Path, folder: &Path, args: &[&str], env: &[(&str, &Path)]) -> Outcome {
    let outcome: Outcome = Command::new(env!("CARGO"))
        .args(args)
        .arg("--offline")
        .arg("--target-dir")
        .arg(target)
        .current_dir(folder)
        .envs(env.iter().copied())
        .env("CARGO_TERM_COLOR", "never")
        // Nobody debugs them, and it takes a third of the time of building them.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .output()
        .expect("cargo runs this test, so it runs")
        .into();
    let absent = ["attempting to make an HTTP request", "you may use the `--offline` flag"];
    if !outcome.success && absent.iter().any(|text| outcome.stderr.contains(text)) {
        skip(Need::Crates, format!("{} needs crates that are not downloaded", folder.display()));
    }
    outcome
}

#[test]
fn the_shim_runs() {
    let outcome = cargo(&examples().join("shim"), &["run"], &[]);
    assert!(outcome.success, "{}", outcome.stderr);
    for (own, driver, size) in [
        ("ObjectId", "NvHandle", "4"),
        ("Control", "NVOS54_PARAMETERS", "32"),
        ("MapMemory", "nv_ioctl_nvos33_parameters_with_fd", "56"),
        ("VidHeapControl", "NVOS32_PARAMETERS", "184"),
        ("RegisterGpuVaSpace", "UVM_REGISTER_GPU_VASPACE_PARAMS", "32"),
        ("UuidTable", "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "16"),
        ("UuidTableV2", "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "24"),
    ] {
        let row = row(&outcome.stdout, own);
        assert_eq!(row[1..3], [driver, size], "{}", outcome.stdout);
    }
    let command = row(&outcome.stdout, "0x00000275");
    assert_eq!(command[1], "NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID", "{}", outcome.stdout);
}

/// The words of the line that starts with `first`.
fn row<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    match rows.find(|row| row.first() == Some(&first)) {
        Some(row) => row,
        None => panic!("no row `{first}` in\n{text}"),
    }
}

/// Mistakes that a person makes in `params.rs`: the lines, what is written instead, and all that
/// the compiler must then say.
const MISTAKES: [(&str, &str, &[&str]); 3] = [
    // Two fields of one width change places: every size stays the same.
    (
        "    #[nvproxy(name = \"cmd\")]\n    pub command: u32,\n    pub flags: u32,\n",
        "    pub flags: u32,\n    #[nvproxy(name = \"cmd\")]\n    pub command: u32,\n",
        &[
            "Control.command is at offset 12, but the driver has NVOS54_PARAMETERS.cmd at 8 (550.40.07, ",
            "Control.flags is at offset 8, but the driver has NVOS54_PARAMETERS.flags at 12 (550.40.07, ",
        ],
    ),
    // A field that the driver does not have moves those after it.
    (
        "    #[nvproxy(name = \"rmCtrlFd\")]\n",
        "    pub _gap: u32,\n    #[nvproxy(name = \"rmCtrlFd\")]\n",
        &[
            "RegisterGpuVaSpace._gap is padding of 4 bytes at offset 16, but the driver has UVM_REGISTER_GPU_VASPACE_PARAMS.rmCtrlFd of 4 bytes at 16 (",
            "RegisterGpuVaSpace.control_fd is at offset 20, but the driver has UVM_REGISTER_GPU_VASPACE_PARAMS.rmCtrlFd at 16 (",
            "RegisterGpuVaSpace is 36 bytes, but the driver's UVM_REGISTER_GPU_VASPACE_PARAMS is 32 (",
        ],
    ),
    // Two fields change places in a struct that is compared leaf by leaf.
    (
        "    pub length: u64,\n    #[nvproxy(name = \"pLinearAddress\")]\n    pub linear_address: P64,\n",
        "    #[nvproxy(name = \"pLinearAddress\")]\n    pub linear_address: P64,\n    pub length: u64,\n",
        &[
            "MapMemory.linear_address has P64 (8 bytes) at offset 24, but the driver has nv_ioctl_nvos33_parameters_with_fd.params.length there as ",
            "MapMemory.length has u64 (8 bytes) at offset 32, but the driver has nv_ioctl_nvos33_parameters_with_fd.params.pLinearAddress there as ",
        ],
    ),
];

/// The workspace's own folder, which has much of what an example is made of. What is built there must take the place of
/// nothing that is built for other tests.
fn own() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("..")
}

/// Of smithay without its backends, which need more libraries of the system to link.
#[test]
fn smithay_takes_device_memory() {
    let folder = examples().join("smithay");
    let outcome = cargo_to(&own(), &folder, &["test", "--lib", "--locked"], &[]);
    if !outcome.success && outcome.stderr.contains("-lxkbcommon") {
        let outcome = cargo_to(&own(), &folder, &["check", "--locked"], &[]);
        assert!(outcome.success, "{}", outcome.stderr);
        skip(Need::Xkbcommon, "no libxkbcommon to link: it compiles, and was not run");
    }
    assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("1 passed"), "{}", outcome.stdout);
}

#[test]
fn a_changed_shim_does_not_build() {
    let copy = scratch().join("changed-shim");
    copy_shim(&copy);
    let params = copy.join("src/params.rs");
    let mut text = fs::read_to_string(&params).expect("it was copied");
    for (lines, instead, _) in MISTAKES {
        assert_eq!(text.matches(lines).count(), 1, "params.rs no longer has\n{lines}");
        text = text.replace(lines, instead);
    }
    fs::write(&params, text).expect("the scratch folder is writable");
    let outcome = cargo(&copy, &["build", "--lib"], &[]);
    assert!(!outcome.success, "it builds although it is wrong");
    let wanted: Vec<&str> = MISTAKES.iter().flat_map(|(.., texts)| texts.iter().copied()).collect();
    for text in &wanted {
        assert!(outcome.stderr.contains(text), "not in the output: {text}\n{}", outcome.stderr);
    }
    // What is right is not complained of.
    let complaints = outcome.stderr.matches(", but the driver").count();
    assert_eq!(complaints, wanted.len(), "{}", outcome.stderr);
}

/// Copies the shim to a folder where its path to nvabi has to be absolute.
fn copy_shim(to: &Path) {
    let from = examples().join("shim");
    fs::create_dir_all(to.join("src")).expect("the scratch folder is writable");
    for file in ["Cargo.lock", "src/lib.rs", "src/main.rs", "src/params.rs"] {
        fs::copy(from.join(file), to.join(file)).expect("the example has these files");
    }
    let manifest = fs::read_to_string(from.join("Cargo.toml")).expect("the example has a manifest");
    let path = format!("path = {:?}", env!("CARGO_MANIFEST_DIR"));
    let changed = manifest.replace("path = \"../..\"", &path);
    assert_ne!(manifest, changed, "the example names nvabi by another path");
    fs::write(to.join("Cargo.toml"), changed).expect("the scratch folder is writable");
}

/// A typed call is the instructions of one by hand: `benches/ioctl.sh` compares them, here in a debug
/// build of which nvabi and the example alone are optimised. As a crate of its own it needs no more than nvabi.
#[test]
fn a_typed_ioctl_costs_nothing() {
    if Command::new("objdump").arg("--version").output().is_err() {
        skip(Need::Objdump, "objdump does not run");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = scratch().join("ioctl-cost");
    fs::create_dir_all(&folder).expect("the scratch folder is writable");
    let manifest = format!(
        "[package]\nname = \"ioctl_cost\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [[bin]]\nname = \"ioctl_cost\"\npath = {:?}\n\n[dependencies]\n\
         nvabi = {{ path = {root:?}, features = [\"rm\", \"driver-550\", \"tegra-r36\"] }}\n\n\
         [profile.dev.package]\nnvabi.opt-level = 3\nioctl_cost.opt-level = 3\n",
        root.join("examples/ioctl_cost.rs")
    );
    fs::write(folder.join("Cargo.toml"), manifest).expect("the scratch folder is writable");
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock file is there");
    let outcome = cargo_unlocked(&folder, &["build"], &[]);
    assert!(outcome.success, "{}", outcome.stderr);
    let program = target().join("debug/ioctl_cost");
    let compared = Command::new(root.join("benches/ioctl.sh")).arg(&program).output();
    let outcome: Outcome = compared.expect("it is a script of the repository").into();
    assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
    for name in ["tegra", "frontend", "uvm", "control"] {
        assert!(outcome.stdout.contains(&format!("{name}: the same")), "{}", outcome.stdout);
    }
}

#[test]
fn another_driver_runs() {
    let folder = examples().join("other-driver");
    let Some(headers) = drm_headers() else {
        skip(Need::LinuxHeaders, format!("no drm.h in any of {}", DRM_HEADERS.join(", ")));
    };
    let env: &[(&str, &Path)] = &[("DRM_HEADERS", headers)];
    let outcome = cargo_to(&own(), &folder, &["run", "--locked"], env);
    if outcome.stderr.contains("error[libclang-") {
        skip(Need::Clang, "no libclang");
    }
    assert!(outcome.success, "{}", outcome.stderr);
    assert_eq!(row(&outcome.stdout, "DRM_IOCTL_VERSION")[1..3], ["0xc0406400", "64"]);
    assert_eq!(row(&outcome.stdout, "drm_version_t")[1..3], ["Version", "64"]);
    compare_with_c(headers, &outcome.stdout);

    let nowhere = scratch();
    let env: &[(&str, &Path)] = &[("DRM_HEADERS", headers), ("LIBCLANG_PATH", &nowhere)];
    let outcome = cargo_to(&own(), &folder, &["build", "--locked"], env);
    assert!(!outcome.success, "it builds without libclang");
    assert!(outcome.stderr.contains("error[libclang-missing]: cannot load"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("help: install libclang 14 or newer"), "{}", outcome.stderr);
}

/// Where distributions install DRM's headers; the example looks there too.
const DRM_HEADERS: [&str; 4] = [
    "/usr/include/drm",
    "/usr/include/libdrm",
    "/usr/x86_64-linux-gnu/include/drm",
    "/usr/aarch64-linux-gnu/include/drm",
];

fn drm_headers() -> Option<&'static Path> {
    DRM_HEADERS.iter().map(Path::new).find(|folder| folder.join("drm.h").is_file())
}

/// The request numbers must be those that a C compiler makes of the same headers' macros.
fn compare_with_c(headers: &Path, printed: &str) {
    let rows = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let requests: Vec<(&str, &str)> = rows
        .filter_map(|row| Some((*row.first()?, *row.get(1)?)))
        .filter(|(name, _)| name.starts_with("DRM_IOCTL_"))
        .collect();
    assert!(!requests.is_empty(), "{printed}");
    let mut program = String::from("#include <drm.h>\n#include <drm_mode.h>\n");
    for (name, request) in &requests {
        program.push_str(&format!("_Static_assert({name} == {request}, \"{name}\");\n"));
    }
    let file = scratch().join("requests.c");
    fs::write(&file, program).expect("the scratch folder is writable");
    let cc = Command::new("cc").arg("-fsyntax-only").arg("-I").arg(headers).arg(&file).output();
    let outcome = cc.map(Outcome::from).expect("cc, which Rust links with");
    assert!(outcome.success, "{}", outcome.stderr);
}
