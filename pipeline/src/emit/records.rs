//! One definition: a struct, union, enum or typedef, with its assertions and its description.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::types;
use super::{Options, ident, path};
use crate::lock::Fact;
use crate::model::{Field, RecordKind};
use crate::plan::members::{Layout, Member};
use crate::plan::types::{Element, is_uuid};
use crate::plan::{Def, DefId, DefinedAt, Plan};

pub(super) fn definition(text: &mut String, plan: &Plan<'_>, id: DefId, options: Options<'_>) {
    let def = &plan.defs[id];
    let name = ident(&def.ident);
    let writer = Writer { plan, def, options };
    let mut alias = |keyword: &str, ty: &str| {
        writer.doc(text, keyword);
        let _ = writeln!(text, "pub type {name} = {ty};");
    };
    match &*def.fact {
        Fact::Record { .. } if is_uuid(&def.name) => alias("struct", "nvabi::Uuid"),
        Fact::Enum { size, .. } => {
            alias("enum", &types::rust(&Element::Enum { size: *size }, |_| String::new()));
        }
        Fact::Alias { ty, size } => alias("typedef", &writer.rust(ty, ty, *size)),
        Fact::Record { fields, .. } => writer.record(text, &name, fields),
        _ => {}
    }
}

/// The tables that the derive compares with, as source: they are many and nobody reads them.
pub(super) fn layouts(text: &mut String, plan: &Plan<'_>, defs: &[DefId], options: Options<'_>) {
    let mut assertions = Vec::new();
    for def in defs.iter().map(|id| &plan.defs[*id]).filter(|def| !is_uuid(&def.name)) {
        let writer = Writer { plan, def, options };
        assertions.extend(writer.layout(text, &ident(&def.ident)));
    }
    // An item each would take rustc a quarter longer.
    for some in assertions.chunks(16) {
        let _ = writeln!(text, "const _: () = {{\n{}}};", some.concat());
    }
}

/// `Copy`, `Clone` and the derive's `FieldType`, for all records of a module in one line.
pub(super) fn traits(text: &mut String, plan: &Plan<'_>, defs: &[DefId]) {
    let records = defs
        .iter()
        .map(|id| &plan.defs[*id])
        .filter(|def| !is_uuid(&def.name) && matches!(&*def.fact, Fact::Record { .. }));
    let names: Vec<_> = records.map(|def| ident(&def.ident)).collect();
    if !names.is_empty() {
        let _ = writeln!(text, "nvabi::records!({});", names.join(", "));
    }
}

struct Writer<'a> {
    plan: &'a Plan<'a>,
    def: &'a Def,
    options: Options<'a>,
}

impl<'a> Writer<'a> {
    fn doc(&self, text: &mut String, keyword: &str) {
        let Def { name, place, .. } = self.def;
        let _ = writeln!(text, "/// `{keyword} {name}`: {} at {}.", place.source, place.since);
    }

    /// The path of a type from inside a group's module.
    fn path(&self, name: &str) -> String {
        match self.def.uses.get(name) {
            Some(id) if self.plan.defs[*id].module == self.def.module => {
                ident(&self.plan.defs[*id].ident)
            }
            Some(id) => format!("super::{}", path(self.plan, *id)),
            None => "()".into(),
        }
    }

    fn rust(&self, declared: &str, canonical: &str, size: u64) -> String {
        let (element, dimensions) = self.plan.element(self.def, declared, canonical, size);
        types::array(types::rust(&element, |name| self.path(name)), &dimensions)
    }

    fn record(&self, text: &mut String, name: &str, fields: &'a [Field]) {
        let Some(layout) = self.plan.layout(self.def) else { return };
        let Layout { kind, size, align, natural, .. } = layout;
        let keyword = kind.keyword();
        self.doc(text, keyword);
        let _ = writeln!(text, "///\n/// {size} bytes, alignment {align}.");
        self.derives(text, &layout);
        let _ = match (layout.packed, align > natural) {
            (true, _) => writeln!(text, "#[repr(C, packed({align}))]"),
            (false, true) => writeln!(text, "#[repr(C, align({align}))]"),
            (false, false) => writeln!(text, "#[repr(C)]"),
        };
        let _ = writeln!(text, "pub {keyword} {name} {{");
        layout.members.iter().for_each(|member| self.declare(text, member));
        text.push_str("}\n");
        // What a union's bytes hold is for the program to know.
        if kind == RecordKind::Struct {
            accessors(text, name, &layout.members, fields);
        }
    }

