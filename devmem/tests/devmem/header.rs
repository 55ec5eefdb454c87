//! The headers of plugins and of applications: their lock, C and C++.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nvabi_pipeline::extract::Clang;
use nvabi_pipeline::headers::Source;
use nvabi_pipeline::lock;
use nvabi_pipeline::spec::Spec;
use nvabi_pipeline::verify::{Reader, compare};
use nvabi_test::{Case, Need, skip};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn include() -> std::path::PathBuf {
    root().join("include")
}

/// What the derive compares the structs of Rust with is what the header says.
#[test]
fn the_lock_is_of_this_header() {
    let clang = Clang::load();
    let clang =
        clang.unwrap_or_else(|why| skip(Need::Clang, format!("no libclang: {}", why.message)));
    let specs = Spec::load_folder(&root().join("abi-specs")).unwrap_or_else(|r| panic!("{r}"));
    let (locked, edited) =
        lock::read(&root().join("abi-specs/lock")).unwrap_or_else(|report| panic!("{report}"));
    assert!(edited.diagnostics.is_empty(), "{edited}");
    let tag = locked.tags[0].tag.clone();
    let mut source =
        Source::single(&include(), tag.clone()).unwrap_or_else(|d| panic!("{}", d.message));
    let read = Reader::new(&clang, &mut source).read(&specs[0], &tag);
    let complaints = compare(&locked, &read.unwrap_or_else(|report| panic!("{report}")));
    assert!(complaints.diagnostics.is_empty(), "run `nvabi lock`, see devmem.toml:\n{complaints}");
}

/// A test for each compiler.
pub(crate) fn cases() -> Vec<Case> {
    [
        ("gcc", "c", Need::Gcc),
        ("g++", "c++", Need::Gcc),
        ("clang", "c", Need::Clang),
        ("clang++", "c++", Need::Clang),
    ]
    .into_iter()
    .map(|(compiler, language, need)| {
        let name = format!("header::each_stands_alone_for_{compiler}");
        Case::new(name, move || each_stands_alone(compiler, language, need))
    })
    .collect()
}

fn each_stands_alone(compiler: &str, language: &str, need: Need) {
    let files = std::fs::read_dir(include()).expect("a folder");
    let headers: Vec<String> =
        files.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8")).collect();
    assert!(headers.len() > 1, "{headers:?}");
    headers.iter().for_each(|header| stands_alone(header, compiler, language, need));
}

fn stands_alone(header: &str, compiler: &str, language: &str, need: Need) {
    let mut command = Command::new(compiler);
    command.args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.arg("-I").arg(include()).arg("-").stdin(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.unwrap_or_else(|why| skip(need, format!("{compiler}: {why}")));
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "#include \"{header}\"").expect("a pipe");
    drop(input);
    let output = child.wait_with_output().expect("a compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler}, {header}: {said}");
}
