//! What programs may write into rings and pushbuffers: nothing of it breaks the engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::{Engine, EngineKind, KernelSpace, Ring, Space, shorter};
use super::{Clock, Fault};

/// How many rounds, where it is not the few of each test run: `NVABI_SIM_ROUNDS=1000000`.
const ROUNDS: &str = "NVABI_SIM_ROUNDS";
const FEW: u64 = 20_000;

const BASE: u64 = 0x10_0000_0000;
const SIZE: usize = 1 << 16;
const RING: u64 = BASE;
const ENTRIES: u32 = 16;
const PUSH: u64 = BASE + 0x1000;

const COPY: u32 = 0xc6b5;
const COMPUTE: u32 = 0xc6c0;

/// Memory at some addresses, and nothing else.
struct Flat(Vec<u8>);

impl Flat {
    fn place(&self, at: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(at.checked_sub(BASE)?).ok()?;
        let there = self.0.len().checked_sub(start)?;
        Some(start..start + shorter(there as u64, length))
    }

    fn put(&mut self, at: u64, word: u64) {
        let place = self.place(at, 8).unwrap();
        self.0[place].copy_from_slice(&word.to_le_bytes());
    }
}

impl Space for Flat {
    fn read(&self, at: u64, into: &mut [u8]) -> Option<usize> {
        let place = self.place(at, into.len())?;
        into[..place.len()].copy_from_slice(&self.0[place.clone()]);
        Some(place.len())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Option<usize> {
        let place = self.place(at, from.len())?;
        self.0[place.clone()].copy_from_slice(&from[..place.len()]);
        Some(place.len())
    }

    fn for_kernels(&self) -> Option<Arc<dyn KernelSpace>> {
        None
    }
}

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A word such as programs write, or any.
    fn word(&mut self) -> u32 {
        match self.below(6) {
            0 => self.next() as u32,
            1 => self.below(32) as u32,
            2 => 1 << self.below(32),
            3 => (BASE + self.below(SIZE as u64 + 64)) as u32,
            4 => (BASE >> 32) as u32,
            _ => self.one_of(&[0, u32::MAX, 0x182, 0x1_0182, COPY, COMPUTE, 0x1000, 0x0800_0000]),
        }
    }

    /// A method of the host, of copies, of launches or any, with its data: mostly no more than a class takes in a row,
    /// which would end it.
    fn methods(&mut self, words: &mut Vec<u32>) {
        const HOST: [(u32, u64); 6] =
            [(0x08, 1), (0x10, 4), (0x20, 6), (0x50, 1), (0x5c, 5), (0x78, 1)];
        const COPIES: [(u32, u64); 8] = [
            (0x240, 3),
            (0x300, 1),
            (0x400, 8),
            (0x418, 2),
            (0x700, 9),
            (0x70c, 6),
            (0x728, 6),
            (0x744, 4),
        ];
        const LAUNCHES: [(u32, u64); 9] = [
            (0x180, 14),
            (0x1b0, 2),
            (0x1b4, 1),
            (0x104, 3),
            (0x2b4, 4),
            (0x2bc, 2),
            (0x2c0, 1),
            (0x318, 66),
            (0x1b00, 4),
        ];
        let (method, most) = match self.below(12) {
            0 => (0, 1),
            1 | 2 => self.one_of(&HOST),
            3..=6 => self.one_of(&COPIES),
            7..=10 => self.one_of(&LAUNCHES),
            _ => (self.below(0x4000) as u32 & !3, 12),
        };
        // Each subchannel has a class from the beginning; most methods go to that which has them.
        let subchannel = match self.below(16) {
            0 => self.below(8) as u32,
            _ => u32::from(LAUNCHES.iter().any(|(own, _)| *own == method)),
        };
        let count = if self.below(16) == 0 { self.below(12) } else { 1 + self.below(most) } as u32;
        let kind = self.one_of(&[1, 1, 1, 1, 1, 1, 1, 1, 3, 5, 4, self.0 as u32 & 7]);
        words.push(kind << 29 | count << 16 | subchannel << 13 | method >> 2);
        match method {
            0 => words.push(self.one_of(&[COPY, COPY, COMPUTE, COMPUTE, 0x12, 0])),
            _ => words.extend((0..count).map(|_| self.word())),
        }
    }
}

fn engine_of(class: u32) -> Option<EngineKind> {
    match class {
        COPY => Some(EngineKind::Copy),
        COMPUTE => Some(EngineKind::Compute),
        0 => None,
        _ => Some(EngineKind::Other),
    }
}

/// A ring of pushbuffers, some of them and some entries with bits that nobody meant.
fn fill(random: &mut Random, space: &mut Flat) -> u32 {
    let filled = 1 + random.below(u64::from(ENTRIES) - 1) as u32;
    for entry in 0..filled {
        let mut words = Vec::new();
        // Objects of both kinds, on every subchannel.
        for subchannel in 0..8 {
            let class = if subchannel % 2 == 0 { COPY } else { COMPUTE };
            words.extend([1 << 29 | 1 << 16 | subchannel << 13, class]);
        }
        for _ in 0..random.below(6) {
            random.methods(&mut words);
        }
        if random.below(4) == 0 {
            let at = random.below(words.len().max(1) as u64) as usize;
            if let Some(word) = words.get_mut(at) {
                *word ^= 1 << random.below(32);
            }
        }
        let at = PUSH + u64::from(entry) * 0x800;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        space.write(at, &bytes).unwrap();
        let mut value = at | (words.len() as u64) << 42;
        if random.below(16) == 0 {
            value ^= 1 << random.below(64);
        }
        space.put(RING + u64::from(entry) * 8, value);
    }
    filled
}

#[test]
fn pushbuffers_of_any_kind_end_in_a_fault_or_are_carried_out() {
    let rounds = std::env::var(ROUNDS).map_or(FEW, |text| text.parse().unwrap());
    let (mut random, clock) = (Random(rounds), Clock::new());
    let mut space = Flat(vec![0; SIZE]);
    let (mut done, mut waiting, mut faults) = (0, 0, [0; 5]);
    for _ in 0..rounds {
        let mut engine = Engine::of_class(0xc56f);
        let filled = fill(&mut random, &mut space);
        engine.start(Some(filled), ENTRIES).unwrap();
        let ring = Ring {
            address: RING,
            entries: ENTRIES,
            userd: None,
            engine_of: &engine_of,
            takes_ptx: false,
            megahertz: 1000,
            run: 0,
        };
        let ended = loop {
            let end = Instant::now() + Duration::from_millis(20);
            let turn = engine.turn(&mut space, &clock, end, &ring);
            if let Some(fault) = turn.fault {
                break Some(fault);
            }
            if !turn.moved || !engine.is_busy() {
                break None;
            }
        };
        match ended {
            Some(Fault::Memory { .. }) => faults[0] += 1,
            Some(Fault::Commands(_)) => faults[1] += 1,
            Some(Fault::Unsupported(_)) => faults[2] += 1,
            Some(Fault::Method(_)) => faults[3] += 1,
            Some(Fault::Kernel { .. }) => faults[4] += 1,
            None if engine.is_busy() => waiting += 1,
            None => done += 1,
        }
        engine.stop();
        assert!(!engine.is_busy());
    }
    println!("{rounds} rounds: {done} done, {waiting} wait, faults {faults:?}");
    // All ends are there, so that it is what it says; no kernel runs here.
    assert!(done > 0 && waiting > 0 && faults[..4].iter().all(|count| *count > 0), "{faults:?}");
    assert_eq!(faults[4], 0);
}
