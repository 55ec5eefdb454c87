//! `nvabi emit`: what it writes is read by the compilers and interpreters of each language, and their sizes
//! and offsets are those of the lock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop where it stands"
)]

#[macro_use]
extern crate nvabi_test;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nvabi_pipeline::lock;
use nvabi_pipeline::tag::Tag;
use nvabi_test::{Need, skip};
use serde_json::{Value, json};

test_main!();

/// Tags of old, middle and new branches.
const SIX: [&str; 6] =
    ["515.43.04", "530.41.03", "535.183.01", "550.163.01", "570.124.04", "595.45.04"];

/// All of them, or the oldest, the newest and one between.
fn of_six() -> Vec<&'static str> {
    if nvabi_test::is_whole() { SIX.to_vec() } else { vec![SIX[0], SIX[3], SIX[5]] }
}

/// Everything takes a while: of the newest tag, and Jetson's.
fn scope(tag: &str) -> &'static str {
    match tag == SIX[5] || tag.starts_with("tegra") {
        true => "--all",
        false => "--spec",
    }
}

fn nvabi(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
    command.current_dir(root()).args(args).output().unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn text(args: &[&str]) -> String {
    let output = nvabi(args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn complaint(args: &[&str]) -> String {
    let output = nvabi(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?} prints something");
    String::from_utf8(output.stderr).unwrap()
}

/// What a command that must succeed prints.
fn passes(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}{err}");
    out.into_owned()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The locked tags, without those whose headers are the same as an earlier one's.
fn tags() -> Vec<Tag> {
    let locked = lock::read_tags(&root().join("abi-specs/lock")).unwrap();
    assert!(locked.len() > 190, "{} tags", locked.len());
    let mut seen = HashSet::new();
    locked.into_iter().filter(|l| seen.insert(l.headers.clone())).map(|l| l.tag).collect()
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The header of each tag, or of one in five, by one of both compilers, as C11 or as C++17, with its tables or without any
/// other header, in turns, so that each of these meets a tag in eight: what the specs name, and everything of the oldest
/// tag, of the newest and of a Jetson's, which meet all.
#[test]
fn gcc_and_clang_compile_the_headers_of_tags() {
    let compilers = [("gcc", Need::Gcc), ("clang", Need::Clang)];
    for (compiler, need) in compilers {
        if !is_there(compiler) {
            skip(need, format!("there is no {compiler}"));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let user =
        file(folder.path(), "user.c", "#include \"nvabi.h\"\nint main(void) { return 0; }\n");
    let tags = tags();
    assert!(tags.len() > 90, "{} distinct headers", tags.len());
    let whole = [tags[0].as_str(), tags[tags.len() - 1].as_str(), "tegra-r36.4"];
    let step = if nvabi_test::is_whole() { 1 } else { 5 };
    // The newest is there, however many there are.
    let all = tags.iter().rev().step_by(step).map(Tag::as_str).chain([whole[0], whole[2]]);
    let all: BTreeSet<&str> = all.collect();
    for (at, tag) in all.into_iter().enumerate() {
        let is_whole = whole.contains(&tag);
        let scope = if is_whole { "--all" } else { scope(tag) };
        file(folder.path(), "nvabi.h", &text(&["emit", "--lang", "c", "--tag", tag, scope]));
        for way in if is_whole { 0..8 } else { at % 8..at % 8 + 1 } {
            let mut command = Command::new(compilers[way & 1].0);
            command.args(["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror"]);
            command.args(match way & 2 {
                0 => ["-x", "c", "-std=c11"],
                _ => ["-x", "c++", "-std=c++17"],
            });
            command.args(match way & 4 {
                0 => &["-DNVABI_TABLES"][..],
                _ => &["-DNVABI_FREESTANDING", "-ffreestanding", "-nostdinc"],
            });
            passes(command.arg(&user));
        }
    }
}

#[test]
fn the_header_holds_for_64_bit_arm() {
    let compiler = "aarch64-linux-gnu-gcc";
    if !is_there(compiler) {
        skip(Need::CrossGcc, format!("there is no {compiler}"));
    }
    let folder = tempfile::tempdir().unwrap();
    for tag in of_six().into_iter().chain(["tegra-r36.4"]) {
        let header = text(&["emit", "--lang", "c", "--tag", tag, scope(tag)]);
        let path = file(folder.path(), "nvabi.h", &header);
        passes(Command::new(compiler).args(["-fsyntax-only", "-std=c11"]).arg(&path));
    }
}

/// An assertion that holds whatever the layout is would pass above.
#[test]
fn a_wrong_offset_does_not_compile() {
    if !is_there("gcc") {
        skip(Need::Gcc, "there is no gcc");
    }
    let folder = tempfile::tempdir().unwrap();
    let header = text(&["emit", "--lang", "c", "--tag", "550.163.01"]);
    let wrong = header.replacen("NvHandle hClient;", "nvabi_u64 hClient;", 1);
    let wrong = wrong.replacen("nvabi_handle hClient;", "nvabi_u64 hClient;", 1);
    assert_ne!(header, wrong);
    let path = file(folder.path(), "nvabi.h", &wrong);
    let output =
        Command::new("gcc").args(["-fsyntax-only", "-std=c11"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("static assertion failed"), "{said}");
}

#[test]
fn rustc_compiles_the_file_of_the_ends() {
    let folder = tempfile::tempdir().unwrap();
    for tag in [SIX[0], SIX[5], "tegra-r36.4"] {
        let code =
            format!("#![no_std]\n{}", text(&["emit", "--lang", "rust", "--tag", tag, "--all"]));
        // The attribute of the file must come first.
        let path = file(folder.path(), "abi.rs", &code);
        let mut command = Command::new("rustc");
        command.args(["--edition", "2021", "--crate-type", "lib", "--emit", "metadata"]);
        passes(command.args(["-D", "warnings", "--out-dir"]).arg(folder.path()).arg(path));
    }
}

/// Offsets and sizes as Python has them, of every record, against the lock's facts.
#[test]
fn python_has_the_layouts_of_six_tags() {
    if !is_there("python3") {
        skip(Need::Python, "there is no python3");
    }
    let folder = tempfile::tempdir().unwrap();
    let print = "import ctypes, json, abi\n\
        found = {}\n\
        for name, it in vars(abi).items():\n    \
        if isinstance(it, type) and issubclass(it, (abi.Struct, abi.Union)) and it._fields_:\n        \
        at = {field[0]: field[2] for field in it._real_fields_}\n        \
        found[name] = [ctypes.sizeof(it), at]\n\
        print(json.dumps(found))\n";
    file(folder.path(), "print.py", print);
    for tag in of_six() {
        let module = text(&["emit", "--lang", "python", "--tag", tag, "--all"]);
        file(folder.path(), "abi.py", &module);
        let output = Command::new("python3").arg("print.py").current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: BTreeMap<String, (u64, BTreeMap<String, u64>)> =
            serde_json::from_slice(&output.stdout).unwrap();
        let facts: Value = serde_json::from_str(&text(&["facts", tag])).unwrap();
        let (mut records, mut fields) = (0, 0);
        for surface in ["rm", "uvm", "modeset", "drm"] {
            for (name, record) in facts["surfaces"][surface]["records"].as_object().unwrap() {
                let Some((size, at)) = found.get(&name.replace("::", "_")) else {
                    panic!("{tag}: {name} is not in the module")
                };
                assert_eq!(record["size"], *size, "{tag}: {name}");
                records += 1;
                for field in record["fields"].as_array().unwrap() {
                    let field_name = field["name"].as_str().unwrap();
                    if field_name.is_empty() {
                        continue;
                    }
                    let offset = at.get(field_name).copied();
                    assert_eq!(field["offset"].as_u64(), offset, "{tag}: {name}.{field_name}");
                    fields += 1;
                }
            }
        }
        assert!(records > 1_400 && fields > 5_000, "{tag}: {records} records, {fields} fields");
    }
}

/// A module of one item has what that needs, and in the order in which it needs it.
#[test]
fn modules_of_single_items_are_whole() {
    if !is_there("python3") {
        skip(Need::Python, "there is no python3");
    }
    let folder = tempfile::tempdir().unwrap();
    let facts: Value = serde_json::from_str(&text(&["facts", "570.144"])).unwrap();
    let records = |surface: &str| facts["surfaces"][surface]["records"].as_object().unwrap();
    let is_named = |name: &&String| !name.contains("::");
    // Those of UVM have most of what is used by name.
    let step = if nvabi_test::is_whole() { 1 } else { 2 };
    let spread = records("rm").keys().filter(is_named).step_by(120 * step);
    let names = records("uvm").keys().filter(is_named).step_by(2 * step).chain(spread);
    let mut count = 0;
    for name in names {
        let items = file(folder.path(), "items", name);
        let args = ["emit", "--lang", "python", "--tag", "570.144", "--items"];
        let module = text(&[&args[..], &[items.to_str().unwrap()]].concat());
        file(folder.path(), &format!("one_{name}.py"), &module);
        count += 1;
    }
    assert!(count * step > 30, "{count}");
    let import = "import glob, importlib\n\
        for path in glob.glob('one_*.py'):\n    \
        module = importlib.import_module(path[:-3])\n    \
        assert getattr(module, path[4:-3])._fields_ is not None\n";
    file(folder.path(), "import_all.py", import);
    passes(Command::new("python3").arg("import_all.py").current_dir(&folder));
}

/// Keyword and positional arguments, bit ranges, enums and statuses as tinygrad's modules have them.
#[test]
fn python_is_called_as_generated_modules_are() {
    if !is_there("python3") {
        skip(Need::Python, "there is no python3");
    }
    let folder = tempfile::tempdir().unwrap();
    let module = text(&["emit", "--lang", "python", "--tag", "570.144", "--all"]);
    file(folder.path(), "abi.py", &module);
    let test = "import abi, ctypes\n\
        free = abi.NVOS00_PARAMETERS(hRoot=1, hObjectParent=2, hObjectOld=3)\n\
        assert bytes(free) == bytes([1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0])\n\
        assert bytes(abi.NVOS00_PARAMETERS(1, 2, 3)) == bytes(free)\n\
        assert abi.NVOS54_PARAMETERS.SIZE == 32 == ctypes.sizeof(abi.NVOS54_PARAMETERS)\n\
        assert abi.NVOS02_FLAGS_PHYSICALITY == (7, 4)\n\
        assert abi.nv_status_codes[0x1f] == 'NV_ERR_INVALID_ARGUMENT', abi.nv_status_codes[0x1f]\n\
        assert abi.layout('NVOS54_PARAMETERS', '570.144') is abi.NVOS54_PARAMETERS\n\
        try: abi.layout('NVOS54_PARAMETERS', '1.2')\n\
        except KeyError as error: assert '1.2 is none of 570.144' in str(error), error\n\
        else: raise AssertionError('1.2 has a layout')\n\
        calls = {call[1]: call for call in abi.CALLS}\n\
        assert calls['NV_ESC_RM_CONTROL'][3] == 0xc020462a\n\
        roles = {(role[0], role[1]): role[5:] for role in calls['NV_ESC_RM_CONTROL'][8]}\n\
        assert roles['pointer', 'params'] == ('inout', 'paramsSize', 1, ''), roles\n\
        assert roles['handle', 'hClient'] == ('', '', 0, 'client'), roles\n\
        assert calls['NVKMS_IOCTL_FLIP'][3] is None and calls['NVKMS_IOCTL_FLIP'][4] is abi.NvKmsFlipParams\n\
        assert (abi.NvU32, abi.NvHandle, abi.NvP64) == (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)\n\
        assert ctypes.sizeof(abi.NV2080_INTR_CATEGORY) == 4\n\
        assert abi.enum_NV2080_INTR_CATEGORY[0] == 'NV2080_INTR_CATEGORY_DEFAULT'\n\
        try:\n    \
        abi.NVOS00_PARAMETERS(1, 2, 3, 4, 5)\n\
        except TypeError as error:\n    \
        assert 'has 4 fields, not 5' in str(error), error\n\
        else:\n    \
        raise AssertionError('one argument too many')\n";
    let test = file(folder.path(), "test.py", test);
    passes(Command::new("python3").arg(test).current_dir(&folder));
}

fn go() -> Option<PathBuf> {
    let is_go = |path: &PathBuf| {
        Command::new(path).arg("version").output().is_ok_and(|output| output.status.success())
    };
    let asked = std::env::var_os("NVABI_GO").map(PathBuf::from);
    asked.or_else(|| Some(PathBuf::from("go"))).filter(is_go)
}

#[test]
fn go_tests_the_packages_of_six_tags() {
    let Some(go) = go() else { skip(Need::Go, "there is no go") };
    let folder = tempfile::tempdir().unwrap();
    let mut tags: Vec<Vec<&str>> = of_six().into_iter().map(|tag| vec![tag]).collect();
    tags.push(SIX.to_vec());
    tags.push(vec!["tegra-r36.4"]);
    for (at, tags) in tags.iter().enumerate() {
        let package = folder.path().join(format!("p{at}"));
        let shown = package.display().to_string();
        let mut args = vec!["emit", "--lang", "go", "--package", "nvgpu", "--out", &shown];
        args.extend(tags.iter().flat_map(|tag| ["--tag", *tag]));
        if let [tag] = tags.as_slice() {
            args.push(scope(tag));
        }
        text(&args);
    }
    file(folder.path(), "go.mod", "module example.test/nvgpu\n\ngo 1.23\n");
    let run = |args: &[&str]| {
        let mut command = Command::new(&go);
        command.args(args).current_dir(&folder).env("GOFLAGS", "-mod=mod");
        command.env("GOTOOLCHAIN", "local").env("GOCACHE", folder.path().join("cache"));
        let output = command.output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all).into_owned();
        assert!(output.status.success(), "go {args:?}\n{all}");
        all
    };
    run(&["vet", "./..."]);
    let tested = run(&["test", "./..."]);
    assert_eq!(tested.matches("ok  \t").count(), tags.len(), "{tested}");
    let gofmt = go.with_file_name("gofmt");
    let output = Command::new(gofmt).args(["-l", "."]).current_dir(&folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "gofmt would change them");
}

/// A name whose layout changed has a type for each layout, and a table says where each holds.
#[test]
fn several_tags_share_a_module() {
    let folder = tempfile::tempdir().unwrap();
    let items = file(folder.path(), "items", "NVOS21_PARAMETERS # grew inside\nNV_ESC_RM_ALLOC\n");
    let items = items.to_str().unwrap();
    let tags = ["--tag", "535.43.02", "--tag", "530.41.03", "--tag", "550.163.01"];
    let args = [&["emit", "--lang", "json", "--items", items][..], &tags].concat();
    let module: Value = serde_json::from_str(&text(&args)).unwrap();
    assert_eq!(module["versions"], json!(["530.41.03", "535.43.02", "550.163.01"]));
    let types = module["types"].as_array().unwrap();
    let versions: HashMap<&str, &Value> =
        types.iter().map(|ty| (ty["name"].as_str().unwrap(), &ty["versions"])).collect();
    assert_eq!(*versions["NVOS21_PARAMETERS"], json!([[0, 0]]));
    assert_eq!(*versions["NVOS21_PARAMETERS_V535_43_02"], json!([[1, 2]]));
    let calls = module["calls"].as_array().unwrap();
    let names: Vec<&str> = calls.iter().map(|call| call["name"].as_str().unwrap()).collect();
    assert!(names.iter().all(|name| *name == "NV_ESC_RM_ALLOC"), "{names:?}");
    assert_eq!(text(&args), text(&args), "the same input gives the same bytes");
}

/// The command in a file's header writes the same file.
#[test]
fn a_file_says_how_it_is_renewed() {
    let first = text(&["emit", "--lang", "c", "--tag", "580.95.05", "--package", "nv"]);
    let command =
        first.lines().find_map(|line| line.strip_prefix("// Renew with: nvabi ")).unwrap();
    let args: Vec<&str> = command.split(' ').collect();
    assert_eq!(first, text(&args));
    assert!(first.contains("#ifndef NV_H"));
    // Two files want a folder; it is the one that the command is run in.
    let [once, again] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let go = ["emit", "--lang", "go", "--tag", "580.95.05"];
    text(&[&go[..], &["--out", once.path().to_str().unwrap()]].concat());
    let written = fs::read_to_string(once.path().join("nvabi.go")).unwrap();
    let command = written.lines().find_map(|line| line.strip_prefix("// Renew with: ")).unwrap();
    let command = command.replace("nvabi ", concat!(env!("CARGO_BIN_EXE_nvabi"), " "));
    passes(Command::new("sh").args(["-c", &command]).current_dir(&again));
    assert_eq!(fs::read_to_string(again.path().join("nvabi.go")).unwrap(), written);
}

/// Without a struct there is nothing to import, and no table of types.
#[test]
fn modules_without_a_struct_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    for (at, name) in
        ["NV_IOCTL_MAGIC", "UVM_DEINITIALIZE", "NV_ESC_ATTACH_GPUS_TO_FD"].iter().enumerate()
    {
        let items = file(folder.path(), "items", name);
        let args = |lang| ["emit", "--lang", lang, "--tag", "570.144", "--items"];
        let with = |lang, more: &[&str]| {
            text(&[&args(lang)[..], &[items.to_str().unwrap()], more].concat())
        };
        let ksy = with("kaitai", &["--package", "one"]);
        kaitai(&file(folder.path(), "one.ksy", &ksy), &[]);
        let package = folder.path().join(format!("go{at}"));
        with("go", &["--out", package.to_str().unwrap()]);
        let Some(go) = go() else { skip(Need::Go, "there is no go") };
        file(&package, "go.mod", "module example.com/nvabi\n\ngo 1.23\n");
        passes(Command::new(go).args(["vet", "./..."]).current_dir(&package));
    }
}

/// Node.js with Kaitai Struct's compiler: what `tests/node.sh` prints.
fn kaitai(file: &Path, args: &[&str]) -> String {
    let folder = std::env::var_os("NVABI_NODE").filter(|folder| !folder.is_empty());
    let Some(folder) = folder.map(PathBuf::from) else {
        skip(Need::Node, "NVABI_NODE names no folder")
    };
    let mut command = Command::new(folder.join("bin/node"));
    command.arg(root().join("cli/tests/emit/kaitai.js")).arg(&folder).arg(file).args(args);
    passes(&mut command)
}

#[test]
fn kaitai_compiles_the_description_of_six_tags() {
    let folder = tempfile::tempdir().unwrap();
    for tag in of_six().into_iter().chain(["tegra-r36.4"]) {
        let text = text(&["emit", "--lang", "kaitai", "--tag", tag, "--spec"]);
        let types: u32 =
            kaitai(&file(folder.path(), "all.ksy", &text), &[]).trim().parse().unwrap();
        assert!(types > 100, "{tag}: {types} types");
    }
}

#[test]
fn kaitai_reads_structs_unions_and_text() {
    let folder = tempfile::tempdir().unwrap();
    let items = "NVOS54_PARAMETERS\nNVOS32_PARAMETERS\nnv_ioctl_rm_api_version_t\n";
    let items = file(folder.path(), "items", items);
    let items = items.to_str().unwrap();
    let text = text(&["emit", "--lang", "kaitai", "--tag", "550.163.01", "--items", items]);
    let ksy = file(folder.path(), "some.ksy", &text);
    let control = "010000000200000001010000ffffffff0df0adde000000004800000005000000";
    let read = kaitai(&ksy, &["nvos54_parameters", control]);
    assert_eq!(
        read,
        "h_client 1\nh_object 2\ncmd 257\nflags 4294967295\nparams 3735941133\nparams_size 72\nstatus 5\n"
    );
    // Each member of a union begins where the union does.
    let start = "0100000002000000030000000400000005000000060000000700000000000000";
    let heap = format!("{start}0800000000000000{}{}", "0a000000010000000c000000", "00".repeat(132));
    let read = kaitai(&ksy, &["nvos32_parameters", &heap]);
    let first = "h_root 1\nh_object_parent 2\nfunction_field 3\nh_va_space 4\nivc_heap_number 5\n";
    assert!(read.starts_with(first) && read.contains("\ntotal 7\nfree 8\n"), "{read}");
    let free = "data.free.owner 10\ndata.free.h_memory 1\ndata.free.flags 12\n";
    assert!(read.contains(free) && read.contains("\ndata.alloc_size.owner 10\n"), "{read}");
}

/// Constants whose values two tags have otherwise, as each tag's facts have them.
#[test]
fn constants_are_told_by_version() {
    if !is_there("python3") {
        skip(Need::Python, "there is no python3");
    }
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (SIX[3], SIX[5]);
    let [before, after] = [old, new].map(|tag| -> HashMap<String, i64> {
        let facts: Value = serde_json::from_str(&text(&["facts", tag])).unwrap();
        let constants = facts["surfaces"]["rm"]["constants"].as_object().unwrap();
        constants.iter().filter_map(|(name, it)| Some((name.clone(), it.as_i64()?))).collect()
    });
    let changed: BTreeMap<&str, [i64; 2]> = before
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), [*value, *after.get(name)?])))
        .filter(|(_, [old, new])| old != new)
        .collect();
    assert!(changed.len() > 50, "{changed:?}");
    let names: Vec<&str> = changed.keys().copied().collect();
    let items = file(folder.path(), "items", &names.join("\n"));
    let of = |language: &str| {
        let items = items.to_str().unwrap();
        text(&["emit", "--lang", language, "--items", items, "--tag", old, "--tag", new])
    };
    let rows = |[old, new]: [i64; 2]| json!([[0, 0, old], [1, 1, new]]);
    let expected: BTreeMap<&str, Value> =
        changed.iter().map(|(name, values)| (*name, rows(*values))).collect();
    let json: Value = serde_json::from_str(&of("json")).unwrap();
    assert_eq!(json["constants_by_version"], json!(expected));
    file(folder.path(), "both.py", &of("python"));
    let print = "import both, json; print(json.dumps(both.CONSTANTS))";
    let mut python = Command::new("python3");
    let printed = passes(python.args(["-c", print]).current_dir(folder.path()));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed, json!(expected));
}

