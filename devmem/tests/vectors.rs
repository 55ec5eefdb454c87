//! What the C library gave for set operations, and what should have come out instead where that was
//! wrong: `tests/devmem/vectors.json` (its key `format` explains it), and every file that
//! `NVABI_DEVMEM_VECTORS` names, with colons between them.

#![allow(clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::{env, fs};

use nvabi_devmem::{
    Capability, CapabilitySet, Constraint, ConstraintName, derive, derive_all, intersect, merge,
    wire::v0,
};
use serde_json::{Value, json};

#[test]
fn vectors() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devmem/vectors.json");
    assert_eq!(check(&own), 1895);
    let more = env::var_os("NVABI_DEVMEM_VECTORS").unwrap_or_default();
    for path in env::split_paths(&more).filter(|path| path != &PathBuf::new()) {
        assert!(check(&path) > 0, "{}", path.display());
    }
}

/// Asserts every vector of a file, and returns how many.
fn check(path: &Path) -> usize {
    let text = fs::read_to_string(path).expect("a file of vectors");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let vectors = file["vectors"].as_array().expect("vectors");
    let mut wrong = Vec::new();
    for (at, vector) in vectors.iter().enumerate() {
        let wanted = vector.get("want").unwrap_or(&vector["out"]);
        let given = run(vector["op"].as_str().expect("op"), &vector["in"]);
        if given != *wanted {
            wrong.push(format!("vector {at}: {vector}\n   given: {given}"));
        }
    }
    for sample in file["serialized_samples"].as_array().into_iter().flatten() {
        let bytes = v0::write(&set(&sample["set"])).expect("a set that fits");
        assert_eq!(hex(&bytes), sample["hex"], "{sample}");
        assert_eq!(shown_set(&v0::read(&bytes).expect("a set")), sample["set"]);
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong\n{}",
        wrong.len(),
        vectors.len(),
        wrong.join("\n")
    );
    println!("{}: asserted {} vectors", path.display(), vectors.len());
    vectors.len()
}

fn run(op: &str, input: &Value) -> Value {
    let sides = || (&input[0], &input[1]);
    match op {
        "lcm" => {
            let name = ConstraintName::PITCH_ALIGNMENT;
            let [a, b] = [0, 1].map(|side| Constraint::new(name, number(&input[side])));
            a.merge(b).map_or(err(), |merged| json!({ "v": merged.value }))
        }
        "merge_constraint" => {
            let (a, b) = sides();
            let merged = constraint(a).merge(constraint(b));
            merged.map_or(err(), |merged| json!({ "ok": shown_constraint(&merged) }))
        }
        "merge_constraints" => {
            let (a, b) = sides();
            let merged = merge(&list(a, constraint), &list(b, constraint));
            merged.map_or(err(), |merged| json!({ "ok": shown(&merged, shown_constraint) }))
        }
        "intersect" => {
            let (a, b) = sides();
            let shared = intersect(&list(a, capability), &list(b, capability));
            shared.map_or(err(), |shared| json!({ "ok": shown(&shared, shown_capability) }))
        }
        "derive" => {
            let (a, b) = sides();
            json!({ "ok": shown(&derive(&list(a, set), &list(b, set)), shown_set) })
        }
        "derive_fold" => {
            let lists = list(input, |sets| list(sets, set));
            let (first, rest) = lists.split_first().expect("a list");
            let folded = rest.iter().fold(first.clone(), |folded, list| derive(&folded, list));
            // The same sets come out of all lists at once, in an order of their own.
            if !rest.is_empty() {
                assert_eq!(derive_all(&lists), derive_all(&[&folded]));
            }
            json!({ "ok": shown(&folded, shown_set) })
        }
        "serialize" => json!({ "hex": hex(&v0::write(&set(input)).expect("a set that fits")) }),
        "deserialize" => {
            let set = v0::read(&bytes(input.as_str().expect("hex")));
            set.map_or(err(), |set| json!({ "ok": shown_set(&set) }))
        }
        other => panic!("no such operation: {other}"),
    }
}

fn err() -> Value {
    json!({ "err": true })
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn list<T>(value: &Value, one: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("a list").iter().map(one).collect()
}

/// What a value is read as when it lies in the C library's structs.
fn raw(set: &Value) -> CapabilitySet {
    let mut out = Vec::new();
    let (constraints, capabilities) = (set["k"].as_array(), set["c"].as_array());
    let (constraints, capabilities) = (constraints.expect("k"), capabilities.expect("c"));
    out.extend((constraints.len() as u32).to_le_bytes());
    out.extend((capabilities.len() as u32).to_le_bytes());
    for constraint in constraints {
        out.extend((number(&constraint[0]) as u32).to_le_bytes());
        out.extend((constraint.get(2).map_or(0, number) as u32).to_le_bytes());
        out.extend(number(&constraint[1]).to_le_bytes());
    }
    for capability in capabilities {
        let words = list(&capability[3], number);
        out.extend((number(&capability[0]) as u32).to_le_bytes());
        out.extend((number(&capability[1]) as u16).to_le_bytes());
        out.extend((words.len() as u16).to_le_bytes());
        out.push(number(&capability[2]) as u8);
        out.extend(&(capability.get(4).map_or(0, number) as u32).to_le_bytes()[..3]);
        words.iter().for_each(|word| out.extend((*word as u32).to_le_bytes()));
    }
    v0::read(&out).expect("bytes of a set")
}

fn set(value: &Value) -> CapabilitySet {
    raw(value)
}

fn constraint(value: &Value) -> Constraint {
    raw(&json!({ "k": [value], "c": [] })).constraints[0]
}

fn capability(value: &Value) -> Capability {
    raw(&json!({ "k": [], "c": [value] })).capabilities[0].clone()
}

fn shown<T>(list: &[T], one: impl Fn(&T) -> Value) -> Value {
    list.iter().map(one).collect()
}

fn shown_constraint(constraint: &Constraint) -> Value {
    json!([constraint.name.0, constraint.value])
}

fn shown_capability(capability: &Capability) -> Value {
    let Capability { vendor, name, required, payload } = capability;
    json!([vendor, name, u8::from(*required), payload])
}

fn shown_set(set: &CapabilitySet) -> Value {
    json!({
        "k": shown(&set.constraints, shown_constraint),
        "c": shown(&set.capabilities, shown_capability),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digits).collect()
}
