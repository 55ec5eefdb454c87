//! The command `nvabi`: findings on stdout, progress and statuses on stderr; exit status 0 same or ok,
//! 1 different or found, 2 error.
//!
//! `sniff`, the simulators, `emu`, `trace record` and `trace cc` run a program, to which stdout belongs; all but
//! `sniff` return its exit status (`docs/command.md`).

#[cfg(feature = "devmem")]
mod alloc;
mod args;
mod atlas;
mod commands;
mod context;
mod coverage;
mod decode;
mod diff;
mod emit;
mod emu;
mod emulator;
mod features;
#[cfg(feature = "headers")]
mod headers;
mod names;
mod ranges;
mod rm;
#[cfg(feature = "sass")]
mod sass;
mod sim;
mod sniff;
mod specs;
mod tegra;
#[cfg(feature = "trace")]
mod trace;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use nvabi_reports::terminal;

use args::{Args, Command};
use context::Context;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How a command ended, when it did not fail.
pub(crate) enum Outcome {
    /// The same, or done.
    Same,
    /// Something was found, or differs.
    Different,
}

/// Says what is wrong with the arguments: where they hold letters that command a terminal, of these spelled out.
fn refused(error: &clap::Error) -> ExitCode {
    let spelled = std::env::args_os().map(|it| terminal::line(&it.to_string_lossy()).into_owned());
    // Nobody is there to hear of it where this fails.
    let _ = match Args::try_parse_from(spelled).err() {
        Some(of_spelled) => of_spelled.print(),
        // Nothing else is wrong with them.
        None => write!(io::stderr(), "{}", terminal::lines(&error.render().to_string())),
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return refused(&error),
    };
    if let Some(threads) = args.options.threads {
        nvabi_pipeline::parallel::set_threads(threads.into());
    }
    let context = Context::new(&args.options, args.command.sources());
    let outcome = match &args.command {
        #[cfg(feature = "headers")]
        Command::Headers(args::Headers::Fetch(args)) => headers::fetch(&context, args),
        #[cfg(feature = "headers")]
        Command::Extract(args) => headers::extract(&context, args),
        #[cfg(feature = "headers")]
        Command::Lock(args) => headers::lock(&context, args),
        #[cfg(feature = "headers")]
        Command::Add(args) => headers::add(&context, args),
        #[cfg(feature = "headers")]
        Command::Verify(args) => headers::verify(&context, args),
        #[cfg(not(feature = "headers"))]
        Command::Headers(_)
        | Command::Extract(_)
        | Command::Lock(_)
        | Command::Add(_)
        | Command::Verify(_) => Err(features::missing("headers")),
        Command::Lint(args) => commands::lint(&context, args),
        Command::Show(args) => commands::show(&context, args),
        Command::Facts(args) => emit::facts(&context, args),
        Command::Emit(args) => emit::emit(&context, args),
        Command::Diff(args) => diff::diff(&context, args),
        Command::List(args) => commands::list(&context, args),
        Command::Ranges(args) => ranges::ranges(&context, args),
        Command::Coverage(args) => coverage::coverage(&context, args),
        Command::Decode(args::Decode::Strace(args)) => decode::strace(&context, args),
        Command::Decode(args::Decode::Struct(args)) => decode::structure(&context, args),
        Command::Decode(args::Decode::Sniff(args)) => sniff::decode(&context, args),
        Command::Sniff(args) => sniff::sniff(&context, args),
        Command::Atlas(args) => atlas::atlas(&context, args),
        Command::Tegra(args::Tegra::Probe) => tegra::probe::probe(&context),
        Command::Tegra(args::Tegra::Sim(args)) => return tegra::sim::sim(&context, args),
        Command::Rm(args::Rm::Sim(args)) => return rm::sim::sim(&context, args),
        Command::Rm(args::Rm::Up(args)) => return rm::up::up(&context, args),
        Command::Rm(args::Rm::Run(args)) => return rm::run::run(&context, args),
        Command::Rm(args::Rm::Status(args)) => return rm::status::status(&context, args),
        Command::Rm(args::Rm::Inject(args)) => return rm::inject::inject(&context, args),
        Command::Rm(args::Rm::Down(args)) => return rm::down::down(&context, args),
        Command::Emu(args) => return emu::emu(&context, args),
        Command::Rm(args::Rm::Check(args)) => return rm::profile::check(&context, args),
        Command::Rm(args::Rm::Profile(args)) => rm::recorded::profile(&context, args),
        #[cfg(feature = "sass")]
        Command::Sass(args) => sass::sass(&context, args),
        #[cfg(not(feature = "sass"))]
        Command::Sass(_) => Err(features::missing("sass")),
        #[cfg(feature = "trace")]
        Command::Trace(args) => return trace::trace(&context, args),
        #[cfg(not(feature = "trace"))]
        Command::Trace(_) => Err(features::missing("trace")),
        #[cfg(feature = "devmem")]
        Command::Alloc(args) => return alloc::alloc(&context, args),
        #[cfg(not(feature = "devmem"))]
        Command::Alloc(_) => Err(features::missing("devmem")),
        Command::Completions { shell } => commands::completions(*shell),
    };
    context.exit(outcome)
}
