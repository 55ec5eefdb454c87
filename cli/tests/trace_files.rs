//! `nvabi trace` on files, whole and damaged.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../../trace/tests/trace/pairs.rs"]
mod pairs;

use std::process::Command;

use nvabi_trace::{Launch, V2Writer};
use pairs::{Format, Random, Warp, write};

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
    ] {
        let (code, told) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {told}");
        assert!(told.contains("warning") && told.contains("on are lost: cut: byte"), "{told}");
        assert!(folder.path().join("out").exists(), "{told}");
    }
    let (code, told) = run(&["merge", name, name, "-o", "out"]);
    assert_eq!((code, told.contains("warning")), (Some(0), false), "{told}");
}
