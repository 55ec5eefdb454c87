#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "VENT_PAIR", crate = "crate::fixture")]
#[repr(C)]
struct Pair {
    tag: u8,
    value: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "VENT_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    pair: Pair,
    flow: u64,
}

fn main() {}
