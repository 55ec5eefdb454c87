//! A diff as text for people: the worst first, grouped by struct, in bytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::terminal;
use crate::words::{TOLD, counted, listed};

use super::{
    Asked, CallChange, CallState, Class, Compared, Counts, Diff, EnumChange, FieldChange,
    FieldState, Holder, Instead, RecordChange, TypeChange, ValueChange, ValueState,
};
use nvabi_pipeline::model::{Source, hex};

/// Columns wider than this are not padded for.
const WIDEST: usize = 64;
/// Fewer fields that moved alike are told one by one.
const RUN: usize = 4;

/// The whole diff, and what follows from it for a shim.
pub fn text(diff: &Diff) -> String {
    let mut text = format!("{}\n", summary(diff));
    for class in [Class::Break, Class::Meaning, Class::Harmless] {
        let blocks = blocks(diff, class);
        if !blocks.is_empty() {
            let (head, what) = title(class);
            let _ = write!(text, "\n{}: {what}\n", head.to_uppercase());
            blocks.iter().for_each(|block| {
                let _ = write!(text, "\n{}", block.text());
            });
        }
    }
    let advice = super::advice(diff);
    if !advice.is_empty() {
        text.push_str("\nA SHIM MUST\n\n");
        for advice in advice {
            let _ = writeln!(text, "  {}: {}", advice.subject, advice.what);
        }
    }
    text
}

/// Both tags and how much differs, on one line.
pub fn summary(diff: &Diff) -> String {
    if diff.is_empty() {
        return format!("{} → {}: no difference", diff.from, diff.to);
    }
    format!("{} → {}: {}", diff.from, diff.to, counts_text(Counts::of(diff)))
}

/// The summary of a diff of some of the driver, which says so: it may be all that somebody reads.
pub fn summary_of(diff: &Diff, compared: &Compared) -> String {
    format!("{} in {}", summary(diff), subject(compared))
}

/// What a diff of some names leaves out, as a sentence.
pub fn scope_text(compared: &Compared) -> String {
    let mut text = format!("compared {}", subject(compared));
    if !compared.absent.is_empty() {
        let count = counted(compared.absent.len(), "name");
        let told = listed(compared.absent.iter().cloned());
        let _ = write!(text, "; neither tag has {count}: {told}");
    }
    match compared.elsewhere {
        None => text.push_str("; --all compares everything"),
        Some(counts) if counts.total() == 0 => text.push_str("; nothing differs elsewhere"),
        Some(counts) => {
            let _ = write!(text, "; elsewhere {}: --all lists them", counts_text(counts));
        }
    }
    text
}

/// What was compared.
fn subject(compared: &Compared) -> String {
    match &compared.of {
        None => counted(compared.items, "supported item"),
        Some(Asked::For(name)) => format!("{name} alone"),
        Some(Asked::In(path)) => format!("{} of {path}", counted(compared.items, "name")),
    }
}

fn counts_text(Counts { breaks, meanings, harmless }: Counts) -> String {
    let breaks = counted(breaks, "break");
    format!("{breaks}, {}, {harmless} harmless", counted(meanings, "new meaning"))
}

/// What a class is called, and what it is.
pub(super) fn title(class: Class) -> (&'static str, &'static str) {
    match class {
        Class::Break => {
            ("Breaks", "fields moved, a number names another call, or fewer may make it")
        }
        Class::Meaning => ("New meaning", "nothing moved, but names, values or roles changed"),
        Class::Harmless => ("Harmless", "existing programs keep working"),
    }
}

/// A part of a report about one thing, or about things of one kind.
pub(super) struct Block {
    /// The record or enum that it is about.
    pub(super) subject: Option<String>,
    pub(super) head: String,
    /// What is to be said before the table.
    pub(super) lines: Vec<String>,
    pub(super) table: Table,
    /// How much is left out of the table.
    pub(super) more: Option<String>,
}

impl Block {
    fn new(subject: Option<&str>, head: impl Into<String>, table: Table) -> Self {
        let subject = subject.map(str::to_owned);
        Self { subject, head: head.into(), lines: Vec::new(), table, more: None }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.head);
        for line in &self.lines {
            let _ = writeln!(text, "    {line}");
        }
        self.table.print(&mut text);
        if let Some(more) = &self.more {
            let _ = writeln!(text, "  {more}");
        }
        text
    }
}

