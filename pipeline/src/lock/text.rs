//! The format of a lock file.
//!
//! ```text
//! nvabi-lock 1 rm src/common/sdk/nvidia/inc/nvos.h
//! moved 550.54.14 412+3 900-1          lines from 412 on lie 3 further down, from 900 on 1 up
//! [550.40.07]                          items that the header has from this tag on, by line
//! struct NVOS54_PARAMETERS 32/8 @2070  size/alignment, line
//! →0 4 hClient NvHandle = unsigned int offset, size, name, type, canonical type
//!  > 550.90.07 36/8 @2080              from this tag on another layout
//!  > 550.100 gone
//! alias NvHandle 4 @201 unsigned int
//! enum NV_FOO 4 @30
//! →NV_FOO_A 0
//! NVC5B5_NOP 0x100 @24                 a constant; no line: the one after the item above;
//!                                      what stands at the margin always states its line
//!  PARAMETER 31:0                      NVC5B5_NOP_PARAMETER: its name goes on from the one above
//! NV_FOO                               the start of names, no constant itself
//!  A 3 | 550.90.07 4 @31 | 550.100 gone
//!  B 5
//! end 7 0123456789abcdef               number of items, checksum
//! ```
//! (`→` is a tab.) A bit-field writes `offset.bit:width` in place of the offset, an unnamed member
//! `-` in place of the name.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use memchr::{memchr, memmem};
use rustc_hash::FxHashMap;

use super::{Fact, Header, History, ItemKind, LockedTag, Placed, State, state_at};
use crate::model::{
    Access, Bits, CallKind, CallParams, Caller, Embedded, Field, ParamSource, RecordKind, hex,
};

pub(super) const MAGIC: &str = "nvabi-lock 1";

/// A checksum that notices edits by hand and merges gone wrong; it is no protection from malice.
pub(super) fn checksum(text: &str) -> u64 {
    const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut sum = text.len() as u64;
    for chunk in text.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(PRIME).rotate_left(29);
    }
    sum ^ (sum >> 31)
}

/// Adds the last line, by which a truncated or edited file is recognised.
pub(super) fn seal(text: &mut String, items: usize) {
    let sum = checksum(text);
    let _ = writeln!(text, "end {items} {sum:016x}");
}

/// Takes the last line off; `Err` says what is wrong with the file.
pub(super) fn unseal(text: &str) -> Result<(&str, usize, u64), String> {
    let trimmed = text.strip_suffix('\n').ok_or("the last line is cut off")?;
    let start = trimmed.rfind('\n').map_or(0, |at| at + 1);
    let mut words = trimmed[start..].split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("end"), Some(items), Some(sum)) => {
            let items = items.parse().map_err(|_| "the last line is damaged")?;
            let sum = u64::from_str_radix(sum, 16).map_err(|_| "the last line is damaged")?;
            Ok((&text[..start], items, sum))
        }
        _ => Err("it does not end with an `end` line: it is truncated".into()),
    }
}

// Writing.

/// How the lines of a header moved at one tag: from each line on, by so much.
type Steps = Vec<(u32, i64)>;

/// The moves of a header, by the tag that made them, in order.
pub(super) type Moves = Vec<(usize, Steps)>;

/// An item with the line, in the first tag that has it.
type Row<'a> = (u32, ItemKind, &'a str, &'a History);

/// The text of one header.
pub(super) fn print(surface: &str, path: &str, header: &Header, tags: &[LockedTag]) -> String {
    let mut text = format!("{MAGIC} {surface} {path}\n");
    let moves = moves(header);
    for (tag, steps) in &moves {
        let _ = write!(text, "moved {}", tags[*tag].tag);
        for (line, delta) in steps {
            let _ = write!(text, " {line}{delta:+}");
        }
        text.push('\n');
    }
    let mut sections: BTreeMap<usize, Vec<Row<'_>>> = BTreeMap::new();
    for ((kind, name), history) in &header.items {
        if let Some(State { from, value: Some(placed) }) = history.first() {
            sections.entry(*from).or_default().push((placed.line, *kind, name, history));
        }
    }
    for (from, mut items) in sections {
        items.sort_unstable_by_key(|(line, kind, name, _)| (*line, *kind, *name));
        let _ = writeln!(text, "[{}]", tags[from].tag);
        let mut printer = Printer { tags, moves: &moves, line: 0 };
        let mut rest = items.as_slice();
        while let Some((line, kind, name, history)) = rest.first() {
            let constants = rest.iter().take_while(|item| item.1 == ItemKind::Constant).count();
            if constants > 0 {
                printer.constants(&mut text, &rest[..constants], 0, 0);
                rest = &rest[constants..];
            } else {
                printer.item(&mut text, *kind, name, history);
                printer.line = *line;
                rest = &rest[1..];
            }
        }
    }
    seal(&mut text, header.items.len());
    text
}

