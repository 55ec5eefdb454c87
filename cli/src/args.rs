//! The command line: subcommands, options and their help texts.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{ColorChoice, Parser, Subcommand};
use clap_complete::Shell;
use nvabi_pipeline::tag::Tag;

use crate::context::Sources;

/// NVIDIA's driver ioctl interface: read it from headers, lock it, compare it, trace and simulate it.
#[derive(Debug, Parser)]
#[command(name = "nvabi", version, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 ok or same, 1 found or different, 2 error; commands that run a program return the\n\
program's (see their --help).\n\n\
Examples:\n  nvabi show NVOS54_PARAMETERS\n  nvabi diff 550.40.07 550.163.01\n  nvabi rm sim -- ./client"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The x86 driver's specs and tags have no family in their names.
fn family(name: &str) -> Result<String, &'static str> {
    match name {
        "" => Err("name a family: x86 or tegra"),
        "x86" => Ok(String::new()),
        name => Ok(name.to_owned()),
    }
}

/// What a family is called where one is named.
pub(crate) fn family_name(family: &str) -> &str {
    if family.is_empty() { "x86" } else { family }
}

/// The arguments of a command that this build does not have.
#[cfg(not(all(feature = "devmem", feature = "sass", feature = "trace")))]
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Missing {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<std::ffi::OsString>,
}

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of worker threads; default: one per core. Results do not depend on it.
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<NonZero<u8>>,
    /// Print the model as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
}

/// Which specs are read, by commands whose tags name a family.
#[derive(Debug, clap::Args)]
pub(crate) struct Specs {
    /// Folder of the specs; its subfolder `lock` holds the lock. Default: `abi-specs` of the checkout that
    /// the current folder is in, else the copy inside the command, which is read-only.
    #[arg(long, value_name = "DIR")]
    pub(crate) specs: Option<PathBuf>,
}

impl Specs {
    fn sources(&self) -> Sources<'_> {
        Sources { specs: self.specs.as_deref(), ..Sources::default() }
    }
}

/// Which specs are read, by commands that work without a tag.
#[derive(Debug, clap::Args)]
pub(crate) struct Families {
    #[command(flatten)]
    specs: Specs,
    /// Driver family where no tag names it: x86 or tegra. Default: x86, or all where a command works on all.
    #[arg(long, value_name = "NAME", value_parser = family)]
    family: Option<String>,
}

impl Families {
    fn sources(&self) -> Sources<'_> {
        Sources { family: self.family.as_deref(), ..self.specs.sources() }
    }
}

/// Which headers are read.
#[derive(Debug, clap::Args)]
pub(crate) struct HeadersPath {
    /// Driver headers: a git repository (bare or not) or a folder of extracted trees; separate several
    /// with `:`. Default: NVABI_HEADERS, else the cache of `nvabi headers fetch`.
    #[arg(long, value_name = "PATH")]
    headers: Option<PathBuf>,
}

