//! One device tried with one kind of memory after the other.

use std::cell::Cell;

use nix::libc;

use crate::buffer::{Buffer, Description};
use crate::capability::MODIFIER_LINEAR;
use crate::constraint::{self, Constraint, ConstraintName};
use crate::driver::{Device, DeviceInfo};
use crate::drivers;
use crate::error::{Error, Result};
use crate::layout::{Layout, solve};
use crate::memory;
use crate::usage::{Operation, Use};

use super::{Prober, Refusal, Tried};

/// Source memory of a kind; `None` where nothing makes such.
pub(super) type Source = fn(&Description) -> Result<Option<Buffer>>;

/// How memory is made that devices are tried with, and whose they are not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreign {
    /// Memory that is in no case in one piece.
    pub(super) scatter: Source,
    /// Memory that is certainly in one piece, where no device has such.
    pub(super) one_piece: Source,
    /// The most bytes of such memory.
    pub(super) most: fn() -> u64,
    /// The kernel's driver of a device.
    pub(super) driver: fn(&DeviceInfo) -> Option<String>,
}

impl Foreign {
    /// Why a device is not to be tried with what another makes.
    pub(super) fn untouchable(
        &self,
        maker: &DeviceInfo,
        user: &DeviceInfo,
        of: Operation,
    ) -> Option<Error> {
        // Heaps and cameras are no nodes of DRM.
        let (maker, user) = ((self.driver)(maker)?, (self.driver)(user)?);
        drivers::known_to_fail(&maker, &user, of).map(Error::unsupported)
    }
}

/// One device with one kind of memory after the other, until it takes one.
pub(super) struct Trial<'t> {
    pub(super) of: Use,
    pub(super) device: &'t dyn Device,
    pub(super) description: &'t Description,
    pub(super) refusals: Vec<Refusal>,
    /// The first error of the device that says nothing about the memory.
    pub(super) passing: Option<Error>,
    /// The same of who was to make memory for it.
    pub(super) lacking: Option<Error>,
    /// The other uses that are to share memory with it.
    pub(super) others: &'t [Use],
    /// Whether scattered memory could once not be made.
    pub(super) fell_short: bool,
    /// Those whose devices made memory, or never do; `None` where it was of no interest.
    pub(super) tried_others: Option<Vec<Use>>,
}

/// What is asked for where a device takes no scattered memory.
pub(super) const ONE_PIECE: Constraint = Constraint::new(ConstraintName::CONTIGUOUS, 1);

/// Size of the page that is certainly in one piece.
const PAGE: u64 = 2 << 20;

/// What came of a trial.
pub(super) struct Found {
    /// The ways in which the device takes memory, each with what it needs then, the freest first; it may be none.
    pub(super) ways: Vec<Vec<Constraint>>,
    /// Whether there was all memory of others to try; without any, the device is believed what it says.
    pub(super) is_proved: bool,
}

/// What came of one kind of memory.
enum Taken {
    /// It is taken, and must keep to these.
    With(Vec<Constraint>),
    Not,
    /// None was made like this; with rows further apart, some may be.
    Unmade,
    /// There was none to try.
    Untried,
}

impl<'t> Trial<'t> {
    pub(super) fn new(
        of: Use,
        device: &'t dyn Device,
        description: &'t Description,
        others: &'t [Use],
    ) -> Self {
        Self {
            of,
            device,
            description,
            refusals: Vec::new(),
            passing: None,
            lacking: None,
            others,
            fell_short: false,
            tried_others: None,
        }
    }

