//! What the command understands.

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
    /// Driver headers: a git repository (bare or not), or a folder of extracted trees.
    /// Without this, NVABI_HEADERS; without that, what `nvabi headers fetch` fetched.
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) headers: Option<PathBuf>,
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
    /// Recompute the facts of locked tags from headers and compare.
    Verify(Verify),
    /// Check that the specs fit the driver.
    Lint(Lint),
    /// Print the layout of a type, or the value of a constant, from the lock.
    Show(Show),
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
    /// A struct, union, enum, typedef, constant or bit range.
    pub(crate) name: String,
    /// Driver version; without this, the newest locked tag.
    #[arg(long)]
    pub(crate) tag: Option<Tag>,
}
