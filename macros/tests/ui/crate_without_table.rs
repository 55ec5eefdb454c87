#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

mod table {
    pub use abi::check;
}

#[derive(NvProxy)]
#[nvproxy(name = "GATE_PARAMS", crate = "table")]
#[repr(C)]
struct Mine {
    base: u64,
    count: u32,
    mode: u8,
}

fn main() {}
