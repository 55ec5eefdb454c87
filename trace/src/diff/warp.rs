//! One warp of A against the same warp of B.
//!
//! Events belong together by their sites. Pairs are compared; what only one of the two has between
//! pairs is one finding, however long it is.

use super::align::{Window, anchor, shortest};
use super::side::{BEHIND, Side, skip_equal};
use super::step::{difference, lanes, place, way};
use crate::error::Error;
use crate::event::Event;
use crate::report::{Class, FindingKind, Step};

/// Windows in which the two are aligned; the next is taken when one is too small.
const WINDOWS: [u64; 5] = [64, 256, 1024, 8192, 1 << 16];
/// Up to this size the shortest edit script is looked for, beyond it anchors.
const SHORTEST: u64 = 256;
/// What aligning a warp may cost, in comparisons of tokens: at first, with each event, and at most.
const CREDIT: i64 = 1 << 20;
const CREDIT_PER_EVENT: i64 = 32;
const MOST_CREDIT: i64 = 1 << 24;

/// A finding in a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Divergence {
    pub(super) kind: FindingKind,
    pub(super) site: u64,
    pub(super) index_a: u64,
    pub(super) index_b: u64,
    pub(super) lanes: Option<u32>,
    pub(super) count: Option<u64>,
    pub(super) resync: Option<(u64, u64)>,
    pub(super) event_a: Option<Event>,
    pub(super) event_b: Option<Event>,
    pub(super) class: Option<Class>,
}

/// Walks along a warp in both traces.
pub(super) struct Walk<'a, 'b> {
    pub(super) a: &'b mut Side<'a>,
    pub(super) b: &'b mut Side<'a>,
    values: bool,
    /// Events of nvtrace v2 can be told to be alike by their words.
    words: bool,
    pub(super) credit: i64,
    /// As `credit`, for looking where loops end.
    pub(super) loop_credit: i64,
    /// Where the two were last brought together.
    pub(super) joined: (u64, u64),
    tokens: [Vec<u64>; 2],
    /// As `tokens`, with the ways of branches.
    ways: [Vec<u64>; 2],
}

