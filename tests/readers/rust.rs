//! rustc as a reader: the emitted types, compiled with their own assertions and with others that
//! are written from the facts and not from the emitter's tables.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::emit::{self, Options};
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::model::{Facts, RecordKind, Surface};

use super::{Subject, root, scratch};

/// A crate that depends on nvabi as a stranger would.
pub(crate) struct Crate {
    name: &'static str,
    /// Features of nvabi.
    features: Vec<String>,
    /// Module name and text.
    pub(crate) modules: Vec<(String, String)>,
    /// Body of `main`.
    pub(crate) main: String,
}

impl Crate {
    pub(crate) fn new(name: &'static str, features: &[&str]) -> Self {
        let features = features.iter().map(|feature| (*feature).to_owned()).collect();
        Self { name, features, modules: Vec::new(), main: String::new() }
    }

    /// Adds a module. Names of surfaces have hyphens.
    pub(crate) fn push(&mut self, module: &str, text: String) {
        self.modules.push((module.replace('-', "_"), text));
    }

    /// Compiles, and runs when there is something to run; `Err` with what cargo said.
    pub(crate) fn build(&self) -> Result<(), String> {
        let folder = scratch(self.name);
        let source = folder.join("src");
        fs::create_dir_all(&source).unwrap();
        let manifest = format!(
            "[package]\nname = \"{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
             [workspace]\n\
             [dependencies]\nnvabi = {{ path = {:?}, features = {:?} }}\n\
             [profile.dev]\ndebug = 0\nincremental = false\n",
            self.name,
            root(),
            self.features,
        );
        write(&folder.join("Cargo.toml"), &manifest);
        // The versions of the workspace, so that nothing new is fetched.
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        let mut main = String::from(
            "#![allow(dead_code, unused, non_camel_case_types, non_snake_case, non_upper_case_globals)]\n",
        );
        for (name, text) in &self.modules {
            write(&source.join(format!("{name}.rs")), text);
            let _ = writeln!(main, "mod {name};");
        }
        let _ = writeln!(main, "fn main() {{\n{}}}", self.main);
        write(&source.join("main.rs"), &main);
        let verb = if self.main.is_empty() { "check" } else { "run" };
        let output = Command::new(env!("CARGO"))
            .arg(verb)
            .arg("--quiet")
            .current_dir(&folder)
            // Shared with `tests/examples.rs`, which builds much of the same.
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"))
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(()),
            false => {
                let told = String::from_utf8_lossy(&output.stderr);
                Err(told.lines().take(120).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// Leaves equal files alone, so that cargo does too.
fn write(path: &Path, text: &str) {
    if !fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        fs::write(path, text).unwrap();
    }
}

pub(crate) fn own(subject: &Subject) {
    let facts = subject.facts(subject.first_target());
    let mut krate = Crate::new("own", &["zerocopy"]);
    for (module, zerocopy) in [("plain", false), ("with_zerocopy", true)] {
        krate.push(module, emitted(subject, &facts, zerocopy).unwrap());
        let types = format!("crate::{module}::v1_1");
        let text = assertions(&facts, &subject.spec.surfaces[0].name, &types);
        krate.push(&format!("facts_of_{module}"), text);
        krate.main += &accessors(&facts.surfaces["rm"], &types);
    }
    let built = krate.build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
    // An assertion that cannot fail guards nothing.
    let mut wrong = facts.clone();
    wrong.surfaces.get_mut("rm").unwrap().records.get_mut("NVT_SWAPS").unwrap().fields_mut()[2]
        .offset -= 4;
    let text = assertions(&wrong, "rm", "crate::plain::v1_1");
    krate.modules.retain(|(name, _)| name == "plain");
    krate.push("wrong", text);
    krate.main.clear();
    let told = krate.build().unwrap_err();
    assert!(told.contains("offset_of!(crate::plain::v1_1::NVT_SWAPS, address)"), "{told}");
}

fn emitted(subject: &Subject, facts: &Facts, zerocopy: bool) -> Result<String, Report> {
    let mut lock = Lock::default();
    lock.insert(facts, "0".into());
    let known = [subject.spec.driver.clone()];
    let options = Options { nvabi: "::nvabi", family: "", full: true, zerocopy, known: &known };
    emit::emit(&lock, &[&subject.spec], options)
}

/// The driver's own headers: everything emitted, and against it the facts of a fresh reading.
pub(crate) fn real(subject: &Subject) {
    let facts = subject.facts(subject.first_target());
    let driver = format!("driver-{}", subject.spec.driver);
    let mut krate = Crate::new("real", &[&driver, "full"]);
    for surface in subject.spec.surfaces.iter() {
        let types = format!("nvabi::abi::v{}", subject.tag.ident());
        let text = assertions(&facts, &surface.name, &types);
        krate.push(&format!("facts_of_{}", surface.name), text);
    }
    let built = krate.build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
}

/// Compile-time assertions of size, alignment and offsets of a surface's records.
///
/// A record that another surface declares otherwise has another Rust name, and is left to the
/// assertions of the emitter.
fn assertions(facts: &Facts, surface: &str, types: &str) -> String {
    let mut text = String::from("use core::mem::{align_of, offset_of, size_of};\n");
    for (name, record) in &facts.surfaces[surface].records {
        if is_contested(facts, surface, name) {
            continue;
        }
        let ty = format!("{types}::{}", name.replace("::", "_"));
        let _ = writeln!(text, "const _: () = assert!(size_of::<{ty}>() == {});", record.size);
        let _ = writeln!(text, "const _: () = assert!(align_of::<{ty}>() == {});", record.align);
        let fields = record.fields.iter().filter(|f| !f.name.is_empty() && f.bits.is_none());
        // The UUID is nvabi's own type.
        for field in fields.filter(|_| !matches!(name.as_str(), "NvUuid" | "NvProcessorUuid")) {
            let (member, offset) = (identifier(&field.name), field.offset);
            let _ =
                writeln!(text, "const _: () = assert!(offset_of!({ty}, {member}) == {offset});");
        }
    }
    text
}

/// Whether an earlier or later surface has a record of that name with another layout.
pub(crate) fn is_contested(facts: &Facts, surface: &str, name: &str) -> bool {
    let own = &facts.surfaces[surface].records[name];
    let others = facts.surfaces.iter().filter(|(other, _)| *other != surface);
    let mut records = others.filter_map(|(_, surface)| surface.records.get(name));
    records.any(|other| !other.same_layout(own))
}

/// The Rust name of a field.
pub(crate) fn identifier(name: &str) -> String {
    match name {
        "self" | "Self" | "super" | "crate" => format!("{name}_"),
        "type" | "match" | "in" | "loop" | "where" | "ref" | "use" | "mod" | "move" | "priv" => {
            format!("r#{name}")
        }
        _ => name.to_owned(),
    }
}

/// Sets each bit-field through its accessor and looks at the bytes.
fn accessors(surface: &Surface, types: &str) -> String {
    let mut text = String::new();
    let structs = surface.records.iter().filter(|(_, r)| r.kind == RecordKind::Struct);
    for (name, record) in structs {
        for field in record.fields.iter().filter(|field| !field.name.is_empty()) {
            let Some(bits) = field.bits else { continue };
            let ty = format!("{types}::{}", name.replace("::", "_"));
            let (first, size) = (field.offset * 8 + bits.bit_offset, record.size);
            let (get, set) = (identifier(&field.name), format!("set_{}", field.name));
            let _ = writeln!(
                text,
                "{{
    let mut value: {ty} = unsafe {{ core::mem::zeroed() }};
    value.{set}(!0);
    let got = value.{get}();
    let bytes: [u8; {size}] = unsafe {{ core::mem::transmute(value) }};
    let set: Vec<u64> = (0..{size} * 8).filter(|b| bytes[*b as usize / 8] >> (b % 8) & 1 == 1).collect();
    assert_eq!(set, ({first}..{first} + {width}).collect::<Vec<u64>>(), \"{name}.{get}\");
    assert!(got as i64 == -1 || got as u64 == (!0u64 >> (64 - {width})), \"{name}.{get}: {{got}}\");
}}",
                width = bits.bit_width,
            );
        }
    }
    text
}
