#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "LATCH_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u32,
    count: u32,
}

fn main() {}
