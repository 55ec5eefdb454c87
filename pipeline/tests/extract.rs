//! Facts of our own headers, one difficulty each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{clang, field, headers, read, record, snapshot, surface};
use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::model::{Bits, Facts, Record, RecordKind, Surface};
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::verify::{Read, Reader};
use nvabi_test::Need;

test_main!();

const ARM: &str = "aarch64-unknown-linux-gnu";

/// `(offset, size)` of each field, by name.
fn places(record: &Record) -> Vec<(&str, u64, u64)> {
    record.fields.iter().map(|f| (f.name.as_str(), f.offset, f.size)).collect()
}

/// The bit-fields, by name: first bit from the start of the record, and width.
fn bits(record: &Record) -> Vec<(&str, u64, u64)> {
    let bits = record.fields.iter().filter_map(|f| Some((f, f.bits?)));
    bits.map(|(f, b)| (f.name.as_str(), f.offset * 8 + b.bit_offset, b.bit_width)).collect()
}

fn shape(surface: &Surface, name: &str) -> (u64, u64) {
    let record = record(surface, name);
    (record.size, record.align)
}

fn json(facts: &Facts) -> String {
    serde_json::to_string_pretty(facts).unwrap()
}

/// Runs the test on the surface `rm` of tag 1.1, when libclang is there.
fn on_rm(test: impl FnOnce(&Surface)) {
    test(surface(&read(&clang(), "1.1").facts, "rm"));
}

#[test]
fn all_facts() {
    let clang = clang();
    let read = read(&clang, "1.1");
    for (name, surface) in &read.facts.surfaces {
        let json = serde_json::to_string_pretty(surface).unwrap();
        snapshot(&format!("extract_{}", name.replace('@', "_on_")), &json);
    }
    assert_eq!(read.warnings.render(false), "");
}

#[test]
fn bit_fields_lie_where_the_compiler_puts_them() {
    on_rm(|rm| {
        let units = record(rm, "NVT_BITS_UNITS");
        assert_eq!(bits(units), [("first", 0, 20), ("second", 32, 20), ("third", 64, 24)]);
        assert_eq!((units.size, units.align), (12, 4));
        let crossing = record(rm, "NVT_BITS_CROSSING");
        let wanted = [("crossing_a", 0, 30), ("crossing_b", 30, 10), ("crossing_c", 40, 24)];
        assert_eq!(bits(crossing), wanted);
        let b = field(crossing, "crossing_b");
        assert_eq!((b.offset, b.bits), (3, Some(Bits { bit_offset: 6, bit_width: 10 })));
        let packed = record(rm, "NVT_BITS_PACKED");
        assert_eq!(bits(packed), [("a", 0, 12), ("b", 12, 24), ("c", 36, 28)]);
        assert_eq!((packed.size, packed.align), (8, 1));
        let unnamed = record(rm, "NVT_BITS_UNNAMED");
        let wanted =
            [("before", 0, 3), ("", 3, 2), ("after", 5, 3), ("type", 8, 4), ("match", 12, 4)];
        assert_eq!(bits(unnamed), wanted);
    });
}

#[test]
fn only_the_machine_tells_what_a_bit_field_of_no_width_aligns() {
    let clang = clang();
    let facts = read(&clang, "1.1").facts;
    let name = "NVT_BITS_ZERO_WIDTH";
    assert_eq!(shape(surface(&facts, "rm"), name), (5, 1));
    let arm = surface(&facts, &format!("rm@{ARM}"));
    assert_eq!(shape(arm, name), (8, 4));
    assert_eq!(bits(record(arm, name)), [("a", 0, 3), ("", 32, 0), ("b", 32, 2)]);
    // The other records are the same on both machines, and are said once.
    let others: Vec<&str> = arm.records.keys().map(String::as_str).collect();
    assert_eq!(others, [name]);
    assert_eq!(arm.constants["NVT_PAGE_SIZE"].value, 65536);
    assert_eq!(surface(&facts, "rm").constants["NVT_PAGE_SIZE"].value, 4096);
    assert_eq!(arm.constants.len(), 1);
    let names: Vec<&str> = facts.surfaces.keys().map(String::as_str).collect();
    assert_eq!(names, ["plus", "rm", &format!("rm@{ARM}")]);
}

#[test]
fn a_flexible_array_has_no_size() {
    on_rm(|rm| {
        let flexible = record(rm, "NVT_FLEXIBLE");
        assert_eq!(places(flexible), [("count", 0, 4), ("kind", 4, 2), ("data", 6, 0)]);
        assert_eq!((flexible.size, flexible.align), (8, 4));
        assert_eq!(field(flexible, "data").canonical, "unsigned char[]");
        assert_eq!(field(record(rm, "NVT_FLEXIBLE_ZERO"), "entries").canonical, "unsigned int[0]");
        let ranges = field(record(rm, "NVT_FLEXIBLE_RECORD"), "ranges");
        assert_eq!(ranges.canonical, "NVT_FLEXIBLE_RECORD::ranges_t[]");
        assert_eq!(shape(rm, "NVT_FLEXIBLE_RECORD::ranges_t"), (16, 8));
    });
}

