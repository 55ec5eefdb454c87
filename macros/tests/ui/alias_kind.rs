#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "PassHandle", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    val: i32,
}

fn main() {}
