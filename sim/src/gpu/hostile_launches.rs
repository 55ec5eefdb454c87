//! Launches whose descriptions and code may hold anything: each ends, by itself or when its channel does, and no memory
//! is taken that a GPU would not have.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvabi_emu::Foreign;

use super::engine::{Engine, EngineKind, KernelSpace, Ring, Space, shorter};
use super::hostile::Random;
use super::kernel::RUNNING;
use super::{Clock, Fault};
use crate::log::RunId;

/// How many launches, where it is not the few of each test run: `NVABI_SIM_LAUNCHES=100000`.
const LAUNCHES: &str = "NVABI_SIM_LAUNCHES";
const FEW: u64 = 400;

const BASE: u64 = 0x10_0000_0000;
const SIZE: usize = 1 << 16;
const RING: u64 = BASE;
const PUSH: u64 = BASE + 0x100;
const QMD: u64 = BASE + 0x1000;
const BANK: u64 = BASE + 0x2000;
const CODE: u64 = BASE + 0x4000;
const DATA: u64 = BASE + 0x8000;

/// AMPERE_COMPUTE_A and _B, ADA_COMPUTE_A, HOPPER_COMPUTE_A.
const CLASSES: [u32; 4] = [0xc6c0, 0xc7c0, 0xc9c0, 0xcbc0];
const SEND_PCAS_A: u32 = 0x2b4;
const SEND_PCAS_B: u32 = 0x2b8;

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

/// Memory that channel and kernels share.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn with<T>(&self, at: u64, length: usize, f: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        let start = usize::try_from(at.checked_sub(BASE)?).ok()?;
        let length = shorter(SIZE.checked_sub(start)? as u64, length);
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(f(&mut bytes[start..start + length]))
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.with(at, bytes.len(), |to| to.copy_from_slice(bytes)).unwrap();
    }
}

impl Space for Shared {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<usize> {
        self.with(at, into.len(), |from| {
            into[..from.len()].copy_from_slice(from);
            from.len()
        })
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Option<usize> {
        self.with(at, from.len(), |into| {
            into.copy_from_slice(&from[..into.len()]);
            into.len()
        })
    }

    fn for_kernels(&self) -> Option<Arc<dyn KernelSpace>> {
        Some(Arc::new(self.clone()))
    }
}

impl Foreign for Shared {
    fn range(&self, address: u64) -> Option<(u64, u64)> {
        let all = BASE..BASE + SIZE as u64;
        all.contains(&address).then_some((all.start, all.end))
    }

    fn load(&self, address: u64, width: u64) -> u64 {
        let number =
            |from: &mut [u8]| from.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        self.with(address, width as usize, number).unwrap_or(0)
    }

    fn store(&self, address: u64, width: u64, value: u64) {
        self.with(address, width as usize, |to| {
            let length = to.len();
            to.copy_from_slice(&value.to_le_bytes()[..length]);
        });
    }

