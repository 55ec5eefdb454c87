#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    kind: u32,
    _pad: u32,
    data: [u16; 8],
}

fn main() {}
