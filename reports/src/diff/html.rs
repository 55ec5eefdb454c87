//! A diff as one HTML page: no other file, no script.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::text::{Block, blocks, scope_text, summary, title};
use super::{Class, Compared, Diff};
use crate::atlas::html::{Esc, alone};
use crate::words::counted;

/// The whole diff as a document.
pub fn html(diff: &Diff, scope: Option<&Compared>) -> String {
    alone(&heading(diff), "diff", &html_body(diff, scope))
}

fn heading(diff: &Diff) -> String {
    format!("{} → {}", diff.from, diff.to)
}

/// The whole diff: what a shim must do first, what is harmless folded away.
pub(crate) fn html_body(diff: &Diff, scope: Option<&Compared>) -> String {
    let heading = heading(diff);
    let mut body = format!("<h1>{}</h1>\n<p class=lead>{}\n", Esc(&heading), Esc(&summary(diff)));
    if let Some(scope) = scope {
        let _ = writeln!(body, "<p>{}", Esc(&scope_text(scope)));
    }
    let classes = [Class::Break, Class::Meaning, Class::Harmless];
    let classes = classes.map(|class| (class, blocks(diff, class)));
    let anchors = anchors(classes.iter().flat_map(|(_, blocks)| blocks));
    advice(&mut body, diff, &anchors);
    for (class, blocks) in classes.iter().filter(|(_, blocks)| !blocks.is_empty()) {
        let (head, what) = title(*class);
        let count = counted(diff.count(*class), "change");
        let head = format!("<h2>{head} <small>{count}: {}</small></h2>", Esc(what));
        let _ = match class {
            Class::Harmless => writeln!(body, "<details><summary>{head}</summary>"),
            _ => writeln!(body, "{head}"),
        };
        blocks.iter().for_each(|block| self::block(&mut body, block, &anchors));
        if *class == Class::Harmless {
            body.push_str("</details>\n");
        }
    }
    body
}

/// What a shim must do, each thing with a link to what it follows from.
fn advice(body: &mut String, diff: &Diff, anchors: &HashMap<&str, usize>) {
    let advice = super::advice(diff);
    if advice.is_empty() {
        return;
    }
    body.push_str("<h2>A shim must</h2>\n<ul class=changes>\n");
    for advice in &advice {
        let subject = Esc(&advice.subject);
        let _ = match anchors.get(advice.subject.as_str()) {
            Some(anchor) => write!(body, "<li><a href=#c{anchor}>{subject}</a>"),
            None => write!(body, "<li><b>{subject}</b>"),
        };
        let _ = writeln!(body, ": {}", Esc(&advice.what));
    }
    body.push_str("</ul>\n");
}

/// A number for each thing that a block is about.
fn anchors<'b>(blocks: impl Iterator<Item = &'b Block>) -> HashMap<&'b str, usize> {
    let mut anchors = HashMap::new();
    for subject in blocks.filter_map(|block| block.subject.as_deref()) {
        let next = anchors.len() + 1;
        anchors.entry(subject).or_insert(next);
    }
    anchors
}

fn block(body: &mut String, block: &Block, anchors: &HashMap<&str, usize>) {
    let anchor = block.subject.as_deref().and_then(|subject| anchors.get(subject));
    let id = anchor.map_or(String::new(), |anchor| format!(" id=c{anchor}"));
    let _ = writeln!(body, "<section{id}><h3>{}</h3>", Esc(&block.head));
    for line in &block.lines {
        let _ = writeln!(body, "<p class=m>{}", Esc(line));
    }
    body.push_str("<table class=d>\n");
    for row in &block.table.0 {
        let class = row.first().map_or("", |cell| sign(cell));
        let _ = write!(body, "<tr{class}>");
        for cell in row {
            let _ = write!(body, "<td>{}", Esc(cell));
        }
        body.push('\n');
    }
    body.push_str("</table>\n");
    if let Some(more) = &block.more {
        let _ = writeln!(body, "<p class=m>{}", Esc(more));
    }
    body.push_str("</section>\n");
}

/// The colour of a row, by its sign; what only moved has none.
fn sign(cell: &str) -> &'static str {
    match cell.chars().next() {
        Some('+') => " class=plus",
        Some('-') => " class=minus",
        Some('~') => " class=other",
        _ => "",
    }
}
