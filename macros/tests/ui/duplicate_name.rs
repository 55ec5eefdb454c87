#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    #[nvproxy(name = "hClient")]
    client: Handle,
    #[nvproxy(name = "hClient")]
    object: Handle,
    cmd: u32,
    #[nvproxy(name = "pArgs")]
    args: P64,
    #[nvproxy(name = "argsSize")]
    args_size: u32,
    status: u32,
}

fn main() {}
