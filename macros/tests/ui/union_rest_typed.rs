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
#[nvproxy(name = "SIGNAL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C, align(8))]
struct Mine {
    kind: u32,
    _pad: u32,
    span: Span,
    rest: [u32; 2],
}

fn main() {}
