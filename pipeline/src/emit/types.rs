//! C types to Rust types.

use crate::plan::types::Element;

/// The Rust type; `record` gives the path of one.
pub(super) fn rust(element: &Element, record: impl Fn(&str) -> String) -> String {
    let name = match element {
        Element::Int { size: 1, signed: false } | Element::Char | Element::Enum { size: 1 } => "u8",
        Element::Int { size: 2, signed: false } | Element::Enum { size: 2 } => "u16",
        Element::Int { size: 8, signed: false } | Element::Enum { size: 8 } => "u64",
        Element::Int { size: 16, signed: false } => "u128",
        Element::Int { size: 1, .. } => "i8",
        Element::Int { size: 2, .. } => "i16",
        Element::Int { size: 4, signed: true } => "i32",
        Element::Int { size: 8, .. } => "i64",
        Element::Int { size: 16, .. } => "i128",
        Element::Int { .. } | Element::Enum { .. } => "u32",
        Element::Float { size: 4 } => "f32",
        Element::Float { .. } => "f64",
        Element::Handle => "nvabi::Handle",
        Element::P64 => "nvabi::P64",
        Element::Uuid => "nvabi::Uuid",
        Element::Record(name) => return record(name),
        Element::Bytes(size) => return format!("[u8; {size}]"),
    };
    name.to_owned()
}

/// Its description for the derive, as source; `record` gives the path of a record's type.
pub(super) fn check(element: &Element, record: impl Fn(&str) -> String) -> String {
    match element {
        Element::Int { size, signed } => format!("T::Int {{ size: {size}, signed: {signed} }}"),
        Element::Char => "T::Char".into(),
        Element::Float { size } => format!("T::Float {{ size: {size} }}"),
        Element::Enum { size: 4 } => "T::Enum".into(),
        Element::Enum { size } => format!("T::Int {{ size: {size}, signed: false }}"),
        Element::Handle => "T::Handle".into(),
        Element::P64 => "T::P64".into(),
        Element::Uuid => "T::Uuid".into(),
        Element::Record(name) => format!("T::Record({}::LAYOUT)", record(name)),
        Element::Bytes(size) => format!("T::Array(&T::Int {{ size: 1, signed: false }}, {size})"),
    }
}

/// The Rust type of an array, the outermost dimension first.
pub(super) fn array(element: String, dimensions: &[u64]) -> String {
    dimensions.iter().rev().fold(element, |inner, count| format!("[{inner}; {count}]"))
}

/// The description of an array, the outermost dimension first.
pub(super) fn check_array(element: String, dimensions: &[u64]) -> String {
    (dimensions.iter().rev()).fold(element, |inner, count| format!("T::Array(&{inner}, {count})"))
}
