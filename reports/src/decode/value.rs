//! The bytes of one struct, as names and values.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::narrow;
use nvabi_pipeline::lock::{Fact, Lock};
use nvabi_pipeline::model::{
    Bits, Facts, Field, Record, RecordKind, Surface, builtin, hex, split_array,
};
use nvabi_pipeline::tag::Tag;

/// Width of a member and its value before the column of offsets.
const COLUMN: usize = 64;
/// Records in records: the driver's are a handful deep.
const DEPTH: usize = 64;

/// A struct with what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decoded {
    /// The name that the driver has for it.
    pub name: String,
    /// The driver's version.
    pub tag: String,
    /// Where it is defined.
    pub source: String,
    /// Bytes.
    pub size: u64,
    /// Whether it is laid out as in a 32-bit program.
    #[serde(rename = "32-bit", skip_serializing_if = "std::ops::Not::not")]
    pub is_narrow: bool,
    /// What is in it.
    #[serde(flatten)]
    pub inner: Inner,
}

/// What is in a struct or union.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inner {
    /// `struct` or `union`; of a union each member shows the same bytes.
    pub kind: RecordKind,
    /// In the order of the declaration.
    pub fields: Vec<Member>,
    /// Bytes that belong to no member and are not zero.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub padding: Vec<Padding>,
}

/// A member with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Empty for an unnamed one.
    pub name: String,
    /// As declared.
    #[serde(rename = "type")]
    pub ty: String,
    /// From the start of the outermost struct.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// For a bit-field.
    #[serde(flatten)]
    pub bits: Option<Bits>,
    /// What it holds.
    pub value: Value,
}

/// What a member holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// An integer or an address.
    Number(i128),
    /// A value of an enum.
    Named {
        /// The number.
        value: i128,
        /// The enumerator.
        name: String,
    },
    /// Characters up to the first zero.
    Text(String),
    /// Another struct or union.
    Record(Inner),
    /// The elements of an array.
    List(Vec<Value>),
    /// What is none of these, in hexadecimal.
    Bytes(String),
}

/// Bytes that should be zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Padding {
    /// From the start of the outermost struct.
    pub offset: u64,
    /// In hexadecimal.
    pub bytes: String,
}

/// The record of a name, or of what the name is a typedef of, and the surface that has it.
pub fn record<'f>(facts: &'f Facts, name: &str) -> Option<(&'f Surface, &'f str, &'f Record)> {
    facts.surfaces.values().find_map(|surface| {
        let name = surface.aliases.get(name).map_or(name, |alias| alias.ty.as_str());
        surface.records.get_key_value(name).map(|(name, record)| (surface, name.as_str(), record))
    })
}

/// Bytes as a struct; nothing if the tag has no struct of that name. What the bytes lack is zero, so
/// the caller compares sizes first.
pub fn decode(facts: &Facts, name: &str, bytes: &[u8]) -> Option<Decoded> {
    let (surface, name, record) = record(facts, name)?;
    Some(decoded(facts, surface, (name, record), bytes, false))
}

/// The size of a struct in a 32-bit program, where it is another.
pub fn narrow_size(facts: &Facts, name: &str) -> Option<u64> {
    let (surface, name, _) = record(facts, name)?;
    narrow::size(surface, name)
}

/// Bytes of a 32-bit program as a struct; nothing if the struct has no other form there.
pub fn decode_narrow(facts: &Facts, name: &str, bytes: &[u8]) -> Option<Decoded> {
    let (surface, name, _) = record(facts, name)?;
    let mut surface = surface.clone();
    surface.records.extend(narrow::records(&surface, name)?);
    let record = surface.records.get(name)?;
    Some(decoded(facts, &surface, (name, record), bytes, true))
}

fn decoded(
    facts: &Facts,
    surface: &Surface,
    (name, record): (&str, &Record),
    bytes: &[u8],
    is_narrow: bool,
) -> Decoded {
    let reader = Reader { surface, bytes };
    Decoded {
        name: name.to_owned(),
        tag: facts.tag.to_string(),
        source: record.source.to_string(),
        size: record.size,
        is_narrow,
        inner: reader.inner(record, 0, 0),
    }
}

