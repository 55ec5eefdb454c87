//! Which parameters a call takes, read off small sources of our own and off the driver's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

#[cfg(feature = "libclang")]
#[path = "common/at_hand.rs"]
mod at_hand;

use std::collections::BTreeMap;

use nvabi_pipeline::calls::{
    Call, Calls, Check, Evidence, Meaning, Params, Part, Texts, Unmapped, Why, calls,
    parse_exported, parse_header, parse_resources, part,
};
use nvabi_pipeline::model::{
    Alias, CallKind, Constant, Field, Record, RecordKind, Source, Surface,
};

test_main!();

const CTRL: &str = "src/common/sdk/nvidia/inc/ctrl/ctrl0aa0.h";
const CLASS: &str = "src/common/sdk/nvidia/inc/class/cl0aa0.h";
const LIST: &str = "src/nvidia/src/kernel/rmapi/resource_list.h";
const TABLE: &str = "src/nvidia/generated/g_test_nvoc.c";

/// A command's line: its number, and what it was made of.
fn command(name: &str, number: u64, made_of: &str) -> String {
    let made_of = format!("(FINN_NVT_A_INTERFACE_ID << 8) | {made_of}");
    format!("#define {name} ({number:#x}U) /* finn: Evaluated from \"{made_of}\" */\n")
}

/// A method's entry, with `size` as its parameters' size.
fn method(number: u64, size: &str) -> String {
    flagged(number, size, [1, 0])
}

/// A method's entry with these flags and rights.
fn flagged(number: u64, size: &str, [flags, rights]: [u64; 2]) -> String {
    format!(
        "{{\n  /*flags=*/ {flags:#x}u, /*accessRight=*/{rights:#x}u,\n  /*methodId=*/   {number:#x}u,\n  /*paramSize=*/  {size},\n  \
         /*pClassInfo=*/ &(x.y),\n#if A\n  /*func=*/ \"nvtDo{number:x}\"\n#endif\n}},\n"
    )
}

fn entry(class: &str, params: &str) -> String {
    format!(
        "RS_ENTRY(\n /* External */ {class}, /* Internal, (odd) */ Inner,\n NV_TRUE,\n \
         RS_LIST(classId(One), classId(Two)), {params}, PRIORITY, // the next, flags\n \
         NVT_FLAG_A | NVT_FLAG_B, ACCESS\n)\n"
    )
}

fn place(path: &str, line: u32) -> Source {
    Source { path: path.into(), line }
}

/// Types of the given sizes, and constants as the texts' macros have them.
fn surface(types: &[(&str, u64)], constants: &[(&str, i128)]) -> Surface {
    let mut surface = Surface::default();
    for (name, size) in types {
        let (kind, source, fields) = (RecordKind::Struct, place(CTRL, 1), Vec::new());
        let record = Record { kind, size: *size, align: 1, source, fields: fields.into() };
        surface.records.insert((*name).to_owned(), record);
    }
    for (name, value) in constants {
        let constant = Constant { value: *value, source: place(CTRL, 7) };
        surface.constants.insert((*name).to_owned(), constant);
    }
    surface
}

fn alias(surface: &mut Surface, name: &str, of: &str) {
    let size = surface.records[of].size;
    let alias = Alias { ty: of.to_owned(), size, source: place(CTRL, 1) };
    surface.aliases.insert(name.to_owned(), alias);
}

fn joined(surface: &Surface, header: &str, table: &str, list: Option<&str>) -> Calls {
    let texts = Texts {
        headers: vec![(CTRL, header)],
        resource_list: list.map(|list| (LIST, list)),
        exported: vec![(TABLE, table)],
        ..Texts::default()
    };
    calls(&texts, surface)
}

#[track_caller]
fn call<'a>(calls: &'a Calls, name: &str) -> &'a Call {
    let found = calls.calls.iter().find(|call| call.name == name);
    found.unwrap_or_else(|| panic!("no {name} among {calls:#?}"))
}

#[track_caller]
fn unmapped<'a>(calls: &'a Calls, name: &str) -> &'a Unmapped {
    calls.unmapped.iter().find(|call| call.name == name).unwrap()
}

