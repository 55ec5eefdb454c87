//! Plugins in C and in Rust, those that do not keep to the interface, and how they are found.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use nvabi_devmem::drivers::enumerate;
use nvabi_devmem::drivers::memfd::Memfd;
use nvabi_devmem::plugin::{Plugin, folders, load_all};
use nvabi_devmem::{
    Capability, ConstraintName, Description, Device, Driver, ErrorKind, Fourcc, Image, Layout,
    Listed, Offer, Operation, Usage, Use, plan, solve,
};
use nvabi_test::{Need, skip};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A library of C.
fn compiled(folder: &Path, source: &str, name: &str, more: &[&str]) -> PathBuf {
    let library = folder.join(name);
    let run = Command::new("cc")
        .args(["-shared", "-fPIC", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root().join("include"))
        .args(more)
        .arg("-o")
        .arg(&library)
        .arg(root().join(source))
        .output()
        .expect("cc, which Rust links with");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{source} does not compile: {said}");
    library
}

/// The example's library: `cargo test` builds it; a run of this test alone may have to.
fn rust_plugin() -> PathBuf {
    let exe = env::current_exe().expect("a path");
    let profile = exe.ancestors().nth(2).expect("target/debug/deps");
    let library = profile.join("examples/libdevmem_plugin.so");
    let sources = [root().join("src"), root().join("examples/plugin.rs")];
    let newest = sources.iter().map(|path| changed(path)).max();
    if !library.is_file() || Some(changed(&library)) < newest {
        let build = ["build", "--offline", "--example", "devmem_plugin"];
        let target = profile.parent().expect("a target folder");
        let status = Command::new(env!("CARGO"))
            .args(build)
            .arg("--target-dir")
            .arg(target)
            .current_dir(root())
            .status();
        assert!(status.expect("cargo runs this test, so it runs").success());
    }
    library
}

/// When a file, or the newest one in a folder, was written.
fn changed(path: &Path) -> SystemTime {
    let entries = fs::read_dir(path).into_iter().flatten();
    let inside = entries.map(|entry| changed(&entry.expect("an entry").path())).max();
    inside.unwrap_or_else(|| fs::metadata(path).and_then(|file| file.modified()).expect("a file"))
}

fn device(plugin: &Plugin) -> Box<dyn Device> {
    let mut devices = plugin.devices().expect("devices");
    assert_eq!(devices.len(), 1);
    devices.remove(0).expect("a device")
}

fn image() -> Image {
    Image::new(640, 360, Fourcc::new(b"NV12"))
}

fn offer(device: &dyn Device, operation: Operation) -> Offer {
    let sets = device.sets(&image(), operation).expect("sets");
    Offer { of: Use::new(&device.info().name, operation), sets }
}

fn load(library: &Path) -> nvabi_devmem::Result<Plugin> {
    // SAFETY: these tests have built the library, for being loaded.
    unsafe { Plugin::load(library) }
}

/// Both at once: what serves a camera in Rust and an encoder in C, made by one, taken by the other.
#[test]
fn a_plugin_in_c_and_one_in_rust_share_memory() {
    let folder = TempDir::new().expect("a folder");
    let library = compiled(folder.path(), "examples/plugin.c", "libcodec.so", &[]);
    let codec = device(&load(&library).expect("the plugin in C"));
    let camera = device(&load(&rust_plugin()).expect("the plugin in Rust"));
    assert_eq!(codec.info().operations, [Operation::Encode, Operation::Decode]);
    assert_eq!(
        (camera.info().name.as_str(), camera.info().node.as_str()),
        ("rust-camera", "/dev/null")
    );
    assert!(codec.info().allocates && codec.info().imports && camera.info().allocates);

    let offers = [offer(&*camera, Operation::Capture), offer(&*codec, Operation::Encode)];
    assert_eq!(offers[1].sets[0].capabilities[0], Capability::new(0x10de, 1, vec![32, 64]));
    let sets = plan(&offers).expect("memory for both").sets;
    let [set] = sets.as_slice() else { panic!("{sets:?}") };
    // 48 of the camera and 64 of the codec.
    assert_eq!(set.constraint(ConstraintName::PITCH_ALIGNMENT), Some(192));
    assert!(set.capabilities[0].is_pitch_linear() && set.capabilities[0].required);

    let layout = solve(&image(), set).expect("a layout");
    assert_eq!((layout.planes[0].pitch, layout.planes[0].size), (768, 768 * 368));
    let uses = offers.iter().map(|offer| offer.of.clone()).collect();
    let usage = Usage::new(image(), uses);
    let description = Description { usage, set: set.clone(), layout, metadata: Vec::new() };
    for (maker, taker) in [(&camera, &codec), (&codec, &camera)] {
        let buffer = maker.allocate(&description).expect("memory");
        assert!(buffer.size() >= description.layout.size);
        let (first, second) = (taker.import(&buffer), taker.import(&buffer));
        let (first, second) = (first.expect("an import"), second.expect("an import"));
        assert_ne!(first.handle(), second.handle());
    }
    assert_eq!((camera.cost(set), codec.cost(set)), (12, 2));
    let transition = codec.transition(Operation::Capture, Operation::Encode);
    assert!(!transition.write_back && !transition.invalidate, "{transition:?}");
    assert_eq!(
        camera.transition(Operation::Capture, Operation::CpuRead),
        nvabi_devmem::Transition::between(Operation::Capture, Operation::CpuRead)
    );
}

/// What a device refuses comes back as its error, on both sides of both interfaces.
#[test]
fn what_a_plugin_refuses() {
    let folder = TempDir::new().expect("a folder");
    let library = compiled(folder.path(), "examples/plugin.c", "libcodec.so", &[]);
    let codec = device(&load(&library).expect("the plugin in C"));
    let camera = device(&load(&rust_plugin()).expect("the plugin in Rust"));
    let large = Image::new(8192, 8192, image().format);
    assert_eq!(codec.sets(&large, Operation::Encode).expect("no sets"), []);
    assert_eq!(codec.sets(&image(), Operation::Scanout).expect("no sets"), []);
    let set = codec.sets(&image(), Operation::Encode).expect("sets").remove(1);
    let mut description = Description {
        usage: Usage::new(image(), Vec::new()),
        set,
        layout: Layout { modifier: 0, planes: Vec::new(), size: 0 },
        metadata: Vec::new(),
    };
    let refused = codec.allocate(&description).expect_err("no planes");
    assert_eq!(refused.errno(), Some(nix::libc::EINVAL), "{refused}");
    assert!(refused.to_string().contains("c-codec"), "{refused}");
    let refused = camera.allocate(&description).expect_err("no bytes");
    assert_eq!(refused.errno(), Some(nix::libc::EINVAL), "{refused}");
    description.layout = solve(&image(), &description.set).expect("a layout");
    let mut whole = description.clone();
    whole.set.constraints.push(nvabi_devmem::Constraint::new(ConstraintName::CONTIGUOUS, 1));
    for maker in [&codec, &camera] {
        let refused = maker.allocate(&whole).expect_err("pages from anywhere");
        assert_eq!(refused.errno(), Some(nix::libc::ENOTSUP), "{refused}");
    }
    let buffer = codec.allocate(&description).expect("memory");
    assert!(camera.import(&buffer).is_ok());
    description.layout.planes.truncate(0);
    let buffer = nvabi_devmem::Buffer::new(buffer.export().expect("a descriptor"), description);
    let refused = camera.import(&buffer.expect("a buffer")).err().expect("no planes");
    assert_eq!(refused.errno(), Some(nix::libc::EINVAL), "{refused}");
}

#[test]
fn a_plugin_that_does_not_keep_to_the_interface_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let bad = |case: u32| {
        let define = format!("-DCASE={case}");
        let more = [define.as_str(), "-D_GNU_SOURCE"];
        compiled(folder.path(), "tests/devmem/bad_plugin.c", &format!("lib{case}.so"), &more)
    };
    let at_load = [
        (1, "it gives no driver"),
        (2, "it is of version 2"),
        (3, "16 bytes"),
        (4, "its driver has no name"),
        (15, r"the name of its driver: the name `bad\u{1b}[31m` has the control character"),
    ];
    for (case, what) in at_load {
        let library = bad(case);
        let error = load(&library).expect_err("a bad plugin");
        assert_eq!(error.kind(), ErrorKind::Plugin);
        assert!(error.to_string().contains(what), "case {case}: {error}");
    }
    let endless = load(&bad(6)).expect("a plugin").devices().expect_err("bad devices");
    assert!(endless.to_string().contains("more than 1024 devices"), "{endless}");
    for (case, known, what) in [(5, 0, "no function `device`"), (16, 1, "lib16.so: device 1: ")] {
        let listed = load(&bad(case)).and_then(|plugin| plugin.devices()).expect("a plugin");
        assert_eq!(listed.iter().flatten().count(), known);
        let [.., Err(error)] = &listed[..] else { panic!("{} devices", listed.len()) };
        assert!(error.to_string().contains(what), "case {case}: {error}");
    }
    let unnamed = [(7, "device 0 has no name"), (8, "the name of device 0 is no text")];
    for (case, what) in unnamed {
        let library = bad(case);
        let listed = load(&library).and_then(|plugin| plugin.devices()).expect("a plugin");
        let [Err(error), Ok(other)] = &listed[..] else { panic!("{} devices", listed.len()) };
        assert!(error.to_string().contains(what), "case {case}: {error}");
        assert_eq!(other.info().name, "bad");
    }
    // Who opens one waits for a writer.
    let fifo = folder.path().join("fifo.so");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let error = load(&fifo).expect_err("a FIFO").to_string();
    assert!(error.ends_with("fifo.so: it is no file"), "{error}");
    for (case, what) in [(9, "3 constraints at 0x0"), (10, "sets of bad: ")] {
        let library = bad(case);
        let device = device(&load(&library).expect("a plugin"));
        let error = device.sets(&image(), Operation::Copy).expect_err("bad sets");
        assert!(error.to_string().contains(what), "case {case}: {error}");
    }
    let library = bad(12);
    let old = device(&load(&library).expect("an older plugin"));
    // Each format is asked for, and its sets are no sets.
    let error = old.hints(Operation::Copy).expect_err("bad sets");
    assert!(error.to_string().contains("3 constraints at 0x0"), "{error}");
    let library = bad(13);
    let error = device(&load(&library).expect("a plugin")).hints(Operation::Copy);
    assert!(error.expect_err("too many").to_string().contains("bad: 1048576 hints"));
    let (library, one_file) = (bad(11), bad(14));
    let one_of_two = device(&load(&one_file).expect("a plugin"));
    let device = device(&load(&library).expect("a plugin"));
    let set = nvabi_devmem::CapabilitySet::new([], [Capability::pitch_linear()]);
    let layout = solve(&image(), &set).expect("a layout");
    let usage = Usage::new(image(), Vec::new());
    let description = Description { usage, set, layout, metadata: Vec::new() };
    let error = one_of_two.allocate_files(&description).expect_err("one file");
    assert!(error.to_string().contains("1 files, and 2 planes"), "{error}");
    let open = fs::read_dir("/proc/self/fd").expect("descriptors").filter_map(|fd| {
        let file = fs::read_link(fd.expect("a descriptor").path()).ok()?;
        file.to_string_lossy().contains("one-of-two").then_some(file)
    });
    assert_eq!(open.count(), 0, "what was made is closed");
    let error = device.allocate(&description).expect_err("too small");
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    assert_eq!(
        device.import(&memory(&description)).err().expect("none").kind(),
        ErrorKind::Unsupported
    );
}

