#[path = "../fixture/mod.rs"]
mod fixture;

#[repr(C)]
struct Half(u16);

impl abi::check::FieldType for Half {
    const TYPE: abi::check::Type = abi::check::Type::Int { size: 4, signed: false };
}

#[derive(abi::NvProxy)]
#[nvproxy(name = "KEY_PARAMS", crate = "crate::fixture")]
#[repr(C)]
struct Mine {
    key: Half,
}

fn main() {}
