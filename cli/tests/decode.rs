//! `nvabi decode` as a user meets it, on logs of our own and on real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nvabi_pipeline::lock;
use nvabi_pipeline::spec::{Spec, spec_of};
use nvabi_reports::decode::{Catalog, Decoded, Decoder};
use nvabi_test::{Case, Need, Random, skip};

#[path = "../../fuzz/checks/calls.rs"]
mod fuzz;

test_main!(forms_of_strace());

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.current_dir(root()).arg("decode").args(args);
    command
}

fn decode(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Compares with `snapshots/NAME.snap`.
fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// A file with that text, in a folder that goes away.
fn file(text: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.strace");
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// Every small log, with every call, its tables and its phases.
#[test]
fn logs() {
    for name in ["cuda-init", "desktop", "terminal", "filtered"] {
        let log = format!("cli/tests/decode/{name}.strace");
        let output = decode(&["strace", &log, "--tag", "550.163.01", "--calls"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        // Which specs are read is not what this is about.
        let told = err(&output).replace("       Using abi-specs\n", "");
        snapshot(&format!("decode-{name}"), &format!("{}\n{told}", out(&output)));
    }
}

/// The size tells which of two structs it is, and the mode setter's one request is known.
#[test]
fn requests_are_named_by_their_size() {
    let log = "1 openat(AT_FDCWD, \"/dev/nvidiactl\", O_RDWR) = 3\n\
               1 ioctl(3, 0xc020462b, 0x7ffd) = 0\n1 ioctl(3, 0xc030462b, 0x7ffd) = 0\n\
               1 openat(AT_FDCWD, \"/dev/nvidia-modeset\", O_RDWR) = 4\n\
               1 ioctl(4, 0xc0106d00, 0x7ffd) = 0\n";
    let (_folder, path) = file(log.as_bytes());
    let path = path.display().to_string();
    let found = json(&decode(&["strace", &path, "--tag", "550.163.01", "--json"]));
    let calls = |device: usize| found["devices"][device]["calls"].as_array().unwrap();
    let params: Vec<_> = calls(0).iter().map(|call| call["params"].clone()).collect();
    assert_eq!(
        params,
        [serde_json::json!(["NVOS21_PARAMETERS"]), serde_json::json!(["NVOS64_PARAMETERS"])]
    );
    assert_eq!(calls(1)[0]["name"], "NVKMS_IOCTL_CMD");
    assert_eq!(found["unknown"].as_array().unwrap().len(), 0, "{found}");
}

/// The tables of the work that the decoder was made for: counts, and the one call that failed.
#[test]
fn the_model_of_a_start_of_cuda() {
    let output = decode(&["strace", "cli/tests/decode/cuda-init.strace", "--calls", "--json"]);
    let json = json(&output);
    let device = |node: &str| {
        let devices = json["devices"].as_array().unwrap();
        devices.iter().find(|device| device["node"] == node).unwrap_or_else(|| panic!("{node}"))
    };
    let count = |node: &str, name: &str| {
        let calls = device(node)["calls"].as_array().unwrap();
        calls.iter().find(|call| call["short"] == name).unwrap_or_else(|| panic!("{name}"))["count"]
            .clone()
    };
    assert_eq!(device("ctrl")["path"], "/dev/nvgpu/igpu0/ctrl");
    assert_eq!((count("nvmap", "CREATE"), count("nvmap", "GET_FD")), (29.into(), 54.into()));
    assert_eq!(
        (count("as", "MAP_BUFFER_EX"), count("tsg", "BIND_CHANNEL_EX")),
        (17.into(), 4.into())
    );
    assert_eq!((count("channel", "SETUP_BIND"), count("tsg", "ENABLE")), (4.into(), 1.into()));
    let failed = &device("nvhost-ctrl")["calls"][0];
    assert_eq!((&failed["nr"], &failed["errors"]["ENOTTY"]), (&14.into(), &1.into()));
    assert_eq!(json["unknown"], serde_json::json!([]));
    assert_eq!(json["calls"].as_array().unwrap().len(), json["ioctls"].as_u64().unwrap() as usize);
    assert_eq!(json["releases"][0], "tegra-r36.2");
    let titles: Vec<&str> = json["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| phase["title"].as_str().unwrap())
        .collect();
    assert_eq!(
        titles,
        [
            "Discovery",
            "Memory system setup",
            "Buffer allocation",
            "TSG and channel setup",
            "Steady state"
        ]
    );
    assert_eq!(json["phases"][2]["steps"][0]["times"], 12);
}

#[test]
fn a_tag_names_as_that_release_does() {
    let log =
        b"openat(AT_FDCWD, \"/dev/nvgpu/igpu0/ctrl\", O_RDWR) = 3\nioctl(3, 0xc0084709, 0) = 0\n";
    let (_folder, path) = file(log);
    let path = path.to_str().unwrap();
    // As every release: r35 has it with 8 bytes, r36 with 24.
    let all = decode(&["strace", path]);
    assert!(out(&all).contains("those of tegra-r32.7.1 to tegra-r35.5"), "{}", out(&all));
    let old = decode(&["strace", path, "--tag", "tegra-r35.4.1", "--tag", "550.90.07"]);
    assert!(out(&old).contains("NVGPU_GPU_IOCTL_OPEN_TSG"), "{}", out(&old));
    let new = decode(&["strace", path, "--tag", "tegra-r36.4"]);
    assert!(out(&new).contains("unknown; NVGPU_GPU_IOCTL_OPEN_TSG is 0xc0184709"), "{}", out(&new));
    assert_eq!(new.status.code(), Some(0));
}

/// Half of random bytes have a line that begins as a call does; a diff's begin as signals and ends do.
#[test]
fn what_is_no_log_is_refused() {
    let mixed = format!("1 close(3) = 0\n{}", "a word\n".repeat(101));
    for (text, which, first) in [
        ("R(xx\ngarbage\nfoo bar\n", "no line is a system call", 1),
        ("--- a/file\n+++ b/file\n@@ -1 +1 @@\n", "no line is a system call", 1),
        ("+++ exited with 0 +++\nfoo\n", "no line is a system call", 2),
        (mixed.as_str(), "1 of 102 lines are system calls", 2),
    ] {
        let (_folder, path) = file(text.as_bytes());
        let output = decode(&["strace", path.to_str().unwrap()]);
        let said = err(&output);
        assert_eq!(output.status.code(), Some(2), "{text}: {said}");
        assert!(said.contains(&format!("is not an strace log: {which}")), "{said}");
        assert!(
            said.contains(&format!("line {first} is the first that is none of strace's")),
            "{said}"
        );
    }
    // A program's own words may stand between its calls, and a filter may leave nothing of them.
    for text in
        [&mixed[..mixed.len() - 7], "7 +++ exited with 0 +++\n", "ioctl(3, 0x1\n1 close(3) = 0\n"]
    {
        let (_folder, path) = file(text.as_bytes());
        let output = decode(&["strace", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    }
    for (endless, why) in
        [("/dev/urandom", "is not an strace log"), ("/dev/zero", "more than 64 MiB")]
    {
        let output = decode(&["strace", endless]);
        assert!(output.status.code() == Some(2) && err(&output).contains(why), "{}", err(&output));
    }
}

/// The log closed it, has another file there, or none.
#[test]
fn an_fd_that_no_ioctl_returned_is_not_said_to_be_one() {
    let log = "1 openat(AT_FDCWD, \"/dev/nvidia-uvm\", O_RDWR) = 3\n1 ioctl(3, 0xc020462b, 0x7ffd) = 0\n\
               1 ioctl(9, 0xc020462b, 0x7ffd) = 0\n";
    let (_folder, path) = file(log.as_bytes());
    let found = out(&decode(&["strace", path.to_str().unwrap(), "--tag", "550.163.01"]));
    assert!(found.contains("nvidiactl: fds that are known by their requests alone"), "{found}");
    assert!(!found.contains("ioctls return"), "{found}");
}

#[test]
fn bad_input_says_what_is_wrong() {
    let tags = lock::read_tags(&root().join("abi-specs/lock")).unwrap();
    let short = format!("has 32 bytes in {}, but 2 are given", tags.last().unwrap().tag);
    let (_folder, text) = file(b"hello\nworld ioctl(\n");
    for (args, wanted) in [
        (&["strace", "no/such.strace"][..], "cannot read no/such.strace: No such file"),
        (&["strace", "tests"], "cannot read tests: Is a directory"),
        (&["strace", text.to_str().unwrap()], "is not an strace log: no line is a system call"),
        (
            &["strace", "cli/tests/decode/cuda-init.strace", "--tag", "550.1"],
            "the lock has no tag 550.1",
        ),
        (
            &["strace", "cli/tests/decode/cuda-init.strace", "--tag", "other-1.1"],
            "no drivers are called `other`",
        ),
        (
            &[
                "strace",
                "cli/tests/decode/cuda-init.strace",
                "--tag",
                "550.90.07",
                "--tag",
                "535.54.03",
            ],
            "belong to one driver family",
        ),
        (&["struct", "NVOS54_PARAMETER", "00"], "did you mean `NVOS54_PARAMETERS`?"),
        (
            &["struct", "NVOS54_PARAMETERS", "no-such-file"],
            "give a file, - for stdin, or bytes in hexadecimal",
        ),
        (&["struct", "NVOS54_PARAMETERS", "0011"], &short),
    ] {
        let output = decode(args);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{args:?}");
        assert!(err(&output).contains(wanted), "{args:?}: {}", err(&output));
    }
}

/// Both logs are read, and both complaints are made at once.
#[test]
fn several_logs_are_one_report() {
    let log = "cli/tests/decode/cuda-init.strace";
    let one = json(&decode(&["strace", log, "--json"]));
    let two = json(&decode(&["strace", log, log, "--json"]));
    assert_eq!(two["ioctls"], one["ioctls"].as_u64().unwrap() * 2);
    assert_eq!(
        two["devices"][0]["calls"][0]["count"],
        one["devices"][0]["calls"][0]["count"].as_u64().unwrap() * 2
    );
    let errors = err(&decode(&["strace", "no/a", "no/b"]));
    assert!(errors.contains("no/a") && errors.contains("no/b"), "{errors}");
}

#[test]
fn a_log_comes_in_on_stdin() {
    let mut child = command(&["strace", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&fs::read(root().join("cli/tests/decode/desktop.strace")).unwrap())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("UVM_INITIALIZE"), "{}", out(&output));
}

/// A width of more than 65,535 is none that can be written, and a log is written by whom it likes.
#[test]
fn names_of_any_length_and_letters_are_told() {
    let long = "N".repeat(70_000);
    let log = format!(
        "1 ioctl(3</dev/nvidiactl>, {long}, 0x7ffd) = 0\n\
         1 ioctl(3</dev/nvidia-uvm>, _IOC(_IOC_READ, 0x46, 0x{}2a, 0x20), 0x7ffd) = 0\n\
         1 ioctl(3</dev/nvidia\u{1b}[2J>, 0xc020462a, 0x7ffd) = 0\n\
         1 ioctl(3</dev/nvidiactl>, A\u{1b}[31mB, 0x7ffd) = 0\n",
        "0".repeat(70_000)
    );
    let (_folder, path) = file(log.as_bytes());
    for options in [&[][..], &["--calls"]] {
        let output = decode(&[&["strace", path.to_str().unwrap()], options].concat());
        assert!(output.status.code().is_some_and(|code| code < 2), "{}", err(&output));
        assert!(out(&output).contains(&long), "{}", out(&output));
        let printed = [output.stdout, output.stderr].concat();
        assert!(!printed.contains(&0x1b), "{options:?}");
    }
}

#[test]
fn the_bytes_of_a_struct() {
    let mut bytes = [0u8; 104];
    bytes[0..4].copy_from_slice(&1024u32.to_le_bytes());
    bytes[8] = 0x0a;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let output = decode(&["struct", "nvgpu_channel_setup_bind_args", &hex]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    snapshot("decode-struct", &out(&output));
    // A file of the bytes, or of their digits, is the same; so is stdin.
    let (_folder, raw) = file(&bytes);
    let (_other, digits) = file(format!("{hex}\n").as_bytes());
    for path in [raw, digits] {
        let same = decode(&["struct", "nvgpu_channel_setup_bind_args", path.to_str().unwrap()]);
        assert_eq!(out(&same), out(&output));
    }
}

#[test]
fn a_size_that_does_not_fit_names_the_tags_where_it_does() {
    let hex = "00".repeat(80);
    let output = decode(&["struct", "nvgpu_channel_setup_bind_args", &hex]);
    let text = err(&output);
    assert!(text.contains("has 104 bytes in tegra-r36.4.3, but 80 are given"), "{text}");
    assert!(text.contains("it has 80 bytes in tegra-r32.7.1 to tegra-r35.5: give --tag"), "{text}");
    let older = decode(&[
        "struct",
        "nvgpu_channel_setup_bind_args",
        &hex,
        "--tag",
        "tegra-r32.7.1",
        "--json",
    ]);
    assert_eq!(json(&older)["size"], 80);
}

/// A 32-bit program's struct and request have other sizes; `addr` and what follows have four bytes there.
#[test]
fn what_a_32_bit_program_has_is_another_form() {
    let bytes: String = (1..=7u8).map(|byte| format!("{byte:02x}000000")).collect();
    let args = ["struct", "nvmap_rw_handle", &bytes, "--tag", "tegra-r32.7.1"];
    let output = decode(&args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.contains(", as in a 32-bit program\n"), "{text}");
    assert!(text.contains("}; // size 28"), "{text}");
    let json = json(&decode(&[&args[..], &["--json"]].concat()));
    assert_eq!((&json["32-bit"], &json["size"]), (&true.into(), &28.into()));
    let values: Vec<_> = json["fields"].as_array().unwrap().iter().map(|f| &f["value"]).collect();
    assert_eq!(values, [1, 2, 3, 4, 5, 6, 7]);
    let wrong = err(&decode(&["struct", "nvmap_rw_handle", "00", "--tag", "tegra-r32.7.1"]));
    assert!(wrong.contains("has 32 bytes (28 in a 32-bit program)"), "{wrong}");

    let log = "openat(AT_FDCWD, \"/dev/nvmap\", O_RDWR) = 3\n\
               ioctl(3, _IOC(_IOC_WRITE, 0x4e, 0x7, 0x1c), 0xffee) = 0\n\
               ioctl(3, _IOC(_IOC_WRITE, 0x4e, 0x7, 0x20), 0xffee) = 0\n";
    let (_folder, path) = file(log.as_bytes());
    let args = ["strace", path.to_str().unwrap(), "--tag", "tegra-r32.7.1"];
    let text = out(&decode(&args));
    assert!(text.contains("| NVMAP_IOC_READ (32-bit) | 1 "), "{text}");
    assert!(text.contains("| NVMAP_IOC_READ          | 1 "), "{text}");
}

fn catalog() -> Catalog {
    let folder = root().join("abi-specs");
    let specs = Spec::load_family(&folder, "tegra").unwrap();
    let (locked, _) = lock::read(&lock::folder(&folder, "tegra")).unwrap();
    let tag = "tegra-r36.4".parse().unwrap();
    Catalog::new([(&locked.facts(&tag).unwrap(), spec_of(&specs, &tag).unwrap())])
}

/// What the report accounts for; each ioctl of the log stands in one place.
fn accounted(decoded: &Decoded) -> u64 {
    let devices = decoded.devices.iter().flat_map(|device| &device.calls).map(|row| row.count);
    let unknown = decoded.unknown.iter().filter(|unknown| unknown.node.is_none());
    let elsewhere = decoded.elsewhere.iter().map(|other| other.row.count);
    devices.chain(unknown.map(|unknown| unknown.row.count)).chain(elsewhere).sum::<u64>()
        + decoded.unread.ioctls
}

/// Whatever is done to a log, nothing panics, and every line that begins with an ioctl is counted.
#[test]
fn damaged_logs_lose_no_ioctl() {
    let catalog = catalog();
    let names = ["cuda-init", "desktop", "terminal", "filtered"];
    let logs =
        names.map(|name| fs::read(root().join(format!("cli/tests/decode/{name}.strace"))).unwrap());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..2000 {
        let mut log = logs[random.below(logs.len())].clone();
        for _ in 0..=random.below(40) {
            damage(&mut log, &mut random);
        }
        let mut decoder = Decoder::new(&catalog);
        decoder.read(log.as_slice(), None).unwrap();
        let decoded = decoder.report();
        assert_eq!(accounted(&decoded), decoded.ioctls, "round {round}");
        let ioctls = log.split(|byte| *byte == b'\n').filter(|line| is_ioctl(line)).count();
        assert!(decoded.ioctls >= ioctls as u64, "round {round}: {} of {ioctls}", decoded.ioctls);
    }
}

/// A reader of its own: an ioctl begins behind a pid alone.
fn is_ioctl(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let behind = text.trim_start_matches(' ');
    behind.starts_with("ioctl(") && (text.len() == line.len() || behind.len() < text.len())
}

fn damage(log: &mut Vec<u8>, random: &mut Random) {
    if log.is_empty() {
        return;
    }
    let at = random.below(log.len());
    let from = random.below(log.len());
    let line = log[from..].iter().position(|byte| *byte == b'\n').map_or(0, |end| from + end + 1);
    match random.below(8) {
        0 => log[at] = random.below(256) as u8,
        1 => log.truncate(at),
        2 => drop(log.drain(at..(at + random.below(60)).min(log.len()))),
        3 => {
            let copy = log[at..(at + random.below(300)).min(log.len())].to_vec();
            log.splice(line..line, copy);
        }
        4 => log.insert(at, b'\n'),
        5 => log.insert(at, b'\r'),
        6 => {
            let words: [&[u8]; 6] = [
                b"<unfinished ...>",
                b"strace: Process 4711 attached\n",
                b"4711 <... ioctl resumed>) = 0\n",
                b"4711 clone(flags=CLONE_FILES <unfinished ...>\n",
                b"4294967295",
                b"4711 close_range(0, 4294967295, 0) = 0\n",
            ];
            log.splice(line..line, words[random.below(words.len())].iter().copied());
        }
        _ => {
            let digit = log[at..].iter().position(u8::is_ascii_digit);
            if let Some(digit) = digit {
                log[at + digit] = b'0' + random.below(10) as u8;
            }
        }
    }
}

/// Ioctls with requests of NVIDIA's on `/dev/null` and on pipes, from two threads and a child.
const PROGRAM: &str = r#"
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)
null = os.open("/dev/null", os.O_RDWR)
also = os.dup(null)
ends = os.pipe()
def ask(fd, request):
    libc.ioctl(fd, ctypes.c_ulong(request), 0)
def some(fd):
    for request in (0xc0084e00, 0xc0104705, 0x5403, 0xdeadbeef):
        ask(fd, request)
threads = [threading.Thread(target=some, args=(fd,)) for fd in (null, ends[0])]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    os.close(null)
    fd = os.open("/dev/zero", os.O_RDWR)
    ask(fd, 0xc0184709)
    ask(also, 0xc0184709)
    os._exit(0)
os.waitpid(child, 0)
ask(null, 0xc004470b)
"#;

/// Log of a real strace with some options.
fn traced(options: &[&str]) -> Vec<u8> {
    let (_folder, path) = file(b"");
    let mut strace = Command::new("strace");
    strace.args(options).arg("-o").arg(&path).args(["python3", "-c", PROGRAM]);
    match strace.output() {
        Ok(output) if output.status.success() => fs::read(&path).unwrap(),
        _ => skip(Need::Strace, format!("strace {} python3 does not run", options.join(" "))),
    }
}

const FORMS_OF_STRACE: [&[&str]; 8] = [
    &["-f"],
    &["-f", "-y"],
    &["-f", "-yy", "-tt", "-T"],
    &["-f", "-X", "raw"],
    &["-f", "-X", "verbose", "-r"],
    &["-f", "-e", "raw=ioctl", "-ttt"],
    &["-f", "-i", "-n", "-xx"],
    &[
        "-f",
        "--seccomp-bpf",
        "-e",
        "trace=ioctl,openat,dup,fcntl,close,pipe2,clone,clone3,fork,vfork,execve",
    ],
];

fn forms_of_strace() -> Vec<Case> {
    let case = |options: &'static [&str]| {
        Case::new(format!("a_real_strace::{}", options.join(" ")), || a_real_strace(options))
    };
    FORMS_OF_STRACE.into_iter().map(case).collect()
}

/// With `-y` strace says what we have to find out without it: both ways must agree.
fn a_real_strace(options: &[&str]) {
    let (_folder, path) = file(&traced(options));
    let model = json(&decode(&["strace", path.to_str().unwrap(), "--json", "--calls"]));
    let calls = model["calls"].as_array().unwrap().iter();
    let ours: Vec<(u64, &str)> = calls
        .filter_map(|call| Some((call["request"].as_u64()?, call["path"].as_str()?)))
        .filter(|(request, _)| {
            [0xc008_4e00, 0xc010_4705, 0x5403, 0xdead_beef, 0xc018_4709, 0xc004_470b]
                .contains(request)
        })
        .collect();
    let on = |request: u64, what: &str| {
        ours.iter().filter(|(number, path)| *number == request && path.contains(what)).count()
    };
    for request in [0xc008_4e00, 0xc010_4705, 0x5403, 0xdead_beef] {
        let found = (on(request, "/dev/null"), on(request, "pipe"));
        assert_eq!(found, (1, 1), "{options:?} {request:#x}: {ours:?}");
    }
    let tsg = (on(0xc018_4709, "/dev/zero"), on(0xc018_4709, "/dev/null"));
    assert_eq!(tsg, (1, 1), "{options:?}: {ours:?}");
    assert_eq!((on(0xc004_470b, "/dev/null"), ours.len()), (1, 11), "{options:?}: {ours:?}");
    assert_eq!(model["unread"]["lines"], 0, "{options:?}");
}

#[test]
fn what_fuzzing_found_of_logs_and_records_is_read_or_refused() {
    nvabi_test::replay("strace", fuzz::strace);
    nvabi_test::replay("record", |bytes| {
        let mut sealed = bytes.to_vec();
        fuzz::seal(&mut sealed);
        fuzz::record(bytes) | fuzz::record(&sealed)
    });
}
