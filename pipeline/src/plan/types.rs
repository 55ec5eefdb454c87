//! What the C types of fields are, for every language alike.

use crate::model::split_array;

/// What a field's innermost element is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// An integer of so many bytes.
    Int {
        /// Bytes.
        size: u64,
        /// Whether it is signed.
        signed: bool,
    },
    /// `char`: one byte whose sign is the machine's affair.
    Char,
    /// A floating-point number of so many bytes.
    Float {
        /// Bytes.
        size: u64,
    },
    /// An enum, as its unsigned integer.
    Enum {
        /// Bytes.
        size: u64,
    },
    /// `NvHandle`.
    Handle,
    /// `NvP64` and every other pointer.
    P64,
    /// `NvProcessorUuid`.
    Uuid,
    /// A record, by name.
    Record(String),
    /// Something without a Rust type: its bytes.
    Bytes(u64),
}

/// The driver's names of the types that nvabi has its own types for.
/// An object's name.
pub const HANDLE: &str = "NvHandle";
/// An address.
pub const P64: &str = "NvP64";

/// Whether a record is the driver's UUID. It is declared as NvUuid, and NvProcessorUuid is another
/// name of that.
pub fn is_uuid(record: &str) -> bool {
    matches!(record, "NvUuid" | "NvProcessorUuid")
}

/// What a name stands for besides being a record.
pub enum Named {
    /// A struct or union.
    Record,
    /// An enum of so many bytes.
    Enum(u64),
    /// Anything else.
    Other,
}

/// The element of a type and the array dimensions around it, outermost first.
pub fn element(
    declared: &str,
    canonical: &str,
    size: u64,
    named: impl Fn(&str) -> Named,
) -> (Element, Vec<u64>) {
    let (base, dimensions) = split_array(canonical);
    let count: u64 = dimensions.iter().product();
    let each = size.checked_div(count).unwrap_or(0);
    let written = split_array(declared).0;
    let written = written.trim_start_matches("const ").trim_start_matches("volatile ");
    let element = match (written, base) {
        (HANDLE, _) => Element::Handle,
        (P64, _) => Element::P64,
        (_, base) if is_uuid(base) => Element::Uuid,
        (_, base) if base.contains('*') => Element::P64,
        _ => scalar(base, each).unwrap_or_else(|| match named(base) {
            Named::Record => Element::Record(base.to_owned()),
            Named::Enum(size) => Element::Enum { size },
            Named::Other => Element::Bytes(each),
        }),
    };
    (element, dimensions)
}

/// The C types that do not name anything; `long` has the size that was measured, where there is one.
fn scalar(base: &str, each: u64) -> Option<Element> {
    let int = |size, signed| Some(Element::Int { size, signed });
    let long = if each == 0 { 8 } else { each };
    match base {
        "char" => Some(Element::Char),
        "unsigned char" | "_Bool" => int(1, false),
        "signed char" => int(1, true),
        "short" => int(2, true),
        "unsigned short" => int(2, false),
        "int" => int(4, true),
        "unsigned int" => int(4, false),
        "long" => int(long, true),
        "unsigned long" => int(long, false),
        "long long" => int(8, true),
        "unsigned long long" => int(8, false),
        "__int128" => int(16, true),
        "unsigned __int128" => int(16, false),
        "float" => Some(Element::Float { size: 4 }),
        "double" => Some(Element::Float { size: 8 }),
        _ => None,
    }
}

impl Element {
    /// Natural alignment of the Rust type; that of a record comes from its layout.
    pub fn align(&self, record: impl Fn(&str) -> u64) -> u64 {
        match self {
            Self::Int { size, .. } | Self::Float { size } | Self::Enum { size } => *size,
            Self::Handle => 4,
            Self::P64 => 8,
            Self::Char | Self::Uuid | Self::Bytes(_) => 1,
            Self::Record(name) => record(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(declared: &str, canonical: &str, size: u64) -> (Element, Vec<u64>) {
        element(declared, canonical, size, |_| Named::Other)
    }

    #[test]
    fn own_types_are_recognised_by_their_typedef() {
        assert_eq!(of("NvHandle[4]", "unsigned int[4]", 16), (Element::Handle, vec![4]));
        assert_eq!(of("NvP64", "void *", 8).0, Element::P64);
        assert_eq!(of("NvProcessorUuid", "NvUuid", 16).0, Element::Uuid);
        assert_eq!(of("NvUuid[32]", "NvUuid[32]", 512), (Element::Uuid, vec![32]));
        assert_eq!(of("NvU32", "unsigned int", 4).0, Element::Int { size: 4, signed: false });
        assert_eq!(
            of("volatile NvV32", "unsigned int", 4).0,
            Element::Int { size: 4, signed: false }
        );
    }

    #[test]
    fn every_pointer_is_an_address() {
        assert_eq!(of("char *", "char *", 8).0, Element::P64);
        assert_eq!(of("void (*)(int)", "void (*)(int)", 8).0, Element::P64);
    }

    #[test]
    fn long_has_the_measured_size() {
        let signed = false;
        assert_eq!(of("x", "unsigned long", 8).0, Element::Int { size: 8, signed });
        assert_eq!(of("x", "unsigned long[2]", 8).0, Element::Int { size: 4, signed });
    }
}
