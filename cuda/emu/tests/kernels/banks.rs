//! Constants in both halves of a bank, of which machine code has offsets with a sign.

use nvabi_emu::{Args, Device, Launch, Module};

use super::sass;

const TEXT: &str = include_str!("../../../kernels/by-hand/banks.ptx");
const LANES: u32 = 8;

/// What a kernel writes to its first parameter, a word for each lane.
fn run(device: &mut Device, module: &Module, kernel: &str, rest: &[u8]) -> Vec<u32> {
    let out = device.alloc(4 * u64::from(LANES)).unwrap();
    let launch = Launch { block: [LANES, 1, 1], ..Launch::default() };
    let args = Args::new().u64(out).bytes(rest, 4);
    let report = device.launch(module, kernel, &launch, &args).unwrap();
    assert!(report.findings.is_empty(), "{kernel}: {:?}", report.findings);
    let mut bytes = [0; 4 * LANES as usize];
    device.read(out, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Words of which each says where it is.
fn bytes(words: u32) -> Vec<u8> {
    (0..words).flat_map(|at| word(4 * at).to_le_bytes()).collect()
}

fn word(at: u32) -> u32 {
    (at ^ 0x5_a5a5).wrapping_mul(0x9e37_79b1)
}

/// A sum of words, each with its factor.
fn sum(parts: &[(u32, u32)]) -> u32 {
    parts.iter().fold(0, |sum: u32, (at, by)| sum.wrapping_add(word(*at).wrapping_mul(*by)))
}

#[test]
fn parameters_and_constants_are_in_both_halves_of_a_bank() {
    let mut device = Device::new();
    for (name, module) in sass::modules(&mut device, TEXT, "banks") {
        let large = run(&mut device, &module, "large", &bytes(8189));
        let constant = [(0, 1), (32752, 3), (32408, 5), (25976, 7), (32736, 11), (32740, 13)];
        let of_lane = |lane: u32| sum(&[(32384 + 4 * lane, 17), (25952 + 4 * lane, 19)]);
        let wanted = (0..LANES).map(|lane| sum(&constant).wrapping_add(of_lane(lane)));
        assert_eq!(large, wanted.collect::<Vec<_>>(), "{name}");
        let small = run(&mut device, &module, "small", &70_u32.to_le_bytes());
        assert_eq!(small, (70..78).collect::<Vec<_>>(), "{name}");

        let (table, size) = module.symbol("table").unwrap();
        device.write(table, &bytes(size as u32 / 4)).unwrap();
        let wanted = |lane: u32| {
            let of_lane = 4 * lane;
            sum(&[(32764 + of_lane, 1), (65408 + of_lane, 3), (65532, 5), (48 + of_lane, 7)])
        };
        let found = run(&mut device, &module, "constants", &[]);
        assert_eq!(found, (0..LANES).map(wanted).collect::<Vec<_>>(), "{name}");
    }
}
