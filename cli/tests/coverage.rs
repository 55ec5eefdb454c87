//! `nvabi coverage` as a user meets it, on a small table of our own and on gVisor's source.
#![allow(clippy::unwrap_used)]

#[macro_use]
extern crate nvabi_test;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nvabi_test::{Need, skip};
use serde_json::Value;

test_main!();

/// A table of the tests' folder.
fn read(name: &str) -> String {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("cli/tests/coverage");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The small one.
fn table() -> String {
    read("table.json")
}

/// Runs the command on a table.
fn coverage(table: &str, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.json");
    fs::write(&file, table).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .arg("coverage")
        .arg(&file)
        .args(args);
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The table with one thing in it replaced.
fn altered(from: &str, to: &str) -> String {
    let table = table();
    assert_eq!(table.matches(from).count(), 1, "{from}");
    table.replace(from, to)
}

#[test]
fn a_covered_table_is_shown_by_version_and_kind() {
    let output = coverage(&table(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    // Which tags are around a version changes with each driver that is published.
    let (around, rest): (Vec<String>, Vec<String>) =
        out(&output).lines().map(str::to_owned).partition(|line| line.starts_with("580."));
    assert_eq!(
        rest,
        [
            "version       frontend     uvm   control     class   gaps  lacking",
            "535.104.05         2/2     1/1       1/1       1/2      0        1",
            "550.40.07          2/2     1/1       2/2       2/2      0        0",
            "the driver has none: class GF100_SUBDEVICE_INFOROM at 535.104.05",
        ]
    );
    let fit = "580.9999.01   not in the lock; 7 of 7 rows fit both 580.";
    assert!(around.len() == 1 && around[0].starts_with(fit), "{around:?}");
    let told = "Covered 12 of 13 rows in 2 versions; the driver lacks 1, gaps 0, roles that differ 0 \
                and disputed 0\n";
    assert!(err(&output).contains(told), "{}", err(&output));
}

#[test]
fn special_cases_are_judged_by_the_driver() {
    let special = "\"special_cases\": {\
        \"limits\": 4096,\
        \"forms\": [{\"struct\": \"NVOS21_PARAMETERS\", \"size\": 32}, {\"struct\": \"NVOS64_PARAMETERS\", \"size\": 44}],\
        \"numbers\": [{\"name\": \"UVM_FREE\", \"nr\": 34}, {\"name\": \"NV_ESC_RM_CONTROL\", \"nr\": 99}],\
        \"names\": [\"NV_ESC_NUMA_INFO\", {\"rule\": \"a mask\", \"name\": \"NOT_IN_THE_DRIVER\"}]\
        }, \"frontend\": [";
    let output = coverage(&altered("\"frontend\": [", special), &[]);
    let (_, told) = out(&output)
        .split_once("at 535.104.05\n")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert_eq!(
        told,
        "forms: NVOS21_PARAMETERS: both have 32 bytes\n\
         forms: NVOS64_PARAMETERS: the table has 44 bytes, the driver 48: the driver is right\n\
         names: NV_ESC_NUMA_INFO: the driver has it, 0xd7\n\
         names: NOT_IN_THE_DRIVER: the driver's headers have no such name\n\
         numbers: UVM_FREE: both have 0x22\n\
         numbers: NV_ESC_RM_CONTROL: the table has 0x63, the driver 0x2a: the driver is right\n"
    );
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

/// Roles that differ are found with both sides' evidence, row by row and field by field.
#[test]
fn fields_that_the_table_takes_for_something_else() {
    let structs = "\"go_structs\": [{\"go_name\": \"C\", \"fields\": [\
        [\"HClient\", \"Handle\"], [\"HObject\", \"uint32\"], [\"Cmd\", \"uint32\"], \
        [\"Flags\", \"uint32\"], [\"Params\", \"uint64\"], [\"Size\", \"uint32\"], \
        [\"Status\", \"int32\"]], \"offsets\": [0, 4, 8, 12, 16, 24, 28], \
        \"fd_fields\": [\"Status\"]}], \"frontend\": [";
    let table = altered("\"frontend\": [", structs);
    let custom = "\"go\": \"E\"}], \"handler_kind\": \"custom\"";
    let simple = "\"go\": \"E\"}], \"handler_kind\": \"simple\", \"handler\": \"copied\"";
    assert_eq!(table.matches(custom).count(), 1);
    let output = coverage(&table.replace(custom, simple), &[]);
    let text = out(&output);
    let found = "error[coverage-role]: ";
    let roles: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(found)).collect();
    // The line is that of the first tag with the layout.
    let control = |what: &str| {
        let place = "(; src/common/sdk/nvidia/inc/nvos.h:2176)";
        format!("frontend `NV_ESC_RM_CONTROL`: at {what} {place}")
    };
    let expected = [
        control("16 the table has `Params` as a number, the spec `params` as a pointer"),
        control("28 the table has `Status` as a file descriptor, the spec `status` as a number"),
        control("4 the table has `HObject` as a number, the spec `hObject` as a handle"),
        "control `NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION`: copied copies it as it is, the \
         spec has roles for pDriverVersionBuffer, pVersionBuffer, pTitleBuffer"
            .to_owned(),
    ];
    assert_eq!(roles, expected);
    assert!(text.contains("= note: at 535.104.05, 550.40.07\n"), "{text}");
    assert!(text.contains("help: correct the role, or justify it in [disputed]"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("roles that differ 4 and disputed 0"), "{}", err(&output));
}

/// What the spec says that the table takes a field for is listed with its evidence; anything else that it
/// takes the field for is found.
#[test]
fn fields_that_the_spec_knows_to_be_disputed() {
    let name = "NV83DE_CTRL_CMD_DEBUG_READ_MEMORY";
    let table = |taken: &str| {
        let row = format!(
            "\"control\": [{{\"name\": \"{name}\", \"cmd\": \"0x83de0315\", \"structs\": \
             [{{\"driver\": \"NV83DE_CTRL_DEBUG_READ_MEMORY_PARAMS\", \"go\": \"R\"}}], \
             \"handler_kind\": \"custom\", \"handler\": \"own\"}},"
        );
        let structs = format!(
            "\"go_structs\": [{{\"go_name\": \"R\", \"fields\": [[\"HMemory\", \"{taken}\"]], \
             \"offsets\": [0]}}], \"uvm\": ["
        );
        let table = altered("\"control\": [", &row).replace("\"uvm\": [", &structs);
        table.replace("\"control\": 1", "\"control\": 2").replace(
            "\"control\": 2, \"alloc\": 2}},\n    {\"version\": \"580",
            "\"control\": 3, \"alloc\": 2}},\n    {\"version\": \"580",
        )
    };
    let output = coverage(&table("uint32"), &[]);
    let text = out(&output);
    let disputed = format!(
        "disputed: control {name}: at 0 the table has `HMemory` as a number, the spec `hMemory` as a \
         handle (own; "
    );
    assert!(
        text.contains(&disputed) && text.contains("kernel_sm_debugger_session_ctrl.c:521"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    let output = coverage(&table("P64"), &[]);
    let text = out(&output);
    let found = format!(
        "error[coverage-role]: control `{name}`: at 0 the table has `HMemory` as a pointer"
    );
    assert!(text.contains(&found) && !text.contains("disputed: "), "{text}");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
}

#[test]
fn each_gap_names_its_row_its_versions_and_what_is_missing() {
    let told = [
        (
            "\"nr\": 34",
            "\"nr\": 35",
            "uvm `UVM_FREE`: the table has number 0x23, spec and lock 0x22",
            "at 535.104.05, 550.40.07",
        ),
        (
            "\"NVOS54_PARAMETERS\"",
            "\"NVOS54\"",
            "frontend `NV_ESC_RM_CONTROL`: the table has parameters NVOS54, the spec NVOS54_PARAMETERS",
            "at 535.104.05, 550.40.07",
        ),
        (
            "\"NV01_ROOT\"",
            "\"NV01_ROOTS\"",
            "class `NV01_ROOTS`: driver-550 has no such item in [class]",
            "at 550.40.07",
        ),
        (
            "\"missing_constants\"",
            "\"missing\"",
            "class `GF100_SUBDEVICE_INFOROM`: driver-535 has no such item in [class]",
            "at 535.104.05",
        ),
    ];
    for (from, to, gap, place) in told {
        let output = coverage(&altered(from, to), &[]);
        assert_eq!(output.status.code(), Some(1), "{}{}", out(&output), err(&output));
        let text = out(&output);
        assert!(text.contains(&format!("error[coverage-gap]: {gap}")), "{text}");
        assert!(text.contains(&format!("= note: {place}\n")), "{text}");
    }
}

#[test]
fn json_has_the_gaps() {
    let output = coverage(&altered("\"nr\": 34", "\"nr\": 35"), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["gaps"][0]["name"], "UVM_FREE");
    assert_eq!(json["gaps"][0]["versions"], serde_json::json!(["535.104.05", "550.40.07"]));
    assert_eq!(json["versions"][2]["locked"], false);
    assert_eq!(json["lacking"][0]["name"], "GF100_SUBDEVICE_INFOROM");
}

#[test]
fn a_table_that_cannot_be_read_is_refused_at_its_place() {
    let told = [
        ("\"nr\": 34,", "\"nr\": 34", "table.json:12:35", "expected `,` or `}`"),
        ("\"0x00000101\"", "\"101\"", "table.json:15:", "a number of 32 bits"),
        ("\"frontend\": [", "\"fronted\": [", "table.json:23:", "missing field `frontend`"),
    ];
    for (from, to, place, message) in told {
        let output = coverage(&altered(from, to), &[]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
        let text = err(&output);
        assert!(text.contains(place) && text.contains(message), "{text}");
    }
}

#[test]
fn a_table_with_nothing_to_compare_is_an_error() {
    let table = read("structs.json");
    let (start, rest) = table.split_once("\"versions\": [").unwrap();
    let (_, end) = rest.split_once("\n  ],").unwrap();
    let version = "{\"version\": \"599.1\", \"parent\": null, \"tag_available\": false}";
    for (versions, expected) in [
        ("", "the table has no versions"),
        (version, "nothing to compare: the lock has none of the table's 1 versions"),
    ] {
        let output = coverage(&format!("{start}\"versions\": [{versions}],{end}"), &[]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
    let none = r#"{"versions": [{"version": "550.163.01"}], "frontend": [], "uvm": [], "control": [], "alloc": []}"#;
    let output = coverage(none, &[]);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""));
    assert!(err(&output).contains("the table has no calls"), "{}", err(&output));
}

#[test]
fn a_table_that_is_not_there_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_nvabi"))
        .args(["coverage", "/nowhere/table.json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("cannot read /nowhere/table.json: "), "{}", err(&output));
}

/// A table that gives its structs whole is held to every field of them.
#[test]
fn each_struct_is_compared_field_by_field() {
    let table = read("structs.json");
    let output = coverage(&table, &[]);
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    let swapped = "the table has `Class` at 0, the driver `hClass` at 12";
    let altered = [
        (
            "\"HClass\", \"ClassID\"",
            "\"HClass\", \"int32\"",
            "at 12 the table has `HClass` as int32",
        ),
        ("[\"Root\", \"Handle\"]", "[\"Class\", \"Handle\"]", swapped),
        (
            "Size\", \"uint32\"",
            "Size\", \"uint64\"",
            "`A` has 40 bytes, `NVOS21_PARAMETERS` has 32",
        ),
        ("\"size\": 32", "\"size\": 40", "the table says that `A` has 40 bytes, its fields 32"),
        ("24, 28]", "24, 30]", "the table says that `A.Status` is at 30, its fields do not"),
        (", 24, 28]", "]", "the table has 5 offsets of `A` and 7 fields"),
        (
            ", [\"Status\", \"uint32\"]",
            "",
            "the table has nothing at 28, where the driver has `status`",
        ),
        ("[\"Root\", \"Handle\"]", "[\"Root\", \"Lost\"]", "the table has no fields of `A`"),
        ("[3]uint32", "[4]uint32", "at 44 the table has `Rest` as uint32, the driver nothing"),
    ];
    for (from, to, expected) in altered {
        assert_eq!(table.matches(from).count(), 1, "{from}");
        let output = coverage(&table.replace(from, to), &[]);
        let expected = format!("error[coverage-gap]: frontend `NV_ESC_RM_ALLOC`: {expected}");
        assert!(out(&output).contains(&expected), "{expected}: {}", out(&output));
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    }
}

/// `nvabi coverage` on a copy of a small checkout, with one thing in one of its files replaced.
fn gvisor(file: &str, from: &str, to: &str) -> Output {
    let source =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("cli/tests/coverage/gvisor");
    let copy = tempfile::tempdir().unwrap();
    for path in [TYPES, VERSIONS] {
        let target = copy.path().join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let text = fs::read_to_string(source.join(path)).unwrap();
        let text = if path == file { text.replacen(from, to, 1) } else { text };
        fs::write(target, text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .arg("coverage")
        .arg(copy.path());
    command.output().unwrap()
}

/// gVisor's own source: the table of its proxy has no gap, and of what differs between two drivers, only calls that the
/// source names are told.
#[test]
fn gvisor_itself() {
    let folder = std::env::var("NVABI_GVISOR").unwrap_or_default();
    if folder.is_empty() {
        skip(Need::Gvisor, "NVABI_GVISOR names no checkout");
    }
    let nvabi = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(args);
        command.output().unwrap()
    };
    let covered = nvabi(&["coverage", &folder]);
    match covered.status.code() {
        Some(0) => assert!(err(&covered).contains(", gaps 0, "), "{}", err(&covered)),
        // An older checkout does not tell in words what a call takes.
        code => assert!(
            code == Some(2) && err(&covered).contains("commits of gVisor from January 2025 on"),
            "{}{}",
            out(&covered),
            err(&covered)
        ),
    }
    let types = Path::new(&folder).join("pkg/abi/nvgpu");
    let files = fs::read_dir(&types).unwrap().map(|file| file.unwrap().path());
    let source: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let words: HashSet<&str> =
        source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut told: HashSet<String> = HashSet::new();
    for [from, to] in [["525.60.11", "535.43.02"], ["545.23.06", "550.40.07"]] {
        let found = nvabi(&["diff", from, to, "--go", types.to_str().unwrap(), "--json"]);
        let found: Value = serde_json::from_slice(&found.stdout).unwrap();
        assert!(found["scope"]["items"].as_u64() > Some(200), "{}", found["scope"]);
        assert!(!found["records"].as_array().unwrap().is_empty());
        let calls = found["calls"].as_array().unwrap();
        told.extend(calls.iter().map(|call| call["name"].as_str().unwrap().to_owned()));
    }
    let foreign: Vec<&String> = told.iter().filter(|name| !words.contains(name.as_str())).collect();
    assert!(!told.is_empty() && foreign.is_empty(), "{foreign:?}");
}

const TYPES: &str = "pkg/abi/nvgpu/frontend.go";
const VERSIONS: &str = "pkg/sentry/devices/nvproxy/version.go";

#[test]
fn a_checkout_of_gvisor_is_a_table() {
    let output = gvisor("", "", "");
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output), err(&output));
    let text = out(&output);
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines[..2],
        [
            "535.104.05         1/1     0/0       0/0       0/0      0        0",
            "550.40.07          1/1     0/0       0/0       0/0      0        0",
        ]
    );
    assert!(
        lines[2].starts_with("580.9999.01   not in the lock; 1 of 1 rows fit both 580."),
        "{text}"
    );
}

#[test]
fn a_checkout_of_gvisor_that_is_wrong() {
    let swapped = "\tHObjectParent Handle\n\tHRoot         Handle\n";
    let output = gvisor(TYPES, "\tHRoot         Handle\n\tHObjectParent Handle\n", swapped);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(
        out(&output)
            .contains("the table has `HObjectParent` at 0, the driver `hObjectParent` at 4")
    );

    let output = gvisor(TYPES, "0x29", "0x2a");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(out(&output).contains("the table has number 0x2a, spec and lock 0x29"));

    // A struct that no call takes by itself: an element of what a pointer leads to.
    let info = |fields: &str| format!("\ntype NVXXXX_CTRL_XXX_INFO struct {{\n{fields}}}\n\ntype ");
    let right = gvisor(TYPES, "\ntype ", &info("\tIndex uint32\n\tData uint32\n"));
    assert_eq!(right.status.code(), Some(0), "{}{}", out(&right), err(&right));
    let larger = gvisor(TYPES, "\ntype ", &info("\tIndex uint32\n\tData uint32\n\tMore uint64\n"));
    assert_eq!(larger.status.code(), Some(1), "{}", err(&larger));
    let complaint = "`NVXXXX_CTRL_XXX_INFO`: at no version: `NVXXXX_CTRL_XXX_INFO` has 16 bytes";
    assert!(out(&larger).contains(complaint), "{}", out(&larger));

    // A constant that is no call's number, with the driver's name and with one of gVisor's own.
    let constant =
        |text: &str| gvisor(TYPES, "const NV_ESC", &format!("const {text}\nconst NV_ESC"));
    let right = constant("NV_ERR_INVALID_ARGUMENT = 0x1f\nconst NV_OK_V550 = 0\nconst OWN = 1");
    assert_eq!(right.status.code(), Some(0), "{}{}", out(&right), err(&right));
    let left_out = "Left out what no driver of the lock has under its name: OTHER_FREE, OWN\n";
    assert!(err(&right).contains(left_out), "{}", err(&right));
    let wrong = constant("NV_ERR_INVALID_ARGUMENT = 0x2f");
    assert_eq!(wrong.status.code(), Some(1), "{}", err(&wrong));
    let complaint = "`NV_ERR_INVALID_ARGUMENT`: at no version: the table has 0x2f, the driver 0x1f";
    assert!(out(&wrong).contains(complaint), "{}", out(&wrong));

    for (file, from, to, complaint) in [
        (
            VERSIONS,
            "nvgpu.NV_ESC_RM_FREE: feHandler(",
            "nvgpu.OTHER_FREE: feHandler(rmFree), nvgpu.NV_ESC_RM_FREE: feHandler(",
            "`NV_ESC_RM_FREE` has the number 0x29, which `OTHER_FREE` has",
        ),
        (VERSIONS, "_ = addDriverABI", "if x { }", "`if` is not followed"),
        (VERSIONS, "func Init", "func Start", "has no function `Init` that adds driver ABIs"),
        (TYPES, "= 0x29", "= other()", "its value is not known"),
    ] {
        let output = gvisor(file, from, to);
        assert_eq!(output.status.code(), Some(2), "{to}: {}", out(&output));
        assert!(err(&output).contains(complaint), "{}", err(&output));
    }
}
