//! One header, for C11 and C++17.

use std::fmt::Write as _;

use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::plan::Def;
use nvabi_pipeline::plan::members::{Layout, Member};
use nvabi_pipeline::plan::types::Element;

use super::{CallRow, File, Module, Shape, Type, banner, describe};

pub(super) fn files(module: &Module<'_>) -> Vec<File> {
    let mut text = banner(module, "//");
    let guard = format!("{}_H", module.package.to_uppercase());
    let _ = write!(text, "#ifndef {guard}\n#define {guard}\n\n{PRELUDE}");
    for ty in module.types() {
        definition(&mut text, module, &ty);
    }
    constants(&mut text, module);
    tables(&mut text, module);
    let _ = writeln!(text, "\n#endif");
    vec![File { name: format!("{}.h", module.package), text }]
}

const PRELUDE: &str = "\
// Define NVABI_FREESTANDING where there are no C headers, as in a kernel.
#ifdef NVABI_FREESTANDING
typedef __UINT8_TYPE__ nvabi_u8;
typedef __UINT16_TYPE__ nvabi_u16;
typedef __UINT32_TYPE__ nvabi_u32;
typedef __UINT64_TYPE__ nvabi_u64;
typedef __INT8_TYPE__ nvabi_s8;
typedef __INT16_TYPE__ nvabi_s16;
typedef __INT32_TYPE__ nvabi_s32;
typedef __INT64_TYPE__ nvabi_s64;
#else
#include <stdint.h>
typedef uint8_t nvabi_u8;
typedef uint16_t nvabi_u16;
typedef uint32_t nvabi_u32;
typedef uint64_t nvabi_u64;
typedef int8_t nvabi_s8;
typedef int16_t nvabi_s16;
typedef int32_t nvabi_s32;
typedef int64_t nvabi_s64;
#endif
// The name of an object, and an address of any process.
typedef nvabi_u32 nvabi_handle;
typedef nvabi_u64 nvabi_p64;

#ifdef __cplusplus
#define NVABI_ASSERT(condition) static_assert(condition, #condition)
#define NVABI_ALIGNOF(type) alignof(type)
#else
#define NVABI_ASSERT(condition) _Static_assert(condition, #condition)
#define NVABI_ALIGNOF(type) _Alignof(type)
#endif
#define NVABI_TYPE(type, size, alignment) \\
    NVABI_ASSERT(sizeof(type) == (size)); \\
    NVABI_ASSERT(NVABI_ALIGNOF(type) == (alignment))
#define NVABI_FIELD(type, field, offset, size) \\
    NVABI_ASSERT(__builtin_offsetof(type, field) == (offset)); \\
    NVABI_ASSERT(sizeof(((type *)0)->field) == (size))
// The highest and the lowest bit of a range such as 31:0.
#define NVABI_HIGH(range) ((1) ? range)
#define NVABI_LOW(range) ((0) ? range)
";

fn definition(text: &mut String, module: &Module<'_>, ty: &Type<'_>) {
    let name = ty.name;
    let _ = writeln!(text, "\n// {}", describe(ty));
    match &ty.shape {
        Shape::Record(layout) => {
            let keyword = layout.kind.keyword();
            let _ = writeln!(text, "typedef {keyword} {name} {{");
            members(text, module, ty.def, layout, 1);
            let _ = writeln!(text, "}}{} {name};", attributes(layout));
            let _ = writeln!(text, "NVABI_TYPE({name}, {}, {});", layout.size, layout.align);
            assertions(text, name, layout);
        }
        Shape::Enum(size, _) => {
            let _ = writeln!(text, "typedef nvabi_u{} {name};", size * 8);
        }
        Shape::Alias(element, dimensions) => {
            let base = element_type(module, ty.def, element, alias_base(ty.def));
            let _ = writeln!(text, "typedef {base} {name}{};", array(dimensions));
        }
    }
}