impl HeadersPath {
    fn with<'a>(&'a self, sources: Sources<'a>) -> Sources<'a> {
        Sources { headers: self.headers.as_deref(), ..sources }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch driver headers.
    #[cfg_attr(not(feature = "headers"), doc = "(needs the feature `headers`)")]
    #[command(subcommand)]
    Headers(Headers),
    /// Read one tag's headers with libclang and print its facts.
    #[cfg_attr(not(feature = "headers"), doc = "(needs the feature `headers`)")]
    Extract(Extract),
    /// Read the headers of tags and write their facts into the lock.
    #[cfg_attr(not(feature = "headers"), doc = "(needs the feature `headers`)")]
    Lock(Lock),
    /// Add a new tag: lock it, write the spec of a new branch, list what changed.
    #[cfg_attr(not(feature = "headers"), doc = "(needs the feature `headers`)")]
    Add(Add),
    /// Read the headers of locked tags again and compare the facts with the lock.
    #[cfg_attr(not(feature = "headers"), doc = "(needs the feature `headers`)")]
    Verify(Verify),
    /// Check the specs against the driver.
    Lint(Lint),
    /// Print the layout of a type, or the value of a constant, from the lock.
    Show(Show),
    /// Print every type, constant and call of one tag as JSON, from the lock.
    Facts(Facts),
    /// Write the types, constants and calls of tags in another language, or as data.
    Emit(Emit),
    /// Print what changed between two locked tags: layouts, numbers, meanings.
    Diff(Diff),
    /// List every ioctl, control command or allocation class of one tag.
    List(List),
    /// List the tags that share one layout of a type, or one ABI of many calls.
    Ranges(Ranges),
    /// Check that specs and lock cover every call that another project supports.
    Coverage(Coverage),
    /// Decode an strace log, a recording of sniff, or the bytes of one struct.
    #[command(subcommand)]
    Decode(Decode),
    /// Run a program and print its driver calls, decoded field by field.
    #[command(after_help = SNIFF_HELP)]
    Sniff(Sniff),
    /// Write a static site: one page per struct and call, with its layout in every version.
    Atlas(Atlas),
    /// Jetson: query the GPU, or simulate the driver.
    #[command(subcommand)]
    Tegra(Tegra),
    /// The x86 driver's resource manager (RM): simulate it.
    #[command(subcommand)]
    Rm(Rm),
    /// Run a CUDA program without a GPU, and find races and wrong accesses of its kernels.
    #[command(after_help = "Examples:\n  nvabi emu -- ./reduce\n  \
        nvabi emu --schedules 8 --junit report.xml -- ./reduce\n  \
        nvabi emu --write-suppressions known.txt -- ./reduce\n  \
        nvabi emu --suppressions known.txt -- ./reduce\n\n\
        Exit status: 1 findings of --fail-on or worse, else the program's; 2 it could not be run.")]
    Emu(crate::emu::EmuArgs),
    /// Print the machine code of GPUs as text.
    #[cfg(feature = "sass")]
    #[command(after_help = "Examples:\n  nvabi sass kernel.cubin\n  \
        nvabi sass --arch sm_80 --function softmax libkernels.so\n  \
        nvabi sass --check kernel.cubin\n\n\
        Exit status: 1 --check has findings; 2 the file could not be read.")]
    Sass(crate::sass::SassArgs),
    /// Print the machine code of GPUs as text (needs the feature `sass`).
    #[cfg(not(feature = "sass"))]
    Sass(Missing),
    /// Record GPU kernels, and find where two runs diverge.
    #[cfg(feature = "trace")]
    #[command(subcommand)]
    Trace(crate::trace::args::Trace),
    /// Record GPU kernels, and find where two runs diverge (needs the feature `trace`).
    #[cfg(not(feature = "trace"))]
    Trace(Missing),
    /// Device memory: allocators, importers, and one buffer for several devices.
    #[cfg(feature = "devmem")]
    #[command(subcommand)]
    Alloc(crate::alloc::args::Alloc),
    /// Device memory: allocators, importers, and one buffer for several devices (needs the feature
    /// `devmem`).
    #[cfg(not(feature = "devmem"))]
    Alloc(Missing),
    /// Print a shell completion script.
    #[command(
        after_help = "Example:\n  nvabi completions bash > ~/.local/share/bash-completion/completions/nvabi"
    )]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

