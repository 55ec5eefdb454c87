//! `nvabi alloc plan`: which memory serves what is to be done, who makes it, or why none does.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use nvabi_devmem::drivers::Found;
use nvabi_devmem::{
    Buffer, CapabilitySet, ConstraintName, Derived, Description, Device, ErrorKind, Image, Layout,
    LayoutError, MODIFIER_INVALID, Made, Offer, Operation, Prober, Proof, Refusal, Usage, Use,
    layout_of, plan, solve,
};
use nvabi_pipeline::diagnostic::{Diagnostic, Report};
use serde::Serialize;

use super::args::AllocPlan;
use super::offers;
use crate::Outcome;
use crate::context::Context;

/// So many ways to give a part, such as `gpu`, to a device are tried.
const MOST_CHOICES: usize = 64;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) usage: Usage,
    /// The set that was chosen, with what devices turned out to need where memory was made.
    pub(super) set: CapabilitySet,
    /// Where the pixels are; `None` where only the driver of the layout knows.
    pub(super) layout: Option<Layout>,
    /// Who makes the memory; `None` where it could not be tried on this machine.
    pub(super) allocator: Option<Allocator>,
    /// What proves that displays show it: none where it could not be tried on this machine.
    proofs: Vec<Proof>,
    /// What else would serve.
    others: Vec<CapabilitySet>,
    /// Whether `others` are all.
    complete: bool,
    /// What devices did not take when they were tried.
    refusals: Vec<Refusal>,
    /// Why there is no layout.
    #[serde(skip)]
    no_layout: String,
}

/// Who makes memory, and how.
#[derive(Debug, Serialize)]
pub(super) struct Allocator {
    device: String,
    /// The file of the device.
    node: String,
    /// What it is asked for.
    request: String,
}

impl fmt::Display for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.device, self.request)
    }
}

pub(crate) fn alloc_plan(context: &Context<'_>, args: &AllocPlan) -> Result<Outcome, Report> {
    let Some((plan, _)) = planned(context, args)? else { return Ok(Outcome::Different) };
    match context.json() {
        true => context.print_json(&plan)?,
        false => context.print(&plan.text())?,
    }
    Ok(Outcome::Same)
}

/// Plans, and says on stderr what was chosen and refused; the memory was made where that could be tried. Where nothing
/// serves, the explanation is printed.
pub(super) fn planned(
    context: &Context<'_>,
    args: &AllocPlan,
) -> Result<Option<(Plan, Option<Buffer>)>, Report> {
    let mut given: Vec<Offer> = Vec::new();
    for file in &args.offers {
        given.extend(offers::read(file)?);
    }
    let uses = &args.asked.uses;
    let asked_of = args.asked.of_image()?;
    tell_unused(context, args, &given);
    let known = |wanted: &Use| given.iter().find(|offer| offer.of == *wanted);
    // Devices are asked for when a use is of none that is given.
    let asked = uses.iter().any(|wanted| known(wanted).is_none());
    let prober = Prober::default().prefer(args.prefer.clone());
    let machine = asked.then(|| Machine::new(prober));
    tell_unmet(context, args, machine.as_ref());
    if machine.is_some() {
        tell_believed(context, uses, &given);
    }
    let here: Vec<Use> = uses.iter().filter(|wanted| known(wanted).is_none()).cloned().collect();
    let shared = machine.as_ref().map(|machine| machine.shared(&asked_of, &here));
    let mut candidates: Vec<Vec<Candidate>> = Vec::new();
    for wanted in uses {
        candidates.push(match (known(wanted), &machine, &shared) {
            (Some(offer), ..) => vec![Candidate::given(offer)],
            (None, Some(machine), Some(shared)) => {
                machine.tell_skipped_of(context, wanted);
                machine.candidates(context, wanted, shared)?
            }
            _ => continue,
        });
    }
    if let Some(machine) = &machine {
        machine.tell_untried(context);
    }
    let mut failures = Vec::new();
    let (choices, complete) = choices(&candidates);
    if !complete {
        let what =
            format!("the devices have more combinations than the {MOST_CHOICES} that are tried");
        context.status("Stopped", &what);
    }
    for choice in choices {
        let is_of_choice = |refusal: &Refusal| {
            let is_chosen = |maker: &String| choice.iter().any(|it| it.offer.of.device == *maker);
            refusal.maker.as_ref().is_none_or(is_chosen)
        };
        let refusals = choice.iter().flat_map(|candidate| candidate.refusals.clone());
        let refusals = refusals.filter(is_of_choice).collect();
        let offers = chosen(machine.as_ref(), &candidates, &choice);
        let given = choice.iter().enumerate().filter(|(_, candidate)| candidate.elsewhere);
        let elsewhere: Vec<usize> = given.map(|(at, _)| at).collect();
        match attempt(machine.as_ref(), &asked_of, &offers, &elsewhere, refusals) {
            Ok((plan, memory)) => {
                plan.tell(context, uses);
                return Ok(Some((plan, memory)));
            }
            Err(failure) => failures.push((offers, failure)),
        }
    }
    if let Some(machine) = &machine {
        machine.tell_skipped(context);
    }
    let mut failures = failures.into_iter();
    if let Some((_, first)) = failures.next() {
        first.tell(context)?;
    }
    // The first choice is what comes to mind; of others a line is enough.
    for (offers, failure) in failures {
        let devices: Vec<String> = offers.iter().map(|offer| offer.of.to_string()).collect();
        context.status("Failed", &format!("with {}: {}", devices.join(", "), failure.line()));
    }
    Ok(None)
}

