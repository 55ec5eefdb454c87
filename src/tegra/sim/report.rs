//! What a run leaves to read.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::log::{Count, Diagnostic, Leak};

/// What was seen of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls to the simulated drivers, by the drivers' names.
    pub calls: BTreeMap<String, Count>,
    /// Bugs of the client, and where the simulation ends.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more diagnostics there were that said the same, or came too late.
    pub repeated_diagnostics: usize,
    /// Faults that were asked for, of calls that were not made so often.
    pub unmet_faults: Vec<String>,
    /// What processes had when they ended.
    pub leaks: Vec<Leak>,
    /// Buffers that were still alive when all processes had ended: a bug of the simulation.
    pub live_buffers: usize,
}

impl Report {
    /// As JSON, the same for the same report.
    pub fn to_json(&self) -> String {
        let calls: Vec<String> = self
            .calls
            .iter()
            .map(|(name, count)| {
                let errors: Vec<String> = count
                    .errors
                    .iter()
                    .map(|(errno, times)| format!("{}: {times}", quoted(errno)))
                    .collect();
                format!(
                    "    {}: {{\"total\": {}, \"errors\": {{{}}}}}",
                    quoted(name),
                    count.total,
                    errors.join(", ")
                )
            })
            .collect();
        let diagnostics: Vec<String> = self
            .diagnostics
            .iter()
            .map(|d| {
                format!(
                    "    {{\"process\": {}, \"code\": {}, \"text\": {}}}",
                    d.process,
                    quoted(d.code),
                    quoted(&d.text)
                )
            })
            .collect();
        let leaks: Vec<String> = self
            .leaks
            .iter()
            .map(|l| {
                format!(
                    "    {{\"process\": {}, \"kind\": {}, \"count\": {}}}",
                    l.process,
                    quoted(&l.kind),
                    l.count
                )
            })
            .collect();
        let unmet: Vec<String> =
            self.unmet_faults.iter().map(|fault| format!("    {}", quoted(fault))).collect();
        format!(
            "{{\n  \"calls\": {},\n  \"diagnostics\": {},\n  \"repeated_diagnostics\": {},\n  \
             \"unmet_faults\": {},\n  \"leaks\": {},\n  \"live_buffers\": {}\n}}\n",
            block('{', &calls, '}'),
            block('[', &diagnostics, ']'),
            self.repeated_diagnostics,
            block('[', &unmet, ']'),
            block('[', &leaks, ']'),
            self.live_buffers
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Diagnostic { process, code, text } in &self.diagnostics {
            writeln!(f, "{code:>24}  [{process}] {text}")?;
        }
        for Leak { process, kind, count } in &self.leaks {
            writeln!(f, "{:>24}  [{process}] {count} × {kind}", "left-at-exit")?;
        }
        for fault in &self.unmet_faults {
            writeln!(f, "{:>24}  {fault}", "fault-not-met")?;
        }
        let total: u64 = self.calls.values().map(|count| count.total).sum();
        let failed: u64 = self.calls.values().flat_map(|count| count.errors.values()).sum();
        write!(
            f,
            "{:>24}  {total} calls, {failed} failed, {} diagnostics",
            "Simulated",
            self.diagnostics.len() + self.repeated_diagnostics
        )
    }
}

fn block(open: char, lines: &[String], close: char) -> String {
    match lines {
        [] => format!("{open}{close}"),
        lines => format!("{open}\n{}\n  {close}", lines.join(",\n")),
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
