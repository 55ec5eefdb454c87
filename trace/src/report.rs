//! What a comparison of two traces found: plain data, the same as JSON.
//!
//! Everything here is counted completely; of the findings themselves only some are kept (see
//! [`Report::findings`]).

use std::collections::BTreeMap;

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::event::{Event, hex};

/// The version of the JSON: it changes when a key changes its meaning or goes; new keys may come.
pub const SCHEMA: &str = "nvabi-trace-diff/2";

/// What two traces have in common and where they part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The answer.
    pub status: Status,
    /// The first trace, as it was given.
    pub a: String,
    /// The second.
    pub b: String,
    /// Warps that both traces have and that were compared.
    pub warps_compared: u64,
    /// Warps with a finding.
    pub warps_divergent: u64,
    /// Warps that lost events in A or in B, because their buffer was full.
    pub overflowed: u64,
    /// Whether values were compared, or only the ways that warps went.
    pub values_compared: bool,
    /// Findings, whether kept or not.
    pub total_findings: u64,
    /// The findings that are kept, by launch, warp and index: the first of each warp before others.
    pub findings: Vec<Finding>,
    /// All findings by site and kind; the first is the one to look at first.
    pub groups: Vec<Group>,
    /// The launches that were compared, in order.
    pub launches: Vec<Launch>,
    /// The lines of the sites that are named above, as far as they are known.
    #[serde(serialize_with = "by_hex")]
    pub sources: BTreeMap<u64, Source>,
    /// What else a reader must know.
    pub notes: Vec<Note>,
}

/// The answer of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All that was recorded is the same, and nothing was lost.
    Identical,
    /// There is a finding.
    Different,
    /// No finding, but events were lost: whether the runs agree is not known.
    Incomparable,
}

impl Status {
    /// The name as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::Different => "different",
            Self::Incomparable => "incomparable",
        }
    }
}

/// How two traces part at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Other sites.
    Path,
    /// A branch went the other way.
    Direction,
    /// Other lanes were active.
    Mask,
    /// Another value at the same step.
    Value,
    /// B has events that A has not, and then goes on as A does.
    Extra,
    /// A has events that B has not, and then goes on as B does.
    Missing,
    /// One of the two has no more events.
    End,
}

impl FindingKind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Path,
        Self::Direction,
        Self::Mask,
        Self::Value,
        Self::Extra,
        Self::Missing,
        Self::End,
    ];

    /// The name as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Direction => "direction",
            Self::Mask => "mask",
            Self::Value => "value",
            Self::Extra => "extra",
            Self::Missing => "missing",
            Self::End => "end",
        }
    }
}

/// One place where a warp of A and the same warp of B part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The launch, an index into [`Report::launches`].
    pub launch: u32,
    /// The warp in its launch.
    pub warp: u32,
    /// How they part.
    pub kind: FindingKind,
    /// Where: the site of A's event, of B's where A has none.
    #[serde(serialize_with = "hex")]
    pub site: u64,
    /// The event in the warp of A, its length where A has ended.
    pub index_a: u64,
    /// The event in the warp of B, its length where B has ended.
    pub index_b: u64,
    /// Whether nothing differs before it in this warp.
    pub first: bool,
    /// The lanes that are active in one of the two only; as numbers in JSON.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lane_numbers")]
    pub lanes: Option<u32>,
    /// Of a loop: how many more rounds one of the two made; else how many more events it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Where A goes on as B does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resync_a: Option<u64>,
    /// Where B goes on as A does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resync_b: Option<u64>,
    /// The line of the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// A's event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_a: Option<Event>,
    /// B's event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_b: Option<Event>,
    /// What it is, where the events prove it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The steps before it, oldest first, as far as they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Step>,
}

fn by_hex<S: Serializer>(
    sources: &BTreeMap<u64, Source>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sources.iter().map(|(site, source)| (format!("{site:#x}"), source)))
}

fn lane_numbers<S: Serializer>(mask: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    let mask = mask.unwrap_or_default();
    let mut list = serializer.serialize_seq(Some(mask.count_ones() as usize))?;
    for lane in lanes_of(mask) {
        list.serialize_element(&lane)?;
    }
    list.end()
}

/// The lanes of a mask, lowest first.
pub fn lanes_of(mask: u32) -> impl Iterator<Item = u32> {
    (0..u32::BITS).filter(move |lane| mask >> lane & 1 == 1)
}

/// Lanes as they are written: `lane 4` or `lanes 0-7, 9`.
pub fn lanes(mask: u32) -> String {
    let name = if mask.count_ones() == 1 { "lane" } else { "lanes" };
    format!("{name} {}", ranges(lanes_of(mask)))
}

/// Sorted numbers, those in a row as a range.
pub fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last == number || last.checked_add(1) == Some(number) => {
                *last = number;
            }
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A step that both warps made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its index in A.
    pub index_a: u64,
    /// Its index in B.
    pub index_b: u64,
    /// The event of A.
    pub a: Event,
    /// The event of B: it may differ in its value.
    pub b: Event,
}

