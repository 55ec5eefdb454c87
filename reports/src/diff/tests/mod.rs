//! One small pair of drivers for each sort of change.

mod properties;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Class, Counts, Diff, FieldChange, Instead, RecordChange, Role, Scope, Side, TypeChange,
};
use nvabi_pipeline::lock::{Fact, add};
use nvabi_pipeline::model::{
    Access, Bits, CallKind, CallParams, Caller, Facts, Field, ParamSource, RecordKind, Source,
    Surface,
};
use nvabi_pipeline::spec::{ItemKind, Spec};

fn spec(items: &str) -> Spec {
    let text = format!("driver = \"1\"\n[surface.rm]\nheaders = [\"a.h\"]\n{items}");
    let files = [("driver-1".to_owned(), "driver-1.toml".to_owned(), text)];
    Spec::parse_all(&files).unwrap().remove(0)
}

/// A field from `offset size name type`, where the type may be `declared = canonical`.
fn field(text: &str) -> Field {
    let mut words = text.splitn(4, ' ');
    let mut next = || words.next().unwrap();
    let (place, size, name, types) = (next(), next().parse().unwrap(), next(), next());
    let (offset, bits) = match place.split_once('.') {
        None => (place, None),
        Some((offset, bits)) => {
            let (bit, width) = bits.split_once(':').unwrap();
            let bits = Bits { bit_offset: bit.parse().unwrap(), bit_width: width.parse().unwrap() };
            (offset, Some(bits))
        }
    };
    let (ty, canonical) = types.split_once(" = ").unwrap_or((types, types));
    let name = if name == "-" { "" } else { name };
    let (name, ty, canonical) = (name.to_owned(), ty.to_owned(), canonical.to_owned());
    Field { name, ty, canonical, offset: offset.parse().unwrap(), size, bits }
}

#[derive(Default)]
struct Driver(Surface);

impl Driver {
    fn with(mut self, name: &str, fact: &Fact) -> Self {
        let line = u32::try_from(self.0.records.len()).unwrap() + 1;
        add(&mut self.0, name, fact, Source { path: "a.h".into(), line });
        self
    }

    fn record(self, name: &str, kind: RecordKind, size: u64, align: u64, fields: &[&str]) -> Self {
        let fields = fields.iter().map(|text| field(text)).collect();
        self.with(name, &Fact::Record { kind, size, align, fields })
    }

    fn structure(self, name: &str, size: u64, fields: &[&str]) -> Self {
        self.record(name, RecordKind::Struct, size, 4, fields)
    }

    fn union(self, name: &str, size: u64, fields: &[&str]) -> Self {
        self.record(name, RecordKind::Union, size, 4, fields)
    }

    fn constant(self, name: &str, value: i128) -> Self {
        self.with(name, &Fact::Constant(value))
    }

    fn enumeration(self, name: &str, variants: &[(&str, i128)]) -> Self {
        let variants = variants.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.with(name, &Fact::Enum { size: 4, variants })
    }

    /// A command or class, as the driver's sources tell of it.
    fn call(self, name: &str, number: i128, kind: &str, how: &str, params: Option<&str>) -> Self {
        let takes = CallParams::new(
            CallKind::from_word(kind).unwrap(),
            ParamSource::from_word(how).unwrap(),
            params.map(str::to_owned),
        );
        self.constant(name, number).with(name, &Fact::Call(takes))
    }

    fn alias(self, name: &str, ty: &str, size: u64) -> Self {
        self.with(name, &Fact::Alias { ty: ty.to_owned(), size })
    }

    fn facts(self, tag: &str) -> Facts {
        let surfaces = BTreeMap::from([("rm".to_owned(), self.0)]);
        Facts { tag: tag.parse().unwrap(), surfaces }
    }
}

fn compare(from: Driver, to: Driver, items: &str, scope: Scope) -> Diff {
    let (from, to, spec) = (from.facts("1.1"), to.facts("1.2"), spec(items));
    let (from, to) = (Side { facts: &from, spec: &spec }, Side { facts: &to, spec: &spec });
    let found = super::diff(from, to, scope);
    // Whatever is found, it is found the other way round as well.
    assert_eq!(super::diff(to, from, scope), found.reversed());
    assert_eq!(found.reversed().reversed(), found);
    assert!(super::diff(from, from, scope).is_empty());
    found
}

fn compare_names(from: Driver, to: Driver, items: &str, names: &[&str]) -> (Diff, Counts) {
    let (from, to, spec) = (from.facts("1.1"), to.facts("1.2"), spec(items));
    let (from, to) = (Side { facts: &from, spec: &spec }, Side { facts: &to, spec: &spec });
    super::diff_of(from, to, &names.iter().copied().collect())
}

fn all(from: Driver, to: Driver) -> Diff {
    compare(from, to, "", Scope::All)
}

/// The change of one struct between two lists of fields.
fn change(before: (u64, &[&str]), after: (u64, &[&str])) -> RecordChange {
    let found = all(
        Driver::default().structure("S", before.0, before.1),
        Driver::default().structure("S", after.0, after.1),
    );
    assert_eq!(found.records.len(), 1, "{found:?}");
    found.records.into_iter().next().unwrap()
}

fn one(change: &RecordChange) -> &FieldChange {
    assert_eq!(change.fields.len(), 1, "{change:?}");
    &change.fields[0]
}

fn driver() -> Driver {
    Driver::default()
}