/// Each description uses resources that it declares, and only members of structs come out: the language has no words
/// for one of a union.
#[test]
fn syzkaller_descriptions_keep_to_the_grammar() {
    for tag in of_six().into_iter().chain(["tegra-r32.7.1", "tegra-r36.4"]) {
        let emitted = text(&["emit", "--lang", "syzkaller", "--tag", tag, scope(tag)]);
        let declared: HashSet<&str> = emitted
            .lines()
            .filter_map(|line| line.strip_prefix("resource ")?.split_once('['))
            .map(|(name, _)| name)
            .collect();
        let (mut in_union, mut come_out, mut resources) = (false, 0, 0);
        for line in emitted.lines() {
            in_union = (in_union || line.ends_with(" [")) && !line.starts_with(']');
            let mut words = line.split('\t').skip(2);
            let Some(ty) = words.next() else { continue };
            let direction = words.next().unwrap_or_default();
            if ["(out)", "(inout)"].contains(&direction) {
                assert!(!in_union, "{tag}: {line}");
                come_out += 1;
            }
            if ty.starts_with("fd_") || ty == "nv_handle" {
                assert!(declared.contains(ty), "{tag}: {line}");
                resources += 1;
            }
        }
        assert!(come_out > 5 && resources > 0, "{tag}: {come_out} come out of {resources}");
    }
    // The driver makes the one and is given the other; a member of a union is told by its path.
    let jetson = text(&["emit", "--lang", "syzkaller", "--tag", "tegra-r36.4"]);
    for (record, line) in [
        ("host1x_create_fence {", "\tfence_fd\tfd\t(out)"),
        ("host1x_fence_extract {", "\tfence_fd\tfd\t(in)"),
    ] {
        let (_, body) = jetson.split_once(&format!("\n{record}\n")).unwrap();
        let (body, _) = body.split_once("\n}").unwrap();
        assert!(body.lines().any(|other| other == line), "{record}\n{body}");
    }
}

