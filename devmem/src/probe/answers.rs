//! What devices were found to need, remembered.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;

use crate::buffer::Description;
use crate::constraint::{Constraint, ConstraintName};
use crate::detail::Detail;
use crate::driver::{Device, DeviceInfo};
use crate::usage::{Fourcc, Image, Operation, Use};

use super::Refusal;
use super::trial::STEPS;

/// What was asked of a device: it is another one when its file has been made anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    name: String,
    number: u64,
    inode: u64,
    operation: Operation,
    format: Fourcc,
    modifier: u64,
    /// What it is tried with keeps to these, in order.
    constraints: Vec<Constraint>,
    details: Vec<Detail>,
    /// Powers of two: what the pitches are multiples of, and what width and height are no more than.
    size: [u32; 3],
    /// Those that make memory to try it with, by a number for all.
    among: u64,
}

impl Question {
    pub(super) fn new(
        info: &DeviceInfo,
        of: &Use,
        description: &Description,
        devices: &[Box<dyn Device>],
    ) -> Self {
        let node = fs::metadata(&info.node);
        let (number, inode) = node.map_or((0, 0), |node| (node.rdev(), node.ino()));
        let (format, modifier) = (description.usage.image.format, description.layout.modifier);
        let mut details = [&description.usage.details[..], &of.details].concat();
        details.sort_unstable();
        let mut constraints = description.set.constraints.clone();
        constraints.retain(is_tried_with);
        constraints.sort_unstable_by_key(|constraint| (constraint.name, constraint.value));
        let (name, size, operation) = (info.name.clone(), size_of(description), of.operation);
        let among = makers(devices);
        Self { name, number, inode, operation, format, modifier, constraints, details, size, among }
    }
}

/// Whether what a device is tried with keeps to a constraint: all but whose memory it is. What one device asks for would
/// hide the memory of others that another is to be tried with.
pub(super) fn is_tried_with(constraint: &Constraint) -> bool {
    constraint.name != ConstraintName::MADE_BY
}

/// One number for the names of all that make memory.
fn makers(devices: &[Box<dyn Device>]) -> u64 {
    let mut names = DefaultHasher::new();
    let makers = devices.iter().map(|device| device.info()).filter(|info| info.allocates);
    makers.for_each(|info| info.name.hash(&mut names));
    names.finish()
}

/// What kind of size an image has: an answer for one of these is one for all others of the kind. That a device takes
/// the very memory, it is asked when that is made.
fn size_of(description: &Description) -> [u32; 3] {
    let pitches = description.layout.planes.iter().map(|plane| plane.pitch);
    // Of no planes any pitch is one.
    let step = pitches.fold(STEPS[2], |all, pitch| all | pitch).trailing_zeros();
    let Image { width, height, .. } = description.usage.image;
    let power = |side: u32| u32::BITS - side.saturating_sub(1).leading_zeros();
    [step, power(width), power(height)]
}

/// What a device was found to need; `None` where it takes no memory that was tried.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) needs: Option<Vec<Constraint>>,
    pub(super) refusals: Vec<Refusal>,
}

impl Answer {
    /// Nothing could be tried: a device is believed what it says.
    pub(super) fn unknown() -> Self {
        Self { needs: Some(Vec::new()), refusals: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Answers {
    capacity: usize,
    /// Each with the image that was tried.
    newest_first: Vec<(Question, Image, Answer)>,
}

impl Answers {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, newest_first: Vec::new() }
    }

    /// That a device takes nothing is known of the very image alone: another of its kind may be within a limit.
    pub(super) fn recall(&mut self, question: &Question, image: &Image) -> Option<Answer> {
        let known = || self.newest_first.iter();
        let very = known().position(|(known, of, _)| known == question && of == image);
        let like =
            || known().position(|(known, _, answer)| known == question && answer.needs.is_some());
        let at = very.or_else(like)?;
        self.newest_first[..=at].rotate_right(1);
        self.newest_first.first().map(|(_, _, answer)| answer.clone())
    }

    pub(super) fn remember(&mut self, question: Question, image: Image, answer: Answer) {
        self.newest_first.retain(|(known, of, _)| *known != question || *of != image);
        self.newest_first.insert(0, (question, image, answer));
        self.newest_first.truncate(self.capacity);
    }
}
