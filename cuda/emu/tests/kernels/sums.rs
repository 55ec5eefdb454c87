//! Sums of floats in shared memory, of which ptxas makes loops that load the old value.

use nvabi_emu::{Args, Device, FindingKind, Launch, Report, Schedule};

use super::sass;

const THREADS: u32 = 96;

/// Each thread adds its number to a sum in shared memory, and the first stores it. `BEFORE` comes before the others add.
const TEXT: &str = "
.version 8.3
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 out) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .TYPE %f<4>; .reg .pred %p<2>;
  .shared .align 8 .b8 sum[8];
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0;
  @%p1 bra cleared;
  mov.b64 %rd2, 0; st.shared.u64 [sum], %rd2;
cleared: bar.sync 0;
  BEFORE
  cvt.rn.TYPE.u32 %f1, %r1; atom.shared.add.TYPE %f2, [sum], %f1;
  bar.sync 0;
  @%p1 bra done;
  ld.shared.TYPE %f3, [sum]; st.global.TYPE [%rd1], %f3;
done: ret;
}
";

fn run(cubin: &[u8], schedule: Schedule) -> (Report, u64) {
    let mut device = Device::new();
    let module = device.load_cubin(cubin).unwrap();
    let out = device.alloc(8).unwrap();
    device.write(out, &[0; 8]).unwrap();
    let launch = Launch { block: [THREADS, 1, 1], schedule, ..Launch::default() };
    let report = device.launch(&module, "sums", &launch, &Args::new().u64(out)).unwrap();
    let mut bytes = [0; 8];
    device.read(out, &mut bytes).unwrap();
    (report, u64::from_le_bytes(bytes))
}

#[test]
fn loads_of_sums_are_parts_of_them() {
    let cuda = sass::needed();
    let sum: u32 = (0..THREADS).sum();
    for (kind, wanted) in
        [("f32", (sum as f32).to_bits().into()), ("f64", f64::from(sum).to_bits())]
    {
        for (arch, level) in sass::variants() {
            let cubin = |before: &str| {
                let text = TEXT.replace("TYPE", kind).replace("BEFORE", before);
                let name = format!("sums{} {kind} sm_{arch} -O{level}", before.len());
                sass::assemble_one(&cuda, &text, arch, level, &name)
            };
            let name = format!("{kind} sm_{arch} -O{level}");
            for schedule in [Schedule::InOrder, Schedule::Random(3)] {
                let (report, found) = run(&cubin(""), schedule);
                assert!(report.findings.is_empty(), "{name}: {}", report.findings[0]);
                assert_eq!(found, wanted, "{name}");
            }
            // A load of its own races with the sums of others.
            let read = format!("ld.shared.{kind} %f3, [sum]; st.global.{kind} [%rd1], %f3;");
            let (report, _) = run(&cubin(&read), Schedule::InOrder);
            let race = |finding: &nvabi_emu::Finding| finding.kind == FindingKind::Race;
            assert!(report.findings.iter().any(race), "{name}");
        }
    }
}