/// What syzkaller's compiler prints of a description, or says against it.
fn compiled_by_syzkaller(description: &str) -> Result<String, String> {
    let program = std::env::var_os("NVABI_SYZKALLER").filter(|program| !program.is_empty());
    let Some(program) = program else { skip(Need::Syzkaller, "NVABI_SYZKALLER names no program") };
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "nvabi.txt", description);
    let output = Command::new(program).arg(&path).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn syzkaller_compiles_the_descriptions_of_five_tags() {
    for tag in SIX.into_iter().step_by(2).chain(["tegra-r32.7.1", "tegra-r36.4"]) {
        let emitted = text(&["emit", "--lang", "syzkaller", "--tag", tag, scope(tag)]);
        let printed = compiled_by_syzkaller(&emitted).unwrap_or_else(|why| panic!("{tag}: {why}"));
        let facts: Value = serde_json::from_str(&text(&["facts", tag])).unwrap();
        let sizes: HashMap<&str, u64> = (facts["surfaces"].as_object().unwrap().values())
            .flat_map(|surface| surface["records"].as_object().unwrap())
            .filter_map(|(name, record)| Some((name.as_str(), record["size"].as_u64()?)))
            .collect();
        let sized = printed.lines().filter_map(|line| line.strip_prefix("size ")?.split_once(' '));
        let compared = sized.filter_map(|(size, name)| Some((name, size, sizes.get(name)?)));
        let compared: Vec<_> = compared.collect();
        for (name, size, expected) in &compared {
            assert_eq!(size.parse(), Ok(**expected), "{tag}: {name}");
        }
        assert!(compared.len() > 100, "{tag}: {} sizes compared", compared.len());
        let unused: Vec<&str> = printed.lines().filter(|line| line.starts_with("unused")).collect();
        assert!(unused.is_empty(), "{tag}: {unused:?}");
    }
}