    fn declare(&self, text: &mut String, member: &Member<'_>) {
        let _ = match member {
            Member::Padding { name, size, .. } => {
                writeln!(text, "    /// {size} bytes of padding.\n    pub {name}: [u8; {size}],")
            }
            Member::Bits { name, offset, size, int, .. } => {
                let ty = bits_type(*int, *size);
                let doc = format!("Offset {offset}, {size} bytes of bit-fields.");
                writeln!(text, "    /// {doc}\n    pub {name}: {ty},")
            }
            Member::Field { name, field, element, dimensions, bytes } => {
                let Field { offset, size, ty: declared, .. } = field;
                let ty = match bytes {
                    true => format!("[u8; {size}]"),
                    false => types::array(types::rust(element, |name| self.path(name)), dimensions),
                };
                let (doc, name) =
                    (format!("Offset {offset}, {size} bytes, `{declared}`."), ident(name));
                writeln!(text, "    /// {doc}\n    pub {name}: {ty},")
            }
        };
    }

    /// What the layout allows: every type here is made of integers, so any bytes are a value;
    /// bytes can be read back where no union hides which of them were written.
    fn derives(&self, text: &mut String, layout: &Layout<'_>) {
        if !self.options.zerocopy {
            return;
        }
        let into_bytes = match self.is_whole(self.def, layout) {
            true => ", nvabi::zerocopy::IntoBytes",
            false => "",
        };
        let _ = writeln!(
            text,
            "#[derive(nvabi::zerocopy::FromBytes, nvabi::zerocopy::Immutable, \
             nvabi::zerocopy::KnownLayout{into_bytes})]"
        );
        // In nvabi itself zerocopy is found under its own name.
        if !self.options.in_nvabi() {
            text.push_str("#[zerocopy(crate = \"nvabi::zerocopy\")]\n");
        }
    }

    /// Whether every byte is that of an integer: no union anywhere, and nothing packed.
    fn is_whole(&self, def: &Def, layout: &Layout<'_>) -> bool {
        let is_whole_record = |name: &str| {
            let inner = self.plan.used(def, name);
            let inner = inner.and_then(|inner| Some((inner, self.plan.layout(inner)?)));
            inner.is_some_and(|(inner, layout)| self.is_whole(inner, &layout))
        };
        let mut members_are_whole = layout.members.iter().map(|member| match member {
            Member::Field { element: Element::Record(name), bytes: false, .. } => {
                is_whole_record(name)
            }
            _ => true,
        });
        layout.kind == RecordKind::Struct
            && !layout.packed
            && !layout.members.is_empty()
            && members_are_whole.all(|whole| whole)
    }

    /// The table of a record and the assertion that rustc made the type as the table says.
    fn layout(&self, text: &mut String, name: &str) -> Option<String> {
        let Layout { kind, size, align, members, .. } = self.plan.layout(self.def)?;
        let kind = match kind {
            RecordKind::Struct => "Struct",
            RecordKind::Union => "Union",
        };
        let Def { name: driver_name, place: DefinedAt { source, since }, .. } = self.def;
        let mut rows = String::new();
        let mut offsets = String::new();
        for member in &members {
            if let Some((driver_name, field, offset, ty)) = self.describe(member) {
                let _ =
                    writeln!(rows, "F {{ name: {driver_name:?}, offset: {offset}, ty: {ty} }},");
                let _ = write!(offsets, "::core::mem::offset_of!({name}, {field}), ");
            }
        }
        let _ = write!(
            text,
            "impl {name} {{\n/// What the derive compares with.\n\
             pub const LAYOUT: &'static nvabi::check::Layout = &nvabi::check::Layout {{ \
             name: {driver_name:?}, kind: nvabi::check::LayoutKind::{kind}, size: {size}, align: {align}, \
             since: \"{since}\", source: {source:?}, fields: &[\n{rows}] }};\n}}\n"
        );
        Some(format!(
            "nvabi::check::assert_layout({name}::LAYOUT, ::core::mem::size_of::<{name}>(), \
             ::core::mem::align_of::<{name}>(), &[{offsets}]);\n"
        ))
    }