#[test]
fn a_moved_line_is_no_change() {
    let fields = ["0 4 a NvU32 = unsigned int"];
    let first = driver().structure("S", 4, &fields);
    let second = driver().structure("Before", 4, &fields).structure("S", 4, &fields);
    let found = all(first, second);
    assert_eq!(found.records.len(), 1, "only the new struct: {found:?}");
    assert_eq!(found.records[0].name, "Before");
}

/// The driver's own case: the size stays, and a field lies elsewhere.
#[test]
fn a_field_that_moves_breaks() {
    let found = change(
        (32, &["24 4 status int"]),
        (32, &["24 4 paramsSize unsigned int", "28 4 status int"]),
    );
    assert_eq!(found.class, Class::Break);
    let [new, moved] = &found.fields[..] else { panic!("{found:?}") };
    assert_eq!((new.name(), new.class), ("paramsSize", Class::Break));
    assert_eq!(new.instead, Some(Instead::Fields(vec!["status".into()])));
    assert_eq!((moved.name(), moved.only_moved()), ("status", Some(4)));
}

#[test]
fn a_field_past_the_end_breaks() {
    let found = change((4, &["0 4 a int"]), (8, &["0 4 a int", "4 4 b int"]));
    assert_eq!((found.class, found.resized()), (Class::Break, Some((4, 8))));
    assert_eq!(one(&found).instead, Some(Instead::Beyond));
    assert_eq!(one(&found).class, Class::Break);
}

#[test]
fn a_field_across_the_end_is_not_past_it() {
    let found = change((1, &["0 1 unused char"]), (4, &["0 4 surface unsigned int"]));
    let [_, new] = &found.fields[..] else { panic!("{found:?}") };
    assert_eq!((new.class, &new.instead), (Class::Break, &Some(Instead::Across)));
    let notes = super::text::notes(new);
    assert_eq!(notes, ["4 bytes", "across the old end"]);
    let gone = change((8, &["0 8 a long"]), (4, &[]));
    assert_eq!(super::text::notes(one(&gone)), ["8 bytes", "across the new end"]);
}

#[test]
fn padding_that_gets_a_name_is_new_meaning() {
    let found = change((8, &["0 1 a char"]), (8, &["0 1 a char", "1 1 b char"]));
    assert_eq!((found.class, &one(&found).instead), (Class::Meaning, &Some(Instead::Padding)));
    let found = found.reversed();
    assert_eq!((found.class, &one(&found).after), (Class::Meaning, &None));
}

#[test]
fn a_reserved_field_that_gets_a_name_is_new_meaning() {
    let found = change((4, &["0 4 reserved int"]), (4, &["0 4 flags int"]));
    let field = one(&found);
    assert_eq!((field.class, field.name()), (Class::Meaning, "flags"));
    assert!(field.before.as_ref().unwrap().is_reserved());
}

#[test]
fn a_part_of_a_reserved_field_that_gets_a_name_is_new_meaning() {
    let found = change((8, &["0 8 rsvd int[2]"]), (8, &["0 4 rsvd int[1]", "4 4 flags int"]));
    assert_eq!(found.class, Class::Meaning, "{found:?}");
    let classes: Vec<_> = found.fields.iter().map(|f| (f.name(), f.class)).collect();
    assert_eq!(classes, [("rsvd", Class::Harmless), ("flags", Class::Meaning)]);
    assert_eq!(found.fields[1].instead, Some(Instead::Reserved(vec!["rsvd".into()])));
}

#[test]
fn a_renamed_field_is_told_once() {
    let found = change((4, &["0 4 a int"]), (4, &["0 4 b int"]));
    let field = one(&found);
    assert_eq!(field.class, Class::Meaning);
    assert_eq!(field.before.as_ref().unwrap().field.name, "a");
    assert_eq!(field.after.as_ref().unwrap().field.name, "b");
}

#[test]
fn a_field_of_another_size_breaks() {
    let found = change((16, &["0 8 a int[2]"]), (16, &["0 12 a int[3]"]));
    assert_eq!((one(&found).class, one(&found).retyped), (Class::Break, Some(TypeChange::Length)));
    let found = change((16, &["0 4 a unsigned int"]), (16, &["0 8 a unsigned long"]));
    assert_eq!(one(&found).class, Class::Break);
}

#[test]
fn a_number_that_becomes_a_pointer_is_new_meaning() {
    let number = "0 8 a NvU64 = unsigned long long";
    let found = change((8, &[number]), (8, &["0 8 a NvP64 = void *"]));
    let field = one(&found);
    assert_eq!((field.class, field.retyped), (Class::Meaning, Some(TypeChange::Reading)));
    assert_eq!(field.after.as_ref().unwrap().role, Some(Role::Pointer));
}

#[test]
fn a_field_that_becomes_an_fd_is_new_meaning() {
    let driver = |tag: i128| {
        let fields = ["0 4 dev unsigned int"];
        driver().structure("P", 4, &fields).constant("CALL", 3).constant("TAG", tag)
    };
    let items = "[frontend]\nCALL = [{ params = \"P\", until = \"1.2\" }, \
        { params = \"P\", fds = [\"dev\"], since = \"1.2\" }]";
    let found = compare(driver(1), driver(1), items, Scope::Items);
    assert_eq!((found.records.len(), found.calls.len()), (1, 1), "{found:?}");
    let field = one(&found.records[0]);
    assert_eq!(field.class, Class::Meaning);
    assert_eq!(field.after.as_ref().unwrap().role, Some(Role::Fd));
    assert_eq!(found.calls[0].class, Class::Meaning);
    assert!(super::text(&found).contains("translate dev"), "{}", super::text(&found));
}

