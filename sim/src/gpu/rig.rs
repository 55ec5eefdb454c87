//! Memory, and a channel that has one launch ahead, for tests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::engine::{Engine, EngineKind, KernelSpace, Ring, Space, shorter};
use super::seen::{Bytes, Found, Mappings, Seen};
use super::{Clock, Fault};
use crate::log::RunId;

pub(super) const BASE: u64 = 0x10_0000_0000;
pub(super) const SIZE: usize = 1 << 16;
const RING: u64 = BASE;
const PUSH: u64 = BASE + 0x100;
pub(super) const QMD: u64 = BASE + 0x1000;
pub(super) const BANK: u64 = BASE + 0x2000;
pub(super) const CODE: u64 = BASE + 0x4000;
pub(super) const DATA: u64 = BASE + 0x8000;
/// A page of the scheduler's.
pub(super) const REFLECTED: u64 = 0x20_0000_0000;

/// Cycles of a multiprocessor in a microsecond.
pub(super) const MEGAHERTZ: u64 = 1410;

/// AMPERE_COMPUTE_A and _B, ADA_COMPUTE_A, HOPPER_COMPUTE_A.
pub(super) const CLASSES: [u32; 4] = [0xc6c0, 0xc7c0, 0xc9c0, HOPPER];
pub(super) const HOPPER: u32 = 0xcbc0;
const SEND_PCAS_A: u32 = 0x2b4;
const SEND_PCAS_B: u32 = 0x2b8;

/// Memory that channel and kernels share.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(vec![0; SIZE])))
    }

    fn with<T>(&self, at: u64, length: usize, f: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        let start = usize::try_from(at.checked_sub(BASE)?).ok()?;
        let length = shorter(SIZE.checked_sub(start)? as u64, length);
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(f(&mut bytes[start..start + length]))
    }

    /// Copies out.
    pub(super) fn get(&self, at: u64, into: &mut [u8]) {
        self.with(at, into.len(), |from| into.copy_from_slice(from)).unwrap();
    }

    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
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
        Some(Arc::new(Seen::new(self.clone())))
    }
}

impl Mappings for Shared {
    type Bytes = Self;

    fn range(&self, address: u64) -> Option<(u64, u64)> {
        let all = [(BASE, BASE + SIZE as u64), (REFLECTED, REFLECTED + 0x1000)];
        all.into_iter().find(|(start, end)| (start..end).contains(&&address))
    }

    fn at(&self, address: u64) -> Option<Found<Self>> {
        let (start, end) = self.range(address)?;
        let found = || Found {
            bytes: self.clone(),
            offset: address,
            length: end - address,
            is_writable: true,
        };
        (start == BASE).then(found)
    }

    fn is_reflected(&self, address: u64) -> bool {
        self.range(address).is_some_and(|(start, _)| start == REFLECTED)
    }
}

impl Bytes for Shared {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        Space::read(self, at, into) == Some(into.len())
    }

    fn write(&self, at: u64, from: &[u8]) -> bool {
        Space::write(&mut self.clone(), at, from) == Some(from.len())
    }

    fn compare_exchange(&self, at: u64, width: usize, old: u64, new: u64) -> Option<u64> {
        self.with(at, width, |bytes| {
            let found = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
            if found == old {
                let length = bytes.len();
                bytes.copy_from_slice(&new.to_le_bytes()[..length]);
            }
            found
        })
    }
}

/// Sets the bits from `low` to `high` of a description.
pub(super) fn set(bytes: &mut [u8], (high, low): (usize, usize), value: u64) {
    for bit in low..=high {
        let is_set = value >> (bit - low) & 1 == 1;
        bytes[bit / 8] = bytes[bit / 8] & !(1 << (bit % 8)) | u8::from(is_set) << (bit % 8);
    }
}

/// Grid, block, shared and local memory, registers and the code's address.
type Fields = [(usize, usize); 10];

/// Where versions 3.0 and 4.0 have them.
const OLDER: Fields = [
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
const NEWER: Fields = [
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

/// QMD_TYPE of version 4.0.
pub(super) const KIND: (usize, usize) = (25, 23);

pub(super) fn fields(class: u32) -> Fields {
    if class == HOPPER { NEWER } else { OLDER }
}

/// Where the parameters begin, in bank 0.
pub(super) fn parameters(class: u32) -> u64 {
    BANK + if class == HOPPER { 0x210 } else { 0x160 }
}

/// A description with these values of the fields and with bank 0.
pub(super) fn description(class: u32, values: [u64; 10]) -> Vec<u8> {
    let mut bytes = vec![0; 384];
    let is_new = class == HOPPER;
    set(&mut bytes, (583, 576), if is_new { 0x40 } else { 0x30 });
    for (field, value) in fields(class).into_iter().zip(values) {
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
        set(&mut bytes, KIND, 2);
    }
    bytes
}

fn engine_of(class: u32) -> Option<EngineKind> {
    CLASSES.contains(&class).then_some(EngineKind::Compute)
}

/// A channel that has one launch ahead.
pub(super) struct Channel {
    pub(super) space: Shared,
    pub(super) engine: Engine,
    pub(super) run: RunId,
    pub(super) takes_ptx: bool,
}

impl Channel {
    /// That of a class, which is given some methods before the launch.
    pub(super) fn new(space: Shared, class: u32, before: &[(u32, u32)]) -> Self {
        let launch = [(SEND_PCAS_A, (QMD >> 8) as u32), (SEND_PCAS_B, 1)];
        let methods = [&[(0, class)], before, &launch].concat();
        let words = methods.into_iter().flat_map(|(method, data): (u32, u32)| {
            [1 << 29 | 1 << 16 | 1 << 13 | method >> 2, data]
        });
        let words: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        space.put(PUSH, &words);
        space.put(RING, &(PUSH | (words.len() as u64 / 4) << 42).to_le_bytes());
        let mut engine = Engine::of_class(0xc56f);
        engine.start(Some(1), 16).unwrap();
        Self { space, engine, run: 0, takes_ptx: false }
    }

    /// Goes on until the launch has ended; how it went wrong, if it did.
    pub(super) fn end(&mut self, clock: &Clock) -> Option<Fault> {
        let end = Instant::now() + Duration::from_secs(60);
        while self.engine.is_busy() {
            if let Some(fault) = self.turn(clock) {
                return Some(fault);
            }
            assert!(Instant::now() < end, "the launch does not end");
        }
        None
    }

    /// Goes on for a moment.
    pub(super) fn turn(&mut self, clock: &Clock) -> Option<Fault> {
        let ring = Ring {
            address: RING,
            entries: 16,
            userd: None,
            engine_of: &engine_of,
            takes_ptx: self.takes_ptx,
            megahertz: MEGAHERTZ,
            run: self.run,
        };
        let until = Instant::now() + Duration::from_millis(1);
        self.engine.turn(&mut self.space, clock, until, &ring).fault
    }
}
