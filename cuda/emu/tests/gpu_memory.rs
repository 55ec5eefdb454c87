//! Memory that is not the emulator's: kernels reach it by its own addresses.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use nvabi_emu::{Args, Device, FindingKind, Foreign, Launch};

/// Above all addresses of a process.
const BASE: u64 = 0xabcd_0000_0000_0000;
const WORDS: u64 = 64;

/// Bytes from [`BASE`] on.
#[derive(Debug)]
struct Bytes(Mutex<Vec<u8>>);

impl Bytes {
    fn word(bytes: &[u8], address: u64, width: u64) -> u64 {
        let at = (address - BASE) as usize;
        let mut word = [0; 8];
        word[..width as usize].copy_from_slice(&bytes[at..at + width as usize]);
        u64::from_le_bytes(word)
    }

    fn put(bytes: &mut [u8], address: u64, width: u64, value: u64) {
        let at = (address - BASE) as usize;
        bytes[at..at + width as usize].copy_from_slice(&value.to_le_bytes()[..width as usize]);
    }
}

impl Foreign for Bytes {
    fn range(&self, address: u64) -> Option<(u64, u64)> {
        let end = BASE + self.0.lock().unwrap().len() as u64;
        (BASE..end).contains(&address).then_some((BASE, end))
    }

    fn load(&self, address: u64, width: u64) -> u64 {
        Self::word(&self.0.lock().unwrap(), address, width)
    }

    fn store(&self, address: u64, width: u64, value: u64) {
        Self::put(&mut self.0.lock().unwrap(), address, width, value);
    }

    fn compare_exchange(&self, address: u64, width: u64, old: u64, new: u64) -> u64 {
        let mut bytes = self.0.lock().unwrap();
        let found = Self::word(&bytes, address, width);
        if found == old {
            Self::put(&mut bytes, address, width, new);
        }
        found
    }
}

/// Each thread writes its number in the first words, and adds it to the last one.
const KERNEL: &str = ".version 8.3\n.target sm_80\n.address_size 64\n
    .visible .entry count(.param .u64 data, .param .u32 last) {
        .reg .b32 %r<9>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [data];
        ld.param.u32 %r5, [last];
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %ntid.x;
        mov.u32 %r3, %tid.x;
        mad.lo.u32 %r4, %r1, %r2, %r3;
        mul.wide.u32 %rd2, %r4, 4;
        add.s64 %rd3, %rd1, %rd2;
        st.global.u32 [%rd3], %r4;
        mul.wide.u32 %rd4, %r5, 4;
        add.s64 %rd5, %rd1, %rd4;
        red.global.add.u32 [%rd5], %r4;
        ret;
    }";

fn launch(last: u32) -> (Vec<u32>, Vec<FindingKind>) {
    let memory = Arc::new(Bytes(Mutex::new(vec![0; WORDS as usize * 4])));
    let mut device = Device::beside(memory.clone());
    // That is not watched, though all blocks add to a word that nobody wrote.
    device.watch_global();
    let module = device.load(KERNEL).unwrap();
    let launch = Launch { grid: [4, 1, 1], block: [8, 1, 1], ..Launch::default() };
    let args = Args::new().u64(BASE).u32(last);
    let report = device.launch(&module, "count", &launch, &args).unwrap();
    let bytes = memory.0.lock().unwrap();
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    (words.collect(), report.findings.iter().map(|finding| finding.kind).collect())
}

#[test]
fn kernels_reach_it_by_its_addresses() {
    let (words, findings) = launch(63);
    assert_eq!(words[..32], (0..32).collect::<Vec<_>>());
    assert_eq!((words[62], words[63]), (0, 31 * 32 / 2));
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn what_is_behind_it_is_out_of_bounds() {
    let (_, findings) = launch(WORDS as u32);
    assert_eq!(findings, [FindingKind::OutOfBounds]);
}

#[test]
fn the_device_reads_and_writes_it() {
    let mut device = Device::beside(Arc::new(Bytes(Mutex::new(vec![0; 16]))));
    device.write(BASE + 3, &[1, 2, 3]).unwrap();
    let mut bytes = [9; 5];
    device.read(BASE + 2, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 2, 3, 0]);
    assert!(device.write(BASE + 15, &[1, 2]).is_err() && device.read(BASE + 16, &mut [0]).is_err());
    // Its own allocations are elsewhere.
    let own = device.alloc(16).unwrap();
    device.write(own, &[7]).unwrap();
    assert!(own < BASE);
}