/// Parameters, evidence and check of one command.
fn of<'a>(calls: &'a Calls, name: &str) -> (Option<&'a str>, Evidence, &'a Check) {
    let call = call(calls, name);
    (call.params.as_deref(), call.evidence, &call.check)
}

#[test]
fn knows_its_files() {
    assert_eq!(part(CTRL), Some(Part::Header));
    assert_eq!(part(LIST), Some(Part::Resources));
    assert_eq!(part(TABLE), Some(Part::Exported));
    for other in ["src/nvidia/generated/g_test_nvoc.h", "kernel-open/a.h", "src/nvidia/generated"] {
        assert_eq!(part(other), None, "{other}");
    }
}

#[test]
fn headers() {
    let text = command("NVT_CTRL_CMD_A", 0xaa0_0101, "NVT_A_PARAMS_MESSAGE_ID")
        + "#define NVT_CTRL_CMD_B (0xaa00102) "
        + "/* finn: Evaluated from \"((FINN_T_INTERFACE_ID << 8 | 0x2))\" */ // old\n"
        + "  # define\tNVT_CTRL_CMD_C (NVT_CTRL_CMD_B) /* same */\n"
        + "#define NVT_CTRL_CMD_OF(x) NVT_CTRL_CMD_B\n"
        + "#define NVT_CTRL_CMD_B_MASK 3:0\n"
        + "#define NVT_SIZE (0x2) /* finn: Evaluated from \"(NVT_ONE + 1)\" */\n"
        + "#define NVT_CTRL_EMPTY\n";
    let found = parse_header(CTRL, &text);
    let found: Vec<_> =
        found.iter().map(|d| (d.name.as_str(), d.line, d.meaning.clone())).collect();
    let message = Meaning::Command(Some("NVT_A_PARAMS".into()));
    assert_eq!(
        found,
        [
            ("NVT_CTRL_CMD_A", 1, message),
            ("NVT_CTRL_CMD_B", 2, Meaning::Command(None)),
            ("NVT_CTRL_CMD_C", 3, Meaning::Same("NVT_CTRL_CMD_B".into())),
        ]
    );
}

#[test]
fn class_headers() {
    let text = "#define NVT_OLD 0xAA0\n#define NVT_MEMBER (0xaa1U)\n\
                #define NVT_NEW (0xaa0U) /* finn: Evaluated from \"NVT_PARAMS_MESSAGE_ID\" */\n\
                #define NVT_PARAMS_MESSAGE_ID (0xaa0U)\n#define NVT_NOTIFIERS_FIRST (0xaa0)\n";
    let of = |path| parse_header(path, text).into_iter().map(|d| d.name).collect::<Vec<_>>();
    assert_eq!(of(CLASS), ["NVT_OLD", "NVT_NEW"]);
    assert_eq!(of(CTRL), ["NVT_NEW"]);
}

#[test]
fn tables() {
    let text = method(0x10, "sizeof(NVT_A)") + &method(0x20, "0 /* none */") + &method(3, "NVT_B");
    let found = parse_exported(&text);
    let found: Vec<_> =
        found.iter().map(|m| (m.id, m.params.as_deref(), m.function.as_str(), m.line)).collect();
    assert_eq!(found, [(0x10, Some("NVT_A"), "nvtDo10", 3), (0x20, None, "nvtDo20", 12)]);
    assert_eq!(parse_exported("/*methodId=*/ 0x1u, /*paramSize=*/"), []);
}

