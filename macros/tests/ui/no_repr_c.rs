#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
struct Mine {
    base: u64,
    count: u32,
    mode: u8,
}

fn main() {}