/// The compiler that the test above trusts complains of what is wrong.
#[test]
fn syzkaller_rejects_a_broken_description() {
    let emitted = text(&["emit", "--lang", "syzkaller", "--tag", "550.163.01", "--spec"]);
    for (from, to, complaint) in [
        ("resource nv_handle[int32]: 0\n", "", "unknown type nv_handle"),
        ("bytesize[params, ", "bytesize[nothing, ", "nothing"),
        ("cmd const[", "cmd constant[", "unknown type constant"),
    ] {
        assert!(emitted.contains(from), "{from}");
        let said = compiled_by_syzkaller(&emitted.replace(from, to)).unwrap_err();
        assert!(said.contains(complaint), "{from}: {said}");
    }
}

/// The description of some items of 550.163.01; syzkaller's compiler takes it, where it is at hand.
fn described(items: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let items = file(folder.path(), "items", items);
    let tag = ["--tag", "550.163.01"];
    let emit = [&["emit", "--lang", "syzkaller"][..], &tag, &["--items", items.to_str().unwrap()]];
    let emitted = text(&emit.concat());
    if std::env::var_os("NVABI_SYZKALLER").is_some_and(|program| !program.is_empty()) {
        let printed = compiled_by_syzkaller(&emitted).unwrap_or_else(|why| panic!("{why}"));
        assert!(!printed.contains("unused"), "{printed}");
    }
    emitted
}

