//! One warp of one trace, as the differ walks along it.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::event::Event;
use crate::file::{Cursor, Data, Warp};
use crate::input::Pages;
use crate::v1::{self, V1Events};
use crate::v2::{Mark, V2Cursor};

/// Steps back that are remembered.
pub(super) const BEHIND: u64 = 1024;
/// Steps ahead that are looked at: where events must be kept in memory, and where they need not.
const AHEAD: u64 = 1 << 16;
const AHEAD_PAGED: u64 = 1 << 32;
/// Fewer events than this are not worth comparing their words, and this many come before the next try.
const FEW: u64 = 16;
const SINGLY: u32 = 64;

/// A warp and a place in it.
pub(super) struct Side<'a> {
    events: Events<'a>,
    /// What was read of the file, where events are read at any time.
    pages: Pages,
    /// Sites by other names.
    sites: Option<&'a FxHashMap<u64, u64>>,
    /// Events before the place.
    pub(super) at: u64,
    pub(super) dropped: u64,
}

enum Events<'a> {
    /// Any event can be read at any time.
    Paged(V1Events<'a>),
    /// Events come one after another; some are kept.
    Buffered(Box<Buffered<'a>>),
    /// A warp that the trace does not have.
    None,
}

/// Events `base` and on are kept, up to those that the cursor comes to.
struct Buffered<'a> {
    cursor: Cursor<'a>,
    kept: VecDeque<Event>,
    base: u64,
    ended: bool,
    /// Two places behind, where what was passed without being read can be read from: one that is far
    /// enough back, and the next.
    marks: [Mark; 2],
}

impl<'a> Side<'a> {
    /// `pages` are of the file that the warp is in, from comparisons before.
    pub(super) fn new(
        warp: Option<&Warp<'a>>,
        sites: Option<&'a FxHashMap<u64, u64>>,
        pages: Pages,
    ) -> Self {
        let events = match warp {
            None => Events::None,
            Some(Warp(Data::V1(warp))) => Events::Paged(warp.clone()),
            Some(warp) => Events::Buffered(Box::new(Buffered {
                cursor: warp.known(),
                kept: VecDeque::new(),
                base: 0,
                ended: false,
                marks: [Mark::default(); 2],
            })),
        };
        Self { events, pages, sites, at: 0, dropped: warp.map_or(0, Warp::dropped) }
    }

    /// What was read of the file, for the next comparison.
    pub(super) fn into_pages(self) -> Pages {
        self.pages
    }

    /// The event that is `ahead` steps ahead.
    #[inline]
    pub(super) fn peek(&mut self, ahead: u64) -> Result<Option<Event>, Error> {
        match (&self.events, self.sites) {
            (Events::Paged(warp), None) => paged(warp, &mut self.pages, self.at + ahead),
            _ => self.event(self.at + ahead),
        }
    }

    /// An event, of those that are within reach.
    pub(super) fn event(&mut self, index: u64) -> Result<Option<Event>, Error> {
        let event = match &mut self.events {
            Events::Paged(warp) => paged(warp, &mut self.pages, index)?,
            Events::Buffered(buffered) => buffered.event(index, self.at)?,
            Events::None => None,
        };
        Ok(event.map(|mut event| {
            if let Some(other) = self.sites.and_then(|sites| sites.get(&event.site)) {
                event.site = *other;
            }
            event
        }))
    }

    /// How many steps ahead can be looked at.
    pub(super) fn reach(&self) -> u64 {
        match self.events {
            Events::Paged(_) => AHEAD_PAGED,
            Events::Buffered(_) | Events::None => AHEAD,
        }
    }

    #[inline]
    pub(super) fn advance(&mut self, steps: u64) {
        self.at += steps;
        if let Events::Buffered(buffered) = &mut self.events {
            buffered.forget(self.at.saturating_sub(BEHIND));
        }
    }

    /// How many events are left.
    pub(super) fn left(&mut self) -> Result<u64, Error> {
        if let Events::Paged(warp) = &self.events {
            return Ok(warp.events().saturating_sub(self.at));
        }
        let from = self.at;
        while self.peek(0)?.is_some() {
            self.advance(1);
        }
        Ok(std::mem::replace(&mut self.at, from) - from)
    }

    /// Bytes of the events from here on, as many as are read at once, where they tell all there is to
    /// tell; none at the end.
    fn raw(&mut self) -> Result<Option<&[u8]>, Error> {
        let warp = match &self.events {
            Events::Paged(warp) if self.sites.is_none() => warp,
            _ => return Ok(None),
        };
        let Some(at) = warp.place(self.at) else { return Ok(Some(&[])) };
        let bytes = self.pages.get(warp.file.input(), at)?;
        let left = bytes.len().min((warp.range.end - at) as usize);
        Ok(Some(&bytes[..left]))
    }

    /// The words from here on, where none of them are read yet.
    fn words(&mut self) -> Option<&mut V2Cursor<'a>> {
        match &mut self.events {
            Events::Buffered(buffered) => buffered.words(self.at),
            Events::Paged(_) | Events::None => None,
        }
    }

    /// Says that the cursor of `words` passed some events.
    fn passed(&mut self, events: u64) {
        self.at += events;
        if let Events::Buffered(buffered) = &mut self.events {
            buffered.kept.clear();
            buffered.base = self.at;
        }
    }
}

#[inline]
fn paged(warp: &V1Events<'_>, pages: &mut Pages, index: u64) -> Result<Option<Event>, Error> {
    let Some(at) = warp.place(index) else { return Ok(None) };
    let input = warp.file.input();
    v1::event(input, at, pages.get(input, at)?)
}

