//! Items by versions: a bar for as long as an item stays the same, another colour where it changes.

use std::fmt::Write as _;
use std::ops::Range;

use super::html::{Esc, document};
use super::page::colour;
use super::{Atlas, CallPage, What, tag};
use crate::words::counted;
use nvabi_pipeline::spec::ItemKind;

/// Rows of one page of records.
const ROWS: usize = 300;

/// A page of the matrix.
pub(super) struct Matrix {
    pub(super) title: String,
    pub(super) file: String,
    /// In the list of pages.
    short: String,
    rows: Rows,
}

/// Indices of calls or of records.
enum Rows {
    Calls(Vec<usize>),
    Records(Vec<usize>),
}

/// The pages: one for each section of the specs and for the records, by name in parts where long.
pub(super) fn plan(atlas: &Atlas<'_>) -> Vec<Matrix> {
    let mut pages = Vec::new();
    for kind in ItemKind::ALL {
        let calls = atlas.calls.iter().enumerate().filter(|(_, page)| page.call.kind == kind);
        let named = calls.map(|(i, page)| (page.call.name, i)).collect();
        parts(&mut pages, title(kind), kind.section(), named, Rows::Calls);
    }
    let records = atlas.records.iter().enumerate().filter(|(_, r)| !atlas.is_laid_open(r));
    let named = records.map(|(i, record)| (record.name, i)).collect();
    parts(&mut pages, "Records", "records", named, Rows::Records);
    pages
}

fn parts(
    pages: &mut Vec<Matrix>,
    title: &str,
    file: &str,
    mut named: Vec<(&str, usize)>,
    rows: fn(Vec<usize>) -> Rows,
) {
    named.sort_by_key(|(name, _)| name.to_lowercase());
    let whole = named.len() <= ROWS;
    // Parts of one length, rather than a short one at the end.
    let length = named.len().div_ceil(named.len().div_ceil(ROWS).max(1)).max(1);
    for (number, part) in (1..).zip(named.chunks(length)) {
        let (Some((first, _)), Some((last, _))) = (part.first(), part.last()) else { continue };
        let indices = rows(part.iter().map(|(_, index)| *index).collect());
        pages.push(match whole {
            true => Matrix {
                title: title.to_owned(),
                file: format!("matrix/{file}.html"),
                short: file.to_owned(),
                rows: indices,
            },
            false => Matrix {
                title: format!("{title} {first} – {last}"),
                file: format!("matrix/{file}-{number}.html"),
                short: format!("{file} {number}"),
                rows: indices,
            },
        });
    }
}

fn title(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Frontend => "Ioctls of /dev/nvidiactl and /dev/nvidia*",
        ItemKind::Uvm => "Ioctls of /dev/nvidia-uvm",
        ItemKind::Control => "Control commands",
        ItemKind::Class => "Classes",
        ItemKind::Ioctl => "Other ioctls",
    }
}

/// Some tags at which an item is one thing.
struct Run {
    tags: Range<usize>,
    /// The number of the layout or state.
    number: Option<usize>,
    /// Whether it begins with a change.
    change: Option<String>,
}

pub(super) fn page(atlas: &Atlas<'_>, index: usize) -> String {
    let matrix = &atlas.matrices[index];
    let rows: Vec<(&str, String, Vec<Run>)> = match &matrix.rows {
        Rows::Calls(pages) => pages
            .iter()
            .map(|i| {
                let page = &atlas.calls[*i];
                (page.call.name, page.file.clone(), call_runs(atlas, page))
            })
            .collect(),
        Rows::Records(pages) => pages
            .iter()
            .map(|i| {
                let record = &atlas.records[*i];
                (record.name, atlas.record_file(*i), record_runs(atlas, *i))
            })
            .collect(),
    };
    let changing = rows.iter().filter(|row| changes(&row.2)).count();
    let mut body = format!("<h1>{}</h1>\n", Esc(&matrix.title));
    neighbours(&mut body, atlas, index);
    let _ = writeln!(
        body,
        "<p>{}, {changing} of them change. A bar is as long as an item stays the same; the colour \
changes with the layout, a stripe inside a bar marks a change in a record it holds, and blank is \
absent.\n<p><label><input type=checkbox id=only> only those that change</label>",
        counted(rows.len(), "item"),
    );
    body.push_str("<div class=scroll tabindex=0><table class=matrix>\n");
    head(&mut body, atlas);
    let branches = atlas.branches();
    for (name, file, runs) in &rows {
        let class = if changes(runs) { "" } else { " class=same" };
        let (name, file) = (Esc(name), Esc(file));
        let _ = write!(body, "<tr{class}><th><a href=\"../{file}\" title=\"{name}\">{name}</a>");
        for run in runs {
            cells(&mut body, atlas, run, &branches);
        }
        body.push('\n');
    }
    body.push_str("</table></div>\n");
    document(&matrix.title, "../", "wide", &body)
}

fn changes(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.change.is_some())
}

fn neighbours(body: &mut String, atlas: &Atlas<'_>, index: usize) {
    body.push_str("<p class=parts>");
    for (i, matrix) in atlas.matrices.iter().enumerate() {
        let (text, title) = (Esc(&matrix.short), Esc(&matrix.title));
        let _ = match i == index {
            true => write!(body, "<b>{text}</b> "),
            false => {
                write!(body, "<a href=\"../{}\" title=\"{title}\">{text}</a> ", Esc(&matrix.file))
            }
        };
    }
    body.push('\n');
}

