//! The packages as a registry would have them: each is small, none lacks a file, and a project outside the
//! workspace builds from nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What crates.io accepts.
const LIMIT: u64 = 10 << 20;

/// In the order of publication: each needs only those before it.
const PACKAGES: [(&str, &str); 20] = [
    ("nvabi-macros", "macros"),
    ("nvabi-pipeline", "pipeline"),
    ("nvabi-supervise", "supervise"),
    ("nvabi-emu", "cuda/emu"),
    ("nvabi", "."),
    ("nvabi-reports", "reports"),
    ("nvabi-trace", "trace"),
    ("nvabi-devmem", "devmem"),
    ("nvabi-sim", "sim"),
    ("nvabi-sass", "cuda/sass"),
    ("nvabi-cudart-slots", "cuda/slots"),
    ("nvabi-cudart-shim", "cuda/cudart"),
    ("nvabi-cudart13-shim", "cuda/cudart13"),
    ("nvabi-blas", "cuda/blas"),
    ("nvabi-cublas-shim", "cuda/cublas"),
    ("nvabi-cublas13-shim", "cuda/cublas13"),
    ("nvabi-cublaslt-shim", "cuda/cublaslt"),
    ("nvabi-cublaslt13-shim", "cuda/cublaslt13"),
    ("nvabi-cuda-shim", "cuda/shim"),
    ("nvabi-cli", "cli"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Kept between runs, so that only what changed is built again.
fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("packages")
}

/// Shared with `tests/examples.rs`: both build much of the same.
fn target() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("outside")
}

fn cargo(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).arg("--offline").current_dir(folder);
    // Nobody debugs them, and it takes a third of the time of building them.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    command.env("CARGO_TERM_COLOR", "never").output().expect("cargo runs this test, so it runs")
}