#[test]
fn resource_lists() {
    let text = "/* RS_ENTRY(\n*/\n".to_owned()
        + &entry("NVT_A", "RS_NONE")
        + "#if NVT_X && defined(DEBUG)\n"
        + &entry("NVT_B", "RS_OPTIONAL(NvHandle)")
        + "#else\n"
        + &entry("NVT_C", "RS_REQUIRED( NVT_PARAMS )")
        + "#endif\n"
        + &entry("NVT_D", "RS_MAYBE(NVT_PARAMS)")
        + "RS_ENTRY(NVT_E, Inner, RS_NONE)\n#undef RS_ENTRY\n";
    let found = parse_resources(&text);
    let params: Vec<_> = found.iter().map(|r| (r.class.as_str(), r.params.clone())).collect();
    let expected = [
        ("NVT_A", Params::None),
        ("NVT_B", Params::Optional("NvHandle".into())),
        ("NVT_C", Params::Required("NVT_PARAMS".into())),
        ("NVT_D", Params::Unknown),
        ("NVT_E", Params::Unknown),
    ];
    assert_eq!(params, expected);
    let conditions: Vec<_> = found.iter().map(|r| r.condition.as_deref()).collect();
    let condition = "NVT_X && defined(DEBUG)";
    let negated = format!("!({condition})");
    assert_eq!(conditions, [None, Some(condition), Some(&negated), None, None]);
    assert_eq!((found[0].line, found[0].internal.as_str()), (3, "Inner"));
    assert_eq!(found[0].parents, ["One", "Two"]);
    assert_eq!(found[0].flags, ["NVT_FLAG_A", "NVT_FLAG_B"]);
}

const FLAGS: &str = "#define RMCTRL_FLAGS_NONE 0x0\n#define RMCTRL_FLAGS_KERNEL_PRIVILEGED 0x0\n\
                     #define RMCTRL_FLAGS_PRIVILEGED 0x000000004\n\
                     #define RMCTRL_FLAGS_NON_PRIVILEGED 0x10 // for all\n\
                     #define RMCTRL_FLAGS_INTERNAL 0x400\n\
                     #define RMCTRL_FLAGS_RM_TEST_ONLY_CODE 0x100000\n";

#[test]
fn who_may_call() {
    let flags = [(1, 0x11), (2, 0x5), (3, 0x3), (4, 0x414), (7, 0x100010)];
    let table: String = flags.iter().map(|(id, flags)| flagged(*id, "0", [*flags, 0])).collect();
    let table = table + &flagged(5, "0", [0x10, 0b110]);
    let name = |id: u64| format!("NVT_CTRL_CMD_{id}");
    let header: String = (1..8).map(|id| command(&name(id), id, "0x1")).collect();
    let numbers: Vec<_> = (1..8).map(|id| (name(id), i128::from(id))).collect();
    let mut constants: Vec<_> = numbers.iter().map(|(name, id)| (name.as_str(), *id)).collect();
    constants.extend([("RS_ACCESS_NICE", 1), ("RS_ACCESS_DEBUG", 2), ("RS_ACCESS_COUNT", 1)]);
    constants.extend([("RS_ACCESS_FAR", 64), ("RS_ACCESS_NEGATIVE", -1)]);
    let surface = surface(&[], &constants);
    let texts = |flags| Texts {
        headers: vec![(CTRL, &*header)],
        exported: vec![(TABLE, &*table)],
        flags,
        ..Texts::default()
    };
    let access = |calls: &Calls, id: u64| {
        let call = calls.calls.iter().find(|call| call.name == name(id))?;
        call.fact().1.takes.access.map(|access| access.to_string())
    };
    let found = calls(&texts(Some(FLAGS)), &surface);
    let of: Vec<_> = (1..7).map(|id| access(&found, id)).collect();
    let expected = ["user", "root", "kernel", "internal", "user+DEBUG+NICE"];
    assert_eq!(of[..5], expected.map(|word| Some(word.to_owned())));
    assert_eq!(access(&found, 7).as_deref(), Some("user+test"));
    assert_eq!(of[5], None, "nobody knows what is answered without a table");
    // Without the meaning of its bits, or with a part of it, nothing is said.
    let part = FLAGS.replace("RMCTRL_FLAGS_INTERNAL", "RMCTRL_FLAGS_OTHER");
    for flags in [None, Some(part.as_str())] {
        assert_eq!(access(&calls(&texts(flags), &surface), 1), None);
    }
}

