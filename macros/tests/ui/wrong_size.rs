#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "SPAN", crate = "crate::fixture")]
#[repr(C)]
struct Span {
    from: u32,
    to: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "WALL_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    spans: [Span; 3],
    count: u32,
    _pad: u32,
}

fn main() {}
