//! Structs that agree with the driver, in every way that the derive allows. `nvabi` is called `abi`
//! here: the derive must work under any name.

mod fixture;

use abi::check::{FieldType, LayoutKind, NvProxy as _, Type};
use abi::{Handle, NvProxy, P64, Uuid};

/// Written as the driver has it, but for two names.
#[derive(NvProxy)]
#[nvproxy(name = "TOLL_PARAMS", crate = "crate::fixture")]
#[repr(C)]
#[allow(dead_code)]
struct Toll {
    #[nvproxy(name = "hClient")]
    client: Handle,
    #[nvproxy(name = "hObject")]
    object: Handle,
    cmd: u32,
    _pad: [u8; 4],
    #[nvproxy(name = "pArgs")]
    args: P64,
    #[nvproxy(name = "argsSize")]
    args_size: u32,
    status: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "GATE_PARAMS")]
#[repr(C)]
#[allow(dead_code)]
struct Gate {
    base: u64,
    count: u32,
    mode: u8,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "MOAT_PARAMS")]
#[repr(C)]
#[allow(dead_code)]
struct Moat {
    gate: Gate,
    width: u32,
}

/// The name of the struct is the driver's where none is given.
#[allow(dead_code, clippy::upper_case_acronyms)]
#[derive(NvProxy)]
#[nvproxy(crate = "fixture")]
#[repr(C)]
struct SPAN {
    from: u32,
    to: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "WALL_PARAMS", driver = "100", since = "100.2")]
#[repr(C)]
#[allow(dead_code)]
struct Wall {
    spans: [SPAN; 3],
    count: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "WALL_PARAMS", flatten)]
#[repr(C)]
#[allow(dead_code)]
struct WallSpelledOut {
    first: SPAN,
    #[nvproxy(name = "from")]
    second_from: u32,
    #[nvproxy(name = "to")]
    second_to: u32,
    third: SPAN,
    count: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "FORD_PARAMS", since = "100.2")]
#[repr(C)]
#[allow(dead_code)]
struct Ford {
    depth: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "FORD_PARAMS", since = "100.10")]
#[repr(C)]
#[allow(dead_code)]
struct FordWide {
    width: u32,
    depth: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "FORD_PARAMS", driver = "200")]
#[repr(C)]
#[allow(dead_code)]
struct FordOf200 {
    width: u32,
    depth: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "SIGNAL_DATA")]
#[repr(C)]
#[allow(dead_code)]
union SignalData {
    address: u64,
    words: [u32; 4],
    span: SpanCopy,
}

/// Only a struct that is `Copy` can be in a union.
#[derive(NvProxy, Clone, Copy)]
#[nvproxy(crate = "crate::fixture", name = "SPAN")]
#[repr(C)]
#[allow(dead_code)]
struct SpanCopy {
    from: u32,
    to: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "SIGNAL_PARAMS")]
#[repr(C)]
#[allow(dead_code)]
struct Signal {
    kind: u32,
    data: SignalData,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "SIGNAL_PARAMS", flatten)]
#[repr(C)]
#[allow(dead_code)]
struct SignalBytes {
    kind: u32,
    _pad: u32,
    data: [u8; 16],
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "SIGNAL_PARAMS", flatten)]
#[repr(C, align(8))]
#[allow(dead_code)]
struct SignalOneVariant {
    kind: u32,
    _pad: u32,
    span: SPAN,
    rest: [u8; 8],
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "MOAT_PARAMS", flatten)]
#[repr(C)]
#[allow(dead_code)]
struct MoatSpelledOut {
    #[nvproxy(name = "base")]
    address: u64,
    count: u32,
    mode: u8,
    width: u32,
    _tail: u32,
}

/// A struct whose first part is shared with others.
#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "TOLL_PARAMS", flatten)]
#[repr(C)]
#[allow(dead_code)]
struct TollEmbedded {
    base: Pair,
    cmd: u32,
    #[nvproxy(name = "pArgs")]
    args: P64,
    #[nvproxy(name = "argsSize")]
    size: u32,
    status: u32,
}

/// Names that nobody gives count for nothing here; the one that is given does.
#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "TOLL_PARAMS", flatten = "by_offset")]
#[repr(C)]
#[allow(dead_code)]
struct TollByOffset {
    base: Pair,
    what: u32,
    #[nvproxy(name = "pArgs")]
    args: P64,
    size_and_status: SPAN,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "PAIR")]
