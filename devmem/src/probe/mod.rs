//! What devices need and do not say: found out by letting them take memory, and remembered.

mod answers;
mod trial;

use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::buffer::{Buffer, Description};
use super::capability::{Capability, CapabilitySet, MODIFIER_LINEAR};
use super::constraint::{self, Constraint, ConstraintName};
use super::driver::{Device, DeviceInfo, Shown};
use super::drivers;
use super::error::{Error, ErrorKind, Result};
use super::explain::{Offer, plan};
use super::layout::{Layout, layout_of, solve};
use super::memory;
use super::usage::{Image, Operation, Usage, Use};
use answers::{Answer, Answers, Question, is_tried_with};
use trial::{
    Foreign, Found, ONE_PIECE, Trial, allocators, asked_to_try, made_to_try, makes_as_it_sees_fit,
};

/// How many answers are remembered unless it is said.
const CAPACITY: usize = 1024;

/// Memory that a device is tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Tried {
    /// Memory of another, in pages from anywhere.
    Scattered,
    /// Memory of another, in one piece.
    OnePiece,
    /// The device's own.
    Own,
    /// Memory of another node of the same GPU.
    Sibling,
    /// Memory of another device that is to use it, made as that sees fit.
    Partner,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scattered => "scattered memory",
            Self::OnePiece => "memory in one piece",
            Self::Own => "its own memory",
            Self::Sibling => "memory of another node of its GPU",
            Self::Partner => "memory of another user",
        })
    }
}

/// What a device did not take, and why: a fact about the device that rules one way out and no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Which device, and what for.
    #[serde(rename = "use")]
    pub of: Use,
    /// The DRM format modifier that was tried.
    #[serde(serialize_with = "super::modifier::serialize")]
    pub modifier: u64,
    /// Bytes from one row of the first plane to the next; 0 where only a driver knows.
    pub pitch: u64,
    /// Which memory it was.
    pub tried: Tried,
    /// The device that made it, of what another user makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maker: Option<String>,
    /// What the device, or the kernel, said.
    pub reason: String,
    /// Whether that says nothing of the memory: the device was busy, or something ran out. At another time it may be
    /// taken.
    pub passing: bool,
}

impl Refusal {
    fn new(of: &Use, layout: &Layout, tried: Tried, error: &Error) -> Self {
        let pitch = layout.planes.first().map_or(0, |plane| plane.pitch);
        let (of, modifier, reason) = (of.clone(), layout.modifier, error.to_string());
        let passing = error.is_passing();
        Self { of, modifier, pitch, tried, maker: None, reason, passing }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, modifier, pitch, tried, maker, reason, passing } = self;
        write!(f, "{of} ")?;
        match *modifier {
            MODIFIER_LINEAR => write!(f, "in rows of {pitch} bytes")?,
            modifier => write!(f, "with {}", Capability::modifier(modifier))?,
        }
        let verb = if *passing { "could not be tried with" } else { "does not take" };
        match maker {
            Some(maker) => write!(f, " {verb} memory of {maker}: {reason}"),
            None => write!(f, " {verb} {tried}: {reason}"),
        }
    }
}

/// Memory that was made, and how.
#[derive(Debug)]
pub struct Made {
    /// The memory.
    pub buffer: Buffer,
    /// The name of the device that made it.
    pub by: String,
    /// What that device was asked for, in a line for people.
    pub request: String,
    /// What proves that displays show it.
    pub proofs: Vec<Proof>,
}

/// What proves that a display shows memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The display.
    #[serde(rename = "use")]
    pub of: Use,
    /// What was tried.
    pub by: Shown,
}

/// Chooses who makes memory, by trying it on all who are to use it.
#[derive(Debug)]
pub struct Prober {
    foreign: Foreign,
    preferred: Vec<String>,
    answers: Mutex<Answers>,
    untried: Mutex<Option<String>>,
}