/// What a finding is, as far as the events alone prove it or hint at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Class {
    /// Proven: the recorded operand of the branch differs, and no value differs in the history.
    InputDependentBranch,
    /// Proven: the recorded operand of the branch is the same, so it depends on something else too.
    OtherOperand,
    /// Proven: what one has more is a whole number of rounds of the loop that both went through.
    LoopBound {
        /// The site where a round begins.
        #[serde(serialize_with = "hex")]
        site: u64,
        /// How many more rounds.
        rounds: u64,
        /// Events in a round.
        events: u64,
    },
    /// Hint: the same lanes did the same atomic on another value, and nothing differed before.
    RaceSuspected,
    /// Proven: a value in the history differs already, although the ways are the same up to here.
    EarlierValue {
        /// The site of that value.
        #[serde(serialize_with = "hex")]
        site: u64,
        /// Its index in A.
        index_a: u64,
    },
}

impl Class {
    /// The name as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::InputDependentBranch => "input-dependent-branch",
            Self::OtherOperand => "other-operand",
            Self::LoopBound { .. } => "loop-bound",
            Self::RaceSuspected => "race-suspected",
            Self::EarlierValue { .. } => "earlier-value",
        }
    }

    /// Whether the events prove it; a hint otherwise.
    pub fn proven(self) -> bool {
        self != Self::RaceSuspected
    }
}

/// A place in source text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Source {
    /// The file as the compiler was given it.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1; 0 where it is not known.
    pub column: u32,
    /// The calls it is inlined at, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inlined_at: Vec<Source>,
}

/// All findings of one kind at one site in one launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// The launch, an index into [`Report::launches`].
    pub launch: u32,
    /// The site.
    #[serde(serialize_with = "hex")]
    pub site: u64,
    /// How the traces part there.
    pub kind: FindingKind,
    /// How many findings.
    pub findings: u64,
    /// In how many warps.
    pub warps: u64,
    /// In how many warps it is the first finding: the higher, the nearer to the cause.
    pub first_in: u64,
}

/// What tells groups apart: launch, site and kind.
pub type GroupKey = (u32, u64, FindingKind);

impl Group {
    /// What tells it from others.
    pub fn key(&self) -> GroupKey {
        (self.launch, self.site, self.kind)
    }
}

/// A launch that both traces have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Launch {
    /// The kernel.
    pub kernel: String,
    /// How many launches of the same kernel came before it.
    pub order: u32,
    /// Blocks in x, y and z, of A.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z, of A.
    pub block: [u32; 3],
    /// Warps that both have.
    pub warps: u64,
    /// Warps with a finding.
    pub warps_divergent: u64,
    /// Events of A.
    pub events_a: u64,
    /// Events of B.
    pub events_b: u64,
    /// Where its findings are, if there are any. It is for drawing, and not in the JSON.
    #[serde(skip)]
    pub map: Option<Map>,
}

/// Findings by warp and time: the picture of a launch, however large it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Warps in a row.
    pub warps_per_row: u64,
    /// Events of A in a column.
    pub events_per_column: u64,
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
    /// Findings by row and column, row after row.
    pub counts: Vec<u32>,
}

/// What else a reader of a report must know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "note")]
pub enum Note {
    /// A warp lost events, because its buffer was full.
    Overflow {
        /// The launch, an index into [`Report::launches`].
        launch: u32,
        /// The warp.
        warp: u32,
        /// Events that A lost.
        lost_a: u64,
        /// Events that B lost.
        lost_b: u64,
    },
    /// Only one of the two has this launch.
    Unmatched {
        /// Which: `a` or `b`.
        trace: char,
        /// The kernel.
        kernel: String,
        /// How many launches of the same kernel came before it.
        order: u32,
    },
    /// The launch has other grids or blocks: only the warps that both have were compared.
    OtherGrid {
        /// The launch, an index into [`Report::launches`].
        launch: u32,
        /// Warps of A.
        warps_a: u64,
        /// Warps of B.
        warps_b: u64,
    },
    /// Part of a file could not be read.
    Damaged {
        /// Which: `a` or `b`.
        trace: char,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// There are more notes of this kind than are kept.
    More {
        /// Which kind.
        of: &'static str,
        /// How many.
        count: u64,
    },
}

impl Note {
    /// The kind of note, as JSON has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Overflow { .. } => "overflow",
            Self::Unmatched { .. } => "unmatched",
            Self::OtherGrid { .. } => "other-grid",
            Self::Damaged { .. } => "damaged",
            Self::More { .. } => "more",
        }
    }
}

impl Finding {
    /// The group that it is in.
    pub fn group(&self) -> GroupKey {
        (self.launch, self.site, self.kind)
    }

    /// Every site that it names.
    pub fn sites(&self) -> impl Iterator<Item = u64> {
        let events = self.event_a.iter().chain(&self.event_b).map(|event| event.site);
        let class = match self.class {
            Some(Class::LoopBound { site, .. } | Class::EarlierValue { site, .. }) => Some(site),
            _ => None,
        };
        let history = self.history.iter().map(|step| step.a.site);
        events.chain(class).chain(history).chain([self.site])
    }
}
