//! rustc as a reader of the calls that feature `full` brings: each that the lock knows the parameters
//! of is a type, with the number and the parameters that the lock has.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use nvabi_pipeline::lock;
use nvabi_pipeline::model::{CALLS, CallKind, Facts};
use nvabi_pipeline::spec::{ItemKind, Spec};

use super::rust::Crate;
use super::{REAL, ok, root};

/// What a call has to be, as bounds; the numbers are compared when they are evaluated.
const CHECKS: &str = "
use nvabi::call::{Accepts, Call, Class, Control, Info};
pub const fn control<C: Control + Accepts<P>, P>(number: u32, roles_known: bool) {
    assert!(C::CMD == number && C::INFO.roles_known == roles_known);
}
pub const fn class<C: Class + Accepts<P>, P>(number: u32, roles_known: bool) {
    assert!(C::CLASS == number && C::INFO.roles_known == roles_known);
}
pub const fn count(parts: &[&[&Info]]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < parts.len() {
        sum += parts[i].len();
        i += 1;
    }
    sum
}
";

/// The calls of one kind as assertions, and how many there are.
fn calls(facts: &Facts, spec: &Spec, kind: ItemKind) -> (String, usize) {
    let called = if kind == ItemKind::Class { CallKind::Class } else { CallKind::Command };
    let items = spec.items_at(&facts.tag).filter(|item| item.kind == kind);
    let stated: BTreeSet<&str> = items.map(|item| item.name.as_str()).collect();
    let locked = facts.surfaces[CALLS].calls.iter();
    let mapped = locked.filter(|(_, call)| call.takes.kind == called && call.takes.is_mapped());
    let (mut text, mut names) = (String::new(), stated.clone());
    for (name, call) in mapped {
        names.insert(name);
        let number = facts.surfaces["rm"].constants[name].value;
        let is_stated = stated.contains(name.as_str());
        let params = match call.takes.params.as_deref() {
            // What the spec says where the driver's tables say otherwise is for `nvabi lint`.
            _ if is_stated => continue,
            None => "()".to_owned(),
            Some("NvHandle") => "nvabi::Handle".to_owned(),
            Some("NvU32") => "u32".to_owned(),
            Some(ty) => format!("nvabi::r550::{ty}"),
        };
        let (section, known) = (kind.section(), call.takes.params.is_none());
        let _ = writeln!(
            text,
            "const _: () = {section}::<nvabi::r550::{section}::{name}, {params}>({number}, {known});"
        );
    }
    (text, names.len())
}

/// The tables of the newest tag of 550, without its headers: the lock says what is in it.
#[test]
fn every_call_of_the_lock_is_a_type() {
    let (lock, report) = ok(lock::read(&lock::folder(&root().join("abi-specs"), "")));
    assert_eq!(report.to_string(), "");
    let facts = lock.facts(&REAL.parse().unwrap()).unwrap();
    let specs = ok(Spec::load_folder(&root().join("abi-specs")));
    let spec = specs.iter().find(|spec| spec.driver == "550").unwrap();
    let mut krate = Crate::new("full", &["driver-550", "full", "rm"]);
    let mut text = CHECKS.to_owned();
    for (kind, list) in [(ItemKind::Control, "control"), (ItemKind::Class, "class")] {
        let (assertions, count) = calls(&facts, spec, kind);
        assert!(assertions.lines().count() > 50, "{list}: the lock adds next to nothing");
        text += &assertions;
        let _ =
            writeln!(text, "const _: () = assert!(count(nvabi::r550::{list}::ALL) == {count});");
        println!("{count} of {list}");
    }
    krate.push("calls", text.clone());
    let built = krate.build();
    assert!(built.is_ok(), "{}", built.unwrap_err());
    // An assertion that cannot fail guards nothing.
    let wrong = text.replacen(", false);", ", true);", 1);
    krate.modules = vec![("calls".into(), wrong)];
    let told = krate.build().unwrap_err();
    assert!(told.contains("C::INFO.roles_known == roles_known"), "{told}");
}
