//! One `no_std` file that needs no crate.

use std::fmt::Write as _;

use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::RecordKind;
use nvabi_pipeline::plan::Def;
use nvabi_pipeline::plan::members::{Layout, Member};
use nvabi_pipeline::plan::types::Element;

use super::{File, Module, Shape, Type, banner, describe};

pub(super) fn files(module: &Module<'_>) -> Vec<File> {
    let mut text = banner(module, "//");
    text.push_str(PRELUDE);
    for ty in module.types() {
        definition(&mut text, module, &ty);
    }
    constants(&mut text, module);
    tables(&mut text, module);
    vec![File { name: format!("{}.rs", module.package), text }]
}

const PRELUDE: &str = "\
#![allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]

/// The name of an object.
pub type Handle = u32;
/// An address of any process.
pub type P64 = u64;

/// A range of bits, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitRange {
    /// The highest bit.
    pub high: i64,
    /// The lowest bit.
    pub low: i64,
}
";

fn definition(text: &mut String, module: &Module<'_>, ty: &Type<'_>) {
    let name = ident(ty.name);
    let _ = writeln!(text, "\n/// {}", describe(ty));
    match &ty.shape {
        Shape::Record(layout) => record(text, module, ty, layout),
        Shape::Enum(size, _) => {
            let _ = writeln!(text, "pub type {name} = u{};", size * 8);
        }
        Shape::Alias(element, dimensions) => {
            let canonical = match &*ty.def.fact {
                Fact::Alias { ty, .. } => ty.as_str(),
                _ => "",
            };
            let element = element_type(module, ty.def, element, canonical);
            let _ = writeln!(text, "pub type {name} = {};", array(element, dimensions));
        }
    }
}

fn record(text: &mut String, module: &Module<'_>, ty: &Type<'_>, layout: &Layout<'_>) {
    let name = ident(ty.name);
    let Layout { kind, size, align, natural, packed, members } = layout;
    let repr = match (packed, align > natural) {
        (true, _) => format!("C, packed({align})"),
        (false, true) => format!("C, align({align})"),
        (false, false) => "C".to_owned(),
    };
    let _ = writeln!(text, "#[repr({repr})]\n#[derive(Clone, Copy)]");
    let _ = writeln!(text, "pub {} {name} {{", kind.keyword());
    let mut checks = String::new();
    let mut bits = String::new();
    for member in members {
        let (field, ty, offset) = match member {
            Member::Padding { name, size, .. } => (name, format!("[u8; {size}]"), None),
            Member::Bits { name, offset, size, int, fields } => {
                bits.extend(fields.iter().map(|field| bit_range(field, *offset)));
                let ty = match int {
                    true => format!("u{}", size * 8),
                    false => format!("[u8; {size}]"),
                };
                (name, ty, Some(offset))
            }
            Member::Field { name, field, bytes: true, .. } => {
                (name, format!("[u8; {}]", field.size), Some(&field.offset))
            }
            Member::Field { name, field, element, dimensions, .. } => {
                let element = element_type(module, ty.def, element, &field.canonical);
                (name, array(element, dimensions), Some(&field.offset))
            }
        };
        let field = ident(field);
        let _ = writeln!(text, "    pub {field}: {ty},");
        if let Some(offset) = offset {
            let _ = writeln!(
                checks,
                "    assert!(::core::mem::offset_of!({name}, {field}) == {offset});"
            );
        }
    }
    text.push_str("}\n");
    if !bits.is_empty() && *kind == RecordKind::Struct {
        let _ = writeln!(text, "impl {name} {{\n{bits}}}");
    }
    let _ = writeln!(
        text,
        "const _: () = {{\n    assert!(::core::mem::size_of::<{name}>() == {size});\n    \
         assert!(::core::mem::align_of::<{name}>() == {align});\n{checks}}};"
    );
}

/// A bit-field as a range of the member that holds it.
fn bit_range(field: &nvabi_pipeline::model::Field, offset: u64) -> String {
    let Some(bits) = field.bits.filter(|_| !field.name.is_empty()) else { return String::new() };
    let low = (field.offset - offset) * 8 + bits.bit_offset;
    let high = low + bits.bit_width - 1;
    format!(
        "    pub const {}: BitRange = BitRange {{ high: {high}, low: {low} }};\n",
        ident(&field.name)
    )
}

fn element_type(module: &Module<'_>, def: &Def, element: &Element, canonical: &str) -> String {
    if let Some(name) = module.record_of(def, element, canonical) {
        return ident(name);
    }
    match element {
        Element::Int { size, signed: true } => format!("i{}", size * 8),
        Element::Int { size, .. } | Element::Enum { size } => format!("u{}", size * 8),
        Element::Char => "u8".to_owned(),
        Element::Float { size } => format!("f{}", size * 8),
        Element::Handle => "Handle".to_owned(),
        Element::P64 => "P64".to_owned(),
        Element::Uuid => "[u8; 16]".to_owned(),
        Element::Bytes(size) => format!("[u8; {size}]"),
        Element::Record(_) => "u8".to_owned(),
    }
}

fn array(element: String, dimensions: &[u64]) -> String {
    dimensions.iter().rev().fold(element, |inner, count| format!("[{inner}; {count}]"))
}

fn constants(text: &mut String, module: &Module<'_>) {
    text.push('\n');
    for (name, constant) in &module.constants {
        let name = ident(name);
        let _ = match &constant.fact {
            Fact::Constant(value) => {
                let (ty, value) = (integer(*value), nvabi_pipeline::model::hex(*value));
                writeln!(text, "pub const {name}: {ty} = {value};")
            }
            Fact::BitRange(high, low) => {
                writeln!(
                    text,
                    "pub const {name}: BitRange = BitRange {{ high: {high}, low: {low} }};"
                )
            }
            _ => continue,
        };
    }
}

