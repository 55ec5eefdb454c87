#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

// For other types, such as `bool`, the compiler adds a list of those that would do, which changes
// with the features of nvabi.
#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    base: &'static u64,
    count: &'static u32,
    mode: u8,
}

fn main() {}