/// The changes of one class: calls, records, enums, then values by header.
pub(super) fn blocks(diff: &Diff, class: Class) -> Vec<Block> {
    let mut blocks = Vec::new();
    let calls: Vec<&CallChange> = diff.calls.iter().filter(|c| c.class == class).collect();
    if !calls.is_empty() {
        blocks.push(self::calls(&calls));
    }
    let own = |record: &&RecordChange| record.class == class && record.carried_by.is_empty();
    let (whole, changed): (Vec<_>, Vec<_>) = diff
        .records
        .iter()
        .filter(own)
        .partition(|r| r.before.is_none() || r.after.is_none() || r.name_before.is_some());
    blocks.extend(changed.into_iter().map(|r| record(r, diff)));
    if !whole.is_empty() {
        blocks.push(whole_records(&whole));
    }
    let (whole, changed): (Vec<_>, Vec<_>) = (diff.enums.iter())
        .filter(|e| e.class == class)
        .partition(|e| e.before.is_none() || e.after.is_none());
    blocks.extend(changed.into_iter().map(enumeration));
    if !whole.is_empty() {
        blocks.push(whole_enums(&whole));
    }
    for (word, list) in [
        ("typedefs", &diff.aliases),
        ("constants", &diff.constants),
        ("bit ranges", &diff.bit_ranges),
    ] {
        blocks.extend(values(word, list, class));
    }
    blocks
}

/// Lines of columns, each as wide as its widest cell; the last is not padded.
#[derive(Default)]
pub(super) struct Table(pub(super) Vec<Vec<String>>);

impl Table {
    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }

    fn print(&self, text: &mut String) {
        let most = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |at: usize| self.0.iter().filter_map(move |row| row.get(at));
        let widths = (0..most).map(|at| terminal::width(cells(at).map(String::as_str), WIDEST));
        let widths: Vec<usize> = widths.collect();
        for row in &self.0 {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:<width$}  ");
            }
            let _ = writeln!(text, "  {}", line.trim_end());
        }
    }
}

fn calls(calls: &[&CallChange]) -> Block {
    let mut table = Table::default();
    for call in calls {
        let number = |state: &CallState| hex(state.number);
        let (sign, numbers) = match (&call.before, &call.after) {
            (Some(x), Some(y)) if x.number != y.number => {
                ("→", format!("{} → {}", number(x), number(y)))
            }
            (Some(x), None) => ("-", number(x)),
            (None, Some(y)) => ("+", number(y)),
            (Some(x), _) => ("~", number(x)),
            (None, None) => continue,
        };
        let name = match &call.name_before {
            Some(before) => format!("{before} → {}", call.name),
            None => call.name.clone(),
        };
        let (name, numbers) = (format!("{sign} {name}"), format!("{numbers}{}", call_notes(call)));
        let sources = [&call.before, &call.after].map(|s| s.as_ref()?.source.as_ref());
        table.row([name, numbers, places(sources)]);
    }
    Block::new(None, "calls", table)
}

fn call_notes(call: &CallChange) -> String {
    let mut notes = Vec::new();
    if let (Some(number), Some(before)) = (&call.number_now, &call.before) {
        notes.push(format!("{} now is {number}", hex(before.number)));
    }
    if let (Some(number), Some(after)) = (&call.number_was, &call.after) {
        notes.push(format!("{} was {number}", hex(after.number)));
    }
    if let (Some(other), Some(state)) =
        (&call.alias_of, call.before.as_ref().or(call.after.as_ref()))
    {
        notes.push(format!("{} is {other} too", hex(state.number)));
    }
    if let (Some(before), Some(after)) = (&call.before, &call.after) {
        let params = |state: &CallState| match (state.unmapped, &state.params[..]) {
            (true, _) => "unknown".to_owned(),
            (false, []) => "none".to_owned(),
            (false, names) => names.join(", "),
        };
        if params(before) != params(after) {
            notes.push(format!("parameters {} → {}", params(before), params(after)));
        }
        if let (Some(before), Some(after)) = (&before.access, &after.access)
            && before != after
        {
            notes.push(format!("callers {before} → {after}"));
        }
        notes.extend(came_and_went("fds", &before.fds, &after.fds));
        notes.extend(came_and_went("pointers", &before.pointers, &after.pointers));
    }
    match notes.is_empty() {
        true => String::new(),
        false => format!(" ({})", notes.join("; ")),
    }
}

