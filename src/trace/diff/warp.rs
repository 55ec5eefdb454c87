//! One warp of A against the same warp of B.
//!
//! Events belong together by their sites. Pairs are compared; what only one of the two has between
//! pairs is one finding, however long it is.

use super::align::{Window, anchor, shortest};
use super::side::{BEHIND, Side, skip_equal};
use super::step::{difference, lanes, place, way};
use crate::trace::error::Error;
use crate::trace::event::{Event, EventKind};
use crate::trace::report::{Class, Kind, Step};

/// Steps alike that confirm that two warps are in the same round of a loop again.
const CONFIRM: u64 = 8;
/// Windows in which the two are aligned; the next is taken when one is too small.
const WINDOWS: [u64; 5] = [64, 256, 1024, 8192, 1 << 16];
/// Up to this size the shortest edit script is looked for, beyond it anchors.
const SHORTEST: u64 = 256;
/// What aligning a warp may cost: at first, and with each event, in comparisons of tokens.
const CREDIT: i64 = 1 << 20;
const CREDIT_PER_EVENT: i64 = 32;

/// What one has more is looked through for rounds up to this many events.
const LONGEST_ROUNDS: u64 = 4096;

/// A finding in a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Divergence {
    pub(super) kind: Kind,
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
    credit: i64,
    /// Where the two were last brought together.
    joined: (u64, u64),
    tokens: [Vec<u64>; 2],
    /// As `tokens`, with the ways of branches.
    ways: [Vec<u64>; 2],
}

/// Where the two go on alike, in steps from here.
#[derive(Debug, Clone, Copy)]
struct Join {
    a: u64,
    b: u64,
    /// The site of the loop, its rounds and the events in one, if that is what one has more.
    rounds: Option<(u64, u64, u64)>,
}

