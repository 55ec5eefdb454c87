//! `nvabi trace link`: what `nvabi trace cc -fgpu-rdc` lets clang call in the place of the linker.
//!
//! An object has the device code of its unit in a section, and hands it to a function of its own name that
//! nobody defines: clang leaves it to others to link device code. nvlink does that here, and an object more
//! has what it made and the functions. They register it as one, together with the units' own images, so
//! that CUDA, and the emulator, can link their PTX where the machine code is of another architecture.
//! Archives that are named by `-l` are looked for as the linker does.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use crate::context::Context;
use crate::emulator::{exit_code, scratch};

/// The section of an object in which its device code is.
const SECTION: &[u8] = b"__nv_relfatbin";

/// Before the name of each unit, in the list that nvlink writes.
const LISTED: &str = "DEFINE_REGISTER_FUNC(";

#[derive(Debug, clap::Args)]
pub(crate) struct LinkArgs {
    /// CUDA's folder; without this, its tools are those of PATH.
    #[arg(long, value_name = "DIR")]
    cuda: Option<PathBuf>,
    /// The compiler.
    #[arg(long, value_name = "PROGRAM")]
    clang: OsString,
    /// Architectures of the device code.
    #[arg(long = "arch", value_name = "ARCH", required = true)]
    archs: Vec<String>,
    /// The linker itself.
    #[arg(long, value_name = "PROGRAM")]
    ld: OsString,
    /// What clang hands to the linker.
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Links; the exit status is the linker's, 2 when it could not be run.
pub(crate) fn link(context: &Context<'_>, args: &LinkArgs) -> ExitCode {
    match run(args) {
        Ok(status) => exit_code(status),
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

/// An executable that clang can call as its linker.
pub(crate) fn script(
    folder: &Path,
    cuda: Option<&Path>,
    clang: &OsStr,
    archs: &[&str],
    ld: &OsStr,
) -> io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["trace", "link"]);
    if let Some(cuda) = cuda {
        command.arg("--cuda").arg(cuda);
    }
    command.arg("--clang").arg(clang).arg("--ld").arg(ld);
    command.args(archs.iter().flat_map(|arch| ["--arch", arch]));
    let path = folder.join("ld");
    fs::write(&path, format!("#!/bin/sh\nexec {} -- \"$@\"\n", super::cc::shown(&command)))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

fn run(args: &LinkArgs) -> io::Result<ExitStatus> {
    let mut units = Vec::new();
    for (at, path) in inputs(&args.arguments) {
        let bytes = fs::read(&path).map_err(|error| named(path.as_os_str(), error))?;
        if bytes.windows(SECTION.len()).any(|window| window == SECTION) {
            units.push((at, path));
        }
    }
    let mut arguments = args.arguments.clone();
    let scratch = scratch("link")?;
    if let Some((first, _)) = units.first() {
        let paths: Vec<&OsStr> = units.iter().map(|(_, path)| path.as_os_str()).collect();
        // Before all archives that have units in them.
        arguments.insert(*first, device_link(args, &paths, scratch.path())?.into());
    }
    Command::new(&args.ld).args(arguments).status().map_err(|error| named(&args.ld, error))
}

/// Objects and archives that the linker gets, with the arguments they are named by. A library is looked
/// for in all folders, wherever they are named; in each, a shared one comes first while those are allowed.
fn inputs(arguments: &[OsString]) -> Vec<(usize, PathBuf)> {
    let texts: Vec<&str> = arguments.iter().map(|text| text.to_str().unwrap_or_default()).collect();
    // The value of a flag that may be joined to it or stand behind it.
    let value = |at: usize, flags: [&str; 2]| -> Option<&str> {
        flags.into_iter().find_map(|flag| match texts[at].strip_prefix(flag)? {
            "" => texts.get(at + 1).copied(),
            joined => Some(joined),
        })
    };
    let folders: Vec<&Path> = (0..texts.len())
        .filter_map(|at| value(at, ["-L", "--library-path="]).map(Path::new))
        .collect();
    let mut shared = true;
    let mut found = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        match *text {
            "-Bstatic" | "-static" | "-dn" | "-non_shared" => shared = false,
            "-Bdynamic" | "-dy" | "-call_shared" => shared = true,
            _ => {}
        }
        let path = match value(at, ["-l", "--library="]) {
            Some(name) => library(&folders, name, shared),
            None => Some(PathBuf::from(&arguments[at])),
        };
        let is_input = |path: &PathBuf| {
            path.extension().is_some_and(|end| end == "o" || end == "a") && path.is_file()
        };
        // An archive that is named twice is one to nvlink.
        let path =
            path.filter(is_input).filter(|path| found.iter().all(|(_, known)| known != path));
        found.extend(path.map(|path| (at, path)));
    }
    found
}

/// The file that `-lNAME` or `-l:FILE` stands for.
fn library(folders: &[&Path], name: &str, shared: bool) -> Option<PathBuf> {
    let names = match name.strip_prefix(':') {
        Some(file) => vec![file.to_owned()],
        None if shared => vec![format!("lib{name}.so"), format!("lib{name}.a")],
        None => vec![format!("lib{name}.a")],
    };
    let mut files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    files.find(|file| file.is_file())
}

/// Links device code and makes an object of it.
fn device_link(args: &LinkArgs, inputs: &[&OsStr], folder: &Path) -> io::Result<PathBuf> {
    let list = folder.join("units");
    let image = folder.join("linked.fatbin");
    let mut pack = Command::new(tool(args, "fatbinary"));
    pack.args(["-64", "--link"]).arg(flag("--create=", &image));
    for arch in &args.archs {
        let code = folder.join(format!("{arch}.cubin"));
        let mut nvlink = Command::new(tool(args, "nvlink"));
        nvlink.args(["-m64", &format!("-arch={arch}")]);
        nvlink.arg(flag("--register-link-binaries=", &list)).args(inputs).arg("-o").arg(&code);
        succeed(&mut nvlink)?;
        pack.arg(flag(&format!("--image=profile={arch},file="), &code));
    }
    succeed(&mut pack)?;
    let list = fs::read_to_string(&list).map_err(|error| named(list.as_os_str(), error))?;
    let units: Vec<&str> = list
        .split(LISTED)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0.trim()))
        .collect();
    let (source, object) = (folder.join("linked.c"), folder.join("linked.o"));
    fs::write(&source, registration(&units, &image))?;
    let mut compile = Command::new(&args.clang);
    compile.args(["-x", "c", "-O1", "-fPIC", "-c"]).arg(&source).arg("-o").arg(&object);
    succeed(&mut compile)?;
    Ok(object)
}

