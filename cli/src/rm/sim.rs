//! `nvabi rm sim`: a program on a simulated driver, of any tag of the lock.

use std::process::ExitCode;
use std::sync::Arc;

use nvabi_pipeline::diagnostic::Report;
use nvabi_sim::profile::Profile;
use nvabi_sim::rm::{self, Interface, Options};

use super::{interface, profile};
use crate::args::{RmMachine, RmSim};
use crate::context::Context;
use crate::sim;

pub(crate) fn sim(context: &Context<'_>, args: &RmSim) -> ExitCode {
    let options = match options(context, &args.machine) {
        Ok(options) => options,
        Err(report) => {
            context.complain(&report);
            return ExitCode::from(2);
        }
    };
    sim::run(context, &args.program, |program| rm::run(program, &options))
}

/// The machine that was asked for.
pub(super) fn options(context: &Context<'_>, args: &RmMachine) -> Result<Options, Report> {
    let family = context.family_of(&[&args.tag])?;
    let interface = interface::at(&family, &args.tag)?;
    let gpus = gpus(args, &interface)?;
    let topology = args.topology.as_deref().map(profile::load_topology).transpose()?;
    let faults = args.faults.list.clone();
    let version = args.version.clone();
    let interface = Arc::new(interface);
    let live = sim::live(context);
    let (is_lenient, takes_ptx) = (args.lenient, args.ptx);
    let pass_signals = true;
    Ok(Options {
        interface,
        version,
        gpus,
        topology,
        is_lenient,
        takes_ptx,
        faults,
        pass_signals,
        live,
    })
}

/// The machine's GPUs, of profiles that fit the driver.
fn gpus(args: &RmMachine, interface: &Interface) -> Result<Vec<Arc<Profile>>, Report> {
    let mut gpus = Vec::new();
    for name in &args.gpu {
        let gpu = Arc::new(profile::load(name, interface)?);
        gpus.extend(std::iter::repeat_n(gpu, args.gpus as usize));
    }
    Ok(gpus)
}