/// The canonical type of a typedef.
fn alias_base(def: &Def) -> &str {
    match &*def.fact {
        Fact::Alias { ty, .. } => ty,
        _ => "",
    }
}

fn attributes(layout: &Layout<'_>) -> String {
    match (layout.packed, layout.align > layout.natural) {
        (true, _) => format!(" __attribute__((packed, aligned({})))", layout.align),
        (false, true) => format!(" __attribute__((aligned({})))", layout.align),
        (false, false) => String::new(),
    }
}

fn members(text: &mut String, module: &Module<'_>, def: &Def, layout: &Layout<'_>, depth: usize) {
    let indent = "    ".repeat(depth);
    for member in &layout.members {
        let _ = match member {
            Member::Padding { name, size, .. } => {
                writeln!(text, "{indent}nvabi_u8 {name}[{size}];")
            }
            Member::Bits { name, size, int: true, .. } => {
                writeln!(text, "{indent}nvabi_u{} {name};", size * 8)
            }
            Member::Bits { name, size, .. } => writeln!(text, "{indent}nvabi_u8 {name}[{size}];"),
            Member::Field { name, field, bytes: true, .. } => {
                writeln!(text, "{indent}nvabi_u8 {}[{}];", ident(name), field.size)
            }
            Member::Field { field, element, dimensions, .. } if field.name.is_empty() => {
                anonymous(text, module, def, element, dimensions, depth);
                continue;
            }
            Member::Field { name, field, element, dimensions, .. } => {
                let base = element_type(module, def, element, &field.canonical);
                // Neither language has arrays of nothing; compilers do.
                let extension = if dimensions.contains(&0) { "__extension__ " } else { "" };
                writeln!(text, "{indent}{extension}{base} {}{};", ident(name), array(dimensions))
            }
        };
    }
}

/// An unnamed member: its members are those of the record around it.
fn anonymous(
    text: &mut String,
    module: &Module<'_>,
    def: &Def,
    element: &Element,
    dimensions: &[u64],
    depth: usize,
) {
    let Element::Record(record) = element else { return };
    let Some(inner) = module.used_def(def, record) else { return };
    let Some(layout) = module.plan.layout(inner) else { return };
    let indent = "    ".repeat(depth);
    // C++ has no unnamed struct inside of another; compilers do.
    let _ = writeln!(text, "{indent}__extension__ {} {{", layout.kind.keyword());
    members(text, module, inner, &layout, depth + 1);
    let _ = writeln!(text, "{indent}}}{}{};", attributes(&layout), array(dimensions));
}

fn assertions(text: &mut String, name: &str, layout: &Layout<'_>) {
    for member in &layout.members {
        let (field, offset, size) = match member {
            Member::Padding { .. } => continue,
            Member::Bits { name, offset, size, .. } => (name, offset, size),
            Member::Field { field, .. } if field.name.is_empty() || field.size == 0 => continue,
            Member::Field { name, field, .. } => (name, &field.offset, &field.size),
        };
        let _ = writeln!(text, "NVABI_FIELD({name}, {}, {offset}, {size});", ident(field));
    }
    for member in &layout.members {
        let Member::Bits { offset, fields, .. } = member else { continue };
        for (field, bits) in fields.iter().filter_map(|field| Some((field, field.bits?))) {
            let low = (field.offset - offset) * 8 + bits.bit_offset;
            let high = low + bits.bit_width - 1;
            if !field.name.is_empty() {
                let _ = writeln!(text, "#define {name}__{} {high}:{low}", field.name);
            }
        }
    }
}

