//! What a person sees when the input is wrong: each mistake once, the whole text reviewed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{clang, headers, lock, ok, refused, snapshot, snapshot_without, tag};
use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::emit::{self, Options};
use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::spec::{Reference, Spec};
use nvabi_pipeline::verify::Reader;

test_main!();

/// A spec that is right, to be made wrong.
const GOOD: &str = r#"driver = "1"
targets = ["x86_64-unknown-linux-gnu"]

[surface.rm]
headers = ["inc/*.h"]
include = ["inc", "sys"]
system = ["sys/*.h"]
"#;

fn file(name: &str, text: &str) -> (String, String, String) {
    (name.to_owned(), format!("abi-specs/{name}.toml"), text.to_owned())
}

fn parse(text: &str) -> Result<Spec, Report> {
    Spec::parse_all(&[file("driver-1", text)]).map(|mut specs| specs.remove(0))
}

// Specs.

#[test]
fn specs() {
    assert!(parse(GOOD).is_ok());
    let with = |text: &str| format!("{GOOD}\n{text}\n");
    let cases = [
        ("unknown key", with("[control]\nNVT_CALL = { param = \"X\" }")),
        ("unknown section", with("[contol]\nNVT_CALL = {}")),
        (
            "unknown key of a pointer",
            with("[control]\nNVT_CALL = { pointers = [{ feild = \"x\" }] }"),
        ),
        (
            "roles of elements that nothing describes",
            with(
                "[control]\nNVT_CALL = { pointers = [{ field = \"x\", len = 1, fds = [\"a\"] }] }",
            ),
        ),
        (
            "a condition that is no union's",
            with("[control]\nNVT_CALL = { pointers = [{ field = \"x\", when = \"a\" }] }"),
        ),
        ("a union without its record", with("[unions.data]\nby = \"type\"\nmembers = {}")),
        (
            "a dispute about nothing known",
            with("[disputed.NVT_CALL]\nx = { theirs = \"bytes\", evidence = \"a.c:1\" }"),
        ),
        ("wrong type", with("[control]\nNVT_CALL = { array = \"yes\" }")),
        ("an item that is no table", with("[control]\nNVT_CALL = \"NVT_PARAMS\"")),
        ("params that are no names", with("[control]\nNVT_CALL = { params = 3 }")),
        (
            "wrong direction",
            with("[control]\nNVT_CALL = { pointers = [{ field = \"x\", dir = \"up\" }] }"),
        ),
        (
            "three mistakes at once",
            with("[control]\nA = { array = 1, caps = [2] }\nB = { number = true }"),
        ),
        ("wrong language", GOOD.replace("system =", "language = \"rust\"\nsystem =")),
        ("number that does not fit", with("[control]\nNVT_CALL = { number = 4294967296 }")),
        ("duplicate item", with("[control]\nNVT_CALL = {}\nNVT_CALL = {}")),
        ("duplicate key", with("[control]\nNVT_CALL = { array = true, array = true }")),
        ("no driver", GOOD.replace("driver = \"1\"", "")),
        ("no headers", "driver = \"1\"\n[surface.rm]\ninclude = []\n".to_owned()),
        ("no TOML", with("[control\n")),
        (
            "bad tag",
            with("[control]\nNVT_CALL = { since = \"550\" }\nNVT_OTHER = { until = \"V1.2\" }"),
        ),
        (
            "both parameterless and not",
            with("[control]\nNVT_CALL = { params = \"X\", parameterless = true }"),
        ),
        ("empty", String::new()),
    ];
    let mut told = String::new();
    for (what, text) in cases {
        told += &format!("## {what}\n{}\n\n", refused(parse(&text)).render(false));
    }
    snapshot("bad_spec", &told);
}

/// Everything that is wrong with several specs is said at once, in the order of the files.
#[test]
fn specs_together() {
    let files = [
        file("driver-1", "driver = \"1\"\nwrong = 1\n"),
        file("driver-2", "driver = \"2\"\nparent = \"driver-22\"\n"),
        file(
            "driver-22a",
            "driver = \"22\"\n[control]\nA = { since = \"x\" }\nB = { since = \"y\" }\n",
        ),
        file("driver-3", "driver = \"3\"\nparent = \"driver-4\"\n"),
        file("driver-4", "driver = \"4\"\nparent = \"driver-3\"\n"),
        file("driver-5", "driver = \"5\"\nparent = \"driver-5\"\n"),
    ];
    snapshot("bad_specs_together", &refused(Spec::parse_all(&files)).render(false));
}

