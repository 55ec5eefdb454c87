//! The page of a record and that of a call.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::calls::State;
use super::html::{Esc, UrlPath, document};
use super::layout::{self, Layout, Mark, Row, Use, marked, place};
use super::{Atlas, CallPage, Record, What, bytemap, seen, tag};
use crate::words::counted;
use nvabi_pipeline::model::{RecordKind, hex, split_array};

/// The pattern of padding, once a page.
const PATTERN: &str = "<svg width=0 height=0 aria-hidden=true class=defs><pattern id=pad width=6 \
height=6 patternUnits=userSpaceOnUse patternTransform=rotate(45)><path d=\"M0 0v6\"/></pattern>\
</svg>\n";

pub(super) fn record(atlas: &Atlas<'_>, index: usize) -> String {
    let record = &atlas.records[index];
    let newest = record.line.iter().rev().find_map(|now| *now).unwrap_or(0);
    let kind = record.layouts.get(newest).map_or("struct", |layout| layout.kind.keyword());
    let mut body = format!("<h1><small>{kind}</small> {}</h1>\n<p>", Esc(record.name));
    let surfaces: Vec<&str> = record.surfaces.iter().map(|i| atlas.surfaces[*i].name).collect();
    let there = record.line.iter().flatten().count();
    let _ = write!(
        body,
        "In <b>{}</b>: {} over {} of {}.",
        Esc(&surfaces.join(", ")),
        counted(record.layouts.len(), "layout"),
        there,
        counted(record.line.len(), "version"),
    );
    if record.shared_name {
        body.push_str(" Another surface has another record of this name.");
    }
    body.push('\n');
    strip(&mut body, atlas, record);
    changes(&mut body, atlas, index);
    body.push_str(PATTERN);
    for number in order(record, newest) {
        let before = before(record, number);
        section(&mut body, atlas, index, &Shown { number, before, level: 2, within: None });
    }
    used_by(&mut body, atlas, record);
    document(record.name, "../", "record", &body)
}

/// What a layout is compared with: the one at the tag before its first; after a gap, the last.
fn before(record: &Record<'_>, number: usize) -> Option<usize> {
    let first = record.line.iter().position(|now| *now == Some(number))?;
    record.line[..first].iter().rev().find_map(|now| *now)
}

/// The layout that holds at the newest tag first, then the others from new to old.
fn order(record: &Record<'_>, newest: usize) -> impl Iterator<Item = usize> {
    let others = (0..record.layouts.len()).rev().filter(move |number| *number != newest);
    let first = (newest < record.layouts.len()).then_some(newest);
    first.into_iter().chain(others)
}

/// All versions as a bar in the colours of the matrix.
fn strip(body: &mut String, atlas: &Atlas<'_>, record: &Record<'_>) {
    body.push_str("<div class=strip>");
    for (branch, tags) in atlas.branches() {
        let _ = write!(body, "<span style=flex:{}>", tags.len());
        let mut from = tags.start;
        for at in tags.clone() {
            if at + 1 < tags.end && record.line[at + 1] == record.line[at] {
                continue;
            }
            let count = at + 1 - from;
            let class =
                record.line[at].map_or("none".to_owned(), |number| colour(number).to_string());
            let (first, last) = (Esc(atlas.tag(from)), Esc(atlas.tag(at)));
            let _ = match record.line[at] {
                Some(number) => {
                    let number = number + 1;
                    write!(
                        body,
                        "<a href=#l{number} class={class} style=flex:{count} title=\"{first} – {last}: layout {number}\"></a>"
                    )
                }
                None => write!(body, "<i class={class} style=flex:{count}></i>"),
            };
            from = at + 1;
        }
        let _ = write!(body, "<b>{}</b></span>", Esc(branch));
    }
    body.push_str("</div>\n");
}

/// The class of a layout's colour.
pub(super) fn colour(number: usize) -> impl std::fmt::Display {
    const COLOURS: usize = 8;
    // The first keeps its colour to itself: it is what most never leave.
    let colour = if number == 0 { 0 } else { 1 + (number - 1) % (COLOURS - 1) };
    format!("v{colour}")
}

