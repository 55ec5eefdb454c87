//! Calls that only the lock knows, as feature `full` emits them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use nvabi_pipeline::emit::{self, Options};
use nvabi_pipeline::lock::{self, Fact, Lock};
use nvabi_pipeline::model::{
    CALLS, CallKind, CallParams, Facts, Field, ParamSource, RecordKind, Source, Surface,
};
use nvabi_pipeline::spec::Spec;

const SPEC: &str = r#"
driver = "1"

[surface.rm]
headers = ["x.h"]
calls = ["x.c"]

[control]
NVT_CMD_STATED = { params = "NVT_NARROW" }
NVT_CMD_LATE = { params = "NVT_NARROW", since = "1.2" }

[class]
NVT_CLASS_STATED = { params = "NVT_NARROW" }
"#;

fn source() -> Source {
    Source { path: "x.h".into(), line: 1 }
}

fn field(name: &str, declared: &str, canonical: &str, offset: u64, size: u64) -> Field {
    let (name, ty, canonical) = (name.into(), declared.into(), canonical.into());
    Field { name, ty, canonical, offset, size, bits: None }
}

fn record(surface: &mut Surface, name: &str, kind: RecordKind, fields: Vec<Field>) {
    let size = fields.iter().map(|f| f.offset + f.size).max().unwrap();
    let align = if size % 8 == 0 { 8 } else { 4 };
    lock::add(surface, name, &Fact::Record { kind, size, align, fields: fields.into() }, source());
}

/// A command or class by number, and what the driver's tables say of it.
fn call(facts: &mut Facts, kind: &str, name: &str, number: i128, params: Option<&str>, how: &str) {
    let rm = facts.surfaces.entry("rm".into()).or_default();
    lock::add(rm, name, &Fact::Constant(number), source());
    let takes = CallParams::new(
        CallKind::from_word(kind).unwrap(),
        ParamSource::from_word(how).unwrap(),
        params.map(str::to_owned),
    );
    let calls = facts.surfaces.entry(CALLS.into()).or_default();
    lock::add(calls, name, &Fact::Call(takes), source());
}

/// A driver with every sort of call; in 1.2 one of them takes something else.
fn facts(tag: &str) -> Facts {
    let mut rm = Surface::default();
    let word = || field("a", "NvU32", "unsigned int", 0, 4);
    record(&mut rm, "NVT_NARROW", RecordKind::Struct, vec![word()]);
    let wide = field("q", "NvU64", "unsigned long long", 0, 8);
    record(&mut rm, "NVT_CHOICE", RecordKind::Union, vec![word(), wide]);
    let choice = field("c", "NVT_CHOICE[2]", "NVT_CHOICE[2]", 0, 16);
    record(&mut rm, "NVT_WIDE", RecordKind::Struct, vec![choice]);
    let mut facts = Facts { tag: tag.parse().unwrap(), surfaces: [("rm".into(), rm)].into() };
    let moved = if tag == "1.1" { "NVT_NARROW" } else { "NVT_WIDE" };
    for (name, number, params, how) in [
        ("NVT_CMD_STATED", 1, Some("NVT_NARROW"), "finn"),
        ("NVT_CMD_LATE", 2, Some("NVT_NARROW"), "finn"),
        ("NVT_CMD_NARROW", 3, Some("NVT_NARROW"), "table"),
        ("NVT_CMD_WIDE", 4, Some("NVT_WIDE"), "name"),
        ("NVT_CMD_NONE", 5, None, "null"),
        ("NVT_CMD_NOBODY_KNOWS", 6, None, "no-evidence"),
        ("NVT_CMD_MOVED", 7, Some(moved), "finn"),
    ] {
        call(&mut facts, "command", name, number, params, how);
    }
    call(&mut facts, "class", "NVT_CLASS_STATED", 8, Some("NVT_NARROW"), "list");
    call(&mut facts, "class", "NVT_CLASS", 9, Some("NVT_WIDE"), "list");
    call(&mut facts, "class", "NVT_CLASS_GONE", 10, None, "no-resource");
    facts
}

