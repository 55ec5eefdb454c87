#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "FORD_PARAMS", driver = "100.2", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    depth: u32,
}

fn main() {}
