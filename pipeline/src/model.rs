//! The facts of one driver version: plain data, no I/O, no knowledge of clang or Rust tokens.
//!
//! Sizes and offsets are bytes; only names that start with `bit_` count bits.
//! Everything is ordered by name, so that the same facts always print as the same bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "serde")]
use serde::{Serialize, Serializer};

use crate::tag::Tag;

/// Everything the headers of one tag say.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Facts {
    /// The driver version.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub tag: Tag,
    /// By surface name: `rm`, `uvm`, `modeset`, `drm`.
    pub surfaces: BTreeMap<String, Surface>,
}

impl Facts {
    /// Every name of a type, an enumerator, a constant or a bit range; some several times.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.surfaces.values().flat_map(Surface::names)
    }
}

impl Surface {
    /// As [`Facts::names`], of one surface.
    fn names(&self) -> impl Iterator<Item = &str> {
        let types = self.records.keys().chain(self.aliases.keys()).chain(self.enums.keys());
        let enumerators = self.enums.values().flat_map(|e| e.variants.keys());
        let values = self.constants.keys().chain(self.bit_ranges.keys());
        types.chain(enumerators).chain(values).map(String::as_str)
    }
}

/// The surface of what calls take, made beside those of the headers.
pub const CALLS: &str = "calls";

/// The facts of one translation unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Surface {
    /// Structs and unions.
    pub records: BTreeMap<String, Record>,
    /// Typedefs that do not name a record or enum themselves.
    pub aliases: BTreeMap<String, Alias>,
    /// Named enums.
    pub enums: BTreeMap<String, Enum>,
    /// Macros that are integer constant expressions, and enumerators of unnamed enums.
    pub constants: BTreeMap<String, Constant>,
    /// Macros that are bit ranges `high:low`.
    pub bit_ranges: BTreeMap<String, BitRange>,
    /// What the driver's own tables say of calls, by the name of the call's number. They stand in
    /// a surface of their own, `calls`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub calls: BTreeMap<String, Call>,
}

/// A header and a line, such as `src/common/sdk/nvidia/inc/nvos.h:2081`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The header's path in the driver's tree.
    pub path: Arc<str>,
    /// Counted from 1.
    pub line: u32,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)
    }
}

#[cfg(feature = "serde")]
impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
fn as_text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Struct or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum RecordKind {
    /// Members follow each other.
    Struct,
    /// Members share their place.
    Union,
}

impl RecordKind {
    /// The C keyword.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Struct => "struct",
            Self::Union => "union",
        }
    }
}

/// The layout of a struct or union.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Record {
    /// Struct or union.
    pub kind: RecordKind,
    /// Bytes, with tail padding.
    pub size: u64,
    /// Bytes.
    pub align: u64,
    /// Where it is defined.
    pub source: Source,
    /// In the order of the declaration; the facts of tags that agree share them.
    pub fields: Arc<[Field]>,
}

impl Record {
    /// Its fields to change: those of other tags that share them stay.
    pub fn fields_mut(&mut self) -> &mut [Field] {
        Arc::make_mut(&mut self.fields)
    }

    /// Whether size, alignment, kind and every field agree; the place in the header may differ.
    pub fn same_layout(&self, other: &Self) -> bool {
        (self.kind, self.size, self.align) == (other.kind, other.size, other.align)
            && self.fields == other.fields
    }
}

/// A member of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Field {
    /// Empty for an unnamed member.
    pub name: String,
    /// As declared, without the keyword of a tag: `NvU32[4]`.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub ty: String,
    /// Typedefs resolved, `const` and `volatile` dropped: `unsigned int[4]`.
    pub canonical: String,
    /// From the start of the record.
    pub offset: u64,
    /// Bytes of the declared type; 0 for a flexible array.
    pub size: u64,
    /// For a bit-field.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub bits: Option<Bits>,
}

/// Where a bit-field lies: `offset` of the field is that of the byte it starts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Bits {
    /// From the field's byte `offset`, below 8.
    pub bit_offset: u64,
    /// Width; 0 for the unnamed member that ends a unit.
    pub bit_width: u64,
}

/// A typedef.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Alias {
    /// What it stands for, typedefs resolved.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub ty: String,
    /// Bytes; 0 when the type is incomplete.
    pub size: u64,
    /// Where it is declared.
    pub source: Source,
}