#[test]
fn another_sign_is_new_meaning_and_another_spelling_is_harmless() {
    let found = change((4, &["0 4 a unsigned int"]), (4, &["0 4 a int"]));
    assert_eq!(one(&found).class, Class::Meaning);
    let found = change((4, &["0 4 a A = int"]), (4, &["0 4 a B = int"]));
    assert_eq!(one(&found).class, Class::Harmless);
}

#[test]
fn a_field_made_of_something_else_breaks() {
    let found = change((8, &["0 8 a int[2]"]), (8, &["0 8 a short[4]"]));
    assert_eq!((one(&found).class, one(&found).retyped), (Class::Break, Some(TypeChange::Layout)));
}

#[test]
fn a_bit_field_that_moves_breaks() {
    let found = change((4, &["0.0:3 4 a int"]), (4, &["0.1:3 4 a int"]));
    assert_eq!(one(&found).class, Class::Break);
}

#[test]
fn a_field_that_is_gone_breaks_unless_its_place_is_kept_free() {
    let found = change((8, &["0 4 a int", "4 4 b int"]), (4, &["0 4 a int"]));
    assert_eq!((found.class, one(&found).class), (Class::Break, Class::Break));
    let found = change((8, &["0 4 a int", "4 4 b int"]), (8, &["0 4 a int"]));
    assert_eq!((found.class, one(&found).class), (Class::Meaning, Class::Meaning));
}

#[test]
fn a_new_member_of_a_union_is_harmless_unless_it_grows() {
    let union = |size, fields: &[&str]| driver().union("U", size, fields);
    let found = all(union(4, &["0 4 a int"]), union(4, &["0 4 a int", "0 2 b short"]));
    assert_eq!(found.records[0].class, Class::Harmless);
    assert_eq!(found.reversed().records[0].class, Class::Meaning);
    let found = all(union(8, &["0 8 a long"]), union(8, &["0 8 a long", "0 8 b void *"]));
    assert_eq!(found.records[0].class, Class::Meaning, "a shim has to translate it");
    let found = all(union(4, &["0 4 a int"]), union(8, &["0 4 a int", "0 8 b long"]));
    assert_eq!(found.records[0].class, Class::Break);
}

#[test]
fn a_struct_that_becomes_a_union_breaks() {
    let fields = ["0 4 a int"];
    let found = all(driver().structure("S", 4, &fields), driver().union("S", 4, &fields));
    assert_eq!(found.records[0].class, Class::Break);
}

#[test]
fn alignment_matters_where_the_struct_is_held() {
    let of = |align, held: bool| {
        let inner = driver().record("S", RecordKind::Struct, 8, align, &["0 8 a long"]);
        if held { inner.structure("P", 8, &["0 8 s S"]) } else { inner }
    };
    assert_eq!(all(of(4, false), of(8, false)).records[0].class, Class::Harmless);
    let found = all(of(4, true), of(8, true));
    assert_eq!(found.records[0].class, Class::Break);
}

#[test]
fn what_a_nested_struct_does_to_others_is_told_with_it() {
    let of = |size: u64, fields: &[&str]| {
        let field = format!("4 {size} inner Inner");
        let after = format!("{} 4 z int", size + 4);
        driver().structure("Inner", size, fields).structure(
            "Outer",
            size + 8,
            &["0 4 a int", &field, &after],
        )
    };
    let found = all(of(4, &["0 4 a int"]), of(8, &["0 4 a int", "4 4 b int"]));
    assert_eq!(found.count(Class::Break), 1, "{found:?}");
    let [inner, outer] = &found.records[..] else { panic!("{found:?}") };
    assert_eq!(outer.carried_by, ["Inner"]);
    assert_eq!((&*inner.held_by[0].record, inner.held_by[0].after), ("Outer", Some(4)));
    let text = super::text(&found);
    assert!(text.contains("in Outer at +4 (12 → 16 bytes)"), "{text}");
    assert!(text.contains("Inner: regenerate, 8 bytes, not 4; with it Outer"), "{text}");
}

#[test]
fn who_holds_a_struct_is_told_with_both_offsets() {
    let of = |at: u64, size: u64| {
        driver().structure("Inner", size, &[&format!("0 {size} a char[{size}]")]).structure(
            "Outer",
            16,
            &[&format!("{at} {size} inner Inner")],
        )
    };
    let found = all(of(4, 4), of(8, 8));
    let inner = &found.records[0];
    assert_eq!((inner.held_by[0].before, inner.held_by[0].after), (Some(4), Some(8)));
    assert!(super::text(&found).contains("in Outer at +4 → +8"), "{}", super::text(&found));
}

#[test]
fn a_new_field_that_looks_like_an_fd_is_told_as_one() {
    let found = change((8, &["0 4 a int"]), (8, &["0 4 a int", "4 4 devDescriptor int"]));
    assert_eq!(one(&found).after.as_ref().unwrap().role, Some(Role::Fd));
}