impl Command {
    /// Where the command's facts come from.
    pub(crate) fn sources(&self) -> Sources<'_> {
        match self {
            Self::Headers(Headers::Fetch(args)) => args.specs.sources(),
            Self::Extract(args) => args.headers.with(args.specs.sources()),
            Self::Lock(args) => args.headers.with(args.families.sources()),
            Self::Add(args) => args.headers.with(args.specs.sources()),
            Self::Verify(args) => args.headers.with(args.families.sources()),
            Self::Lint(args) => args.families.sources(),
            Self::Show(args) => args.families.sources(),
            Self::Facts(args) => args.specs.sources(),
            Self::Emit(args) => args.specs.sources(),
            Self::Diff(args) => args.specs.sources(),
            Self::List(args) => args.families.sources(),
            Self::Ranges(args) => args.families.sources(),
            Self::Coverage(args) => args.families.sources(),
            Self::Decode(Decode::Strace(args)) => args.families.sources(),
            Self::Decode(Decode::Struct(args)) => args.families.sources(),
            Self::Decode(Decode::Sniff(args)) => args.families.sources(),
            Self::Sniff(args) => args.families.sources(),
            Self::Atlas(args) => args.families.sources(),
            Self::Rm(Rm::Sim(args)) => args.machine.specs.sources(),
            Self::Rm(Rm::Up(args)) => args.machine.specs.sources(),
            Self::Rm(Rm::Check(args)) => args.specs.sources(),
            Self::Rm(Rm::Profile(args)) => args.specs.sources(),
            Self::Rm(Rm::Run(_) | Rm::Status(_) | Rm::Inject(_) | Rm::Down(_))
            | Self::Tegra(_)
            | Self::Emu(_)
            | Self::Sass(_)
            | Self::Trace(_)
            | Self::Alloc(_)
            | Self::Completions { .. } => Sources::default(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tegra {
    /// Print the GPU's characteristics and the L4T release.
    #[command(after_help = "Example:\n  nvabi tegra probe")]
    Probe,
    /// Run a program on a simulated Jetson AGX Orin.
    #[command(after_help = "Examples:\n  nvabi tegra sim -- python3 client.py\n  \
        nvabi tegra sim --fault OPEN_CHANNEL:3:ENOMEM --report run.json -- ./client\n  \
        nvabi tegra sim --fault GET_FD:*:delay=10ms -- ./client\n\n\
        Exit status: the program's.")]
    Sim(TegraSim),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TegraSim {
    /// L4T release to simulate: r32.7.1 to r36.4.3, or a prefix such as r35.
    #[arg(long, default_value = "r36.4")]
    pub(crate) release: nvabi_sim::tegra::Release,
    #[command(flatten)]
    pub(crate) faults: Faults,
    #[command(flatten)]
    pub(crate) program: SimulatedProgram,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rm {
    /// Run a program on a simulated machine with NVIDIA's x86 driver of any locked tag.
    #[command(after_help = "Examples:\n  nvabi rm sim -- ./client\n  \
        nvabi rm sim --tag 535.183.01 --gpus 2 -- ./client\n  \
        nvabi rm sim --tag 580.142 --version 580.159.03 -- ./client\n  \
        nvabi rm sim --fault GPU_GET_ID_INFO:1:NV_ERR_NO_MEMORY --report run.json -- ./client\n\n\
        Exit status: the program's.")]
    Sim(RmSim),
    /// Start a simulated machine that many programs share, until `nvabi rm down`.
    #[command(after_help = "Examples:\n  nvabi rm up lab --gpu a100 --gpus 8\n  \
        nvabi rm run lab -- nvidia-smi\n  nvabi rm down lab\n  \
        nvabi rm up lab --foreground     # as a container's entry point or a service\n\n\
        Exit status: 0 when it is up, with --foreground when it went down; 2 when it could not be started.")]
    Up(RmUp),
    /// Run a program on a machine that is up.
    #[command(after_help = "Examples:\n  nvabi rm run lab -- nvidia-smi\n  \
        nvabi rm run lab --report run.json -- ./client\n\n\
        Exit status: the program's; 2 when it could not be run.")]
    Run(RmRun),
    /// List the machines that are up, and the programs on them.
    #[command(after_help = "Examples:\n  nvabi rm status\n  nvabi rm status lab --json\n\n\
        Exit status: 0; 1 when a machine was found dead; 2 when the one that is named is not there.")]
    Status(RmStatus),
    /// Let something happen to a GPU of a machine that is up: an error, heat, or its loss.
    #[command(after_help = "Examples:\n  nvabi rm inject lab xid 31\n  \
        nvabi rm inject lab --gpu 1 ecc --uncorrected --count 3\n  \
        nvabi rm inject lab temperature 95\n  nvabi rm inject lab --gpu 7 lost\n\n\
        Exit status: 0 when it has happened; 2 when there is no such machine or GPU, or it cannot happen to it.")]
    Inject(RmInject),
    /// End a machine and all programs on it.
    #[command(after_help = "Example:\n  nvabi rm down lab\n\n\
        Exit status: 0 when it is down; 2 when there is no such machine.")]
    Down(RmDown),
    /// Compare profiles of simulated GPUs with the lock: names, widths, lengths.
    #[command(after_help = "Examples:\n  nvabi rm check rtx3090\n  \
        nvabi rm check ./mygpu.toml --tag 550.163.01\n\n\
        Exit status: 0 when they fit, 1 when they do not, 2 when something could not be read.")]
    Check(RmCheck),
    /// Make a profile of a GPU from a recording of `nvabi sniff --record`.
    #[command(after_help = "Examples:\n  nvabi sniff --record gpu.rec -- nvidia-smi -q\n  \
        nvabi rm profile gpu.rec > mygpu.toml\n  nvabi rm sim --gpu ./mygpu.toml -- nvidia-smi\n\n\
        Exit status: 0; 2 when the recording does not have what a profile needs.")]
    Profile(RmProfile),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmProfile {
    /// The recording.
    #[arg(value_name = "RECORD")]
    pub(crate) file: PathBuf,
    /// Which GPU, where the recording has several: its number, or where it is on the bus.
    #[arg(long, value_name = "N|PCI")]
    pub(crate) gpu: Option<String>,
    /// Driver version that was recorded; default: as the recording says.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<Tag>,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmCheck {
    /// Profiles: names of those that the command has, or paths; default: all that it has.
    #[arg(value_name = "NAME|FILE")]
    pub(crate) profiles: Vec<String>,
    /// Driver versions to compare with; default: the newest of each branch.
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Vec<Tag>,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmSim {
    #[command(flatten)]
    pub(crate) machine: RmMachine,
    #[command(flatten)]
    pub(crate) program: SimulatedProgram,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmUp {
    /// What the machine is to be called: letters, digits, `-`, `_` and `.`.
    #[arg(value_parser = machine_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) machine: RmMachine,
    /// Stay until the machine goes down, by `nvabi rm down`, SIGTERM, SIGINT or SIGHUP.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// What the command starts itself as, to leave the terminal.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub(crate) detached: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmRun {
    /// The machine.
    #[arg(value_parser = machine_name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) program: SimulatedProgram,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmStatus {
    /// The machine; default: all of this user's.
    #[arg(value_parser = machine_name)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmInject {
    /// The machine.
    #[arg(value_parser = machine_name)]
    pub(crate) name: String,
    /// The GPU, by its number on the machine.
    #[arg(long, value_name = "N", default_value_t = 0, global = true)]
    pub(crate) gpu: usize,
    #[command(subcommand)]
    pub(crate) what: RmInjection,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RmInjection {
    /// An error that the driver reports by a number, such as 31: programs that wait for it are told.
    Xid {
        /// The number.
        #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
        number: u32,
    },
    /// Errors of memory with ECC: they are counted, and programs that wait for it are told.
    Ecc {
        /// Errors that could not be corrected.
        #[arg(long)]
        uncorrected: bool,
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 1,
            value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
        /// Errors of the memory in the chip, its SMs', instead of the DRAM's.
        #[arg(long)]
        sram: bool,
        /// The GPU instance whose SMs had them, on a divided GPU.
        #[arg(long, value_name = "ID", requires = "sram")]
        instance: Option<u32>,
    },
    /// A temperature, which stays; from the limit on clocks are slowed down.
    Temperature {
        /// Degrees Celsius.
        #[arg(value_name = "DEGREES", value_parser = clap::value_parser!(u32).range(0..=200))]
        degrees: u32,
    },
    /// The GPU falls off the bus: Xid 79, then calls fail with NV_ERR_GPU_IS_LOST, until `nvabi rm down`.
    Lost,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmDown {
    /// The machine.
    #[arg(value_parser = machine_name)]
    pub(crate) name: String,
}

/// A simulated machine with the x86 driver.
#[derive(Debug, clap::Args)]
pub(crate) struct RmMachine {
    /// Driver version whose requests, layouts and rules are simulated, such as 550.163.01.
    #[arg(long, default_value = "550.163.01")]
    pub(crate) tag: Tag,
    /// Version that the simulated driver reports, such as one between two locked tags; default: --tag.
    #[arg(long, requires = "tag", value_parser = driver_version)]
    pub(crate) version: Option<String>,
    /// GPU to simulate: the name of a profile, or the path of one; several make a mixed machine.
    #[arg(long = "gpu", value_name = "NAME|FILE", default_value = nvabi_sim::profile::DEFAULT)]
    pub(crate) gpu: Vec<String>,
    /// Number of simulated GPUs of each --gpu.
    #[arg(long, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(nvabi_sim::rm::MAX_GPUS)))]
    pub(crate) gpus: u32,
    /// Where the GPUs are (NUMA nodes, host bridges and switches of PCIe), and which NVLinks are between them: the name of
    /// a topology, or the path of one; default: each is at a root port of its own.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) topology: Option<String>,
    /// Let what is not simulated succeed and change nothing, instead of fail; the report names it.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Let the program of a launch be PTX text, as tinygrad's own mock does, instead of machine code.
    #[arg(long)]
    pub(crate) ptx: bool,
    #[command(flatten)]
    pub(crate) faults: Faults,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

/// A name that is a file's name as well, short enough for the path of a socket.
fn machine_name(text: &str) -> Result<String, &'static str> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && text.len() <= 40 && text.bytes().all(is_inner) {
        Ok(text.to_owned())
    } else {
        Err("expected at most 40 letters, digits, `-`, `_` and `.`, a letter or digit first")
    }
}

/// A version string that fits into the driver's field.
fn driver_version(text: &str) -> Result<String, &'static str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = text.len() < 64 && text.contains('.') && text.split('.').all(is_number);
    if is_version {
        Ok(text.to_owned())
    } else {
        Err("expected numbers separated by points, such as 580.159.03")
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Faults {
    /// Make a call fail or take longer: CALL:N:ERRNO or CALL:N:delay=TIME. N counts from 1; `*` is every
    /// call.
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) list: Vec<nvabi_sim::Fault>,
}

/// A program on a simulated machine, and what is written of it.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulatedProgram {
    /// Write the report to this file, as JSON; default: print it on stderr.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Headers {
    /// Clone the header folders of one tag into the cache (shallow and sparse).
    #[command(after_help = "Examples:\n  nvabi headers fetch 550.163.01\n  \
        nvabi headers fetch 550.163.01 --remote ../open-gpu-kernel-modules")]
    Fetch(Fetch),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fetch {
    /// Driver version, such as 550.163.01.
    pub(crate) tag: Tag,
    /// Repository to fetch from; default: the one that the tag's spec names.
    #[arg(long, value_name = "URL")]
    pub(crate) remote: Option<String>,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi extract 550.163.01\n  \
    nvabi extract 550.163.01 --json > facts.json\n  \
    nvabi extract 550.163.01 --surface uvm --no-constants")]
pub(crate) struct Extract {
    /// Driver version, such as 550.163.01.
    pub(crate) tag: Tag,
    /// Print this surface only: rm, uvm, modeset or drm.
    #[arg(long, value_name = "NAME")]
    pub(crate) surface: Option<String>,
    /// Target triple to parse for; default: the first one in the spec.
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// Leave out macros; print records, enums and typedefs only.
    #[arg(long)]
    pub(crate) no_constants: bool,
    #[command(flatten)]
    pub(crate) specs: Specs,
    #[command(flatten)]
    pub(crate) headers: HeadersPath,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi lock 550.163.01\n  nvabi lock            (lock every locked tag again)\n  nvabi lock --driver 550"
)]
pub(crate) struct Lock {
    /// Driver versions; default: every locked tag, read again.
    pub(crate) tags: Vec<Tag>,
    /// Lock every tag of this driver that the headers have.
    #[arg(long, value_name = "DRIVER", conflicts_with = "tags")]
    pub(crate) driver: Option<String>,
    #[command(flatten)]
    pub(crate) families: Families,
    #[command(flatten)]
    pub(crate) headers: HeadersPath,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi add 595.45.04\n  nvabi add 595.45.04 --out pull-request.md --no-snapshots"
)]
pub(crate) struct Add {
    /// Driver version, such as 595.45.04.
    pub(crate) tag: Tag,
    /// Write the text of the pull request to this file; default: print it.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Do not renew the snapshots, which takes a build.
    #[arg(long)]
    pub(crate) no_snapshots: bool,
    #[command(flatten)]
    pub(crate) specs: Specs,
    #[command(flatten)]
    pub(crate) headers: HeadersPath,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi verify\n  nvabi verify 550.163.01 --headers open-gpu-kernel-modules"
)]
pub(crate) struct Verify {
    /// Driver versions; default: every locked tag.
    pub(crate) tags: Vec<Tag>,
    #[command(flatten)]
    pub(crate) families: Families,
    #[command(flatten)]
    pub(crate) headers: HeadersPath,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi lint\n  nvabi lint 550")]
pub(crate) struct Lint {
    /// Drivers, such as 550; default: every spec.
    pub(crate) drivers: Vec<String>,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi show NVOS54_PARAMETERS\n  nvabi show NV_ESC_RM_CONTROL --tag 550.90.07\n  nvabi show NVOS21_PARAMETERS --json"
)]
pub(crate) struct Show {
    /// Name of a struct, union, enum, enumerator, typedef, constant or bit range, or a call's number.
    pub(crate) name: String,
    /// Driver version; default: the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nvabi facts 550.163.01 | jq '.surfaces.rm.records | length'")]
pub(crate) struct Facts {
    /// Driver version.
    pub(crate) tag: Tag,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

/// The name of a module that nobody names.
pub(crate) const PACKAGE: &str = "nvabi";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi emit --lang c --tag 550.163.01 > nvabi.h\n  \
    nvabi emit --lang go --tag 550.163.01 --tag 580.95.05 --package nvgpu --out nvgpu\n  \
    nvabi emit --lang python --tag 570.144 --all --package nv_570 > nv_570.py\n  \
    nvabi emit --lang rust --tag 550.163.01 --items items.txt")]
pub(crate) struct Emit {
    /// The language.
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Language,
    /// Driver version; may be repeated: then each distinct layout is one type, with a table by version.
    #[arg(long = "tag", value_name = "TAG", required = true)]
    pub(crate) tags: Vec<Tag>,
    /// Write the calls, types and constants that a file names, one on each line, and what they need.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["spec", "all"])]
    pub(crate) items: Option<PathBuf>,
    /// Write what the specs name, and what that needs (default).
    #[arg(long, conflicts_with = "all")]
    pub(crate) spec: bool,
    /// Write everything.
    #[arg(long)]
    pub(crate) all: bool,
    /// Name of the module or package.
    #[arg(long, value_name = "NAME", default_value = PACKAGE, value_parser = identifier)]
    pub(crate) package: String,
    /// Write the files into this folder; default: print the file, if there is one.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

/// Languages of `nvabi emit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Language {
    /// One header for C11 and C++17
    C,
    /// A package and its test
    Go,
    /// One module on ctypes
    Python,
    /// One no_std file that needs no crate
    Rust,
    /// One document
    Json,
    /// A Kaitai Struct description, for hex viewers
    Kaitai,
    /// Descriptions for the fuzzer syzkaller
    Syzkaller,
}

impl Language {
    pub(crate) fn language(self) -> nvabi_reports::emit::Language {
        use nvabi_reports::emit::Language as Emitted;
        match self {
            Self::C => Emitted::C,
            Self::Go => Emitted::Go,
            Self::Python => Emitted::Python,
            Self::Rust => Emitted::Rust,
            Self::Json => Emitted::Json,
            Self::Kaitai => Emitted::Kaitai,
            Self::Syzkaller => Emitted::Syzkaller,
        }
    }

    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Go => "go",
            Self::Python => "python",
            Self::Rust => "rust",
            Self::Json => "json",
            Self::Kaitai => "kaitai",
            Self::Syzkaller => "syzkaller",
        }
    }
}

fn identifier(text: &str) -> Result<String, &'static str> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_identifier = starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match is_identifier {
        true => Ok(text.to_owned()),
        false => Err("expected letters, digits and underscores, such as nvgpu"),
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi diff 550.40.07 550.163.01\n  nvabi diff 530.41.03 535.43.02 --only NVOS21_PARAMETERS\n  \
        nvabi diff 550.163.01 580.95.05 --crate ../my-shim\n  nvabi diff 570.86.15 575.51.02 --go ../gvisor --html diff.html\n  \
        nvabi diff 570.86.15 575.51.02 --all --markdown"
)]
pub(crate) struct Diff {
    /// Driver version to start from.
    #[arg(value_name = "A")]
    pub(crate) from: Tag,
    /// Driver version to go to.
    #[arg(value_name = "B")]
    pub(crate) to: Tag,
    /// Compare everything in the lock, not only the calls in the specs and the types they use.
    #[arg(long)]
    pub(crate) all: bool,
    /// Compare only this struct, call, enum or constant of the lock, by name or by a call's number
    /// (0x20801358).
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub(crate) only: Option<String>,
    /// Compare only what concerns the structs for which the crate in this folder derives NvProxy.
    #[arg(long = "crate", value_name = "PATH", conflicts_with_all = ["all", "only", "items", "go"])]
    pub(crate) krate: Option<PathBuf>,
    /// Compare only what concerns the names that the Go package in this folder declares, or that the proxy in a
    /// checkout of gVisor supports.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["all", "only", "items"])]
    pub(crate) go: Option<PathBuf>,
    /// Compare only what concerns the names in this file, as `nvabi emit` takes them: `*` stands for any
    /// characters, `#` starts a comment.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "only"])]
    pub(crate) items: Option<PathBuf>,
    /// Print Markdown, for a pull request.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// Write one HTML page to this file, instead of printing.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "markdown"])]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) specs: Specs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Compares the numbers of calls and the layouts of their parameters, with every nested type.\n\
    The values of constants are not compared unless NAME is a constant; `nvabi diff` shows them.\n\n\
    Examples:\n  nvabi ranges NVOS21_PARAMETERS\n  nvabi ranges\n  nvabi ranges --crate ../my-shim\n  nvabi ranges --nearest 580.159.03"
)]
pub(crate) struct Ranges {
    /// A call, struct, union, enum, enumerator, typedef, constant or bit range, or a call's number.
    pub(crate) name: Option<String>,
    /// Compare every call in the specs (the default without a name).
    #[arg(long, conflicts_with_all = ["name", "items", "krate"])]
    pub(crate) spec: bool,
    /// Compare the names in this file, one per line; `#` starts a comment.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "krate"])]
    pub(crate) items: Option<PathBuf>,
    /// Compare the structs for which the crate in this folder derives NvProxy, except those that macros
    /// generate.
    #[arg(long = "crate", value_name = "PATH", conflicts_with = "name")]
    pub(crate) krate: Option<PathBuf>,
    /// Find the nearest locked tag with the same ABI as this version, which need not be locked and may be a
    /// package's (1:550.90.07-0ubuntu1).
    #[arg(long, value_name = "VERSION", value_parser = Tag::of_package)]
    pub(crate) nearest: Option<Tag>,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi coverage nvproxy-coverage.json\n  nvabi coverage ../gvisor"
)]
pub(crate) struct Coverage {
    /// A JSON table of versions and calls, or a checkout of gVisor, whose own source is read.
    #[arg(value_name = "TABLE")]
    pub(crate) table: PathBuf,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Decode {
    /// Name the ioctls in logs of `strace -f` by the device that received them.
    #[command(
        after_help = "Make the log with: strace -f -y -o cuda.strace PROGRAM. Without -y, file descriptors are\n\
            followed through open, dup, fork, close and the ioctls that return them.\n\n\
            Examples:\n  nvabi decode strace cuda.strace\n  nvabi decode strace cuda.strace --calls --tag tegra-r35.4.1\n  \
            strace -f -o /dev/stdout PROGRAM | nvabi decode strace - --json"
    )]
    Strace(DecodeStrace),
    /// Print the fields of a struct with the values in its bytes.
    #[command(
        after_help = "Examples:\n  nvabi decode struct nvmap_create_handle 0010000000000000\n  \
            nvabi decode struct NVOS54_PARAMETERS params.bin --tag 550.90.07\n  \
            xxd -p params.bin | nvabi decode struct NVOS54_PARAMETERS -"
    )]
    Struct(DecodeStruct),
    /// Print a recording of `nvabi sniff --record` as sniff printed it.
    #[command(
        after_help = "Examples:\n  nvabi decode sniff cuda.sniff\n  nvabi decode sniff cuda.sniff --tag 570.86.15 --summary\n  \
            nvabi decode sniff cuda.sniff --check gvisor:550.90.07"
    )]
    Sniff(DecodeSniff),
}