/// A command that no table has is refused, unless something takes it before the tables.
#[test]
fn nobody_may_call_what_is_in_no_table() {
    let numbers =
        [("LOST", 0x2080_0105_u64), ("FIRMWARE", 0x2080_8105), ("HANDED_ON", 0x2081_0105)];
    let numbers = [&numbers[..], &[("CONVERTED", 0x2080_0106), ("HAD", 1)]].concat();
    let name = |word: &str| format!("NVT_CTRL_CMD_{word}");
    let header: String =
        numbers.iter().map(|(word, id)| command(&name(word), *id, "0x1")).collect();
    let constants = numbers.iter().map(|(word, id)| (name(word), i128::from(*id)));
    let constants: Vec<_> = constants.chain([("NVT_BINARY".to_owned(), 0x2081)]).collect();
    let constants: Vec<_> = constants.iter().map(|(name, id)| (name.as_str(), *id)).collect();
    let surface = surface(&[], &constants);
    let table = flagged(1, "0", [0x10, 0]);
    let list = entry("NVT_BINARY", "RS_NONE");
    let found = |converted, internal: &str| {
        let list = list.replace("Inner", internal);
        let texts = Texts {
            headers: vec![(CTRL, &*header)],
            exported: vec![(TABLE, &*table)],
            resource_list: Some((LIST, &list)),
            flags: Some(FLAGS),
            converted,
            ..Texts::default()
        };
        let calls = calls(&texts, &surface);
        let mapped = calls.calls.iter().map(|call| call.fact());
        let facts: BTreeMap<_, _> =
            mapped.chain(calls.unmapped.iter().filter_map(Unmapped::fact)).collect();
        let access = |word| facts[&name(word)].takes.access.clone();
        let said = ["LOST", "FIRMWARE", "HANDED_ON", "CONVERTED", "HAD"].map(access);
        said.map(|access| access.map_or_else(|| "-".to_owned(), |access| access.to_string()))
    };
    let converted =
        "table[] =\n{\n    { NVT_CTRL_CMD_CONVERTED, V2(_NVT), NV_FALSE},\n    { 0, NULL }\n};\n";
    assert_eq!(found(Some(converted), "BinaryApi"), ["nobody", "-", "-", "-", "user"]);
    assert_eq!(found(Some(converted), "Other"), ["nobody", "-", "nobody", "-", "user"]);
    assert_eq!(found(Some(""), "Other"), ["nobody", "-", "nobody", "nobody", "user"]);
    assert_eq!(found(None, "Other"), ["-", "-", "-", "-", "user"]);
}

#[test]
fn who_may_allocate() {
    let flags = ["", "NON_PRIVILEGED", "PRIVILEGED", "KERNEL_PRIVILEGED"];
    let entry = |(at, flag): (usize, &&str)| {
        let entry = entry(&format!("NVT_{at}"), "RS_NONE");
        entry.replace("NVT_FLAG_B", &format!("RS_FLAGS_ALLOC_{flag}"))
    };
    let list: String = flags.iter().enumerate().map(entry).collect();
    let list =
        list + &self::entry("NVT_4", "RS_NONE").replace("NVT_FLAG_A", "RS_FLAGS_INTERNAL_ONLY");
    let names: Vec<_> = (0..5).map(|at| format!("NVT_{at}")).collect();
    let constants: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let texts = Texts { resource_list: Some((LIST, &list)), ..Texts::default() };
    let found = calls(&texts, &surface(&[], &constants));
    let access = names.iter().map(|name| call(&found, name).fact().1.takes.access);
    let words: Vec<_> = access.map(|access| access.map(|access| access.to_string())).collect();
    let expected = ["user", "root", "kernel", "internal"].map(|word| Some(word.to_owned()));
    assert_eq!((&words[0], &words[1..]), (&None, &expected[..]));
}

