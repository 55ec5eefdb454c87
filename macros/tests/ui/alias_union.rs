#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "PassHandle", crate = "crate::fixture")]
#[repr(C)]
union Mine {
    val: u32,
    bytes: [u8; 4],
}

fn main() {}
