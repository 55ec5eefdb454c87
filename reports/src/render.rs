//! Facts as text for people: records in pahole's columns.

use std::fmt::Write as _;

use nvabi_pipeline::model::{
    Alias, Enum, Facts, Field, Record, RecordKind, Source, Surface, hex, split_array,
};

/// Width of `type name` before the column of offsets.
const COLUMN: usize = 56;

/// A record as C, with offset and size of each member, holes and padding.
pub fn record(name: &str, record: &Record) -> String {
    record_of(name, record, &Surface::default())
}

/// The same, with the members of records that have no name of their own in their place.
fn record_of(name: &str, record: &Record, surface: &Surface) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{} {name} {{ // {}", record.kind.keyword(), record.source);
    let mut at = 0;
    let mut holes = 0;
    for field in record.fields.iter() {
        if record.kind == RecordKind::Struct && field.bits.is_none() && field.offset > at {
            holes += field.offset - at;
            let _ = writeln!(text, "    // {} bytes hole", field.offset - at);
        }
        match without_name(surface, field) {
            Some(inner) => nested(&mut text, field, inner, surface),
            None => member(&mut text, field),
        }
        at = at.max(end(field));
    }
    let padding = match record.kind {
        RecordKind::Struct => record.size.saturating_sub(at),
        RecordKind::Union => 0,
    };
    if padding > 0 {
        let _ = writeln!(text, "    // {padding} bytes padding");
    }
    let Record { size, align, fields, .. } = record;
    let _ = write!(text, "}}; // size {size}, align {align}, members {}", fields.len());
    if holes > 0 {
        let _ = write!(text, ", holes {holes}");
    }
    if padding > 0 {
        let _ = write!(text, ", padding {padding}");
    }
    text.push('\n');
    text
}

/// The record of a member whose type has no name but its place: `PARENT::member_t`.
fn without_name<'s>(surface: &'s Surface, field: &Field) -> Option<&'s Record> {
    let base = split_array(&field.canonical).0;
    surface.records.get(base).filter(|_| base.contains("::"))
}

/// A member that is declared where it stands: offsets are those of the record around it, of an array's first element.
fn nested(text: &mut String, field: &Field, inner: &Record, surface: &Surface) {
    let mut block = String::new();
    for member_of in inner.fields.iter() {
        let moved = Field { offset: field.offset + member_of.offset, ..member_of.clone() };
        match without_name(surface, &moved) {
            Some(inner) => nested(&mut block, &moved, inner, surface),
            None => member(&mut block, &moved),
        }
    }
    let _ = writeln!(text, "    {} {{", inner.kind.keyword());
    for line in block.lines() {
        // The columns stay where they are.
        let (declaration, rest) = line.split_once(" // ").unwrap_or((line, ""));
        let declaration = format!("    {}", declaration.trim_end());
        let width = COLUMN + 4;
        let _ = match rest.is_empty() {
            true => writeln!(text, "{declaration}"),
            false => writeln!(text, "{declaration:width$} // {rest}"),
        };
    }
    if field.name.is_empty() {
        let _ = writeln!(text, "    }}; // unnamed, size {}", inner.size);
        return;
    }
    let dimensions = field.ty.find('[').map_or("", |at| &field.ty[at..]);
    let close = format!("}} {}{dimensions};", field.name);
    let _ = writeln!(text, "    {close:COLUMN$} // {:>6} {:>6}", field.offset, field.size);
}

fn end(field: &Field) -> u64 {
    match field.bits {
        Some(bits) => field.offset + (bits.bit_offset + bits.bit_width).div_ceil(8),
        None => field.offset + field.size,
    }
}

fn member(text: &mut String, field: &Field) {
    let (base, dimensions) = match field.ty.find('[') {
        Some(at) if !field.ty.contains('(') => field.ty.split_at(at),
        _ => (field.ty.as_str(), ""),
    };
    let mut declaration = match field.name.is_empty() {
        true => format!("{base}{dimensions};"),
        false => format!("{base} {}{dimensions};", field.name),
    };
    let mut place = field.offset.to_string();
    if let Some(bits) = field.bits {
        declaration.insert_str(declaration.len() - 1, &format!(" : {}", bits.bit_width));
        let _ = write!(place, ".{}", bits.bit_offset);
    }
    let _ = write!(text, "    {declaration:COLUMN$} // {place:>6} {:>6}", field.size);
    if field.canonical != field.ty {
        let _ = write!(text, "  {}", field.canonical);
    }
    text.push('\n');
}

/// An enum with its values.
pub fn enumeration(name: &str, enumeration: &Enum) -> String {
    let mut text = format!("enum {name} {{ // {}\n", enumeration.source);
    let mut variants: Vec<_> = enumeration.variants.iter().collect();
    variants.sort_by_key(|(name, value)| (**value, *name));
    for (variant, value) in variants {
        let _ = writeln!(text, "    {:COLUMN$} // {}", format!("{variant},"), hex(*value));
    }
    let _ = writeln!(text, "}}; // size {}", enumeration.size);
    text
}

