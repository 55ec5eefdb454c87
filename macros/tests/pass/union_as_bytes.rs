#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C, align(8))]
struct Mine {
    kind: u32,
    _pad: u32,
    data: [u8; 16],
}

fn main() {}
