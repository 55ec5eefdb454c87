#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "PassHandle", crate = "crate::fixture")]
#[repr(C, align(4))]
struct Mine {
    low: u16,
    high: u16,
}

fn main() {}