/// From one tag to another, in words.
pub fn span(first: &Tag, last: &Tag) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    }
}

/// The sizes of a record, each with the first and the last tag of a run of tags that have it.
pub fn sizes(lock: &Lock, name: &str) -> Vec<(u64, Tag, Tag)> {
    let own = |((kind, known), history): (&(_, String), _)| {
        (*kind == nvabi_pipeline::lock::ItemKind::Record && known == name).then_some(history)
    };
    let histories: Vec<&Vec<_>> =
        lock.headers.values().flat_map(|header| header.items.iter().filter_map(own)).collect();
    let mut runs: Vec<(u64, Tag, Tag)> = Vec::new();
    for (at, locked) in lock.tags.iter().enumerate() {
        let states =
            histories.iter().filter_map(|history| nvabi_pipeline::lock::state_at(history, at));
        let mut sizes = states.filter_map(|placed| match &*placed.fact {
            Fact::Record { size, .. } => Some(*size),
            _ => None,
        });
        let Some(size) = sizes.next() else { continue };
        match runs.last_mut() {
            Some((known, _, last)) if *known == size => *last = locked.tag.clone(),
            _ => runs.push((size, locked.tag.clone(), locked.tag.clone())),
        }
    }
    runs
}

/// Bytes written in hexadecimal: with spaces, commas, `0x` and `\x` or without.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let apart = |c: char| c.is_ascii_whitespace() || c == ',' || c == ':' || c == '"';
    for word in text.split(apart).flat_map(|word| word.split("\\x")) {
        let digits = word.strip_prefix("0x").unwrap_or(word).as_bytes();
        if digits.len() % 2 != 0 {
            return None;
        }
        for pair in digits.chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        }
    }
    // `+1` is a number to Rust, and no pair of digits.
    let signed = text.contains(['+', '-']);
    (!bytes.is_empty() && !signed).then_some(bytes)
}

struct Reader<'r> {
    surface: &'r Surface,
    bytes: &'r [u8],
}

/// The type of one element.
struct Element<'t> {
    ty: &'t str,
    size: u64,
    record: Option<&'t Record>,
    variants: Option<&'t BTreeMap<String, i128>>,
}