/// `pointers - a, + b`: what is on both sides is not told.
fn came_and_went(what: &str, before: &[String], after: &[String]) -> Option<String> {
    let only = |sign: char, these: &[String], others: &[String]| -> Vec<String> {
        let only = these.iter().filter(|name| !others.contains(name));
        only.map(|name| format!("{sign} {name}")).collect()
    };
    let told = [only('-', before, after), only('+', after, before)].concat();
    (!told.is_empty()).then(|| format!("{what} {}", told.join(", ")))
}

fn record(record: &RecordChange, diff: &Diff) -> Block {
    let head = format!("{}{}", record.name, outside(record));
    let block = Block::new(Some(&record.name), head, Table(rows(record)));
    Block { lines: around(record, diff), ..block }
}

/// Size, alignment and kind, where they differ as old and new.
pub(super) fn outside(record: &RecordChange) -> String {
    let (Some(before), Some(after)) = (&record.before, &record.after) else {
        let size = record.before.as_ref().or(record.after.as_ref()).map_or(0, |s| s.size);
        return format!("  {}", bytes(size));
    };
    let mut text = match record.resized() {
        Some((before, after)) => format!("  {before} → {after} bytes"),
        None => format!("  {}", bytes(after.size)),
    };
    if before.align != after.align {
        let _ = write!(text, ", align {} → {}", before.align, after.align);
    }
    if before.kind != after.kind {
        let _ = write!(text, ", {} → {}", before.kind.keyword(), after.kind.keyword());
    }
    if record.surfaces.iter().all(|surface| surface.contains('@')) {
        let targets: Vec<&str> =
            record.surfaces.iter().filter_map(|s| Some(s.split_once('@')?.1)).collect();
        let _ = write!(text, ", on {} only", targets.join(", "));
    }
    text
}

/// Where it is declared, what holds it and which calls carry it.
pub(super) fn around(record: &RecordChange, diff: &Diff) -> Vec<String> {
    let mut lines =
        vec![places([&record.before, &record.after].map(|s| Some(&s.as_ref()?.source)))];
    if !record.held_by.is_empty() {
        let told = record.held_by.iter().map(|holder| held(holder, diff));
        lines.push(format!("in {}", listed(told)));
    }
    if !record.calls.is_empty() {
        lines.push(format!("for {}", listed(record.calls.iter().cloned())));
    }
    lines
}

fn held(holder: &Holder, diff: &Diff) -> String {
    let at = match (holder.before, holder.after) {
        (Some(before), Some(after)) if before != after => format!("+{before} → +{after}"),
        (Some(at), _) | (None, Some(at)) => format!("+{at}"),
        (None, None) => String::new(),
    };
    let other = diff.records.iter().find(|r| r.name == holder.record && !r.carried_by.is_empty());
    match other.and_then(RecordChange::resized) {
        Some((before, after)) => format!("{} at {at} ({before} → {after} bytes)", holder.record),
        None => format!("{} at {at}", holder.record),
    }
}

/// The fields that differ: sign and name, type, offset, and what else there is to say.
pub(super) fn rows(record: &RecordChange) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut rest = record.fields.as_slice();
    while let Some((first, others)) = rest.split_first() {
        let moved = first.only_moved();
        let run =
            1 + others.iter().take_while(|f| moved.is_some() && f.only_moved() == moved).count();
        match moved {
            Some(by) if run >= RUN => {
                let last = rest[run - 1].name();
                let name = format!("→ {} … {last}", shown(first.name()));
                rows.push(vec![name, format!("{run} fields"), format!("{by:+}")]);
                rest = &rest[run..];
            }
            _ => {
                rows.push(row(first));
                rest = others;
            }
        }
    }
    rows
}