/// The offers of a choice, without memory of candidates that are not chosen.
fn chosen(
    machine: Option<&Machine>,
    candidates: &[Vec<Candidate>],
    choice: &[&Candidate],
) -> Vec<Offer> {
    let owner = |candidate: &Candidate| match candidate.elsewhere {
        true => None,
        false => machine?.device(&candidate.offer.of.device)?.info().owner(),
    };
    let all: Vec<u64> = candidates.iter().flatten().filter_map(owner).collect();
    let own: Vec<u64> = choice.iter().filter_map(|candidate| owner(candidate)).collect();
    let is_chosen = |set: &CapabilitySet| {
        let maker = set.constraint(ConstraintName::MADE_BY);
        maker.is_none_or(|maker| own.contains(&maker) || !all.contains(&maker))
    };
    let mut offers = Vec::new();
    for candidate in choice {
        let mut offer = candidate.offer.clone();
        offer.sets.retain(|set| candidate.elsewhere || is_chosen(set));
        offers.push(offer);
    }
    offers
}

/// Offers that play no part.
fn tell_unused(context: &Context<'_>, args: &AllocPlan, given: &[Offer]) {
    for (at, offer) in given.iter().enumerate() {
        let of = &offer.of;
        if !args.asked.uses.contains(of) {
            context.status("Unused", &format!("the offer of {of}: no --use asks for it"));
        } else if given[..at].iter().any(|other| other.of == *of) {
            offers::tell_second(context, of);
        }
    }
}

/// Offers that are believed, where others are tried.
fn tell_believed(context: &Context<'_>, uses: &[Use], given: &[Offer]) {
    let believed = uses.iter().filter(|wanted| given.iter().any(|offer| offer.of == **wanted));
    for of in believed {
        context.status("Untried", &format!("{of}: its offer is from a file"));
    }
}

/// Devices that were to be asked first and cannot be.
fn tell_unmet(context: &Context<'_>, args: &AllocPlan, machine: Option<&Machine>) {
    let devices = || machine.iter().flat_map(|machine| &machine.found.devices);
    for name in &args.prefer {
        let makes = devices().find(|device| device.info().name == *name);
        match makes.map(|device| device.info().allocates) {
            Some(true) => {}
            Some(false) => {
                context.status("Unused", &format!("--prefer {name}: it makes no memory"))
            }
            None if machine.is_none() => {
                context
                    .status("Unused", &format!("--prefer {name}: nothing is made on this machine"));
            }
            None => context
                .status("Unused", &format!("--prefer {name}: this machine has no such device")),
        }
    }
}

