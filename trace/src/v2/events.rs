//! The warps of a launch and their events, chunk after chunk.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::read::{OpenChunk, Shared, V2, V2Launch};
use super::sites::SiteTable;
use crate::abi::r2 as abi;
use crate::error::{Error, Problem};
use crate::event::{Event, EventKind};
use crate::input::record;
use crate::records::{Index, Warp, Word};

const WARP: usize = size_of::<Warp>();
const WORD: usize = size_of::<Word>();

/// A site that the file's table does not have has this and its index as its key.
const UNKNOWN_SITE: u64 = 0xffff_ffff_0000_0000;

/// The bits that mean something in the low half of an event's first word.
const KNOWN: u32 = abi::NVABI_TRACE_SITE
    | abi::NVABI_TRACE_KIND
    | abi::NVABI_TRACE_TAKEN
    | abi::NVABI_TRACE_HAS_BALLOT
    | abi::NVABI_TRACE_HAS_VALUE;

/// Words that are compared at once.
const WINDOW: usize = 1024;

/// What comes next in a launch.
pub(crate) enum Found<T> {
    /// A warp with all that was recorded of it.
    Warp(T),
    /// These warps cannot be read, or not wholly.
    Lost {
        /// The first.
        first: u32,
        /// The last, included.
        last: u32,
        /// Why not.
        error: Error,
    },
}

/// One warp.
#[derive(Debug, Clone)]
pub(crate) struct V2Events<'a> {
    file: &'a V2,
    launch: usize,
    pub(crate) number: u32,
    pub(crate) events: u64,
    pub(crate) dropped: u64,
    parts: Arc<[Part]>,
    /// The chunk that the first part lies in.
    first: Shared,
}

/// A part of a warp's words.
#[derive(Debug, Clone, Copy)]
struct Part {
    chunk: u32,
    /// In the chunk.
    offset: u32,
    words: u32,
}

/// The warps of a launch, in their order.
pub(crate) struct V2Warps<'a> {
    file: &'a V2,
    launch: usize,
    /// The next of the launch's chunks.
    next: usize,
    /// The chunk that is being read: which, its bytes, and where in them.
    open: Option<(u32, Shared, usize)>,
    /// The number that the next chunk must have.
    number: Option<u32>,
    last_warp: Option<u32>,
    /// What is left of this warp is lost.
    skip: Option<u32>,
    /// What another trace is reading.
    twin: Option<OpenChunk<'a>>,
    done: bool,
}

impl<'a> V2Warps<'a> {
    pub(super) fn new(file: &'a V2, launch: usize) -> Self {
        let number = file.launches().get(launch).map(|launch| launch.number.wrapping_add(1));
        let (open, last_warp, skip, twin) = (None, None, None, None);
        Self { file, launch, next: 0, open, number, last_warp, skip, twin, done: false }
    }

    /// Begins at the chunk that a warp begins in.
    pub(super) fn from(file: &'a V2, launch: usize, warp: u32) -> Self {
        let mut warps = Self::new(file, launch);
        let chunks = file.launches().get(launch).map_or(&[][..], |launch| &launch.events);
        let chunk = |at: u32| file.chunks().get(at as usize).map(|place| place.chunk);
        let before = |at: &u32| chunk(*at).is_some_and(|chunk| chunk.last_warp < warp);
        warps.next = chunks.partition_point(before);
        warps.number = chunks.get(warps.next).and_then(|at| chunk(*at)).map(|chunk| chunk.number);
        warps
    }

