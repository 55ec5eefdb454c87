#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine<T> {
    base: u64,
    count: u32,
    mode: T,
}

fn main() {}
