#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine;

fn main() {}
