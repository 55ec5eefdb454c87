//! `nvabi alloc plan`: which memory serves what is to be done, or why none does.

use std::fmt::Write as _;

use nvabi_devmem::drivers::Found;
use nvabi_devmem::{
    CapabilitySet, Derived, Device, Image, Layout, LayoutError, Offer, Operation, Prober, Usage,
    Use, plan, solve,
};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use serde::Serialize;

use super::args::AllocPlan;
use super::{found, offers};
use crate::Outcome;
use crate::context::Context;

/// What `--json` prints.
#[derive(Serialize)]
struct Plan {
    usage: Usage,
    /// The set that was chosen.
    set: CapabilitySet,
    /// Where the pixels are; `None` where only the driver of the layout knows.
    layout: Option<Layout>,
    /// What else would serve.
    others: Vec<CapabilitySet>,
    /// Whether `others` are all.
    complete: bool,
}

pub(crate) fn alloc_plan(context: &Context<'_>, args: &AllocPlan) -> Result<Outcome, Report> {
    let mut given: Vec<Offer> = Vec::new();
    for file in &args.offers {
        given.extend(offers::read(file)?);
    }
    let image = Image::new(args.size.0, args.size.1, args.format);
    let known = |wanted: &Use| given.iter().find(|offer| offer.of == *wanted);
    // Devices are asked for when a use is of none that is given.
    let asked = args.uses.iter().any(|wanted| known(wanted).is_none());
    let found = asked.then(|| found(context));
    let mut offers = Vec::new();
    for wanted in &args.uses {
        offers.push(match (known(wanted), &found) {
            (Some(offer), _) => offer.clone(),
            (None, Some(found)) => offer(context, found, wanted, &image)?,
            (None, None) => continue,
        });
    }
    match plan(&offers) {
        Ok(derived) => {
            let costs = |set: &CapabilitySet| cost(found.as_ref(), &offers, set);
            chosen(context, &image, &offers, derived, costs)
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

/// What a device of this machine offers for a use, with what is found out by trial.
fn offer(
    context: &Context<'_>,
    found: &Found,
    wanted: &Use,
    image: &Image,
) -> Result<Offer, Report> {
    let device = device(found, wanted)?;
    let name = &device.info().name;
    if *name != wanted.device {
        context.status("Chose", &format!("{name} for {wanted}"));
    }
    let sets = Prober::default().sets(device, image, wanted.operation, &found.devices);
    let sets = sets.map_err(|error| {
        let message = format!("cannot query {name}: {error}");
        Diagnostic::error("alloc-device", message)
    })?;
    Ok(Offer { of: Use::new(name, wanted.operation), sets })
}

/// The device of this name; else the first one that has the part that the name stands for, and does
/// this.
fn device<'f>(found: &'f Found, wanted: &Use) -> Result<&'f dyn Device, Report> {
    let devices = || found.devices.iter().map(|device| &**device);
    let does = |device: &&dyn Device, operation| device.info().operations.contains(&operation);
    let named = devices().find(|device| device.info().name == wanted.device);
    let part = part(&wanted.device).filter(|part| part.contains(&wanted.operation));
    let by_part = || devices().find(|device| part.is_some() && does(device, wanted.operation));
    named.or_else(by_part).ok_or_else(|| {
        let names: Vec<String> = devices().map(|device| device.info().name.clone()).collect();
        let message = format!("no device of this machine matches {wanted}");
        Diagnostic::error("alloc-no-device", message)
            .note(format!("this machine has {}", names.join(", ")))
            .help(
                "`nvabi alloc devices` lists devices; --offers FILE adds devices of other machines",
            )
            .into()
    })
}

/// What a device is for, and what it does then.
fn part(name: &str) -> Option<&'static [Operation]> {
    use Operation::{Capture, Copy, CpuRead, CpuWrite, Decode, Encode, Render, Scanout, Texture};
    match name {
        "cpu" => Some(&[CpuRead, CpuWrite]),
        "gpu" => Some(&[Texture, Render, Copy]),
        "display" => Some(&[Scanout]),
        "camera" => Some(&[Capture]),
        "encoder" => Some(&[Encode]),
        "decoder" => Some(&[Decode]),
        _ => None,
    }
}

/// What a set costs all who use it.
fn cost(found: Option<&Found>, offers: &[Offer], set: &CapabilitySet) -> u64 {
    let devices = found.iter().flat_map(|found| &found.devices);
    let used = |name: &str| offers.iter().any(|offer| offer.of.device == name);
    let costs = devices.filter(|device| used(&device.info().name)).map(|device| device.cost(set));
    costs.fold(0, u64::saturating_add)
}

/// Prints the cheapest set that can be laid out here; where none can be, the cheapest.
fn chosen(
    context: &Context<'_>,
    image: &Image,
    offers: &[Offer],
    Derived { mut sets, complete }: Derived,
    cost: impl Fn(&CapabilitySet) -> u64,
) -> Result<Outcome, Report> {
    sets.sort_by_key(|set| cost(set));
    let laid: Vec<Result<Layout, LayoutError>> = sets.iter().map(|set| solve(image, set)).collect();
    let at = laid.iter().position(Result::is_ok).unwrap_or(0);
    let (set, layout) = (sets.remove(at), &laid[at]);
    let usage =
        Usage { image: *image, uses: offers.iter().map(|offer| offer.of.clone()).collect() };
    let outcome = match layout {
        Ok(_) | Err(LayoutError::UnknownModifier(_)) => Outcome::Same,
        Err(_) => Outcome::Different,
    };
    match context.json() {
        true => {
            let layout = layout.as_ref().ok().cloned();
            context.print_json(&Plan { usage, set, layout, others: sets, complete })?;
        }
        false => context.print(&text(&usage, &set, layout, &sets))?,
    }
    super::tell_whether_all(context, complete);
    Ok(outcome)
}

fn text(
    usage: &Usage,
    set: &CapabilitySet,
    layout: &Result<Layout, LayoutError>,
    others: &[CapabilitySet],
) -> String {
    let uses: Vec<String> = usage.uses.iter().map(Use::to_string).collect();
    let mut text = format!("{} for {}\n\n", usage.image, uses.join(", "));
    // Writing to a string cannot fail.
    for capability in set.capabilities.iter() {
        let _ = writeln!(text, "{:<18} {capability}", "capability");
    }
    for constraint in &set.constraints {
        let shown = constraint.to_string();
        let (name, value) = shown.split_once(' ').unwrap_or((&shown, ""));
        let _ = writeln!(text, "{name:<18} {value}");
    }
    text.push('\n');
    match layout {
        Ok(layout) => {
            let _ =
                writeln!(text, "{:>5} {:>12} {:>12} {:>12}", "plane", "offset", "pitch", "size");
            for (at, plane) in layout.planes.iter().enumerate() {
                let (offset, pitch, size) = (plane.offset, plane.pitch, plane.size);
                let _ = writeln!(text, "{at:>5} {offset:>12} {pitch:>12} {size:>12}");
            }
            let _ = writeln!(text, "{:>5} {:>38}", "all", layout.size);
        }
        Err(error) => {
            let _ = writeln!(text, "no layout: {error}");
        }
    }
    for other in others {
        let _ = writeln!(text, "\nalso: {other}");
    }
    text
}