    /// The driver's name of a member, the Rust one, and where and what it is.
    fn describe(&self, member: &Member<'_>) -> Option<(String, String, u64, String)> {
        match member {
            Member::Padding { .. } => None,
            Member::Bits { name, offset, size, int, fields } => {
                let storage = match int {
                    true => Element::Int { size: *size, signed: false },
                    false => Element::Bytes(*size),
                };
                let storage = types::check(&storage, |_| String::new());
                let mut bits = String::new();
                for (field, at) in fields.iter().filter_map(|f| Some((f, f.bits?))) {
                    let first = (field.offset - offset) * 8 + at.bit_offset;
                    let _ = write!(
                        bits,
                        "nvabi::check::Bit {{ name: {:?}, bit_offset: {first}, bit_width: {} }}, ",
                        field.name, at.bit_width
                    );
                }
                Some((
                    name.clone(),
                    name.clone(),
                    *offset,
                    format!("T::Bits(&{storage}, &[{bits}])"),
                ))
            }
            Member::Field { name, field, element, dimensions, .. } => {
                let element = types::check(element, |name| self.path(name));
                let ty = types::check_array(element, dimensions);
                Some((field.name.clone(), ident(name), field.offset, ty))
            }
        }
    }
}

fn bits_type(int: bool, size: u64) -> String {
    match int {
        true => format!("u{}", size * 8),
        false => format!("[u8; {size}]"),
    }
}

/// Getters and setters of bit-fields.
fn accessors(text: &mut String, name: &str, members: &[Member<'_>], all: &[Field]) {
    let mut methods = String::new();
    // A setter gives way to what the driver calls by that name.
    let mut taken: HashSet<String> = all.iter().map(|field| field.name.clone()).collect();
    let mut setter = |field: &str| {
        let mut name = format!("set_{field}");
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        name
    };
    for member in members {
        let Member::Bits { name: unit, offset, size, int, fields } = member else { continue };
        for field in fields.iter().filter(|field| !field.name.is_empty()) {
            let set = setter(&field.name);
            accessor(&mut methods, &set, unit, *offset, int.then_some(*size), field);
        }
    }
    if !methods.is_empty() {
        let _ = writeln!(text, "impl {name} {{\n{methods}}}");
    }
}

/// One bit-field's; `int` is the size of the integer that holds it, where one does.
fn accessor(
    text: &mut String,
    set: &str,
    unit: &str,
    offset: u64,
    int: Option<u64>,
    field: &Field,
) {
    let Some(bits) = field.bits else { return };
    let at = (field.offset - offset) * 8 + bits.bit_offset;
    let width = bits.bit_width;
    let get = ident(&field.name);
    let doc = format!(
        "    /// `{}`: {width} bits from bit {} of byte {}.",
        field.name, bits.bit_offset, field.offset
    );
    let (read, write) = match int {
        Some(size) => (
            format!("&self.{unit}.to_le_bytes()"),
            format!(
                "        let mut bytes = self.{unit}.to_le_bytes();\n        \
                 nvabi::bits::set(&mut bytes, {at}, {width}, value);\n        \
                 self.{unit} = <u{}>::from_le_bytes(bytes);\n",
                size * 8
            ),
        ),
        None => (
            format!("&self.{unit}"),
            format!("        nvabi::bits::set(&mut self.{unit}, {at}, {width}, value);\n"),
        ),
    };
    let signed =
        matches!(field.canonical.as_str(), "signed char" | "short" | "int" | "long" | "long long");
    let (ty, function, cast) = match signed {
        true => ("i64", "get_signed", "        let value = value as u64;\n"),
        false => ("u64", "get", ""),
    };
    let _ = write!(
        text,
        "{doc}\n    pub fn {get}(&self) -> {ty} {{\n        \
         nvabi::bits::{function}({read}, {at}, {width})\n    }}\n\
         {doc}\n    ///\n    /// Bits of `value` beyond the width are dropped, as in C.\n    \
         pub fn {set}(&mut self, value: {ty}) {{\n{cast}{write}    }}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Bits;

    #[test]
    fn setters_give_way_to_the_drivers_names() {
        let field = |name: &str, bit_offset| Field {
            name: name.into(),
            ty: "NvU32".into(),
            canonical: "unsigned int".into(),
            offset: 0,
            size: 4,
            bits: Some(Bits { bit_offset, bit_width: 1 }),
        };
        let fields = [field("x", 0), field("set_x", 1), field("set_x_", 2), field("y", 3)];
        let members = [Member::Bits {
            name: "bits0".into(),
            offset: 0,
            size: 4,
            int: true,
            fields: fields.iter().collect(),
        }];
        let mut text = String::new();
        accessors(&mut text, "T", &members, &fields);
        let names: Vec<&str> = text
            .split("pub fn ")
            .skip(1)
            .filter_map(|method| method.split([' ', '(']).next())
            .collect();
        let wanted = ["x", "set_x__", "set_x", "set_set_x", "set_x_", "set_set_x_", "y", "set_y"];
        assert_eq!(names, wanted);
    }
}
