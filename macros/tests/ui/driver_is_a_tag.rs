#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

/// A tag stands for its own layout.
#[derive(NvProxy)]
#[nvproxy(name = "FORD_PARAMS", driver = "100.10", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    depth: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "FORD_PARAMS", driver = "100.99", crate = "crate::fixture")]
#[repr(C)]
struct Unknown {
    depth: u32,
}

fn main() {}
