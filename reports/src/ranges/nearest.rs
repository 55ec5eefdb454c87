//! The nearest tag with the same ABI, also for tags that upstream has not published.

use serde::Serialize;

use super::find::Abis;
use super::{Span, runs};
use nvabi_pipeline::lock::LockedTag;
use nvabi_pipeline::tag::Tag;

/// What is not proven of a tag outside the lock.
const UNPROVEN: &str = "only the headers of the tag can prove it";

/// Where a tag stands among those of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nearest {
    /// The tag asked for, as the lock writes it.
    pub tag: String,
    /// What was asked for, where that is another way to write the tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spelled: Option<String>,
    /// Whether the lock has it.
    pub locked: bool,
    /// The locked tag before it.
    pub below: Option<String>,
    /// The locked tag after it.
    pub above: Option<String>,
    /// The nearest other tag whose ABI is the same, or is expected to be: see `basis`.
    pub nearest: Option<String>,
    /// Why the nearest tag is that; `None` where there is none.
    pub basis: Option<Basis>,
    /// The range of tags with the same ABI that it is in.
    pub range: Option<Span>,
    /// For a tag that the lock does not have: the names that differ between its neighbours.
    pub differing: Vec<String>,
}

/// Why a tag has, or is expected to have, the ABI of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Both are in the lock.
    Locked,
    /// The tags on both sides have it.
    BothSides,
    /// The tags of its branch next to it have it; those on the other side are of another branch.
    Branch,
}

impl Nearest {
    /// Whether some locked tag has the same ABI, or is expected to.
    pub fn is_known(&self) -> bool {
        self.locked || self.nearest.is_some()
    }

    /// As a sentence.
    pub fn text(&self) -> String {
        let tag = &self.tag;
        match (self.locked, &self.below, &self.above) {
            (true, ..) => self.text_of_locked(),
            (false, below, above) if self.basis == Some(Basis::Branch) => {
                self.text_of_branch(below.as_deref(), above.as_deref())
            }
            (false, Some(below), None) => format!("{tag}: after {below}, nothing known\n"),
            (false, None, Some(above)) => format!("{tag}: before {above}, nothing known\n"),
            (false, Some(below), Some(above)) => self.text_between(below, above),
            (false, None, None) => format!("{tag}: the lock is empty, nothing known\n"),
        }
    }

    fn text_of_locked(&self) -> String {
        let tag = match &self.spelled {
            Some(spelled) => format!("{spelled}: {}", self.tag),
            None => self.tag.clone(),
        };
        match (&self.nearest, &self.range) {
            (Some(nearest), Some(span)) if span.count > 1 => format!(
                "{tag} is locked: same ABI as {nearest}, and from {} to {}\n",
                span.first, span.last
            ),
            (Some(nearest), _) => {
                format!("{tag} is locked: same ABI as {nearest}, though not next to it\n")
            }
            (None, _) => format!("{tag} is locked: no other tag has the same ABI\n"),
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
        text
    }

    /// Of a tag after the last locked one of its branch, or before the first.
    fn text_of_branch(&self, below: Option<&str>, above: Option<&str>) -> String {
        let tag = &self.tag;
        let (Some(nearest), Some(span)) = (&self.nearest, &self.range) else {
            return String::new();
        };
        let run = match span.count {
            1 => format!("{nearest} is the only tag with its ABI next to it"),
            count => format!("one ABI from {} to {} ({count} tags)", span.first, span.last),
        };
        let mut text = format!("{tag}: same branch, {run}: use {nearest}; {UNPROVEN}\n");
        if below.is_none() {
            text.push_str("    no locked tag is older\n");
        }
        let other = [below, above].into_iter().flatten().find(|side| *side != nearest);
        if let Some(other) = other {
            let count = self.differing.len();
            text.push_str(&match count {
                0 => format!("    {other}, on the other side, has the same ABI\n"),
                _ => format!(
                    "    {other}, on the other side and of another branch, differs in {count} name{}; \
                     `nvabi diff {nearest} {other}` shows how\n",
                    if count == 1 { "" } else { "s" }
                ),
            });
        }
        text
    }
}

impl Abis<'_> {
    /// What is known of a tag, locked or not.
    pub fn nearest(&self, tag: &Tag) -> Nearest {
        let ids = self.set_ids();
        let asked = tag;
        let is_asked = |locked: &&LockedTag| locked.tag.is_release_of(asked);
        let exact = self.lock.tags.iter().find(|locked| locked.tag == *asked);
        let other = || self.lock.tags.iter().find(is_asked);
        let tag = exact.or_else(other).map_or(asked, |locked| &locked.tag);
        let at = self.lock.tags.partition_point(|locked| locked.tag < *tag);
        let locked = self.lock.tags.get(at).is_some_and(|locked| locked.tag == *tag);
        let above = if locked { at + 1 } else { at };
        let (below, above) = (at.checked_sub(1), (above < ids.len()).then_some(above));
        let mut found = Nearest {
            tag: tag.to_string(),
            spelled: (tag != asked).then(|| asked.to_string()),
            locked,
            below: below.map(|index| self.tag(index)),
            above: above.map(|index| self.tag(index)),
            nearest: None,
            basis: None,
            range: None,
            differing: Vec::new(),
        };
        let range = |index| runs(&ids).map(|(_, tags)| tags).find(|tags| tags.contains(&index));
        let is_branch = |index: &usize| self.lock.tags[*index].tag.branch() == tag.branch();
        if locked {
            let same = (0..ids.len()).filter(|i| *i != at && ids[*i] == ids[at]);
            found.nearest = same.min_by_key(|i| i.abs_diff(at)).map(|i| self.tag(i));
            found.basis = found.nearest.is_some().then_some(Basis::Locked);
            found.range = range(at).map(|tags| self.span(&tags));
            return found;
        }
        let sides = [below, above].into_iter().flatten();
        let in_branch: Vec<usize> = sides.filter(is_branch).collect();
        let same = below.zip(above).is_some_and(|(below, above)| ids[below] == ids[above]);
        let chosen = match in_branch.as_slice() {
            // Branches differ from each other much more often than the tags of one.
            [one] => Some((*one, if same { Basis::BothSides } else { Basis::Branch })),
            _ => below.filter(|_| same).map(|below| (below, Basis::BothSides)),
        };
        if let (Some(below), Some(above), false) = (below, above, same) {
            found.differing = self.differing(below, above);
        }
        if let Some((index, basis)) = chosen {
            (found.nearest, found.basis) = (Some(self.tag(index)), Some(basis));
            found.range = range(index).map(|tags| self.span(&tags));
        }
        found
    }
}
