#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy};

#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    #[nvproxy(name = "hClient")]
    client: u32,
    #[nvproxy(name = "hObject")]
    object: Handle,
    cmd: u32,
    #[nvproxy(name = "pArgs")]
    args: u64,
    #[nvproxy(name = "argsSize")]
    args_size: u32,
    status: u32,
}

fn main() {}
