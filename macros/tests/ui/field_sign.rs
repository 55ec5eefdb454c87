#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{NvProxy, Uuid};

#[derive(NvProxy)]
#[nvproxy(name = "KEY_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    label: [u8; 16],
    uuid: Uuid,
    level: u32,
}

fn main() {}