/// What is left to say of an item's history once the moves of its header are said.
fn events(history: &History, moves: &[(usize, Steps)]) -> Vec<State> {
    let mut events: Vec<State> = Vec::new();
    let mut expected: Option<(Arc<Fact>, u32, usize)> = None;
    for state in history {
        let moved =
            expected.as_ref().map(|(_, line, since)| move_line(*line, *since, state.from, moves));
        let implied = match (&expected, &state.value) {
            (Some((fact, ..)), Some(placed)) => *fact == placed.fact && moved == Some(placed.line),
            _ => false,
        };
        if !implied {
            events.push(state.clone());
        }
        expected = state.value.as_ref().map(|p| (p.fact.clone(), p.line, state.from));
    }
    events
}

/// The line at tag `to` of what stood at `line` at tag `since`.
pub(super) fn move_line(line: u32, since: usize, to: usize, moves: &[(usize, Steps)]) -> u32 {
    let start = moves.partition_point(|(tag, _)| *tag <= since);
    let due = moves[start..].iter().take_while(|(tag, _)| *tag <= to);
    due.fold(line, |line, (_, steps)| step(line, steps))
}

fn step(line: u32, steps: &Steps) -> u32 {
    let after = steps.partition_point(|(from, _)| *from <= line);
    let delta = after.checked_sub(1).map_or(0, |i| steps[i].1);
    u32::try_from(i64::from(line).saturating_add(delta)).unwrap_or(0)
}

/// The moves that explain where items whose fact stayed stand at each tag.
fn moves(header: &Header) -> Moves {
    let mut tags: Vec<usize> =
        header.items.values().flat_map(|h| h.iter().skip(1).map(|s| s.from)).collect();
    tags.sort_unstable();
    tags.dedup();
    let mut moves = Vec::new();
    for tag in tags {
        let mut shifts: Vec<(u32, i64)> = Vec::new();
        for history in header.items.values() {
            let (before, after) = (state_at(history, tag - 1), state_at(history, tag));
            if let (Some(before), Some(after)) = (before, after) {
                if before.fact == after.fact {
                    let delta = i64::from(after.line) - i64::from(before.line);
                    shifts.push((before.line, delta));
                }
            }
        }
        shifts.sort_unstable();
        shifts.dedup_by_key(|(line, _)| *line);
        let mut current = 0;
        let mut steps = Steps::new();
        for (line, delta) in shifts {
            if delta != current {
                steps.push((line, delta));
                current = delta;
            }
        }
        if !steps.is_empty() {
            moves.push((tag, steps));
        }
    }
    moves
}

/// Before a constant that must state its line: there is no line 0 that could follow.
const NO_LINE: u32 = u32::MAX;

struct Printer<'a> {
    tags: &'a [LockedTag],
    moves: &'a [(usize, Steps)],
    /// Line of the item above.
    line: u32,
}

