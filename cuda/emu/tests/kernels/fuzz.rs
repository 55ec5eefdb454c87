//! Cubins that are damaged, and code that nobody wrote: loaded and run, or refused, and never a panic.
//!
//! `NVABI_SASS_FUZZ` is how many cubins.

use std::env;

use crate::gpu::noise;
use crate::sass;

#[path = "../../../../fuzz/checks/sass.rs"]
#[allow(dead_code)]
mod checks;

fn rounds() -> usize {
    env::var("NVABI_SASS_FUZZ").map_or(150, |text| text.parse().unwrap())
}

/// Some module in some variant.
fn cubin(round: usize) -> Vec<u8> {
    let modules = ["classic", "control", "memories", "numbers", "warps", "mistakes", "halves"];
    let variants = sass::cubins(modules[round % modules.len()]);
    variants[round / modules.len() % variants.len()].1.clone()
}

#[test]
fn damaged_cubins_are_run_or_refused() {
    if let Some(why) = sass::missing() {
        nvabi_test::skip(nvabi_test::Need::Cuda, why);
    }
    let mut ran = 0;
    for round in 0..rounds() {
        let mut file = cubin(round);
        let choices = noise(64, round as u32 + 1);
        let count = 1 + choices[0] as usize % 12;
        for pair in choices[1..].chunks(2).take(count) {
            // The tables are at both ends.
            let range = match pair[1] >> 8 & 3 {
                0 => 64,
                1 => 4096.min(file.len()),
                _ => file.len(),
            };
            let from_end = pair[1] & 1 << 12 != 0;
            let at = pair[0] as usize % range;
            let at = if from_end { file.len() - 1 - at } else { at };
            file[at] ^= pair[1] as u8;
        }
        if choices[63] % 9 == 0 {
            file.truncate(choices[62] as usize % file.len());
        }
        ran += usize::from(checks::file(&file));
    }
    assert!(ran > rounds() / 10, "only {ran} ran");
}

#[test]
fn code_that_nobody_wrote_is_run_or_refused() {
    if let Some(why) = sass::missing() {
        nvabi_test::skip(nvabi_test::Need::Cuda, why);
    }
    let mut ran = 0;
    for round in 0..rounds() {
        let mut file = cubin(round);
        let choices = noise(4096, round as u32 + 7);
        let mut next = choices.iter().cycle();
        let mut draw = move || *next.next().unwrap();
        // Instructions are where the stall counts of NOPs and branches at a function's end are: change fields of some
        // of them, at bits that choose registers, modifiers and immediates.
        let text = code_of(&file);
        for _ in 0..40 {
            let at = text.start + draw() as usize % (text.len() / 16) * 16;
            let bit = 12 + draw() as usize % 93;
            file[at + bit / 8] ^= 1 << (bit % 8);
            if draw() % 5 == 0 {
                let from = text.start + draw() as usize % (text.len() / 16) * 16;
                file.copy_within(from..from + 16, at);
            }
        }
        ran += usize::from(checks::file(&file));
    }
    assert!(ran > rounds() / 2, "only {ran} ran");
}

/// Where the sections with code are, from the first to the last.
fn code_of(file: &[u8]) -> std::ops::Range<usize> {
    let number = |at: usize, width: usize| {
        file[at..at + width].iter().rev().fold(0usize, |all, byte| all << 8 | usize::from(*byte))
    };
    let (table, count) = (number(40, 8), number(60, 2));
    let sections = (0..count).map(|at| table + 64 * at);
    let code = sections.filter(|at| number(at + 4, 4) == 1 && number(at + 8, 8) & 4 != 0);
    let ranges: Vec<_> = code.map(|at| (number(at + 24, 8), number(at + 32, 8))).collect();
    let start = ranges.iter().map(|(at, _)| *at).min().unwrap();
    start..ranges.iter().map(|(at, size)| at + size).max().unwrap()
}
