//! What it costs a proxy to carry a call, without the call: nanoseconds of one, the least of many
//! rounds. `cargo run --release --example proxy_cost --features driver-550`

use std::hint::black_box;
use std::io;
use std::time::Instant;

use nvabi::P64;
use nvabi::call::{Call, Control};
use nvabi::driver::{AnyDriver, Record};
use nvabi::proxy::{Limits, Memory, Params, marshal, unmarshal};
use nvabi::r550::{
    NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS as Caps, NVOS54_PARAMETERS, NVOS64_PARAMETERS, control,
    frontend,
};

/// The memory of this process.
struct Own;

impl Memory for Own {
    fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        // SAFETY: the parameters below hold addresses of variables that are as long as they say.
        unsafe { std::ptr::copy(address as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let driver = AnyDriver::for_version("550.90.07")?;
    let lists = [0u32; 16];
    let caps = Caps {
        gpuCount: 2,
        busPeerIds: P64(lists.as_ptr() as u64),
        busEgmPeerIds: P64(lists.as_ptr() as u64),
        ..Record::zeroed()
    };
    let call = NVOS54_PARAMETERS {
        cmd: control::NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS::CMD,
        params: P64(&raw const caps as u64),
        paramsSize: size_of_val(&caps) as u32,
        ..Record::zeroed()
    };
    let info = frontend::NV_ESC_RM_CONTROL::INFO;
    let carry = || {
        let (at, size) = (&raw const call as u64, size_of_val(&call));
        marshal(driver, info, at, size, &Own, Limits::default())
    };
    let request = carry()?.request();
    let mut message = carry()?;
    let mut alloc = NVOS64_PARAMETERS::zeroed();
    let mut sum = 0;
    report("visit handles of one struct", || {
        Params::of::<frontend::NV_ESC_RM_ALLOC, _>(&mut alloc)
            .visit_handles(|handle| sum += handle.get().0);
    });
    report("visit handles of a message", || {
        message.visit_handles(|handle| sum += handle.get().0);
    });
    report("marshal a command with two lists", || _ = black_box(carry()));
    report("unmarshal it", || {
        _ = black_box(unmarshal(driver, black_box(&request), Limits::default()));
    });
    black_box(sum);
    Ok(())
}

fn report(what: &str, mut run: impl FnMut()) {
    const CALLS: u32 = 2000;
    let round = |run: &mut dyn FnMut()| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| run());
        begin.elapsed() / CALLS
    };
    let least = (0..200).map(|_| round(&mut run)).min().unwrap_or_default();
    println!("{what:<34}{:>8} ns", least.as_nanos());
}
