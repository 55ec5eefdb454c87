//! What was found in logs, as text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::terminal;

use super::report::{Called, Decoded, Device, Phase, PhaseForm, Row, Step, of_any_file};

/// Width that steps of a loop are wrapped at.
const WIDTH: usize = 96;
/// Requests of other files that are named.
const NAMED: usize = 4;
/// Processes whose phases are printed; the model has all.
const PROCESSES: usize = 8;

/// Tables by device, what is unknown, and the phases.
pub fn text(decoded: &Decoded) -> String {
    let mut text = String::new();
    if let Some(releases) = &decoded.releases {
        let _ = writeln!(text, "{}\n", releases_text(releases));
    }
    for device in decoded.devices.iter().filter(|device| !device.calls.is_empty()) {
        device_table(&mut text, device);
    }
    unknown(&mut text, decoded);
    elsewhere(&mut text, decoded);
    phases(&mut text, &decoded.phases);
    text
}

/// Which releases the requests are those of.
fn releases_text(releases: &[String]) -> String {
    match releases {
        [] => "No locked release of Jetson's knows all of its requests.".to_owned(),
        [one] => format!("Jetson's requests are those of {one}."),
        [first, .., last] => format!("Jetson's requests are those of {first} to {last}."),
    }
}

fn device_table(text: &mut String, device: &Device) {
    let guessed = device.calls.iter().any(|row| row.guessed > 0);
    let path = match (&device.path, device.opened) {
        (Some(path), _) => path,
        (None, 0) => "fds that are known by their requests alone",
        (None, _) if guessed => "fds that ioctls return, or that are known by their requests alone",
        (None, _) => "fds that ioctls return",
    };
    let note = if device.note.is_empty() { String::new() } else { format!(" ({})", device.note) };
    let _ = writeln!(text, "## {}: {path}{note}\n", device.node);
    let rows = device
        .calls
        .iter()
        .map(|row| [nr(row), hex(row), named(row), row.count.to_string(), notes(row)]);
    table(text, ["Nr", "Hex", "Name", "Count", "Notes"], &rows.collect::<Vec<_>>());
}

/// The letter stands before the number where a request has one.
fn nr(row: &Row) -> String {
    row.request.map_or_else(String::new, super::report::letter)
}

fn hex(row: &Row) -> String {
    row.request.map_or_else(String::new, |request| format!("{request:#010x}"))
}

/// The name; without one the four parts of the request, or the words of strace.
fn named(row: &Row) -> String {
    match (&row.name, &row.words) {
        (Some(name), _) => name.clone(),
        (None, Some(words)) => words.clone(),
        (None, None) => parts(row),
    }
}

/// `_IOC(readwrite, 'N', 0x0, 0x8)`: a table's cell has no room for strace's `|`.
fn parts(row: &Row) -> String {
    let (Some(magic), Some(nr), Some(dir), Some(size)) = (row.magic, row.nr, row.dir, row.size)
    else {
        return String::new();
    };
    let letter = u8::try_from(magic).ok().filter(u8::is_ascii_graphic);
    let magic = letter.map_or_else(|| format!("{magic:#x}"), |l| format!("'{}'", char::from(l)));
    format!("_IOC({dir}, {magic}, {nr:#x}, {size:#x})")
}

/// `1 failed: ENOTTY`, and what else there is.
fn notes(row: &Row) -> String {
    let mut notes: Vec<String> = Vec::new();
    if row.name.is_none() {
        notes.push("unknown".to_owned());
    }
    notes.extend(row.errors.iter().map(|(error, count)| format!("{count} failed: {error}")));
    if row.guessed > 0 {
        notes.push(format!("{} by the request alone", row.guessed));
    }
    notes.extend(row.notes.iter().cloned());
    notes.join("; ")
}

/// Cells beyond this stick out of their column.
const WIDEST: usize = 200;

/// A table of Markdown with columns of even width.
fn table<const N: usize>(text: &mut String, head: [&str; N], rows: &[[String; N]]) {
    let cells = |at: usize| rows.iter().map(move |row| row[at].as_str()).chain([head[at]]);
    let width = |at: usize| terminal::width(cells(at), WIDEST);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut line = |cells: [&str; N]| {
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    };
    line(head);
    let rules = widths.map(|width| "-".repeat(width));
    line(std::array::from_fn(|at| rules[at].as_str()));
    for row in rows {
        line(std::array::from_fn(|at| row[at].as_str()));
    }
    text.push('\n');
}

/// What no node knows. Requests of known devices stand in their tables as well.
fn unknown(text: &mut String, decoded: &Decoded) {
    if decoded.unknown.is_empty() {
        return;
    }
    text.push_str("## Unknown requests\n\n");
    let rows = decoded.unknown.iter().map(|unknown| {
        let row = &unknown.row;
        let on = match (&unknown.node, &unknown.path) {
            (Some(_), Some(path)) => path.clone(),
            (Some(node), None) => node.clone(),
            (None, _) => "a file descriptor of unknown origin".to_owned(),
        };
        let what = row.words.clone().unwrap_or_else(|| parts(row));
        [hex(row), what, row.count.to_string(), on, failures(row)]
    });
    table(text, ["Request", "Parts", "Count", "On", "Notes"], &rows.collect::<Vec<_>>());
}

fn failures(row: &Row) -> String {
    let failed = row.errors.iter().map(|(error, count)| format!("{count} failed: {error}"));
    failed.collect::<Vec<_>>().join("; ")
}

