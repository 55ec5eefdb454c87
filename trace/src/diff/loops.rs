//! Loops that one of the two runs more often.
//!
//! Where the test of a loop is recorded, one of the two leaves by it and the other stays: they go on
//! alike behind the test by which the other leaves too. Where it is not, the one that comes back to
//! where it just was goes on until it does what the other does.

use super::side::{BEHIND, Side};
use super::step::{place, way};
use super::warp::{Divergence, Join, Walk};
use crate::error::Error;
use crate::event::{Event, EventKind};

/// Steps alike that confirm that two warps are at the same place again.
const CONFIRM: u64 = 8;
/// Events of a round up to which the next test of a loop is looked for.
const ROUND: u64 = 4096;
/// Steps that are compared to tell which of two ways to go on is the better one; more than that is
/// said of two that are alike to their ends.
const FAR: u64 = 4096;
const TO_THE_END: u64 = 16 * FAR;
/// For each step that is skipped, this part of a step must be alike behind it.
const SKIPPED: u64 = 4;
/// What one has more is looked through for rounds up to this many events.
const LONGEST_ROUNDS: u64 = 4096;

/// Where both have left a loop, and how many steps they go on alike from there.
struct Exit {
    join: Join,
    alike: u64,
}

impl Walk<'_, '_> {
    /// After a branch that went two ways: if it is the test of a loop, goes on where both have left it.
    pub(super) fn drift(
        &mut self,
        x: &Event,
        y: &Event,
        found: &mut impl FnMut(&mut Self, Divergence) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if x.direction == y.direction || self.loop_credit < 0 {
            return Ok(());
        }
        let (next_x, next_y) = (self.a.peek(0)?, self.b.peek(0)?);
        let lost = |next: Option<Event>, side: &Side<'_>| next.is_none() && side.dropped > 0;
        if lost(next_x, self.a) || lost(next_y, self.b) {
            return Ok(());
        }
        // Who goes the usual way stays in the loop; where there is none yet, either may.
        let exit = match self.usual_direction(x)? {
            Some(usual) if usual == x.direction => self.exit(false, y)?,
            Some(_) => self.exit(true, x)?,
            None => {
                let either = [self.exit(true, x)?, self.exit(false, y)?];
                either.into_iter().flatten().max_by_key(|exit| exit.alike)
            }
        };
        let Some(Exit { join, .. }) = exit else { return Ok(()) };
        found(self, self.parted(next_x, next_y, Some(join)))?;
        self.step(join.a, join.b);
        self.joined = (self.a.at, self.b.at);
        Ok(())
    }

    /// Which way a branch went most often so far.
    fn usual_direction(&mut self, branch: &Event) -> Result<Option<u32>, Error> {
        let here = self.a.at.saturating_sub(1);
        let first = here.saturating_sub(BEHIND / 2);
        self.loop_credit -= (here - first) as i64;
        let mut counts: Vec<(u32, u32)> = Vec::new();
        for index in first..here {
            let event = self.a.event(index)?.filter(|event| place(event) == place(branch));
            let Some(Event { direction, .. }) = event else { continue };
            match counts.iter_mut().find(|(other, _)| *other == direction) {
                Some((_, count)) => *count += 1,
                None => counts.push((direction, 1)),
            }
        }
        Ok(counts.into_iter().max_by_key(|(_, count)| *count).map(|(direction, _)| direction))
    }