impl Printer<'_> {
    fn item(&mut self, text: &mut String, kind: ItemKind, name: &str, history: &History) {
        let events = events(history, self.moves);
        let Some(Placed { fact, line }) = events.first().and_then(|e| e.value.as_ref()) else {
            return;
        };
        let word = match &**fact {
            Fact::Record { kind, .. } => kind.keyword(),
            Fact::Enum { .. } => "enum",
            Fact::Call(_) => "call",
            _ => "alias",
        };
        debug_assert!(kind != ItemKind::Constant);
        let _ = write!(text, "{word} {name} ");
        self.body(text, fact, *line);
        for event in &events[1..] {
            let _ = write!(text, " > {} ", self.tags[event.from].tag);
            match &event.value {
                Some(placed) => {
                    if let Fact::Record { kind, .. } = &*placed.fact {
                        let _ = write!(text, "{} ", kind.keyword());
                    }
                    self.body(text, &placed.fact, placed.line);
                }
                None => text.push_str("gone\n"),
            }
        }
    }

    fn body(&self, text: &mut String, fact: &Fact, line: u32) {
        match fact {
            Fact::Record { size, align, fields, .. } => {
                let _ = writeln!(text, "{size}/{align} @{line}");
                fields.iter().for_each(|field| print_field(text, field));
            }
            Fact::Enum { size, variants } => {
                let _ = writeln!(text, "{size} @{line}");
                for (name, value) in variants {
                    let _ = writeln!(text, "\t{name} {}", hex(*value));
                }
            }
            Fact::Alias { ty, size } => {
                let _ = writeln!(text, "{size} @{line} {ty}");
            }
            Fact::Call(call) => print_call(text, call, line),
            Fact::Constant(_) | Fact::BitRange(..) => {}
        }
    }

    /// Prints constants whose names share their first `common` bytes, which stand above already.
    fn constants(&mut self, text: &mut String, rows: &[Row<'_>], common: usize, depth: usize) {
        let mut rest = rows;
        while let Some(first) = rest.first() {
            let (count, shared) = group(rest, common);
            let starts_itself = first.2.len() == shared;
            let saved = count * (shared + 1 - common);
            let spent = depth + (shared + 1 - common) + count;
            // What starts at the margin states its line, so that a reader may pass over all that
            // is indented under what it does not need.
            if depth == 0 {
                self.line = NO_LINE;
            }
            if count > 1 && (starts_itself || saved > spent) {
                let below = if starts_itself {
                    self.constant(text, first, common, depth);
                    &rest[1..count]
                } else {
                    indent(text, depth);
                    let _ = writeln!(text, "{}", &first.2[common..shared]);
                    &rest[..count]
                };
                self.constants(text, below, shared + 1, depth + 1);
                rest = &rest[count..];
            } else {
                self.constant(text, first, common, depth);
                rest = &rest[1..];
            }
        }
    }

    fn constant(&mut self, text: &mut String, row: &Row<'_>, common: usize, depth: usize) {
        let (_, _, name, history) = row;
        indent(text, depth);
        let _ = write!(text, "{} ", &name[common..]);
        for (i, event) in events(history, self.moves).iter().enumerate() {
            if i > 0 {
                let _ = write!(text, " | {} ", self.tags[event.from].tag);
            }
            let Some(Placed { fact, line }) = &event.value else {
                text.push_str("gone");
                continue;
            };
            push_value(text, fact);
            if i > 0 || *line != self.line.wrapping_add(1) {
                let _ = write!(text, " @{line}");
            }
            if i == 0 {
                self.line = *line;
            }
        }
        text.push('\n');
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n(' ', depth));
}

/// How many rows from the first on share a start of their names that ends before a `_` and is
/// longer than `common`, and how long the longest such start is.
fn group(rows: &[Row<'_>], common: usize) -> (usize, usize) {
    let first = rows[0].2;
    let starts = |name: &str, end: usize| {
        name.starts_with(&first[..end]) && name.as_bytes().get(end) == Some(&b'_')
    };
    let component = |from: usize| first[from..].find('_').map_or(first.len(), |at| from + at);
    let mut shared = component(common);
    let count = 1 + rows[1..].iter().take_while(|row| starts(row.2, shared)).count();
    while count > 1 && shared < first.len() {
        let longer = component(shared + 1);
        if longer < first.len() && !starts(first, longer)
            || !rows[1..count].iter().all(|row| starts(row.2, longer))
        {
            break;
        }
        shared = longer;
    }
    (count, shared)
}

fn print_field(text: &mut String, field: &Field) {
    let _ = write!(text, "\t{}", field.offset);
    if let Some(bits) = field.bits {
        let _ = write!(text, ".{}:{}", bits.bit_offset, bits.bit_width);
    }
    let name = if field.name.is_empty() { "-" } else { &field.name };
    let _ = write!(text, " {} {name} {}", field.size, field.ty);
    if field.canonical != field.ty {
        let _ = write!(text, " = {}", field.canonical);
    }
    text.push('\n');
}

fn push_value(text: &mut String, fact: &Fact) {
    match fact {
        Fact::Constant(value) => text.push_str(&hex(*value)),
        Fact::BitRange(high, low) => {
            let _ = write!(text, "{high}:{low}");
        }
        _ => {}
    }
}

// Reading.

/// What is wrong, and at which byte.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) at: usize,
    pub(super) why: String,
}

pub(super) type TagNames<'t> = FxHashMap<&'t str, usize>;

/// A fact, its line, and the tag that both stand at.
pub(super) type Held = (Fact, u32, usize);

/// One item as the file has it, not yet read.
pub(super) struct Entry<'t> {
    pub(super) kind: ItemKind,
    /// Byte where it starts.
    pub(super) at: usize,
    /// The name, unless it is put together from several lines as a constant's is.
    name: Option<&'t str>,
    /// The first line after the name.
    head: &'t str,
    /// The lines under it.
    body: &'t str,
    pub(super) section: usize,
    /// Line of the item above, for a constant that does not state its own.
    above: u32,
    record: RecordKind,
}

