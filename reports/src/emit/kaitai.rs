//! A Kaitai Struct description, which hex viewers and its compiler's parsers read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::{RecordKind, split_array};
use nvabi_pipeline::plan::members::{Layout, Member};
use nvabi_pipeline::plan::types::Element;
use nvabi_pipeline::plan::{Def, DefId};
use nvabi_pipeline::spec::ItemKind;

use super::{File, Module, Shape, Type, banner, describe};

pub(super) fn files(module: &Module<'_>) -> Vec<File> {
    let ids = Ids::new(module);
    let types: Vec<Type<'_>> = module.types().collect();
    let mut text = banner(module, "#");
    let _ = writeln!(text, "meta:\n  id: {}\n  endian: le", snake(module.package));
    root(&mut text, module, &ids, &types);
    let mut records = String::new();
    for ty in &types {
        if let Shape::Record(layout) = &ty.shape {
            record(&mut records, module, &ids, ty, layout);
        }
    }
    // A key without anything under it is null, and no map.
    if !records.is_empty() {
        text.push_str("types:\n");
        text.push_str(&records);
    }
    enums(&mut text, module, &ids);
    vec![File { name: format!("{}.ksy", module.package), text }]
}

/// The names here, which Kaitai wants in snake case: several of the driver's may become one.
struct Ids {
    /// Of the records and enums, by [`DefId`].
    types: Vec<String>,
}

impl Ids {
    fn new(module: &Module<'_>) -> Self {
        let mut taken = HashSet::new();
        // The names of the enums of calls.
        taken.extend(ItemKind::ALL.map(|kind| format!("{kind}_call")));
        let types = module.names.iter().map(|name| free(&mut taken, snake(name))).collect();
        Self { types }
    }

    fn of(&self, def: &Def, name: &str) -> Option<(DefId, &str)> {
        def.uses.get(name).map(|id| (*id, self.types[*id].as_str()))
    }
}

/// A file is of the one record that no other holds, where there is one.
fn root(text: &mut String, module: &Module<'_>, ids: &Ids, types: &[Type<'_>]) {
    let held: BTreeSet<&str> = module
        .plan
        .defs
        .iter()
        .flat_map(|def| def.uses.values().map(|id| ids.types[*id].as_str()))
        .collect();
    let records = module.plan.defs.iter().zip(&ids.types).filter(|(def, id)| {
        matches!(&*def.fact, Fact::Record { .. }) && !held.contains(id.as_str())
    });
    let roots: Vec<&String> = records.map(|(_, id)| id).collect();
    match roots.as_slice() {
        [one] => {
            let _ = writeln!(text, "seq:\n  - id: parameters\n    type: {one}");
        }
        _ if types.is_empty() => {}
        _ => text.push_str(
            "# Choose what a file is: give this document a `seq` with one of the types.\n",
        ),
    }
}

fn record(text: &mut String, module: &Module<'_>, ids: &Ids, ty: &Type<'_>, layout: &Layout<'_>) {
    let id = &ids.types[ty.id];
    let _ = writeln!(text, "  {id}:\n    doc: {}", quoted(&describe(ty)));
    let (mut seq, mut instances) = (String::new(), String::new());
    let mut taken = HashSet::new();
    let is_union = layout.kind == RecordKind::Union;
    if is_union {
        let _ = writeln!(seq, "      - id: bytes\n        size: {}", layout.size);
        taken.insert("bytes".to_owned());
    }
    for member in &layout.members {
        let (name, lines) = member_lines(module, ids, ty.def, member);
        let field = free(&mut taken, snake(name));
        if let Member::Padding { .. } = member {
            if !is_union {
                item(&mut seq, &field, None, &lines);
            }
            continue;
        }
        match is_union {
            // Each member begins where the union does.
            true => {
                let _ =
                    writeln!(instances, "      {field}:\n        -orig-id: {name}\n        pos: 0");
                lines.iter().for_each(|line| _ = writeln!(instances, "        {line}"));
            }
            false => item(&mut seq, &field, Some(name), &lines),
        }
        if let Member::Bits { .. } = member {
            bit_fields(&mut instances, &mut taken, member, &field);
        }
    }
    if !seq.is_empty() {
        let _ = write!(text, "    seq:\n{seq}");
    }
    if !instances.is_empty() {
        let _ = write!(text, "    instances:\n{instances}");
    }
}

