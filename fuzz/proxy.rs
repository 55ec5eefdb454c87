//! What holds for any call that a proxy is asked to carry; the fuzz target and the tests share it.

use std::io;

use nvabi::driver::AnyDriver;
use nvabi::proxy::{Error, Limits, Memory, marshal, unmarshal};

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

/// A call out of memory that holds anything: it is carried whole, or refused. Says whether it was.
pub(crate) fn call(driver: &AnyDriver, kind: usize, number: usize, seed: u64) -> bool {
    let calls = driver.calls();
    let kinds = [calls.frontend, calls.uvm, calls.control, calls.class];
    let all: Vec<_> = kinds[kind % kinds.len()].iter().flat_map(|part| part.iter()).collect();
    let info = *all[number % all.len()];
    for params in driver.params(info) {
        let memory = Endless { seed, wrote: 0 };
        let size = params.size as usize;
        match marshal(driver, info, 0x1000, size, &memory, LIMITS) {
            Ok(message) => {
                assert!(request(driver, &message.request()), "{}", info.name);
                return true;
            }
            Err(Error::Memory { .. }) => panic!("{}: this memory has no end", info.name),
            Err(_) => {}
        }
    }
    false
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