/// Details, formats and memory in several files go through the interface, both ways.
#[test]
fn a_plugin_knows_details_formats_and_files() {
    let folder = TempDir::new().expect("a folder");
    let library = compiled(folder.path(), "examples/plugin.c", "libcodec.so", &[]);
    let codec = device(&load(&library).expect("the plugin in C"));
    let camera = device(&load(&rust_plugin()).expect("the plugin in Rust"));
    let usage = Usage::new(image(), Vec::new());
    let sets = |device: &dyn Device, operation, detail: &str| {
        let wanted =
            Use::new(&device.info().name, operation).with(detail.parse().expect("a detail"));
        device.sets_for(&usage, &wanted).map(|sets| sets.len())
    };
    assert_eq!(sets(&*codec, Operation::Decode, "rotate-180").expect("sets"), 2);
    assert_eq!(sets(&*codec, Operation::Decode, "rotate-90").expect("sets"), 0);
    assert_eq!(sets(&*codec, Operation::Encode, "rotate-0").expect("sets"), 2);
    let refused = sets(&*codec, Operation::Decode, "0x10de:3(1, 2)").expect_err("not known");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert_eq!(sets(&*camera, Operation::Capture, "reflect-x").expect("sets"), 1);
    let refused = sets(&*camera, Operation::Capture, "rotate-90").expect_err("not known");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");

    let hints = codec.hints(Operation::Decode).expect("hints");
    let [nv12, xr24] = hints.as_slice() else { panic!("{hints:?}") };
    assert_eq!((nv12.format, nv12.max_width, xr24.max_height), (image().format, 4096, 4096));
    assert_eq!(codec.hints(Operation::Scanout).expect("none"), []);
    let hints = camera.hints(Operation::Capture).expect("hints");
    assert!(hints.iter().any(|hint| hint.format == image().format), "{hints:?}");

    let files = nvabi_devmem::Constraint::new(ConstraintName::FILES, 2);
    let set = nvabi_devmem::CapabilitySet::new([files], [Capability::pitch_linear()]);
    let layout = solve(&image(), &set).expect("a layout");
    let description = Description { usage, set, layout, metadata: Vec::new() };
    for maker in [&codec, &camera] {
        let made = maker.allocate_files(&description).expect("memory");
        let starts: Vec<u64> = made.pieces().iter().map(nvabi_devmem::Piece::start).collect();
        assert_eq!(starts, [0, 233_472]);
        assert_eq!(made.description().layout.planes[1].offset, 233_472);
        for taker in [&codec, &camera] {
            assert!(taker.import(&made).is_ok());
        }
    }
}

