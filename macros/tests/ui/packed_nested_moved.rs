#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// Nothing aligns this one, so that it moves up to `flag` below.
#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C, packed)]
struct Gate {
    base: u64,
    count: u32,
    mode: u8,
    _pad: [u8; 3],
}

#[derive(NvProxy)]
#[nvproxy(name = "HOOK_PARAMS", crate = "crate::fixture")]
#[repr(C, align(8))]
struct Mine {
    flag: u32,
    gate: Gate,
    _pad: u32,
}

fn main() {}
