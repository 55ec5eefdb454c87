#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_PARAMS", flatten = "by_offset", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    kind: u32,
    _pad: u32,
    data: [u8; 12],
    tail: u32,
}

fn main() {}