    /// The chunk that is being read, for the warps of a trace that goes along with this one.
    pub(crate) fn open_chunk(&self) -> Option<OpenChunk<'a>> {
        let (chunk, bytes, _) = self.open.as_ref()?;
        let place = *self.file.chunks().get(*chunk as usize)?;
        Some(OpenChunk { file: self.file, place, bytes: bytes.clone() })
    }

    /// The next, of which what is the same as in another trace is taken from there.
    pub(crate) fn next_beside(
        &mut self,
        twin: Option<OpenChunk<'a>>,
    ) -> Option<Found<V2Events<'a>>> {
        self.twin = twin;
        let next = self.next();
        self.twin = None;
        next
    }

    fn record(&self) -> Option<&'a V2Launch> {
        self.file.launches().get(self.launch)
    }

    fn place(&self) -> Option<(u32, Index)> {
        let at = *self.record()?.events.get(self.next)?;
        Some((at, *self.file.chunks().get(at as usize)?))
    }

    /// Opens the next chunk, or says what is lost.
    fn load(&mut self) -> Option<Result<(), Found<V2Events<'a>>>> {
        let Some((at, place)) = self.place() else { return self.end().map(Err) };
        if self.number != Some(place.chunk.number) {
            // The chunk itself is taken the next time.
            self.number = Some(place.chunk.number);
            let what = "damaged: chunks before this one are lost";
            return Some(Err(self.lost(place.offset, place.chunk.first_warp, what)));
        }
        self.number = Some(place.chunk.number.wrapping_add(1));
        self.next += 1;
        match self.file.payload_beside(&place, self.twin.as_ref()) {
            Ok(bytes) => {
                self.open = Some((at, bytes, 0));
                Some(Ok(()))
            }
            Err(error) => {
                let (first, last) = (place.chunk.first_warp, place.chunk.last_warp);
                self.skip = Some(last);
                Some(Err(Found::Lost { first, last, error }))
            }
        }
    }

    /// Complains once when the launch was not written to its end.
    fn end(&mut self) -> Option<Found<V2Events<'a>>> {
        if self.done {
            return None;
        }
        self.done = true;
        let whole = self.record().and_then(|launch| launch.end).map(|(number, _)| number);
        (whole.is_none() || whole != self.number).then(|| {
            let offset = self.file.size();
            self.lost(offset, u32::MAX, "the launch was not written to its end")
        })
    }

    /// The warps from the last that was seen to `last`.
    fn lost(&mut self, offset: u64, last: u32, what: &'static str) -> Found<V2Events<'a>> {
        let error = self.file.error(offset, Problem::Damaged(what));
        self.skip = Some(last);
        Found::Lost { first: self.last_warp.unwrap_or(0), last, error }
    }

    /// The next part in the open chunk: its header and where its words begin.
    fn part(&mut self) -> Option<Result<(Warp, Part), Found<V2Events<'a>>>> {
        let (chunk, bytes, at) = self.open.as_mut()?;
        if *at >= bytes.len() {
            self.open = None;
            return None;
        }
        let header = record::<Warp>(bytes, *at);
        let start = *at + WARP;
        let fits = |warp: &Warp| warp.words as usize <= bytes.len().saturating_sub(start) / WORD;
        match header.filter(fits) {
            Some(warp) => {
                *at = start + warp.words as usize * WORD;
                let part = Part { chunk: *chunk, offset: start as u32, words: warp.words };
                Some(Ok((warp, part)))
            }
            None => {
                let (chunk, at) = (*chunk as usize, *at);
                let place = self.file.chunks().get(chunk).copied()?;
                let what = "a warp in the chunk has more words than the chunk";
                let problem = Problem::Damaged(what);
                let error = self.file.error(place.offset + at as u64, problem);
                self.open = None;
                self.skip = Some(place.chunk.last_warp);
                let (first, last) = (self.last_warp.unwrap_or(0), place.chunk.last_warp);
                Some(Err(Found::Lost { first, last, error }))
            }
        }
    }

    /// Whether the warp may go on in the next chunk: it must be asked for before the warp is whole.
    fn goes_on(&self, warp: u32) -> bool {
        let at_end = self.open.as_ref().is_none_or(|(_, bytes, at)| *at >= bytes.len());
        let Some(launch) = self.record() else { return false };
        if !at_end {
            return false;
        }
        match self.place() {
            Some((_, place)) => {
                self.number != Some(place.chunk.number) || place.chunk.first_warp == warp
            }
            None => launch.end.map(|(number, _)| number) != self.number,
        }
    }

    fn warp(&mut self) -> Option<Found<V2Events<'a>>> {
        loop {
            if self.open.is_none() {
                match self.load()? {
                    Ok(()) => {}
                    Err(lost) => return Some(lost),
                }
            }
            let first = self.open.as_ref().map(|(_, bytes, _)| bytes.clone())?;
            let (warp, part) = match self.part() {
                None => continue,
                Some(Ok(part)) => part,
                Some(Err(lost)) => return Some(lost),
            };
            if self.last_warp.is_some_and(|last| warp.warp < last) {
                let place = self.file.chunks().get(part.chunk as usize).copied()?;
                let what = "damaged: the warps are not in their order";
                self.open = None;
                self.done = true;
                self.next = usize::MAX;
                return Some(self.lost(place.offset, u32::MAX, what));
            }
            self.last_warp = Some(warp.warp);
            if self.skip.is_some_and(|skip| warp.warp <= skip) {
                continue;
            }
            return Some(self.whole(warp, part, first));
        }
    }

    /// The warp with the parts that lie in the chunks behind.
    fn whole(&mut self, warp: Warp, part: Part, first: Shared) -> Found<V2Events<'a>> {
        let mut parts = vec![part];
        let (mut events, mut dropped) = (u64::from(warp.events), u64::from(warp.dropped));
        while self.goes_on(warp.warp) {
            self.open = None;
            match self.load() {
                Some(Ok(())) => {}
                // What is lost begins with this warp.
                Some(Err(Found::Lost { last, error, .. })) => {
                    return Found::Lost { first: warp.warp, last, error };
                }
                _ => break,
            }
            match self.part() {
                Some(Ok((more, part))) if more.warp == warp.warp => {
                    parts.push(part);
                    events += u64::from(more.events);
                    dropped += u64::from(more.dropped);
                }
                Some(Err(Found::Lost { last, error, .. })) => {
                    return Found::Lost { first: warp.warp, last, error };
                }
                _ => {
                    let offset = self.place().map_or(0, |(_, place)| place.offset);
                    let what = "damaged: a chunk begins with another warp than it says";
                    return self.lost(offset, warp.warp, what);
                }
            }
        }
        Found::Warp(V2Events {
            file: self.file,
            launch: self.launch,
            number: warp.warp,
            events,
            dropped,
            parts: parts.into(),
            first,
        })
    }
}