/// Goes over the items of a file without reading those that nobody asks for.
pub(super) struct Scanner<'t> {
    text: &'t str,
    at: usize,
    tags: &'t TagNames<'t>,
    section: usize,
    line: u32,
    /// Name of the constant last met, and where the names it goes on from end.
    name: String,
    ends: Vec<usize>,
    needless: Option<&'t dyn Fn(&str) -> bool>,
    /// The last tag whose new items are of interest.
    until: usize,
}

impl<'t> Scanner<'t> {
    /// Over `text` without its last line; checks the first.
    pub(super) fn new(
        text: &'t str,
        surface: &str,
        path: &str,
        tags: &'t TagNames<'t>,
    ) -> Result<Self, Bad> {
        let first = text.split('\n').next().unwrap_or_default();
        let bad = |why: &str| Err(Bad { at: 0, why: why.into() });
        let Some(of) = first.strip_prefix(MAGIC) else {
            return bad("it is not a lock file of this version of nvabi");
        };
        if of.trim_start().split_once(' ') != Some((surface, path)) {
            return bad("its first line names another surface or header than its path");
        }
        let at = (first.len() + 1).min(text.len());
        let (name, ends, needless, until) = (String::new(), Vec::new(), None, usize::MAX);
        Ok(Self { text, at, tags, section: 0, line: 0, name, ends, needless, until })
    }

    /// Reads how lines moved, which stands before the first section.
    pub(super) fn moves(&mut self) -> Result<Moves, Bad> {
        let mut moves = Moves::new();
        while let Some((at, rest)) = self.moved_line() {
            moves.push(self.moved(at, rest)?);
        }
        Ok(moves)
    }

    /// The next line, where it is a move.
    fn moved_line(&mut self) -> Option<(usize, &'t str)> {
        let is_move = self.text.get(self.at..)?.starts_with("moved ");
        let (at, line) = is_move.then(|| self.line())??;
        Some((at, line.strip_prefix("moved ")?))
    }

    /// Goes to the item that starts at byte `at`, in a section met before.
    pub(super) fn seek(&mut self, at: usize, section: usize) {
        (self.at, self.section) = (at, section);
    }

