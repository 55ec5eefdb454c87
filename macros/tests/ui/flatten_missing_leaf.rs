#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// `gate.mode` is missing and what follows is moved.
#[derive(NvProxy)]
#[nvproxy(name = "MOAT_PARAMS", flatten = "by_offset", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u32,
    width: u32,
    tail: u32,
}

fn main() {}