#[test]
fn folder_of_specs_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("abi-specs");
    let report = refused(Spec::load_folder(&path));
    let shown = folder.path().display().to_string();
    snapshot_without("bad_spec_folder", &report.render(false), &[(&shown, "FOLDER")]);
}

/// Names that the headers do not have are found when a spec meets the lock.
#[test]
fn names_that_the_driver_does_not_have() {
    let clang = clang();
    let lock = lock(&clang);
    let text = format!(
        "{GOOD}
[control]
NVT_CALL_TWO = {{ params = \"NVT_SWAP\" }}
NVT_CALL_THREE = {{ params = \"NVT_SWAPS\" }}
NVT_CALL_ONE = {{ params = [\"NVT_SWAPS\", \"NVT_GOES\"] }}

[types]
extra = [\"NVT_NOWHERE\"]
"
    );
    let spec = ok(parse(&text));
    let known = ["1".to_owned()];
    let options =
        Options { nvabi: "crate", family: "", full: false, zerocopy: false, known: &known };
    let report = refused(emit::emit(&lock, &[&spec], options));
    snapshot("bad_names", &report.sorted().render(false));
    // A driver of which no tag is locked.
    let other = ok(parse(&GOOD.replace("driver = \"1\"", "driver = \"2\"")));
    let report = refused(emit::emit(&lock, &[&other], options));
    snapshot("bad_driver_without_tags", &report.render(false));
}

// Headers.

/// Writes a tree of one tag, `1.1`, and reads it with a spec.
struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join("1.1").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { folder }
    }

    fn read(&self, spec: &str) -> String {
        let clang = clang();
        let spec = ok(parse(spec));
        let mut source = Source::open(self.folder.path()).unwrap();
        let report = match Reader::new(&clang, &mut source).read(&spec, &tag("1.1")) {
            Ok(read) => read.warnings,
            Err(report) => report,
        };
        report.render(false)
    }
}

#[test]
fn header_that_does_not_parse() {
    let header = "typedef unsigned NvU32;\ntypedef struct {\n    NvU32 a\n} T;\n\nstruct S {\n    NvU33 b;\n};\n";
    let tree = Tree::new(&[("inc/broken.h", header)]);
    snapshot("bad_header_parse", &tree.read(GOOD));
}

#[test]
fn one_name_for_two_records() {
    let header = "struct A { int x; };\ntypedef struct B { long y; int z; } A;\n";
    let tree = Tree::new(&[("inc/clash.h", header)]);
    snapshot("bad_name_clash", &tree.read(GOOD));
}

#[test]
fn header_that_is_not_there() {
    let tree = Tree::new(&[("inc/a.h", "")]);
    let spec = GOOD.replace("[\"inc/*.h\"]", "[\"inc/*.h\", \"inc/gone.h\", \"other/*.h\"]");
    snapshot("bad_header_missing", &tree.read(&spec));
}

#[test]
fn include_that_is_not_there() {
    let tree = Tree::new(&[
        ("inc/a.h", "#include \"b.h\"\n#include <nvt/elsewhere.h>\n"),
        ("other/b.h", ""),
    ]);
    snapshot("bad_include_missing", &tree.read(GOOD));
}

/// An include must not lead out of the tree.
#[test]
fn include_that_leaves_the_tree() {
    let tree = Tree::new(&[("inc/a.h", "#include \"../../outside.h\"\n")]);
    fs::write(tree.folder.path().join("outside.h"), "typedef int stolen;\n").unwrap();
    snapshot("bad_include_outside", &tree.read(GOOD));
}

#[test]
fn macro_that_changes_its_mind() {
    let tree = Tree::new(&[("inc/a.h", "#define NVT_A 1\n"), ("inc/b.h", "#define NVT_A 2\n")]);
    snapshot("bad_macro_redefined", &tree.read(GOOD));
}

#[test]
fn bad_glob() {
    let tree = Tree::new(&[("inc/a.h", "")]);
    for (name, spec) in [
        ("bad_glob_headers", GOOD.replace("inc/*.h", "inc/[*.h")),
        ("bad_glob_system", GOOD.replace("sys/*.h", "sys/***.h")),
    ] {
        snapshot(name, &tree.read(&spec));
    }
}

#[test]
fn no_targets() {
    let tree = Tree::new(&[("inc/a.h", "")]);
    let spec = GOOD.replace("x86_64-unknown-linux-gnu", "").replace("[\"\"]", "[]");
    snapshot("bad_no_targets", &tree.read(&spec));
}

#[test]
fn target_that_clang_does_not_know() {
    let tree = Tree::new(&[("inc/a.h", "typedef int T;\n")]);
    snapshot("bad_target", &tree.read(&GOOD.replace("x86_64-unknown-linux-gnu", "pdp11-dec-unix")));
}

/// Bytes that are no text, such as an accent of another age in a comment, do no harm.
#[test]
fn header_that_is_no_utf8() {
    let tree = Tree::new(&[]);
    let path = tree.folder.path().join("1.1/inc");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("a.h"), b"/* caf\xe9 */ typedef int NvT;\n").unwrap();
    assert_eq!(tree.read(GOOD), "");
}

#[test]
fn tag_that_is_not_there() {
    let mut source = Source::open(&headers()).unwrap();
    let clang = clang();
    let spec = common::spec();
    let mut told = String::new();
    for wanted in ["1.0", "1.3", "2.1"] {
        let report = refused(Reader::new(&clang, &mut source).read(&spec, &tag(wanted)));
        told += &format!("## {wanted}\n{}\n\n", report.render(false));
    }
    let shown = headers().display().to_string();
    snapshot_without("bad_tag_missing", &told, &[(&shown, "HEADERS")]);
}

#[test]
fn headers_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().display().to_string();
    let error = refused(Source::open(&folder.path().join("nowhere")).map(|_| ()));
    snapshot_without("bad_headers_folder", &error.render(false), &[(&shown, "FOLDER")]);
    // A folder that holds no trees has no tags.
    let empty = Source::open(folder.path()).unwrap();
    let error = refused(empty.list(Reference::whole(&tag("1.1")), &["inc"]));
    snapshot_without("bad_headers_empty", &error.render(false), &[(&shown, "FOLDER")]);
}

// Repositories.

/// A repository whose tags 1.1 and 1.2 hold our own headers.
fn repository(path: &Path) -> git2::Repository {
    let repository = git2::Repository::init_bare(path).unwrap();
    let author =
        git2::Signature::new("nobody", "nobody@example.org", &git2::Time::new(0, 0)).unwrap();
    for name in ["1.1", "1.2"] {
        let id = tree(&repository, &headers().join(name));
        {
            let tree = repository.find_tree(id).unwrap();
            let commit = repository.commit(None, &author, &author, name, &tree, &[]).unwrap();
            let target = repository.find_object(commit, None).unwrap();
            repository.tag(name, &target, &author, name, false).unwrap();
        }
    }
    repository
}

fn tree(repository: &git2::Repository, folder: &Path) -> git2::Oid {
    let mut builder = repository.treebuilder(None).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_owned();
        match path.is_dir() {
            true => builder.insert(name, tree(repository, &path), 0o040_000).unwrap(),
            false => builder.insert(name, repository.blob_path(&path).unwrap(), 0o100_644).unwrap(),
        };
    }
    builder.write().unwrap()
}

/// A repository is read like extracted trees, without a checkout.
#[test]
fn repository_and_trees_give_the_same_facts() {
    let clang = clang();
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let mut source = Source::open(folder.path()).unwrap();
    assert_eq!(source.tags().unwrap(), [tag("1.1"), tag("1.2")]);
    let mut reader = Reader::new(&clang, &mut source);
    for text in ["1.1", "1.2"] {
        let (from_git, from_trees) =
            (ok(reader.read(&common::spec(), &tag(text))), common::read(&clang, text));
        let differences = nvabi_pipeline::compare::facts(&from_git.facts, &from_trees.facts);
        assert_eq!(differences, []);
        assert_eq!(from_git.headers, from_trees.headers);
    }
}

/// Damages the object that `find` names and reads a tag.
fn damaged(find: impl FnOnce(&git2::Repository) -> git2::Oid, damage: &dyn Fn(&Path)) -> String {
    let clang = clang();
    let folder = tempfile::tempdir().unwrap();
    let id = find(&repository(folder.path())).to_string();
    let object = folder.path().join("objects").join(&id[..2]).join(&id[2..]);
    assert!(object.is_file());
    let mut permissions = fs::metadata(&object).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false)]
    permissions.set_readonly(false);
    fs::set_permissions(&object, permissions).unwrap();
    damage(&object);
    let mut source = Source::open(folder.path()).unwrap();
    let report = refused(Reader::new(&clang, &mut source).read(&common::spec(), &tag("1.1")));
    let shown = folder.path().display().to_string();
    without_ids(&report.render(false).replace(&shown, "REPOSITORY"))
}

/// Ids name the content of the headers, and change with it.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let replaced = words.map(|word| {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_id(bare) { word.replace(bare, "OBJECT") } else { word.to_owned() }
    });
    replaced.collect()
}

