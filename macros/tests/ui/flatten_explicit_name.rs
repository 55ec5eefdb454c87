#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", flatten = "by_offset", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    one: Handle,
    other: Handle,
    cmd: u32,
    #[nvproxy(name = "pNoSuchThing")]
    args: P64,
    rest: u32,
    last: u32,
}

fn main() {}
