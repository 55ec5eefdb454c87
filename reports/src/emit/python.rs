//! One module on `ctypes`, with the names and the shape of tinygrad's generated ones: keyword arguments,
//! bit ranges as `(high, low)`, enums as dictionaries from number to name.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nvabi_pipeline::globs::Globs;
use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::{RecordKind, split_array};
use nvabi_pipeline::plan::Def;
use nvabi_pipeline::plan::members::{Layout, Member};
use nvabi_pipeline::plan::types::{Element, is_uuid};
use nvabi_pipeline::spec::Spec;

use super::{File, Module, Shape, Type, banner, describe};

pub(super) fn files(module: &Module<'_>, specs: &[&Spec]) -> Vec<File> {
    let mut text = banner(module, "#");
    text.push_str(PRELUDE);
    scalars(&mut text, module);
    for ty in module.types() {
        definition(&mut text, module, &ty);
    }
    constants(&mut text, module);
    statuses(&mut text, module, specs);
    tables(&mut text, module);
    nested(&mut text, module);
    text.push_str(TAGS);
    vec![File { name: format!("{}.py", module.package), text }]
}

/// What no module can be imported as, and what it imports itself.
pub(super) const RESERVED: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "ctypes", "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if",
    "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try",
    "while", "with", "yield",
];

const PRELUDE: &str = "\
import ctypes


class _RealFields:
    \"\"\"The driver's fields of a record, with their offsets.\"\"\"

    def __get__(self, record, owner):
        fields = []
        for name, ctype in owner._fields_:
            offset = getattr(owner, name).offset
            if name in getattr(owner, '_anonymous_', ()):
                fields += [(inner, of, offset + at, *bits) for inner, of, at, *bits in ctype._real_fields_]
            elif name not in owner._padding_:
                fields.append((name, ctype, offset))
        return sorted(fields + list(owner._bit_fields_), key=lambda field: (field[2], field[4:]))


class _Record:
    SIZE = 0
    _fields_ = ()
    _padding_ = frozenset()
    # (name, type, offset, bits, first bit)
    _bit_fields_ = ()
    _real_fields_ = _RealFields()

    def __init__(self, *args, **kwargs):
        # Arguments without a name are the driver's fields in order: padding takes none.
        names = [field[0] for field in self._real_fields_] if args else []
        if len(args) > len(names):
            raise TypeError(f'{type(self).__name__} has {len(names)} fields, not {len(args)}')
        super().__init__(**dict(zip(names, args)), **kwargs)


class Struct(_Record, ctypes.Structure):
    pass


class Union(_Record, ctypes.Union):
    pass


def _bits(storage, low, width):
    \"\"\"A bit-field: `width` bits from bit `low` of an integer or of bytes.\"\"\"
    mask = (1 << width) - 1

    def get(record):
        value = getattr(record, storage)
        value = value if isinstance(value, int) else int.from_bytes(bytes(value), 'little')
        return value >> low & mask

    def put(record, new):
        old = getattr(record, storage)
        size = ctypes.sizeof(type(record)) if isinstance(old, int) else len(old)
        value = old if isinstance(old, int) else int.from_bytes(bytes(old), 'little')
        value = value & ~(mask << low) | (new & mask) << low
        setattr(record, storage, value if isinstance(old, int) else type(old)(*value.to_bytes(size, 'little')))

    return property(get, put)
";

/// The driver's names of integers, as far as fields have them: `NvU32`.
fn scalars(text: &mut String, module: &Module<'_>) {
    let mut found = BTreeMap::new();
    for ty in module.types() {
        let Shape::Record(layout) = &ty.shape else { continue };
        for member in &layout.members {
            let Member::Field { field, element, bytes: false, .. } = member else { continue };
            let name = split_array(&field.ty).0;
            // What is a record has a class of its own, and the driver's other names of it are types of the module.
            let is_scalar = module.record_of(ty.def, element, &field.canonical).is_none();
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            // The words of C begin with a small letter.
            if is_scalar && is_name && name.starts_with(|c: char| c.is_ascii_uppercase()) {
                let ctype = || element_type(module, ty.def, element, &field.canonical);
                found.entry(name).or_insert_with(ctype);
            }
        }
    }
    for name in module.names.iter().map(String::as_str) {
        found.remove(name);
    }
    for (name, _) in &module.constants {
        found.remove(&**name);
    }
    if !found.is_empty() {
        text.push_str("\n\n# Integers and addresses under the driver's names.\n");
    }
    for (name, ctype) in found {
        let _ = writeln!(text, "{name} = {ctype}");
    }
}

