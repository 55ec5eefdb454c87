//! Memory that instrumented kernels record into, and what they left there.

use std::array;

use nvabi_emu::{Device, Module};
use nvabi_trace::abi::r2 as abi;

use super::Site;

const TAKEN: u32 = abi::NVABI_TRACE_TAKEN;
const HAS_BALLOT: u32 = abi::NVABI_TRACE_HAS_BALLOT;
const HAS_VALUE: u32 = abi::NVABI_TRACE_HAS_VALUE;
const SITE: u32 = abi::NVABI_TRACE_SITE;
const SLACK: u64 = abi::NVABI_TRACE_SLACK as u64;
const UNIT_SITES: u32 = abi::NVABI_TRACE_UNIT_SITES;

pub(crate) const BRANCH: u8 = 0;
pub(crate) const STORE: u8 = 1;
pub(crate) const ATOMIC: u8 = 2;
pub(crate) const ENTRY: u8 = 3;
pub(crate) const EXIT: u8 = 4;

/// An event as it is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) site: u32,
    pub(crate) kind: u8,
    pub(crate) mask: u32,
    /// Lanes that took a branch.
    pub(crate) taken: u32,
    pub(crate) value: Option<u64>,
}

/// A launch's regions.
pub(crate) struct Regions {
    headers: u64,
    events: u64,
    count: u64,
    capacity: u32,
}

impl Regions {
    /// Lets the next launch of a module record.
    pub(crate) fn new(
        device: &mut Device,
        module: &Module,
        warps: u32,
        capacity: u32,
        sample: u32,
    ) -> Self {
        let count = u64::from(warps.div_ceil(sample));
        let stride = u64::from(capacity) + SLACK;
        let headers = device.alloc(count * 16).expect("memory");
        let events = device.alloc(count * stride * 8).expect("memory");
        device.write(headers, &vec![0; count as usize * 16]).expect("headers");
        let mut descriptor = Vec::new();
        descriptor.extend(headers.to_le_bytes());
        descriptor.extend(events.to_le_bytes());
        for word in [capacity, count as u32, sample, 0] {
            descriptor.extend(word.to_le_bytes());
        }
        let (buffer, size) = module.symbol("__nvabi_trace").expect("the recorder's variable");
        assert_eq!(size, 32);
        device.write(buffer, &descriptor).expect("the variable");
        Self { headers, events, count, capacity }
    }

    /// Of each warp its number, the words that it asked for, fitting or not, and its events.
    pub(crate) fn read(&self, device: &Device, units: &[Vec<Site>]) -> Vec<(u32, u32, Vec<Event>)> {
        let read = |at: u64, words: usize| {
            let mut bytes = vec![0; words * 4];
            device.read(at, &mut bytes).expect("memory");
            words_of(&bytes)
        };
        let stride = u64::from(self.capacity) + SLACK;
        let warp = |region: u64| {
            let header = read(self.headers + region * 16, 4);
            // The device says where the warp came to.
            let asked = header[1].saturating_sub((region * stride) as u32 * 2) / 2;
            let fitted = asked.min(self.capacity) as usize;
            let words = read(self.events + region * stride * 8, fitted * 2);
            (header[0], asked, parse(&words, units))
        };
        (0..self.count).map(warp).collect()
    }

    pub(crate) fn free(self, device: &mut Device) {
        for memory in [self.headers, self.events] {
            device.free(memory).expect("what was allocated");
        }
    }
}

pub(crate) fn words_of(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| u32::from_le_bytes(array::from_fn(|at| bytes[at]));
    bytes.chunks_exact(4).map(word).collect()
}

/// What the words of a region say; sites are numbered through all units.
fn parse(words: &[u32], units: &[Vec<Site>]) -> Vec<Event> {
    let mut words = words.chunks_exact(2).map(|word| [word[0], word[1]]);
    let mut events = Vec::new();
    while let Some([bits, mask]) = words.next() {
        let kind = (bits >> 24 & 7) as u8;
        let (unit, site) = ((bits & SITE) / UNIT_SITES, (bits & SITE) % UNIT_SITES);
        assert_eq!(units[unit as usize][site as usize].kind, kind, "the kind is the site's");
        let before: usize = units[..unit as usize].iter().map(Vec::len).sum();
        let site = site + before as u32;
        let mut taken = if bits & TAKEN != 0 { mask } else { 0 };
        if bits & HAS_BALLOT != 0 {
            // Lanes that went the way of the lowest.
            let Some([same, _]) = words.next() else { break };
            taken = if bits & TAKEN != 0 { same } else { mask & !same };
        }
        let mut value = None;
        if bits & HAS_VALUE != 0 {
            let Some([low, high]) = words.next() else { break };
            value = Some(u64::from(low) | u64::from(high) << 32);
        }
        events.push(Event { site, kind, mask, taken, value });
    }
    events
}
