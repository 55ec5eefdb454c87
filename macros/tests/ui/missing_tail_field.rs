#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// The driver has `mode` where this struct has padding, so the sizes agree.
#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u32,
}

fn main() {}