/// The names of its calls.
fn described_calls(emitted: &str) -> Vec<&str> {
    let calls = emitted.lines().filter_map(|line| line.split_once('(').map(|(name, _)| name));
    calls.filter(|name| name.contains('$')).collect()
}

/// A command or a class is a call only with the ioctl that carries it, and on an object.
#[test]
fn syzkaller_has_what_carries_a_command() {
    let objects = ["NV01_DEVICE_0", "NV01_ROOT", "NV20_SUBDEVICE_0", "NV_ESC_RM_ALLOC"];
    for (item, kind, carriers) in [
        ("NV2080_CTRL_CMD_GPU_GET_INFO_V2", "nvabi_control[", &["NV_ESC_RM_CONTROL"][..]),
        ("NV01_MEMORY_SYSTEM", "nvabi_class[", &[]),
        ("NV2080_CTRL_CMD_GPU_RELEASE_COMPUTE_MODE_RESERVATION", "nvabi_control_alone[", &[]),
        // Nobody knows what it takes, which is not nothing.
        ("NV2080_CTRL_CMD_GPU_MARK_DEVICE_FOR_RESET", "array[int8]]])", &["NV_ESC_RM_CONTROL"]),
    ] {
        let emitted = described(item);
        let calls = described_calls(&emitted);
        for name in objects.iter().chain(carriers).chain([&item]) {
            assert!(calls.contains(&format!("ioctl${name}").as_str()), "{name}: {calls:?}");
        }
        let line = emitted.lines().find(|line| line.starts_with(&format!("ioctl${item}(")));
        assert!(line.is_some_and(|line| line.contains(kind)), "{line:?}");
    }
    let flip = described("NVKMS_IOCTL_FLIP");
    assert!(flip.contains("nvabi_modeset[0xe, NvKmsFlipParams]"), "{flip}");
    assert_eq!(described_calls(&flip), ["openat$nvabi_nvidia_modeset", "ioctl$NVKMS_IOCTL_FLIP"]);
}