const SNIFF_HELP: &str = "\
Calls are printed on stderr, or to --out; stdin and stdout belong to the program. The program's own exit
status is printed last, on stderr and with --json.

Exit status: 0 done, 1 --check found calls that its list lacks or --audit found disagreements, 2 error.

Examples:
  nvabi sniff -- ./client
  nvabi sniff --summary -- python3 train.py
  nvabi sniff --record cuda.sniff --check gvisor -- ./client
  nvabi sniff --audit -- nvidia-smi
  nvabi sniff --json --out calls.jsonl --tag 550.90.07 -- ./client";

#[derive(Debug, clap::Args)]
pub(crate) struct Sniff {
    /// Driver version, once for the x86 driver and once for Jetson's. Default: the installed version,
    /// else the one that the driver reports to the program, else the newest locked tag.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<Tag>,
    /// How to intercept calls. Default: ptrace; where that is not allowed notify, which sees no results.
    #[arg(long)]
    pub(crate) method: Option<Method>,
    /// Print calls to this file instead of stderr.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Record calls and the memory they point to, for `nvabi decode sniff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Trace these files besides NVIDIA's devices, such as /dev/kfd or /dev/pts/*.
    #[arg(long = "path", value_name = "GLOB")]
    pub(crate) paths: Vec<String>,
    /// Maximum number of bytes to read at each pointer.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 16)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) view: SniffView,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<std::ffi::OsString>,
    #[command(flatten)]
    pub(crate) families: Families,
}

