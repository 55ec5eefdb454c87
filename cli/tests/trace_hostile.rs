//! Files that somebody made to do harm: each is answered within a second and 64 MiB.
//!
//! A program of its own: what a child is told to have taken counts what its parent had.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../../fuzz/checks/trace.rs"]
mod checks;
#[allow(dead_code)]
#[path = "../../trace/tests/trace/pairs.rs"]
mod pairs;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use checks::seal;
use pairs::{Format, Random, Warp, write};

const FILES: usize = 600;
const SECONDS: u64 = 1;
const MIB: i64 = 64;

/// How a run of the command ended: its exit status, its peak of memory in MiB, and how long it computed,
/// which is the same on a machine that has much else to do.
struct Run {
    code: Option<i32>,
    mib: i64,
    took: Duration,
    told: String,
}

#[allow(clippy::zombie_processes, reason = "wait4 waits for it, and says what it took")]
fn run(arguments: &[&str], folder: &Path) -> Run {
    let log = std::fs::File::create(folder.join("stderr")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_nvabi"))
        .arg("trace")
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the child is ours and nobody else waits for it; both places can be written.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()) };
    assert_eq!(waited, child.id() as i32);
    // SAFETY: wait4 has filled it, and it holds numbers alone.
    let usage = unsafe { usage.assume_init() };
    Run {
        code: std::process::ExitStatus::from_raw(status).code(),
        mib: usage.ru_maxrss / 1024,
        took: time(usage.ru_utime) + time(usage.ru_stime),
        told: std::fs::read_to_string(folder.join("stderr")).unwrap(),
    }
}

fn time(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

fn warps() -> Vec<Warp> {
    let mut random = Random(11);
    let build = |_| {
        let mut warp = Warp::default();
        warp.entry();
        for _ in 0..random.below(40) {
            let site = 10 * (1 + random.below(9) as u32);
            warp.top_tested(site, random.below(9) as usize, 1 + random.below(3) as u32);
        }
        warp.exit();
        warp
    };
    (0..60).map(build).collect()
}

/// Changes a file in one of the ways that hurt readers most.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const NASTY: [u32; 9] =
        [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, 0xffff_ffff, 0x0100_0000];
    for _ in 0..1 + random.below(4) {
        let len = bytes.len() as u64;
        let at = random.below(len) as usize;
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at.max(20)),
            2 | 3 => {
                // Numbers at the start and before warps are sizes.
                let near =
                    if random.below(2) == 0 { random.below(200.min(len)) } else { at as u64 };
                let at = near as usize & !3;
                let number = NASTY[random.below(NASTY.len() as u64) as usize].to_le_bytes();
                if let Some(place) = bytes.get_mut(at..at + 4) {
                    place.copy_from_slice(&number);
                }
            }
            4 => {
                let piece = bytes[at..(at + 100).min(bytes.len())].to_vec();
                let to = random.below(len) as usize;
                bytes.splice(to..to, piece);
            }
            5 => {
                let end = (at + 1 + random.below(64) as usize).min(bytes.len());
                bytes[at..end].fill(random.next() as u8);
            }
            _ => {
                bytes.drain(at..(at + 1 + random.below(200) as usize).min(bytes.len()));
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn every_file_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut originals = Vec::new();
    for (name, format) in [
        ("v1", Format::V1),
        ("fixed", Format::V1Fixed),
        ("v2", Format::V2),
        ("st", Format::V2Stored),
    ] {
        write(&folder.join(name), format, &warps());
        originals.push((name, std::fs::read(folder.join(name)).unwrap()));
    }
    let mut random = Random(1);
    let mut codes = [[0; 3]; 2];
    for number in 0..FILES {
        let (name, original) = &originals[number % originals.len()];
        let mut bytes = original.clone();
        mutate(&mut bytes, &mut random);
        let mut sealed = bytes.clone();
        seal(&mut sealed);
        let commands: [&[&str]; 5] = [
            &["diff", "bad", "bad", "--values"],
            &["diff", name, "bad", "--json", "--history", "3"],
            &["info", "bad"],
            &["dump", "bad"],
            &["convert", "bad", "out"],
        ];
        let command = commands[number / 4 % commands.len()];
        let variants = if sealed == bytes { vec![bytes] } else { vec![bytes, sealed] };
        for (variant, bytes) in variants.iter().enumerate() {
            std::fs::write(folder.join("bad"), bytes).unwrap();
            let run = run(command, folder);
            let case = format!("file {number}.{variant} of {name}: {command:?}");
            let code = run.code.unwrap_or_else(|| panic!("{case} died: {}", run.told));
            assert!((0..=2).contains(&code), "{case}: {code}: {}", run.told);
            assert!(!run.told.contains("panicked"), "{case}: {}", run.told);
            assert!(run.took < Duration::from_secs(SECONDS), "{case} took {:?}", run.took);
            assert!(run.mib < MIB, "{case} took {} MiB", run.mib);
            codes[variant][code as usize] += 1;
        }
    }
    let told = "exits 0, 1 and 2, as they are and with the checksums made right";
    assert!(codes.iter().flatten().all(|count| *count > 10), "{told}: {codes:?}");
}

#[test]
fn sizes_that_are_only_said_cost_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&folder.join("v1"), Format::V1, &warps());
    let mut bytes = std::fs::read(folder.join("v1")).unwrap();
    for at in [20, 32, 44, 48, 136] {
        bytes[at..at + 4].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
    }
    std::fs::write(folder.join("huge"), &bytes).unwrap();
    for arguments in [["diff", "huge", "huge"], ["diff", "v1", "huge"]] {
        let run = run(&arguments, folder);
        assert_eq!(run.code, Some(2), "{}", run.told);
        assert!(run.mib < MIB, "{} MiB", run.mib);
    }
    // 200 KB that a frame of zstd makes of a hundred times as much, again and again.
    let rows = vec![0_u8; 0x40_0000];
    let packed = zstd::bulk::compress(&rows, 1).unwrap();
    assert!(packed.len() < 2000);
    let mut bomb = std::fs::read(folder.join("v1")).unwrap()[..0].to_vec();
    bomb.extend_from_slice(b"NVTRACE\0");
    bomb.extend_from_slice(&2_u32.to_le_bytes());
    bomb.extend_from_slice(&16_u32.to_le_bytes());
    for number in 0..400_u32 {
        let mut chunk = vec![0_u8; 40];
        chunk[..4].copy_from_slice(b"NVTC");
        chunk[12..14].copy_from_slice(&1_u16.to_le_bytes());
        chunk[14..16].copy_from_slice(&1_u16.to_le_bytes());
        chunk[16..20].copy_from_slice(&number.to_le_bytes());
        chunk[24..28].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        chunk[28..32].copy_from_slice(&(rows.len() as u32).to_le_bytes());
        bomb.extend_from_slice(&chunk);
        bomb.extend_from_slice(&packed);
        bomb.resize(bomb.len().next_multiple_of(8), 0);
    }
    seal(&mut bomb);
    std::fs::write(folder.join("bomb"), &bomb).unwrap();
    let run = run(&["info", "bomb"], folder);
    assert_eq!(run.code, Some(2), "{}", run.told);
    assert!(run.told.contains("the size of all site tables"), "{}", run.told);
    assert!(run.mib < MIB, "{} MiB", run.mib);
}
