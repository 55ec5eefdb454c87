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
struct Bytes {
    kind: u32,
    _pad: u32,
    span: Span,
    rest: [u8; 8],
}

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C, align(8))]
struct Named {
    kind: u32,
    _pad: u32,
    span: Span,
    _rest: [u32; 2],
}

#[derive(NvProxy)]
#[nvproxy(name = "SIGNAL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C, align(8))]
struct Widest {
    kind: u32,
    _pad: u32,
    words: [u32; 4],
}

#[derive(NvProxy)]
#[nvproxy(name = "VENT_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Hole {
    tag: u8,
    _hole: [u8; 3],
    value: u32,
    flow: u64,
}

#[derive(NvProxy)]
#[nvproxy(name = "VENT_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Raw {
    raw: u64,
    flow: u64,
}

fn main() {}