/// A named enum.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Enum {
    /// Bytes.
    pub size: u64,
    /// Where it is defined.
    pub source: Source,
    /// By name.
    pub variants: BTreeMap<String, i128>,
}

/// An integer constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// The value; every C integer fits.
    pub value: i128,
    /// Where the macro is defined.
    pub source: Source,
}

#[cfg(feature = "serde")]
impl Serialize for Constant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i128(self.value)
    }
}

/// A range of bits, as the driver's registers and methods are described.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct BitRange {
    /// The highest bit, included.
    pub high: i64,
    /// The lowest bit.
    pub low: i64,
    /// Where the macro is defined.
    pub source: Source,
}

/// A command or class and what it takes, by the driver's own word.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Call {
    /// What it takes.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub takes: CallParams,
    /// Where its number is defined.
    pub source: Source,
}

/// What a call takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct CallParams {
    /// Command or class.
    pub kind: CallKind,
    /// The type of the parameters; `None` when it takes none or none is known.
    pub params: Option<String>,
    /// Whether the parameters may be left out.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub optional: bool,
    /// How that is known, or why it is not.
    pub how: ParamSource,
    /// Whether a second source says the same.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub checked: bool,
    /// What a second source says otherwise: a type, or `none`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub differs: Option<String>,
    /// The call that this is another name of.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub same_as: Option<String>,
    /// Whom the driver lets make it, where its tables say so.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub access: Option<Access>,
    /// The pointers of a command that the driver follows before anything looks at its parameters.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub pointers: Vec<Embedded>,
}

/// Whom the driver lets make a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Access {
    /// The least privileged caller.
    pub caller: Caller,
    /// The access rights to the object that the caller's client must have as well: `NICE`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub rights: Vec<String>,
    /// Whether the driver refuses it unless its code for tests was switched on when it was loaded.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "std::ops::Not::not"))]
    pub test_only: bool,
}

/// A pointer in a command's parameters, as the driver's list of them has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Embedded {
    /// Path of the field.
    pub field: String,
    /// How many: a number, or fields joined by `*`; `?` where the list has code for it.
    pub count: String,
    /// What of: a type, or so many bytes; `?` where the list has code for it.
    pub unit: String,
    /// `in`, `out` or `inout`.
    pub direction: String,
}

impl Access {
    /// Whether everybody whom this one lets call may call by the other as well. Who is more than a program has every
    /// right.
    pub fn within(&self, other: &Self) -> bool {
        let has = |right: &String| self.caller > Caller::User || self.rights.contains(right);
        let is_on = self.test_only || !other.test_only || self.caller == Caller::Nobody;
        self.caller >= other.caller && other.rights.iter().all(has) && is_on
    }

    /// The callers in words.
    pub fn callers(&self) -> String {
        let callers = match self.caller {
            Caller::User if self.rights == ["NICE"] => {
                "programs with CAP_SYS_NICE or CAP_SYS_ADMIN"
            }
            Caller::User => "every program",
            Caller::Root => "root (CAP_SYS_ADMIN)",
            Caller::Kernel => "other kernel drivers",
            Caller::Internal => "the driver itself",
            Caller::Nobody => return "nobody".to_owned(),
        };
        let mut words = callers.to_owned();
        match &self.rights[..] {
            [] => {}
            [only] if only == "NICE" && self.caller == Caller::User => words += " (RS_ACCESS_NICE)",
            rights => words += &format!(" with RS_ACCESS_{}", rights.join(", RS_ACCESS_")),
        }
        if self.test_only {
            words += ", where the driver was loaded with EnableRmTestOnlyCode=1";
        }
        words
    }
}

/// `caller+RIGHT+test`, as the lock has it.
impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.caller)?;
        self.rights.iter().try_for_each(|right| write!(f, "+{right}"))?;
        f.write_str(if self.test_only { "+test" } else { "" })
    }
}

impl CallParams {
    /// One of which nothing else is known.
    pub fn new(kind: CallKind, how: ParamSource, params: Option<String>) -> Self {
        Self {
            kind,
            params,
            optional: false,
            how,
            checked: false,
            differs: None,
            same_as: None,
            access: None,
            pointers: Vec::new(),
        }
    }

    /// Whether it is known what the call takes.
    pub fn is_mapped(&self) -> bool {
        self.how.is_known()
    }
}

