//! A record with the unnamed records in it laid open, over all tags, and what its layouts differ in.

use std::collections::BTreeSet;
use std::ops::Range;

use super::history::{Span, Surface, at};
use crate::words::counted;
use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::{Field, RecordKind, split_array};

/// Deeper than any driver nests; a lock that was tampered with could say that a record holds itself.
const DEPTH: usize = 16;

/// One line of a layout.
#[derive(Debug, Clone)]
pub(super) struct Row<'l> {
    /// How many unnamed records it is inside of.
    pub(super) depth: usize,
    /// Names from the outermost record on: what is compared between layouts.
    pub(super) path: String,
    /// From the start of the outermost record.
    pub(super) offset: u64,
    pub(super) size: u64,
    /// `None` for padding.
    pub(super) field: Option<&'l Field>,
    /// The record that the field holds by value.
    pub(super) record: Option<&'l str>,
    /// The rows that follow deeper are its members.
    pub(super) open: Option<RecordKind>,
}

impl Row<'_> {
    /// The path for a person, who does not need to know of unnamed members between the others.
    pub(super) fn shown(&self) -> String {
        let mut parts: Vec<&str> = self.path.split('.').collect();
        let last = parts.pop().filter(|last| !last.starts_with('#')).unwrap_or("(unnamed)");
        parts.retain(|part| !part.starts_with('#'));
        parts.push(last);
        parts.join(".")
    }
}

/// One distinct layout.
#[derive(Debug, Clone)]
pub(super) struct Layout<'l> {
    pub(super) key: Vec<u32>,
    pub(super) kind: RecordKind,
    pub(super) size: u64,
    pub(super) align: u64,
    pub(super) rows: Vec<Row<'l>>,
    pub(super) uses: Vec<Use<'l>>,
}

/// Where and when a layout holds.
#[derive(Debug, Clone)]
pub(super) struct Use<'l> {
    pub(super) surface: usize,
    pub(super) tags: Range<usize>,
    /// As of the last of the tags.
    pub(super) path: &'l str,
    pub(super) line: u32,
}

/// The distinct layouts of a record in some surfaces, by the tag that has them first.
pub(super) fn layouts<'l>(
    surfaces: &[Surface<'l>],
    which: &[usize],
    name: &str,
) -> Vec<Layout<'l>> {
    let mut layouts: Vec<Layout<'l>> = Vec::new();
    for index in which {
        let surface = &surfaces[*index];
        for (tags, span) in runs(surface, name) {
            let (rows, key) = expand(surface, span, name, tags.start);
            let Fact::Record { kind, size, align, .. } = span.fact else { continue };
            let found = layouts.iter().position(|l| l.key == key).unwrap_or_else(|| {
                let (kind, size, align) = (*kind, *size, *align);
                layouts.push(Layout { key, kind, size, align, rows, uses: Vec::new() });
                layouts.len() - 1
            });
            let one = Use { surface: *index, tags, path: span.path, line: span.line };
            add_use(&mut layouts[found].uses, one);
        }
    }
    layouts.sort_by_key(|l| l.uses.iter().map(|u| u.tags.start).min());
    layouts
}

/// A use that goes on where the last one ends only moved in its header.
fn add_use<'l>(uses: &mut Vec<Use<'l>>, one: Use<'l>) {
    match uses.last_mut() {
        Some(last) if last.surface == one.surface && last.tags.end == one.tags.start => {
            *last = Use { tags: last.tags.start..one.tags.end, ..one };
        }
        _ => uses.push(one),
    }
}

/// The spans of a record, cut where an unnamed record in it changes.
fn runs<'s, 'l>(surface: &'s Surface<'l>, name: &str) -> Vec<(Range<usize>, &'s Span<'l>)> {
    let inner = format!("{name}::");
    let cuts: BTreeSet<usize> = (surface.records.range(inner.as_str()..))
        .take_while(|(name, _)| name.starts_with(&inner))
        .flat_map(|(_, spans)| spans.iter().map(|span| span.tags.start))
        .collect();
    let mut runs = Vec::new();
    for span in surface.records.get(name).into_iter().flatten() {
        let mut start = span.tags.start;
        for cut in cuts.range(span.tags.start + 1..span.tags.end.max(span.tags.start + 1)) {
            runs.push((start..*cut, span));
            start = *cut;
        }
        runs.push((start..span.tags.end, span));
    }
    runs
}

