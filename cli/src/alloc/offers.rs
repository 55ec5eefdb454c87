//! What devices offer: read from files, and written for other machines.

use std::path::Path;

use nvabi_devmem::{Offer, Prober, Use};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::args::AllocAsked;
use super::plan::Machine;
use crate::context::Context;
use crate::{Outcome, names};

/// A file holds one offer, a list of them, or a list with the version of the format.
enum File {
    One(Offer),
    Many(Vec<Offer>),
}

/// The version of the format, which `docs/devmem.md` describes.
const VERSION: u32 = 1;

/// A list with its version. Fields that are not known are errors, and named.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Versioned {
    version: u32,
    offers: Vec<Offer>,
}

/// The offers of a file; one at least.
pub(super) fn read(path: &Path) -> Result<Vec<Offer>, Report> {
    let text = names::text_of(path).map_err(|error| {
        let message = format!("cannot read {}: {error}", path.display());
        Diagnostic::error("alloc-unreadable", message)
    })?;
    let offers = parse(&text).map(|file| match file {
        File::One(offer) => vec![offer],
        File::Many(offers) => offers,
    });
    let offers = offers.and_then(|offers| match offers.is_empty() {
        true => Err(serde_json::Error::custom("the list is empty")),
        false => Ok(offers),
    });
    offers.map_err(|error| {
        let message = format!("{} holds no offers: {error}", path.display());
        let help = r#"an offer is {"use": {"device": "gpu", "operation": "render"}, "sets": [{"constraints": [{"name": "pitch-alignment", "value": 64}], "capabilities": ["LINEAR"]}]}"#;
        Diagnostic::error("alloc-offers", message).help(help).into()
    })
}

/// Says that a use has an offer already.
pub(super) fn tell_second(context: &Context<'_>, of: &Use) {
    context.status("Unused", &format!("another offer of {of}: the first one counts"));
}

/// By what the text is, so that the error is about what was meant, with its line and column.
fn parse(text: &str) -> serde_json::Result<File> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    match value.get("version") {
        None if value.is_array() => serde_json::from_str(text).map(File::Many),
        None => serde_json::from_str(text).map(File::One),
        // Another version may have other fields.
        Some(version) if version.is_u64() && version.as_u64() != Some(VERSION.into()) => {
            let what = format!("version {version}, and this reads version {VERSION}");
            Err(serde_json::Error::custom(what))
        }
        Some(_) => serde_json::from_str(text).map(|Versioned { offers, .. }| File::Many(offers)),
    }
}

/// `nvabi alloc offers`: what devices of this machine offer, to plan with elsewhere. It is JSON with and without
/// `--json`.
pub(crate) fn offers(context: &Context<'_>, args: &AllocAsked) -> Result<Outcome, Report> {
    let machine = Machine::new(Prober::default());
    let usage = machine.shared(&args.of_image()?, &args.uses);
    let mut offers = Vec::new();
    for wanted in &args.uses {
        machine.tell_skipped_of(context, wanted);
        for candidate in machine.candidates(context, wanted, &usage)? {
            super::plan::tell_refusals(context, &candidate.refusals);
            offers.push(candidate.offer);
        }
    }
    machine.tell_untried(context);
    let serves = offers.iter().any(|offer| !offer.sets.is_empty());
    context.print_json(&Versioned { version: VERSION, offers })?;
    Ok(if serves { Outcome::Same } else { Outcome::Different })
}
