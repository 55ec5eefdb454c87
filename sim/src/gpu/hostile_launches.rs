//! Launches whose descriptions and code may hold anything: each ends, by itself or when its channel does, and no memory
//! is taken that a GPU would not have.

use std::process::Command;
use std::time::{Duration, Instant};

use super::hostile::Random;
use super::kernel::RUNNING;
use super::rig::{self, BASE, CLASSES, CODE, Channel, DATA, HOPPER, QMD, SIZE, Shared, set};
use super::{Clock, Fault};
use crate::log::RunId;

/// How many launches, where it is not the few of each test run: `NVABI_SIM_LAUNCHES=100000`.
const LAUNCHES: &str = "NVABI_SIM_LAUNCHES";
const FEW: u64 = 400;

/// So much memory of a process that does nothing else is enough for whatever they ask for.
const MOST_MEMORY: u64 = 512 << 20;

/// A kernel of ours for sm_80 that reads, adds, writes and waits, and two ends.
const KERNEL: [u128; 18] = [
    0x000f_c400_0000_0f00_0000_0a00_0001_7a02,
    0x000e_2200_0000_2100_0000_0000_0007_7919,
    0x000f_e200_0000_01ff_0000_0004_ff02_7435,
    0x000f_d200_0000_0a00_0000_4600_0004_7ab9,
    0x001f_ca00_078e_0002_0000_5800_0702_7625,
    0x000e_a800_0c1e_1900_0000_0004_0200_7981,
    0x004f_e800_0000_4800_0000_0000_0700_7388,
    0x000f_ec00_0000_0000_0000_0000_0000_7b1d,
    0x000e_2800_0000_4800_0000_0400_0705_7984,
    0x001e_a800_081e_e1c4_0000_0005_0205_79a8,
    0x0041_e400_0c10_1904_0000_0405_0200_7986,
    0x000e_a200_0c1f_5900_0000_0004_0200_7981,
    0x000f_e200_0380_0000_0000_0000_0000_7946,
    0x004f_da00_03f0_6070_0000_0064_0000_780c,
    0x000f_ea00_0383_ffff_ffff_ffc0_0000_8947,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
    0x000f_c000_0383_ffff_ffff_fff0_0000_7947,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
];