/// What happened at which tag; nothing where there is but the first layout.
fn changes(body: &mut String, atlas: &Atlas<'_>, index: usize) {
    let record = &atlas.records[index];
    if record.changes.len() < 2 && record.line.first().is_some_and(Option::is_some) {
        return;
    }
    body.push_str("<h2>History</h2>\n<table class=list>\n");
    for change in &record.changes {
        let (file, tag) = (atlas.tag_file(change.at), Esc(atlas.tag(change.at)));
        let _ = write!(body, "<tr><th><a href=\"../{}\">{tag}</a><td>", Esc(&file));
        match &change.what {
            What::New(number) => {
                let size = record.layouts[*number].size;
                let _ = write!(body, "{}, {}", link_layout(*number), counted(size, "byte"));
            }
            What::Gone => body.push_str("gone"),
            What::Other(from, to) => {
                let summary = layout::summary(&record.layouts[*to], &record.layouts[*from]);
                let _ = write!(body, "{}: {}", link_layout(*to), Esc(&summary));
            }
            What::Inside(pages) => {
                body.push_str("inside: ");
                inside(body, atlas, pages);
            }
        }
        body.push('\n');
    }
    body.push_str("</table>\n");
}

fn link_layout(number: usize) -> String {
    let number = number + 1;
    format!("<a href=#l{number}>layout {number}</a>")
}

/// Records that changed, with links.
pub(super) fn inside(body: &mut String, atlas: &Atlas<'_>, pages: &[usize]) {
    for (i, page) in pages.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let _ = write!(body, "{comma}{}", link(atlas, *page));
    }
}

/// A link to a record, from a page in a folder.
pub(super) fn link(atlas: &Atlas<'_>, page: usize) -> String {
    let (file, name) = (atlas.record_file(page), atlas.records[page].name);
    format!("<a href=\"../{}\">{}</a>", Esc(&file), Esc(name))
}

/// A layout on a page, and what it is compared with.
struct Shown {
    number: usize,
    before: Option<usize>,
    level: usize,
    /// On a call's page, the tags that have the call.
    within: Option<Range<usize>>,
}

fn section(body: &mut String, atlas: &Atlas<'_>, index: usize, shown: &Shown) {
    let record = &atlas.records[index];
    let Some(layout) = record.layouts.get(shown.number) else { return };
    let before = shown.before.and_then(|number| record.layouts.get(number));
    let (number, level) = (shown.number + 1, shown.level);
    // A call's page may have layouts of several records.
    let id = match shown.within {
        Some(_) => format!("l{index}-{number}"),
        None => format!("l{number}"),
    };
    let members = layout.rows.iter().filter(|r| r.depth == 0 && r.field.is_some()).count();
    let _ = writeln!(
        body,
        "<section id={id}><h{level}><i class=\"key {}\"></i>Layout {number} <small>{}, align \
{}, {}</small></h{level}>",
        colour(shown.number),
        counted(layout.size, "byte"),
        layout.align,
        counted(members, "member"),
    );
    places(body, atlas, record, layout, shown);
    let rows = marked(&layout.rows, before.map(|layout| layout.rows.as_slice()));
    if let Some(before) = before {
        let summary = layout::summary(layout, before);
        let against = shown.before.unwrap_or_default() + 1;
        let _ = writeln!(body, "<p class=m>Against layout {against}: {}", Esc(&summary));
    }
    let _ = writeln!(body, "{}", bytemap::svg(record.name, layout, &rows));
    table(body, atlas, layout, &rows);
    body.push_str("</section>\n");
}

/// Tags and places in the headers.
fn places(
    body: &mut String,
    atlas: &Atlas<'_>,
    record: &Record<'_>,
    layout: &Layout<'_>,
    shown: &Shown,
) {
    body.push_str("<p>");
    let within = |one: &&Use<'_>| {
        (shown.within.as_ref()).is_none_or(|w| one.tags.start < w.end && w.start < one.tags.end)
    };
    for (i, one) in layout.uses.iter().filter(within).enumerate() {
        if i > 0 {
            body.push_str("<br>");
        }
        if record.surfaces.len() > 1 {
            let _ = write!(body, "{}: ", Esc(atlas.surfaces[one.surface].name));
        }
        let _ = write!(body, "{} · {}", tags(atlas, &one.tags), upstream(atlas, one));
    }
    body.push('\n');
}

/// Tags with links: the first, the last, and how many.
fn tags(atlas: &Atlas<'_>, tags: &Range<usize>) -> String {
    let link = |tag: usize| {
        format!("<a href=\"../{}\">{}</a>", Esc(&atlas.tag_file(tag)), Esc(atlas.tag(tag)))
    };
    match tags.len() {
        0 | 1 => link(tags.start),
        count => format!("{} – {} ({count})", link(tags.start), link(tags.end - 1)),
    }
}