fn memory(description: &Description) -> nvabi_devmem::Buffer {
    let mut cpus = nvabi_devmem::drivers::memfd::Memfd.devices().expect("the CPU");
    cpus.remove(0).expect("the CPU").allocate(description).expect("memory")
}

fn manifest(folder: &Path, name: &str, library: &str) {
    let text = format!(
        r#"{{ "file_format_version": "1.0.0", "devmem": {{ "library_path": "{library}" }} }}"#
    );
    fs::write(folder.join(name), text).expect("a manifest");
}

/// One manifest or library that is wrong is told of, and does not keep the others from being used.
#[test]
fn what_is_wrong_is_passed_over() {
    let folder = TempDir::new().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fs::create_dir_all(first.join("lib")).expect("a folder");
    fs::create_dir(&second).expect("a folder");
    let library = first.join("lib");
    compiled(&library, "examples/plugin.c", "libcodec.so", &[]);
    compiled(&library, "tests/devmem/bad_plugin.c", "libbad.so", &["-DCASE=1"]);
    manifest(&first, "20-codec.json", "lib/libcodec.so");
    manifest(&first, "40-absent.json", "./absent.so");
    manifest(&first, "50-no-plugin.json", "libc.so.6");
    manifest(&first, "60-bad.json", "lib/libbad.so");
    let whole = fs::read(library.join("libcodec.so")).expect("the plugin in C");
    for (name, length) in [("70-cut", 3000), ("71-head", 80)] {
        fs::write(library.join(name), &whole[..length]).expect("a file");
        manifest(&first, &format!("{name}.json"), &format!("lib/{name}"));
    }
    fs::write(first.join("10-text.json"), "{").expect("a file");
    fs::write(first.join("11-other.json"), r#"{ "file_format_version": "1.0.0" }"#)
        .expect("a file");
    let later = r#"{ "file_format_version": "2.0.0", "devmem": { "library_path": "x" } }"#;
    fs::write(first.join("12-later.json"), later).expect("a file");
    // Nobody will ever write into it; and one without end.
    let pipe = first.join("13-pipe.json");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    fs::write(first.join("14-long.json"), " ".repeat(70_000)).expect("a file");
    fs::write(first.join("README"), "not a manifest").expect("a file");
    // Of the same name as one before, so it is not looked at; and one of its own.
    manifest(&second, "20-codec.json", "./absent.so");
    manifest(&second, "30-camera.json", rust_plugin().to_str().expect("UTF-8"));

    let nowhere = folder.path().join("nowhere");
    // SAFETY: the libraries are those that this file builds, or are absent.
    let found = unsafe { load_all(&[nowhere, first.clone(), second.clone()]) };
    let names: Vec<&str> = found.drivers.iter().map(Driver::name).collect();
    assert_eq!(names, ["c-codec", "rust-camera"]);
    let problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    let expected = [
        ("10-text.json", "no manifest: EOF"),
        ("11-other.json", "missing field `devmem`"),
        ("12-later.json", "file_format_version 2.0.0 is not 1"),
        ("13-pipe.json", "it is no regular file"),
        ("14-long.json", "it is longer than 65536 bytes"),
        ("40-absent.json", "absent.so: cannot open shared object file"),
        ("50-no-plugin.json", "it is no plugin"),
        ("60-bad.json", "it gives no driver"),
        ("70-cut.json", "it is cut short"),
        ("71-head.json", "it is cut short"),
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, (file, what)) in problems.iter().zip(expected) {
        assert!(problem.contains(file) && problem.contains(what), "{problem}");
    }
    // SAFETY: the libraries are those that this file builds, or are absent.
    let order = unsafe { load_all(&[second, first]) };
    let names: Vec<&str> = order.drivers.iter().map(Driver::name).collect();
    assert_eq!(names, ["rust-camera"], "the absent library is before the other");
}

const CHILD: &str = "NVABI_DEVMEM_TEST_CHILD";

/// This program again, with folders in its environment; with the rights of another user as well.
#[test]
fn a_setuid_program_does_not_look_where_the_environment_says() {
    if env::var_os(CHILD).is_some() {
        let folders = folders();
        let shown = folders.iter().map(|folder| format!("[{}]", folder.display()));
        println!("{}", shown.collect::<String>());
        return;
    }
    let this = env::current_exe().expect("a path");
    let child = |program: &Path| {
        let output = Command::new(program)
            .args(["a_setuid_program", "--nocapture"])
            .env(CHILD, "1")
            .env("NVABI_DEVMEM_PLUGINS", "/mine")
            .output()
            .expect("this program runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(child(&this).contains("[/mine]"));
    let folder = TempDir::new().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let other = folder.path().join("setuid");
    fs::copy(&this, &other).expect("a copy");
    if chown(&other, Some(65_534), None).is_err() {
        skip(Need::Setuid, "only root can make a program of another user");
    }
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).expect("permissions");
    let said = child(&other);
    if said.contains("[/mine]") && mounted_nosuid(folder.path()) {
        skip(Need::Setuid, format!("{} takes no setuid programs", folder.path().display()));
    }
    assert!(said.contains("[/etc/nvabi/devmem.d][/usr/share/nvabi/devmem.d]"), "{said}");
    assert!(!said.contains("/mine"), "{said}");
}

fn mounted_nosuid(folder: &Path) -> bool {
    let flags = nix::sys::statvfs::statvfs(folder).expect("a file system").flags();
    flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID)
}

/// A driver whose device calls itself as another does.
struct Impostor;

impl Driver for Impostor {
    fn name(&self) -> &str {
        "impostor"
    }

    fn devices(&self) -> nvabi_devmem::Result<Listed> {
        Memfd.devices()
    }
}

#[test]
fn a_device_with_the_name_of_another_is_refused() {
    let found = enumerate(&[Box::new(Memfd) as Box<dyn Driver>, Box::new(Impostor)]);
    assert_eq!(found.devices.len(), 1);
    let [(driver, problem)] = found.problems.as_slice() else { panic!("{:?}", found.problems) };
    assert_eq!(driver, "impostor");
    assert_eq!(problem.to_string(), "its device cpu has the name of another one");
}
