#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "PassPointer", crate = "crate::fixture")]
#[repr(C, align(8))]
struct Mine {
    val: [u8; 8],
}

fn main() {}
