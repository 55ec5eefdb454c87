#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "FORD_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    depth: u32,
}

fn main() {}