/// A description that launches the kernel, with things in it that nobody means.
fn description(random: &mut Random, class: u32) -> Vec<u8> {
    let (blocks, threads) = (1 + random.below(4), 1 + random.below(64));
    let mut bytes = rig::description(class, [blocks, 1, 1, threads, 1, 1, 1024, 0, 32, CODE]);
    if class == HOPPER {
        set(&mut bytes, rig::KIND, random.one_of(&[2, 2, 2, 4]));
    }
    let fields = rig::fields(class);
    for _ in 0..random.below(3) {
        let wild = [
            0,
            1,
            0xffff_ffff,
            1 << 31,
            BASE - 16,
            BASE + SIZE as u64 - 16,
            DATA,
            u64::MAX,
            CODE + 8,
        ];
        let value = match random.below(3) {
            0 => random.next(),
            1 => 1 << random.below(40),
            _ => random.one_of(&wild),
        };
        set(&mut bytes, random.one_of(&fields), value);
    }
    if random.below(3) == 0 {
        for _ in 0..1 + random.below(4) {
            let bit = random.below(384 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    bytes
}

/// The kernel, some words of it others, some bits others, or no code at all.
fn code(random: &mut Random) -> Vec<u8> {
    let mut words = KERNEL.to_vec();
    match random.below(4) {
        0 => {}
        1 => (0..words.len()).for_each(|at| words[at] = random.one_of(&KERNEL)),
        2 => {
            for _ in 0..1 + random.below(6) {
                let at = random.below(words.len() as u64) as usize;
                words[at] ^= 1 << random.below(128);
            }
        }
        _ => {
            let any =
                |random: &mut Random| u128::from(random.next()) << 64 | u128::from(random.next());
            words.fill_with(|| any(random));
        }
    }
    words.into_iter().flat_map(u128::to_le_bytes).collect()
}

fn memory_used() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// Says which process is to make the launches itself: the memory of another is theirs alone.
const ALONE: &str = "NVABI_SIM_LAUNCHES_ALONE";

#[test]
fn launches_of_any_kind_end() {
    if std::env::var_os(ALONE).is_some() {
        return launch_anything();
    }
    let name = format!("{}::launches_of_any_kind_end", module_path!().split_once("::").unwrap().1);
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let status = alone.args(["--exact", &name, "--nocapture"]).env(ALONE, "1").status().unwrap();
    assert!(status.success(), "{status}");
}

fn launch_anything() {
    let count = std::env::var(LAUNCHES).map_or(FEW, |text| text.parse().unwrap());
    let (mut random, clock) = (Random(count), Clock::new());
    let (mut done, mut stopped, mut faults) = (0, 0, [0; 4]);
    for _ in 0..count {
        let space = Shared::new();
        let class = random.one_of(&CLASSES);
        space.put(QMD, &description(&mut random, class));
        space.put(CODE, &code(&mut random));
        // As large as the kernel waits for, mostly.
        let value = if random.below(4) == 0 { 0 } else { 200_u32 };
        space.put(DATA, &value.to_le_bytes().repeat(0x400));
        let pointer = if random.below(8) == 0 { random.next() } else { DATA };
        space.put(rig::parameters(class), &pointer.to_le_bytes());
        let mut channel = Channel::new(space, class, &[]);
        // Some channels end while their kernel runs, or before it began.
        let patience = Duration::from_micros(random.one_of(&[0, 200, 2_000, 8_000]));
        let until = Instant::now() + patience;
        let ended = loop {
            if let Some(fault) = channel.turn(&clock) {
                break Some(Some(fault));
            }
            if !channel.engine.is_busy() {
                break Some(None);
            }
            if Instant::now() >= until {
                break None;
            }
        };
        match ended {
            Some(Some(Fault::Memory { .. })) => faults[0] += 1,
            Some(Some(Fault::Commands(_) | Fault::Method(_))) => faults[1] += 1,
            Some(Some(Fault::Unsupported(_))) => faults[2] += 1,
            Some(Some(Fault::Kernel { .. })) => faults[3] += 1,
            Some(None) => done += 1,
            None => stopped += 1,
        }
        channel.engine.stop();
    }
    // Nobody waits for the kernels of channels that ended; they end as well.
    let end = Instant::now() + Duration::from_secs(60);
    while RUNNING.taken() != 0 {
        assert!(Instant::now() < end, "{} kernels go on", RUNNING.taken());
        std::thread::sleep(Duration::from_millis(10));
    }
    let memory = memory_used();
    println!(
        "{count} launches: {done} done, {stopped} stopped, faults {faults:?}, {} MiB",
        memory >> 20
    );
    assert!(memory < MOST_MEMORY, "{} MiB", memory >> 20);
    assert!(done > 0 && stopped > 0 && faults[0] + faults[3] > 0 && faults[2] > 0, "{faults:?}");
}

/// Where the version 3.0 has the group of a launch: what is in one waits for each other.
const GROUP: (usize, usize) = (133, 128);

#[test]
fn blocks_that_wait_for_each_other_have_room() {
    let (mut random, clock) = (Random(1), Clock::new());
    let launch = |random: &mut Random, blocks: u64| {
        let space = Shared::new();
        let values = [blocks, 1, 1, 1024, 1, 1, 1024, 512 << 10, 32, CODE];
        let mut bytes = rig::description(CLASSES[0], values);
        set(&mut bytes, GROUP, 8);
        space.put(QMD, &bytes);
        space.put(CODE, &code(random));
        let mut channel = Channel::new(space, CLASSES[0], &[]);
        loop {
            match channel.turn(&clock) {
                Some(fault) => return format!("{fault:?}"),
                None => assert!(channel.engine.is_busy(), "no fault"),
            }
        }
    };
    // More than a GPU holds are refused whatever they need.
    let text = launch(&mut random, 513);
    assert!(text.contains("513 blocks that wait for each other: at most 512"), "{text}");
    let text = launch(&mut random, 264);
    assert!(text.contains("264 blocks that wait for each other, each with"), "{text}");
    assert!(text.contains("bytes of local memory"), "{text}");
}

/// Another run does not wait for kernels that wait for ever.
#[test]
fn each_run_has_kernels_of_its_own() {
    const MOST: usize = 32;
    let clock = Clock::new();
    let begin = |run: RunId, value: u32| {
        let (class, space) = (CLASSES[0], Shared::new());
        space.put(QMD, &rig::description(class, [1, 1, 1, 1, 1, 1, 1024, 0, 32, CODE]));
        space.put(rig::parameters(class), &DATA.to_le_bytes());
        space.put(DATA, &value.to_le_bytes());
        let code: Vec<u8> = KERNEL.iter().flat_map(|word| word.to_le_bytes()).collect();
        space.put(CODE, &code);
        Channel { run, ..Channel::new(space, class, &[]) }
    };
    let finish = |channel: &mut Channel| {
        let end = Instant::now() + Duration::from_secs(30);
        while channel.engine.is_busy() {
            let fault = channel.turn(&clock);
            assert!(fault.is_none() && Instant::now() < end, "{fault:?}");
        }
    };
    // As long as the value is small they wait.
    let mut waiting: Vec<Channel> = (0..=MOST).map(|_| begin(7, 0)).collect();
    for channel in &mut waiting {
        assert!(channel.turn(&clock).is_none() && channel.engine.is_busy());
    }
    assert_eq!(RUNNING.taken(), MOST);
    finish(&mut begin(8, 200));
    for channel in &mut waiting {
        channel.space.put(DATA, &200_u32.to_le_bytes());
    }
    waiting.iter_mut().for_each(finish);
}