#[test]
fn packing() {
    on_rm(|rm| {
        assert_eq!(shape(rm, "NVT_PACKED"), (13, 1));
        assert_eq!(shape(rm, "NVT_PACKED_TWO"), (14, 2));
        let two = record(rm, "NVT_PACKED_TWO");
        assert_eq!(places(two), [("tag", 0, 1), ("value", 2, 4), ("big", 6, 8)]);
        let holds = record(rm, "NVT_PACKED_HOLDS_ALIGNED");
        assert_eq!(places(holds), [("tag", 0, 1), ("inner", 1, 8), ("pair", 9, 16)]);
        assert_eq!((holds.size, holds.align), (25, 1));
        assert_eq!(shape(rm, "NVT_HOLDS_PACKED"), (16, 2));
        assert_eq!(shape(rm, "NVT_PACKED_BUT_ALIGNED"), (4, 4));
        assert_eq!(shape(rm, "NVT_PACKED_UNION"), (5, 1));
    });
}

#[test]
fn alignment_beyond_the_type() {
    on_rm(|rm| {
        let member = record(rm, "NVT_ALIGNED_MEMBER");
        let wanted = [("first", 0, 4), ("second", 8, 8), ("third", 16, 4), ("fourth", 20, 4)];
        assert_eq!(places(member), wanted);
        assert_eq!((member.size, member.align), (24, 8));
        assert_eq!(shape(rm, "NVT_ALIGNED_SIXTEEN"), (32, 16));
        assert_eq!(shape(rm, "NVT_ALIGNED_RECORD"), (32, 32));
        assert_eq!(shape(rm, "NVT_HOLDS_ALIGNED"), (96, 32));
        // A typedef can take alignment away.
        assert_eq!(shape(rm, "NVT_ALIGNED_LESS"), (12, 4));
        assert_eq!(field(record(rm, "NVT_ALIGNED_LESS"), "value").offset, 4);
    });
}

#[test]
fn unnamed_members_are_numbered() {
    on_rm(|rm| {
        let outer = record(rm, "NVT_ANONYMOUS");
        assert_eq!(places(outer), [("kind", 0, 4), ("", 4, 4), ("", 8, 8)]);
        let types: Vec<&str> = outer.fields.iter().map(|f| f.canonical.as_str()).collect();
        assert_eq!(types, ["unsigned int", "NVT_ANONYMOUS::anon0_t", "NVT_ANONYMOUS::anon1_t"]);
        let union = record(rm, "NVT_ANONYMOUS::anon0_t");
        assert_eq!(union.kind, RecordKind::Union);
        assert_eq!(union.fields[1].canonical, "NVT_ANONYMOUS::anon0_t::anon0_t");
        assert_eq!(union.fields[2].canonical, "NVT_ANONYMOUS::anon0_t::letters_t");
        assert_eq!(union.fields[2].ty, union.fields[2].canonical);
        let deep = record(rm, "NVT_UNION_MEMBER::data_t::buffer_t");
        assert_eq!(places(deep), [("pointer", 0, 8), ("length", 8, 4)]);
    });
}

#[test]
fn dimensions_stand_in_the_order_of_c() {
    on_rm(|rm| {
        let arrays = record(rm, "NVT_ARRAYS");
        let canonical = |name| field(arrays, name).canonical.as_str();
        let declared = |name| field(arrays, name).ty.as_str();
        assert_eq!(canonical("cube"), "unsigned char[2][3][4]");
        assert_eq!(declared("cube"), "NvU8[2][3][4]");
        // The dimensions of the member are not part of the record's name.
        assert_eq!(canonical("cell"), "NVT_ARRAYS::cell_t[2][3]");
        assert_eq!(shape(rm, "NVT_ARRAYS::cell_t"), (8, 4));
        assert_eq!((declared("macs"), canonical("macs")), ("NvtMac[2]", "unsigned char[2][6]"));
        assert_eq!((declared("mac"), canonical("mac")), ("NvtMac", "unsigned char[6]"));
        assert_eq!(canonical("uuids"), "NvProcessorUuid[2]");
    });
}

