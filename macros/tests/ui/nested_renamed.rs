#[path = "../fixture/mod.rs"]
mod fixture;

use abi::NvProxy;

#[derive(NvProxy)]
#[nvproxy(name = "BOLT", crate = "bolts")]
#[repr(C)]
struct Gate {
    base: u64,
    total: u32,
    mode: u8,
}

// Another driver's struct of the same size, which is right in itself.
mod bolts {
    pub use abi::check;
    use check::{Abi, Driver, Field, Item, LayoutKind, Layout, Type};

    static BOLT: Layout = Layout {
        name: "BOLT",
        kind: LayoutKind::Struct,
        size: 16,
        align: 8,
        since: "7.1",
        source: "bolt.h:1",
        fields: &[
            Field { name: "base", offset: 0, ty: Type::Int { size: 8, signed: false } },
            Field { name: "total", offset: 8, ty: Type::Int { size: 4, signed: false } },
            Field { name: "mode", offset: 12, ty: Type::Int { size: 1, signed: false } },
        ],
    };

    pub static ABI: Abi = Abi {
        drivers: &[Driver {
            name: "7",
            feature: "driver-7",
            tags: &["7.1"],
            items: &[Item { name: "BOLT", events: &[(0, Some(&BOLT))] }],
        }],
        known: &["7"],
    };
}

#[derive(NvProxy)]
#[nvproxy(name = "MOAT_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    gate: Gate,
    width: u32,
}

fn main() {}
