//! The page of two branches: what changes from the newest version of one to the newest of the other.

use std::fmt::Write as _;
use std::ops::Range;

use super::Atlas;
use super::html::{Esc, document};
use crate::diff::{self, Class, Compared, Diff, Scope, Side};
use nvabi_pipeline::lock::Lock;
use nvabi_pipeline::model::Facts;
use nvabi_pipeline::spec::Spec;

/// Two branches, the older one first.
pub(super) struct Pair {
    pub(super) file: String,
    diff: Diff,
    compared: Compared,
}

/// Every two branches whose newest versions have a spec.
pub(super) fn pairs(lock: &Lock, specs: &[Spec], branches: &[(&str, Range<usize>)]) -> Vec<Pair> {
    let newest: Vec<(Facts, &Spec)> = (branches.iter())
        .filter_map(|(branch, tags)| {
            let newest = lock.tags.get(tags.clone())?.last()?;
            let spec = specs.iter().find(|spec| spec.driver == *branch)?;
            Some((lock.facts(&newest.tag)?, spec))
        })
        .collect();
    let sides: Vec<Side<'_>> = newest.iter().map(|(facts, spec)| Side { facts, spec }).collect();
    let mut pairs = Vec::new();
    for (i, from) in sides.iter().enumerate() {
        pairs.extend(sides[i + 1..].iter().map(|to| Pair::new(*from, *to)));
    }
    pairs
}

impl Pair {
    fn new(from: Side<'_>, to: Side<'_>) -> Self {
        let items = diff::item_count(from, to);
        Self {
            file: format!("diff/{}_{}.html", from.facts.tag, to.facts.tag),
            diff: diff::diff(from, to, Scope::Items),
            compared: Compared { items, of: None, absent: Vec::new(), elsewhere: None },
        }
    }
}

pub(super) fn page(atlas: &Atlas<'_>, index: usize) -> String {
    let Pair { diff, compared, .. } = &atlas.pairs[index];
    let (from, to) = (Esc(diff.from.as_str()), Esc(diff.to.as_str()));
    let mut body = diff::html_body(diff, Some(compared));
    let _ = writeln!(
        body,
        "<p class=m>The newest versions of two branches. Any other pair: \
         <code>nvabi diff {from} {to} --html diff.html</code>; everything, not the supported items alone: \
         <code>--all</code>."
    );
    document(&format!("{} → {}", diff.from, diff.to), "../", "diff", &body)
}

/// Every pair with its breaks: a row for each older branch, a column for each newer one.
pub(super) fn table(body: &mut String, atlas: &Atlas<'_>) {
    let rows: Vec<&[Pair]> = atlas.pairs.chunk_by(|a, b| a.diff.from == b.diff.from).collect();
    let Some(first) = rows.first() else { return };
    body.push_str(
        "<h2>From branch to branch</h2>\n<p class=m>How many layouts of supported items break from the \
newest version of a branch, on the left, to that of a newer one.\n\
<div class=scroll tabindex=0><table class=\"list pairs\">\n<tr><th>",
    );
    for pair in *first {
        let _ = write!(body, "<th>{}", Esc(pair.diff.to.branch()));
    }
    for row in &rows {
        // Each row has one newer branch less than the one above it.
        let blank = "<td>".repeat(first.len() - row.len());
        let _ = write!(body, "\n<tr><th>{}{blank}", Esc(row[0].diff.from.branch()));
        for Pair { file, diff, .. } in *row {
            let (title, breaks) = (diff::summary(diff), diff.count(Class::Break));
            let (file, title) = (Esc(file), Esc(&title));
            let _ = write!(body, "<td><a href=\"{file}\" title=\"{title}\">{breaks}</a>");
        }
    }
    body.push_str("\n</table></div>\n");
}