fn head(body: &mut String, atlas: &Atlas<'_>) {
    body.push_str("<colgroup><col class=name>");
    let _ =
        write!(body, "<col span={}></colgroup><thead><tr><th rowspan=2>", atlas.lock.tags.len());
    for (branch, tags) in atlas.branches() {
        let _ = write!(body, "<th class=b colspan={}><span>{}</span>", tags.len(), Esc(branch));
    }
    body.push_str("\n<tr class=tags>");
    for (_, tags) in atlas.branches() {
        for at in tags.clone() {
            let class = if at == tags.start { " class=b" } else { "" };
            let (file, name) = (atlas.tag_file(at), Esc(atlas.tag(at)));
            let _ = write!(body, "<th{class}><a href=\"../{}\">{name}</a>", Esc(&file));
        }
    }
    body.push_str("</thead>\n");
}

/// The cells of a run: one for each branch it crosses, so that the lines between branches show.
fn cells(body: &mut String, atlas: &Atlas<'_>, run: &Run, branches: &[(&str, Range<usize>)]) {
    let mut first = true;
    for (_, tags) in branches {
        let (from, to) = (run.tags.start.max(tags.start), run.tags.end.min(tags.end));
        if from >= to {
            continue;
        }
        let mut class = run.number.map_or(String::new(), |number| colour(number).to_string());
        if from == tags.start {
            class.push_str(" b");
        }
        let _ = match &run.change {
            Some(what) if first => {
                let name = atlas.tag(from);
                let change = if run.number.is_some() { " x" } else { "" };
                write!(
                    body,
                    "<td class=\"{}\" title=\"{}: {}\"",
                    Attr(&class, change),
                    Esc(name),
                    Esc(what)
                )
            }
            _ if class.is_empty() => write!(body, "<td"),
            _ if class.contains(' ') => write!(body, "<td class=\"{}\"", class.trim()),
            _ => write!(body, "<td class={class}"),
        };
        let _ = match to - from {
            1 => write!(body, ">"),
            count => write!(body, " colspan={count}>"),
        };
        first = false;
    }
}

struct Attr<'a>(&'a str, &'a str);

impl std::fmt::Display for Attr<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.trim_start())?;
        f.write_str(self.1)
    }
}

fn record_runs(atlas: &Atlas<'_>, index: usize) -> Vec<Run> {
    let record = &atlas.records[index];
    let size = |number: usize| record.layouts[number].size;
    let starts = record.changes.iter().map(|change| {
        let (number, text) = match &change.what {
            What::New(number) => (Some(*number), counted(size(*number), "byte")),
            What::Gone => (None, "gone".to_owned()),
            What::Other(from, to) if size(*from) == size(*to) => {
                (Some(*to), format!("{}, other fields", counted(size(*to), "byte")))
            }
            What::Other(from, to) => (Some(*to), format!("{} → {} bytes", size(*from), size(*to))),
            What::Inside(pages) => (record.line[change.at], names(atlas, pages)),
        };
        (change.at, number, text)
    });
    runs(starts, atlas.lock.tags.len())
}

/// A call has the colour of what it is made of: itself and the layouts of its parameters.
fn call_runs(atlas: &Atlas<'_>, page: &CallPage<'_>) -> Vec<Run> {
    let states = &page.call.states;
    let mut known: Vec<(usize, Vec<Option<usize>>)> = Vec::new();
    let starts: Vec<_> = (page.changes.iter())
        .map(|change| {
            let at = change.at;
            let text = match &change.what {
                What::New(_) => "there".to_owned(),
                What::Gone => "gone".to_owned(),
                What::Other(from, to) => tag::differences(&states[*from], &states[*to]),
                What::Inside(pages) => names(atlas, pages),
            };
            let number = states.iter().find(|state| state.tags.contains(&at)).map(|state| {
                let same = states.iter().position(|first| !first.differs(state)).unwrap_or(0);
                let params = atlas.params(state).into_iter();
                let key = (same, params.map(|page| atlas.records[page].line[at]).collect());
                known.iter().position(|one| *one == key).unwrap_or_else(|| {
                    known.push(key);
                    known.len() - 1
                })
            });
            (at, number, text)
        })
        .collect();
    runs(starts.into_iter(), atlas.lock.tags.len())
}

fn names(atlas: &Atlas<'_>, pages: &[usize]) -> String {
    const SHOWN: usize = 3;
    let mut names: Vec<&str> = pages.iter().take(SHOWN).map(|p| atlas.records[*p].name).collect();
    if pages.len() > SHOWN {
        names.push("…");
    }
    names.join(", ")
}

/// Cuts all tags at the changes.
fn runs(starts: impl Iterator<Item = (usize, Option<usize>, String)>, count: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open = Run { tags: 0..0, number: None, change: None };
    for (at, number, text) in starts {
        open.tags.end = at;
        let change = Some(text).filter(|_| at > 0);
        let before = std::mem::replace(&mut open, Run { tags: at..at, number, change });
        runs.extend(Some(before).filter(|run| !run.tags.is_empty()));
    }
    open.tags.end = count;
    runs.push(open);
    runs.retain(|run| !run.tags.is_empty());
    runs
}