/// The devices of this machine, and what is found out about them.
pub(super) struct Machine {
    found: Found,
    prober: Prober,
    /// What could not be asked, until it is told.
    skipped: Cell<Vec<String>>,
}

/// A device that may do what is asked for.
pub(super) struct Candidate {
    pub(super) offer: Offer,
    pub(super) refusals: Vec<Refusal>,
    /// Whether a file offers it: a device of another machine or process, whatever it is called.
    elsewhere: bool,
}

impl Candidate {
    fn here(offer: Offer, refusals: Vec<Refusal>) -> Self {
        Self { offer, refusals, elsewhere: false }
    }

    fn given(offer: &Offer) -> Self {
        Self { offer: offer.clone(), refusals: Vec::new(), elsewhere: true }
    }
}

impl Machine {
    pub(super) fn new(prober: Prober) -> Self {
        let (found, skipped) = super::found_quietly();
        Self { found, prober, skipped: Cell::new(skipped) }
    }

    fn device(&self, name: &str) -> Option<&dyn Device> {
        let mut devices = self.found.devices.iter().map(AsRef::as_ref);
        devices.find(|device: &&dyn Device| device.info().name == name)
    }

    /// Says once which devices could not be asked.
    fn tell_skipped(&self, context: &Context<'_>) {
        super::tell_skipped(context, &self.skipped.take());
    }

    /// The same where they might be meant by a use: all but one of a device that is here.
    pub(super) fn tell_skipped_of(&self, context: &Context<'_>, wanted: &Use) {
        if self.device(&wanted.device).is_none() {
            self.tell_skipped(context);
        }
    }

    /// Says where devices could not be tried.
    pub(super) fn tell_untried(&self, context: &Context<'_>) {
        if let Some(why) = self.prober.untried() {
            context.status("Untried", &format!("devices with memory of others: {why}"));
        }
    }

    /// What is asked of memory, with each use by each device that may be meant: any of them may share it.
    pub(super) fn shared(&self, usage: &Usage, uses: &[Use]) -> Usage {
        let meant = |wanted: &Use| {
            let devices = devices(&self.found, wanted).unwrap_or_default().into_iter();
            let of =
                |device: &dyn Device| Use { device: device.info().name.clone(), ..wanted.clone() };
            devices.map(of).collect::<Vec<_>>()
        };
        Usage { uses: uses.iter().flat_map(meant).collect(), ..usage.clone() }
    }

    /// What devices of this machine offer for a use, with what is found out by trial.
    pub(super) fn candidates(
        &self,
        context: &Context<'_>,
        wanted: &Use,
        usage: &Usage,
    ) -> Result<Vec<Candidate>, Report> {
        let asked = ask_each(context, &self.found, wanted, |device, of| {
            self.prober.offer_for(device, usage, of, &self.found.devices)
        })?;
        let candidate = |(of, answer): (Use, Option<(Offer, Vec<Refusal>)>)| {
            let (offer, refusals) =
                answer.unwrap_or_else(|| (Offer { of, sets: Vec::new() }, Vec::new()));
            Candidate::here(offer, refusals)
        };
        let mut candidates: Vec<Candidate> = asked.into_iter().map(candidate).collect();
        // Who can do something comes first.
        candidates.sort_by_key(|candidate| candidate.offer.sets.is_empty());
        Ok(candidates)
    }

    /// Makes the memory, tried on those of the users that are here.
    fn make(
        &self,
        description: &Description,
        elsewhere: &[usize],
    ) -> nvabi_devmem::Result<(Made, Allocator)> {
        let devices = &self.found.devices;
        let made = self.prober.make_here(devices, description, elsewhere)?;
        let node =
            self.device(&made.by).map(|device| device.info().node.clone()).unwrap_or_default();
        let allocator = Allocator { device: made.by.clone(), node, request: made.request.clone() };
        Ok((made, allocator))
    }
}

