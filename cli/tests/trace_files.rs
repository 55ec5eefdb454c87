//! `nvabi trace` on files, whole and damaged.
#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

#[allow(dead_code)]
#[path = "../../trace/tests/trace/pairs.rs"]
mod pairs;

use std::path::Path;
use std::process::Command;

use nvabi_test::{Need, skip};
use nvabi_trace::{Launch, V2Writer};
use pairs::{FORMATS, Format, Random, Warp, write, write_v2};

test_main!();

const NVABI: &str = env!("CARGO_BIN_EXE_nvabi");

fn many(seed: u64, warps: usize, events: u64) -> Vec<Warp> {
    let mut random = Random(seed);
    let build = |_| {
        let mut warp = Warp::default();
        for _ in 0..events / 2 + random.below(events / 2) {
            warp.branch(10 + random.below(300) as u32, random.below(2) == 1);
            let event = warp.events.last_mut().unwrap();
            (event.mask, event.value) = (random.next() as u32, random.next() as u32);
        }
        warp
    };
    (0..warps).map(build).collect()
}

fn file(format: Format, warps: &[Warp]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    write(&path, format, warps);
    (folder, path)
}

#[test]
fn info_tells_which_code_a_launch_ran() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let mut out = V2Writer::new(std::fs::File::create(&path).unwrap(), None).unwrap();
    let mut module_hash = [0xcd; 32];
    module_hash[..2].copy_from_slice(&[0x01, 0xef]);
    for hash in [module_hash, [0; 32]] {
        out.launch(&Launch { arch: 80, module_hash: hash, ..Launch::default() }, 0).unwrap();
        out.end_launch().unwrap();
    }
    out.finish().unwrap();
    let info = |flags: &[&str]| {
        let mut command = Command::new(NVABI);
        let output = command.args(["trace", "info"]).args(flags).arg(&path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = info(&[]);
    assert!(text.contains("sm_80, code 01efcdcdcdcdcdcd, 0 sites"), "{text}");
    // What is not known is not shown.
    assert_eq!(text.matches("code").count(), 1, "{text}");
    let json = info(&["--json"]);
    assert!(json.contains(&format!("01ef{}", "cd".repeat(30))), "{json}");
}

#[test]
fn sessions_that_are_damaged_are_merged_as_far_as_they_can_be_read() {
    let (folder, path) = file(Format::V2Stored, &many(4, 90, 1000));
    let bytes = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(NVABI);
        let output = command.arg("trace").args(arguments).current_dir(&folder).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), told)
    };
    let name = path.file_name().unwrap().to_str().unwrap();
    for arguments in [
        &["merge", name, "cut", "-o", "out"][..],
        &["convert", "cut", "out", "--to", "v2"],
        &["convert", "cut", "out"],
        &["export", "cut", "out"],
        &["export", "--by-launch", "cut", "out.dir"],
    ] {
        let (code, told) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {told}");
        assert!(told.contains("warning") && told.contains("on are lost: cut: byte"), "{told}");
        assert!(folder.path().join("out").exists(), "{told}");
    }
    // A folder of it is as damaged.
    let (code, told) = run(&["diff", name, "out.dir"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("events were lost, and what is left is the same"), "{told}");
    let (code, told) = run(&["merge", name, name, "-o", "out"]);
    assert_eq!((code, told.contains("warning")), (Some(0), false), "{told}");
}