    /// The name of the entry given last.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn bad<T>(&self, at: usize, why: &str) -> Result<T, Bad> {
        Err(Bad { at, why: why.into() })
    }

    fn line(&mut self) -> Option<(usize, &'t str)> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
        let start = self.at;
        self.at += length + 1;
        Some((start, &rest[..length]))
    }

    fn tag(&self, at: usize, name: &str) -> Result<usize, Bad> {
        match self.tags.get(name) {
            Some(index) => Ok(*index),
            None => self.bad(at, "it names a tag that is not in the list of tags"),
        }
    }

    /// The next item, if any; `moves` are passed over.
    pub(super) fn next(&mut self) -> Result<Option<Entry<'t>>, Bad> {
        while self.moved_line().is_some() {}
        while let Some((at, line)) = self.line() {
            if let Some(rest) = line.strip_prefix('[') {
                let Some(tag) = rest.strip_suffix(']') else {
                    return self.bad(at, "`]` is missing");
                };
                self.section = self.tag(at, tag)?;
                // Sections stand in the order of their tags.
                if self.section > self.until {
                    return Ok(None);
                }
                self.line = 0;
                self.ends.clear();
                continue;
            }
            // By single bytes, here and below: there are 100,000 constants.
            let depth = line.bytes().take_while(|byte| *byte == b' ').count();
            if let Some(end) = memchr(b' ', &line.as_bytes()[depth..]) {
                return self.entry(at, line, depth, depth + end).map(Some);
            } else {
                self.go_on(at, depth, &line[depth..])?;
                if self.ends.len() == 1 && self.needless.is_some_and(|needless| needless(line)) {
                    self.pass_over();
                }
            }
        }
        Ok(None)
    }

    /// Tells which starts of names nobody asks for, so that the names are not even read.
    pub(super) fn pass_over_where(&mut self, needless: &'t dyn Fn(&str) -> bool) {
        self.needless = Some(needless);
    }

    /// Ends before the items that only tags behind this one have.
    pub(super) fn end_behind(&mut self, tag: usize) {
        self.until = tag;
    }

    /// Goes to the next line that is not indented.
    fn pass_over(&mut self) {
        while let Some(rest) = self.text.get(self.at..).filter(|rest| rest.starts_with(' ')) {
            self.at += memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |length| length + 1);
        }
    }

    fn moved(&self, at: usize, rest: &str) -> Result<(usize, Steps), Bad> {
        let mut words = rest.split(' ');
        let tag = self.tag(at, words.next().unwrap_or_default())?;
        let mut steps = Steps::new();
        for word in words {
            let Some(sign) = word.find(['+', '-']) else {
                return self.bad(at, "a move is written `line+n` or `line-n`");
            };
            match (word[..sign].parse(), word[sign..].parse()) {
                (Ok(line), Ok(delta)) => steps.push((line, delta)),
                _ => return self.bad(at, "a move is written `line+n` or `line-n`"),
            }
        }
        Ok((tag, steps))
    }

    /// The item of a line whose first word is from byte `depth` to byte `end`.
    fn entry(
        &mut self,
        at: usize,
        line: &'t str,
        depth: usize,
        end: usize,
    ) -> Result<Entry<'t>, Bad> {
        let rest = &line[end + 1..];
        let (kind, record) = match &line[..end] {
            "struct" => (ItemKind::Record, RecordKind::Struct),
            "union" => (ItemKind::Record, RecordKind::Union),
            "enum" => (ItemKind::Enum, RecordKind::Struct),
            "alias" => (ItemKind::Alias, RecordKind::Struct),
            "call" => (ItemKind::Call, RecordKind::Struct),
            _ => return self.constant(at, depth, &line[depth..end], rest),
        };
        let Some((name, head)) = rest.split_once(' ') else {
            return self.bad(at, "an item needs a name and its facts");
        };
        self.name.clear();
        self.name.push_str(name);
        self.ends.clear();
        let body = self.body();
        let above = self.line;
        self.line = match head.split(' ').find_map(|word| word.strip_prefix('@')) {
            Some(line) => line.parse().or_else(|_| self.bad(at, "`@` needs a line number"))?,
            None => return self.bad(at, "the line in the header is missing"),
        };
        let section = self.section;
        Ok(Entry { kind, at, name: Some(name), head, body, section, above, record })
    }

    /// The lines that belong to the item above them.
    fn body(&mut self) -> &'t str {
        let start = self.at.min(self.text.len());
        while self.text[self.at.min(self.text.len())..].starts_with(['\t', ' ']) {
            let rest = &self.text[self.at..];
            if rest.starts_with(' ') && !rest.starts_with(" > ") {
                break;
            }
            self.line();
        }
        &self.text[start..self.at.min(self.text.len())]
    }

    /// Takes up a name that is indented under the one it goes on from.
    fn go_on(&mut self, at: usize, depth: usize, suffix: &str) -> Result<(), Bad> {
        if depth > self.ends.len() {
            return self.bad(at, "there is no name above that this one could go on from");
        }
        self.ends.truncate(depth);
        self.name.truncate(self.ends.last().copied().unwrap_or(0));
        if depth > 0 {
            self.name.push('_');
        }
        self.name.push_str(suffix);
        self.ends.push(self.name.len());
        Ok(())
    }

    fn constant(
        &mut self,
        at: usize,
        depth: usize,
        suffix: &str,
        head: &'t str,
    ) -> Result<Entry<'t>, Bad> {
        self.go_on(at, depth, suffix)?;
        let above = self.line;
        let (first, _) = split_bar(head);
        self.line = match memchr(b'@', first.as_bytes()).map(|place| &first[place + 1..]) {
            Some(line) => line.parse().or_else(|_| self.bad(at, "`@` needs a line number"))?,
            None => above.saturating_add(1),
        };
        let (kind, record, section) = (ItemKind::Constant, RecordKind::Struct, self.section);
        Ok(Entry { kind, at, name: None, head, body: "", section, above, record })
    }
}