/// Asks each device that a use may mean; `None` of those that cannot do this, such as with a detail that they do not
/// know. What cannot be asked is told, and an error where nothing else is there.
pub(super) fn ask_each<T>(
    context: &Context<'_>,
    found: &Found,
    wanted: &Use,
    ask: impl Fn(&dyn Device, &Use) -> nvabi_devmem::Result<T>,
) -> Result<Vec<(Use, Option<T>)>, Report> {
    let (mut asked, mut unasked) = (Vec::new(), Vec::new());
    for device in devices(found, wanted)? {
        let of = Use { device: device.info().name.clone(), ..wanted.clone() };
        match ask(device, &of) {
            Ok(answer) => asked.push((of, Some(answer))),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                context.status("Refused", &error.to_string());
                asked.push((of, None));
            }
            Err(error) => unasked.push(format!("cannot query {}: {error}", of.device)),
        }
    }
    if asked.is_empty() {
        let errors = unasked.into_iter().map(|error| Diagnostic::error("alloc-device", error));
        return Err(Report { diagnostics: errors.collect() });
    }
    super::tell_skipped(context, &unasked);
    Ok(asked)
}

/// The device of this name; else all that have the part that the name stands for, and do this.
fn devices<'f>(found: &'f Found, wanted: &Use) -> Result<Vec<&'f dyn Device>, Report> {
    let devices = || found.devices.iter().map(|device| &**device);
    if let Some(named) = devices().find(|device| device.info().name == wanted.device) {
        return Ok(vec![named]);
    }
    let part = part(&wanted.device).filter(|part| part.contains(&wanted.operation));
    let does = |device: &&dyn Device| device.info().operations.contains(&wanted.operation);
    let able: Vec<&dyn Device> =
        devices().filter(|device| part.is_some() && does(device)).collect();
    if !able.is_empty() {
        return Ok(able);
    }
    let names: Vec<String> = devices().map(|device| device.info().name.clone()).collect();
    let message = format!("no device of this machine matches {wanted}");
    Err(Diagnostic::error("alloc-no-device", message)
        .note(format!("this machine has {}", names.join(", ")))
        .help("`nvabi alloc devices` lists devices; `plan --offers FILE` adds those of other machines")
        .into())
}

/// What a device is for, and what it does then.
fn part(name: &str) -> Option<&'static [Operation]> {
    use Operation::{
        Capture, ConvertRead, ConvertWrite, Copy, CpuRead, CpuWrite, Decode, Encode, Render,
        Scanout, Texture,
    };
    match name {
        "cpu" => Some(&[CpuRead, CpuWrite]),
        "gpu" => Some(&[Texture, Render, Copy]),
        "display" => Some(&[Scanout]),
        "camera" => Some(&[Capture]),
        "encoder" => Some(&[Encode]),
        "decoder" => Some(&[Decode]),
        "converter" => Some(&[ConvertRead, ConvertWrite]),
        _ => None,
    }
}

/// One candidate of each list, in every way while there are not too many, and whether these are all; the first of each
/// come first.
fn choices<T>(candidates: &[Vec<T>]) -> (Vec<Vec<&T>>, bool) {
    let choices = candidates.iter().fold(vec![Vec::new()], |choices, list| {
        let longer = choices.iter().flat_map(|choice| {
            list.iter().map(move |candidate| [&choice[..], &[candidate]].concat())
        });
        longer.take(MOST_CHOICES).collect()
    });
    let all = candidates.iter().try_fold(1_usize, |all, list| all.checked_mul(list.len()));
    let complete = all.is_some_and(|all| all == choices.len());
    (choices, complete)
}

/// Why nothing serves.
enum Failure {
    /// The offers do not go together.
    Apart(Image, Box<nvabi_devmem::Explanation>, Vec<Refusal>),
    /// They do, and no memory serves.
    NoMemory(Usage, Vec<String>, Vec<Refusal>),
}

/// What `--json` prints where offers do not go together.
#[derive(Serialize)]
struct Apart<'f> {
    #[serde(flatten)]
    explanation: &'f nvabi_devmem::Explanation,
    refusals: &'f [Refusal],
}

impl Failure {
    /// The same in a line.
    fn line(&self) -> String {
        match self {
            Self::Apart(_, explanation, _) => {
                explanation.to_string().lines().next().unwrap_or_default().to_owned()
            }
            Self::NoMemory(_, reasons, _) => reasons.join("; "),
        }
    }