#[test]
fn a_renamed_struct_is_harmless() {
    let fields = ["0 4 a int", "4 4 b int", "8 4 c int"];
    let found =
        all(driver().structure("S_V1", 12, &fields), driver().structure("S_V2", 12, &fields));
    assert_eq!(found.records.len(), 1);
    assert_eq!(found.records[0].name_before.as_deref(), Some("S_V1"));
    assert_eq!(found.records[0].class, Class::Harmless);
    let other = all(
        driver().structure("S_V1", 12, &fields),
        driver().structure("S_V2", 12, &["0 4 a int", "4 4 b int", "8 4 d int"]),
    );
    assert_eq!(other.records.len(), 2, "a field has another name");
}

/// A struct that goes on as a typedef of another is compared with that.
#[test]
fn a_struct_that_becomes_a_typedef_is_the_same_type() {
    let fields = ["0 4 a int", "4 4 b int"];
    let before = || driver().structure("GET", 8, &fields);
    let found = all(before(), driver().structure("BOTH", 8, &fields).alias("GET", "BOTH", 8));
    let names: Vec<_> = found.records.iter().map(|r| (&*r.name, r.class)).collect();
    assert_eq!(names, [("BOTH", Class::Harmless)]);
    assert!(found.aliases.is_empty());
    let longer = ["0 4 a int", "4 4 b int", "8 4 c int"];
    let found = all(before(), driver().structure("BOTH", 12, &longer).alias("GET", "BOTH", 12));
    let get = found.records.iter().find(|r| r.name == "GET").unwrap();
    assert_eq!((get.class, get.resized()), (Class::Break, Some((8, 12))));
}

#[test]
fn a_typedef_of_another_struct_is_compared_with_it() {
    let of = |target: &str| {
        driver()
            .structure("A", 4, &["0 4 a int"])
            .structure("B", 8, &["0 4 a int", "4 4 b int"])
            .alias("T", target, 8)
    };
    let found = all(of("A"), of("B"));
    let names: Vec<_> = found.records.iter().map(|r| (&*r.name, r.class)).collect();
    assert_eq!(names, [("T", Class::Break)]);
}

#[test]
fn a_typedef_of_another_size_breaks() {
    let of = |ty, size| driver().alias("T", ty, size);
    assert_eq!(all(of("int", 4), of("long", 8)).aliases[0].class, Class::Break);
    assert_eq!(all(of("int", 4), of("unsigned int", 4)).aliases[0].class, Class::Meaning);
}

/// The record stays under its own name: only the typedef is gone.
#[test]
fn a_typedef_of_a_record_that_goes_alone_is_reported() {
    let record = || driver().structure("R", 4, &["0 4 a int"]);
    let found = all(record().alias("X", "R", 4), record());
    assert_eq!((found.records.len(), found.aliases.len()), (0, 1), "{found:?}");
    assert_eq!(found.aliases[0].name, "X");
    let back = all(record(), record().alias("X", "R", 4));
    assert_eq!(back.aliases, found.reversed().aliases);
    // With its record it is reported there.
    let found = all(record().alias("X", "R", 4), driver());
    assert_eq!(found.aliases.len(), 0, "{found:?}");
}

#[test]
fn enumerators() {
    let of = |variants: &[(&str, i128)]| driver().enumeration("E", variants);
    let class = |from, to| all(from, to).enums[0].class;
    assert_eq!(class(of(&[("A", 1)]), of(&[("A", 2)])), Class::Break);
    assert_eq!(class(of(&[("A", 1)]), of(&[("A", 1), ("B", 2)])), Class::Harmless);
    assert_eq!(class(of(&[("A", 1), ("B", 2)]), of(&[("A", 1)])), Class::Meaning);
    let renamed = all(of(&[("A", 1)]), of(&[("B", 1)]));
    let found = &renamed.enums[0].enumerators[..];
    assert_eq!((found.len(), found[0].name_before.as_deref()), (1, Some("A")));
    assert_eq!(found[0].class, Class::Meaning);
}

#[test]
fn constants() {
    let of = |value| driver().constant("A_LIMIT", value);
    assert_eq!(all(of(1), of(2)).constants[0].class, Class::Meaning);
    assert_eq!(all(driver(), of(2)).constants[0].class, Class::Harmless);
    assert_eq!(all(of(2), driver()).constants[0].class, Class::Meaning);
    let array = |value: i128, size: u64| {
        of(value).structure("S", size, &[&format!("0 {size} a char[{value}]")])
    };
    let found = all(array(8, 8), array(9, 9));
    assert_eq!(found.constants[0].bounds, ["S.a"]);
    assert_eq!(found.constants[0].class, Class::Break);
}

#[test]
fn a_constant_whose_value_is_taken_names_the_other() {
    let found = all(
        driver().constant("NV0_NOTIFIERS_VM_START", 2),
        driver().constant("NV0_NOTIFIERS_GPU_UNBIND_EVENT", 2),
    );
    let [new, gone] = &found.constants[..] else { panic!("{found:?}") };
    assert_eq!(gone.value_now.as_deref(), Some("NV0_NOTIFIERS_GPU_UNBIND_EVENT"));
    assert_eq!(new.value_was.as_deref(), Some("NV0_NOTIFIERS_VM_START"));
}