fn definition(text: &mut String, module: &Module<'_>, ty: &Type<'_>) {
    let name = ty.name;
    let _ = writeln!(text, "\n\n# {}", describe(ty));
    match &ty.shape {
        Shape::Record(layout) => {
            record(text, module, ty, layout);
            if is_uuid(&ty.def.name) && ty.name == ty.def.name {
                // Its tag, which the lock does not have: `typedef struct nv_uuid {…} NvUuid`.
                let _ = writeln!(text, "\n\nstruct_nv_uuid = {name}");
            }
        }
        Shape::Enum(size, variants) => {
            let names: Vec<String> =
                variants.iter().map(|(name, value)| format!("{value}: '{name}'")).collect();
            let _ = writeln!(text, "enum_{name} = {{{}}}", names.join(", "));
            let _ = writeln!(text, "{name} = {}", unsigned(*size));
        }
        Shape::Alias(element, dimensions) => {
            let base = match &*ty.def.fact {
                Fact::Alias { ty, .. } => ty.as_str(),
                _ => "",
            };
            let base = element_type(module, ty.def, element, base);
            let _ = writeln!(text, "{name} = {}", array(base, dimensions));
        }
    }
}

fn record(text: &mut String, module: &Module<'_>, ty: &Type<'_>, layout: &Layout<'_>) {
    let base = match layout.kind {
        RecordKind::Struct => "Struct",
        RecordKind::Union => "Union",
    };
    let _ = writeln!(text, "class {}({base}):\n    SIZE = {}", ty.name, layout.size);
    if layout.packed {
        let _ = writeln!(text, "    _layout_ = 'ms'\n    _pack_ = {}", layout.align);
    }
    let (mut padding, mut anonymous, mut rows) = (Vec::new(), Vec::new(), String::new());
    let (mut bits, mut bit_rows) = (String::new(), String::new());
    for member in &layout.members {
        let (name, ctype) = match member {
            Member::Padding { name, size, .. } => {
                padding.push(format!("'{name}'"));
                (name, format!("ctypes.c_ubyte * {size}"))
            }
            Member::Bits { name, size, int, offset, fields } => {
                padding.push(format!("'{name}'"));
                for (field, at) in fields.iter().filter_map(|field| Some((field, field.bits?))) {
                    let low = (field.offset - offset) * 8 + at.bit_offset;
                    let (field_offset, field_size) = (field.offset, field.size);
                    if !field.name.is_empty() {
                        let (field, width) = (&field.name, at.bit_width);
                        let _ = writeln!(bits, "    {field} = _bits('{name}', {low}, {width})");
                        let _ = writeln!(
                            bit_rows,
                            "        ('{field}', {}, {}, {width}, {}),",
                            unsigned(field_size),
                            field_offset,
                            at.bit_offset
                        );
                    }
                }
                let ctype = match int {
                    true => unsigned(*size),
                    false => format!("ctypes.c_ubyte * {size}"),
                };
                (name, ctype)
            }
            Member::Field { name, field, bytes: true, .. } => {
                (name, format!("ctypes.c_ubyte * {}", field.size))
            }
            Member::Field { name, field, element, dimensions, .. } => {
                if field.name.is_empty() {
                    anonymous.push(format!("'{name}'"));
                }
                let base = element_type(module, ty.def, element, &field.canonical);
                (name, array(base, dimensions))
            }
        };
        let _ = writeln!(rows, "        ('{name}', {ctype}),");
    }
    if !padding.is_empty() {
        let _ = writeln!(text, "    _padding_ = frozenset(({},))", padding.join(", "));
    }
    if !anonymous.is_empty() {
        let _ = writeln!(text, "    _anonymous_ = ({},)", anonymous.join(", "));
    }
    let _ = writeln!(text, "    _fields_ = (\n{rows}    )");
    if !bits.is_empty() {
        let _ = write!(text, "    _bit_fields_ = (\n{bit_rows}    )\n{bits}");
    }
}

