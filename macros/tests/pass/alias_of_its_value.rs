#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy, P64};

#[derive(NvProxy)]
#[nvproxy(name = "PassHandle", crate = "crate::fixture")]
#[repr(C)]
struct Plain {
    val: u32,
}

#[derive(NvProxy)]
#[nvproxy(name = "PassHandle", crate = "crate::fixture")]
#[repr(transparent)]
struct Tuple(Handle);

#[derive(NvProxy)]
#[nvproxy(name = "PassHandle", crate = "crate::fixture")]
#[repr(C)]
struct Wrapped {
    none: [u8; 0],
    inner: Plain,
}

#[derive(NvProxy)]
#[nvproxy(name = "PassPointer", crate = "crate::fixture")]
#[repr(C)]
struct Pointer {
    address: u64,
}

#[derive(NvProxy)]
#[nvproxy(name = "PassPointer", crate = "crate::fixture")]
#[repr(C)]
struct Same {
    address: P64,
}

fn main() {}