/// C that registers what was linked once the last unit has come.
fn registration(units: &[&str], image: &Path) -> String {
    let image = image.display();
    let count = units.len();
    let mut text = format!(
        r#"typedef void (*registers)(void **);
struct wrapper {{
    int magic, version;
    const void *data;
    const void **units;
}};
void **__cudaRegisterFatBinary(struct wrapper *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
int atexit(void (*)(void));

__asm__(".pushsection .nv_fatbin,\"a\"\n.balign 8\nnvabi_linked:\n.incbin \"{image}\"\n.popsection");
extern const char nvabi_linked[] __attribute__((visibility("hidden")));

static const void *units[{count} + 1];
static registers kernels[{count}];
static int came;
static struct wrapper linked __attribute__((section(".nvFatBinSegment"))) = {{0x466243b1, 2, nvabi_linked, units}};
static void **handle;

static void leave(void) {{
    __cudaUnregisterFatBinary(handle);
}}

static void come(registers unit, const struct wrapper *code) {{
    units[came] = code->data;
    kernels[came++] = unit;
    if (came < {count})
        return;
    handle = __cudaRegisterFatBinary(&linked);
    for (int at = 0; at < {count}; at++)
        kernels[at](handle);
    __cudaRegisterFatBinaryEnd(handle);
    atexit(leave);
}}

"#
    );
    // The units are asked for by name, so that those of archives are linked even where nothing else does.
    for unit in units {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "extern const struct wrapper __fatbinwrap{unit};\n\
             void __cudaRegisterLinkedBinary{unit}(registers unit) {{ come(unit, &__fatbinwrap{unit}); }}"
        );
    }
    text
}

fn tool(args: &LinkArgs, name: &str) -> PathBuf {
    args.cuda.as_ref().map_or_else(|| name.into(), |cuda| cuda.join("bin").join(name))
}

fn flag(flag: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(flag);
    flag.push(path);
    flag
}

/// Runs a tool, whose messages are shown as they are.
fn succeed(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_owned();
    let status = command.status().map_err(|error| named(&program, error))?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{}: {status}", program.to_string_lossy()))),
    }
}

fn named(what: &OsStr, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", what.to_string_lossy()))
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_as_the_linker_finds_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for name in
            ["one/libkernels.a", "two/libkernels.so", "two/libmore.a", "two/libmore.so", "main.o"]
        {
            fs::create_dir_all(folder.path().join(name).parent().expect("a parent"))
                .expect("a folder");
            fs::write(path(name), "").expect("a file");
        }
        let found = |arguments: &str| {
            let arguments = arguments.replace('@', &format!("{}/", folder.path().display()));
            let arguments: Vec<OsString> = arguments.split(' ').map(OsString::from).collect();
            let place = |(at, path): (usize, PathBuf)| {
                let name = path.strip_prefix(&folder).expect("below the folder");
                format!("{at} {}", name.display())
            };
            inputs(&arguments).into_iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(
            found("-o @out @main.o -lkernels -L@one -L @two"),
            ["2 main.o", "3 one/libkernels.a"]
        );
        assert_eq!(
            found("-L@two -L@one -l kernels -l:libmore.a"),
            ["4 two/libmore.a"],
            "a shared one is first"
        );
        assert_eq!(found("-L@two -lmore -Bstatic -lmore -Bdynamic -lmore"), ["3 two/libmore.a"]);
        assert_eq!(found("@main.o @main.o -lnone @none.o"), ["0 main.o"]);
    }
}
