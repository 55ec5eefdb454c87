//! How fast the emulator runs a kernel: prints lane instructions, seconds, and the rate per thread.
//!
//! `emu_speed PTX|CUBIN matmul|reduction THREADS [unchecked]`

use std::time::Instant;

use nvabi_emu::{Args, Device, Launch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let (code, kernel, threads, checks) = match &args[..] {
        [_, code, kernel, threads] => (code, kernel, threads, true),
        [_, code, kernel, threads, word] if word == "unchecked" => (code, kernel, threads, false),
        _ => return Err("usage: emu_speed PTX|CUBIN matmul|reduction THREADS [unchecked]".into()),
    };
    let threads = threads.parse()?;
    let mut device = Device::new();
    let code = std::fs::read(code)?;
    let module = match code.starts_with(b"\x7fELF") {
        true => device.load_cubin(&code)?,
        false => device.load(&String::from_utf8(code)?)?,
    };
    let floats =
        |n: usize| -> Vec<u8> { (0..n).flat_map(|i| ((i % 7) as f32).to_le_bytes()).collect() };
    let (launch, args) = match kernel.as_str() {
        "matmul" => {
            let n = 256u32;
            let size = (n * n * 4).into();
            let (a, b, c) = (device.alloc(size)?, device.alloc(size)?, device.alloc(size)?);
            device.write(a, &floats((n * n) as usize))?;
            device.write(b, &floats((n * n) as usize))?;
            let launch =
                Launch { grid: [n / 16, n / 16, 1], block: [16, 16, 1], ..Launch::default() };
            (launch, Args::new().u64(a).u64(b).u64(c).u32(n))
        }
        "reduction" => {
            let n = 4 << 20;
            let (data, sum) = (device.alloc(n * 4)?, device.alloc(4)?);
            let launch = Launch { grid: [256, 1, 1], block: [256, 1, 1], ..Launch::default() };
            (launch, Args::new().u64(data).u64(sum).u32(n as u32))
        }
        other => return Err(format!("no kernel `{other}`").into()),
    };
    let launch = Launch { threads, checks, ..launch };
    let start = Instant::now();
    let report = device.launch(&module, kernel, &launch, &args)?;
    let seconds = start.elapsed().as_secs_f64();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let millions = report.lane_instructions as f64 / 1e6;
    println!(
        "{kernel} {threads} {millions:.1} {seconds:.3} {:.1}",
        millions / seconds / threads as f64
    );
    Ok(())
}
