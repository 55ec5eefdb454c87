//! The warps of a launch in both traces, side by side, in batches.

use std::ops::Range;

use crate::error::Error;
use crate::file::{Data, Found, Warp, Warps};
use crate::v1;
use crate::v2::OpenChunk;

/// What a batch holds: enough bytes to be worth a thread's while, and not too many warps.
const BYTES: u64 = 1 << 20;
const WARPS: usize = 4096;

/// Walks along the warps of both.
pub(super) struct Pairs<'a> {
    a: Row<'a>,
    b: Row<'a>,
    /// Warps that only one of the two has are left out: the grids are not the same.
    common: bool,
}

/// The warps of one trace.
struct Row<'a> {
    warps: Warps<'a>,
    next: Option<Warp<'a>>,
    /// Warps up to this one are lost, if any.
    lost: Option<u32>,
    ended: bool,
    problems: Vec<Error>,
    /// An error behind which nothing can be read.
    fatal: bool,
    events: u64,
}

/// Some warps.
#[derive(Default)]
pub(super) struct Batch<'a> {
    pub(super) pairs: Vec<(Option<Warp<'a>>, Option<Warp<'a>>)>,
    /// What is damaged: in A if so, and how.
    pub(super) problems: Vec<(bool, Error)>,
    pub(super) fatal: bool,
    /// Events of A and of B.
    pub(super) events: (u64, u64),
}

impl<'a> Pairs<'a> {
    pub(super) fn new(a: Warps<'a>, b: Warps<'a>, common: bool) -> Self {
        Self { a: Row::new(a), b: Row::new(b), common }
    }

    /// The next batch; `None` at the end.
    pub(super) fn batch(&mut self) -> Option<Batch<'a>> {
        let mut batch = Batch::default();
        let (mut bytes, mut more) = (0, true);
        while more && bytes < BYTES && batch.pairs.len() < WARPS {
            more = self.pair(&mut batch, &mut bytes);
            for (is_a, row) in [(true, &mut self.a), (false, &mut self.b)] {
                batch.problems.extend(row.problems.drain(..).map(|error| (is_a, error)));
                batch.fatal |= row.fatal;
            }
        }
        batch.events = (std::mem::take(&mut self.a.events), std::mem::take(&mut self.b.events));
        (more || !batch.pairs.is_empty() || !batch.problems.is_empty()).then_some(batch)
    }

    fn pair(&mut self, batch: &mut Batch<'a>, bytes: &mut u64) -> bool {
        self.a.fill(None);
        self.b.fill(self.a.warps.open_chunk());
        let number = |row: &Row<'_>| row.next.as_ref().map(Warp::number);
        let (a, b) = match (number(&self.a), number(&self.b)) {
            (None, None) => return false,
            (Some(a), Some(b)) if a == b => (self.a.next.take(), self.b.next.take()),
            (Some(a), b) if b.is_none_or(|b| a < b) => {
                let lost = self.b.lacks(a);
                (self.a.next.take().filter(|_| !lost), None)
            }
            (_, b) => {
                let lost = b.is_some_and(|b| self.a.lacks(b));
                (None, self.b.next.take().filter(|_| !lost))
            }
        };
        let only_one = a.is_none() || b.is_none();
        if (only_one && self.common) || (a.is_none() && b.is_none()) {
            return true;
        }
        let len = |warp: &Option<Warp<'_>>| warp.as_ref().map_or(0, Warp::len);
        *bytes += (len(&a).max(len(&b)) + 1) * v1::EVENT as u64;
        batch.pairs.push((a, b));
        true
    }
}

impl<'a> Row<'a> {
    fn new(warps: Warps<'a>) -> Self {
        let (next, lost, ended, problems) = (None, None, false, Vec::new());
        Self { warps, next, lost, ended, problems, fatal: false, events: 0 }
    }

    fn fill(&mut self, mut twin: Option<OpenChunk<'a>>) {
        while self.next.is_none() && !self.ended {
            match self.warps.next_beside(twin.take()) {
                Some(Found::Warp(warp)) => {
                    self.events += warp.len();
                    self.next = Some(warp);
                }
                Some(Found::Lost { last, error, .. }) => {
                    self.lost = Some(last);
                    self.fatal |= last == u32::MAX;
                    self.problems.push(error);
                }
                None => self.ended = true,
            }
        }
    }

    /// Whether a warp that is not there may have been.
    fn lacks(&self, warp: u32) -> bool {
        self.lost.is_some_and(|lost| warp <= lost)
    }
}

impl<'a> Batch<'a> {
    /// Where in the files of v1 the batch is, if both are and it is one piece of each.
    pub(super) fn ranges(&self) -> Option<(Range<u64>, Range<u64>)> {
        let ends = |pair: Option<&(Option<Warp<'_>>, Option<Warp<'_>>)>| match pair {
            Some((Some(Warp(Data::V1(a))), Some(Warp(Data::V1(b))))) => {
                Some((a.range.clone(), b.range.clone()))
            }
            _ => None,
        };
        let ((first_a, first_b), (last_a, last_b)) =
            (ends(self.pairs.first())?, ends(self.pairs.last())?);
        // The header of the first warp belongs to it.
        let header = v1::WARP as u64;
        Some((first_a.start - header..last_a.end, first_b.start - header..last_b.end))
    }

    /// Whether some of the bytes at an offset of the first file are an event of an unknown kind.
    pub(super) fn has_unknown_kinds(&self, at: u64, bytes: &[u8]) -> bool {
        let end = at + bytes.len() as u64;
        let range = |pair: &(Option<Warp<'a>>, Option<Warp<'a>>)| match pair {
            (Some(Warp(Data::V1(warp))), _) => warp.range.clone(),
            _ => 0..0,
        };
        // Warps are in the order of the file.
        let first = self.pairs.partition_point(|pair| range(pair).end <= at);
        self.pairs[first..].iter().map(range).take_while(|range| range.start < end).any(|range| {
            let (start, end) = (range.start.max(at) - at, range.end.min(end) - at);
            let events = &bytes[start as usize..end as usize];
            v1::known_events(events) * v1::EVENT < events.len()
        })
    }
}