/// A status was put in between in 595.44.02.
#[test]
fn a_constant_that_moves_names_what_has_its_value() {
    let of = |statuses: &[(&str, i128)]| {
        statuses.iter().fold(driver(), |driver, (name, value)| driver.constant(name, *value))
    };
    let found = all(
        of(&[("NV_ERR_DMA_XFER_FAILED", 0x8b)]),
        of(&[("NV_ERR_OPERATION_ABORTED", 0x8b), ("NV_ERR_DMA_XFER_FAILED", 0x8c)]),
    );
    let text = super::text(&found);
    assert!(text.contains("0x8b → 0x8c, 0x8b is now NV_ERR_OPERATION_ABORTED"), "{text}");
    assert!(text.contains("NV_ERR_OPERATION_ABORTED  0x8b, was NV_ERR_DMA_XFER_FAILED"), "{text}");
    let back = super::text(&found.reversed());
    assert!(back.contains("0x8c → 0x8b, 0x8b was NV_ERR_OPERATION_ABORTED"), "{back}");
    // The length of an array names nothing.
    let array = |length: i128, size: u64| {
        let driver = driver().structure("S", size, &[&format!("0 {size} a char[{length}]")]);
        driver.constant("NV0_LIST_MAX", length).constant("NV0_LIST_LAST", length - 1)
    };
    let found = all(array(8, 8), array(9, 9));
    assert!(found.constants.iter().all(|c| c.value_now.is_none() && c.value_was.is_none()));
}

#[test]
fn bit_ranges_that_move_break() {
    let of = |high| driver().with("R", &Fact::BitRange(high, 0));
    assert_eq!(all(of(3), of(4)).bit_ranges[0].class, Class::Break);
}

/// Between 570 and 575 two commands moved by one, so that a number names another command.
#[test]
fn a_command_number_that_names_another_command_breaks() {
    let of = |inforom, status| {
        let command = |driver: Driver, name: &str, number| {
            driver.call(&format!("NV2080_CTRL_CMD_FB_{name}"), number, "command", "null", None)
        };
        let driver = command(driver(), "QUERY_DRAM_ENCRYPTION_INFOROM_SUPPORT", inforom);
        command(driver, "QUERY_DRAM_ENCRYPTION_STATUS", status)
    };
    let found = all(of(0x2080_1358, 0x2080_1359), of(0x2080_1357, 0x2080_1358));
    assert!(found.constants.is_empty(), "they are calls");
    let [inforom, status] = &found.calls[..] else { panic!("{found:?}") };
    assert_eq!((inforom.class, status.class), (Class::Break, Class::Break));
    assert_eq!(inforom.number_now.as_deref(), Some(&*status.name));
    assert_eq!(status.number_was.as_deref(), Some(&*inforom.name));
    let text = super::text(&found);
    assert!(text.contains("0x20801358 → 0x20801357 (0x20801358 now is NV2080_"), "{text}");
}

#[test]
fn calls_that_come_go_and_change_their_name() {
    let items = "[control]\nNV2080_CTRL_CMD_A = { parameterless = true }\n\
        NV2080_CTRL_CMD_B = { parameterless = true }\n";
    let (a, b) = ("NV2080_CTRL_CMD_A", "NV2080_CTRL_CMD_B");
    let of = |name: &str, number| driver().constant(name, number);
    let new = compare(driver(), of(a, 0x2080_0001), items, Scope::Items);
    assert_eq!(new.calls[0].class, Class::Harmless);
    assert_eq!(new.reversed().calls[0].class, Class::Break);
    let renamed = compare(of(a, 0x2080_0001), of(b, 0x2080_0001), items, Scope::Items);
    assert_eq!(renamed.calls.len(), 1);
    assert_eq!(renamed.calls[0].name_before.as_deref(), Some(a));
    assert_eq!(renamed.calls[0].class, Class::Meaning);
}

#[test]
fn a_call_with_other_parameters_breaks() {
    let driver = || {
        driver()
            .structure("P", 4, &["0 4 a int"])
            .structure("Q", 4, &["0 4 a int"])
            .constant("C", 1)
    };
    let items =
        "[class]\nC = [{ params = \"P\", until = \"1.2\" }, { params = \"Q\", since = \"1.2\" }]";
    let found = compare(driver(), driver(), items, Scope::Items);
    assert_eq!(found.calls[0].class, Class::Break);
}

/// Most commands and all classes are named by no spec, and some are not called as one.
#[test]
fn calls_that_no_spec_names_are_told_by_the_driver() {
    let of = |class: Option<&str>, command: Option<&str>, number| {
        let how = if command.is_some() { "table" } else { "no-evidence" };
        driver()
            .structure("P", 4, &["0 4 a int"])
            .structure("Q", 4, &["0 4 other int"])
            .alias("P_BY_ANOTHER_NAME", "P", 4)
            .call("NOTIFY_BUFFER", 0xc365, "class", "list", class)
            .call("NV_SURFACE_CTRL_CMD_BIND", number, "command", how, command)
    };
    let classes = all(of(None, None, 1), of(Some("P"), None, 1));
    assert!(classes.constants.is_empty(), "they are calls");
    let [class] = &classes.calls[..] else { panic!("{classes:?}") };
    assert_eq!((class.kind, class.class), (ItemKind::Class, Class::Break));
    let text = super::text(&classes);
    assert!(text.contains("~ NOTIFY_BUFFER  0xc365 (parameters none → P)"), "{text}");
    assert!(text.contains("NOTIFY_BUFFER: takes P at 1.2"), "{text}");

    let moved = all(of(None, Some("P"), 1), of(None, Some("P"), 2));
    assert_eq!((moved.calls.len(), moved.calls[0].class), (1, Class::Break));
    let retyped = all(of(None, Some("P"), 1), of(None, Some("Q"), 1));
    assert_eq!((retyped.calls.len(), retyped.calls[0].class), (1, Class::Break));
    let alias = all(of(None, Some("P"), 1), of(None, Some("P_BY_ANOTHER_NAME"), 1));
    assert!(alias.is_empty(), "{alias:?}");
    let of = |own: &str, other: &str| {
        let driver = driver().structure(own, 4, &["0 4 a int"]).alias(other, own, 4);
        driver.call("NV_SURFACE_CTRL_CMD_BIND", 1, "command", "table", Some(own))
    };
    let swapped = all(of("P", "P_TOO"), of("P_TOO", "P"));
    assert_eq!(swapped.calls, [], "a struct that became a typedef");
    // That nobody knew is no change of the driver's.
    let of = |how| driver().call("NV_SURFACE_CTRL_CMD_BIND", 1, "command", how, None);
    let known = all(of("no-evidence"), of("null"));
    assert_eq!((known.calls.len(), known.calls[0].class), (1, Class::Meaning));
    assert!(super::advice(&known).is_empty(), "{:?}", super::advice(&known));
}

