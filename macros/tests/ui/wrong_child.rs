#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Gate {
    base: u64,
    count: u32,
    mode: u8,
    more: [u64; 2],
}

#[derive(NvProxy)]
#[nvproxy(name = "MOAT_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Moat {
    gate: Gate,
    width: u32,
}

fn main() {}
