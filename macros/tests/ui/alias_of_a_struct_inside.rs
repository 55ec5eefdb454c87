#[path = "../fixture/mod.rs"]
mod fixture;

use abi::{Handle, NvProxy};

#[derive(NvProxy)]
#[nvproxy(name = "PAIR", crate = "crate::fixture")]
#[repr(C)]
struct Two {
    hClient: Handle,
    hObject: Handle,
}

// As wide and as aligned as the pointer, but two values.
#[derive(NvProxy)]
#[nvproxy(name = "PassPointer", crate = "crate::fixture")]
#[repr(C, align(8))]
struct Mine {
    two: Two,
}

fn main() {}
