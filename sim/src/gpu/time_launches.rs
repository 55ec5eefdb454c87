//! Launches whose kernels read their clock and the GPU's timer.

use super::Clock;
use super::rig::{self, CLASSES, CODE, Channel, DATA, HOPPER, MEGAHERTZ, QMD, Shared};

/// A kernel of ours for sm_80: a thread writes its clock and the timer.
const TIMES: [u128; 10] = [
    0x000f_c400_0000_0f00_0000_0a00_0001_7a02,
    0x000f_ca00_0000_0a00_0000_4600_0004_7ab9,
    0x000f_c400_0001_5000_0000_0000_0004_7805,
    0x000f_ca00_0001_5200_0000_0000_0006_7805,
    0x000f_e400_0000_0f00_0000_5800_0002_7a02,
    0x000f_ca00_0000_0f00_0000_5900_0003_7a02,
    0x000f_e800_0c10_1b04_0000_0004_0200_7986,
    0x000f_e200_0c10_1b04_0000_0806_0200_7986,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
    0x000f_c000_0383_ffff_ffff_fff0_0000_7947,
];

#[test]
fn kernels_count_the_time_of_the_gpu() {
    for class in CLASSES.into_iter().filter(|class| *class != HOPPER) {
        let space = Shared::new();
        space.put(QMD, &rig::description(class, [1, 1, 1, 1, 1, 1, 0, 0, 16, CODE]));
        let code: Vec<u8> = TIMES.iter().flat_map(|word| word.to_le_bytes()).collect();
        space.put(CODE, &code);
        space.put(rig::parameters(class), &DATA.to_le_bytes());
        let mut channel = Channel::new(space.clone(), class, &[]);
        let clock = Clock::new();
        let began = clock.gpu();
        assert!(channel.end(&clock).is_none(), "{class:#x}");
        let mut bytes = [0; 16];
        space.get(DATA, &mut bytes);
        let [cycles, timer] = [0, 8].map(|at| {
            let word = bytes[at..].first_chunk().unwrap();
            u64::from_le_bytes(*word)
        });
        assert!((began..=clock.gpu()).contains(&timer), "{class:#x}: {timer}");
        let passed = began * MEGAHERTZ / 1000..=timer * MEGAHERTZ / 1000;
        assert!(passed.contains(&cycles), "{class:#x}: {cycles} cycles, {timer} ns");
    }
}