    pub(super) fn run(&mut self, prober: &Prober, devices: &[Box<dyn Device>]) -> Found {
        let foreign = self.in_pitches(|trial, description| {
            let smaller = at_most(description, (prober.foreign.most)());
            smaller.map_or(Taken::Untried, |smaller| trial.foreign(&smaller, prober, devices))
        });
        let ways = match foreign {
            Taken::Untried | Taken::Unmade => {
                return Found { ways: self.unproved(), is_proved: false };
            }
            Taken::Not => {
                let own = self.own(devices);
                own.into_iter().chain(self.of_partners(prober, devices)).collect()
            }
            Taken::With(needs) => {
                // It takes memory of others all the same, unless what ran out is why its rows are further apart.
                if !needs.iter().any(|need| need.name == ConstraintName::PITCH_ALIGNMENT) {
                    self.lacking = None;
                }
                let own = if needs.contains(&ONE_PIECE) { self.own(devices) } else { None };
                [needs].into_iter().chain(own).collect()
            }
        };
        Found { ways, is_proved: !self.fell_short }
    }

    /// Tries rows further and further apart, until the device takes them.
    fn in_pitches(&mut self, is_taken: impl FnMut(&mut Self, &Description) -> Taken) -> Taken {
        let before = self.passing.take();
        let taken = self.in_each_pitch(is_taken);
        self.passing = before.or(self.passing.take());
        taken
    }

    /// What it said to the first rows is enough, but for what may pass: that ends it.
    fn in_each_pitch(
        &mut self,
        mut is_taken: impl FnMut(&mut Self, &Description) -> Taken,
    ) -> Taken {
        let (mut tried, mut has_said) = (false, false);
        for (coarser, description) in pitches(self.description) {
            let told = self.refusals.len();
            match is_taken(self, &description) {
                Taken::With(mut needs) => {
                    needs.extend(coarser);
                    return Taken::With(needs);
                }
                Taken::Not => tried = true,
                Taken::Unmade => {}
                Taken::Untried => break,
            }
            if has_said {
                let later = self.refusals.split_off(told);
                self.refusals.extend(later.into_iter().filter(|refusal| refusal.passing));
            }
            has_said |= self.refusals.len() > told;
            if self.passing.is_some() {
                break;
            }
        }
        if tried { Taken::Not } else { Taken::Untried }
    }

    /// Memory of others, scattered and in one piece.
    fn foreign(
        &mut self,
        description: &Description,
        prober: &Prober,
        devices: &[Box<dyn Device>],
    ) -> Taken {
        let scattered = match self.scattered(description, prober) {
            Ok(Some(scattered)) => scattered,
            Ok(None) => return Taken::Untried,
            // Files that its planes do not go into.
            Err(error) => {
                self.refused(Tried::Scattered, &description.layout, error);
                return Taken::Not;
            }
        };
        if self.takes(Tried::Scattered, &scattered) {
            return Taken::With(Vec::new());
        }
        let told = self.refusals.len();
        if self.takes_one_piece(&asking_for(description, ONE_PIECE), prober, devices)
            || self.takes_page(description, prober)
        {
            // It does take such memory, whoever's it refused.
            self.refusals.truncate(told);
            return Taken::With(vec![ONE_PIECE]);
        }
        Taken::Not
    }

    /// Whether it takes memory in one piece, of which that is known: other memory proves nothing, nor does its own. That
    /// it refuses what one device makes, such as a GPU far away, says nothing of another's.
    fn takes_one_piece(
        &mut self,
        description: &Description,
        prober: &Prober,
        devices: &[Box<dyn Device>],
    ) -> bool {
        let (own, operation) = (self.device.info(), self.of.operation);
        let known = allocators(description, devices).filter(|device| {
            device.memory().is_some()
                && !device.info().is_of(own)
                && prober.foreign.untouchable(device.info(), own, operation).is_none()
        });
        let mut used_up = None;
        for device in known {
            match made(device, description) {
                Ok(memory) if self.takes(Tried::OnePiece, &memory) => return true,
                Err(error) if error.is_passing() => used_up = used_up.or(Some(error)),
                _ => {}
            }
        }
        // What was refused says nothing of what could not be made.
        if let Some(error) = used_up {
            self.lacks(Tried::OnePiece, &description.layout, error);
        }
        false
    }

