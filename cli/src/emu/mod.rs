//! `nvabi emu`: runs a program in the emulator, under several schedules, and says what its kernels do wrong.

mod findings;
mod render;
mod suppressions;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use findings::{Findings, Severity};
use nvabi_reports::terminal;
use suppressions::Suppressions;

use crate::context::Context;
use crate::emulator::{at, before, cuda_libraries, exit_code, own_runtime};

#[derive(Debug, clap::Args)]
pub(crate) struct EmuArgs {
    /// Run the program so often: first in order, then in random orders 1, 2, …
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    schedules: u32,
    /// Run it in this order instead: in-order or random:SEED; may be given several times.
    #[arg(long, value_name = "ORDER", conflicts_with = "schedules", value_parser = schedule)]
    schedule: Vec<String>,
    /// Instructions of warps that a block, or a cooperative grid, may run; default: 2^27.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// GPUs that the program sees.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    devices: u8,
    /// Check global memory, too: reads before anything was written, and races of blocks and warps; several times slower.
    #[arg(long)]
    global: bool,
    /// Compare lanes of a warp with each other, too: races without `__syncwarp` between.
    #[arg(long)]
    lanes: bool,
    /// Report memory that the program never frees.
    #[arg(long)]
    leaks: bool,
    /// The least severity that ends in exit status 1.
    #[arg(long, value_name = "SEVERITY", default_value = "error")]
    fail_on: Severity,
    /// Findings that are known, as `--write-suppressions` writes them.
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
    /// Write what was found, and is not suppressed yet, as suppressions.
    #[arg(long, value_name = "FILE")]
    write_suppressions: Option<PathBuf>,
    /// Write the findings as JSON.
    #[arg(long, value_name = "FILE")]
    findings: Option<PathBuf>,
    /// Write them as SARIF 2.1.0.
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write a JUnit report with a test for each schedule.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// As the emulator reads it.
pub(crate) fn schedule(text: &str) -> Result<String, String> {
    let seed = text.strip_prefix("random:").is_some_and(|seed| seed.parse::<u64>().is_ok());
    match text == "in-order" || seed {
        true => Ok(text.to_owned()),
        false => Err("expected in-order or random:SEED, where SEED is a number".to_owned()),
    }
}

impl EmuArgs {
    /// The schedules to run under.
    fn orders(&self) -> Vec<String> {
        if !self.schedule.is_empty() {
            return self.schedule.clone();
        }
        let order = |seed| match seed {
            0 => "in-order".to_owned(),
            seed => format!("random:{seed}"),
        };
        (0..self.schedules).map(order).collect()
    }
}

/// One run of the program.
#[derive(Debug)]
struct Run {
    schedule: String,
    status: ExitStatus,
}

/// Runs the program: 1 where something was found, else the program's status; 2 when it could not be run.
pub(crate) fn emu(context: &Context<'_>, args: &EmuArgs) -> ExitCode {
    match run(context, args) {
        Ok(code) => code,
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

fn run(context: &Context<'_>, args: &EmuArgs) -> io::Result<ExitCode> {
    let mut suppressions = match &args.suppressions {
        Some(path) => Suppressions::read(path)?,
        None => Suppressions::default(),
    };
    let schedules = args.orders();
    let libraries = cuda_libraries()?;
    let runtime = args.command.first().and_then(|program| own_runtime(program));
    if let Some(runtime) = runtime.filter(|runtime| !libraries.path().join(runtime).exists()) {
        let what = format!(
            "the program has {runtime} in it, and libnvabi_cudart13.so is not beside this command"
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    let (mut findings, mut runs) = (Findings::default(), Vec::new());
    for (number, schedule) in schedules.iter().enumerate() {
        let records = libraries.path().join(format!("findings-{number}"));
        let status =
            run_once(context, args, schedule, number, runtime, (libraries.path(), &records))?;
        let text = match fs::read_to_string(&records) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = "the program never called the emulator's libcuda: has it a runpath of its own, or \
                            CUDA's static runtime without its symbols (do not strip it, or use nvcc -cudart shared)?";
                return Err(io::Error::new(io::ErrorKind::NotFound, what));
            }
            text => text.map_err(|error| at(&records, error))?,
        };
        findings.add(schedule, &text).map_err(|what| at(&records, io::Error::other(what)))?;
        runs.push(Run { schedule: schedule.clone(), status });
    }
    findings.all.retain(|finding| !suppressions.covers(finding));
    findings.sort();
    for finding in &findings.all {
        eprintln!("nvabi emu: {}", terminal::line(&finding.line(schedules.len())));
    }
    for unused in suppressions.unused() {
        let unused = terminal::line(&unused).into_owned();
        eprintln!("nvabi emu: {unused}: this suppression covers nothing that was found");
    }
    let writes: [(&Option<PathBuf>, &dyn Fn() -> String); 4] = [
        (&args.findings, &|| render::json(&findings, &runs, suppressions.covered())),
        (&args.sarif, &|| render::sarif(&findings)),
        (&args.junit, &|| render::junit(&findings, &runs, args.fail_on)),
        (&args.write_suppressions, &|| suppressions::write(&findings)),
    ];
    for (path, text) in writes {
        if let Some(path) = path {
            fs::write(path, text()).map_err(|error| at(path, error))?;
        }
    }
    let program = Path::new(&args.command[0]).display();
    context.status(
        "Emulated",
        &format!("{program}: {}", render::summary(&findings, &runs, &suppressions)),
    );
    if findings.all.iter().any(|finding| finding.severity >= args.fail_on) {
        return Ok(ExitCode::from(1));
    }
    let failed = runs.iter().map(|run| run.status).find(|status| !status.success());
    Ok(failed.map_or(ExitCode::SUCCESS, exit_code))
}

/// Runs the program under one schedule. What it prints is that of the first run.
fn run_once(
    context: &Context<'_>,
    args: &EmuArgs,
    schedule: &str,
    number: usize,
    runtime: Option<&str>,
    (libraries, records): (&Path, &Path),
) -> io::Result<ExitStatus> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut command = Command::new(program);
    command.args(rest).env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", libraries));
    command.env("NVABI_EMU_SCHEDULE", schedule).env("NVABI_EMU_FINDINGS", records);
    command.env_remove("NVABI_EMU_REPORT").env_remove("NVABI_EMU_EXIT");
    if let Some(runtime) = runtime {
        command.env("LD_PRELOAD", before("LD_PRELOAD", &libraries.join(runtime)));
    }
    let checks = [
        (args.global, "NVABI_EMU_GLOBAL"),
        (args.lanes, "NVABI_EMU_LANES"),
        (args.leaks, "NVABI_EMU_LEAKS"),
    ];
    for (wanted, name) in checks {
        if wanted {
            command.env(name, "1");
        }
    }
    if args.devices > 1 {
        command.env("NVABI_EMU_DEVICES", args.devices.to_string());
    }
    if let Some(limit) = args.limit {
        command.env("NVABI_EMU_LIMIT", limit.to_string());
    }
    if let Some(threads) = context.worker_threads() {
        command.env("NVABI_EMU_THREADS", threads.to_string());
    }
    if number > 0 {
        command.stdout(Stdio::null());
    }
    command.status().map_err(|error| at(Path::new(program), error))
}
