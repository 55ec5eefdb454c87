//! What devices were found to need, remembered.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;

use crate::buffer::Description;
use crate::constraint::{Constraint, ConstraintName};
use crate::detail::Detail;
use crate::driver::{Device, DeviceInfo};
use crate::layout::Layout;
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

/// The ways in which a device takes memory, each with what it needs then, the freest first: none where it takes no
/// memory that was tried.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) ways: Vec<Vec<Constraint>>,
    pub(super) refusals: Vec<Refusal>,
    /// The other uses with whose memory it was tried besides, in order; `None` where that was of no interest.
    pub(super) others: Option<Vec<Use>>,
}

#[derive(Debug)]
pub(super) struct Answers {
    capacity: usize,
    newest_first: Vec<Known>,
}

fn is_no_larger(image: &Image, than: &Image) -> bool {
    image.width <= than.width && image.height <= than.height
}

#[derive(Debug)]
struct Known {
    question: Question,
    /// What was tried.
    image: Image,
    layout: Layout,
    answer: Answer,
}

impl Known {
    fn is_of(&self, question: &Question, description: &Description) -> bool {
        self.question == *question
            && self.image == description.usage.image
            && self.layout == description.layout
    }

    /// Whether the answer is one for another image of its kind, which may be within a limit where this is not: that a
    /// device takes nothing, for none; what it needs, for those that are no smaller.
    fn holds_for(&self, description: &Description) -> bool {
        let needs = self.answer.ways.first();
        needs.is_some_and(|needs| {
            needs.is_empty() || is_no_larger(&self.image, &description.usage.image)
        })
    }

    /// Whether an answer that is the same of this image holds for all images that this one holds for.
    fn holds_below(&self, description: &Description) -> bool {
        !self.answer.ways.is_empty() && is_no_larger(&description.usage.image, &self.image)
    }
}

impl Answers {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, newest_first: Vec::new() }
    }

    /// What was found out of this very image, or of one of its kind.
    pub(super) fn recall(
        &mut self,
        question: &Question,
        description: &Description,
        others: &[Use],
    ) -> Option<Answer> {
        let known = || self.newest_first.iter();
        let is_among = |known: &Known| {
            // What a device makes depends on all of its uses.
            let is_named = |tried: &&Use| others.iter().any(|other| other.device == tried.device);
            let tried = known.answer.others.as_ref();
            tried.is_none_or(|tried| tried.iter().filter(is_named).eq(others))
        };
        let is_very = |known: &Known| known.is_of(question, description) && is_among(known);
        let is_like = |known: &Known| {
            known.question == *question && known.holds_for(description) && is_among(known)
        };
        let at = known().position(is_very).or_else(|| known().position(is_like))?;
        self.newest_first[..=at].rotate_right(1);
        self.newest_first.first().map(|known| known.answer.clone())
    }

    pub(super) fn remember(
        &mut self,
        question: Question,
        description: &Description,
        answer: Answer,
    ) {
        let is_told_anew = |known: &Known| {
            let is_as_small = known.question == question
                && known.answer.ways == answer.ways
                && known.holds_below(description);
            (known.is_of(&question, description) || is_as_small)
                && known.answer.others == answer.others
        };
        self.newest_first.retain(|known| !is_told_anew(known));
        let (image, layout) = (description.usage.image, description.layout.clone());
        self.newest_first.insert(0, Known { question, image, layout, answer });
        self.newest_first.truncate(self.capacity);
    }
}