    fn tell(&self, context: &Context<'_>) -> Result<(), Report> {
        let (Self::Apart(_, _, refusals) | Self::NoMemory(_, _, refusals)) = self;
        tell_refusals(context, refusals);
        match self {
            Self::Apart(_, explanation, refusals) if context.json() => {
                context.print_json(&Apart { explanation, refusals })
            }
            Self::Apart(image, explanation, _) => context.print(&format!("{image}: {explanation}")),
            Self::NoMemory(usage, reasons, refusals) if context.json() => context.print_json(
                &serde_json::json!({ "usage": usage, "reasons": reasons, "refusals": refusals }),
            ),
            Self::NoMemory(usage, reasons, _) => {
                let reasons: String =
                    reasons.iter().map(|reason| format!("  {reason}\n")).collect();
                context.print(&format!("no memory serves {}\n{reasons}", words(usage)))
            }
        }
    }
}

pub(super) fn tell_refusals(context: &Context<'_>, refusals: &[Refusal]) {
    for refusal in refusals {
        context.status("Refused", &refusal.to_string());
    }
}

/// Plans with one device for each use: the cheapest set that can be laid out, and whose memory is made where
/// that can be tried; where none can be laid out, the cheapest.
fn attempt(
    machine: Option<&Machine>,
    asked: &Usage,
    offers: &[Offer],
    elsewhere: &[usize],
    refusals: Vec<Refusal>,
) -> Result<(Plan, Option<Buffer>), Failure> {
    let Derived { mut sets, complete } = match plan(offers) {
        Ok(derived) => derived,
        Err(explanation) => return Err(Failure::Apart(asked.image, explanation, refusals)),
    };
    let usage =
        Usage { uses: offers.iter().map(|offer| offer.of.clone()).collect(), ..asked.clone() };
    if let Some(machine) = machine {
        machine.prober.sort(&machine.found.devices, &usage, elsewhere, &mut sets);
    }
    let mut reasons = Vec::new();
    let mut chosen = None;
    for (at, set) in sets.iter().enumerate() {
        // What only a driver can lay out is for a device of this machine to make.
        let found = match machine {
            Some(_) => layout_of(&asked.image, set),
            None => solve(&asked.image, set),
        };
        let layout = match found {
            Ok(layout) => layout,
            Err(error) => {
                let is_final = !matches!(error, LayoutError::UnknownModifier(_));
                reasons.push((error.to_string(), is_final));
                continue;
            }
        };
        if let Some(what) = wrong_files(set, &layout) {
            reasons.push((what, true));
            continue;
        }
        let description = Description {
            usage: usage.clone(),
            set: set.clone(),
            layout: layout.clone(),
            metadata: Vec::new(),
        };
        match machine.map(|machine| machine.make(&description, elsewhere)).transpose() {
            Ok(made) => {
                let (made, allocator) = made.unzip();
                let (buffer, proofs) = made.map(|made| (made.buffer, made.proofs)).unzip();
                // Who makes the memory may lay the pixels out.
                let layout =
                    buffer.as_ref().map_or(layout, |made| made.description().layout.clone());
                chosen = Some((at, Some(layout), allocator, buffer, proofs.unwrap_or_default()));
                break;
            }
            Err(error) => {
                // A device of another machine may make a modifier; what is implicit, only its own GPU makes.
                let layout = &description.layout;
                let theirs = layout.is_open()
                    && layout.modifier != MODIFIER_INVALID
                    && !elsewhere.is_empty();
                reasons.push((error.to_string(), !theirs));
            }
        }
    }
    // What only its driver can lay out serves all the same.
    let by_its_driver = || reasons.iter().position(|(_, is_final)| !is_final);
    let chosen = chosen.or_else(|| Some((by_its_driver()?, None, None, None, Vec::new())));
    let reason = |at: usize| reasons.get(at).map(|(reason, _)| reason.clone()).unwrap_or_default();
    let Some((at, layout, allocator, buffer, proofs)) = chosen else {
        let mut reasons: Vec<String> = reasons.into_iter().map(|(reason, _)| reason).collect();
        // Sets that fail alike are told once.
        reasons.dedup();
        return Err(Failure::NoMemory(usage, reasons, refusals));
    };
    let no_layout = if layout.is_none() { reason(at) } else { String::new() };
    // Of others that were tried no memory can be made.
    let may_serve = |place: usize| reasons.get(place).is_none_or(|(_, is_final)| !is_final);
    let others = sets.iter().enumerate().filter(|(place, _)| *place != at && may_serve(*place));
    let others = others.map(|(_, set)| set.clone()).collect();
    let planned = sets.swap_remove(at);
    // What devices turned out to need is part of it.
    let set = buffer.as_ref().map_or(planned, |made| made.description().set.clone());
    Ok((
        Plan { usage, set, layout, allocator, proofs, others, complete, refusals, no_layout },
        buffer,
    ))
}

