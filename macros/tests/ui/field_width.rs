#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// The field after the wrong one is not reported too: it is only pushed.
#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u64,
    mode: u8,
}

fn main() {}
