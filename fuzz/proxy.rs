//! What holds for any call that a proxy is asked to carry; the fuzz target and the tests share it.

use std::io;

use nvabi::call::{CallKind, Info, InnerCall};
use nvabi::driver::AnyDriver;
use nvabi::proxy::{Error, Limits, Memory, Params, marshal, unmarshal};

/// Small enough that out-only memory, which costs the sender nothing, is soon refused.
const LIMITS: Limits = Limits { bytes: 1 << 16, parts: 16, opaque: true };

/// A request that was read is written as the same bytes; a call that is made in between changes
/// nothing but what the driver writes; the reply is that to this call alone. Says whether the bytes
/// were a request.
pub(crate) fn request(driver: &AnyDriver, bytes: &[u8]) -> bool {
    let Ok(mut message) = unmarshal(driver, bytes, LIMITS) else { return false };
    assert_eq!(message.request(), bytes);
    let reply = message.reply();
    message.call(|_| ());
    assert_eq!((message.request(), message.reply()), (bytes.to_vec(), reply.clone()));
    made(driver, bytes);
    let changed: Vec<u8> =
        reply[..4].iter().copied().chain(reply[4..].iter().map(|b| !b)).collect();
    message.take_reply(&changed).expect("it has the reply's length");
    for length in [reply.len() - 1, 0] {
        assert!(message.take_reply(&reply[..length]).is_err());
    }
    message.visit_fds(|fd| fd.set(fd.get().unwrap_or(-1)));
    message.visit_handles(|handle| handle.set(handle.get()));
    _ = message.write_back(&mut Endless { seed: 1, wrote: 0 });
    true
}

/// The driver finds all that it follows in the message, each piece for itself, and no address of the
/// sender's.
fn made(driver: &AnyDriver, bytes: &[u8]) {
    let limits = Limits { opaque: false, ..LIMITS };
    let Ok(message) = unmarshal(driver, bytes, limits) else { return };
    // A copy has no room behind its end: what is beyond it a sanitizer sees.
    let (mut message, info) = (message.clone(), message.info());
    let size = message.params().len();
    let (start, mut pieces) = message.call(|argument| {
        let mut pieces = Vec::new();
        follow(driver, info, argument, size, &mut pieces);
        (argument as usize, pieces)
    });
    pieces.sort_unstable();
    assert!(pieces.windows(2).all(|two| two[0].1 <= two[1].0), "{}: {pieces:x?}", info.name);
    let inside = |(from, to): &(usize, usize)| *from >= start && *to <= start + LIMITS.bytes;
    assert!(pieces.iter().all(inside), "{}: {start:x} {pieces:x?}", info.name);
}

/// Does what the driver may at most: reads and writes the parameters and all that they point to. Takes in
/// from where to where each piece goes.
fn follow(
    driver: &AnyDriver,
    info: &'static Info,
    at: *mut u8,
    size: usize,
    pieces: &mut Vec<(usize, usize)>,
) {
    let touch = |at: *mut u8, size: usize| {
        // SAFETY: the message promises the driver as much; whether it keeps that is what is tested.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, size) };
        let copy = bytes.to_vec();
        bytes.copy_from_slice(&copy);
        copy
    };
    let mut bytes = touch(at, size);
    pieces.push((at as usize, at as usize + size));
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let number = match info.name {
        "NV_ESC_IOCTL_XFER_CMD" => word(0),
        "NV_ESC_RM_CONTROL" => word(8),
        "NV_ESC_RM_ALLOC" => word(12),
        _ => 0,
    };
    let mut found = Vec::new();
    let mut params = Params::new(info, &mut bytes).expect("it was carried");
    params.visit_pointers(|pointer| found.push((pointer.role(), pointer.get(), pointer.len())));
    for (role, address, len) in found.into_iter().filter(|(_, address, _)| *address != 0) {
        assert!(!role.opaque, "{}: {} leads nowhere", info.name, role.field);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let at = address as *mut u8;
        let Some(InnerCall { kind, number: by, .. }) = role.call else {
            let len = len.expect("it was carried");
            touch(at, len);
            pieces.push((at as usize, at as usize + len));
            continue;
        };
        let number = by.text.parse().unwrap_or(number);
        let Some(inner) = driver.calls().find(kind, number) else {
            // What no header has is carried for the GSP alone, as bytes.
            let is_for_gsp = number & 0x8000 != 0 || [0x2081, 0x2082].contains(&(number >> 16));
            assert!(kind == CallKind::Control && is_for_gsp, "{number:#x} was carried");
            let len = len.expect("it was carried");
            touch(at, len);
            pieces.push((at as usize, at as usize + len));
            continue;
        };
        let own = driver.params(inner).next().map_or(0, |params| params.size as usize);
        let len = len.filter(|_| kind != CallKind::Class).unwrap_or(own);
        follow(driver, inner, at, len, pieces);
    }
}

