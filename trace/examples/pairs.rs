//! Pairs of traces for `benches/trace.sh`: `pair KIND FOLDER WARPS EVENTS` writes `a.gddbg` and
//! `b.gddbg`, `prlx FROM TO` rewrites one for PRLX, as its `trace_format.h` lays it out, and `memcmp A
//! B` says the seconds that comparing two files takes once they are in memory, and 0.
//!
//! The kinds: `same`, `one` (one mask differs in each warp), `all` (each mask differs), `drift` (the
//! loop of 12 warps runs one to three times more).

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::time::Instant;

use memmap2::MmapOptions;

const GDDBG_HEADER: usize = 128;
const PRLX_HEADER: usize = 160;
const PRLX_MAGIC: u64 = 0x5052_4c58_0000_0000;
const EVENT: u64 = 16;
const KERNEL: &str = "bench";
/// Warps whose loop runs longer.
const DRIFTING: u32 = 12;

const BRANCH: u8 = 0;
const STORE: u8 = 1;
const ATOMIC: u8 = 2;
const ENTRY: u8 = 3;
const EXIT: u8 = 4;

/// Events of a round of the loop, its test first.
const ROUND: u32 = 20;
/// The test of the loop.
const TEST: u32 = 0x1000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["pair", kind, folder, warps, events] => {
            let (warps, events) = (warps.parse()?, events.parse()?);
            write(&format!("{folder}/a.gddbg"), Side { kind, b: false }, warps, events)?;
            write(&format!("{folder}/b.gddbg"), Side { kind, b: true }, warps, events)?;
        }
        ["prlx", from, to] => convert(from, to)?,
        ["memcmp", a, b] => compare(a, b)?,
        _ => return Err("pair KIND FOLDER WARPS EVENTS, prlx FROM TO, or memcmp A B".into()),
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Side<'a> {
    kind: &'a str,
    b: bool,
}

impl Side<'_> {
    /// Rounds that a warp makes more.
    fn more(self, warp: u32) -> u32 {
        match self.b && self.kind == "drift" && warp < DRIFTING {
            true => 1 + warp % 3,
            false => 0,
        }
    }

    fn mask(self, warp: u32, index: u32, events: u32) -> u32 {
        // Somewhere in the warp, elsewhere in the next.
        let here = warp.wrapping_mul(2_654_435_761) % events;
        match self.kind {
            "all" if self.b => 0x7fff_ffff,
            "one" if self.b && index == here => 0x7fff_ffff,
            _ => !0,
        }
    }
}

/// `events` is of a warp whose loop does not run longer.
fn write(path: &str, side: Side<'_>, warps: u32, events: u32) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut header = [0; GDDBG_HEADER];
    header[..8].copy_from_slice(b"GDDBGGPU");
    for (at, number) in [(12, 1), (20, warps), (24, 1), (28, 1), (32, 32), (36, 1), (40, 1)] {
        put(&mut header, at, number);
    }
    put(&mut header, 44, warps);
    put(&mut header, 48, events + 3 * ROUND);
    header[64..64 + KERNEL.len()].copy_from_slice(KERNEL.as_bytes());
    out.write_all(&header)?;
    for warp in 0..warps {
        let more = side.more(warp) * ROUND;
        let count = events + more;
        for number in [count, 0, count, count] {
            out.write_all(&number.to_le_bytes())?;
        }
        // The loop ends in the middle of the warp, and the same follows in both.
        let last = 1 + events / 2 / ROUND * ROUND + more;
        for at in 0..count {
            let index = if at < last { at } else { at - more };
            let (site, kind, direction) = step(at, index, last, count);
            let mask = side.mask(warp, index, events);
            let value = index.wrapping_mul(0x9e37_79b9) ^ warp;
            let mut event = [0; EVENT as usize];
            put(&mut event, 0, site);
            (event[4], event[5]) = (kind, direction);
            put(&mut event, 8, mask);
            put(&mut event, 12, value);
            out.write_all(&event)?;
        }
    }
    out.flush()
}

/// The site, type and direction of an event: a loop, the test that ends it at `last`, then what
/// follows no short pattern.
fn step(at: u32, index: u32, last: u32, count: u32) -> (u32, u8, u8) {
    let kinds = [BRANCH, STORE, BRANCH, ATOMIC];
    if at == 0 {
        (0x10, ENTRY, 0)
    } else if at + 1 == count {
        (0x20, EXIT, 0)
    } else if at <= last {
        let of_round = (at - 1) % ROUND;
        (TEST + of_round, kinds[of_round as usize % 4], u8::from(of_round > 0 || at < last))
    } else {
        let random = index.wrapping_mul(2_654_435_761) >> 16;
        (0x2000 + random % 50, kinds[random as usize % 2], (random >> 8) as u8 & 1)
    }
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn convert(from: &str, to: &str) -> io::Result<()> {
    let mut from = BufReader::with_capacity(1 << 20, File::open(from)?);
    let mut to = BufWriter::with_capacity(1 << 20, File::create(to)?);
    let mut gddbg = [0; GDDBG_HEADER];
    from.read_exact(&mut gddbg)?;
    let (warps, capacity) = (get(&gddbg, 44), get(&gddbg, 48));
    let mut prlx = [0; PRLX_HEADER];
    prlx[..8].copy_from_slice(&PRLX_MAGIC.to_le_bytes());
    put(&mut prlx, 8, 1);
    put(&mut prlx, 16, 1);
    prlx[24..88].copy_from_slice(&gddbg[64..128]);
    prlx[88..112].copy_from_slice(&gddbg[20..44]);
    let threads = get(&gddbg, 32) * get(&gddbg, 36) * get(&gddbg, 40);
    for (at, number) in [(112, threads.div_ceil(32)), (116, warps), (120, capacity), (136, 80)] {
        put(&mut prlx, at, number);
    }
    put(&mut prlx, 148, 1);
    to.write_all(&prlx)?;
    for _ in 0..warps {
        let mut header = [0; 16];
        from.read_exact(&mut header)?;
        to.write_all(&header)?;
        let events = u64::from(get(&header, 8));
        io::copy(&mut from.by_ref().take(events * EVENT), &mut to)?;
        // A warp has room for as many events as any may have.
        let rest = (u64::from(capacity) - events) * EVENT;
        io::copy(&mut io::repeat(0).take(rest), &mut to)?;
    }
    to.flush()
}

fn compare(a: &str, b: &str) -> io::Result<()> {
    let map = |path| {
        // SAFETY: the files are the benchmark's own, and nobody writes to them meanwhile.
        unsafe { MmapOptions::new().populate().map(&File::open(path)?) }
    };
    let (a, b) = (map(a)?, map(b)?);
    let started = Instant::now();
    // Small parts, so that it reads to the end where the files differ.
    let same = a.chunks(4096).zip(b.chunks(4096)).filter(|(a, b)| a == b).count();
    let seconds = started.elapsed().as_secs_f64();
    black_box(same);
    println!("{seconds:.3} 0");
    Ok(())
}