#[test]
fn finn_and_the_table() {
    let mut surface = surface(
        &[("NVT_A_PARAMS", 8), ("NVT_B_PARAMS", 8), ("NVT_C_PARAMS", 12), ("NVT_I_PARAMS", 4)],
        &[
            ("NVT_CTRL_CMD_SAME", 1),
            ("NVT_CTRL_CMD_ALIAS", 2),
            ("NVT_CTRL_CMD_OTHER", 3),
            ("NVT_CTRL_CMD_SIZE", 4),
            ("NVT_CTRL_CMD_ALONE", 5),
            ("NVT_CTRL_CMD_WRAPPED", 6),
            ("NVT_CTRL_CMD_LOST", 7),
        ],
    );
    alias(&mut surface, "NVT_A2_PARAMS", "NVT_A_PARAMS");
    let mut wrapper = surface.records["NVT_I_PARAMS"].clone();
    let (name, ty) = ("params".to_owned(), "NVT_I_PARAMS".to_owned());
    wrapper.fields =
        vec![Field { name, canonical: ty.clone(), ty, offset: 0, size: 4, bits: None }].into();
    surface.records.insert("NVT_W_FINN_PARAMS".into(), wrapper);
    let header = command("NVT_CTRL_CMD_SAME", 1, "NVT_A_PARAMS_MESSAGE_ID")
        + &command("NVT_CTRL_CMD_ALIAS", 2, "NVT_A2_PARAMS_MESSAGE_ID")
        + &command("NVT_CTRL_CMD_OTHER", 3, "NVT_A_PARAMS_MESSAGE_ID")
        + &command("NVT_CTRL_CMD_SIZE", 4, "NVT_A_PARAMS_MESSAGE_ID")
        + &command("NVT_CTRL_CMD_ALONE", 5, "NVT_A_PARAMS_MESSAGE_ID")
        + &command("NVT_CTRL_CMD_WRAPPED", 6, "NVT_W_FINN_PARAMS_MESSAGE_ID")
        + &command("NVT_CTRL_CMD_LOST", 7, "NVT_GONE_PARAMS_MESSAGE_ID");
    let table = method(1, "sizeof(NVT_A_PARAMS)")
        + &method(2, "sizeof(NVT_A_PARAMS)")
        + &method(3, "sizeof(NVT_B_PARAMS)")
        + &method(4, "sizeof(NVT_C_PARAMS)")
        + &method(6, "sizeof(NVT_I_PARAMS)")
        + &method(0x77, "sizeof(NVT_C_PARAMS)");
    let calls = joined(&surface, &header, &table, None);
    let (a, b, c) = ("NVT_A_PARAMS", "NVT_B_PARAMS", "NVT_C_PARAMS");
    let expected = [
        ("SAME", a, Evidence::Finn, Check::Same),
        ("ALIAS", "NVT_A2_PARAMS", Evidence::Finn, Check::Alias(a.into())),
        ("OTHER", a, Evidence::Finn, Check::Differs(Some(b.into()))),
        ("SIZE", c, Evidence::Table, Check::Differs(Some(a.into()))),
        ("ALONE", a, Evidence::Finn, Check::Silent),
        ("WRAPPED", "NVT_I_PARAMS", Evidence::Finn, Check::Same),
    ];
    for (name, params, evidence, check) in expected {
        let name = format!("NVT_CTRL_CMD_{name}");
        assert_eq!(of(&calls, &name), (Some(params), evidence, &check), "{name}");
    }
    let lost = unmapped(&calls, "NVT_CTRL_CMD_LOST");
    assert_eq!(lost.why, Why::UnknownType("NVT_GONE_PARAMS".into()));
    let nameless = unmapped(&calls, "nvtDo77");
    assert_eq!(nameless.why, Why::NoName(Some(c.into())));
    assert_eq!(nameless.number, Some(0x77));
    assert_eq!(calls.unmapped.len(), 2);
}

