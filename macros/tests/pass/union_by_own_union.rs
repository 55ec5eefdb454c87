#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_DATA", flatten, crate = "crate::fixture")]
#[repr(C)]
union Mine {
    address: u64,
    bytes: [u8; 16],
}

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_DATA", flatten, crate = "crate::fixture")]
#[repr(C)]
union Words {
    address: u64,
    words: [u32; 4],
}

fn main() {}
