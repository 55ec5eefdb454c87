//! A driver whose headers lie in several repositories: where they are looked for, and what a person
//! is told when one is missing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

mod common;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use common::{clang, ok, refused, tag};
use nvabi_pipeline::diagnostic::Report;
use nvabi_pipeline::facts;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lint;
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::spec::{Reference, Spec};
use nvabi_pipeline::verify::Reader;

test_main!();

const SPEC: &str = r#"
driver = "moon-r1"
targets = ["aarch64-unknown-linux-gnu"]

[tree.gpu]
repository = "https://example.invalid/gpu"

[tree.mem]
repository = "https://example.invalid/mem"

[tags]
"moon-r1.2" = { gpu = "v2", mem = "v2" }

[surface.gpu]
tree = "gpu"
headers = ["gpu.h"]
include = [""]

[surface.mem]
tree = "mem"
headers = ["mem.h"]
include = [""]

[node]
gpu = { paths = ["/dev/gpu"] }
mem = { paths = ["/dev/mem*"] }

[ioctl]
GPU_IOC_OPEN = { node = "gpu", params = "gpu_open", fds = ["mem_fd"], opens = { mem_fd = "mem" } }
MEM_IOC_FREE = { node = "mem", params = "int" }
"#;

const GPU: &str = "#include <linux/ioctl.h>\n#include <linux/types.h>\n\
    struct gpu_open { __u32 flags; __s32 mem_fd; };\n\
    #define GPU_IOC_OPEN _IOWR('G', 1, struct gpu_open)\n";

const MEM: &str = "#include <linux/ioctl.h>\n#define MEM_IOC_FREE _IOW('G', 1, int)\n";

fn parse(text: &str) -> Result<Spec, Report> {
    let file = ("moon-r1".to_owned(), "abi-specs/moon-r1.toml".to_owned(), text.to_owned());
    Spec::parse_all(&[file]).map(|mut specs| specs.remove(0))
}

/// A repository with one file, at a tag or on a branch.
fn repository(at: &Path, name: &str, text: &str, reference: &str) {
    let repository = git2::Repository::init_bare(at).unwrap();
    let blob = repository.blob(text.as_bytes()).unwrap();
    let mut builder = repository.treebuilder(None).unwrap();
    builder.insert(name, blob, 0o100_644).unwrap();
    let tree = repository.find_tree(builder.write().unwrap()).unwrap();
    let who = git2::Signature::now("test", "test@example.invalid").unwrap();
    repository.commit(Some(reference), &who, &who, "one file", &tree, &[]).unwrap();
}

/// The folder of the trees, or one tree itself, also through a link that is called otherwise.
#[test]
fn one_extracted_tree_may_be_given_itself() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("moon-drivers-1.2.3");
    fs::create_dir_all(tree.join("inc")).unwrap();
    fs::write(tree.join("inc/a.h"), "").unwrap();
    let link = folder.path().join("current");
    std::os::unix::fs::symlink(&tree, &link).unwrap();
    for given in [folder.path(), &tree, &link] {
        let source = Source::open(given).unwrap();
        assert_eq!(source.tags().unwrap(), [tag("1.2.3")], "{}", given.display());
        let listed = source.list(Reference::whole(&tag("1.2.3")), &["inc"]).unwrap();
        let all = glob::Pattern::new("**/*").unwrap();
        assert_eq!(
            listed[0].matching(&all).collect::<Vec<_>>(),
            ["inc/a.h"],
            "{}",
            given.display()
        );
    }
    let other = folder.path().join("moon-drivers-1.2.3/inc");
    let complaint = Source::open(&other).unwrap().list(Reference::whole(&tag("1.2.3")), &[]);
    let complaint = complaint.unwrap_err().to_string();
    assert!(complaint.contains("no folder that is called like a version"), "{complaint}");
}

/// Two repositories that have a tag of the same name.
fn two() -> (tempfile::TempDir, OsString) {
    let folder = tempfile::tempdir().unwrap();
    let (gpu, mem) = (folder.path().join("gpu.git"), folder.path().join("mem.git"));
    repository(&gpu, "gpu.h", GPU, "refs/tags/v2");
    repository(&mem, "mem.h", MEM, "refs/heads/v2");
    let both = env::join_paths([gpu, mem]).unwrap();
    (folder, both)
}

