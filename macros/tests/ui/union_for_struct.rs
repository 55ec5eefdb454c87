#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "LEVER_PARAMS", crate = "crate::fixture")]
#[repr(C)]
union Mine {
    r#type: u32,
    check: u32,
    ABI: u32,
    LAYOUT: u32,
}

fn main() {}
