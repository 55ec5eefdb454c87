//! What the command understands.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{ColorChoice, Parser, Subcommand};
use clap_complete::Shell;
use nvabi_pipeline::tag::Tag;

/// NVIDIA's driver ioctl interface: facts from headers, locked, verified and shown.
#[derive(Debug, Parser)]
#[command(name = "nvabi", version, max_term_width = 100)]
#[command(after_help = "Exit status: 0 same or ok, 1 different or found, 2 error.\n\n\
Examples:\n  nvabi show NVOS54_PARAMETERS\n  nvabi headers fetch 550.163.01\n  nvabi verify 550.163.01")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the specs; the lock is the folder `lock` in it.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) specs: Option<PathBuf>,
    /// Drivers of another family than the desktop's where no tag tells, such as tegra.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) family: Option<String>,
    /// Driver headers: a git repository (bare or not), or a folder of extracted trees; several are
    /// written one behind the other, as in PATH.
    /// Without this, NVABI_HEADERS; without that, what `nvabi headers fetch` fetched.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) headers: Option<PathBuf>,
    /// Threads to work with; without this, as many as the machine has. Nothing else depends on it.
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<NonZero<u8>>,
    /// Print the model as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Get driver headers.
    #[command(subcommand)]
    Headers(Headers),
    /// Print the facts of one tag, read from headers by libclang.
    Extract(Extract),
    /// Write the facts of tags into the lock.
    Lock(Lock),
    /// Take in a new tag: lock it, write what a new branch needs, say what changed.
    Add(Add),
    /// Recompute the facts of locked tags from headers and compare.
    Verify(Verify),
    /// Check that the specs fit the driver.
    Lint(Lint),
    /// Print the layout of a type, or the value of a constant, from the lock.
    Show(Show),
    /// Print what changed between two locked tags: layouts, numbers, meanings.
    Diff(Diff),
    /// Print every ioctl, control command or class of one tag.
    List(List),
    /// Print which tags have the same layout of a name, or the same ABI of many.
    Ranges(Ranges),
    /// Check that specs and lock have everything that another project supports.
    Coverage(Coverage),
    /// Decode what was recorded: a log of strace, a record of sniff, or the bytes of one struct.
    #[command(subcommand)]
    Decode(Decode),
    /// Run a program and print what it asks of the driver, call by call.
    #[command(after_help = SNIFF_HELP)]
    Sniff(Sniff),
    /// Write a static site: a page for every struct and call with its layout at every version.
    Atlas(Atlas),
    /// Jetson: ask its GPU, or simulate it.
    #[command(subcommand)]
    Tegra(Tegra),
    /// The desktop's resource manager: a driver to try programs on.
    #[command(subcommand)]
    Rm(Rm),
    /// Traces of GPU kernels: what is in them, and where two of them part.
    #[command(subcommand)]
    Trace(Trace),
    /// Device memory: who makes it, who takes it, and which serves several devices.
    #[command(subcommand)]
    Alloc(Alloc),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  nvabi completions bash > ~/.local/share/bash-completion/completions/nvabi"
    )]
    Completions {
        /// Which shell.
        shell: Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Alloc {
    /// Print the devices of this machine: what memory each makes, and what it does with it.
    #[command(after_help = "Examples:\n  nvabi alloc devices\n  nvabi alloc devices --json")]
    Devices,
    /// Print which memory serves what devices are to do, and its layout; or why none does.
    #[command(
        after_help = "A device is one of `nvabi alloc devices`, or what it is for: cpu, gpu, display, camera,\n\
        encoder or decoder. Operations: cpu-read, cpu-write, texture, render, scanout, capture, encode,\n\
        decode, copy.\n\n\
        Examples:\n  nvabi alloc plan --use gpu:texture --use display:scanout 1920x1080 NV12\n  \
        nvabi alloc plan --use cpu:cpu-write --use isp:capture --offers isp.json 640x480 YUYV --json"
    )]
    Plan(AllocPlan),
    /// Print why offers of devices do not go together, and what would help.
    #[command(after_help = "Example:\n  nvabi alloc explain gpu.json display.json")]
    Explain(AllocExplain),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllocPlan {
    /// What a device does with the memory.
    #[arg(long = "use", value_name = "DEVICE:OPERATION", required = true)]
    pub(crate) uses: Vec<nvabi_devmem::Use>,
    /// What devices can do that are not of this machine: a file of JSON with an offer, or a list.
    #[arg(long, value_name = "FILE")]
    pub(crate) offers: Vec<PathBuf>,
    /// Width and height in pixels.
    #[arg(value_name = "WIDTHxHEIGHT", value_parser = size)]
    pub(crate) size: (u32, u32),
    /// Format, as DRM names it: NV12, XR24.
    #[arg(value_name = "FOURCC")]
    pub(crate) format: nvabi_devmem::Fourcc,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let size = text
        .split_once('x')
        .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    size.ok_or_else(|| "no WIDTHxHEIGHT, such as 1920x1080".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct AllocExplain {
    /// Offers of devices: files of JSON with an offer each, or a list.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// Print what a trace holds, and whether all of it can be read.
    #[command(after_help = "Example:\n  nvabi trace info run.nvtrace\n\n\
        Exit status: 0 all of it can be read, 1 something is lost, 2 error.")]
    Info(TraceInfo),
    /// Print the events of a trace.
    #[command(
        after_help = "Examples:\n  nvabi trace dump run.nvtrace --warp 3 --from 100 --count 20\n  \
        nvabi trace dump run.gddbg --json | jq -c 'select(.kind == \"atomic\")'\n\n\
        Exit status: 0 all of it can be read, 1 something is lost, 2 error."
    )]
    Dump(TraceDump),
    /// Find where two runs part.
    #[command(
        after_help = "Examples:\n  nvabi trace diff good.nvtrace bad.nvtrace --values --history 5\n  \
        nvabi trace diff a.gddbg b.gddbg --json | jq .total_findings\n  \
        nvabi trace diff a.nvtrace b.nvtrace --html report.html --sarif report.sarif\n\n\
        Exit status: 0 same, 1 different, 2 error, or events were lost and what is left is the same."
    )]
    Diff(TraceDiff),
    /// Write a trace in the other format: gddbg v1 as nvtrace v2, and back.
    #[command(after_help = "Examples:\n  nvabi trace convert run.gddbg run.nvtrace\n  \
        nvabi trace convert run.nvtrace run.gddbg --to v1 --launch 2\n\n\
        Exit status: 0 all of it was written, 1 something is lost, 2 error.")]
    Convert(TraceConvert),
    /// Put the traces of several processes into one; each becomes a session of its own.
    #[command(
        after_help = "Example:\n  nvabi trace merge rank0.nvtrace rank1.nvtrace -o all.nvtrace\n\n\
        Exit status: 0 all of it was written, 1 something is lost, 2 error."
    )]
    Merge(TraceMerge),
    /// Write the events as a table: Parquet, a row for each event.
    #[command(after_help = "Example:\n  nvabi trace export run.nvtrace run.parquet && \\\n  \
        duckdb -c \"select line, count(*) from 'run.parquet' group by line\"\n\n\
        Exit status: 0 all of it was written, 1 something is lost, 2 error.")]
    Export(TraceExport),
    /// Look at two traces side by side, on a terminal.
    #[command(after_help = "Example:\n  nvabi trace tui good.trace bad.trace --source src\n\n\
        Keys: n next difference, ] next warp that differs, w warps, / search, ? help, q quit.")]
    Tui(TraceTui),
    /// Compile CUDA code with clang so that its kernels record what they do.
    #[command(after_help = "Examples:\n  nvabi trace cc -- -O2 reduce.cu -o reduce\n  \
        nvabi trace cc --kinds branch,atomic --functions 'reduce*' -- -O2 -c reduce.cu\n\n\
        Exit status: clang's.")]
    Cc(crate::trace::cc::CcArgs),
    /// The linker of `nvabi trace cc -fgpu-rdc`.
    #[command(hide = true)]
    Link(crate::trace::link::LinkArgs),
    /// Run a program and record what its kernels do, on a GPU or in the emulator.
    #[command(
        after_help = "Examples:\n  nvabi trace record -o good.nvtrace -- ./reduce good.txt\n  \
        nvabi trace record --emulate --schedule random:7 -- ./reduce good.txt\n  \
        nvabi trace record --launches 10..20 --sample 8 -- ./train\n\n\
        Exit status: the program's."
    )]
    Record(crate::trace::record::RecordArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceInfo {
    /// The trace.
    pub(crate) file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceDump {
    /// The trace.
    pub(crate) file: PathBuf,
    /// One launch only, by its number in `nvabi trace info`.
    #[arg(long, value_name = "N")]
    pub(crate) launch: Option<usize>,
    /// One warp only.
    #[arg(long, value_name = "N")]
    pub(crate) warp: Option<u32>,
    /// The first event of each warp that is printed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) from: u64,
    /// How many events of each warp are printed.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceDiff {
    /// The first trace.
    pub(crate) a: PathBuf,
    /// The second.
    pub(crate) b: PathBuf,
    /// Compare values too, not only the ways that warps went.
    #[arg(long)]
    pub(crate) values: bool,
    /// Show this many steps before each finding.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) history: usize,
    /// Keep this many findings; all are counted.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: usize,
    /// Compare launches of other grids or blocks, by the warps that both have.
    #[arg(long)]
    pub(crate) allow_different_grids: bool,
    /// Sites that have another key in B than in A: a line for each with the two keys, `#` begins a
    /// comment.
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: crate::trace::outputs::Outputs,
}

#[derive(Debug, clap::Args)]
#[cfg_attr(not(feature = "tui"), expect(dead_code))]
pub(crate) struct TraceTui {
    /// The first trace.
    pub(crate) a: PathBuf,
    /// The second.
    pub(crate) b: PathBuf,
    /// Compare values too, not only the ways that warps went.
    #[arg(long)]
    pub(crate) values: bool,
    /// Compare launches of other grids or blocks, by the warps that both have.
    #[arg(long)]
    pub(crate) allow_different_grids: bool,
    /// Sites that have another key in B than in A, as `diff --map`.
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    /// Where source files are looked for; can be given more than once.
    #[arg(long = "source", value_name = "FOLDER", default_value = ".")]
    pub(crate) folders: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceConvert {
    /// The trace.
    pub(crate) from: PathBuf,
    /// The file to write.
    pub(crate) to: PathBuf,
    /// Which format; without this, the one that the trace is not in.
    #[arg(long = "to", value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// For v1, which has one launch: its number in `nvabi trace info`.
    #[arg(long, value_name = "N")]
    pub(crate) launch: Option<usize>,
    /// For v1: cut what it cannot say, such as values of 64 bits.
    #[arg(long)]
    pub(crate) lossy: bool,
    /// For v2: how much to compress, 1 to 19; 0 is not at all.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(0..=19))]
    pub(crate) level: i32,
}

/// Formats of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TraceFormat {
    /// gddbg v1
    V1,
    /// nvtrace v2
    V2,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceMerge {
    /// The traces.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// How much to compress, 1 to 19; 0 is not at all.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(0..=19))]
    pub(crate) level: i32,
}

#[derive(Debug, clap::Args)]
#[cfg_attr(not(feature = "parquet"), expect(dead_code))]
pub(crate) struct TraceExport {
    /// The trace.
    pub(crate) file: PathBuf,
    /// The file to write.
    pub(crate) out: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tegra {
    /// Print what the GPU of this machine is.
    #[command(after_help = "Example:\n  nvabi tegra probe")]
    Probe,
    /// Run a program as if it were on a Jetson Orin.
    #[command(after_help = "Examples:\n  nvabi tegra sim -- python3 client.py\n  \
        nvabi tegra sim --fault OPEN_CHANNEL:3:ENOMEM --report run.json -- ./client\n  \
        nvabi tegra sim --fault GET_FD:*:delay=10ms -- ./client\n\n\
        Exit status: the program's.")]
    Sim(TegraSim),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TegraSim {
    /// Release of L4T whose drivers are played: r32.7.1 to r36.4.3, or the beginning of one, such as r35.
    #[arg(long, default_value = "r36.4")]
    pub(crate) release: nvabi_sim::tegra::Release,
    #[command(flatten)]
    pub(crate) simulated: Simulated,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rm {
    /// Run a program as if on a machine with NVIDIA's driver, of any tag of the lock.
    #[command(after_help = "Examples:\n  nvabi rm sim -- ./client\n  \
        nvabi rm sim --tag 535.183.01 --gpus 2 -- ./client\n  \
        nvabi rm sim --tag 580.142 --version 580.159.03 -- ./client\n  \
        nvabi rm sim --fault GPU_GET_ID_INFO:1:NV_ERR_NO_MEMORY --report run.json -- ./client\n\n\
        Exit status: the program's.")]
    Sim(RmSim),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmSim {
    /// Driver version whose requests, layouts and rules are played, such as 550.163.01.
    #[arg(long, default_value = "550.163.01")]
    pub(crate) tag: Tag,
    /// Version that the driver of --tag calls itself, such as one between two of the lock.
    #[arg(long, requires = "tag", value_parser = driver_version)]
    pub(crate) version: Option<String>,
    /// How many GPUs there are.
    #[arg(long, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(nvabi_sim::rm::MAX_GPUS)))]
    pub(crate) gpus: u32,
    #[command(flatten)]
    pub(crate) simulated: Simulated,
}

/// As the driver has room for it.
fn driver_version(text: &str) -> Result<String, &'static str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = text.len() < 64 && text.contains('.') && text.split('.').all(is_number);
    if is_version {
        Ok(text.to_owned())
    } else {
        Err("numbers with points between them, such as 580.159.03")
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Simulated {
    /// Let a call fail or take long: CALL:N:ERRNO or CALL:N:delay=TIME. N counts from 1, `*` is all.
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<nvabi_sim::Fault>,
    /// Write the report there, as JSON; without this, it is printed to stderr.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Headers {
    /// Clone what is needed of one tag into the cache: shallow, and the header folders alone.
    #[command(after_help = "Examples:\n  nvabi headers fetch 550.163.01\n  \
        nvabi headers fetch 550.163.01 --remote ../open-gpu-kernel-modules")]
    Fetch(Fetch),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fetch {
    /// Driver version, such as 550.163.01.
    pub(crate) tag: Tag,
    /// Where to fetch from; without this, the repository that the tag's spec names.
    #[arg(long, value_name = "URL")]
    pub(crate) remote: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi extract 550.163.01\n  \
    nvabi extract 550.163.01 --json > facts.json\n  \
    nvabi extract 550.163.01 --surface uvm --no-constants")]
pub(crate) struct Extract {
    /// Driver version, such as 550.163.01.
    pub(crate) tag: Tag,
    /// One surface only: rm, uvm, modeset, drm.
    #[arg(long, value_name = "NAME")]
    pub(crate) surface: Option<String>,
    /// Target to parse for; without this, the first of the spec.
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// Leave macros out: records, enums and typedefs alone.
    #[arg(long)]
    pub(crate) no_constants: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi lock 550.163.01\n  nvabi lock            (every tag locked already, anew)\n  nvabi lock --driver 550"
)]
pub(crate) struct Lock {
    /// Driver versions; without any, every tag of the lock is locked anew.
    pub(crate) tags: Vec<Tag>,
    /// Every tag of this driver that the headers have.
    #[arg(long, value_name = "DRIVER", conflicts_with = "tags")]
    pub(crate) driver: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi add 595.45.04\n  nvabi add 595.45.04 --out pull-request.md --no-snapshots"
)]
pub(crate) struct Add {
    /// Driver version, such as 595.45.04.
    pub(crate) tag: Tag,
    /// Write the text of the pull request there; without this, it is printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Leave the snapshots as they are; renewing them takes a build.
    #[arg(long)]
    pub(crate) no_snapshots: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi verify\n  nvabi verify 550.163.01 --headers open-gpu-kernel-modules"
)]
pub(crate) struct Verify {
    /// Driver versions; without any, every tag of the lock.
    pub(crate) tags: Vec<Tag>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi lint\n  nvabi lint 550")]
pub(crate) struct Lint {
    /// Drivers, such as 550; without any, every spec.
    pub(crate) drivers: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi show NVOS54_PARAMETERS\n  nvabi show NV_ESC_RM_CONTROL --tag 550.90.07\n  nvabi show NVOS21_PARAMETERS --json"
)]
pub(crate) struct Show {
    /// A struct, union, enum, enumerator, typedef, constant or bit range, or the number of a call.
    pub(crate) name: String,
    /// Driver version; without this, the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nvabi diff 550.40.07 550.163.01\n  nvabi diff 530.41.03 535.43.02 --only NVOS21_PARAMETERS\n  nvabi diff 570.86.15 575.51.02 --all --markdown"
)]
pub(crate) struct Diff {
    /// Driver version to start from.
    #[arg(value_name = "A")]
    pub(crate) from: Tag,
    /// Driver version to go to.
    #[arg(value_name = "B")]
    pub(crate) to: Tag,
    /// Everything that the lock has, beyond the calls of the specs and what they need.
    #[arg(long)]
    pub(crate) all: bool,
    /// Only what concerns this struct, call, enum or constant, of all that the lock has. A number is
    /// that of a call: 0x20801358.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Print Markdown, for a pull request.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Compared are the numbers of calls, and the layouts of what they take with all that is in them.\n\
    The values of constants are not, but for one that is named itself: `nvabi diff` tells of those.\n\n\
    Examples:\n  nvabi ranges NVOS21_PARAMETERS\n  nvabi ranges\n  nvabi ranges --crate ../my-shim\n  nvabi ranges --nearest 580.159.03"
)]
pub(crate) struct Ranges {
    /// A call, struct, union, enum, enumerator, typedef, constant or bit range.
    pub(crate) name: Option<String>,
    /// Every call of the specs: so it is without a name, too.
    #[arg(long, conflicts_with_all = ["name", "items", "krate"])]
    pub(crate) spec: bool,
    /// The names in a file, one a line; `#` begins a comment.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "krate"])]
    pub(crate) items: Option<PathBuf>,
    /// The structs that a crate derives NvProxy for, but for those that macros make; the folder of its
    /// Cargo.toml.
    #[arg(long = "crate", value_name = "PATH", conflicts_with = "name")]
    pub(crate) krate: Option<PathBuf>,
    /// The nearest locked tag with the same ABI as this one, which the lock need not have.
    #[arg(long, value_name = "TAG")]
    pub(crate) nearest: Option<Tag>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nvabi coverage nvproxy-coverage.json")]
pub(crate) struct Coverage {
    /// A table of versions and calls, in JSON.
    pub(crate) file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Decode {
    /// Name the ioctls in logs of `strace -f` by the device that each is made on.
    #[command(
        after_help = "The log: strace -f -y -o cuda.strace PROGRAM (without -y file descriptors are\n\
            followed through open, dup, fork, close and the ioctls that return them).\n\n\
            Examples:\n  nvabi decode strace cuda.strace\n  nvabi decode strace cuda.strace --calls --tag tegra-r35.4.1\n  \
            strace -f -o /dev/stdout PROGRAM | nvabi decode strace - --json"
    )]
    Strace(DecodeStrace),
    /// Print the fields of a struct with the values that its bytes have.
    #[command(
        after_help = "Examples:\n  nvabi decode struct nvmap_create_handle 0010000000000000\n  \
            nvabi decode struct NVOS54_PARAMETERS params.bin --tag 550.90.07\n  \
            xxd -p params.bin | nvabi decode struct NVOS54_PARAMETERS -"
    )]
    Struct(DecodeStruct),
    /// Print what `nvabi sniff --record` has recorded, as it was printed then.
    #[command(
        after_help = "Examples:\n  nvabi decode sniff cuda.sniff\n  nvabi decode sniff cuda.sniff --tag 570.86.15 --summary\n  \
            nvabi decode sniff cuda.sniff --check gvisor:550.90.07"
    )]
    Sniff(DecodeSniff),
}

const SNIFF_HELP: &str = "\
Lines go to stderr, or to --out; stdin and stdout are the program's. How the program ended is told at the
end, on stderr and with --json; the exit status is 0, 1 where --check found what its list lacks, or 2.

Examples:
  nvabi sniff -- ./client
  nvabi sniff --summary -- python3 train.py
  nvabi sniff --record cuda.sniff --check gvisor -- ./client
  nvabi sniff --json --out calls.jsonl --tag 550.90.07 -- ./client";

#[derive(Debug, clap::Args)]
pub(crate) struct Sniff {
    /// Driver version; once for the desktop's driver and once for Jetson's. Without this, what the
    /// machine says, then what the driver tells the program, then the newest locked tag.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<Tag>,
    /// How calls are caught; without this, by ptrace, and where that is not allowed by notify, which
    /// knows no results.
    #[arg(long)]
    pub(crate) method: Option<Method>,
    /// Where to print, instead of stderr.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Record the calls with their memory, for `nvabi decode sniff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Files that are no devices of NVIDIA's and are of interest too, such as /dev/kfd or /dev/pts/*.
    #[arg(long = "path", value_name = "GLOB")]
    pub(crate) paths: Vec<String>,
    /// Bytes that are read at each pointer.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 16)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) view: SniffView,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// What is told of calls.
#[derive(Debug, clap::Args)]
pub(crate) struct SniffView {
    /// Print counts, failures, unknown numbers and times instead of each call.
    #[arg(long)]
    pub(crate) summary: bool,
    /// Print what of it a list of allowed calls lacks: `gvisor`, or a file; of a list that knows
    /// versions, the one behind a colon.
    #[arg(long, value_name = "LIST[:VERSION]")]
    pub(crate) check: Option<String>,
    /// Print each call, beside what else is asked for.
    #[arg(long)]
    pub(crate) lines: bool,
    /// Print every field, also those that are zero.
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeSniff {
    /// A record.
    pub(crate) file: PathBuf,
    /// Driver version, instead of the one that it was recorded with.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<Tag>,
    #[command(flatten)]
    pub(crate) view: SniffView,
}

/// How calls are caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Method {
    /// Calls, their results and times.
    Ptrace,
    /// Calls alone, by seccomp user notification.
    Notify,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeStrace {
    /// Logs; `-` for what comes in on stdin.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Driver version; once for the desktop's driver (else the newest locked tag) and once for
    /// Jetson's (else all of them, and which ones fit is told).
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<Tag>,
    /// Print every call as well: line, pid, fd, node, name, argument, result.
    #[arg(long)]
    pub(crate) calls: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DecodeStruct {
    /// A struct, union, or typedef of one.
    pub(crate) name: String,
    /// A file, `-` for stdin, or the bytes themselves in hexadecimal.
    pub(crate) bytes: PathBuf,
    /// Driver version; without this, the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nvabi atlas --out atlas && xdg-open atlas/index.html")]
pub(crate) struct Atlas {
    /// Folder to write; it must be empty, not there yet, or an atlas, which is then replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "How the parameters of a command or class are known stands in its last column:\n  \
                  finn         its number was made of this struct's message id, says the header\n  \
                  table        the driver's table of exported methods has the struct's size\n  \
                  list         the driver's list of resources\n  \
                  name         a struct has the command's name\n  \
                  null         the command does nothing\n\
                  and where they are not known, why:\n  \
                  no-evidence  no header and no table says anything of the command's parameters\n  \
                  no-resource  the class is not in the list of resources: it cannot be allocated\n\n\
                  Examples:\n  nvabi list commands --tag 550.163.01\n  nvabi list classes\n  nvabi list ioctls --json"
)]
pub(crate) struct List {
    /// What to list.
    pub(crate) what: Listing,
    /// Driver version; without this, the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
}

/// What there is to list.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Listing {
    /// Requests of the device files.
    Ioctls,
    /// Commands of `NV_ESC_RM_CONTROL`.
    Commands,
    /// Classes of `NV_ESC_RM_ALLOC`.
    Classes,
}