fn item(seq: &mut String, id: &str, original: Option<&str>, lines: &[String]) {
    let _ = writeln!(seq, "      - id: {id}");
    if let Some(original) = original.filter(|original| *original != id) {
        let _ = writeln!(seq, "        -orig-id: {original}");
    }
    lines.iter().for_each(|line| _ = writeln!(seq, "        {line}"));
}

/// The driver's name of a member, and the keys that say what it is.
fn member_lines<'m>(
    module: &Module<'_>,
    ids: &Ids,
    def: &Def,
    member: &'m Member<'_>,
) -> (&'m str, Vec<String>) {
    match member {
        Member::Padding { name, size, .. } => (name, vec![format!("size: {size}")]),
        Member::Bits { name, size, int: true, .. } => (name, vec![format!("type: u{size}")]),
        Member::Bits { name, size, .. } => (name, repeated("type: u1".to_owned(), *size)),
        Member::Field { name, field, bytes: true, .. } => {
            (name, vec![format!("size: {}", field.size)])
        }
        Member::Field { name, field, element, dimensions, .. } => {
            let count: u64 = dimensions.iter().product();
            let each = field.size.checked_div(count).unwrap_or(0);
            let lines = element_lines(module, ids, def, element, &field.canonical, each);
            let is_bytes = lines.len() == 1 && lines[0].starts_with("size: ");
            match dimensions.is_empty() {
                true => (name, lines),
                // Text and bytes are one piece.
                false if is_bytes && each == 1 => (name, vec![format!("size: {}", field.size)]),
                false => {
                    let mut lines = lines;
                    lines.push("repeat: expr".to_owned());
                    lines.push(format!("repeat-expr: {count}"));
                    (name, lines)
                }
            }
        }
    }
}

fn repeated(ty: String, count: u64) -> Vec<String> {
    vec![ty, "repeat: expr".to_owned(), format!("repeat-expr: {count}")]
}

fn element_lines(
    module: &Module<'_>,
    ids: &Ids,
    def: &Def,
    element: &Element,
    canonical: &str,
    each: u64,
) -> Vec<String> {
    let base = split_array(canonical).0;
    match element {
        Element::Int { size: size @ (1 | 2 | 4 | 8), signed } => {
            vec![format!("type: {}{size}", if *signed { "s" } else { "u" })]
        }
        Element::Enum { size } => {
            let mut lines = vec![format!("type: u{size}")];
            let named = ids.of(def, base).filter(|(of, _)| is_shown(&module.plan.defs[*of]));
            lines.extend(named.map(|(_, id)| format!("enum: {id}")));
            lines
        }
        Element::Float { size } => vec![format!("type: f{size}")],
        Element::Handle => vec!["type: u4".to_owned()],
        Element::P64 => vec!["type: u8".to_owned()],
        // With a size of its own, a type begins at its own byte 0.
        Element::Record(name) => match ids.of(def, name) {
            Some((_, id)) => vec![format!("type: {id}"), format!("size: {each}")],
            None => vec![format!("size: {each}")],
        },
        Element::Char | Element::Uuid | Element::Bytes(_) | Element::Int { .. } => {
            vec![format!("size: {each}")]
        }
    }
}

/// The bit-fields of an integer, or of bytes.
fn bit_fields(
    instances: &mut String,
    taken: &mut HashSet<String>,
    member: &Member<'_>,
    storage: &str,
) {
    let Member::Bits { offset, size, int, fields, .. } = member else { return };
    let whole = match int {
        true => storage.to_owned(),
        false => (0..*size)
            .map(|at| format!("({storage}[{at}] << {})", at * 8))
            .collect::<Vec<_>>()
            .join(" | "),
    };
    for (field, bits) in fields.iter().filter_map(|field| Some((field, field.bits?))) {
        if field.name.is_empty() {
            continue;
        }
        let low = (field.offset - offset) * 8 + bits.bit_offset;
        let mask = (1_u128 << bits.bit_width) - 1;
        let id = free(taken, snake(&field.name));
        let _ = writeln!(
            instances,
            "      {id}:\n        -orig-id: {}\n        value: '(({whole}) >> {low}) & {mask:#x}'",
            field.name
        );
    }
}

