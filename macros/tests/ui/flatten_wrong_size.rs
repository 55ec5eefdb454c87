#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "LEVER_PARAMS", flatten = "by_offset", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    r#type: u32,
    check: u32,
    abi: u32,
    layout: u32,
    more: u32,
}

fn main() {}