#[test]
fn bare_numbers() {
    let names = ["GET_A", "SET_B", "INTERNAL_C", "D", "E", "F", "G", "NULL", "H"];
    let name = |n: &str| format!("NVT_CTRL_CMD_{n}");
    let all: Vec<String> = names.iter().map(|n| name(n)).collect();
    let constants: Vec<(&str, i128)> =
        all.iter().zip(0x101..).map(|(name, number)| (name.as_str(), number)).collect();
    let mut surface = surface(
        &[
            ("NVT_CTRL_GET_A_PARAMS", 4),
            ("NVT_CTRL_A_PARAMS", 4),
            ("NVT_CTRL_B_PARAMS", 4),
            ("NVT_CTRL_C_PARAMS", 4),
            ("NVT_CTRL_CMD_D_PARAMETERS", 4),
            ("NVT_CTRL_E_PARAMS", 4),
            ("NVT_OTHER", 8),
        ],
        &constants,
    );
    alias(&mut surface, "NVT_CTRL_F_PARAMS", "NVT_OTHER");
    let header: String =
        constants.iter().map(|(name, number)| command(name, *number as u64, "0x1")).collect();
    let table = method(0x105, "sizeof(NVT_OTHER)")
        + &method(0x106, "sizeof(NVT_OTHER)")
        + &method(0x107, "0");
    let calls = joined(&surface, &header, &table, None);
    let other = || "NVT_OTHER".to_owned();
    let expected = [
        ("GET_A", Some("NVT_CTRL_GET_A_PARAMS"), Evidence::Name, Check::Silent),
        ("SET_B", Some("NVT_CTRL_B_PARAMS"), Evidence::Name, Check::Silent),
        ("INTERNAL_C", Some("NVT_CTRL_C_PARAMS"), Evidence::Name, Check::Silent),
        ("D", Some("NVT_CTRL_CMD_D_PARAMETERS"), Evidence::Name, Check::Silent),
        ("E", Some("NVT_OTHER"), Evidence::Table, Check::Differs(Some("NVT_CTRL_E_PARAMS".into()))),
        ("F", Some("NVT_CTRL_F_PARAMS"), Evidence::Table, Check::Alias(other())),
        ("G", None, Evidence::Table, Check::Silent),
        ("NULL", None, Evidence::Null, Check::Silent),
    ];
    for (n, params, evidence, check) in expected {
        assert_eq!(of(&calls, &name(n)), (params, evidence, &check), "{n}");
    }
    let [unknown] = calls.unmapped.as_slice() else { panic!("{:?}", calls.unmapped) };
    assert_eq!((unknown.name.as_str(), &unknown.why), ("NVT_CTRL_CMD_H", &Why::NoEvidence));
}

/// A number that two commands share: the table speaks for the one whose type it has.
#[test]
fn a_shared_number() {
    let constants = [("NVT_CTRL_CMD_OLD", 0x101), ("NVT_CTRL_CMD_NEW", 0x101)];
    let surface = surface(&[("NVT_CTRL_OLD_PARAMS", 4), ("NVT_CTRL_NEW_PARAMS", 8)], &constants);
    let header = command("NVT_CTRL_CMD_OLD", 0x101, "0x1")
        + &command("NVT_CTRL_CMD_NEW", 0x101, "NVT_CTRL_NEW_PARAMS_MESSAGE_ID");
    let calls = joined(&surface, &header, &method(0x101, "sizeof(NVT_CTRL_NEW_PARAMS)"), None);
    let (old, new) = (of(&calls, "NVT_CTRL_CMD_OLD"), of(&calls, "NVT_CTRL_CMD_NEW"));
    assert_eq!(old, (Some("NVT_CTRL_OLD_PARAMS"), Evidence::Name, &Check::Silent));
    assert_eq!(new, (Some("NVT_CTRL_NEW_PARAMS"), Evidence::Finn, &Check::Same));
}

#[test]
fn other_names() {
    let names = ["NVT_CTRL_CMD_A", "NVT_CTRL_CMD_B", "NVT_CTRL_CMD_C"];
    let surface = surface(&[("NVT_CTRL_A_PARAMS", 4)], &names.map(|name| (name, 0x101)));
    let header = command(names[0], 0x101, "NVT_CTRL_A_PARAMS_MESSAGE_ID")
        + "#define NVT_CTRL_CMD_B NVT_CTRL_CMD_C\n#define NVT_CTRL_CMD_C (NVT_CTRL_CMD_A)\n"
        + "#define NVT_CTRL_X NVT_CTRL_Y\n#define NVT_CTRL_Y NVT_CTRL_X\n";
    let calls = joined(&surface, &header, "", None);
    assert_eq!(calls.calls.len(), 3);
    for name in &names[1..] {
        let call = call(&calls, name);
        assert_eq!(call.same_as.as_deref(), Some(names[0]));
        assert_eq!(call.params.as_deref(), Some("NVT_CTRL_A_PARAMS"));
    }
}

