//! One device tried with one kind of memory after the other.

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

/// Makes memory that is in no case in one piece; `None` where nothing makes such.
pub(super) type Scatter = fn(&Description) -> Result<Option<Buffer>>;

/// How memory is made that devices are tried with, and whose they are not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreign {
    pub(super) scatter: Scatter,
    /// Memory that is certainly in one piece, where no device has such.
    pub(super) one_piece: fn(&Description) -> Option<Buffer>,
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
}

/// What is asked for where a device takes no scattered memory.
pub(super) const ONE_PIECE: Constraint = Constraint::new(ConstraintName::CONTIGUOUS, 1);

/// What came of a trial.
pub(super) enum Found {
    /// The device takes memory that keeps to these too.
    Needs(Vec<Constraint>),
    /// It takes none.
    TakesNothing,
    /// There was nothing to try.
    Unknown,
}

impl Trial<'_> {
    pub(super) fn run(&mut self, prober: &Prober, devices: &[Box<dyn Device>]) -> Found {
        let mut tried = false;
        for (coarser, description) in pitches(self.description) {
            let smaller = at_most(&description, (prober.foreign.most)());
            let told = self.refusals.len();
            let found = smaller.map(|smaller| self.foreign(&smaller, prober, devices));
            match found.unwrap_or(Found::Unknown) {
                Found::Needs(mut needs) => {
                    needs.extend(coarser);
                    // It takes memory of others all the same.
                    self.lacking = None;
                    return Found::Needs(needs);
                }
                // What it said to the first is enough, but for what may pass.
                Found::TakesNothing if tried => {
                    let later = self.refusals.split_off(told);
                    self.refusals.extend(later.into_iter().filter(|refusal| refusal.passing));
                }
                Found::TakesNothing => tried = true,
                Found::Unknown => break,
            }
            if self.passing.is_some() {
                break;
            }
        }
        if !tried {
            return self.own_or_unknown();
        }
        self.own(devices).map_or(Found::TakesNothing, |maker| Found::Needs(vec![maker]))
    }

    /// Memory of others, scattered and in one piece.
    fn foreign(
        &mut self,
        description: &Description,
        prober: &Prober,
        devices: &[Box<dyn Device>],
    ) -> Found {
        let scattered = match description.files() {
            1 => Ok(prober.scatter(description)),
            _ => description.made_by_planes(|one| Ok(prober.scatter(one))),
        };
        let scattered = match scattered {
            Ok(Some(scattered)) => scattered,
            Ok(None) => return Found::Unknown,
            // Files that its planes do not go into.
            Err(error) => {
                self.refused(Tried::Scattered, &description.layout, error);
                return Found::TakesNothing;
            }
        };
        if self.takes(Tried::Scattered, &scattered) {
            return Found::Needs(Vec::new());
        }
        let told = self.refusals.len();
        if self.takes_one_piece(&asking_for(description, ONE_PIECE), prober, devices) {
            // It does take such memory, whoever's it refused.
            self.refusals.truncate(told);
            return Found::Needs(vec![ONE_PIECE]);
        }
        Found::TakesNothing
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
        let owner = own.owner();
        let known = allocators(description, devices).filter(|device| {
            device.memory().is_some()
                && (owner.is_none() || device.info().owner() != owner)
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
        let page = match description.files() {
            1 => (prober.foreign.one_piece)(description),
            _ => {
                description.made_by_planes(|one| Ok((prober.foreign.one_piece)(one))).ok().flatten()
            }
        };
        if page.is_some_and(|page| self.takes(Tried::OnePiece, &page)) {
            return true;
        }
        // What was refused says nothing of what could not be made.
        if let Some(error) = used_up {
            self.lacks(Tried::OnePiece, &description.layout, error);
        }
        false
    }

    /// Where no memory of others can be made, a device is believed what it says, unless it refuses its own.
    fn own_or_unknown(&mut self) -> Found {
        let Some(owner) = self.owner() else { return Found::Unknown };
        match self.made_by(self.device, owner) {
            Some(Ok(own)) if !self.takes(Tried::Own, &own) => Found::TakesNothing,
            _ => Found::Unknown,
        }
    }

    /// The constraint to have memory of the device, or of another node of the same GPU.
    fn owner(&self) -> Option<Constraint> {
        self.device.info().owner().map(|owner| Constraint::new(ConstraintName::MADE_BY, owner))
    }

    /// Memory of this maker, where it makes some: what it is like, the trial tells.
    fn made_by(&self, maker: &dyn Device, owner: Constraint) -> Option<Result<Buffer>> {
        let asked = asking_for(self.description, owner);
        let tried = |asked: Constraint| memory::is_of_memory(asked.name);
        maker.info().allocates.then(|| made_to_try(maker, &asked, tried))
    }

    /// Its own memory, or that of another node of its GPU, where one of them makes some and it takes it; the constraint
    /// is to have that.
    fn own(&mut self, devices: &[Box<dyn Device>]) -> Option<Constraint> {
        let owner = self.owner()?;
        let device = self.device;
        let beside = devices.iter().map(|other| &**other).filter(|other| {
            let info = other.info();
            info.name != device.info().name && info.owner() == Some(owner.value)
        });
        let makers =
            std::iter::once((Tried::Own, device)).chain(beside.map(|it| (Tried::Sibling, it)));
        for (tried, maker) in makers {
            let taken = match self.made_by(maker, owner) {
                Some(Ok(memory)) => self.takes(tried, &memory),
                Some(Err(error)) if tried == Tried::Own => {
                    self.refused(tried, &self.description.layout, error);
                    false
                }
                // That another makes none says nothing of this one, unless it may at another time.
                Some(Err(error)) if error.is_passing() => {
                    self.lacks(tried, &self.description.layout, error);
                    false
                }
                _ => false,
            };
            if taken {
                return Some(owner);
            }
        }
        None
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
    let mut asked = description.clone();
    asked.set.constraints.retain(|asked| !is_tried(*asked));
    Ok(made(device, &asked)?.said(description.usage.clone(), description.set.clone()))
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
    found.sort_by_key(|device| device.cost(&description.set));
    found.into_iter()
}
