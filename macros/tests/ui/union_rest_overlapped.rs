#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// `flow` lies where the driver has it, but `low` and `high` are of no variant.
#[derive(NvProxy)]
#[nvproxy(name = "VENT_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    code: u32,
    low: u16,
    high: u16,
    flow: u64,
}

fn main() {}