#[test]
fn each_surface_finds_its_tree() {
    let clang = clang();
    let (folder, both) = two();
    let spec = ok(parse(SPEC));
    let mut source = Source::open(Path::new(&both)).unwrap();
    let read = ok(Reader::new(&clang, &mut source).read(&spec, &tag("moon-r1.2")));
    assert_eq!(read.facts.surfaces["gpu"].constants["GPU_IOC_OPEN"].value, 0xc008_4701);
    assert_eq!(read.facts.surfaces["mem"].constants["MEM_IOC_FREE"].value, 0x4004_4701);
    let mut lock = Lock::default();
    lock.insert(&read.facts, read.headers);
    assert_eq!(lint::lint(&lock, &spec).to_string(), "");

    // The same as extracted trees, one folder per tree in that of the tag.
    let trees = folder.path().join("trees/moon-r1.2");
    for (tree, name, text) in [("gpu", "gpu.h", GPU), ("mem", "mem.h", MEM)] {
        fs::create_dir_all(trees.join(tree)).unwrap();
        fs::write(trees.join(tree).join(name), text).unwrap();
    }
    let mut source = Source::open(&folder.path().join("trees")).unwrap();
    let again = ok(Reader::new(&clang, &mut source).read(&spec, &tag("moon-r1.2")));
    assert_eq!(again.facts, read.facts);
}

#[test]
fn a_repository_that_is_missing_is_named() {
    let (folder, _both) = two();
    let spec = ok(parse(SPEC));
    let told = |path: &Path| -> String {
        let mut source = Source::open(path).unwrap();
        let report = refused(facts::units(&mut source, &spec, &tag("moon-r1.2")).map(|_| ()));
        report.render(false)
    };
    // The other repository has a tag of that name, but not the header.
    let text = told(&folder.path().join("gpu.git"));
    assert!(text.contains("moon-r1.2 has no header `mem.h`"), "{text}");
    assert!(text.contains("NVABI_HEADERS may lack the repository of `mem`"), "{text}");
    let empty = folder.path().join("empty.git");
    git2::Repository::init_bare(&empty).unwrap();
    let text = told(&empty);
    assert!(text.contains("there is no `v2` of gpu in"), "{text}");
    assert!(text.contains("list the repository of each tree in NVABI_HEADERS"), "{text}");
}

#[test]
fn a_tag_that_the_spec_does_not_list_is_refused() {
    let (_folder, both) = two();
    let spec = ok(parse(SPEC));
    let mut source = Source::open(Path::new(&both)).unwrap();
    let report = refused(facts::units(&mut source, &spec, &tag("moon-r1.3")).map(|_| ()));
    let text = report.render(false);
    assert!(text.contains("does not say where the headers of moon-r1.3 are"), "{text}");
    assert!(text.contains("did you mean moon-r1.2?"), "{text}");
}

#[test]
fn names_that_lead_nowhere_are_refused() {
    for (from, to, told) in [
        ("tree = \"mem\"", "tree = \"men\"", "there is no tree `men`"),
        ("node = \"mem\"", "node = \"men\"", "there is no node `men`"),
        ("mem_fd = \"mem\"", "mem_fd = \"men\"", "there is no node `men`"),
        ("mem = \"v2\" }", "men = \"v2\" }", "names a tree `men` for moon-r1.2"),
        ("\"moon-r1.2\" =", "\"moon-r2.2\" =", "moon-r2.2 is no tag of driver moon-r1"),
        ("paths = [\"/dev/gpu\"]", "path = \"/dev/gpu\"", "unknown key `path`"),
    ] {
        assert_eq!(SPEC.matches(from).count(), 1, "{from}");
        let report = refused(parse(&SPEC.replace(from, to)).map(|_| ()));
        let text = report.render(false);
        assert!(text.contains(told), "{told}: {text}");
        assert!(text.contains("abi-specs/moon-r1.toml:"), "{text}");
    }
}

/// What lint says of requests, each rule broken once.
#[test]
fn requests_that_do_not_fit_are_found() {
    let clang = clang();
    let (_folder, both) = two();
    let mut source = Source::open(Path::new(&both)).unwrap();
    let read = ok(Reader::new(&clang, &mut source).read(&ok(parse(SPEC)), &tag("moon-r1.2")));
    let mut lock = Lock::default();
    lock.insert(&read.facts, read.headers);
    for (from, to, told) in [
        (
            "params = \"int\"",
            "params = \"__u64\"",
            "takes 4 bytes of parameters, but `__u64` has 8",
        ),
        ("params = \"int\"", "parameterless = true", "takes 4 bytes of parameters, but the spec"),
        ("{ node = \"mem\", ", "{ ", "does not say what it is made on"),
        ("opens = { mem_fd", "opens = { men_fd", "has no field `men_fd`"),
        (
            "opens = { mem_fd",
            "files = { flags = \"mem\" }, opens = { mem_fd",
            "`flags` of GPU_IOC_OPEN is not among its `fds`",
        ),
        (", fds = [\"mem_fd\"]", "", "its field `mem_fd` looks like a file descriptor"),
    ] {
        assert_eq!(SPEC.matches(from).count(), 1, "{from}");
        let spec = ok(parse(&SPEC.replace(from, to)));
        let text = lint::lint(&lock, &spec).to_string();
        assert!(text.contains(told), "{told}: {text}");
    }
}