#[test]
fn classes() {
    let constants = [
        ("NVT_DEVICE", 0xaa0),
        ("NV1_DEVICE", 0xaa0),
        ("NVT_PLAIN", 0xaa1),
        ("NVT_ODD", 0xaa2),
        ("NVT_UNLISTED", 0xaa01),
    ];
    let surface = surface(&[("NVT_DEVICE_PARAMS", 8), ("NvHandle", 4)], &constants);
    let finn = |of| format!("/* finn: Evaluated from \"{of}_MESSAGE_ID\" */\n");
    let device = "#define NV1_DEVICE (0x00000aa0)\n#define NVT_DEVICE (0xaa0) ".to_owned()
        + &finn("NVT_DEVICE_PARAMS");
    let unlisted = "#define NVT_UNLISTED (0xaa01) ".to_owned() + &finn("NVT_U");
    let list = entry("NVT_DEVICE", "RS_OPTIONAL(NvHandle)")
        + &entry("NVT_PLAIN", "RS_NONE")
        + &entry("NVT_ODD", "RS_ODD")
        + &entry("NVT_MISSING", "RS_NONE");
    let unlisted_path = CLASS.replace("cl0aa0", "claa01");
    let headers = vec![(CLASS, device.as_str()), (unlisted_path.as_str(), unlisted.as_str())];
    let mut texts = Texts { headers, resource_list: Some((LIST, &list)), ..Texts::default() };
    let found = calls(&texts, &surface);
    let device = call(&found, "NVT_DEVICE");
    assert_eq!((device.kind, device.number, device.optional), (CallKind::Class, 0xaa0, true));
    assert_eq!(device.params.as_deref(), Some("NvHandle"));
    assert_eq!(device.check, Check::Differs(Some("NVT_DEVICE_PARAMS".into())));
    assert_eq!(device.resource.as_ref().unwrap().internal, "Inner");
    assert_eq!(call(&found, "NV1_DEVICE").same_as.as_deref(), Some("NVT_DEVICE"));
    assert_eq!(call(&found, "NVT_PLAIN").params, None);
    let why = |name| &unmapped(&found, name).why;
    assert_eq!(*why("NVT_ODD"), Why::Unreadable);
    assert_eq!(*why("NVT_MISSING"), Why::NoConstant);
    assert_eq!(*why("NVT_UNLISTED"), Why::NotAllocatable(Some("NVT_U".into())));

    texts.resource_list = None;
    let found = calls(&texts, &surface);
    let (params, evidence, _) = of(&found, "NVT_DEVICE");
    assert_eq!((params, evidence), (Some("NVT_DEVICE_PARAMS"), Evidence::Finn));
}

/// Whatever the text, nothing panics.
#[test]
fn odd_texts() {
    let header = command("NVT_CTRL_CMD_A", 1, "NVT_A_MESSAGE_ID");
    let list = "#if A\n".to_owned() + &entry("NVT_É", "RS_OPTIONAL(T)") + "#endif\n// é";
    let table = method(1, "sizeof(NVT_É)");
    for text in [&header, &list, &table] {
        for cut in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            for part in [&text[..cut], &text[cut..]] {
                parse_header(CTRL, part);
                parse_header(CLASS, part);
                parse_exported(part);
                parse_resources(part);
            }
        }
    }
    parse_header("class/clé0é0.h", &header);
}

#[cfg(feature = "libclang")]
mod driver {
    use std::path::Path;

    use glob::Pattern;
    use nvabi_pipeline::headers;
    use nvabi_pipeline::spec::{Reference, Spec};
    use nvabi_pipeline::verify::Reader;

    use super::*;

    /// The folders below which everything lies that `part` knows, at every tag so far.
    const FOLDERS: [&str; 5] = [
        "src/common/sdk/nvidia/inc",
        "src/nvidia/generated",
        "src/nvidia/src/kernel/rmapi",
        "src/nvidia/inc",
        "src/nvidia/interface/deprecated",
    ];