#[test]
fn the_first_direct_typedef_names_a_record() {
    on_rm(|rm| {
        for name in ["NvtTwoFirst", "NVT_OTHER_TAG", "NvtForward", "nvt_tag_only"] {
            assert!(rm.records.contains_key(name), "{name}");
        }
        for name in
            ["NvtTwoSecond", "nvt_two_tag", "NVT_OTHER_TAG_STRUCT", "nvt_forward", "nvt_opaque"]
        {
            assert!(!rm.records.contains_key(name), "{name}");
        }
        let alias = |name: &str| (rm.aliases[name].ty.as_str(), rm.aliases[name].size);
        assert_eq!(alias("NvtTwoSecond"), ("NvtTwoFirst", 8));
        assert_eq!(alias("NVT_OTHER_TAG_ALIAS_OF_ALIAS"), ("NVT_OTHER_TAG", 4));
        assert_eq!(alias("NvtResult"), ("unsigned int", 4));
        assert_eq!(alias("NvtOpaque"), ("struct nvt_opaque", 0));
        assert!(!rm.aliases.contains_key("NVT_OTHER_TAG"));
        let record = record(rm, "NVT_TYPEDEFS");
        let spelled = |name| {
            let field = field(record, name);
            (field.ty.as_str(), field.canonical.as_str())
        };
        assert_eq!(spelled("inner"), ("NVT_OTHER_TAG_ALIAS_OF_ALIAS", "NVT_OTHER_TAG"));
        assert_eq!(spelled("tagged"), ("nvt_tag_only", "nvt_tag_only"));
        assert_eq!(spelled("result"), ("const NvtResult", "unsigned int"));
        assert_eq!(spelled("two"), ("NvtTwoSecond", "NvtTwoFirst"));
        assert_eq!(spelled("opaque").0, "NvtOpaque *");
        assert_eq!(places(common::record(rm, "NVT_DEFINES_WITHIN")).len(), 2);
        assert!(rm.records.contains_key("nvt_defined_within"));
    });
}

#[test]
fn enums() {
    on_rm(|rm| {
        let size = |name: &str| rm.enums[name].size;
        assert_eq!((size("NVT_PLAIN"), size("NVT_HUGE"), size("NVT_SMALL")), (4, 8, 1));
        let value = |of: &str, name: &str| rm.enums[of].variants[name];
        assert_eq!(value("NVT_NEGATIVE", "NVT_NEGATIVE_ONE"), -1);
        assert_eq!(value("NVT_NEGATIVE", "NVT_NEGATIVE_MIN"), i128::from(i32::MIN));
        assert_eq!(value("NVT_LARGE", "NVT_LARGE_TOP"), 0xffff_ffff);
        assert_eq!(value("NVT_HUGE", "NVT_HUGE_TOP"), 0x1_0000_0000);
        assert_eq!(value("nvt_tagged", "NVT_TAGGED_ONE"), 1);
        assert_eq!(rm.constants["NVT_UNNAMED_FIVE"].value, 5);
        assert_eq!(rm.constants["NVT_UNNAMED_MINUS"].value, -6);
        // The enum of a member has the name that a record there would have.
        assert_eq!(field(record(rm, "NVT_ENUMS"), "mode").canonical, "NVT_ENUMS::mode_t");
        assert_eq!(value("NVT_ENUMS::mode_t", "NVT_MODE_ON"), 1);
        assert_eq!(field(record(rm, "NVT_ENUMS"), "tagged").canonical, "nvt_tagged[2]");
    });
}

#[test]
fn pointers_and_machine_words() {
    on_rm(|rm| {
        let pointers = record(rm, "NVT_POINTERS");
        let canonical = |name| field(pointers, name).canonical.as_str();
        assert_eq!(canonical("address"), "void *");
        assert_eq!(field(pointers, "address").ty, "NvP64");
        assert_eq!(canonical("table"), "unsigned char **");
        assert_eq!(canonical("callback"), "void (*)(unsigned int, void *)");
        assert_eq!(canonical("callbacks"), "void (*)(unsigned int, void *)[2]");
        assert_eq!(canonical("names"), "char *[3]");
        // One pointer to four integers, not four pointers.
        assert_eq!(canonical("rows"), "unsigned int[4] *");
        assert_eq!(canonical("pages"), "unsigned int[4] *[2]");
        assert!(pointers.fields.iter().all(|f| f.size % 8 == 0));
        let machine = record(rm, "NVT_MACHINE");
        assert_eq!(field(machine, "unsigned_long").canonical, "unsigned long");
        assert_eq!(field(machine, "longs").size, 16);
        assert_eq!(field(machine, "yes").canonical, "_Bool");
        assert_eq!(field(machine, "size").ty, "size_t");
    });
}

#[test]
fn constants() {
    on_rm(|rm| {
        let wanted: &[(&str, i128)] = &[
            ("NVT_DECIMAL", 42),
            ("NVT_HEX", 0xC1D0_F00D),
            ("NVT_HEX_UPPER", 255),
            ("NVT_OCTAL", 0o755),
            ("NVT_CHAR", 70),
            ("NVT_CHAR_ESCAPED", 10),
            ("NVT_NEGATIVE_NUMBER", -3),
            ("NVT_SHIFT", 1 << 20),
            ("NVT_SHIFT_TOP", 1 << 31),
            ("NVT_ALL_ONES", 0xffff_ffff),
            ("NVT_ALL_ONES_64", u64::MAX as i128),
            ("NVT_LOWEST_64", i64::MIN as i128),
            ("NVT_CAST", 0x34),
            ("NVT_CAST_SIGNED", -1),
            ("NVT_SIZEOF", 16),
            ("NVT_SIZEOF_ARRAY", 16),
            ("NVT_TERNARY", 1),
            ("NVT_OF_ENUMERATOR", 26),
            ("NVT_WITH_COMMENT", 5),
            ("NVT_CONTINUED", 3),
            ("NVT_APPLIED", 0x1234),
            ("NVT_APPLIED_TWICE", 0x12_3401),
            ("NVT_REDEFINED", 2),
            ("NVT_ROWS", 2),
            ("NVT_PAGE_SIZE", 4096),
            ("NVT_EXTERN_CONSTANT", 7),
            ("NVT_PASTED", 42),
        ];
        for (name, value) in wanted {
            assert_eq!(rm.constants.get(*name).map(|c| c.value), Some(*value), "{name}");
        }
    });
}