    /// Whether it takes a page, which is in one piece. A large image is tried with fewer rows, which say something where
    /// the device does not take those scattered either.
    fn takes_page(&mut self, description: &Description, prober: &Prober) -> bool {
        let Some(smaller) = at_most(description, PAGE) else { return false };
        if smaller.layout != description.layout {
            let Ok(Some(scattered)) = self.scattered(&smaller, prober) else { return false };
            match self.device.import(&scattered) {
                Ok(_) => return false,
                // At another time it may take them.
                Err(error) if error.is_passing() => {
                    self.refused(Tried::Scattered, &smaller.layout, error);
                    return false;
                }
                Err(_) => {}
            }
        }
        let smaller = asking_for(&smaller, ONE_PIECE);
        match by_files(&smaller, prober.foreign.one_piece) {
            Ok(Some(page)) => self.takes(Tried::OnePiece, &page),
            Err(error) if error.is_passing() => {
                self.lacks(Tried::OnePiece, &smaller.layout, error);
                false
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Scattered memory, in as many files as are asked for; `None` where there is none.
    fn scattered(&mut self, description: &Description, prober: &Prober) -> Result<Option<Buffer>> {
        let fell_short = Cell::new(false);
        let scatter = |one: &Description| {
            Ok(prober.scatter(one).unwrap_or_else(|_| {
                fell_short.set(true);
                None
            }))
        };
        let made = by_files(description, scatter);
        self.fell_short |= fell_short.get();
        made
    }

    /// Where no memory of others can be made, a device is believed what it says, unless it refuses its own; in rows as
    /// far apart as its own need.
    fn unproved(&mut self) -> Vec<Vec<Constraint>> {
        match self.own_of(Tried::Own, self.device, &[]) {
            Taken::Not => Vec::new(),
            Taken::With(mut needs) => {
                needs.retain(|need| need.name != ConstraintName::MADE_BY);
                vec![needs]
            }
            Taken::Untried | Taken::Unmade => {
                // That it makes none says nothing.
                self.passing = None;
                self.refusals.clear();
                vec![Vec::new()]
            }
        }
    }

    /// Its own memory, or that of another node of its GPU, where one of them makes some and it takes it: with what it
    /// needs then.
    fn own(&mut self, devices: &[Box<dyn Device>]) -> Option<Vec<Constraint>> {
        let device = self.device;
        let beside = devices.iter().map(|other| &**other).filter(|other| {
            let info = other.info();
            info.name != device.info().name && info.is_of(device.info())
        });
        let makers =
            std::iter::once((Tried::Own, device)).chain(beside.map(|it| (Tried::Sibling, it)));
        for (tried, maker) in makers {
            if let Taken::With(needs) = self.own_of(tried, maker, &[]) {
                return Some(needs);
            }
        }
        None
    }

    /// Memory that other users' devices make and it takes, with what it needs then: as a display shows what a camera
    /// makes, where nothing else makes memory in one piece. That it refuses what one device makes says nothing of
    /// another's.
    fn of_partners(
        &mut self,
        prober: &Prober,
        devices: &[Box<dyn Device>],
    ) -> Vec<Vec<Constraint>> {
        // One that is busy would be with each.
        if self.passing.as_ref().is_some_and(|error| error.errno() == Some(libc::EBUSY)) {
            return Vec::new();
        }
        let (own, operation) = (self.device.info(), self.of.operation);
        let mut tried_others = self.others.to_vec();
        let mut ways: Vec<Vec<Constraint>> = Vec::new();
        for partner in devices.iter().map(AsRef::as_ref) {
            let info = partner.info();
            let uses = || self.others.iter().filter(|of| of.device == info.name);
            if uses().next().is_none() || info.is_of(own) || self.was_tried_whole(partner) {
                continue;
            }
            // Another node of its GPU has made some.
            let owner = info.owner().map(|owner| Constraint::new(ConstraintName::MADE_BY, owner));
            let is_there = owner.is_some_and(|owner| ways.iter().any(|way| way.contains(&owner)));
            if is_there || prober.foreign.untouchable(info, own, operation).is_some() {
                continue;
            }
            // What it makes depends on what it does with it.
            let uses: Vec<Use> = uses().cloned().collect();
            let told = self.refusals.len();
            match self.own_of(Tried::Partner, partner, &uses) {
                Taken::With(needs) => ways.push(needs),
                Taken::Not => {}
                // At another time it may make some.
                Taken::Unmade | Taken::Untried if info.allocates && owner.is_some() => {
                    tried_others.retain(|of| of.device != info.name);
                }
                Taken::Unmade | Taken::Untried => {}
            }
            self.refusals[told..].iter_mut().for_each(|it| it.maker = Some(info.name.clone()));
        }
        self.tried_others = Some(tried_others);
        ways
    }

    /// Whether memory of a device is known to be in one piece, so that it was tried with that.
    fn was_tried_whole(&self, device: &dyn Device) -> bool {
        let size = self.description.layout.size;
        device.memory().is_some_and(|memory| memory.is_known() && memory.contiguous >= size)
    }

    /// The same of one that makes it, for its own uses as well.
    fn own_of(&mut self, tried: Tried, maker: &dyn Device, uses: &[Use]) -> Taken {
        let owner = maker.info().owner().filter(|_| maker.info().allocates);
        let Some(owner) = owner.map(|owner| Constraint::new(ConstraintName::MADE_BY, owner)) else {
            return Taken::Untried;
        };
        // What it is like, the trial tells.
        let is_tried = |asked: Constraint| memory::is_of_memory(asked.name);
        self.in_pitches(|trial, description| {
            let mut asked = asking_for(description, owner);
            asked.usage.uses.extend_from_slice(uses);
            match made_to_try(maker, &asked, is_tried) {
                Ok(memory) if trial.takes(tried, &memory) => Taken::With(vec![owner]),
                Ok(_) => Taken::Not,
                Err(error) => {
                    trial.not_made(tried, &description.layout, error);
                    Taken::Unmade
                }
            }
        })
    }

    /// That another makes none says nothing of this device, unless it may at another time.
    fn not_made(&mut self, tried: Tried, layout: &Layout, error: Error) {
        match tried {
            Tried::Own => self.refused(tried, layout, error),
            _ if error.is_passing() => self.lacks(tried, layout, error),
            _ => {}
        }
    }

    fn takes(&mut self, tried: Tried, memory: &Buffer) -> bool {
        let taken = self.device.import(memory);
        let is_taken = taken.is_ok();
        if let Err(error) = taken {
            self.refused(tried, &memory.description().layout, error);
        }
        is_taken
    }

    /// Who was to make the memory has none left.
    fn lacks(&mut self, tried: Tried, layout: &Layout, error: Error) {
        if self.lacking.is_none() {
            self.refusals.push(Refusal::new(&self.of, layout, tried, &error));
            self.lacking = Some(error);
        }
    }

    fn refused(&mut self, tried: Tried, layout: &Layout, error: Error) {
        let refusal = Refusal::new(&self.of, layout, tried, &error);
        if refusal.passing {
            self.passing.get_or_insert(error);
        }
        // Of several makers the same is said once.
        if self.refusals.last() != Some(&refusal) {
            self.refusals.push(refusal);
        }
    }
}

/// Memory in as many files as are asked for.
fn by_files(
    description: &Description,
    make: impl Fn(&Description) -> Result<Option<Buffer>>,
) -> Result<Option<Buffer>> {
    match description.files() {
        1 => make(description),
        _ => description.made_by_planes(make),
    }
}

/// The description with a constraint, in place of what it asks for by that name.
fn asking_for(description: &Description, constraint: Constraint) -> Description {
    let mut asked = description.clone();
    asked.set.constraints.retain(|known| known.name != constraint.name);
    asked.set.constraints.push(constraint);
    asked
}

/// Steps of pitches that devices have and do not say.
pub(super) const STEPS: [u64; 3] = [64, 128, 256];

/// A description, and the same with rows further apart: each with the constraint that asks for it, of those that ask
/// for the same the strictest.
fn pitches(description: &Description) -> Vec<(Option<Constraint>, Description)> {
    let mut found = vec![(None, description.clone())];
    let steps = STEPS.iter().filter(|_| description.layout.modifier == MODIFIER_LINEAR);
    for step in steps.map(|step| Constraint::new(ConstraintName::PITCH_ALIGNMENT, *step)) {
        let merged = constraint::merge(&description.set.constraints, &[step]);
        let Ok(constraints) = merged else { continue };
        let mut coarser = description.clone();
        coarser.set.constraints = constraints;
        let Ok(layout) = solve(&coarser.usage.image, &coarser.set) else { continue };
        coarser.layout = layout;
        let coarser = (Some(step), coarser);
        match found.last_mut() {
            Some((None, as_it_is)) if as_it_is.layout.planes == coarser.1.layout.planes => {}
            Some(last) if last.1.layout.planes == coarser.1.layout.planes => *last = coarser,
            _ => found.push(coarser),
        }
    }
    found
}

/// The description with as few rows of the image as fit into so many bytes: what a device thinks of the memory does not
/// depend on its size. `None` where no rows do, or only a driver can lay them out.
fn at_most(description: &Description, most: u64) -> Option<Description> {
    let mut smaller = description.clone();
    while smaller.layout.size > most {
        let image = &mut smaller.usage.image;
        // Even, as formats with fewer samples of colour are.
        image.height = (image.height / 2) & !1;
        smaller.layout = solve(image, &smaller.set).ok()?;
    }
    Some(smaller)
}

/// Memory of a device, in as many files as are asked for.
fn made(device: &dyn Device, description: &Description) -> Result<Buffer> {
    match description.files() {
        1 => device.allocate(description),
        _ => device.allocate_files(description),
    }
}

/// Whether it makes memory of which nobody knows what it is like.
pub(super) fn makes_as_it_sees_fit(device: &dyn Device) -> bool {
    device.memory().is_some_and(|memory| !memory.is_known())
}

/// The same of memory that is tried at once: where nobody knows what a device's memory is like, it is not asked for what
/// the trial finds out.
pub(super) fn made_to_try(
    device: &dyn Device,
    description: &Description,
    is_tried: impl Fn(Constraint) -> bool,
) -> Result<Buffer> {
    if !makes_as_it_sees_fit(device) {
        return made(device, description);
    }
    let asked = asked_to_try(device, description, is_tried);
    Ok(made(device, &asked)?.said(description.usage.clone(), description.set.clone()))
}

/// What a device is asked for then.
pub(super) fn asked_to_try(
    device: &dyn Device,
    description: &Description,
    is_tried: impl Fn(Constraint) -> bool,
) -> Description {
    let mut asked = description.clone();
    if makes_as_it_sees_fit(device) {
        asked.set.constraints.retain(|asked| !is_tried(*asked));
    }
    asked
}

/// The devices that make memory, the cheapest first; one alone where the memory must be of that.
pub(super) fn allocators<'d>(
    description: &Description,
    devices: &'d [Box<dyn Device>],
) -> impl Iterator<Item = &'d dyn Device> + use<'d> {
    let maker = description.set.constraint(ConstraintName::MADE_BY);
    let open = description.layout.is_open();
    let may = |device: &&dyn Device| {
        device.info().allocates
            && (maker.is_none() || device.info().owner() == maker)
            && (!open || device.chooses_layouts())
    };
    let mut found: Vec<&dyn Device> = devices.iter().map(AsRef::as_ref).filter(may).collect();
    found.sort_by_cached_key(|device| device.cost(&description.set));
    found.into_iter()
}
