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
    _pad: [u8; 4],
    spans: [Span; 3],
    count: u32,
}

fn main() {}