#[test]
fn what_is_no_integer_is_not_recorded() {
    on_rm(|rm| {
        let names: BTreeSet<&str> =
            rm.constants.keys().chain(rm.bit_ranges.keys()).map(String::as_str).collect();
        for name in [
            "NVT_FUNCTION",
            "NVT_PASTE",
            "NVT_UNDEFINED",
            "NVT_USES_UNDEFINED",
            "NVT_STRING",
            "NVT_FLOAT",
            "NVT_EMPTY",
            "NVT_TYPE_ONLY",
            "NVT_STATEMENT",
            "NV_ALIGN_BYTES",
        ] {
            assert!(!names.contains(name), "{name}");
        }
    });
}

#[test]
fn bit_ranges() {
    on_rm(|rm| {
        let range = |name: &str| rm.bit_ranges.get(name).map(|r| (r.high, r.low));
        assert_eq!(range("NVT_BITS_LOW"), Some((7, 0)));
        assert_eq!(range("NVT_BITS_COMPUTED"), Some((15, 8)));
        assert_eq!(range("NVT_BITS_ALIAS"), Some((7, 0)));
        assert_eq!(range("NVT_BITS_ALIAS_OF_ALIAS"), Some((7, 0)));
        assert_eq!(range("NVT_BITS_FAR"), Some((255, 224)));
    });
}

/// The facts of headers of one test, by name and text, with what was warned of; tag 1.1.
fn facts_of(clang: &Clang, language: &str, headers: &[(&str, &str)]) -> Result<Read, Report> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in headers {
        let path = folder.path().join("1.1").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    read_from(clang, folder.path(), language, &["1.1"]).map(|mut all| all.remove(0))
}

/// Reads tags of a folder of trees one after the other.
fn read_from(
    clang: &Clang,
    folder: &Path,
    language: &str,
    tags: &[&str],
) -> Result<Vec<Read>, Report> {
    let spec = format!(
        "driver = \"1\"\ntargets = [\"x86_64-unknown-linux-gnu\"]\n[surface.rm]\n\
         headers = [\"inc/*.h\"]\ninclude = [\"inc\", \"sys\"]\nsystem = [\"sys/*.h\"]\n\
         language = \"{language}\"\n"
    );
    let file = ("driver-1".to_owned(), "driver-1.toml".to_owned(), spec);
    let spec = common::ok(Spec::parse_all(&[file])).remove(0);
    let mut source = Source::open(folder).unwrap();
    let mut reader = Reader::new(clang, &mut source);
    tags.iter().map(|text| reader.read(&spec, &common::tag(text))).collect()
}

const PASTING: &str = "
#define NVT_FIELD_SHIFT(range) (0 ? range)
#define NVT_DEF(dev, field, value) (NVT ## dev ## field ## value << NVT_FIELD_SHIFT(NVT ## dev ## field))
#define NVT_NUM(dev, field, n) ((n) << NVT_FIELD_SHIFT(NVT##dev##field))
#define NVT1234_MODE 7:4
#define NVT1234_MODE_FAST 0x3
#define NVT1234_TEXT \"pasted, and no number\"
#define NVT_PASTED_MODE NVT_DEF(1234, _MODE, _FAST)
#define NVT_PASTED_TWICE (NVT_DEF(1234, _MODE, _FAST) | NVT_NUM(1234, _MODE, 8))
#define NVT_USES_PASTED (NVT_PASTED_MODE + 1)
#define NVT_PASTED_MISSING NVT_DEF(1234, _MODE, _SLOW)
#define NVT_PASTED_TEXT NVT_DEF(1234, _TEXT, )
#define NVT_PASTED_BARE NVT1234_MO ## DE_FAST
#define NVT_LENGTH sizeof(NVT_TEXT_OF(four))
#define NVT_TEXT_OF(x) #x
#define NVT_WORD(range) range
#define NVT_BYTE(i) (i) * 8 + 7:(i) * 8
#define NVT_NIBBLE(i) NVT_WORD((i) * 4 + 3:(i) * 4)
#define NVT_RANGE_GIVEN NVT_WORD(31:0)
#define NVT_RANGE_MADE NVT_BYTE(2)
#define NVT_RANGE_MADE_TWICE NVT_NIBBLE(1)
#define NVT_RANGE_PASTED NVT_JOIN(NVT1234, _MODE)
#define NVT_JOIN(a, b) a ## b
#define NVT_SHIFT_GIVEN NVT_FIELD_SHIFT(15:8)
#define NVT_SHIFT_MADE NVT_FIELD_SHIFT(NVT_BYTE(3))
#define NVT_CHOICE NVT_WORD(1 ? 5 : 6)
#define NVT_DROPS(what, value) value
#define NVT_DROPPED NVT_DROPS(nowhere_to_be_found, 9)
#define NVT_LAST(first, ...) __VA_ARGS__
#define NVT_OF_REST NVT_LAST(1, 2)
#define NVT_STRAY do_nothing(nowhere)
";