/// What is not the driver's: a line for all of it.
fn elsewhere(text: &mut String, decoded: &Decoded) {
    let mut by_request: BTreeMap<String, u64> = BTreeMap::new();
    for other in &decoded.elsewhere {
        let row = &other.row;
        let of_any = row.request.and_then(of_any_file).map(str::to_owned);
        let name = of_any.or_else(|| row.words.clone()).unwrap_or_else(|| hex(row));
        *by_request.entry(name).or_default() += row.count;
    }
    let mut requests: Vec<(String, u64)> = by_request.into_iter().collect();
    let Some(count) = requests.iter().map(|(_, count)| *count).reduce(|a, b| a + b) else { return };
    requests.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = if requests.len() > NAMED { ", …" } else { "" };
    let named: Vec<&str> = requests.iter().take(NAMED).map(|(name, _)| name.as_str()).collect();
    let ioctls = if count == 1 { "ioctl" } else { "ioctls" };
    let _ = writeln!(
        text,
        "{count} {ioctls} of no device above ({}{more}): --json has them.\n",
        named.join(", ")
    );
}

fn phases(text: &mut String, phases: &[Phase]) {
    // Another log may have the same pid.
    let same = |a: &Phase, b: &Phase| a.pid == b.pid && a.first <= b.first;
    let processes: Vec<&[Phase]> = phases.chunk_by(same).collect();
    // Those that did most, in the order of the log.
    let mut by_calls: Vec<usize> = (0..processes.len()).collect();
    by_calls
        .sort_by_key(|at| std::cmp::Reverse(processes[*at].iter().map(|p| p.calls).sum::<u64>()));
    by_calls.truncate(PROCESSES);
    by_calls.sort_unstable();
    for at in &by_calls {
        process(text, processes[*at]);
    }
    if processes.len() > by_calls.len() {
        let left = processes.len() - by_calls.len();
        let _ = writeln!(text, "{left} more processes: --json has their phases.\n");
    }
}

fn process(text: &mut String, phases: &[Phase]) {
    match phases.first().map(|phase| phase.pid) {
        Some(0) | None => text.push_str("## Sequence\n\n"),
        Some(pid) => _ = writeln!(text, "## Sequence of process {pid}\n"),
    }
    for (phase, number) in phases.iter().zip(1..) {
        let Phase { title, first, last, calls, .. } = phase;
        let lines = if first == last {
            format!("line {first}")
        } else {
            format!("lines {first} to {last}")
        };
        let many = if *calls == 1 { "call" } else { "calls" };
        let _ = writeln!(text, "### Phase {number}: {title} ({lines}, {calls} {many})\n");
        match phase.form {
            PhaseForm::Sequence => {}
            PhaseForm::Rounds => text.push_str("    rounds of a loop, by kind:\n"),
            PhaseForm::Counts => text.push_str("    calls, in the order of the first of each:\n"),
        }
        for step in &phase.steps {
            let _ = writeln!(text, "    {}", wrapped(&shown(step)));
        }
        text.push('\n');
    }
    let called =
        |name: &str| phases.iter().any(|phase| phase.steps.iter().any(|step| calls(step, name)));
    if called("SETUP_BIND") && !called("SUBMIT_GPFIFO") {
        text.push_str("No SUBMIT_GPFIFO: work is submitted from user mode, without ioctls.\n\n");
    }
}

fn calls(step: &Step, wanted: &str) -> bool {
    match step {
        Step::Open { .. } => false,
        Step::Call { name, .. } => name == wanted,
        Step::Loop { steps, .. } => steps.iter().any(|step| calls(step, wanted)),
    }
}

/// `2× N:15 GET_FD -> dmabuf`.
fn shown(step: &Step) -> String {
    let (times, body) = match step {
        Step::Open { times, open } => (*times, format!("open {open}")),
        Step::Call { times, nr, name, opens, failed } => {
            let mut body = if nr.is_empty() { name.clone() } else { format!("{nr} {name}") };
            if !opens.is_empty() {
                let _ = write!(body, " -> {}", opens.join(", "));
            }
            if *failed {
                body.push_str(" (fails)");
            }
            (*times, body)
        }
        Step::Loop { times, steps } => {
            let steps: Vec<String> = steps.iter().map(shown).collect();
            (*times, format!("({})", steps.join(", ")))
        }
    };
    match times {
        1 => body,
        _ => format!("{times}× {body}"),
    }
}

/// Breaks a long line behind commas.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for part in text.split_inclusive(", ") {
        if width + part.len() > WIDTH && width > 0 {
            lines.truncate(lines.trim_end().len());
            lines.push_str("\n        ");
            width = 4;
        }
        lines.push_str(part);
        width += part.len();
    }
    lines
}

/// Adds one call on one line: line, pid, fd, node, name, argument, result.
pub fn call(text: &mut String, called: &Called<'_>) {
    let Called { line, pid, fd, .. } = called;
    let _ = match pid {
        0 => write!(text, "{line:>8} {:>7} {fd:>4} ", ""),
        pid => write!(text, "{line:>8} {pid:>7} {fd:>4} "),
    };
    padded(text, called.node.or(called.path).unwrap_or("?"), 12);
    match (called.name.or(called.words), called.request) {
        (Some(name), _) => padded(text, name, 48),
        (None, Some(request)) => {
            let parts = format!("{} {request:#010x}", super::report::letter(request));
            padded(text, &parts, 48);
        }
        (None, None) => padded(text, "?", 48),
    }
    match called.params.as_slice() {
        [one] => padded(text, one, 40),
        several => padded(text, &several.join(" | "), 40),
    }
    let _ = match (called.result, called.error) {
        (Some(value), _) => write!(text, "= {value}"),
        (None, error) => write!(text, "= {}", error.unwrap_or("?")),
    };
    if called.how == "request" {
        text.push_str("  (by the request alone)");
    }
    text.push('\n');
}

/// A column and a space behind it; most of a log is columns, so this is done without a formatter.
fn padded(text: &mut String, cell: &str, width: usize) {
    text.push_str(cell);
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.len()) + 1));
}
