#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// The driver's `end` is a `u32`, and no union.
#[derive(NvProxy)]
#[nvproxy(name = "ROPE_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    length: u32,
    end: Length,
}

#[derive(NvProxy)]
#[nvproxy(name = "ROPE_LENGTH", crate = "crate::fixture")]
#[repr(C)]
union Length {
    length: u32,
}

fn main() {}