impl<'a, 'b> Walk<'a, 'b> {
    pub(super) fn new(a: &'b mut Side<'a>, b: &'b mut Side<'a>, values: bool, words: bool) -> Self {
        Self {
            a,
            b,
            values,
            words,
            credit: CREDIT,
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
                    Some(Kind::Path) => {
                        let join = self.join()?;
                        found(self, self.parted(&x, &y, join))?;
                        let Some(join) = join else { return Ok(()) };
                        self.step(join.a, join.b);
                        self.joined = (self.a.at, self.b.at);
                    }
                    Some(kind) => {
                        found(self, self.pair(kind, &x, &y))?;
                        self.step(1, 1);
                        if kind == Kind::Direction {
                            self.drift(&x, &mut found)?;
                        }
                    }
                    None => skip_equal(self.a, self.b, self.values, self.words)?,
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

    fn step(&mut self, a: u64, b: u64) {
        self.a.advance(a);
        self.b.advance(b);
        let steps = i64::try_from(a + b).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(steps.saturating_mul(CREDIT_PER_EVENT));
    }

    fn finding(&self, kind: Kind, site: u64) -> Divergence {
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

    fn pair(&self, kind: Kind, x: &Event, y: &Event) -> Divergence {
        let lanes = if kind == Kind::Value { None } else { lanes(x, y) };
        let (event_a, event_b) = (Some(*x), Some(*y));
        Divergence { lanes, event_a, event_b, ..self.finding(kind, x.site) }
    }

    fn parted(&self, x: &Event, y: &Event, join: Option<Join>) -> Divergence {
        let kind = match join {
            Some(Join { a: 0, .. }) => Kind::Extra,
            Some(Join { b: 0, .. }) => Kind::Missing,
            _ => Kind::Path,
        };
        let site = if kind == Kind::Extra { y.site } else { x.site };
        let mut finding =
            Divergence { event_a: Some(*x), event_b: Some(*y), ..self.finding(kind, site) };
        let Some(join) = join else { return finding };
        finding.resync = Some((self.a.at + join.a, self.b.at + join.b));
        if kind != Kind::Path {
            finding.count = Some(join.a.max(join.b));
        }
        if let Some((site, rounds, events)) = join.rounds {
            finding.site = site;
            finding.count = Some(rounds);
            finding.class = Some(Class::LoopBound { site, rounds, events });
        }
        finding
    }

    /// One has no more events. Where its last were lost that says nothing.
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
        let finding = self.finding(Kind::End, site);
        Ok(Some(Divergence { count, event_a: x, event_b: y, ..finding }))
    }

    /// After a branch that went two ways: a loop without events of its own looks the same in both for
    /// a while, although one is some rounds behind.
    fn drift(
        &mut self,
        branch: &Event,
        found: &mut impl FnMut(&mut Self, Divergence) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.credit < 0 {
            return Ok(());
        }
        let mut differ = 0;
        for ahead in 0..2 * CONFIRM {
            let (Some(x), Some(y)) = (self.a.peek(ahead)?, self.b.peek(ahead)?) else { break };
            // Other sites are aligned when the walk comes to them.
            if place(&x) != place(&y) {
                return Ok(());
            }
            differ += u64::from(way(&x) != way(&y));
        }
        self.credit -= 2 * CONFIRM as i64;
        if differ < 2 {
            return Ok(());
        }
        let (Some(x), Some(y)) = (self.a.peek(0)?, self.b.peek(0)?) else { return Ok(()) };
        let Some(b_stays) = self.who_stays(branch)? else { return Ok(()) };
        let own = place(branch);
        let reach = if b_stays { self.b.reach() } else { self.a.reach() };
        if let Some(join) = self.rounds(b_stays, reach, 2 * CONFIRM, |token| token == own)? {
            found(self, self.parted(&x, &y, Some(join)))?;
            self.step(join.a, join.b);
            self.joined = (self.a.at, self.b.at);
        }
        Ok(())
    }

    /// Which of the two goes at a branch the way that both went there the last time: in a loop, the one
    /// that stays.
    fn who_stays(&mut self, branch: &Event) -> Result<Option<bool>, Error> {
        let here = self.a.at.saturating_sub(1);
        for index in (here.saturating_sub(BEHIND / 2)..here).rev() {
            match self.a.event(index)? {
                Some(event) if place(&event) == place(branch) => {
                    return Ok(Some(event.direction != branch.direction));
                }
                Some(_) => {}
                None => break,
            }
        }
        Ok(None)
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

    /// One of the two stays in a loop that both went through, while the other leaves it.
    fn loop_drift(&mut self) -> Result<Option<Join>, Error> {
        for b_stays in [true, false] {
            let Some(body) = self.body(b_stays)? else { continue };
            let leaver = if b_stays { &mut *self.a } else { &mut *self.b };
            let left = leaver.peek(0)?;
            if left.is_some_and(|event| body.binary_search(&place(&event)).is_ok()) {
                continue;
            }
            let limit = if b_stays { self.b.reach() } else { self.a.reach() };
            let inside = |token| body.binary_search(&token).is_ok();
            if let Some(join) = self.rounds(b_stays, limit, 0, inside)? {
                return Ok(Some(join));
            }
        }
        Ok(None)
    }

    /// The places in the last round of the loop, if the next event was there before.
    fn body(&mut self, b_stays: bool) -> Result<Option<Vec<u64>>, Error> {
        let side = if b_stays { &mut *self.b } else { &mut *self.a };
        let Some(next) = side.peek(0)?.map(|event| place(&event)) else { return Ok(None) };
        let first = side.at.saturating_sub(BEHIND);
        let mut body = Vec::new();
        for index in (first..side.at).rev() {
            let Some(event) = side.event(index)? else { break };
            body.push(place(&event));
            if place(&event) == next {
                body.sort_unstable();
                body.dedup();
                return Ok(Some(body));
            }
        }
        self.credit -= body.len() as i64;
        Ok(None)
    }

    /// How far one goes on inside a loop until it does what the other does now, `strictly` so for that
    /// many steps.
    fn rounds(
        &mut self,
        b_stays: bool,
        limit: u64,
        strictly: u64,
        inside: impl Fn(u64) -> bool,
    ) -> Result<Option<Join>, Error> {
        let (stayer, leaver) = match b_stays {
            true => (&mut *self.b, &mut *self.a),
            false => (&mut *self.a, &mut *self.b),
        };
        let first = stayer.peek(0)?;
        let target = leaver.peek(0)?.map(|event| way(&event));
        // The branch that decided is one step back, where it is recorded: it closes each round.
        let before =
            leaver.at.checked_sub(1).map(|index| leaver.event(index)).transpose()?.flatten();
        let decided = before.filter(|event| event.kind == EventKind::BRANCH);
        let (mut branches, mut entries, mut period) = (0_u64, 0_u64, None);
        let mut ahead = 0;
        let joins = loop {
            let Some(event) = stayer.peek(ahead)?.filter(|_| ahead < limit) else { break false };
            if ahead > 0
                && Some(way(&event)) == target
                && confirmed(stayer, ahead, leaver, strictly)?
            {
                break true;
            }
            if !inside(place(&event)) {
                break false;
            }
            branches += u64::from(decided.is_some_and(|branch| place(&branch) == place(&event)));
            if first.is_some_and(|first| place(&first) == place(&event)) {
                entries += 1;
                if entries == 2 {
                    period = Some(ahead);
                }
            }
            ahead += 1;
        };
        if !joins {
            self.credit -= ahead as i64;
            return Ok(None);
        }
        let (site, rounds) = match decided.filter(|_| branches > 0) {
            Some(branch) => (branch.site, branches),
            None => (first.map_or(0, |event| event.site), entries),
        };
        let rounds = Some((site, rounds, period.unwrap_or(ahead)));
        Ok(Some(match b_stays {
            true => Join { a: 0, b: ahead, rounds },
            false => Join { a: ahead, b: 0, rounds },
        }))
    }

    /// The rounds of a loop that one has more and that the other may not have entered: what it has more
    /// comes back to the branch that both just did, or is the same steps again and again.
    fn rounds_of(&mut self, a: u64, b: u64) -> Result<Option<(u64, u64, u64)>, Error> {
        let (side, len) = match (a, b) {
            (0, len) => (&mut *self.b, len),
            (len, 0) => (&mut *self.a, len),
            _ => return Ok(None),
        };
        if len > LONGEST_ROUNDS {
            return Ok(None);
        }
        let read = |side: &mut Side<'_>, from: u64, to: u64| -> Result<Vec<Event>, Error> {
            (from..to).filter_map(|index| side.event(index).transpose()).collect()
        };
        let at = side.at;
        let before = read(side, at.saturating_sub(1), at)?;
        let more = read(side, at, at + len)?;
        let decided = before.last().filter(|event| event.kind == EventKind::BRANCH);
        if let Some(branch) = decided.filter(|branch| more.last().map(place) == Some(place(branch)))
        {
            let rounds = more.iter().filter(|event| place(event) == place(branch)).count() as u64;
            return Ok(Some((branch.site, rounds, len / rounds)));
        }
        Ok(repeated(&more).map(|events| {
            let round = more.iter().take(events as usize);
            let branch = round.clone().find(|event| event.kind == EventKind::BRANCH);
            let site = branch.or(more.first()).map_or(0, |event| event.site);
            (site, len / events, events)
        }))
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

/// How long the round is, if steps are rounds of the same places, two or more.
fn repeated(more: &[Event]) -> Option<u64> {
    let again =
        |events: &usize| more.iter().zip(&more[*events..]).all(|(x, y)| place(x) == place(y));
    let whole = |events: &usize| more.len() % events == 0;
    (1..=more.len() / 2).filter(whole).find(again).map(|events| events as u64)
}

/// Goes back from a place in both as long as the steps before are the same.
fn back(a: &[u64], b: &[u64], x: usize, y: usize) -> (usize, usize) {
    let pairs = a[..x].iter().rev().zip(b[..y].iter().rev());
    let same = pairs.take_while(|(a, b)| a == b).count();
    (x - same, y - same)
}

/// Whether one does from a step on what the other does now.
fn confirmed(
    stayer: &mut Side<'_>,
    ahead: u64,
    leaver: &mut Side<'_>,
    strictly: u64,
) -> Result<bool, Error> {
    for at in 0..CONFIRM.max(strictly) {
        // What comes later may differ again; the first steps must not.
        let enough = at >= CONFIRM / 2 && strictly == 0;
        match (stayer.peek(ahead + at)?, leaver.peek(at)?) {
            (Some(x), Some(y)) if way(&x) == way(&y) => {}
            (Some(x), Some(y)) => return Ok(enough && place(&x) == place(&y)),
            (None, None) => return Ok(true),
            _ => return Ok(enough),
        }
    }
    Ok(true)
}
