//! The crates in `examples/` build and run, and a changed one does not: the message says where.
//!
//! They are built as a stranger builds them, by cargo, without the network, in a target folder of
//! their own that all tests share.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may stop where it stands")]

#[macro_use]
extern crate nvabi_test;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_test::{Need, skip};

test_main!();

/// What cargo, or what it ran, said.
struct Said {
    success: bool,
    stdout: String,
    stderr: String,
}

impl From<Output> for Said {
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

/// Runs cargo in a crate.
fn cargo(folder: &Path, args: &[&str], env: &[(&str, &Path)]) -> Said {
    let said: Said = Command::new(env!("CARGO"))
        .args(args)
        // The lock file of an example is committed: it must fit, and it must not change here.
        .arg("--frozen")
        .arg("--target-dir")
        .arg(scratch().join("target"))
        .current_dir(folder)
        .envs(env.iter().copied())
        .env("CARGO_TERM_COLOR", "never")
        // Nobody debugs them, and it takes a third of the time of building them.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .output()
        .expect("cargo runs this test, so it runs")
        .into();
    let absent = ["attempting to make an HTTP request", "you may use the `--offline` flag"];
    if !said.success && absent.iter().any(|text| said.stderr.contains(text)) {
        skip(Need::Crates, format!("{} needs crates that are not downloaded", folder.display()));
    }
    said
}

#[test]
fn the_shim_runs() {
    let said = cargo(&examples().join("shim"), &["run"], &[]);
    assert!(said.success, "{}", said.stderr);
    for (own, driver, size) in [
        ("ObjectId", "NvHandle", "4"),
        ("Control", "NVOS54_PARAMETERS", "32"),
        ("MapMemory", "nv_ioctl_nvos33_parameters_with_fd", "56"),
        ("VidHeapControl", "NVOS32_PARAMETERS", "184"),
        ("RegisterGpuVaSpace", "UVM_REGISTER_GPU_VASPACE_PARAMS", "32"),
        ("UuidTable", "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "16"),
        ("UuidTableV2", "UVM_TOOLS_GET_PROCESSOR_UUID_TABLE_PARAMS", "24"),
    ] {
        let row = row(&said.stdout, own);
        assert_eq!(row[1..3], [driver, size], "{}", said.stdout);
    }
    let command = row(&said.stdout, "0x00000275");
    assert_eq!(command[1], "NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID", "{}", said.stdout);
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
        "    pub length: u64,\n    pub linear_address: P64,\n",
        "    pub linear_address: P64,\n    pub length: u64,\n",
        &[
            "MapMemory.linear_address has P64 (8 bytes) at offset 24, but the driver has nv_ioctl_nvos33_parameters_with_fd.params.length there as ",
            "MapMemory.length has u64 (8 bytes) at offset 32, but the driver has nv_ioctl_nvos33_parameters_with_fd.params.pLinearAddress there as ",
        ],
    ),
];

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
    let said = cargo(&copy, &["build", "--lib"], &[]);
    assert!(!said.success, "it builds although it is wrong");
    let wanted: Vec<&str> = MISTAKES.iter().flat_map(|(.., texts)| texts.iter().copied()).collect();
    for text in &wanted {
        assert!(said.stderr.contains(text), "not said: {text}\n{}", said.stderr);
    }
    // What is right is not complained of.
    let complaints = said.stderr.matches(", but the driver").count();
    assert_eq!(complaints, wanted.len(), "{}", said.stderr);
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
/// build of which nvabi alone is optimised.
#[test]
fn a_typed_ioctl_costs_nothing() {
    if Command::new("objdump").arg("--version").output().is_err() {
        skip(Need::Objdump, "objdump does not run");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let features = "rm,driver-550,tegra-r36";
    let args = ["build", "--features", features, "--example", "ioctl_cost"];
    let optimised = ["--config", "profile.dev.package.nvabi.opt-level=3"];
    let said = cargo(root, &[&args[..], &optimised].concat(), &[]);
    assert!(said.success, "{}", said.stderr);
    let program = scratch().join("target/debug/examples/ioctl_cost");
    let compared = Command::new(root.join("benches/ioctl.sh")).arg(&program).output();
    let said: Said = compared.expect("it is a script of the repository").into();
    assert!(said.success, "{}{}", said.stdout, said.stderr);
    for name in ["tegra", "frontend", "uvm", "control"] {
        assert!(said.stdout.contains(&format!("{name}: the same")), "{}", said.stdout);
    }
}

#[test]
fn another_driver_runs() {
    let folder = examples().join("other-driver");
    let Some(headers) = drm_headers() else {
        skip(Need::LinuxHeaders, format!("no drm.h in any of {}", DRM_HEADERS.join(", ")));
    };
    let env: &[(&str, &Path)] = &[("DRM_HEADERS", headers)];
    let said = cargo(&folder, &["run"], env);
    if said.stderr.contains("error[libclang-") {
        skip(Need::Clang, "no libclang");
    }
    assert!(said.success, "{}", said.stderr);
    assert_eq!(row(&said.stdout, "DRM_IOCTL_VERSION")[1..3], ["0xc0406400", "64"]);
    assert_eq!(row(&said.stdout, "drm_version_t")[1..3], ["Version", "64"]);
    compare_with_c(headers, &said.stdout);

    let nowhere = scratch();
    let env: &[(&str, &Path)] = &[("DRM_HEADERS", headers), ("LIBCLANG_PATH", &nowhere)];
    let said = cargo(&folder, &["build"], env);
    assert!(!said.success, "it builds without libclang");
    assert!(said.stderr.contains("error[libclang-missing]: cannot load"), "{}", said.stderr);
    assert!(said.stderr.contains("help: install libclang 14 or newer"), "{}", said.stderr);
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
    let said = cc.map(Said::from).expect("cc, which Rust links with");
    assert!(said.success, "{}", said.stderr);
}