    /// Where the one that stays in a loop leaves it by the test by which the other just `left`. Both must
    /// go on alike from there, and longer than if the two had taken two ways through one round.
    fn exit(&mut self, b_stays: bool, left: &Event) -> Result<Option<Exit>, Error> {
        let (stayer, leaver) = match b_stays {
            true => (&mut *self.b, &mut *self.a),
            false => (&mut *self.a, &mut *self.b),
        };
        let Some(round) = next_test(stayer, 0, left)? else { return Ok(None) };
        let again = next_test(leaver, 0, left)?;
        self.loop_credit -= (round + again.unwrap_or(ROUND)) as i64;
        let apart = match again {
            Some(again) => ways_apart(stayer, round, leaver, again)?,
            None => Apart::Wholly,
        };
        if apart == Apart::AndMeet {
            return Ok(None);
        }
        let (mut rounds, mut test) = (1, round);
        while stayer.peek(test)?.is_some_and(|event| way(&event) != way(left)) {
            let next = match test < stayer.reach() {
                true => next_test(stayer, test + 1, left)?,
                false => None,
            };
            let Some(next) = next else {
                self.loop_credit -= (test - round) as i64;
                return Ok(None);
            };
            rounds += 1;
            test = next;
        }
        let behind = test + 1;
        let outside = alike(stayer, behind, leaver, 0)?;
        let inside = match again {
            Some(again) => alike(stayer, round, leaver, again)?,
            None => 0,
        };
        self.loop_credit -= (behind + outside.min(FAR) + inside.min(FAR)) as i64;
        let enough = if apart == Apart::Never { 2 * CONFIRM } else { CONFIRM / 2 };
        let enough = enough.max((behind / SKIPPED).min(FAR));
        let longer = outside > inside || outside == FAR && inside == FAR;
        let mut left_it = outside >= enough && longer;
        if outside < FAR {
            // They soon part again: which reading of this test tells of fewer findings from here on?
            let mut reading = Left { test: *left, loops: true, looked: 0 };
            let loops = reading.findings(stayer, leaver, behind, 0)?;
            reading.loops = false;
            let ways = match again {
                Some(again) => reading.findings(stayer, leaver, round, again)?,
                None => None,
            };
            self.loop_credit -= reading.looked as i64;
            left_it = match (loops, ways) {
                (Some(loops), Some(ways)) => loops <= ways,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => left_it,
            };
        }
        if !left_it {
            return Ok(None);
        }
        let rounds = Some((left.site, rounds, round + 1));
        let (a, b) = if b_stays { (0, behind) } else { (behind, 0) };
        Ok(Some(Exit { join: Join { a, b, rounds }, alike: outside }))
    }