#[repr(C)]
#[allow(dead_code)]
struct Pair {
    #[nvproxy(name = "hClient")]
    client: Handle,
    #[nvproxy(name = "hObject")]
    object: Handle,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "KEY_PARAMS")]
#[repr(C)]
#[allow(dead_code)]
struct Key {
    label: [i8; 16],
    uuid: Uuid,
    level: i32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "LEVER_PARAMS")]
#[repr(C)]
#[allow(dead_code, non_snake_case)]
struct Lever {
    r#type: u32,
    check: u32,
    ABI: u32,
    LAYOUT: u32,
}

/// An unnamed member has no name to compare.
#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "ROPE_PARAMS")]
#[repr(C)]
#[allow(dead_code)]
struct Rope {
    length: RopeLength,
    end: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "ROPE_LENGTH")]
#[repr(C)]
#[allow(dead_code)]
union RopeLength {
    length: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "PassHandle")]
#[repr(C)]
#[allow(dead_code)]
struct MyHandle {
    val: u32,
}

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "PassHandle")]
#[repr(transparent)]
#[allow(dead_code)]
struct TupleHandle(u32);

#[derive(NvProxy)]
#[nvproxy(crate = "crate::fixture", name = "TOLL_PARAMS")]
#[repr(C)]
#[allow(dead_code, non_snake_case)]
struct TollWithOwnHandles {
    hClient: MyHandle,
    hObject: TupleHandle,
    cmd: u32,
    pArgs: P64,
    argsSize: u32,
    status: u32,
}

/// Constants and types of the user's that bear the names which the derive might use itself.
mod names {
    use super::NvProxy;

    #[allow(dead_code)]
    const FOUND: usize = 9;
    const LEN: usize = 2;
    #[allow(dead_code)]
    struct Some;
    #[allow(dead_code)]
    struct Layout;
    #[allow(dead_code)]
    struct Option;
    #[allow(dead_code, non_camel_case_types)]
    type u32 = ::core::primitive::u32;
    #[allow(dead_code, non_camel_case_types)]
    struct str;

    #[derive(NvProxy)]
    #[nvproxy(crate = "super::fixture", name = "TOLL_PARAMS", flatten = "by_offset")]
    #[repr(C)]
    #[allow(dead_code)]
    struct Names {
        handles: Handles,
        cmd: u32,
        _fill: [u8; LEN * Handles::TWO],
        args: super::P64,
        more: [super::SPAN; LEN / 2],
    }

    #[derive(NvProxy)]
    #[nvproxy(crate = "super::fixture", name = "PAIR")]
    #[repr(C)]
    #[allow(dead_code)]
    struct Handles {
        #[nvproxy(name = "hClient")]
        both: super::Handle,
        #[nvproxy(name = "hObject")]
        other: super::Handle,
        _none: [u8; Self::TWO - 2],
    }

    impl Handles {
        const TWO: usize = 2;
    }
}

#[test]
fn the_traits_carry_both_layouts() {
    assert_eq!(Toll::NAME, "TOLL_PARAMS");
    assert_eq!(Toll::LAYOUT.source, "toll.h:10");
    assert_eq!(Toll::OWN.name, "Toll");
    assert_eq!(Toll::OWN.fields[0].name, "hClient");
    assert_eq!(Toll::OWN.size, 32);
    assert_eq!(Ford::LAYOUT.size, 4);
    assert_eq!(FordWide::LAYOUT.size, 8);
    assert_eq!(SPAN::NAME, "SPAN");
}

#[test]
fn an_alias_has_the_type_that_it_stands_for() {
    assert_eq!(MyHandle::TYPE, Type::Handle);
    assert_eq!(TupleHandle::TYPE, Type::Handle);
    assert_eq!(SignalData::OWN.kind, LayoutKind::Union);
}

#[test]
fn a_struct_inside_a_function_is_checked_too() {
    #[derive(NvProxy)]
    #[nvproxy(crate = "crate::fixture", name = "GATE_PARAMS", driver = "200")]
    #[repr(C)]
    #[allow(dead_code)]
    struct Local {
        base: u64,
        count: u32,
        mode: u8,
        _pad: [u8; 3],
    }
    assert_eq!(Local::LAYOUT.name, "GATE_PARAMS");
}
