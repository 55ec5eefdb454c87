#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_DATA", flatten = "by_offset", crate = "crate::fixture")]
#[repr(C)]
union Mine {
    address: u64,
    halves: [u16; 8],
}

fn main() {}
