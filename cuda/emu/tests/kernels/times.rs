//! What clock and timer of a kernel count.

use std::sync::OnceLock;
use std::time::Instant;

use nvabi_emu::{Args, Device, Launch, Time};

use super::sass;

/// Writes timer, clock and the upper half of the clock, until so many cycles have passed, and what they are then.
const TEXT: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry times(.param .u64 out, .param .u64 cycles) {
  .reg .b32 %r<3>; .reg .b64 %rd<9>; .reg .pred %p<2>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [cycles];
  mov.u64 %rd3, %globaltimer; mov.u64 %rd4, %clock64; mov.u32 %r1, %clock_hi; cvt.u64.u32 %rd5, %r1;
  st.global.u64 [%rd1], %rd3; st.global.u64 [%rd1+8], %rd4; st.global.u64 [%rd1+16], %rd5;
again: mov.u64 %rd6, %clock64; sub.u64 %rd7, %rd6, %rd4; setp.lt.u64 %p1, %rd7, %rd2; @%p1 bra again;
  mov.u64 %rd3, %globaltimer;
  st.global.u64 [%rd1+24], %rd6; st.global.u64 [%rd1+32], %rd3;
  ret;
}
";
const CYCLES: u64 = 100_000;

fn assembled() -> Vec<(String, Vec<u8>)> {
    let Some(cuda) = sass::toolkit() else { return Vec::new() };
    let assemble = |(arch, level)| {
        let name = format!("times sm_{arch} -O{level}");
        let cubin = sass::assemble_one(&cuda, TEXT, arch, level, &name);
        (name, cubin)
    };
    sass::variants().into_iter().map(assemble).collect()
}

/// What each of the variants writes.
fn times(time: Option<Time>) -> Vec<(String, [u64; 5])> {
    let mut device = Device::new();
    let mut modules = vec![("PTX".to_owned(), device.load(TEXT).unwrap())];
    static CUBINS: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    for (name, cubin) in CUBINS.get_or_init(assembled) {
        modules.push((name.clone(), device.load_cubin(cubin).unwrap()));
    }
    let launch = Launch { time, ..Launch::default() };
    let run = |(name, module)| {
        let out = device.alloc(40).unwrap();
        let args = Args::new().u64(out).u64(CYCLES);
        let report = device.launch(&module, "times", &launch, &args).unwrap();
        assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
        let mut bytes = [0; 40];
        device.read(out, &mut bytes).unwrap();
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        (name, words.collect::<Vec<_>>().try_into().unwrap())
    };
    modules.into_iter().map(run).collect()
}

/// Time that passes: the timer's nanoseconds, and cycles of a clock that is as fast as it is said to be.
#[test]
fn clock_and_timer_count_time() {
    const MEGAHERTZ: u64 = 1695;
    // The device has been up for an hour.
    let timer = 3_600_000_000_000;
    let start = Instant::now();
    let found = times(Some(Time { start, timer, megahertz: MEGAHERTZ }));
    let end = timer + start.elapsed().as_nanos() as u64;
    let cycles = |nanoseconds: u64| nanoseconds * MEGAHERTZ / 1000;
    for (name, [began, clock, high, last, ended]) in found {
        assert!(timer <= began && began <= ended && ended <= end, "{name}: {began} {ended}");
        assert!(cycles(began) <= clock && last <= cycles(ended), "{name}: {clock} {last}");
        assert!((0..=1).contains(&(high - (clock >> 32))), "{name}: {clock:#x} {high:#x}");
        assert!(last - clock >= CYCLES, "{name}: {clock} {last}");
        assert!(ended - began >= CYCLES * 1000 / MEGAHERTZ, "{name}: {began} {ended}");
    }
}

/// Without it they count what runs.
#[test]
fn clock_and_timer_are_the_same_each_time() {
    let (first, second) = (times(None), times(None));
    assert_eq!(first, second);
    for (name, [began, clock, high, last, ended]) in first {
        let steps = [began, clock, last, ended];
        assert!(steps.is_sorted() && ended < 4 * CYCLES && high == 0, "{name}: {steps:?} {high}");
    }
}