fn succeeds(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Packs all members and unpacks them into one folder.
fn unpacked() -> PathBuf {
    let target = scratch().join("target");
    let mut args = vec!["package", "--no-verify", "--allow-dirty", "--target-dir"];
    let shown = target.display().to_string();
    args.push(&shown);
    args.extend(PACKAGES.iter().flat_map(|(name, _)| ["--package", name]));
    succeeds(&cargo(root(), &args));

    let sources = scratch().join("sources");
    let _ = fs::remove_dir_all(&sources);
    fs::create_dir_all(&sources).unwrap();
    for (name, folder) in PACKAGES {
        let file =
            target.join("package").join(format!("{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let size = fs::metadata(&file).unwrap().len();
        assert!(size < LIMIT, "{name} is {size} bytes, a registry takes {LIMIT}");
        let tar = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&sources).output();
        succeeds(&tar.unwrap());
        let unpacked = sources.join(format!("{name}-{}", env!("CARGO_PKG_VERSION")));
        date_as(&root().join(folder), &unpacked);
    }
    sources
}

/// A package's files all have one date, by which cargo would find that nothing changed since the last run.
fn date_as(originals: &Path, copies: &Path) {
    for entry in fs::read_dir(copies).unwrap() {
        let copy = entry.unwrap().path();
        let original = originals.join(copy.file_name().unwrap());
        let Ok(metadata) = fs::metadata(&original) else { continue };
        if metadata.is_dir() {
            date_as(&original, &copy);
        } else {
            fs::File::open(&copy).unwrap().set_modified(metadata.modified().unwrap()).unwrap();
        }
    }
}

#[test]
fn every_member_is_published_or_says_that_it_is_not() {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = text.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let members = members.split(',').map(|member| member.trim().trim_matches('"'));
    for member in members.filter(|member| !member.is_empty()) {
        let manifest = fs::read_to_string(root().join(member).join("Cargo.toml")).unwrap();
        let listed = PACKAGES.iter().any(|(_, folder)| *folder == member);
        let private = manifest.contains("publish = false");
        assert!(listed != private, "{member}: list it in this test, or say `publish = false`");
    }
}

#[test]
fn a_project_outside_builds_from_the_packages_alone() {
    let sources = unpacked();
    let version = env!("CARGO_PKG_VERSION");
    let outside = scratch().join("outside");
    let _ = fs::remove_dir_all(&outside);
    fs::create_dir_all(outside.join("user/src")).unwrap();
    // A command and a library to preload: what nobody depends on.
    let built = ["nvabi-cli", "nvabi-cuda-shim", "nvabi-cudart-shim", "nvabi-cudart13-shim"];
    for name in built {
        fs::rename(sources.join(format!("{name}-{version}")), outside.join(name)).unwrap();
    }

    let patches: String = PACKAGES
        .iter()
        .filter(|(name, _)| !built.contains(name))
        .map(|(name, _)| {
            format!("{name} = {{ path = {:?} }}\n", sources.join(format!("{name}-{version}")))
        })
        .collect();
    let workspace = format!(
        "[workspace]\nmembers = [\"user\", \"{}\"]\n\
         resolver = \"3\"\n\n[patch.crates-io]\n{patches}",
        built.join("\", \"")
    );
    fs::write(outside.join("Cargo.toml"), workspace).unwrap();
    fs::write(
        outside.join("user/Cargo.toml"),
        format!(
            "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
             nvabi = {{ version = \"{version}\", features = [\"driver-550\"] }}\n\
             nvabi-devmem = \"{version}\"\nnvabi-trace = \"{version}\"\nnvabi-emu = \"{version}\"\n"
        ),
    )
    .unwrap();
    fs::write(outside.join("user/src/main.rs"), USER).unwrap();
    // The versions of everything else are those of the workspace.
    fs::copy(root().join("Cargo.lock"), outside.join("Cargo.lock")).unwrap();

    let folder = target().display().to_string();
    // Each with the features that it asks for itself takes a minute more: much is built once for each.
    let shares = !nvabi_test::is_whole();
    let build = |packages: &[&str]| {
        let packages = packages.iter().flat_map(|name| ["--package", name]);
        let args = ["build", "--target-dir", &folder].into_iter().chain(packages);
        succeeds(&cargo(&outside, &args.collect::<Vec<_>>()));
    };
    if shares {
        build(&[&["user"], &built[..]].concat());
    } else {
        build(&["user"]);
    }
    let user = Command::new(target().join("debug/user")).output();
    assert_eq!(succeeds(&user.unwrap()), "32 2048 1\n");
    if !shares {
        build(&built);
    }
    assert!(target().join("debug/libnvabi_cuda.so").is_file());
    assert!(target().join("debug/libnvabi_cudart.so").is_file());
    assert!(target().join("debug/libnvabi_cudart13.so").is_file());
    let empty = tempfile::tempdir().unwrap();
    let shown = Command::new(target().join("debug/nvabi"))
        .args(["show", "NVOS54_PARAMETERS", "--tag", "550.90.07"])
        .current_dir(empty.path())
        .output();
    let shown = succeeds(&shown.unwrap());
    assert!(shown.contains("NVOS54_PARAMETERS") && shown.contains("paramsSize"), "{shown}");
}

/// A struct that the derive checks, a layout of an image, and a module of a GPU.
const USER: &str = r#"
#[derive(nvabi::NvProxy)]
#[nvproxy(name = "NVOS54_PARAMETERS", driver = "550")]
#[repr(C)]
#[allow(non_snake_case)]
pub struct Control {
    pub hClient: nvabi::Handle,
    pub hObject: nvabi::Handle,
    pub cmd: u32,
    pub flags: u32,
    pub params: nvabi::P64,
    pub paramsSize: u32,
    pub status: u32,
}

fn main() {
    use nvabi_devmem::{Capability, CapabilitySet, Constraint, ConstraintName, Fourcc, Image, solve};
    let image = Image::new(1920, 1080, Fourcc::new(b"NV12"));
    let aligned = Constraint::new(ConstraintName::PITCH_ALIGNMENT, 256);
    let set = CapabilitySet::new([aligned], [Capability::pitch_linear()]);
    let pitch = solve(&image, &set).unwrap().planes[0].pitch;
    let kind = nvabi_trace::event::EventKind::BRANCH.0;
    let _ = nvabi_emu::Device::new();
    println!("{} {pitch} {}", size_of::<Control>(), u32::from(kind == 0));
}
"#;
