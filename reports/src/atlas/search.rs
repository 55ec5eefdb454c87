//! What the search page looks through: a script with every name, so that no server is needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Atlas;
use super::history::Spans;
use super::html::{UrlPath, document};
use nvabi_pipeline::globs::Globs;
use nvabi_pipeline::lock::Fact;
use nvabi_pipeline::model::hex;

/// The page that shows results; the form on every page leads to it.
pub(super) fn page() -> String {
    let body = "<h1>Search</h1>\n<p id=status role=status class=m>Type a part of a name, several \
parts, or a number such as 0x2b.</p>\n<noscript><p>Searching needs JavaScript. Without it, the <a \
href=index.html>tables by section</a> list every name.</noscript>\n<ol id=results></ol>\n\
<script src=search.js></script>\n";
    document("Search", "", "search", body)
}

/// The data, as a script: a page opened from disk may load scripts and nothing else.
pub(super) fn data(atlas: &Atlas<'_>) -> String {
    let mut text = String::from("const atlasData = {\n\"records\": [\n");
    for (i, record) in atlas.records.iter().enumerate() {
        let newest = record.line.iter().rev().find_map(|now| *now).unwrap_or(0);
        let size = record.layouts.get(newest).map_or(0, |layout| layout.size);
        let count = record.layouts.len();
        let (name, file) = (Json(record.name), atlas.record_file(i));
        let kind = super::page::keyword(record);
        let _ = writeln!(text, "[{name},{},\"{kind}\",{size},{count}],", Json(&file));
    }
    text.push_str("],\n\"calls\": [\n");
    for page in &atlas.calls {
        let number = page.call.states.iter().rev().find_map(|state| state.number);
        let number = number.map(hex).unwrap_or_default();
        let (name, kind) = (Json(page.call.name), page.call.kind.section());
        let _ = writeln!(text, "[{name},{},\"{kind}\",\"{number}\"],", Json(&page.file));
    }
    text.push_str("],\n\"constants\": [\n");
    constants(&mut text, atlas);
    text.push_str("],\n\"fields\": [\n");
    fields(&mut text, atlas);
    text.push_str("]};\n");
    text
}

/// The constants that the specs ask for, each with its values and its newest place.
fn constants(text: &mut String, atlas: &Atlas<'_>) {
    let patterns = atlas.specs.iter().flat_map(|spec| &spec.constants);
    let wanted = Globs::new(patterns.map(|named| named.name.as_str()));
    let mut found: BTreeMap<&str, &Spans<'_>> = BTreeMap::new();
    for surface in &atlas.surfaces {
        for (name, spans) in surface.constants.iter().filter(|(name, _)| wanted.matches(name)) {
            found.entry(name).or_insert(spans);
        }
    }
    for (name, spans) in found {
        let Some(last) = spans.last() else { continue };
        let tag = last.tags.end - 1;
        let mut values: Vec<String> = spans.iter().map(|span| value(span.fact)).collect();
        values.dedup();
        let place = format!("{}:{}", last.path, last.line);
        let url = atlas.repository(tag).map(|repository| {
            let (tag, path) = (UrlPath(atlas.tag(tag)), UrlPath(last.path));
            format!("{repository}/blob/{tag}/{path}#L{}", last.line)
        });
        let (values, url) = (values.join(" → "), url.unwrap_or_default());
        let (name, values, place) = (Json(name), Json(&values), Json(&place));
        let tag = Json(atlas.tag(tag));
        let _ = writeln!(text, "[{name},{},{values},{place},{tag}],", Json(&url));
    }
}

fn value(fact: &Fact) -> String {
    match fact {
        Fact::Constant(value) => hex(*value),
        Fact::BitRange(high, low) => format!("{high}:{low}"),
        _ => String::new(),
    }
}

/// Names of fields, each with the records that have it.
fn fields(text: &mut String, atlas: &Atlas<'_>) {
    let mut names: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (i, record) in atlas.records.iter().enumerate() {
        let rows = record.layouts.iter().flat_map(|layout| &layout.rows);
        let fields = rows.filter(|row| row.depth == 0).filter_map(|row| row.field);
        for field in fields.filter(|field| !field.name.is_empty()) {
            let records = names.entry(&field.name).or_default();
            if records.last() != Some(&i) {
                records.push(i);
            }
        }
    }
    for (name, records) in names {
        let records: Vec<String> = records.iter().map(usize::to_string).collect();
        let _ = writeln!(text, "[{},{}],", Json(name), records.join(","));
    }
}

/// A text as a JavaScript string.
struct Json<'a>(&'a str);

impl std::fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                // A script that is ever put inside a page must not end there.
                '<' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                    write!(f, "\\u{:04x}", c as u32)?
                }
                _ => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_cannot_leave_their_quotes() {
        assert_eq!(Json("a\"b\\c</script>\n").to_string(), "\"a\\\"b\\\\c\\u003c/script>\\u000a\"");
    }
}