struct Expand<'s, 'l> {
    surface: &'s Surface<'l>,
    tag: usize,
    rows: Vec<Row<'l>>,
    key: Vec<u32>,
}

fn expand<'l>(
    surface: &Surface<'l>,
    span: &Span<'l>,
    name: &str,
    tag: usize,
) -> (Vec<Row<'l>>, Vec<u32>) {
    let mut expand = Expand { surface, tag, rows: Vec::new(), key: Vec::new() };
    expand.record(span, &RecordPosition { name, depth: 0, base: 0, prefix: "" });
    (expand.rows, expand.key)
}

struct RecordPosition<'a> {
    name: &'a str,
    depth: usize,
    base: u64,
    prefix: &'a str,
}

impl<'s, 'l> Expand<'s, 'l> {
    fn record(&mut self, span: &Span<'l>, place: &RecordPosition<'_>) {
        let Fact::Record { kind, size, fields, .. } = span.fact else { return };
        self.key.push(span.id);
        let mut end = 0;
        for (i, field) in fields.iter().enumerate() {
            let bit = field.bits.map_or(0, |bits| bits.bit_offset);
            let start = field.offset.saturating_mul(8).saturating_add(bit);
            if *kind == RecordKind::Struct {
                self.padding(end, start, place);
            }
            self.field(field, i, place);
            end = end.max(start.saturating_add(width(field)));
        }
        if *kind == RecordKind::Struct {
            self.padding(end, size.saturating_mul(8), place);
        }
    }

    /// Padding between two bits: the whole bytes in it.
    fn padding(&mut self, from: u64, to: u64, place: &RecordPosition<'_>) {
        let (from, to) = (from.div_ceil(8), to / 8);
        if from < to {
            self.rows.push(Row {
                depth: place.depth,
                path: String::new(),
                offset: place.base.saturating_add(from),
                size: to - from,
                field: None,
                record: None,
                open: None,
            });
        }
    }

    fn field(&mut self, field: &'l Field, index: usize, place: &RecordPosition<'_>) {
        let (base, _) = split_array(&field.canonical);
        let path = match field.name.is_empty() {
            true => format!("{}#{index}", place.prefix),
            false => format!("{}{}", place.prefix, field.name),
        };
        let surface: &'s Surface<'l> = self.surface;
        let found = surface.records.get(base).and_then(|spans| at(spans, self.tag));
        let unnamed = base.strip_prefix(place.name).is_some_and(|rest| rest.starts_with("::"));
        let inner = found.filter(|_| unnamed && place.depth < DEPTH);
        let kind = inner.and_then(|span| match span.fact {
            Fact::Record { kind, .. } => Some(*kind),
            _ => None,
        });
        let offset = place.base.saturating_add(field.offset);
        self.rows.push(Row {
            depth: place.depth,
            path: path.clone(),
            offset,
            size: field.size,
            field: Some(field),
            record: found.map(|_| base),
            open: kind,
        });
        if let Some(span) = inner {
            let (prefix, depth) = (format!("{path}."), place.depth + 1);
            let place = RecordPosition { name: base, depth, base: offset, prefix: &prefix };
            self.record(span, &place);
        }
    }
}

/// Bits that a field takes.
pub(super) fn width(field: &Field) -> u64 {
    field.bits.map_or(field.size.saturating_mul(8), |bits| bits.bit_width)
}

/// How a row stands against the layout before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// As it was, or there is nothing to compare with.
    Same,
    /// New in this layout.
    New,
    /// Elsewhere, of another size or of another type: what it was.
    Was(String),
    /// Only in the layout before.
    Gone,
}