/// Words of an enum, as the lock and JSON have them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(Serialize))]
        pub enum $name {
            $($(#[$variant_doc])* #[cfg_attr(feature = "serde", serde(rename = $word))] $variant,)*
        }

        impl $name {
            /// Its word in the lock.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The one with a word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// What kind of call it is.
    CallKind {
        /// A control command.
        Command = "command",
        /// A class, by allocating an object of it.
        Class = "class",
    }
}

words! {
    /// Who may make a call, from the many to the few.
    Caller {
        /// Every program.
        User = "user",
        /// A program with administrator's rights.
        Root = "root",
        /// Other kernel drivers.
        Kernel = "kernel",
        /// The driver itself.
        Internal = "internal",
        /// Nobody: a header names it, and no table of the driver has it.
        Nobody = "nobody",
    }
}

words! {
    /// How a call's parameters are known, or why they are not.
    ParamSource {
        /// The header names the struct of whose message id the number was made.
        Finn = "finn",
        /// The driver's table of exported methods.
        Table = "table",
        /// A type has the command's name.
        Name = "name",
        /// The driver returns before it looks at any parameters.
        Null = "null",
        /// The driver's resource list.
        List = "list",
        /// Unknown: no source has it.
        NoEvidence = "no-evidence",
        /// Unknown: the type is in no header.
        NoType = "no-type",
        /// Unknown: the number is no constant of the headers.
        NoConstant = "no-constant",
        /// No class of this driver: its resource list lacks it.
        NoResource = "no-resource",
    }
}

impl ParamSource {
    /// Whether it is known what the call takes.
    pub fn is_known(self) -> bool {
        match self {
            Self::Finn | Self::Table | Self::Name | Self::Null | Self::List => true,
            Self::NoEvidence | Self::NoType | Self::NoConstant | Self::NoResource => false,
        }
    }
}

/// The number that a text is, as a log has it: `0x2a`, or decimal.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// An integer as the driver's headers mostly write it: small and negative ones in decimal.
pub fn hex(value: i128) -> String {
    match value {
        10.. => format!("{value:#x}"),
        _ => value.to_string(),
    }
}

/// What the two upper bits of an ioctl's request say, from the caller's side.
pub const DIRECTIONS: [&str; 4] = ["none", "write", "read", "readwrite"];

/// How many bytes of parameters an ioctl's request names, as Linux packs it.
pub fn request_size(request: u64) -> u64 {
    request >> 16 & 0x3fff
}

/// What the types of C and Linux are and how long: those that a request has instead of a record.
pub fn builtin(name: &str) -> Option<(&'static str, u64)> {
    Some(match name {
        "int" | "__s32" => ("int", 4),
        "unsigned int" | "__u32" => ("unsigned int", 4),
        "long" => ("long", 8),
        "unsigned long" => ("unsigned long", 8),
        "__s64" => ("long long", 8),
        "__u64" => ("unsigned long long", 8),
        _ => return None,
    })
}

/// A canonical type without its array dimensions, and the dimensions in C order.
///
/// `T[2][3]` gives `("T", [2, 3])`; a flexible `T[]` gives the dimension 0. A pointer to an array,
/// `T[4] *`, has no dimensions.
pub fn split_array(canonical: &str) -> (&str, Vec<u64>) {
    let (mut base, mut counts) = (canonical, Vec::new());
    while let Some((before, count)) = base.strip_suffix(']').and_then(|open| open.rsplit_once('['))
    {
        base = before;
        counts.push(count.parse().unwrap_or(0));
    }
    counts.reverse();
    (base, counts)
}

/// Names of the records that `record` holds by value.
pub fn nested<'a>(record: &'a Record) -> impl Iterator<Item = &'a str> + 'a {
    record.fields.iter().map(|field| split_array(&field.canonical).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_arrays() {
        assert_eq!(split_array("unsigned int"), ("unsigned int", vec![]));
        assert_eq!(split_array("T[2][3]"), ("T", vec![2, 3]));
        assert_eq!(split_array("unsigned char[]"), ("unsigned char", vec![0]));
        assert_eq!(split_array("unsigned int[4] *"), ("unsigned int[4] *", vec![]));
        assert_eq!(split_array("unsigned int[4] *[2]"), ("unsigned int[4] *", vec![2]));
        assert_eq!(split_array("]"), ("]", vec![]));
    }
}