#[test]
fn syzkaller_says_what_it_leaves_out() {
    let emitted =
        described("NV_ESC_RM_FREE\nNVOS00_PARAMETERS\nNVOS54_PARAMETERS\nNVOS02_FLAGS_LOCATION\n");
    let left_out: Vec<&str> =
        emitted.lines().filter_map(|line| line.strip_prefix("# Left out")).collect();
    let why = ", for no call here takes it: ";
    let expected =
        ["NVOS54_PARAMETERS", "NVOS02_FLAGS_LOCATION"].map(|name| format!("{why}{name}"));
    assert_eq!(left_out, expected);
    let folder = tempfile::tempdir().unwrap();
    let items = file(folder.path(), "items", "NVOS54_PARAMETERS\n");
    let tag = ["--tag", "550.163.01"];
    let emit = [&["emit", "--lang", "syzkaller"][..], &tag, &["--items", items.to_str().unwrap()]];
    let said = complaint(&emit.concat());
    assert!(said.contains("syzkaller describes calls, and none of the items is one"), "{said}");
}

/// A call is given an fd of the file that the driver takes it on; so are the fields of parameters.
#[test]
fn syzkaller_opens_the_file_that_a_call_is_made_on() {
    let emitted = text(&["emit", "--lang", "syzkaller", "--tag", "550.163.01", "--all"]);
    for (call, fd) in [
        ("NV_ESC_NUMA_INFO", "fd_nvidia"),
        ("NV_ESC_RM_ALLOC_MEMORY", "fd_nvidia"),
        ("NV_ESC_CARD_INFO", "fd_nvidiactl"),
        ("NV_ESC_REGISTER_FD", "fd_nvidia_frontend"),
        ("UVM_TOOLS_ENABLE_COUNTERS", "fd_nvidia_uvm_tools"),
        ("UVM_INITIALIZE", "fd_nvidia_uvm"),
        ("NVKMS_IOCTL_FLIP", "fd_nvidia_modeset"),
        ("DRM_IOCTL_NVIDIA_GET_DEV_INFO", "fd_drm"),
    ] {
        assert!(emitted.contains(&format!("\nioctl${call}(fd {fd}, ")), "{call}");
    }
    for line in [
        "syz_open_dev$nvabi_nvidia(dev ptr[in, string[\"/dev/nvidia#\"]], id intptr[0:9], flags const[0x2]) fd_nvidia",
        "resource fd_nvidia[fd_nvidia_frontend]",
        "\tctl_fd\tfd_nvidiactl\t(in)",
        "\trmCtrlFd\tfd_nvidiactl\t(in)",
        "\tuvmFd\tfd_nvidia_uvm\t(in)",
    ] {
        assert!(emitted.lines().any(|other| other == line), "{line}");
    }
    let jetson = text(&["emit", "--lang", "syzkaller", "--tag", "tegra-r36.4"]);
    assert!(jetson.contains("\tchannel_fd\tfd_channel\t(in)\n"));
    assert!(jetson.contains("arg ptr[in, fd_channel])"));
}

/// Of a DRM ioctl whose struct no header has, the request tells how long it is.
#[test]
fn syzkaller_gives_unknown_parameters_their_bytes() {
    let call = "DRM_IOCTL_NVIDIA_GET_CRTC_ROI_CRCS";
    let emitted = text(&["emit", "--lang", "syzkaller", "--tag", "595.45.04", "--all"]);
    let expected = format!(
        "# {call}: nothing tells what is in its bytes\n\
         ioctl${call}(fd fd_drm, cmd const[0xcc28645b], arg ptr[inout, array[int8, 3112]])\n"
    );
    assert!(emitted.contains(&expected), "{expected}");
}

#[test]
fn show_says_which_file_a_call_is_made_on() {
    for (call, on) in [
        ("NV_ESC_NUMA_INFO", "ioctl of /dev/nvidia*,"),
        ("NV_ESC_CARD_INFO", "ioctl of /dev/nvidiactl,"),
        ("NV_ESC_REGISTER_FD", "ioctl of /dev/nvidiactl and /dev/nvidia*,"),
        ("UVM_TOOLS_ENABLE_COUNTERS", "ioctl of /dev/nvidia-uvm-tools,"),
        ("DRM_IOCTL_NVIDIA_GET_DEV_INFO", "ioctl of /dev/dri/card* and /dev/dri/renderD*,"),
    ] {
        let shown = text(&["show", call, "--tag", "550.163.01"]);
        assert!(shown.contains(on), "{shown}");
    }
    let register = text(&["show", "NV_ESC_REGISTER_FD", "--tag", "550.163.01", "--json"]);
    let register: Value = serde_json::from_str(&register).unwrap();
    let call = &register["call_info"][0];
    assert_eq!(call["paths"], json!(["/dev/nvidiactl", "/dev/nvidia*"]));
    assert_eq!(call["forms"][0]["fds"][0]["means"], "nvidiactl");
}

#[test]
fn each_language_writes_one_small_module() {
    let folder = tempfile::tempdir().unwrap();
    let items = "NV_ESC_RM_FREE\nNVOS54_PARAMETERS\nNVOS02_FLAGS_PHYSICALITY\nNV01_ROOT\n";
    let items = file(folder.path(), "items", items);
    let out = folder.path().join("out");
    let (items, shown) = (items.to_str().unwrap(), out.to_str().unwrap());
    let tags = ["--tag", "550.163.01", "--tag", "580.95.05"];
    let mut all = String::new();
    for language in ["c", "go", "json", "kaitai", "python", "rust", "syzkaller"] {
        let args = ["emit", "--lang", language, "--items", items, "--out", shown];
        text(&[&args[..], &tags].concat());
    }
    let mut names: Vec<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        all.push_str(&format!("==== {name}\n{}", fs::read_to_string(&path).unwrap()));
    }
    insta::with_settings!({ snapshot_path => root().join("snapshots"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("emit-small", all);
    });
}