fn element_type(module: &Module<'_>, def: &Def, element: &Element, canonical: &str) -> String {
    if let Some(name) = module.record_of(def, element, canonical) {
        return name.to_owned();
    }
    match element {
        Element::Int { size: 16, .. } => "(ctypes.c_uint64 * 2)".to_owned(),
        Element::Int { size, signed: true } => format!("ctypes.c_int{}", size * 8),
        Element::Int { size, .. } | Element::Enum { size } => unsigned(*size),
        Element::Char => "ctypes.c_char".to_owned(),
        Element::Float { size: 4 } => "ctypes.c_float".to_owned(),
        Element::Float { .. } => "ctypes.c_double".to_owned(),
        Element::Handle => "ctypes.c_uint32".to_owned(),
        Element::P64 => "ctypes.c_void_p".to_owned(),
        Element::Uuid => "(ctypes.c_ubyte * 16)".to_owned(),
        Element::Bytes(size) => format!("(ctypes.c_ubyte * {size})"),
        Element::Record(_) => "ctypes.c_ubyte".to_owned(),
    }
}

fn unsigned(size: u64) -> String {
    format!("ctypes.c_uint{}", size * 8)
}

/// The innermost dimension is multiplied first.
fn array(base: String, dimensions: &[u64]) -> String {
    dimensions.iter().rev().fold(base, |inner, count| match inner.contains('*') {
        true => format!("({inner}) * {count}"),
        false => format!("{inner} * {count}"),
    })
}

fn constants(text: &mut String, module: &Module<'_>) {
    text.push_str("\n\n");
    for (name, constant) in &module.constants {
        let _ = match &constant.fact {
            Fact::Constant(value @ ..10) => writeln!(text, "{name} = {value}"),
            Fact::Constant(value) => writeln!(text, "{name} = {value:#x}"),
            Fact::BitRange(high, low) => writeln!(text, "{name} = ({high}, {low})"),
            _ => continue,
        };
    }
}

/// What a call reports, by number: as many names as there are, the first of each number.
fn statuses(text: &mut String, module: &Module<'_>, specs: &[&Spec]) {
    let globs = specs.iter().flat_map(|spec| &spec.statuses).map(|named| named.name.as_str());
    let globs = Globs::new(globs);
    let mut rows = BTreeMap::new();
    for (name, constant) in &module.constants {
        if let (Fact::Constant(value), true) = (&constant.fact, globs.matches(&constant.name)) {
            rows.entry(*value).or_insert(name);
        }
    }
    if !rows.is_empty() {
        text.push_str("\nnv_status_codes = {\n");
        for (value, name) in rows {
            let _ = writeln!(text, "    {value:#x}: '{name}',");
        }
        text.push_str("}\n");
    }
}

/// tinygrad's module has tags of C beside typedefs, and names a record without a name by the field that it is of:
/// that of an array without its last `s`.
const TAGS: &str = "

def __getattr__(name):
    # `struct NAME` and records without a name, under the names that generated modules give them.
    kind, _, rest = name.partition('_')
    rest = rest if kind in ('struct', 'union') else name
    if rest != name and rest in globals():
        return globals()[rest]
    for field in (rest, rest + 's'):
        if field in NESTED:
            return NESTED[field]
    raise AttributeError(f'module {__name__} has no attribute {name}')
";

/// Records without a name of their own, by the fields that they are of.
fn nested(text: &mut String, module: &Module<'_>) {
    text.push_str(
        "\n# Records that the driver gives no name, by the field that they are of.\nNESTED = {\n",
    );
    for ty in module.types().filter(|ty| ty.def.name.contains("::")) {
        let fields = ty.def.name.split("::").map(|part| part.strip_suffix("_t").unwrap_or(part));
        let outer = ty.def.name.split("::").next().unwrap_or_default();
        let path: Vec<&str> = std::iter::once(outer).chain(fields.skip(1)).collect();
        let _ = writeln!(text, "    '{}': {},", path.join("_"), ty.name);
    }
    text.push_str("}\n");
}