impl Default for Prober {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl Prober {
    /// Remembers so many answers; those that were not asked for the longest go first.
    pub fn new(capacity: usize) -> Self {
        let answers = Mutex::new(Answers::new(capacity));
        let foreign = Foreign {
            scatter: drivers::scattered,
            one_piece: drivers::one_piece,
            most: drivers::most_scattered,
            driver: drivers::kernel_driver,
        };
        Self { foreign, preferred: Vec::new(), answers, untried: Mutex::default() }
    }

    /// Why devices were believed what they say, where memory to try them with could not be made.
    pub fn untried(&self) -> Option<String> {
        self.untried.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks these devices for memory first, by their names and in this order, and others by their costs: which
    /// heap is to be spared, only those who set a machine up know.
    pub fn prefer(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.preferred = names.into_iter().collect();
        self
    }

    /// What a device needs for this besides what it says: whether the memory must be in one piece, or its own. Of
    /// several ways it is the freest.
    ///
    /// It is asked once for each operation, format, modifier, kind of size, what the memory keeps to (but for whose it
    /// is) and the names of those that make memory: afterwards the answer is remembered, until its file in `/dev` is
    /// made anew. That it takes nothing is remembered for the very size and rows alone; what it needs, for images that
    /// are no smaller. A device that refuses rows is tried with rows further apart. Where nothing makes memory to try,
    /// nothing is found out: [`Self::untried`].
    ///
    /// The other uses in the description are those it is to share memory with: where it takes neither scattered memory
    /// nor what can be had in one piece, it is tried with what their devices make.
    ///
    /// # Errors
    ///
    /// When the device takes neither memory of others nor its own, with what it said to each; and errors that
    /// say nothing about the memory, such as that the device is busy.
    pub fn needs(
        &self,
        device: &dyn Device,
        operation: Operation,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> Result<Vec<Constraint>> {
        let of = use_of(device.info(), operation, &description.usage);
        let ways = self.ways(device, &of, description, devices).map_err(|failed| failed.error)?;
        Ok(ways.into_iter().next().unwrap_or_default())
    }

    /// The ways in which a device takes memory, each with what it needs then: the freest first, and one at least.
    fn ways(
        &self,
        device: &dyn Device,
        of: &Use,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> Outcome<Vec<Vec<Constraint>>> {
        let answer = self.answer(device, of, description, devices);
        let Answer { ways, refusals, .. } = answer.map_err(|(failed, _)| failed)?;
        if ways.is_empty() {
            let reasons: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
            return Err(Error::unsupported(reasons.join("; ")).into());
        }
        Ok(ways)
    }

    /// The same among what others ask. Where it takes nobody's memory that keeps to that, such as a heap's near a GPU,
    /// it is asked without which heap it is, then without all that is asked of memory: who makes memory for all keeps to
    /// all. A device that asks for its own already is not.
    fn ways_among(
        &self,
        device: &dyn Device,
        of: &Use,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> Outcome<Vec<Vec<Constraint>>> {
        let asked = &description.set.constraints;
        let adds_no_maker = |need: &Constraint| is_tried_with(need) || asked.contains(need);
        let is_free = |way: &Vec<Constraint>| way.iter().all(adds_no_maker);
        let mut found = self.ways(device, of, description, devices);
        let mut freer = description.clone();
        for is_lifted in [memory::is_of_heap, memory::is_of_memory] {
            let is_enough = match &found {
                Ok(ways) => ways.iter().any(is_free),
                Err(failed) => failed.is_busy,
            };
            if is_enough {
                break;
            }
            let before = freer.set.constraints.len();
            freer.set.constraints.retain(|asked| !is_lifted(asked.name));
            if freer.set.constraints.len() == before {
                continue;
            }
            found = match (found, self.ways(device, of, &freer, devices)) {
                (Ok(ways), Ok(more)) => Ok([ways, more].concat()),
                (found, freer) => found.or(freer),
            };
        }
        let mut ways: Vec<Vec<Constraint>> = Vec::new();
        for way in without_superfluous(found?, asked) {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        Ok(ways)
    }

    /// Fails where what a device said may pass; with all that it said.
    fn answer(
        &self,
        device: &dyn Device,
        of: &Use,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> std::result::Result<Answer, (Failed, Vec<Refusal>)> {
        let others = others(device.info(), &description.usage);
        let question = Question::new(device.info(), of, description, devices);
        let known = self.answers().recall(&question, description, &others);
        if let Some(mut known) = known {
            let takes_some = !known.ways.is_empty();
            // It may have been tried with more.
            if known.others.as_ref().is_some_and(|tried| *tried != others) {
                known.ways.retain(|way| is_made_among(way, device.info(), &others, devices));
                let is_other = |maker: &String| others.iter().any(|other| other.device == *maker);
                known.refusals.retain(|it| it.maker.as_ref().is_none_or(is_other));
            }
            // That it takes nothing is known of the very image alone.
            if !takes_some || !known.ways.is_empty() {
                return Ok(known);
            }
        }
        // What else the device is to do is another question.
        let mut asked = description.clone();
        asked.usage.uses = vec![of.clone()];
        asked.set.constraints.retain(is_tried_with);
        let mut trial = Trial::new(of.clone(), device, &asked, &others);
        let found = trial.run(self, devices);
        let is_busy = trial.passing.is_some();
        let passing = trial.passing.take().or(trial.lacking.take());
        let (Found { ways, is_proved }, refusals) = (found, trial.refusals);
        let others = trial.tried_others.take();
        let answer = Answer { ways, refusals, others };
        match passing {
            Some(error) if answer.ways.is_empty() => {
                return Err((Failed { error, is_busy }, answer.refusals));
            }
            // What it takes instead is right now, and may be too strict at another time; so may what nobody proved.
            Some(_) => return Ok(answer),
            None if !is_proved => return Ok(answer),
            None => {}
        }
        let mut known = answer.clone();
        // Who had no memory left may have some then.
        known.refusals.retain(|refusal| !refusal.passing);
        self.answers().remember(question, description, known);
        Ok(answer)
    }

    /// The sets of a device, with what it needs besides: to derive from instead of [`Device::sets`]. Those that
    /// it does not keep to when it is tried are left out; [`Self::offer`] says why.
    ///
    /// # Errors
    ///
    /// As [`Device::sets`].
    pub fn sets(
        &self,
        device: &dyn Device,
        image: &Image,
        operation: Operation,
        devices: &[Box<dyn Device>],
    ) -> Result<Vec<CapabilitySet>> {
        Ok(self.offer(device, image, operation, devices)?.0.sets)
    }

    /// What a device offers when it is tried, and what it refused.
    ///
    /// # Errors
    ///
    /// As [`Device::sets`].
    pub fn offer(
        &self,
        device: &dyn Device,
        image: &Image,
        operation: Operation,
        devices: &[Box<dyn Device>],
    ) -> Result<(Offer, Vec<Refusal>)> {
        let of = Use::new(device.info().name.clone(), operation);
        self.offer_for(device, &Usage::new(*image, Vec::new()), &of, devices)
    }

    /// The same for all that is asked of one use, which is to share memory with the others in `usage`: it may be tried
    /// with what their devices make.
    ///
    /// # Errors
    ///
    /// As [`Device::sets_for`].
    pub fn offer_for(
        &self,
        device: &dyn Device,
        usage: &Usage,
        wanted: &Use,
        devices: &[Box<dyn Device>],
    ) -> Result<(Offer, Vec<Refusal>)> {
        let of = Use { device: device.info().name.clone(), ..wanted.clone() };
        let image = &usage.image;
        let (mut sets, mut refusals) = (Vec::new(), Vec::new());
        for set in device.sets_for(usage, &of)? {
            // Where nothing is known of the layout, there is nothing to try.
            let layout = solve(image, &set).ok().filter(|_| device.info().imports);
            let Some(layout) = layout else {
                sets.push(set);
                continue;
            };
            let usage = usage.clone();
            let description = Description { usage, set, layout, metadata: Vec::new() };
            let found = self.answer(device, &of, &description, devices);
            let (ways, told) = found.map_or_else(
                |(_, refusals)| (Vec::new(), refusals),
                |answer| (answer.ways, answer.refusals),
            );
            refusals.extend(told);
            let before = sets.len();
            let mut conflict = None;
            for way in without_superfluous(ways, &description.set.constraints) {
                match merged(device, &description.set.constraints, &way) {
                    Ok(constraints) => {
                        sets.push(CapabilitySet { constraints, ..description.set.clone() });
                    }
                    Err(error) => conflict = Some(error),
                }
            }
            // What it takes is not what it offers.
            if let Some(error) = conflict.filter(|_| sets.len() == before) {
                refusals.push(Refusal::new(&of, &description.layout, Tried::Own, &error));
            }
        }
        refusals.dedup();
        Ok((Offer { of, sets }, refusals))
    }

    /// Makes memory that all of `devices` which are to use it take: by the cheapest of them that
    /// makes memory as described. Those that are to use it are in the description, by name; what
    /// turns out to be needed becomes part of it.
    ///
    /// # Errors
    ///
    /// When a device is not there, when what they need cannot be merged, and when no memory serves:
    /// with what came of each.
    pub fn allocate(
        &self,
        devices: &[Box<dyn Device>],
        description: &Description,
    ) -> Result<Buffer> {
        self.make(devices, description).map(|made| made.buffer)
    }

    /// As [`Self::allocate`], and tells who made the memory and how.
    ///
    /// # Errors
    ///
    /// As [`Self::allocate`].
    pub fn make(&self, devices: &[Box<dyn Device>], description: &Description) -> Result<Made> {
        self.make_here(devices, description, &[])
    }

    /// The same where some of the uses are elsewhere, such as in another process, whatever their devices are called:
    /// those at these places in the description. They are not tried, and memory is made by who knows that it is what
    /// they need.
    ///
    /// # Errors
    ///
    /// As [`Self::make`], but for the devices that are elsewhere.
    pub fn make_here(
        &self,
        devices: &[Box<dyn Device>],
        description: &Description,
        elsewhere: &[usize],
    ) -> Result<Made> {
        let asked = &description.usage;
        let is_here = |at: &usize| !elsewhere.contains(at);
        let uses: Vec<Use> =
            (0..asked.uses.len()).filter(is_here).map(|at| asked.uses[at].clone()).collect();
        let users = users(devices, uses.iter())?;
        let of = Party::new(devices, asked, &users);
        // Devices know which uses are theirs by their names.
        let usage = Usage { uses: uses.clone(), ..asked.clone() };
        let made = self.make_for(&of, &users, Description { usage, ..description.clone() }, &[]);
        made.map_err(|failed| failed.error)
    }

    /// Asks one user after the other what it needs, and tries each way until memory is made. `whole` are those before
    /// that were found to need memory in one piece.
    fn make_for(
        &self,
        of: &Party<'_>,
        left: &[(&dyn Device, &Use)],
        description: Description,
        whole: &[&DeviceInfo],
    ) -> Outcome<Made> {
        let Some(((device, wanted), left)) = left.split_first() else {
            return Ok(self.make_as(of, &description, whole)?);
        };
        // Memory whose layout is open cannot be made to try.
        if !device.info().imports || description.layout.is_open() {
            return self.make_for(of, left, description, whole);
        }
        let mut ways = self.ways_among(*device, wanted, &description, of.devices)?;
        ways.sort_by_cached_key(|way| {
            let description = with_needs(*device, &description, way);
            description.map_or(Rank::LAST, |it| self.rank(of, &it))
        });
        let mut failed: Vec<Error> = Vec::new();
        for way in &ways {
            let mut whole = whole.to_vec();
            whole.extend(way.contains(&ONE_PIECE).then(|| device.info()));
            let made = with_needs(*device, &description, way)
                .map_err(Failed::from)
                .and_then(|description| self.make_for(of, left, description, &whole));
            match made {
                Ok(made) => return Ok(made),
                // The next way would find it as busy.
                Err(busy) if busy.is_busy => return Err(busy),
                Err(other) => failed.push(other.error),
            }
        }
        let texts: Vec<String> = failed.iter().map(Error::to_string).collect();
        if texts.iter().all(|text| Some(text) == texts.first()) {
            return Err(failed.remove(0).into());
        }
        let each = ways.iter().zip(texts).map(|(way, text)| match &way[..] {
            [] => text,
            way => format!("where {wanted} needs {}: {text}", listed(way)),
        });
        Err(Error::unsupported(each.collect::<Vec<_>>().join("; ")).into())
    }

    /// Who is asked for memory, in order: those that are preferred, then others by their costs. One that sets itself up
    /// to make memory, as a camera does, and is to take no part is asked last.
    fn makers<'d>(
        &self,
        devices: &'d [Box<dyn Device>],
        users: &[(&dyn Device, &Use)],
        description: &Description,
    ) -> Vec<(Rank, &'d dyn Device)> {
        let place = |name: &String| self.preferred.iter().position(|known| known == name);
        let is_user = |name: &String| users.iter().any(|(_, of)| of.device == *name);
        let rank = |device: &dyn Device| {
            let name = &device.info().name;
            let is_stranger = makes_as_it_sees_fit(device) && !is_user(name);
            let cost = device.cost(&description.set);
            let is_open = description.set.constraint(ConstraintName::MADE_BY).is_none();
            Rank { place: place(name).unwrap_or(usize::MAX), is_stranger, cost, is_open }
        };
        let makers = allocators(description, devices).map(|device| (rank(device), device));
        let mut makers: Vec<(Rank, &dyn Device)> = makers.collect();
        makers.sort_by_key(|(rank, _)| *rank);
        makers
    }

    /// That of the first who can make memory as described; what users would prove of it by taking it is taken for so.
    fn rank(&self, of: &Party<'_>, description: &Description) -> Rank {
        let can = |device: &dyn Device| {
            let Some(memory) = device.memory() else { return true };
            let is_foreign = |user: &DeviceInfo| user.imports && !user.is_of(device.info());
            // Who needs that, turns out when the memory is made.
            let is_whole = makes_as_it_sees_fit(device)
                && of.users.iter().any(|(user, _)| is_foreign(user.info()));
            let asked = asked_to_try(device, description, |asked| of.tries(asked, is_whole));
            memory.serves_of(Some(device.info()), &asked).is_ok()
        };
        let makers = self.makers(of.devices, of.users, description);
        let first = makers.into_iter().find(|(_, device)| can(*device));
        first.map_or(Rank::LAST, |(rank, _)| rank)
    }

    /// Sorts sets by what they cost their users, of which those at some places are elsewhere; those of the same
    /// capabilities that cost the same by who would make the memory: first who is preferred, then who is cheapest, as
    /// far as that is known before it is made.
    pub fn sort(
        &self,
        devices: &[Box<dyn Device>],
        usage: &Usage,
        elsewhere: &[usize],
        sets: &mut [CapabilitySet],
    ) {
        let here = || usage.uses.iter().enumerate().filter(|(at, _)| !elsewhere.contains(at));
        let device = |of: &Use| devices.iter().find(|device| device.info().name == of.device);
        let users: Vec<(&dyn Device, &Use)> =
            here().filter_map(|(_, of)| Some((device(of)?.as_ref(), of))).collect();
        let of = Party::new(devices, usage, &users);
        let given: Vec<_> = sets.iter().map(|set| set.capabilities.clone()).collect();
        sets.sort_by_cached_key(|set| {
            let costs = users.iter().map(|(device, _)| device.cost(set));
            let place = given.iter().position(|capabilities| *capabilities == set.capabilities);
            let layout = layout_of(&usage.image, set).ok();
            let rank = layout.map_or(Rank::LAST, |layout| {
                let (usage, set) = (usage.clone(), set.clone());
                let description = Description { usage, set, layout, metadata: Vec::new() };
                self.rank(&of, &description)
            });
            (costs.fold(0, u64::saturating_add), place, rank)
        });
    }

    /// Makes memory as it is described now, by the cheapest that makes what all take.
    fn make_as(
        &self,
        of: &Party<'_>,
        description: &Description,
        whole: &[&DeviceInfo],
    ) -> Result<Made> {
        let mut refusals: Vec<(Vec<String>, String)> = Vec::new();
        let makers = self.makers(of.devices, of.users, description);
        for (_, allocator) in makers {
            let by = allocator.info().name.clone();
            // Of its own memory, a device proves nothing.
            let is_whole = whole.iter().any(|user| !user.is_of(allocator.info()));
            let is_tried = |asked| of.tries(asked, is_whole);
            match self.try_allocator(allocator, of.users, is_tried, description) {
                Ok((buffer, proofs)) => {
                    let set = buffer.description().set.clone();
                    let buffer = buffer.said(of.asked.clone(), set);
                    let request = match description.files() {
                        1 => allocator.request(description),
                        _ => allocator.request_files(description),
                    };
                    return Ok(Made { buffer, by, request, proofs });
                }
                Err(error) => {
                    let error = error.to_string();
                    match refusals.iter_mut().find(|(_, known)| *known == error) {
                        Some((names, _)) => names.push(by),
                        None => refusals.push((vec![by], error)),
                    }
                }
            }
        }
        let what = if refusals.is_empty() {
            nobody(description, of.devices)
        } else {
            let each = refusals.iter().map(|(names, why)| format!("{}: {why}", names.join(", ")));
            format!("no memory serves all: {}", each.collect::<Vec<_>>().join("; "))
        };
        Err(Error::unsupported(what))
    }

    /// The sets that serve all uses of devices by their names, the cheapest first.
    ///
    /// # Errors
    ///
    /// When a device is not there or cannot be asked, and when none serves all: with the explanation, and what
    /// devices refused.
    pub fn sets_for(
        &self,
        devices: &[Box<dyn Device>],
        usage: &Usage,
    ) -> Result<Vec<CapabilitySet>> {
        let users = users(devices, usage.uses.iter())?;
        let (mut offers, mut refusals) = (Vec::new(), Vec::new());
        for (device, wanted) in &users {
            let (offer, refused) = self.offer_for(*device, usage, wanted, devices)?;
            offers.push(offer);
            refusals.extend(refused);
        }
        let mut sets = plan(&offers).map_err(|why| {
            let refusals = refusals.iter().map(|refusal| format!("{refusal}\n"));
            Error::unsupported(refusals.fold(why.to_string(), |text, refusal| text + &refusal))
        })?;
        self.sort(devices, usage, &[], &mut sets.sets);
        Ok(sets.sets)
    }

    /// Makes memory for uses of devices by their names: as the cheapest set that is `wanted` and has a layout.
    ///
    /// # Errors
    ///
    /// As [`Self::sets_for`], and when no memory can be made: with what came of each set.
    pub fn serve(
        &self,
        devices: &[Box<dyn Device>],
        usage: &Usage,
        wanted: impl Fn(&CapabilitySet) -> bool,
    ) -> Result<Made> {
        let sets = self.sets_for(devices, usage)?;
        let (sets, others): (Vec<CapabilitySet>, Vec<CapabilitySet>) =
            sets.into_iter().partition(wanted);
        let mut reasons = Vec::new();
        for set in sets {
            let layout = layout_of(&usage.image, &set);
            let layout = layout.map_err(|why| Error::unsupported(why.to_string()));
            let usage = usage.clone();
            let made = layout.and_then(|layout| {
                self.make(devices, &Description { usage, set, layout, metadata: Vec::new() })
            });
            match made {
                Ok(made) => return Ok(made),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        if reasons.is_empty() {
            // Each use has the capabilities of a set that serves all of them.
            let mut serve: Vec<String> =
                others.iter().map(|set| words(&set.capabilities)).collect();
            serve.sort_unstable();
            serve.dedup();
            let serve = serve.join(", ");
            reasons.push(format!(
                "none of the wanted modifiers serves all uses, but these do: {serve}"
            ));
        }
        Err(Error::unsupported(reasons.join("; ")))
    }

    fn try_allocator(
        &self,
        allocator: &dyn Device,
        users: &[(&dyn Device, &Use)],
        is_tried: impl Fn(Constraint) -> bool,
        description: &Description,
    ) -> Result<(Buffer, Vec<Proof>)> {
        let untouchable = |(user, wanted): &(&dyn Device, &Use)| {
            self.foreign.untouchable(allocator.info(), user.info(), wanted.operation)
        };
        if let Some(error) = users.iter().find_map(untouchable) {
            return Err(error);
        }
        let buffer = made_to_try(allocator, description, is_tried)?;
        let keeps = buffer.description().layout.keeps(&description.set);
        keeps.map_err(|what| Error::new(ErrorKind::Mismatch, what))?;
        // Where nobody asked, a device that chooses layouts chooses files as well.
        let asked = description.set.constraint(ConstraintName::FILES);
        let files = buffer.pieces().len() as u64;
        if let Some(asked) = asked.filter(|asked| *asked != files) {
            let what = format!("memory in {files} files, and {asked} are asked for");
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let mut proofs = Vec::new();
        for (user, wanted) in users {
            // Who only makes memory, such as a heap, takes what it made itself.
            if user.info().imports {
                let shown = user.import(&buffer)?.shown();
                proofs.extend(shown.map(|by| Proof { of: (*wanted).clone(), by }));
            } else if user.info().name != allocator.info().name {
                let what = format!("{} cannot import memory", user.info().name);
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
        }
        Ok((buffer, proofs))
    }

    /// Scattered memory to try devices with. That it cannot be made says nothing of them, and is told.
    fn scatter(&self, description: &Description) -> Result<Option<Buffer>> {
        (self.foreign.scatter)(description).inspect_err(|error| {
            let mut untried = self.untried.lock().unwrap_or_else(PoisonError::into_inner);
            untried.get_or_insert_with(|| error.to_string());
        })
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who is to have memory made, and of whom.
struct Party<'a> {
    devices: &'a [Box<dyn Device>],
    /// All that it is for, also elsewhere.
    asked: &'a Usage,
    users: &'a [(&'a dyn Device, &'a Use)],
    /// Whether all of them try it.
    all_try: bool,
}

impl<'a> Party<'a> {
    fn new(
        devices: &'a [Box<dyn Device>],
        asked: &'a Usage,
        users: &'a [(&'a dyn Device, &'a Use)],
    ) -> Self {
        let all_try = !users.is_empty()
            && users.len() == asked.uses.len()
            && users.iter().all(|(user, _)| user.info().imports);
        Self { devices, asked, users, all_try }
    }

    /// Whether they prove this of memory by taking it; `is_whole`: that it is in one piece, by who needs that.
    fn tries(&self, asked: Constraint, is_whole: bool) -> bool {
        let is_mapped = self.users.iter().any(|(_, of)| of.operation.is_cpu());
        self.all_try && memory::is_tried(asked, is_whole, is_mapped)
    }
}

/// Why no memory was made.
#[derive(Debug)]
struct Failed {
    error: Error,
    /// Whether a device was, which another way would find so too.
    is_busy: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, is_busy: false }
    }
}

type Outcome<T> = std::result::Result<T, Failed>;

/// In which order devices are asked for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Among those that are preferred.
    place: usize,
    is_stranger: bool,
    cost: u64,
    /// Whether another may make it: where it is asked for, it surely does.
    is_open: bool,
}

impl Rank {
    const LAST: Self = Self { place: usize::MAX, is_stranger: true, cost: u64::MAX, is_open: true };
}

/// The ways without those that another one makes superfluous, which asks for no more than is asked.
fn without_superfluous(
    mut ways: Vec<Vec<Constraint>>,
    asked: &[Constraint],
) -> Vec<Vec<Constraint>> {
    match ways.iter().position(|way| way.iter().all(|need| asked.contains(need))) {
        Some(at) => vec![ways.swap_remove(at)],
        None => ways,
    }
}

/// The description with what a device needs; its rows are further apart where that asks for it.
fn with_needs(
    device: &dyn Device,
    description: &Description,
    needs: &[Constraint],
) -> Result<Description> {
    let mut description = description.clone();
    description.set.constraints = merged(device, &description.set.constraints, needs)?;
    if !needs.is_empty() && description.layout.keeps(&description.set).is_err() {
        let layout = solve(&description.usage.image, &description.set);
        description.layout = layout.map_err(|why| Error::unsupported(why.to_string()))?;
    }
    Ok(description)
}

/// Constraints in a line.
fn listed(constraints: &[Constraint]) -> String {
    let words: Vec<String> = constraints.iter().map(Constraint::to_string).collect();
    words.join(" and ")
}

fn merged(
    device: &dyn Device,
    constraints: &[Constraint],
    needs: &[Constraint],
) -> Result<Vec<Constraint>> {
    let refused = |conflict| Error::unsupported(format!("{}: {conflict}", device.info().name));
    constraint::merge(constraints, needs).map_err(refused)
}

/// Why no device was asked for memory.
fn nobody(description: &Description, devices: &[Box<dyn Device>]) -> String {
    let maker = description.set.constraints.iter().find(|it| it.name == ConstraintName::MADE_BY);
    let may = |info: &&DeviceInfo| {
        info.allocates && maker.is_none_or(|maker| info.owner() == Some(maker.value))
    };
    let able: Vec<&DeviceInfo> = devices.iter().map(|device| device.info()).filter(may).collect();
    match (able.as_slice(), maker) {
        ([], None) => "no device makes memory".to_owned(),
        ([], Some(maker)) => format!("no device makes memory that is {maker}"),
        // All others were asked.
        (able, _) => {
            let names: Vec<&str> = able.iter().map(|info| info.name.as_str()).collect();
            let layout = Capability::modifier(description.layout.modifier);
            format!("no device lays pixels out with {layout}: not {}", names.join(", "))
        }
    }
}

/// The other uses of memory that a device is to share, in order.
fn others(of: &DeviceInfo, usage: &Usage) -> Vec<Use> {
    let others = usage.uses.iter().filter(|other| other.device != of.name);
    let mut others: Vec<Use> = others.cloned().collect();
    others.sort_by_cached_key(Use::to_string);
    others.dedup();
    others
}

/// Whether a way asks for memory that nobody makes in particular, or that a device or one of these others makes.
fn is_made_among(
    way: &[Constraint],
    device: &DeviceInfo,
    others: &[Use],
    devices: &[Box<dyn Device>],
) -> bool {
    let maker = way.iter().find(|need| need.name == ConstraintName::MADE_BY);
    let makes = |info: &DeviceInfo| info.owner() == maker.map(|maker| maker.value);
    let is_other = |info: &DeviceInfo| others.iter().any(|other| other.device == info.name);
    maker.is_none()
        || makes(device)
        || devices.iter().map(|device| device.info()).any(|info| is_other(info) && makes(info))
}

/// The devices that are to use the memory, and what for.
fn users<'d, 'u>(
    devices: &'d [Box<dyn Device>],
    uses: impl Iterator<Item = &'u Use>,
) -> Result<Vec<(&'d dyn Device, &'u Use)>> {
    let user = |wanted: &'u Use| {
        let found = devices.iter().find(|device| device.info().name == wanted.device);
        let missing = || Error::invalid(format!("there is no device {}", wanted.device));
        Ok((found.ok_or_else(missing)?.as_ref(), wanted))
    };
    uses.map(user).collect()
}

/// Capabilities in a line.
fn words(capabilities: &[Capability]) -> String {
    let words: Vec<String> = capabilities.iter().map(Capability::to_string).collect();
    words.join(" + ")
}

/// What a device is asked: its use in a description, and one without details where it has none there.
fn use_of(info: &DeviceInfo, operation: Operation, usage: &Usage) -> Use {
    let is_asked = |of: &&Use| of.device == info.name && of.operation == operation;
    let asked = usage.uses.iter().find(is_asked).cloned();
    asked.unwrap_or_else(|| Use::new(info.name.clone(), operation))
}

#[cfg(test)]
mod tests;