/// The names of a module's `types`, and its `calls`, as `--lang json` has them.
fn chosen(items: &str) -> (Vec<String>, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let items = file(folder.path(), "items", items);
    let tag = ["--tag", "550.163.01"];
    let emit = [&["emit", "--lang", "json"][..], &tag, &["--items", items.to_str().unwrap()]];
    let document: Value = serde_json::from_str(&text(&emit.concat())).unwrap();
    let list = |name: &str| document[name].as_array().unwrap().clone();
    let names = list("types").into_iter().map(|ty| ty["name"].as_str().unwrap().to_owned());
    (names.collect(), list("calls"))
}

#[test]
fn a_pattern_stands_for_types_and_calls() {
    let (types, calls) = chosen("nv_ioctl_card_*\nNV_ESC_RM_FRE*\n");
    assert!(types.iter().any(|name| name == "nv_ioctl_card_info_t"), "{types:?}");
    assert!(types.iter().any(|name| name == "NVOS00_PARAMETERS"), "{types:?}");
    assert_eq!(calls.len(), 1, "{calls:?}");
    let folder = tempfile::tempdir().unwrap();
    let nothing = file(folder.path(), "items", "NV_ESC_RM_FREE *nomatch*\n");
    let items = ["--items", nothing.to_str().unwrap()];
    let said = complaint(&[&["emit", "--lang", "c", "--tag", "550.163.01"][..], &items].concat());
    assert!(said.contains("no tag that is emitted has anything named `*nomatch*`"), "{said}");
    assert!(said.contains("items:1:16"), "{said}");
}

/// The mode setter has one request, and the numbers of its calls are none.
#[test]
fn a_call_of_the_mode_setter_has_no_request_of_its_own() {
    let (_, calls) = chosen("NVKMS_IOCTL_FLIP DRM_IOCTL_NVIDIA_GET_DEV_INFO");
    let of = |name: &str| calls.iter().find(|call| call["name"] == name).unwrap();
    let flip = of("NVKMS_IOCTL_FLIP");
    assert_eq!((&flip["request"], &flip["roles_known"]), (&json!(null), &json!(false)));
    assert_eq!(flip["params"], "NvKmsFlipParams");
    assert!(of("DRM_IOCTL_NVIDIA_GET_DEV_INFO")["request"].as_u64().unwrap() > 1 << 30);
}

/// Whom the driver lets make a call is in the table of each language, as `list` has it; where that changes, a row ends.
#[test]
fn calls_say_who_may_make_them() {
    let tags = ["515.43.04", "550.163.01", "595.45.04"];
    let lists = tags.map(|tag| -> Vec<Value> {
        serde_json::from_str(&text(&["list", "commands", "--tag", tag, "--json"])).unwrap()
    });
    let access = |at: usize, name: &str| -> Value {
        let mut listed = lists[at].iter();
        listed.find(|call| call["name"] == name).map_or(Value::Null, |call| call["access"].clone())
    };
    let args = tags.iter().flat_map(|tag| ["--tag", *tag]);
    let emit: Vec<&str> = ["emit", "--lang", "json", "--all"].into_iter().chain(args).collect();
    let module: Value = serde_json::from_str(&text(&emit)).unwrap();
    let (mut compared, mut cut) = (0, HashMap::new());
    for call in module["calls"].as_array().unwrap() {
        let name = call["name"].as_str().unwrap();
        if call["kind"] != "control" || lists.iter().flatten().all(|listed| listed["name"] != name)
        {
            continue;
        }
        let spans: Vec<(usize, usize)> = serde_json::from_value(call["versions"].clone()).unwrap();
        for at in spans.iter().flat_map(|(first, last)| *first..=*last) {
            assert_eq!(call["access"], access(at, name), "{name} at {}", tags[at]);
            compared += 1;
        }
        cut.entry((name, call["params"].as_str())).or_insert_with(Vec::new).push(&call["access"]);
    }
    let cut = cut.values().filter(|rows| rows.len() > 1).count();
    assert!(compared > 3_000 && cut > 50, "{compared} compared, {cut} changed");

    let folder = tempfile::tempdir().unwrap();
    let items = file(folder.path(), "items", "NV2080_CTRL_CMD_GPU_GET_INFO_V2\n");
    let (items, out) = (items.to_str().unwrap(), folder.path().to_str().unwrap());
    for (language, file, row) in [
        ("c", "nvabi.h", "0, \"NV2080_CTRL_GPU_GET_INFO_V2_PARAMS\", \"user\", 0x20800102"),
        ("go", "nvabi.go", ", true, \"user\"},"),
        ("python", "nvabi.py", ", True, None, 'user'),"),
        ("rust", "nvabi.rs", ", access: Some(\"user\") },"),
    ] {
        text(&["emit", "--lang", language, "--tag", tags[1], "--items", items, "--out", out]);
        let module = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(module.contains(row), "{language}: {module}");
    }
}

/// Jetson's headers have names in small letters, which importers of a package would not see.
#[test]
fn names_of_a_go_package_are_seen_outside_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    text(&["emit", "--lang", "go", "--tag", "tegra-r36.4.3", "--out", out]);
    let package = std::fs::read_to_string(folder.path().join("nvabi.go")).unwrap();
    let names = package.lines().filter_map(|line| line.strip_prefix("type "));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"Nvgpu_gpu_open_channel_args"), "{names:?}");
    let hidden = names.iter().find(|name| !name.starts_with(|c: char| c.is_ascii_uppercase()));
    assert_eq!(hidden, None);
}

