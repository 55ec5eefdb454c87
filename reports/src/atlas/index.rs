//! The first page: what this is, the versions, and the way to everything else.

use std::fmt::Write as _;

use super::html::{Esc, document};
use super::{Atlas, pair, tag};
use crate::words::counted;

/// Newest versions that the page names first.
const NEWEST: usize = 5;

pub(super) fn page(atlas: &Atlas<'_>) -> String {
    let mut body = String::from(
        "<h1>nvabi atlas</h1>\n<p class=lead>The ioctl interface of NVIDIA's kernel driver, version by \
version: every struct with its bytes, every call with its parameters, and where they change. All of \
it comes from the driver's published sources.\n",
    );
    let counts = tag::counts(atlas);
    numbers(&mut body, atlas);
    newest(&mut body, atlas, &counts);
    pair::table(&mut body, atlas);
    matrices(&mut body, atlas);
    branches(&mut body, atlas, &counts);
    document("Driver interface", "", "index", &body)
}

fn numbers(body: &mut String, atlas: &Atlas<'_>) {
    let layouts: usize = atlas.records.iter().map(|record| record.layouts.len()).sum();
    let changing = atlas.records.iter().filter(|record| record.layouts.len() > 1).count();
    let of = |number: usize, what: &str| format!("<li><b>{number}</b> {what}");
    let lines = [
        of(atlas.lock.tags.len(), "versions"),
        of(atlas.branches().len(), "branches"),
        of(atlas.records.len(), "structs and unions"),
        of(layouts, "distinct layouts"),
        of(changing, "structs and unions that change layout"),
        of(atlas.calls.len(), "ioctls, commands and classes"),
    ];
    let _ = writeln!(body, "<ul class=numbers>{}</ul>", lines.concat());
}

fn newest(body: &mut String, atlas: &Atlas<'_>, counts: &[(usize, usize)]) {
    body.push_str("<h2>What changed in …</h2>\n<ul class=changes>\n");
    for at in (0..counts.len()).rev().take(NEWEST) {
        let (file, name) = (atlas.tag_file(at), Esc(atlas.tag(at)));
        let _ = writeln!(
            body,
            "<li><a href=\"{}\">{name}</a>: {}",
            Esc(&file),
            change_count(counts[at])
        );
    }
    body.push_str("</ul>\n");
}

fn change_count((calls, records): (usize, usize)) -> String {
    match (calls, records) {
        (0, 0) => "nothing".to_owned(),
        _ => format!("{}, {}", counted(calls, "call"), counted(records, "record")),
    }
}

fn matrices(body: &mut String, atlas: &Atlas<'_>) {
    body.push_str("<h2>Versions × items</h2>\n<ul class=changes>\n");
    for matrix in &atlas.matrices {
        let _ = writeln!(body, "<li><a href=\"{}\">{}</a>", Esc(&matrix.file), Esc(&matrix.title));
    }
    body.push_str("</ul>\n");
}

/// Every branch with its tags; those that change nothing are muted.
fn branches(body: &mut String, atlas: &Atlas<'_>, counts: &[(usize, usize)]) {
    body.push_str("<h2>Versions</h2>\n<p class=m>With how many calls and records are otherwise than \
in the version before, in order of numbers. That is not the order of release: a fix may reach an old \
branch late.\n<table class=\"list branches\">\n");
    for (branch, tags) in atlas.branches().into_iter().rev() {
        let _ = write!(body, "<tr><th>{}<td>", Esc(branch));
        for at in tags {
            let (file, name) = (atlas.tag_file(at), Esc(atlas.tag(at)));
            let (class, count) = match counts[at] {
                (0, 0) => (" class=m", String::new()),
                (calls, records) => ("", format!(" <small>{}</small>", calls + records)),
            };
            let title = change_count(counts[at]);
            let _ = write!(
                body,
                "<a href=\"{}\"{class} title=\"{title}\">{name}{count}</a> ",
                Esc(&file)
            );
        }
        body.push('\n');
    }
    body.push_str("</table>\n");
}