fn tables(text: &mut String, module: &Module<'_>) {
    text.push_str("\n# The tags of this module in order; a row of the tables below holds from one to another.\nVERSIONS = (\n");
    for (tag, _) in &module.tags {
        let _ = writeln!(text, "    '{tag}',");
    }
    text.push_str(
        ")\n\n# Types whose layout depends on the version: (first, last, type) for each run of versions.\nLAYOUTS = {\n",
    );
    for (name, rows) in module.by_version() {
        let rows: Vec<String> =
            rows.iter().map(|(ty, (first, last))| format!("({first}, {last}, {ty})")).collect();
        let _ = writeln!(text, "    '{name}': ({},),", rows.join(", "));
    }
    text.push_str(
        "}\n\n# Constants that not every version has with one value: (first, last, value) for each run of versions.\n\
         CONSTANTS = {\n",
    );
    for (name, rows) in module.constants_by_version() {
        let rows: Vec<String> = rows
            .iter()
            .map(|(fact, (first, last))| match fact {
                Fact::BitRange(high, low) => format!("({first}, {last}, ({high}, {low}))"),
                Fact::Constant(value) => format!("({first}, {last}, {value})"),
                _ => String::new(),
            })
            .collect();
        let _ = writeln!(text, "    '{name}': ({},),", rows.join(", "));
    }
    text.push_str(
        "}\n\n# (kind, name, number, request, parameters, bytes, first, last, roles, roles_known, node, access); a role is\n\
         # (kind, path, offset, bytes, ((stride, count), ...), direction, length, unit, means): a pointer leads to length\n\
         # elements of unit bytes (numbers and fields joined by * and +), a handle names what it means. Where the\n\
         # roles are not known there may be others; the node is what the call is made on, where nodes have requests\n\
         # of one number; access is whom the driver lets make it ('user', 'root', ...), where its tables tell.\nCALLS = (\n",
    );
    for call in module.calls() {
        let roles: String = call
            .roles
            .iter()
            .map(|role| {
                let arrays: String = role
                    .place
                    .arrays
                    .iter()
                    .map(|(stride, n)| format!("({stride}, {n}), "))
                    .collect();
                format!(
                    "('{}', '{}', {}, {}, ({arrays}), '{}', '{}', {}, '{}'), ",
                    role.kind.word(),
                    role.path,
                    role.place.offset,
                    role.place.size,
                    role.detail.direction,
                    role.detail.length,
                    role.detail.unit,
                    role.detail.means
                )
            })
            .collect();
        let request = call.request.map_or("None".to_owned(), |request| format!("{request:#x}"));
        let known = if call.roles_known { "True" } else { "False" };
        let node = call.node.map_or("None".to_owned(), |node| format!("'{node}'"));
        let access = call.access.map_or("None".to_owned(), |access| format!("'{access}'"));
        for (first, last) in &call.spans {
            let _ = writeln!(
                text,
                "    ('{}', '{}', {:#x}, {request}, {}, {}, {first}, {last}, ({roles}), {known}, {node}, {access}),",
                call.kind,
                call.name,
                call.number,
                call.params.unwrap_or("None"),
                call.size
            );
        }
    }
    text.push_str(
        ")\n\n\n\
         def layout(name, version):\n    \
         \"\"\"The type of a name at one of VERSIONS.\"\"\"\n    \
         if version not in VERSIONS:\n        \
         raise KeyError(f\"{version} is none of {', '.join(VERSIONS)}\")\n    \
         at = VERSIONS.index(version)\n    \
         for first, last, record in LAYOUTS.get(name, ()):\n        \
         if first <= at <= last:\n            \
         return record\n    \
         if name in LAYOUTS:\n        \
         raise KeyError(f'{version} has no {name}')\n    \
         return globals()[name]\n",
    );
}
