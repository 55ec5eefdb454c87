//! The examples in C, and a program of these tests, compiled against the installed library as an application is.

#![allow(clippy::expect_used, clippy::panic)]

#[macro_use]
extern crate nvabi_test;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nvabi_test::{Need, skip};

test_main!();

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library that cargo built for this test.
fn library() -> PathBuf {
    std::env::current_exe().expect("a path").with_file_name("libnvabi_alloc.so")
}

fn done(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().expect("a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn runs(example: &str, expected: &str) {
    for tool in ["cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            skip(Need::Gcc, format!("there is no {tool}"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    done(Command::new(root().join("install.sh")).arg(folder.path()).arg(library()));
    let flags = done(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "nvabi-alloc"])
            .env("PKG_CONFIG_PATH", folder.path().join("lib/pkgconfig")),
    );
    let flags = String::from_utf8(flags.stdout).expect("UTF-8");
    let program = folder.path().join("program");
    let strict = ["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let source = root().join(example);
    // The library is named behind what uses it.
    done(
        Command::new("cc")
            .args(strict)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .arg("-pthread"),
    );
    // It asks for the version of the interface, not for whatever is the newest.
    let bytes = std::fs::read(&program).expect("a program");
    let asked = b"libnvabi_alloc.so.1\0";
    assert!(bytes.windows(asked.len()).any(|window| window == asked), "{example}");
    let output = done(
        Command::new(&program)
            .env("LD_LIBRARY_PATH", folder.path().join("lib"))
            .env("NVABI_DEVMEM_PLUGINS", "/nowhere"),
    );
    // Who makes it is the machine's business.
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let said: Vec<&str> =
        said.lines().map(|line| line.split(" by ").next().unwrap_or_default()).collect();
    assert_eq!(said.join("\n"), expected);
}

#[test]
fn a_compositor_allocates() {
    let refused = "-95: none of the wanted modifiers serves all uses, but these do: pitch-linear";
    runs("examples/compositor.c", &format!("640x480, modifier 0, 1 plane, stride 2560\n{refused}"));
}

#[test]
fn a_pipeline_negotiates() {
    runs(
        "examples/pipeline.c",
        "NV12: both\n\
         1 modifier, the first is 0\n\
         118784 bytes in 2 planes\n\
         118784 bytes in 2 planes\n\
         118784 bytes in 2 planes\n\
         -19: there is no device nobody\n\
         -19: there is no device nobody\n\
         -19: there is no device nobody\n\
         prefer: 0\n\
         made with cpu first: cpu\n\
         -22: buffer is null\n\
         -22: struct_size of the buffer is 8, not 200 or more\n\
         version 1, and the header's\n\
         -95: cpu does not know rotate-90\n\
         as it is: 1\n\
         -22: 1 words of a detail at 0x0\n\
         of the image: -95: cpu does not know 0x10de:3(1)\n\
         of the image: -95: cpu does not know 0x10de:3(1)\n\
         of the image as it is: 1, 118784 bytes\n\
         -22: struct_size of the usage is 8, not 48 to 4096\n\
         -22: the usage has a field that is not known here\n\
         -22: struct_size of the usage is 4294967295, not 48 to 4096\n\
         -22: reserved of the usage is 1\n\
         -22: reserved of the image is 1\n\
         -22: an image of 0x240 with format 0x3231564e\n\
         -22: 4294967295 uses are more than 65536: the count was never set?\n\
         -22: uses is not aligned\n\
         -22: memory that nobody uses\n\
         -22: usage is null\n\
         -19: there is no such device",
    );
}

#[test]
fn frames_are_handed_on() {
    runs(
        "examples/frames.c",
        "waited: 0\n\
         the frame has arrived\n\
         fences where they are\n\
         -22: no access has begun\n\
         -16: an access has begun and not ended\n\
         -22: operation 5 is neither NVABI_DEVMEM_CPU_READ nor NVABI_DEVMEM_CPU_WRITE\n\
         -22: a plane behind its file\n\
         -22: plane 0 of 76800 bytes has no room for 240 rows of 320 bytes, 64 apart\n\
         -9: the file descriptor of plane 1 is -1\n\
         -22: plane_count of the buffer is 5\n\
         -22: 1 planes, where NV12 has 2\n\
         -25: SYNC_IOC_FILE_INFO of a fence: Inappropriate ioctl for device (os error 25)\n\
         -9: fence is -1",
    );
}

#[test]
fn an_access_ends_before_another_begins() {
    runs("tests/threads.c", "200 turns, 0 met, 0 crowded, 1 open");
}

/// A type of the header as Rust writes it.
fn in_rust(c: &str) -> String {
    let c = c.trim();
    if let Some(to) = c.strip_suffix('*') {
        let to = to.trim_end();
        // What a pointer leads to is constant where the word is beside it, before or behind.
        let (constant, to) = match (to.strip_suffix("const"), to.strip_prefix("const ")) {
            (Some(to), _) => (true, to),
            (None, Some(rest)) if !rest.contains('*') => (true, rest),
            _ => (false, to),
        };
        let to = if to == "void" { "c_void".to_owned() } else { in_rust(to) };
        return format!("*{} {to}", if constant { "const" } else { "mut" });
    }
    let name = c.strip_prefix("const ").unwrap_or(c);
    match name {
        "void" => "()",
        "int" => "c_int",
        "char" => "c_char",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        "nvabi_alloc" => "Alloc",
        "nvabi_alloc_memory" => "Memory",
        "nvabi_alloc_use" => "RawUse",
        "nvabi_alloc_usage" => "RawUsage",
        "nvabi_alloc_buffer" => "RawBuffer",
        "nvabi_devmem_device" => "RawDevice",
        "nvabi_devmem_image" => "RawImage",
        other => panic!("`{other}` is no type that a function takes"),
    }
    .to_owned()
}

/// Name, parameters and result of each function, in Rust's types.
type Prototypes = BTreeMap<String, (Vec<String>, String)>;

fn of_header(text: &str) -> Prototypes {
    let mut found = Prototypes::new();
    // Without comments and directives, a declaration ends at a semicolon.
    let code = text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, rest)| rest));
    let code: String = code.collect();
    let lines = code.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ");
    for declaration in lines.split(';').filter(|it| it.contains('(') && !it.contains('{')) {
        let (head, parameters) = declaration.split_once('(').expect("parameters");
        let at = head.rfind("nvabi_alloc_").expect("a name");
        let parameters = parameters.trim_end().trim_end_matches(')');
        let parameters = parameters.split(',').map(|it| it.trim()).filter(|it| *it != "void");
        let typed = |parameter: &str| {
            let name = parameter.rfind([' ', '*']).expect("a name");
            in_rust(&parameter[..=name])
        };
        let parameters = parameters.map(typed).collect();
        found.insert(head[at..].trim().to_owned(), (parameters, in_rust(&head[..at])));
    }
    found
}

