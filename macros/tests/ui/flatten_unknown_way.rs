#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", flatten = "by_name", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    hClient: Handle,
    hObject: Handle,
    cmd: u32,
    pArgs: P64,
    argsSize: u32,
    status: u32,
}

fn main() {}