/// Planes are in one file, or in one each. Of a layout that is open, who lays it out says how many there are.
fn wrong_files(set: &CapabilitySet, layout: &Layout) -> Option<String> {
    let files = set.constraint(ConstraintName::FILES).unwrap_or(1);
    let planes = layout.planes.len() as u64;
    (files != 1 && files != planes && !layout.is_open())
        .then(|| format!("{files} files for {planes} planes"))
}

fn words(usage: &Usage) -> String {
    let uses: Vec<String> = usage.uses.iter().map(Use::to_string).collect();
    format!("{} for {}", usage.image, uses.join(", "))
}

impl Plan {
    /// Which devices stand for parts, and what was refused.
    fn tell(&self, context: &Context<'_>, wanted: &[Use]) {
        for (chosen, wanted) in self.usage.uses.iter().zip(wanted) {
            if chosen != wanted {
                context.status("Chose", &format!("{} for {wanted}", chosen.device));
            }
        }
        tell_refusals(context, &self.refusals);
        super::tell_whether_all(context, self.complete);
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n\n", words(&self.usage));
        // Writing to a string cannot fail.
        for capability in self.set.capabilities.iter() {
            let _ = writeln!(text, "{:<18} {capability}", "capability");
        }
        for constraint in &self.set.constraints {
            let shown = constraint.to_string();
            let (name, value) = shown.split_once(' ').unwrap_or((&shown, ""));
            let _ = writeln!(text, "{name:<18} {value}");
        }
        if let Some(Allocator { device, request, .. }) = &self.allocator {
            let _ = writeln!(text, "{:<18} {device}\n{:<18} {request}", "allocator", "request");
        }
        for Proof { of, by } in &self.proofs {
            let _ = writeln!(text, "{:<18} {of} by {by}", "proved");
        }
        text.push('\n');
        self.write_layout(&mut text);
        for other in &self.others {
            let _ = writeln!(text, "\nalso: {other}");
        }
        text
    }

    fn write_layout(&self, text: &mut String) {
        let Some(layout) = &self.layout else {
            let _ = writeln!(text, "no layout: {}", self.no_layout);
            return;
        };
        let _ = writeln!(text, "{:>5} {:>12} {:>12} {:>12}", "plane", "offset", "pitch", "size");
        for (at, plane) in layout.planes.iter().enumerate() {
            let (offset, pitch, size) = (plane.offset, plane.pitch, plane.size);
            let _ = writeln!(text, "{at:>5} {offset:>12} {pitch:>12} {size:>12}");
        }
        let _ = writeln!(text, "{:>5} {:>38}", "all", layout.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_that_are_not_tried_are_known() {
        let tried = |lists: &[Vec<u8>]| {
            let (choices, complete) = choices(lists);
            (choices.len(), choices.first().map(|first| first.len()), complete)
        };
        assert_eq!(tried(&[vec![1, 2], vec![3]]), (2, Some(2), true));
        assert_eq!(tried(&vec![vec![1, 2]; 6]), (64, Some(6), true));
        assert_eq!(tried(&vec![vec![1, 2]; 7]), (64, Some(7), false));
        assert_eq!(tried(&[vec![1; 65]]), (64, Some(1), false));
        assert_eq!(tried(&vec![vec![1; 255]; 64]), (64, Some(64), false));
        assert_eq!(tried(&[vec![1], vec![]]), (0, None, true));
    }
}