#[test]
fn a_call_that_fewer_may_make_breaks() {
    let of = |callers: Option<&str>| {
        let mut takes = CallParams::new(CallKind::Command, ParamSource::Null, None);
        takes.access = callers.map(|text| {
            let (words, test_only) =
                text.strip_suffix("+test").map_or((text, false), |it| (it, true));
            let (caller, right) = words.split_once('+').unwrap_or((words, ""));
            let rights = right.split_terminator('+').map(str::to_owned).collect();
            Access { caller: Caller::from_word(caller).unwrap(), rights, test_only }
        });
        driver()
            .constant("NV_SURFACE_CTRL_CMD_BIND", 1)
            .with("NV_SURFACE_CTRL_CMD_BIND", &Fact::Call(takes))
    };
    for (before, after, class) in [
        ("user", "root", Class::Break),
        ("root", "user", Class::Harmless),
        ("user", "user+NICE", Class::Break),
        ("user+NICE", "user", Class::Harmless),
        ("root", "user+NICE", Class::Harmless),
        ("user+NICE", "root", Class::Break),
        ("kernel", "internal", Class::Break),
        ("user", "user+test", Class::Break),
        ("user+test", "user", Class::Harmless),
        ("internal", "nobody", Class::Break),
        ("nobody", "user", Class::Harmless),
        ("user+test", "nobody", Class::Break),
        ("nobody", "user+test", Class::Harmless),
    ] {
        let found = all(of(Some(before)), of(Some(after)));
        let [call] = &found.calls[..] else { panic!("{before} {after}: {found:?}") };
        assert_eq!(call.class, class, "{before} {after}");
        let text = super::text(&found);
        assert!(text.contains(&format!("(callers {before} → {after})")), "{text}");
        let advice = super::advice(&found);
        let told = advice.iter().any(|it| it.what.contains("at 1.2 the driver refuses it"));
        assert_eq!(told, class == Class::Break, "{advice:?}");
    }
    // What nobody knew of one side is no change.
    assert!(all(of(None), of(Some("root"))).is_empty());
}

/// A class that the resource list does not have cannot be allocated: its name is a constant.
#[test]
fn a_class_that_leaves_the_resource_list_is_gone() {
    let of = |how: &str| driver().call("NVD0B7_VIDEO_ENCODER", 0xd0b7, "class", how, None);
    let found = all(of("list"), of("no-resource"));
    assert_eq!((found.calls.len(), found.calls[0].class), (1, Class::Break));
    assert!(found.calls[0].after.is_none() && found.constants.is_empty(), "{found:?}");
}

/// What a branch's spec says of a call's fields is no news where the other branch has the call, too.
#[test]
fn a_call_that_one_spec_alone_names_is_the_same() {
    let facts = |tag: &str| {
        driver()
            .structure("P", 4, &["0 4 fd int"])
            .call("CMD", 1, "command", "table", Some("P"))
            .facts(tag)
    };
    let (from, to) = (facts("1.1"), facts("1.2"));
    let (without, with) = (spec(""), spec("[control]\nCMD = { params = \"P\", fds = [\"fd\"] }\n"));
    let (from, to) = (Side { facts: &from, spec: &without }, Side { facts: &to, spec: &with });
    assert_eq!(super::diff(from, to, Scope::All).calls, []);
    assert_eq!(super::diff(to, from, Scope::All).calls, []);
}

#[test]
fn whatever_must_be_done_is_said() {
    let reads = |ty: &str| {
        let field = format!("0 4 node {ty}");
        let fields = [field.as_str(), "4 4 reserved NvU32 = unsigned int"];
        let named = fields.map(|text| text.replace("reserved", "bSkip"));
        let signed = ty.starts_with("NvS");
        let fields = if signed { named.each_ref().map(String::as_str) } else { fields };
        driver().structure("P", 8, &fields)
    };
    let found = all(reads("NvU32 = unsigned int"), reads("NvS32 = int"));
    let told: Vec<String> = super::advice(&found).into_iter().map(|a| a.what).collect();
    assert_eq!(
        told,
        ["bSkip is new in bytes that callers built for 1.1 leave as they are: zero it for them; \
            node is NvS32 now, not NvU32"]
    );
    let renamed = |name: &str| driver().call(name, 1, "command", "null", None);
    let found = all(renamed("NV0000_CTRL_CMD_A"), renamed("NV0000_CTRL_CMD_B"));
    assert_eq!(
        super::advice(&found)[0].what,
        "was NV0000_CTRL_CMD_A at 1.1, see whether it means the same"
    );
}

