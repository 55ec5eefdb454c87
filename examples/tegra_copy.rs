//! Copies 64 MiB with the GPU of a Jetson, through two channels, and compares every byte.
//!
//! ```text
//! cargo run --release --features tegra --example tegra_copy           on an Orin
//! nvabi tegra sim -- target/release/examples/tegra_copy               anywhere
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use nvabi::tegra::{AddressSpace, Cache, Channel, ChannelOptions, Device, Push, Subcontext, Tsg};

const SIZE: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open()?;
    println!("{} of {}", device.characteristics().chip(), device.release().tags());
    let space = AddressSpace::new(&device)?;
    let subcontext = Subcontext::new(&Tsg::new(&device)?, &space);
    let mut channels = [
        Channel::new(&subcontext, &ChannelOptions::default())?,
        Channel::new(&subcontext, &ChannelOptions::default())?,
    ];
    let mut from = space.allocate(SIZE, Cache::Inner)?;
    let mut to = space.allocate(SIZE, Cache::Inner)?;
    let pattern: Vec<u8> = (0..SIZE as u32 / 4).flat_map(|i| (i ^ i << 13).to_le_bytes()).collect();
    from.write(0, &pattern)?;
    to.write(0, &vec![0xff; pattern.len()])?;

    // Each channel copies one half; the second waits for the first by a word in memory.
    let flag = space.allocate(4, Cache::Uncached)?;
    let half = SIZE / 2;
    let (source, target) = (from.gpu_address(), to.gpu_address());
    let began = Instant::now();
    let mut push = Push::new();
    push.acquire(flag.gpu_address(), 1).copy(target + half, source + half, half);
    let second = channels[1].submit(&push)?;
    let mut push = Push::new();
    push.copy(target, source, half).release(flag.gpu_address(), 1);
    let first = channels[0].submit(&push)?;
    channels[0].wait(first, PATIENCE)?;
    channels[1].wait(second, PATIENCE)?;
    println!("copied {} MiB in {:.1?}", SIZE >> 20, began.elapsed());

    let mut copied = vec![0; pattern.len()];
    to.read(0, &mut copied)?;
    match pattern.iter().zip(&copied).position(|(a, b)| a != b) {
        None => println!("every byte is the same"),
        Some(at) => return Err(format!("byte {at} differs").into()),
    }
    Ok(())
}
