//! `nvabi trace cc`: runs clang with the pass that instruments device code.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::builder::NonEmptyStringValueParser;
use nvabi_reports::terminal;

use super::link;
use crate::context::Context;
use crate::emulator::{beside, exit_code, scratch};

/// The compiler of the LLVM that the pass is built for.
const CLANG: &str = "clang++-19";
const PASS: &str = "libnvabi_pass.so";

/// The default architecture: the oldest that the emulator runs and that current GPUs have.
const ARCH: &str = "sm_80";

/// The options that give clang another architecture.
const ARCHS: [&str; 2] = ["--cuda-gpu-arch=", "--offload-arch="];

/// Compiles device code in units that are linked later.
const RDC: &str = "-fgpu-rdc";

#[derive(Debug, clap::Args)]
pub(crate) struct CcArgs {
    /// Events to record: branch, store, atomic, entry, exit, or all.
    #[arg(long, value_name = "LIST", default_value = "branch", value_parser = NonEmptyStringValueParser::new())]
    kinds: String,
    /// Functions to record, by name or mangled name; `!` excludes.
    #[arg(long, value_name = "GLOBS", value_parser = NonEmptyStringValueParser::new())]
    functions: Option<String>,
    /// Folder that the paths of sites are relative to; default: that of each main file.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// CUDA's folder; default: CUDA_PATH, else the one that clang finds.
    #[arg(long, value_name = "DIR")]
    cuda: Option<PathBuf>,
    /// The compiler; it must be clang 19.
    #[arg(long, value_name = "PROGRAM", default_value = CLANG)]
    clang: OsString,
    /// The pass; default: NVABI_PASS, else the one beside nvabi.
    #[arg(long, value_name = "FILE")]
    pass: Option<PathBuf>,
    /// Print the command instead of running it.
    #[arg(long)]
    dry_run: bool,
    /// Arguments for clang.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs clang; the exit status is its own, 2 when it could not be run.
pub(crate) fn cc(context: &Context<'_>, args: &CcArgs) -> ExitCode {
    let outcome = command(args).and_then(|mut command| {
        // It goes when clang has ended.
        let scratch = (links(args) && has(args, RDC)).then(|| scratch("cc")).transpose()?;
        if let Some(scratch) = &scratch {
            command.arg(linker(args, scratch.path())?);
        }
        if args.dry_run {
            println!("{}", terminal::line(&shown(&command)));
            return Ok(ExitCode::SUCCESS);
        }
        let status = command.status().map_err(|error| {
            let program = args.clang.to_string_lossy();
            io::Error::new(error.kind(), format!("{program}: {error}; the pass needs clang 19"))
        })?;
        Ok(exit_code(status))
    });
    outcome.unwrap_or_else(|error| {
        context.status("Failed", &error.to_string());
        ExitCode::from(2)
    })
}

fn command(args: &CcArgs) -> io::Result<Command> {
    let pass = beside(args.pass.as_deref(), "NVABI_PASS", PASS)?;
    let has = |start: &str| has(args, start);
    let mut command = Command::new(&args.clang);
    command.env("NVABI_TRACE_PASS", options(args, has(RDC)));
    command.arg(joined("-fpass-plugin=", &pass));
    if let Some(cuda) = cuda(args) {
        if !has("--cuda-path") {
            command.arg(joined("--cuda-path=", &cuda));
        }
        if links(args) {
            command.arg(joined("-L", &cuda.join("lib64")));
        }
    }
    if !ARCHS.iter().any(|flag| has(flag)) {
        command.arg(format!("{}{ARCH}", ARCHS[0]));
    }
    // Without lines a site is a number.
    if !args.arguments.iter().any(|argument| starts(argument, "-g")) {
        command.arg("-gline-tables-only");
    }
    // PTX for the emulator, as it is; where objects alone are linked there is none to write.
    if !["-S", "-E", "-fsyntax-only", "--cuda-device-only"].iter().any(|flag| given(args, flag)) {
        command.args(["--start-no-unused-arguments", "-Xcuda-fatbinary", "--compress=false"]);
        command.arg("--end-no-unused-arguments");
    }
    command.args(&args.arguments);
    if links(args) && !has("-lcudart") {
        command.arg("-lcudart");
    }
    Ok(command)
}

fn has(args: &CcArgs, start: &str) -> bool {
    args.arguments.iter().any(|argument| starts(argument, start))
}

fn links(args: &CcArgs) -> bool {
    !["-c", "-S", "-E", "-fsyntax-only"].iter().any(|flag| given(args, flag))
}

fn given(args: &CcArgs, flag: &str) -> bool {
    args.arguments.iter().any(|argument| argument == flag)
}

fn cuda(args: &CcArgs) -> Option<PathBuf> {
    args.cuda.clone().or_else(|| env::var_os("CUDA_PATH").map(PathBuf::from))
}

/// Device code of several units is linked before the program is.
fn linker(args: &CcArgs, folder: &Path) -> io::Result<OsString> {
    let values = |flag: &'static str| {
        let texts = args.arguments.iter().filter_map(|argument| argument.to_str());
        texts.filter_map(move |text| text.strip_prefix(flag))
    };
    let mut archs: Vec<&str> = ARCHS.iter().flat_map(|flag| values(flag)).collect();
    archs = archs.iter().flat_map(|list| list.split(',')).collect();
    if archs.is_empty() {
        archs.push(ARCH);
    }
    let own = values("--ld-path=").next_back().map(String::from);
    let kind = values("-fuse-ld=").next_back().map(|kind| format!("ld.{kind}"));
    let ld = own.or(kind).unwrap_or_else(|| "ld".to_owned());
    let script = link::script(folder, cuda(args).as_deref(), &args.clang, &archs, ld.as_ref())?;
    Ok(joined("--ld-path=", &script))
}

fn options(args: &CcArgs, rdc: bool) -> OsString {
    let mut options = OsString::from(format!("kinds={}", args.kinds));
    if let Some(functions) = &args.functions {
        options.push(format!(";functions={functions}"));
    }
    if let Some(root) = &args.root {
        options.push(";root=");
        options.push(root);
    }
    if rdc {
        options.push(";rdc");
    }
    options
}

fn starts(argument: &OsStr, start: &str) -> bool {
    argument.as_encoded_bytes().starts_with(start.as_bytes())
}

fn joined(flag: &str, path: &Path) -> OsString {
    let mut joined = OsString::from(flag);
    joined.push(path);
    joined
}

/// As a shell would take it.
pub(super) fn shown(command: &Command) -> String {
    let quoted = |text: &OsStr| {
        let text = text.to_string_lossy().into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,+:%@".contains(c);
        match text.chars().all(plain) && !text.is_empty() {
            true => text,
            false => format!("'{}'", text.replace('\'', r"'\''")),
        }
    };
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), quoted(value?))));
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    set.chain(words).collect::<Vec<_>>().join(" ")
}
