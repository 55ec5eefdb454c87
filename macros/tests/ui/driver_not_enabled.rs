#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", driver = "300", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u32,
    mode: u8,
}

fn main() {}
