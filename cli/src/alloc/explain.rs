//! `nvabi alloc explain`: why offers do not go together.

use nvabi_devmem::{CapabilitySet, Derived, Offer, Rejection, plan};
use nvabi_pipeline::diagnostic::Report;
use serde::Serialize;

use super::args::AllocExplain;
use super::offers;
use crate::Outcome;
use crate::context::Context;

/// What `--json` prints when something serves all.
#[derive(Serialize)]
struct Served {
    sets: Vec<CapabilitySet>,
    rejections: Vec<Rejection>,
    /// Whether these are all.
    complete: bool,
}

pub(crate) fn explain(context: &Context<'_>, args: &AllocExplain) -> Result<Outcome, Report> {
    let mut all: Vec<Offer> = Vec::new();
    for file in &args.files {
        for offer in offers::read(file)? {
            match all.iter().any(|known| known.of == offer.of) {
                true => offers::tell_second(context, &offer.of),
                false => all.push(offer),
            }
        }
    }
    match plan(&all) {
        Ok(Derived { sets, complete }) => {
            let explanation = nvabi_devmem::explain(&all);
            let complete = complete && explanation.complete;
            let rejections = explanation.rejections;
            match context.json() {
                true => context.print_json(&Served { sets, rejections, complete })?,
                false => context.print(&served(&sets, &rejections))?,
            }
            super::tell_whether_all(context, complete);
            Ok(Outcome::Same)
        }
        Err(explanation) => {
            match context.json() {
                true => context.print_json(&explanation)?,
                false => context.print(&explanation.to_string())?,
            }
            Ok(Outcome::Different)
        }
    }
}

fn served(sets: &[CapabilitySet], rejections: &[Rejection]) -> String {
    let sets = sets.iter().map(|set| format!("serves all: {set}\n"));
    let rejections = rejections.iter().map(|rejection| format!("  not {rejection}\n"));
    sets.chain(rejections).collect()
}
