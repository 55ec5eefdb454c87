//! Measures how many instructions of a file are decoded each second: `sass_speed FILE`.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use nvabi_sass::cubin::{Code, cubin, images};
use nvabi_sass::{Arch, decode};

/// As long as one measurement takes at least.
const LONG: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("expected a cubin, a fatbin or a program with one")?;
    let file = std::fs::read(path)?;
    let mut words = Vec::new();
    for image in images(&file)? {
        let Code::Cubin(bytes) = &image.code else { continue };
        let Ok(cubin) = cubin(bytes) else { continue };
        let of = |(address, word)| (cubin.arch, word, address);
        words.extend(cubin.functions.iter().flat_map(|function| function.words().map(of)));
    }
    let mut text = String::new();
    measure("decoded", &words, |(arch, word, address)| {
        let _ = black_box(decode(arch, word, address));
    });
    measure("decoded and written", &words, |(arch, word, address)| {
        if let Ok(instruction) = decode(arch, word, address) {
            text.clear();
            let _ = write!(text, "{instruction}");
            black_box(&text);
        }
    });
    Ok(())
}

fn measure(what: &str, words: &[(Arch, u128, u64)], mut each: impl FnMut((Arch, u128, u64))) {
    let start = Instant::now();
    let mut count = 0_u64;
    while start.elapsed() < LONG && !words.is_empty() {
        words.iter().copied().for_each(&mut each);
        count += words.len() as u64;
    }
    let speed = count as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!(
        "{speed:.1} million instructions a second {what}, of {} different places",
        words.len()
    );
}