fn row(field: &FieldChange) -> Vec<String> {
    let (sign, name) = match (&field.before, &field.after) {
        (None, Some(new)) => ("+", shown(&new.field.name).to_owned()),
        (Some(gone), None) => ("-", shown(&gone.field.name).to_owned()),
        (Some(x), Some(y)) if x.field.name != y.field.name => {
            ("~", format!("{} → {}", x.field.name, y.field.name))
        }
        (Some(x), Some(y)) if x.field.offset != y.field.offset => {
            ("→", shown(&y.field.name).to_owned())
        }
        _ => ("~", shown(field.name()).to_owned()),
    };
    let both = |show: &dyn Fn(&FieldState) -> String| {
        let texts = [&field.before, &field.after].map(|state| state.as_ref().map(show));
        match texts {
            [Some(x), Some(y)] if x != y => format!("{x} → {y}"),
            [x, y] => y.or(x).unwrap_or_default(),
        }
    };
    let types = both(&|state| state.field.ty.clone());
    let place = both(&|state| match state.field.bits {
        Some(bits) => format!("{}.{}:{}", state.field.offset, bits.bit_offset, bits.bit_width),
        None => state.field.offset.to_string(),
    });
    vec![format!("{sign} {name}"), types, format!("at {place}"), notes(field).join(", ")]
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "(unnamed)" } else { name }
}

/// What there is to say of a field beside its place and type.
pub(super) fn notes(field: &FieldChange) -> Vec<String> {
    let mut notes = Vec::new();
    match (&field.before, &field.after) {
        (Some(before), Some(after)) => {
            if before.field.size != after.field.size {
                notes.push(format!("{} → {} bytes", before.field.size, after.field.size));
            } else if field.retyped == Some(TypeChange::Layout) {
                notes.push("made of something else".into());
            }
            if before.is_reserved() != after.is_reserved() {
                let which = if before.is_reserved() { "was" } else { "is now" };
                notes.push(format!("{which} reserved"));
            }
            if before.role != after.role {
                notes.extend(before.role.map(|role| format!("no longer {}", role.words())));
                notes.extend(after.role.map(|role| format!("now {}", role.words())));
            } else if field.retyped == Some(TypeChange::Reading) {
                notes.push("the same bytes, read otherwise".into());
            }
        }
        (Some(only), None) | (None, Some(only)) => {
            notes.push(bytes(only.field.size));
            notes.extend(field.instead.as_ref().and_then(|i| instead(i, field.after.is_some())));
            notes.extend(only.role.map(|role| role.words().to_owned()));
            if let (Some(pointer), Some(_)) = (&only.length_of, &field.after) {
                notes.push(format!("the length of {pointer}"));
            }
        }
        (None, None) => {}
    }
    notes
}

fn instead(instead: &Instead, new: bool) -> Option<String> {
    let (verb, end) = if new { ("was", "old") } else { ("now", "new") };
    Some(match instead {
        Instead::Beyond => format!("past the {end} end"),
        Instead::Across => format!("across the {end} end"),
        Instead::Padding => format!("{verb} padding"),
        Instead::Reserved(names) => format!("{verb} {}", names.join(", ")),
        Instead::Fields(names) => {
            let names = listed(names.iter().map(|name| shown(name).to_owned()));
            if new { format!("in the place of {names}") } else { format!("its place has {names}") }
        }
        Instead::Union => return None,
    })
}

pub(super) fn bytes(size: u64) -> String {
    match size {
        1 => "1 byte".to_owned(),
        size => format!("{size} bytes"),
    }
}

/// Records that are new, gone or renamed as a whole.
fn whole_records(records: &[&RecordChange]) -> Block {
    let mut table = Table::default();
    for record in records {
        let name = match (&record.name_before, &record.after) {
            (Some(before), _) => format!("~ {before} → {}", record.name),
            (None, Some(_)) => format!("+ {}", record.name),
            (None, None) => format!("- {}", record.name),
        };
        let sources = [&record.before, &record.after].map(|s| Some(&s.as_ref()?.source));
        table.row([name, outside(record).trim_start().to_owned(), places(sources)]);
    }
    Block::new(None, "records", table)
}

fn enumeration(found: &EnumChange) -> Block {
    let places = places([&found.before, &found.after].map(|state| Some(&state.as_ref()?.source)));
    let what = match (&found.before, &found.after) {
        (Some(x), Some(y)) if x.size != y.size => format!("  {} → {} bytes", x.size, y.size),
        _ => String::new(),
    };
    let table = Table(found.enumerators.iter().map(value_row).collect());
    let block = Block::new(Some(&found.name), format!("enum {}{what}", found.name), table);
    Block { lines: vec![places], ..block }
}