/// `u32` where it fits, else what does.
fn integer(value: i128) -> &'static str {
    if u32::try_from(value).is_ok() {
        "u32"
    } else if i32::try_from(value).is_ok() {
        "i32"
    } else if u64::try_from(value).is_ok() {
        "u64"
    } else {
        "i64"
    }
}

fn tables(text: &mut String, module: &Module<'_>) {
    text.push_str(TABLES);
    text.push_str("\n/// The tags of this file in order.\npub const VERSIONS: &[&str] = &[\n");
    for (tag, _) in &module.tags {
        let _ = writeln!(text, "    \"{tag}\",");
    }
    text.push_str("];\n\n/// The types whose layout depends on the version.\npub const LAYOUTS: &[Layout] = &[\n");
    for (name, rows) in module.by_version() {
        for (ty, (first, last)) in rows {
            let _ = writeln!(
                text,
                "    Layout {{ name: \"{name}\", ty: \"{ty}\", size: ::core::mem::size_of::<{}>(), \
                 first: {first}, last: {last} }},",
                ident(ty)
            );
        }
    }
    text.push_str(
        "];\n\n/// The constants that not every version has with one value.\npub const CONSTANTS: &[Constant] = &[\n",
    );
    for (name, rows) in module.constants_by_version() {
        for (fact, (first, last)) in rows {
            let value = match fact {
                Fact::BitRange(high, low) => format!("Value::Bits({high}, {low})"),
                Fact::Constant(value) => format!("Value::Number({value})"),
                _ => continue,
            };
            let _ = writeln!(
                text,
                "    Constant {{ name: \"{name}\", value: {value}, first: {first}, last: {last} }},"
            );
        }
    }
    text.push_str("];\n\n/// Every call.\npub const CALLS: &[Call] = &[\n");
    for call in module.calls() {
        let roles: String = call
            .roles
            .iter()
            .map(|role| {
                format!(
                    "\n        Role {{ kind: \"{}\", path: \"{}\", offset: {}, size: {}, arrays: &{:?}, \
                     direction: \"{}\", length: \"{}\", unit: {}, means: \"{}\" }},",
                    role.kind.word(),
                    role.path,
                    role.place.offset,
                    role.place.size,
                    role.place.arrays,
                    role.detail.direction,
                    role.detail.length,
                    role.detail.unit,
                    role.detail.means
                )
            })
            .collect();
        for (first, last) in &call.spans {
            let _ = writeln!(
                text,
                "    Call {{ kind: \"{}\", name: \"{}\", number: {:#x}, request: {:?}, params: {:?}, \
                 size: {}, first: {first}, last: {last}, roles: &[{roles}], roles_known: {}, node: {:?}, access: {:?} }},",
                call.kind,
                call.name,
                call.number,
                call.request,
                call.params,
                call.size,
                call.roles_known,
                call.node,
                call.access.map(ToString::to_string)
            );
        }
    }
    text.push_str("];\n");
}

const TABLES: &str = "
/// The name here of a type, at the tags from `VERSIONS[first]` to `VERSIONS[last]`.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The driver's name.
    pub name: &'static str,
    /// The name here.
    pub ty: &'static str,
    /// Bytes.
    pub size: usize,
    /// Index of the first tag.
    pub first: usize,
    /// Index of the last tag.
    pub last: usize,
}

/// A constant at the tags from `VERSIONS[first]` to `VERSIONS[last]`.
#[derive(Debug, Clone, Copy)]
pub struct Constant {
    /// The driver's name.
    pub name: &'static str,
    /// What it is there.
    pub value: Value,
    /// Index of the first tag.
    pub first: usize,
    /// Index of the last tag.
    pub last: usize,
}

/// What a constant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i128),
    /// A bit range: its highest and its lowest bit.
    Bits(i64, i64),
}

/// A call and what it takes, at the tags from `VERSIONS[first]` to `VERSIONS[last]`.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// `frontend`, `uvm`, `control`, `class` or `ioctl`.
    pub kind: &'static str,
    /// The driver's name.
    pub name: &'static str,
    /// The number of the ioctl, command or class.
    pub number: u64,
    /// Of an ioctl of a fixed size: what is passed to `ioctl`.
    pub request: Option<u64>,
    /// The type of the parameters.
    pub params: Option<&'static str>,
    /// Bytes of the parameters.
    pub size: usize,
    /// Index of the first tag.
    pub first: usize,
    /// Index of the last tag.
    pub last: usize,
    /// Its file descriptors, pointers and handles.
    pub roles: &'static [Role],
    /// Whether these are all; without, there may be others.
    pub roles_known: bool,
    /// What it is made on, where nodes have requests of one number.
    pub node: Option<&'static str>,
    /// Whom the driver lets make it (`user`, `root`, ...), where its tables tell.
    pub access: Option<&'static str>,
}

/// A field of a call's parameters that is more than a number.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// `fd`, `pointer` or `handle`.
    pub kind: &'static str,
    /// The field.
    pub path: &'static str,
    /// Bytes from the start of the parameters.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// Stride and count of each array, the outermost first.
    pub arrays: &'static [(usize, usize)],
    /// Of a pointer: `in`, `out` or `inout`.
    pub direction: &'static str,
    /// Of a pointer: how many elements it leads to, as numbers and fields joined by `*` and `+`.
    pub length: &'static str,
    /// Of a pointer with a length: bytes of an element.
    pub unit: usize,
    /// Of a handle: what it names.
    pub means: &'static str,
}
";

/// A name as an identifier: keywords become raw ones.
fn ident(name: &str) -> String {
    nvabi_pipeline::emit::ident(name)
}