impl<'a> Iterator for V2Warps<'a> {
    type Item = Found<V2Events<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.warp()
    }
}

impl<'a> V2Events<'a> {
    pub(crate) fn cursor(&self) -> V2Cursor<'a> {
        let launch = self.file.launches().get(self.launch);
        let module = launch.map_or(0, |launch| launch.record.module);
        V2Cursor {
            file: self.file,
            sites: self.file.modules().get(&module),
            parts: self.parts.clone(),
            part: 0,
            bytes: self.first.clone(),
            word: 0,
            index: 0,
            only_known: false,
        }
    }
}

/// A place in the events of a warp. A copy of it is cheap, and goes on from there.
#[derive(Clone)]
pub(crate) struct V2Cursor<'a> {
    file: &'a V2,
    sites: Option<&'a SiteTable>,
    parts: Arc<[Part]>,
    part: usize,
    bytes: Shared,
    word: u32,
    /// Events before this place.
    pub(crate) index: u64,
    /// A site that a damaged table does not have is an error, and gets no key of its own.
    only_known: bool,
}

/// A place that a cursor can go back to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    part: usize,
    word: u32,
    /// Events before it.
    pub(crate) index: u64,
}

impl<'a> V2Cursor<'a> {
    pub(crate) fn only_known(self) -> Self {
        Self { only_known: true, ..self }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Event>, Error> {
        let Some(part) = self.part(None)? else { return Ok(None) };
        let event = self.event(part)?;
        self.index += 1;
        Ok(Some(event))
    }

    /// The part that the next word is in, opened.
    fn part(&mut self, twin: Option<&OpenChunk<'_>>) -> Result<Option<Part>, Error> {
        loop {
            let Some(part) = self.parts.get(self.part).copied() else { return Ok(None) };
            if self.word < part.words {
                return Ok(Some(part));
            }
            self.part += 1;
            self.word = 0;
            let following = self.parts.get(self.part).filter(|next| next.chunk != part.chunk);
            if let Some(place) = following.and_then(|n| self.file.chunks().get(n.chunk as usize)) {
                self.bytes = self.file.payload_beside(place, twin)?;
            }
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { part: self.part, word: self.word, index: self.index }
    }

    /// A cursor at a place before this one.
    pub(crate) fn back(&self, mark: Mark) -> Result<Self, Error> {
        let mut cursor = self.clone();
        (cursor.part, cursor.word, cursor.index) = (mark.part, mark.word, mark.index);
        let part = |at: usize| self.parts.get(at.min(self.parts.len().saturating_sub(1)));
        let (open, wanted) = (part(self.part), part(mark.part));
        let wanted = wanted.filter(|wanted| open.is_none_or(|open| open.chunk != wanted.chunk));
        if let Some(place) = wanted.and_then(|part| self.file.chunks().get(part.chunk as usize)) {
            cursor.bytes = Arc::new(self.file.payload(place)?);
        }
        Ok(cursor)
    }

    /// Goes over some events that both have word by word, without a look at what they say; says how
    /// many, and 0 where the next differs or is none. Sites must have the same indexes in both.
    pub(crate) fn pass_alike(&mut self, other: &mut Self) -> Result<u64, Error> {
        let Some(own) = self.part(None)? else { return Ok(0) };
        let place = self.file.chunks().get(own.chunk as usize);
        let twin =
            place.map(|at| OpenChunk { file: self.file, place: *at, bytes: self.bytes.clone() });
        let Some(others) = other.part(twin.as_ref())? else { return Ok(0) };
        let (a, b) = (self.window(own), other.window(others));
        let alike = match std::ptr::eq(a.as_ptr(), b.as_ptr()) {
            true => a.len().min(b.len()),
            false => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
        };
        let (words, events) = whole_events(&a[..alike], self.sites.map_or(0, SiteTable::len));
        for cursor in [self, other] {
            cursor.word += words;
            cursor.index += events;
        }
        Ok(events)
    }

    /// The next words of a part, not too many.
    fn window(&self, part: Part) -> &[[u8; WORD]] {
        let start = part.offset as usize + self.word as usize * WORD;
        let words = ((part.words - self.word) as usize).min(WINDOW);
        let bytes = self.bytes.get(start..start + words * WORD).unwrap_or_default();
        <[[u8; WORD]]>::ref_from_bytes(bytes).unwrap_or_default()
    }

    fn word(&mut self, part: Part) -> Result<[u8; WORD], Error> {
        let at = part.offset as usize + self.word as usize * WORD;
        let word = self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied();
        match word.filter(|_| self.word < part.words) {
            Some(word) => {
                self.word += 1;
                Ok(word)
            }
            None => Err(self.damaged(part, "damaged: an event ends behind its warp's words")),
        }
    }

    fn event(&mut self, part: Part) -> Result<Event, Error> {
        let bits = u64::from_le_bytes(self.word(part)?);
        let (site, mask) = (bits as u32, (bits >> 32) as u32);
        let kind = kind_of(site);
        let taken = site & abi::NVABI_TRACE_TAKEN != 0;
        if site & !KNOWN != 0 {
            return Err(self.damaged(part, "damaged: an event has bits that mean nothing"));
        }
        if !kind.is_known() {
            return Err(self.damaged(part, "damaged: an event is of a kind that there is not"));
        }
        let mut event = Event {
            site: self.key(site & abi::NVABI_TRACE_SITE, part)?,
            kind,
            direction: u32::from(taken),
            mask,
            ballot: (kind == EventKind::BRANCH).then_some(if taken { mask } else { 0 }),
            value: None,
        };
        if site & abi::NVABI_TRACE_HAS_BALLOT != 0 {
            let bits = u64::from_le_bytes(self.word(part)?);
            let (ballot, way) = (bits as u32, (bits >> 32) as u32);
            event.ballot = Some(ballot);
            if way > 1 {
                event.direction = way;
            }
        }
        if site & abi::NVABI_TRACE_HAS_VALUE != 0 {
            event.value = Some(u64::from_le_bytes(self.word(part)?));
        }
        Ok(event)
    }

    /// The key of a site; one of its own where a damaged table does not have it.
    fn key(&self, index: u32, part: Part) -> Result<u64, Error> {
        let found =
            self.sites.and_then(|sites| sites.keys().get(index as usize).copied().flatten());
        match found {
            Some(key) => Ok(key),
            None if self.only_known || self.file.damage().is_empty() => {
                Err(self.damaged(part, "an event names a site that the table does not have"))
            }
            None => Ok(UNKNOWN_SITE | u64::from(index)),
        }
    }

    fn damaged(&self, part: Part, what: &'static str) -> Error {
        let place = self.file.chunks().get(part.chunk as usize);
        self.file.error(place.map_or(0, |place| place.offset), Problem::Damaged(what))
    }
}

/// The kind in the low half of an event's first word.
fn kind_of(site: u32) -> EventKind {
    EventKind(((site & abi::NVABI_TRACE_KIND) >> abi::NVABI_TRACE_KIND_SHIFT) as u8)
}

/// The words and the number of the whole events at the start of some words; stops at what is none.
fn whole_events(words: &[[u8; WORD]], sites: usize) -> (u32, u64) {
    let (mut at, mut events) = (0, 0);
    while let Some(word) = words.get(at) {
        let site = u64::from_le_bytes(*word) as u32;
        let more = |flag: u32| usize::from(site & flag != 0);
        let len = 1 + more(abi::NVABI_TRACE_HAS_BALLOT) + more(abi::NVABI_TRACE_HAS_VALUE);
        let known = site & !KNOWN == 0
            && kind_of(site).is_known()
            && ((site & abi::NVABI_TRACE_SITE) as usize) < sites;
        if !known || at + len > words.len() {
            break;
        }
        at += len;
        events += 1;
    }
    (at as u32, events)
}
