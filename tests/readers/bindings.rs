//! bindgen as a reader: its types, compiled, against our facts.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::rust::{Crate, identifier};
use super::{Subject, c, scratch, write_tree};

pub(crate) fn agree(subject: &Subject) {
    let facts = subject.facts(subject.first_target());
    let name = if subject.name == "own" { "bindgen_own" } else { "bindgen_real" };
    let mut krate = Crate::new(name, &[]);
    let mut opaque: BTreeSet<String> = BTreeSet::new();
    for unit in subject.units().iter().filter(|unit| unit.surface().language == "c") {
        let surface = unit.surface();
        let tree = scratch(name).join("tree").join(&surface.name);
        write_tree(unit, &tree);
        let described = c::Unit {
            name: &surface.name,
            root: &tree,
            headers: unit.headers(),
            include: &surface.include,
            defines: &surface.defines,
            prelude: &surface.prelude,
            language: &surface.language,
        };
        let text = c::includes(&described);
        let bindings = bindgen::Builder::default()
            .header_contents("unit.h", &text)
            .clang_args(c::arguments(&described))
            .clang_args(c::stand_ins(&tree))
            .clang_arg(format!("--target={}", subject.first_target()))
            .clang_arg("-w")
            .ignore_functions()
            .blocklist_var(".*")
            .blocklist_item("max_align_t")
            .opaque_type(WRONG.join("|"))
            .derive_debug(false)
            .layout_tests(true)
            .formatter(bindgen::Formatter::Prettyplease)
            .generate()
            .unwrap_or_else(|error| panic!("{}: {error}", surface.name))
            .to_string();
        let (asserted, left_out) = assertions(&facts.surfaces[&surface.name].records, &bindings);
        opaque.extend(left_out);
        krate.push(&surface.name, format!("{bindings}\n{asserted}"));
    }
    let told: Vec<&str> = opaque.iter().map(String::as_str).collect();
    let built = krate.build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
    assert_eq!(told, [""; 0]);
    if subject.name == "own" {
        // An assertion that cannot fail guards nothing.
        let mut wrong = facts.surfaces["rm"].records.clone();
        wrong.retain(|name, _| name == "NVT_SWAPS");
        wrong.get_mut("NVT_SWAPS").unwrap().fields_mut()[1].offset += 4;
        let bindings = &krate.modules[0].1;
        let text = format!("{bindings}\n{}", assertions(&wrong, bindings).0);
        krate.modules[0].1 = text;
        let told = krate.build().unwrap_err();
        assert!(told.contains("offset_of!(NVT_SWAPS, size) == 8"), "{told}");
    }
}

/// Records of our own headers that bindgen is wrong about: Rust has neither a packed type that
/// holds an aligned one nor one that is both packed and aligned, and bindgen writes them all the
/// same. The C compilers agree with our facts.
const WRONG: [&str; 2] = ["NVT_PACKED_HOLDS_ALIGNED", "NVT_PACKED_BUT_ALIGNED"];

/// Records that C declares within another, and that bindgen names by both.
const WITHIN: [&str; 1] = ["nvt_defined_within"];

/// Assertions over bindgen's types, and the fields that they leave out because it has none.
fn assertions(
    records: &std::collections::BTreeMap<String, nvabi_pipeline::model::Record>,
    bindings: &str,
) -> (String, Vec<String>) {
    let mut text = String::new();
    let mut left_out = Vec::new();
    let named = records.iter().filter(|(name, _)| {
        let name = name.as_str();
        !name.contains("::") && !WITHIN.contains(&name) && !WRONG.contains(&name)
    });
    for (name, record) in named {
        let _ = writeln!(
            text,
            "const _: () = assert!(core::mem::size_of::<{name}>() == {});\n\
             const _: () = assert!(core::mem::align_of::<{name}>() == {});",
            record.size, record.align
        );
        let members = members(bindings, name);
        for field in record.fields.iter().filter(|f| !f.name.is_empty() && f.bits.is_none()) {
            // It adds an underscore to the names that Rust keeps for itself.
            let candidates = [identifier(&field.name), format!("{}_", field.name)];
            let rust = candidates.iter().find(|name| members.contains(name.as_str()));
            match rust {
                Some(rust) => {
                    let offset = field.offset;
                    let _ = writeln!(
                        text,
                        "const _: () = assert!(core::mem::offset_of!({name}, {rust}) == {offset});"
                    );
                }
                None => left_out.push(format!("{name}.{}", field.name)),
            }
        }
    }
    (text, left_out)
}

/// The members of one of bindgen's records, which may have its tag for a name.
fn members<'b>(bindings: &'b str, name: &str) -> BTreeSet<&'b str> {
    let body = |name: &str| {
        let start = ["struct", "union"]
            .iter()
            .find_map(|keyword| bindings.find(&format!("pub {keyword} {name} {{")))?;
        bindings[start..].split("\n}").next()
    };
    let aliased = || {
        let alias = format!("pub type {name} = ");
        let rest = &bindings[bindings.find(&alias)? + alias.len()..];
        body(rest.split(';').next()?)
    };
    let body = body(name).or_else(aliased).unwrap_or_default();
    let lines = body.lines().filter_map(|line| line.trim().strip_prefix("pub "));
    lines.filter_map(|line| line.split(':').next()).collect()
}
