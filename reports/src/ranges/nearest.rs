//! The nearest tag with the same ABI, also for tags that upstream has not published.

use serde::Serialize;

use super::find::Abis;
use super::{Span, runs};
use nvabi_pipeline::tag::Tag;

/// About a tag that nothing is known of.
const UNPROVEN: &str = "its ABI may be the same; only the headers of the tag can show it";

/// Where a tag stands among those of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nearest {
    /// The tag asked for.
    pub tag: String,
    /// Whether the lock has it.
    pub locked: bool,
    /// The locked tag before it.
    pub below: Option<String>,
    /// The locked tag after it.
    pub above: Option<String>,
    /// The nearest other tag whose ABI is known to be the same.
    pub nearest: Option<String>,
    /// The range of tags with the same ABI that it is in.
    pub range: Option<Span>,
    /// For a tag that the lock does not have: the names that differ between its neighbours.
    pub differing: Vec<String>,
}

impl Nearest {
    /// Whether some locked tag is known to have the same ABI.
    pub fn is_known(&self) -> bool {
        self.locked || self.nearest.is_some()
    }

    /// As a sentence.
    pub fn text(&self) -> String {
        let tag = &self.tag;
        match (self.locked, &self.below, &self.above) {
            (true, ..) => self.text_of_locked(),
            (false, Some(below), Some(above)) => self.text_between(below, above),
            (false, Some(below), None) => format!("{tag}: after {below}, nothing known\n"),
            (false, None, Some(above)) => format!("{tag}: before {above}, nothing known\n"),
            (false, None, None) => format!("{tag}: the lock is empty, nothing known\n"),
        }
    }

    fn text_of_locked(&self) -> String {
        let tag = &self.tag;
        match (&self.nearest, &self.range) {
            (Some(nearest), Some(span)) if span.count > 1 => {
                format!("{tag}: same ABI as {nearest}, and from {} to {}\n", span.first, span.last)
            }
            (Some(nearest), _) => format!("{tag}: same ABI as {nearest}, though not next to it\n"),
            (None, _) => format!("{tag}: locked; no other tag has the same ABI\n"),
        }
    }

    fn text_between(&self, below: &str, above: &str) -> String {
        let tag = &self.tag;
        if let Some(nearest) = &self.nearest {
            return format!(
                "{tag}: between {below} and {above}, same ABI on both sides; nearest {nearest}\n"
            );
        }
        let count = self.differing.len();
        let names = match count {
            1 => "1 name differs".to_owned(),
            _ => format!("{count} names differ"),
        };
        let mut text =
            format!("{tag}: between {below} and {above}, whose ABIs are not the same: {names}\n");
        self.differing.iter().for_each(|name| text.push_str(&format!("    {name}\n")));
        let branch = |tag: &str| tag.split('.').next().map(str::to_owned);
        if branch(below) == branch(tag) && branch(above) != branch(tag) {
            text.push_str(&format!("{below} is the last of its branch; {UNPROVEN}\n"));
        }
        text
    }
}

impl Abis<'_> {
    /// What is known of a tag, locked or not.
    pub fn nearest(&self, tag: &Tag) -> Nearest {
        let ids = self.set_ids();
        let at = self.lock.tags.partition_point(|locked| locked.tag < *tag);
        let locked = self.lock.tags.get(at).is_some_and(|locked| locked.tag == *tag);
        let above = if locked { at + 1 } else { at };
        let (below, above) = (at.checked_sub(1), (above < ids.len()).then_some(above));
        let mut found = Nearest {
            tag: tag.to_string(),
            locked,
            below: below.map(|index| self.tag(index)),
            above: above.map(|index| self.tag(index)),
            nearest: None,
            range: None,
            differing: Vec::new(),
        };
        let range = |index| runs(&ids).map(|(_, tags)| tags).find(|tags| tags.contains(&index));
        if locked {
            let same = (0..ids.len()).filter(|i| *i != at && ids[*i] == ids[at]);
            found.nearest = same.min_by_key(|i| i.abs_diff(at)).map(|i| self.tag(i));
            found.range = range(at).map(|tags| self.span(&tags));
        } else if let (Some(below), Some(above)) = (below, above) {
            if ids[below] == ids[above] {
                let branch = |index: usize| self.lock.tags[index].tag.branch() == tag.branch();
                let nearest = if branch(above) && !branch(below) { above } else { below };
                found.nearest = Some(self.tag(nearest));
                found.range = range(below).map(|tags| self.span(&tags));
            } else {
                found.differing = self.differing(below, above);
            }
        }
        found
    }
}
