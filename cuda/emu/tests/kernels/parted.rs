//! Lanes that name others than their neighbours do, and come to the same instruction together with them.

use nvabi_emu::{Args, Device, Launch};

use super::sass;

/// Each lane names those whose number leaves the same rest, and does several things with them alone.
const TEXT: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry parted(.param .u64 out, .param .u32 parts) {
  .reg .b32 %r<20>; .reg .b64 %d<3>; .reg .pred %p<3>;
  ld.param.u64 %d0, [out]; ld.param.u32 %r0, [parts];
  mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, %r0; mul.wide.u32 %d1, %r1, 20; add.u64 %d0, %d0, %d1;
  match.any.sync.b32 %r3, %r2, -1;
  redux.sync.add.s32 %r4, %r1, %r3;
  redux.sync.max.u32 %r5, %r1, %r3;
  setp.gt.u32 %p0, %r1, 11; vote.sync.ballot.b32 %r6, %p0, %r3;
  vote.sync.any.pred %p1, %p0, %r3; selp.u32 %r7, 1, 0, %p1;
  shfl.sync.idx.b32 %r8, %r1, %r2, 31, %r3;
  st.global.u32 [%d0], %r4; st.global.u32 [%d0+4], %r5; st.global.u32 [%d0+8], %r6;
  st.global.u32 [%d0+12], %r7; st.global.u32 [%d0+16], %r8;
  ret;
}
";

fn expected(lane: u32, parts: u32) -> [u32; 5] {
    let alike = || (0..32).filter(move |other| other % parts == lane % parts);
    let above = || alike().filter(|other| *other > 11);
    let ballot = above().fold(0, |all, other| all | 1 << other);
    let any = u32::from(above().next().is_some());
    [alike().sum(), alike().max().unwrap(), ballot, any, lane % parts]
}

#[test]
fn lanes_do_the_same_with_those_they_name_alone() {
    let mut device = Device::new();
    let modules = sass::modules(&mut device, TEXT, "parted");
    let out = device.alloc(32 * 20).unwrap();
    for (name, module) in &modules {
        for parts in [1, 2, 3, 7, 32] {
            let launch = Launch { block: [32, 1, 1], ..Launch::default() };
            let args = Args::new().u64(out).u32(parts);
            let report = device.launch(module, "parted", &launch, &args).unwrap();
            assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
            let mut bytes = [0; 32 * 20];
            device.read(out, &mut bytes).unwrap();
            let words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
            let expected: Vec<u32> = (0..32).flat_map(|lane| expected(lane, parts)).collect();
            assert_eq!(words.collect::<Vec<_>>(), expected, "{name}, {parts} parts");
        }
    }
}
