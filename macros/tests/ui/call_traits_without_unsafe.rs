//! Safe functions hand parameters to the driver on the word of these traits.
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

impl Call for Forged {
    type Params = [u64; 5];
    const VIEWS: Views = Views::new(&abi::abi::TABLE, &[], true);
    const INFO: &'static Info = &INFO;
}

impl Accepts<[u64; 5]> for Forged {}

impl PointerFree for Forged {}

impl Control for Forged {
    const CMD: u32 = 0x101;
}

impl Class for Forged {
    const CLASS: u32 = 0x41;
}

impl Frontend for Forged {
    const NR: u32 = 0x2a;
}

impl Uvm for Forged {
    const REQUEST: u32 = 1;
}

impl Ioctl for Forged {
    const REQUEST: u32 = 1;
}

fn main() {}
