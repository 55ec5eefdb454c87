//! A kernel that frees what its other blocks read, on several threads: a finding at most, never a crash.

#![allow(clippy::unwrap_used)]

use nvabi_emu::{Args, Device, FindingKind, Launch, Report};

/// Block 0 frees the data after a while, or at once if `delay` is 0; the others read it.
const PTX: &str = ".version 8.3\n.target sm_80\n.address_size 64
.extern .func free(.param .b64 pointer);
.visible .entry free_and_read(.param .u64 data, .param .u32 delay, .param .u32 rounds) {
    .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [delay];
    ld.param.u32 %r2, [rounds];
    mov.u32 %r3, %ctaid.x;
    setp.ne.u32 %p1, %r3, 0;
    mov.u32 %r4, 0;
    @%p1 bra READ;
WAIT:
    setp.ge.u32 %p2, %r4, %r1;
    @%p2 bra FREE;
    add.u32 %r4, %r4, 1;
    bra WAIT;
FREE:
    { .param .b64 pointer; st.param.b64 [pointer], %rd1; call.uni free, (pointer); }
    ret;
READ:
    ld.global.u32 %r5, [%rd1];
    add.u32 %r5, %r5, 1;
    st.global.u32 [%rd1], %r5;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p3, %r4, %r2;
    @%p3 bra READ;
    ret;
}";

/// Large enough for a mapping of its own.
const SIZE: u64 = 4 << 20;

fn launch(device: &mut Device, threads: usize, delay: u32, rounds: u32) -> (Report, u64) {
    let module = device.load(PTX).unwrap();
    let data = device.alloc(SIZE).unwrap();
    let launch = Launch { grid: [4, 1, 1], threads, ..Launch::default() };
    let args = Args::new().u64(data).u32(delay).u32(rounds);
    (device.launch(&module, "free_and_read", &launch, &args).unwrap(), data)
}

#[test]
fn reads_of_what_was_freed_are_found() {
    let mut device = Device::new();
    let (report, data) = launch(&mut device, 1, 0, 10);
    let fatal = report.fatal().unwrap();
    assert_eq!((fatal.kind, fatal.block), (FindingKind::UseAfterFree, [1, 0, 0]));
    let wanted =
        format!("4 bytes at {data:#x}, 0 bytes into an allocation of {SIZE} that was freed");
    assert_eq!(fatal.message, wanted);
    assert!(device.write(data, &[0]).is_err());
}

#[test]
fn a_free_while_other_threads_read_does_not_crash() {
    let mut found = 0;
    for round in 0..50 {
        let mut device = Device::new();
        let (report, data) = launch(&mut device, 4, round * 100, 10_000);
        assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::UseAfterFree));
        found += report.findings.len();
        assert!(device.read(data, &mut [0]).is_err());
    }
    assert!(found > 0, "blocks ran on after the free in no round");
}