/// A call out of memory that holds anything: it is carried whole, or refused. Commands and classes are asked
/// for by the ioctl that takes them as well. Gives the requests that were carried.
pub(crate) fn call(driver: &AnyDriver, kind: usize, number: usize, seed: u64) -> Vec<Vec<u8>> {
    let calls = driver.calls();
    let kinds = [calls.frontend, calls.uvm, calls.control, calls.class];
    let all: Vec<_> = kinds[kind % kinds.len()].iter().flat_map(|part| part.iter()).collect();
    let info = *all[number % all.len()];
    let memory = Endless { seed, wrote: 0 };
    let mut carried = Vec::new();
    for params in driver.params(info) {
        let size = params.size;
        carried.extend(carry(driver, info, size as usize, &memory));
        let words = match info.kind {
            CallKind::Control => [0, 0, info.number, 0, PARAMS, 0, size, 0],
            CallKind::Class => [0, 0, 0, info.number, PARAMS, 0, size, 0],
            _ => continue,
        };
        let nr = if info.kind == CallKind::Control { CONTROL } else { ALLOC };
        let Some(ioctl) = driver.frontend(nr) else { continue };
        carried.extend(carry(driver, ioctl, 32, &Ioctl { words, behind: &memory }));
    }
    carried
}

fn carry(
    driver: &AnyDriver,
    info: &'static Info,
    size: usize,
    memory: &impl Memory,
) -> Option<Vec<u8>> {
    match marshal(driver, info, CALL, size, memory, LIMITS) {
        Ok(message) => {
            assert!(request(driver, &message.request()), "{}", info.name);
            Some(message.request())
        }
        Err(Error::Memory { .. }) => panic!("{}: this memory has no end", info.name),
        Err(_) => None,
    }
}

/// Where calls lie in the caller's memory, and the parameters of a command or class.
const CALL: u64 = 0x1000;
const PARAMS: u32 = 0x2000;

/// `NV_ESC_RM_ALLOC` and `NV_ESC_RM_CONTROL`.
const ALLOC: u32 = 43;
const CONTROL: u32 = 42;

/// An ioctl's own parameters, and behind them memory that holds anything.
struct Ioctl<'m> {
    words: [u32; 8],
    behind: &'m Endless,
}

impl Memory for Ioctl<'_> {
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        match address {
            CALL => {
                let bytes: Vec<u8> =
                    self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
                to.copy_from_slice(&bytes);
                Ok(())
            }
            _ => self.behind.read(address, to),
        }
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Memory that holds something at every address, always the same.
struct Endless {
    seed: u64,
    wrote: usize,
}

impl Memory for Endless {
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        for (byte, at) in to.iter_mut().zip(0u64..) {
            // Lengths are small numbers mostly, and high bytes zero.
            let mixed = (address.wrapping_add(at) ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = if mixed >> 62 == 0 { (mixed >> 40) as u8 } else { (at % 4 == 0) as u8 };
        }
        Ok(())
    }

    fn write(&mut self, _: u64, from: &[u8]) -> io::Result<()> {
        self.wrote += from.len();
        assert!(self.wrote <= LIMITS.bytes, "more is written than was carried");
        Ok(())
    }
}