#[test]
fn pasted_names_and_ranges_that_macros_make() {
    let clang = clang();
    let read = common::ok(facts_of(&clang, "c", &[("inc/paste.h", PASTING)]));
    let rm = surface(&read.facts, "rm");
    let constants: Vec<(&str, i128)> =
        rm.constants.iter().map(|(name, c)| (name.as_str(), c.value)).collect();
    let wanted = [
        ("NVT1234_MODE_FAST", 3),
        ("NVT_CHOICE", 5),
        ("NVT_DROPPED", 9),
        ("NVT_LENGTH", 5),
        ("NVT_OF_REST", 2),
        ("NVT_PASTED_BARE", 3),
        ("NVT_PASTED_MODE", 0x30),
        ("NVT_PASTED_TWICE", 0xb0),
        ("NVT_SHIFT_GIVEN", 8),
        ("NVT_SHIFT_MADE", 24),
        ("NVT_USES_PASTED", 0x31),
    ];
    assert_eq!(constants, wanted);
    let ranges: Vec<(&str, i64, i64)> =
        rm.bit_ranges.iter().map(|(name, r)| (name.as_str(), r.high, r.low)).collect();
    let wanted = [
        ("NVT1234_MODE", 7, 4),
        ("NVT_RANGE_GIVEN", 31, 0),
        ("NVT_RANGE_MADE", 23, 16),
        ("NVT_RANGE_MADE_TWICE", 7, 4),
        ("NVT_RANGE_PASTED", 7, 4),
    ];
    assert_eq!(ranges, wanted);
}

/// A pasted name does not stand in the text of the macro: what it was in another tag must not show.
#[test]
fn pasted_names_are_not_remembered_from_tag_to_tag() {
    let clang = clang();
    let folder = tempfile::tempdir().unwrap();
    let texts = [
        ("1.1", PASTING.to_owned()),
        ("1.2", PASTING.replace("_FAST 0x3", "_FAST 0x5").replace("MODE 7:4", "MODE 11:8")),
        ("1.3", PASTING.replace("#define NVT1234_MODE_FAST 0x3", "")),
    ];
    for (tag, text) in &texts {
        std::fs::create_dir_all(folder.path().join(tag).join("inc")).unwrap();
        std::fs::write(folder.path().join(tag).join("inc/paste.h"), text).unwrap();
    }
    for order in [["1.1", "1.2", "1.3"], ["1.3", "1.2", "1.1"]] {
        let together = common::ok(read_from(&clang, folder.path(), "c", &order));
        for (tag, read) in order.iter().zip(together) {
            let alone = common::ok(read_from(&clang, folder.path(), "c", &[tag])).remove(0);
            assert!(read.facts == alone.facts, "{tag} read in the order {order:?}");
            let rm = surface(&read.facts, "rm");
            let value = |name: &str| rm.constants.get(name).map(|c| c.value);
            let wanted = match *tag {
                "1.1" => Some(0x30),
                "1.2" => Some(0x500),
                _ => None,
            };
            assert_eq!(value("NVT_PASTED_MODE"), wanted, "{tag}");
            assert_eq!(value("NVT_USES_PASTED"), wanted.map(|v| v + 1), "{tag}");
        }
    }
}

/// The value is the driver's, though a header of the system has a part in it.
#[test]
fn constants_of_what_the_system_defines() {
    let clang = clang();
    let header = "#include <sysonly.h>\n#include <stddef.h>\n\
        struct nvt { char a; int b; };\n#define NVT_OF_SYSTEM (SYS_CONSTANT + 1)\n\
        #define NVT_OFFSET offsetof(struct nvt, b)\n";
    let files = [("inc/a.h", header), ("sys/sysonly.h", "#define SYS_CONSTANT 4\n")];
    let read = common::ok(facts_of(&clang, "c", &files));
    let rm = surface(&read.facts, "rm");
    let constants: Vec<(&str, i128)> =
        rm.constants.iter().map(|(name, c)| (name.as_str(), c.value)).collect();
    assert_eq!(constants, [("NVT_OFFSET", 4), ("NVT_OF_SYSTEM", 5)]);
}

