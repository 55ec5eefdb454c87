//! `nvabi rm inject`: lets something happen to a GPU of a machine that is up.

use std::io;
use std::process::ExitCode;

use nvabi_sim::rm::{EccMemory, Injected, Injection};

use super::connection::{self, Kind, ToInject};
use super::folder::Folder;
use crate::args::{RmInject, RmInjection};
use crate::context::Context;

pub(crate) fn inject(context: &Context<'_>, args: &RmInject) -> ExitCode {
    match ask(args) {
        Ok(injected) if context.json() => {
            context.exit(context.print_json(&injected).map(|()| crate::Outcome::Same))
        }
        Ok(injected) => {
            context.status("Injected", &in_words(args, &injected));
            ExitCode::SUCCESS
        }
        Err(error) => {
            context.status("Failed", &error.to_string());
            ExitCode::from(2)
        }
    }
}

fn ask(args: &RmInject) -> io::Result<Injected> {
    let what = match args.what {
        RmInjection::Xid { number } => Injection::Xid(number),
        RmInjection::Ecc { uncorrected, count, sram, instance } => {
            let memory = if sram { EccMemory::Sram { instance } } else { EccMemory::Dram };
            Injection::Ecc { memory, is_uncorrected: uncorrected, count }
        }
        RmInjection::Temperature { degrees } => Injection::Temperature(degrees),
        RmInjection::Lost => Injection::Lost,
    };
    let question = serde_json::to_vec(&ToInject { gpu: args.gpu, what })?;
    let answer = connection::ask(&Folder::of(&args.name)?, Kind::Inject, &question)?;
    Ok(serde_json::from_slice(&answer)?)
}

/// What happened, to which GPU, and who was told.
fn in_words(args: &RmInject, injected: &Injected) -> String {
    let what = match args.what {
        RmInjection::Xid { number } => format!("Xid {number}"),
        RmInjection::Ecc { uncorrected, count, sram, instance } => {
            let kind = if uncorrected { "uncorrected" } else { "corrected" };
            let errors = if count == 1 { "error" } else { "errors" };
            let memory = if sram { "SRAM " } else { "" };
            let part = instance.map_or(String::new(), |id| format!(" of instance {id}"));
            format!("{count} {kind} {memory}ECC {errors}{part}")
        }
        RmInjection::Temperature { degrees } => format!("{degrees} °C"),
        RmInjection::Lost => "loss (Xid 79)".to_owned(),
    };
    let told = match injected.events {
        None => "",
        Some(0) => "; no program waits for this event",
        Some(1) => "; 1 event raised",
        Some(count) => &format!("; {count} events raised"),
    };
    format!("{what} into GPU {} of {}, {}{told}", args.gpu, args.name, injected.gpu_name)
}
