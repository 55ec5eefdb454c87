//! `nvabi tegra sim`: a program on the simulated kernel of a Jetson.

use std::process::ExitCode;

use nvabi_sim::tegra::{self, Options};

use crate::args::TegraSim;
use crate::context::Context;
use crate::sim;

pub(crate) fn sim(context: &Context<'_>, args: &TegraSim) -> ExitCode {
    let faults = args.faults.list.clone();
    let live = sim::live(context);
    let options = Options { release: args.release, faults, pass_signals: true, live };
    sim::run(context, &args.program, |program| tegra::run(program, &options))
}