fn upstream(atlas: &Atlas<'_>, one: &Use<'_>) -> String {
    let file = one.path.rsplit_once('/').map_or(one.path, |(_, file)| file);
    let (text, tag) = (format!("{}:{}", Esc(file), one.line), one.tags.end - 1);
    let title = Esc(one.path);
    match atlas.repository(tag) {
        Some(repository) => format!(
            "<a href=\"{}/blob/{}/{}#L{}\" title=\"{title}\">{text}</a>",
            Esc(repository),
            UrlPath(atlas.tag(tag)),
            UrlPath(one.path),
            one.line
        ),
        None => format!("<span title=\"{title}\">{text}</span>"),
    }
}

fn table(body: &mut String, atlas: &Atlas<'_>, layout: &Layout<'_>, rows: &[(&Row<'_>, Mark)]) {
    body.push_str(
        "<table class=t><thead><tr><th>offset<th>hex<th>size<th>type<th>field<th>before\
</thead>\n",
    );
    let surface = layout.uses.first().map_or(0, |one| one.surface);
    for (row, mark) in rows {
        let (class, was) = match mark {
            Mark::Same if row.field.is_none() => (" class=p", String::new()),
            Mark::Same => ("", String::new()),
            Mark::New => (" class=n", "new".to_owned()),
            Mark::Was(was) => (" class=w", format!("was {was}")),
            Mark::Gone => (" class=g", "gone".to_owned()),
        };
        let size = match row.field.and_then(|field| field.bits) {
            Some(bits) => counted(bits.bit_width, "bit"),
            None => row.size.to_string(),
        };
        let _ = write!(body, "<tr{class}><td>{}<td>{:#x}<td>{size}", place(row), row.offset);
        let indent =
            if row.depth > 0 { format!(" class=i{}", row.depth.min(6)) } else { String::new() };
        match row.field {
            None => {
                let _ = write!(body, "<td><td{indent}>padding");
            }
            Some(field) => {
                let name = if field.name.is_empty() { "(unnamed)" } else { field.name.as_str() };
                let _ = write!(body, "{}<td{indent}>{}", ty(atlas, surface, row), Esc(name));
            }
        }
        let _ = writeln!(body, "<td>{}", Esc(&was));
    }
    body.push_str("</table>\n");
}

/// The cell of a type: a record's with a link, an unnamed record's as its keyword.
fn ty(atlas: &Atlas<'_>, surface: usize, row: &Row<'_>) -> String {
    let Some(field) = row.field else { return "<td>".to_owned() };
    let text = match row.open {
        Some(kind) => {
            let (base, _) = split_array(&field.canonical);
            format!("{}{}", kind.keyword(), &field.canonical[base.len()..])
        }
        None => field.ty.clone(),
    };
    let text = Esc(&text);
    let page = row.record.and_then(|name| {
        let named = |(index, _): (usize, _)| atlas.by_name.get(&(index, name)).copied();
        let own = atlas.by_name.get(&(surface, name)).copied();
        own.or_else(|| atlas.surfaces.iter().enumerate().find_map(named))
    });
    match page {
        Some(page) => {
            format!("<td><a href=\"../{}\">{text}</a>", Esc(&atlas.record_file(page)))
        }
        None if field.ty != field.canonical => {
            format!("<td title=\"{}\">{text}", Esc(&field.canonical))
        }
        None => format!("<td>{text}"),
    }
}

fn used_by(body: &mut String, atlas: &Atlas<'_>, record: &Record<'_>) {
    if record.holders.is_empty() && record.callers.is_empty() {
        return;
    }
    body.push_str("<h2>Used by</h2>\n<ul class=names>\n");
    for caller in &record.callers {
        let call = &atlas.calls[*caller];
        let (file, name, kind) = (Esc(&call.file), Esc(call.call.name), call.call.kind.section());
        let _ = writeln!(body, "<li><a href=\"../{file}\">{name}</a> <small>{kind}</small>");
    }
    for holder in &record.holders {
        let _ = writeln!(body, "<li>{}", link(atlas, *holder));
    }
    body.push_str("</ul>\n");
}

pub(super) fn call(atlas: &Atlas<'_>, index: usize) -> String {
    let page = &atlas.calls[index];
    let call = &page.call;
    let mut body = format!("<h1><small>{}</small> {}</h1>\n", call.kind.section(), Esc(call.name));
    seen::paragraph(&mut body, call.name);
    states(&mut body, atlas, &call.states);
    call_changes(&mut body, atlas, page);
    body.push_str(PATTERN);
    let mut seen = BTreeSet::new();
    // The newest parameters first.
    for state in call.states.iter().rev() {
        for record in atlas.params(state) {
            if seen.insert(record) {
                parameters(&mut body, atlas, call.states.as_slice(), record);
            }
        }
    }
    document(call.name, "../", "call", &body)
}

/// What the spec says, for each span of tags.
fn states(body: &mut String, atlas: &Atlas<'_>, states: &[State<'_>]) {
    for state in states.iter().rev() {
        let _ =
            write!(body, "<table class=list>\n<tr><th>versions<td>{}\n", tags(atlas, &state.tags));
        if let Some(number) = state.number {
            let _ = writeln!(body, "<tr><th>number<td><code>{}</code>", hex(number));
        }
        body.push_str("<tr><th>parameters<td>");
        if state.params.is_empty() {
            body.push_str("none known");
        }
        for (i, name) in state.params.iter().enumerate() {
            let comma = if i == 0 { "" } else { " or " };
            let found = state.tags.clone().find_map(|tag| atlas.record_at(name, tag));
            let _ = match found {
                Some(page) => {
                    let file = atlas.record_file(page);
                    write!(body, "{comma}<a href=\"../{}\">{}</a>", Esc(&file), Esc(name))
                }
                None => write!(body, "{comma}<code>{}</code>", Esc(name)),
            };
        }
        for (label, text) in words(state).iter().filter(|(_, text)| !text.is_empty()) {
            let _ = write!(body, "\n<tr><th>{label}<td>{}", Esc(text));
        }
        body.push_str("\n</table>\n");
    }
}

fn words<'s>(state: &'s State<'_>) -> Vec<(&'static str, &'s str)> {
    let mut rows = vec![("known", state.how.as_str())];
    if let Some(roles) = &state.roles {
        rows.extend([
            ("file descriptors", roles.fds.as_str()),
            ("pointers", &roles.pointers),
            ("capabilities", &roles.caps),
            ("note", &roles.note),
        ]);
    }
    rows
}