/// What to print about calls.
#[derive(Debug, clap::Args)]
pub(crate) struct SniffView {
    /// Print counts, failures, unknown numbers and times instead of single calls.
    #[arg(long)]
    pub(crate) summary: bool,
    /// Print the calls that a list of allowed calls lacks: `gvisor` or a file, with a version of the
    /// list after a colon.
    #[arg(long, value_name = "LIST[:VERSION]")]
    pub(crate) check: Option<String>,
    /// Compare each call with the lock: number, sizes, direction, handles, file descriptors; and print what no header
    /// names, and what looks like a pointer without a role.
    #[arg(long)]
    pub(crate) audit: bool,
    /// Print each call in addition to --summary, --record, --check or --audit.
    #[arg(long)]
    pub(crate) lines: bool,
    /// Print every field, including those that are zero.
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeSniff {
    /// A recording of `nvabi sniff --record`.
    pub(crate) file: PathBuf,
    /// Driver version; default: the one in the recording.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<Tag>,
    #[command(flatten)]
    pub(crate) view: SniffView,
    #[command(flatten)]
    pub(crate) families: Families,
}

/// How to intercept calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Method {
    /// Stop at each call and at its return: arguments, results, times.
    Ptrace,
    /// Seccomp user notification: arguments only.
    Notify,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeStrace {
    /// Logs; `-` for stdin.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Driver version, once for the x86 driver (default: the newest locked tag) and once for Jetson's
    /// (default: all of them; the output names those that fit).
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<Tag>,
    /// Print every call too: line, pid, fd, node, name, argument, result.
    #[arg(long)]
    pub(crate) calls: bool,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeStruct {
    /// Name of a struct, a union, or a typedef of one.
    pub(crate) name: String,
    /// A file, `-` for stdin, or the bytes in hexadecimal.
    pub(crate) bytes: PathBuf,
    /// Driver version; default: the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi atlas --out atlas && xdg-open atlas/index.html")]
pub(crate) struct Atlas {
    /// Output folder: new, empty, or an earlier atlas, which is replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) families: Families,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The last column is the evidence for the parameters of a command or class:\n  \
                  finn         the header makes the command's number from this struct's message id\n  \
                  table        the driver's table of exported methods has the struct's size\n  \
                  list         the driver's resource list names the struct\n  \
                  name         a struct has the command's name\n  \
                  null         the command does nothing\n\
                  or the reason why they are unknown:\n  \
                  no-evidence  no header and no table describes the command's parameters\n  \
                  no-resource  the class is not in the resource list: it cannot be allocated\n\n\
                  Examples:\n  nvabi list commands --tag 550.163.01\n  nvabi list classes\n  nvabi list ioctls --json"
)]
pub(crate) struct List {
    /// The kind of call.
    pub(crate) what: Listing,
    /// Driver version; default: the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
    #[command(flatten)]
    pub(crate) families: Families,
}

/// Kinds of calls.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Listing {
    /// Requests of the device nodes.
    Ioctls,
    /// Control commands (`NV_ESC_RM_CONTROL`).
    Commands,
    /// Allocation classes (`NV_ESC_RM_ALLOC`).
    Classes,
}
