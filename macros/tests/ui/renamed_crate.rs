#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// nvabi is called `abi` here, so the derive must be told by `crate`.
#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u32,
    mode: u8,
}

fn main() {}
