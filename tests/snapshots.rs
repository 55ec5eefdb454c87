//! The reviewed rendering of what the lock says and what is emitted for it.
//!
//! A new driver changes a few lines in `snapshots/`; those lines are what a pull request is about.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use nvabi_pipeline::emit::{self, Options};
use nvabi_pipeline::lint;
use nvabi_pipeline::lock::{self, Lock};
use nvabi_pipeline::model::{Facts, Surface, split_array};
use nvabi_pipeline::spec::{ItemKind, Pointer, Spec};
use nvabi_reports::render;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(family: &str) -> Lock {
    let folder = lock::folder(&root().join("abi-specs"), family);
    let (lock, report) = lock::read(&folder).unwrap();
    assert_eq!(report.to_string(), "", "the lock was edited");
    lock
}

fn locked() -> &'static Lock {
    static LOCK: LazyLock<Lock> = LazyLock::new(|| read(""));
    &LOCK
}

/// The lock that a spec is about.
fn lock_of(spec: &Spec) -> &'static Lock {
    static TEGRA: LazyLock<Lock> = LazyLock::new(|| read("tegra"));
    match spec.family() {
        "tegra" => &TEGRA,
        _ => locked(),
    }
}

fn specs() -> Vec<Spec> {
    Spec::load_folder(&root().join("abi-specs")).unwrap()
}

/// Compares with `snapshots/NAME.snap`.
fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The record that a parameter's name stands for, and the surface that has it.
fn record<'f>(facts: &'f Facts, spec: &Spec, name: &str) -> Option<(&'f Surface, &'f str)> {
    spec.surfaces.iter().filter_map(|s| facts.surfaces.get(&s.name)).find_map(|surface| {
        let name = surface.aliases.get(name).map_or(name, |alias| alias.ty.as_str());
        surface.records.get_key_value(name).map(|(name, _)| (surface, name.as_str()))
    })
}

/// Every record in the closure of a section's items, by name.
fn layouts(facts: &Facts, spec: &Spec, kind: ItemKind) -> String {
    let items = spec.items_at(&facts.tag).filter(|item| item.kind == kind);
    let roots = items.flat_map(|item| item.params.iter().chain(item.pointees()));
    let mut pending: Vec<_> = roots.filter_map(|named| record(facts, spec, &named.name)).collect();
    let mut seen = BTreeSet::new();
    let mut texts = Vec::new();
    while let Some((surface, name)) = pending.pop() {
        if !seen.insert(name) {
            continue;
        }
        let found = &surface.records[name];
        // The line in the header moves with every release; the layout does not.
        let text = render::record(name, found);
        let source = format!(" // {}", found.source);
        texts.push((name, text.replacen(&source, &format!(" // {}", found.source.path), 1)));
        let bases = found.fields.iter().map(|field| split_array(&field.canonical).0);
        let inner = bases.filter_map(|base| surface.records.get_key_value(base));
        pending.extend(inner.map(|(name, _)| (surface, name.as_str())));
    }
    texts.sort();
    texts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
}

/// The layouts of every item, for the newest tag of each driver, in pahole's columns.
#[test]
fn layouts_of_the_items() {
    for spec in specs() {
        let lock = lock_of(&spec);
        let newest = lock.tags.iter().rfind(|t| t.tag.branch() == spec.driver).unwrap();
        let facts = lock.facts(&newest.tag).unwrap();
        for kind in ItemKind::ALL {
            let text = layouts(&facts, &spec, kind);
            if !text.is_empty() {
                snapshot(&format!("{}-{}", spec.name, kind.section()), &text);
            }
        }
    }
}

/// Pointers and the descriptors that they lead to, as `maps->dmabuf_fd`.
fn roles(prefix: &str, behind: &[Pointer], fds: &mut Vec<String>, pointers: &mut Vec<String>) {
    for pointer in behind {
        let path = format!("{prefix}{}", pointer.field.name);
        pointers.push(path.clone());
        fds.extend(pointer.fds.iter().map(|fd| format!("{path}->{}", fd.name)));
        roles(&format!("{path}->"), &pointer.pointers, fds, pointers);
    }
}

/// The numbers and parameters of every item, for the newest tag of each driver.
#[test]
fn calls_of_the_items() {
    for spec in specs() {
        let text: Vec<String> = (spec.items.iter())
            .map(|item| {
                let params: Vec<&str> = item.params.iter().map(|p| p.name.as_str()).collect();
                let mut fds: Vec<String> = item.fds.iter().map(|p| p.name.clone()).collect();
                let mut pointers = Vec::new();
                roles("", &item.pointers, &mut fds, &mut pointers);
                format!(
                    "{:<8} {:<60} {} fds [{}] pointers [{}]",
                    item.kind.section(),
                    item.name,
                    params.join(" | "),
                    fds.join(", "),
                    pointers.join(", ")
                )
            })
            .collect();
        snapshot(&format!("{}-calls", spec.name), &text.join("\n"));
    }
}

/// Items that show each thing the emitter does.
const FEW: &str = r#"
driver = "550"

[surface.rm]
headers = ["x.h"]

[surface.uvm]
headers = ["x.h"]

[frontend]
NV_ESC_RM_ALLOC = { params = ["NVOS21_PARAMETERS", "NVOS64_PARAMETERS"], caps = ["compute"] }
NV_ESC_RM_CONTROL = { params = "NVOS54_PARAMETERS", pointers = [{ field = "params", len = "paramsSize", dir = "inout" }] }

[uvm]
UVM_REGISTER_GPU_VASPACE = { params = "UVM_REGISTER_GPU_VASPACE_PARAMS", fds = ["rmCtrlFd"] }

[control]
NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS = { params = "NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS" }

[class]
NV01_ROOT = { params = "NvHandle" }
NV01_MEMORY_SYSTEM = { params = "NV_MEMORY_ALLOCATION_PARAMS" }

[constants]
names = ["NVOS02_FLAGS_PHYSICALITY*", "NV_OK"]
"#;

fn few(text: &str) -> Spec {
    let files = [("driver-550".to_owned(), "few.toml".to_owned(), text.to_owned())];
    Spec::parse_all(&files).unwrap().remove(0)
}

#[test]
fn emitted_code() {
    let spec = few(FEW);
    let known = ["550".to_owned()];
    let options =
        Options { nvabi: "::nvabi", family: "", full: false, zerocopy: false, known: &known };
    let text = emit::emit(locked(), &[&spec], options).unwrap();
    snapshot("emitted", &text);
}

#[test]
fn lint_complaints() {
    let spec = few(&FEW
        .replace("NV_ESC_RM_CONTROL", "NV_ESC_RM_CONTROLS")
        .replace("\"NVOS64_PARAMETERS\"", "\"NVOS64_PARAMS\"")
        .replace(", fds = [\"rmCtrlFd\"]", "")
        .replace("field = \"params\"", "field = \"parms\"")
        .replace("len = \"paramsSize\"", "len = \"size\"")
        .replace(
            "NV01_MEMORY_SYSTEM = { params = \"NV_MEMORY_ALLOCATION_PARAMS\" }",
            "NV01_MEMORY_SYSTEM = {}",
        ));
    snapshot("lint", &lint::lint(locked(), &spec).to_string());
}