impl<'a> Buffered<'a> {
    fn event(&mut self, index: u64, at: u64) -> Result<Option<Event>, Error> {
        if index < self.base && index + BEHIND >= at {
            self.read_back(at.saturating_sub(BEHIND))?;
        }
        while !self.ended && self.base + (self.kept.len() as u64) <= index {
            match self.cursor.next()? {
                Some(event) => self.kept.push_back(event),
                None => self.ended = true,
            }
        }
        let place = index.checked_sub(self.base);
        Ok(place.and_then(|place| self.kept.get(usize::try_from(place).ok()?)).copied())
    }

    fn forget(&mut self, before: u64) {
        let forget = before.saturating_sub(self.base).min(self.kept.len() as u64);
        self.kept.drain(..forget as usize);
        self.base += forget;
    }

    /// Reads events that were passed, from `first` to those that are kept.
    fn read_back(&mut self, first: u64) -> Result<(), Error> {
        let Cursor::V2(cursor) = &self.cursor else { return Ok(()) };
        let [far, near] = self.marks;
        let mut cursor = cursor.back(if near.index <= first { near } else { far })?;
        let mut passed = Vec::new();
        while cursor.index < self.base {
            let index = cursor.index;
            match cursor.next()? {
                Some(event) if index >= first => passed.push(event),
                Some(_) => {}
                None => break,
            }
        }
        self.base -= passed.len() as u64;
        passed.into_iter().rev().for_each(|event| self.kept.push_front(event));
        Ok(())
    }

    fn words(&mut self, at: u64) -> Option<&mut V2Cursor<'a>> {
        let Cursor::V2(cursor) = &mut self.cursor else { return None };
        if cursor.index != at {
            return None;
        }
        let [_, near] = self.marks;
        if at - near.index >= BEHIND {
            self.marks = [near, cursor.mark()];
        }
        Some(cursor)
    }
}

/// Goes over what both have alike, and is fast as long as the bytes are the same; `words` of nvtrace
/// v2 tell that where both have the same sites.
pub(super) fn skip_equal<'a>(
    a: &mut Side<'a>,
    b: &mut Side<'a>,
    values: bool,
    words: bool,
) -> Result<(), Error> {
    while let (Some(bytes_a), Some(bytes_b)) = (a.raw()?, b.raw()?) {
        let len = bytes_a.len().min(bytes_b.len());
        let same = equal_events(&bytes_a[..len], &bytes_b[..len], values);
        a.advance(same as u64);
        b.advance(same as u64);
        if len == 0 || same * v1::EVENT < len {
            return Ok(());
        }
    }
    // Where words differ often, events are read one by one for a while.
    let mut singly = 0;
    loop {
        match (a.peek(0)?, b.peek(0)?) {
            (Some(x), Some(y)) if super::step::difference(&x, &y, values).is_none() => {
                a.advance(1);
                b.advance(1);
            }
            _ => return Ok(()),
        }
        match singly {
            0 if words && pass_words(a, b)? < FEW => singly = SINGLY,
            0 => {}
            _ => singly -= 1,
        }
    }
}

/// Goes over events whose words are the same, and says how many.
fn pass_words<'a>(a: &mut Side<'a>, b: &mut Side<'a>) -> Result<u64, Error> {
    let mut passed = 0;
    loop {
        let (Some(own), Some(other)) = (a.words(), b.words()) else { return Ok(passed) };
        let events = own.pass_alike(other)?;
        if events == 0 {
            return Ok(passed);
        }
        a.passed(events);
        b.passed(events);
        passed += events;
    }
}

/// How many events two slices of the same length have alike from their start, before one of an unknown kind.
fn equal_events(a: &[u8], b: &[u8], values: bool) -> usize {
    const BLOCK: usize = 4096;
    // The two unused bytes never count, the value only when it is asked for.
    let (low, high) = (0x0000_ffff_ffff_ffff_u64, if values { u64::MAX } else { 0xffff_ffff });
    let half = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let alike = |a: &[u8], b: &[u8]| {
        v1::known_events(a) == 1
            && (half(a, 0) ^ half(b, 0)) & low == 0
            && (half(a, 8) ^ half(b, 8)) & high == 0
    };
    let mut same = 0;
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        if a == b {
            let known = v1::known_events(a);
            same += known;
            if known * v1::EVENT < a.len() {
                break;
            }
            continue;
        }
        let pairs = a.chunks_exact(v1::EVENT).zip(b.chunks_exact(v1::EVENT));
        let here = pairs.take_while(|(a, b)| alike(a, b)).count();
        same += here;
        if here * v1::EVENT < a.len() {
            break;
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_and_equal_events_are_told_apart() {
        let a: Vec<u8> = (0..16 * 1000)
            .map(|at| if at % 16 == 4 { (at / 16 % 5) as u8 } else { (at % 251) as u8 })
            .collect();
        assert_eq!(equal_events(&a, &a, true), 1000);
        for (at, values, same) in
            [(0, false, 0), (16 * 700 + 3, false, 700), (16 * 700 + 13, true, 700)]
        {
            let mut b = a.clone();
            b[at] ^= 1;
            assert_eq!(equal_events(&a, &b, values), same, "byte {at}");
        }
        let mut unknown = a.clone();
        unknown[16 * 700 + 4] = 5;
        assert_eq!(equal_events(&unknown, &unknown, true), 700, "an unknown kind");
        for at in [16 * 700 + 13, 16 * 700 + 6] {
            let mut b = a.clone();
            b[at] ^= 1;
            assert_eq!(equal_events(&a, &b, false), 1000, "byte {at} does not count");
        }
    }
}
