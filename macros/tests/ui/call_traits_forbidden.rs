//! `unsafe impl` is what a crate that forbids unsafe code cannot write.
#![forbid(unsafe_code)]

use abi::call::{
    Accepts, Call, Class, Control, Frontend, Info, Ioctl, CallKind, PointerFree, Uvm, Views,
};

enum Forged {}

static INFO: Info = Info {
    name: "FORGED",
    kind: CallKind::Control,
    number: 0x101,
    params: &[],
    sizes: &[],
    array: false,
    roles_known: true,
    fds: &[],
    handles: &[],
    pointers: &[],
    caps: &[],
    node: "",
};

unsafe impl Call for Forged {
    type Params = [u64; 5];
    const VIEWS: Views = Views::new(&abi::abi::TABLE, &[], true);
    const INFO: &'static Info = &INFO;
}

unsafe impl Accepts<[u64; 5]> for Forged {}

unsafe impl PointerFree for Forged {}

unsafe impl Control for Forged {
    const CMD: u32 = 0x101;
}

unsafe impl Class for Forged {
    const CLASS: u32 = 0x41;
}

unsafe impl Frontend for Forged {
    const NR: u32 = 0x2a;
}

unsafe impl Uvm for Forged {
    const REQUEST: u32 = 1;
}

unsafe impl Ioctl for Forged {
    const REQUEST: u32 = 1;
}

fn main() {}
