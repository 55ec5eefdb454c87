#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "LEVER_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    r#type: u32,
    check: u32,
    ABI: u32,
    LAYOUT: u32,
    handle_count: u32,
}

fn main() {}
