//! Ranges as text for people.

use std::fmt::Write as _;

use super::{Layout, One, OneAt, Part, Set, Span};

/// Width of `first … last`.
const SPAN: usize = 24;
/// How many names of changes to show.
const SHOWN: usize = 3;

/// One name: its layouts, and the tags that share each.
pub fn one(one: &One) -> String {
    titled(one, "")
}

/// The same, with the tags around one that have what it has.
pub fn one_at(at: &OneAt) -> String {
    let what = match (&at.since, &at.until) {
        (None, _) => String::new(),
        (Some(since), None) => format!("; as shown since {since}"),
        (Some(since), Some(until)) => format!("; as shown since {since}, until {until}"),
    };
    titled(&at.one, &what)
}

fn titled(one: &One, title: &str) -> String {
    let tags: usize = one.layouts.iter().map(|layout| layout.tags.len()).sum();
    let what = match (one.kind, one.layouts.len()) {
        ("constant", 1) => "1 value".to_owned(),
        ("constant", count) => format!("{count} values"),
        (_, 1) => "1 layout".to_owned(),
        (_, count) => format!("{count} layouts"),
    };
    let tags = tags_word(tags);
    let mut text = format!("{} ({}): {what} in {tags}{title}\n", one.name, one.kind);
    one.layouts.iter().for_each(|layout| self::layout(&mut text, layout));
    for callers in &one.callers {
        spans(&mut text, "for", &callers.spans, &callers.access.to_string());
    }
    spans(&mut text, "-", &one.absent, "absent");
    text
}

fn layout(text: &mut String, layout: &Layout) {
    match layout.parts.as_slice() {
        [only] => spans(text, &layout.label, &layout.spans, &part(only, false)),
        parts => {
            spans(text, &layout.label, &layout.spans, "");
            for of in parts {
                let _ = writeln!(text, "      {}", part(of, true));
            }
        }
    }
}

fn part(part: &Part, named: bool) -> String {
    let mut text = match (&part.value, part.size, part.align) {
        (Some(value), ..) => value.clone(),
        (None, Some(size), Some(align)) => format!("size {size}, align {align}"),
        (None, Some(size), None) => format!("size {size}"),
        (None, None, _) => String::new(),
    };
    if named {
        text = format!("{text:<20} {}", part.name);
    }
    match &part.source {
        Some(source) => format!("{text}  {source}"),
        None => text,
    }
}

fn spans(text: &mut String, label: &str, spans: &[Span], what: &str) {
    for (i, of) in spans.iter().enumerate() {
        let (label, what) = if i == 0 { (label, what) } else { ("", "") };
        let line = format!("  {label:<3} {}  {what}", span(of));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn span(span: &Span) -> String {
    let ends = match span.first == span.last {
        true => span.first.clone(),
        false => format!("{} … {}", span.first, span.last),
    };
    format!("{ends:<SPAN$} {:>8}", tags_word(span.count))
}

fn tags_word(count: usize) -> String {
    match count {
        1 => "1 tag".to_owned(),
        _ => format!("{count} tags"),
    }
}

/// A set: the ranges of tags with the same ABI, and what begins with each.
pub fn set(set: &Set) -> String {
    let mut text = String::new();
    for range in &set.ranges {
        let mut line = format!("{:<3} {}", range.label, span(&range.span));
        if !range.changed.is_empty() {
            let _ = write!(line, "  {:>3} differ: {}", range.changed.len(), shown(&range.changed));
        }
        let _ = writeln!(text, "{line}");
    }
    text
}

fn shown(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let mut text = names[..names.len() - more].join(", ");
    if more > 0 {
        text.push_str(", …");
    }
    text
}