fn element_type(module: &Module<'_>, def: &Def, element: &Element, canonical: &str) -> String {
    if let Some(name) = module.record_of(def, element, canonical) {
        return name.to_owned();
    }
    match element {
        Element::Int { size: 16, signed: true } => "__int128".to_owned(),
        Element::Int { size: 16, .. } => "unsigned __int128".to_owned(),
        Element::Int { size, signed: true } => format!("nvabi_s{}", size * 8),
        Element::Int { size, .. } | Element::Enum { size } => format!("nvabi_u{}", size * 8),
        Element::Char => "char".to_owned(),
        Element::Float { size: 4 } => "float".to_owned(),
        Element::Float { .. } => "double".to_owned(),
        Element::Handle => "nvabi_handle".to_owned(),
        Element::P64 => "nvabi_p64".to_owned(),
        Element::Uuid => "nvabi_u8".to_owned(),
        Element::Bytes(_) | Element::Record(_) => "nvabi_u8".to_owned(),
    }
}

fn array(dimensions: &[u64]) -> String {
    dimensions.iter().map(|count| format!("[{count}]")).collect()
}

fn constants(text: &mut String, module: &Module<'_>) {
    text.push('\n');
    for (name, constant) in &module.constants {
        let _ = match &constant.fact {
            Fact::Constant(value) => writeln!(text, "#define {name} {}", integer(*value)),
            Fact::BitRange(high, low) => writeln!(text, "#define {name} {high}:{low}"),
            _ => continue,
        };
    }
}

fn integer(value: i128) -> String {
    match value {
        i128::MIN..=-2_147_483_649 => format!("({}LL)", value),
        -2_147_483_648..0 => format!("({value})"),
        0..10 => value.to_string(),
        10..=0xffff_ffff => format!("{value:#x}u"),
        _ => format!("{value:#x}ull"),
    }
}

/// What a program looks up at run time: only where it asks for it.
fn tables(text: &mut String, module: &Module<'_>) {
    text.push_str(
        "\n#ifdef NVABI_TABLES\n\
         // The tags of this file in order; a row of the tables below holds from one to another.\n\
         static const char *const nvabi_versions[] = {\n",
    );
    for (tag, _) in &module.tags {
        let _ = writeln!(text, "    \"{tag}\",");
    }
    text.push_str(
        "};\n\n\
         // The name here of a type whose layout depends on the version.\n\
         struct nvabi_layout { const char *name, *type; nvabi_u32 size, first, last; };\n\
         static const struct nvabi_layout nvabi_layouts[] = {\n",
    );
    for (name, rows) in module.by_version() {
        for (ty, (first, last)) in rows {
            let _ =
                writeln!(text, "    {{ \"{name}\", \"{ty}\", sizeof({ty}), {first}, {last} }},");
        }
    }
    text.push_str(
        "    { 0, 0, 0, 0, 0 },\n};\n\n\
         // A constant that not every version has with one value. A bit range has no value, but its bits.\n\
         struct nvabi_constant { const char *name; nvabi_u64 value; nvabi_u32 is_bits, high, low, first, last; };\n\
         static const struct nvabi_constant nvabi_constants[] = {\n",
    );
    for (name, rows) in module.constants_by_version() {
        for (fact, (first, last)) in rows {
            let value = match fact {
                Fact::BitRange(high, low) => format!("0, 1, {high}, {low}"),
                Fact::Constant(value) => format!("{:#x}ull, 0, 0, 0", *value as u64),
                _ => continue,
            };
            let _ = writeln!(text, "    {{ \"{name}\", {value}, {first}, {last} }},");
        }
    }
    text.push_str(
        "    { 0, 0, 0, 0, 0, 0, 0 },\n};\n\n\
         // A field of a call's parameters that is a file descriptor, a pointer or a handle. `count` elements\n\
         // are `stride` bytes apart. A pointer has a `direction` (in, out, inout) and leads to `length` elements of `unit`\n\
         // bytes: numbers and fields joined by * and +. `means` is what a handle names. What is not known is empty.\n\
         struct nvabi_role {\n    \
         const char *kind, *path, *direction, *length, *means;\n    \
         nvabi_u32 offset, size, count, stride, unit;\n};\n\
         // `request` is 0 where the call is no ioctl or has no fixed size; `params` is null where it takes none.\n\
         // `node` is what it is made on, where nodes have requests of one number, else null. `access` is whom the\n\
         // driver lets make it (user, root, ...), null where its tables do not tell. Without `roles_known` there may\n\
         // be others than the `roles` at `role`.\n\
         struct nvabi_call {\n    \
         const char *kind, *name, *node, *params, *access;\n    \
         nvabi_u64 number, request;\n    \
         nvabi_u32 size, first, last, roles_known, roles;\n    \
         const struct nvabi_role *role;\n};\n",
    );
    let calls = module.calls();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| !call.roles.is_empty()) {
        let _ = writeln!(text, "static const struct nvabi_role nvabi_roles_{at}[] = {{");
        for role in &call.roles {
            let (stride, count) = role.place.arrays.last().copied().unwrap_or((0, 1));
            let _ = writeln!(
                text,
                "    {{ \"{}\", \"{}\", \"{}\", \"{}\", \"{}\", {}, {}, {count}, {stride}, {} }},",
                role.kind.word(),
                role.path,
                role.detail.direction,
                role.detail.length,
                role.detail.means,
                role.place.offset,
                role.place.size,
                role.detail.unit
            );
        }
        text.push_str("};\n");
    }
    text.push_str("static const struct nvabi_call nvabi_calls[] = {\n");
    for (at, call) in calls.iter().enumerate() {
        call_row(text, at, call);
    }
    text.push_str("    { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },\n};\n#endif\n");
}