fn emitted(full: bool) -> String {
    let mut lock = Lock::default();
    ["1.1", "1.2"].iter().for_each(|tag| lock.insert(&facts(tag), (*tag).into()));
    let files = [("driver-1".to_owned(), "driver-1.toml".to_owned(), SPEC.to_owned())];
    let spec = Spec::parse_all(&files).unwrap().remove(0);
    let known = ["1".to_owned()];
    let options = Options { nvabi: "::nvabi", family: "", full, zerocopy: false, known: &known };
    emit::emit(&lock, &[&spec], options).unwrap_or_else(|report| panic!("{report}"))
}

/// Of each type of a call, in the order of the modules: the module, whether its roles are known, and
/// what it is said to accept and to be.
fn types(text: &str, name: &str) -> Vec<String> {
    let mut module = "";
    let mut found = Vec::new();
    let mut blocks = text.split("\npub mod ");
    blocks.next();
    for block in blocks {
        if block.starts_with('v') {
            module = block.split(' ').next().unwrap();
        }
        if !block.contains(&format!("pub enum {name} {{}}")) {
            continue;
        }
        let at = block.find(&format!("Call for {name} ")).unwrap();
        let known = block[at..].split("roles_known: ").nth(1).unwrap().split(',').next().unwrap();
        let accepts = block.split("Accepts<").find(|rest| rest.contains(&format!("> for {name} ")));
        let accepts = accepts.unwrap().split('>').next().unwrap().rsplit("::").next().unwrap();
        let free = block.contains(&format!("PointerFree for {name} "));
        found.push(format!("{module} known {known}, takes {accepts}, pointer-free {free}"));
    }
    found
}

#[test]
fn what_the_lock_knows_is_a_type() {
    let text = emitted(true);
    for (name, wanted) in [
        ("NVT_CMD_STATED", vec!["v1_1 known true, takes NVT_NARROW, pointer-free true"]),
        ("NVT_CMD_NARROW", vec!["v1_1 known false, takes NVT_NARROW, pointer-free true"]),
        ("NVT_CMD_WIDE", vec!["v1_1 known false, takes NVT_WIDE, pointer-free false"]),
        ("NVT_CMD_NONE", vec!["v1_1 known true, takes (), pointer-free true"]),
        ("NVT_CLASS_STATED", vec!["v1_1 known true, takes NVT_NARROW, pointer-free true"]),
        ("NVT_CLASS", vec!["v1_1 known false, takes NVT_WIDE, pointer-free false"]),
        // What nobody knows the parameters of, or is no class, is none.
        ("NVT_CMD_NOBODY_KNOWS", vec![]),
        ("NVT_CLASS_GONE", vec![]),
    ] {
        assert_eq!(types(&text, name), wanted, "{name}");
    }
}

#[test]
fn each_tag_has_its_own() {
    let text = emitted(true);
    let late = [
        "v1_1_until_1_2 known false, takes NVT_NARROW, pointer-free true",
        "v1_2 known true, takes NVT_NARROW, pointer-free true",
    ];
    assert_eq!(types(&text, "NVT_CMD_LATE"), late, "the spec speaks for the tags it names");
    let moved = [
        "v1_1_until_1_2 known false, takes NVT_NARROW, pointer-free true",
        "v1_2 known false, takes NVT_WIDE, pointer-free false",
    ];
    assert_eq!(types(&text, "NVT_CMD_MOVED"), moved);
}

/// The trait of all drivers has what the specs name; the other parameters are records as well.
#[test]
fn the_trait_of_drivers_stays_as_it_is() {
    let (all, few) = (emitted(true), emitted(false));
    let named = |text: &str| text.lines().filter(|line| line.starts_with("type NVT_")).count();
    assert_eq!(named(&all), named(&few));
    let records = |text: &str| text.split("parameters!(").nth(1).unwrap().contains("NVT_WIDE");
    assert!(records(&all) && !records(&few));
}

#[test]
fn without_full_there_is_what_the_specs_name() {
    let text = emitted(false);
    assert_eq!(text.matches("impl nvabi::call::Call for ").count(), 3);
    assert!(!text.contains("roles_known: false"));
    assert_eq!(types(&text, "NVT_CMD_LATE").len(), 1);
}