fn call_changes(body: &mut String, atlas: &Atlas<'_>, page: &CallPage<'_>) {
    let (states, changes) = (&page.call.states, &page.changes);
    if changes.len() < 2 && changes.first().is_some_and(|change| change.at == 0) {
        return;
    }
    body.push_str("<h2>History</h2>\n<table class=list>\n");
    for change in changes {
        let (file, tag) = (atlas.tag_file(change.at), Esc(atlas.tag(change.at)));
        let _ = write!(body, "<tr><th><a href=\"../{}\">{tag}</a><td>", Esc(&file));
        match &change.what {
            What::New(_) => body.push_str("there"),
            What::Gone => body.push_str("gone"),
            What::Other(from, to) => {
                let _ = write!(body, "{}", Esc(&tag::differences(&states[*from], &states[*to])));
            }
            What::Inside(pages) => {
                body.push_str("other layout of ");
                inside(body, atlas, pages);
            }
        }
        body.push('\n');
    }
    body.push_str("</table>\n");
}

/// The layouts that a call's parameters have while the call is there.
fn parameters(body: &mut String, atlas: &Atlas<'_>, states: &[State<'_>], index: usize) {
    let record = &atlas.records[index];
    let _ = writeln!(body, "<h2><small>parameters</small> {}</h2>", link(atlas, index));
    let taking = states.iter().filter(|state| atlas.params(state).contains(&index));
    let tags: Vec<&Range<usize>> = taking.map(|state| &state.tags).collect();
    let (Some(first), Some(last)) = (tags.first(), tags.last()) else { return };
    let within = first.start..last.end;
    let taken: BTreeSet<usize> =
        tags.iter().flat_map(|tags| &record.line[(*tags).clone()]).flatten().copied().collect();
    let taken: Vec<usize> = taken.into_iter().collect();
    for number in taken.iter().rev() {
        let before = before(record, *number).filter(|before| taken.contains(before));
        let within = Some(within.clone());
        section(body, atlas, index, &Shown { number: *number, before, level: 3, within });
    }
}

/// The word for a record that is a union.
pub(super) fn keyword(record: &Record<'_>) -> &'static str {
    record.layouts.last().map_or(RecordKind::Struct.keyword(), |layout| layout.kind.keyword())
}
