//! `nvabi alloc formats`: what a device takes for an operation.

use nvabi_devmem::Hint;
use nvabi_pipeline::diagnostic::{Diagnostic, Report};

use super::args::AllocFormats;
use crate::Outcome;
use crate::context::Context;

pub(crate) fn formats(context: &Context<'_>, args: &AllocFormats) -> Result<Outcome, Report> {
    let found = super::found(context);
    let wanted = &args.wanted;
    let known = found.devices.iter().find(|device| device.info().name == wanted.device);
    let device = known.ok_or_else(|| {
        Diagnostic::error("alloc-no-device", format!("this machine has no {}", wanted.device))
            .help("`nvabi alloc devices` lists devices; purposes such as `display` are for `plan`, `make` and `offers`")
    })?;
    let hints = device.hints_for(wanted).map_err(|error| {
        Diagnostic::error("alloc-device", format!("cannot query {}: {error}", wanted.device))
    })?;
    match context.json() {
        true => context.print_json(&hints)?,
        false => context.print(&text(&hints))?,
    }
    context.status("Found", &format!("{} formats for {wanted}", hints.len()));
    Ok(if hints.is_empty() { Outcome::Different } else { Outcome::Same })
}

fn text(hints: &[Hint]) -> String {
    let side = |most: u32| if most == u32::MAX { "any".to_owned() } else { most.to_string() };
    let line = |hint: &Hint| {
        let (width, height) = (side(hint.max_width), side(hint.max_height));
        format!("{:<10} {width:>9} {height:>10}\n", hint.format.to_string())
    };
    let header = format!("{:<10} {:>9} {:>10}\n", "FORMAT", "MAX WIDTH", "MAX HEIGHT");
    header + &hints.iter().map(line).collect::<String>()
}
