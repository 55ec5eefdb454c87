//! The page of a version: what is otherwise than in the version before.

use std::fmt::Write as _;

use super::calls::State;
use super::history::Spans;
use super::html::{Esc, document};
use super::{Atlas, Change, What, layout, page};
use crate::words::counted;
use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::hex;

/// How many items change at each tag: calls, then records.
pub(super) fn counts(atlas: &Atlas<'_>) -> Vec<(usize, usize)> {
    let mut counts = vec![(0, 0); atlas.lock.tags.len()];
    for change in atlas.calls.iter().flat_map(|call| &call.changes) {
        counts[change.at].0 += 1;
    }
    let own = |change: &&Change| !matches!(change.what, What::Inside(_));
    for change in atlas.records.iter().flat_map(|r| r.changes.iter().filter(own)) {
        counts[change.at].1 += 1;
    }
    counts
}

pub(super) fn page(atlas: &Atlas<'_>, tag: usize) -> String {
    let name = atlas.tag(tag);
    let mut body = format!("<h1>{}</h1>\n<p>", Esc(name));
    let Some(before) = tag.checked_sub(1) else {
        let records = atlas.records.iter().filter(|r| r.line[0].is_some()).count();
        let _ = writeln!(body, "The first version here. It has {}.", counted(records, "record"));
        neighbours(&mut body, atlas, tag);
        return document(name, "../", "tag", &body);
    };
    let _ = writeln!(
        body,
        "What is otherwise than in {}, the version before in order of numbers.",
        Esc(atlas.tag(before))
    );
    neighbours(&mut body, atlas, tag);
    let _ = writeln!(
        body,
        "<p>This page, or any other pair, with fields, places and what a shim must do: \
         <code>nvabi diff {} {} --html diff.html</code>",
        Esc(atlas.tag(before)),
        Esc(name)
    );
    let length = body.len();
    calls(&mut body, atlas, tag);
    records(&mut body, atlas, tag);
    constants(&mut body, atlas, tag);
    if body.len() == length {
        body.push_str("<p>Nothing: every record and constant is the same.\n");
    }
    document(name, "../", "tag", &body)
}

fn neighbours(body: &mut String, atlas: &Atlas<'_>, tag: usize) {
    body.push_str("<p>");
    if let Some(before) = tag.checked_sub(1) {
        let (file, name) = (atlas.tag_file(before), Esc(atlas.tag(before)));
        let _ = write!(body, "<a href=\"../{}\" rel=prev>← {name}</a> ", Esc(&file));
    }
    if tag + 1 < atlas.lock.tags.len() {
        let (file, name) = (atlas.tag_file(tag + 1), Esc(atlas.tag(tag + 1)));
        let _ = write!(body, "<a href=\"../{}\" rel=next>{name} →</a>", Esc(&file));
    }
    body.push('\n');
}

/// Lines of a list under headings: changed, new, gone.
#[derive(Default)]
struct Lists {
    changed: Vec<String>,
    inside: Vec<String>,
    new: Vec<String>,
    gone: Vec<String>,
}

impl Lists {
    fn print(&self, body: &mut String, what: &str, inside: &str) {
        let lists = [
            (format!("{what} that change"), &self.changed, "changes"),
            (format!("{what} {inside}"), &self.inside, "changes"),
            (format!("New {}", what.to_lowercase()), &self.new, "names"),
            (format!("{what} that are gone"), &self.gone, "names"),
        ];
        for (title, lines, class) in lists.iter().filter(|(_, lines, _)| !lines.is_empty()) {
            let count = lines.len();
            let _ = writeln!(
                body,
                "<h2>{} <small>{count}</small></h2>\n<ul class={class}>",
                Esc(title)
            );
            for line in *lines {
                let _ = writeln!(body, "<li>{line}");
            }
            body.push_str("</ul>\n");
        }
    }
}

fn at(changes: &[Change], tag: usize) -> impl Iterator<Item = &What> {
    changes.iter().filter(move |change| change.at == tag).map(|change| &change.what)
}

