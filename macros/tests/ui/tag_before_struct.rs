#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "WALL_PARAMS", since = "100.1", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    count: u32,
}

fn main() {}