/// The types are those of a header of the system, whose names are never recorded.
#[test]
fn constants_that_cast_to_types_of_the_system() {
    let clang = clang();
    let header = "#include <linux/types.h>\n\
        #define NVT_SHARE ((__u32)(1 << 3))\n#define NVT_NONE (~((__u32)0U))\n\
        #define NVT_WIDE ((uint64_t)1 << 40)\n#define NVT_OTHER ((no_such_type)1)\n";
    let read = common::ok(facts_of(&clang, "c", &[("inc/a.h", header)]));
    let rm = surface(&read.facts, "rm");
    let constants: Vec<(&str, i128)> =
        rm.constants.iter().map(|(name, c)| (name.as_str(), c.value)).collect();
    let all_ones = i128::from(u32::MAX);
    assert_eq!(constants, [("NVT_NONE", all_ones), ("NVT_SHARE", 8), ("NVT_WIDE", 1 << 40)]);
}

#[test]
fn records_that_nothing_names_are_parts_of_what_declares_them() {
    let clang = clang();
    let header = "
typedef struct { int x; } NvtCells[4];
typedef struct { int y; } *NvtHidden;
typedef union { int z; } (*NvtRows)[2];
typedef enum { NVT_ON, NVT_OFF } NvtModes[3];
typedef NvtHidden NvtHiddenToo;
typedef struct { int d; } NvtDirect, *NvtDirectPointer;
typedef struct nvt_behind { int t; } *NvtBehind;
struct nvt_outer {
    struct { int a; struct { int deep; } *deeper; } *unnamed;
    struct nvt_inner { int b; struct nvt_inner *next; } *named;
    union { int c; } (*rows)[2];
    NvtCells cells;
    NvtHidden hidden;
    struct nvt_elsewhere *elsewhere;
};
";
    let read = common::ok(facts_of(&clang, "c", &[("inc/a.h", header)]));
    let rm = surface(&read.facts, "rm");
    let records: Vec<(&str, String)> =
        rm.records.iter().map(|(name, r)| (name.as_str(), r.source.to_string())).collect();
    let wanted = [
        ("NvtCells::anon0_t", "inc/a.h:2"),
        ("NvtDirect", "inc/a.h:7"),
        ("NvtHidden::anon0_t", "inc/a.h:3"),
        ("NvtRows::anon0_t", "inc/a.h:4"),
        ("nvt_behind", "inc/a.h:8"),
        ("nvt_inner", "inc/a.h:11"),
        ("nvt_outer", "inc/a.h:9"),
        ("nvt_outer::rows_t", "inc/a.h:12"),
        ("nvt_outer::unnamed_t", "inc/a.h:10"),
        ("nvt_outer::unnamed_t::deeper_t", "inc/a.h:10"),
    ];
    assert_eq!(records, wanted.map(|(name, source)| (name, source.to_owned())));
    let aliases: Vec<(&str, &str)> =
        rm.aliases.iter().map(|(name, a)| (name.as_str(), a.ty.as_str())).collect();
    let wanted = [
        ("NvtBehind", "nvt_behind *"),
        ("NvtCells", "NvtCells::anon0_t[4]"),
        ("NvtDirectPointer", "NvtDirect *"),
        ("NvtHidden", "NvtHidden::anon0_t *"),
        ("NvtHiddenToo", "NvtHidden::anon0_t *"),
        ("NvtModes", "NvtModes::anon0_t[3]"),
        ("NvtRows", "NvtRows::anon0_t[2] *"),
    ];
    assert_eq!(aliases, wanted);
    assert_eq!(rm.enums["NvtModes::anon0_t"].variants["NVT_OFF"], 1);
    let outer: Vec<&str> =
        record(rm, "nvt_outer").fields.iter().map(|f| f.canonical.as_str()).collect();
    let wanted = [
        "nvt_outer::unnamed_t *",
        "nvt_inner *",
        "nvt_outer::rows_t[2] *",
        "NvtCells::anon0_t[4]",
        "NvtHidden::anon0_t *",
        "nvt_elsewhere *",
    ];
    assert_eq!(outer, wanted);
    assert!(!json(&read.facts).contains("unnamed "), "clang's own words are in the facts");
}

/// What has no name and no place to take one from is refused.
#[test]
fn a_record_without_a_name_in_a_callback_is_refused() {
    let clang = clang();
    let header = "typedef struct { int a; } *NvtPointer;
struct nvt_calls { void (*call)(struct { int x; } *argument); };
typedef void (*NvtCall)(union { int y; } *argument);
";
    let report = common::refused(facts_of(&clang, "c", &[("inc/a.h", header)]));
    let told: Vec<(&str, &str)> =
        report.diagnostics.iter().map(|d| (d.code, d.message.as_str())).collect();
    let wanted = [
        ("record-layout", "nvt_calls: the type of `call` holds a record that has no name"),
        ("record-unnamed", "the typedef `NvtCall` holds a record that has no name"),
    ];
    let errors: Vec<_> = told.into_iter().filter(|(code, _)| *code != "header-parse").collect();
    assert_eq!(errors, wanted);
}