/// Kaitai's enums are of integers that are not negative.
fn is_shown(def: &Def) -> bool {
    matches!(&*def.fact, Fact::Enum { variants, .. }
        if !variants.is_empty() && variants.values().all(|value| (0..1 << 63).contains(value)))
}

/// The driver's enums, and the numbers of its calls.
fn enums(text: &mut String, module: &Module<'_>, ids: &Ids) {
    let mut all: BTreeMap<String, BTreeMap<i128, String>> = BTreeMap::new();
    for (def, id) in module.plan.defs.iter().zip(&ids.types).filter(|(def, _)| is_shown(def)) {
        if let Fact::Enum { variants, .. } = &*def.fact {
            for (name, value) in variants {
                all.entry(id.clone()).or_default().entry(*value).or_insert_with(|| name.clone());
            }
        }
    }
    for call in module.calls() {
        let number = i128::from(call.request.unwrap_or(call.number));
        let named = all.entry(format!("{}_call", call.kind)).or_default();
        named.entry(number).or_insert_with(|| call.name.to_owned());
    }
    if all.is_empty() {
        return;
    }
    text.push_str("enums:\n");
    for (id, values) in all {
        let _ = writeln!(text, "  {id}:");
        let mut taken = HashSet::new();
        for (value, name) in values {
            let id = free(&mut taken, snake(&name));
            let _ = writeln!(text, "    {value:#x}:\n      id: {id}\n      -orig-id: {name}");
        }
    }
}

/// A name in Kaitai's spelling: words of small letters and digits between underscores.
fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut id = String::new();
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at));
        let after = chars.get(at + 1);
        // `hClient`, `RMClass`: a capital begins a word behind a small letter, or before one.
        let begins = c.is_ascii_uppercase()
            && before.is_some_and(|b| {
                b.is_ascii_lowercase()
                    || b.is_ascii_uppercase() && after.is_some_and(char::is_ascii_lowercase)
            });
        if begins {
            id.push('_');
        }
        id.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    }
    let id = id.trim_start_matches('_');
    match id.chars().next() {
        Some('a'..='z') => id.to_owned(),
        _ => format!("n_{id}"),
    }
}

/// An identifier that nothing has yet, and that is no word of the languages that parsers are made for.
fn free(taken: &mut HashSet<String>, id: String) -> String {
    let id = if KEYWORDS.binary_search(&id.as_str()).is_ok() { format!("{id}_field") } else { id };
    if taken.insert(id.clone()) {
        return id;
    }
    (2..).map(|at| format!("{id}_{at}")).find(|longer| taken.insert(longer.clone())).unwrap_or(id)
}

/// Words of C++, Java, JavaScript and Python that the driver may have for names, sorted.
const KEYWORDS: [&str; 62] = [
    "and",
    "as",
    "assert",
    "async",
    "await",
    "bool",
    "break",
    "byte",
    "case",
    "char",
    "class",
    "const",
    "constructor",
    "continue",
    "def",
    "default",
    "del",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "except",
    "export",
    "extends",
    "extern",
    "final",
    "finally",
    "float",
    "for",
    "from",
    "function",
    "global",
    "goto",
    "if",
    "import",
    "in",
    "int",
    "interface",
    "is",
    "lambda",
    "let",
    "long",
    "namespace",
    "native",
    "new",
    "not",
    "or",
    "package",
    "pass",
    "private",
    "protected",
    "public",
    "return",
    "short",
    "static",
    "struct",
    "switch",
    "this",
    "union",
    "void",
    "while",
];

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        for (name, id) in [
            ("hClient", "h_client"),
            ("NVOS54_PARAMETERS", "nvos54_parameters"),
            ("pRMClassName", "p_rm_class_name"),
            ("_pad0", "pad0"),
            ("3dEngine", "n_3d_engine"),
            ("gpuId", "gpu_id"),
        ] {
            assert_eq!(snake(name), id);
        }
    }

    #[test]
    fn keywords_can_be_searched() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn names_stay_apart() {
        let mut taken = HashSet::new();
        let ids: Vec<String> =
            ["size", "size", "class"].map(|id| free(&mut taken, id.to_owned())).into();
        assert_eq!(ids, ["size", "size_2", "class_field"]);
    }
}
