//! `nvabi sniff` as a user meets it: on a static program with threads, children and signals, and on clients
//! of simulated drivers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nvabi_pipeline::lock;
use nvabi_pipeline::spec::{Spec, spec_of};
use nvabi_reports::decode::sniff::{Event, File, How, Ioctl, Namer, Piece, Tables, What};
use nvabi_test::{Need, skip};
use serde_json::Value;
use tempfile::TempDir;

test_main!();

const NVABI: &str = env!("CARGO_BIN_EXE_nvabi");

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A program of ours, without libraries.
fn program(name: &str) -> &'static Path {
    static BUILT: OnceLock<Option<TempDir>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let one = |name: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-static", "-pthread", "-o"]).arg(folder.path().join(name));
            let source = root().join(format!("cli/tests/sniff/{name}.c"));
            cc.arg(source).status().is_ok_and(|status| status.success())
        };
        (one("program") && one("client")).then_some(folder)
    });
    match built {
        Some(folder) => Box::leak(folder.path().join(name).into_boxed_path()),
        None => skip(Need::StaticLibc, "cc makes no static programs"),
    }
}

fn nvabi(args: &[&str]) -> Command {
    let mut command = Command::new(NVABI);
    command.current_dir(root()).args(args);
    command
}

/// What calls on terminals show: our program makes all of its calls on them.
fn sniff(method: &str, options: &[&str], words: &[&str]) -> Output {
    let program = program("program");
    let mut command = nvabi(&["sniff", "--method", method, "--path", "/dev/*ptmx"]);
    let output = command.args(options).arg("--").arg(program).args(words).output().unwrap();
    if output.status.code() == Some(2) && err(&output).contains("does not allow it") {
        skip(Need::Supervise, err(&output));
    }
    output
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The objects among lines.
fn objects(text: &str) -> Vec<Value> {
    let objects = text.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ioctls(objects: &[Value]) -> Vec<&Value> {
    objects.iter().filter(|object| object["call"] == "ioctl").collect()
}

#[test]
fn calls_and_their_results() {
    let output = sniff("ptrace", &["--json"], &["basic"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(out(&output), "the program's own words\n");
    let objects = objects(&err(&output));
    let kinds: Vec<_> = objects.iter().map(|object| object["call"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["open", "ioctl", "ioctl", "close", "end"]);
    let [opened, number, unknown, closed, end] = objects.as_slice() else { panic!() };
    assert_eq!(opened["result"], number["fd"]);
    assert_eq!((&number["request"], &number["result"]), (&0x8004_5430_u32.into(), &0.into()));
    let field = &number["fields"][0];
    assert_eq!(field["value"], "ffffffff");
    assert_ne!(field["after"], Value::Null);
    assert_eq!((&unknown["error"], &unknown["result"]), (&"ENOTTY".into(), &Value::Null));
    assert_eq!(unknown["fields"][0]["value"], "0102030000000000");
    assert_eq!(closed["fd"], number["fd"]);
    assert_eq!((&end["code"], &end["signal"]), (&3.into(), &Value::Null));
    let times: Vec<u64> =
        objects[..4].iter().map(|object| object["time"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && objects[..4].iter().all(|o| o["duration"].as_u64() > Some(0)));
    assert!(err(&output).contains("Ended exit status 3, 4 calls"), "{}", err(&output));
}

#[test]
fn a_listener_invents_no_results() {
    let output = sniff("notify", &["--json"], &["basic"]);
    assert_eq!(
        (output.status.code(), out(&output).lines().count()),
        (Some(0), 1),
        "{}",
        err(&output)
    );
    let objects = objects(&err(&output));
    let kinds: Vec<_> = objects.iter().map(|object| object["call"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["open", "ioctl", "ioctl", "close", "end"]);
    for object in &objects[..4] {
        for unknown in ["result", "error", "duration", "status"] {
            assert_eq!(object[unknown], Value::Null, "{object}");
        }
        assert!(object["fields"].as_array().unwrap().iter().all(|field| field["after"].is_null()));
    }
    let output = sniff("notify", &[], &["basic"]);
    assert_eq!(err(&output).matches(" = ?\n").count(), 4, "{}", err(&output));
    let output = sniff("notify", &["--summary"], &["basic"]);
    let line = "       1       0          ?          ?  /dev/ptmx";
    assert!(err(&output).contains(line), "{}", err(&output));
}

/// A request means something else on each file that no spec knows.
#[test]
fn files_that_are_no_nodes_are_counted_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::write(&one, "").unwrap();
    fs::write(&two, "").unwrap();
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let pattern = format!("{}/*", folder.path().display());
    let words = ["two-files", one, two];
    let options = ["--summary", "--json", "--path", &pattern];
    let output = sniff("ptrace", &options, &words);
    let summary = objects(&err(&output)).swap_remove(0);
    let mut lines: Vec<_> = (summary["lines"].as_array().unwrap().iter())
        .filter(|line| line["name"].as_str().unwrap().starts_with("ioctl"))
        .map(|line| (line["path"].as_str().unwrap(), line["count"].as_u64().unwrap()))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, [(one, 1), (two, 2)], "{summary}");
}

/// Whatever path it is opened by: what counts is what was opened.
#[test]
fn every_way_to_open_a_file() {
    for method in ["ptrace", "notify"] {
        let folder = tempfile::tempdir().unwrap();
        let words = ["opens", folder.path().to_str().unwrap()];
        let output = sniff(method, &["--json"], &words);
        let objects = objects(&err(&output));
        assert_eq!(objects.last().unwrap()["code"], 0, "{}", err(&output));
        let of = |call: &str| -> Vec<&Value> {
            objects.iter().filter(|object| object["call"] == call).collect()
        };
        let opens = of("open");
        assert!(opens.iter().all(|open| open["path"] == "/dev/ptmx"), "{}", err(&output));
        assert_eq!((ioctls(&objects).len(), of("close").len()), (11, 11), "{}", err(&output));
        if method == "ptrace" {
            let (failed, done): (Vec<&Value>, Vec<&Value>) =
                opens.into_iter().partition(|open| open["error"].is_string());
            assert_eq!((failed.len(), done.len()), (1, 11), "{}", err(&output));
            assert_eq!(failed[0]["error"], "ENOTDIR");
        } else {
            // Symbolic links of which the kernel has no copy at hand are not followed.
            assert!(opens.len() >= 8, "{}", err(&output));
        }
    }
}

#[test]
fn a_device_under_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    for method in ["ptrace", "notify"] {
        let words = ["elsewhere", path.to_str().unwrap()];
        let options = ["--json", "--path", "/dev/zero"];
        let output = sniff(method, &options, &words);
        let objects = objects(&err(&output));
        let (end, calls) = objects.split_last().unwrap();
        if end["code"] == 52 {
            skip(Need::Mount, "nothing may be mounted here");
        }
        assert_eq!(end["code"], 0, "{}", err(&output));
        let kinds: Vec<_> = calls.iter().map(|call| call["call"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["open", "ioctl", "close"], "{method}: {}", err(&output));
        for call in calls {
            assert_eq!((&call["path"], &call["how"]), (&path.to_str().into(), &"device".into()));
        }
    }
}

/// Copies under other numbers, from a parent, over a socket, out of another process, over `execve`.
#[test]
fn every_way_to_be_given_a_descriptor() {
    for method in ["ptrace", "notify"] {
        let output = sniff(method, &["--json"], &["given"]);
        let objects = objects(&err(&output));
        assert_eq!(objects.last().unwrap()["code"], 7, "{method}: {}", err(&output));
        let calls = ioctls(&objects);
        assert!(calls.iter().all(|call| call["path"] == "/dev/ptmx"), "{}", err(&output));
        assert_eq!(calls.len(), 8, "{method}: {}", err(&output));
    }
}

#[test]
fn threads() {
    for method in ["ptrace", "notify"] {
        let output = sniff(method, &["--json"], &["threads"]);
        let objects = objects(&err(&output));
        let calls = ioctls(&objects);
        assert_eq!(calls.len(), 200, "{}", err(&output));
        let of = |what: &str| -> BTreeSet<u64> {
            calls.iter().map(|call| call[what].as_u64().unwrap()).collect()
        };
        assert_eq!((of("thread").len(), of("process").len()), (4, 1));
        assert_eq!(objects.last().unwrap()["code"], 0);
    }
}

/// Descriptors by `dup`, `fork`, over a socket, and through `execve`.
#[test]
fn descriptors_are_what_the_kernel_says() {
    for method in ["ptrace", "notify"] {
        let output = sniff(method, &["--json"], &["family"]);
        let objects = objects(&err(&output));
        let calls = ioctls(&objects);
        let paths: Vec<_> = calls.iter().map(|call| call["path"].as_str().unwrap()).collect();
        assert!(paths.len() == 3 && paths.iter().all(|path| path.ends_with("ptmx")), "{paths:?}");
        let processes: BTreeSet<_> = calls.iter().map(|call| call["process"].as_u64()).collect();
        assert_eq!(processes.len(), 3);
        assert_eq!(objects.last().unwrap()["code"], 7, "{method}");
    }
}

#[test]
fn signals_and_stops_are_the_programs() {
    for method in ["ptrace", "notify"] {
        let output = sniff(method, &["--json"], &["signals"]);
        let objects = objects(&err(&output));
        assert_eq!(ioctls(&objects).len(), 1, "{}", err(&output));
        assert_eq!(objects.last().unwrap()["signal"], 15, "{method}");
    }
}

#[test]
fn a_program_ends_where_nobody_reads_it() {
    for method in ["ptrace", "notify"] {
        let output = sniff(method, &["--json"], &["pipe"]);
        let objects = objects(&err(&output));
        assert_eq!(objects.last().unwrap()["signal"], libc::SIGPIPE, "{method}");
    }
}

/// A call of the first thread waits while another begins another program, in its place.
#[test]
fn what_another_program_cut_short_has_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo of coreutils");
    let fifo = fifo.to_str().unwrap();
    let words = ["replaced", fifo];
    let output = sniff("ptrace", &["--json", "--path", fifo], &words);
    let objects = objects(&err(&output));
    let [opened, end] = objects.as_slice() else { panic!("{}", err(&output)) };
    assert_eq!((&opened["call"], &opened["path"]), (&"open".into(), &fifo.into()));
    assert_eq!((&opened["result"], &opened["error"]), (&Value::Null, &Value::Null));
    assert_eq!(end["code"], 0);
}

/// A program that waits, and its number.
fn waiting(method: &str, options: &[&str], how: &str) -> (Child, i32) {
    let program = program("program");
    let mut command = nvabi(&["sniff", "--method", method, "--path", "/dev/*ptmx"]);
    command.args(options).arg("--");
    command.arg(program).arg(how).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    match line.trim().parse() {
        Ok(number) => (child, number),
        Err(_) => skip(Need::Supervise, err(&child.wait_with_output().unwrap())),
    }
}

fn send(process: i32, signal: i32) {
    // SAFETY: `kill` touches no memory of ours; the process is a child that nobody has waited for, so the number is
    // its own.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

fn is_there(process: i32) -> bool {
    // SAFETY: with signal 0 `kill` sends nothing, and touches no memory.
    let answers = unsafe { libc::kill(process, 0) } == 0;
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    answers && !status.contains("State:\tZ")
}

#[test]
fn who_asks_us_to_end_asks_the_program() {
    for method in ["ptrace", "notify"] {
        let (child, program) = waiting(method, &[], "wait");
        send(child.id() as i32, libc::SIGTERM);
        let output = child.wait_with_output().unwrap();
        assert!(err(&output).contains("Ended signal 15, 2 calls"), "{}", err(&output));
        assert!(!is_there(program));
    }
}

#[test]
fn what_a_program_leaves_is_ended() {
    for method in ["ptrace", "notify"] {
        let (child, left) = waiting(method, &[], "leave");
        // Until the program's own end is seen, signals are its.
        let until = Instant::now() + Duration::from_secs(10);
        while is_there(left) {
            assert!(Instant::now() < until, "{method}: {left} is left");
            send(child.id() as i32, libc::SIGTERM);
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().unwrap();
        assert!(err(&output).contains("Ended exit status 0"), "{}", err(&output));
    }
}

#[test]
fn a_program_does_not_outlive_us() {
    for method in ["ptrace", "notify"] {
        let (mut child, program) = waiting(method, &[], "wait");
        child.kill().unwrap();
        child.wait().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while is_there(program) {
            assert!(Instant::now() < until, "{method}: {program} is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Who follows the file of a program that goes on sees its calls.
#[test]
fn calls_are_written_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls");
    for method in ["ptrace", "notify"] {
        let options = ["--out", calls.to_str().unwrap()];
        let (mut child, program) = waiting(method, &options, "wait");
        let until = Instant::now() + Duration::from_secs(10);
        while fs::read_to_string(&calls).unwrap().lines().count() < 2 {
            assert!(Instant::now() < until && is_there(program), "{method}");
            std::thread::sleep(Duration::from_millis(10));
        }
        send(child.id() as i32, libc::SIGTERM);
        child.wait().unwrap();
    }
}

#[test]
fn programs_that_cannot_be_run_are_errors() {
    let output = nvabi(&["sniff", "--", "/nonexistent/program"]).output().unwrap();
    if err(&output).contains("does not allow it") {
        skip(Need::Supervise, err(&output));
    }
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("cannot run /nonexistent/program: No such file"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_record_is_told_as_it_was_live() {
    let folder = tempfile::tempdir().unwrap();
    let (record, live) = (folder.path().join("a.sniff"), folder.path().join("live"));
    for method in ["ptrace", "notify"] {
        for json in [&["--json"][..], &[]] {
            let mut options = vec!["--lines", "--record", record.to_str().unwrap()];
            options.extend(["--out", live.to_str().unwrap()]);
            options.extend(json);
            let output = sniff(method, &options, &["family"]);
            assert_eq!(output.status.code(), Some(0), "{}", err(&output));
            let mut args = vec!["decode", "sniff", record.to_str().unwrap()];
            args.extend(json);
            let decoded = nvabi(&args).output().unwrap();
            assert_eq!(decoded.status.code(), Some(0), "{}", err(&decoded));
            assert_eq!(out(&decoded), fs::read_to_string(&live).unwrap());
            assert!(out(&decoded).lines().count() >= 7);
        }
    }
}

#[test]
fn damaged_records() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("a.sniff");
    let path = record.to_str().unwrap();
    let _ = sniff("ptrace", &["--record", path], &["basic"]);
    let whole = fs::read(&record).unwrap();
    let decoded = |bytes: &[u8]| {
        fs::write(&record, bytes).unwrap();
        nvabi(&["decode", "sniff", path]).output().unwrap()
    };
    let lines = out(&decoded(&whole)).lines().count();
    assert_eq!(lines, 4);
    // Cut in its last record, the end: every call is there.
    let cut = decoded(&whole[..whole.len() - 1]);
    assert_eq!((cut.status.code(), out(&cut).lines().count()), (Some(0), 4), "{}", err(&cut));
    assert!(err(&cut).contains("ends within the record at byte"), "{}", err(&cut));
    assert!(err(&cut).contains("the recording has no end"));
    // Damaged there: what precedes it is told.
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = decoded(&bytes);
    assert_eq!((damaged.status.code(), out(&damaged).lines().count()), (Some(2), 4));
    let at = whole.len() - 8 - 3;
    let place = format!("the record at byte {at} is damaged: its checksum");
    assert!(err(&damaged).contains(&place), "{}", err(&damaged));
    for (bytes, message) in [
        (&b"GIF89a"[..], "is no record of nvabi sniff"),
        (b"nvabi-sniff\n\x03\0\0\0", "is a record of version 3"),
        (b"nvabi-sniff\n\x02\0\0\0", "it lacks the command line"),
        (b"nvabi-sniff\n\x01\0\0\0", "it lacks the command line"),
        (b"nvabi-sniff\n\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", "at byte 16 is damaged: its length"),
    ] {
        let output = decoded(bytes);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(message), "{}", err(&output));
    }
}

/// What may not be done is told, and done in the other way where there is one.
#[test]
fn where_something_is_not_allowed() {
    let program = program("program");
    let run = |lacking: &str, options: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(root()).args([lacking, NVABI, "sniff", "--path", "/dev/*ptmx"]);
        command.args(options).arg("--").arg(program).arg("basic").output().unwrap()
    };
    let output = run("without-ptrace", &[]);
    let text = err(&output);
    if output.status.code() == Some(47) || text.contains("seccomp: filters with a listener") {
        skip(Need::Supervise, "seccomp offers no filters here");
    }
    assert!(text.contains("ptrace is not permitted: Operation not permitted"), "{text}");
    assert!(text.contains("Tracing via seccomp notification"), "{text}");
    assert!(text.contains("Ended exit status 3, 4 calls"), "{text}");
    let output = run("without-ptrace", &["--method", "ptrace"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("this machine does not allow it: ptrace: Operation not"));
    let output = run("without-seccomp", &["--method", "notify"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("filters with a listener are not permitted"), "{}", err(&output));
    let output = run("without-filters", &["--method", "notify"]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("this machine does not allow it: seccomp"), "{}", err(&output));
    // A tracer needs no filter.
    for lacking in ["without-seccomp", "without-filters"] {
        let output = run(lacking, &[]);
        let text = err(&output);
        assert!(text.contains("at every system call: seccomp filters are not permitted"), "{text}");
        assert!(text.contains("Ended exit status 3, 4 calls"), "{text}");
        assert_eq!(out(&output), "the program's own words\n");
    }
}

/// A tracer that has no filter to help sees the same, of threads and children too.
#[test]
fn without_filters_the_same_calls_are_seen() {
    let program = program("program");
    for (words, calls) in [("threads", 200), ("family", 3), ("given", 8), ("signals", 1)] {
        let mut command = Command::new(program);
        command.current_dir(root()).args(["without-filters", NVABI, "sniff", "--json"]);
        command.args(["--path", "/dev/*ptmx", "--"]).arg(program).arg(words);
        let output = command.output().unwrap();
        if output.status.code() == Some(47) || err(&output).contains("ptrace is not permitted") {
            skip(Need::Supervise, err(&output));
        }
        assert_eq!(ioctls(&objects(&err(&output))).len(), calls, "{words}: {}", err(&output));
    }
}

/// A client of a simulated kernel, watched from within it or from without.
fn simulated(simulator: &[&str], options: &[&str], is_within: bool, what: &str) -> Output {
    let client = program("client").to_str().unwrap();
    let (watch, play) = (["sniff"], simulator);
    let mut command = match is_within {
        true => nvabi(play),
        false => nvabi(&watch),
    };
    if !is_within {
        command.args(options);
    }
    command.args(["--", NVABI]).args(if is_within { &watch[..] } else { play });
    if is_within {
        command.args(options);
    }
    let output = command.args(["--", client, what]).output().unwrap();
    let text = err(&output);
    if text.contains("does not allow it") || text.contains("does not permit") {
        skip(Need::Supervise, text);
    }
    output
}

fn file(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

/// Names are those of the tag that the driver says, handles have the classes that they were allocated
/// with, and what pointers lead to is shown.
#[test]
fn a_client_of_the_x86_driver() {
    let folder = tempfile::tempdir().unwrap();
    let calls = file(&folder, "calls");
    for (tag, is_within) in [("535.183.01", true), ("570.86.15", false)] {
        let options = ["--json", "--out", calls.to_str().unwrap()];
        let simulator = ["rm", "sim", "--tag", tag];
        let output = simulated(&simulator, &options, is_within, "desktop");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let said = format!("using the names of {tag}, which the driver reports");
        assert!(err(&output).contains(&said), "{}", err(&output));
        let objects = objects(&fs::read_to_string(&calls).unwrap());
        let named = |name: &str, detail: Option<&str>| -> &Value {
            let mut found = objects.iter().filter(|object| {
                object["name"] == name
                    && detail.is_none_or(|detail| object["detail"]["name"] == detail)
            });
            found.next().unwrap_or_else(|| panic!("{name} {detail:?}"))
        };
        let field = |object: &Value, name: &str| -> Value {
            let fields = object["fields"].as_array().unwrap();
            let found = fields.iter().find(|field| field["name"] == name);
            found.unwrap_or_else(|| panic!("{name}: {object}")).clone()
        };
        let version = named("NV_ESC_CHECK_VERSION_STR", None);
        assert_eq!(field(version, "versionString")["after"], tag);
        let registered = named("NV_ESC_REGISTER_FD", None);
        assert_eq!(field(registered, "ctl_fd")["says"], "/dev/nvidiactl");
        assert_eq!(
            (&registered["node"], &registered["path"]),
            (&"nvidia".into(), &"/dev/nvidia0".into())
        );
        let client = named("NV_ESC_RM_ALLOC", Some("NV01_ROOT_CLIENT"));
        assert_eq!((&client["status"]["name"], &client["result"]), (&"NV_OK".into(), &0.into()));
        assert_eq!(field(client, "hObjectNew")["says"], "NV01_ROOT_CLIENT");
        let subdevice = named("NV_ESC_RM_ALLOC", Some("NV20_SUBDEVICE_0"));
        assert_eq!(field(subdevice, "hObjectParent")["says"], "NV01_DEVICE_0");
        assert_eq!(field(subdevice, "pAllocParms->subDeviceId")["value"], 0);
        let ids = named("NV_ESC_RM_CONTROL", Some("NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS"));
        assert_eq!(field(ids, "hObject")["says"], "NV01_ROOT_CLIENT");
        assert_ne!(field(ids, "params->gpuIds")["after"], Value::Null);
        let refused = objects.iter().find(|o| o["detail"]["number"] == 0x1234).unwrap();
        assert_eq!(refused["status"]["name"], "NV_ERR_INVALID_CLASS");
        // What a call carries is named, and what it freed is known no more.
        let freed = named("NV_ESC_RM_FREE", None);
        assert_eq!(freed["carries"], 0xc010_4629_u32);
        assert_eq!(field(freed, "ptr->hObjectOld")["says"], "NV20_SUBDEVICE_0");
        let late = objects.iter().rfind(|o| o["name"] == "NV_ESC_RM_CONTROL").unwrap();
        assert_eq!(field(late, "hObject")["says"], Value::Null);
        let unknown = objects.iter().find(|o| o["request"] == 0xc008_4699_u32).unwrap();
        assert_eq!((&unknown["name"], &unknown["error"]), (&Value::Null, &"EINVAL".into()));
    }
}

/// Descriptors of a simulator have no path: copies of them, here and in others, are known all the same.
#[test]
fn copies_of_descriptors_without_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let calls = file(&folder, "calls");
    for is_within in [true, false] {
        let options = ["--json", "--out", calls.to_str().unwrap()];
        let simulator = ["rm", "sim", "--tag", "570.86.15"];
        let output = simulated(&simulator, &options, is_within, "copies");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let objects = objects(&fs::read_to_string(&calls).unwrap());
        let asked: Vec<_> = (objects.iter())
            .filter(|object| object["name"] == "NV_ESC_CHECK_VERSION_STR")
            .map(|object| object["path"].as_str().unwrap())
            .collect();
        assert_eq!(asked, ["/dev/nvidiactl"; 9], "{is_within}");
    }
}

#[test]
fn a_list_says_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let (record, list) = (file(&folder, "a.sniff"), file(&folder, "allowed"));
    let simulator = ["rm", "sim", "--tag", "570.86.15"];
    let options = ["--record", record.to_str().unwrap(), "--check", "gvisor"];
    let output = simulated(&simulator, &options, true, "desktop");
    let text = err(&output);
    // The simulator tells the status of its program: something was found.
    assert_eq!(output.status.code(), Some(1), "{text}");
    for (lacking, count) in
        [("class    0x00001234", 1), ("control  0x20800fff", 1), ("frontend 0x00000099", 1)]
    {
        assert_eq!(text.matches(lacking).count(), count, "{lacking}\n{text}");
    }
    assert!(
        text.contains("gvisor at 570.86.15 lacks:") && !text.contains("NV_ESC_RM_ALLOC"),
        "{text}"
    );
    let checked = |text: &str, version: &str| {
        fs::write(&list, text).unwrap();
        let asked = format!("{}{version}", list.display());
        nvabi(&["decode", "sniff", record.to_str().unwrap(), "--check", &asked]).output().unwrap()
    };
    let all = "frontend 0/0\nclass 0/0\ncontrol 0/0\n";
    let clean = checked(all, "");
    assert_eq!(clean.status.code(), Some(0), "{}", out(&clean));
    assert!(out(&clean).contains("has every call that was made"));
    let versions = "version 550.40.07\nversion 570.86.15 of 550.40.07\n";
    let rows = "frontend 0/0\nclass 0/0\ncontrol 0/0 until 570.86.15\ncontrol NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS\n";
    let lacks = checked(&format!("{versions}{rows}"), "");
    assert_eq!((lacks.status.code(), out(&lacks).lines().count()), (Some(1), 2), "{}", out(&lacks));
    assert!(out(&lacks).contains("control  0x20800fff (unknown)"));
    assert_eq!(checked(&format!("{versions}{rows}"), ":550.40.07").status.code(), Some(0));
    let bad = checked("frontend 1\nfrontends 2\n", "");
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        err(&bad).contains("allowed:2:1") && err(&bad).contains("unknown kind of call"),
        "{}",
        err(&bad)
    );
    // A table as nvproxy's.
    let row = |name: &str, key: &str, number: &str| {
        format!(r#"{{"name": "{name}", "{key}": {number}, "since": null, "until": null}}"#)
    };
    let table = format!(
        r#"{{"versions": [{{"version": "570.86.15", "parent": null}}], "uvm": [], "control": [{}],
            "frontend": [{}], "alloc": [{}], "anything": "else"}}"#,
        row("A", "cmd", r#""0x00000201""#),
        row("B", "nr", "42"),
        row("C", "class_id", r#""0x00000041""#)
    );
    let of_table = checked(&table, "");
    assert_eq!(of_table.status.code(), Some(1), "{}", err(&of_table));
    let text = out(&of_table);
    assert!(text.contains("NV01_DEVICE_0") && text.contains("NV_ESC_RM_ALLOC"), "{text}");
    assert!(!text.contains("GET_ATTACHED_IDS") && !text.contains("NV01_ROOT_CLIENT"), "{text}");
}

/// The object `audit` of some lines: kinds, calls, details, fields, places and counts of its findings.
fn audited(text: &str) -> (Value, Vec<String>) {
    let audit = objects(text).into_iter().find(|object| object["call"] == "audit").unwrap();
    let findings = audit["findings"].as_array().unwrap().iter().map(|finding| {
        let text = |key: &str| finding[key].as_str().unwrap_or("-").to_owned();
        let parts = [text("kind"), text("call"), text("detail"), text("field")].join(" ");
        format!("{parts} {} {}", finding["offset"], finding["count"])
    });
    let findings = findings.collect();
    (audit, findings)
}

#[test]
fn an_audit_finds_each_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let (record, audit) = (file(&folder, "a.sniff"), file(&folder, "audit"));
    let (record, out_path) = (record.to_str().unwrap(), audit.to_str().unwrap());
    for is_within in [true, false] {
        let options = ["--audit", "--json", "--record", record, "--out", out_path];
        let simulator = ["rm", "sim", "--tag", "570.86.15"];
        let output = simulated(&simulator, &options, is_within, "wrong");
        // Disagreements were found; outermost the simulator has the status of its program.
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        let (live, findings) = audited(&fs::read_to_string(out_path).unwrap());
        let ids = "NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS";
        let control = "NV0000_CTRL_CMD_OS_UNIX_GET_CONTROL_FILE_DESCRIPTOR";
        let expected = [
            "request-size NV_ESC_RM_FREE - - null 1".to_owned(),
            "request-size NV_ESC_RM_MAP_MEMORY_DMA - - null 3".to_owned(),
            "direction NV_ESC_RM_FREE - - null 1".to_owned(),
            format!("params-size NV_ESC_RM_CONTROL {ids} - null 1"),
            "closed-fd NV_ESC_REGISTER_FD - ctl_fd 0 1".to_owned(),
            format!("unknown-handle NV_ESC_RM_CONTROL {ids} hObject 4 1"),
            "unknown-ioctl ioctl(0xc0084698) - - null 1".to_owned(),
            "unknown-ioctl ioctl(0xc0084699) - - null 1".to_owned(),
            "unknown-command NV_ESC_RM_CONTROL command 0x20800ffe - null 1".to_owned(),
            "unknown-command NV_ESC_RM_CONTROL command 0x20800fff - null 1".to_owned(),
            "unknown-class NV_ESC_RM_ALLOC class 0x1234 - null 1".to_owned(),
            "hidden-pointer NV_ESC_RM_CONTROL command 0x20800ffe params 8 1".to_owned(),
            "hidden-pointer NV_ESC_RM_MAP_MEMORY - params.offset 16 1".to_owned(),
            format!("hidden-fd NV_ESC_RM_CONTROL {control} params->fd 0 1"),
        ];
        assert_eq!(findings, expected, "{is_within}");
        let sizes = |at: usize| {
            let finding = &live["findings"][at];
            (finding["found"].clone(), finding["expected"].clone(), finding["tags"].clone())
        };
        assert_eq!(sizes(0), (12.into(), vec![16].into(), Value::Null));
        let (found, expected, tags) = sizes(1);
        assert_eq!((found, expected), (64.into(), vec![56].into()));
        assert!(tags[0].as_str().unwrap().starts_with("580.65.06 to "), "{tags}");
        assert_eq!(live["seen"]["commands"], serde_json::json!([ids, control]));
        let summary = live["summary"].as_array().unwrap();
        let of = |kind: &str| summary.iter().find(|row| row["kind"] == kind).unwrap();
        assert_eq!(
            (&of("request-size")["findings"], &of("request-size")["calls"]),
            (&2.into(), &4.into())
        );
        assert_eq!(summary.len(), 10, "{summary:?}");
        // A record has all that it takes.
        let decoded = nvabi(&["decode", "sniff", "--audit", "--json", record]).output().unwrap();
        assert_eq!((decoded.status.code(), audited(&out(&decoded)).0), (Some(1), live));
    }
    let text = nvabi(&["decode", "sniff", "--audit", record]).output().unwrap();
    let text = out(&text);
    let size = "3 request-size     nvidiactl    NV_ESC_RM_MAP_MEMORY_DMA: 64 bytes, expected 56; 64 bytes in 580.65.06";
    assert!(text.contains(size), "{text}");
    assert!(text.contains("NV_ESC_RM_FREE: 12 bytes, expected 16; at no locked tag"), "{text}");
    assert!(text.contains("NV_ESC_RM_FREE: write, expected readwrite"), "{text}");
    assert!(text.lines().last().unwrap().contains("1 hidden-fd        in      1 calls"), "{text}");
}

/// Calls as they should be have no findings; those that no header names are no disagreement.
#[test]
fn an_audit_without_disagreements() {
    let folder = tempfile::tempdir().unwrap();
    let audit = file(&folder, "audit");
    let options = ["--audit", "--json", "--out", audit.to_str().unwrap()];
    let output = simulated(&["rm", "sim", "--tag", "570.86.15"], &options, true, "desktop");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let (_, findings) = audited(&fs::read_to_string(&audit).unwrap());
    let kinds: Vec<_> = findings.iter().map(|finding| finding.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["unknown-ioctl", "unknown-command", "unknown-class"], "{findings:?}");
    let options = ["--audit", "--json", "--tag", "tegra-r36.4", "--out", audit.to_str().unwrap()];
    let output = simulated(&["tegra", "sim"], &options, true, "tegra");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let (audit, findings) = audited(&fs::read_to_string(&audit).unwrap());
    assert_eq!(findings, ["unknown-ioctl ioctl(0xc00847ff) - - null 1"]);
    assert_eq!(audit["seen"]["ioctls"].as_array().unwrap().len(), 3, "{audit}");
}

#[test]
fn a_client_of_a_jetsons_drivers() {
    let folder = tempfile::tempdir().unwrap();
    let calls = file(&folder, "calls");
    for is_within in [true, false] {
        let options = ["--json", "--tag", "tegra-r36.4", "--out", calls.to_str().unwrap()];
        let output = simulated(&["tegra", "sim"], &options, is_within, "tegra");
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let objects = objects(&fs::read_to_string(&calls).unwrap());
        let named = |name: &str| objects.iter().find(|object| object["name"] == name);
        let create = named("NVMAP_IOC_CREATE").unwrap();
        assert_eq!((&create["path"], &create["how"]), (&"/dev/nvmap".into(), &"open".into()));
        assert_eq!(create["fields"][0]["value"], 4096);
        let opened = named("NVGPU_GPU_IOCTL_OPEN_TSG").unwrap();
        assert_eq!(opened["node"], "ctrl");
        // What an ioctl returned is known by that.
        let enabled = named("NVGPU_IOCTL_TSG_ENABLE").unwrap();
        assert_eq!((&enabled["node"], &enabled["how"]), (&"tsg".into(), &"ioctl".into()));
        let unknown = objects.iter().find(|object| object["request"] == 0xc008_47ff_u32).unwrap();
        assert!(unknown["error"].is_string() && unknown["name"].is_null(), "{unknown}");
    }
}

/// A version that the lock has not is as the one next to it, and that is said.
#[test]
fn other_tags() {
    let folder = tempfile::tempdir().unwrap();
    let record = file(&folder, "a.sniff");
    let simulator = ["rm", "sim", "--tag", "570.86.15"];
    let options = ["--record", record.to_str().unwrap()];
    let output = simulated(&simulator, &options, true, "desktop");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let decoded = |tag: &str| {
        nvabi(&["decode", "sniff", record.to_str().unwrap(), "--tag", tag]).output().unwrap()
    };
    let same = decoded("570.86.15");
    let near = decoded("570.86.99");
    assert_eq!(out(&same), out(&near));
    assert!(
        err(&near).contains("the lock has no tag 570.86.99: using the names of 570.86"),
        "{}",
        err(&near)
    );
    // The oldest knows no client by its number alone, and has the same requests.
    let old = decoded("515.43.04");
    assert_eq!(out(&old).lines().count(), out(&same).lines().count());
    let bad = nvabi(&[
        "decode",
        "sniff",
        record.to_str().unwrap(),
        "--tag",
        "550.54.14",
        "--tag",
        "535.43.02",
    ]);
    let bad = { bad }.output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(err(&bad).contains("two tags of one driver family"), "{}", err(&bad));
}

/// Calls by their bytes alone, as no simulator answers them.
struct RawCalls {
    tables: Tables,
    namer: Namer,
}

impl RawCalls {
    fn new(tag: &str) -> Self {
        let tag = tag.parse().unwrap();
        let specs = Spec::load_family(&root().join("abi-specs"), "").unwrap();
        let (locked, _) = lock::read(&root().join("abi-specs/lock")).unwrap();
        let mut tables = Tables::default();
        tables.add(locked.facts(&tag).unwrap(), spec_of(&specs, &tag).unwrap());
        Self { tables, namer: Namer::default() }
    }

    /// A call that returns 0: its argument's bytes, by fields, and other memory.
    fn call(
        &mut self,
        node: &str,
        request: u32,
        fields: &[(&str, u64)],
        more: Vec<Piece>,
    ) -> Value {
        let mut bytes = vec![0; (request >> 16 & 0x3fff) as usize];
        for (field, value) in fields {
            let (at, size) = self.tables.place(node, request, field).unwrap();
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        let argument = Piece {
            address: 0x1000,
            length: bytes.len() as u64,
            before: bytes.clone(),
            after: Some(bytes),
        };
        self.named_with(node, request, std::iter::once(argument).chain(more).collect())
    }

    fn named_with(&mut self, node: &str, request: u32, pieces: Vec<Piece>) -> Value {
        let file = File { path: "/dev/x".into(), node: node.into(), how: How::Path };
        let (fds, addresses) = (Vec::new(), Vec::new());
        let ioctl = Ioctl { fd: 3, file, request, argument: 0x1000, pieces, fds, addresses };
        let (what, result, duration) = (What::Ioctl(ioctl), Some(0), Some(5));
        let event = Event { time: 0, process: 1, thread: 1, what, result, duration };
        serde_json::to_value(self.namer.name(&self.tables, &event)).unwrap()
    }
}

fn says(object: &Value, name: &str) -> Value {
    let fields = object["fields"].as_array().unwrap();
    fields.iter().find(|field| field["name"] == name).unwrap_or_else(|| panic!("{name}"))["says"]
        .clone()
}

#[test]
fn objects_of_older_calls() {
    let mut raw = RawCalls::new("550.90.07");
    let rm = |nr: u32, size: u32| 3 << 30 | size << 16 | 0x4600 | nr;
    let heap = raw.call(
        "nvidiactl",
        rm(0x4a, 184),
        &[("hRoot", 9), ("hObjectParent", 7), ("function", 2), ("data.AllocSize.hMemory", 77)],
        Vec::new(),
    );
    assert_eq!(heap["name"], "NV_ESC_RM_VID_HEAP_CONTROL");
    assert_eq!(says(&heap, "function"), "NVOS32_FUNCTION_ALLOC_SIZE");
    let dup =
        [("hClient", 9), ("hParent", 7), ("hObject", 78), ("hClientSrc", 9), ("hObjectSrc", 77)];
    let dup = raw.call("nvidia", rm(0x34, 28), &dup, Vec::new());
    assert_eq!(
        (&dup["name"], says(&dup, "hObjectSrc")),
        (&"NV_ESC_RM_DUP_OBJECT".into(), "NV01_MEMORY_LOCAL_USER".into())
    );
    let free = [("hRoot", 9), ("hObjectParent", 7), ("hObjectOld", 78)];
    let freed = raw.call("nvidiactl", rm(0x29, 16), &free, Vec::new());
    assert_eq!(says(&freed, "hObjectOld"), "NV01_MEMORY_LOCAL_USER");
    let again = raw.call("nvidiactl", rm(0x29, 16), &free, Vec::new());
    assert_eq!(says(&again, "hObjectOld"), Value::Null);
}

/// Where the argument cannot be read, nobody knows what was asked for.
#[test]
fn no_command_without_its_number() {
    let mut raw = RawCalls::new("550.90.07");
    let rm = |nr: u32, size: u32| 3 << 30 | size << 16 | 0x4600 | nr;
    for (node, name, request) in [
        ("nvidiactl", "NV_ESC_RM_CONTROL", rm(0x2a, 32)),
        ("nvidiactl", "NV_ESC_RM_ALLOC", rm(0x2b, 48)),
        ("nvidia-modeset", "NVKMS_IOCTL_CMD", 3 << 30 | 16 << 16 | 0x6d00),
    ] {
        let length = u64::from(request >> 16 & 0x3fff);
        let unread = Piece { address: 0x1000, length, before: Vec::new(), after: None };
        let named = raw.named_with(node, request, vec![unread]);
        assert_eq!((&named["name"], &named["detail"]), (&name.into(), &Value::Null), "{named}");
    }
}

/// What display is asked for stands in its one argument; lists are told by their elements.
#[test]
fn what_pointers_lead_to() {
    let mut raw = RawCalls::new("550.90.07");
    let piece = |address, bytes: &[u8], length| Piece {
        address,
        length,
        before: bytes.to_vec(),
        after: Some(bytes.to_vec()),
    };
    let request = 3 << 30 | 16 << 16 | 0x6d00;
    let fields = [("cmd", 0), ("size", 4), ("address", 0x5000)];
    let asked = raw.call("nvidia-modeset", request, &fields, vec![piece(0x5000, &[1; 4], 4)]);
    assert_eq!(asked["detail"]["name"], "NVKMS_IOCTL_ALLOC_DEVICE");
    // A list within the parameters of a command, of which a part was kept.
    let request = 3 << 30 | 32 << 16 | 0x462a;
    let fields = [("hClient", 9), ("cmd", 0x2080_1201), ("params", 0x6000), ("paramsSize", 40)];
    let mut info = [0; 40];
    info[0] = 3;
    info[8..10].copy_from_slice(&0x7000_u16.to_le_bytes());
    let list: Vec<u8> = [1_u32, 11, 2, 12].iter().flat_map(|number| number.to_le_bytes()).collect();
    let more = vec![piece(0x6000, &info, 40), piece(0x7000, &list, 24)];
    let asked = raw.call("nvidiactl", request, &fields, more);
    assert_eq!(asked["detail"]["name"], "NV2080_CTRL_CMD_GR_GET_INFO", "{asked}");
    let values: Vec<_> = asked["fields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|field| field["name"].as_str().unwrap().starts_with("params->grInfoList["))
        .map(|field| field["value"].as_u64().unwrap())
        .collect();
    assert_eq!(values, [1, 11, 2, 12], "{asked}");
    let notes = asked["notes"].to_string();
    assert!(notes.contains("16 of 24 bytes of params->grInfoList were read"), "{notes}");
}