/// Enums that are new or gone.
fn whole_enums(enums: &[&EnumChange]) -> Block {
    let mut table = Table::default();
    for found in enums {
        let sign = if found.before.is_none() { "+" } else { "-" };
        let sources = [&found.before, &found.after].map(|state| Some(&state.as_ref()?.source));
        table.row([format!("{sign} {}", found.name), places(sources)]);
    }
    Block::new(None, "enums", table)
}

/// The values of one kind and class, by header.
fn values(word: &str, list: &[ValueChange], class: Class) -> Vec<Block> {
    let mut headers: BTreeMap<&str, Vec<&ValueChange>> = BTreeMap::new();
    for change in list.iter().filter(|change| change.class == class) {
        let source = change.after.as_ref().or(change.before.as_ref()).and_then(ValueState::source);
        if let Some(source) = source {
            headers.entry(&source.path).or_default().push(change);
        }
    }
    let print = |(header, changes): (&str, Vec<&ValueChange>)| {
        // New names bother nobody: a few show what they are about.
        let told = match class {
            Class::Harmless if changes.len() > TOLD + 1 => TOLD,
            _ => changes.len(),
        };
        let mut table = Table::default();
        for change in &changes[..told] {
            let mut row = value_row(change);
            row.push(lines([&change.before, &change.after].map(|s| s.as_ref()?.source())));
            table.row(row);
        }
        let more = changes.len() - told;
        let more = (more > 0).then(|| format!("+ {more} more (--json has all)"));
        Block { more, ..Block::new(None, format!("{word} of {header}"), table) }
    };
    headers.into_iter().map(print).collect()
}

pub(super) fn value_row(change: &ValueChange) -> Vec<String> {
    let (before, after) = (&change.before, &change.after);
    let text = match [before, after].map(|state| state.as_ref().map(value)) {
        [Some(x), Some(y)] if x != y => format!("{x} → {y}"),
        [x, y] => y.or(x).unwrap_or_default(),
    };
    let name = match (&change.name_before, before, after) {
        (Some(name), ..) => format!("~ {name} → {}", change.name),
        (None, None, _) => format!("+ {}", change.name),
        (None, _, None) => format!("- {}", change.name),
        _ => format!("~ {}", change.name),
    };
    let mut notes = String::new();
    if !change.bounds.is_empty() {
        let _ = write!(notes, ", the length of {}", listed(change.bounds.iter().cloned()));
    }
    // Of two values, which one it is that names something else.
    let of = |state: &Option<ValueState>, verb: &str| match (before, after, state) {
        (Some(_), Some(_), Some(state)) => format!("{}{verb}", value(state)),
        _ => String::new(),
    };
    if let Some(now) = &change.value_now {
        let _ = write!(notes, ", {}now {now}", of(before, " is "));
    }
    if let Some(was) = &change.value_was {
        let _ = write!(notes, ", {}was {was}", of(after, " "));
    }
    vec![name, text + &notes]
}

fn value(state: &ValueState) -> String {
    match state {
        ValueState::Enumerator { value } | ValueState::Constant { value, .. } => hex(*value),
        ValueState::Bits { high, low, .. } => format!("{high}:{low}"),
        ValueState::Alias { ty, size, .. } => format!("{ty} ({size} bytes)"),
    }
}

/// `a.h:3 → :7`, or as much of it as differs.
pub(super) fn places(sources: [Option<&Source>; 2]) -> String {
    match sources {
        [Some(x), Some(y)] if x == y => x.to_string(),
        [Some(x), Some(y)] if x.path == y.path => format!("{x} → :{}", y.line),
        [Some(x), Some(y)] => format!("{x} → {y}"),
        [x, y] => x.or(y).map(Source::to_string).unwrap_or_default(),
    }
}

fn lines(sources: [Option<&Source>; 2]) -> String {
    match sources {
        [Some(x), Some(y)] if x.path != y.path => format!("{x} → :{}", y.line),
        [Some(x), Some(y)] if x.line != y.line => format!(":{} → :{}", x.line, y.line),
        [x, y] => x.or(y).map(|source| format!(":{}", source.line)).unwrap_or_default(),
    }
}