    /// The files of the driver that matter here, at one tag.
    fn files(source: &mut headers::Source, tag: &str) -> headers::Tree {
        let tag = tag.parse().unwrap();
        let listing = source.list(Reference::whole(&tag), &FOLDERS).unwrap().remove(0);
        let all = Pattern::new("**/*").unwrap();
        let paths = listing.matching(&all).filter(|path| part(path).is_some());
        let paths: Vec<String> = paths.map(str::to_owned).collect();
        source.read(&listing, &paths, &[]).unwrap()
    }

    fn texts(tree: &headers::Tree) -> Texts<'_> {
        let mut texts = Texts::default();
        for (path, file) in &tree.files {
            let both = (path.as_str(), &*file.text);
            match part(path) {
                Some(Part::Header) => texts.headers.push(both),
                Some(Part::Exported) => texts.exported.push(both),
                Some(Part::Resources) => texts.resource_list = Some(both),
                Some(Part::Embedded) => texts.embedded = Some(both.1),
                Some(Part::Flags) => texts.flags = Some(both.1),
                Some(Part::Converted) => texts.converted = Some(both.1),
                None => {}
            }
        }
        texts
    }

    fn count(calls: &Calls, kind: CallKind, which: impl Fn(&Call) -> bool) -> usize {
        let own = calls.calls.iter().filter(|c| c.kind == kind && c.same_as.is_none());
        own.filter(|call| which(call)).count()
    }

    #[test]
    fn of_two_tags() {
        let repository = at_hand::headers_of(&["550.163.01", "595.45.04"]);
        let clang = at_hand::clang();
        let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../abi-specs");
        let specs = Spec::load_family(&specs, "").unwrap();
        let mut spec = specs.into_iter().find(|spec| spec.driver == "550").unwrap();
        spec.surfaces.retain(|surface| surface.name == "rm");
        let mut source = headers::Source::open(&repository).unwrap();
        for (tag, commands, by_finn, confirmed, with_pointers, classes) in
            [("550.163.01", 1472, 1325, 1144, 39, 152), ("595.45.04", 1604, 1450, 1256, 37, 209)]
        {
            let read = Reader::new(&clang, &mut source).read(&spec, &tag.parse().unwrap());
            let facts = read.unwrap_or_else(|report| panic!("{report}")).facts;
            let tree = files(&mut source, tag);
            let calls = calls(&texts(&tree), &facts.surfaces["rm"]);
            let agrees = |c: &Call| matches!(c.check, Check::Same | Check::Alias(_));
            let finn = |c: &Call| c.evidence == Evidence::Finn;
            let counts = (
                count(&calls, CallKind::Command, |_| true),
                count(&calls, CallKind::Command, finn),
                count(&calls, CallKind::Command, |c| finn(c) && agrees(c)),
                count(&calls, CallKind::Command, |c| !c.pointers.is_empty()),
                count(&calls, CallKind::Class, |_| true),
            );
            let expected = (commands, by_finn, confirmed, with_pointers, classes);
            assert_eq!(counts, expected, "{tag}");
            check(&calls);
        }
    }

    /// What holds at every tag so far.
    fn check(calls: &Calls) {
        let differs = |c: &Call| matches!(c.check, Check::Differs(_));
        assert_eq!(count(calls, CallKind::Command, differs), 0);
        let of = |name| call(calls, name).params.as_deref();
        assert_eq!(
            of("NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION"),
            Some("NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS")
        );
        assert_eq!(of("NV01_ROOT"), Some("NvHandle"));
        assert_eq!(of("NV01_DEVICE_0"), Some("NV0080_ALLOC_PARAMETERS"));
        assert!(call(calls, "NV01_DEVICE_0").optional);
        for unmapped in &calls.unmapped {
            let expected =
                matches!(unmapped.why, Why::NoEvidence | Why::NoName(_) | Why::NotAllocatable(_));
            assert!(expected, "{unmapped:?}");
        }
    }
}