impl<'t> Entry<'t> {
    /// The name of a type.
    pub(super) fn name(&self) -> Option<&'t str> {
        self.name
    }

    /// The item's events: its first state and each change, moves of lines left out.
    pub(super) fn events(&self, tags: &TagNames<'_>) -> Result<Vec<State>, Bad> {
        let state = |event: Unread<'_>| {
            let value = self.fact(event)?;
            let placed = |(fact, line)| Placed { fact: Arc::new(fact), line };
            Ok(State { from: event.from, value: value.map(placed) })
        };
        let events: Result<_, String> =
            self.unread(tags).map(|event| event.and_then(state)).collect();
        events.map_err(|why| Bad { at: self.at, why })
    }

    /// The fact that holds at a tag; see [`Entry::facts_at`].
    pub(super) fn fact_at(&self, tags: &TagNames<'_>, at: usize) -> Result<Option<Held>, Bad> {
        let [held] = self.facts_at(tags, [at])?;
        Ok(held)
    }

    /// The facts that hold at some tags; nothing where the item is gone, or not there yet. Its other events are
    /// not read, and one that holds at several tags once.
    pub(super) fn facts_at<const N: usize>(
        &self,
        tags: &TagNames<'_>,
        at: [usize; N],
    ) -> Result<[Option<Held>; N], Bad> {
        let bad = |why| Bad { at: self.at, why };
        let last = at.into_iter().max().unwrap_or_default();
        let mut holding: [Option<Unread<'_>>; N] = [None; N];
        for event in self.unread(tags) {
            let event = event.map_err(bad)?;
            if event.from > last {
                break;
            }
            let due = holding.iter_mut().zip(at).filter(|(_, at)| event.from <= *at);
            due.for_each(|(holding, _)| *holding = Some(event));
        }
        let mut facts = [const { None }; N];
        for i in 0..N {
            let Some(event) = holding[i] else { continue };
            let before = (0..i).find(|j| holding[*j].is_some_and(|other| other.from == event.from));
            facts[i] = match before {
                Some(before) => facts[before].clone(),
                None => self.fact(event).map_err(bad)?.map(|(fact, line)| (fact, line, event.from)),
            };
        }
        Ok(facts)
    }

    /// Whether a constant's line has a text.
    pub(super) fn spells(&self, text: &str) -> bool {
        memmem::find(self.head.as_bytes(), text.as_bytes()).is_some()
    }

    /// Whether another of its events holds at one tag than at another.
    pub(super) fn differs(&self, tags: &TagNames<'_>, [a, b]: [usize; 2]) -> Result<bool, Bad> {
        let (earlier, later) = (a.min(b), a.max(b));
        // Nearly all constants have one event.
        if self.kind == ItemKind::Constant && memchr(b'|', self.head.as_bytes()).is_none() {
            return Ok((earlier + 1..=later).contains(&self.section));
        }
        for event in self.unread(tags) {
            let event = event.map_err(|why| Bad { at: self.at, why })?;
            if (earlier + 1..=later).contains(&event.from) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The lines under it, of all events.
    pub(super) fn body(&self) -> &'t str {
        self.body
    }

    fn unread<'e>(&self, tags: &'e TagNames<'e>) -> UnreadEvents<'e, 't> {
        let is_constant = self.kind == ItemKind::Constant;
        let (head, rest) = match is_constant {
            true => split_bar(self.head),
            false => (self.head, self.body),
        };
        let (from, record) = (self.section, self.record);
        let first = Unread { from, is_first: true, record, head, under: "" };
        UnreadEvents { tags, is_constant, next: Some(Ok(first)), rest }
    }

    /// A fact and its line; nothing where the item is gone.
    fn fact(&self, event: Unread<'_>) -> Result<Option<(Fact, u32)>, String> {
        let is_constant = self.kind == ItemKind::Constant;
        if event.head == "gone" && !(event.is_first && is_constant) {
            return Ok(None);
        }
        match is_constant {
            true => self.constant(event),
            false => self.layout(event),
        }
        .map(Some)
    }

    fn constant(&self, event: Unread<'_>) -> Result<(Fact, u32), String> {
        let mut words = event.head.split(' ');
        let value = words.next().filter(|value| !value.is_empty()).ok_or("a value is missing")?;
        let line = match words.next() {
            Some(word) => place(word)?,
            None if event.is_first => self.above.saturating_add(1),
            None => return Err("the line in the header is missing".into()),
        };
        Ok((parse_value(value)?, line))
    }

    fn layout(&self, event: Unread<'_>) -> Result<(Fact, u32), String> {
        let (size, rest) = event.head.split_once(" @").ok_or("a size and a line are needed")?;
        let (line, ty) = rest.split_once(' ').unwrap_or((rest, ""));
        let line = line.parse().map_err(|_| "`@` needs a line number")?;
        let under = event.under.lines().map(|line| line.trim_start_matches('\t'));
        let fact = match self.kind {
            ItemKind::Record => {
                let (size, align) = size.split_once('/').ok_or("an alignment is needed")?;
                let (size, align) = (natural(size)?, natural(align)?);
                let fields = under.map(parse_field).collect::<Result<_, _>>()?;
                Fact::Record { kind: event.record, size, align, fields }
            }
            ItemKind::Enum => {
                let mut variants = BTreeMap::new();
                for line in under {
                    let (name, value) =
                        line.split_once(' ').ok_or("an enumerator needs a value")?;
                    variants.insert(name.to_owned(), parse_number(value)?);
                }
                Fact::Enum { size: natural(size)?, variants }
            }
            ItemKind::Call => Fact::Call(parse_call(size, ty)?),
            _ => Fact::Alias { ty: ty.to_owned(), size: natural(size)? },
        };
        Ok((fact, line))
    }
}

