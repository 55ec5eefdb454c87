#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    hClient: Handle,
    hObject: Handle,
    cmd: u32,
    named: [u8; 4],
    pArgs: P64,
    _pad: u32,
    status: u32,
}

fn main() {}
