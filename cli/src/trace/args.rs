//! The command line of `nvabi trace`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Trace {
    /// Print the contents of a trace, and whether it is complete.
    #[command(after_help = "Example:\n  nvabi trace info run.nvtrace\n\n\
        Exit status: 0 complete, 1 events are lost, 2 error.")]
    Info(TraceInfo),
    /// Print the events of a trace.
    #[command(
        after_help = "Examples:\n  nvabi trace dump run.nvtrace --warp 3 --from 100 --count 20\n  \
        nvabi trace dump run.gddbg --json | jq -c 'select(.kind == \"atomic\")'\n\n\
        Exit status: 0 complete, 1 events are lost, 2 error."
    )]
    Dump(TraceDump),
    /// Find where two runs diverge.
    #[command(
        after_help = "Examples:\n  nvabi trace diff good.nvtrace bad.nvtrace --values --history 5\n  \
        nvabi trace diff a.gddbg b.gddbg --json | jq .total_findings\n  \
        nvabi trace diff a.nvtrace b.nvtrace --html report.html --sarif report.sarif\n\n\
        Exit status: 0 same, 1 different, 2 error, or unknown because events were lost."
    )]
    Diff(TraceDiff),
    /// Convert a trace between gddbg v1 and nvtrace v2.
    #[command(after_help = "Examples:\n  nvabi trace convert run.gddbg run.nvtrace\n  \
        nvabi trace convert run.nvtrace run.gddbg --to v1 --launch 2\n\n\
        Exit status: 0 everything was written, 1 events are lost, 2 error.")]
    Convert(TraceConvert),
    /// Merge the traces of several processes into one file, a session for each.
    #[command(
        after_help = "Example:\n  nvabi trace merge rank0.nvtrace rank1.nvtrace -o all.nvtrace\n\n\
        Exit status: 0 everything was written, 1 events are lost, 2 error."
    )]
    Merge(TraceMerge),
    /// Write the events as a Parquet table, one row per event.
    #[command(after_help = "Examples:\n  nvabi trace export run.nvtrace run.parquet && \\\n  \
        duckdb -c \"select line, count(*) from 'run.parquet' group by line\"\n  \
        nvabi trace export --by-launch run.nvtrace runs/pair=7/side=a\n\n\
        Exit status: 0 everything was written, 1 events are lost, 2 error.")]
    Export(TraceExport),
    /// Browse two traces side by side in the terminal.
    #[command(after_help = "Example:\n  nvabi trace tui good.trace bad.trace --source src\n\n\
        Keys: n next difference, ] next warp that differs, w warps, / search, ? help, q quit.")]
    Tui(TraceTui),
    /// Compile CUDA code with clang and instrument its kernels for recording.
    #[command(after_help = "Examples:\n  nvabi trace cc -- -O2 reduce.cu -o reduce\n  \
        nvabi trace cc --kinds branch,atomic --functions 'reduce*' -- -O2 -c reduce.cu\n\n\
        Exit status: clang's.")]
    Cc(super::cc::CcArgs),
    /// The linker of `nvabi trace cc -fgpu-rdc`.
    #[command(hide = true)]
    Link(super::link::LinkArgs),
    /// Run a program and record its instrumented kernels, on a GPU or in the emulator.
    #[command(
        after_help = "Examples:\n  nvabi trace record -o good.nvtrace -- ./reduce good.txt\n  \
        nvabi trace record --emulate --schedule random:7 -- ./reduce good.txt\n  \
        nvabi trace record --launches 10..20 --sample 8 -- ./train\n\n\
        Exit status: the program's."
    )]
    Record(super::record::RecordArgs),
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
    /// Print this launch only, by its number in `nvabi trace info`.
    #[arg(long, value_name = "N")]
    pub(crate) launch: Option<usize>,
    /// Print this warp only.
    #[arg(long, value_name = "N")]
    pub(crate) warp: Option<u32>,
    /// First event of each warp to print.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) from: u64,
    /// Number of events of each warp to print.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceDiff {
    /// The first trace.
    pub(crate) a: PathBuf,
    /// The second.
    pub(crate) b: PathBuf,
    /// Compare recorded values too, not only control flow.
    #[arg(long)]
    pub(crate) values: bool,
    /// Show this many events before each finding.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) history: usize,
    /// Report at most this many findings; all are counted.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: usize,
    /// Compare launches whose grids or blocks differ, by the warps that both have.
    #[arg(long)]
    pub(crate) allow_different_grids: bool,
    /// Sites whose key changed between A and B: one line per site with both keys; `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) outputs: super::outputs::Outputs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceTui {
    /// The first trace.
    pub(crate) a: PathBuf,
    /// The second.
    pub(crate) b: PathBuf,
    /// Compare recorded values too, not only control flow.
    #[arg(long)]
    pub(crate) values: bool,
    /// Compare launches whose grids or blocks differ, by the warps that both have.
    #[arg(long)]
    pub(crate) allow_different_grids: bool,
    /// Sites whose key changed between A and B, as for `diff --map`.
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    /// Folder to search for source files; may be repeated.
    #[arg(long = "source", value_name = "FOLDER", default_value = ".")]
    pub(crate) folders: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceConvert {
    /// The trace.
    pub(crate) from: PathBuf,
    /// The file to write.
    pub(crate) to: PathBuf,
    /// Output format; default: the one that the input is not in.
    #[arg(long = "to", value_name = "FORMAT")]
    pub(crate) format: Option<TraceFormat>,
    /// For v1, which holds one launch: the launch's number in `nvabi trace info`.
    #[arg(long, value_name = "N")]
    pub(crate) launch: Option<usize>,
    /// For v1: truncate what it cannot represent, such as 64-bit values.
    #[arg(long)]
    pub(crate) lossy: bool,
    /// For v2: compression level, 1 to 19; 0 turns it off.
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
    /// Compression level, 1 to 19; 0 turns it off.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(0..=19))]
    pub(crate) level: i32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TraceExport {
    /// The trace.
    pub(crate) file: PathBuf,
    /// The file to write, or the folder.
    pub(crate) out: PathBuf,
    /// Write a folder with a file for each launch (`launch=0/events.parquet`), which the other commands
    /// take as a trace.
    #[arg(long)]
    pub(crate) by_launch: bool,
}