/// An event whose tag alone was read.
#[derive(Clone, Copy)]
struct Unread<'t> {
    from: usize,
    is_first: bool,
    record: RecordKind,
    /// What stands behind the name or the tag.
    head: &'t str,
    /// The lines under it that belong to it.
    under: &'t str,
}

/// The events of an item, in the order of their tags.
struct UnreadEvents<'e, 't> {
    tags: &'e TagNames<'e>,
    is_constant: bool,
    next: Option<Result<Unread<'t>, String>>,
    /// What stands behind the head of the next one.
    rest: &'t str,
}

impl<'t> Iterator for UnreadEvents<'_, 't> {
    type Item = Result<Unread<'t>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut event = match self.next.take()? {
            Ok(event) => event,
            bad => return Some(bad),
        };
        if !self.is_constant {
            (event.under, self.rest) = split_indented(self.rest);
        }
        if !self.rest.is_empty() {
            self.next = Some(match self.is_constant {
                true => self.constant(event),
                false => self.item(event),
            });
        }
        Some(Ok(event))
    }
}

impl<'t> UnreadEvents<'_, 't> {
    /// The event of a constant behind another.
    fn constant(&mut self, before: Unread<'t>) -> Result<Unread<'t>, String> {
        let (event, rest) = split_bar(self.rest);
        self.rest = rest;
        let (name, head) = event.split_once(' ').unwrap_or((event, ""));
        let from = tag(self.tags, Some(name))?;
        Ok(Unread { from, is_first: false, head, ..before })
    }

    /// The event of another item behind one of the same.
    fn item(&mut self, before: Unread<'t>) -> Result<Unread<'t>, String> {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        let event = line.strip_prefix(" > ").ok_or("this line belongs to no item")?;
        let (name, head) = event.split_once(' ').ok_or("an event needs a tag and its facts")?;
        let from = tag(self.tags, Some(name))?;
        let (record, head) = match head.split_once(' ') {
            Some(("struct", head)) => (RecordKind::Struct, head),
            Some(("union", head)) => (RecordKind::Union, head),
            _ => (before.record, head),
        };
        Ok(Unread { from, is_first: false, record, head, under: "" })
    }
}

/// The first event of a constant's, and the others.
fn split_bar(events: &str) -> (&str, &str) {
    // Neither a value nor a tag holds one.
    let Some(at) = memchr(b'|', events.as_bytes()) else { return (events, "") };
    (events[..at].trim_end_matches(' '), events[at + 1..].trim_start_matches(' '))
}

/// The lines that start with a tab, and what is behind them.
fn split_indented(text: &str) -> (&str, &str) {
    let mut end = 0;
    while text[end..].starts_with('\t') {
        end += memchr(b'\n', &text.as_bytes()[end..]).map_or(text.len() - end, |length| length + 1);
    }
    text.split_at(end)
}

fn tag(tags: &TagNames<'_>, name: Option<&str>) -> Result<usize, String> {
    let name = name.unwrap_or_default();
    tags.get(name).copied().ok_or_else(|| format!("`{name}` is not in the list of tags"))
}

fn place(word: &str) -> Result<u32, String> {
    let line = word.strip_prefix('@').and_then(|line| line.parse().ok());
    line.ok_or_else(|| format!("`{word}` is not a line such as @12"))
}

fn natural(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number of bytes"))
}

fn parse_value(text: &str) -> Result<Fact, String> {
    match memchr(b':', text.as_bytes()).map(|at| (&text[..at], &text[at + 1..])) {
        Some((high, low)) => match (high.parse(), low.parse()) {
            (Ok(high), Ok(low)) => Ok(Fact::BitRange(high, low)),
            _ => Err(format!("`{text}` is not a bit range such as 31:0")),
        },
        None => parse_number(text).map(Fact::Constant),
    }
}

fn parse_number(text: &str) -> Result<i128, String> {
    // Nearly all of them; 128 bits take three times as long.
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() <= 16);
    if let Some(Ok(number)) = digits.map(|digits| u64::from_str_radix(digits, 16)) {
        return Ok(number.into());
    }
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is not an integer"))
}

