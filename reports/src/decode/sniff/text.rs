//! A call as one line.

use std::fmt::Write as _;

use crate::terminal;

use super::super::value::Value;
use super::named::{Field, Named, is_status, last_part, shown};

/// Fields of a line; more are counted, unless all are wanted.
const FEW: usize = 24;

/// `time thread node name detail fields = result duration`.
///
/// Fields that are zero and stay so are left out unless `full`.
pub fn line(named: &Named, full: bool) -> String {
    let mut line = String::new();
    let (seconds, micros) = (named.time / 1_000_000_000, named.time / 1000 % 1_000_000);
    let _ = write!(line, "{seconds:>4}.{micros:06} ");
    let thread = match named.thread == named.process {
        true => named.process.to_string(),
        false => format!("{}/{}", named.process, named.thread),
    };
    let node = named.node.as_deref().unwrap_or("-");
    let _ = write!(line, "{thread:<7} {node:<12} {}", what(named));
    if let Some(fd) = named.fd {
        let _ = write!(line, " {fd}<{}>", named.path);
    }
    if let Some(detail) = &named.detail {
        let number = || format!("{} {:#x}", detail.kind, detail.number);
        let _ = write!(line, " {}", detail.name.clone().unwrap_or_else(number));
    }
    fields(&mut line, named, full);
    let _ = write!(line, " = {}", ended(named));
    if let Some(duration) = named.duration {
        let _ = write!(line, "  {}", time(duration));
    }
    for note in &named.notes {
        let _ = write!(line, "  ({note})");
    }
    let mut line = terminal::line(&line).into_owned();
    line.push('\n');
    line
}

fn what(named: &Named) -> String {
    match (&named.name, named.request) {
        (Some(name), _) if named.carries.is_some() => format!("{name} (carried)"),
        (Some(name), _) => name.clone(),
        (None, Some(request)) => format!("{}({request:#010x})", named.call),
        (None, None) if named.call == "open" => format!("open {}", named.path),
        (None, None) => named.call.to_owned(),
    }
}

fn fields(line: &mut String, named: &Named, full: bool) {
    let said = |field: &&Field| {
        let is_in_detail = named.status.is_some() && is_status(&field.name);
        full || (!is_in_detail && (!is_zero(&field.value) || field.after.is_some()))
    };
    // The detail says it already.
    let has_detail = named.detail.is_some();
    let repeated = |field: &Field| {
        let last = last_part(&field.name);
        has_detail && matches!(last, "hClass" | "cmd")
    };
    let kept: Vec<&Field> =
        named.fields.iter().filter(said).filter(|field| full || !repeated(field)).collect();
    let few = if full { kept.len() } else { FEW.min(kept.len()) };
    for field in &kept[..few] {
        let _ = write!(line, " {}={}", field.name, value(field));
    }
    if kept.len() > few {
        let _ = write!(line, " … {} more fields", kept.len() - few);
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) | Value::Named { value: number, .. } => *number == 0,
        Value::Text(text) => text.is_empty(),
        Value::Bytes(digits) => digits.bytes().all(|digit| digit == b'0'),
        Value::List(items) => items.iter().all(is_zero),
        Value::Record(_) => false,
    }
}

/// `before→after (what it stands for)`.
fn value(field: &Field) -> String {
    // The flags of `open` are their names.
    if let (Some(says), "flags") = (&field.says, field.name.as_str()) {
        return says.clone();
    }
    let mut text = shown(&field.value);
    if let Some(after) = &field.after {
        let _ = write!(text, "→{}", shown(after));
    }
    if let Some(says) = &field.says {
        let _ = write!(text, " ({says})");
    }
    text
}

fn ended(named: &Named) -> String {
    match (&named.error, &named.status, named.result) {
        (Some(error), ..) => error.clone(),
        (None, Some(status), Some(0)) => status.text(),
        (None, Some(status), Some(result)) => format!("{result} {}", status.text()),
        (None, None, Some(result)) if named.call == "mmap" => format!("{result:#x}"),
        (None, None, Some(result)) => result.to_string(),
        (None, _, None) => "?".to_owned(),
    }
}

/// Nanoseconds for people.
pub(super) fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        ..1_000_000 => format!("{:.1}µs", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2}s", nanoseconds as f64 / 1e9),
    }
}
