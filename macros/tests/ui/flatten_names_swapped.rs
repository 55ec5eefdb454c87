#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", flatten, crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    #[nvproxy(name = "hObject")]
    object: Handle,
    #[nvproxy(name = "hClient")]
    client: Handle,
    cmd: u32,
    #[nvproxy(name = "pArgs")]
    args: P64,
    status: u32,
    argsSize: u32,
}

fn main() {}