/// Runs `nvabi trace` in a folder: its status, and what it printed to stdout and to stderr.
fn trace(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(NVABI);
    let output = command.arg("trace").args(arguments).current_dir(folder).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_folder_by_launch_is_the_trace_again() {
    let (mut warps, mut others) = (many(5, 40, 300), many(6, 40, 300));
    others[..30].clone_from_slice(&warps[..30]);
    (others[3].events[7].direction, warps[9].dropped) = (9, 4);
    // A warp that nothing was recorded of.
    for side in [&mut warps, &mut others] {
        side[12].events.clear();
    }
    for format in FORMATS {
        let folder = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| trace(folder.path(), arguments);
        for (name, warps) in [("a", &warps), ("b", &others)] {
            write(&folder.path().join(name), format, warps);
            let exported = run(&["export", "--by-launch", name, &format!("{name}.dir")]);
            assert_eq!(exported.0, Some(0), "{}", exported.2);
            if matches!(format, Format::V1 | Format::V1Fixed) {
                // A folder is nvtrace v2, which says of a branch more than v1.
                assert_eq!(run(&["convert", name, name]).0, Some(0));
            }
        }
        let is_name = |line: &&str| line.starts_with("  \"a\"") || line.starts_with("  \"b\"");
        let diff = |a: &str, b: &str| {
            let (code, json, told) = run(&["diff", "--json", "--values", a, b]);
            assert_eq!(code, Some(1), "{told}");
            json.lines().filter(|line| !is_name(line)).collect::<Vec<_>>().join("\n")
        };
        let files = diff("a", "b");
        for (a, b) in [("a.dir", "b.dir"), ("a", "b.dir"), ("a.dir/launch=0", "b.dir/launch=0/")] {
            assert_eq!(diff(a, b), files, "{format:?}: {a} {b}");
        }
        let info = |name: &str| {
            let (code, text, told) = run(&["info", name]);
            assert_eq!((code, told.as_str()), (Some(0), ""));
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(info("a.dir"), info("a"), "{format:?}");
    }
}

/// Who made the trace chose its kernels' names.
#[test]
fn a_kernels_name_neither_ends_a_line_nor_commands_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut out =
        V2Writer::new(std::fs::File::create(folder.path().join("t")).unwrap(), None).unwrap();
    write_v2(&mut out, "k\u{1b}[2J\nlaunch 9: \u{202e}x", &many(1, 1, 4), 0);
    out.finish().unwrap();
    for arguments in [["dump", "t"], ["info", "t"]] {
        let (code, text, told) = trace(folder.path(), &arguments);
        assert_eq!(code, Some(0), "{told}");
        assert!(text.contains(r"k\u{1b}[2J\nlaunch 9: \u{202e}x"), "{arguments:?}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{arguments:?}: {text}");
    }
}

#[test]
fn a_folder_of_several_launches_has_each_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut out =
        V2Writer::new(std::fs::File::create(folder.path().join("t")).unwrap(), Some(1)).unwrap();
    for (module, kernel) in (0..).zip(["reduce", "scan", "reduce"]) {
        write_v2(&mut out, kernel, &many(u64::from(module), 20, 40), module);
    }
    out.finish().unwrap();
    let run = |arguments: &[&str]| trace(folder.path(), arguments);
    assert_eq!(run(&["export", "--by-launch", "t", "dir"]).0, Some(0));
    assert_eq!(run(&["dump", "--json", "dir"]).1, run(&["dump", "--json", "t"]).1);
    let second =
        run(&["dump", "--json", "t", "--launch", "1"]).1.replace("\"launch\":1", "\"launch\":0");
    assert_eq!(run(&["dump", "--json", "dir/launch=1"]).1, second);

    // What is wrong is told with its place.
    let refused = |path: &str, wanted: &str| {
        let (code, _, told) = run(&["info", path]);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains(wanted), "{told}");
    };
    std::fs::create_dir(folder.path().join("dir/launch=7")).unwrap();
    refused("dir/launch=7", "dir/launch=7: the trace has no launch 7");
    refused(".", "no trace: there is no _frame.nvtrace");
    let events = folder.path().join("dir/launch=1/events.parquet");
    let mut bytes = std::fs::read(&events).unwrap();
    let end = bytes.len() - 20;
    bytes[end..].fill(0);
    std::fs::write(&events, &bytes).unwrap();
    refused("dir", "dir/launch=1/events.parquet: ");
    std::fs::remove_file(&events).unwrap();
    refused("dir", "dir/launch=1/events.parquet: ");
    let copy = |from: &str, to: &str| {
        let path = |launch: &str| folder.path().join(format!("dir/{launch}/events.parquet"));
        std::fs::copy(path(from), path(to)).unwrap();
    };
    copy("launch=0", "launch=1");
    assert_eq!(run(&["info", "dir/launch=2"]).0, Some(0));
}

/// A trace with a launch of each kernel; `different` of them do otherwise than in the other trace.
fn run_of(path: &Path, kernels: &[&str], seed: u64, different: &[usize]) {
    let mut out = V2Writer::new(std::fs::File::create(path).unwrap(), Some(1)).unwrap();
    for (module, kernel) in (0..).zip(kernels) {
        let mut warps = many(seed + u64::from(module), 12, 60);
        if different.contains(&(module as usize)) {
            warps[3].top_tested(19, 5, 3);
            warps[7].events[2].mask ^= 0xf0;
            warps[8].dropped = 2;
        }
        write_v2(&mut out, kernel, &warps, module);
    }
    out.finish().unwrap();
}

#[test]
fn many_pairs_are_compared_by_spark_as_they_are_here() {
    let Some(python) = std::env::var_os("NVABI_SPARK") else {
        skip(Need::Spark, "NVABI_SPARK names no Python with pyspark");
    };
    let folder = tempfile::tempdir().unwrap();
    let kernels = ["reduce", "scan", "reduce", "sort"];
    for pair in 0..6 {
        let traces = folder.path().join(format!("files/{pair}"));
        std::fs::create_dir_all(&traces).unwrap();
        // One launch more on one side; all alike; two that differ.
        run_of(&traces.join("a"), &kernels[..if pair == 4 { 3 } else { 4 }], pair, &[]);
        let different = [&[][..], &[1], &[0, 3], &[2]][pair as usize % 4];
        run_of(&traces.join("b"), &kernels, pair, different);
        for side in ["a", "b"] {
            let (from, to) =
                (format!("files/{pair}/{side}"), format!("runs/pair={pair}/side={side}"));
            assert_eq!(trace(folder.path(), &["export", "--by-launch", &from, &to]).0, Some(0));
        }
    }
    let scale = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scale");
    let run = |script: &str, arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.arg(scale.join(script)).args(arguments).args(["--nvabi", NVABI]);
        let output = command.current_dir(&folder).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (out, error) = run("compare.py", &["runs", "--out", "out"]);
    assert!(out.contains("6 pairs, 24 launches: 4 pairs differ"), "{out}{error}");
    assert!(error.contains("4, launch 3 of sort: only b has it"), "{error}");
    let (out, _) = run("check.py", &["files", "--out", "out"]);
    assert!(out.starts_with("the same: 6 pairs, "), "{out}");
}