#[test]
fn a_typedef_whose_body_is_nowhere_stands_for_its_tag() {
    let clang = clang();
    let header = "typedef struct NvtSame NvtSame;
typedef union nvt_other_tag NvtOther;
typedef NvtOther NvtOtherToo;
typedef NvtSame *NvtSamePointer;
typedef struct NvtLater NvtLater;
struct NvtLater { int a; };
";
    let read = common::ok(facts_of(&clang, "c", &[("inc/a.h", header)]));
    let rm = surface(&read.facts, "rm");
    let aliases: Vec<(&str, &str, u64)> =
        rm.aliases.iter().map(|(name, a)| (name.as_str(), a.ty.as_str(), a.size)).collect();
    let wanted = [
        ("NvtOther", "union nvt_other_tag", 0),
        ("NvtOtherToo", "NvtOther", 0),
        ("NvtSame", "struct NvtSame", 0),
        ("NvtSamePointer", "NvtSame *", 8),
    ];
    assert_eq!(aliases, wanted);
    assert!(rm.records.contains_key("NvtLater"));
}

/// An attribute or pragma that the parser drops, or one that reaches further than its header, may
/// change a layout: it is said at its place.
#[test]
fn attributes_and_pragmas_without_effect_are_reported() {
    let clang = clang();
    let cases = [
        ("c", "struct __attribute__((nvt_unheard_of)) nvt_a { int a; };", "nvt_unheard_of", 1),
        ("c", "struct nvt_a;\nvoid f(struct nvt_a *a __attribute__((packed)));", "packed", 2),
        ("c", "struct nvt_a { int a; };\n__attribute__((packed)) struct nvt_a g;", "packed", 2),
        ("c", "#pragma pack(push, 3)\nstruct nvt_a { int a; };", "pack", 1),
        ("c", "#pragma pack(4, nonsense, 2)\nstruct nvt_a { int a; };", "pack", 1),
        (
            "c",
            "struct nvt_a { int a; };\n#pragma pack(push, 1)\nstruct nvt_b { int b; };",
            "pack",
            2,
        ),
        ("c", "#pragma pack(pop)\nstruct nvt_a { int a; };", "pack", 1),
        ("c", "#define NVT_ONE 1\n#define NVT_ONE 2\n", "NVT_ONE", 2),
        ("c++", "extern \"C\" {\nstruct nvt_empty { };\n}\n", "empty struct", 2),
    ];
    for (language, header, word, line) in cases {
        let read = common::ok(facts_of(&clang, language, &[("inc/a.h", header)]));
        let mut warnings = read.warnings.diagnostics.iter();
        let Some(warning) = warnings.find(|warning| warning.place.is_some()) else {
            panic!("{header}\nno warning in the header: {}", read.warnings);
        };
        assert_eq!(warning.code, "header-parse", "{header}");
        assert!(warning.message.contains(word), "{header}\n{warning}");
        let place = warning.place.as_ref().map(|place| place.line_and_column());
        let at = place.unwrap_or_default();
        assert!(at.starts_with(&format!("inc/a.h:{line}:")), "{header}\n{at}");
    }
    // What is done properly is not.
    let right = "#pragma pack(push, 1)\nstruct nvt_a { int a; };\n#pragma pack(pop)\n\
        struct __attribute__((packed, aligned(4))) nvt_b { char c; int b; };";
    let read = common::ok(facts_of(&clang, "c", &[("inc/a.h", right)]));
    assert_eq!(read.warnings.render(false), "");
}

/// Neither the headers that a spec calls `system` nor the stand-ins for the real ones are recorded.
#[test]
fn names_of_the_system_stay_out() {
    let clang = clang();
    for (name, surface) in &read(&clang, "1.1").facts.surfaces {
        let names = (surface.records.keys())
            .chain(surface.aliases.keys())
            .chain(surface.enums.keys())
            .chain(surface.constants.keys());
        for item in names {
            let ours = item.to_lowercase().starts_with("nv");
            assert!(ours, "surface {name} has {item}");
        }
        let sources = surface.records.values().map(|r| &r.source.path);
        assert!(sources.into_iter().all(|p| p.starts_with("inc/") || p.starts_with("cpp/")));
    }
}

#[test]
fn headers_of_cpp() {
    let clang = clang();
    let facts = read(&clang, "1.1").facts;
    let plus = surface(&facts, "plus");
    assert_eq!(shape(plus, "NVT_PLUS_C"), (4, 4));
    assert_eq!(plus.aliases["NVT_PLUS_ALIAS"].ty, "NVT_PLUS_C");
    assert_eq!(shape(plus, "NvtPlus"), (16, 8));
    assert_eq!(shape(plus, "NVT_PLUS"), (24, 8));
    let yes = field(record(plus, "NVT_PLUS"), "yes");
    assert_eq!(yes.canonical, "_Bool");
    assert_eq!(plus.constants["NVT_PLUS_CONSTANT"].value, 0x2b);
}

