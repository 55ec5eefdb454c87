#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine(u64, u32, u8);

fn main() {}