/// Where the two go on alike, in steps from here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Join {
    pub(super) a: u64,
    pub(super) b: u64,
    /// The site of the loop, its rounds and the events in one, if that is what one has more.
    pub(super) rounds: Option<(u64, u64, u64)>,
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn new(a: &'b mut Side<'a>, b: &'b mut Side<'a>, values: bool, words: bool) -> Self {
        Self {
            a,
            b,
            values,
            words,
            credit: CREDIT,
            loop_credit: CREDIT,
            joined: (0, 0),
            tokens: Default::default(),
            ways: Default::default(),
        }
    }

    /// Hands each finding to `found`, in order.
    pub(super) fn run(
        &mut self,
        mut found: impl FnMut(&mut Self, Divergence) -> Result<(), Error>,
    ) -> Result<(), Error> {
        loop {
            match (self.a.peek(0)?, self.b.peek(0)?) {
                (None, None) => return Ok(()),
                (Some(x), Some(y)) => match difference(&x, &y, self.values) {
                    Some(FindingKind::Path) => {
                        let join = self.join()?;
                        found(self, self.parted(Some(x), Some(y), join))?;
                        let Some(join) = join else { return Ok(()) };
                        self.step(join.a, join.b);
                        self.joined = (self.a.at, self.b.at);
                    }
                    Some(kind) => {
                        found(self, self.pair(kind, &x, &y))?;
                        self.step(1, 1);
                        if kind == FindingKind::Direction {
                            self.drift(&x, &y, &mut found)?;
                        }
                    }
                    None => {
                        let from = self.a.at;
                        skip_equal(self.a, self.b, self.values, self.words)?;
                        self.earn(2 * (self.a.at - from));
                    }
                },
                (x, y) => {
                    if let Some(end) = self.end(x, y)? {
                        found(self, end)?;
                    }
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn step(&mut self, a: u64, b: u64) {
        self.a.advance(a);
        self.b.advance(b);
        self.earn(a + b);
    }

    /// What is gone over pays for what is looked at again.
    fn earn(&mut self, steps: u64) {
        let steps = i64::try_from(steps).unwrap_or(i64::MAX);
        let more = steps.saturating_mul(CREDIT_PER_EVENT);
        for credit in [&mut self.credit, &mut self.loop_credit] {
            *credit = credit.saturating_add(more).min(MOST_CREDIT);
        }
    }

    fn finding(&self, kind: FindingKind, site: u64) -> Divergence {
        Divergence {
            kind,
            site,
            index_a: self.a.at,
            index_b: self.b.at,
            lanes: None,
            count: None,
            resync: None,
            event_a: None,
            event_b: None,
            class: None,
        }
    }

    fn pair(&self, kind: FindingKind, x: &Event, y: &Event) -> Divergence {
        let lanes = if kind == FindingKind::Value { None } else { lanes(x, y) };
        let (event_a, event_b) = (Some(*x), Some(*y));
        Divergence { lanes, event_a, event_b, ..self.finding(kind, x.site) }
    }

    /// The next events of both are no pair; one of the two may have no more.
    pub(super) fn parted(
        &self,
        x: Option<Event>,
        y: Option<Event>,
        join: Option<Join>,
    ) -> Divergence {
        let kind = match join {
            Some(Join { a: 0, .. }) => FindingKind::Extra,
            Some(Join { b: 0, .. }) => FindingKind::Missing,
            _ => FindingKind::Path,
        };
        let first = if kind == FindingKind::Extra { y.or(x) } else { x.or(y) };
        let site = first.map_or(0, |event| event.site);
        let mut finding = Divergence { event_a: x, event_b: y, ..self.finding(kind, site) };
        let Some(join) = join else { return finding };
        finding.resync = Some((self.a.at + join.a, self.b.at + join.b));
        if kind != FindingKind::Path {
            finding.count = Some(join.a.max(join.b));
        }
        if let Some((site, rounds, events)) = join.rounds {
            finding.site = site;
            finding.count = Some(rounds);
            finding.class = Some(Class::LoopBound { site, rounds, events });
        }
        finding
    }

    /// One has no more events. Where its last were lost that is no difference.
    fn end(&mut self, x: Option<Event>, y: Option<Event>) -> Result<Option<Divergence>, Error> {
        let (over, ended) = match x {
            Some(_) => (&mut *self.a, &*self.b),
            None => (&mut *self.b, &*self.a),
        };
        if ended.dropped > 0 {
            return Ok(None);
        }
        let count = Some(over.left()?);
        let site = x.or(y).map_or(0, |event| event.site);
        let finding = self.finding(FindingKind::End, site);
        Ok(Some(Divergence { count, event_a: x, event_b: y, ..finding }))
    }

    /// Where the two go on alike.
    fn join(&mut self) -> Result<Option<Join>, Error> {
        if self.credit < 0 {
            // So different that aligning them would take longer than it is worth.
            return Ok(None);
        }
        if let Some(join) = self.loop_drift()? {
            return Ok(Some(join));
        }
        for window in WINDOWS {
            if self.credit < 0 {
                break;
            }
            let ends = (self.fill(0, window)?, self.fill(1, window)?);
            let [a, b] = &self.tokens;
            let (a, b) = (Window { tokens: a, ends: ends.0 }, Window { tokens: b, ends: ends.1 });
            let cost = (a.tokens.len() + b.tokens.len()) as i64;
            let join = match window <= SHORTEST {
                true => {
                    let [x, y] = &self.ways;
                    let ways = shortest(Window { tokens: x, ..a }, Window { tokens: y, ..b });
                    let join = ways.or_else(|| shortest(a, b));
                    let edits = join.map_or(0, |(_, _, edits)| edits as i64);
                    self.credit -= edits * edits;
                    join.map(|(x, y, _)| (x, y))
                }
                false => anchor(a, b),
            };
            // Before the first steps that are the same there may be some that part in their way alone.
            let join = join.map(|(x, y)| back(a.tokens, b.tokens, x, y));
            self.credit -= 2 * cost;
            if let Some((a, b)) = join {
                let (a, b) = (a as u64, b as u64);
                return Ok(Some(Join { a, b, rounds: self.rounds_of(a, b)? }));
            }
            // A window that holds all there is does not get better by growing.
            if ends.0 && ends.1 && window > SHORTEST {
                break;
            }
        }
        Ok(None)
    }

    /// Reads the tokens of a window; says whether it holds all that is left.
    fn fill(&mut self, which: usize, window: u64) -> Result<bool, Error> {
        let side = if which == 0 { &mut *self.a } else { &mut *self.b };
        let Some(tokens) = self.tokens.get_mut(which) else { return Ok(true) };
        let Some(ways) = self.ways.get_mut(which) else { return Ok(true) };
        tokens.clear();
        ways.clear();
        while (tokens.len() as u64) < window {
            match side.peek(tokens.len() as u64)? {
                Some(event) => {
                    tokens.push(place(&event));
                    ways.push(way(&event));
                }
                None => return Ok(true),
            }
        }
        Ok(side.peek(window)?.is_none())
    }

    /// The steps before this one that both made, oldest first.
    pub(super) fn history(&mut self, steps: usize) -> Result<Vec<Step>, Error> {
        let alike = (self.a.at - self.joined.0).min(self.b.at - self.joined.1);
        let mut history = Vec::new();
        for back in (1..=(steps as u64).min(BEHIND).min(alike)).rev() {
            let (index_a, index_b) = (self.a.at - back, self.b.at - back);
            if let (Some(a), Some(b)) = (self.a.event(index_a)?, self.b.event(index_b)?) {
                history.push(Step { index_a, index_b, a, b });
            }
        }
        Ok(history)
    }
}

/// Goes back from a place in both as long as the steps before are the same.
fn back(a: &[u64], b: &[u64], x: usize, y: usize) -> (usize, usize) {
    let pairs = a[..x].iter().rev().zip(b[..y].iter().rev());
    let same = pairs.take_while(|(a, b)| a == b).count();
    (x - same, y - same)
}
