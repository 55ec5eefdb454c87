//! What the simulated kernel adds to a call: the median of an ioctl on a simulated node, less that of
//! one on `/dev/null` without a simulator.
//!
//! ```text
//! cargo run --release -p nvabi-sim --example tegra_latency
//! ```

use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use nvabi::call::Ioctl;
use nvabi::tegra::r36::ioctl::{NVGPU_AS_IOCTL_UNMAP_BUFFER, NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE};
use nvabi_sim::tegra::{self as sim, Options};

const CALLS: usize = 100_000;
const CLIENT: &str = "NVABI_SIM_CLIENT";

fn main() -> Result<(), Box<dyn Error>> {
    let size = NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE::REQUEST;
    if std::env::var_os(CLIENT).is_some() {
        tell("simulated, /dev/null", "/dev/null", size)?;
        tell("simulated, ctrl, one word out", "/dev/nvgpu/igpu0/ctrl", size)?;
        let unmap = NVGPU_AS_IOCTL_UNMAP_BUFFER::REQUEST;
        tell("simulated, as, two words in and out", "/dev/nvgpu/igpu0/as", unmap)?;
        return Ok(());
    }
    tell("direct, /dev/null", "/dev/null", size)?;
    let mut command = Command::new(std::env::current_exe()?);
    sim::run(command.env(CLIENT, "1"), &Options::default())?;
    Ok(())
}

fn tell(what: &str, path: &str, request: u32) -> Result<(), Box<dyn Error>> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut times: Vec<Duration> = (0..CALLS)
        .map(|_| {
            let mut argument = 0_u64;
            let start = Instant::now();
            // SAFETY: the argument is as long as both requests say.
            unsafe { libc::ioctl(file.as_raw_fd(), request as _, &raw mut argument) };
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("{what:<40} median {:>8.1?}, 99% {:>8.1?}", times[CALLS / 2], times[CALLS * 99 / 100]);
    Ok(())
}