impl Reader<'_> {
    fn inner(&self, record: &Record, base: u64, depth: usize) -> Inner {
        let member = |field: &Field| Member {
            name: field.name.clone(),
            ty: field.ty.clone(),
            offset: base + field.offset,
            size: field.size,
            bits: field.bits,
            value: self.value(field, base, depth),
        };
        let named = record.fields.iter().filter(|field| field.bits.is_none_or(|b| b.bit_width > 0));
        let fields = named.map(member).collect();
        Inner { kind: record.kind, fields, padding: self.padding(record, base) }
    }

    fn value(&self, field: &Field, base: u64, depth: usize) -> Value {
        let at = base + field.offset;
        if let Some(bits) = field.bits {
            return self.bit_field(field, at, bits);
        }
        let (base_type, counts) = split_array(&field.canonical);
        // A flexible array has what is behind the struct, which is not here.
        let count: u64 = counts.iter().product();
        match count {
            0 => Value::List(Vec::new()),
            _ => {
                let element = self.element(base_type, field.size / count.max(1));
                self.array(&element, &counts, at, depth)
            }
        }
    }

    /// What a type is, once for all elements of an array.
    fn element<'t>(&'t self, ty: &'t str, size: u64) -> Element<'t> {
        // Most fields are numbers, which need no search.
        if builtin(ty).is_some() {
            return Element { ty, size, record: None, variants: None };
        }
        let record = self.surface.records.get(ty);
        let variants = self.surface.enums.get(ty).map(|of| &of.variants);
        Element { ty, size, record, variants }
    }

    fn array(&self, of: &Element<'_>, counts: &[u64], at: u64, depth: usize) -> Value {
        let Some((count, rest)) = counts.split_first() else {
            return self.one(of, at, depth);
        };
        if let (true, "char", Some(text)) = (rest.is_empty(), of.ty, self.characters(at, *count)) {
            return Value::Text(text);
        }
        let step = of.size.saturating_mul(rest.iter().product());
        Value::List((0..*count).map(|i| self.array(of, rest, at + i * step, depth)).collect())
    }

    fn one(&self, of: &Element<'_>, at: u64, depth: usize) -> Value {
        if let Some(record) = of.record.filter(|_| depth < DEPTH) {
            return Value::Record(self.inner(record, at, depth + 1));
        }
        let bytes = || Value::Bytes(digits(self.slice(at, of.size)));
        let Some(raw) = self.number(at, of.size) else { return bytes() };
        let value = if is_signed(of.ty) { sign_extended(raw, of.size * 8) } else { raw as i128 };
        match of.variants.into_iter().flatten().find(|(_, known)| **known == value) {
            Some((name, _)) => Value::Named { value, name: name.clone() },
            None if matches!(of.ty, "float" | "double") => bytes(),
            None => Value::Number(value),
        }
    }

    fn bit_field(&self, field: &Field, at: u64, bits: Bits) -> Value {
        // A bit-field of 64 bits may begin anywhere in a byte, so nine bytes may have a share in it.
        let bytes = (bits.bit_offset + bits.bit_width).div_ceil(8);
        let Some(raw) = self.number(at, bytes) else { return Value::Bytes(String::new()) };
        let mask = 1u128.checked_shl(bits.bit_width as u32).map_or(u128::MAX, |bit| bit - 1);
        let value = raw >> bits.bit_offset & mask;
        match is_signed(&field.canonical) {
            true => Value::Number(sign_extended(value, bits.bit_width)),
            false => Value::Number(value as i128),
        }
    }

    /// Little-endian, of at most 16 bytes.
    fn number(&self, at: u64, size: u64) -> Option<u128> {
        let bytes = self.slice(at, size);
        let mut wide = [0; 16];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (bytes.len() as u64 == size && size > 0).then(|| u128::from_le_bytes(wide))
    }

    fn slice(&self, at: u64, size: u64) -> &[u8] {
        let range = usize::try_from(at).ok().zip(usize::try_from(at.saturating_add(size)).ok());
        range.and_then(|(at, end)| self.bytes.get(at..end)).unwrap_or_default()
    }

    /// The text in an array of characters: printable up to a zero, and zeros behind it.
    fn characters(&self, at: u64, count: u64) -> Option<String> {
        let bytes = self.slice(at, count);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (text, rest) = bytes.split_at(end);
        let printable = text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        let clean = rest.iter().all(|byte| *byte == 0);
        (printable && clean).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Runs of bytes that no member has and that are not zero.
    fn padding(&self, record: &Record, base: u64) -> Vec<Padding> {
        let mut used = vec![false; usize::try_from(record.size).unwrap_or(0).min(1 << 24)];
        for field in record.fields.iter() {
            let end = match field.bits {
                Some(bits) => field.offset + (bits.bit_offset + bits.bit_width).div_ceil(8),
                None => field.offset + field.size,
            };
            let range = usize::try_from(field.offset).ok().zip(usize::try_from(end).ok());
            if let Some(part) = range.and_then(|(at, end)| used.get_mut(at..end)) {
                part.fill(true);
            }
        }
        let mut found: Vec<Padding> = Vec::new();
        let mut at = 0;
        for run in used.chunk_by(|a, b| a == b) {
            let bytes = self.slice(base + at, run.len() as u64);
            if !run[0] && bytes.iter().any(|byte| *byte != 0) {
                found.push(Padding { offset: base + at, bytes: digits(bytes) });
            }
            at += run.len() as u64;
        }
        found
    }
}

pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Of the types that C has without typedefs; plain `char` holds bytes in the driver's headers.
fn is_signed(ty: &str) -> bool {
    matches!(ty, "int" | "short" | "long" | "long long" | "signed char")
}

fn sign_extended(value: u128, bits: u64) -> i128 {
    let unused = 128u32.saturating_sub(bits as u32);
    match unused {
        0 | 128 => value as i128,
        _ => (value << unused) as i128 >> unused,
    }
}

