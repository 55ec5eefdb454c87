#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C, align(16))]
struct Mine {
    base: u64,
    count: u32,
    mode: u8,
    _pad: [u8; 3],
}

fn main() {}