/// A typedef.
pub fn alias(name: &str, alias: &Alias) -> String {
    format!("typedef {} {name}; // size {}, {}\n", alias.ty, alias.size, alias.source)
}

/// Everything of that name, in every surface that has it otherwise than one before.
pub fn item(facts: &Facts, name: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for surface in facts.surfaces.values() {
        let part = in_surface(surface, name);
        if !part.is_empty() && !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.extend(macros(facts, name));
    parts.join("\n")
}

/// The macro of that name: one line for each value, with every header that gives it.
fn macros(facts: &Facts, name: &str) -> Option<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut put = |value: String, source: &Source| match lines.iter_mut().find(|l| l.0 == value) {
        Some((_, sources)) => _ = write!(sources, ", {source}"),
        None => lines.push((value, source.to_string())),
    };
    for surface in facts.surfaces.values() {
        if let Some(found) = surface.constants.get(name) {
            put(hex(found.value), &found.source);
        }
        if let Some(found) = surface.bit_ranges.get(name) {
            put(format!("{}:{}", found.high, found.low), &found.source);
        }
    }
    let lines = lines.iter().map(|(value, at)| format!("#define {name} {value} // {at}\n"));
    Some(lines.collect::<String>()).filter(|text| !text.is_empty())
}

fn in_surface(surface: &Surface, name: &str) -> String {
    let mut text = String::new();
    if let Some(found) = surface.records.get(name) {
        text.push_str(&record_of(name, found, surface));
    }
    if let Some(found) = surface.enums.get(name) {
        text.push_str(&enumeration(name, found));
    }
    for (of, found) in &surface.enums {
        if let Some(value) = found.variants.get(name) {
            let _ = writeln!(text, "{name} = {} // of enum {of}, {}", hex(*value), found.source);
        }
    }
    if let Some(found) = surface.aliases.get(name) {
        text.push_str(&alias(name, found));
        if found.ty != name && surface.records.contains_key(&found.ty) {
            text.push_str(&in_surface(surface, &found.ty));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvabi_pipeline::model::{Constant, Source};
    use nvabi_pipeline::tag::Tag;

    #[test]
    fn shows_an_enumerator_with_its_enum() {
        let source = Source { path: "a.h".into(), line: 7 };
        let variants = [("X_ON".to_owned(), 16), ("X_OFF".to_owned(), 0)].into();
        let mut surface = Surface::default();
        surface.enums.insert("X".to_owned(), Enum { size: 4, source, variants });
        assert_eq!(in_surface(&surface, "X_ON"), "X_ON = 0x10 // of enum X, a.h:7\n");
        assert_eq!(in_surface(&surface, "X_ONE"), "");
    }

    #[test]
    fn shows_a_value_once_with_each_header_that_gives_it() {
        let surface = |value, path: &str| {
            let source = Source { path: path.into(), line: 7 };
            let constants = [("X".to_owned(), Constant { value, source })].into();
            Surface { constants, ..Surface::default() }
        };
        let surfaces = [("a", 16, "a.h"), ("b", 32, "b.h"), ("c", 16, "c.h")]
            .map(|(name, value, path)| (name.to_owned(), surface(value, path)));
        let facts = Facts { tag: "1.0".parse::<Tag>().unwrap(), surfaces: surfaces.into() };
        assert_eq!(item(&facts, "X"), "#define X 0x10 // a.h:7, c.h:7\n#define X 0x20 // b.h:7\n");
    }
    #[test]
    fn shows_holes_and_padding() {
        let field = |name: &str, ty: &str, canonical: &str, offset, size| Field {
            name: name.into(),
            ty: ty.into(),
            canonical: canonical.into(),
            offset,
            size,
            bits: None,
        };
        let fields = vec![
            field("hClient", "NvHandle", "unsigned int", 0, 4),
            field("address", "NvP64", "void *", 8, 8),
            field("name", "char[3]", "char[3]", 16, 3),
        ];
        let source = Source { path: "a.h".into(), line: 7 };
        let found =
            Record { kind: RecordKind::Struct, size: 24, align: 8, source, fields: fields.into() };
        let text = record("X", &found);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "struct X { // a.h:7");
        assert!(
            lines[1].contains("NvHandle hClient;") && lines[1].ends_with("0      4  unsigned int")
        );
        assert_eq!(lines[2], "    // 4 bytes hole");
        assert!(lines[4].contains("char name[3];"));
        assert_eq!(lines[5], "    // 5 bytes padding");
        assert_eq!(lines[6], "}; // size 24, align 8, members 3, holes 4, padding 5");
    }
}