/// `regenerate` alone does not tell what to look for.
#[test]
fn what_a_field_became_is_said() {
    let told = |before: &[&str], after: &[&str]| {
        let of = |fields: &[&str]| {
            let inner = if fields == before { 4 } else { 8 };
            let member = format!("0 {inner} a char[{inner}]");
            driver().structure("Inner", inner, &[&member]).structure("S", 16, fields)
        };
        let advice = super::advice(&all(of(before), of(after)));
        let of_s = advice.into_iter().find(|advice| advice.subject == "S").unwrap();
        of_s.what
    };
    let cases: [(&[&str], &[&str], &str); 6] = [
        (
            &["0 1 mode NvU8 = unsigned char"],
            &["0 2 mode NvU16 = unsigned short"],
            "mode is NvU16 now, not NvU8",
        ),
        (&["0 5 table char[5]"], &["0 6 table char[6]"], "table is char[6] now, not char[5]"),
        (
            &["0 1 a char", "4 4 page unsigned int"],
            &["0 1 a char", "8 8 page unsigned long"],
            "page moved; page is unsigned long now, not unsigned int",
        ),
        (&["0.0:3 4 a int"], &["0.0:2 4 a int"], "a is 2 bits now, not 3 bits"),
        (&["0.0:2 4 a int"], &["0.1:2 4 a int"], "a moved"),
        (
            &["0 4 inner Inner", "12 1 a char"],
            &["0 8 inner Inner", "12 2 a short"],
            "inner is 8 bytes now, not 4 bytes; a is short now, not char",
        ),
    ];
    for (before, after, expected) in cases {
        assert_eq!(told(before, after), format!("regenerate, the size stays; {expected}"));
    }
}

#[test]
fn an_enumerator_of_another_value_is_to_be_translated() {
    let of = |variants: &[(&str, i128)]| driver().enumeration("E", variants);
    let found = all(of(&[("LINEAR", 0), ("PQ", 1)]), of(&[("LINEAR", 0), ("SDR", 1), ("PQ", 2)]));
    let told: Vec<String> = super::advice(&found).into_iter().map(|a| a.what).collect();
    assert_eq!(told, ["translate its values: PQ is 2 now, not 1"]);
}

/// A call that is gone may come back, and one that is the same in both may have changed between them.
#[test]
fn what_must_be_done_is_said_of_the_two_tags_alone() {
    let of = |calls: &[(&str, i128)]| {
        let fields = ["0 4 dev int", "8 8 address void *"];
        let driver = driver().structure("P", 16, &fields);
        calls.iter().fold(driver, |driver, (name, number)| driver.constant(name, *number))
    };
    let items = "[frontend]\nGONE = {}\nMOVED = {}\nTAKEN = {}\n\
        ROLES = [{ params = \"P\", pointers = [{ field = \"address\", opaque = true }], until = \"1.2\" }, \
        { params = \"P\", fds = [\"dev\"], since = \"1.2\" }]";
    let items = items.replace("{}", "{ parameterless = true }");
    let before = of(&[("GONE", 1), ("MOVED", 2), ("TAKEN", 3), ("ROLES", 4)]);
    let after = of(&[("MOVED", 3), ("ROLES", 4)]);
    let found = compare(before, after, &items, Scope::Items);
    let calls = super::advice(&found).into_iter().map(|a| format!("{}: {}", a.subject, a.what));
    let told: Vec<String> = calls.take(4).collect();
    assert_eq!(
        told,
        [
            "GONE: gone at 1.2: refuse 1 there",
            "MOVED: send 3 at 1.2",
            "ROLES: translate dev at 1.2: a file descriptor there; \
                leave address alone at 1.2: it was a pointer at 1.1",
            "TAKEN: gone at 1.2, where 3 is MOVED: tell them apart by version",
        ]
    );
}

/// A name of a number that has another one is not the call: its number goes on.
#[test]
fn a_second_name_that_goes_is_no_call_that_goes() {
    let of = |names: &[&str]| names.iter().fold(driver(), |driver, name| driver.constant(name, 7));
    let items = "[frontend]\nCALL = { parameterless = true }\nALIAS = { parameterless = true }";
    let found = compare(of(&["CALL", "ALIAS"]), of(&["CALL"]), items, Scope::Items);
    let [change] = &found.calls[..] else { panic!("{:?}", found.calls) };
    assert_eq!((&*change.name, change.class), ("ALIAS", Class::Meaning));
    assert_eq!(super::advice(&found)[0].what, "gone at 1.2, where 7 goes on as CALL");
    assert!(super::text(&found).contains("7 is CALL too"));
    let [back] = &found.reversed().calls[..] else { panic!("{:?}", found.calls) };
    assert_eq!((back.class, back.alias_of.as_deref()), (Class::Harmless, Some("CALL")));
}

