#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", driver = "100", since = "200.1", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u32,
    mode: u8,
}

fn main() {}