fn calls(body: &mut String, atlas: &Atlas<'_>, tag: usize) {
    let mut lists = Lists::default();
    for page in &atlas.calls {
        let call = &page.call;
        let (file, name, kind) = (Esc(&page.file), Esc(call.name), call.kind.section());
        let link = format!("<a href=\"../{file}\">{name}</a> <small>{kind}</small>");
        for what in at(&page.changes, tag) {
            match what {
                What::New(_) => lists.new.push(link.clone()),
                What::Gone => lists.gone.push(link.clone()),
                What::Other(from, to) => {
                    let what = differences(&call.states[*from], &call.states[*to]);
                    lists.changed.push(format!("{link}: {}", Esc(&what)));
                }
                What::Inside(pages) => {
                    let mut line = format!("{link}: ");
                    page::inside(&mut line, atlas, pages);
                    lists.inside.push(line);
                }
            }
        }
    }
    lists.print(body, "Calls", "whose parameters change");
}

/// What the driver has otherwise of a call, in words.
pub(super) fn differences(old: &State<'_>, new: &State<'_>) -> String {
    let mut words = Vec::new();
    if old.number != new.number {
        let [old, new] = [old.number, new.number].map(|n| n.map_or("none".to_owned(), hex));
        words.push(format!("number {old} → {new}"));
    }
    if old.params != new.params {
        let [old, new] = [&old.params, &new.params].map(|params| params.join(" or "));
        words.push(format!("parameters {old} → {new}"));
    }
    let (Some(old), Some(new)) = (&old.roles, &new.roles) else { return words.join("; ") };
    let roles =
        [("file descriptors", &old.fds, &new.fds), ("pointers", &old.pointers, &new.pointers)];
    for (what, old, new) in roles {
        match (old != new, old.is_empty(), new.is_empty()) {
            (false, ..) => {}
            (true, true, _) => words.push(format!("{what} now: {new}")),
            (true, false, true) => words.push(format!("no {what} now")),
            (true, false, false) => words.push(format!("{what}: {old} → {new}")),
        }
    }
    words.join("; ")
}

fn records(body: &mut String, atlas: &Atlas<'_>, tag: usize) {
    let mut lists = Lists::default();
    for (index, record) in atlas.records.iter().enumerate() {
        // Unnamed records are told of with the record they are in.
        if atlas.is_laid_open(record) {
            continue;
        }
        let link = page::link(atlas, index);
        for what in at(&record.changes, tag) {
            match what {
                What::New(number) => {
                    let size = record.layouts[*number].size;
                    lists.new.push(format!("{link} <small>{}</small>", counted(size, "byte")));
                }
                What::Gone => lists.gone.push(link.clone()),
                What::Other(from, to) => {
                    let what = layout::summary(&record.layouts[*to], &record.layouts[*from]);
                    lists.changed.push(format!("{link}: {}", Esc(&what)));
                }
                What::Inside(pages) => {
                    let mut line = format!("{link}: ");
                    page::inside(&mut line, atlas, pages);
                    lists.inside.push(line);
                }
            }
        }
    }
    lists.print(body, "Records", "that hold one that changes");
}

/// Constants with another value than before; of those that come and go the number.
fn constants(body: &mut String, atlas: &Atlas<'_>, tag: usize) {
    let mut lines = std::collections::BTreeMap::new();
    let (mut new, mut gone) =
        (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for surface in &atlas.surfaces {
        for (name, spans) in &surface.constants {
            match (value(spans, tag - 1), value(spans, tag)) {
                (Some(old), Some(new)) if old != new => {
                    lines.entry(*name).or_insert_with(|| format!("{} → {}", text(old), text(new)));
                }
                (None, Some(_)) => drop(new.insert(*name)),
                (Some(_), None) => drop(gone.insert(*name)),
                _ => {}
            }
        }
    }
    if !new.is_empty() || !gone.is_empty() {
        let (new, gone) = (counted(new.len(), "constant"), gone.len());
        let _ = writeln!(body, "<p class=m>Besides, {new} new and {gone} gone.");
    }
    if !lines.is_empty() {
        let count = lines.len();
        let _ = writeln!(
            body,
            "<h2>Constants with another value <small>{count}</small></h2>\n<ul class=changes>"
        );
        for (name, line) in &lines {
            let _ = writeln!(body, "<li><code>{}</code>: {}", Esc(name), Esc(line));
        }
        body.push_str("</ul>\n");
    }
}

fn value<'l>(spans: &Spans<'l>, tag: usize) -> Option<&'l Fact> {
    super::at(spans, tag).map(|span| span.fact)
}

fn text(fact: &Fact) -> String {
    match fact {
        Fact::Constant(value) => hex(*value),
        Fact::BitRange(high, low) => format!("{high}:{low}"),
        _ => String::new(),
    }
}