/// The rows of a layout with what changed, those that are gone where they were.
pub(super) fn marked<'r, 'l>(
    new: &'r [Row<'l>],
    old: Option<&'r [Row<'l>]>,
) -> Vec<(&'r Row<'l>, Mark)> {
    let Some(old) = old else { return new.iter().map(|row| (row, Mark::Same)).collect() };
    let has = |rows: &[Row<'_>], path: &str| rows.iter().any(|r| same_path(r, path));
    let mut out = Vec::with_capacity(new.len());
    let gone_after = |out: &mut Vec<(&'r Row<'l>, Mark)>, from: usize| {
        let rows = old[from..].iter().filter(|row| row.field.is_some());
        for row in rows.take_while(|row| !has(new, &row.path)) {
            out.push((row, Mark::Gone));
        }
    };
    gone_after(&mut out, 0);
    for row in new {
        let Some(at) = row.field.and(old.iter().position(|o| same_path(o, &row.path))) else {
            let mark = if row.field.is_some() { Mark::New } else { Mark::Same };
            out.push((row, mark));
            continue;
        };
        out.push((row, against(row, &old[at])));
        gone_after(&mut out, at + 1);
    }
    out
}

fn same_path(row: &Row<'_>, path: &str) -> bool {
    row.field.is_some() && row.path == path
}

fn against(new: &Row<'_>, old: &Row<'_>) -> Mark {
    let mut was = Vec::new();
    let (Some(new_field), Some(old_field)) = (new.field, old.field) else { return Mark::Same };
    if new.offset != old.offset || new_field.bits != old_field.bits {
        was.push(format!("at {}", place(old)));
    }
    if new.size != old.size {
        was.push(counted(old.size, "byte"));
    }
    if new_field.ty != old_field.ty || new_field.canonical != old_field.canonical {
        was.push(match new_field.ty == old_field.ty {
            true => old_field.canonical.clone(),
            false => old_field.ty.clone(),
        });
    }
    match was.is_empty() {
        true => Mark::Same,
        false => Mark::Was(was.join(", ")),
    }
}

/// The offset, with that of the bit for a bit-field.
pub(super) fn place(row: &Row<'_>) -> String {
    match row.field.and_then(|field| field.bits) {
        Some(bits) => format!("{}.{}", row.offset, bits.bit_offset),
        None => row.offset.to_string(),
    }
}

/// What changed in a few words.
pub(super) fn summary(new: &Layout<'_>, old: &Layout<'_>) -> String {
    const SHOWN: usize = 4;
    let marks = marked(&new.rows, Some(&old.rows));
    let mut words = Vec::new();
    if new.size != old.size {
        words.push(format!("{} → {} bytes", old.size, new.size));
    }
    if new.align != old.align {
        words.push(format!("align {} → {}", old.align, new.align));
    }
    if new.kind != old.kind {
        words.push(format!("now a {}", new.kind.keyword()));
    }
    type Is = fn(&Mark) -> bool;
    let is: [(&str, Is); 3] = [
        ("+ ", |m| *m == Mark::New),
        ("− ", |m| *m == Mark::Gone),
        ("changed ", |m| matches!(m, Mark::Was(_))),
    ];
    for (sign, is) in is {
        // Of a record that came or went the name tells enough.
        let found: Vec<&Row<'_>> = marks.iter().filter(|(_, m)| is(m)).map(|(r, _)| *r).collect();
        let outer = |row: &Row<'_>| {
            found.iter().any(|o| {
                row.path.strip_prefix(o.path.as_str()).is_some_and(|rest| rest.starts_with('.'))
            })
        };
        let names: Vec<String> = found.iter().filter(|r| !outer(r)).map(|r| r.shown()).collect();
        if let Some(more) = names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            words.push(format!("{sign}{} and {more} more", names[..SHOWN].join(", ")));
        } else if !names.is_empty() {
            words.push(format!("{sign}{}", names.join(", ")));
        }
    }
    words.join("; ")
}