#[test]
fn what_the_next_version_changed() {
    let clang = clang();
    let (old, new) = (read(&clang, "1.1").facts, read(&clang, "1.2").facts);
    let differences = nvabi_pipeline::compare::facts(&old, &new);
    let told: Vec<String> = (differences.iter())
        .map(|d| format!("{} {}: {} → {}", d.item, d.what, d.first, d.second))
        .filter(|line| !line.contains(" source:"))
        .collect();
    let wanted = [
        "NVT_COMES record: missing → present",
        "NVT_GOES record: present → missing",
        "NVT_GROWS size: 8 → 12",
        "NVT_GROWS field second: offset: 4 → 8",
        "NVT_GROWS field between: missing → at 4",
        "NVT_SWAPS field status: offset: 0 → 4",
        "NVT_SWAPS field size: offset: 4 → 0",
        "NVT_SWAPS order of fields: status, size, address → size, status, address",
        "NVT_LIMIT value: 16 → 32",
        "NVT_NEW_NAME constant: missing → present",
        "NVT_OLD_NAME constant: present → missing",
    ];
    let sorted = |lines: &[String]| lines.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(sorted(&told), sorted(&wanted.map(str::to_owned)));
}

/// What one tag taught the cache must not show in the next: not even where a macro of the same
/// text was undefined again.
#[test]
fn the_order_of_reading_does_not_matter() {
    let clang = clang();
    for order in [["1.1", "1.2"], ["1.2", "1.1"]] {
        let mut source = nvabi_pipeline::headers::Source::open(&headers()).unwrap();
        let mut reader = nvabi_pipeline::verify::Reader::new(&clang, &mut source);
        for text in order {
            let after = common::ok(reader.read(&common::spec(), &common::tag(text)));
            let fresh = read(&clang, text);
            let differences = nvabi_pipeline::compare::facts(&after.facts, &fresh.facts);
            assert_eq!(differences, [], "{text} read in the order {order:?}");
        }
    }
}

/// Set for the child process that [`every_libclang_says_the_same`] starts: where to write.
const CHILD: &str = "NVABI_TEST_FACTS_TO";

#[test]
fn child_writes_facts() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let clang = clang();
    let all = format!(
        "{}\n{}\n{}",
        clang.version(),
        json(&read(&clang, "1.1").facts),
        json(&read(&clang, "1.2").facts)
    );
    std::fs::write(path, all).unwrap();
}

/// Facts do not depend on the version of libclang: each that is installed is asked.
#[test]
fn every_libclang_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut told: Vec<(String, String)> = Vec::new();
    for (i, libclang) in installed().into_iter().enumerate() {
        let output = folder.path().join(i.to_string());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_writes_facts"])
            .env("LIBCLANG_PATH", &libclang)
            .env(CHILD, &output)
            .output()
            .unwrap();
        assert!(child.status.success(), "{libclang:?}: {child:?}");
        let text = std::fs::read_to_string(&output).unwrap();
        let (version, facts) = text.split_once('\n').unwrap();
        told.push((version.to_owned(), facts.to_owned()));
    }
    if told.len() < 2 {
        nvabi_test::skip(Need::TwoClangs, "fewer than two versions of libclang are installed");
    }
    let versions: BTreeSet<&str> = told.iter().map(|(version, _)| version.as_str()).collect();
    assert_eq!(versions.len(), told.len(), "the same libclang was loaded twice: {versions:?}");
    for (version, facts) in &told[1..] {
        let (first, wanted) = &told[0];
        let differing = wanted.lines().zip(facts.lines()).find(|(a, b)| a != b);
        assert!(wanted == facts, "{first} and {version} differ: {differing:?}");
    }
}

/// The folders of the LLVM versions of Debian and its kin, as far as nvabi supports them.
fn installed() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let version = name.to_str().and_then(|n| n.strip_prefix("llvm-")?.parse::<u32>().ok());
            version.is_some_and(|version| version >= 14)
        })
        .map(|entry| entry.path().join("lib"))
        .filter(|lib| {
            let names = std::fs::read_dir(lib).into_iter().flatten().flatten();
            let is_it = |name: &str| {
                let version = name.strip_prefix("libclang-");
                name.starts_with("libclang.so")
                    || version.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            };
            names.into_iter().any(|entry| is_it(&entry.file_name().to_string_lossy()))
        })
        .collect();
    folders.sort();
    folders
}

/// The folder of extracted trees is read by tag.
#[test]
fn trees_are_found_by_tag() {
    let source = nvabi_pipeline::headers::Source::open(&headers()).unwrap();
    let tags: Vec<String> = source.tags().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["1.1", "1.2"]);
}

#[test]
fn trees_are_named_as_their_publishers_do() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "open-gpu-kernel-modules-550.54.14",
        "nvidia-open-gpu-kernel-modules-550.90.07",
        "tegra-r36.4",
    ];
    for name in names.iter().chain(&["595.45.04", "no-tag"]) {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let source = nvabi_pipeline::headers::Source::open(folder.path()).unwrap();
    let tags: Vec<String> = source.tags().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["550.54.14", "550.90.07", "595.45.04", "tegra-r36.4"]);
}
