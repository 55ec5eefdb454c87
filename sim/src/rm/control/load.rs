//! Commands about time, and about who kept a GPU busy when: `nvidia-smi pmon`, NVML's samples.

use std::time::Duration;

use super::{Handler, Target, microseconds};
use crate::Status;
use crate::profile::Datum;
use crate::rm::Driver;
use crate::rm::failed::Result;
use crate::rm::interface::{FieldRange, Params};
use crate::rm::load::Shares;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2" => samples,
        "NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO" => times,
        POWER_SAMPLES => |driver, target, params| history(driver, target, params, &POWER),
        CLOCK_SAMPLES => |driver, target, params| history(driver, target, params, &CLOCKS),
        _ => return None,
    })
}

/// No header names these. What each writes is a head that may be zero, then samples, the oldest first: a time in ns,
/// and numbers.
const POWER_SAMPLES: &str = "0x2080a60b";
const CLOCK_SAMPLES: &str = "0x20809040";
const HEAD: usize = 8;

/// Samples of what a card does by itself.
struct Samples {
    size: usize,
    /// From one to the next.
    step: Duration,
    /// Where its numbers are, which values of the profile they are, and in which part of their unit.
    numbers: &'static [(usize, &'static str, i128)],
}

/// In mW. Public reports of nvidia-smi have 119 samples of 2.38 s.
const POWER: Samples =
    Samples { size: 16, step: Duration::from_millis(20), numbers: &[(12, "power.now", 1)] };
/// In kHz. Public reports of older cards have 100 samples of minutes or hours, at no certain times: the step is made up.
const CLOCKS: Samples = Samples {
    size: 48,
    step: Duration::from_millis(200),
    numbers: &[(16, "clocks.graphics.now", 1000), (36, "clocks.memory.now", 1000)],
};

/// No process, where an engine did nothing.
const NOBODY: u32 = u32::MAX;

/// A ring of samples: `tracker` is where the next one comes. Engines for video never do anything.
fn samples(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    // kern_perf_ctrl.c.
    if driver.is_mig_enabled(gpu) {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let samples = driver.samples(gpu, params.count("samples")?);
    params.set("count", samples.len() as u32)?;
    params.set("tracker", samples.len() as u32)?;
    let now = microseconds();
    let begin = |at: usize| params.place(&format!("samples[{at}].base.timeStamp"));
    let size = begin(1)?.offset - begin(0)?.offset;
    for field in ["fb", "gr", "nvenc", "nvdec", "nvjpg", "nvofa"] {
        let place = |name: &str| params.place(&format!("samples[0].{field}.{name}"));
        let (Ok(share), Ok(process)) = (place("util"), place("procId")) else { continue };
        for (at, sample) in samples.iter().enumerate() {
            // NVML finds a program by what it is to graphics, even where it only copies.
            let (own, worked) = match field {
                "fb" => (sample.shares.memory, sample.process),
                "gr" => (sample.shares.graphics, sample.process),
                _ => (0, None),
            };
            let mut put = |range: FieldRange, number: u32| {
                let range = FieldRange { offset: range.offset + at * size, ..range };
                params.write(range, &Datum::Number(number.into()));
            };
            put(share, own);
            put(process, worked.unwrap_or(NOBODY));
        }
    }
    for (at, sample) in samples.iter().enumerate() {
        let time = now.saturating_sub(sample.age.as_micros() as u64);
        params.set(&format!("samples[{at}].base.timeStamp"), time * 1000)?;
    }
    Ok(())
}

/// What a card did until now: while it was busy what it does when it is, else what it does at rest.
fn history(
    driver: &mut Driver,
    target: &Target<'_>,
    params: &mut Params,
    kind: &Samples,
) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let numbers = kind.numbers.iter().map(|(at, name, parts)| {
        let number = |shares| driver.number_at(gpu, name, Some(shares)).unwrap_or(0) * parts;
        (*at, [Shares::default(), Shares::WHOLE].map(number))
    });
    let numbers: Vec<(usize, [i128; 2])> = numbers.collect();
    let count = params.bytes.len().saturating_sub(HEAD) / kind.size;
    let (now, ages) = (microseconds(), driver.busy_ages(gpu));
    for at in 0..count {
        let age = kind.step * (count - 1 - at) as u32;
        let time = now.saturating_sub(age.as_micros() as u64) * 1000;
        let is_busy = ages.iter().any(|ages| ages.contains(&age));
        let begin = HEAD + at * kind.size;
        let range = |offset, size| FieldRange { offset: begin + offset, size, count: 1 };
        params.write(range(0, 8), &Datum::Number(time.into()));
        for (at, numbers) in &numbers {
            params.write(range(*at, 4), &Datum::Number(numbers[usize::from(is_busy)]));
        }
    }
    Ok(())
}

/// The time of the CPU in us, and of the GPU in ns, so often as is asked: programs take the difference of two samples.
fn times(_: &mut Driver, _: &Target<'_>, params: &mut Params) -> Result {
    let count = params.word("sampleCount")? as usize;
    if count == 0 || count > params.count("samples")? {
        return Err(Status::INVALID_ARGUMENT.into());
    }
    for at in 0..count {
        let now = microseconds();
        params.set(&format!("samples[{at}].cpuTime"), now)?;
        params.set(&format!("samples[{at}].gpuTime"), now * 1000)?;
    }
    Ok(())
}