#[test]
fn damaged_repository() {
    fn root<'r>(repository: &'r git2::Repository) -> git2::Tree<'r> {
        repository.find_reference("refs/tags/1.1").unwrap().peel_to_tree().unwrap()
    }
    let at = |path: &'static str| {
        move |repository: &git2::Repository| {
            root(repository).get_path(Path::new(path)).unwrap().id()
        }
    };
    let delete = |path: &Path| fs::remove_file(path).unwrap();
    let cut = |path: &Path| fs::write(path, b"not an object").unwrap();
    let cases = [
        ("a header is gone", damaged(at("inc/types.h"), &delete)),
        ("a header is no object", damaged(at("inc/types.h"), &cut)),
        ("a folder is gone", damaged(at("inc"), &delete)),
        ("the root is gone", damaged(|r| root(r).id(), &delete)),
        ("the tag is no object", damaged(|r| r.refname_to_id("refs/tags/1.1").unwrap(), &cut)),
    ];
    let mut told = String::new();
    for (what, text) in cases {
        told += &format!("## {what}\n{text}\n\n");
    }
    snapshot("bad_repository", &told);
}

#[test]
fn repository_without_its_config() {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    fs::write(folder.path().join("config"), "[core\n").unwrap();
    let error = refused(Source::open(folder.path()).map(|_| ()));
    let shown = folder.path().display().to_string();
    snapshot_without("bad_repository_config", &error.render(false), &[(&shown, "REPOSITORY")]);
}