fn of_library(text: &str) -> Prototypes {
    let mut found = Prototypes::new();
    for part in text.split("#[unsafe(no_mangle)]").skip(1) {
        let declaration = part.split(" {\n").next().expect("a head").split_whitespace();
        let declaration = declaration.collect::<Vec<_>>().join(" ");
        let (head, rest) = declaration.split_once('(').expect("parameters");
        let name = head.rsplit(' ').next().expect("a name");
        let (parameters, result) = rest.rsplit_once(')').expect("an end");
        let typed = |it: &str| it.split_once(':').map(|(_, typed)| typed.trim().to_owned());
        let parameters = parameters.split(',').filter_map(typed).collect();
        let result = result.trim().trim_start_matches("->").trim();
        let result = if result.is_empty() { "()" } else { result };
        found.insert(name.to_owned(), (parameters, result.to_owned()));
    }
    found
}

/// The header's structs are locked; a compiler of C does not see what its functions are in Rust.
#[test]
fn the_functions_are_those_of_the_header() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a file");
    let header = of_header(&read("../include/nvabi-alloc.h"));
    let library = of_library(&(read("src/lib.rs") + &read("src/memory.rs")));
    assert_eq!(header, library);
    let (parameters, result) = &header["nvabi_alloc_prefer"];
    assert_eq!(parameters, &["*mut Alloc", "*const *const c_char", "u32"]);
    assert_eq!((header.len() > 9, result.as_str()), (true, "c_int"));
}