    fn compare_exchange(&self, address: u64, width: u64, old: u64, new: u64) -> u64 {
        let found = self.load(address, width);
        if found == old {
            self.store(address, width, new);
        }
        found
    }
}

impl KernelSpace for Shared {
    fn take_refused(&self) -> Option<(u64, bool)> {
        None
    }
}

/// Sets the bits from `low` to `high` of a description.
fn set(bytes: &mut [u8], (high, low): (usize, usize), value: u64) {
    for bit in low..=high {
        let is_set = value >> (bit - low) & 1 == 1;
        bytes[bit / 8] = bytes[bit / 8] & !(1 << (bit % 8)) | u8::from(is_set) << (bit % 8);
    }
}

/// Where versions 3.0 and 4.0 have grid, block, shared and local memory, registers and the code's address.
const OLDER: [(usize, usize); 10] = [
    (415, 384),
    (431, 416),
    (463, 448),
    (607, 592),
    (623, 608),
    (639, 624),
    (561, 544),
    (759, 736),
    (656, 648),
    (1584, 1536),
];
const NEWER: [(usize, usize); 10] = [
    (1055, 1024),
    (1071, 1056),
    (1103, 1088),
    (1167, 1152),
    (1183, 1168),
    (1191, 1184),
    (601, 584),
    (535, 512),
    (1208, 1200),
    (1272, 1216),
];

/// A description that launches the kernel, with things in it that nobody means.
fn description(random: &mut Random, class: u32) -> Vec<u8> {
    let mut bytes = vec![0; 384];
    let is_new = class == 0xcbc0;
    set(&mut bytes, (583, 576), if is_new { 0x40 } else { 0x30 });
    let fields = if is_new { NEWER } else { OLDER };
    let plain = [1 + random.below(4), 1, 1, 1 + random.below(64), 1, 1, 1024, 0, 32, CODE];
    for (field, value) in fields.into_iter().zip(plain) {
        set(&mut bytes, field, value);
    }
    // Bank 0: valid, where, and how large.
    let [valid, address, size] = match is_new {
        false => [(640, 640), (1072, 1024), (1087, 1075)],
        true => [(416, 416), (1586, 1536), (1599, 1587)],
    };
    set(&mut bytes, valid, 1);
    set(&mut bytes, address, if is_new { BANK >> 6 } else { BANK });
    set(&mut bytes, size, 0x240 >> 4);
    if is_new {
        set(&mut bytes, (25, 23), random.one_of(&[2, 2, 2, 4]));
    }
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

fn engine_of(class: u32) -> Option<EngineKind> {
    CLASSES.contains(&class).then_some(EngineKind::Compute)
}

/// A channel that has one launch ahead.
struct Channel {
    space: Shared,
    engine: Engine,
    run: RunId,
}

impl Channel {
    fn new(space: Shared, class: u32) -> Self {
        let method = |method: u32, data: u32| [1 << 29 | 1 << 16 | 1 << 13 | method >> 2, data];
        let words =
            [method(0, class), method(SEND_PCAS_A, (QMD >> 8) as u32), method(SEND_PCAS_B, 1)];
        let words: Vec<u8> =
            words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
        space.put(PUSH, &words);
        space.put(RING, &(PUSH | (words.len() as u64 / 4) << 42).to_le_bytes());
        let mut engine = Engine::of_class(0xc56f);
        engine.start(Some(1), 16).unwrap();
        Self { space, engine, run: 0 }
    }

    /// Goes on for a moment.
    fn turn(&mut self, clock: &Clock) -> Option<Fault> {
        let ring = Ring {
            address: RING,
            entries: 16,
            userd: None,
            engine_of: &engine_of,
            takes_ptx: false,
            run: self.run,
        };
        let until = Instant::now() + Duration::from_millis(1);
        self.engine.turn(&mut self.space, clock, until, &ring).fault
    }
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
        let space = Shared(Arc::new(Mutex::new(vec![0; SIZE])));
        let class = random.one_of(&CLASSES);
        space.put(QMD, &description(&mut random, class));
        space.put(CODE, &code(&mut random));
        // As large as the kernel waits for, mostly.
        let value = if random.below(4) == 0 { 0 } else { 200_u32 };
        space.put(DATA, &value.to_le_bytes().repeat(0x400));
        let parameters = if class == 0xcbc0 { 0x210 } else { 0x160 };
        let pointer = if random.below(8) == 0 { random.next() } else { DATA };
        space.put(BANK + parameters, &pointer.to_le_bytes());
        let mut channel = Channel::new(space, class);
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
            Some(Some(Fault::Commands(_))) => faults[1] += 1,
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
fn blocks_that_wait_for_each_other_have_room_in_memory() {
    let (mut random, clock) = (Random(1), Clock::new());
    let launch = |random: &mut Random, blocks: u64| {
        let space = Shared(Arc::new(Mutex::new(vec![0; SIZE])));
        let mut bytes = vec![0; 384];
        set(&mut bytes, (583, 576), 0x30);
        set(&mut bytes, GROUP, 8);
        let values = [blocks, 1, 1, 1024, 1, 1, 1024, 512 << 10, 32, CODE];
        for (field, value) in OLDER.into_iter().zip(values) {
            set(&mut bytes, field, value);
        }
        space.put(QMD, &bytes);
        space.put(CODE, &code(random));
        let mut channel = Channel::new(space, CLASSES[0]);
        loop {
            match channel.turn(&clock) {
                Some(fault) => return format!("{fault:?}"),
                None => assert!(channel.engine.is_busy(), "no fault"),
            }
        }
    };
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
        let space = Shared(Arc::new(Mutex::new(vec![0; SIZE])));
        let mut bytes = vec![0; 384];
        set(&mut bytes, (583, 576), 0x30);
        for (field, value) in OLDER.into_iter().zip([1, 1, 1, 1, 1, 1, 1024, 0, 32, CODE]) {
            set(&mut bytes, field, value);
        }
        for (field, value) in [((640, 640), 1), ((1072, 1024), BANK), ((1087, 1075), 0x240 >> 4)] {
            set(&mut bytes, field, value);
        }
        space.put(QMD, &bytes);
        space.put(BANK + 0x160, &DATA.to_le_bytes());
        space.put(DATA, &value.to_le_bytes());
        let code: Vec<u8> = KERNEL.iter().flat_map(|word| word.to_le_bytes()).collect();
        space.put(CODE, &code);
        Channel { run, ..Channel::new(space, CLASSES[0]) }
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
