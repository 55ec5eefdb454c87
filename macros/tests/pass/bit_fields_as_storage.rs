#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "LATCH_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u32,
    bits0: u32,
    count: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "LATCH_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Renamed {
    base: u32,
    #[nvproxy(name = "bits0")]
    state: u32,
    count: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "LATCH_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Flat {
    base: u32,
    #[nvproxy(name = "bits0")]
    state: u32,
    count: u32,
}

fn main() {}
