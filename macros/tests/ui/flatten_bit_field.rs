#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "LATCH_PARAMS", flatten = "by_offset", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u32,
    ready: u16,
    level: u16,
    count: u32,
}

fn main() {}
