//! `nvabi trace record`: runs a program with the recorder preloaded.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use crate::context::Context;
use crate::emu::schedule;
use crate::emulator::{at, before, beside, cuda_libraries, exit_code};

const RECORDER: &str = "libnvabi_record.so";

#[derive(Debug, clap::Args)]
pub(crate) struct RecordArgs {
    /// The trace to write. Child processes write beside it, with their pid appended.
    #[arg(short, long, value_name = "FILE", default_value = "trace.nvtrace")]
    out: PathBuf,
    /// Buffer of each warp in words of 8 bytes; an event takes one to three.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    capacity: u32,
    /// Memory for the events of one launch, in MiB: the device's, or with --sass this process's.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory: u64,
    /// Record every Nth warp.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Record only these launches of instrumented kernels, counted from 0; either end is optional.
    #[arg(long, value_name = "FROM..TO", value_parser = launches)]
    launches: Option<String>,
    /// Record only kernels whose name, mangled or as in the source, matches.
    #[arg(long, value_name = "GLOB")]
    kernels: Option<String>,
    /// Run in the emulator, not on a GPU.
    #[arg(long, group = "emulator")]
    emulate: bool,
    /// Record the machine code of any program, as it is: the emulator runs it, and notes each instruction.
    #[arg(long, group = "emulator")]
    sass: bool,
    /// Order in which the emulator runs blocks and warps: in-order or random:SEED.
    #[arg(long, value_name = "ORDER", requires = "emulator", value_parser = schedule)]
    schedule: Option<String>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// As the recorder reads it.
fn launches(text: &str) -> Result<String, String> {
    let number = |text: &str| text.is_empty() || text.parse::<u64>().is_ok();
    match text.split_once("..").is_some_and(|(from, to)| number(from) && number(to)) {
        true => Ok(text.to_owned()),
        false => Err("expected FROM..TO; either number is optional".to_owned()),
    }
}

/// Runs the program; the exit status is its own, 2 when it could not be run.
pub(crate) fn record(context: &Context<'_>, args: &RecordArgs) -> ExitCode {
    match run(context, args) {
        Ok(status) => exit_code(status),
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

fn run(context: &Context<'_>, args: &RecordArgs) -> io::Result<ExitStatus> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let out = std::path::absolute(&args.out)?;
    // Not only when the program has run.
    if let Some(folder) = out.parent() {
        fs::read_dir(folder).map_err(|error| at(folder, error))?;
    }
    // The recorder begins a file of its own, so that two processes never write into one.
    match fs::remove_file(&out) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&out, error)),
        _ => {}
    }
    let mut command = Command::new(program);
    command.args(rest);
    if args.sass {
        command.env("NVABI_EMU_RECORD", "1").env("NVABI_EMU_CODE", "sass");
    } else {
        let recorder = beside(None, "NVABI_RECORDER", RECORDER)?;
        command.env("LD_PRELOAD", before("LD_PRELOAD", &recorder));
    }
    command.env("NVABI_RECORD", &out);
    command.env("NVABI_RECORD_CAPACITY", args.capacity.to_string());
    command.env("NVABI_RECORD_MEMORY", (args.memory << 20).to_string());
    command.env("NVABI_RECORD_SAMPLE", args.sample.to_string());
    if let Some(launches) = &args.launches {
        command.env("NVABI_RECORD_LAUNCHES", launches);
    }
    if let Some(kernels) = &args.kernels {
        command.env("NVABI_RECORD_KERNELS", kernels);
    }
    let emulates = args.emulate || args.sass;
    let emulator = emulates.then(|| emulator(args, &mut command)).transpose()?;
    let status = command.status().map_err(|error| at(Path::new(program), error))?;
    drop(emulator);
    match fs::metadata(&out) {
        Ok(file) => {
            context.status("Recorded", &format!("{} ({} bytes)", args.out.display(), file.len()))
        }
        Err(_) => context.status("Recorded", &format!("nothing: {}", why_nothing(args))),
    }
    Ok(status)
}

fn why_nothing(args: &RecordArgs) -> &'static str {
    match args.kernels.is_some() || args.launches.is_some() {
        _ if args.sass => "no kernel that is recorded was launched by a program that loads libcuda",
        true => "no instrumented kernel that --kernels and --launches select completed",
        false => "no kernel that `nvabi trace cc` instrumented (see --functions) completed",
    }
}

/// The emulator under CUDA's names, in a folder that goes when this does.
fn emulator(args: &RecordArgs, command: &mut Command) -> io::Result<tempfile::TempDir> {
    let scratch = cuda_libraries()?;
    command.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", scratch.path()));
    if let Some(schedule) = &args.schedule {
        command.env("NVABI_EMU_SCHEDULE", schedule);
    }
    Ok(scratch)
}