// libclang.

/// Set for the child processes: where to write what loading libclang gives.
const CHILD: &str = "NVABI_TEST_LOAD_TO";

#[test]
fn child_loads_libclang() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let told = match Clang::load() {
        Ok(clang) => clang.version().to_owned(),
        Err(why) => why.render(false),
    };
    fs::write(path, told).unwrap();
}

/// What loading says in a process whose `LIBCLANG_PATH` is this.
fn load(libclang: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("told");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_loads_libclang"])
        .env("LIBCLANG_PATH", libclang)
        .env(CHILD, &output)
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
    fs::read_to_string(&output).unwrap().replace(&libclang.display().to_string(), "FOLDER")
}

/// A library that answers as libclang does, up to its version.
fn fake(folder: &Path, version: &str) {
    let source = folder.join("fake.c");
    fs::write(
        &source,
        format!(
            "typedef struct {{ const void *data; unsigned flags; }} CXString;
CXString clang_getClangVersion(void) {{ CXString s = {{ \"{version}\", 0 }}; return s; }}
const char *clang_getCString(CXString s) {{ return s.data; }}
void clang_disposeString(CXString s) {{ (void)s; }}
"
        ),
    )
    .unwrap();
    let library = folder.join("libclang.so");
    let output =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
    let output = output.expect("cc, which Rust links with");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn libclang_that_is_too_old() {
    for (name, version) in
        [("bad_libclang_old", "clang version 11.0.0"), ("bad_libclang_unknown", "a fork of clang")]
    {
        let folder = tempfile::tempdir().unwrap();
        fake(folder.path(), version);
        snapshot(name, &load(folder.path()));
    }
}

/// A library that cannot be opened, since another one that it needs is gone.
#[test]
fn libclang_that_does_not_load() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("gone.c"), "int nvabi_gone(void) { return 0; }\n").unwrap();
    fs::write(at("fake.c"), "int nvabi_gone(void); int nvabi(void) { return nvabi_gone(); }\n")
        .unwrap();
    let link = |output: &str, inputs: &[&str]| {
        let inputs = inputs.iter().map(|name| at(name));
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(at(output)).args(inputs);
        command.args(["-Wl,--no-as-needed", "-Wl,-soname"]).arg(format!("-Wl,{output}"));
        command.output().expect("cc, which Rust links with")
    };
    let first = link("libnvabi-gone.so", &["gone.c"]);
    assert!(first.status.success(), "{first:?}");
    let second = link("libclang.so", &["fake.c", "libnvabi-gone.so"]);
    assert!(second.status.success(), "{second:?}");
    fs::remove_file(at("libnvabi-gone.so")).unwrap();
    snapshot("bad_libclang_missing", &load(folder.path()));
}

/// A library that is named but is none. Where libclang is installed otherwise that one is taken.
#[test]
fn libclang_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let told = load(&folder.path().join("libclang.so"));
    let missing = told.starts_with("error[libclang-missing]");
    assert!(missing || told.contains("version"), "{told}");
    fs::write(folder.path().join("libclang.so"), "no library").unwrap();
    let told = load(folder.path());
    assert!(told.starts_with("error[libclang-missing]") || told.contains("version"), "{told}");
}