/// `command/finn @12 TYPE checked for:user *list:count:T:in`: kind, how it is known, line, type or `-`, and
/// what else is so: who may make it, and the pointers last.
fn print_call(text: &mut String, call: &CallParams, line: u32) {
    let params = call.params.as_deref().unwrap_or("-");
    let _ = write!(text, "{}/{} @{line} {params}", call.kind, call.how);
    for (said, word) in [(call.optional, "optional"), (call.checked, "checked")] {
        let _ = if said { write!(text, " {word}") } else { Ok(()) };
    }
    for (name, mark) in [(&call.differs, '!'), (&call.same_as, '=')] {
        let _ = name.as_ref().map(|name| write!(text, " {mark}{name}"));
    }
    let _ = call.access.as_ref().map(|access| write!(text, " for:{access}"));
    for Embedded { field, count, unit, direction } in &call.pointers {
        let _ = write!(text, " *{field}:{count}:{unit}:{direction}");
    }
    text.push('\n');
}

fn parse_call(known: &str, rest: &str) -> Result<CallParams, String> {
    let (kind, how) = known.split_once('/').ok_or("a call is `kind/how`")?;
    let mut words = rest.split(' ');
    let params = words.next().filter(|word| !word.is_empty()).ok_or("a type or `-` is needed")?;
    let kind = CallKind::from_word(kind)
        .ok_or_else(|| format!("expected `command` or `class`, found `{kind}`"))?;
    let how = ParamSource::from_word(how)
        .ok_or_else(|| format!("`{how}` is no way to know a call's parameters"))?;
    let mut call = CallParams::new(kind, how, (params != "-").then(|| params.to_owned()));
    for word in words {
        if let Some(access) = word.strip_prefix("for:") {
            call.access = Some(parse_access(access)?);
            continue;
        }
        match (word, word.split_at_checked(1)) {
            ("optional", _) => call.optional = true,
            ("checked", _) => call.checked = true,
            (_, Some(("!", ty))) => call.differs = Some(ty.to_owned()),
            (_, Some(("=", name))) => call.same_as = Some(name.to_owned()),
            (_, Some(("*", pointer))) => call.pointers.push(parse_embedded(pointer)?),
            _ => return Err(format!("expected a word about a call, found `{word}`")),
        }
    }
    Ok(call)
}

/// `caller+RIGHT+test`.
fn parse_access(text: &str) -> Result<Access, String> {
    let (words, test_only) = match text.strip_suffix("+test") {
        Some(words) => (words, true),
        None => (text, false),
    };
    let mut words = words.split('+');
    let caller = words.next().and_then(Caller::from_word);
    let caller = caller.ok_or_else(|| format!("`{text}` does not begin with a caller"))?;
    Ok(Access { caller, rights: words.map(str::to_owned).collect(), test_only })
}

/// `field:count:unit:direction`.
fn parse_embedded(text: &str) -> Result<Embedded, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [field, count, unit, direction @ ("in" | "out" | "inout")] = parts[..] else {
        return Err(format!("`{text}` is not `field:count:unit:direction`"));
    };
    let [field, count, unit, direction] = [field, count, unit, direction].map(str::to_owned);
    Ok(Embedded { field, count, unit, direction })
}

fn parse_field(line: &str) -> Result<Field, String> {
    let mut words = line.splitn(4, ' ');
    let (Some(place), Some(size), Some(name), Some(types)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("a field is `offset size name type`".into());
    };
    let (offset, bits) = match place.split_once('.') {
        None => (natural(place)?, None),
        Some((offset, bits)) => {
            let (bit, width) = bits.split_once(':').ok_or("a bit-field is `offset.bit:width`")?;
            let bits = Bits { bit_offset: natural(bit)?, bit_width: natural(width)? };
            (natural(offset)?, Some(bits))
        }
    };
    let (ty, canonical) = types.split_once(" = ").unwrap_or((types, types));
    Ok(Field {
        name: if name == "-" { String::new() } else { name.to_owned() },
        ty: ty.to_owned(),
        canonical: canonical.to_owned(),
        offset,
        size: natural(size)?,
        bits,
    })
}

/// Puts the moves of lines back into a history.
pub(super) fn expand(events: Vec<State>, moves: &[(usize, Steps)]) -> History {
    let mut history = History::new();
    for (i, event) in events.iter().enumerate() {
        history.push(event.clone());
        let Some(placed) = &event.value else { continue };
        let until = events.get(i + 1).map_or(usize::MAX, |next| next.from);
        let mut line = placed.line;
        for (tag, steps) in moves.iter().filter(|(tag, _)| *tag > event.from && *tag < until) {
            let moved = step(line, steps);
            if moved != line {
                line = moved;
                let value = Some(Placed { fact: placed.fact.clone(), line });
                history.push(State { from: *tag, value });
            }
        }
    }
    history
}
