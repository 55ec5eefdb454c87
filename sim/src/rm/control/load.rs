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
        POWER_SAMPLES => power,
        _ => return None,
    })
}

/// No header names it.
const POWER_SAMPLES: &str = "0x2080a60b";
/// What it writes: two words that may be zero, then the samples, the oldest first: a time in ns, 4 bytes that nobody
/// reads, and a power in mW.
const POWER_HEAD: usize = 8;
const POWER_SAMPLE: usize = 16;
/// From one sample to the next: public reports of nvidia-smi have 119 samples of 2.38 s.
const POWER_STEP: Duration = Duration::from_millis(20);

/// No process, where an engine did nothing.
const NOBODY: u32 = u32::MAX;

/// A ring of samples: `tracker` is where the next one comes. Engines for video never do anything.
fn samples(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
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
            let own = match field {
                "fb" => sample.shares.memory,
                "gr" => sample.shares.graphics,
                _ => 0,
            };
            let worked = sample.process.filter(|_| own > 0);
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

/// What a card drew: while it was busy what it draws when it is, else what it draws at rest.
fn power(driver: &mut Driver, target: &Target<'_>, params: &mut Params) -> Result {
    let gpu = target.kind.gpu().ok_or(Status::INVALID_OBJECT)?;
    let drawn = |is_busy| {
        let shares = if is_busy { Shares::WHOLE } else { Shares::default() };
        driver.number_at(gpu, "power.now", Some(shares)).unwrap_or(0)
    };
    let (busy, rest) = (drawn(true), drawn(false));
    let count = params.bytes.len().saturating_sub(POWER_HEAD) / POWER_SAMPLE;
    let (now, ages) = (microseconds(), driver.busy_ages(gpu));
    for at in 0..count {
        let age = POWER_STEP * (count - 1 - at) as u32;
        let time = now.saturating_sub(age.as_micros() as u64) * 1000;
        let drew = if ages.iter().any(|ages| ages.contains(&age)) { busy } else { rest };
        let begin = POWER_HEAD + at * POWER_SAMPLE;
        let range = |offset, size| FieldRange { offset: begin + offset, size, count: 1 };
        params.write(range(0, 8), &Datum::Number(time.into()));
        params.write(range(12, 4), &Datum::Number(drew));
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
