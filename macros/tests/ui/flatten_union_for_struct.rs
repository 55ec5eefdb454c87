#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// Every leaf is there, but one over the other.
#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
union Mine {
    base: u64,
    whole: Gate,
}

#[derive(NvProxy, Clone, Copy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Gate {
    base: u64,
    count: u32,
    mode: u8,
}

fn main() {}