/// The struct as C with its values.
pub fn text(decoded: &Decoded) -> String {
    let mut text = String::new();
    let keyword = decoded.inner.kind.keyword();
    let form = if decoded.is_narrow { ", as in a 32-bit program" } else { "" };
    let Decoded { name, tag, source, .. } = decoded;
    let _ = writeln!(text, "{keyword} {name} {{ // {tag}, {source}{form}");
    members(&mut text, &decoded.inner, 1);
    let _ = writeln!(text, "}}; // size {}", decoded.size);
    text
}

fn members(text: &mut String, inner: &Inner, depth: usize) {
    let indent = "    ".repeat(depth);
    for member in &inner.fields {
        let (base, dimensions) = match member.ty.find('[') {
            Some(at) if !member.ty.contains('(') => member.ty.split_at(at),
            _ => (member.ty.as_str(), ""),
        };
        let mut declared = format!("{base} {}{dimensions}", member.name).trim_end().to_owned();
        let mut place = member.offset.to_string();
        if let Some(bits) = member.bits {
            let _ = write!(declared, " : {}", bits.bit_width);
            let _ = write!(place, ".{}", bits.bit_offset);
        }
        let place = format!("// {place:>6} {:>6}", member.size);
        value(text, &indent, &declared, &place, &member.value, depth);
    }
    for padding in &inner.padding {
        let _ = writeln!(
            text,
            "{indent}// padding at {} is not zero: {}",
            padding.offset, padding.bytes
        );
    }
}

fn value(
    text: &mut String,
    indent: &str,
    declared: &str,
    place: &str,
    value: &Value,
    depth: usize,
) {
    let line = |shown: &str| {
        let line = format!("{indent}{declared} = {shown};");
        format!("{line:COLUMN$} {place}\n")
    };
    match value {
        Value::Record(inner) => {
            let keyword = inner.kind.keyword();
            let open = format!("{indent}{declared} = {keyword} {{");
            let _ = writeln!(text, "{open:COLUMN$} {place}");
            members(text, inner, depth + 1);
            let _ = writeln!(text, "{indent}}};");
        }
        Value::List(items)
            if items.iter().any(|item| matches!(item, Value::Record(_) | Value::List(_))) =>
        {
            for (index, item) in items.iter().enumerate() {
                self::value(
                    text,
                    indent,
                    &format!("{declared} /* [{index}] */"),
                    place,
                    item,
                    depth,
                );
            }
        }
        other => text.push_str(&line(&shown(other))),
    }
}

/// One value; an array as its elements, with zeros at its end left out.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(value) if (-9..10).contains(value) => value.to_string(),
        Value::Number(value) if *value < 0 => value.to_string(),
        Value::Number(value) => format!("{value} ({})", hex(*value)),
        Value::Named { value, name } => format!("{name} ({})", hex(*value)),
        Value::Text(text) => format!("\"{text}\""),
        Value::Bytes(bytes) => format!("0x{bytes}"),
        Value::List(items) => list(items),
        Value::Record(_) => String::new(),
    }
}

fn list(items: &[Value]) -> String {
    let zero = |item: &Value| *item == Value::Number(0);
    let kept = items.iter().rposition(|item| !zero(item)).map_or(0, |at| at + 1);
    let mut texts: Vec<String> = items[..kept].iter().map(element).collect();
    let zeros = items.len() - kept;
    match zeros {
        0 => {}
        1 => texts.push("0".to_owned()),
        _ => texts.push(format!("{zeros} × 0")),
    }
    format!("{{{}}}", texts.join(", "))
}