/// Of many pointers, the one that is gone is not to be found by eye.
#[test]
fn only_added_and_removed_pointers_are_reported() {
    let of = || driver().structure("P", 24, &["0 8 a void *", "8 8 b void *", "16 8 c void *"]);
    let role = |of: &str| format!("{{ field = \"{of}\", opaque = true }}");
    let items = format!(
        "[frontend]\nCALL = [{{ params = \"P\", pointers = [{a}, {b}], until = \"1.2\" }}, \
         {{ params = \"P\", pointers = [{a}, {c}], since = \"1.2\" }}]",
        a = role("a"),
        b = role("b"),
        c = role("c"),
    );
    let of = || of().constant("CALL", 3);
    let text = super::text(&compare(of(), of(), &items, Scope::Items));
    assert!(text.contains("~ CALL  3 (pointers - b, + c)"), "{text}");
    let other_order = items.replace(&format!("[{}, {}]", role("a"), role("c")), "[PAIR]");
    let pair = format!("[{}, {}]", role("b"), role("a"));
    let found = compare(of(), of(), &other_order.replace("[PAIR]", &pair), Scope::Items);
    assert!(found.is_empty(), "in another order they are the same: {found:?}");
}

/// A pointer to a function is as long as any other.
#[test]
fn a_callback_that_becomes_an_address_moves_nothing() {
    let found = change(
        (8, &["0 8 pProc PROC = void (*)(void *, void *)"]),
        (8, &["0 8 pProc NvP64 = void *"]),
    );
    assert_eq!(one(&found).retyped, Some(TypeChange::Reading));
    assert_eq!(found.class, Class::Meaning);
}

#[test]
fn a_typedef_is_looked_for_as_what_it_stands_for() {
    let of = |size| driver().structure("P", size, &["0 4 a int"]).alias("OLD_P", "P", size);
    let (from, to, spec) = (of(4).facts("1.1"), of(8).facts("1.2"), spec(""));
    let (from, to) = (Side { facts: &from, spec: &spec }, Side { facts: &to, spec: &spec });
    assert_eq!(from.called("OLD_P"), BTreeSet::from(["OLD_P", "P"]));
    assert!(from.called("old_p").is_empty());
    let (found, _) = super::diff_of(from, to, &from.called("OLD_P"));
    assert_eq!(found.records.len(), 1);
}

#[test]
fn only_the_items_and_what_they_need() {
    let of = |size: u64| {
        driver()
            .structure("Inner", size, &["0 4 a int"])
            .structure("P", size, &[&format!("0 {size} inner InnerT = Inner")])
            .structure("Other", size, &["0 4 a int"])
            .constant("CALL", 1)
            .constant("NV_ERR_A", i128::from(size))
            .constant("OTHER", i128::from(size))
    };
    let items = "[frontend]\nCALL = { params = \"P\" }\n[constants]\nnames = [\"NV_ERR_*\"]\n";
    let found = compare(of(4), of(8), items, Scope::Items);
    let names = |found: &Diff| -> Vec<String> {
        let records = found.records.iter().map(|r| r.name.clone());
        records.chain(found.constants.iter().map(|c| c.name.clone())).collect()
    };
    assert_eq!(names(&found), ["Inner", "P", "NV_ERR_A"]);
    assert_eq!(found.records[0].calls, ["CALL"]);
    let every = compare(of(4), of(8), items, Scope::All);
    assert_eq!(names(&every), ["Inner", "Other", "P", "NV_ERR_A", "OTHER"]);
    let (some, elsewhere) = compare_names(of(4), of(8), items, &["P"]);
    assert_eq!((names(&some), elsewhere.total()), (vec!["Inner".into(), "P".into()], 3));
}

#[test]
fn a_type_brings_its_calls_where_none_of_them_is_named() {
    let of = |a, b| driver().structure("P", 4, &["0 4 a int"]).constant("A", a).constant("B", b);
    let items = "[frontend]\nA = { params = \"P\" }\nB = { params = \"P\" }\n";
    let calls = |from, to, wanted: &[&str]| -> Vec<String> {
        let (found, _) = compare_names(from, to, items, wanted);
        found.calls.into_iter().map(|call| call.name).collect()
    };
    assert_eq!(calls(of(1, 2), of(3, 4), &["P"]), ["A", "B"]);
    assert_eq!(calls(of(1, 2), of(3, 4), &["P", "A"]), ["A"]);
    assert!(calls(of(1, 2), of(1, 4), &["P", "A"]).is_empty(), "A is named, and stays");
    assert_eq!(calls(of(1, 2), of(3, 4), &["B"]), ["B"]);
}

/// What another machine has otherwise is compared with what the first has.
#[test]
fn another_target_is_told_only_where_it_differs() {
    let of = |tag: &str, here: i128, there: Option<i128>| {
        let mut facts = driver().constant("PAGE", here).facts(tag);
        if let Some(there) = there {
            facts.surfaces.insert("rm@arm".into(), driver().constant("PAGE", there).0);
        }
        facts
    };
    let spec = spec("");
    let diff = |from: &Facts, to: &Facts| {
        let (from, to) = (Side { facts: from, spec: &spec }, Side { facts: to, spec: &spec });
        super::diff(from, to, Scope::All).constants
    };
    let found = diff(&of("1.1", 1, None), &of("1.2", 1, Some(2)));
    assert_eq!((found.len(), &found[0].surfaces[..]), (1, &["rm@arm".to_owned()][..]));
    assert!(found[0].before.is_some(), "it was as on the first machine");
}
