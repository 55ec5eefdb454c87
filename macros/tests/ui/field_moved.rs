#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

// The last two fields are the wrong way round; the size is right.
#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    #[nvproxy(name = "hClient")]
    client: Handle,
    #[nvproxy(name = "hObject")]
    object: Handle,
    cmd: u32,
    #[nvproxy(name = "pArgs")]
    args: P64,
    status: u32,
    #[nvproxy(name = "argsSize")]
    args_size: u32,
}

fn main() {}