    /// One of the two stays in a loop that both went through, while the other leaves it.
    pub(super) fn loop_drift(&mut self) -> Result<Option<Join>, Error> {
        for b_stays in [true, false] {
            let Some(body) = self.body(b_stays)? else { continue };
            let leaver = if b_stays { &mut *self.a } else { &mut *self.b };
            let left = leaver.peek(0)?;
            if left.is_some_and(|event| body.binary_search(&place(&event)).is_ok()) {
                continue;
            }
            let inside = |token| body.binary_search(&token).is_ok();
            if let Some(join) = self.rounds(b_stays, inside)? {
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

    /// How far one goes on inside a loop until it does what the other does now.
    fn rounds(
        &mut self,
        b_stays: bool,
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
            let within = ahead < stayer.reach();
            let Some(event) = stayer.peek(ahead)?.filter(|_| within) else { break false };
            if ahead > 0 && Some(way(&event)) == target && confirmed(stayer, ahead, leaver)? {
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
    pub(super) fn rounds_of(&mut self, a: u64, b: u64) -> Result<Option<(u64, u64, u64)>, Error> {
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
}

/// The next time that one comes to a branch, from a step on.
fn next_test(side: &mut Side<'_>, from: u64, branch: &Event) -> Result<Option<u64>, Error> {
    for ahead in from..from + ROUND {
        match side.peek(ahead)? {
            Some(event) if place(&event) == place(branch) => return Ok(Some(ahead)),
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

/// How the ways of two from a branch to the same branch again differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// They are the same.
    Never,
    /// They meet before the branch: it was none that leaves a loop.
    AndMeet,
    /// They do not.
    Wholly,
}

fn ways_apart(a: &mut Side<'_>, len_a: u64, b: &mut Side<'_>, len_b: u64) -> Result<Apart, Error> {
    let mut alike = 0;
    while alike < len_a.min(len_b) {
        let (x, y) = (a.peek(len_a - 1 - alike)?, b.peek(len_b - 1 - alike)?);
        if x.map(|event| place(&event)) != y.map(|event| place(&event)) {
            break;
        }
        alike += 1;
    }
    Ok(match alike {
        _ if alike == len_a && alike == len_b => Apart::Never,
        0 => Apart::Wholly,
        _ => Apart::AndMeet,
    })
}

/// A reading of a test at which two part: it leaves a loop, or it leaves out the rest of a round.
struct Left {
    /// The test, as who leaves has it.
    test: Event,
    loops: bool,
    /// Events that were looked at.
    looked: u64,
}

impl Left {
    /// How many findings two have that went on over some events of theirs, by this reading wherever they
    /// part at the test; `None` if they part elsewhere.
    fn findings(
        &mut self,
        a: &mut Side<'_>,
        b: &mut Side<'_>,
        over_a: u64,
        over_b: u64,
    ) -> Result<Option<u64>, Error> {
        let (mut at_a, mut at_b) = (over_a, over_b);
        let mut findings = u64::from(over_a != over_b);
        for _ in 0..FAR {
            match (a.peek(at_a)?, b.peek(at_b)?) {
                (None, None) => break,
                (Some(x), Some(y)) if way(&x) == way(&y) => {}
                (Some(x), Some(y)) if place(&x) == place(&self.test) && place(&x) == place(&y) => {
                    let over_a = self.skipped(a, at_a + 1, &x)?;
                    let over_b = self.skipped(b, at_b + 1, &y)?;
                    let (Some(over_a), Some(over_b)) = (over_a, over_b) else { return Ok(None) };
                    findings += 1 + u64::from(over_a != over_b);
                    at_a += over_a;
                    at_b += over_b;
                }
                _ => return Ok(None),
            }
            at_a += 1;
            at_b += 1;
            self.looked += 2;
        }
        Ok(Some(findings))
    }

    /// The events that one leaves out behind the test, which it took as said.
    fn skipped(
        &mut self,
        side: &mut Side<'_>,
        from: u64,
        test: &Event,
    ) -> Result<Option<u64>, Error> {
        let (mut at, mut taken) = (from, *test);
        while !self.loops || way(&taken) != way(&self.test) {
            let next = next_test(side, at, test)?.filter(|next| *next < from + FAR);
            self.looked += next.map_or(ROUND, |next| next - at);
            let Some(next) = next else { return Ok(None) };
            if !self.loops {
                return Ok(Some(next - from));
            }
            let Some(event) = side.peek(next)? else { return Ok(None) };
            (at, taken) = (next + 1, event);
        }
        Ok(Some(at - from))
    }
}

/// How many steps two go on alike, each from a step of its own.
fn alike(a: &mut Side<'_>, from_a: u64, b: &mut Side<'_>, from_b: u64) -> Result<u64, Error> {
    for at in 0..FAR {
        match (a.peek(from_a + at)?, b.peek(from_b + at)?) {
            (Some(x), Some(y)) if way(&x) == way(&y) => {}
            (None, None) => return Ok(TO_THE_END),
            _ => return Ok(at),
        }
    }
    Ok(FAR)
}

/// How long the round is, if steps are rounds of the same places, two or more.
fn repeated(more: &[Event]) -> Option<u64> {
    let again =
        |events: &usize| more.iter().zip(&more[*events..]).all(|(x, y)| place(x) == place(y));
    let whole = |events: &usize| more.len() % events == 0;
    (1..=more.len() / 2).filter(whole).find(again).map(|events| events as u64)
}

/// Whether one does from a step on what the other does now.
fn confirmed(stayer: &mut Side<'_>, ahead: u64, leaver: &mut Side<'_>) -> Result<bool, Error> {
    for at in 0..CONFIRM {
        // What comes later may differ again; the first steps must not.
        let enough = at >= CONFIRM / 2;
        match (stayer.peek(ahead + at)?, leaver.peek(at)?) {
            (Some(x), Some(y)) if way(&x) == way(&y) => {}
            (Some(x), Some(y)) => return Ok(enough && place(&x) == place(&y)),
            (None, None) => return Ok(true),
            _ => return Ok(enough),
        }
    }
    Ok(true)
}