fn call_row(text: &mut String, at: usize, call: &CallRow<'_>) {
    let text_of = |name: Option<&str>| name.map_or("0".to_owned(), |name| format!("\"{name}\""));
    let access = call.access.map(ToString::to_string);
    let (node, params, access) =
        (text_of(call.node), text_of(call.params), text_of(access.as_deref()));
    let roles = match call.roles.is_empty() {
        true => "0".to_owned(),
        false => format!("nvabi_roles_{at}"),
    };
    for (first, last) in &call.spans {
        let _ = writeln!(
            text,
            "    {{ \"{}\", \"{}\", {node}, {params}, {access}, {:#x}, {:#x}, {}, {first}, {last}, {}, {}, {roles} }},",
            call.kind,
            call.name,
            call.number,
            call.request.unwrap_or(0),
            call.size,
            u8::from(call.roles_known),
            call.roles.len()
        );
    }
}

/// A member's name, also in C++.
fn ident(name: &str) -> String {
    match KEYWORDS.binary_search(&name) {
        Ok(_) => format!("{name}_"),
        Err(_) => name.to_owned(),
    }
}

/// Words that are no identifiers in C11 or C++17 and may be names in the driver's C, sorted.
const KEYWORDS: [&str; 49] = [
    "alignas",
    "alignof",
    "and",
    "asm",
    "bitand",
    "bitor",
    "bool",
    "catch",
    "class",
    "compl",
    "const_cast",
    "constexpr",
    "decltype",
    "delete",
    "dynamic_cast",
    "explicit",
    "export",
    "false",
    "friend",
    "inline",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "nullptr",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "reinterpret_cast",
    "restrict",
    "static_assert",
    "static_cast",
    "template",
    "this",
    "thread_local",
    "throw",
    "true",
    "try",
    "typeid",
    "typename",
    "typeof",
    "unix",
    "using",
    "virtual",
    "wchar_t",
    "xor",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_can_be_searched() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn integers_have_the_type_that_holds_them() {
        let texts: Vec<String> = [-1, 0, 9, 10, 0xffff_ffff, 0x1_0000_0000, -0x8000_0001]
            .into_iter()
            .map(integer)
            .collect();
        assert_eq!(
            texts,
            ["(-1)", "0", "9", "0xau", "0xffffffffu", "0x100000000ull", "(-2147483649LL)"]
        );
    }
}