fn element(item: &Value) -> String {
    match item {
        Value::Number(value) => hex(*value),
        other => shown(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvabi_pipeline::model::{Enum, Source};
    use std::collections::BTreeMap;

    fn field(name: &str, canonical: &str, offset: u64, size: u64) -> Field {
        let (name, canonical) = (name.to_owned(), canonical.to_owned());
        Field { name, ty: canonical.clone(), canonical, offset, size, bits: None }
    }

    fn bits(name: &str, canonical: &str, offset: u64, bit_offset: u64, bit_width: u64) -> Field {
        let bits = Some(Bits { bit_offset, bit_width });
        Field { bits, ..field(name, canonical, offset, 4) }
    }

    fn record_of(kind: RecordKind, size: u64, fields: Vec<Field>) -> Record {
        Record {
            kind,
            size,
            align: 4,
            source: Source { path: "a.h".into(), line: 1 },
            fields: fields.into(),
        }
    }

    fn facts(records: Vec<(&str, Record)>) -> Facts {
        let records = records.into_iter().map(|(name, record)| (name.to_owned(), record)).collect();
        let mut surface = Surface { records, ..Surface::default() };
        let source = Source { path: "a.h".into(), line: 1 };
        let variants = [("RED".to_owned(), 1), ("BLUE".to_owned(), 2)].into();
        surface.enums.insert("Colour".to_owned(), Enum { size: 4, source, variants });
        let surfaces = BTreeMap::from([("rm".to_owned(), surface)]);
        Facts { tag: "1.1".parse().unwrap(), surfaces }
    }

    #[test]
    fn every_kind_of_member() {
        let inner = record_of(
            RecordKind::Union,
            4,
            vec![field("word", "unsigned int", 0, 4), field("half", "short[2]", 0, 4)],
        );
        let outer = record_of(
            RecordKind::Struct,
            48,
            vec![
                field("flag", "unsigned char", 0, 1),
                field("signed", "int", 4, 4),
                field("either", "Inner", 8, 4),
                bits("low", "unsigned int", 12, 0, 3),
                bits("high", "int", 12, 3, 5),
                field("name", "char[8]", 16, 8),
                field("colour", "Colour", 24, 4),
                field("table", "unsigned int[3]", 28, 12),
                field("pointer", "void *", 40, 8),
            ],
        );
        let facts = facts(vec![("Outer", outer), ("Inner", inner)]);
        let mut bytes = vec![0; 48];
        bytes[0] = 255;
        bytes[2] = 7; // padding
        bytes[4..8].copy_from_slice(&(-2i32).to_le_bytes());
        bytes[8..12].copy_from_slice(&[1, 0, 0xff, 0xff]);
        bytes[12] = 0b1111_1101;
        bytes[16..19].copy_from_slice(b"gpu");
        bytes[24] = 2;
        bytes[28] = 16;
        bytes[40..48].copy_from_slice(&0x7fff_1234_5678_9abcu64.to_le_bytes());
        let text = text(&decode(&facts, "Outer", &bytes).unwrap());
        for line in [
            "struct Outer { // 1.1, a.h:1",
            "unsigned char flag = 255 (0xff); ",
            "int signed = -2; ",
            "Inner either = union { ",
            "        unsigned int word = 4294901761 (0xffff0001); ",
            "        short half[2] = {1, -1}; ",
            "unsigned int low : 3 = 5; ",
            "int high : 5 = -1; ",
            "char name[8] = \"gpu\"; ",
            "Colour colour = BLUE (2); ",
            "unsigned int table[3] = {0x10, 2 × 0}; ",
            "void * pointer = 9223110577876409020 (0x7fff123456789abc); ",
            "// padding at 1 is not zero: 000700",
            "}; // size 48",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn too_few_bytes_do_no_harm() {
        let record = record_of(RecordKind::Struct, 8, vec![field("a", "unsigned int[2]", 0, 8)]);
        let facts = facts(vec![("S", record)]);
        for len in 0..8 {
            assert!(decode(&facts, "S", &vec![1; len]).is_some());
        }
        assert!(decode(&facts, "T", &[]).is_none());
    }

    #[test]
    fn reads_hexadecimal_as_people_write_it() {
        for text in ["01ff", "01 ff", "0x01,0xff", "\\x01\\xff", "01:FF\n", "\"\\x01\\xff\""] {
            assert_eq!(from_hex(text), Some(vec![1, 255]), "{text}");
        }
        for text in ["", "0", "zz", "+1", "nvos54.bin"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