#[test]
fn bad_input_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = file(folder.path(), "unknown", "NVOS54_PARAMETER\n");
    let empty = file(folder.path(), "empty", "# nothing\n");
    let emit = |more: &[&str]| complaint(&[&["emit", "--lang", "c"][..], more].concat());
    let tag = ["--tag", "550.163.01"];
    let with = |items: &Path| emit(&[&tag[..], &["--items", items.to_str().unwrap()]].concat());
    let said = with(&unknown);
    assert!(said.contains("`NVOS54_PARAMETER`") && said.contains("NVOS54_PARAMETERS"), "{said}");
    assert!(with(&empty).contains("contains no names"));
    assert!(with(&folder.path().join("none")).contains("cannot read"));
    assert!(emit(&["--tag", "550.163.99"]).contains("550.163.99"));
    assert!(emit(&["--tag", "550.163.01", "--tag", "tegra-r36.4"]).contains("different drivers"));
    assert!(emit(&["--tag", "550.163.01", "--package", "a-b"]).contains("a-b"));
    for (language, word) in
        [("go", "type"), ("go", "main"), ("python", "class"), ("python", "ctypes"), ("rust", "fn")]
    {
        let said =
            complaint(&["emit", "--lang", language, "--tag", "550.163.01", "--package", word]);
        assert!(said.contains(&format!("`{word}` cannot be imported in {language}")), "{said}");
    }
    for (package, why) in [
        ("nv_arm64", "`go build` reads nv_arm64.go on arm64 alone"),
        ("nv_x_linux", "`go build` reads nv_x_linux.go on linux alone"),
        ("x_test", "x_test.go would be a test"),
        ("_x", "`go build` passes over _x.go"),
    ] {
        let said =
            complaint(&["emit", "--lang", "go", "--tag", "550.163.01", "--package", package]);
        assert!(said.contains(why), "{said}");
    }
    assert!(
        emit(&["--tag", "550.163.01", "--json"]).contains("--json prints a model, and c is none")
    );
    let said = complaint(&["emit", "--lang", "go", "--tag", "550.163.01"]);
    assert!(said.contains("--out FOLDER"), "{said}");
    let out = file(folder.path(), "file", "");
    let said = emit(&["--tag", "550.163.01", "--out", out.to_str().unwrap()]);
    assert!(said.contains("is a file, and --out names a folder"), "{said}");
}

/// A folder stands where the second of two files belongs: the first is as it was.
#[test]
fn files_are_written_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let old = file(folder.path(), "nvabi.go", "old");
    let taken = folder.path().join("nvabi_test.go");
    fs::create_dir(&taken).unwrap();
    let out = folder.path().to_str().unwrap();
    let args = ["emit", "--lang", "go", "--tag", "550.163.01", "--out", out];
    let said = complaint(&args);
    assert!(said.contains("nvabi_test.go: is a directory"), "{said}");
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
    fs::remove_dir(&taken).unwrap();
    text(&args);
    assert!(fs::read_to_string(&old).unwrap().starts_with("// "));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
}

/// What a file of names may be: a mark at its start, names that stand twice, a shell's pipe; and how it is told to the
/// one who writes the module again.
#[test]
fn files_of_names_are_read_as_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let emit = |items: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nvabi"));
        command.current_dir(folder.path()).args(["emit", "--lang", "c", "--tag", "550.163.01"]);
        command.args(["--items", items]).output().unwrap()
    };
    let renewed = |items: &str| {
        let output = emit(items);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains("--items")).unwrap();
        line.split_once("--items ")
            .unwrap()
            .1
            .trim_end_matches(" */")
            .trim_end_matches('.')
            .to_owned()
    };
    fs::create_dir(folder.path().join("abi")).unwrap();
    let marked = "\u{feff}NVOS54_PARAMETERS\r\nNVOS54_PARAMETERS\r\n";
    let absolute = file(folder.path(), "abi/names", marked);
    file(folder.path(), "abi/my names", marked);
    file(folder.path(), "abi/it's", marked);
    assert_eq!(renewed("abi/names"), "abi/names");
    assert_eq!(renewed("abi/my names"), "'abi/my names'");
    assert_eq!(renewed("abi/it's"), "FILE");
    assert_eq!(renewed(absolute.to_str().unwrap()), "names");
    let piped = format!(
        "{} emit --lang c --tag 550.163.01 --items <(cat abi/names)",
        env!("CARGO_BIN_EXE_nvabi")
    );
    let piped = passes(Command::new("bash").current_dir(folder.path()).args(["-c", &piped]));
    assert!(piped.contains("--items FILE"), "{}", &piped[..400]);

    passes(Command::new("mkfifo").current_dir(folder.path()).arg("pipe"));
    file(folder.path(), "large", &"NVOS54_PARAMETERS # over and over\n".repeat(1 << 19));
    for (items, why) in [
        ("pipe", "cannot read pipe: it is neither a regular file nor a shell's <(…)"),
        ("/dev/zero", "cannot read /dev/zero: it is neither"),
        ("abi", "cannot read abi: it is neither"),
        ("large", "cannot read large: it has more than 16 MiB"),
    ] {
        let output = emit(items);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

/// Each name has its place in the text, and they share the text: a copy for each would take 13 GB here.
#[test]
fn a_long_list_of_names_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let names: String =
        (0..20_000).map(|at| format!("NV_NO_SUCH_NAME_OF_ANY_DRIVER_{at}\n")).collect();
    file(folder.path(), "names", &(names + "0x2a\n"));
    let nvabi = env!("CARGO_BIN_EXE_nvabi");
    let emit = format!(
        "ulimit -v 4000000; {nvabi} emit --lang c --tag 550.163.01 --items names 2>&1 || true"
    );
    let said = passes(Command::new("bash").current_dir(folder.path()).args(["-c", &emit]));
    assert!(said.contains("`0x2a` is a number") && said.contains("names:20001:1"), "{said}");
}
