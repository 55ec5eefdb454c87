#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "VENT_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    code: u32,
    flow: u64,
}

fn main() {}
